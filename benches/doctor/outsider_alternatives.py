"""Every structural mistake that a scene of the second generator can have, by class.

Each function yields pairs of a class and the wrong keep cells [B, Q, K]. Their order and their draws from `s.rng` decide which cases
are written for a seed.
"""

from __future__ import annotations

import numpy as np


def alternatives(s):
    """Every structural mistake this scene can have: class -> list of keep arrays [B,Q,K]."""
    found = {}
    for part in (causality, direction, padding, windows, chunks, prefixes, documents, trees, caches):
        for name, mask in part(s):
            found.setdefault(name, []).append(mask)
    return found


def causality(s):
    causal = s.fam in ("causal", "sliding", "chunked", "prefix", "blocks")
    if causal and s.qpos is None and s.Q > 0:
        yield "causal_leak", s.build(off=1)
        yield "causal_leak", s.build(off=2)
        if s.fam in ("causal", "sliding"):
            yield "causal_self_excluded", s.build(off=-1)
        yield "causal_dropped", s.build(causal=False)
        if s.written is not None:
            yield "causal_dropped", s.build(causal=False, written=False)
    if s.past and causal:
        yield "causal_alignment", s.build(align=0)


def direction(s):
    """A causal triangle where queries may read in both directions."""
    if s.fam != "full" or s.segs is not None:
        return
    triangle = np.arange(s.K)[None] <= np.arange(s.Q)[:, None]
    if s.role != "cross":
        yield "implicit_causal", triangle & s.build()
        return
    yield "cross_attention_mask", np.broadcast_to(triangle, (s.B, s.Q, s.K)) & True
    yield "cross_attention_mask", triangle & s.build()
    yield "cross_attention_mask", s.build(pad=False)
    yield "padding_keys_visible", s.build(pad=False)


def padding(s):
    if s.V.all():
        return
    yield "padding_keys_visible", s.build(pad=False)
    if s.Q == s.K and s.selfatt and s.fam in ("full", "causal"):
        yield "broadcast_wrong_axis", s.build(pad=False) & s.V[:, :, None]
    if s.B > 1 and s.selfatt and s.segs is None:
        yield "batch_row_wrong", np.repeat(s.build()[:1], s.B, 0)
        yield "batch_row_wrong", np.roll(s.build(), 1, 0)
        yield "batch_row_wrong", s.build()[s.rng.permutation(s.B)]
    if s.selfatt and s.side in ("left", "right") and s.segs is None:
        yield "padding_side", s.build(V=s.V[:, ::-1])
        ls = s.rng.integers(1, s.K + 1, s.B)[:, None]
        j = np.arange(s.K)[None]
        yield "stale_or_bucketed_mask", s.build(V=(j < ls) if s.side == "right" else (j >= s.K - ls))


def windows(s):
    if s.fam in ("sliding", "bisliding"):
        yield "sliding_window_off_by_one", s.build(window=s.window + 1)
        if s.window > 1:
            yield "sliding_window_off_by_one", s.build(window=s.window - 1)
        elif s.fam == "bisliding":
            yield "sliding_window_off_by_one", s.build()
        yield "window_missing_or_wrong_layer", s.build(window=s.K + 200)
    if s.fam == "sliding" and s.kvpos is not None and s.kvpos.max() >= s.K:
        yield "ring_buffer_misaligned", s.build(slots=True)
    if s.fam == "causal" and s.segs is None and s.K > 4 and s.Q > 3:
        q, k = s.grid()
        w = int(s.rng.integers(2, s.K - 1))
        yield "window_missing_or_wrong_layer", s.build() & (k > q - w)


def chunks(s):
    if s.fam == "chunked":
        yield "chunk_boundary", s.build(chunk_from="slot" if s.chunk_from == "text" else "text")
        yield "chunk_boundary", s.build(chunk=1)
        yield "chunk_boundary", s.build(chunk=s.chunk - 1)


def prefixes(s):
    if s.fam == "prefix":
        yield "prefix_lm_or_block_wrong", s.build(prefix=None)
        yield "prefix_lm_or_block_wrong", s.build(prefix=s.K + 1)
        yield "prefix_lm_or_block_wrong", s.build(prefix=s.prefix + 1)
        if not s.V.all():
            p = s.prefix + (s.first()[:, None, None] if s.prefix_from == "text" else 0)
            yield "padding_unmasked_by_later_op", s.build(prefix=None) | (np.arange(s.K)[None, None] < p)
    if s.fam == "blocks":
        yield "prefix_lm_or_block_wrong", s.build(blocks=False)


def documents(s):
    if s.segs is None:
        return
    yield "cross_document", s.build(docs=False)
    yield "cross_document", s.build(segs=one_border_lost(s))
    if all((x > 1).all() for x in s.docs):
        yield "document_boundary_off_by_one", s.build(segs=borders_shifted(s, 1))
        yield "document_boundary_off_by_one", s.build(segs=borders_shifted(s, -1))


def one_border_lost(s):
    """Document numbers [B,K] where each row of several documents has lost a border."""
    segs = s.segs.copy()
    for b in range(s.B):
        d = len(s.docs[b])
        if d > 1:
            x = int(s.rng.integers(1, d))
            segs[b][s.segs[b] > x] -= 1
    return segs


def borders_shifted(s, by):
    """Document numbers [B,K] where every inner border is shifted by `by` tokens."""
    segs = np.zeros_like(s.segs)
    for b in range(s.B):
        ends = np.cumsum(s.docs[b])
        ends[:-1] += by
        d = np.diff(np.concatenate([[0], ends]))
        segs[b, : int(s.docs[b].sum())] = np.repeat(np.arange(1, len(d) + 1), d)
    return segs


def trees(s):
    if s.fam != "tree":
        return
    yield "tree_mask", s.build(tree=False)
    n = len(s.parents)
    siblings = [(i, j) for i in range(n) for j in range(i) if s.parents[i] == s.parents[j]]
    if not siblings:
        return
    one = siblings[int(s.rng.integers(len(siblings)))]
    for seen in ([one], siblings):
        m = s.build()
        for i, j in seen:
            m[:, i, s.past + j] = True
        yield "tree_mask", m


def caches(s):
    if s.written is not None:
        yield "unwritten_cache_visible", s.build(written=False) | ~s.written[:, None, :]
        yield "unwritten_cache_visible", s.build(causal=False, written=False)
    if s.past and s.selfatt and s.written is None and s.fam in ("causal", "sliding"):
        m = s.build()
        m[:, :, s.past :] = False
        yield "stale_decode_mask", m

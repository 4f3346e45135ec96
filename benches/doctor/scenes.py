"""Intended masks of the rarer families: rings, chunks, image blocks, encoders, trees, packed documents."""

from __future__ import annotations

import numpy as np

from build import EOS, PAD, Intent, band, batch, chance, length, padding, pick, settle, tokens, tri


def ring(rng):
    cap = int(rng.integers(4, 24))
    w = int(rng.integers(2, cap + 1))
    q = pick(rng, 1, 1, min(2, cap - w + 1), min(3, cap - w + 1))
    q = max(1, q)
    total = cap + int(rng.integers(1, 3 * cap))
    kp = np.full(cap, -1)
    for t in range(total):
        kp[t % cap] = t
    qp = np.arange(total - q, total)
    keep = (kp[None] >= 0) & (kp[None] <= qp[:, None]) & (kp[None] > qp[:, None] - w)
    ctx = {"window": w, "window_means": "keys visible, self included"}
    inputs = {"kv_positions": kp[None].astype(np.int64), "position_ids": qp[None].astype(np.int64)}
    return (
        Intent(keep[None, None], np.ones((1, q), bool), "sliding", past=cap - q, context=ctx, inputs=inputs),
        cap,
        w,
        q,
    )


def chunked(rng, how_padded):
    c = int(rng.integers(2, 9))
    n_tok, b = c * int(rng.integers(2, 5)) + int(rng.integers(0, c)), batch(rng)
    v = padding(rng, b, n_tok, "left") if how_padded else np.ones((b, n_tok), bool)
    p = np.arange(n_tok)[None] - (~v).sum(1)[:, None]
    same = (p[:, :, None] // c) == (p[:, None, :] // c)
    keep = (same & tri(n_tok, n_tok, 0) & v[:, None, :])[:, None]
    ctx = {pick(rng, "chunk", "chunk", "chunk"): c}
    inputs = {}
    if how_padded:
        inputs["input_ids"] = tokens(rng, v)
        ctx |= {"pad_token_id": PAD, "padding_side": "left"}
    it = Intent(
        settle(rng, keep, v, 0),
        v,
        pick(rng, "chunked", "chunked", "causal_chunked"),
        v if how_padded else None,
        "left",
        0,
        ctx,
        inputs,
    )
    return it, c


def images(rng, window=False):
    b, n_tok = batch(rng), length(rng, 10, 64)
    group = np.zeros((b, n_tok), np.int64)
    for r in group:
        at, n = 1, 0
        while at < n_tok - 2:
            size = int(rng.integers(2, max(3, n_tok // 3)))
            if at + size > n_tok - 1:
                break
            n += 1
            r[at : at + size] = n
            at += size + int(rng.integers(1, 4))
    same = (group[:, :, None] == group[:, None, :]) & (group[:, :, None] > 0)
    base, ctx = tri(n_tok, n_tok, 0), {}
    if window:
        w = int(rng.integers(2, max(3, n_tok // 3)))
        base, ctx = band(n_tok, n_tok, 0, w), {"window": w, "window_means": "keys visible, self included"}
    keep = (base | same)[:, None]
    it = Intent(
        keep,
        np.ones((b, n_tok), bool),
        pick(rng, "block_image", "causal_with_image_blocks"),
        context=ctx,
        inputs={pick(rng, "block_ids", "image_group_ids", "image_ids"): group},
    )
    return it, base, same


def cross(rng, same_length=False):
    b = batch(rng, 2)
    k = length(rng, 5, 48)
    q = k if same_length else length(rng, 2, 32)
    enc = padding(rng, b, k, "right")
    dec = padding(rng, b, q, "right") if chance(rng, 0.5) or same_length else np.ones((b, q), bool)
    keep = np.broadcast_to(enc[:, None, None, :], (b, 1, q, k)).copy()
    ctx = {"pad_token_id": PAD, "q_len": q, "kv_len": k}
    inputs = {"encoder_input_ids": tokens(rng, enc), "input_ids": tokens(rng, dec)}
    return Intent(keep, dec, pick(rng, "cross", "cross_attention"), enc, "right", 0, ctx, inputs), dec


def tree(rng):
    n, past = int(rng.integers(3, 16)), pick(rng, 0, 0, int(rng.integers(1, 12)))
    parents = np.array([-1] + [int(rng.integers(max(-1, i - 4), i)) for i in range(1, n)])
    anc = np.zeros((n, n), bool)
    for i, p in enumerate(parents):
        anc[i, i] = True
        if p >= 0:
            anc[i] |= anc[p]
    keep = np.concatenate([np.ones((n, past), bool), anc], 1)[None, None]
    ctx = {"past_len": past, "q_len": n, "kv_len": n + past} if past else {}
    inputs = {"parents": parents[None].astype(np.int64) if chance(rng, 0.4) else parents.astype(np.int64)}
    return Intent(keep, np.ones((1, n), bool), "tree", past=past, context=ctx, inputs=inputs)


def packed(rng, kind=None, tail=None):
    b, n_tok = pick(rng, 1, 1, 1, 2, 3), length(rng, 8)
    kind = kind or pick(rng, "causal_packed", "causal_packed", "bidirectional_packed")
    tail = chance(rng, 0.4) if tail is None else tail
    seg = np.zeros((b, n_tok), np.int64)
    for r in seg:
        end = n_tok - (int(rng.integers(1, max(2, n_tok // 4))) if tail else 0)
        cuts = np.sort(rng.choice(np.arange(2, end - 1), size=min(end - 3, int(rng.integers(1, 5))), replace=False))
        cuts = cuts[np.diff(cuts, prepend=0) > 1]  # a document of one token looks like padding with a constant position
        for n, (s, e) in enumerate(zip([0, *cuts], [*cuts, end])):
            r[s:e] = n + 1
    real = seg > 0
    m = (seg[:, :, None] == seg[:, None, :]) & real[:, None, :]
    if kind == "causal_packed":
        m &= tri(n_tok, n_tok, 0)
    inputs = {"segment_ids": seg}
    ctx = {}
    pos = np.zeros_like(seg)
    for r, s in zip(pos, seg):
        for n in np.unique(s[s > 0]):
            r[s == n] = np.arange((s == n).sum())
    if chance(rng, 0.4):
        inputs["position_ids"] = pos
    if chance(rng, 0.4):
        ids = rng.integers(5, 96, size=seg.shape)
        for r, s in zip(ids, seg):
            for n in np.unique(s[s > 0]):
                r[np.flatnonzero(s == n)[-1]] = EOS
            r[s == 0] = PAD
        inputs["input_ids"] = ids.astype(np.int64)
        ctx["eos_token_id"] = EOS
        if not real.all():
            ctx["pad_token_id"] = PAD
    keep = settle(rng, m[:, None], real, 0, "self" if chance(rng, 0.7) else "open") if not real.all() else m[:, None]
    return Intent(keep, real, kind, real if tail else None, "right", 0, ctx, inputs), seg


def is_causal(it):
    return it.kind == "causal_packed"

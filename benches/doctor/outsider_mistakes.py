"""Structural mistakes of the second generator, and how an array stores a mask.

`alternatives` lists every wrong mask that a scene can have, by class; `sick_structure` puts one of them into all batch rows
and heads, into one of them, or into the last rows only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from outsider_scenes import (
    sc_bipacked,
    sc_bisliding,
    sc_blocks,
    sc_cached,
    sc_cached_sliding,
    sc_causal,
    sc_chunked,
    sc_cross,
    sc_full,
    sc_packed,
    sc_prefix,
    sc_ring,
    sc_sliding,
    sc_static,
    sc_tree,
    with_redactions,
)


def alternatives(s):
    """Every structural mistake this scene can have: name -> list of keep arrays [B,Q,K] (or 4-D)."""
    o = {}

    def add(name, m):
        o.setdefault(name, []).append(m)

    rng, B = s.rng, s.build
    f = s.fam
    hasf = f in ("causal", "sliding", "chunked", "prefix", "blocks")
    if hasf and s.qpos is None and s.Q > 0:
        add("causal_leak", B(off=1))
        add("causal_leak", B(off=2))
        if f in ("causal", "sliding"):
            add("causal_self_excluded", B(off=-1))
        add("causal_dropped", B(causal=False))
        if s.written is not None:
            add("causal_dropped", B(causal=False, written=False))
    if s.past and hasf:
        add("causal_alignment", B(align=0))
    if f == "full" and s.segs is None:
        q = np.arange(s.Q)[:, None]
        tri = np.arange(s.K)[None] <= q
        if s.role == "cross":
            add("cross_attention_mask", np.broadcast_to(tri, (s.B, s.Q, s.K)) & True)
            add("cross_attention_mask", tri & B())
            add("cross_attention_mask", B(pad=False))
            add("padding_keys_visible", B(pad=False))
        else:
            add("implicit_causal", tri & B())
    if not s.V.all():
        add("padding_keys_visible", B(pad=False))
    if s.Q == s.K and s.selfatt and not s.V.all() and f in ("full", "causal"):
        add("broadcast_wrong_axis", B(pad=False) & s.V[:, :, None])
    if s.B > 1 and s.selfatt and not s.V.all() and s.segs is None:
        add("batch_row_wrong", np.repeat(B()[:1], s.B, 0))
        add("batch_row_wrong", np.roll(B(), 1, 0))
        add("batch_row_wrong", B()[rng.permutation(s.B)])
    if s.selfatt and not s.V.all() and s.side in ("left", "right") and s.segs is None:
        add("padding_side", B(V=s.V[:, ::-1]))
        ls = rng.integers(1, s.K + 1, s.B)
        j = np.arange(s.K)[None]
        V2 = (j < ls[:, None]) if s.side == "right" else (j >= s.K - ls[:, None])
        m = B(V=V2)
        add("stale_or_bucketed_mask", m)
    if f == "sliding":
        add("sliding_window_off_by_one", B(window=s.window + 1))
        if s.window > 1:
            add("sliding_window_off_by_one", B(window=s.window - 1))
        add("window_missing_or_wrong_layer", B(window=s.K + 200))
        if s.kvpos is not None and s.kvpos.max() >= s.K:
            add("ring_buffer_misaligned", B(slots=True))
    if f == "bisliding":
        add("sliding_window_off_by_one", B(window=s.window + 1))
        add("sliding_window_off_by_one", B(window=s.window - 1) if s.window > 1 else B())
        add("window_missing_or_wrong_layer", B(window=s.K + 200))
    if f == "causal" and s.segs is None and s.K > 4 and s.Q > 3:
        q, k = s.grid()
        w = int(rng.integers(2, s.K - 1))
        add("window_missing_or_wrong_layer", B() & (k > q - w))
    if f == "chunked":
        add("chunk_boundary", B(chunk_from="slot" if s.chunk_from == "text" else "text"))
        add("chunk_boundary", B(chunk=1))
        add("chunk_boundary", B(chunk=s.chunk - 1))
    if f == "prefix":
        add("prefix_lm_or_block_wrong", B(prefix=None))
        add("prefix_lm_or_block_wrong", B(prefix=s.K + 1))
        add("prefix_lm_or_block_wrong", B(prefix=s.prefix + 1))
        if not s.V.all():
            p = s.prefix + (s.first()[:, None, None] if s.prefix_from == "text" else 0)
            add("padding_unmasked_by_later_op", B(prefix=None) | (np.arange(s.K)[None, None] < p))
    if f == "blocks":
        add("prefix_lm_or_block_wrong", B(blocks=False))
    if s.segs is not None:
        add("cross_document", B(docs=False))
        g = s.segs.copy()
        for b in range(s.B):  # one border is lost
            d = len(s.docs[b])
            if d > 1:
                x = int(rng.integers(1, d))
                g[b][s.segs[b] > x] -= 1
        add("cross_document", B(segs=g))
        for r in (1, -1):
            ok = all((x[:-1] > 1).all() and x[-1] > 1 if r == 1 else (x > 1).all() for x in s.docs)
            if not ok:
                continue
            g = np.zeros_like(s.segs)
            for b in range(s.B):
                t = int(s.docs[b].sum())
                ends = np.cumsum(s.docs[b])
                ends[:-1] += r
                d = np.diff(np.concatenate([[0], ends]))
                g[b, :t] = np.repeat(np.arange(1, len(d) + 1), d)
            add("document_boundary_off_by_one", B(segs=g))
    if s.fam == "tree":
        add("tree_mask", B(tree=False))
        n = len(s.parents)
        sib = [(i, j) for i in range(n) for j in range(i) if s.parents[i] == s.parents[j]]
        if sib:
            i, j = sib[int(rng.integers(len(sib)))]
            m = B()
            m[:, i, s.past + j] = True
            add("tree_mask", m)
            m = B()
            for i, j in sib:
                m[:, i, s.past + j] = True
            add("tree_mask", m)
    if s.written is not None:
        add("unwritten_cache_visible", B(written=False) | ~s.written[:, None, :])
        add("unwritten_cache_visible", B(causal=False, written=False))
    if s.past and s.selfatt and s.written is None and f in ("causal", "sliding"):
        m = B()
        m[:, :, s.past :] = False
        add("stale_decode_mask", m)
    return o


SCENES = {
    "causal": sc_causal,
    "full": sc_full,
    "sliding": sc_sliding,
    "bisliding": sc_bisliding,
    "chunked": sc_chunked,
    "prefix": sc_prefix,
    "packed": sc_packed,
    "bipacked": sc_bipacked,
    "cached": sc_cached,
    "cached_sliding": sc_cached_sliding,
    "static": sc_static,
    "ring": sc_ring,
    "tree": sc_tree,
    "cross": sc_cross,
    "blocks": sc_blocks,
}


def encode(s, rng, keep, need=None, empties_ok=False):
    """Choose convention, dtype, shape. keep [B,H,Q,K]. Returns the array, and the declared keys."""
    conv = need or rng.choice(
        ["keep_bool", "keep_bool", "keep_bool", "ignore_bool", "keep_01", "additive", "additive", "additive"]
    )
    d = {"convention": str(conv)}
    empty = (keep.sum(-1) == 0).any()
    if conv == "keep_bool":
        a = keep.copy()
        if rng.random() < 0.6:
            d["api"] = "sdpa"
    elif conv == "ignore_bool":
        a = ~keep
        if rng.random() < 0.5:
            d["api"] = (
                "torch.nn.MultiheadAttention.attn_mask"
                if s.role != "key_padding"
                else "torch.nn.MultiheadAttention.key_padding_mask"
            )
    elif conv == "keep_01":
        a = keep.astype(rng.choice(["int64", "int32", "uint8", "float32"]))
    else:
        t = rng.choice(["float32", "float32", "float16"])
        fills = {"float32": [-np.inf, np.finfo("float32").min, -1e9, -1e4], "float16": [-np.inf, -1e4]}[str(t)]
        if empty and not empties_ok:
            fills = fills[1:]
        a = np.where(keep, 0.0, fills[int(rng.integers(len(fills)))]).astype(t)
        d["compute_dtype"] = str(t)
        if rng.random() < 0.4:
            d["api"] = "sdpa"
    return a, d


def shape(s, rng, a, plane=False):
    """Drop dimensions that say nothing. a [B,H,Q,K]."""
    B, H, Q, K = a.shape

    def same(x, ax):
        return all(
            (np.array_equal(np.take(x, 0, ax), np.take(x, i, ax), equal_nan=a.dtype.kind == "f"))
            for i in range(x.shape[ax])
        )

    if plane:
        p = a[:, 0, 0]
        return p if rng.random() < 0.6 else p[:, None, None, :]
    if same(a, 1) and rng.random() < 0.85:
        a = a[:, :1]
    if B > 1 and same(a, 0) and s.redact is None and rng.random() < 0.5:
        a = a[:1]
        if a.shape[1] == 1 and rng.random() < 0.5:
            return a[0, 0]
        return a
    if a.shape[0] == 1 and a.shape[1] == 1:
        r = rng.random()
        if r < 0.35:
            return a[0, 0]
        if r < 0.5 and s.heads is None:
            return a[0]
    if a.shape[1] == 1 and a.shape[0] > 1 and s.heads is None and rng.random() < 0.3:
        return a[:, 0]
    return a


@dataclass
class Case:
    """One question for the doctor, with its answer."""

    s: Any
    name: str
    mask: np.ndarray
    keys: dict  # what is declared of values and function
    intended: np.ndarray
    effective: np.ndarray
    care: np.ndarray
    classes: list[str]  # empty: healthy
    accept: tuple[str, ...] | list[str] = ()  # other classes that are right answers, "*" for any
    repair: bool = True
    value: bool = False  # wrong in values or companions: a blind case may always know
    blind: bool = True
    open_q: bool = False
    joined: bool = False  # a row of keys, joined with a causal slot or not
    must_conv: bool = False


def heads4(s, m):
    return np.repeat(m[:, None], s.H, 1) if m.ndim == 3 else m


def rowstyle(s, rng, *ms):
    """Padding rows: they see themselves, or are left as they come."""
    style = "self" if rng.random() < 0.6 and s.selfatt and s.written is None else "plain"
    return style, [s.padrows(m, style) for m in ms]


def same_care(s, a, b):
    c = s.care()[:, :, None]
    return bool(((a == b) | ~c).all())


def draw_scene(rng, only=None, **kw):
    while True:
        n = only or list(SCENES)[int(rng.integers(len(SCENES)))]
        s = SCENES[n](rng, **kw)
        if s is None:
            continue
        if (
            s.fam in ("causal", "full", "sliding")
            and s.Q == s.K
            and s.selfatt
            and s.segs is None
            and rng.random() < 0.15
        ):
            r = with_redactions(s)
            if r is None:
                continue
        return n, s


def finish(s, rng, name, good, bad, classes, accept, **kw):
    """Encode `bad` and make the case."""
    G, X = heads4(s, good), heads4(s, bad)
    need = kw.pop("need", None)
    a, keys = encode(s, rng, X, need)
    a = shape(s, rng, a)
    return Case(s, name, a, keys, G, X, s.care()[:, None, :, None], classes, accept, **kw)


def sick_structure(rng):
    """One structural mistake; in all rows, one row, one head, or late."""
    n, s = draw_scene(rng)
    alts = alternatives(s)
    good = s.build()
    names = [k for k in alts]
    if not names:
        return None
    cls = names[int(rng.integers(len(names)))]
    bad = alts[cls][int(rng.integers(len(alts[cls])))]
    if same_care(s, good, bad):
        return None
    acc = [k for k in names if k != cls and any(same_care(s, m, bad) for m in alts[k])]
    how = rng.random()
    scope = "all"
    rep = True
    if s.B > 1 and how < 0.15 and cls not in ("batch_row_wrong", "stale_or_bucketed_mask"):
        b = int(rng.integers(s.B))
        m = good.copy()
        m[b] = bad[b]
        bad, scope = m, "row"
        if same_care(s, good, bad):
            return None
        acc = sorted(
            {
                k
                for k in names
                if k != cls
                and any(same_care(s, np.where((np.arange(s.B) == b)[:, None, None], m2, good), bad) for m2 in alts[k])
            }
        )
        if b > 0:
            acc.append("batch_row_wrong")  # C30: "row 0 fits the family and some b > 0 does not"
        if cls in ("padding_keys_visible", "broadcast_wrong_axis", "padding_side"):
            acc += [
                "stale_or_bucketed_mask",
                "padding_keys_visible",
            ]  # one row with other lengths: C50 and C16 hold by their rules
    elif (
        how < 0.22
        and s.Q == s.K
        and cls not in ("batch_row_wrong", "stale_or_bucketed_mask", "padding_side")
        and s.segs is None
    ):
        # one head only
        s.H = int(rng.integers(2, 5))
        s.heads = s.H
        s.obvious["heads"] = s.H
        h = int(rng.integers(s.H))
        g4 = heads4(s, good).copy()
        b4 = g4.copy()
        b4[:, h] = bad
        style, (_,) = rowstyle(s, rng, good)
        if style == "self":
            g4 = np.stack([s.padrows(g4[:, i], style) for i in range(s.H)], 1)
            b4 = np.stack([s.padrows(b4[:, i], style) for i in range(s.H)], 1)
        return finish(s, rng, f"{cls}/{n}/head", g4, b4, [cls], acc)
    elif how < 0.27 and s.Q == s.K and s.Q > 8:
        t = int(rng.integers(s.Q // 2, s.Q - 1))
        m = good.copy()
        m[:, t:] = bad[:, t:]
        bad, scope = m, "late"
        if cls in ("padding_side", "padding_keys_visible", "broadcast_wrong_axis"):
            return None
        if cls == "causal_dropped":
            acc.append("causal_leak")
        if same_care(s, good, bad):
            return None
        acc = acc + ["unexplained_difference"]
        rep = False
    if cls == "broadcast_wrong_axis":
        gg, bb = good, bad
    elif cls == "batch_row_wrong":
        _, (gg,) = rowstyle(s, rng, good)
        r = rng.random()
        bb = np.repeat(gg[:1], s.B, 0) if r < 0.5 else np.roll(gg, 1, 0)
        if same_care(s, gg, bb):
            return None
        if r >= 0.5:
            acc.append("stale_or_bucketed_mask")
    else:
        style, (gg, bb) = rowstyle(s, rng, good, bad)
    if cls == "cross_document" and any((d == 1).any() for d in s.docs):
        acc.append(
            "document_boundary_off_by_one"
        )  # a border lost beside a document of one token is a border shifted by one
    if cls == "causal_self_excluded" and s.Q == 1:
        acc.append("stale_decode_mask")
    c = s.care()
    if (bb.sum(-1) == 0)[c].any():
        acc.append("fully_masked_row")  # a real row without keys: catalogue C07 is true of it as well
    return finish(s, rng, f"{cls}/{n}/{scope}", gg, bb, [cls], acc, repair=rep, blind=scope != "late")


def sick_pair(rng):
    """Two mistakes at once: one in what is built, one in padding or documents."""
    n, s = draw_scene(rng, str(rng.choice(["causal", "sliding", "packed"])))
    good = s.build()
    first = str(rng.choice(["causal_leak", "causal_self_excluded", "causal_dropped", "sliding_window_off_by_one"]))
    second = "cross_document" if s.segs is not None else "padding_keys_visible"
    kw = {"cross_document": {"docs": False}, "padding_keys_visible": {"pad": False}}[second]
    if first == "sliding_window_off_by_one":
        if s.fam != "sliding":
            return None
        k1 = {"window": s.window + 1}
    else:
        k1 = {"causal_leak": {"off": 1}, "causal_self_excluded": {"off": -1}, "causal_dropped": {"causal": False}}[
            first
        ]
    bad = s.build(**kw, **k1)
    if same_care(s, bad, s.build(**kw)) or same_care(s, bad, s.build(**k1)) or same_care(s, good, bad):
        return None
    if any(same_care(s, m, bad) for ms in alternatives(s).values() for m in ms):
        return None
    _, (gg, bb) = rowstyle(s, rng, good, bad)
    acc = [second, "fully_masked_row"] if (bb.sum(-1) == 0)[s.care()].any() else [second]
    return finish(s, rng, f"pair:{first}+{second}/{n}", gg, bb, [first], acc)


def sick_flip(rng):
    """Some cells are wrong, by no rule."""
    n, s = draw_scene(rng)
    good = s.build()
    _, (gg,) = rowstyle(s, rng, good)
    bad = gg.copy()
    b, q = np.nonzero(s.care())
    for _ in range(int(rng.integers(1, 4))):
        i = int(rng.integers(len(b)))
        k = int(rng.integers(s.K))
        bad[b[i], q[i], k] ^= True
    if same_care(s, gg, bad) or any(same_care(s, m, bad) for ms in alternatives(s).values() for m in ms):
        return None
    acc = ["fully_masked_row"] if (bad.sum(-1) == 0)[s.care()].any() else []
    # a rule may explain one or two cells by accident (a border, a single sibling): any class is taken, what counts is the finding
    return finish(s, rng, f"flip/{n}", gg, bad, ["unexplained_difference"], acc + ["*"], repair=False, blind=False)


def sick_invert(rng):
    n, s = draw_scene(rng, str(rng.choice(["causal", "full", "sliding", "packed", "cached", "cross", "prefix"])))
    good = s.build()
    if good.all():
        return None
    _, (gg,) = rowstyle(s, rng, good)
    X = heads4(s, gg)
    conv = str(rng.choice(["keep_bool", "ignore_bool", "keep_01"]))
    a, keys = encode(s, rng, ~X, conv)
    a = shape(s, rng, a)
    acc = []
    alts = alternatives(s)
    acc += [k for k in alts if any(same_care(s, m, ~gg) for m in alts[k])]
    return Case(
        s,
        f"inverted_polarity/{n}",
        a,
        keys,
        X,
        ~X,
        s.care()[:, None, :, None],
        ["inverted_polarity"],
        acc,
        must_conv=True,
    )

"""Axes, heads, batch rows, padding, positions and caches (C08, C09, C16 to C20, C29 to C31, C50)."""

from __future__ import annotations

import numpy as np

from build import (
    EOS,
    PAD,
    PLANE,
    Case,
    band,
    batch,
    cached,
    chance,
    intent,
    length,
    of_intent,
    padding,
    pick,
    positions,
    say,
    say_plane,
    tokens,
    tri,
)
from scenes import packed, ring
from faulty import bug, made, plane_case

# ---- shape, broadcast, batch ----


@bug
def c08_queries(rng):
    kind = pick(rng, "bidirectional", "bidirectional", "causal")
    it = intent(rng, kind, pick(rng, "left", "right"))
    if it.real.all():
        return None
    n_tok = it.keep.shape[-1]
    m = it.valid[:, None, :, None] & (tri(n_tok, n_tok, 0) if kind == "causal" else np.ones((n_tok, n_tok), bool))
    c = made(
        rng,
        "C08.padding_on_queries",
        ["broadcast_wrong_axis"],
        "unsqueeze(-1) for unsqueeze(-2)",
        it,
        np.broadcast_to(m, it.keep.shape).copy(),
        pick(rng, "keep_bool", "keep_01", "additive"),
    )
    if c is not None and kind == "bidirectional" and chance(rng, 0.4):
        c.mask = it.valid[:, None, :, None].copy()
        c.context |= {"api": "sdpa", "convention": "keep_bool"}
        c.context.pop("compute_dtype", None)
    return c


@bug
def c09_square(rng):
    b = int(rng.integers(3, 9))
    v = padding(rng, b, b, "right")
    if v.shape[0] != v.shape[1] or (v == v[:1]).all():
        return None
    keep = np.broadcast_to(v[:, None, None, :], (b, 1, b, b)).copy()
    eff = np.broadcast_to(v[None, None], (b, 1, b, b)).copy()
    care = np.broadcast_to(v[:, None, :, None], keep.shape).copy()
    if not ((keep != eff) & care).any():
        return None
    return Case(
        "C09.batch_equals_length",
        ["rank_ambiguity"],
        "(B, S) read as (L, S) because B == L",
        v.copy(),
        {"api": "sdpa", "convention": "keep_bool", "role": "attn", "kind": "bidirectional", "pad_token_id": PAD},
        keep,
        care,
        eff,
        {"input_ids": tokens(rng, v)},
        accept=("batch_row_wrong",),
    )


@bug
def c09_heads(rng):
    b = int(rng.integers(2, 5))
    it = intent(rng, "causal", pick(rng, "left", "right"), b=b)
    if (it.keep == it.keep[:1]).all():
        return None
    mask = it.keep[:, 0]
    eff = np.broadcast_to(mask[None], (b, b, *mask.shape[1:]))
    if not ((eff != it.keep) & it.care).any():
        return None
    ctx = {"api": "sdpa", "convention": "keep_bool", "role": "attn", "heads": b}
    return of_intent(
        "C09.batch_equals_heads",
        ["rank_ambiguity"],
        "(B, L, S) read as (H, L, S) because B == H",
        it,
        mask,
        ctx,
        eff.copy(),
        accept=("head_batch_layout",),
    )


@bug
def c29_repeat(rng):
    b, h = int(rng.integers(2, 5)), pick(rng, 2, 4, 8)
    it = intent(rng, pick(rng, "causal", "bidirectional"), pick(rng, "left", "right"), b=b, n_tok=length(rng, 5, 24))
    wrong = np.concatenate([it.keep[:, 0]] * h).reshape(b, h, *it.keep.shape[2:])  # repeat, not repeat_interleave
    care = it.care
    if not ((wrong != it.keep) & care).any():
        return None
    mask = ~wrong.reshape(b * h, *wrong.shape[2:])
    ctx = {
        "api": "torch.nn.MultiheadAttention.attn_mask",
        "convention": "ignore_bool",
        "role": "attn",
        pick(rng, "heads", "heads"): h,
        "kind": it.kind,
        **it.context,
    }
    return Case(
        "C29.repeat",
        ["head_batch_layout"],
        "repeat(H) where repeat_interleave(H) was meant",
        mask,
        ctx,
        it.keep,
        care,
        wrong,
        it.inputs,
    )


@bug(made, "C30.row_zero_for_all", ["batch_row_wrong"], "mask[0] used for every row", accept=("padding_keys_visible",))
def c30_row_zero(rng):
    it = intent(rng, pick(rng, "bidirectional", "causal"), pick(rng, "left", "right"), b=int(rng.integers(2, 5)))
    m = np.broadcast_to(it.keep[:1], it.keep.shape).copy()
    return it, m, pick(rng, "keep_bool", "keep_01", "additive")


@bug(
    plane_case,
    "C30.rows_permuted",
    ["batch_row_wrong"],
    "sorted by length, never sorted back",
    accept=("stale_or_bucketed_mask",),
)
def c30_permuted(rng):
    b = int(rng.integers(2, 5))
    v = padding(rng, b, length(rng, 6), pick(rng, "left", "right"))
    if len({tuple(r) for r in v}) < b:
        return None
    wrong = v[np.roll(np.arange(b), 1)]
    return v, *say_plane(rng, wrong)


@bug
def c50_stale(rng):
    b, n_tok = batch(rng, 2), length(rng, 6)
    v, old = padding(rng, b, n_tok, "right"), padding(rng, b, n_tok, "right")
    if not (old & ~v).any() or {tuple(r) for r in v} == {tuple(r) for r in old}:
        return None
    mask, ctx = say_plane(rng, old)
    lens = v.sum(1).astype(np.int64)
    return plane_case(
        rng,
        "C50.stale",
        ["stale_or_bucketed_mask"],
        "the mask of an earlier batch",
        v,
        mask,
        ctx,
        inputs={"lengths": lens},
        accept=("padding_keys_visible", "batch_row_wrong"),
    )


@bug
def c50_bucket(rng):
    n_tok = length(rng, 6, 60)
    big = n_tok + int(rng.integers(1, 9))
    b = batch(rng)
    keep = np.broadcast_to(tri(n_tok, n_tok, 0), (b, 1, n_tok, n_tok)).copy()
    mask = np.broadcast_to(tri(big, big, 0), (b, 1, big, big)).copy()
    ctx = {
        "api": "flex_attention",
        "convention": "keep_bool",
        "role": "attn",
        "kind": "causal",
        "q_len": n_tok,
        "kv_len": n_tok,
    }
    return Case(
        "C50.bucket",
        ["stale_or_bucketed_mask"],
        "a mask made for the bucket, not for the sequence",
        mask,
        ctx,
        keep,
        np.ones_like(keep),
        keep.copy(),
        {"input_ids": tokens(rng, np.ones((b, n_tok), bool))},
        values_only=True,
    )


# ---- padding ----


@bug(plane_case, "C16.all_ones", ["padding_keys_visible"], "the mask is all ones")
def c16_all_ones(rng):
    v = padding(rng, batch(rng), length(rng, 6), pick(rng, "left", "right"))
    mask, ctx = say_plane(rng, np.ones_like(v))
    kind = "bidirectional" if v[:, 0].all() else pick(rng, "bidirectional", "causal")
    if ctx["role"] != "key_padding":
        kind = "bidirectional"
    return v, mask, ctx, kind


@bug(made, "C16.no_padding_term", ["padding_keys_visible"], "the padding term is missing")
def c16_no_padding_term(rng):
    it = intent(rng, pick(rng, "causal", "sliding", "bidirectional"), "left")
    k = it.keep.shape[-1]
    m = {
        "causal": tri(k, k, 0),
        "bidirectional": np.ones((k, k), bool),
        "sliding": band(k, k, 0, it.context.get("window", 1)),
    }[it.kind]
    return it, np.broadcast_to(m, it.keep.shape).copy()


@bug
def c31_holes(rng):
    b, n_tok = batch(rng), length(rng, 10)
    side_ = pick(rng, "left", "right")
    v = padding(rng, b, n_tok, side_)
    ids = tokens(rng, v, EOS)
    for r, vr in zip(ids, v):
        at = np.flatnonzero(vr)
        for t in at[2:-2][rng.random(max(0, len(at) - 4)) < 0.15]:
            r[t] = EOS
    mask = ids != EOS
    if not (~mask & v)[:, 1:-1].any():
        return None
    mask, ctx = (
        mask.astype(np.int64),
        PLANE,
    )
    kind = pick(rng, "causal", "bidirectional")
    c = plane_case(
        rng, "C31.ids_ne_pad", ["pad_equals_eos_holes"], "mask = ids != pad while pad == eos", v, mask, ctx, kind, EOS
    )
    if c is None:
        return None
    c.inputs["input_ids"] = ids
    c.context |= {"eos_token_id": EOS, "padding_side": side_}
    c.inputs["lengths"] = v.sum(1).astype(np.int64)
    return c


# ---- positions and caches ----


def with_positions(rng, name, why, it, p, **more):
    mask, ctx = say(rng, it.keep)
    return of_intent(
        name,
        ["position_ids"],
        why,
        it,
        mask,
        ctx,
        inputs={"position_ids": p.astype(np.int64)},
        values_only=True,
        accept=("padding_side_position_ids", "padding_side / position_ids", "padding_side"),
        **more,
    )


@bug
def c17_arange_learned(rng):
    it = intent(rng, "causal", "left")
    b, _, _, k = it.keep.shape
    return with_positions(
        rng,
        "C17.arange_left_padding",
        "learned positions counted from slot 0",
        it,
        np.broadcast_to(np.arange(k), (b, k)),
        also={"position_encoding": pick(rng, "learned", "absolute")},
    )


@bug(with_positions, "C17.right_padding_positions", "positions made for right padding, ids padded left")
def c17_other_side(rng):
    it = intent(rng, "causal", "left")
    p = positions(it.valid[:, ::-1])
    if (np.where(it.valid, p - positions(it.valid), 0) == 0).all():
        return None
    return it, p


@bug(
    with_positions,
    "C17.packed_not_reset",
    "positions run on over packed documents",
    also={"position_encoding": "learned"},
)
def c17_not_reset(rng):
    it, _ = packed(rng)
    b, _, _, k = it.keep.shape
    it.inputs.pop("position_ids", None)
    return it, np.broadcast_to(np.arange(k), (b, k))


@bug
def c18_short(rng):
    past, q = int(rng.integers(2, 24)), int(rng.integers(1, 4))
    v = padding(rng, batch(rng), past + q, "left")
    v[:, past:] = True
    it = cached(v, past, pad_token_id=PAD)
    cut = pick(rng, v[:, :past], v[:, past:])
    return of_intent(
        "C18.short_plane",
        ["stale_decode_mask"],
        "the padding mask does not grow with the cache",
        it,
        cut.astype(np.int64),
        PLANE,
        np.zeros_like(it.keep),
        inputs={"input_ids": tokens(rng, v)},
        values_only=True,
    )


@bug
def c18_zero_extended(rng):
    past, q = int(rng.integers(3, 24)), int(rng.integers(1, 4))
    v = padding(rng, batch(rng), past + q, "left")
    v[:, past - 1 :] = True
    it = cached(v, past, pad_token_id=PAD)
    w = v.copy()
    w[:, past:] = False
    return of_intent(
        "C18.zero_extended",
        ["stale_decode_mask"],
        "new tokens are appended with 0",
        it,
        w.astype(np.int64),
        PLANE,
        it.keep & w[:, None, None, :],
        inputs={"input_ids": tokens(rng, v)},
    )


@bug(
    made,
    "C19.unwritten",
    ["unwritten_cache_visible"],
    "slots of the static cache that were never written",
    accept=("causal_leak",),
)
def c19_unwritten(rng):
    past, q = int(rng.integers(1, 24)), int(rng.integers(1, 4))
    cap = past + q + int(rng.integers(1, 16))
    it = cached(np.ones((batch(rng), cap), bool), past, q_len=q)
    it.context |= pick(rng, {}, {}, {"kv_written": past + q})
    m = it.keep.copy()
    m[..., past + q :] = True
    return it, m


@bug(made, "C20.slot_order", ["ring_buffer_misaligned"], "the window is taken in slot order")
def c20_ring(rng):
    it, cap, w, q = ring(rng)
    return it, band(q, cap, cap - q, w)[None, None]

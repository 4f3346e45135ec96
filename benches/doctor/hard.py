"""Rarer mistakes: one head or one batch row only, a few cells, two mistakes at once, masks of the wrong sequence."""

from __future__ import annotations

import numpy as np

from build import (
    PLANE,
    Case,
    Intent,
    added,
    band,
    batch,
    chance,
    covered,
    intent,
    length,
    of_intent,
    padding,
    pick,
    plain_causal,
    plane,
    say_plane,
    side,
    tokens,
    tri,
)
from scenes import chunked, cross, packed, tree
from faulty import bug, made, plane_case


@bug(made, "X.few_future_cells", ["causal_leak"], "a few future cells are visible", blind=False)
def x_few_future_cells(rng):
    it = intent(rng, "causal", side(rng), n_tok=length(rng, 6))
    m = it.keep.copy()
    b, _, q, k = m.shape
    for _ in range(int(rng.integers(1, 4))):
        i = int(rng.integers(0, k - 1))
        m[int(rng.integers(b)), 0, i, int(rng.integers(i + 1, k))] = True
    m &= it.valid[:, None, None, :] | np.eye(k, dtype=bool) if it.valid is not None else True
    return it, m, pick(rng, "keep_bool", "keep_01", "additive")


@bug
def x_one_head(rng):
    it = intent(rng, pick(rng, "causal", "sliding"), side(rng), n_tok=length(rng, 6, 48))
    h = pick(rng, 2, 4)
    m = it.keep.repeat(h, 1)
    k = m.shape[-1]
    wrong = np.ones((k, k), bool) if it.kind == "causal" else tri(k, k, 0)
    one = np.broadcast_to(wrong, it.keep[:, 0].shape) & (it.valid[:, None, :] if it.valid is not None else True)
    n = int(rng.integers(h))
    m[:, n] = np.where(it.real[:, :, None], one, m[:, n])
    if (m == it.keep).all():
        return None
    care = it.care.repeat(h, 1)
    if not ((m != it.keep) & care).any():
        return None
    cls = "causal_leak" if it.kind == "causal" else "window_missing_or_wrong_layer"
    return of_intent(
        "X.one_head",
        [cls],
        "one head of several",
        it,
        m,
        {"api": "sdpa", "convention": "keep_bool", "role": "attn"},
        m,
        accept=("causal_dropped",),
        blind=False,
    )


@bug(
    made, "X.only_row_zero", ["batch_row_wrong"], "only row 0 has its padding hidden", accept=("padding_keys_visible",)
)
def x_only_row_zero(rng):
    it = intent(rng, pick(rng, "causal", "bidirectional"), pick(rng, "left", "right"), b=int(rng.integers(2, 5)))
    if it.real[0].all():
        return None
    k = it.keep.shape[-1]
    open_ = tri(k, k, 0) if it.kind == "causal" else np.ones((k, k), bool)
    m = it.keep.copy()
    m[1:] = open_
    return it, m, pick(rng, "keep_bool", "additive")


@bug(
    plane_case,
    "X.length_plus_one",
    ["padding_keys_visible"],
    "one padding key too many",
    accept=("stale_or_bucketed_mask",),
)
def x_length_off_by_one(rng):
    b, n_tok = batch(rng), length(rng, 6)
    v = padding(rng, b, n_tok, "right")
    lens = np.minimum(v.sum(1) + 1, n_tok)
    return v, *say_plane(rng, plane(lens, n_tok, "right"))


@bug(
    plane_case,
    "X.other_end",
    ["padding_side"],
    "the plane of the other padding side",
    accept=("padding_keys_visible", "stale_or_bucketed_mask", "position_ids", "inverted_polarity"),
)
def x_other_end(rng):
    b, n_tok = batch(rng), length(rng, 6)
    v = padding(rng, b, n_tok, pick(rng, "left", "right"))
    return v, *say_plane(rng, v[:, ::-1].copy())


@bug
def x_both_sides_inf(rng):
    it = intent(rng, "bidirectional", pick(rng, "left", "right"), pads="self")
    v = it.valid
    keep = (v[:, :, None] & v[:, None, :])[:, None]
    mask = np.where(keep, 0, -np.inf).astype(np.float32)
    ctx = added()
    return of_intent(
        "X.both_sides_inf",
        ["fully_masked_row"],
        "padding hidden on queries too, with -inf",
        it,
        mask,
        ctx,
        keep,
        values_only=True,
    )


@bug(
    plane_case,
    "X.negative_ints",
    ["mask_built_with_NaN_or_int_ops"],
    "negative integers in a 0/1 slot",
    values_only=True,
    open_question="what was meant by -1",
)
def x_minus_one(rng):
    v = padding(rng, batch(rng, 2), length(rng, 6), pick(rng, "left", "right"))
    mask = pick(rng, ~v.astype(np.int64), v.astype(np.int64) * -1, ~(v.astype(np.int8)))
    return v, mask, PLANE


@bug
def x_self_mask_to_cross(rng):
    b, q, k = batch(rng), length(rng, 3, 24), length(rng, 3, 24)
    if q == k:
        return None
    keep = np.ones((b, 1, q, k), bool)
    mask = np.broadcast_to(tri(q, q, 0), (b, 1, q, q)).copy()
    ctx = {
        "api": "sdpa",
        "convention": "keep_bool",
        "role": "cross_attn",
        "kind": "cross_attention",
        "q_len": q,
        "kv_len": k,
    }
    return Case(
        "X.self_mask_to_cross",
        ["cross_attention_mask"],
        "the decoder's own mask",
        mask,
        ctx,
        keep,
        keep.copy(),
        keep.copy(),
        {"encoder_input_ids": tokens(rng, np.ones((b, k), bool))},
        values_only=True,
        accept=("stale_or_bucketed_mask",),
    )


@bug(made, "X.ring_batch", ["ring_buffer_misaligned"], "the window in slot order")
def x_ring_batch(rng):
    cap, b = int(rng.integers(4, 16)), int(rng.integers(2, 5))
    w = int(rng.integers(2, cap + 1))
    total = rng.integers(cap + 1, 3 * cap, size=b)
    kp = np.full((b, cap), -1)
    for r, n in zip(kp, total):
        for t in range(n):
            r[t % cap] = t
    qp = total[:, None] - 1
    keep = ((kp >= 0) & (kp <= qp) & (kp > qp - w))[:, None, None]
    it = Intent(
        keep,
        np.ones((b, 1), bool),
        "sliding",
        past=cap - 1,
        context={"window": w, "window_means": "keys visible, self included"},
        inputs={"kv_positions": kp.astype(np.int64), "position_ids": qp.astype(np.int64)},
    )
    m = np.broadcast_to(band(1, cap, cap - 1, w), keep.shape).copy()
    return it, m, pick(rng, "keep_bool", "additive", "keep_01")


@bug(
    made,
    "X.leak_and_padding",
    ["causal_leak", "padding_keys_visible"],
    "two mistakes at once",
    accept=("padding_keys_visible",),
)
def x_leak_and_padding(rng):
    it = intent(rng, "causal", "left")
    k = it.keep.shape[-1]
    return it, np.broadcast_to(tri(k, k, 0, 1), it.keep.shape).copy()


@bug(
    made,
    "X.inverted_and_padding",
    ["inverted_polarity", "padding_keys_visible"],
    "triu as keep, no padding term",
    accept=("padding_keys_visible", "causal_leak"),
)
def x_inverted_without_padding(rng):
    it = intent(rng, "causal", "left")
    k = it.keep.shape[-1]
    return it, ~np.broadcast_to(tri(k, k, 0), it.keep.shape)


@bug(
    made,
    "X.window_and_padding",
    ["sliding_window_off_by_one", "padding_keys_visible"],
    "two mistakes",
    accept=("padding_keys_visible",),
)
def x_window_and_padding(rng):
    it = intent(rng, "sliding", "left")
    k = it.keep.shape[-1]
    it.context["window_means"] = "keys visible, self included"
    return it, np.broadcast_to(band(k, k, 0, it.context["window"] + 1), it.keep.shape).copy()


@bug
def x_overflow_in_float32_storage(rng):
    it = intent(rng, "causal", pick(rng, "left", "right"), pads="open")
    low = -65504.0
    mask = (
        np.where(tri(*it.keep.shape[2:], 0), 0, low)[None, None] + np.where(it.valid[:, None, None, :], 0, low)
    ).astype(np.float32)
    if mask.min() == low:
        return None
    ctx = added("float16")
    keep = mask == 0
    return of_intent(
        "X.overflow_when_cast",
        ["double_mask_overflow"],
        "-131008 becomes -inf in float16",
        it,
        mask,
        ctx,
        keep,
        values_only=True,
    )


@bug(
    made,
    "X.static_cache_left_padded",
    ["unwritten_cache_visible"],
    "unwritten slots visible beside left padding",
    accept=("causal_leak",),
    open_question="the padding is not declared",
)
def x_static_cache_left_padded(rng):
    past, q, b = int(rng.integers(3, 20)), 1, batch(rng)
    cap = past + q + int(rng.integers(2, 12))
    lens = rng.integers(1, past + 1, size=b)
    v = np.arange(cap)[None] >= past - lens[:, None]
    keep = (v[:, None, :] & tri(q, cap, past))[:, None]
    m = np.broadcast_to(v[:, None, None, :], keep.shape).copy()
    it = Intent(
        keep,
        np.ones((b, q), bool),
        "causal",
        past=past,
        context={"past_len": past, "q_len": q, "kv_len": cap},
        inputs={},
    )
    return it, m


@bug(
    made,
    "X.causal_kind_with_segments",
    ["cross_document"],
    "kind causal, segments beside it",
    open_question="packing across documents may be meant",
)
def x_causal_kind_with_segments(rng):
    it, seg = packed(rng, "causal_packed", False)
    it.kind = "causal"
    return it, plain_causal(it)


@bug(
    made,
    "X.chunks_missing",
    ["chunk_boundary"],
    "plain causal in a chunked layer",
    accept=("window_missing_or_wrong_layer",),
)
def x_chunks_missing(rng):
    it, c = chunked(rng, chance(rng, 0.5))
    n_tok = it.keep.shape[-1]
    return it, covered(rng, it, tri(n_tok, n_tok, 0))


@bug(made, "X.rows_of_other_nodes", ["tree_mask"], "rows belong to other nodes")
def x_siblings_shuffled(rng):
    it = tree(rng)
    n = it.keep.shape[2]
    if n < 5:
        return None
    order = np.roll(np.arange(n), 1)
    return it, it.keep[..., order, :]


@bug
def x_cross_batch(rng):
    it, _ = cross(rng)
    m = np.broadcast_to(it.keep[:1], it.keep.shape).copy()
    c = made(
        rng,
        "X.cross_row_zero",
        ["batch_row_wrong"],
        "the encoder mask of row 0 for all",
        it,
        m,
        pick(rng, "keep_bool", "additive"),
        accept=("cross_attention_mask",),
    )
    if c is not None:
        c.context["role"] = "cross_attn"
    return c


@bug(made, "X.packed_leak", ["causal_leak"], "tril(1) inside documents")
def x_packed_leak(rng):
    it, seg = packed(rng, "causal_packed", False)
    n_tok = seg.shape[1]
    return it, ((seg[:, :, None] == seg[:, None, :]) & tri(n_tok, n_tok, 0, 1))[:, None]


@bug(made, "X.packed_self_excluded", ["causal_self_excluded"], "tril(-1) inside documents")
def x_packed_self_excluded(rng):
    it, seg = packed(rng, "causal_packed", False)
    n_tok = seg.shape[1]
    m = ((seg[:, :, None] == seg[:, None, :]) & tri(n_tok, n_tok, 0, -1))[:, None]
    return it, m, pick(rng, "keep_bool", "additive")


@bug(
    made,
    "X.packed_causal_dropped",
    ["causal_dropped"],
    "documents apart, causality gone",
    blind=False,
    accept=("causal_leak",),
)
def x_packed_bidirectional(rng):
    it, seg = packed(rng, "causal_packed", False)
    return it, (seg[:, :, None] == seg[:, None, :])[:, None]

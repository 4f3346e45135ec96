"""The bugs, written the way they are written by mistake: one function per way, several ways per catalogue class.

A function takes a random generator and gives a `Case`, or None when this draw happens to be harmless (no cell that a
real row reads is wrong); the caller then draws again.
"""

from __future__ import annotations

import numpy as np

from build import (BOS, EOS, PAD, Case, Intent, band, batch, chance, intent, length, padding, pick, plane, positions,
                   reads, say, say_plane, settle, tokens, tri)

SICK: list = []


def bug(f):
    SICK.append(f)
    return f


def made(rng, name, classes, why, it: Intent, wrong, form=None, **more) -> Case | None:
    """The case of a wrong keep mask told in a right way."""
    if not ((wrong != it.keep) & it.care).any():
        return None
    mask, ctx = say(rng, wrong, form)
    if not wrong[it.real[:, None, :].repeat(wrong.shape[1], 1)].any(-1).all() and "fully_masked_row" not in classes:
        classes = [*classes, "fully_masked_row"]
    return Case(name, classes, why, mask, {**ctx, "kind": it.kind, **it.context}, it.keep, it.care, wrong,
                dict(it.inputs), **more)


def side(rng):
    return pick(rng, None, "left", "right")


# ---- polarity -----------------------------------------------------------------------------------------------------


@bug
def c01_keep_plane_to_mha(rng):
    b, l = batch(rng, 2), length(rng, 6)
    v = padding(rng, b, l, pick(rng, "left", "right"))
    mask = v.copy()
    ctx = {"api": "torch.nn.MultiheadAttention.key_padding_mask", "convention": "ignore_bool", "role": "key_padding"}
    return plane_case(rng, "C01.keep_plane_to_mha", ["inverted_polarity"], "a keep mask where True means ignore",
                      v, mask, ctx)


@bug
def c01_ignore_plane_to_hf(rng):
    b, l = batch(rng, 2), length(rng, 6)
    v = padding(rng, b, l, pick(rng, "left", "right"))
    mask = pick(rng, (~v).astype(np.int64), ~v)
    ctx = {"api": "transformers.attention_mask", "convention": "keep_01" if mask.dtype != bool else "keep_bool",
           "role": "key_padding"}
    return plane_case(rng, "C01.ignore_plane_to_hf", ["inverted_polarity"], "1 = padding handed to 1 = keep",
                      v, mask, ctx)


def plane_case(rng, name, classes, why, v, mask, ctx, kind="bidirectional", pad=PAD, inputs=None, **more):
    b, l = v.shape
    ctx = {**ctx, "kind": kind, "pad_token_id": pad}
    if chance(rng, 0.4):
        ctx["padding_side"] = "right" if v[:, 0].all() else "left"
    eff = reads(mask, ctx, (b, l, l), kind == "causal")
    keep = np.broadcast_to(v[:, None, None, :], (b, 1, l, l))
    keep = keep & tri(l, l, 0) if kind == "causal" else keep.copy()
    care = np.broadcast_to(v[:, None, :, None], keep.shape).copy()
    if not ((eff != keep) & care).any() and not more.get("values_only"):
        return None
    if not (eff.any(-1) | ~v[:, None, :]).all() and "fully_masked_row" not in classes:
        more.setdefault("accept", ())
    return Case(name, classes, why, mask, ctx, keep, care, eff, {"input_ids": tokens(rng, v, pad), **(inputs or {})},
                **more)


@bug
def c01_triu(rng):
    it = intent(rng, "causal", past=0)
    form = pick(rng, "keep_bool", "keep_01", "additive", "keep_bool")
    return made(rng, "C01.triu_as_keep", ["inverted_polarity", "causal_leak"], "triu(1) is what to hide", it, ~it.keep,
                form)


@bug
def c01_tril_to_mha(rng):
    it = intent(rng, "causal", past=0)
    return made(rng, "C01.tril_to_mha", ["inverted_polarity", "causal_leak"], "tril where True means ignore", it,
                ~it.keep, "ignore_bool")


@bug
def c01_whole(rng):
    it = intent(rng, pick(rng, "causal", "sliding", "prefix_lm", "bidirectional"), pick(rng, "left", "right"))
    return made(rng, "C01.complement", ["inverted_polarity"], "the whole mask is complemented", it, ~it.keep,
                accept=("inverted_polarity",))


# ---- the causal edge ----------------------------------------------------------------------------------------------


def shifted(rng, d: int):
    past = pick(rng, 0, 0, 0, int(rng.integers(1, 20)))
    it = intent(rng, "causal", side(rng), past=past)
    b, _, q, k = it.keep.shape
    m = np.broadcast_to(tri(q, k, past, d), it.keep.shape).copy()
    if it.valid is not None:
        m &= it.valid[:, None, None, :]
        m = settle(rng, m, it.real, past)
    return it, m


@bug
def c02_tril_plus_one(rng):
    it, m = shifted(rng, 1)
    return made(rng, "C02.tril_plus_one", ["causal_leak"], "tril(diagonal=1)", it, m)


@bug
def c02_window_without_right_bound(rng):
    it = intent(rng, "sliding", side(rng))
    k, w = it.keep.shape[-1], it.context["window"]
    m = ~(np.arange(k)[None, :] <= np.arange(k)[:, None] - w)
    m = np.broadcast_to(m, it.keep.shape).copy()
    if it.valid is not None:
        m = settle(rng, m & it.valid[:, None, None, :], it.real, 0)
    return made(rng, "C02.window_no_right_bound", ["causal_leak"], "the window has no right edge", it, m,
                accept=("causal_dropped",))


@bug
def c03_tril_minus_one(rng):
    it, m = shifted(rng, -1)
    return made(rng, "C03.tril_minus_one", ["causal_self_excluded"], "tril(diagonal=-1)", it, m)


@bug
def c04_top_left(rng):
    past = int(rng.integers(2, 40))
    it = intent(rng, "causal", pick(rng, None, None, "left"), past=past, l=pick(rng, 1, 2, 4, length(rng, 2, 40)))
    b, _, q, k = it.keep.shape
    m = np.broadcast_to(tri(q, k, 0), it.keep.shape).copy()
    if it.valid is not None:
        m &= it.valid[:, None, None, :]
        if not m.any(-1).all():
            return None
    return made(rng, "C04.top_left", ["causal_alignment"], "tril(0) on a rectangle with a cache", it, m)


@bug
def c14_causal_dropped(rng):
    it = intent(rng, "causal", side(rng), past=pick(rng, 0, 0, int(rng.integers(1, 12))))
    if it.keep.shape[2] < 2:
        return None
    m = np.ones_like(it.keep)
    if it.valid is not None:
        m &= it.valid[:, None, None, :]
    return made(rng, "C14.causal_dropped", ["causal_dropped"], "no causal part at all", it, m, blind=False,
                accept=("causal_leak",))


# ---- values ---------------------------------------------------------------------------------------------------------


@bug
def c05_two_planes(rng):
    dt = pick(rng, np.float16, np.float32)
    it = intent(rng, "causal", pick(rng, "left", "left", "right"), pads="open")
    low = np.finfo(dt).min
    with np.errstate(over="ignore"):
        cells = np.where(tri(*it.keep.shape[2:], 0), dt(0), low)[None, None] + np.where(
            it.valid[:, None, None, :], dt(0), low)
    mask = cells.astype(dt)
    empty = (mask == 0).any(-1).all()
    keep = mask == 0
    classes = ["double_mask_overflow"] + ([] if empty else ["fully_masked_row"])
    ctx = {"api": "additive", "convention": "additive", "role": "attn", "kind": "causal",
           "compute_dtype": np.dtype(dt).name, **it.context}
    if not np.isneginf(mask).any():
        return None
    return Case("C05.two_planes", classes, "two planes of finfo.min added", mask, ctx, it.keep & (keep | ~it.care),
                it.care, keep, it.inputs, values_only=True)


@bug
def c05_fill_too_large_for_compute(rng):
    it = intent(rng, pick(rng, "causal", "sliding"), pick(rng, None, "right"))
    fill = pick(rng, float(np.finfo(np.float32).min), -1e9, -1e30)
    mask = np.where(it.keep, 0, fill).astype(np.float32)
    ctx = {"api": "additive", "convention": "additive", "role": "attn", "kind": it.kind, "compute_dtype": "float16",
           **it.context}
    return Case("C05.fill_beyond_half", ["double_mask_overflow"], "the fill does not fit the compute dtype", mask, ctx,
                it.keep, it.care, it.keep.copy(), it.inputs, accept=("fill_value_wrong",), values_only=True)


def additive(rng, name, classes, why, fill, dt=np.float32, kind=None, **more):
    if chance(rng, 0.3) and kind is None:
        v = padding(rng, batch(rng, 2), length(rng, 6), pick(rng, "left", "right"))
        mask = np.where(v, 0.0, fill)[:, None, None, :].astype(dt)
        ctx = {"api": pick(rng, "sdpa", "additive"), "convention": "additive", "role": "attn",
               "compute_dtype": np.dtype(dt).name}
        c = plane_case(rng, name, classes, why, v, mask, ctx, **more)
        if c is not None:
            c.effective = np.ones_like(c.intended)
        return c
    it = intent(rng, kind or pick(rng, "causal", "causal", "sliding", "prefix_lm"), side(rng))
    mask = np.where(it.keep, 0.0, fill).astype(dt)
    if chance(rng, 0.3) and it.valid is None:
        mask = mask[0, 0]
    ctx = {"api": pick(rng, "sdpa", "additive"), "convention": "additive", "role": "attn", "kind": it.kind,
           "compute_dtype": np.dtype(dt).name, **it.context}
    return Case(name, classes, why, mask, ctx, it.keep, it.care, np.ones_like(it.keep), it.inputs, **more)


@bug
def c06_fill_tiny(rng):
    return additive(rng, "C06.fill_tiny", ["fill_value_wrong"], "1e-9 typed for -1e9", pick(rng, 1e-9, -1e-9, 1e-6))


@bug
def c06_fill_positive(rng):
    return additive(rng, "C06.fill_positive", ["fill_value_wrong"], "the sign is lost", pick(rng, 1e9, np.inf, 1e4, 3.4e38))


@bug
def c06_fill_soft(rng):
    return additive(rng, "C06.fill_soft", ["fill_value_wrong"], "too weak a fill", pick(rng, -1.0, -5.0, -10.0, -100.0),
                    pick(rng, np.float32, np.float16))


@bug
def c07_left_padding_empty(rng):
    it = intent(rng, pick(rng, "causal", "sliding"), "left", pads="self")
    keep = it.keep & it.care
    mask = np.where(keep, 0, -np.inf).astype(pick(rng, np.float32, np.float16))
    if keep.any(-1).all():
        return None
    ctx = {"api": pick(rng, "additive", "sdpa"), "convention": "additive", "role": "attn", "kind": it.kind,
           "compute_dtype": mask.dtype.name, **it.context}
    return Case("C07.left_padding_empty", ["fully_masked_row"], "rows of padding queries all -inf", mask, ctx, it.keep,
                it.care, keep, it.inputs, values_only=True)


@bug
def c07_left_padding_empty_bool(rng):
    it = intent(rng, "causal", "left", pads="self")
    keep = it.keep & it.care
    if keep.any(-1).all():
        return None
    mask, ctx = say(rng, keep, pick(rng, "keep_bool", "keep_01", "ignore_bool"))
    return Case("C07.left_padding_empty_bool", ["fully_masked_row"], "rows of padding queries empty", mask,
                {**ctx, "kind": it.kind, **it.context}, it.keep, it.care, keep, it.inputs, values_only=True,
                open_question="a boolean SDPA mask gives zeros there, other backends NaN")


@bug
def c11_nan(rng):
    it = intent(rng, pick(rng, "causal", "sliding"), side(rng))
    with np.errstate(invalid="ignore"):
        mask = ((1.0 - it.keep.astype(np.float32)) * np.float32(-np.inf)).astype(np.float32)
    ctx = {"api": "additive", "convention": "additive", "role": "attn", "kind": it.kind, "compute_dtype": "float32",
           **it.context}
    return Case("C11.nan", ["mask_built_with_NaN_or_int_ops"], "(1 - m) * -inf: 0 * inf = NaN", mask, ctx, it.keep,
                it.care, np.isnan(mask) & False, it.inputs, accept=("mask_built_with_nan",), values_only=True)


@bug
def c11_invert_ints(rng):
    v = padding(rng, batch(rng, 2), length(rng, 6), pick(rng, "left", "right"))
    dt = pick(rng, np.int64, np.int32, np.uint8)
    hide = (~v).astype(dt)
    ctx = {"api": "transformers.attention_mask", "convention": "keep_01", "role": "key_padding"}
    return plane_case(rng, "C11.tilde_on_ints", ["mask_built_with_NaN_or_int_ops"], "~ on 0/1 integers", v, ~hide, ctx)


@bug
def c10_float01(rng):
    dt = pick(rng, np.float32, np.float32, np.float16)
    if chance(rng, 0.5):
        v = padding(rng, batch(rng, 2), length(rng, 6), pick(rng, "left", "right"))
        ctx = {"api": pick(rng, "sdpa", "additive"), "convention": "additive", "role": "attn",
               "compute_dtype": np.dtype(dt).name}
        mask = v[:, None, None, :].astype(pick(rng, dt, dt, np.int64))
        return plane_case(rng, "C10.plane01_added", ["float01_added"], "a 0/1 mask added to scores", v, mask, ctx)
    it = intent(rng, pick(rng, "causal", "sliding", "prefix_lm"), side(rng))
    ctx = {"api": "additive", "convention": "additive", "role": "attn", "kind": it.kind,
           "compute_dtype": np.dtype(dt).name, **it.context}
    mask = it.keep.astype(dt)
    return Case("C10.mask01_added", ["float01_added"], "a 0/1 mask added to scores", mask, ctx, it.keep, it.care,
                np.ones_like(it.keep), it.inputs)


# ---- shape, broadcast, batch ----------------------------------------------------------------------------------------


@bug
def c08_queries(rng):
    kind = pick(rng, "bidirectional", "bidirectional", "causal")
    it = intent(rng, kind, pick(rng, "left", "right"))
    if it.real.all():
        return None
    l = it.keep.shape[-1]
    m = it.valid[:, None, :, None] & (tri(l, l, 0) if kind == "causal" else np.ones((l, l), bool))
    c = made(rng, "C08.padding_on_queries", ["broadcast_wrong_axis"], "unsqueeze(-1) for unsqueeze(-2)", it,
             np.broadcast_to(m, it.keep.shape).copy(), pick(rng, "keep_bool", "keep_01", "additive"))
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
    return Case("C09.batch_equals_length", ["rank_ambiguity"], "(B, S) read as (L, S) because B == L", v.copy(),
                {"api": "sdpa", "convention": "keep_bool", "role": "attn", "kind": "bidirectional", "pad_token_id": PAD},
                keep, care, eff, {"input_ids": tokens(rng, v)}, accept=("batch_row_wrong",))


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
    ctx = {"api": "sdpa", "convention": "keep_bool", "role": "attn", "kind": "causal", "num_heads": b, **it.context}
    return Case("C09.batch_equals_heads", ["rank_ambiguity"], "(B, L, S) read as (H, L, S) because B == H", mask, ctx,
                it.keep, it.care, eff.copy(), it.inputs, accept=("head_batch_layout",))


@bug
def c29_repeat(rng):
    b, h = int(rng.integers(2, 5)), pick(rng, 2, 4, 8)
    it = intent(rng, pick(rng, "causal", "bidirectional"), pick(rng, "left", "right"), b=b, l=length(rng, 5, 24))
    wrong = np.concatenate([it.keep[:, 0]] * h).reshape(b, h, *it.keep.shape[2:])  # repeat, not repeat_interleave
    care = it.care
    if not ((wrong != it.keep) & care).any():
        return None
    mask = ~wrong.reshape(b * h, *wrong.shape[2:])
    ctx = {"api": "torch.nn.MultiheadAttention.attn_mask", "convention": "ignore_bool", "role": "attn",
           pick(rng, "num_heads", "heads"): h, "kind": it.kind, **it.context}
    return Case("C29.repeat", ["head_batch_layout"], "repeat(H) where repeat_interleave(H) was meant", mask, ctx,
                it.keep, care, wrong, it.inputs)


@bug
def c30_row_zero(rng):
    it = intent(rng, pick(rng, "bidirectional", "causal"), pick(rng, "left", "right"), b=int(rng.integers(2, 5)))
    m = np.broadcast_to(it.keep[:1], it.keep.shape).copy()
    m = m if it.real[0].all() else settle(rng, m, it.real, 0, "self")
    return made(rng, "C30.row_zero_for_all", ["batch_row_wrong"], "mask[0] used for every row", it, m,
                pick(rng, "keep_bool", "keep_01", "additive"), accept=("padding_keys_visible",))


@bug
def c30_permuted(rng):
    b = int(rng.integers(2, 5))
    v = padding(rng, b, length(rng, 6), pick(rng, "left", "right"))
    if len({tuple(r) for r in v}) < b:
        return None
    wrong = v[np.roll(np.arange(b), 1)]
    mask, ctx = say_plane(rng, wrong)
    return plane_case(rng, "C30.rows_permuted", ["batch_row_wrong"], "sorted by length, never sorted back", v, mask, ctx,
                      accept=("stale_or_bucketed_mask",))


@bug
def c50_stale(rng):
    b, l = batch(rng, 2), length(rng, 6)
    v, old = padding(rng, b, l, "right"), padding(rng, b, l, "right")
    if not (old & ~v).any() or {tuple(r) for r in v} == {tuple(r) for r in old}:
        return None
    mask, ctx = say_plane(rng, old)
    lens = v.sum(1).astype(np.int64)
    return plane_case(rng, "C50.stale", ["stale_or_bucketed_mask"], "the mask of an earlier batch", v, mask, ctx,
                      inputs={"lengths": lens}, accept=("padding_keys_visible", "batch_row_wrong"))


@bug
def c50_bucket(rng):
    l = length(rng, 6, 60)
    big = l + int(rng.integers(1, 9))
    b = batch(rng)
    keep = np.broadcast_to(tri(l, l, 0), (b, 1, l, l)).copy()
    mask = np.broadcast_to(tri(big, big, 0), (b, 1, big, big)).copy()
    ctx = {"api": "flex_attention", "convention": "keep_bool", "role": "attn", "kind": "causal", "q_len": l, "kv_len": l}
    return Case("C50.bucket", ["stale_or_bucketed_mask"], "a mask made for the bucket, not for the sequence", mask, ctx,
                keep, np.ones_like(keep), keep.copy(), {"input_ids": tokens(rng, np.ones((b, l), bool))}, values_only=True)


# ---- padding --------------------------------------------------------------------------------------------------------


@bug
def c16_all_ones(rng):
    v = padding(rng, batch(rng), length(rng, 6), pick(rng, "left", "right"))
    mask, ctx = say_plane(rng, np.ones_like(v))
    kind = "bidirectional" if v[:, 0].all() else pick(rng, "bidirectional", "causal")
    if ctx["role"] != "key_padding":
        kind = "bidirectional"
    return plane_case(rng, "C16.all_ones", ["padding_keys_visible"], "the mask is all ones", v, mask, ctx, kind)


@bug
def c16_no_padding_term(rng):
    it = intent(rng, pick(rng, "causal", "sliding", "bidirectional"), "left")
    k = it.keep.shape[-1]
    m = {"causal": tri(k, k, 0), "bidirectional": np.ones((k, k), bool),
         "sliding": band(k, k, 0, it.context.get("window", 1))}[it.kind]
    return made(rng, "C16.no_padding_term", ["padding_keys_visible"], "the padding term is missing", it,
                np.broadcast_to(m, it.keep.shape).copy())


@bug
def c31_holes(rng):
    b, l = batch(rng), length(rng, 10)
    side_ = pick(rng, "left", "right")
    v = padding(rng, b, l, side_)
    ids = tokens(rng, v, EOS)
    for r, vr in zip(ids, v):
        at = np.flatnonzero(vr)
        for t in at[2:-2][rng.random(max(0, len(at) - 4)) < 0.15]:
            r[t] = EOS
    mask = ids != EOS
    if not (~mask & v)[:, 1:-1].any():
        return None
    mask, ctx = mask.astype(np.int64), {"api": "transformers.attention_mask", "convention": "keep_01",
                                        "role": "key_padding"}
    kind = pick(rng, "causal", "bidirectional")
    c = plane_case(rng, "C31.ids_ne_pad", ["pad_equals_eos_holes"], "mask = ids != pad while pad == eos", v, mask, ctx,
                   kind, EOS)
    if c is None:
        return None
    c.inputs["input_ids"] = ids
    c.context |= {"eos_token_id": EOS, "padding_side": side_}
    c.inputs["lengths"] = v.sum(1).astype(np.int64)
    return c


# ---- positions and caches -------------------------------------------------------------------------------------------


def with_positions(rng, name, why, it, p, cls="position_ids", **more):
    mask, ctx = say(rng, it.keep)
    return Case(name, [cls], why, mask, {**ctx, "kind": it.kind, **it.context, **more.pop("ctx", {})}, it.keep,
                it.care, it.keep.copy(), {**it.inputs, "position_ids": p.astype(np.int64)}, values_only=True,
                accept=("padding_side_position_ids", "padding_side / position_ids", "padding_side"), **more)


@bug
def c17_arange_learned(rng):
    it = intent(rng, "causal", "left")
    b, _, _, k = it.keep.shape
    return with_positions(rng, "C17.arange_left_padding", "learned positions counted from slot 0", it,
                          np.broadcast_to(np.arange(k), (b, k)),
                          ctx={pick(rng, "position_encoding", "position_embedding_type"): pick(rng, "learned", "absolute")})


@bug
def c17_other_side(rng):
    it = intent(rng, "causal", "left")
    p = positions(it.valid[:, ::-1])
    if (np.where(it.valid, p - positions(it.valid), 0) == 0).all():
        return None
    return with_positions(rng, "C17.right_padding_positions", "positions made for right padding, ids padded left", it, p)


@bug
def c17_not_reset(rng):
    it, segs = packed(rng)
    b, _, _, k = it.keep.shape
    it.inputs.pop("position_ids", None)
    return with_positions(rng, "C17.packed_not_reset", "positions run on over packed documents", it,
                          np.broadcast_to(np.arange(k), (b, k)), ctx={"position_encoding": "learned"})


@bug
def c18_short(rng):
    past, q = int(rng.integers(2, 24)), int(rng.integers(1, 4))
    b = batch(rng)
    k = past + q
    v = padding(rng, b, k, "left")
    v[:, past:] = True
    keep = np.broadcast_to(v[:, None, None, :] & tri(q, k, past), (b, 1, q, k)).copy()
    cut = pick(rng, v[:, :past], v[:, past:])
    ctx = {"api": "transformers.attention_mask", "convention": "keep_01", "role": "key_padding", "kind": "causal",
           "past_len": past, "q_len": q, "kv_len": k, "pad_token_id": PAD}
    eff = np.zeros_like(keep)
    return Case("C18.short_plane", ["stale_decode_mask"], "the padding mask does not grow with the cache",
                cut.astype(np.int64), ctx, keep, np.ones_like(keep), eff, {"input_ids": tokens(rng, v)},
                values_only=True)


@bug
def c18_zero_extended(rng):
    past, q = int(rng.integers(3, 24)), int(rng.integers(1, 4))
    b, k = batch(rng), past + q
    v = padding(rng, b, k, "left")
    v[:, past - 1:] = True
    keep = np.broadcast_to(v[:, None, None, :] & tri(q, k, past), (b, 1, q, k)).copy()
    w = v.copy()
    w[:, past:] = False
    ctx = {"api": "transformers.attention_mask", "convention": "keep_01", "role": "key_padding", "kind": "causal",
           "past_len": past, "q_len": q, "kv_len": k, "pad_token_id": PAD}
    return Case("C18.zero_extended", ["stale_decode_mask"], "new tokens are appended with 0", w.astype(np.int64), ctx,
                keep, np.ones_like(keep), keep & w[:, None, None, :], {"input_ids": tokens(rng, v)})


@bug
def c19_unwritten(rng):
    past, q = int(rng.integers(1, 24)), int(rng.integers(1, 4))
    cap = past + q + int(rng.integers(1, 16))
    b = batch(rng)
    keep = np.broadcast_to(tri(q, cap, past), (b, 1, q, cap)).copy()
    m = keep.copy()
    m[..., past + q:] = True
    it = Intent(keep, np.ones((b, q), bool), "causal", past=past,
                context={"past_len": past, "q_len": q, "kv_len": cap,
                         **pick(rng, {}, {"cache_len": cap}, {"kv_written": past + q})})
    return made(rng, "C19.unwritten", ["unwritten_cache_visible"], "slots of the static cache that nobody wrote", it, m,
                accept=("causal_leak",))


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
    return Intent(keep[None, None], np.ones((1, q), bool), "sliding", past=cap - q, context=ctx, inputs=inputs), cap, w, q


@bug
def c20_ring(rng):
    it, cap, w, q = ring(rng)
    m = band(q, cap, cap - q, w)[None, None]
    return made(rng, "C20.slot_order", ["ring_buffer_misaligned"], "the window is taken in slot order", it, m)


# ---- windows, chunks ------------------------------------------------------------------------------------------------


@bug
def c21_off_by_one(rng):
    past = pick(rng, 0, 0, int(rng.integers(1, 20)))
    it = intent(rng, "sliding", side(rng), past=past)
    q, k = it.keep.shape[2:]
    w = it.context["window"] + pick(rng, 1, 1, -1)
    it.context["window_means"] = "keys visible, self included"
    if w < 1:
        return None
    m = np.broadcast_to(band(q, k, past, w), it.keep.shape).copy()
    if it.valid is not None:
        m = settle(rng, m & it.valid[:, None, None, :], it.real, past)
    return made(rng, "C21.window_off_by_one", ["sliding_window_off_by_one"], "w previous keys plus self", it, m)


@bug
def c22_missing(rng):
    past = pick(rng, 0, 0, int(rng.integers(1, 20)))
    it = intent(rng, "sliding", side(rng), past=past)
    q, k = it.keep.shape[2:]
    m = np.broadcast_to(tri(q, k, past), it.keep.shape).copy()
    if it.valid is not None:
        m = settle(rng, m & it.valid[:, None, None, :], it.real, past)
    return made(rng, "C22.window_missing", ["window_missing_or_wrong_layer"], "a sliding layer got the causal mask", it, m,
                accept=("window_missing", "sliding_window_off_by_one")[:1])


def chunked(rng, how_padded):
    c = int(rng.integers(2, 9))
    l, b = c * int(rng.integers(2, 5)) + int(rng.integers(0, c)), batch(rng)
    v = padding(rng, b, l, "left") if how_padded else np.ones((b, l), bool)
    p = np.arange(l)[None] - (~v).sum(1)[:, None]
    same = (p[:, :, None] // c) == (p[:, None, :] // c)
    keep = (same & tri(l, l, 0) & v[:, None, :])[:, None]
    ctx = {pick(rng, "chunk", "chunk_size", "attention_chunk_size"): c}
    inputs = {}
    if how_padded:
        inputs["input_ids"] = tokens(rng, v)
        ctx |= {"pad_token_id": PAD, "padding_side": "left"}
    it = Intent(settle(rng, keep, v, 0), v, pick(rng, "chunked", "chunked", "causal_chunked"), v if how_padded else None, "left", 0, ctx, inputs)
    return it, c


@bug
def c23_from_slot_zero(rng):
    it, c = chunked(rng, True)
    l = it.keep.shape[-1]
    i = np.arange(l) // c
    m = (i[:, None] == i[None]) & tri(l, l, 0) & it.valid[:, None, :]
    return made(rng, "C23.border_ignores_padding", ["chunk_boundary"], "chunks counted from slot 0", it,
                settle(rng, m[:, None], it.real, 0))


@bug
def c23_shifted(rng):
    it, c = chunked(rng, False)
    l = it.keep.shape[-1]
    i = (np.arange(l) + pick(rng, 1, c - 1)) // c
    m = (i[:, None] == i[None]) & tri(l, l, 0)
    return made(rng, "C23.border_shifted", ["chunk_boundary"], "borders one token off", it,
                np.broadcast_to(m, it.keep.shape).copy())


# ---- prefixes and blocks --------------------------------------------------------------------------------------------


@bug
def c27_prefix(rng):
    it = intent(rng, "prefix_lm", pick(rng, None, "right"))  # what a prefix counts from is open under left padding
    k, p = it.keep.shape[-1], it.context["prefix_len"]
    how = pick(rng, "missing", "everything", "longer", "shorter")
    m = {"missing": tri(k, k, 0), "everything": np.ones((k, k), bool),
         "longer": tri(k, k, 0) | (np.arange(k) <= p), "shorter": tri(k, k, 0) | (np.arange(k) < p - 1)}[how]
    m = np.broadcast_to(m, it.keep.shape).copy()
    if it.valid is not None:
        m = settle(rng, m & it.valid[:, None, None, :], it.real, 0)
    return made(rng, f"C27.prefix_{how}", ["prefix_lm_or_block_wrong"], f"prefix {how}", it, m, blind=how != "everything",
                accept=("causal_leak", "causal_dropped") if how == "everything" else ())


@bug
def c27_padding_after_or(rng):
    it = intent(rng, "prefix_lm", "left")
    k, p = it.keep.shape[-1], it.context["prefix_len"]
    m = (tri(k, k, 0) & it.valid[:, None, None, :]) | (np.arange(k) < p)
    return made(rng, "C27.padding_unmasked_by_or", ["padding_unmasked_by_later_op"], "OR after the padding term", it,
                np.broadcast_to(m, it.keep.shape).copy(), accept=("padding_keys_visible", "prefix_lm"))


def images(rng, window=False):
    b, l = batch(rng), length(rng, 10, 64)
    group = np.zeros((b, l), np.int64)
    for r in group:
        at, n = 1, 0
        while at < l - 2:
            size = int(rng.integers(2, max(3, l // 3)))
            if at + size > l - 1:
                break
            n += 1
            r[at:at + size] = n
            at += size + int(rng.integers(1, 4))
    same = (group[:, :, None] == group[:, None, :]) & (group[:, :, None] > 0)
    base, ctx = tri(l, l, 0), {}
    if window:
        w = int(rng.integers(2, max(3, l // 3)))
        base, ctx = band(l, l, 0, w), {"window": w, "window_means": "keys visible, self included"}
    keep = (base | same)[:, None]
    it = Intent(keep, np.ones((b, l), bool), pick(rng, "block_image", "causal_with_image_blocks"), context=ctx,
                inputs={pick(rng, "block_ids", "image_group_ids", "image_ids"): group})
    return it, base, same


@bug
def c27_image_block_missing(rng):
    it, base, _ = images(rng)
    if not (it.keep != base).any():
        return None
    return made(rng, "C27.image_block_missing", ["prefix_lm_or_block_wrong"], "image tokens read causally", it,
                np.broadcast_to(base, it.keep.shape).copy(), accept=("prefix_lm",))


@bug
def c27_block_cut_by_window(rng):
    it, base, same = images(rng, True)
    l = it.keep.shape[-1]
    m = (tri(l, l, 0) | same) & (np.arange(l)[None] > np.arange(l)[:, None] - it.context["window"])
    return made(rng, "C27.block_cut_by_window", ["prefix_lm_or_block_wrong"], "the window cuts an image block", it, m[:, None],
                accept=("prefix_lm",))


# ---- cross-attention, trees -----------------------------------------------------------------------------------------


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


def cross_made(rng, name, why, it, m, **more):
    c = made(rng, name, ["cross_attention_mask"], why, it, m, pick(rng, "keep_bool", "keep_01", "additive"), **more)
    if c is not None:
        c.context["role"] = pick(rng, "cross_attn", "cross")
    return c


@bug
def c28_all_ones(rng):
    it, _ = cross(rng)
    return cross_made(rng, "C28.encoder_padding_visible", "no encoder mask", it, np.ones_like(it.keep),
                      accept=("padding_keys_visible",))


@bug
def c28_decoder_plane(rng):
    it, dec = cross(rng, True)
    m = np.broadcast_to(dec[:, None, None, :], it.keep.shape).copy()
    return cross_made(rng, "C28.decoder_plane", "the decoder's padding passed for the encoder's", it, m)


@bug
def c28_causal(rng):
    it, _ = cross(rng, chance(rng, 0.5))
    q, k = it.keep.shape[2:]
    return cross_made(rng, "C28.causal", "causality forced on cross-attention", it, it.keep & tri(q, k, 0))


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


@bug
def c43_triangular(rng):
    it = tree(rng)
    return made(rng, "C43.triangular", ["tree_mask"], "siblings read each other", it,
                tri(*it.keep.shape[2:], it.past)[None, None])


@bug
def c43_wrong_parents(rng):
    it = tree(rng)
    n = it.keep.shape[2]
    only = np.eye(n, dtype=bool)
    p = it.inputs["parents"].reshape(-1)
    only[np.arange(n)[p >= 0], p[p >= 0]] = True
    m = np.concatenate([np.ones((n, it.past), bool), only], 1)[None, None]
    return made(rng, "C43.parent_only", ["tree_mask"], "self and parent, no grandparents", it, m)


# ---- packing --------------------------------------------------------------------------------------------------------


def packed(rng, kind=None, tail=None):
    b, l = pick(rng, 1, 1, 1, 2, 3), length(rng, 8)
    kind = kind or pick(rng, "causal_packed", "causal_packed", "bidirectional_packed")
    tail = chance(rng, 0.4) if tail is None else tail
    seg = np.zeros((b, l), np.int64)
    for r in seg:
        end = l - (int(rng.integers(1, max(2, l // 4))) if tail else 0)
        cuts = np.sort(rng.choice(np.arange(2, end - 1), size=min(end - 3, int(rng.integers(1, 5))), replace=False))
        cuts = cuts[np.diff(cuts, prepend=0) > 1]  # a document of one token looks like padding that stands still
        for n, (s, e) in enumerate(zip([0, *cuts], [*cuts, end])):
            r[s:e] = n + 1
    real = seg > 0
    m = (seg[:, :, None] == seg[:, None, :]) & real[:, None, :]
    if kind == "causal_packed":
        m &= tri(l, l, 0)
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


@bug
def c24_plain(rng):
    it, seg = packed(rng)
    l = seg.shape[1]
    m = np.broadcast_to(tri(l, l, 0) if is_causal(it) else np.ones((l, l), bool), it.keep.shape).copy()
    m &= (seg > 0)[:, None, None, :]
    m = settle(rng, m, it.real, 0)
    return made(rng, "C24.one_document", ["cross_document"], "the documents are not separated", it, m)


@bug
def c24_positions_only(rng):
    it, seg = packed(rng, "causal_packed", False)
    l = seg.shape[1]
    pos = np.zeros_like(seg)
    for r, s in zip(pos, seg):
        for n in np.unique(s):
            r[s == n] = np.arange((s == n).sum())
    it.inputs = {"position_ids": pos}
    it.context = {}
    return made(rng, "C24.positions_only", ["cross_document"], "positions reset, mask plain causal", it,
                np.broadcast_to(tri(l, l, 0), it.keep.shape).copy())


@bug
def c24_cast_to_bool(rng):
    it, seg = packed(rng, "causal_packed")
    b, l = seg.shape
    form = pick(rng, "plane", "plane", "grid")
    if form == "plane":
        mask, role = seg.copy(), "key_padding"
        eff = (seg > 0)[:, None, None, :] & tri(l, l, 0)
    else:
        mask = (seg[:, :, None] == seg[:, None, :])[:, None] * seg[:, None, None, :] * 0 + tri(l, l, 0) * seg[:, None, None, :]
        role, eff = "attn", (mask != 0)
    eff = np.broadcast_to(eff, it.keep.shape).copy()
    if not ((eff != it.keep) & it.care).any() or seg.max() < 2:
        return None
    ctx = {"api": "transformers.attention_mask", "convention": pick(rng, "keep_01", "segments") if form == "plane" else "keep_01",
           "role": role, "kind": it.kind, **it.context}
    inputs = {k: v for k, v in it.inputs.items() if k != "segment_ids" or chance(rng, 0.5)}
    return Case("C24.cast_to_bool", ["segment_ids_cast_to_bool", "cross_document"], "document numbers read as 0/1", mask,
                ctx, it.keep, it.care, eff, inputs, accept=("cross_document",),
                open_question="does 'segments' mean that the consumer understands numbers?"
                if ctx["convention"] == "segments" else "")


@bug
def c25_boundary(rng):
    it, seg = packed(rng)
    real = seg > 0
    moved = seg.copy()
    if chance(rng, 0.5):  # each EOS opens the next document
        moved[:, :-1] = np.where(real[:, 1:], seg[:, 1:], seg[:, :-1])
    else:
        moved[:, 1:] = np.where(real[:, 1:], seg[:, :-1], 0)
    l = seg.shape[1]
    m = (moved[:, :, None] == moved[:, None, :]) & real[:, None, :]
    if is_causal(it):
        m &= tri(l, l, 0)
    return made(rng, "C25.boundary", ["document_boundary_off_by_one", "cross_document"], "borders one token off", it,
                settle(rng, m[:, None], real, 0))

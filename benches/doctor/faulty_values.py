"""Polarity, the causal edge, and the values of the cells (C01 to C07, C10, C11, C14)."""

from __future__ import annotations

import numpy as np

from build import PLANE, Case, added, batch, chance, covered, intent, length, of_intent, padding, pick, say, side, tri
from faulty import bug, made, plane_case

# ---- polarity ----


@bug(plane_case, "C01.keep_plane_to_mha", ["inverted_polarity"], "a keep mask where True means ignore")
def c01_keep_plane_to_mha(rng):
    b, n_tok = batch(rng, 2), length(rng, 6)
    v = padding(rng, b, n_tok, pick(rng, "left", "right"))
    mask = v.copy()
    ctx = {"api": "torch.nn.MultiheadAttention.key_padding_mask", "convention": "ignore_bool", "role": "key_padding"}
    return v, mask, ctx


@bug(plane_case, "C01.ignore_plane_to_hf", ["inverted_polarity"], "1 = padding handed to 1 = keep")
def c01_ignore_plane_to_hf(rng):
    b, n_tok = batch(rng, 2), length(rng, 6)
    v = padding(rng, b, n_tok, pick(rng, "left", "right"))
    mask = pick(rng, (~v).astype(np.int64), ~v)
    ctx = {
        "api": "transformers.attention_mask",
        "convention": "keep_01" if mask.dtype != bool else "keep_bool",
        "role": "key_padding",
    }
    return v, mask, ctx


@bug(made, "C01.triu_as_keep", ["inverted_polarity", "causal_leak"], "triu(1) is what to hide")
def c01_triu(rng):
    it = intent(rng, "causal", past=0)
    form = pick(rng, "keep_bool", "keep_01", "additive", "keep_bool")
    return it, ~it.keep, form


@bug(made, "C01.tril_to_mha", ["inverted_polarity", "causal_leak"], "tril where True means ignore")
def c01_tril_to_mha(rng):
    it = intent(rng, "causal", past=0)
    return it, ~it.keep, "ignore_bool"


@bug(made, "C01.complement", ["inverted_polarity"], "the whole mask is complemented", accept=("inverted_polarity",))
def c01_whole(rng):
    it = intent(rng, pick(rng, "causal", "sliding", "prefix_lm", "bidirectional"), pick(rng, "left", "right"))
    return it, ~it.keep


# ---- the causal edge ----


def shifted(rng, d: int):
    past = pick(rng, 0, 0, 0, int(rng.integers(1, 20)))
    it = intent(rng, "causal", side(rng), past=past)
    b, _, q, k = it.keep.shape
    return it, covered(rng, it, tri(q, k, past, d), past)


@bug(made, "C02.tril_plus_one", ["causal_leak"], "tril(diagonal=1)")
def c02_tril_plus_one(rng):
    it, m = shifted(rng, 1)
    return it, m


@bug(made, "C02.window_no_right_bound", ["causal_leak"], "the window has no right edge", accept=("causal_dropped",))
def c02_window_without_right_bound(rng):
    it = intent(rng, "sliding", side(rng))
    k, w = it.keep.shape[-1], it.context["window"]
    m = ~(np.arange(k)[None, :] <= np.arange(k)[:, None] - w)
    return it, covered(rng, it, m)


@bug(made, "C03.tril_minus_one", ["causal_self_excluded"], "tril(diagonal=-1)")
def c03_tril_minus_one(rng):
    it, m = shifted(rng, -1)
    return it, m


@bug(made, "C04.top_left", ["causal_alignment"], "tril(0) on a rectangle with a cache")
def c04_top_left(rng):
    past = int(rng.integers(2, 40))
    it = intent(rng, "causal", pick(rng, None, None, "left"), past=past, n_tok=pick(rng, 1, 2, 4, length(rng, 2, 40)))
    b, _, q, k = it.keep.shape
    m = np.broadcast_to(tri(q, k, 0), it.keep.shape).copy()
    if it.valid is not None:
        m &= it.valid[:, None, None, :]
        if not m.any(-1).all():
            return None
    return it, m


@bug(made, "C14.causal_dropped", ["causal_dropped"], "no causal part at all", blind=False, accept=("causal_leak",))
def c14_causal_dropped(rng):
    it = intent(rng, "causal", side(rng), past=pick(rng, 0, 0, int(rng.integers(1, 12))))
    if it.keep.shape[2] < 2:
        return None
    m = np.ones_like(it.keep)
    if it.valid is not None:
        m &= it.valid[:, None, None, :]
    return it, m


# ---- values ----


@bug
def c05_two_planes(rng):
    dt = pick(rng, np.float16, np.float32)
    it = intent(rng, "causal", pick(rng, "left", "left", "right"), pads="open")
    low = np.finfo(dt).min
    with np.errstate(over="ignore"):
        cells = np.where(tri(*it.keep.shape[2:], 0), dt(0), low)[None, None] + np.where(
            it.valid[:, None, None, :], dt(0), low
        )
    mask = cells.astype(dt)
    empty = (mask == 0).any(-1).all()
    keep = mask == 0
    classes = ["double_mask_overflow"] + ([] if empty else ["fully_masked_row"])
    ctx = {**added(np.dtype(dt).name), "kind": "causal", **it.context}
    if not np.isneginf(mask).any():
        return None
    return Case(
        "C05.two_planes",
        classes,
        "two planes of finfo.min added",
        mask,
        ctx,
        it.keep & (keep | ~it.care),
        it.care,
        keep,
        it.inputs,
        values_only=True,
    )


@bug
def c05_fill_too_large_for_compute(rng):
    it = intent(rng, pick(rng, "causal", "sliding"), pick(rng, None, "right"))
    fill = pick(rng, float(np.finfo(np.float32).min), -1e9, -1e30)
    mask = np.where(it.keep, 0, fill).astype(np.float32)
    ctx = added("float16")
    return of_intent(
        "C05.fill_beyond_half",
        ["double_mask_overflow"],
        "the fill does not fit the compute dtype",
        it,
        mask,
        ctx,
        accept=("fill_value_wrong",),
        values_only=True,
    )


def additive(rng, name, classes, why, fill, dt=np.float32, kind=None, **more):
    if chance(rng, 0.3) and kind is None:
        v = padding(rng, batch(rng, 2), length(rng, 6), pick(rng, "left", "right"))
        mask = np.where(v, 0.0, fill)[:, None, None, :].astype(dt)
        ctx = {
            "api": pick(rng, "sdpa", "additive"),
            "convention": "additive",
            "role": "attn",
            "compute_dtype": np.dtype(dt).name,
        }
        c = plane_case(rng, name, classes, why, v, mask, ctx, **more)
        if c is not None:
            c.effective = np.ones_like(c.intended)
        return c
    it = intent(rng, kind or pick(rng, "causal", "causal", "sliding", "prefix_lm"), side(rng))
    mask = np.where(it.keep, 0.0, fill).astype(dt)
    if chance(rng, 0.3) and it.valid is None:
        mask = mask[0, 0]
    ctx = {
        "api": pick(rng, "sdpa", "additive"),
        "convention": "additive",
        "role": "attn",
        "compute_dtype": np.dtype(dt).name,
    }
    return of_intent(name, classes, why, it, mask, ctx, np.ones_like(it.keep), **more)


@bug
def c06_fill_tiny(rng):
    return additive(rng, "C06.fill_tiny", ["fill_value_wrong"], "1e-9 typed for -1e9", pick(rng, 1e-9, -1e-9, 1e-6))


@bug
def c06_fill_positive(rng):
    return additive(
        rng, "C06.fill_positive", ["fill_value_wrong"], "the sign is lost", pick(rng, 1e9, np.inf, 1e4, 3.4e38)
    )


@bug
def c06_fill_soft(rng):
    return additive(
        rng,
        "C06.fill_soft",
        ["fill_value_wrong"],
        "too weak a fill",
        pick(rng, -1.0, -5.0, -10.0, -50.0),
        pick(rng, np.float32, np.float16),
    )


@bug
def c07_left_padding_empty(rng):
    it = intent(rng, pick(rng, "causal", "sliding"), "left", pads="self")
    keep = it.keep & it.care
    mask = np.where(keep, 0, -np.inf).astype(pick(rng, np.float32, np.float16))
    if keep.any(-1).all():
        return None
    ctx = {
        "api": pick(rng, "additive", "sdpa"),
        "convention": "additive",
        "role": "attn",
        "compute_dtype": mask.dtype.name,
    }
    return of_intent(
        "C07.left_padding_empty",
        ["fully_masked_row"],
        "rows of padding queries all -inf",
        it,
        mask,
        ctx,
        keep,
        values_only=True,
    )


@bug
def c07_left_padding_empty_bool(rng):
    it = intent(rng, "causal", "left", pads="self")
    keep = it.keep & it.care
    if keep.any(-1).all():
        return None
    mask, ctx = say(rng, keep, pick(rng, "keep_bool", "keep_01", "ignore_bool"))
    return of_intent(
        "C07.left_padding_empty_bool",
        ["fully_masked_row"],
        "rows of padding queries empty",
        it,
        mask,
        ctx,
        keep,
        values_only=True,
        open_question="a boolean SDPA mask gives zeros there, other backends NaN",
    )


@bug
def c11_nan(rng):
    it = intent(rng, pick(rng, "causal", "sliding"), side(rng))
    with np.errstate(invalid="ignore"):
        mask = ((1.0 - it.keep.astype(np.float32)) * np.float32(-np.inf)).astype(np.float32)
    ctx = added()
    return of_intent(
        "C11.nan",
        ["mask_built_with_NaN_or_int_ops"],
        "(1 - m) * -inf: 0 * inf = NaN",
        it,
        mask,
        ctx,
        np.isnan(mask) & False,
        accept=("mask_built_with_nan",),
        values_only=True,
    )


@bug(plane_case, "C11.tilde_on_ints", ["mask_built_with_NaN_or_int_ops"], "~ on 0/1 integers")
def c11_invert_ints(rng):
    v = padding(rng, batch(rng, 2), length(rng, 6), pick(rng, "left", "right"))
    dt = pick(rng, np.int64, np.int32, np.uint8)
    hide = (~v).astype(dt)
    ctx = PLANE
    return v, ~hide, ctx


@bug
def c10_float01(rng):
    dt = pick(rng, np.float32, np.float32, np.float16)
    if chance(rng, 0.5):
        v = padding(rng, batch(rng, 2), length(rng, 6), pick(rng, "left", "right"))
        ctx = {
            "api": pick(rng, "sdpa", "additive"),
            "convention": "additive",
            "role": "attn",
            "compute_dtype": np.dtype(dt).name,
        }
        mask = v[:, None, None, :].astype(pick(rng, dt, dt, np.int64))
        return plane_case(rng, "C10.plane01_added", ["float01_added"], "a 0/1 mask added to scores", v, mask, ctx)
    it = intent(rng, pick(rng, "causal", "sliding", "prefix_lm"), side(rng))
    ctx = added(np.dtype(dt).name)
    mask = it.keep.astype(dt)
    return of_intent(
        "C10.mask01_added", ["float01_added"], "a 0/1 mask added to scores", it, mask, ctx, np.ones_like(it.keep)
    )

"""Windows, chunks, prefixes, blocks, cross-attention, trees and documents (C21 to C28, C43)."""

from __future__ import annotations

import numpy as np

from build import Case, band, chance, covered, intent, pick, plain_causal, settle, side, tri
from scenes import chunked, cross, images, is_causal, packed, tree
from faulty import bug, made

# ---- windows, chunks ----


@bug(made, "C21.window_off_by_one", ["sliding_window_off_by_one"], "w previous keys plus self")
def c21_off_by_one(rng):
    past = pick(rng, 0, 0, int(rng.integers(1, 20)))
    it = intent(rng, "sliding", side(rng), past=past)
    q, k = it.keep.shape[2:]
    w = it.context["window"] + pick(rng, 1, 1, -1)
    it.context["window_means"] = "keys visible, self included"
    if w < 1:
        return None
    return it, covered(rng, it, band(q, k, past, w), past)


@bug
def c22_missing(rng):
    past = pick(rng, 0, 0, int(rng.integers(1, 20)))
    it = intent(rng, "sliding", side(rng), past=past)
    q, k = it.keep.shape[2:]
    m = covered(rng, it, tri(q, k, past), past)
    return made(
        rng,
        "C22.window_missing",
        ["window_missing_or_wrong_layer"],
        "a sliding layer got the causal mask",
        it,
        m,
        accept=("window_missing", "sliding_window_off_by_one")[:1],
    )


@bug(made, "C23.border_ignores_padding", ["chunk_boundary"], "chunks counted from slot 0")
def c23_from_slot_zero(rng):
    it, c = chunked(rng, True)
    n_tok = it.keep.shape[-1]
    i = np.arange(n_tok) // c
    m = (i[:, None] == i[None]) & tri(n_tok, n_tok, 0) & it.valid[:, None, :]
    return it, settle(rng, m[:, None], it.real, 0)


@bug(made, "C23.border_shifted", ["chunk_boundary"], "borders one token off")
def c23_shifted(rng):
    it, c = chunked(rng, False)
    n_tok = it.keep.shape[-1]
    i = (np.arange(n_tok) + pick(rng, 1, c - 1)) // c
    m = (i[:, None] == i[None]) & tri(n_tok, n_tok, 0)
    return it, np.broadcast_to(m, it.keep.shape).copy()


# ---- prefixes and blocks ----


@bug
def c27_prefix(rng):
    it = intent(rng, "prefix_lm", pick(rng, None, "right"))  # what a prefix counts from is open under left padding
    k, p = it.keep.shape[-1], it.context["prefix_len"]
    how = pick(rng, "missing", "everything", "longer", "shorter")
    m = {
        "missing": tri(k, k, 0),
        "everything": np.ones((k, k), bool),
        "longer": tri(k, k, 0) | (np.arange(k) <= p),
        "shorter": tri(k, k, 0) | (np.arange(k) < p - 1),
    }[how]
    m = covered(rng, it, m)
    return made(
        rng,
        f"C27.prefix_{how}",
        ["prefix_lm_or_block_wrong"],
        f"prefix {how}",
        it,
        m,
        blind=how != "everything",
        accept=("causal_leak", "causal_dropped") if how == "everything" else (),
    )


@bug(
    made,
    "C27.padding_unmasked_by_or",
    ["padding_unmasked_by_later_op"],
    "OR after the padding term",
    accept=("padding_keys_visible", "prefix_lm"),
)
def c27_padding_after_or(rng):
    it = intent(rng, "prefix_lm", "left")
    k, p = it.keep.shape[-1], it.context["prefix_len"]
    m = (tri(k, k, 0) & it.valid[:, None, None, :]) | (np.arange(k) < p)
    return it, np.broadcast_to(m, it.keep.shape).copy()


@bug(made, "C27.image_block_missing", ["prefix_lm_or_block_wrong"], "image tokens read causally", accept=("prefix_lm",))
def c27_image_block_missing(rng):
    it, base, _ = images(rng)
    if not (it.keep != base).any():
        return None
    return it, np.broadcast_to(base, it.keep.shape).copy()


@bug(
    made,
    "C27.block_cut_by_window",
    ["prefix_lm_or_block_wrong"],
    "the window cuts an image block",
    accept=("prefix_lm",),
)
def c27_block_cut_by_window(rng):
    it, base, same = images(rng, True)
    n_tok = it.keep.shape[-1]
    m = (tri(n_tok, n_tok, 0) | same) & (np.arange(n_tok)[None] > np.arange(n_tok)[:, None] - it.context["window"])
    return it, m[:, None]


# ---- cross-attention, trees ----


def cross_made(rng, name, why, it, m, **more):
    c = made(rng, name, ["cross_attention_mask"], why, it, m, pick(rng, "keep_bool", "keep_01", "additive"), **more)
    if c is not None:
        c.context["role"] = pick(rng, "cross_attn", "cross")
    return c


@bug
def c28_all_ones(rng):
    it, _ = cross(rng)
    return cross_made(
        rng,
        "C28.encoder_padding_visible",
        "no encoder mask",
        it,
        np.ones_like(it.keep),
        accept=("padding_keys_visible",),
    )


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


@bug(made, "C43.triangular", ["tree_mask"], "siblings read each other")
def c43_triangular(rng):
    it = tree(rng)
    return it, tri(*it.keep.shape[2:], it.past)[None, None]


@bug(made, "C43.parent_only", ["tree_mask"], "self and parent, no grandparents")
def c43_wrong_parents(rng):
    it = tree(rng)
    n = it.keep.shape[2]
    only = np.eye(n, dtype=bool)
    p = it.inputs["parents"].reshape(-1)
    only[np.arange(n)[p >= 0], p[p >= 0]] = True
    return it, np.concatenate([np.ones((n, it.past), bool), only], 1)[None, None]


# ---- packing ----


@bug(made, "C24.one_document", ["cross_document"], "the documents are not separated")
def c24_plain(rng):
    it, seg = packed(rng)
    n_tok = seg.shape[1]
    m = np.broadcast_to(tri(n_tok, n_tok, 0) if is_causal(it) else np.ones((n_tok, n_tok), bool), it.keep.shape).copy()
    m &= (seg > 0)[:, None, None, :]
    return it, settle(rng, m, it.real, 0)


@bug(made, "C24.positions_only", ["cross_document"], "positions reset, mask plain causal")
def c24_positions_only(rng):
    it, seg = packed(rng, "causal_packed", False)
    pos = np.zeros_like(seg)
    for r, s in zip(pos, seg):
        for n in np.unique(s):
            r[s == n] = np.arange((s == n).sum())
    it.inputs = {"position_ids": pos}
    it.context = {}
    return it, plain_causal(it)


@bug
def c24_cast_to_bool(rng):
    it, seg = packed(rng, "causal_packed")
    b, n_tok = seg.shape
    form = pick(rng, "plane", "plane", "grid")
    if form == "plane":
        mask, role = seg.copy(), "key_padding"
        eff = (seg > 0)[:, None, None, :] & tri(n_tok, n_tok, 0)
    else:
        mask = (seg[:, :, None] == seg[:, None, :])[:, None] * seg[:, None, None, :] * 0 + tri(n_tok, n_tok, 0) * seg[
            :, None, None, :
        ]
        role, eff = "attn", (mask != 0)
    eff = np.broadcast_to(eff, it.keep.shape).copy()
    if not ((eff != it.keep) & it.care).any() or seg.max() < 2:
        return None
    ctx = {
        "api": "transformers.attention_mask",
        "convention": pick(rng, "keep_01", "segments") if form == "plane" else "keep_01",
        "role": role,
        "kind": it.kind,
        **it.context,
    }
    inputs = {k: v for k, v in it.inputs.items() if k != "segment_ids" or chance(rng, 0.5)}
    return Case(
        "C24.cast_to_bool",
        ["segment_ids_cast_to_bool", "cross_document"],
        "document numbers read as 0/1",
        mask,
        ctx,
        it.keep,
        it.care,
        eff,
        inputs,
        accept=("cross_document",),
        open_question="does 'segments' mean that the consumer understands numbers?"
        if ctx["convention"] == "segments"
        else "",
    )


@bug(made, "C25.boundary", ["document_boundary_off_by_one", "cross_document"], "borders one token off")
def c25_boundary(rng):
    it, seg = packed(rng)
    real = seg > 0
    moved = seg.copy()
    if chance(rng, 0.5):  # each EOS opens the next document
        moved[:, :-1] = np.where(real[:, 1:], seg[:, 1:], seg[:, :-1])
    else:
        moved[:, 1:] = np.where(real[:, 1:], seg[:, :-1], 0)
    n_tok = seg.shape[1]
    m = (moved[:, :, None] == moved[:, None, :]) & real[:, None, :]
    if is_causal(it):
        m &= tri(n_tok, n_tok, 0)
    return it, settle(rng, m[:, None], real, 0)

"""More cases of the classes: other mistakes, other texts and other companions."""

from __future__ import annotations

import numpy as np

from build import (
    EOS,
    PAD,
    PLANE,
    Case,
    Intent,
    added,
    band,
    batch,
    cached,
    chance,
    covered,
    intent,
    length,
    of_intent,
    padding,
    pick,
    plain_causal,
    plane,
    positions,
    say_plane,
    settle,
    side,
    tokens,
    tri,
)
from companions import corpus
from healthy import fine, fine_plane, well
from scenes import chunked, packed
from faulty import bug, made, plane_case

NAMES = {
    "causal": ("causal", "decoder", "causal_lm", "autoregressive"),
    "bidirectional": ("bidirectional", "full", "encoder", "non_causal"),
    "sliding": ("sliding", "sliding_window", "causal_sliding", "local"),
    "prefix_lm": ("prefix_lm", "prefix-lm", "prefix"),
}


def renamed(rng, it: Intent) -> Intent:
    it.kind = pick(rng, *NAMES[it.kind])
    return it


# ---- correct --------------------------------------------------------------------------------------------------------


@well(fine, "H.other_names", "")
def h_other_names(rng):
    return (renamed(rng, intent(rng, pick(rng, *NAMES), side(rng))),)


@well
def h_float_keep(rng):
    v = padding(rng, batch(rng), length(rng, 5), pick(rng, "left", "right"))
    c = fine_plane(rng, "H.float_keep_plane", "0/1 as float where the consumer compares with 1", v, "hf")
    c.mask = c.mask.astype(np.float32)
    return c


@well
def h_lengths_only(rng):
    b, n_tok = batch(rng, 2), length(rng, 5)
    v = padding(rng, b, n_tok, "right")
    c = fine_plane(rng, "H.lengths_only", "lengths beside the mask, no ids", v)
    c.inputs = {"lengths": v.sum(1).astype(np.int64)}
    c.context.pop("pad_token_id")
    return c


@well
def h_three_dimensions(rng):
    it = intent(rng, pick(rng, "causal", "bidirectional"), pick(rng, "left", "right"), b=int(rng.integers(2, 5)))
    return of_intent(
        "H.three_dimensions",
        [],
        "[batch, queries, keys]",
        it,
        it.keep[:, 0].copy(),
        {"api": "transformers.attention_mask", "convention": "keep_bool", "role": "attn"},
    )


@well
def h_cached_plane(rng):
    past, q, b = int(rng.integers(2, 24)), int(rng.integers(1, 5)), batch(rng)
    v = padding(rng, b, past + q, "left")
    v[:, past:] = True
    it = cached(v, past, pad_token_id=PAD)
    inputs = {"input_ids": tokens(rng, v)} if chance(rng, 0.6) else {}
    why = "the plane covers cache and new tokens"
    return of_intent("H.cached_plane", [], why, it, v.astype(np.int64), PLANE, inputs=inputs)


@well
def h_decode_positions(rng):
    past, b = int(rng.integers(2, 24)), batch(rng)
    it = intent(rng, "causal", "left", b=b, past=past, n_tok=1)
    if not it.real.all():
        return None
    p = positions(it.valid)[:, past:]
    return fine(
        rng,
        "H.decode_positions",
        "one step, positions counted over real tokens",
        it,
        inputs={"position_ids": p},
        ctx={"position_encoding": "learned"},
    )


@well
def h_labels_prompt(rng):
    it, mask, ctx, labels = corpus(rng, "right")
    n = int(rng.integers(2, 5))
    if (it.valid.sum(1) < n + 2).any():
        return None
    labels[:, :n] = -100
    return of_intent(
        "H.labels_prompt", [], "the prompt has no labels", it, mask, {**ctx, "prompt_len": n}, inputs={"labels": labels}
    )


@well
def h_completion(rng):
    b, n_tok = batch(rng), length(rng, 12, 48)
    p = int(rng.integers(2, n_tok // 2))
    ids = rng.integers(5, 96, size=(b, n_tok)).astype(np.int64)
    ends = rng.integers(p + 1, n_tok, size=b)
    for r, e in zip(ids, ends):
        r[e], r[e + 1 :] = EOS, PAD
    at = np.arange(n_tok)[None]
    v = at <= ends[:, None]
    c = fine_plane(
        rng,
        "H.completion",
        "up to and with the first EOS",
        v,
        "hf",
        "causal",
        ctx={"eos_token_id": EOS, "prompt_len": p},
        inputs={"completion_mask": (v & (at >= p)).astype(np.int64)},
    )
    c.inputs["input_ids"] = ids
    return c


@well(fine, "H.layer", "a window where the layer has one")
def h_layer(rng):
    kinds = [pick(rng, "sliding_attention", "full_attention") for _ in range(4)]
    n = int(rng.integers(4))
    it = intent(rng, "sliding" if kinds[n].startswith("sliding") else "causal", side(rng))
    w = it.context.get("window", 4)
    it.context |= {"layer_types": kinds, "layer": n, "window": w}
    return (it,)


@well
def h_finite_empty(rng):
    it = intent(rng, "causal", "left")
    keep = it.keep & it.care
    mask = np.where(keep, 0, pick(rng, -1e9, float(np.finfo(np.float32).min))).astype(np.float32)
    ctx = added()
    return of_intent(
        "H.finite_empty_padding",
        [],
        "rows of padding under a finite fill",
        it,
        mask,
        ctx,
        keep,
        open_question="a warning, or nothing",
    )


@well(fine, "H.chunk_names", "")
def h_chunk_names(rng):
    it, c = chunked(rng, chance(rng, 0.5))
    it.kind = pick(rng, "chunked_attention", "causal_chunked", "chunked")
    return (it,)


@well(fine, "H.packed_by_positions", "documents are given by positions only")
def h_packed_lengths(rng):
    it, seg = packed(rng, "causal_packed", False)
    if seg.shape[0] > 1 or (np.bincount(seg[0])[1:] < 2).any():
        return None
    pos = np.concatenate([np.arange((seg[0] == n).sum()) for n in range(1, seg.max() + 1)])[None]
    it.inputs, it.context = {"position_ids": pos.astype(np.int64)}, {}
    return (it,)


# ---- faulty -----------------------------------------------------------------------------------------------------------


@bug(plane_case, "C01.additive_swapped", ["inverted_polarity"], "mask * -1e9 of a keep mask")
def c01_additive_swapped(rng):
    v = padding(rng, batch(rng, 2), length(rng, 6), pick(rng, "left", "right"))
    fill = pick(rng, -np.inf, -1e9)
    mask = np.where(v, fill, 0.0)[:, None, None, :].astype(np.float32)
    ctx = {"api": "sdpa", "convention": "additive", "role": "attn", "compute_dtype": "float32"}
    return v, mask, ctx


@bug(made, "C02.other_names", ["causal_leak"], "tril(diagonal=1)")
def c02_other_names(rng):
    it = renamed(rng, intent(rng, "causal", side(rng)))
    k = it.keep.shape[-1]
    return it, covered(rng, it, tri(k, k, 0, 1))


@bug
def c07_encoder_row_empty(rng):
    b, k, q = batch(rng, 2), length(rng, 5, 32), length(rng, 2, 16)
    lens = rng.integers(2, k + 1, size=b)
    lens[int(rng.integers(b))] = 0
    enc = plane(lens, k, "right")
    keep = np.broadcast_to(enc[:, None, None, :], (b, 1, q, k)).copy()
    mask = np.where(keep, 0, -np.inf).astype(np.float32)
    ctx = {
        "api": "additive",
        "convention": "additive",
        "role": "cross_attn",
        "kind": "cross",
        "compute_dtype": "float32",
        "pad_token_id": PAD,
        "q_len": q,
        "kv_len": k,
    }
    ids = tokens(rng, enc)
    return Case(
        "C07.encoder_row_empty",
        ["fully_masked_row"],
        "an encoder row without a token",
        mask,
        ctx,
        keep,
        np.ones_like(keep),
        keep.copy(),
        {"encoder_input_ids": ids},
        values_only=True,
        open_question="meant or not, the rows have nothing to read",
    )


@bug(plane_case, "C10.float_key_padding", ["float01_added"], "a float key padding mask is added")
def c10_mha_float(rng):
    v = padding(rng, batch(rng, 2), length(rng, 6), pick(rng, "left", "right"))
    ctx = {
        "api": "torch.nn.MultiheadAttention.key_padding_mask",
        "convention": "additive",
        "role": "key_padding",
        "compute_dtype": "float32",
    }
    return v, v.astype(np.float32), ctx


@bug
def c19_plane(rng):
    past, q = int(rng.integers(2, 24)), 1
    cap = past + q + int(rng.integers(2, 16))
    it = cached(np.ones((batch(rng), cap), bool), past, q_len=q)
    return of_intent(
        "C19.plane",
        ["unwritten_cache_visible"],
        "a plane of ones over the whole static cache",
        it,
        np.ones((len(it.keep), cap), np.int64),
        PLANE,
        np.ones_like(it.keep),
        open_question="the slot's own causality hides them",
    )


@bug(made, "C21.two_sided", ["sliding_window_off_by_one"], "|i - j| < w for <= w")
def c21_two_sided(rng):
    n_tok, b = length(rng, 8), batch(rng)
    w = int(rng.integers(2, max(3, n_tok // 2)))
    d = np.abs(np.arange(n_tok)[:, None] - np.arange(n_tok)[None])
    it = Intent(
        np.broadcast_to(d <= w, (b, 1, n_tok, n_tok)).copy(),
        np.ones((b, n_tok), bool),
        "bidirectional_sliding",
        context={"window": w, "window_means": "each side"},
    )
    return it, np.broadcast_to(d <= w + pick(rng, 1, -1), it.keep.shape).copy()


@bug(
    made,
    "C22.wrong_layer",
    ["window_missing_or_wrong_layer"],
    "the parity of layers is reversed",
    blind=True,
    accept=("window_missing",),
)
def c22_wrong_layer(rng):
    kinds = [("sliding_attention", "full_attention")[n % 2] for n in range(4)]
    n = int(rng.integers(4))
    right, wrong = ("sliding", "causal") if n % 2 == 0 else ("causal", "sliding")
    it = intent(rng, "sliding", None)
    k, w = it.keep.shape[-1], it.context["window"]
    masks = {"sliding": band(k, k, 0, w), "causal": tri(k, k, 0)}
    it.keep = np.broadcast_to(masks[right], it.keep.shape).copy()
    it.kind = right
    it.context |= {"layer_types": kinds, "layer": n}
    return it, np.broadcast_to(masks[wrong], it.keep.shape).copy()


@bug(made, "C24.cu_seqlens", ["cross_document"], "cu_seqlens declared, mask plain causal")
def c24_bidirectional_reset(rng):
    it, seg = packed(rng, "causal_packed", False)
    n_tok = seg.shape[1]
    cu = np.concatenate([[0], np.flatnonzero(np.diff(seg[0])) + 1, [n_tok]]).astype(np.int32)
    if seg.shape[0] > 1:
        return None
    it.inputs, it.context = {"cu_seqlens": cu}, {}
    return it, plain_causal(it)


@bug(
    made,
    "C25.one_border",
    ["document_boundary_off_by_one", "cross_document"],
    "one border is off",
    accept=("cross_document",),
)
def c25_one_border(rng):
    it, seg = packed(rng)
    if seg.max() < 2:
        return None
    moved = seg.copy()
    for r in moved:
        starts = np.flatnonzero(np.diff(r) > 0) + 1
        if len(starts):
            s = int(pick(rng, *starts))
            if chance(rng, 0.5):
                r[s] = r[s - 1]
            else:
                r[s - 1] = r[s]
    n_tok = seg.shape[1]
    m = (moved[:, :, None] == moved[:, None, :]) & (seg > 0)[:, None, :]
    if it.kind == "causal_packed":
        m &= tri(n_tok, n_tok, 0)
    return it, settle(rng, m[:, None], seg > 0, 0)


@bug
def c28_encoder_mask_beside(rng):
    b, k, q = batch(rng, 2), length(rng, 5, 32), length(rng, 2, 16)
    enc = padding(rng, b, k, "right")
    keep = np.broadcast_to(enc[:, None, None, :], (b, 1, q, k)).copy()
    it = Intent(
        keep,
        np.ones((b, q), bool),
        "cross_attention",
        enc,
        "right",
        0,
        {"q_len": q, "kv_len": k},
        {pick(rng, "encoder_attention_mask", "encoder_mask"): enc.astype(np.int64)},
    )
    c = made(
        rng,
        "C28.mask_beside",
        ["cross_attention_mask"],
        "no encoder mask",
        it,
        np.ones_like(keep),
        pick(rng, "keep_bool", "additive"),
        accept=("padding_keys_visible",),
    )
    if c is not None:
        c.context["role"] = "cross_attn"
    return c


@bug
def c50_longer(rng):
    n_tok, b = length(rng, 6, 48), batch(rng)
    v = padding(rng, b, n_tok, "right")
    big = n_tok + int(rng.integers(1, 8))
    wide = np.concatenate([v, np.ones((b, big - n_tok), bool)], 1)
    mask, ctx = say_plane(rng, wide, pick(rng, "hf", "mha", "keras"))
    keep = np.broadcast_to(v[:, None, None, :], (b, 1, n_tok, n_tok)).copy()
    care = np.broadcast_to(v[:, None, :, None], keep.shape).copy()
    return Case(
        "C50.longer_plane",
        ["stale_or_bucketed_mask"],
        "the plane of a longer bucket",
        mask,
        {**ctx, "kind": "bidirectional", "pad_token_id": PAD},
        keep,
        care,
        keep.copy(),
        {"input_ids": tokens(rng, v)},
        values_only=True,
    )

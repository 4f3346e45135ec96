"""Correct masks, also correct masks that look faulty."""

from __future__ import annotations

import numpy as np

from build import (
    EOS,
    PAD,
    Case,
    Intent,
    added,
    batch,
    cached,
    chance,
    intent,
    into,
    length,
    of_intent,
    padding,
    pick,
    plain_causal,
    positions,
    say,
    say_plane,
    side,
    tri,
)
from companions import corpus, scored, softmax
from scenes import chunked, cross, images, packed, ring, tree
from faulty import plane_case

HEALTHY: list = []
well = into(HEALTHY)


def fine(rng, name, why, it: Intent, form=None, keep=None, **more) -> Case:
    keep = it.keep if keep is None else keep
    mask, ctx = say(rng, keep, form)
    return of_intent(name, [], why, it, mask, ctx, keep.copy(), also=more.pop("ctx", None), **more)


def fine_plane(rng, name, why, v, form=None, kind="bidirectional", pad=PAD, **more):
    mask, ctx = say_plane(rng, v, form)
    ctx |= more.pop("ctx", {})
    return plane_case(rng, name, [], why, v, mask, ctx, kind, pad, values_only=True, **more)


@well
def h_common(rng):
    kind = pick(rng, "causal", "causal", "bidirectional", "sliding", "prefix_lm")
    return fine(rng, f"H.{kind}", "", intent(rng, kind, side(rng)))


@well
def h_cached(rng):
    past = int(rng.integers(1, 40))
    it = intent(rng, pick(rng, "causal", "sliding"), pick(rng, None, "left"), past=past, n_tok=pick(rng, 1, 1, 4, 12))
    return None if not it.real.all() else fine(rng, "H.cached", "bottom-right aligned chunk", it)


@well(fine_plane, "H.padding_plane", "")
def h_plane(rng):
    v = padding(rng, batch(rng), length(rng, 5), pick(rng, "left", "right"))
    return (v,)


@well(fine_plane, "H.causal_padding_plane", "a plane for a model that adds causality itself")
def h_causal_plane(rng):
    v = padding(rng, batch(rng), length(rng, 5), pick(rng, "left", "right"))
    return v, "hf", "causal"


@well(fine_plane, "H.nothing_to_hide", "equal lengths")
def h_nothing_hidden(rng):
    return (np.ones((batch(rng), length(rng, 4)), bool),)


@well
def h_pad_is_eos(rng):
    v = padding(rng, batch(rng), length(rng, 8), pick(rng, "left", "right"))
    c = fine_plane(rng, "H.pad_is_eos", "made from lengths", v, "hf", "causal", EOS)
    for r, vr in zip(c.inputs["input_ids"], v):
        at = np.flatnonzero(vr)
        r[at[2:-2][rng.random(max(0, len(at) - 4)) < 0.1]] = EOS
    c.context["eos_token_id"] = EOS
    c.inputs["lengths"] = v.sum(1).astype(np.int64)
    return c


@well
def h_right_padded_causal(rng):
    it = intent(rng, "causal", "right")
    return fine(
        rng,
        "H.shared_causal",
        "right padding under causality: no real row reaches it",
        it,
        keep=plain_causal(it),
    )


@well
def h_pad_reads_pad(rng):
    it = intent(rng, "bidirectional", "right")
    v = it.valid
    return fine(
        rng, "H.pad_reads_pad", "seq == seq: padding reads padding", it, keep=(v[:, :, None] == v[:, None, :])[:, None]
    )


@well(fine, "H.packed", "")
def h_packed(rng):
    it, _ = packed(rng)
    return (it,)


@well(fine, "H.kind_packed", "'packed' without declaring causal")
def h_packed_named_short(rng):
    it, _ = packed(rng)
    it.kind = pick(rng, "packed", "packed", "varlen", "document")
    return (it,)


@well(fine, "H.one_document", "one document fills the row")
def h_long_document_segments(rng):
    n_tok, b = length(rng, 8), batch(rng)
    keep = np.broadcast_to(tri(n_tok, n_tok, 0), (b, 1, n_tok, n_tok)).copy()
    it = Intent(keep, np.ones((b, n_tok), bool), "causal_packed", inputs={"segment_ids": np.ones((b, n_tok), np.int64)})
    return (it,)


@well
def h_alibi(rng):
    it = intent(rng, pick(rng, "causal", "bidirectional"), side(rng), n_tok=length(rng, 4, 48))
    h, k = pick(rng, 2, 4, 8), it.keep.shape[-1]
    slopes = 2.0 ** -(np.arange(1, h + 1) * 8 / h)
    d = np.arange(k)[None, :] - np.arange(k)[:, None]
    bias = slopes[:, None, None] * (-np.abs(d))[None]
    mask = np.where(it.keep, bias[None], pick(rng, -np.inf, -1e9)).astype(np.float32)
    ctx = {**added(), **({"bias": "alibi"} if chance(rng, 0.8) else {})}
    return of_intent("H.alibi", [], "a position bias, not a weak mask", it, mask, ctx)


@well
def h_learned_bias(rng):
    it = intent(rng, pick(rng, "causal", "bidirectional"), None, n_tok=length(rng, 4, 32), b=1)
    h, k = 4, it.keep.shape[-1]
    table = rng.normal(size=(h, 2 * k)).astype(np.float32)
    d = np.arange(k)[None, :] - np.arange(k)[:, None] + k
    mask = np.where(it.keep, table[:, d][None], -np.inf).astype(np.float32)
    ctx = {**added(), "bias": pick(rng, "t5", "relative")}
    return of_intent("H.learned_bias", [], "a learned relative bias", it, mask, ctx)


@well(fine, "H.chunked", "")
def h_chunked(rng):
    it, _ = chunked(rng, chance(rng, 0.5))
    return (it,)


@well(fine, "H.tree", "")
def h_tree(rng):
    return (tree(rng),)


@well(fine, "H.chain", "a draft that is a chain is triangular")
def h_chain(rng):
    n = int(rng.integers(3, 12))
    it = Intent(tri(n, n, 0)[None, None], np.ones((1, n), bool), "tree", inputs={"parents": np.arange(-1, n - 1)[None]})
    return (it,)


@well
def h_cross(rng):
    it, _ = cross(rng, chance(rng, 0.3))
    c = fine(rng, "H.cross", "", it, pick(rng, "keep_bool", "keep_01", "additive"))
    c.context["role"] = pick(rng, "cross_attn", "cross")
    return c


@well(fine, "H.images", "image tokens read each other")
def h_images(rng):
    it, _, _ = images(rng, chance(rng, 0.5))
    return (it,)


@well(fine, "H.ring", "slots in ring order")
def h_ring(rng):
    it, *_ = ring(rng)
    return (it,)


@well(fine, "H.static_cache", "unwritten slots hidden")
def h_static_cache(rng):
    past, q = int(rng.integers(0, 24)), int(rng.integers(1, 5))
    cap = past + q + int(rng.integers(1, 16))
    it = cached(np.ones((batch(rng), cap), bool), past, q_len=q)
    return (it,)


@well(fine, "H.two_sided_window", "|i - j| <= w")
def h_two_sided_window(rng):
    n_tok, b = length(rng, 6), batch(rng)
    w = int(rng.integers(1, max(2, n_tok // 2)))
    d = np.abs(np.arange(n_tok)[:, None] - np.arange(n_tok)[None])
    keep = np.broadcast_to(d <= w, (b, 1, n_tok, n_tok)).copy()
    it = Intent(
        keep,
        np.ones((b, n_tok), bool),
        pick(rng, "sliding_bidirectional", "bidirectional_sliding", "sliding"),
        context={"window": w, "window_means": pick(rng, "each side", "keys on each side")},
    )
    return (it,)


@well
def h_window_other_words(rng):
    it = intent(rng, "sliding", side(rng))
    it.context["window"] = it.context["window"] - 1
    it.context["window_means"] = pick(rng, "previous keys, self excluded", "previous keys plus self")
    return None if it.context["window"] < 1 else fine(rng, "H.window_previous_keys", "w previous keys and self", it)


@well
def h_heads(rng):
    it = intent(rng, pick(rng, "causal", "bidirectional"), pick(rng, "left", "right"), n_tok=length(rng, 5, 32))
    b, _, q, k = it.keep.shape
    h = pick(rng, 2, 4)
    if chance(rng, 0.5):
        mask, ctx = it.keep.repeat(h, 1), {"api": "sdpa", "convention": "keep_bool", "role": "attn"}
    else:
        mask = ~it.keep.repeat(h, 1).reshape(b * h, q, k)
        ctx = {
            "api": "torch.nn.MultiheadAttention.attn_mask",
            "convention": "ignore_bool",
            "role": "attn",
            "heads": h,
        }
    return of_intent("H.per_head", [], "repeat_interleave over heads", it, mask, ctx)


@well
def h_rope_shift(rng):
    it = intent(rng, "causal", "left")
    b, _, _, k = it.keep.shape
    return fine(
        rng,
        "H.rope_shift",
        "a constant shift per row does not matter to RoPE",
        it,
        inputs={"position_ids": np.broadcast_to(np.arange(k), (b, k)).astype(np.int64)},
        ctx={"position_encoding": pick(rng, "rope", "RoPE", "rotary")},
    )


@well
def h_positions(rng):
    it = intent(rng, "causal", pick(rng, "left", "right"))
    return fine(
        rng,
        "H.positions",
        "counted from the first real token",
        it,
        inputs={"position_ids": positions(it.valid, pick(rng, 0, 1))},
        ctx=pick(rng, {}, {"position_encoding": "learned"}),
    )


@well
def h_labels(rng):
    it, mask, ctx, labels = corpus(rng)
    if chance(rng, 0.4):
        at = np.argmax(it.valid, 1)
        for r, s, v in zip(labels, at, it.valid):
            r[s : s + int(rng.integers(1, max(2, v.sum() - 2)))] = -100
    return of_intent("H.labels", [], "labels of a right collator", it, mask, ctx, inputs={"labels": labels})


@well
def h_mlm(rng):
    it = intent(rng, "bidirectional", "right", n_tok=length(rng, 16, 64))
    ids = it.inputs["input_ids"]
    labels = np.where((rng.random(ids.shape) < 0.2) & it.valid & (ids > 4), ids, -100)
    if (labels == -100).all(1).any():
        return None
    shown = np.where((labels != -100) & (rng.random(ids.shape) < 0.8), 4, ids)
    it.inputs["input_ids"] = shown
    return fine(
        rng,
        "H.mlm",
        "15 % of real tokens are predicted",
        it,
        inputs={"labels": labels},
        ctx={"mlm_probability": 0.15, "mask_token_id": 4},
    )


@well
def h_pooled(rng):
    b, n_tok, d = batch(rng, 2), length(rng, 6, 40), 8
    v = padding(rng, b, n_tok, "right")
    hid = rng.normal(size=(b, n_tok, d)).astype(np.float32)
    mean = (hid * v[..., None]).sum(1) / v.sum(1, keepdims=True)
    how = pick(rng, "mean", "cls", "last")
    out = {"mean": mean, "cls": hid[:, 0], "last": hid[np.arange(b), v.sum(1) - 1]}[how].astype(np.float32)
    return fine_plane(
        rng,
        f"H.pooled_{how}",
        "the pooled vector is right",
        v,
        inputs={"hidden": hid, "pooled": out},
        ctx={"pooling": how} if chance(rng, 0.6) else {},
    )


@well
def h_probabilities(rng):
    it, mask, ctx, s = scored(rng)
    p = softmax(np.where(it.keep, s, -1e30))
    if chance(rng, 0.3):
        p = p * 0 + softmax(s) * it.keep
        p = p / p.sum(-1, keepdims=True)
    return of_intent(
        "H.probabilities",
        [],
        "masked cells have weight 0 and rows sum to 1",
        it,
        mask,
        ctx,
        inputs={"probabilities": p.astype(np.float32)},
    )


@well
def h_redactions(rng):
    it = intent(rng, pick(rng, "causal", "bidirectional"), None, n_tok=length(rng, 8, 64))
    k = it.keep.shape[-1]
    hid = np.sort(rng.choice(np.arange(1, k - 1), size=int(rng.integers(1, 4)), replace=False))
    keep = it.keep.copy()
    keep[..., hid] = False
    keep[:, :, np.arange(k), np.arange(k)] |= it.keep[:, :, np.arange(k), np.arange(k)]
    it.keep = keep
    c = fine(rng, "H.redactions", "declared holes", it, ctx={"redactions": [int(h) for h in hid]})
    c.open_question = "the shape of the redactions field is not known"
    return c


@well
def h_cu_seqlens(rng):
    it, seg = packed(rng, "causal_packed", False)
    if seg.shape[0] > 1:
        return None
    cu = np.concatenate([[0], np.flatnonzero(np.diff(seg[0])) + 1, [seg.shape[1]]]).astype(np.int32)
    return fine(rng, "H.cu_seqlens", "borders as flash-attn takes them", it, inputs={"cu_seqlens": cu})

"""Correct masks that look faulty to a simple rule. One for each warning in the catalogue's "FP" notes."""

from __future__ import annotations

import numpy as np

from build import (
    EOS,
    PAD,
    Case,
    Intent,
    added,
    band,
    batch,
    chance,
    intent,
    length,
    of_intent,
    padding,
    pick,
    positions,
    say_plane,
    tokens,
    tri,
)
from healthy import fine, fine_plane, well
from scenes import packed
from faulty import bug, made


@well
def t_both_sides(rng):
    it = intent(rng, "bidirectional", pick(rng, "left", "right"))
    v = it.valid
    keep = (v[:, :, None] & v[:, None, :])[:, None]
    c = fine(
        rng, "H.trap.both_sides", "padding hidden on keys and on queries", it, pick(rng, "keep_bool", "keep_01"), keep
    )
    c.mask = keep.astype(c.mask.dtype)
    return c


@well
def t_square_batch(rng):
    n = int(rng.integers(3, 9))
    v = padding(rng, n, n, "right")
    keep = np.broadcast_to(tri(n, n, 0), (n, 1, n, n)).copy()
    it = Intent(
        keep & v[:, None, None, :], v, "causal", v, "right", 0, {"pad_token_id": PAD}, {"input_ids": tokens(rng, v)}
    )
    c = fine(
        rng,
        "H.trap.square_batch",
        "(L, L) causal with B == L: right padding needs no plane",
        it,
        "keep_bool",
        np.broadcast_to(tri(n, n, 0), keep.shape).copy(),
    )
    c.mask = tri(n, n, 0)
    return c


@well
def t_alike_over_batch(rng):
    it = intent(rng, "causal", None, b=int(rng.integers(2, 5)))
    h = pick(rng, 2, 4)
    b, _, q, k = it.keep.shape
    mask = ~np.broadcast_to(it.keep[0], (b * h, q, k))
    ctx = {"api": "torch.nn.MultiheadAttention.attn_mask", "convention": "ignore_bool", "role": "attn", "heads": h}
    it.inputs["input_ids"] = tokens(rng, np.ones((b, k), bool))
    return of_intent("H.trap.alike_over_batch", [], "either layout of B*H is the same", it, mask.copy(), ctx)


@well
def t_decay(rng):
    it = intent(rng, pick(rng, "causal", "bidirectional"), None, n_tok=length(rng, 4, 48))
    k = it.keep.shape[-1]
    d = np.abs(np.arange(k)[None, :] - np.arange(k)[:, None])
    bias = d * np.log(rng.uniform(0.5, 0.99)) if chance(rng, 0.5) else -np.sqrt(d) * rng.uniform(0.1, 2)
    mask = np.where(it.keep, bias, -np.inf).astype(np.float32)
    ctx = {**added(), **pick(rng, {}, {"bias": "decay"}, {"bias": "distance"})}
    return of_intent("H.trap.decay", [], "a decay over distance", it, mask, ctx)


@well
def t_plus_one_bias(rng):
    it = intent(rng, "bidirectional", None, n_tok=length(rng, 4, 32))
    mask = (rng.random(it.keep.shape) < 0.5).astype(np.float32)
    ctx = {**added(), "bias": pick(rng, "learned", "edge", "graph")}
    return of_intent("H.trap.plus_one_bias", [], "a declared bias of 0 and 1", it, mask, ctx)


@well
def t_roberta_positions(rng):
    it = intent(rng, "bidirectional", "right", b=batch(rng, 2))
    p = np.where(it.valid, np.cumsum(it.valid, 1) + 1, 1).astype(np.int64)
    return fine(
        rng,
        "H.trap.roberta_positions",
        "every text counts from 2",
        it,
        inputs={"position_ids": p},
        ctx=pick(rng, {}, {"position_encoding": "learned"}),
    )


@well
def t_mrope(rng):
    it = intent(rng, "causal", pick(rng, "left", "right"))
    p = np.stack([positions(it.valid)] * 3)
    p[1] //= 2
    return fine(
        rng,
        "H.trap.mrope",
        "three planes of positions",
        it,
        inputs={"position_ids": p},
        ctx={"position_encoding": "mrope"},
    )


@well(fine, "H.trap.window_longer", "the text is shorter than the window")
def t_window_longer(rng):
    it = intent(rng, "causal", pick(rng, None, "left", "right"))
    it.kind = "sliding"
    it.context |= {
        "window": it.keep.shape[-1] + int(rng.integers(0, 50)),
        "window_means": "keys visible, self included",
    }
    return (it,)


@bug(made, "C21.window_unsaid", ["sliding_window_off_by_one"], "w previous keys plus self")
def t_window_unsaid(rng):
    """A width W without a word on what it counts is W keys with the query itself."""
    n_tok, b = length(rng, 8), batch(rng)
    w = int(rng.integers(2, n_tok - 2))
    right, wrong = (np.broadcast_to(band(n_tok, n_tok, 0, x), (b, 1, n_tok, n_tok)).copy() for x in (w, w + 1))
    it = Intent(right, np.ones((b, n_tok), bool), "sliding", context={"window": w})
    return it, wrong


@well(fine, "H.trap.all_prefix", "prefill: everything is prefix")
def t_all_prefix(rng):
    n_tok, b = length(rng, 5), batch(rng)
    it = Intent(
        np.ones((b, 1, n_tok, n_tok), bool), np.ones((b, n_tok), bool), "prefix_lm", context={"prefix_len": n_tok}
    )
    return (it,)


@well
def t_seq2seq_labels(rng):
    it = intent(rng, "bidirectional", "right", n_tok=length(rng, 8, 48))
    labels = rng.integers(5, 96, size=it.real.shape)
    labels[:, -1] = EOS
    labels = np.where(it.real, labels, -100)
    for r in labels:
        r[np.flatnonzero(r != -100)[-1]] = EOS
    return fine(
        rng,
        "H.trap.seq2seq_labels",
        "labels of another sequence",
        it,
        inputs={"labels": labels.astype(np.int64)},
        ctx={"eos_token_id": EOS, "api": "transformers.T5ForConditionalGeneration"},
    )


@well
def t_no_eos_corpus(rng):
    it = intent(rng, "causal", "right", n_tok=length(rng, 8, 48))
    ids = it.inputs["input_ids"]
    ids[ids == EOS] = 7
    it.context["eos_token_id"] = EOS
    return fine(rng, "H.trap.no_eos", "texts without EOS", it, inputs={"labels": np.where(it.valid, ids, -100)})


@well
def t_max_pooling(rng):
    b, n_tok = batch(rng, 2), length(rng, 6, 32)
    v = padding(rng, b, n_tok, "right")
    hid = rng.normal(size=(b, n_tok, 8)).astype(np.float32)
    out = np.where(v[..., None], hid, -1e9).max(1).astype(np.float32)
    if chance(rng, 0.5):
        w = np.exp(hid[..., :1]) * v[..., None]
        out = ((w * hid).sum(1) / w.sum(1)).astype(np.float32)
    return fine_plane(
        rng, "H.trap.other_pooling", "maximum or attention pooling", v, inputs={"hidden": hid, "pooled": out}
    )


@well
def t_sink_probabilities(rng):
    it = intent(rng, "causal", None, n_tok=length(rng, 5, 32))
    s = rng.normal(size=it.keep.shape)
    e = np.exp(s) * it.keep
    p = e / (e.sum(-1, keepdims=True) + 1.0)
    return fine(
        rng,
        "H.trap.sink_probabilities",
        "rows sum to less than 1 because of a sink",
        it,
        inputs={"probabilities": p.astype(np.float32)},
        ctx={"sinks": 1, "api": "gpt_oss"},
        open_question="how a learned sink is declared",
    )


@well(fine, "H.trap.ring_not_wrapped", "one step inside the window")
def t_token_in_ring(rng):
    w = int(rng.integers(3, 20))
    t = int(rng.integers(1, w))
    kp = np.where(np.arange(w) <= t, np.arange(w), -1)
    keep = (kp >= 0)[None, None, None]
    it = Intent(
        keep,
        np.ones((1, 1), bool),
        "sliding",
        past=t,
        context={"window": w, "window_means": "keys visible, self included"},
        inputs={"kv_positions": pick(rng, kp, kp[None]).astype(np.int64), "position_ids": np.array([[t]], np.int64)},
    )
    return (it,)


@well
def t_zero_length_free(rng):
    v = np.ones((batch(rng), length(rng, 4)), bool)
    mask, ctx = say_plane(rng, v, "mha")
    ctx |= {"kind": "bidirectional", "pad_token_id": PAD}
    keep = np.ones((v.shape[0], 1, v.shape[1], v.shape[1]), bool)
    return Case(
        "H.trap.nothing_ignored",
        [],
        "all False where True means ignore",
        mask,
        ctx,
        keep,
        keep.copy(),
        keep.copy(),
        {"input_ids": tokens(rng, v)},
    )


@well
def t_packed_shared_causal_rope(rng):
    it, seg = packed(rng, "causal_packed", False)
    b, _, _, k = it.keep.shape
    it.inputs.pop("position_ids", None)
    return fine(
        rng,
        "H.trap.packed_rope_not_reset",
        "RoPE sees differences only",
        it,
        inputs={"position_ids": np.broadcast_to(np.arange(k), (b, k)).astype(np.int64)},
        ctx={"position_encoding": "rope"},
    )


@well(fine, "H.trap.decode_all_visible", "the newest token reads everything")
def t_one_query_all_visible(rng):
    k, b = length(rng, 3, 64), batch(rng)
    keep = np.ones((b, 1, 1, k), bool)
    it = Intent(keep, np.ones((b, 1), bool), "causal", past=k - 1, context={"past_len": k - 1, "q_len": 1, "kv_len": k})
    return (it,)


@well
def t_fp16_two_padding_planes(rng):
    it = intent(rng, "causal", "right", pads="open")
    low = pick(rng, -1e4, -2e4, -3e4)
    mask = (
        np.where(tri(*it.keep.shape[2:], 0), 0, low)[None, None] + np.where(it.valid[:, None, None, :], 0, low)
    ).astype(np.float16)
    ctx = added("float16")
    return of_intent(
        "H.trap.two_planes_that_fit", [], "two fills whose sum fits half precision", it, mask, ctx, mask == 0
    )


@well
def t_visible_fill(rng):
    it = intent(rng, pick(rng, "causal", "sliding"), pick(rng, None, "right"))
    dt, fill = pick(
        rng,
        ("float32", -1e4),
        ("float32", -1e5),
        ("float16", -1e4),
        ("float32", -np.inf),
        ("float16", -65504.0),
        ("float64", -1e30),
    )
    mask = np.where(it.keep, 0, fill).astype(dt)
    ctx = added(dt)
    return of_intent("H.trap.usual_fills", [], "fills that people use and that hide", it, mask, ctx)


@well(fine, "H.trap.cache_padding_unsaid", "a left-padded cache, not declared")
def t_cache_padding_unsaid(rng):
    it = intent(rng, "causal", "left", past=int(rng.integers(3, 30)), n_tok=pick(rng, 1, 1, 4))
    if not it.real.all():
        return None
    it.inputs = {}
    for key in ("pad_token_id", "padding_side"):
        it.context.pop(key, None)
    return (it,)

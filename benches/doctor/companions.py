"""Bugs in the companions of a correct mask: labels, pooled vectors, probabilities, cu_seqlens, position biases."""

from __future__ import annotations

import numpy as np

from build import EOS, PAD, added, batch, chance, intent, length, of_intent, padding, pick, positions, say, say_plane
from scenes import packed
from faulty import bug, plane_case


def beside(rng, name, classes, why, it, mask, ctx, inputs, **more):
    return of_intent(name, classes, why, it, mask, ctx, inputs=inputs, values_only=True, **more)


def corpus(rng, side_=None):
    """A causal batch with ids, its padding hidden, and the labels a right collator makes (unshifted, as HF reads them)."""
    it = intent(rng, "causal", side_ or pick(rng, "left", "right"), n_tok=length(rng, 8, 64))
    mask, ctx = say(rng, it.keep)
    it.context["eos_token_id"] = EOS
    labels = np.where(it.valid, it.inputs["input_ids"], -100)
    return it, mask, ctx, labels


@bug(
    beside,
    "C32.eos_ignored",
    ["EOS_never_learned"],
    "the EOS label is ignored because pad == eos",
    accept=("eos_never_learned",),
)
def c32_eos_never_learned(rng):
    it, mask, ctx, labels = corpus(rng)
    labels = np.where(labels == EOS, -100, labels)
    return it, mask, ctx, {"labels": labels}


@bug(
    beside,
    "C33.labels_on_padding",
    ["loss_mask_missing"],
    "padding is predicted",
    accept=("loss_mask_missing / empty",),
)
def c33_labels_on_padding(rng):
    it, mask, ctx, _ = corpus(rng)
    return it, mask, ctx, {"labels": it.inputs["input_ids"].copy()}


@bug(
    beside,
    "C33.all_ignored",
    ["loss_mask_missing"],
    "a row without a label",
    accept=("loss_mask_empty", "EOS_never_learned"),
)
def c33_nothing_learned(rng):
    it, mask, ctx, labels = corpus(rng)
    labels[int(rng.integers(len(labels)))] = -100
    if chance(rng, 0.5):
        labels[:] = -100
    return it, mask, ctx, {"labels": labels}


@bug(
    beside,
    "C34.shifted",
    ["label_shift"],
    "labels shifted before a model that shifts",
    also={"model_shifts_labels": True},
    open_question="whether the model shifts is declared in a word of our own",
)
def c34_shifted(rng):
    it, mask, ctx, labels = corpus(rng)
    out = np.full_like(labels, -100)
    if chance(rng, 0.7):
        out[:, :-1] = labels[:, 1:]
    else:
        out[:, 1:] = labels[:, :-1]
    return it, mask, ctx, {"labels": out}


@bug(
    beside,
    "C36.mlm_on_padding",
    ["MLM_masks_padding_or_special"],
    "padding is masked and predicted",
    also={"mlm_probability": 0.15},
    accept=("loss_mask_missing", "mlm_masks_padding_or_special"),
)
def c36_mlm(rng):
    it = intent(rng, "bidirectional", "right", n_tok=length(rng, 12, 64))
    mask, ctx = say(rng, it.keep)
    ids = it.inputs["input_ids"]
    labels = np.where(rng.random(ids.shape) < 0.15, ids, -100)
    labels[:, 0] = -100
    labels = np.where(it.valid, labels, PAD if chance(rng, 0.5) else np.where(rng.random(ids.shape) < 0.5, ids, -100))
    if (labels[~it.valid] == -100).all():
        return None
    return it, mask, ctx, {"labels": labels}


@bug(
    beside,
    "C26.next_document_predicted",
    ["boundary_label"],
    "the last token predicts the next document",
    also={"model_shifts_labels": False},
)
def c26_boundary_label(rng):
    it, seg = packed(rng, "causal_packed")
    ids = rng.integers(5, 96, size=seg.shape).astype(np.int64)
    ids[seg == 0] = PAD
    labels = np.full_like(ids, -100)
    labels[:, :-1] = np.where(seg[:, 1:] > 0, ids[:, 1:], -100)
    if seg.max() < 2:
        return None
    it.inputs["input_ids"] = ids
    return it, *say(rng, it.keep), {"labels": labels}


@bug
def c51_completion(rng):
    b, n_tok = batch(rng), length(rng, 12, 48)
    p = int(rng.integers(2, n_tok // 2))
    ids = rng.integers(5, 96, size=(b, n_tok)).astype(np.int64)
    ends = rng.integers(p + 1, n_tok - 1, size=b)
    for r, e in zip(ids, ends):
        r[e], r[e + 1 :] = EOS, PAD
    v = np.arange(n_tok)[None] <= ends[:, None]
    mask, ctx = say_plane(rng, v, "hf")
    done = np.broadcast_to(np.arange(n_tok) >= p, (b, n_tok)).astype(np.int64)
    return (
        plane_case(
            rng,
            "C51.after_eos",
            ["RL_completion_mask"],
            "tokens after the first EOS are rewarded",
            v,
            mask,
            {**ctx, "eos_token_id": EOS, "prompt_len": p},
            "causal",
            inputs={"completion_mask": done},
            values_only=True,
            accept=("rl_completion_mask",),
        )
        if (ids[:, p:] == EOS).any()
        else None
    )


@bug
def c37_pooled(rng):
    b, n_tok, d = batch(rng, 2), length(rng, 6, 40), 8
    v = padding(rng, b, n_tok, pick(rng, "left", "right"))
    mask, ctx = say_plane(rng, v)
    hidden = rng.normal(size=(b, n_tok, d)).astype(np.float32)
    ctx["pooling"] = "mean"
    return plane_case(
        rng,
        "C37.plain_mean",
        ["pooling_includes_padding"],
        "mean over all slots",
        v,
        mask,
        ctx,
        inputs={"hidden": hidden, "pooled": hidden.mean(1)},
        values_only=True,
    )


@bug
def c37_last(rng):
    b, n_tok, d = batch(rng, 2), length(rng, 6, 40), 8
    v = padding(rng, b, n_tok, "right")
    mask, ctx = say_plane(rng, v)
    hidden = rng.normal(size=(b, n_tok, d)).astype(np.float32)
    ctx["pooling"] = pick(rng, "last", "last_token")
    return plane_case(
        rng,
        "C37.last_slot",
        ["pooling_includes_padding"],
        "h[:, -1] with right padding",
        v,
        mask,
        ctx,
        inputs={"hidden": hidden, "pooled": hidden[:, -1].copy()},
        values_only=True,
    )


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def scored(rng):
    it = intent(rng, pick(rng, "causal", "bidirectional", "sliding"), "left", n_tok=length(rng, 5, 32))
    return (
        it,
        *say(rng, it.keep, pick(rng, "keep_bool", "keep_01", "additive")),
        rng.normal(size=it.keep.shape).astype(np.float64),
    )


def probabilities(rng, name, cls, why, it, mask, ctx, s, p):
    inputs = {pick(rng, "probabilities", "probs", "attn_probs"): p.astype(np.float32)}
    if chance(rng, 0.5):
        inputs["scores"] = s.astype(np.float32)
    return beside(rng, name, [cls], why, it, mask, ctx, inputs)


@bug
def c15_after_softmax(rng):
    it, mask, ctx, s = scored(rng)
    return probabilities(
        rng,
        "C15.after_softmax",
        "mask_after_softmax",
        "p * mask without renormalising",
        it,
        mask,
        ctx,
        s,
        softmax(s) * it.keep,
    )


@bug
def c15_multiplied(rng):
    it, mask, ctx, s = scored(rng)
    c = probabilities(
        rng, "C15.multiplied", "mask_after_softmax", "softmax(scores * mask)", it, mask, ctx, s, softmax(s * it.keep)
    )
    c.accept = ("multiplied_before_softmax", "mask_multiplied_before_softmax")
    return c


@bug
def c12_ignored(rng):
    it, mask, ctx, s = scored(rng)
    return probabilities(
        rng, "C12.ignored", "mask_ignored_by_backend", "the backend drops the mask", it, mask, ctx, s, softmax(s)
    )


@bug
def c25_cu_seqlens(rng):
    it, seg = packed(rng, "causal_packed", False)
    if seg.shape[0] > 1 or seg.max() < 2:
        return None
    it.inputs = {"segment_ids": seg} if chance(rng, 0.5) else {}
    cu = np.concatenate([[0], np.flatnonzero(np.diff(seg[0])) + 1, [seg.shape[1]]])
    how = pick(rng, "no zero", "repeat", "short")
    cu = {"no zero": cu[1:], "repeat": np.append(cu, cu[-1]), "short": cu[:-1]}[how]
    mask, ctx = say(rng, it.keep)
    return beside(
        rng,
        f"C25.cu_seqlens {how}",
        ["document_boundary_off_by_one"],
        f"cu_seqlens: {how}",
        it,
        mask,
        ctx,
        {"cu_seqlens": cu.astype(np.int32)},
        accept=("malformed_cu_seqlens", "cu_seqlens_malformed"),
    )


@bug(
    beside,
    "C41.column_bias",
    ["relative_bias_with_padding"],
    "a bias of the column only, without causality",
    accept=("alibi", "alibi_padding", "relative_bias", "alibi_bias", "ALiBi / relative bias with padding"),
)
def c41_column_bias(rng):
    it = intent(rng, "bidirectional", pick(rng, "left", None), n_tok=length(rng, 5, 32), pads="open")
    h, n_tok = 4, it.keep.shape[-1]
    slopes = 2.0 ** -(np.arange(1, h + 1) * 2)
    bias = slopes[:, None, None] * np.arange(n_tok)[None, None, :]
    mask = np.where(it.keep, bias[None], -np.inf).astype(np.float32)
    ctx = {**added(), "bias": "alibi"}
    return it, mask, ctx, {}


@bug
def c33_prompt(rng):
    it, mask, ctx, labels = corpus(rng, "right")
    n = int(rng.integers(3, 6))
    if (it.valid.sum(1) < n + 2).any():
        return None
    return beside(
        rng,
        "C33.prompt_learned",
        ["loss_mask_missing"],
        "the prompt is learned although its span is declared",
        it,
        mask,
        ctx,
        {"labels": labels},
        also={"prompt_len": n},
        accept=("loss_mask_missing / empty",),
    )


@bug(
    beside,
    "C17.decode_slot",
    ["position_ids"],
    "position = past_len although the row is padded",
    also={"position_encoding": "learned"},
    accept=("padding_side_position_ids", "padding_side"),
)
def c17_decode_slot(rng):
    past, b = int(rng.integers(3, 24)), batch(rng)
    it = intent(rng, "causal", "left", b=b, past=past, n_tok=1)
    if not it.real.all():
        return None
    p = np.full((b, 1), past)
    if (p == positions(it.valid)[:, past:]).all():
        return None
    mask, ctx = say(rng, it.keep)
    it.inputs.pop("position_ids", None)
    return it, mask, ctx, {"position_ids": p.astype(np.int64)}

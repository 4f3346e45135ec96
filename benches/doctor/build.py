"""Parts of cases: tokens and padding, intended masks, and the forms in which an array represents a mask.

Every mask here is *correct*. The bugs are in `faulty.py`, the correct masks that look faulty in `healthy.py`.

Shapes: B batch, H heads, Q queries, K keys. A keep mask is bool [B, 1, Q, K], True where query i may read key j.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

PAD, BOS, EOS = 0, 1, 2
HIDDEN_BELOW = -5e3  # an additive value from here down hides its key whatever the scores are


@dataclass
class Case:
    """One question for the doctor, with its answer."""

    name: str
    classes: list[str]  # empty: a correct mask
    why: str
    mask: np.ndarray
    context: dict
    intended: np.ndarray
    care: np.ndarray
    effective: np.ndarray
    inputs: dict[str, np.ndarray] = field(default_factory=dict)
    accept: tuple[str, ...] = ()  # other names that a right answer may give first
    blind: bool = True  # can be recognised without the declared kind
    values_only: bool = False  # faulty in its values or companions: no wrong cell needed
    open_question: str = ""  # why a fair reader could disagree; such a case is not scored


@dataclass
class Intent:
    """The intended mask, and the caller's declarations."""

    keep: np.ndarray  # [B, 1, Q, K]
    real: np.ndarray  # [B, Q] rows of non-padding tokens
    kind: str
    valid: np.ndarray | None = None  # [B, K] real keys
    side: str | None = None
    past: int = 0
    context: dict = field(default_factory=dict)
    inputs: dict[str, np.ndarray] = field(default_factory=dict)

    @property
    def care(self) -> np.ndarray:
        return np.broadcast_to(self.real[:, None, :, None], self.keep.shape).copy()


def into(pool: list):
    """Returns a decorator that adds a function of a random generator to `pool`.

    `@into(pool)` alone adds the function, which returns a case or None. `@into(pool)(make, *label, **more)` adds
    `make(rng, *label, *drawn, **more)`, where `drawn` is the tuple that the function returns, or None.
    """

    def decorate(make, *label, **more):
        def labelled(draw):
            def case(rng):
                drawn = draw(rng)
                return None if drawn is None else make(rng, *label, *drawn, **more)

            pool.append(case)
            return draw

        if label:
            return labelled
        pool.append(make)
        return make

    return decorate


def of_intent(name, classes, why, it: Intent, mask, ctx, effective=None, inputs=None, also=None, **more) -> Case:
    """Returns the case of `mask` for the intent `it`; `effective` are the cells that it allows, by default the intended ones."""
    return Case(
        name,
        classes,
        why,
        mask,
        {**ctx, "kind": it.kind, **it.context, **(also or {})},
        it.keep,
        it.care,
        it.keep.copy() if effective is None else effective,
        {**it.inputs, **(inputs or {})},
        **more,
    )


def pick(rng, *options):
    return options[int(rng.integers(len(options)))]


def chance(rng, p: float) -> bool:
    return bool(rng.random() < p)


def side(rng) -> str | None:
    return pick(rng, None, "left", "right")


def length(rng, low: int = 4, high: int = 96) -> int:
    """Mostly short, as real test cases are, with a tail of long ones."""
    if chance(rng, 0.02) and high >= 96:
        return 512
    return int(np.clip(round(np.exp(rng.uniform(np.log(low), np.log(high)))), low, high))


def batch(rng, low: int = 1) -> int:
    return int(rng.integers(low, 5))


def padding(rng, b: int, n_tok: int, side: str) -> np.ndarray:
    """[B, L] real tokens: at least one short row, and from two rows on one full row as often as not."""
    low = min(n_tok - 1, max(2, n_tok // 3))
    lens = rng.integers(low, n_tok + 1, size=b)
    lens[int(rng.integers(b))] = int(rng.integers(low, n_tok))
    if b > 1 and chance(rng, 0.6) and (lens < n_tok).sum() > 1:
        lens[np.flatnonzero(lens < n_tok)[0]] = n_tok
    return plane(lens, n_tok, side)


def plane(lens, n_tok: int, side: str) -> np.ndarray:
    at = np.arange(n_tok)[None, :]
    lens = np.asarray(lens)[:, None]
    return at < lens if side == "right" else at >= n_tok - lens


def tokens(rng, valid: np.ndarray, pad: int = PAD) -> np.ndarray:
    ids = rng.integers(5, 96, size=valid.shape)
    for row, v in zip(ids, valid):
        at = np.flatnonzero(v)
        if len(at):
            row[at[0]], row[at[-1]] = BOS, EOS
        row[~v] = pad
    return ids.astype(np.int64)


def positions(valid: np.ndarray, fill: int = 0) -> np.ndarray:
    p = np.cumsum(valid, axis=1) - 1
    return np.where(valid, p, fill).astype(np.int64)


def tri(q: int, k: int, past: int, shift: int = 0) -> np.ndarray:
    return np.arange(k)[None, :] <= np.arange(q)[:, None] + past + shift


def band(q: int, k: int, past: int, w: int) -> np.ndarray:
    """The causal window of w keys, the query's own included."""
    i, j = np.arange(q)[:, None] + past, np.arange(k)[None, :]
    return (j <= i) & (j > i - w)


def settle(rng, keep: np.ndarray, real: np.ndarray, past: int, how: str | None = None) -> np.ndarray:
    """Returns `keep` with the rows of padding queries, whose outputs are unused, as libraries leave them: their own key, or every key."""
    how = how or pick(rng, "self", "self", "open")
    out = keep.copy()
    for b, i in zip(*np.where(~real)):
        out[b, :, i, :] = True if how == "open" else False
        if how == "self" and i + past < keep.shape[-1]:
            out[b, :, i, i + past] = True
    return out


def plain_causal(it: Intent) -> np.ndarray:
    return np.broadcast_to(tri(*it.keep.shape[2:], 0), it.keep.shape).copy()


def covered(rng, it: Intent, cells: np.ndarray, past: int = 0) -> np.ndarray:
    """Returns `cells` for every batch row, with the padding of `it` hidden."""
    wide = np.broadcast_to(cells, it.keep.shape).copy()
    return wide if it.valid is None else settle(rng, wide & it.valid[:, None, None, :], it.real, past)


def family(rng, q: int, k: int, past: int, kind: str) -> tuple[np.ndarray, dict]:
    """The unpadded [Q, K] mask of a kind and the parameters one declares with it."""
    if kind == "causal":
        return tri(q, k, past), {}
    if kind == "bidirectional":
        return np.ones((q, k), bool), {}
    if kind == "sliding":
        w = int(rng.integers(1 if chance(rng, 0.1) else 2, max(3, min(k - 1, 24))))
        ctx = {"window": w}
        if chance(rng, 0.75):
            ctx["window_means"] = "keys visible, self included"
        return band(q, k, past, w), ctx
    if kind == "prefix_lm":
        p = int(rng.integers(2, max(3, k - 1)))
        return tri(q, k, past) | (np.arange(k)[None, :] < p), {"prefix_len": p}
    raise ValueError(kind)


def intent(
    rng,
    kind: str,
    side: str | None = None,
    b: int | None = None,
    n_tok: int | None = None,
    past: int = 0,
    pads: str | None = None,
    pad: int = PAD,
) -> Intent:
    """An intended mask of a common kind, with or without padding, whole or behind a cache of `past` keys."""
    b = b or batch(rng, 1 if side is None or chance(rng, 0.3) else 2)
    k = (n_tok or length(rng, 5)) + past
    q = k - past
    m, ctx = family(rng, q, k, past, kind)
    keep = np.broadcast_to(m, (b, 1, q, k)).copy()
    real, inputs, valid = np.ones((b, q), bool), {}, None
    if side:
        valid = padding(rng, b, k, side)
        keep &= valid[:, None, None, :]
        real = valid[:, past:]
        keep = settle(rng, keep, real, past, pads)
        inputs["input_ids"] = tokens(rng, valid, pad)
        ctx["pad_token_id"] = pad
        if chance(rng, 0.5):
            ctx["padding_side"] = side
    elif chance(rng, 0.2) and past == 0:
        inputs["input_ids"] = tokens(rng, np.ones((b, k), bool), pad)
        ctx["pad_token_id"] = pad
    if past or chance(rng, 0.1):
        ctx |= {"past_len": past, "q_len": q, "kv_len": k}
    if past and "input_ids" in inputs and chance(rng, 0.3):
        inputs["position_ids"] = positions(valid)[:, past:]
    return Intent(keep, real, kind, valid, side, past, ctx, inputs)


def cached(valid: np.ndarray, past: int, **context) -> Intent:
    """An intended causal mask of the queries behind a cache of `past` keys, where `valid` keys are real."""
    b, k = valid.shape
    q = k - past if "q_len" not in context else context["q_len"]
    keep = np.broadcast_to(valid[:, None, None, :] & tri(q, k, past), (b, 1, q, k)).copy()
    context = {"past_len": past, "q_len": q, "kv_len": k, **context}
    return Intent(keep, np.ones((b, q), bool), "causal", past=past, context=context)


# ---- the forms of a mask in an array -----------------------------------------------------------------------------

PLANE = {"api": "transformers.attention_mask", "convention": "keep_01", "role": "key_padding"}


def added(dtype: str = "float32") -> dict:
    """The declaration of an array that is added to scores of a number type."""
    return {"api": "additive", "convention": "additive", "role": "attn", "compute_dtype": dtype}


KEEP_APIS = ("sdpa", "sdpa", "torch.nn.functional.scaled_dot_product_attention", "jax.nn.dot_product_attention")
FILLS = {"float32": (-np.inf, float(np.finfo(np.float32).min), -1e9), "float16": (-np.inf, -65504.0)}


def say(rng, keep: np.ndarray, form: str | None = None) -> tuple[np.ndarray, dict]:
    """Returns an array that represents `keep` correctly, and its declaration."""
    forms = ["keep_bool", "keep_bool", "additive", "additive", "ignore_bool", "keep_01"]
    form = form or pick(rng, *forms)
    one = (keep == keep[:1]).all()
    if form == "keep_bool":
        mask = keep[:1] if one and chance(rng, 0.3) else keep
        if one and chance(rng, 0.2):
            mask = keep[0, 0]
        return mask.copy(), {"api": pick(rng, *KEEP_APIS), "convention": "keep_bool", "role": "attn"}
    if form == "keep_01":
        dt = pick(rng, np.int64, np.int32, np.uint8, np.int64)
        return keep.astype(dt), {"api": "transformers.attention_mask", "convention": "keep_01", "role": "attn"}
    if form == "ignore_bool":
        mask = ~keep
        mask = mask[0, 0] if one else mask.repeat(2, axis=1).reshape(-1, *keep.shape[2:])
        ctx = {"api": "torch.nn.MultiheadAttention.attn_mask", "convention": "ignore_bool", "role": "attn"}
        if not one:
            ctx["heads"] = 2
        return mask.copy(), ctx
    dt = pick(rng, "float32", "float32", "float16")
    empty = ~keep.any(-1).all()
    fill = pick(rng, *(FILLS[dt][1:] if empty else FILLS[dt]))
    mask = np.where(keep, 0.0, fill).astype(dt)
    if one and chance(rng, 0.3):
        mask = mask[0, 0] if chance(rng, 0.5) else mask[:1]
    return mask, {"api": pick(rng, "additive", "sdpa"), "convention": "additive", "role": "attn", "compute_dtype": dt}


def say_plane(rng, valid: np.ndarray, form: str | None = None) -> tuple[np.ndarray, dict]:
    """A [B, K] padding plane as key padding of an encoder API, or as a [B, 1, 1, K] mask."""
    form = form or pick(rng, "mha", "hf", "bool4", "add4", "keras")
    if form == "mha":
        return ~valid, {
            "api": "torch.nn.MultiheadAttention.key_padding_mask",
            "convention": "ignore_bool",
            "role": "key_padding",
        }
    if form == "hf":
        return valid.astype(pick(rng, np.int64, np.int64, np.int32)), {
            "api": "transformers.attention_mask",
            "convention": "keep_01",
            "role": "key_padding",
        }
    if form == "keras":
        return valid.copy(), {
            "api": "keras.layers.MultiHeadAttention",
            "convention": "keep_bool",
            "role": "key_padding",
        }
    if form == "bool4":
        return valid[:, None, None, :].copy(), {"api": "sdpa", "convention": "keep_bool", "role": "attn"}
    return np.where(valid, 0.0, pick(rng, -np.inf, -1e9, float(np.finfo(np.float32).min)))[:, None, None, :].astype(
        np.float32
    ), {"api": "sdpa", "convention": "additive", "role": "attn", "compute_dtype": "float32"}


def reads(mask: np.ndarray, ctx: dict, shape: tuple[int, int, int], causal: bool = False) -> np.ndarray:
    """Returns the cells that a library with the declared convention allows: bool [B, 1 or H, Q, K]."""
    b, q, k = shape
    conv = ctx["convention"]
    if conv == "additive":
        keep = ~(mask.astype(np.float64) <= HIDDEN_BELOW)
    elif conv == "ignore_bool":
        keep = mask == 0
    else:
        keep = mask != 0
    if ctx["role"] == "key_padding":
        keep = keep[:, None, None, :]
    elif keep.ndim == 3:
        keep = keep.reshape(b, -1, *keep.shape[1:])
    keep = np.broadcast_to(
        keep, (max(b, keep.shape[0] if keep.ndim == 4 else 1), keep.shape[1] if keep.ndim == 4 else 1, q, k)
    )
    return keep & tri(q, k, k - q) if causal else keep.copy()

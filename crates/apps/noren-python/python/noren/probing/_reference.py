"""The reference attention: a direct computation of attention and its gradients in float64. The outputs of a function under test
are compared with it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Computation:
    """The options of one attention computation. Arrays for which no other shape is stated broadcast to `[batch, heads, q_len,
    kv_len]`."""

    scores: Callable[[Floats], Floats]
    """Computes the scores (without the mask) from the products of queries and keys. The products are not scaled yet."""
    keep: Bools | None = None
    """True where a query may read a key; None if every query may read every key."""
    sinks: Floats | None = None
    """`[heads]`: the sink of each head, a logit that is added to the denominator of the softmax and has no value. None: no
    sinks."""
    kv_heads: Sequence[int] | None = None
    """The index of the key-value head that each query head reads. None: consecutive query heads read the same key-value head,
    in blocks of equal size."""
    factor: Floats | None = None
    """A factor for the weights after the softmax; None: no factor."""


class Attended(NamedTuple):
    """The results of one attention computation."""

    out: Floats
    """The output `[batch, heads, q_len, head_dim]`; 0 for a query that may read no key."""
    lse: Floats
    """The log-sum-exp `[batch, heads, q_len]`: the natural logarithm of the sum of the exponentials of the scores; -inf for a
    query that may read no key."""
    weights: Floats
    """The weights `[batch, heads, q_len, kv_len]` of the keys for each query."""
    keep: Bools
    """The mask `[batch, heads, q_len, kv_len]`: true where the query may read the key."""


def serving(heads: int, kv_heads: int, given: Sequence[int] | None = None) -> list[int]:
    """Returns the index of the key-value head that each query head reads: `given` if not None, otherwise equal blocks of
    consecutive query heads."""
    return list(given) if given is not None else [head * kv_heads // heads for head in range(heads)]


def attend(q: Floats, k: Floats, v: Floats, parts: Computation) -> Attended:
    """Computes attention in float64; `parts` has the options of the computation.

    `q` is `[batch, heads, q_len, head_dim]`; `k` and `v` are `[batch, kv_heads, kv_len, head_dim]`.
    """
    which = serving(q.shape[1], k.shape[1], parts.kv_heads)
    scores = parts.scores(np.einsum("bhqd,bhkd->bhqk", q, k[:, which]))
    keep = np.ones(scores.shape, bool) if parts.keep is None else np.broadcast_to(parts.keep, scores.shape)
    scores = np.where(keep, scores, -np.inf)
    top = scores.max(-1, keepdims=True)
    if parts.sinks is not None:
        sink = np.broadcast_to(parts.sinks.reshape(1, -1, 1, 1), top.shape)
        top = np.maximum(top, sink)
    top = np.where(np.isfinite(top), top, 0.0)
    powers = np.exp(scores - top)
    total = powers.sum(-1, keepdims=True)
    if parts.sinks is not None:
        total = total + np.exp(sink - top)
    weights = powers / np.where(total > 0, total, 1.0)
    if parts.factor is not None:
        weights = weights * parts.factor
    with np.errstate(divide="ignore"):
        lse = (np.log(total) + top)[..., 0]
    return Attended(np.einsum("bhqk,bhkd->bhqd", weights, v[:, which]), lse, weights, keep)


def gradients(q: Floats, k: Floats, v: Floats, weights: Floats, scale: float, cotangent: Floats) -> tuple[Floats, Floats, Floats]:
    """Returns the gradients of queries, keys and values, in this order, for scores that are products of queries and keys times
    `scale`.

    `weights` is `[batch, heads, q_len, kv_len]`. `cotangent`, the gradient of the output, has the shape of the output.
    """
    which = serving(q.shape[1], k.shape[1])
    of_weights = np.einsum("bhqd,bhkd->bhqk", cotangent, v[:, which])
    of_scores = weights * (of_weights - (of_weights * weights).sum(-1, keepdims=True)) * scale
    dq = np.einsum("bhqk,bhkd->bhqd", of_scores, k[:, which])
    by_head = (np.einsum("bhqk,bhqd->bhkd", of_scores, q), np.einsum("bhqk,bhqd->bhkd", weights, cotangent))
    dk, dv = (np.zeros(k.shape), np.zeros(v.shape))
    for head, kv_head in enumerate(which):
        dk[:, kv_head] += by_head[0][:, head]
        dv[:, kv_head] += by_head[1][:, head]
    return dq, dk, dv


TOLERANCES = {"float64": 1e-9, "float32": 2e-4, "float16": 1e-2, "bfloat16": 6e-2}
"""The largest difference from the reference attention that counts as rounding, for each number type. If an output has absolute
values above 1, the tolerance is multiplied by the largest of them."""


def rounded(x: Floats, dtype: str) -> Floats:
    """Returns `x` rounded to numbers of the type `dtype`; the rounded numbers are stored as float64."""
    if dtype == "bfloat16":
        bits = x.astype(np.float32).view(np.uint32).astype(np.uint64)
        bits = (bits + 0x7FFF + ((bits >> np.uint64(16)) & np.uint64(1))) & np.uint64(0xFFFF0000)
        result: Any = bits.astype(np.uint32).view(np.float32)
    else:
        with np.errstate(over="ignore"):
            result = x.astype(dtype)
    return np.asarray(result, np.float64)

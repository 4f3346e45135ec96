"""The definition of attention in float64, with its gradients, for comparisons with a function under test."""

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
    """The parts of one attention computation. All arrays broadcast to `[batch, heads, q_len, kv_len]`."""

    scores: Callable[[Floats], Floats]
    """Returns the scores before the mask, from the products of queries and keys without a scale."""
    keep: Bools | None = None
    """True where a query may read a key; None: everywhere."""
    sinks: Floats | None = None
    """`[heads]`: a logit for each head that is added to the denominator of the softmax only."""
    kv_heads: Sequence[int] | None = None
    """The key-value head of each query head; None: each key-value head serves a block of consecutive query heads."""
    factor: Floats | None = None
    """Multiplies the weights after the softmax; None: no factor."""


class Attended(NamedTuple):
    """The results of one attention computation."""

    out: Floats
    """`[batch, heads, q_len, head_dim]`; 0 for a query that may read no key."""
    lse: Floats
    """`[batch, heads, q_len]`: the natural logarithm of the sum of the exponentials of the scores; -inf for a query that may read
    no key."""
    weights: Floats
    """`[batch, heads, q_len, kv_len]`: the weight of each key."""
    keep: Bools
    """`[batch, heads, q_len, kv_len]`: true where the query may read the key."""


def serving(heads: int, kv_heads: int, given: Sequence[int] | None = None) -> list[int]:
    """Returns the key-value head of each query head: `given`, or blocks of consecutive query heads."""
    return list(given) if given is not None else [head * kv_heads // heads for head in range(heads)]


def attend(q: Floats, k: Floats, v: Floats, parts: Computation) -> Attended:
    """Returns attention in float64.

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
    """Returns the gradients of queries, keys and values, in this order, for scores that are products times `scale`.

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
"""The largest difference of an output from the definition that is rounding, for outputs with an absolute value of at most 1."""


def rounded(x: Floats, dtype: str) -> Floats:
    """Returns `x` rounded to the numbers of the type `dtype`, in float64."""
    if dtype == "bfloat16":
        bits = x.astype(np.float32).view(np.uint32).astype(np.uint64)
        bits = (bits + 0x7FFF + ((bits >> np.uint64(16)) & np.uint64(1))) & np.uint64(0xFFFF0000)
        result: Any = bits.astype(np.uint32).view(np.float32)
    else:
        with np.errstate(over="ignore"):
            result = x.astype(dtype)
    return np.asarray(result, np.float64)

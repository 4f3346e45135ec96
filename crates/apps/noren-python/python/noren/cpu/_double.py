"""Attention in float64, by the definition: the weight of every cell is computed, with operations of NumPy or PyTorch.

The memory is that of several arrays `[batch, heads, q_len, kv_len]`. PyTorch computes the gradients, also second derivatives. The content
of hidden keys reaches neither results nor gradients.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import _noren
from .._noren import Error, Modifiers, Plan

LOW = -6.9e37
"""A score below this number counts as -inf."""
LEAST = 2.0**-100
"""The smallest soft weight that does not hide its cell."""


def attention(
    q: Any, k: Any, v: Any, plan: Plan, modifiers: Modifiers, *, scale: float | None = None, softcap: float | None = None,
    bias: Sequence[Any] = (), relative: Any = None, alibi: Sequence[float] | None = None, soft: Any = None, sinks: Any = None,
    dropout: float = 0.0, seed: int = 0,
) -> tuple[Any, Any, Any]:  # fmt: skip
    """Returns (output, log-sum-exps, weights after dropout) in float64, as arrays of NumPy or tensors of PyTorch like `q`.

    The arguments are those of `noren.attention`. `modifiers` holds the same score modifiers: a call in float32 with them checks all
    sizes and numbers, and raises the errors of `noren.attention`.
    """
    kinds = {str(x.dtype).removeprefix("torch.") for x in (q, k, v)}
    if len(kinds) > 1:
        raise Error(f"q, k and v hold {', '.join(sorted(kinds))}: give arrays of one number type")
    xp: Any = np if isinstance(q, np.ndarray) else sys.modules["torch"]
    single: list[Any] = [np.asarray(_still(x), np.float32) for x in (q, k, v)]
    _noren.forward(single[0], single[1], single[2], plan, modifiers, np.empty((*q.shape[:-1], v.shape[-1]), np.float32))

    def array(values: Any) -> Any:
        if xp is np:
            return np.asarray(values, np.float64)
        return xp.as_tensor(values, dtype=xp.float64, device=q.device)

    shape = plan.shape
    cells, one = plan.bound.dense(), plan.shape.heads
    cells = cells if xp is np else xp.from_numpy(cells).to(q.device)
    q4, k4, v4 = (x.reshape((1,) * (4 - x.ndim) + tuple(x.shape)) for x in (q, k, v))
    k4, v4 = (x[:, [head * x.shape[1] // one for head in range(one)]] for x in (k4, v4))
    scores = products(xp, q4, k4) * (q.shape[-1] ** -0.5 if scale is None else scale)
    if softcap is not None:
        scores = softcap * xp.tanh(scores / softcap)
    for added in bias:
        scores = scores + array(added)
    if relative is not None or alibi is not None:
        at, of = (np.frombuffer(part, np.int64).reshape(shape.batch, -1) for part in _noren.positions(plan))
        distance = of[:, None, :] - at[:, :, None]
        if relative is not None:
            table = array(relative).reshape(-1, relative.shape[-1])
            reach = table.shape[1] // 2
            scores = scores + table[:, distance.clip(-reach, reach) + reach].swapaxes(0, 1)
        if alibi is not None:
            scores = scores - array(alibi)[None, :, None, None] * array(np.abs(distance))[:, None]
    weight = None
    if soft is not None:
        weight = xp.broadcast_to(array(soft), tuple(scores.shape))
        cells = cells & (weight >= LEAST)
    scores = xp.where(cells, xp.where(scores < LOW, -xp.inf, scores), -xp.inf)
    empty = (scores == -xp.inf).all(-1)
    top = xp.amax(_still(scores), -1)
    sink = None if sinks is None else array(sinks)[None, :, None]
    if sink is not None:
        top = xp.maximum(top, _still(sink))
    top = xp.where(empty, 0.0, top)
    weights = xp.exp(scores - top[..., None])
    if weight is not None:
        weights = xp.where(cells, weight, 0.0) * weights
    total = weights.sum(-1) if sink is None else weights.sum(-1) + xp.exp(sink - top)
    total = xp.where(empty, 1.0, total)
    lse = xp.where(empty, -xp.inf, xp.log(total) + top)
    weights = weights / total[..., None]
    if dropout:
        # Equal scores give every kept cell a weight above 0.
        (zq, zk, zv), kept = (np.zeros_like(x) for x in single), np.empty(tuple(cells.shape), np.float32)
        _noren.weights(zq, zk, zv, plan, Modifiers(dropout=dropout, seed=seed), kept)
        weights = weights * array((kept > 0) / (1.0 - dropout))
    out = _summed(xp, weights, v4, cells & ~empty[..., None])
    return out.reshape(*q.shape[:-1], v.shape[-1]), lse.reshape(q.shape[:-1]), weights


def _still(x: Any) -> Any:
    return x.detach() if hasattr(x, "detach") else x


def products(xp: Any, q: Any, k: Any) -> Any:
    """Returns `q @ k^T`. Rows with NaN or infinity get no gradients: the zero gradient of a hidden cell times NaN would be NaN."""
    odd_q, odd_k = (~xp.isfinite(x).all(-1)[..., None] for x in (q, k))
    found = xp.where(odd_q, 0.0, q) @ xp.where(odd_k, 0.0, k).swapaxes(-1, -2)
    return xp.where(odd_q | odd_k.swapaxes(-1, -2), _still(q) @ _still(k).swapaxes(-1, -2), found)


def _summed(xp: Any, weights: Any, v: Any, cells: Any) -> Any:
    """Returns `weights @ v`. Only the rows of queries that may read a key get its value if the value is NaN or infinite."""
    odd = ~xp.isfinite(v).all(-1)
    out = weights @ xp.where(odd[..., None], 0.0, v)
    for key in (i for i in range(v.shape[2]) if odd[:, :, i].any()):
        reads = (cells[..., key] & odd[:, :, key, None])[..., None]
        out = out + xp.where(reads, weights[..., key, None], 0.0) * xp.where(reads, v[:, :, key, None], 0.0)
    return out

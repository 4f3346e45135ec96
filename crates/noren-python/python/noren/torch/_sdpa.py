"""`torch.nn.functional.scaled_dot_product_attention` on noren's kernels, with its exact meaning."""

from __future__ import annotations

import weakref
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from .. import _noren
from .._noren import Array, Error, Facts, Plan, Shape
from ._function import Call, Extras, lower, new_seed, number_of, operator, run

_FLOATS = (torch.float32, torch.bfloat16, torch.float16)
_NONE = Extras([])


def sdpa(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """A drop-in for `torch.nn.functional.scaled_dot_product_attention`, argument for argument.

    `is_causal` is aligned at the top left, a boolean `attn_mask` is true where a query may attend, a float one is added, rows
    without any key give 0, and dropout is scaled by 1 / (1 - p). What a boolean mask (or a float one of 0 and -inf) forbids
    is skipped; the plan of a mask is kept while the mask lives unchanged.
    """
    if attn_mask is not None and is_causal:
        raise RuntimeError("sdpa: attn_mask and is_causal exclude each other: put the causal part into attn_mask")
    _check(query, key, value, enable_gqa)
    query, key, value = lower(query, key, value)
    if 0 in query.shape or 0 in key.shape or 0 in value.shape:
        return scaled_dot_product_attention(
            query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
        )
    lead, rows = query.shape[:-3], query.shape[:-1]
    if query.dim() != 4:
        query, key, value = (_four(x, lead) for x in (query, key, value))
        if attn_mask is not None and attn_mask.dim() > 3:
            attn_mask = attn_mask.expand(*lead, *attn_mask.shape[-3:]).reshape(-1, *attn_mask.shape[-3:])
    elif key.shape[0] != query.shape[0] or value.shape[0] != query.shape[0]:
        batch = max(query.shape[0], key.shape[0], value.shape[0])
        query, key, value = (x.expand(batch, *x.shape[1:]) for x in (query, key, value))
    seed = new_seed() if dropout_p > 0.0 else None
    if torch.compiler.is_compiling():
        keep, rest = (attn_mask, []) if attn_mask is not None and attn_mask.dtype == torch.bool else (None, [attn_mask])
        source = number_of(None, is_causal, None, scale, None, None, dropout_p)
        bias = [t for t in rest if t is not None]
        out, _ = operator(query, key, value, bias, None, None, None, seed, keep, source)
    else:
        sizes = sizes_of(query, key)
        plan, extras = (_simple(is_causal, *sizes), _NONE) if attn_mask is None else _masked(attn_mask, sizes)
        if seed is not None:
            extras = Extras(extras.bias, seed=seed)
        out, _ = run(Call(plan, scale, None, None, dropout_p), query, key, value, extras)
    result: Tensor = out if len(rows) == 3 else out.reshape(*rows, out.shape[-1])
    return result


def sizes_of(q: Tensor, k: Tensor) -> tuple[int, int, int, int, int]:
    return q.shape[0], q.shape[1], k.shape[1], q.shape[2], k.shape[2]


def plan_for(q: Tensor, k: Tensor, keep: Tensor | None, is_causal: bool) -> Plan:
    """The plan of a call without a float mask."""
    sizes = sizes_of(q, k)
    plan = _simple(is_causal, *sizes) if keep is None else _masked(keep, sizes)[0]
    assert plan is not None
    return plan


def _four(x: Tensor, lead: torch.Size) -> Tensor:
    """`[batch, heads, length, width]` of any number of leading dimensions."""
    if x.dim() == 2:
        return x[None, None]
    return x[None] if x.dim() == 3 else x.expand(*lead, *x.shape[-3:]).reshape(-1, *x.shape[-3:])


def _check(query: Tensor, key: Tensor, value: Tensor, enable_gqa: bool) -> None:
    for name, x in (("query", query), ("key", key), ("value", value)):
        if x.device.type != "cpu":
            raise Error(f"{name} is on {x.device}: noren computes on the CPU, so move it there (.cpu()) or call PyTorch's own")
        if x.dtype not in _FLOATS:
            raise TypeError(f"{name} holds {x.dtype}: noren computes float32, bfloat16 and float16, so convert it first")
        if x.dim() < 2 or x.dim() != query.dim():
            raise Error(f"{name} has shape {tuple(x.shape)}, the query {tuple(query.shape)}: give as many dimensions, 2 or more")
    if query.dtype != key.dtype or query.dtype != value.dtype:
        if not torch.is_autocast_enabled("cpu"):
            raise RuntimeError(f"query, key and value hold {query.dtype}, {key.dtype}, {value.dtype}: give one type")
    if query.shape[-1] != key.shape[-1] or key.shape[-2] != value.shape[-2]:
        raise RuntimeError(
            f"query {tuple(query.shape)}, key {tuple(key.shape)} and value {tuple(value.shape)} do not fit: widths of query and "
            "key are equal, and lengths of key and value"
        )
    if query.dim() > 2 and query.shape[-3] != key.shape[-3] and not enable_gqa:
        raise RuntimeError(
            f"the query has {query.shape[-3]} heads and the key {key.shape[-3]}: give enable_gqa=True where heads are shared"
        )


@lru_cache(maxsize=256)
def _simple(is_causal: bool, batch: int, heads: int, kv_heads: int, q_len: int, kv_len: int) -> Plan:
    shape = Shape.cross(q_len, kv_len, batch=batch, heads=heads, kv_heads=kv_heads)
    return (_noren.causal() if is_causal else _noren.full()).plan(shape)


_KNOWN: dict[int, tuple[weakref.ref[Tensor], int, dict[Any, Any]]] = {}
"""What is known of masks, by identity: a reference, the version, plans by sizes."""


def _masked(mask: Tensor, sizes: tuple[int, int, int, int, int]) -> tuple[Plan, Extras]:
    """The plan of a mask, or the bias that it is."""
    if mask.requires_grad:
        return _simple(False, *sizes), Extras([mask])
    known = _KNOWN.get(id(mask))
    if known is None or known[0]() is not mask or known[1] != mask._version:
        forget = lambda _, key=id(mask): _KNOWN.pop(key, None)  # noqa: E731
        known = _KNOWN[id(mask)] = (weakref.ref(mask, forget), mask._version, {})
    found = known[2].get(sizes)
    if found is None:
        found = known[2][sizes] = _plan_dense(mask.detach(), sizes)
    plan, extras = found
    return (_simple(False, *sizes), Extras([mask])) if plan is None else (plan, extras)


def _plan_dense(mask: Tensor, sizes: tuple[int, int, int, int, int]) -> tuple[Plan | None, Extras]:
    batch, heads, kv_heads, q_len, kv_len = sizes
    full = mask[(None,) * (4 - mask.dim())]
    try:
        full = full.expand(*full.shape[:2], q_len, kv_len)
    except RuntimeError as error:
        raise RuntimeError(f"attn_mask has shape {tuple(mask.shape)}, which does not broadcast to [{batch}, {heads}, {q_len}, {kv_len}]") from error
    if mask.dtype == torch.bool:
        array = Array.keep(full)
    else:
        top = full.float().amax(-1)
        if ((top < -6.9e37) & torch.isfinite(top)).any():
            raise Error(
                "attn_mask has rows of the type's lowest number and nothing else: PyTorch gives the mean of all values there, "
                "noren 0; use -inf (or a boolean mask) for rows that may read nothing"
            )
        if ((full != 0) & (full != -torch.inf)).any():
            return None, _NONE
        array = Array.keep(full == 0)
    shape = Shape.cross(q_len, kv_len, batch=batch, heads=heads, kv_heads=kv_heads)
    return _noren.dense("attn_mask").plan(shape, Facts(arrays={"attn_mask": array})), _NONE

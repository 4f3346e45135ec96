"""Attention on a device: the arrays of a plan, and calls of the kernels."""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import triton
from torch import Tensor

from .. import _noren
from .._noren import Error, Plan
from . import _kernels

LN2 = 0.6931471805599453
MOST_PAIRS = 65535
"""The maximum number of programs along the second dimension of a grid."""


@dataclass(frozen=True)
class Side:
    """The tiles along one side of the mask, on a device; indices count through all patterns."""

    first: Tensor
    tiles: Tensor
    indptr: Tensor
    runs: Tensor
    most: int
    """The number of tiles of the pattern with the most tiles."""


@dataclass(frozen=True)
class DevicePlan:
    """The arrays of a plan on a device."""

    block: tuple[int, int]
    pattern_of: Tensor
    rows: Side
    keys: Side
    words: Tensor


_PLANS: weakref.WeakKeyDictionary[Plan, dict[Any, DevicePlan]] = weakref.WeakKeyDictionary()


def _on(device: torch.device, array: Any) -> Tensor:
    """Returns a copy of the numbers on a device, with at least one element: a kernel gets no pointer to nothing."""
    return torch.from_numpy(array.copy() if len(array) else np.zeros(1, np.int32)).to(device)


def device_plan(plan: Plan, block: tuple[int, int], device: torch.device) -> DevicePlan:
    """Returns the arrays of `plan` on `device`. They are made and copied once for each plan, block and device."""
    known = _PLANS.setdefault(plan, {})
    key = (block, device)
    if key not in known:
        first, first_key, *arrays = (np.frombuffer(part, np.int32) for part in _noren.device_plan(plan, block))
        put = [_on(device, array) for array in arrays]
        known[key] = DevicePlan(
            block,
            _on(device, np.array(_noren.patterns(plan)[1], np.int32)),
            Side(_on(device, first), put[0], put[1], put[2], int(np.diff(first).max())),
            Side(_on(device, first_key), put[3], put[4], put[5], int(np.diff(first_key).max())),
            put[6],
        )
    return known[key]


@dataclass(frozen=True)
class Call:
    plan: Plan
    scale: float
    softcap: float | None


def _width(dim: int) -> int:
    return max(16, 1 << (dim - 1).bit_length())


def _sizes(call: Call, q: Tensor, k: Tensor, v: Tensor) -> tuple[tuple[float, ...], dict[str, Any]]:
    batch, heads, q_len, dim = q.shape
    numbers = (heads, heads // k.shape[1], q_len, k.shape[2], call.scale, call.softcap or 1.0)
    v_dim = v.shape[3]
    return numbers, {"DIM": dim, "D": _width(dim), "V_DIM": v_dim, "DV": _width(v_dim), "SOFTCAP": call.softcap is not None}


def _side(side: Side, plan: DevicePlan) -> tuple[Tensor, ...]:
    return (plan.pattern_of, side.first, side.tiles, side.indptr, side.runs, plan.words)


def _block(q: Tensor) -> tuple[int, int]:
    return (64, 64) if q.shape[3] <= 128 else (64, 32)


def forward(call: Call, q: Tensor, k: Tensor, v: Tensor, sinks: Tensor | None) -> tuple[Tensor, Tensor]:
    """Returns the output and the log-sum-exps in base 2."""
    batch, heads, q_len, _ = q.shape
    out = torch.empty((batch, heads, q_len, v.shape[3]), dtype=q.dtype, device=q.device)
    lse = torch.empty((batch, heads, q_len), dtype=torch.float32, device=q.device)
    block = _block(q)
    plan = device_plan(call.plan, block, q.device)
    numbers, sizes = _sizes(call, q, k, v)
    strides = (*q.stride(), *k.stride(), *v.stride(), *out.stride())
    _kernels.forward[plan.rows.most, batch * heads](
        q, k, v, out, lse, lse if sinks is None else sinks, *_side(plan.rows, plan), *strides, *numbers,
        BM=block[0], BN=block[1], **sizes, SINKS=sinks is not None,
    )  # fmt: skip
    return out, lse


def gradients(
    call: Call, q: Tensor, k: Tensor, v: Tensor, saved: tuple[Tensor, Tensor], dout: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Returns the gradients of q, k and v, and the sums of output times gradient."""
    out, lse = saved
    batch, heads, q_len, dim = q.shape
    kv_heads, kv_len, v_dim = k.shape[1], k.shape[2], v.shape[3]
    block = _block(q)
    plan = device_plan(call.plan, block, q.device)
    numbers, sizes = _sizes(call, q, k, v)
    delta = torch.empty_like(lse)
    _kernels.row_sums[triton.cdiv(q_len, block[0]), batch * heads](
        out, dout, delta, *out.stride(), *dout.stride(), heads, q_len, BM=block[0], V_DIM=v_dim, DV=sizes["DV"]
    )
    dq = torch.empty_like(q, memory_format=torch.contiguous_format)
    inputs = (q.stride(), k.stride(), v.stride(), dout.stride())
    strides = tuple(stride for strides in inputs for stride in strides)
    _kernels.query_gradients[plan.rows.most, batch * heads](
        q, k, v, dout, lse, delta, dq, *_side(plan.rows, plan), *strides, *dq.stride(), *numbers,
        BM=block[0], BN=block[1], **sizes,
    )  # fmt: skip
    dk = torch.empty((batch, heads, kv_len, dim), dtype=torch.float32, device=q.device)
    dv = torch.empty((batch, heads, kv_len, v_dim), dtype=torch.float32, device=q.device)
    _kernels.key_gradients[plan.keys.most, batch * heads](
        q, k, v, dout, lse, delta, dk, dv, *_side(plan.keys, plan), *strides, *numbers,
        BM=block[0], BN=block[1], **sizes,
    )  # fmt: skip
    group = heads // kv_heads
    if group > 1:
        # One head after another, so that the order of the sum does not depend on the shape.
        dk, dv = (_summed(x.view(batch, kv_heads, group, kv_len, -1)) for x in (dk, dv))
    return dq, dk.to(k.dtype), dv.to(v.dtype), delta


def _summed(parts: Tensor) -> Tensor:
    total = parts[:, :, 0]
    for head in range(1, parts.shape[2]):
        total = total + parts[:, :, head]
    return total


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, call: Call, q: Tensor, k: Tensor, v: Tensor, sinks: Tensor | None) -> tuple[Tensor, Tensor]:
        out, lse = forward(call, q, k, v, sinks)
        ctx.call = call
        ctx.save_for_backward(q, k, v, out, lse, sinks)
        natural = lse * LN2
        ctx.mark_non_differentiable(natural)
        return out, natural

    @staticmethod
    def backward(ctx: Any, dout: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, out, lse, sinks = ctx.saved_tensors
        dq, dk, dv, delta = gradients(ctx.call, q, k, v, (out, lse), dout)
        dsinks = None
        if sinks is not None and ctx.needs_input_grad[4]:
            weight = torch.exp2(sinks[None, :, None] / LN2 - torch.where(lse == -torch.inf, torch.inf, lse))
            dsinks = -(weight * delta).sum((0, 2))
        return None, dq, dk, dv, dsinks


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    plan: Plan,
    *,
    scale: float | None = None,
    softcap: float | None = None,
    sinks: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Returns the attention of `q` to `k` and `v` under `plan`, and the log-sum-exps of the rows in base e.

    Shapes: q [batch, heads, q_len, dim], k [batch, kv_heads, kv_len, dim], v [batch, kv_heads, kv_len, v_dim], sinks [heads];
    out [batch, heads, q_len, v_dim] in the type of q, log-sum-exps [batch, heads, q_len] in f32. A row without an allowed
    key is 0, with the log-sum-exp -inf. All tensors are on one device, in f32, bf16 or f16 (sinks in f32). Gradients flow
    to q, k, v and sinks.

    Raises `Error` if the shapes, types or devices do not fit.
    """
    tensors = {"q": q, "k": k, "v": v} | ({} if sinks is None else {"sinks": sinks})
    devices = {name: str(t.device) for name, t in tensors.items()}
    if len(set(devices.values())) > 1:
        raise Error(f"the tensors are on several devices: {devices}: move all to one device")
    types = {name: t.dtype for name, t in tensors.items() if name != "sinks"}
    if len(set(types.values())) > 1 or q.dtype not in (torch.float32, torch.bfloat16, torch.float16):
        raise Error(f"the types are {types}: q, k and v must all be float32, bfloat16 or float16")
    shape = plan.shape
    if shape.batch * shape.heads > MOST_PAIRS:
        raise Error(f"{shape.batch} batch rows times {shape.heads} heads: a kernel takes at most {MOST_PAIRS} pairs; split the batch")
    expected = {"q": (shape.batch, shape.heads, shape.q_len), "k": (shape.batch, shape.kv_heads, shape.kv_len)}
    expected["v"] = expected["k"]
    for name, sizes in expected.items():
        t = tensors[name]
        if t.dim() != 4 or tuple(t.shape[:3]) != sizes:
            raise Error(f"{name} has the shape {tuple(t.shape)}: the plan needs {sizes} and the head dimension")
    if q.shape[3] != k.shape[3] or not 1 <= q.shape[3] <= 256 or not 1 <= v.shape[3] <= 256:
        raise Error(f"q, k and v have head dimensions {q.shape[3]}, {k.shape[3]}, {v.shape[3]}: q and k must agree, at most 256")
    if sinks is not None and (tuple(sinks.shape) != (shape.heads,) or sinks.dtype != torch.float32):
        raise Error(f"sinks has the shape {tuple(sinks.shape)} and the type {sinks.dtype}: give float32 [{shape.heads}]")
    call = Call(plan, q.shape[3] ** -0.5 if scale is None else float(scale), softcap)
    out, lse = _Attention.apply(call, q, k, v, sinks)  # type: ignore[no-untyped-call]
    return out, lse

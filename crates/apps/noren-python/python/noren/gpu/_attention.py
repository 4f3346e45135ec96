"""Attention on a GPU: makes the arguments of the kernels, calls the kernels, and computes gradients."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .._noren import Error
from ..arguments._call import Call, Extras
from . import _decode_kernels, _kernels, _launch, _plan
from ._launch import CHUNK, Config, config

MOST_DECODE_ROWS = 64
"""The maximum number of rows of a decode kernel. The number of rows is the number of queries times the number of query heads
that share a key-value head."""
MOST_DIM = 256


def _width(dim: int, x: Tensor) -> int:
    """Returns the number of columns of the tiles in which the kernels store `dim` columns; the other columns are filled with 0.
    `x` gives the number type and the device.

    On Hopper and later GPUs, a row of a tile has at least 128 bytes. Without this, results in bf16 and f16 with head_dim 24 were
    wrong on an H100 (Triton 3.6.0), see docs/gpu.md.
    """
    least = 16 if _launch.target(x.device) in ("sm_80", "gfx942") else 128 // x.element_size()
    return max(least, 1 << (dim - 1).bit_length())


def _four(name: str, x: Tensor, sizes: Sequence[int]) -> Tensor:
    """Returns a view of `x` with the shape `sizes`; dimensions of size 1 are repeated with a stride of 0. Raises `Error` if `x`
    does not broadcast to `sizes`; `name` is the name of the tensor in the message.
    """
    given = x
    x = x[(None,) * (4 - x.dim())] if x.dim() < 4 else x
    if x.dim() != 4 or any(n not in (1, size) for n, size in zip(x.shape, sizes, strict=True)):
        raise Error(f"{name} has shape {tuple(given.shape)}, which does not broadcast to {list(sizes)}")
    return x.expand(*sizes)


def _signed(word: int) -> int:
    return word - (1 << 32) if word >= 1 << 31 else word


def check(call: Call, q: Tensor, k: Tensor, v: Tensor, extras: Extras, paged: bool = False) -> None:
    """Raises `Error` if the tensors do not fit the plan or the kernels. If `paged` is true, `k` and `v` are pages of keys."""
    shape = call.plan.shape
    if len({q.dtype, k.dtype, v.dtype}) > 1:
        raise TypeError(f"q, k and v hold {q.dtype}, {k.dtype} and {v.dtype}: give tensors of one number type")
    if q.dim() != 4 or tuple(q.shape[:3]) != (shape.batch, shape.heads, shape.q_len):
        raise Error(f"q has shape {tuple(q.shape)}: give [{shape.batch}, {shape.heads}, {shape.q_len}, head_dim], as the mask needs")
    of_keys = (shape.batch, shape.kv_heads, shape.kv_len)
    for name, x in (("k", k), ("v", v)):
        if paged and (x.dim() != 4 or x.shape[1] != shape.kv_heads or x.shape[:3] != k.shape[:3]):
            raise Error(f"{name} has shape {tuple(x.shape)}: give [pages, {shape.kv_heads} kv_heads, page_size, head_dim]")
        if not paged and (x.dim() != 4 or tuple(x.shape[:3]) != of_keys):
            raise Error(f"{name} has shape {tuple(x.shape)}: give [{', '.join(map(str, of_keys))}, head_dim], as the mask needs")
    if q.shape[3] != k.shape[3] or not 1 <= q.shape[3] <= MOST_DIM or not 1 <= v.shape[3] <= MOST_DIM:
        raise Error(f"q, k and v have head dimensions {q.shape[3]}, {k.shape[3]} and {v.shape[3]}: those of q and k must be equal, and all from 1 to {MOST_DIM}")
    if call.scale is not None and not abs(call.scale) <= 1e30:
        raise Error(f"scale is {call.scale}: give a finite number with an absolute value of at most 1e30")
    if call.softcap is not None and not 1e-30 <= call.softcap <= 1e30:
        raise Error(f"`softcap` is {call.softcap}: give a number from 1e-30 to 1e30, or leave out softcap")
    for slope in call.alibi or ():
        if not abs(slope) <= 1e30:
            raise Error(f"alibi has the slope {slope}: give finite numbers with an absolute value of at most 1e30")
    if extras.relative is not None:
        table = extras.relative.shape
        if len(table) != 2 or table[0] not in (1, shape.heads) or table[1] % 2 == 0:
            raise Error(f"relative has shape {tuple(table)}: give [{shape.heads} heads or 1, 2 * reach + 1 distances], where reach is the largest distance with its own entry")
    if extras.sinks is not None and tuple(extras.sinks.shape) != (shape.heads,):
        raise Error(f"sinks has shape {tuple(extras.sinks.shape)}: give one logit for each of the {shape.heads} query heads")
    if call.alibi is not None and len(call.alibi) != shape.heads:
        raise Error(f"alibi has {len(call.alibi)} slopes: give one slope for each of the {shape.heads} query heads")


@lru_cache(maxsize=64)
def _slopes(alibi: tuple[float, ...], device: torch.device) -> Tensor:
    return torch.tensor(alibi, dtype=torch.float32).to(device)


def _arguments(call: Call, q: Tensor, k: Tensor, v: Tensor, extras: Extras) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns (arguments of all kernels, compile-time constants of all kernels), each as a dictionary by name."""
    batch, heads, q_len, dim = q.shape
    v_dim = v.shape[3]
    kv_heads, kv_len = call.plan.shape.kv_heads, call.plan.shape.kv_len
    none = q  # a pointer that the kernel does not read
    arguments: dict[str, Any] = {"q_ptr": q, "k_ptr": k, "v_ptr": v}
    for name, x in (("q", q), ("k", k), ("v", v)):
        arguments |= dict(zip((f"{name}_b", f"{name}_h", f"{name}_s", f"{name}_d"), x.stride(), strict=True))
    bias = _bias(extras, (batch, heads, q_len, kv_len))
    soft = None if extras.soft is None else _four("soft", extras.soft.detach(), (batch, heads, q_len, kv_len))
    for name, added in (("bias", bias), ("soft", soft)):
        arguments[f"{name}_ptr"] = none if added is None else added
        strides = (0, 0, 0, 0) if added is None else added.stride()
        arguments |= dict(zip((f"{name}_b", f"{name}_h", f"{name}_q", f"{name}_k"), strides, strict=True))
    table = None if extras.relative is None else extras.relative.detach().float().contiguous()
    slopes = None if call.alibi is None else _slopes(call.alibi, q.device)
    by_distance = table is not None or slopes is not None
    q_pos, k_pos = _plan.positions(call.plan, q.device) if by_distance else (none, none)
    dropout = call.dropout if extras.seed is not None else 0.0
    seed = 0 if extras.seed is None else int(extras.seed)
    arguments |= {
        "table_ptr": none if table is None else table, "slopes_ptr": none if slopes is None else slopes,
        "q_pos": q_pos, "k_pos": k_pos,
        "heads": heads, "group": heads // kv_heads, "q_len": q_len, "kv_len": kv_len,
        "reach": 0 if table is None else table.shape[1] // 2, "table_heads": 1 if table is None else table.shape[0],
        "scale": float(dim**-0.5 if call.scale is None else call.scale), "softcap": float(call.softcap or 1.0),
        "seed_lo": _signed(seed & 0xFFFFFFFF), "seed_hi": _signed(seed >> 32 & 0xFFFFFFFF),
        "threshold": _signed(min(round(dropout * 4294967296.0), 0xFFFFFFFF)),
        "factor": float(np.float32(1.0 / (1.0 - float(np.float32(dropout))))),
    }  # fmt: skip
    constants = {
        "DIM": dim, "D": _width(dim, q), "V_DIM": v_dim, "DV": _width(v_dim, v), "SOFTCAP": call.softcap is not None,
        "BIAS": bias is not None, "RELATIVE": table is not None, "ALIBI": slopes is not None, "SOFT": soft is not None,
        "DROPOUT": dropout > 0.0, "PRECISION": "ieee" if torch.get_float32_matmul_precision() == "highest" else "tf32",
    }  # fmt: skip
    return arguments, constants


def _bias(extras: Extras, sizes: Sequence[int]) -> Tensor | None:
    """Returns the sum of the biases in `extras`, expanded to the shape `sizes`; None if there are no biases."""
    biases = [_four("bias", bias.detach(), sizes) for bias in extras.bias]
    if len(biases) < 2:
        return biases[0] if biases else None
    total = extras.bias[0].detach().float()
    for bias in extras.bias[1:]:
        total = total + bias.detach().float()
    return _four("bias", total, sizes)


def _sinks(extras: Extras, none: Tensor) -> tuple[Tensor, bool]:
    return (none, False) if extras.sinks is None else (extras.sinks.detach().float().contiguous(), True)


def _config(name: str, q: Tensor, v: Tensor) -> Config:
    return config(name, q, max(q.shape[3], v.shape[3]))


def _whole(*tensors: Tensor) -> list[Tensor]:
    """Returns the tensors with four dimensions: a missing batch or head dimension is added with size 1."""
    return [x[(None,) * (4 - x.dim())] if x.dim() in (2, 3) else x for x in tensors]


def forward(call: Call, q: Tensor, k: Tensor, v: Tensor, extras: Extras) -> tuple[Tensor, Tensor]:
    """Computes attention by the kernels for many queries. Returns (output, log-sum-exps in base e)."""
    if q.dim() in (2, 3):
        q_, k_, v_ = _whole(q, k, v)
        out, lse = forward(call, q_, k_, v_, extras)
        return out.reshape(*q.shape[:-1], v.shape[-1]), lse.reshape(q.shape[:-1])
    check(call, q, k, v, extras)
    shape = call.plan.shape
    if shape.q_len * (shape.heads // shape.kv_heads) <= MOST_DECODE_ROWS and max(shape.query_offsets) > 0:
        return decode(call, q, k, v, extras, None)
    out = torch.empty((*q.shape[:3], v.shape[3]), dtype=q.dtype, device=q.device)
    lse = torch.empty(q.shape[:3], dtype=torch.float32, device=q.device)
    chosen = _config("forward", q, v)
    arguments, constants = _arguments(call, q, k, v, extras)
    tiles = _plan.tiles(call.plan, chosen, q.device, by_key=False)
    pairs = shape.batch * shape.heads // tiles.packed
    sinks, with_sinks = _sinks(extras, q)
    arguments |= tiles.arguments | {"out_ptr": out, "lse_ptr": lse, "sinks_ptr": sinks, "pairs": pairs, "pair_0": 0}
    arguments |= dict(zip(("out_b", "out_h", "out_s", "out_d"), out.stride(), strict=True))
    constants |= {"PACK": tiles.packed, "BM": chosen.block[0], "BN": chosen.block[1], "SINKS": with_sinks}
    _launch.launch(_kernels.forward, tiles.count * pairs, arguments, constants, chosen)
    return out, lse


def decode(call: Call, q: Tensor, k: Tensor, v: Tensor, extras: Extras, pages: Tensor | None) -> tuple[Tensor, Tensor]:
    """Computes attention of a few queries by the kernels for decoding. Returns (output, log-sum-exps in base e).

    If `pages` is given, `[batch, n]`, it has the page numbers of each batch row, and `k` and `v` are `[pages, kv_heads,
    page_size, dim]`.
    """
    shape = call.plan.shape
    out = torch.empty((*q.shape[:3], v.shape[3]), dtype=q.dtype, device=q.device)
    lse = torch.empty(q.shape[:3], dtype=torch.float32, device=q.device)
    chosen = _config("decode", q, v)
    arguments, constants = _arguments(call, q, k, v, extras)
    rows, count, plan = _plan.chunks(call.plan, chosen.block[1], CHUNK, q.device)
    pairs = shape.batch * shape.kv_heads
    acc = torch.empty((pairs, count, rows, constants["DV"]), dtype=torch.float32, device=q.device)
    most, total = (torch.empty((pairs, count, rows), dtype=torch.float32, device=q.device) for _ in range(2))
    parts = {"acc_ptr": acc, "most_ptr": most, "total_ptr": total, "chunks": count}
    paged = {"pages": q if pages is None else pages, "max_pages": 0 if pages is None else pages.shape[1]}
    page = 0 if pages is None else k.shape[2]
    _launch.launch(
        _decode_kernels.chunks_forward, count * pairs, arguments | plan | parts | paged | {"pairs": pairs},
        constants | {"BM": rows, "BN": chosen.block[1], "PAGE": page}, chosen,
    )  # fmt: skip
    sinks, with_sinks = _sinks(extras, q)
    join = {name: plan[name] for name in ("pattern_of", "first_chunk")}
    join |= {name: arguments[name] for name in ("heads", "group", "q_len")}
    join |= dict(zip(("out_b", "out_h", "out_s", "out_d"), out.stride(), strict=True))
    _launch.launch(
        _decode_kernels.chunks_join, pairs, join | parts | {"out_ptr": out, "lse_ptr": lse, "sinks_ptr": sinks},
        {"BM": rows, "V_DIM": constants["V_DIM"], "DV": constants["DV"], "SINKS": with_sinks}, chosen,
    )  # fmt: skip
    return out, lse


def gradients(
    call: Call, q: Tensor, k: Tensor, v: Tensor, extras: Extras, saved: tuple[Tensor, Tensor, Tensor], wanted: Sequence[bool]
) -> list[Tensor | None]:
    """Returns the gradients of q, k and v, followed by those of the tensors of `extras.differentiable()`. `wanted` has one
    entry for each of these tensors; if the entry is false, the gradient is None.
    """
    if q.dim() in (2, 3):
        out, lse, dout = saved
        q_, k_, v_, out, dout = _whole(q, k, v, out, dout)
        given = gradients(call, q_, k_, v_, extras, (out, lse.reshape(q_.shape[:3]), dout), wanted)
        return [g.reshape(x.shape) for g, x in zip(given[:3], (q, k, v), strict=True) if g is not None] + given[3:]
    check(call, q, k, v, extras)
    out, lse, dout = saved
    shape = call.plan.shape
    batch, heads, q_len, dim = q.shape
    kv_heads, kv_len, v_dim = shape.kv_heads, shape.kv_len, v.shape[3]
    arguments, constants = _arguments(call, q, k, v, extras)
    rows = _config("query_gradients", q, v)
    delta = torch.empty_like(lse)
    sums: dict[str, Any] = {"out_ptr": out, "dout_ptr": dout, "delta_ptr": delta, "heads": heads, "q_len": q_len, "pairs": batch * heads}
    sums |= dict(zip(("out_b", "out_h", "out_s", "out_d"), out.stride(), strict=True))
    of_dout = dict(zip(("dout_b", "dout_h", "dout_s", "dout_d"), dout.stride(), strict=True))
    widths = {"V_DIM": v_dim, "DV": constants["DV"]}
    _launch.launch(_kernels.row_sums, -(-q_len // 64) * batch * heads, sums | of_dout, {"BM": 64, **widths}, rows)

    arguments |= of_dout | {"dout_ptr": dout, "lse_ptr": lse, "delta_ptr": delta, "pair_0": 0}
    by_row = dict(arguments)
    dq = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    tiles = _plan.tiles(call.plan, rows, q.device, by_key=False)
    by_row |= tiles.arguments | {"dq_ptr": dq, "ds_ptr": q} | dict(zip(("dq_b", "dq_h", "dq_s", "dq_d"), dq.stride(), strict=True))
    row_constants = constants | {"PACK": tiles.packed, "BM": rows.block[0], "BN": rows.block[1], "SCORES": False}
    others = extras.differentiable()
    of_scores = [want and t is not None for t, want in zip(others[:-1], wanted[:-1], strict=True)]
    rest: list[Tensor | None] = [None] * len(others)
    if any(of_scores):
        added = [t if want else None for t, want in zip(others[:-1], of_scores, strict=True)]
        grads = [None if t is None else torch.zeros(t.shape, dtype=torch.float32, device=q.device) for t in added]
        for pair_0, several in _parts(added, batch, heads, tiles.packed):
            ds = torch.zeros((several, q_len, kv_len), dtype=torch.float32, device=q.device)
            pairs = several // tiles.packed
            part = by_row | {"ds_ptr": ds, "pairs": pairs, "pair_0": pair_0}
            _launch.launch(_kernels.query_gradients, tiles.count * pairs, part, row_constants | {"SCORES": True}, rows)
            _add_score_gradients(call, extras, ds, divmod(pair_0, heads), grads)
        rest[:-1] = [None if t is None or g is None else g.to(t.dtype) for t, g in zip(added, grads, strict=True)]
    else:
        pairs = batch * heads // tiles.packed
        _launch.launch(_kernels.query_gradients, tiles.count * pairs, by_row | {"pairs": pairs}, row_constants, rows)

    keys = _config("key_gradients", q, v)
    tiles = _plan.tiles(call.plan, keys, q.device, by_key=True)
    group = heads // kv_heads
    summed = 1 if tiles.by_head else group
    kinds = (k.dtype, v.dtype) if summed == group else (torch.float32, torch.float32)
    dk = torch.empty((batch, heads // summed, kv_len, dim), dtype=kinds[0], device=q.device)
    dv = torch.empty((batch, heads // summed, kv_len, v_dim), dtype=kinds[1], device=q.device)
    pairs = batch * heads // summed
    by_key = arguments | tiles.arguments | {"dk_ptr": dk, "dv_ptr": dv, "pairs": pairs, "summed": summed}
    key_constants = constants | {"PACK": tiles.packed, "BM": keys.block[0], "BN": keys.block[1]}
    _launch.launch(_kernels.key_gradients, tiles.count * pairs, by_key, key_constants, keys)
    if summed < group:
        dk, dv = (_summed(x.view(batch, kv_heads, group, kv_len, x.shape[3])) for x in (dk, dv))
    if extras.sinks is not None and wanted[-1]:
        weight = torch.where(lse == -torch.inf, 0.0, torch.exp(extras.sinks.detach().float()[None, :, None] - lse))
        rest[-1] = -(weight * delta).sum((0, 2)).to(extras.sinks.dtype)
    return [dq, dk.to(k.dtype), dv.to(v.dtype), *rest]


def _summed(parts: Tensor) -> Tensor:
    """Returns the sum over dimension 2, the query heads that share a key-value head. Heads are added one after another in
    ascending order, so the order of the additions never changes.
    """
    total = parts[:, :, 0]
    for head in range(1, parts.shape[2]):
        total = total + parts[:, :, head]
    return total


def _parts(added: Sequence[Tensor | None], batch: int, heads: int, packed: int) -> Iterator[tuple[int, int]]:
    """Yields groups of pairs (batch row, head), as (index of the first pair, number of pairs). The score gradients of one group
    are in memory at the same time.

    A group has all heads of a batch row if a tensor of `added` has values for each head, otherwise the `packed` heads of a
    tile.
    """
    by_head = any(t is not None and t.dim() == 4 and t.shape[1] == heads for t in added)
    several = heads if by_head else packed
    for first in range(0, batch * heads, several):
        yield first, several


def _add_score_gradients(call: Call, extras: Extras, ds: Tensor, at: tuple[int, int], grads: Sequence[Tensor | None]) -> None:
    """Adds the score gradients `ds`, `[heads, q_len, kv_len]`, to `grads`, the gradients of the biases, of the table of
    `relative` and of the soft weights. `at` is (batch row, head) of the first entry of `ds`.
    """
    *of_bias, of_relative, of_soft = grads
    b, head = at
    heads = slice(head, head + ds.shape[0])
    for grad in of_bias:
        if grad is not None:
            _add_reduced(grad, ds, b, heads)
    if of_soft is not None and extras.soft is not None:
        shape = call.plan.shape
        weights = _four("soft", extras.soft.detach(), (shape.batch, shape.heads, shape.q_len, shape.kv_len))[b, heads].float()
        _add_reduced(of_soft, torch.where(weights >= 2.0**-100, ds / weights, 0.0), b, heads)
    if of_relative is not None:
        _add_by_distance(call, of_relative, ds, b, heads)


def _add_reduced(grad: Tensor, ds: Tensor, b: int, heads: slice) -> None:
    """Adds the score gradients `ds` to the part of `grad` for batch row `b` and the heads `heads`. `ds` is summed over the
    dimensions in which `grad` has size 1.
    """
    grad = grad[(None,) * (4 - grad.dim())]
    part = grad[b if grad.shape[0] > 1 else 0]
    part = part[heads] if part.shape[0] > 1 else part
    for dimension in range(3):
        if part.shape[dimension] == 1 and ds.shape[dimension] > 1:
            ds = ds.sum(dimension, keepdim=True)
    part += ds


def _add_by_distance(call: Call, grad: Tensor, ds: Tensor, b: int, heads: slice) -> None:
    """Adds the score gradients `ds` of batch row `b` and the heads `heads` to `grad`, the gradient of a table `[heads or 1, 2 *
    reach + 1]`. The gradient of a cell is added to the table's entry for the distance between its key and its query.
    """
    q_pos, k_pos = _plan.positions(call.plan, ds.device)
    q_len, kv_len = ds.shape[1:]
    reach = grad.shape[1] // 2
    distance = k_pos[b * kv_len : (b + 1) * kv_len][None, :] - q_pos[b * q_len : (b + 1) * q_len][:, None]
    entry = distance.clamp(-reach, reach) + reach
    # One entry after another: additions by index would be atomic, in an order that changes between runs.
    sums = torch.stack([torch.where(entry == i, ds, 0.0).sum((1, 2)) for i in range(grad.shape[1])], 1)
    if grad.shape[0] == 1:
        grad += sums.sum(0, keepdim=True)
    else:
        grad[heads] += sums

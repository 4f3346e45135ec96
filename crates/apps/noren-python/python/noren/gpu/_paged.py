"""Decoding with a key-value cache in pages, each of which holds a fixed number of keys."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from .._noren import Error, Plan
from ..arguments._call import Call, Extras
from ..arguments._tensors import check_dense, check_floats
from ._attention import MOST_DECODE_ROWS, MOST_DIM, check_numbers, decode


def paged_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    pages: Tensor,
    plan: Plan,
    *,
    scale: float | None = None,
    softcap: float | None = None,
    alibi: Sequence[float] | None = None,
    sinks: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Returns the attention of a few queries to a cache in pages, and the log-sum-exps of the rows. There are no gradients.

    Shapes: q `[batch, heads, q_len, head_dim]`, k `[pages, kv_heads, page_size, head_dim]`, v `[pages, kv_heads, page_size,
    v_dim]`, `pages` `[batch, n]` in int32: key `j` of a batch row is slot `j % page_size` of page `pages[row, j // page_size]`.
    The plan's keys are at most `n * page_size`. Pages whose keys no query reads are not read, so their numbers may be invalid.
    The page size is a power of two of at least 16. The number of queries times the number of query heads that share a key-value
    head is at most 64. Page numbers are not checked, because such a check would have to wait for the device.

    Raises `noren.Error` and TypeError if the tensors do not fit.
    """
    for name, x in (("q", q), ("k", k), ("v", v)):
        check_floats(name, x)
    check_dense("pages", pages)
    if not isinstance(plan, Plan):
        raise TypeError(f"`plan` is a {type(plan).__name__}: give a plan, the result of mask.plan(shape)")
    shape = plan.shape
    if len({q.dtype, k.dtype, v.dtype}) > 1:
        raise TypeError(f"q, k and v hold {q.dtype}, {k.dtype} and {v.dtype}: give tensors of one number type")
    if len({x.device for x in (q, k, v, pages)}) > 1:
        raise Error(f"q, k, v and pages are on {q.device}, {k.device}, {v.device} and {pages.device}: move all tensors to one device")
    if tuple(q.shape[:3]) != (shape.batch, shape.heads, shape.q_len) or q.dim() != 4:
        raise Error(f"q has shape {tuple(q.shape)}: give [{shape.batch}, {shape.heads}, {shape.q_len}, head_dim], as the mask needs")
    if shape.q_len * (shape.heads // shape.kv_heads) > MOST_DECODE_ROWS:
        raise Error(f"{shape.q_len} queries of {shape.heads // shape.kv_heads} heads each are more than {MOST_DECODE_ROWS} rows: give fewer queries in one call")
    for name, x in (("k", k), ("v", v)):
        if x.dim() != 4 or x.shape[1] != shape.kv_heads or x.shape[:3] != k.shape[:3]:
            raise Error(f"{name} has shape {tuple(x.shape)}: give [pages, {shape.kv_heads} kv_heads, page_size, head_dim]")
    size = k.shape[2]
    if size < 16 or size & (size - 1):
        raise Error(f"the pages have {size} keys, but their number must be a power of two of at least 16")
    if q.shape[3] != k.shape[3] or not 1 <= q.shape[3] <= MOST_DIM or not 1 <= v.shape[3] <= MOST_DIM:
        raise Error(f"q, k and v have head dimensions {q.shape[3]}, {k.shape[3]} and {v.shape[3]}: those of q and k must be equal, and all from 1 to {MOST_DIM}")
    if pages.dtype != torch.int32 or pages.dim() != 2 or pages.shape[0] != shape.batch or pages.shape[1] * size < shape.kv_len:
        raise Error(f"`pages` is {pages.dtype} {tuple(pages.shape)}: give int32 of shape [{shape.batch}, at least {-(-shape.kv_len // size)}]")
    if sinks is not None and tuple(sinks.shape) != (shape.heads,):
        raise Error(f"sinks has shape {tuple(sinks.shape)}: give one logit for each of the {shape.heads} query heads")
    call = Call(plan, scale, softcap, None if alibi is None else tuple(alibi))
    if call.alibi is not None and len(call.alibi) != shape.heads:
        raise Error(f"alibi has {len(call.alibi)} slopes: give one slope for each of the {shape.heads} query heads")
    check_numbers(call)
    return decode(call, q, k, v, Extras([], sinks=sinks), pages.contiguous())

"""Decoding with a key-value cache in pages, each of which holds a fixed number of keys."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from .._noren import Error, Plan
from ..arguments._call import Call, Extras
from ..arguments._tensors import check_dense, check_floats
from ._attention import MOST_DECODE_ROWS, check, decode


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
    call, extras = Call(plan, scale, softcap, None if alibi is None else tuple(alibi)), Extras([], sinks=sinks)
    check(call, q, k, v, extras, paged=True)
    if len({x.device for x in (q, k, v, pages)}) > 1:
        raise Error(f"q, k, v and pages are on {q.device}, {k.device}, {v.device} and {pages.device}: move all tensors to one device")
    if shape.q_len * (shape.heads // shape.kv_heads) > MOST_DECODE_ROWS:
        raise Error(f"{shape.q_len} queries of {shape.heads // shape.kv_heads} heads each are more than {MOST_DECODE_ROWS} rows: give fewer queries in one call")
    size = k.shape[2]
    if size < 16 or size & (size - 1):
        raise Error(f"the pages have {size} keys, but their number must be a power of two of at least 16")
    if pages.dtype != torch.int32 or pages.dim() != 2 or pages.shape[0] != shape.batch or pages.shape[1] * size < shape.kv_len:
        raise Error(f"`pages` is {pages.dtype} {tuple(pages.shape)}: give int32 of shape [{shape.batch}, at least {-(-shape.kv_len // size)}]")
    return decode(call, q, k, v, extras, pages.contiguous())

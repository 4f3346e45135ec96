"""Attention over packed sequences under `torch.compile`. The call is one operator, which PyTorch does not trace. The operator gets
the options of the call as JSON."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from .._noren import Error
from ._function import constant, refuse_second
from ._varlen_core import FLASH, TORCH, Layout, Options, Piece, attend, derive, masks_of, pieces_of


@constant
def source_of(flash: bool, window: tuple[int, int], mask: Any, scale: float | None, softcap: float | None, dropout: float) -> str:
    """Returns the options as JSON, which compiled and exported graphs contain. If `flash` is true, error messages contain the names of
    flash-attention's arguments, otherwise those of `varlen_attn`."""
    if dropout > 0:
        raise Error("under torch.compile, dropout of packed sequences is not supported: call the function outside of the compiled function")
    masks = masks_of(mask)
    return json.dumps([flash, window, [*map(str, masks)] if isinstance(masks, tuple) else str(masks), scale, softcap])


@lru_cache(maxsize=1024)
def _options(text: str) -> Options:
    flash, window, mask, scale, softcap = json.loads(text)
    return Options(FLASH if flash else TORCH, tuple(window), masks_of(mask), scale, softcap)


def _pieces(q: Tensor, k: Tensor, layout: list[Tensor], slopes: Tensor | None, most_q: int, most_k: int, source: str) -> list[Piece]:
    options = replace(_options(source), most_q=most_q, most_k=most_k)
    return pieces_of(options, Layout(*layout), q, k, slopes, None)


@torch.library.custom_op("noren::varlen_attention", mutates_args=())
def operator(
    q: Tensor, k: Tensor, v: Tensor, layout: list[Tensor], slopes: Tensor | None, most_q: int, most_k: int, source: str
) -> tuple[Tensor, Tensor]:
    return attend(_pieces(q, k, layout, slopes, most_q, most_k, source), q, k, v)


@operator.register_fake
def _(q: Tensor, k: Tensor, v: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    return q.new_empty((*q.shape[:-1], v.shape[-1])), q.new_empty((q.shape[1], q.shape[0]), dtype=torch.float32)


@torch.library.custom_op("noren::varlen_attention_backward", mutates_args=())
def _backward_operator(
    dout: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, layout: list[Tensor], slopes: Tensor | None, most_q: int,
    most_k: int, source: str,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    return derive(_pieces(q, k, layout, slopes, most_q, most_k, source), q, k, v, (out, lse, dout))


@_backward_operator.register_fake
def _(dout: Tensor, q: Tensor, k: Tensor, v: Tensor, *_: Any) -> tuple[Tensor, Tensor, Tensor]:
    made = [torch.empty(x.shape, dtype=x.dtype, device=x.device) for x in (q, k, v)]
    return made[0], made[1], made[2]


def _setup(ctx: Any, inputs: Any, output: Any) -> None:
    q, k, v, layout, slopes, *ctx.rest = inputs
    ctx.count, ctx.sloped = len(layout), slopes is not None
    ctx.save_for_backward(q, k, v, *output, *layout, *([] if slopes is None else [slopes]))


def _derive(ctx: Any, dout: Tensor, _: Any) -> Any:
    q, k, v, out, lse, *others = ctx.saved_tensors
    slopes = others[ctx.count] if ctx.sloped else None
    grads = _backward_operator(dout, q, k, v, out, lse, others[: ctx.count], slopes, *ctx.rest)
    return (*grads, [None] * ctx.count, None, None, None, None)


operator.register_autograd(_derive, setup_context=_setup)
_backward_operator.register_autograd(refuse_second)

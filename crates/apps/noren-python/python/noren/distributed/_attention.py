"""Attention over a group of processes (ranks). Each rank has some of the queries, keys and values, and computes the outputs and
gradients of these."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from .._noren import Attended
from ..arguments._tensors import lend
from ..torch._function import lower, refuse_second
from ._split import Split

Scores = tuple[float | None, float | None, list[float] | None]
"""The score modifiers of a call, equal on every rank (process): (scale, softcap, slopes of ALiBi)."""


def scores_of(scale: float | None, softcap: float | None, alibi: Sequence[float] | None) -> Scores:
    return scale, softcap, None if alibi is None else [float(slope) for slope in alibi]


def lent(*tensors: Tensor) -> Any:
    """Converts tensors to contiguous tensors without gradients, which the extension module can read."""
    return tuple(lend(tensor.detach().contiguous()) for tensor in tensors)


def results(attended: Attended, q: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Returns (output in the number type of `q`, log-sum-exps in float32)."""
    out = torch.empty(*q.shape[:3], v.shape[3], dtype=torch.float32)
    lse = torch.empty(q.shape[:3], dtype=torch.float32)
    attended.write(*lent(out, lse))
    return out.to(q.dtype), lse


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    split: Split,
    *,
    scale: float | None = None,
    softcap: float | None = None,
    alibi: Sequence[float] | None = None,
    return_lse: bool = False,
) -> Any:
    """Computes masked attention of this rank's queries over the keys of all ranks; differentiable.

    `q` is `[batch, heads, own queries, head_dim]`, `k` and `v` are `[batch, kv_heads, own keys, head_dim or v_dim]`: this
    rank's rows of the whole arrays (see `Split.take_rows`), on the CPU; a rank without tokens passes tensors of length 0. The
    output has this rank's rows of the whole output. It equals the output of a computation in one process up to rounding, and
    has the same bits in each run. With `return_lse`, the result is (output, log-sum-exps). Gradients of keys and values are
    returned to the rank that owns them.

    Keys are sent while each rank computes with its own keys. For the gradients, keys are sent again, so that no rank stores keys
    of another rank between the passes. Values are sent in their own type; sums are in `float32`, in an order that the partition
    determines.

    Every rank of the group must make the same calls in the same order. Raises `Disagreement` on every rank, before any array
    is sent, if the ranks differ in mask, facts, shapes, types, options, partition or version. Raises `GroupError` on every
    rank if one rank has ended, or does not answer within the split's time-out.
    """
    q, k, v = lower(q, k, v)
    scores = scores_of(scale, softcap, alibi)
    if torch.is_grad_enabled() and any(t.requires_grad for t in (q, k, v)):
        out, lse = _Attention.apply(split, scores, q, k, v)
    else:
        out, lse = results(_forward(split, scores, q, k, v, gradients=False), q, v)
    return (out, lse) if return_lse else out


def _forward(split: Split, scores: Scores, q: Tensor, k: Tensor, v: Tensor, *, gradients: bool) -> Attended:
    with split.wire.checked():
        split.check(q, k, v)
    return split.portion.attention(lent(q, k, v), scores, gradients)


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, split: Split, scores: Scores, q: Tensor, k: Tensor, v: Tensor) -> Any:
        attended = _forward(split, scores, q, k, v, gradients=True)
        ctx.save_for_backward(q, k, v)
        ctx.split, ctx.scores, ctx.attended = split, scores, attended
        out, lse = results(attended, q, v)
        ctx.mark_non_differentiable(lse)
        return out, lse

    @staticmethod
    def backward(ctx: Any, dout: Tensor, _: Any) -> Any:
        return (None, None, *_Gradients.apply(ctx.split, ctx.scores, ctx.attended, dout, *ctx.saved_tensors))


class _Gradients(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, split: Split, scores: Scores, attended: Attended, dout: Tensor, *saved: Tensor) -> Any:
        found = [torch.empty(t.shape, dtype=torch.float32) for t in saved]
        (gradient,) = lent(dout.to(saved[0].dtype))
        split.portion.gradients(lent(*saved), attended, gradient, scores, lent(*found))
        return tuple(grad.to(t.dtype) for grad, t in zip(found, saved, strict=True))

    @staticmethod
    def backward(ctx: Any, *_: Any) -> Any:
        refuse_second(ctx)

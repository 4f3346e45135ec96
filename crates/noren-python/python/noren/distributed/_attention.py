"""Attention over a group: each rank has its own queries, keys and values, and gets its own outputs and gradients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from .._noren import Error, Plan
from ..torch._function import NO_SECOND, Call, Extras, forward as compute, gradients, lower
from ._merge import Partial, merge, nothing
from ._split import Part, Split
from ._wire import Pending


@dataclass(frozen=True)
class Options:
    """What is done to the scores; the same on every rank."""

    scale: float | None = None
    softcap: float | None = None
    alibi: tuple[float, ...] | None = None

    def call(self, plan: Plan) -> Call:
        return Call(plan, self.scale, self.softcap, self.alibi)


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
    """Masked attention of this rank's queries over the keys of all ranks, differentiable.

    `q` is `[batch, heads, own queries, head_dim]`, `k` and `v` are `[batch, kv_heads, own keys, head_dim or v_dim]`: the rows
    `split.rows` and `split.keys` of the whole arrays, on the CPU; a rank that owns nothing gives length 0. The output, and the
    log-sum-exps where they are asked for, are those rows of what one process computes, up to rounding; the same call gives
    the same bits each time. Gradients of keys and values come back to the rank that owns them.

    Keys that a rank needs are on their way while it computes with those that it has. Values travel in their own type;
    everything is added in `float32`, in an order that the partition fixes.

    Every rank of the group makes the same calls in the same order. Raises `Disagreement` on every rank, before anything is
    sent, when they differ in mask, facts, shapes, types, options, partition or version, and `GroupError` on every rank when
    one is gone or keeps the others waiting longer than the split's time-out.
    """
    q, k, v = lower(q, k, v)
    options = Options(scale, softcap, None if alibi is None else tuple(alibi))
    if torch.is_grad_enabled() and any(t.requires_grad for t in (q, k, v)):
        out, lse = _Attention.apply(split, options, q, k, v)
    else:
        out, lse = _forward(split, options, q, k, v)[:2]
    return (out, lse) if return_lse else out


@dataclass
class Gathered:
    """The keys and values that a rank received, by the parts that read them."""

    keys: list[tuple[Tensor, Tensor] | None] = field(default_factory=list)


def _forward(split: Split, options: Options, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Gathered]:
    said: dict[str, Any] = {}
    with split.wire.checked("attention", said):
        split.check(q, k, v)
        said |= split.said(q, v) | {"options": options}
    waiting = [_send(split, part, k, v) for part in split.parts]
    gathered = Gathered()
    partials: list[Partial] = []
    for part, pending in zip(split.parts, waiting, strict=True):
        there = (k, v) if pending is None else _unpack(split.wire.wait(pending), k, v, part.received)
        gathered.keys.append(None if pending is None else there)
        if part.plan is not None:
            rows, keys, values = (t.float() for t in (q, *there))
            out, lse = compute(options.call(part.plan), rows, keys, values, Extras([]), lse=True)
            assert lse is not None
            partials.append((out, lse))
    if not partials:
        partials = [nothing(*q.shape[:3], v.shape[3])]
    out, lse = merge(partials)
    return out.to(q.dtype), lse, gathered


def _send(split: Split, part: Part, k: Tensor, v: Tensor) -> Pending | None:
    """Begins the exchange of a part's keys and values; the rank's own need none."""
    if part.source is None:
        return None
    packed = torch.cat([t.index_select(2, part.outgoing).reshape(-1) for t in (k, v)])
    per_key = k.shape[0] * k.shape[1] * (k.shape[3] + v.shape[3])
    return split.wire.exchange(
        f"the exchange of keys and values ({part.name})",
        packed,
        split.counts(part.target, part.outgoing.numel() * per_key),
        split.counts(part.source, part.received * per_key),
    )


def _unpack(flat: Tensor, k: Tensor, v: Tensor, keys: int) -> tuple[Tensor, Tensor]:
    shapes = [(*t.shape[:2], keys, t.shape[3]) for t in (k, v)]
    border = k.shape[0] * k.shape[1] * keys * k.shape[3]
    return flat[:border].view(shapes[0]), flat[border:].view(shapes[1])


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, split: Split, options: Options, q: Tensor, k: Tensor, v: Tensor) -> Any:
        out, lse, gathered = _forward(split, options, q, k, v)
        ctx.save_for_backward(q, k, v, out, lse)
        ctx.split, ctx.options, ctx.gathered = split, options, gathered
        ctx.mark_non_differentiable(lse)
        return out, lse

    @staticmethod
    def backward(ctx: Any, dout: Tensor, _: Any) -> Any:
        grads = _Gradients.apply(ctx.split, ctx.options, ctx.gathered, dout, *ctx.saved_tensors)
        return (None, None, *grads)


class _Gradients(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, split: Split, options: Options, gathered: Gathered, dout: Tensor, *saved: Tensor) -> Any:
        return _backward(split, options, gathered, dout, saved)

    @staticmethod
    def backward(ctx: Any, *_: Any) -> Any:
        raise RuntimeError(NO_SECOND)


def _backward(
    split: Split, options: Options, gathered: Gathered, dout: Tensor, saved: Sequence[Tensor]
) -> tuple[Tensor, Tensor, Tensor]:
    """What others read here is on its way back while this rank computes with its own keys."""
    q, k, v, out, lse = saved
    split.wire.agree("the gradients of attention", split.said(q, v) | {"options": options})
    fixed = tuple(t.float() for t in (q, out, dout))
    found: list[tuple[Tensor, Tensor, Tensor] | None] = [None] * len(split.parts)
    returning: list[tuple[Part, Pending]] = []
    remote = [i for i, part in enumerate(split.parts) if part.source is not None]
    for i in remote + [i for i, part in enumerate(split.parts) if part.source is None]:
        part, there = split.parts[i], gathered.keys[i] or (k, v)
        if part.plan is not None:
            found[i] = _part_gradients(options.call(part.plan), fixed, there, lse)
        if part.source is not None:
            returning.append((part, _send_back(split, part, found[i], there)))

    local = [grads for part, grads in zip(split.parts, found, strict=True) if part.source is None and grads is not None]
    dq = torch.zeros(q.shape)
    for grads in found:  # in the order in which the outputs were merged
        if grads is not None:
            dq += grads[0]
    dk, dv = (local[0][1], local[0][2]) if local else (torch.zeros(k.shape), torch.zeros(v.shape))
    for part, pending in returning:
        back = split.wire.wait(pending)
        if part.outgoing.numel():
            for total, piece in zip((dk, dv), _unpack(back, k, v, part.outgoing.numel()), strict=True):
                total.index_add_(2, part.outgoing, piece.float())
    return dq.to(q.dtype), dk.to(k.dtype), dv.to(v.dtype)


def _part_gradients(call: Call, fixed: Sequence[Tensor], there: Sequence[Tensor], lse: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """With the log-sum-exps of all keys the weights are those of the whole, and so are the gradients of a part."""
    q, out, dout = fixed
    keys, values = (t.float() for t in there)
    dq, dk, dv = gradients(call, q, keys, values, Extras([]), (out, lse, dout), [False] * 3)[:3]
    assert dq is not None and dk is not None and dv is not None
    return dq, dk, dv


def _send_back(
    split: Split, part: Part, found: tuple[Tensor, Tensor, Tensor] | None, there: tuple[Tensor, Tensor]
) -> Pending:
    """Begins the exchange of a part in reverse: gradients of what was received for gradients of what was sent."""
    keys, values = there
    packed = torch.cat([g.to(keys.dtype).reshape(-1) for g in found[1:]]) if found else keys.new_zeros(keys.numel() + values.numel())
    per_key = keys.shape[0] * keys.shape[1] * (keys.shape[3] + values.shape[3])
    return split.wire.exchange(
        f"the return of gradients ({part.name})",
        packed,
        split.counts(part.source, part.received * per_key),
        split.counts(part.target, part.outgoing.numel() * per_key),
    )


# --- decoding ---------------------------------------------------------------------------------------------------------


def decode(
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
    """A step of decoding over a cache whose keys are shared out: every rank gets the outputs of all queries.

    `q` is `[batch, heads, new, head_dim]`, the same on every rank; `k` and `v` are the keys and values that this rank owns,
    `split.keys` of the whole cache with the new tokens. Each rank reads its own keys; outputs and log-sum-exps, and no key,
    go to all others and are merged in the order of ranks, to the same bits everywhere. Not differentiable.
    """
    options = Options(scale, softcap, None if alibi is None else tuple(alibi))
    said: dict[str, Any] = {}
    with split.wire.checked("a step of decoding", said):
        if torch.is_grad_enabled() and any(t.requires_grad for t in (q, k, v)):
            raise Error("a step of decoding has no gradients: call it under torch.no_grad(), or attention(...) to train")
        split.check(q, k, v, all_queries=True)
        said |= split.said(q, v) | {"options": options}
    plan = split.step_plan
    partial = nothing(*q.shape[:3], v.shape[3])
    if plan is not None:
        rows, keys, values = (t.float() for t in (q, k, v))
        out, lse = compute(options.call(plan), rows, keys, values, Extras([]), lse=True)
        assert lse is not None
        partial = out, lse
    packed = torch.cat((partial[0], partial[1].unsqueeze(-1)), -1)
    parts = split.wire.collect("the exchange of partial outputs", packed)
    out, lse = merge([(part[..., :-1], part[..., -1]) for part in parts])
    out = out.to(q.dtype)
    return (out, lse) if return_lse else out

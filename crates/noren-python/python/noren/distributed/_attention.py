"""Attention over a group: each rank has its own queries, keys and values, and gets its own outputs and gradients."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from .._noren import Plan, Shape, full
from ..torch._function import NO_SECOND, Call, Extras, forward as compute, gradients, lower
from ._delivery import Delivery, Expected
from ._merge import Partial, Results, nothing
from ._split import Family, Split, Step


@dataclass(frozen=True)
class Options:
    """What is done to the scores; the same on every rank."""

    scale: float | None = None
    softcap: float | None = None
    alibi: tuple[float, ...] | None = None

    @staticmethod
    def of(scale: float | None, softcap: float | None, alibi: Sequence[float] | None) -> Options:
        return Options(scale, softcap, None if alibi is None else tuple(map(float, alibi)))

    def check(self, heads: int, kv_heads: int) -> None:
        """Refuses what the kernel refuses, also on a rank that computes nothing."""
        q, kv = (torch.zeros(1, n, 1, 1, dtype=torch.float32) for n in (heads, kv_heads))
        compute(self.call(_one_cell(heads, kv_heads)), q, kv, kv, Extras([]), lse=False)

    def call(self, plan: Plan) -> Call:
        return Call(plan, self.scale, self.softcap, self.alibi, partial=True)


@lru_cache
def _one_cell(heads: int, kv_heads: int) -> Plan:
    return full().plan(Shape(1, 1, heads=heads, kv_heads=kv_heads))


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

    `q` is `[batch, heads, own queries, head_dim]`, `k` and `v` are `[batch, kv_heads, own keys, head_dim or v_dim]`: the
    rows that `split` gives this rank of the whole arrays, on the CPU; a rank that owns nothing gives length 0. The output, and
    the log-sum-exps where they are asked for, are those rows of what one process computes, up to rounding, with the same bits
    each time. Gradients of keys and values come back to the rank that owns them.

    What a rank needs is on its way while it computes with the keys that it has, and while it computes with those of one rank
    those of the next are on theirs. Keys travel again for the gradients, so that nothing of another rank is held between.
    Values travel in their own type; everything is added in `float32`, in an order that the partition fixes.

    Every rank of the group makes the same calls in the same order. Raises `Disagreement` on every rank, before any array is
    sent, when they differ in mask, facts, shapes, types, options, partition or version, and `GroupError` on every rank when
    one is gone or keeps the others waiting longer than the split's time-out.
    """
    q, k, v = lower(q, k, v)
    options = Options.of(scale, softcap, alibi)
    if torch.is_grad_enabled() and any(t.requires_grad for t in (q, k, v)):
        out, lse = _Attention.apply(split, options, q, k, v)
    else:
        total, lse = _forward(split, options, q, k, v, gradients=False)
        out = total.to(q.dtype)
    return (out, lse) if return_lse else out


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, split: Split, options: Options, q: Tensor, k: Tensor, v: Tensor) -> Any:
        out, lse = _forward(split, options, q, k, v, gradients=True)
        ctx.save_for_backward(q, k, v, out, lse)
        ctx.split, ctx.options, ctx.call = split, options, split.calls
        ctx.mark_non_differentiable(lse)
        return out.to(q.dtype, copy=True), lse

    @staticmethod
    def backward(ctx: Any, dout: Tensor, _: Any) -> Any:
        return (None, None, *_Gradients.apply(ctx.split, ctx.options, ctx.call, dout, *ctx.saved_tensors))


class _Gradients(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, split: Split, options: Options, call: int, dout: Tensor, *saved: Tensor) -> Any:
        return _backward(split, options, call, dout, *saved)

    @staticmethod
    def backward(ctx: Any, *_: Any) -> Any:
        raise RuntimeError(NO_SECOND)


# --- what goes around -------------------------------------------------------------------------------------------------


class Round:
    """Own tensors of keys and of rows on their way to who needs them, turn by turn."""

    def __init__(self, split: Split, what: str, by_key: list[list[Tensor]], by_row: list[list[Tensor]]) -> None:
        self._split, self._by_key, self._by_row = split, by_key, by_row
        self._families = list(enumerate(split.families))
        self._open: dict[int, dict[int, tuple[list[Tensor], list[Tensor]]]] = {}
        rank, ranks = split.rank, split.wire.ranks
        self._deliveries: dict[int, Delivery] = {}
        for turn in split.turns:
            target, source = (rank - turn) % ranks, (rank + turn) % ranks
            to, expected = {target: self._outgoing(target)}, {source: self._incoming(source)}
            self._deliveries[source] = Delivery(split.wire, f"the exchange of {what}, turn {turn}", to, expected)

    def _outgoing(self, rank: int) -> list[Tensor]:
        out = []
        for i, family in self._families:
            if rank in family.sends:
                message = family.sends[rank]
                out += [t.index_select(2, message.keys) for t in self._by_key[i]]
                out += [t.index_select(2, message.rows) for t in self._by_row[i]]
        return out

    def _incoming(self, rank: int) -> list[Expected]:
        out = []
        for i, family in self._families:
            if rank in family.receives:
                keys, rows = family.receives[rank]
                out += [Expected(_resized(t, keys), t.dtype) for t in self._by_key[i]]
                out += [Expected(_resized(t, len(rows)), t.dtype) for t in self._by_row[i]]
        return out

    def of(self, family: int, rank: int) -> tuple[list[Tensor], list[Tensor]]:
        """What came from a rank for a family: tensors of its keys, tensors of its rows."""
        if rank == self._split.rank:
            return self._by_key[family], []
        if rank not in self._open:
            tensors = iter(self._deliveries.pop(rank).open()[rank])
            self._open[rank] = {
                i: ([next(tensors) for _ in self._by_key[i]], [next(tensors) for _ in self._by_row[i]])
                for i, f in self._families
                if rank in f.receives
            }
        return self._open[rank][family]

    def foreign(self, family: int) -> list[Tensor]:
        """The tensors of all foreign rows, ascending."""
        form = self._split.families[family]
        found = [t.new_empty(_resized(t, form.foreign)) for t in self._by_row[family]]
        for rank, (_, rows) in form.receives.items():
            for whole, part in zip(found, self.of(family, rank)[1], strict=True):
                whole.index_copy_(2, rows, part)
        return found

    def finish(self) -> None:
        """Waits for what nobody has asked for."""
        for delivery in self._deliveries.values():
            delivery.open()


def _resized(tensor: Tensor, length: int) -> tuple[int, ...]:
    return (*tensor.shape[:2], length, *tensor.shape[3:])


def _at(tensor: Tensor, places: Tensor | None) -> Tensor:
    return tensor if places is None else tensor.index_select(2, places)


def _steps(split: Split) -> Iterator[tuple[int, Family, Step]]:
    """Own rows before foreign ones, keys that are here before those of others; each family in its own order."""
    steps = [(step.foreign, n, i) for i, family in enumerate(split.families) for n, step in enumerate(family.steps)]
    for _, n, i in sorted(steps):
        yield i, split.families[i], split.families[i].steps[n]


# --- forward ----------------------------------------------------------------------------------------------------------


def _forward(split: Split, options: Options, q: Tensor, k: Tensor, v: Tensor, *, gradients: bool) -> Partial:
    said: dict[str, Any] = {}
    split.calls += 1
    with split.wire.checked("attention", said):
        split.check(q, k, v)
        options.check(q.shape[1], k.shape[1])
        said |= split.said(q, v, options) | {"whether gradients are wanted": gradients}
    families = split.families
    queries = [f.own(q, f.queries) for f in families]
    around = Round(split, "keys and values", [[f.own(t, f.keys) for t in (k, v)] for f in families], [[t] for t in queries])
    heads, v_dim = q.shape[1], v.shape[3]
    mine = [Results(f.size, heads, f.queries, v_dim) for f in families]
    theirs = [Results(f.size, heads, f.foreign, v_dim) for f in families]
    foreign: dict[int, Tensor] = {}
    for i, _, step in _steps(split):
        if step.foreign and i not in foreign:
            (foreign[i],) = around.foreign(i)
        rows = _at(foreign[i] if step.foreign else queries[i], step.rows).float()
        keys, values = (_at(t, step.keys).float() for t in around.of(i, step.peer)[0])
        out, lse = compute(options.call(step.plan), rows, keys, values, Extras([]), lse=True)
        assert lse is not None
        (theirs if step.foreign else mine)[i].add(step.rows, (out, lse))
    around.finish()
    if split.queries_travel:
        _take_home(split, mine, theirs)
    out, lse = nothing(q.shape[0], heads, q.shape[2], v_dim)
    for family, results in zip(families, mine, strict=True):
        family.put(out, results.out)
        family.put(lse, results.lse)
    return out, lse


def _take_home(split: Split, mine: list[Results], theirs: list[Results]) -> None:
    """Sends the results of foreign rows to their owners, who merge them in the order of ranks."""
    to: dict[int, list[Tensor]] = {}
    expected: dict[int, list[Expected]] = {}
    for family, own, others in zip(split.families, mine, theirs, strict=True):
        for rank, (_, rows) in family.receives.items():
            to.setdefault(rank, []).extend((others.out.index_select(2, rows), others.lse.index_select(2, rows)))
        for rank, message in family.sends.items():
            shapes = _resized(own.out, len(message.rows)), _resized(own.lse, len(message.rows))
            expected.setdefault(rank, []).extend(Expected(shape, torch.float32) for shape in shapes)
    for rank, tensors in Delivery(split.wire, "the return of results", to, expected).open().items():
        parts = iter(tensors)
        for family, own in zip(split.families, mine, strict=True):
            if rank in family.sends:
                own.add(family.sends[rank].rows, (next(parts), next(parts)))


# --- backward ---------------------------------------------------------------------------------------------------------


def _zeros(tensor: Tensor, length: int) -> Tensor:
    return torch.zeros(_resized(tensor, length), dtype=torch.float32)


class _Sums:
    """Gradients of a family in `float32`: of own and of foreign rows, of own keys and values and those of others."""

    def __init__(self, family: Family, q: Tensor, k: Tensor, v: Tensor) -> None:
        self.queries, self.foreign = _zeros(q, family.queries), _zeros(q, family.foreign)
        self.own = [_zeros(t, family.keys) for t in (k, v)]
        self.others = {rank: [_zeros(t, keys) for t in (k, v)] for rank, (keys, _) in family.receives.items()}

    def add(self, step: Step, rank: int, found: Sequence[Tensor]) -> None:
        keys = self.own if step.peer == rank else self.others[step.peer]
        sums = [self.foreign if step.foreign else self.queries, *keys]
        for total, places, part in zip(sums, (step.rows, step.keys, step.keys), found, strict=True):
            if places is None:
                total += part
            else:
                total.index_add_(2, places, part)


def _backward(
    split: Split, options: Options, call: int, dout: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    split.calls += 1
    split.wire.agree("the gradients of attention", split.said(q, v, options) | {"the call that they are of": call})
    families = split.families
    by_key = [[f.own(t, f.keys) for t in (k, v)] for f in families]
    fixed = [[f.own(t, f.queries) for t in (q, out, lse, dout)] for f in families]
    sums = [_Sums(f, rows[0], *keys) for f, rows, keys in zip(families, fixed, by_key, strict=True)]
    # of a row's output, others need no more than its product with its gradient
    row_sums = [(dout.float() * out).sum(-1, keepdim=True) for _, out, _, dout in fixed]
    by_row = [[q, dout.to(q.dtype), lse.unsqueeze(-1), s] for (q, _, lse, dout), s in zip(fixed, row_sums, strict=True)]
    around = Round(split, "keys and values for gradients", by_key, by_row)
    home = _Home(split, sums)
    foreign: dict[int, list[Tensor]] = {}
    for i, _, step in _steps(split):
        keys = [_at(t, step.keys).float() for t in around.of(i, step.peer)[0]]
        if step.foreign:
            if i not in foreign:
                foreign[i] = around.foreign(i)
            rows = [_at(t, step.rows).float() for t in foreign[i]]
            found = _foreign_gradients(options.call(step.plan), rows, keys)
        else:
            q_rows, out_rows, lse_rows, dout_rows = (_at(t, step.rows).float() for t in fixed[i])
            found = _gradients(options.call(step.plan), q_rows, keys, (out_rows, lse_rows.contiguous(), dout_rows))
        sums[i].add(step, split.rank, found)
        home.done(step)
    around.finish()
    home.arrive()
    grads = _zeros(q, q.shape[2]), _zeros(k, k.shape[2]), _zeros(v, v.shape[2])
    for family, total in zip(families, sums, strict=True):
        for whole, part in zip(grads, (total.queries, *total.own), strict=True):
            family.put(whole, part)
    return grads[0].to(q.dtype), grads[1].to(k.dtype), grads[2].to(v.dtype)


def _gradients(call: Call, q: Tensor, keys: Sequence[Tensor], saved: tuple[Tensor, Tensor, Tensor]) -> list[Tensor]:
    """Of a part: with the log-sum-exps of all keys its weights are those of the whole."""
    k, v = keys
    return [grad for grad in gradients(call, q, k, v, Extras([]), saved, [False] * 3)[:3] if grad is not None]


def _foreign_gradients(call: Call, rows: Sequence[Tensor], keys: Sequence[Tensor]) -> list[Tensor]:
    """The same for rows whose output is elsewhere: a column of values 0, whose output is the row's sum and has gradient 1."""
    q, dout, lse, row_sums = rows
    k, v = keys
    out = torch.cat((torch.zeros_like(dout), row_sums), -1)
    dout = torch.cat((dout, torch.ones_like(row_sums)), -1)
    values = torch.cat((v, v.new_zeros(*v.shape[:3], 1)), -1)
    dq, dk, dv = _gradients(call, q, (k, values), (out, lse.squeeze(-1).contiguous(), dout))
    return [dq, dk, dv[..., :-1]]


class _Home:
    """Gradients of what other ranks own, sent to them when they are complete: in turns, in which all ranks agree."""

    def __init__(self, split: Split, sums: list[_Sums]) -> None:
        self._split, self._sums = split, sums
        self._left = [step.peer for family in split.families for step in family.steps]
        self._turns = list(split.turns)
        self._deliveries: list[Delivery] = []
        self._begin()

    def done(self, step: Step) -> None:
        self._left.remove(step.peer)
        self._begin()

    def _begin(self) -> None:
        """A rank's gradients are complete when no step is left with its keys, and none at all where queries travel."""
        rank, ranks = self._split.rank, self._split.wire.ranks
        while self._turns:
            peer = (rank + self._turns[0]) % ranks
            if self._left if self._split.queries_travel else peer in self._left:
                return
            turn = self._turns.pop(0)
            to, expected = {peer: self._outgoing(peer)}, {(rank - turn) % ranks: self._incoming((rank - turn) % ranks)}
            self._deliveries.append(Delivery(self._split.wire, f"the return of gradients, turn {turn}", to, expected))

    def _outgoing(self, rank: int) -> list[Tensor]:
        out = []
        for family, sums in zip(self._split.families, self._sums, strict=True):
            if rank in family.receives:
                out += [*sums.others[rank], sums.foreign.index_select(2, family.receives[rank][1])]
        return out

    def _incoming(self, rank: int) -> list[Expected]:
        out = []
        for family, sums in zip(self._split.families, self._sums, strict=True):
            if rank in family.sends:
                message = family.sends[rank]
                shapes = [_resized(t, len(message.keys)) for t in sums.own] + [_resized(sums.queries, len(message.rows))]
                out += [Expected(shape, torch.float32) for shape in shapes]
        return out

    def arrive(self) -> None:
        """Adds what comes back to the rank's own, in the order of ranks."""
        found = {rank: tensors for delivery in self._deliveries for rank, tensors in delivery.open().items()}
        for rank in sorted(found):
            parts = iter(found[rank])
            for family, sums in zip(self._split.families, self._sums, strict=True):
                if rank in family.sends:
                    message = family.sends[rank]
                    for total, places in zip((*sums.own, sums.queries), (message.keys, message.keys, message.rows), strict=True):
                        total.index_add_(2, places, next(parts))

"""`Split`: a mask shared out over a group, as one rank sees it.

What travels is said by a `Partition`, which every rank has whole. Batch rows that are split alike form a *family* and are
computed together. Indices of a partition are those of the whole sequence; tensors of a rank hold what it owns in ascending
order, so everything here is translated into *places* among what a rank has.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch import Tensor

from .._noren import BoundMask, Error, Partition, Plan, partition as make_partition
from ._wire import Traffic, Wire

Runs = list[list[int]]
"""Ranges `[first, after]`, ascending and disjoint."""


def indices(runs: Runs) -> Tensor:
    """The indices in `runs`, ascending."""
    parts = [torch.arange(start, end) for start, end in runs]
    return torch.cat(parts) if parts else torch.empty(0, dtype=torch.int64)


def count(runs: Runs) -> int:
    return sum(end - start for start, end in runs)


def places(wanted: Runs, held: Runs) -> Tensor | None:
    """Where what is `wanted` stands among what is `held`; `None` when it is all of it."""
    return None if wanted == held else torch.searchsorted(indices(held), indices(wanted))


@dataclass(frozen=True)
class Message:
    """What goes to or comes from one rank, as places among what this rank owns."""

    keys: Tensor
    rows: Tensor


@dataclass(frozen=True)
class Step:
    """Rows, the rank's own or foreign, read keys of one rank."""

    peer: int
    foreign: bool
    rows: Tensor | None
    """Places among the own, or among all foreign rows; `None` for all."""
    keys: Tensor | None
    """Places among the keys that came from `peer`, or the own."""
    plan: Plan


@dataclass(frozen=True)
class Family:
    """Batch rows that are split alike."""

    batch: Tensor | None
    """Which; `None` for all."""
    size: int
    queries: int
    keys: int
    """Own queries and keys of each batch row."""
    steps: tuple[Step, ...]
    sends: Mapping[int, Message]
    """By rank, what it needs of this one's."""
    receives: Mapping[int, tuple[int, Tensor]]
    """By rank: how many keys come from it, and the places of its rows among all foreign rows."""
    foreign: int
    """Number of foreign rows."""

    def own(self, tensor: Tensor, length: int) -> Tensor:
        """Of a tensor `[batch, heads, most that a batch row owns, ...]`, these batch rows."""
        rows = tensor if self.batch is None else tensor.index_select(0, self.batch)
        return rows[:, :, :length]

    def put(self, tensor: Tensor, part: Tensor) -> None:
        """Writes the batch rows that `own` reads."""
        if self.batch is None:
            tensor[:, :, : part.shape[2]] = part
        else:
            tensor[self.batch, :, : part.shape[2]] = part


class Split:
    """A planned mask shared out over the ranks of a group.

    Every rank makes it from the same plan, whose shape is that of the whole. `partition` is made here unless it is given; with
    `travel="keys"` no query leaves its owner, otherwise they may travel to keys where that is cheaper. `timeout` is how many
    seconds a rank may keep the others waiting before they give up.

    A rank holds tensors `[batch, heads, own, dim]`: the rows `rows(b)` of batch row `b` for queries, `keys(b)` for keys and
    values, in ascending order. Where batch rows are split differently, `own` is the most that one has, and what lies beyond
    is ignored: outputs and gradients there are 0.
    """

    def __init__(
        self,
        plan: Plan,
        partition: Partition | None = None,
        *,
        group: dist.ProcessGroup | None = None,
        timeout: float = 60.0,
        travel: Literal["keys", "both"] = "both",
    ) -> None:
        self.plan, self.wire = plan, Wire(group, timeout)
        given = partition is not None
        if partition is None:
            partition = make_partition(plan, self.wire.ranks, travel=travel)
        if partition.ranks != self.wire.ranks:
            raise Error(f"the partition is for {partition.ranks} ranks, but the group has {self.wire.ranks}: partition for it")
        self.partition = partition
        self._form: dict[str, Any] = json.loads(partition.to_json())
        shape = plan.shape
        sizes = [shape.batch, shape.heads, shape.kv_heads, shape.q_len, shape.kv_len]
        if self._form["shape"] != sizes:
            raise Error(f"the partition is for shape {self._form['shape']}, but the plan has {sizes}: partition this plan")
        self._said = said_of(plan.bound) | {"partition": partition.hash}
        if given and not partition.is_of(plan.bound):
            raise Error("the partition is of another mask, or of other facts: partition this plan")
        self.calls = 0

    @property
    def rank(self) -> int:
        return self.wire.rank

    @property
    def traffic(self) -> Traffic:
        """What this rank sent and received so far."""
        return self.wire.traffic

    def _share(self, batch: int, rank: int) -> dict[str, Any]:
        share: dict[str, Any] = self._form["rows"][self._form["row_of"][batch]]["shares"][rank]
        return share

    def rows(self, batch: int = 0, rank: int | None = None) -> Tensor:
        """The query rows of batch row `batch` that this rank, or another, owns: indices, ascending."""
        return indices(self._share(batch, self.rank if rank is None else rank)["queries"])

    def keys(self, batch: int = 0, rank: int | None = None) -> Tensor:
        """The keys that this rank, or another, owns: indices, ascending."""
        return indices(self._share(batch, self.rank if rank is None else rank)["keys"])

    @cached_property
    def lengths(self) -> tuple[int, int]:
        """The most query rows, and keys, that one batch row has here: the lengths of this rank's tensors."""
        shares = [rows["shares"][self.rank] for rows in self._form["rows"]]
        return max(count(s["queries"]) for s in shares), max(count(s["keys"]) for s in shares)

    def take_rows(self, whole: Tensor, dim: int = 2, fill: float = 0) -> Tensor:
        """This rank's query rows of a whole tensor, whose first dimension is the batch and whose `dim`-th is the sequence.

        Where batch rows own different numbers of rows, the rest is `fill`.
        """
        return self._take(whole, dim, fill, self.rows, self.lengths[0])

    def take_keys(self, whole: Tensor, dim: int = 2, fill: float = 0) -> Tensor:
        """This rank's keys of a whole tensor; see `take_rows`."""
        return self._take(whole, dim, fill, self.keys, self.lengths[1])

    def _take(self, whole: Tensor, dim: int, fill: float, owned: Any, length: int) -> Tensor:
        dim %= whole.dim()
        if len(self._form["rows"]) == 1:
            return whole.index_select(dim, owned(0))
        shape = list(whole.shape)
        shape[dim] = length
        out = whole.new_full(shape, fill)
        for b in range(whole.shape[0]):
            mine = owned(b)
            out[b].narrow(dim - 1, 0, len(mine)).copy_(whole[b].index_select(dim - 1, mine))
        return out

    @cached_property
    def families(self) -> tuple[Family, ...]:
        """The batch rows by how they are split, with this rank's part of each."""
        row_of = self._form["row_of"]
        return tuple(self._family(i, [b for b, row in enumerate(row_of) if row == i]) for i in range(len(self._form["rows"])))

    def _family(self, index: int, batch: list[int]) -> Family:
        share = self._form["rows"][index]["shares"][self.rank]
        bound, whole = self.plan.bound, len(batch) == self.plan.shape.batch
        if not whole:
            bound = bound.select_batch(batch)
        foreign = merged(run for message in share["receives"] for run in message["rows"])
        received = {message["peer"]: message for message in share["receives"]}

        def step(form: dict[str, Any]) -> Step:
            peer = form["peer"]
            held = share["keys"] if peer == self.rank else received[peer]["keys"]
            plan = bound.select([*map(tuple, form["rows"])], [*map(tuple, form["keys"])]).plan()
            rows = places(form["rows"], foreign if form["foreign"] else share["queries"])
            return Step(peer, form["foreign"], rows, places(form["keys"], held), plan)

        def message(form: dict[str, Any]) -> Message:
            held = indices(share["keys"]), indices(share["queries"])
            keys, rows = (torch.searchsorted(a, indices(form[b])) for a, b in zip(held, ("keys", "rows"), strict=True))
            return Message(keys, rows)

        return Family(
            batch=None if whole else torch.tensor(batch),
            size=len(batch),
            queries=count(share["queries"]),
            keys=count(share["keys"]),
            steps=tuple(step(form) for form in share["steps"] if form["rows"] and form["keys"]),
            sends={form["peer"]: message(form) for form in share["sends"]},
            receives={
                peer: (count(form["keys"]), torch.searchsorted(indices(foreign), indices(form["rows"])))
                for peer, form in received.items()
            },
            foreign=count(foreign),
        )

    @cached_property
    def turns(self) -> tuple[int, ...]:
        """How far apart ranks are that send to each other: in turn `t` a rank receives from the `t`-th after it."""
        ranks = self.wire.ranks
        turns = {
            (message["peer"] - rank) % ranks
            for rows in self._form["rows"]
            for rank, share in enumerate(rows["shares"])
            for message in share["receives"]
        }
        return tuple(sorted(turns))

    @cached_property
    def queries_travel(self) -> bool:
        """Whether some rank computes rows of another."""
        shares = (share for rows in self._form["rows"] for share in rows["shares"])
        return any(message["rows"] for share in shares for message in share["receives"])

    def predicted(self, head_dim: int, v_dim: int | None = None, element_bytes: int = 4) -> dict[str, Traffic]:
        """Bytes that this rank sends and receives in one `"forward"` and one `"backward"`, from the partition alone.

        Keys, values, queries and gradients of outputs travel in their own type, everything else in `float32`.
        """
        v_dim = head_dim if v_dim is None else v_dim
        heads, kv_heads = self.plan.shape.heads, self.plan.shape.kv_heads
        found = {name: Traffic() for name in ("forward", "backward")}
        for row in self._form["row_of"]:
            share = self._form["rows"][row]["shares"][self.rank]
            for there, back, messages in (("received", "sent", "receives"), ("sent", "received", "sends")):
                keys = sum(count(m["keys"]) for m in share[messages]) * kv_heads
                rows = sum(count(m["rows"]) for m in share[messages]) * heads
                once = keys * (head_dim + v_dim) * element_bytes + rows * head_dim * element_bytes
                again = once + rows * (v_dim * element_bytes + 2 * 4)
                results = rows * (v_dim + 1) * 4
                gradients = keys * (head_dim + v_dim) * 4 + rows * head_dim * 4
                for name, out, home in (("forward", once, results), ("backward", again, gradients)):
                    setattr(found[name], there, getattr(found[name], there) + out)
                    setattr(found[name], back, getattr(found[name], back) + home)
        return found

    def said(self, q: Tensor, v: Tensor, options: Any) -> dict[str, Any]:
        """What all ranks must agree on before they exchange anything."""
        sizes = {"types": q.dtype, "head_dim and v_dim": (q.shape[3], v.shape[3])}
        return self._said | sizes | {"options": options, "number of calls so far": self.calls}

    def check(self, q: Tensor, k: Tensor, v: Tensor) -> None:
        """Refuses tensors that are not this rank's part of the whole."""
        shape, (queries, keys) = self.plan.shape, self.lengths
        check_tensors(
            (q, k, v),
            ((shape.batch, shape.heads, queries), (shape.batch, shape.kv_heads, keys)),
            f"rank {self.rank} owns {queries} queries and {keys} keys (Split.rows, Split.keys)",
        )


def check_tensors(tensors: Sequence[Tensor], expected: Sequence[tuple[int, ...]], why: str) -> None:
    q, k, v = tensors
    wanted = ("q", q, expected[0]), ("k", k, expected[1]), ("v", v, expected[1])
    for name, tensor, sizes in wanted:
        if tensor.dim() != 4 or tuple(tensor.shape[:3]) != sizes or tensor.shape[3] == 0:
            what = ", ".join(map(str, sizes))
            raise Error(f"{name} has shape {list(tensor.shape)}, but [{what}, dim] is expected: {why}")
        if tensor.device.type != "cpu":
            raise Error(f"{name} is on {tensor.device}: noren computes on the CPU; give tensors there and a gloo group")
        if tensor.dtype != q.dtype or tensor.dtype not in (torch.float32, torch.bfloat16, torch.float16):
            raise Error(f"{name} holds {tensor.dtype} and q {q.dtype}: give float32, bfloat16 or float16, the same for all")
    if q.shape[3] != k.shape[3]:
        raise Error(f"q has head_dim {q.shape[3]} and k {k.shape[3]}: give the same")


def said_of(bound: BoundMask) -> dict[str, Any]:
    """A mask as ranks compare it."""
    # a part of a mask has no serial form, and is refused here: its text does not say which part it is
    facts = hashlib.blake2b(bound.to_json().encode(), digest_size=16).hexdigest()
    return {"mask": str(bound.mask), "shape": bound.shape.to_json(), "facts": facts}


def merged(runs: Any) -> Runs:
    """Ranges in any order as runs."""
    out: Runs = []
    for start, end in sorted(runs):
        if out and start <= out[-1][1]:
            out[-1][1] = max(out[-1][1], end)
        else:
            out.append([start, end])
    return out

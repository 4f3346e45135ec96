"""`Split`: a mask shared out over a group, as one rank sees it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch import Tensor

from .._noren import Error, Partition, Plan, RankSplit
from ._wire import Traffic, Wire


def indices(runs: Sequence[Sequence[int]]) -> Tensor:
    """The indices in ranges `(first, after)`, ascending."""
    parts = [torch.arange(start, end) for start, end in runs]
    return torch.cat(parts) if parts else torch.empty(0, dtype=torch.int64)


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
        self.portion = RankSplit(plan, partition, travel, self.wire.link)

    @property
    def rank(self) -> int:
        return self.wire.rank

    @cached_property
    def partition(self) -> Partition:
        """Who owns what, and what travels."""
        return self.portion.partition

    @property
    def traffic(self) -> Traffic:
        """What this rank sent and received so far."""
        return self.wire.traffic

    def rows(self, batch: int = 0, rank: int | None = None) -> Tensor:
        """The query rows of batch row `batch` that this rank, or another, owns: indices, ascending."""
        return indices(self.portion.owned(batch, self.rank if rank is None else rank)[0])

    def keys(self, batch: int = 0, rank: int | None = None) -> Tensor:
        """The keys that this rank, or another, owns: indices, ascending."""
        return indices(self.portion.owned(batch, self.rank if rank is None else rank)[1])

    @cached_property
    def lengths(self) -> tuple[int, int]:
        """The most query rows, and keys, that one batch row has here: the lengths of this rank's tensors."""
        return self.portion.lengths

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
        if self.portion.uniform:
            return whole.index_select(dim, owned(0))
        shape = list(whole.shape)
        shape[dim] = length
        out = whole.new_full(shape, fill)
        for b in range(whole.shape[0]):
            mine = owned(b)
            out[b].narrow(dim - 1, 0, len(mine)).copy_(whole[b].index_select(dim - 1, mine))
        return out

    @cached_property
    def queries_travel(self) -> bool:
        """Whether some rank computes rows of another."""
        return self.portion.queries_travel

    def predicted(self, head_dim: int, v_dim: int | None = None, element_bytes: int = 4) -> dict[str, Traffic]:
        """Bytes that this rank sends and receives in one `"forward"` and one `"backward"`, from the partition alone.

        Keys, values, queries and gradients of outputs travel in their own type, everything else in `float32`.
        """
        forward, backward = self.portion.predicted(head_dim, head_dim if v_dim is None else v_dim, element_bytes)
        return {"forward": Traffic(*forward), "backward": Traffic(*backward)}

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

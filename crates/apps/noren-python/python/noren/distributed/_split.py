"""`Split`: a planned mask that is divided over the processes (ranks) of a group, with the query rows and keys that each rank
owns."""

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
    """Returns all indices in the ranges `runs`, in ascending order. A range is (first index, index after the last)."""
    parts = [torch.arange(start, end) for start, end in runs]
    return torch.cat(parts) if parts else torch.empty(0, dtype=torch.int64)


class Split:
    """A planned mask that is divided over the processes (ranks) of a group.

    Every rank makes a `Split` from the plan of the whole sequence; the plans must be equal. `partition` is computed unless it
    is given. With `travel="keys"`, only keys are sent. With `travel="both"`, queries may also be sent to the rank that owns the
    keys, if this reduces the bytes sent. `timeout` is the number of seconds that ranks wait for each other before they raise an
    error.

    A rank holds tensors `[batch, heads, own, dim]`. In batch row `b`, these are the query rows `rows(b)`, or for keys and
    values the keys `keys(b)`, in ascending order. If batch rows are split differently, `own` is the maximum number over the
    batch rows; the entries of a batch row beyond its own number are ignored, and their outputs and gradients are 0.
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
        """The partition: for each rank, the rows and keys that it owns, and the data that it sends."""
        return self.portion.partition

    @property
    def traffic(self) -> Traffic:
        """Returns the numbers of bytes that this rank has sent and received up to now."""
        return self.wire.traffic

    def rows(self, batch: int = 0, rank: int | None = None) -> Tensor:
        """Returns the indices of the query rows of batch row `batch` that rank `rank` owns [default: this rank]."""
        return indices(self.portion.owned(batch, self.rank if rank is None else rank)[0])

    def keys(self, batch: int = 0, rank: int | None = None) -> Tensor:
        """Returns the indices of the keys of batch row `batch` that rank `rank` owns [default: this rank]."""
        return indices(self.portion.owned(batch, self.rank if rank is None else rank)[1])

    @cached_property
    def lengths(self) -> tuple[int, int]:
        """(number of query rows, number of keys) in the tensors of this rank. If batch rows differ, these are the maxima over
        the batch rows."""
        return self.portion.lengths

    def take_rows(self, whole: Tensor, dim: int = 2, fill: float = 0) -> Tensor:
        """Returns this rank's query rows of a whole tensor; dimension 0 is the batch, dimension `dim` the sequence.

        If this rank owns fewer query rows in one batch row than in another, the missing entries are filled with `fill`.
        """
        return self._take(whole, dim, fill, self.rows, self.lengths[0])

    def take_keys(self, whole: Tensor, dim: int = 2, fill: float = 0) -> Tensor:
        """Returns this rank's keys of a whole tensor; the arguments are those of `take_rows`."""
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
        """Returns true if at least one rank computes query rows that another rank owns."""
        return self.portion.queries_travel

    def predicted(self, head_dim: int, v_dim: int | None = None, element_bytes: int = 4) -> dict[str, Traffic]:
        """Computes, without any communication, the bytes that this rank sends and receives in one `"forward"` and one
        `"backward"` pass.

        Keys, values, queries and gradients of outputs are sent in their number type, with `element_bytes` bytes for each
        number. All other data are sent in `float32`.
        """
        forward, backward = self.portion.predicted(head_dim, head_dim if v_dim is None else v_dim, element_bytes)
        return {"forward": Traffic(*forward), "backward": Traffic(*backward)}

    def check(self, q: Tensor, k: Tensor, v: Tensor) -> None:
        """Raises `Error` unless the numbers of query rows and keys in the tensors are those that this rank owns."""
        shape, (queries, keys) = self.plan.shape, self.lengths
        check_tensors(
            (q, k, v),
            ((shape.batch, shape.heads, queries), (shape.batch, shape.kv_heads, keys)),
            f"this rank is number {self.rank} and owns {queries} queries and {keys} keys (Split.rows, Split.keys)",
        )


def check_tensors(tensors: Sequence[Tensor], expected: Sequence[tuple[int, ...]], why: str) -> None:
    q, k, v = tensors
    wanted = ("q", q, expected[0]), ("k", k, expected[1]), ("v", v, expected[1])
    for name, tensor, sizes in wanted:
        if tensor.dim() != 4 or tuple(tensor.shape[:3]) != sizes or tensor.shape[3] == 0:
            what = ", ".join(map(str, sizes))
            raise Error(f"{name} has shape {list(tensor.shape)}, but [{what}, dim] is expected: {why}")
        if tensor.device.type != "cpu":
            raise Error(f"{name} is on {tensor.device}, but noren.distributed computes on the CPU: give tensors on the CPU and a gloo group")
        if tensor.dtype != q.dtype or tensor.dtype not in (torch.float32, torch.bfloat16, torch.float16):
            raise Error(f"{name} holds {tensor.dtype}, but q holds {q.dtype}: give tensors of one type, float32, bfloat16 or float16")
    if q.shape[3] != k.shape[3]:
        raise Error(f"q has head_dim {q.shape[3]}, but k has head_dim {k.shape[3]}: give tensors with equal head_dim")

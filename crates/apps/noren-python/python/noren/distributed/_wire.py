"""Sends and receives the messages of `noren-dist` over a process group of PyTorch: between ranks (processes), with a time-out
for each message.

The Rust crate `noren-dist` decides the content of messages, agreements and computations. A failure on one rank is an error on
all ranks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from .._noren import Error, GroupError, Link

TAG = 0x6E6F
"""The tag of noren's messages. The tag distinguishes them from other messages in the same process group."""


class Traffic(NamedTuple):
    """The numbers of bytes that this rank sent to and received from other ranks.

    `sent` and `received` count arrays. `agreements` counts the bytes sent in messages that check whether the ranks agree.
    """

    sent: int = 0
    received: int = 0
    agreements: int = 0


class Exchange:
    """An exchange of messages that has begun. `outgoing` lists the messages to send as (rank, message), `expected` the messages
    to receive as (rank, number of bytes)."""

    def __init__(
        self,
        group: dist.ProcessGroup,
        timeout: timedelta,
        outgoing: Sequence[tuple[int, bytearray]],
        expected: Sequence[tuple[int, int]],
    ) -> None:
        self._timeout = timeout
        self._arriving: dict[int, tuple[bytearray, Any]] = {}
        for rank, size in expected:
            message = bytearray(size)
            there = dist.get_global_rank(group, rank)
            self._arriving[rank] = message, dist.irecv(_bytes_of(message), there, group=group, tag=TAG)
        self._sending: list[Any] = [
            dist.isend(_bytes_of(message), dist.get_global_rank(group, rank), group=group, tag=TAG) for rank, message in outgoing
        ]

    def take(self, rank: int) -> bytearray:
        """Waits for the message from rank `rank`, and returns it."""
        message, work = self._arriving.pop(rank)
        work.wait(self._timeout)
        return message

    def finish(self) -> None:
        """Waits for all remaining messages."""
        for rank in list(self._arriving):
            self.take(rank)
        for work in self._sending:
            work.wait(self._timeout)


def _bytes_of(message: bytearray) -> Tensor:
    return torch.frombuffer(message, dtype=torch.uint8)


class Wire:
    """A process group with a time-out for each message and a count of the bytes sent and received."""

    def __init__(self, group: dist.ProcessGroup | None = None, timeout: float = 60.0) -> None:
        if not dist.is_initialized():
            raise Error("no process group exists: call torch.distributed.init_process_group first, or start the program with torchrun")
        if timeout <= 0:
            raise Error(f"the time-out is {timeout}: give a number of seconds above 0, the maximum time that ranks wait for each other")
        world = dist.group.WORLD
        assert world is not None
        self.group = group if group is not None else world
        self.rank, self.ranks = dist.get_rank(self.group), dist.get_world_size(self.group)
        self.timeout = timedelta(seconds=timeout)
        self.link = Link(partial(Exchange, self.group, self.timeout), self.rank, self.ranks, timeout)

    @property
    def traffic(self) -> Traffic:
        """Returns the numbers of bytes that this rank has sent and received up to now."""
        return Traffic(*self.link.traffic)

    @contextmanager
    def checked(self) -> Iterator[None]:
        """Returns a context for checks of this rank's input, which run before ranks exchange arrays.

        If the code in the `with` block raises an error, the other ranks are informed, so that they raise an error too.
        """
        try:
            yield
        except Exception:
            self.link.refuse()
            raise

    def agree(self, what: str, said: Mapping[str, Any]) -> None:
        """Raises `Disagreement` on every rank unless the values in `said` are equal on all ranks; `said` has at most 14 names.

        `said` maps names of options to their values; `what` is the name of the call in the error message.
        """
        self.link.agree(what, [(name, str(value)) for name, value in said.items()])

    def gather(self, part: Tensor) -> list[Tensor]:
        """Returns the tensors `part` of all ranks, in the order of ranks. The tensors must have equal shapes and types."""
        parts = self.link.gather(bytes(part.contiguous().view(-1).view(torch.uint8).numpy()))
        return [torch.frombuffer(other, dtype=part.dtype).view(part.shape) for other in parts]

    def sum(self, what: str, tensor: Tensor) -> None:
        """Replaces a tensor by its sum over all ranks, in place.

        Raises `GroupError` if the exchange fails; `what` is the name of the sum in the error message.
        """
        try:
            dist.all_reduce(tensor, group=self.group, async_op=True).wait(self.timeout)
        except RuntimeError as error:
            reason = (str(error).splitlines() or [type(error).__name__])[0][:300]
            raise GroupError(self.link.lost(f"{what} failed ({reason})")) from error

"""What goes between the ranks of a group: agreements, exchanges, and how they end when a rank is gone.

Every call begins with an agreement of a fixed size, so that ranks which call different things, or the same thing with
different masks, find out before any array is sent. Every wait has a time-out. What fails on one rank is an error on all.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Iterator

import torch
import torch.distributed as dist
from torch import Tensor

from .._noren import Error, __version__

PROTOCOL = 1
"""Changes with what is sent and in which order."""
SLOTS, DIGEST = 16, 16
"""An agreement is 16 digests of 16 bytes in every version, so that versions can tell each other apart."""
REFUSED = b"refused its input"
FIRST = ("state", "version")


class GroupError(RuntimeError):
    """A rank died, stalled or left: nothing that was computed together can be trusted, and every rank stops."""


class Disagreement(GroupError):
    """The ranks were about to compute different things."""


@dataclass
class Traffic:
    """Bytes of arrays that this rank sent to and received from others (not to itself), and of agreements."""

    sent: int = 0
    received: int = 0
    agreements: int = 0

    def copy(self) -> Traffic:
        return Traffic(self.sent, self.received, self.agreements)


class Wire:
    """A process group with a time-out on everything and a count of what was sent."""

    def __init__(self, group: dist.ProcessGroup | None = None, timeout: float = 60.0) -> None:
        if not dist.is_initialized():
            raise Error("there is no process group: call torch.distributed.init_process_group first, or run by torchrun")
        if timeout <= 0:
            raise Error(f"timeout is {timeout}: give seconds, more than 0, that a rank may keep the others waiting")
        self.group = group if group is not None else dist.group.WORLD
        self.rank, self.ranks = dist.get_rank(self.group), dist.get_world_size(self.group)
        self.timeout = timedelta(seconds=timeout)
        self.traffic = Traffic()

    # --- agreeing -------------------------------------------------------------------------------------------------

    @contextmanager
    def checked(self, what: str, said: Mapping[str, Any]) -> Iterator[None]:
        """Runs the block, which checks this rank's input, and then agrees with the others on what is `said`.

        An error in the block is raised here and told to the others. `said` may be filled by the block.
        """
        try:
            yield
        except Exception:
            # the error of this rank says more than that the others are gone too
            with suppress(GroupError):
                self._gather(what, [REFUSED, _version(), *[b""] * (SLOTS - 2)])
            raise
        self.agree(what, said)

    def agree(self, what: str, said: Mapping[str, Any]) -> None:
        """Raises `Disagreement` on every rank unless all ranks say the same: at most 14 named things."""
        names = [*FIRST, *said]
        words = [what.encode(), _version(), *(_bytes(value) for value in said.values())]
        found = self._gather(what, words + [b""] * (SLOTS - len(words)))
        mine = found[0]
        refused = [rank for rank, said in enumerate(found) if said[0] == _digest(REFUSED)]
        if refused:
            raise Disagreement(f"{self.me()}: {what} is not begun, for {_ranks(refused)} refused the input: see the error there")
        differing = [rank for rank, said in enumerate(found) if said[1] != mine[1]]
        if differing:
            raise Disagreement(
                f"{self.me()} (noren {__version__}): {_ranks(differing)} run another version of noren than rank 0: install the "
                "same one everywhere"
            )
        differing = [rank for rank, said in enumerate(found) if said[0] != mine[0]]
        if differing:
            raise Disagreement(
                f"{self.me()} is at {what}, but {_ranks(differing)} and rank 0 are not at the same call: all ranks must make the "
                "same calls in the same order"
            )
        for rank, said_there in enumerate(found):
            wrong = [name for name, a, b in zip(names, said_there, mine, strict=False) if a != b]
            if wrong:
                raise Disagreement(
                    f"{self.me()}: {what} is not begun, for rank {rank} and rank 0 differ in: {', '.join(wrong)}; give the same "
                    f"on every rank (here: {_shown(said, wrong)})"
                )

    def _gather(self, what: str, words: Sequence[bytes]) -> list[list[bytes]]:
        mine = torch.frombuffer(bytearray(b"".join(_digest(word) for word in words)), dtype=torch.uint8)
        found = [torch.empty_like(mine) for _ in range(self.ranks)]
        self.wait(self.start(f"the agreement on {what}", dist.all_gather, found, mine))
        self.traffic.agreements += mine.numel() * (self.ranks - 1)
        blobs = [bytes(tensor.tolist()) for tensor in found]
        return [[blob[i : i + DIGEST] for i in range(0, len(blob), DIGEST)] for blob in blobs]

    # --- exchanging -----------------------------------------------------------------------------------------------

    def exchange(self, what: str, outgoing: Tensor, sent: Sequence[int], received: Sequence[int]) -> Pending:
        """Begins to send `sent[r]` elements of `outgoing` to each rank r, and to receive `received[r]` from it."""
        incoming = outgoing.new_empty(sum(received))
        self.traffic.sent += (sum(sent) - sent[self.rank]) * outgoing.element_size()
        self.traffic.received += (sum(received) - received[self.rank]) * outgoing.element_size()
        return self.start(what, dist.all_to_all_single, incoming, outgoing, list(received), list(sent))

    def collect(self, what: str, part: Tensor) -> list[Tensor]:
        """The parts of all ranks, in their order."""
        parts = [torch.empty_like(part) for _ in range(self.ranks)]
        size = part.numel() * part.element_size() * (self.ranks - 1)
        self.traffic.sent += size
        self.traffic.received += size
        self.wait(self.start(what, dist.all_gather, parts, part))
        return parts

    def start(self, what: str, operation: Any, output: Any, *arguments: Any) -> Pending:
        try:
            return Pending(what, output, operation(output, *arguments, group=self.group, async_op=True), arguments)
        except RuntimeError as error:
            raise self._broken(what, error) from error

    def wait(self, pending: Pending) -> Any:
        """What was received."""
        try:
            pending.work.wait(self.timeout)
        except RuntimeError as error:
            raise self._broken(pending.what, error) from error
        return pending.output

    def _broken(self, what: str, error: RuntimeError) -> GroupError:
        reason = (str(error).splitlines() or [type(error).__name__])[0][:300]
        return GroupError(
            f"{self.me()}: {what} failed: a rank has died, left or kept the others waiting for more than "
            f"{self.timeout.total_seconds():g} s ({reason}). Nothing of this step can be used; every rank stops here. Start again "
            "from the last checkpoint (torchrun --max-restarts does)"
        )

    def me(self) -> str:
        return f"rank {self.rank} of {self.ranks}"


@dataclass
class Pending:
    """What is under way; it holds the tensors that are being read and written."""

    what: str
    output: Any
    work: Any
    arguments: Any


def _version() -> bytes:
    return f"{__version__} {PROTOCOL}".encode()


def _digest(word: bytes) -> bytes:
    return hashlib.blake2b(word, digest_size=DIGEST).digest()


def _bytes(value: Any) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()


def _ranks(ranks: Sequence[int]) -> str:
    return ("rank " if len(ranks) == 1 else "ranks ") + ", ".join(map(str, ranks))


def _shown(said: Mapping[str, Any], names: Sequence[str]) -> str:
    def short(value: Any) -> str:
        text = value.decode(errors="replace") if isinstance(value, bytes) else str(value)
        return text if len(text) <= 80 else text[:77] + "..."

    return ", ".join(f"{name} {short(said[name])}" for name in names if name in said)

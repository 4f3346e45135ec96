"""Tensors sent to several ranks at once, and received from them: one buffer of bytes each way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor

from ._wire import Wire


@dataclass(frozen=True)
class Expected:
    """A tensor that will come."""

    shape: tuple[int, ...]
    dtype: torch.dtype

    @property
    def nbytes(self) -> int:
        return prod(self.shape) * self.dtype.itemsize


class Delivery:
    """`to[r]` on its way to each rank r, while `expected[r]` comes from it."""

    def __init__(self, wire: Wire, what: str, to: Mapping[int, Sequence[Tensor]], expected: Mapping[int, Sequence[Expected]]):
        ranks = range(wire.ranks)
        packed = [tensor.contiguous().reshape(-1).view(torch.uint8) for rank in ranks for tensor in to.get(rank, ())]
        buffer = torch.cat(packed) if packed else torch.empty(0, dtype=torch.uint8)
        sent = [sum(tensor.nbytes for tensor in to.get(rank, ())) for rank in ranks]
        received = [sum(tensor.nbytes for tensor in expected.get(rank, ())) for rank in ranks]
        self._wire, self._expected = wire, expected
        self._pending = wire.exchange(what, buffer, sent, received)

    def open(self) -> dict[int, list[Tensor]]:
        """Waits for it, and gives the tensors by rank, ascending."""
        buffer, at = self._wire.wait(self._pending), 0
        found: dict[int, list[Tensor]] = {}
        for rank in sorted(self._expected):
            tensors = found[rank] = []
            for tensor in self._expected[rank]:
                piece = buffer[at : at + tensor.nbytes]
                at += tensor.nbytes
                # a view must begin at a multiple of its elements' size
                aligned = piece if piece.storage_offset() % tensor.dtype.itemsize == 0 else piece.clone()
                tensors.append(aligned.view(tensor.dtype).view(tensor.shape))
        return found

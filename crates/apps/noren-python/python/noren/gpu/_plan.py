"""Plans in the memory of a GPU: flat arrays in one buffer, which is copied to the GPU once for each plan."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .. import _noren
from .._noren import Error, Plan
from ._launch import Config

Numbers = NDArray[np.int32]


def capacity(count: int) -> int:
    """Returns the space that is reserved for an array of `count` numbers: the smallest of 4, 6, 8, 12, 16, 24, ... that is at
    least `count`.

    Batches of similar size have the same capacities, so that CUDA graphs can be replayed with another plan.
    """
    size = 4
    while size < count:
        size = size * 3 // 2 if size & (size - 1) == 0 else size // 3 * 4
    return size


@dataclass(frozen=True)
class Made:
    """The arrays of a plan in the memory of the CPU."""

    arrays: list[Numbers]
    most: list[int]
    """The maxima over the patterns (distinct sets of cells) of a plan. For a plan in tiles: [number of row tiles, number of key
    tiles]. For a plan for decoding: [number of rows of a block, number of chunks]."""
    least: list[int]
    """The minimum capacity of each array, as a count of numbers. It reserves space for the plans of similar batches."""
    by_head: bool = False
    """True if query heads that share a key-value head have different masks."""


@dataclass(frozen=True)
class Arrays:
    """The arrays of a plan on a device, stored in one buffer. Each array has a capacity: space for the larger array of a later
    plan."""

    buffer: Tensor
    parts: tuple[Tensor, ...]
    most: tuple[int, ...]
    """The maxima over the patterns of a plan (as in `Made.most`: numbers of tiles, or of rows and chunks), each rounded up by the
    function `capacity`."""
    by_head: bool
    """True if query heads that share a key-value head have different masks."""

    def check(self, made: Made) -> None:
        """Raises `Error` if `made` cannot replace these arrays: an array of `made` is larger than its capacity, or query heads
        that share a key-value head have different masks in `made` but not in these arrays.
        """
        if made.by_head and not self.by_head:
            raise Error("in the new plan, query heads that share a key-value head have different masks, but not in the old plan: capture a new CUDA graph with the new plan")
        sizes = [(len(array), part.numel()) for array, part in zip(made.arrays, self.parts, strict=True)]
        sizes += list(zip(made.most, self.most, strict=True))
        for size, limit in sizes:
            if size > limit:
                raise Error(f"the new plan has an array of {size} numbers, but the old plan has space for {limit}: capture a new CUDA graph with the new plan")

    def overwrite(self, made: Made) -> None:
        """Replaces the numbers of the arrays on the device by those of `made`; the arrays keep their memory."""
        sizes = [part.numel() for part in self.parts]
        self.buffer.copy_(_upload(made.arrays, sizes, torch.device("cpu")), non_blocking=True)


def _upload(arrays: Sequence[Numbers], sizes: Sequence[int], device: torch.device) -> Tensor:
    """Returns a buffer on the device that contains all arrays one after another. The array with index `i` has space for
    `sizes[i]` numbers."""
    host = np.zeros(sum(sizes), np.int32)
    at = 0
    for array, size in zip(arrays, sizes, strict=True):
        host[at : at + len(array)] = array
        at += size
    buffer = torch.from_numpy(host)
    if device.type == "cuda":
        buffer = buffer.pin_memory()
    return buffer.to(device, non_blocking=True)


def _arrays(made: Made, device: torch.device) -> Arrays:
    sizes = [-(-capacity(max(len(array), least)) // 4) * 4 for array, least in zip(made.arrays, made.least, strict=True)]
    buffer = _upload(made.arrays, sizes, device)
    ends = np.cumsum(sizes).tolist()
    parts = tuple(buffer[end - size : end] for size, end in zip(sizes, ends, strict=True))
    return Arrays(buffer, parts, tuple(capacity(n) for n in made.most), made.by_head)


Key = tuple[str, tuple[int, int], torch.device]
_KEPT: weakref.WeakKeyDictionary[Plan, dict[Key, Arrays]] = weakref.WeakKeyDictionary()


def _kept(plan: Plan, key: Key) -> Arrays:
    known = _KEPT.setdefault(plan, {})
    if key not in known:
        name, block, device = key
        known[key] = _arrays(MAKERS[name](plan, block), device)
    return known[key]


def replace(old: Plan, new: Plan) -> None:
    """Overwrites the arrays of `old` on all devices by those of `new`, which has the same shape.

    A CUDA graph that was captured with `old` then computes the mask of `new`. Raises `Error`, and changes nothing, if an array of
    `new` is larger than its capacity.
    """
    if repr(old.shape) != repr(new.shape):
        raise Error(f"the plans have the shapes {old.shape} and {new.shape}: give plans of equal shapes")
    made = [(arrays, MAKERS[name](new, block)) for (name, block, _), arrays in _KEPT.get(old, {}).items()]
    for arrays, new_arrays in made:
        arrays.check(new_arrays)
    for arrays, new_arrays in made:
        arrays.overwrite(new_arrays)


def _order(first: Numbers, indptr: Numbers, runs: Numbers) -> Numbers:
    """Returns the indices of the tiles, pattern by pattern. Within a pattern, tiles that read more keys come first, so that no
    long computation starts last.
    """
    lengths = np.concatenate(([0], np.cumsum(runs[1::3].astype(np.int64) - runs[::3])))
    work = np.diff(lengths[indptr])
    pattern = np.repeat(np.arange(len(first) - 1), np.diff(first))
    return np.lexsort((-work, pattern)).astype(np.int32)


MOST_ROOM = 1 << 16
"""The maximum space that is reserved for mixed blocks of later plans, as a number of words (32 bits) of the mask."""


def _tiles(plan: Plan, block: tuple[int, int]) -> Made:
    first, first_key, *arrays = (np.frombuffer(part, np.int32) for part in _noren.device_plan(plan, block))
    rows, keys, words = arrays[:3], arrays[3:6], arrays[6]
    patterns = np.array(_noren.patterns(plan)[1], np.int32)
    groups = patterns.reshape(-1, plan.shape.heads // plan.shape.kv_heads)
    most = [int(np.diff(side).max()) for side in (first, first_key)]
    sides = [[one, _order(one, side[1], side[2]), *side] for one, side in ((first, rows), (first_key, keys))]
    # Room for three runs and one mixed block of its own for each tile.
    counts = [int(one[-1]) for one in (first, first_key)]
    room = min(counts[0] * block[0] * block[1] // 32, MOST_ROOM)
    least = [0, 0, 0, 0, 0, 9 * counts[0], 0, 0, 0, 0, 9 * counts[1], room]
    return Made([patterns, *sides[0], *sides[1], words], most, least, bool((groups != groups[:, :1]).any()))


def _decode(plan: Plan, block: tuple[int, int]) -> Made:
    rows, parts = _noren.decode_plan(plan, *block)
    arrays = [np.frombuffer(part, np.int32) for part in parts]
    chunks = int(arrays[1][-1])
    room = min(2 * chunks * rows * block[0] // 32, MOST_ROOM)
    return Made(arrays, [rows, max(int(np.diff(arrays[1]).max()), 1)], [0, 0, 0, 9 * chunks, room])


def _positions(plan: Plan, _: tuple[int, int]) -> Made:
    return Made([_int32(np.frombuffer(part, np.int64)) for part in _noren.positions(plan)], [], [0, 0])


def _int32(positions: NDArray[np.int64]) -> Numbers:
    if len(positions) and max(-int(positions.min()), int(positions.max())) >= 1 << 30:
        raise Error(f"positions range from {positions.min()} to {positions.max()}, but score modifiers by distance on a GPU need positions below 2^30")
    return positions.astype(np.int32)


MAKERS: dict[str, Callable[[Plan, tuple[int, int]], Made]] = {
    "tiles": _tiles,
    "decode": _decode,
    "positions": _positions,
}


@dataclass(frozen=True)
class Tiles:
    """The tiles of a plan for one kernel, and the arguments that the kernel needs to read them."""

    count: int
    """The maximum number of tiles of a pattern (set of allowed cells), rounded up by `capacity`."""
    packed: int
    """The number of query heads whose rows one tile contains."""
    by_head: bool
    """True if query heads that share a key-value head have different masks."""
    arguments: dict[str, Any]


def tiles(plan: Plan, chosen: Config, device: torch.device, by_key: bool) -> Tiles:
    """Returns the tiles of a plan for a kernel: key tiles if `by_key` is true, else row tiles."""
    packed = chosen.packed(plan.shape.heads // plan.shape.kv_heads)
    lines, keys = chosen.block
    kept = _kept(plan, ("tiles", (lines // packed, keys), device))
    if kept.by_head and packed > 1:
        packed = 1
        kept = _kept(plan, ("tiles", (lines, keys), device))
    names = ("first_tile", "order", "tiles", "indptr", "runs")
    side = kept.parts[6:11] if by_key else kept.parts[1:6]
    arguments = {"pattern_of": kept.parts[0], **dict(zip(names, side, strict=True)), "words": kept.parts[11]}
    return Tiles(kept.most[by_key], packed, kept.by_head, arguments)


def chunks(plan: Plan, block_kv: int, chunk: int, device: torch.device) -> tuple[int, int, dict[str, Any]]:
    """Returns the plan for the decode kernel, divided into chunks of `chunk` keys: (number of rows of a block, maximum number
    of chunks in a pattern (set of allowed cells), arguments of the kernel by name)."""
    kept = _kept(plan, ("decode", (block_kv, chunk), device))
    names = ("pattern_of", "first_chunk", "indptr", "runs", "words")
    rows = int(kept.most[0])
    return rows, kept.most[1], dict(zip(names, kept.parts, strict=True))


def positions(plan: Plan, device: torch.device) -> tuple[Tensor, Tensor]:
    """Returns (positions of queries, positions of keys) of all batch rows, as tensors `[batch * q_len]` and `[batch * kv_len]`."""
    kept = _kept(plan, ("positions", (0, 0), device))
    return kept.parts[0], kept.parts[1]

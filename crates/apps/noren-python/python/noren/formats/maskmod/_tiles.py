"""Computes the cells of a mask function as tiles of 64 queries and 64 keys: empty, full, or mixed with exact bits."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..._noren import Error
from ._evaluate import Evaluator
from ._nodes import Bounder, Node, Ranges, Wide, evaluate
from ._trace import Trace

SIDE = 64
"""Number of queries in a tile, and number of keys in a tile."""
COARSE = 16
"""Number of columns of tiles that are first classified as a whole, together with all rows of a strip: full, empty, or to be examined tile
by tile."""
MOST_SCALAR = 1 << 25
"""Maximum number of cells of one batch row and head for which the mask function is called, if each call computes one cell."""
MOST_EVALUATED = 1 << 35
"""Maximum number of cells of one batch row and head for which the mask function is called, if each call computes many cells."""
AT_ONCE = 1 << 20
"""Maximum number of cells that are computed at once: in one call of the mask function, or in one evaluation of its recorded
operations."""
CHECKED = 128
"""Number of random cells that are checked: the mask function is called again for each of them alone."""
EMPTY, FULL, MIXED = 0, 1, 2

States = NDArray[np.int8]
Ints = NDArray[np.int64]


class Tiler:
    """Computes the tiles of a mask function. `trace` has the recorded operations of the function, or is None."""

    def __init__(self, evaluator: Evaluator, trace: Trace | None, name: str) -> None:
        self.evaluator, self.trace, self.name = evaluator, trace, name

    def __call__(self, batch: int, head: int, first: int, end: int, keys_end: int, count: int) -> tuple[bytes, bytes]:
        """Returns the tiles of the queries from `first` to before `end`, as the two arrays of bytes (states, bits) that
        `noren._noren.tile_function` reads. `count` is the number of all queries of the batch row.

        `states` has a byte for each tile, row by row: `EMPTY`, `FULL` or `MIXED`. `bits` has 64 numbers of 64 bits for each mixed
        tile: one number for each query, in which each key has one bit.
        """
        place, queries = (batch, head), (first, end)
        checked = max(1, CHECKED * (end - first) // count)
        if self.trace is not None:
            try:
                self._check_tables(place, queries, keys_end)
                strip = Strip(self.evaluator, self.trace.result, place, queries, keys_end)
                strip.check_cells(checked)
                return strip.packed()
            except (Wide, _Differs):
                pass  # the trace does not hold for these cells: the function itself decides
        self._check_budget(count, keys_end)
        strip = Strip(self.evaluator, None, place, queries, keys_end)
        try:
            strip.check_cells(checked)
        except _Differs as error:
            raise Error(
                f"the mask function {self.name} gives different results for the same cell, {error}: it depends on random numbers, on "
                "state that changes, or on which cells are evaluated together; give a pure function of its four arguments"
            ) from None
        return strip.packed()

    def _check_tables(self, place: tuple[int, int], queries: tuple[int, int], keys_end: int) -> None:
        """Finds a cell in which, according to the recorded operations, the function reads captured data beyond its end, and
        calls the function there. The call raises the function's exception.

        Raises `_Differs` if the function raises no exception there.
        """
        assert self.trace is not None
        if self.trace.fails.op == "const" and not self.trace.fails.value:
            return
        strip = Strip(self.evaluator, self.trace.fails, place, queries, keys_end)
        if not strip.states.any():
            return
        row, column = np.argwhere(strip.states)[0].tolist()
        q, k = queries[0] + row * SIDE, column * SIDE
        if strip.states[row, column] == MIXED:
            line, key = np.argwhere(np.unpackbits(strip.bits[0], axis=-1, bitorder="little"))[0].tolist()
            q, k = q + line, k + key
        self.evaluator.cells(*place, np.array([q]), np.array([k]))
        raise _Differs(f"query {q}, key {k}")

    def _check_budget(self, count: int, keys_end: int) -> None:
        """Raises `Error` if the mask function must be called for more cells than the maximum."""
        scalar = self.evaluator.mode == "scalar"
        most = MOST_SCALAR if scalar else MOST_EVALUATED
        if count * keys_end > most:
            how, fix = ("one cell at a time", "write it with operators of tensors (&, |, torch.where)") if scalar else ("in arrays", "write it with operations that can be recorded, without .item() and floats")
            raise Error(f"the mask function {self.name} is evaluated {how}, and needs more than {most} cells for {count} queries and {keys_end} keys: {fix}")


class _Differs(Exception):
    """Raised if two evaluations of the same cell gave different results; the message names the cell."""


class Strip:
    """The tiles of one batch row and head, for the queries from `queries[0]` to before `queries[1]` and the keys before `keys_end`.

    `states` is `[rows of tiles, columns]`; `bits` has the cells of the mixed tiles, row by row.
    """

    def __init__(self, evaluator: Evaluator, node: Node | None, place: tuple[int, int], queries: tuple[int, int], keys_end: int) -> None:
        self.evaluator, self.node, self.place, self.queries, self.keys_end = evaluator, node, place, queries, keys_end
        sizes = -(-(queries[1] - queries[0]) // SIDE), -(-keys_end // SIDE)
        self.states: States = np.full(sizes, MIXED, np.int8) if node is None else self._bounded(Bounder(node), *sizes)
        row, column = np.nonzero(self.states == MIXED)
        words = [np.zeros((0, SIDE, SIDE // 8), np.uint8)]
        for tiles, cells in self._evaluated(row, column):
            inside = self._inside(row[tiles], column[tiles])
            full = (cells | ~inside).all(axis=(1, 2))
            some = (cells & inside).any(axis=(1, 2))
            self.states[row[tiles], column[tiles]] = np.where(full, FULL, np.where(some, MIXED, EMPTY))
            words.append(np.packbits(cells & inside, axis=-1, bitorder="little")[some & ~full])
        self.bits = np.concatenate(words)

    def packed(self) -> tuple[bytes, bytes]:
        """Returns (states, bits) as bytes, in the form that `Tiler.__call__` returns."""
        return self.states.tobytes(), self.bits.tobytes()

    def _bounded(self, bounder: Bounder, rows: int, columns: int) -> States:
        """Returns the state of each tile: full, empty, or open (`MIXED`: its cells must be evaluated). The states follow from the ranges of
        the recorded expression. These are computed for large blocks first, then for the tiles in open blocks."""
        batch, head = (np.asarray(i, np.int64) for i in self.place)

        def states(q: Ranges, k: Ranges) -> States:
            low, high = bounder.ranges({"b": (batch, batch), "h": (head, head), "q": q, "k": k})
            found = np.where(low, FULL, np.where(high, MIXED, EMPTY)).astype(np.int8)
            return np.broadcast_to(found, (q[0].size, k[0].size))

        def ranges(count: int, side: int, first: int, end: int) -> Ranges:
            start = first + np.arange(count, dtype=np.int64) * side
            return start, np.minimum(start + side, end) - 1

        low, high = ranges(rows, SIDE, *self.queries)
        k = ranges(-(-columns // COARSE), SIDE * COARSE, 0, self.keys_end)
        coarse = states((low[:1, None], high[-1:, None]), (k[0][None], k[1][None]))
        made = np.repeat(np.repeat(coarse, COARSE, 1)[:, :columns], rows, 0)
        column = np.flatnonzero(made[0] == MIXED)
        if len(column):
            k = ranges(columns, SIDE, 0, self.keys_end)
            made[:, column] = states((low[:, None], high[:, None]), (k[0][None, column], k[1][None, column]))
        return made

    def _evaluated(self, row: Ints, column: Ints) -> Any:
        """Evaluates tiles in groups. Yields (indices of the tiles of a group, their cells `[tiles, 64, 64]`). Cells after the
        last query or key are copies of the cells of the last query or key."""
        if self.node is not None:
            count = AT_ONCE // SIDE**2
            for start in range(0, len(row), count):
                tiles = np.arange(start, min(start + count, len(row)))
                q, k = self._positions(row[tiles], column[tiles])
                batch, head = (np.asarray(i, np.int64) for i in self.place)
                cells = evaluate(self.node, {"b": batch, "h": head, "q": q[:, :, None], "k": k[:, None, :]})
                yield tiles, np.broadcast_to(cells, (len(tiles), SIDE, SIDE))
            return
        for tiles in _lines(row, column, AT_ONCE // SIDE**2):
            q, k = self._positions(row[tiles], column[tiles])
            rows = min(SIDE, self.queries[1] - int(q[0, 0]))
            keys = np.unique(k)
            cells = self.evaluator.cells(*self.place, q[0, :rows], keys)
            cells = np.pad(cells, ((0, SIDE - rows), (0, len(tiles) * SIDE - len(keys))))
            yield tiles, cells.reshape(SIDE, len(tiles), SIDE).swapaxes(0, 1)

    def _positions(self, row: Ints, column: Ints) -> tuple[Ints, Ints]:
        side = np.arange(SIDE, dtype=np.int64)
        q = np.minimum(self.queries[0] + row[:, None] * SIDE + side, self.queries[1] - 1)
        return q, np.minimum(column[:, None] * SIDE + side, self.keys_end - 1)

    def _inside(self, row: Ints, column: Ints) -> NDArray[np.bool_]:
        side = np.arange(SIDE, dtype=np.int64)
        q = self.queries[0] + row[:, None] * SIDE + side < self.queries[1]
        return q[:, :, None] & (column[:, None] * SIDE + side < self.keys_end)[:, None, :]

    def check_cells(self, count: int) -> None:
        """Evaluates `count` random cells again, one cell in each call, and compares the results with the tiles. Raises `_Differs` if a
        result differs."""
        rng = np.random.default_rng(self.queries[0])
        mixed = self.states == MIXED
        slots = np.cumsum(mixed).reshape(mixed.shape) - 1
        for _ in range(count):
            q, k = int(rng.integers(*self.queries)), int(rng.integers(self.keys_end))
            (row, line), (column, key) = divmod(q - self.queries[0], SIDE), divmod(k, SIDE)
            held = bool(self.states[row, column] == FULL)
            if mixed[row, column]:
                held = bool(self.bits[slots[row, column], line, key // 8] >> (key % 8) & 1)
            if bool(self.evaluator.cells(*self.place, np.array([q]), np.array([k]))[0, 0]) != held:
                raise _Differs(f"batch row {self.place[0]}, head {self.place[1]}, query {q}, key {k}")


def _lines(row: Ints, column: Ints, most: int) -> list[Ints]:
    """Returns groups of tiles, each as a list of indices in `row` and `column`. The tiles of a group are in one row of tiles,
    in consecutive columns; a group has at most `most` tiles."""
    if not len(row):
        return []
    breaks = np.flatnonzero((np.diff(row) != 0) | (np.diff(column) != 1)) + 1
    lines = np.split(np.arange(len(row)), breaks)
    return [line[start : start + most] for line in lines for start in range(0, len(line), most)]

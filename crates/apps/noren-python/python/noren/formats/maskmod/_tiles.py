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
"""Number of rows of tiles that are computed together. If the operations of the mask function were recorded, blocks of `COARSE` rows
and `COARSE` columns of tiles are first classified as a whole: full, empty, or to be examined tile by tile."""
MOST_MIXED = 1 << 21
"""Maximum number of mixed tiles of one batch row and head; their bits take 1 GiB."""
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
_FULL_SLOT = 0xFFFFFFFF

States = NDArray[np.int8]
Ints = NDArray[np.int64]


class Tiler:
    """Computes the tiles of a mask function. `trace` has the recorded operations of the function, or is None."""

    def __init__(self, evaluator: Evaluator, trace: Trace | None, name: str) -> None:
        self.evaluator, self.trace, self.name = evaluator, trace, name

    def __call__(self, batch: int, head: int, first: int, end: int, keys_end: int) -> tuple[bytes, bytes]:
        """Returns the tiles that are not empty in the rows of tiles from `first` to `end`, as the two arrays of bytes (tiles, bits)
        that `noren._noren.tile_function` reads.

        `tiles` has four numbers of 32 bits for each run of neighbouring tiles: the row of tiles; the column of the first tile; the
        column after the last tile; for mixed tiles the index in `bits` of the first tile, for full tiles 2^32 - 1. `bits` has 64
        numbers of 64 bits for each mixed tile: one number for each query, in which each key has one bit.
        """
        if self.trace is not None:
            try:
                self._check_tables((batch, head), (first, end), keys_end)
                found = Region(self, self.trace.result, (batch, head), (first, end), keys_end)
                found.compute()
                found.check_cells()
                return found.packed()
            except (Wide, _Differs):
                pass  # the trace does not hold for these cells: the function itself decides
        found = Region(self, None, (batch, head), (first, end), keys_end)
        found.compute()
        try:
            found.check_cells()
        except _Differs as error:
            raise Error(
                f"the mask function {self.name} gives different results for the same cell, {error}: it depends on random numbers, on "
                "state that changes, or on which cells are evaluated together; give a pure function of its four arguments"
            ) from None
        return found.packed()

    def _check_tables(self, place: tuple[int, int], queries: tuple[int, int], keys_end: int) -> None:
        """Finds a cell in which, according to the recorded operations, the function reads captured data beyond its end, and
        calls the function there. The call raises the function's exception.

        Raises `_Differs` if the function raises no exception there.
        """
        assert self.trace is not None
        if self.trace.fails.op == "const" and not self.trace.fails.value:
            return
        region = Region(self, self.trace.fails, place, queries, keys_end)
        region.compute()
        if not region.runs:
            return
        row, column, _, slot = (int(number) for number in region.runs[0][0])
        q, k = queries[0] + row * SIDE, column * SIDE
        if slot != _FULL_SLOT:
            cells = np.unpackbits(np.concatenate(region.bits)[slot], axis=-1, bitorder="little")
            first = np.argwhere(cells)[0]
            q, k = q + int(first[0]), k + int(first[1])
        self.evaluator.cells(*place, np.array([q]), np.array([k]))
        raise _Differs(f"query {q}, key {k}")


class _Differs(Exception):
    """Raised if two evaluations of the same cell gave different results; the message names the cell."""


class Region:
    """The tiles of one batch row and head, for the queries from `queries[0]` to before `queries[1]` and the keys before `keys_end`."""

    def __init__(
        self, tiler: Tiler, node: Node | None, place: tuple[int, int], queries: tuple[int, int], keys_end: int
    ) -> None:
        self.tiler, self.node, self.place, self.queries, self.keys_end = tiler, node, place, queries, keys_end
        self.rows = -(-(queries[1] - queries[0]) // SIDE)
        self.columns = -(-keys_end // SIDE)
        self.runs: list[NDArray[np.uint32]] = []
        self.bits: list[NDArray[np.uint8]] = []
        self.mixed = 0
        self._bounder = Bounder(node) if node is not None else None

    def compute(self) -> None:
        """Computes all tiles. Raises `Error` if there are too many mixed tiles, and passes on the errors of the mask function."""
        self._check_budget()
        for first in range(0, self.rows, COARSE):
            rows = np.arange(first, min(first + COARSE, self.rows), dtype=np.int64)
            row, column = self._classify(rows)
            self._store(row, column)

    def _check_budget(self) -> None:
        """Raises `Error` if the mask function must be called for more cells than the maximum."""
        scalar = self.tiler.evaluator.mode == "scalar"
        most = MOST_SCALAR if scalar else MOST_EVALUATED
        if self.node is None and self.rows * self.columns * SIDE * SIDE > most:
            how, fix = ("one cell at a time", "write it with operators of tensors (&, |, torch.where)") if scalar else ("in arrays", "write it with operations that can be recorded, without .item() and floats")
            raise Error(
                f"the mask function {self.tiler.name} is evaluated {how}, and needs more than {most} cells for {self.queries[1] - self.queries[0]} queries and "
                f"{self.keys_end} keys: {fix}"
            )

    def _classify(self, rows: Ints) -> tuple[Ints, Ints]:
        """Classifies the tiles in the rows of tiles `rows`: full, empty, or open (the cells must be evaluated). Returns (rows,
        columns) of the open tiles."""
        self._states = np.full((len(rows), self.columns), MIXED, np.int8) if self._bounder is None else self._bounded(rows)
        row, column = np.nonzero(self._states == MIXED)
        return rows[row], column

    def _variables(self, q: Ranges, k: Ranges) -> dict[str, Ranges]:
        batch, head = (np.asarray(i, np.int64) for i in self.place)
        return {"b": (batch, batch), "h": (head, head), "q": q, "k": k}

    def _bounded(self, rows: Ints) -> States:
        """Returns the state of each tile in the rows of tiles `rows`: full, empty, or open (its cells must be evaluated). The
        states follow from the ranges of the recorded expression. These are computed for large blocks first, then for the tiles
        in open blocks."""
        assert self._bounder is not None
        start = self.queries[0] + rows * SIDE
        q = (start[:, None], np.minimum(start + SIDE, self.queries[1])[:, None] - 1)
        whole = (q[0].min(keepdims=True), q[1].max(keepdims=True))
        blocks = np.arange(-(-self.columns // COARSE), dtype=np.int64)
        side = SIDE * COARSE
        k = (blocks[None] * side, np.minimum((blocks + 1) * side, self.keys_end)[None] - 1)
        coarse = _states(self._bounder.ranges(self._variables(whole, k)), (1, len(blocks)))[0]
        states = np.repeat(np.repeat(coarse, COARSE)[None, : self.columns], len(rows), 0)
        column = np.flatnonzero(states[0] == MIXED)
        if len(column):
            k = (column[None] * SIDE, np.minimum((column + 1) * SIDE, self.keys_end)[None] - 1)
            fine = _states(self._bounder.ranges(self._variables(q, k)), (len(rows), len(column)))
            states[:, column] = fine
        return states

    def _store(self, row: Ints, column: Ints) -> None:
        """Evaluates the cells of the open tiles; `row` and `column` are the indices of these tiles. Appends the tiles of the
        current rows that are not empty to `runs`, and the bits of the mixed tiles to `bits`."""
        words: list[NDArray[np.uint8]] = []
        strip = (row // COARSE * COARSE)[0] if len(row) else 0
        for tiles, cells in self._evaluated(row, column):
            inside = self._inside(row[tiles], column[tiles])
            full = (cells | ~inside).all(axis=(1, 2))
            some = (cells & inside).any(axis=(1, 2))
            self._states[row[tiles] - strip, column[tiles]] = np.where(full, FULL, np.where(some, MIXED, EMPTY))
            words.append(np.packbits(cells & inside, axis=-1, bitorder="little")[some & ~full])
        at_row, at_column = np.nonzero(self._states)
        kind = self._states[at_row, at_column]
        first_row = self._strip
        self._strip += len(self._states)
        is_mixed = kind == MIXED
        slot = np.where(is_mixed, self.mixed + np.cumsum(is_mixed) - 1, _FULL_SLOT)
        self.mixed += int(is_mixed.sum())
        if self.mixed > MOST_MIXED:
            raise Error(
                f"the mask function {self.tiler.name} has more than {MOST_MIXED} mixed tiles for batch row {self.place[0]}, head "
                f"{self.place[1]}: add a condition inside the function that allows fewer cells, such as a window"
            )
        self.bits.extend(words)
        if not len(at_row):
            return
        begins = np.ones(len(at_row), np.bool_)
        begins[1:] = (np.diff(at_row) != 0) | (np.diff(at_column) != 1) | (np.diff(kind) != 0)
        start = np.flatnonzero(begins)
        last = np.append(start[1:], len(at_row)) - 1
        run = [first_row + at_row[start], at_column[start], at_column[last] + 1, slot[start]]
        self.runs.append(np.stack(run, axis=1).astype(np.uint32))

    _strip = 0

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
            cells = self.tiler.evaluator.cells(*self.place, q[0, :rows], keys)
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

    def check_cells(self) -> None:
        """Evaluates random cells again, one cell in each call, and compares the results with the tiles. Raises `_Differs` if a
        result differs."""
        runs = np.concatenate(self.runs) if self.runs else np.zeros((0, 4), np.uint32)
        words = np.concatenate(self.bits) if self.bits else np.zeros((0, SIDE, SIDE // 8), np.uint8)
        rng = np.random.default_rng(0)
        keys = runs[:, 0].astype(np.int64) * (self.columns + 1) + runs[:, 1]
        for _ in range(CHECKED):
            q, k = int(rng.integers(*self.queries)), int(rng.integers(self.keys_end))
            at = (q - self.queries[0], k)
            tile = at[0] // SIDE * (self.columns + 1) + at[1] // SIDE
            run = int(np.searchsorted(keys, tile, "right")) - 1
            held = False
            if run >= 0 and runs[run, 0] == at[0] // SIDE and at[1] // SIDE < runs[run, 2]:
                held = True
                if runs[run, 3] != _FULL_SLOT:
                    word = words[int(runs[run, 3]) + at[1] // SIDE - int(runs[run, 1]), at[0] % SIDE]
                    held = bool(word[at[1] % SIDE // 8] >> (at[1] % 8) & 1)
            truth = bool(self.tiler.evaluator.cells(*self.place, np.array([q]), np.array([k]))[0, 0])
            cell = f"batch row {self.place[0]}, head {self.place[1]}, query {q}, key {k}"
            if truth != held:
                raise _Differs(cell)

    def packed(self) -> tuple[bytes, bytes]:
        """Returns (groups of consecutive tiles, bits of the mixed tiles) as bytes, in the form that `Tiler.__call__` returns."""
        return b"".join(part.tobytes() for part in self.runs), b"".join(part.tobytes() for part in self.bits)


def _states(ranges: Ranges, shape: tuple[int, int]) -> States:
    low, high = ranges
    return np.broadcast_to(np.where(low, FULL, np.where(high, MIXED, EMPTY)), shape).astype(np.int8)


def _lines(row: Ints, column: Ints, most: int) -> list[Ints]:
    """Returns groups of tiles, each as a list of indices in `row` and `column`. The tiles of a group are in one row of tiles,
    in consecutive columns; a group has at most `most` tiles."""
    if not len(row):
        return []
    breaks = np.flatnonzero((np.diff(row) != 0) | (np.diff(column) != 1)) + 1
    lines = np.split(np.arange(len(row)), breaks)
    return [line[start : start + most] for line in lines for start in range(0, len(line), most)]

"""The input of exporters: the plan of a mask, its patterns (distinct sets of cells), and the runs (ranges) of keys that each
query row reads."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import _noren
from .._noren import BoundMask, Error, ExportError, Facts, Mask, Plan, Score, Shape, Spec
from ..arguments._arrays import Array
from ..arguments._given import short
from ..masks._doctor import Recognised, recognise
from ..masks._forms import resolved
from ..masks._views import dense

Exported = Mask | Spec | BoundMask | Plan | Recognised | str
"""The types of masks that exporters accept: a mask, its text, or a mask with score modifiers (for these three, give a shape); a
bound mask; a plan; the result of `nr.recognise`."""

Bools = NDArray[np.bool_]
Ints = NDArray[np.int32]
EMPTY, FULL = -1, -2
"""The numbers of empty and of full blocks; other numbers are indices of mixed blocks."""
MOST_CELLS = 1 << 30
"""Maximum number of cells of a mask that is imported from another format."""
MOST_BLOCKS = 1 << 28
"""Maximum number of blocks into which the cells of a mask are divided, and maximum number of cells of a block."""


@dataclass(frozen=True)
class Runs:
    """Lists of runs. A run is a range of consecutive indices (start, end), without the end. List `i` is
    `runs[indptr[i]:indptr[i + 1]]`; its runs are in ascending order and do not touch."""

    indptr: NDArray[np.int64]
    runs: NDArray[np.int64]

    @staticmethod
    def of(given: tuple[bytes, bytes]) -> Runs:
        indptr, runs = (np.frombuffer(part, np.uint32).astype(np.int64) for part in given)
        return Runs(indptr, runs.reshape(-1, 2))

    @property
    def counts(self) -> NDArray[np.int64]:
        return np.diff(self.indptr)

    @property
    def most(self) -> int:
        """The number of runs in the longest list."""
        return int(self.counts.max(initial=0))

    @property
    def owners(self) -> NDArray[np.int64]:
        """Returns for each run the index of its list."""
        return np.repeat(np.arange(len(self.indptr) - 1), self.counts)


@dataclass(frozen=True)
class Source:
    """A mask to be exported: its plan, the name of the target format (`target`), and the score modifiers of the mask."""

    plan: Plan
    target: str
    scores: tuple[Score, ...] = ()

    @cached_property
    def shape(self) -> Shape:
        return self.plan.shape

    @cached_property
    def patterns(self) -> NDArray[np.int64]:
        """The index of the pattern (set of allowed cells) of each batch row and head, `[batch, heads]`. The first dimension
        is 1 if all batch rows are equal, the second is 1 if all heads are equal.
        """
        _, of = _noren.patterns(self.plan)
        all_of = np.array(of, np.int64).reshape(self.shape.batch, self.shape.heads)
        if (all_of == all_of[:, :1]).all():
            all_of = all_of[:, :1]
        return all_of[:1] if (all_of == all_of[:1]).all() else all_of

    @property
    def count(self) -> int:
        """The number of distinct patterns (sets of allowed cells) of the mask."""
        return _noren.patterns(self.plan)[0]

    def rows(self, pattern: int) -> Runs:
        """Returns for each query row of the pattern with the index `pattern` the runs (ranges) of keys that the row reads."""
        return Runs.of(_noren.row_runs(self.plan, pattern))

    @cached_property
    def all_rows(self) -> list[Runs]:
        return [self.rows(pattern) for pattern in range(self.count)]

    @property
    def most_runs(self) -> int:
        """The maximum number of runs (ranges) of keys that a query row reads, at least 1."""
        return max(1, *(rows.most for rows in self.all_rows))

    def endpoints(self) -> Ints:
        """Returns for each query row of each pattern its runs of keys as (start, end), `[patterns, q_len, 2 * most_runs]`. Unused
        entries are (0, 0)."""
        out = np.zeros((self.count, self.shape.q_len, self.most_runs, 2), np.int32)
        for table, rows in zip(out, self.all_rows, strict=True):
            table[rows.owners, np.arange(len(rows.runs)) - rows.indptr[rows.owners]] = rows.runs
        return out.reshape(*out.shape[:2], -1)

    def by_row(self) -> list[int]:
        """Returns the index of the pattern of each batch row. Raises `ExportError` if heads differ."""
        self.refuse_heads()
        found: list[int] = np.broadcast_to(self.patterns[:, 0], self.shape.batch).tolist()
        return found

    def blocks(self, block: tuple[int, int], cut_may_be_full: bool) -> tuple[Ints, list[NDArray[np.uint32]]]:
        """Divides the cells of each pattern into rectangles of `block` = (queries, keys). Returns the numbers of the rectangles,
        `[patterns, rows, columns]` (`EMPTY`, `FULL` or the index among the mixed rectangles of the pattern), and for each pattern the
        bits of the mixed rectangles, `[mixed rectangles, queries, words of 32 keys]`.

        If `cut_may_be_full` is true, a rectangle beyond the last query or key counts as full if all its existing cells are allowed.
        """
        made = [_noren.blocks(self.plan, pattern, block, cut_may_be_full) for pattern in range(self.count)]
        slots = np.stack([np.frombuffer(slot, np.int32).reshape(shape) for shape, slot, _ in made])
        return slots, [np.frombuffer(bits, np.uint32).reshape(-1, block[0], -(-block[1] // 32)) for _, _, bits in made]

    def cells(self) -> Bools:
        """Returns the cells `[batch or 1, heads or 1, q_len, kv_len]` as booleans; true may attend."""
        return dense(self.plan.bound, *self.patterns.shape)

    def empty_rows(self) -> NDArray[np.int64]:
        """Returns the first query row without an allowed key, as an array `[batch row, head, query]`; an empty array if every
        row has a key."""
        for (batch, head), pattern in np.ndenumerate(self.patterns):
            empty = np.flatnonzero(self.rows(int(pattern)).counts == 0)
            if len(empty):
                return np.array([batch, head, empty[0]])
        return np.zeros(0, np.int64)

    def refuse_heads(self) -> None:
        if self.patterns.shape[1] > 1:
            raise ExportError(
                f"{self.target} cannot express a mask that differs between heads: export each group of equal heads separately, or use a dense mask or a FlexAttention mask"
            )

    def refuse_empty_rows(self, meaning: str) -> None:
        row = self.empty_rows()
        if len(row):
            batch, head, query = row.tolist()
            raise ExportError(
                f"{self.target} cannot express a mask in which query {query} (batch row {batch}, head {head}) reads nothing: in the target format, a query that reads nothing would return {meaning}, but noren returns 0: let the query read its own key, and ignore the output of the query"
            )


def read(
    mask: Exported,
    shape: Shape | int | None,
    facts: Facts | Mapping[str, Any] | None,
    target: str,
    scores: Sequence[str] = (),
) -> Source:
    """Returns the `Source` of a mask to be exported. `target` is the name of the format in errors. `scores` lists the kinds of
    score modifiers that the format supports; raises `ExportError` for a score modifier of another kind.
    """
    made, found = resolved(mask, shape, facts)
    kinds = [score.kind for score in found]
    for score in found:
        if kinds.count(score.kind) > 1 and score.kind not in ("bias", "relative"):
            raise Error(f"`{mask}` has the score modifier `{score.kind}` {kinds.count(score.kind)} times: give the modifier once")
        if score.kind not in scores:
            raise ExportError(
                f"{target} cannot express the score modifier `{score}`: export spec.mask without the modifier; pass the modifier separately, if the target format has an argument for it"
            )
    return Source(made if isinstance(made, Plan) else made.plan(reorder="never"), target, tuple(found))


def block_sizes(shape: Shape, block: Any) -> tuple[int, int]:
    """Returns the size of a block as (queries, keys). If `block` is one number, both sizes are this number.

    Raises `Error` for sizes that are not whole numbers of 1 or more, for blocks with too many cells, and if `shape` has too
    many blocks.
    """
    pair = tuple(block) if isinstance(block, (tuple, list)) else (block, block)
    if len(pair) != 2 or not all(isinstance(size, (int, np.integer)) and not isinstance(size, bool) and size >= 1 for size in pair):
        raise Error(f"`block` is {short(block)}: give sizes of 1 or more, (queries, keys)")
    rows, keys = (int(size) for size in pair)
    count = -(-shape.q_len // rows) * -(-shape.kv_len // keys)
    if rows * keys > MOST_BLOCKS or count > MOST_BLOCKS:
        raise Error(
            f"`block` is {short(block)}, which divides {shape.q_len} x {shape.kv_len} cells into {count} blocks of {rows * keys} cells: give sizes with at most {MOST_BLOCKS} blocks of at most {MOST_BLOCKS} cells"
        )
    return rows, keys


def sorted_lists(which: Bools) -> tuple[Ints, Ints]:
    """Returns for each row of booleans (number of true entries, all column indices, those of true entries first). For the row
    [0, 1, 1], the result is 2 and [1, 2, 0].
    """
    return which.sum(-1, dtype=np.int32), np.argsort(~which, axis=-1, kind="stable").astype(np.int32)


def found(cells: Array, source: str) -> BoundMask:
    """Returns the smallest mask found whose allowed cells are exactly those in `cells`, `[batch, heads, q_len, kv_len]`.

    `source` is the name of the array in error messages.
    """
    count = math.prod(cells.shape)
    if count > MOST_CELLS:
        raise Error(f"{source} has {count} cells, but the maximum is {MOST_CELLS}: convert the mask in parts")
    return recognise(np.ascontiguousarray(cells), "keep").bind()

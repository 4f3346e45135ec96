"""`from_score_mod` converts a `score_mod` of FlexAttention that adds a number to each score. The result is a bias, slopes of
ALiBi, a table by distance, or a mask."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._given import short
from .._noren import Error, Mask, Shape, full
from ._evaluate import Evaluator, Refused
from ._mask import _name, from_mask_mod

SCORES = (0.0, 1.0, -2.5, 8.0)
"""The values of the argument `score` with which a function is called in each cell. The bias is the result for the first value,
0."""
TOLERANCE = 1e-5
"""Maximum difference between `function(score)` and `score + bias` that counts as rounding. The difference is divided by 1 plus
the absolute values of score and bias."""
ROWS = 64
"""Maximum number of queries that are evaluated in one call."""
AT_ONCE = 1 << 22
"""Maximum number of cells that are evaluated in one call; a single query is evaluated in one call even if it has more keys."""
MOST_CELLS = 1 << 28
"""Maximum number of entries of a bias."""
MOST_ENTRIES = 1 << 26
"""Maximum number of entries of a table by distance; a function that needs more becomes a bias."""

Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class ScoreMod:
    """An additive score function as arguments of attention.

    `arguments` are keyword arguments of `nr.attention` and `nt.attention`: `{}` (nothing is added), `{"alibi": slopes}`,
    `{"relative": table}` (`[heads, 2 * reach + 1]`, by key position minus query position), or `{"bias": array}` (`[batch or 1, heads
    or 1, q_len, kv_len]`). `mask` hides the cells in which the function returns -inf; it is `full` if there are none. `shape`
    is the shape for which the function was evaluated, in `cells` cells at each score in `SCORES`.
    """

    arguments: dict[str, Any]
    mask: Mask
    shape: Shape
    cells: int

    @property
    def established(self) -> str:
        """A sentence that describes the score function, and states the shape and the number of cells for which the description
        was checked."""
        kind = next(iter(self.arguments), "the function does not change the scores")
        return (
            f"additive ({kind}) for {self.shape}: score + bias was compared with the function in {self.cells} cells at the scores "
            f"{', '.join(map(str, SCORES))}; other scores and lengths were not evaluated"
        )

    def __repr__(self) -> str:
        return f"<ScoreMod: {self.established}>"


def from_score_mod(function: Callable[..., Any], shape: Shape | int, *, name: str | None = None) -> ScoreMod:
    """Returns the bias of a function `score_mod(score, b, h, q_idx, kv_idx)` that adds a number to the score, for one shape.

    The number must not depend on the score: the function is evaluated in every cell at several scores. A function that adds
    -slope * |q_idx - kv_idx| becomes slopes of ALiBi. A function that depends only on head and distance becomes a table. Other
    functions become an array `[batch or 1, heads or 1, q_len, kv_len]`. Cells with -inf become a mask. Indices are positions,
    as in `from_mask_mod`.

    Raises `Error` if the function is not additive, and names the modifier of noren that replaces it (`softcap`, `scale`), if
    there is one. Raises `Error` too if the function raises an exception (which is the cause), or returns NaN or something else
    than floats. Raises TypeError if the function is not callable.
    """
    if not callable(function):
        raise TypeError(f"the score function is {short(function)}: give a function of (score, b, h, q_idx, kv_idx)")
    sizes = shape if isinstance(shape, Shape) else Shape.square(shape)
    named = _name(function) if name is None else name
    source = _Source(function, sizes, named)
    hidden = False
    reduced = _Reduced(source)
    for place, q, bias in source.blocks(check=True):
        hidden = hidden or bool(np.isneginf(bias).any())
        reduced.add(place, q, bias)
    mask = full()
    if hidden:
        mask = from_mask_mod(_finite(function), name=named)
    return ScoreMod(reduced.arguments(), mask, sizes, source.cells)


class _Source:
    """A score function and the cells in which it is evaluated."""

    def __init__(self, function: Callable[..., Any], shape: Shape, name: str) -> None:
        self.shape, self.name = shape, name
        self.at = [Evaluator(_at_score(function, score), name, _numbers, "score function") for score in SCORES]
        by_batch = any(each.uses_batch for each in self.at) or len(set(shape.query_offsets)) > 1
        self.batch = shape.batch if by_batch else 1
        self.heads = shape.heads if any(each.uses_head for each in self.at) else 1
        self.cells = self.batch * self.heads * shape.q_len * shape.kv_len
        if self.cells > MOST_CELLS:
            raise Error(
                f"the score function {name} has {self.cells} cells for {shape}, and at most {MOST_CELLS} are evaluated: give a smaller "
                "shape, or the slopes, the table or the bias themselves"
            )
        offsets = list(shape.query_offsets)
        self.offsets = offsets if len(offsets) == shape.batch else offsets * shape.batch
        if min(self.offsets) < 0:
            raise Error(
                f"the score function {name} takes positions from 0, but query 0 has position {min(self.offsets)} for {shape}: give a query "
                "offset of 0 or more"
            )

    def blocks(self, check: bool) -> Iterator[tuple[tuple[int, int], NDArray[np.int64], Numbers]]:
        """Yields blocks of cells as ((batch row, head), positions of queries, numbers that the function adds `[queries,
        keys]`). If `check` is true, raises `Error` if the function is not additive in a block; give false for cells that were
        checked before.
        """
        k = np.arange(self.shape.kv_len, dtype=np.int64)
        rows = max(1, min(ROWS, AT_ONCE // len(k)))
        for batch in range(self.batch):
            for head in range(self.heads):
                for start in range(0, self.shape.q_len, rows):
                    q = np.arange(start, min(start + rows, self.shape.q_len), dtype=np.int64) + self.offsets[batch]
                    bias = self.at[0].cells(batch, head, q, k)
                    if check:
                        self._check((batch, head), q, k, bias)
                    yield (batch, head), q, bias

    def _check(self, place: tuple[int, int], q: NDArray[np.int64], k: NDArray[np.int64], bias: Numbers) -> None:
        for score, each in zip((*SCORES, SCORES[0]), (*self.at, self.at[0]), strict=True):
            found = each.cells(*place, q, k)
            hidden = np.isneginf(bias)
            with np.errstate(invalid="ignore"):
                wrong = np.abs(found - (bias + score)) > TOLERANCE * (1 + abs(score) + np.abs(bias))
            wrong = np.where(hidden | np.isneginf(found), hidden != np.isneginf(found), wrong)
            if wrong.any():
                row, key = (int(i) for i in np.argwhere(wrong)[0])
                raise Error(self._reason(place, q[row : row + 1], k[key : key + 1], score == SCORES[0]))

    def _reason(self, place: tuple[int, int], q: NDArray[np.int64], k: NDArray[np.int64], again: bool) -> str:
        """Returns the reason why the function is not additive in a cell, as text. `again` is true if two calls with the same
        score returned different results."""
        cell = f"batch row {place[0]}, head {place[1]}, query {q[0]}, key {k[0]}"
        if again:
            return f"the score function {self.name} gives different results for the same score in {cell}: it depends on random numbers or on state that changes"
        function = self.at[0].function.function  # type: ignore[attr-defined]
        given = (*SCORES, 1e9, -1e9, -8.0)
        made = [Evaluator.raw(_like(self.at[0], _at_score(function, score)), *place, q, k).item() for score in given]
        start = f"the score function {self.name} is not additive: in {cell}, it returns {made[0]:.6g} for the score 0 and {made[3]:.6g} for the score 8"
        top, bottom, middle = made[4], made[5], made[0]
        cap = (top - bottom) / 2
        if math.isfinite(cap) and 0 < cap < 1e8:
            tanh = [cap * math.tanh(score / cap) for score in given]
            shift = middle
            if all(abs(found - one - shift) <= 1e-4 * (1 + cap) for found, one in zip(made, tanh, strict=True)):
                if abs(shift) < 1e-6:
                    return f"{start}. It is a softcap: give softcap={cap:.6g} (nr.softcap({cap:.6g}))"
                return f"{start}. It is a softcap: give softcap={cap:.6g} (nr.softcap({cap:.6g})), and give the number that it adds after the softcap as a bias"
        factor = made[1] - made[0]
        if all(abs(found - middle - factor * score) <= 1e-4 * (1 + abs(factor * score)) for found, score in zip(made, given, strict=True)):
            return (
                f"{start}. It multiplies the score by {factor:.6g}: multiply scale= by this number, and give the number that it adds as "
                "a bias"
            )
        return f"{start}. noren adds numbers to scores, and has softcap, scale and soft weights as its other modifiers"


def _like(evaluator: Evaluator, function: Callable[..., Any]) -> Evaluator:
    """Returns an evaluator for `function` with the same mode as `evaluator` (tensors, arrays or single cells)."""
    made = object.__new__(Evaluator)
    made.__dict__.update(evaluator.__dict__, function=function)
    return made


class _AtScore:
    """A score function whose argument `score` is always the same number. It is called like a mask function, with
    (b, h, q_idx, kv_idx), and returns the modified score."""

    def __init__(self, function: Callable[..., Any], score: float) -> None:
        self.function, self.score = function, score

    def __call__(self, b: Any, h: Any, q: Any, k: Any) -> Any:
        if isinstance(q, (int, np.integer)):
            return self.function(self.score, b, h, q, k)
        if isinstance(q, np.ndarray):
            return self.function(np.full(np.broadcast_shapes(q.shape, k.shape), self.score), b, h, q, k)
        torch = sys.modules["torch"]
        sizes = torch.broadcast_shapes(q.shape, k.shape)
        return self.function(torch.full(sizes, self.score, dtype=torch.float64), b, h, q, k)


def _at_score(function: Callable[..., Any], score: float) -> Callable[..., Any]:
    return _AtScore(function, score)


def _finite(function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a mask function that is true where the score function `function` returns another number than -inf."""
    at_zero = _AtScore(function, 0.0)

    def finite(b: Any, h: Any, q: Any, k: Any) -> Any:
        return at_zero(b, h, q, k) != -math.inf

    return finite


def _numbers(result: Any, shape: tuple[int, ...]) -> Any:
    """Returns `result`, the result of a score function, as an array of float64 that broadcasts to `shape`. Raises `Refused` for
    other types, NaN and +inf."""
    if hasattr(result, "detach"):
        result = result.detach().double().cpu().numpy() if result.is_floating_point() else result.detach().cpu().numpy()
    if isinstance(result, bool) or not isinstance(result, (int, float, np.ndarray, np.generic)):
        raise Refused(f"the function returns {short(result)}, but a score function must return floats, the changed scores")
    made = np.asarray(result)
    if made.dtype.kind == "b" or made.dtype.kind not in "fiu":
        raise Refused(f"the function returns {made.dtype}, not floats: give a function with booleans to nr.from_mask_mod")
    made = made.astype(np.float64)
    if np.isnan(made).any() or np.isposinf(made).any():
        raise Refused("the function returns NaN or +inf")
    try:
        return np.broadcast_to(made, shape)
    except ValueError:
        raise Refused(f"the function returns an array of shape {list(made.shape)}, which does not broadcast to the shape {list(shape)} of the cells") from None


class _Reduced:
    """Collects the numbers that a score function adds, in the smallest sufficient form: a table by distance, or an array."""

    def __init__(self, source: _Source) -> None:
        self._source = source
        shape = source.shape
        last = max(shape.q_len - 1 + max(source.offsets), shape.kv_len - 1)
        self._reach = last
        self._by_distance = source.heads * (2 * last + 1) <= MOST_ENTRIES
        self._table = np.full((source.heads, 2 * last + 1 if self._by_distance else 0), np.nan)

    def add(self, place: tuple[int, int], q: NDArray[np.int64], bias: Numbers) -> None:
        """Adds `bias`, the numbers that the score function adds to the scores of the queries `q`, to the collection; `place` is
        (batch row, head). Tests whether these numbers depend only on the distance between key and query. Hidden cells (-inf)
        are ignored."""
        if not self._by_distance:
            return
        distance = np.arange(self._source.shape.kv_len) - q[:, None] + self._reach
        seen = ~np.isneginf(bias)
        row = self._table[place[1]]
        at, values = distance[seen], bias[seen]
        new = np.isnan(row[at])
        row[at[new]] = values[new]
        self._by_distance = bool((np.abs(row[at] - values) <= 1e-9 * (1 + np.abs(values))).all())

    def arguments(self) -> dict[str, Any]:
        """Returns the numbers that the score function adds as one keyword argument of `noren.attention`: `alibi` (slopes), `relative`
        (a table by distance) or `bias`; nothing if all numbers are 0."""
        heads = self._source.shape.heads
        if self._by_distance:
            table = np.broadcast_to(np.nan_to_num(self._table), (heads, self._table.shape[1]))
            if not table.any():
                return {}
            known = ~np.isnan(np.broadcast_to(self._table, table.shape))
            distance = np.abs(np.arange(table.shape[1]) - self._reach)
            far = np.where(known, distance, 0).argmax(1)
            slopes = -table[np.arange(heads), far] / np.maximum(distance[far], 1)
            straight = np.abs(table + slopes[:, None] * distance) <= 1e-6 * (1 + np.abs(table))
            if (straight | ~known).all():
                return {"alibi": slopes.tolist()}
            return {"relative": np.ascontiguousarray(table, np.float32)}
        source = self._source
        whole = np.empty((source.batch, source.heads, source.shape.q_len, source.shape.kv_len), np.float32)
        for (batch, head), q, bias in source.blocks(check=False):
            start = int(q[0]) - source.offsets[batch]
            whole[batch, head, start : start + len(q)] = np.where(np.isneginf(bias), 0, bias)
        return {"bias": whole}

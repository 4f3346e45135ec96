"""`from_score_mod` converts a `score_mod` of FlexAttention that adds a number to each score. The result is a bias, slopes of
ALiBi, a table by distance, or a mask."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from ..._noren import Error, Mask, Shape, full
from ...arguments._given import short
from ._evaluate import Evaluator, NotAdditive, Refused
from ._mask import _name, from_mask_mod

SCORES = (0.0, 1.0, -2.5, 8.0, 1e9, -1e9, -8.0)
"""The values of the argument `score` with which a function that is not additive is called, to find the modifier that replaces it."""
TOLERANCE = 1e-5
"""Maximum difference between two results of a function that counts as rounding, absolute and relative."""
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
    is the shape for which the function was evaluated.
    """

    arguments: dict[str, Any]
    mask: Mask
    shape: Shape


def from_score_mod(function: Callable[..., Any], shape: Shape | int, *, name: str | None = None) -> ScoreMod:
    """Returns the bias of a function `score_mod(score, b, h, q_idx, kv_idx)` that adds a number to the score, for one shape.

    The number must not depend on the score: every operation on the score is followed, and only `+`, `-`, `where` and `masked_fill`
    with -inf are accepted, not `clamp`, `maximum` or `round`. A function that adds
    -slope * |q_idx - kv_idx| becomes slopes of ALiBi. A function that depends only on head and distance becomes a table. Other
    functions become an array `[batch or 1, heads or 1, q_len, kv_len]`. Cells with -inf become a mask. Indices are positions,
    as in `from_mask_mod`.

    Raises `Error` if it cannot be established that the function is additive, and names the modifier of noren that replaces it (`softcap`, `scale`), if
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
    return ScoreMod(reduced.arguments(), mask, sizes)


class _Source:
    """A score function and the cells in which it is evaluated."""

    def __init__(self, function: Callable[..., Any], shape: Shape, name: str) -> None:
        self.shape, self.name = shape, name
        self.function = function
        self.plain = Evaluator(_AtScore(function, 0.0), name, _numbers, "score function")
        self.at = _like(self.plain, _AtScore(function, None))
        by_batch = self.at.uses_batch or len(set(shape.query_offsets)) > 1
        self.batch = shape.batch if by_batch else 1
        self.heads = shape.heads if self.at.uses_head else 1
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
        keys]`). If `check` is true, raises `Error` if two calls in a block give different results; give false for cells that were
        checked before.
        """
        k = np.arange(self.shape.kv_len, dtype=np.int64)
        rows = max(1, min(ROWS, AT_ONCE // len(k)))
        for batch in range(self.batch):
            for head in range(self.heads):
                for start in range(0, self.shape.q_len, rows):
                    q = np.arange(start, min(start + rows, self.shape.q_len), dtype=np.int64) + self.offsets[batch]
                    try:
                        bias = self.at.cells(batch, head, q, k)
                    except NotAdditive as error:
                        raise Error(self._reason(error)) from None
                    if check:
                        self._check((batch, head), q, k, bias)
                    yield (batch, head), q, bias

    def _check(self, place: tuple[int, int], q: NDArray[np.int64], k: NDArray[np.int64], bias: Numbers) -> None:
        """Compares the followed numbers with a call at the score 0: random numbers, state and types of arguments show themselves."""
        found = self.plain.cells(*place, q, k)
        wrong = ~np.isclose(found, bias, rtol=TOLERANCE, atol=TOLERANCE)
        if wrong.any():
            row, key = (int(i) for i in np.argwhere(wrong)[0])
            raise Error(
                f"the score function {self.name} gives different results for the same score in batch row {place[0]}, head {place[1]}, query "
                f"{q[row]}, key {k[key]}: it depends on random numbers or on state that changes"
            )

    def _reason(self, error: NotAdditive) -> str:
        """Returns the reason why the function is not additive, as text. `error` names the operation that is not."""
        start = f"the score function {self.name} is not additive: {error}"
        other = f"{start}. noren adds numbers to scores, and has softcap, scale and soft weights as its other modifiers"
        one = np.zeros(1, np.int64)
        try:
            made = [_like(self.plain, _AtScore(self.function, score)).cells(0, 0, one, one).item() for score in SCORES]
        except Error:
            return other
        middle = made[0]
        cap = (made[4] - made[5]) / 2
        if math.isfinite(cap) and 0 < cap < 1e8:
            tanh = [cap * math.tanh(score / cap) for score in SCORES]
            if all(abs(found - one - middle) <= 1e-4 * (1 + cap) for found, one in zip(made, tanh, strict=True)):
                after = "" if abs(middle) < 1e-6 else ", and give the number that it adds after the softcap as a bias"
                return f"{start}. It is a softcap: give softcap={cap:.6g} (nr.softcap({cap:.6g})){after}"
        factor = made[1] - made[0]
        linear = all(abs(found - middle - factor * score) <= 1e-4 * (1 + abs(factor * score)) for found, score in zip(made, SCORES, strict=True))
        if linear and abs(factor - 1) > 1e-4:
            return (
                f"{start}. It multiplies the score by {factor:.6g}: multiply scale= by this number, and give the number that it adds as "
                "a bias"
            )
        return other


def _like(evaluator: Evaluator, function: Callable[..., Any]) -> Evaluator:
    """Returns an evaluator for `function` with the same mode as `evaluator` (tensors, arrays or single cells)."""
    made = object.__new__(Evaluator)
    made.__dict__.update(evaluator.__dict__, function=function)
    return made


class _AtScore:
    """A score function whose argument `score` is always the same number, or `Added` if `score` is None. It is called like a mask
    function, with (b, h, q_idx, kv_idx), and returns the modified score, or the numbers that were added to it."""

    def __init__(self, function: Callable[..., Any], score: float | None) -> None:
        self.function, self.score = function, score

    def __call__(self, b: Any, h: Any, q: Any, k: Any) -> Any:
        value = 0.0 if self.score is None else self.score
        score: Any
        if isinstance(q, (int, np.integer)):
            score = value
        elif isinstance(q, np.ndarray):
            score = np.full(np.broadcast_shapes(q.shape, k.shape), value)
        else:
            torch = sys.modules["torch"]
            score = torch.full(torch.broadcast_shapes(q.shape, k.shape), value, dtype=torch.float64)
        if self.score is not None:
            return self.function(score, b, h, q, k)
        result = self.function(Added(score), b, h, q, k)
        return result.number if isinstance(result, Added) else _hidden(result)


def _hidden(value: Any) -> Any:
    """Returns `value`, the result of a function in place of a score. Raises `NotAdditive` if it holds another float than -inf."""
    if isinstance(value, bool) or "bool" in str(getattr(value, "dtype", "")) or not (isinstance(value, (int, float)) or hasattr(value, "shape")):
        return value  # `_numbers` refuses it
    if not (value == -math.inf if isinstance(value, (int, float)) else bool((value == -math.inf).all())):
        raise NotAdditive("its result holds numbers that do not contain the score")
    return value


class Added:
    """The score of each cell plus `number`. Operations that keep this form return `Added`; all others raise `NotAdditive`."""

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, number: Any) -> None:
        self.number = number

    def __add__(self, other: Any) -> Added:
        return Added(self.number + _plain(other))

    __radd__ = __add__

    def __sub__(self, other: Any) -> Added:
        return Added(self.number - _plain(other))

    def masked_fill(self, hidden: Any, value: Any) -> Added:
        return _where(hidden, value, self)

    def _same(self, *given: Any, **named: Any) -> Added:
        for kind in (*given, *named.values()):
            if any(name in str(kind) for name in ("16", "int", "bool", "half", "8")):
                raise NotAdditive(f"it rounds the score to {kind}")
        return self

    clone = contiguous = detach = float = double = to = type = astype = _same

    def __getattr__(self, name: str) -> Any:
        if name in ("shape", "dtype", "device", "ndim", "dim", "size") or name.startswith("new_"):
            return getattr(self.number, name)
        raise NotAdditive(f"it uses `{name}` of the score, which is not a sum with the score")

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _call(func, args, kwargs or {})

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        return _call(ufunc, inputs, kwargs)

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        return _call(func, args, kwargs)


def _refuse(name: str) -> Callable[..., NoReturn]:
    def refuse(*_: Any) -> NoReturn:
        raise NotAdditive(f"it uses `{name}` on the score, which is not a sum with the score")

    return refuse


for _operator in "rsub mul rmul truediv rtruediv floordiv rfloordiv mod rmod pow rpow neg abs eq ne lt le gt ge bool float int index iter len array round".split():
    setattr(Added, f"__{_operator}__", _refuse(_operator))


def _plain(value: Any) -> Any:
    if isinstance(value, Added):
        raise NotAdditive("it adds the score to itself")
    return value


def _where(condition: Any, one: Any, other: Any) -> Added:
    """Returns the choice between two scores, or between a score and -inf."""
    one, other = (part.number if isinstance(part, Added) else _hidden(part) for part in (one, other))
    choose = sys.modules["torch"].where if any(hasattr(part, "detach") for part in (condition, one, other)) else np.where
    return Added(choose(_plain(condition), one, other))


def _call(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Returns the result of a function of PyTorch or NumPy with a score among its arguments."""
    name = getattr(function, "__name__", "an operation").strip("_")
    if name.endswith("_like"):
        return function(args[0].number, *args[1:], **kwargs)
    if name == "where" and len(args) == 3 and not kwargs:
        return _where(*args)
    if name == "masked_fill" and len(args) == 3 and isinstance(args[0], Added) and not kwargs:
        return args[0].masked_fill(*args[1:])
    if name in ("add", "radd") and len(args) == 2 and not kwargs:
        return args[0] + args[1] if isinstance(args[0], Added) else args[1] + args[0]
    if name in ("sub", "subtract") and len(args) == 2 and isinstance(args[0], Added) and not kwargs:
        return args[0] - args[1]
    raise NotAdditive(f"it calls `{name}` with the score, which is not a sum with the score")


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

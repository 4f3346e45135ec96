"""Evaluates a mask function in many cells: with tensors of PyTorch, with torch.vmap, with arrays of NumPy, or one cell at a
time."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from ..._noren import Error
from ...arguments._given import short

Function = Callable[..., Any]
Cells = NDArray[np.bool_]
Positions = NDArray[np.int64]


class Refused(Exception):
    """Raised if the result of a mask function is not a boolean for each cell; the message describes the result."""


class NotAdditive(Exception):
    """Raised if a score function does something else with its score than adding a number or hiding it; the message names it."""


class _Absent:
    """A value passed for an index that a function seems not to use: every use of the value raises an exception."""

    def _used(self, *_: Any, **__: Any) -> NoReturn:
        raise LookupError("the index of the batch row or head is used only for some cells")

    __getattr__ = __bool__ = __index__ = __int__ = __float__ = __len__ = __iter__ = __array__ = _used  # type: ignore[assignment]
    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __hash__ = _used  # type: ignore[assignment]
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __mod__ = __rmod__ = _used
    __floordiv__ = __rfloordiv__ = __truediv__ = __rtruediv__ = __and__ = __rand__ = __or__ = __ror__ = __invert__ = _used

    @classmethod
    def __torch_function__(cls, *_: Any, **__: Any) -> NoReturn:
        raise LookupError("the index of the batch row or head is used only for some cells")


class _Hashed(Exception):
    """Raised if a function hashes an index, for example to look it up in a set or a dict."""


@cache
def _unhashable() -> Any:
    """Returns a subclass of `torch.Tensor` whose hash raises `_Hashed`. Results of operations on its tensors are of this class too."""
    import torch

    def hashed(_: Any) -> NoReturn:
        raise _Hashed

    return type("UnhashableTensor", (torch.Tensor,), {"__hash__": hashed})


class Evaluator:
    """A mask or score function with the kind of arguments (`mode`) with which it is called. `read` converts the results of the
    function; `what` is the name of its kind in errors.

    `mode` is "torch" (tensors that broadcast), "vmap" (torch.vmap), "numpy" (arrays that broadcast) or "scalar" (whole numbers, one
    cell at a time). `reasons` has the reasons why modes that were tried before `mode` could not be used. `uses_batch` and
    `uses_head` are false if the function did not use the index in a test.
    """

    def __init__(
        self, function: Function, name: str, read: Callable[[Any, tuple[int, ...]], Any] | None = None, what: str = "mask function"
    ) -> None:
        self.function, self.name = function, f"{what} {name}"
        self.read = booleans if read is None else read
        self.uses_batch = self.uses_head = True
        self.reasons: list[str] = []
        refused: Refused | None = None
        failed: list[Exception] = []
        for self.mode in _modes(function):
            try:
                self._try_mode()
                break
            except Refused as error:
                refused = refused or error
                self.reasons.append(f"{self.mode}: {error}")
            except Exception as error:  # the function may fail in any way on arguments of a type
                self.reasons.append(f"{self.mode}: {type(error).__name__}: {_line(error)}")
                failed.append(error)
        else:
            if refused is not None:
                raise Error(f"the {self.name} cannot be used: {refused}") from refused.__cause__
            # a function of tensors or arrays fails on numbers because of their type
            last = failed[0] if isinstance(failed[-1], (AttributeError, TypeError)) else failed[-1]
            raise Error(
                f"the {self.name} raises an exception for the first queries and keys, {type(last).__name__}: {_line(last)}"
            ) from last
        self._find_uses()

    def _try_mode(self) -> None:
        if self.mode in ("torch", "vmap"):
            self._refuse_hashes()
        for sides in ((3, 4), (1, 1)):
            q, k = np.arange(sides[0]), np.arange(sides[1])
            try:
                found = self.raw(0, 0, q, k)
            except IndexError:
                if sides == (1, 1):
                    raise
                continue
            break
        if self.mode == "scalar":
            return
        try:
            alone = np.array([[self.one(0, 0, int(i), int(j)) for j in k] for i in q])
        except Refused:
            raise
        except Exception:  # a function may need arrays
            return
        if (alone != found).any():
            raise Refused(
                "the function gives different results when many cells are evaluated together and when one cell is evaluated alone: it depends on random numbers, on changing state, or on the other cells"
            )

    def _refuse_hashes(self) -> None:
        """Raises `Refused` if the function looks up an index in a set or a dict: tensors with equal numbers have different
        hashes, so the set or dict would contain none of them.
        """
        import torch

        def index(values: Any) -> Any:
            return torch.as_tensor(values).as_subclass(_unhashable())

        several = (index(0), index(0), index(np.arange(3)[:, None]), index(np.arange(4)[None]))
        for arguments in (several, tuple(index(0) for _ in range(4)), (*(index(0) for _ in range(3)), index(1))):
            try:
                self.function(*arguments)
            except _Hashed:
                raise Refused("the function looks up an index in a set or a dict, where a tensor is never found") from None
            except Exception:  # other errors are found by a call with plain tensors
                continue

    def _find_uses(self) -> None:
        if self.mode == "scalar":  # a function of numbers may use an index in some cells only
            return
        for name in ("uses_batch", "uses_head"):
            setattr(self, name, False)
            try:
                self.raw(0, 0, np.arange(1), np.arange(1))
            except Exception:  # an index that is used raises errors of several types
                setattr(self, name, True)

    def cells(self, batch: int, head: int, q: Positions, k: Positions) -> Any:
        """Returns the results of the function `[queries, keys]`: booleans of a mask function, numbers of a score function. If
        the function raises an exception, raises `Error` with this exception as the cause."""
        try:
            return self.raw(batch, head, q, k)
        except NotAdditive:
            raise
        except Refused as error:
            raise Error(f"the {self.name} cannot be used: {error}") from error.__cause__
        except Exception as error:  # the function of the caller may raise anything
            where = f"batch row {batch}, head {head}, queries {q[0]} to {q[-1]}, keys {k[0]} to {k[-1]}"
            advice = _advice(error)
            raise Error(
                f"the {self.name} raises {type(error).__name__} for {where}: {_line(error)}{'. ' if advice else ''}{advice}"
            ) from error

    def one(self, batch: int, head: int, q: int, k: int) -> Any:
        """Returns the value of the function in one cell. The function is called for this cell alone."""
        if self.mode in ("torch", "vmap"):
            import torch

            arguments: tuple[Any, ...] = tuple(torch.tensor(i) for i in (batch, head, q, k))
        else:
            arguments = tuple(np.int64(i) for i in (batch, head, q, k))
        return self.read(self.function(*arguments), ()).item()

    def raw(self, batch: int, head: int, q: Positions, k: Positions) -> Any:
        """Returns the results of the function `[queries, keys]`, like `cells`. Raises `Refused` for an unusable result, and
        passes on exceptions of the function."""
        shape = (len(q), len(k))
        if self.mode == "scalar":
            rows = [[self.read(self.function(batch, head, i, j), ()) for j in k.tolist()] for i in q.tolist()]
            return np.array(rows).reshape(shape)
        if self.mode == "numpy":
            at = (np.int64(batch), np.int64(head))
            return self.read(self.function(*self._indices(*at), q[:, None], k[None, :]), shape)
        import torch

        b, h = self._indices(torch.tensor(batch), torch.tensor(head))
        queries, keys = torch.from_numpy(q), torch.from_numpy(k)
        if self.mode == "torch":
            return self.read(self.function(b, h, queries[:, None], keys[None, :]), shape)
        by_key = torch.vmap(lambda i, j: self.function(b, h, i, j), (None, 0))
        return self.read(torch.vmap(by_key, (0, None))(queries, keys), shape)

    def _indices(self, batch: Any, head: Any) -> tuple[Any, Any]:
        return batch if self.uses_batch else _Absent(), head if self.uses_head else _Absent()


def _modes(function: Function) -> list[str]:
    """Returns the evaluation modes to try, in order. NumPy comes before PyTorch if the function refers to NumPy and not to
    PyTorch."""
    code = getattr(function, "__code__", None)
    names = getattr(code, "co_names", ())
    known = getattr(function, "__globals__", {})
    held = [known[name] for name in names if name in known]
    for cell in getattr(function, "__closure__", None) or ():
        try:
            held.append(cell.cell_contents)
        except ValueError:  # a variable without a value
            continue
    places = {(getattr(part, "__module__", None) or type(part).__module__ or "") for part in held if not isinstance(part, type(sys))}
    places |= {part.__name__ for part in held if isinstance(part, type(sys))}
    kinds = {place.split(".")[0] for place in places}
    tensors = ["torch", "vmap"] if "torch" in sys.modules else []
    return ["numpy", *tensors, "scalar"] if "numpy" in kinds and "torch" not in kinds else [*tensors, "numpy", "scalar"]


def _line(error: BaseException | None) -> str:
    text = str(error).strip().split("\n")[0]
    return text if len(text) <= 200 else f"{text[:196]} ..."


def _advice(error: Exception) -> str:
    """Returns a sentence with the fix for a common exception of mask functions, to be added to an error message; empty for
    other exceptions."""
    if isinstance(error, IndexError):
        return "The function probably reads captured data beyond its end: bind the mask to a shape whose length is that of the data"
    if isinstance(error, LookupError) and "only for some cells" in str(error):
        return "The function must use the index of the batch row or head for all cells, for example by `& (h >= 0)`"
    return ""


def booleans(result: Any, shape: tuple[int, ...]) -> Cells:
    """Returns a result as booleans of `shape`. Raises `Refused` for other types, and for shapes that do not broadcast."""
    if hasattr(result, "detach"):
        result = result.detach().cpu().numpy() if "bfloat16" not in str(result.dtype) else result.detach().float().numpy()
    if not isinstance(result, (bool, np.ndarray, np.generic)):
        raise Refused(f"the function returns {short(result)}, but a mask function must return booleans, true where the query may read the key")
    made = np.asarray(result)
    if made.dtype != np.bool_:
        if made.dtype.kind == "f":
            raise Refused(
                f"the function returns {made.dtype} (numbers that are added to scores), not booleans: give a function with scores to "
                "nr.from_score_mod"
            )
        raise Refused(f"the function returns {made.dtype} (numbers), not booleans: add a comparison, such as `!= 0`")
    try:
        return np.broadcast_to(made, shape)
    except ValueError:
        raise Refused(f"the function returns an array of shape {list(made.shape)}, which does not broadcast to the shape {list(shape)} of the cells") from None

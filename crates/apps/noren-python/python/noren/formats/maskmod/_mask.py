"""`from_mask_mod` converts a mask function of FlexAttention, NumPy or plain Python to a mask of noren."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..._noren import Error, Mask, Shape, tile_function
from ...arguments._given import short
from ._evaluate import Evaluator
from ._nodes import Node, evaluate, nodes
from ._recognise import Unknown, recognise
from ._tiles import Tiler
from ._trace import Trace, Untraceable, trace

COMPARED = 160
"""Results are compared in the cells of this number of queries and of keys: those of the recorded operations with those of the
user's function, and those of the expression with those of the recorded operations. Fewer cells are compared if the function
raises an error in some of them, or if captured data is shorter."""


@dataclass(frozen=True)
class Examined:
    """The mask of a mask function, and how it was found."""

    mask: Mask
    recognised: bool
    """True if the mask is an expression, which is correct at every length to which it can be bound. Otherwise the mask is an atom,
    whose cells are computed when it is bound."""
    traced: bool
    """True if the operations of the function were recorded: full and empty tiles are then found without evaluating their cells."""
    evaluated_as: str
    """The type of the function's arguments in evaluations: "torch" (tensors that broadcast), "vmap" (torch.vmap), "numpy", or
    "scalar" (one cell at a time)."""
    reasons: tuple[str, ...]
    """The reasons why a simpler or faster form was not used."""


def from_mask_mod(function: Callable[..., Any], *, name: str | None = None) -> Mask:
    """Returns the mask of a function `mask_mod(b, h, q_idx, kv_idx)`, which returns true where the query may read the key.

    The function may use PyTorch, NumPy or plain Python, and captured tensors, arrays and lists. It gets positions: those of
    `nr.Shape.square` and `nr.Shape.cross` are the indices of FlexAttention; in `nr.Shape.cached(past, new)`, query 0 has position
    `past`. It must be pure: captured data must not change later.

    The operations of the function are recorded. If they are an expression of noren, the result is this expression, for every
    length; an expression made from captured lists (documents, ends of documents) is bound only to the length and the batch of
    these lists. Otherwise the result is an atom, printed as `function(name)`: when it is bound to a shape, tiles of 64 x 64 cells are
    computed, and mixed tiles are stored as bits.

    Raises TypeError if the function is not callable, and `Error` if it raises an exception (which is the cause), returns something
    else than booleans, or depends on random numbers. An atom raises the same errors when it is bound.
    """
    return examined(function, name).mask


def examined(function: Callable[..., Any], name: str | None = None) -> Examined:
    """Returns the result of `from_mask_mod` for these arguments, and how it was found."""
    if not callable(function):
        raise TypeError(f"the mask function is {short(function)}: give a function of (b, h, q_idx, kv_idx)")
    named = _name(function) if name is None else name
    evaluator = Evaluator(function, named)
    reasons = []
    recorded: Trace | None = None
    try:
        recorded = trace(function)
        _compare(evaluator, recorded.result)
        used = recorded.result.variables | recorded.fails.variables
        evaluator.uses_batch, evaluator.uses_head = "b" in used, "h" in used
    except Untraceable as error:
        reasons.append(f"the operations of the function cannot be recorded: {error}")
    except _Contradicts as error:
        reasons.append(f"the operations that were recorded give another result than the function itself for {error}")
        recorded = None
    if recorded is not None:
        try:
            found = _shorter(recognise(recorded.result))
            _check_limits(recorded, str(found))
            _compare_expression(found, recorded.result)
            return Examined(found, True, True, evaluator.mode, tuple(evaluator.reasons))
        except Unknown as error:
            reasons.append(str(error))
    tiler = Tiler(evaluator, recorded, named)
    mask = tile_function(named, evaluator.uses_batch, evaluator.uses_head, tiler)
    return Examined(mask, False, recorded is not None, evaluator.mode, (*reasons, *evaluator.reasons))


def _name(function: Callable[..., Any]) -> str:
    """Returns the name of a mask function, for the text `function(name)` of the atom."""
    found = getattr(function, "__qualname__", None) or type(function).__qualname__
    return re.sub(r"[^\w.]", "", found.replace("<locals>.", "")) or "function"


def _shorter(mask: Mask) -> Mask:
    simple = mask.simplify()
    return simple if len(str(simple)) < len(str(mask)) else mask


class _Contradicts(Exception):
    """Raised if the recorded operations of a function differ from its result in a cell; the message names the cell."""


def _compare(evaluator: Evaluator, node: Node) -> None:
    """Compares recorded operations with the function.

    The compared cells are those of the first queries and keys, and random cells of later ones if the function can be evaluated
    there. Raises `_Contradicts` if a cell differs.
    """
    rng = np.random.default_rng(0)
    for batch, head in ((0, 0), (0, 1), (1, 0)):
        side = COMPARED if (batch, head) == (0, 0) and evaluator.mode != "scalar" else 24
        while side:
            q = np.arange(side, dtype=np.int64)
            try:
                _equal(evaluator, node, (batch, head), q, q)
                break
            except _Failed:
                side //= 2
    for reach in (300, 5000, 200_000):
        q, k = (np.sort(rng.integers(0, reach, 16 if evaluator.mode != "scalar" else 4)) for _ in range(2))
        try:
            _equal(evaluator, node, (int(rng.integers(3)), int(rng.integers(3))), q, k)
        except _Failed:
            continue


class _Failed(Exception):
    """Raised if the function cannot be evaluated in the chosen cells, for example because captured data is shorter."""


def _equal(evaluator: Evaluator, node: Node, place: tuple[int, int], q: Any, k: Any) -> None:
    """Compares recorded operations with the function in the cells of the queries `q` and the keys `k`; `place` is (batch row,
    head). Raises `_Failed` if the function cannot be evaluated, `_Contradicts` if a cell
    differs."""
    try:
        truth = Evaluator.raw(evaluator, *place, q, k)
    except Exception as error:  # the function may fail in any way outside of its data
        raise _Failed from error
    found = evaluate(node, _at(place, q, k))
    wrong = np.argwhere(np.broadcast_to(found, truth.shape) != truth)
    if len(wrong):
        at = (int(q[wrong[0][0]]), int(k[wrong[0][1]]))
        raise _Contradicts(f"batch row {place[0]}, head {place[1]}, query {at[0]}, key {at[1]}")


def _at(place: tuple[int, int], q: Any, k: Any) -> dict[str, Any]:
    return {"b": np.asarray(place[0], np.int64), "h": np.asarray(place[1], np.int64), "q": q[:, None], "k": k[None, :]}


def _check_limits(recorded: Trace, text: str) -> None:
    """Raises `Unknown` if the function reads captured data that is not part of the expression `text`. Such an expression could
    be bound to a length at which the function raises an error.
    """
    if recorded.fails.op == "const":
        return
    read = {id(node.value) for root in (recorded.result, recorded.fails) for node in nodes(root) if node.op == "table"}
    if not read or text.count("documents(") + text.count("prefix(") < len(read):
        raise Unknown("the expression that was found does not contain captured data of the function, which has no effect on its result but limits the length")


def _compare_expression(mask: Mask, node: Node) -> None:
    """Compares the cells of a mask expression with those of the recorded operations of the mask function. The compared length
    is that of the captured data, or `COMPARED` if there is none. If captured data has several lengths or more than 1024
    entries, nothing is compared.

    Raises `Unknown` if a cell differs; the caller then uses the recorded operations instead of the expression.
    """
    lengths = {table.value.shape[-1] for table in nodes(node) if table.op == "table" and table.args[-1].variables & {"q", "k"}}
    rows = {table.value.shape[0] for table in nodes(node) if table.op == "table" and table.args[0].variables == {"b"}}
    length = min(min(lengths, default=COMPARED), 1024)
    if lengths and max(lengths) > length:
        return
    shape = Shape.square(length, batch=max(rows, default=1))
    try:
        cells = mask.dense(shape)
    except Error as error:
        raise Unknown(f"the expression that was found cannot be bound to the shape of the captured data ({error})") from error
    for row in range(shape.batch):
        at = np.arange(length, dtype=np.int64)
        if (np.broadcast_to(evaluate(node, _at((row, 0), at, at)), (length, length)) != cells[row, 0]).any():
            raise Unknown(f"the expression that was found, {mask}, has other cells than the function")

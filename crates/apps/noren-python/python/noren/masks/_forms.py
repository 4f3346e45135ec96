"""Makes plans of masks that are not expressions: arrays with a named convention, bound masks, and recognised masks."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from .. import _noren
from .._noren import HIDES, BoundMask, Error, Facts, Mask, ParseError, Plan, Score, Shape, Spec
from ..arguments._arrays import library
from ..arguments._given import check_names, check_strided, is_sparse, short, sparse
from ._doctor import Recognised
from ._views import dense

Sizes = tuple[int, int, int, int, int]
"""The sizes of an attention call, in this order: batch rows, query heads, key-value heads, queries, keys."""

EXCHANGED = "if the arrays are [batch, length, heads, head_dim], give q.transpose(1, 2) (swapaxes(1, 2) of NumPy), and k and v in the same way"
"""The question to a caller whose arrays seem to have the dimensions of heads and length exchanged."""


@lru_cache(maxsize=256)
def parsed(text: str) -> Mask | Spec:
    try:
        found: Mask | Spec = _noren.parse(text)
    except UnicodeEncodeError:
        raise ParseError(f"the text of the mask is {text!a}, which contains characters that are not Unicode: give the text of a mask") from None
    return found


def given_arrays(**arrays: Any) -> dict[str, Any]:
    """Returns the arrays that are not None. Raises TypeError for an array whose type does not fit its convention."""
    given = {name: array for name, array in arrays.items() if array is not None}
    for name, array in given.items():
        if isinstance(array, type):
            raise TypeError(f"{name} is the class {array.__name__}, not an object of the class: give an array")
        if is_sparse(array):
            if name == "additive":
                raise Error("additive is a sparse matrix, whose absent cells would be added as 0 and read: give additive.to_dense() (toarray() of SciPy), or keep=")
            continue
        check_strided(name, array)
        if not hasattr(array, "shape") or not hasattr(array, "dtype"):
            raise TypeError(f"{name} is {type(array).__name__}: give an array of NumPy or PyTorch, or another array with __dlpack__")
        kind = str(array.dtype).rsplit(".", 1)[-1]
        if name == "additive" and not kind.startswith(("float", "bfloat")):
            raise TypeError(f"additive holds {kind}, but it is added to scores: give floats (0 = may attend, -inf = hidden), or booleans as keep= or drop=")
        if name != "additive" and kind != "bool":
            raise TypeError(f"{name} holds {kind}: give booleans; make them from 0 and 1 by {name} == 1; floats that are added to scores are given as additive=")
    return given


def four(name: str, array: Any, sizes: Sizes) -> Any:
    """Returns a mask array as `[batch or 1, heads or 1, q_len or 1, kv_len or 1]`.

    Shapes are `[q_len, kv_len]`, `[batch, q_len, kv_len]`, `[batch * heads, q_len, kv_len]` and `[batch, heads, q_len,
    kv_len]`; every dimension may be 1. Raises `Error` for other shapes, and for a shape that fits two of these forms.
    """
    batch, heads, _, q_len, kv_len = sizes
    shape = tuple(array.shape)
    if len(shape) == 4:
        found = array
    elif len(shape) == 3:
        found = _three(name, array, batch, heads)
    elif len(shape) == 2:
        if shape == (batch, kv_len) and batch > 1 and batch == q_len:
            raise Error(
                f"{name} has shape {list(shape)} with {batch} batch rows and {q_len} queries, so the meaning of its dimensions is ambiguous. Give {name}[None, None] if the dimensions are [q_len, kv_len], or {name}[:, None, None, :] if they are [batch, kv_len]"
            )
        if shape == (batch, kv_len) and shape[0] not in (1, q_len):
            raise Error(f"{name} has shape {list(shape)}, which is [batch, kv_len]: give {name}[:, None, None, :], one row of keys for each batch row")
        found = array[None, None]
    else:
        raise Error(f"{name} has shape {list(shape)}: give [q_len, kv_len], [batch, q_len, kv_len] or [batch, heads, q_len, kv_len]")
    wanted = (batch, heads, q_len, kv_len)
    if any(n not in (1, size) for n, size in zip(found.shape, wanted, strict=True)):
        raise Error(f"{name} has shape {list(shape)}, which does not broadcast to [batch, heads, q_len, kv_len] = {list(wanted)}{exchanged(sizes, *shape[-2:])}")
    return found


def exchanged(sizes: Sizes, q_len: int, kv_len: int) -> str:
    """Returns the end of an error message: a question if a mask of `q_len` x `kv_len` cells fits the heads of the call."""
    return f"; {EXCHANGED}" if (q_len, kv_len) == sizes[1:3] else ""


def _three(name: str, array: Any, batch: int, heads: int) -> Any:
    n, rows, keys = array.shape
    if n == batch and n == heads and n > 1:
        raise Error(
            f"{name} has shape {list(array.shape)} with {batch} batch rows and {heads} heads, so the meaning of its dimensions is ambiguous. Give {name}[:, None] if the dimensions are [batch, q_len, kv_len], or {name}[None] if they are [heads, q_len, kv_len]"
        )
    if n in (1, batch):
        return array[:, None]
    if n == batch * heads:
        return array.reshape(batch, heads, rows, keys)
    if n == heads:
        raise Error(f"{name} has shape {list(array.shape)}, but there are {batch} batch rows and {heads} heads: if the array has one mask for each head, give {name}[None]")
    raise Error(f"{name} has shape {list(array.shape)}, but there are {batch} batch rows and {heads} heads: give [batch, heads, q_len, kv_len]")


def with_arrays(mask: Mask, given: Mapping[str, Any], sizes: Sizes, facts: Facts | Mapping[str, Any] | None) -> tuple[Mask, dict[str, Any], list[Any]]:
    """Returns (intersection of `mask` and all mask arrays in `given`, facts of the intersection, arrays of floats that are added
    to scores).

    A float hides a cell if it is `HIDES` or less; other floats are added to the scores of the allowed cells.
    """
    if isinstance(facts, Facts):
        raise Error("`facts` is a Facts object, but keep=, drop= or additive= must add a fact to it: give the facts as a dict, or give the array as a fact too")
    if facts is not None and not isinstance(facts, Mapping):
        raise TypeError(f"`facts` is {short(facts)}: give a dict of facts, or None")
    known: dict[str, Any] = dict(facts or {})
    arrays = check_names("facts['arrays']", known.get("arrays"))
    added = []
    for name, array in given.items():
        key = f"{name}="
        if is_sparse(array):
            arrays[key] = sparse(name, array)
            mask = mask & _noren.dense(key) if name == "keep" else mask - _noren.dense(key)
            continue
        whole = four(name, array, sizes)
        # A row for every query: the array of a mask has no broadcast along queries.
        wide = whole if whole.shape[2] == sizes[3] else _repeated(whole, sizes[3])
        cells, other_numbers, _ = _noren.read_mask(_lent(wide), name == "drop", sizes[4])
        arrays[key] = cells
        mask = mask & _noren.dense(key)
        if other_numbers:
            added.append(_numbers(whole))
    return mask, known | {"arrays": arrays}, added


def _lent(array: Any) -> Any:
    """Returns an array that planning can read. A tensor on another device is copied to the CPU."""
    return array.detach().cpu() if hasattr(array, "detach") else library(array).lend(array)


def _repeated(array: Any, q_len: int) -> Any:
    """Repeats the single query row of an array `[batch, heads, 1, keys]` for all queries: returns `[batch, heads, q_len,
    keys]`."""
    if hasattr(array, "expand") and hasattr(array, "contiguous"):
        return array.expand(-1, -1, q_len, -1).contiguous()
    import numpy as np

    return np.repeat(np.asarray(array), q_len, axis=2)


def _numbers(array: Any) -> Any:
    """Returns the numbers that an additive mask adds to scores. For hidden cells, the number is 0."""
    if hasattr(array, "masked_fill"):
        return array.detach().float().masked_fill(array <= HIDES, 0.0)
    import numpy as np

    return np.where(np.asarray(array) <= HIDES, np.float32(0), np.asarray(array).astype(np.float32))


def broadcast(given: BoundMask | Recognised | Plan, sizes: Sizes) -> Plan:
    """Returns the plan of a plan or of a bound or recognised mask for a call. A mask with one batch row is used for all batch
    rows of the call, a mask with one head for all heads.
    """
    batch, heads, kv_heads, q_len, kv_len = sizes
    if isinstance(given, Plan):
        own = given.shape
        if (own.batch, own.heads, own.kv_heads, own.q_len, own.kv_len) == sizes:
            return given
        given = given.bound
    bound = given.bind() if isinstance(given, Recognised) else given
    own = bound.shape
    fits = (own.q_len, own.kv_len) == (q_len, kv_len) and own.batch in (1, batch) and own.heads in (1, heads)
    if not fits:
        raise Error(
            f"the mask is bound to {own}, but the call has {batch} batch rows, {heads} heads, {q_len} queries and {kv_len} keys: bind it "
            f"to these sizes; one batch row and one head are repeated{exchanged(sizes, own.q_len, own.kv_len)}"
        )
    offsets = own.query_offsets
    offset: int | list[int] = offsets[0] if own.batch == 1 or len(offsets) == 1 else list(offsets)
    shape = Shape(q_len, kv_len, query_offset=offset, batch=batch, heads=heads, kv_heads=kv_heads)
    try:
        again = bound.mask.bind(shape, bound.facts)
    except Error:
        again = None
    # The same expression with more rows or heads is a repetition only if its cells are equal in all of them.
    if again is None or (own.batch < batch and again.varies[0]) or (own.heads < heads and again.varies[1]):
        again = _noren.dense("mask").bind(shape, Facts(arrays={"mask": _noren.Array.keep(dense(bound))}))
    return again.plan()


def resolved(
    mask: Mask | Spec | BoundMask | Plan | Recognised | str, shape: Shape | int | None, facts: Facts | Mapping[str, Any] | None
) -> tuple[BoundMask | Plan, list[Score]]:
    """Returns (bound mask or plan, score modifiers) of a mask in any of its forms; the first three need `shape`, and may need `facts`."""
    given: Any = Spec(mask) if isinstance(mask, str) else mask
    scores: list[Score] = []
    if isinstance(given, Spec):
        given, scores = given.mask, given.scores
    if isinstance(given, Mask):
        if shape is None:
            raise Error(f"the mask `{given}` has no sizes: give shape=, which is a length or Shape(q_len, kv_len, batch=, heads=)")
        return given.bind(shape, facts), scores
    if not isinstance(given, BoundMask | Plan | Recognised):
        raise TypeError(f"{type(given).__name__} is not a mask: give a Mask, its text, a Spec, a BoundMask or a Plan")
    if shape is not None or facts is not None:
        raise Error(f"{type(given).__name__} already has a shape and facts: leave out shape= and facts=, or give a mask without a shape and facts")
    return given.bind() if isinstance(given, Recognised) else given, scores


def refuse_array(mask: Any) -> TypeError:
    """Returns the error for an object that was given as a mask but is not a mask. If the object is an array, the message names
    the arguments for arrays.
    """
    name, function = type(mask).__name__, str(getattr(mask, "__name__", ""))
    if callable(mask) and getattr(_noren, function, None) is mask:
        return TypeError(f"the mask is the function nr.{function}: call it, nr.{function}(...)")
    if isinstance(mask, type) or getattr(mask, "is_nested", False) or not hasattr(mask, "shape") or not hasattr(mask, "dtype"):
        return TypeError(f"{name} is not a mask: give a Mask, its text, a bound mask, a Plan, or an array by keep=, drop= or additive=")
    kind = str(mask.dtype).rsplit(".", 1)[-1]
    if kind.startswith(("float", "bfloat")):
        return TypeError(f"the mask is an array of {kind}: if its floats are added to scores (0 = may attend, -inf = hidden), give additive=mask")
    return TypeError(
        f"the mask is an array of {kind}, which can have two meanings: give keep=mask if true means \"may attend\" (as in SDPA), "
        'or drop=mask if true means "ignored" (as in nn.MultiheadAttention)'
    )

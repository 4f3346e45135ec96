"""Checks numbers, lists and arrays that a caller gave. The error messages name the argument, its value and the fix."""

from __future__ import annotations

from collections.abc import Mapping
from operator import index
from typing import Any

from .._noren import Array, Error

WHOLE = 2**31 - 1
"""The largest whole number that is accepted as a size or an index."""


def short(given: Any) -> str:
    """Returns a value as text for an error message, shortened to at most 80 characters."""
    shape = _shape(given)
    if shape is not None:
        return f"an array of shape {list(shape)}"
    try:
        text = repr(given)
    except Exception:  # a class of the caller may fail in any way
        text = type(given).__name__
    return text if len(text) <= 80 else f"{text[:76]} ..."


def first_line(error: BaseException) -> str:
    """Returns the type of an exception and the first line of its message, together at most 200 characters."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else ''}"[:200].rstrip(": ")


def _shape(given: Any) -> tuple[int, ...] | None:
    try:
        return tuple(given.shape) or None
    except Exception:
        return None


def number(name: str, given: Any) -> float | None:
    """Returns the argument `name` as a number, or None if None was given. Raises TypeError for other types. The range of the
    number is not checked here but in the kernels."""
    if given is None or type(given) is float:
        return given
    try:
        value = None if isinstance(given, (bool, str, bytes)) or _shape(given) else float(given)
    except Exception:  # objects of the caller raise errors of several types
        value = None
    if value is None:
        raise TypeError(f"{name} is {short(given)}: give a number")
    return value


def integer(name: str, given: Any) -> int:
    """Returns a whole number of Python or of an array library as an int. Raises TypeError for other types, also for booleans."""
    try:
        if type(given).__name__ not in ("bool", "bool_"):
            return index(given)
    except Exception:  # tensors raise errors of several types
        pass
    raise TypeError(f"{name} is {short(given)}: give a whole number")


def whole(name: str, given: Any, least: int = 0, most: int = WHOLE) -> int:
    """Returns a whole number from `least` to `most`. Raises the error of `integer`, and `Error` for other numbers."""
    value = integer(name, given)
    if not least <= value <= most:
        raise Error(f"{name} is {short(given)}: give a whole number from {least} to {'2^31 - 1' if most == WHOLE else most}")
    return value


def listed(name: str, given: Any, most: int = 1 << 24, of: str = "whole numbers") -> list[Any]:
    """Returns the entries of a list, tuple, range or array as a list. Raises TypeError for other types, and `Error` for more
    than `most` entries. `of` is the expected type of the entries, for the message.
    """
    try:
        items = given if isinstance(given, (list, tuple, range)) else given.tolist() if _shape(given) or len(given) == 0 else None
        count = len(items) if items is not None else 0
    except OverflowError:
        items, count = (), most + 1
    except Exception:  # tensors without content raise errors of several types
        items = None
    if items is None or isinstance(given, (str, bytes, Mapping)):
        raise TypeError(f"{name} is {short(given)}: give a list of {of}")
    if count > most:
        raise Error(f"{name} is {short(given)}: give at most {most} entries")
    return list(items)


def indices(name: str, given: Any) -> list[int]:
    """Returns a list of whole numbers of at least 0. Raises the errors of `listed` and `whole`."""
    return [whole(f"{name}[{i}]", item) for i, item in enumerate(listed(name, given))]


def refuse_pairs(name: str, given: Any) -> None:
    """Raises TypeError if a set of positions contains a tuple of two whole numbers, which may be a range or two positions."""
    if isinstance(given, Mapping):
        for key, value in given.items():
            refuse_pairs(f"{name}[{key!r}]", value)
    elif isinstance(given, tuple) and len(given) == 2 and all(isinstance(part, int) for part in given):
        raise TypeError(f"{name}: {given} may be a range or two positions: give range{given} or {list(given)}")
    elif isinstance(given, (list, tuple)):
        for part in given:
            refuse_pairs(name, part)


def flag(name: str, given: Any) -> bool:
    """Returns `given` if it is a boolean. Raises TypeError for other types."""
    if type(given).__name__ not in ("bool", "bool_"):
        raise TypeError(f"{name} is {short(given)}: give True or False")
    return bool(given)


def numbers(name: str, given: Any, of: str = "numbers") -> list[float] | None:
    """Returns a list of numbers, or None if None was given. Raises the errors of `listed` and `number`."""
    if given is None:
        return None
    found = [number(f"{name}[{i}]", item) for i, item in enumerate(listed(name, given, of=of))]
    if None in found:
        raise TypeError(f"{name} is {short(given)}: give one number for each head")
    return [value for value in found if value is not None]


def check_names(name: str, given: Any) -> dict[str, Any]:
    """Returns a dict from names to values; empty for None. Raises TypeError for other types."""
    if given is not None and not (isinstance(given, Mapping) and all(isinstance(key, str) for key in given)):
        raise TypeError(f"{name} is {short(given)}: give a dict with names as keys")
    return dict(given or {})


def check_strided(name: str, array: Any) -> None:
    """Raises an error for an array without numbers in memory: nested and sparse tensors, and tensors on the device meta. `name`
    is the name of the array in the message."""
    if getattr(array, "is_nested", False):
        raise Error(f"{name} is a nested tensor: give {name}.to_padded_tensor(0.0)")
    if str(getattr(array, "layout", "torch.strided")) != "torch.strided":
        raise Error(f"{name} is a sparse tensor: give {name}.to_dense()")
    if getattr(getattr(array, "device", None), "type", None) == "meta":
        raise Error(f"{name} is a tensor on the device meta, which holds no numbers: give a tensor on another device")


def refuse_kind(name: str, kind: str, fix: str) -> None:
    """Raises a TypeError for the array `name` of a score modifier, because it does not hold floats. `kind` is the type of the
    array's numbers, and `fix` is code that converts them to floats. For booleans, the message explains how to give a mask.
    """
    if kind in ("bool", "torch.bool"):
        raise TypeError(
            f"{name} holds booleans, but a score modifier needs floats: give an array of allowed cells as a mask, "
            f'nr.dense("keep") with facts={{"arrays": {{"keep": nr.Array.keep({name})}}}}'
        )
    raise TypeError(f"{name} holds {kind}, but its numbers are added to scores or multiply scores: give floats ({fix})")


def is_sparse(array: Any) -> bool:
    """Returns true for a sparse tensor of PyTorch, and for a sparse matrix of SciPy."""
    return hasattr(array, "tocsr") or str(getattr(array, "layout", "torch.strided")).startswith("torch.sparse")


def sparse(name: str, array: Any) -> Array:
    """Returns the mask that allows exactly the cells in which a sparse matrix of booleans `[q_len, kv_len]` holds true."""
    if len(array.shape) != 2:
        raise Error(f"{name} is a sparse array of shape {list(array.shape)}: give a sparse matrix [q_len, kv_len], or {name}.to_dense()")
    kind = str(array.dtype).rsplit(".", 1)[-1]
    if kind != "bool":
        raise TypeError(f"{name} is a sparse matrix of {kind}: give booleans, {name}.to(torch.bool) or {name}.astype(bool)")
    if hasattr(array, "tocsr"):
        rows, columns = array.nonzero()
    else:
        held = array.detach().to_sparse_coo().coalesce()
        rows, columns = held.indices()[:, held.values()]
    q_len, kv_len = array.shape
    return Array.cells(q_len, kv_len, list(zip(rows.tolist(), columns.tolist(), strict=True)))


def ranges(row: Any, first: int = 0) -> list[range]:
    """Returns the ranges of consecutive true entries in an array of booleans. `first` is added to every index."""
    import numpy as np

    edges = np.flatnonzero(np.diff(np.concatenate(([0], row.astype(np.int8), [0])))) + first
    return [range(start, end) for start, end in edges.reshape(-1, 2).tolist()]

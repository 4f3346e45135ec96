"""Checks of token ids, masks and numbers given by the caller. Errors name the argument, its value and the fix."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._noren import Error
from ..arguments._given import check_strided, short

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

TOKENS = 1 << 26
"""Maximum number of tokens, including padding, in the result of one call. At this number, an int64 array takes 512 MiB."""


def choice(name: str, value: Any, choices: tuple[str, ...]) -> str:
    """Returns `value` if it is one of `choices`. Raises `Error` for any other value."""
    if not isinstance(value, str) or value not in choices:
        raise Error(f"{name} is {short(value)}: give one of {', '.join(map(repr, choices))}")
    return value


def items(name: str, values: Any, each: str) -> list[Any]:
    """Returns the entries of `values` (a list, array or data set) as a list. `each` describes an entry, for the message. Raises
    TypeError for texts, mappings and objects without a length."""
    check_strided(name, values)
    if isinstance(values, (str, bytes, Mapping)) or not hasattr(values, "__len__") or not hasattr(values, "__iter__"):
        raise TypeError(f"{name} is {short(values)}: give a list of {each}")
    try:
        count = len(values)
        if count <= TOKENS:
            return list(values)
    except OverflowError as error:
        raise Error(f"{name} is {short(values)}: give at most {TOKENS} entries at once") from error
    except TypeError as error:  # an array without dimensions
        raise TypeError(f"{name} is {short(values)}: give a list of {each}") from error
    raise Error(f"{name} has {count} entries: give at most {TOKENS} at once")


def integers(name: str, value: Any, dims: int) -> Ints:
    """Returns `value`, an array of whole numbers with `dims` dimensions, as int64. Booleans are converted to 0 and 1.

    Raises TypeError for floats, texts and objects. Raises `Error` for another number of dimensions and for numbers outside the
    range of int64.
    """
    given = _numpy(name, value)
    if given.size == 0 and given.dtype.kind == "f":
        given = given.astype(np.int64)  # NumPy reads an empty list as floats
    if given.dtype.kind not in "biu":
        raise TypeError(f"{name} holds {given.dtype}: give whole numbers")
    if given.ndim != dims:
        if dims == 1:
            raise Error(f"{name} has shape {given.shape}: give one list of whole numbers (1 dimension)")
        raise Error(f"{name} has shape {given.shape}: give whole numbers in rows that all have the same length ({dims} dimensions)")
    if given.dtype == np.uint64 and given.size and given.max() > np.uint64(2**63 - 1):
        raise Error(f"{name} holds {given.max()}: give numbers below 2**63")
    return given.astype(np.int64)


def ids(name: str, value: Any, dims: int = 1) -> Ints:
    """Returns an array of token ids with `dims` dimensions: whole numbers of 0 or more. Raises TypeError and `Error` as `integers`
    does, and `Error` for negative numbers."""
    array = _numpy(name, value)
    if array.dtype.kind == "b":
        raise TypeError(f"{name} holds booleans: give token ids")
    given = integers(name, array, dims)
    if given.size and given.min() < 0:
        raise Error(f"{name} holds {given.min()}, but token ids are not negative: remove the numbers that mark padding")
    return given


def flags(name: str, value: Any, dims: int, meaning: str) -> Bools:
    """Returns `value`, an array of zeros and ones or of booleans, as booleans. `meaning` is the meaning of 1, for the error
    message."""
    given = integers(name, value, dims)
    wrong = (given != 0) & (given != 1)
    if wrong.any():
        raise Error(f"{name} holds {given[wrong][0]}: give 1 ({meaning}) and 0, or booleans")
    return given.astype(np.bool_)


def counted(count: int, word: str) -> str:
    """Returns a count with its noun, in the singular or plural: `1 document`, `2 documents`."""
    return f"{count} {word}{'s' * (count != 1)}"


def is_torch(value: Any) -> bool:
    """Returns true if the value is a tensor of PyTorch. This function does not import PyTorch."""
    return type(value).__module__.split(".", 1)[0] == "torch" and hasattr(value, "detach")


def as_tensors(arrays: Mapping[str, NDArray[Any]], device: Any = None) -> dict[str, Any]:
    """Returns the arrays as tensors of PyTorch on a device. Raises `Error` if PyTorch is not installed or if this machine does
    not have the device."""
    try:
        import torch
    except ImportError as error:
        raise Error("PyTorch is not installed: install it, or use the arrays of NumPy") from error
    try:
        place = torch.device("cpu" if device is None else device)
        torch.empty(0, device=place)
    except Exception as error:
        raise Error(f"device is {short(device)}: give a device of this machine, such as 'cpu' ({str(error).splitlines()[0]:.200})") from error
    return {name: torch.from_numpy(array).to(place) for name, array in arrays.items()}


def column(rows: Iterable[Mapping[str, Any]], name: str, each: str = "example") -> list[Any]:
    """Returns the values of the key `name` in all rows, or an empty list if no row has the key. Raises `Error` if only some
    rows have it.

    `each` is the word for a row in the error message.
    """
    rows = list(rows)
    have = [name in row for row in rows]
    if any(have) and not all(have):
        raise Error(f"{each} {have.index(False)} has no {name!r}, but {each} {have.index(True)} has one: give {name!r} in all {each}s")
    return [row[name] for row in rows] if any(have) else []


def _numpy(name: str, value: Any) -> NDArray[Any]:
    """Returns the value as an array of NumPy. Raises TypeError for values that are not arrays or lists of numbers."""
    if isinstance(value, (str, bytes, Mapping)) or not (hasattr(value, "__len__") or hasattr(value, "__array__")):
        raise TypeError(f"{name} is {short(value)}: give a list or array of whole numbers")
    try:
        if hasattr(value, "__len__") and len(value) > TOKENS:
            raise Error(f"{name} has {len(value)} entries: give at most {TOKENS}")
        given = np.asarray(value.detach().cpu() if is_torch(value) else value)
    except Error:
        raise
    except Exception as error:
        raise TypeError(f"{name} is {short(value)}: give whole numbers, and rows of equal length ({error})") from error
    if given.size > TOKENS:
        raise Error(f"{name} has {given.size} entries: give at most {TOKENS}")
    return given

"""Conversion of facts given in Python (lists, ranges, NumPy arrays, tensors) to JSON and arrays."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from .._noren import Array, Error
from ._given import check_names, refuse_pairs, short


def read(facts: Mapping[str, Any]) -> tuple[str, dict[str, Array]]:
    """Returns (facts as JSON, arrays by name). Raises TypeError or `Error` for a value that cannot be a fact."""
    if not isinstance(facts, Mapping):
        raise TypeError(f"facts are {short(facts)}: give Facts(lengths=...), a dict of facts, or None")
    arrays: dict[str, Array] = {}
    rest: dict[str, Any] = {}
    for name, array in check_names("arrays", facts.get("arrays")).items():
        if isinstance(array, Array):
            arrays[name] = array
        elif isinstance(array, Mapping):
            rest[name] = array
        else:
            raise TypeError(
                f"the meaning of the cells of arrays[{name!r}] is not given: give Array.keep(...) (true = may attend), "
                "Array.drop(...) (true = ignored) or Array.additive(...) (0 and -inf)"
            )
    for name in ("labels", "real_keys"):
        refuse_pairs(name, facts.get(name))
    plain = {key: value for key, value in facts.items() if value is not None and key != "arrays"}
    if rest:
        plain["arrays"] = rest
    try:
        return json.dumps(plain, default=_plain, allow_nan=False), arrays
    except ValueError as error:
        raise Error("`facts` contains a NaN or an infinity, but lengths, levels and positions are whole numbers") from error


def _plain(value: Any) -> Any:
    """Converts a Python value to a value that can be written as JSON."""
    if isinstance(value, range) and value.step == 1:
        return f"{value.start}..{value.stop}"
    if isinstance(value, (range, set, frozenset)):
        return sorted(value)
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"a value in `facts` is {short(value)}: give numbers, lists, ranges or arrays")

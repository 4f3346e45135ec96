"""The catalogue of checks, shared by Rust and Python: `noren_flow::audit`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from .._noren import Error, audit_catalogue, audit_changes
from .intent import Bits

_CATALOGUE: dict[str, Any] = json.loads(audit_catalogue())
PADS: int = _CATALOGUE["pads"]
"""The number of padding tokens that checks add at one end of a sequence."""
LENGTHS: tuple[int, ...] = tuple(_CATALOGUE["lengths"])
"""The possible lengths of the test sequence, in ascending order. `Lab.pick_length` takes the first length that shows the effect
of all windows."""
ROWS: int = _CATALOGUE["rows"]
"""The number of batch rows of a pass in which each row tests another token or another length."""
MOST: float = _CATALOGUE["most"]
"""A difference of this size or more, as a fraction of the largest output, is never called rounding."""


@dataclass(frozen=True)
class Entry:
    """A check of the catalogue, with its texts."""

    name: str
    title: str
    does: str
    holds: str
    broken: Sequence[str]
    likely: str

    def sentence(self, *about: object, which: int = 0) -> str:
        """Returns the sentence with index `which` about a failure of this check. Each `{}` of the sentence is replaced by the
        next value of `about`.
        """
        return self.broken[which].format(*about)


CHECKS: dict[str, Entry] = {form["name"]: Entry(**form) for form in _CATALOGUE["checks"]}


class Change(NamedTuple):
    """Tokens that are changed in one of two passes, and the outputs that are compared."""

    what: str
    broken: str
    tokens: list[int]
    one_by_one: bool
    """True if each token is changed in a row of its own; false if all are changed in one row."""
    compared: list[tuple[int, int]]
    """The compared outputs, each as (row, position)."""
    moves: bool
    """True if all compared outputs must change; false if none may change."""


class Skip(Exception):
    """The check does not apply; the message is the reason."""


def changes(check: str, reach: Bits, direct: Bits) -> list[Change]:
    """Returns the changes of input tokens that a check makes: `check` is `prefix`, `reach`, `liveness`, `window` or `redaction`.
    Raises `Skip` if the check makes no change.
    """
    try:
        return [Change(*change) for change in audit_changes(check, len(reach), reach.tobytes(), direct.tobytes())]
    except Error as reason:
        raise Skip(str(reason)) from None

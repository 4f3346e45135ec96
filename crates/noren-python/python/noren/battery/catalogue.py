"""The catalogue of checks, one for Rust and Python: `noren_flow::audit`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from .._noren import Error, audit_catalogue, audit_changes
from .intent import Bits

_CATALOGUE: dict[str, Any] = json.loads(audit_catalogue())
PADS: int = _CATALOGUE["pads"]
"""Padding tokens that are put at an end."""
LENGTHS: tuple[int, ...] = tuple(_CATALOGUE["lengths"])
"""Lengths that are tried until outputs lie beyond all windows."""
ROWS: int = _CATALOGUE["rows"]
"""Rows of a pass that tries as many tokens or lengths at once."""
MOST: float = _CATALOGUE["most"]
"""No difference of half the largest output is called rounding."""


@dataclass(frozen=True)
class Entry:
    """A check of the catalogue."""

    name: str
    title: str
    does: str
    holds: str
    broken: Sequence[str]
    likely: str

    def sentence(self, *about: object, which: int = 0) -> str:
        """What a failure means; each `{}` is replaced by the next of `about`."""
        return self.broken[which].format(*about)


CHECKS: dict[str, Entry] = {form["name"]: Entry(**form) for form in _CATALOGUE["checks"]}


class Change(NamedTuple):
    """Tokens that are changed in one of two passes, and the outputs that are compared."""

    what: str
    broken: str
    tokens: list[int]
    one_by_one: bool
    """Each token in a row of its own."""
    compared: list[tuple[int, int]]
    """Row and position."""
    moves: bool
    """All compared outputs must move; otherwise all must stay."""


class Skip(Exception):
    """The check does not apply, for this reason."""


def changes(check: str, reach: Bits, direct: Bits) -> list[Change]:
    """The changes of `prefix`, `reach`, `liveness`, `window` or `redaction`; raises `Skip` where there are none."""
    try:
        return [Change(*change) for change in audit_changes(check, len(reach), reach.tobytes(), direct.tobytes())]
    except Error as reason:
        raise Skip(str(reason)) from None

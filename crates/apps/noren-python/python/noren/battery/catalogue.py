"""The catalogue of the audit's checks. The catalogue is defined in Rust (`noren_flow::audit`), and Python reads it."""

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
"""The possible lengths of the test sequence, in ascending order. `Lab.pick_length` takes the shortest length at which the
windows of all layers hide tokens from outputs."""
ROWS: int = _CATALOGUE["rows"]
"""The number of batch rows of a forward pass in which each batch row tests another token or another length."""
MOST: float = _CATALOGUE["most"]
"""The limit from which a difference never counts as rounding, as a fraction of the largest output."""


@dataclass(frozen=True)
class Entry:
    """A check in the catalogue of the audit, with the texts that reports show."""

    name: str
    title: str
    does: str
    holds: str
    broken: Sequence[str]
    likely: str

    def sentence(self, *about: object, which: int = 0) -> str:
        """Returns the sentence `broken[which]`, which describes a failure of this check. The first `{}` in the sentence is
        replaced by the first value of `about`, and so on.
        """
        return self.broken[which].format(*about)


CHECKS: dict[str, Entry] = {form["name"]: Entry(**form) for form in _CATALOGUE["checks"]}


class Change(NamedTuple):
    """The tokens that differ between two forward passes, and the outputs of these passes that are compared."""

    what: str
    broken: str
    tokens: list[int]
    one_by_one: bool
    """True if each token is changed in a separate batch row; false if all tokens are changed in one row."""
    compared: list[tuple[int, int]]
    """The compared outputs, each as (row, position)."""
    moves: bool
    """True if all compared outputs must change; false if none may change."""


class Skip(Exception):
    """Raised by a check that does not apply to the model. The message is the reason."""


def changes(check: str, reach: Bits, direct: Bits) -> list[Change]:
    """Returns the changes of input tokens that a check makes: `check` is `prefix`, `reach`, `liveness`, `window` or `redaction`.
    Raises `Skip` if the check makes no change.
    """
    try:
        return [Change(*change) for change in audit_changes(check, len(reach), reach.tobytes(), direct.tobytes())]
    except Error as reason:
        raise Skip(str(reason)) from None

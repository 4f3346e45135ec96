"""Which documented item contains a message: a reader of the program sees the message where that item shows it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass
class Item:
    """A documented item: where it begins and ends, its signature, its documentation, and its owner as in `texts.Text`."""

    start: int
    end: int
    signature: str
    documentation: str
    owner: str = ""


def innermost(items: Iterable[Item], at: int) -> Item | None:
    """Returns the shortest item that contains the place `at`."""
    return min((one for one in items if one.start < at < one.end), key=lambda one: one.end - one.start, default=None)

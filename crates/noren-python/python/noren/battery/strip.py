"""Draws the positions of changed inputs or outputs in one line of text."""

from __future__ import annotations

from collections.abc import Sequence

COLUMNS = 72
"""The maximum width of a drawing, in characters."""


def strip(positions: Sequence[int], length: int) -> str:
    """Draws `positions` (from 0) in a sequence of `length` tokens as one line of text. If `length` is above `COLUMNS`, each
    character represents several positions."""
    columns = min(length, COLUMNS)
    hit = {position * columns // length for position in positions}
    return "".join("■" if i in hit else "·" for i in range(columns))

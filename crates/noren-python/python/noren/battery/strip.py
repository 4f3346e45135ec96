"""Positions of a sequence drawn in one line."""

from __future__ import annotations

from collections.abc import Sequence

COLUMNS = 72
"""How wide a strip of positions is drawn."""


def strip(positions: Sequence[int], length: int) -> str:
    """Positions drawn in a line; long ones are drawn smaller."""
    columns = min(length, COLUMNS)
    hit = {position * columns // length for position in positions}
    return "".join("■" if i in hit else "·" for i in range(columns))

"""What questions about masks are answered with: called by the extension module, made for reading."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ._noren import BoundMask

Cell = tuple[int, int, int, int]
"""Batch row, head, query row, key."""


def dense(bound: BoundMask) -> NDArray[np.bool_]:
    """The cells, `[batch, heads, q_len, kv_len]`, true where a query may read a key."""
    import numpy as np

    shape = bound.shape
    out = np.empty((shape.batch, shape.heads, shape.q_len, shape.kv_len), np.bool_)
    bound.fill(out)
    return out


@dataclass(frozen=True, repr=False)
class Explanation:
    """The truth of one cell and of every part of the mask there."""

    text: str
    _json: str = field(repr=False)

    @property
    def parts(self) -> dict[str, Any]:
        """The mask and its parts as nested dicts of `mask`, `allowed`, `why` and `parts`."""
        root: dict[str, Any] = json.loads(self._json)["root"]
        return root

    @property
    def allowed(self) -> bool:
        return bool(json.loads(self._json)["allowed"])

    @property
    def why(self) -> str:
        return str(self.parts["why"])

    def __bool__(self) -> bool:
        return self.allowed

    def __repr__(self) -> str:
        return self.text


class Difference:
    """Where two masks differ; false when they allow the same cells."""

    def __init__(self, first: BoundMask, second: BoundMask) -> None:
        self._first, self._second = first, second
        self.first_cell: Cell | None = first.first_difference(second)

    def __bool__(self) -> bool:
        return self.first_cell is not None

    @property
    def only_first(self) -> int:
        """Number of cells that the first allows and the second does not."""
        return self._first.count_outside(self._second)

    @property
    def only_second(self) -> int:
        """Number of cells that the second allows and the first does not."""
        return self._second.count_outside(self._first)

    def cells(self, limit: int = 100) -> list[Cell]:
        """Up to `limit` cells that exactly one of the two allows, in order."""
        return self._first.differences(self._second, limit)

    def picture(self, *, width: int = 100, height: int = 48, color: bool = False) -> str:
        return self._first.difference_text(self._second, width=width, height=height, color=color)

    def _repr_svg_(self) -> str:
        return self._first.difference_svg(self._second)

    def __str__(self) -> str:
        return self.picture()

    def __repr__(self) -> str:
        names = f"{self._first.mask} and {self._second.mask}"
        if self.first_cell is None:
            return f"<{names} allow the same cells>"
        return f"<{names} differ: {self.only_first} cells only in the first, {self.only_second} only in the second>"


@dataclass(frozen=True, repr=False)
class Stats:
    """Exact counts over all batch rows and heads of a plan."""

    mask: str
    shape: tuple[int, int, int, int]
    patterns: int
    cells: int
    allowed: int
    density: float
    computed: int
    computed_per_allowed: float
    empty_rows: int
    full_tiles: int
    mixed_tiles: int
    empty_tiles: int
    plan_bytes: int
    dense_bytes: int
    planning_seconds: float
    text: str
    reordered: dict[str, Any] | None = None

    def __repr__(self) -> str:
        return self.text


def stats(text: str, values: str) -> Stats:
    """Of the extension module's words and JSON."""
    fields = json.loads(values)
    return Stats(**{**fields, "shape": tuple(fields["shape"]), "text": text})

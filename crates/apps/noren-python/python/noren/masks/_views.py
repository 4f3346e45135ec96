"""The results of methods of masks that a user prints (explanations, differences and statistics), with their text."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .._noren import Error

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from .._noren import BoundMask, Facts, Shape

Cell = tuple[int, int, int, int]
"""A cell: (batch row, head, query row, key), indices from 0."""


MOST_CELLS = 1 << 32
"""Maximum number of cells of a mask that is returned as an array: 4 GiB."""


def dense(bound: BoundMask, batch: int | None = None, heads: int | None = None) -> NDArray[np.bool_]:
    """Returns the cells `[batch, heads, q_len, kv_len]` as booleans. True means that the query may read the key. `batch` and
    `heads` are those of the shape [default], or 1 if all batch rows or heads have equal cells.
    """
    import numpy as np

    shape = bound.shape
    sizes = (shape.batch if batch is None else batch, shape.heads if heads is None else heads, shape.q_len, shape.kv_len)
    if math.prod(sizes) > MOST_CELLS:
        raise Error(
            f"the array of `{bound.mask}` would have {math.prod(sizes)} cells {list(sizes)}, and the maximum is {MOST_CELLS}: give the mask "
            "itself to attention, or read it in parts with bound.select(rows, keys)"
        )
    out = np.empty(sizes, np.bool_)
    bound.fill(out)
    return out


@dataclass(frozen=True, repr=False)
class Explanation:
    """The reason why one cell is allowed or denied, for the whole mask and for each of its subexpressions.

    In a condition such as `if explanation:`, it is true if the cell is allowed.
    """

    text: str
    """The explanation as lines of text."""
    _json: str = field(repr=False)

    @property
    def parts(self) -> dict[str, Any]:
        """The explanation as a dict with the entries `mask`, `allowed`, `why` and `parts`. `parts` is a list with one dict of
        the same form for each direct subexpression of `mask`.
        """
        root: dict[str, Any] = json.loads(self._json)["root"]
        return root

    @property
    def allowed(self) -> bool:
        """True if the query may read the key."""
        return bool(json.loads(self._json)["allowed"])

    @property
    def why(self) -> str:
        """The reason in one sentence."""
        return str(self.parts["why"])

    def __bool__(self) -> bool:
        return self.allowed

    def __repr__(self) -> str:
        return self.text


class Difference:
    """The cells in which two masks differ. In a condition such as `if difference:`, a `Difference` is true if at least one cell
    differs."""

    def __init__(self, first: BoundMask, second: BoundMask) -> None:
        self._first, self._second = first, second
        self.first_cell = next(iter(first.differences(second, 1)), None)

    def __bool__(self) -> bool:
        return self.first_cell is not None

    @property
    def only_first(self) -> int:
        """Number of cells that the first mask allows and the second denies."""
        return self._first.count_outside(self._second)

    @property
    def only_second(self) -> int:
        """Number of cells that the second mask allows and the first denies."""
        return self._second.count_outside(self._first)

    def cells(self, limit: int = 100) -> list[Cell]:
        """Returns up to `limit` cells that exactly one of the two masks allows, in ascending order."""
        return self._first.differences(self._second, limit)

    def picture(self, *, width: int = 100, height: int = 48, color: bool = False) -> str:
        """Returns a picture of the differing cells as text of at most `width` characters and `height` lines."""
        return self._first.difference_text(self._second, width=width, height=height, color=color)

    def _repr_svg_(self) -> str:
        return self._first.difference_svg(self._second)

    def __str__(self) -> str:
        return self.picture()

    def __repr__(self) -> str:
        names = f"{self._first.mask} and {self._second.mask}"
        if self.first_cell is None:
            return f"<{names} allow the same cells>"
        return f"<{names} differ: the first alone allows {self.only_first} cells, the second alone {self.only_second} cells>"


@dataclass(frozen=True)
class Equivalence:
    """The result of `Mask.equivalent`; `str` formats the result as a sentence."""

    text: str
    """The result as a sentence."""
    equal: bool | None = None
    """True: equality was proved. False: a difference was found. None: neither was established."""
    lengths: tuple[int, int] | None = None
    """The shortest and the longest length, in tokens, at which both masks can be bound; `None` unless equality was proved."""
    shape: Shape | None = None
    """The shape in which a difference was found; `None` if no difference was found.

    If `facts` is empty, this is the shortest such shape: the masks allow the same cells in all shorter shapes.
    """
    facts: Facts | None = None
    """The facts (data such as lengths or documents) with which a difference was found.

    The facts are empty if the difference does not depend on facts; `None` if no difference was found.
    """
    cell: Cell | None = None
    """The cell (batch row, head, query row, key), indices from 0, that exactly one of the two masks allows; `None` if no
    difference was found."""
    layer: int | None = None
    """The index of the layer, from 0, in which a difference was found; `None` if no difference was found."""
    only_first: bool | None = None
    """True: only the first mask allows `cell`. False: only the second mask allows it. None: no difference was found."""
    atoms: Sequence[str] = ()
    """The elementary masks (atoms) that prevented a proof; empty if equality was proved or a difference was found."""

    def __bool__(self) -> bool:
        raise TypeError("an Equivalence has no truth value: use its attribute `equal`, which is True, False or None (not established)")

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, repr=False)
class Stats:
    """Exact counts of a plan. They are sums over all batch rows and heads."""

    mask: str
    """The mask as text."""
    shape: tuple[int, int, int, int]
    """Numbers of (batch rows, heads, queries, keys)."""
    patterns: int
    """Number of distinct patterns (sets of allowed cells); all pairs of batch row and head with equal allowed cells have the
    same pattern."""
    cells: int
    """Number of cells: batch rows x heads x queries x keys."""
    allowed: int
    """Number of allowed cells."""
    density: float
    """Number of allowed cells divided by the number of cells."""
    computed: int
    """Number of cells that kernels compute."""
    empty_rows: int
    """Number of query rows without an allowed key."""
    full_tiles: int
    """Number of tiles (rectangles of query rows and keys) that the plan knows to allow every cell."""
    mixed_tiles: int
    """Number of the other tiles that kernels compute. A few of them may allow every cell, because the plan joins short ranges of
    keys."""
    empty_tiles: int
    """Number of tiles without an allowed cell."""
    text: str
    """The counts as lines of text."""
    reordered: dict[str, Any] | None = None
    """The order in which the plan computes queries and keys, and the number of cells that would be computed in the order of
    indices. None if the plan keeps the order of indices."""

    def __repr__(self) -> str:
        return self.text


def stats(text: str, values: str) -> Stats:
    """Returns a `Stats`. `text` has the counts as lines of text, and `values` has them as JSON; the extension module makes
    both.
    """
    known = {name: value for name, value in json.loads(values).items() if name in Stats.__dataclass_fields__}
    return Stats(**{**known, "shape": tuple(known["shape"]), "text": text})

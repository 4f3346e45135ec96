"""The masks that a probe tests: the default masks, and masks given by the user."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._noren import Error, Mask, Shape, parse
from ._reference import Bools

LENGTH = 16
MAX_KEYS = 248
"""The largest number of keys of a user's mask. The weights of all keys must fit into an output row of head dimension 256."""


@dataclass(frozen=True)
class Case:
    """One mask that a probe tests, as an array of cells."""

    name: str
    cells: Bools
    """The mask `[batch, heads, q_len, kv_len]`: true where a query may read a key. Each dimension may be 1, which broadcasts."""
    q_len: int
    batch: int = 2
    heads: int = 2

    @property
    def kv_len(self) -> int:
        return int(self.cells.shape[3])


def default_cases(seed: int) -> list[Case]:
    """Returns the masks that a probe tests by default, with 16 keys, two batch rows and two heads."""
    n = LENGTH
    q, k = np.arange(n)[:, None], np.arange(n)[None, :]
    causal = q >= k
    rng = np.random.default_rng([seed, 5])
    documents = np.stack([np.searchsorted(ends, np.arange(n), side="right") for ends in ([5, 11], [3, 8, 13])])
    image = (q >= 4) & (q < 9) & (k >= 4) & (k < 9)
    draws = rng.random((2, 2, n, n)) < 0.5
    draws |= np.eye(n, dtype=bool)
    per_head = np.stack([causal & (q - k < 6), (q - k) % 3 == 0])
    few = 6
    return [
        Case("causal", causal[None, None], n),
        Case("causal, fewer queries than keys", (np.arange(few)[:, None] + n - few >= k)[None, None], few),
        Case("padding on the right", (k < np.array([11, 13])[:, None, None, None]), n),
        Case("padding on the left", (k >= np.array([5, 3])[:, None, None, None]), n),
        Case("sliding window", (causal & (q - k < 5))[None, None], n),
        Case("documents", (documents[:, :, None] == documents[:, None, :])[:, None], n),
        Case("image span in a causal mask", (causal | image)[None, None], n),
        Case("different for each head", per_head[None], n),
        Case("random cells", draws, n),
    ]


def cases(masks: Any, seed: int, length: int) -> list[Case]:
    """Returns the masks that a probe tests: the default masks if `masks` is None, otherwise the given masks.

    A given mask is a mask of noren, its text, or an array of booleans (true may attend) with up to 4 dimensions. `masks` is a
    mapping from names to masks, or a sequence of masks. Masks of noren are tested with `length` queries, `length` keys, two
    batch rows and two heads.
    """
    if masks is None:
        return default_cases(seed)
    if isinstance(masks, Mapping) and masks:
        return [_case(str(name), mask, length) for name, mask in masks.items()]
    if isinstance(masks, (str, np.ndarray)) or not isinstance(masks, Iterable):
        masks = [masks]
    found = [_case(None, mask, length) for mask in masks]
    if not found:
        raise Error("masks is empty: give at least one mask, or None for the default masks")
    return found


def _case(name: str | None, mask: Any, length: int) -> Case:
    if isinstance(mask, (str, Mask)):
        parsed = parse(mask) if isinstance(mask, str) else mask
        if not isinstance(parsed, Mask):
            raise Error(f"{mask!r} has score modifiers: give a mask without score modifiers; the probe tests score modifiers by the function's own arguments")
        cells = np.asarray(parsed.dense(Shape.square(length, batch=2, heads=2)), bool)
        name = name or str(mask)
    else:
        cells = np.asarray(mask)
        if cells.dtype != bool:
            raise Error(f"the mask array holds {cells.dtype}: give booleans, true where a query may read a key")
        name = name or f"array {list(cells.shape)}"
    if not 2 <= cells.ndim <= 4 or 0 in cells.shape:
        raise Error(f"the mask {name!r} has the shape {list(cells.shape)}: give [q_len, kv_len], [batch, q_len, kv_len] or [batch, heads, q_len, kv_len]")
    if cells.ndim == 3:
        cells = cells[:, None]
    cells = cells.reshape((1,) * (4 - cells.ndim) + cells.shape)
    if cells.shape[3] > MAX_KEYS:
        raise Error(f"the mask {name!r} has {cells.shape[3]} keys, but a probe can read the weights of at most {MAX_KEYS} keys: give a shorter mask")
    return Case(name, cells, cells.shape[2] if cells.shape[2] > 1 else cells.shape[3], max(2, cells.shape[0]), max(2, cells.shape[1]))

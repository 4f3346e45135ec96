"""Masks given as tensors. The plan contains only allowed cells; for these cells, the values of float masks are added to the scores.

PyTorch's modules convert boolean masks to floats of 0 and -inf before a layer receives them, so each value of a float mask is inspected: a
number of `HIDES` or less, such as -1e4, -1e9 and -inf, hides the cell, any other number is added. Plans are cached by the content of the masks,
compared bit by bit: the layers of a model share one plan, and a changed mask gets a new plan.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from threading import Lock
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .. import _noren
from .._noren import HIDES, Array, Error, Facts, Mask, Plan, Shape
from ..arguments._tensors import lend
from ..masks._forms import Sizes

Lowest = Literal["refuse", "padding", "zero"]
"""The treatment of a row of a float mask in which every cell is hidden, and a cell by a finite number. "refuse": `planned` raises
`Error`. "padding": `planned` raises `Error` unless the token of the row is padding. "zero": the output of the row is 0."""
MOST_BYTES = 1 << 28
"""Maximum memory of the cache of plans, masks included, in bytes."""
MOST_PLANS = 512
"""Maximum number of cached plans."""


@dataclass(frozen=True)
class Given:
    """A mask tensor `[batch or 1, heads or 1, q_len or 1, kv_len or 1]`, and the meaning of its values."""

    name: str
    tensor: Tensor
    drop: bool = False
    """True if the value true means "ignored"; false if it means "may attend"."""


@dataclass
class Kept:
    plan: Plan
    bytes: int
    empty: NDArray[np.bool_] | None = None
    """Booleans `[batch, q_len]`: true for a query row that reads no key in at least one head; None until they are computed."""


class Plans:
    """A cache of plans by the masks and sizes from which they were made; the least recently used plans are removed."""

    def __init__(self, most_bytes: int) -> None:
        self.most_bytes, self.bytes = most_bytes, 0
        self.made = 0
        """The number of plans that were added since the start of the process."""
        self._kept: OrderedDict[Hashable, Kept] = OrderedDict()
        self._lock = Lock()

    def get(self, key: Hashable) -> Kept | None:
        with self._lock:
            found = self._kept.get(key)
            if found is not None:
                self._kept.move_to_end(key)
            return found

    def put(self, key: Hashable, kept: Kept) -> Kept:
        with self._lock:
            self.made += 1
            self.bytes += kept.bytes
            old = self._kept.pop(key, None)
            self.bytes -= 0 if old is None else old.bytes
            self._kept[key] = kept
            while len(self._kept) > 1 and (self.bytes > self.most_bytes or len(self._kept) > MOST_PLANS):
                self.bytes -= self._kept.popitem(last=False)[1].bytes
        return kept


_PLANS = Plans(MOST_BYTES)


def sizes_of(q: Tensor, k: Tensor) -> Sizes:
    return q.shape[0], q.shape[1], k.shape[1], q.shape[2], k.shape[2]


@lru_cache(maxsize=256)
def simple(is_causal: bool, batch: int, heads: int, kv_heads: int, q_len: int, kv_len: int) -> Plan:
    """Returns the plan of a call without mask tensors: the causal mask if `is_causal` is true, otherwise the full mask."""
    shape = Shape.cross(q_len, kv_len, batch=batch, heads=heads, kv_heads=kv_heads)
    return (_noren.causal() if is_causal else _noren.full()).plan(shape)


def ignored(mask: Tensor) -> Tensor:
    """Returns booleans in the shape of the float mask: true for a cell that the mask hides."""
    return mask <= HIDES


def planned(
    base: Mask,
    given: Sequence[Given],
    sizes: Sizes,
    *,
    extra: int = 0,
    lowest: Lowest = "refuse",
) -> tuple[Plan, list[Tensor]]:
    """Returns (plan, biases): the plan of the cells that `base` and all masks `given` allow, and the values that float masks add to the
    scores of these cells.

    Every query reads the last `extra` keys, even if `base` denies them (the bias keys of `nn.MultiheadAttention`). If all cells of a row
    are hidden by one finite number, PyTorch's output for the row is the mean of all values. With `lowest="zero"`, noren returns 0 for
    such a row. With "refuse", such a row is an error (`Error`). With "padding", it is an error unless the token of the row is itself
    padding: the padding mask hides the key with the same index.
    """
    kv_len = sizes[4]
    arrays, biases, finite = [], [], []
    last = max((i for i, mask in enumerate(given) if _by_key(mask.tensor)), default=-1)
    for i, mask in enumerate(given):
        tensor = mask.tensor
        if tensor.shape[2] == 1 and i != last and sizes[3] > 1:
            tensor = tensor.expand(-1, -1, sizes[3], -1)
        array, added, lowest_found = _noren.read_mask(lend(tensor.cpu()), mask.drop, kv_len)  # the plan needs the content
        arrays.append(array)
        if added or (mask.tensor.requires_grad and torch.is_grad_enabled()):
            biases.append(mask.tensor.masked_fill(ignored(mask.tensor), 0.0))
        if lowest_found:
            finite.append(mask.name)
    key = (base, tuple(arrays), sizes, extra)
    kept = _PLANS.get(key)
    if kept is None:
        nbytes = sum(a.shape[0] * a.shape[1] * a.shape[2] * -(-a.shape[3] // 64) * 8 for a in arrays)
        plan = _plan(base, arrays, sizes, extra)
        kept = _PLANS.put(key, Kept(plan, nbytes + plan.bytes))
    if finite and lowest != "zero":
        _refuse_lowest(kept, finite[0], arrays[last] if lowest == "padding" and last >= 0 else None)
    return kept.plan, biases


def _by_key(mask: Tensor) -> bool:
    """Returns true if the mask depends only on the batch row and the key."""
    return mask.shape[1] == 1 and mask.shape[2] == 1


def _plan(base: Mask, arrays: list[Array], sizes: Sizes, extra: int) -> Plan:
    batch, heads, kv_heads, q_len, kv_len = sizes
    facts: dict[str, Any] = {"arrays": {}}
    mask = base
    if extra:
        mask = mask & _noren.keys(range(kv_len - extra)) | _noren.keys(range(kv_len - extra, kv_len))
    for i, array in enumerate(arrays):
        if array.shape[1:3] == [1, 1] and "real_keys" not in facts:
            rows = [array.first_row(row, 0) for row in range(array.shape[0])]
            listed = [[f"{start}..{end}" for start, end in row] for row in rows]
            facts["real_keys"] = listed if len(listed) == batch else listed * batch  # `base` may use this fact too
            if any(row != [(0, kv_len)] for row in rows):
                mask = mask & _noren.padding()
        else:
            facts["arrays"][f"mask{i}"] = array
            mask = mask & _noren.dense(f"mask{i}")
    shape = Shape.cross(q_len, kv_len, batch=batch, heads=heads, kv_heads=kv_heads)
    return mask.plan(shape, Facts(**facts).used_by(mask))


def _refuse_lowest(kept: Kept, name: str, padding: Array | None) -> None:
    if kept.empty is None:
        kept.empty = empty_rows(kept.plan)
    empty = kept.empty
    if padding is not None and empty.any() and padding.shape[3] == empty.shape[1]:
        real = np.zeros((padding.shape[0], empty.shape[1]), np.bool_)
        for row in range(len(real)):
            for start, end in padding.first_row(row, 0):
                real[row, start:end] = True
        empty = empty & real
    if empty.any():
        row, query = np.argwhere(empty)[0].tolist()
        raise Error(
            f"{name} has rows that hold only the type's lowest number or another finite number that hides (query {query} of batch row {row}): for these rows, PyTorch "
            "gives the mean of all values and noren gives 0; use -inf (or a boolean mask) for rows that may read nothing"
        )


def empty_rows(plan: Plan) -> NDArray[np.bool_]:
    """Returns booleans `[batch, q_len]`: true for a query row that reads no key in at least one head."""
    shape = plan.shape
    out = np.zeros((shape.batch, shape.q_len), np.bool_)
    if plan.stats().empty_rows == 0:
        return out
    plan = plan.bound.plan(reorder="never")
    count, of = _noren.patterns(plan)
    empty = [np.diff(np.frombuffer(_noren.row_runs(plan, pattern)[0], np.uint32)) == 0 for pattern in range(count)]
    for index, pattern in enumerate(of):
        out[index // shape.heads] |= empty[pattern]
    return out

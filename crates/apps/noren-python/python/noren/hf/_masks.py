"""Converts the masks that transformers' models build to masks of noren, with their sizes and padding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import reduce
from operator import and_, or_
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask
from torch.overrides import TorchFunctionMode

from .._noren import Array, Error, Facts, Mask, Plan, Shape, causal, chunk, dense, full, keys, none, padding, queries, spans, window
from ..arguments._given import ranges
from ..torch._mask_call import Own, by_row
from ._calls import Frame, current_frame, traced
from ._inputs import POSITIONS, restarts, warn_of_packing

TILE = 256
"""Number of query rows in one call of a mask function that noren does not recognise and therefore evaluates."""
MOST_BORDERS = 16
"""Number of borders between sequences in a row, at which a mask is checked to separate the sequences."""


@dataclass(repr=False, eq=False)
class Masked(BlockMask):
    """A mask with its sizes, facts and plans, which transformers passes from its mask builders to every layer.

    `Masked` is a subclass of `BlockMask` for one reason: if a model inside another model receives a finished mask, transformers
    builds its mask again, unless the finished mask is a tensor or a FlexAttention `BlockMask` with four dimensions.
    """

    mask: Mask
    batch: int
    q_len: int
    kv_len: int
    query_offset: int
    facts: Facts
    real: NDArray[np.bool_] | None = None
    """`[batch, kv_len]`: true for a key that is not padding; None if no key is padding."""
    first_key: int = 0
    """The position of the first key in the call. It is above 0 if a sliding cache has removed the keys before it."""
    frame: Frame | None = None
    """The state of the forward pass that built the mask; None if no mask of noren was given for that pass."""
    positions: tuple[Any, Tensor] | None = field(default_factory=POSITIONS.get)
    """The model whose forward pass built the mask, and its `position_ids`; None if it got none."""
    _plans: dict[tuple[int, int], Plan] = field(default_factory=dict)
    _looked: bool = False

    @property
    def shape(self) -> tuple[int, int, int, int]:
        return (self.batch, 1, self.q_len, self.kv_len)

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def __repr__(self) -> str:
        return f"<{self.mask} for transformers, {self.q_len} x {self.kv_len}, batch {self.batch}>"

    __str__ = __repr__

    def contiguous(self, *_: Any, **__: Any) -> Masked:
        """Returns this mask unchanged. Static caches of transformers call this method on every mask."""
        return self

    def to(self, *_: Any, **__: Any) -> Masked:
        """Returns this mask unchanged, because a mask is on no device."""
        return self

    def plan(self, heads: int, kv_heads: int) -> Plan:
        """Returns the plan of this mask for a layer with `heads` query heads and `kv_heads` key-value heads."""
        plan = self._plans.get((heads, kv_heads))
        if plan is None:
            plan = self._plans[(heads, kv_heads)] = self.mask.plan(self.sized(heads, kv_heads), self.facts.used_by(self.mask))
        return plan

    def sized(self, heads: int, kv_heads: int) -> Shape:
        """Returns the shape of this mask in a layer with `heads` query heads and `kv_heads` key-value heads."""
        return Shape(self.q_len, self.kv_len, query_offset=self.query_offset, batch=self.batch, heads=heads, kv_heads=kv_heads)

    def own(self, heads: int, kv_heads: int) -> Own:
        """Returns this mask, with the sizes of a layer, in the form that is combined with a mask from the user."""
        return Own(self.mask, self.facts, self.sized(heads, kv_heads), lambda: (self._fixed(), self.facts), self.first_key)

    def _fixed(self) -> Mask:
        """Returns a mask that hides padding and the cache slots to which no key was written."""
        written = self.query_offset + self.q_len
        parts = [keys(range(max(0, written)))] if written < self.kv_len else []
        return _fold(full(), [*parts, *([] if self.real is None or self.real.all() else [padding()])], and_)

    def look_for_packing(self, position_ids: Tensor | None, plan: Plan) -> None:
        """Warns once if the positions of non-padding tokens begin again inside a row, as in packed sequences, and a sequence
        reads the one before it."""
        if self._looked or self.q_len == 1:
            return
        self._looked = True
        first = max(0, self.query_offset)
        real = None if self.real is None else torch.from_numpy(self.real[:, first : first + self.q_len])
        if self.positions is not None and self.positions[1].shape[-1] == self.q_len:
            position_ids = self.positions[1]
        begins = restarts(None if position_ids is None else position_ids.cpu(), real)
        if begins is None:
            return
        for row, token in begins.nonzero()[:MOST_BORDERS].tolist():
            query = token + 1
            before = plan.bound.select_batch([row % self.batch]).select([(query, query + 1)], [(0, first + query)])
            if before.dense().any():
                warn_of_packing(begins[row])
                return


def make_mask(
    batch_size: int,
    q_length: int,
    kv_length: int,
    q_offset: int | Tensor = 0,
    kv_offset: int | Tensor = 0,
    mask_function: Callable[..., Any] | None = None,
    attention_mask: Tensor | None = None,
    config: Any = None,
    **others: Any,
) -> Any:
    """Converts a mask function of transformers, with sizes and padding, to a `Masked`. The `AttentionMaskInterface` of
    transformers calls this function. In compiled code, the mask is that of SDPA: booleans, or None."""
    from transformers.masking_utils import causal_mask_function, sdpa_mask

    if traced():
        return sdpa_mask(batch_size, q_length, kv_length, q_offset, kv_offset, mask_function or causal_mask_function, attention_mask, config=config, **others)
    heads = getattr(config, "num_attention_heads", None)
    reader = Reader(batch_size, q_length, kv_length, int(q_offset), int(kv_offset), heads if isinstance(heads, int) else None)
    mask = reader.read(mask_function or causal_mask_function)
    facts: dict[str, Any] = {}
    real = reader.real
    if attention_mask is not None:
        needed = min(reader.q_offset + q_length, reader.kv_offset + kv_length)
        if attention_mask.dim() != 2 or attention_mask.shape[0] != batch_size or attention_mask.shape[1] < needed:
            raise Error(
                f"attention_mask has shape {list(attention_mask.shape)}, but there are {batch_size} rows of {needed} tokens (with those of the cache): give a "
                "tensor [batch, length] with 1 for a token and 0 for padding"
            )
        given = _known_keys(attention_mask, kv_length, reader.kv_offset)
        real = given if real is None else real & given
    if real is not None and not real.all():
        mask = mask & padding()
        facts["real_keys"] = [ranges(row) for row in real]
    if reader.arrays:
        facts["arrays"] = reader.arrays
    offset = reader.q_offset - reader.kv_offset
    return Masked(
        mask, batch_size, q_length, kv_length, offset, Facts(**facts), real, reader.kv_offset, current_frame()
    )


def _known_keys(padding_mask: Tensor, kv_length: int, kv_offset: int) -> NDArray[np.bool_]:
    """Returns booleans `[batch, kv_length]`: element `j` is true if the key with index `j + kv_offset` in `padding_mask` is not
    padding. Keys beyond the end of `padding_mask` are padding.
    """
    found: NDArray[np.bool_] = padding_mask.detach().bool().cpu().numpy()[:, kv_offset : kv_offset + kv_length]
    missing = kv_length - found.shape[1]
    return np.pad(found, ((0, 0), (0, missing))) if missing > 0 else found


PACKED = "packed_sequence_mask_function.<locals>.inner_mask"
"""The qualified name of the functions with which transformers separates packed sequences."""


def _name(function: Callable[..., Any]) -> str:
    """Returns the qualified name of a function. The name begins with the function's module, unless this is transformers' module
    of masks."""
    name = f"{getattr(function, '__module__', '')}.{getattr(function, '__qualname__', '')}"
    return name.removeprefix("transformers.masking_utils.")


class Reader:
    """Converts nested mask functions of transformers to one expression of noren.

    In the expression, the first key of the call has position 0, and key `j` has position `j`. In transformers, the index
    `kv_idx` of key `j` is `j + kv_offset`.
    """

    def __init__(self, batch_size: int, q_len: int, kv_len: int, q_offset: int, kv_offset: int, heads: int | None = None) -> None:
        self.batch, self.q_len, self.kv_len = batch_size, q_len, kv_len
        self.q_offset, self.kv_offset, self.heads = q_offset, kv_offset, heads
        self.real: NDArray[np.bool_] | None = None
        self._separated = False
        self.arrays: dict[str, Array] = {}
        self._remap: NDArray[np.int64] | None = None

    def read(self, function: Callable[..., Any], top: bool = True) -> Mask:
        """Returns the expression of a function.

        `top` is true if no other function contains the function, or if only intersections contain it.
        """
        inside = _closure(function)
        match _name(function):
            case "causal_mask_function":
                return causal()
            case "bidirectional_mask_function":
                return full()
            case "and_masks.<locals>.and_mask":
                return self._all(inside["mask_functions"], top)
            case "or_masks.<locals>.or_mask":
                parts = [self.read(part, top=False) for part in inside["mask_functions"]]
                return _fold(none(), parts, or_)
            case "sliding_window_overlay.<locals>.inner_mask":
                return window(left=int(inside["sliding_window"]) - 1)
            case "sliding_window_bidirectional_overlay.<locals>.inner_mask":
                size = int(inside["sliding_window"])
                return window(left=size, right=size)
            case "chunked_overlay.<locals>.inner_mask":
                return self._chunks(int(inside["chunk_size"]), inside["left_padding"])
            case "blockwise_overlay.<locals>.inner_mask":
                ids = self._by_position(inside["block_sequence_ids"])
                return self._same(ids, ids >= 0)
            case name if name == PACKED:
                return self._same(self._by_position(inside["packed_sequence_mask"]))
            case "remap_positions_for_packed_sequence.<locals>.inner_mask":
                return self._remapped(function, inside)
            case "padding_mask_function.<locals>.inner_mask" if top and self._remap is None:
                given = _known_keys(inside["padding_mask"], self.kv_len, self.kv_offset)
                self.real = given if self.real is None else self.real & given
                return full()
            case "add_offsets_to_mask_function.<locals>.inner_mask":
                raise Error("the mask function adds position offsets itself, which transformers does for FlexAttention only")
            case _:
                return self._evaluated(function)

    def _all(self, functions: Iterable[Callable[..., Any]], top: bool) -> Mask:
        """Returns the intersection of the masks of `functions`. Functions that separate packed sequences may be anywhere in the
        list."""
        parts, before = list(functions), self._separated
        self._separated = before or any(_name(part) == PACKED for part in parts)
        try:
            return _fold(full(), [self.read(part, top) for part in parts], and_)
        finally:
            self._separated = before

    def _positions(self) -> NDArray[np.int64]:
        """Returns an array: element `p` is the index that transformers passes to mask functions for position `p`, as `q_idx` or
        `kv_idx`.
        """
        length = max(self.kv_len, self.q_len + self.q_offset - self.kv_offset)
        return np.arange(length, dtype=np.int64) + self.kv_offset

    def _by_position(self, table: Tensor) -> NDArray[np.int64]:
        """Returns the entries of a table `[batch, length]` in the order of positions.

        The entry of a position beyond the end of the table is -1: the position is in no group.
        """
        rows = table.detach().cpu().numpy().astype(np.int64)
        at = self._positions() if self._remap is None else self._remap
        at = np.broadcast_to(at, (self.batch, at.shape[-1]))
        rows = np.broadcast_to(rows, (self.batch, rows.shape[-1]))
        inside = (at >= 0) & (at < rows.shape[1])
        return np.where(inside, np.take_along_axis(rows, np.clip(at, 0, rows.shape[1] - 1), 1), -1)

    def _chunks(self, size: int, left_padding: Tensor) -> Mask:
        start = np.broadcast_to(left_padding.detach().cpu().numpy().astype(np.int64).reshape(-1, 1), (self.batch, 1))
        if self._remap is None and ((start - self.kv_offset) % size == 0).all():
            return chunk(size)
        at = self._positions() if self._remap is None else self._remap
        return self._same((np.broadcast_to(at, (self.batch, at.shape[-1])) - start) // size)

    def _remapped(self, function: Callable[..., Any], inside: dict[str, Any]) -> Mask:
        """Returns the mask of `function`, which counts positions from the beginning of each packed sequence. `inside` has the
        variables of the function's closure, by name."""
        ids = inside["position_ids"].detach().cpu().numpy().astype(np.int64)
        if not self._separated or self._remap is not None or ids.shape[1] != self.kv_len or self.q_len != self.kv_len:
            return self._evaluated(function)
        self._remap = np.broadcast_to(ids, (self.batch, ids.shape[1]))
        try:
            return self.read(inside["mask_function"], top=False)
        finally:
            self._remap = None

    def _same(self, groups: NDArray[np.int64], wanted: NDArray[np.bool_] | None = None) -> Mask:
        """Returns the mask that allows the cells whose query and key have the same number in `groups`. If `wanted` is given,
        only cells whose query and key are at positions with a true element in `wanted` are allowed.
        """
        return by_row(_row_groups(row, None if wanted is None else wanted[b]) for b, row in enumerate(groups))

    def _evaluated(self, function: Callable[..., Any]) -> Mask:
        """Evaluates a function that noren does not recognise, `TILE` query rows at a time. Some cells are evaluated again in
        single calls to check the results.
        """
        if self._remap is not None:
            raise Error(
                f"the mask function {getattr(function, '__qualname__', function)} is unknown to noren and is evaluated with the positions of packed sequences, which is not supported: give a prepared boolean mask with 4 dimensions"
            )
        rows = torch.arange(self.batch)[:, None, None, None]
        at = torch.arange(self.kv_len)[None, None, None, :] + self.kv_offset
        heads = self._heads_of(function)
        head = torch.arange(heads)[None, :, None, None]
        cells = np.empty((self.batch, heads, self.q_len, self.kv_len), np.bool_)
        for start in range(0, self.q_len, TILE):
            q = torch.arange(start, min(start + TILE, self.q_len))[None, None, :, None] + self.q_offset
            tile = torch.as_tensor(function(rows, head, q, at)).bool()
            cells[:, :, start : start + TILE] = tile.expand(self.batch, heads, q.shape[2], self.kv_len).cpu().numpy()
        self._check(function, cells)
        if (cells == cells[:, :1]).all():
            cells = cells[:, :1].copy()
        name = f"function{len(self.arrays)}"
        self.arrays[name] = Array.keep(cells)
        return dense(name)

    def _heads_of(self, function: Callable[..., Any]) -> int:
        """Returns the number of heads for which a function must be evaluated: the number of heads of the call, or 1 if the
        function does not use the index of the head.
        """
        head = torch.zeros(1, 1, 1, 1, dtype=torch.long)
        zero = torch.zeros(1, 1, 1, 1, dtype=torch.long)
        with _Uses(head) as looked:
            function(zero, head, zero + self.q_offset, zero + self.kv_offset)
        if not looked.met:
            return 1
        if self.heads is None:
            raise Error(
                f"the mask function {getattr(function, '__qualname__', function)} depends on the head, but the configuration does not give the number of heads: give a prepared boolean mask with 4 dimensions"
            )
        return self.heads

    def _check(self, function: Callable[..., Any], cells: NDArray[np.bool_]) -> None:
        rng = np.random.default_rng(0)
        heads = cells.shape[1]
        for _ in range(32):
            b, q, k = (int(rng.integers(n)) for n in (self.batch, self.q_len, self.kv_len))
            for head in (0, int(rng.integers(heads))):
                index = (torch.tensor(i) for i in (b, head, q + self.q_offset, k + self.kv_offset))
                if bool(function(*index)) != cells[b, head, q, k]:
                    raise Error(
                        f"the mask function {getattr(function, '__qualname__', function)} gives different results for head {head}, query {q}, key {k} if this cell is evaluated alone or with all cells: give a prepared boolean mask with 4 dimensions"
                    )


class _Uses(TorchFunctionMode):
    """A mode of PyTorch that sets `met` to true as soon as an operation uses `tensor`."""

    def __init__(self, tensor: Tensor) -> None:
        super().__init__()
        self.tensor, self.met = tensor, False

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        self.met |= self._holds((args, kwargs or {}))
        return func(*args, **(kwargs or {}))

    def _holds(self, value: Any) -> bool:
        if isinstance(value, (tuple, list)):
            return any(map(self._holds, value))
        return any(map(self._holds, value.values())) if isinstance(value, dict) else value is self.tensor


def _closure(function: Callable[..., Any]) -> dict[str, Any]:
    """Returns the variables of a function's closure, by name."""
    names = getattr(getattr(function, "__code__", None), "co_freevars", ())
    return {name: cell.cell_contents for name, cell in zip(names, function.__closure__ or (), strict=True)}


def _fold(empty: Mask, parts: list[Mask], combine: Callable[[Mask, Mask], Mask]) -> Mask:
    parts = [part for part in parts if part != empty]
    return reduce(combine, parts) if parts else empty


def _row_groups(row: NDArray[np.int64], wanted: NDArray[np.bool_] | None) -> Mask:
    """Returns the mask that allows the cells whose query and key have the same number in `row`. If `wanted` is given, only
    cells whose query and key are at positions with a true element in `wanted` are allowed.

    A group of consecutive positions becomes a span; any other group becomes sets of positions.
    """
    edges = np.flatnonzero(np.diff(row)) + 1
    runs: dict[int, list[range]] = {}
    for start, end in zip([0, *edges.tolist()], [*edges.tolist(), len(row)], strict=True):
        if wanted is None or wanted[start]:
            runs.setdefault(int(row[start]), []).append(range(start, end))
    single = [found[0] for found in runs.values() if len(found) == 1]
    parts = [spans(single)] if single else []
    parts += [queries(found) & keys(found) for found in runs.values() if len(found) > 1]
    return _fold(none(), parts, or_)

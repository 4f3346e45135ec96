"""The argument of mask functions: one call of attention, with methods that make masks from tensors."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from .. import _noren
from .._noren import Array, BoundMask, Error, Facts, Mask, Shape
from ..arguments._given import ranges
from ..arguments._tensors import check_dense, lend
from ..masks._forms import four

Part = Literal["self", "encoder", "decoder", "cross"]
"""The part of a model that calls attention: "self" in a model with one stack of layers; otherwise the encoder, the decoder, or the
cross-attention of the decoder."""

TILE_CELLS = 1 << 22
"""Maximum number of scores in a tile, which are computed at once; a tile of only one row of blocks may have more."""
MOST_BLOCKS = 1 << 26
"""Maximum number of blocks of cells, over all batch rows and heads, that a method of `MaskCall` accepts."""


@dataclass(frozen=True)
class Own:
    """The mask that an attention call has before it is combined with the result of a mask function, with its facts (data) and
    sizes."""

    mask: Mask
    facts: Facts
    shape: Shape
    fixed: Callable[[], tuple[Mask, Facts]] | None = None
    """Returns (mask, facts) of the part of the layer's own mask that a `Replace` cannot remove: it hides padding and cache slots without a
    key. None: a `Replace` removes no part of the layer's own mask."""
    first_key: int = 0
    """The position, in the sequence, of the first key of the call. It is above 0 if a sliding cache has removed earlier keys."""

    @cached_property
    def bound(self) -> BoundMask:
        return self.mask.bind(self.shape, self.facts.used_by(self.mask))


@dataclass(frozen=True)
class Inputs:
    """The inputs of a model's forward pass that mask functions read."""

    facts: Facts | None = None
    others: Mapping[str, Any] = field(default_factory=dict)
    tokens: Callable[[Part, int, int], Tensor] | None = None
    """A function of (part of the model, batch size, length) that returns the ids of the query tokens `[batch, q_len]`. It raises `Error` if
    the ids are unknown. None: no ids were given."""
    key_tokens: Callable[[Part, int, int], Tensor] | None = None
    """A function of (part of the model, batch size, length) that returns the ids of the key tokens `[batch, kv_len]`, the first of which is
    the token at position 0. None: no ids were given."""


class MaskCall:
    """One call of attention, the argument of a mask function.

    A mask function returns a mask for the call: an expression or its text. The methods `keep`, `drop`, `keys`, `queries` and
    `blocks` of this object make masks from tensors. The layer computes attention with the intersection of the returned mask and
    its own mask. `batch`, `heads`, `kv_heads`, `q_len` and `kv_len` are the sizes of the call; `kv_len` includes the keys of a cache.

    >>> import torch, noren as nr, noren.torch as nt
    >>> q = torch.randn(1, 2, 6, 8)
    >>> def only_high(call):
    ...     return nr.causal() & call.keys(call.inputs["level"] > 2)
    >>> with nt.mask_inputs(level=torch.tensor([[1, 3, 5, 0, 7, 1]])):
    ...     out = nt.attention(q, q, q, only_high)
    """

    def __init__(
        self, *, layer: int, part: Part, module: nn.Module | None, query: Tensor, key: Tensor, scale: float | None, own: Own, inputs: Inputs
    ) -> None:
        self.layer = layer
        """The index of the layer, from 0, within its part of the model (`part`)."""
        self.part: Part = part
        """The part of the model: "self", "encoder", "decoder" or "cross"."""
        self.module = module
        """The module that calls attention; None for `nt.attention`."""
        self.query = query.detach()
        """The queries `[batch, heads, q_len, head_dim]`, without gradients."""
        self.key = key.detach()
        """The keys `[batch, kv_heads, kv_len, head_dim]`, those of a cache included, without gradients."""
        self.batch, self.heads, self.q_len, _ = query.shape
        self.kv_heads, self.kv_len = key.shape[1:3]
        self.scale = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
        """The factor by which the dot products of queries and keys are multiplied."""
        self.inputs: Mapping[str, Any] = _Named(inputs.others)
        """Inputs of the forward pass other than token ids and facts (data of masks), by name; the user gives them with
        `nt.mask_inputs` or `noren_inputs=`."""
        self.facts: dict[str, Any] = {}
        """Facts (data such as document lengths) for the mask that the mask function returns, by the names of `nr.Facts`. The mask
        function may add facts here."""
        self.arrays: dict[str, Array] = {}
        """The mask arrays that methods of this call made. The key of an array is the name by which the returned mask refers to the
        array."""
        self._own, self._inputs = own, inputs

    @property
    def mask(self) -> Mask:
        """The layer's own mask. In this mask, the first key of the call has position 0."""
        return self._own.mask

    @property
    def positions(self) -> Tensor:
        """The positions of the queries `[batch, q_len]`, counted from the first token of the sequence."""
        offsets = self._own.shape.query_offsets
        first = torch.tensor(offsets if len(offsets) == self.batch else offsets * self.batch) + self._own.first_key
        return first[:, None] + torch.arange(self.q_len)

    @property
    def key_positions(self) -> Tensor:
        """The positions of the keys `[kv_len]`, counted from the first token of the sequence."""
        return torch.arange(self.kv_len) + self._own.first_key

    @property
    def tokens(self) -> Tensor:
        """The ids of the query tokens, `[batch, q_len]`. Raises `Error` if they are unknown."""
        if self._inputs.tokens is None:
            raise _unknown("tokens")
        return self._inputs.tokens(self.part, self.batch, self.q_len)

    @property
    def key_tokens(self) -> Tensor:
        """The ids of the key tokens, `[batch, kv_len]`; -1 for cache slots without a token. Raises `Error` if they are unknown."""
        if self._inputs.key_tokens is None:
            raise _unknown("key_tokens")
        first = self._own.first_key
        return self._inputs.key_tokens(self.part, self.batch, first + self.kv_len)[:, first:]

    # --- masks from tensors ---------------------------------------------------------------------------------------

    def keep(self, cells: Tensor | NDArray[np.bool_]) -> Mask:
        """Returns the mask of an array of booleans, in which true means "may attend".

        Shapes are `[q_len, kv_len]`, `[batch, q_len, kv_len]` and `[batch, heads, q_len, kv_len]`; every dimension may be 1.
        """
        return self._dense("keep", cells, drop=False)

    def drop(self, cells: Tensor | NDArray[np.bool_]) -> Mask:
        """Returns the mask of an array of booleans, in which true means "ignored". The shapes are those of `keep`."""
        return self._dense("drop", cells, drop=True)

    def keys(self, allowed: Tensor | NDArray[np.bool_]) -> Mask:
        """Returns the mask in which every query may read the keys for which `allowed`, `[batch, kv_len]` or `[kv_len]`, is true."""
        rows = self._rows("keys", allowed, self.kv_len)
        if self._placed:
            return self.keep(rows[:, None, None, :])
        first = self._own.first_key
        return by_row([_noren.keys(ranges(row, first)) for row in rows.cpu().numpy()])

    def queries(self, allowed: Tensor | NDArray[np.bool_]) -> Mask:
        """Returns the mask in which the queries for which `allowed`, `[batch, q_len]` or `[q_len]`, is true may read every key."""
        rows = self._rows("queries", allowed, self.q_len)
        if self._placed:
            return self.keep(rows[:, None, :, None])
        first = self.positions[:, 0].tolist() if self.q_len else [0] * self.batch
        if min(first, default=0) < 0:
            return self.keep(rows[:, None, :, None])
        return by_row([_noren.queries(ranges(row, start)) for row, start in zip(rows.cpu().numpy(), first, strict=True)])

    def blocks(self, keep: Tensor | NDArray[np.bool_], block: tuple[int, int] = (1, 64)) -> Mask:
        """Returns the mask that allows all cells of each block for which `keep` is true.

        `block` is the size of a block: (number of queries, number of keys). `keep` is `[batch or 1, heads or 1, blocks of queries, blocks
        of keys]`, or without the first two dimensions. If `q_len` or `kv_len` is not a multiple of the block size, the last block is
        smaller.
        """
        q_blocks, kv_blocks = self._block_counts(block)
        cells = _booleans("blocks", keep)
        cells = cells[None, None] if cells.dim() == 2 else cells
        expected = (self.batch, self.heads, q_blocks, kv_blocks)
        if cells.dim() != 4 or any(n not in (1, size) for n, size in zip(cells.shape[:2], expected, strict=False)) or cells.shape[2:] != expected[2:]:
            raise Error(f"the argument of call.blocks has shape {list(cells.shape)}: give [batch, heads, blocks of queries, blocks of keys] = {list(expected)}")
        if self._own.first_key or self._placed:
            wide = cells.repeat_interleave(block[0], 2)[:, :, : self.q_len].repeat_interleave(block[1], 3)[..., : self.kv_len]
            return self.keep(wide)
        of_row = []
        for row in cells.cpu():
            names = [_noren.dense(self._add(self._array_of_blocks(head, block))) for head in row]
            of_row.append(names[0] if len(set(names)) == 1 else _noren.heads(dict[Any, Any](enumerate(names[:-1])) | {"else": names[-1]}))
        return of_row[0] if len(of_row) == 1 else by_row(of_row)

    # --- scores ---------------------------------------------------------------------------------------------------

    def block_maxima(self, block: tuple[int, int] = (1, 64)) -> Tensor:
        """Returns the maximum score of each block, `[batch, heads, blocks of queries, blocks of keys]`, in float32.

        `block` is the size of a block: (number of queries, number of keys). Only cells that the layer's own mask allows count; the maximum
        of a block without such cells is -inf. Scores are `scale * q k^T`, without score modifiers. All scores are computed, a tile at a
        time.

        In a causal model, choose blocks of one query: with more queries, the maximum depends on tokens after the block's first query.
        """
        q_blocks, kv_blocks = self._block_counts(block)
        out = self.query.new_full((self.batch, self.heads, q_blocks, kv_blocks), -torch.inf, dtype=torch.float32)
        key = self.key.float().repeat_interleave(self.heads // self.kv_heads, 1)
        for rows, allowed in self._tiles(block[0]):
            scores = self.scale * (self.query[:, :, rows.start : rows.stop].float() @ key.transpose(-1, -2))
            scores = scores.masked_fill(~allowed, -torch.inf)
            maxima = _grouped(_grouped(scores, 3, block[1]).amax(-1), 2, block[0]).amax(3)
            first = rows.start // block[0]
            out[:, :, first : first + maxima.shape[2]] = maxima
        return out

    def block_estimates(self, block_kv: int = 64) -> Tensor:
        """Returns estimated scores of blocks of keys, `[batch, heads, q_len, blocks of keys]`, in float32.

        The estimate is the score of the mean of the block's keys, so it costs a fraction `1 / block_kv` of all scores. It is computed only
        if the layer's own mask allows the query to read every key of the block. If the mask allows some keys of the block and hides others,
        the result is +inf; if it allows none, -inf. Thus an estimate depends on no key that the mask hides from the query.
        """
        _, kv_blocks = self._block_counts((1, block_kv))
        out = self.query.new_empty((self.batch, self.heads, self.q_len, kv_blocks), dtype=torch.float32)
        count = torch.full((kv_blocks,), block_kv, device=self.key.device)
        if kv_blocks:
            count[-1] = self.kv_len - block_kv * (kv_blocks - 1)
        means = _grouped(self.key.float(), 2, block_kv, 0.0).sum(3) / count[:, None]
        means = means.repeat_interleave(self.heads // self.kv_heads, 1)
        for rows, allowed in self._tiles(1):
            estimates = self.scale * (self.query[:, :, rows.start : rows.stop].float() @ means.transpose(-1, -2))
            whole = _grouped(allowed, 3, block_kv, True).all(-1)
            hidden = ~_grouped(allowed, 3, block_kv, False).any(-1)
            out[:, :, rows.start : rows.stop] = estimates.masked_fill(~whole, torch.inf).masked_fill(hidden, -torch.inf)
        return out

    def top_blocks(self, scores: Tensor, count: int, block: tuple[int, int] = (1, 64)) -> Mask:
        """Returns the mask that allows, in each block of queries, the `count` blocks of keys with the highest scores.

        `scores` is `[batch, heads, blocks of queries, blocks of keys]`, as from `block_maxima` and `block_estimates`. Among blocks with
        equal scores, the blocks with the lowest key indices are selected. Blocks with the score -inf or NaN are never selected.
        """
        if not isinstance(count, int) or isinstance(count, bool) or count < 0:
            raise Error(f"`count` is {count!r}: give the number of blocks, 0 or more")
        if isinstance(scores, Tensor):
            check_dense("argument of call.top_blocks", scores)
        expected = (self.batch, self.heads, *self._block_counts(block))
        if not isinstance(scores, Tensor) or not scores.is_floating_point() or tuple(scores.shape) != expected:
            given = f"{scores.dtype} {list(scores.shape)}" if isinstance(scores, Tensor) else type(scores).__name__
            raise Error(f"the scores of call.top_blocks are {given}: give floats [batch, heads, blocks of queries, blocks of keys] = {list(expected)}")
        known = scores.masked_fill(scores.isnan(), -torch.inf)
        best = known.argsort(dim=-1, descending=True, stable=True)[..., :count]
        chosen = torch.zeros_like(known, dtype=torch.bool).scatter_(-1, best, True)
        return self.blocks(chosen & (known != -torch.inf), block)

    # --- details --------------------------------------------------------------------------------------------------

    @property
    def _placed(self) -> bool:
        """True if the facts of the call (data of masks) give the position of each key; the position of a key can then differ from its
        index."""
        given = self._inputs.facts
        return "positions" in self.facts or self._own.facts.place_keys or (given is not None and given.place_keys)

    def _add(self, array: Array) -> str:
        name = f"call{len(self.arrays)}"
        self.arrays[name] = array
        return name

    def _dense(self, name: str, cells: Any, drop: bool) -> Mask:
        given = four(name, _booleans(name, cells), (self.batch, self.heads, self.kv_heads, self.q_len, self.kv_len))
        given = given.expand(-1, -1, self.q_len, self.kv_len)
        if self._own.first_key:
            given = torch.nn.functional.pad(given, (self._own.first_key, 0), value=drop)
        array, _, _ = _noren.read_mask(lend(given.cpu().contiguous()), drop, given.shape[3])
        return _noren.dense(self._add(array))

    def _rows(self, name: str, allowed: Any, length: int) -> Tensor:
        rows = _booleans(name, allowed)
        rows = rows[None] if rows.dim() == 1 else rows
        if rows.dim() != 2 or rows.shape[0] not in (1, self.batch) or rows.shape[1] != length:
            raise Error(f"the argument of call.{name} has shape {list(rows.shape)}: give [batch, {'kv_len' if name == 'keys' else 'q_len'}] = {[self.batch, length]}")
        return rows.expand(self.batch, -1)

    def _block_counts(self, block: tuple[int, int]) -> tuple[int, int]:
        ok = isinstance(block, tuple) and len(block) == 2 and all(isinstance(n, int) and not isinstance(n, bool) and 1 <= n < 1 << 31 for n in block)
        if not ok:
            raise Error(f"`block` is {block!r}: give (queries, keys) of a block, two numbers of 1 or more")
        counts = -(-self.q_len // block[0]), -(-self.kv_len // block[1])
        if self.batch * self.heads * counts[0] * counts[1] > MOST_BLOCKS:
            raise Error(f"a call of {self.q_len} queries and {self.kv_len} keys has more than {MOST_BLOCKS} blocks of {block[0]} x {block[1]}: give a larger block")
        return counts

    def _array_of_blocks(self, chosen: Tensor, block: tuple[int, int]) -> Array:
        q_blocks, kv_blocks = np.nonzero(chosen.numpy())
        return Array.blocks(self.q_len, self.kv_len, block, list(zip(q_blocks.tolist(), kv_blocks.tolist(), strict=True)))

    def _tiles(self, multiple: int) -> Iterator[tuple[range, Tensor]]:
        """Yields (range of query rows, cells of these rows that the layer's own mask allows, as booleans `[batch or 1, heads or 1, rows,
        kv_len]`). The number of rows of each range except the last is a multiple of `multiple`.
        """
        by_batch, by_head = self._own.bound.varies
        rows = max(1, TILE_CELLS // max(1, self.batch * self.heads * self.kv_len))
        rows = max(multiple, rows // multiple * multiple)
        for start in range(0, self.q_len if self.kv_len else 0, rows):
            stop = min(start + rows, self.q_len)
            cells = torch.empty(self.batch if by_batch else 1, self.heads if by_head else 1, stop - start, self.kv_len, dtype=torch.bool)
            self._own.bound.select([(start, stop)], [(0, self.kv_len)]).fill(lend(cells))
            yield range(start, stop), cells.to(self.query.device)


def by_row(masks: Iterable[Mask]) -> Mask:
    """Returns a mask that uses entry `b` of `masks` for batch row `b`."""
    rows = list(masks)
    if all(mask == rows[0] for mask in rows):
        return rows[0]
    distinct: dict[Mask, list[int]] = {}
    for b, mask in enumerate(rows):
        distinct.setdefault(mask, []).append(b)
    *some, (last, _) = distinct.items()
    return _noren.batch([*((members, mask) for mask, members in some), ("else", last)])


class _Named(dict[str, Any]):
    """A dict whose error for a missing name lists the names that were given."""

    def __missing__(self, name: str) -> Any:
        given = ", ".join(map(repr, self)) or "no names"
        raise Error(f"the mask function reads the input {name!r}, but only these inputs were given: {given}. Give it with nt.mask_inputs({name}=...), or in noren_inputs for transformers")


def _unknown(name: str) -> Error:
    return Error(
        f"{name} is unknown in this call: give the ids of the tokens with nt.mask_inputs({name}=...); for transformers, input_ids, or "
        f'noren_inputs={{"{name}": ...}}'
    )


def _booleans(name: str, array: Any) -> Tensor:
    if isinstance(array, np.ndarray):
        if array.dtype != np.bool_:
            raise TypeError(f"the argument of call.{name} holds {array.dtype}: give booleans; make them from scores by a comparison such as scores > 0")
        array = torch.from_numpy(np.ascontiguousarray(array))
    check_dense(f"the argument of call.{name}", array)
    if array.dtype != torch.bool:
        raise TypeError(f"the argument of call.{name} holds {array.dtype}: give booleans; make them from scores by a comparison such as scores > 0")
    found: Tensor = array.detach()
    return found


def _grouped(x: Tensor, dim: int, size: int, fill: float | bool = -torch.inf) -> Tensor:
    """Returns `x` with the dimension `dim` split into two dimensions: groups, and the `size` entries of each group. If the last group is
    incomplete, its missing entries are `fill`.
    """
    missing = -x.shape[dim] % size
    if missing:
        pads = [0, 0] * (x.dim() - 1 - dim) + [0, missing]
        x = torch.nn.functional.pad(x, pads, value=fill)
    return x.reshape(*x.shape[:dim], x.shape[dim] // size, size, *x.shape[dim + 1 :])

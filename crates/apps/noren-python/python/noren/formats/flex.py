"""Conversion to and from FlexAttention's `BlockMask`, with an exact `mask_mod`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.attention.flex_attention import BlockMask, create_mask

from .._noren import BoundMask, Error, ExportError
from ._source import EMPTY, FULL, Exported, Ints, Source, block_sizes, found, read, sorted_lists
from .dense import Known, Sizes

MaskMod = Callable[[Any, Any, Any, Any], Any]
"""The type of FlexAttention's `mask_mod(batch, head, q_idx, kv_idx)`, which returns true if the query may read the key."""

MOST_RUNS = 4
"""`form="auto"` of `to_flex` selects endpoints if no row has more than this number of runs (ranges) of keys."""


def to_flex(
    mask: Exported,
    shape: Sizes = None,
    facts: Known = None,
    *,
    block: int | tuple[int, int] = 128,
    form: Literal["auto", "bits", "endpoints"] = "auto",
    capacity: int | None = None,
    device: Any = "cpu",
) -> BlockMask:
    """Converts a mask to a `BlockMask` for `torch.nn.attention.flex_attention.flex_attention`.

    The block lists are those of `create_block_mask`, and no array of length x length is made. `mask_mod` is exact for every
    cell. `form="bits"` stores the cells of mixed tiles as words of 32 keys, for any mask. `form="endpoints"` stores the ranges
    of keys that each query row reads, as (first key, key after the last). `form="auto"` [default] selects endpoints if no row
    has more than four ranges. `block` is the size of a tile, one integer or (queries, keys): 128 on Hopper and CPUs, (256, 128)
    for the FLASH backend on Blackwell.

    torch.compile compiles again if the sizes of arrays inside `mask_mod` change. `capacity` keeps these sizes equal for all masks
    of one shape, so that new documents need no compilation: it selects the form "bits" and reserves space for this number of mixed
    tiles.

    If the installed version of PyTorch has the field `dq_write_order`, the `BlockMask` contains the write orders for a
    deterministic backward pass. Raises `ExportError` for score modifiers: export these by `to_score_mod`. Raises `ExportError`
    if the mask needs more than `capacity`.
    """
    source = read(mask, shape, facts, "FlexAttention's BlockMask")
    sizes = block_sizes(source.shape, block)
    slots, bits = source.blocks(sizes, False)
    if capacity is not None and (not isinstance(capacity, int) or capacity < 1):
        raise Error(f"capacity is {capacity}: give a whole number of 1 or more")
    lens = (source.shape.q_len, source.shape.kv_len)
    # With a capacity, the arrays have the same sizes for all masks of one shape.
    patterns = source.patterns if capacity is None else np.broadcast_to(source.patterns, (source.shape.batch, source.shape.heads))
    if form == "auto":
        form = "endpoints" if capacity is None and source.most_runs <= MOST_RUNS else "bits"
    if form == "endpoints":
        if capacity is not None:
            raise Error('capacity= is for form="bits": leave it out for form="endpoints"')
        mask_mod = _endpoints(source, slots.shape[1] * sizes[0], device)
    elif form == "bits":
        mask_mod = _bits(source, patterns, slots, bits, sizes, capacity, device)
    else:
        raise Error(f'`form` is {form!r}: give "bits", "endpoints" or "auto"')
    by_pair = slots[patterns]
    partial, full = (_lists(which, device) for which in (by_pair >= 0, by_pair == FULL))
    made = BlockMask.from_kv_blocks(*partial, *full, BLOCK_SIZE=sizes, mask_mod=mask_mod, seq_lengths=lens)
    if not hasattr(made, "dq_write_order"):
        return made
    orders: dict[str, Any] = {
        "dq_write_order": _write_order(by_pair, made.q_indices, device),
        "dq_write_order_full": _write_order(by_pair, made.full_q_indices, device),
        "dq_kv_order": True,
    }
    return BlockMask.from_kv_blocks(
        *partial, *full, BLOCK_SIZE=sizes, mask_mod=mask_mod, seq_lengths=lens, **orders
    )


def _write_order(slots: NDArray[np.int32], queries: torch.Tensor | None, device: Any) -> torch.Tensor | None:
    """Returns the order in which tiles add to the gradient of a query tile: for each tile in `queries`, the number of tiles of
    the same query tile that add before it. Tiles with later keys add first (PyTorch's default).

    `slots` is `[batch, heads, query tiles, key tiles]`, with `EMPTY` for empty tiles. `queries` lists the query tiles of each
    key tile.
    """
    if queries is None:
        return None
    adds = slots != EMPTY
    place = (adds.sum(-1, keepdims=True) - np.cumsum(adds, -1)).astype(np.int32)
    listed = queries.cpu().numpy().astype(np.int64)
    by_key = np.broadcast_to(place, (*listed.shape[:2], *place.shape[2:])).swapaxes(2, 3)
    return torch.from_numpy(np.take_along_axis(by_key, listed, 3)).to(device)


def _lists(which: NDArray[np.bool_], device: Any) -> tuple[torch.Tensor, torch.Tensor]:
    counts, indices = sorted_lists(which)
    return torch.from_numpy(counts).to(device), torch.from_numpy(indices).to(device)


def _pattern(patterns: NDArray[np.int64], device: Any) -> Callable[[Any, Any], Any]:
    """Returns a function of (batch row, head) that returns the index of the pattern (set of allowed cells) of this pair."""
    which = torch.from_numpy(patterns.astype(np.int32)).to(device)
    by_row, by_head = (n > 1 for n in which.shape)
    return lambda b, h: which[b if by_row else b * 0, h if by_head else h * 0]


def _bits(
    source: Source, patterns: NDArray[np.int64], slots: Ints, bits: list[NDArray[np.uint32]], block: tuple[int, int],
    capacity: int | None, device: Any,
) -> MaskMod:  # fmt: skip
    block_q, block_kv = block
    first = np.cumsum([0, *(len(part) for part in bits[:-1])])
    numbered = np.where(slots >= 0, slots + first[:, None, None], slots).astype(np.int32)
    room = 1
    if capacity is not None:
        capacity = min(capacity, source.shape.batch * source.shape.heads * slots[0].size)  # there are no more tiles
        room = capacity + 1 - sum(len(part) for part in bits)
        if room < 1:
            raise ExportError(
                f"{source.target} cannot express a mask with {capacity + 1 - room} mixed tiles, which are more than capacity={capacity}: give a larger capacity"
            )
        missing = source.shape.batch * source.shape.heads - len(numbered)
        numbered = np.concatenate([numbered, np.full((missing, *numbered.shape[1:]), EMPTY, np.int32)])
    slot = torch.from_numpy(numbered).to(device)
    bit = torch.from_numpy(np.concatenate([*bits, np.zeros((room, *bits[0].shape[1:]), np.uint32)]).view(np.int32)).to(device)
    pattern = _pattern(patterns, device)

    def mask_mod(b: Any, h: Any, q: Any, kv: Any) -> Any:
        tile = slot[pattern(b, h), q // block_q, kv // block_kv]
        key = kv % block_kv
        word = bit[tile.clamp(min=0), q % block_q, key // 32]
        return (tile == FULL) | ((tile >= 0) & (((word >> (key % 32)) & 1) == 1))

    return mask_mod


def _endpoints(source: Source, padded: int, device: Any) -> MaskMod:
    most = source.most_runs
    ends = np.zeros((source.count, 2 * most, padded), np.int32)
    ends[..., : source.shape.q_len] = source.endpoints().swapaxes(1, 2)
    borders = torch.from_numpy(ends).to(device)
    pattern = _pattern(source.patterns, device)

    def mask_mod(b: Any, h: Any, q: Any, kv: Any) -> Any:
        p = pattern(b, h)
        allowed = (kv >= borders[p, 0, q]) & (kv < borders[p, 1, q])
        for run in range(1, most):
            allowed = allowed | ((kv >= borders[p, 2 * run, q]) & (kv < borders[p, 2 * run + 1, q]))
        return allowed

    return mask_mod


def from_flex(block_mask: BlockMask) -> BoundMask:
    """Returns the mask of a `BlockMask`: the cells of full tiles, and the cells that `mask_mod` allows in partial tiles.

    Raises `ExportError` if the block lists and `mask_mod` differ: eager FlexAttention evaluates `mask_mod` only, and compiled
    FlexAttention skips tiles by the lists, so they would compute different results.
    """
    q_len, kv_len = block_mask.seq_lengths
    batch, heads = block_mask.kv_num_blocks.shape[:2]
    device = block_mask.kv_num_blocks.device
    said = create_mask(block_mask.mask_mod, batch, heads, q_len, kv_len, device=device).cpu().numpy()
    listed = said & _spread(block_mask.kv_num_blocks, block_mask.kv_indices, block_mask)
    if block_mask.full_kv_num_blocks is not None and block_mask.full_kv_indices is not None:
        listed |= _spread(block_mask.full_kv_num_blocks, block_mask.full_kv_indices, block_mask)
    differ = np.argwhere(listed != said)
    if len(differ):
        cell = tuple(differ[0].tolist())
        raise ExportError(
            f"the BlockMask contradicts itself in cell {cell} (batch, head, query, key): the block lists give {listed[cell]}, but mask_mod "
            f"gives {said[cell]}; eager and compiled FlexAttention would compute different outputs"
        )
    return found(listed, "the BlockMask")


def _spread(counts: torch.Tensor, indices: torch.Tensor, block_mask: BlockMask) -> NDArray[np.bool_]:
    """Returns booleans `[batch, heads, q_len, kv_len]`: true for the cells of the listed tiles. For each row of tiles,
    `indices` lists key tiles, of which only the first `counts` are used.
    """
    q_len, kv_len = block_mask.seq_lengths
    block_q, block_kv = block_mask.BLOCK_SIZE
    lists, numbers = indices.cpu().numpy(), counts.cpu().numpy()
    tiles = np.zeros((*lists.shape[:3], -(-kv_len // block_kv)), np.bool_)
    for at in np.ndindex(numbers.shape):
        tiles[at][lists[at][: numbers[at]]] = True
    return tiles.repeat(block_q, 2).repeat(block_kv, 3)[:, :, :q_len, :kv_len]

"""Conversion to and from FlexAttention's `BlockMask`, with an exact `mask_mod`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.attention.flex_attention import BlockMask, create_mask

from .. import _noren
from .._noren import BoundMask, Error, ExportError
from ._source import Exported, Source, found, read
from .dense import Known, Sizes

MaskMod = Callable[[Any, Any, Any, Any], Any]
"""FlexAttention's `mask_mod(batch, head, q_idx, kv_idx)`."""

EMPTY, FULL = -1, -2
MOST_RUNS = 4
"""Maximum number of runs of keys in a row for which `form="auto"` selects endpoints."""


def to_flex(
    mask: Exported,
    shape: Sizes = None,
    facts: Known = None,
    *,
    block: int | tuple[int, int] = 128,
    form: Literal["auto", "bits", "endpoints"] = "auto",
    device: Any = "cpu",
) -> BlockMask:
    """Converts a mask to a `BlockMask` for `torch.nn.attention.flex_attention.flex_attention`.

    The block lists are those of `create_block_mask`, and no array of length x length is made. `mask_mod` is exact for every
    cell. `form="bits"` stores the cells of mixed tiles as words of 32 keys, for any mask. `form="endpoints"` stores the first key
    and the end of each run of keys of each row. `form="auto"` [default] selects endpoints if no row has more than four runs.
    `block` is the size of a tile, one integer or (queries, keys): 128 on Hopper and CPUs, (256, 128) for the FLASH backend on
    Blackwell. Raises `ExportError` for score modifiers: export these by `to_score_mod`.
    """
    source = read(mask, shape, facts, "FlexAttention's BlockMask")
    sizes = (block, block) if isinstance(block, int) else block
    if min(sizes) < 1:
        raise Error(f"block is {block}: give sizes of 1 or more")
    tiles = [_noren.blocks(source.plan, pattern, sizes, False) for pattern in range(source.count)]
    q_blocks, kv_blocks = tiles[0][0]
    slots = np.stack([np.frombuffer(slot, np.int32).reshape(q_blocks, kv_blocks) for _, slot, _ in tiles])
    if form == "auto":
        form = "endpoints" if all(rows.most <= MOST_RUNS for rows in source.all_rows()) else "bits"
    if form == "endpoints":
        mask_mod = _endpoints(source, q_blocks * sizes[0], device)
    elif form == "bits":
        mask_mod = _bits(source, slots, [bits for _, _, bits in tiles], sizes, device)
    else:
        raise Error(f'form is {form!r}: give "bits", "endpoints" or "auto"')
    by_pair = slots[source.patterns]
    partial, full = (_lists(which, device) for which in (by_pair >= 0, by_pair == FULL))
    return BlockMask.from_kv_blocks(
        *partial, *full, BLOCK_SIZE=sizes, mask_mod=mask_mod, seq_lengths=(source.shape.q_len, source.shape.kv_len)
    )


def _lists(which: NDArray[np.bool_], device: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns the number of true entries of each row, and the row's indices with those of true entries first."""
    counts = which.sum(-1, dtype=np.int32)
    indices = np.argsort(~which, axis=-1, kind="stable").astype(np.int32)
    return torch.from_numpy(counts).to(device), torch.from_numpy(indices).to(device)


def _pattern(source: Source, device: Any) -> Callable[[Any, Any], Any]:
    """Returns a function from batch row and head to the index of their pattern."""
    which = torch.from_numpy(source.patterns.astype(np.int32)).to(device)
    by_row, by_head = (n > 1 for n in which.shape)
    return lambda b, h: which[b if by_row else b * 0, h if by_head else h * 0]


def _bits(source: Source, slots: NDArray[np.int32], parts: list[bytes], block: tuple[int, int], device: Any) -> MaskMod:
    block_q, block_kv = block
    words = -(-block_kv // 32)
    bits = [np.frombuffer(part, np.uint32).view(np.int32).reshape(-1, block_q, words) for part in parts]
    first = np.cumsum([0, *(len(part) for part in bits[:-1])])
    numbered = np.where(slots >= 0, slots + first[:, None, None], slots).astype(np.int32)
    slot = torch.from_numpy(numbered).to(device)
    bit = torch.from_numpy(np.concatenate([*bits, np.zeros((1, block_q, words), np.int32)])).to(device)
    pattern = _pattern(source, device)

    def mask_mod(b: Any, h: Any, q: Any, kv: Any) -> Any:
        tile = slot[pattern(b, h), q // block_q, kv // block_kv]
        key = kv % block_kv
        word = bit[tile.clamp(min=0), q % block_q, key // 32]
        return (tile == FULL) | ((tile >= 0) & (((word >> (key % 32)) & 1) == 1))

    return mask_mod


def _endpoints(source: Source, padded: int, device: Any) -> MaskMod:
    rows = source.all_rows()
    most = max(max(row.most for row in rows), 1)
    ends = np.zeros((source.count, 2 * most, padded), np.int32)
    for number, row in enumerate(rows):
        ends[number, :, : source.shape.q_len] = row.table(most, 0).reshape(source.shape.q_len, 2 * most).T
    borders = torch.from_numpy(ends).to(device)
    pattern = _pattern(source, device)

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
    """Returns the cells that are in listed tiles, `[batch, heads, q_len, kv_len]` as booleans."""
    q_len, kv_len = block_mask.seq_lengths
    block_q, block_kv = block_mask.BLOCK_SIZE
    lists, numbers = indices.cpu().numpy(), counts.cpu().numpy()
    tiles = np.zeros((*lists.shape[:3], -(-kv_len // block_kv)), np.bool_)
    for at in np.ndindex(numbers.shape):
        tiles[at][lists[at][: numbers[at]]] = True
    return tiles.repeat(block_q, 2).repeat(block_kv, 3)[:, :, :q_len, :kv_len]


__all__ = ["from_flex", "to_flex"]

"""Formats that store cells as bits or in rectangles: FlashInfer's packed bits and BSR (block sparse rows), JAX Splash's
`MaskInfo`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._noren import BoundMask, Error, ExportError
from ._source import EMPTY, FULL, Bools, Exported, Ints, Source, block_sizes, found, read
from .dense import Known, Sizes


def _cells(bits: NDArray[np.uint32], block: tuple[int, int]) -> Bools:
    """Returns the cells of rectangles as booleans, from their bits."""
    return np.unpackbits(bits.view(np.uint8), axis=-1, bitorder="little")[..., : block[1]].astype(np.bool_)


def _whole(source: Source, block: tuple[int, int]) -> None:
    q_len, kv_len = source.shape.q_len, source.shape.kv_len
    block = block_sizes(source.shape, block)
    if q_len % block[0] or kv_len % block[1]:
        raise ExportError(
            f"{source.target} cannot express a mask of {q_len} x {kv_len} cells in blocks of {block[0]} x {block[1]}: give a mask whose numbers of queries and keys are multiples of the block size"
        )


# --- FlashInfer ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FlashInferMask:
    """The custom mask of FlashInfer's ragged and paged prefill; each batch row is one request."""

    packed_custom_mask: NDArray[np.uint8]
    """The cells `[q_len, kv_len]` of each request as bits, the lowest bit first; 1 may attend. Each request begins at a new byte."""
    mask_indptr: Ints
    """For each request, the number of bytes of `packed_custom_mask` before its first byte; then the number of all bytes."""
    qo_indptr: Ints
    """For each request, the number of queries in the requests before it; then the number of all queries."""
    kv_indptr: Ints
    """For each request, the number of keys in the requests before it; then the number of all keys."""

    def dense(self) -> Bools:
        """Returns the cells `[requests, 1, q_len, kv_len]` as booleans. Raises `Error` for requests of different lengths."""
        out = []
        for i in range(len(self.mask_indptr) - 1):
            sizes = [int(part[i + 1] - part[i]) for part in (self.qo_indptr, self.kv_indptr)]
            octets = self.packed_custom_mask[self.mask_indptr[i] : self.mask_indptr[i + 1]]
            bits = np.unpackbits(octets, bitorder="little", count=sizes[0] * sizes[1])
            out.append(bits.reshape(1, *sizes).astype(np.bool_))
        if any(part.shape != out[0].shape for part in out):
            raise Error("the requests have different lengths: make a FlashInferMask of each request and call `from_flashinfer` once for each request")
        return np.stack(out)


def to_flashinfer(mask: Exported, shape: Sizes = None, facts: Known = None) -> FlashInferMask:
    """Converts a mask to FlashInfer's packed custom mask. FlashInfer ignores its option `causal` if a custom mask is given.

    Raises `ExportError` for a mask that differs between heads.
    """
    source = read(mask, shape, facts, "FlashInfer's custom mask")
    source.refuse_heads()
    batch, q_len, kv_len = source.shape.batch, source.shape.q_len, source.shape.kv_len
    cells = np.broadcast_to(source.cells()[:, 0], (batch, q_len, kv_len))
    packed = np.packbits(cells.reshape(batch, -1), axis=-1, bitorder="little")
    steps = np.arange(batch + 1, dtype=np.int32)
    return FlashInferMask(packed.reshape(-1), steps * packed.shape[1], steps * q_len, steps * kv_len)


def from_flashinfer(mask: FlashInferMask) -> BoundMask:
    """Returns the mask of FlashInfer's packed bits."""
    return found(mask.dense(), "the custom mask")


@dataclass(frozen=True)
class BsrMask:
    """The arguments of `plan` of FlashInfer's `BlockSparseAttentionWrapper`: rectangles of cells ("blocks") in SciPy's BSR
    format. Empty blocks are not stored.
    """

    indptr: Ints
    """For each row of blocks, the number of stored blocks in the rows before it; then the number of all stored blocks."""
    indices: Ints
    """The column of each stored block: a block in column `j` has the keys from `j * C` to `(j + 1) * C - 1`."""
    M: int
    """Number of queries."""
    N: int
    """Number of keys."""
    R: int
    """Number of queries in a block."""
    C: int
    """Number of keys in a block."""
    mask: Bools | None
    """The cells of each block, `[blocks, R, C]`; `None` if all blocks are full."""

    def dense(self) -> Bools:
        """Returns the cells `[M, N]` as booleans."""
        out = np.zeros((self.M // self.R, self.N // self.C, self.R, self.C), np.bool_)
        rows = np.repeat(np.arange(len(self.indptr) - 1), np.diff(self.indptr))
        out[rows, self.indices] = True if self.mask is None else self.mask
        return out.swapaxes(1, 2).reshape(self.M, self.N)


def to_flashinfer_bsr(mask: Exported, shape: Sizes = None, facts: Known = None, *, block: tuple[int, int] = (16, 16)) -> BsrMask:
    """Converts a mask to FlashInfer's BSR format, with blocks of `block` = (queries, keys).

    Raises `ExportError` for a mask that differs between heads or batch rows, and for lengths that are not multiples of the block.
    """
    source = read(mask, shape, facts, "FlashInfer's block-sparse mask")
    source.refuse_heads()
    if source.patterns.shape[0] > 1:
        raise ExportError(
            f"{source.target} cannot express a mask that differs between batch rows: export each batch row separately, because the blocks describe one sequence"
        )
    _whole(source, block)
    (slots,), (bits,) = source.blocks(block, True)
    indptr = np.concatenate([[0], np.cumsum((slots != EMPTY).sum(1))]).astype(np.int32)
    listed = slots[slots != EMPTY]
    full = np.ones((1, *block), np.bool_)
    blocks = np.concatenate([_cells(bits, block), full])[np.where(listed == FULL, len(bits), listed)]
    indices = np.nonzero(slots != EMPTY)[1].astype(np.int32)
    return BsrMask(indptr, indices, source.shape.q_len, source.shape.kv_len, *block, None if (listed == FULL).all() else blocks)


def from_flashinfer_bsr(mask: BsrMask) -> BoundMask:
    """Returns the mask of FlashInfer's BSR arrays."""
    return found(mask.dense()[None, None], "the blocks")


# --- JAX Splash -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SplashMaskInfo:
    """The fields of Splash attention's `MaskInfo` for a computation on one device ("shard"). The arrays have an entry for every
    block, also for empty blocks."""

    data_next: NDArray[Any]
    """For each (query block, key block), the index of the key block to load: that of this block if it is not empty, otherwise
    that of the next block that is not empty. With `dkv=True`, the index of the query block to load."""
    mask_next: NDArray[Any] | None
    """For each (query block, key block), an index in `partial_mask_blocks`: that of this block if it is partial, otherwise that
    of the next partial block. None if no block is partial."""
    block_mask: NDArray[Any]
    """The kind of each block, `[1 or heads, query blocks, key blocks]`: 0 empty, 1 partial, 2 full."""
    partial_mask_blocks: Bools | None
    """The cells of the distinct partial blocks, `[blocks, block_q, block_kv]`; `[blocks, block_kv, block_q]` with `dkv=True`.
    Blocks with equal cells are stored once."""

    def jax(self) -> Any:
        """Returns the fields as an object of JAX's class `MaskInfo`."""
        from jax.experimental.pallas.ops.tpu.splash_attention.splash_attention_mask_info import MaskInfo

        return MaskInfo(self.data_next, self.mask_next, self.block_mask, self.partial_mask_blocks, None)

    def dense(self, *, dkv: bool = False) -> Bools:
        """Returns the cells `[1, heads or 1, q_len, kv_len]` as booleans; give the `dkv` that was given to `to_splash`.

        Raises `Error` if no block is partial, because the size of the blocks is then unknown.
        """
        if self.partial_mask_blocks is None or self.mask_next is None:
            raise Error("no block is partial, so the size of the blocks is unknown: use the mask that was given to `to_splash` instead")
        blocks = self.partial_mask_blocks.swapaxes(1, 2) if dkv else self.partial_mask_blocks
        shown = np.concatenate([blocks, np.zeros_like(blocks[:1]), np.ones_like(blocks[:1])])
        which = np.where(self.block_mask == 1, self.mask_next, len(blocks) + (self.block_mask == 2))
        cells: Bools = shown[which].swapaxes(2, 3)
        heads, rows, height, columns, width = cells.shape
        return cells.reshape(1, heads, rows * height, columns * width)


def to_splash(
    mask: Exported, shape: Sizes = None, facts: Known = None, *, block: tuple[int, int] = (128, 128), dkv: bool = False
) -> SplashMaskInfo:
    """Converts a mask to the result of Splash attention's `process_mask` (`process_mask_dkv` with `dkv=True`).

    No array of all cells is made. Raises `ExportError` for a mask that differs between batch rows, for rows without an allowed
    key (their result is undefined in Splash), and for lengths that are not multiples of the block.
    """
    source = read(mask, shape, facts, "Splash attention")
    if source.patterns.shape[0] > 1:
        raise ExportError(f"{source.target} cannot express a mask that differs between batch rows: use segment ids, or export each batch row separately")
    source.refuse_empty_rows("undefined numbers")
    _whole(source, block)
    numbers: dict[bytes, int] = {}
    blocks: list[Bools] = []
    planes: dict[int, tuple[Ints, Ints]] = {}
    heads = source.patterns[0].tolist()
    every, bits = source.blocks(block, True)
    for pattern in dict.fromkeys(heads):
        slots, cells = every[pattern], _cells(bits[pattern], block)
        ids = np.zeros_like(slots)
        for at in np.argwhere(slots >= 0).tolist():
            tile = cells[slots[tuple(at)]]
            number = numbers.setdefault(tile.tobytes(), len(blocks))
            if number == len(blocks):
                blocks.append(tile)
            ids[tuple(at)] = number
        planes[pattern] = (np.select([slots == EMPTY, slots == FULL], [0, 2], 1).astype(np.int32), ids)
    block_mask, ids = (np.stack([planes[pattern][i] for pattern in heads]) for i in (0, 1))
    order = (2, 0, 1) if dkv else (0, 1, 2)
    data_next = _next(block_mask > 0, np.broadcast_to(_index(block_mask.shape, 1 if dkv else 2), block_mask.shape), order)
    mask_next = _next(block_mask == 1, ids, order) if blocks else None
    partial = np.stack(blocks) if blocks else None
    return SplashMaskInfo(
        _small(data_next),
        None if mask_next is None else _small(mask_next),
        _small(block_mask),
        partial.swapaxes(1, 2) if dkv and partial is not None else partial,
    )


def _index(shape: tuple[int, ...], axis: int) -> Ints:
    sizes = [1] * len(shape)
    sizes[axis] = shape[axis]
    return np.arange(shape[axis], dtype=np.int32).reshape(sizes)


def _next(which: Bools, values: NDArray[Any], order: tuple[int, int, int]) -> Ints:
    """Returns for each block of a grid the value of the next marked block; 0 if no block is marked. `which` is true for the
    marked blocks, `values` has the value of each block.

    The search begins at the block itself and visits the grid in the order of the axes `order`. After the last block, the search
    continues at the first block.
    """
    back = tuple(np.argsort(order).tolist())
    marked = np.flatnonzero(which.transpose(order))
    flat = values.transpose(order).reshape(-1)
    if not len(marked):
        return np.zeros(which.shape, np.int32)
    at = np.searchsorted(marked, np.arange(which.size)) % len(marked)
    shape = tuple(which.shape[axis] for axis in order)
    return np.ascontiguousarray(flat[marked[at]].reshape(shape).transpose(back), np.int32)


def _small(array: Ints) -> NDArray[Any]:
    """Converts the array to the smallest integer type that holds its values, because Splash stores the array in the TPU's
    scalar memory, which is small."""
    top = int(array.max(initial=0))
    return array.astype(np.int8 if top <= 127 else np.int16 if top <= 32767 else np.int32)


def from_splash(info: SplashMaskInfo, *, dkv: bool = False) -> BoundMask:
    """Returns the mask of Splash attention's `MaskInfo`. The arrays of `info` must have one entry for each block, including empty
    blocks.
    """
    return found(info.dense(dkv=dkv), "the MaskInfo")

"""Formats with one entry for each query: FlashInfer's causal and bidirectional ranges, and SGLang's fine sparse masks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .._noren import BoundMask, Error, ExportError
from ._source import MOST_CELLS, Bools, Exported, Ints, Runs, Source, found, read
from .dense import Known, Sizes

WORD = 32
"""Number of keys in a word of SGLang's masks."""
ALIGNED_WORDS = 32
"""The number of words of a query is a multiple of this number, because the kernel loads 128 bytes (32 words) at once."""


# --- FlashInfer -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FlashInferRanges:
    """The mask of FlashInfer's `BatchPrefillWithCausalBidirectionalRangesWrapper`; each batch row is one request.

    The last query of a request has the position of the last key. A query at position `p` reads the keys from `p -
    causal_window_left` to `p`, and the keys of its entry in `bidirectional_ranges`.
    """

    bidirectional_ranges: Ints
    """`[queries of all requests, 2]`: for each query, the first and the last key (included) of its range, as indices in its
    request; (-1, -1) for no range."""
    causal_window_left: int
    """The causal part of the mask: a query reads its own key and this number of keys before it; -1 means all keys before it."""
    qo_indptr: Ints
    """For each request, the number of queries in the requests before it; then the number of all queries."""
    kv_indptr: Ints
    """For each request, the number of keys in the requests before it; then the number of all keys."""
    range_window_left: int = -1
    """FlashInfer's `window_left`, which limits the range of a query: of the keys up to and including its own key, the query
    reads only the last `range_window_left`; 0 and -1 mean no limit. Keys of the range after the own key are not limited."""

    def dense(self) -> Bools:
        """Returns the cells `[requests, 1, q_len, kv_len]` as booleans.

        Raises `Error` for ranges of another shape or type, and for requests of different lengths.
        """
        starts = [np.asarray(part) for part in (self.qo_indptr, self.kv_indptr)]
        if starts[0].ndim != 1 or len(starts[0]) < 2 or starts[0].shape != starts[1].shape:
            raise Error(
                f"qo_indptr has shape {starts[0].shape} and kv_indptr {starts[1].shape}: give one list of [requests + 1] numbers for each"
            )
        ranges, total = np.asarray(self.bidirectional_ranges), int(self.qo_indptr[-1])
        if ranges.dtype != np.int32 or ranges.shape != (total, 2):
            raise Error(f"bidirectional_ranges is {ranges.dtype} {ranges.shape}, but there are {total} queries: give int32 of shape [{total}, 2]")
        sizes = {(int(q), int(k)) for q, k in zip(np.diff(self.qo_indptr), np.diff(self.kv_indptr), strict=True)}
        if len(sizes) != 1:
            raise Error("the requests have different lengths: make FlashInferRanges of each request and call `from_flashinfer_ranges` once for each request")
        ((q_len, kv_len),) = sizes
        if q_len * kv_len * (len(self.qo_indptr) - 1) > MOST_CELLS:
            raise Error(f"the requests have more than {MOST_CELLS} cells: convert the mask in parts")
        at, key = np.arange(q_len)[:, None] + kv_len - q_len, np.arange(kv_len)
        causal = key <= at
        if self.causal_window_left >= 0:
            causal &= at - key <= self.causal_window_left
        first, last = (ranges.reshape(-1, 1, q_len, 1, 2)[..., i] for i in (0, 1))
        inside = (key >= first) & (key <= last)
        if self.range_window_left > 0:
            inside &= at - key < self.range_window_left
        cells: Bools = causal | inside
        return cells


def to_flashinfer_ranges(mask: Exported, shape: Sizes = None, facts: Known = None) -> FlashInferRanges:
    """Converts a mask to FlashInfer's causal and bidirectional ranges, with `range_window_left` = -1 (no limit).

    The own key of a query is the key at its position; the last query has the position of the last key. Each query must read its
    own key, all keys before it or a number of them that is equal for all queries, and at most one other range of keys. Raises
    `ExportError` for other masks, with the first query that does not fit, and for differences between heads.
    """
    source = read(mask, shape, facts, "FlashInfer's causal and bidirectional ranges")
    patterns = source.by_row()
    q_len, kv_len, batch = source.shape.q_len, source.shape.kv_len, source.shape.batch
    at = np.arange(q_len, dtype=np.int64) + kv_len - q_len
    every = [_own_runs(source, rows, at) for rows in source.all_rows]
    reached = [at[own.start > 0] - own.start[own.start > 0] for own in every]
    window = min((int(part.min()) for part in reached if len(part)), default=-1)
    ranges = [_ranges(source, own, at, window) for own in every]
    steps = np.arange(batch + 1, dtype=np.int32)
    return FlashInferRanges(np.concatenate([ranges[pattern] for pattern in patterns]), window, steps * q_len, steps * kv_len)


@dataclass(frozen=True)
class _Own:
    """For each query of a pattern, the ranges of keys that it reads, and the range (`start`, `end`) that contains the key at
    the query's position; (0, 0) if no range contains this key."""

    runs: Runs
    start: NDArray[np.int64]
    end: NDArray[np.int64]
    of: NDArray[np.bool_]
    """For each range, true if it contains the key at the position of its query."""


def _own_runs(source: Source, runs: Runs, at: NDArray[np.int64]) -> _Own:
    own = (runs.runs[:, 0] <= at[runs.owners]) & (at[runs.owners] < runs.runs[:, 1])
    start, end = np.zeros_like(at), np.zeros_like(at)
    start[runs.owners[own]], end[runs.owners[own]] = runs.runs[own].T
    missing = np.flatnonzero((at >= 0) & (end == 0))
    if len(missing):
        query = int(missing[0])
        raise ExportError(
            f"{source.target} cannot express a mask in which query {query} does not read its own key {at[query]}: use FlashInfer's custom mask: to_flashinfer"
        )
    return _Own(runs, start, end, own)


def _ranges(source: Source, own: _Own, at: NDArray[np.int64], window: int) -> Ints:
    """Returns for each query, `[q_len, 2]`, the first and the last key of the range that it reads outside the causal part. The
    causal part are the query's own key (`at`) and the `window` keys before it."""
    wide = (own.end > at + 1) | (window >= 0) & (own.start < at - window) & (own.end > 0)
    others = np.bincount(own.runs.owners[~own.of], minlength=len(at))
    wrong = np.flatnonzero(others + wide > 1)
    if len(wrong):
        query = int(wrong[0])
        left = "all keys" if window < 0 else f"{window} keys"
        raise ExportError(
            f"{source.target} cannot express a mask in which query {query} reads more than one range of keys besides {left} before its own: use FlashInfer's custom mask: to_flashinfer"
        )
    out = np.full((len(at), 2), -1, np.int32)
    rest = ~own.of
    out[own.runs.owners[rest]] = own.runs.runs[rest] - [0, 1]
    out[wide, 0], out[wide, 1] = own.start[wide], own.end[wide] - 1
    return out


def from_flashinfer_ranges(ranges: FlashInferRanges) -> BoundMask:
    """Returns the mask of FlashInfer's causal and bidirectional ranges."""
    return found(ranges.dense(), "the ranges")


# --- SGLang ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SglangMask:
    """The argument `sparse_mask_fine` of SGLang's flash-attention 3 for Hopper GPUs; each batch row is one sequence.

    The kernel accepts no other mask together with this argument: leave `causal` and `window_size` of the call at their
    defaults.
    """

    sparse_mask_fine: Ints
    """`[queries of all sequences, key blocks, block_kv / 32]`: for each query and key block, words with one bit for each key; 1
    may attend. The number of words of a query is a multiple of 32; bits after the last key are 0."""
    block_kv: int
    """Number of keys in a block, the kernel's `kBlockN`: 64 or 128."""
    reordered: bool
    """True if the bits of a block are in the order of the kernel's threads; false if they are in the order of keys."""
    batch: int
    """Number of sequences."""
    kv_len: int
    """Number of keys of each sequence."""

    def dense(self) -> Bools:
        """Returns the cells `[sequences, 1, q_len, kv_len]` as booleans. Raises `Error` for words of another shape or type, and for
        bits after the last key.
        """
        words = np.asarray(self.sparse_mask_fine)
        shape = (len(words) if words.ndim else 0, _blocks(self.kv_len, self.block_kv), self.block_kv // WORD)
        if words.dtype != np.int32 or words.shape != shape:
            raise Error(f"sparse_mask_fine is {words.dtype} {words.shape}, but for blocks of {self.block_kv} of {self.kv_len} keys it must be int32 {shape}")
        if self.batch < 1:
            raise Error(f"`batch` is {self.batch}: give the number of sequences, 1 or more")
        if len(words) % self.batch:
            raise Error(f"sparse_mask_fine has {len(words)} queries: their number must be a multiple of the number of sequences ({self.batch}), because all sequences have equal lengths")
        octets = np.ascontiguousarray(words).astype("<i4").view(np.uint8)
        bits = np.unpackbits(octets, axis=-1, bitorder="little").reshape(*shape[:2], self.block_kv)
        cells = bits[..., _bit_of_key(self.block_kv, self.reordered)].reshape(len(words), -1).astype(np.bool_)
        if cells[:, self.kv_len :].any():
            raise Error(f"sparse_mask_fine allows keys after the last of {self.kv_len} keys: set the bits after the last key to 0")
        return cells[:, : self.kv_len].reshape(self.batch, 1, -1, self.kv_len)


def _blocks(kv_len: int, block_kv: int) -> int:
    """Returns the number of key blocks in `sparse_mask_fine`, including empty blocks at the end, which make the number of words
    of a query a multiple of `ALIGNED_WORDS`."""
    if block_kv not in (64, 128):
        raise Error(f"`block_kv` is {block_kv}, but the kernel has only blocks of 64 and 128 keys: give 64 or 128")
    step = ALIGNED_WORDS // (block_kv // WORD)
    return -(-(-(-kv_len // block_kv)) // step) * step


def _bit_of_key(block_kv: int, reordered: bool) -> NDArray[np.int64]:
    """Returns for each key of a block the index of the key's bit in the words of the block.

    If `reordered` is true, the bits are in the order of the kernel's four threads: each thread has two keys of every group of 8
    keys, and its bits are adjacent.
    """
    key = np.arange(block_kv)
    return key % 8 // 2 * (block_kv // 4) + key // 8 * 2 + key % 2 if reordered else key


def to_sglang(
    mask: Exported, shape: Sizes = None, facts: Known = None, *, block_kv: int = 128, reordered: bool = True
) -> SglangMask:
    """Converts a mask to SGLang's fine sparse mask (`sparse_mask_fine`). Batch rows become sequences, without padding.

    `block_kv` is the kernel's `kBlockN`, which SGLang's `get_tile_size` returns. `reordered` selects the order of bits: True
    for the order of the kernel's threads, False for the order of keys, which `prepare_sparse_mask(reordered=False)` makes.
    Raises `ExportError` for a mask that differs between heads.
    """
    source = read(mask, shape, facts, "SGLang's fine sparse mask")
    source.refuse_heads()
    batch, q_len, kv_len = source.shape.batch, source.shape.q_len, source.shape.kv_len
    blocks = _blocks(kv_len, block_kv)
    if batch * q_len * blocks * block_kv > MOST_CELLS:
        raise Error(f"the mask has {batch * q_len * blocks * block_kv} bits, but the maximum is {MOST_CELLS}: convert the mask in parts")
    keys = np.zeros((batch, q_len, blocks * block_kv), np.bool_)
    keys[..., :kv_len] = source.cells()[:, 0]
    bits = np.zeros((batch * q_len, blocks, block_kv), np.bool_)
    bits[..., _bit_of_key(block_kv, reordered)] = keys.reshape(batch * q_len, blocks, block_kv)
    words = np.packbits(bits, axis=-1, bitorder="little").view("<i4").astype(np.int32)
    return SglangMask(words, block_kv, reordered, batch, kv_len)


def from_sglang(mask: SglangMask) -> BoundMask:
    """Returns the mask of SGLang's fine sparse mask."""
    return found(mask.dense(), "the fine sparse mask")

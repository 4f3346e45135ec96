"""Formats with one entry for each query: FlashInfer's causal and bidirectional ranges, SGLang's fine sparse masks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .._noren import BoundMask, Error
from ._source import MOST_CELLS, Bools, Exported, Ints, Runs, Source, found, read
from .dense import Known, Sizes

WORD = 32
"""Number of keys in a word of SGLang's masks."""
ALIGNED_WORDS = 32
"""The words of a query are a multiple of this number, because the kernel loads 128 bytes at once."""


# --- FlashInfer -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FlashInferRanges:
    """The mask of FlashInfer's `BatchPrefillWithCausalBidirectionalRangesWrapper`; each batch row is one request.

    The last query of a request is at its last key. A query at position `p` reads the keys from `p - causal_window_left` to `p`, and the
    keys of its range.
    """

    bidirectional_ranges: Ints
    """`[queries of all requests, 2]`: the first and the last key of each query's range, counted in its request; (-1, -1) for none."""
    causal_window_left: int
    """Number of keys before its own key that a query reads besides its range; -1 means no limit."""
    qo_indptr: Ints
    """Number of queries before each request, followed by the number of all queries."""
    kv_indptr: Ints
    """Number of keys before each request, followed by the number of all keys."""
    range_window_left: int = -1
    """Number of keys of its range that a query reads up to its own key, its own key included; 0 or -1 means no limit. Keys of the
    range after its own key are not limited."""

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
            raise Error(f"bidirectional_ranges is {ranges.dtype} {ranges.shape}, but there are {total} queries: give int32 [{total}, 2]")
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
    """Converts a mask to FlashInfer's causal and bidirectional ranges; `range_window_left` is -1, no limit.

    Each query must read its own key (the last query is at the last key), the same number of keys before it or all of them, and at most
    one other range of keys. Raises `ExportError` for other masks, with the first query that does not fit, and for differences between heads.
    """
    source = read(mask, shape, facts, "FlashInfer's causal and bidirectional ranges")
    source.refuse_heads()
    q_len, kv_len, batch = source.shape.q_len, source.shape.kv_len, source.shape.batch
    at = np.arange(q_len, dtype=np.int64) + kv_len - q_len
    every = [_own_runs(source, source.rows(pattern), at) for pattern in range(source.count)]
    reached = [at[own.start > 0] - own.start[own.start > 0] for own in every]
    window = min((int(part.min()) for part in reached if len(part)), default=-1)
    ranges = [_ranges(source, own, at, window) for own in every]
    rows = np.broadcast_to(source.patterns[:, 0], (batch,))
    steps = np.arange(batch + 1, dtype=np.int32)
    return FlashInferRanges(np.concatenate([ranges[pattern] for pattern in rows]), window, steps * q_len, steps * kv_len)


@dataclass(frozen=True)
class _Own:
    """The runs of keys of each query of a pattern, and the run that contains the query's own key; (0, 0) without one."""

    runs: Runs
    start: NDArray[np.int64]
    end: NDArray[np.int64]
    of: NDArray[np.bool_]
    """For each run, whether it contains its query's own key."""


def _own_runs(source: Source, runs: Runs, at: NDArray[np.int64]) -> _Own:
    own = (runs.runs[:, 0] <= at[runs.owners]) & (at[runs.owners] < runs.runs[:, 1])
    start, end = np.zeros_like(at), np.zeros_like(at)
    start[runs.owners[own]], end[runs.owners[own]] = runs.runs[own].T
    missing = np.flatnonzero((at >= 0) & (end == 0))
    if len(missing):
        query = int(missing[0])
        source.refuse(f"query {query}, which does not read its own key {at[query]}", "use FlashInfer's custom mask: to_flashinfer")
    return _Own(runs, start, end, own)


def _ranges(source: Source, own: _Own, at: NDArray[np.int64], window: int) -> Ints:
    """Returns the range of each query, `[q_len, 2]`: the keys that the causal part with this window does not contain."""
    wide = (own.end > at + 1) | (window >= 0) & (own.start < at - window) & (own.end > 0)
    others = np.bincount(own.runs.owners[~own.of], minlength=len(at))
    wrong = np.flatnonzero(others + wide > 1)
    if len(wrong):
        query = int(wrong[0])
        left = "all keys" if window < 0 else f"{window} keys"
        source.refuse(f"query {query}, which reads more than one range of keys besides {left} before its own", "use FlashInfer's custom mask: to_flashinfer")
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

    The kernel takes no other mask beside it: leave `causal` and `window_size` of the call at their defaults.
    """

    sparse_mask_fine: Ints
    """`[queries of all sequences, key blocks, block_kv / 32]`: the keys of each block as bits; 1 may attend. The number of words of
    a query is a multiple of 32; bits after the last key are 0."""
    block_kv: int
    """Number of keys in a block, the kernel's `kBlockN`: 64 or 128."""
    reordered: bool
    """The order of the keys of a block: True for that of the kernel's threads, False for that of the keys."""
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
            raise Error(f"sparse_mask_fine is {words.dtype} {words.shape}: give int32 {shape} for blocks of {self.block_kv} of {self.kv_len} keys")
        if self.batch < 1 or len(words) % self.batch:
            raise Error(f"sparse_mask_fine has {len(words)} queries, but there are {self.batch} sequences of equal lengths")
        octets = np.ascontiguousarray(words).astype("<i4").view(np.uint8)
        bits = np.unpackbits(octets, axis=-1, bitorder="little").reshape(*shape[:2], self.block_kv)
        cells = bits[..., _bit_of_key(self.block_kv, self.reordered)].reshape(len(words), -1).astype(np.bool_)
        if cells[:, self.kv_len :].any():
            raise Error(f"sparse_mask_fine allows keys after the last of {self.kv_len} keys")
        return cells[:, : self.kv_len].reshape(self.batch, 1, -1, self.kv_len)


def _blocks(kv_len: int, block_kv: int) -> int:
    """Returns the number of key blocks, with those that fill the words of a query up to a multiple of `ALIGNED_WORDS`."""
    if block_kv not in (64, 128):
        raise Error(f"block_kv is {block_kv}: the kernel has blocks of 64 and 128 keys")
    step = ALIGNED_WORDS // (block_kv // WORD)
    return -(-(-(-kv_len // block_kv)) // step) * step


def _bit_of_key(block_kv: int, reordered: bool) -> NDArray[np.int64]:
    """Returns, for each key of a block, the index of its bit.

    A thread of the kernel has two keys of each group of 8; the bits of one of the four threads are adjacent.
    """
    key = np.arange(block_kv)
    return key % 8 // 2 * (block_kv // 4) + key // 8 * 2 + key % 2 if reordered else key


def to_sglang(
    mask: Exported, shape: Sizes = None, facts: Known = None, *, block_kv: int = 128, reordered: bool = True
) -> SglangMask:
    """Converts a mask to SGLang's fine sparse mask (`sparse_mask_fine`). Batch rows become sequences, without padding.

    `block_kv` is the kernel's `kBlockN`, which SGLang's `get_tile_size` returns. `reordered` selects the order of bits:
    True for that of the kernel's threads, False for `prepare_sparse_mask(reordered=False)`. Raises `ExportError` for a mask that differs
    between heads.
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


__all__ = [
    "FlashInferRanges", "SglangMask", "from_flashinfer_ranges", "from_sglang", "to_flashinfer_ranges", "to_sglang",
]  # fmt: skip

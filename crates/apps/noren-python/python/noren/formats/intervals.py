"""Formats of ranges: cuDNN's ranges of allowed keys for each query, FlashMask's ranges of masked queries for each key,
MagiAttention's slices (rectangles of cells, whole or bounded by diagonals).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .. import _noren
from .._noren import BoundMask, Error, ExportError
from ..arguments._arrays import Array
from ._source import Bools, Exported, Ints, Runs, Source, found, read
from .dense import Known, Sizes

# --- cuDNN-Frontend -----------------------------------------------------------------------------------------------------


def to_cudnn(mask: Exported, shape: Sizes = None, facts: Known = None, *, nfunc: int | None = None) -> Ints:
    """Converts a mask to the `mask_func` of cuDNN-Frontend's `create_mask_plan`: int32 `[1 or heads, nfunc, batch * q_len]`.

    A query reads the keys `[0, F0)`, `[F1, F2)`, `[F3, F4)`, ... of its own batch row. The numbers `F0`, `F1`, ... of a query
    are its endpoints. `nfunc` is their number, which is odd [default: as many as the mask needs].
    `torch.from_numpy(...).cuda()` moves the array to the GPU. Raises `ExportError` if the mask needs more endpoints than
    `nfunc`.
    """
    source = read(mask, shape, facts, "cuDNN's endpoints")
    tables = _endpoints(source)
    needed = tables.shape[2]
    width = needed if nfunc is None else nfunc
    if width % 2 == 0 or width < 1:
        raise Error(f"`nfunc` is {width}: give the number of endpoints of ranges of keys for each query, an odd number of 1 or more")
    if needed > width:
        raise ExportError(
            f"{source.target} cannot express a mask in which a query row needs {needed} endpoints of ranges of keys, more than nfunc={width}: give nfunc={needed}, or leave out nfunc="
        )
    wide = np.pad(tables, ((0, 0), (0, 0), (0, width - needed)), mode="edge")
    by_pair = np.broadcast_to(source.patterns, (source.shape.batch, source.patterns.shape[1]))
    planes = wide[by_pair]  # [batch, heads, q_len, nfunc]
    return np.ascontiguousarray(planes.transpose(1, 3, 0, 2).reshape(planes.shape[1], width, -1))


def _endpoints(source: Source) -> Ints:
    """Returns the endpoints of the ranges of keys that each query row reads, `[patterns, q_len, odd number]`, in the form of
    `to_cudnn`.

    The first endpoint is the end of the range that begins at key 0, or 0 if no range does. Then come the start and the end (not
    included) of each other range. A row with fewer ranges repeats its last endpoint.
    """
    ends = source.endpoints()
    zero = np.zeros_like(ends[..., :1])
    after_first = np.concatenate([ends[..., 1:], zero, zero], -1)
    out = np.where(ends[..., :1] == 0, after_first, np.concatenate([zero, ends], -1))
    np.maximum.accumulate(out, axis=-1, out=out)
    return out if (out[..., -1] > out[..., -2]).any() else out[..., :-2]


def from_cudnn(mask_func: Array, q_len: int, kv_len: int) -> BoundMask:
    """Returns the mask of cuDNN's array `mask_func`, which has the form of the result of `to_cudnn`."""
    ends = np.asarray(mask_func)
    heads, nfunc, total = ends.shape
    if total % q_len or nfunc % 2 == 0:
        raise Error(f"mask_func has shape {ends.shape}: give [heads, an odd number, batch * {q_len}]")
    borders = ends.reshape(heads, nfunc, total // q_len, q_len).transpose(2, 0, 3, 1)[..., None, :]
    keys = np.arange(kv_len)[:, None]
    cells = keys[:, 0] < borders[..., 0]
    for run in range(1, nfunc, 2):
        cells |= (keys[:, 0] >= borders[..., run]) & (keys[:, 0] < borders[..., run + 1])
    return found(cells, "mask_func")


# --- FlashMask ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FlashMask:
    """Arguments of PaddlePaddle's `flashmask_attention`."""

    startend_row_indices: Ints
    """`[batch or 1, kv_heads or 1, kv_len, 1, 2 or 4]` (the last dimension is 1, 2 or 4): for each key, the bounds of the query
    rows that are *masked* (may not read the key)."""
    causal: bool
    """True if the keys after each query are masked in addition."""

    def dense(self) -> Bools:
        """Returns the cells `[batch or 1, kv_heads or 1, length, length]` as booleans, as FlashMask's documentation defines them."""
        given = self.startend_row_indices
        length, count = given.shape[2:]
        row = np.arange(length)[:, None]
        column = [given[:, :, None, :, i] for i in range(count)]
        if count == (2 if self.causal else 4):
            masked = (row >= column[0]) & (row < column[1])
        else:
            masked = row >= column[0]
        if self.causal:
            masked = masked | (row < np.arange(length))
        elif count == 4:
            masked = masked | ((row >= column[2]) & (row < column[3]))
        else:
            masked = masked | (row < column[1])
        return ~masked


def to_flashmask(mask: Exported, shape: Sizes = None, facts: Known = None) -> FlashMask:
    """Converts a mask to FlashMask's ranges of masked query rows for each key, in the smallest of FlashMask's four forms.

    Raises `ExportError` in three cases: a key is masked for more than two separate ranges of rows (with `causal`, for more than
    one range below the diagonal); query heads that share a key-value head differ; the numbers of queries and keys differ.
    """
    source = read(mask, shape, facts, "FlashMask")
    q_len, kv_len, group = source.shape.q_len, source.shape.kv_len, source.shape.heads // source.shape.kv_heads
    if q_len != kv_len:
        raise ExportError(f"{source.target} cannot express a mask of {q_len} queries and {kv_len} keys: FlashMask needs equal numbers of queries and keys")
    patterns = source.patterns
    if patterns.shape[1] > 1:
        groups = patterns.reshape(patterns.shape[0], source.shape.kv_heads, group)
        if (groups != groups[:, :, :1]).any():
            raise ExportError(f"{source.target} cannot express a mask that differs between query heads of one key-value head: export each head separately")
        patterns = groups[:, :, 0]
    masked = [_masked(source, pattern) for pattern in range(source.count)]
    for causal, width in ((True, 1), (False, 2), (True, 2), (False, 4)):
        columns = [_columns(runs, kv_len, causal, width) for runs in masked]
        if all(column is not None for column in columns):
            stacked = np.stack([column for column in columns if column is not None])
            return FlashMask(np.ascontiguousarray(stacked[patterns], np.int32), causal)
    key = int(max(masked, key=lambda runs: runs.most).counts.argmax())
    raise ExportError(
        f"{source.target} cannot express a mask in which key {key} is masked for more than two separate ranges of query rows: use FlexAttention, which expresses any mask"
    )


def _masked(source: Source, pattern: int) -> Runs:
    given = _noren.masked_rows(source.plan, pattern, 3)
    if given is None:
        raise ExportError(
            f"{source.target} cannot express a mask in which a key is masked for more than three separate ranges of query rows: use FlexAttention, which expresses any mask"
        )
    return Runs.of(given)


def _columns(masked: Runs, length: int, causal: bool, width: int) -> Ints | None:
    """Returns for each key the bounds of its masked query rows in FlashMask's form, `[length, width]`, for one pattern. The
    bounds are starts and ends (not included) of ranges. `masked` lists the masked query rows of each key. Returns `None` if
    `width` numbers for each key cannot express the pattern.
    """
    table = np.full((length, 4), length, np.int64)
    table[:, 2:] = 0  # an empty upper run
    for key in range(length):
        runs = masked.runs[masked.indptr[key] : masked.indptr[key + 1]].tolist()
        if causal:
            if key > 0 and not (runs and runs[0][0] == 0 and runs[0][1] >= key):
                return None
            rest = [[max(start, key), end] for start, end in runs if end > key]
            if len(rest) > 1:
                return None
            lower, upper = (rest[0] if rest else [length, length]), [0, 0]
        else:
            if len(runs) > 2:
                return None
            upper = runs[0] if runs and (len(runs) == 2 or runs[0][0] == 0 and runs[0][1] < length) else [0, 0]
            lower = runs[-1] if runs and runs[-1] is not upper else [length, length]
        ends_late, starts_early = lower[1] == length, upper[0] == 0
        if width < (2 if causal else 4) and not (ends_late and starts_early):
            return None
        table[key] = [*lower, *upper]
    if causal:
        return table[:, :width].astype(np.int32)
    return (table if width == 4 else table[:, [0, 3]]).astype(np.int32)


def from_flashmask(mask: FlashMask) -> BoundMask:
    """Returns the mask of FlashMask's arguments."""
    return found(mask.dense(), "startend_row_indices")


# --- MagiAttention ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class MagiSlices:
    """Arguments of MagiAttention's `flex_flash_attn_func`. A slice is a rectangle of cells, of which all cells are allowed or
    those on one side of a diagonal. All batch rows together are one sequence.
    """

    q_ranges: Ints
    k_ranges: Ints
    """`[slices, 2]`: for each slice, (first key, key after the last)."""
    attn_type_map: Ints
    """The kind of each slice: 0 full, 1 causal (its diagonal ends at the bottom right), 2 inverse causal (its diagonal begins
    at the top left), 3 both."""

    def dense(self, q_len: int, kv_len: int) -> Bools:
        """Returns the cells `[q_len, kv_len]` as booleans. Raises `Error` if two slices contain the same cell, because the
        kernel would count it twice."""
        times = np.zeros((q_len, kv_len), np.int64)
        for (q0, q1), (k0, k1), kind in zip(self.q_ranges, self.k_ranges, self.attn_type_map, strict=True):
            row, key = np.arange(q0, q1)[:, None], np.arange(k0, k1)
            cells = np.ones((q1 - q0, k1 - k0), np.bool_)
            if kind in (1, 3):
                cells &= key - k1 <= row - q1
            if kind in (2, 3):
                cells &= key - k0 >= row - q0
            times[q0:q1, k0:k1] += cells
        if (times > 1).any():
            q, k = np.argwhere(times > 1)[0].tolist()
            raise Error(f"the slices overlap at query {q}, key {k}: this cell would be counted {times[q, k]} times; give slices that do not overlap")
        return times > 0


def to_magi(mask: Exported, shape: Sizes = None, facts: Known = None) -> MagiSlices:
    """Converts a mask to MagiAttention's slices (rectangles of cells), with each allowed cell in exactly one slice. The batch
    rows become one sequence.

    Raises `ExportError` for a mask that differs between heads.
    """
    source = read(mask, shape, facts, "MagiAttention's slices")
    parts = []
    for row, pattern in enumerate(source.by_row()):
        part = np.frombuffer(_noren.slices(source.plan, pattern), np.uint32).astype(np.int32).reshape(-1, 5).copy()
        part[:, :2] += row * source.shape.q_len
        part[:, 2:4] += row * source.shape.kv_len
        parts.append(part)
    every = np.concatenate(parts)
    return MagiSlices(every[:, :2].copy(), every[:, 2:4].copy(), every[:, 4].copy())


def from_magi(slices: MagiSlices, q_len: int, kv_len: int) -> BoundMask:
    """Returns the mask that MagiAttention's slices define over one sequence of `q_len` queries and `kv_len` keys."""
    return found(slices.dense(q_len, kv_len)[None, None], "the slices")

"""Formats of concatenated sequences: flash-attention's varlen arguments and xFormers' bias classes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._noren import BoundMask, Error, ExportError
from ..arguments._arrays import Array
from ._source import Bools, Exported, Ints, Runs, Source, found, read
from .dense import Known, Sizes
from .scores import refuse_positions, slopes_of, softcap_of


@dataclass(frozen=True)
class Varlen:
    """Arguments of `flash_attn_varlen_func`. With `causal` and `window_size`, the last query of each sequence has the position
    of its last key."""

    cu_seqlens_q: Ints
    """For each sequence, the number of queries in the sequences before it; then the number of all queries."""
    cu_seqlens_k: Ints
    """For each sequence, the number of keys in the sequences before it; then the number of all keys."""
    causal: bool
    """True if no query may read a key after the query's position."""
    window_size: tuple[int, int]
    """The maximum numbers of keys that a query may read (before, after) the key at its position; -1 means no limit."""
    q_indices: NDArray[np.int64]
    """The index of each query in the flattened batch of `batch * q_len` tokens. Gather the queries at these indices, and
    scatter the outputs to them. Queries at other indices read nothing."""
    k_indices: NDArray[np.int64]
    """The index of each key in the flattened batch of `batch * kv_len` tokens. Keys at other indices are not read by any query."""
    total_q: int
    """The number of queries of the flattened batch, including those in no sequence."""
    total_k: int
    """The number of keys of the flattened batch, including those in no sequence."""
    softcap: float = 0.0
    alibi_slopes: NDArray[np.float32] | None = None

    @property
    def max_seqlen_q(self) -> int:
        return int(np.diff(self.cu_seqlens_q).max(initial=0))

    @property
    def max_seqlen_k(self) -> int:
        return int(np.diff(self.cu_seqlens_k).max(initial=0))

    def dense(self) -> Bools:
        """Returns the cells as booleans `[total_q, total_k]`, as flash-attention's documentation defines them."""
        out = np.zeros((self.total_q, self.total_k), np.bool_)
        left, right = self.window_size
        right = 0 if self.causal else right
        for i in range(len(self.cu_seqlens_q) - 1):
            (q0, q1), (k0, k1) = self.cu_seqlens_q[i : i + 2].tolist(), self.cu_seqlens_k[i : i + 2].tolist()
            query, key = np.arange(q1 - q0)[:, None] + (k1 - k0) - (q1 - q0), np.arange(k1 - k0)
            cells = np.ones((q1 - q0, k1 - k0), np.bool_)
            if left >= 0:
                cells &= key >= query - left
            if right >= 0:
                cells &= key <= query + right
            out[np.ix_(self.q_indices[q0:q1], self.k_indices[k0:k1])] = cells
        return out


def to_varlen(mask: Exported, shape: Sizes = None, facts: Known = None) -> Varlen:
    """Converts a mask to flash-attention's varlen arguments.

    Batch rows and documents become sequences, without padding. The mask must be block-diagonal, with the same `causal` and
    window in all sequences; otherwise `ExportError` is raised, with the index of the first query that does not fit.
    """
    source = read(mask, shape, facts, "flash-attention's varlen interface", ("softcap", "alibi"))
    segments: list[_Segment] = []
    for row, pattern in enumerate(source.by_row()):
        segments += _segments(source, source.rows(pattern), row)
    left, right = _one_reach(source, segments)
    q_sizes, k_sizes = ([getattr(segment, name) for segment in segments] for name in ("rows", "keys"))
    slopes = [slopes_of(score, source.shape.heads) for score in source.scores if score.kind == "alibi"]
    for score in source.scores:
        if score.kind == "alibi":
            refuse_positions(source.target, score, source.plan.bound.facts)
            _refuse_bent_alibi(source, segments)
    return Varlen(
        cu_seqlens_q=_cumulated(q_sizes),
        cu_seqlens_k=_cumulated(k_sizes),
        causal=right == 0,
        window_size=(left, right),
        q_indices=_indices([segment.row * source.shape.q_len + segment.first_row for segment in segments], q_sizes),
        k_indices=_indices([segment.row * source.shape.kv_len + segment.first_key for segment in segments], k_sizes),
        total_q=source.shape.batch * source.shape.q_len,
        total_k=source.shape.batch * source.shape.kv_len,
        softcap=softcap_of(source) or 0.0,
        alibi_slopes=slopes[0] if slopes else None,
    )


@dataclass(frozen=True)
class _Segment:
    """The query rows and keys of one sequence.

    For each query row, `start` is the index of the first key that the row reads, and `end` the index after the last. Index 0 is
    the first key of the sequence.
    """

    row: int
    first_row: int
    first_key: int
    rows: int
    keys: int
    start: NDArray[np.int64] = field(repr=False)
    end: NDArray[np.int64] = field(repr=False)

    @property
    def aligned(self) -> NDArray[np.int64]:
        """Returns for each query row the index of the key at the row's position. The last row has the position of the last key:
        for 2 query rows and 5 keys, the result is [3, 4].
        """
        return np.arange(self.rows) + self.keys - self.rows


def _segments(source: Source, runs: Runs, row: int) -> list[_Segment]:
    """Splits a batch row (`row`) into segments. Consecutive query rows that read common keys are in one segment."""
    several = np.flatnonzero(runs.counts > 1)
    if len(several):
        raise ExportError(
            f"{source.target} cannot express a mask in which query {several[0]} of batch row {row} reads {runs.counts[several[0]]} separate ranges of keys: use FlexAttention"
        )
    rows = np.flatnonzero(runs.counts)
    if not len(rows):
        return []
    start, end = runs.runs[:, 0], runs.runs[:, 1]
    breaks = 1 + np.flatnonzero((start[1:] >= end[:-1]) | (np.diff(rows) > 1) | (end[1:] <= start[:-1]))
    out, used = [], 0
    for first, last in zip([0, *breaks.tolist()], [*breaks.tolist(), len(rows)], strict=True):
        low, high = int(start[first:last].min()), int(end[first:last].max())
        if low < used:
            raise ExportError(
                f"{source.target} cannot express a mask in which query {rows[first]} of batch row {row} reads keys of earlier sequences: use FlexAttention"
            )
        used = high
        part = slice(first, last)
        out.append(_Segment(row, int(rows[first]), low, last - first, high - low, start[part] - low, end[part] - low))
    return out


def _one_reach(source: Source, segments: list[_Segment]) -> tuple[int, int]:
    """Returns (number of keys before its position, number of keys after its position) that each query reads; -1 means no limit.

    Raises `ExportError` if no such pair of numbers fits the queries of all segments.
    """
    left = {int(x) for s in segments for x in np.unique((s.aligned - s.start)[s.start > 0])}
    right = {int(x) for s in segments for x in np.unique((s.end - 1 - s.aligned)[s.end < s.keys])}
    reach = (max(left, default=-1), max(right, default=-1))
    for segment in segments:
        start = np.maximum(segment.aligned - reach[0], 0) if left else np.zeros(segment.rows, np.int64)
        end = np.minimum(segment.aligned + reach[1] + 1, segment.keys) if right else np.full(segment.rows, segment.keys)
        wrong = np.flatnonzero((start != segment.start) | (end != segment.end))
        if len(wrong) or min(left | right, default=0) < 0:
            query = segment.first_row + int(wrong[0] if len(wrong) else 0)
            raise ExportError(
                f"{source.target} cannot express a mask in which the keys of query {query} of batch row {segment.row} do not fit the `causal` flag and the window, which are equal for all sequences and aligned at the ends of the sequences: use FlexAttention"
            )
    return reach


def _refuse_bent_alibi(source: Source, segments: list[_Segment]) -> None:
    """Raises `ExportError` if ALiBi's distances in the mask differ from those in flash-attention. In flash-attention, the last
    query of a sequence has the position of its last key.
    """
    for s in segments:
        stands = s.first_row + source.shape.query_offsets[s.row]
        if stands - s.first_key != s.keys - s.rows:
            raise ExportError(
                f"{source.target} cannot express alibi for query {s.first_row} of batch row {s.row}, whose position is {stands} and does not fit the end of the keys: leave alibi out"
            )


def _cumulated(sizes: list[int]) -> Ints:
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)


def _indices(starts: list[int], sizes: list[int]) -> NDArray[np.int64]:
    parts = [np.arange(start, start + size) for start, size in zip(starts, sizes, strict=True)]
    return np.concatenate([np.zeros(0, np.int64), *parts])


def from_varlen(
    cu_seqlens_q: Array, cu_seqlens_k: Array | None = None, *, causal: bool = False, window_size: tuple[int, int] = (-1, -1)
) -> BoundMask:
    """Returns the mask that the given arguments of `flash_attn_varlen_func` define, over all tokens as one batch row."""
    q = np.asarray(cu_seqlens_q)
    k = q if cu_seqlens_k is None else np.asarray(cu_seqlens_k)
    if q.dtype.kind not in "iu" or k.dtype.kind not in "iu":
        raise TypeError(f"cu_seqlens of queries and keys hold {q.dtype} and {k.dtype}: give whole numbers")
    if q.ndim != 1 or q.shape != k.shape or len(q) < 2 or q[0] or k[0] or (np.diff(q) < 0).any() or (np.diff(k) < 0).any():
        raise Error(f"cu_seqlens of queries and keys are {q.tolist()} and {k.tolist()}: give two ascending lists of equal length that begin with 0")
    every = Varlen(q, k, causal, window_size, np.arange(q[-1]), np.arange(k[-1]), int(q[-1]), int(k[-1]))
    return found(every.dense()[None, None], "cu_seqlens")


# --- xFormers -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class XformersBias:
    """The name and the arguments of a class of `xformers.ops.fmha.attn_bias`; `build()` creates the object."""

    name: str
    arguments: Mapping[str, Any]
    """The arguments of the constructor of the class, or of its `from_seqlens` (with `window_size` for a local bias)."""

    def build(self) -> Any:
        """Returns the bias object of the package xformers, which must be installed."""
        from xformers.ops.fmha import attn_bias

        if not self.name.startswith("BlockDiagonal"):
            return getattr(attn_bias, self.name)(**self.arguments)
        given = dict(self.arguments)
        window = given.pop("window_size", None)
        bias = attn_bias.BlockDiagonalMask.from_seqlens(**given)
        if self.name == "BlockDiagonalMask":
            return bias
        if window is None:
            return bias.make_causal_from_bottomright()
        return bias.make_local_attention_from_bottomright(window)

    def dense(self, q_len: int, kv_len: int) -> Bools:
        """Returns the cells as booleans, as xFormers' documentation defines the bias."""
        given = self.arguments
        q_sizes, k_sizes = given.get("q_seqlen", [q_len]), given.get("kv_seqlen", [kv_len])
        window = {
            "LowerTriangularFromBottomRightMask": (-1, 0),
            "BlockDiagonalCausalFromBottomRightMask": (-1, 0),
            "LocalAttentionFromBottomRightMask": (given.get("window_left", -1), given.get("window_right", -1)),
            "BlockDiagonalCausalLocalAttentionFromBottomRightMask": (given.get("window_size", 0) - 1, 0),
        }.get(self.name, (-1, -1))
        q, k = _cumulated(list(q_sizes)), _cumulated(list(k_sizes))
        return Varlen(q, k, window[1] == 0, window, np.arange(q[-1]), np.arange(k[-1]), q_len, kv_len).dense()


def to_xformers(mask: Exported, shape: Sizes = None, facts: Known = None) -> XformersBias | None:
    """Converts a mask to an xFormers bias class, or to `None` for a full mask.

    For block-diagonal masks, the tokens of all batch rows become one sequence. Raises `ExportError` for tokens that are in no
    sequence, such as padding: remove padding first.
    """
    given = to_varlen(mask, shape, facts)
    target = "xFormers"
    if given.softcap or given.alibi_slopes is not None:
        raise ExportError(f"{target} cannot express score modifiers: export spec.mask without biases, and give the biases to xFormers as tensors")
    source = read(mask, shape, facts, target)
    for name, indices, total in (
        ("query", given.q_indices, source.shape.batch * source.shape.q_len),
        ("key", given.k_indices, source.shape.batch * source.shape.kv_len),
    ):
        if len(indices) < total:
            outside = int(np.setdiff1d(np.arange(total), indices)[0])
            raise ExportError(
                f"{target} cannot express a mask with {name} {outside}, which is in no sequence: remove tokens that are in no sequence (padding) before the call"
            )
    q_sizes, k_sizes = (np.diff(part).tolist() for part in (given.cu_seqlens_q, given.cu_seqlens_k))
    left, right = given.window_size
    if len(q_sizes) == source.shape.batch:  # each batch row is one sequence
        if (left, right) == (-1, -1):
            return None
        if (left, right) == (-1, 0):
            return XformersBias("LowerTriangularFromBottomRightMask", {})
        if left < 0 or right < 0:
            raise ExportError(f"{target} cannot express a window with a bound on one side only: give a window with a bound on both sides")
        return XformersBias("LocalAttentionFromBottomRightMask", {"window_left": left, "window_right": right})
    sizes = {"q_seqlen": q_sizes, "kv_seqlen": k_sizes}
    if (left, right) == (-1, -1):
        return XformersBias("BlockDiagonalMask", sizes)
    if right != 0:
        raise ExportError(
            f"{target} cannot express packed sequences with a window to the right: give a window without keys after the query, because xFormers' block-diagonal masks with a window are causal"
        )
    if left < 0:
        return XformersBias("BlockDiagonalCausalFromBottomRightMask", sizes)
    return XformersBias("BlockDiagonalCausalLocalAttentionFromBottomRightMask", {**sizes, "window_size": left + 1})


def from_xformers(bias: XformersBias | Any, q_len: int, kv_len: int) -> BoundMask:
    """Returns the mask of an xFormers bias. `bias` is an `XformersBias`, or a bias object of xFormers, whose method
    `materialize` gives the cells."""
    if isinstance(bias, XformersBias):
        return found(bias.dense(q_len, kv_len)[None, None], bias.name)
    if not hasattr(bias, "materialize"):
        raise TypeError(f"{type(bias).__name__} is not an xFormers bias: give an XformersBias or a bias object of the package xformers")
    cells = bias.materialize((q_len, kv_len)).cpu().numpy() == 0
    return found(cells[(None,) * (4 - cells.ndim)], type(bias).__name__)

"""Block lists of flash-attention 4 (CuTe): `BlockSparseTensors` for the forward and the backward pass."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._noren import BoundMask, Error, ExportError
from ._source import FULL, MOST_CELLS, Bools, Exported, Ints, Source, block_sizes, found, read, sorted_lists
from .dense import Known, Sizes

MOST_ENDPOINTS = 1 << 28
"""Maximum number of entries in the array `Fa4Blocks.endpoints`."""
MOST_ENTRIES = 1 << 27
"""Maximum number of entries in each of the arrays of `Fa4Blocks` that list blocks."""


@dataclass(frozen=True)
class Fa4Blocks:
    """The block lists of flash-attention 4 for both passes, and the cells of partial blocks. All arrays hold int32.

    `B` is the number of batch rows or 1, `H` the number of heads or 1; `M` and `N` are the numbers of query blocks and key
    blocks. An array `..._idx` has block indices in ascending order, and the array `..._cnt` their number; the entries after
    this number are 0 and are not read.
    """

    mask_block_cnt: Ints
    """`[B, H, M]`: the number of partial key blocks of each query block."""
    mask_block_idx: Ints
    """`[B, H, M, N]`: the partial key blocks of each query block."""
    full_block_cnt: Ints
    """`[B, H, M]`: the number of full key blocks of each query block."""
    full_block_idx: Ints
    """`[B, H, M, N]`: the full key blocks of each query block."""
    backward_mask_block_cnt: Ints
    """`[B, H, N]`: the number of partial query blocks of each key block."""
    backward_mask_block_idx: Ints
    """`[B, H, N, M]`: the partial query blocks of each key block."""
    backward_full_block_cnt: Ints
    """`[B, H, N]`: the number of full query blocks of each key block."""
    backward_full_block_idx: Ints
    """`[B, H, N, M]`: the full query blocks of each key block."""
    dq_write_order: Ints
    """`[B, H, N, M]`, for each entry of `backward_mask_block_idx`: the rank of the key block among all key blocks of that query
    block. The rank counts from 0 in ascending order of key blocks."""
    dq_write_order_full: Ints
    """`[B, H, N, M]`, for each entry of `backward_full_block_idx`: the rank of the key block, as in `dq_write_order`."""
    block_size: tuple[int, int]
    """The size of a block as (number of queries, number of keys)."""
    endpoints: Ints
    """`[B, H, q_len, 2 * runs]`: for each query, the ranges of keys that it reads, as (first key, key after the last). A
    `mask_mod` allows a key of a partial block if one of the ranges of its query contains the key. Unused ranges are (0, 0)."""
    kv_len: int
    """Number of keys."""

    def forward(self) -> dict[str, Any]:
        """Returns the fields of FA4's `BlockSparseTensorsTorch` for the forward pass, as NumPy arrays."""
        names = ("mask_block_cnt", "mask_block_idx", "full_block_cnt", "full_block_idx")
        return {**{name: getattr(self, name) for name in names}, "block_size": self.block_size}

    def backward(self) -> dict[str, Any]:
        """Returns the fields of FA4's `BlockSparseTensorsTorch` for the backward pass, including `dq_write_order`, the order in
        which a deterministic backward pass adds the gradients of queries."""
        names = ("mask_block_cnt", "mask_block_idx", "full_block_cnt", "full_block_idx")
        lists = {name: getattr(self, f"backward_{name}") for name in names}
        orders = {"dq_write_order": self.dq_write_order, "dq_write_order_full": self.dq_write_order_full, "spt": False}
        return {**lists, "block_size": self.block_size, **orders}

    def tensors(self, device: Any = "cuda") -> tuple[dict[str, Any], dict[str, Any], Any]:
        """Returns (`forward()`, `backward()`, endpoints) with PyTorch tensors on `device`.

        `BlockSparseTensorsTorch(**fields)` makes FA4's own type; the endpoints are a tensor for `aux_tensors` of a `mask_mod`.
        """
        import torch

        def moved(value: Any) -> Any:
            return torch.from_numpy(np.ascontiguousarray(value)).to(device) if isinstance(value, np.ndarray) else value

        first, second = ({name: moved(value) for name, value in fields.items()} for fields in (self.forward(), self.backward()))
        return first, second, moved(self.endpoints)

    def dense(self) -> Bools:
        """Returns the cells `[B, H, q_len, kv_len]` as booleans: all cells of full blocks, and those cells of partial blocks
        that `endpoints` allows.

        Raises `Error` for lists that name a block twice or a block that does not exist, and `ExportError` if the lists of the
        backward pass describe other blocks than those of the forward pass.
        """
        if min(self.block_size) < 1 or self.kv_len < 1 or self.endpoints.ndim != 4 or self.endpoints.shape[3] % 2:
            raise Error(
                f"block_size is {self.block_size}, kv_len is {self.kv_len} and endpoints has shape {self.endpoints.shape}: give sizes of 1 or "
                "more, and endpoints of shape [B, H, q_len, 2 * runs]"
            )
        count = int(np.prod(self.endpoints.shape[:3])) * self.kv_len
        if count > MOST_CELLS:
            raise Error(f"the block lists have {count} cells, but the maximum is {MOST_CELLS}: convert the mask in parts")
        forward = _kinds(self.forward(), "the forward lists", (self._counts[0], self._counts[1]))
        backward = _kinds(self.backward(), "the backward lists", (self._counts[1], self._counts[0])).swapaxes(2, 3)
        differ = np.argwhere(forward != backward)
        if len(differ):
            b, h, m, n = differ[0].tolist()
            names = {0: "empty", 1: "partial", 2: "full"}
            raise ExportError(
                f"FA4's block lists contradict each other at query block {m}, key block {n} (batch row {b}, head {h}): the block is "
                f"{names[int(forward[b, h, m, n])]} in the forward pass and {names[int(backward[b, h, m, n])]} in the backward pass"
            )
        q_len = self.endpoints.shape[2]
        kinds = forward.repeat(self.block_size[0], 2).repeat(self.block_size[1], 3)[:, :, :q_len, : self.kv_len]
        keys = np.arange(self.kv_len)
        inside = np.zeros((*self.endpoints.shape[:3], self.kv_len), np.bool_)
        for run in range(0, self.endpoints.shape[3], 2):
            inside |= (keys >= self.endpoints[..., run, None]) & (keys < self.endpoints[..., run + 1, None])
        cells: Bools = (kinds == 2) | (kinds == 1) & inside
        return cells

    @property
    def _counts(self) -> tuple[int, int]:
        """Returns (number of query blocks, number of key blocks)."""
        return -(-self.endpoints.shape[2] // self.block_size[0]), -(-self.kv_len // self.block_size[1])


def _kinds(fields: dict[str, Any], name: str, counts: tuple[int, int]) -> NDArray[np.int8]:
    """Returns the kind of each block, `[B, H, *counts]`: 0 empty, 1 partial, 2 full. `fields` are those of one pass, which
    `name` names in errors; `counts` are the numbers of blocks."""
    out = np.zeros((*fields["mask_block_cnt"].shape[:2], *counts), np.int8)
    for kind, prefix in ((1, "mask"), (2, "full")):
        lists, numbers = fields[f"{prefix}_block_idx"], fields[f"{prefix}_block_cnt"]
        if numbers.shape != out.shape[:3] or lists.shape[:3] != out.shape[:3]:
            raise Error(f"{name} have {prefix}_block_cnt of shape {numbers.shape} and {prefix}_block_idx of shape {lists.shape}: give shapes that begin with {out.shape[:3]}, as the sizes and blocks need")
        if (numbers < 0).any() or (numbers > lists.shape[3]).any():
            raise Error(f"{name} have a {prefix}_block_cnt outside of 0 to {lists.shape[3]}: give for each list the number of its entries that are read")
        listed = np.arange(lists.shape[3]) < numbers[..., None]
        at = np.argwhere(listed)
        blocks = lists[listed]
        wrong = np.flatnonzero((blocks < 0) | (blocks >= counts[1]))
        if len(wrong):
            raise Error(f"{name} have the block index {blocks[wrong[0]]} in {prefix}_block_idx: give indices from 0 to {counts[1] - 1}")
        where = (at[:, 0], at[:, 1], at[:, 2], blocks)
        times = np.zeros(out.shape, np.int32)
        np.add.at(times, where, 1)
        if (times > 1).any() or out[times > 0].any():
            raise Error(f"{name} have the same block twice, which would be counted twice: give each block once")
        out[where] = kind
    return out


def to_fa4(mask: Exported, shape: Sizes = None, facts: Known = None, *, block: tuple[int, int] = (128, 128)) -> Fa4Blocks:
    """Converts a mask to flash-attention 4's `BlockSparseTensors`, for sequences of one length (not packed by `cu_seqlens`).

    `block` is (queries, keys). The number of keys is FA4's `tile_n`. The number of queries is a multiple of `tile_m`, and on
    Blackwell of `2 * tile_m`: there, give (256, 128). The last block of queries or of keys is listed as partial if it is
    shorter than the others. FA4 takes a `mask_mod` in its own language (CuTe): `Fa4Blocks.endpoints` holds the cells for this
    function. Raises `ExportError` for masks with more than 2**28 endpoints.
    """
    source = read(mask, shape, facts, "FA4's block lists")
    block = block_sizes(source.shape, block)
    slots, _ = source.blocks(block, False)
    rows, columns = slots.shape[1:]
    if source.patterns.size * rows * columns > MOST_ENTRIES:
        raise Error(
            f"`block` is {block}, which gives lists with {source.patterns.size * rows * columns} entries, but the maximum is {MOST_ENTRIES}: give larger blocks, or convert the mask in parts"
        )
    partial, full = (which[source.patterns] for which in (slots >= 0, slots == FULL))
    turned, turned_full = partial.swapaxes(2, 3), full.swapaxes(2, 3)
    either = partial | full
    place = (np.cumsum(either, -1) - either).astype(np.int32).swapaxes(2, 3)
    lists = [_listed(which) for which in (partial, full, turned, turned_full)]
    order, order_full = (
        np.where(np.arange(rows) < count[..., None], np.take_along_axis(place, index.astype(np.int64), 3), 0).astype(np.int32)
        for count, index in lists[2:]
    )
    (mask_cnt, mask_idx), (full_cnt, full_idx), (back_cnt, back_idx), (back_full_cnt, back_full_idx) = lists
    return Fa4Blocks(
        mask_cnt, mask_idx, full_cnt, full_idx, back_cnt, back_idx, back_full_cnt, back_full_idx,
        order, order_full, block, _endpoints(source), source.shape.kv_len,
    )  # fmt: skip


def _listed(which: Bools) -> tuple[Ints, Ints]:
    """Returns for each row of booleans (number of true entries, indices of the true entries followed by zeros)."""
    counts, indices = sorted_lists(which)
    return counts, np.where(np.arange(which.shape[-1]) < counts[..., None], indices, 0).astype(np.int32)


def _endpoints(source: Source) -> Ints:
    most = source.most_runs
    if source.patterns.size * source.shape.q_len * 2 * most > MOST_ENDPOINTS:
        raise ExportError(
            f'{source.target} cannot express a mask of {source.shape.q_len} queries in which a row reads {most} separate ranges of keys: use FlexAttention, whose mask can be bits: to_flex(form="bits")'
        )
    return np.ascontiguousarray(source.endpoints()[source.patterns])


def from_fa4(blocks: Fa4Blocks) -> BoundMask:
    """Returns the mask of flash-attention 4's block lists.

    Raises `ExportError` if the lists of the forward and the backward pass describe different blocks.
    """
    return found(blocks.dense(), "the block lists")

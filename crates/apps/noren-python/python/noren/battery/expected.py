"""The cells that a mask must allow, from the intent of a model and its batch; `noren.guard` compares these cells with the mask."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from .._noren import Array, BoundMask, Facts, Mask, Shape, dense
from ..arguments._caches import given_cache

DROP = ("key_padding_mask", "src_key_padding_mask")
IDS = ("input_ids", "src", "tokens", "ids", "x")
POSITIONS = ("position_ids", "positions", "pos_ids")
SEGMENTS = ("segment_ids", "document_ids", "doc_ids", "sequence_ids", "seq_idx")
STARTS = ("cu_seqlens", "cu_seq_lens", "cu_seqlens_q", "cu_seq_lens_q", "cu_seqlens_k", "cu_seq_lens_k")


@dataclass
class Batch:
    """The arguments of one forward pass of the model: token ids, padding mask, positions, ..."""

    given: dict[str, Any]
    """The arguments of the forward pass, by name."""
    pad: int | None = None
    """The token id of padding; None if it is unknown."""
    spare: int = 0
    """1 if the padding id also has another meaning, such as end of text, else 0. With 1, the one token with the padding id that
    is next to the text counts as text."""
    past: int = 0
    """Number of tokens in the cache before the forward pass."""
    _real: dict[bool, Tensor | None] = field(default_factory=dict, repr=False)

    @staticmethod
    def of(arguments: Mapping[str, Any], pad: int | None, spare: int) -> Batch:
        """Returns the batch in `arguments`, the arguments of a forward pass by name. If an argument is a mapping with tensors,
        its entries count as arguments.
        """
        given = dict(arguments)
        for value in arguments.values():
            if isinstance(value, Mapping) and any(isinstance(v, Tensor) for v in value.values()):
                given = {**{k: v for k, v in value.items() if isinstance(k, str)}, **given}
        cache = given_cache(given)
        return Batch(given, pad, spare, 0 if cache is None else int(cache.get_seq_length()))

    def tensor(self, *names: str) -> Tensor | None:
        """Returns the first argument that has one of these names and is a tensor; None if there is no such argument."""
        found = (self.given.get(name) for name in names)
        return next((value.detach() for value in found if isinstance(value, Tensor)), None)

    def ids(self, decoder: bool = False) -> Tensor | None:
        """Returns the token ids `[batch, length]`: those of the decoder if `decoder` is true, else the model's `input_ids`. None
        if the batch has no token ids.
        """
        ids = self.tensor("decoder_input_ids", "tgt") if decoder else self.tensor(*IDS)
        return ids.cpu() if ids is not None and ids.dim() == 2 and not ids.is_floating_point() else None

    def given_real(self, decoder: bool = False) -> Tensor | None:
        """Returns the padding mask of the batch `[batch, length]`; true for a non-padding token. None if the batch has no padding
        mask.
        """
        keep = self.tensor("decoder_attention_mask") if decoder else self.tensor("attention_mask")
        drop = self.tensor("tgt_key_padding_mask") if decoder else self.tensor(*DROP)
        if keep is not None and keep.dim() == 2:
            return (keep != 0).cpu()
        if drop is not None and drop.dim() == 2:
            return ((drop == 0) if not drop.is_floating_point() else drop > -1).cpu()
        return None

    def real(self, decoder: bool = False) -> Tensor | None:
        """Returns the padding mask of the batch, in the form that `given_real` returns.

        If the batch has no padding mask, returns a mask that is false for the padding ids at the beginning and the end of each
        row. Returns None if the batch has neither a padding mask nor such padding ids.
        """
        if decoder not in self._real:
            found = self.given_real(decoder)
            ids = self.ids(decoder)
            if found is None and ids is not None and self.pad is not None and not self.past:
                edges = ends(ids, self.pad, self.spare)
                found = ~edges if edges.any() else None
            self._real[decoder] = found
        return self._real[decoder]

    def shown_padding(self) -> bool:
        """Returns true if the padding mask of the batch marks padding ids at the ends of rows as non-padding, more than `spare`
        in a row."""
        ids, real = self.ids(), self.given_real()
        if ids is None or real is None or self.pad is None or real.shape != ids.shape:
            return False
        return bool((ends(ids, self.pad, 0) & real).sum(1).gt(self.spare).any())

    def documents(self, length: int) -> tuple[list[Tensor], bool]:
        """Returns (document numbers of each token, from 1, as `[batch, length]`, one entry for each possible reading; whether the
        documents of a row must not read each other). The list is empty if each row is one document.

        Document numbers and offsets (`SEGMENTS`, `STARTS`) have one reading. With position ids, a document begins where a
        position is not the position before it plus 1, or only where it is not larger. Documents must be separate if positions
        fall inside a row; after a gap they may be.
        """
        if self.past:
            return [], False
        found, starts = self.tensor(*SEGMENTS), self.tensor(*STARTS)
        if found is not None and found.dim() == 2 and found.shape[1] == length:
            return [(found - found.min() + 1).cpu()], True
        if starts is not None and starts.dim() == 1 and len(starts) > 2:
            ends = starts[1:].cpu().contiguous()
            return [torch.searchsorted(ends, torch.arange(length, dtype=ends.dtype), right=True)[None] + 1], True
        positions = self.tensor(*POSITIONS)
        if positions is None or positions.dim() != 2 or positions.shape[1] != length or positions.is_floating_point():
            return [], False
        steps = positions.diff(dim=1).cpu()
        real = self.real()
        inside = torch.ones_like(steps, dtype=torch.bool)
        if real is not None and real.shape == (max(len(real), len(positions)), length):
            inside = real[:, 1:] & real[:, :-1]
        readings = [begins & inside for begins in (steps != 1, steps <= 0)]
        numbers = [torch.nn.functional.pad(begins.long().cumsum(1), (1, 0)) + 1 for begins in readings if begins.any()]
        return numbers, bool(((steps < 0) & inside).any())


def ends(ids: Tensor, pad: int, spare: int) -> Tensor:
    """Returns booleans `[batch, length]` that mark the padding ids at the beginning and the end of each row.

    At each end, the `spare` padding ids that are next to the text are not marked (see `Batch.spare`).
    """
    here = (ids == pad).long()
    left, right = here.cumprod(1).bool(), here.flip(1).cumprod(1).flip(1).bool()
    for _ in range(spare):
        left = left & torch.cat([left[:, 1:], torch.zeros_like(left[:, :1])], 1)
        right = right & torch.cat([torch.zeros_like(right[:, :1]), right[:, :-1]], 1)
    found: Tensor = left | right
    return found


@dataclass
class Expected:
    """The cells that a mask must allow, and the query rows in which masks are compared."""

    cells: list[Tensor]
    """The allowed cells as booleans `[batch, heads, q_len, kv_len]`; each dimension may be 1. If several masks are correct, for
    example with and without separate documents, the list has an entry for each of them."""
    rows: Tensor
    """`[batch, q_len]`: true for non-padding queries. If all queries are compared, the first dimension may be 1."""

    def wrong(self, keep: Tensor, narrowed: bool = False) -> int:
        """Returns the number of cells in which the mask `keep` differs from the allowed cells, in rows of non-padding queries.
        If `cells` has several entries, returns the smallest of their numbers. If `narrowed` is true, hidden cells do not count.
        """
        rows = self.rows[:, None, :, None]
        return min(int(((keep & ~cells if narrowed else keep != cells) & rows).sum()) for cells in self.cells)

    def bound(self) -> BoundMask:
        """Returns the first entry of `cells` as a bound mask (a mask with a shape and facts)."""
        return as_bound(self.cells[0])


def expected(meant: Mask, batch: Batch, q_len: int, kv_len: int, past: int, heads: int, stream: str, packed: bool) -> Expected | None:
    """Returns the cells that the intended mask `meant` allows in self-attention.

    `past` is the number of tokens in the cache. `stream` is "encoder" or "decoder", the part of the model that computes the
    tokens. `packed` is true if the intent requires that packed documents do not read each other. Returns None if the batch's
    padding mask does not have the length `kv_len`.
    """
    decoder = stream == "decoder"
    real = batch.real(decoder)
    if real is not None and real.shape[1] != kv_len:
        return None
    everywhere = torch.ones(1, kv_len, dtype=torch.bool) if real is None else real
    square = meant.bind(Shape.square(kv_len, heads=heads)).dense()[0]
    base = torch.from_numpy(square.copy())
    # Masks of transformers count positions from the first non-padding token of a row.
    first = everywhere.long().argmax(1)
    shifts = sorted(set(first.tolist()))
    if shifts == [0]:
        cells = base[None, :, past : past + q_len]
    else:
        rows = {shift: torch.roll(base, (shift, shift), (1, 2))[:, past : past + q_len] for shift in shifts}
        cells = torch.stack([rows[shift] for shift in first.tolist()])
    cells = cells & everywhere[:, None, None, :]
    readings = [cells]
    if stream == "encoder" and q_len == kv_len:
        apart, must = batch.documents(kv_len)
        same = [cells & (ids[:, None, :, None] == ids[:, None, None, :]) for ids in apart]
        readings = same if same and (must or packed) else [cells, *same]
    return Expected(readings, everywhere[:, past : past + q_len])


def expected_cross(batch: Batch, q_len: int, kv_len: int) -> Expected | None:
    """Returns the allowed cells of cross-attention: every query may read all non-padding tokens of the encoder.

    Returns None if the encoder's padding mask does not have the length `kv_len`.
    """
    real, queries = batch.real(), batch.real(decoder=True)
    if real is not None and real.shape[1] != kv_len:
        return None
    keys = torch.ones(1, kv_len, dtype=torch.bool) if real is None else real
    rows = torch.ones(1, q_len, dtype=torch.bool) if queries is None or queries.shape[1] != q_len else queries
    return Expected([keys[:, None, None, :].expand(-1, 1, q_len, -1)], rows)


def kept(mask: Tensor) -> list[Tensor]:
    """Returns the cells `[batch, heads, q_len, kv_len]` that a boolean or additive mask allows, one array for each possible
    meaning of the numbers.

    An additive mask has two possible meanings. In the first, only -inf and the lowest numbers of the type hide a cell, because
    a bias such as ALiBi can be far below 0. In the second, every value up to `HIDDEN`, such as -1e4 or -1e9, hides a cell. If
    both give equal cells, one array is returned. The doctor (`noren.check`) reports values that are not low enough.
    """
    mask = mask.detach().cpu()
    mask = mask.reshape((1,) * (4 - mask.dim()) + tuple(mask.shape))
    if not mask.is_floating_point():
        return [mask if mask.dtype == torch.bool else mask != 0]
    readings = [mask > (-65504.0 if mask.dtype == torch.float16 else -6.9e37), mask > HIDDEN]
    return readings[:1] if torch.equal(*readings) else readings


HIDDEN = -1e3
"""The limit for the second meaning that `kept` gives to an additive mask: each value up to this limit hides its cell."""


def as_bound(cells: Tensor) -> BoundMask:
    """Returns cells `[batch, heads, q_len, kv_len]` as a bound mask. If there are fewer queries than keys, the queries have the
    last positions.
    """
    batch, heads, q_len, kv_len = cells.shape
    array = Array.keep(cells.contiguous().numpy())
    shape = Shape(q_len, kv_len, query_offset=kv_len - q_len if kv_len > q_len else 0, batch=batch, heads=heads)
    return dense("cells").bind(shape, Facts(arrays={"cells": array}))

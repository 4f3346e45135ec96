"""What a mask that goes by must allow, cell by cell, from the intent of a model and its batch; `noren.guard` compares."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from ._noren import Array, BoundMask, Facts, Mask, Shape, dense
from .torch._masks import ignored

KEEP = ("attention_mask",)
DROP = ("key_padding_mask", "src_key_padding_mask")
IDS = ("input_ids", "src", "tokens", "ids", "x")


@dataclass
class Batch:
    """What the model was called with in this step."""

    given: dict[str, Any]
    pad: int | None = None
    """The padding id, where it is known."""
    spare: int = 0
    """How many tokens with the padding id next to the padding can be text: one where the id has another meaning too."""
    _real: dict[bool, Tensor | None] = field(default_factory=dict, repr=False)

    @staticmethod
    def of(arguments: Mapping[str, Any], pad: int | None, spare: int) -> Batch:
        """A batch may be given as one mapping among the arguments."""
        given = dict(arguments)
        for value in arguments.values():
            if isinstance(value, Mapping) and any(isinstance(v, Tensor) for v in value.values()):
                given = {**{k: v for k, v in value.items() if isinstance(k, str)}, **given}
        return Batch(given, pad, spare)

    def tensor(self, *names: str) -> Tensor | None:
        found = (self.given.get(name) for name in names)
        return next((value.detach() for value in found if isinstance(value, Tensor)), None)

    @property
    def past(self) -> int:
        """Tokens in the cache."""
        cache: Any = self.given.get("past_key_values")
        return int(cache.get_seq_length()) if hasattr(cache, "get_seq_length") else 0

    def ids(self, decoder: bool = False) -> Tensor | None:
        ids = self.tensor("decoder_input_ids", "tgt") if decoder else self.tensor(*IDS)
        return ids.cpu() if ids is not None and ids.dim() == 2 and not ids.is_floating_point() else None

    def given_real(self, decoder: bool = False) -> Tensor | None:
        """`[batch, length]`, true where the batch's own mask says that a token is real."""
        keep = self.tensor("decoder_attention_mask") if decoder else self.tensor(*KEEP)
        drop = self.tensor("tgt_key_padding_mask") if decoder else self.tensor(*DROP)
        if keep is not None and keep.dim() == 2:
            return (keep != 0).cpu()
        if drop is not None and drop.dim() == 2:
            return ((drop == 0) if not drop.is_floating_point() else drop > -1).cpu()
        return None

    def real(self, decoder: bool = False) -> Tensor | None:
        """The same; where the batch has no mask, what its padding ids show."""
        if decoder not in self._real:
            found = self.given_real(decoder)
            ids = self.ids(decoder)
            if found is None and ids is not None and self.pad is not None and not self.past:
                edges = ends(ids, self.pad, self.spare)
                found = ~edges if edges.any() else None
            self._real[decoder] = found
        return self._real[decoder]

    def shown_padding(self) -> bool:
        """Whether the batch's own mask calls padding at the ends of rows real."""
        ids, real = self.ids(), self.given_real()
        if ids is None or real is None or self.pad is None or real.shape != ids.shape:
            return False
        return bool((ends(ids, self.pad, 0) & real).sum(1).gt(self.spare).any())

    def segments(self) -> Tensor | None:
        """The number of each token's document, where the batch has it."""
        found = self.tensor("segment_ids", "document_ids", "seq_idx")
        return found.cpu() if found is not None and found.dim() == 2 else None

    def restarts(self) -> Tensor | None:
        """Documents by positions that begin anew; None where positions only count."""
        positions = self.tensor("position_ids")
        if positions is None or positions.dim() != 2 or positions.shape[1] < 2 or self.past:
            return None
        begins = torch.zeros_like(positions, dtype=torch.bool)
        begins[:, 1:] = positions[:, 1:] != positions[:, :-1] + 1
        real = self.real()
        if real is not None and real.shape == (max(len(real), len(positions)), positions.shape[1]):
            begins = begins & real & torch.cat([real[:, :1], real[:, :-1]], 1)
        return begins.long().cumsum(1).cpu() if begins.any() else None


def ends(ids: Tensor, pad: int, spare: int) -> Tensor:
    """True at the padding at the beginning and the end of each row, but for `spare` tokens beside the text."""
    here = (ids == pad).long()
    left, right = here.cumprod(1).bool(), here.flip(1).cumprod(1).flip(1).bool()
    for _ in range(spare):
        left = left & torch.cat([left[:, 1:], torch.zeros_like(left[:, :1])], 1)
        right = right & torch.cat([torch.zeros_like(right[:, :1]), right[:, :-1]], 1)
    found: Tensor = left | right
    return found


@dataclass
class Expected:
    """Cells that a mask must allow, and the rows in which it matters."""

    cells: list[Tensor]
    """`[batch, heads, q_len, kv_len]`, one for each reading that is right; an axis may be 1."""
    rows: Tensor
    """`[batch, q_len]`: true for real queries."""

    def wrong(self, keep: Tensor) -> int:
        """Cells in rows of real queries that differ, for the reading that fits best."""
        rows = self.rows[:, None, :, None]
        return min(int(((keep != cells) & rows).sum()) for cells in self.cells)

    def bound(self) -> BoundMask:
        """The first reading as a mask."""
        return as_bound(self.cells[0])


def expected(meant: Mask, batch: Batch, q_len: int, kv_len: int, past: int, heads: int, stream: str, packed: bool) -> Expected | None:
    """The cells of a self-attention; None where the batch's own mask has another length."""
    decoder = stream == "decoder"
    real = batch.real(decoder)
    if real is not None and real.shape[1] != kv_len:
        return None
    everywhere = torch.ones(1, kv_len, dtype=torch.bool) if real is None else real
    square = meant.bind(Shape.square(kv_len, heads=heads)).dense()[0]
    base = torch.from_numpy(square.copy())
    # Masks of transformers count from the first real token of a row.
    first = everywhere.long().argmax(1)
    shifts = sorted(set(first.tolist()))
    if shifts == [0]:
        cells = base[None, :, past : past + q_len]
    else:
        rows = {shift: torch.roll(base, (shift, shift), (1, 2))[:, past : past + q_len] for shift in shifts}
        cells = torch.stack([rows[shift] for shift in first.tolist()])
    cells = cells & everywhere[:, None, None, :]
    readings = [cells]
    segments = batch.segments()
    apart = segments if segments is not None else batch.restarts()
    if apart is not None and not past and apart.shape[1] == kv_len and q_len == kv_len:
        same = cells & (apart[:, None, :, None] == apart[:, None, None, :])
        readings = [same] if packed or segments is not None else [cells, same]
    return Expected(readings, everywhere[:, past : past + q_len])


def expected_cross(batch: Batch, q_len: int, kv_len: int) -> Expected | None:
    """The cells of an attention over the encoder: all real tokens there."""
    real, queries = batch.real(), batch.real(decoder=True)
    if real is not None and real.shape[1] != kv_len:
        return None
    keys = torch.ones(1, kv_len, dtype=torch.bool) if real is None else real
    rows = torch.ones(1, q_len, dtype=torch.bool) if queries is None or queries.shape[1] != q_len else queries
    return Expected([keys[:, None, None, :].expand(-1, 1, q_len, -1)], rows)


def kept(mask: Tensor) -> list[Tensor]:
    """The cells that a mask of booleans or of added values allows, `[batch, heads, q_len, kv_len]`.

    Added values have two readings where they differ: only the lowest numbers of the type hide a cell (a bias such as ALiBi may
    be far below 0), or every value below `HIDDEN` does (`-1e4`, `-1e9`). Whether a value is low enough is the doctor's question.
    """
    mask = mask.detach().cpu()
    mask = mask.reshape((1,) * (4 - mask.dim()) + tuple(mask.shape))
    if not mask.is_floating_point():
        return [mask if mask.dtype == torch.bool else mask != 0]
    readings = [~ignored(mask), mask > HIDDEN]
    return readings[:1] if torch.equal(*readings) else readings


HIDDEN = -1e3
"""Values below are read as a mask where no bias explains them."""


def as_bound(cells: Tensor) -> BoundMask:
    """Cells as a mask."""
    batch, heads, q_len, kv_len = cells.shape
    array = Array.keep(cells.contiguous().numpy())
    shape = Shape(q_len, kv_len, query_offset=kv_len - q_len if kv_len > q_len else 0, batch=batch, heads=heads)
    return dense("cells").bind(shape, Facts(arrays={"cells": array}))

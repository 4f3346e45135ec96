"""Partial results put together by log-sum-exp.

Each part of the keys gives an output and, by row, the logarithm of the sum of its weights. Together they are the outputs
weighted by their shares of the sum; a row that read nothing anywhere stays 0 with a log-sum-exp of -inf.
"""

from __future__ import annotations

import torch
from torch import Tensor

Partial = tuple[Tensor, Tensor]
"""An output, `[batch, heads, rows, v_dim]`, and its log-sum-exps, `[batch, heads, rows]`, both `float32`."""


def nothing(batch: int, heads: int, rows: int, v_dim: int) -> Partial:
    """What rows give that read no key."""
    # said, for torch's default may be another
    sums = torch.full((batch, heads, rows), -torch.inf, dtype=torch.float32)
    return torch.zeros(batch, heads, rows, v_dim, dtype=torch.float32), sums


def merge(first: Partial, second: Partial) -> Partial:
    """Both together. With nothing, the other is returned bit by bit."""
    # of rows that read nothing, a difference of infinities is no number
    top = torch.maximum(first[1], second[1]).clamp_min(torch.finfo(torch.float32).min)
    shares = [torch.exp(lse - top) for _, lse in (first, second)]
    total = shares[0] + shares[1]
    out = first[0] * shares[0].unsqueeze(-1) + second[0] * shares[1].unsqueeze(-1)
    return out / torch.where(total > 0, total, 1.0).unsqueeze(-1), top + torch.log(total)


class Results:
    """What some rows have read so far."""

    def __init__(self, batch: int, heads: int, rows: int, v_dim: int) -> None:
        self.out, self.lse = nothing(batch, heads, rows, v_dim)
        self._untouched = True

    def add(self, places: Tensor | None, partial: Partial) -> None:
        """Merges what the rows at `places` (`None`: all) read beside."""
        if places is not None:
            before = self.out.index_select(2, places), self.lse.index_select(2, places)
            out, lse = merge(before, partial)
            self.out.index_copy_(2, places, out)
            self.lse.index_copy_(2, places, lse)
        elif self._untouched:
            self.out, self.lse = partial
        else:
            self.out, self.lse = merge((self.out, self.lse), partial)
        self._untouched = False

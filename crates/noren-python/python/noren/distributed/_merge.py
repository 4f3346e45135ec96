"""Partial results put together by log-sum-exp.

Each part of the keys gives an output and, by row, the logarithm of the sum of its weights. Together they are the outputs
weighted by their shares of the sum; a row that read nothing anywhere stays 0 with a log-sum-exp of -inf.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

Partial = tuple[Tensor, Tensor]
"""An output, `[batch, heads, rows, v_dim]`, and its log-sum-exps, `[batch, heads, rows]`, both `float32`."""


def nothing(batch: int, heads: int, rows: int, v_dim: int) -> Partial:
    """What rows give that read no key."""
    return torch.zeros(batch, heads, rows, v_dim), torch.full((batch, heads, rows), -torch.inf)


def merge(partials: Sequence[Partial]) -> Partial:
    """The partials together, added in their order."""
    if len(partials) == 1:
        return partials[0]
    sums = torch.stack([lse for _, lse in partials])
    # of rows that read nothing, a difference of infinities is no number
    top = sums.amax(0).clamp_min(torch.finfo(torch.float32).min)
    weights = torch.exp(sums - top)
    total = weights[0].clone()
    out = partials[0][0] * weights[0].unsqueeze(-1)
    for (part, _), weight in zip(partials[1:], weights[1:], strict=True):
        total += weight
        out += part * weight.unsqueeze(-1)
    return out / torch.where(total > 0, total, 1.0).unsqueeze(-1), top + torch.log(total)

"""How far rounding alone can move an output between two passes."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import nn

ROUNDED = 16
"""Results of a layer that are rounded to its dtype one after another: norms, projections, rotation, scores, weights, sums."""
SUMS = 4
"""Long sums of a layer, one after another: projections in, attention, projection out, the feed-forward block."""
DEVIATIONS = 4.0
"""How many standard deviations of the error count as rounding."""
MOST = 0.5
"""No difference of half the largest output is called rounding."""


@dataclass(frozen=True)
class Rounding:
    """The bound for one model: `DEVIATIONS * sqrt(2 (depth + 1) (ROUNDED u^2 + SUMS width s^2))`, at most `MOST`.

    `u` is the unit roundoff of the dtype. `s` is that of the type in which sums are taken: float32 for narrower dtypes, else the
    dtype itself. Errors of different operations are independent, so their squares add up: over the operations of a layer, over
    `depth` layers and the output head, and over both passes.
    """

    dtype: torch.dtype
    depth: int
    width: int
    """Terms of the longest sum: the most inputs of a linear layer, or the keys of a query if these are more."""
    selects: bool = False
    """The model selects by comparison (experts, the largest scores): rounding may then select others, so that no bound holds."""

    @property
    def name(self) -> str:
        return str(self.dtype).removeprefix("torch.")

    @property
    def bound(self) -> float:
        """The largest difference, as a part of the largest output, that is called rounding."""
        unit = torch.finfo(self.dtype).eps / 2
        summed = min(unit, torch.finfo(torch.float32).eps / 2)
        variance = ROUNDED * unit**2 + SUMS * self.width * summed**2
        return min(MOST, DEVIATIONS * math.sqrt(2 * (self.depth + 1) * variance))

    def __str__(self) -> str:
        return f"rounding in {self.name} stays below {self.bound:.1e} for depth {self.depth} and width {self.width}"


def longest_sum(module: nn.Module | None, keys: int) -> int:
    """Terms of the longest sum that a module takes."""
    most = keys
    for child in module.modules() if module is not None else ():
        if isinstance(child, nn.Embedding):
            continue
        for weight in child.parameters(recurse=False):
            if weight.dim() > 1:
                convolves = isinstance(child, (nn.Conv1d, nn.Conv2d, nn.Conv3d))
                taken = weight.shape if type(child).__name__ == "Conv1D" else weight.shape[1:]
                most = max(most, weight[0].numel() if convolves else max(taken))
    return most


def layers_within(module: nn.Module | None) -> int:
    """An estimate of the depth of a module whose layers are not found: one layer for each four modules with weights."""
    weighted = 0 if module is None else sum(any(True for _ in child.parameters(recurse=False)) for child in module.modules())
    return max(1, math.ceil(weighted / 4))

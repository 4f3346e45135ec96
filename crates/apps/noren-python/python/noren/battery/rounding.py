"""The bound of rounding: the largest difference that rounding alone can cause between the outputs of two passes."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import nn

MOST = 0.5
"""The limit from which a difference never counts as rounding, as a fraction of the largest output."""
ROUNDED = 16
"""The number of results in one layer that are rounded to the dtype of the model: norms, projections, rotation, scores, weights
and sums."""
SUMS = 4
"""The number of long sums in one layer: input projections, attention, output projection, feed-forward block."""
DEVIATIONS = 4
"""The largest difference that counts as rounding, in standard deviations of the rounding error."""


@dataclass(frozen=True)
class Rounding:
    """The bound of rounding for one model; docs/audit.md derives the formula."""

    dtype: torch.dtype
    depth: int
    width: int
    """The number of terms of the longest sum in the model: the largest number of inputs of a linear layer, or the number of
    keys if that is larger."""
    selects: bool = False
    """True if the model selects elements by comparison (experts, largest scores). Rounding may change such a selection, so
    differences above `bound` prove no fault."""

    @property
    def name(self) -> str:
        return str(self.dtype).removeprefix("torch.")

    @property
    def bound(self) -> float:
        """The largest difference between outputs that is called rounding, as a fraction of the largest output.

        Sums are computed in float32 if the dtype is narrower. Errors of different operations are independent, so their squares
        are added: over the operations of a layer, over the layers and the output head, and over both passes.
        """
        unit = torch.finfo(self.dtype).eps / 2
        summed = min(unit, torch.finfo(torch.float32).eps / 2)
        variance = ROUNDED * unit**2 + SUMS * self.width * summed**2
        return min(DEVIATIONS * math.sqrt(2 * (self.depth + 1) * variance), MOST)

    def __str__(self) -> str:
        return f"rounding in {self.name} stays below {self.bound:.1e} for a depth (layers) of {self.depth} and a width (terms of a sum) of {self.width}"


def longest_sum(module: nn.Module | None, keys: int) -> int:
    """Returns the number of terms of the longest sum in a module, but at least `keys` (the number of keys in attention)."""
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
    """Estimates the number of layers of a module whose layers cannot be identified: a quarter of the number of modules with
    weights, at least 1."""
    weighted = 0 if module is None else sum(any(True for _ in child.parameters(recurse=False)) for child in module.modules())
    return max(1, math.ceil(weighted / 4))

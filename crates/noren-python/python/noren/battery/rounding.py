"""How far rounding alone can move an output between two passes."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import nn

from .._noren import audit_rounding

@dataclass(frozen=True)
class Rounding:
    """The bound for one model: `noren_flow::audit::rounding`, which docs/audit.md derives."""

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
        return audit_rounding(torch.finfo(self.dtype).eps / 2, self.depth, self.width)

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

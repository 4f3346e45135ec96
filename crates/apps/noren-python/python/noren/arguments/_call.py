"""The arguments of one call of attention on tensors of PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from .._noren import Plan

simulated = False
"""True if calls with CPU tensors use the GPU kernels. Triton's interpreter then runs these kernels (see `noren.gpu.simulate`)."""

watchers: list[Callable[[Call, Tensor, Tensor], None]] = []
"""Functions that get each uncompiled call before it is computed, with its queries and keys; `noren.guard` adds one."""


@dataclass(frozen=True)
class Call:
    """The arguments of an attention call that are not tensors."""

    plan: Plan
    scale: float | None = None
    softcap: float | None = None
    alibi: tuple[float, ...] | None = None
    dropout: float = 0.0


@dataclass
class Extras:
    """The tensors of an attention call other than q, k and v, as the user gave them."""

    bias: list[Tensor]
    relative: Tensor | None = None
    soft: Tensor | None = None
    sinks: Tensor | None = None
    seed: Tensor | None = None

    def differentiable(self) -> list[Tensor | None]:
        return [*self.bias, self.relative, self.soft, self.sinks]

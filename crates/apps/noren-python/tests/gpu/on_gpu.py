"""Triton's interpreter for tests of the GPU kernels, or a GPU with NOREN_GPU=1.

The interpreter sees no races, no reads past the end of an array and no reduced precision.
"""

from __future__ import annotations

import os
from contextlib import nullcontext
from typing import Any

import pytest

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton", reason="the GPU kernels are not run: Triton is not installed")
np = pytest.importorskip("numpy")

HARDWARE = bool(os.environ.get("NOREN_GPU"))

if not HARDWARE:
    if os.environ.get("TRITON_INTERPRET") != "1":
        pytest.skip("the GPU kernels are not run: TRITON_INTERPRET is not 1", allow_module_level=True)

import noren.gpu  # noqa: E402

DEVICE = "cuda" if HARDWARE else "cpu"


def device_kernels() -> Any:
    """Returns a context in which attention runs on the GPU kernels."""
    return nullcontext() if HARDWARE else noren.gpu.simulate()


def bits(x: Any) -> Any:
    return x.contiguous().view({4: torch.int32, 2: torch.int16}[x.element_size()])


def same_bits(a: list[Any], b: list[Any], name: str) -> None:
    for i, (x, y) in enumerate(zip(a, b, strict=True)):
        assert torch.equal(bits(x), bits(y)), f"{name}: result {i}"

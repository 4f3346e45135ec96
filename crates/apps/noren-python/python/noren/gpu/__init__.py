"""Attention on GPUs: Triton kernels that read noren's plans.

The functions of `noren.torch` and `noren.hf` use these kernels for tensors on a GPU. The kernels are not ready
for use: they were tested on an NVIDIA H100 only, with head dimensions up to 64. See docs/gpu.md.

>>> import noren as nr, noren.torch as nt
>>> out = nt.attention(q, k, v, nr.causal() & nr.documents(), facts={"documents": [3000, 1096]})  # doctest: +SKIP
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from .._noren import Error
from ..arguments import _call

try:
    import triton as _triton  # noqa: F401
except ModuleNotFoundError as missing:
    raise ImportError("noren.gpu needs Triton, which is not installed: pip install triton (Linux)") from missing

from ._paged import paged_attention as paged_attention
from ._plan import replace as replace


@contextmanager
def simulate() -> Iterator[None]:
    """Within this context, calls with CPU tensors run the GPU kernels in Triton's interpreter: slow, for tests.

    Raises `Error` unless the environment variable TRITON_INTERPRET was 1 when Triton was imported.
    """
    from . import _kernels

    if not type(_kernels.forward).__name__.startswith("Interpreted"):
        raise Error("Triton's interpreter is off: set the environment variable TRITON_INTERPRET=1 before Triton is imported (PyTorch may import it)")
    from ._interpreter import widen_bf16

    widen_bf16()
    before = _call.simulated
    _call.simulated = True
    try:
        yield
    finally:
        _call.simulated = before


__all__ = ["paged_attention", "replace", "simulate"]

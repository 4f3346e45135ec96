"""Attention on GPUs: Triton kernels that read noren's plans.

The kernels have run in Triton's interpreter only, on CPUs; no GPU has run them yet. `attention(q, k, v, plan)` takes tensors of
PyTorch on one device:

    plan = nr.causal().plan(nr.Shape.square(1024, heads=8))
    out, log_sum_exp = noren.gpu.attention(q, k, v, plan)
"""

try:
    import triton as _triton  # noqa: F401
except ModuleNotFoundError as missing:
    raise ImportError("noren.gpu needs Triton, which is not installed: pip install triton (Linux)") from missing

from ._attention import attention as attention

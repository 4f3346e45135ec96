"""Attention on GPUs: Triton kernels that read noren's plans.

The kernels have run in Triton's interpreter only, on CPUs; no GPU has run them yet.

>>> import noren as nr, torch
>>> from noren.gpu import attention                                                             # doctest: +SKIP
>>> plan = nr.causal().plan(nr.Shape(1, 8, 1024))                                               # doctest: +SKIP
>>> out, lse = attention(q, k, v, plan)                                                         # doctest: +SKIP
"""

from ._attention import attention as attention

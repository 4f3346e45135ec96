"""Masked attention for PyTorch: a differentiable function, a replacement for SDPA, and attention modules.

>>> import torch, noren as nr, noren.torch as nt
>>> q = torch.randn(1, 8, 256, 64, requires_grad=True)
>>> out = nt.attention(q, q, q, nr.sliding(64) | nr.causal() & nr.keys(range(4)))
>>> out.sum().backward()
"""

from ._function import attention as attention
from ._modules import MultiheadAttention as MultiheadAttention, convert as convert
from ._sdpa import sdpa as sdpa

"""Masked attention for PyTorch: a differentiable function, a replacement for SDPA, attention modules and pooling.

>>> import torch, noren as nr, noren.torch as nt
>>> q = torch.randn(1, 8, 256, 64, requires_grad=True)
>>> out = nt.attention(q, q, q, nr.sliding(64) | nr.causal() & nr.keys(range(4)))
>>> out.sum().backward()
"""

try:
    import torch as _torch  # noqa: F401
except ImportError:
    raise ImportError("noren.torch needs PyTorch: pip install 'noren-attention[torch]'") from None

from ._dynamic import Handle as Handle, MaskFunction as MaskFunction, Replace as Replace, mask_inputs as mask_inputs
from ._flash import flash_attn_func as flash_attn_func
from ._function import attention as attention
from ._mask_call import MaskCall as MaskCall
from ._modules import MultiheadAttention as MultiheadAttention, convert as convert, set_mask as set_mask
from ._pooling import (
    first_token_pool as first_token_pool,
    last_token_pool as last_token_pool,
    max_pool as max_pool,
    mean_pool as mean_pool,
)
from ._sdpa import sdpa as sdpa
from ._varlen import flash_attn_varlen_func as flash_attn_varlen_func, varlen_attn as varlen_attn

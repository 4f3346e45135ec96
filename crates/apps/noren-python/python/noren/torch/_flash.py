"""A replacement of flash-attention's function for sequences of equal lengths."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from .._noren import Error
from ..arguments._tensors import check_strided
from ._varlen import flash_attn_varlen_func
from ._varlen_core import Known, Masks, split


def flash_attn_func(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Tensor | None = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
    *,
    mask: Masks | None = None,
    facts: Known | Sequence[Known] | None = None,
) -> Any:
    """Replaces `flash_attn.flash_attn_func` (flash-attention 2), with the same arguments and results, also on CPUs.

    `q` is `[batch, q_len, heads, head_dim]`, `k` and `v` are `[batch, kv_len, kv_heads, head_dim]`. The options are those of
    `flash_attn_varlen_func`. Returns `[batch, q_len, heads, v_dim]`; with `return_attn_probs` also the log-sum-exps
    `[batch, heads, q_len]` in float32 and an empty tensor.
    """
    for name, x in (("q", q), ("k", k), ("v", v)):
        check_strided(name, x)
        if x.dim() != 4:
            raise Error(f"{name} has shape {tuple(x.shape)}: give [batch, length, heads, head_dim]")
        if x.shape[0] != q.shape[0]:
            raise Error(f"q has {q.shape[0]} batch rows, but {name} has {x.shape[0]}: give equal numbers of batch rows")
    if k.shape[1] != v.shape[1]:
        raise Error(f"k has {k.shape[1]} keys, but v has {v.shape[1]} values: give one value for each key")
    starts_q, starts_k = (torch.arange(x.shape[0] + 1, dtype=torch.int32) * x.shape[1] for x in (q, k))
    found = flash_attn_varlen_func(
        q.flatten(0, 1), k.flatten(0, 1), v.flatten(0, 1), starts_q, starts_k, q.shape[1], k.shape[1], dropout_p, softmax_scale, causal,
        window_size, softcap, alibi_slopes, deterministic, return_attn_probs, mask=mask, facts=facts,
    )  # fmt: skip
    out = split(found[0] if return_attn_probs else found, 0, q.shape[:2])
    return (out, split(found[1], 1, q.shape[:2]).transpose(0, 1), found[2]) if return_attn_probs else out

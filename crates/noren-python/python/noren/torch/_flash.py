"""Replacements of flash-attention's functions for sequences of equal lengths, and of its functions whose queries, keys and values are in
one tensor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from .._noren import Error
from .._tensors import check_strided
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


def flash_attn_kvpacked_func(q: Tensor, kv: Tensor, *arguments: Any, **options: Any) -> Any:
    """Replaces `flash_attn.flash_attn_kvpacked_func`: `flash_attn_func` with keys and values in one tensor `kv`, `[batch, kv_len, 2,
    kv_heads, head_dim]`."""
    k, v = _parts("kv", kv, 5, 2)
    return flash_attn_func(q, k, v, *arguments, **options)


def flash_attn_qkvpacked_func(qkv: Tensor, *arguments: Any, **options: Any) -> Any:
    """Replaces `flash_attn.flash_attn_qkvpacked_func`: `flash_attn_func` with queries, keys and values in one tensor `qkv`, `[batch,
    length, 3, heads, head_dim]`."""
    q, k, v = _parts("qkv", qkv, 5, 3)
    return flash_attn_func(q, k, v, *arguments, **options)


def flash_attn_varlen_kvpacked_func(
    q: Tensor, kv: Tensor, cu_seqlens_q: Tensor, cu_seqlens_k: Tensor, max_seqlen_q: int, max_seqlen_k: int, *arguments: Any, **options: Any
) -> Any:
    """Replaces `flash_attn.flash_attn_varlen_kvpacked_func`: `flash_attn_varlen_func` with keys and values in one tensor `kv`, `[keys, 2,
    kv_heads, head_dim]`."""
    k, v = _parts("kv", kv, 4, 2)
    return flash_attn_varlen_func(q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, *arguments, **options)


def flash_attn_varlen_qkvpacked_func(qkv: Tensor, cu_seqlens: Tensor, max_seqlen: int, *arguments: Any, **options: Any) -> Any:
    """Replaces `flash_attn.flash_attn_varlen_qkvpacked_func`: `flash_attn_varlen_func` with queries, keys and values in one tensor `qkv`,
    `[tokens, 3, heads, head_dim]`."""
    q, k, v = _parts("qkv", qkv, 4, 3)
    return flash_attn_varlen_func(q, k, v, cu_seqlens, cu_seqlens, max_seqlen, max_seqlen, *arguments, **options)


def _parts(name: str, packed: Tensor, dims: int, count: int) -> tuple[Tensor, ...]:
    """Returns the `count` tensors that `packed` contains, split along the third dimension from the end."""
    check_strided(name, packed)
    if packed.dim() != dims or packed.shape[-3] != count:
        lead = "batch, length" if dims == 5 else "tokens"
        raise Error(f"{name} has shape {tuple(packed.shape)}: give [{lead}, {count}, heads, head_dim]")
    return packed.unbind(-3)

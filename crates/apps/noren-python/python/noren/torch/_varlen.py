"""Replacements of `torch.nn.attention.varlen.varlen_attn` and of flash-attention's functions, on CPUs and GPUs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from .._noren import Error
from ..arguments._given import short
from ..arguments._tensors import check_dropout, check_strided, compiling
from ._function import lower
from ._varlen_compile import source_of, operator
from ._varlen_core import (
    FLASH,
    TORCH,
    Known,
    Layout,
    Masks,
    Names,
    Options,
    check_integers,
    check_tensors,
    gather_pages,
    needs_gradient,
    pieces_of,
    run,
    window_of,
)


def varlen_attn(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    cu_seq_q: Tensor,
    cu_seq_k: Tensor | None,
    max_q: int,
    max_k: int,
    *,
    return_aux: Any = None,
    scale: float | None = None,
    window_size: tuple[int, int] = (-1, -1),
    enable_gqa: bool = False,
    seqused_k: Tensor | None = None,
    block_table: Tensor | None = None,
    num_splits: int | None = None,
    mask: Masks | None = None,
    facts: Known | Sequence[Known] | None = None,
) -> Any:
    """Replaces `torch.nn.attention.varlen.varlen_attn`, with the same arguments and results, also on CPUs and in float32.

    `query` is `[queries of all sequences, heads, head_dim]`, `key` and `value` `[keys of all sequences, kv_heads, head_dim]`. Sequence `i`
    has the queries from `cu_seq_q[i]` to `cu_seq_q[i + 1] - 1` and the keys from `cu_seq_k[i]` to `cu_seq_k[i + 1] - 1`. `max_q` and
    `max_k` are upper limits of the numbers of queries and keys of a sequence. `window_size` is (number of keys before, number of keys
    after) the key at the query's own position, with -1 for no limit: (-1, 0) is causal. The last query of a sequence has the position of
    the last key. `seqused_k` is the number of keys of each sequence that are used. With `block_table`, the page numbers of each sequence
    `[sequences, pages]`, `key` and `value` consist of pages: `[pages, tokens per page, kv_heads, head_dim]`. Calls with `seqused_k` or
    `block_table` have no gradients, as in PyTorch. `num_splits` changes nothing: the output of a sequence never depends on the other
    sequences.

    `mask` is a mask of noren; attention uses its intersection with the window. Position 0 of the mask is the first key of each sequence. A
    list gives one mask for each sequence. `facts` are the data of the mask within a sequence, such as document lengths; a list gives the
    data of each sequence.

    Returns the output `[queries, heads, v_dim]`; with `return_aux.lse` also the log-sum-exps `[heads, queries]` in float32. A query
    without keys gets 0 and -inf; so do queries that are in no sequence.

    Raises `noren.Error` or TypeError for wrong arguments, and RuntimeError for gradients with `seqused_k` or `block_table`.
    """
    heads = key.shape[-2] if isinstance(key, Tensor) and key.dim() > 2 else 0
    if isinstance(query, Tensor) and query.dim() == 3 and heads not in (0, query.shape[1]) and not enable_gqa:
        raise Error(f"query has {query.shape[1]} heads and key has {heads} heads: give enable_gqa=True, so that several query heads share a key-value head")
    if scale is not None and not scale > 0:
        raise Error(f"scale is {scale}: give a number above 0")
    if num_splits is not None and (not isinstance(num_splits, int) or num_splits < 0):
        raise Error(f"num_splits is {short(num_splits)}: give a whole number or None")
    if block_table is not None and seqused_k is None:
        raise Error("block_table was given without seqused_k: give the number of keys of each sequence as seqused_k")
    if cu_seq_k is None and block_table is None:
        raise Error("cu_seq_k is None: give the first key of each sequence, or keys in pages with block_table and seqused_k")
    starts_k = cu_seq_k if block_table is None else None
    options = Options(TORCH, window_of(window_size), mask, scale, most_q=max_q, most_k=max_k)
    out, lse = _attend(query, key, value, Layout(cu_seq_q, starts_k, seqused_k, block_table), options, facts=facts)
    return (out, lse) if return_aux is not None and return_aux.lse else out


def flash_attn_varlen_func(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Tensor | None = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
    block_table: Tensor | None = None,
    *,
    mask: Masks | None = None,
    facts: Known | Sequence[Known] | None = None,
) -> Any:
    """Replaces `flash_attn.flash_attn_varlen_func` (flash-attention 2), with the same arguments and results, also on CPUs.

    `q` is `[queries of all sequences, heads, head_dim]`, `k` and `v` `[keys of all sequences, kv_heads, head_dim]`, or with `block_table`
    `[pages, tokens of a page, kv_heads, head_dim]`. `window_size` is (number of keys before, number of keys after) the query's own key,
    with -1 for no limit; `causal` sets the number of keys after it to 0. For both, the last query of a sequence has the position of the
    last key. `softcap` above 0 limits the scores. `alibi_slopes`, `[heads]` or `[sequences, heads]` in float32, are the ALiBi factors of
    the distance between query and key. `deterministic` changes nothing: the gradients have the same bits in each run. `mask` and `facts`
    are those of `varlen_attn`.

    Returns the output `[queries, heads, v_dim]`; with `return_attn_probs` also the log-sum-exps `[heads, queries]` in float32 and an
    empty tensor, which is what flash-attention returns without dropout. A query without keys gets the output 0 and the log-sum-exp
    -inf, where the kernels of flash-attention 2 give +inf.

    Raises `noren.Error` or TypeError for wrong arguments, and for `return_attn_probs` with dropout; RuntimeError for gradients with
    `block_table`.
    """
    cap = check_scores(dropout_p, softcap, return_attn_probs)
    window = window_of(window_size)
    options = Options(
        FLASH, (window[0], 0) if causal else window, mask, softmax_scale, cap, float(dropout_p), max_seqlen_q, max_seqlen_k
    )
    if cu_seqlens_k is None:
        raise Error("cu_seqlens_k is None: give the cumulative numbers of keys")
    layout = Layout(cu_seqlens_q, cu_seqlens_k, None, block_table)
    out, lse = _attend(q, k, v, layout, options, alibi_slopes, facts)
    return (out, lse, q.new_empty(0)) if return_attn_probs else out


def check_scores(dropout_p: float, softcap: float, return_attn_probs: bool) -> float | None:
    """Returns the limit of the scores (softcap), or None for no limit. Raises an error for numbers that flash-attention does
    not accept."""
    check_dropout("dropout_p", dropout_p)
    if return_attn_probs and dropout_p > 0:
        raise Error("return_attn_probs with dropout returns the kernel's own dropout pattern, which noren cannot give: leave out one of the two")
    if not isinstance(softcap, (int, float)) or softcap != softcap or softcap in (float("inf"), float("-inf")):
        raise Error(f"softcap is {short(softcap)}: give a finite number; 0 means no limit")
    return float(softcap) if softcap > 0 else None


def _attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    layout: Layout,
    options: Options,
    slopes: Tensor | None = None,
    facts: Known | Sequence[Known] | None = None,
) -> tuple[Tensor, Tensor]:
    names, paged = options.names, layout.pages is not None
    if facts is not None and options.mask is None:
        raise Error("`facts` was given without a mask: give the mask that needs the facts as mask=")
    check_tensors(names, *(lower(q, k, v) if all(isinstance(x, Tensor) for x in (q, k, v)) else (q, k, v)), paged)
    q, k, v = lower(q, k, v)
    check_integers(names.starts_q, layout.starts_q, 1)
    if layout.starts_k is not None:
        check_integers(names.starts_k, layout.starts_k, 1)
    for name, given, dims in (("seqused_k", layout.used_k, 1), ("block_table", layout.pages, 2)):
        if given is not None:
            check_integers(name, given, dims)
            if needs_gradient(q, k, v):
                raise RuntimeError(f"{name} is for inference, and has no gradients: call the function in torch.no_grad(), or leave out {name}")
    if slopes is not None:
        check_strided("alibi_slopes", slopes)
    if compiling():
        if facts is not None:
            raise Error("under torch.compile, facts= is not supported: put the facts into the mask, such as documents([3, 4]), or call outside of the compiled function")
        if paged:
            raise Error("under torch.compile, block_table is not supported: call outside of the compiled function")
        masks = tuple(options.mask) if isinstance(options.mask, list) else options.mask
        source = source_of(names is FLASH, options.window, masks, options.scale, options.softcap, options.dropout)
        out, lse = operator(q, k, v, layout.tensors(), slopes, int(options.most_q), int(options.most_k), source)
        return out, lse
    if paged:
        k, v, layout = _from_pages(names, k, v, layout)
    return run(pieces_of(options, layout, q, k, slopes, facts), q, k, v)


def _from_pages(names: Names, k: Tensor, v: Tensor, layout: Layout) -> tuple[Tensor, Tensor, Layout]:
    """Returns (keys, values, layout): the keys and values, copied from their pages into one dimension of tokens, and the layout of these
    copies."""
    if layout.used_k is not None:
        lengths = layout.used_k.tolist()
    else:
        assert layout.starts_k is not None
        at = layout.starts_k.tolist()
        lengths = [end - start for start, end in zip(at, at[1:], strict=False)]
    for i, length in enumerate(lengths):
        if length < 0:
            raise Error(f"{'seqused_k' if layout.used_k is not None else names.starts_k} gives the length {length} for the keys of sequence {i}: give lengths of 0 or more")
    k, v, starts = gather_pages(k, v, layout, lengths)
    return k, v, Layout(layout.starts_q, starts)

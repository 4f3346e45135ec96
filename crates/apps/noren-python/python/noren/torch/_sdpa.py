"""A replacement for `torch.nn.functional.scaled_dot_product_attention` (SDPA), computed by noren."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from .. import _noren
from .._noren import Error
from ..arguments._call import Call, Extras
from ..arguments._given import flag, number
from ..arguments._tensors import check_dropout, check_floats, check_mask, compiling
from ._function import lower, new_seed, operator, run, source_of, split_masks
from ._masks import Given, planned, simple, sizes_of

_NONE = Extras([])


def sdpa(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """Replaces `torch.nn.functional.scaled_dot_product_attention`, with the same arguments and results.

    `query` is `[..., heads, q_len, head_dim]`, `key` `[..., heads, kv_len, head_dim]`, `value` `[..., heads, kv_len, v_dim]`.
    `attn_mask` broadcasts to `[..., heads, q_len, kv_len]`; in a boolean mask true means may attend, a float mask is added to
    the scores. `is_causal` lets query `i` read the keys up to `i`. A query that may read no key gets the output 0. Dropout
    scales the kept weights by `1 / (1 - dropout_p)`. Hidden cells (false, -inf or numbers from -9984 down) are skipped: their
    content does not reach the output. Plans are cached by the content of the mask.

    Raises `noren.Error`, TypeError and RuntimeError for inputs that PyTorch rejects, and for integer masks.
    """
    is_causal, enable_gqa, scale = flag("is_causal", is_causal), flag("enable_gqa", enable_gqa), number("scale", scale)
    if attn_mask is not None and is_causal:
        raise RuntimeError("sdpa: attn_mask and is_causal cannot be given together: put the causal part into attn_mask")
    check_dropout("dropout_p", dropout_p)
    _check(query, key, value, enable_gqa)
    if attn_mask is not None:
        check_mask("attn_mask", attn_mask, "true = may attend", query.dtype)
    query, key, value = lower(query, key, value)
    if 0 in query.shape or 0 in key.shape or 0 in value.shape:
        return scaled_dot_product_attention(
            query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
        )
    rank = query.dim()
    query, key, value = _broadcast(query, key, value, enable_gqa)
    lead, rows = query.shape[:-3], query.shape[:-1]
    if rank != 4:
        query, key, value = (_four(x) for x in (query, key, value))
    masks = [] if attn_mask is None else [_fit(attn_mask, query, key, lead)]
    seed = new_seed() if dropout_p > 0.0 else None
    if compiling():
        source = source_of("causal" if is_causal else "full", 0, scale, None, None, dropout_p)
        keep, bias = split_masks(masks)
        out, _ = operator(query, key, value, bias, None, None, None, seed, keep, source)
    else:
        sizes = sizes_of(query, key)
        if not masks:
            plan, extras = simple(is_causal, *sizes), _NONE
        else:
            plan, biases = planned(_noren.full(), [Given("attn_mask", masks[0])], sizes)
            extras = Extras(biases)
        if seed is not None:
            extras = Extras(extras.bias, seed=seed)
        out, _ = run(Call(plan, scale, None, None, dropout_p), query, key, value, extras)
    result: Tensor = out if len(rows) == 3 else out.reshape(*rows, out.shape[-1])
    return result


def _broadcast(query: Tensor, key: Tensor, value: Tensor, enable_gqa: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Returns the tensors with equal leading dimensions, broadcast as in PyTorch. The number of key-value heads may stay below
    the number of query heads: several query heads then share one key-value head.
    """
    if query.dim() == 2:
        return query, key, value
    heads = {x.shape[-3] for x in (query, key, value)}
    if enable_gqa:
        if key.shape[-3] != value.shape[-3]:
            key, value = (x.repeat_interleave(query.shape[-3] // x.shape[-3], -3) for x in (key, value))
    elif len(heads) > 1 and not key.shape[-3] == value.shape[-3] == 1:
        query, key, value = (x.expand(*x.shape[:-3], max(heads), *x.shape[-2:]) for x in (query, key, value))
    if query.shape[:-3] == key.shape[:-3] == value.shape[:-3]:
        return query, key, value
    lead = [max(sizes) for sizes in zip(query.shape[:-3], key.shape[:-3], value.shape[:-3], strict=True)]
    query, key, value = (x.expand(*lead, *x.shape[-3:]) for x in (query, key, value))
    return query, key, value


def _four(x: Tensor) -> Tensor:
    """Returns a tensor with any number of leading dimensions as `[batch, heads, length, width]`."""
    return x[None, None] if x.dim() == 2 else x.reshape(-1, *x.shape[-3:])


def _fit(mask: Tensor, query: Tensor, key: Tensor, lead: torch.Size) -> Tensor:
    """Returns the mask as `[batch or 1, heads or 1, q_len or 1, kv_len or 1]`. `lead` are the leading dimensions of the query."""
    given = mask.shape
    if len(lead) > 1 and mask.dim() > 3:
        mask = mask.expand(*lead, *mask.shape[-3:]).reshape(-1, *mask.shape[-3:])
    full = (query.shape[0], query.shape[1], query.shape[2], key.shape[2])
    if mask.dim() > 4 or any(n not in (1, size) for n, size in zip(reversed(mask.shape), reversed(full), strict=False)):
        text = f"attn_mask has shape {tuple(given)}, which does not broadcast to {list(full)}"
        if mask.dim() == 3 and mask.shape[0] == full[0]:
            text = f"{text}: if the mask differs between batch rows, give attn_mask[:, None]"
        raise RuntimeError(text)
    return mask[(None,) * (4 - mask.dim())]


def _check(query: Tensor, key: Tensor, value: Tensor, enable_gqa: bool) -> None:
    for name, x in (("query", query), ("key", key), ("value", value)):
        check_floats(name, x)
        if x.dim() < 2 or x.dim() != query.dim():
            raise Error(f"{name} has shape {tuple(x.shape)}, but the query has shape {tuple(query.shape)}: give tensors with equal numbers of dimensions, at least 2")
    if query.dtype != key.dtype or query.dtype != value.dtype:
        if not torch.is_autocast_enabled("cpu"):
            raise RuntimeError(f"query, key and value hold {query.dtype}, {key.dtype}, {value.dtype}: give tensors of one number type")
    if query.shape[-1] != key.shape[-1] or key.shape[-2] != value.shape[-2]:
        raise RuntimeError(
            f"the shapes of query {tuple(query.shape)}, key {tuple(key.shape)} and value {tuple(value.shape)} do not fit together: query and key must have equal last dimensions, key and value equal lengths"
        )
    if enable_gqa and query.dim() == 2:
        raise RuntimeError("enable_gqa=True needs a dimension of heads, which query, key and value do not have: leave out enable_gqa")
    if query.dim() > 2:
        _check_lead(query, key, value, enable_gqa)


def _check_lead(query: Tensor, key: Tensor, value: Tensor, enable_gqa: bool) -> None:
    heads = [x.shape[-3] for x in (query, key, value)]
    if enable_gqa and any(n == 0 or heads[0] % n for n in heads[1:]):
        raise RuntimeError(f"the query has {heads[0]} heads, the key {heads[1]} and the value {heads[2]}: the numbers of heads of key and value must divide {heads[0]}")
    if not enable_gqa and any(n not in (1, max(heads)) for n in heads):
        raise RuntimeError(
            f"the query has {heads[0]} heads, the key {heads[1]} and the value {heads[2]}: give enable_gqa=True, so that several query heads share a key-value head"
        )
    leads = [x.shape[:-3] for x in (query, key, value)]
    if any(n not in (1, max(sizes)) for sizes in zip(*leads, strict=True) for n in sizes):
        raise RuntimeError(f"query, key and value have the leading dimensions {[list(lead) for lead in leads]}, which do not broadcast: give equal dimensions, or dimensions of 1")

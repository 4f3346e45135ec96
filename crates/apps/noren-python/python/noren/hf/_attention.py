"""The attention of a layer of transformers, and its registration in transformers."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .._noren import Error, Plan, full
from ..arguments._call import Call, Extras
from ..arguments._tensors import check_dropout
from ..torch._dynamic import Given as GivenMask
from ..torch._function import lower, new_seed, operator, run, source_of, split_masks, uncompiled
from ..torch._mask_call import Own
from ..torch._masks import Given, planned, simple, sizes_of
from ._calls import current_frame, install_hooks, set_default, traced
from ._masks import Masked, make_mask
from ._support import check_arguments, refuse_when_made


def register(name: str = "noren", *, mask: GivenMask = None) -> None:
    """Registers the attention and its masks in transformers as `attn_implementation=name`.

    Both are needed: if only the attention were registered, transformers would silently drop every mask, also that of padding. A
    model that cannot use noren is refused when it is made, with the reason (`unsupported` returns it).

    `mask` is a mask, its text or a mask function (`noren.torch.MaskCall`) for every model with this name, in addition to the
    model's own mask. Call this function before models are made, so that `model(..., noren_mask=...)` is known to them.
    """
    from transformers import AttentionInterface
    from transformers.masking_utils import AttentionMaskInterface

    set_default(name, mask)
    AttentionInterface.register(name, attention_forward)
    AttentionMaskInterface.register(name, make_mask)
    NAMES.add(name)
    refuse_when_made(NAMES, install_hooks)


NAMES: set[str] = set()
"""The names of the attention implementations that `register` added to transformers."""


def attention_forward(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Masked | Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    is_causal: bool | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    position_bias: Tensor | None = None,
    position_ids: Tensor | None = None,
    output_attentions: bool = False,
    **others: Any,
) -> tuple[Tensor, Tensor | None]:
    """Computes attention for a layer of transformers; called by `AttentionInterface`.

    `query` is `[batch, heads, q_len, head_dim]`, `key` and `value` are `[batch, kv_heads, kv_len, head_dim]`. Returns (output
    `[batch, q_len, heads, head_dim]`, attention weights). The weights are None unless `output_attentions` is true.
    """
    check_arguments(module, others)
    query, key, value = lower(query, key, value)
    if traced() and not isinstance(attention_mask, Masked) and not output_attentions:
        causal = _is_causal(module, query, key, attention_mask, is_causal)
        seed = new_seed() if dropout > 0 else None
        source = source_of("causal" if causal else "full", 0, scaling, softcap, None, dropout, 0, "zero")
        masks, biases = split_masks([] if attention_mask is None else [attention_mask])
        biases = biases if position_bias is None else [position_bias, *biases]
        out, _ = operator(query, key, value, biases, None, None, s_aux, seed, masks, source)
        return out.transpose(1, 2).contiguous(), None
    given = (scaling, dropout, is_causal, softcap, s_aux, position_bias, position_ids, output_attentions)
    return _attend(module, query, key, value, attention_mask, *given)


@uncompiled
def _attend(
    module: torch.nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Masked | Tensor | None, scaling: float | None, dropout: float,
    is_causal: bool | None, softcap: float | None, s_aux: Tensor | None, position_bias: Tensor | None, position_ids: Tensor | None, output_attentions: bool,
) -> tuple[Tensor, Tensor | None]:  # fmt: skip
    """Computes attention with a plan."""
    extras = Extras([] if position_bias is None else [position_bias], sinks=s_aux)
    frame = current_frame()
    if isinstance(attention_mask, Masked):
        frame = attention_mask.frame if frame is None else frame  # gradient checkpointing calls layers after the forward pass
        if attention_mask.shape[2:] != (query.shape[2], key.shape[2]):
            raise Error(
                f"the mask is for {attention_mask.q_len} queries and {attention_mask.kv_len} keys, but the layer has {query.shape[2]} queries and {key.shape[2]} keys: attention_mask has another length than the tokens, or the model cuts masks in its own code, which noren does not support"
            )
        if frame is None:
            plan = attention_mask.plan(query.shape[1], key.shape[1])
        else:
            plan = frame.plan(module, query, key, scaling, attention_mask.own(query.shape[1], key.shape[1]))
        if frame is None or not frame.separates_sequences:
            attention_mask.look_for_packing(position_ids, plan)
        elif position_bias is not None:
            raise Error(f"{type(module).__name__} adds biases by the distance of keys in the row, so its model cannot be folded: give the sequences in padded rows")
    else:
        plan, bias = _given(module, query, key, attention_mask, is_causal)
        extras.bias.extend(bias)
        if frame is not None:
            frame.check_mask_of_layer(module, attention_mask, unknown_query=plan.mask == full() and query.shape[2] != key.shape[2])
            plan = frame.plan(module, query, key, scaling, Own(plan.mask, plan.bound.facts, plan.shape))
    if check_dropout("dropout", dropout) > 0:
        extras.seed = new_seed()
    out, _ = run(Call(plan, scaling, softcap, None, dropout), query, key, value, extras)
    out = out.transpose(1, 2).contiguous()
    return out, _weights(query, key, value, plan, scaling, softcap, extras) if output_attentions else None


def _given(
    module: torch.nn.Module, query: Tensor, key: Tensor, mask: Tensor | None, is_causal: bool | None
) -> tuple[Plan, list[Tensor]]:
    """Returns (plan, biases that are added to scores) for a layer whose mask is the tensor `mask`, or which has no mask (None)."""
    sizes = sizes_of(query, key)
    causal = _is_causal(module, query, key, mask, is_causal)
    if mask is None:
        return simple(causal, *sizes), []
    check_floats(mask)
    return planned(full(), [Given("attention_mask", mask)], sizes, lowest="zero")


def _is_causal(module: torch.nn.Module, query: Tensor, key: Tensor, mask: Tensor | None, is_causal: bool | None) -> bool:
    """Returns true if a layer without a mask is causal. Raises `Error` for a tensor that is no mask of the layer."""
    if mask is None:
        causal_layer = getattr(module, "is_causal", False) if is_causal is None else is_causal
        if not causal_layer or query.shape[2] == 1:
            return False
        if query.shape[2] != key.shape[2]:
            raise Error(
                f"a causal layer has {query.shape[2]} queries, {key.shape[2]} keys and no mask, so the positions of the queries are unknown: give a mask"
            )
        return True
    if not isinstance(mask, Tensor) or mask.dim() != 4:
        raise Error(f"the attention mask is {type(mask).__name__}: give a tensor [batch, length] or [batch, 1 or heads, q_len, kv_len]")
    if mask.dtype != torch.bool and not mask.is_floating_point():
        raise Error(f"the attention mask with 4 dimensions holds {mask.dtype}: give booleans (true = attend) or floats that are added to the scores (0 and -inf)")
    full_shape = (*query.shape[:3], key.shape[2])
    if any(n not in (1, size) for n, size in zip(mask.shape, full_shape, strict=True)):
        raise Error(f"the attention mask has shape {tuple(mask.shape)}, which does not broadcast to {list(full_shape)}")
    return False


def check_floats(mask: Tensor) -> None:
    """Raises `Error` for a mask tensor of floats that are all 0 or 1. As numbers added to scores, they would hide no key."""
    if mask.is_floating_point() and (mask == 1).any() and ((mask == 0) | (mask == 1)).all():
        raise Error(
            "the attention mask with 4 dimensions holds the floats 0 and 1: transformers would add these floats to the scores and hide no key; give mask.bool() (true = attend), or 0 and -inf"
        )


def _weights(
    q: Tensor, k: Tensor, v: Tensor, plan: Plan, scale: float | None, softcap: float | None, extras: Extras
) -> Tensor:
    from ..cpu._attention import attention

    sinks = None if extras.sinks is None else extras.sinks.cpu()
    with torch.no_grad():
        _, weights = attention(
            q.cpu(), k.cpu(), v.cpu(), plan, scale=scale, softcap=softcap, bias=[bias.cpu() for bias in extras.bias] or None,
            sinks=sinks, return_weights=True,
        )  # fmt: skip
    found: Tensor = weights.to(q.device, q.dtype)
    return found

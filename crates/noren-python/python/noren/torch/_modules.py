"""Attention modules: `torch.nn.MultiheadAttention` on noren's kernels, and existing models converted to it."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from .._noren import Array, Error, Facts, Mask, Plan, Shape, dense, full, padding
from ._function import Call, Extras, lower, new_seed, run


class MultiheadAttention(nn.MultiheadAttention):
    """`torch.nn.MultiheadAttention` with its parameters, arguments and meaning, computed by noren.

    `attn_mask` may also be a noren mask, its text or a plan. In PyTorch's arrays true means *ignored*, in `attn_mask` and
    in `key_padding_mask`; floats are added. A query that may read nothing gets 0 (PyTorch: NaN or 0, by mode).
    """

    def forward(  # type: ignore[override]
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | Mask | Plan | str | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        if self.bias_k is not None or self.add_zero_attn:
            raise Error("MultiheadAttention with add_bias_kv or add_zero_attn is not supported: leave them out")
        if is_causal and attn_mask is None:
            raise RuntimeError("is_causal is a hint about attn_mask: give attn_mask too, for example attn_mask=\"causal\"")
        batched = query.dim() == 3
        if not batched:
            query, key, value = query[None], key[None], value[None]
            key_padding_mask = None if key_padding_mask is None else key_padding_mask[None]
        elif not self.batch_first:
            query, key, value = (x.transpose(0, 1) for x in (query, key, value))
        q, k, v = lower(*self._project(query, key, value))
        plan, extras = self._masked(q, k, key_padding_mask, attn_mask)
        if self.training and self.dropout > 0:
            extras.seed = new_seed()
        out, _ = run(Call(plan, dropout=self.dropout), q, k, v, extras)
        out = self.out_proj(out.transpose(1, 2).flatten(2))
        weights = self._weights(q, k, plan, extras, average_attn_weights) if need_weights else None
        if not batched:
            return out[0], None if weights is None else weights[0]
        return (out if self.batch_first else out.transpose(0, 1)), weights

    def _project(self, query: Tensor, key: Tensor, value: Tensor) -> list[Tensor]:
        """Queries, keys and values as `[batch, heads, length, head_dim]`."""
        if self._qkv_same_embed_dim:
            weights = self.in_proj_weight.chunk(3)
        else:
            weights = (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight)
        biases = (None, None, None) if self.in_proj_bias is None else self.in_proj_bias.chunk(3)
        projected = (linear(x, w, b) for x, w, b in zip((query, key, value), weights, biases, strict=True))
        return [x.reshape(*x.shape[:2], self.num_heads, self.head_dim).transpose(1, 2) for x in projected]

    def _masked(
        self, q: Tensor, k: Tensor, key_padding_mask: Tensor | None, attn_mask: Tensor | Mask | Plan | str | None
    ) -> tuple[Plan, Extras]:
        if isinstance(attn_mask, Plan):
            if key_padding_mask is not None:
                raise Error("a plan has its padding already: leave out key_padding_mask, or give a mask")
            return attn_mask, Extras([])
        shape = Shape.cross(q.shape[2], k.shape[2], batch=q.shape[0], heads=q.shape[1])
        bias: list[Tensor] = []
        facts: dict[str, Any] = {"arrays": {}}
        mask = full()
        if isinstance(attn_mask, (Mask, str)):
            mask = Mask(attn_mask)
        elif attn_mask is not None:
            four = attn_mask if attn_mask.dim() == 2 else attn_mask.reshape(-1, self.num_heads, *attn_mask.shape[1:])
            if attn_mask.dtype == torch.bool:
                facts["arrays"]["attn_mask"] = Array.drop(four)
                mask = dense("attn_mask")
            else:
                bias.append(four)
        if key_padding_mask is not None:
            if key_padding_mask.dtype == torch.bool:
                keep = ~key_padding_mask
                facts["real_keys"] = [row.nonzero().flatten().tolist() for row in keep]
                mask = mask & padding()
            else:
                bias.append(key_padding_mask[:, None, None, :])
        return mask.plan(shape, Facts(**facts)), Extras(bias)

    def _weights(self, q: Tensor, k: Tensor, plan: Plan, extras: Extras, average: bool) -> Tensor:
        """The probabilities, by PyTorch: they are asked for to be looked at, and have gradients as its own do."""
        scores = q.float() @ k.float().transpose(-1, -2) / math.sqrt(self.head_dim)
        for bias in extras.bias:
            scores = scores + bias
        scores = scores.masked_fill(~torch.from_numpy(plan.bound.dense()), -torch.inf)
        weights = torch.softmax(scores, -1).nan_to_num(0.0).to(q.dtype)
        return weights.mean(1) if average else weights


def convert(module: nn.Module) -> nn.Module:
    """Swaps every `nn.MultiheadAttention` inside for noren's, in place, parameters and hooks kept; returns the module.

    `nn.TransformerEncoderLayer`s leave their fast path, which would go around it.
    """
    for child in module.modules():
        if type(child) is nn.MultiheadAttention:
            if child.bias_k is not None or child.add_zero_attn:
                raise Error("nn.MultiheadAttention with add_bias_kv or add_zero_attn cannot be converted: leave them out")
            child.__class__ = MultiheadAttention
        if isinstance(child, nn.TransformerEncoder):
            child.enable_nested_tensor = False
            child.use_nested_tensor = False
        if isinstance(child, nn.TransformerEncoderLayer):
            child.activation_relu_or_gelu = 0  # what the fast path asks for
    return module

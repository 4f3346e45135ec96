"""Attention modules: `torch.nn.MultiheadAttention` on noren's kernels, and existing models converted to it."""

from __future__ import annotations

import math
import warnings
import weakref
from dataclasses import dataclass, field
from typing import NoReturn

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import linear, pad

from .._noren import Error, Facts, Mask, Plan, Spec, full
from ..arguments._call import Call, Extras
from ..arguments._given import flag
from ..arguments._tensors import check_dropout, check_mask, compiling
from ..cpu._double import products
from ..masks._forms import parsed
from ._dynamic import Given as GivenMask, Handle, Hook, MaskFunction, check_given, current_inputs, plan_of_call
from ._function import cells_operator, empty, lower, new_seed, operator, run, source_of, split_masks
from ._mask_call import MaskCall, Own, Part
from ._masks import Given, Lowest, empty_rows, planned, sizes_of

PADDING = "key_padding_mask (called src_key_padding_mask, tgt_key_padding_mask or memory_key_padding_mask in PyTorch's transformer modules)"
PAIRS = "attn_mask (called mask, src_mask, tgt_mask or memory_mask in PyTorch's transformer modules)"
DROP = "true = ignored"
FIRST = (
    "with batch_first=False, as here, inputs are [length, batch, width]: build the module with batch_first=True if your inputs "
    "are [batch, length, width]"
)


@dataclass
class _Masks:
    """The masks of a call: one mask expression, and mask tensors with four dimensions. In boolean tensors, true means "ignored"."""

    base: Mask | Plan | str
    given: list[Given] = field(default_factory=list)
    extra: int = 0
    lowest: Lowest = "refuse"
    hook: Hook | None = None


class MultiheadAttention(nn.MultiheadAttention):
    """`torch.nn.MultiheadAttention` with the same parameters and arguments, computed by noren.

    In `attn_mask` and `key_padding_mask`, true means *ignored*. Floats are added to the scores; cells with -inf or a
    number from -9984 down are skipped like cells of a boolean mask. `attn_mask` may have the shapes of PyTorch, `[length, keys]` and
    `[batch * heads, length, keys]`. The shape `[batch, length, keys]` is accepted too, unless `batch` equals the number of heads.
    `attn_mask` may also be a noren mask, its text, a plan, or a function that makes the mask of a call (`MaskCall`). `is_causal`
    is a hint and changes nothing. A query that may read no key gets 0 before the output projection (in PyTorch NaN or 0,
    depending on the mode).

    Raises `noren.Error`, TypeError and RuntimeError; the message names the argument, what was expected and the fix.
    """

    mask_hook: Hook | None = None
    """The mask or mask function that `set_mask` gave; None if there is none."""

    def forward(  # type: ignore[override]
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | Mask | Plan | MaskFunction | str | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        need_weights, is_causal = flag("need_weights", need_weights), is_causal is not None and flag("is_causal", is_causal)
        average_attn_weights = flag("average_attn_weights", average_attn_weights)
        if is_causal and attn_mask is None:
            raise RuntimeError("is_causal alone has no effect, because it is a hint about attn_mask: give attn_mask too, for example attn_mask=\"causal\"")
        for name, x in (("query", query), ("key", key), ("value", value)):
            if not isinstance(x, Tensor):
                raise TypeError(f"{name} is a {type(x).__name__}: give a tensor")
            if x.is_nested:
                raise Error(f"{name} is a nested tensor: give padded tensors and key_padding_mask (enable_nested_tensor=False)")
            if x.dim() not in (2, 3) or x.dim() != query.dim():
                raise Error(f"{name} has shape {tuple(x.shape)}, but the query has shape {tuple(query.shape)}: give all inputs 3 dimensions, or all inputs 2 dimensions")
        batched, own = query.dim() == 3, query is key
        if not batched:
            query, key, value = query[None], key[None], value[None]
        elif not self.batch_first:
            query, key, value = (x.transpose(0, 1) for x in (query, key, value))
        self._check_sizes(query, key, value)
        q, k, v = self._project(query, key, value)
        q, k, v = lower(q, k, v)
        masks = self._masks(q, k, key_padding_mask, attn_mask, batched)
        masks.lowest = "padding" if own else "refuse"
        k, v = self._with_extra(k, v)
        seed = new_seed() if self.training and check_dropout("dropout", self.dropout) > 0 else None
        out, weights = self._attend(q, k, v, masks, seed, need_weights)
        out = self.out_proj(out.transpose(1, 2).flatten(2))
        if weights is not None and average_attn_weights:
            weights = weights.mean(1)
        if not batched:
            return out[0], None if weights is None else weights[0]
        return (out if self.batch_first else out.transpose(0, 1)), weights

    def _check_sizes(self, query: Tensor, key: Tensor, value: Tensor) -> None:
        first = "" if self.batch_first else f"; {FIRST}"
        if key.shape[:2] != value.shape[:2]:
            raise RuntimeError(f"key and value have the sizes {tuple(key.shape[:2])} and {tuple(value.shape[:2])} as [batch, length]: give equal sizes")
        if query.shape[0] != key.shape[0]:
            raise RuntimeError(f"the query has {query.shape[0]} batch rows and the key has {key.shape[0]}: give equal numbers of batch rows{first}")
        for name, x, width in (("query", query, self.embed_dim), ("key", key, self.kdim), ("value", value, self.vdim)):
            if x.shape[2] != width:
                raise RuntimeError(f"{name} has width {x.shape[2]}, but the module expects the width {width}")

    def _project(self, query: Tensor, key: Tensor, value: Tensor) -> list[Tensor]:
        """Returns queries, keys and values as `[batch, heads, length, head_dim]`."""
        if self._qkv_same_embed_dim:
            weights = self.in_proj_weight.chunk(3)
        else:
            weights = (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight)
        biases = (None, None, None) if self.in_proj_bias is None else self.in_proj_bias.chunk(3)
        projected = [linear(x, w, b) for x, w, b in zip((query, key, value), weights, biases, strict=True)]
        return [x.reshape(*x.shape[:2], self.num_heads, self.head_dim).transpose(1, 2) for x in projected]

    def _with_extra(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Returns keys and values with the module's `bias_k`, `bias_v` and zero key appended, if the module has them."""
        extra_k, extra_v = [k], [v]
        if self.bias_k is not None and self.bias_v is not None:
            for parts, bias in ((extra_k, self.bias_k), (extra_v, self.bias_v)):
                one = bias.reshape(1, self.num_heads, 1, self.head_dim).to(k.dtype)
                parts.append(one.expand(k.shape[0], -1, -1, -1))
        if self.add_zero_attn:
            for parts in (extra_k, extra_v):
                parts.append(k.new_zeros(k.shape[0], self.num_heads, 1, self.head_dim))
        if len(extra_k) == 1:
            return k, v
        return torch.cat(extra_k, 2), torch.cat(extra_v, 2)

    def _masks(
        self, q: Tensor, k: Tensor, padding: Tensor | None, pairs: Tensor | Mask | Plan | MaskFunction | str | None, batched: bool
    ) -> _Masks:
        extra = (self.bias_k is not None) + bool(self.add_zero_attn)
        hook = self.mask_hook
        if callable(pairs):
            given = check_given("attn_mask", pairs)
            if hook is not None:
                raise Error("two mask functions were given: one as attn_mask and one by nt.set_mask for this module; give only one")
            hook, pairs = Hook(given, 0, "self"), None
        if hook is not None and extra:
            raise Error("masks that are made during a call are not supported for a module with add_bias_kv or add_zero_attn, because these keys have no token")
        if isinstance(pairs, Plan) and (padding is not None or extra):
            raise Error("a plan already contains the padding and all keys: with a plan, leave out key_padding_mask, add_bias_kv and add_zero_attn; or give a mask as attn_mask")
        if isinstance(pairs, Spec):
            raise Error(f"`{pairs}` has score modifiers: nt.MultiheadAttention takes only masks without score modifiers; use nt.attention")
        masks = _Masks("full", extra=extra, hook=hook)
        if isinstance(pairs, (Mask, Plan, str)):
            masks.base = pairs
        elif pairs is not None:
            check_mask(PAIRS, pairs, DROP, q.dtype, padding)
            masks.given.append(self._given("attn_mask", self._four(pairs, q, k, batched), extra))
        if padding is not None:
            check_mask(PADDING, padding, DROP, q.dtype, pairs)
            keys = padding if batched or padding.dim() != 1 else padding[None]
            if keys.shape != (k.shape[0], k.shape[2]):
                self._refuse_padding(padding, k, batched)
            masks.given.append(self._given("key_padding_mask", keys[:, None, None, :], extra))
        return masks

    def _given(self, name: str, mask: Tensor, extra: int) -> Given:
        """Returns the mask with `extra` more columns, one for each key that the module appends. These columns are allowed for every
        query."""
        return Given(name, pad(mask, (0, extra)) if extra else mask, drop=mask.dtype == torch.bool)

    def _four(self, mask: Tensor, q: Tensor, k: Tensor, batched: bool) -> Tensor:
        """Returns `attn_mask` with four dimensions, `[batch or 1, heads or 1, length, keys]`."""
        batch, heads, pairs = q.shape[0], self.num_heads, (q.shape[2], k.shape[2])
        shape = tuple(mask.shape)
        if shape == pairs:
            return mask[None, None]
        if shape[1:] == pairs and len(shape) == 3:
            if shape[0] == batch * heads:
                return mask.reshape(batch, heads, *pairs)
            if shape[0] == 1:
                return mask[None]
            if shape[0] == batch != heads:
                return mask[:, None]
            if shape[0] == batch:
                raise RuntimeError(
                    f"{PAIRS} has shape {shape}, and {batch} is the number of batch rows and also of heads: give [batch, 1, length, keys] = "
                    "mask[:, None] for one mask per batch row, or [1, heads, length, keys] = mask[None] for one mask per head"
                )
        if shape[2:] == pairs and len(shape) == 4 and shape[0] in (1, batch) and shape[1] in (1, heads):
            return mask
        first = f"; {FIRST}" if batched and not self.batch_first else ""
        raise RuntimeError(
            f"{PAIRS} has shape {shape}, but the expected shape is [length, keys] = {pairs} or [batch * heads, length, keys] = "
            f"{(batch * heads, *pairs)}{first}"
        )

    def _refuse_padding(self, padding: Tensor, k: Tensor, batched: bool) -> NoReturn:
        expected = f"[batch, keys] = {(k.shape[0], k.shape[2])}" if batched else f"[keys] = {(k.shape[2],)}"
        hint = f"; {FIRST}" if batched and not self.batch_first else ""
        raise RuntimeError(f"{PADDING} has shape {tuple(padding.shape)}, but the expected shape is {expected}{hint}")

    def _attend(
        self, q: Tensor, k: Tensor, v: Tensor, masks: _Masks, seed: Tensor | None, need_weights: bool
    ) -> tuple[Tensor, Tensor | None]:
        if (nothing := empty(q, k, v)) is not None:
            return nothing[0], q.new_zeros((*q.shape[:-1], k.shape[-2])) if need_weights else None
        if compiling():
            if masks.hook is not None:
                raise Error("masks that are made during a call are not supported under torch.compile: call the uncompiled model")
            tensors, bias = split_masks([~mask.tensor if mask.drop else mask.tensor for mask in masks.given])
            p = self.dropout if seed is not None else 0.0
            source = source_of(masks.base, 0, None, None, None, p, masks.extra, masks.lowest)
            out, _ = operator(q, k, v, bias, None, None, None, seed, tensors, source)
            return out, self._weights(q, k, masks, cells_operator(q, k, tensors, source)) if need_weights else None
        biases: list[Tensor] = []
        if isinstance(masks.base, Plan):
            plan = masks.base
        else:
            base = full() if masks.base == "full" else _mask_of(masks.base)
            plan, biases = planned(base, masks.given, sizes_of(q, k), extra=masks.extra, lowest=masks.lowest)
        if masks.given and plan not in _LOOKED_AT:
            _LOOKED_AT.add(plan)
            _warn_of_rows(plan, next((given.tensor for given in masks.given if given.name == "attn_mask"), None))
        if masks.hook is not None:
            plan = self._dynamic(masks.hook, plan, masks, q, k)
        out, _ = run(Call(plan, dropout=self.dropout), q, k, v, Extras(biases, seed=seed))
        return out, self._weights(q, k, masks, torch.from_numpy(plan.bound.dense()).to(q.device)) if need_weights else None

    def _dynamic(self, hook: Hook, plan: Plan, masks: _Masks, q: Tensor, k: Tensor) -> Plan:
        """Returns the plan of the intersection of the module's own mask (`plan`) and the mask of `hook`."""

        def fixed() -> tuple[Mask, Facts]:
            padding = [given for given in masks.given if given.name == "key_padding_mask"]
            found, _ = planned(full(), padding, sizes_of(q, k), lowest="zero")
            return found.mask, found.bound.facts

        own = Own(plan.mask, plan.bound.facts, plan.shape, fixed)
        call = MaskCall(
            layer=hook.layer, part=hook.part, module=self, query=q, key=k, scale=None, own=own, inputs=current_inputs()
        )
        return plan_of_call(hook.given, call)

    def _weights(self, q: Tensor, k: Tensor, masks: _Masks, cells: Tensor) -> Tensor:
        """Computes the attention weights `[batch, heads, length, keys]` with operations of PyTorch, so that the weights have
        gradients."""
        unread, empty = ~cells.any(-2), ~cells.any(-1, keepdim=True)
        k = k.masked_fill(unread[..., None], 0.0)  # NaN in unread keys must reach neither outputs nor gradients
        wide = torch.promote_types(q.dtype, torch.float32)
        scores = products(torch, q.to(wide), k.to(wide)) / math.sqrt(self.head_dim)
        for mask in masks.given:
            if not mask.drop:
                scores = scores + mask.tensor
        weights = torch.softmax(scores.masked_fill(~cells, -torch.inf), -1)
        return weights.masked_fill(empty, 0.0).to(q.dtype)


_LOOKED_AT: weakref.WeakSet[Plan] = weakref.WeakSet()
"""The plans of masks that `_warn_of_rows` has examined."""


def _warn_of_rows(plan: Plan, pairs: Tensor | None) -> None:
    """Warns if `attn_mask` (`pairs`, with four dimensions) seems to have the masks of batch rows in the wrong order, or if a
    query that is not padding may read no key. A token counts as padding if no query of its row reads its key.
    """
    said = []
    batch, heads = plan.shape.batch, plan.shape.heads
    tiled = False
    if pairs is not None and pairs.shape[:2] == (batch, heads) and 1 < batch and 1 < heads:
        first = pairs.reshape(heads, batch, *pairs.shape[2:])
        tiled = torch.equal(first, first[:1].expand_as(first)) and not torch.equal(first, first[:, :1].expand_as(first))
    found = empty_rows(plan)
    if found.any() and plan.shape.q_len == plan.shape.kv_len:
        found &= plan.bound.dense().any((1, 2))
        if found.any():
            row, query = np.argwhere(found)[0].tolist()
            said.append(f"{int(found.sum())} queries that are not padding may read no key, for example query {query} of batch row {row}: noren gives 0 for them, PyTorch NaN")
    if tiled and (said or heads % batch):
        said.append(f"attn_mask seems to be made by mask.repeat({heads}, 1, 1), which gives batch rows the masks of other rows: use mask.repeat_interleave({heads}, 0), or give mask[:, None]")
    if said:
        warnings.warn("; ".join(said), stacklevel=5)


def _mask_of(mask: Mask | str) -> Mask:
    found = parsed(mask) if isinstance(mask, str) else mask
    if isinstance(found, Spec):
        raise Error(f"`{mask}` has score modifiers: nt.MultiheadAttention takes only masks without score modifiers; use nt.attention")
    return found


def convert(module: nn.Module) -> nn.Module:
    """Converts every `nn.MultiheadAttention` inside `module` to noren's, in place, and returns `module`.

    Parameters and hooks are kept. The fast path of `nn.TransformerEncoderLayer` is disabled, because it would bypass noren. Raises
    `Error` for a module that contains no `nn.MultiheadAttention`.
    """
    if not isinstance(module, nn.Module):
        what = f"the class {module.__name__}" if isinstance(module, type) else f"a {type(module).__name__}"
        raise TypeError(f"nt.convert was given {what}: give a module of PyTorch, such as nn.TransformerEncoder(...)")
    if not any(isinstance(child, nn.MultiheadAttention) for child in module.modules()):
        how = "it computes attention in its own modules: call noren.torch.attention or noren.torch.sdpa in them"
        if hasattr(module, "set_attn_implementation"):
            how = 'for a model of transformers, call noren.hf.register() and model.set_attn_implementation("noren")'
        raise Error(f"{type(module).__name__} contains no nn.MultiheadAttention, so there is nothing to convert; {how}")
    for child in module.modules():
        if type(child) is nn.MultiheadAttention:
            child.__class__ = MultiheadAttention
        if isinstance(child, nn.TransformerEncoder):
            child.enable_nested_tensor = False
            child.use_nested_tensor = False
        if isinstance(child, nn.TransformerEncoderLayer):
            child.activation_relu_or_gelu = 0  # the fast path needs 1 (relu) or 2 (gelu)
    return module


def set_mask(model: nn.Module, mask: GivenMask) -> Handle:
    """Sets a mask or a mask function for every `MultiheadAttention` of noren inside `model`, in addition to the masks of each
    call.

    The result has a method `remove()`, which restores the previous masks; in a `with` statement, the end of the block restores them.
    `MaskCall.layer` is the index of the module within its part, in the order of `model.modules()`. `MaskCall.part` is "encoder", "decoder"
    or "cross" in a model with PyTorch's decoder layers, otherwise "self". Raises `Error` for a model without such modules.

    >>> import torch, noren as nr, noren.torch as nt
    >>> layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    >>> model = nt.convert(torch.nn.TransformerEncoder(layer, 2))
    >>> with nt.set_mask(model, lambda call: "causal" if call.layer == 0 else "causal & window(left=2)"):
    ...     out = model(torch.randn(1, 5, 8))
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"`model` is a {type(model).__name__}: give a module of PyTorch that contains MultiheadAttention of noren")
    given = check_given("mask", mask)
    decodes = any(isinstance(child, nn.TransformerDecoderLayer) for child in model.modules())
    counts: dict[Part, int] = {}
    hooks: dict[MultiheadAttention, Hook | None] = {}
    for name, child in model.named_modules():
        if isinstance(child, MultiheadAttention):
            part = _part(model, name) if decodes else "self"
            layer = counts.get(part, 0)
            hooks[child] = None if given is None else Hook(given, layer, part)
            counts[part] = layer + 1
    if not hooks:
        raise Error(f"{type(model).__name__} has no MultiheadAttention of noren: convert its attention modules with nt.convert(model)")
    before = {child: child.mask_hook for child in hooks}
    for child, hook in hooks.items():
        child.mask_hook = hook

    def undo() -> None:
        for child, hook in before.items():
            child.mask_hook = hook

    return Handle(undo)


def _part(model: nn.Module, name: str) -> Part:
    """Returns the part of `model` ("self", "encoder", "decoder" or "cross") to which the attention module `name` belongs."""
    parent, _, own = name.rpartition(".")
    if not isinstance(model.get_submodule(parent), nn.TransformerDecoderLayer):
        return "encoder"
    return "cross" if own == "multihead_attn" else "decoder"

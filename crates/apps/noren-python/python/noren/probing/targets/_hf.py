"""Calls an attention implementation of transformers as a model does, with a mask that the functions of transformers make."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from ..._noren import Error
from .._call import Adapter, Answer, Call
from .._reference import Floats
from ._flex import mask_mod
from ._libraries import TorchLibrary
from ._packages import versions
from ._signature import shaped

_EXTRAS = {"softcap": "softcap", "sinks": "s_aux", "bias": "position_bias"}
"""For each of these features, the keyword argument of transformers' attention functions that sets it."""


class HfAdapter(Adapter):
    """An adapter for an attention implementation of transformers: the attention function and the mask function that are
    registered under its name."""

    def __init__(self, implementation: str, device: str = "cpu", title: str | None = None) -> None:
        self.implementation = implementation
        self.name = title or f"hf:{implementation}"
        self.function = _function(implementation)
        self.arrays = TorchLibrary(device)
        self.alignment = "bottom-right"
        self.causal_window = True
        self.versions = versions("transformers", "torch")
        takes = {"causal", "mask_function", "attention_mask", "additive", "window", "scale", "gqa", "gradients"}
        named = set(inspect.signature(self.function).parameters)
        everything = implementation in ("sdpa", "flex_attention")
        takes |= {feature for feature, name in _EXTRAS.items() if everything or name in named}
        if implementation not in ("sdpa", "eager"):
            takes -= {"additive"}  # flex_attention takes a BlockMask; with an array on the CPU, PyTorch 2.15 ends the process
        self.takes = frozenset(takes)

    def run(self, call: Call, cotangent: Floats | None) -> Answer:
        q, k, v = (self.arrays.floats(x, call.dtype) for x in (call.q, call.k, call.v))
        upstream = None if cotangent is None else self.arrays.floats(np.swapaxes(cotangent, 1, 2), call.dtype)
        mask, module, options = self._mask(call), self._module(call), self._options(call)
        scaling = call.q.shape[-1] ** -0.5 if call.scale is None else call.scale

        def attention(*arrays: Any) -> Any:
            return self.function(module, *arrays, mask, dropout=0.0, scaling=scaling, **options)

        out, _, grads = self.arrays.run(attention, lambda result: (result[0], None), (q, k, v), upstream)
        read = np.swapaxes(shaped(self.arrays.numpy(out), np.swapaxes(call.q, 1, 2).shape, "output"), 1, 2)
        return Answer(read, None, tuple(None if grad is None else self.arrays.numpy(grad) for grad in grads))

    def _module(self, call: Call) -> Any:
        """Returns an attention module with the attributes that transformers' attention functions read."""
        import torch

        module = torch.nn.Module().eval()
        module.is_causal = call.causal  # type: ignore[assignment]
        module.num_key_value_groups = call.heads // call.k.shape[1]  # type: ignore[assignment]
        module.layer_idx = 0  # type: ignore[assignment]
        module.config = self._config(call)
        return module

    def _config(self, call: Call) -> Any:
        """Returns a model configuration with the sizes and the window of the call."""
        from transformers import LlamaConfig

        config = LlamaConfig(num_attention_heads=call.heads, num_key_value_heads=call.k.shape[1], head_dim=call.q.shape[-1], num_hidden_layers=1)
        config._attn_implementation = self.implementation
        if call.window is not None:
            config.sliding_window = call.window[0] + 1
        return config

    def _options(self, call: Call) -> dict[str, Any]:
        """Returns the keyword arguments of the attention function, without the mask."""
        found: dict[str, Any] = {}
        if call.softcap is not None:
            found[_EXTRAS["softcap"]] = call.softcap
        if call.sinks is not None:
            found[_EXTRAS["sinks"]] = self.arrays.floats(call.sinks, call.dtype)
        if call.bias is not None:
            found[_EXTRAS["bias"]] = self.arrays.floats(call.bias, call.dtype)
        if call.window is not None:
            found["sliding_window"] = call.window[0] + 1
        return found

    def _mask(self, call: Call) -> Any:
        """Returns the mask that transformers makes for a call."""
        from transformers import masking_utils

        if call.route == "additive" and call.cells is not None:
            return self.arrays.floats(np.where(call.cells, 0.0, -np.inf), call.dtype)
        batch, _, q_len, kv_len = call.shape
        states = self.arrays.floats(np.zeros((batch, q_len, 8)), call.dtype)
        given: dict[str, Any] = {"attention_mask": None}
        if call.route == "attention_mask" and call.cells is not None:
            given["attention_mask"] = self.arrays.plain(np.broadcast_to(call.cells[:, 0, 0], (batch, kv_len)).astype(np.int64))
        elif call.route == "mask_function" and call.cells is not None:
            given["and_mask_function"] = mask_mod(call, self.arrays)
        make: Callable[..., Any]
        if not call.causal:
            if q_len != kv_len:
                given["encoder_hidden_states"] = self.arrays.floats(np.zeros((batch, kv_len, 8)), call.dtype)
            return masking_utils.create_bidirectional_mask(self._config(call), states, **given)
        make = masking_utils.create_causal_mask if call.window is None else masking_utils.create_sliding_window_causal_mask
        return make(self._config(call), states, **{_cache_name(make): self._cache(call)}, **given)

    def _cache(self, call: Call) -> Any:
        """Returns a key-value cache that holds the keys before the first query; None if there are as many queries as keys."""
        past = call.shape[3] - call.shape[2]
        if past <= 0:
            return None
        from transformers import DynamicCache

        cache = DynamicCache()
        cache.update(*(self.arrays.floats(x[:, :, :past], call.dtype) for x in (call.k, call.v)), 0)
        return cache


def _cache_name(make: Callable[..., Any]) -> str:
    """Returns the name of the parameter with which `make`, a mask function of transformers, receives the key-value cache. The
    name depends on the version of transformers."""
    names = inspect.signature(inspect.unwrap(make)).parameters
    return "cache" if "cache" in names else "past_key_values"


def _function(implementation: str) -> Callable[..., Any]:
    """Returns the attention function that transformers has registered under the name `implementation`. Raises `Error` if there
    is none."""
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    if implementation == "eager":
        from transformers.models.llama.modeling_llama import eager_attention_forward

        return eager_attention_forward  # type: ignore[no-any-return]
    known = sorted(ALL_ATTENTION_FUNCTIONS.valid_keys())
    if implementation not in known:
        raise Error(f"transformers has no attention implementation {implementation!r}: give one of eager, {', '.join(known)}")
    return ALL_ATTENTION_FUNCTIONS[implementation]  # type: ignore[no-any-return]

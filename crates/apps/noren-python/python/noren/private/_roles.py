"""Determines for each attention module of a transformers model which tokens its keys are: those of the private text, or others."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Literal
from weakref import WeakKeyDictionary

from torch import nn

from .._noren import Error

Role = Literal["text", "cross", "other"]
"""The keys of an attention call: "text": the tokens of the text with private parts, read by queries of the same text; "cross":
the tokens of this text, read by a decoder; "other": other tokens, such as those of a decoder, an image or another encoder."""

STATES = ("key_value_states", "encoder_hidden_states", "cross_attention_states")
"""The names of the arguments with which cross-attention modules of transformers receive the states of an encoder."""


class Roles:
    """The roles of the attention modules of a model (see `Role`). Hooks on the model observe which states cross-attention
    reads; `close` removes the hooks."""

    def __init__(self, model: Any) -> None:
        self._fixed: WeakKeyDictionary[nn.Module, Role] = WeakKeyDictionary()
        self._across: WeakKeyDictionary[nn.Module, bool] = WeakKeyDictionary()
        from transformers import PreTrainedModel

        config = model.config
        self.encodes = bool(getattr(config, "is_encoder_decoder", False))
        inside = self._encoder(model) if self.encodes else set(model.modules())
        text = type(_text_config(config))
        foreign: set[nn.Module] = set()
        for module in model.modules():
            # A module without a configuration has that of the module around it.
            own = getattr(module, "config", None)
            if module in foreign if own is None else not self.encodes and type(config) is not text and type(own) is not text:
                foreign.update(module.children(), [module])
            self._fixed[module] = "text" if module in inside and module not in foreign else "other"
        self.text = [(name, module) for name, module in model.named_modules() if self._fixed[module] == "text" and module is not model]
        """(name, module) for each module inside the model that computes the tokens of the text."""
        self.readers = [module for module in model.modules() if module in inside and isinstance(module, PreTrainedModel) and (module is model or self._fixed[module] == "text")]
        """The models, among this model and those inside it, that are called with the tokens of the text. A model comes before
        the models inside it."""
        self._hooks = [
            module.register_forward_pre_hook(self._watch(_position(type(module).forward)), with_kwargs=True)
            for module in model.modules()
            if _position(type(module).forward) is not None
        ]

    def _encoder(self, model: Any) -> set[nn.Module]:
        if model.main_input_name != "input_ids":
            raise Error(f"{type(model).__name__} reads {model.main_input_name}, not text, so private text in its decoder is not supported")
        encoder = model.get_encoder()
        if encoder is model:
            raise Error(f"{type(model).__name__} has an encoder and a decoder, but the encoder was not found, so private text cannot be traced through the model")
        return set(encoder.modules())

    def _watch(self, place: tuple[str, int] | None) -> Callable[[nn.Module, tuple[Any, ...], dict[str, Any]], None]:
        assert place is not None
        name, position = place

        def watch(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            given = args[position] if position < len(args) else kwargs.get(name)
            self._across[module] = given is not None

        return watch

    def role(self, module: nn.Module) -> Role:
        """Returns the role of an attention module in the current call."""
        if self._across.get(module, False):
            # The encoder's states are those of the text only if the encoder is a part of the model.
            return "cross" if self.encodes else "other"
        return self._fixed.get(module, "other")

    def close(self) -> None:
        """Removes the hooks that watch cross-attention."""
        for hook in self._hooks:
            hook.remove()


def _text_config(config: Any) -> Any:
    try:
        return config.get_text_config()
    except ValueError:
        raise Error(f"{type(config).__name__} has several text models: give only the model that reads the text") from None


@lru_cache(maxsize=4096)
def _position(forward: Any) -> tuple[str, int] | None:
    """Returns (name, index) of the argument of `forward` that receives the encoder's states; None if `forward` has no such
    argument."""
    names = list(inspect.signature(forward).parameters)[1:]
    return next(((name, names.index(name)) for name in STATES if name in names), None)

"""The part that each attention module of a transformers model has: which tokens are its keys."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Literal
from weakref import WeakKeyDictionary

from torch import nn

from .._noren import Error

Role = Literal["text", "cross", "other"]
"""The keys of an attention call: "text" are the private text's own tokens, read by themselves; "cross" are these tokens, read by a
decoder; "other" are the tokens of a decoder, an image or a foreign encoder."""

STATES = ("key_value_states", "encoder_hidden_states", "cross_attention_states")
"""Arguments of cross-attention modules in transformers that hold the states of an encoder."""


class Roles:
    """The roles of the modules of a model; `close` removes the hooks that watch cross-attention."""

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
        """The modules that compute the text's tokens, with their names."""
        self.readers = [module for module in model.modules() if module in inside and isinstance(module, PreTrainedModel) and (module is model or self._fixed[module] == "text")]
        """The models that are called with the text's tokens, each before those inside it."""
        self._hooks = [
            module.register_forward_pre_hook(self._watch(_position(type(module).forward)), with_kwargs=True)
            for module in model.modules()
            if _position(type(module).forward) is not None
        ]

    def _encoder(self, model: Any) -> set[nn.Module]:
        if model.main_input_name != "input_ids":
            raise Error(f"{type(model).__name__} reads {model.main_input_name}, not text: private text in its decoder is not supported")
        encoder = model.get_encoder()
        if encoder is model:
            raise Error(f"{type(model).__name__} has an encoder and a decoder, but its encoder was not found: private text cannot be traced through it")
        return set(encoder.modules())

    def _watch(self, place: tuple[str, int] | None) -> Callable[[nn.Module, tuple[Any, ...], dict[str, Any]], None]:
        assert place is not None
        name, position = place

        def watch(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            given = args[position] if position < len(args) else kwargs.get(name)
            self._across[module] = given is not None

        return watch

    def role(self, module: nn.Module) -> Role:
        """Returns the role of a module in the attention call that is being computed."""
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
        raise Error(f"{type(config).__name__} has several text models: give the one that reads the text") from None


@lru_cache(maxsize=4096)
def _position(forward: Any) -> tuple[str, int] | None:
    """Returns the name and the index of the argument that holds the encoder's states; None if a module has none."""
    names = list(inspect.signature(forward).parameters)[1:]
    return next(((name, names.index(name)) for name in STATES if name in names), None)

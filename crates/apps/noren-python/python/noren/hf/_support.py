"""Finds the models of transformers that cannot compute their attention with noren. Such a model is refused when it is made."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Hashable
from functools import lru_cache
from typing import Any, cast

from .._noren import Error
from ..torch._function import constant

_OWN = "the model's layers compute attention in their own code, and not through transformers' AttentionInterface"
_READS_MASK = "the model's own code changes the mask, so the mask must be an array"

_JOINS = f"the model's decoder joins the mask of its own keys with the mask of the encoder's keys: {_READS_MASK}"
_INDEXER = f"the model's indexer (a small network) selects the keys of each query: {_READS_MASK}"
_SINKS = "the model's softmax has one sink for each query and head; noren has one for each head"

REASONS = {
    **dict.fromkeys(("axk2", "deepseek_v32", "glm_moe_dsa", "hy_v4", "qwen4_exp", "qwen4_exp_text"), _INDEXER),
    **dict.fromkeys(("inkling2", "inkling2_text", "inkling2_loop", "inkling2_loop_text"), _SINKS),
    **dict.fromkeys(("t5gemma2", "t5gemma2_decoder"), _JOINS),
    "deepseek_v4": f"the model's layers also read keys that summarize several tokens: {_READS_MASK}",
    "doge": f"the model adds learned numbers to masks: {_READS_MASK}",
    "git": "the model's text layers select the attention implementation from a list of their own",
    "mpt": _OWN,
}
"""The model types that use `AttentionInterface` but cannot compute attention with noren, each with the reason. The tests find
missing entries: they try every text architecture of transformers."""

SELECTIONS = frozenset(("block_indices", "indices", "sinks"))
"""The names of tensor arguments with which models of transformers select keys or change scores, and that noren does not know. The tests
compare these names with transformers' source."""


def unsupported(model: Any) -> str | None:
    """Returns the reason why `attn_implementation="noren"` is refused for a model or a model class; None if the model is
    accepted.

    >>> from transformers import BloomForCausalLM, LlamaForCausalLM
    >>> unsupported(BloomForCausalLM)
    "the model's layers compute attention in their own code, and not through transformers' AttentionInterface"
    >>> unsupported(LlamaForCausalLM) is None
    True
    """
    return _reason(model if isinstance(model, type) else type(model))


@lru_cache(maxsize=1024)
def _reason(kind: type) -> str | None:
    config = getattr(kind, "config_class", None)
    if config is None:
        return None
    known = REASONS.get(getattr(config, "model_type", ""))
    if known is not None:
        return known
    # A model that consists of other models has no attention of its own: the other models are checked when they are made.
    if getattr(config, "sub_configs", None):
        return None
    modules = {parent.__module__ for parent in kind.__mro__ if parent.__module__.startswith("transformers.models.")}
    if not modules or any(_mentions_interface(name) for name in modules):
        return None
    return _OWN


@lru_cache(maxsize=1024)
def _mentions_interface(module: str) -> bool:
    """Returns whether the source of a module of transformers mentions `AttentionInterface`. Returns true if the source is not
    available."""
    try:
        return "ALL_ATTENTION_FUNCTIONS" in inspect.getsource(sys.modules[module])
    except (OSError, TypeError):
        return True


def refuse_when_made(names: set[str], prepare: Callable[[Any], None]) -> None:
    """Changes transformers so that models which do not support noren's attention refuse the attention implementations `names`.
    A model refuses when it is made, or when its attention implementation is set.

    `prepare` is called with each model at the same times.
    """
    from transformers import PreTrainedModel

    original = PreTrainedModel.get_correct_attn_implementation
    if getattr(original, "names_of_noren", None) is names:
        return

    def checked(self: Any, requested_attention: str | None, *args: Any, **kwargs: Any) -> Any:
        if requested_attention in names and (reason := unsupported(self)) is not None:
            raise Error(
                f'{type(self).__name__} does not support attn_implementation="{requested_attention}": {reason}. Give "eager" or '
                f'"sdpa"; for a model with several parts, give one name for each part, such as {{"text_config": "{requested_attention}", '
                '"vision_config": "eager"}'
            )
        prepare(self)
        return original(self, requested_attention, *args, **kwargs)

    checked.names_of_noren = names  # type: ignore[attr-defined]
    PreTrainedModel.get_correct_attn_implementation = checked


def check_arguments(module: Any, given: dict[str, Any]) -> None:
    """Raises `Error` if a layer gives the attention a tensor that noren does not know and that an attention function of transformers
    reads. Other arguments, such as columns of a data set, are ignored, as eager attention ignores them."""
    import torch

    read = _read(type(module))
    unknown = [name for name, value in given.items() if isinstance(value, torch.Tensor) and name in read]
    if unknown:
        raise Error(
            f"{type(module).__name__} passes to its attention {', '.join(unknown)}, which noren does not know: without this argument, outputs "
            'would be wrong; use attn_implementation="eager"'
        )


@constant
def _read(kind: type) -> tuple[str, ...]:
    return tuple(SELECTIONS | _read_by_eager(cast(Hashable, kind)))


@lru_cache(maxsize=1024)
def _read_by_eager(kind: Any) -> frozenset[str]:
    """Returns the names of the parameters of the eager attention functions that are in the modules of an attention class and of its
    parent classes."""
    sources = [vars(sys.modules[parent.__module__]) for parent in kind.__mro__ if parent.__module__ in sys.modules]
    functions = {value for source in sources for name, value in source.items() if name.endswith("eager_attention_forward") and callable(value)}
    return frozenset(name for function in functions for name, found in inspect.signature(function).parameters.items() if found.kind is not found.VAR_KEYWORD)

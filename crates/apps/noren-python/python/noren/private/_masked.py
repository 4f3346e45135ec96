"""Masks that hide private tokens in every attention layer of a transformers model."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from threading import Lock
from typing import Any, cast
from weakref import WeakKeyDictionary

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from .. import hf
from .._noren import Error
from ..arguments._given import short
from ..hf._calls import DEFAULTS, SETTING, Setting
from ..hf._paths import other_paths
from ._encode import Encoded
from ._policy import Hide, Policy, check_policy
from ._roles import Roles
from ._state import Made, State, converted
from ._tokens import Tokens, tokens_of

NAME = "noren_private"
"""The name under which the attention with policies is registered in transformers."""
_STATES: WeakKeyDictionary[nn.Module, State] = WeakKeyDictionary()
"""For each model that computes with a policy at this moment: the state of its computation."""
_LOCK = Lock()


def _make_mask(**arguments: Any) -> Made:
    return converted(Made, hf.make_mask(**arguments))


def _attend(module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Any, **others: Any) -> tuple[Tensor, Tensor | None]:
    state = _STATES.get(module)
    if state is None:
        raise Error(
            f"{type(module).__name__} computes with the masks of nr.private, but it is not a module of the model given to nr.private.masked: it belongs to a copy of the model (such as those of DataParallel), or to another model with the same configuration object"
        )
    mask = state.change(module, query, key, attention_mask, others.get("is_causal"))
    return hf.attention_forward(module, query, key, value, mask, **others)


@cache
def _register() -> None:
    from transformers import AttentionInterface
    from transformers.masking_utils import AttentionMaskInterface

    hf.register(NAME)
    AttentionInterface.register(NAME, cast(Any, torch.compiler).disable(_attend))
    AttentionMaskInterface.register(NAME, cast(Any, torch.compiler).disable(_make_mask))


def model_of(model: Any) -> Any:
    """Returns the transformers model of a module: the module itself, or the outermost transformers model inside it. Returns
    None if there is none.

    Raises `Error` if the module contains several outermost models.
    """
    from transformers import PreTrainedModel

    if not isinstance(model, nn.Module):
        return None
    models = [part for part in model.modules() if isinstance(part, PreTrainedModel)]
    if not models:
        return None
    inside = set(models[0].modules())
    other = next((part for part in models if part not in inside), None)
    if other is not None:
        raise Error(f"`model` is {type(model).__name__}, which contains {type(models[0]).__name__} and {type(other).__name__}: give one of these models")
    return models[0]


@contextmanager
def masked(model: Any, tokens: Tokens | Encoded, policy: Policy | None = None) -> Iterator[State]:
    """Inside a `with` statement, a transformers model computes its attention with a policy: in forward, `generate` and training
    steps.

    `tokens` are the private tokens of the batch that the model computes: the result of `encode` or `locate`. `policy` is
    `Hide()` [default], `Clearance` or `Heads`; it changes the mask of every layer that reads the text, cross-attention of a
    decoder included. Generated tokens are public. A model that uses another attention implementation uses noren inside the
    statement, in all threads.

    The output of a private token depends on the token's content: release only outputs that `policy.released(tokens)` selects,
    as `pool` does. Compute the text, its continuation and the backward pass inside one statement: keys and values of a cache
    from outside contain private text.

    If `tokens` is the result of `encode`, its public tokens are compared with those that the model computes, so a statement is
    for one batch only.

    Raises `Error` for a model whose attention cannot be computed with noren, for a model that mixes tokens without attention
    (convolutions, recurrent layers), for a cache and states of an encoder that were computed outside of the statement, for tokens of another text, and for a
    model that already computes with a policy.

    >>> with masked(model, encoded):                               # doctest: +SKIP
    ...     outputs = model(**encoded.inputs)
    """
    ids = tokens.ids if isinstance(tokens, Encoded) else None
    with computing(model, tokens, policy, strict=True, ids=ids) as state:
        yield state
        length = state.tokens.shape[1]
        if 0 < state.longest < length:
            raise Error(f"the model computed {state.longest} tokens, but the private tokens belong to texts of {length} tokens: give the tokens of the batch that the model computes")


@contextmanager
def computing(model: Any, tokens: Any, policy: Policy | None, *, strict: bool, ids: NDArray[np.int64] | None = None) -> Iterator[State]:
    """Inside a `with` statement, a model computes with a policy, as in `masked`. If `strict` is false, a model is accepted even
    if private text reaches its outputs by other paths than attention. `ids` are the token ids of the text, or None."""
    known = tokens_of(tokens)
    rule = check_policy(Hide() if policy is None else policy)
    inner = model_of(model)
    if inner is None:
        raise TypeError(f"`model` is {short(model)}: give a model of transformers; for other models, give policy.mask(mask) and policy.facts(tokens) to nr.attention")
    _refuse_virtual_tokens(model)
    modules = list(inner.modules())
    with _LOCK:
        if any(module in _STATES for module in modules):
            raise Error("the model already computes with a policy of nr.private.masked: leave that `with` statement first")
        roles = Roles(inner)
        state = State(known, rule, roles, {module: name for name, module in inner.named_modules()}, strict, ids)
        _STATES.update({module: state for module in modules})
    handles: list[Any] = []
    try:
        paths = other_paths(inner.config, roles.text) if strict else []
        if paths:
            raise Error(
                f"{type(inner).__name__} mixes tokens without attention in {len(paths)} place(s), such as {paths[0]}, where masks cannot hide private text. nr.private.prove shows the leaks"
            )
        with _attention(inner, roles.text):
            handles += state.hooks(inner)
            yield state
    finally:
        for module in modules:
            _STATES.pop(module, None)
        for handle in handles:
            handle.remove()
        roles.close()


def _refuse_virtual_tokens(model: nn.Module) -> None:
    """Raises `Error` if the model has adapters that add tokens to the text (prompt learning)."""
    for part in model.modules():
        configs = getattr(part, "peft_config", None)
        if isinstance(configs, dict) and any(getattr(config, "is_prompt_learning", False) for config in configs.values()):
            raise Error(f"{type(part).__name__} adds virtual tokens to the text, so private text cannot be traced through it: give the model without prompt learning")


@contextmanager
def _attention(model: Any, text: list[tuple[str, nn.Module]]) -> Iterator[None]:
    """Inside a `with` statement, the attention modules of the model call `_attend`, which applies the policy. `text` has (name,
    module) for each module that computes the tokens of the text."""
    from transformers import PreTrainedModel

    _register()
    configs = _configs(model)
    before = [config._attn_implementation_internal for config in configs]
    of_text = {id(module.config) for _, module in [("", model), *text] if hasattr(module, "config")}
    settings: list[tuple[Any, Any]] = []
    try:
        if all(name in hf.NAMES for config, name in zip(configs, before, strict=True) if id(config) in of_text):
            settings = _keep_defaults(model)
            for config, name in zip(configs, before, strict=True):
                if name in hf.NAMES:
                    config._attn_implementation_internal = NAME
        else:
            for part in model.modules():
                reason = hf.unsupported(part) if isinstance(part, PreTrainedModel) else None
                if reason is not None:
                    raise Error(f"{type(part).__name__} cannot compute its attention with noren: {reason}. Private text cannot be hidden in this model")
            model.set_attn_implementation(NAME)
            if model.config._attn_implementation != NAME:
                raise Error(f"{type(model).__name__} does not allow its attention to be replaced, so private text cannot be hidden in this model")
        yield
    finally:
        for config, name in zip(configs, before, strict=True):
            config._attn_implementation_internal = name
        for part, setting in settings:
            setattr(part, SETTING, setting)


def _keep_defaults(model: Any) -> list[tuple[Any, Any]]:
    """Makes sure that models whose attention is replaced still use the default mask of `noren.hf.register`. Returns (model,
    previous setting) for each changed model, to restore the settings."""
    from transformers import PreTrainedModel

    before: list[tuple[Any, Any]] = []
    inside: set[nn.Module] = set()
    for part in model.modules():
        if not isinstance(part, PreTrainedModel) or part in inside:
            continue
        default = DEFAULTS.get(part.config._attn_implementation)
        if default is not None and getattr(part, SETTING, None) is None:
            before.append((part, None))
            setattr(part, SETTING, Setting(part, default))
            inside |= set(part.modules())
    return before


def _configs(model: Any) -> list[Any]:
    """Returns the configurations of the model and of the models inside it, each once."""
    found = {id(config): config for module in model.modules() if hasattr(config := getattr(module, "config", None), "_attn_implementation_internal")}
    pending = list(found.values())
    while pending:
        config = pending.pop()
        for name in getattr(config, "sub_configs", None) or ():
            inner = getattr(config, name, None)
            if inner is not None and id(inner) not in found:
                found[id(inner)] = inner
                pending.append(inner)
    return [config for config in found.values() if hasattr(config, "_attn_implementation_internal")]

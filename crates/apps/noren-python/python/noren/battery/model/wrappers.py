"""Finds the model inside wrappers: DistributedDataParallel, DataParallel, torch.compile or `forward(**batch)`. `Functions` changes
the functions that the model calls."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

TOKENS = ("input_ids", "inputs_embeds", "tokens", "ids", "src", "x")
"""The usual names of the parameter with which a model receives its tokens."""
_INSIDE = ("module", "_fsdp_wrapped_module")
_ANY = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def parameters(function: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    """Returns the parameters of a function or of a module's `forward`, by name; empty if Python cannot determine them."""
    try:
        return inspect.signature(function.forward if isinstance(function, nn.Module) else function).parameters
    except (TypeError, ValueError):
        return {}


def passes_on(function: Callable[..., Any]) -> bool:
    """Returns true if a function only passes on its arguments without naming them, as `forward(**batch)` or `forward(*inputs,
    extra=None, **kwargs)`."""
    found = parameters(function)
    others = [p for p in found.values() if p.kind not in _ANY]
    return len(others) < len(found) and not set(TOKENS) & set(found) and all(p.default is not p.empty for p in others)


def inside(module: nn.Module) -> nn.Module:
    """Returns the module inside wrappers: the first one whose `forward` names its parameters. Returns `module` itself if no
    such module exists."""
    found, seen = module, {id(module)}
    while True:
        child = _child(found)
        if child is None or id(child) in seen:
            return found if not passes_on(found) else module
        seen.add(id(child))
        found = child


def _child(module: nn.Module) -> nn.Module | None:
    compiled = getattr(module, "_orig_mod", None)
    if isinstance(compiled, nn.Module):
        return compiled
    if not passes_on(module):
        return None
    for name in _INSIDE:
        child = getattr(module, name, None)
        if isinstance(child, nn.Module):
            return child
    children = list(module.children())
    named = [child for child in children if not passes_on(child)] if len(children) > 1 else children
    return named[0] if len(named) == 1 else max(named, key=_size, default=None)


def _size(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


def compiled(model: Any) -> bool:
    """Returns true if torch.compile was applied to `model` or to a module within it."""
    if hasattr(model, "_torchdynamo_orig_callable"):
        return True
    parts = model.modules() if isinstance(model, nn.Module) else ()
    return any(hasattr(m, "_orig_mod") or getattr(m, "_compiled_call_impl", None) is not None for m in parts)


Positional = tuple[Any, ...]
Handle = Callable[[Callable[..., Any], Positional, dict[str, Any]], Any]
"""A function of a function of PyTorch, its arguments and its keyword arguments, which returns the result of the call."""


class Functions(TorchFunctionMode):
    """A mode (for a `with` block) in which `handle` computes each call of a function of PyTorch."""

    def __init__(self, handle: Handle) -> None:
        super().__init__()
        self.handle = handle

    def __torch_function__(self, func: Callable[..., Any], types: Any, args: Positional = (), kwargs: dict[str, Any] | None = None) -> Any:
        return self.handle(func, args, kwargs or {})


def eagerly() -> AbstractContextManager[Any]:
    """Returns a context in which compiled code runs uncompiled."""
    set_stance = getattr(torch.compiler, "set_stance", None)
    return nullcontext() if set_stance is None else set_stance("force_eager")  # type: ignore[no-any-return]


def bound_arguments(module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the arguments of a call of `module` by name. If `module` is a wrapper, the names are the parameters of the module
    inside."""
    given = dict(kwargs)
    names = [
        name
        for name, p in parameters(inside(module)).items()
        if p.kind in (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    ]
    given |= dict(zip(names, args, strict=False))
    return given

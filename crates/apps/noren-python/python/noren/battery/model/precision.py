"""Runs a model in float64, for any dtype of its weights and for any casts in its code.

In float64, rounding errors are about eight orders of magnitude smaller than in float32, but the influence of one token on
another is as large. So a difference that remains in float64 is a leak. Converting the weights is not enough: norms, rotary
tables and softmax of many models cast to float32 explicitly, so those casts are changed too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from .wrappers import Functions, Positional, eagerly

NARROW = (torch.float32, torch.float16, torch.bfloat16)
_CASTS = {Tensor.float, Tensor.half, Tensor.bfloat16}


def _double(func: Callable[..., Any], args: Positional, kwargs: dict[str, Any]) -> Any:
    """Calls a function so that new tensors of floats become float64, and casts to narrower floats become casts to float64."""
    if func in _CASTS:
        return args[0].double()
    return func(*map(_widened, args), **{name: _widened(value) for name, value in kwargs.items()})


def _widened(value: Any) -> Any:
    return torch.float64 if type(value) is torch.dtype and value in NARROW else value


@contextmanager
def in_double(module: nn.Module | None) -> Iterator[None]:
    """Converts weights, buffers and computations of `module` to float64 within the `with` block; afterwards all bits are as
    before.

    The original data is kept and restored, not converted back, so nothing is rounded. The tensor objects stay the same, with
    new data, so functions that refer to the module compute in float64 too.
    """
    kept: list[tuple[Tensor, Tensor]] = []
    before = torch.get_default_dtype()
    try:
        if module is not None:
            seen: set[int] = set()
            for tensor in (*module.parameters(), *module.buffers()):
                if id(tensor) not in seen and tensor.dtype in NARROW:
                    seen.add(id(tensor))
                    kept.append((tensor, tensor.data))
                    tensor.data = tensor.data.double()
        torch.set_default_dtype(torch.float64)
        with Functions(_double):
            yield
    finally:
        torch.set_default_dtype(before)
        for tensor, data in kept:
            tensor.data = data


def _without_dropout(func: Callable[..., Any], args: Positional, kwargs: dict[str, Any]) -> Any:
    """Calls a function without dropout: `dropout` and its variants, and `dropout_p` of attention."""
    if func in _DROPOUTS:
        return args[0] if args else kwargs["input"]
    if func is functional.multi_head_attention_forward:  # this function calls the functions below outside of the mode
        return func(*args, **kwargs | {"training": False})
    if func is functional.scaled_dot_product_attention:
        if len(args) > 4:
            args = (*args[:4], 0.0, *args[5:])
        return func(*args, **(kwargs | {"dropout_p": 0.0} if len(args) <= 4 else kwargs))
    return func(*args, **kwargs)


_DROPOUTS = {
    torch.dropout, torch.alpha_dropout, torch.feature_dropout, torch.feature_alpha_dropout, functional.dropout,
    functional.dropout1d, functional.dropout2d, functional.dropout3d, functional.alpha_dropout, functional.feature_alpha_dropout,
}  # fmt: skip


class Selections(Functions):
    """A mode (for a `with` block) whose `met` becomes true if an operation selects elements by comparison, such as experts by
    their scores (`topk`, `argmax`, `sort`).
    """

    def __init__(self) -> None:
        super().__init__(self._look)
        self.met = False

    def _look(self, func: Callable[..., Any], args: Positional, kwargs: dict[str, Any]) -> Any:
        if func in _SELECTIONS or (func in _EXTREMES and not _of_all(args, kwargs)):
            self.met |= any(isinstance(value, Tensor) and value.is_floating_point() for value in (*args, *kwargs.values()))
        return func(*args, **kwargs)


_SELECTIONS = {torch.topk, Tensor.topk, torch.sort, Tensor.sort, torch.argsort, Tensor.argsort, torch.multinomial, Tensor.multinomial}
_SELECTIONS |= {torch.kthvalue, Tensor.kthvalue, torch.bucketize, torch.searchsorted, torch.round, Tensor.round}
_SELECTIONS |= {torch.argmax, Tensor.argmax, torch.argmin, Tensor.argmin, torch.median, Tensor.median, torch.mode, Tensor.mode}
_EXTREMES = {torch.max, Tensor.max, torch.min, Tensor.min}
"""Functions that return the indices of the extreme elements only if they are called with a dimension: `x.max(0)` returns values
and indices, `x.max()` returns a value."""


def _of_all(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Returns true if `max` or `min` is called without a dimension: on a whole tensor, or on two tensors."""
    return "dim" not in kwargs and (len(args) < 2 or isinstance(args[1], Tensor))


@contextmanager
def at_rest(module: nn.Module | None, training: bool, own_modes: bool = False) -> Iterator[None]:
    """Turns off gradients, dropout and compiled code within the `with` block, and sets training or evaluation mode.

    Afterwards the modes are restored, and in training mode also the buffers, such as running statistics. If `own_modes` is
    true, `training` is not used: each module keeps its mode, for example frozen norms in a model in training.
    """
    modes = [] if module is None else [(m, m.training) for m in module.modules()]
    training = any(mode for _, mode in modes) if own_modes else training
    buffers = [] if module is None or not training else [(b, b.detach().clone()) for b in module.buffers()]
    try:
        for m, mode in modes:
            m.training = (mode if own_modes else training) and not isinstance(m, nn.modules.dropout._DropoutNd)
        with ExitStack() as stack:
            stack.enter_context(torch.no_grad())
            stack.enter_context(eagerly())
            if training:
                stack.enter_context(Functions(_without_dropout))
            yield
    finally:
        for m, mode in modes:
            m.training = mode
        for buffer, copy in buffers:
            buffer.data.copy_(copy)


def dtype_of(module: nn.Module | None) -> torch.dtype:
    """Returns the dtype of the largest number of weights of a module; PyTorch's default dtype if the module has no weights."""
    counts: dict[torch.dtype, int] = {}
    for p in () if module is None else module.parameters():
        if p.is_floating_point():
            counts[p.dtype] = counts.get(p.dtype, 0) + p.numel()
    return max(counts, key=lambda d: counts[d], default=torch.get_default_dtype())


def device_of(module: nn.Module | None) -> torch.device:
    """Returns the device of the first weight of a module; the CPU if the module has no weights."""
    first = None if module is None else next(module.parameters(), None)
    return torch.device("cpu") if first is None else first.device

"""The mask of each single layer, measured by changing one token of that layer's input.

The effect of a change spreads from layer to layer, so the final outputs do not show every fault: if one layer lacks its window,
the tokens that it reads may also be reached through the other layers; and if one layer has no window by design, errors in the
windows of other layers do not show. Here each layer gets its input from a first pass, with one token changed. The output rows
that change form one column of the layer's mask. One pass measures, for every layer, one column in each batch row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..arguments._given import ranges
from .intent import Bits, Intent
from .model.subject import Call
from .rounding import Rounding
from .trace import recorded
from .trial import LEAK


@dataclass
class Layer:
    """A layer of a stack. Its input and its output have the shape `[batch, length, width]`."""

    name: str
    module: nn.Module
    stream: str
    index: int


def find_layers(module: nn.Module, call: Call, run: Callable[[Call], Any]) -> list[Layer]:
    """Finds the layers in the outermost stacks of a module, by one pass that records inputs and outputs.

    The streams of the call must have different lengths.
    """
    with recorded(module) as recorder:
        run(call)
    streams = {stream.length: name for name, stream in call.streams().items()}
    found: list[Layer] = []
    stacks: list[str] = []
    for name, child in module.named_modules():
        if not isinstance(child, nn.ModuleList) or any(name.startswith(stack + ".") for stack in stacks):
            continue
        layers = []
        for index, block in enumerate(child):
            runs = recorder.runs.get(f"{name}.{index}", [])
            if len(runs) == 1 and _through(runs[0].inputs, runs[0].outputs):
                layers.append(Layer(f"{name}.{index}", block, streams.get(runs[0].inputs[0].shape[1], ""), index))
        if layers and len(layers) == len(child) and all(layer.stream for layer in layers):
            stacks.append(name)
            found += layers
    return found


def _through(inputs: list[Tensor], outputs: list[Tensor]) -> bool:
    return bool(inputs and outputs) and inputs[0].dim() == 3 and inputs[0].shape == outputs[0].shape


@dataclass
class Column:
    """A measurement of one layer: how much each output of the layer changes if the token with index `token` in its input is
    changed."""

    layer: Layer
    token: int
    gaps: Tensor
    """`[length]`: the change of the output at each position, as a fraction of the layer's largest output."""


def columns(layers: list[Layer], call: Call, tokens: Sequence[int], run: Callable[[Call], Any]) -> list[Column]:
    """Changes token `tokens[r]` in batch row `r` of every layer's input. Returns one `Column` for each layer and token: the
    changes of all outputs of the layer in that batch row.

    All layers of a stream are measured in one pass.
    """
    inputs: dict[str, Tensor] = {}
    before: dict[str, Tensor] = {}
    gaps: dict[str, Tensor] = {}
    rows = torch.arange(len(tokens))

    def watch(layer: Layer, disturb: bool, hooks: ExitStack) -> None:
        def enter(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
            if not disturb:
                inputs[layer.name] = _hidden(args, kwargs).detach().clone()
                return args, kwargs
            changed = inputs[layer.name].clone()
            signs = torch.where(torch.arange(changed.shape[-1]) % 2 == 0, 1.0, -0.5).to(changed)
            changed[rows, list(tokens)] += changed[rows, list(tokens)].abs().mean(-1, keepdim=True) * signs
            return _with_hidden(args, kwargs, changed)

        def leave(_: nn.Module, args: Any, out: Any) -> None:
            out = (out if isinstance(out, Tensor) else out[0]).detach()
            if not disturb:
                before[layer.name] = out
                return
            a = before.pop(layer.name).double()
            apart = torch.nan_to_num((a - out.double()).abs().amax(2), nan=torch.inf)
            gaps[layer.name] = (apart / a.abs().amax((1, 2)).clamp(min=1e-30)[:, None]).cpu()

        hooks.enter_context(layer.module.register_forward_pre_hook(enter, with_kwargs=True))
        hooks.enter_context(layer.module.register_forward_hook(leave))

    for disturb in (False, True):
        with ExitStack() as hooks:
            for layer in layers:
                watch(layer, disturb, hooks)
            run(call)
    return [Column(layer, token, gaps[layer.name][row]) for layer in layers for row, token in enumerate(tokens)]


def _hidden(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    """Returns the input of a layer: the first argument that is a tensor with three axes."""
    return next(value for value in (*args, *kwargs.values()) if isinstance(value, Tensor) and value.dim() == 3)


def _with_hidden(args: tuple[Any, ...], kwargs: dict[str, Any], value: Tensor) -> tuple[tuple[Any, ...], dict[str, Any]]:
    old = _hidden(args, kwargs)
    return tuple(value if a is old else a for a in args), {k: value if v is old else v for k, v in kwargs.items()}


def against(intent: Intent, column: Column, own: Column | None, depth: int, rounding: Rounding) -> str | None:
    """Returns a sentence that lists the layer's outputs which contradict its mask: outputs that change although the mask
    forbids them to read the changed token, and outputs that do not change although the mask allows it. Returns None if no
    output contradicts the mask. `depth` is the number of layers of the stack.

    `column` was measured in float64. `own`, the same measurement in the model's dtype, is used only if float64 shows no fault.
    """
    layer, length = column.layer, len(column.gaps)
    cells: Bits = intent.cells(layer.stream, layer.index, length, depth)
    allowed = torch.from_numpy(cells[:, column.token].copy())
    allowed[column.token] = True
    others = allowed.clone()
    others[column.token] = False
    leaks, deaf = (column.gaps > LEAK) & ~allowed, (column.gaps == 0) & others
    only = ""
    if own is not None and not leaks.any() and not deaf.any():
        leaks = (own.gaps > (rounding.bound if rounding.selects else 0.0)) & ~allowed
        deaf = (column.gaps - own.gaps > rounding.bound) & others & (not rounding.selects)
        only = f" in {rounding.name}, but not in float64"
    if not leaks.any() and not deaf.any():
        return None
    said: list[str] = []
    token = column.token
    if leaks.any():
        said.append(f"token {token} of the layer's input reaches {_runs(leaks)}, which may not read this token")
    if deaf.any():
        said.append(f"token {token} of the layer's input does not reach {_runs(deaf)}, which should read this token")
    mask = intent.masks(layer.stream, depth)[layer.index]
    return f"`{layer.name}`{only}: {', and '.join(said)} (declared: {mask.at_layer(layer.index)})"


def _runs(marks: Tensor) -> str:
    """Formats the outputs that are true in `marks` as ranges without their end: `outputs 3..7, 9` for 3, 4, 5, 6 and 9."""
    said = [f"{run.start}..{run.stop}" if len(run) > 1 else str(run.start) for run in ranges(marks.numpy())]
    return f"output{'s' * (int(marks.sum()) > 1)} " + ", ".join(said[:4]) + (", ..." if len(said) > 4 else "")

"""What each layer reads by itself: in a pass with every layer's input put back but for one token, what moves is its mask.

The effect of a change grows from layer to layer, so that a window lost in one layer hides behind others, and all windows
behind one layer that sees everything. Here each layer is given the input that it had in the base pass, with one token of it
disturbed: the rows of its output that move are a column of its mask. One pass shows that column of all layers.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from .intent import Bits, Intent
from .subject import Call
from .trace import recorded
from .trial import LEAK


@dataclass
class Layer:
    """A block of a stack, which takes and returns `[batch, length, width]`."""

    name: str
    module: nn.Module
    stream: str
    index: int


def find_layers(module: nn.Module, call: Call, run: Callable[[Call], Any]) -> list[Layer]:
    """The outermost stacks of blocks, by a pass that shows what goes through them. Lengths of streams must differ."""
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
    """What moved in a layer when one token of its input was disturbed."""

    layer: Layer
    token: int
    moved: list[int]
    still: list[int]
    """Rows in which not a bit moved."""


def columns(layers: list[Layer], call: Call, token: int, run: Callable[[Call], Any]) -> list[Column]:
    """Disturbs a token of every layer's input, all layers of a stream in one pass."""
    inputs: dict[str, Tensor] = {}
    before: dict[str, Tensor] = {}
    after: dict[str, Tensor] = {}

    def watch(layer: Layer, into: dict[str, Tensor], disturb: bool) -> ExitStack:
        def enter(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
            if not disturb:
                inputs[layer.name] = _hidden(args, kwargs).detach().clone()
                return args, kwargs
            changed = inputs[layer.name].clone()
            signs = torch.where(torch.arange(changed.shape[-1]) % 2 == 0, 1.0, -0.5).to(changed)
            changed[:, token] += changed[:, token].abs().mean() * signs
            return _with_hidden(args, kwargs, changed)

        def leave(_: nn.Module, args: Any, out: Any) -> None:
            into[layer.name] = (out if isinstance(out, Tensor) else out[0]).detach()

        handles = ExitStack()
        handles.callback(layer.module.register_forward_pre_hook(enter, with_kwargs=True).remove)
        handles.callback(layer.module.register_forward_hook(leave).remove)
        return handles

    for into, disturb in ((before, False), (after, True)):
        with ExitStack() as stack:
            for layer in layers:
                stack.enter_context(watch(layer, into, disturb))
            run(call)
    found = []
    for layer in layers:
        a, b = before[layer.name], after[layer.name]
        gaps = (a - b).abs().amax((0, 2)) / max(float(a.abs().max()), 1e-30)
        moved = (gaps > LEAK).nonzero().flatten().tolist()
        found.append(Column(layer, token, moved, (gaps == 0).nonzero().flatten().tolist()))
    return found


def _hidden(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    """The input of a block: its first tensor of three axes."""
    return next(value for value in (*args, *kwargs.values()) if isinstance(value, Tensor) and value.dim() == 3)


def _with_hidden(args: tuple[Any, ...], kwargs: dict[str, Any], value: Tensor) -> tuple[tuple[Any, ...], dict[str, Any]]:
    old = _hidden(args, kwargs)
    return tuple(value if a is old else a for a in args), {k: value if v is old else v for k, v in kwargs.items()}


def against(intent: Intent, column: Column, depth: int, length: int) -> str | None:
    """What is wrong with a column, in a sentence; None if it is as declared."""
    layer = column.layer
    cells: Bits = intent.cells(layer.stream, layer.index, length, depth)
    allowed = {i for i in range(length) if cells[i, column.token]} | {column.token}
    leaks = sorted(set(column.moved) - allowed)
    deaf = sorted((allowed - {column.token}) & set(column.still))
    if not leaks and not deaf:
        return None
    said = f"`{layer.name}`: token {column.token} of its input "
    parts = [f"reaches {_runs(leaks)}, which may not read it"] if leaks else []
    parts += [f"does not reach {_runs(deaf)}, which should read it"] if deaf else []
    mask = intent.masks(layer.stream, depth)[layer.index]
    return said + " and ".join(parts) + f" (declared: {mask.at_layer(layer.index)})"


def _runs(rows: list[int]) -> str:
    """`outputs 3..7, 9`, half open as noren's ranges are."""
    found: list[list[int]] = []
    for row in rows:
        if found and found[-1][1] == row:
            found[-1][1] = row + 1
        else:
            found.append([row, row + 1])
    said = [f"{a}..{b}" if b - a > 1 else str(a) for a, b in found]
    return f"output{'s' * (len(rows) > 1)} " + ", ".join(said[:4]) + (", ..." if len(said) > 4 else "")

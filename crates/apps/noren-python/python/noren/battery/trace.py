"""Finds the first module whose outputs differ between two passes that must be equal."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from .model.subject import Call
from .trial import LEAK, Cells, Trial


@dataclass
class Record:
    """The inputs and outputs of one execution of one module."""

    name: str
    module: nn.Module
    inputs: list[Tensor]
    outputs: list[Tensor]


@dataclass
class Recorder:
    """A recording of one pass: the inputs and outputs of every execution of every module. A module may be executed several
    times in a pass.
    """

    parts: int = 1
    """The number of calls of the model in the pass. The tensors of a module from these calls are joined along the sequence."""
    runs: dict[str, list[Record]] = field(default_factory=dict)

    def records(self) -> list[tuple[str, Record]]:
        """Returns (key, record) pairs. The key is the module's name and the index of its execution: `layers.0#1` is the second
        execution. Equal keys identify the same execution in both compared passes. If the pass has several calls of the model,
        their tensors are joined along the sequence.
        """
        found = []
        for name, runs in self.runs.items():
            repeats = max(1, len(runs) // self.parts)
            for turn in range(repeats):
                pieces = runs[turn::repeats] if len(runs) % self.parts == 0 else runs[turn : turn + 1]
                found.append((f"{name}#{turn}", _join(pieces)))
        return found


def _join(pieces: list[Record]) -> Record:
    first = pieces[0]
    if len(pieces) == 1:
        return first

    def along(of: Callable[[Record], list[Tensor]]) -> list[Tensor]:
        columns = zip(*(of(piece) for piece in pieces), strict=False)
        return [torch.cat(c, 1) for c in columns if len({(t.shape[0], t.shape[2:]) for t in c}) == 1]

    return Record(first.name, first.module, along(lambda r: r.inputs), along(lambda r: r.outputs))


def flat(value: Any) -> Iterator[Tensor]:
    """Yields the tensors with two or more axes in `value`: a tensor, or nested tuples, lists and mappings."""
    if isinstance(value, Tensor):
        if not value.is_nested and value.dim() >= 2:
            yield value
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from flat(item)
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from flat(item)


@contextmanager
def recorded(module: nn.Module, parts: int = 1) -> Iterator[Recorder]:
    """Records, within the `with` block, the inputs and outputs of every module that runs."""
    recorder = Recorder(parts)

    def hook(name: str) -> Callable[..., None]:
        def keep(child: nn.Module, args: Any, kwargs: Any, out: Any) -> None:
            record = Record(name, child, [t.detach() for t in flat((args, kwargs))], [t.detach() for t in flat(out)])
            recorder.runs.setdefault(name, []).append(record)

        return keep

    with ExitStack() as hooks:
        for name, child in module.named_modules():
            hooks.enter_context(child.register_forward_hook(hook(name), with_kwargs=True))
        yield recorder


def first_to_differ(module: nn.Module, trial: Trial, run: Callable[[Call], Any]) -> str | None:
    """Returns the first module with equal inputs in both passes of a trial and different outputs, as text for the report. Only
    the places that the trial compares count.

    Returns None if no such module exists.
    """
    recorders = []
    for call in (trial.base, trial.other):
        with recorded(module, max(1, len(call.splits))) as recorder:
            run(call)
        recorders.append(recorder)
    there = dict(recorders[1].records())
    agreed = None
    for key, record in recorders[0].records():
        other = there.get(key)
        if other is None:
            continue
        out = _differs(trial, record.outputs, other.outputs)
        if out and not _differs(trial, record.inputs, other.inputs):
            if not record.name:
                return f"the code of the model's own forward after the module `{agreed}`" if agreed else "the model's own forward"
            return f"`{record.name}` ({type(record.module).__name__})" + _heads(trial, record, recorders[0], recorders[1])
        agreed = record.name if out is False else agreed
    return None


def _differs(trial: Trial, base: list[Tensor], other: list[Tensor]) -> bool | None:
    """Compares each tensor of `base` with the tensor of `other` that has the same index in the list. Returns true if they
    differ at the places that the trial compares, None if no tensors can be compared.
    """
    compared = [gap for a, b in zip(base, other, strict=False) if (gap := _gap(trial, a, b)) is not None]
    return any(gap > LEAK for gap in compared) if compared else None


def _gap(trial: Trial, a: Tensor, b: Tensor) -> float | None:
    """Returns the largest difference between `a` and `b` at the places that the trial compares, as a fraction of the largest
    entry of `a` there. Returns None if the shapes do not fit the model's sequences (see `_at`).
    """
    pair = _at(trial, a, b)
    if pair is None or not pair[0].numel():
        return None
    x, y = (t.double() for t in pair)
    gap = float(torch.nan_to_num((x - y).abs(), nan=torch.inf).max())
    return gap / max(float(torch.nan_to_num(x.abs()).max()), 1e-30)


def _at(trial: Trial, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor] | None:
    """`a` is a tensor of the first pass, `b` the corresponding tensor of the second pass. Returns the values of both at the
    places that the trial compares. Returns None if their shapes do not fit the model's sequences.

    Tensors are `[batch, length, ...]`, or `[batch, channels, length]` as in convolutions.
    """
    streams, others = trial.base.streams(), trial.other.streams()
    for name, stream in streams.items():
        cells: Cells | None = trial.cells.get(name)
        if cells is None:
            continue
        sizes, other = (stream.batch, stream.length), (others[name].batch, others[name].length)
        if (a.shape[:2], b.shape[:2]) == (sizes, other):
            return cells.of(a, b)
        if a.dim() == b.dim() == 3 and (a.shape[::2], b.shape[::2]) == (sizes, other):
            return cells.of(a.transpose(1, 2), b.transpose(1, 2))
    pooled = trial.cells.get("pooled")
    if pooled is not None and a.dim() == b.dim() == 2 and (len(a), len(b)) == (trial.base.main.batch, trial.other.main.batch):
        return a[pooled.rows], b[pooled.other_rows]
    return None


def _heads(trial: Trial, culprit: Record, base: Recorder, other: Recorder) -> str:
    """Returns text such as `, head 2 of 8` with the heads whose values differ between the two passes. The text is empty if no
    heads are found or if all heads differ.

    `culprit` is the record of the first module with different outputs. The heads are compared in the input of a linear layer
    within this module.
    """
    module: Any = culprit.module
    config = getattr(module, "config", None)
    names = ("num_heads", "num_attention_heads", "n_heads", "heads")
    count = next((int(n) for holder in (module, config) for k in names if isinstance(n := getattr(holder, k, None), int)), 0)
    if count < 2:
        return ""
    there = dict(other.records())
    for key, record in base.records():
        inside = record.name.startswith(culprit.name + ".") and isinstance(record.module, nn.Linear)
        if not inside or key not in there or not record.inputs or not there[key].inputs:
            continue
        pair = _at(trial, record.inputs[0], there[key].inputs[0])
        if pair is None or pair[0].shape[-1] % count or torch.equal(*pair):
            continue
        gaps = (pair[0] - pair[1]).abs().reshape(len(pair[0]), count, -1).amax((0, 2)) / max(float(pair[0].abs().max()), 1e-30)
        bad = [h for h in range(count) if float(gaps[h]) > LEAK]
        return f", head{'s' * (len(bad) > 1)} {', '.join(map(str, bad))} of {count}" if 0 < len(bad) < count else ""
    return ""

"""Two passes, what must be equal between them or must not, and the judgement."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import torch
from torch import Tensor

from .subject import Call, Output

LEAK = 1e-10
"""How far, of the largest output, float64 passes may differ: rounding stays below 1e-12 in deep models, leaks far above."""
STILL = 1e-14
"""What counts as not moved at all. Passes of the same shape add in the same order, so it is zero but for kernels that do not."""
ROUNDING = 32.0
"""How many times the rounding error of one pass another may have before that is no longer called rounding."""
FEATURES = 256
"""How many features of each compared output are kept to compare a dtype with float64."""


class Verdict(str, Enum):
    """What became of a check."""

    PASS = "pass"
    FAIL = "fail"
    INCONCLUSIVE = "inconclusive"
    NOT_APPLICABLE = "not applicable"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True)
class Cells:
    """Places of a stream in one pass, and the places that they are compared with in the other."""

    rows: Tensor
    at: Tensor
    other_rows: Tensor
    other_at: Tensor

    @staticmethod
    def same(rows: list[int], at: Any) -> Cells:
        """The same places of the same rows in both passes."""
        return Cells.shifted(rows, at, rows, 0)

    @staticmethod
    def shifted(rows: list[int], at: Any, other_rows: list[int], by: int) -> Cells:
        """Positions `at` of each row against `at + by` of another."""
        at = torch.as_tensor(at, dtype=torch.long).flatten()
        spread, other = (torch.tensor(r).repeat_interleave(len(at)) for r in (rows, other_rows))
        return Cells(spread, at.repeat(len(rows)), other, (at + by).repeat(len(rows)))

    def __len__(self) -> int:
        return len(self.at)

    def of(self, base: Tensor, other: Tensor) -> tuple[Tensor, Tensor]:
        """`[cells, features]` of both passes."""
        count = len(self)
        return base[self.rows, self.at].reshape(count, -1), other[self.other_rows, self.other_at].reshape(count, -1)


@dataclass(frozen=True)
class Trial:
    """Two passes whose outputs must be equal, or must all differ, at some places."""

    what: str
    """What was done, for a person: `tokens 12.. changed`."""
    base: Call
    other: Call
    cells: Mapping[str, Cells]
    """The places by stream; streams that the model does not return are left out."""
    broken: str
    """What it means if this fails."""
    moved: bool = False
    """They must differ."""
    changed: tuple[int, ...] = ()
    """Positions whose input was changed, for the picture."""
    double_only: bool = False
    """It asks for numbers that narrow floats do not have."""


@dataclass
class Measure:
    """What was seen of a trial in one precision."""

    stream: str
    row: int
    position: int
    """Where outputs differ most (or least, where they must)."""
    difference: float
    """There, of the largest output compared."""
    scale: float
    finite: bool
    moved_at: list[int]
    kept: dict[str, tuple[Tensor, Tensor]] = field(default_factory=dict)


@dataclass
class Outcome:
    """The judgement on a trial."""

    what: str
    verdict: Verdict
    sentence: str
    own: Measure | None = None
    double: Measure | None = None
    changed: tuple[int, ...] = ()
    where: str | None = None
    """The first module whose inputs agree and whose outputs do not."""

    @property
    def moved(self) -> list[int]:
        """Positions of compared outputs that moved."""
        seen = self.double or self.own
        return [] if seen is None else seen.moved_at


def measure(trial: Trial, base: Output, other: Output, keep: bool, floor: float) -> Measure | None:
    """What differs; None if the model returns none of the streams. `floor` is what counts as moved in the picture."""
    worst: Measure | None = None
    kept: dict[str, tuple[Tensor, Tensor]] = {}
    for stream, cells in trial.cells.items():
        if stream not in base or stream not in other or not len(cells):
            continue
        a, b = (x.detach() for x in cells.of(base[stream], other[stream]))
        finite = bool(torch.isfinite(a).all() and torch.isfinite(b).all())
        scale = float(a.abs().max()) if finite else 1.0
        gaps = torch.nan_to_num((a.double() - b.double()).abs().amax(1), nan=torch.inf) / max(scale, 1e-30)
        at = int(gaps.argmin() if trial.moved else gaps.argmax())
        moved = sorted(set(cells.at[(gaps > floor).cpu()].tolist()))
        found = Measure(stream, int(cells.rows[at]), int(cells.at[at]), float(gaps[at]), scale, finite, moved)
        if keep:
            every = max(1, a.shape[1] // FEATURES)
            kept[stream] = (a[:, ::every].double().cpu(), b[:, ::every].double().cpu())
        if worst is None or not finite or (found.difference < worst.difference) == trial.moved:
            worst = found
    if worst is not None:
        worst.kept = kept
    return worst


def judge(trial: Trial, own: Measure | None, double: Measure | None, why_not: str | None, dtype: torch.dtype) -> Outcome:
    """The verdict: float64 decides what is a leak, the model's own dtype what breaks in it alone."""
    verdict, sentence = _judge(trial, own, double, why_not or "", dtype)
    return Outcome(trial.what, verdict, sentence, own, double, trial.changed)


def _judge(trial: Trial, own: Measure | None, double: Measure | None, why_not: str, dtype: torch.dtype) -> tuple[Verdict, str]:
    decided = double or own
    if decided is None:
        return Verdict.NOT_APPLICABLE, "the model returns nothing that this compares"
    if trial.moved:
        if decided.difference <= STILL:
            return Verdict.FAIL, f"{trial.broken}: {_place(decided)} does not change at all"
        return Verdict.PASS, f"changes by at least {decided.difference:.1e} of the largest output"
    if double is None:
        return _without_double(trial, decided, why_not, dtype)
    if not double.finite:
        return Verdict.FAIL, f"{trial.broken}: outputs are NaN or infinite, in float64 too"
    if double.difference > LEAK:
        by = f"{double.difference:.1e} of the largest output in float64, so it is no rounding"
        return Verdict.FAIL, f"{trial.broken}: {_place(double)} moves by {by}"
    name = str(dtype).removeprefix("torch.")
    if own is None:
        return Verdict.PASS, f"equal in float64 (to {double.difference:.0e})"
    if not own.finite:
        why = f"a value that overflows in {name}, or a row whose keys are all masked, on a path that float64 does not take"
        return Verdict.FAIL, f"outputs are NaN or infinite in {name} and finite in float64: {why}"
    if own.difference == 0.0:
        return Verdict.PASS, "equal to the bit"
    first, second = _errors(own, double)
    if second > ROUNDING * max(first, own.scale * torch.finfo(dtype).eps):
        return Verdict.INCONCLUSIVE, (
            f"equal in float64, but in {name} the second pass is {second / max(first, 1e-30):.0f} times as far from float64 as the "
            f"first ({second:.1e} against {first:.1e}): more than rounding explains, less than a leak"
        )
    return Verdict.PASS, f"equal in float64 (to {double.difference:.0e}); {own.difference:.1e} apart in {name}, which is rounding"


def _without_double(trial: Trial, own: Measure, why_not: str, dtype: torch.dtype) -> tuple[Verdict, str]:
    eps = torch.finfo(dtype).eps
    if not own.finite:
        return Verdict.FAIL, f"{trial.broken}: outputs are NaN or infinite"
    if own.difference <= 8 * eps:
        return Verdict.PASS, f"equal to {own.difference:.1e}; {why_not}"
    said = f"{_place(own)} moves by {own.difference:.1e} of the largest output; {why_not}"
    if own.difference > 1e4 * eps:
        return Verdict.FAIL, f"{trial.broken}: {said}, but rounding is not that large"
    return Verdict.INCONCLUSIVE, f"{said}, so rounding is not ruled out"


def _place(seen: Measure) -> str:
    if seen.stream == "pooled":
        return f"the pooled output of row {seen.row}"
    return f"{'encoder ' * (seen.stream == 'source')}output {seen.position} of row {seen.row}"


def _errors(own: Measure, double: Measure) -> tuple[float, float]:
    """How far each pass in the own dtype is from the same in float64."""
    pairs = [(own.kept[stream], double.kept[stream]) for stream in own.kept]
    first, second = (max((float((mine[i] - exact[i]).abs().max()) for mine, exact in pairs), default=0.0) for i in (0, 1))
    return first, second

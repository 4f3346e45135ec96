"""Trials of the audit: each compares two forward passes, whose outputs must be equal or must differ, and gives a verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import torch
from torch import Tensor

from .model.subject import Call, Output, Stream
from .rounding import MOST, Rounding

LEAK = 1e-10
"""The largest difference between float64 passes that does not count as a leak, as a fraction of the largest output.

The limit is between the two: in float64, rounding stays below 1e-12 even in deep models, and leaks are far above 1e-10."""
STILL = 1e-14
"""The largest difference at which an output that must change counts as unchanged, as a fraction of the largest output.

Most kernels add in the same order for equal shapes, so the difference of unchanged outputs is exactly zero. The limit above
zero is for the other kernels."""
RATIO = 8.0
"""The second pass's rounding error may be at most this many times the first pass's; above it, the difference between the passes
is not called rounding."""
FEATURES = 64
"""The approximate number of features that are stored of each compared output, to compare the model's dtype with float64."""


class Verdict(str, Enum):
    """The result of a check or of a trial."""

    PASS = "pass"
    FAIL = "fail"
    INCONCLUSIVE = "inconclusive"
    NOT_APPLICABLE = "not applicable"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True)
class Cells:
    """The output places (batch row, position) to compare: places in the first pass, and for each the corresponding place in the
    second pass."""

    rows: Tensor
    at: Tensor
    other_rows: Tensor
    other_at: Tensor

    @staticmethod
    def same(rows: list[int], at: Any) -> Cells:
        """Compares the positions `at` of each row with the same positions in the other pass."""
        return Cells.shifted(rows, at, rows, 0)

    @staticmethod
    def shifted(rows: list[int], at: Any, other_rows: list[int], by: int) -> Cells:
        """Compares the positions `at` of each row in `rows` with the positions `at + by` of the corresponding row in
        `other_rows`, in the other pass."""
        at = torch.as_tensor(at, dtype=torch.long).flatten()
        spread, other = (torch.tensor(r).repeat_interleave(len(at)) for r in (rows, other_rows))
        return Cells(spread, at.repeat(len(rows)), other, (at + by).repeat(len(rows)))

    @staticmethod
    def where(keep: Any) -> Cells:
        """Compares the places where `keep` (booleans `[rows, positions]`) is true with the same places in the other pass."""
        rows, at = torch.as_tensor(keep).nonzero(as_tuple=True)
        return Cells(rows, at, rows, at)

    def __len__(self) -> int:
        return len(self.at)

    def of(self, base: Tensor, other: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the compared outputs of the first and of the second pass, each as `[places, features]`."""
        count = len(self)
        return base[self.rows, self.at].reshape(count, -1), other[self.other_rows, self.other_at].reshape(count, -1)


@dataclass(frozen=True)
class Trial:
    """Two passes whose outputs must all be equal, or must all differ, at the places in `cells`."""

    what: str
    """The difference between the inputs of the two passes, as text such as `tokens 12.. changed`."""
    base: Call
    other: Call
    cells: Mapping[str, Cells]
    """The outputs that are compared, by name (`main`, `source` or `pooled`). A name for which the model returns no output is
    skipped."""
    broken: str
    """A sentence for the report that states what a failure of this trial means."""
    moved: bool = False
    """True if the outputs must differ; false if they must be equal."""
    changed: tuple[int, ...] = ()
    """Positions of the changed inputs if they are equal in all rows, for the drawing in the report."""
    each: tuple[int, ...] = ()
    """For each batch row, the position of its changed input; empty if the changed positions are equal in all rows (see
    `changed`)."""
    double_only: bool = False
    """True if the trial runs only in float64, because its numbers overflow in narrower floats."""

    @property
    def same_operations(self) -> bool:
        """True if the two passes differ only in the content of tokens, so that both passes do the same operations in the same
        order.

        The rounding errors of both passes are then equal."""
        a, b = self.base, self.other
        ways = [(call.splits, call.backend, call.packing, call.all_real) for call in (a, b)]
        streams = [list(call.streams().values()) for call in (a, b)]
        return ways[0] == ways[1] and len(streams[0]) == len(streams[1]) and all(map(_same_form, *streams))


def _same_form(a: Stream, b: Stream) -> bool:
    if a.tokens.shape != b.tokens.shape or not torch.equal(a.real, b.real) or not torch.equal(a.positions, b.positions):
        return False
    return a.segments is b.segments or (a.segments is not None and b.segments is not None and torch.equal(a.segments, b.segments))


@dataclass
class Measure:
    """The measured differences of a trial in one dtype."""

    stream: str
    row: int
    position: int
    """The position where the outputs differ most; if the outputs must differ, the position where they differ least."""
    difference: float
    """The difference at `position`, as a fraction of the largest compared output."""
    finite: bool
    moved_at: list[int]
    gaps: dict[str, Tensor] = field(default_factory=dict)
    """For each output name, the difference at each compared place, as a fraction of the largest compared output."""
    kept: dict[str, tuple[Tensor, Tensor]] = field(default_factory=dict)
    """For each output name, (first pass, second pass): a sample of the features of the compared outputs, as fractions of the
    largest compared output."""


@dataclass
class Outcome:
    """The verdict on one trial, with the measured differences in the model's dtype (`own`) and in float64 (`double`)."""

    what: str
    verdict: Verdict
    sentence: str
    own: Measure | None = None
    double: Measure | None = None
    changed: tuple[int, ...] = ()
    where: str | None = None
    """The first module whose inputs are equal in both passes and whose outputs are not."""
    must_move: bool = False
    """True if the outputs must differ between the two passes."""

    @property
    def moved(self) -> list[int]:
        """The positions of compared outputs that differ between the two passes."""
        seen = self.double or self.own
        if self.own is not None and seen is not None and not seen.moved_at:
            seen = self.own
        return [] if seen is None else seen.moved_at


def measure(trial: Trial, base: Output, other: Output, floor: float) -> Measure | None:
    """Measures the differences between the outputs of two passes. Returns None if the model returns none of the outputs that the
    trial compares.

    The report's drawing marks an output as changed if its difference is above `floor`, a fraction of the largest output.
    """
    worst: Measure | None = None
    kept: dict[str, tuple[Tensor, Tensor]] = {}
    all_gaps: dict[str, Tensor] = {}
    for stream, cells in trial.cells.items():
        if stream not in base or stream not in other or not len(cells):
            continue
        a, b = (x.detach() for x in cells.of(base[stream], other[stream]))
        finite = bool(torch.isfinite(a).all() and torch.isfinite(b).all())
        scale = max(float(a.abs().max()), 1e-30) if finite else 1.0
        gaps = torch.nan_to_num((a.double() - b.double()).abs().amax(1), nan=torch.inf) / scale
        at = int(gaps.argmin() if trial.moved else gaps.argmax())
        far = (gaps > floor).cpu()
        far &= (cells.rows == cells.rows[at]) | (not trial.each)
        found = Measure(stream, int(cells.rows[at]), int(cells.at[at]), float(gaps[at]), finite, sorted(set(cells.at[far].tolist())))
        all_gaps[stream] = gaps.cpu()
        if not trial.moved:
            every = max(1, a.shape[1] // FEATURES)
            kept[stream] = (a[:, ::every].double().cpu() / scale, b[:, ::every].double().cpu() / scale)
        if worst is None or not finite or (found.difference < worst.difference) == trial.moved:
            worst = found
    if worst is not None:
        worst.kept, worst.gaps = kept, all_gaps
    return worst


def judge(trial: Trial, own: Measure | None, double: Measure | None, why_not: str | None, rounding: Rounding) -> Outcome:
    """Returns the verdict on a trial. `double`, measured in float64, shows leaks; `own`, measured in the model's dtype, shows
    faults that exist only there.

    `why_not` is the reason why there is no measurement in float64.
    """
    verdict, sentence = _judge(trial, own, double, why_not or "", rounding)
    changed, seen = trial.changed, double or own
    if trial.each and seen is not None:
        decisive = own if own is not None and own.moved_at and not seen.moved_at else seen
        changed = (trial.each[decisive.row],)
    for one in (own, double):
        if one is not None:
            one.kept, one.gaps = {}, {}
    return Outcome(trial.what, verdict, sentence, own, double, changed, must_move=trial.moved)


def _judge(trial: Trial, own: Measure | None, double: Measure | None, why_not: str, rounding: Rounding) -> tuple[Verdict, str]:
    decided = double or own
    if decided is None:
        return Verdict.NOT_APPLICABLE, "the model returns no output that this check compares"
    if trial.moved:
        return _moves(trial, own, double, rounding)
    if double is None:
        return _without_double(trial, decided, why_not, rounding)
    if not double.finite:
        return Verdict.FAIL, f"{trial.broken}: outputs are NaN or infinite, in float64 too"
    if double.difference > LEAK:
        said = f"{_place(trial, double)} changes by {double.difference:.1e} of the largest output in float64, so the difference is not rounding"
        return Verdict.FAIL, f"{trial.broken}: {said}"
    if own is None:
        return Verdict.PASS, f"the outputs are equal in float64 (to {double.difference:.0e})"
    return _in_own(trial, own, double, rounding)


def _in_own(trial: Trial, own: Measure, double: Measure, rounding: Rounding) -> tuple[Verdict, str]:
    """Returns (verdict, sentence) from the measurement in the model's dtype, after float64 has shown no leak."""
    name, bound = rounding.name, rounding.bound
    if not own.finite:
        why = f"the cause may be a value that overflows in {name}, or a row whose keys are all masked, in code that runs only in the dtype of the model"
        return Verdict.FAIL, f"the outputs are NaN or infinite in {name} and finite in float64: {why}"
    if own.difference == 0.0:
        return Verdict.PASS, "the outputs are equal to the bit"
    said = f"{_place(trial, own)} changes by {own.difference:.1e} of the largest output in {name}, but does not change in float64"
    if rounding.selects and own.difference > bound:
        why = f"{rounding}, but the model selects by comparison (experts, largest scores), and rounding may change the selection"
        return Verdict.INCONCLUSIVE, f"{said}; {why}"
    if own.difference > bound:
        return Verdict.FAIL, f"{trial.broken}: {said}; {rounding}"
    if trial.same_operations and not rounding.selects:
        why = "both passes do the same operations in the same order, so rounding is equal in both passes"
        return Verdict.FAIL, f"{trial.broken}: {said}; {why}"
    errors = [_errors(own, double, i) for i in (0, 1)]
    largest = max(most for most, _ in errors)
    if largest > bound and not rounding.selects:
        what = f"the outputs are equal in float64, but a pass in {name} differs by {largest:.1e} of the largest output from the pass in float64"
        return Verdict.INCONCLUSIVE, f"{what}; {rounding}: the check in float64 does not show what the model in {name} computes"
    first, second = (typical for _, typical in errors)
    if second > RATIO * max(first, torch.finfo(rounding.dtype).eps) and not rounding.selects:
        return Verdict.INCONCLUSIVE, (
            f"the outputs are equal in float64, but in {name} the second pass is {second / max(first, 1e-30):.0f} times as far from "
            f"float64 as the first pass ({second:.1e} and {first:.1e}): the difference is larger than rounding explains and smaller than a leak"
        )
    apart = f"the difference in {name} is {own.difference:.1e}, which is rounding (below {bound:.1e})"
    return Verdict.PASS, f"the outputs are equal in float64 (to {double.difference:.0e}); {apart}"


def _moves(trial: Trial, own: Measure | None, double: Measure | None, rounding: Rounding) -> tuple[Verdict, str]:
    """Returns (verdict, sentence) for a trial whose outputs must differ.

    All compared outputs must differ in float64. In the model's dtype, the difference of each output must not be smaller than in
    float64 by more than the bound of rounding.
    """
    seen = double or own
    assert seen is not None
    if seen.difference <= STILL:
        return Verdict.FAIL, f"{trial.broken}: {_place(trial, seen)} is equal in both passes, but must differ"
    if own is None or double is None or rounding.selects:
        return Verdict.PASS, f"every compared output changes by at least {seen.difference:.1e} of the largest output"
    for stream, exact in double.gaps.items():
        short = exact - own.gaps.get(stream, exact)
        if float(short.max()) > rounding.bound:
            at, cells = int(short.argmax()), trial.cells[stream]
            place = _place(trial, Measure(stream, int(cells.rows[at]), int(cells.at[at]), 0.0, True, []))
            moves = f"{place} changes by {float(exact[at]):.1e} in float64 but by {float(own.gaps[stream][at]):.1e} in {rounding.name}"
            return Verdict.FAIL, f"{trial.broken}: {moves}; {rounding}"
    return Verdict.PASS, f"every compared output changes by at least {seen.difference:.1e} of the largest output"


def _without_double(trial: Trial, own: Measure, why_not: str, rounding: Rounding) -> tuple[Verdict, str]:
    if not own.finite:
        return Verdict.FAIL, f"{trial.broken}: outputs are NaN or infinite"
    if own.difference == 0.0:
        return Verdict.PASS, f"the outputs are equal to the bit; {why_not}"
    said = f"{_place(trial, own)} changes by {own.difference:.1e} of the largest output; {why_not}"
    if own.difference > 1e4 * torch.finfo(rounding.dtype).eps or own.difference >= MOST:
        return Verdict.FAIL, f"{trial.broken}: {said}; rounding causes only smaller differences"
    if trial.same_operations:
        return Verdict.INCONCLUSIVE, f"{said}, so the cause may be rounding in a sum whose order depends on the tokens"
    if own.difference <= rounding.bound:
        return Verdict.PASS, f"the outputs differ by {own.difference:.1e}, below {rounding.bound:.1e}, the bound of rounding; {why_not}"
    return Verdict.INCONCLUSIVE, f"{said}; {rounding}: give layers= if the model has more layers, or give module= or exact="


def _place(trial: Trial, seen: Measure) -> str:
    if seen.stream == "pooled":
        return f"the pooled output of batch row {seen.row}"
    after = f" (token {trial.each[seen.row]} changed)" if trial.each else ""
    return f"{'encoder ' * (seen.stream == 'source')}output {seen.position} of batch row {seen.row}{after}"


def _errors(own: Measure, double: Measure, which: int) -> tuple[float, float]:
    """Returns the errors of one pass in the model's dtype, compared with float64: (largest error, root of the mean square).
    `which` is 0 for the first pass, 1 for the second."""
    gaps = [(own.kept[stream][which] - double.kept[stream][which]).abs() for stream in own.kept if stream in double.kept]
    if not gaps:
        return 0.0, 0.0
    return max(float(gap.max()) for gap in gaps), max(float(gap.square().mean().sqrt()) for gap in gaps)

"""The report of an audit: as text and as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from .._noren import __version__
from .trial import Outcome, Verdict

if TYPE_CHECKING:
    from .checks.pairs import Test

COLUMNS = 72
"""The maximum width of a drawing of positions, in characters."""
_ORDER = (Verdict.FAIL, Verdict.INCONCLUSIVE, Verdict.PASS, Verdict.NOT_APPLICABLE)
_MARKS = {Verdict.PASS: "pass", Verdict.FAIL: "FAIL", Verdict.INCONCLUSIVE: "?", Verdict.NOT_APPLICABLE: "-"}


@dataclass
class Check:
    """The result of one check: verdict, outcomes of its trials, and the usual cause of a failure."""

    name: str
    title: str
    verdict: Verdict
    sentence: str
    outcomes: list[Outcome]
    likely: str
    seconds: float

    @staticmethod
    def of(name: str, test: Test, outcomes: list[Outcome], skipped: Exception | None, seconds: float) -> Check:
        """Returns the result of a check: the worst verdict of its trials in `outcomes`. If there are none, the result has the
        reason `skipped`."""
        if skipped is not None or not outcomes:
            from .lab import Unclear

            verdict = Verdict.INCONCLUSIVE if isinstance(skipped, Unclear) else Verdict.NOT_APPLICABLE
            said = str(skipped) if skipped is not None else "this check computes in float64: give the model as module=, so that it can be converted"
            return Check(name, test.title, verdict, said, [], test.likely, seconds)
        worst = min((outcome.verdict for outcome in outcomes), key=_ORDER.index)
        these = [outcome for outcome in outcomes if outcome.verdict is worst]
        count = f"{len(these)} of {len(outcomes)} trials: " if len(these) < len(outcomes) else ""
        shown = max(these, key=_apart) if worst is Verdict.PASS else these[0]
        return Check(name, test.title, worst, count + shown.sentence, outcomes, test.likely, seconds)

    @property
    def failures(self) -> list[Outcome]:
        return [outcome for outcome in self.outcomes if outcome.verdict is Verdict.FAIL]

    @property
    def where(self) -> str | None:
        """The name of the first faulty module in the first failed trial that has one; None if no faulty module was found."""
        return next((outcome.where for outcome in self.failures if outcome.where), None)


@dataclass
class Report:
    """The report of `nr.audit`. In a condition, a report is true if it is `ok`, so `assert nr.audit(model)` fails with the text
    of the report."""

    model: str
    dtype: str
    intent: str
    length: int
    checks: list[Check]
    seconds: float
    mode: str = "evaluation mode"
    """The mode in which the model was tested, as text: evaluation mode or training mode."""
    rounding: str = ""
    """A sentence with the bound of rounding: smaller differences between outputs in the model's dtype are called rounding."""
    not_tested: tuple[str, ...] = ()
    """The parts of the model that the audit did not test, as sentences."""

    @property
    def ok(self) -> bool:
        """Returns true if at least one check passed, no check failed, and no check that applies is inconclusive."""
        return self.verdict == "ok"

    @property
    def verdict(self) -> Literal["ok", "incomplete", "failed"]:
        """Returns `failed` if a check failed; `incomplete` if a check is inconclusive or no check applies; otherwise `ok`."""
        if self.failures:
            return "failed"
        return "incomplete" if self.unclear or not self.with_verdict(Verdict.PASS) else "ok"

    def __bool__(self) -> bool:
        return self.ok

    @property
    def failures(self) -> list[Check]:
        """The results of the checks that failed."""
        return self.with_verdict(Verdict.FAIL)

    @property
    def unclear(self) -> list[Check]:
        """The results of the checks that apply to the model but are inconclusive."""
        return self.with_verdict(Verdict.INCONCLUSIVE)

    def with_verdict(self, verdict: Verdict) -> list[Check]:
        return [check for check in self.checks if check.verdict is verdict]

    def __getitem__(self, name: str) -> Check:
        """Returns the check named `name`. Raises a KeyError for unknown names."""
        for check in self.checks:
            if check.name == name:
                return check
        raise KeyError(f"the report has no check {name!r}: the checks of the report are {', '.join(check.name for check in self.checks)}")

    def summary(self) -> str:
        """Returns one line: the verdict of the audit, and how many checks passed, failed, are inconclusive or are not
        applicable."""
        counts = [(len(self.with_verdict(verdict)), str(verdict)) for verdict in _ORDER]
        missing = " without weak_fill" if self.ok and any("(weak_fill)" in said for said in self.not_tested) else ""
        return f"{self.verdict}{missing}: " + ", ".join(f"{count} {said}" for count, said in counts if count)

    def __str__(self) -> str:
        head = f"noren audit of {self.model} ({self.dtype}, {self.mode}): {self.intent}; length {self.length}, {self.seconds:.1f} s"
        lines = [head, self.summary(), *([self.rounding] if self.rounding else []), ""]
        wide = max(len(check.title) for check in self.checks)
        for check in self.checks:
            lines.append(f"  {_MARKS[check.verdict]:4}  {check.title:{wide}}  {check.sentence}")
            if check.verdict is Verdict.FAIL:
                lines += [f"        {line}" for line in _details(check)]
        return "\n".join([*lines, *(["", f"not tested: {'; '.join(self.not_tested)}"] if self.not_tested else [])])

    def __repr__(self) -> str:
        return f"<noren audit of {self.model}: {self.summary()}>"

    def to_dict(self) -> dict[str, Any]:
        """Returns the whole report as a dictionary of plain values, equal to the content of its JSON file."""
        names = ("model", "dtype", "intent", "length", "ok", "verdict", "mode", "rounding")
        return {
            "noren": __version__,
            **{name: getattr(self, name) for name in names},
            "not_tested": list(self.not_tested),
            "summary": self.summary(),
            "seconds": round(self.seconds, 3),
            "checks": [_plain(check) for check in self.checks],
        }

    def to_json(self, indent: int | None = 2) -> str:
        return json.dumps(self.to_dict(), indent=indent)

    def save(self, path: str | Path) -> None:
        """Writes the report to a file: as JSON if the path ends in `.json`, otherwise as text."""
        path = Path(path)
        path.write_text((self.to_json() if path.suffix == ".json" else str(self)) + "\n", encoding="utf-8")


def _apart(outcome: Outcome) -> float:
    """Returns the difference between the outputs of the two passes of a trial, measured in the model's dtype. Returns 0.0 if
    the passes must differ, or if the difference was not measured both in the model's dtype and in float64."""
    return outcome.own.difference if outcome.own is not None and outcome.double is not None and not outcome.must_move else 0.0


def strip(positions: Sequence[int], length: int) -> str:
    """Draws `positions` (from 0) in a sequence of `length` tokens as one line of text. If `length` is above `COLUMNS`, each
    character represents several positions."""
    columns = min(length, COLUMNS)
    hit = {position * columns // length for position in positions}
    return "".join("■" if i in hit else "·" for i in range(columns))


def _details(check: Check) -> list[str]:
    first = check.failures[0]
    lines = [f"trial    {first.what}"]
    if check.where:
        lines.append(f"first in {check.where}")
    if first.moved and first.changed:
        top = max(*first.moved, *first.changed) + 1
        lines += [f"changed  {strip(first.changed, top)}", f"moved    {strip(first.moved, top)}"]
    lines += [f"also     {outcome.sentence}" for outcome in check.failures[1:4] if outcome.sentence != first.sentence]
    return [*lines, f"usually  {check.likely}"]


def _plain(check: Check) -> dict[str, Any]:
    outcomes = []
    for outcome in check.outcomes:
        row: dict[str, Any] = {"what": outcome.what, "verdict": str(outcome.verdict), "sentence": outcome.sentence, "where": outcome.where}
        for name, seen in (("own", outcome.own), ("float64", outcome.double)):
            if seen is not None:
                where = {"stream": seen.stream, "row": seen.row, "position": seen.position}
                row[name] = where | {"difference": _number(seen.difference), "finite": seen.finite}
        if outcome.changed and outcome.moved:
            row |= {"changed": list(outcome.changed), "moved": outcome.moved}
        outcomes.append(row)
    return {
        **{name: getattr(check, name) for name in ("name", "title", "sentence", "where")},
        "verdict": str(check.verdict),
        "usually": check.likely,
        "seconds": round(check.seconds, 3),
        "trials": outcomes,
    }


def _number(value: float) -> float | None:
    """Returns `value`, or None if it is NaN or infinite, which JSON cannot represent."""
    return value if value == value and abs(value) != float("inf") else None

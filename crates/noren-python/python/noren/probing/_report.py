"""Verdicts, and the report of a probe as text, JSON and Markdown."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any


class Verdict(str, Enum):
    """The result of one question about a function."""

    APPLIED = "applied"
    """All compared outputs equal the definition within rounding."""
    IGNORED = "ignored"
    """All compared outputs equal those without the feature."""
    MISREAD = "misread"
    """The outputs differ from the definition; the detail names the misreading, if it is a known one."""
    READ = "hidden content is read"
    """Outputs depend on keys or values that the mask hides."""
    REFUSED = "refused"
    """The function raised an exception."""
    OBSERVED = "observed"
    """A property without a right value, such as the result of a query that may read no key."""
    NOT_ESTABLISHED = "not established"
    """The outputs do not decide the question; the detail has the reason."""
    ABSENT = "no argument"
    """The function has no argument for the feature."""

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True)
class Entry:
    """The verdict about one feature in one case."""

    feature: str
    """The name of the feature, such as `mask` or `softcap`."""
    case: str
    """The case of the feature, such as the mask; empty if there is only one."""
    dtype: str
    verdict: Verdict
    detail: str = ""
    """The finding, as a sentence without a full stop."""
    calls: int = 0
    """The number of calls that this question added."""
    compared: int = 0
    """The number of output values that were compared with the definition."""
    difference: float | None = None
    """The largest difference of a compared value from the definition; None if nothing was compared."""
    warnings: tuple[str, ...] = ()
    """The warnings during the calls."""

    @property
    def title(self) -> str:
        return f"{self.feature}: {self.case}" if self.case else self.feature

    @property
    def fault(self) -> bool:
        """True if the function computes something else than its arguments define. Hidden NaN that reaches outputs is reported, but is no
        fault, because it is the property of most kernels."""
        return self.verdict in (Verdict.IGNORED, Verdict.MISREAD) or (self.verdict is Verdict.READ and self.feature != "hidden NaN")

    def __str__(self) -> str:
        return f"{self.verdict}: {self.detail}" if self.detail else str(self.verdict)

    def to_dict(self) -> dict[str, Any]:
        """Returns the fields as values of JSON."""
        return asdict(self) | {"verdict": str(self.verdict), "fault": self.fault}

    @staticmethod
    def from_dict(data: dict[str, Any]) -> Entry:
        """Returns the entry whose fields `to_dict` returned."""
        fields = {name: value for name, value in data.items() if name != "fault"}
        return Entry(**{**fields, "verdict": Verdict(data["verdict"]), "warnings": tuple(data["warnings"])})


@dataclass(frozen=True)
class Report:
    """The verdicts of a probe of one function."""

    name: str
    entries: tuple[Entry, ...]
    versions: dict[str, str]
    device: str
    seed: int
    dtypes: tuple[str, ...]
    assumptions: tuple[str, ...]
    calls: int
    seconds: float

    @property
    def faults(self) -> tuple[Entry, ...]:
        """The entries in which the function computes something else than its arguments define."""
        return tuple(entry for entry in self.entries if entry.fault)

    @property
    def ok(self) -> bool:
        """True if no fault was found and plain attention was established in at least one dtype."""
        return not self.faults and any(e.feature == "attention" and e.verdict is Verdict.APPLIED for e in self.entries)

    def entry(self, feature: str, case: str = "", dtype: str | None = None) -> Entry:
        """Returns the entry of a feature and a case, for `dtype` or the first dtype of the report.

        Raises `KeyError` if there is none.
        """
        for entry in self.entries:
            if (entry.feature, entry.case) == (feature, case) and dtype in (None, entry.dtype):
                return entry
        raise KeyError(f"no entry {feature!r} with case {case!r}: the titles are {', '.join(sorted({e.title for e in self.entries}))}")

    def to_json(self) -> str:
        """Returns the report as JSON text."""
        data = asdict(self) | {"ok": self.ok, "entries": [entry.to_dict() for entry in self.entries]}
        return json.dumps(data, indent=1, default=str)

    @staticmethod
    def from_json(text: str) -> Report:
        """Returns the report that `to_json` wrote."""
        data = json.loads(text)
        del data["ok"]
        data["entries"] = tuple(Entry.from_dict(entry) for entry in data["entries"])
        return Report(**{**data, "dtypes": tuple(data["dtypes"]), "assumptions": tuple(data["assumptions"])})

    def to_markdown(self) -> str:
        """Returns the report as a table in Markdown, for an issue of the project that wrote the function."""
        return table([self], details=True)

    def conditions(self) -> str:
        """Returns the versions, the device, the seed and the number of calls in one line."""
        versions = ", ".join(f"{name} {number}" for name, number in self.versions.items())
        return f"{versions or 'no version'}; device {self.device}; {', '.join(self.dtypes)}; seed {self.seed}; {self.calls} calls, {self.seconds:.1f} s"

    def __str__(self) -> str:
        lines = [f"{self.name}: {'no fault found' if self.ok else _count(self.faults)}", self.conditions()]
        lines += [f"assumed: {text}" for text in self.assumptions]
        for title, cells in _rows(self):
            for dtypes, entry in cells:
                where = "" if len(cells) == 1 else f" [{', '.join(dtypes)}]"
                mark = "✗" if entry.fault else " "
                lines.append(f" {mark} {title:<44}{where} {_with_warning(entry)}")
        return "\n".join(lines)


def _count(faults: Sequence[Entry]) -> str:
    return f"{len(faults)} fault{'s' if len(faults) != 1 else ''} found" if faults else "nothing established"


def _with_warning(entry: Entry) -> str:
    """Returns the text of an entry, for an ignored feature with the warning or "silently"."""
    if entry.verdict is not Verdict.IGNORED:
        return str(entry)
    return f"{entry} (with a warning: {entry.warnings[0]})" if entry.warnings else f"{entry} (silently)"


def _rows(report: Report) -> Iterator[tuple[str, list[tuple[list[str], Entry]]]]:
    """Yields for each title the entries with different texts, each with its dtypes, in the order of the report."""
    rows: dict[str, list[tuple[list[str], Entry]]] = {}
    for entry in report.entries:
        row = rows.setdefault(entry.title, [])
        same = next((dtypes for dtypes, other in row if (other.verdict, other.detail) == (entry.verdict, entry.detail)), None)
        if same is None:
            row.append(([entry.dtype], entry))
        else:
            same.append(entry.dtype)
    yield from rows.items()


def table(reports: Iterable[Report], details: bool = False) -> str:
    """Returns a table in Markdown with one row for each question and one column for each report.

    If `details` is true, the cells have the whole texts of the entries; otherwise the details of refusals, of hidden content that is read, and
    long details of the verdict "applied" are left out.
    """
    listed = list(reports)
    columns = [dict(_rows(report)) for report in listed]
    titles = list(dict.fromkeys(title for column in columns for title in column))
    features = list(dict.fromkeys(title.partition(":")[0] for title in titles))
    titles.sort(key=lambda title: features.index(title.partition(":")[0]))
    lines = ["| question | " + " | ".join(_escaped(report.name) for report in listed) + " |", "|---" * (len(listed) + 1) + "|"]
    for title in titles:
        lines.append(f"| {_escaped(title)} | " + " | ".join(_cell(column.get(title), details) for column in columns) + " |")
    notes = [f"- {_escaped(report.name)}: {_escaped(report.conditions())}" for report in listed]
    notes += [f"- {_escaped(report.name)}, assumed: {_escaped(text)}" for report in listed for text in report.assumptions]
    return "\n".join([*lines, "", *notes, ""])


def _cell(row: Any, details: bool) -> str:
    """Returns the text of a cell, with the dtypes where their texts differ."""
    if row is None:
        return ""
    brief = (Verdict.APPLIED, Verdict.REFUSED, Verdict.ABSENT, Verdict.READ)
    texts: dict[str, list[str]] = {}
    for dtypes, entry in row:
        short = entry.verdict is Verdict.APPLIED and len(entry.detail) <= 24
        text = str(entry.verdict) if not details and entry.verdict in brief and not short else _with_warning(entry)
        if entry.verdict is Verdict.ABSENT:
            text = "–"
        if entry.verdict is Verdict.OBSERVED:
            text = entry.detail
        texts.setdefault(f"**{text}**" if entry.fault else text, []).extend(dtypes)
    if len(texts) == 1:
        return _escaped(next(iter(texts)))
    return _escaped("; ".join(f"{', '.join(dtypes)}: {text}" for text, dtypes in texts.items()))


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")

"""The verdicts of a probe, and its report as text, JSON and Markdown."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any


class Verdict(str, Enum):
    """The result of one question of the probe, such as whether the function under test applies a mask."""

    APPLIED = "applied"
    """All compared outputs equal those of the reference attention within rounding."""
    IGNORED = "ignored"
    """All compared outputs equal the outputs of reference attention without the feature."""
    MISREAD = "misread"
    """The outputs differ from the reference attention; the detail names the wrong computation, if it is a known one."""
    READ = "hidden content is read"
    """Outputs of the function depend on keys or values that the mask hides."""
    REFUSED = "refused"
    """The function raised an exception."""
    OBSERVED = "observed"
    """The entry describes behaviour that differs between correct functions, such as the result of a query that may read no key."""
    NOT_ESTABLISHED = "not established"
    """The outputs do not answer the question; `detail` of the entry has the reason."""
    ABSENT = "no argument"
    """The function has no argument for the feature."""

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True)
class Entry:
    """The verdict about one feature, such as `mask`, in one case, such as a causal mask."""

    feature: str
    """The name of the feature, such as `mask` or `softcap`."""
    case: str
    """The case in which the feature was tested, such as the name of a mask; empty if the feature has only one case."""
    dtype: str
    verdict: Verdict
    detail: str = ""
    """The finding, as a sentence without a full stop."""
    calls: int = 0
    """The number of calls of the function under test for this entry."""
    compared: int = 0
    """The number of output values that were compared with the reference attention."""
    difference: float | None = None
    """The largest difference between a compared value and that of the reference attention; None if nothing was compared."""
    warnings: tuple[str, ...] = ()
    """The texts of the Python warnings that the calls issued."""

    @property
    def title(self) -> str:
        return f"{self.feature}: {self.case}" if self.case else self.feature

    @property
    def fault(self) -> bool:
        """True if the result of the function differs from the one that its arguments define. NaN in hidden keys that spreads to outputs is
        reported, but is not a fault, because most kernels have this property."""
        return self.verdict in (Verdict.IGNORED, Verdict.MISREAD) or (self.verdict is Verdict.READ and self.feature != "hidden NaN")

    def __str__(self) -> str:
        return f"{self.verdict}: {self.detail}" if self.detail else str(self.verdict)

    def to_dict(self) -> dict[str, Any]:
        """Returns the fields as values that JSON can store."""
        return asdict(self) | {"verdict": str(self.verdict), "fault": self.fault}

    @staticmethod
    def from_dict(data: dict[str, Any]) -> Entry:
        """Returns an entry from `data`, a result of `to_dict`."""
        fields = {name: value for name, value in data.items() if name != "fault"}
        return Entry(**{**fields, "verdict": Verdict(data["verdict"]), "warnings": tuple(data["warnings"])})


@dataclass(frozen=True)
class Report:
    """The entries of a probe of one function, and the conditions of the probe (versions, device, seed, number types)."""

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
        """The entries with a fault: the result of the function differs from the one that its arguments define."""
        return tuple(entry for entry in self.entries if entry.fault)

    @property
    def ok(self) -> bool:
        """True if the report has no fault, and if attention without a mask or other features is correct in at least one number type."""
        return not self.faults and any(e.feature == "attention" and e.verdict is Verdict.APPLIED for e in self.entries)

    def entry(self, feature: str, case: str = "", dtype: str | None = None) -> Entry:
        """Returns the entry about a feature in a case, for the number type `dtype` or, if it is None, for the first number type
        of the report.

        Raises `KeyError` if the report has no such entry.
        """
        for entry in self.entries:
            if (entry.feature, entry.case) == (feature, case) and dtype in (None, entry.dtype):
                return entry
        raise KeyError(f"the report has no entry {feature!r} with case {case!r}: its entries are {', '.join(sorted({e.title for e in self.entries}))}")

    def to_json(self) -> str:
        """Returns the report as JSON text."""
        data = asdict(self) | {"ok": self.ok, "entries": [entry.to_dict() for entry in self.entries]}
        return json.dumps(data, indent=1, default=str)

    @staticmethod
    def from_json(text: str) -> Report:
        """Returns the report from a JSON text that `to_json` wrote."""
        data = json.loads(text)
        del data["ok"]
        data["entries"] = tuple(Entry.from_dict(entry) for entry in data["entries"])
        return Report(**{**data, "dtypes": tuple(data["dtypes"]), "assumptions": tuple(data["assumptions"])})

    def to_markdown(self) -> str:
        """Returns the report as a table in Markdown, for a bug report to the project that wrote the function."""
        return table([self], details=True)

    def conditions(self) -> str:
        """Returns one line with the versions, device, number types, seed, number of calls and duration of the probe."""
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
    """Returns the text of an entry. If the function ignored the feature, the text ends with the first warning of the calls, or with
    "(silently)" if there was none."""
    if entry.verdict is not Verdict.IGNORED:
        return str(entry)
    return f"{entry} (with a warning: {entry.warnings[0]})" if entry.warnings else f"{entry} (silently)"


def _rows(report: Report) -> Iterator[tuple[str, list[tuple[list[str], Entry]]]]:
    """Yields (title, [(dtypes, entry), ...]) in the order of the report. Entries with equal title, verdict and detail are one pair, with
    the number types of all these entries."""
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
    """Returns a Markdown table with one row for each entry title (feature and case) and one column for each report.

    If `details` is true, the cells contain the full texts of the entries. Otherwise they omit the details of refusals and of hidden content
    that is read, and long details of the verdict "applied".
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
    """Returns the text of one table cell. If number types have different texts, the cell contains each text with its number types."""
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

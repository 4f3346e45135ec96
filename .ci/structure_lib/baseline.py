"""The findings that are known: .ci/structure-baseline, one a line, which may only become fewer."""

from __future__ import annotations

from pathlib import Path

from checks import Findings

FILE = ".ci/structure-baseline"
HEAD = [
    "# What .ci/structure finds and CI lets pass for now. Lines are only removed: .ci/structure --shrink does it.",
    "# A circle may lose members; a number (lines of a function or file, files with the same) may only become smaller.",
]
COUNTED = ("function ", "file ", "twin ")


def read(root: Path) -> dict[str, int | None]:
    """Returns the known findings, with the number of lines or files where there is one."""
    known: dict[str, int | None] = {}
    if not (root / FILE).exists():
        return known
    for line in (root / FILE).read_text().splitlines():
        if line and not line.startswith("#"):
            finding, _, lines = line.partition(" | ")
            known[finding] = int(lines) if lines else None
    return known


def length(finding: str, details: str) -> int | None:
    """Returns the number that a finding is about: of lines, or of files that have the same."""
    first = details.split(" ", 1)[0]
    return int(first) if finding.startswith(COUNTED) and first.isdecimal() else None


def members(finding: str) -> tuple[str, set[str]]:
    """Returns a circle's folder and its members."""
    folder, _, names = finding.partition(": ")
    return folder, set(names.split(", "))


def smaller(finding: str, known: dict[str, int | None]) -> bool:
    """Returns whether a circle is part of a known one."""
    if not finding.startswith("circle "):
        return False
    folder, names = members(finding)
    return any(line.startswith(folder + ": ") and names < members(line)[1] for line in known)


def report(known: dict[str, int | None], found: Findings) -> int:
    """Prints what is new, and what is known and no longer there; returns the exit status."""
    problems = []
    for finding, details in sorted(found.items()):
        lines = length(finding, details)
        if finding in known:
            if lines is not None and lines > (known[finding] or 0):
                problems.append(f"{finding}: {details}; the baseline allows {known[finding]}")
        elif not smaller(finding, known):
            problems.append("\n    ".join([finding, *details.splitlines()]))
    for finding in sorted(known.keys() - found.keys()):
        problems.append(f"{finding}\n    no longer there: remove the line from {FILE} (.ci/structure --shrink)")
    for problem in problems:
        print("error:", problem)
    if not problems:
        print(f"the structure holds; {len(known)} known findings left in {FILE}")
    return 1 if problems else 0


def shrink(root: Path, known: dict[str, int | None], found: Findings) -> int:
    """Removes what is no longer found from the baseline, and lowers its numbers; returns the exit status of a check."""
    kept: dict[str, int | None] = {}
    for finding, details in found.items():
        now, most = length(finding, details), known.get(finding)
        if finding in known or smaller(finding, known):
            kept[finding] = now if now is None or most is None else min(now, most)
    write(root, kept)
    return report(kept, found)


def rewrite(root: Path, known: dict[str, int | None], found: Findings) -> int:
    """Writes the baseline again, after modules moved, and prints what it gained and lost; returns 0."""
    for finding in sorted(found.keys() - known.keys()):
        print("+", finding)
    for finding in sorted(known.keys() - found.keys()):
        print("-", finding)
    write(root, {finding: length(finding, details) for finding, details in found.items()})
    return 0


def write(root: Path, known: dict[str, int | None]) -> None:
    lines = [finding if number is None else f"{finding} | {number}" for finding, number in sorted(known.items())]
    (root / FILE).write_text("\n".join([*HEAD, *lines]) + "\n")

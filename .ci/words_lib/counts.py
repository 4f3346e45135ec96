"""The known findings: .ci/words-baseline, a count for each folder and rule, which may only become smaller."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from check import Finding

FILE = ".ci/words-baseline"
HEAD = [
    "# Words to replace that CI lets pass for now: folder | rule | count. A count may only become smaller: .ci/words --shrink",
    "# lowers them. `.ci/words --all FOLDER` prints the places.",
]
Counts = Counter[tuple[str, str]]


def folder(path: str) -> str:
    """Returns the folder under which a file is counted: its crate, or the first folder of its path."""
    parts = path.split("/")
    return "/".join(parts[:2]) if parts[0] == "crates" else parts[0]


def count(found: list[Finding]) -> Counts:
    """Counts findings by folder and rule."""
    return Counter((folder(finding.path), finding.rule) for finding in found)


def read(root: Path) -> Counts:
    """Reads the baseline; without the file every count is 0."""
    known: Counts = Counter()
    if (root / FILE).exists():
        for line in (root / FILE).read_text().splitlines():
            if line and not line.startswith("#"):
                name, rule, number = line.split(" | ")
                known[name, rule] = int(number)
    return known


def report(root: Path, found: list[Finding]) -> int:
    """Prints the places of each rule that a folder breaks more often than the baseline allows; returns the exit status."""
    known, now = read(root), count(found)
    over = [key for key in now if now[key] > known[key]]
    for name, rule in sorted(over):
        allowed = known[name, rule]
        print(f"error: {name}: `{rule}` {now[name, rule]} times" + (f", {allowed} known" if allowed else ""))
        for finding in found:
            if (folder(finding.path), finding.rule) == (name, rule):
                print("   ", finding)
    if not over:
        print(f"words: {sum(now.values())} to replace, all known in {FILE}" if now else "words: none to replace")
    return 1 if over else 0


def shrink(root: Path, found: list[Finding]) -> None:
    """Lowers the counts of the baseline to the counts found. Makes the file where there is none, removes an empty one."""
    now, known = count(found), read(root)
    if (root / FILE).exists():
        now = Counter({key: min(number, known[key]) for key, number in now.items()})
    lines = [f"{name} | {rule} | {number}" for (name, rule), number in sorted(now.items()) if number]
    if lines:
        (root / FILE).write_text("\n".join([*HEAD, *lines]) + "\n")
    else:
        (root / FILE).unlink(missing_ok=True)

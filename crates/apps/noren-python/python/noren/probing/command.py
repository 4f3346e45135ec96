"""The command `python -m noren probe`."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .._noren import Error
from ._probe import probe
from ._report import Entry, Report, Verdict, table
from .targets._known import COMPILED, TARGETS

# The `feature` of the entry that is added to a report when the process of the probe crashes after some answers.
CRASHED = "further questions"

BEGIN, END = "<!-- probe: begin -->", "<!-- probe: end -->"

_EPILOG = f"""\
A target is one of {", ".join(TARGETS)}; the name of an attn_implementation of transformers; or module:function, a function of
queries, keys and values. The exit status is 0 without faults, 1 with faults, 2 for wrong arguments and for files that cannot
be written, and 3 without a verdict: there is no fault, but plain attention is not established for a named target (with --all:
for any target), for example because it is not installed, or the process of the probe crashed.
"""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m noren probe", description="Finds out what attention functions really compute.", epilog=_EPILOG
    )
    parser.add_argument("targets", nargs="*", metavar="TARGET", help="an attention function, by target name or as module:function")
    parser.add_argument("--all", action="store_true", help="probes all known targets; targets that compile are probed in the first number type only")
    parser.add_argument("--mask", action="append", default=None, help="a mask to test instead of the default masks, as text; may be repeated")
    parser.add_argument("--set", action="append", default=[], metavar="FIELD=NAME", help="a field of the function's signature, such as keep=attn_mask (the parameter attn_mask is a mask array, true may attend)")
    parser.add_argument("--dtypes", default="float32", help="the number types to test, separated by commas [default: float32]")
    parser.add_argument("--device", default="cpu", help="the device of the arrays [default: cpu]")
    parser.add_argument("--seed", type=int, default=0, help="the seed of all random inputs [default: 0]")
    parser.add_argument("--format", choices=("text", "json", "markdown"), default="text", help="[default: text]")
    parser.add_argument("--output", type=Path, metavar="FILE", help="writes the report to this file instead of the standard output")
    parser.add_argument("--entries", type=Path, metavar="FILE", help="appends each verdict to this file as a line of JSON, as soon as it is known")
    parser.add_argument("--into", type=Path, metavar="FILE", help=f"replaces the lines between {BEGIN} and {END} in this file by the table of results; nothing is written to the standard output")
    return parser


def main(arguments: Sequence[str]) -> int:
    """Runs the command and returns the exit status: 0 without faults, 1 with faults, 2 for wrong arguments and for files that
    cannot be written, and 3 if there is no fault, but plain attention is not established for a named target (with `--all`:
    for any target), or the process of the probe crashed."""
    parser = _parser()
    try:
        given = parser.parse_args(arguments)
    except SystemExit as stop:
        return int(stop.code or 0)
    targets = [*given.targets, *(TARGETS if given.all else ())]
    if not targets:
        print("python -m noren probe needs a target: give the name of a target, or --all", file=sys.stderr)
        return 2
    reports = []
    try:
        for target in targets:
            print(f"probing {target}", file=sys.stderr)
            dtypes = given.dtypes.split(",")
            if given.all and target in COMPILED:
                dtypes = dtypes[:1]
            reports.append(_probed(target, dtypes, given) if len(targets) == 1 else _in_process(target, dtypes, given))
        if given.output is not None:
            given.output.write_text(_text(reports, given.format) + "\n", encoding="utf-8")
        if given.into is not None:
            _replace(given.into, table(reports))
        elif given.output is None:
            print(_text(reports, given.format))
    except (Error, OSError) as error:
        print(f"python -m noren probe: {error}", file=sys.stderr)
        return 2
    if any(report.faults for report in reports):
        return 1
    probed = [report.ok and not any(entry.feature == CRASHED for entry in report.entries) for report in reports]
    named = probed[: len(given.targets)]
    return 0 if all(named) and any(probed) else 3


def _probed(target: str, dtypes: Sequence[str], given: argparse.Namespace) -> Report:
    """Probes the function `target` and returns the report. The entries of the report are also appended to the file given by `--entries`."""

    def progress(entry: Entry) -> None:
        if given.entries is not None:
            with given.entries.open("a", encoding="utf-8") as file:
                file.write(json.dumps(entry.to_dict()) + "\n")

    masks = None if given.mask is None else list(given.mask)
    return probe(target, masks, dtypes=dtypes, device=given.device, seed=given.seed, progress=progress, **_fields(given.set))


def _in_process(target: str, dtypes: Sequence[str], given: argparse.Namespace) -> Report:
    """Probes the function `target` in a separate process and returns the report. If the process crashes, the report has the entries that
    were made before the crash.

    Raises `Error` if the separate process rejects its arguments.
    """
    with tempfile.TemporaryDirectory() as folder:
        output, entries = Path(folder, "report"), Path(folder, "entries")
        command = [sys.executable, "-m", "noren", "probe", target, "--dtypes", ",".join(dtypes), "--device", given.device, "--seed", str(given.seed)]
        command += [part for mask in given.mask or () for part in ("--mask", mask)] + [part for text in given.set for part in ("--set", text)]
        command += ["--format", "json", "--output", str(output), "--entries", str(entries)]
        start = time.perf_counter()
        done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)
        if output.exists():
            return Report.from_json(json.dumps(json.loads(output.read_text(encoding="utf-8"))[0]))
        last = done.stderr.strip().splitlines()[-1:] or [""]
        if done.returncode == 2:
            raise Error(last[0].removeprefix("python -m noren probe: "))
        lines = entries.read_text(encoding="utf-8").splitlines() if entries.exists() else []
        found = [Entry.from_dict(json.loads(line)) for line in lines]
        text = f"the process of the probe crashed with status {done.returncode}: {last[0][:160]}"
        if found:
            text = f"the process of the probe crashed with status {done.returncode} after the question {found[-1].title!r}: {last[0][:160]}"
        found.append(Entry(CRASHED if found else "attention", "", dtypes[0], Verdict.NOT_ESTABLISHED, text))
    calls = sum(entry.calls for entry in found)
    return Report(target, tuple(found), {}, given.device, given.seed, tuple(dtypes), (), calls, time.perf_counter() - start)


def _fields(given: Sequence[str]) -> dict[str, Any]:
    """Returns the signature fields that the texts `FIELD=NAME` define, by name. Raises `Error` for a text without an equals sign."""
    fields: dict[str, Any] = {}
    for text in given:
        name, sign, value = text.partition("=")
        if not sign:
            raise Error(f"--set {text}: give a field and a name, such as --set keep=attn_mask")
        fields[name] = value
    return fields


def _text(reports: Sequence[Report], form: str) -> str:
    """Returns the reports in the format `form`: text, JSON (a list of reports), or one Markdown table."""
    if form == "json":
        return json.dumps([json.loads(report.to_json()) for report in reports], indent=1)
    if form == "markdown":
        return table(reports, details=len(reports) == 1)
    return "\n\n".join(str(report) for report in reports)


def _replace(path: Path, text: str) -> None:
    """Replaces the lines of a file between the two marker lines by `text`. Raises `Error` if a marker is missing."""
    page = path.read_text(encoding="utf-8")
    start, end = page.find(BEGIN), page.find(END)
    if start < 0 or end < start:
        raise Error(f"{path} does not contain the lines {BEGIN} and {END}: add both where the table should be")
    path.write_text(page[: start + len(BEGIN)] + "\n" + text + page[end:], encoding="utf-8")

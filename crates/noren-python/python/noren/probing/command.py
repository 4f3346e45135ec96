"""`python -m noren probe`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .._noren import Error
from ._known import COMPILED, TARGETS
from ._probe import probe
from ._report import Report, table

BEGIN, END = "<!-- probe: begin -->", "<!-- probe: end -->"

_EPILOG = f"""\
targets: {", ".join(TARGETS)}; another name is an attn_implementation of transformers; module:function is a function of queries, keys and
values. The exit status is 0 without faults, 1 with faults, 2 for wrong arguments.
"""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m noren probe", description="Finds out what attention functions really compute.", epilog=_EPILOG
    )
    parser.add_argument("targets", nargs="*", metavar="TARGET", help="an attention function, by name or as module:function")
    parser.add_argument("--all", action="store_true", help="all known targets, those that compile in the first dtype only")
    parser.add_argument("--mask", action="append", default=None, help="a mask as text, instead of the default masks; may be repeated")
    parser.add_argument("--set", action="append", default=[], metavar="FIELD=NAME", help="a field of the signature, such as keep=attn_mask")
    parser.add_argument("--dtypes", default="float32", help="number types, separated by commas [default: float32]")
    parser.add_argument("--device", default="cpu", help="the device of the arrays [default: cpu]")
    parser.add_argument("--seed", type=int, default=0, help="the seed of all content [default: 0]")
    parser.add_argument("--format", choices=("text", "json", "markdown"), default="text", help="[default: text]")
    parser.add_argument("--into", type=Path, metavar="FILE", help=f"replaces the lines between {BEGIN} and {END} of a file by the table")
    return parser


def main(arguments: Sequence[str]) -> int:
    """Runs the command and returns the exit status: 0 without faults, 1 with faults, 2 for wrong arguments."""
    parser = _parser()
    try:
        given = parser.parse_args(arguments)
    except SystemExit as stop:
        return int(stop.code or 0)
    targets = [*given.targets, *(TARGETS if given.all else ())]
    if not targets:
        print("python -m noren probe needs a target, or --all", file=sys.stderr)
        return 2
    reports = []
    try:
        fields = _fields(given.set)
        for target in targets:
            print(f"probing {target}", file=sys.stderr)
            masks = None if given.mask is None else list(given.mask)
            dtypes = given.dtypes.split(",")
            if given.all and target in COMPILED:
                dtypes = dtypes[:1]
            reports.append(probe(target, masks, dtypes=dtypes, device=given.device, seed=given.seed, **fields))
        if given.into is not None:
            _replace(given.into, table(reports))
        else:
            print(_text(reports, given.format))
    except (Error, OSError) as error:
        print(f"python -m noren probe: {error}", file=sys.stderr)
        return 2
    return 1 if any(report.faults for report in reports) else 0


def _fields(given: Sequence[str]) -> dict[str, Any]:
    """Returns the fields of the signature from texts `FIELD=NAME`. Raises `Error` for a text without an equals sign."""
    fields: dict[str, Any] = {}
    for text in given:
        name, sign, value = text.partition("=")
        if not sign:
            raise Error(f"--set {text}: give a field and a name, such as --set keep=attn_mask")
        fields[name] = value
    return fields


def _text(reports: Sequence[Report], form: str) -> str:
    """Returns the reports in the given form: text, JSON (a list of reports) or one table in Markdown."""
    if form == "json":
        return json.dumps([json.loads(report.to_json()) for report in reports], indent=1)
    if form == "markdown":
        return table(reports, details=len(reports) == 1)
    return "\n\n".join(str(report) for report in reports)


def _replace(path: Path, text: str) -> None:
    """Replaces the lines between the two markers of a file. Raises `Error` if a marker is missing."""
    page = path.read_text(encoding="utf-8")
    start, end = page.find(BEGIN), page.find(END)
    if start < 0 or end < start:
        raise Error(f"{path} has no lines {BEGIN} and {END}: add them where the table belongs")
    path.write_text(page[: start + len(BEGIN)] + "\n" + text + page[end:], encoding="utf-8")

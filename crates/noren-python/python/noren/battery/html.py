"""Writes the report of an audit as a self-contained HTML page."""

from __future__ import annotations

from html import escape
from typing import Any

from .strip import strip

_STYLE = """
:root{color-scheme:light dark;--ink:#1d1f24;--soft:#5d636f;--line:#d9dce3;--back:#fbfbfc;--card:#fff;
--pass:#1a7f4b;--fail:#c0262d;--inconclusive:#a15c00;--not-applicable:#7a808c}
@media(prefers-color-scheme:dark){:root{--ink:#e6e7ea;--soft:#9aa1ae;--line:#31353e;--back:#14161a;--card:#1b1e24;
--pass:#57c98a;--fail:#ff7b7f;--inconclusive:#f0b35a;--not-applicable:#8a919e}}
*{box-sizing:border-box}body{margin:0 auto;max-width:62rem;padding:2rem 1.25rem 4rem;background:var(--back);color:var(--ink);
font:15px/1.5 system-ui,sans-serif}h1{font-size:1.35rem;margin:0 0 .25rem}p{margin:.25rem 0}.soft{color:var(--soft)}
code,.strip{font-family:ui-monospace,monospace;font-size:.86em}details{background:var(--card);border:1px solid var(--line);
border-radius:8px;margin:.5rem 0;padding:.6rem .9rem}summary{cursor:pointer;display:grid;gap:.9rem;list-style:none;
grid-template-columns:7.5rem 15rem 1fr;align-items:baseline}summary::-webkit-details-marker{display:none}
@media(max-width:46rem){summary{grid-template-columns:1fr;gap:.1rem}}.badge{font-weight:600;color:var(--tone)}
details{border-left:4px solid var(--tone)}table{border-collapse:collapse;width:100%;margin-top:.6rem;font-size:.92em}
td,th{border-top:1px solid var(--line);padding:.35rem .5rem;text-align:left;vertical-align:top}th{color:var(--soft);
font-weight:500}.strip{white-space:pre;overflow-x:auto;line-height:1.25;letter-spacing:.02em}
""" + "".join(f".{kind}{{--tone:var(--{kind})}}" for kind in ("pass", "fail", "inconclusive", "not-applicable"))


def page(report: dict[str, Any]) -> str:
    """Returns the HTML page of a report. `report` is the result of `Report.to_dict`. The sections of failed checks are
    expanded."""
    title = f"noren audit of {report['model']}"
    order = ("fail", "inconclusive", "pass", "not applicable")
    checks = sorted(report["checks"], key=lambda check: order.index(check["verdict"]))
    verdict = {"ok": "pass", "failed": "fail"}.get(report["verdict"], "inconclusive")
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1">
<title>{escape(title)}</title><style>{_STYLE}</style></head><body>
<h1>{escape(title)}</h1>
<p class="{verdict}"><span class="badge">{escape(report["summary"])}</span></p>
<p class="soft">{escape(report["dtype"])} · {escape(report["mode"])} · {escape(report["intent"])} · length {report["length"]} · {report["seconds"]:.1f} s ·
noren {escape(report["noren"])}</p>
<p class="soft">{escape(report["rounding"])}</p>
{"".join(_check(check) for check in checks)}
<p class="soft">Not tested: {escape("; ".join(report["not_tested"]))}.</p>
</body></html>"""


def _check(check: dict[str, Any]) -> str:
    verdict = check["verdict"]
    body = ""
    if check["where"]:
        body += f"<p>First in {_code(check['where'])}.</p>"
    if verdict == "fail":
        body += _strips(check) + f'<p class="soft">Usually: {escape(check["usually"])}.</p>'
    if check["trials"]:
        rows = "".join(_trial(trial) for trial in check["trials"])
        body += f"<table><tr><th>trial</th><th>verdict</th><th>what was seen</th></tr>{rows}</table>"
    return (
        f'<details class="{verdict.replace(" ", "-")}"{" open" if verdict == "fail" else ""}><summary>'
        f'<span class="badge">{verdict}</span><strong>{escape(check["title"])}</strong><span>{_code(check["sentence"])}</span>'
        f"</summary>{body}</details>"
    )


def _trial(trial: dict[str, Any]) -> str:
    verdict = trial["verdict"]
    where = f" First in {trial['where']}." if trial["where"] else ""
    return (
        f'<tr><td>{_code(trial["what"])}</td><td class="{verdict.replace(" ", "-")}"><span class="badge">{verdict}</span></td>'
        f"<td>{_code(trial['sentence'] + where)}</td></tr>"
    )


def _strips(check: dict[str, Any]) -> str:
    """Returns HTML that draws the changed inputs and the changed outputs, for the first failed trial of `check` that has both."""
    for trial in check["trials"]:
        if trial["verdict"] == "fail" and "moved" in trial:
            top = max(*trial["moved"], *trial["changed"]) + 1
            return f'<div class="strip">changed  {strip(trial["changed"], top)}\nmoved    {strip(trial["moved"], top)}</div>'
    return ""


def _code(text: str) -> str:
    """Escapes a text for HTML and marks text in backquotes as code."""
    parts = escape(text).split("`")
    return "".join(f"<code>{part}</code>" if i % 2 else part for i, part in enumerate(parts))

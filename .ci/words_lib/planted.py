"""Texts planted for each rule: each must be found, in every kind of file, and an exception must hide it."""

from __future__ import annotations

import re
from pathlib import Path

from check import RULES, Exceptions, exceptions, in_file
from rules import NAMES

FORMS = {
    "crates/planted/src/doc.rs": "/// {}\nfn planted() {{}}\n",
    "crates/planted/src/comment.rs": "fn planted() {{\n    // {}\n}}\n",
    "crates/planted/src/message.rs": 'fn planted() -> &\'static str {{\n    "These words come first. {}"\n}}\n',
    "planted.py": 'def planted():\n    """{}"""\n',
    "planted.js": "/** {} */\nexport const planted = 1;\n",
    "planted.html": "<p>These words come first. {}</p>\n",
    "planted.md": "# A heading\n\nSome words.\n\n{}\n",
}
# Code, data of tests and plain words: nothing here is to be found.
CLEAN = {
    "crates/planted/src/clean.rs": "/// Returns `nobody` of a row.\n///\n/// ```\n/// let desk = \"told\";\n/// ```\nfn clean() {}\n"
    '#[cfg(test)]\nmod tests {\n    const DATA: &str = "nobody told the patient";\n}\n',
    "clean.md": "Plain words, `mend`.\n\n```sh\nmend nobody\n```\n",
}


def run(root: Path) -> int:
    """Plants the texts and compares the findings with the rules; returns the exit status."""
    none, problems, expected = Exceptions([]), [], 0
    for rule in RULES:
        for path, form in FORMS.items():
            if rule.docs_only and not path.endswith(("doc.rs", ".py", ".js")):
                continue
            expected += 1
            text = form.format(rule.planted)
            if rule.name not in {finding.rule for finding in in_file(path, text, none)}:
                problems.append(f"not found: `{rule.name}` in {path}")
            hidden = Exceptions([(re.compile(r".*\s*" + re.escape(rule.planted)), "")])
            if rule.name in {finding.rule for finding in in_file(path, text, hidden)}:
                problems.append(f"found in spite of an exception: `{rule.name}` in {path}")
    for name in NAMES:
        expected += 1
        if not list(in_file("crates/planted/src/name.rs", f"fn a_{name}_row() {{}}\n", none)):
            problems.append(f"not found: the name {name}")
    problems += [f"found without a fault: {finding}" for path, text in CLEAN.items() for finding in in_file(path, text, none)]
    exceptions(root)
    for problem in problems:
        print("error:", problem)
    if not problems:
        print(f"self-test: {expected} planted texts found")
    return 1 if problems else 0

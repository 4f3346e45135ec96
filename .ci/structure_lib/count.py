"""Lines of code outside tests, without comments, documentation and blank lines."""

from __future__ import annotations

import re
from collections import Counter

import javascript
import python
import rust
from tree import Tree, is_test

MARKUP = {".css": re.compile(r"/\*.*?\*/", re.S), ".html": re.compile(r"<!--.*?-->", re.S)}
LANGUAGES = {".rs": "Rust", ".py": "Python", ".pyi": "Python", ".js": "JavaScript", ".mjs": "JavaScript", ".css": "CSS, HTML", ".html": "CSS, HTML"}


def code(path: str, suffix: str, text: str) -> list[str]:
    """Returns the lines of code."""
    if suffix == ".rs":
        lines = rust.read(text).text.splitlines()
    elif suffix in (".py", ".pyi"):
        all_lines = text.splitlines()
        return [all_lines[line - 1] for line in sorted(python.code_lines(text))]
    elif suffix in (".js", ".mjs"):
        lines = javascript.without_comments(text)[0].splitlines()
    else:
        lines = MARKUP[suffix].sub(lambda found: rust.blank(found[0]), text).splitlines()
    return [line for line in lines if line.strip()]


def count(tree: Tree) -> tuple[Counter[str], Counter[str]]:
    """Returns lines by crate and language, and the characters in them without spaces around.

    Tests are left out: folders `tests`, what `#[cfg(test)]` marks, fuzz targets, and what runs or checks them (`.ci`).
    So are the benchmarks of other projects.
    """
    lines: Counter[str] = Counter()
    characters: Counter[str] = Counter()
    for path, text in tree.items():
        suffix = "." + path.rsplit(".", 1)[-1]
        parts = path.split("/")
        if suffix not in LANGUAGES or is_test(path) or parts[0] == ".ci" or path.startswith("benches/peers/"):
            continue
        found = code(path, suffix, text)
        area = parts[1] if parts[0] == "crates" else parts[0]
        for key in (area, "in all", f"in all, {LANGUAGES[suffix]}"):
            lines[key] += len(found)
            characters[key] += sum(len(line.strip()) for line in found)
    return lines, characters


def table(columns: dict[str, Tree]) -> str:
    """Returns the counts side by side, with what changed from the first to the last."""
    counted = {name: count(tree) for name, tree in columns.items()}
    first, last = list(counted.values())[0], list(counted.values())[-1]
    every = {key for lines, _ in counted.values() for key in lines}
    rows = sorted(every, key=lambda key: (key.startswith("in all"), key))
    width = max(len(key) for key in rows) + 1
    out = [" " * width + "".join(f"{name:>14}" for name in counted) + (f"{'change':>10}" if len(counted) > 1 else "")]
    for key in rows:
        line = f"{key:<{width}}" + "".join(f"{lines[key]:>14,}" for lines, _ in counted.values())
        if len(counted) > 1 and first[0][key]:
            line += f"{100 * (last[0][key] / first[0][key] - 1):>+9.1f}%"
        out.append(line)
    density = "".join(f"{characters['in all'] / lines['in all']:>14.1f}" for lines, characters in counted.values())
    out.append(f"{'characters a line':<{width}}{density}")
    return "\n".join(out)

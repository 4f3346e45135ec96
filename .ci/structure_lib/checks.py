"""All that is wrong with the structure of a tree: findings, each one line that stays the same, with details."""

from __future__ import annotations

from collections.abc import Iterator

import crates
import javascript
import python
from graph import Arrow, circles
from rules import EXEMPT, FILE_LINES, FUNCTION_LINES, LONG_FUNCTIONS, SECOND_PLACES, SINGLES
from rust import Function, read
from rust_graph import Crate
from tree import Tree, is_test

# finding -> details; a function's length is a detail, so that a known long function may shrink
Findings = dict[str, str]


def check(tree: Tree) -> Findings:
    """Returns everything that is wrong with the tree."""
    found = crates.check(tree)
    rust_crates = {name: Crate(tree, folder) for name, folder in crates.members(tree).items()}
    for name, crate in rust_crates.items():
        found |= circles_of(name, "::", crate.arrows())
    for folder in folders(tree, "/__init__.py", "/python/"):
        package = python.Package(tree, folder)
        found |= circles_of(package.name, ".", package.arrows())
    for folder in folders(tree, "/page/js/main.js", "/page/js/"):
        found |= circles_of(folder, "/", javascript.arrows(tree, folder))
    return found | sizes(tree) | singles(tree)


def folders(tree: Tree, last: str, inside: str) -> list[str]:
    """Returns the outermost folders with a file of that name."""
    found = sorted(path.removesuffix("/" + last.rsplit("/", 1)[1]) for path in tree if path.endswith(last) and inside in path)
    return [folder for folder in found if not is_test(folder + "/") and not any(folder.startswith(f + "/") for f in found)]


def circles_of(name: str, separator: str, arrows: list[Arrow]) -> Findings:
    """Returns the circles among the modules of a crate, package or page."""
    found = {}
    for circle in circles(arrows):
        where = separator.join((name, *circle.folder))
        found[f"circle {where}: {', '.join(circle.members)}"] = "\n".join(circle.arrows)
    return found


def functions_of(path: str, text: str) -> list[Function]:
    """Returns the functions of a file, outside of its tests."""
    if path.endswith(".rs"):
        return read(text).functions()
    if path.endswith((".js", ".mjs")):
        return javascript.functions(text)
    return python.functions(text)


def checked(tree: Tree) -> Iterator[tuple[str, str]]:
    """Returns the files with code in Rust, Python and JavaScript that no test owns."""
    for path, text in tree.items():
        script = path.startswith(".ci/") and "." not in path.rsplit("/", 1)[1]
        if not is_test(path) and (script or path.endswith((".rs", ".py", ".js", ".mjs"))):
            yield path, text


def sizes(tree: Tree) -> Findings:
    """Returns the files and functions that are too long."""
    found: Findings = {}
    for path, text in checked(tree):
        lines = text.count("\n")
        if lines > FILE_LINES:
            found[f"file {path}"] = f"{lines} lines, above {FILE_LINES}"
        for function in functions_of(path, text):
            excepted = (path.rsplit("/", 1)[1], function.name) in LONG_FUNCTIONS
            if function.lines > FUNCTION_LINES and not excepted:
                finding = f"function {path}: {function.name}"
                found[finding] = f"{function.lines} lines, above {FUNCTION_LINES}, at line {function.line}"
    return found


def singles(tree: Tree) -> Findings:
    """Returns what exists in more than one file, or outside of its folder."""
    places: dict[str, dict[str, int]] = {}
    for path, text in checked(tree):
        if not path.endswith(".rs") or EXEMPT.search(path):
            continue
        source = read(text)
        for rule in SINGLES:
            if (rule.name, path) in SECOND_PLACES:
                continue
            if first := rule.pattern.search(source.text if rule.raw else source.code):
                places.setdefault(rule.name, {})[path] = source.line(first.start())
    found: Findings = {}
    for rule in SINGLES:
        files = places.get(rule.name, {})
        if rule.folder:
            for path, line in files.items():
                if not path.startswith(rule.folder):
                    found[f"twin {rule.name}: in {path}"] = f"line {line}; its place is {rule.folder}"
        elif len(files) > 1:
            lines = [f"{path}:{line}" for path, line in files.items()]
            found[f"twin {rule.name}"] = "\n".join([f"{len(files)} files, but it exists once", *lines])
    return found

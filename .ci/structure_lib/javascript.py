"""JavaScript modules: code without comments and strings, functions, and imports."""

from __future__ import annotations

import posixpath
import re

from graph import Arrow
from rust import NOT_NEWLINE, Function, blank, closing
from tree import Tree

TOKEN = re.compile(r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'|`|/(?![*/])|[{}]", re.S)
REGULAR = re.compile(r"/(?:\\.|\[(?:\\.|[^\]\\\n])*\]|[^/\\\[\n])+/[a-z]*")
BEFORE_REGULAR = re.compile(r"(?:[(,=:\[!&|?{};+\-*%<>~^]|\b(?:return|typeof|case|in|of|delete|void|throw))\s*$")
TEMPLATE = re.compile(r"(?:\\.|\$(?!\{)|[^`\\$])*(?P<end>`|\$\{|\Z)", re.S)
FUNCTION = re.compile(
    r"\bfunction\s*\*?\s*(?P<plain>[\w$]*)\s*\("
    r"|(?:(?P<arrow>[\w$]+)\s*[=:]\s*)?(?:async\s+)?(?:\([^()]*(?:\([^()]*\)[^()]*)*\)|[\w$]+)\s*=>\s*\{"
    r"|^[ \t]+(?:(?:static|async|get|set|\*)\s+)*(?P<method>\#?[\w$]+)\s*\([^;{}]*\)\s*\{",
    re.M,
)
CONTROL = {"if", "for", "while", "switch", "catch", "function", "with", "return"}
IMPORT = re.compile(r"""(?:\bfrom|\bimport)\s*\(?\s*["'](\.[^"']+)["']""")


def without_comments(text: str) -> tuple[str, str]:
    """Returns the text without comments, and without comments and strings; every line keeps its number."""
    kept: list[str] = []
    code: list[str] = []
    templates: list[int] = []  # for each template literal that is open, the braces open in its expression
    at = 0

    def add(piece: str, silent: bool, string: bool) -> None:
        kept.append(blank(piece) if silent else piece)
        code.append(blank(piece) if silent else NOT_NEWLINE.sub('"', piece) if string else piece)

    def template(start: int) -> int:
        found = TEMPLATE.match(text, start)
        add(found[0], False, True)
        if found["end"] == "${":
            templates.append(0)
        return found.end()

    while found := TOKEN.search(text, at):
        add(text[at : found.start()], False, False)
        token, at = found[0], found.end()
        if token.startswith(("//", "/*")):
            add(token, True, False)
        elif token == "`":
            add(token, False, True)
            at = template(at)
        elif token == "/":
            regular = REGULAR.match(text, found.start())
            if regular and (not "".join(code[-8:]).strip() or BEFORE_REGULAR.search("".join(code[-8:]))):
                add(regular[0], False, True)
                at = regular.end()
            else:
                add(token, False, False)
        elif token in "{}":
            if templates and token == "}" and templates[-1] == 0:
                templates.pop()
                add(token, False, True)
                at = template(at)
            else:
                if templates:
                    templates[-1] += 1 if token == "{" else -1
                add(token, False, False)
        else:
            add(token, False, True)
    add(text[at:], False, False)
    return "".join(kept), "".join(code)


def functions(text: str) -> list[Function]:
    """Returns every function with a body in braces."""
    _, code = without_comments(text)
    found = []
    for match in FUNCTION.finditer(code):
        if match["method"] in CONTROL:
            continue
        at = match.end() - 1
        if match["plain"] is not None:
            at = code.find("{", closing(code, at))
        name = match["plain"] or match["arrow"] or match["method"] or "=>"
        first = code.count("\n", 0, match.start()) + 1
        lines = code.count("\n", match.start(), closing(code, at)) + 1
        found.append(Function(name, first, lines))
    return found


def arrows(tree: Tree, folder: str) -> list[Arrow]:
    """Returns the imports between the modules of a page."""
    found = []
    for file in sorted(tree):
        if not file.startswith(folder + "/") or not file.endswith((".js", ".mjs")):
            continue
        kept, _ = without_comments(tree[file])
        for match in IMPORT.finditer(kept):
            target = posixpath.normpath(posixpath.join(posixpath.dirname(file), match[1]))
            if target.startswith(folder + "/"):
                line = kept.count("\n", 0, match.start()) + 1
                names = [tuple(path[len(folder) + 1 :].split("/")) for path in (file, target)]
                found.append(Arrow(names[0], names[1], f"{file}:{line}", "import"))
    return found

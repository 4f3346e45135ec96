"""Rust source without comments, strings and tests; its functions and its `use` declarations."""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass, field

TOKEN = re.compile(
    r"""//[^\n]*                                         # comments to the end of the line
      | /\*                                              # block comments, which nest
      | \b(?:b|c)?r(?P<hashes>\#*)".*?"(?P=hashes)       # raw strings
      | (?:\b[bc])?"(?:\\.|[^"\\])*"                     # strings
      | (?:\bb)?'(?:\\(?:u\{[^}]*\}|x..|.)|[^\\'\n])'    # characters, not lifetimes
    """,
    re.S | re.X,
)
NOT_NEWLINE = re.compile(r"[^\n]")
TEST = re.compile(r"#!?\[\s*(?:cfg\(\s*(?:all\(\s*)?test\b[^\]]*|test)\s*\]")
ATTRIBUTE = re.compile(r"\s*#\[")
ITEM = re.compile(
    r"\s*(?:pub(?:\([^)]*\))?\s+)?(?:fn|struct|enum|union|trait|impl|mod|use|type|const|static|unsafe|extern|async|let|macro_rules)\b"
)
BRACKET = re.compile(r"[{}()\[\]]")
FUNCTION = re.compile(r"\bfn\s+([A-Za-z_]\w*)")
DEFINED = re.compile(
    r"\b(?:fn|struct|enum|union|trait|type|const|static)\s+(?:mut\s+)?([A-Za-z_]\w*)|\bmacro_rules!\s*([A-Za-z_]\w*)"
)
MODULE = re.compile(r"\bmod\s+([A-Za-z_]\w*)\s*;")
USE = re.compile(r"(?:\bpub(\([^)]*\))?\s+)?\buse\s+([^;]+);")
PUBLIC = re.compile(r"\bpub\b")


def blank(text: str) -> str:
    """Returns as many lines as the text has, of spaces."""
    return NOT_NEWLINE.sub(" ", text)


def end_of_block_comment(text: str, start: int) -> int:
    depth, at = 0, start
    for found in re.compile(r"/\*|\*/").finditer(text, start):
        depth += 1 if found[0] == "/*" else -1
        at = found.end()
        if depth == 0:
            return at
    return len(text)


def without_comments(text: str) -> tuple[str, str]:
    """Returns the text without comments, and without comments and strings; every line keeps its number."""
    kept, code, at = [], [], 0
    while found := TOKEN.search(text, at):
        between, token = text[at : found.start()], found[0]
        kept.append(between)
        code.append(between)
        at = found.end()
        if token.startswith("/*"):
            at = end_of_block_comment(text, found.start())
            token = text[found.start() : at]
        if token.startswith(("//", "/*")):
            kept.append(blank(token))
            code.append(blank(token))
        else:
            kept.append(token)
            code.append(NOT_NEWLINE.sub('"', token))
    kept.append(text[at:])
    code.append(text[at:])
    return "".join(kept), "".join(code)


def closing(code: str, opening: int) -> int:
    """Returns the position after the bracket that closes the one at `opening`."""
    depth = 0
    for found in BRACKET.finditer(code, opening):
        depth += 1 if found[0] in "{([" else -1
        if depth == 0:
            return found.end()
    return len(code)


def end_of_item(code: str, start: int) -> int:
    """Returns the position after the item, field or statement that begins at `start`, after its attributes."""
    while found := ATTRIBUTE.match(code, start):
        start = closing(code, found.end() - 1)
    stops = ";" if ITEM.match(code, start) else ";,"
    at = start
    while at < len(code):
        char = code[at]
        if char in stops:
            return at + 1
        if char in ")]}":
            return at
        if char in "([":
            at = closing(code, at)
        elif char == "{":
            end = closing(code, at)
            return end + 1 if code[end : end + 1] == ";" else end
        else:
            at += 1
    return at


@dataclass
class Use:
    """One name that a `use` declaration brings: `segments`, under `name`; all names of a module where `name` is `*`."""

    segments: tuple[str, ...]
    name: str
    public: bool
    line: int


@dataclass
class Function:
    """A function and the lines from its signature to its closing brace."""

    name: str
    line: int
    lines: int


@dataclass
class Source:
    """A Rust file: text without comments, code without strings too, both without tests."""

    text: str
    code: str
    starts: list[int]
    tested: set[str] = field(default_factory=set)

    def line(self, position: int) -> int:
        """Returns the line of a position, counted from 1."""
        return bisect_right(self.starts, position)

    def functions(self) -> list[Function]:
        """Returns every function that has a body."""
        found = []
        for match in FUNCTION.finditer(self.code):
            at = match.end()
            while at < len(self.code) and self.code[at] not in "{;":
                at = closing(self.code, at) if self.code[at] in "([" else at + 1
            if at < len(self.code) and self.code[at] == "{":
                first, last = self.line(match.start()), self.line(closing(self.code, at) - 1)
                found.append(Function(match[1], first, last - first + 1))
        return found

    def outside_braces(self) -> str:
        """Returns the code of the file's top level."""
        parts, depth, at = [], 0, 0
        for found in re.compile(r"[{}]").finditer(self.code):
            if found[0] == "{":
                if depth == 0:
                    parts.append(self.code[at : found.start()])
                depth += 1
            else:
                depth -= 1
                at = found.end()
        parts.append(self.code[at:])
        return " ".join(parts)

    def items(self) -> set[str]:
        """Returns the names that the top level defines."""
        return {a or b for a, b in DEFINED.findall(USE.sub("", self.outside_braces()))}

    def uses(self) -> list[Use]:
        """Returns what the `use` declarations bring, at any depth."""
        found = []
        for match in USE.finditer(self.code):
            public = bool(PUBLIC.match(match[0]))
            for segments, name in expand(match[2]):
                found.append(Use(segments, name, public, self.line(match.start())))
        return found

    def without_uses(self) -> str:
        """Returns the code without `use` declarations, at the same positions."""
        return USE.sub(lambda match: blank(match[0]), self.code)


def expand(tree: str) -> list[tuple[tuple[str, ...], str]]:
    """Returns the paths of a `use` tree with the names they bring."""
    tree = tree.strip()
    opening = tree.find("{")
    if opening < 0:
        path, _, alias = tree.partition(" as ")
        segments = tuple(part.strip() for part in path.split("::") if part.strip())
        if segments[-1] == "self" and len(segments) > 1:
            segments = segments[:-1]
        return [(segments[:-1], "*")] if segments[-1] == "*" else [(segments, alias.strip() or segments[-1])]
    before = tuple(part.strip() for part in tree[:opening].split("::") if part.strip())
    inner, depth, part, parts = tree[opening + 1 : tree.rfind("}")], 0, "", []
    for char in inner:
        depth += {"{": 1, "}": -1}.get(char, 0)
        if char == "," and depth == 0:
            parts.append(part)
            part = ""
        else:
            part += char
    found = []
    for part in [*parts, part]:
        if part.strip().startswith("self") and part.strip()[4:].strip()[:3].strip() in ("", "as"):
            alias = part.strip()[4:].replace("as", "", 1).strip()
            found.append((before, alias or before[-1]))
        elif part.strip():
            found += [(before + segments, name) for segments, name in expand(part)]
    return found


def read(text: str) -> Source:
    """Reads a file and leaves its tests out."""
    kept, code = without_comments(text)
    starts = [0] + [found.end() for found in re.finditer("\n", code)]
    tested: set[str] = set()
    while found := TEST.search(code):
        inner = found[0].startswith("#!")
        end = len(code) if inner else end_of_item(code, found.end())
        tested.update(MODULE.findall(code[found.start() : end]))
        code = code[: found.start()] + blank(code[found.start() : end]) + code[end:]
        kept = kept[: found.start()] + blank(kept[found.start() : end]) + kept[end:]
    return Source(kept, code, starts, tested)

"""The texts of a file: comments, documentation, messages and prose, each with its place."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import enclosing
import javascript
import placeholders
import rust
import tree

DOC_MARKS = ("///", "//!", "/**", "/*!")
MARK = re.compile(r"^[ \t]*(?://[/!]?|/\*[*!]?|\*/|\*(?!\*)|#)[ \t]?|[ \t]*\*/[ \t]*$", re.M)
FENCE = re.compile(r"^[ \t>]*(```+|~~~+).*?(?:^[ \t>]*\1|\Z)", re.S | re.M)
INLINE = re.compile(r"(`+)(?!`).+?(?<!`)\1(?!`)", re.S)
LINK_TARGET = re.compile(r"(?<=\])\([^)\n]*\)")
PLACEHOLDER = re.compile(r"\$?\{[^{}]*\}")
WORDS = re.compile(r"[A-Za-z]{2,}(?:[,.:;]? [\w`'({]+){2,}")
STRING_BODY = re.compile(r'^[a-z]*\#*"|"\#*$')
ESCAPED_NEWLINE = re.compile(r"\\\n[ \t]*|\\n")
HTML_SILENT = re.compile(r"<!--.*?-->|<(script|style)\b.*?</\1>", re.S)
HTML_TEXT = re.compile(r">([^<>]+)<|\b(?:title|placeholder|aria-label|alt|content)=\"([^\"]*)\"")


@dataclass
class Text:
    """One text: a comment (lines without a gap count as one), a documentation comment, a message, or a page of prose.

    `item` is the signature below a documentation comment. `owner` is the path of the item that contains it, as documentation
    pages show it: the module, then the type, trait or implementation. `filled` is a message with the expressions of its
    placeholders; of a piece of `sentence![...]`, the whole sentence.
    """

    path: str
    line: int
    kind: str
    text: str
    item: str = ""
    owner: str = ""
    filled: str = ""
    about: str = ""

    def plain(self) -> str:
        """Returns the text without code; every character keeps its place."""
        text = FENCE.sub(lambda found: rust.blank(found[0]), self.text)
        text = INLINE.sub(lambda found: "`" + rust.blank(found[0])[1:-1] + "`", text)
        if self.kind == "message":
            text = PLACEHOLDER.sub(lambda found: rust.blank(found[0]), text)
        return LINK_TARGET.sub(lambda found: rust.blank(found[0]), text)


def unmarked(comment: str) -> str:
    """Returns the text of a comment; every line keeps its number."""
    return MARK.sub("", comment)


def is_message(text: str) -> bool:
    """Returns whether a string literal holds at least three words of prose."""
    return bool(WORDS.search(text))


BODY = re.compile(r"\s*(?:pub(?:\([^)]*\))?\s+)?(?:(?:const|async|unsafe|extern|default)\s+)*(?:fn|struct|enum|union|trait|impl|mod)\b")
VALUE = re.compile(r"\s*(?:pub(?:\([^)]*\))?\s+)?(?:const|static|type)\b")


def signature(code: str, text: str, start: int) -> str:
    """Returns the text of the item at `start` up to its body or value, without attributes and comments, in one line."""
    while found := rust.ATTRIBUTE.match(code, start):
        start = rust.closing(code, found.end() - 1)
    ends = "{;" if BODY.match(code, start) else "=;" if VALUE.match(code, start) else "{};,="
    at, angles = start, 0
    while at < len(code) and (angles > 0 or code[at] not in ends):
        angles += (code[at] == "<") - (code[at] == ">" and code[at - 1] not in "-=")
        at = rust.closing(code, at) if code[at] in "([" else at + 1
    return " ".join(re.sub(r"//[^\n]*", "", text[start:at]).split())


ITEM = re.compile(r"\b(?:impl|struct|enum|union|trait|mod)\b.*", re.S)
VARIANT = re.compile(r"(\w+)\s*$")


def owners(code: str, text: str) -> Iterator[tuple[int, int, str]]:
    """Gives where the bodies of types, traits, implementations, modules and enum variants begin and end, and their names."""
    open_at: list[tuple[int, str]] = []
    boundary = 0
    for found in re.finditer(r"[{};]", code):
        start = found.start()
        if found[0] == "{":
            item = ITEM.search(code, boundary, start)
            variant = VARIANT.search(code, boundary, start)
            name = ""
            if item:
                name = re.split(r"\swhere\s", " ".join(text[item.start() : start].split()))[0]
            elif variant and open_at and open_at[-1][1].startswith("enum"):
                name = variant[1]
            open_at.append((start, name))
        elif found[0] == "}" and open_at:
            first, name = open_at.pop()
            if name:
                yield first, start, name
        boundary = found.end()


def joined(pieces: list[tuple[int, str]], text: str) -> Iterator[tuple[int, str]]:
    """Joins line comments of the same kind on successive lines; gives places and texts."""
    group: list[tuple[int, str]] = []
    for start, piece in pieces:
        if group:
            last, before = group[-1]
            gap = text[last + len(before) : start]
            mark = re.match(r"//[/!]?|/\*", piece)[0]
            if gap.strip() or gap.count("\n") != 1 or not before.startswith(mark) or mark == "/*":
                yield group[0][0], text[group[0][0] : last + len(before)]
                group = []
            elif mark == "//" and before.startswith(("///", "//!")):
                yield group[0][0], text[group[0][0] : last + len(before)]
                group = []
        group.append((start, piece))
    if group:
        yield group[0][0], text[group[0][0] : group[-1][0] + len(group[-1][1])]


def of_rust(path: str, text: str) -> Iterator[Text]:
    """Gives the comments of a Rust file and the messages outside its tests."""
    _, code = rust.without_comments(text)
    starts = [0] + [found.end() for found in re.finditer("\n", text)]
    tests = [(0, len(text))] if tree.is_test(path) else list(tests_of(code))
    sentences = list(placeholders.sentences(code, text))
    comments, messages, at = [], [], 0
    while found := rust.TOKEN.search(text, at):
        start, token = found.start(), found[0]
        at = found.end()
        if token.startswith("/*"):
            at = rust.end_of_block_comment(text, start)
            token = text[start:at]
        if token.startswith(("//", "/*")):
            comments.append((start, token))
        elif token[-1] != "'" and not any(first <= start < end for first, end in tests):
            body = ESCAPED_NEWLINE.sub(lambda gap: rust.blank(gap[0]), STRING_BODY.sub("", token))
            if is_message(body):
                whole = (sentence for first, end, sentence in sentences if first < start < end)
                filled = next(whole, None) or placeholders.of_rust(body, code, text, found.end())
                messages.append((start, Text(path, bisect_right(starts, start), "message", body, filled=filled)))
    bodies = sorted(owners(code, text))
    items = []
    for start, comment in joined(comments, text):
        doc = comment.startswith(DOC_MARKS) and not comment.startswith("////")
        item = owner = ""
        if doc:
            inner = comment.startswith(("//!", "/*!"))
            item = f"mod {module(path)}" if inner else signature(code, text, start + len(comment))
            owner = "" if inner else "::".join([module(path), *(name for first, end, name in bodies if first < start < end)])
            if not inner:
                items.append(enclosing.Item(start, rust.end_of_item(code, start + len(comment)), item, unmarked(comment), owner))
        yield Text(path, bisect_right(starts, start), "doc" if doc else "comment", unmarked(comment), item, owner)
    yield from placed(messages, items, module(path))


def placed(messages: list[tuple[int, Text]], items: list[enclosing.Item], module: str) -> Iterator[Text]:
    """Gives messages, each with the documented item that contains it."""
    for start, message in messages:
        message.owner = module
        if item := enclosing.innermost(items, start):
            message.item, message.owner, message.about = item.signature, item.owner, item.documentation
        yield message


def tests_of(code: str) -> Iterator[tuple[int, int]]:
    """Gives where the items begin and end that are compiled for tests only."""
    for found in rust.TEST.finditer(code):
        yield found.start(), len(code) if found[0].startswith("#!") else rust.end_of_item(code, found.end())


def module(path: str) -> str:
    """Returns the name of the module that a Rust file is."""
    parts = path.removesuffix(".rs").split("/")
    return "::".join(part for part in parts[1:] if part not in ("src", "mod", "lib")).replace("-", "_")


def python_module(path: str) -> str:
    """Returns the name of the module that a Python file is."""
    return ".".join(part for part in re.sub(r"^.*/python/|\.pyi?$", "", path).split("/") if part != "__init__")


DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def of_python(path: str, text: str) -> Iterator[Text]:
    """Gives the comments, docstrings and, outside tests, messages of a Python file."""
    nodes = list(ast.walk(ast.parse(text)))
    classes = {id(part): node.name for node in nodes if isinstance(node, ast.ClassDef) for part in node.body}
    lines = text.splitlines()
    silent = set()
    items, messages = [], []
    for node in nodes:
        if isinstance(node, ast.JoinedStr):
            silent.update(map(id, node.values))
        elif isinstance(node, DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            first = node.body[0]
            silent.add(id(first.value))
            item = f"module {path.rsplit('/', 1)[-1]}"
            if not isinstance(node, ast.Module):
                item = " ".join(" ".join(lines[node.lineno - 1 : max(first.lineno - 1, node.lineno)]).split())
            owner = ".".join(part for part in (python_module(path), classes.get(id(node))) if part)
            yield Text(path, first.lineno, "doc", first.value.value, item, owner)
            if not isinstance(node, ast.Module):
                items.append(enclosing.Item(node.lineno - 1, node.end_lineno + 1, item, first.value.value, owner))
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and id(node.value) not in silent:
            if isinstance(node.value.value, str):
                silent.add(id(node.value))
                owner = ".".join(part for part in (python_module(path), classes.get(id(node))) if part)
                yield Text(path, node.lineno, "doc", node.value.value, lines[node.lineno - 2].strip(), owner)
    for node in [] if tree.is_test(path) else nodes:
        value = filled = None
        if isinstance(node, ast.JoinedStr):
            value = "".join(part.value if isinstance(part, ast.Constant) else "{}" for part in node.values)
            filled = placeholders.of_python(node)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in silent:
            value = filled = node.value
        if value is not None and is_message(value):
            messages.append((node.lineno, Text(path, node.lineno, "message", value, filled=filled)))
    yield from placed(messages, items, python_module(path))
    yield from of_python_comments(path, text)


def of_python_comments(path: str, text: str) -> Iterator[Text]:
    """Gives the comments of a Python file; those below each other count as one."""
    group: list[tokenize.TokenInfo] = []
    tokens = tokenize.generate_tokens(io.StringIO(text).readline) if "#" in text else ()
    for token in [*(one for one in tokens if one.type == tokenize.COMMENT), None]:
        if group and (token is None or token.start != (group[-1].start[0] + 1, group[-1].start[1])):
            yield Text(path, group[0].start[0], "comment", "\n".join(unmarked(one.string) for one in group))
            group = []
        if token is not None:
            group.append(token)


def of_javascript(path: str, text: str) -> Iterator[Text]:
    """Gives the comments and, outside tests, messages of a JavaScript file."""
    kept, code = javascript.without_comments(text)
    comments = [(found.start(), found[0]) for found in re.finditer(r"//[^\n]*|/\*.*?\*/", text, re.S) if not kept[found.start()].strip()]
    items, messages = [], []
    for start, comment in joined(comments, text):
        doc = comment.startswith("/**")
        item = signature(code, text, start + len(comment)) if doc else ""
        owner = path.rsplit("/", 1)[-1] if doc else ""
        if item:
            items.append(enclosing.Item(start, rust.end_of_item(code, start + len(comment)), item, unmarked(comment), owner))
        yield Text(path, text.count("\n", 0, start) + 1, "doc" if doc else "comment", unmarked(comment), item, owner)
    if tree.is_test(path) or path.endswith(".test.mjs"):
        return
    # the template literals whose expression is being read: their place, their text with and without expressions, the expression's place
    begun: list[tuple[int, str, str, int]] = []
    for found in re.finditer(r'"+', code):
        start, body = found.start(), text[found.start() : found.end()]
        filled = body
        if body.startswith("}") and begun:
            start, before, filled, expression = begun.pop()
            filled += placeholders.shown(text[expression : found.start()]) + body[1:]
            body = before + "{}" + body[1:]
        if body.endswith("${"):
            begun.append((start, body[:-2], filled[:-2], found.end()))
            continue
        body, filled = (one.strip("\"'`").replace("\\n", "  ").replace("\\`", "`") for one in (body, filled))
        if is_message(body):
            messages.append((start, Text(path, text.count("\n", 0, start) + 1, "message", body, filled=filled)))
    yield from placed(messages, items, path.rsplit("/", 1)[-1])


def of_html(path: str, text: str) -> Iterator[Text]:
    """Gives the texts of a page that a reader sees."""
    shown = HTML_SILENT.sub(lambda found: rust.blank(found[0]), text)
    for found in HTML_TEXT.finditer(shown):
        body = found[1] or found[2] or ""
        if re.search("[A-Za-z]{2}", body):
            yield Text(path, text.count("\n", 0, found.start()) + 1, "message", body)


def of_hashes(path: str, text: str) -> Iterator[Text]:
    """Gives the comments of a shell script, a workflow or a TOML file, without its first line if that names an interpreter."""
    group: list[str] = []
    first = 0
    for number, line in enumerate([*text.splitlines(), ""], 1):
        found = re.match(r"[ \t]*#(?!!)(.*)$|[^'\"#]*[ \t]#[ \t](.*)$", line)
        whole = found and found[1] is not None
        if group and not whole:
            yield Text(path, first, "comment", "\n".join(group))
            group = []
        if whole:
            first = first if group else number
            group.append(found[1])
        elif found:
            yield Text(path, number, "comment", found[2])
    for found in re.finditer(r'^description = "(.*)"$', text, re.M):
        yield Text(path, text.count("\n", 0, found.start()) + 1, "message", found[1])


def of_style(path: str, text: str) -> Iterator[Text]:
    """Gives the comments of a style sheet."""
    for found in re.finditer(r"/\*.*?\*/", text, re.S):
        yield Text(path, text.count("\n", 0, found.start()) + 1, "comment", unmarked(found[0]))


def of_markdown(path: str, text: str) -> Iterator[Text]:
    """Gives a Markdown page as one text. Of the changelog only what is not released yet."""
    if path == "CHANGELOG.md":
        text = text[: next((found.start() for found in re.finditer(r"^## .*\(\d{4}-", text, re.M)), len(text))]
    yield Text(path, 1, "prose", text)


READERS = {
    ".rs": of_rust,
    ".py": of_python,
    ".pyi": of_python,
    ".js": of_javascript,
    ".mjs": of_javascript,
    ".html": of_html,
    ".css": of_style,
    ".md": of_markdown,
    ".toml": of_hashes,
    ".yml": of_hashes,
    ".sh": of_hashes,
}


def of_file(path: str, text: str) -> Iterator[Text]:
    """Gives the texts of a file, or none of a file of another kind."""
    reader = READERS.get(Path(path).suffix)
    if reader is None and text.startswith("#!"):
        reader = of_python if "python" in text.split("\n", 1)[0] else of_hashes
    if reader is not None:
        yield from reader(path, text)

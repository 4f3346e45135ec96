"""The expressions that fill the placeholders of a message."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import rust

PLACEHOLDER = re.compile(r"\{\{|\}\}|\{(\w*)(?::[^{}]*)?\}")
NAMED = re.compile(r"(\w+)\s*=(?!=)\s*(.*)", re.S)
SENTENCE = re.compile(r"\bsentence!\[")
STRING = re.compile(r'(?:format!\()?"(.*?)"\)?', re.S)
LONGEST = 60


def shown(expression: str) -> str:
    """Returns an expression in one line between braces; of a long one, its beginning."""
    expression = " ".join(expression.split()).lstrip("&*")
    return "{" + (expression if len(expression) <= LONGEST else expression[:LONGEST] + "...") + "}"


def of_python(message: ast.JoinedStr) -> str:
    """Returns the text of an f-string with its expressions."""
    parts = []
    for part in message.values:
        parts.append(part.value if isinstance(part, ast.Constant) else shown(ast.unparse(part.value)))
    return "".join(parts)


def arguments(code: str, text: str, at: int) -> Iterator[str]:
    """Gives the arguments after the one that ends at `at`, up to the bracket that closes the call."""
    start = None
    while at < len(code) and code[at] not in ")]};":
        if code[at] == ",":
            if start is not None:
                yield text[start:at].strip()
            start = at + 1
        elif start is None and not code[at].isspace():
            return
        at = rust.closing(code, at) if code[at] in "([{" else at + 1
    if start is not None and text[start:at].strip():
        yield text[start:at].strip()


def sentences(code: str, text: str) -> Iterator[tuple[int, int, str]]:
    """Gives where the calls of the macro `sentence!` begin and end, and the sentence of each call: its strings joined, with the
    other pieces as placeholders."""
    for found in SENTENCE.finditer(code):
        pieces, start, at = [], found.end(), found.end()
        end = rust.closing(code, start - 1)
        while at < end:
            if code[at] == "," or at == end - 1:
                pieces.append(text[start:at].strip())
                start = at + 1
            at = rust.closing(code, at) if code[at] in "([{" else at + 1
        parts = [(piece, STRING.fullmatch(piece)) for piece in pieces if piece]
        yield found.start(), end, "".join(string[1] if string else shown(piece) for piece, string in parts)


def of_rust(message: str, code: str, text: str, end: int) -> str:
    """Returns a string literal that ends at `end` with the arguments of its macro in the place of `{}`."""
    if not PLACEHOLDER.search(message):
        return message
    positional, named = [], {}
    for argument in arguments(code, text, end):
        if found := NAMED.fullmatch(argument):
            named[found[1]] = found[2]
        else:
            positional.append(argument)
    following = iter(positional)

    def fill(found: re.Match[str]) -> str:
        if found[1] is None:
            return found[0][0]
        if found[1] == "":
            return shown(next(following, ""))
        if found[1].isdigit():
            return shown(positional[int(found[1])]) if int(found[1]) < len(positional) else found[0]
        return shown(named.get(found[1], found[1]))

    return PLACEHOLDER.sub(fill, message)

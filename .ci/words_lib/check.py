"""Finds words to replace in the texts and identifiers of the repository."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import repository
import rust
import texts
from rules import BEGINNINGS, NAMES, RULES, WORDS, Rule

EXCEPTIONS = ".ci/words-exceptions"
IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
PART = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
ANY_WORD = re.compile("|".join(f"(?:{rule.pattern.pattern})" for rule in WORDS), re.I)
ANY_NAME = re.compile("|".join(NAMES), re.I)


@dataclass(frozen=True)
class Finding:
    """One word to replace: its place, the name of its rule, the words around it, and what to write instead."""

    path: str
    line: int
    rule: str
    around: str
    instead: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: `{self.rule}` in \"{self.around}\": write {self.instead}"


@dataclass
class Exceptions:
    """The phrases that may stay, each with the beginning of the paths where it may, and whether it was found."""

    phrases: list[tuple[re.Pattern[str], str]]

    def cover(self, path: str, text: str, start: int, end: int) -> bool:
        """Returns whether a phrase covers the characters from `start` to `end` of a text."""
        near = max(0, start - 80)
        for phrase, beginning in self.phrases:
            if not path.startswith(beginning):
                continue
            for found in phrase.finditer(text, near, end + 80):
                if found.start() <= start and end <= found.end():
                    return True
        return False


def exceptions(root: Path) -> Exceptions:
    """Reads the exceptions; each line holds a phrase, the beginning of the paths, and the reason, between bars."""
    phrases = []
    for number, line in enumerate((root / EXCEPTIONS).read_text().splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        phrase, beginning, reason = (part.strip() for part in line.split(" | "))
        if not reason:
            raise SystemExit(f"{EXCEPTIONS}:{number}: the reason is missing")
        phrases.append((re.compile(phrase.replace(" ", r"\s+"), re.I), "" if beginning == "*" else beginning))
    return Exceptions(phrases)


def in_text(text: texts.Text, allowed: Exceptions) -> Iterator[Finding]:
    """Gives the words to replace in one text."""
    plain = text.plain()
    rules: list[Rule] = []
    if ANY_WORD.search(plain):
        rules += WORDS
    if text.kind == "doc":
        rules += BEGINNINGS
    for rule in rules:
        for found in rule.pattern.finditer(plain):
            if not allowed.cover(text.path, plain, found.start(), found.end()):
                line = text.line + plain.count("\n", 0, found.start() + len(found[0]) - len(found[0].lstrip()))
                around = " ".join(text.text[max(0, found.start() - 30) : found.end() + 30].split())
                yield Finding(text.path, line, rule.name, around, rule.instead)


def in_names(path: str, content: str) -> Iterator[Finding]:
    """Gives the words to replace in the identifiers of a Rust file."""
    if not path.endswith(".rs") or not ANY_NAME.search(content):
        return
    _, code = rust.without_comments(content)
    for number, line in enumerate(code.split("\n"), 1):
        for found in IDENTIFIER.finditer(line) if ANY_NAME.search(line) else ():
            for part in PART.findall(found[0]):
                if part.lower() in NAMES:
                    yield Finding(path, number, f"name {part.lower()}", found[0], NAMES[part.lower()])


def in_file(path: str, content: str, allowed: Exceptions) -> Iterator[Finding]:
    """Gives the words to replace in one file."""
    for text in texts.of_file(path, content):
        yield from in_text(text, allowed)
    yield from in_names(path, content)


def findings(root: Path) -> list[Finding]:
    """Returns the words to replace in all files of the repository, without the exceptions."""
    allowed = exceptions(root)
    # The rules and exceptions name the words themselves.
    files = {path: text for path, text in repository.files(root).items() if not path.startswith(".ci/words_lib/")}
    return [finding for path, content in files.items() for finding in in_file(path, content, allowed)]


__all__ = ["Finding", "Exceptions", "RULES", "exceptions", "findings", "in_file"]

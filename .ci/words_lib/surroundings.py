"""What a documentation page shows around an item: the first sentences about the module and the type that contain it."""

from __future__ import annotations

import re
from collections.abc import Iterable

import texts

SENTENCE = re.compile(r"(?:[^.]|\.(?!\s))+\.?")
TYPE = re.compile(r"(?:pub(?:\([^)]*\))?\s+)?(?:unsafe\s+)?(?:struct|enum|union|trait|class)\s+(\w+)")
IMPLEMENTATION = re.compile(r"impl\b(?:\s*<[^{]*?>(?=\s))?\s*(?:.*\sfor\s+)?&?(?:'\w+\s+)?([\w:]+)")


def first_sentence(text: str) -> str:
    """Returns the first sentence of a text, in one line."""
    paragraph = re.split(r"\n\s*\n", text.strip(), maxsplit=1)[0]
    return SENTENCE.match(" ".join(paragraph.split()) or " ")[0].strip()


def parts(owner: str) -> tuple[str, list[str]]:
    """Returns the module of an owner and the names of the types in it."""
    if "::" not in owner and " " not in owner:  # Python: the class follows its module
        module, _, last = owner.rpartition(".")
        return (module, [last]) if last[:1].isupper() else (owner, [])
    modules, names = [], []
    for part in re.split(r"::(?![^<]*>)(?!\w+\s+for\b)", owner):
        found = TYPE.match(part) or IMPLEMENTATION.match(part)
        if found:
            names.append(found[1].rsplit("::", 1)[-1])
        elif not names:
            modules.append(part.removeprefix("mod "))
    return "::".join(modules), names


class Surroundings:
    """The first sentences about modules and types."""

    def __init__(self, documented: Iterable[texts.Text]) -> None:
        self.modules: dict[str, str] = {}
        self.types: dict[tuple[str, str], str] = {}
        for text in documented:
            sentence = first_sentence(text.text)
            if text.item.startswith("mod "):
                self.modules.setdefault(text.item.removeprefix("mod "), sentence)
            elif text.item.startswith("module "):
                self.modules.setdefault(text.owner, sentence)
            elif found := TYPE.match(text.item):
                self.types.setdefault((parts(text.owner)[0], found[1]), sentence)

    def type_of(self, module: str, name: str) -> str | None:
        """Returns the sentence about a type: that of its module, else that of the only one in its crate."""
        if sentence := self.types.get((module, name)):
            return sentence
        crate = re.split(r"::|\.", module)[0]
        found = [text for (where, one), text in self.types.items() if one == name and re.split(r"::|\.", where)[0] == crate]
        return found[0] if len(found) == 1 else None

    def of(self, text: texts.Text) -> list[str]:
        """Returns the lines for one documentation comment, the module first."""
        module, names = parts(text.owner)
        lines = []
        if text.item != f"mod {module}" and not text.item.startswith("module ") and module in self.modules:
            lines.append(f"`{module}`: {self.modules[module]}")
        for name in names:
            if sentence := self.type_of(module, name):
                lines.append(f"`{name}`: {sentence}")
        return lines

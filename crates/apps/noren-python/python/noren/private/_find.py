"""Private text: the detectors, and their findings in a text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import index
from typing import Any, overload

from .._noren import _PRIVATE_KINDS, Error, _Detectors
from ..arguments._given import short

KINDS: tuple[str, ...] = tuple(_PRIVATE_KINDS)
"""The kinds of private text that built-in detectors find; `docs/text.md` describes them."""
MOST_CHARACTERS = 1 << 26
"""The maximum number of characters of a text."""
MOST_TEXTS = 1 << 20
"""The maximum number of texts of a batch."""

Kinds = str | Iterable[str]
"""The kinds of private text to search for, as a list of names or as names separated by commas; "all" means all of `KINDS`."""
Words = str | Iterable[str] | Mapping[str, str | Iterable[str]]
"""Words and phrases to find: a list, whose kind is "word", or a dict from kinds to lists."""
Spans = Iterable[tuple[int, int]] | Mapping[str, Iterable[tuple[int, int]]]
"""Ranges of characters that are private, as (first, after the last): a list, whose kind is "span", or a dict from kinds to
lists."""


@dataclass(frozen=True)
class Finding:
    """One private part of a text: its characters from `start` to before `end`."""

    kind: str
    """The kind of private text, such as "email"."""
    start: int
    """The index in the text of the first character of the private part, from 0."""
    end: int
    """The index in the text after the last character of the private part."""
    text: str = field(repr=False)
    """The private characters. The `repr` of a finding leaves them out, so that they do not appear in logs."""


@dataclass(frozen=True)
class Found(Sequence[Finding]):
    """The findings in one text, sorted by their start, with the kinds of private text for which the text was searched.

    Findings of different kinds may overlap. A character is private if at least one finding contains it.
    """

    text: str = field(repr=False)
    """The text in which the detectors searched."""
    findings: tuple[Finding, ...]
    """The findings, sorted by their start."""
    looked_for: tuple[str, ...] = field(repr=False)
    """The kinds of private text for which the text was searched."""
    not_looked_for: str = field(repr=False)
    """A sentence that names the kinds of private text for which the text was not searched."""

    def __post_init__(self) -> None:
        check_text("text", self.text)
        found = tuple(items("findings", self.findings))
        for finding in found:
            if not isinstance(finding, Finding):
                raise TypeError(f"`findings` holds {type(finding).__name__}: give nr.private.Finding(kind, start, end, text)")
            check_text("the kind of a finding", finding.kind)
            if _span("a finding", (finding.start, finding.end))[1] > len(self.text):
                raise Error(f"a finding has the range {(finding.start, finding.end)}, but the text has {len(self.text)} characters: give findings in this text")
        object.__setattr__(self, "findings", tuple(sorted(found, key=lambda finding: (finding.start, finding.end))))

    @overload
    def __getitem__(self, at: int) -> Finding: ...
    @overload
    def __getitem__(self, at: slice) -> tuple[Finding, ...]: ...
    def __getitem__(self, at: int | slice) -> Finding | tuple[Finding, ...]:
        return self.findings[at]

    def __len__(self) -> int:
        return len(self.findings)

    def parts(self) -> list[tuple[str, str | None]]:
        """Returns the consecutive parts of the text: (characters, None) for a public part, (characters, kinds) for a private
        part.

        Overlapping findings become one part, whose kinds are joined by "+".
        """
        merged: list[tuple[int, int, list[str]]] = []
        for finding in self.findings:
            if merged and finding.start < merged[-1][1]:
                start, end, kinds = merged[-1]
                merged[-1] = (start, max(end, finding.end), kinds if finding.kind in kinds else [*kinds, finding.kind])
            else:
                merged.append((finding.start, finding.end, [finding.kind]))
        out: list[tuple[str, str | None]] = []
        at = 0
        for start, end, kinds in merged:
            out += [(self.text[at:start], None), (self.text[start:end], "+".join(kinds))]
            at = end
        out.append((self.text[at:], None))
        return [part for part in out if part[0]]

    def redacted(self, replacement: str = "[{kind}]") -> str:
        """Returns a copy of the text in which `replacement` replaces each private part. In `replacement`, `{kind}` stands for
        the kind of the part.

        >>> find("Mail ann@x.example now", "email").redacted()
        'Mail [email] now'
        """
        if not isinstance(replacement, str):
            raise TypeError(f'`replacement` is {short(replacement)}: give a text such as "[{{kind}}]"')
        return "".join(text if kind is None else replacement.replace("{kind}", kind) for text, kind in self.parts())


@dataclass(frozen=True)
class Recognizer:
    """A function that finds kinds of private text, such as a model that finds names.

    `find` takes a text and returns tuples (kind, index of the first character, index after the last).

    >>> names = Recognizer(["name"], lambda text: [("name", 0, 3)])
    >>> find("Ann is here", [], recognizers=[names])[0]
    Finding(kind='name', start=0, end=3)
    """

    kinds: Sequence[str]
    """The kinds of private text that the function finds."""
    find: Callable[[str], Iterable[tuple[str, int, int]]]
    """A function of a text that returns tuples (kind, index of the first character, index after the last)."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "kinds", tuple(_names("kinds", self.kinds)))
        if not callable(self.find):
            raise TypeError(f"`find` is {short(self.find)}: give a function of a text that returns tuples (kind, start, end)")

    def _findings(self, text: str, first: int) -> list[tuple[int, int, int]]:
        """Returns the findings of this recognizer in `text` as (index of the kind, start, end). The index counts the kinds of
        all recognizers; `first` is the index of this recognizer's first kind."""
        found = self.find(text)
        if isinstance(found, (str, bytes, Mapping)) or not isinstance(found, Iterable):
            raise TypeError(f"a recognizer returned {short(found)}: its function must return a list of tuples (kind, start, end)")
        out = []
        for item in items("the result of a recognizer", found):
            if not isinstance(item, (tuple, list)) or len(item) != 3 or not isinstance(item[0], str) or item[0] not in self.kinds:
                raise Error(f"a recognizer of the kinds {', '.join(self.kinds)} returned {short(item)}: its function must return tuples (kind, start, end) with one of these kinds")
            start, end = _span("a finding of a recognizer", item[1:])
            out.append((first + self.kinds.index(item[0]), start, end))
        return out


class Detectors:
    """Detectors of private text, to be used for many texts.

    `kinds` are names of built-in detectors (`KINDS`) [default: all of them]. `words` are words and phrases, found without
    regard to case: a list (of the kind "word"), or a dict from kinds to lists. `patterns` is a dict from kinds to regular
    expressions, in the syntax of Rust's crate regex, which searches in linear time. `recognizers` find kinds that have no
    pattern, such as names.

    >>> detectors = Detectors("email,phone", words={"name": ["Ann Lee"]}, patterns={"ticket": r"T-[0-9]+"})
    >>> [(f.kind, f.text) for f in detectors.find("ann lee (ann@x.example) wrote T-77")]
    [('name', 'ann lee'), ('email', 'ann@x.example'), ('ticket', 'T-77')]
    >>> detectors.not_looked_for[:37]
    'card, iban, ip, ssn, mac, url, key, p'
    """

    def __init__(
        self,
        kinds: Kinds = "all",
        *,
        words: Words | None = None,
        patterns: Mapping[str, str | Iterable[str]] | None = None,
        recognizers: Iterable[Recognizer] = (),
    ) -> None:
        names = _names("kinds", kinds)
        if any(not name.strip() for name in names):
            raise Error(f"kinds has an empty name: give names of kinds ({', '.join(KINDS)}), \"all\", or [] for none")
        listed = ",".join(names)
        self._recognizers = _recognizers(recognizers)
        given_words = [] if words is None else [(kind, _texts(f"words[{kind!r}]", given)) for kind, given in _by_kind("words", words, "word")]
        given_patterns = [] if patterns is None else [
            (kind, pattern) for kind, given in _patterns(patterns) for pattern in _texts(f"patterns[{kind!r}]", given)
        ]  # fmt: skip
        recognised = [kind for recognizer in self._recognizers for kind in recognizer.kinds]
        self._detectors = _Detectors(listed.strip(), given_words, given_patterns, recognised)

    def __repr__(self) -> str:
        return f"<detectors of {', '.join(self.kinds)}>"

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of private text that the detectors find."""
        return tuple(self._detectors.kinds([]))

    @property
    def not_looked_for(self) -> str:
        """A sentence that names the kinds of private text that the detectors do not find."""
        return self._detectors.not_looked_for()

    def find(self, text: str, *, spans: Spans | None = None) -> Found:
        """Returns the findings in a text; `spans` are ranges of characters that are private in this text."""
        check_text("text", text)
        given = [] if spans is None else [
            (kind, [_span(f"a span of {kind!r}", span) for span in items("spans", found)])
            for kind, found in _by_kind("spans", spans, "span")
        ]  # fmt: skip
        recognised: list[tuple[int, int, int]] = []
        first = 0
        for recognizer in self._recognizers:
            recognised += recognizer._findings(text, first)
            first += len(recognizer.kinds)
        found = self._detectors.find(text, given, recognised)
        findings = tuple(Finding(kind, start, end, text[start:end]) for kind, start, end in found)
        return Found(text, findings, tuple(self._detectors.kinds([kind for kind, _ in given])), self.not_looked_for)

    def find_all(self, texts: Iterable[str], *, spans: Iterable[Spans | None] | None = None) -> list[Found]:
        """Returns the findings in each text. `spans` has an entry for each text: private ranges of characters, or None."""
        listed = check_texts("texts", texts)
        given: list[Any] = [None] * len(listed) if spans is None else items("spans", spans)
        if len(given) != len(listed):
            raise Error(f"spans has {len(given)} entries but there are {len(listed)} texts: give one entry for each text, None for no spans")
        return [self.find(text, spans=found) for text, found in zip(listed, given, strict=True)]


def detectors_of(
    kinds: Kinds | Detectors,
    words: Words | None,
    patterns: Mapping[str, str | Iterable[str]] | None,
    recognizers: Iterable[Recognizer],
) -> Detectors:
    """Returns the detectors for the arguments of a call: the given `Detectors`, or new ones from kinds, words, patterns and
    recognizers."""
    if not isinstance(kinds, Detectors):
        return Detectors(kinds, words=words, patterns=patterns, recognizers=recognizers)
    if words is not None or patterns is not None or _recognizers(recognizers):
        raise TypeError("Detectors were given together with words, patterns or recognizers: give the words, patterns and recognizers to Detectors(...)")
    return kinds


def find(
    text: str,
    kinds: Kinds | Detectors = "all",
    *,
    words: Words | None = None,
    patterns: Mapping[str, str | Iterable[str]] | None = None,
    spans: Spans | None = None,
    recognizers: Iterable[Recognizer] = (),
) -> Found:
    """Returns the findings (private parts) in `text`. `Detectors.find_all` searches several texts.

    `kinds` are kinds of private text (`KINDS`) or `Detectors`; `words`, `patterns` and `recognizers` are those of `Detectors`.
    `spans` are ranges of characters that are private. No detector finds everything: `found.not_looked_for` names the kinds for
    which the text was not searched.

    >>> found = find("Ask Ann (lee@x.example) or pay 4111 1111 1111 1111.", "email,card", words={"name": ["Ann"]})
    >>> [(f.kind, f.text) for f in found]
    [('name', 'Ann'), ('email', 'lee@x.example'), ('card', '4111 1111 1111 1111')]

    Raises `Error` for unknown kinds and spans outside the text.
    """
    return detectors_of(kinds, words, patterns, recognizers).find(text, spans=spans)


# --- checks of arguments ------------------------------------------------------------------------------------------


def check_text(name: str, text: Any) -> None:
    """Raises an error unless `text` is a str of at most `MOST_CHARACTERS` characters without unpaired surrogates. `name` is the
    name of the argument in the message."""
    if not isinstance(text, str):
        raise TypeError(f"{name} is {short(text)}: give a text (str)")
    if len(text) > MOST_CHARACTERS:
        raise Error(f"{name} has {len(text)} characters: at most {MOST_CHARACTERS} are searched in one call; give the text in parts")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise Error(
            f"{name} has half of a surrogate pair at character {error.start}: decode the bytes with errors=\"replace\" instead of \"surrogateescape\""
        ) from None


def check_texts(name: str, texts: Any) -> list[str]:
    """Returns the texts of a list. Raises an error for values that are no texts."""
    listed = items(name, texts)
    for at, text in enumerate(listed):
        check_text(f"{name}[{at}]", text)
    return listed


def items(name: str, given: Any) -> list[Any]:
    """Returns the entries of the argument `name` as a list. Raises an error for a text, for an object that is not iterable, and for
    more than `MOST_TEXTS` entries."""
    try:
        if isinstance(given, (str, bytes)) or not isinstance(given, Iterable):
            raise TypeError
        iterator = iter(given)
    except Exception:  # tensors without dimensions are Iterable, and raise errors of their own
        raise TypeError(f"{name} is {short(given)}: give a list") from None
    out: list[Any] = []
    for item in iterator:
        out.append(item)
        if len(out) > MOST_TEXTS:
            raise Error(f"{name} has more than {MOST_TEXTS} entries: divide the list over several calls")
    return out


def _names(name: str, given: Any) -> list[str]:
    listed = [given] if isinstance(given, str) else items(name, given)
    for item in listed:
        if not isinstance(item, str):
            raise TypeError(f"{name} holds {short(item)}: give names of kinds such as \"email\"")
        check_text(name, item)
    return listed


def _texts(name: str, given: Any) -> list[str]:
    return check_texts(name, [given] if isinstance(given, str) else given)


def _by_kind(name: str, given: Any, kind: str) -> list[tuple[str, Any]]:
    """Returns (kind, entry) for each entry of a dict from kinds to entries. Anything else is returned as one entry of the kind
    `kind`."""
    if not isinstance(given, Mapping):
        return [(kind, given)]
    _names(name, given)
    return list(given.items())


def _patterns(given: Any) -> list[tuple[str, Any]]:
    if not isinstance(given, Mapping):
        raise TypeError(f'patterns is {short(given)}: give a dict such as {{"ticket": r"T-[0-9]+"}}')
    return _by_kind("patterns", given, "")


def _recognizers(given: Any) -> list[Recognizer]:
    listed = [given] if isinstance(given, Recognizer) else items("recognizers", given)
    for item in listed:
        if not isinstance(item, Recognizer):
            raise TypeError(f"recognizers holds {short(item)}: give nr.private.Recognizer(kinds, function)")
    return listed


def _span(name: str, given: Any) -> tuple[int, int]:
    """Returns a range of characters as (start, end). Raises an error if `given` is not a valid range; `name` is its name in the
    message."""
    pair = (given.start, given.stop) if isinstance(given, range) and given.step == 1 else given
    try:
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise TypeError
        start, end = index(pair[0]), index(pair[1])
    except TypeError:
        raise TypeError(f"{name} is {short(given)}: give (first character, character after the last)") from None
    if not 0 <= start < end <= MOST_CHARACTERS:
        raise Error(f"{name} is {(start, end)}: give (first character, character after the last), counted from 0, with an end after the start")
    return start, end

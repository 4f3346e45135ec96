"""Finds the tokens that contain private text, from the character offsets of a tokenizer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._noren import Error, Facts, _Policy, _PrivateTokens
from ..arguments._given import integer, short
from ._find import Found, items
from ._offsets import MOST_TOKENS, Offsets, booleans, check_words, encodings_of


@dataclass(frozen=True, eq=False)
class Tokens:
    """A batch of texts, `[batch, length]` tokens, with marks of the private tokens; made by `locate`, `encode` or `Tokens.of`."""

    rows: tuple[_PrivateTokens, ...]
    """The private tokens of each batch row."""
    real: NDArray[np.bool_]
    """`[batch, length]`: true for a token that is not padding."""

    def __post_init__(self) -> None:
        if not isinstance(self.rows, (tuple, list)) or not all(isinstance(row, _PrivateTokens) for row in self.rows):
            raise TypeError("`rows` holds no private tokens: give the result of Tokens.of(kinds), nr.private.locate or nr.private.encode")
        real = booleans("real", self.real)
        shape = (len(self.rows), real.shape[1])
        if real.shape != shape or any(len(row) != shape[1] for row in self.rows):
            raise Error(f"`real` has shape {list(real.shape)}, but the rows have {sorted({len(row) for row in self.rows})} tokens: give [{len(self.rows)}, length]")
        object.__setattr__(self, "rows", tuple(self.rows))
        object.__setattr__(self, "real", real)

    @staticmethod
    def of(kinds: Mapping[str, Any], real: Any = None) -> Tokens:
        """Returns `Tokens` from given marks, for texts whose private tokens are known without a search.

        `kinds` maps each kind to booleans `[batch, length]` or `[length]`, true for a private token. `real` is true for a token
        that is not padding, as in `attention_mask` [default: no padding].

        >>> Tokens.of({"name": [False, True, True]}).count
        2
        """
        if not isinstance(kinds, Mapping) or not kinds:
            raise TypeError(f"kinds is {type(kinds).__name__}: give a dict of booleans [batch, length] by kind, such as {{\"name\": marks}}")
        for name in kinds:
            if not isinstance(name, str):
                raise TypeError(f"`kinds` has the key {short(name)}: give names of kinds of private text")
        marks = {kind: booleans(f"kinds[{kind!r}]", given) for kind, given in kinds.items()}
        shape = next(iter(marks.values())).shape
        known = np.ones(shape, np.bool_) if real is None else booleans("real", real)
        for name, given in [*((f"kinds[{kind!r}]", given) for kind, given in marks.items()), ("real", known)]:
            if given.shape != shape:
                first = f"kinds[{next(iter(marks))!r}]"
                raise Error(f"{name} has shape {list(given.shape)}, but {first} has shape {list(shape)}: give booleans [batch, length] of one shape")
        rows = [
            _PrivateTokens.at(shape[1], [(kind, np.flatnonzero(given[row]).tolist()) for kind, given in marks.items()])
            for row in range(shape[0])
        ]
        return Tokens(tuple(rows), known)

    def __repr__(self) -> str:
        kinds = ", ".join(f"{kind} {int(self.kind(kind).sum())}" for kind in self.kinds)
        return f"<{self.count} private tokens of {int(self.real.sum())} in {self.shape[0]} row(s){': ' if kinds else ''}{kinds}>"

    @property
    def shape(self) -> tuple[int, int]:
        """(number of batch rows, number of tokens of a row)."""
        return (self.real.shape[0], self.real.shape[1])

    @cached_property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of private text in the batch."""
        return tuple(sorted({kind for row in self.rows for kind, at in row.kinds() if at}))

    @cached_property
    def private(self) -> NDArray[np.bool_]:
        """Returns booleans `[batch, length]`: true for a token that contains private text of any kind."""
        return self._marks(None)

    @property
    def count(self) -> int:
        """The number of private tokens."""
        return int(self.private.sum())

    def kind(self, name: str) -> NDArray[np.bool_]:
        """Returns booleans `[batch, length]`: true for a token that contains private text of the kind `name`."""
        if not isinstance(name, str):
            raise TypeError(f"`name` is {short(name)}: give the name of a kind such as \"email\"")
        return self._marks(name)

    def _marks(self, name: str | None) -> NDArray[np.bool_]:
        marks = np.zeros(self.shape, np.bool_)
        for row, tokens in zip(marks, self.rows, strict=True):
            for kind, at in tokens.kinds():
                if name in (None, kind):
                    row[at] = True
        return marks

    def row(self, index: int) -> Tokens:
        """Returns the tokens of one batch row, as a batch of one row. Raises `Error` if there is no such row."""
        at = integer("index", index)
        if not -len(self.rows) <= at < len(self.rows):
            raise Error(f"`index` is {at}: there are {len(self.rows)} batch rows, counted from 0")
        return Tokens((self.rows[at],), self.real[[at]])

    def only(self, chosen: Any) -> Tokens:
        """Returns a batch in which fewer tokens are private: those that are private in this batch and true in `chosen`,
        `[batch, length]`."""
        marks = booleans("chosen", chosen)
        if marks.shape != self.shape:
            raise Error(f"`chosen` has shape {list(marks.shape)}: give [batch, length] = {list(self.shape)}")
        rows = [
            _PrivateTokens.at(len(row), [(kind, [at for at in found if marks[index, at]]) for kind, found in row.kinds()])
            for index, row in enumerate(self.rows)
        ]
        return Tokens(tuple(rows), self.real)

    def window(self, first: int, length: int) -> Tokens:
        """Returns a batch of the `length` tokens from token `first` on of each row. Tokens after the end of a row are public."""
        start, count = integer("first", first), integer("length", length)
        if not 0 <= start <= MOST_TOKENS or count < 0 or count * max(1, len(self.rows)) > MOST_TOKENS:
            raise Error(f"`first` is {start} and `length` is {count}: give numbers of 0 or more, and at most {MOST_TOKENS} tokens in all rows")
        real = np.ones((self.shape[0], count), np.bool_)
        kept = self.real[:, start : start + count]
        real[:, : kept.shape[1]] = kept
        return Tokens(tuple(row.window(start, count) for row in self.rows), real)

    def repeated(self, batch: int) -> Tokens:
        """Returns a batch of `batch` rows in which each row is repeated equally often, as for the beams of beam search."""
        rows, size = self.shape[0], integer("batch", batch)
        if size * self.shape[1] > MOST_TOKENS:
            raise Error(f"`batch` is {size}: give so few batch rows that they have at most {MOST_TOKENS} tokens together")
        if rows == 0 or size < 1 or size % rows:
            raise Error(f"`batch` is {size}, but the private tokens of {rows} rows are known: give a multiple of this number, the batch rows that the model computes")
        times = size // rows
        return self if times == 1 else Tokens(tuple(row for row in self.rows for _ in range(times)), self.real.repeat(times, 0))

    def facts(self, facts: Facts | Mapping[str, Any] | None = None) -> Facts:
        """Returns `facts` (data of masks) with labels of the private tokens added: the label "private" for all private tokens,
        and for each kind a label with its name.

        Masks refer to the labels: `nr.causal() - nr.keys(label="email")`.
        """
        return _Policy.hide().facts(list(self.rows), check_facts(facts))


def locate(found: Found | Sequence[Found] | Sequence[tuple[Found, Found]], encoding: Any) -> Tokens:
    """Returns the tokens that contain at least one character of the findings, from the character offsets of a tokenizer.

    `encoding` is the result of a fast tokenizer of transformers (which may contain special tokens and padding); an `Encoding`
    of the package tokenizers, or a list of them; or a dict with "offset_mapping". `found` are the findings of the encoded text:
    for a batch, one entry for each row; for pairs of texts, a pair of entries. If the tokenizer divided a long text into
    several rows (`return_overflowing_tokens`), give one entry for each text. For a chat, search the text that its template
    makes; `encode` does this.

    A token that contains any character of a finding is private. If a tokenizer drops or changes a character, the tokens on both sides
    are private. Special tokens hold no text and are public. Tokens that truncation removed from a row are not in the result.

    >>> from tokenizers import Tokenizer, models, pre_tokenizers
    >>> from noren.private import find
    >>> words = Tokenizer(models.WordLevel({"?": 0, "Ask": 1, "Ann": 2}, unk_token="?"))
    >>> words.pre_tokenizer = pre_tokenizers.Whitespace()
    >>> locate(find("Ask Ann", [], words=["Ann"]), words.encode("Ask Ann")).private.tolist()
    [[False, True]]

    Raises `Error` if the encoding has no offsets, or other texts than `found`.
    """
    encodings, texts = encodings_of(encoding)
    listed = _rows_of(found)
    if texts is not None and len(listed) != len(encodings) and len(listed) == max(texts, default=-1) + 1:
        listed = [listed[text] for text in texts]
    if len(listed) != len(encodings):
        raise Error(f"there are findings of {len(listed)} texts, but tokens of {len(encodings)}: give one entry of findings for each row")
    lengths = {len(each.offsets) for each in encodings}
    if len(lengths) > 1:
        raise Error(f"the rows have from {min(lengths)} to {max(lengths)} tokens: pad them to one length (padding=True), or use nr.private.encode")
    rows = tuple(locate_row(pair, each) for pair, each in zip(listed, encodings, strict=True))
    real = np.array([each.real for each in encodings], np.bool_).reshape(len(rows), lengths.pop() if lengths else 0)
    return Tokens(rows, real)


def locate_row(pair: Sequence[Found], row: Offsets) -> _PrivateTokens:
    """Returns the private tokens of one row, which holds one text or a pair of texts."""
    texts = {number for number in row.sequences if number is not None}
    if any(number >= len(pair) for number in texts):
        raise Error("the tokens are those of a pair of texts, but there are findings of one text: give (findings of the first text, findings of the second)")
    if len(pair) > 1 and not row.paired:
        raise Error("a dict with offset_mapping does not contain the text to which a token of a pair belongs: give the tokenizer's result, or its encodings")
    kinds: dict[str, set[int]] = {}
    for number, found in enumerate(pair):
        check_words(row, number, found.text)
        first, last = row.text_range(number, len(found.text))
        inside = [(finding.kind, max(finding.start, first), min(finding.end, last)) for finding in found.findings]
        findings = [finding for finding in inside if finding[1] < finding[2]]
        special = [sequence != number for sequence in row.sequences]
        for kind, at in _PrivateTokens.locate(findings, found.text, list(row.offsets), special).kinds():
            kinds.setdefault(kind, set()).update(at)
        # White space whose offsets the tokenizer trimmed, beside a token that was cut.
        empty = [(at, start) for at, (start, end) in enumerate(row.offsets) if start == end and row.sequences[at] == number] if row.cut else []
        for finding in found.findings if empty else ():
            kinds.setdefault(finding.kind, set()).update(at for at, start in empty if finding.start < start < finding.end)
    return _PrivateTokens.at(len(row.offsets), [(kind, sorted(at)) for kind, at in kinds.items()])


def check_facts(given: Any) -> Any:
    """Returns `given` if it is a `Facts`, a mapping or None. Raises a TypeError for anything else."""
    if given is None or isinstance(given, (Facts, Mapping)):
        return given
    raise TypeError(f"facts is {short(given)}: give nr.Facts(...) or a dict such as {{\"lengths\": [5, 3]}}")


def tokens_of(given: Any) -> Tokens:
    """Returns `given` if it is `Tokens`, or the private tokens in `given` if it is the result of `encode`. Raises a TypeError
    for anything else."""
    found = given if isinstance(given, Tokens) else getattr(given, "tokens", None)
    if isinstance(found, Tokens):
        return found
    raise TypeError(f"`tokens` is {short(given)}: give the result of nr.private.encode or nr.private.locate")


def _rows_of(found: Any) -> list[tuple[Found, ...]]:
    """Returns for each row a tuple of findings: one entry if the row has one text, two entries if it has a pair of texts."""
    if isinstance(found, Found):
        return [(found,)]
    rows: list[tuple[Found, ...]] = []
    for entry in items("found", found):
        pair = entry if isinstance(entry, (tuple, list)) else (entry,)
        if not 1 <= len(pair) <= 2 or not all(isinstance(part, Found) for part in pair):
            raise TypeError(f"`found` holds {type(entry).__name__}: give the results of nr.private.find, one for each row")
        rows.append(tuple(pair))
    return rows

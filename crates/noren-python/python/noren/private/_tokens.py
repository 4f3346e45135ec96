"""The tokens that contain private text, by the offsets of a tokenizer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._noren import Error, Facts, _Policy, _PrivateTokens
from ._find import Found

MOST_TOKENS = 1 << 28
"""The maximum number of tokens of a batch, padding included."""


@dataclass(frozen=True, eq=False)
class Tokens:
    """The private tokens of a batch of texts, `[batch, length]`; made by `locate`, `encode` or `Tokens.of`."""

    rows: tuple[_PrivateTokens, ...]
    """The private tokens of each batch row."""
    real: NDArray[np.bool_]
    """`[batch, length]`: true for a token that is not padding."""

    @staticmethod
    def of(kinds: Mapping[str, Any], real: Any = None) -> Tokens:
        """Returns the tokens whose marks are true, for private tokens that are known without a search.

        `kinds` has booleans `[batch, length]` or `[length]` by kind. `real` is true for tokens that are not padding, as in
        `attention_mask` [default: all].

        >>> Tokens.of({"name": [False, True, True]}).count
        2
        """
        if not isinstance(kinds, Mapping) or not kinds:
            raise TypeError(f"kinds is {type(kinds).__name__}: give a dict of booleans [batch, length] by kind, such as {{\"name\": marks}}")
        marks = {kind: _booleans(f"kinds[{kind!r}]", given) for kind, given in kinds.items()}
        shape = next(iter(marks.values())).shape
        known = np.ones(shape, np.bool_) if real is None else _booleans("real", real)
        for name, given in [*marks.items(), ("real", known)]:
            if not isinstance(name, str):
                raise TypeError(f"kinds has the key {name!r}: give names of kinds")
            if given.shape != shape:
                raise Error(f"{name} has shape {list(given.shape)}, but others have {list(shape)}: give booleans [batch, length] of one shape")
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
        """The kinds of private text that were found."""
        return tuple(sorted({kind for row in self.rows for kind, at in row.kinds() if at}))

    @cached_property
    def private(self) -> NDArray[np.bool_]:
        """`[batch, length]`: true for a token that contains private text of any kind."""
        return self._marks(None)

    @property
    def count(self) -> int:
        """The number of private tokens."""
        return int(self.private.sum())

    def kind(self, name: str) -> NDArray[np.bool_]:
        """Returns `[batch, length]`: true for a token that contains private text of this kind."""
        if not isinstance(name, str):
            raise TypeError(f"the kind is {name!r}: give a name such as \"email\"")
        return self._marks(name)

    def _marks(self, name: str | None) -> NDArray[np.bool_]:
        marks = np.zeros(self.shape, np.bool_)
        for row, tokens in zip(marks, self.rows, strict=True):
            for kind, at in tokens.kinds():
                if name in (None, kind):
                    row[at] = True
        return marks

    def row(self, index: int) -> Tokens:
        """Returns the tokens of one batch row, as a batch of one row."""
        if isinstance(index, bool) or not isinstance(index, int) or not -len(self.rows) <= index < len(self.rows):
            raise Error(f"row {index!r} does not exist: there are {len(self.rows)} batch rows, counted from 0")
        return Tokens((self.rows[index],), self.real[[index]])

    def only(self, chosen: NDArray[np.bool_]) -> Tokens:
        """Returns the batch in which only the private tokens that are true in `chosen`, `[batch, length]`, are private."""
        rows = [
            _PrivateTokens.at(len(row), [(kind, [at for at in found if chosen[index, at]]) for kind, found in row.kinds()])
            for index, row in enumerate(self.rows)
        ]
        return Tokens(tuple(rows), self.real)

    def window(self, first: int, length: int) -> Tokens:
        """Returns the `length` tokens from token `first` on; tokens after the end of the texts are public."""
        real = np.ones((self.shape[0], length), np.bool_)
        kept = self.real[:, first : first + length]
        real[:, : kept.shape[1]] = kept
        return Tokens(tuple(row.window(first, length) for row in self.rows), real)

    def repeated(self, batch: int) -> Tokens:
        """Returns the tokens of a batch in which each row occurs several times, such as the beams of a search."""
        rows = self.shape[0]
        if rows == 0 or batch % rows:
            raise Error(f"the model computes {batch} batch rows, but the private tokens of {rows} are known: give the tokens of the same batch")
        times = batch // rows
        return self if times == 1 else Tokens(tuple(row for row in self.rows for _ in range(times)), self.real.repeat(times, 0))

    def facts(self, facts: Facts | Mapping[str, Any] | None = None) -> Facts:
        """Returns `facts` with the labels of the private tokens: "private" for all of them, and one label for each kind."""
        return _Policy.hide().facts(list(self.rows), facts)


def locate(found: Found | Sequence[Found] | Sequence[tuple[Found, Found]], encoding: Any) -> Tokens:
    """Returns the tokens that hold any part of the findings, by the offsets of a tokenizer.

    `encoding` is the result of a fast tokenizer of transformers, with special tokens, padding and chat templates as they are; an
    `Encoding` of the package tokenizers, or a list of them; or a dict with "offset_mapping". `found` are the findings of the encoded
    text: for a batch, one entry for each row; for pairs of texts, a pair of entries. A chat is searched in the text that its template
    makes: `encode` does both.

    A token that contains any character of a finding is private. If a tokenizer drops or changes a character, the tokens on both sides
    are private. Special tokens hold no text and are public.

    Raises `Error` if the encoding has no offsets, or other texts than `found`.
    """
    encodings = _encodings(encoding)
    listed = _rows_of(found)
    if len(listed) != len(encodings):
        raise Error(f"there are findings of {len(listed)} texts, but tokens of {len(encodings)}: give one entry of findings for each row")
    lengths = {len(each.offsets) for each in encodings}
    if len(lengths) > 1:
        raise Error(f"the rows have {min(lengths)} to {max(lengths)} tokens: pad them to one length (padding=True), or use nr.private.encode")
    rows = tuple(locate_row(pair, each) for pair, each in zip(listed, encodings, strict=True))
    real = np.array([each.real for each in encodings], np.bool_).reshape(len(rows), lengths.pop() if lengths else 0)
    return Tokens(rows, real)


@dataclass(frozen=True)
class Offsets:
    """The tokens of one row: characters, sequences and padding."""

    offsets: Sequence[tuple[int, int]]
    """The characters of each token."""
    sequences: Sequence[int | None]
    """The text of each token: 0, 1 for the second text of a pair, None for a special token."""
    real: Sequence[bool]
    """False for padding."""


def offsets_of(encoding: Any) -> Offsets:
    """Returns the offsets of an `Encoding` of the package tokenizers."""
    added = [bool(mark) for mark in encoding.special_tokens_mask]
    sequences = [None if special else (0 if number is None else number) for special, number in zip(added, encoding.sequence_ids, strict=True)]
    return Offsets(list(encoding.offsets), sequences, [bool(mark) for mark in encoding.attention_mask])


def locate_row(pair: Sequence[Found], row: Offsets) -> _PrivateTokens:
    """Returns the private tokens of one row, of one text or a pair of texts."""
    texts = {number for number in row.sequences if number is not None}
    if any(number >= len(pair) for number in texts):
        raise Error("the tokens are those of a pair of texts, but there are findings of one text: give (findings of the first text, findings of the second)")
    kinds: dict[str, set[int]] = {}
    for number, found in enumerate(pair):
        findings = [(finding.kind, finding.start, finding.end) for finding in found.findings]
        special = [sequence != number for sequence in row.sequences]
        for kind, at in _PrivateTokens.locate(findings, found.text, list(row.offsets), special).kinds():
            kinds.setdefault(kind, set()).update(at)
    return _PrivateTokens.at(len(row.offsets), [(kind, sorted(at)) for kind, at in kinds.items()])


def _rows_of(found: Any) -> list[tuple[Found, ...]]:
    """Returns the findings of each row, as tuples of one text or of a pair of texts."""
    if isinstance(found, Found):
        return [(found,)]
    rows: list[tuple[Found, ...]] = []
    for entry in found if isinstance(found, Iterable) else [found]:
        pair = entry if isinstance(entry, (tuple, list)) else (entry,)
        if not 1 <= len(pair) <= 2 or not all(isinstance(part, Found) for part in pair):
            raise TypeError(f"found holds {type(entry).__name__}: give the results of nr.private.find, one for each row")
        rows.append(tuple(pair))
    return rows


def _encodings(given: Any) -> list[Offsets]:
    if _is_encoding(given):
        return [offsets_of(given)]
    if isinstance(given, (list, tuple)) and all(map(_is_encoding, given)):
        return [offsets_of(each) for each in given]
    found = getattr(given, "encodings", None)
    if found is not None and isinstance(given, Mapping):
        return _of_batch(given, found)
    if isinstance(given, Mapping) and "offset_mapping" in given:
        return _of_mapping(given)
    if isinstance(given, Mapping):
        raise Error(
            "the encoding has no offsets: use a fast tokenizer of transformers (tokenizer.is_fast), whose result has them, or give "
            "return_offsets_mapping=True"
        )
    raise TypeError(f"the encoding is {type(given).__name__}: give the result of a fast tokenizer of transformers, or an Encoding of the package tokenizers")


def _is_encoding(given: Any) -> bool:
    return all(hasattr(given, name) for name in ("ids", "offsets", "special_tokens_mask", "sequence_ids", "attention_mask"))


def _of_batch(given: Mapping[str, Any], found: Sequence[Any]) -> list[Offsets]:
    """Returns the offsets of a `BatchEncoding`, after comparing them with the tokens, which the caller may have changed."""
    ids = _array("input_ids", given["input_ids"]) if "input_ids" in given and _is_even(given["input_ids"]) else None
    if ids is not None:
        held = [each.ids for each in found]
        rows = ids.reshape(1, -1) if ids.ndim == 1 else ids
        if len(held) != len(rows) or any(list(row) != list(own) for row, own in zip(rows.tolist(), held, strict=True)):
            raise Error("input_ids differ from the tokens of the encoding, which has the offsets: give the tokenizer's result unchanged")
    return [offsets_of(each) for each in found]


def _is_even(given: Any) -> bool:
    """Returns whether rows have one length."""
    return not isinstance(given, list) or len({len(row) if isinstance(row, list) else -1 for row in given}) <= 1


def _of_mapping(given: Mapping[str, Any]) -> list[Offsets]:
    """Returns the offsets of a dict; without special_tokens_mask, tokens with the offsets (0, 0) are special."""
    offsets = _array("offset_mapping", given["offset_mapping"])
    offsets = offsets[None] if offsets.ndim == 2 else offsets
    if offsets.ndim != 3 or offsets.shape[2] != 2 or (offsets < 0).any():
        raise Error(f"offset_mapping has shape {list(offsets.shape)}: give [batch, length, 2], the first character of each token and the one after its last")
    special = (offsets == 0).all(-1) if given.get("special_tokens_mask") is None else _booleans("special_tokens_mask", given["special_tokens_mask"])
    real = np.ones(offsets.shape[:2], np.bool_) if given.get("attention_mask") is None else _booleans("attention_mask", given["attention_mask"])
    for name, marks in (("special_tokens_mask", special), ("attention_mask", real)):
        if marks.shape != offsets.shape[:2]:
            raise Error(f"{name} has shape {list(marks.shape)}, but offset_mapping has {list(offsets.shape)}: give [batch, length] = {list(offsets.shape[:2])}")
    return [
        Offsets([(int(a), int(b)) for a, b in row], [None if mark else 0 for mark in marks], [bool(mark) for mark in known])
        for row, marks, known in zip(offsets.tolist(), (special | ~real).tolist(), real.tolist(), strict=True)
    ]


def _array(name: str, given: Any) -> NDArray[Any]:
    """Returns whole numbers or booleans as an array; tensors are moved to the CPU."""
    given = given.detach().cpu() if hasattr(given, "detach") else given
    try:
        found = np.asarray(given)
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(f"{name} is {type(given).__name__}, which is not an array of one shape ({error}): give an array or a tensor") from None
    if found.dtype.kind not in "biu" and found.size:
        raise TypeError(f"{name} holds {found.dtype}: give whole numbers or booleans")
    if found.size > MOST_TOKENS:
        raise Error(f"{name} has {found.size} entries: give at most {MOST_TOKENS}, in several batches")
    return found


def _booleans(name: str, given: Any) -> NDArray[np.bool_]:
    """Returns booleans `[batch, length]`; numbers other than 0 are true."""
    found = _array(name, given)
    found = found[None] if found.ndim == 1 else found
    if found.ndim != 2:
        raise Error(f"{name} has shape {list(found.shape)}: give [batch, length]")
    return found.astype(np.bool_)

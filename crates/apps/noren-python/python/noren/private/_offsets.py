"""Reads the range of characters of each token, from encodings of tokenizers and from dicts with offsets."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._noren import Error

MOST_TOKENS = 1 << 28
"""The maximum number of tokens of a batch, padding included."""
MOST_BACK = 8
"""The maximum number of characters by which a token may begin before the start of the previous token: a normaliser of text may
reorder combining marks."""

Cut = tuple[int, int, int]
"""A token that truncation removed from a row: (index of the text that contains it, 0 or 1; first character; character after the
last)."""


@dataclass(frozen=True)
class Offsets:
    """The tokens of one batch row: for each token, its range of characters, the text that contains it, and whether it is
    padding."""

    offsets: Sequence[tuple[int, int]]
    """For each token, its range of characters in the text: (first, after the last)."""
    sequences: Sequence[int | None]
    """For each token, the index of the text that contains it: 0, or 1 for the second text of a pair; None for a special token."""
    real: Sequence[bool]
    """For each token, true if it is not padding."""
    cut: Sequence[Cut] = ()
    """The tokens of the row's texts that truncation removed from the row."""
    paired: bool = True
    """True if `sequences` distinguishes the two texts of a pair."""
    words: Sequence[int | None] | None = None
    """For each token, the index of its word in the text, or None for no word. None instead of the list if words are unknown."""

    def text_range(self, number: int, length: int) -> tuple[int, int]:
        """Returns the range of characters (first, after the last) that this row covers in a text. `number` is the index of the
        text (0 or 1), `length` its number of characters.

        Characters outside this range belong to tokens that truncation removed. Characters inside it that are in no token were
        dropped by the tokenizer.
        """
        own = [offset for offset, sequence in zip(self.offsets, self.sequences, strict=True) if sequence == number]
        if not own or not self.cut:
            return 0, length
        first, last = min(start for start, _ in own), max(end for _, end in own)
        others = [(start, end) for sequence, start, end in self.cut if sequence == number and start < end]
        before = max((end for _, end in others if end <= first), default=0)
        after = min((start for start, _ in others if start >= last), default=length)
        return before, after


def offsets_of(encoding: Any, cut: Sequence[Cut] = ()) -> Offsets:
    """Returns the offsets of an `Encoding` of the package tokenizers."""
    row = replace(_alone(encoding), words=list(encoding.word_ids))
    check_order(row)
    return replace(row, cut=[*cut, *(token for part in encoding.overflowing for token in text_tokens(_alone(part)))])


def _alone(encoding: Any) -> Offsets:
    added = [bool(mark) for mark in encoding.special_tokens_mask]
    sequences = [None if special else (0 if number is None else number) for special, number in zip(added, encoding.sequence_ids, strict=True)]
    return Offsets(list(encoding.offsets), sequences, [bool(mark) for mark in encoding.attention_mask])


def text_tokens(row: Offsets) -> list[Cut]:
    """Returns the tokens of a row that contain text, in the form of `Cut`; special tokens and padding are left out."""
    return [(sequence, *offset) for offset, sequence in zip(row.offsets, row.sequences, strict=True) if sequence is not None]


def check_order(row: Offsets) -> None:
    """Raises `Error` if the offsets begin again at 0 within one text. Then they count the characters of single words, or of
    both texts of a pair, instead of those of one text."""
    before: dict[int, tuple[int, int, int | None]] = {}
    for at, (offset, sequence) in enumerate(zip(row.offsets, row.sequences, strict=True)):
        if sequence is None:
            continue
        start, end, word = before.get(sequence, (0, 0, None))
        own = None if row.words is None else row.words[at]
        other_word = own is not None and word is not None and own != word
        # Characters that a normaliser expands, such as ½, are several words of one character.
        again = other_word and (offset[0] < start or (offset[0] == start and end > start and offset[1] - offset[0] > 1))
        if offset[0] < start - MOST_BACK or again:
            raise _restarted(at, offset, (start, end))
        before[sequence] = (*offset, own)


def check_words(row: Offsets, number: int, text: str) -> None:
    """Raises `Error` if consecutive tokens of different words have the same range of one character: the offsets then count from
    the start of each word. A character that a normaliser expands to several words, such as ½, is no error."""
    before: tuple[tuple[int, int], int | None] = ((0, 0), None)
    for at, offset in enumerate(row.offsets):
        if row.words is None or row.sequences[at] != number:
            continue
        word = row.words[at]
        character = text[offset[0] : offset[1]] if offset == before[0] and None not in (word, before[1]) and word != before[1] else ""
        if len(character) == 1 and unicodedata.normalize("NFKC", character) == character:
            raise _restarted(at, offset, before[0])
        before = (offset, word)


def _restarted(at: int, offset: tuple[int, int], before: tuple[int, int]) -> Error:
    return Error(
        f"token {at} has the characters {offset[0]}..{offset[1]}, but the token before it has {before[0]}..{before[1]}: give offsets in the whole text, not in each word (is_split_into_words), and for pairs give the number of each token's text"
    )


# --- what a caller may give -----------------------------------------------------------------------------------------


def encodings_of(given: Any) -> tuple[list[Offsets], list[int] | None]:
    """Returns (offsets of each row, text numbers). If a text has several rows, the text numbers are the index of the text of
    each row; otherwise they are None."""
    if is_encoding(given):
        return [offsets_of(given)], None
    if isinstance(given, (list, tuple)) and all(map(is_encoding, given)):
        return [offsets_of(each) for each in given], None
    found = getattr(given, "encodings", None)
    if found is not None and isinstance(given, Mapping):
        return _of_batch(given, found)
    if isinstance(given, Mapping) and "offset_mapping" in given:
        return _of_mapping(given), None
    if isinstance(given, Mapping):
        raise Error(
            "the encoding has no offsets: use a fast tokenizer of transformers (tokenizer.is_fast), whose result has them, or give "
            "return_offsets_mapping=True"
        )
    raise TypeError(f"the encoding is {type(given).__name__}: give the result of a fast tokenizer of transformers, or an Encoding of the package tokenizers")


def is_encoding(given: Any) -> bool:
    """Returns true if the value is an `Encoding` of the package tokenizers."""
    return all(hasattr(given, name) for name in ("ids", "offsets", "special_tokens_mask", "sequence_ids", "attention_mask", "overflowing", "word_ids"))


def _of_batch(given: Mapping[str, Any], found: Sequence[Any]) -> tuple[list[Offsets], list[int] | None]:
    """Returns the offsets and the text numbers of a `BatchEncoding`, as `encodings_of` does. The tokens in `given` are compared
    with the encodings `found`, because the caller may have changed them."""
    ids = array("input_ids", given["input_ids"]) if "input_ids" in given and _is_even(given["input_ids"]) else None
    if ids is not None:
        held = [each.ids for each in found]
        rows = ids.reshape(1, -1) if ids.ndim == 1 else ids
        if rows.ndim != 2 or len(held) != len(rows) or any(list(row) != list(own) for row, own in zip(rows.tolist(), held, strict=True)):
            raise Error("input_ids differ from the tokens of the encoding to which the offsets belong: give the tokenizer's result unchanged")
    mapping = given.get("overflow_to_sample_mapping")
    if mapping is None:
        return [offsets_of(each) for each in found], None
    texts = [int(number) for number in array("overflow_to_sample_mapping", mapping).reshape(-1)]
    if len(texts) != len(found):
        raise Error(f"overflow_to_sample_mapping has {len(texts)} entries, but there are {len(found)} rows: give the tokenizer's result unchanged")
    own = [text_tokens(offsets_of(each)) for each in found]
    cut = [[token for other, number in zip(own, texts, strict=True) if number == texts[row] for token in other] for row in range(len(found))]
    return [offsets_of(each, outside) for each, outside in zip(found, cut, strict=True)], texts


def _is_even(given: Any) -> bool:
    """Returns true if all rows have the same length."""
    return not isinstance(given, list) or len({len(row) if isinstance(row, list) else -1 for row in given}) <= 1


def _of_mapping(given: Mapping[str, Any]) -> list[Offsets]:
    """Returns the offsets of a dict with "offset_mapping". If it has no "special_tokens_mask", tokens with the offsets (0, 0)
    count as special tokens."""
    offsets = array("offset_mapping", given["offset_mapping"])
    offsets = offsets[None] if offsets.ndim == 2 else offsets
    if offsets.ndim != 3 or offsets.shape[2] != 2 or (offsets < 0).any():
        raise Error(f"offset_mapping has shape {list(offsets.shape)}: give [batch, length, 2], the first character of each token and the one after its last")
    special = (offsets == 0).all(-1) if given.get("special_tokens_mask") is None else booleans("special_tokens_mask", given["special_tokens_mask"])
    real = np.ones(offsets.shape[:2], np.bool_) if given.get("attention_mask") is None else booleans("attention_mask", given["attention_mask"])
    for name, marks in (("special_tokens_mask", special), ("attention_mask", real)):
        if marks.shape != offsets.shape[:2]:
            raise Error(f"{name} has shape {list(marks.shape)}, but offset_mapping has {list(offsets.shape)}: give [batch, length] = {list(offsets.shape[:2])}")
    rows = [
        Offsets([(int(a), int(b)) for a, b in row], [None if mark else 0 for mark in marks], [bool(mark) for mark in known], paired=False)
        for row, marks, known in zip(offsets.tolist(), (special | ~real).tolist(), real.tolist(), strict=True)
    ]
    for row in rows:
        check_order(row)
    return rows


def array(name: str, given: Any) -> NDArray[Any]:
    """Converts whole numbers or booleans to a NumPy array; tensors are moved to the CPU. `name` is the name of the argument in
    messages."""
    try:
        found = np.asarray(given.detach().cpu() if hasattr(given, "detach") else given)
    except Exception as error:  # arrays of other libraries raise errors of their own
        raise TypeError(f"{name} is {type(given).__name__}, which is not an array whose rows have equal lengths ({error}): give an array or a tensor") from None
    if found.dtype.kind not in "biu" and (found.size or found.dtype.kind == "O"):
        raise TypeError(f"{name} holds {found.dtype}: give whole numbers or booleans")
    if found.size > MOST_TOKENS:
        raise Error(f"{name} has {found.size} entries: give at most {MOST_TOKENS}, in several batches")
    return found


def booleans(name: str, given: Any) -> NDArray[np.bool_]:
    """Converts an array to booleans `[batch, length]`; numbers other than 0 are true. `name` is the name of the argument in
    messages."""
    found = array(name, given)
    found = found[None] if found.ndim == 1 else found
    if found.ndim != 2:
        raise Error(f"{name} has shape {list(found.shape)}: give [batch, length]")
    return found.astype(np.bool_)

"""Assigns documents to places in rows: in order, filled without a gap, first fit, and first fit decreasing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from .._noren import Error
from ..arguments._given import whole
from ._input import TOKENS, choice

METHODS = ("in_order", "fill", "first_fit", "first_fit_decreasing")
LONG = ("split", "truncate", "drop", "error")
PIECES = 1 << 24
"""Maximum number of pieces of documents (see `Piece`) in the result of one call."""


class Piece(NamedTuple):
    """A piece of a document: consecutive tokens of the document that are placed together in one row."""

    document: int
    """The index of the document."""
    start: int
    """The index of the first token of the piece, in the document."""
    stop: int
    """The index after the last token of the piece, in the document."""
    row: int
    """The index of the row that contains the piece."""
    column: int
    """The index of the first token of the piece, in the row."""

    @property
    def end(self) -> int:
        """The index after the last token of the piece, in the row."""
        return self.column + self.stop - self.start


def places(lengths: Sequence[int], length: int | None, method: str, long: str) -> list[Piece]:
    """Places documents of the given lengths in rows of `length` tokens. Returns the pieces of the documents, ordered by row and
    then by column. `method` and `long` are those of `noren.data.pack`.

    If `length` is None, all documents are in one row. Documents without tokens have no piece.
    """
    choice("method", method, METHODS)
    choice("long", long, LONG)
    if length is None:
        length = max(1, sum(lengths))
        if length > TOKENS:
            raise Error(f"the documents have {length} tokens, more than {TOKENS} in one row: give `length`, the number of tokens of a row, or fewer documents")
    length = whole("length", length, 1, TOKENS)
    count = sum(-(-tokens // length) for tokens in lengths)
    if count > PIECES:
        raise Error(f"rows of {length} tokens divide the documents into {count} pieces, but at most {PIECES} are possible: give fewer documents or longer rows")
    kept = [_kept(document, tokens, length, long) for document, tokens in enumerate(lengths)]
    if method == "fill":
        return _in_rows(_cut_at_rows(kept, length))
    parts = list(_parts(kept, length))
    if method == "in_order":
        return _in_rows(_next_fit(parts, length))
    if method == "first_fit_decreasing":
        parts.sort(key=lambda part: (part[1] - part[2], part[0], part[1]))
    return _in_rows(_first_fit(parts, length))


Part = tuple[int, int, int]
"""A range of tokens of a document: (index of the document, index of the first token, index after the last token)."""


def _kept(document: int, tokens: int, length: int, long: str) -> int:
    """Returns how many of the `tokens` tokens of a document are packed: all of them, or, for a document longer than `length`,
    what `long` selects (`"truncate"`: `length`, `"drop"`: 0). Raises `Error` for a longer document with `long="error"`."""
    if tokens <= length or long == "split":
        return tokens
    if long == "error":
        raise Error(
            f"document {document} has {tokens} tokens, but a row has space for {length}: give a larger length, or long= one of 'split', 'truncate' and 'drop'"
        )
    return length if long == "truncate" else 0


def _parts(lengths: Sequence[int], length: int) -> Iterable[Part]:
    """Yields the documents, each divided into parts of at most `length` tokens."""
    for document, tokens in enumerate(lengths):
        for start in range(0, tokens, length):
            yield document, start, min(start + length, tokens)


def _next_fit(parts: Iterable[Part], length: int) -> Iterable[tuple[int, Part]]:
    """Yields (index of the row, part) for each part. Parts are placed in the given order; a part that does not fit into the
    current row begins a new row."""
    row, used = -1, length
    for part in parts:
        tokens = part[2] - part[1]
        if used + tokens > length:
            row, used = row + 1, 0
        used += tokens
        yield row, part


def _cut_at_rows(lengths: Sequence[int], length: int) -> Iterable[tuple[int, Part]]:
    """Places the documents one after another without gaps, and yields (index of the row, part) for each of their parts. A
    document that does not fit into the rest of a row continues in the next row.
    """
    before = 0
    for document, tokens in enumerate(lengths):
        start = 0
        while start < tokens:
            stop = min(tokens, start + length - before % length)
            yield before // length, (document, start, stop)
            before += stop - start
            start = stop


def _first_fit(parts: Sequence[Part], length: int) -> Iterable[tuple[int, Part]]:
    """Yields (index of the row, part) for each part, placed in the first row that has space for it. The search takes O(log
    parts) steps for each part.

    `free` is a binary tree: entry `leaves + row` is the free space of a row, and each other entry is the maximum of its two
    children.
    """
    leaves = 1
    while leaves < len(parts):
        leaves *= 2
    free = [length] * (2 * leaves)
    for part in parts:
        tokens = part[2] - part[1]
        node = 1
        while node < leaves:
            node = 2 * node if free[2 * node] >= tokens else 2 * node + 1
        yield node - leaves, part
        free[node] -= tokens
        while node > 1:
            node //= 2
            free[node] = max(free[2 * node], free[2 * node + 1])


def _in_rows(placed: Iterable[tuple[int, Part]]) -> list[Piece]:
    """Returns the pieces ordered by row; the pieces of one row keep the order of `placed`."""
    used: dict[int, int] = {}
    pieces = []
    for row, (document, start, stop) in placed:
        column = used.get(row, 0)
        used[row] = column + stop - start
        pieces.append(Piece(document, start, stop, row, column))
    return sorted(pieces, key=lambda piece: (piece.row, piece.column))

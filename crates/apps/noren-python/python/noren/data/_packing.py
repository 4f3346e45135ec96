"""Packing: puts documents into rows and makes their mask, positions, labels and boundaries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import _noren
from .._noren import Error, Mask
from ..arguments._arrays import Array
from ..arguments._given import whole
from ._input import TOKENS, Bools, Ints, as_tensors, choice, column, counted, flags, ids, integers, is_torch, items
from ._layout import Piece, places
from ._rows import Rows

LABELS = ("auto", "causal", "given", "none")
PER_TOKEN = ("input_ids", "attention_mask", "labels", "loss_mask")
"""The columns of a document that packing uses; each column has one number for each token."""


@dataclass(frozen=True, eq=False)
class Packed(Rows):
    """Rows of packed documents, `[rows, length]`, with their mask, positions, labels and boundaries. Made by
    `noren.data.pack`."""

    input_ids: Ints
    """The tokens; `pad_token_id` after the last document of a row."""
    position_ids: Ints
    """The position of each token, counted from 0 in its document (in its piece, if the document is split); 0 for padding.
    transformers detects the documents by these positions."""
    labels: Ints
    """The labels for a model that shifts labels itself, as transformers' models do: the label of a token is its own id, or its
    entry in the given `labels`. Padding and tokens that `loss_mask` excludes have `ignore_index`; with `labels="none"`, all
    tokens have it. With a causal mask, the first token of a piece has `ignore_index` too, so no token learns to predict the first
    token of the next document."""
    segment_ids: Ints
    """For each token, the number of its document in the row; the first document of a row has number 1. 0 for padding."""
    pieces: tuple[Piece, ...]
    """The pieces of the documents with their places, ordered by row and then by column. A document that is not split is one
    piece."""
    sizes: tuple[int, ...]
    """The number of tokens of each document given to `pack`."""
    mask: Mask
    """The mask `causal & documents`: a query reads its own token and the earlier tokens of its document. For rows packed with
    `causal=False`, the mask is `documents`."""
    ignore_index: int = -100

    @property
    def attention_mask(self) -> Ints:
        """Returns the padding mask `[rows, length]`: 1 for a token, 0 for padding. Models that detect documents by positions
        need no `attention_mask`."""
        return (self.segment_ids > 0).astype(np.int64)

    @property
    def documents(self) -> tuple[tuple[int, ...], ...]:
        """The lengths of the documents of each row."""
        rows: list[list[int]] = [[] for _ in self.input_ids]
        for piece in self.pieces:
            rows[piece.row].append(piece.stop - piece.start)
        return tuple(map(tuple, rows))

    @property
    def lengths(self) -> tuple[int, ...]:
        """The number of tokens of each row, without padding."""
        return tuple(map(sum, self.documents))

    @property
    def facts(self) -> dict[str, list[Any]]:
        """The facts (data) that `mask` needs: the lengths of the documents and of the rows."""
        return {"documents": [list(row) for row in self.documents], "lengths": list(self.lengths)}

    @property
    def indices(self) -> Ints:
        """The indices of all tokens that are not padding; the rows are flattened to `rows * length` tokens."""
        return np.flatnonzero(self.segment_ids.reshape(-1))

    @property
    def cu_seqlens(self) -> NDArray[np.int32]:
        """The number of tokens before each piece (document, or part of a split document), followed by the number of all tokens:
        the argument `cu_seqlens` of flash-attention.

        Padding is not counted; `indices` has the indices of the counted tokens.
        """
        counts = [piece.stop - piece.start for piece in self.pieces]
        return np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)

    @property
    def max_seqlen(self) -> int:
        """The number of tokens of the longest piece: the argument `max_seqlen` of flash-attention."""
        return max(piece.stop - piece.start for piece in self.pieces)

    @property
    def density(self) -> float:
        """The number of tokens without padding, divided by the number of all places in the rows: from 0 to 1."""
        return sum(self.lengths) / self.input_ids.size

    def unpack(self, values: Array) -> list[Array]:
        """Returns the values of each document, in the order of the documents given to `pack`.

        `values` is an array or tensor `[rows, length, ...]`, such as hidden states. The pieces of a document are joined. The
        values of a document without tokens in the rows (empty or dropped) are an empty array `[0, ...]`. Gradients of tensors
        are kept.
        """
        self._check_values(values)
        parts: list[list[tuple[int, Array]]] = [[] for _ in self.sizes]
        for piece in self.pieces:
            parts[piece.document].append((piece.start, values[piece.row, piece.column : piece.end]))
        return [_joined([part for _, part in sorted(found, key=lambda item: item[0])], values) for found in parts]

    def tensors(self, device: Any = None) -> dict[str, Any]:
        """Returns `input_ids`, `position_ids` and `labels` as tensors of PyTorch: the arguments of a model of transformers.

        `device` is a name such as `"cuda"`, or a `torch.device` [default: the CPU]. Raises `noren.Error` for other values.
        """
        return as_tensors({name: getattr(self, name) for name in ("input_ids", "position_ids", "labels")}, device)

    def __repr__(self) -> str:
        rows, length = self.input_ids.shape
        return f"<{counted(len(self.sizes), 'document')} in {counted(rows, 'row')} of {counted(length, 'token')}, {self.density:.1%} filled>"


def pack(
    documents: Sequence[Any],
    length: int | None = None,
    *,
    method: str = "in_order",
    long: str = "split",
    labels: str = "auto",
    pad_token_id: int = 0,
    ignore_index: int = -100,
    causal: bool = True,
) -> Packed:
    """Packs documents into rows of `length` tokens [default: one row of all documents, without padding].

    A document is a list or array of token ids, or a mapping with `input_ids` and, optionally, `attention_mask` (0 for padding,
    which is removed), `loss_mask` (1 for a token that the model learns to predict) and `labels`.

    `method` selects where documents are placed:

    - `"in_order"`: documents in the given order; a document that does not fit into a row begins the next row
    - `"fill"`: as `"in_order"`, but a document that does not fit continues in the next row; only the last row has padding
    - `"first_fit"`: each document in the first row with space for it
    - `"first_fit_decreasing"`: as `"first_fit"`, longest documents first: few rows, little padding

    `long` selects what happens to documents longer than a row: `"split"`, `"truncate"`, `"drop"` or `"error"`. Each piece of a
    split document counts as a document of its own: its positions begin at 0.

    `labels` is `"given"` (the documents' own `labels`, one for each token and not shifted), `"causal"` (made from the token ids),
    `"none"` (`ignore_index` everywhere) or `"auto"` (`"given"` if the documents have labels, else `"causal"`). `causal=False`
    gives the mask `documents`, in which a token reads its whole document, and each token's own id as its label: corrupt the tokens
    (transformers' `DataCollatorForLanguageModeling` has a method for it) before training. With `causal=True`, the first token of a document has no label.

    Raises TypeError for documents that are not token ids, and `noren.Error` if no token is left or the rows exceed 2**26 tokens.

    >>> from noren.data import pack
    >>> packed = pack([[5, 6, 7], [8, 9], [10, 11, 12, 13]], 6)
    >>> packed
    <3 documents in 2 rows of 6 tokens, 75.0% filled>
    >>> packed.input_ids.tolist(), packed.labels[0].tolist()
    ([[5, 6, 7, 8, 9, 0], [10, 11, 12, 13, 0, 0]], [-100, 6, 7, -100, 9, -100])
    >>> packed.plan(heads=8)
    <plan of causal & documents on Shape(6, 6, batch=2, heads=8)>
    >>> [part.tolist() for part in packed.unpack(packed.input_ids)]
    [[5, 6, 7], [8, 9], [10, 11, 12, 13]]
    """
    given = Columns.read(documents, labels)
    pieces = places(given.sizes, length, method, long)
    if not pieces:
        raise Error(f"no token is left after packing {counted(len(given.sizes), 'document')}: give documents with tokens, or another value than long={long!r}")
    width = length if length is not None else max(piece.end for piece in pieces)
    return given.packed(pieces, int(width), pad_token_id, ignore_index, causal)


@dataclass(frozen=True)
class Columns:
    """Documents as arrays: the token ids of each document and, if given, its labels."""

    input_ids: list[Ints]
    labels: list[Ints] | None
    """The labels of each document, one for each token; None if no document has labels."""
    learned: list[Bools] | None
    """The `loss_mask` of each document: true for each token whose label is kept. None if no document has a `loss_mask`: all labels
    are then kept.
    """

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(map(len, self.input_ids))

    @classmethod
    def read(cls, documents: Sequence[Any], labels: str) -> Columns:
        """Reads the documents, which are token ids or mappings with `input_ids`, `labels` and `loss_mask`. `labels` is the
        option of `pack`."""
        choice("labels", labels, LABELS)
        rows = [document if isinstance(document, Mapping) else {"input_ids": document} for document in items("documents", documents, "documents")]
        for at, row in enumerate(rows):
            if "input_ids" not in row:
                raise Error(f"document {at} has no 'input_ids', but {', '.join(map(repr, row)) or 'no keys'}: give its token ids")
        rows = without_padding(rows)
        own = column(rows, "labels", "document")
        if labels == "causal" and own:
            raise Error("the documents have the entry 'labels', which labels='causal' does not use: remove it, or give labels='given'")
        if labels == "given" and not own:
            raise Error("labels is 'given', but the documents have no 'labels': give mappings with 'labels', or labels='causal'")
        tokens = [ids(f"document {at}", row["input_ids"]) for at, row in enumerate(rows)]
        if labels == "none":
            return cls(tokens, None, None)
        targets = [integers(f"labels of document {at}", target, 1) for at, target in enumerate(own or tokens)]
        masks = [flags(f"loss_mask of document {at}", mask, 1, "a token to learn") for at, mask in enumerate(column(rows, "loss_mask", "document"))]
        for name, others in (("labels", targets), ("entries of 'loss_mask'", masks)):
            for at, other in enumerate(others):
                if len(other) != len(tokens[at]):
                    raise Error(f"document {at} has {len(tokens[at])} tokens, but {len(other)} {name}: give one for each token")
        return cls(tokens, targets, masks or None)

    def packed(self, pieces: Sequence[Piece], width: int, pad_token_id: int, ignore_index: int, causal: bool) -> Packed:
        """Returns the packed rows, each of `width` tokens. Each piece is placed in the row and at the column that are its
        fields."""
        pad, ignore = whole("pad_token_id", pad_token_id, 0), whole("ignore_index", ignore_index, -(2**31))
        if not isinstance(causal, bool):
            raise TypeError(f"causal is a {type(causal).__name__}: give True or False")
        rows = pieces[-1].row + 1
        if rows * width > TOKENS:
            raise Error(f"{rows} rows of {width} tokens exceed the limit of {TOKENS} tokens: pack fewer documents at once, or into shorter rows")
        tokens, positions, segments = (np.full((rows, width), fill, np.int64) for fill in (pad, 0, 0))
        labels = np.full((rows, width), ignore, np.int64)
        numbers = [0] * rows
        for piece in pieces:
            place, part = (piece.row, slice(piece.column, piece.end)), slice(piece.start, piece.stop)
            tokens[place] = self.input_ids[piece.document][part]
            positions[place] = np.arange(piece.stop - piece.start)
            numbers[piece.row] += 1
            segments[place] = numbers[piece.row]
            labels[place] = self._labels(piece, ignore, causal)
        mask = _noren.causal() & _noren.documents() if causal else _noren.documents()
        return Packed(tokens, positions, labels, segments, tuple(pieces), self.sizes, mask, ignore)

    def _labels(self, piece: Piece, ignore: int, causal: bool) -> Ints:
        """Returns the labels of a piece. With a causal mask, the first token of the piece has no label, because no token predicts
        it.
        """
        if self.labels is None:
            return np.full(piece.stop - piece.start, ignore, np.int64)
        labels = self.labels[piece.document][piece.start : piece.stop].copy()
        if self.learned is not None:
            labels[~self.learned[piece.document][piece.start : piece.stop]] = ignore
        if causal:
            labels[0] = ignore
        return labels


def without_padding(rows: list[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Returns the rows without their padding (tokens whose `attention_mask` is 0) and without the key `attention_mask`."""
    masks = [flags(f"attention_mask of document {at}", mask, 1, "a token") for at, mask in enumerate(column(rows, "attention_mask", "document"))]
    if not masks:
        return rows
    out: list[Mapping[str, Any]] = []
    for at, (row, mask) in enumerate(zip(rows, masks, strict=True)):
        kept: dict[str, Any] = {name: value for name, value in row.items() if name not in PER_TOKEN}
        for name in PER_TOKEN:
            if name in row:
                values = integers(f"{name} of document {at}", row[name], 1)
                if len(values) != len(mask):
                    raise Error(f"document {at} has {len(values)} {name}, but {len(mask)} entries of 'attention_mask': give one for each token")
                kept[name] = values[mask]
        del kept["attention_mask"]
        out.append(kept)
    return out


def _joined(parts: list[Array], like: Array) -> Array:
    """Returns the parts of one document, joined. If there are no parts, returns an empty array or tensor of the type of `like`."""
    if not parts:
        return like[0, :0]
    if len(parts) == 1:
        return parts[0]
    if is_torch(like):
        import torch

        return torch.cat(parts)
    return np.concatenate(parts)

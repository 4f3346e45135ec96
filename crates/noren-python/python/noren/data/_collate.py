"""Collators make the arguments of a model from examples of a data set, for PyTorch's DataLoader and for `datasets`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._noren import Error
from ._input import TOKENS, Ints, as_tensors, choice, column, counted, flags, ids, is_torch, items, number, whole
from ._layout import METHODS, places
from ._layout import LONG as LONG_DOCUMENTS
from ._packing import LABELS, Columns, Packed

Example = Mapping[str, Any]

_PADDED = {"position_ids": 0, "token_type_ids": 0, "special_tokens_mask": 1, "loss_mask": 0}
"""The value of padding in columns that tokenizers return, by column name."""
_READ = ("input_ids", "attention_mask", "labels", "label")
"""The columns of an example that `PaddingCollator` uses itself: token ids, padding mask and labels. All other columns are padded."""
_EXTRAS = ("segment_ids", "attention_mask", "shifted_labels", "cu_seqlens", "max_seqlen", "facts", "document_lengths", "use_cache", "packed")


@dataclass(frozen=True, kw_only=True)
class _Collator:
    """The options that `PaddingCollator` and `PackingCollator` have in common."""

    pad_token_id: int = 0
    labels: str = "auto"
    """`"auto"`: the `labels` of the examples; if they have none, PackingCollator makes labels as for `"causal"`, and
    PaddingCollator makes none. `"given"`: the `labels` of the examples, which must be present. `"causal"`: labels made from the
    token ids, for a model that shifts labels itself. `"none"`: no labels."""
    ignore_index: int = -100
    return_tensors: str = "pt"
    """`"pt"` for tensors of PyTorch, `"np"` for arrays of NumPy."""

    def __post_init__(self) -> None:
        number("pad_token_id", self.pad_token_id, 0)
        choice("labels", self.labels, LABELS)
        number("ignore_index", self.ignore_index, -(2**31))
        choice("return_tensors", self.return_tensors, ("pt", "np"))

    def _finish(self, arrays: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the arrays as tensors of PyTorch, or unchanged if `return_tensors` is `"np"`."""
        if self.return_tensors == "np":
            return dict(arrays)
        return {**arrays, **as_tensors({name: value for name, value in arrays.items() if isinstance(value, np.ndarray)})}


@dataclass(frozen=True, kw_only=True)
class PaddingCollator(_Collator):
    """Pads examples to one length: `input_ids`, `attention_mask`, `position_ids` and `labels`, `[batch, length]`.

    An example is a mapping with `input_ids`. Positions count the tokens of a row from 0, also with padding on the left; padding
    has position 0. With `labels="causal"`, the first token of a row has no label, because no token predicts it, and
    `loss_mask` (1 for a token to learn) selects the tokens with labels. The padding is known from the lengths, so the end token
    may also be the padding token.

    Numbers, such as the class `label` of a text, become one array `[batch]`; `label` is renamed to `labels`. Other columns need an
    entry in `pad_values`.

    Raises TypeError and `noren.Error` for examples that do not fit together, with the index of the example.

    >>> from noren.data import PaddingCollator
    >>> collate = PaddingCollator(side="left", labels="causal", return_tensors="np")
    >>> batch = collate([{"input_ids": [5, 6, 7]}, {"input_ids": [8, 9]}])
    >>> batch["input_ids"].tolist(), batch["position_ids"].tolist(), batch["labels"].tolist()
    ([[5, 6, 7], [0, 8, 9]], [[0, 1, 2], [0, 0, 1]], [[-100, 6, 7], [-100, -100, 9]])
    """

    side: str = "right"
    """The side of the padding: `"right"` or `"left"`."""
    length: int | None = None
    """The length of the rows in tokens [default: the length of the longest example]. Longer examples are an error."""
    multiple: int = 1
    """The length of the rows is rounded up to a multiple of this number."""
    pad_values: Mapping[str, int] = field(default_factory=dict)
    """The values of padding in columns that are not known by default, by column name. Each such column has one whole number for
    each token."""

    def __post_init__(self) -> None:
        super().__post_init__()
        choice("side", self.side, ("right", "left"))
        number("multiple", self.multiple, 1, TOKENS)
        if self.length is not None:
            number("length", self.length, 1, TOKENS)
        if not isinstance(self.pad_values, Mapping):
            raise TypeError(f"pad_values is a {type(self.pad_values).__name__}: give a mapping from columns to numbers")
        for name, value in self.pad_values.items():
            if name in _READ:
                raise Error(f"pad_values has the column {name!r}, whose padding is fixed: give pad_token_id for ids and ignore_index for labels")
            number(f"pad_values[{name!r}]", value, -(2**63), 2**63 - 1)

    def __call__(self, examples: Sequence[Example]) -> dict[str, Any]:
        """Returns the padded batch of a list of examples."""
        rows = _examples(examples)
        given = [ids(f"input_ids of example {at}", tokens) for at, tokens in enumerate(column(rows, "input_ids"))]
        sizes = [len(tokens) for tokens in given]
        width = self._width(sizes)
        tokens = self._padded("input_ids", given, sizes, width, self.pad_token_id)
        masks = [flags(f"attention_mask of example {at}", mask, 1, "a token") for at, mask in enumerate(column(rows, "attention_mask"))]
        ones = [mask.astype(np.int64) for mask in masks] or [np.ones(size, np.int64) for size in sizes]
        real = self._padded("attention_mask", ones, sizes, width, 0)
        out = {"input_ids": tokens, "attention_mask": real, "position_ids": np.maximum(real.cumsum(1) - 1, 0) * real}
        out |= self._others(rows, sizes, width)  # given positions replace the computed ones
        if "loss_mask" in out:
            out["loss_mask"] = out["loss_mask"] * real
        self._label(rows, out)
        return self._finish(out)

    def _label(self, rows: list[Example], out: dict[str, Any]) -> None:
        """Adds the array `labels` to the padded batch `out`, and removes the columns from which the labels are made."""
        name = _label_column(rows)
        if self.labels == "causal":
            if name:
                raise Error(f"the examples have the column {name!r}, which labels='causal' does not use: remove the column, or give labels='given'")
            follows = (out["attention_mask"] == 1) & (out["attention_mask"].cumsum(1) > 1)
            out["labels"] = np.where(follows & (out.pop("loss_mask", 1) == 1), out["input_ids"], self.ignore_index)
        elif self.labels != "none" and name:
            given = column(rows, name)
            if all(map(_scalar, given)):
                out["labels"] = _numbers(name, given)
                return
            entries = [whole(f"{name} of example {at}", entry, 1) for at, entry in enumerate(given)]
            labels = self._padded(name, entries, [len(row["input_ids"]) for row in rows], out["input_ids"].shape[1], self.ignore_index)
            out["labels"] = np.where((out["attention_mask"] == 1) & (out.pop("loss_mask", 1) == 1), labels, self.ignore_index)
        elif self.labels == "given":
            raise Error("labels is 'given', but the examples have no 'labels': give them, or labels='causal'")

    def _width(self, sizes: list[int]) -> int:
        longest = max(sizes)
        if self.length is not None and longest > self.length:
            raise Error(f"example {sizes.index(longest)} has {longest} tokens, but length is {self.length}: truncate the example, or give a larger length")
        width = -(-(self.length or max(longest, 1)) // self.multiple) * self.multiple
        if width * len(sizes) > TOKENS:
            raise Error(f"{len(sizes)} rows of {width} tokens exceed the limit of {TOKENS} tokens in a batch: give fewer examples or a smaller length")
        return width

    def _padded(self, name: str, given: Sequence[NDArray[Any]], sizes: list[int], width: int, value: int) -> Ints:
        """Returns the column `name` as an array `[batch, width]`. Example `i` has `sizes[i]` tokens and the entries `given[i]`
        in this column; the rest of its row is filled with `value`.
        """
        out = np.full((len(given), width), value, np.int64)
        for at, (row, size) in enumerate(zip(given, sizes, strict=True)):
            if len(row) != size:
                raise Error(f"example {at} has {size} input_ids, but {len(row)} entries of {name!r}: give one entry for each token")
            out[at, width - size if self.side == "left" else 0 :][:size] = row
        return out

    def _others(self, rows: list[Example], sizes: list[int], width: int) -> dict[str, Any]:
        """Returns the padded columns of the batch that are not token ids, padding masks or labels."""
        out: dict[str, Any] = {}
        for name in dict.fromkeys(key for row in rows for key in row):
            if name in _READ:
                continue
            values = column(rows, name)
            if name not in _PADDED and all(map(_scalar, values)):
                out[name] = _numbers(name, values)
                continue
            value = self.pad_values.get(name, _PADDED.get(name))
            if value is None:
                raise Error(f"column {name!r} has no known padding: remove the column, or give pad_values={{{name!r}: number}}")
            read = [whole(f"{name} of example {at}", entry, 1) for at, entry in enumerate(values)]
            if name in ("special_tokens_mask", "loss_mask"):
                read = [flags(f"{name} of example {at}", entry, 1, "true").astype(np.int64) for at, entry in enumerate(read)]
            out[name] = self._padded(name, read, sizes, width, value)
        return out


@dataclass(frozen=True, kw_only=True)
class PackingCollator(_Collator):
    """Packs examples into rows in which no document reads another one. The batch has `input_ids`, `position_ids` and `labels`,
    each `[rows, length]`.

    An example is a mapping with `input_ids` and, optionally, `attention_mask` (0 for padding, which is removed), `loss_mask` and
    `labels`; other columns are not used. Examples without `labels` get labels for causal language modelling. Without `length`, a
    batch is one row without padding. The batch has no `attention_mask`: transformers detects the documents by `position_ids`, but
    not if it gets an `attention_mask` or uses a cache. `extras=["use_cache"]` adds `use_cache=False` for models of
    transformers; other extras are arguments of other attention functions.

    >>> from noren.data import PackingCollator
    >>> collate = PackingCollator(length=6, method="first_fit_decreasing", extras=["facts"], return_tensors="np")
    >>> batch = collate([{"input_ids": [5, 6]}, {"input_ids": [7, 8, 9, 10, 11]}, {"input_ids": [12, 13, 14]}])
    >>> batch["input_ids"].tolist(), batch["facts"]
    ([[7, 8, 9, 10, 11, 0], [12, 13, 14, 5, 6, 0]], {'documents': [[5], [3, 2]], 'lengths': [5, 5]})
    """

    length: int | None = None
    """The number of tokens of a row [default: the number of all tokens of the batch, so there is one row]."""
    method: str = "in_order"
    """The method by which documents are placed in rows, as in `noren.data.pack`."""
    long: str = "split"
    """The treatment of documents longer than a row, as in `noren.data.pack`."""
    extras: Sequence[str] = ()
    """Names of entries to add to the batch: `segment_ids`, `attention_mask`, `shifted_labels`, `cu_seqlens`, `max_seqlen`,
    `facts`, `document_lengths`, `use_cache` (false), and `packed` (the `Packed` object)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        choice("method", self.method, METHODS)
        choice("long", self.long, LONG_DOCUMENTS)
        if self.length is not None:
            number("length", self.length, 1, TOKENS)
        for name in items("extras", self.extras, "names"):
            choice("extras", name, _EXTRAS)

    def __call__(self, examples: Sequence[Example]) -> dict[str, Any]:
        """Returns the packed batch of a list of examples."""
        packed = self.pack(examples)
        names = ["input_ids", "position_ids", *(() if self.labels == "none" else ("labels",)), *self.extras]
        return self._finish({name: _entry(packed, name) for name in names})

    def pack(self, examples: Sequence[Example]) -> Packed:
        """Returns the packed rows of a list of examples."""
        rows = _examples(examples)
        given = Columns.read(rows, self.labels)
        pieces = places(given.sizes, self.length, self.method, self.long)
        if not pieces:
            raise Error(f"no token is left after {counted(len(rows), 'example')}: give examples with tokens, or another value than long={self.long!r}")
        width = pieces[-1].end if self.length is None else self.length
        return given.packed(pieces, width, self.pad_token_id, self.ignore_index, True)


def _examples(examples: Any) -> list[Example]:
    """Returns the examples as a list of mappings with `input_ids`."""
    rows = items("examples", examples, "examples, each a mapping with 'input_ids'")
    if not rows:
        raise Error("the batch has no example: give at least one")
    for at, row in enumerate(rows):
        if not isinstance(row, Mapping):
            raise TypeError(f"example {at} is a {type(row).__name__}: give a mapping with 'input_ids'")
        if "input_ids" not in row:
            raise Error(f"example {at} has no 'input_ids', but {', '.join(map(repr, row)) or 'no keys'}: give its token ids")
    return rows


def _label_column(rows: list[Example]) -> str | None:
    """Returns the name of the column with labels, `labels` or `label`; None if the examples have neither."""
    names = [name for name in ("labels", "label") if column(rows, name)]
    if len(names) > 1:
        raise Error("the examples have 'labels' and 'label': remove one of the columns")
    return names[0] if names else None


def _entry(packed: Packed, name: str) -> Any:
    """Returns the entry `name`, one of `PackingCollator.extras`, for a batch of packed rows."""
    if name in ("packed", "use_cache"):
        return packed if name == "packed" else False
    return [list(row) for row in packed.documents] if name == "document_lengths" else getattr(packed, name)


def _scalar(value: Any) -> bool:
    """Returns true if the value is one number."""
    return isinstance(value, (bool, int, float, np.number, np.bool_)) or (is_torch(value) and value.ndim == 0) or getattr(value, "shape", None) == ()


def _numbers(name: str, values: list[Any]) -> NDArray[Any]:
    """Returns one number for each example, `[batch]`: int64, or float32 if the numbers are floats. `name` is the name of the
    column, for error messages."""
    numbers = [value.item() if hasattr(value, "item") else value for value in values]
    floats = any(isinstance(value, float) for value in numbers)
    for at, value in enumerate(numbers):
        if not isinstance(value, (bool, int, float)):
            raise TypeError(f"column {name!r} of example {at} is a {type(value).__name__}: remove the column, or give numbers")
        largest = float(np.finfo(np.float32).max) if floats else 2**63 - 1
        if abs(value) > largest and value != -(2**63) and not math.isinf(value):
            raise Error(f"column {name!r} of example {at} holds {value}: give numbers with an absolute value of at most {largest:g}")
    return np.array(numbers, np.float32 if floats else np.int64)

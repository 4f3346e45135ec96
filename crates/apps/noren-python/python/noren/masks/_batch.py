"""`facts_from` reads the facts of a mask from a batch of a tokenizer, a data collator or a training loop, by the names and
values of the batch's entries. The table of names and the rules for padding and documents are in Rust (`noren_mask::batch`)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from .._noren import Error, Facts, Mask, batch_reads, causal, documents, full, padding, prefix, read_batch
from .._noren import batch as by_batch_row
from .._noren import spans as spans_of
from ..arguments._given import ranges, short

TokenTypes = Literal["sentences", "images", "suffix"]

_TYPES = '"sentences" (BERT: no effect on the mask), "images" (Gemma 3: consecutive tokens with 1 are an image) or "suffix" (PaliGemma: tokens with 0 are the prefix)'
_LISTS = ("documents", "document_lengths")


class FactsFound(dict[str, Any]):
    """Facts of a batch (data that a mask needs, such as lengths and documents), and a description of how the batch was read.

    The dict holds facts by name, such as `lengths` and `documents`; every parameter `facts` accepts this dict. `mask` is the
    expression that uses these facts. The expression contains `causal` only if images or prefixes were found, because these
    extend a causal mask. `explanation` states in sentences how each entry was read; `found` has the names of the entries that
    were used, and `ignored` the names of the other entries.
    """

    def __init__(self, facts: Facts, mask: Mask, says: list[tuple[str, str]], ignored: list[str]) -> None:
        super().__init__(json.loads(facts.to_json()))
        self.facts, self.mask = facts, mask
        self.found, self.ignored = tuple(name for name, _ in says), tuple(ignored)
        unused = [f"Not used: {', '.join(ignored)}."] if ignored else []
        self.explanation = " ".join([*(f"{name}: {sentence}." for name, sentence in says), *unused])

    def __repr__(self) -> str:
        return f"<facts {dict(self)}: {self.explanation}>"


def facts_from(
    batch: Any,
    *,
    segment_padding: int | None | Literal["unknown"] = "unknown",
    token_types: TokenTypes | None = None,
    pad_id: int | None = None,
) -> FactsFound:
    """Returns the facts of a batch (data that a mask needs, such as lengths and documents), and states how the batch was read.

    `batch` is a mapping: the output of a tokenizer or a data collator, or a dict with some of these entries:

    - `attention_mask`, `[batch, length]`: 1 for tokens and 0 for padding; with numbers above 1, numbers of packed documents; floats
      of 0 and -inf are added to scores. `key_padding_mask`: 1 for padding. `padding_mask`: 1 for padding or for tokens, which
      `attention_mask` or a row in which only one reading leaves tokens decides
    - `position_ids`: positions that begin again at 0 in each document. Positions that never begin again give no documents. Zeros at
      the end of a row are padding or documents of one token
    - `segment_ids`, `seq_idx`, `sequence_ids`, `document_ids`, `doc_ids`: the number of the document of each token. -1 is padding; 0 is
      padding or the first document, which `attention_mask` or `segment_padding` (the number of padding; None for no padding)
      decides. In `seq_idx`, 0 is the first document if no 0 follows another number
    - `cu_seqlens` (also with `_q` or `_k` at the end), `cu_seq_lens`: 0 and the end of each document
    - `facts`, `document_lengths`, `documents`, `lengths`: facts, as `noren.data.pack` returns them
    - `token_type_ids`: `token_types` gives their meaning if they are not all 0: "sentences" (BERT), "images" (Gemma 3:
      consecutive tokens with 1 are an image whose tokens read each other) or "suffix" (PaliGemma: the tokens with 0 are a prefix)
    - `overflow_to_sample_mapping`: the text from which each row was cut. This entry has no effect, because rows do not read
      each other
    - `input_ids`, with `pad_id`: the id of padding

    An array without a name is read as each of its possible entries.

    Raises `Error` if the batch has several readings (the message has all of them), if two entries contradict each other, or if no entry
    gives facts. Raises TypeError if `batch` is neither a mapping nor an array.
    """
    if isinstance(batch, Facts):
        raise TypeError("the batch is a Facts object already: give it to the mask as facts")
    if segment_padding is not None and segment_padding != "unknown" and (isinstance(segment_padding, bool) or not isinstance(segment_padding, int)):
        raise TypeError(f"segment_padding is {short(segment_padding)}: give the number of padding, or None for no padding")
    if token_types not in (None, "sentences", "images", "suffix"):
        raise Error(f"token_types is {token_types!r}: give {_TYPES}")
    if isinstance(batch, Mapping):
        given = {str(name): value for name, value in batch.items() if value is not None}
        named = [name for name in given if batch_reads(name, pad_id)]
        entries: list[tuple[str | None, Any]] = [(name, _array(name, given[name])) for name in named]
    elif hasattr(batch, "shape") or isinstance(batch, (list, tuple)):
        given, entries = {}, [(None, _array("the array", batch))]
    else:
        raise TypeError(f"the batch is {short(batch)}: give a dict of arrays, or one array")
    for option, wanted, name in (("pad_id", pad_id, "input_ids"), ("token_types", token_types, "token_type_ids")):
        if wanted is not None and name not in given:
            raise Error(f"{option}={wanted!r} is given, but the batch has no {name}")
    types = np.atleast_2d(_array("token_type_ids", given["token_type_ids"])) if "token_type_ids" in given else None
    facts = Facts()
    says: list[Any] = []
    if entries or types is None:
        if not entries:
            names = ", ".join(given) or "no entries"
            raise Error(
                f"the batch gives no facts for a mask (it has {names}): give attention_mask, position_ids, segment_ids, cu_seqlens, or "
                "pad_id= with input_ids"
            )
        facts, size, says = read_batch(
            entries,
            segment_padding=[] if segment_padding == "unknown" else [segment_padding],
            pad_id=pad_id,
            known=given.get("facts") if isinstance(given.get("facts"), (Facts, Mapping)) else None,
        )
        if types is not None and types.shape != size:
            raise Error(f"token_type_ids has shape {list(types.shape)}, but {entries[0][0]} has shape {list(size)}: give entries of one batch")
        texts = given.get("overflow_to_sample_mapping")
        if texts is not None and len(texts) != size[0]:
            raise Error(f"overflow_to_sample_mapping has {len(texts)} entries, but {entries[0][0]} has {size[0]} rows: give one text for each row")
    found = json.loads(facts.to_json())
    real, packed = "lengths" in found or "real_keys" in found, "documents" in found
    mask = documents() & padding() if packed and real else documents() if packed else padding() if real else full()
    if types is not None:
        more, labels, sentence = _token_types(types, token_types, found)
        says.append(("token_type_ids", sentence))
        facts = facts.merged(Facts(labels=labels)) if labels else facts
        if more is not None:
            mask = causal() | more if mask == full() else (causal() | more) & mask
    if "overflow_to_sample_mapping" in given:
        texts = len(np.unique(_array("overflow_to_sample_mapping", given["overflow_to_sample_mapping"])))
        says.append(("overflow_to_sample_mapping", f"the rows are cut from {texts} texts; rows do not read each other, so that this entry has no effect on a mask"))
    used = {name for name, _ in says}
    return FactsFound(facts, mask, says, [name for name in given if name not in used])


def _token_types(given: NDArray[Any], types: TokenTypes | None, facts: dict[str, Any]) -> tuple[Mask | None, dict[str, Any], str]:
    """Returns the mask that the token types add to a causal mask, labels, and the explanation."""
    if types is None and given.any():
        raise Error(f"token_type_ids are not all 0 and have several readings: give token_types={_TYPES}")
    if types is None:
        return None, {}, "all entries are 0, which has no effect on a mask"
    if types == "sentences":
        return None, {}, "the two sentences of a pair; every token reads both, so that this entry has no effect on a mask"
    if (other := given[(given != 0) & (given != 1)]).size:
        raise Error(f"token_type_ids hold {other[0]}, but token_types={types!r} reads 0 and 1 only: give 1 for the tokens of this type and 0 for all others")
    real = _real_of(facts, given.shape)
    marked = (given != 0) & real
    if types == "images":
        runs = [ranges(row) for row in marked]
        arms: dict[Any, Any] = {row: spans_of(found) for row, found in enumerate(runs) if found}
        sentence = f"consecutive tokens with 1 are an image ({sum(map(len, runs))} images in all), whose tokens read each other"
        return by_batch_row(arms | {"else": "none"}) if arms else None, {"images": [np.flatnonzero(row).tolist() for row in marked]}, sentence
    first = [int(np.flatnonzero(row)[0]) if row.any() else given.shape[1] for row in marked]
    if late := [row for row, end in enumerate(first) if (real & ~marked)[row, end:].any()]:
        raise Error(
            f'token_types="suffix": batch row {late[0]} has tokens with 0 after tokens with 1, so that the prefix is not at the '
            'beginning; give token_types="images" if the tokens with 1 are images'
        )
    return prefix(first), {}, f"the tokens with 0 are a prefix that every query reads ({first} tokens in all)"


def _real_of(facts: dict[str, Any], shape: tuple[int, ...]) -> NDArray[np.bool_]:
    """Returns booleans `[batch, length]` from facts in JSON form: true for tokens that are not padding."""
    at = np.arange(shape[1])
    if "lengths" in facts:
        lengths = np.array(facts["lengths"])[:, None]
        return at >= shape[1] - lengths if facts.get("side") == "left" else at < lengths
    real = np.full(shape, "real_keys" not in facts)
    for row, parts in enumerate(facts.get("real_keys", [])):
        for part in parts:
            first, end = (int(n) for n in part.split("..")) if isinstance(part, str) else (part, part + 1)
            real[row, first:end] = True
    return real


def _array(name: str, value: Any) -> NDArray[Any]:
    """Returns an entry of a batch as an array of booleans, whole numbers or floats. Lists of document lengths are filled with
    zeros."""
    if hasattr(value, "detach"):
        value = value.detach().cpu()
        value = value.double() if value.is_floating_point() else value
    elif name in _LISTS and isinstance(value, (list, tuple)):
        width = max((len(row) for row in value if isinstance(row, (list, tuple))), default=0)
        value = [[*row, *[0] * (width - len(row))] if isinstance(row, (list, tuple)) else row for row in value]
    try:
        made = np.asarray(value)
    except ValueError:
        raise Error(f"{name} has rows of different lengths: pad the batch first, for example with `tokenizer.pad`") from None
    if made.dtype.kind not in "biuf":
        raise Error(f"{name} holds {made.dtype} values: give whole numbers")
    return np.array(made)  # a copy, because DLPack refuses arrays that cannot be written

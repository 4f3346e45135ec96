"""`facts_from` reads the facts of a mask from a batch of a tokenizer, a data collator or a training loop, by the names and
values of the batch's entries."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ._given import short
from ._noren import Error, Facts, Mask, causal, documents, full, padding, prefix
from ._noren import batch as by_batch_row
from ._noren import spans as spans_of

Ints = NDArray[np.int64]
TokenTypes = Literal["sentences", "images", "suffix"]

_SEGMENTS = ("segment_ids", "seq_idx", "sequence_ids", "document_ids", "doc_ids")
_ENDS = ("cu_seqlens", "cu_seqlens_q", "cu_seqlens_k", "cu_seq_lens", "cu_seq_lens_q", "cu_seq_lens_k")
_KNOWN = ("attention_mask", "position_ids", *_SEGMENTS, *_ENDS, "token_type_ids", "overflow_to_sample_mapping", "input_ids")
_TYPES = '"sentences" (BERT: no effect on the mask), "images" (Gemma 3: consecutive tokens with 1 are an image) or "suffix" (PaliGemma: tokens with 0 are the prefix)'


class FactsFound(dict[str, Any]):
    """Facts of a batch (data that a mask needs, such as lengths and documents), and a description of how the batch was read.

    The dict holds facts by name, such as `lengths` and `documents`; every parameter `facts` accepts this dict. `mask` is the
    expression that uses these facts. The expression contains `causal` only if images or prefixes were found, because these
    extend a causal mask. `explanation` states in sentences how each entry was read; `found` has the names of the entries that
    were used, and `ignored` the names of the other entries.
    """

    def __init__(self, facts: Facts, mask: Mask, sentences: list[str], found: list[str], ignored: list[str]) -> None:
        super().__init__(json.loads(facts.to_json()))
        self.facts, self.mask = facts, mask
        self.explanation = " ".join(sentences)
        self.found, self.ignored = tuple(found), tuple(ignored)

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

    - `attention_mask`, `[batch, length]`: 1 for tokens and 0 for padding; with numbers above 1, ids of packed documents
    - `position_ids`: positions that begin again at 0 in each document. Positions that never begin again give no documents
    - `segment_ids`, `seq_idx`, `sequence_ids`, `document_ids`, `doc_ids`: the number of the document of each token. -1 is padding; 0 is
      padding or the first document, which `attention_mask` or `segment_padding` (the id of padding; None for no padding)
      decides; in `seq_idx`, a first 0 is the first document
    - `cu_seqlens` (also with `_q` or `_k` at the end), `cu_seq_lens`: 0 and the end of each document
    - `token_type_ids`: `token_types` gives their meaning if they are not all 0: "sentences" (BERT), "images" (Gemma 3:
      consecutive tokens with 1 are an image whose tokens read each other) or "suffix" (PaliGemma: the tokens with 0 are a prefix)
    - `overflow_to_sample_mapping`: the text from which each row was cut. This entry has no effect, because rows do not read
      each other
    - `input_ids`, with `pad_id`: the id of padding

    An array without a name is read as each of these four entries: `attention_mask`, `position_ids`, `segment_ids` and `cu_seqlens`.

    Raises `Error` if an entry has several readings (the message has all of them), if two entries contradict each other, or if no entry
    gives facts. Raises TypeError if `batch` is neither a mapping nor an array.
    """
    if isinstance(batch, Facts):
        raise TypeError("the batch is a Facts object already: give it to the mask as facts")
    if not isinstance(batch, Mapping):
        if not hasattr(batch, "shape") and not isinstance(batch, (list, tuple)):
            raise TypeError(f"the batch is {short(batch)}: give a dict of arrays, or one array")
        return _bare(batch, segment_padding)
    if token_types not in (None, "sentences", "images", "suffix"):
        raise Error(f"token_types is {token_types!r}: give {_TYPES}")
    return _Reader(batch, segment_padding, token_types, pad_id).read()


class _Reader:
    """Reads the entries of one batch. The number of rows and the length are taken from the first entry that gives both."""

    def __init__(
        self, batch: Mapping[Any, Any], segment_padding: int | None | str, token_types: TokenTypes | None, pad_id: int | None
    ) -> None:
        self.batch = {str(name): value for name, value in batch.items() if value is not None}
        self.segment_padding, self.token_types, self.pad_id = segment_padding, token_types, pad_id
        self.sentences: list[str] = []
        self.found: list[str] = []
        self.sizes: tuple[str, tuple[int, int]] | None = None
        self.real: NDArray[np.bool_] | None = None
        self.claims: list[tuple[str, list[list[int]]]] = []
        self.more: list[Mask] = []

    def read(self) -> FactsFound:
        tables = {name: self._table(name) for name in self.batch if name in _KNOWN and name not in _ENDS}
        packed = self._attention_mask(tables.get("attention_mask"))
        self._token_ids(tables.get("input_ids"))
        for name in _SEGMENTS:
            if name in tables:
                self._segments(name, tables[name])
        if packed is not None:
            self._segments("attention_mask", packed)
        if "position_ids" in tables:
            self._positions(tables["position_ids"])
        self._ends()
        labels = self._token_types(tables.get("token_type_ids"))
        self._overflow(tables.get("overflow_to_sample_mapping"))
        if not self.found:
            names = ", ".join(self.batch) or "no entries"
            raise Error(
                f"the batch gives no facts for a mask (it has {names}): give attention_mask, position_ids, segment_ids, cu_seqlens, or "
                "pad_id= with input_ids"
            )
        return self._result(labels)

    def _table(self, name: str) -> Ints:
        """Returns the entry called `name` as whole numbers `[batch, length]`, or `[batch]` for `overflow_to_sample_mapping`."""
        given = self.batch[name]
        try:
            made = np.asarray(given.detach().cpu() if hasattr(given, "detach") else given)
        except ValueError:
            raise Error(f"{name} has rows of different lengths: pad the batch first, for example with PaddingCollator") from None
        if made.dtype == np.bool_ or (made.dtype.kind == "f" and np.isin(made, (0, 1)).all()):
            made = made.astype(np.int64)
        if made.dtype.kind not in "iu":
            if made.dtype.kind == "f" and name == "attention_mask":
                raise Error("attention_mask holds floats, which are added to scores, but facts_from reads whole numbers: give the floats as additive=")
            raise Error(f"{name} holds {made.dtype} values, but facts_from reads whole numbers: convert the entry to integers")
        made = made.astype(np.int64)
        if name == "overflow_to_sample_mapping":
            return made.reshape(-1)
        if made.ndim == 1:
            made = made[None]
        if made.ndim != 2:
            why = {
                "position_ids": "positions in several dimensions (of images) do not define documents: leave out this entry",
                "attention_mask": "a mask of queries and keys is not a fact: give it as keep=, drop= or additive=",
            }.get(name, "give [batch, length]")
            raise Error(f"{name} has shape {list(made.shape)}, not [batch, length]: {why}")
        if made.size == 0:
            raise Error(f"{name} has shape {list(made.shape)}: give at least one row with one token")
        if self.sizes is None:
            self.sizes = (name, made.shape)
        elif self.sizes[1] != made.shape:
            raise Error(
                f"{name} has shape {list(made.shape)}, but {self.sizes[0]} has shape {list(self.sizes[1])}: give entries of one batch"
            )
        return made

    def _says(self, name: str, sentence: str) -> None:
        self.found.append(name)
        self.sentences.append(f"{name}: {sentence}.")

    def _attention_mask(self, given: Ints | None) -> Ints | None:
        """Reads the padding from `attention_mask`. Returns the entry if it holds ids of packed documents instead of only 0 and
        1; otherwise None."""
        if given is None:
            return None
        if given.min() < 0:
            raise Error(
                f"attention_mask holds {given.min()}: give 1 for tokens and 0 for padding, or ids of packed documents from 1; give numbers that are added to scores as additive="
            )
        self.real = given != 0
        if given.max() > 1:
            self._packed_ids(given)
            return given
        count = int((~self.real).sum())
        self._says("attention_mask", f"1 is a token and 0 is padding; {count} of {given.size} entries are padding")
        return None

    def _packed_ids(self, given: Ints) -> None:
        """Raises `Error` unless the ids of packed documents in an attention mask are 1, 2, 3, ... in the order of each row's
        documents."""
        for row, line in enumerate(given):
            ids = line[line != 0]
            firsts = ids[np.concatenate(([True], np.diff(ids) != 0))] if len(ids) else ids
            if (firsts != np.arange(1, len(firsts) + 1)).any():
                raise Error(
                    f"attention_mask holds {_few(firsts.tolist())} in batch row {row}: give 1 for tokens and 0 for padding, or ids of "
                    "packed documents that count from 1; give other ids as segment_ids"
                )

    def _token_ids(self, given: Ints | None) -> None:
        if self.pad_id is None:
            return
        if given is None:
            raise Error(f"pad_id={self.pad_id} is given, but the batch has no input_ids")
        facts = json.loads(Facts(token_ids=given, pad_id=self.pad_id).to_json())
        real = _real_of(facts, given.shape)
        if self.real is not None and (real != self.real).any():
            row, key = (int(i) for i in np.argwhere(real != self.real)[0])
            raise Error(
                f"input_ids with pad_id={self.pad_id} contradict attention_mask: key {key} of batch row {row} is {'a token' if real[row, key] else 'padding'} by its id, but {'a token' if self.real[row, key] else 'padding'} by the mask"
            )
        self.real = real
        self._says("input_ids", f"id {self.pad_id} is padding")

    def _segments(self, name: str, ids: Ints) -> None:
        pad = self._padding_id(name, ids)
        real = np.ones(ids.shape, np.bool_) if pad is None else ids != pad
        if self.real is not None and name != "attention_mask" and pad is not None and (real != self.real).any():
            row, key = (int(i) for i in np.argwhere(real != self.real)[0])
            raise Error(
                f"{name} contradicts attention_mask: key {key} of batch row {row} has id {ids[row, key]} (padding is {pad}), but is {'a token' if self.real[row, key] else 'padding'} by the mask"
            )
        if pad is not None:
            self.real = real
        lists = [self._runs(name, row, line, self._kept(row, ids.shape[1])) for row, line in enumerate(ids)]
        self._claim(name, lists)
        end = "no number marks padding" if pad is None else f"{pad} marks padding"
        self._says(name, f"this entry of the batch has the number of the document of each token, {_counted(lists)}; {end}")

    def _kept(self, row: int, length: int) -> NDArray[np.bool_]:
        return np.ones(length, np.bool_) if self.real is None else self.real[row]

    def _runs(self, name: str, row: int, line: Ints, real: NDArray[np.bool_]) -> list[int]:
        """Returns the lengths of the documents of batch row `row`. A document is a group of consecutive tokens with equal ids
        in `line`, the ids of the row. `real` is true for tokens that are not padding."""
        ids = line[real]
        edges = np.flatnonzero(np.diff(ids)) + 1
        firsts = ids[np.concatenate(([0], edges))] if len(ids) else ids
        if len(np.unique(firsts)) != len(firsts):
            twice = next(i for i in firsts if (firsts == i).sum() > 1)
            raise Error(
                f"{name} has id {twice} a second time in batch row {row}, after another id, but the tokens of a document are consecutive. Give documents whose tokens alternate as a mask array, nr.dense"
            )
        return np.diff(np.concatenate(([0], edges, [len(ids)]))).tolist() if len(ids) else []

    def _padding_id(self, name: str, ids: Ints) -> int | None:
        """Returns the id that marks padding in the entry `name`, or None if no id marks padding. Raises `Error` if the id 0 may
        be either padding or a document; the message has both readings."""
        if name == "attention_mask":
            return 0
        if self.segment_padding != "unknown":
            given = self.segment_padding
            if given is not None and (isinstance(given, bool) or not isinstance(given, int)):
                raise TypeError(f"segment_padding is {short(given)}: give the id of padding, or None for no padding")
            return given
        if ids.min() < 0:
            if ids.min() < -1:
                raise Error(f"{name} holds {ids.min()}: give ids of 0 or more, with -1 for padding; or give segment_padding=")
            return -1
        zero = ids == 0
        if not zero.any():
            return None
        if self.real is not None:
            return None if (zero & self.real).any() else 0  # the mask hides padding, whatever its id
        text = [np.flatnonzero(row != 0) for row in ids]
        if any(len(part) and zero[row, part[0] :].any() for row, part in enumerate(text)):
            return 0  # after another id, 0 does not count documents upward
        if name == "seq_idx":
            return None  # the kernels that take it count documents from 0
        row = int(np.flatnonzero(zero.any(axis=1))[0])
        first = int(np.flatnonzero(~zero[row])[0]) if (~zero[row]).any() else ids.shape[1]
        raise Error(
            f"{name} has two readings. Batch row {row} begins with id 0: this is padding (its first {first} tokens are hidden) or the first document (of {first} tokens). Give attention_mask too; or segment_padding=0 for padding, segment_padding=None for no padding"
        )

    def _positions(self, given: Ints) -> None:
        name = "position_ids"
        restarts = False
        for row, line in enumerate(given):
            kept = line[self._kept(row, given.shape[1])]
            counted = bool((np.diff(line) == 1).all())  # positions that count padding too, also between tokens
            restarts = restarts or not (counted or (np.diff(kept) == 1).all())
        if not restarts:
            kept_rows = [line[self._kept(row, given.shape[1])] for row, line in enumerate(given)]
            starts = {int(kept[0]) for kept in kept_rows if len(kept)}
            if starts - {0} and self.real is None:
                raise Error(
                    f"position_ids begin at {min(starts - {0})} and never begin again, which has two readings: the tokens continue those of a cache (give the position of the first query as query_offset), or there is padding before the first token (give attention_mask too)"
                )
            self._says(name, "positions never begin again at 0, so that they define no documents")
            return
        facts = Facts(**self._padding_facts(given.shape), position_ids=given)
        found = json.loads(facts.to_json()).get("documents", [])
        lists = found if found and isinstance(found[0], list) else [found] * len(given)
        if self.real is not None and not _at_one_end(self.real):  # padding inside of a row is in the documents of the facts
            lists = [_from_zero(line[self._kept(row, given.shape[1])]) for row, line in enumerate(given)]
        self._claim(name, lists)
        self._says(name, f"positions begin again at 0 in each packed document, {_counted(lists)}")

    def _ends(self) -> None:
        given = {name: self.batch[name] for name in _ENDS if name in self.batch}
        lists: dict[str, list[int]] = {}
        for name, value in given.items():
            try:
                array = np.asarray(value.detach().cpu() if hasattr(value, "detach") else value)
            except ValueError:
                raise Error(f"{name} has rows of different lengths: give one list of whole numbers") from None
            if array.size and array.dtype.kind not in "iu":
                raise Error(f"{name} holds {array.dtype} values: give whole numbers, 0 and then the end of each document")
            ends = [int(end) for end in array.reshape(-1)]
            Facts(cu_seqlens=ends)  # raises an error for ends that are no ends
            lists[name] = [last - first for first, last in zip(ends, ends[1:], strict=False) if last > first]
        for name, lengths in lists.items():
            first = next(iter(lists))
            if lengths != lists[first]:
                raise Error(
                    f"{name} and {first} define different documents, {_few(lengths)} and {_few(lists[first])}: queries and keys are different sequences, which facts cannot express; give only one of the two entries"
                )
        if not lists:
            return
        name, lengths = next(iter(lists.items()))
        self._settle_ends(name, lengths)
        for other in lists:
            self.found.append(other) if other != name else None

    def _settle_ends(self, name: str, lengths: list[int]) -> None:
        """Reads an entry with cumulative lengths. In a batch with one row, the lengths are those of packed documents; in a
        batch with several rows, they must be the numbers of tokens of the rows without padding."""
        total = sum(lengths)
        if self.sizes is None:
            self.sizes = (name, (1, total))
        (source, (rows, length)) = self.sizes
        if rows == 1:
            tokens = length if self.real is None else int(self.real.sum())
            if total != tokens:
                raise Error(f"{name} ends at {total}, but {source} has {tokens} tokens that are not padding: give cumulative lengths of all tokens")
            self._claim(name, [lengths])
            self._says(name, f"this entry of the batch has the ends of packed documents, {_counted([lengths])}")
            return
        counts = [length] * rows if self.real is None else self.real.sum(1).tolist()
        if [n for n in counts if n] != lengths:
            raise Error(
                f"{name} ends at {total}, but {source} has {rows} rows with {_few(counts)} tokens: give the cumulative numbers of tokens of the rows without padding; for packed documents, give a batch of one row"
            )
        self._says(name, f"this entry of the batch has the ends of the {rows} rows without padding, which attention_mask or the shape gives too")

    def _claim(self, name: str, lists: list[list[int]]) -> None:
        """Raises `Error` if the documents that entry `name` gives differ from the documents that another entry gave; otherwise
        stores them."""
        for other, known in self.claims:
            for row, (ours, theirs) in enumerate(zip(lists, known, strict=True)):
                if [n for n in ours if n] != [n for n in theirs if n]:
                    raise Error(
                        f"{name} contradicts {other}: the documents of batch row {row} have lengths {_few(ours)} by {name}, but {_few(theirs)} by {other}: give only one of the two entries"
                    )
        self.claims.append((name, lists))

    def _token_types(self, given: Ints | None) -> dict[str, list[list[int]]]:
        name = "token_type_ids"
        if given is None:
            if self.token_types is not None:
                raise Error(f"token_types={self.token_types!r} is given, but the batch has no token_type_ids")
            return {}
        if self.token_types is None and not given.any():
            self._says(name, "all entries are 0, which has no effect on a mask")
            return {}
        if self.token_types is None:
            raise Error(f"token_type_ids are not all 0 and have several readings: give token_types={_TYPES}")
        if self.token_types == "sentences":
            self._says(name, "this entry of the batch marks the two sentences of a pair; every token reads both, so that the entry has no effect on a mask")
            return {}
        if ((given != 0) & (given != 1)).any():
            other = given[(given != 0) & (given != 1)][0]
            raise Error(
                f"token_type_ids hold {other}, but token_types={self.token_types!r} reads 0 and 1 only: give 1 for the tokens of this type and 0 for all others"
            )
        kept = np.stack([self._kept(row, given.shape[1]) for row in range(len(given))])
        if self.token_types == "images":
            marked = (given != 0) & kept
            runs = [_true_runs(row) for row in marked]
            arms = {row: spans_of([range(*run) for run in found]) for row, found in enumerate(runs) if found}
            if arms:
                self.more.append(by_batch_row(arms))
            self._says(name, f"consecutive tokens with 1 are an image ({sum(map(len, runs))} images in all), whose tokens read each other")
            return {"images": [np.flatnonzero(row).tolist() for row in marked]}
        first = [int(np.flatnonzero(row)[0]) if row.any() else given.shape[1] for row in (given != 0) & kept]
        late = [row for row, end in enumerate(first) if (given[row, end:][kept[row, end:]] == 0).any()]
        if late:
            raise Error(
                f'token_types="suffix": batch row {late[0]} has tokens with 0 after tokens with 1, so that the prefix is not at the '
                'beginning; give token_types="images" if the tokens with 1 are images'
            )
        self.more.append(prefix(first))
        self._says(name, f"the tokens with 0 are a prefix that every query reads ({_few(first)} tokens in all)")
        return {}

    def _overflow(self, given: Ints | None) -> None:
        if given is None:
            return
        name = "overflow_to_sample_mapping"
        if self.sizes is not None and len(given) != self.sizes[1][0]:
            raise Error(f"{name} has {len(given)} entries, but {self.sizes[0]} has {self.sizes[1][0]} rows: give one text for each row")
        texts = len(np.unique(given))
        self._says(name, f"{len(given)} rows are cut from {texts} texts; rows do not read each other, so that this entry has no effect on a mask")

    def _padding_facts(self, shape: tuple[int, int]) -> dict[str, Any]:
        return {} if self.real is None else {"attention_mask": self.real.astype(np.int64)}

    def _result(self, labels: dict[str, list[list[int]]]) -> FactsFound:
        given: dict[str, Any] = {}
        mask = full()
        if self.real is not None:
            given["attention_mask"] = self.real.astype(np.int64)
            mask = padding()
        if self.claims:
            name, lists = self.claims[0]
            given |= self._documents(lists)
            mask = documents() if self.real is None else documents() & padding()
        if labels:
            given["labels"] = labels
        if self.more:
            extended = causal()
            for part in self.more:
                extended = extended | part
            mask = extended if mask == full() else extended & mask
        ignored = [name for name in self.batch if name not in self.found]
        if ignored:
            self.sentences.append(f"Not used: {', '.join(ignored)}.")
        return FactsFound(Facts(**given), mask, self.sentences, self.found, ignored)

    def _documents(self, lists: list[list[int]]) -> dict[str, Any]:
        """Returns the documents as facts. If the padding of all rows is at the same end, the fact is `documents`, the lengths
        `lists` of each row; otherwise it is `segment_ids`, the document of each token, with 0 for padding."""
        if self.real is None or _at_one_end(self.real):
            return {"documents": lists}
        ids = np.zeros(self.real.shape, np.int64)
        for row, lengths in enumerate(lists):
            ids[row, self.real[row]] = np.repeat(np.arange(1, len(lengths) + 1), lengths)
        return {"segment_ids": ids, "segment_padding": 0}


def _bare(array: Any, segment_padding: int | None | Literal["unknown"]) -> FactsFound:
    """Returns the facts of an array that was given without a name. Raises `Error` if no reading of the array gives facts, or if
    several readings give different facts."""
    read: dict[str, FactsFound] = {}
    reasons: dict[str, str] = {}
    names = ["attention_mask", "position_ids", "segment_ids"]
    if ends := _bare_ends(array):
        if all(last - first == 1 for first, last in zip(ends, ends[1:], strict=False)):
            raise Error(
                f"the array without a name has several readings: as position_ids, one sequence of {len(ends)} tokens; as cu_seqlens, {len(ends) - 1} documents of one token. Give a dict with the name of the entry"
            )
        names = ["cu_seqlens"]
    for name in names:
        try:
            read[name] = facts_from({name: array}, segment_padding=segment_padding)
        except Error as error:
            reasons[name] = str(error)
    useful = {name: found for name, found in read.items() if name != "position_ids" or "documents" in found}
    if "attention_mask" in useful and "documents" in useful["attention_mask"] and "segment_ids" in useful:
        del useful["attention_mask"]  # the same ids
    distinct: dict[str, str] = {}
    for name, found in useful.items():
        rows = found.get("documents") or []
        several = [row for row in rows if not isinstance(row, list) or len(row) > 1]
        distinct.setdefault(json.dumps([found.get("lengths"), found.get("side"), rows if several else []]), name)
    unclear = [f"{name}: {reason}" for name, reason in reasons.items() if "two readings" in reason]
    if len(distinct) == 1 and not unclear:
        return useful[next(iter(distinct.values()))]
    if distinct:
        readings = " ".join([*(useful[name].explanation for name in distinct.values()), *unclear])
        raise Error(f"the array without a name has several readings. {readings}. Give a dict with the name of the entry".replace("..", "."))
    why = "; ".join(f"as {name}: {reason}" for name, reason in reasons.items()) or "as position_ids: positions never begin again"
    raise Error(f"the array without a name gives no facts: {why}")


def _bare_ends(array: Any) -> list[int]:
    """Returns the array as a list if it may be cumulative lengths: one dimension, from 0, ascending. Otherwise returns an empty
    list."""
    try:
        given = np.asarray(array.detach().cpu() if hasattr(array, "detach") else array)
    except ValueError:
        return []
    if given.ndim != 1 or given.dtype.kind not in "iu" or len(given) < 2 or given[0] != 0 or (np.diff(given.astype(np.int64)) < 1).any():
        return []
    return [int(end) for end in given]


def _real_of(facts: dict[str, Any], shape: tuple[int, int]) -> NDArray[np.bool_]:
    """Returns booleans `[batch, length]` from facts in JSON form: true for tokens that are not padding."""
    at = np.arange(shape[1])
    if "lengths" in facts:
        lengths = np.array(facts["lengths"])[:, None]
        return at >= shape[1] - lengths if facts.get("side") == "left" else at < lengths
    real = np.zeros(shape, np.bool_)
    for row, parts in enumerate(facts.get("real_keys", [])):
        for part in parts:
            first, end = (int(n) for n in part.split("..")) if isinstance(part, str) else (part, part + 1)
            real[row, first:end] = True
    return real


def _at_one_end(real: NDArray[np.bool_]) -> bool:
    """Returns true if the padding of all rows is at the same end."""
    counts = real.sum(1)[:, None]
    at = np.arange(real.shape[1])
    return bool((real == (at < counts)).all() or (real == (at >= real.shape[1] - counts)).all())


def _from_zero(positions: Ints) -> list[int]:
    """Returns the lengths of the documents in a row whose position ids `positions` begin again at 0 in each document."""
    starts = np.flatnonzero(positions == 0)
    lengths: list[int] = np.diff(np.append(starts, len(positions))).tolist()
    return lengths


def _true_runs(row: NDArray[np.bool_]) -> list[tuple[int, int]]:
    edges = np.flatnonzero(np.diff(np.concatenate(([False], row, [False])).astype(np.int8)))
    return [(int(a), int(z)) for a, z in edges.reshape(-1, 2)]


def _counted(lists: list[list[int]]) -> str:
    total = sum(len(row) for row in lists)
    rows = "1 row" if len(lists) == 1 else f"{len(lists)} rows"
    return f"{total} in {rows}"


def _few(numbers: list[int]) -> str:
    return str(numbers) if len(numbers) <= 8 else f"{str(numbers[:8])[:-1]}, ...] ({len(numbers)} in all)"


__all__ = ["FactsFound", "facts_from"]

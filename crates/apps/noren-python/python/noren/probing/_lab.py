"""Calls a function under test with prepared inputs, and compares its outputs with readings (hypotheses about what the function
computes)."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from logging.handlers import BufferingHandler
from typing import Any

import numpy as np

from ..arguments._given import first_line
from ._call import Adapter, Answer, Call, Failure, Unprepared, Unusable
from ._readings import Basis, Reading
from ._reference import TOLERANCES, Attended, Bools, Floats, attend, rounded
from ._report import Entry, Verdict

ZERO = 1e-9
"""The largest weight that counts as 0; a key with such a weight counts as not read."""
DIMS = (32, 64, 128, 256)


class Ended(Exception):
    """Ends a question of the probe early; `entry` is its last entry."""

    def __init__(self, entry: Entry) -> None:
        self.entry = entry


@contextmanager
def listening() -> Iterator[list[str]]:
    """Returns a context that yields a list. When the context ends, the texts of the warnings given in it are added to the list:
    Python's warnings (except deprecations) and logged warnings."""
    collector = BufferingHandler(1 << 20)
    collector.setLevel(logging.WARNING)
    loggers = [logging.getLogger(), logging.getLogger("transformers")]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for logger in loggers:
            logger.addHandler(collector)
        texts: list[str] = []
        try:
            yield texts
        finally:
            for logger in loggers:
                logger.removeHandler(collector)
            found = [str(item.message) for item in caught if item.category not in (DeprecationWarning, FutureWarning, PendingDeprecationWarning)]
            texts += [" ".join(text.split())[:200] for text in [*found, *(record.getMessage() for record in collector.buffer)]]


@dataclass(frozen=True)
class Judgement:
    """The result of comparing an output with one reading (a hypothesis about what the function under test computes)."""

    matches: bool
    compared: int
    """The number of compared values."""
    difference: float
    """The largest difference between a value of the output and the value that the reading predicts."""
    wrong_cells: int = 0
    """The number of cells (query, key) in which the output contradicts the reading: the key is read but should not be, or is
    not read but should be."""
    cells: int = 0
    """The number of cells (query, key) whose weights are visible in the output; 0 if the values are not the identity matrix."""


@dataclass
class Lab:
    """Runs the calls of one function under test with one number type, and counts the calls."""

    adapter: Adapter
    dtype: str
    seed: int
    basis: Basis = field(default_factory=Basis)
    calls: int = 0
    heard: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """For each feature that the function ignored, the warnings of the latest question about it that had warnings. Many libraries
    give a warning only once."""

    def content(self, q_len: int, kv_len: int, batch: int = 2, heads: int = 2, kv_heads: int | None = None, index: int = 0) -> Call:
        """Returns a call with random queries and keys; the first `kv_len` columns of the values are the identity matrix.

        The first columns of an output are therefore the weights of the keys. If `kv_len` is too large for the largest head
        dimension, all columns are random. Calls with equal sizes and equal `index` have equal content.
        """
        dim = next((dim for dim in DIMS if kv_len + 8 <= dim), 64)
        rng = np.random.default_rng([self.seed, q_len, kv_len, batch, heads, index])
        kv_shape = (batch, kv_heads or heads, kv_len, dim)
        q, k, v = rng.normal(size=(batch, heads, q_len, dim)), rng.normal(size=kv_shape), rng.normal(size=kv_shape)
        if kv_len + 8 <= dim:
            v[..., :kv_len] = np.eye(kv_len)
        q, k, v = (rounded(x, self.dtype) for x in (q, k, v))
        return Call(q, k, v, self.dtype)

    def noise(self, like: Floats, index: int, factor: float = 1.0) -> Floats:
        """Returns new random numbers with the shape of `like`, normally distributed with the standard deviation `factor`;
        another `index` gives other numbers."""
        return rounded(factor * np.random.default_rng([self.seed, 77, index]).normal(size=like.shape), self.dtype)

    def ask(self, call: Call, cotangent: Floats | None = None) -> Answer | Failure:
        """Calls the function and returns its results, or a failure if it raises an exception or its result cannot be used."""
        self.calls += 1
        with listening() as texts:
            result: Answer | Failure
            try:
                result = self.adapter.run(call, cotangent)
            except (Unusable, Unprepared) as error:
                result = Failure(str(error), refused=False)
            except Exception as error:
                result = Failure(first_line(error), refused=True)
        return replace(result, warnings=tuple(dict.fromkeys(texts)))

    def needs(self, parameter: str, feature: str) -> None:
        """Ends the question about `feature` if the function does not have `parameter`, one of `Adapter.takes`."""
        if parameter not in self.adapter.takes:
            raise Ended(self.entry(feature, "", Verdict.ABSENT))

    def answers(self, feature: str, case: str, *calls: Call, cotangent: Floats | None = None) -> list[Answer]:
        """Returns the results of all calls. Ends the question if a call has no usable result."""
        asked = [self.ask(call, cotangent) for call in calls]
        found = [answer for answer in asked if isinstance(answer, Answer)]
        for answer in asked:
            if isinstance(answer, Failure):
                raise Ended(self.failed(feature, case, answer, len(calls)))
        return found

    def judge(self, answer: Answer, call: Call, expected: Attended, coded: bool = True) -> Judgement:
        """Compares an output with the expected output, in all rows whose query may read at least one key.

        If `coded` is true and the values begin with the identity matrix, the sets of keys with a nonzero weight are compared
        too.
        """
        rows = np.asarray(expected.keep.any(-1))
        difference = np.abs(answer.out - expected.out)[rows]
        largest = float(np.nan_to_num(difference, nan=np.inf, posinf=np.inf).max(initial=0.0)) if difference.size else np.inf
        limit = TOLERANCES[self.dtype] * max(1.0, float(np.abs(expected.out[rows]).max(initial=0.0)))
        kv_len, wrong, cells = call.k.shape[2], 0, 0
        if coded and kv_len + 8 <= call.v.shape[-1]:
            found = ~(np.abs(answer.out[..., :kv_len]) <= ZERO)
            right = expected.weights > 0
            differs = ((found & ~right) | (~found & (expected.weights > 1e-4))) & rows[..., None]
            wrong, cells = int(differs.sum()), int(rows.sum()) * kv_len
        fits = largest <= limit and wrong == 0 and 2 * int(rows.sum()) >= rows.size
        return Judgement(fits, int(difference.size), largest, wrong, cells)

    def verdict(
        self, feature: str, case: str, calls: Sequence[tuple[Call, Sequence[Reading]]], coded: bool = True
    ) -> tuple[Entry, list[Answer]]:
        """Runs the calls of one question. Returns (entry, answers): the entry has the verdict of the first reading that agrees
        with the outputs of all calls.

        A reading is a hypothesis about what the function computes. Every call must have the same readings in the same order.
        """
        before, answers, matched = self.calls, [], list[int]()
        compared, heard = 0, list[str]()
        best = Judgement(False, 0, np.inf)
        for number, (call, readings) in enumerate(calls):
            answer = self.ask(call)
            heard += answer.warnings
            if isinstance(answer, Failure):
                return self.failed(feature, case, answer, self.calls - before), []
            answers.append(answer)
            judged = [self.judge(answer, call, attend(call.q, call.k, call.v, r.parts), coded and number == 0) for r in readings]
            fits = [i for i, judgement in enumerate(judged) if judgement.matches]
            matched = fits if number == 0 else [i for i in matched if i in fits]
            chosen = judged[matched[0]] if matched else judged[0]
            compared += chosen.compared
            best = chosen if number == 0 else replace(best, difference=max(best.difference, chosen.difference))
        verdict, detail = self._chosen(calls[0][0], calls[0][1], matched, best)
        if verdict is Verdict.IGNORED:
            heard = heard or list(self.heard.get(feature, ()))
            self.heard[feature] = tuple(heard)
        difference = None if not np.isfinite(best.difference) else best.difference
        entry = Entry(feature, case, self.dtype, verdict, detail, self.calls - before, compared, difference, tuple(dict.fromkeys(heard)))
        return entry, answers

    def _chosen(self, call: Call, readings: Sequence[Reading], matched: list[int], best: Judgement) -> tuple[Verdict, str]:
        """Returns (verdict, detail). `matched` has the indices of the readings that agree with the outputs of all calls. `best`
        is the comparison with the first of these readings, or with `readings[0]` if there is none."""
        if not matched:
            if best.cells and not best.wrong_cells and best.difference <= TOLERANCES["bfloat16"] and self.dtype != "bfloat16":
                text = f"the function reads the right keys, but the largest difference of {best.difference:.3g} is more than the rounding of {self.dtype}"
                return Verdict.NOT_ESTABLISHED, f"{text}; matrix products in a lower precision, such as TF32, are a possible cause"
            text = f"the output is wrong and equals no known wrong computation; its largest difference from the reference is {best.difference:.3g}"
            if best.cells:
                text += f", {best.wrong_cells} of {best.cells} cells are read wrongly"
            return Verdict.MISREAD, text
        first = readings[matched[0]]
        if first.verdict is not Verdict.APPLIED:
            others = list(dict.fromkeys(readings[i].detail for i in matched if readings[i].verdict is first.verdict))
            return first.verdict, "; or: ".join(others[:2])
        expected = attend(call.q, call.k, call.v, first.parts)
        for i in matched[1:]:
            other = readings[i]
            if other.verdict is Verdict.APPLIED:
                continue
            differs = np.abs(attend(call.q, call.k, call.v, other.parts).out - expected.out).max() > 1e-9
            if other.verdict is Verdict.IGNORED and not differs:
                return Verdict.NOT_ESTABLISHED, "the feature has no effect on the test inputs, so its use cannot be established"
            if differs:
                return Verdict.NOT_ESTABLISHED, f"the rounding of {self.dtype} is too coarse to distinguish the correct computation from this wrong one: {other.detail}"
        return Verdict.APPLIED, first.detail

    def failed(self, feature: str, case: str, failure: Failure, calls: int = 1) -> Entry:
        """Returns the entry about a call without a usable result: "refused" if the function raised an exception, otherwise "not
        established"."""
        verdict = Verdict.REFUSED if failure.refused else Verdict.NOT_ESTABLISHED
        return Entry(feature, case, self.dtype, verdict, failure.text, calls, warnings=failure.warnings)

    def entry(self, feature: str, case: str, verdict: Verdict, detail: str = "", **more: Any) -> Entry:
        """Returns an entry of the report, with the number type of this lab."""
        return Entry(feature, case, self.dtype, verdict, detail, **more)


def hidden_keys(keep: Bools, kv_heads: int) -> tuple[Bools, Bools]:
    """Returns (keys, rows): the keys to replace, `[batch, kv_heads, kv_len]`, and the queries `[batch, heads, q_len]` that may
    read at least one key but none of the replaced ones.

    For each batch row and key-value head, the replaced keys are those that one chosen query may not read. The query is chosen
    so that many keys are replaced and many queries may read none of them.
    """
    batch, heads, q_len, kv_len = keep.shape
    size = heads // kv_heads
    replaced = np.zeros((batch, kv_heads, kv_len), bool)
    for b in range(batch):
        for kv_head in range(kv_heads):
            rows = keep[b, kv_head * size : (kv_head + 1) * size].reshape(-1, kv_len)
            scores = [(int((~row).sum()) * int((~(rows & ~row).any(1)).sum()), i) for i, row in enumerate(rows) if row.any()]
            if scores:
                replaced[b, kv_head] = ~rows[max(scores)[1]]
    reads = (keep & replaced.repeat(size, 1)[:, :, None, :]).any(-1)
    return replaced, np.asarray(~reads & keep.any(-1))

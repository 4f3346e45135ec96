"""Calls of a function under test with prepared contents, and the comparison of their results with readings."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ._call import Adapter, Answer, Call, Failure, Unprepared, Unusable
from ._readings import Basis, Reading
from ._reference import TOLERANCES, Attended, Bools, Floats, attend, rounded
from ._report import Entry, Verdict

ZERO = 1e-9
"""Weights up to this number count as 0: the key is not read."""
DIMS = (32, 64, 128, 256)


def first_line(error: BaseException) -> str:
    """Returns the type of an exception and the first line of its message, at most 160 characters."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else ''}"[:160].rstrip(": ")


class _Collector(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())


@contextmanager
def listening() -> Iterator[list[str]]:
    """Returns a context that collects the texts of Python's warnings and of logged warnings in the yielded list."""
    collector = _Collector()
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
            texts += [" ".join(text.split())[:200] for text in [*found, *collector.texts]]


@dataclass(frozen=True)
class Judgement:
    """The comparison of an output with one reading."""

    matches: bool
    compared: int
    """The number of compared values."""
    difference: float
    """The largest difference of a compared value."""
    wrong_cells: int = 0
    """The number of cells that are read and should not be, or the other way round."""
    cells: int = 0
    """The number of cells whose weights were read from the output; 0 if the values are not coded."""


@dataclass
class Lab:
    """The calls of one function in one dtype, with their number."""

    adapter: Adapter
    dtype: str
    seed: int
    basis: Basis = field(default_factory=Basis)
    calls: int = 0
    heard: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """The first warnings of an ignored feature, by feature, because many libraries give a warning only once."""

    def content(self, q_len: int, kv_len: int, batch: int = 2, heads: int = 2, kv_heads: int | None = None, index: int = 0) -> Call:
        """Returns a call with random queries and keys; the first `kv_len` columns of the values are the identity matrix.

        An output therefore begins with the weights of the keys. If no head dimension has space for them, all columns are random.
        Calls with the same sizes and `index` have the same content.
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
        """Returns other random content with the shape of `like`, normally distributed with the standard deviation `factor`."""
        return rounded(factor * np.random.default_rng([self.seed, 77, index]).normal(size=like.shape), self.dtype)

    def ask(self, call: Call, cotangent: Floats | None = None) -> Answer | Failure:
        """Calls the function and returns its answer, or a failure if it raises an exception or its result cannot be used."""
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

    def judge(self, answer: Answer, call: Call, expected: Attended, coded: bool = True) -> Judgement:
        """Compares an output with an expected one, in all rows in which at least one key may be read.

        If `coded` is true and the values begin with the identity matrix, the keys with a weight are compared too.
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
        """Runs one or two calls of a question and returns the entry with the reading that explains all outputs, and the answers.

        The readings of the calls correspond to each other: each call has the same descriptions in the same order.
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
        """Returns the verdict and its detail from the indices of the readings that explain all outputs."""
        if not matched:
            if best.cells and not best.wrong_cells and best.difference <= TOLERANCES["bfloat16"] and self.dtype != "bfloat16":
                text = f"the right keys are read, but the largest difference of {best.difference:.3g} is more than the rounding of {self.dtype}"
                return Verdict.NOT_ESTABLISHED, f"{text}; products in a lower precision, such as TF32, would explain it"
            text = f"no known misreading; the largest difference from the definition is {best.difference:.3g}"
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
                return Verdict.NOT_ESTABLISHED, "the feature has no effect on these inputs"
            if differs:
                return Verdict.NOT_ESTABLISHED, f"the rounding of {self.dtype} does not separate the definition from: {other.detail}"
        return Verdict.APPLIED, first.detail

    def failed(self, feature: str, case: str, failure: Failure, calls: int = 1) -> Entry:
        """Returns the entry of a call without a usable result."""
        verdict = Verdict.REFUSED if failure.refused else Verdict.NOT_ESTABLISHED
        return Entry(feature, case, self.dtype, verdict, failure.text, calls, warnings=failure.warnings)

    def entry(self, feature: str, case: str, verdict: Verdict, detail: str = "", **more: Any) -> Entry:
        """Returns an entry in the dtype of this lab."""
        return Entry(feature, case, self.dtype, verdict, detail, **more)


def hidden_keys(keep: Bools, kv_heads: int) -> tuple[Bools, Bools]:
    """Returns keys to replace `[batch, kv_heads, kv_len]`, and the rows `[batch, heads, q_len]` that may read none of them.

    For each batch row and key-value head, the keys are those hidden from one of its query rows. The query row is chosen so that many keys
    are replaced and many rows may read none of them.
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

"""The result of `prove`: whether released outputs of a model do not depend on private tokens, and which statements could not be
established."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ._state import Record

MOST_SHOWN = 8
"""The maximum number of leaks that the text of a proof lists."""

Verdict = Literal["holds", "leaks", "nothing established"]


@dataclass(frozen=True)
class Leak:
    """A released output that changed when private tokens were replaced."""

    output: str
    """The name of the output."""
    row: int | None
    """The index of the batch row; None if the output belongs to the whole batch."""
    token: int | None
    """The index of the token in its batch row; None if the output belongs to the whole batch row."""
    numbers: int
    """The number of elements of the output that changed."""
    difference: float
    """The largest difference of an element of the output between the two runs; infinite if an element became NaN."""
    run: str
    """The name of the model run in which the output changed, such as "other secrets 1"."""

    def __str__(self) -> str:
        place = "the whole batch" if self.row is None else f"row {self.row}" + (" as a whole" if self.token is None else f", token {self.token}")
        return f"{self.output}, {place}: {self.numbers} number(s) changed, by at most {self.difference:.3g} (model run: {self.run})"


@dataclass(frozen=True)
class Proof:
    """The result of a test for leaks of private tokens; made by `prove`. A proof has no truth value: use `holds` or `verdict`."""

    verdict: Verdict
    """"holds": no bit of a released output changed, and the model read the replaced tokens. "leaks": a bit of a released output
    changed, or a mask allows a cell that the policy denies. "nothing established": the test shows neither; `reason` is the
    reason."""
    reason: str
    """The reason why nothing was established; empty for other verdicts."""
    runs: tuple[str, ...]
    """The names of the model runs that were compared with the run on the given text: runs with other private tokens in the same
    places, and a run with NaN in place of the embeddings of private tokens."""
    compared: int
    """The number of elements of released outputs that were compared in each model run."""
    leaks: tuple[Leak, ...]
    """The released outputs that changed when private tokens were replaced."""
    private: int
    """The number of private tokens whose content must stay hidden from the reader."""
    changed: int
    """The number of private tokens for which the output at their position changed. If the number is 0, the test does not show
    that the model read the replaced tokens."""
    withheld: tuple[int, ...]
    """The indices of the batch rows whose continuation was not compared, because the policy does not release the last token of
    the row."""
    records: tuple[Record, ...]
    """The masks of the attention calls in the model run on the given text, each compared with the policy. Empty if the
    attention of the model was not observed."""
    without_policy: int | None
    """The number of elements of released outputs that change if the model runs without the policy and private tokens are
    replaced as in the first run. None if this was not computed."""
    established: tuple[str, ...]
    """The statements that the proof established, one sentence each."""
    not_established: tuple[str, ...]
    """The statements that the proof did not establish, one sentence each."""

    @property
    def holds(self) -> bool:
        """Returns true if no bit of a released output changed and the model read the replaced tokens."""
        return self.verdict == "holds"

    def __bool__(self) -> bool:
        raise TypeError("a proof has no truth value, because a test may also establish nothing: use proof.holds or proof.verdict")

    def __repr__(self) -> str:
        return f"<{self.summary}>"

    @property
    def summary(self) -> str:
        """Returns the verdict as one line."""
        if self.verdict == "nothing established":
            return f"nothing established: {self.reason}"
        runs = len(self.runs)
        if self.holds:
            return f"holds: {runs} runs with replaced private tokens, all bits of {self.compared} released numbers are equal"
        changed = sum(leak.numbers for leak in self.leaks)
        cells = sum(record.allowed for record in self.records)
        return f"leaks: {runs} runs with replaced private tokens, {changed} released numbers change, and masks allow {cells} cells that the policy denies"

    @property
    def cause(self) -> str:
        """Returns a sentence about the path by which private content reaches the outputs, as far as the masks show this path.
        Empty if there are no leaks, or if the masks were not observed."""
        faulty = [record for record in self.records if record.allowed]
        if not self.leaks or not self.records:
            return ""
        if faulty:
            return f"{len(faulty)} of {len(self.records)} attention calls allow cells (query, private key) that the policy denies: the mask is faulty."
        if all(leak.token is None and not leak.output.startswith("continuation[") for leak in self.leaks):
            return (
                "No output of a released token changes, only numbers of whole texts: the model computes them from private tokens too, such as the first or the "
                "last token of a text, or the mean over all tokens. nr.private.pool computes vectors without them."
            )
        return (
            "No mask allows a denied cell, so these numbers depend on private tokens by another path than the observed attention: a convolution, a "
            "recurrent state, an attention that is not observed, or experts that compute several tokens together (their differences are rounding errors)."
        )

    def __str__(self) -> str:
        lines = [self.summary, *(f"  {leak}" for leak in self.leaks[:MOST_SHOWN])]
        if len(self.leaks) > MOST_SHOWN:
            lines.append(f"  ... and {len(self.leaks) - MOST_SHOWN} more")
        faulty = [record for record in self.records if record.allowed]
        lines += [f"  {record.module}: {record.allowed} of {record.pairs} denied cells (query, private key) are allowed by {record.mask}" for record in faulty[:MOST_SHOWN]]
        lines += [f"  {self.cause}"] if self.cause else []
        for title, sentences in (("established", self.established), ("not established", self.not_established)):
            lines += [title, *(f"  - {sentence}" for sentence in sentences)] if sentences else []
        return "\n".join(lines)

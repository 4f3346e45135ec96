"""The proof that released outputs of a model do not depend on private tokens, and what it could not establish."""

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
    """The batch row; None if the output belongs to the whole batch."""
    token: int | None
    """The token; None if the output belongs to the whole text."""
    numbers: int
    """The number of elements of the output that changed."""
    difference: float
    """The maximum difference; infinite if a number became NaN."""
    run: str
    """The run in which the output changed."""

    def __str__(self) -> str:
        place = "the whole batch" if self.row is None else f"row {self.row}" + (", the whole text" if self.token is None else f", token {self.token}")
        return f"{self.output}, {place}: {self.numbers} number(s), by at most {self.difference:.3g} ({self.run})"


@dataclass(frozen=True)
class Proof:
    """The result of a test for leaks of private tokens; made by `prove`. A proof has no truth value: use `holds` or `verdict`."""

    verdict: Verdict
    """"holds": no bit of a released output changed, and the replaced tokens were read. "leaks": a bit changed, or a mask allows a denied cell.
    "nothing established": the test shows neither; `reason` is the reason."""
    reason: str
    """Why nothing was established; empty for other verdicts."""
    runs: tuple[str, ...]
    """The runs that were compared with the own run: with other secrets of the same length, and with NaN in place of the secrets."""
    compared: int
    """The number of released numbers that were compared in each run."""
    leaks: tuple[Leak, ...]
    """The released outputs that changed."""
    private: int
    """The number of private tokens that the policy hides from the reader."""
    changed: int
    """The number of these tokens whose own output changed: if 0, the replaced tokens had no effect."""
    withheld: tuple[int, ...]
    """The batch rows whose continuation was not compared, because the text ends inside a secret."""
    records: tuple[Record, ...]
    """The masks of the attention calls of the own run; empty if the model's attention was not observed."""
    without_policy: int | None
    """The number of released numbers that the same replacement changes without the policy; None if this was not computed."""
    established: tuple[str, ...]
    """The statements that the proof established, one sentence each."""
    not_established: tuple[str, ...]
    """The statements that the proof did not establish, one sentence each."""

    @property
    def holds(self) -> bool:
        """Whether no bit of a released output changed, and the test had an effect."""
        return self.verdict == "holds"

    def __bool__(self) -> bool:
        raise TypeError("a proof has no truth value, because a test may also establish nothing: use proof.holds or proof.verdict")

    def __repr__(self) -> str:
        return f"<{self.summary}>"

    @property
    def summary(self) -> str:
        """The verdict as one line."""
        if self.verdict == "nothing established":
            return f"nothing established: {self.reason}"
        runs = f"{len(self.runs)} runs with other private tokens in the same places"
        if self.holds:
            return f"holds: {runs}, all bits of {self.compared} released numbers are equal"
        changed = sum(leak.numbers for leak in self.leaks)
        cells = sum(record.allowed for record in self.records)
        return f"leaks: {runs}, {changed} released numbers change and {cells} denied cells are allowed"

    @property
    def cause(self) -> str:
        """The path of the leaks, if the masks show it; empty otherwise."""
        faulty = [record for record in self.records if record.allowed]
        if not self.leaks or not self.records:
            return ""
        if faulty:
            return f"{len(faulty)} of {len(self.records)} attention calls allow cells that the policy denies: the mask is faulty."
        if all(leak.token is None and not leak.output.startswith("continuation[") for leak in self.leaks):
            return (
                "No output of a released token changes, only numbers of whole texts: the model computes them from private tokens too, such as the first or the "
                "last token of a text, or the mean over all tokens. nr.private.pool computes vectors without them."
            )
        return (
            "No mask allows a denied cell, so these numbers depend on private tokens by another path than the observed attention: a convolution, a "
            "recurrent state, other attention, or experts that compute several tokens together (then differences are roundings)."
        )

    def __str__(self) -> str:
        lines = [self.summary, *(f"  {leak}" for leak in self.leaks[:MOST_SHOWN])]
        if len(self.leaks) > MOST_SHOWN:
            lines.append(f"  ... and {len(self.leaks) - MOST_SHOWN} more")
        faulty = [record for record in self.records if record.allowed]
        lines += [f"  {record.module}: {record.allowed} of {record.pairs} denied cells are allowed by {record.mask}" for record in faulty[:MOST_SHOWN]]
        lines += [f"  {self.cause}"] if self.cause else []
        for title, sentences in (("established", self.established), ("not established", self.not_established)):
            lines += [title, *(f"  - {sentence}" for sentence in sentences)] if sentences else []
        return "\n".join(lines)

"""Checks of the batch: the outputs of a sequence must not depend on the other rows of its batch (batch mates) or on the index
of its row."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch

from ..lab import Lab, ragged
from ..model.subject import Call, Stream
from ..trial import Cells, Trial

ROWS = 4
"""The number of rows in the batches that these checks test."""
SHORTER = (0, 7, 3, 5)
"""For each of the `ROWS` sequences of a tested batch: the number of tokens by which the sequence is shorter than the longest
one."""
BROKEN = "outputs depend on the other sequences of the batch"
Trials = Iterator[Trial]


def batch(lab: Lab) -> Trials:
    """Compares every row of a batch with the same sequence alone, and with the same row in a batch of other sequences.

    The batches have sequences of equal length and, if the model accepts a padding mask, sequences of different lengths.
    """
    alone = [lab.call() for _ in range(ROWS)]
    together = Call(Stream.joined([call.main for call in alone]), _sources(alone))
    for row, call in enumerate(alone):
        cells = _cells(call, row, 0, True)
        yield Trial(f"the audit compares a sequence alone with the same sequence in batch row {row} of a batch of sequences of equal length", call, together, cells, BROKEN)
    for rows in (2, 3, 5, 6, 7):
        more = [*alone[:rows], *(lab.call() for _ in range(rows - ROWS))]
        several = Call(Stream.joined([call.main for call in more]), _sources(more))
        what = f"the audit compares a sequence alone with the same sequence in a batch of {rows} sequences of equal length"
        yield Trial(what, more[-1], several, _cells(more[-1], rows - 1, 0, True), BROKEN)
    for row in range(ROWS):
        others = together.map(lambda stream: _others(lab, stream, row))
        cells = {name: Cells.same([row], range(stream.length)) for name, stream in together.streams().items()}
        cells["pooled"] = Cells.same([row], 0)
        yield Trial(f"the audit changed the tokens of all sequences except that in row {row} of the batch", together, others, cells, BROKEN)
    yield from _padded(lab, alone)
    yield from _padded_sources(lab, alone)


def _padded(lab: Lab, alone: list[Call]) -> Trials:
    """Tests batches of sequences with different lengths. Each batch is tested in two orders of its sequences, so that every
    batch row contains padding in at least one order.
    """
    if not lab.subject.arguments.masked:
        return
    short = [replace(call, main=call.main.first(lab.length - by)) for call, by in zip(alone, SHORTER, strict=True)]
    for side in ("right", "left"):
        if lab.intent.padding not in (side, "both"):
            continue
        pooled = lab.intent.pooled in (side, "both")
        for turn in (0, 1):
            order = [(row + turn) % ROWS for row in range(ROWS)]
            main = ragged(lab, [short[i].main for i in order], side)
            together = Call(main, _sources([short[i] for i in order]))
            for row, i in enumerate(order):
                shift = SHORTER[i] if side == "left" else 0
                what = f"the audit compares a sequence alone with the same sequence in batch row {row} of a batch, where it has {SHORTER[i]} padding tokens on the {side}"
                yield Trial(what, short[i], together, _cells(short[i], row, shift, pooled), BROKEN)
            real = main.real
            tokens = torch.where(real.reshape(*real.shape, *[1] * (main.tokens.dim() - 2)), main.tokens, lab.maker.padding(1, main.batch, main.length))
            other = replace(together, main=replace(main, tokens=tokens))
            what = f"the audit changed the ids of the padding tokens on the {side} side of the batch"
            yield Trial(what, together, other, {"main": Cells.where(real)}, f"padding on the {side} changes outputs of non-padding tokens")


def _padded_sources(lab: Lab, alone: list[Call]) -> Trials:
    """Tests batches whose encoder sequences have different lengths."""
    sources = [call.source.first(call.source.length - by) for call, by in zip(alone, SHORTER, strict=True) if call.source is not None]
    if not lab.subject.arguments.source_masked or not sources:
        return
    short = [replace(call, source=source) for call, source in zip(alone, sources, strict=True)]
    for turn in (0, 1):
        order = [(row + turn) % ROWS for row in range(ROWS)]
        together = Call(Stream.joined([alone[i].main for i in order]), ragged(lab, [sources[i] for i in order], "right"))
        for row, i in enumerate(order):
            what = f"the audit compares a sequence alone with the same sequence in batch row {row} of a batch, where the encoder's sequence has {SHORTER[i]} padding tokens"
            yield Trial(what, short[i], together, _cells(short[i], row, 0, True), BROKEN)


def _cells(call: Call, row: int, shift: int, pooled: bool) -> dict[str, Cells]:
    """Returns the positions to compare, for each output name. A sequence alone is compared with the same sequence in row `row`
    of a batch, where the sequence begins `shift` positions later. If `pooled` is true, pooled outputs are compared too.
    """
    cells = {"main": Cells.shifted([0], range(call.main.length), [row], shift)}
    if pooled:
        cells["pooled"] = Cells.shifted([0], [0], [row], 0)
    if call.source is not None:
        cells["source"] = Cells.shifted([0], range(call.source.length), [row], 0)
    return cells


def _sources(calls: list[Call]) -> Stream | None:
    """Returns the encoder's sequences of several calls as one batch; None without an encoder."""
    found = [call.source for call in calls if call.source is not None]
    return Stream.joined(found) if found else None


def _others(lab: Lab, stream: Stream, row: int) -> Stream:
    """Returns a copy of a stream in which the tokens of all rows except `row` are changed."""
    tokens = lab.maker.changed(stream.tokens, range(stream.length))
    tokens[row] = stream.tokens[row]
    return replace(stream, tokens=tokens)

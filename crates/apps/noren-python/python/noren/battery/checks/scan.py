"""Exhaustive checks: change every single token, and run sequences of every length up to the tested length."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from ..catalogue import CHECKS, ROWS, Skip
from ..lab import Lab, ragged
from ..model.subject import Call, Stream
from ..trial import Cells, Trial

Trials = Iterator[Trial]


def turns(length: int) -> list[list[int]]:
    """Returns all positions of a sequence in groups of `ROWS`; if the last group is incomplete, it is filled with the first
    positions. With `ROWS` = 4 and length 6, the groups are [0, 1, 2, 3] and [4, 5, 0, 1].
    """
    return [[(start + i) % length for i in range(ROWS)] for start in range(0, length, ROWS)]


def repeated(stream: Stream, rows: int) -> Stream:
    """Returns a batch in which the sequence of `stream` is repeated in `rows` rows."""
    return Stream(*(x.expand(rows, *x.shape[1:]).contiguous() for x in (stream.tokens, stream.real, stream.positions)))


def in_every_row(call: Call) -> Call:
    """Returns the call with its one sequence (and its one encoder sequence) repeated in `ROWS` batch rows."""
    return replace(call, main=repeated(call.main, ROWS), source=None if call.source is None else repeated(call.source, ROWS))


def reach(lab: Lab) -> Trials:
    """Changes one token at a time. One pass tests several tokens: in each batch row, another token is changed.

    Outputs that may not depend on the changed token must stay equal; outputs that read it directly must change.
    """
    base = in_every_row(lab.call())
    for name, stream in base.streams().items():
        whose, one = ("encoder ", "an encoder token") if name == "source" else ("", "a token")
        for change in lab.changes("reach", name, stream.length):
            changed = stream.tokens.clone()
            for row, token in enumerate(change.tokens):
                changed[row] = lab.maker.changed(stream.tokens[row : row + 1], (token,))[0]
            other = replace(base, **{name: replace(stream, tokens=changed)})  # type: ignore[arg-type]
            cells = {name: Cells.at_places(change.compared)}
            if name == "source" and change.moves:
                cells["main"] = Cells.where(np.ones((ROWS, base.main.length), dtype=np.bool_))
            broken = CHECKS["reach"].sentence(one if change.moves else f"{whose}tokens", which=int(change.moves))
            yield Trial(whose + change.what, base, other, cells, broken, change.moves, each=tuple(change.tokens))


def lengths(lab: Lab) -> Trials:
    """Runs sequences of every length up to the tested length.

    Each sequence runs alone, as the beginning of the longest sequence (if no output depends on later tokens), and padded (if
    the model accepts padding). The outputs of the sequence must be equal in all these passes.
    """
    call = lab.call()
    longest = call.main.length
    side = lab.side()
    begins = not lab.ahead()
    if side is None and not begins:
        raise Skip("the outputs depend on later tokens and the model accepts no mask, so the audit cannot compare sequences of different lengths")
    everything = list(range(1, longest))
    for start in range(0, len(everything), ROWS):
        sizes = everything[start : start + ROWS]
        short = {n: _cut(call, n) for n in sizes}
        together = None
        if side is not None:
            main = ragged(lab, [*(short[n].main for n in sizes), call.main], side)
            together = Call(main, None if call.source is None else repeated(call.source, main.batch))
        for row, n in enumerate(sizes):
            if begins:
                broken = CHECKS["lengths"].sentence(n, longest)
                yield Trial(f"length {n}", short[n], call, {"main": Cells.same([0], range(n))}, broken)
            if together is not None:
                shift = longest - n if side == "left" else 0
                cells = {"main": Cells.shifted([0], range(n), [row], shift)}
                broken = CHECKS["lengths"].sentence(side, n, which=1)
                yield Trial(f"a sequence of length {n}, padded on the {side} to length {longest}", short[n], together, cells, broken)


def _cut(call: Call, n: int) -> Call:
    """Returns the call with its main sequence cut to the first `n` tokens."""
    main = call.main
    return replace(call, main=Stream(main.tokens[:, :n], main.real[:, :n], main.positions[:, :n]))

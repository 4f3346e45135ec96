"""Checks that leave nothing out: every token by itself, and every length up to the tested one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from .lab import Lab, Skip, ragged
from .subject import Call, Stream
from .trial import Cells, Trial

ROWS = 8
"""Rows of a pass that tries as many tokens or lengths at once."""
Trials = Iterator[Trial]


def turns(length: int) -> list[list[int]]:
    """All positions in groups of `ROWS`; the last group is filled up from the beginning."""
    return [[(start + i) % length for i in range(ROWS)] for start in range(0, length, ROWS)]


def repeated(stream: Stream, rows: int) -> Stream:
    """The same sequence in several rows."""
    return Stream(*(x.expand(rows, *x.shape[1:]).contiguous() for x in (stream.tokens, stream.real, stream.positions)))


def in_every_row(call: Call) -> Call:
    """The same sequence in `ROWS` rows."""
    return replace(call, main=repeated(call.main, ROWS), source=None if call.source is None else repeated(call.source, ROWS))


def reach(lab: Lab) -> Trials:
    """Changes every token by itself, one in each row; outputs that may not depend on it stay, those that read it move."""
    base = in_every_row(lab.call())
    for name, stream in base.streams().items():
        may, reads = lab.reach(name, stream.length), lab.direct(name, stream.length)
        whose = "encoder " if name == "source" else ""
        for tokens in turns(stream.length):
            changed = stream.tokens.clone()
            for row, token in enumerate(tokens):
                changed[row] = lab.maker.changed(stream.tokens[row : row + 1], (token,))[0]
            other = replace(base, **{name: replace(stream, tokens=changed)})  # type: ignore[arg-type]
            what = f"{whose}tokens {min(tokens)}..{max(tokens) + 1} changed one by one"
            each = tuple(tokens)
            still = ~may[:, tokens].T
            if still.any():
                broken = f"outputs depend on {whose}tokens that they may not read"
                yield Trial(what, base, other, {name: Cells.where(still)}, broken, each=each)
            moves = reads[:, tokens].T.copy()
            moves[range(ROWS), tokens] = False
            cells = {name: Cells.where(moves)}
            if name == "source":
                cells["main"] = Cells.where(np.ones((ROWS, base.main.length), dtype=np.bool_))
            if any(len(places) for places in cells.values()):
                broken = f"outputs that should read an {whose}token do not" if whose else "outputs that should read a token do not"
                yield Trial(what, base, other, cells, broken, True, each=each)


def lengths(lab: Lab) -> Trials:
    """Gives a sequence of every length up to the tested one: alone, as the beginning of the longest, and padded."""
    call = lab.call()
    longest = call.main.length
    side = lab.side()
    begins = not lab.ahead()
    if side is None and not begins:
        raise Skip("outputs read later tokens and the model takes no mask, so that no two lengths can be compared")
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
                broken = f"a sequence of {n} tokens alone gives other outputs than at the beginning of {longest}"
                yield Trial(f"length {n}", short[n], call, {"main": Cells.same([0], range(n))}, broken)
            if together is not None:
                shift = longest - n if side == "left" else 0
                cells = {"main": Cells.shifted([0], range(n), [row], shift)}
                broken = f"padding on the {side} changes outputs of a sequence of {n} tokens"
                yield Trial(f"length {n}, padded on the {side} to {longest}", short[n], together, cells, broken)


def _cut(call: Call, n: int) -> Call:
    """The first `n` tokens of the main stream."""
    main = call.main
    return replace(call, main=Stream(main.tokens[:, :n], main.real[:, :n], main.positions[:, :n]))

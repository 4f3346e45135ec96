"""Exhaustive checks: change every single token, and run sequences of every length up to the tested length."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from ..lab import ROWS, Lab, Skip, ragged
from ..model.subject import Call
from ..trial import Cells, Trial

Trials = Iterator[Trial]


def turns(length: int) -> list[list[int]]:
    """Returns all positions of a sequence in groups of `ROWS`; if the last group is incomplete, it is filled with the first
    positions. With `ROWS` = 4 and length 6, the groups are [0, 1, 2, 3] and [4, 5, 0, 1].
    """
    return [[(start + i) % length for i in range(ROWS)] for start in range(0, length, ROWS)]


def reach(lab: Lab) -> Trials:
    """Changes one token at a time. One pass tests several tokens: in each batch row, another token is changed.

    Outputs that may not depend on the changed token must stay equal; outputs that read it directly must change.
    """
    base = lab.call().map(lambda stream: stream.repeated(ROWS))
    done = False
    for name, stream in base.streams().items():
        whose, one = ("encoder ", "an encoder token") if name == "source" else ("", "a token")
        hides = ~lab.reach(name, stream.length)
        reads = lab.direct(name, stream.length) & ~np.eye(stream.length, dtype=np.bool_)
        for tokens in turns(stream.length):
            what = f"{whose}tokens {min(tokens)}..{max(tokens) + 1} changed one by one"
            for moves, compared in ((False, hides[:, tokens].T), (True, reads[:, tokens].T)):
                if not compared.any():
                    continue
                done = True
                changed = stream.tokens.clone()
                for row, token in enumerate(tokens):
                    changed[row] = lab.maker.changed(stream.tokens[row : row + 1], (token,))[0]
                other = replace(base, **{name: replace(stream, tokens=changed)})  # type: ignore[arg-type]
                cells = {name: Cells.where(compared)}
                if name == "source" and moves:
                    cells["main"] = Cells.where(np.ones((ROWS, base.main.length), dtype=np.bool_))
                broken = f"outputs that should depend on {one} do not change with it" if moves else f"outputs depend on {whose}tokens that they may not read"
                yield Trial(what, base, other, cells, broken, moves, each=tuple(tokens))
    if not done:
        raise Skip("every output may read every token")


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
        short = {n: replace(call, main=call.main.first(n)) for n in sizes}
        together = None
        if side is not None:
            main = ragged(lab, [*(short[n].main for n in sizes), call.main], side)
            together = Call(main, None if call.source is None else call.source.repeated(main.batch))
        for row, n in enumerate(sizes):
            if begins:
                broken = f"a sequence of {n} tokens alone gives other outputs than at the beginning of a sequence of {longest} tokens"
                yield Trial(f"length {n}", short[n], call, {"main": Cells.same([0], range(n))}, broken)
            if together is not None:
                shift = longest - n if side == "left" else 0
                cells = {"main": Cells.shifted([0], range(n), [row], shift)}
                broken = f"padding on the {side} changes outputs of a sequence of {n} tokens"
                yield Trial(f"a sequence of length {n}, padded on the {side} to length {longest}", short[n], together, cells, broken)

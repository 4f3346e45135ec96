"""Questions of a probe about masks: mask arrays and mask functions, the causal flag, windows, and block lists."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from . import _readings as readings
from ._call import ROUTES, Call
from ._lab import Lab, hidden_keys
from ._masks import LENGTH, Case
from ._reference import Bools, attend
from ._report import Entry, Verdict
from .targets._flex import BLOCK

_BRIEF = ("causal", "padding on the right", "different for each head")
"""The names of the masks that are tested in every form that the function accepts; other default masks are tested only in the
first form and in the form `attention_mask`."""


@dataclass
class Applied:
    """The form in which the function under test is known to apply a mask. Questions that need a mask use this form."""

    route: str | None = None
    """A key of `ROUTES`: the form of a mask array or mask function that the function is known to apply; None if there is none."""
    flag: bool = False
    """True if the function is known to apply the causal flag."""

    def masked(self, lab: Lab, cells: Bools, index: int = 0) -> Call | None:
        """Returns a call with the mask `cells` in the form `route`. If `route` is None, returns a call with the causal flag
        instead, or None if the function does not apply this flag either."""
        call = lab.content(LENGTH, LENGTH, index=index)
        if self.route is not None:
            return replace(call, route=self.route, cells=cells)
        return replace(call, causal=True) if self.flag else None


def kept(call: Call) -> Bools:
    """Returns the cells `[batch, heads, q_len, kv_len]` that the mask and the causal flag of a call allow. The call has as many
    queries as keys."""
    cells = np.ones(call.shape, bool) if call.cells is None else np.broadcast_to(call.cells, call.shape)
    return cells & readings.triangle(call.shape, 0) if call.causal else cells


def changed(lab: Lab, call: Call, keep: Bools, index: int = 1, factor: float = 1.0) -> Call:
    """Returns the call with new random numbers in hidden keys and in their values: those that `hidden_keys` selects for the
    mask `keep`. `factor` is the standard deviation of the new keys."""
    replaced, _ = hidden_keys(np.broadcast_to(keep, call.shape), call.k.shape[1])
    at = replaced[..., None]
    k, v = (np.where(at, lab.noise(x, index + i, factor if i == 0 else 1.0), x) for i, x in enumerate((call.k, call.v)))
    return replace(call, k=k, v=v)


def routes(lab: Lab) -> list[str]:
    """Returns the keys of `ROUTES` for the forms in which the function accepts a mask array or mask function, in the order in
    which they are tested."""
    return [name for name in ROUTES if name in lab.adapter.takes]


def fits(lab: Lab, route: str, case: Case) -> bool:
    """Returns true if the mask `case` can be given in the form `route` (a key of `ROUTES`)."""
    if route == "attention_mask":
        return case.cells.shape[1:3] == (1, 1)
    return case.cells.shape[1] == 1 or "head_masks" in lab.adapter.takes


def given_masks(lab: Lab, cases: list[Case], brief: bool, applied: Applied) -> Iterator[Entry]:
    """Yields the verdicts about mask arrays and mask functions, in each form (a key of `ROUTES`) that the function accepts. If
    `brief` is true, forms other than the first one and `attention_mask` are tested only with the masks in `_BRIEF`."""
    found = routes(lab)
    if not found:
        yield lab.entry("mask", "", Verdict.ABSENT)
    for number, route in enumerate(found):
        for case in cases:
            if not fits(lab, route, case) or (brief and number > 0 and route != "attention_mask" and case.name not in _BRIEF):
                continue
            call = lab.content(case.q_len, case.kv_len, case.batch, case.heads)
            call = replace(call, route=route, cells=case.cells)
            second = changed(lab, call, case.cells)
            asked = [(one, readings.masks(one, lab.basis)) for one in (call, second)]
            entry, _ = lab.verdict("mask", f"{case.name} ({route})", asked)
            if entry.verdict is Verdict.APPLIED and applied.route is None:
                applied.route = route
            yield entry


def causal_flag(lab: Lab, applied: Applied, padding: Bools) -> Iterator[Entry]:
    """Yields the verdicts about the causal flag: alone, with fewer queries than keys, and together with the mask `padding`."""
    lab.needs("causal", "causal flag")
    call = replace(lab.content(LENGTH, LENGTH), causal=True)
    alignment = lab.adapter.alignment
    second = changed(lab, call, readings.triangle(call.shape, 0))
    entry, _ = lab.verdict("causal flag", "", [(one, readings.flags(one, lab.basis, alignment)) for one in (call, second)])
    applied.flag = entry.verdict is Verdict.APPLIED
    yield entry
    call = replace(lab.content(6, LENGTH), causal=True)
    yield lab.verdict("causal flag", "fewer queries than keys", [(call, readings.flags(call, lab.basis, alignment))])[0]
    if applied.route is not None:
        call = replace(lab.content(LENGTH, LENGTH), causal=True, route=applied.route, cells=padding)
        yield lab.verdict("causal flag", "beside a mask", [(call, readings.flags(call, lab.basis, alignment, padding))])[0]


def window(lab: Lab) -> Iterator[Entry]:
    """Yields the verdicts about windows: whether the function applies them, and whether the first and the last key are
    included."""
    lab.needs("window", "window")
    call = lab.content(LENGTH, LENGTH)
    asked = [("5 keys before the query, causal", replace(call, window=(5, 0), causal="causal" in lab.adapter.takes))]
    if not lab.adapter.causal_window:
        asked.append(("4 keys before and 2 after the query", replace(call, window=(4, 2))))
    for case, one in asked:
        yield lab.verdict("window", case, [(one, readings.windows(one, lab.basis))])[0]


def block_lists(lab: Lab) -> Iterator[Entry]:
    """Yields the verdicts about block lists of FlexAttention: only blocks in the lists may be read, although the mask function
    given with the lists allows every cell."""
    lab.needs("blocks", "block lists")
    count = 4
    blocks = np.stack([np.eye(count, dtype=bool), np.eye(count, k=-1, dtype=bool) | np.eye(count, k=3, dtype=bool)])[None]
    blocks[..., 0] |= np.arange(count) % 2 == 0
    cells = blocks.repeat(BLOCK, 2).repeat(BLOCK, 3)
    call = replace(lab.content(count * BLOCK, count * BLOCK, batch=1), blocks=blocks)
    wrong = [
        ("the block lists are inverted: only blocks outside of the lists are read", ~cells),
        ("the block lists of head 0 are used for all heads", cells[:, :1]),
        ("the mask is transposed: queries and keys are swapped", cells.swapaxes(2, 3)),
        ("only the first block of each block list is read", _first(blocks).repeat(BLOCK, 2).repeat(BLOCK, 3)),
    ]
    found = [
        readings.Reading(Verdict.APPLIED, "", lab.basis.parts(call, cells)),
        readings.Reading(Verdict.IGNORED, "blocks that are not in the block lists are read", lab.basis.parts(call)),
        *(readings.Reading(Verdict.MISREAD, detail, lab.basis.parts(call, other)) for detail, other in wrong),
    ]
    yield lab.verdict("block lists", "partial blocks", [(call, found)])[0]
    if "block_mask" in lab.adapter.takes:
        yield lab.verdict("block lists", "full blocks", [(replace(call, full_blocks=True), found)])[0]


def _first(blocks: Bools) -> Bools:
    """Returns a copy of `blocks` in which only the first true block of each row of blocks is true."""
    return np.asarray(blocks & (blocks.cumsum(-1) == 1))


def moved(lab: Lab, applied: Applied, padding: Bools) -> Iterator[Entry]:
    """Yields the verdict about the order of keys: if keys, values and mask columns are permuted equally, the output must not
    change."""
    call = None if applied.route is None or lab.basis.causal else applied.masked(lab, padding)
    if call is None:
        return
    order = np.random.default_rng([lab.seed, 9]).permutation(call.k.shape[2])
    second = replace(call, k=call.k[:, :, order], v=call.v[:, :, order], cells=padding[..., order])
    answers = lab.answers("order of keys", "", call, second)
    expected = attend(call.q, call.k, call.v, lab.basis.parts(call, padding))
    judged = [lab.judge(answer, call, expected, coded=False) for answer in answers]
    same = np.array_equal(answers[0].out, answers[1].out)
    verdict = Verdict.APPLIED if all(one.matches for one in judged) else Verdict.MISREAD
    if verdict is Verdict.APPLIED:
        detail = "equal bits" if same else "equal within rounding"
    elif not any(one.matches for one in judged):
        detail = "the output is wrong, also if keys, values and mask are permuted together"
    else:
        detail = "the output changes if keys, values and mask are permuted together"
    size, largest = sum(one.compared for one in judged), max(one.difference for one in judged)
    yield lab.entry("order of keys", "", verdict, detail, calls=2, compared=size, difference=largest)

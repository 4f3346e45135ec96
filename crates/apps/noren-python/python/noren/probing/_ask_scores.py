"""Questions of a probe about scores: scale, softcap, bias, sinks, grouped query heads, and the log-sum-exp."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from . import _readings as readings
from ._ask_masks import Applied, kept
from ._call import Call
from ._lab import Lab
from ._masks import LENGTH
from ._reference import TOLERANCES, Bools, Floats, attend, rounded
from ._report import Entry, Verdict


def modifiers(lab: Lab) -> Iterator[Entry]:
    """Yields the verdicts about scale, softcap, bias and sinks."""
    call = lab.content(LENGTH, LENGTH)
    numbers = np.random.default_rng([lab.seed, 3])
    bias = rounded(2 * numbers.normal(size=call.shape), lab.dtype)
    asked: list[tuple[str, Call, Callable[[Call, readings.Basis], list[readings.Reading]]]] = [
        ("scale", replace(call, scale=0.4375), readings.scales),
        ("softcap", replace(call, q=rounded(2 * call.q, lab.dtype), softcap=1.5), readings.caps),
        ("bias", replace(call, bias=bias), readings.biases),
        ("sinks", replace(call, sinks=np.array([3.0, 1.5])), readings.sinks),
    ]
    for feature, one, of in asked:
        if feature in lab.adapter.takes:
            yield lab.verdict(feature, "", [(one, of(one, lab.basis))])[0]
        else:
            yield lab.entry(feature, "", Verdict.ABSENT)


def grouped(lab: Lab) -> Iterator[Entry]:
    """Yields the verdict about grouped heads: which key-value head each query head reads if there are fewer key-value heads
    than query heads."""
    lab.needs("gqa", "grouped heads")
    call = lab.content(LENGTH, LENGTH, heads=4, kv_heads=2)
    yield lab.verdict("grouped heads", "4 query heads, 2 key-value heads", [(call, readings.groups(call, lab.basis))])[0]


def log_sum_exp(lab: Lab, applied: Applied, padding: Bools) -> Iterator[Entry]:
    """Yields the verdict about the log-sum-exp: its base and its sign, and whether hidden keys are excluded from the sum."""
    lab.needs("lse", "log-sum-exp")
    call = applied.masked(lab, padding) or lab.content(LENGTH, LENGTH)
    [answer] = lab.answers("log-sum-exp", "", replace(call, lse=True))
    keep = kept(call)
    expected = attend(call.q, call.k, call.v, lab.basis.parts(call, keep))
    if not lab.judge(answer, call, expected).matches:
        yield lab.entry("log-sum-exp", "", Verdict.NOT_ESTABLISHED, "the output is wrong if the log-sum-exp is requested, so the log-sum-exp was not examined", calls=1)
        return
    assert answer.lse is not None
    found, limit = _of(lab, answer.lse, call, expected.lse)
    right = "base e" if lab.adapter.lse_base == "e" else "base 2"
    size = answer.lse.size
    if found is None:
        difference = float(np.nan_to_num(np.abs(answer.lse - expected.lse), nan=np.inf).max())
        text = f"the log-sum-exp equals no known wrong value; its largest difference from the natural logarithm is {difference:.3g}"
        yield lab.entry("log-sum-exp", "", Verdict.MISREAD, text, calls=1, compared=size)
        return
    verdict = Verdict.APPLIED if found == right else Verdict.MISREAD
    yield lab.entry("log-sum-exp", "", verdict, found, calls=1, compared=size, difference=limit)


def _of(lab: Lab, lse: Floats, call: Call, natural: Floats) -> tuple[str | None, float]:
    """Returns (description, difference). The description names the known value that the log-sum-exp equals, such as "base 2";
    None if it equals none. The difference is the largest one from that value, or from the natural logarithm if there is none."""
    ln2 = math.log(2)
    scores = np.einsum("bhqd,bhkd->bhqk", call.q, call.k) * lab.basis.scale(call)
    top = np.where(kept(call), scores, -np.inf).max(-1)
    everything = attend(call.q, call.k, call.v, lab.basis.parts(call)).lse
    known = [
        ("base e", natural),
        ("base 2", natural / ln2),
        ("the log-sum-exp in base e is negated", -natural),
        ("the log-sum-exp in base 2 is negated", -natural / ln2),
        ("the log-sum-exp is off by the factor ln 2: the natural logarithm was multiplied by ln 2, as if it were in base 2", natural * ln2),
        ("ln 2 is added to the log-sum-exp", natural + ln2),
        ("ln 2 is subtracted from the log-sum-exp", natural - ln2),
        ("the largest score is not added back to the logarithm of the sum", natural - top),
        ("the log-sum-exp is the largest score instead of the logarithm of the sum", top),
        ("the log-sum-exp is the sum of the exponentials instead of its logarithm", np.exp(natural)),
        ("the log-sum-exp includes hidden keys: the mask is ignored", everything),
        ("the log-sum-exp in base 2 includes hidden keys: the mask is ignored", everything / ln2),
    ]
    differences = [float(np.nan_to_num(np.abs(lse - value), nan=np.inf).max()) for _, value in known]
    best = int(np.argmin(differences))
    limit = TOLERANCES[lab.dtype] * max(1.0, float(np.abs(known[best][1]).max()) / 4)
    return (known[best][0], differences[best]) if differences[best] <= limit else (None, differences[0])

"""Questions of a probe about behaviour: repeated calls, other rows of the batch, NaN and large numbers in hidden keys, queries
without keys, gradients."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from . import _readings as readings
from ._ask_masks import Applied, changed, kept
from ._call import Answer, Call, Failure
from ._lab import Lab, hidden_keys
from ._masks import LENGTH
from ._reference import TOLERANCES, Bools, Floats, attend, gradients
from ._report import Entry, Verdict


def attention(lab: Lab) -> tuple[list[Entry], bool]:
    """Returns (verdicts, known): the verdicts about plain attention and about two equal calls; `known` is true if the
    function's default scale was determined.

    Plain attention is a call without optional arguments. If the default scale is determined, `lab.basis` is set to it, and to
    whether the function under test is always causal.
    """
    call, odd = lab.content(LENGTH, LENGTH), lab.content(LENGTH - 1, LENGTH - 1)
    found = readings.plain(call)
    asked = [(one, [reading for _, reading in readings.plain(one)]) for one in (call, odd)]
    entry, answers = lab.verdict("attention", "", asked)
    if entry.verdict is Verdict.REFUSED:  # perhaps the function needs lengths that are multiples of a number
        entry, answers = lab.verdict("attention", "", asked[:1])
        entry = replace(entry, detail=f"{entry.detail}; a call with {LENGTH - 1} keys is refused, so odd lengths are not tested".removeprefix("; ")) if answers else entry
    if not answers:
        return [entry], False
    again = lab.ask(call)
    entries = [entry, _repeated(lab, answers[0], again)]
    if entries[1].verdict is Verdict.MISREAD:
        entries[0] = lab.entry("attention", "", Verdict.NOT_ESTABLISHED, "the results of equal calls differ", calls=entry.calls)
        return entries, False
    for basis, reading in found:
        if lab.judge(answers[0], call, attend(call.q, call.k, call.v, reading.parts)).matches:
            lab.basis = basis
            return entries, True
    return entries, False


def _repeated(lab: Lab, first: Answer, second: Answer | Failure) -> Entry:
    """Returns the verdict about two calls with equal arguments; `first` and `second` are their results."""
    if isinstance(second, Failure):
        return lab.failed("equal calls", "", second)
    return _equality(lab, "equal calls", first.out, second.out, "the results of equal calls differ")


def _equality(lab: Lab, feature: str, first: Floats, second: Floats, wrong: str) -> Entry:
    """Returns the verdict about two outputs that should be equal: equal bits, equal within rounding, or different (message
    `wrong`); "not established" if all numbers of both are NaN."""
    if np.isnan(first).all() and np.isnan(second).all():
        return lab.entry(feature, "", Verdict.NOT_ESTABLISHED, "all outputs are NaN", calls=1)
    if np.array_equal(first, second, equal_nan=True):
        return lab.entry(feature, "", Verdict.APPLIED, "equal bits", calls=1, compared=first.size, difference=0.0)
    largest = float(np.nan_to_num(np.abs(first - second), nan=np.inf).max())
    if largest <= TOLERANCES[lab.dtype] * max(1.0, float(np.abs(first).max())):
        return lab.entry(feature, "", Verdict.OBSERVED, "the outputs are equal within rounding, but their bits differ", calls=1, compared=first.size, difference=largest)
    return lab.entry(feature, "", Verdict.MISREAD, f"{wrong}; the largest difference is {largest:.3g}", calls=1, compared=first.size)


def batch_mates(lab: Lab) -> Iterator[Entry]:
    """Yields the verdict about a batch row that is computed alone, and again together with another row."""
    call = lab.content(LENGTH, LENGTH)
    together, alone = lab.answers("batch invariance", "", call, call.row(1))
    yield replace(_equality(lab, "batch invariance", together.out[1:], alone.out, "the output of a batch row changes if the batch has other rows"), calls=2)


def hidden(lab: Lab, applied: Applied, padding: Bools) -> Iterator[Entry]:
    """Yields the verdicts about hidden keys whose scores are very large, and about NaN in hidden keys and in hidden values."""
    call = applied.masked(lab, padding)
    if call is None:
        yield lab.entry("hidden NaN", "", Verdict.NOT_ESTABLISHED, "the function is not known to apply a mask or the causal flag, so hidden keys could not be tested")
        return
    [clean] = lab.answers("hidden NaN", "", call)
    keep = kept(call)
    replaced, rows = hidden_keys(keep, call.k.shape[1])
    at = replaced[..., None]
    if lab.dtype != "float16":  # the products would overflow
        large = lab.ask(changed(lab, call, keep, factor=2e4))
        yield _unchanged(lab, "hidden keys with large scores", "", clean, large, rows)
    for name in ("keys", "values"):
        k, v = (np.where(at, np.nan, x) if name == part else x for part, x in (("keys", call.k), ("values", call.v)))
        yield _unchanged(lab, "hidden NaN", f"in {name}", clean, lab.ask(replace(call, k=k, v=v)), rows)


def _unchanged(lab: Lab, feature: str, case: str, clean: Answer, other: Answer | Failure, rows: Bools) -> Entry:
    """Returns the verdict about the output rows in `rows`. They must be equal in `clean` and `other`, because their queries may
    read none of the keys that differ between the two calls."""
    if isinstance(other, Failure):
        return lab.failed(feature, case, other)
    first, second = clean.out[rows], other.out[rows]
    if np.array_equal(first, second):
        return lab.entry(feature, case, Verdict.APPLIED, "no bit changes", calls=1, compared=first.size, difference=0.0)
    if np.isnan(second).any():
        count = int(np.isnan(second).any(-1).sum())
        text = f"NaN in hidden keys or values reaches the output in {count} of {len(second)} rows that may not read them"
        return lab.entry(feature, case, Verdict.READ, text, calls=1, compared=first.size)
    largest = float(np.abs(first - second).max())
    if largest <= TOLERANCES[lab.dtype] * max(1.0, float(np.abs(first).max())):
        return lab.entry(feature, case, Verdict.APPLIED, "the outputs are equal within rounding, but their bits differ", calls=1, compared=first.size, difference=largest)
    return lab.entry(feature, case, Verdict.READ, f"changed keys that are hidden change the output by up to {largest:.3g}", calls=1, compared=first.size)


def empty_rows(lab: Lab, applied: Applied) -> Iterator[Entry]:
    """Yields an entry that describes what the function returns for queries that may read no key, such as 0 or NaN."""
    if applied.route is None:
        yield lab.entry("rows without keys", "", Verdict.NOT_ESTABLISHED, "the function is not known to apply a mask array or mask function, so queries without keys could not be tested")
        return
    shape = (2, 1, 1, LENGTH) if applied.route == "attention_mask" else (2, 1, LENGTH, LENGTH)
    cells = np.ones(shape, bool)
    cells[0] = False
    if shape[2] > 1:
        cells[0, :, 2:-2] = True
    call = applied.masked(lab, cells)
    assert call is not None
    before = lab.calls
    answer = lab.ask(replace(call, lse="lse" in lab.adapter.takes))
    if isinstance(answer, Failure) and "lse" in lab.adapter.takes:
        answer = lab.ask(call)
    if isinstance(answer, Failure):
        yield lab.failed("rows without keys", "", answer)
        return
    everything = attend(call.q, call.k, call.v, lab.basis.parts(call))
    expected = attend(call.q, call.k, call.v, lab.basis.parts(call, cells))
    if not lab.judge(answer, call, expected, coded=False).matches and shape[2] > 1:
        text = "output rows of queries that may read keys are wrong if other queries may read none"
        yield lab.entry("rows without keys", "", Verdict.MISREAD, text, calls=lab.calls - before)
        return
    rows = np.asarray(~expected.keep.any(-1))
    text = _content(lab, answer.out, call, everything.out, rows)
    if answer.lse is not None:
        values = answer.lse[rows]
        same = np.unique(values[~np.isnan(values)])
        text += "; the log-sum-exp " + ("is NaN" if np.isnan(values).all() else f"is {same[0]:.6g}" if same.size == 1 else "differs between these queries")
    size = int(rows.sum()) * call.q.shape[-1]
    yield lab.entry("rows without keys", "", Verdict.OBSERVED, text, calls=lab.calls - before, compared=size)


def _content(lab: Lab, out: Floats, call: Call, everything: Floats, rows: Bools) -> str:
    """Returns a sentence about the output of queries that may read no key, such as "the output is 0". `rows` is true for these
    queries in `out`; `everything` is the output of the same call without a mask."""
    found = out[rows]
    if np.isnan(found).all():
        return "the output is NaN"
    if (found == 0).all():
        return "the output is 0"
    limit = 2 * TOLERANCES[lab.dtype]
    mean = np.broadcast_to(call.v.mean(2, keepdims=True), out.shape)[rows]
    if np.nan_to_num(np.abs(found - mean), nan=np.inf).max() <= limit:
        return "the output is the mean of all values"
    if np.nan_to_num(np.abs(found - everything[rows]), nan=np.inf).max() <= limit:
        return "the output equals the output without a mask"
    if np.isnan(found).any():
        return "some output values are NaN, others are numbers"
    return "the output is not 0, not NaN, not the mean of all values, and not the output without a mask"


def backward(lab: Lab, applied: Applied, padding: Bools) -> Iterator[Entry]:
    """Yields the verdicts about gradients: whether they are right, and whether NaN in hidden keys and values reaches them."""
    lab.needs("gradients", "gradients")
    call = applied.masked(lab, padding) or lab.content(LENGTH, LENGTH)
    cotangent = lab.noise(call.q, 50)
    [answer] = lab.answers("gradients", "", call, cotangent=cotangent)
    missing = [name for name, grad in zip(("queries", "keys", "values"), answer.grads, strict=False) if grad is None]
    if missing or not answer.grads:
        yield lab.entry("gradients", "", Verdict.IGNORED, f"the function has no gradient with respect to {', '.join(missing) or 'any input'}", calls=1)
        return
    keep = kept(call)
    yield _graded(lab, call, answer, cotangent, keep)
    replaced, rows = hidden_keys(keep, call.k.shape[1])
    if not replaced.any() or applied.masked(lab, padding) is None:
        return
    at, used = replaced[..., None], cotangent * rows[..., None]
    odd = replace(call, k=np.where(at, np.nan, call.k), v=np.where(at, np.nan, call.v))
    _, other = lab.answers("hidden NaN", "in gradients", call, odd, cotangent=used)
    bad = [n for n, g in zip(("queries", "keys", "values"), other.grads, strict=True) if g is None or np.isnan(_seen(g, n, rows, replaced)).any()]
    verdict = Verdict.READ if bad else Verdict.APPLIED
    text = f"NaN of hidden keys and values reaches the gradients of {', '.join(bad)}" if bad else "no NaN of hidden keys and values reaches the other gradients"
    yield lab.entry("hidden NaN", "in gradients", verdict, text, calls=2)


def _seen(grad: Floats, name: str, rows: Bools, replaced: Bools) -> Floats:
    """Returns the gradients to test: those of the queries in `rows` if `name` is "queries", otherwise those of the keys or
    values that are not in `replaced`."""
    return grad[rows] if name == "queries" else grad[~replaced]


def _graded(lab: Lab, call: Call, answer: Answer, cotangent: Floats, keep: Bools) -> Entry:
    """Returns the verdict about the gradients of queries, keys and values in `answer`; `cotangent` is the gradient with respect
    to the output, from which they were computed."""
    scale = lab.basis.scale(call)
    weights = attend(call.q, call.k, call.v, lab.basis.parts(call, keep)).weights
    full = attend(call.q, call.k, call.v, lab.basis.parts(call)).weights
    right = gradients(call.q, call.k, call.v, weights, scale, cotangent)
    hidden_everywhere = ~np.asarray(keep.any((1, 2)))[:, None, :, None]
    unmasked = gradients(call.q, call.k, call.v, full, scale, cotangent)
    known = [
        (Verdict.APPLIED, "", right),
        (Verdict.MISREAD, "the gradients are those of attention without the mask", unmasked),
        (Verdict.MISREAD, "the gradients of queries and keys are those without the mask; the gradients of values are right", (unmasked[0], unmasked[1], right[2])),
        (Verdict.MISREAD, "all gradients are negated", tuple(-grad for grad in right)),
        (Verdict.MISREAD, "the scale is missing in the gradients of queries and keys", (right[0] / scale, right[1] / scale, right[2])),
        (Verdict.MISREAD, "only the gradients of values are right; those of queries and keys are 0", (0 * right[0], 0 * right[1], right[2])),
        (Verdict.MISREAD, "only the gradients of values are wrong: the mask is missing", (right[0], right[1], unmasked[2])),
        (Verdict.MISREAD, "all gradients are 0", tuple(0 * grad for grad in right)),
    ]
    grads = [grad for grad in answer.grads if grad is not None]
    size = sum(grad.size for grad in grads)
    limit = 2 * TOLERANCES[lab.dtype] * max(1.0, *(float(np.abs(grad).max()) for grad in right))
    distances = []
    for verdict, detail, expected in known:
        largest = max(float(np.nan_to_num(np.abs(a - b), nan=np.inf).max()) for a, b in zip(grads, expected, strict=True))
        distances.append(largest)
        if largest > limit:
            continue
        if verdict is Verdict.APPLIED:
            leaked = any((np.where(hidden_everywhere, grad, 0.0) != 0).any() for grad in grads[1:])
            detail = "the gradients of hidden keys and values are rounding errors instead of 0" if leaked else ""
        return lab.entry("gradients", "", verdict, detail, calls=1, compared=size, difference=largest)
    text = f"the gradients are wrong and equal no known wrong computation; their largest difference from the reference is {distances[0]:.3g}"
    return lab.entry("gradients", "", Verdict.MISREAD, text, calls=1, compared=size)

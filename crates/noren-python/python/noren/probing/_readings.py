"""The readings of an argument: the definition, and the known misreadings."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from ._call import Call
from ._reference import Bools, Computation, Floats
from ._report import Verdict


@dataclass(frozen=True)
class Reading:
    """One hypothesis about a call: the computation, and the verdict if the outputs equal it."""

    verdict: Verdict
    detail: str
    parts: Computation


@dataclass(frozen=True)
class Basis:
    """The computation of a function without optional arguments."""

    factor: float = 1.0
    power: float = -0.5
    """The scale of the scores is `factor * head_dim ** power`."""
    causal: bool = False
    """True if the function is always causal."""

    def scale(self, call: Call) -> float:
        """Returns the factor of the products of queries and keys."""
        return float(self.factor * call.q.shape[-1] ** self.power)

    def keep(self, shape: tuple[int, int, int, int], cells: Bools | None = None) -> Bools | None:
        """Returns `cells`, or its intersection with the causal mask if the function is always causal. None allows all cells."""
        if not self.causal:
            return cells
        return triangle(shape, 0) if cells is None else triangle(shape, 0) & cells

    def parts(self, call: Call, cells: Bools | None = None) -> Computation:
        """Returns the computation with the mask `cells`, without other modifications."""
        scale = self.scale(call)
        return Computation(lambda products: products * scale, self.keep(call.shape, cells))


def triangle(shape: tuple[int, int, int, int], offset: int) -> Bools:
    """Returns the cells `[1, 1, q_len, kv_len]` of a causal mask in which query `q` reads the keys up to `q + offset`."""
    return np.tri(shape[2], shape[3], offset, dtype=bool)[None, None]


Variant = tuple[Verdict, str, Bools]


def masks(call: Call, basis: Basis) -> list[Reading]:
    """Returns the readings of a mask of given cells. The definition is the first reading."""
    assert call.cells is not None
    cells, shape = call.cells, call.shape
    readings = [Reading(Verdict.APPLIED, "", basis.parts(call, cells)), Reading(Verdict.IGNORED, "all keys are read", basis.parts(call))]
    for verdict, detail, variant in _variants(cells, shape):
        readings.append(Reading(verdict, detail, basis.parts(call, variant)))
    ones = cells.astype(float)
    plain, scale = basis.parts(call), basis.scale(call)
    for text, numbers in (("added to the scores as the numbers 1 (may attend) and 0", ones), ("added to the scores as the numbers 0 (may attend) and 1", 1 - ones)):
        readings.append(Reading(Verdict.MISREAD, text, replace(plain, scores=lambda s, n=numbers: s * scale + n)))  # type: ignore[misc]
    readings.append(Reading(Verdict.MISREAD, "multiplied with the scores: hidden keys have the score 0", replace(plain, scores=lambda s: s * scale * ones)))
    readings.append(Reading(Verdict.MISREAD, "multiplied with the weights after the softmax, which are not normalised again", replace(plain, factor=ones)))
    return readings


def _shifted(cells: Bools, axis: int, by: int) -> Iterator[Bools]:
    """Yields the cells moved by `by` places along an axis; the free place is a copy of the edge, true, false, or the other end."""
    if cells.shape[axis] < 2:
        return
    moved = np.roll(cells, by, axis)
    edge = [slice(None)] * 4
    edge[axis] = slice(0, 1) if by > 0 else slice(-1, None)
    for fill in (cells[tuple(edge)], True, False):
        filled = moved.copy()
        filled[tuple(edge)] = fill
        yield filled
    yield moved


def _variants(cells: Bools, shape: tuple[int, int, int, int]) -> Iterator[Variant]:
    """Yields wrong masks that a function could compute from `cells`, each with its verdict and description."""
    wrong = Verdict.MISREAD
    batch, heads, q_len, kv_len = shape
    yield wrong, "inverted", ~cells
    for axis, name in ((3, "key"), (2, "query")):
        for by in (1, -1):
            for moved in _shifted(cells, axis, by):
                yield wrong, f"shifted by one {name} {'forward' if by > 0 else 'backward'}", moved
    yield from _axes(cells, shape)
    for by, name in ((kv_len - q_len, "top-left instead of bottom-right"), (q_len - kv_len, "bottom-right instead of top-left")):
        if by and cells.shape[2] > 1 and cells.shape[3] > 1:
            yield wrong, f"aligned {name}", _slid(cells, by)
    for offset, name in ((0, "causal mask"), (kv_len - q_len, "bottom-right causal mask")):
        if offset or name == "causal mask":
            yield wrong, f"a {name} is computed instead of the given mask", np.broadcast_to(triangle(shape, offset), (1, 1, q_len, kv_len))
            yield wrong, f"a {name} is applied in addition", cells & triangle(shape, offset)
            yield wrong, f"the union with a {name} is computed", cells | triangle(shape, offset)
    for block in (2, 4, 8):
        full = np.broadcast_to(cells, (*cells.shape[:2], q_len, kv_len))
        if q_len % block == 0 and kv_len % block == 0:
            tiles = full.reshape(*full.shape[:2], q_len // block, block, kv_len // block, block)
            for found, name in ((tiles.any((3, 5)), "at least one"), (tiles.all((3, 5)), "every")):
                yield wrong, f"rounded to blocks of {block}: a block is read if {name} cell is allowed", found.repeat(block, 2).repeat(block, 3)
    yield wrong, "hidden keys that come after the query are hidden, other hidden keys are read", cells | triangle(shape, kv_len - q_len)


def _slid(cells: Bools, by: int) -> Bools:
    """Returns cells in which query `q` reads the keys that it reads in `cells`, moved by `by` towards smaller positions."""
    kv_len = cells.shape[3]
    index = np.arange(kv_len) + by
    return np.where((index >= 0) & (index < kv_len), cells[..., np.clip(index, 0, kv_len - 1)], by < 0)


def _axes(cells: Bools, shape: tuple[int, int, int, int]) -> Iterator[Variant]:
    """Yields the cells along wrong axes."""
    wrong = Verdict.MISREAD
    batch, heads, q_len, kv_len = shape
    given = cells.shape
    if given[0] > 1:
        yield wrong, "the mask of batch row 0 is used for all batch rows", cells[:1]
        yield wrong, "the batch rows of the mask are reversed", cells[::-1]
    if given[1] > 1:
        yield wrong, "the mask of head 0 is used for all heads", cells[:, :1]
        yield wrong, "the heads of the mask are reversed", cells[:, ::-1]
    if batch == heads and (given[0] > 1 or given[1] > 1):
        yield wrong, "broadcast along the wrong axis: batch rows and heads are swapped", cells.swapaxes(0, 1)
    if given[0] > 1 and given[1] > 1:
        yield wrong, "broadcast along the wrong axis: the order of batch rows and heads is swapped", cells.reshape(heads, batch, *given[2:]).swapaxes(0, 1)
    if q_len == kv_len:
        if given[2] == 1 and given[3] > 1:
            yield wrong, "broadcast along the wrong axis: keys of the mask are applied to queries", cells.swapaxes(2, 3)
            if batch == kv_len:
                yield wrong, "broadcast along the wrong axis: keys of the mask are applied to batch rows", cells.transpose(3, 1, 2, 0)
        elif given[2] > 1 and given[3] > 1:
            yield wrong, "transposed: queries and keys are swapped", cells.swapaxes(2, 3)


def flags(call: Call, basis: Basis, alignment: str | None, cells: Bools | None = None) -> list[Reading]:
    """Returns the readings of the causal flag, with the mask `cells` if one is given beside the flag."""
    shape = call.shape
    offset = shape[3] - shape[2]
    names = {"top-left": 0, "bottom-right": offset}
    order = [alignment] if alignment else list(names) if offset else ["top-left"]
    readings = []

    def add(verdict: Verdict, detail: str, flag: Bools | None) -> None:
        both = cells if flag is None else flag if cells is None else flag & cells
        readings.append(Reading(verdict, detail, basis.parts(call, both)))

    for name in order:
        add(Verdict.APPLIED, f"aligned {name}" if offset else "", triangle(shape, names[name]))
    add(Verdict.IGNORED, "the flag has no effect" if cells is not None else "all keys are read", None)
    for name in names:
        if offset and name not in order:
            add(Verdict.MISREAD, f"aligned {name} instead of {order[0]}", triangle(shape, names[name]))
    base = names[order[0]]
    add(Verdict.MISREAD, "shifted by one: a query does not read its own position", triangle(shape, base - 1))
    add(Verdict.MISREAD, "shifted by one: a query reads the next position", triangle(shape, base + 1))
    add(Verdict.MISREAD, "inverted: a query reads its own position and later ones", ~triangle(shape, base - 1))
    add(Verdict.MISREAD, "inverted: a query reads only later positions", ~triangle(shape, base))
    if cells is not None:
        readings.append(Reading(Verdict.MISREAD, "the mask beside the flag is ignored", basis.parts(call, triangle(shape, base))))
        readings.append(Reading(Verdict.MISREAD, "the union of mask and flag is computed", basis.parts(call, triangle(shape, base) | cells)))
        readings.append(Reading(Verdict.IGNORED, "mask and flag are both ignored", basis.parts(call)))
    return readings


def window_cells(shape: tuple[int, int, int, int], left: int, right: int, offset: int = 0) -> Bools:
    """Returns the cells `[1, 1, q_len, kv_len]` with `-left <= key - query - offset <= right`."""
    distance = np.arange(shape[3])[None, :] - np.arange(shape[2])[:, None] - offset
    return ((-left <= distance) & (distance <= right))[None, None]


def windows(call: Call, basis: Basis) -> list[Reading]:
    """Returns the readings of a window (left, right) with both ends included."""
    assert call.window is not None
    shape, (left, right), wrong = call.shape, call.window, Verdict.MISREAD
    far = max(shape)
    limit = 0 if call.causal else far
    variants: list[tuple[Verdict, str, tuple[int, int]]] = [
        (Verdict.APPLIED, "both ends are included", (left, right)),
        (Verdict.IGNORED, "only the causal mask is applied" if call.causal else "all keys are read", (far, limit)),
        (wrong, "the left end is not included", (left - 1, right)),
        (wrong, "the left side has one key more", (left + 1, right)),
        (wrong, "the right end is not included", (left, right - 1)),
        (wrong, "the right side has one key more", (left, right + 1)),
        (wrong, "both ends are not included", (left - 1, right - 1)),
        (wrong, "left and right are swapped", (right, left)),
        (wrong, "the left number is used for both sides", (left, left)),
        (wrong, "the keys after the query are hidden", (left, 0)),
        (wrong, "the right side is ignored", (left, far)),
        (wrong, "the left side is ignored", (far, right)),
        (wrong, "the left number is the width of the whole window", (left // 2, left // 2)),
    ]
    readings = [Reading(verdict, detail, basis.parts(call, window_cells(shape, *ends))) for verdict, detail, ends in variants]
    readings.append(Reading(wrong, "inverted: only keys outside of the window are read", basis.parts(call, ~window_cells(shape, left, right))))
    return readings


Score = Callable[[Floats], Floats]


def changed(call: Call, basis: Basis, variants: list[tuple[Verdict, str, Score]]) -> list[Reading]:
    """Returns readings that differ in the scores, with the mask of the call."""
    plain = basis.parts(call, call.cells)
    return [Reading(verdict, detail, replace(plain, scores=scores)) for verdict, detail, scores in variants]


def scales(call: Call, basis: Basis) -> list[Reading]:
    """Returns the readings of a scale."""
    assert call.scale is not None
    value, default, wrong = call.scale, basis.scale(call), Verdict.MISREAD
    factors = [
        (Verdict.APPLIED, "", value),
        (Verdict.IGNORED, "the default scale is used", default),
        (wrong, "applied in addition to the default scale", value * default),
        (wrong, "applied twice", value * value),
        (wrong, "scores are divided by the scale", 1 / value),
        (wrong, "the square root of the scale is applied", math.sqrt(value)),
        (wrong, "multiplied by log2(e): base 2 and base e are mixed", value * math.log2(math.e)),
        (wrong, "multiplied by ln(2): base 2 and base e are mixed", value * math.log(2)),
    ]
    return changed(call, basis, [(verdict, detail, lambda s, f=factor: s * f) for verdict, detail, factor in factors])  # type: ignore[misc]


def caps(call: Call, basis: Basis) -> list[Reading]:
    """Returns the readings of a softcap."""
    assert call.softcap is not None
    cap, scale, wrong = call.softcap, basis.scale(call), Verdict.MISREAD
    variants: list[tuple[Verdict, str, Score]] = [
        (Verdict.APPLIED, "", lambda s: cap * np.tanh(s * scale / cap)),
        (Verdict.IGNORED, "scores are not limited", lambda s: s * scale),
        (wrong, "applied before the scale", lambda s: scale * cap * np.tanh(s / cap)),
        (wrong, "scores are clipped instead of tanh", lambda s: np.clip(s * scale, -cap, cap)),
        (wrong, "cap * tanh(score): the division by the cap is missing", lambda s: cap * np.tanh(s * scale)),
        (wrong, "tanh(score / cap): the multiplication by the cap is missing", lambda s: np.tanh(s * scale / cap)),
        (wrong, "applied twice", lambda s: cap * np.tanh(np.tanh(s * scale / cap))),
    ]
    return changed(call, basis, variants)


def biases(call: Call, basis: Basis) -> list[Reading]:
    """Returns the readings of a bias."""
    assert call.bias is not None
    bias, scale, wrong = call.bias, basis.scale(call), Verdict.MISREAD
    others = [
        ("negated", -bias),
        ("added before the scale", bias * scale),
        ("added twice", 2 * bias),
        ("transposed: queries and keys are swapped", bias.swapaxes(2, 3)),
        ("the bias of batch row 0 is used for all batch rows", bias[:1]),
        ("the bias of head 0 is used for all heads", bias[:, :1]),
        ("broadcast along the wrong axis: batch rows and heads are swapped", bias.swapaxes(0, 1)),
        ("shifted by one key forward", np.roll(bias, 1, 3)),
        ("shifted by one key backward", np.roll(bias, -1, 3)),
        ("multiplied by ln(2): base 2 and base e are mixed", bias * math.log(2)),
        ("multiplied by log2(e): base 2 and base e are mixed", bias * math.log2(math.e)),
    ]
    variants: list[tuple[Verdict, str, Score]] = [
        (Verdict.APPLIED, "", lambda s: s * scale + bias),
        (Verdict.IGNORED, "nothing is added to the scores", lambda s: s * scale),
        (wrong, "multiplied with the scores", lambda s: s * scale * bias),
    ]
    variants += [(wrong, detail, lambda s, b=other: s * scale + b) for detail, other in others]  # type: ignore[misc]
    found = changed(call, basis, variants)
    found.append(Reading(wrong, "read as a mask: positive numbers may attend", basis.parts(call, bias > 0)))
    return found


def sinks(call: Call, basis: Basis) -> list[Reading]:
    """Returns the readings of sinks, a logit of each head."""
    assert call.sinks is not None
    given, wrong = call.sinks, Verdict.MISREAD
    plain = basis.parts(call, call.cells)
    variants: list[tuple[Verdict, str, Floats | None]] = [
        (Verdict.APPLIED, "", given),
        (Verdict.IGNORED, "nothing is added to the denominator", None),
        (wrong, "multiplied by the scale", given * basis.scale(call)),
        (wrong, "negated", -given),
        (wrong, "the sink of head 0 is used for all heads", np.full_like(given, given[0])),
        (wrong, "the heads are reversed", given[::-1]),
        (wrong, "added twice", given + math.log(2)),
        (wrong, "multiplied by ln(2): base 2 and base e are mixed", given * math.log(2)),
        (wrong, "multiplied by log2(e): base 2 and base e are mixed", given * math.log2(math.e)),
        (wrong, "added to the denominator without the exponential", np.log(np.abs(given))),
        (wrong, "the logit 0 is used", np.zeros_like(given)),
    ]
    return [Reading(verdict, detail, replace(plain, sinks=sink)) for verdict, detail, sink in variants]


def groups(call: Call, basis: Basis) -> list[Reading]:
    """Returns the readings of fewer key-value heads than query heads."""
    heads, kv_heads, wrong = call.heads, call.k.shape[1], Verdict.MISREAD
    plain = basis.parts(call)
    size = heads // kv_heads
    mappings = [
        (Verdict.APPLIED, "each key-value head serves a block of query heads", [h // size for h in range(heads)]),
        (wrong, "interleaved: query head h reads key-value head h mod kv_heads", [h % kv_heads for h in range(heads)]),
        (wrong, "all query heads read key-value head 0", [0] * heads),
        (wrong, "the blocks of heads are reversed", [kv_heads - 1 - h // size for h in range(heads)]),
    ]
    return [Reading(verdict, detail, replace(plain, kv_heads=mapping)) for verdict, detail, mapping in mappings]


def plain(call: Call) -> list[tuple[Basis, Reading]]:
    """Returns the readings of a call without optional arguments, each with the basis of all further questions."""
    wrong = Verdict.MISREAD
    scales = [
        (Verdict.APPLIED, "scale 1/sqrt(head_dim)", 1.0, -0.5),
        (wrong, "the default scale is 1", 1.0, 0.0),
        (wrong, "the default scale is 1/head_dim", 1.0, -1.0),
        (wrong, "the default scale is sqrt(head_dim)", 1.0, 0.5),
        (wrong, "the default scale is log2(e)/sqrt(head_dim): base 2 and base e are mixed", math.log2(math.e), -0.5),
        (wrong, "the default scale is ln(2)/sqrt(head_dim): base 2 and base e are mixed", math.log(2), -0.5),
    ]
    found = []
    for causal in (False, True):
        for verdict, detail, factor, power in scales:
            basis = Basis(factor, power, causal)
            text = f"{detail}; a causal mask is applied although none was requested" if causal else detail
            found.append((basis, Reading(wrong if causal else verdict, text, basis.parts(call))))
    uniform = replace(found[0][1].parts, scores=lambda s: 0 * s)
    found.append((found[0][0], Reading(wrong, "the mean of all values: scores have no effect", uniform)))
    return found

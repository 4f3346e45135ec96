"""The readings of each argument of a function under test: the computations that the function may perform with the argument. One
reading is the correct computation, the others are known mistakes."""

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
    """One hypothesis about what a function computes in a call, with the verdict for a function whose output equals this
    computation."""

    verdict: Verdict
    detail: str
    parts: Computation


@dataclass(frozen=True)
class Basis:
    """The attention that a function computes without optional arguments: its default scale, and whether it is causal."""

    factor: float = 1.0
    power: float = -0.5
    """The scale of the scores is `factor * head_dim ** power`."""
    causal: bool = False
    """True if the function is causal in every call."""

    def scale(self, call: Call) -> float:
        """Returns the default scale for a call: the factor of the products of queries and keys."""
        return float(self.factor * call.q.shape[-1] ** self.power)

    def keep(self, shape: tuple[int, int, int, int], cells: Bools | None = None) -> Bools | None:
        """Returns the mask `cells`; if the function is always causal, its intersection with the causal mask. None (as argument
        or result) allows all cells."""
        if not self.causal:
            return cells
        return triangle(shape, 0) if cells is None else triangle(shape, 0) & cells

    def parts(self, call: Call, cells: Bools | None = None) -> Computation:
        """Returns the computation with the mask `cells` and the default scale, without other score modifiers."""
        scale = self.scale(call)
        return Computation(lambda products: products * scale, self.keep(call.shape, cells))


def triangle(shape: tuple[int, int, int, int], offset: int) -> Bools:
    """Returns a causal mask `[1, 1, q_len, kv_len]` as booleans: query `q` reads the keys with an index of at most `q +
    offset`."""
    return np.tri(shape[2], shape[3], offset, dtype=bool)[None, None]


Variant = tuple[Verdict, str, Bools]


def masks(call: Call, basis: Basis) -> list[Reading]:
    """Returns the readings (possible meanings, right and wrong) of a mask array or mask function. The right one comes first."""
    assert call.cells is not None
    cells, shape = call.cells, call.shape
    readings = [Reading(Verdict.APPLIED, "", basis.parts(call, cells)), Reading(Verdict.IGNORED, "all keys are read", basis.parts(call))]
    for verdict, detail, variant in _variants(cells, shape):
        readings.append(Reading(verdict, detail, basis.parts(call, variant)))
    ones = cells.astype(float)
    plain, scale = basis.parts(call), basis.scale(call)
    for text, numbers in (("the mask is added to the scores as numbers: 1 for cells that may be read, 0 for others", ones), ("the mask is added to the scores as numbers: 0 for cells that may be read, 1 for others", 1 - ones)):
        readings.append(Reading(Verdict.MISREAD, text, replace(plain, scores=lambda s, n=numbers: s * scale + n)))  # type: ignore[misc]
    readings.append(Reading(Verdict.MISREAD, "scores are multiplied by the mask: hidden keys have the score 0 and are read", replace(plain, scores=lambda s: s * scale * ones)))
    readings.append(Reading(Verdict.MISREAD, "weights are multiplied by the mask after the softmax and not normalised again", replace(plain, factor=ones)))
    return readings


def _shifted(cells: Bools, axis: int, by: int) -> Iterator[Bools]:
    """Yields copies of `cells` moved by `by` indices along `axis`. The indices that become free are filled in four forms: with
    true, with false, with a copy of the neighbour, and with the cells from the other end."""
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
    q_len, kv_len = shape[2:]
    yield wrong, "the mask is inverted: hidden keys are read, allowed keys are not", ~cells
    for axis, name in ((3, "key"), (2, "query")):
        for by in (1, -1):
            for moved in _shifted(cells, axis, by):
                yield wrong, f"the mask is shifted by one {name} {'forward' if by > 0 else 'backward'}", moved
    yield from _axes(cells, shape)
    for by, name in ((kv_len - q_len, "the mask is aligned top-left instead of bottom-right"), (q_len - kv_len, "the mask is aligned bottom-right instead of top-left")):
        if by and cells.shape[2] > 1 and cells.shape[3] > 1:
            yield wrong, name, _slid(cells, by)
    for offset, name in ((0, "causal mask"), (kv_len - q_len, "bottom-right causal mask")):
        if offset or name == "causal mask":
            yield wrong, f"a {name} is computed instead of the given mask", np.broadcast_to(triangle(shape, offset), (1, 1, q_len, kv_len))
            yield wrong, f"a {name} is applied in addition to the given mask", cells & triangle(shape, offset)
            yield wrong, f"the union of the given mask with a {name} is computed", cells | triangle(shape, offset)
    for block in (2, 4, 8):
        full = np.broadcast_to(cells, (*cells.shape[:2], q_len, kv_len))
        if q_len % block == 0 and kv_len % block == 0:
            tiles = full.reshape(*full.shape[:2], q_len // block, block, kv_len // block, block)
            for found, name in ((tiles.any((3, 5)), "at least one"), (tiles.all((3, 5)), "every")):
                yield wrong, f"the mask is rounded to blocks of {block}: a block is read if {name} cell is allowed", found.repeat(block, 2).repeat(block, 3)


def _slid(cells: Bools, by: int) -> Bools:
    """Returns the mask in which query `q` reads key `j` if and only if it reads key `j + by` in `cells`."""
    kv_len = cells.shape[3]
    index = np.arange(kv_len) + by
    return np.where((index >= 0) & (index < kv_len), cells[..., np.clip(index, 0, kv_len - 1)], by < 0)


def _axes(cells: Bools, shape: tuple[int, int, int, int]) -> Iterator[Variant]:
    """Yields wrong masks in which axes of `cells` are confused, such as the mask of one head used for all heads, each with its
    verdict and description."""
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
            yield wrong, "broadcast along the wrong axis: the key axis of the mask is used for queries", cells.swapaxes(2, 3)
            if batch == kv_len:
                yield wrong, "broadcast along the wrong axis: the key axis of the mask is used for batch rows", cells.transpose(3, 1, 2, 0)
        elif given[2] > 1 and given[3] > 1:
            yield wrong, "the mask is transposed: queries and keys are swapped", cells.swapaxes(2, 3)


def flags(call: Call, basis: Basis, alignment: str | None, cells: Bools | None = None) -> list[Reading]:
    """Returns the readings (possible meanings, right and wrong) of the causal flag. `cells` is the mask that is given together
    with the flag, or None."""
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
    add(Verdict.IGNORED, "the causal flag has no effect" if cells is not None else "all keys are read", None)
    for name in names:
        if offset and name not in order:
            add(Verdict.MISREAD, f"the causal mask is aligned {name} instead of {order[0]}", triangle(shape, names[name]))
    base = names[order[0]]
    add(Verdict.MISREAD, "the causal mask is shifted by one: a query does not read its own position", triangle(shape, base - 1))
    add(Verdict.MISREAD, "the causal mask is shifted by one: a query also reads the next position", triangle(shape, base + 1))
    add(Verdict.MISREAD, "the causal mask is inverted: a query reads its own position and later ones", ~triangle(shape, base - 1))
    add(Verdict.MISREAD, "the causal mask is inverted: a query reads only later positions", ~triangle(shape, base))
    if cells is not None:
        readings.append(Reading(Verdict.MISREAD, "the mask that is given together with the causal flag is ignored", basis.parts(call, triangle(shape, base))))
        readings.append(Reading(Verdict.MISREAD, "the union of the given mask and the causal mask is computed", basis.parts(call, triangle(shape, base) | cells)))
        readings.append(Reading(Verdict.IGNORED, "the given mask and the causal flag are both ignored", basis.parts(call)))
    return readings


def window_cells(shape: tuple[int, int, int, int], left: int, right: int, offset: int = 0) -> Bools:
    """Returns the mask `[1, 1, q_len, kv_len]` that is true where `-left <= key - query - offset <= right`. `key` and `query`
    are indices from 0."""
    distance = np.arange(shape[3])[None, :] - np.arange(shape[2])[:, None] - offset
    return ((-left <= distance) & (distance <= right))[None, None]


def windows(call: Call, basis: Basis) -> list[Reading]:
    """Returns the readings (possible meanings, right and wrong) of a window (keys before, keys after). In the right reading,
    the window includes its first and its last key."""
    assert call.window is not None
    shape, (left, right), wrong = call.shape, call.window, Verdict.MISREAD
    far = max(shape)
    limit = 0 if call.causal else far
    variants: list[tuple[Verdict, str, tuple[int, int]]] = [
        (Verdict.APPLIED, "both ends are included", (left, right)),
        (Verdict.IGNORED, "only the causal mask is applied" if call.causal else "all keys are read", (far, limit)),
        (wrong, "the left end of the window is not included", (left - 1, right)),
        (wrong, "the left side of the window has one key more", (left + 1, right)),
        (wrong, "the right end of the window is not included", (left, right - 1)),
        (wrong, "the right side of the window has one key more", (left, right + 1)),
        (wrong, "both ends of the window are not included", (left - 1, right - 1)),
        (wrong, "left and right side of the window are swapped", (right, left)),
        (wrong, "the number of keys before the query is used for both sides of the window", (left, left)),
        (wrong, "the keys after the query are hidden", (left, 0)),
        (wrong, "the right side of the window is ignored", (left, far)),
        (wrong, "the left side of the window is ignored", (far, right)),
        (wrong, "the number of keys before the query is used as the width of the whole window", (left // 2, left // 2)),
    ]
    readings = [Reading(verdict, detail, basis.parts(call, window_cells(shape, *ends))) for verdict, detail, ends in variants]
    readings.append(Reading(wrong, "the window is inverted: only keys outside of it are read", basis.parts(call, ~window_cells(shape, left, right))))
    return readings


Score = Callable[[Floats], Floats]


def changed(call: Call, basis: Basis, variants: list[tuple[Verdict, str, Score]]) -> list[Reading]:
    """Returns one reading for each variant, with the mask of the call. A variant is (verdict, description, function); the
    function computes the scores from the products of queries and keys."""
    plain = basis.parts(call, call.cells)
    return [Reading(verdict, detail, replace(plain, scores=scores)) for verdict, detail, scores in variants]


def scales(call: Call, basis: Basis) -> list[Reading]:
    """Returns the readings (possible meanings, right and wrong) of the argument for the scale."""
    assert call.scale is not None
    value, default, wrong = call.scale, basis.scale(call), Verdict.MISREAD
    factors = [
        (Verdict.APPLIED, "", value),
        (Verdict.IGNORED, "the default scale is used instead of the given scale", default),
        (wrong, "scores are multiplied by the scale and also by the default scale", value * default),
        (wrong, "the scale is applied twice", value * value),
        (wrong, "scores are divided by the scale", 1 / value),
        (wrong, "the square root of the scale is applied", math.sqrt(value)),
        (wrong, "the scale is multiplied by log2(e): base 2 and base e are mixed", value * math.log2(math.e)),
        (wrong, "the scale is multiplied by ln(2): base 2 and base e are mixed", value * math.log(2)),
    ]
    return changed(call, basis, [(verdict, detail, lambda s, f=factor: s * f) for verdict, detail, factor in factors])  # type: ignore[misc]


def caps(call: Call, basis: Basis) -> list[Reading]:
    """Returns the readings (possible meanings, right and wrong) of a softcap."""
    assert call.softcap is not None
    cap, scale, wrong = call.softcap, basis.scale(call), Verdict.MISREAD
    variants: list[tuple[Verdict, str, Score]] = [
        (Verdict.APPLIED, "", lambda s: cap * np.tanh(s * scale / cap)),
        (Verdict.IGNORED, "the softcap does not limit the scores", lambda s: s * scale),
        (wrong, "the softcap is applied before the scale", lambda s: scale * cap * np.tanh(s / cap)),
        (wrong, "scores are clipped instead of limited with tanh", lambda s: np.clip(s * scale, -cap, cap)),
        (wrong, "cap * tanh(score) is computed: the division by the cap is missing", lambda s: cap * np.tanh(s * scale)),
        (wrong, "tanh(score / cap) is computed: the multiplication by the cap is missing", lambda s: np.tanh(s * scale / cap)),
        (wrong, "the softcap is applied twice", lambda s: cap * np.tanh(np.tanh(s * scale / cap))),
    ]
    return changed(call, basis, variants)


def biases(call: Call, basis: Basis) -> list[Reading]:
    """Returns the readings (possible meanings, right and wrong) of a bias."""
    assert call.bias is not None
    bias, scale, wrong = call.bias, basis.scale(call), Verdict.MISREAD
    others = [
        ("the bias is negated", -bias),
        ("the bias is added before the scale is applied", bias * scale),
        ("the bias is added twice", 2 * bias),
        ("the bias is transposed: queries and keys are swapped", bias.swapaxes(2, 3)),
        ("the bias of batch row 0 is used for all batch rows", bias[:1]),
        ("the bias of head 0 is used for all heads", bias[:, :1]),
        ("broadcast along the wrong axis: batch rows and heads are swapped", bias.swapaxes(0, 1)),
        ("the bias is shifted by one key forward", np.roll(bias, 1, 3)),
        ("the bias is shifted by one key backward", np.roll(bias, -1, 3)),
        ("the bias is multiplied by ln(2): base 2 and base e are mixed", bias * math.log(2)),
        ("the bias is multiplied by log2(e): base 2 and base e are mixed", bias * math.log2(math.e)),
    ]
    variants: list[tuple[Verdict, str, Score]] = [
        (Verdict.APPLIED, "", lambda s: s * scale + bias),
        (Verdict.IGNORED, "the bias is not added to the scores", lambda s: s * scale),
        (wrong, "scores are multiplied by the bias", lambda s: s * scale * bias),
    ]
    variants += [(wrong, detail, lambda s, b=other: s * scale + b) for detail, other in others]  # type: ignore[misc]
    found = changed(call, basis, variants)
    found.append(Reading(wrong, "the bias is used as a mask: only cells with positive numbers are read", basis.parts(call, bias > 0)))
    return found


def sinks(call: Call, basis: Basis) -> list[Reading]:
    """Returns the readings (possible meanings, right and wrong) of sinks. A sink is a number for each head that the softmax
    treats as the score of one more key, which has no value."""
    assert call.sinks is not None
    given, wrong = call.sinks, Verdict.MISREAD
    plain = basis.parts(call, call.cells)
    variants: list[tuple[Verdict, str, Floats | None]] = [
        (Verdict.APPLIED, "", given),
        (Verdict.IGNORED, "the sinks are not added to the denominator", None),
        (wrong, "the sinks are multiplied by the scale", given * basis.scale(call)),
        (wrong, "the sinks are negated", -given),
        (wrong, "the sink of head 0 is used for all heads", np.full_like(given, given[0])),
        (wrong, "the sinks are used in the reverse order of heads", given[::-1]),
        (wrong, "the sinks are added twice", given + math.log(2)),
        (wrong, "the sinks are multiplied by ln(2): base 2 and base e are mixed", given * math.log(2)),
        (wrong, "the sinks are multiplied by log2(e): base 2 and base e are mixed", given * math.log2(math.e)),
        (wrong, "the sinks are added to the denominator without the exponential", np.log(np.abs(given))),
        (wrong, "the logit 0 is used instead of the given sinks", np.zeros_like(given)),
    ]
    return [Reading(verdict, detail, replace(plain, sinks=sink)) for verdict, detail, sink in variants]


def groups(call: Call, basis: Basis) -> list[Reading]:
    """Returns the readings of grouped heads: possible assignments (right and wrong) of key-value heads to the query heads that
    read them."""
    heads, kv_heads, wrong = call.heads, call.k.shape[1], Verdict.MISREAD
    plain = basis.parts(call)
    size = heads // kv_heads
    mappings = [
        (Verdict.APPLIED, "each key-value head is read by a block of consecutive query heads", [h // size for h in range(heads)]),
        (wrong, "interleaved: query head h reads key-value head h mod kv_heads", [h % kv_heads for h in range(heads)]),
        (wrong, "all query heads read key-value head 0", [0] * heads),
        (wrong, "blocks of query heads read the key-value heads in reverse order", [kv_heads - 1 - h // size for h in range(heads)]),
    ]
    return [Reading(verdict, detail, replace(plain, kv_heads=mapping)) for verdict, detail, mapping in mappings]


def plain(call: Call) -> list[tuple[Basis, Reading]]:
    """Returns the readings of a call without optional arguments. Each comes with its basis (default scale, causal or not),
    which all further questions use if the output agrees with this reading."""
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
    found.append((found[0][0], Reading(wrong, "the output is the mean of all values: scores have no effect", uniform)))
    return found

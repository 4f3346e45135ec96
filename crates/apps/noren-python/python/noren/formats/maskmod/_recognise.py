"""Finds the mask expression of noren that allows the same cells as a traced mask function, at every length."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..._noren import Mask, batch, causal, chunk, documents, full, none, parse, prefix, stride, window
from ._nodes import Node

MOST_RUNS = 4096
"""Maximum number of documents in an expression, and maximum number of entries of a list in an expression."""


class Unknown(Exception):
    """Raised if a part of the mask function has no expression of noren; the message names the part."""


@dataclass(frozen=True)
class Affine:
    """A linear form of nodes (values that a traced mask function computes): `constant` plus the sum of factor times node.
    `factors` maps each node to its factor, which is not 0. No node in it is a sum."""

    factors: dict[Node, int]
    constant: int

    def minus(self, other: Affine) -> Affine:
        factors = dict(self.factors)
        for node, factor in other.factors.items():
            factors[node] = factors.get(node, 0) - factor
        return Affine({node: factor for node, factor in factors.items() if factor}, self.constant - other.constant)

    def times(self, number: int) -> Affine:
        if number == 0:
            return Affine({}, 0)
        return Affine({node: factor * number for node, factor in self.factors.items()}, self.constant * number)


def affine(node: Node) -> Affine:
    """Returns the value of a node, written as a linear form of other nodes (`Affine`)."""
    match node.op:
        case "const":
            return Affine({}, int(node.value))
        case "add":
            return affine(node.args[0]).minus(affine(node.args[1]).times(-1))
        case "sub":
            return affine(node.args[0]).minus(affine(node.args[1]))
        case "neg":
            return affine(node.args[0]).times(-1)
        case "mul":
            one, other = affine(node.args[0]), affine(node.args[1])
            if not one.factors:
                return other.times(one.constant)
            if not other.factors:
                return one.times(other.constant)
    return Affine({node: 1}, 0)


def recognise(node: Node) -> Mask:
    """Returns the mask of the cells where the condition `node` is true. Raises `Unknown` if a part of the condition has no
    expression.

    Every rule holds for all positions from 0, so the mask is correct at every length at which the function raises no exception.
    Masks of captured arrays are made of `documents` and `prefix`, which raise an error for lengths and batches that do not fit
    the arrays.
    """
    match node.op:
        case "const":
            return full() if node.value else none()
        case "and":
            return _both(recognise(node.args[0]), recognise(node.args[1]))
        case "or":
            return _either(recognise(node.args[0]), recognise(node.args[1]))
        case "not":
            return _complement(recognise(node.args[0]))
        case "xor":
            a, b = (recognise(arg) for arg in node.args)
            return _either(_both(a, _complement(b)), _both(b, _complement(a)))
        case "where":
            chosen, a, b = (recognise(arg) for arg in node.args)
            return _either(_both(chosen, a), _both(_complement(chosen), b))
        case "eq" | "ne" | "lt" | "le" | "gt" | "ge":
            return _compared(node.op, node.args[0], node.args[1])
    raise Unknown(f"noren has no expression for {_words(node)}")


def _words(node: Node) -> str:
    if node.op == "table":
        return "entries of a captured array"
    return f"the operation {node.op} of {', '.join(sorted(node.variables)) or 'constants'}"


def _both(a: Mask, b: Mask) -> Mask:
    if a == full() or b == none() or a == b:
        return b
    return a if b == full() or a == none() else a & b


def _either(a: Mask, b: Mask) -> Mask:
    if a == none() or b == full() or a == b:
        return b
    return a if b == none() or a == full() else a | b


def _complement(mask: Mask) -> Mask:
    if mask == full():
        return none()
    return full() if mask == none() else ~mask


_SWAPPED = {"eq": "eq", "ne": "ne", "lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}


def _compared(op: str, one: Node, other: Node) -> Mask:
    """Returns the mask of the cells where `one op other` is true. `op` is "eq", "lt", "le", "gt" or "ge"."""
    if op == "ne":
        return _complement(_compared("eq", one, other))
    difference = affine(one).minus(affine(other))
    factors = difference.factors
    variables = {node.value: factor for node, factor in factors.items() if node.op == "var"}
    if len(variables) == len(factors):
        return _linear(op, variables, difference.constant)
    if len(factors) == 1:
        (node, factor), limit = next(iter(factors.items())), -difference.constant
        if factor == -1:
            op, factor, limit = _SWAPPED[op], 1, -limit
        if factor == 1:
            return _alone(op, node, limit)
    if len(factors) == 2:
        first, last = sorted(factors, key=lambda node: -factors[node])
        if factors[first] == 1 and factors[last] == -1:
            return _pair(op, first, last, -difference.constant)
    raise Unknown(f"noren has no expression for a comparison of {' and '.join(sorted({_words(node) for node in factors}))}")


def _linear(op: str, variables: dict[str, int], constant: int) -> Mask:
    """Returns the mask of the cells where `sum op 0` is true. The sum is `constant` plus each variable times its factor in
    `variables`."""
    if not variables:
        return full() if _holds(op, constant) else none()
    if set(variables) == {"q", "k"} and variables["q"] == -variables["k"]:
        factor = variables["q"]  # factor * (q - k) + constant op 0
        if factor < 0:
            op, factor, constant = _SWAPPED[op], -factor, -constant
        return _band(op, factor, -constant)
    if len(variables) == 1 and (name := next(iter(variables))) in ("q", "k"):
        factor = variables[name]
        if factor < 0:
            op, factor, constant = _SWAPPED[op], -factor, -constant
        return _positions(op, "queries" if name == "q" else "keys", factor, -constant)
    raise Unknown(f"noren has no expression for a comparison of {' and '.join(sorted(variables))}")


def _holds(op: str, value: int) -> bool:
    return {"eq": value == 0, "lt": value < 0, "le": value <= 0, "gt": value > 0, "ge": value >= 0}[op]


def _limits(op: str, factor: int, limit: int) -> tuple[int | None, int | None] | None:
    """Returns (smallest x, largest x) of the whole numbers x for which `factor * x op limit` is true; `factor` is above 0. A
    None in the tuple means no limit on that side. Returns None if there is no such x.
    """
    match op:
        case "eq":
            return (limit // factor, limit // factor) if limit % factor == 0 else None
        case "le":
            return None, limit // factor
        case "lt":
            return None, (limit - 1) // factor
        case "ge":
            return -(-limit // factor), None
    return limit // factor + 1, None


def _band(op: str, factor: int, limit: int) -> Mask:
    """Returns the mask of the cells where `factor * (q - k) op limit` is true; `q` and `k` are the positions of query and key."""
    limits = _limits(op, factor, limit)
    if limits is None:
        return none()
    least, most = limits  # least <= q - k <= most
    if most is None and least is not None:
        return causal(-least)
    return window(left=most, right=None if least is None else -least)


def _positions(op: str, atom: str, factor: int, limit: int) -> Mask:
    """Returns the mask of the cells where `factor * position op limit` is true. `atom` is `queries` or `keys`: the tokens whose
    positions are compared."""
    limits = _limits(op, factor, limit)
    if limits is None or (limits[1] is not None and limits[1] < 0):
        return none()
    first = max(0, limits[0] or 0)
    if first == 0 and limits[1] is None:
        return full()
    end = "" if limits[1] is None else str(limits[1] + 1)
    made = parse(f"{atom}({first}..{end})")
    assert isinstance(made, Mask)
    return made


def _alone(op: str, node: Node, limit: int) -> Mask:
    """Returns the mask of the cells where `node op limit` is true."""
    if node.op == "abs":
        inside = affine(node.args[0])
        return _absolute(op, inside, limit)
    if node.op == "mod" and op == "eq" and node.args[1].op == "const":
        inside = affine(node.args[0])
        step = int(node.args[1].value)
        factors = {part.value: factor for part, factor in inside.factors.items() if part.op == "var"}
        if not 0 <= limit < step:
            return none()
        if factors in ({"q": 1, "k": -1}, {"q": -1, "k": 1}) and len(inside.factors) == 2:
            if (inside.constant - limit) % step == 0:
                return stride(step)
    if node.op == "floordiv" and node.args[1].op == "const":
        return _quotient(op, node, limit)
    if node.op in ("min", "max"):
        return _extreme(op, node, limit)
    raise Unknown(f"noren has no expression for a comparison of {_words(node)} with a constant")


def _absolute(op: str, inside: Affine, limit: int) -> Mask:
    factors = {node.value: factor for node, factor in inside.factors.items() if node.op == "var"}
    if len(factors) != len(inside.factors):
        raise Unknown("noren has no expression for an absolute value of captured data")

    def compared(op: str, limit: int) -> Mask:
        return _linear(op, factors, inside.constant - limit)

    match op:
        case "le" | "lt":
            most = limit if op == "le" else limit - 1
            return none() if most < 0 else _both(compared("le", most), compared("ge", -most))
        case "eq":
            return none() if limit < 0 else _either(compared("eq", limit), compared("eq", -limit))
    return _complement(_absolute("lt" if op == "ge" else "le", inside, limit))


def _quotient(op: str, node: Node, limit: int) -> Mask:
    """Returns the mask of the cells where `x // size op limit` is true; `node` is the quotient `x // size`. The mask is found
    from equivalent conditions on x."""
    size = int(node.args[1].value)
    inside = affine(node.args[0])
    factors = {part.value: factor for part, factor in inside.factors.items() if part.op == "var"}
    if len(factors) != len(inside.factors):
        raise Unknown("noren has no expression for a quotient of captured data")

    def from_(start: int) -> Mask:
        return _linear("ge", factors, inside.constant - start)

    match op:
        case "ge":
            return from_(limit * size)
        case "gt":
            return from_((limit + 1) * size)
        case "lt":
            return _complement(from_(limit * size))
        case "le":
            return _complement(from_((limit + 1) * size))
    return _both(from_(limit * size), _complement(from_((limit + 1) * size)))


def _extreme(op: str, node: Node, limit: int) -> Mask:
    """Returns the mask of the cells where `node op limit` is true, for a node that is a minimum or a maximum."""
    parts = [_compared_with(op, arg, limit) for arg in node.args]
    every = (node.op == "max") == (op in ("le", "lt"))
    if op == "eq":
        raise Unknown(f"noren has no expression for a test whether a {node.op}(...) equals a number")
    return _both(*parts) if every else _either(*parts)


def _compared_with(op: str, node: Node, limit: int) -> Mask:
    inside = affine(node)
    variables = {part.value: factor for part, factor in inside.factors.items() if part.op == "var"}
    if len(variables) == len(inside.factors):
        return _linear(op, variables, inside.constant - limit)
    if inside.factors == {node: 1}:
        return _alone(op, node, limit)
    raise Unknown(f"noren has no expression for a comparison of {_words(node)}")


def _pair(op: str, one: Node, other: Node, limit: int) -> Mask:
    """Returns the mask of the cells where `one - other op limit` is true."""
    if one.op == other.op == "floordiv" and one.args[1] is other.args[1] and limit in (0, 1, -1):
        names = [arg.args[0].value if arg.args[0].op == "var" else "" for arg in (one, other)]
        if names in (["q", "k"], ["k", "q"]) and one.args[1].op == "const":
            if names == ["k", "q"]:
                op, limit = _SWAPPED[op], -limit
            return _chunks(op, int(one.args[1].value), limit)
    if one.op == other.op == "table" and op == "eq" and limit == 0 and one.value is other.value:
        return _same_entry(one, other)
    for table, position, sign in ((one, other, 1), (other, one, -1)):
        if table.op == "table" and position.op == "var" and position.value == "k":
            return _ends(op if sign == 1 else _SWAPPED[op], table, sign * limit)
    raise Unknown(f"noren has no expression for a comparison of {_words(one)} and {_words(other)}")


def _chunks(op: str, size: int, limit: int) -> Mask:
    """Returns the mask of the cells where `q // size - k // size op limit` is true: a comparison of the chunks of query and
    key."""
    earlier = _both(causal(), ~chunk(size))  # of an earlier chunk
    match op, limit:
        case ("eq", 0):
            return chunk(size)
        case ("ge", 0) | ("gt", -1):
            return causal() | chunk(size)
        case ("gt", 0) | ("ge", 1):
            return earlier
        case ("le", 0) | ("lt", 1):
            return ~earlier
        case ("lt", 0) | ("le", -1):
            return ~(causal() | chunk(size))
    raise Unknown("noren has no expression for this distance between the chunk of the query and the chunk of the key")


def _same_entry(one: Node, other: Node) -> Mask:
    """Returns the mask of the cells whose query and key have equal entries in a captured list (or in the list of their batch
    row)."""
    names = [[arg.value if arg.op == "var" else "" for arg in node.args] for node in (one, other)]
    table = one.value
    if sorted(names) == [["k"], ["q"]]:
        return documents(_lengths(table))
    if sorted(names) == [["b", "k"], ["b", "q"]] and len(table) <= MOST_RUNS:
        rows = [_lengths(row) for row in table]
        if sum(map(len, rows)) > MOST_RUNS:
            raise Unknown("the function has more documents than an expression of noren may contain")
        by_row = batch({number if number < len(rows) - 1 else "else": documents(row) for number, row in enumerate(rows)})
        return by_row & prefix([table.shape[1]] * len(rows))  # the prefix refuses a larger batch
    raise Unknown("noren has no expression for equal entries of a captured array at other indices than query and key")


def _lengths(row: NDArray[np.int64]) -> list[int]:
    """Returns the lengths of the groups of consecutive equal entries in `row`. Raises `Unknown` if the same entry occurs in two
    groups."""
    edges = np.flatnonzero(np.diff(row)) + 1
    borders = [0, *edges.tolist(), len(row)]
    firsts = row[borders[:-1]]
    if len(borders) > MOST_RUNS or len(np.unique(firsts)) != len(firsts):
        raise Unknown("noren has no expression for documents that consist of several separate parts, or for so many documents")
    return np.diff(borders).tolist()


def _ends(op: str, table: Node, limit: int) -> Mask:
    """Returns the mask of the cells where `table[b] - k op limit` is true: in batch row `b`, all keys before an end, or all
    keys from an end on."""
    names = [arg.value if arg.op == "var" else "" for arg in table.args]
    if names != ["b"] or len(table.value) > MOST_RUNS:
        raise Unknown("noren has no expression for a comparison of a key with entries of a captured array")
    ends = [int(end) for end in table.value]
    match op:  # k < end - limit (gt), k <= end - limit (ge)
        case "gt":
            return prefix([max(0, end - limit) for end in ends])
        case "ge":
            return prefix([max(0, end - limit + 1) for end in ends])
        case "le":
            return ~prefix([max(0, end - limit) for end in ends])
        case "lt":
            return ~prefix([max(0, end - limit + 1) for end in ends])
    raise Unknown("noren has no expression for the equality of a key with entries of a captured array")


__all__ = ["Unknown", "recognise"]

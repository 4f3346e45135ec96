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

    def plus(self, other: Affine | int, times: int = 1) -> Affine:
        """Returns this form plus `times` the form or number `other`."""
        if isinstance(other, int):
            other = Affine({}, other)
        factors = dict(self.factors)
        for node, factor in other.factors.items():
            factors[node] = factors.get(node, 0) + times * factor
        return Affine({node: factor for node, factor in factors.items() if factor}, self.constant + times * other.constant)

    def negative(self) -> Affine:
        return Affine({}, 0).plus(self, -1)


def affine(node: Node) -> Affine:
    """Returns the value of a node, written as a linear form of other nodes (`Affine`)."""
    match node.op:
        case "const":
            return Affine({}, int(node.value))
        case "add":
            return affine(node.args[0]).plus(affine(node.args[1]))
        case "sub":
            return affine(node.args[0]).plus(affine(node.args[1]), -1)
        case "neg":
            return affine(node.args[0]).negative()
        case "mul":
            one, other = affine(node.args[0]), affine(node.args[1])
            if not one.factors:
                one, other = other, one
            if not other.factors:
                return Affine({}, 0).plus(one, other.constant)
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
            difference = affine(node.args[0]).plus(affine(node.args[1]), -1)
            match node.op:
                case "eq":
                    return _zero(difference)
                case "ne":
                    return _complement(_zero(difference))
                case "ge":
                    return _at_least(difference)
                case "gt":
                    return _at_least(difference.plus(-1))
                case "le":
                    return _at_least(difference.negative())
            return _at_least(difference.negative().plus(-1))
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


def _zero(form: Affine) -> Mask:
    """Returns the mask of the cells where `form == 0` is true."""
    match list(form.factors.items()):
        case [(node, factor)] if node.op in ("abs", "mod"):
            value, rest = divmod(-form.constant, factor)
            inside = affine(node.args[0])
            if rest or value < 0:
                return none()
            if node.op == "abs":
                return _either(_zero(inside.plus(-value)), _zero(inside.plus(value)))
            return _remainder(node, inside, value)
        case [(one, 1), (other, -1)] | [(other, -1), (one, 1)] if form.constant == 0:
            if one.op == other.op == "table" and one.value is other.value:
                return _same_entry(one, other)
            if (size := _chunk_size(one, other)) or (size := _chunk_size(other, one)):
                return chunk(size)
    return _both(_at_least(form), _at_least(form.negative()))


def _at_least(form: Affine) -> Mask:
    """Returns the mask of the cells where `form >= 0` is true."""
    if all(node.op == "var" for node in form.factors):
        return _linear({node.value: factor for node, factor in form.factors.items()}, form.constant)
    match list(form.factors.items()):
        case [(node, factor)] if factor > 0:
            return _compared(node, -(form.constant // factor), True)
        case [(node, factor)]:
            return _compared(node, form.constant // -factor, False)
        case [(one, 1), (other, -1)] | [(other, -1), (one, 1)]:
            return _pair(one, other, -form.constant)
    raise Unknown(f"noren has no expression for a comparison of {' and '.join(sorted({_words(node) for node in form.factors}))}")


def _linear(factors: dict[str, int], constant: int) -> Mask:
    """Returns the mask of the cells where `sum >= 0` is true. The sum is `constant` plus each variable times its factor in
    `factors`."""
    if not factors:
        return full() if constant >= 0 else none()
    factor = factors.get("q", factors.get("k", 0))
    limit = constant // abs(factor) if factor else 0
    if set(factors) == {"q", "k"} and factors["k"] == -factor:
        return causal(limit) if factor > 0 else window(left=limit)
    if len(factors) > 1 or not factor:
        raise Unknown(f"noren has no expression for a comparison of {' and '.join(sorted(factors))}")
    if factor < 0 and limit < 0:
        return none()
    if factor > 0 and limit >= 0:
        return full()
    made = parse(f"{'queries' if 'q' in factors else 'keys'}({f'{-limit}..' if factor > 0 else f'0..{limit + 1}'})")
    assert isinstance(made, Mask)
    return made


def _compared(node: Node, limit: int, least: bool) -> Mask:
    """Returns the mask of the cells where `node >= limit` is true, or `node <= limit` if `least` is false."""
    match node.op:
        case "abs":
            if least:
                return _complement(_compared(node, limit - 1, False))
            inside = affine(node.args[0])
            return none() if limit < 0 else _both(_at_least(inside.negative().plus(limit)), _at_least(inside.plus(limit)))
        case "floordiv" if node.args[1].op == "const":
            size, inside = int(node.args[1].value), affine(node.args[0])
            return _at_least(inside.plus(-limit * size) if least else inside.negative().plus((limit + 1) * size - 1))
        case "min" | "max":
            parts = [_at_least(affine(arg).plus(-limit) if least else affine(arg).negative().plus(limit)) for arg in node.args]
            return _both(*parts) if (node.op == "min") == least else _either(*parts)
    raise Unknown(f"noren has no expression for a comparison of {_words(node)} with a constant")


def _remainder(node: Node, inside: Affine, value: int) -> Mask:
    """Returns the mask of the cells where `inside % step == value` is true; `node` is the remainder."""
    step = node.args[1]
    if step.op == "const" and value >= int(step.value):
        return none()
    factors = {part.value: factor for part, factor in inside.factors.items() if part.op == "var"}
    distance = len(inside.factors) == 2 and factors in ({"q": 1, "k": -1}, {"q": -1, "k": 1})
    if step.op == "const" and distance and (inside.constant - value) % int(step.value) == 0:
        return stride(int(step.value))
    raise Unknown(f"noren has no expression for a comparison of {_words(node)} with a constant")


def _chunk_size(one: Node, other: Node) -> int:
    """Returns the size of chunks if `one` is the number of the query's chunk and `other` that of the key's chunk; otherwise 0."""
    if one.op == other.op == "floordiv" and one.args[1] is other.args[1] and one.args[1].op == "const":
        if [node.args[0].value if node.args[0].op == "var" else "" for node in (one, other)] == ["q", "k"]:
            return int(one.args[1].value)
    return 0


def _pair(one: Node, other: Node, limit: int) -> Mask:
    """Returns the mask of the cells where `one - other >= limit` is true."""
    if size := _chunk_size(one, other):
        if limit == 0:
            return causal() | chunk(size)
        if limit == 1:
            return _both(causal(), ~chunk(size))  # of an earlier chunk
        raise Unknown("noren has no expression for this distance between the chunk of the query and the chunk of the key")
    if one.op == "table" and other.op == "var" and other.value == "k":
        return _before_end(one, limit)
    if _chunk_size(other, one) or (other.op == "table" and one.op == "var" and one.value == "k"):
        return _complement(_pair(other, one, 1 - limit))
    raise Unknown(f"noren has no expression for a comparison of {_words(one)} and {_words(other)}")


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


def _before_end(table: Node, limit: int) -> Mask:
    """Returns the mask of the cells where `table[b] - k >= limit` is true: in batch row `b`, all keys before an end."""
    if [arg.value if arg.op == "var" else "" for arg in table.args] != ["b"] or len(table.value) > MOST_RUNS:
        raise Unknown("noren has no expression for a comparison of a key with entries of a captured array")
    return prefix([max(0, int(end) - limit + 1) for end in table.value])

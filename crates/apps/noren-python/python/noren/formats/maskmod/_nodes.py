"""Expressions over (batch row, head, query, key), which the trace of a mask function records. Computes the values of
expressions, and the ranges of these values over blocks of cells."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Kind = Literal["bool", "int"]
Values = NDArray[Any]
Ranges = tuple[Values, Values]
"""Ranges of values, as (smallest possible values, largest possible values), both included, with one entry for each block of
cells. For booleans, (True, True) means that the value is true in every cell of the block."""

VARIABLES = ("b", "h", "q", "k")
FAR = np.int64(2**60)


class Wide(Exception):
    """Raised if a number may need more than 60 bits. The function computes in int64, which wraps around, so a computed range
    could be wrong."""


@dataclass(frozen=True, eq=False)
class Node:
    """One operation of an expression. `value` is the number if the operation is a constant, the name for a variable, or the
    array for a captured table."""

    op: str
    args: tuple[Node, ...]
    value: Any
    kind: Kind
    variables: frozenset[str]


class Graph:
    """Makes the nodes of an expression. Equal operations become one node."""

    def __init__(self) -> None:
        self._known: dict[Any, Node] = {}

    def make(self, op: str, args: tuple[Node, ...] = (), value: Any = None, kind: Kind = "int") -> Node:
        """Returns the node of an operation. An operation whose arguments are all constants becomes a constant."""
        key = (op, tuple(id(arg) for arg in args), id(value) if isinstance(value, np.ndarray) else value, kind)
        if key in self._known:
            return self._known[key]
        if args and all(arg.op == "const" for arg in args) and op != "table":
            made = _OPS[op](*(np.asarray(arg.value) for arg in args))
            return self.const(bool(made) if kind == "bool" else int(made))
        used = frozenset().union(*(arg.variables for arg in args)) if op != "var" else frozenset([value])
        node = self._known[key] = Node(op, args, value, kind, used)
        return node

    def const(self, value: bool | int) -> Node:
        return self.make("const", (), value, "bool" if isinstance(value, bool) else "int")

    def variable(self, name: str) -> Node:
        return self.make("var", (), name, "int")

    def all_of(self, parts: list[Node]) -> Node:
        """Returns the node of a condition that is true where all of `parts` are true."""
        made = self.const(True)
        for part in parts:
            if part.op == "const":
                if not part.value:
                    return part
            elif made.op == "const":
                made = part
            else:
                made = self.make("and", (made, part), None, "bool")
        return made

    def any_of(self, parts: list[Node]) -> Node:
        """Returns the node of a condition that is true where at least one of `parts` is true."""
        made = self.const(False)
        for part in parts:
            if part.op == "const":
                if part.value:
                    return part
            elif made.op == "const":
                made = part
            else:
                made = self.make("or", (made, part), None, "bool")
        return made


_OPS: dict[str, Callable[..., Any]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "floordiv": np.floor_divide,
    "mod": np.mod,
    "neg": np.negative,
    "abs": np.abs,
    "min": np.minimum,
    "max": np.maximum,
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "and": np.logical_and,
    "or": np.logical_or,
    "xor": np.logical_xor,
    "not": np.logical_not,
    "bitand": np.bitwise_and,
    "bitor": np.bitwise_or,
    "bitxor": np.bitwise_xor,
    "where": np.where,
    "int": lambda x: np.asarray(x).astype(np.int64),
    "bool": lambda x: np.asarray(x).astype(np.bool_),
}


def nodes(root: Node) -> list[Node]:
    """Returns all nodes of an expression. A node comes after its arguments."""
    found: dict[int, Node] = {}
    stack: list[tuple[Node, bool]] = [(root, False)]
    while stack:
        node, ready = stack.pop()
        if id(node) in found:
            continue
        if ready:
            found[id(node)] = node
        else:
            stack.append((node, True))
            stack.extend((arg, False) for arg in node.args)
    return list(found.values())


def evaluate(root: Node, at: dict[str, Values]) -> Values:
    """Returns the value of an expression for each cell. `at` has an array of int64 for each variable; their shapes broadcast.

    An index outside a table reads the first or the last entry of the table. The function itself raises IndexError in such
    cells; `Trace.fails` is the condition for them.
    """
    known: dict[int, Values] = {}
    for node in nodes(root):
        if node.op == "const":
            made = np.asarray(node.value)
        elif node.op == "var":
            made = at[node.value]
        elif node.op == "table":
            index = (known[id(arg)] for arg in node.args)
            made = node.value[tuple(np.clip(part, -size, size - 1) for part, size in zip(index, node.value.shape, strict=True))]
            made = made if node.kind == "bool" else made.astype(np.int64)
        else:
            made = _OPS[node.op](*(known[id(arg)] for arg in node.args))
        known[id(node)] = made
    return known[id(root)]


class Bounder:
    """Computes, for blocks of cells, the range of the values of an expression."""

    def __init__(self, root: Node) -> None:
        self._order = nodes(root)
        self._root = root
        self._ranges: dict[int, _RangeTable] = {}

    def ranges(self, at: dict[str, Ranges]) -> Ranges:
        """Returns the range of the expression over each block. `at` has the range of each variable in each block. A range
        contains all values that occur; it may contain others.
        """
        known: dict[int, Ranges] = {}
        for node in self._order:
            args = [known[id(arg)] for arg in node.args]
            if node.op == "const":
                made: Ranges = (np.asarray(node.value), np.asarray(node.value))
            elif node.op == "var":
                made = at[node.value]
            elif node.op == "table":
                made = self._table(node, args)
            else:
                made = _range(node, args)
            if node.op in ("add", "sub", "mul") and ((made[0] < -FAR).any() or (made[1] > FAR).any()):
                raise Wide
            known[id(node)] = made
        return known[id(self._root)]

    def _table(self, node: Node, args: list[Ranges]) -> Ranges:
        table = node.value
        low, high = args[-1]
        fixed = []
        for first, last in args[:-1]:
            if first.size != 1 or last.size != 1 or first.item() != last.item() or not 0 <= first.item() < len(table):
                return _whole(node)
            fixed.append(int(first.item()))
            table = table[fixed[-1]]
        if (low < 0).any() or (high >= len(table)).any():
            return _whole(node)
        made = self._ranges.get(id(node))
        if made is None or made.fixed != fixed:
            made = self._ranges[id(node)] = _RangeTable(table, fixed)
        return made.ranges(low, high)


def _whole(node: Node) -> Ranges:
    """Returns the smallest and the largest entry of a table, as the range of its values."""
    table = node.value
    if table.size == 0:
        return (np.asarray(-FAR), np.asarray(FAR)) if node.kind == "int" else (np.asarray(False), np.asarray(True))
    return np.asarray(table.min()), np.asarray(table.max())


class _RangeTable:
    """Gives the minimum and the maximum of any range of entries of a list. Entry `i` of table `l` has the minimum (or maximum)
    of the `2^l` entries of the list from index `i` on."""

    def __init__(self, table: Values, fixed: list[int]) -> None:
        self.fixed = fixed
        self._low, self._high = [table], [table]
        size = 1
        while 2 * size <= len(table):
            low, high = self._low[-1], self._high[-1]
            self._low.append(np.minimum(low[:-size], low[size:]))
            self._high.append(np.maximum(high[:-size], high[size:]))
            size *= 2

    def ranges(self, first: Values, last: Values) -> Ranges:
        first, last = np.broadcast_arrays(first, last)
        level = np.frexp((last - first + 1).astype(np.float64))[1] - 1
        low = np.empty(first.shape, self._low[0].dtype)
        high = np.empty(first.shape, self._high[0].dtype)
        for number in np.unique(level):
            at = level == number
            one, other = first[at], last[at] - (1 << int(number)) + 1
            low[at] = np.minimum(self._low[number][one], self._low[number][other])
            high[at] = np.maximum(self._high[number][one], self._high[number][other])
        return low, high


def _range(node: Node, args: list[Ranges]) -> Ranges:
    """Returns the range of the results of an operation; `args` has the ranges of its arguments."""
    (a, z), *rest = args
    match node.op:
        case "int":
            return a.astype(np.int64), z.astype(np.int64)
        case "bool":
            return (a > 0) | (z < 0), (a != 0) | (z != 0)
        case "not":
            return np.logical_not(z), np.logical_not(a)
        case "neg":
            return -z, -a
        case "abs":
            return np.where((a <= 0) & (z >= 0), 0, np.minimum(np.abs(a), np.abs(z))), np.maximum(np.abs(a), np.abs(z))
        case "where":
            (b, y), (c, x) = rest
            low = np.where(a, b, np.where(z, np.minimum(b, c), c))
            return low, np.where(a, y, np.where(z, np.maximum(y, x), x))
    ((b, y),) = rest
    return _two(node, a, z, b, y)


def _two(node: Node, a: Values, z: Values, b: Values, y: Values) -> Ranges:
    """Returns the range of the results of an operation with two arguments; the arguments are from `a` to `z` and from `b` to
    `y`, both included."""
    match node.op:
        case "add":
            return np.add(a, b, dtype=np.int64), np.add(z, y, dtype=np.int64)
        case "sub":
            return np.subtract(a, y, dtype=np.int64), np.subtract(z, b, dtype=np.int64)
        case "mul":
            if float(max(abs(int(a.min())), abs(int(z.max())))) * max(abs(int(b.min())), abs(int(y.max()))) > FAR:
                raise Wide
            all_four = [np.multiply(one, other, dtype=np.int64) for one in (a, z) for other in (b, y)]
            return np.minimum.reduce(np.broadcast_arrays(*all_four)), np.maximum.reduce(np.broadcast_arrays(*all_four))
        case "floordiv":  # by numbers above 0
            return np.minimum(a // b, a // y), np.maximum(z // b, z // y)
        case "mod":  # by numbers above 0
            same = (a // b == z // b) & (b == y)
            return np.where(same, a % b, 0), np.where(same, z % b, y - 1)
        case "min":
            return np.minimum(a, b), np.minimum(z, y)
        case "max":
            return np.maximum(a, b), np.maximum(z, y)
        case "eq":
            return (a == z) & (b == y) & (a == b), (a <= y) & (b <= z)
        case "ne":
            return (z < b) | (y < a), ~((a == z) & (b == y) & (a == b))
        case "lt":
            return z < b, a < y
        case "le":
            return z <= b, a <= y
        case "gt":
            return a > y, z > b
        case "ge":
            return a >= y, z >= b
        case "and":
            return a & b, z & y
        case "or":
            return a | b, z | y
        case "xor":
            return (a & ~y) | (b & ~z), ~(a & b) & (z | y)
    if node.kind == "int":  # operations on bits
        return np.asarray(-FAR), np.asarray(FAR)
    return np.asarray(False), np.asarray(True)

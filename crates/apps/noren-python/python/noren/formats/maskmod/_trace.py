"""Traces a mask function: calls it once for each path through its conditions, with values that record their operations."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

from ._nodes import FAR, VARIABLES, Graph, Kind, Node

MOST_PATHS = 256
"""Maximum number of paths through the conditions (`if`, `and`, `or`) of a function."""
MOST_ENTRIES = 1 << 26
"""Maximum number of entries of a captured array that the function may index."""


class Untraceable(Exception):
    """Raised if the function does something that a trace cannot record; the message has the reason."""


@dataclass(frozen=True)
class Trace:
    """The recorded operations of a function: the expression of its result, and a condition that is true in cells in which the
    function reads captured data beyond the end of the data."""

    result: Node
    fails: Node


class Traced:
    """A value that records the operations of a function. It represents one number for each cell."""

    __slots__ = ("node", "paths")
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, node: Node, paths: _Paths) -> None:
        self.node, self.paths = node, paths

    # what functions read of an index, as of a tensor without dimensions
    shape = ()
    ndim = 0
    is_cuda = False

    @property
    def device(self) -> Any:
        return sys.modules["torch"].device("cpu") if "torch" in sys.modules else "cpu"

    @property
    def dtype(self) -> Any:
        name = "bool" if self.node.kind == "bool" else "int64"
        return getattr(sys.modules["torch"], name) if "torch" in sys.modules else np.dtype(name)

    def dim(self) -> int:
        return 0

    def size(self) -> tuple[int, ...]:
        return ()

    def __bool__(self) -> bool:
        return self.paths.decide(_as_bool(self.node, self.paths))

    def __index__(self) -> NoReturn:
        raise Untraceable("the function uses a value that depends on b, h, q_idx or kv_idx where a Python number is required, such as the index of a list")

    __int__ = __float__ = __complex__ = __index__

    def item(self) -> NoReturn:
        raise Untraceable("the function calls item() of a value that depends on b, h, q_idx or kv_idx")

    def __iter__(self) -> NoReturn:
        raise Untraceable("the function iterates over a value that depends on b, h, q_idx or kv_idx")

    def __getattr__(self, name: str) -> Any:
        handler = _HANDLERS.get(name)
        if handler is None:
            raise Untraceable(f"the function uses the attribute {name} of a value that depends on b, h, q_idx or kv_idx, which cannot be recorded")
        return lambda *args, **kwargs: self.paths.call(name, (self, *args), kwargs)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        if method != "__call__":
            raise Untraceable(f"the function uses {ufunc.__name__}.{method}, an operation that cannot be recorded")
        return self.paths.call(ufunc.__name__, inputs, kwargs)

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        return self.paths.call(func.__name__, args, kwargs)

    def __array__(self, *_: Any, **__: Any) -> NoReturn:
        raise Untraceable("the function converts a value that depends on b, h, q_idx or kv_idx to an array")

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        held = _find((args, kwargs or {}))
        if held is None:
            return NotImplemented
        return held.paths.call(func.__name__, args, kwargs or {})


def _operator(name: str, swapped: bool) -> Callable[[Traced, Any], Any]:
    def run(self: Traced, other: Any) -> Any:
        return self.paths.call(name, (other, self) if swapped else (self, other), {})

    return run


def _alone(name: str) -> Callable[[Traced], Any]:
    def run(self: Traced) -> Any:
        return self.paths.call(name, (self,), {})

    return run


for _name in ("add", "sub", "mul", "floordiv", "mod", "and", "or", "xor"):
    setattr(Traced, f"__{_name}__", _operator(_name, False))
    setattr(Traced, f"__r{_name}__", _operator(_name, True))
for _name in ("eq", "ne", "lt", "le", "gt", "ge", "truediv", "pow", "lshift", "rshift"):
    setattr(Traced, f"__{_name}__", _operator(_name, False))
for _name in ("neg", "abs", "invert", "pos"):
    setattr(Traced, f"__{_name}__", _alone(_name))


class Table:
    """A captured list or NumPy array that can be indexed with traced values; in all other respects, it behaves like the list or
    array."""

    def __init__(self, held: Any, paths: _Paths) -> None:
        self._held, self._paths = held, paths

    def __getitem__(self, index: Any) -> Any:
        if _find(index) is None:
            return self._held[index]
        return self._paths.gather(self._held, index)

    def __len__(self) -> int:
        return len(self._held)

    def __iter__(self) -> Any:
        return iter(self._held)

    def __contains__(self, item: Any) -> bool:
        if isinstance(item, Traced):
            raise Untraceable("the function tests whether a value that depends on b, h, q_idx or kv_idx is in a collection")
        return item in self._held

    def __getattr__(self, name: str) -> Any:
        return getattr(self._held, name)


class _Rows:
    """A table for which only some of its indices are given up to now: the result of `table[b]` in `table[b][k]`."""

    def __init__(self, table: Any, index: tuple[Node, ...], paths: _Paths) -> None:
        self._table, self._index, self._paths = table, index, paths

    def __getitem__(self, index: Any) -> Any:
        return self._paths.entry(self._table, (*self._index, *self._paths.indices(index)))

    def __getattr__(self, name: str) -> Any:
        raise Untraceable(f"the function uses the attribute {name} of a row of a captured array, which cannot be recorded")


def _find(value: Any) -> Traced | None:
    """Returns the first traced value in `value`, which may be nested tuples, lists and dicts; None if there is none."""
    if isinstance(value, Traced):
        return value
    if isinstance(value, (tuple, list)):
        return next((found for part in value if (found := _find(part)) is not None), None)
    return _find(list(value.values())) if isinstance(value, dict) else None


class _Paths:
    """The paths of a function through its conditions (`if`, `and`, `or`). One call of the function takes one path: a list of
    decisions."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.tables: dict[int, tuple[Any, np.ndarray[Any, Any]]] = {}
        self.narrow: dict[int, str] = {}
        """For captured arrays whose number type has few bits, so that sums may wrap around: the number type, by the id of the
        recorded array."""
        self._plan: list[bool] = []
        self._taken: list[tuple[Node, bool]] = []
        self._fails: list[Node] = []

    def all(self, run: Callable[[], Any]) -> Trace:
        """Calls `run` once for each path through the conditions of the function, and returns the operations of all paths."""
        parts: list[Node] = []
        pending: list[list[bool]] = [[]]
        count = 0
        while pending:
            count += 1
            if count > MOST_PATHS:
                raise Untraceable(f"the function has more than {MOST_PATHS} paths through its conditions")
            self._plan, self._taken = pending.pop(), []
            start = len(self._plan)
            result = self._boolean(run())
            parts.append(self.graph.all_of([*self._conditions(), result]))
            for at in range(start, len(self._taken)):
                pending.append([*(true for _, true in self._taken[:at]), not self._taken[at][1]])
        return Trace(self.graph.any_of(parts), self.graph.any_of(list(dict.fromkeys(self._fails))))

    def _conditions(self) -> list[Node]:
        return [node if true else self.not_(node) for node, true in self._taken]

    def decide(self, condition: Node) -> bool:
        """Returns the decision of the current call at a condition: true if the call takes the path on which the condition is
        true."""
        if condition.op == "const":
            return bool(condition.value)
        for node, true in self._taken:
            if node is condition:
                return true
        at = len(self._taken)
        true = self._plan[at] if at < len(self._plan) else True
        self._taken.append((condition, true))
        return true

    def _boolean(self, result: Any) -> Node:
        node = self.lift(result)
        if node.kind != "bool":
            raise Untraceable("the function returns a number, not a boolean")
        return node

    def not_(self, node: Node) -> Node:
        return node.args[0] if node.op == "not" else self.graph.make("not", (node,), None, "bool")

    def lift(self, value: Any) -> Node:
        """Converts a traced value, a number of Python or NumPy, or a tensor without dimensions to a node."""
        if isinstance(value, Traced):
            return value.node
        if isinstance(value, (bool, int)):
            if abs(value) > FAR:
                raise Untraceable("the function computes with a number of more than 60 bits")
            return self.graph.const(value)
        if isinstance(value, (np.bool_, np.integer)):
            return self.graph.const(value.item())
        if getattr(value, "shape", None) == () and hasattr(value, "item"):
            return self.lift(value.item())
        raise Untraceable(f"the function computes with a value of the type {type(value).__name__}, not with whole numbers or booleans")

    def wide(self, value: Any) -> Node:
        """Returns the node of an operand of arithmetic. Raises `Untraceable` for an entry of an array whose number type has few
        bits, because a sum of such entries may wrap around."""
        node = self.lift(value)
        if node.op == "table" and id(node.value) in self.narrow:
            raise Untraceable(f"the function computes with entries of a captured array of {self.narrow[id(node.value)]}, which may wrap around")
        return node

    def indices(self, index: Any) -> tuple[Node, ...]:
        given = index if isinstance(index, tuple) else (index,)
        return tuple(self.lift(part) for part in given)

    def gather(self, held: Any, index: Any) -> Any:
        """Returns the entry of a captured array (`held`) at an index that contains traced values."""
        known = self.tables.get(id(held))
        if known is None:
            known = self.tables[id(held)] = (held, _array(held))
            name = str(getattr(held, "dtype", "")).removeprefix("torch.")
            if name.startswith(("uint", "int8", "int16")):
                self.narrow[id(known[1])] = name
        return self.entry(known[1], self.indices(index))

    def entry(self, table: np.ndarray[Any, Any], index: tuple[Node, ...]) -> Any:
        if any(node.kind == "bool" for node in index):
            raise Untraceable("the function indexes a captured array with booleans")
        if len(index) < table.ndim:
            return _Rows(table, index, self)
        if len(index) > table.ndim:
            raise IndexError(f"{len(index)} indices are given for a captured array of {table.ndim} dimensions")
        for part, size in zip(index, table.shape, strict=True):
            outside = [
                self.graph.make("lt", (part, self.graph.const(-size)), None, "bool"),
                self.graph.make("ge", (part, self.graph.const(size)), None, "bool"),
            ]
            self._fails.append(self.graph.all_of([*self._conditions(), self.graph.any_of(outside)]))
        kind: Kind = "bool" if table.dtype == np.bool_ else "int"
        return Traced(self.graph.make("table", index, table, kind), self)

    def call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Records the call of an operator, of a method of a tensor, or of a function of PyTorch or NumPy."""
        plain = name.strip("_") if name.startswith("__") else name
        if plain == "getitem":
            if isinstance(args[0], Traced):
                if args[1] in ((), Ellipsis):
                    return args[0]
                raise Untraceable("the function indexes a value that depends on b, h, q_idx or kv_idx")
            return self.gather(*args)
        handler = _HANDLERS.get(plain)
        if handler is None:
            raise Untraceable(f"the function calls {name}, an operation that cannot be recorded")
        made = handler(self, *args, **kwargs)
        return Traced(made, self) if isinstance(made, Node) else made


def _array(held: Any) -> np.ndarray[Any, Any]:
    """Returns a captured list, array or tensor as an array of booleans or int64."""
    if hasattr(held, "detach"):
        held = held.detach().cpu().numpy()
    made = np.array(held)
    if made.size > MOST_ENTRIES:
        raise Untraceable(f"the function reads a captured array of {made.size} entries; arrays of up to {MOST_ENTRIES} are supported")
    if made.size == 0:
        raise Untraceable("the function reads an empty captured array")
    if made.dtype == np.bool_:
        return made
    if made.dtype.kind not in "iu" or made.ndim == 0:
        raise Untraceable(f"the function reads a captured array of {made.dtype} values and {made.ndim} dimensions; only booleans or integers with at least 1 dimension are supported")
    return made.astype(np.int64)


def _as_bool(node: Node, paths: _Paths) -> Node:
    return node if node.kind == "bool" else paths.graph.make("bool", (node,), None, "bool")


def _as_int(node: Node, paths: _Paths) -> Node:
    return node if node.kind == "int" else paths.graph.make("int", (node,), None, "int")


def _compare(op: str) -> Callable[..., Node]:
    def run(paths: _Paths, a: Any, b: Any) -> Node:
        one, other = (_as_int(paths.lift(part), paths) for part in (a, b))
        return paths.graph.make(op, (one, other), None, "bool")

    return run


def _number(op: str) -> Callable[..., Node]:
    def run(paths: _Paths, a: Any, b: Any) -> Node:
        one, other = ((paths.lift if op in ("min", "max") else paths.wide)(part) for part in (a, b))
        if one.kind == other.kind == "bool":
            if op == "mul":
                return paths.graph.make("and", (one, other), None, "bool")
            raise Untraceable("the function adds or subtracts booleans")
        return paths.graph.make(op, (_as_int(one, paths), _as_int(other, paths)))

    return run


def _divide(op: str) -> Callable[..., Node]:
    def run(paths: _Paths, a: Any, b: Any, *, rounding_mode: str = "floor") -> Node:
        one, other = (paths.lift(part) for part in (a, b))
        positive = other.op in ("const", "table") and other.kind == "int" and np.min(other.value, initial=1) >= 1
        if one.kind == "bool":
            raise Untraceable("the function divides a boolean")
        if not positive:
            raise Untraceable("the function divides by something else than whole numbers of 1 or more that are constants or captured")
        if rounding_mode != "floor":
            raise Untraceable(f"the function divides with rounding_mode={rounding_mode!r}, not with 'floor'")
        return paths.graph.make(op, (one, other))

    return run


def _divided(paths: _Paths, a: Any, b: Any, *, rounding_mode: str | None = None) -> Node:
    if rounding_mode != "floor":
        raise Untraceable(f"the function divides with rounding_mode={rounding_mode!r}, not with 'floor'")
    return _divide("floordiv")(paths, a, b)


def _logic(op: str, bits: str) -> Callable[..., Node]:
    def run(paths: _Paths, a: Any, b: Any) -> Node:
        one, other = (paths.lift(part) for part in (a, b))
        if one.kind == other.kind == "bool":
            return paths.graph.make(op, (one, other), None, "bool")
        if op == bits:
            return paths.graph.make(op, (_as_bool(one, paths), _as_bool(other, paths)), None, "bool")
        return paths.graph.make(bits, (_as_int(one, paths), _as_int(other, paths)))

    return run


def _where(paths: _Paths, condition: Any, a: Any, b: Any) -> Node:
    chosen = _as_bool(paths.lift(condition), paths)
    one, other = (paths.lift(part) for part in (a, b))
    kind: Kind = "bool" if one.kind == other.kind == "bool" else "int"
    if kind == "int":
        one, other = _as_int(one, paths), _as_int(other, paths)
    return paths.graph.make("where", (chosen, one, other), None, kind)


def _clamp(paths: _Paths, value: Any, min: Any = None, max: Any = None, *, a_min: Any = None, a_max: Any = None) -> Node:
    made = _as_int(paths.lift(value), paths)
    for op, limit in (("max", a_min if min is None else min), ("min", a_max if max is None else max)):
        if limit is not None:
            made = paths.graph.make(op, (made, _as_int(paths.lift(limit), paths)))
    return made


def _invert(paths: _Paths, value: Any) -> Node:
    node = paths.wide(value)
    if node.kind == "int":
        return paths.graph.make("sub", (paths.graph.const(-1), node))
    return paths.not_(node)


def _cast(paths: _Paths, value: Any, *args: Any, **kwargs: Any) -> Node:
    """Records a call of `to` or `astype`: the conversion of a value to a type or to a device."""
    node = paths.lift(value)
    for given in (*args, *kwargs.values()):
        name = getattr(given, "__name__", str(given)).rsplit(".")[-1]
        if name.startswith(("float", "bfloat", "half", "double", "complex", "uint", "int8", "int16")):
            raise Untraceable(f"the function converts a value to {name}; only conversions to bool, int and long are supported")
        if name.startswith("bool"):
            node = _as_bool(node, paths)
        elif name.startswith(("int", "long")):
            node = _as_int(node, paths)
    return node


def _filled(number: bool | int | None) -> Callable[..., Node]:
    def run(paths: _Paths, like: Any, *args: Any, dtype: Any = None, **_: Any) -> Node:
        value = args[-1] if number is None else number
        name = str(dtype)
        as_bool = "bool" in name or (dtype is None and paths.lift(like).kind == "bool")
        if "float" in name:
            raise Untraceable(f"the function makes an array of {name}; only booleans and integers can be recorded")
        return paths.graph.const(bool(value) if as_bool else int(value))

    return run


def _same(paths: _Paths, value: Any, *_: Any, **__: Any) -> Node:
    return paths.lift(value)


def _alone_number(op: str) -> Callable[..., Node]:
    return lambda paths, value: paths.graph.make(op, (_as_int(paths.wide(value), paths),))


def _handlers() -> dict[str, Callable[..., Any]]:
    made: dict[str, Callable[..., Any]] = {}

    def add(names: str, handler: Callable[..., Any]) -> None:
        made.update(dict.fromkeys(names.split(), handler))

    add("add", _number("add"))
    add("sub subtract", _number("sub"))
    add("rsub", lambda paths, a, b: _number("sub")(paths, b, a))
    add("mul multiply", _number("mul"))
    add("floordiv floor_divide", _divide("floordiv"))
    add("div true_divide", _divided)
    add("mod remainder", _divide("mod"))
    for name, more in (("eq", "equal"), ("ne", "not_equal"), ("lt", "less"), ("le", "less_equal")):
        add(f"{name} {more}", _compare(name))
    for name, more in (("gt", "greater"), ("ge", "greater_equal")):
        add(f"{name} {more}", _compare(name))
    for name in ("and", "or", "xor"):
        add(f"{name} r{name} bitwise_{name}", _logic(name, f"bit{name}"))
        add(f"logical_{name}", _logic(name, name))
    add("invert bitwise_not", _invert)
    add("logical_not", lambda paths, a: paths.not_(_as_bool(paths.lift(a), paths)))
    add("neg negative", _alone_number("neg"))
    add("abs absolute", _alone_number("abs"))
    for unchanged in ("pos", "positive", "clone", "contiguous", "detach", "cpu", "cuda"):
        add(unchanged, _same)
    add("minimum min", _number("min"))
    add("maximum max", _number("max"))
    add("where", _where)
    add("clamp clip", _clamp)
    add("bool", lambda paths, a: _as_bool(paths.lift(a), paths))
    add("long int", lambda paths, a: _as_int(paths.lift(a), paths))
    add("to type astype", _cast)
    add("ones_like new_ones", _filled(1))
    add("zeros_like new_zeros", _filled(0))
    add("full_like new_full", _filled(None))
    return made


_HANDLERS = _handlers()


def trace(function: Callable[..., Any]) -> Trace:
    """Returns the recorded operations of a mask function.

    Raises `Untraceable` with the reason if the function cannot be recorded.
    """
    graph = Graph()
    paths = _Paths(graph)
    inputs = [Traced(graph.variable(name), paths) for name in VARIABLES]
    with_tables = rebound(function, paths, {})
    run = _with_torch(lambda: with_tables(*inputs), paths)
    try:
        return paths.all(run)
    except Untraceable:
        raise
    except RecursionError as error:
        raise Untraceable("the calls in the function are nested too deeply (RecursionError)") from error
    except Exception as error:  # a function of the caller may fail in any way on values of the trace
        raise Untraceable(f"the function raises {type(error).__name__} ({error})") from error


def _with_torch(run: Callable[[], Any], paths: _Paths) -> Callable[[], Any]:
    """Returns a function that calls `run` and records the operations of PyTorch's functions and tensors; `run` itself if
    PyTorch is not imported."""
    if "torch" not in sys.modules:
        return run
    from torch.overrides import TorchFunctionMode

    class Record(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            kwargs = kwargs or {}
            if _find((args, kwargs)) is None:
                return func(*args, **kwargs)
            return paths.call(getattr(func, "__name__", "an operation"), args, kwargs)

    def recorded() -> Any:
        with Record():
            return run()

    return recorded


def rebound(value: Any, paths: _Paths, known: dict[int, Any]) -> Any:
    """Returns a copy of a function in which captured lists and NumPy arrays can be indexed with traced values, also in the
    functions inside it."""
    if id(value) in known:
        return known[id(value)]
    if isinstance(value, np.ndarray) and value.ndim:
        made: Any = Table(value, paths)
    elif isinstance(value, (list, tuple)) and value and all(callable(part) for part in value):
        made = type(value)([rebound(part, paths, known) for part in value]) if type(value) in (list, tuple) else value
    elif isinstance(value, (list, tuple)) and value and all(isinstance(part, (int, list, tuple)) for part in value):
        made = Table(value, paths)
    elif isinstance(value, types.FunctionType):
        return _function(value, paths, known)
    else:
        made = value
    known[id(value)] = made
    return made


def _function(value: types.FunctionType, paths: _Paths, known: dict[int, Any]) -> Any:
    """Returns a copy of a function whose captured variables can be indexed with traced values."""
    if value.__module__ and value.__module__.split(".")[0] in ("torch", "numpy", "builtins"):
        return value
    cells = [types.CellType() for _ in value.__closure__ or ()]
    globals_ = dict(value.__globals__)
    made = types.FunctionType(value.__code__, globals_, value.__name__, value.__defaults__, tuple(cells) or None)
    made.__kwdefaults__ = value.__kwdefaults__
    known[id(value)] = made
    for cell, old in zip(cells, value.__closure__ or (), strict=True):
        try:
            held = old.cell_contents
        except ValueError:  # a variable without a value
            continue
        cell.cell_contents = rebound(held, paths, known)
    for name in value.__code__.co_names:
        if name in globals_:
            globals_[name] = rebound(globals_[name], paths, known)
    if value.__defaults__:
        made.__defaults__ = tuple(rebound(part, paths, known) for part in value.__defaults__)
    return made

"""`noren.check` and `noren.recognise`: arrays that somebody else made, diagnosed and said as expressions."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from . import _noren
from ._arrays import Array, library
from ._noren import BoundMask, Error, Facts, Mask, Plan, Shape
from ._views import Cell, Difference

Convention = Literal["keep", "drop", "additive"]
"""What an array's values mean: true may attend, true is ignored, 0 and -inf are added to scores."""

_DECLARED = frozenset({
    "layerkinds", "layertypes", "kinds", "layerkind", "prefix", "prefixlen", "prefixlens", "prefixlength", "prefixlengths",
    "redactions", "redacted", "redact", "hiddenkeys", "redactedkeys", "padtokenid", "padid", "pad", "eostokenid", "eosid", "eos",
    "bostokenid", "bosid", "bos", "clstokenid", "clsid", "specialtokenids", "specialids", "specialtokens", "allspecialids",
    "lengths", "seqlens", "reallengths", "written", "kvwritten", "writtenlen", "cachewritten", "validkvlen", "kvvalidlen",
    "past", "pastlen", "pastlens", "pastlength", "pastlengths", "cachelen", "cachedlen", "queryoffset", "pastkeyvalueslength",
    "promptlen", "promptlens", "promptlength", "promptlengths",
})  # fmt: skip
"""Names, in small letters without marks, whose lists are declarations; lists of other names are arrays beside the mask."""


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong with a mask, or worth knowing."""

    cls: str
    """The class in `noren.check_classes()`."""
    certainty: Literal["possible", "likely", "certain"]
    severity: Literal["note", "warning", "error"]
    says: str
    """A sentence for a tired engineer."""
    wrong_cells: int
    """Number of wrong cells in rows of real queries."""
    first_cells: tuple[Cell, ...]
    repair: str | None
    """What repairs it, as a mask of noren, where there is one."""
    cause: str
    """The line of code that usually causes it."""


@dataclass(frozen=True)
class Question:
    """A question that the declarations leave open."""

    question: str
    """What to answer, and how."""
    readings: tuple[str, ...]
    """The readings that are possible, and what each makes of the mask."""


@dataclass(frozen=True, repr=False, eq=False)
class Report:
    """What `noren.check` found; printing it says it all."""

    verdict: Literal["correct", "faulty", "looks_like", "cannot_tell"]
    """`correct`: every compared cell equals what is declared. `faulty`: a finding is a warning or an error. `looks_like`: no
    kind is declared, the sentence names what the mask resembles. `cannot_tell`: several readings, see `questions`."""
    sentence: str
    """The verdict's reason: against what the mask was held, what it resembles and how many cells it is off, what to declare."""
    compared: int
    """Number of cells compared."""
    questions: tuple[Question, ...]
    """What the declarations leave open."""
    description: str
    """What the mask is, in words."""
    expression: str | None
    """The smallest expression found for the cells, exact or with exceptions."""
    findings: tuple[Finding, ...]
    """What is wrong, the worst first; notes last."""
    classes: tuple[str, ...]
    """The classes of what is wrong, the likeliest first, no class twice."""
    unknown: tuple[str, ...]
    """What could not be decided, and what to declare so that it can."""
    given: Array | None
    """The cells as the mask's consumer reads them: booleans, true may attend, `[batch, heads, q_len, kv_len]`."""
    fixed: Array | None
    """The repaired cells, likewise, where a named mistake explains every wrong cell; equal to `given` where the verdict is
    `correct`; none without a verdict, and where no named mistake explains every wrong cell."""
    expected: Array | None
    """The declared cells, likewise: always with `meant`, else where the given ones differ from them without a known reason."""
    intended: str | None
    """The mask that was meant, as an expression, where it has one."""
    text: str = field(repr=False)

    @property
    def correct(self) -> bool:
        """Whether every compared cell equals what is declared, and nothing else is wrong."""
        return self.verdict == "correct"

    @property
    def faulty(self) -> bool:
        """Whether something is wrong: a warning or an error. A mask without faults need not be correct: see `verdict`."""
        return any(finding.severity != "note" for finding in self.findings)

    @property
    def difference(self) -> Difference | None:
        """The repaired cells, or else the declared ones, beside those given; none where nothing can be compared."""
        name, right = ("fixed", self.fixed) if self.fixed is not None else ("expected", self.expected)
        if self.given is None or right is None or tuple(self.given.shape) != tuple(right.shape):
            return None
        batch, heads, q_len, kv_len = self.given.shape
        shape = Shape.cross(q_len, kv_len, batch=batch, heads=heads)
        bound = [
            _noren.dense(name).bind(shape, Facts(arrays={name: _noren.Array.keep(cells)}))
            for name, cells in ((name, right), ("given", self.given))
        ]
        return Difference(*bound)

    def _repr_svg_(self) -> str | None:
        difference = self.difference
        return difference._repr_svg_() if difference else None

    def __repr__(self) -> str:
        return self.text.rstrip()


@dataclass(frozen=True, repr=False, eq=False)
class Recognised:
    """What `noren.recognise` found."""

    nearest: Mask
    """The nearest expression found: exact where `wrong` is 0."""
    shape: Shape
    """What the expression speaks of: with fewer queries than keys, the queries are the last of them."""
    exceptions: tuple[Cell, ...]
    """The cells that differ from `nearest`, where they are few."""
    wrong: int
    """Number of cells that differ from `nearest`."""
    expression: str
    """The nearest expression in words, with what it leaves out."""
    _cells: Array | None = field(default=None, repr=False)

    @property
    def exact(self) -> bool:
        """Whether `nearest` allows exactly the array's cells; every cell was compared."""
        return self.wrong == 0

    @property
    def mask(self) -> Mask:
        """The expression that allows exactly the array's cells; an `Error` where none was found.

        >>> import numpy as np, noren as nr
        >>> nr.recognise(np.tri(9, dtype=bool), "keep").mask
        causal
        >>> leak = np.tri(9, dtype=bool)
        >>> leak[2, 7] = True
        >>> nr.recognise(leak, "keep").mask
        Traceback (most recent call last):
        noren.Error: no expression was found that allows exactly these cells: the nearest, `causal`, differs in 1 of 81 cells; ...
        >>> nr.recognise(leak, "keep").nearest, nr.recognise(leak, "keep").wrong
        (causal, 1)
        """
        if self.exact:
            return self.nearest
        cells = self.shape.batch * self.shape.heads * self.shape.q_len * self.shape.kv_len
        raise Error(
            f"no expression was found that allows exactly these cells: the nearest, `{self.nearest}`, differs in {self.wrong} "
            f"of {cells} cells; bind() and plan() hold exactly the array's cells, and .nearest is the nearest expression"
        )

    def bind(self) -> BoundMask:
        """Exactly the array's cells: the expression, or where it has exceptions the cells themselves."""
        if self._cells is None:
            return self.nearest.bind(self.shape)
        return _noren.dense("array").bind(self.shape, Facts(arrays={"array": _noren.Array.keep(self._cells)}))

    def plan(self) -> Plan:
        """The plan of `bind()`."""
        return self.bind().plan()

    def __repr__(self) -> str:
        return f"<{self.expression} on {self.shape}>"


def check(
    mask: Array | None = None,
    *,
    meant: BoundMask | Mask | str | None = None,
    facts: Facts | Mapping[str, Any] | None = None,
    **context: Any,
) -> Report:
    """Says what a mask is, what is wrong with it, and repairs it.

    `mask` is the array as it is stored, of NumPy, PyTorch or anything else with `__dlpack__`. What is known about it is
    declared by name: `api="sdpa"`, `convention="keep"` (or `"drop"`, `"additive"`), `kind="causal"` (`"sliding"`,
    `"causal_packed"`, `"prefix_lm"`, ...), `window=`, `past_len=`, `pad_token_id=`, `padding_side=`, `compute_dtype=`, ...
    Arrays given by name stand beside the mask: `input_ids`, `position_ids`, `segment_ids`, `labels`, `hidden`, ...
    `Report.verdict` is `"correct"` only where `kind` or `meant` is given and every compared cell equals it. Without a kind
    the report says what the mask looks like; where several readings are possible, `Report.questions` lists them. Without a
    mask only the arrays beside it are looked at.

    `redactions=[{"batch": 1, "keys": [7], "queries": [8, 9]}]` declares keys that are hidden on purpose; without `batch` in
    all rows, without `queries` from all queries.

    `meant`, the mask that was meant (with `facts`, or bound), leaves nothing to guess. A length x length mask and its mask
    as text are enough: `nr.check(array, meant="causal & sliding(4)", convention="keep")`.

    >>> import numpy as np, noren as nr
    >>> nr.check(np.tril(np.ones((4, 4), bool), 1), api="sdpa", convention="keep", kind="causal").classes
    ('causal_leak',)
    """
    import numpy as np

    declared: dict[str, Any] = {}
    beside: dict[str, Any] = {}
    for name, value in context.items():
        if value is None:
            continue
        if hasattr(value, "__dlpack__") and getattr(value, "shape", None) != ():
            beside[name] = _lent(value)
        elif isinstance(value, (list, tuple)) and re.sub(r"[-_. ]", "", name).lower() not in _DECLARED:
            beside[name] = np.asarray(value)
        else:
            declared[name] = _plain(value)
    fields, classes, text, (given, fixed, expected) = _noren.check(
        None if mask is None else _lent(mask), beside, json.dumps(declared), _bound(meant, facts, mask)
    )
    found = json.loads(fields)
    questions = tuple(Question(q["question"], tuple(q["readings"])) for q in found.pop("open"))
    findings = tuple(
        Finding(cls=f.pop("class"), first_cells=tuple(map(_cell, f.pop("first_cells"))), **f) for f in found.pop("findings")
    )
    return Report(
        findings=findings,
        questions=questions,
        classes=tuple(classes),
        unknown=tuple(found.pop("unknown")),
        given=_array(given, mask),
        fixed=_array(fixed, mask),
        expected=_array(expected, mask),
        text=text,
        **found,
    )


def check_classes() -> dict[str, tuple[str, str]]:
    """Every class of mistakes that `check` knows: what it is, and what usually causes it."""
    return {name: (says, cause) for name, says, cause in _noren.classes()}


def recognise(array: Array, convention: Convention | None = None) -> Recognised:
    """The smallest expression for the cells of a dense mask.

    The array is `[q_len, kv_len]`, `[batch, q_len, kv_len]` or `[batch, heads, q_len, kv_len]`. `convention` gives the
    meaning of booleans: `"keep"` (true may attend) or `"drop"` (true is ignored); floats are `"additive"`. `Recognised.mask`
    is the expression, compared with every cell; where none is exact it raises an `Error`, `Recognised.nearest` is the nearest
    with the number of differing cells, and `Recognised.bind()` and `plan()` hold exactly the array's cells.

    >>> import numpy as np, noren as nr
    >>> nr.recognise(np.tri(6, dtype=bool) & ~np.tri(6, k=-3, dtype=bool), "keep").mask
    sliding(3)
    """
    lent = _lent(array)
    if convention is None:
        if "float" not in str(array.dtype):
            raise TypeError(
                f"an array of {array.dtype} does not say what its values mean: give convention=\"keep\" (true may attend) or "
                '"drop" (true is ignored)'
            )
        convention = "additive"
    mask, shape, exceptions, wrong, words, cells = _noren.recognise(lent, convention)
    kept = None if wrong == 0 else _array(cells, None)
    return Recognised(mask, shape, tuple(map(_cell, exceptions)), wrong, words, kept)


def _cell(given: list[int]) -> Cell:
    batch, head, q, k = given
    return batch, head, q, k


def _lent(array: Array) -> Any:
    import numpy as np

    if isinstance(array, (list, tuple)):
        array = np.asarray(array)
    if isinstance(array, np.ndarray):
        if array.dtype.name == "bfloat16":
            return array.astype(np.float32)
        if array.dtype == object:
            raise TypeError("the array holds Python objects: give booleans, integers or floats")
        return array if array.dtype.isnative and array.flags.writeable else np.array(array, array.dtype.newbyteorder("="))
    return array.detach() if hasattr(array, "detach") else array


def _array(cells: tuple[list[int], bytearray] | None, like: Array | None) -> Array | None:
    """Booleans of the same library."""
    if cells is None:
        return None
    import numpy as np

    dims, data = cells
    array = np.frombuffer(data, np.bool_).reshape(dims)
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(like, torch.Tensor):
        return torch.from_numpy(array)
    return array if like is None else library(like).finish(array, like)


def _bound(
    meant: BoundMask | Mask | str | None, facts: Facts | Mapping[str, Any] | None, mask: Array | None
) -> BoundMask | None:
    if meant is None or isinstance(meant, BoundMask):
        return meant
    dims = tuple(getattr(mask, "shape", ()))
    if len(dims) not in (2, 4) or dims[-1] != dims[-2]:
        raise Error(
            f"the mask that was meant cannot be bound to an array of shape {dims}: where the queries stand is not known; give "
            "meant=mask.bind(Shape(q_len, kv_len, query_offset=...))"
        )
    batch, heads = dims[:2] if len(dims) == 4 else (1, 1)
    return Mask(meant).bind(Shape.square(dims[-1], batch=batch, heads=heads), facts)


def _plain(value: Any) -> Any:
    """What JSON can hold of a declaration."""
    if isinstance(value, (str, bool, int, float)):
        return value
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, (range, set, frozenset)):
        return sorted(value)
    if hasattr(value, "tolist"):
        return value.tolist()
    return value.item() if hasattr(value, "item") else str(value)

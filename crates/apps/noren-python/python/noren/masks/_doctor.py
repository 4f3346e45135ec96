"""`noren.check`, the diagnosis of mask arrays from other programs, and `noren.recognise`, which finds expressions for mask
arrays."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from .. import _noren
from .._noren import BoundMask, Error, Facts, Mask, Plan, Shape, Spec
from ..arguments._arrays import Array, library
from ..arguments._given import is_sparse, refuse_pairs
from ._views import MOST_CELLS, Cell, Difference

Convention = Literal["keep", "drop", "additive"]
"""The meaning of the values in a mask array. "keep": true may attend. "drop": true is ignored. "additive": values are added to
scores, and -inf hides a cell."""

_DECLARED = frozenset({
    "layer_types", "prefix_len", "redactions", "pad_token_id", "eos_token_id", "bos_token_id", "special_token_ids", "lengths", "kv_written",
    "past_len", "prompt_len",
})  # fmt: skip
"""Arguments of `noren.check` for which a list is a declaration. A list for any other argument is read as an array that belongs to
the mask."""


@dataclass(frozen=True)
class Finding:
    """One statement of the report about a mask: a mistake, or a note."""

    cls: str
    """The name of the class of mistakes to which the finding belongs. docs/doctor.md describes the classes."""
    certainty: Literal["possible", "likely", "certain"]
    """The degree of certainty that the finding is a mistake and not intended."""
    severity: Literal["note", "warning", "error"]
    """The severity of the mistake; a finding with the severity "note" does not make the mask faulty."""
    says: str
    """The finding in one sentence."""
    wrong_cells: int
    """Number of wrong cells in rows of non-padding queries."""
    first_cells: tuple[Cell, ...]
    """Up to 8 of the wrong cells, in ascending order."""
    repair: str | None
    """The repaired mask as an expression, which allows exactly its cells. None if no repair is known, or if the finding is not about
    the cells of the mask."""
    cause: str
    """The line of code that usually causes a mistake of this class."""


@dataclass(frozen=True)
class Question:
    """A question that decides the verdict. The caller answers it by a further declaration (an argument of `noren.check`)."""

    question: str
    """The question as text, with the declaration (an argument of `noren.check`) that answers it."""
    readings: tuple[str, ...]
    """The possible meanings of the array, each with the mask that results from this meaning."""


@dataclass(frozen=True, repr=False, eq=False)
class Report:
    """The result of `noren.check`; `print` shows all of it."""

    verdict: Literal["correct", "faulty", "looks_like", "cannot_tell"]
    """`correct`: every compared cell equals the declared mask. `faulty`: at least one finding is a warning or an error.
    `looks_like`: the caller declared no mask, and `sentence` names the mask that the array resembles. `cannot_tell`: the array
    has several possible meanings; `questions` lists them."""
    sentence: str
    """The reason for the verdict: the mask with which the array was compared, the number of differing cells, and what to declare."""
    compared: int
    """Number of cells that were compared with the declared mask."""
    questions: tuple[Question, ...]
    """The questions that the given declarations do not answer."""
    description: str
    """A description of the mask in words."""
    expression: str | None
    """The smallest expression found for the cells, exact or with exceptions."""
    findings: tuple[Finding, ...]
    """The findings: errors first, then warnings, then notes."""
    classes: tuple[str, ...]
    """The classes of all findings except notes, without repeats, in the order of `findings`."""
    unknown: tuple[str, ...]
    """The properties of the mask that could not be decided, with the declarations (arguments of `noren.check`) that would
    decide them."""
    given: Array | None
    """The cells of the checked array as the declared API reads them: booleans, true may attend, `[batch, heads, q_len, kv_len]`."""
    fixed: Array | None
    """The correct cells, in the form of `given`. If the cells are right, they equal `given`. None if there is no verdict, if no named
    mistake explains every wrong cell, or if the correct cells depend on a declaration that is missing."""
    expected: Array | None
    """The cells of the declared mask, in the form of `given`. They are given if `meant` was declared, or if the array differs
    from the declared mask for an unknown reason; otherwise None."""
    intended: str | None
    """The declared mask as an expression; None if no expression is available."""
    text: str = field(repr=False)
    """The printed report."""

    @property
    def correct(self) -> bool:
        """True if every compared cell equals the declared mask and nothing else is wrong."""
        return self.verdict == "correct"

    @property
    def faulty(self) -> bool:
        """True if at least one finding is a warning or an error. False does not mean that the mask is correct: see
        `verdict`."""
        return any(finding.severity != "note" for finding in self.findings)

    @property
    def difference(self) -> Difference | None:
        """The cells in which the given mask differs from the repaired mask.

        If there is no repaired mask, these are the cells in which the given mask differs from the declared mask. None if there
        is neither a repaired nor a declared mask.
        """
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
    """The result of `noren.recognise`."""

    nearest: Mask
    """The expression whose cells differ least from those of the array, among all that were tried. It is exact if `wrong` is 0."""
    shape: Shape
    """The shape for which the expression was found. If the array has fewer queries than keys, the queries are at the last
    positions of the keys."""
    exceptions: tuple[Cell, ...]
    """The cells of the array that differ from `nearest`, if there are only a few."""
    wrong: int
    """Number of cells of the array that differ from `nearest`."""
    expression: str
    """The nearest expression with its exceptions, as a text."""
    _cells: Array | None = field(default=None, repr=False)

    @property
    def exact(self) -> bool:
        """True if `nearest` allows exactly the cells that the array allows; every cell was compared."""
        return self.wrong == 0

    @property
    def mask(self) -> Mask:
        """The expression that allows exactly the array's cells. Raises `Error` if none was found.

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
        """Returns a bound mask with exactly the cells of the array. Its mask is the expression if the expression is exact, else
        the array itself."""
        if self._cells is None:
            return self.nearest.bind(self.shape)
        return _noren.dense("array").bind(self.shape, Facts(arrays={"array": _noren.Array.keep(self._cells)}))

    def plan(self) -> Plan:
        """Returns the block-sparse plan of the bound mask that `bind()` returns."""
        return self.bind().plan()

    def __repr__(self) -> str:
        return f"<{self.expression} on {self.shape}>"


def check(
    mask: Array | None = None,
    *,
    meant: BoundMask | Mask | Spec | str | None = None,
    facts: Facts | Mapping[str, Any] | None = None,
    **context: Any,
) -> Report:
    """Diagnoses a mask array: names the mask, finds mistakes, and repairs them.

    `mask` is the array as it is stored, of NumPy, PyTorch or another library with `__dlpack__`; `[length, length]`,
    `[batch, q_len, kv_len]`, `[batch, heads, q_len, kv_len]` or a padding mask `[batch, length]`. Keyword arguments declare its
    properties: `api="sdpa"`, `convention="keep"` (or `"drop"`, `"additive"`), `kind="causal"` (`"sliding"`, `"causal_packed"`,
    `"prefix_lm"`, ...), `window=`, `past_len=`, `pad_token_id=`, `padding_side=`, `compute_dtype=`, ... Arrays that belong to
    the mask are keyword arguments too: `input_ids`, `position_ids`, `segment_ids`, `labels`, `hidden`, ... Without a mask, only
    these arrays are checked.

    `Report.verdict` is `"correct"` only if `kind` or `meant` declares a mask and every compared cell equals this mask. Without a
    declared mask, the report names the mask that the array resembles. If several readings are possible, `Report.questions` lists
    them.

    `redactions=[{"batch": 1, "keys": [7], "queries": [8, 9]}]` declares keys that are hidden on purpose. Without `"batch"`, they
    are hidden in all batch rows; without `"queries"`, from all queries.

    `meant` is the intended mask, with `facts`, or bound: `nr.check(array, meant="causal & sliding(4)", convention="keep")`. Fewer
    queries than keys are the last tokens, unless `past_len` is declared. Rows of padding queries are not compared.

    Raises `noren.Error` for a declaration with an unknown word, and for shapes that contradict the declarations. A faulty mask
    is not an error.

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
        elif isinstance(value, (list, tuple)) and name not in _DECLARED:
            beside[name] = np.asarray(value)
        else:
            if "redact" in name.lower():
                refuse_pairs(name, value)
            declared[name] = value
    lengths = facts.get("lengths") if isinstance(facts, Mapping) else None
    batch = None if lengths is None else len(lengths)
    fields, classes, text, (given, fixed, expected) = _noren.check(
        None if mask is None else _lent(mask), beside, json.dumps(declared, default=_plain), meant, facts, batch
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


def recognise(array: Array, convention: Convention | None = None) -> Recognised:
    """Finds the smallest expression for the cells of a dense mask.

    The array is `[q_len, kv_len]`, `[batch, q_len, kv_len]` or `[batch, heads, q_len, kv_len]`. `convention` gives the
    meaning of booleans: `"keep"` (true may attend) or `"drop"` (true is ignored); floats are `"additive"`.

    `Recognised.mask` is the expression, which was compared with every cell of the array. If no exact expression was found,
    `Recognised.mask` raises `Error`, `Recognised.nearest` is the nearest expression, and `Recognised.wrong` is the number of
    cells in which it differs. `Recognised.bind()` and `plan()` always hold exactly the array's cells.

    Raises TypeError if the array does not hold floats and no convention is given.

    >>> import numpy as np, noren as nr
    >>> nr.recognise(np.tri(6, dtype=bool) & ~np.tri(6, k=-3, dtype=bool), "keep").mask
    sliding(3)
    """
    lent = _lent(array)
    if convention is None:
        if "float" not in str(array.dtype):
            raise TypeError(
                f"the meaning of an array of {array.dtype} is not given: give convention=\"keep\" (true may attend) or "
                '"drop" (true is ignored)'
            )
        convention = "additive"
    dimensions = tuple(getattr(lent, "shape", (1, 1)))
    if len(dimensions) not in (2, 3, 4) or 0 in dimensions:
        raise Error(
            f"an array of shape {list(dimensions)} is not a mask: give [q_len, kv_len], [batch, q_len, kv_len] or [batch, heads, q_len, "
            "kv_len], without a dimension of length 0"
        )
    four = lent[:, None] if len(dimensions) == 3 else lent
    mask, shape, exceptions, wrong, words, cells = _noren.recognise(four, convention)
    kept = None if wrong == 0 else _array(cells, None)
    return Recognised(mask, shape, tuple(map(_cell, exceptions)), wrong, words, kept)


def _cell(given: list[int]) -> Cell:
    batch, head, q, k = given
    return batch, head, q, k


def _lent(array: Array) -> Any:
    import numpy as np

    if is_sparse(array):
        if math.prod(array.shape) > MOST_CELLS:
            raise Error(f"the sparse matrix has {list(array.shape)} cells, and at most {MOST_CELLS} are read: give nr.Array.keep(matrix) as a fact of nr.dense(name)")
        array = array.toarray() if hasattr(array, "toarray") else array.to_dense()
    if isinstance(array, (list, tuple)):
        array = np.asarray(array)
    if isinstance(array, np.ndarray):
        if array.dtype.name == "bfloat16":
            return array.astype(np.float32)
        if array.dtype == object:
            raise TypeError("the array holds Python objects instead of numbers: give booleans, integers or floats")
        return array if array.dtype.isnative and array.flags.writeable else np.array(array, array.dtype.newbyteorder("="))
    return array.detach() if hasattr(array, "detach") else array


def _array(cells: tuple[list[int], bytearray] | None, like: Array | None) -> Array | None:
    """Converts `cells`, a pair (sizes, one byte for each cell), to a boolean array in the library of the array `like`. Returns
    None if `cells` is None."""
    if cells is None:
        return None
    import numpy as np

    dims, data = cells
    array = np.frombuffer(data, np.bool_).reshape(dims)
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(like, torch.Tensor):
        return torch.from_numpy(array)
    return array if like is None else library(like).finish(array, like)


def _plain(value: Any) -> Any:
    """Converts the value of a declaration to a value that JSON can hold."""
    if isinstance(value, (range, set, frozenset)):
        return sorted(value)
    return value.tolist() if hasattr(value, "tolist") else str(value)

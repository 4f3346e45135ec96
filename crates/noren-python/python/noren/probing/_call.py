"""One call of a function under test, its answer, and its failure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

from ._reference import Bools, Floats

ROUTES = {
    "keep": "array, true may attend",
    "drop": "array, true is ignored",
    "additive": "array of 0 and -inf that is added to the scores",
    "mask_mod": "function of indices",
    "block_mask": "BlockMask",
    "mask_function": "mask function of transformers",
    "attention_mask": "attention_mask of a batch, 1 for tokens and 0 for padding",
}
"""The forms in which a function may take a mask of given cells, with their descriptions."""


@dataclass(frozen=True)
class Call:
    """The arguments of one call, independent of the names and layouts that the function under test uses."""

    q: Floats
    """`[batch, heads, q_len, head_dim]`, already rounded to `dtype`."""
    k: Floats
    """`[batch, kv_heads, kv_len, head_dim]`, already rounded to `dtype`."""
    v: Floats
    """`[batch, kv_heads, kv_len, head_dim]`, already rounded to `dtype`."""
    dtype: str = "float32"
    route: str | None = None
    """The form of the mask, a key of `ROUTES`; None: no mask of given cells."""
    cells: Bools | None = None
    """The mask, true where a query may read a key; each of the four dimensions is 1 or has its full size."""
    causal: bool = False
    """True to set the flag for a causal mask."""
    window: tuple[int, int] | None = None
    """The number of keys before and after the query that it may read, besides the key at its own position."""
    bias: Floats | None = None
    """Numbers to be added to the scores; broadcasts to `[batch, heads, q_len, kv_len]`."""
    scale: float | None = None
    softcap: float | None = None
    sinks: Floats | None = None
    """`[heads]`: a logit of each head that is added to the denominator only."""
    lse: bool = False
    """True to request the log-sum-exp."""
    blocks: Bools | None = None
    """`[batch, heads, q_blocks, kv_blocks]`: true for the blocks in the block lists; the mask function of the lists allows all."""
    full_blocks: bool = False
    """True to give the blocks in the lists of full blocks, false to give them in the lists of partial blocks."""

    @property
    def heads(self) -> int:
        return int(self.q.shape[1])

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """The shape `[batch, heads, q_len, kv_len]` of the scores."""
        return (self.q.shape[0], self.q.shape[1], self.q.shape[2], self.k.shape[2])

    def row(self, index: int) -> Call:
        """Returns the call for one batch row only."""
        at = slice(index, index + 1)
        cells = self.cells if self.cells is None or self.cells.shape[0] == 1 else self.cells[at]
        return replace(self, q=self.q[at], k=self.k[at], v=self.v[at], cells=cells)


@dataclass(frozen=True)
class Answer:
    """The results of a call, as arrays of float64."""

    out: Floats
    """`[batch, heads, q_len, head_dim]`."""
    lse: Floats | None = None
    """`[batch, heads, q_len]`; None if the log-sum-exp was not requested."""
    grads: tuple[Floats | None, ...] = ()
    """Gradients of queries, keys and values; None for an input without gradient. Empty if no gradients were requested."""
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Failure:
    """A call without a usable result."""

    text: str
    """The exception, or a description of the unusable result."""
    refused: bool
    """True if the function raised an exception; false if its result cannot be used or the call could not be prepared."""
    warnings: tuple[str, ...] = ()


class Unusable(Exception):
    """The result of a function cannot be used: its type, shape or number type is wrong."""


class Unprepared(Exception):
    """The arguments of a call cannot be made, for example because a device or a number type is not available."""


class Adapter(Protocol):
    """The interface of a function under test."""

    name: str
    takes: frozenset[str]
    """The names of the features that the function takes: routes of masks, and `causal`, `window`, `bias`, `scale`, `softcap`,
    `sinks`, `lse`, `blocks`, `gradients`, `head_masks` (masks that differ between heads)."""
    alignment: str | None
    """The documented position of the causal flag if `q_len` differs from `kv_len`: `"top-left"`, `"bottom-right"`, or None if it is not
    documented."""
    lse_base: str
    """The documented base of the log-sum-exp: `"e"` or `"2"`."""
    causal_window: bool
    """True if the window hides the keys after the query, so that its right side is always 0."""
    assumptions: tuple[str, ...]
    """Sentences about the meaning of arguments that was assumed from their names."""
    versions: dict[str, str]

    def run(self, call: Call, cotangent: Floats | None) -> Answer:
        """Returns the answer of the function. Gradients are computed if `cotangent`, the gradient of the output, is given."""
        ...

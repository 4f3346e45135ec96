"""The interface of functions under test: one call, its results or its failure, and the adapter that makes the call."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

from ._reference import Bools, Floats

ROUTES = {
    "keep": "mask array of booleans in which true means that the query may attend to the key",
    "mask_mod": "mask function of FlexAttention: returns true for (batch row, head, query, key) that may be read",
    "block_mask": "BlockMask of FlexAttention",
    "mask_function": "mask function of transformers: returns true for (batch row, head, query, key) that may be read",
    "drop": "mask array of booleans in which true means that the key is ignored",
    "additive": "mask array of 0 and -inf that is added to the scores",
    "attention_mask": "attention_mask [batch, length], 1 for tokens and 0 for padding",
}
"""The forms in which a function may accept a mask, such as arrays and mask functions, in the order in which they are tested: the
name of each form, and its description."""


@dataclass(frozen=True)
class Call:
    """The arguments of one call. They do not depend on the names and layouts that the function under test uses."""

    q: Floats
    """`[batch, heads, q_len, head_dim]`, already rounded to `dtype`."""
    k: Floats
    """`[batch, kv_heads, kv_len, head_dim]`, already rounded to `dtype`."""
    v: Floats
    """`[batch, kv_heads, kv_len, head_dim]`, already rounded to `dtype`."""
    dtype: str = "float32"
    route: str | None = None
    """The form in which the mask `cells` is given: a key of `ROUTES`. None if `cells` is None."""
    cells: Bools | None = None
    """The mask `[batch, heads, q_len, kv_len]`, true where a query may read a key; each dimension may also be 1. None if the
    call has no mask."""
    causal: bool = False
    """True to set the flag for a causal mask."""
    window: tuple[int, int] | None = None
    """The window: how many keys a query may read (before, after) the key at its position. None: no window."""
    bias: Floats | None = None
    """Numbers to be added to the scores; broadcasts to `[batch, heads, q_len, kv_len]`."""
    scale: float | None = None
    softcap: float | None = None
    sinks: Floats | None = None
    """`[heads]`: the sink of each head, a logit that is added to the denominator of the softmax and has no value. None: no
    sinks."""
    lse: bool = False
    """True to request the log-sum-exp."""
    blocks: Bools | None = None
    """`[batch, heads, q_blocks, kv_blocks]`: true for the blocks in the block lists; the mask function that is given with the
    lists allows every cell. None: no block lists."""
    full_blocks: bool = False
    """True to pass the blocks as full blocks; false to pass them as partial blocks."""

    @property
    def heads(self) -> int:
        return int(self.q.shape[1])

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """Returns the shape `[batch, heads, q_len, kv_len]` of the scores."""
        return (self.q.shape[0], self.q.shape[1], self.q.shape[2], self.k.shape[2])

    def row(self, index: int) -> Call:
        """Returns the call for the batch row `index` alone."""
        at = slice(index, index + 1)
        cells = self.cells if self.cells is None or self.cells.shape[0] == 1 else self.cells[at]
        return replace(self, q=self.q[at], k=self.k[at], v=self.v[at], cells=cells)


@dataclass(frozen=True)
class Answer:
    """The results of one call of the function under test, as arrays of float64."""

    out: Floats
    """The output `[batch, heads, q_len, head_dim]`."""
    lse: Floats | None = None
    """The log-sum-exp `[batch, heads, q_len]`; None if it was not requested."""
    grads: tuple[Floats | None, ...] = ()
    """Gradients of queries, keys and values; None for an input without gradient. Empty if no gradients were requested."""
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Failure:
    """A call of the function under test that gave no usable result."""

    text: str
    """The message of the exception, or a description of the unusable result."""
    refused: bool
    """True if the function raised an exception; false if its result cannot be used or the call could not be prepared."""
    warnings: tuple[str, ...] = ()


class Unusable(Exception):
    """Raised if the result of a function cannot be used, because its type, shape or number type is wrong."""


class Unprepared(Exception):
    """Raised if the arguments of a call cannot be made, for example because a device or a number type is not available."""


class Adapter(Protocol):
    """The interface through which the probe calls a function under test."""

    name: str
    takes: frozenset[str]
    """The names of the features that the function accepts: forms of masks (keys of `ROUTES`), and `causal`, `window`, `bias`,
    `scale`, `softcap`, `sinks`, `lse`, `blocks`, `gradients`, `gqa` (fewer key-value heads than query heads), `head_masks`
    (masks that differ between heads)."""
    alignment: str | None = None
    """The alignment of the causal mask that the function's documentation states, for calls in which `q_len` differs from
    `kv_len`: `"top-left"` (the first query reads only the first key), `"bottom-right"` (the last query reads all keys), or None
    if it states none."""
    lse_base: str = "e"
    """The base of the log-sum-exp that the function's documentation states: `"e"` or `"2"`."""
    causal_window: bool = False
    """True if the function's window always hides the keys after the query, so that only windows (keys before, 0) can be given."""
    assumptions: tuple[str, ...] = ()
    """Sentences for the report, one for each argument whose meaning was assumed from the argument's name."""
    versions: dict[str, str]

    def run(self, call: Call, cotangent: Floats | None) -> Answer:
        """Calls the function and returns its results. Gradients are computed if `cotangent`, the gradient of the output, is not
        None."""
        ...

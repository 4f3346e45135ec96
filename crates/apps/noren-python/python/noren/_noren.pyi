"""The extension module, written in Rust: masks, facts, plans, attention, diagnosis, flow and partitions."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, final

import numpy as np
from numpy.typing import NDArray

from .masks._flow import Cut, Path, Ruling
from .masks._views import Cell, Difference, Equivalence, Explanation, Stats

__version__: str

HIDES: float
"""The largest number that hides a cell of a mask array whose numbers are added to scores."""

Positions = int | range | slice | str | Iterable[int | range | slice | str]
Arms = Mapping[Any, Mask | str] | Iterable[tuple[Any, Mask | str]]
Tokens = Sequence[str] | tuple[Sequence[str], Sequence[str]] | None
Known = Facts | Mapping[str, Any] | None
Order = Literal["auto", "never", "always", "copies"] | int | None

class Error(ValueError):
    """The error for an invalid mask, fact, array or option. The message gives the value, the expected values and the fix."""

class ParseError(Error):
    """The error for a text that is not a mask. The message shows the text and marks the position of the error."""

class ExportError(Error):
    """The error for a mask that the format of another system cannot express.

    The message names the part of the mask that the format cannot hold.
    """

@final
class Mask:
    """A set of allowed (query, key) cells as an expression, without sizes. Masks with equal expressions are equal and have the
    same hash. Masks can be printed and pickled.

    The other operand may be the text of a mask. `a & b` allows the cells that both masks allow, `a | b` the cells that at least one mask allows, `a - b` the cells that `a`
    allows and `b` does not, `~a` the cells that `a` does not allow. `mask + score` is a `Spec`. `Mask(text)` parses a text and
    raises `ParseError` if the text is not a mask.
    """

    def __new__(cls, text: Mask | str) -> Mask: ...
    def __and__(self, other: Mask | str) -> Mask: ...
    def __or__(self, other: Mask | str) -> Mask: ...
    def __sub__(self, other: Mask | str) -> Mask: ...
    def __rand__(self, other: str) -> Mask: ...
    def __ror__(self, other: str) -> Mask: ...
    def __rsub__(self, other: str) -> Mask: ...
    def __add__(self, score: Score | str) -> Spec: ...
    def __invert__(self) -> Mask: ...
    def __hash__(self) -> int: ...
    def bind(self, shape: Shape | int, facts: Known = None) -> BoundMask:
        """Returns the mask with a shape and facts (data such as lengths and documents), after checking that they fit each other.

        `shape` is a `Shape`, or one integer: the number of queries and of keys, with one batch row and one head. Raises `Error`
        if a fact is missing, does not fit the shape, or is read by no part of the mask.
        """
    def plan(
        self, shape: Shape | int, facts: Known = None, *, block_q: int = 96, block_kv: int = 64, reorder: Order = None
    ) -> Plan:
        """Returns the block-sparse plan that attention and exports use; the arguments and errors are those of `bind`.

        `block_q` is the maximum number of query rows in a tile. `block_kv` is the number of keys in a tile, for the counts of
        tiles in `stats`. `reorder` selects the order of queries and keys in the plan:

        - `"auto"` [default]: another order for masks whose distances are all multiples of one number. For all other masks,
          another order only if it reduces the cost: by at least 1/8 and 2^20 cells if it changes the order in which the keys of
          a row are added
        - `"never"`: the order of indices
        - `"always"`: another order for every mask whose structure allows one, even if it saves no cost
        - `"copies"`: the list of keys contains each key twice, first in the order of indices, then sorted by their position
          modulo the stride, for masks that combine a stride with other masks; a query row reads each key at one of the two
          places
        - an integer `n`: positions sorted by `position mod n`; with 2, all even positions come before all odd ones
        """
    def dense(self, shape: Shape | int, facts: Known = None) -> NDArray[np.bool_]:
        """Returns the cells `[batch, heads, q_len, kv_len]` as booleans. True means that the query may read the key."""
    def explain(
        self, q: int, k: int, shape: Shape | int, facts: Known = None, *, batch: int = 0, head: int = 0
    ) -> Explanation:
        """Returns the reason why query row `q` may or may not read key `k` (indices from 0), for the whole mask and for each of
        its subexpressions.
        """
    def diff(self, other: Mask | str, shape: Shape | int, facts: Known = None) -> Difference:
        """Returns the cells that only this mask or only `other` allows."""
    def plot(
        self,
        shape: Shape | int,
        facts: Known = None,
        *,
        ax: Any = None,
        batch: int = 0,
        head: int = 0,
        tokens: Tokens = None,
        tiles: bool | tuple[int, int] = False,
        weights: Any = None,
    ) -> Any:
        """Draws the cells of one batch row and head with matplotlib, and returns the axes.

        `ax` are the axes [default: new ones]. `tokens` are the names of the tokens, or a pair of the names of queries and of
        keys. `tiles` is the size (rows, keys) of tiles whose outlines are drawn; True means (96, 64). `weights` are attention
        weights, `[q_len, kv_len]` or `[batch, heads, q_len, kv_len]`, drawn as a heat map in which denied cells are grey. Raises
        `Error` for more than 2^24 cells.
        """
    def stats(self, shape: Shape | int, facts: Known = None) -> Stats:
        """Returns exact counts of allowed and computed cells, tiles and bytes."""
    def picture(
        self,
        shape: Shape | int | None = None,
        facts: Known = None,
        *,
        labels: Sequence[str] | None = None,
        width: int = 100,
        height: int = 48,
        color: bool = False,
    ) -> str:
        """Returns a picture as text: one row for each query, one column for each key.

        `labels` are names of tokens, one for each position. `width` and `height` are the maximum number of characters and lines;
        a larger mask is down-sampled. `color` adds ANSI colours.
        """
    def _repr_svg_(self) -> str | None: ...
    def uses_query_offset(self) -> bool:
        """Returns true if the query offset (position of the first query) may change the cells. The result is false for masks of
        only `full`, `padding`, `keys` and `dense`."""
    def simplify(self) -> Mask:
        """Returns a canonical form that allows the same cells."""
    def equivalent(self, other: Mask | str) -> Equivalence:
        """Compares the cells of two masks at every length. The result states one of three: equality was proved, a differing
        cell was found, or neither."""
    def at_layer(self, layer: int) -> Mask:
        """Returns the mask of the layer with index `layer`, counted from 0. A mask without `layers(...)` is returned
        unchanged."""
    @property
    def has_layers(self) -> bool:
        """True if the mask contains `layers(...)`. Before such a mask can be bound, select a layer with `at_layer`."""

@final
class Score:
    """A score modifier: a change of attention scores other than the mask, such as `alibi` or `softcap(30)`."""

    def __new__(cls, text: str) -> Score: ...
    def __hash__(self) -> int: ...
    @property
    def kind(self) -> Literal["bias", "relative", "alibi", "softcap", "soft", "sinks"]:
        """The kind of modifier: the name of the function that creates the modifier, such as "bias" or "alibi"."""
    @property
    def name(self) -> str | None:
        """The name of the modifier's array; `None` for `alibi` and `softcap`."""
    @property
    def slopes(self) -> list[float] | None:
        """The slopes of `alibi`, one for each head; `None` for default slopes and for other modifiers."""
    @property
    def cap(self) -> float | None:
        """The limit of `softcap`; None for other modifiers."""

@final
class Spec:
    """A mask with score modifiers: `mask + score + ...`."""

    def __new__(cls, text: str) -> Spec: ...
    def __add__(self, score: Score | str) -> Spec: ...
    def uses_query_offset(self) -> bool:
        """Returns true if the query offset (position of the first query) may change the cells or the scores."""
    def __hash__(self) -> int: ...
    @property
    def mask(self) -> Mask:
        """The mask without the score modifiers."""
    @property
    def scores(self) -> list[Score]:
        """The score modifiers in the order of the expression."""

@final
class Shape:
    """The numbers of batch rows, heads, queries and keys to which a mask is bound, and the position of the first query.

    `query_offset` is the position of the first query: one number, or a list with one number for each batch row. It must be
    given if `q_len` and `kv_len` differ. `kv_heads` is the number of key-value heads [default: `heads`] and divides `heads`.
    Raises `Error` for sizes that contradict each other.
    """

    def __new__(
        cls,
        q_len: int,
        kv_len: int,
        *,
        query_offset: int | Sequence[int] | None = None,
        batch: int = 1,
        heads: int = 1,
        kv_heads: int | None = None,
    ) -> Shape: ...
    @staticmethod
    def square(len: int, *, batch: int = 1, heads: int = 1, kv_heads: int | None = None) -> Shape:
        """Returns the shape of self-attention: `len` queries and `len` keys in each batch row."""
    @staticmethod
    def cached(past: int, new: int, *, batch: int = 1, heads: int = 1, kv_heads: int | None = None) -> Shape:
        """Returns the shape of a step with a key-value cache. It has `new` queries and `past + new` keys; the queries are the
        same tokens as the last `new` keys."""
    @staticmethod
    def cross(q_len: int, kv_len: int, *, batch: int = 1, heads: int = 1, kv_heads: int | None = None) -> Shape:
        """Returns the shape of cross-attention, in which queries and keys are different sequences. The first query and the
        first key have position 0."""
    @staticmethod
    def from_json(text: str) -> Shape:
        """Reads a shape from the JSON of `to_json`. Raises `Error` for any other text."""
    def to_json(self) -> str:
        """Returns the shape as JSON."""
    def __hash__(self) -> int: ...
    @property
    def batch(self) -> int:
        """The number of batch rows."""
    @property
    def heads(self) -> int:
        """The number of query heads."""
    @property
    def kv_heads(self) -> int:
        """The number of key-value heads. Each is shared by `heads / kv_heads` query heads."""
    @property
    def q_len(self) -> int:
        """The number of queries in a batch row."""
    @property
    def kv_len(self) -> int:
        """The number of keys in a batch row."""
    @property
    def query_offsets(self) -> list[int]:
        """The position of the first query of each batch row."""

@final
class Facts:
    """The data that a mask needs: `lengths`, `documents`, `labels`, `levels`, `positions`, `arrays`, ... (docs/facts.md).

    Each fact is a keyword argument with its name. Values are numbers, texts, lists, ranges or arrays; `labels` and `arrays` are
    dicts of such values by name. Raises `Error` for unknown, invalid or contradictory facts, and TypeError for values of other
    types.
    """

    def __new__(cls, **facts: Any) -> Facts: ...
    @staticmethod
    def from_json(text: str, arrays: Mapping[str, Array] | None = None) -> Facts:
        """Reads facts from a JSON object; `arrays` has mask arrays to add, by name; `dense(name)` uses the array with this
        name. Raises `Error` for unknown facts and invalid values.
        """
    def to_json(self) -> str:
        """Returns the facts as JSON."""
    def used_by(self, mask: Mask | str) -> Facts:
        """Returns only the facts that `mask` reads. A mask cannot be bound with other facts, because a fact without effect is a
        mistake: lengths beside a mask without `padding` leave padding visible."""
    def merged(self, other: Facts) -> Facts:
        """Returns the union of these facts and `other`. Raises `Error` if both contain the same fact with different values."""
    @property
    def place_keys(self) -> bool:
        """True if the facts give the position of each key (`positions`)."""

@final
class Array:
    """A mask as an array of cells. It is given as a fact, `Facts(arrays={name: ...})`, and used by the elementary mask
    `dense(name)`."""

    @staticmethod
    def keep(array: Any) -> Array:
        """Reads an array in which true (or 1) means "may attend", `[q_len, kv_len]` or `[batch, heads, q_len, kv_len]`, or a sparse
        matrix of booleans `[q_len, kv_len]` of PyTorch or SciPy."""
    @staticmethod
    def drop(array: Any) -> Array:
        """Reads an array in which true (or 1) means "ignored". It has one of the shapes that `keep` accepts."""
    @staticmethod
    def additive(array: Any) -> Array:
        """Reads floats that are added to scores: 0 means "may attend", -inf or a number from -9984 down means "ignored"."""
    @staticmethod
    def cells(q_len: int, kv_len: int, cells: Sequence[tuple[int, int]]) -> Array:
        """Returns the mask that allows exactly the (query, key) pairs in `cells`."""
    @staticmethod
    def blocks(q_len: int, kv_len: int, block: tuple[int, int], blocks: Sequence[tuple[int, int]]) -> Array:
        """Returns the mask that allows exactly the cells of the rectangles in `blocks`.

        The queries are divided into groups of `block[0]` queries, the keys into groups of `block[1]` keys. Each rectangle in
        `blocks` is a pair (index of its group of queries, index of its group of keys), with indices from 0.
        """
    def __hash__(self) -> int: ...
    @property
    def shape(self) -> list[int]:
        """The dimensions `[batch, heads, q_len, kv_len]`. `batch` or `heads` is 1 if the cells are equal for all batch rows or
        heads."""
    def first_row(self, batch: int, head: int) -> list[tuple[int, int]]:
        """Returns the keys that query row 0 may read in a batch row and head, as ranges (first key, key after the last)."""

@final
class BoundMask:
    """A mask with a shape and facts (data such as lengths and documents) that fit the mask. Every cell is therefore allowed or
    denied."""

    @property
    def mask(self) -> Mask:
        """The mask that was bound."""
    @property
    def shape(self) -> Shape:
        """The shape to which the mask is bound."""
    @property
    def facts(self) -> Facts:
        """The facts (data such as lengths and documents) with which the mask is bound."""
    @property
    def varies(self) -> tuple[bool, bool]:
        """(Whether the cells differ between batch rows, whether the cells differ between the heads of a batch row)."""
    def plan(self, *, block_q: int = 96, block_kv: int = 64, reorder: Order = None) -> Plan:
        """Returns the block-sparse plan; the arguments are those of `Mask.plan`."""
    def explain(self, q: int, k: int, *, batch: int = 0, head: int = 0) -> Explanation:
        """Returns the reason why query row `q` may or may not read key `k`, for the whole mask and for each of its
        subexpressions.
        """
    def select(self, rows: Sequence[tuple[int, int]], keys: Sequence[tuple[int, int]]) -> BoundMask:
        """Returns the mask of only the query rows in `rows` and the keys in `keys`, in ascending order. Both arguments are
        lists of ranges (first index, index after the last).
        """
    def select_batch(self, batch: Sequence[int]) -> BoundMask:
        """Returns the mask of only the batch rows with the indices `batch`, in the order of `batch`."""
    def dense(self) -> NDArray[np.bool_]:
        """Returns the cells `[batch, heads, q_len, kv_len]` as booleans. True means that the query may read the key."""
    def diff(self, other: BoundMask) -> Difference:
        """Returns the cells that only this mask or only `other` allows. Raises `Error` if their shapes differ."""
    def differences(self, other: BoundMask, limit: int) -> list[Cell]:
        """Returns up to `limit` cells that exactly one of the two masks allows, in ascending order."""
    def count_outside(self, other: BoundMask) -> int:
        """Returns the number of cells that this mask allows and `other` denies."""
    def difference_text(self, other: BoundMask, *, width: int = 100, height: int = 48, color: bool = False) -> str:
        """Returns a picture of the cells in which this mask and `other` differ, as text; the other arguments are those of
        `Mask.picture`."""
    def difference_svg(self, other: BoundMask) -> str:
        """Returns a picture of the cells in which this mask and `other` differ, as SVG."""
    def fill(self, out: Any) -> None:
        """Writes the cells to `out`, a contiguous array of booleans or bytes `[batch or 1, heads or 1, q_len, kv_len]`."""
    def picture(self, *, labels: Sequence[str] | None = None, width: int = 100, height: int = 48, color: bool = False) -> str:
        """Returns a picture of the mask as text; the arguments are those of `Mask.picture`."""
    def plot(
        self,
        *,
        ax: Any = None,
        batch: int = 0,
        head: int = 0,
        tokens: Tokens = None,
        tiles: bool | tuple[int, int] = False,
        weights: Any = None,
    ) -> Any:
        """Draws the cells of one batch row and head with matplotlib; the arguments are those of `Mask.plot`."""
    def svg(self, *, labels: Sequence[str] | None = None) -> str:
        """Returns a picture as SVG; `labels` are names of tokens, one for each position."""
    def html(self, *, labels: Sequence[str] | None = None, title: str | None = None) -> str:
        """
        Returns the mask as a web page in one file, which opens from disk without network: picture, expression, facts, code,
        and the reason of each cell. `labels` are names of tokens, one for each position; `title` is the heading. Raises `Error` if the
        page would have more than 300,000 bytes.
        """
    def _repr_svg_(self) -> str: ...
    @staticmethod
    def from_json(text: str) -> BoundMask:
        """Reads a bound mask from the JSON of `to_json`. Raises `Error` for any other text."""
    def to_json(self) -> str:
        """Returns mask, shape and facts as JSON."""

@final
class Plan:
    """A block-sparse plan: tiles (groups of query rows), each with the ranges of keys that its rows read."""

    @property
    def bound(self) -> BoundMask:
        """The bound mask from which the plan was made."""
    @property
    def mask(self) -> Mask:
        """The mask from which the plan was made."""
    @property
    def shape(self) -> Shape:
        """The shape for which the plan was made."""
    @property
    def computed(self) -> int:
        """The number of cells that kernels compute, over all batch rows and heads.

        This number is at least the number of allowed cells.
        """
    @property
    def bytes(self) -> int:
        """The memory of the plan's tiles and key ranges, in bytes."""
    def stats(self) -> Stats:
        """Returns exact counts of allowed and computed cells, tiles and bytes."""
    def tiles(self, batch: int, head: int) -> list[tuple[int, int, list[tuple[int, int, bool]]]]:
        """Returns the tiles of a batch row and head as (first row, row after the last, spans).

        A span is (first key, key after the last, full); `full` is true if every cell of the span is allowed. Rows and keys are
        indices in the sequence, also in a plan that reorders queries and keys.
        """
    def picture(self, *, width: int = 100, height: int = 48, color: bool = False) -> str:
        """Returns a picture of the mask with its tiles as text; the arguments are those of `Mask.picture`."""
    def svg(self) -> str:
        """Returns a picture of the mask with its tiles as SVG."""
    def _repr_svg_(self) -> str: ...
    @staticmethod
    def from_json(text: str) -> Plan:
        """Reads a plan from the JSON of `to_json`.

        Raises `Error` for any other text, and for a plan whose tiles are not those of its mask.
        """
    def to_json(self) -> str:
        """Returns the plan as JSON."""

@final
class Modifiers:
    """The score modifiers and options of one call of `forward`, `backward` or `weights`. The arguments have the meaning of the
    arguments of `noren.attention`."""

    def __new__(
        cls,
        *,
        scale: float | None = None,
        softcap: float | None = None,
        bias: Sequence[Any] = (),
        relative: Any = None,
        alibi: Sequence[float] | None = None,
        soft: Any = None,
        sinks: Any = None,
        dropout: float = 0.0,
        seed: int | None = None,
        threads: int | None = None,
        isa: str | None = None,
    ) -> Modifiers: ...

@final
class StepPlan:
    """The plan of one step of a `KvCache`, made by `KvCache.plan`. The plan is also valid for other caches of the same form,
    sizes and lengths of sequences, such as the caches of other layers."""

    @property
    def plan(self) -> Plan:
        """The plan for attention. Its batch rows are the sequences of the cache, its queries the new tokens, and its keys the
        keys that the step reads."""
    @property
    def spec(self) -> Spec | None:
        """The mask with its score modifiers; `None` if the step was planned with a mask without score modifiers."""
    @property
    def shape(self) -> Shape:
        """The sizes of the step: the number of sequences (as batch rows), the number of heads, the maximum number of queries of
        a sequence, and the number of keys."""
    def key_positions(self, sequence: int) -> list[int]:
        """Returns, for the sequence with index `sequence`, the position of each key that the step reads; -1 for an index
        without a key."""

@final
class _KvCache:
    def __new__(
        cls, form: list[int], kv_heads: int, head_dim: int, v_dim: int, sequences: int, dtype: str, isa: str | None
    ) -> _KvCache: ...
    def append(self, k: Any, v: Any, cu_seqlens: list[int] | None = None) -> None: ...
    def plan(
        self, mask: Mask, facts: Known, heads: int, new: int, cu_seqlens: list[int] | None = None, spec: Spec | None = None
    ) -> StepPlan: ...
    def attend(self, q: Any, plan: StepPlan, modifiers: Modifiers, out: Any, lse: Any = None) -> None: ...
    def truncate(self, sequence: int, length: int) -> None: ...
    def keep(self, sequence: int, guesses: int, accepted: list[int]) -> None: ...
    @property
    def lengths(self) -> list[int]: ...
    @property
    def free_blocks(self) -> int: ...
    @property
    def bytes(self) -> int: ...
    @property
    def isa(self) -> str: ...

@final
class Flow:
    """The exact flow of information between tokens over the layers of a list of masks. `noren.flow` makes a `Flow`."""

    def __new__(cls, masks: Sequence[Mask | str], shape: Shape | int, facts: Known = None, *, fill: str = "nothing") -> Flow: ...
    @property
    def depth(self) -> int:
        """The number of layers."""
    @property
    def tokens(self) -> int:
        """The number of tokens in a batch row."""
    def reach(self, sources: Any, *, batch: int = 0) -> list[list[range]]:
        """Returns the tokens that the tokens `sources` can influence. Entry 0 of the result has the sources, and entry `n` has
        the tokens that the sources can influence within the first `n` layers.

        Each entry is a list of ranges.
        """
    def receptive_field(self, targets: Any, *, batch: int = 0) -> list[list[range]]:
        """Returns the tokens on which the tokens `targets` depend. Entry 0 of the result has the targets, and entry `n` has the
        tokens on which the targets depend through the last `n` layers.

        Each entry is a list of ranges.
        """
    def witness(self, sources: Any, targets: Any, *, batch: int = 0) -> Path | None:
        """Returns a path from one of `sources` to one of `targets` over the fewest layers, or None if no path exists."""
    def cuts(self, sources: Any, targets: Any, *, batch: int = 0) -> list[Cut]:
        """Returns one `Cut` for each layer: the cells through which `sources` influence `targets`."""
    def closure(self, *, batch: int = 0) -> NDArray[np.bool_]:
        """Returns the influence over all layers as booleans `[tokens, tokens]`: true in row `i` and column `j` if output `i`
        may depend on token `j`.

        Memory grows with the square of the number of tokens.
        """
    def check(self, policy: str) -> Ruling:
        """Checks every pair of tokens that a policy denies.

        A policy is a text of lines. `deny: label(pii) -> output` denies that a token of the left group influences a token of
        the right group. `deny maybe: ...` is a `deny` line whose groups may be empty; `allow: ...` permits exceptions. Groups
        are `label(NAME)`, `document(N)`, `level(N)`, `token(N)`, `tokens(A..B)`, `output` (a target only) and `all`. Raises
        `noren.Error` for a text that is not a policy.
        """
    def certify(self, policy: str) -> Certificate:
        """Checks a policy like `check` and returns a certificate: a JSON document from which the verdict can be verified."""

@final
class Certificate:
    """A certificate: the verdict of a policy with the masks, facts and proof that are needed to verify the verdict.

    `Certificate(json)` reads a certificate; `Flow.certify` creates a certificate. `not_covered` lists the paths of influence
    outside of attention, about which the certificate states nothing.
    """

    def __new__(cls, text: str) -> Certificate: ...
    @property
    def holds(self) -> bool:
        """True if the certificate states that the policy holds. Only `verify` checks whether this statement is true."""
    @property
    def policy(self) -> str:
        """The text of the policy."""
    @property
    def not_covered(self) -> list[str]:
        """The paths of influence between tokens that the certificate does not cover, such as pooling."""
    @property
    def sha256(self) -> str:
        """The SHA-256 hash of the certificate, in hexadecimal digits."""
    def matches(self, flow: Flow) -> None:
        """Raises `Error` if the masks, sizes or facts of the certificate differ from those of `flow`."""
    def to_json(self) -> str:
        """Returns the certificate as JSON."""
    def verify(self) -> Ruling:
        """Verifies every count, set, path and verdict of the certificate. The verifier shares no code with the program that made
        the certificate.

        Raises `noren.Error` if the certificate is wrong or cannot be verified.
        """

def parse(text: str) -> Any:
    """Parses a text to a `Mask`, or to a `Spec` if the text has score modifiers. Raises `ParseError` if the text is neither a
    mask nor a mask with score modifiers."""

def forward(q: Any, k: Any, v: Any, plan: Plan, modifiers: Modifiers, out: Any, lse: Any = None) -> None: ...
def backward(
    q: Any,
    k: Any,
    v: Any,
    plan: Plan,
    modifiers: Modifiers,
    saved: tuple[Any, Any, Any],
    gradients: tuple[Any, Any, Any],
    dbias: Sequence[Any] = (),
    dsoft: Any = None,
    dsinks: Any = None,
) -> None: ...
def weights(q: Any, k: Any, v: Any, plan: Plan, modifiers: Modifiers, out: Any) -> None: ...
def isas() -> list[str]:
    """Returns the names of the ISAs (sets of processor instructions) that noren supports on this machine, the slowest first.
    Each name is a value for `isa=`."""

def after_fork() -> None: ...
def read_mask(mask: Any, drop: bool, kv_len: int) -> tuple[Array, bool, bool]:
    """Reads a mask array `[batch, heads, q_len or 1, kv_len or 1]` of booleans, or of floats that are added to scores. True
    means "may attend" if `drop` is false, and "ignored" if `drop` is true.

    A last dimension of 1 applies to all `kv_len` keys. Returns three values:

    1. the allowed cells, `[batch, heads, q_len or 1, kv_len]`
    2. true if an allowed cell holds a number other than 0
    3. true if a masked cell holds a finite number instead of -inf
    """

def patterns(plan: Plan) -> tuple[int, list[int]]: ...
def row_runs(plan: Plan, pattern: int) -> tuple[bytes, bytes]: ...
def masked_rows(plan: Plan, pattern: int, most: int) -> tuple[bytes, bytes] | None: ...
def blocks(
    plan: Plan, pattern: int, block: tuple[int, int], cut_may_be_full: bool
) -> tuple[tuple[int, int], bytes, bytes]: ...
def slices(plan: Plan, pattern: int) -> bytes: ...
def device_plan(plan: Plan, block: tuple[int, int]) -> list[bytes]: ...
def decode_plan(plan: Plan, block_kv: int, chunk: int) -> tuple[int, list[bytes]]: ...
def positions(plan: Plan) -> tuple[bytes, bytes]: ...

_Cells = tuple[list[int], bytearray]

def check(
    mask: Any, companions: Mapping[str, Any], context: str, meant: Any = None, facts: Any = None, batch: int | None = None
) -> tuple[str, list[str], str, list[_Cells | None]]: ...
def recognise(array: Any, convention: str) -> tuple[Mask, Shape, list[list[int]], int, str, _Cells]: ...

def full() -> Mask:
    """Returns the mask in which every query may read every key."""

def none() -> Mask:
    """Returns the mask that allows no cell."""

def causal(offset: int = 0) -> Mask:
    """Allows each query to read the keys up to its own position plus `offset` (look-ahead mask): `k <= q + offset`, where `q`
    and `k` are the positions of query and key."""

def window(left: int | None = None, right: int | None = None) -> Mask:
    """Allows the cells with `q - left <= k <= q + right`, where `q` and `k` are the positions of query and key.

    If `left` or `right` is None, there is no limit on that side. Both may be negative.
    """

def sliding(window: int) -> Mask:
    """Allows the last `window` keys up to the query, the query's own key included: `q - window < k <= q`. Mistral and
    transformers also count the query's own key."""

def chunk(size: int) -> Mask:
    """Allows keys in the same chunk of `size` positions as the query: `q // size == k // size`. The first chunk begins at
    position 0."""

def stride(step: int) -> Mask:
    """Allows keys at a multiple of `step` positions from the query: `(q - k) mod step == 0`."""

def distances(distances: Iterable[int]) -> Mask:
    """Allows the cells whose distance `q - k` is in the list. The distance of a query to its own key is 0, and to earlier keys
    positive (LogSparse)."""

def prefix(lengths: int | Iterable[int]) -> Mask:
    """Allows the keys at the first `n` positions: `k < n`. `lengths` is one `n` for all batch rows, or a list with one `n` for
    each batch row."""

def keys(positions: Positions | None = None, *, label: str | None = None) -> Mask:
    """Allows every query to read the keys at `positions` (a position, a range, or a list of these), or the keys that have the
    label `label` in the facts (data that is given when the mask is bound). A tuple of two integers is refused, because it may be
    a range or two positions: give `range(a, b)` or `[a, b]`."""

def queries(positions: Positions | None = None, *, label: str | None = None) -> Mask:
    """Allows the queries at `positions` to read every key. The arguments have the meaning of the arguments of `keys`."""

def global_(positions: Positions | None = None, *, label: str | None = None) -> Mask:
    """Allows the cells whose query, key or both are at the given positions (global tokens). The arguments have the meaning of
    the arguments of `keys`."""

def padding(
    *, side: Literal["left", "right"] | None = None, lengths: Iterable[int] | None = None, on: Literal["keys", "both"] = "keys"
) -> Mask:
    """Allows keys that are not padding (padding mask).

    `lengths` has the number of non-padding tokens of each batch row, and `side` is the end of the row that has the padding
    [default: taken from the facts, data that is given when the mask is bound]. With `on="both"`, padding queries also read
    nothing.
    """

def documents(lengths: Iterable[int] | None = None) -> Mask:
    """Allows keys in the query's own document (packed sequences). `lengths` has the length of each document [default: from the
    facts, data that is given when the mask is bound].
    """

def spans(spans: Positions) -> Mask:
    """Allows a query to read the keys in the same range of positions as the query, for example the tokens of one image in a
    text. `spans` is a list of these ranges.
    """

def tree(
    parents: Iterable[int], start: int = 0, *, runs: Iterable[int] | None = None, window: int | None = None, chunk: int | None = None
) -> Mask:
    """Allows each node of a tree to read itself and its ancestors (draft trees of speculative decoding).

    Node `i` is at position `start + i`; `parents[i]` is the index of its parent, or -1 for a root. With `runs`, nodes are given
    in runs. A run has consecutive nodes, each the parent of the next. `runs[i]` is the number of nodes of run `i`, and
    `parents[i]` is the index of another run: the last node of that run is the parent of the first node of run `i`. `window` and
    `chunk` limit the keys along each path from a root, as `sliding` and `chunk` do in a sequence.

    >>> import noren as nr
    >>> nr.tree([-1, 0, 0], runs=[512, 64, 64], window=128)
    tree(parents=[-1, 0, 0], runs=[512, 64, 64], window=128)
    """

def clearance() -> Mask:
    """Allows keys whose clearance level is at most the level of the query: `level(k) <= level(q)`. The levels of the tokens are
    a fact (data that is given when the mask is bound)."""

def neighborhood(grid: Iterable[int], size: Iterable[int], dilation: Iterable[int] | None = None) -> Mask:
    """Allows the keys in a window around the query, on a grid of tokens. At the edges of the grid, the window shifts inward
    (NATTEN).

    The grid has 1 to 3 dimensions, and each argument has one number for each dimension. `grid` has the sizes of the grid, whose
    positions are numbered row by row; `size` has the sizes of the window in keys; `dilation` has the distances between
    neighbouring keys of the window [default: 1].
    """

def random(p: float, seed: int) -> Mask:
    """Allows each cell with probability `p`. The allowed cells depend on `seed` and on the positions of query and key, and are
    equal on every machine."""

def random_blocks(block: int, count: int, seed: int) -> Mask:
    """Splits queries and keys into groups of `block` consecutive positions, and allows each group of queries to read `count`
    random groups of keys.

    The random groups depend on `seed`, the positions and the number of keys, and are equal on every machine.
    """

def dense(name: str) -> Mask:
    """Allows the cells of the array that has the name `name` in the facts (data that is given when the mask is bound)."""

def heads(arms: Arms) -> Mask:
    """Selects a mask for each query head. `arms` is a dict, or a list of pairs, from a head, a range of heads, or "else" (all
    others) to a mask. Raises `Error` if a head has no mask: give "else"."""

def batch(arms: Arms) -> Mask:
    """Selects a mask for each batch row. `arms` is a dict, or a list of pairs, from a batch row, a range of batch rows, or
    "else" (all others) to a mask. Raises `Error` if a batch row has no mask: give "else"."""

def layers(arms: Arms) -> Mask:
    """Selects a mask for each layer. `arms` is a dict, or a list of pairs, from a layer, a range of layers, "every 2" (layers
    0, 2, 4, ...) or "else" (all others) to a mask. Raises `Error` if a layer has no mask: give "else"."""

def bias(name: str = "bias") -> Score:
    """Adds the array called `name`, which broadcasts to `[batch, heads, q_len, kv_len]`, to the scores."""

def relative(name: str = "relative") -> Score:
    """Adds a bias by distance to the scores.

    The table called `name`, `[heads, 2 * reach + 1]`, has an entry for each distance `k - q` from `-reach` to `reach`.
    Distances above `reach` use the entry of `reach`, distances below `-reach` the entry of `-reach`.
    """

def alibi(slopes: Sequence[float] | None = None) -> Score:
    """Adds `-slope * |q - k|` to the scores, where `q` and `k` are the positions of query and key. `slopes` has one slope for
    each head [default: `2^(-8 (h + 1) / heads)` for head `h`]."""

def softcap(cap: float) -> Score:
    """Replaces each score by `cap * tanh(score / cap)`."""

def soft(name: str = "soft") -> Score:
    """Multiplies `exp(score)` by the array called `name`, weights from 0 to 1 (a continuous mask). A weight of 0 denies the cell."""

def sinks(name: str = "sinks") -> Score:
    """Adds the array called `name`, one logit for each head, to the denominator of the softmax only."""

# --- distributed --------------------------------------------------------------------------------------------------

@final
class Partition:
    """The division of a mask over processes (ranks): for each rank, the tokens that it owns, the cells that it computes, and
    the data that it sends and receives."""

    @property
    def hash(self) -> str:
        """The hash of the partition. Ranks compare this hash before they exchange data."""
    @property
    def method(self) -> str:
        """The name of the method by which the mask was divided, such as "contiguous"."""
    @property
    def ranks(self) -> int:
        """The number of ranks (processes)."""
    @property
    def nodes(self) -> int:
        """The number of machines over which the ranks are placed."""
    def traffic(self, rank: int, head_dim: int, element_bytes: int) -> list[int]:
        """Returns four numbers of bytes for rank `rank`: [received in the forward pass, sent in the forward pass, received in
        the backward pass, sent in the backward pass].

        `element_bytes` is the number of bytes of one number. `head_dim` is the width of queries, keys and values.
        """
    def check(self, bound: BoundMask) -> None:
        """Raises `Error` unless every allowed cell of `bound` is computed exactly once, by a rank that owns or receives the
        cell's query, key and value."""
    def to_json(self) -> str:
        """Returns the partition as JSON."""
    @staticmethod
    def from_json(text: str, bound: BoundMask) -> Partition:
        """Reads a partition from JSON. Raises `Error` if the JSON is invalid or not a partition of `bound`."""

class GroupError(RuntimeError):
    """The error that every rank (process) raises if one rank ended, stalled or left the group. Do not use the results of the
    failed call."""

class Disagreement(GroupError):
    """The error that every rank (process) raises if the ranks gave different masks, facts, shapes or options. Nothing was
    computed."""

@final
class Link:
    """The connection of one rank to the other ranks of its group. The function `exchange(outgoing, expected)` sends and receives
    the messages, and returns an object with the methods `take(rank)` and `finish()`.
    """

    def __new__(cls, exchange: Callable[..., Any], rank: int, ranks: int, timeout: float) -> Link: ...
    @property
    def traffic(self) -> tuple[int, int, int]:
        """(Bytes of arrays sent, bytes of arrays received, bytes of messages sent to check that all ranks agree) of this rank."""
    def agree(self, what: str, said: Sequence[tuple[str, str]]) -> None:
        """Raises `Disagreement` on every rank unless the (name, value) pairs in `said` are equal on all ranks.

        `what` is the name of the call; the error message contains it.
        """
    def refuse(self) -> None:
        """Informs the other ranks that this rank rejects its input. The next call on each of the other ranks then raises an
        error."""
    def gather(self, mine: bytes) -> list[bytearray]:
        """Sends the bytes `mine` to all ranks. Returns a list with the bytes that each rank sent: element `i` is from rank `i`."""
    def lost(self, what: str) -> str:
        """Returns the message of the `GroupError` that this rank raises. `what` describes the failure."""

@final
class Attended:
    """The results of a forward pass of attention on one rank (process)."""

    def write(self, out: Any, lse: Any) -> None:
        """Writes the output to `out` and the log-sum-exps to `lse`, two contiguous `float32` tensors."""

@final
class RankSplit:
    """The data of one rank for attention that is split over the ranks of a `Link`: the plan, and the query rows and keys of
    each rank."""

    def __new__(cls, plan: Plan, partition: Partition | None, travel: str, link: Link) -> RankSplit: ...
    @property
    def partition(self) -> Partition: ...
    def owned(self, batch: int, rank: int) -> tuple[list[list[int]], list[list[int]]]:
        """Returns the query rows and the keys of batch row `batch` that rank `rank` owns. Both are lists of ranges `[first
        index, index after the last]`."""
    @property
    def lengths(self) -> tuple[int, int]: ...
    @property
    def uniform(self) -> bool:
        """True if each rank owns the same query rows and keys in every batch row."""
    @property
    def queries_travel(self) -> bool: ...
    def predicted(self, head_dim: int, v_dim: int, element_bytes: int) -> list[tuple[int, int]]:
        """Returns the predicted traffic of this rank as two pairs (bytes sent, bytes received): the first for a forward pass,
        the second for a backward pass."""
    def attention(self, arrays: Any, scores: Any, gradients: bool) -> Attended: ...
    def gradients(self, arrays: Any, attended: Attended, dout: Any, scores: Any, into: Any) -> None:
        """Writes the gradients of q, k and v into `into`, three contiguous `float32` tensors. `arrays` is (q, k, v), `attended`
        the result of the forward pass, `dout` the gradient of the output, and `scores` is (scale, softcap, slopes of ALiBi).
        """

@final
class RankShards:
    """A key-value cache whose keys are distributed over the ranks of a `Link`."""

    def __new__(cls, plan: Plan, keys: Sequence[Sequence[tuple[int, int]]] | None, link: Link) -> RankShards: ...
    def held(self, rank: int) -> list[tuple[int, int]]:
        """Returns the keys that rank `rank` stores, as ranges (first key, key after the last)."""
    def decode(self, arrays: Any, scores: Any) -> Attended: ...

def partition(
    plan: Plan,
    ranks: int,
    *,
    nodes: int = 1,
    travel: Literal["keys", "both"] = "both",
    objective: Literal["balanced", "traffic", "tokens"] = "balanced",
    head_dim: int = 128,
    element_bytes: int = 2,
) -> Partition:
    """Divides a planned mask over `ranks` processes on `nodes` machines.

    `travel="keys"`: each query is computed by the rank that owns it, and keys and values are sent to this rank.
    `travel="both"`: a query may also be sent to the rank that owns the keys, which sends its results back.

    The partition minimises the number of bytes sent. `objective` limits the number of allowed cells and the number of tokens of
    each rank, as multiples of the mean over the ranks:

    - `"balanced"`: 1.05 times the mean number of cells, 1.25 times the mean number of tokens
    - `"traffic"`: 1.25 times the mean number of cells, 1.5 times the mean number of tokens
    - `"tokens"`: 1.05 times the mean number of cells, 1.01 times the mean number of tokens

    `head_dim` is the width of queries, keys and values, and `element_bytes` the number of bytes of one of their numbers.
    """

def code(bound: BoundMask, scores: list[Score], target: str) -> tuple[str, list[str]]:
    """Returns (code, names of the variables that the code reads and that the user supplies) of a mask with score modifiers.

    Raises `Error` for an unknown target, and `ExportError` with the reason for which the mask has no code.
    """

def code_targets() -> list[tuple[str, str]]:
    """Returns the targets of `code` as pairs (name, title)."""

def batch_reads(name: str, pad_id: int | None) -> bool:
    """Returns whether `read_batch` reads the entry `name` of a batch. It reads token ids only with the id of padding."""

def read_batch(
    entries: Sequence[tuple[str | None, Any]],
    *,
    segment_padding: Sequence[int | None],
    pad_id: int | None,
    known: Known,
) -> tuple[Facts, tuple[int, int], list[tuple[str, str]]]:
    """Returns the facts of a batch, its numbers of rows and of tokens in a row, and for each entry that was read its name and an
    explanation.

    `entries` has the name (None for an array without a name) and the array of each entry. `segment_padding` is empty if the
    document number of padding is unknown; otherwise its only item is this number, or None for no padding. `known` is facts that
    the caller knows. Raises `Error` for a batch with several
    readings and for entries that contradict each other.
    """

def fold_sequences(
    tokens: bytes, lengths: Sequence[int], budget: int | None, min_prefix: int, max_roots: int | None
) -> tuple[list[list[tuple[int, int, int, int, int]]], list[tuple[int, list[tuple[int, int]]]]]:
    """Folds sequences: puts them into rows in which each shared prefix occurs once.

    `tokens` has the token ids of all sequences one after another, as native 64-bit integers; `lengths` has the number of tokens of
    each sequence. Returns two lists. The first has the runs (consecutive tokens of the prefix tree) of each row, each (first
    token, token after the last, index of the parent run or -1, position of the first token, index of a sequence that contains
    the run). The second has for each sequence (row, ranges of its tokens in the row).
    """

def tile_function(
    name: str, uses_batch: bool, uses_head: bool, evaluate: Callable[[int, int, int, int, int, int], tuple[bytes, bytes]]
) -> Mask:
    """Returns the mask of the cells that the function `evaluate` computes.

    `evaluate` takes (batch row, head, first query position, position after the last query, position after the last key) and
    returns two byte strings, as described in `noren.maskmod._tiles`. If the cells do not depend on the batch row (`uses_batch`
    is false) or on the head (`uses_head`), `evaluate` gets 0 for it.
    """

_PRIVATE_KINDS: list[str]

@final
class _Detectors:
    def __new__(
        cls,
        kinds: str,
        words: list[tuple[str, list[str]]],
        patterns: list[tuple[str, str]],
        recognised: list[str],
    ) -> _Detectors: ...
    def kinds(self, spans: list[str]) -> list[str]: ...
    def not_looked_for(self) -> str: ...
    def find(
        self, text: str, given: list[tuple[str, list[tuple[int, int]]]], recognised: list[tuple[int, int, int]]
    ) -> list[tuple[str, int, int]]: ...

@final
class _PrivateTokens:
    @staticmethod
    def locate(
        found: list[tuple[str, int, int]], text: str, ranges: list[tuple[int, int]], special: list[bool]
    ) -> _PrivateTokens: ...
    @staticmethod
    def at(len: int, kinds: list[tuple[str, list[int]]]) -> _PrivateTokens: ...
    def window(self, first: int, len: int) -> _PrivateTokens: ...
    def kinds(self) -> list[tuple[str, list[int]]]: ...
    def __len__(self) -> int: ...

@final
class _Policy:
    @staticmethod
    def hide() -> _Policy: ...
    @staticmethod
    def clearance(levels: list[tuple[str, int]], reader: int) -> _Policy: ...
    @staticmethod
    def heads(heads: Any) -> _Policy: ...
    def mask(self, base: Mask | str) -> Mask: ...
    def facts(self, rows: list[_PrivateTokens], facts: Known = None) -> Facts: ...
    def rulings(self, tokens: _PrivateTokens) -> tuple[list[bool], list[bool]]: ...

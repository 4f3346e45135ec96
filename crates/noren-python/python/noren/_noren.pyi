"""The extension module: masks, plans and kernels as Rust makes them."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, final

import numpy as np
from numpy.typing import NDArray

from ._views import Cell, Difference, Explanation, Stats

__version__: str

Positions = int | range | slice | str | Iterable[int | range | slice | str]
Arms = Mapping[Any, Mask | str] | Iterable[tuple[Any, Mask | str]]
Known = Facts | Mapping[str, Any] | None
Order = Literal["auto", "never", "always", "copies"] | int | None

class Error(ValueError):
    """What is wrong with a mask, its facts, arrays or options."""

class ParseError(Error):
    """The text is no mask; the message points into it."""

class ExportError(Error):
    """What another system's format cannot say, by name."""

@final
class Mask:
    """A set of allowed (query, key) cells, said without sizes."""

    def __new__(cls, text: Mask | str) -> Mask: ...
    def __and__(self, other: Mask) -> Mask: ...
    def __or__(self, other: Mask) -> Mask: ...
    def __sub__(self, other: Mask) -> Mask: ...
    def __add__(self, score: Score) -> Spec: ...
    def __invert__(self) -> Mask: ...
    def __hash__(self) -> int: ...
    def bind(self, shape: Shape | int, facts: Known = None) -> BoundMask:
        """The mask with its shape (or length) and facts, everything checked."""
    def plan(
        self, shape: Shape | int, facts: Known = None, *, block_q: int = 96, block_kv: int = 64, reorder: Order = None
    ) -> Plan:
        """The tiles that kernels and exports read."""
    def dense(self, shape: Shape | int, facts: Known = None) -> NDArray[np.bool_]:
        """The cells as booleans, true may attend, `[batch, heads, q_len, kv_len]`."""
    def explain(
        self, q: int, k: int, shape: Shape | int, facts: Known = None, *, batch: int = 0, head: int = 0
    ) -> Explanation:
        """Why a query may or may not read a key."""
    def diff(self, other: Mask | str, shape: Shape | int, facts: Known = None) -> Difference:
        """Where two masks differ."""
    def stats(self, shape: Shape | int, facts: Known = None) -> Stats:
        """What the mask costs, and what dense masking would."""
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
        """A picture as text."""
    def _repr_svg_(self) -> str | None: ...
    def simplify(self) -> Mask:
        """A canonical form that allows the same cells."""
    def equivalent(self, other: Mask | str) -> Equivalence:
        """Whether both masks allow the same cells at every length: proved, refuted by a cell, or not established."""
    def at_layer(self, layer: int) -> Mask:
        """The mask of one layer, where it has `layers(...)`."""
    @property
    def has_layers(self) -> bool: ...

@final
class Equivalence:
    """What `Mask.equivalent` established; `str` gives it as a sentence."""

    @property
    def equal(self) -> bool | None:
        """True when equality was proved, False when a difference was found, None when neither was established."""
    @property
    def lengths(self) -> tuple[int, int] | None:
        """The shortest and the longest length at which both masks bind, where equality was proved."""
    @property
    def shape(self) -> Shape | None:
        """The shape in which a difference was found: the shortest one, unless `facts` matter."""
    @property
    def facts(self) -> Facts | None:
        """The facts under which a difference was found; empty where none matter."""
    @property
    def cell(self) -> tuple[int, int, int, int] | None:
        """The cell (batch row, head, query row, key) that exactly one mask allows."""
    @property
    def layer(self) -> int | None:
        """The layer in which a difference was found."""
    @property
    def only_first(self) -> bool | None:
        """Whether the first mask allows the cell."""
    @property
    def atoms(self) -> list[str]:
        """The atoms because of which nothing was established."""

@final
class Score:
    """Something that is done to the scores beside the mask."""

    def __new__(cls, text: str) -> Score: ...
    def __hash__(self) -> int: ...
    @property
    def kind(self) -> Literal["bias", "relative", "alibi", "softcap", "soft", "sinks"]: ...
    @property
    def name(self) -> str | None:
        """The array that it names; `None` for `alibi` and `softcap`."""
    @property
    def slopes(self) -> list[float] | None:
        """The slopes of `alibi`, where they are given."""
    @property
    def cap(self) -> float | None:
        """The cap of `softcap`."""

@final
class Spec:
    """A mask with what is done to the scores: `mask + score + ...`."""

    def __new__(cls, text: str) -> Spec: ...
    def __add__(self, score: Score) -> Spec: ...
    def __hash__(self) -> int: ...
    @property
    def mask(self) -> Mask: ...
    @property
    def scores(self) -> list[Score]: ...

@final
class Shape:
    """The sizes a mask is bound to, and where the first query stands."""

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
        """As many queries as keys."""
    @staticmethod
    def cached(past: int, new: int, *, batch: int = 1, heads: int = 1, kv_heads: int | None = None) -> Shape:
        """The queries are the last `new` of the keys."""
    @staticmethod
    def cross(q_len: int, kv_len: int, *, batch: int = 1, heads: int = 1, kv_heads: int | None = None) -> Shape:
        """Queries and keys are different sequences; query 0 stands at position 0."""
    @staticmethod
    def from_json(text: str) -> Shape: ...
    def to_json(self) -> str: ...
    def __hash__(self) -> int: ...
    @property
    def batch(self) -> int: ...
    @property
    def heads(self) -> int: ...
    @property
    def kv_heads(self) -> int: ...
    @property
    def q_len(self) -> int: ...
    @property
    def kv_len(self) -> int: ...
    @property
    def query_offsets(self) -> list[int]:
        """The position of the first query of each batch row."""

@final
class Facts:
    """What a mask must know of the data of a call: `lengths`, `documents`, `labels`, `levels`, `positions`, `arrays`, ..."""

    def __new__(cls, **facts: Any) -> Facts: ...
    @staticmethod
    def from_json(text: str, arrays: Mapping[str, Array] | None = None) -> Facts: ...
    def to_json(self) -> str: ...
    @property
    def place_keys(self) -> bool:
        """Whether the facts give the position of each key."""

@final
class Array:
    """A mask given cell by cell, for `Facts(arrays={name: ...})`."""

    @staticmethod
    def keep(array: Any) -> Array:
        """True = may attend; `[q_len, kv_len]` or `[batch, heads, q_len, kv_len]`."""
    @staticmethod
    def drop(array: Any) -> Array:
        """True = ignored."""
    @staticmethod
    def additive(array: Any) -> Array:
        """0 = may attend, -inf or the type's lowest number = ignored."""
    @staticmethod
    def csr(q_len: int, kv_len: int, indptr: Sequence[int], indices: Sequence[int]) -> Array:
        """The allowed keys of each query row: compressed sparse rows."""
    @staticmethod
    def cells(q_len: int, kv_len: int, cells: Sequence[tuple[int, int]]) -> Array:
        """The allowed (query, key) cells."""
    @staticmethod
    def blocks(q_len: int, kv_len: int, block: tuple[int, int], blocks: Sequence[tuple[int, int]]) -> Array:
        """The allowed (query block, key block) pairs."""
    def __hash__(self) -> int: ...
    @property
    def shape(self) -> list[int]: ...
    def first_row(self, batch: int, head: int) -> list[tuple[int, int]]:
        """The allowed keys of query row 0 of a batch row and head, as ranges `(first, after)`."""

@final
class BoundMask:
    """A mask with its shape and facts, everything checked."""

    @property
    def mask(self) -> Mask: ...
    @property
    def shape(self) -> Shape: ...
    @property
    def facts(self) -> Facts: ...
    @property
    def pattern_count(self) -> int:
        """Number of distinct (batch, head) patterns."""
    @property
    def varies(self) -> tuple[bool, bool]:
        """Whether batch rows, and heads, differ."""
    def plan(self, *, block_q: int = 96, block_kv: int = 64, reorder: Order = None) -> Plan: ...
    def allowed(self, batch: int, head: int, q: int, k: int) -> bool: ...
    def explain(self, q: int, k: int, *, batch: int = 0, head: int = 0) -> Explanation: ...
    def select(self, rows: Sequence[tuple[int, int]], keys: Sequence[tuple[int, int]]) -> BoundMask:
        """The same mask on some of its query rows and keys, each a list of ranges `(first, after)`."""
    def select_batch(self, batch: Sequence[int]) -> BoundMask:
        """The same mask on some of its batch rows."""
    def dense(self) -> NDArray[np.bool_]: ...
    def diff(self, other: BoundMask) -> Difference: ...
    def first_difference(self, other: BoundMask) -> Cell | None: ...
    def differences(self, other: BoundMask, limit: int) -> list[Cell]: ...
    def count_outside(self, other: BoundMask) -> int: ...
    def difference_text(self, other: BoundMask, *, width: int = 100, height: int = 48, color: bool = False) -> str: ...
    def difference_svg(self, other: BoundMask) -> str: ...
    def fill(self, out: Any) -> None: ...
    def picture(
        self, *, labels: Sequence[str] | None = None, width: int = 100, height: int = 48, color: bool = False
    ) -> str: ...
    def svg(self, *, labels: Sequence[str] | None = None) -> str: ...
    def _repr_svg_(self) -> str: ...
    @staticmethod
    def from_json(text: str) -> BoundMask: ...
    def to_json(self) -> str: ...

@final
class Plan:
    """Query tiles with the keys they read: what kernels and exports read."""

    @property
    def bound(self) -> BoundMask: ...
    @property
    def mask(self) -> Mask: ...
    @property
    def shape(self) -> Shape: ...
    @property
    def computed(self) -> int:
        """Cells that kernels compute, over all batch rows and heads."""
    @property
    def bytes(self) -> int:
        """Memory that tiles and spans take."""
    def stats(self) -> Stats: ...
    def tiles(self, batch: int, head: int) -> list[tuple[int, int, list[tuple[int, int, bool]]]]:
        """`(first row, row after, [(first key, key after, full), ...])`, at their own places."""
    def picture(self, *, width: int = 100, height: int = 48, color: bool = False) -> str: ...
    def svg(self) -> str: ...
    def _repr_svg_(self) -> str: ...
    @staticmethod
    def from_json(text: str) -> Plan: ...
    def to_json(self) -> str: ...

@final
class Modifiers:
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
        partial: bool = False,
        threads: int | None = None,
        isa: str | None = None,
        spec: Spec | None = None,
        arrays: Mapping[str, Any] = ...,
    ) -> Modifiers: ...

class _Flow:
    def __new__(
        cls, masks: Sequence[Mask | str], shape: Shape | int, facts: Known = None, *, fill: str = "nothing"
    ) -> _Flow: ...
    def __init__(
        self, masks: Sequence[Mask | str], shape: Shape | int, facts: Known = None, *, fill: str = "nothing"
    ) -> None: ...
    @property
    def depth(self) -> int:
        """Number of layers."""
    @property
    def tokens(self) -> int: ...
    def reach(self, sources: Any, *, batch: int = 0) -> list[list[tuple[int, int]]]:
        """Who knows something of `sources` before the first layer, after it, and so on, as ranges."""
    def receptive_field(self, targets: Any, *, batch: int = 0) -> list[list[tuple[int, int]]]:
        """Whose content `targets` depend on, looking back over no layer, the last one, the last two, ..., as ranges."""
    def _witness(self, sources: Any, targets: Any, *, batch: int = 0) -> tuple[str, str] | None: ...
    def _cuts(self, sources: Any, targets: Any, *, batch: int = 0) -> str: ...
    def _closure(self, *, batch: int = 0) -> bytearray: ...
    def _check(self, policy: str) -> tuple[str, tuple[str, str, list[str]]]: ...
    def _certify(self, policy: str) -> str: ...

class _Certificate:
    def __new__(cls, text: str) -> _Certificate: ...
    def __init__(self, text: str) -> None: ...
    @property
    def holds(self) -> bool:
        """Whether the policy holds, as written down."""
    @property
    def policy(self) -> str: ...
    @property
    def not_covered(self) -> list[str]: ...
    @property
    def sha256(self) -> str: ...
    def matches(self, flow: _Flow) -> None:
        """Raises `Error` where it speaks of another stack."""
    def to_json(self) -> str: ...
    def _verify(self) -> tuple[str, tuple[str, str, list[str]]]: ...

def parse(text: str) -> Any:
    """A mask from its text; a `Spec` where the text has scores."""

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
    """The processor paths this machine has, slowest first."""

def after_fork() -> None: ...
def read_mask(mask: Any, drop: bool, kv_len: int) -> tuple[Array, bool, bool]:
    """The allowed cells of a mask tensor, whether it adds other numbers than 0 to them, and whether finite numbers forbid."""

def patterns(plan: Plan) -> tuple[int, list[int]]: ...
def row_runs(plan: Plan, pattern: int) -> tuple[bytes, bytes]: ...
def masked_rows(plan: Plan, pattern: int, most: int) -> tuple[bytes, bytes] | None: ...
def blocks(
    plan: Plan, pattern: int, block: tuple[int, int], cut_may_be_full: bool
) -> tuple[tuple[int, int], bytes, bytes]: ...
def slices(plan: Plan, pattern: int) -> bytes: ...

_Cells = tuple[list[int], bytearray]

def check(
    mask: Any, companions: Mapping[str, Any], context: str, meant: BoundMask | None = None
) -> tuple[str, list[str], str, list[_Cells | None]]: ...
def classes() -> list[tuple[str, str, str]]: ...
def recognise(array: Any, convention: str) -> tuple[Mask, Shape, list[list[int]], int, str, _Cells]: ...

def full() -> Mask:
    """Every query reads every key."""

def none() -> Mask:
    """Nobody reads anything."""

def causal(offset: int = 0) -> Mask:
    """`k <= q + offset`: no later key."""

def window(left: int | None = None, right: int | None = None) -> Mask:
    """`q - left <= k <= q + right`, both ends included; a side left out is open, negative values shift it."""

def sliding(window: int) -> Mask:
    """`q - window < k <= q`: so many keys with itself, as Mistral and transformers count."""

def chunk(size: int) -> Mask:
    """Query and key lie in the same chunk of `size` positions."""

def stride(step: int) -> Mask:
    """`(q - k) mod step == 0`."""

def distances(distances: Iterable[int]) -> Mask:
    """The distance `q - k` is in the list: 0 is the query's own key, positive distances are keys before it (LogSparse)."""

def prefix(lengths: int | Iterable[int]) -> Mask:
    """`k < n`, one number or one for each batch row."""

def keys(positions: Positions | None = None, *, label: str | None = None) -> Mask:
    """These keys: a position, a range, a list of them, or a label of the facts."""

def queries(positions: Positions | None = None, *, label: str | None = None) -> Mask:
    """These queries; as `keys`."""

def global_(positions: Positions | None = None, *, label: str | None = None) -> Mask:
    """These positions read everything and are read by everybody; as `keys`."""

def padding(
    *, side: Literal["left", "right"] | None = None, lengths: Iterable[int] | None = None, on: Literal["keys", "both"] = "keys"
) -> Mask:
    """Real tokens only, as the facts or `lengths` say; with `on="both"` padding queries read nothing."""

def documents(lengths: Iterable[int] | None = None) -> Mask:
    """Query and key lie in the same document, of these lengths or those of the facts."""

def spans(spans: Positions) -> Mask:
    """Query and key lie in the same span (an image among text)."""

def tree(parents: Iterable[int], start: int = 0) -> Mask:
    """Node `i` stands at `start + i` and reads itself and its ancestors; a parent of -1 is a root."""

def clearance() -> Mask:
    """`level(q) >= level(k)`, by the levels of the facts."""

def neighborhood(grid: Iterable[int], size: Iterable[int], dilation: Iterable[int] | None = None) -> Mask:
    """Keys in the window of grid cells around the query, shifted inward at edges (NATTEN)."""

def random(p: float, seed: int) -> Mask:
    """A fixed random pattern: each cell with probability `p`, the same on every machine."""

def random_blocks(block: int, count: int, seed: int) -> Mask:
    """`count` random blocks of keys for each block of queries, the same on every machine."""

def dense(name: str) -> Mask:
    """What the named array of the facts says."""

def heads(arms: Arms) -> Mask:
    """By query head: a dict (or pairs) of heads and masks."""

def batch(arms: Arms) -> Mask:
    """By batch row: a dict (or pairs) of rows and masks."""

def layers(arms: Arms) -> Mask:
    """By layer: a dict (or pairs) such as `{"every 2": ..., "else": ...}`."""

def bias(name: str = "bias") -> Score:
    """Adds the named array to scores, broadcast over `[batch, heads, q_len, kv_len]`."""

def relative(name: str = "relative") -> Score:
    """Adds the named table `[heads, 2 * reach + 1]` by distance."""

def alibi(slopes: Sequence[float] | None = None) -> Score:
    """Adds `-slope * distance`; slopes are `2^(-8 (h + 1) / heads)` unless given."""

def softcap(cap: float) -> Score:
    """`cap * tanh(score / cap)` replaces the score."""

def soft(name: str = "soft") -> Score:
    """The named weights in [0, 1] multiply `exp(score)`; 0 is not allowed."""

def sinks(name: str = "sinks") -> Score:
    """The named logits, one for each head, join the softmax's denominator only."""

# --- distributed --------------------------------------------------------------------------------------------------

@final
class Partition:
    """Who owns, computes, sends and receives what of a mask split over ranks."""

    @property
    def hash(self) -> str:
        """What ranks compare before they exchange anything."""
    @property
    def method(self) -> str: ...
    @property
    def ranks(self) -> int: ...
    @property
    def nodes(self) -> int: ...
    def traffic(self, rank: int, head_dim: int, element_bytes: int) -> list[int]:
        """Bytes that a rank receives and sends in the forward pass, and in the backward pass, where `v_dim` is `head_dim`."""
    def check(self, bound: BoundMask) -> None:
        """Refuses a partition that does not compute each allowed cell once, by who holds what that needs."""
    def is_of(self, bound: BoundMask) -> bool:
        """Whether it was made for this mask with its shape and facts."""
    def to_json(self) -> str: ...
    @staticmethod
    def from_json(text: str, bound: BoundMask) -> Partition: ...

class GroupError(RuntimeError):
    """A rank died, stalled or left: nothing that was computed together can be trusted, and every rank stops."""

class Disagreement(GroupError):
    """The ranks were about to compute different things."""

@final
class Link:
    """A rank's place in its group, and what carries messages: `carrier.exchange(outgoing, expected)`."""

    def __new__(cls, carrier: Any, rank: int, ranks: int, timeout: float) -> Link: ...
    @property
    def traffic(self) -> tuple[int, int, int]:
        """Bytes of arrays sent and received, and bytes sent for agreements."""
    def agree(self, what: str, said: Sequence[tuple[str, str]]) -> None:
        """Raises `Disagreement` on every rank unless all ranks give the same."""
    def refuse(self) -> None:
        """Tells the others, who are about to make a call, that this rank refuses its input."""
    def gather(self, mine: bytes) -> list[bytearray]:
        """The bytes of all ranks, in their order."""
    def lost(self, what: str) -> str:
        """The message of a `GroupError` on this rank."""

@final
class Attended:
    """The results of a forward pass on this rank."""

    def write(self, out: Any, lse: Any) -> None:
        """Writes the output and the log-sum-exps into contiguous `float32` tensors."""

@final
class RankSplit:
    """A mask over the ranks of a link, as one of them sees it."""

    def __new__(cls, plan: Plan, partition: Partition | None, travel: str, link: Link) -> RankSplit: ...
    @property
    def partition(self) -> Partition: ...
    def owned(self, batch: int, rank: int) -> tuple[list[list[int]], list[list[int]]]:
        """The query rows and keys of a batch row that a rank owns, as ranges."""
    @property
    def lengths(self) -> tuple[int, int]: ...
    @property
    def uniform(self) -> bool:
        """Whether all batch rows are split in one way."""
    @property
    def queries_travel(self) -> bool: ...
    def predicted(self, head_dim: int, v_dim: int, element_bytes: int) -> list[tuple[int, int]]:
        """Bytes sent and received in a forward, and in a backward pass."""
    def attention(self, arrays: Any, scores: Any, gradients: bool) -> Attended: ...
    def gradients(self, arrays: Any, attended: Attended, dout: Any, scores: Any, into: Any) -> None:
        """Writes the gradients of q, k and v into contiguous `float32` tensors."""

@final
class RankShards:
    """A cache whose keys are shared out over the ranks of a link."""

    def __new__(cls, plan: Plan, keys: Sequence[Sequence[tuple[int, int]]] | None, link: Link) -> RankShards: ...
    def held(self, rank: int) -> list[tuple[int, int]]:
        """The ranges of keys that a rank holds."""
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
    """Splits a planned mask over ranks: who owns which tokens, who computes what, what travels.

    With `travel="keys"` each query is computed by its owner; otherwise queries may travel to keys. The `objective` says what the
    least traffic is sought within: balanced cells and tokens, looser limits for both, or equal tokens. `head_dim` and
    `element_bytes` weigh keys against queries and results.
    """

def audit_catalogue() -> str:
    """The checks of the audit and the sizes of what is tried, as JSON."""

def audit_changes(
    check: str, length: int, reach: bytes, direct: bytes
) -> list[tuple[str, str, list[int], bool, list[tuple[int, int]], bool]]:
    """What is changed in a check and which outputs are compared; an error says why there is nothing."""

def audit_not_tested(
    longest: int, rows: int, training: bool | None, heads: int, layers: bool, compiled: bool, padding: bool, checks: Sequence[str]
) -> list[str]:
    """What an audit leaves open, in words."""

def audit_rounding(unit: float, depth: int, width: int) -> float:
    """The largest difference that is called rounding, as a part of the largest output."""

"""`noren.flow`: computes the tokens that can influence an output over several layers of attention, checks policies about this
influence, and writes certificates."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from .._noren import Facts, Flow, Mask, Shape

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Tokens = Any
"""A token index, a range, or a list of these."""


@dataclass(frozen=True, repr=False)
class Path:
    """A path of information from a source token to an output, over layers."""

    source: int
    """The source token, with which the path begins."""
    steps: tuple[tuple[int, int], ...]
    """The steps of the path as pairs (layer, token): in layer `layer`, `token` reads the token of the previous step, or the
    source."""
    text: str
    """The path as a sentence."""

    def __repr__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Cut:
    """The cells of one layer through which the source tokens influence the target tokens."""

    layer: int
    """The layer, counted from 0."""
    cells: int
    """Number of allowed cells of this layer through which the sources influence the targets."""
    enough: bool
    """True if hiding only these cells prevents all influence of the sources on the targets. False if the sources also influence
    the targets by other paths."""


@dataclass(frozen=True, repr=False)
class RuleVerdict:
    """The verdict about one `deny` line of a policy in one batch row."""

    rule: str
    """The text of the `deny` line of the policy."""
    batch: int
    """The batch row."""
    sources: int
    """Number of source tokens of the `deny` line in this batch row."""
    targets: int
    """Number of target tokens of the `deny` line in this batch row."""
    pairs: int
    """Number of pairs (source token, target token) that the `deny` line denies. A token with itself and pairs that an `allow`
    line permits are not counted."""
    reached_pairs: int
    """Number of denied pairs whose source influences the target; if `counted` is `"at least"`, this number is a lower bound."""
    counted: Literal["exact", "at least"]
    """"exact" if `reached_pairs` is the exact number, "at least" if it is a lower bound."""
    witness: Path | None
    """A path from a source to one of the targets that it influences; None if no denied pair is reached."""
    cut: tuple[int, int] | None
    """(layer, number of cells): the layer in which the fewest cells must be hidden to separate sources from targets. None if no
    single layer is enough, or if `cut_computed` is False."""
    cut_computed: bool
    """True if `cut` was computed. It is not computed if no denied pair is reached, or if the computation would be too slow."""
    text: str
    """The verdict as a sentence."""

    @property
    def violated(self) -> bool:
        """True if at least one denied pair is reached."""
        return self.reached_pairs > 0

    def __repr__(self) -> str:
        return self.text


@dataclass(frozen=True)
class EmptyGroup:
    """A group of tokens in a `deny maybe` line of a policy that has no tokens in a batch row. The word `maybe` permits empty
    groups."""

    rule: str
    """The text of the `deny` line of the policy."""
    group: str
    """The group, such as `label(pii)`."""
    batch: int
    """The batch row."""


@dataclass(frozen=True, repr=False)
class Ruling:
    """The verdict of a policy about a stack of masks. A ruling cannot be used as a condition: use `holds` or `verdict`."""

    verdict: Literal["holds", "broken", "nothing established"]
    """`holds`: pairs are denied and no denied pair is reached. `broken`: a denied pair is reached. `nothing established`: no pair
    is denied."""
    rules: tuple[RuleVerdict, ...]
    """One verdict for each `deny` line and batch row."""
    pairs: int
    """Number of denied pairs (source token, target token), summed over all `deny` lines and batch rows."""
    batch_rows: int
    """Number of batch rows."""
    heads: int
    """Number of heads."""
    layers: int
    """Number of layers."""
    empty: tuple[EmptyGroup, ...]
    """The groups of `deny maybe` lines that have no tokens in a batch row."""
    text: str
    """The verdict as a sentence."""

    @property
    def holds(self) -> bool:
        """True if at least one pair is denied and no denied pair is reached."""
        return self.verdict == "holds"

    @property
    def violations(self) -> tuple[RuleVerdict, ...]:
        """The verdicts in which at least one denied pair is reached."""
        return tuple(rule for rule in self.rules if rule.violated)

    def __bool__(self) -> bool:
        raise TypeError("a ruling has no truth value, because a policy may also deny no pair: use ruling.holds or ruling.verdict")

    def __repr__(self) -> str:
        return "\n".join([self.text, *(violation.text for violation in self.violations)])


def flow(
    masks: Mask | str | Sequence[Mask | str],
    shape: Shape | int,
    facts: Facts | Mapping[str, Any] | None = None,
    *,
    layers: int | None = None,
    fill: Literal["nothing", "finite"] = "nothing",
) -> Flow:
    """Computes which tokens can influence which outputs over layers of attention with residual connections.

    `masks` is a list with one mask for each layer, or one mask for all `layers`. `fill` is the behaviour of a query that may
    read no key: with "nothing" [default], it reads nothing; with "finite", it reads the mean of all values, as in models that
    hide each score by the same finite number.

    >>> import noren as nr
    >>> flow = nr.flow("sliding(3)", 20, layers=4)
    >>> flow.receptive_field(19)[-1]
    [range(11, 20)]
    >>> flow.witness(12, 19)
    token 12 -> token 13 in layer 0 -> token 15 in layer 1 -> token 17 in layer 2 -> token 19 in layer 3
    >>> flow.check("deny: token(3) -> token(19)")
    holds: none of the 1 denied pairs is reached over 4 layer(s), 1 head(s) and 1 batch row(s)

    An integer as `shape` is the number of tokens, with one batch row and one head: a mask with `heads(...)` or `batch(...)` needs
    a `Shape`. Raises TypeError for a wrong number of layers and `noren.Error` for masks that do not fit the shape and facts.
    """
    if isinstance(masks, (Mask, str)):
        if layers is None:
            raise TypeError("one mask was given for all layers: give the number of layers as layers=..., or a list of masks")
        masks = [masks] * layers
    elif layers is not None and layers != len(masks):
        raise TypeError(f"{len(masks)} masks were given, but layers={layers}: leave out layers=, or give one mask for each layer")
    return Flow(list(masks), shape, facts, fill=fill)


def path(written: str, text: str) -> Path:
    """Returns a path from its JSON and its text."""
    given = json.loads(written)
    return Path(given["source"], tuple(tuple(step) for step in given["steps"]), text)


def cuts(written: str) -> list[Cut]:
    """Returns the cuts of all layers from their JSON."""
    return [Cut(**cut) for cut in json.loads(written)]


def closure(cells: bytearray, tokens: int) -> NDArray[np.bool_]:
    """Returns the influence of `tokens` tokens on each other as booleans `[tokens, tokens]`."""
    import numpy as np

    return np.frombuffer(cells, np.bool_).reshape(tokens, tokens)


def ruling(written: str, words: tuple[Literal["holds", "broken", "nothing established"], str, list[str]]) -> Ruling:
    """Returns a ruling from its JSON and its texts: the verdict, a summary, and one text for each rule."""
    given = json.loads(written)
    rules = []
    for rule, said in zip(given["rules"], words[2], strict=True):
        found, cut = rule.pop("witness"), rule.pop("cut")
        steps = [] if found is None else [f"token {found['source']}", *(f"token {token} in layer {layer}" for layer, token in found["steps"])]
        witness = None if found is None else path(json.dumps(found), " -> ".join(steps))
        rules.append(RuleVerdict(**rule, witness=witness, cut=None if cut is None else tuple(cut), text=said))
    counts = {name: given[name] for name in ("pairs", "batch_rows", "heads", "layers")}
    empty = tuple(EmptyGroup(**group) for group in given["empty"])
    return Ruling(words[0], tuple(rules), **counts, empty=empty, text=words[1])

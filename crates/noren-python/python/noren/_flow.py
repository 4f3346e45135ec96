"""`noren.flow`: which tokens can influence which outputs over several layers, policies about it, and certificates."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from ._noren import Facts, Mask, Shape, _Certificate, _Flow

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Tokens = Any
"""A token, a range, or a list of these."""
Ranges = list[tuple[int, int]]
"""Tokens as `[(start, end), ...]`."""


@dataclass(frozen=True, repr=False)
class Path:
    """How something gets from a source to an output."""

    source: int
    steps: tuple[tuple[int, int], ...]
    """Layer, and the token that reads the one before in it."""
    text: str

    def __repr__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Cut:
    """What it takes to cut sources from targets in one layer."""

    layer: int
    cells: int
    """Cells of its mask that carry something on the way."""
    enough: bool
    """Whether hiding them is enough: not where tokens that already know keep it until a later layer."""


@dataclass(frozen=True, repr=False)
class RuleVerdict:
    """What one `deny` line says of one batch row."""

    rule: str
    batch: int
    sources: int
    """Number of tokens of the first group."""
    targets: int
    """Number of tokens of the second group."""
    pairs: int
    """Number of denied pairs of a source and another token, a target, after the `allow` lines."""
    reached_pairs: int
    """Number of denied pairs whose target is reached; a lower bound unless `counted` is `"exact"`."""
    counted: Literal["exact", "at least"]
    witness: Path | None
    """How one of the targets is reached."""
    cut: tuple[int, int] | None
    """The layer where cutting is cheapest, and its cells, where one layer is enough."""
    cut_computed: bool
    """Whether `cut` was looked for."""
    text: str

    @property
    def violated(self) -> bool:
        """Whether a denied pair is reached."""
        return self.reached_pairs > 0

    def __repr__(self) -> str:
        return self.text


@dataclass(frozen=True)
class EmptyGroup:
    """A group that has no tokens in a batch row, of a line that says `maybe`."""

    rule: str
    group: str
    batch: int


@dataclass(frozen=True, repr=False)
class Ruling:
    """What a policy says of a stack; it has no truth value by itself, ask `holds` or `verdict`."""

    verdict: Literal["holds", "broken", "nothing established"]
    rules: tuple[RuleVerdict, ...]
    """One for each `deny` line and batch row."""
    pairs: int
    """Denied pairs of all of them together."""
    batch_rows: int
    heads: int
    layers: int
    empty: tuple[EmptyGroup, ...]
    text: str

    @property
    def holds(self) -> bool:
        """Whether at least one pair is denied and none of them is reached."""
        return self.verdict == "holds"

    @property
    def violations(self) -> tuple[RuleVerdict, ...]:
        """The lines and batch rows of which a denied pair is reached."""
        return tuple(rule for rule in self.rules if rule.violated)

    def __bool__(self) -> bool:
        raise TypeError("a ruling holds, is broken or establishes nothing: ask ruling.holds or ruling.verdict")

    def __repr__(self) -> str:
        return "\n".join([self.text, *(violation.text for violation in self.violations)])


class Flow(_Flow):
    """Which tokens can influence which outputs over a stack of masks, exactly; see `noren.flow`."""

    def witness(self, sources: Tokens, targets: Tokens, *, batch: int = 0) -> Path | None:
        """A way from one of `sources` to one of `targets` over the fewest layers, or none."""
        found = self._witness(sources, targets, batch=batch)
        return None if found is None else _path(json.loads(found[0]), found[1])

    def cuts(self, sources: Tokens, targets: Tokens, *, batch: int = 0) -> list[Cut]:
        """For each layer the cells that carry something from `sources` to `targets`, and whether hiding them is enough."""
        return [Cut(**cut) for cut in json.loads(self._cuts(sources, targets, batch=batch))]

    def closure(self, *, batch: int = 0) -> NDArray[np.bool_]:
        """Who knows of whom after all layers: `[output, source]`, for small inputs."""
        import numpy as np

        return np.frombuffer(self._closure(batch=batch), np.bool_).reshape(self.tokens, self.tokens)

    def check(self, policy: str) -> Ruling:
        """Holds every denied pair of tokens against the stack: lines `deny: label(pii) -> output`,
        `deny: document(i) -> document(j)`, `deny maybe: ...` where a group may be empty, `allow: ...` for exceptions; groups
        are `label(NAME)`, `document(N)`, `level(N)`, `token(N)`, `tokens(A..B)`, `output` (a target only), `all`."""
        return _ruling(*self._check(policy))

    def certify(self, policy: str) -> Certificate:
        """The same as a certificate that somebody else can check again."""
        return Certificate(self._certify(policy))


class Certificate(_Certificate):
    """A policy's verdict over a stack of masks, with everything needed to reach it again; made of its JSON.

    `not_covered` names the ways of influence that no attention mask shows.
    """

    def verify(self) -> Ruling:
        """Checks hashes and the policy again; raises `noren.Error` where the certificate was changed."""
        return _ruling(*self._verify())


def flow(
    masks: Mask | str | Sequence[Mask | str],
    shape: Shape | int,
    facts: Facts | Mapping[str, Any] | None = None,
    *,
    layers: int | None = None,
    fill: Literal["nothing", "finite"] = "nothing",
) -> Flow:
    """The flow of information over layers: one mask for each, or one mask for all `layers`.

    `fill="finite"` is for models whose hidden scores are one finite number, where a row that may read nothing reads the mean
    of everything.

    >>> import noren as nr
    >>> flow = nr.flow("sliding(3)", 20, layers=4)
    >>> flow.receptive_field(19)[-1]
    [(11, 20)]
    >>> flow.witness(12, 19)
    token 12 -> token 13 in layer 0 -> token 15 in layer 1 -> token 17 in layer 2 -> token 19 in layer 3
    >>> flow.check("deny: token(3) -> token(19)")
    holds: none of the 1 denied pairs is reached over 4 layer(s), 1 head(s) and 1 batch row(s)

    A number of tokens as `shape` means one batch row and one head: a mask with `heads(...)` or `batch(...)` needs a `Shape`.
    """
    if isinstance(masks, (Mask, str)):
        if layers is None:
            raise TypeError("one mask is for all layers: say how many, layers=...; or give a list of masks")
        masks = [masks] * layers
    elif layers is not None and layers != len(masks):
        raise TypeError(f"{len(masks)} masks for {layers} layers: leave out layers=")
    return Flow(list(masks), shape, facts, fill=fill)


def _path(given: dict[str, Any], text: str) -> Path:
    return Path(given["source"], tuple(tuple(step) for step in given["steps"]), text)


def _ruling(text: str, words: tuple[str, str, list[str]]) -> Ruling:
    given = json.loads(text)
    verdict, summary, lines = words
    rules = []
    for rule, said in zip(given["rules"], lines, strict=True):
        path, cut = rule.pop("witness"), rule.pop("cut")
        witness = None
        if path is not None:
            steps = "".join(f" -> token {token} in layer {layer}" for layer, token in path["steps"])
            witness = _path(path, f"token {path['source']}{steps}")
        rules.append(RuleVerdict(**rule, witness=witness, cut=None if cut is None else tuple(cut), text=said))
    counts = {name: given[name] for name in ("pairs", "batch_rows", "heads", "layers")}
    empty = tuple(EmptyGroup(**group) for group in given["empty"])
    return Ruling(verdict, tuple(rules), **counts, empty=empty, text=summary)  # type: ignore[arg-type]

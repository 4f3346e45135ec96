"""Policies: rules for which tokens may read private tokens, and which outputs may be released."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._noren import Error, Facts, Mask, _Policy
from ..arguments._given import integer, short
from ._find import items
from ._tokens import Tokens, check_facts, tokens_of

MOST_HEADS = 1 << 16
"""The maximum number of query heads in the arguments of a policy."""


class Policy(ABC):
    """A rule for which tokens may read private tokens: `Hide`, `Clearance` or `Heads`.

    A policy changes the mask of every layer. If one layer allowed a public token to read private tokens, later layers would
    pass on their content. The output of a private token depends on the content of this token whatever the mask, so it is not
    released.
    """

    @property
    @abstractmethod
    def _policy(self) -> _Policy: ...

    def mask(self, base: Mask | str) -> Mask:
        """Returns `base` without the cells that the policy denies. The returned mask needs the data that the method `facts`
        returns.

        Raises `Error` for a text that is not a mask, and TypeError for anything else.
        """
        if not isinstance(base, (Mask, str)):
            raise TypeError(f"`base` is {short(base)}: give a mask or its text")
        return self._policy.mask(base)

    def facts(self, tokens: Tokens, facts: Facts | Mapping[str, Any] | None = None) -> Facts:
        """Returns `facts` (data of masks) with the labels of the private tokens of each batch row added; for `Clearance`, also
        with the levels."""
        return self._policy.facts(list(tokens_of(tokens).rows), check_facts(facts))

    def released(self, tokens: Tokens) -> NDArray[np.bool_]:
        """Returns booleans `[batch, length]`: true for a token whose output may be released to the reader. Padding is never
        released."""
        known = tokens_of(tokens)
        return np.array([self._policy.rulings(row)[0] for row in known.rows], np.bool_).reshape(known.shape) & known.real

    def secret(self, tokens: Tokens) -> NDArray[np.bool_]:
        """Returns booleans `[batch, length]`: true for a token whose content must stay hidden from the reader."""
        known = tokens_of(tokens)
        return np.array([self._policy.rulings(row)[1] for row in known.rows], np.bool_).reshape(known.shape)

    def denied_heads(self, count: int) -> list[int]:
        """Returns the indices of the query heads in which no token may read private tokens. `count` is the number of query
        heads of the model."""
        number = integer("count", count)
        if not 0 <= number <= MOST_HEADS:
            raise Error(f"`count` is {number}: give a number of query heads from 0 to {MOST_HEADS}")
        return list(range(number))

    def across(self, tokens: Tokens) -> tuple[Policy, Tokens]:
        """Returns (policy, private tokens) for cross-attention. Its keys are `tokens`, the tokens of the text; its queries are
        tokens of the decoder."""
        return self, tokens_of(tokens)


@dataclass(frozen=True)
class Hide(Policy):
    """A policy with which no token reads private tokens: the mask `mask - keys(label="private")`.

    >>> Hide().mask("causal")
    causal - keys(label="private")
    """

    @property
    def _policy(self) -> _Policy:
        return _Policy.hide()


@dataclass(frozen=True)
class Clearance(Policy):
    """A policy with clearance levels: each token reads only tokens whose level is not above the token's level. The mask is
    `mask & clearance`.

    `levels` gives the level of each kind, 1 or more [default: 1]. A token of several kinds has the highest of their levels; public
    tokens have level 0. Outputs of tokens up to the level `reader` may be released.

    >>> Clearance({"email": 1, "card": 2}, reader=1).mask("causal")
    causal & clearance
    """

    levels: Mapping[str, int] = field(default_factory=dict)
    """The clearance level of each kind of private text, 1 or more."""
    reader: int = 0
    """The clearance level of the person or program that receives the outputs, 0 or more."""

    def __post_init__(self) -> None:
        if not isinstance(self.levels, Mapping):
            raise TypeError(f'`levels` is {short(self.levels)}: give a dict such as {{"email": 1, "card": 2}}')
        found = {}
        for name, given in self.levels.items():
            if not isinstance(name, str):
                raise TypeError(f"`levels` has the key {short(name)}: give names of kinds of private text")
            found[name] = _level(f"levels[{name!r}]", given)
        object.__setattr__(self, "levels", found)
        object.__setattr__(self, "reader", _level("reader", self.reader))
        if self.reader < 0:
            raise Error(f"`reader` is {self.reader}: give a clearance level of 0 or more; public tokens have level 0")
        _ = self._policy

    def __hash__(self) -> int:
        return hash((tuple(sorted(self.levels.items())), self.reader))

    @property
    def _policy(self) -> _Policy:
        return _Policy.clearance(list(self.levels.items()), self.reader)

    def across(self, tokens: Tokens) -> tuple[Policy, Tokens]:
        known = tokens_of(tokens)
        return Hide(), known.only(self.secret(known))


@dataclass(frozen=True)
class Heads(Policy):
    """A policy with which only some query heads do not read private tokens, to study the effect of attention.

    The other heads read private tokens and pass on their content. Therefore, no output of a row with private tokens is
    released.

    >>> Heads(range(2)).mask("causal")
    heads(0..2: causal - keys(label="private"), else: causal)
    """

    heads: Any
    """The query heads, counted from 0: an index, a range such as `range(2)`, or a list of these."""

    def __post_init__(self) -> None:
        heads = self.heads
        several = isinstance(heads, Iterable) and not isinstance(heads, (range, str, bytes)) and getattr(heads, "ndim", 1) > 0
        parts = tuple(_heads(part) for part in (items("heads", heads) if several else [heads]))
        if not parts:
            raise Error("`heads` is empty: give the query heads that do not read private tokens")
        object.__setattr__(self, "heads", parts)

    def denied_heads(self, count: int) -> list[int]:
        chosen = {head for part in self.heads for head in (part if isinstance(part, range) else [part])}
        return [head for head in super().denied_heads(count) if head in chosen]

    @property
    def _policy(self) -> _Policy:
        return _Policy.heads(list(self.heads))


def _heads(given: Any) -> int | range:
    """Returns `given`, an index of a head or a range of heads. Raises an error for other values."""
    part = given if isinstance(given, range) else integer("heads", given)
    ends = (part.start, part.stop - 1) if isinstance(part, range) else (part, part)
    if not 0 <= ends[0] <= ends[1] < MOST_HEADS or (isinstance(part, range) and part.step != 1):
        raise Error(f"`heads` holds {given!r}: give heads from 0 to {MOST_HEADS - 1}, as an index, a range such as range(2), or a list of these")
    return part


def _level(name: str, given: Any) -> int:
    level = integer(name, given)
    if abs(level) >= 1 << 31:
        raise Error(f"{name} is {level}: give a number below 2^31")
    return level


def check_policy(policy: Any) -> Policy:
    """Returns `policy`. Raises a TypeError if it is not a policy."""
    if isinstance(policy, Policy):
        return policy
    raise TypeError(f"`policy` is {short(policy)}: give nr.private.Hide(), Clearance(levels, reader=...) or Heads(heads)")

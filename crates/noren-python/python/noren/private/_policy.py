"""Policies: the rule for which tokens may read private tokens, and which outputs may be released."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._noren import Error, Facts, Mask, _Policy
from ._tokens import Tokens


class Policy(ABC):
    """A rule for which tokens may read private tokens: `Hide`, `Clearance` or `Heads`.

    A policy changes the mask of every layer. Otherwise, hidden content passes through a token that read it one layer earlier. A
    private token contains its own content with any mask, so its output is not released.
    """

    @property
    @abstractmethod
    def _policy(self) -> _Policy: ...

    def mask(self, base: Mask | str) -> Mask:
        """Returns `base` without the cells that the policy denies; `facts` has the facts that the mask needs."""
        return self._policy.mask(base)

    def facts(self, tokens: Tokens, facts: Facts | Mapping[str, Any] | None = None) -> Facts:
        """Returns `facts` with the labels (and for `Clearance` the levels) of the private tokens of each batch row."""
        return self._policy.facts(list(tokens.rows), facts)

    def released(self, tokens: Tokens) -> NDArray[np.bool_]:
        """Returns `[batch, length]`: true for a token whose output the reader may have; padding is never released."""
        return np.array([self._policy.rulings(row)[0] for row in tokens.rows], np.bool_).reshape(tokens.shape) & tokens.real

    def secret(self, tokens: Tokens) -> NDArray[np.bool_]:
        """Returns `[batch, length]`: true for a token whose content is hidden from the reader."""
        return np.array([self._policy.rulings(row)[1] for row in tokens.rows], np.bool_).reshape(tokens.shape)

    def across(self, tokens: Tokens) -> tuple[Policy, Tokens]:
        """Returns the policy, and the private tokens, for cross-attention, whose keys are `tokens` and whose queries are other tokens."""
        return self, tokens


@dataclass(frozen=True)
class Hide(Policy):
    """No token reads private tokens: `mask - keys(label="private")`.

    >>> Hide().mask("causal")
    causal - keys(label="private")
    """

    @property
    def _policy(self) -> _Policy:
        return _Policy.hide()


@dataclass(frozen=True)
class Clearance(Policy):
    """Each token reads tokens up to its own level: `mask & clearance`.

    `levels` gives the level of each kind, 1 or more [default: 1]. A token of several kinds has the highest of their levels; public
    tokens have level 0. Outputs of tokens up to the level `reader` may be released.

    >>> Clearance({"email": 1, "card": 2}, reader=1).mask("causal")
    causal & clearance
    """

    levels: Mapping[str, int] = field(default_factory=dict)
    """The level of each kind."""
    reader: int = 0
    """The reader's level."""

    def __post_init__(self) -> None:
        if not isinstance(self.levels, Mapping):
            raise TypeError(f'levels is {self.levels!r}: give a dict such as {{"email": 1, "card": 2}}')
        for name, level in [*self.levels.items(), ("reader", self.reader)]:
            if not isinstance(name, str) or isinstance(level, bool) or not isinstance(level, int):
                raise TypeError(f"the level of {name!r} is {level!r}: give whole numbers by the names of kinds")
            if abs(level) >= 1 << 31:
                raise Error(f"the level of {name!r} is {level}: give a number below 2^31")
        object.__setattr__(self, "levels", dict(self.levels))
        _ = self._policy

    def __hash__(self) -> int:
        return hash((tuple(sorted(self.levels.items())), self.reader))

    @property
    def _policy(self) -> _Policy:
        return _Policy.clearance(list(self.levels.items()), self.reader)

    def across(self, tokens: Tokens) -> tuple[Policy, Tokens]:
        return Hide(), tokens.only(self.secret(tokens))


@dataclass(frozen=True)
class Heads(Policy):
    """Only some query heads are prevented from reading private tokens, to study the effect of attention.

    The other heads read private tokens and pass on their content. So no output of a row with private tokens is released.

    >>> Heads(range(2)).mask("causal")
    heads(0..2: causal - keys(label="private"), else: causal)
    """

    heads: Any
    """The query heads: an index, a range or a list."""

    def __post_init__(self) -> None:
        _ = self._policy

    @property
    def _policy(self) -> _Policy:
        return _Policy.heads(self.heads)


def check_policy(policy: Any) -> Policy:
    """Returns a policy. Raises a TypeError for anything else."""
    if isinstance(policy, Policy):
        return policy
    raise TypeError(f"policy is {policy!r}: give nr.private.Hide(), Clearance(levels, reader=...) or Heads(heads)")

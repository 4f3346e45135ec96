"""Batches with a maximum number of tokens, as a batch sampler for PyTorch's DataLoader."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from .._noren import Error
from ._input import TOKENS, choice, ids, number


class TokenBudgetBatches:
    """Groups texts into batches of at most `budget` tokens: `DataLoader(data, batch_sampler=TokenBudgetBatches(lengths, 8192))`.

    With `count="padded"`, padding counts too: a batch costs the length of its longest text times its number of texts. With
    `count="packed"`, a batch costs the sum of the lengths of its texts. Every text is in exactly one batch.

    `shuffle=True` shuffles the texts by `seed` and `epoch`, in the same order on every machine. `bucket` is the number of
    consecutive texts that are sorted by length before they are grouped, to reduce padding [default: 1, no sorting]. With
    `shuffle=True`, the batches are shuffled too.

    Raises `noren.Error` for a text that alone exceeds the budget.

    >>> from noren.data import TokenBudgetBatches
    >>> list(TokenBudgetBatches([3, 1, 4, 2, 6], 8))
    [[0, 1], [2, 3], [4]]
    """

    def __init__(
        self,
        lengths: Sequence[int],
        budget: int,
        *,
        count: str = "padded",
        shuffle: bool = False,
        seed: int = 0,
        bucket: int = 1,
    ) -> None:
        self.lengths = ids("lengths", lengths)
        self.budget = number("budget", budget, 1, TOKENS)
        self.count = choice("count", count, ("padded", "packed"))
        if not isinstance(shuffle, bool):
            raise TypeError(f"shuffle is a {type(shuffle).__name__}: give True or False")
        self.shuffle = shuffle
        self.seed = number("seed", seed, 0, 2**63 - 1)
        self.bucket = number("bucket", bucket, 1)
        self._epoch = 0
        self._made: tuple[int, list[list[int]]] | None = None
        if len(self.lengths) and self.lengths.max() > self.budget:
            at = int(self.lengths.argmax())
            raise Error(f"text {at} has {self.lengths[at]} tokens, but a batch may have at most {budget}: give a larger budget, or truncate the text")

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch. Another epoch changes the order of the texts if `shuffle` is true. The method has the name of the one
        in PyTorch's DistributedSampler.
        """
        self._epoch = number("epoch", epoch, 0, 2**63 - 1)

    def __iter__(self) -> Iterator[list[int]]:
        return iter([list(batch) for batch in self._batches()])

    def __len__(self) -> int:
        return len(self._batches())

    def __repr__(self) -> str:
        return f"<{len(self)} batches of at most {self.budget} tokens, {len(self.lengths)} texts>"

    def _batches(self) -> list[list[int]]:
        """Returns the batches of the current epoch as lists of indices of texts. The batches are stored until the epoch
        changes."""
        if self._made is None or self._made[0] != self._epoch:
            self._made = (self._epoch, self._grouped())
        return self._made[1]

    def _grouped(self) -> list[list[int]]:
        size = len(self.lengths)
        order: Any = np.arange(size)
        if self.shuffle:
            order = self._shuffled(size, 0)
        if self.bucket > 1:
            parts = [order[start : start + self.bucket] for start in range(0, size, self.bucket)]
            order = np.concatenate([part[np.argsort(self.lengths[part], kind="stable")] for part in parts] or [order])
        batches: list[list[int]] = []
        longest = total = 0
        for at in order.tolist():
            tokens = int(self.lengths[at])
            longest, total = max(longest, tokens), total + tokens
            cost = longest * (len(batches[-1]) + 1) if batches and self.count == "padded" else total
            if not batches or cost > self.budget:
                batches.append([])
                longest = total = tokens
            batches[-1].append(at)
        if self.shuffle and self.bucket > 1:
            return [batches[at] for at in self._shuffled(len(batches), 1)]
        return batches

    def _shuffled(self, size: int, purpose: int) -> Any:
        """Returns the integers from 0 to `size - 1` in a random order, which depends on the seed, the epoch and `purpose`: 0 to
        shuffle texts, 1 to shuffle batches.
        """
        words = np.random.Philox(key=self.seed + (self._epoch << 64), counter=purpose << 192).random_raw(size)
        return np.lexsort((np.arange(size), words))

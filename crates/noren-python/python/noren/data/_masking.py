"""Corruption of tokens for masked language modelling: the tokens to predict and their replacements."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._arrays import Array
from .._noren import Error
from ._input import Bools, Ints, choice, flags, id_set, ids, is_torch, items, number, same_shape, share


@dataclass(frozen=True)
class MaskedTokens:
    """Corrupted tokens, and labels with the original ids of the tokens to predict, both `[batch, length]`."""

    input_ids: Array
    """The token ids, of which some are replaced."""
    labels: Array
    """The original ids of the tokens to predict; `ignore_index` at all other tokens. These labels are not shifted."""


@dataclass(frozen=True, kw_only=True)
class TokenMasking:
    """The corruption of masked language modelling (BERT, Devlin et al. 2019), with a seed.

    A share of the tokens is selected for prediction. Most of the selected tokens are replaced by the mask token, some by random
    tokens, and the rest stays unchanged. Padding and special tokens are never selected. Special tokens are never used as random
    tokens.

    The random choices for a text depend only on the seed, the epoch and the tokens of the text (or its row id, if given). They
    do not depend on padding, on other rows of the batch or on the order of rows.

    Raises `noren.Error` for shares outside of 0 to 1 and for ids outside of the vocabulary.

    >>> import numpy as np
    >>> from noren.data import TokenMasking
    >>> corrupt = TokenMasking(mask_token_id=4, vocab_size=100, special_token_ids=[0, 1, 2], probability=0.5, seed=7)
    >>> ids = np.array([[1, 20, 21, 22, 23, 2], [1, 30, 31, 2, 0, 0]])
    >>> made = corrupt(ids, attention_mask=ids != 0)
    >>> bool((made.labels[ids <= 2] == -100).all()), bool((made.input_ids[made.labels == -100] == ids[made.labels == -100]).all())
    (True, True)
    """

    mask_token_id: int
    """The id of the mask token."""
    vocab_size: int
    """The number of token ids; random tokens are drawn from all ids that are not special."""
    special_token_ids: Sequence[int] = ()
    """Ids that are never selected and never inserted, such as those of [CLS], [SEP] and [PAD]. The mask token always counts as
    special."""
    probability: float = 0.15
    """The share of tokens that is selected, among the tokens that are neither special nor padding."""
    mask_share: float = 0.8
    """The share of the selected tokens that are replaced by the mask token."""
    random_share: float = 0.1
    """The share of the selected tokens that are replaced by random tokens."""
    selection: str = "probability"
    """`"probability"`: each token is selected with `probability`, so a short text may have no selected token. `"exact"`:
    `probability * n` of the `n` tokens that may be selected are selected, rounded to a whole number of at least 1. In each
    text, the numbers of mask tokens and of random tokens then differ from the exact shares by less than one token."""
    seed: int = 0
    ignore_index: int = -100
    """The label of tokens that are not predicted."""
    _excluded: Ints = field(init=False, repr=False, compare=False)
    _inside: Ints = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        mask = number("mask_token_id", self.mask_token_id, 0)
        vocabulary = number("vocab_size", self.vocab_size, 1)
        special = id_set("special_token_ids", self.special_token_ids)
        if mask >= vocabulary:
            raise Error(f"mask_token_id is {mask}, but vocab_size is {vocabulary}: give a vocab_size above every token id")
        # Special tokens beyond the vocabulary (added tokens) are never drawn, so they need no check.
        excluded = np.array(sorted({mask, *special}), np.int64)
        inside = excluded[excluded < vocabulary]
        for name in ("probability", "mask_share", "random_share"):
            object.__setattr__(self, name, share(name, getattr(self, name)))
        if self.mask_share + self.random_share > 1.0 + 1e-9:
            total = self.mask_share + self.random_share
            raise Error(f"mask_share and random_share have the sum {total:g}: give shares with a sum of at most 1")
        if self.random_share > 0.0 and len(inside) == vocabulary:
            raise Error(f"all {vocabulary} ids of the vocabulary are special: give random_share=0, or a larger vocab_size")
        choice("selection", self.selection, ("probability", "exact"))
        stored = {
            "mask_token_id": mask,
            "vocab_size": vocabulary,
            "special_token_ids": special,
            "seed": number("seed", self.seed, -(2**63), 2**64 - 1),
            "ignore_index": number("ignore_index", self.ignore_index, -(2**31)),
            "_excluded": excluded,
            "_inside": inside,
        }
        for name, value in stored.items():
            object.__setattr__(self, name, value)

    @classmethod
    def from_tokenizer(cls, tokenizer: Any, **options: Any) -> TokenMasking:
        """Returns a `TokenMasking` with the ids of a tokenizer of transformers: its mask token, special tokens and vocabulary.

        Raises `noren.Error` if the tokenizer has no mask token.
        """
        missing = [name for name in ("mask_token_id", "all_special_ids", "__len__") if not hasattr(tokenizer, name)]
        if missing:
            raise TypeError(f"{type(tokenizer).__name__} has no {missing[0]}: give a tokenizer of transformers, or give the ids as arguments of TokenMasking")
        if tokenizer.mask_token_id is None:
            raise Error("the tokenizer has no mask token: add one (tokenizer.add_special_tokens), and resize the model's embedding")
        given = {"mask_token_id": tokenizer.mask_token_id, "vocab_size": len(tokenizer)}
        known = [option.name for option in fields(cls) if option.init]
        unknown = sorted(set(options) - set(known))
        if unknown:
            raise TypeError(f"{unknown[0]!r} is not an option of TokenMasking: give {', '.join(known)}")
        return cls(**{**given, "special_token_ids": tuple(tokenizer.all_special_ids), **options})

    def __call__(
        self,
        input_ids: Array,
        attention_mask: Array | None,
        *,
        special_tokens_mask: Array | None = None,
        row_ids: Array | None = None,
        epoch: int = 0,
    ) -> MaskedTokens:
        """Returns the corrupted tokens and the labels.

        `input_ids` are `[batch, length]`. `attention_mask` has the same shape: 1 for a token, 0 for padding; `None` declares
        that there is no padding. `special_tokens_mask` has 1 for further tokens that are never selected. `row_ids` are the
        numbers of the texts in the data set, one for each row [default: a text is identified by its tokens, so equal texts get
        equal choices]. Another `epoch` makes other choices.

        Arrays of NumPy, tensors of PyTorch and nested lists are accepted; tensors give tensors on the same device. The given
        arrays are not changed.
        """
        tokens = ids("input_ids", input_ids, 2)
        real = np.ones(tokens.shape, np.bool_)
        if attention_mask is not None:
            real = flags("attention_mask", attention_mask, 2, "a token")
            same_shape("attention_mask", real, "input_ids", tokens)
        free = real & ~np.isin(tokens, self._excluded)
        outside = tokens[free & (tokens >= self.vocab_size)]
        if outside.size:
            raise Error(
                f"input_ids holds {outside[0]}, but vocab_size is {self.vocab_size}: give a vocab_size above every token id, or add the id to special_token_ids"
            )
        if special_tokens_mask is not None:
            special = flags("special_tokens_mask", special_tokens_mask, 2, "a special token")
            same_shape("special_tokens_mask", special, "input_ids", tokens)
            free &= ~special
        number("epoch", epoch, 0, 2**63 - 1)
        names = self._names(row_ids, tokens, real)
        out, labels = tokens.copy(), np.full(tokens.shape, self.ignore_index, np.int64)
        for row, name in enumerate(names):
            self._corrupt(out[row], labels[row], real[row], free[row], _key(self.seed, epoch, name))
        return MaskedTokens(_like(out, input_ids), _like(labels, input_ids))

    def _names(self, row_ids: Array | None, tokens: Ints, real: Bools) -> list[bytes]:
        """Returns for each text the bytes that identify it in the random choices: its row id, or its tokens if `row_ids` is
        None."""
        if row_ids is None:
            return [b"text" + row[keep].astype("<i8").tobytes() for row, keep in zip(tokens, real, strict=True)]
        given = [number("row_ids", value, -(2**63), 2**63 - 1) for value in items("row_ids", row_ids, "numbers")]
        if len(given) != len(tokens):
            raise Error(f"row_ids has {len(given)} entries, but input_ids has {len(tokens)} rows: give one number for each row")
        return [b"row" + value.to_bytes(8, "little", signed=True) for value in given]

    def _corrupt(self, out: Ints, labels: Ints, real: Bools, free: Bools, key: int) -> None:
        """Selects and replaces tokens of one row in place: writes the replacements to `out` and the labels to `labels`.

        For each token that is not padding, three random numbers are drawn: for the selection, for the kind of replacement, and
        for the random token.
        """
        at = np.flatnonzero(real)
        words = np.random.Philox(key=key).random_raw(3 * len(at) + 1)
        draws = (words >> np.uint64(11)).astype(np.float64) * 2.0**-53
        draws, start = draws[:-1].reshape(-1, 3), float(draws[-1])
        may = free[at]
        at, draws = at[may], draws[may]
        if self.selection == "exact":
            count = 0 if self.probability == 0.0 else min(len(at), max(1, int(self.probability * len(at) + 0.5)))
            order = np.lexsort((at, draws[:, 0]))[:count]
            point = (np.argsort(np.argsort(draws[order, 1])) + start) / max(count, 1)
        else:
            order = np.flatnonzero(draws[:, 0] < self.probability)
            point = draws[order, 1]
        at, draws = at[order], draws[order]
        labels[at] = out[at]
        out[at[point < self.mask_share]] = self.mask_token_id
        swapped = (point >= self.mask_share) & (point < self.mask_share + self.random_share)
        out[at[swapped]] = self._random_tokens(draws[swapped, 2])

    def _random_tokens(self, draws: NDArray[np.float64]) -> Ints:
        """Converts random numbers between 0 and 1 to token ids that are not special."""
        inside = self._inside
        nth = (draws * (self.vocab_size - len(inside))).astype(np.int64)
        # The nth id that is not special: add the number of special ids before it.
        return nth + np.searchsorted(inside - np.arange(len(inside)), nth, side="right")


def _key(seed: int, epoch: int, name: bytes) -> int:
    """Returns the 128-bit key of the generator of the random numbers of a text; `name` are the bytes that identify the text."""
    start = (int(seed) % 2**64).to_bytes(8, "little") + int(epoch).to_bytes(8, "little")
    return int.from_bytes(hashlib.blake2b(start + name, digest_size=16).digest(), "little")


def _like(array: Ints, like: Array) -> Array:
    """Returns the array as a tensor on the device of `like` if `like` is a tensor of PyTorch, otherwise unchanged."""
    if not is_torch(like):
        return array
    import torch

    return torch.from_numpy(array).to(like.device)

"""Folding: sequences that begin with the same tokens are put into rows in which each shared prefix occurs once."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .. import _noren
from .._noren import Error, Mask
from ..arguments._arrays import Array
from ..arguments._given import whole
from ._input import TOKENS, Bools, Ints, as_tensors, column, counted, flags, ids, items
from ._rows import Rows

if TYPE_CHECKING:
    from torch import Tensor

Runs = list[tuple[int, int, int, int, int]]
"""The runs of a row. A run has consecutive tokens of the prefix tree, without a branch between them: (first token, token after
the last, index of the parent run or -1, position of the first token, index of a sequence that contains the run)."""
TERM = re.compile(r"causal|sliding\((?P<keys>\d+)\)|window\(left=(?P<before>\d+)\)|chunk\((?P<chunk>\d+)\)|padding")
"""The masks of a layer that folding supports, as terms of the mask's text: they can also be applied along the paths of a prefix
tree."""


@dataclass(frozen=True, eq=False)
class Fold(Rows):
    """Sequences in rows, `[rows, length]`, in which each shared prefix occurs once. Made by `noren.fold`."""

    input_ids: Ints
    """The tokens, `[rows, length]`; `pad_token_id` after the last token of a row."""
    position_ids: Ints
    """The position of each token in the sequences that contain it, from 0, `[rows, length]`; 0 for padding."""
    parents: Ints
    """For each token, the index in its row of the previous token of its sequence, `[rows, length]`; -1 for the first token of a
    sequence and for padding."""
    label_weights: NDArray[np.float64]
    """For each token, the number of sequences in whose loss the token is a label, `[rows, length]`; 0 for the first token of a
    sequence."""
    lengths: tuple[int, ...]
    """The number of tokens of each row, without padding."""
    sequences: tuple[tuple[int, Ints], ...]
    """For each sequence given to `fold`: (index of the row that contains it, indices in this row of its tokens)."""
    _runs: tuple[Runs, ...]
    _trees: dict[tuple[int | None, int | None], Mask] = field(default_factory=dict)

    @property
    def token_count(self) -> int:
        """The number of tokens of all rows, without padding."""
        return sum(self.lengths)

    @property
    def unfolded_token_count(self) -> int:
        """The number of tokens of all sequences without folding: the tokens of a shared prefix count once for each sequence."""
        return sum(len(slots) for _, slots in self.sequences)

    @property
    def mask(self) -> Mask:  # type: ignore[override]
        """The mask in which each token reads itself and the tokens before it in its own sequence."""
        return self._tree(None, None)

    def tree(self, *, window: int | None = None, chunk: int | None = None) -> Mask:
        """Returns a mask in which each token reads itself and earlier tokens of its sequence: all of them [default], only the
        last `window` tokens (itself included), or only those in its chunk of `chunk` tokens.

        Windows and chunks count the tokens of one sequence, as `sliding(window)` and `chunk(chunk)` do without folding.
        """
        window = None if window is None else whole("window", window, 1)
        chunk = None if chunk is None else whole("chunk", chunk, 1)
        trees = [
            _noren.tree([run[2] for run in runs], runs=[run[1] - run[0] for run in runs], window=window, chunk=chunk) for runs in self._runs
        ]
        return trees[0] if len(trees) == 1 else _noren.batch([*enumerate(trees[:-1]), ("else", trees[-1])])

    def inputs(self, device: Any = None) -> dict[str, Any]:
        """Returns the arguments of a causal model of transformers with `attn_implementation="noren"`: `model(**fold.inputs()).logits`.

        A layer with a sliding window or chunks gets the mask `tree` with the same window or chunk. A layer with another mask
        raises `noren.Error` when the model is called.
        """
        real = np.arange(self.input_ids.shape[1]) < np.array(self.lengths)[:, None]
        tensors = as_tensors({"input_ids": self.input_ids, "position_ids": self.position_ids, "attention_mask": real.astype(np.int64)}, device)
        return {**tensors, "noren_mask": self.layer_mask, "use_cache": False}

    def layer_mask(self, call: Any) -> Any:
        """Returns the mask that a layer uses for this fold: the tree, with the window or chunk of the layer's mask in `call` (a
        `noren.torch.MaskCall`)."""
        from ..torch import Replace

        if (call.batch, call.q_len, call.kv_len) != (*self.input_ids.shape, self.input_ids.shape[1]):
            raise Error(
                f"the layer has {call.batch} rows, {call.q_len} queries and {call.kv_len} keys, but the rows of the fold are "
                f"{self.input_ids.shape}: call the model with fold.inputs() alone, without a cache"
            )
        windows, chunks = [], []
        terms = str(call.mask).split(" & ")
        for term in terms:
            found = TERM.fullmatch(term)
            if found is None or not any(name == "causal" or name.startswith("sliding") for name in terms):
                raise Error(f"layer {call.layer} has the mask {call.mask}, which cannot be folded: only causal masks, also with a window or chunks, can be folded")
            windows += [int(found["keys"])] if found["keys"] else [int(found["before"]) + 1] if found["before"] else []
            chunks += [int(found["chunk"])] if found["chunk"] else []
        if len(set(chunks)) > 1:
            raise Error(f"layer {call.layer} has the mask {call.mask} with chunks of several lengths: only chunks of one length can be folded")
        return Replace(self._tree(min(windows, default=None), min(chunks, default=None)))

    def _tree(self, window: int | None, chunk: int | None) -> Mask:
        if (window, chunk) not in self._trees:
            self._trees[window, chunk] = self.tree(window=window, chunk=chunk)
        return self._trees[window, chunk]

    def unfold(self, values: Array) -> list[Array]:
        """Returns the values of each sequence, `[length of the sequence, ...]`, in the order of the sequences given to `fold`.

        `values` is an array or tensor `[rows, length, ...]`, such as hidden states. Gradients of tensors are kept: the gradient
        of a shared token is the sum over its sequences.
        """
        self._check_values(values)
        return [values[row, slots] for row, slots in self.sequences]

    def log_probs(self, logits: Tensor) -> list[Tensor]:
        """Returns for each sequence the logarithms of the probabilities of its tokens after the first,
        `[length of the sequence - 1]`.

        `logits` are `[rows, length, vocabulary]`. The computation is in float32 or float64, once for each shared token.
        """
        from ..torch._fold import log_probs

        values = log_probs(self, logits)
        return [values[row, slots[1:]] for row, slots in self.sequences]

    def loss(self, logits: Tensor) -> Tensor:
        """Returns the loss of the unfolded batch: the mean cross entropy over the labels of all sequences.

        `logits` are `[rows, length, vocabulary]`. If sequences continue differently after a shared token, the loss at this
        token counts the next token of every sequence. If there are no labels, the loss is 0. The gradients are those of the
        unfolded batch.
        """
        from ..torch._fold import loss

        return loss(self, logits)

    def __repr__(self) -> str:
        rows, length = self.input_ids.shape
        return (
            f"<{counted(len(self.sequences), 'sequence')} with {counted(self.unfolded_token_count, 'token')}, folded to "
            f"{counted(self.token_count, 'token')} in {counted(rows, 'row')} of {length}>"
        )


setattr(Fold.layer_mask, "separates_sequences", True)  # so that positions that begin again are no mistake


def fold(
    sequences: Sequence[Any],
    *,
    budget: int | None = None,
    min_prefix: int = 1,
    max_prompts: int | None = None,
    max_length: int | None = None,
    pad_token_id: int = 0,
) -> Fold:
    """Folds sequences that begin with the same tokens: each shared prefix occurs once, and is computed once.

    A sequence is a list or array of token ids, or a mapping with `input_ids` and, optionally, `loss_mask` (1 for a token whose
    prediction counts in the loss). The rows are prefix trees, depth first: a token reads itself and the tokens before it in its
    own sequence. Use folding for continuations of one prompt (GRPO, DPO, best of n) and for documents with a common start.

    `budget` is the maximum number of tokens of a row [default: all sequences in one row]. A prefix occurs once in each row that
    contains sequences with this prefix. `min_prefix` is the minimum number of tokens of a shared prefix. Sequences of a row
    that share a prefix form a group; `max_prompts` is the maximum number of groups in a row. Sequences are cut to their first
    `max_length` tokens.

    Raises TypeError for sequences that are not token ids, and `noren.Error` for empty sequences, a budget below the longest sequence, and
    more than 2**26 tokens.

    >>> import noren as nr
    >>> fold = nr.fold([[5, 6, 7, 8], [5, 6, 9, 9], [5, 6, 7, 4]])
    >>> fold
    <3 sequences with 12 tokens, folded to 7 tokens in 1 row of 7>
    >>> fold.input_ids.tolist(), fold.position_ids.tolist()
    ([[5, 6, 7, 4, 8, 9, 9]], [[0, 1, 2, 3, 3, 2, 3]])
    >>> fold.mask
    tree(parents=[-1, 0, 1, 1, 0], runs=[2, 1, 1, 1, 2])
    >>> [part.tolist() for part in fold.unfold(fold.input_ids)]
    [[5, 6, 7, 8], [5, 6, 9, 9], [5, 6, 7, 4]]
    """
    most = {"budget": budget, "max_prompts": max_prompts, "max_length": max_length}
    limits = {name: None if value is None else whole(name, value, 1, TOKENS) for name, value in most.items()}
    whole("min_prefix", min_prefix, 1, TOKENS)
    tokens, learned = _read(items("sequences", sequences, "token id lists"), limits["max_length"])
    joined = np.concatenate(tokens) if tokens else np.zeros(0, np.int64)
    runs, places = _noren.fold_sequences(joined.tobytes(), [len(given) for given in tokens], limits["budget"], min_prefix, limits["max_prompts"])
    lengths = tuple(row[-1][1] for row in runs)
    shape = (len(runs), max(lengths))
    if shape[0] * shape[1] > TOKENS:
        raise Error(f"{counted(shape[0], 'row')} of {shape[1]} tokens exceed the limit of {TOKENS} tokens: give fewer sequences")
    input_ids = np.full(shape, whole("pad_token_id", pad_token_id), np.int64)
    position_ids = np.zeros(shape, np.int64)
    parents = np.full(shape, -1, np.int64)
    for row, found in enumerate(runs):
        for start, end, parent, position, sequence in found:
            input_ids[row, start:end] = tokens[sequence][position : position + end - start]
            position_ids[row, start:end] = np.arange(position, position + end - start)
            parents[row, start:end] = np.arange(start - 1, end - 1)
            parents[row, start] = found[parent][1] - 1 if parent >= 0 else -1
    slots = tuple((row, np.concatenate([np.arange(*span) for span in spans])) for row, spans in places)
    weights = np.zeros(shape)
    for (row, own), counts in zip(slots, learned, strict=True):
        weights[row, own[1:]] += counts[1:]
    return Fold(input_ids, position_ids, parents, weights, lengths, slots, tuple(runs))


def _read(rows: list[Any], length: int | None) -> tuple[list[Ints], list[Bools]]:
    """Returns (token ids, flags) for each sequence of `rows`. A flag is true if the prediction of the token counts in the loss.
    Sequences are cut to `length` tokens; None: not cut."""
    tokens, learned = [], []
    mappings = [isinstance(row, Mapping) for row in rows]
    if any(mappings) and not all(mappings):
        raise TypeError(f"sequence {mappings.index(False)} is a {type(rows[mappings.index(False)]).__name__}, but sequence {mappings.index(True)} is a mapping: give lists only, or mappings only")
    masks = column(rows, "loss_mask", "sequence") if any(mappings) else []
    for at, row in enumerate(rows):
        if isinstance(row, Mapping) and "input_ids" not in row:
            raise Error(f'sequence {at} has no "input_ids": give the token ids under this key')
        given = ids(f"sequence {at}", row["input_ids"] if isinstance(row, Mapping) else row)
        mask = flags(f"loss_mask of sequence {at}", masks[at], 1, "a token whose prediction counts") if masks else np.ones(len(given), np.bool_)
        if len(mask) != len(given):
            raise Error(f"loss_mask of sequence {at} has {len(mask)} entries, but the sequence has {len(given)} tokens: give one entry for each token")
        tokens.append(given[:length])
        learned.append(mask[:length])
    if sum(map(len, tokens)) > TOKENS:
        raise Error(f"the sequences have {sum(map(len, tokens))} tokens together: give at most {TOKENS} in one call")
    return tokens, learned

"""Losses of sequences whose common beginnings are stored once (`noren.fold`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from .._noren import Error
from ..arguments._tensors import check_strided

if TYPE_CHECKING:
    from ..data import Fold


def log_probs(fold: Fold, logits: Tensor) -> Tensor:
    """Returns the logarithm of the probability of each token, given the tokens before it, as `[rows, length]`; 0 for the first
    token of a sequence."""
    _check(fold, logits)
    rows, slots = np.nonzero(fold.parents >= 0)
    out = torch.zeros(fold.input_ids.shape, dtype=_wide(logits), device=logits.device)
    place = _on(logits, rows), _on(logits, slots)
    return out.index_put(place, -_cross_entropies(fold, logits, rows, slots))


def loss(fold: Fold, logits: Tensor) -> Tensor:
    """Returns the mean cross entropy over all labels of all folded sequences."""
    _check(fold, logits)
    rows, slots = np.nonzero(fold.label_weights)
    if not len(rows):
        return logits.sum() * 0
    weights = _on(logits, fold.label_weights[rows, slots]).to(_wide(logits))
    return (_cross_entropies(fold, logits, rows, slots) * weights).sum() / weights.sum()


def _cross_entropies(fold: Fold, logits: Tensor, rows: Any, slots: Any) -> Tensor:
    """Returns the cross entropies of the tokens at the index pairs (`rows`, `slots`) of the folded batch. Each token is predicted by the
    logits of the token before it."""
    wide = logits.to(_wide(logits)).flatten(0, 1)
    before = _on(logits, rows * logits.shape[1] + fold.parents[rows, slots])
    labels = _on(logits, fold.input_ids[rows, slots])
    # One sum for each token, however many next tokens it has, and no copy of its logits.
    return wide.logsumexp(1).index_select(0, before) - wide.flatten().index_select(0, before * logits.shape[2] + labels)


def _wide(logits: Tensor) -> torch.dtype:
    return torch.float64 if logits.dtype == torch.float64 else torch.float32


def _on(logits: Tensor, array: Any) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(array)).to(logits.device)


def _check(fold: Fold, logits: Any) -> None:
    if not isinstance(logits, Tensor) or not logits.is_floating_point():
        raise TypeError(f"`logits` is a {type(logits).__name__}: give a tensor of floats [rows, length, vocabulary]")
    check_strided("logits", logits)
    if logits.dim() != 3 or tuple(logits.shape[:2]) != fold.input_ids.shape:
        raise Error(f"`logits` has shape {tuple(logits.shape)}: give [rows, length, vocabulary], with {fold.input_ids.shape} as rows and length")
    most = int(fold.input_ids.max())
    if most >= logits.shape[2]:
        raise Error(f"logits have {logits.shape[2]} tokens in the vocabulary, but the rows contain token {most}: give the logits of the model with these tokens")

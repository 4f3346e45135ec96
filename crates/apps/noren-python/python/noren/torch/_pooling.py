"""Pooling of token states, padding excluded: the mean, the maximum, the first token and the last token of each text."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .._noren import Error
from ._flags import as_flags, check_values

EMPTY = ("zero", "error")


def mean_pool(hidden: Tensor, attention_mask: Tensor, *, empty: str = "zero") -> Tensor:
    """Returns the mean of each row's tokens, `[batch, width]`; padding is not read.

    `hidden` is `[batch, length, width]`. `attention_mask` is `[batch, length]`: 1 or true for a token, 0 or false for padding, on any side.
    The sum is computed in float32 or float64, so a long text in half precision does not overflow. Gradients of padding are exactly 0, and
    the content of padding, even NaN, does not change the result.

    The mean of a row without a token is 0 and has no gradient; with `empty="error"`, such a row raises `noren.Error` instead.

    >>> import torch, noren.torch as nt
    >>> hidden = torch.tensor([[[2.0], [4.0], [float("nan")]]])
    >>> nt.mean_pool(hidden, torch.tensor([[1, 1, 0]]))
    tensor([[3.]])
    """
    keep = _tokens(hidden, attention_mask, empty)
    wide = torch.promote_types(hidden.dtype, torch.float32)
    total = hidden.masked_fill(~keep[..., None], 0.0).sum(1, dtype=wide)
    return (total / keep.sum(1, keepdim=True).clamp(min=1)).to(hidden.dtype)


def max_pool(hidden: Tensor, attention_mask: Tensor, *, empty: str = "zero") -> Tensor:
    """Returns the maximum over each row's tokens, `[batch, width]`. The arguments, and the results for rows without a token, are those of
    `mean_pool`."""
    keep = _tokens(hidden, attention_mask, empty)
    if not hidden.shape[1]:
        return hidden.sum(1)
    best = hidden.masked_fill(~keep[..., None], float("-inf")).amax(1)
    return best.masked_fill(~keep.any(1, keepdim=True), 0.0)


def first_token_pool(hidden: Tensor, attention_mask: Tensor, *, empty: str = "zero") -> Tensor:
    """Returns the state of each row's first token (such as [CLS]), `[batch, width]`, also with padding on the left.

    The arguments, and the results for rows without a token, are those of `mean_pool`.

    >>> import torch, noren.torch as nt
    >>> hidden = torch.tensor([[[9.0], [1.0], [2.0]]])
    >>> nt.first_token_pool(hidden, torch.tensor([[0, 1, 1]])), nt.last_token_pool(hidden, torch.tensor([[1, 1, 0]]))
    (tensor([[1.]]), tensor([[1.]]))
    """
    keep = _tokens(hidden, attention_mask, empty)
    return _picked(hidden, keep, last=False)


def last_token_pool(hidden: Tensor, attention_mask: Tensor, *, empty: str = "zero") -> Tensor:
    """Returns the state of each row's last token (for causal models), `[batch, width]`, also with padding on the right.

    The arguments, and the results for rows without a token, are those of `mean_pool`.
    """
    keep = _tokens(hidden, attention_mask, empty)
    return _picked(hidden, keep, last=True)


def _picked(hidden: Tensor, keep: Tensor, last: bool) -> Tensor:
    """Returns the state of the first token of each row, or of the last token if `last` is true; 0 for rows without a token."""
    length = hidden.shape[1]
    if not length:
        return hidden.sum(1)
    at: Tensor = length - 1 - keep.flip(1).int().argmax(1) if last else keep.int().argmax(1)
    picked = hidden.gather(1, at[:, None, None].expand(-1, 1, hidden.shape[2])).squeeze(1)
    return picked.masked_fill(~keep.any(1, keepdim=True), 0.0)


def _tokens(hidden: Any, attention_mask: Any, empty: Any) -> Tensor:
    """Returns `attention_mask` as booleans. Raises TypeError or `noren.Error` for arguments that are invalid or do not fit together."""
    check_values("hidden", hidden)
    if hidden.ndim != 3:
        raise Error(f"`hidden` has shape {tuple(hidden.shape)}: give [batch, length, width]")
    keep = as_flags("attention_mask", attention_mask, "a token")
    if keep.shape != hidden.shape[:2]:
        raise Error(f"attention_mask has shape {tuple(keep.shape)}, but hidden has shape {tuple(hidden.shape)}: give a mask of shape {tuple(hidden.shape[:2])} (batch, length)")
    if keep.device != hidden.device:
        raise Error(f"attention_mask is on the device {keep.device}, but hidden is on {hidden.device}: give tensors on one device")
    if not isinstance(empty, str) or empty not in EMPTY:
        raise Error(f"`empty` is {empty!r}: give 'zero' or 'error'")
    if empty == "error" and not bool(keep.any(1).all()):
        raise Error(f"batch row {int((~keep.any(1)).int().argmax())} has no token: remove the row, or give empty='zero'")
    return keep

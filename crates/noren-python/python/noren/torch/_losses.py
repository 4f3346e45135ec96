"""Losses over tokens with labels: the sum over all accumulated batches, divided by the number of these tokens."""

from __future__ import annotations

from collections.abc import Iterable
from numbers import Integral, Real
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from .._noren import Error
from ._flags import as_flags, check_data, check_ids, check_values

Count = int | float | Tensor
"""A number of tokens."""


def count_label_tokens(labels: Tensor, loss_mask: Tensor | None = None, *, shift: bool = True, ignore_index: int = -100) -> Tensor:
    """Returns the number of tokens that count in the loss of a batch, as a tensor with one whole number. The arguments are
    those of `token_loss`."""
    shift, ignore_index, _ = _options(shift, ignore_index)
    return _counted(labels, loss_mask, shift, ignore_index)[1].sum()


def token_loss(
    logits: Tensor,
    labels: Tensor,
    loss_mask: Tensor | None = None,
    *,
    tokens: Count | None = None,
    shift: bool = True,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
) -> Tensor:
    """Returns the cross entropy of all tokens with a label, divided by their number.

    `logits` are `[batch, length, vocabulary]`. `labels` are `[batch, length]` token ids, or `ignore_index`. With `shift=True`, the labels
    are those of a causal model, not shifted: the logits at `t` predict the label of token `t + 1`. With `shift=False`, the logits at `t`
    predict label `t` (masked language modelling, or labels that are shifted already). `loss_mask`, `[batch, length]`, has the same
    positions as `labels` and is 1 for labels that count.

    `tokens` is the number by which the sum is divided [default: the tokens of this batch]. For gradient accumulation, give the
    number of tokens of all accumulated batches, so that the loss does not depend on the number of batches. A batch without a
    label has loss 0 and gradients of 0, never NaN.

    Logits at positions without a label are not read: their gradients are exactly 0, also where they are NaN. The computation is
    in float32, or in float64 for float64 logits.

    Raises TypeError and `noren.Error` for shapes that do not fit together and for labels outside of the vocabulary.

    >>> import torch, noren.torch as nt
    >>> batches = [torch.tensor([[-100, 1, 2]]), torch.tensor([[-100, 3, -100]])]
    >>> logits = [torch.zeros(1, 3, 8), torch.zeros(1, 3, 8)]
    >>> tokens = sum(nt.count_label_tokens(labels) for labels in batches)
    >>> sum(nt.token_loss(x, y, tokens=tokens) for x, y in zip(logits, batches))  # ln(8)
    tensor(2.0794)
    """
    where, losses = _labelled(logits, labels, loss_mask, *_options(shift, ignore_index, label_smoothing))
    count = _normaliser(where.numel() if tokens is None else tokens, losses)
    return losses.sum() / count


class TokenMeanLoss:
    """A mean loss over batches whose number of tokens is not known in advance.

    `add` returns the sum of a batch's losses, for `backward()`. After the last batch, `finish` divides the gradients by the number
    of tokens of all batches, returns the mean loss, and starts the next accumulation. Before `finish`, the gradients are sums,
    which may exceed the range of float16: with a known number of tokens, use `token_loss(tokens=...)`.

    >>> import torch, noren.torch as nt
    >>> head, total = torch.nn.Linear(4, 8, bias=False), nt.TokenMeanLoss()
    >>> for length in (3, 5):
    ...     total.add(head(torch.ones(1, length, 4)), torch.ones(1, length, dtype=torch.long)).backward()
    >>> total.tokens
    6
    >>> total.finish(head.parameters()) > 0.0
    True
    """

    def __init__(self, *, shift: bool = True, ignore_index: int = -100, label_smoothing: float = 0.0) -> None:
        self._options = _options(shift, ignore_index, label_smoothing)
        self.tokens = 0
        """Number of tokens with a label since the last `finish`."""
        self._total = 0.0

    def add(self, logits: Tensor, labels: Tensor, loss_mask: Tensor | None = None) -> Tensor:
        """Returns the sum of the losses of a batch, and adds the batch's number of tokens with a label to `tokens`. The arguments are those
        of `token_loss`."""
        where, losses = _labelled(logits, labels, loss_mask, *self._options)
        self.tokens += where.numel()
        self._total += float(losses.detach().double().sum())
        return losses.sum()

    def finish(self, parameters: Iterable[Tensor]) -> float:
        """Divides the gradients of the parameters by the number of tokens, and returns the mean loss of all tokens.

        If no token had a label, the gradients and the mean are 0. Raises TypeError unless `parameters` are tensors.
        """
        try:
            given = [parameters] if isinstance(parameters, Tensor) else list(parameters)
        except TypeError as error:
            raise TypeError(f"`parameters` is a {type(parameters).__name__}: give model.parameters()") from error
        for parameter in given:
            if not isinstance(parameter, Tensor):
                raise TypeError(f"`parameters` contains a {type(parameter).__name__}: give model.parameters()")
        count = max(self.tokens, 1)
        for parameter in {id(parameter): parameter for parameter in given}.values():  # a shared parameter is divided once
            if parameter.grad is not None:
                parameter.grad.div_(count)
        mean = self._total / count
        self.tokens, self._total = 0, 0.0
        return mean


def _labelled(
    logits: Tensor, labels: Tensor, loss_mask: Tensor | None, shift: bool, ignore_index: int, label_smoothing: float
) -> tuple[Tensor, Tensor]:
    """Returns (positions, losses): the indices, in the flattened `[batch * length]`, of the positions that predict a label, and the loss at
    each of these positions."""
    check_values("logits", logits)
    if logits.ndim != 3 or not logits.shape[2]:
        raise Error(f"logits have shape {tuple(logits.shape)}: give [batch, length, vocabulary]")
    targets, counted = _counted(labels, loss_mask, shift, ignore_index)
    if targets.shape != logits.shape[:2]:
        raise Error(f"`labels` has shape {tuple(targets.shape)} and `logits` has shape {tuple(logits.shape)}: give labels of shape {tuple(logits.shape[:2])} (batch, length)")
    if targets.device != logits.device:
        raise Error(f"`labels` is on the device {targets.device} and `logits` on {logits.device}: give tensors on one device")
    where = counted.flatten().nonzero().squeeze(1)
    wanted = targets.flatten().index_select(0, where)
    wrong = wanted[(wanted < 0) | (wanted >= logits.shape[2])]
    if wrong.numel():
        raise Error(
            f"`labels` contains {wrong[0].item()}, but the vocabulary has {logits.shape[2]} ids: give ids of the vocabulary, or ignore_index ({ignore_index}) for tokens that are not predicted"
        )
    rows = logits.flatten(0, 1).index_select(0, where)
    wide = torch.promote_types(logits.dtype, torch.float32)
    return where, F.cross_entropy(rows.to(wide), wanted, reduction="none", label_smoothing=label_smoothing)


def _counted(labels: Any, loss_mask: Any, shift: bool, ignore_index: int) -> tuple[Tensor, Tensor]:
    """Returns (labels, counted), both `[batch, length]`: the label that each position predicts, and true if this label counts in the
    loss."""
    check_ids("labels", labels)
    if labels.ndim != 2:
        raise Error(f"`labels` has shape {tuple(labels.shape)}: give [batch, length]")
    targets = labels.long()
    counted = targets != ignore_index
    if loss_mask is not None:
        mask = as_flags("loss_mask", loss_mask, "a label that counts")
        if mask.shape != labels.shape:
            raise Error(f"loss_mask has shape {tuple(mask.shape)} and labels have shape {tuple(labels.shape)}: give one entry for each label")
        if mask.device != labels.device:
            raise Error(f"loss_mask is on the device {mask.device} and labels are on {labels.device}: give tensors on one device")
        counted = counted & mask
    if not shift:
        return targets, counted
    return F.pad(targets[:, 1:], (0, min(1, targets.shape[1]))), F.pad(counted[:, 1:], (0, min(1, targets.shape[1])))


def _normaliser(tokens: Any, losses: Tensor) -> Tensor:
    """Returns the number by which a sum of losses is divided: `tokens`, or 1 if `tokens` is 0 and the batch has no label.

    Raises `noren.Error` if `tokens` is 0 and the batch has labels.
    """
    if isinstance(tokens, Tensor):
        check_data("tokens", tokens)
        if tokens.numel() != 1 or tokens.is_complex() or tokens.dtype == torch.bool:
            raise Error(f"`tokens` is a tensor {tuple(tokens.shape)} of {tokens.dtype}: give one number")
        value = tokens.item()
    else:
        value = tokens
    if not _is_number(value, Real):
        raise TypeError(f"`tokens` is a {type(tokens).__name__}: give the number of tokens of all accumulated batches")
    if not 0.0 <= value < 2.0**63:  # also true for NaN
        raise Error(f"`tokens` is {value}: give the number of tokens of all accumulated batches, 0 or more")
    if value == 0.0 and losses.numel():
        raise Error(f"`tokens` is 0, but the batch has {losses.numel()} tokens with a label: give the number of tokens of all accumulated batches")
    return losses.new_tensor(float(value) or 1.0)


def _is_number(value: Any, kind: type) -> bool:
    """Returns true if the value is a number of the given kind (`numbers.Integral` or `numbers.Real`), of Python or NumPy, and
    not a boolean."""
    return isinstance(value, kind) and not isinstance(value, bool)


def _options(shift: Any, ignore_index: Any, label_smoothing: Any = 0.0) -> tuple[bool, int, float]:
    """Converts the options to Python's numbers and returns them in the order of the arguments. Raises TypeError for a wrong
    type and `noren.Error` for a number outside of the range."""
    if not isinstance(shift, bool):
        raise TypeError(f"`shift` is a {type(shift).__name__}: give True or False")
    if not _is_number(ignore_index, Integral):
        raise TypeError(f"ignore_index is a {type(ignore_index).__name__}: give a whole number, such as -100")
    if not _is_number(label_smoothing, Real):
        raise TypeError(f"label_smoothing is a {type(label_smoothing).__name__}: give a number from 0 to 1")
    if not -(2**63) <= ignore_index < 2**63:
        raise Error(f"ignore_index is {ignore_index}: give a whole number of 64 bits, such as -100")
    if not 0.0 <= label_smoothing <= 1.0:
        raise Error(f"label_smoothing is {label_smoothing}: give a number from 0 to 1")
    return shift, int(ignore_index), float(label_smoothing)

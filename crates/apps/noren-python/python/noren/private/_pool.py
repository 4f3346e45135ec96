"""Computes one vector for each text of a batch, without the private tokens of the text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .._noren import Error
from ..arguments._given import check_strided
from ._policy import Hide, Policy, check_policy
from ._tokens import Tokens, tokens_of

if TYPE_CHECKING:
    from torch import Tensor

    from ._encode import Encoded


def pool(states: Tensor, tokens: Tokens | Encoded, policy: Policy | None = None) -> Tensor:
    """Returns for each text the mean of the states of the tokens that the policy releases, `[batch, width]`.

    `states` are `[batch, length, width]`. The states of padding and private tokens are left out, so their numbers, even NaN,
    change no bit of the result. The vector of a row without a released token is 0. Raises `Error` for states of another batch.

    >>> import torch
    >>> tokens = Tokens.of({"name": [False, True, False]})
    >>> pool(torch.tensor([[[1.0], [torch.nan], [3.0]]]), tokens)
    tensor([[2.]])
    """
    import torch

    from ..torch import mean_pool

    known = tokens_of(tokens)
    if not isinstance(states, torch.Tensor) or not states.is_floating_point():
        given: Any = states.dtype if isinstance(states, torch.Tensor) else type(states).__name__
        raise TypeError(f"`states` is {given}: give floats [batch, length, width]")
    check_strided("states", states)
    if states.dim() != 3 or tuple(states.shape[:2]) != known.shape:
        raise Error(f"`states` has shape {list(states.shape)}, but the private tokens belong to a batch of shape {list(known.shape)}: give [batch, length, width]")
    released = check_policy(Hide() if policy is None else policy).released(known)
    return mean_pool(states, torch.from_numpy(released).to(states.device))

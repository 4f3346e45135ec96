"""Attention over a group as an attention implementation of Hugging Face transformers.

>>> import noren.distributed as nd, noren.distributed.hf
>>> nd.hf.register()
>>> model.set_attn_implementation("noren-distributed")                                     # doctest: +SKIP
>>> with nd.hf.over(split):                                                                # doctest: +SKIP
...     out = model(split.take_rows(ids, dim=1), position_ids=split.take_rows(positions, dim=1), use_cache=False)

Every rank has a copy of the model and runs it on its own tokens, with their positions in the whole sequence. The mask is the
mask of the split, which must include documents and padding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from .._noren import Error, Plan, sliding
from ._attention import attention
from ._split import Split

Chosen = Split | Callable[[torch.nn.Module], Split]
_SPLIT: ContextVar[Chosen | None] = ContextVar("noren_split", default=None)


def register(name: str = "noren-distributed") -> None:
    """Registers the attention and its masks in transformers as `attn_implementation=name`."""
    from transformers import AttentionInterface
    from transformers.masking_utils import AttentionMaskInterface

    AttentionInterface.register(name, attention_forward)
    AttentionMaskInterface.register(name, make_mask)


@contextmanager
def over(split: Chosen) -> Iterator[None]:
    """Sets the split over which models within the block compute attention. If layers differ, `split` is a function from an
    attention module to its split.

    With activation checkpointing, run the backward pass within the block too, because it computes the forward pass again.
    """
    token = _SPLIT.set(split)
    try:
        yield
    finally:
        _SPLIT.reset(token)


def make_mask(*_: Any, attention_mask: Tensor | None = None, **__: Any) -> None:
    """Returns None as the mask for `AttentionMaskInterface`, because the split contains the mask.

    Raises `Error` if `attention_mask` hides tokens.
    """
    if attention_mask is not None and not bool((attention_mask != 0).all()):
        raise Error("attention_mask hides tokens, but attention over a group uses only the split's mask: put padding into the split's mask")


def attention_forward(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    position_bias: Tensor | None = None,
    sliding_window: int | None = None,
    output_attentions: bool = False,
    **_: Any,
) -> tuple[Tensor, None]:
    """Computes attention over the group for `AttentionInterface`. The output is `[batch, own queries, heads, head_dim]`."""
    split = _SPLIT.get()
    if split is None:
        raise Error("no split is set: call the model inside `with noren.distributed.hf.over(split):`")
    if not isinstance(split, Split):
        split = split(module)
    refused = {
        "dropout": dropout > 0,
        "sinks (s_aux)": s_aux is not None,
        "a position bias": position_bias is not None,
        "a prepared mask": attention_mask is not None,
        "output_attentions": output_attentions,
    }
    for name, given in refused.items():
        if given:
            raise Error(f"{name} is given, but attention over a group does not support this argument: leave out the argument")
    if sliding_window is not None and not _keeps_to(split.plan, sliding_window):
        raise Error(
            f"the layer reads {sliding_window} keys back, but the split's mask `{split.plan.mask}` reads further back: split the mask "
            f"`{split.plan.mask} & sliding({sliding_window})`, or choose a split for each layer (`over` takes a function too)"
        )
    out = attention(query, key, value, split, scale=scaling, softcap=softcap)
    return out.transpose(1, 2).contiguous(), None


@lru_cache(maxsize=64)
def _keeps_to(plan: Plan, window: int) -> bool:
    """Whether every query of a plan reads only keys within a sliding window of `window` keys."""
    bound = plan.bound
    return bound.first_difference((bound.mask & sliding(window)).bind(bound.shape, bound.facts)) is None

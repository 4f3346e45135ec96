"""Attention over a group of processes (ranks) as an attention implementation of Hugging Face transformers.

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
    """Sets the split (the division of a sequence over processes) with which models inside the `with` block compute attention.

    With activation checkpointing, run the backward pass within the block too, because it computes the forward pass again.
    """
    token = _SPLIT.set(split)
    try:
        yield
    finally:
        _SPLIT.reset(token)


def make_mask(*_: Any, attention_mask: Tensor | None = None, **__: Any) -> None:
    """Returns None instead of a mask array, because the split already contains the mask. Called by transformers'
    `AttentionMaskInterface`.

    Raises `Error` if `attention_mask` hides tokens.
    """
    if attention_mask is not None and not bool((attention_mask != 0).all()):
        raise Error("attention_mask hides tokens, but attention over a group of processes uses only the mask of the split: put the padding into the split's mask")


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
    """Computes attention over the group of processes for transformers' `AttentionInterface`. Returns (output, None); the output
    is `[batch, own queries, heads, head_dim]` for the queries that this rank owns."""
    split = _SPLIT.get()
    if split is None:
        raise Error("no split (division of the sequence over processes) is set: call the model inside `with noren.distributed.hf.over(split):`")
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
            raise Error(f"the argument {name} is given, but attention over a group of processes does not support it: leave it out")
    if sliding_window is not None and not _keeps_to(split.plan, sliding_window):
        raise Error(
            f"the layer reads only the last {sliding_window} keys, but the split's mask `{split.plan.mask}` allows earlier keys: make the split with the mask `{split.plan.mask} & sliding({sliding_window})`, or choose a split for each layer (`over` takes a function too)"
        )
    out = attention(query, key, value, split, scale=scaling, softcap=softcap)
    return out.transpose(1, 2).contiguous(), None


@lru_cache(maxsize=64)
def _keeps_to(plan: Plan, window: int) -> bool:
    """Returns true if the plan fits a sliding window: every query reads only keys among the last `window` keys up to its own."""
    bound = plan.bound
    return not bound.differences((bound.mask & sliding(window)).bind(bound.shape, bound.facts), 1)

"""Converts masks to and from the arguments of transformers' mask interface (`transformers.AttentionMaskInterface`)."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from .._noren import BoundMask, Error, Shape
from ..arguments._given import short
from ..formats._source import MOST_CELLS, Exported, found, read
from ..formats.dense import Known, Sizes
from ..formats.flex import to_flex
from ._masks import make_mask

IGNORED = ("allow_is_bidirectional_skip", "allow_is_causal_skip", "config", "device", "dtype", "local_size", "use_vmap")
"""Arguments of the mask interface that do not change the cells."""


def to_transformers(mask: Exported, shape: Sizes = None, facts: Known = None) -> dict[str, Any]:
    """Converts a mask to the arguments of a mask function of transformers' `AttentionMaskInterface`, such as `sdpa_mask(**arguments)`.

    The keys of the result are `batch_size`, `q_length`, `kv_length`, `q_offset`, `kv_offset`, `mask_function` and
    `attention_mask`. The function takes (batch row, head, query, key), integers or tensors, and returns true if the query may
    attend to the key; queries count from `q_offset`, and a query or key outside of the shape is not allowed. The function can
    also be given to `create_causal_mask` as `and_mask_function` or `or_mask_function`. `flash_attention_mask` of transformers
    ignores mask functions.

    Raises `ExportError` for a mask that differs between heads, because transformers evaluates mask functions for head 0 only.
    """
    source = read(mask, shape, facts, "transformers' mask function")
    source.refuse_heads()
    s = source.shape
    offsets = set(s.query_offsets)
    offset = max(0, min(offsets)) if len(offsets) == 1 else 0
    cells = to_flex(source.plan).mask_mod

    def mask_function(batch_idx: Any, head_idx: Any, q_idx: Any, kv_idx: Any) -> Any:
        b, h, q, kv = (torch.as_tensor(index) for index in (batch_idx, head_idx, q_idx, kv_idx))
        at = q - offset
        inside = (at >= 0) & (at < s.q_len) & (kv >= 0) & (kv < s.kv_len)
        return inside & cells(b, h * 0, at.clamp(0, s.q_len - 1), kv.clamp(0, s.kv_len - 1))

    return {
        "batch_size": s.batch,
        "q_length": s.q_len,
        "kv_length": s.kv_len,
        "q_offset": offset,
        "kv_offset": 0,
        "mask_function": mask_function,
        "attention_mask": None,
    }


def from_transformers(
    batch_size: int,
    q_length: int,
    kv_length: int,
    q_offset: int = 0,
    kv_offset: int = 0,
    mask_function: Callable[..., Any] | None = None,
    attention_mask: Tensor | None = None,
    *,
    heads: int = 1,
    **ignored: Any,
) -> BoundMask:
    """Returns a mask from the arguments that transformers passes to a mask function of its `AttentionMaskInterface`.

    `mask_function` [default: causal] is a function of (batch row, head, query, key). Functions of transformers become
    expressions; other functions are evaluated for all cells, and for some cells again to check the results. `attention_mask` is
    `[batch, length]`, 1 for tokens and 0 for padding. `heads` is the number of heads of the result, for each of
    which a function that depends on the head is evaluated.

    Raises `noren.Error` for functions whose results contradict each other, and TypeError for arguments that the interface does not have.
    """
    for name in ignored:
        if name not in IGNORED:
            raise TypeError(f"{name} is not an argument of transformers' mask interface: give batch_size, q_length, kv_length, q_offset, kv_offset, mask_function and attention_mask")
    for name, value in (("batch_size", batch_size), ("q_length", q_length), ("kv_length", kv_length), ("heads", heads)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise Error(f"{name} is {short(value)}: give a whole number of 1 or more")
    for name, value in (("q_offset", q_offset), ("kv_offset", kv_offset)):
        if isinstance(value, bool) or not isinstance(value, (int, Tensor)):
            raise TypeError(f"{name} is {short(value)}: give a whole number")
    if attention_mask is not None and not isinstance(attention_mask, Tensor):
        raise TypeError(f"attention_mask is {short(attention_mask)}: give a tensor [batch, length], 1 for tokens and 0 for padding")
    if mask_function is not None and not callable(mask_function):
        raise TypeError(f"mask_function is {short(mask_function)}: give a function of (batch row, head, query, key) that returns true if the query may read the key")
    count, known = batch_size * heads * q_length * kv_length, getattr(mask_function, "__module__", None) == "transformers.masking_utils"
    if mask_function is not None and not known and count > MOST_CELLS:
        raise Error(f"mask_function would be evaluated for {count} cells, but the maximum is {MOST_CELLS}: convert the mask in parts")
    config = SimpleNamespace(num_attention_heads=heads)
    made = make_mask(batch_size, q_length, kv_length, q_offset, kv_offset, mask_function, attention_mask, config)
    shape = Shape(q_length, kv_length, query_offset=made.query_offset, batch=batch_size, heads=heads)
    bound = made.mask.bind(shape, made.facts.used_by(made.mask))
    return found(bound.dense(), "the mask function") if "dense(" in str(made.mask) and count <= MOST_CELLS else bound

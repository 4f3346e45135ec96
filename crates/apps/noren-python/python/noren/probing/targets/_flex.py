"""Masks and score modifiers in the form of FlexAttention."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .._call import Call
from ._libraries import Library

BLOCK = 128
"""The number of queries in a block of block lists, and the number of keys in it."""


def mask_mod(call: Call, arrays: Library) -> Callable[..., Any]:
    """Returns a `mask_mod` of (batch row, head, query, key): true if the mask of the call allows this cell."""
    assert call.cells is not None
    cells = arrays.plain(np.broadcast_to(call.cells, call.shape))

    def mask(b: Any, h: Any, q: Any, k: Any) -> Any:
        return cells[b, h, q, k]

    return mask


def block_mask(call: Call, arrays: Library) -> Any:
    """Returns the `BlockMask` of FlexAttention with the mask of the call."""
    from torch.nn.attention.flex_attention import create_block_mask

    return create_block_mask(mask_mod(call, arrays), *call.shape, device=getattr(arrays, "device", "cpu"))


def _everything(b: Any, h: Any, q: Any, k: Any) -> Any:
    return q >= 0


def block_lists(call: Call, arrays: Library) -> Any:
    """Returns a `BlockMask` whose lists contain the blocks of the call, with a mask function that allows every cell."""
    from torch.nn.attention.flex_attention import BlockMask

    assert call.blocks is not None
    counts = call.blocks.sum(-1).astype(np.int32)
    order = np.argsort(~call.blocks, axis=-1, kind="stable").astype(np.int32)
    given = (arrays.plain(counts), arrays.plain(order))
    lengths = (call.shape[2], call.shape[3])
    if call.full_blocks:
        nothing = (arrays.plain(np.zeros_like(counts)), arrays.plain(order))
        return BlockMask.from_kv_blocks(*nothing, *given, BLOCK_SIZE=BLOCK, mask_mod=_everything, seq_lengths=lengths)
    return BlockMask.from_kv_blocks(*given, BLOCK_SIZE=BLOCK, mask_mod=_everything, seq_lengths=lengths)


def score_mod(call: Call, arrays: Library) -> Callable[..., Any]:
    """Returns a score function of FlexAttention that applies the softcap of the call to a score, then adds its bias."""
    import torch

    cap: Any = None if call.softcap is None else arrays.plain(np.float32(call.softcap))  # torch.compile takes captured tensors, not floats
    bias: Any = None if call.bias is None else arrays.floats(np.broadcast_to(call.bias, call.shape), call.dtype)

    def changed(score: Any, b: Any, h: Any, q: Any, k: Any) -> Any:
        score = score if cap is None else torch.tanh(score / cap) * cap
        return score if bias is None else score + bias[b, h, q, k]

    return changed

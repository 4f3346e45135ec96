"""`noren.code`: a mask as code for another library."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .. import _noren
from .._noren import BoundMask, Error, Facts, Mask, Plan, Shape, Spec
from ..arguments._given import short
from ._doctor import Recognised
from ._forms import resolved


def code(
    mask: Mask | Spec | BoundMask | Plan | Recognised | str,
    target: str,
    shape: Shape | int | None = None,
    facts: Facts | Mapping[str, Any] | None = None,
) -> str:
    """Returns a mask, with its score modifiers, as readable code that runs in another library.

    `target` is "python" or "rust" (noren itself), "sdpa", "mha", "encoder" or "flex" (PyTorch), "hf" (transformers), "jax",
    "keras", "numpy" or "onnx". `mask` is a mask, its text, or a mask with score modifiers; these need `shape` (a `Shape` or a
    number of tokens) and `facts`. It may also be a bound mask, a plan, or the result of `nr.recognise`, which already have
    both.

    The code begins with the facts as short lists, which you replace by your own. Comments in the code list the variables that
    it reads, such as `query`.

    >>> import noren as nr
    >>> print(nr.code(nr.causal() & nr.documents([3, 5]), "flex", 8))
    import torch
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention
    <BLANKLINE>
    # query: [1, 1, 8, head_dim]
    # key, value: [1, 1, 8, head_dim]
    <BLANKLINE>
    # tokens of each document
    document_lengths = [3, 5]
    document_id = torch.repeat_interleave(torch.arange(2), torch.tensor(document_lengths))
    document_id = document_id.to(query.device)
    <BLANKLINE>
    def mask_mod(b, h, q_idx, kv_idx):
        causal = kv_idx <= q_idx
        same_document = document_id[q_idx] == document_id[kv_idx]
        return causal & same_document
    <BLANKLINE>
    block_mask = create_block_mask(mask_mod, B=None, H=None, Q_LEN=8, KV_LEN=8, device=query.device)
    flex_attention = torch.compile(flex_attention)  # uncompiled, it computes every pair
    output = flex_attention(query, key, value, block_mask=block_mask)
    <BLANKLINE>

    Raises `ExportError` with the reason if the target cannot express the mask, and `Error` for another target.
    """
    found, scores = resolved(mask, shape, facts)
    return _noren.code(found.bound if isinstance(found, Plan) else found, scores, _target(target))[0]


def _target(target: object) -> str:
    """Returns the name of a target. Raises `Error` for a value that is not a text. The function `_noren.code` raises the error
    for an unknown name."""
    if isinstance(target, str):
        return target
    known = ", ".join(name for name, _ in _noren.code_targets())
    raise Error(f"{short(target)} is not a target of code: give one of {known}")

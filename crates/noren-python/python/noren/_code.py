"""`noren.code`: a mask as code for another library."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from . import _noren
from ._doctor import Recognised
from ._given import short
from ._noren import BoundMask, Error, Facts, Mask, Plan, Score, Shape, Spec


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
    return _noren.code(*_bound(mask, shape, facts), _target(target))[0]


def _target(target: object) -> str:
    """Returns the name of a target. Raises `Error` for a value that is not a text. The function `_noren.code` raises the error
    for an unknown name."""
    if isinstance(target, str):
        return target
    known = ", ".join(name for name, _ in _noren.code_targets())
    raise Error(f"{short(target)} is not a target of code: give one of {known}")


def _bound(
    mask: Mask | Spec | BoundMask | Plan | Recognised | str,
    shape: Shape | int | None,
    facts: Facts | Mapping[str, Any] | None,
) -> tuple[BoundMask, list[Score]]:
    """Returns (bound mask, score modifiers) of a mask in any of the accepted forms."""
    spec = Spec(mask) if isinstance(mask, str) else mask
    scores: list[Score] = []
    if isinstance(spec, Spec):
        scores = spec.scores
        spec = spec.mask
    if isinstance(spec, Mask):
        if shape is None:
            raise Error(f"the mask `{spec}` has no sizes: give shape=, which is a length or Shape(q_len, kv_len, batch=, heads=)")
        return spec.bind(shape, facts), scores
    if not isinstance(spec, BoundMask | Plan | Recognised):
        raise TypeError(f"{type(spec).__name__} is not a mask: give a Mask, its text, a Spec, a BoundMask or a Plan")
    if shape is not None or facts is not None:
        raise Error(f"{type(spec).__name__} already has a shape and facts: leave out shape= and facts=, or give a mask without a shape and facts")
    if isinstance(spec, Recognised):
        spec = spec.bind()
    if isinstance(spec, Plan):
        spec = spec.bound
    return spec, scores

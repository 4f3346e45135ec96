"""Attention by PyTorch's FlexAttention, with the `BlockMask` and score functions of a call, so that FlexAttention can be compared with
noren's kernels.
"""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, flex_attention

from .._call import Call, Extras
from .._noren import Error, Plan
from ..formats.flex import to_flex
from ..formats.scores import ScoreMod, _added, _alibi, _cap, _relative, refuse_positions

_MASKS: weakref.WeakKeyDictionary[Plan, dict[torch.device, BlockMask]] = weakref.WeakKeyDictionary()


def _four(name: str, x: Tensor) -> Tensor:
    if x.dim() > 4:
        raise Error(f"{name} has shape {tuple(x.shape)}: give at most the dimensions [batch, heads, q_len, kv_len]")
    return x[(None,) * (4 - x.dim())]


def _score_mod(call: Call, extras: Extras, device: torch.device) -> ScoreMod | None:
    steps: list[ScoreMod] = []
    if call.softcap is not None:
        steps.append(_cap(torch.tensor(call.softcap, device=device)))
    steps += [_added(_four("bias", bias)) for bias in extras.bias]
    if extras.relative is not None or call.alibi is not None:
        refuse_positions("FlexAttention", "a score modifier that depends on the distance of query and key", call.plan.bound.facts)
    offsets = torch.tensor(call.plan.shape.query_offsets, device=device)
    if extras.relative is not None:
        steps.append(_relative(extras.relative, offsets))
    if call.alibi is not None:
        steps.append(_alibi(torch.tensor(call.alibi, device=device), offsets))
    if extras.soft is not None:
        steps.append(_added(_four("soft", extras.soft).log()))
    if not steps:
        return None

    def score_mod(score: Any, b: Any, h: Any, q: Any, kv: Any) -> Any:
        for step in steps:
            score = step(score, b, h, q, kv)
        return score

    return score_mod


def flex(call: Call, q: Tensor, k: Tensor, v: Tensor, extras: Extras, lse: bool) -> tuple[Tensor, Tensor | None]:
    """Returns (output, log-sum-exps in base e), or (output, None) if `lse` is false, computed by PyTorch's FlexAttention."""
    if extras.sinks is not None or extras.seed is not None:
        raise Error("FlexAttention has no sinks and no dropout: leave out sinks= and dropout=, or leave out engine=\"flex\"")
    known = _MASKS.setdefault(call.plan, {})
    if q.device not in known:
        known[q.device] = to_flex(call.plan, device=q.device)
    function: Any = flex_attention if q.device.type == "cpu" else torch.compile(flex_attention)
    given = {"score_mod": _score_mod(call, extras, q.device), "block_mask": known[q.device], "scale": call.scale}
    found = function(q, k, v, **given, enable_gqa=q.shape[1] != k.shape[1], return_lse=lse)
    return (found[0], found[1]) if lse else (found, None)

"""Small attention functions for the tests of `nr.probe`: a correct one, and copies of it with one planted fault each."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

Tensor = torch.Tensor


def _scores(s: Tensor, scale: float, softcap: float | None, bias: Tensor | None) -> Tensor:
    s = s * scale
    if softcap is not None:
        s = softcap * torch.tanh(s / softcap)
    return s if bias is None else s + bias


def _causal(q_len: int, kv_len: int) -> Tensor:
    return torch.ones(q_len, kv_len).tril(kv_len - q_len).bool()


def _window(distance: Tensor, left: int, right: int) -> Tensor:
    return (distance >= -left) & (distance <= right)


def _softmax(s: Tensor, keep: Tensor, sinks: Tensor | None) -> tuple[Tensor, Tensor]:
    """Returns the weights, 0 in rows without keys, and the log-sum-exp."""
    s = s.masked_fill(~keep, -math.inf)
    if sinks is not None:
        s = torch.cat([s, sinks.float().view(1, -1, 1, 1).expand(*s.shape[:3], 1)], -1)
    lse = torch.logsumexp(s, -1)
    weights = torch.exp(s - torch.where(lse.isfinite(), lse, 0.0)[..., None])
    return weights[..., : keep.shape[-1]], lse


def _values(weights: Tensor, v: Tensor, keep: Tensor) -> Tensor:
    """Returns the weighted sums of values, without those that a whole head and batch row may not read."""
    used = keep.any(-2)
    return weights @ torch.where(used[..., None], v, 0.0)


@dataclass(frozen=True)
class Parts:
    """The replaceable parts of the imitated function."""

    mask: Callable[[Tensor], Tensor] = lambda mask: mask
    heads: Callable[[Tensor, int], Tensor] = lambda x, heads: x.repeat_interleave(heads // x.shape[1], 1)
    keys: Callable[[Tensor, Tensor], Tensor] = lambda k, keep: torch.where(keep.any(-2)[..., None], k, 0.0)
    scale: Callable[[float | None, int], float] = lambda scale, dim: dim**-0.5 if scale is None else scale
    scores: Callable[[Tensor, float, float | None, Tensor | None], Tensor] = _scores
    causal: Callable[[int, int], Tensor] = _causal
    always_causal: bool = False
    window: Callable[[Tensor, int, int], Tensor] = _window
    combine: Callable[[Tensor, Tensor], Tensor] = lambda keep, flag: keep & flag
    softmax: Callable[..., tuple[Tensor, Tensor]] = _softmax
    sinks: Callable[[Tensor, float], Tensor | None] = lambda sinks, scale: sinks
    values: Callable[[Tensor, Tensor, Tensor], Tensor] = _values
    lse: Callable[[Tensor, Tensor, Tensor], Tensor] = lambda lse, s, keep: lse
    blocks: Callable[[Tensor], Tensor] = lambda blocks: blocks
    inputs: Callable[..., tuple[Tensor, Tensor, Tensor]] = lambda q, k, v: (q, k, v)
    out: Callable[[Tensor], Any] = lambda out: out


def imitate(parts: Parts) -> Callable[..., Any]:
    """Returns an attention function of these parts; the causal flag is aligned at the bottom right."""

    def attention(
        q: Tensor,
        k: Tensor,
        v: Tensor,
        attn_mask: Tensor | None = None,
        is_causal: bool = False,
        window: tuple[int, int] | None = None,
        scale: float | None = None,
        softcap: float | None = None,
        bias: Tensor | None = None,
        sinks: Tensor | None = None,
        block_lists: Tensor | None = None,
        return_lse: bool = False,
    ) -> Any:
        dtype = q.dtype
        q, k, v = parts.inputs(q.float(), k.float(), v.float())
        k, v = (parts.heads(x, q.shape[1]) for x in (k, v))
        size = (*q.shape[:3], k.shape[2])
        factor = parts.scale(scale, q.shape[-1])
        hidden = torch.zeros(size[2:], dtype=torch.bool)
        keep = (~hidden).expand(size)
        if attn_mask is not None:
            keep = parts.mask(attn_mask.expand(-1, -1, *size[2:]) if attn_mask.shape[2] != 1 else attn_mask).expand(size)
        if is_causal or parts.always_causal:
            keep = parts.combine(keep, parts.causal(*size[2:])).expand(size)
        if window is not None:
            keep = keep & parts.window(torch.arange(size[3])[None] - torch.arange(size[2])[:, None], *window)
        if block_lists is not None:
            keep = keep & parts.blocks(block_lists).repeat_interleave(128, 2).repeat_interleave(128, 3)
        k = parts.keys(k, keep)
        s = parts.scores(q @ k.mT, factor, softcap, bias)
        weights, lse = parts.softmax(s, keep, None if sinks is None else parts.sinks(sinks, factor))
        out = parts.out(parts.values(weights, v, keep).to(dtype))
        return (out, parts.lse(lse, s, keep)) if return_lse else out

    return attention


@dataclass(frozen=True)
class Fault:
    """A planted fault, and the entry of the report that must name it."""

    name: str
    parts: Parts
    feature: str
    case: str
    verdict: str
    words: str
    warned: bool = False


def _warned(mask: Tensor) -> Tensor:
    warnings.warn("attn_mask is not supported and is ignored", stacklevel=1)
    return torch.ones_like(mask)


def _as_numbers(s: Tensor, keep: Tensor, sinks: Tensor | None) -> tuple[Tensor, Tensor]:
    return _softmax(s + keep.float(), torch.ones_like(keep), sinks)


def _zeroed(s: Tensor, keep: Tensor, sinks: Tensor | None) -> tuple[Tensor, Tensor]:
    return _softmax(s * keep.float(), torch.ones_like(keep), sinks)


def _after(s: Tensor, keep: Tensor, sinks: Tensor | None) -> tuple[Tensor, Tensor]:
    weights, lse = _softmax(s, torch.ones_like(keep), sinks)
    return weights * keep, lse


def _finite(s: Tensor, keep: Tensor, sinks: Tensor | None) -> tuple[Tensor, Tensor]:
    return _softmax(torch.where(keep, s, s - 1e4), torch.ones_like(keep), sinks)


def _clipped(s: Tensor, scale: float, softcap: float | None, bias: Tensor | None) -> Tensor:
    return _scores(s * scale if softcap is None else (s * scale).clamp(-softcap, softcap), 1.0, None, bias)


def _before(s: Tensor, scale: float, softcap: float | None, bias: Tensor | None) -> Tensor:
    return _scores(s if softcap is None else softcap * torch.tanh(s / softcap), scale, None, bias)


def _base2(s: Tensor, scale: float, softcap: float | None, bias: Tensor | None) -> Tensor:
    return _scores(s, scale * math.log(2), softcap, bias)


def _bias(change: Callable[[Tensor], Tensor | None]) -> Parts:
    return Parts(scores=lambda s, scale, softcap, bias: _scores(s, scale, softcap, None if bias is None else change(bias)))


class _Unmasked(torch.autograd.Function):
    """Weights of a masked softmax whose backward pass does not know the mask."""

    @staticmethod
    def forward(ctx: Any, s: Tensor, keep: Tensor) -> Tensor:
        ctx.save_for_backward(torch.softmax(s, -1))
        return torch.softmax(s.masked_fill(~keep, -math.inf), -1)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:  # type: ignore[override]
        (weights,) = ctx.saved_tensors
        return weights * (grad - (grad * weights).sum(-1, keepdim=True)), None


def _forgetful(s: Tensor, keep: Tensor, sinks: Tensor | None) -> tuple[Tensor, Tensor]:
    return _Unmasked.apply(s, keep), torch.logsumexp(s, -1)  # type: ignore[no-untyped-call]


def _tiles(mask: Tensor) -> Tensor:
    tiles = mask.expand(-1, -1, 16, 16).unflatten(3, (4, 4)).unflatten(2, (4, 4)) if mask.shape[2] in (1, 16) else mask[:, :, :, None, :, None]
    return tiles.any(5).any(3).repeat_interleave(4, 2).repeat_interleave(4, 3) if mask.shape[2] in (1, 16) else mask


def _square(mask: Tensor) -> bool:
    return mask.shape[2] == mask.shape[3]


SILENT = Parts(mask=torch.ones_like)
"""The mask is ignored; the causal flag is applied."""


def faults() -> list[Fault]:
    """Returns the planted faults. A feature named `mask` is looked up in the case of the keep array."""
    out = []

    def mask(name: str, change: Callable[[Tensor], Tensor], case: str, verdict: str, words: str, warned: bool = False) -> None:
        out.append(Fault(name, Parts(mask=change), "mask", f"{case} (keep)", verdict, words, warned))

    def add(name: str, parts: Parts, feature: str, case: str, verdict: str, words: str) -> None:
        out.append(Fault(name, parts, feature, case, verdict, words))

    mask("mask ignored", torch.ones_like, "causal", "ignored", "all keys are read")
    mask("mask ignored with a warning", _warned, "random cells", "ignored", "all keys are read", True)
    mask("mask inverted", lambda m: ~m, "documents", "misread", "inverted")
    mask("mask shifted along keys", lambda m: m.roll(1, 3), "random cells", "misread", "the mask is shifted by one key forward")
    mask("mask shifted back along keys", lambda m: m.roll(-1, 3), "padding on the right", "misread", "the mask is shifted by one key backward")
    mask("mask shifted along queries", lambda m: m.roll(1, 2), "random cells", "misread", "shifted by one query forward")
    mask("mask transposed", lambda m: m.mT if _square(m) else m, "sliding window", "misread", "transposed")
    mask("mask of head 0", lambda m: m[:, :1], "different for each head", "misread", "head 0")
    mask("mask of batch row 0", lambda m: m[:1], "padding on the right", "misread", "batch row 0")
    mask("batch and heads swapped", lambda m: m.transpose(0, 1), "padding on the left", "misread", "wrong axis")
    mask("keys applied to queries", lambda m: m.mT if m.shape[2] == 1 else m, "padding on the right", "misread", "the key axis of the mask is used for queries")
    mask("image span dropped", lambda m: m & _causal(*m.shape[2:]) if _square(m) else m, "image span in a causal mask", "misread", "causal mask")
    mask("whole tiles are read", _tiles, "sliding window", "misread", "rounded to blocks of 4")
    mask("mask aligned top-left", lambda m: _causal(6, 16).logical_or(m) & torch.ones(6, 16).tril().bool() if m.shape[2] == 6 else m,
         "causal, fewer queries than keys", "misread", "top-left")  # fmt: skip
    add("mask added as numbers", Parts(softmax=_as_numbers), "mask", "causal (keep)", "misread", "added to the scores as numbers: 1")
    add("scores multiplied by the mask", Parts(softmax=_zeroed), "mask", "documents (keep)", "misread", "the score 0")
    add("weights multiplied by the mask", Parts(softmax=_after), "mask", "causal (keep)", "misread", "after the softmax")
    add("finite number hides", Parts(softmax=_finite, keys=lambda k, keep: k), "hidden keys with large scores", "", "hidden content is read", "change the output by up to")
    add("0 times NaN", Parts(values=lambda w, v, keep: w @ v), "hidden NaN", "in values", "hidden content is read", "reaches the output")
    add("flag ignored", Parts(causal=lambda q, k: torch.ones(q, k).bool()), "causal flag", "", "ignored", "all keys are read")
    add("own position hidden", Parts(causal=lambda q, k: torch.ones(q, k).tril(k - q - 1).bool()), "causal flag", "", "misread", "does not read its own position")
    add("next position read", Parts(causal=lambda q, k: torch.ones(q, k).tril(k - q + 1).bool()), "causal flag", "", "misread", "reads the next position")
    add("flag inverted", Parts(causal=lambda q, k: torch.ones(q, k).triu(k - q).bool()), "causal flag", "", "misread", "inverted")
    add("flag aligned top-left", Parts(causal=lambda q, k: torch.ones(q, k).tril().bool()), "causal flag", "fewer queries than keys", "misread", "top-left instead of")
    add("flag replaces mask", Parts(combine=lambda keep, flag: flag), "causal flag", "beside a mask", "misread", "given together with the causal flag is ignored")
    add("mask replaces flag", Parts(combine=lambda keep, flag: flag if keep.all() else keep), "causal flag", "beside a mask", "ignored", "flag has no effect")
    add("always causal", Parts(always_causal=True), "attention", "", "misread", "causal mask is applied although none was requested")
    add("left end not included", Parts(window=lambda d, l, r: _window(d, l - 1, r)), "window", "5 keys before the query, causal", "misread", "left end of the window is not")
    add("one key more on the left", Parts(window=lambda d, l, r: _window(d, l + 1, r)), "window", "5 keys before the query, causal", "misread", "one key more")
    add("right side ignored", Parts(window=lambda d, l, r: _window(d, l, 99)), "window", "4 keys before and 2 after the query", "misread", "right side of the window is ignored")
    add("right end not included", Parts(window=lambda d, l, r: _window(d, l, r - 1)), "window", "4 keys before and 2 after the query", "misread", "right end of the window is not")
    add("window ignored", Parts(window=lambda d, l, r: d < 99), "window", "4 keys before and 2 after the query", "ignored", "all keys are read")
    add("scale ignored", Parts(scale=lambda scale, dim: dim**-0.5), "scale", "", "ignored", "default scale")
    add("scale in addition", Parts(scale=lambda scale, dim: (scale or 1) * dim**-0.5), "scale", "", "misread", "also by the default scale")
    add("default scale 1", Parts(scale=lambda scale, dim: scale or 1.0), "attention", "", "misread", "the default scale is 1")
    add("powers of 2", Parts(scores=_base2), "attention", "", "misread", "base 2 and base e are mixed")
    add("softcap ignored", Parts(scores=lambda s, f, cap, b: _scores(s, f, None, b)), "softcap", "", "ignored", "does not limit")
    add("softcap before scale", Parts(scores=_before), "softcap", "", "misread", "before the scale")
    add("softcap clips", Parts(scores=_clipped), "softcap", "", "misread", "clipped")
    add("bias ignored", _bias(lambda bias: None), "bias", "", "ignored", "the bias is not added")
    add("bias transposed", _bias(lambda bias: bias.mT), "bias", "", "misread", "transposed")
    add("bias of head 0", _bias(lambda bias: bias[:, :1]), "bias", "", "misread", "head 0")
    add("bias before scale", Parts(scores=lambda s, f, cap, b: _scores(s if b is None else s + b, f, cap, None)), "bias", "", "misread", "before the scale")
    add("sinks ignored", Parts(sinks=lambda sinks, f: None), "sinks", "", "ignored", "denominator")
    add("sinks scaled", Parts(sinks=lambda sinks, f: sinks * f), "sinks", "", "misread", "the sinks are multiplied by the scale")
    add("sink of head 0", Parts(sinks=lambda sinks, f: sinks[:1].expand_as(sinks)), "sinks", "", "misread", "head 0")
    add("lse in base 2", Parts(lse=lambda lse, s, keep: lse / math.log(2)), "log-sum-exp", "", "misread", "base 2")
    add("lse off by ln 2", Parts(lse=lambda lse, s, keep: lse * math.log(2)), "log-sum-exp", "", "misread", "off by the factor ln 2")
    add("lse negated", Parts(lse=lambda lse, s, keep: -lse), "log-sum-exp", "", "misread", "negated")
    add("lse without mask", Parts(lse=lambda lse, s, keep: torch.logsumexp(s, -1), keys=lambda k, keep: k), "log-sum-exp", "", "misread", "the mask is ignored")
    add("heads interleaved", Parts(heads=lambda x, n: x.repeat(1, n // x.shape[1], 1, 1)), "grouped heads", "4 query heads, 2 key-value heads", "misread", "interleaved")
    add("key-value head 0", Parts(heads=lambda x, n: x[:, :1].expand(-1, n, -1, -1) if x.shape[1] < n else x), "grouped heads", "4 query heads, 2 key-value heads", "misread", "head 0")
    add("block lists ignored", Parts(blocks=torch.ones_like), "block lists", "partial blocks", "ignored", "not in the block lists are read")
    add("backward without mask", Parts(softmax=_forgetful, keys=lambda k, keep: k, values=lambda w, v, keep: w @ v), "gradients", "", "misread", "gradients of queries and keys are those without the mask")
    add("no gradient with respect to keys", Parts(inputs=lambda q, k, v: (q, k.detach(), v)), "gradients", "", "ignored", "no gradient with respect to keys")
    add("gradients negated", Parts(out=lambda out: 2 * out.detach() - out), "gradients", "", "misread", "negated")
    add("random results", Parts(out=lambda out: out + torch.randn_like(out)), "equal calls", "", "misread", "results of equal calls differ")
    add("batch mates mix", Parts(out=lambda out: out - 0.1 * (out.mean(0, keepdim=True) - out) * (out.shape[0] > 1)), "batch invariance", "", "misread", "changes if the batch has other rows")
    return out

"""Score terms for other systems: arrays that are added, and FlexAttention's `score_mod`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._arrays import Array
from .._noren import Error, Facts, Score, Shape, Spec, parse
from ._source import Source, kind, refuse


def softcap_of(source: Source) -> float | None:
    """The cap of `softcap(c)`."""
    caps = [float(str(score)[len("softcap(") : -1]) for score in source.scores if kind(score) == "softcap"]
    return caps[0] if caps else None


def name_of(score: Score) -> str:
    """The array that a score names."""
    head, _, argument = str(score).partition("(")
    return argument.rstrip(")").strip('"') or head


def slopes_of(score: Score, heads: int) -> NDArray[np.float32]:
    _, _, argument = str(score).partition("slopes=[")
    if argument:
        return np.array([float(x) for x in argument.rstrip("])").split(",")], np.float32)
    return np.array([2 ** (-8 * (head + 1) / heads) for head in range(heads)], np.float32)


def array_of(arrays: Mapping[str, Array] | None, score: Score) -> NDArray[np.float32]:
    """The array of a score in four dimensions; tables and sinks by head."""
    name = name_of(score)
    if not arrays or name not in arrays:
        raise Error(f'the score `{score}` needs the array `{name}`: give it in arrays={{"{name}": ...}}')
    array = arrays[name]
    array = np.asarray(array.detach().cpu().float() if hasattr(array, "detach") else array, np.float32)
    if kind(score) in ("relative", "sinks"):
        return array
    return array[(None,) * (4 - array.ndim)]


def bias_of(source: Source, arrays: Mapping[str, Array] | None) -> NDArray[np.float32] | None:
    """The sum of `bias`, `relative` and `alibi`, broadcastable to `[batch, heads, q_len, kv_len]`."""
    shape = source.shape
    total: NDArray[np.float32] | None = None
    for score in source.scores:
        match kind(score):
            case "bias":
                term = array_of(arrays, score)
            case "alibi":
                term = -slopes_of(score, shape.heads)[None, :, None, None] * np.abs(_distances(source, score))
            case "relative":
                table = array_of(arrays, score)
                reach = (table.shape[-1] - 1) // 2
                at = np.clip(_distances(source, score)[:, 0], -reach, reach) + reach
                term = np.moveaxis(table[:, at], 0, 1)
            case _:
                continue
        total = term if total is None else total + term
    return total


def _distances(source: Source, score: Score) -> NDArray[np.int64]:
    """Key position less query position, `[batch or 1, 1, q_len, kv_len]`."""
    _refuse_positions(source.target, score, source.plan.bound.facts)
    offsets = np.array(source.shape.query_offsets, np.int64)
    offsets = offsets[:1] if (offsets == offsets[0]).all() else offsets
    queries = offsets[:, None, None, None] + np.arange(source.shape.q_len)[:, None]
    distances: NDArray[np.int64] = np.arange(source.shape.kv_len) - queries
    return distances


def _refuse_positions(target: str, score: Score, facts: Facts) -> None:
    if '"position' in facts.to_json():
        refuse(target, f"`{score}` of keys that stand at positions of their own", "put the keys in order first")


ScoreMod = Callable[[Any, Any, Any, Any, Any], Any]
"""FlexAttention's `score_mod(score, batch, head, q_idx, kv_idx)`."""


def to_score_mod(
    spec: Spec | str, shape: Shape | int, facts: Facts | None = None, *, arrays: Mapping[str, Array] | None = None, device: Any = "cpu"
) -> ScoreMod:
    """The scores of a mask as FlexAttention's `score_mod`, in noren's order: cap, biases, soft weights.

    Its mask is exported by `to_flex(spec.mask, ...)`. `sinks` are refused: they are no term of a score.
    """
    import torch

    target = "FlexAttention's score_mod"
    spec = parse(spec) if isinstance(spec, str) else spec
    if not isinstance(spec, Spec):
        raise Error(f"`{spec}` has no scores: FlexAttention needs no score_mod")
    sizes = Shape.square(shape) if isinstance(shape, int) else shape
    offsets = torch.tensor(sizes.query_offsets, device=device)
    steps: dict[str, list[ScoreMod]] = {"softcap": [], "bias": [], "soft": []}
    for score in spec.scores:
        match kind(score):
            case "softcap":
                steps["softcap"].append(_cap(torch.tensor(float(str(score)[len("softcap(") : -1]), device=device)))
            case "bias":
                steps["bias"].append(_added(torch.from_numpy(array_of(arrays, score)).to(device)))
            case "soft":
                steps["soft"].append(_added(torch.from_numpy(array_of(arrays, score)).to(device).log()))
            case "alibi":
                if facts is not None:
                    _refuse_positions(target, score, facts)
                steps["bias"].append(_alibi(torch.from_numpy(slopes_of(score, sizes.heads)).to(device), offsets))
            case "relative":
                if facts is not None:
                    _refuse_positions(target, score, facts)
                steps["bias"].append(_relative(torch.from_numpy(array_of(arrays, score)).to(device), offsets))
            case other:
                refuse(target, f"`{other}`", "a sink joins the denominator only; multiply the output by sigmoid(lse - sink)")
    ordered = [step for group in steps.values() for step in group]

    def score_mod(score: Any, b: Any, h: Any, q: Any, kv: Any) -> Any:
        for step in ordered:
            score = step(score, b, h, q, kv)
        return score

    return score_mod


def _cap(cap: Any) -> ScoreMod:
    """The cap is a tensor: numbers that change would be recompiled for, or refused."""
    return lambda score, b, h, q, kv: cap * (score / cap).tanh()


def _added(array: Any) -> ScoreMod:
    by = [n > 1 for n in array.shape]

    def added(score: Any, b: Any, h: Any, q: Any, kv: Any) -> Any:
        at = [i if varies else i * 0 for i, varies in zip((b, h, q, kv), by, strict=True)]
        return score + array[at[0], at[1], at[2], at[3]]

    return added


def _alibi(slopes: Any, offsets: Any) -> ScoreMod:
    return lambda score, b, h, q, kv: score - slopes[h] * (kv - q - offsets[b]).abs()


def _relative(table: Any, offsets: Any) -> ScoreMod:
    reach, shared = (table.shape[-1] - 1) // 2, table.shape[0] == 1

    def relative(score: Any, b: Any, h: Any, q: Any, kv: Any) -> Any:
        at = (kv - q - offsets[b]).clamp(-reach, reach) + reach
        return score + table[h * 0 if shared else h, at]

    return relative


__all__ = ["to_score_mod"]

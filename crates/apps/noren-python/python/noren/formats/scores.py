"""Score modifiers for other systems: arrays that are added to scores, and FlexAttention's `score_mod`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._noren import Error, ExportError, Facts, Score, Shape, Spec, parse
from ..arguments._arrays import Array, NumPy
from ..cpu._scores import default_slopes
from ._source import Source


def softcap_of(source: Source) -> float | None:
    """Returns the limit (`cap`) of the score modifier `softcap`, or None if the mask has no softcap."""
    return next((score.cap for score in source.scores if score.kind == "softcap"), None)


def slopes_of(score: Score, heads: int) -> NDArray[np.float32]:
    """Returns the slopes of `alibi`, one for each query head."""
    slopes = score.slopes
    if slopes is None:
        slopes = default_slopes(heads)
    elif len(slopes) != heads:
        raise Error(f"`{score}` has {len(slopes)} slopes, but there are {heads} query heads: give one slope for each head")
    return np.array(slopes, np.float32)


def array_of(arrays: Mapping[str, Array] | None, score: Score) -> NDArray[np.float32]:
    """Returns the array that a score modifier names, as float32. Raises `Error` if `arrays` has no array with this name."""
    name = score.name or score.kind
    if not arrays or name not in arrays:
        raise Error(f'the score modifier `{score}` needs the array `{name}`: give it in arrays={{"{name}": ...}}')
    given = arrays[name]
    if hasattr(given, "detach"):
        given = given.detach().cpu()
        given = given.float().numpy() if given.is_floating_point() else given.numpy()
    array: NDArray[np.float32] = NumPy().floats(name, given)
    if score.kind in ("relative", "sinks"):
        return array
    return array[(None,) * (4 - array.ndim)]


def bias_of(source: Source, arrays: Mapping[str, Array] | None) -> NDArray[np.float32] | None:
    """Returns the sum of the biases `bias`, `relative` and `alibi` of a mask. The sum broadcasts to `[batch, heads, q_len,
    kv_len]`.

    Returns None if the mask has no biases.
    """
    shape = source.shape
    total: NDArray[np.float32] | None = None
    for score in source.scores:
        match score.kind:
            case "bias":
                term = _fitting(array_of(arrays, score), score, shape)
            case "alibi":
                term = -slopes_of(score, shape.heads)[None, :, None, None] * np.abs(_distances(source, score))
            case "relative":
                table = _table(array_of(arrays, score), score, shape)
                reach = (table.shape[-1] - 1) // 2
                at = np.clip(_distances(source, score)[:, 0], -reach, reach) + reach
                term = np.moveaxis(table[:, at], 0, 1)
            case _:
                continue
        total = term if total is None else total + term
    return total


def _fitting(array: NDArray[np.float32], score: Score, shape: Shape) -> NDArray[np.float32]:
    """Returns `array`. Raises `Error` unless `array` broadcasts to `[batch, heads, q_len, kv_len]`."""
    full = (shape.batch, shape.heads, shape.q_len, shape.kv_len)
    if array.ndim != 4 or any(n not in (1, size) for n, size in zip(array.shape, full, strict=True)):
        raise Error(f"the array of `{score}` has shape {array.shape}, which does not broadcast to {list(full)}")
    return array


def _table(table: NDArray[np.float32], score: Score, shape: Shape) -> NDArray[np.float32]:
    """Returns the table `[heads or 1, 2 * reach + 1]` of `relative`. Raises `Error` for other shapes."""
    if table.ndim != 2 or table.shape[0] not in (1, shape.heads) or table.shape[1] % 2 == 0:
        raise Error(f"the table of `{score}` has shape {table.shape}: give [{shape.heads} heads or 1, 2 * reach + 1 distances], where reach is the largest distance with its own entry")
    return table


def _distances(source: Source, score: Score) -> NDArray[np.int64]:
    """Returns the distances, key position minus query position, as `[batch or 1, 1, q_len, kv_len]`."""
    refuse_positions(source.target, score, source.plan.bound.facts)
    offsets = np.array(source.shape.query_offsets, np.int64)
    offsets = offsets[:1] if (offsets == offsets[0]).all() else offsets
    queries = offsets[:, None, None, None] + np.arange(source.shape.q_len)[:, None]
    distances: NDArray[np.int64] = np.arange(source.shape.kv_len) - queries
    return distances


def refuse_positions(target: str, score: Score | str, facts: Facts) -> None:
    """Raises `ExportError` if the facts give positions of keys: the target format cannot use them for `score`, a score modifier
    that depends on distances, such as `alibi`.
    """
    if facts.place_keys:
        raise ExportError(
            f"{target} cannot express the score modifier `{score}` if positions of keys differ from their indices: sort the keys by position before the export"
        )


ScoreMod = Callable[[Any, Any, Any, Any, Any], Any]
"""FlexAttention's `score_mod(score, batch, head, q_idx, kv_idx)`."""


def to_score_mod(
    spec: Spec | str,
    shape: Shape | int,
    facts: Facts | Mapping[str, Any] | None = None,
    *,
    arrays: Mapping[str, Array] | None = None,
    device: Any = "cpu",
) -> ScoreMod:
    """Returns the score modifiers of a mask as FlexAttention's `score_mod`, in noren's order: softcap, biases, soft weights.

    `arrays` holds the arrays that the modifiers name. `to_flex(spec.mask, ...)` exports the mask; give the same facts to both.
    Raises `ExportError` for `sinks`, which are not part of a score, and `Error` for a mask without score modifiers.
    """
    import torch

    target = "FlexAttention's score_mod"
    spec = parse(spec) if isinstance(spec, str) else spec
    if not isinstance(spec, Spec):
        raise Error(f"`{spec}` has no score modifiers, so FlexAttention needs no score_mod: leave out score_mod")
    sizes = Shape.square(shape) if isinstance(shape, int) else shape
    known = facts if isinstance(facts, Facts) else Facts(**(facts or {}))
    offsets = torch.tensor(sizes.query_offsets, device=device)
    steps: dict[str, list[ScoreMod]] = {"softcap": [], "bias": [], "soft": []}
    for score in spec.scores:
        match score.kind:
            case "softcap":
                steps["softcap"].append(_cap(torch.tensor(score.cap, device=device)))
            case "bias":
                array = _fitting(array_of(arrays, score), score, sizes)
                steps["bias"].append(_added(torch.from_numpy(array).to(device)))
            case "soft":
                array = _fitting(array_of(arrays, score), score, sizes)
                steps["soft"].append(_added(torch.from_numpy(array).to(device).log()))
            case "alibi":
                refuse_positions(target, score, known)
                steps["bias"].append(_alibi(torch.from_numpy(slopes_of(score, sizes.heads)).to(device), offsets))
            case "relative":
                refuse_positions(target, score, known)
                table = _table(array_of(arrays, score), score, sizes)
                steps["bias"].append(_relative(torch.from_numpy(table).to(device), offsets))
            case other:
                raise ExportError(
                    f"{target} cannot express `{other}`: apply the sinks after attention, by multiplying the output by sigmoid(lse - sink), because a sink is added to the denominator of the softmax only"
                )
    ordered = [step for group in steps.values() for step in group]

    def score_mod(score: Any, b: Any, h: Any, q: Any, kv: Any) -> Any:
        for step in ordered:
            score = step(score, b, h, q, kv)
        return score

    return score_mod


def _cap(cap: Any) -> ScoreMod:
    """Returns the `score_mod` of `softcap` with the limit `cap`. The limit is a tensor, because with a Python number
    torch.compile would compile again for each limit.
    """
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

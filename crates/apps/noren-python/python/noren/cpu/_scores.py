"""The score modifiers of an attention call: those of the mask and those that are arguments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from .._noren import Error, Modifiers, Spec
from ..arguments._arrays import Array, NumPy, Others, Torch
from ..arguments._given import check_names, number, numbers, short
from ..masks._forms import parsed


def scored(mask: Any, heads: int, arrays: Mapping[str, Array] | None, **given: Any) -> tuple[Any, dict[str, Any]]:
    """Returns (mask without score modifiers, arguments of score modifiers): the arguments in `given` and the modifiers of `mask`
    together. `bias` becomes a list, and `alibi` slopes, one for each of the `heads`.

    The array of a modifier is the one in `arrays` with its name, or else the argument of its kind in `given`.
    """
    mask = parsed(mask) if isinstance(mask, str) else mask
    if arrays is None and not isinstance(mask, Spec) and all(value is None for value in given.values()):
        return mask, {**given, "bias": []}
    left = check_names("arrays", arrays)
    bias = given["bias"]
    out = {**given, "bias": list(bias) if isinstance(bias, (list, tuple)) else [] if bias is None else [bias]}
    out["softcap"] = number("softcap", out["softcap"])
    if out["alibi"] is True:
        out["alibi"] = default_slopes(heads)
    out["alibi"] = numbers("alibi", out["alibi"], "numbers, one slope for each head (True gives the slopes of ALiBi)")
    scores = mask.scores if isinstance(mask, Spec) else []
    filled = dict.fromkeys(kind for kind in ("bias", "relative", "soft", "sinks") if given[kind] is not None)
    for score in scores:
        kind: str = score.kind
        value: Any = score.cap
        if kind == "alibi":
            value = default_slopes(heads) if score.slopes is None else score.slopes
        elif score.name is not None and score.name in left:
            value = left.pop(score.name)
        elif kind in filled:  # the argument is the array of this modifier
            del filled[kind]
            continue
        elif score.name is not None:
            raise Error(f'the score modifier `{score}` needs the array `{score.name}`: give it as {kind}=, or in arrays={{"{score.name}": ...}}')
        if kind == "bias":
            out[kind].append(value)
        elif out[kind] is not None:
            raise Error(f"{kind} is given twice, the second time as `{score}`: give it once")
        else:
            out[kind] = value
    if left:
        raise Error(f"arrays has {short(next(iter(left)))}, which no score modifier of the mask names: leave it out, or add the modifier, such as `+ bias(\"name\")`")
    return mask.mask if isinstance(mask, Spec) else mask, out


def default_slopes(heads: int) -> list[float]:
    """Returns the slopes of ALiBi: `2^(-8 (h + 1) / heads)` for head `h`."""
    return [2 ** (-8 * (head + 1) / heads) for head in range(heads)]


def by_distance(scores: Mapping[str, Any]) -> bool:
    """Returns true if score modifiers depend on the distance of query and key."""
    return scores["relative"] is not None or scores["alibi"] is not None


@lru_cache(maxsize=256)
def _simple(scale: float | None, softcap: float | None, threads: int | None) -> Modifiers:
    return Modifiers(scale=scale, softcap=softcap, threads=threads)


def modifiers_of(
    lib: NumPy | Torch | Others,
    *,
    scale: float | None,
    softcap: float | None,
    bias: Sequence[Array],
    relative: Array | None,
    soft: Array | None,
    sinks: Array | None,
    **rest: Any,
) -> Modifiers:
    """Returns the score modifiers of an attention call (see `scored`). Their arrays are converted to `float32`."""
    scale = number("scale", scale)
    if rest.get("threads") is None:
        rest["threads"] = lib.threads()
    plain = {"dropout": 0.0, "seed": 0}
    rest = {name: value for name, value in rest.items() if value is not None and not (type(value) in (int, float) and plain.get(name) == value)}
    if not rest.keys() - {"threads"} and not bias and all(array is None for array in (relative, soft, sinks)) and isinstance(rest.get("threads"), int | None):
        return _simple(scale, softcap, rest.get("threads"))

    def lend(name: str, array: Array | None) -> Array | None:
        return None if array is None else lib.floats(name, array)

    return Modifiers(
        scale=scale,
        softcap=softcap,
        bias=[lib.floats("bias", array) for array in bias],
        relative=table_of(lend("relative", relative)),
        soft=lend("soft", soft),
        sinks=_contiguous(lend("sinks", sinks)),
        **rest,
    )


def table_of(array: Array | None) -> Array | None:
    """Returns the table of the modifier `relative`, `[heads, distances]`, as `[1, heads, 1, distances]`."""
    if array is None or len(array.shape) != 2:
        return array
    return array.reshape(1, array.shape[0], 1, array.shape[1])


def _contiguous(array: Array | None) -> Array | None:
    if array is None:
        return None
    return array.contiguous() if hasattr(array, "contiguous") else array.reshape(-1).copy()

"""Checks the attributes and inputs of a node of the ONNX operator Attention: ranges, types and shapes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._noren import Error

INPUTS = ("Q", "K", "V", "attn_mask", "past_key", "past_value", "nonpad_kv_seqlen")
_CHOICES: dict[str, tuple[tuple[int, ...], str]] = {
    "is_causal": ((0, 1), "0 (no) or 1 (yes)"),
    "qk_matmul_output_mode": ((0, 1, 2, 3), "0 (scores), 1 (scores after softcap), 2 (scores with the mask) or 3 (probabilities)"),
    "softmax_precision": ((1, 10, 11, 16), "1 (float32), 10 (float16), 11 (float64) or 16 (bfloat16)"),
}
_LEAST = {"q_num_heads": 1, "kv_num_heads": 1, "left_window_size": -1, "right_window_size": -1}
_FLOATS = ("scale", "softcap")


def attributes(given: Mapping[str, Any]) -> dict[str, Any]:
    """Checks the attributes of a node and returns them. An attribute with the value None counts as missing."""
    for name, value in given.items():
        if name not in (*_CHOICES, *_LEAST, *_FLOATS):
            raise Error(f"Attention: unknown attribute {name!r}: the attributes are {', '.join((*_CHOICES, *_LEAST, *_FLOATS))}")
        if value is None and name not in ("is_causal", "qk_matmul_output_mode", "softcap", "left_window_size", "right_window_size"):
            continue
        if name in _FLOATS:
            _float(name, value)
        elif isinstance(value, bool) or not isinstance(value, (int, np.integer)):
            raise Error(f"Attention: {name}={value!r}: give an integer")
        elif name in _CHOICES and value not in _CHOICES[name][0]:
            raise Error(f"Attention: {name}={value}: give {_CHOICES[name][1]}")
        elif name in _LEAST and value < _LEAST[name]:
            raise Error(f"Attention: {name}={value}: give {_LEAST[name]} or more{' (-1 for no bound)' * (_LEAST[name] < 0)}")
    return dict(given)


def _float(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float, np.floating, np.integer)) or not math.isfinite(value):
        raise Error(f"Attention: {name}={value!r}: give a finite number")
    if name == "softcap" and value < 0:
        raise Error(f"Attention: softcap={value}: give 0 (none) or more")


def inputs_of(given: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
    """Checks the inputs of a node and returns them as arrays. Raises `Error` for unknown, missing and contradictory inputs."""
    unknown = [name for name in given if name not in INPUTS]
    if unknown:
        raise Error(f"Attention: unknown input {unknown[0]!r}: the inputs are {', '.join(INPUTS)}")
    found = {name: np.asarray(value) for name, value in given.items() if value is not None}
    missing = [name for name in ("Q", "K", "V") if name not in found]
    if missing:
        raise Error(f"Attention: the input{'s' * (len(missing) > 1)} {', '.join(missing)} is missing: Q, K and V are needed")
    if ("past_key" in found) != ("past_value" in found):
        one, other = ("past_key", "past_value") if "past_key" in found else ("past_value", "past_key")
        raise Error(f"Attention: {one} is given and {other} is not given: give both inputs or neither input")
    if "past_key" in found and "nonpad_kv_seqlen" in found:
        raise Error("Attention: past_key and nonpad_kv_seqlen are both given: give only the input for your kind of cache")
    for name in ("Q", "K", "V", "past_key", "past_value"):
        if name in found and not _floating(found[name]):
            raise Error(f"Attention: {name} has dtype {found[name].dtype}: give floats")
        if name in found and found[name].ndim not in ((3, 4) if len(name) == 1 else (4,)):
            raise Error(f"Attention: {name} has shape {found[name].shape}: give {'3 or 4' if len(name) == 1 else '4'} dimensions")
    if len({found[name].ndim for name in ("Q", "K", "V")}) > 1:
        sizes = ", ".join(f"{name} {found[name].shape}" for name in ("Q", "K", "V"))
        raise Error(f"Attention: the shapes are {sizes}: give all three inputs with 3 dimensions, or all three inputs with 4 dimensions")
    return found


def _floating(array: NDArray[Any]) -> bool:
    return array.dtype.kind == "f" or array.dtype.name == "bfloat16"


def shapes(q: NDArray[Any], k: NDArray[Any], v: NDArray[Any], inputs: Mapping[str, NDArray[Any]]) -> None:
    """Raises `Error` if the sizes of `q`, `k`, `v` and the other inputs contradict each other. `q`, `k` and `v` are `[batch,
    heads, length, width]`."""
    batch, heads, q_len, width = q.shape
    kv_len = k.shape[2]
    if k.shape[0] != batch or v.shape[0] != batch:
        raise Error(f"Attention: the batch is {batch} in Q, {k.shape[0]} in K and {v.shape[0]} in V: give equal batch sizes")
    if k.shape[1] != v.shape[1] or not k.shape[1] or heads % k.shape[1]:
        raise Error(f"Attention: Q has {heads} heads, K has {k.shape[1]}, V has {v.shape[1]}: K and V need equal numbers of heads that divide the number of heads of Q")
    if k.shape[3] != width:
        raise Error(f"Attention: a head of Q has {width} numbers, but a head of K has {k.shape[3]}: give heads of equal sizes")
    if v.shape[2] != kv_len:
        raise Error(f"Attention: K has {kv_len} keys, but V has {v.shape[2]} values: give equal numbers of keys and values")
    past = 0
    if "past_key" in inputs:
        key, value = inputs["past_key"], inputs["past_value"]
        past = key.shape[2]
        for name, x, like in (("past_key", key, k), ("past_value", value, v)):
            if (x.shape[:2], x.shape[3], x.shape[2]) != (like.shape[:2], like.shape[3], past):
                wanted = (*like.shape[:2], past, like.shape[3])
                raise Error(f"Attention: {name} has shape {x.shape}: the shape {wanted} is needed")
    if "attn_mask" in inputs:
        _mask(inputs["attn_mask"], (batch, heads, q_len, kv_len + past))
    if "nonpad_kv_seqlen" in inputs:
        _lengths(inputs["nonpad_kv_seqlen"], batch, kv_len)


def _mask(mask: NDArray[Any], sizes: tuple[int, int, int, int]) -> None:
    if mask.dtype != np.bool_ and not _floating(mask):
        raise Error(f"Attention: attn_mask has dtype {mask.dtype}: give booleans (true = may attend) or floats (added to scores)")
    axes = tuple(mask.shape)
    fits = 1 <= len(axes) <= 4 and axes[-1] <= sizes[3] and axes[-1] > 0
    if not fits or any(n not in (1, size) for n, size in zip(reversed(axes[:-1]), reversed(sizes[:-1]), strict=False)):
        raise Error(f"Attention: attn_mask has shape {axes}: give a shape that broadcasts to {sizes}; only the last dimension may be smaller")


def _lengths(lengths: NDArray[Any], batch: int, kv_len: int) -> None:
    if lengths.dtype.kind not in "iu" or lengths.shape != (batch,):
        raise Error(
            f"Attention: nonpad_kv_seqlen holds {lengths.dtype} and has shape {lengths.shape}: give {batch} integers, one for each batch row"
        )
    wrong = [int(n) for n in lengths if not 0 <= int(n) <= kv_len]
    if wrong:
        raise Error(f"Attention: nonpad_kv_seqlen holds {wrong[0]}: give lengths from 0 to {kv_len}, the number of keys")

"""Dense masks: true may attend (`keep`), true is ignored (`drop`), added to scores (`additive`), and who reads such arrays."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from .. import _noren
from .._arrays import Array
from .._doctor import _lent, recognise
from .._noren import BoundMask, Error, Facts, Score, Shape
from ._source import Bools, Exported, Source, found, read
from .scores import bias_of, refuse_positions, slopes_of, softcap_of

Sizes = Shape | int | None
Known = Facts | Mapping[str, Any] | None


def to_keep(mask: Exported, shape: Sizes = None, facts: Known = None) -> Bools:
    """Booleans, true may attend: what SDPA, transformers, JAX, Keras and ONNX read.

    `[batch or 1, heads or 1, q_len, kv_len]`, 1 where all are alike.

    >>> import noren as nr
    >>> nr.to_keep("causal", 3)[0, 0].astype(int).tolist()
    [[1, 0, 0], [1, 1, 0], [1, 1, 1]]
    """
    return read(mask, shape, facts, "an array of booleans").cells()


def to_drop(mask: Exported, shape: Sizes = None, facts: Known = None) -> Bools:
    """Booleans, true is ignored: what `nn.MultiheadAttention` and burn read. Else as `to_keep`."""
    return ~read(mask, shape, facts, "an array of booleans").cells()


def to_additive(
    mask: Exported,
    shape: Sizes = None,
    facts: Known = None,
    *,
    dtype: Any = "float32",
    fill: Literal["-inf", "lowest"] = "-inf",
    arrays: Mapping[str, Array] | None = None,
) -> Array:
    """What is added to scores: 0 where a query may attend, else -inf, or with `fill="lowest"` the lowest number of `dtype`.

    `dtype` is NumPy's, or PyTorch's for a tensor. Biases of the mask (`+ bias`, `+ alibi`, `+ relative`) are in it; forbidden
    cells are filled and never summed, so nothing overflows. With the lowest number a row that reads nothing would be the
    mean of all values and is refused.
    """
    source = read(mask, shape, facts, "an additive array", ("bias", "alibi", "relative"))
    if fill == "lowest":
        source.refuse_empty_rows("the mean of all values")
    elif fill != "-inf":
        raise Error(f'fill is {fill!r}: give "-inf" or "lowest"')
    cells = source.cells()
    bias = bias_of(source, arrays)
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(dtype, torch.dtype):
        lowest = torch.finfo(dtype).min if fill == "lowest" else -torch.inf
        keep = torch.from_numpy(cells)
        values = torch.zeros((), dtype=dtype) if bias is None else torch.from_numpy(bias).to(dtype)
        return torch.where(keep, values, torch.tensor(lowest, dtype=dtype))
    real = np.dtype(dtype)
    if real.kind != "f":
        raise TypeError(f"dtype is {real}: scores are floats")
    values = np.zeros((), real) if bias is None else bias.astype(real)
    return np.where(cells, values, real.type(np.finfo(real).min if fill == "lowest" else -np.inf))


def from_keep(array: Array) -> BoundMask:
    """The mask that an array of booleans says, true may attend: the smallest expression found, exact."""
    return recognise(array, "keep").bind()


def from_drop(array: Array) -> BoundMask:
    """The same of booleans where true is ignored."""
    return recognise(array, "drop").bind()


def from_additive(array: Array) -> BoundMask:
    """The same of floats that are added: 0, and -inf or the type's lowest number. Other numbers are refused."""
    return recognise(array, "additive").bind()


# --- jax.nn.dot_product_attention -------------------------------------------------------------------------------------


def to_jax(
    mask: Exported, shape: Sizes = None, facts: Known = None, *, arrays: Mapping[str, Array] | None = None
) -> dict[str, Any]:
    """Keyword arguments for `jax.nn.dot_product_attention`: flags where they say it exactly, else `mask`, and `bias`.

    A row that reads nothing would be the mean of all values there and is refused.
    """
    source = read(mask, shape, facts, "jax.nn.dot_product_attention", ("bias", "alibi", "relative"))
    source.refuse_empty_rows("the mean of all values")
    bias = bias_of(source, arrays)
    out: dict[str, Any] = {} if bias is None else {"bias": bias}
    return {**out, **(_flags(source) or {"mask": source.cells()})}


def _flags(source: Source) -> dict[str, Any] | None:
    """`is_causal` (aligned at the top left) and `local_window_size`, where they say the mask; nothing for a full one."""
    if source.count > 1:
        return None
    rows, q_len, kv_len = source.rows(0), source.shape.q_len, source.shape.kv_len
    if (rows.counts != 1).any():
        return None
    at = np.arange(q_len)
    start, end = rows.runs[:, 0], rows.runs[:, 1]
    right = {int(x) for x in (end - 1 - at)[end < kv_len]}
    left = {int(x) for x in (at - start)[start > 0]}
    if len(right) > 1 or len(left) > 1 or min(right | left, default=0) < 0:
        return None
    reach = (left.pop() if left else None, right.pop() if right else None)
    same_start = start == (0 if reach[0] is None else np.maximum(at - reach[0], 0))
    same_end = end == (kv_len if reach[1] is None else np.minimum(at + reach[1] + 1, kv_len))
    if not (same_start.all() and same_end.all()):
        return None
    if reach == (None, None):
        return {"is_causal": False}
    causal = reach[1] == 0
    if reach[0] is None and causal:
        return {"is_causal": True}
    window = tuple(max(q_len, kv_len) if side is None else side for side in reach)  # an open side reaches everything
    return {"is_causal": causal, "local_window_size": window}


def from_jax(
    q_len: int,
    kv_len: int,
    *,
    mask: Array | None = None,
    is_causal: bool = False,
    local_window_size: int | tuple[int, int] | None = None,
    query_seq_lengths: Array | None = None,
    key_value_seq_lengths: Array | None = None,
) -> BoundMask:
    """The mask that these arguments of `jax.nn.dot_product_attention` say together."""
    parts = _noren.full()
    if is_causal:
        parts = parts & _noren.causal()
    if local_window_size is not None:
        window = (local_window_size,) * 2 if isinstance(local_window_size, int) else local_window_size
        parts = parts & _noren.window(left=int(window[0]), right=int(window[1]))
    batch, heads = (1, 1) if mask is None else np.shape(mask)[:2]
    for lengths in (query_seq_lengths, key_value_seq_lengths):
        batch = max(batch, 1 if lengths is None else len(np.asarray(lengths)))
    cells = parts.dense(Shape.cross(q_len, kv_len, batch=batch, heads=heads))
    if mask is not None:
        cells &= np.asarray(mask, np.bool_)
    if query_seq_lengths is not None:
        cells &= (np.arange(q_len) < np.asarray(query_seq_lengths)[:, None])[:, None, :, None]
    if key_value_seq_lengths is not None:
        cells &= (np.arange(kv_len) < np.asarray(key_value_seq_lengths)[:, None])[:, None, None, :]
    return found(cells, "the mask")


# --- Keras ------------------------------------------------------------------------------------------------------------


def to_keras(mask: Exported, shape: Sizes = None, facts: Known = None) -> dict[str, Any]:
    """Keyword arguments of a call of `keras.layers.MultiHeadAttention`: `use_causal_mask`, or `attention_mask` as booleans
    `[batch or 1, q_len, kv_len]`, with heads after the batch where they differ. Rows that read nothing are refused."""
    source = read(mask, shape, facts, "keras.layers.MultiHeadAttention")
    source.refuse_empty_rows("the mean of all values")
    flags = _flags(source)
    if flags is not None and "local_window_size" not in flags:
        return {"use_causal_mask": flags["is_causal"]}
    cells = source.cells()
    return {"attention_mask": cells if cells.shape[1] > 1 else cells[:, 0]}


def from_keras(q_len: int, kv_len: int, *, attention_mask: Array | None = None, use_causal_mask: bool = False) -> BoundMask:
    """The mask that these arguments of `keras.layers.MultiHeadAttention` say together."""
    cells = (_noren.causal() if use_causal_mask else _noren.full()).dense(Shape.cross(q_len, kv_len))
    if attention_mask is not None:
        given = np.asarray(attention_mask, np.bool_)
        cells = cells & (given[:, None] if given.ndim == 3 else given)
    return found(cells, "attention_mask")


# --- ONNX ---------------------------------------------------------------------------------------------------------------


def to_onnx(
    mask: Exported, shape: Sizes = None, facts: Known = None, *, arrays: Mapping[str, Array] | None = None
) -> dict[str, Any]:
    """The `attn_mask` input and the attributes `is_causal` and `softcap` of ONNX's Attention (opset 23 and later).

    `attn_mask` is boolean, or float where the mask has biases. A window is an array; opsets to come may say it.
    """
    source = read(mask, shape, facts, "ONNX Attention", ("bias", "alibi", "relative", "softcap"))
    bias, softcap = bias_of(source, arrays), softcap_of(source)
    out: dict[str, Any] = {} if softcap is None else {"softcap": softcap}
    flags = _flags(source)
    plain = flags is not None and "local_window_size" not in flags
    if plain and flags is not None and flags["is_causal"]:
        out["is_causal"] = 1
    if bias is not None:
        out["attn_mask"] = bias if plain else np.where(source.cells(), bias, np.float32(-np.inf))
    elif not plain:
        out["attn_mask"] = source.cells()
    return out


def from_onnx(q_len: int, kv_len: int, *, attn_mask: Array | None = None, is_causal: int = 0) -> BoundMask:
    """The mask that these say together; a shorter last dimension of `attn_mask` is forbidden beyond it."""
    cells = (_noren.causal() if is_causal else _noren.full()).dense(Shape.cross(q_len, kv_len))
    if attn_mask is not None:
        given = np.asarray(attn_mask)
        keep = given if given.dtype == np.bool_ else recognise(given[(None,) * (4 - given.ndim)]).bind().dense()
        keep = keep[(None,) * (4 - keep.ndim)]
        missing = kv_len - keep.shape[-1] if keep.shape[-1] > 1 else 0
        cells = cells & np.pad(keep, ((0, 0),) * 3 + ((0, missing),))
    return found(cells, "attn_mask")


# --- llama.cpp ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LlamaCppMask:
    """The mask of `ggml_flash_attn_ext` and `ggml_soft_max_ext`."""

    mask: NDArray[np.float16]
    """`[batch or 1, heads or 1, padded q_len, kv_len]`; ggml counts dimensions from the last one."""
    max_bias: float = 0.0
    """8 where the mask holds distances for ALiBi's usual slopes."""


def to_llama_cpp(mask: Exported, shape: Sizes = None, facts: Known = None, *, pad: int = 1) -> LlamaCppMask:
    """llama.cpp's additive mask in half precision; query rows are padded to a multiple of `pad` with rows of -inf.

    `+ alibi` with the slopes that ggml makes of `max_bias` = 8 (the usual ones where the head count is a power of two) becomes
    distances and `max_bias`; other slopes, and distances that half precision cannot hold, are refused.
    """
    source = read(mask, shape, facts, "llama.cpp's f16 mask", ("alibi",))
    cells = source.cells()
    values: Any = np.float16(0)
    if source.scores:
        score = source.scores[0]
        _refuse_slopes(source, score)
        refuse_positions(source.target, score, source.plan.bound.facts)
        if len(set(source.shape.query_offsets)) > 1:
            source.refuse("alibi with queries that stand at other positions in each batch row", "export the rows by themselves")
        at = np.arange(source.shape.q_len)[:, None] + source.shape.query_offsets[0]
        distance = np.abs(np.arange(source.shape.kv_len) - at)
        values = -np.minimum(distance, 65504).astype(np.float16)
        lost = (values.astype(np.int64) != -distance) & cells.any((0, 1))
        if lost.any():
            source.refuse(f"the distance {distance[lost].min()} of alibi", "half precision holds whole numbers to 2048")
    out = np.where(cells, values, np.float16(-np.inf))
    rows = -out.shape[2] % pad
    padded = np.pad(out, ((0, 0), (0, 0), (0, rows), (0, 0)), constant_values=-np.inf)
    return LlamaCppMask(padded, 8.0 if source.scores else 0.0)


def _refuse_slopes(source: Source, score: Score) -> None:
    """Refuses slopes other than those that ggml makes of `max_bias` = 8: the usual ones for a power of two of heads, and for
    other head counts those of the power of two below, then every other one of twice as many heads."""
    heads = source.shape.heads
    power = 1 << (heads.bit_length() - 1)
    usual = [2.0 ** (-8 * (head + 1) / power) for head in range(power)]
    usual += [2.0 ** (-4 * (2 * head + 1) / power) for head in range(heads - power)]
    if not np.allclose(slopes_of(score, heads), np.array(usual, np.float32), rtol=1e-6, atol=0):
        source.refuse(
            f"`{score}` of {heads} heads",
            f"its slopes are {[float(f'{slope:.6g}') for slope in usual]}; give these as alibi(slopes=[...]) if the model has them",
        )


def from_llama_cpp(mask: LlamaCppMask | Array, q_len: int) -> BoundMask:
    """The mask of the first `q_len` rows; distances (`max_bias`) are may-attend."""
    given, max_bias = (mask.mask, mask.max_bias) if isinstance(mask, LlamaCppMask) else (np.asarray(mask), 0.0)
    rows = given[(None,) * (4 - given.ndim)][:, :, :q_len]
    if max_bias > 0:
        rows = np.where(np.isneginf(rows), rows, np.zeros((), rows.dtype))
    return found(recognise(_lent(rows), "additive").bind().dense(), "the mask")


__all__ = [
    "LlamaCppMask", "from_additive", "from_drop", "from_jax", "from_keep", "from_keras", "from_llama_cpp", "from_onnx",
    "to_additive", "to_drop", "to_jax", "to_keep", "to_keras", "to_llama_cpp", "to_onnx",
]  # fmt: skip

"""Dense masks: `keep`, in which true allows a cell; `drop`, in which true hides a cell; `additive`, with the numbers to add to
the scores."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from .. import _noren
from .._noren import BoundMask, Error, ExportError, Facts, Score, Shape
from ..arguments._arrays import Array
from ..masks._doctor import _lent, recognise
from ._source import Bools, Exported, Source, found, read
from .scores import bias_of, refuse_positions, slopes_of, softcap_of

Sizes = Shape | int | None
Known = Facts | Mapping[str, Any] | None


def to_keep(mask: Exported, shape: Sizes = None, facts: Known = None) -> Bools:
    """Returns the cells as booleans, true means "may attend": the convention of SDPA, transformers, JAX, Keras and ONNX.

    The array is `[batch or 1, heads or 1, q_len, kv_len]`; a dimension is 1 if all batch rows or heads are equal. `shape` (a
    `Shape` or a length) and `facts` are needed for a mask or its text. Raises `ExportError` for score modifiers.

    >>> import noren as nr
    >>> nr.to_keep("causal", 3)[0, 0].astype(int).tolist()
    [[1, 0, 0], [1, 1, 0], [1, 1, 1]]
    """
    return read(mask, shape, facts, "an array of booleans").cells()


def to_drop(mask: Exported, shape: Sizes = None, facts: Known = None) -> Bools:
    """Returns the cells as booleans, true means "the query may not read the key": the convention of `nn.MultiheadAttention` and
    burn.

    Everything else is as in `to_keep`.
    """
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
    """Returns the array that is added to scores: 0 where a query may attend, elsewhere -inf, or the lowest number of `dtype`.

    Its shape is that of `to_keep`. `dtype` is a float type of NumPy, or of PyTorch for a tensor. `fill="-inf"` [default] or
    `"lowest"` is the value of denied cells. The biases of the mask (`+ bias`, `+ alibi`, `+ relative`, with `arrays` by name)
    are included. Raises `ExportError` for other score modifiers; with `"lowest"` also for a row without an allowed key, whose
    output would be the mean of all values instead of 0.
    """
    source = read(mask, shape, facts, "an additive array", ("bias", "alibi", "relative"))
    if fill == "lowest":
        source.refuse_empty_rows("the mean of all values")
    elif fill != "-inf":
        raise Error(f'`fill` is {fill!r}: give "-inf" or "lowest"')
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
        raise TypeError(f"`dtype` is {real}: give a float type")
    values = np.zeros((), real) if bias is None else bias.astype(real)
    return np.where(cells, values, real.type(np.finfo(real).min if fill == "lowest" else -np.inf))


def from_keep(array: Array) -> BoundMask:
    """Returns the mask of an array of booleans, in which true means "may attend". The mask has exactly these cells, as the
    smallest expression found."""
    return recognise(array, "keep").bind()


def from_drop(array: Array) -> BoundMask:
    """Returns the mask of an array of booleans, in which true means "the query may not read the key"; otherwise like
    `from_keep`."""
    return recognise(array, "drop").bind()


def from_additive(array: Array) -> BoundMask:
    """Returns the mask of an array of floats that are added to scores: 0 for allowed cells, -inf or numbers from -9984 down, such as
    -1e9, for denied cells. Everything else is as in `from_keep`.

    Raises `Error` for other numbers.
    """
    return recognise(array, "additive").bind()


# --- jax.nn.dot_product_attention -------------------------------------------------------------------------------------


def to_jax(
    mask: Exported, shape: Sizes = None, facts: Known = None, *, arrays: Mapping[str, Array] | None = None
) -> dict[str, Any]:
    """Returns the keyword arguments of `jax.nn.dot_product_attention` for a mask: JAX's flags if these express the mask
    exactly, otherwise the array `mask`.

    Biases become `bias`. Raises `ExportError` for a row without an allowed key, because JAX returns the mean of all values for
    such a row, and noren returns 0.
    """
    source = read(mask, shape, facts, "jax.nn.dot_product_attention", ("bias", "alibi", "relative"))
    source.refuse_empty_rows("the mean of all values")
    bias = bias_of(source, arrays)
    out: dict[str, Any] = {} if bias is None else {"bias": bias}
    return {**out, **(_flags(source) or {"mask": source.cells()})}


def _flags(source: Source) -> dict[str, Any] | None:
    """Returns JAX's flags `is_causal` (query `i` reads the keys up to `i`) and `local_window_size` if they express the mask
    exactly, otherwise None.
    """
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
    window = tuple(max(q_len, kv_len) if side is None else side for side in reach)  # an unbounded side reaches every key
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
    """Returns the mask that these arguments of `jax.nn.dot_product_attention` define together: a cell is allowed if every given
    argument allows it."""
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
    """Returns keyword arguments for a call of `keras.layers.MultiHeadAttention`: `use_causal_mask` or `attention_mask`.

    `attention_mask` holds booleans `[batch or 1, q_len, kv_len]`, or `[batch or 1, heads, q_len, kv_len]` if heads differ. Raises
    `ExportError` for score modifiers and for a row without an allowed key.
    """
    source = read(mask, shape, facts, "keras.layers.MultiHeadAttention")
    source.refuse_empty_rows("the mean of all values")
    flags = _flags(source)
    if flags is not None and "local_window_size" not in flags:
        return {"use_causal_mask": flags["is_causal"]}
    cells = source.cells()
    return {"attention_mask": cells if cells.shape[1] > 1 else cells[:, 0]}


def from_keras(q_len: int, kv_len: int, *, attention_mask: Array | None = None, use_causal_mask: bool = False) -> BoundMask:
    """Returns the mask that these arguments of `keras.layers.MultiHeadAttention` define together: a cell is allowed if both
    allow it."""
    cells = (_noren.causal() if use_causal_mask else _noren.full()).dense(Shape.cross(q_len, kv_len))
    if attention_mask is not None:
        given = np.asarray(attention_mask, np.bool_)
        cells = cells & (given[:, None] if given.ndim == 3 else given)
    return found(cells, "attention_mask")


# --- ONNX ---------------------------------------------------------------------------------------------------------------


def to_onnx(
    mask: Exported, shape: Sizes = None, facts: Known = None, *, arrays: Mapping[str, Array] | None = None
) -> dict[str, Any]:
    """Returns the input `attn_mask` and the attributes `is_causal` and `softcap` of ONNX's Attention (opset 23 and later).

    `attn_mask` is `[batch or 1, heads or 1, q_len, kv_len]`, boolean (true may attend), or float if the mask has biases. Raises
    `ExportError` for soft weights and sinks.
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
    """Returns the mask that the given inputs of ONNX's Attention define together.

    Keys beyond the last dimension of `attn_mask` are denied.
    """
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
    """The arguments for masks of `ggml_flash_attn_ext` and `ggml_soft_max_ext` (llama.cpp)."""

    mask: NDArray[np.float16]
    """The numbers to add to the scores, `[batch or 1, heads or 1, padded q_len, kv_len]`. ggml lists these dimensions in
    reverse order."""
    max_bias: float = 0.0
    """The argument from which ggml derives ALiBi's slopes: 8 if `mask` holds negative distances for ALiBi, otherwise
    0."""


def to_llama_cpp(mask: Exported, shape: Sizes = None, facts: Known = None, *, pad: int = 1) -> LlamaCppMask:
    """Converts a mask to llama.cpp's additive mask in half precision. Rows of -inf are appended until the number of query rows
    is a multiple of `pad`.

    `+ alibi` becomes negative distances and `max_bias` = 8. Raises `ExportError` for slopes other than those that ggml derives
    from `max_bias` (the usual slopes, if the number of heads is a power of two), for facts with positions of keys, for query
    positions that differ between batch rows, for distances that half precision cannot hold, and for other score modifiers.
    """
    source = read(mask, shape, facts, "llama.cpp's f16 mask", ("alibi",))
    cells = source.cells()
    values: Any = np.float16(0)
    if source.scores:
        score = source.scores[0]
        _refuse_slopes(source, score)
        refuse_positions(source.target, score, source.plan.bound.facts)
        if len(set(source.shape.query_offsets)) > 1:
            raise ExportError(f"{source.target} cannot express alibi with query positions that differ between batch rows: export each batch row separately")
        at = np.arange(source.shape.q_len)[:, None] + source.shape.query_offsets[0]
        distance = np.abs(np.arange(source.shape.kv_len) - at)
        values = -np.minimum(distance, 65504).astype(np.float16)
        lost = (values.astype(np.int64) != -distance) & cells.any((0, 1))
        if lost.any():
            raise ExportError(
                f"{source.target} cannot express alibi with a distance of {distance[lost].min()} between query and key: give a shorter sequence, because half precision holds every whole number only up to 2048"
            )
    out = np.where(cells, values, np.float16(-np.inf))
    rows = -out.shape[2] % pad
    padded = np.pad(out, ((0, 0), (0, 0), (0, rows), (0, 0)), constant_values=-np.inf)
    return LlamaCppMask(padded, 8.0 if source.scores else 0.0)


def _refuse_slopes(source: Source, score: Score) -> None:
    """Raises `ExportError` for slopes other than those that ggml derives from `max_bias` = 8.

    If the number of heads is a power of two, these are the default slopes of ALiBi. Otherwise, with `p` the largest power of
    two below the number of heads, they are the default slopes of `p` heads, followed by the first, third, fifth, ... default
    slope of `2 * p` heads.
    """
    heads = source.shape.heads
    power = 1 << (heads.bit_length() - 1)
    usual = [2.0 ** (-8 * (head + 1) / power) for head in range(power)]
    usual += [2.0 ** (-4 * (2 * head + 1) / power) for head in range(heads - power)]
    if not np.allclose(slopes_of(score, heads), np.array(usual, np.float32), rtol=1e-6, atol=0):
        slopes = [float(f"{slope:.6g}") for slope in usual]
        raise ExportError(
            f"{source.target} cannot express `{score}` of {heads} heads: llama.cpp's own slopes are {slopes}; give these slopes as alibi(slopes=[...]) if the model has these slopes"
        )


def from_llama_cpp(mask: LlamaCppMask | Array, q_len: int) -> BoundMask:
    """Returns the mask of llama.cpp's array. Only its first `q_len` query rows are used; the rows after them are padding.

    If `max_bias` is not 0, the finite numbers of the mask are negative distances, and their cells are allowed.
    """
    given, max_bias = (mask.mask, mask.max_bias) if isinstance(mask, LlamaCppMask) else (np.asarray(mask), 0.0)
    rows = given[(None,) * (4 - given.ndim)][:, :, :q_len]
    if max_bias > 0:
        rows = np.where(np.isneginf(rows), rows, np.zeros((), rows.dtype))
    return found(recognise(_lent(rows), "additive").bind().dense(), "the mask")

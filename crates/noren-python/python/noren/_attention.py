"""`noren.attention`: masked attention over arrays of NumPy, PyTorch and other libraries with `__dlpack__`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from . import _noren
from ._arrays import Array, NumPy, Others, Torch, library
from ._doctor import Recognised
from ._given import check_names, number, numbers
from ._masking import Sizes, broadcast, given_arrays, refuse_array, with_arrays
from ._noren import BoundMask, Error, Facts, Mask, Modifiers, ParseError, Plan, Shape, Spec

Masking = Mask | Spec | Plan | BoundMask | Recognised | str
"""The types of a mask argument: a mask, a mask with score modifiers, a plan, a bound or recognised mask, or the text of a mask."""


def attention(
    q: Array,
    k: Array,
    v: Array,
    mask: Masking | None = None,
    *,
    keep: Array | None = None,
    drop: Array | None = None,
    additive: Array | None = None,
    scale: float | None = None,
    softcap: float | None = None,
    bias: Array | Sequence[Array] | None = None,
    relative: Array | None = None,
    alibi: Sequence[float] | None = None,
    soft: Array | None = None,
    sinks: Array | None = None,
    dropout: float = 0.0,
    seed: int = 0,
    facts: Facts | Mapping[str, Any] | None = None,
    query_offset: int | Sequence[int] | None = None,
    arrays: Mapping[str, Array] | None = None,
    return_lse: bool = False,
    return_weights: bool = False,
    threads: int | None = None,
    isa: str | None = None,
) -> Any:
    """Returns masked attention: `softmax(scale * q k^T + ..., over the keys that the mask allows) v`.

    `q` is `[batch, heads, q_len, head_dim]`, `k` is `[batch, kv_heads, kv_len, head_dim]`, `v` is `[batch, kv_heads, kv_len,
    v_dim]`. They are arrays of NumPy, PyTorch (on the CPU) or any other library with `__dlpack__`, of type `float32`, `bfloat16`
    or `float16`, with any strides; they are read in place. Batch and heads may be left out.

    The output `[batch, heads, q_len, v_dim]` has the library and type of `q`. `return_lse` adds the log-sum-exps `[batch, heads,
    q_len]` in float32, which include the sinks, and `return_weights` the probabilities `[batch, heads, q_len, kv_len]` by which
    the values are multiplied, after dropout; the result is then a tuple.

    `mask` is a mask, its text, a mask with score modifiers, a plan, or a bound or recognised mask. `arrays` holds the arrays
    that the score modifiers name. A bound or recognised mask with one batch row is used for all batch rows, one with one head
    for all heads. `facts` are those of `Mask.bind`. If `q_len` and `kv_len` differ, a mask that depends on the positions of
    queries needs `query_offset`, the position of the first query.

    A mask array is given by the argument for its convention: `keep` (true = may attend), `drop` (true = ignored), `additive`
    (floats that are added to scores; -inf hides). The shape of a mask array is `[q_len, kv_len]`, `[batch, q_len, kv_len]`,
    `[batch * heads, q_len, kv_len]` or `[batch, heads, q_len, kv_len]`; every dimension may be 1. A key is read only if `mask`
    and all arrays allow it.

    Scores are changed in this order:

    1. `scale` multiplies them [default: 1 / sqrt(head_dim)]; on the path `avx512bf16`, products of bfloat16 numbers are added first,
       and their sum must not overflow
    2. `softcap` limits them
    3. `bias` (arrays that broadcast to `[batch, heads, q_len, kv_len]`), `relative` (a table `[heads, 2 * reach + 1]`, one number
       for each distance; one head for all heads) and `alibi` (one slope for each head) are added; a score below -6.9e37 is
       treated as -inf, and one above 2.3e38 as infinite
    4. `soft` multiplies their exponentials by weights from 0 to 1; a weight below 2^-100 hides the cell, as 0 does
    5. the mask hides keys
    6. the softmax is computed with `sinks` (one logit for each head)

    `dropout` is the probability to drop a weight, and `seed` selects which weights are dropped. `threads` is the number of
    threads [default: all cores], `isa` a name from `noren.isas()` [default: the fastest].

    A query that may read no key, or whose scores are all -inf, gets the output 0 and the log-sum-exp -inf, with or without sinks. A
    query with an infinite score gets NaN. A key with the score -inf that the mask allows has the weight 0, but its value is read: if
    it is infinite or NaN, the output is NaN.

    Raises `noren.Error` (a ValueError) for wrong values and TypeError for wrong types. Arrays must not change during the call,
    because the call releases the interpreter's lock. Ctrl-C cancels a call.
    """
    lib = library(q)
    for name, array in (("q", q), ("k", k), ("v", v)):
        if not hasattr(array, "__dlpack__"):
            raise TypeError(
                f"`{type(array).__name__}` is not an array: give a NumPy array, a PyTorch tensor on the CPU or another array "
                "with __dlpack__"
            )
        library(array).check(name, array)
    by_distance = relative is not None or alibi is not None
    given = given_arrays(keep=keep, drop=drop, additive=additive)
    for array in given.values():
        library(array).lend(array)  # refuses tensors whose gradients would be lost
    plan, spec, added = plan_with_arrays(mask, q, k, facts, query_offset, given, by_distance)
    if added:
        bias = [*added, *_listed(bias)]
    out = lib.empty((*q.shape[:-1], v.shape[-1]), q)
    modifiers = modifiers_of(
        lib, scale=scale, softcap=softcap, bias=bias, relative=relative, alibi=alibi, soft=soft, sinks=sinks,
        dropout=dropout, seed=seed, spec=spec, arrays=arrays, threads=threads, isa=isa,
    )  # fmt: skip
    lent = lib.lend(q), lib.lend(k), lib.lend(v)
    if not isinstance(lib, Others) and str(q.dtype).endswith("float64"):
        from ._double import attention as doubles

        if spec is not None:
            raise Error(f"`{spec}` has score modifiers, which are not computed in float64: give the mask alone and the modifiers by arguments")
        slopes, biases = None if alibi is None else numbers("alibi", alibi), _listed(bias)
        found = doubles(
            *lent, plan, modifiers, scale=number("scale", scale), softcap=number("softcap", softcap), bias=biases, relative=relative,
            alibi=slopes, soft=soft, sinks=sinks, dropout=dropout, seed=seed,
        )  # fmt: skip
        results = [found[0], *found[1:2] * bool(return_lse), *found[2:] * bool(return_weights)]
        return results[0] if len(results) == 1 else tuple(results)
    lse = lib.zeros(q.shape[:-1]) if return_lse else None
    _noren.forward(*lent, plan, modifiers, lib.lend(out), lse)
    results = [lib.finish(out, q)]
    if return_lse:
        results.append(lib.finish(lse, q))
    if return_weights:
        weights = lib.zeros((*q.shape[:-1], k.shape[-2]))
        _noren.weights(*lent, plan, modifiers, weights)
        results.append(lib.finish(weights, q))
    return results[0] if len(results) == 1 else tuple(results)


def plan_with_arrays(
    mask: Masking | None,
    q: Array,
    k: Array,
    facts: Facts | Mapping[str, Any] | None,
    query_offset: int | Sequence[int] | None,
    given: Mapping[str, Array],
    by_distance: bool = False,
) -> tuple[Plan, Spec | None, list[Array]]:
    """Plans a mask combined with the mask arrays in `given`, a dict from conventions ("keep", "drop", "additive") to arrays.
    Returns (plan, `mask` if it is a `Spec` (a mask with score modifiers) or None, arrays of floats that are added to scores).
    """
    if not given:
        if mask is None:
            raise TypeError('no mask was given: give a mask, "full" to read every key, or an array by keep=, drop= or additive=')
        return *plan_of(mask, q, k, facts, query_offset, by_distance), []
    if mask is None:
        mask = _noren.full()
    elif isinstance(mask, str):
        mask = parsed(mask)
    spec = mask if isinstance(mask, Spec) else None
    base = mask.mask if isinstance(mask, Spec) else mask
    if not isinstance(base, Mask):
        raise TypeError(f"a {type(base).__name__} and {', '.join(f'{name}=' for name in given)} were given together: only a Mask or its text can be combined with an array")
    both, known, added = with_arrays(base, given, _sizes(q, k), facts)
    moves = by_distance or (base.uses_query_offset() if spec is None else spec.uses_query_offset())
    return both.plan(shape_of(q, k, _offsets(query_offset), moves), known), spec, added


def plan_of(
    mask: Masking,
    q: Array,
    k: Array,
    facts: Facts | Mapping[str, Any] | None = None,
    query_offset: int | Sequence[int] | None = None,
    by_distance: bool = False,
) -> tuple[Plan, Spec | None]:
    """Returns (plan of `mask` for the sizes of `q` and `k`, `mask` if it is a `Spec` (a mask with score modifiers) or None).

    `by_distance` is true if score modifiers depend on the distance of query and key.
    """
    if isinstance(mask, (Plan, BoundMask, Recognised)):
        if facts is not None or query_offset is not None:
            what = "plan" if isinstance(mask, Plan) else "bound mask"
            raise Error(f"a {what} already contains its facts and query offset: leave out facts= and query_offset=, or give a mask instead of the {what}")
        return (mask if isinstance(mask, Plan) else broadcast(mask, _sizes(q, k))), None
    if isinstance(mask, str):
        mask = parsed(mask)
    spec = None
    moves = by_distance
    if isinstance(mask, Spec):
        spec, mask = mask, mask.mask
        moves |= spec.uses_query_offset()
    if not isinstance(mask, Mask):
        raise refuse_array(mask)
    shape = shape_of(q, k, _offsets(query_offset), moves or mask.uses_query_offset())
    return (_planned(mask, shape) if facts is None else mask.plan(shape, facts)), spec


def _offsets(given: int | Sequence[int] | None) -> int | tuple[int, ...] | None:
    return tuple(given) if isinstance(given, Sequence) else given


def _sizes(q: Array, k: Array) -> Sizes:
    """Returns the sizes of an attention call as (batch rows, query heads, key-value heads, queries, keys)."""
    sizes = []
    for name, array in (("q", q), ("k", k)):
        dims = tuple(getattr(array, "shape", ()))
        if not 2 <= len(dims) <= 4:
            raise TypeError(f"{name} has shape {dims}: give [batch, heads, length, head_dim]; leading dimensions of 1 may be left out")
        sizes.append((1,) * (4 - len(dims)) + dims)
    (batch, heads, q_len, _), (_, kv_heads, kv_len, _) = sizes
    return batch, heads, kv_heads, q_len, kv_len


def shape_of(q: Array, k: Array, query_offset: int | tuple[int, ...] | None = None, moves: bool = True) -> Shape:
    """Returns the shape of an attention call from the sizes of `q` and `k`. `moves` is true if the query offset (position of
    the first query) can change the result; if false, the offset may be left out.
    """
    batch, heads, kv_heads, q_len, kv_len = _sizes(q, k)
    if query_offset is None and not moves:
        query_offset = 0
    return _shape(q_len, kv_len, query_offset, batch, heads, kv_heads)


@lru_cache(maxsize=256)
def _shape(q_len: int, kv_len: int, offset: Any, batch: int, heads: int, kv_heads: int) -> Shape:
    return Shape(q_len, kv_len, query_offset=offset, batch=batch, heads=heads, kv_heads=kv_heads)


@lru_cache(maxsize=256)
def parsed(text: str) -> Mask | Spec:
    try:
        found: Mask | Spec = _noren.parse(text)
    except UnicodeEncodeError:
        raise ParseError(f"the text of the mask is {text!a}, which contains characters that are not Unicode: give the text of a mask") from None
    return found


@lru_cache(maxsize=64)
def _planned(mask: Mask, shape: Shape) -> Plan:
    return mask.plan(shape)


@lru_cache(maxsize=256)
def _simple(scale: float | None, softcap: float | None, threads: int | None) -> Modifiers:
    return Modifiers(scale=scale, softcap=softcap, threads=threads)


def modifiers_of(
    lib: NumPy | Torch | Others,
    *,
    scale: float | None = None,
    softcap: float | None = None,
    bias: Array | Sequence[Array] | None = None,
    relative: Array | None = None,
    soft: Array | None = None,
    sinks: Array | None = None,
    arrays: Mapping[str, Array] | None = None,
    **rest: Any,
) -> Modifiers:
    """Returns the score modifiers of an attention call. Their arrays are converted to `float32`."""
    scale, softcap = number("scale", scale), number("softcap", softcap)
    if rest.get("threads") is None:
        rest["threads"] = lib.threads()
    plain = {"dropout": 0.0, "seed": 0}
    rest = {name: value for name, value in rest.items() if value is not None and not (type(value) in (int, float) and plain.get(name) == value)}
    given = (bias, relative, soft, sinks, arrays)
    if not rest.keys() - {"threads"} and all(array is None for array in given) and isinstance(rest.get("threads"), int | None):
        return _simple(scale, softcap, rest.get("threads"))
    check_names("arrays", arrays)
    if "alibi" in rest:
        rest["alibi"] = numbers("alibi", rest["alibi"])
    biases = _listed(bias)
    def lend(name: str, array: Array | None) -> Array | None:
        return None if array is None else lib.floats(name, array)

    return Modifiers(
        scale=scale,
        softcap=softcap,
        bias=[lib.floats("bias", array) for array in biases],
        relative=_table(lend("relative", relative)),
        soft=lend("soft", soft),
        sinks=_contiguous(lend("sinks", sinks)),
        arrays={name: _named(spec_score(rest.get("spec"), name), lend(name, array)) for name, array in (arrays or {}).items()},
        **rest,
    )


def _listed(bias: Array | Sequence[Array] | None) -> list[Array]:
    return list(bias) if isinstance(bias, (list, tuple)) else [] if bias is None else [bias]


def spec_score(spec: Spec | None, name: str) -> str:
    """Returns the kind of the score modifier of `spec` whose array is called `name`, or an empty text if `spec` has no such
    modifier.
    """
    return next((score.kind for score in spec.scores if score.name == name), "") if spec is not None else ""


def _named(kind: str, array: Array) -> Array:
    if kind == "relative":
        return _table(array)
    return _contiguous(array) if kind == "sinks" else array


def _table(array: Array | None) -> Array | None:
    """Returns the table of the modifier `relative`, `[heads, distances]`, as `[1, heads, 1, distances]`."""
    if array is None or len(array.shape) != 2:
        return array
    return array.reshape(1, array.shape[0], 1, array.shape[1])


def _contiguous(array: Array | None) -> Array | None:
    if array is None:
        return None
    return array.contiguous() if hasattr(array, "contiguous") else array.reshape(-1).copy()

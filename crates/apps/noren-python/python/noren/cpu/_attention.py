"""`noren.attention`: masked attention over arrays of NumPy, PyTorch and other libraries with `__dlpack__`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from .. import _noren
from .._noren import BoundMask, Error, Facts, Mask, Modifiers, ParseError, Plan, Shape, Spec
from ..arguments._arrays import Array, NumPy, Others, Torch, library
from ..arguments._given import check_names, number, numbers, short
from ..masks._doctor import Recognised
from ..masks._forms import EXCHANGED, Sizes, broadcast, given_arrays, refuse_array, with_arrays

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
    alibi: Sequence[float] | bool | None = None,
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
    that the score modifiers name; if a modifier is the only one of its kind, its array may also be the argument of this kind
    (`bias=`, `relative=`, `soft=`, `sinks=`). A plan or a bound or recognised mask with one batch row is used for all batch rows,
    one with one head for all heads. `facts` are those of `Mask.bind`. If `q_len` and `kv_len` differ, a mask that depends on the positions of
    queries needs `query_offset`, the position of the first query.

    A mask array is given by the argument for its convention: `keep` (true = may attend), `drop` (true = ignored), `additive`
    (floats that are added to scores; -inf and numbers from -9984 down, such as -1e9, hide). The shape of a mask array is `[q_len, kv_len]`, `[batch, q_len, kv_len]`,
    `[batch * heads, q_len, kv_len]` or `[batch, heads, q_len, kv_len]`; every dimension may be 1. `keep` and `drop` may be sparse
    matrices `[q_len, kv_len]` of PyTorch or SciPy. A key is read only if `mask`
    and all arrays allow it.

    Scores are changed in this order:

    1. `scale` multiplies them [default: 1 / sqrt(head_dim)]; on the paths `avx512bf16` and `amx`, products of bfloat16 numbers are added first,
       and their sum must not overflow
    2. `softcap` limits them
    3. `bias` (arrays that broadcast to `[batch, heads, q_len, kv_len]`), `relative` (a table `[heads, 2 * reach + 1]`, one number
       for each distance; one head for all heads) and `alibi` (one slope for each head, or True for ALiBi's own slopes) are added; a score below -6.9e37 is
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
    check_shapes(q, k, v)
    mask, scores = scored(mask, (1, *q.shape)[-3], arrays, softcap=softcap, bias=bias, relative=relative, alibi=alibi, soft=soft, sinks=sinks)
    given = given_arrays(keep=keep, drop=drop, additive=additive)
    for array in given.values():
        library(array).lend(array)  # refuses tensors whose gradients would be lost
    plan, added = plan_with_arrays(mask, q, k, facts, query_offset, given, by_distance(scores))
    scores["bias"] = [*added, *scores["bias"]]
    out = lib.empty((*q.shape[:-1], v.shape[-1]), q)
    modifiers = modifiers_of(lib, scale=scale, dropout=dropout, seed=seed, threads=threads, isa=isa, **scores)
    lent = lib.lend(q), library(k).lend(k), library(v).lend(v)
    if not isinstance(lib, Others) and str(q.dtype).endswith("float64"):
        from ._double import attention as doubles

        found = doubles(*lent, plan, modifiers, scale=number("scale", scale), dropout=dropout, seed=seed, **scores)
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


def scored(mask: Any, heads: int, arrays: Mapping[str, Array] | None, **given: Any) -> tuple[Any, dict[str, Any]]:
    """Returns (mask without score modifiers, arguments of score modifiers): the arguments in `given` and the modifiers of `mask`
    together. `bias` becomes a list, and `alibi` slopes, one for each of the `heads`.

    The array of a modifier is the one in `arrays` with its name, or else the argument of its kind in `given`.
    """
    left = check_names("arrays", arrays)
    bias = given["bias"]
    out = {**given, "bias": list(bias) if isinstance(bias, (list, tuple)) else [] if bias is None else [bias]}
    out["softcap"] = number("softcap", out["softcap"])
    if out["alibi"] is True:
        out["alibi"] = default_slopes(heads)
    out["alibi"] = numbers("alibi", out["alibi"], "numbers, one slope for each head (True gives the slopes of ALiBi)")
    mask = parsed(mask) if isinstance(mask, str) else mask
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


def plan_with_arrays(
    mask: Any,
    q: Array,
    k: Array,
    facts: Facts | Mapping[str, Any] | None,
    query_offset: int | Sequence[int] | None,
    given: Mapping[str, Array],
    moves: bool = False,
) -> tuple[Plan, list[Array]]:
    """Plans a mask without score modifiers, combined with the mask arrays in `given`, a dict from conventions ("keep", "drop",
    "additive") to arrays. Returns (plan, arrays of floats that are added to scores).
    """
    if not given:
        if mask is None:
            raise TypeError('no mask was given: give a mask, "full" to read every key, or an array by keep=, drop= or additive=')
        return plan_of(mask, q, k, facts, query_offset, moves), []
    if mask is None:
        mask = _noren.full()
    if not isinstance(mask, Mask):
        raise TypeError(f"a {type(mask).__name__} and {', '.join(f'{name}=' for name in given)} were given together: only a Mask or its text can be combined with an array")
    both, known, added = with_arrays(mask, given, _sizes(q, k), facts)
    return both.plan(shape_of(q, k, _offsets(query_offset), moves or mask.uses_query_offset()), known), added


def plan_of(
    mask: Any,
    q: Array,
    k: Array,
    facts: Facts | Mapping[str, Any] | None = None,
    query_offset: int | Sequence[int] | None = None,
    moves: bool = False,
) -> Plan:
    """Returns the plan of `mask`, which has no score modifiers, for the sizes of `q` and `k`.

    `moves` is true if score modifiers depend on the distance of query and key.
    """
    if isinstance(mask, (Plan, BoundMask, Recognised)):
        if facts is not None or query_offset is not None:
            what = "plan" if isinstance(mask, Plan) else "bound mask"
            raise Error(f"a {what} already contains its facts and query offset: leave out facts= and query_offset=, or give a mask instead of the {what}")
        return broadcast(mask, _sizes(q, k))
    if not isinstance(mask, Mask):
        raise refuse_array(mask)
    shape = shape_of(q, k, _offsets(query_offset), moves or mask.uses_query_offset())
    return _planned(mask, shape) if facts is None else mask.plan(shape, facts)


def _offsets(given: int | Sequence[int] | None) -> int | tuple[int, ...] | None:
    return tuple(given) if isinstance(given, Sequence) else given


def check_shapes(q: Array, k: Array, v: Array) -> None:
    """Raises `Error` unless the shapes of the arrays of an attention call fit each other; the message names the arrays that
    differ."""
    batch, heads, kv_heads, _, _ = _sizes(q, k)
    shapes = f"q has shape {list(q.shape)}, k {list(k.shape)} and v {list(v.shape)}"
    if (1, 1, *k.shape)[-4:-1] != (1, 1, *v.shape)[-4:-1]:
        raise Error(f"{shapes}: k and v need equal numbers of batch rows, heads and keys")
    if q.shape[-1] != k.shape[-1]:
        raise Error(f"{shapes}: q and k need the same head_dim, their last dimension")
    if batch != (1, 1, *k.shape)[-4]:
        raise Error(f"{shapes}: q and k need the same number of batch rows, their first of four dimensions")
    if kv_heads and heads % kv_heads:
        raise Error(f"{shapes}, [batch, heads, length, head_dim]: the number of heads of k and v must divide that of q; {EXCHANGED}")


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
    if query_offset is None and q_len > kv_len and heads == kv_heads > 1:
        raise Error(f"q has shape {list(q.shape)} and k {list(k.shape)}, [batch, heads, length, head_dim]: give query_offset=0 if q has more tokens than k; {EXCHANGED}")
    low = min(query_offset, default=0) if isinstance(query_offset, tuple) else query_offset
    if isinstance(low, int) and low < 0:
        raise Error(f"query_offset is {low}: give the position of the first query, 0 or more; nr.causal(offset={low}) shifts a mask instead")
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
        relative=_table(lend("relative", relative)),
        soft=lend("soft", soft),
        sinks=_contiguous(lend("sinks", sinks)),
        **rest,
    )


def _table(array: Array | None) -> Array | None:
    """Returns the table of the modifier `relative`, `[heads, distances]`, as `[1, heads, 1, distances]`."""
    if array is None or len(array.shape) != 2:
        return array
    return array.reshape(1, array.shape[0], 1, array.shape[1])


def _contiguous(array: Array | None) -> Array | None:
    if array is None:
        return None
    return array.contiguous() if hasattr(array, "contiguous") else array.reshape(-1).copy()

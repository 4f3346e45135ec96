"""`noren.attention`: masked attention over arrays of NumPy, PyTorch and other libraries with `__dlpack__`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .. import _noren
from .._noren import BoundMask, Facts, Mask, Modifiers, Plan, Spec
from ..arguments._arrays import Array, NumPy, Others, Torch, lend, library
from ..arguments._given import number
from ..masks._doctor import Recognised
from ..masks._forms import given_arrays
from ._plans import plan_of, sizes_of
from ._scores import by_distance, modifiers_of, scored

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
    lib, (own_q, own_k, own_v) = lend(q=q, k=k, v=v)
    lent = own_q, own_k, own_v
    sizes = sizes_of(q, k, v)
    mask, scores = scored(mask, sizes[1], arrays, softcap=softcap, bias=bias, relative=relative, alibi=alibi, soft=soft, sinks=sinks)
    given = given_arrays(keep=keep, drop=drop, additive=additive)
    for array in given.values():
        library(array).lend(array)  # refuses tensors whose gradients would be lost
    plan, added = plan_of(mask, sizes, facts, query_offset, by_distance(scores), given)
    scores["bias"] = [*added, *scores["bias"]]
    modifiers = modifiers_of(lib, scale=scale, dropout=dropout, seed=seed, threads=threads, isa=isa, **scores)
    wanted = [bool(return_lse), bool(return_weights)]
    if not isinstance(lib, Others) and str(q.dtype).endswith("float64"):
        from ._double import attention as doubles

        out, *more = doubles(*lent, plan, modifiers, scale=number("scale", scale), dropout=dropout, seed=seed, **scores)
    else:
        out, *more = _computed(lib, q, lent, plan, modifiers, wanted)
    results = (out, *(array for array, want in zip(more, wanted, strict=True) if want))
    return results if len(results) > 1 else out


def _computed(lib: NumPy | Torch | Others, q: Array, lent: tuple[Any, Any, Any], plan: Plan, modifiers: Modifiers, wanted: list[bool]) -> list[Array]:
    """Returns [output, log-sum-exps, weights] of the kernels; None for one of the last two that is not `wanted`."""
    _, k, v = lent
    out = lib.empty((*q.shape[:-1], v.shape[-1]), q)
    lse = lib.zeros(q.shape[:-1]) if wanted[0] else None
    _noren.forward(*lent, plan, modifiers, lib.lend(out), lse)
    weights = lib.zeros((*q.shape[:-1], k.shape[-2])) if wanted[1] else None
    if weights is not None:
        _noren.weights(*lent, plan, modifiers, weights)
    return [array if array is None else lib.finish(array, q) for array in (out, lse, weights)]

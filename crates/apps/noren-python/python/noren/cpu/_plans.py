"""The sizes of an attention call, and the plan of its mask."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from .. import _noren
from .._noren import BoundMask, Error, Facts, Mask, Plan, Shape
from ..arguments._arrays import Array
from ..masks._doctor import Recognised
from ..masks._forms import EXCHANGED, Sizes, broadcast, refuse_array, with_arrays


def sizes_of(q: Array, k: Array, v: Array) -> Sizes:
    """Returns the sizes of an attention call. Raises `Error` unless the shapes of the arrays fit each other; the message names the
    arrays that differ."""
    for name, array in (("q", q), ("k", k)):
        if not 2 <= len(getattr(array, "shape", ())) <= 4:
            raise TypeError(f"{name} has shape {tuple(getattr(array, 'shape', ()))}: give [batch, heads, length, head_dim]; leading dimensions of 1 may be left out")
    batch, heads, q_len = (1, 1, *q.shape)[-4:-1]
    keys, values = (1, 1, *k.shape)[-4:-1], (1, 1, *v.shape)[-4:-1]
    if keys == values and q.shape[-1] == k.shape[-1] and batch == keys[0] and not (keys[1] and heads % keys[1]):
        return batch, heads, keys[1], q_len, keys[2]
    shapes = f"q has shape {list(q.shape)}, k {list(k.shape)} and v {list(v.shape)}"
    if keys != values:
        raise Error(f"{shapes}: k and v need equal numbers of batch rows, heads and keys")
    if q.shape[-1] != k.shape[-1]:
        raise Error(f"{shapes}: q and k need the same head_dim, their last dimension")
    if batch != keys[0]:
        raise Error(f"{shapes}: q and k need the same number of batch rows, their first of four dimensions")
    raise Error(f"{shapes}, [batch, heads, length, head_dim]: the number of heads of k and v must divide that of q; {EXCHANGED}")


def plan_of(
    mask: Any,
    sizes: Sizes,
    facts: Facts | Mapping[str, Any] | None = None,
    query_offset: int | Sequence[int] | None = None,
    moves: bool = False,
    given: Mapping[str, Array] | None = None,
) -> tuple[Plan, list[Array]]:
    """Returns (plan of a mask without score modifiers and of mask arrays together, arrays of floats that are added to scores).

    `given` is a dict from conventions ("keep", "drop", "additive") to arrays. `moves` is true if score modifiers depend on the
    distance of query and key.
    """
    added: list[Array] = []
    if isinstance(mask, (Plan, BoundMask, Recognised)) and not given:
        if facts is not None or query_offset is not None:
            what = "plan" if isinstance(mask, Plan) else "bound mask"
            raise Error(f"a {what} already contains its facts and query offset: leave out facts= and query_offset=, or give a mask instead of the {what}")
        return broadcast(mask, sizes), added
    if mask is None and not given:
        raise TypeError('no mask was given: give a mask, "full" to read every key, or an array by keep=, drop= or additive=')
    mask = _noren.full() if mask is None else mask
    if not isinstance(mask, Mask):
        if not given:
            raise refuse_array(mask)
        raise TypeError(f"a {type(mask).__name__} and {', '.join(f'{name}=' for name in given)} were given together: only a Mask or its text can be combined with an array")
    if given:
        mask, facts, added = with_arrays(mask, given, sizes, facts)
    offset = tuple(query_offset) if isinstance(query_offset, Sequence) else query_offset
    if offset is None and not (moves or mask.uses_query_offset()):
        offset = 0
    return _planned(mask, _shape(sizes, offset)) if facts is None else mask.plan(_shape(sizes, offset), facts), added


@lru_cache(maxsize=256)
def _shape(sizes: Sizes, offset: Any) -> Shape:
    batch, heads, kv_heads, q_len, kv_len = sizes
    if offset is None and q_len > kv_len and heads == kv_heads > 1:
        raise Error(f"q has {heads} heads and {q_len} tokens, and k has {kv_len} tokens: give query_offset=0 if q has more tokens than k; {EXCHANGED}")
    low = min(offset, default=0) if isinstance(offset, tuple) else offset
    if isinstance(low, int) and low < 0:
        raise Error(f"query_offset is {low}: give the position of the first query, 0 or more; nr.causal(offset={low}) shifts a mask instead")
    return Shape(q_len, kv_len, query_offset=offset, batch=batch, heads=heads, kv_heads=kv_heads)


@lru_cache(maxsize=64)
def _planned(mask: Mask, shape: Shape) -> Plan:
    return mask.plan(shape)

"""Masks that are made during an attention call: mask functions, the masks that they return, and the plans of these masks."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from types import BuiltinFunctionType
from typing import Any, cast

import torch
from torch import Tensor, nn

from .. import _noren
from .._noren import Array, BoundMask, Error, Facts, Mask, Plan, Shape, Spec
from ..arguments._given import check_names
from ..arguments._tensors import compiling
from ..masks._doctor import Recognised
from ..masks._forms import broadcast, parsed, refuse_array
from ._mask_call import Inputs, MaskCall, Own, Part
from ._masks import Kept, Plans

MOST_CELLS = 1 << 30
"""Maximum number of cells of a mask that is computed cell by cell instead of from an expression."""
MOST_BYTES = 1 << 26
"""Maximum memory of cached plans, in bytes."""


@dataclass(frozen=True)
class Replace:
    """A mask that a mask function returns to replace the layer's own mask, instead of intersecting the two.

    These cells stay hidden: padding, cache slots to which no key was written, and cells hidden by `keep=`, `drop=` or
    `additive=` of `noren.torch.attention`.
    """

    mask: Mask | BoundMask | Recognised | Plan | str


Result = Mask | BoundMask | Recognised | Plan | Replace | str | None
"""The result of a mask function. A mask in any form is intersected with the layer's own mask; `Replace` replaces the layer's own mask; None
leaves it unchanged."""
MaskFunction = Callable[[MaskCall], Result]
"""A function that returns the mask of one attention call."""
Given = Result | MaskFunction
"""A mask for the layers of a model: one mask for all attention calls, or a function that makes the mask of each call."""

ADVICE = (
    "give a mask or its text, a bound mask or a function of the call (noren.torch.MaskCall). In a function, an array becomes a mask by "
    "call.keep(array), where true means \"may attend\", or call.drop(array), where true means \"ignored\""
)


def check_given(what: str, given: Any) -> Given:
    """Returns `given`, the mask or mask function of the user; a text is parsed. Raises an error for any other value; `what` names the value
    in the message."""
    if given is None or isinstance(given, (Mask, BoundMask, Recognised, Plan)):
        return given
    if isinstance(given, str):
        return _expression(what, parsed(given))
    if isinstance(given, Replace):
        return Replace(check_replacement(what, given.mask))
    if isinstance(given, Spec):
        return _expression(what, given)
    if isinstance(given, BuiltinFunctionType):
        raise refuse_array(given)
    if callable(given) and not isinstance(given, (type, nn.Module)):
        _check_signature(what, given)
        return cast(MaskFunction, given)
    raise TypeError(f"{what} is {_described(given)}: {ADVICE}")


def check_replacement(what: str, given: Any) -> Mask | BoundMask | Recognised | Plan:
    found = check_given(what, given)
    if found is None or isinstance(found, (str, Replace)) or not isinstance(found, (Mask, BoundMask, Recognised, Plan)):
        raise TypeError(f"{what} is Replace({_described(given)}): give Replace a mask, its text, or a bound mask")
    return found


def _expression(what: str, found: Mask | Spec) -> Mask:
    if isinstance(found, Spec):
        raise Error(f"{what} is `{found}`, which has score modifiers: give the mask alone; score modifiers are those of the layer")
    return found


def _described(given: Any) -> str:
    if isinstance(given, Tensor) and given.is_nested:
        return "a nested tensor"
    if isinstance(given, Tensor) or (hasattr(given, "dtype") and hasattr(given, "shape")):
        return f"an array of {given.dtype} with shape {list(given.shape)}"
    text = repr(given)
    return f"{type(given).__name__} {text if len(text) <= 60 else text[:57] + '...'}"


def _check_signature(what: str, function: Callable[..., Any]) -> None:
    try:
        inspect.signature(function).bind(None)
    except TypeError as error:
        raise TypeError(
            f"{what} is a function that cannot be called with one argument ({error}): a mask function has one argument, the call (noren.torch.MaskCall); if it is a mask_mod of FlexAttention, give nr.from_flex(create_block_mask(mask_mod, ...))"
        ) from None
    except ValueError:
        return


# --- plans --------------------------------------------------------------------------------------------------------


class _Known:
    """Facts (data of a mask) as part of a dictionary key. `Facts` cannot be hashed, so the hash is that of `arrays`, the mask arrays that
    the attention call made."""

    def __init__(self, facts: Facts, arrays: Mapping[str, Array]) -> None:
        self.facts, self._hash = facts, hash(tuple(arrays.items()))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Known) and self._hash == other._hash and self.facts == other.facts

    def __hash__(self) -> int:
        return self._hash


PLANS = Plans(MOST_BYTES)


def _planned(mask: Mask, shape: Shape, facts: Facts, arrays: Mapping[str, Array]) -> Plan:
    """Returns the plan of a mask with facts; `arrays` are the mask arrays among the facts that the call made. Plans are cached."""
    key = (mask, shape, _Known(facts, arrays))
    kept = PLANS.get(key)
    if kept is None:
        plan = mask.plan(shape, facts.used_by(mask))
        kept = PLANS.put(key, Kept(plan, plan.bytes))
    return kept.plan


def plan_of_call(given: Given, call: MaskCall) -> Plan:
    """Returns the plan of a call: the intersection of the layer's own mask and `given`, the user's mask or the result of the user's mask
    function."""
    if compiling():
        raise Error("masks that are made during a call are not supported under torch.compile: call the uncompiled model")
    own = call._own
    if callable(given):
        with torch.no_grad():
            given = given(call)
        given = check_given("result of the mask function", given)
        if callable(given):
            raise TypeError(f"the mask function returned a function, but must return a mask: {ADVICE}")
    kept = own
    if isinstance(given, Replace):
        given = given.mask
        if own.fixed is not None:
            mask, facts = own.fixed()
            kept = Own(mask, facts, own.shape, first_key=own.first_key)
    if given is None:
        return _planned(kept.mask, kept.shape, kept.facts, {})
    if not isinstance(given, Mask):
        assert isinstance(given, (BoundMask, Recognised, Plan))
        return _of_bound(given, kept)
    mask = given.at_layer(call.layer) if given.has_layers else given
    added = _facts_of(call)
    if kept.first_key:
        return _beyond_cache(mask, added, kept)
    both = mask if kept.mask == _noren.full() else kept.mask & mask
    facts = _with_all_keys(added.merged(kept.facts), both, kept.shape)
    return _planned(both, kept.shape, facts, call.arrays)


def _facts_of(call: MaskCall) -> Facts:
    """Returns the facts (data of the mask) for the plan of a call: the facts of the user, the facts that the mask function added, and the
    mask arrays that methods of the call made."""
    plain = dict(call.facts)
    arrays = {**dict(plain.pop("arrays", None) or {}), **call.arrays}
    facts = Facts(**plain, **({"arrays": arrays} if arrays else {}))
    given = call._inputs.facts
    return facts if given is None else facts.merged(given)


def _with_all_keys(facts: Facts, mask: Mask, shape: Shape) -> Facts:
    """Returns `facts`, the data of `mask`. If the mask contains `padding` and `facts` has no lengths, the result also states that no key is
    padding."""
    if "padding" not in str(mask):
        return facts
    try:
        return facts.merged(Facts(real_keys=[[f"0..{shape.kv_len}"]] * shape.batch))
    except Error:  # the facts have lengths
        return facts


def _beyond_cache(mask: Mask, added: Facts, kept: Own) -> Plan:
    """Returns the plan of a call whose first keys were removed from the cache. `mask` is evaluated for all keys, the removed ones included;
    then the cells of the removed keys are dropped.
    """
    shape, first = kept.shape, kept.first_key
    whole = Shape(
        shape.q_len, first + shape.kv_len, query_offset=[offset + first for offset in shape.query_offsets], batch=shape.batch,
        heads=shape.heads, kv_heads=shape.kv_heads,
    )  # fmt: skip
    _check_size(shape)
    bound = mask.bind(whole, _with_all_keys(added, mask, whole).used_by(mask)).select([(0, shape.q_len)], [(first, first + shape.kv_len)])
    return _with_cells(Array.keep(bound.dense()), kept)


def _of_bound(given: BoundMask | Recognised | Plan, kept: Own) -> Plan:
    shape = kept.shape
    sizes = (shape.batch, shape.heads, shape.kv_heads, shape.q_len, shape.kv_len)
    plan = given if isinstance(given, Plan) else broadcast(given, sizes)
    found = plan.shape
    if (found.batch, found.heads, found.q_len, found.kv_len) != (*sizes[:2], *sizes[3:]):
        raise Error(f"the plan is for {found}, but the call has {shape.batch} batch rows, {shape.heads} heads, {shape.q_len} queries and {shape.kv_len} keys")
    if kept.mask == _noren.full() and found.kv_heads == shape.kv_heads:
        return plan
    _check_size(shape)
    return _with_cells(Array.keep(plan.bound.dense()), kept)


def _with_cells(cells: Array, kept: Own) -> Plan:
    """Returns the plan of the cells that both the layer's mask `kept` and the mask array `cells` allow."""
    facts = Facts(arrays={"result of the mask function": cells}).merged(kept.facts)
    mask = kept.mask & _noren.dense("result of the mask function")
    return _planned(mask, kept.shape, facts, {"result": cells})


def _check_size(shape: Shape) -> None:
    cells = shape.batch * shape.heads * shape.q_len * shape.kv_len
    if cells > MOST_CELLS:
        raise Error(f"a mask of {cells} cells would be read cell by cell, and the limit is {MOST_CELLS}: return an expression or its text")


# --- inputs -------------------------------------------------------------------------------------------------------

_INPUTS: ContextVar[Inputs] = ContextVar("noren_mask_inputs", default=Inputs())


def given_facts(facts: Facts | Mapping[str, Any] | None) -> Facts | None:
    return facts if facts is None or isinstance(facts, Facts) else Facts(**check_names("facts", facts))


def current_inputs() -> Inputs:
    """Returns the inputs that the enclosing `with mask_inputs(...)` block gives to mask functions; empty inputs outside of such a block."""
    return _INPUTS.get()


@contextmanager
def mask_inputs(
    *, tokens: Tensor | Mapping[str, Tensor] | None = None, key_tokens: Tensor | None = None, facts: Facts | Mapping[str, Any] | None = None,
    **inputs: Any,
) -> Iterator[None]:  # fmt: skip
    """Gives inputs to the mask functions of all attention calls in a `with` statement.

    `tokens` are the token ids `[batch, length]` of queries and keys; for a model with encoder and decoder, a dict with the keys "encoder"
    and "decoder". `key_tokens` are the token ids of the keys, if keys and queries are different tokens. `facts` are data for the masks,
    such as document lengths. Mask functions find all other arguments in `MaskCall.inputs`, by name.
    """
    token = _INPUTS.set(Inputs(given_facts(facts), inputs, *token_readers(tokens, key_tokens)))
    try:
        yield
    finally:
        _INPUTS.reset(token)


def token_readers(tokens: Any, key_tokens: Any) -> tuple[Callable[[Part, int, int], Tensor] | None, Callable[[Part, int, int], Tensor] | None]:
    """Returns the two functions for `Inputs.tokens` and `Inputs.key_tokens`, which return the token ids that the user gave; None for ids
    that were not given.
    """

    def reader(queries: bool) -> Callable[[Part, int, int], Tensor]:
        def read(part: Part, batch: int, length: int) -> Tensor:
            name = "tokens" if queries or key_tokens is None else "key_tokens"
            found = tokens if name == "tokens" else key_tokens
            if isinstance(found, Mapping) or part not in ("self", "cross" if name == "key_tokens" else "self"):
                wanted = "encoder" if part == "encoder" or (part == "cross" and not queries) else "decoder"
                if not isinstance(found, Mapping) or wanted not in found:
                    raise Error(f"the token ids of the {wanted} are unknown: give tokens={{\"encoder\": ..., \"decoder\": ...}}")
                found = found[wanted]
            return check_tokens(name, found, batch, length)

        return read

    return None if tokens is None else reader(True), None if tokens is None and key_tokens is None else reader(False)


def check_tokens(name: str, tokens: Any, batch: int, length: int) -> Tensor:
    if not isinstance(tokens, Tensor) or tokens.is_floating_point() or tokens.dtype == torch.bool:
        raise TypeError(f"{name} is {_described(tokens)}: give a tensor of integers [batch, length]")
    if tuple(tokens.shape) != (batch, length):
        raise Error(f"{name} has shape {list(tokens.shape)}, but the call needs [batch, length] = {[batch, length]}")
    return tokens


# --- modules ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Hook:
    """The mask or mask function that the user gave for one attention module, and the position of the module in its model (`layer`,
    `part`)."""

    given: Given
    layer: int
    part: Part


class Handle:
    """The result of `set_mask`: `remove()`, or the end of a `with` statement, restores the previous masks."""

    def __init__(self, undo: Callable[[], None]) -> None:
        self._undo: Callable[[], None] | None = undo

    def remove(self) -> None:
        """Restores the masks that the model had before; a second call changes nothing."""
        if self._undo is not None:
            self._undo()
            self._undo = None

    def __enter__(self) -> Handle:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()

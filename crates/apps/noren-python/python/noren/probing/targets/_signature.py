"""The signature of a function under test: the names and the meaning of its parameters."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np

from ..._noren import Error
from .._call import Adapter, Answer, Call, Unusable
from .._reference import Floats
from ._libraries import Library, library


@dataclass(frozen=True)
class Signature:
    """For each feature, the name of the function's parameter; None if the function does not have the feature.

    The first three arguments of the function are queries, keys and values. `layout` is the order of their dimensions, `"bhld"` (`[batch,
    heads, length, head_dim]`) or `"blhd"`.
    """

    library: str = "torch"
    """The library of the arrays: `"torch"`, `"jax"` or `"numpy"`."""
    layout: str = "bhld"
    keep: str | None = None
    """The parameter for a mask array of booleans, `[batch, heads, q_len, kv_len]` or with dimensions of size 1: true means that the
    query may attend to the key."""
    drop: str | None = None
    """The parameter for a mask array of booleans in which true means that the key is ignored."""
    additive: str | None = None
    """The parameter for a mask array of 0 and -inf that is added to the scores."""
    mask_mod: str | None = None
    """The parameter for a mask function. The mask function receives the indices (batch row, head, query, key) as tensors and returns true
    if the query may read the key."""
    block_mask: str | None = None
    """The parameter for a `BlockMask` of FlexAttention."""
    blocks: str | None = None
    """The parameter for block lists as an array of booleans `[batch, heads, q_blocks, kv_blocks]`: true means that the block of 128 queries
    and 128 keys is in the lists. None for a function with `block_mask`, which contains block lists."""
    causal: str | None = None
    alignment: str | None = None
    """The documented alignment of the causal mask if there are fewer queries than keys: `"top-left"` (the first query reads only the
    first key), `"bottom-right"` (the last query reads all keys), or None if it is not documented."""
    window: str | None = None
    """The parameter for a window as a pair (keys before the query, keys after the query); neither number counts the key at the query's own
    position, which is always in the window."""
    window_keys: str | None = None
    """The parameter for a sliding causal window as one number of keys, which includes the key at the query's own position."""
    causal_window: bool = False
    """True if the function applies the window only if the causal flag is set; the query then reads no key after its own position."""
    bias: str | None = None
    scale: str | None = None
    softcap: str | None = None
    sinks: str | None = None
    score_mod: str | None = None
    """The parameter for a function that changes scores, with the arguments score, batch row, head, query and key. The probe passes biases
    and softcap with this function if they have no own parameter."""
    lse: str | None = None
    """The parameter that requests the log-sum-exp, or `"always"` if the function always returns it as the second result."""
    lse_value: Any = True
    lse_base: str = "e"
    gqa: str | None = None
    """The flag that must be true if there are fewer key-value heads than query heads; None if the function needs no flag."""
    fixed: Mapping[str, Any] = field(default_factory=dict)
    """Constant keyword arguments, by name, that the probe passes in every call."""

    def takes(self) -> frozenset[str]:
        """Returns the names of the features for which the function has a parameter."""
        names = ("keep", "drop", "additive", "mask_mod", "block_mask", "causal", "window", "bias", "scale", "softcap", "sinks", "lse", "blocks")
        found = {name for name in names if getattr(self, name) is not None}
        if self.window_keys is not None:
            found.add("window")
        if self.block_mask is not None:
            found.add("blocks")
        if self.score_mod is not None:
            found |= {"bias", "softcap"}
        return frozenset(found | {"gqa", "head_masks"})


_NAMES = {
    "keep": ("keep", "keep_mask", "attn_mask", "attention_mask", "mask"),
    "drop": ("drop", "drop_mask"),
    "additive": ("additive", "additive_mask"),
    "causal": ("is_causal", "causal"),
    "window": ("window_size", "window", "local_window_size"),
    "window_keys": ("sliding_window",),
    "bias": ("bias", "attn_bias", "attention_bias", "position_bias"),
    "scale": ("scale", "softmax_scale", "sm_scale", "scaling"),
    "softcap": ("softcap", "soft_cap", "logits_soft_cap", "attn_logits_soft_cap"),
    "sinks": ("sinks", "s_aux", "sink"),
    "lse": ("return_lse", "return_softmax_lse"),
    "gqa": ("enable_gqa",),
    "block_mask": ("block_mask",),
    "mask_mod": ("mask_mod",),
    "score_mod": ("score_mod",),
    "blocks": ("blocks", "block_lists"),
}
_ASSUMED = {"attn_mask", "attention_mask", "mask"}


def inferred(function: Callable[..., Any], declared: Mapping[str, Any]) -> tuple[Signature, tuple[str, ...]]:
    """Returns (signature, assumptions). The signature has the fields `declared`; other fields are set if a parameter of `function` has a
    known name. An assumption is a sentence about a parameter whose meaning is only guessed from its name.

    Raises `Error` if a declared field is unknown.
    """
    known = {item.name for item in fields(Signature)}
    for name in declared:
        if name not in known:
            raise Error(f"the signature has the unknown field {name!r}: give only these fields: {', '.join(sorted(known))}")
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    free = [p.name for p in parameters[3:] if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    taken = {value for value in declared.values() if isinstance(value, str)} | set(declared.get("fixed", ()))
    found: dict[str, str] = {}
    assumed = []
    for feature, names in _NAMES.items():
        name = next((name for name in names if name in free and name not in taken), "")
        if not name or feature in declared or (feature == "keep" and {"drop", "additive"} & set(declared)):
            continue
        found[feature] = name
        taken.add(name)
        if name in _ASSUMED:
            assumed.append(f"the parameter {name} is assumed to be a keep array (true may attend) because of its name")
    return Signature(**{**found, **declared}), tuple(assumed)


@dataclass
class FunctionAdapter(Adapter):
    """Calls a function with the parameters in its signature; implements the interface `Adapter` of the probe."""

    name: str
    function: Callable[..., Any]
    signature: Signature
    device: str
    versions: dict[str, str]
    assumptions: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        signature = self.signature
        self.takes = signature.takes() | ({"gradients"} if signature.library in ("torch", "jax") else set())
        self.alignment = signature.alignment
        self.lse_base = signature.lse_base
        self.causal_window = signature.causal_window or signature.window_keys is not None
        if signature.layout not in ("bhld", "blhd"):
            raise Error(f'`layout={signature.layout!r}` is unknown: give "bhld" ([batch, heads, length, head_dim]) or "blhd" ([batch, length, heads, head_dim])')

    def run(self, call: Call, cotangent: Floats | None) -> Answer:
        arrays = library(self.signature.library, self.device)
        q, k, v = (arrays.floats(self._turn(x), call.dtype) for x in (call.q, call.k, call.v))
        given = dict(self.arguments(call, arrays))
        upstream = None if cotangent is None else arrays.floats(self._turn(cotangent), call.dtype)
        out, lse, grads = arrays.run(lambda *x: self.function(*x, **given), lambda result: self._picked(result, call), (q, k, v), upstream)
        shape = call.q.shape
        read = self._turn(shaped(arrays.numpy(out), self._turn(np.empty(shape)).shape, "output"))
        turned = tuple(None if grad is None else self._turn(arrays.numpy(grad)) for grad in grads)
        return Answer(read, None if lse is None else _of_lse(arrays.numpy(lse), call), turned)

    def _turn(self, x: Floats) -> Floats:
        """Converts `x` from `[batch, heads, length, head_dim]` to the layout of the function, or back."""
        return x if self.signature.layout == "bhld" else np.swapaxes(x, 1, 2)

    def _picked(self, result: Any, call: Call) -> tuple[Any, Any]:
        """Returns (output, log-sum-exp or None) from the result of the function."""
        if not call.lse:
            return (result[0] if isinstance(result, (tuple, list)) and result else result), None
        if not isinstance(result, (tuple, list)) or len(result) < 2:
            raise Unusable(f"the log-sum-exp was requested, but the function returned {type(result).__name__} instead of (output, log-sum-exp)")
        return result[0], getattr(result[1], "lse", result[1])

    def arguments(self, call: Call, arrays: Library) -> Iterator[tuple[str, Any]]:
        """Yields (name, value) for each keyword argument with which the function is called for `call`."""
        names = self.signature
        yield from names.fixed.items()
        if call.causal and names.causal is not None:
            yield names.causal, True
        if call.window is not None:
            if names.window is not None:
                yield names.window, call.window
            elif names.window_keys is not None:
                yield names.window_keys, call.window[0] + 1
        if call.scale is not None and names.scale is not None:
            yield names.scale, call.scale
        if call.sinks is not None and names.sinks is not None:
            yield names.sinks, arrays.floats(call.sinks, call.dtype)
        if call.lse and names.lse not in (None, "always"):
            yield str(names.lse), names.lse_value
        if names.gqa is not None and call.heads != call.k.shape[1]:
            yield names.gqa, True
        yield from self._scores(call, arrays)
        yield from self._mask(call, arrays)

    def _scores(self, call: Call, arrays: Library) -> Iterator[tuple[str, Any]]:
        """Yields (name, value) for each keyword argument that holds the bias or the softcap of `call`."""
        names, rest = self.signature, call
        if call.bias is not None and names.bias is not None:
            yield names.bias, arrays.floats(call.bias, call.dtype)
            rest = replace(rest, bias=None)
        if call.softcap is not None and names.softcap is not None:
            yield names.softcap, call.softcap
            rest = replace(rest, softcap=None)
        if names.score_mod is not None and (rest.bias is not None or rest.softcap is not None):
            from ._flex import score_mod

            yield names.score_mod, score_mod(rest, arrays)

    def _mask(self, call: Call, arrays: Library) -> Iterator[tuple[str, Any]]:
        """Yields (name, value) for each keyword argument that holds the mask or the block lists of `call`."""
        names = self.signature
        if call.cells is not None and call.route is not None:
            name = getattr(names, call.route)
            if call.route == "keep":
                yield name, arrays.plain(call.cells)
            elif call.route == "drop":
                yield name, arrays.plain(~call.cells)
            elif call.route == "additive":
                yield name, arrays.floats(np.where(call.cells, 0.0, -np.inf), call.dtype)
            else:
                from ._flex import block_mask, mask_mod

                yield name, mask_mod(call, arrays) if call.route == "mask_mod" else block_mask(call, arrays)
        if call.blocks is not None:
            if names.blocks is not None:
                yield names.blocks, arrays.plain(call.blocks)
            elif names.block_mask is not None:
                from ._flex import block_lists

                yield names.block_mask, block_lists(call, arrays)


def shaped(x: Floats, shape: tuple[int, ...], what: str) -> Floats:
    """Returns `x` unchanged. Raises `Unusable` if `x` does not have the shape `shape`; `what` names `x` in the message."""
    if x.shape != shape:
        raise Unusable(f"the {what} has the shape {list(x.shape)} instead of {list(shape)}")
    return x


def _of_lse(x: Floats, call: Call) -> Floats:
    """Converts the log-sum-exp `x` to the shape `[batch, heads, q_len]`. `x` is `[batch, heads, q_len]`, `[batch, heads, q_len, 1]`,
    `[batch, q_len, heads]` or `[batch, q_len, heads, 1]`."""
    batch, heads, q_len, _ = call.shape
    if x.ndim == 4 and x.shape[-1] == 1:
        x = x[..., 0]
    if x.shape == (batch, q_len, heads) and q_len != heads:
        return np.swapaxes(x, 1, 2)
    return shaped(x, (batch, heads, q_len), "log-sum-exp")

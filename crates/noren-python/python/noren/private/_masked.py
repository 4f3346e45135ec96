"""Masks that hide private tokens in every attention layer of a transformers model."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor, nn

from .. import hf
from .._noren import Error, Facts, Mask, Shape, batch, causal, full, keys, queries
from ..hf import Masked
from ._encode import Encoded
from ._policy import Hide, Policy, check_policy
from ._roles import Role, Roles
from ._tokens import Tokens

NAME = "noren_private"
"""The name of the attention in transformers."""


@dataclass(frozen=True)
class Record:
    """The mask of one attention call, compared with the policy."""

    module: str
    """The name of the attention module."""
    mask: str
    """The mask as text."""
    pairs: int
    """The number of cells (query, private key) over all batch rows and heads. Queries are all tokens but the private ones: also those that
    are not released, because they might pass on what they read."""
    allowed: int
    """The number of these cells that the mask allows: 0 unless the mask is faulty."""


@dataclass(eq=False)
class State:
    """The policy of a model, and the private tokens of the batch that it computes."""

    tokens: Tokens
    policy: Policy
    roles: Roles
    names: dict[nn.Module, str]
    records: list[Record] | None = None
    """The masks of the attention calls; None if they are not recorded."""
    calls: int = 0
    """The number of attention calls whose keys were tokens of the text."""
    _changed: WeakKeyDictionary[Masked, dict[Any, Masked]] = field(default_factory=WeakKeyDictionary)

    def change(self, module: nn.Module, query: Tensor, key: Tensor, mask: Masked | Tensor | None, is_causal: bool | None) -> Masked | Tensor:
        """Returns the mask of an attention call without the cells that the policy denies."""
        role = self.roles.role(module)
        if role == "other" and mask is not None:
            return mask
        base = own_mask(module, query, key, is_causal) if mask is None else mask
        if role == "other":
            return base
        self.calls += 1
        if isinstance(base, Masked):
            changed = self._masked(module, role, base)
            found: Masked | Tensor = changed
        else:
            length = key.shape[2] - query.shape[2] if role == "text" else 0
            every = Masked(full(), query.shape[0], query.shape[2], key.shape[2], length, Facts())
            _FIRST[every] = 0
            changed = self._masked(module, role, every)
            found = _combined(base, changed, query.shape[1], key.shape[1])
        if self.records is not None:
            self.records.append(self._record(module, role, base, found, changed, query.shape[1], key.shape[1]))
        return found

    def _rows(self, role: Role, masked: Masked) -> tuple[Policy, Tokens]:
        """Returns the policy for an attention call, and the private tokens among its keys."""
        tokens = self.tokens.repeated(masked.batch)
        if role == "cross":
            if masked.kv_len != tokens.shape[1]:
                raise Error(f"cross-attention reads {masked.kv_len} keys, but the text has {tokens.shape[1]} tokens: the encoder changes the number of tokens, so private text cannot be traced through it")
            return self.policy.across(tokens)
        first = _FIRST.get(masked)
        if first is None:
            raise Error("the model changed its mask, so the positions of the keys are unknown: private text cannot be traced through it")
        return self.policy, tokens.window(first, masked.kv_len)

    def _masked(self, module: nn.Module, role: Role, masked: Masked) -> Masked:
        layer = getattr(module, "layer_idx", None)
        known = self._changed.setdefault(masked, {})
        found = known.get((role, layer))
        if found is None:
            policy, tokens = self._rows(role, masked)
            mask = policy.mask(masked.mask)
            if mask.has_layers:
                mask = mask.at_layer(layer or 0)
            same = next((old for old in known.values() if old.mask == mask), None)
            found = same or dataclasses.replace(masked, mask=mask, facts=policy.facts(tokens, masked.facts), _plans={})
            known[(role, layer)] = found
        return found

    def _record(self, module: nn.Module, role: Role, base: Masked | Tensor, found: Masked | Tensor, changed: Masked, heads: int, kv_heads: int) -> Record:
        """Returns the mask of a call with the number of denied cells that it allows."""
        tokens = self.tokens.repeated(changed.batch)
        first = _FIRST.get(base, 0) if isinstance(base, Masked) else 0
        window = tokens if role == "cross" else tokens.window(first, changed.kv_len)
        secret = self.policy.secret(window)
        at = np.arange(changed.q_len) + changed.query_offset
        public = np.ones((changed.batch, changed.q_len), np.bool_)
        if role == "text":
            known = (at >= 0) & (at < changed.kv_len)
            public = ~secret[:, np.where(known, at, 0)] & known
        pairs = int((public.sum(1) * secret.sum(1)).sum()) * heads
        if not isinstance(found, Masked):
            cells = _kept(found).expand(changed.batch, heads, changed.q_len, changed.kv_len)
            denied = torch.from_numpy(public[:, None, :, None] & secret[:, None, None, :]).to(cells.device)
            return Record(self.names.get(module, ""), "a prepared mask", pairs, int((cells & denied).sum()))
        allowed = 0
        if pairs:
            rows = [(row, _ranges(at[public[row]]), _ranges(np.flatnonzero(secret[row]))) for row in range(changed.batch)]
            denied_cells: Mask = batch([([row], queries(q) & keys(k)) for row, q, k in rows if q and k])
            allowed = (found.mask & denied_cells).stats(_shape(changed, heads, kv_heads), found.facts).allowed
        return Record(self.names.get(module, ""), str(found.mask), pairs, allowed)


def _ranges(positions: Any) -> list[range]:
    """Returns ascending positions as ranges."""
    if not len(positions):
        return []
    edges = np.flatnonzero(np.diff(positions) != 1) + 1
    return [range(int(part[0]), int(part[-1]) + 1) for part in np.split(positions, edges)]


def own_mask(module: nn.Module, query: Tensor, key: Tensor, is_causal: bool | None) -> Masked:
    """Returns the mask of a layer that its model gave no mask: causal or full."""
    size, q_len, kv_len = query.shape[0], query.shape[2], key.shape[2]
    causal_layer = bool(getattr(module, "is_causal", False) if is_causal is None else is_causal) and q_len > 1
    if causal_layer and q_len != kv_len:
        raise Error(
            f"a causal layer has {q_len} queries, {kv_len} keys and no mask: the positions of the queries are not known; give a mask"
        )
    masked = Masked(causal() if causal_layer else full(), size, q_len, kv_len, kv_len - q_len if q_len == 1 else 0, Facts())
    _FIRST[masked] = 0
    return masked


def _shape(masked: Masked, heads: int, kv_heads: int) -> Shape:
    return Shape(masked.q_len, masked.kv_len, query_offset=masked.query_offset, batch=masked.batch, heads=heads, kv_heads=kv_heads)


def _combined(given: Tensor, changed: Masked, heads: int, kv_heads: int) -> Tensor:
    """Returns a prepared mask tensor without the cells that a policy denies."""
    keep = torch.from_numpy(changed.mask.dense(_shape(changed, heads, kv_heads), changed.facts)).to(given.device)
    if given.dtype == torch.bool:
        return given & keep
    if not given.is_floating_point():
        raise Error(f"the 4-D attention mask holds {given.dtype}: give booleans (true = attend) or floats that are added (0 and -inf)")
    return given.expand_as(keep).masked_fill(~keep, -torch.inf)


def _kept(mask: Tensor) -> Tensor:
    return mask if mask.dtype == torch.bool else mask != -torch.inf


# --- the attention in transformers --------------------------------------------------------------------------------

_STATES: WeakKeyDictionary[nn.Module, State] = WeakKeyDictionary()
"""The policies of the models that compute with one, by module."""
_FIRST: WeakKeyDictionary[Masked, int] = WeakKeyDictionary()
"""The index of the first key of a mask among the tokens of the text: above 0 for caches that drop keys."""


def _make_mask(**arguments: Any) -> Masked:
    masked = hf.make_mask(**arguments)
    _FIRST[masked] = int(arguments.get("kv_offset", 0))
    return masked


def _attend(module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Any, **others: Any) -> tuple[Tensor, Tensor | None]:
    state = _STATES.get(module)
    if state is not None:
        attention_mask = state.change(module, query, key, attention_mask, others.get("is_causal"))
    return hf.attention_forward(module, query, key, value, attention_mask, **others)


def _register() -> None:
    from transformers import AttentionInterface
    from transformers.masking_utils import AttentionMaskInterface

    hf.register(NAME)
    AttentionInterface.register(NAME, _attend)
    AttentionMaskInterface.register(NAME, _make_mask)


def model_of(model: Any) -> Any:
    """Returns the transformers model of a module: the module itself, or the outermost model inside it. None if there is none."""
    from transformers import PreTrainedModel

    if not isinstance(model, nn.Module):
        return None
    return next((part for part in model.modules() if isinstance(part, PreTrainedModel)), None)


@contextmanager
def masked(model: Any, tokens: Tokens | Encoded, policy: Policy | None = None) -> Iterator[State]:
    """Computes a transformers model with a policy inside a `with` statement: forward, `generate` and training steps.

    `tokens` are the private tokens of the batch that the model computes (`encode`, `locate`). `policy` is `Hide()` [default],
    `Clearance` or `Heads`; it changes the mask of every layer that reads the text, cross-attention of a decoder included. Generated tokens are
    public. A model with another attention than noren's computes with noren inside the statement.

    A private token contains its own content: release only outputs that `policy.released(tokens)` selects (`pool`). Run the backward pass
    inside the statement too.

    Raises `Error` for a model whose attention cannot be computed with noren.

    >>> with masked(model, encoded):                               # doctest: +SKIP
    ...     outputs = model(**encoded.inputs)
    """
    known = tokens.tokens if isinstance(tokens, Encoded) else tokens
    if not isinstance(known, Tokens):
        raise TypeError(f"tokens is {type(tokens).__name__}: give the result of nr.private.encode or nr.private.locate")
    rule = check_policy(Hide() if policy is None else policy)
    inner = model_of(model)
    if inner is None:
        raise TypeError(f"model is {type(model).__name__}: give a model of transformers; for other models, give policy.mask(mask) and policy.facts(tokens) to nr.attention")
    if any(module in _STATES for module in model.modules()):
        raise Error("the model already computes with a policy: leave the other `with` statement first")
    with _attention(inner):
        state = State(known, rule, Roles(inner), {module: name for name, module in model.named_modules()})
        try:
            _STATES.update({module: state for module in inner.modules()})
            yield state
        finally:
            for module in inner.modules():
                _STATES.pop(module, None)
            state.roles.close()


@contextmanager
def _attention(model: Any) -> Iterator[None]:
    """Computes the attention of a model by `_attend` inside a `with` statement."""
    from transformers import PreTrainedModel

    _register()
    configs = _configs(model)
    before = [config._attn_implementation_internal for config in configs]
    try:
        if any(name in hf._NAMES for name in before):
            for config, name in zip(configs, before, strict=True):
                if name in hf._NAMES:
                    config._attn_implementation_internal = NAME
        else:
            for part in model.modules():
                reason = hf.unsupported(part) if isinstance(part, PreTrainedModel) else None
                if reason is not None:
                    raise Error(f"{type(part).__name__} cannot compute its attention with noren: {reason}. Private text cannot be hidden in this model")
            model.set_attn_implementation(NAME)
            if model.config._attn_implementation != NAME:
                raise Error(f"{type(model).__name__} does not let its attention be replaced: private text cannot be hidden in this model")
        yield
    finally:
        for config, name in zip(configs, before, strict=True):
            config._attn_implementation_internal = name


def _configs(model: Any) -> list[Any]:
    """Returns the configurations of a model and of its parts, each once."""
    found = {id(config): config for module in model.modules() if hasattr(config := getattr(module, "config", None), "_attn_implementation_internal")}
    pending = list(found.values())
    while pending:
        config = pending.pop()
        for name in getattr(config, "sub_configs", None) or ():
            inner = getattr(config, name, None)
            if inner is not None and id(inner) not in found:
                found[id(inner)] = inner
                pending.append(inner)
    return [config for config in found.values() if hasattr(config, "_attn_implementation_internal")]

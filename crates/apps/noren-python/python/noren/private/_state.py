"""The state of a model during its computation with a policy, and the masks of its attention calls."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NoReturn, TypeVar
from weakref import WeakKeyDictionary

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from .._noren import Error, Facts, Mask, batch, causal, full, heads as of_heads, keys, queries
from ..arguments._given import ranges
from ..hf import Masked
from ..hf._attention import check_floats
from ..hf._calls import layer_of
from ._policy import Policy
from ._roles import Role, Roles
from ._tokens import Tokens


class Made(Masked):
    """A mask that a model built and that a policy has not changed yet. Attention raises an error for such a mask, so no call
    can skip the policy."""

    def plan(self, *_: Any, **__: Any) -> NoReturn:
        """Raises `Error`, because the policy was not applied to this mask."""
        raise Error(
            "the mask was built inside a `with nr.private.masked(...)` statement, and an attention call without the policy reads it: run the whole "
            "forward pass, and the backward pass with gradient checkpointing, inside the statement"
        )

    own = plan


class Hidden(Masked):
    """A mask from which a policy has removed the cells that it denies."""

    policy: Policy

    def _fixed(self) -> Mask:
        return self.policy.mask(super()._fixed())


Kind = TypeVar("Kind", bound=Masked)


def converted(kind: type[Kind], masked: Masked, **changes: Any) -> Kind:
    """Returns a mask of the class `kind` with the fields of `masked`. The fields in `changes` get new values, and cached plans
    are not copied."""
    values = {entry.name: getattr(masked, entry.name) for entry in dataclasses.fields(masked)}
    return kind(**{**values, "_plans": {}, **changes})


@dataclass(frozen=True)
class Record:
    """The mask of one attention call, with the result of its comparison with the policy."""

    module: str
    """The name of the attention module."""
    mask: str
    """The mask as text."""
    pairs: int
    """The number of cells (query, private key) that the policy denies, over all batch rows and heads. All public tokens count
    as queries, also those whose outputs are not released, because they could pass on private content."""
    allowed: int
    """The number of cells that the policy denies and the mask allows; above 0 only if the mask is faulty."""


@dataclass(eq=False)
class State:
    """The state of a model during its computation with a policy: the policy, the private tokens of the batch, and what was
    observed."""

    tokens: Tokens
    policy: Policy
    roles: Roles
    names: dict[nn.Module, str]
    strict: bool = True
    """True if attention that does not use the policy is an error."""
    ids: NDArray[np.int64] | None = None
    """The token ids of the text, `[batch, length]`; None if they are unknown."""
    records: list[Record] | None = None
    """The records of the attention calls (see `Record`); None if calls are not recorded."""
    calls: int = 0
    """The number of attention calls up to now whose keys were tokens of the text."""
    given: int | None = None
    """The number of tokens in the current call of the model; None if it is unknown."""
    longest: int = 0
    """The number of tokens of the text, from its beginning, that at least one layer has computed."""
    _own_calls: int = 0
    _given_ids: Tensor | None = None
    _changed: WeakKeyDictionary[Masked, dict[Any, Hidden]] = field(default_factory=WeakKeyDictionary)
    _computed: WeakKeyDictionary[nn.Module, int] = field(default_factory=WeakKeyDictionary)

    def change(self, module: nn.Module, query: Tensor, key: Tensor, mask: Masked | Tensor | None, is_causal: bool | None) -> Masked | Tensor | None:
        """Returns the mask of an attention call without the cells that the policy denies."""
        role = self.roles.role(module)
        if role == "other":
            return converted(Masked, mask) if isinstance(mask, Made) else mask
        base = own_mask(module, query, key, is_causal, role) if mask is None else mask
        if isinstance(base, Masked) and not isinstance(base, Made):
            raise Error(f"{self._name(module)} has a mask that was not built in this forward pass, so the positions of its keys are unknown and private text cannot be traced through it")
        if role == "text":
            self._check_positions(module, query.shape[2], key.shape[2], base)
            self._own_calls += 1
        elif self.strict and not self._own_calls:
            raise Error(f"{self._name(module)} reads states of an encoder that was computed without the policy: compute the encoder inside the `with` statement, with attention that noren supports")
        self.calls += 1
        if isinstance(base, Masked):
            changed = self._hidden(module, role, base)
            found: Masked | Tensor = changed
        else:
            length = key.shape[2] - query.shape[2] if role == "text" else 0
            changed = self._hidden(module, role, Made(full(), query.shape[0], query.shape[2], key.shape[2], length, Facts()))
            found = _combined(base, changed, query.shape[1], key.shape[1])
        if self.records is not None:
            self.records.append(self._record(module, role, found, changed, query.shape[1], key.shape[1]))
        return found

    def _name(self, module: nn.Module) -> str:
        return self.names.get(module, "") or type(module).__name__

    def _check_positions(self, module: nn.Module, q_len: int, kv_len: int, base: Masked | Tensor) -> None:
        """Raises `Error` if the positions of the queries and keys in the text are unknown, for example because the cache has
        tokens that were computed without the policy."""
        if isinstance(base, Tensor):
            if q_len != kv_len:
                raise Error(
                    f"{self._name(module)} has a prepared mask for {q_len} queries and {kv_len} keys: their positions in the text are unknown, so private text "
                    "cannot be traced; give attention_mask as [batch, length]"
                )
            first = 0
        else:
            first = base.first_key + base.query_offset
            q_len = base.q_len
        if self.given is not None and q_len != self.given:
            raise Error(
                f"the model was given {self.given} tokens, but {self._name(module)} computes {q_len}: the model adds or joins tokens, so private text cannot be traced through it"
            )
        known = self._computed.get(module, 0)
        if first > known:
            raise Error(
                f"{self._name(module)} continues after token {first}, but {known} tokens were computed inside the `with` statement: the cache holds tokens that "
                "were computed without the policy; compute the text and its continuation inside one statement"
            )
        self._computed[module] = first + q_len
        self.longest = max(self.longest, first + q_len)
        if self.ids is not None and self._given_ids is not None:
            self._check_ids(self._given_ids, first, self.ids)
            self._given_ids = None

    def _check_ids(self, given: Tensor, first: int, own: NDArray[np.int64]) -> None:
        """Compares the public tokens that the model computes (`given`) with those of the text (`own`), from token `first` on.
        Raises `Error` if they differ."""
        tokens = self.tokens.repeated(given.shape[0])
        last = min(first + given.shape[1], own.shape[1])
        if last <= first:
            return
        expected = own.repeat(given.shape[0] // own.shape[0], 0)[:, first:last]
        public = tokens.real[:, first:last] & ~tokens.private[:, first:last]
        other = np.argwhere((given.detach().cpu().numpy()[:, : last - first] != expected) & public)
        if len(other):
            row, at = other[0].tolist()
            raise Error(f"the model computes another text: token {first + at} of row {row} differs from that of the private tokens; give the tokens of the batch that the model computes")

    def _rows(self, module: nn.Module, role: Role, masked: Masked) -> tuple[Policy, Tokens]:
        """Returns (policy, private tokens among the keys) for an attention call."""
        tokens = self.tokens.repeated(masked.batch)
        if role == "text":
            return self.policy, tokens.window(masked.first_key, masked.kv_len)
        if masked.kv_len != tokens.shape[1]:
            raise Error(f"{self._name(module)} reads {masked.kv_len} keys, but the text has {tokens.shape[1]} tokens: the encoder changes the number of tokens, so private text cannot be traced through it")
        return self.policy.across(tokens)

    def _hidden(self, module: nn.Module, role: Role, masked: Masked) -> Hidden:
        layer = layer_of(self.names.get(module, ""), module)
        known = self._changed.setdefault(masked, {})
        found = known.get((role, layer))
        if found is None:
            policy, tokens = self._rows(module, role, masked)
            mask = policy.mask(masked.mask)
            if mask.has_layers:
                mask = mask.at_layer(layer)
            found = next((old for (other, _), old in known.items() if other == role and old.mask == mask), None)
            if found is None:
                found = converted(Hidden, masked, mask=mask, facts=policy.facts(tokens, masked.facts))
                found.policy = policy
            known[(role, layer)] = found
        return found

    def _record(self, module: nn.Module, role: Role, found: Masked | Tensor, changed: Hidden, heads: int, kv_heads: int) -> Record:
        """Returns the record of an attention call: its mask, the number of cells that the policy denies, and how many of these
        the mask allows."""
        tokens = self.tokens.repeated(changed.batch)
        window = tokens if role == "cross" else tokens.window(changed.first_key, changed.kv_len)
        secret = self.policy.secret(window)
        at = np.arange(changed.q_len) + changed.query_offset
        public = np.ones((changed.batch, changed.q_len), np.bool_)
        if role == "text":
            known = (at >= 0) & (at < changed.kv_len)
            public = ~secret[:, np.where(known, at, 0)] & known
        denied_heads = self.policy.denied_heads(heads)
        pairs = int((public.sum(1) * secret.sum(1)).sum()) * len(denied_heads)
        name = self.names.get(module, "")
        if not isinstance(found, Masked):
            cells = _kept(found).expand(changed.batch, heads, changed.q_len, changed.kv_len)[:, denied_heads]
            denied = torch.from_numpy(public[:, None, :, None] & secret[:, None, None, :]).to(cells.device)
            return Record(name, "a prepared mask", pairs, int((cells & denied).sum()))
        allowed = 0
        if pairs:
            rows = [(row, ranges(public[row], changed.query_offset), ranges(secret[row])) for row in range(changed.batch)]
            denied_cells: Mask = batch([*(([row], queries(q) & keys(k)) for row, q, k in rows if q and k), ("else", "none")])
            if len(denied_heads) < heads:
                denied_cells = of_heads([(denied_heads, denied_cells), ("else", "none")])
            both = found.mask & denied_cells
            allowed = both.stats(changed.sized(heads, kv_heads), found.facts.used_by(both)).allowed
        return Record(name, str(found.mask), pairs, allowed)

    # --- hooks of the model ---------------------------------------------------------------------------------------

    def hooks(self, model: nn.Module) -> list[Any]:
        """Adds the hooks that note the number of tokens in each call of the model. Returns the handles with which the hooks can
        be removed."""
        before: list[tuple[nn.Module, int]] = []
        handles = []
        for part in self.roles.readers:
            handles.append(part.register_forward_pre_hook(self._note(outer=part is self.roles.readers[0]), with_kwargs=True))
        for part in {*self.roles.readers, model} if self.strict else ():
            handles.append(part.register_forward_pre_hook(lambda inner, _: before.append((inner, self.calls))))
            handles.append(part.register_forward_hook(lambda inner, _, __: self._check_calls(inner, before)))
        return handles

    def _note(self, outer: bool) -> Callable[[nn.Module, tuple[Any, ...], dict[str, Any]], None]:
        def note(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            ids = kwargs.get("input_ids", args[0] if args else None)
            embedded = kwargs.get("inputs_embeds")
            if isinstance(ids, Tensor) and ids.dim() == 2 and not ids.is_floating_point():
                self.given, self._given_ids = ids.shape[1], ids
            elif outer:
                self.given, self._given_ids = embedded.shape[1] if isinstance(embedded, Tensor) else None, None

        return note

    def _check_calls(self, module: nn.Module, before: list[tuple[nn.Module, int]]) -> None:
        """Raises `Error` if the forward pass of `module` called no attention whose mask the policy changed. `before` has the
        number of such calls at the start of each forward pass."""
        while before:
            inner, calls = before.pop()
            if inner is module:
                if calls == self.calls:
                    raise Error(f"no attention layer of {type(module).__name__} called noren in this forward pass, so no private text was hidden: do not use the outputs")
                return


def own_mask(module: nn.Module, query: Tensor, key: Tensor, is_causal: bool | None, role: Role) -> Made:
    """Returns the mask of a layer that got no mask from its model: causal or full, as the layer computes without a mask."""
    size, q_len, kv_len = query.shape[0], query.shape[2], key.shape[2]
    causal_layer = bool(getattr(module, "is_causal", False) if is_causal is None else is_causal) and q_len > 1
    if q_len not in (1, kv_len) and (causal_layer or role == "text"):
        raise Error(
            f"{type(module).__name__} has {q_len} queries, {kv_len} keys and no mask, so the positions of the queries are unknown: give a mask"
        )
    return Made(causal() if causal_layer else full(), size, q_len, kv_len, kv_len - q_len if role == "text" else 0, Facts())


def _combined(given: Tensor, changed: Masked, heads: int, kv_heads: int) -> Tensor:
    """Returns the mask tensor `given` without the cells that the policy denies, which are not in the mask `changed`."""
    keep = torch.from_numpy(changed.mask.dense(changed.sized(heads, kv_heads), changed.facts.used_by(changed.mask))).to(given.device)
    if given.dim() != 4 or any(size not in (1, own) for size, own in zip(given.shape, keep.shape, strict=True)):
        raise Error(f"the attention mask has shape {list(given.shape)}, which does not broadcast to {list(keep.shape)}: give [batch, 1 or heads, q_len, kv_len]")
    if given.dtype == torch.bool:
        return given & keep
    if not given.is_floating_point():
        raise Error(f"the attention mask with 4 dimensions holds {given.dtype}: give booleans (true = attend) or floats that are added to the scores (0 and -inf)")
    check_floats(given)
    return given.expand_as(keep).masked_fill(~keep, -torch.inf)


def _kept(mask: Tensor) -> Tensor:
    return mask if mask.dtype == torch.bool else mask != -torch.inf

"""`noren.guard`: checks the masks of a model in its first forward passes, during training or generation, and reports mistakes."""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from .._noren import Error, Mask, causal, full
from ..arguments import _call
from ..masks._doctor import Report, check
from .expected import Batch, Expected, as_bound, expected, expected_cross, kept
from .intent import Intent, from_config
from .model.wrappers import Functions, Positional, bound_arguments, eagerly, inside, parameters


class MaskFault(Error):  # type: ignore[misc]
    """The error for a faulty mask. `report` is the report of `noren.check` (the doctor), `place` the name of the module that
    got the mask, and `step` the number of the forward pass, counted from 1."""

    def __init__(self, place: str, step: int, report: Report) -> None:
        super().__init__(f"step {step}, {place}:\n{report}")
        self.place, self.step, self.report = place, step, report


@dataclass
class Seen:
    """A mask or a batch that the guard checked."""

    step: int
    """The number of the forward pass, counted from 1."""
    place: str
    """The name of the module that got the mask, or "the batch" for the check of a batch."""
    shape: tuple[int, ...]
    """The shape of the mask."""
    report: Report
    """The report of `noren.check` (the doctor) about this mask or batch."""
    wrong: int | None = None
    """Number of cells, in rows of non-padding queries, in which the mask differs from the intent; None if the mask was not
    compared with an intent."""


@dataclass
class Guard:
    """A context manager that checks masks; made by `noren.guard`."""

    model: nn.Module
    """The model that is checked."""
    intent: Intent | None
    """The masks that the model should have; None if they are not known."""
    steps: int
    """Number of forward passes to check."""
    raises: bool
    """True if the guard raises `MaskFault` for a mask with an error; false if it only warns."""
    declared: dict[str, Any]
    """The user's declarations: keyword arguments of `noren.check`, by name."""
    step: int = 0
    """Number of forward passes that were checked until now."""
    seen: list[Seen] = field(default_factory=list)
    """One entry for each different mask of each forward pass, with the doctor's report."""

    _hooks: ExitStack = field(default_factory=ExitStack, repr=False)
    _watching: ExitStack | None = field(default=None, repr=False)
    _inside: list[tuple[str, nn.Module, dict[str, Any]]] = field(default_factory=list, repr=False)
    _batch: Batch = field(default_factory=lambda: Batch({}), repr=False)
    _looked_at: dict[tuple[Any, ...], tuple[tuple[Tensor, Tensor | None], ...]] = field(default_factory=dict, repr=False)

    @property
    def findings(self) -> list[Seen]:
        """The faulty masks."""
        return [seen for seen in self.seen if seen.report.faulty or seen.wrong]

    @property
    def established(self) -> list[Seen]:
        """The masks that were compared with the intent in every cell."""
        return [seen for seen in self.seen if seen.wrong is not None]

    def __enter__(self) -> Guard:
        enter = self._hooks.enter_context
        enter(eagerly())
        enter(self.model.register_forward_pre_hook(self._begin, with_kwargs=True, prepend=True))
        enter(self.model.register_forward_hook(self._end, always_call=True))
        for name, module in self.model.named_modules():
            if "Attention" in type(module).__name__ and module is not self.core:
                enter(module.register_forward_pre_hook(self._enter(name), with_kwargs=True))
                enter(module.register_forward_hook(self._leave, always_call=True))
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self._disarm()
        if kind is None and self.step and not self.established:
            why = "the guard found no mask that it could compare with the intent, the mask that the model should have" if self.intent is not None else "the intended mask is unknown: give intent="
            message = f"nr.guard established nothing in {self.step} steps: {why}. The guard sees attention only in calls of scaled_dot_product_attention, in calls of noren, and in modules of transformers and PyTorch; nr.audit tests any model"
            warnings.warn(message, stacklevel=2)

    def _disarm(self) -> None:
        self._end()
        self._hooks.close()

    # --- a step ---------------------------------------------------------------------------------------------------

    def _begin(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if self.step >= self.steps:
            self._disarm()
            return
        self.step += 1
        self._batch = Batch.of(bound_arguments(module, args, kwargs), *self._padding_id())
        self._looked_at.clear()
        self._check_batch()
        self._watching = ExitStack()
        self._watching.enter_context(Functions(self._on_function))
        _call.watchers.append(self._on_plan)
        self._watching.callback(_call.watchers.remove, self._on_plan)

    def _end(self, *_: Any) -> None:
        if self._watching is not None:
            self._watching.close()
            self._watching = None
            self._inside.clear()

    def _enter(self, name: str) -> Callable[..., None]:
        def enter(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            if self._watching is None:
                return
            if isinstance(module, nn.MultiheadAttention):
                kwargs = dict(zip(parameters(module), args, strict=False)) | kwargs
            self._inside.append((name, module, kwargs))
            if isinstance(module, nn.MultiheadAttention):
                if not _computes_plan(module, kwargs):
                    self._on_multihead(module, kwargs)
            elif isinstance(mask := kwargs.get("attention_mask"), Tensor) and mask.dim() == 4:
                hidden = _hidden(args, kwargs)
                self._look(mask, mask.shape[-2], mask.shape[-1], mask.dtype if hidden is None else hidden.dtype, (mask,))
            elif self._eager and "attention_mask" in kwargs and mask is None and (hidden := _hidden(args, kwargs)) is not None:
                if not self._stream(name, module, kwargs)[1] and not self._batch.past:
                    length = hidden.shape[1]
                    every = torch.ones(1, 1, length, length, dtype=torch.bool)
                    self._look(every, length, length, hidden.dtype, key=("none", length))

        return enter

    def _leave(self, *_: Any) -> None:
        if self._inside:
            self._inside.pop()

    @property
    def _eager(self) -> bool:
        """True if the model is a transformers model with the attention implementation "eager", which does not call
        `scaled_dot_product_attention`.

        In such a model, the guard sees only the arguments of attention modules. A self-attention module that gets no mask and
        has no cached tokens counts as a mask of all keys.
        """
        return getattr(getattr(self.core, "config", None), "_attn_implementation", None) == "eager"

    @property
    def core(self) -> nn.Module:
        """The model without wrappers such as DistributedDataParallel."""
        return inside(self.model)

    def _padding_id(self) -> tuple[int | None, int]:
        """Returns (padding id, value for `Batch.spare`). The padding id is the one that the user declared, otherwise the one in
        the model's configuration; None if neither exists.
        """
        config: Any = getattr(self.core, "config", None)
        ids = {name: getattr(config, f"{name}_token_id", None) for name in ("pad", "eos", "bos")}
        ids |= {name: self.declared[f"{name}_token_id"] for name in ids if self.declared.get(f"{name}_token_id") is not None}
        pad = ids.pop("pad")
        if not isinstance(pad, int) or pad < 0:
            return None, 0
        others = {i for value in ids.values() for i in (value if isinstance(value, (list, tuple)) else [value])}
        return pad, int(pad in others or "pad_token_id" not in self.declared)

    # --- masks ----------------------------------------------------------------------------------------------------

    def _on_function(self, func: Callable[..., Any], args: Positional, kwargs: dict[str, Any]) -> Any:
        """Calls a function, and checks the mask before a call of `scaled_dot_product_attention`."""
        if func is scaled_dot_product_attention:
            given = dict(zip(("query", "key", "value", "attn_mask", "dropout_p", "is_causal"), args, strict=False)) | kwargs
            mask, is_causal, dtype = given.get("attn_mask"), bool(given.get("is_causal", False)), given["query"].dtype
            q_len, kv_len = given["query"].shape[-2], given["key"].shape[-2]
            if mask is None:
                every = torch.ones(1, 1, q_len, kv_len, dtype=torch.bool)
                self._look(every.tril() if is_causal else every, q_len, kv_len, dtype, key=(is_causal, q_len, kv_len))
            else:
                self._look(mask, q_len, kv_len, dtype, (mask,))
        return func(*args, **kwargs)

    def _on_plan(self, call: _call.Call, query: Tensor, key: Tensor) -> None:
        """Checks the mask of a call of noren's attention: of a model with `attn_implementation="noren"`, `noren.torch.attention`,
        or a converted module.

        A mask that the user set for noren (`noren_mask=`, `set_mask`) may hide cells that the intent allows.
        """
        _, module, kwargs = self._inside[-1] if self._inside else ("", self.model, {})
        multihead = isinstance(module, nn.MultiheadAttention)
        if multihead and not _computes_plan(module, kwargs):
            return
        calls = sys.modules.get("noren.hf._calls")
        given = getattr(module, "mask_hook", None) is not None or (calls is not None and calls.current_frame() is not None)
        mask = torch.from_numpy(call.plan.bound.dense())
        self._look(mask, query.shape[-2], key.shape[-2], query.dtype, key=("plan", call.plan), narrowed=given)

    def _on_multihead(self, module: nn.MultiheadAttention, given: dict[str, Any]) -> None:
        """Checks the masks of a call of `nn.MultiheadAttention`. In boolean masks of this module, true means ignored."""
        mask, keys = given.get("attn_mask"), given.get("key_padding_mask")
        made_of = tuple(given_mask for given_mask in (mask, keys) if given_mask is not None)
        query, key = given["query"], given["key"]
        axis = 1 if module.batch_first else 0
        if query.dim() != 3 or query.is_nested:
            return
        q_len, kv_len = query.shape[axis], key.shape[axis]
        if mask is not None and mask.dim() == 3:
            mask = mask.unflatten(0, (-1, module.num_heads))
        parts = [] if mask is None else [mask.reshape((1,) * (4 - mask.dim()) + tuple(mask.shape))]
        parts += [] if keys is None else [keys[:, None, None, :]]
        added = [part for part in parts if part.is_floating_point()]
        whole = torch.zeros(1, 1, q_len, kv_len, dtype=added[0].dtype if added else torch.bool, device=query.device)
        for part in parts:
            if added:
                values = part if part.is_floating_point() else torch.zeros_like(part, dtype=whole.dtype).masked_fill(part != 0, -torch.inf)
                whole = whole + values
            else:
                whole = whole | (part != 0)
        self._look(whole if added else ~whole, q_len, kv_len, query.dtype, made_of, (mask is None, keys is None, q_len, kv_len))

    def _look(
        self, mask: Tensor, q_len: int, kv_len: int, dtype: torch.dtype, made_of: tuple[Tensor, ...] = (), key: tuple[Any, ...] = (),
        narrowed: bool = False,
    ) -> None:  # fmt: skip
        """Compares a mask with the intended mask, and runs the doctor on it. The same mask is examined only once in a forward
        pass, although many layers use it.

        Two masks are the same if they were made from equal tensors and values and are compared with equal intended masks.
        `made_of` has the tensors from which the mask was made, and `key` the other values. If `narrowed` is true, the mask may
        hide cells that the intent allows.
        """
        name, module, kwargs = self._inside[-1] if self._inside else ("the model", self.model, {})
        stream, cross = self._stream(name, module, kwargs)
        known = self.intent is not None and not cross and not _other_keys(name, kwargs)
        meant = self._meant(name, stream) if known else None
        key = (*key, *map(_identity, made_of), str(meant), stream, cross)
        looked_at = self._looked_at.get(key)
        if looked_at is not None and all(copy is None or torch.equal(tensor, copy) for tensor, copy in looked_at):
            return
        # The tensors are kept, so that no other tensor gets their id during the step; a tensor without a version is copied.
        self._looked_at[key] = tuple((tensor, tensor.clone() if tensor.is_inference() else None) for tensor in made_of)
        past = 0 if cross or stream == "source" else self._batch.past
        if not cross and kv_len != past + q_len:
            return  # a ring buffer or a preallocated cache: the positions of its keys are not known
        right = self._expected(meant, stream, cross, (q_len, kv_len, past))
        context = self._context(stream, cross, dtype, past, kv_len)
        said = self._said(meant, "segment_ids" in context)
        if right is None:
            self._judge(name, mask, check(mask.detach().cpu(), **(context | said | self._known())), None)
            return
        wrong, keep = min(((right.wrong(keep, narrowed), keep) for keep in kept(mask)), key=lambda found: found[0])
        values: dict[str, Any] = {"api": "sdpa", "compute_dtype": context["compute_dtype"]}
        if not wrong:  # the cells are correct, so the doctor checks only the values that hide cells
            self._judge(name, mask, check(_four(mask), meant=as_bound(keep), **values), 0)
            return
        report = check(mask.detach().cpu(), **(context | said | self._known()))
        if not any(finding.severity == "error" for finding in report.findings):
            report = check(_four(mask).expand(right.cells[0].shape), meant=right.bound(), **values)
        self._judge(name, mask, report, wrong)

    def _expected(self, meant: Mask | None, stream: str, cross: bool, sizes: tuple[int, int, int]) -> Expected | None:
        """Returns the cells that the mask of an attention call must allow; None if the intent and the batch do not define these
        cells. `sizes` is (q_len, kv_len, number of tokens in the cache).
        """
        if self.intent is None:
            return None
        q_len, kv_len, past = sizes
        if cross:
            return expected_cross(self._batch, q_len, kv_len)
        if meant is None:
            return None
        of = "decoder" if self.intent.source is not None and stream == "main" else "encoder"
        return expected(meant, self._batch, q_len, kv_len, past, self.intent.heads, of, bool(self.intent.documents))

    def _known(self) -> dict[str, Any]:
        """Returns the declarations that the user gave to `noren.guard`, for `noren.check`.

        The padding id is left out if the batch has a padding mask that hides the padding ids at the ends of rows, because such
        a mask is more reliable.
        """
        known = dict(self.declared)
        if self._batch.given_real() is not None and not self._batch.shown_padding():
            known.pop("pad_token_id", None)
        return known

    def _stream(self, name: str, module: nn.Module, kwargs: dict[str, Any]) -> tuple[str, bool]:
        """Returns (sequence of the queries, whether the keys are from the encoder) for the attention module `module`, called
        `name`.

        The sequence is "source" in an encoder, otherwise "main".
        """
        cross = bool(getattr(module, "is_cross_attention", False)) or any(
            kwargs.get(given) is not None for given in ("encoder_hidden_states", "key_value_states")
        )
        encoder = self.intent is not None and self.intent.source is not None and "encoder" in name.split(".")
        parent, _, own = name.rpartition(".")
        if own == "multihead_attn":
            cross = cross or isinstance(self.model.get_submodule(parent), nn.TransformerDecoderLayer)
        return ("source" if encoder else "main"), cross

    def _meant(self, name: str, stream: str) -> Mask:
        assert self.intent is not None
        masks = self.intent.masks(stream)
        number = re.search(r"\.(\d+)\.", f".{name}.")
        layer = int(number.group(1)) if number else 0
        return masks[layer if layer < len(masks) else 0].at_layer(layer)

    def _said(self, meant: Mask | None, separate: bool) -> dict[str, Any]:
        """Returns the argument of `noren.check` that declares the intended mask: `kind` if the doctor (`noren.check`) has a
        name for this mask, such as `causal`; otherwise `meant`. `separate` is true if the batch has several documents in a row.

        The name is preferred, because the doctor recognises the usual mistakes only for a declared `kind`.
        """
        packed = "_packed" if separate or (self.intent is not None and self.intent.documents) else ""
        if meant is None:
            return {}
        if meant == causal():
            return {"kind": "causal" + packed}
        if meant == full():
            return {"kind": "bidirectional" + packed}
        if window := re.fullmatch(r"sliding\((\d+)\)", str(meant)):
            means = {"window_means": "keys visible, self included"}
            return {"kind": "sliding" + packed, "window": int(window.group(1))} | means
        return {"meant": meant}

    def _context(self, stream: str, cross: bool, dtype: torch.dtype, past: int, kv_len: int) -> dict[str, Any]:
        """Returns the declarations for `noren.check` that the batch and the attention call define. `past` is the number of
        tokens in the cache.
        """
        batch = self._batch
        decoder = self.intent is not None and self.intent.source is not None and stream == "main" and not cross
        ids, real = batch.ids(decoder), batch.real(decoder)
        context: dict[str, Any] = {"api": "sdpa", "compute_dtype": str(dtype).removeprefix("torch.")}
        context |= {"kind": "cross", "role": "cross"} if cross else {}
        if not past and ids is not None:
            context["input_ids"] = ids
        if real is not None:
            context["attention_mask"] = real.long()
        if past:
            context["past_len"] = past
        apart, must = batch.documents(kv_len)
        if not cross and stream == "main" and not decoder and must:
            context["segment_ids"] = apart[0]
        return context

    def _check_batch(self) -> None:
        """Checks token ids, positions and labels, which are not part of a mask."""
        batch, config = self._batch, getattr(self.core, "config", None)
        beside = {name: batch.tensor(name) for name in ("input_ids", "attention_mask", "position_ids", "labels")}
        given = {name: value.cpu() for name, value in beside.items() if value is not None and value.dim() == 2}
        if "input_ids" not in given or (self.intent is not None and self.intent.source is not None):
            return
        if batch.past:
            self._check_length(given)
            return
        context: dict[str, Any] = {"ignore_index": -100}
        if config is not None:
            rotary = any("rotary" in type(m).__name__.lower() for m in self.core.modules())
            context["position_encoding"] = "rope" if rotary else "learned"
            context |= {"model_shifts_labels": True} if type(self.core).__name__.endswith("ForCausalLM") else {}
            context |= {"api": "masked_lm"} if type(self.core).__name__.endswith("ForMaskedLM") else {}
        if given.get("labels") is not None and given["labels"].shape != given["input_ids"].shape:
            del given["labels"]
        if len(given) > 1:
            real = given.pop("attention_mask", None)
            if batch.documents(given["input_ids"].shape[1])[1]:
                real = None  # the masks of the layers show whether the documents are separate
            if real is not None:
                context |= {"role": "key_padding", "convention": "keep"}
                real = real.long()
            known = self._known() | ({"pad_token_id": batch.pad} if batch.shown_padding() else {})
            self._judge("the batch", given["input_ids"], check(real, **(context | given | known)), None)

    def _check_length(self, given: dict[str, Tensor]) -> None:
        """Checks that the padding mask covers the tokens in the cache and the new tokens."""
        real, new, past = given.get("attention_mask"), given["input_ids"].shape[1], self._batch.past
        if real is not None and real.shape[1] != past + new:
            sizes: dict[str, Any] = {"past_len": past, "q_len": new, "kv_len": past + new}
            self._judge("the batch", real, check(real.long(), role="key_padding", convention="keep", api="huggingface", **sizes), None)

    def _judge(self, place: str, mask: Tensor, report: Report, wrong: int | None) -> None:
        seen = Seen(self.step, place, tuple(mask.shape), report, wrong)
        self.seen.append(seen)
        worst = {finding.severity for finding in report.findings}
        if ("error" in worst or wrong) and self.raises:
            raise MaskFault(place, self.step, report)
        if worst & {"error", "warning"} or wrong:
            warnings.warn(f"step {self.step}, {place}:\n{report}", stacklevel=2)


def _identity(tensor: Tensor) -> tuple[int, int]:
    """Returns a key for a dictionary: the identity and the version of a tensor. Tensors of inference mode have no version."""
    return id(tensor), 0 if tensor.is_inference() else tensor._version


def _computes_plan(module: nn.Module, given: dict[str, Any]) -> bool:
    """Returns true if an attention module of noren has a mask that is not a tensor, which only the plan of its call shows."""
    mask = given.get("attn_mask")
    return getattr(module, "mask_hook", None) is not None or (mask is not None and not isinstance(mask, Tensor))


def _other_keys(name: str, given: dict[str, Any]) -> bool:
    """Returns true if an attention module is cross-attention. It is if its name ends with `multihead_attn`, the name that
    PyTorch's decoder layer uses, and its query and key are different tensors.
    """
    return name.rpartition(".")[2] == "multihead_attn" and given.get("query") is not given.get("key")


def _four(mask: Tensor) -> Tensor:
    """Converts a mask to `[batch, heads, q_len, kv_len]` on the CPU."""
    mask = mask.detach().cpu()
    return mask.reshape((1,) * (4 - mask.dim()) + tuple(mask.shape))


def _hidden(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor | None:
    """Returns the hidden states `[batch, length, width]` among the arguments of an attention module.

    Returns None if no argument holds hidden states.
    """
    hidden = args[0] if args else kwargs.get("hidden_states")
    return hidden if isinstance(hidden, Tensor) and hidden.dim() == 3 else None


def guard(
    model: nn.Module,
    intent: Any = None,
    *,
    steps: int = 3,
    on_fault: Literal["raise", "warn"] = "raise",
    **declared: Any,
) -> Guard:
    """Returns a context manager that checks the masks of a model in its first `steps` forward passes, then removes its hooks.

    `noren.check` examines every different mask that reaches `scaled_dot_product_attention`, noren's attention, an attention module of
    transformers or `nn.MultiheadAttention`, together with its batch, positions and labels. Documents that the batch separates, by
    position ids that begin again, `seq_idx`, `segment_ids` or `cu_seqlens`, must not read each other. A call without a mask counts as a mask of all keys, or
    as a causal mask if `is_causal` is true.

    `intent` is the mask that the model should have, as in `noren.audit` [default: read from the configuration of a transformers
    model]. If the intent is known, every cell in rows of non-padding queries is compared with the intent; otherwise only the
    checks that need no intent run. Keyword arguments are declarations as for `noren.check`: `pad_token_id=0`,
    `padding_side="left"`, ...

    A mask with an error raises `MaskFault`; with `on_fault="warn"` it warns. A mask that is possibly wrong causes a warning,
    and so does a guard that compared no mask. Wrappers (DistributedDataParallel, DataParallel, `forward(**batch)`) are
    supported. Models of torch.compile run uncompiled while they are checked. Raises `noren.Error` for an argument that is not a
    module.

    >>> with nr.guard(model, pad_token_id=0) as watch:  # doctest: +SKIP
    ...     for batch in loader:
    ...         model(**batch).loss.backward()
    """
    if not isinstance(model, nn.Module):
        raise Error(f"nr.guard was given {type(model).__name__}: give a torch.nn.Module")
    if on_fault not in ("raise", "warn"):
        raise Error(f"on_fault={on_fault!r}: give 'raise' or 'warn'")
    if intent is not None:
        meant: Intent | None = Intent.of(intent)
    else:
        core = inside(model)
        meant = from_config(core) if hasattr(core, "config") else None
    model = getattr(model, "_orig_mod", model)
    return Guard(model, meant, steps, on_fault == "raise", declared)

"""Masks that the user gives for a forward pass of a transformers model: as an argument of the call, for one model, or for all
models.
"""

from __future__ import annotations

import re
import weakref
from collections.abc import Hashable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache
from itertools import takewhile
from typing import Any, cast

import torch
from torch import Tensor, nn

from .._noren import Error, Facts, Plan
from ..arguments._caches import given_cache, returned_cache
from ..arguments._given import check_names
from ..arguments._tensors import compiling
from ..torch._dynamic import Given, Handle, check_given, check_tokens, given_facts, plan_of_call, token_readers
from ..torch._function import constant, uncompiled
from ..torch._mask_call import Inputs, MaskCall, Own, Part
from ._inputs import ARGUMENTS, POSITIONS, check_attention_mask, check_sequences, compiled_arguments, parameters, refuse_unknown

PARTS = ("encoder", "decoder", "cross")
CROSS = re.compile(r"cross|enc_?dec|encoder_attn", re.IGNORECASE)
"""A pattern that finds the names of cross-attention modules in transformers."""
SETTING = "noren_setting"
"""The name of the attribute of a model that holds the mask given to `set_mask`."""

DEFAULTS: dict[str, Given] = {}
"""The masks that were given to `noren.hf.register`, by the name of the attention implementation."""
_FRAME: ContextVar[Frame | None] = ContextVar("noren_frame", default=None)


def set_default(name: str, mask: Given) -> None:
    """Sets the mask of all models whose attention implementation is called `name`."""
    given = check_given("mask", mask)
    if not isinstance(name, str):
        raise TypeError(f"name is {name!r}: give a text such as \"noren\"")
    DEFAULTS[name] = given


def current_frame() -> Frame | None:
    """Returns the state (`Frame`) of the forward pass that is running; None if no mask was given for this pass."""
    return _FRAME.get()


@dataclass(eq=False)
class Setting:
    """A mask or mask function that the user set for a model, with its facts and inputs."""

    root: nn.Module
    mask: Given | Mapping[str, Given]
    facts: Facts | None = None
    inputs: Mapping[str, Any] | None = None

    def of(self, name: str, part: Part) -> Given:
        """Returns the mask for the attention module called `name` in the root model. `part` is the part of the model to which
        the module belongs: "self", "encoder", "decoder" or "cross"."""
        if not isinstance(self.mask, Mapping):
            if part == "cross" and not callable(self.mask) and self.mask is not None:
                raise Error(f"noren_mask is one mask, but {type(self.root).__name__} has cross-attention ({name}): give a dict of masks such as {{\"self\": ..., \"cross\": ...}}")
            return self.mask
        paths = [key for key in self.mask if key not in (*PARTS, "self") and f".{key}." in f".{name}."]
        return self.mask[max(paths, key=len)] if paths else self.mask.get(part)


@dataclass(eq=False)
class Frame:
    """The state of a forward pass for which a mask was given. If a model contains another model, each of them has its own
    state."""

    model: nn.Module
    setting: Setting
    outer: Frame | None
    arguments: Mapping[str, Any]
    """The arguments of the forward pass, by name."""
    uses: list[int]
    """The number of attention calls in the forward pass of the outermost model. It is a list with one number, so that the
    states of all models in this pass share and change it."""

    @property
    def separates_sequences(self) -> bool:
        """True if the given mask separates the sequences that are in one row, as the mask of `noren.fold` does."""
        return getattr(self.setting.mask, "separates_sequences", False) is True

    def contains(self, model: nn.Module) -> bool:
        """Returns true if `model` is a module inside the model of this forward pass."""
        own, found = (_place(self.setting.root, module) for module in (self.model, model))
        return own is not None and found is not None and found != own and (not own.name or found.name.startswith(f"{own.name}."))

    def plan(self, module: nn.Module, query: Tensor, key: Tensor, scale: float | None, own: Own) -> Plan:
        """Returns the plan of an attention layer: the intersection of the layer's own mask and the mask that the user gave."""
        self.uses[0] += 1
        found = _place(self.setting.root, module)
        if found is None:
            raise Error(f"{type(module).__name__} is not a module of {type(self.setting.root).__name__}, for which the mask was given: set the mask again after replacing modules")
        given = self.setting.of(found.name, found.part)
        inputs = Inputs(self.setting.facts, self.setting.inputs or {}, *self._readers())
        call = MaskCall(
            layer=found.layer, part=found.part, module=module, query=query, key=key, scale=scale, own=own, inputs=inputs
        )
        return plan_of_call(given, call)

    def check_mask_of_layer(self, module: nn.Module, mask: Tensor | None, unknown_query: bool) -> None:
        """Raises `Error` if the mask of a layer cannot be combined with the mask that the user gave. `unknown_query` is true if
        the positions of the layer's queries are unknown.
        """
        if mask is not None:
            raise Error("attention_mask is a prepared mask with 4 dimensions, and a noren mask was given too: give the padding as attention_mask [batch, length] and the rest of the mask as noren_mask")
        place = _place(self.setting.root, module)
        if unknown_query and place is not None and place.part != "cross":
            raise Error(f"{type(module).__name__} got no mask and has fewer queries than keys: the positions of its queries are unknown, so a noren mask cannot be applied")
        if any(getattr(part, "gradient_checkpointing", False) and part.training for part in self.setting.root.modules()):
            raise Error(f"{type(module).__name__} gets no mask from its model, so gradient checkpointing would lose the noren mask in the backward pass: call model.gradient_checkpointing_disable()")

    def _readers(self) -> tuple[Any, Any]:
        """Returns two functions of (part of the model, number of batch rows, length). The first returns the token ids of the
        queries, the second the token ids of the keys, both as `[batch, length]`.
        """
        inputs = self.setting.inputs or {}
        queries, keys = token_readers(inputs.get("tokens"), inputs.get("key_tokens"))
        return queries or self._query_tokens, keys or self._key_tokens

    def _outward(self) -> Iterator[Frame]:
        """Yields this state, and those of the forward passes of the models that contain this model."""
        frame: Frame | None = self
        while frame is not None:
            yield frame
            frame = frame.outer

    def _query_tokens(self, part: Part, batch: int, length: int) -> Tensor:
        for frame in self._outward():
            tokens = frame.arguments.get("input_ids")
            if isinstance(tokens, Tensor) and (frame is self or not _encodes(frame.model)):
                return check_tokens("input_ids", tokens, batch, length)
        raise _unknown("tokens", type(self.model).__name__)

    def _key_tokens(self, part: Part, batch: int, length: int) -> Tensor:
        if part == "cross":
            for frame in self._outward():
                tokens = frame.arguments.get("input_ids")
                if _encodes(frame.model) and isinstance(tokens, Tensor):
                    return check_tokens("input_ids", tokens, batch, length)
            raise _unknown("key_tokens", type(self.model).__name__)
        cache = self._cache()
        if cache is None:
            return self._query_tokens(part, batch, length)
        tokens = recorded(cache)
        if tokens is None or tokens.shape[0] != batch or tokens.shape[1] > length:
            raise Error(
                "the token ids of the cached keys are unknown, because the cache was filled without a noren mask or from inputs_embeds: set the mask "
                'before the cache is filled (noren.hf.set_mask), or give noren_inputs={"key_tokens": ids}'
            )
        return nn.functional.pad(tokens, (0, length - tokens.shape[1]), value=-1)

    def _cache(self) -> Any:
        inner = takewhile(lambda frame: not _encodes(frame.model), self._outward())
        return next((cache for frame in inner if (cache := given_cache(frame.arguments)) is not None), None)


def _unknown(name: str, model: str) -> Error:
    return Error(f'{name} is unknown, because {model} was called without input_ids: give noren_inputs={{"{name}": ids}}, a tensor [batch, length]')


def _encodes(model: nn.Module) -> bool:
    """Returns true if the model has an encoder and a decoder. The `input_ids` of such a model are those of the encoder."""
    return bool(getattr(getattr(model, "config", None), "is_encoder_decoder", False)) and _encoder(model) is not None


def _encoder(model: nn.Module) -> nn.Module | None:
    if not hasattr(model, "get_encoder"):
        return None
    found = cast(Any, model).get_encoder()
    return found if isinstance(found, nn.Module) and found is not model else None


# --- the place of modules in a model ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Place:
    """An attention module's place in its model: its name, the index of its layer (from 0), and the part to which it belongs
    ("self", "encoder", "decoder" or "cross")."""

    name: str
    layer: int
    part: Part


class _Model:
    """The places of all modules of a root model, and the names of the transformers models inside it."""

    def __init__(self, root: nn.Module) -> None:
        from transformers import PreTrainedModel

        encoder = _encoder(root) if _encodes(root) else None
        inside = set() if encoder is None else set(encoder.modules())
        self.places: weakref.WeakKeyDictionary[nn.Module, Place] = weakref.WeakKeyDictionary()
        self.models: list[tuple[str, weakref.ref[nn.Module]]] = []
        for name, module in root.named_modules():
            if any(CROSS.search(word) for word in name.split(".")[-2:]):
                part: Part = "cross"
            elif encoder is None:
                part = "self"
            else:
                part = "encoder" if module in inside else "decoder"
            self.places[module] = Place(name, layer_of(name, module), part)
            if isinstance(module, PreTrainedModel):
                self.models.append((name, weakref.ref(module)))


_MODELS: weakref.WeakKeyDictionary[nn.Module, _Model] = weakref.WeakKeyDictionary()


def _model(root: nn.Module, holds: nn.Module | None = None) -> _Model:
    """Returns the places of the modules of the model `root`. The places are stored for later calls. They are determined again
    if the module `holds` is not among the stored modules.
    """
    found = _MODELS.get(root)
    if found is None or (holds is not None and holds not in found.places):
        found = _MODELS[root] = _Model(root)
    return found


def _place(root: nn.Module, module: nn.Module) -> Place | None:
    return _model(root, module).places.get(module)


def layer_of(name: str, module: nn.Module) -> int:
    """Returns the index of the layer of an attention module: its attribute `layer_idx`, or otherwise the first number in its
    name."""
    index = getattr(module, "layer_idx", None)
    if isinstance(index, int) and not isinstance(index, bool):
        return index
    numbers = re.findall(r"(?:^|\.)(\d+)(?=\.|$)", name)
    return int(numbers[0]) if numbers else 0


# --- settings -----------------------------------------------------------------------------------------------------


def set_mask(
    model: Any,
    mask: Given | Mapping[str, Given],
    *,
    facts: Facts | Mapping[str, Any] | None = None,
    inputs: Mapping[str, Any] | None = None,
) -> Handle:
    """Gives a model a mask or a mask function for all its calls, including calls by `generate`. A key is read only if the
    model's own mask allows it too.

    `mask` is a mask, its text, a bound mask, or a function of the call (`noren.torch.MaskCall`). For a model with an encoder and
    a decoder, `mask` is a dict with the keys "encoder", "decoder" and "cross". For a model that consists of several models, its
    keys are paths of modules, such as "language_model". `facts` are the data that the mask needs, such as the lengths of
    documents. `inputs` are inputs of mask functions, such as "tokens" if the model gets embeddings instead of token ids.

    The result has a method `remove()`, which restores the previous mask; in a `with` statement, the end of the block restores it.
    Raises `Error` if the model does not compute its attention with noren.

    >>> import noren.hf
    >>> with noren.hf.set_mask(model, "window(left=63)"):  # doctest: +SKIP
    ...     text = model.generate(ids)
    """
    from transformers import PreTrainedModel

    if not isinstance(model, PreTrainedModel):
        raise TypeError(f"`model` is {type(model).__name__}: give a model of transformers; for modules of PyTorch, call noren.torch.set_mask")
    setting = _setting(model, "mask", mask, facts, inputs)
    inner = [child for child in model.modules() if isinstance(child, PreTrainedModel)]
    before = [getattr(child, SETTING, None) for child in inner]
    for child in inner:
        install_hooks(child)
        setattr(child, SETTING, None if setting.mask is None else setting)

    def undo() -> None:
        for child, old in zip(inner, before, strict=True):
            setattr(child, SETTING, old)

    return Handle(undo)


def _setting(root: Any, what: str, mask: Any, facts: Any, inputs: Any) -> Setting:
    known, others = given_facts(facts), check_names("inputs", inputs)
    if not isinstance(mask, Mapping):
        given: Any = check_given(what, mask)
        _check_root(root, what, given)
    else:
        given = {_key(root, what, key): check_given(f"{what}[{key!r}]", value) for key, value in mask.items()}
    _check_attention(root, given)
    return Setting(root, given, known, others)


def _check_root(root: Any, what: str, given: Given) -> None:
    """Raises `Error` if a single mask was given for a model with several parts, such as encoder and decoder. A single mask
    function is accepted, because it receives the part in each call.
    """
    if callable(given) or given is None:
        return
    if _encodes(root):
        raise Error(f"{what} is one mask, but {type(root).__name__} has an encoder and a decoder: give a dict of masks such as {{\"encoder\": ..., \"decoder\": ..., \"cross\": ...}}")
    if getattr(root.config, "sub_configs", None):
        names = _names_of_models(root)
        raise Error(f"{what} is one mask, but {type(root).__name__} consists of several models: give a dict of masks such as {{{names[0]!r}: ...}}; its models are {', '.join(names)}")


def _names_of_models(root: Any) -> list[str]:
    found = [name for name, child in _model(root).models if name]
    return [name.rpartition(".")[2] for name in found] or ["model"]


def _key(root: Any, what: str, key: Any) -> str:
    parts = PARTS if _encodes(root) else ("self", "cross")
    if key in parts:
        return str(key)
    if isinstance(key, str) and key and any(f".{key}." in f".{name}." for name, _ in root.named_modules()):
        return key
    raise Error(f"{what} has the key {key!r}: give {', '.join(map(repr, parts))} or the path of a module, such as {_names_of_models(root)[0]!r}")


def _check_attention(root: Any, given: Any) -> None:
    """Raises `Error` if `root`, or a model inside it to which the mask applies, does not compute its attention with noren."""
    for name, known in _model(root).models:
        child: Any = known()
        if child is None or child.config._attn_implementation in DEFAULTS:
            continue
        if isinstance(given, Mapping) and not any(key in PARTS or key == "self" or f".{key}." in f".{name}." for key in given):
            continue
        raise Error(
            f"{type(child).__name__} computes its attention with {child.config._attn_implementation!r}, so a mask of noren has no effect on it: call "
            'model.set_attn_implementation("noren") after noren.hf.register(), or give a dict of masks for the parts that compute with noren'
        )


# --- hooks of models ----------------------------------------------------------------------------------------------


def traced() -> bool:
    """Returns true if torch.compile or torch.export traces a forward pass for which no mask was given. torch.compile compares the state
    of the pass before each call, and compiles again if a mask was given."""
    return compiling() and _FRAME.get() is None


def install_hooks(model: nn.Module) -> None:
    """Adds to a model the hooks that read the arguments `noren_mask`, `noren_facts` and `noren_inputs` of its forward pass."""
    if _enter not in model._forward_pre_hooks.values():
        model.register_forward_pre_hook(_enter, with_kwargs=True)
        model.register_forward_hook(_leave, always_call=True)


def _enter(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Begins a forward pass. Returns its arguments without `noren_mask`, `noren_facts` and `noren_inputs`."""
    refuse_unknown(kwargs)
    _end_interrupted(model)
    if traced():
        settings = [kwargs.get(name) for name in ARGUMENTS] + [getattr(model, SETTING, None), DEFAULTS.get(cast(Any, model).config._attn_implementation)]
        found = compiled_arguments(model, args, kwargs) if all(setting is None for setting in settings) else None
        if found is not None:
            return found
        if not torch.compiler.is_dynamo_compiling():
            raise Error("torch.export cannot export a noren mask, nor checks of attention_mask and position_ids for models with recurrent layers: export the model without them")
    return _begin(model, args, kwargs)


@constant
def _end_interrupted(model: nn.Module) -> None:
    """Ends a forward pass that Ctrl-C interrupted, so that its end was not noted: no pass that runs contains `model`."""
    if (frame := _FRAME.get()) is not None and not frame.contains(model):
        _FRAME.set(None)


@uncompiled
def _begin(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    outer = _FRAME.get()
    arguments = dict(zip(parameters(type(model)), args, strict=False)) | kwargs
    check_attention_mask(arguments.get("attention_mask"))
    setting = _wanted(model, outer, kwargs)
    if cast(Any, model).config._attn_implementation in DEFAULTS:
        check_sequences(model, arguments, None if setting is None else setting.mask)
        if isinstance(arguments.get("position_ids"), Tensor):
            POSITIONS.set((model, arguments["position_ids"]))
    rest = {name: value for name, value in kwargs.items() if name not in ARGUMENTS}
    if setting is None:
        return args, rest
    known = {name: value for name, value in arguments.items() if name not in ARGUMENTS}
    frame = Frame(model, setting, outer, known, outer.uses if outer is not None and outer.setting is setting else [0])
    tokens, cache = arguments.get("input_ids"), given_cache(arguments)
    if isinstance(tokens, Tensor) and cache is not None and not _encodes(model):
        record(cache, tokens)
    _FRAME.set(frame)
    return args, rest


def _wanted(model: nn.Module, outer: Frame | None, kwargs: Mapping[str, Any]) -> Setting | None:
    """Returns the mask that was set for a forward pass. It is taken from the first of these that has one: the arguments of the
    call, `set_mask` for this model, the outer forward pass, `set_mask` for a model that contains this model,
    `noren.hf.register`. None if no mask was given.
    """
    if any(kwargs.get(name) is not None for name in ARGUMENTS):
        mask, facts, inputs = (kwargs.get(name) for name in ARGUMENTS)
        old: Setting | None = getattr(model, SETTING, None)
        if mask is None and old is not None:
            return Setting(old.root, old.mask, old.facts if facts is None else _setting(model, "", None, facts, None).facts, {**(old.inputs or {}), **(inputs or {})})
        default = DEFAULTS.get(cast(Any, model).config._attn_implementation)
        if mask is None and default is None:
            raise Error("noren_facts or noren_inputs was given without noren_mask: give noren_mask too, or set a mask with noren.hf.set_mask")
        return _setting(model, "noren_mask", default if mask is None else mask, facts, inputs)
    own: Setting | None = getattr(model, SETTING, None)
    if outer is not None and (own is None or own.root is not model):
        return outer.setting
    if own is not None:
        return own
    default = DEFAULTS.get(cast(Any, model).config._attn_implementation)
    return None if default is None else _setting(model, "mask", default, None, None)


def _leave(model: nn.Module, _: Any, output: Any) -> None:
    """Ends a forward pass. Raises `Error` if the user gave a mask that was not used."""
    if _FRAME.get() is not None or POSITIONS.get() is not None:
        _end(model, output)


@uncompiled
def _end(model: nn.Module, output: Any) -> None:
    if (known := POSITIONS.get()) is not None and known[0] is model:
        POSITIONS.set(None)
    frame = _FRAME.get()
    if frame is None or frame.model is not model:
        return
    _FRAME.set(frame.outer)
    if output is None:
        return  # the forward pass raised an exception
    tokens, cache = frame.arguments.get("input_ids"), returned_cache(output)
    if given_cache(frame.arguments) is None and cache is not None and isinstance(tokens, Tensor) and not _encodes(model):
        record(cache, tokens, past=0)
    if (frame.outer is None or frame.outer.setting is not frame.setting) and frame.uses[0] == 0:
        raise Error(f"the noren mask was not used: no attention layer of {type(model).__name__} called noren in this forward pass")


# --- tokens of caches ---------------------------------------------------------------------------------------------


class _Recording:
    """A cache of transformers that also stores the token ids of its keys. Methods that move or remove keys also move or remove
    their token ids.
    """

    noren_tokens: Tensor | None = None

    def reorder_cache(self, beam_idx: Tensor) -> None:
        cast(Any, super()).reorder_cache(beam_idx)
        if self.noren_tokens is not None:
            self.noren_tokens = self.noren_tokens.index_select(0, beam_idx.to(self.noren_tokens.device))

    def batch_repeat_interleave(self, repeats: int) -> None:
        cast(Any, super()).batch_repeat_interleave(repeats)
        if self.noren_tokens is not None:
            self.noren_tokens = self.noren_tokens.repeat_interleave(repeats, dim=0)

    def batch_select_indices(self, indices: Tensor) -> None:
        cast(Any, super()).batch_select_indices(indices)
        if self.noren_tokens is not None:
            self.noren_tokens = self.noren_tokens[indices.to(self.noren_tokens.device)]

    def crop(self, *args: Any, **kwargs: Any) -> None:
        cast(Any, super()).crop(*args, **kwargs)
        if self.noren_tokens is not None:
            self.noren_tokens = self.noren_tokens[:, : int(cast(Any, self).get_seq_length())]

    def reset(self) -> None:
        cast(Any, super()).reset()
        self.noren_tokens = None


@lru_cache(maxsize=64)
def _recording(kind: Any) -> Any:
    return type(kind.__name__, (_Recording, kind), {"__module__": kind.__module__})


def record(cache: Any, tokens: Tensor, past: int | None = None) -> None:
    """Records `tokens`, the token ids of the next keys of a cache of transformers. `past` is the number of keys that the cache
    already holds [default: the length of the cache].
    """
    if not hasattr(cache, "get_seq_length"):
        return
    past = int(cache.get_seq_length()) if past is None else past
    if not isinstance(cache, _Recording):
        cache.__class__ = _recording(cast(Hashable, type(cache)))
    known = cache.noren_tokens
    if past == 0:
        cache.noren_tokens = tokens.detach()
    elif known is not None and known.shape[0] == tokens.shape[0] and known.shape[1] >= past:
        cache.noren_tokens = torch.cat([known[:, :past], tokens.detach().to(known.device)], 1)
    else:
        cache.noren_tokens = None


def recorded(cache: Any) -> Tensor | None:
    """Returns the token ids `[batch, length]` of the keys of a cache; None if they are unknown."""
    return cache.noren_tokens if isinstance(cache, _Recording) else None

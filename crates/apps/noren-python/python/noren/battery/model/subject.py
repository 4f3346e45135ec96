"""The model under test as a black box: inputs are tokens with their masks and positions; the output has one row for each token."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from ..._noren import Error
from ...arguments._caches import attribute, cache_parameter, returned_cache
from .precision import device_of, dtype_of, in_double
from .wrappers import TOKENS, inside, parameters, passes_on


@dataclass(frozen=True)
class Stream:
    """The sequences of one batch: their tokens, padding, positions and documents. A model has the stream `main`; a model with an
    encoder and a decoder also has the stream `source`, the encoder's input.
    """

    tokens: Tensor
    """Token ids `[batch, length]`, or token vectors `[batch, length, width]` of floats."""
    real: Tensor
    """`[batch, length]`: true for a token that the padding mask allows; false for padding and for hidden tokens."""
    positions: Tensor
    """`[batch, length]`: the position of each token, as given to the model."""
    segments: Tensor | None = None
    """`[batch, length]`: the number of the document of each token; the first document has number 1."""

    @property
    def batch(self) -> int:
        return int(self.tokens.shape[0])

    @property
    def length(self) -> int:
        return int(self.tokens.shape[1])

    def map(self, change: Callable[[Tensor], Tensor]) -> Stream:
        """Returns a stream with the tensors that `change` makes of the tensors of this one."""
        segments = None if self.segments is None else change(self.segments)
        return Stream(change(self.tokens), change(self.real), change(self.positions), segments)

    def first(self, length: int) -> Stream:
        """Returns the first `length` tokens of each sequence."""
        return self.map(lambda x: x[:, :length])

    def repeated(self, rows: int) -> Stream:
        """Returns a batch of `rows` rows, each with the one sequence of this stream."""
        return self.map(lambda x: x.expand(rows, *x.shape[1:]).contiguous())

    @staticmethod
    def joined(streams: Sequence[Stream]) -> Stream:
        """Returns the sequences of several streams, which have the same length, as one batch."""
        return Stream(*(torch.cat(parts) for parts in zip(*((s.tokens, s.real, s.positions) for s in streams), strict=True)))


@dataclass(frozen=True)
class Call:
    """The inputs of one forward pass over whole sequences, or of several passes with a cache."""

    main: Stream
    """The sequences whose outputs are compared. In an encoder-decoder, they are the decoder's input."""
    source: Stream | None = None
    """The encoder's sequences, None without an encoder."""
    splits: tuple[int, ...] = ()
    """For passes with a cache, the number of tokens of `main` in each pass. Empty: one pass with all tokens, without a cache."""
    backend: str | None = None
    """The name of the attention implementation; None: the one that the model has selected."""
    packing: str | None = None
    """The form in which packed documents are given to the model: one of the names in `Intent.documents`, such as
    "position_ids". None: no packed documents."""
    all_real: bool = False
    """True to give the model an attention mask in which no token is padding, although `main` contains padding."""
    poison: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """For each stream, the positions whose keys are made very large, to test whether the mask hides them. If these are all
    positions, the signs of the keys differ between batch rows."""

    def streams(self) -> dict[str, Stream]:
        return {"main": self.main} if self.source is None else {"main": self.main, "source": self.source}

    def map(self, change: Callable[[Stream], Stream]) -> Call:
        """Returns a call with the streams that `change` makes of the streams of this one."""
        return replace(self, main=change(self.main), source=None if self.source is None else change(self.source))

    def with_tokens(self, tokens: Tensor) -> Call:
        return replace(self, main=replace(self.main, tokens=tokens))


Output = dict[str, Tensor]
"""The outputs of a pass by name: `main` and `source` (the encoder) are `[batch, length, features]`, `pooled` is `[batch, 1,
features]`."""

KEEP = ("attention_mask",)
DROP = ("key_padding_mask", "src_key_padding_mask")
POSITIONS = ("position_ids",)
SEGMENTS = ("segment_ids", "document_ids", "seq_idx")


@dataclass(frozen=True)
class Arguments:
    """For each kind of input, the name of the model's parameter; None if the model has no parameter for it."""

    tokens: str | None
    keep: str | None
    drop: str | None
    positions: str | None
    segments: str | None
    source_keep: str | None = None
    source_drop: tuple[str, ...] = ()
    source: str | None = None
    cache: str | None = None
    use_cache: bool = False

    @staticmethod
    def of(function: Callable[..., Any], encoder_decoder: bool, core: nn.Module | None = None) -> Arguments:
        """Returns the names of the parameters of `function` for each kind of input.

        If `function` only passes its arguments on, the names are those of `core`, the module inside the wrappers.
        """
        names = list(parameters(core if core is not None and passes_on(function) else function))
        cache, use_cache = cache_parameter(names), "use_cache" in names

        def first(candidates: Sequence[str]) -> str | None:
            return next((name for name in candidates if name in names), None)

        if not encoder_decoder:
            segments = first(SEGMENTS)
            return Arguments(first(TOKENS), first(KEEP), first(DROP), first(POSITIONS), segments, cache=cache, use_cache=use_cache)
        return Arguments(
            first(("decoder_input_ids", "tgt")),
            first(("decoder_attention_mask",)),
            first(("tgt_key_padding_mask",)),
            first(("decoder_position_ids",)),
            None,
            source_keep=first(KEEP),
            source_drop=tuple(name for name in ("src_key_padding_mask", "memory_key_padding_mask") if name in names),
            source=first(("input_ids", "src")),
            cache=cache,
            use_cache=use_cache,
        )

    @property
    def masked(self) -> bool:
        """True if the model accepts a padding mask for the main sequences: in an encoder-decoder, the decoder's."""
        return self.keep is not None or self.drop is not None

    @property
    def source_masked(self) -> bool:
        return self.source_keep is not None or bool(self.source_drop)


@dataclass
class Subject:
    """The model under test and the names of its parameters; runs the model in its dtype and in float64."""

    function: Callable[..., Any]
    module: nn.Module | None
    arguments: Arguments
    hugging_face: bool
    step: Callable[..., Any] | None = None
    """A function that runs one pass with a cache: `step(tokens, state, **other_arguments) -> (output, state)`. Needed if the
    model's cache is not a cache of transformers."""
    exact: Callable[..., Any] | None = None
    """The model as a function that computes in float64, for models without a module that can be converted."""
    backends: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    core: nn.Module | None = None
    """The module inside wrappers, from which the names of the parameters and the configuration are taken."""
    sizes: set[int] = field(default_factory=set)
    """The numbers of batch rows of all passes."""

    @property
    def name(self) -> str:
        if self.core is not None and self.core is not self.module and self.function is self.module:
            return f"{type(self.core).__name__} in {type(self.module).__name__}"
        if self.hugging_face or self.function is self.module:
            return type(self.module).__name__
        return getattr(self.function, "__name__", type(self.function).__name__)

    @property
    def dtype(self) -> torch.dtype:
        return dtype_of(self.module)

    @property
    def caches(self) -> bool:
        return self.step is not None or self.arguments.cache is not None

    def run(self, call: Call, double: bool = False) -> Output:
        """Runs a call and returns its outputs. For outputs in float64, set `double` and call `run` within `with
        subject.exactly():`."""
        device = device_of(self.module)
        call = call.map(lambda stream: stream.map(lambda x: x.to(device)))
        self.sizes.add(call.main.batch)
        with self._backend(call.backend) as function:
            if double and self.exact is not None:
                function = self.exact
            outputs = list(self._parts(function, call, double))
        found: Output = {}
        for name in outputs[0]:
            if name == "main":
                found[name] = torch.cat([out[name] for out in outputs], 1)
            elif name == "source" or not call.splits:
                found[name] = outputs[0][name]
        return found

    @contextmanager
    def exactly(self) -> Iterator[None]:
        """Returns a context in which all passes are computed in float64."""
        config = getattr(self.core, "config", None)
        experts = getattr(config, "_experts_implementation", None)
        try:
            if experts is not None:  # grouped matrix products do not support float64
                config._experts_implementation = "eager"  # type: ignore[union-attr]
            with in_double(self.module):
                yield
        finally:
            if experts is not None:
                config._experts_implementation = experts  # type: ignore[union-attr]

    def backend_names(self) -> list[str]:
        """Returns the names of the attention implementations to compare; the others are compared with the first."""
        if self.backends:
            return list(self.backends)
        if not self.hugging_face:
            return [] if self.module is None else ["math", "default"]
        model: Any = self.core
        chosen = str(model.config._attn_implementation)
        found = []
        for name in dict.fromkeys(("eager", "sdpa", chosen)):
            try:
                model.set_attn_implementation(name)
            except (ValueError, ImportError):
                continue
            if model.config._attn_implementation == name:
                found.append(name)
        model.set_attn_implementation(chosen)
        return found

    @contextmanager
    def _backend(self, name: str | None) -> Iterator[Callable[..., Any]]:
        with ExitStack() as stack:
            function = self.function
            if name is not None and name in self.backends:
                function = self.backends[name]
            elif name == "math":
                stack.enter_context(sdpa_kernel(SDPBackend.MATH))
                before = torch.backends.mha.get_fastpath_enabled()
                torch.backends.mha.set_fastpath_enabled(False)
                stack.callback(torch.backends.mha.set_fastpath_enabled, before)
            elif name is not None and name != "default":
                model: Any = self.core
                stack.callback(model.set_attn_implementation, model.config._attn_implementation)
                model.set_attn_implementation(name)
            yield function

    def _parts(self, function: Callable[..., Any], call: Call, double: bool) -> Iterator[Output]:
        """Yields the outputs of each call of `function`. There is one call if `call.splits` is empty, otherwise one call for
        each entry of `call.splits`."""
        if not call.splits:
            out = function(*self._given(call), **self._said(call, 0, call.main.length, None))
            yield self._read(out, call, call.main.length)
            return
        start, state, encoded = 0, None, None
        for size in call.splits:
            end = start + size
            said = self._said(call, start, end, state)
            tokens = self._tokens(call.main)[:, start:end]
            if self.step is not None:
                out, state = self.step(tokens, state, **said)
            else:
                if encoded is not None:
                    said.pop(self.arguments.source or "", None)
                    said["encoder_outputs"] = encoded
                out = function(**said, **({self.arguments.tokens or "input_ids": tokens}))
                state = returned_cache(out)
                if call.source is not None:
                    encoded = (out.encoder_last_hidden_state,)
            yield self._read(out, call, size)
            start = end

    def _given(self, call: Call) -> list[Tensor]:
        """Returns the positional arguments of a pass without a cache.

        The list contains the tokens if the name of the model's parameter for tokens is unknown; otherwise the list is empty.
        """
        return [] if self.arguments.tokens is not None else [self._tokens(call.main)]

    def _tokens(self, stream: Stream) -> Tensor:
        """Returns the tokens of `stream` as they are given to the model: ids unchanged, vectors of floats converted to the
        model's dtype."""
        if not stream.tokens.is_floating_point():
            return stream.tokens
        return stream.tokens.to(self.dtype)

    def _said(self, call: Call, start: int, end: int, state: Any) -> dict[str, Any]:
        """Returns the model's keyword arguments for the tokens of the main sequences from `start` to before `end`.

        `state` is the cache that holds the earlier tokens.
        """
        names, main = self.arguments, call.main
        said: dict[str, Any] = {}
        if names.tokens is not None and not call.splits:
            said[names.tokens] = self._tokens(main)
        real = main.real | call.all_real
        if call.packing is None or "attention_mask" in call.packing:
            if names.keep is not None:
                said[names.keep] = real[:, :end].long()
            if names.drop is not None:
                said[names.drop] = ~real[:, :end]
        if names.positions is not None:
            said[names.positions] = main.positions[:, start:end]
        if names.segments is not None and main.segments is not None:
            said[names.segments] = main.segments[:, :end]
        if call.source is not None:
            source_real = call.source.real | call.all_real
            said[names.source or "input_ids"] = self._tokens(call.source)
            if names.source_keep is not None:
                said[names.source_keep] = source_real.long()
            said |= dict.fromkeys(names.source_drop, ~source_real)
        if call.splits and self.step is None and names.cache is not None:
            said |= {names.cache: state, "use_cache": True}
        elif names.use_cache and (call.packing is None or "cache" not in call.packing):
            said["use_cache"] = False
        return said

    def _read(self, out: Any, call: Call, length: int) -> Output:
        """Returns the outputs by name (`main`, `source` or `pooled`) from the result `out` of the model: a tensor, a tuple, or a
        mapping.
        """
        batch = call.main.batch
        found: Output = {}
        for value in _tensors(out):
            if value.dim() < 2 or value.shape[0] != batch or not value.is_floating_point():
                continue
            if value.dim() == 2 and value.shape[1] != length:
                found.setdefault("pooled", value[:, None, :])
            elif value.shape[1] == length:
                found.setdefault("main", value.reshape(batch, length, -1))
        encoded = attribute(out, "encoder_last_hidden_state")
        if encoded is not None:
            found["source"] = encoded
        if not found:
            raise Error(
                f"{self.name} returned nothing of shape [batch, length, features] or [batch, features] for a batch of {batch} and "
                f"length {length}: wrap the model in a function that returns a tensor of one of these shapes"
            )
        return found


def _tensors(out: Any) -> Iterator[Tensor]:
    """Yields the tensors in a model's result, in the order in which they are considered as outputs: logits, then hidden states,
    then pooled outputs."""
    if isinstance(out, Tensor):
        yield out
    elif isinstance(out, Mapping):
        for name in ("logits", "last_hidden_state", "pooler_output"):
            if isinstance(out.get(name), Tensor):
                yield out[name]
    elif isinstance(out, (tuple, list)):
        yield from (value for value in out if isinstance(value, Tensor))
    else:
        yield torch.as_tensor(out)


def subject_of(
    model: Any,
    module: nn.Module | None,
    encoder_decoder: bool,
    step: Callable[..., Any] | None,
    exact: Callable[..., Any] | None,
    backends: Mapping[str, Callable[..., Any]] | None,
) -> Subject:
    """Returns the model under test as a `Subject`, from a transformers model, a module or a function."""
    if not callable(model):
        raise Error(f"nr.audit was given {type(model).__name__}, which cannot be called: give a module or a function of tokens")
    model = getattr(model, "_orig_mod", model)
    if module is None and isinstance(model, nn.Module):
        module = model
    core = None if module is None else inside(module)
    hugging_face = model is module and hasattr(core, "config") and hasattr(core, "set_attn_implementation")
    arguments = Arguments.of(model, encoder_decoder, core)
    return Subject(model, module, arguments, hugging_face, step, exact, backends or {}, core)

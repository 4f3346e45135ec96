"""What the checks work with: tokens, padding, lengths and the layers of a model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from torch.overrides import TorchFunctionMode

from .._noren import Error, causal, full
from .catalogue import LENGTHS, PADS, Change, Skip, changes
from .intent import Bits, Intent
from .layers import Layer, find_layers
from .rounding import Rounding
from .subject import Call, Stream, Subject

KEYS = {"k_proj", "key", "k", "key_proj", "k_lin", "to_k", "wk", "linear_k", "query_key"}
"""What the projections to keys are called, as a rule."""


class Unclear(Exception):
    """A check applies and cannot be done; the message says why."""


@dataclass
class Maker:
    """Random tokens."""

    vocab: Sequence[int] | None
    """Ids to draw from, without special ones; None: floats."""
    width: int
    pads: tuple[int, ...]
    """Ids that padding tokens have, in turn."""
    rng: np.random.Generator

    def tokens(self, batch: int, length: int) -> Tensor:
        if self.vocab is None:
            return torch.from_numpy(self.rng.standard_normal((batch, length, self.width)))
        return torch.as_tensor(np.asarray(self.vocab)[self.rng.integers(len(self.vocab), size=(batch, length))])

    def changed(self, tokens: Tensor, at: Sequence[int]) -> Tensor:
        """The same with other tokens at `at`."""
        out = tokens.clone()
        fresh = self.tokens(tokens.shape[0], len(at))
        if self.vocab is not None:
            order = {token: i for i, token in enumerate(self.vocab)}
            for row in range(tokens.shape[0]):
                for i, position in enumerate(at):
                    if int(fresh[row, i]) == int(tokens[row, position]):
                        fresh[row, i] = self.vocab[(order[int(fresh[row, i])] + 1) % len(self.vocab)]
        out[:, list(at)] = fresh
        return out

    def padding(self, turn: int, batch: int, count: int) -> Tensor:
        """Padding tokens of the `turn`-th kind."""
        if self.vocab is None:
            return self.tokens(batch, count) * (0.0 if turn == 0 else 10.0)
        return torch.full((batch, count), self.pads[turn % len(self.pads)])

    def kinds(self) -> int:
        return 2 if self.vocab is None else len(self.pads)


def plain(tokens: Tensor) -> Stream:
    """Sequences without padding."""
    batch, length = tokens.shape[:2]
    return Stream(tokens, torch.ones(batch, length, dtype=torch.bool), torch.arange(length).expand(batch, length))


def padded(stream: Stream, side: str, pads: Tensor) -> Stream:
    """The same with padding tokens on a side; positions count real tokens."""
    left = side == "left"
    tokens = torch.cat([pads, stream.tokens] if left else [stream.tokens, pads], 1)
    unreal = torch.zeros(pads.shape[:2], dtype=torch.bool)
    real = torch.cat([unreal, stream.real] if left else [stream.real, unreal], 1)
    return Stream(tokens, real, counted(real))


def ragged(lab: Lab, streams: Sequence[Stream], side: str) -> Stream:
    """Sequences of several lengths in a batch, padded on a side to the longest."""
    longest = max(stream.length for stream in streams)
    rows = [
        padded(stream, side, lab.maker.padding(0, 1, longest - stream.length)) if stream.length < longest else stream
        for stream in streams
    ]
    return Stream(*(torch.cat(parts) for parts in zip(*((r.tokens, r.real, r.positions) for r in rows), strict=True)))


def counted(real: Tensor) -> Tensor:
    """Positions as they are counted from a mask: padding on the left stands at 0."""
    return (real.long().cumsum(1) - 1).clamp(min=0)


def hidden(stream: Stream, at: Sequence[int]) -> Stream:
    """The same with some tokens masked out; the others keep their positions."""
    real = stream.real.clone()
    real[:, list(at)] = False
    return replace(stream, real=real)


@dataclass
class Lab:
    """A subject with what it is meant to do."""

    subject: Subject
    intent: Intent
    maker: Maker
    length: int
    layers: list[Layer] = field(default_factory=list)
    rounding: Rounding = field(default_factory=lambda: Rounding(torch.get_default_dtype(), 1, 1))

    @property
    def source_length(self) -> int:
        """Not that of the main stream, nor with padding, so that tensors tell what they are of."""
        return self.length + PADS + 4

    def sequence(self, batch: int = 1, length: int | None = None) -> Stream:
        return plain(self.maker.tokens(batch, length or self.length))

    def call(self, main: Stream | None = None, source: Stream | None = None) -> Call:
        """A call on a new random sequence, or on a given one, and for encoder-decoders on a random source."""
        main = main or self.sequence()
        if self.intent.source is not None and source is None:
            source = self.sequence(main.batch, self.source_length)
        return Call(main, source)

    def depth(self, stream: str) -> int | None:
        known = self.intent.known_depth(stream)
        if known is not None:
            return known
        found = sum(layer.stream == stream for layer in self.layers)
        return found or None

    def reach(self, stream: str, length: int | None = None) -> Bits:
        return self.intent.reach(stream, length or self.length, self.depth(stream))

    def direct(self, stream: str, length: int | None = None) -> Bits:
        """Cells that every layer allows: what is read there must show."""
        length, depth = length or self.length, self.depth(stream)
        cells = [self.intent.cells(stream, i, length, depth) for i in range(len(self.intent.masks(stream, depth)))]
        found: Bits = np.logical_and.reduce(cells)
        return found

    def changes(self, check: str, stream: str = "main", length: int | None = None) -> list[Change]:
        """The changes of a check of the catalogue, where its inputs are changed tokens."""
        length = length or self.length
        return changes(check, self.reach(stream, length), self.direct(stream, length))

    def hides_the_past(self, stream: str = "main") -> bool:
        """Some layer has a window: at some length it hides an earlier token."""
        depth, far = self.depth(stream), 4 * LENGTHS[-1]
        past = np.tri(far, dtype=np.bool_)
        return any((past & ~self.intent.cells(stream, i, far, depth)).any() for i in range(len(self.intent.masks(stream, depth))))

    def ahead(self, stream: str = "main") -> bool:
        """Some output may read a later token."""
        return bool(np.triu(self.reach(stream, 24), 1).any())

    def side(self) -> str | None:
        """The side on which padding is put where one will do: the one that shows most."""
        if self.intent.padding == "none" or not self.subject.arguments.masked:
            return None
        order = ("right", "left") if self.ahead() else ("left", "right")
        return next(side for side in order if self.intent.padding in (side, "both"))

    def sides(self, side: str) -> None:
        """Skips if padding on a side is not meant to be possible."""
        if self.intent.padding not in (side, "both"):
            raise Skip(f"the intent says padding={self.intent.padding!r}")

    def shows(self, stream: str, length: int) -> bool:
        """Whether every layer's mask can be told from causal or full attention at a length."""
        depth = self.depth(stream)
        for i, mask in enumerate(self.intent.masks(stream, depth)):
            mask = mask.at_layer(i)
            cells = self.intent.cells(stream, i, length, depth)
            hides = (mask != causal() and (cells == np.tri(length, dtype=np.bool_)).all()) or (mask != full() and cells.all())
            if hides:
                return False
        return True

    def pick_length(self, longest: int | None) -> None:
        """The shortest length that shows all windows, inside a model's limit."""
        limit = longest - PADS - (PADS + 4 if self.intent.source is not None else 0) if longest else LENGTHS[-1]
        if limit < 8:
            raise Error(f"the model takes at most {longest} positions: the battery needs {PADS + 21} or more")
        for length in LENGTHS:
            self.length = min(length, limit)
            if self.shows("main", self.length) and not (self._bounded() and self.reach("main")[-1, 2]):
                return

    def _bounded(self) -> bool:
        """Every layer has a window, so that some length goes beyond what outputs can reach."""
        depth = self.depth("main")
        far = 4 * LENGTHS[-1]
        return not any(self.intent.cells("main", i, far, depth)[-1, 0] for i in range(len(self.intent.masks("main", depth))))


def stacks(module: nn.Module, call: Call, intent: Intent, run: Callable[[Call], Any]) -> list[Layer]:
    """The layers of each stream that the intent speaks of: where there are several stacks, the one of its number."""
    found: dict[tuple[str, str], list[Layer]] = {}
    for layer in find_layers(module, call, run):
        found.setdefault((layer.stream, layer.name.rpartition(".")[0]), []).append(layer)
    chosen = []
    for stream in ("main", "source") if intent.source is not None else ("main",):
        known = intent.known_depth(stream)
        groups = [layers for (of, _), layers in found.items() if of == stream]
        fitting = [layers for layers in groups if known in (None, len(layers))]
        chosen += sorted(fitting, key=len)[-1] if fitting else []
    return chosen


@contextmanager
def poisoned(module: nn.Module, call: Call, at: dict[str, tuple[int, ...]]) -> Iterator[list[str]]:
    """Makes the keys at some positions so large that only a mask of -1e9 or less hides them. Yields the projections met."""
    met: list[str] = []
    lengths = {stream.length: name for name, stream in call.streams().items() if name in at}

    def enlarge(keys: Tensor, name: str, axis: int = 1) -> Tensor:
        """Scales to a size rather than by a factor, so that keys that pass twice are no larger."""
        if keys.dim() != axis + 2 or keys.shape[axis] not in lengths:
            return keys
        met.append(name)
        where: list[Any] = [slice(None)] * axis + [list(at[lengths[keys.shape[axis]]])]
        keys = keys.clone()
        keys[tuple(where)] *= 1e6 / keys[tuple(where)].abs().max().clamp(min=1e-6)
        return keys

    def projection(name: str) -> Callable[..., Tensor]:
        return lambda _module, _args, out: enlarge(out, name)

    def attention(name: str) -> Callable[..., Any]:
        def enter(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
            if len(args) > 1:
                return (args[0], enlarge(args[1], name), *args[2:]), kwargs
            return args, kwargs | {"key": enlarge(kwargs["key"], name)}

        return enter

    handles = []
    for name, child in module.named_modules():
        if isinstance(child, nn.MultiheadAttention) and child.batch_first:
            handles.append(child.register_forward_pre_hook(attention(name), with_kwargs=True))
        elif name.rpartition(".")[2] in KEYS and not list(child.children()):
            handles.append(child.register_forward_hook(projection(name)))
    try:
        with _Keys(lambda keys: enlarge(keys, "scaled_dot_product_attention", 2)):
            yield met
    finally:
        for handle in handles:
            handle.remove()


class _Keys(TorchFunctionMode):
    """Changes the keys of scaled_dot_product_attention."""

    def __init__(self, change: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.change = change

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is scaled_dot_product_attention:
            if len(args) > 1:
                args = (args[0], self.change(args[1]), *args[2:])
            else:
                kwargs = kwargs | {"key": self.change(kwargs["key"])}
        return func(*args, **kwargs)

"""The inputs of the checks of an audit: tokens, padding and sequence lengths, and the layers of the tested model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from .._noren import Error, causal, full
from .intent import Bits, Intent
from .layers import Layer, find_layers
from .model.subject import Call, Stream, Subject
from .model.wrappers import Functions, Positional
from .rounding import Rounding

KEYS = {"k_proj", "key", "k", "key_proj", "k_lin", "to_k", "wk", "linear_k", "kv_proj", "to_kv"}
"""Usual names of the modules that compute the keys of attention, alone or together with values."""
FUSED = {"query_key", "qkv", "c_attn", "qkv_proj", "query_key_value", "wqkv", "to_qkv", "in_proj", "attn_qkv"}
"""Usual names of the modules that compute keys and queries together."""
LARGE = 1e6
PADS = 9
"""The number of padding tokens that checks add at one end of a sequence."""
LENGTHS = (72, 136, 264)
"""The possible lengths of the test sequence, in ascending order. `Lab.pick_length` takes the shortest length at which the
windows of all layers hide tokens from outputs. A longer sequence crosses more multiples of 64."""
ROWS = 8
"""The number of batch rows of a forward pass in which each batch row tests another token or another length."""
SIGNS = 24
"""The number of batch rows in which the keys of all positions are made large, with other signs in each row."""


class Skip(Exception):
    """Raised by a check that does not apply to the model. The message is the reason."""


class Unclear(Exception):
    """Raised by a check that applies to the model but cannot be run; the message is the reason."""


@dataclass
class Maker:
    """A generator of random tokens and of padding tokens."""

    vocab: Sequence[int] | None
    """The token ids from which random tokens are drawn, without special tokens; None if the model takes vectors of floats as
    tokens."""
    width: int
    pads: tuple[int, ...]
    """The token ids to use as padding. The checks of padding are repeated with each of these ids."""
    rng: np.random.Generator

    def tokens(self, batch: int, length: int) -> Tensor:
        if self.vocab is None:
            return torch.from_numpy(self.rng.standard_normal((batch, length, self.width)))
        return torch.as_tensor(np.asarray(self.vocab)[self.rng.integers(len(self.vocab), size=(batch, length))])

    def changed(self, tokens: Tensor, at: Sequence[int]) -> Tensor:
        """Returns a copy of `tokens` (`[batch, length]`), with a different random token at each of the positions `at` in every
        row."""
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
        """Returns padding tokens `[batch, count]`, all with the id `pads[turn % len(pads)]`. If tokens are vectors of floats,
        `turn` 0 gives zeros and any other `turn` gives random floats.
        """
        if self.vocab is None:
            return self.tokens(batch, count) * (0.0 if turn == 0 else 10.0)
        return torch.full((batch, count), self.pads[turn % len(self.pads)])

    def kinds(self) -> int:
        return 2 if self.vocab is None else len(self.pads)


def plain(tokens: Tensor) -> Stream:
    """Returns a `Stream` (sequences of one batch) with `tokens`, without padding."""
    batch, length = tokens.shape[:2]
    return Stream(tokens, torch.ones(batch, length, dtype=torch.bool), torch.arange(length).expand(batch, length))


def padded(stream: Stream, side: str, pads: Tensor) -> Stream:
    """Returns the sequences of `stream` with the padding tokens `pads` (`[batch, count]`) added on the side `side`: `left` or
    `right`. The positions of the result count only non-padding tokens, from 0."""
    left = side == "left"
    tokens = torch.cat([pads, stream.tokens] if left else [stream.tokens, pads], 1)
    unreal = torch.zeros(pads.shape[:2], dtype=torch.bool)
    real = torch.cat([unreal, stream.real] if left else [stream.real, unreal], 1)
    return Stream(tokens, real, counted(real))


def ragged(lab: Lab, streams: Sequence[Stream], side: str) -> Stream:
    """Joins sequences of several lengths into one batch. Shorter sequences are padded on the side `side` (`left` or `right`) to
    the length of the longest."""
    longest = max(stream.length for stream in streams)
    rows = [
        padded(stream, side, lab.maker.padding(0, 1, longest - stream.length)) if stream.length < longest else stream
        for stream in streams
    ]
    return Stream.joined(rows)


def counted(real: Tensor) -> Tensor:
    """Returns the position of each token: the number of non-padding tokens before it in its row. `real` (`[batch, length]`) is
    false for padding; padding on the left gets position 0."""
    return (real.long().cumsum(1) - 1).clamp(min=0)


def hidden(stream: Stream, at: Sequence[int]) -> Stream:
    """Returns a copy of `stream` whose padding mask hides the tokens at the positions `at`, as if they were padding. All tokens
    keep their positions."""
    real = stream.real.clone()
    real[:, list(at)] = False
    return replace(stream, real=real)


@dataclass
class Lab:
    """A model under test, its intent (the attention that it should compute), and the generator of its inputs."""

    subject: Subject
    intent: Intent
    maker: Maker
    length: int
    layers: list[Layer] = field(default_factory=list)
    rounding: Rounding = field(default_factory=lambda: Rounding(torch.get_default_dtype(), 1, 1))

    @property
    def source_length(self) -> int:
        """The length of the encoder's sequences in a test.

        This length differs from the length of the main sequences, with and without padding. So the length of a tensor shows
        whether the tensor belongs to the encoder.
        """
        return self.length + PADS + 4

    def sequence(self, batch: int = 1, length: int | None = None) -> Stream:
        return plain(self.maker.tokens(batch, length or self.length))

    def call(self, main: Stream | None = None, source: Stream | None = None) -> Call:
        """Returns the inputs of one call of the model: the sequences `main` [default: a new random sequence]. For an
        encoder-decoder, the encoder's sequences are `source` [default: new random ones].
        """
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
        """Returns booleans `[query, key]`: true if every layer allows the query to read the key. Where an entry is true, the
        output of the query must change if the token of the key changes.
        """
        length, depth = length or self.length, self.depth(stream)
        cells = [self.intent.cells(stream, i, length, depth) for i in range(len(self.intent.masks(stream, depth)))]
        found: Bits = np.logical_and.reduce(cells)
        return found

    def hides_the_past(self, stream: str = "main") -> bool:
        """Returns true if at least one layer denies at least one query a key before the query, for example because of a window.
        Sequences up to four times the longest tested length are considered."""
        depth, far = self.depth(stream), 4 * LENGTHS[-1]
        past = np.tri(far, dtype=np.bool_)
        return any((past & ~self.intent.cells(stream, i, far, depth)).any() for i in range(len(self.intent.masks(stream, depth))))

    def ahead(self, stream: str = "main") -> bool:
        """Returns true if at least one output may depend on a later token."""
        return bool(np.triu(self.reach(stream, 24), 1).any())

    def side(self) -> str | None:
        """Returns the side (`left` or `right`) of the padding in checks that pad only one side; None if the intent or the model
        does not allow padding.

        The preferred side is the one where an unmasked padding token changes outputs: the right side if outputs may read later
        tokens, else the left side.
        """
        if self.intent.padding == "none" or not self.subject.arguments.masked:
            return None
        order = ("right", "left") if self.ahead() else ("left", "right")
        return next(side for side in order if self.intent.padding in (side, "both"))

    def sides(self, side: str) -> None:
        """Raises `Skip` (which marks the check as not applicable) if the intent does not allow padding on the side `side`:
        `left` or `right`."""
        if self.intent.padding not in (side, "both"):
            raise Skip(f"the intent excludes padding on this side of a sequence: it has padding={self.intent.padding!r}")

    def shows(self, stream: str, length: int) -> bool:
        """Returns true if `length` tokens are enough to distinguish the mask of every layer from `causal()` and from `full()`.

        A layer whose mask is `causal()` is compared only with `full()`, and a layer whose mask is `full()` only with
        `causal()`.
        """
        depth = self.depth(stream)
        for i, mask in enumerate(self.intent.masks(stream, depth)):
            mask = mask.at_layer(i)
            cells = self.intent.cells(stream, i, length, depth)
            hides = (mask != causal() and (cells == np.tri(length, dtype=np.bool_)).all()) or (mask != full() and cells.all())
            if hides:
                return False
        return True

    def pick_length(self, longest: int | None) -> None:
        """Sets the tested length to the shortest of `LENGTHS` at which every window has an effect. The length is lower if the
        model has at most `longest` positions; None: no maximum.
        """
        limit = longest - PADS - (PADS + 4 if self.intent.source is not None else 0) if longest else LENGTHS[-1]
        if limit < 8:
            raise Error(f"the model takes at most {longest} positions: the audit needs {PADS + 21} positions or more")
        for length in LENGTHS:
            self.length = min(length, limit)
            if self.shows("main", self.length) and not (self._bounded() and self.reach("main")[-1, 2]):
                return

    def _bounded(self) -> bool:
        """Returns true if in every layer a token far after the first one cannot read it, for example because of a window."""
        depth = self.depth("main")
        far = 4 * LENGTHS[-1]
        return not any(self.intent.cells("main", i, far, depth)[-1, 0] for i in range(len(self.intent.masks("main", depth))))


def stacks(module: nn.Module, call: Call, intent: Intent, run: Callable[[Call], Any]) -> list[Layer]:
    """Returns the layers that compute the sequences `main` and, if there is an encoder, `source`.

    A module may have several stacks of layers for one sequence. Then the result has the largest stack; if the intent gives the
    number of layers, only stacks with this number are considered.
    """
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


def signs(rows: int, width: int) -> Tensor:
    """Returns `[rows, width]` signs: a row of 1, a row of -1, and rows of random signs that are the same in every call."""
    found = torch.randint(0, 2, (rows, width), generator=torch.Generator().manual_seed(0)) * 2 - 1
    found[:2] = torch.tensor([[1], [-1]])[:rows]
    return found


@contextmanager
def poisoned(module: nn.Module, call: Call, at: dict[str, tuple[int, ...]]) -> Iterator[list[str]]:
    """Within the `with` block, enlarges the keys at some positions so much that only a mask value of -1e9 or less hides them.
    `at` has these positions for each stream (`main`, `source`).

    Yields a list that receives, while the model runs, the names of the modules and functions whose keys are enlarged.
    """
    met: list[str] = []
    lengths = {stream.length: name for name, stream in call.streams().items() if name in at}
    fused = {name for name, _ in module.named_modules() if name.rpartition(".")[2].lower() in FUSED}

    def enlarge(keys: Tensor, name: str, axis: int) -> Tensor:
        """Returns `keys` with the keys at the positions `at` scaled so that their largest absolute value is `LARGE`. `axis` is the
        index of the axis of positions. Adds `name` to the yielded names.

        If all positions are scaled, the scale is that of the first half, and the signs of the elements differ between batch rows.
        The score of a query and a key is then far below 0 in about half of the rows, also if `keys` contains the queries. The
        absolute values of these are `LARGE` ** 0.5, so that the scores are in the millions.

        A second call with the same keys changes nothing.
        """
        if keys.dim() != axis + 2 or keys.shape[axis] not in lengths:
            return keys
        places = list(at[lengths[keys.shape[axis]]])
        everywhere = len(places) == keys.shape[axis]
        if everywhere and fused.intersection(met):
            return keys
        met.append(name)
        some = places[: len(places) // 2] if everywhere else places
        largest = keys.index_select(axis, torch.tensor(some, device=keys.device)).abs().max().clamp(min=1e-6)
        where: list[Any] = [slice(None)] * axis + [places]
        keys = keys.clone()
        keys[tuple(where)] *= (LARGE**0.5 if everywhere and name in fused else LARGE) / largest
        return keys * signs(len(keys), keys.shape[-1]).to(keys).view(-1, *[1] * axis, keys.shape[-1]) if everywhere else keys

    def projection(name: str) -> Callable[..., Tensor]:
        return lambda _module, _args, out: enlarge(out, name, 1)

    def with_keys(name: str, axis: int, args: Positional, kwargs: dict[str, Any]) -> tuple[Positional, dict[str, Any]]:
        if len(args) > 1:
            return (args[0], enlarge(args[1], name, axis), *args[2:]), kwargs
        return args, kwargs | {"key": enlarge(kwargs["key"], name, axis)}

    def attention(name: str) -> Callable[..., Any]:
        return lambda _module, args, kwargs: with_keys(name, 1, args, kwargs)

    def function(func: Callable[..., Any], args: Positional, kwargs: dict[str, Any]) -> Any:
        if func is scaled_dot_product_attention:
            args, kwargs = with_keys("scaled_dot_product_attention", 2, args, kwargs)
        return func(*args, **kwargs)

    with ExitStack() as hooks:
        for name, child in module.named_modules():
            if isinstance(child, nn.MultiheadAttention) and child.batch_first:
                hooks.enter_context(child.register_forward_pre_hook(attention(name), with_kwargs=True))
            elif name.rpartition(".")[2].lower() in KEYS | FUSED and not list(child.children()):
                hooks.enter_context(child.register_forward_hook(projection(name)))
        hooks.enter_context(Functions(function))
        yield met

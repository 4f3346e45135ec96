"""What a model is meant to let through: a mask for every layer, as noren expressions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from .._noren import Error, Mask, Shape, causal, chunk, full, sliding, window

Sides = Literal["both", "left", "right", "none"]
Bits = NDArray[np.bool_]


@dataclass(frozen=True)
class Intent:
    """What should hold. Make it with `Intent.of("causal")`, or let it be read off a transformers model.

    A mask says which tokens a layer may read; what outputs may depend on follows through all layers. With `heads` above 1 a
    layer may read what any of its heads may: a head that reads what only another head may is not found.
    """

    layers: tuple[Mask, ...]
    """The mask of each layer; a single one is for all, however many there are."""
    source: tuple[Mask, ...] | None = None
    """The masks of the encoder, where there is one; then `layers` are the decoder's."""
    heads: int = 1
    padding: Sides = "both"
    """On which sides padding must make no difference."""
    pooled: Sides = "both"
    """The same of outputs that have one row for a whole sequence; the first token as a summary knows no padding on the left."""
    documents: bool | str = False
    """Sequences are packed into rows; or how that is said: `position_ids`, `position_ids+attention_mask`,
    `position_ids+cache`, `segment_ids`. True stands for each way that the model takes."""
    depth: int | None = None
    """How many layers there are, where a single mask is for all of them and their number is known."""

    @staticmethod
    def of(mask: str | Mask | Sequence[str | Mask] | Intent, layers: int | None = None, **more: Any) -> Intent:
        """An intent of a mask, of one for each layer, or of words: `causal`, `bidirectional`, `encoder-decoder`.

        `layers` is how many layers there are, for windows: what can be reached grows from layer to layer.
        """
        if isinstance(mask, Intent):
            return replace(mask, **more)
        if isinstance(mask, (str, Mask)):
            if mask == "encoder-decoder":
                return Intent((causal(),), source=(full(),), **more)
            one = full() if mask == "bidirectional" else Mask(mask)
            if layers is not None and layers < 1:
                raise Error(f"layers={layers}: give the number of layers, 1 or more")
            return Intent((one,) * (layers or 1), depth=layers, **more)
        if layers is not None and layers != len(mask):
            raise Error(f"the intent lists {len(mask)} masks and says layers={layers}: give one of them")
        if not mask:
            raise Error("the intent lists no mask: give one for each layer, or one for all")
        return Intent(tuple(full() if m == "bidirectional" else Mask(m) for m in mask), depth=len(mask), **more)

    def masks(self, stream: str, depth: int | None = None) -> tuple[Mask, ...]:
        """The masks of a stream, one for each of `depth` layers."""
        masks = self.source if stream == "source" else self.layers
        if masks is None:
            raise Error(f"the intent says nothing of the {stream}: give source=")
        return masks * depth if len(masks) == 1 and depth is not None else masks

    def known_depth(self, stream: str) -> int | None:
        """The number of layers of a stream, where the intent has it."""
        masks = self.masks(stream)
        return len(masks) if len(masks) > 1 else self.depth if stream == "main" else None

    def cells(self, stream: str, layer: int, length: int, depth: int | None = None) -> Bits:
        """`[query, key]` of one layer: true where some head may read."""
        return _cells(self.masks(stream, depth)[layer].at_layer(layer), length, self.heads)

    def reach(self, stream: str, length: int, depth: int | None = None) -> Bits:
        """`[output, input]`: true where the output may depend on the input, through all layers and the residual stream.

        With a single mask and no `depth` the number of layers is not known: then it is what any number can reach.
        """
        depth = self.known_depth(stream) if depth is None else depth
        masks = self.masks(stream, depth)
        reach: Bits = np.eye(length, dtype=np.bool_)
        if len(masks) == 1 and depth is None:
            step = self.cells(stream, 0, length) | reach
            while True:
                further = _product(step, step)
                if (further == step).all():
                    return step
                step = further
        for layer in range(len(masks)):
            reach = reach | _product(self.cells(stream, layer, length, depth), reach)
        return reach

    def __str__(self) -> str:
        decoder = _say(self.layers)
        said = decoder if self.source is None else f"encoder: {_say(self.source)}; decoder: {decoder}, reads the whole encoder"
        return said + (f"; documents by {self.documents}" if isinstance(self.documents, str) else "; documents" * self.documents)


@lru_cache(maxsize=64)
def _cells(mask: Mask, length: int, heads: int) -> Bits:
    found: Bits = mask.bind(Shape.square(length, heads=heads)).dense()[0].any(0)
    return found


def _product(a: Bits, b: Bits) -> Bits:
    found: Bits = (a.astype(np.float32) @ b.astype(np.float32)) > 0
    return found


def _say(masks: tuple[Mask, ...]) -> str:
    kinds = list(dict.fromkeys(str(mask) for mask in masks))
    if len(kinds) == 1:
        return kinds[0] + (f" in {len(masks)} layers" if len(masks) > 1 else "")
    return ", ".join(f"{kind} in layers {[i for i, m in enumerate(masks) if str(m) == kind]}" for kind in kinds)


def from_config(model: Any, documents: bool | str = False) -> Intent:
    """The intent of a transformers model, read off its configuration and its attention modules."""
    config = model.config
    text = config.get_text_config(decoder=True) if hasattr(config, "get_text_config") else config
    if getattr(config, "is_encoder_decoder", False) and hasattr(model, "get_decoder"):
        depth = getattr(config, "decoder_layers", None) or getattr(config, "num_decoder_layers", None) or config.num_hidden_layers
        below = getattr(config, "encoder_layers", None) or getattr(config, "num_layers", None) or depth
        return Intent((causal(),) * int(depth), source=(full(),) * int(below), documents=documents, depth=int(depth))
    reads_ahead = not _is_causal(model)
    layers = tuple(_layer(text, kind, reads_ahead) for kind in _kinds(text))
    return Intent(layers, pooled="right" if reads_ahead else "both", documents=documents, depth=len(layers))


def _is_causal(model: Any) -> bool:
    flags = {bool(m.is_causal) for m in model.modules() if isinstance(getattr(m, "is_causal", None), bool)}
    if getattr(model.config, "is_causal", None) is False or getattr(model.config, "use_bidirectional_attention", None) is True:
        return False
    if len(flags) == 1:
        return flags.pop()
    if model.can_generate() if hasattr(model, "can_generate") else False:
        return True
    raise Error(f"whether {type(model).__name__} is causal cannot be read off it: give intent=\"causal\" or intent=\"bidirectional\"")


def _kinds(config: Any) -> list[str]:
    kinds = getattr(config, "layer_types", None)
    if kinds:
        return list(kinds)
    slides = getattr(config, "sliding_window", None) is not None and getattr(config, "use_sliding_window", True)
    return ["sliding_attention" if slides else "full_attention"] * int(config.num_hidden_layers)


def _layer(config: Any, kind: str, reads_ahead: bool) -> Mask:
    base = full() if reads_ahead else causal()
    match kind:
        case "sliding_attention":
            size = int(config.sliding_window)
            return window(left=size, right=size) if reads_ahead else sliding(size)
        case "chunked_attention":
            return base & chunk(int(config.attention_chunk_size))
        case _:
            return base

"""The intent of a model: the mask that each layer should have, as a noren expression."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from .._noren import Error, Flow, Mask, Shape, causal, chunk, full, sliding, window

Sides = Literal["both", "left", "right", "none"]
Bits = NDArray[np.bool_]


@dataclass(frozen=True)
class Intent:
    """The masks that a model should have. `Intent.of("causal")` makes an intent.

    For a transformers model, `nr.audit` reads the intent from the configuration.

    The mask of a layer defines the tokens that each query of the layer may read. The masks of all layers together define the
    tokens on which an output may depend. In a layer with several heads, the audit allows a token if the mask of at least one
    head allows it. The audit therefore does not find a head that reads a token which only another head may read.
    """

    layers: tuple[Mask, ...]
    """The mask of each layer; a single mask applies to all layers."""
    source: tuple[Mask, ...] | None = None
    """The masks of the encoder's layers; None for a model without an encoder. In a model with an encoder, `layers` are the
    decoder's masks."""
    heads: int = 1
    padding: Sides = "both"
    """The ends of a sequence at which padding may be added without changing the outputs of the other tokens."""
    pooled: Sides = "both"
    """The ends of a sequence at which padding may be added without changing pooled outputs. A pooled output is one vector for a
    whole sequence.

    For a model that uses the first token's output as the pooled output, padding on the left is not possible."""
    documents: bool | str = False
    """False: sequences are not packed. A text names the arguments that define the documents: `position_ids`,
    `position_ids+attention_mask`, `position_ids+cache`, `segment_ids`. True tests all of these that the model accepts."""
    depth: int | None = None
    """The number of layers if a single mask applies to all of them; None if unknown."""

    @staticmethod
    def of(mask: str | Mask | Sequence[str | Mask] | Intent, layers: int | None = None, **more: Any) -> Intent:
        """Returns the intent for a mask of all layers, for a list with one mask for each layer, or for the text `bidirectional`
        or `encoder-decoder`.

        `layers` is the number of layers. For masks with windows, this number is required, because each layer increases the
        number of tokens on which an output can depend.
        """
        if isinstance(mask, Intent):
            return replace(mask, **more)
        if isinstance(mask, (str, Mask)):
            if mask == "encoder-decoder":
                return Intent((causal(),), source=(full(),), **more)
            one = full() if mask == "bidirectional" else Mask(mask)
            if layers is not None and layers < 1:
                raise Error(f"layers={layers} is not a number of layers: give 1 or more")
            return Intent((one,) * (layers or 1), depth=layers, **more)
        if layers is not None and layers != len(mask):
            raise Error(f"{len(mask)} intended masks were given, but layers={layers}: leave out layers=, or give one mask for each layer")
        if not mask:
            raise Error("no intended mask was given: give one mask for each layer, or one mask for all layers")
        return Intent(tuple(full() if m == "bidirectional" else Mask(m) for m in mask), depth=len(mask), **more)

    def masks(self, stream: str, depth: int | None = None) -> tuple[Mask, ...]:
        """Returns the masks of the layers that compute the sequence `stream`, one for each layer. `stream` is `source` for the
        sequence of an encoder, otherwise `main`.

        `depth` is the number of layers. If it is None and one mask applies to all layers, returns a tuple with this mask only.
        """
        masks = self.source if stream == "source" else self.layers
        if masks is None:
            raise Error(f"the intended masks of the {stream} sequence were not given: give source= to Intent")
        return masks * depth if len(masks) == 1 and depth is not None else masks

    def known_depth(self, stream: str) -> int | None:
        """Returns the number of layers that compute the sequence `stream`, which is `main` or `source` (the encoder's); None if
        the intent does not define this number.
        """
        masks = self.masks(stream)
        return len(masks) if len(masks) > 1 else self.depth if stream == "main" else None

    def cells(self, stream: str, layer: int, length: int, depth: int | None = None) -> Bits:
        """Returns booleans `[query, key]` of the layer with index `layer`, from 0: true if the query may read the key in at
        least one head. `stream` is the sequence, `main` or `source` (the encoder's); `depth` is the number of layers.
        """
        return _cells(self.masks(stream, depth)[layer].at_layer(layer), length, self.heads)

    def reach(self, stream: str, length: int, depth: int | None = None) -> Bits:
        """Returns booleans `[output, input]` for `length` tokens: true if the output may depend on the input, over all layers
        and through the residual connections. `stream` is the sequence, `main` or `source` (the encoder's).

        If the number of layers is not known (a single mask and no `depth`), an entry is true if the output may depend on the
        input with some number of layers.
        """
        depth = self.known_depth(stream) if depth is None else depth
        masks = self.masks(stream, depth)
        layers = [mask.at_layer(i) for i, mask in enumerate(masks)]
        if len(masks) == 1 and depth is None:
            layers *= length  # the longest path without a repeated token
        return Flow(layers, Shape.square(length, heads=self.heads)).closure()

    def __str__(self) -> str:
        decoder = _say(self.layers)
        said = decoder if self.source is None else f"encoder: {_say(self.source)}; decoder: {decoder}, and each output reads the whole encoder"
        return said + (f"; documents by {self.documents}" if isinstance(self.documents, str) else "; documents" * self.documents)


@lru_cache(maxsize=64)
def _cells(mask: Mask, length: int, heads: int) -> Bits:
    found: Bits = mask.bind(Shape.square(length, heads=heads)).dense()[0].any(0)
    return found


def _say(masks: tuple[Mask, ...]) -> str:
    kinds = list(dict.fromkeys(str(mask) for mask in masks))
    if len(kinds) == 1:
        return kinds[0] + (f" in {len(masks)} layers" if len(masks) > 1 else "")
    return ", ".join(f"{kind} in layers {[i for i, m in enumerate(masks) if str(m) == kind]}" for kind in kinds)


def from_config(model: Any, documents: bool | str = False) -> Intent:
    """Returns the intent of a transformers model from its configuration and attention modules.

    `documents` has the meaning of `Intent.documents`.
    """
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
    raise Error(f"the model {type(model).__name__} does not show whether the model is causal: give intent=\"causal\" or \"bidirectional\"")


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

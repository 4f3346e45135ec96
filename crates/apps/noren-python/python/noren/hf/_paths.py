"""Finds the parts of a model that exchange information between tokens without attention."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from torch import nn

MIXES = re.compile(r"Mamba|SSM|Recurrent|RgLru|RGLRU|ShortConv|DeltaNet|DeltaAttention|LightningAttention|LinearAttention|Rwkv|RWKV|LSTM|GRU|Fourier|Hyena|H1Mixer")
"""A pattern for the names of transformers' classes that mix information of several tokens without attention."""
CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
OTHER_INPUTS = re.compile(r"vision|image|img|visual|audio|speech", re.IGNORECASE)
"""A pattern for the names of the parts of a model that read images or sounds."""


def other_paths(config: Any, modules: Iterable[tuple[str, nn.Module]]) -> list[str]:
    """Returns the names of the parts of a model that mix information of several tokens without attention."""
    found = []
    for name, module in modules:
        convolution = isinstance(module, CONVOLUTIONS) and any(size > 1 for size in module.kernel_size) and not OTHER_INPUTS.search(name)
        if convolution or isinstance(module, nn.RNNBase) or MIXES.search(type(module).__name__):
            found.append(f"{name} ({type(module).__name__})")
    if getattr(config, "trigram_input", False):
        found.append("its embeddings (trigram_input)")
    return found

"""Models without faults: `nr.audit` and `nr.guard` must find no fault in them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import transformers
from fault_book import FUNCTIONS, GROUPED, SIZES, Batch, Trainer, family, parallel
from planted import declared, make, others
from torch import nn

Made = tuple[Callable[[], Any], dict[str, Any]]
FAMILIES = ("llama", "mistral", "gemma3", "gpt2", "bert", "qwen3")


def _of(kind: str, config: str, **sizes: Any) -> Callable[[], nn.Module]:
    def build() -> nn.Module:
        torch.manual_seed(0)
        t: Any = transformers
        model: nn.Module = getattr(t, kind)(getattr(t, config)(**sizes)).eval()
        return model

    return build


def healthy() -> dict[str, Made]:
    """Returns forty models, each with its arguments of `nr.audit`."""
    found: dict[str, Made] = {}
    for name in ("llama", "mistral", "bert", "t5", "plain", "plain causal", "plain pooled"):
        found[name] = (lambda name=name: make(name)), declared(name)
    found |= {name: ((lambda build=build: _built(build)), {}) for name, build in others().items()}
    found |= {f"{name}, weights of some size": ((lambda name=name: family(name)), {}) for name in FAMILIES}
    for name, wrap in (("forward(**batch)", Batch), ("DataParallel", nn.DataParallel), ("DDP", parallel), ("trainer", Trainer)):
        found[f"mistral in {name}"] = (lambda wrap=wrap: wrap(family("mistral"))), {}
    found["compiled bert in a wrapper"] = (lambda: Batch(torch.compile(family("bert")))), {}  # type: ignore[arg-type]
    found |= {f"{name} in training mode": ((lambda name=name: family(name).train()), {}) for name in ("llama", "gpt2", "bert")}
    found["plain in training mode"] = (lambda: make("plain").train()), declared("plain")
    window = {"sliding_window": 5}
    found["one layer of a window"] = _of("MistralForCausalLM", "MistralConfig", **GROUPED | window | {"num_hidden_layers": 1}), {}
    found["three layers of windows"] = _of("MistralForCausalLM", "MistralConfig", **GROUPED | window | {"num_hidden_layers": 3}), {}
    mixed = {"num_hidden_layers": 4, "sliding_window": 6, "layer_types": ["sliding_attention", "sliding_attention", "full_attention"] * 2}
    mixed["layer_types"] = mixed["layer_types"][:4]
    found["gemma2"] = _of("Gemma2ForCausalLM", "Gemma2Config", **GROUPED | mixed), {}
    found["electra"] = _of("ElectraModel", "ElectraConfig", **SIZES), {}
    for name in ("one window", "two windows", "convolution", "mixer"):
        build = FUNCTIONS[name].make
        found[name] = (lambda build=build: build()), FUNCTIONS[name].arguments(None)
    return found


def _built(build: Callable[[], nn.Module]) -> nn.Module:
    torch.manual_seed(0)
    return build().eval()

"""Tiny models of five families with random weights, and the faults that are planted in them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
import transformers
from noren.battery import Intent
from torch import Tensor, nn

from noren.arguments._caches import given_cache

SIZES: dict[str, Any] = {
    "vocab_size": 99,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 256,
}


class Plain(nn.Module):
    """`nn.TransformerEncoder` between an embedding and a head; `causal` or not, with a mean of all non-padding tokens or not."""

    def __init__(self, causal: bool = False, pooled: bool = False) -> None:
        super().__init__()
        self.causal, self.pooled = causal, pooled
        self.embed, self.place = nn.Embedding(99, 32), nn.Embedding(256, 32)
        layer = nn.TransformerEncoderLayer(32, 4, 48, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        for block in self.encoder.layers:  # they are copies of one layer
            for weight in block.parameters():
                nn.init.normal_(weight, 0.5 * (weight.dim() == 1), 0.2)
        self.normalise: nn.Module = nn.Identity()
        self.head = nn.Linear(32, 7)

    def forward(self, input_ids: Tensor, attention_mask: Tensor, position_ids: Tensor) -> Any:
        real = attention_mask.bool()
        hidden = self.embed(input_ids) + self.place(self.places(position_ids))
        mask = self.mask(input_ids.shape[1], hidden) if self.causal else None
        hidden = self.normalise(self.encoder(hidden, mask=mask, src_key_padding_mask=self.padding(real)))
        return self.head(self.pool(hidden, real) if self.pooled else hidden)

    def places(self, position_ids: Tensor) -> Tensor:
        return position_ids

    def mask(self, length: int, like: Tensor) -> Tensor:
        return torch.ones(length, length, dtype=torch.bool, device=like.device).triu(1)

    def padding(self, real: Tensor) -> Tensor | None:
        return ~real

    def pool(self, hidden: Tensor, real: Tensor) -> Tensor:
        weights = real[..., None].to(hidden)
        return (hidden * weights).sum(1) / weights.sum(1)


class Additive(nn.Module):
    """Two layers of causal attention that add `fill` to the scores of hidden keys."""

    def __init__(self, fill: float) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.fill, self.embed, self.qkv = fill, nn.Embedding(99, 16), nn.Linear(16, 48)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        hidden, length = self.embed(input_ids), input_ids.shape[1]
        keep = attention_mask.bool()[:, None, :] & torch.ones(length, length, dtype=torch.bool).tril()
        bias = torch.zeros(keep.shape).masked_fill(~keep, self.fill).to(hidden)
        for _ in range(2):
            q, k, v = self.qkv(hidden).chunk(3, -1)
            hidden = hidden + (q @ k.transpose(1, 2) + bias).softmax(-1) @ v
        return hidden


class OverTime(nn.Module):
    """Batch normalisation of whole sequences, padding included."""

    def forward(self, hidden: Tensor) -> Tensor:
        return (hidden - hidden.mean((0, 1))) / (hidden.std((0, 1)) + 1e-3)


def others() -> dict[str, Callable[[], nn.Module]]:
    """Returns families with features that the battery must handle: fused projections, learned and counted positions, windows in
    some layers, chunks, experts, sinks, biases, pooling by the padding id."""
    t: Any = transformers
    grouped = SIZES | {"num_key_value_heads": 2, "head_dim": 8}
    decoder = {"vocab_size": 99, "hidden_size": 32, "n_layer": 2, "n_head": 4}
    seq2seq = {f"{side}_{what}": n for side in ("encoder", "decoder") for what, n in (("layers", 2), ("attention_heads", 4), ("ffn_dim", 48))}
    alternating = {"sliding_window": 8, "layer_types": ["sliding_attention", "full_attention"]}
    modern = {"num_hidden_layers": 4, "local_attention": 8, "global_attn_every_n_layers": 3}
    ids = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "cls_token_id": 1, "sep_token_id": 2}
    moe = {"num_local_experts": 2, "num_experts_per_tok": 1, "pad_token_id": 0}
    return {
        "gpt2": lambda: t.GPT2LMHeadModel(t.GPT2Config(**decoder, n_embd=32, n_positions=256, bos_token_id=1, eos_token_id=1)),
        "bloom": lambda: t.BloomForCausalLM(t.BloomConfig(**decoder)),
        "roberta": lambda: t.RobertaModel(t.RobertaConfig(**SIZES)),
        "modernbert": lambda: t.ModernBertModel(t.ModernBertConfig(**SIZES | modern | ids)),
        "gemma3": lambda: t.Gemma3ForCausalLM(t.Gemma3TextConfig(**grouped | alternating)),
        "llama4": lambda: t.Llama4ForCausalLM(
            t.Llama4TextConfig(**grouped, attention_chunk_size=16, num_local_experts=2, intermediate_size_mlp=48)
        ),
        "mixtral": lambda: t.MixtralForCausalLM(t.MixtralConfig(**grouped | moe)),
        "gpt-oss": lambda: t.GptOssForCausalLM(t.GptOssConfig(**grouped | moe, sliding_window=8)),
        "llama classifier": lambda: t.LlamaForSequenceClassification(t.LlamaConfig(**SIZES, pad_token_id=0)),
        "bart": lambda: t.BartForConditionalGeneration(t.BartConfig(vocab_size=99, d_model=32, max_position_embeddings=256, **seq2seq)),
    }


def make(family: str) -> nn.Module:
    """Returns a model without faults."""
    torch.manual_seed(0)
    model: nn.Module
    match family:
        case "llama":
            model = transformers.LlamaForCausalLM(transformers.LlamaConfig(num_key_value_heads=2, **SIZES))
        case "mistral":
            model = transformers.MistralForCausalLM(transformers.MistralConfig(num_key_value_heads=2, sliding_window=8, **SIZES))
        case "bert":
            model = transformers.BertModel(transformers.BertConfig(**SIZES))
        case "t5":
            config = transformers.T5Config(vocab_size=99, d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4)
            model = transformers.T5ForConditionalGeneration(config)
        case "plain":
            model = Plain()
        case "plain causal":
            model = Plain(causal=True)
        case "plain pooled":
            model = Plain(pooled=True)
        case _:
            raise ValueError(family)
    return model.eval()


def declared(family: str) -> dict[str, Any]:
    """Returns the arguments of `nr.audit` that a family needs."""
    if not family.startswith("plain"):
        return {}
    # torch's fast path cannot pad on the left under a causal mask: see test_the_fast_path_of_torch_has_no_empty_rows
    causal = Intent.of("causal", padding="right")
    return {"intent": causal if family == "plain causal" else "bidirectional", "vocab": 99}


def _before(module: nn.Module, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Changes the keyword arguments of all calls of a module."""
    module.register_forward_pre_hook(lambda _, args, kwargs: (args, kwargs | change(kwargs)), with_kwargs=True)


def _late(mask: Tensor, by: int = 1) -> Tensor:
    """Returns the cells whose key is at least `by` positions after the query."""
    return torch.ones(mask.shape[-2:], dtype=torch.bool).triu(mask.shape[-1] - mask.shape[-2] + by)


def _attention(model: Any, layer: int) -> nn.Module:
    return model.model.layers[layer].self_attn  # type: ignore[no-any-return]


def _mask_of(kwargs: dict[str, Any]) -> Tensor:
    """Returns the additive mask among the arguments of a layer, in eager attention."""
    mask: Tensor = kwargs["attention_mask"]
    return mask if mask.dtype != torch.bool else torch.zeros_like(mask, dtype=torch.float32).masked_fill(~mask, -torch.inf)


# --- faults -------------------------------------------------------------------------------------------------------


def causal_broken_in_one_layer(model: nn.Module) -> None:
    _before(_attention(model, 1), lambda k: {"attention_mask": torch.zeros_like(_mask_of(k))})


def one_key_too_many(model: nn.Module) -> None:
    def wider(k: dict[str, Any]) -> dict[str, Any]:
        mask = _mask_of(k).clone()
        return {"attention_mask": mask.masked_fill(_late(mask) & ~_late(mask, 2), 0.0)}

    _before(_attention(model, 0), wider)


def window_lost_in_one_layer(model: nn.Module) -> None:
    def causal(k: dict[str, Any]) -> dict[str, Any]:
        mask = _mask_of(k)
        return {"attention_mask": torch.zeros_like(mask).masked_fill(_late(mask), torch.finfo(mask.dtype).min)}

    _before(_attention(model, 1), causal)


def window_one_key_wider(model: nn.Module) -> None:
    def wider(k: dict[str, Any]) -> dict[str, Any]:
        mask = _mask_of(k)
        open_ = mask == 0
        one_left = torch.zeros_like(open_)
        one_left[..., :-1] = open_[..., 1:]
        return {"attention_mask": torch.where(one_left & ~_late(mask), 0.0, mask)}

    _before(_attention(model, 0), wider)


def one_bad_head(model: nn.Module) -> None:
    def open_head(k: dict[str, Any]) -> dict[str, Any]:
        mask = _mask_of(k).repeat(1, 4, 1, 1)
        mask[:, 2] = 0
        return {"attention_mask": mask}

    _before(_attention(model, 1), open_head)


def ignored_mask(model: nn.Module) -> None:
    _before(model, lambda k: {"attention_mask": None})


def stale_cache_mask(model: nn.Module) -> None:
    _before(model, lambda k: {"attention_mask": None} if given_cache(k) is not None else {})


def positions_restart_in_the_cache(model: nn.Module) -> None:
    _before(model, lambda k: {"position_ids": k["position_ids"] - k["position_ids"].min()} if given_cache(k) is not None else {})


def finite_fill(model: nn.Module) -> None:
    for layer in model.model.layers:  # type: ignore[union-attr,operator]
        _before(layer.self_attn, lambda k: {"attention_mask": _mask_of(k).clamp(min=-1e4)})


def row_0_for_all(model: nn.Module) -> None:
    _before(model, lambda k: {"attention_mask": k["attention_mask"][:1].expand_as(k["attention_mask"])})


def norm_over_time(model: nn.Module) -> None:
    model.model.layers[1].post_attention_layernorm = OverTime()  # type: ignore[union-attr,operator,index]


def packing_lost(model: nn.Module) -> None:
    _before(model.model, lambda k: {"position_ids": torch.arange(k["position_ids"].shape[1])[None]})  # type: ignore[arg-type]


def position_ids_ignored(model: nn.Module) -> None:
    _before(model, lambda k: {"position_ids": None})


def mean_of_padding(model: nn.Module) -> None:
    class Mean(nn.Module):
        def forward(self, hidden: Tensor) -> Tensor:
            return hidden.mean(1)

    model.pooler = Mean()


def implicit_causal(*layers: int) -> Callable[[nn.Module], None]:
    def lower(_: nn.Module, args: tuple[Any, ...], k: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        length = args[0].shape[1]
        return args, k | {"attention_mask": torch.zeros(1, 1, length, length).masked_fill(_late(torch.empty(length, length)), -1e30)}

    def plant(model: nn.Module) -> None:
        for layer in layers:
            attention = model.encoder.layer[layer].attention.self  # type: ignore[union-attr,operator,index]
            attention.register_forward_pre_hook(lower, with_kwargs=True)

    return plant


def polarity_inverted(model: nn.Module) -> None:
    def invert(k: dict[str, Any]) -> dict[str, Any]:
        real = k["attention_mask"].bool()
        return {"attention_mask": torch.where(real.all(1, keepdim=True), real, ~real).long()}

    _before(model, invert)


def cross_attention_padding_ignored(model: nn.Module) -> None:
    for block in model.decoder.block:  # type: ignore[union-attr]
        _before(block.layer[1], lambda k: {"attention_mask": None})


def encoder_mask_ignored(model: nn.Module) -> None:
    _before(model.encoder, lambda k: {"attention_mask": None})  # type: ignore[arg-type]


def plain(**methods: Any) -> Callable[[nn.Module], None]:
    """Replaces methods of `Plain`."""

    def plant(model: nn.Module) -> None:
        for name, method in methods.items():
            setattr(model, name, method)

    return plant


def bias_of_zeros_and_ones(model: nn.Module) -> None:
    model.padding = lambda real: real.to(model.head.weight)  # type: ignore[union-attr]


@dataclass
class Fault:
    """A fault, the model in which it is planted, and the checks that must fail."""

    name: str
    family: str
    plant: Callable[[nn.Module], None]
    found_by: set[str]
    where: str | None = None
    """Text that the name of the faulty module must contain."""
    eager: bool = False
    options: dict[str, Any] = field(default_factory=dict)

    def model(self) -> nn.Module:
        model = make(self.family)
        if self.eager:
            model.set_attn_implementation("eager")  # type: ignore[operator]
        self.plant(model)
        return model


def faults() -> Iterator[Fault]:
    """Yields all faults."""
    llama, mistral, bert, t5 = "llama", "mistral", "bert", "t5"
    yield Fault("causal broken in one layer", llama, causal_broken_in_one_layer, {"prefix", "layers"}, "layers.1.self_attn", True)
    yield Fault("one key too many in one layer", llama, one_key_too_many, {"prefix", "layers"}, "layers.0.self_attn", True)
    yield Fault("one bad head", llama, one_bad_head, {"prefix", "layers"}, "head 2 of 4", True)
    yield Fault("ignored mask", llama, ignored_mask, {"mask_liveness", "redaction"}, "layers.0.self_attn")
    yield Fault("stale cache mask", llama, stale_cache_mask, {"cache", "chunks"})
    yield Fault("positions restart in the cache", llama, positions_restart_in_the_cache, {"cache", "chunks"})
    yield Fault("finite fill", llama, finite_fill, {"weak_fill"}, "self_attn", True)
    yield Fault("batch row 0 for all", llama, row_0_for_all, {"batch"})
    yield Fault("batch-norm over time", llama, norm_over_time, {"prefix", "batch"}, "layers.1.post_attention_layernorm")
    by_position = {"documents": "position_ids"}
    yield Fault("packing lost", llama, packing_lost, {"documents"}, "layers.0.self_attn", options=by_position)
    yield Fault("window lost in one layer", mistral, window_lost_in_one_layer, {"window", "layers"}, "layers.1.self_attn", True)
    yield Fault("window one key wider", mistral, window_one_key_wider, {"layers"}, None, True)
    yield Fault("wrong position ids", bert, position_ids_ignored, {"padding_left"}, "embeddings")
    yield Fault("pooled padding", bert, mean_of_padding, {"padding_right"}, "pooler")
    yield Fault("implicit causality", bert, implicit_causal(0, 1), {"liveness", "layers"}, None, True)
    yield Fault("implicit causality in one layer", bert, implicit_causal(1), {"layers"}, None, True)
    yield Fault("inverted polarity", bert, polarity_inverted, {"padding_right", "padding_left"})
    yield Fault("ignored mask", bert, ignored_mask, {"padding_right", "mask_liveness"}, "layer.0.attention")
    yield Fault("cross-attention padding ignored", t5, cross_attention_padding_ignored, {"padding_right"}, "decoder.block.0")
    yield Fault("encoder mask ignored", t5, encoder_mask_ignored, {"padding_right", "mask_liveness"}, "encoder.block.0")
    none = plain(padding=lambda real: None)
    yield Fault("ignored mask", "plain", none, {"padding_right", "mask_liveness"}, "layers.0")
    yield Fault("inverted polarity", "plain", plain(padding=lambda real: real & ~real.all(1, keepdim=True)), {"padding_right"})
    yield Fault("0 and 1 added", "plain", bias_of_zeros_and_ones, {"padding_right", "redaction"}, "layers.0")
    slots = plain(places=lambda ids: torch.arange(ids.shape[1]).expand_as(ids))
    yield Fault("wrong position ids", "plain", slots, {"padding_left"}, "own forward after the module `embed`")
    yield Fault("batch-norm over time", "plain", plain(normalise=OverTime()), {"padding_right", "batch"}, "normalise")
    yield Fault("pooled padding", "plain pooled", plain(pool=lambda hidden, real: hidden.mean(1)), {"padding_right", "padding_left"})
    none = plain(mask=lambda length, like: None)
    yield Fault("no causal mask", "plain causal", none, {"prefix", "layers"}, "layers.0")
    self_hidden = plain(mask=lambda length, like: torch.ones(length, length, dtype=torch.bool).triu(-3))
    yield Fault("a window nobody declared", "plain causal", self_hidden, {"liveness", "layers"})

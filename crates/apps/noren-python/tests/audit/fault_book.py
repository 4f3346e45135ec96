"""Sixty faults planted in models of six families and in five functions: `nr.audit` and `nr.guard` must find them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import transformers
from torch import Tensor, nn
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, eager_mask
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

SIZES: dict[str, Any] = {
    "vocab_size": 99,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 256,
}
GROUPED: dict[str, Any] = SIZES | {"num_key_value_heads": 2, "head_dim": 8}


@dataclass
class Scene:
    """The attention call that an edit changes."""

    layer: int
    module: nn.Module
    query: Tensor
    queries: Tensor
    """The positions of queries, `[q_len, 1]`."""
    keys: Tensor
    """The positions of keys, `[kv_len]`."""

    @property
    def own(self) -> bool:
        """Whether the pass runs in the model's own dtype, not in float64."""
        return self.query.dtype != torch.float64


Edit = Callable[[Tensor, Scene], Tensor]
"""A function from the allowed cells `[batch, heads, q_len, kv_len]` and the scene to the changed cells."""


def _attention(module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **k: Any) -> Any:
    """Computes attention for transformers, with the cells that the module's edit returns."""
    groups = query.shape[1] // key.shape[1]
    key, value = (x.repeat_interleave(groups, 1) for x in (key, value))
    (batch, heads, q_len, _), kv_len = query.shape, key.shape[2]
    keep = torch.ones(batch, heads, q_len, kv_len, dtype=torch.bool)
    if attention_mask is not None:
        keep = (attention_mask[..., :kv_len] >= -1).expand_as(keep)
    elif getattr(module, "is_causal", False):
        keep = keep.tril(kv_len - q_len)
    queries = torch.arange(kv_len - q_len, kv_len)[:, None]
    scene = Scene(int(getattr(module, "layer_idx", None) or 0), module, query, queries, torch.arange(kv_len))
    edit: Edit = getattr(module, "edit", lambda keep, scene: keep)
    keep = edit(keep.clone(), scene)
    scaling = k.get("scaling")
    out = nn.functional.scaled_dot_product_attention(query, key, value, keep, scale=scaling)
    return out.transpose(1, 2).contiguous(), None


ALL_ATTENTION_FUNCTIONS.register("planted", _attention)
ALL_MASK_ATTENTION_FUNCTIONS.register("planted", eager_mask)


def family(name: str) -> nn.Module:
    """Returns a model without faults, with random weights."""
    torch.manual_seed(0)
    t: Any = transformers
    alternating = {"sliding_window": 8, "layer_types": ["sliding_attention", "full_attention"]}
    match name:
        case "llama":
            model = t.LlamaForCausalLM(t.LlamaConfig(**GROUPED))
        case "mistral":
            model = t.MistralForCausalLM(t.MistralConfig(**GROUPED, sliding_window=8))
        case "gemma3":
            model = t.Gemma3ForCausalLM(t.Gemma3TextConfig(**GROUPED | alternating))
        case "gpt2":
            sizes = {"vocab_size": 99, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 256}
            model = t.GPT2LMHeadModel(t.GPT2Config(**sizes, bos_token_id=1, eos_token_id=1))
        case "bert":
            model = t.BertModel(t.BertConfig(**SIZES))
        case "qwen3":
            model = t.Qwen3ForCausalLM(t.Qwen3Config(**GROUPED))
        case _:
            raise ValueError(name)
    with torch.no_grad():  # with weights of 0.02, attention is almost uniform and leaks are small
        for weight in model.parameters():
            if weight.dim() > 1:
                weight.mul_(3)
    found: nn.Module = model.eval()
    found.set_attn_implementation("planted")  # type: ignore[operator]
    return found


def planted(name: str, edit: Edit) -> nn.Module:
    """Returns a model of a family whose attention modules read the cells that `edit` returns."""
    model = family(name)
    for module in model.modules():
        if type(module).__name__.endswith("Attention") and hasattr(module, "layer_idx"):
            module.edit = edit  # type: ignore[assignment]
    return model


# --- edits --------------------------------------------------------------------------------------------------------


def cells(wrong: Callable[[Scene], Any], opened: bool = True) -> Edit:
    """Returns an edit that allows (or hides) the cells of `wrong`, which are `[q_len, kv_len]` or have more dimensions."""

    def edit(keep: Tensor, scene: Scene) -> Tensor:
        found = torch.as_tensor(wrong(scene)).expand_as(keep)
        return keep | found if opened else keep & ~found

    return edit


def when(condition: Callable[[Scene], bool], edit: Edit) -> Edit:
    return lambda keep, scene: edit(keep, scene) if condition(scene) else keep


def own(edit: Edit) -> Edit:
    return when(lambda s: s.own, edit)


def layer(index: int, edit: Edit) -> Edit:
    return when(lambda s: s.layer == index, edit)


def training(edit: Edit) -> Edit:
    return when(lambda s: s.module.training, edit)


def length(holds: Callable[[int], bool], edit: Edit) -> Edit:
    return when(lambda s: len(s.queries) == len(s.keys) and holds(len(s.keys)), edit)


def head(index: int, edit: Edit) -> Edit:
    def one(keep: Tensor, scene: Scene) -> Tensor:
        out = keep.clone()
        out[:, index] = edit(keep, scene)[:, index]
        return out

    return one


def row(index: int, edit: Edit) -> Edit:
    """Returns an edit that applies to batch row `index` only."""

    def one(keep: Tensor, scene: Scene) -> Tensor:
        out = keep.clone()
        if len(keep) > max(1, index):
            out[index] = edit(keep, scene)[index]
        return out

    return one


everything = cells(lambda s: torch.ones(len(s.queries), len(s.keys), dtype=torch.bool))
successor = cells(lambda s: s.keys == s.queries + 1)
no_window = cells(lambda s: s.keys <= s.queries)
padding_shown: Edit = lambda keep, scene: keep | ((scene.keys <= scene.queries) & (len(keep) > 0))  # noqa: E731
all_keys_shown: Edit = lambda keep, scene: torch.ones_like(keep)  # noqa: E731
row_0_for_all: Edit = lambda keep, scene: keep[:1].expand_as(keep)  # noqa: E731


def wider(by: int = 1, start: int = 0) -> Edit:
    """Returns an edit that widens a window of 8 keys by `by` keys, from query `start` on."""
    return cells(lambda s: (s.queries - s.keys >= 8) & (s.queries - s.keys < 8 + by) & (s.queries >= start))


def narrower(start: int = 0) -> Edit:
    """Returns an edit that hides one key of a window of 8 keys, from query `start` on."""
    return cells(lambda s: (s.queries - s.keys == 7) & (s.queries >= start), opened=False)


def one_query(at: int) -> Edit:
    """Returns an edit with which query `at` reads the next token."""
    return cells(lambda s: (s.queries == at) & (s.keys == at + 1))


def causal(start: int) -> Edit:
    """Returns an edit with which queries from `start` on read later keys."""
    return cells(lambda s: (s.queries >= start) & (s.keys >= 0))


def hides(start: int) -> Edit:
    """Returns an edit with which queries from `start` on do not read key 0."""
    return cells(lambda s: (s.queries >= start) & (s.keys == 0), opened=False)


# --- wrappers -----------------------------------------------------------------------------------------------------


class Batch(nn.Module):
    """A model behind `forward(**batch)`, which may change the batch."""

    def __init__(self, inner: nn.Module, change: Callable[[dict[str, Any]], dict[str, Any]] = lambda batch: {}) -> None:
        super().__init__()
        self.inner, self.change = inner, change

    def forward(self, **batch: Any) -> Any:
        return self.inner(**batch | self.change(batch))


class Trainer(nn.Module):
    """A model beside other parts, behind `forward(*args, weight=None, **kwargs)`."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.metric, self.network = nn.Linear(2, 2), network

    def forward(self, *args: Any, weight: Tensor | None = None, **kwargs: Any) -> Any:
        return self.network(*args, **kwargs)


def parallel(model: nn.Module) -> nn.Module:
    """`DistributedDataParallel` of one process."""
    import torch.distributed as dist

    if not dist.is_initialized():
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)  # type: ignore[attr-defined]
    return nn.parallel.DistributedDataParallel(model)


def ones(batch: dict[str, Any]) -> dict[str, Any]:
    return {"attention_mask": torch.ones_like(batch["attention_mask"])} if batch.get("attention_mask") is not None else {}


# --- functions ----------------------------------------------------------------------------------------------------


class Function:
    """A function or module under test, with its arguments of `nr.audit`."""

    def __init__(self, make: Callable[..., Any], intent: Any, **known: Any) -> None:
        self.make, self.intent, self.known = make, intent, known

    def arguments(self, function: Any) -> dict[str, Any]:
        known = dict(self.known)
        if known.pop("exact", False):
            known["exact"] = function
        return {"intent": self.intent, **known}


def means(fault: Callable[[Tensor, Tensor], Tensor] | None = None) -> Any:
    """Returns a function of floats: the mean of all tokens up to each token, multiplied by a matrix."""
    weight = torch.randn(8, 8, generator=torch.Generator().manual_seed(0))

    def mean_so_far(x: Tensor) -> Tensor:
        out = (x @ weight.to(x)).cumsum(1) / torch.arange(1, x.shape[1] + 1).to(x)[None, :, None]
        return out if fault is None else fault(x, out)

    return mean_so_far


class Windowed(nn.Module):
    """`depth` layers of attention over a window of 4 keys, which are not stored in a list of layers."""

    def __init__(self, depth: int = 1, edit: Edit | None = None) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed = nn.Embedding(99, 16)
        for i in range(depth):
            setattr(self, f"qkv{i}", nn.Linear(16, 48))
        self.depth, self.edit = depth, edit or (lambda keep, scene: keep)

    def forward(self, input_ids: Tensor) -> Tensor:
        hidden, count = self.embed(input_ids), input_ids.shape[1]
        queries, keys = torch.arange(count)[:, None], torch.arange(count)
        for i in range(self.depth):
            q, k, v = getattr(self, f"qkv{i}")(hidden).chunk(3, -1)
            keep = ((keys <= queries) & (queries - keys < 4)).expand(len(q), 1, count, count)
            keep = self.edit(keep.clone(), Scene(i, self, q, queries, keys))[:, 0]
            hidden = hidden + (q @ k.transpose(1, 2)).masked_fill(~keep, -torch.inf).softmax(-1) @ v
        return hidden


class Convolution(nn.Module):
    """A convolution over the last three tokens, of floats."""

    def __init__(self, fault: Callable[[Tensor, Tensor], Tensor] | None = None) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv, self.fault = nn.Conv1d(8, 8, 3), fault

    def forward(self, x: Tensor) -> Tensor:
        out = self.conv(nn.functional.pad(x.transpose(1, 2), (2, 0))).transpose(1, 2)
        return out if self.fault is None else self.fault(x, out)


class Mixer(nn.Module):
    """Every token plus the mean of all non-padding tokens: bidirectional, with a mask."""

    def __init__(self, fault: Callable[[Tensor, Tensor], Tensor] | None = None) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed, self.out, self.fault = nn.Embedding(99, 16), nn.Linear(16, 16), fault

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        hidden = self.embed(input_ids)
        real = attention_mask.to(hidden)[..., None]
        real = real if self.fault is None else self.fault(hidden, real)
        mixed: Tensor = hidden + self.out((hidden * real).sum(1, keepdim=True) / real.sum(1, keepdim=True))
        return mixed


class Standing(nn.Module):
    """A causal mean of non-padding tokens; the faulty model normalises it over the batch. Positions count non-padding tokens."""

    def __init__(self, fault: Callable[[nn.Module, Tensor], Tensor] | None = None) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed, self.norm, self.fault = nn.Embedding(99, 16), nn.BatchNorm1d(16), fault

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        real = attention_mask[..., None].to(self.embed.weight)
        hidden = self.embed(input_ids) * real
        if self.fault is not None:
            hidden = self.fault(self, hidden)
        return hidden.cumsum(1) / real.cumsum(1).clamp(min=1)


FUNCTIONS: dict[str, Function] = {
    "means": Function(means, "causal", width=8, exact=True),
    "one window": Function(lambda edit=None: Windowed(1, edit), "sliding(4)", layers=1, vocab=99),
    "two windows": Function(lambda edit=None: Windowed(2, edit), "sliding(4)", layers=2, vocab=99),
    "convolution": Function(Convolution, "sliding(3)", layers=1, width=8),
    "mixer": Function(Mixer, "bidirectional", vocab=99),
    "standing": Function(Standing, "causal", vocab=99),
}


@dataclass
class Fault:
    """A fault, the model in which it is planted, and the checks that find it."""

    kind: str
    where: str
    name: str
    make: Callable[[], Any]
    dtype: str = "float32"
    options: dict[str, Any] = field(default_factory=dict)
    seen: bool = True
    """True if the fault is visible in a mask, so that `nr.guard` finds it."""
    untested: str | None = None
    """The part that the report must list as not tested, if the audit cannot find the fault."""

    @property
    def id(self) -> str:
        return f"{self.kind}: {self.where}, {self.name}"

    def model(self) -> Any:
        made = self.make()
        return made.to(getattr(torch, self.dtype)) if isinstance(made, nn.Module) else made

    def audited(self) -> tuple[Any, dict[str, Any]]:
        """Returns the model and its arguments of `nr.audit`."""
        model = self.model()
        known = FUNCTIONS[self.where].arguments(model) if self.where in FUNCTIONS else {}
        return model, known | self.options

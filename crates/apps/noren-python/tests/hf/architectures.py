"""Tries every text architecture of transformers with `attn_implementation="noren"`, in a tiny form, against eager attention.

    python architectures.py                    a line for each architecture
    python architectures.py --only llama bert
    python architectures.py --docs             writes the tables of docs/huggingface.md

Each architecture is compared without padding, with padding on the left and on the right, in one training step, and in greedy
generation with a cache.
"""

from __future__ import annotations

import argparse
import copy
import inspect
import os
import re
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

import torch
import transformers
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForMaskedLM, AutoModelForSeq2SeqLM
from transformers.models.auto import modeling_auto

import noren.hf

SIZES: dict[int, tuple[str, ...]] = {
    32: ("hidden_size", "d_model", "n_embd", "dim", "embed_dim", "embedding_size", "encoder_hidden_size", "decoder_hidden_size", "word_embed_proj_dim", "hidden_dim", "width", "d_embed"),
    4: ("num_attention_heads", "n_head", "n_heads", "num_heads", "encoder_attention_heads", "decoder_attention_heads", "attention_heads", "num_experts", "n_routed_experts", "num_local_experts", "moe_num_experts", "mamba_n_heads", "mamba_num_heads", "linear_num_value_heads", "ssm_state_size", "index_n_heads"),
    2: ("num_key_value_heads", "num_kv_heads", "n_kv_heads", "multi_query_group_num", "num_hidden_layers", "n_layer", "n_layers", "num_layers", "encoder_layers", "decoder_layers", "num_decoder_layers", "num_encoder_layers", "num_experts_per_tok", "moe_topk", "moe_k", "linear_num_key_heads", "num_blocks"),
    48: ("intermediate_size", "ffn_dim", "encoder_ffn_dim", "decoder_ffn_dim", "d_ff", "n_inner", "ffn_hidden_size", "moe_intermediate_size", "shared_expert_intermediate_size", "intermediate_size_mlp", "moe_shared_expert_intermediate_size", "expert_ffn_hidden_size"),
    8: ("head_dim", "kv_channels", "d_kv", "v_head_dim", "qk_nope_head_dim", "qk_rope_head_dim", "mamba_d_head", "mamba_head_dim", "linear_key_head_dim", "linear_value_head_dim", "rotary_dim", "index_head_dim", "global_head_dim"),
    64: ("vocab_size", "text_vocab_size", "vocab_size_per_layer_input"),
    16: ("q_lora_rank", "kv_lora_rank", "mamba_d_state", "hidden_size_per_layer_input", "chunk_size"),
    5: ("sliding_window", "attention_window_size"),
    1: ("n_group", "topk_group", "mamba_n_groups", "n_groups", "first_k_dense_replace"),
    128: ("max_position_embeddings", "n_positions", "n_ctx", "max_seq_len", "max_sequence_length", "max_source_positions", "max_target_positions", "index_topk"),
}  # fmt: skip
FLAT = {name: size for size, names in SIZES.items() for name in names}
TOKENS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}
ROLES: dict[str, tuple[Any, Any]] = {
    "decoder": (AutoModelForCausalLM, modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES),
    "encoder-decoder": (AutoModelForSeq2SeqLM, modeling_auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES),
    "encoder": (AutoModelForMaskedLM, modeling_auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES),
}
SPECIAL: dict[str, dict[str, Any]] = {
    "bamba": {"attn_layer_indices": [1], "mamba_expand": 1},
    "deepseek_v2": {"num_experts_per_tok": 2},
    "dots1": {"n_routed_experts": 4, "n_shared_experts": 1, "num_experts_per_tok": 2, "head_dim": 8},
    "esm": {"vocab_size": 64, "pad_token_id": 0, "mask_token_id": 3},
    "glm5_next": {"text_config": {"qk_rope_head_dim": 0}},
    "granitemoehybrid": {"layer_types": ["mamba", "attention"], "mamba_expand": 1},
    "falcon_h1": {"mamba_expand": 1, "mamba_d_ssm": 32},
    "hunyuan_v1_dense": {"head_dim": 8},
    "hunyuan_v1_moe": {"head_dim": 8, "num_experts": 4, "moe_topk": 2},
    "jamba": {"attn_layer_period": 2, "attn_layer_offset": 1, "expert_layer_period": 2, "expert_layer_offset": 1},
    "bailing_hybrid": {"num_experts": 4, "n_group": 1, "num_experts_per_tok": 2},
    "kimi_linear": {"num_experts": 4, "num_experts_per_token": 2},
    "lfm2": {"layer_types": ["conv", "full_attention"]},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"]},
    "ministral": {"head_dim": 8},
    "nemotron": {"num_key_value_heads": 2},
    "nemotron_h_omni": {"vision_config": {"video_temporal_patch_size": 2}},
    "recurrent_gemma": {"block_types": ["recurrent", "attention"]},
    "gpt_oss": {"layer_types": ["sliding_attention", "full_attention"]},
    "qwen4_exp_text": {"num_experts": 4, "indexer_n_heads": 4, "indexer_kv_heads": 1, "indexer_head_dim": 8, "indexer_budget": 8, "indexer_compress_ratio": 4},
    "zamba": {"num_hidden_layers": 4, "layers_block_type": ["linear_attention", "hybrid"] * 2, "attention_head_dim": 16, "attention_hidden_size": 64},
    "zamba2": {"layers_block_type": ["linear_attention", "hybrid"], "attention_head_dim": 16, "mamba_ngroups": 1},
    "zaya": {"num_experts_per_tok": 1},
    "encoder-decoder": {"decoder": {"is_decoder": True, "add_cross_attention": True}},
}
MOST_PARAMETERS = 15_000_000
TOLERANCE = 1e-4
LEFT = torch.tensor([[0] * 3 + [1] * 9, [1] * 12])
RIGHT = torch.tensor([[1] * 7 + [0] * 5, [1] * 12])
IDS = torch.randint(3, 64, (2, 12), generator=torch.Generator().manual_seed(1))


@dataclass(frozen=True)
class Tried:
    """The result of one architecture."""

    kind: str
    role: str
    verdict: str
    """`supported`, `refused`, `not tried` (the tiny model does not run in eager attention), or `WRONG`."""
    reason: str = ""


def architectures() -> list[tuple[str, str]]:
    """Returns (model type, role) of all text architectures, each with its first role."""
    found: dict[str, str] = {}
    for role, (_, names) in ROLES.items():
        for kind in names:
            found.setdefault(kind, role)
    return sorted(found.items())


def tiny(given: Any) -> dict[str, Any]:
    """Returns the arguments of a small configuration, for a configuration with the sizes of its defaults."""
    values: dict[str, Any] = {}
    for name, value in vars(given).items():
        if name in given.sub_configs and value is not None and hasattr(value, "sub_configs"):
            values[name] = tiny(value) | {"model_type": value.model_type}
        elif isinstance(value, bool) or name.startswith("_"):
            continue
        elif isinstance(value, int) and name in FLAT:
            values[name] = FLAT[name]
        elif isinstance(value, float) and ("dropout" in name or name.endswith(("drop", "dropout_prob"))):
            values[name] = 0.0
        elif name in ("layer_types", "mlp_layer_types") and isinstance(value, (list, tuple)):
            values[name] = [value[0], next((kind for kind in value if kind != value[0]), value[0])]
    if "kv_lora_rank" in values:
        values["num_key_value_heads"] = values.get("num_attention_heads", 4)
    values |= {name: token for name, token in TOKENS.items() if hasattr(given, name)}
    return values


def configuration(kind: str) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        sizes = tiny(AutoConfig.for_model(kind))
        for name, value in SPECIAL.get(kind, {}).items():
            sizes[name] = sizes[name] | value if isinstance(value, dict) else value
        return AutoConfig.for_model(kind, **sizes)


def output(model: Any, role: str, keep: Any) -> Any:
    """Returns the logits for all tokens, with positions that count non-padding tokens."""
    more: dict[str, Any] = {}
    parameters = inspect.signature(model.forward).parameters
    if "decoder_input_ids" in parameters:
        more["decoder_input_ids"] = IDS[:, :7]
    elif role == "decoder" and "position_ids" in parameters:
        more["position_ids"] = (keep.cumsum(-1) - 1).clamp(min=0)
    found = model(IDS, attention_mask=keep, **more)
    return found.logits if getattr(found, "logits", None) is not None else found[0]


def off(wanted: Any, got: Any, real: Any) -> float:
    """Returns the largest difference at non-padding tokens, divided by the largest output or 1; infinity for NaN."""
    wanted, got = wanted[real], got[real]
    error = (wanted - got).abs().max().item() / max(1.0, wanted.abs().max().item())
    return error if torch.isfinite(got).all() else float("inf")


def differences(eager: Any, ours: Any, role: str) -> dict[str, float]:
    """Returns the relative differences of outputs and of gradients."""
    found = {}
    for name, keep in (("no padding", torch.ones_like(IDS)), ("padding on the left", LEFT), ("padding on the right", RIGHT)):
        with torch.no_grad():
            wanted, got = output(eager, role, keep), output(ours, role, keep)
        real = keep.bool() if wanted.shape[1] == keep.shape[1] else torch.ones(wanted.shape[:2], dtype=torch.bool)
        found[name] = off(wanted, got, real)
    grads = []
    for model in (eager, ours):
        model.zero_grad()
        output(model, role, RIGHT)[real].float().square().mean().backward()
        grads.append([p.grad for p in model.parameters() if p.grad is not None and p.numel()])
    largest = max([1.0, *(grad.abs().max().item() for grad in grads[0])])
    found["gradients"] = max((a - b).abs().max().item() / largest for a, b in zip(*grads, strict=True))
    return found


def other(auto: Any, config: Any, eager: Any, role: str) -> dict[str, float] | None:
    """Returns the differences of PyTorch's SDPA, which show how exact numbers can be in float32; None if SDPA does not run."""
    try:
        sdpa = auto.from_config(copy.deepcopy(config), attn_implementation="sdpa").float().eval()
        sdpa.load_state_dict(eager.state_dict())
        return differences(eager, sdpa, role)
    except Exception:
        return None


def written(model: Any) -> Any:
    return model.generate(IDS, attention_mask=LEFT, max_new_tokens=6, min_new_tokens=6, do_sample=False)


def model_class(auto: Any, kind: str) -> Any:
    """Returns the class that an automatic class of transformers makes for a model type."""
    found = auto._model_mapping[transformers.CONFIG_MAPPING[kind]]
    return found[0] if isinstance(found, tuple) else found


def random_model(auto: Any, config: Any, attention: str) -> Any:
    """Returns a model with random weights, which are equal for equal configurations."""
    torch.manual_seed(0)
    model = auto.from_config(copy.deepcopy(config), attn_implementation=attention).float().eval()
    numbers = torch.Generator().manual_seed(3)
    for p in model.parameters():
        if p.dim() > 1:
            p.data = torch.randn(p.shape, generator=numbers) * 0.2
    return model


def attempt(kind: str, role: str) -> Tried:
    """Returns the result of one architecture."""
    auto = ROLES[role][0]
    reason = noren.hf.unsupported(model_class(auto, kind))
    if reason is not None:
        return Tried(kind, role, "refused", reason)
    try:
        config = configuration(kind)
        with torch.device("meta"):
            parameters = sum(p.numel() for p in auto.from_config(copy.deepcopy(config), attn_implementation="eager").parameters())
        if parameters > MOST_PARAMETERS:
            return Tried(kind, role, "not tried", f"its smallest form here has {parameters // 1_000_000} million parameters")
        eager = random_model(auto, config, "eager")
        with torch.no_grad():
            output(eager, role, RIGHT)
    except Exception as error:
        return Tried(kind, role, "not tried", f"its tiny form does not run: {type(error).__name__}")
    try:
        ours = auto.from_config(copy.deepcopy(config), attn_implementation="noren").float().eval()
        ours.load_state_dict(eager.state_dict())
        found = differences(eager, ours, role)
    except noren.Error as error:
        reason = re.search(r": (.*)\. Give ", str(error))
        return Tried(kind, role, "refused", reason[1] if reason else str(error))
    except Exception as error:
        return Tried(kind, role, "WRONG", f"{type(error).__name__}: {error}"[:200])
    bad = {name: error for name, error in found.items() if not error <= TOLERANCE}
    if bad and (sdpa := other(auto, config, eager, role)) is not None:
        bad = {name: error for name, error in bad.items() if not error <= 2 * sdpa[name]}
    if bad:
        return Tried(kind, role, "WRONG", f"off by {bad}")
    return Tried(kind, role, *generated(eager, ours, role))


def generated(eager: Any, ours: Any, role: str) -> tuple[str, str]:
    """Returns (verdict, reason) of greedy generation."""
    if role == "encoder":
        return "supported", ""
    try:
        wanted = written(eager)
    except Exception as error:
        return "supported", f"generation fails in eager attention too: {type(error).__name__}"
    try:
        got = written(ours)
    except Exception as error:
        return "WRONG", f"generation: {type(error).__name__}: {error}"[:200]
    return ("supported", "") if torch.equal(wanted, got) else ("WRONG", "other tokens are generated")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=[], help="model types")
    parser.add_argument("--docs", action="store_true", help="write the tables of docs/huggingface.md")
    given = parser.parse_args()
    noren.hf.register()
    torch.set_num_threads(1)
    results = []
    for kind, role in architectures():
        if given.only and kind not in given.only:
            continue
        start = time.perf_counter()
        results.append(attempt(kind, role))
        tried = results[-1]
        print(f"{kind:28} {role:16} {tried.verdict:10} {time.perf_counter() - start:5.1f} s  {tried.reason}", flush=True)
    for verdict in ("supported", "refused", "not tried", "WRONG"):
        print(f"{verdict}: {sum(tried.verdict == verdict for tried in results)}")
    if given.docs:
        write(results)


def write(results: list[Tried]) -> None:
    """Replaces the part of docs/huggingface.md after the line that marks it."""
    path = Path(__file__).resolve().parents[5] / "docs" / "huggingface.md"
    mark = "<!-- written by crates/apps/noren-python/tests/hf/architectures.py --docs -->\n"
    text = path.read_text()
    lines = [f"transformers {transformers.__version__}, PyTorch {torch.__version__.split('+')[0]}.\n"]
    for role in ROLES:
        names = [f"`{t.kind}`" for t in results if t.role == role and t.verdict == "supported"]
        lines += [f"**Supported {role}s ({len(names)}):** {', '.join(names)}.\n"]
    reasons: dict[str, list[str]] = {}
    for tried in results:
        if tried.verdict in ("refused", "not tried"):
            reasons.setdefault(f"{tried.verdict}: {tried.reason}", []).append(f"`{tried.kind}`")
    lines += ["| reason | architectures |\n|---|---|\n" + "".join(f"| {why} | {', '.join(names)} |\n" for why, names in sorted(reasons.items()))]
    path.write_text(text[: text.index(mark) + len(mark)] + "\n" + "\n".join(lines))


if __name__ == "__main__":
    main()

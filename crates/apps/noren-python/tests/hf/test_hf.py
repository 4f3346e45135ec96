"""`noren.hf` against transformers' own eager attention, on tiny models of many kinds."""

from __future__ import annotations

import copy
import warnings
from itertools import product
from typing import Any

import pytest

import noren as nr
from conftest import sampled

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers", minversion="5.0")
from transformers import AutoConfig, AutoModel, AutoModelForCausalLM, AutoModelForSeq2SeqLM, masking_utils  # noqa: E402

import noren.hf as hf  # noqa: E402

hf.register()

SMALL: dict[str, Any] = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8,
    "intermediate_size": 48, "vocab_size": 64, "max_position_embeddings": 128, "pad_token_id": 0, "bos_token_id": 1,
    "eos_token_id": 2, "attention_dropout": 0.0, "initializer_range": 0.3,
}  # fmt: skip
SPECIAL: dict[str, dict[str, Any]] = {
    "llama": {},
    "mistral": {"sliding_window": 5},
    "qwen2": {},
    "qwen3": {},
    "gemma": {},
    "gemma2": {"sliding_window": 5, "attn_logit_softcapping": 5.0},
    "gemma3_text": {"sliding_window": 5, "layer_types": ["sliding_attention", "full_attention"]},
    "phi3": {"sliding_window": 6},
    "olmo2": {},
    "cohere": {},
    "starcoder2": {"sliding_window": 5},
    "granite": {},
    "gpt_oss": {
        "sliding_window": 5, "num_local_experts": 4, "num_experts_per_tok": 2,
        "layer_types": ["sliding_attention", "full_attention"],
    },
    "llama4_text": {
        "attention_chunk_size": 5, "num_local_experts": 2, "intermediate_size_mlp": 48, "moe_layers": [],
        "layer_types": ["chunked_attention", "full_attention"], "no_rope_layers": [1, 0], "for_llm_compressor": False,
    },
    "gpt_neox": {},
    "stablelm": {},
}  # fmt: skip
DRY = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
ENCODERS: dict[str, dict[str, Any]] = {
    "bert": DRY,
    "roberta": DRY,
    "modernbert": {"local_attention": 6, "global_attn_every_n_layers": 2, "attention_bias": False},
    "electra": {"embedding_size": 32, **DRY},
}
LEFT = torch.tensor([[0, 0, 0] + [1] * 9, [1] * 12])
RIGHT = torch.tensor([[1] * 7 + [0] * 5, [1] * 12])


def config(kind: str, special: dict[str, Any]) -> Any:
    return AutoConfig.for_model(kind, **{**SMALL, **special})


def pair(make: Any, cfg: Any) -> tuple[Any, Any]:
    """Returns two copies of a model: one with eager attention, one with noren's."""
    torch.manual_seed(0)
    eager = make.from_config(copy.deepcopy(cfg), attn_implementation="eager").float()
    ours = make.from_config(copy.deepcopy(cfg), attn_implementation="noren").float()
    ours.load_state_dict(eager.state_dict())
    assert (eager.config._attn_implementation, ours.config._attn_implementation) == ("eager", "noren")
    return eager.eval(), ours.eval()


def ids(length: int = 12) -> Any:
    return torch.randint(3, 64, (2, length), generator=torch.Generator().manual_seed(1))


def same_on_real_tokens(a: Any, b: Any, keep: Any) -> None:
    real = keep.bool()
    assert torch.isfinite(b[real]).all()
    assert (a[real] - b[real]).abs().max().item() < 1e-4 * max(1.0, a[real].abs().max().item())


def same_gradients(eager: Any, ours: Any, loss: Any) -> None:
    """Asserts that both models have equal gradients after one training step."""
    grads = []
    for model in (eager, ours):
        model.train()
        model.zero_grad()
        loss(model).backward()
        grads.append({name: p.grad for name, p in model.named_parameters() if p.grad is not None})
        model.eval()
    assert grads[0].keys() == grads[1].keys() and grads[0]
    for name, grad in grads[0].items():
        assert (grad - grads[1][name]).abs().max().item() < 1e-4 * max(1.0, grad.abs().max().item()), name


@pytest.mark.parametrize("kind", SPECIAL)
def test_decoders(kind: str) -> None:
    eager, ours = pair(AutoModelForCausalLM, config(kind, SPECIAL[kind]))
    tokens = ids()
    for keep in (torch.ones_like(tokens), LEFT, RIGHT):
        positions = (keep.cumsum(-1) - 1).clamp(min=0)
        with torch.no_grad():
            a, b = (m(tokens, attention_mask=keep, position_ids=positions).logits for m in (eager, ours))
        same_on_real_tokens(a, b, keep)
    labels = torch.where(RIGHT.bool(), tokens, -100)
    same_gradients(eager, ours, lambda model: model(tokens, attention_mask=RIGHT, labels=labels).loss)
    written = [m.generate(tokens, attention_mask=LEFT, max_new_tokens=8, do_sample=False) for m in (eager, ours)]
    assert torch.equal(*written)


@pytest.mark.parametrize("kind", ENCODERS)
def test_encoders(kind: str) -> None:
    eager, ours = pair(AutoModel, config(kind, ENCODERS[kind]))
    for keep in (torch.ones(2, 12, dtype=torch.long), LEFT, RIGHT):
        with torch.no_grad():
            a, b = (m(ids(), attention_mask=keep).last_hidden_state for m in (eager, ours))
        same_on_real_tokens(a, b, keep)
    real = RIGHT.bool()
    same_gradients(eager, ours, lambda model: model(ids(), attention_mask=RIGHT).last_hidden_state[real].square().sum().sqrt())


def test_t5() -> None:
    special = {"d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4, "dropout_rate": 0.0, "decoder_start_token_id": 0}
    eager, ours = pair(AutoModelForSeq2SeqLM, AutoConfig.for_model("t5", **{**SMALL, **special}))
    with torch.no_grad():
        a, b = (m(ids(), attention_mask=RIGHT, decoder_input_ids=ids(7)).logits for m in (eager, ours))
    same_on_real_tokens(a, b, torch.ones(2, 7))
    same_gradients(eager, ours, lambda model: model(ids(), attention_mask=RIGHT, labels=ids(7)).loss)
    written = [m.generate(ids(), attention_mask=RIGHT, max_new_tokens=8, do_sample=False) for m in (eager, ours)]
    assert torch.equal(*written)


def test_paligemma() -> None:
    """Tests an image and a prompt that all tokens read, and a causal answer."""
    from transformers import PaliGemmaForConditionalGeneration as PaliGemma

    text = {"model_type": "gemma", "vocab_size": 64, "head_dim": 8, **{k: v for k, v in SMALL.items() if k != "vocab_size"}}
    vision = {
        "model_type": "siglip_vision_model", "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
        "num_attention_heads": 4, "image_size": 28, "patch_size": 14, "projection_dim": 32,
    }  # fmt: skip
    cfg = AutoConfig.for_model("paligemma", text_config=text, vision_config=vision, projection_dim=32, image_token_id=63, pad_token_id=0)
    torch.manual_seed(0)
    eager, ours = (PaliGemma._from_config(copy.deepcopy(cfg), attn_implementation=name).float().eval() for name in ("eager", "noren"))
    ours.load_state_dict(eager.state_dict())
    assert eager.model.language_model.config._attn_implementation == "eager"
    tokens = torch.cat([torch.full((2, 4), 63), ids(8).clamp(max=62)], 1)
    kinds = torch.tensor([[0] * 7 + [1] * 5] * 2)
    pixels = torch.randn(2, 3, 28, 28, generator=torch.Generator().manual_seed(0))
    for keep in (torch.ones_like(tokens), RIGHT):
        labels = torch.where((kinds == 1) & keep.bool(), tokens, -100)
        given = {"input_ids": tokens, "pixel_values": pixels, "attention_mask": keep, "token_type_ids": kinds, "labels": labels}
        eager.train(), ours.train()  # PaliGemma reads token_type_ids in training mode only
        with torch.no_grad():
            a, b = (model(**given).logits for model in (eager, ours))
        same_on_real_tokens(a, b, keep)
        same_gradients(eager, ours, lambda model: model(**given).loss)
    prompt = {"input_ids": tokens, "pixel_values": pixels, "attention_mask": torch.ones_like(tokens), "token_type_ids": kinds * 0}
    written = [model.generate(**prompt, max_new_tokens=8, do_sample=False) for model in (eager, ours)]
    assert torch.equal(*written)


def cells(function: Any, batch: int, q_len: int, kv_len: int, q_offset: int = 0, kv_offset: int = 0, padding: Any = None) -> Any:
    """Returns the cells that transformers itself computes from a mask function."""
    return masking_utils.sdpa_mask(
        batch, q_len, kv_len, q_offset, kv_offset, function, padding, allow_is_causal_skip=False, use_vmap=False
    )


def patterns() -> Any:
    m = masking_utils
    ids = torch.tensor([[-1, -1, 0, 0, 0, -1, 1, 1, -1, -1, -1, -1], [0, 0, -1, -1, 2, 2, 2, 0, -1, -1, 3, 3]])
    left = torch.tensor([3, 0])
    packed = torch.tensor([[0, 0, 0, 1, 1, 1, 1, 1, 2, 2, 2, 2], [0] * 12])
    positions = torch.tensor([[0, 1, 2, 0, 1, 2, 3, 4, 0, 1, 2, 3], list(range(12))])
    yield m.causal_mask_function
    yield m.bidirectional_mask_function
    yield m.sliding_window_causal_mask_function(3)
    yield m.sliding_window_bidirectional_mask_function(3)
    yield m.chunked_causal_mask_function(4, left)
    yield m.or_masks(m.causal_mask_function, m.blockwise_overlay(ids))
    yield m.and_masks(m.blockwise_overlay(ids), m.or_masks(m.causal_mask_function, m.sliding_window_overlay(2)))
    for inner in (m.causal_mask_function, m.sliding_window_causal_mask_function(2), m.chunked_causal_mask_function(2, left * 0)):
        separate, remapped = m.packed_sequence_mask_function(packed), m.remap_positions_for_packed_sequence(inner, positions)
        yield m.and_masks(separate, remapped)  # transformers before 5.24
        yield m.and_masks(remapped, separate)
        yield m.or_masks(m.and_masks(separate, remapped), m.blockwise_overlay(ids))
        yield m.and_masks(m.or_masks(remapped, m.blockwise_overlay(ids)), separate)
    yield lambda b, h, q, k: (k <= q) & ((q + k + b) % 3 != 0)


@pytest.mark.parametrize("number", range(20))
def test_every_pattern_is_read_as_transformers_means_it(number: int) -> None:
    function = list(patterns())[number]
    for padding in (None, LEFT.bool(), RIGHT.bool()):
        made = hf.make_mask(2, 12, 12, mask_function=function, attention_mask=padding)
        assert (torch.from_numpy(made.plan(1, 1).bound.dense()) == cells(function, 2, 12, 12, padding=padding)).all(), repr(made.mask)
    if 7 <= number <= 18:
        return  # packed sequences have no cache
    for q_len, kv_len, q_offset, kv_offset in ((4, 12, 8, 0), (1, 5, 11, 7), (3, 7, 9, 5)):
        made = hf.make_mask(2, q_len, kv_len, q_offset, kv_offset, function, LEFT.bool())
        expected = cells(function, 2, q_len, kv_len, q_offset, kv_offset, LEFT.bool())
        assert (torch.from_numpy(made.plan(1, 1).bound.dense()) == expected).all(), repr(made.mask)


def test_known_patterns_make_no_array() -> None:
    for function in list(patterns())[:19]:
        assert "dense" not in repr(hf.make_mask(2, 12, 12, mask_function=function).mask)
    made = hf.make_mask(1, 1 << 17, 1 << 17, mask_function=masking_utils.sliding_window_causal_mask_function(512))
    assert made.plan(1, 1).bytes < 1 << 20


def test_functions_that_are_not_of_indices_are_refused() -> None:
    with pytest.raises(nr.Error, match="depends on the head"):
        hf.make_mask(1, 8, 8, mask_function=lambda b, h, q, k: (k <= q) & (h == 0))
    with pytest.raises(nr.Error, match="gives different results for head"):
        hf.make_mask(1, 8, 8, mask_function=lambda b, h, q, k: (k <= q) & (q.numel() > 1))


def test_functions_of_the_head() -> None:
    """Tests that all heads of the configuration are evaluated, and that equal cells in all heads give a single array."""
    cfg = AutoConfig.for_model("llama", **SMALL)
    made = hf.make_mask(1, 8, 8, mask_function=lambda b, h, q, k: (k <= q) | (h >= 2), config=cfg)
    cells = made.plan(4, 2).bound.dense()[0]
    tri = torch.ones(8, 8, dtype=torch.bool).tril().numpy()
    assert (cells[:2] == tri).all() and cells[2:].all()
    made = hf.make_mask(1, 8, 8, mask_function=lambda b, h, q, k: (k <= q) & (h >= 0), config=cfg)
    assert (made.plan(4, 2).bound.dense() == tri).all() and (made.plan(6, 6).bound.dense() == tri).all()


def test_packed_rows() -> None:
    eager, ours = pair(AutoModelForCausalLM, config("llama", {}))
    positions = torch.tensor([[0, 1, 2, 3, 4, 0, 1, 2, 3, 0, 1, 2]] * 2)
    with torch.no_grad():
        a, b = (m(ids(), position_ids=positions, use_cache=False).logits for m in (eager, ours))
        same_on_real_tokens(a, b, torch.ones(2, 12))
        with pytest.warns(UserWarning, match="the sequences read each other"):
            ours(ids(), position_ids=positions, attention_mask=torch.ones(2, 12))
        with pytest.warns(UserWarning, match="the sequences read each other"):
            ours(ids(), position_ids=positions)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            ours(ids(), attention_mask=LEFT, position_ids=(LEFT.cumsum(-1) - 1).clamp(min=0))


CACHED: dict[str, dict[str, Any]] = {
    **{kind: SPECIAL[kind] for kind in ("llama", "mistral", "gemma2", "gemma3_text", "qwen2")},
    "gpt2": {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 128, "attn_pdrop": 0.0, "resid_pdrop": 0.0, "embd_pdrop": 0.0},
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("kind", "cache"), sampled(product(CACHED, ["static", "sliding_window"]), 5))
def test_static_caches_generate_as_eager_does(kind: str, cache: str) -> None:
    """Tests caches of a fixed size: some slots have no token yet, and in layers with a window old tokens are overwritten."""
    cfg = config(kind, CACHED[kind])
    eager, ours = pair(AutoModelForCausalLM, cfg)
    for tokens, keep in ((ids(), LEFT), (ids(3), torch.ones(2, 3, dtype=torch.long))):
        for options in ({"do_sample": False}, {"do_sample": False, "num_beams": 2}):
            given = {"attention_mask": keep, "max_new_tokens": 12, "cache_implementation": cache, **options}
            written = [m.generate(tokens, **given) for m in (eager, ours)]
            assert torch.equal(*written)
            assert torch.equal(written[1], ours.generate(tokens, **{**given, "cache_implementation": None}))


@pytest.mark.parametrize("mask", [nr.parse("causal"), nr.parse("causal + alibi"), nr.causal().bind(12), nr.causal().plan(12)], ids=repr)
def test_masks_in_the_place_of_tensors_are_refused_with_advice(mask: Any) -> None:
    for kind, make in (("llama", AutoModelForCausalLM), ("bert", AutoModel)):
        model = make.from_config(config(kind, SPECIAL.get(kind, DRY)), attn_implementation="noren")
        with pytest.raises(TypeError, match="give the mask as noren_mask="):
            model(ids(), attention_mask=mask)
        with pytest.raises(TypeError, match="give the mask as noren_mask="):
            model(ids(), mask)
    model(ids(), attention_mask=torch.from_numpy(nr.to_keep("causal", 12)))


def test_prepared_masks() -> None:
    eager, ours = pair(AutoModelForCausalLM, config("llama", {}))
    keep = torch.rand(2, 1, 12, 12, generator=torch.Generator().manual_seed(0)) > 0.5
    keep = keep.tril() | torch.eye(12, dtype=torch.bool)
    added = torch.where(keep, 0.0, torch.finfo(torch.float32).min)
    with torch.no_grad():
        a = eager(ids(), attention_mask=added).logits
        for mask in (keep, added, torch.where(keep, 0.0, -torch.inf)):
            same_on_real_tokens(a, ours(ids(), attention_mask=mask).logits, torch.ones(2, 12))
        with pytest.raises(nr.Error, match="holds the floats 0 and 1"):
            ours(ids(), attention_mask=keep.float())
        with pytest.raises(nr.Error, match="int64"):
            ours(ids(), attention_mask=keep.long())


def test_gradient_checkpointing_and_weights() -> None:
    _, ours = pair(AutoModelForCausalLM, config("llama", {}))
    ours.train()
    ours(ids(), labels=ids()).loss.backward()
    grads = [p.grad.clone() for p in ours.parameters()]
    ours.zero_grad()
    ours.gradient_checkpointing_enable()
    ours(ids(), labels=ids(), use_cache=False).loss.backward()
    for a, p in zip(grads, ours.parameters(), strict=True):
        assert torch.allclose(a, p.grad, atol=1e-6)

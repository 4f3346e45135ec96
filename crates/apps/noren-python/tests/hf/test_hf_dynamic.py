"""Masks given for a forward pass of transformers, against eager attention with the same cells as a prepared mask."""

from __future__ import annotations

import copy
import inspect
import random
from typing import Any

import pytest

import noren as nr
from conftest import runs

torch = pytest.importorskip("torch")
pytest.importorskip("transformers", minversion="5.0")
from transformers import AutoConfig, AutoModel, AutoModelForCausalLM, AutoModelForSeq2SeqLM, DynamicCache  # noqa: E402

import noren.hf as hf  # noqa: E402
import noren.torch as nt  # noqa: E402
from noren.hf import _calls  # noqa: E402
from noren.arguments._caches import NAMES, cache_parameter, returned_cache  # noqa: E402
from noren.torch import _dynamic  # noqa: E402

hf.register()
hf.register("noren_window", mask="window(left=2)")

SMALL: dict[str, Any] = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 48, "vocab_size": 64,
    "max_position_embeddings": 128, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "initializer_range": 0.3, "attention_dropout": 0.0,
}  # fmt: skip
BART: dict[str, Any] = {
    "d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": 32,
    "decoder_ffn_dim": 32, "decoder_start_token_id": 2, "init_std": 0.3, "dropout": 0.0,
}  # fmt: skip
VIT: dict[str, Any] = {"image_size": 12, "patch_size": 3, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
IDS = torch.randint(3, 64, (2, 12), generator=torch.Generator().manual_seed(1))
LEFT = torch.tensor([[0] * 4 + [1] * 8, [1] * 12])
RIGHT = torch.tensor([[1] * 7 + [0] * 5, [1] * 12])
TRIL = torch.ones(12, 12).tril().bool()
EYE = torch.eye(12, dtype=torch.bool)


def make(kind: str, auto: Any = AutoModelForCausalLM, attention: str = "noren", **more: Any) -> Any:
    torch.manual_seed(0)
    config = AutoConfig.for_model(kind, **{**SMALL, **more})
    return auto.from_config(config, attn_implementation=attention).float().eval()


def pair(kind: str, auto: Any = AutoModelForCausalLM, **more: Any) -> tuple[Any, Any]:
    return make(kind, auto, "eager", **more), make(kind, auto, **more)


def near(a: Any, b: Any, keep: Any = None) -> None:
    gap = (a - b).abs()
    assert float((gap if keep is None else gap[keep.bool()]).max()) < 1e-4


def added(cells: Any, keep: Any) -> Any:
    """The prepared mask of cells and padding."""
    return torch.where((cells & keep.bool()[:, None, None, :]).expand(-1, -1, 12, -1), 0.0, -1e30)


@pytest.mark.parametrize("keep", [LEFT, RIGHT, torch.ones_like(LEFT)], ids=["left", "right", "none"])
@pytest.mark.parametrize("kind", ["llama", "gpt2", "qwen3", "mistral", "gemma"])
def test_causal_models(kind: str, keep: Any) -> None:
    more = {"n_embd": 32, "n_head": 4, "n_layer": 2} if kind == "gpt2" else {"head_dim": 8}
    eager, ours = pair(kind, **more)
    positions = None if kind == "gpt2" else (keep.cumsum(1) - 1).clamp(0)
    vocabulary = torch.rand(64, generator=torch.Generator().manual_seed(0)) < 0.6
    chosen = (torch.rand(2, 4, 12, 12, generator=torch.Generator().manual_seed(2)) < 0.7) | EYE

    def by_word(call: Any) -> Any:
        assert torch.equal(call.tokens, IDS) and torch.equal(call.key_tokens, IDS)
        return call.keys(vocabulary[call.key_tokens]) | nr.window(left=0, right=0)

    bound = nr.dense("m").bind(nr.Shape(12, 12, batch=2, heads=4), {"arrays": {"m": nr.Array.keep(chosen.numpy())}})
    cases: list[tuple[Any, Any, Any]] = [
        ("window(left=3)", torch.ones(12, 12).triu(-3).bool(), None),
        (nr.chunk(4) | nr.keys(range(2)), (torch.arange(12)[:, None] // 4 == torch.arange(12) // 4) | (torch.arange(12) < 2), None),
        ("full - keys(label=secret) | window(left=0)", (torch.arange(12) != 5) | EYE, {"labels": {"secret": [5]}}),
        (by_word, vocabulary[IDS][:, None, None, :] | EYE, None),
        (lambda call: call.keep(chosen), chosen, None),
        (bound, chosen, None),
        ("padding", torch.ones(1).bool(), None),
        (None, torch.ones(1).bool(), None),
    ]
    for mask, cells, facts in cases:
        cells = cells if cells.dim() == 4 else cells.expand(1, 1, 12, 12)
        with torch.no_grad():
            wanted = eager(IDS, attention_mask=added(cells & TRIL, keep), position_ids=positions).logits
            out = ours(IDS, attention_mask=keep, position_ids=positions, noren_mask=mask, **({} if facts is None else {"noren_facts": facts})).logits
        near(out, wanted, keep)


def test_replacing_the_own_mask_keeps_padding() -> None:
    eager, ours = pair("llama")
    for keep in (LEFT, RIGHT):
        with torch.no_grad():
            wanted = eager(IDS, attention_mask=added(torch.ones(1, 1, 12, 12).bool(), keep)).logits
            near(ours(IDS, attention_mask=keep, noren_mask=nt.Replace("full")).logits, wanted, keep)
            near(ours(IDS, attention_mask=keep, noren_mask=lambda call: nt.Replace("full")).logits, wanted, keep)


def test_encoders_and_layers() -> None:
    eager, ours = pair("bert", AutoModel, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    layers = []
    near(ours(IDS, attention_mask=RIGHT, noren_mask=lambda call: layers.append(call.layer)).last_hidden_state, eager(IDS, attention_mask=RIGHT).last_hidden_state, RIGHT)
    assert layers == [0, 1]
    for model, attention in ((eager, "eager"), (ours, "noren")):
        assert model.config._attn_implementation == attention
    mixed = ours(IDS, noren_mask=nr.layers({0: "window(left=1, right=1)", "else": "full"})).last_hidden_state
    again = ours(IDS, noren_mask=lambda call: "window(left=1, right=1)" if call.layer == 0 else None).last_hidden_state
    assert torch.equal(mixed, again) and not torch.equal(mixed, ours(IDS).last_hidden_state)


def test_an_image_with_valid_regions() -> None:
    eager, ours = pair("vit", AutoModel, **VIT)
    image = torch.randn(2, 3, 12, 12)
    valid = torch.ones(2, 17, dtype=torch.bool)
    valid[0, 9:] = False  # only the upper half of the first image

    def regions(call: Any) -> Any:
        return call.keys(call.inputs["valid"])

    with torch.no_grad():
        out = ours(image, noren_mask=regions, noren_inputs={"valid": valid}).last_hidden_state
        changed = image.clone()
        changed[0, :, 6:] = 99.0
        again = ours(changed, noren_mask=regions, noren_inputs={"valid": valid}).last_hidden_state
        assert torch.equal(out[valid], again[valid])
        near(ours(image, noren_mask=lambda call: None).last_hidden_state, eager(image).last_hidden_state)
    with pytest.raises(nr.Error, match="tokens is unknown"):
        ours(image, noren_mask=lambda call: call.keys(call.tokens > 0))


def reads(call: Any) -> Any:
    """Keys with an even token, and the query's own key."""
    return call.keys(call.key_tokens % 2 == 0) | nr.window(left=0, right=0)


@pytest.mark.parametrize("cache", [None, "static"])
@pytest.mark.parametrize("more", [{}, {"sliding_window": 5}], ids=["full", "sliding"])
def test_generation_with_caches(more: dict[str, Any], cache: str | None) -> None:
    model = make("mistral" if more else "llama", **more)
    for keep in (LEFT, torch.ones_like(LEFT)):
        for options in ({}, {"num_beams": 3}, {"num_beams": 2, "num_return_sequences": 2}):
            given = {"attention_mask": keep, "max_new_tokens": 14, "do_sample": False, "eos_token_id": None, **options}
            for mask in (reads, "window(left=3) - keys(0..2) | window(left=0)"):
                with hf.set_mask(model, mask):
                    out = model.generate(IDS, cache_implementation=cache, **given)
                    assert torch.equal(out, model.generate(IDS, use_cache=False, **given))
                assert not torch.equal(out, model.generate(IDS, use_cache=False, **given))


def test_steps_with_a_cache_equal_one_pass() -> None:
    for kind, more in (("llama", {}), ("mistral", {"sliding_window": 4})):
        model = make(kind, **more)
        with torch.no_grad(), hf.set_mask(model, reads):
            whole = model(IDS, attention_mask=LEFT).logits
            past, parts = None, []
            for start, stop in ((0, 5), (5, 6), (6, 9), (9, 12)):
                out = model(IDS[:, start:stop], attention_mask=LEFT[:, :stop], past_key_values=past, use_cache=True)
                past = out.past_key_values
                parts.append(out.logits)
            near(torch.cat(parts, 1), whole, LEFT)
        with torch.no_grad():
            past = model(IDS[:, :5], use_cache=True).past_key_values
            with pytest.raises(nr.Error, match="token ids of the cached keys are unknown"):
                model(IDS[:, 5:], past_key_values=past, noren_mask=reads)


@pytest.mark.parametrize("name", NAMES)
def test_names_of_the_cache(name: str) -> None:
    """Tests that the tokens of a cache are recorded under each name that this version of transformers knows."""
    model = make("llama")
    if name not in (known := inspect.signature(type(model).forward).parameters) and "cache" not in known:
        pytest.skip("transformers before 5.24")
    with torch.no_grad():
        whole, cache, parts = model(IDS, noren_mask=reads).logits, DynamicCache(config=model.config), []
        for start, stop in ((0, 3), (3, 8), (8, 12)):
            out = model(IDS[:, start:stop], noren_mask=reads, **{name: cache})
            parts.append(out.logits)
            assert returned_cache(out) is cache
        near(torch.cat(parts, 1), whole)


def test_removed_tokens_of_a_cache() -> None:
    """Tests that the tokens after a removal that were appended without a mask are not those that were removed."""
    model = make("llama")
    with torch.no_grad():
        cache = DynamicCache(config=model.config)
        name = cache_parameter(inspect.signature(type(model).forward).parameters) or ""
        model(IDS[:, :7], noren_mask=reads, **{name: cache})
        cache.crop(-5)
        assert cache.get_seq_length() == 2
        again = copy.deepcopy(cache)
        near(model(IDS[:, 2:], noren_mask=reads, **{name: again}).logits, model(IDS, noren_mask=reads).logits[:, 2:])
        model(IDS[:, 7:], **{name: cache})
        with pytest.raises(nr.Error, match="token ids of the cached keys are unknown"):
            model(IDS[:, :3], noren_mask=reads, **{name: cache})


def test_encoder_and_decoder() -> None:
    eager, ours = pair("bart", AutoModelForSeq2SeqLM, **BART)
    target = IDS[:, :7]
    with torch.no_grad():
        plain = ours(IDS, attention_mask=RIGHT, decoder_input_ids=target).logits
        near(plain, eager(IDS, attention_mask=RIGHT, decoder_input_ids=target).logits)
        cross = ours(IDS, decoder_input_ids=target, noren_mask={"encoder": "keys(0..7)", "cross": "keys(0..7)"}).logits
        cut = eager(IDS[:, :7], decoder_input_ids=target).logits
        near(cross, cut)
        by_token = ours(IDS, decoder_input_ids=target, noren_mask=lambda call: call.keys(torch.arange(call.kv_len) < 7) if call.part != "decoder" else None).logits
        assert torch.equal(by_token, cross)
        shapes = []
        ours(IDS, decoder_input_ids=target, noren_mask=lambda call: shapes.append((call.part, call.layer, tuple(call.tokens.shape), tuple(call.key_tokens.shape))))
        assert shapes == [("encoder", n, (2, 12), (2, 12)) for n in (0, 1)] + [
            place for n in (0, 1) for place in (("decoder", n, (2, 7), (2, 7)), ("cross", n, (2, 7), (2, 12)))
        ]
        with hf.set_mask(ours, {"encoder": "keys(0..7)", "cross": "keys(0..7)"}):
            out = ours.generate(IDS, max_new_tokens=6, do_sample=False, num_beams=2)
        assert torch.equal(out, ours.generate(IDS[:, :7], max_new_tokens=6, do_sample=False, num_beams=2))
    for bad in ("causal", {"self": "causal"}, {"encodr": "full"}, nr.causal()):
        with pytest.raises(nr.Error, match="noren_mask"):
            ours(IDS, decoder_input_ids=target, noren_mask=bad)


def test_models_of_several_models() -> None:
    text = AutoConfig.for_model("llama", **SMALL)
    vision = AutoConfig.for_model("clip_vision_model", hidden_size=32, intermediate_size=32, num_hidden_layers=2, num_attention_heads=4, image_size=8, patch_size=4)
    config = AutoConfig.for_model("llava", text_config=text, vision_config=vision, image_token_index=60, image_seq_length=4, vision_feature_layer=-1)
    torch.manual_seed(0)
    from transformers import AutoModelForImageTextToText

    model = AutoModelForImageTextToText.from_config(config, attn_implementation="noren").eval()
    ids = torch.tensor([[1, 60, 60, 60, 60, 5, 6, 7]])
    image = torch.randn(1, 3, 8, 8)
    with torch.no_grad():
        plain = model(ids, pixel_values=image).logits
        seen = set()
        same = model(ids, pixel_values=image, noren_mask=lambda call: seen.add((call.layer, call.q_len))).logits
        assert torch.equal(plain, same) and {n for _, n in seen} == {5, 8}
        words = model(ids, pixel_values=image, noren_mask={"language_model": lambda call: call.keys(call.key_tokens != 60)}).logits
        other = model(ids, pixel_values=torch.randn(1, 3, 8, 8), noren_mask={"language_model": lambda call: call.keys(call.key_tokens != 60)}).logits
        assert torch.equal(words[:, 5:], other[:, 5:]) and not torch.equal(words, plain)
        with pytest.raises(nr.Error, match="consists of several models"):
            model(ids, pixel_values=image, noren_mask="causal")
        with pytest.raises(nr.Error, match="'vision'"):
            model(ids, pixel_values=image, noren_mask={"vision": "causal"})


@pytest.mark.parametrize("checkpointing", [False, True])
def test_training(checkpointing: bool) -> None:
    eager, ours = pair("llama")
    eager.train(), ours.train()
    if checkpointing:
        ours.gradient_checkpointing_enable({"use_reentrant": False})
    cells = torch.ones(12, 12).triu(-3).bool() & TRIL
    for mask in ("window(left=3)", lambda call: call.keep(cells)):
        eager.zero_grad(), ours.zero_grad()
        eager(IDS, attention_mask=added(cells[None, None], torch.ones_like(IDS)), labels=IDS).loss.backward()
        ours(IDS, labels=IDS, noren_mask=mask).loss.backward()
        for a, b in zip(eager.parameters(), ours.parameters(), strict=True):
            near(a.grad, b.grad)


def test_checkpointing_without_a_mask_of_the_model_is_refused() -> None:
    model = make("clip_vision_model", AutoModel, image_size=12, patch_size=3).train()
    image = torch.randn(1, 3, 12, 12)
    model(image, noren_mask="full").last_hidden_state.sum().backward()
    model.gradient_checkpointing_enable()
    with pytest.raises(nr.Error, match="gradient checkpointing"):
        model(image, noren_mask="full")


def test_masks_of_all_models_of_a_model_and_of_a_call() -> None:
    plain, windowed = make("llama"), make("llama", attention="noren_window")
    assert torch.equal(windowed(IDS).logits, plain(IDS, noren_mask="window(left=2)").logits)
    assert torch.equal(windowed(IDS, noren_mask="window(left=4)").logits, plain(IDS, noren_mask="window(left=4)").logits)
    outer = hf.set_mask(plain, "window(left=2)")
    assert torch.equal(plain(IDS).logits, windowed(IDS).logits)
    with hf.set_mask(plain, "window(left=4)"):
        assert torch.equal(plain(IDS).logits, windowed(IDS, noren_mask="window(left=4)").logits)
        copied = copy.deepcopy(plain)
    assert torch.equal(copied(IDS).logits, windowed(IDS, noren_mask="window(left=4)").logits)
    assert torch.equal(plain(IDS).logits, windowed(IDS).logits)
    outer.remove()
    outer.remove()
    assert torch.equal(plain(IDS).logits, windowed(IDS, noren_mask="full").logits)
    with hf.set_mask(plain, "full - keys(label=x)", facts={"labels": {"x": [3]}}):
        a = plain(IDS).logits
        b = plain(IDS, noren_facts={"labels": {"x": [5]}}).logits
    assert torch.equal(a, plain(IDS, noren_mask="full - keys(3)").logits) and torch.equal(b, plain(IDS, noren_mask="full - keys(5)").logits)


def test_a_mask_that_would_have_no_effect_is_refused() -> None:
    with pytest.raises(nr.Error, match="computes its attention with 'eager'"):
        make("llama", attention="eager")(IDS, noren_mask="causal")
    with pytest.raises(nr.Error, match="computes its attention with 'sdpa'"):
        hf.set_mask(make("llama", attention="sdpa"), "causal")
    model = make("llama")
    with pytest.raises(nr.Error, match="4 dimensions"):
        model(IDS, attention_mask=TRIL[None, None], noren_mask="full")
    for layer in model.model.layers:
        layer.self_attn.forward = lambda hidden_states, **_: (hidden_states, None)
    with pytest.raises(nr.Error, match="was not used"):
        model(IDS, noren_mask="causal")


def test_an_error_ends_the_forward_pass() -> None:
    model, other = make("llama"), make("llama")
    plain = model(IDS).logits

    def fails(call: Any) -> Any:
        raise (KeyboardInterrupt if call.layer else RuntimeError)("stop")

    with pytest.raises(RuntimeError, match="stop"):
        model(IDS, noren_mask=fails)
    assert _calls.current_frame() is None
    with pytest.raises(KeyboardInterrupt):
        model(IDS, noren_mask=lambda call: fails(call) if call.layer else None)
    for one in (model, other):
        assert torch.equal(one(IDS).logits, plain)


def test_plans_are_reused_over_layers_and_calls() -> None:
    model = make("llama", num_hidden_layers=6)
    with torch.no_grad():
        before = _dynamic.PLANS.made
        for _ in range(3):
            model(IDS, attention_mask=LEFT, noren_mask=lambda call: call.keys(call.key_tokens > 9))
        assert _dynamic.PLANS.made == before + 1


def test_compiled_models_use_the_mask_of_each_call() -> None:
    model = make("llama", num_hidden_layers=1)
    compiled = torch.compile(model, backend="eager")
    plain = compiled(IDS).logits
    near(plain, model(IDS).logits)
    with hf.set_mask(model, "window(left=1)"):
        masked = model(IDS).logits
        near(compiled(IDS).logits, masked)
    near(compiled(IDS).logits, plain)
    near(compiled(IDS, noren_mask="window(left=1)").logits, masked)


BAD: list[Any] = [
    True, 0, 1.5, "x", "causal + alibi", b"", [], [1], {}, {"self": 1}, {1: "causal"}, {"": "full"}, {"model": "causal"}, {"self": "full"}, object(),
    object, torch.ones(12, 12).bool(), torch.nn.Linear(1, 1), nr.causal().bind(5), nr.causal().plan(5), nr.parse("causal + alibi"), nr.Facts(),
    lambda: None, lambda call: torch.ones(3), lambda call: call.nothing, lambda call: call.inputs["x"], nt.Replace(None), nt.Replace("causal"), "padding",
    {"tokens": 1}, {"tokens": torch.ones(2, 3)}, {"lengths": [3]}, {"labels": 3}, "keys(label=x)", "dense(x)", float("nan"), 1 << 70, None,
]  # fmt: skip


def test_no_bad_argument_raises_a_raw_error() -> None:
    rng = random.Random(0)
    model = make("llama", num_hidden_layers=1)
    for _ in range(runs(200, 2000)):
        given = {name: rng.choice(BAD) for name in rng.sample(["noren_mask", "noren_facts", "noren_inputs", "attention_mask"], rng.randint(1, 2))}
        if not isinstance(given.get("attention_mask"), (str, nr.Mask, nr.Plan, nr.BoundMask, nr.Spec)):
            given.pop("attention_mask", None)
        try:
            with torch.no_grad():
                model(IDS[:, :3], **given)
        except nr.Error as error:
            assert str(error)
        except AttributeError as error:  # from the function of the test
            assert "nothing" in str(error)
        except TypeError as error:
            assert ":" in str(error), (given, error)
        assert _calls.current_frame() is None, given

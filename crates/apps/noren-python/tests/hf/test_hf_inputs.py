"""Arguments of transformers' models that transformers drops or misreads without an error, and names that no attention reads."""

from __future__ import annotations

import ast
import inspect
import random
import warnings
from pathlib import Path
from typing import Any

import pytest

import noren as nr

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers", minversion="5.0")
from transformers import AutoConfig, AutoModel, AutoModelForCausalLM  # noqa: E402

import noren.hf as hf  # noqa: E402
from noren.hf._support import SELECTIONS  # noqa: E402

hf.register()

SMALL: dict[str, Any] = {
    "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 64,
    "max_position_embeddings": 128, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "attention_dropout": 0.0, "initializer_range": 0.2,
}  # fmt: skip
OPT = {"word_embed_proj_dim": 32, "ffn_dim": 48, "dropout": 0.0}
GPT_OSS = {"head_dim": 8, "sliding_window": 4, "num_local_experts": 2, "num_experts_per_tok": 1, "layer_types": ["sliding_attention", "full_attention"]}
HYBRID = {"head_dim": 8, "linear_key_head_dim": 8, "linear_value_head_dim": 8, "linear_num_key_heads": 2, "linear_num_value_heads": 4, "num_experts": 2, "num_experts_per_tok": 1, "layer_types": ["linear_attention", "full_attention"]}  # fmt: skip
LLAMA4 = {"head_dim": 8, "intermediate_size_mlp": 48, "attention_chunk_size": 8, "num_local_experts": 2, "num_experts_per_tok": 1, "interleave_moe_layer_step": 2}
IDS = torch.arange(3, 11)[None]


def made(kind: str, attention: str = "noren", **more: Any) -> Any:
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **{**SMALL, **more}), attn_implementation=attention).float().eval()


@pytest.fixture(scope="module")
def llama() -> Any:
    return made("llama")


# Known: arguments that every attention gets. Harmless: what eager attention does not read; lengths are those of tensors that the layer cuts itself.
KNOWN = set(inspect.signature(hf.attention_forward).parameters)
HARMLESS = {"sliding_window", "cu_seq_lens_q", "cu_seq_lens_k", "max_length_q", "max_length_k", "deterministic", "query_states", "key_states", "value_states"}


def test_the_arguments_of_all_attention_functions_of_transformers_are_known() -> None:
    """Tests transformers' source: the names that models write in calls of attention, and those that eager attention reads."""
    given: dict[str, str] = {}
    for path in (Path(transformers.__file__).parent / "models").glob("*/modeling_*.py"):
        source = path.read_text()
        if "attention" not in source:
            continue
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.FunctionDef) and node.name.endswith("eager_attention_forward"):
                given |= dict.fromkeys((each.arg for each in [*node.args.args, *node.args.kwonlyargs]), path.name)
                others = node.args.kwarg.arg if node.args.kwarg else None
                assert not any(isinstance(each, ast.Name) and each.id == others for part in node.body for each in ast.walk(part)), path
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and ("attention_interface" in node.func.id or node.func.id.endswith("eager_attention_forward")):
                given |= {each.arg: path.name for each in node.keywords if each.arg}
    unknown = {name: where for name, where in given.items() if name not in KNOWN | HARMLESS | SELECTIONS}
    assert not unknown
    assert set(given) >= SELECTIONS


def test_columns_that_no_attention_reads_change_nothing(llama: Any) -> None:
    wanted = llama(IDS).logits
    for name in ("num_items_in_batch", "seq_idx", "token_type_ids", "special_tokens_mask", "cu_seq_lens_q", "weights", "any_column"):
        for value in (torch.ones_like(IDS), torch.tensor(3), torch.rand(1, 8)):
            assert torch.equal(llama(IDS, **{name: value}).logits, wanted)
    for name in SELECTIONS:
        with pytest.raises(nr.Error, match=f"LlamaAttention passes to its attention {name}, which noren does not know"):
            llama(IDS, **{name: torch.ones_like(IDS)})


@pytest.mark.parametrize("name", ["noren_masks", "noren_fact", "noren_input", "noren_msk", "noren_", "noren_mask_", "noren_kv"])
def test_unknown_names_of_noren(llama: Any, name: str) -> None:
    for value in (None, "none", {"documents": [8]}):
        with pytest.raises(TypeError, match=f"{name} is no argument of a model: did you mean noren_"):
            llama(IDS, **{name: value})
    with pytest.raises(TypeError, match="did you mean noren_mask"):
        llama(IDS, noren_masks="none")


def padding_masks(rng: random.Random) -> Any:
    """Yields 2-D masks that transformers would misread, each with a part of the message."""
    n = IDS.shape[1]
    keep = torch.ones(1, n, dtype=torch.long)
    keep[0, : rng.randint(1, 4)] = 0
    yield (1 - keep) * -1e9, "holds -1e"
    yield (1 - keep) * torch.finfo(torch.float32).min, "holds -3"
    yield (1 - keep) * -10000, "holds -10000"
    yield keep * 2, "holds 2"
    yield torch.tensor([[1] * 3 + [2] * (n - 3)]), "numbers of documents"
    yield torch.rand(1, n) * 0.9 + 0.05, "holds 0."
    yield -keep, "holds -1"
    yield keep * float("nan"), "holds nan"
    yield keep[:, : n - rng.randint(1, 3)], "rows of 8 tokens"
    yield keep.expand(3, n), "1 rows of 8 tokens"


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", ["llama", "mistral", "opt"])
def test_padding_masks_that_transformers_misreads(kind: str, seed: int) -> None:
    model = made(kind, **(OPT if kind == "opt" else {"sliding_window": 4} if kind == "mistral" else {}))
    for mask, message in padding_masks(random.Random(seed)):
        with pytest.raises(nr.Error, match=message):
            model(IDS, attention_mask=mask)
    keep = torch.tensor([[0] * 2 + [1] * 6])
    outs = [model(IDS, attention_mask=mask).logits[:, 2:] for mask in (keep, keep.bool(), keep.float(), keep.to(torch.uint8), keep.double())]
    assert all(torch.equal(out, outs[0]) for out in outs)


def test_padding_masks_of_encoders() -> None:
    model = AutoModel.from_config(AutoConfig.for_model("bert", **SMALL), attn_implementation="noren").eval()
    for mask in (torch.full((1, 8), 2), torch.full((1, 8), -1e9), torch.ones(1, 7, dtype=torch.long)):
        with pytest.raises(nr.Error):
            model(IDS, attention_mask=mask)


def split(sequences: list[list[int]]) -> dict[str, Any]:
    return {"input_ids": torch.tensor([sum(sequences, [])]), "position_ids": torch.tensor([[at for each in sequences for at in range(len(each))]])}


@pytest.mark.parametrize("kind,more", [("llama", {}), ("opt", OPT), ("gpt_oss", GPT_OSS)], ids=["llama", "opt", "gpt_oss"])
def test_the_advice_for_packed_rows_is_right(kind: str, more: dict[str, Any]) -> None:
    """Tests that the warning is given exactly if sequences read each other, and that its advice separates them."""
    model, rng = made(kind, **more), random.Random(kind)
    for _ in range(4):
        sequences = [[rng.randrange(3, 60) for _ in range(rng.randint(2, 7))] for _ in range(rng.randint(2, 4))]
        given, lengths = split(sequences), [len(each) for each in sequences]
        alone = torch.cat([model(torch.tensor([each]), use_cache=False).logits[0] for each in sequences])
        for options in ({}, {"use_cache": False}, {"attention_mask": torch.ones_like(given["input_ids"])}, {"use_cache": False, "noren_mask": "documents"}):
            if "noren_mask" in options:
                options["noren_facts"] = {"documents": lengths}
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                off = float((model(**given, **options).logits[0] - alone).abs().max())
            found = [str(each.message) for each in caught if "the sequences read each other" in str(each.message)]
            assert (off > 1e-5) == bool(found), (options, off)
            if found:
                assert f'give noren_mask="documents" with noren_facts={{"documents": {lengths}}}' in found[0]
    mask = lambda call: nr.documents(lengths)  # noqa: E731
    prepared = torch.from_numpy(nr.to_keep("causal & documents", nr.Shape.square(sum(lengths)), {"documents": lengths}))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert float((model(**given, noren_mask=mask).logits[0] - alone).abs().max()) < 1e-5
        if kind != "gpt_oss":
            assert float((model(**given, attention_mask=prepared).logits[0] - alone).abs().max()) < 1e-5


@pytest.mark.parametrize("lengths", [(12, 11), (3, 9, 8), (20, 17, 5)])
def test_chunks_are_folded_along_each_sequence(lengths: tuple[int, ...]) -> None:
    model, rng = made("llama4_text", **LLAMA4), random.Random(len(lengths))
    start = [rng.randrange(3, 60) for _ in range(lengths[0] - 2)]
    sequences = [start[: n // 2] + [rng.randrange(3, 60) for _ in range(n - n // 2)] for n in lengths]
    for budget in (None, max(lengths)):
        fold = nr.fold(sequences, budget=budget)
        for tokens, found in zip(sequences, fold.unfold(model(**fold.inputs()).logits), strict=True):
            assert (found - model(torch.tensor([tokens]), use_cache=False).logits[0]).abs().max() < 1e-5


def test_hybrid_models_refuse_rows_with_several_sequences() -> None:
    model = made("qwen3_next", **HYBRID)
    sequences = [[5, 6, 7, 8], [20, 21, 22, 23]]
    packed, lengths = split(sequences), {"documents": [4, 4]}
    refused = "carries information from token to token without attention in .* place.s., such as model.layers.0"
    more: list[dict[str, Any]] = [
        {}, {"use_cache": False}, {"noren_mask": "documents", "noren_facts": lengths}, {"attention_mask": torch.ones(1, 8, dtype=torch.long)},
    ]  # fmt: skip
    for options in more:
        with pytest.raises(nr.Error, match=refused):
            model(**packed, **options)
    tokens = {"input_ids": packed["input_ids"]}
    for options in (
        {"noren_mask": "documents", "noren_facts": lengths}, {"noren_mask": "spans([0..4, 4..8])"}, {"noren_mask": nr.documents([4, 4]).bind(8)},
        {"seq_idx": torch.tensor([[0] * 4 + [1] * 4])}, {"cu_seq_lens_q": torch.tensor([0, 4, 8])}, {"noren_mask": {"model": "documents([4, 4])"}},
    ):  # fmt: skip
        with pytest.raises(nr.Error, match=refused):
            model(**tokens, **options)
    cells = torch.from_numpy(nr.to_keep("causal & documents([4, 4])", 8))
    for prepared in (cells, torch.where(cells, 0.0, -1e9), torch.where(cells, 0.0, -torch.inf)):
        with pytest.raises(nr.Error, match=refused):
            model(**tokens, attention_mask=prepared)
    causal = torch.ones(8, 8).tril().bool()[None, None]
    with pytest.warns(UserWarning, match="masks hide keys from attention layers only"):
        assert torch.equal(model(**tokens, attention_mask=causal).logits, model(**tokens).logits)
    with hf.set_mask(model, "documents([4, 4])"), pytest.raises(nr.Error, match=refused):
        model(**tokens)
    with pytest.raises(nr.Error, match=refused):
        model(**nr.fold(sequences).inputs())
    with pytest.raises(nr.Error, match="padding between tokens"):
        model(**tokens, attention_mask=torch.tensor([[1, 1, 0, 1, 1, 1, 1, 1]]))
    with pytest.warns(UserWarning, match="masks hide keys from attention layers only"):
        model(**tokens, noren_mask="window(left=3)")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model(**tokens, attention_mask=torch.tensor([[0, 0, 1, 1, 1, 1, 1, 1]]))


def test_positions_with_three_dimensions() -> None:
    """Tests the positions of models with images: time, height and width. All tokens of an image have one time."""
    text = {**SMALL, "model_type": "qwen2_vl_text", "rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [1, 1, 2]}}
    config = AutoConfig.for_model("qwen2_vl", text_config=text, vision_config={"depth": 1, "embed_dim": 32, "hidden_size": 32, "num_heads": 2})
    model = transformers.Qwen2VLForConditionalGeneration._from_config(config, attn_implementation="noren").eval()
    packed = torch.tensor([0, 1, 2, 3, 0, 1, 2, 3]).expand(3, 1, 8)
    with pytest.warns(UserWarning, match="the sequences read each other"):
        model(IDS, position_ids=packed, use_cache=False)
    image = torch.tensor([0, 1, 1, 1, 1, 2, 3, 4]).expand(3, 1, 8)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model(IDS, position_ids=packed, use_cache=False, noren_mask={"language_model": "documents"}, noren_facts={"documents": [4, 4]})
        model(IDS, position_ids=image, use_cache=False)


def test_models_that_drop_positions_refuse_packed_rows() -> None:
    sizes = {"d_model": 32, "decoder_layers": 2, "decoder_attention_heads": 4, "decoder_ffn_dim": 32, "encoder_layers": 1, "encoder_attention_heads": 4, "encoder_ffn_dim": 32}
    model = made("bart", **sizes)
    with pytest.raises(nr.Error, match="BartForCausalLM has no position_ids"):
        model(**split([[5, 6, 7], [8, 9]]))
    with pytest.raises(nr.Error, match="BartForCausalLM has no position_ids"):
        model(**nr.fold([[5, 6, 7], [5, 9]]).inputs())

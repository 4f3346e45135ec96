"""noren in the programs that people train models with: losses, gradients and generated tokens are those of eager attention.

Tiny models with random weights, and a few steps each.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from itertools import product
from pathlib import Path
from typing import Any

import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")
torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers", minversion="5.0")
pytest.importorskip("accelerate")
datasets = pytest.importorskip("datasets")
from transformers import AutoConfig, AutoModelForCausalLM, DataCollatorForLanguageModeling, DataCollatorWithFlattening, Trainer, TrainingArguments  # noqa: E402

import noren as nr  # noqa: E402
from conftest import sampled  # noqa: E402
import noren.hf as hf  # noqa: E402
from noren.data import pack  # noqa: E402

hf.register()
# Libraries warn of their own deprecations; packed rows that read each other are an error here.
pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.filterwarnings("error:position_ids begin again")]

SMALL: dict[str, Any] = {
    "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "vocab_size": 64,
    "max_position_embeddings": 128, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "attention_dropout": 0.0, "initializer_range": 0.2,
}  # fmt: skip
MODELS: dict[str, dict[str, Any]] = {
    "llama": {},
    "mistral": {"sliding_window": 5},
    "gemma3_text": {"sliding_window": 5, "layer_types": ["sliding_attention", "full_attention"]},
    "gpt_oss": {"sliding_window": 5, "num_local_experts": 2, "num_experts_per_tok": 1, "layer_types": ["sliding_attention", "full_attention"]},
}
HYBRID = {"num_hidden_layers": 2, "linear_key_head_dim": 8, "linear_value_head_dim": 8, "linear_num_key_heads": 2, "linear_num_value_heads": 4, "num_experts": 2, "num_experts_per_tok": 1, "moe_intermediate_size": 32, "shared_expert_intermediate_size": 32, "layer_types": ["linear_attention", "full_attention"]}  # fmt: skip
TEXTS = [{"input_ids": [3 + (7 * i + 5 * j + i * j) % 60 for j in range(4 + i % 9)]} for i in range(24)]


@pytest.fixture(autouse=True)
def _one_thread() -> Any:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def made(kind: str, attention: str, make: Any = AutoModelForCausalLM, **more: Any) -> Any:
    torch.manual_seed(0)
    return make.from_config(AutoConfig.for_model(kind, **{**SMALL, **more}), attn_implementation=attention).float()


def losses(folder: Path, model: Any, collator: Any, texts: Any = None, **options: Any) -> list[float]:
    """Returns the losses and the norms of the gradients of a few steps of transformers' Trainer."""
    arguments = TrainingArguments(
        str(folder), max_steps=3, per_device_train_batch_size=4, gradient_accumulation_steps=2, logging_steps=1, learning_rate=1e-2, report_to=[], use_cpu=True,
        save_strategy="no", seed=1, disable_tqdm=True, dataloader_pin_memory=False, **{"remove_unused_columns": False, **options},
    )  # fmt: skip
    trainer = Trainer(model=model, args=arguments, train_dataset=TEXTS if texts is None else texts, data_collator=collator)
    trainer.train()
    return [entry[name] for entry in trainer.state.log_history if "loss" in entry for name in ("loss", "grad_norm")]


def near(got: list[float], wanted: list[float]) -> None:
    assert len(got) == len(wanted) > 0
    assert all(abs(a - b) <= 2e-4 * max(1.0, abs(b)) for a, b in zip(got, wanted, strict=True)), (got, wanted)


COLLATORS: dict[str, Any] = {
    "padding": lambda: padding(),
    "padding on the left": lambda: padding(side="left"),
    "packing": lambda: lambda examples: pack(examples, 32, method="first_fit_decreasing").tensors(),
    "flattening": lambda: DataCollatorWithFlattening(),
    "flattening with indices": lambda: DataCollatorWithFlattening(return_seq_idx=True, return_flash_attn_kwargs=True),
}


@pytest.mark.parametrize(("kind", "collator"), sampled(product(["llama", "gemma3_text"], COLLATORS), 4, 2))
def test_trainer(kind: str, collator: str, tmp_path: Path) -> None:
    found = []
    for attention in ("noren", "eager"):
        model = made(kind, attention, **MODELS[kind])
        model.config.use_cache = False
        found.append(losses(tmp_path, model, COLLATORS[collator](), gradient_checkpointing=collator == "packing"))
    near(*found)


@pytest.mark.parametrize("kind", sampled(MODELS, 4, 3))
def test_trainer_with_every_column_of_a_data_set(kind: str, tmp_path: Path) -> None:
    """Tests columns that no model reads, a maximum batch by tokens, and evaluation."""
    texts = datasets.Dataset.from_list([{**text, "token_type_ids": [0] * len(text["input_ids"]), "special_tokens_mask": [1] + [0] * (len(text["input_ids"]) - 1)} for text in TEXTS])
    found = []
    for attention in ("noren", "eager"):
        model = made(kind, attention, **MODELS[kind])
        collator = padding()
        found.append(losses(tmp_path, model, collator, texts))
        trainer = Trainer(model=model, args=TrainingArguments(str(tmp_path), report_to=[], use_cpu=True, disable_tqdm=True, remove_unused_columns=False), eval_dataset=texts, data_collator=collator)
        found[-1].append(trainer.evaluate()["eval_loss"])
    near(*found)


def test_trainer_with_a_hybrid_model(tmp_path: Path) -> None:
    """Tests that a model with recurrent layers trains on padded rows as in eager attention, and refuses packed rows."""
    found = [losses(tmp_path, made("qwen3_next", attention, **HYBRID), padding()) for attention in ("noren", "eager")]
    near(*found)
    with pytest.raises(nr.Error, match="Qwen3NextForCausalLM carries information from token to token without attention"):
        losses(tmp_path, made("qwen3_next", "noren", **HYBRID), DataCollatorWithFlattening())


def test_trainer_with_an_encoder_and_a_decoder(tmp_path: Path) -> None:
    from transformers import AutoModelForSeq2SeqLM, DataCollatorForSeq2Seq

    sizes = {"d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4, "dropout_rate": 0.0, "decoder_start_token_id": 0}
    texts = [{"input_ids": text["input_ids"], "labels": text["input_ids"][::-1][: 3 + i % 3]} for i, text in enumerate(TEXTS)]
    found = []
    for attention in ("noren", "eager"):
        model = made("t5", attention, AutoModelForSeq2SeqLM, **sizes)
        found.append(losses(tmp_path, model, DataCollatorForSeq2Seq(tokenizer(), model), texts))
    near(*found)


def test_trainer_with_images_and_text(tmp_path: Path) -> None:
    from transformers import PaliGemmaForConditionalGeneration as PaliGemma

    text = {"model_type": "gemma", **SMALL}
    vision = {
        "model_type": "siglip_vision_model", "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "image_size": 28,
        "patch_size": 14, "projection_dim": 32,
    }  # fmt: skip
    generator = torch.Generator().manual_seed(0)
    rows = [{"input_ids": [63] * 4 + each["input_ids"], "pixel_values": torch.randn(3, 28, 28, generator=generator)} for each in TEXTS]

    def collate(examples: list[dict[str, Any]]) -> dict[str, Any]:
        batch = padding()([{"input_ids": each["input_ids"]} for each in examples])
        kinds = batch["attention_mask"] * (torch.arange(batch["input_ids"].shape[1]) >= 6)
        return {**batch, "token_type_ids": kinds, "pixel_values": torch.stack([each["pixel_values"] for each in examples]), "labels": torch.where(kinds == 1, batch["labels"], -100)}

    found = []
    for attention in ("noren", "eager"):
        torch.manual_seed(0)
        config = AutoConfig.for_model("paligemma", text_config=dict(text), vision_config=dict(vision), projection_dim=32, image_token_id=63, pad_token_id=0)
        found.append(losses(tmp_path, PaliGemma._from_config(config, attn_implementation=attention).float(), collate, rows))
    near(*found)


def tokenizer(**more: Any) -> Any:
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = ["[PAD]", "[BOS]", "[EOS]", "[UNK]", *(f"w{number}" for number in range(60))]
    inner = Tokenizer(models.WordLevel({word: number for number, word in enumerate(words)}, unk_token="[UNK]"))
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    return transformers.PreTrainedTokenizerFast(tokenizer_object=inner, pad_token="[PAD]", bos_token="[BOS]", eos_token="[EOS]", unk_token="[UNK]", cls_token="[BOS]", sep_token="[EOS]", **more)


def padding(side: str = "right") -> Any:
    collate = DataCollatorForLanguageModeling(tokenizer(padding_side=side), mlm=False)

    def padded(examples: list[dict[str, Any]]) -> Any:
        batch = collate(examples)
        batch["labels"][batch["attention_mask"].cumsum(1) <= 1] = -100  # no token predicts the first one
        return batch

    return padded


def words(column: str) -> Any:
    return datasets.Dataset.from_list([{column: " ".join(f"w{(7 * i + 5 * j) % 60}" for j in range(3 + i % 7))} for i in range(16)])


TRL: dict[str, Any] = {
    "max_steps": 2, "report_to": [], "use_cpu": True, "save_strategy": "no", "logging_steps": 1, "per_device_train_batch_size": 4, "bf16": False, "seed": 3,
    "disable_tqdm": True, "learning_rate": 1e-3,
}  # fmt: skip


@pytest.mark.parametrize("rows", sampled(["packed", "padded"], 2))
def test_trl_sft(rows: str, tmp_path: Path) -> None:
    trl = pytest.importorskip("trl")
    found = []
    for attention in ("noren", "eager"):
        more = {"packing": True, "padding_free": True} if rows == "packed" else {}
        arguments = trl.SFTConfig(str(tmp_path), max_length=16, **TRL, **more)
        trainer = trl.SFTTrainer(model=made("llama", attention), args=arguments, train_dataset=words("text"), processing_class=tokenizer())
        trainer.train()
        found.append([entry[name] for entry in trainer.state.log_history if "loss" in entry for name in ("loss", "grad_norm")])
    near(*found)


@pytest.mark.parametrize("padding_free", sampled([True, False], 2))
def test_trl_dpo(padding_free: bool, tmp_path: Path) -> None:
    trl = pytest.importorskip("trl")
    texts = words("text")["text"]
    pairs = datasets.Dataset.from_dict({"prompt": texts, "chosen": [f" {text} w1 w5" for text in texts[::-1]], "rejected": [" w7 w2"] * len(texts)})
    found = []
    for attention in ("noren", "eager"):
        arguments = trl.DPOConfig(str(tmp_path), max_length=32, padding_free=padding_free, **TRL)
        trainer = trl.DPOTrainer(model=made("llama", attention), ref_model=made("llama", attention), args=arguments, train_dataset=pairs, processing_class=tokenizer())
        trainer.train()
        found.append([entry[name] for entry in trainer.state.log_history if "loss" in entry for name in ("loss", "grad_norm")])
    near(*found)


@pytest.mark.parametrize("kind", sampled(["gemma3_text", "llama"], 2))
def test_trl_grpo(kind: str, tmp_path: Path) -> None:
    trl = pytest.importorskip("trl")
    found = []
    for attention in ("noren", "eager"):
        arguments = trl.GRPOConfig(str(tmp_path), num_generations=4, max_completion_length=8, **TRL)
        rewards = lambda completions, **_: [float(len(text) % 5) for text in completions]  # noqa: E731
        trainer = trl.GRPOTrainer(model=made(kind, attention, **MODELS[kind]), args=arguments, reward_funcs=rewards, train_dataset=words("prompt"), processing_class=tokenizer())
        trainer.train()
        found.append([entry[name] for entry in trainer.state.log_history if "loss" in entry for name in ("loss", "grad_norm", "reward")])
    near(*found)


def test_sentence_transformers(tmp_path: Path) -> None:
    pytest.importorskip("sentence_transformers")
    from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments
    from sentence_transformers.models import Pooling, Transformer
    from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
    from transformers import AutoModel

    made("bert", "eager", AutoModel, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0).save_pretrained(tmp_path / "bert")
    tokenizer().save_pretrained(tmp_path / "bert")
    texts = words("text")["text"]
    pairs = datasets.Dataset.from_dict({"anchor": texts, "positive": texts[::-1]})
    vectors, steps = [], []
    for attention in ("noren", "eager"):
        inner = Transformer(str(tmp_path / "bert"), model_args={"attn_implementation": attention})
        assert inner.auto_model.config._attn_implementation == attention
        model = SentenceTransformer(modules=[inner, Pooling(inner.get_word_embedding_dimension())], device="cpu")
        vectors.append(torch.from_numpy(model.encode(texts, batch_size=5)))
        arguments = SentenceTransformerTrainingArguments(str(tmp_path), max_steps=2, report_to=[], use_cpu=True, save_strategy="no", logging_steps=1, disable_tqdm=True, per_device_train_batch_size=4)
        trainer = SentenceTransformerTrainer(model=model, args=arguments, train_dataset=pairs, loss=MultipleNegativesRankingLoss(model))
        trainer.train()
        steps.append([entry[name] for entry in trainer.state.log_history if "loss" in entry for name in ("loss", "grad_norm")])
    assert (vectors[0] - vectors[1]).abs().max() < 1e-5
    near(*steps)


RANKS = """
import os
import torch
from accelerate import Accelerator
from transformers import AutoConfig, AutoModelForCausalLM
import noren.hf

torch.set_num_threads(1)
noren.hf.register()
accelerator = Accelerator(cpu=True)
assert accelerator.num_processes == 2
for attention in ("noren", "eager"):
    torch.manual_seed(0)
    config = AutoConfig.for_model("llama", hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, vocab_size=64)
    model = AutoModelForCausalLM.from_config(config, attn_implementation=attention)
    texts = [{"input_ids": [3 + (7 * i + 5 * j) % 60 for j in range(4 + i % 9)]} for i in range(24)]
    def collate(rows):
        ids, labels = (torch.nn.utils.rnn.pad_sequence([torch.tensor(row["input_ids"]) for row in rows], batch_first=True, padding_value=fill) for fill in (0, -100))
        return {"input_ids": ids, "attention_mask": (labels != -100).long(), "labels": labels}
    loader = torch.utils.data.DataLoader(texts, batch_size=4, collate_fn=collate)
    model, optimizer, loader = accelerator.prepare(model, torch.optim.SGD(model.parameters(), 0.1), loader)
    losses = []
    for batch in loader:
        loss = model(**batch).loss
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(accelerator.gather(loss.detach()[None]).tolist())
    if accelerator.is_main_process:
        print("LOSSES", losses, flush=True)
accelerator.end_training()
# The distributed model keeps the group of gloo, whose threads run on. Such a thread frees its tensors with the lock of the interpreter.
# While Python 3.11 exits, a thread that takes this lock is ended, which PyTorch answers with "terminate called without an active exception".
os._exit(0)
"""


def test_accelerate_on_two_processes(tmp_path: Path) -> None:
    script = tmp_path / "ranks.py"
    script.write_text(RANKS)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2", "ACCELERATE_USE_CPU": "true", "OMP_NUM_THREADS": "1"}
    ranks = [
        subprocess.Popen([sys.executable, str(script)], env={**environment, "RANK": str(rank), "LOCAL_RANK": str(rank)}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for rank in range(2)
    ]
    outputs = [rank.communicate(timeout=240) for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0], outputs
    ours, eager = ([float(each) for each in line.replace("[", " ").replace("]", " ").replace(",", " ").split()[1:]] for line in outputs[0][0].splitlines() if line.startswith("LOSSES"))
    near(ours, eager)

"""Writes the tiny random models of this folder, and what transformers computes with them (attention "eager", float32).

    python testdata/transformers/make.py [NAME ...]

Each folder NAME has config.json, model.safetensors and tokenizer.json, and:

- expected.safetensors: token ids and masks of a batch padded on the right (input_ids, attention_mask), and the outputs
  of the model (last_hidden_state, logits, pooler_output). If the family accepts padding on the left, the same with the
  prefix `left_`.
- pipeline.json, for classifiers: texts and the result of transformers' pipeline for each of them.

The seed is fixed, so that the same versions of torch and transformers write the same files.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors.torch import save_file
from tokenizers import Tokenizer, models, processors
from transformers import PreTrainedTokenizerFast, pipeline

HERE = Path(__file__).parent
SPECIAL = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
VOCAB = len(SPECIAL) + 95
LENGTHS = [23, 9, 14, 3]
TEXTS = ["Good day", "It was not bad at all", "no", "Ann Lee lives in Rome"]
HIDDEN = {"hidden_size": 16, "num_attention_heads": 2, "num_hidden_layers": 2, "intermediate_size": 24}
IDS = {"pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2}
ROBERTA = {**HIDDEN, **IDS, "max_position_embeddings": 66, "type_vocab_size": 1, "layer_norm_eps": 1e-5}
BERT = {**HIDDEN, **IDS, "max_position_embeddings": 64}
DISTILBERT = {"dim": 16, "n_heads": 2, "n_layers": 2, "hidden_dim": 24, "max_position_embeddings": 64, **IDS}
MODERN = {
    **HIDDEN, **IDS, "num_hidden_layers": 4, "local_attention": 8, "max_position_embeddings": 64,
    "cls_token_id": 0, "sep_token_id": 2,
    "rope_parameters": {
        "full_attention": {"rope_type": "default", "rope_theta": 2000.0},
        "sliding_attention": {"rope_type": "default", "rope_theta": 50.0},
    },
}  # fmt: skip
LLAMA = {**HIDDEN, **IDS, "num_key_value_heads": 1, "max_position_embeddings": 64}
QWEN = {**LLAMA, "head_dim": 8}
MISTRAL = {**LLAMA, "sliding_window": 6}
MOODS = {"id2label": {0: "negative", 1: "neutral", 2: "positive"}}
TAGS = {"id2label": {0: "O", 1: "B-PER", 2: "I-PER", 3: "B-LOC"}}
TOPICS = {"id2label": {0: "sport", 1: "music", 2: "art"}, "problem_type": "multi_label_classification"}

# The models, as (name, family, head, options of the configuration).
MODELS: list[tuple[str, str, str, dict[str, Any]]] = [
    ("roberta", "Roberta", "Model", ROBERTA),
    ("roberta_mlm", "Roberta", "ForMaskedLM", {**ROBERTA, "hidden_act": "relu"}),
    ("roberta_classifier", "Roberta", "ForSequenceClassification", {**ROBERTA, **MOODS}),
    ("roberta_tokens", "Roberta", "ForTokenClassification", {**ROBERTA, **TAGS}),
    ("xlm_roberta_topics", "XLMRoberta", "ForSequenceClassification", {**ROBERTA, **TOPICS}),
    ("camembert_mlm", "Camembert", "ForMaskedLM", ROBERTA),
    ("bert_tokens", "Bert", "ForTokenClassification", {**BERT, **TAGS}),
    ("bert_score", "Bert", "ForSequenceClassification", {**BERT, "num_labels": 1}),
    ("distilbert", "DistilBert", "Model", DISTILBERT),
    ("distilbert_mlm", "DistilBert", "ForMaskedLM", {**DISTILBERT, "activation": "relu"}),
    ("distilbert_value", "DistilBert", "ForSequenceClassification",
     {**DISTILBERT, "num_labels": 1, "problem_type": "regression"}),
    ("distilbert_tokens", "DistilBert", "ForTokenClassification", {**DISTILBERT, **TAGS}),
    ("modernbert", "ModernBert", "Model", MODERN),
    ("modernbert_mlm", "ModernBert", "ForMaskedLM", MODERN),
    ("modernbert_classifier", "ModernBert", "ForSequenceClassification", MODERN),
    ("modernbert_mean", "ModernBert", "ForSequenceClassification",
     {**MODERN, **MOODS, "classifier_pooling": "mean", "norm_bias": True, "mlp_bias": True, "attention_bias": True,
      "classifier_bias": True}),
    ("modernbert_tokens", "ModernBert", "ForTokenClassification", {**MODERN, **TAGS}),
    ("llama_classifier", "Llama", "ForSequenceClassification", {**LLAMA, **MOODS}),
    ("llama_tokens", "Llama", "ForTokenClassification", {**LLAMA, **TAGS}),
    ("mistral_classifier", "Mistral", "ForSequenceClassification", {**MISTRAL, **MOODS}),
    ("qwen2", "Qwen2", "ForCausalLM", LLAMA),
    ("qwen2_classifier", "Qwen2", "ForSequenceClassification", {**LLAMA, **MOODS}),
    ("qwen3_classifier", "Qwen3", "ForSequenceClassification", {**QWEN, **TOPICS}),
    ("qwen3_tokens", "Qwen3", "ForTokenClassification", {**QWEN, **TAGS}),
]  # fmt: skip
DECODERS = ("Llama", "Mistral", "Qwen2", "Qwen3")
# Families whose positions do not depend on padding on the left. BERT and DistilBERT count positions from the first
# column of a batch.
LEFT = ("Roberta", "XLMRoberta", "Camembert", "ModernBert", *DECODERS)


def tokenizer(family: str) -> Tokenizer:
    """Returns a tokenizer with one token for each printable ASCII character."""
    words = SPECIAL + [chr(code) for code in range(32, 127)]
    made = Tokenizer(models.BPE(vocab={word: i for i, word in enumerate(words)}, merges=[], unk_token="<unk>"))
    made.add_special_tokens(SPECIAL)
    template = "<s> $A" if family in DECODERS else "<s> $A </s>"
    made.post_processor = processors.TemplateProcessing(single=template, special_tokens=[("<s>", 0), ("</s>", 2)])
    return made


def random_model(family: str, head: str, options: dict[str, Any]) -> Any:
    """Returns a model with random parameters that are large enough for differences to show."""
    config = getattr(transformers, f"{family}Config")(vocab_size=VOCAB, **options)
    model = getattr(transformers, family + head)._from_config(config, attn_implementation="eager").eval()
    with torch.no_grad():
        for name, parameter in sorted(model.named_parameters()):
            noise = torch.randn(parameter.shape)
            norm = "norm" in name.lower() and name.endswith("weight")
            parameter.copy_(1 + 0.2 * noise if norm else 0.3 * noise)
    return model


def rows(family: str) -> list[list[int]]:
    """Returns the token ids of the texts of a batch."""
    texts = [[0, *torch.randint(len(SPECIAL), VOCAB, (length - 1,)).tolist()] for length in LENGTHS]
    if family in DECODERS:
        texts[1][-1] = 1  # the padding token as the last token of a text, which a text classifier skips
    return texts


def outputs(model: Any, texts: list[list[int]], side: str) -> dict[str, torch.Tensor]:
    """Returns the padded batch and the outputs of the model for it."""
    most = max(map(len, texts))
    pad = lambda row, fill: [fill] * (most - len(row)) + row if side == "left" else row + [fill] * (most - len(row))
    given = {
        "input_ids": torch.tensor([pad(row, 1) for row in texts]),
        "attention_mask": torch.tensor([pad([1] * len(row), 0) for row in texts]),
    }
    with torch.no_grad():
        base = model.base_model(**given)
        made = {"last_hidden_state": base.last_hidden_state}
        if getattr(base, "pooler_output", None) is not None:
            made["pooler_output"] = base.pooler_output
        if model.base_model is not model:
            made["logits"] = model(**given).logits
    return {**given, **{name: tensor.contiguous() for name, tensor in made.items()}}


def piped(model: Any, tokens: PreTrainedTokenizerFast, head: str) -> Any:
    """Returns the results of transformers' pipeline for each text, as [label, score] for each class or token."""
    if head == "ForSequenceClassification":
        pipe = pipeline("text-classification", model=model, tokenizer=tokens, top_k=None)
        return [[[one["label"], one["score"]] for one in result] for result in pipe(TEXTS)]
    pipe = pipeline("token-classification", model=model, tokenizer=tokens, ignore_labels=[])
    return [[[one["entity"], float(one["score"])] for one in result] for result in pipe(TEXTS)]


def write(name: str, family: str, head: str, options: dict[str, Any]) -> None:
    """Writes the folder of one model."""
    torch.manual_seed(sum(map(ord, name)))
    folder = HERE / name
    folder.mkdir(exist_ok=True)
    model, texts, tokens = random_model(family, head, options), rows(family), tokenizer(family)
    tokens.save(str(folder / "tokenizer.json"), pretty=False)
    with tempfile.TemporaryDirectory() as path:
        model.save_pretrained(path)
        for file in ("config.json", "model.safetensors"):
            (folder / file).write_bytes((Path(path) / file).read_bytes())
    tensors = outputs(model, texts, "right")
    if family in LEFT:
        left = outputs(model, texts, "left")
        first = getattr(model.config, "classifier_pooling", "cls") == "cls" and family not in DECODERS
        if first:  # transformers reads the first column, which is padding
            left.pop("pooler_output", None)
        if first and head == "ForSequenceClassification":
            del left["logits"]
        tensors.update({f"left_{key}": tensor for key, tensor in left.items()})
    save_file(tensors, folder / "expected.safetensors")
    if head in ("ForSequenceClassification", "ForTokenClassification"):
        wrapped = PreTrainedTokenizerFast(tokenizer_object=tokens, pad_token="<pad>")
        made = {"texts": TEXTS, "results": piped(model, wrapped, head)}
        (folder / "pipeline.json").write_text(json.dumps(made) + "\n")


def main() -> None:
    """Writes the models that are named, or all of them."""
    for model in MODELS:
        if not sys.argv[1:] or model[0] in sys.argv[1:]:
            write(*model)
            print(model[0], file=sys.stderr)


if __name__ == "__main__":
    main()

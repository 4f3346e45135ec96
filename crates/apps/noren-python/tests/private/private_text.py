"""Tokenizers that are trained here, and texts with planted secrets, for the tests of private text."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

CORPUS = [
    "the river runs under the old bridge and the boats wait for the evening",
    "please write to the office before noon or call the number of the house",
    "café naïve Straße 東京 río это текст ½ … ﬁne e\u0301t\u00e9 \U0001f600 smile",
    "ann@x.example wrote 4111 1111 1111 1111 and T-77 to bob@y.example 10.0.0.1",
]
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
PUBLIC = ["the", "river", "café", "bridge", "naïve", "東京", "boats", "\U0001f600", "это", "e\u0301te\u0301", "½", "or", "…", "runs"]


def _template(tokenizer: Tokenizer) -> Tokenizer:
    ids = [(name, tokenizer.token_to_id(name)) for name in ("[CLS]", "[SEP]")]
    tokenizer.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=ids)
    return tokenizer


def byte_level(trim: bool = False, size: int = 330) -> Tokenizer:
    found = Tokenizer(models.BPE())
    found.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    found.decoder = decoders.ByteLevel()
    found.train_from_iterator(CORPUS, trainers.BpeTrainer(vocab_size=size, special_tokens=SPECIAL, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    found.post_processor = processors.ByteLevel(trim_offsets=trim)
    return found


def word_piece() -> Tokenizer:
    found = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    found.normalizer = normalizers.BertNormalizer()
    found.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    found.train_from_iterator(CORPUS, trainers.WordPieceTrainer(vocab_size=200, special_tokens=SPECIAL, show_progress=False))
    return _template(found)


def unigram() -> Tokenizer:
    found = Tokenizer(models.Unigram())
    found.normalizer = normalizers.NFKC()
    found.pre_tokenizer = pre_tokenizers.Metaspace()
    found.decoder = decoders.Metaspace()
    found.train_from_iterator(CORPUS, trainers.UnigramTrainer(vocab_size=180, special_tokens=SPECIAL, unk_token="[UNK]", show_progress=False))
    return _template(found)


def byte_fallback() -> Tokenizer:
    """Returns a tokenizer of characters, with bytes for unknown ones, as Llama's."""
    vocabulary = {name: at for at, name in enumerate(SPECIAL)}
    for name in [f"<0x{byte:02X}>" for byte in range(256)] + list("▁abcdefghijklmnopqrstuvwxyz"):
        vocabulary[name] = len(vocabulary)
    found = Tokenizer(models.BPE(vocabulary, [], unk_token="[UNK]", byte_fallback=True, fuse_unk=True))
    found.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    found.add_special_tokens(SPECIAL)
    return _template(found)


def characters() -> Tokenizer:
    """Returns a tokenizer with one token for each character."""
    known = sorted({*"".join(CORPUS), *"".join(PUBLIC), *map(chr, range(32, 127)), *"0123456789", *"李明ßÆŁ"})
    found = Tokenizer(models.WordLevel({name: at for at, name in enumerate([*SPECIAL, *known])}, unk_token="[UNK]"))
    found.pre_tokenizer = pre_tokenizers.Split(Regex("[\\s\\S]"), "isolated")
    return _template(found)


@cache
def tokenizers() -> dict[str, Any]:
    """Returns the tokenizers by name."""
    return {
        "byte-level": byte_level(), "byte-level, trimmed": byte_level(trim=True), "bytes": byte_level(size=260), "WordPiece": word_piece(),
        "Unigram": unigram(), "byte fallback": byte_fallback(), "characters": characters(),
    }  # fmt: skip


def fast(tokenizer: Tokenizer, **more: Any) -> Any:
    """Returns a tokenizer of transformers."""
    from transformers import PreTrainedTokenizerFast

    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]", **more)


def planted(rng: np.random.Generator, secrets: list[tuple[str, str]], most: int = 8) -> tuple[str, list[tuple[str, int, int]]]:
    """Returns a text of public words with secrets between them, and the places of the secrets: (kind, start, end)."""
    text, places = "", []
    for _ in range(int(rng.integers(1, most))):
        if rng.random() < 0.4:
            kind, secret = secrets[rng.integers(len(secrets))]
            places.append((kind, len(text), len(text) + len(secret)))
            text += secret
        else:
            text += str(rng.choice(PUBLIC))
        text += str(rng.choice([" ", " ", "  ", "\n", " , "]))
    return text, places

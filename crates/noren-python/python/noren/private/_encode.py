"""Texts and chats as tokens of a model, with their private tokens."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from .._noren import Error
from ._find import Detectors, Found, Kinds, Spans, check_text, check_texts, detectors_of
from ._tokens import MOST_TOKENS, Offsets, Tokens, locate_row, offsets_of

if TYPE_CHECKING:
    from torch import Tensor

Text = str | Sequence[Mapping[str, Any]]
"""A text, or a chat: a list of messages such as {"role": "user", "content": "..."}."""


@dataclass(frozen=True, eq=False)
class Encoded:
    """A batch of texts as tokens, `[batch, length]`, with its private tokens; made by `encode`.

    `Encoded(inputs, tokens)` holds tokens that were made in another manner: `inputs` are arrays or tensors by name, of which
    "input_ids" is needed, and `tokens` their private tokens.
    """

    arrays: Mapping[str, Any]
    """The arguments of the model: "input_ids" and "attention_mask", and others that the tokenizer makes."""
    tokens: Tokens
    """The private tokens."""
    texts: tuple[str, ...] = ()
    """The texts; of chats, the texts that the template makes."""
    found: tuple[Found, ...] = ()
    """The findings in each text."""
    tokenizer: Any = field(default=None, repr=False)
    """The tokenizer; None if the tokens were made in another manner."""

    def __post_init__(self) -> None:
        if not isinstance(self.arrays, Mapping) or "input_ids" not in self.arrays:
            raise TypeError('the arrays are not the inputs of a model: give a dict such as {"input_ids": ids, "attention_mask": mask}')
        if not isinstance(self.tokens, Tokens):
            raise TypeError(f"tokens is {type(self.tokens).__name__}: give the private tokens, as nr.private.locate returns them")
        ids = self.arrays["input_ids"]
        shape = tuple(getattr(ids, "shape", ()))
        if shape != self.tokens.shape:
            raise Error(f"input_ids has shape {list(shape)}, but the private tokens are those of a batch {list(self.tokens.shape)}: give [batch, length] of the same batch")

    @property
    def ids(self) -> NDArray[np.int64]:
        """The tokens, `[batch, length]`."""
        ids = self.arrays["input_ids"]
        return np.asarray(ids.detach().cpu() if hasattr(ids, "detach") else ids, np.int64)

    @cached_property
    def inputs(self) -> dict[str, Tensor]:
        """The arguments of a model of transformers, as tensors of PyTorch: `model(**encoded.inputs)`."""
        import torch

        return {name: torch.as_tensor(array) for name, array in self.arrays.items()}

    def names(self, row: int = 0) -> list[str]:
        """Returns the tokens of a batch row as readable text."""
        self.tokens.row(row)
        ids = self.ids[row].tolist()
        read = getattr(self.tokenizer, "convert_ids_to_tokens", None)
        if read is not None:
            return [f"#{id}" if name is None else str(name) for id, name in zip(ids, read(ids), strict=True)]
        one = getattr(self.tokenizer, "id_to_token", None)
        return [f"#{id}" if one is None or one(id) is None else str(one(id)) for id in ids]


def encode(
    tokenizer: Any,
    texts: Text | Iterable[Text],
    kinds: Kinds | Detectors = "all",
    *,
    pairs: str | Iterable[str] | None = None,
    spans: Iterable[Spans | None] | None = None,
    max_length: int | None = None,
    add_special_tokens: bool = True,
    add_generation_prompt: bool = False,
    padding_side: Literal["left", "right"] | None = None,
    **template: Any,
) -> Encoded:
    """Returns texts as tokens, with the tokens that contain private text.

    `tokenizer` is a fast tokenizer of transformers or a `Tokenizer` of the package tokenizers. `texts` is one text, or a list of texts;
    a chat (a list of messages) in the place of a text is written with the tokenizer's chat template, with `add_generation_prompt` and the
    other arguments `template`. `pairs` are the second texts of pairs. Rows are padded to the longest one, on `padding_side` [default: that of the
    tokenizer], and texts are cut to `max_length` tokens. `spans` has private ranges of characters for each text.

    >>> from tokenizers import Tokenizer, models, pre_tokenizers
    >>> words = Tokenizer(models.WordLevel({"?": 0, "Ask": 1, "Ann": 2, "now": 3}, unk_token="?"))
    >>> words.pre_tokenizer = pre_tokenizers.Whitespace()
    >>> encoded = encode(words, ["Ask Ann now", "Ask"], Detectors("email", words=["Ann"]))
    >>> encoded.ids.tolist(), encoded.tokens.private.tolist()
    ([[1, 2, 3], [1, 0, 0]], [[False, True, False], [False, False, False]])

    Raises `Error` for a tokenizer without offsets.
    """
    detectors = detectors_of(kinds, None, None, ())
    listed = _listed(texts)
    chats = [not isinstance(text, str) for text in listed]
    if any(chats) and not all(chats):
        raise Error("the batch has texts and chats: give either texts or chats")
    if template and not all(chats):
        raise TypeError(f"{', '.join(template)}: unknown arguments for texts; a chat template takes further arguments, a text does not")
    first = [_written(tokenizer, text, add_generation_prompt, template) for text in listed]
    second = None if pairs is None else check_texts("pairs", [pairs] if isinstance(pairs, str) else pairs)
    if second is not None and len(second) != len(first):
        raise Error(f"pairs has {len(second)} texts, but there are {len(first)} first texts: give one for each")
    if isinstance(max_length, bool) or not isinstance(max_length, (int, type(None))) or (max_length is not None and not 1 <= max_length <= MOST_TOKENS):
        raise Error(f"max_length is {max_length!r}: give a number of tokens, 1 or more, or None")
    side = padding_side or getattr(tokenizer, "padding_side", "right")
    if side not in ("left", "right"):
        raise Error(f'padding_side is {side!r}: give "left" or "right"')
    encodings = _tokenized(tokenizer, first, second, bool(add_special_tokens) and not any(chats), max_length)
    found = detectors.find_all(first, spans=spans)
    others = None if second is None else detectors.find_all(second)
    return _batch(tokenizer, encodings, first, found, others, side)


def _listed(texts: Any) -> list[Any]:
    if isinstance(texts, str) or _is_chat(texts):
        return [texts]
    if not isinstance(texts, Iterable) or isinstance(texts, (bytes, Mapping)):
        raise TypeError(f"texts is {type(texts).__name__}: give a text, a chat (a list of messages), or a list of them")
    return list(texts)


def _is_chat(text: Any) -> bool:
    return isinstance(text, (list, tuple)) and len(text) > 0 and all(isinstance(message, Mapping) for message in text)


def _written(tokenizer: Any, text: Any, add_generation_prompt: bool, template: Mapping[str, Any]) -> str:
    """Returns a text, or the text that the template makes of a chat."""
    if not isinstance(text, str):
        if not _is_chat(text):
            raise TypeError(f"a text is {type(text).__name__}: give a text, or a list of messages such as {{\"role\": \"user\", \"content\": \"...\"}}")
        if not hasattr(tokenizer, "apply_chat_template"):
            raise TypeError(f"{type(tokenizer).__name__} has no chat template: give a tokenizer of transformers, or the written text")
        if any(name in template for name in ("tokenize", "return_tensors", "return_dict")):
            raise TypeError("tokenize, return_tensors and return_dict are chosen by nr.private.encode: leave them out")
        try:
            text = tokenizer.apply_chat_template(list(text), tokenize=False, add_generation_prompt=bool(add_generation_prompt), **template)
        except Exception as error:  # templates raise errors of Jinja, ValueError, KeyError and others
            raise Error(f"the chat template cannot write the messages ({type(error).__name__}: {error}): give messages of the roles that the template knows") from error
    check_text("a text", text)
    return str(text)


def _tokenized(tokenizer: Any, first: list[str], second: list[str] | None, special: bool, max_length: int | None) -> list[Any]:
    """Returns an `Encoding` of the package tokenizers for each text, without padding."""
    if not first:
        return []
    if hasattr(tokenizer, "encode_batch") and hasattr(tokenizer, "token_to_id"):
        items = first if second is None else list(zip(first, second, strict=True))
        found = list(tokenizer.encode_batch(items, add_special_tokens=special))
        for each in found if max_length is not None else []:
            each.truncate(max_length)
        return found
    if not hasattr(tokenizer, "is_fast") or not callable(tokenizer):
        raise TypeError(f"tokenizer is {type(tokenizer).__name__}: give a fast tokenizer of transformers, or a Tokenizer of the package tokenizers")
    if not tokenizer.is_fast:
        raise Error(f"{type(tokenizer).__name__} computes no offsets, so private text cannot be traced to its tokens: use the fast tokenizer of the model (AutoTokenizer)")
    result = tokenizer(
        first, second, add_special_tokens=special, padding=False, truncation=max_length is not None, max_length=max_length,
        return_attention_mask=True,
    )  # fmt: skip
    if result.encodings is None:
        raise Error(f"{type(tokenizer).__name__} returned no offsets: use the fast tokenizer of the model (AutoTokenizer)")
    return list(result.encodings)


def _batch(tokenizer: Any, encodings: list[Any], texts: list[str], found: list[Found], others: list[Found] | None, side: str) -> Encoded:
    """Returns the batch, whose rows are padded to one length."""
    length = max((len(each.ids) for each in encodings), default=0)
    shape = (len(encodings), length)
    if shape[0] * shape[1] > MOST_TOKENS:
        raise Error(f"the batch has {shape[0]} x {shape[1]} tokens: give at most {MOST_TOKENS}, in several batches")
    typed = "token_type_ids" in (getattr(tokenizer, "model_input_names", None) or ())
    ids, types, real = np.full(shape, _padding_id(tokenizer), np.int64), np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    rows = []
    for at, each in enumerate(encodings):
        start = length - len(each.ids) if side == "left" else 0
        part = slice(start, start + len(each.ids))
        ids[at, part], types[at, part], real[at, part] = each.ids, each.type_ids, each.attention_mask
        pair = (found[at],) if others is None else (found[at], others[at])
        rows.append(locate_row(pair, _padded(offsets_of(each), length, side)))
    arrays = {"input_ids": ids, "attention_mask": real, **({"token_type_ids": types} if typed else {})}
    return Encoded(arrays, Tokens(tuple(rows), real.astype(np.bool_)), tuple(texts), tuple(found), tokenizer)


def _padded(row: Offsets, length: int, side: str) -> Offsets:
    missing = length - len(row.offsets)
    before, after = (missing, 0) if side == "left" else (0, missing)
    return Offsets(
        [(0, 0)] * before + list(row.offsets) + [(0, 0)] * after,
        [None] * before + list(row.sequences) + [None] * after,
        [False] * before + list(row.real) + [False] * after,
    )


def _padding_id(tokenizer: Any) -> int:
    """Returns the token of padding: the tokenizer's, else the token that ends a text, else 0; attention_mask hides it."""
    for name in ("pad_token_id", "eos_token_id"):
        found = getattr(tokenizer, name, None)
        if isinstance(found, int) and found >= 0:
            return found
    return 0

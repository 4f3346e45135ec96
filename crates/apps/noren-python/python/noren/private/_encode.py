"""Converts texts and chats to a model's tokens, and marks the tokens that contain private text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from .._noren import Error
from ..arguments._given import flag, integer, short
from ._find import Detectors, Found, Kinds, Spans, check_text, check_texts, detectors_of, items
from ._offsets import MOST_TOKENS, Offsets, array, offsets_of, text_tokens
from ._tokens import Tokens, locate_row

if TYPE_CHECKING:
    from torch import Tensor

Text = str | Sequence[Mapping[str, Any]]
"""A text, or a chat: a list of messages such as {"role": "user", "content": "..."}."""


@dataclass(frozen=True, eq=False, repr=False)
class Encoded:
    """A batch of texts as tokens, `[batch, length]`, with its private tokens; made by `encode`.

    If tokens were not made by `encode`, use `Encoded(inputs, tokens)`: `inputs` are arrays or tensors by name, with at least
    "input_ids", and `tokens` are the private tokens among them.
    """

    arrays: Mapping[str, Any]
    """The arguments of the model by name: "input_ids", "attention_mask", and others that the tokenizer returns."""
    tokens: Tokens
    """The private tokens of the batch, as `nr.private.locate` returns them."""
    texts: tuple[str, ...] = ()
    """The texts; for chats, the texts that the chat template returns. Empty if the tokens were not made by `encode`."""
    found: tuple[Found, ...] = ()
    """The private parts found in each text, in the order of `texts`."""
    tokenizer: Any = None
    """The tokenizer; None if the tokens were not made by `encode`."""

    def __repr__(self) -> str:
        return f"<{', '.join(self.arrays)}: {self.tokens!r}>"

    def __post_init__(self) -> None:
        if not isinstance(self.arrays, Mapping) or "input_ids" not in self.arrays:
            raise TypeError('the arrays are not the inputs of a model: give a dict such as {"input_ids": ids, "attention_mask": mask}')
        if not isinstance(self.tokens, Tokens):
            raise TypeError(f"`tokens` is {type(self.tokens).__name__}: give the private tokens, as nr.private.locate returns them")
        ids = self.arrays["input_ids"]
        shape = tuple(getattr(ids, "shape", ()))
        if shape != self.tokens.shape:
            raise Error(f"input_ids has shape {list(shape)}, but the private tokens belong to a batch of shape {list(self.tokens.shape)}: give [batch, length] of the same batch")
        if array("input_ids", ids).dtype.kind not in "iu":
            raise TypeError(f"input_ids holds {ids.dtype}: give whole numbers")

    @property
    def ids(self) -> NDArray[np.int64]:
        """Returns the token ids `[batch, length]`."""
        ids = self.arrays["input_ids"]
        return np.asarray(ids.detach().cpu() if hasattr(ids, "detach") else ids, np.int64)

    @cached_property
    def inputs(self) -> dict[str, Tensor]:
        """The arguments of a model of transformers, as tensors of PyTorch: `model(**encoded.inputs)`."""
        import torch

        found = {}
        for name, given in self.arrays.items():
            try:
                found[name] = torch.as_tensor(given)
            except Exception as error:
                raise TypeError(f"{name} is {short(given)}, which is not a tensor ({error}): give an array or a tensor") from None
        return found

    def names(self, row: int = 0) -> list[str]:
        """Returns the tokens of the batch row `row` as readable texts, one for each token."""
        self.tokens.row(row)
        row = integer("row", row)
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
    spans: Spans | Iterable[Spans | None] | None = None,
    max_length: int | None = None,
    add_special_tokens: bool = True,
    add_generation_prompt: bool = False,
    padding_side: Literal["left", "right"] | None = None,
    **template: Any,
) -> Encoded:
    """Converts texts to tokens, and finds the tokens that contain private text.

    `tokenizer` is a fast tokenizer of transformers or a `Tokenizer` of the package tokenizers. `texts` is one text, or a list
    of texts; an entry may also be a chat (a list of messages), which the tokenizer's chat template converts to a text, with
    `add_generation_prompt` and the other arguments `template`. If the model reads pairs of texts, `pairs` are the second texts.
    Rows are padded to the longest one, on `padding_side` [default: that of the tokenizer]. Rows longer than `max_length` tokens
    are cut: tokens of the text are removed (of a pair, first those of the longer text), never special tokens. `spans` are
    ranges of characters that are private in the text (of a chat: in the text that the template makes; of a pair: in its first
    text); for a list of texts, one entry for each text.

    >>> from tokenizers import Tokenizer, models, pre_tokenizers
    >>> words = Tokenizer(models.WordLevel({"?": 0, "Ask": 1, "Ann": 2, "now": 3}, unk_token="?"))
    >>> words.pre_tokenizer = pre_tokenizers.Whitespace()
    >>> encoded = encode(words, ["Ask Ann now", "Ask"], Detectors("email", words=["Ann"]))
    >>> encoded.ids.tolist(), encoded.tokens.private.tolist()
    ([[1, 2, 3], [1, 0, 0]], [[False, True, False], [False, False, False]])

    Raises `Error` for a tokenizer without offsets, and for chats that the template cannot write.
    """
    detectors = detectors_of(kinds, None, None, ())
    single = isinstance(texts, str) or _is_chat(texts)
    listed = [texts] if single else _listed(texts)
    chats = [not isinstance(text, str) for text in listed]
    if any(chats) and not all(chats):
        raise Error("`texts` has both plain texts and chats: give only texts or only chats")
    if template and not all(chats):
        raise TypeError(f"{', '.join(template)}: these arguments are for chat templates, but `texts` holds plain texts, so leave them out")
    special, prompt = flag("add_special_tokens", add_special_tokens), flag("add_generation_prompt", add_generation_prompt)
    first = [_written(tokenizer, text, prompt, template) for text in listed]
    second = None if pairs is None else check_texts("pairs", [pairs] if isinstance(pairs, str) else pairs)
    if second is not None and len(second) != len(first):
        raise Error(f"`pairs` has {len(second)} texts, but there are {len(first)} first texts: give one for each first text")
    most = None if max_length is None else integer("max_length", max_length)
    if most is not None and not 1 <= most <= MOST_TOKENS:
        raise Error(f"max_length is {most}: give a number of tokens from 1 to {MOST_TOKENS}, or None")
    side = getattr(tokenizer, "padding_side", "right") if padding_side is None else padding_side
    if not isinstance(side, str) or side not in ("left", "right"):
        raise Error(f'padding_side is {short(side)}: give "left" or "right"')
    encodings = _tokenized(tokenizer, first, second, special and not any(chats))
    cut_side = getattr(tokenizer, "truncation_side", "right")
    rows = [_row(each, most, "left" if cut_side == "left" else "right") for each in encodings]
    given: Any = [spans] if single else spans
    found = detectors.find_all(first, spans=given)
    others = None if second is None else detectors.find_all(second)
    return _batch(tokenizer, rows, first, found, others, side)


def _listed(texts: Any) -> list[Any]:
    if isinstance(texts, Mapping):
        raise TypeError(f"`texts` is {short(texts)}: give a text, a chat (a list of messages), or a list of texts or chats")
    return items("texts", texts)


def _is_chat(text: Any) -> bool:
    return isinstance(text, (list, tuple)) and len(text) > 0 and all(isinstance(message, Mapping) for message in text)


def _written(tokenizer: Any, text: Any, add_generation_prompt: bool, template: Mapping[str, Any]) -> str:
    """Returns a text unchanged, and for a chat the text that the chat template returns."""
    if not isinstance(text, str):
        if not _is_chat(text):
            raise TypeError(f"`texts` holds {type(text).__name__}: give texts, or chats, which are lists of messages such as {{\"role\": \"user\", \"content\": \"...\"}}")
        if not hasattr(tokenizer, "apply_chat_template"):
            raise TypeError(f"`tokenizer` is {type(tokenizer).__name__}, which has no chat template: give a tokenizer of transformers, or the text of the chat")
        if any(name in template for name in ("tokenize", "return_tensors", "return_dict")):
            raise TypeError("tokenize, return_tensors and return_dict are chosen by nr.private.encode: leave them out")
        try:
            text = tokenizer.apply_chat_template(list(text), tokenize=False, add_generation_prompt=add_generation_prompt, **template)
        except Exception as error:  # templates raise errors of Jinja, ValueError, KeyError and others
            raise Error(f"the chat template cannot write the messages ({type(error).__name__}: {error}): give messages of the roles that the template knows") from error
    check_text("a text", text)
    return str(text)


def _tokenized(tokenizer: Any, first: list[str], second: list[str] | None, special: bool) -> list[Any]:
    """Returns an `Encoding` of the package tokenizers for each text, without padding and truncation."""
    plain = hasattr(tokenizer, "encode_batch") and hasattr(tokenizer, "token_to_id")
    if not plain and not (hasattr(tokenizer, "is_fast") and callable(tokenizer)):
        raise TypeError(f"`tokenizer` is {type(tokenizer).__name__}: give a fast tokenizer of transformers, or a Tokenizer of the package tokenizers")
    if not plain and not tokenizer.is_fast:
        raise Error(f"{type(tokenizer).__name__} returns no character offsets, so private text cannot be traced to its tokens: use the fast tokenizer of the model (AutoTokenizer)")
    if not first:
        return []
    try:
        if plain:
            return list(tokenizer.encode_batch(first if second is None else list(zip(first, second, strict=True)), add_special_tokens=special))
        found = tokenizer(first, second, add_special_tokens=special, padding=False, truncation=False, return_attention_mask=True, verbose=False).encodings
    except Exception as error:  # the package tokenizers raises exceptions without a type of their own
        raise Error(f"the tokenizer cannot encode the texts ({type(error).__name__}: {error}): check the texts and the tokenizer's vocabulary") from error
    if found is None:
        raise Error(f"{type(tokenizer).__name__} returned no character offsets: use the fast tokenizer of the model (AutoTokenizer)")
    return list(found)


@dataclass(frozen=True)
class _Row:
    """The tokens of one batch row without padding."""

    ids: list[int]
    types: list[int]
    offsets: Offsets


def _row(encoding: Any, most: int | None, side: str) -> _Row:
    """Returns the tokens of an encoding, without padding and with at most `most` tokens; `side` is the side on which tokens of
    the texts are removed. None: no maximum."""
    whole_row = offsets_of(encoding)
    known = [at for at, real in enumerate(whole_row.real) if real]
    texts = [[at for at in known if whole_row.sequences[at] == number] for number in (0, 1)]
    kept = [len(text) for text in texts]
    if most is not None and len(known) > most:
        space = most - (len(known) - sum(kept))
        if space < 0:
            raise Error(f"max_length is {most}, but the tokenizer adds {most - space} special tokens: give a larger max_length")
        kept = _shared(space, kept[0], kept[1])
    dropped = {at for text, count in zip(texts, kept, strict=True) for at in (text[count:] if side == "right" else text[: len(text) - count])}
    places = [at for at in known if at not in dropped]
    cut = [token for token, at in zip(text_tokens(whole_row), (at for at, number in enumerate(whole_row.sequences) if number is not None), strict=True) if at in dropped]
    offsets = Offsets(
        [whole_row.offsets[at] for at in places], [whole_row.sequences[at] for at in places], [True] * len(places), [*whole_row.cut, *cut]
    )
    return _Row([encoding.ids[at] for at in places], [encoding.type_ids[at] for at in places], offsets)


def _shared(space: int, first: int, second: int) -> list[int]:
    """Returns the numbers of tokens that the two texts of a pair keep, if both together may have `space` tokens; `first` and
    `second` are their lengths. Tokens of the longer text are removed first, as in transformers."""
    short_one, long_one = sorted((first, second))
    long_one = short_one if short_one > space else max(short_one, space - short_one)
    if short_one + long_one > space:
        short_one, long_one = space // 2, space // 2 + space % 2
    return [short_one, long_one] if first <= second else [long_one, short_one]


def _batch(tokenizer: Any, encoded: list[_Row], texts: list[str], found: list[Found], others: list[Found] | None, side: str) -> Encoded:
    """Pads the rows to one length and returns them as a batch; `side` is the side of the padding (`left` or `right`). `found`
    and `others` are the private parts of the first and second texts."""
    length = max((len(row.ids) for row in encoded), default=0)
    shape = (len(encoded), length)
    if shape[0] * shape[1] > MOST_TOKENS:
        raise Error(f"the batch has {shape[0]} x {shape[1]} tokens: give at most {MOST_TOKENS}, in several batches")
    typed = "token_type_ids" in (getattr(tokenizer, "model_input_names", None) or ())
    ids, types, real = np.full(shape, _padding_id(tokenizer), np.int64), np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    rows = []
    for at, row in enumerate(encoded):
        start = length - len(row.ids) if side == "left" else 0
        part = slice(start, start + len(row.ids))
        ids[at, part], types[at, part], real[at, part] = row.ids, row.types, 1
        pair = (found[at],) if others is None else (found[at], others[at])
        rows.append(locate_row(pair, _padded(row.offsets, length, side)))
    arrays = {"input_ids": ids, "attention_mask": real, **({"token_type_ids": types} if typed else {})}
    return Encoded(arrays, Tokens(tuple(rows), real.astype(np.bool_)), tuple(texts), tuple(found), tokenizer)


def _padded(row: Offsets, length: int, side: str) -> Offsets:
    missing = length - len(row.offsets)
    before, after = (missing, 0) if side == "left" else (0, missing)
    return replace(
        row,
        offsets=[(0, 0)] * before + list(row.offsets) + [(0, 0)] * after,
        sequences=[None] * before + list(row.sequences) + [None] * after,
        real=[False] * before + list(row.real) + [False] * after,
    )


def _padding_id(tokenizer: Any) -> int:
    """Returns the token id for padding: that of the tokenizer's padding token, otherwise that of its token for the end of a
    text, otherwise 0. The id has no effect on outputs, because `attention_mask` hides padding."""
    padding = getattr(tokenizer, "padding", None)
    known = [padding.get("pad_id")] if isinstance(padding, dict) else []
    for found in [*known, *(getattr(tokenizer, name, None) for name in ("pad_token_id", "eos_token_id"))]:
        if isinstance(found, int) and found >= 0:
            return found
    return 0

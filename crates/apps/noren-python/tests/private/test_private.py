"""`noren.private` without models: findings, private tokens, encodings and policies, against definitions written here."""

from __future__ import annotations

import re
import unicodedata
from typing import Any

import numpy as np
import pytest

import noren as nr
from noren.private import Clearance, Detectors, Encoded, Finding, Found, Heads, Hide, Recognizer, Tokens, encode, find, locate

pytest.importorskip("tokenizers")
from private_text import PUBLIC, byte_fallback, byte_level, characters, fast, planted, tokenizers, unigram, word_piece  # noqa: E402

SECRETS = [
    ("email", "ann@x.example"), ("email", "o.b+c@mail.y.example"), ("card", "4111 1111 1111 1111"), ("ip", "10.20.30.40"),
    ("phone", "+44 20 7946 0958"), ("iban", "DE89 3704 0044 0532 0130 00"), ("name", "Ann Lee"), ("name", "李明"), ("ticket", "T-4711"),
]  # fmt: skip
KINDS = ("email", "card", "ip", "phone", "iban")
WORDS, PATTERNS = {"name": ["Ann Lee", "李明"]}, {"ticket": r"T-\d+"}


def places(found: Found) -> set[tuple[str, int, int]]:
    return {(finding.kind, finding.start, finding.end) for finding in found}


def touched(tokens: list[tuple[int, int] | None], spans: list[tuple[int, int]], text: str) -> list[bool]:
    """Returns the private tokens by definition. `tokens` has the characters of each token, None for special tokens and padding."""
    secret = np.zeros(len(text) + 1, bool)
    for start, end in spans:
        secret[start:end] = True
    real = [(at, token) for at, token in enumerate(tokens) if token is not None and token[0] < token[1]]
    empty = [(at, token[0]) for at, token in enumerate(tokens) if token is not None and token[0] == token[1]]
    marks = [token is not None and token[0] < token[1] and bool(secret[token[0] : token[1]].any()) for token in tokens]
    for at, place in empty:  # white space whose offsets the tokenizer trimmed
        marks[at] = any(start < place < end for start, end in spans)
    for c in np.flatnonzero(secret):
        if not text[c].isspace() and not any(start <= c < end for _, (start, end) in real):
            before = max((at for at, (_, end) in real if end <= c), default=-1)
            after = min((at for at, (start, _) in real if start > c), default=len(tokens))
            for at in [before, after, *(at for at, _ in empty if before < at < after)]:
                if 0 <= at < len(tokens):
                    marks[at] = True
    return marks


# --- find ---------------------------------------------------------------------------------------------------------


def test_planted_secrets_are_found_exactly() -> None:
    rng = np.random.default_rng(1)
    detectors = Detectors(KINDS, words=WORDS, patterns=PATTERNS)
    texts, wanted = zip(*(planted(rng, SECRETS) for _ in range(400)), strict=True)
    # Digits of adjacent secrets may join: texts in which two numbers are neighbours are not compared.
    for text, expected, found in zip(texts, wanted, detectors.find_all(texts), strict=True):
        joined = any(re.fullmatch(r"\s*", text[a[2] : b[1]]) for a, b in zip(expected, expected[1:], strict=False))
        if not joined:
            assert places(found) == set(expected), text
        assert all(finding.text == text[finding.start : finding.end] for finding in found)
        assert [(finding.start, finding.end) for finding in found] == sorted((finding.start, finding.end) for finding in found)
        assert "".join(part for part, _ in found.parts()) == text
        hidden = {at for _, start, end in places(found) for at in range(start, end)}
        public = "".join(c for at, c in enumerate(text) if at not in hidden)
        assert "".join(part for part, kind in found.parts() if kind is None) == public
        assert found.redacted("") == public
        assert found.looked_for == (*KINDS, "name", "ticket") and "key" in found.not_looked_for


def test_overlapping_findings_are_one_part() -> None:
    text = "see https://ann:pw@x.example/ now"
    found = find(text, "url,email", spans={"login": [(8, 15)], "whole": [(0, 29)]})
    assert len(found) >= 3 and {"url", "login", "whole"} <= {finding.kind for finding in found}
    [(part, kinds), (rest, none)] = found.parts()
    assert (part, rest, none) == (text[:29], " now", None) and set(str(kinds).split("+")) >= {"whole", "url", "login"}
    touching = find("abcd", [], spans=[(0, 2), (2, 4)])
    assert touching.parts() == [("ab", "span"), ("cd", "span")] and touching.redacted("*") == "**"


def test_characters_of_several_bytes() -> None:
    text = "\U0001f600é" + "e\u0301" + "東 ann@x.example \U0001f468\u200d\U0001f469 李明"
    found = find(text, "email", words=["李明"], spans=[(0, 1)])
    assert {(f.kind, f.text) for f in found} == {("span", "\U0001f600"), ("email", "ann@x.example"), ("word", "李明")}
    assert find("", "all").parts() == [] and len(find("", "all")) == 0


def test_texts_of_logs_have_no_secrets() -> None:
    found = find("Mail ann@x.example")
    encoded = encode(characters(), "Mail ann@x.example", "email")
    for shown in (repr(found), repr(found[0]), repr(encoded.tokens), repr(Detectors("email"))):
        assert "ann@x" not in shown
    assert "ann@x" not in repr(encoded)


def test_batches_spans_and_recognizers() -> None:
    texts = ["no secret", "Ann is here", "ann@x.example"]
    names = Recognizer(["name", "place"], lambda text: [("name", 0, 3)] if text.startswith("Ann") else [])
    found = Detectors("email", recognizers=[names]).find_all(texts, spans=[None, [range(7, 11)], {"own": [(0, 1)]}])
    assert [places(f) for f in found] == [set(), {("name", 0, 3), ("span", 7, 11)}, {("email", 0, 13), ("own", 0, 1)}]
    assert [f.looked_for for f in found] == [("email", "name", "place"), ("email", "name", "place", "span"), ("email", "name", "place", "own")]
    own = Detectors("email", recognizers=[names])
    assert [places(f) for f in own.find_all(texts)] == [set(), {("name", 0, 3)}, {("email", 0, 13)}] == [places(find(text, own)) for text in texts]
    assert own.find_all(iter(texts))[1] == find("Ann is here", own)
    with pytest.raises(nr.Error, match="spans has 1 entries but there are 3 texts"):
        own.find_all(texts, spans=[None])


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (lambda: find("x", "emial"), "emial"), (lambda: find("x", ""), "kinds has an empty name"), (lambda: find("x", ["email", " "]), "empty name"),
        (lambda: find("x", [], spans=[(0, 2)]), "the text has 1 characters"), (lambda: find("xy", [], spans=[(1, 1)]), "an end after the start"),
        (lambda: find("xy", [], spans=(0, 1)), "give .first character"), (lambda: find("xy", [], words=[""]), "is not a word"),
        (lambda: find("xy", [], words=[]), "the list has no words"), (lambda: find("xy", [], patterns={"a": "("}), "malformed"),
        (lambda: find("xy", [], patterns="a"), "patterns is "), (lambda: find("\ud800", "email"), "surrogate"), (lambda: find(3), "text is 3"),
        (lambda: find(b"x"), "text is "), (lambda: find("x", Detectors("email"), words=["a"]), "give the words, patterns and recognizers to Detectors"),
        (lambda: find("x", [], recognizers=[Recognizer(["a"], lambda text: [("b", 0, 1)])]), "with one of these kinds"),
        (lambda: find("x", [], recognizers=[Recognizer(["a"], lambda text: [("a", 0, 9)])]), "the text has 1 characters"),
        (lambda: find("x", [], recognizers=[Recognizer(["a"], lambda text: 3)]), "a recognizer returned 3"),
        (lambda: find("x", [], recognizers=[Recognizer(["a"], lambda text: "ab")]), "a recognizer returned "),
        (lambda: Recognizer(["a"], 3), "`find` is 3"), (lambda: Recognizer(3, print), "kinds is 3"), (lambda: Recognizer(["A b"], print) and find("x", recognizers=[Recognizer(["A b"], print)]), "a name is 1 to 64"),
        (lambda: find("x").redacted(3), "`replacement` is 3"), (lambda: Found("ab", (Finding("a", 1, 3, "b"),), (), ""), "the text has 2 characters"),
        (lambda: Found("ab", [3], (), ""), "`findings` holds int"), (lambda: Found(3, (), (), ""), "text is 3"),
    ],
)  # fmt: skip
def test_wrong_searches(made: Any, message: str) -> None:
    with pytest.raises((nr.Error, TypeError), match=message):
        made()


# --- locate and encode --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", list(tokenizers()))
def test_located_tokens_against_the_definition(name: str) -> None:
    tokenizer, rng = tokenizers()[name], np.random.default_rng(2)
    detectors = Detectors([], words={"name": ["Ann Lee", "李明", "e\u0301te\u0301"]}, patterns={"odd": "[½…ßÆ]|boats?|\u0301"})
    for _ in range(150):
        text, _ = planted(rng, [*SECRETS, ("odd", "ßÆ"), ("odd", "\u0301")])
        spans = [(int(a), int(a) + int(rng.integers(1, 4))) for a in rng.integers(0, max(1, len(text) - 4), rng.integers(0, 3))]
        spans = [(a, min(b, len(text))) for a, b in spans]
        found = detectors.find(text, spans=spans)
        encoding = tokenizer.encode(text)
        marks = locate(found, encoding)
        tokens = [None if special else offset for offset, special in zip(encoding.offsets, encoding.special_tokens_mask, strict=True)]
        expected = touched(tokens, [(f.start, f.end) for f in found], text)
        assert marks.private.shape == (1, len(encoding.ids)) and marks.private[0].tolist() == expected, (text, encoding.tokens)
        for kind in {f.kind for f in found}:
            assert marks.kind(kind)[0].tolist() == touched(tokens, [(f.start, f.end) for f in found if f.kind == kind], text)
        with_dict = locate(found, {"offset_mapping": np.array([encoding.offsets]), "special_tokens_mask": np.array([encoding.special_tokens_mask])})
        assert with_dict.private.tolist() == [expected]


@pytest.mark.parametrize("name", ["bytes", "byte-level", "byte-level, trimmed", "characters", "byte fallback"])
def test_tokens_whose_content_is_secret(name: str) -> None:
    """Finds private tokens by the characters and bytes that they stand for: secrets have an alphabet of their own."""
    from tokenizers import pre_tokenizers

    tokenizer, rng = tokenizers()[name], np.random.default_rng(3)
    alphabet = "李明ßÆŁ"
    own_bytes = {byte for c in alphabet for byte in c.encode()}
    seen = {c: byte for byte in range(256) for c in [_byte_char(byte)]}
    assert set(seen) == set(pre_tokenizers.ByteLevel.alphabet())
    for _ in range(100):
        secret = "".join(rng.choice(list(alphabet), int(rng.integers(1, 5))))
        text = "".join(rng.choice(["ab", "river ", "x", ". "], 4)) + secret + "".join(rng.choice([" or", "z", ", the"], 3))
        at = text.index(secret)
        encoding = tokenizer.encode(text)
        marks = locate(find(text, [], spans=[(at, at + len(secret))]), encoding).private[0]
        for token, special, private in zip(encoding.tokens, encoding.special_tokens_mask, marks, strict=True):
            if name == "characters":
                content = token in alphabet
            elif name == "byte fallback":
                content = token.startswith("<0x") and int(token[3:5], 16) in own_bytes
            else:
                content = any(seen[c] in own_bytes for c in token)
            assert bool(private) == (content and not special), (text, token)


def _byte_char(byte: int) -> str:
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    return chr(byte) if byte in shown else chr(256 + [b for b in range(256) if b not in shown].index(byte))


@pytest.mark.parametrize("name", list(tokenizers()))
@pytest.mark.parametrize("side", ["left", "right"])
def test_encoded_batches_are_those_of_transformers(name: str, side: str) -> None:
    pytest.importorskip("transformers")
    rng = np.random.default_rng(4)
    plain = tokenizers()[name]
    theirs = fast(plain, padding_side=side)
    detectors = Detectors(KINDS, words=WORDS, patterns=PATTERNS)
    for trial in range(25):
        texts, seconds = ([planted(rng, SECRETS)[0] for _ in range(3)] for _ in range(2))
        pairs = seconds if trial % 2 else None
        length = [None, 8, 13][trial % 3]
        wanted = theirs(texts, pairs, padding=True, truncation=length is not None, max_length=length)
        ids = np.array(wanted["input_ids"])
        whole = [touched_rows(theirs(text, second), (text, second), detectors) for text, second in zip(texts, pairs or [None] * 3, strict=True)]
        for tokenizer in (plain, theirs):
            encoded = encode(tokenizer, texts, detectors, pairs=pairs, max_length=length, padding_side=side)  # type: ignore[arg-type]
            assert (encoded.arrays["attention_mask"] == np.array(wanted["attention_mask"])).all()
            real = encoded.tokens.real
            assert (encoded.ids == ids)[real].all() and encoded.ids.shape == ids.shape and not encoded.tokens.private[~real].any()
            for row in range(3):
                # Every token has the mark that it has in the text that is not cut.
                kept = [at for at in range(ids.shape[1]) if real[row, at]]
                offsets = [(s, *o) for s, o in zip(wanted.encodings[row].type_ids, wanted.encodings[row].offsets, strict=True)]
                special = wanted.encodings[row].special_tokens_mask
                expected = [not special[at] and offsets[at] in whole[row] for at in kept] if length is None else None
                if expected is not None:
                    assert encoded.tokens.private[row][kept].tolist() == expected
                assert {offsets[at] for at in kept if encoded.tokens.private[row, at]} <= whole[row]
                assert {offsets[at] for at in kept if not special[at]} & whole[row] == {offsets[at] for at in kept if encoded.tokens.private[row, at]}
            located = locate([(find(a, detectors), find(b, detectors)) for a, b in zip(texts, pairs, strict=True)] if pairs else detectors.find_all(texts), wanted)
            if length is None:
                assert (located.private == encoded.tokens.private).all()


def touched_rows(encoding: Any, texts: tuple[str, str | None], detectors: Detectors) -> set[tuple[int, int, int]]:
    """Returns the private tokens of a text or a pair by definition, as (text, first character, character after the last)."""
    [encoding] = encoding.encodings
    out = set()
    for number, text in enumerate(texts):
        if text is None:
            continue
        ranges = [o if not s and (i or 0) == number else None for o, s, i in zip(encoding.offsets, encoding.special_tokens_mask, encoding.sequence_ids, strict=True)]
        marks = touched(ranges, [(f.start, f.end) for f in detectors.find(text)], text)
        out |= {(encoding.type_ids[at], *encoding.offsets[at]) for at, mark in enumerate(marks) if mark}
    return out


@pytest.mark.parametrize("name", ["byte-level", "WordPiece", "Unigram", "characters"])
def test_rows_of_one_long_text(name: str) -> None:
    """Overlapping windows have the marks of the whole text."""
    pytest.importorskip("transformers")
    tokenizer, rng = fast(tokenizers()[name]), np.random.default_rng(5)
    detectors = Detectors(KINDS, words=WORDS)
    for _ in range(20):
        texts = [planted(rng, SECRETS, 14)[0] for _ in range(2)]
        windows = tokenizer(texts, truncation=True, max_length=9, stride=3, return_overflowing_tokens=True, padding=True)
        found = detectors.find_all(texts)
        marks = locate(found, windows).private
        for row, (number, encoding) in enumerate(zip(windows["overflow_to_sample_mapping"], windows.encodings, strict=True)):
            private = {token[1:] for token in touched_rows(tokenizer(texts[number]), (texts[number], None), detectors)}
            expected = [not special and offset in private for offset, special in zip(encoding.offsets, encoding.special_tokens_mask, strict=True)]
            assert marks[row].tolist() == expected, (texts[number], encoding.tokens)
    rows = [found[number] for number in windows["overflow_to_sample_mapping"]]
    assert (locate(rows, windows).private == marks).all()


def test_truncation_marks_only_what_is_left() -> None:
    for side in ("right", "left"):
        tokenizer = fast(characters(), truncation_side=side)
        encoded = encode(tokenizer, "ann@x.example is here ann@x.example", "email", max_length=9)
        text = "".join(encoded.names()[1:-1])
        assert text == {"right": "ann@x.e", "left": "example"}[side] and encoded.tokens.count == 7
        middle = encode(tokenizer, "the river ann@x.example the boats", "email", max_length=9)
        assert middle.tokens.count == 0
    with pytest.raises(nr.Error, match="max_length is 1, but the tokenizer adds 2 special tokens"):
        encode(characters(), "abc", [], max_length=1)
    assert encode(characters(), ["abc", ""], [], max_length=2).ids.tolist() == [[2, 3], [2, 3]]


def test_dropped_characters_at_a_cut() -> None:
    """A character that the tokenizer drops is outside of every token: its neighbours are private, if they are in the row."""
    tokenizer = word_piece()
    text = "boats e\u0301 \u0301or runs"
    spans = [(9, 10)]  # a mark alone, which the tokenizer drops
    found = find(text, [], spans=spans)
    whole = locate(found, tokenizer.encode(text))
    assert whole.count == 2
    cut = encode(tokenizer, text, [], spans=spans, max_length=int(whole.private[0].nonzero()[0][0]) + 2)
    assert cut.tokens.count == 1


def test_special_tokens_in_the_text() -> None:
    tokenizer = fast(characters(), additional_special_tokens=["<|im|>"])
    text = "hi <|im|> ann@x.example <|im|>"
    encoded = encode(tokenizer, text, "email")
    names = encoded.names()
    assert names.count("<|im|>") == 2
    assert [name for name, private in zip(names, encoded.tokens.private[0], strict=True) if private] == list("ann@x.example")
    inside = encode(tokenizer, text, [], spans=[(3, 5)])
    assert [name for name, private in zip(names, inside.tokens.private[0], strict=True) if private] == ["<|im|>"]


def test_chats() -> None:
    pytest.importorskip("jinja2")
    template = "{% for m in messages %}{% if m.role == 'bad' %}{{ raise_exception('no such role') }}{% endif %}<{{ m.role }}>{{ m.content | trim }}</s>{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}{{ extra or '' }}"
    tokenizer = fast(characters(), chat_template=template, padding_side="left")
    chat = [{"role": "user", "content": "  I am Ann Lee, ann@x.example "}, {"role": "assistant", "content": "ok"}]
    encoded = encode(tokenizer, [chat, chat[:1]], Detectors("email", words=["Ann Lee"]), add_generation_prompt=True, extra="!")
    assert encoded.texts[1] == "<user>I am Ann Lee, ann@x.example</s><assistant>!"
    ids = tokenizer.apply_chat_template([chat, chat[:1]], add_generation_prompt=True, extra="!", padding=True, return_dict=True)["input_ids"]
    assert (encoded.ids == np.array(ids)).all()
    for row in range(2):
        private = "".join(name for name, mark in zip(encoded.names(row), encoded.tokens.private[row], strict=True) if mark)
        assert private == "Ann Leeann@x.example"
    single = encode(tokenizer, chat, "email", spans=[(1, 5)])
    assert single.tokens.shape[0] == 1 and single.tokens.kind("span")[0].sum() == 4
    for wrong, message in (([chat, "text"], "both plain texts and chats"), ([[{"role": "bad", "content": ""}]], "the chat template cannot write"), (chat + ["x"], "both plain texts and chats")):
        with pytest.raises(nr.Error, match=message):
            encode(tokenizer, wrong, "email", bad=1)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="these arguments are for chat templates"):
        encode(tokenizer, "text", "email", extra="!")
    with pytest.raises(TypeError, match="no chat template"):
        encode(characters(), chat, "email")


def test_offsets_of_other_texts_are_refused() -> None:
    pytest.importorskip("transformers")
    words = ["Ask", "Ann", "Lee", "now", "please"]
    text = " ".join(words)
    found = find(text, [], words=["Ann Lee"])
    for tokenizer in (word_piece(), byte_level(), unigram(), byte_fallback()):
        with pytest.raises(nr.Error, match="is_split_into_words"):
            locate(found, tokenizer.encode(words, is_pretokenized=True))
    for single in (list("李明在東京"), list("abcde"), ["a", "b"]):
        with pytest.raises(nr.Error, match="is_split_into_words"):
            locate(find("".join(single), [], spans=[(0, 1)]), word_piece().encode(single, is_pretokenized=True))
    tokenizer = fast(word_piece())
    pair = tokenizer(text, text, return_offsets_mapping=True)
    with pytest.raises(nr.Error, match="findings of one text"):
        locate(found, pair)
    with pytest.raises(nr.Error, match="give offsets in the whole text"):
        locate(found, {"offset_mapping": pair["offset_mapping"]})
    with pytest.raises(nr.Error, match="does not contain the text to which a token of a pair belongs"):
        locate([(found, found)], {"offset_mapping": [[(0, 3), (4, 7)]]})
    changed = tokenizer(text, return_tensors="np")
    changed["input_ids"][0, 1] += 1
    with pytest.raises(nr.Error, match="input_ids differ"):
        locate(found, changed)
    with pytest.raises(nr.Error, match="findings of 1 texts, but tokens of 2"):
        locate(found, tokenizer([text, text]))
    with pytest.raises(nr.Error, match="the text has .* characters"):
        locate(find("Ask", []), tokenizer(text))
    assert locate([], []).shape == (0, 0)


def test_padding_of_the_tokenizer_itself() -> None:
    tokenizer = characters()
    tokenizer.enable_padding(direction="right", pad_id=0, pad_token="[PAD]", length=30)
    encoded = encode(tokenizer, ["Ann Lee", "abc Ann Lee"], Detectors([], words=["Ann Lee"]), padding_side="left")
    assert encoded.tokens.real.sum(1).tolist() == [9, 13] and encoded.tokens.real[:, -1].all()
    assert encoded.tokens.private.sum(1).tolist() == [7, 7] and encoded.ids[0, :4].tolist() == [0] * 4
    tokenizer.no_padding()
    tokenizer.enable_truncation(5)
    cut = encode(tokenizer, "the river runs Ann Lee", Detectors([], words=["Ann Lee"]))
    assert cut.tokens.shape == (1, 5) and cut.tokens.count == 0


def test_pairs_have_findings_of_both_texts() -> None:
    encoded = encode(characters(), ["ann@x.example ab", "cd"], "email", pairs=["ef", "gh bob@y.example"], spans=[[(14, 15)], None], max_length=14)
    assert encoded.tokens.kind("span").sum() == 0 and encoded.tokens.kind("email").sum(1).tolist() == [9, 6]
    names = [[n for n, p in zip(encoded.names(row), encoded.tokens.private[row], strict=True) if p] for row in range(2)]
    assert "".join(names[0]) == "ann@x.exa" and "".join(names[1]) == "bob@y."


# --- tokens -------------------------------------------------------------------------------------------------------


def test_tokens_are_values() -> None:
    rng = np.random.default_rng(6)
    a, b, real = rng.random((3, 7)) < 0.4, rng.random((3, 7)) < 0.3, rng.random((3, 7)) < 0.8
    tokens = Tokens.of({"a": a, "b": b}, real)
    assert (tokens.private == (a | b)).all() and (tokens.kind("a") == a).all() and not tokens.kind("c").any() and tokens.count == (a | b).sum()
    assert tokens.shape == (3, 7) and (tokens.real == real).all() and tokens.kinds == ("a", "b")
    assert (tokens.row(-1).private == (a | b)[2:]).all() and (tokens.repeated(6).private == np.repeat(a | b, 2, 0)).all()
    for first, length in ((0, 7), (2, 3), (5, 9), (9, 2), (0, 0)):
        window = tokens.window(first, length)
        padded = np.pad(a | b, ((0, 0), (0, 20)))[:, first : first + length]
        assert (window.private == padded).all() and (window.real == np.pad(real, ((0, 0), (0, 20)), constant_values=True)[:, first : first + length]).all()
    chosen = rng.random((3, 7)) < 0.5
    assert (tokens.only(chosen).private == ((a | b) & chosen)).all() and (tokens.only(chosen).kind("b") == (b & chosen)).all()
    facts = tokens.facts({"labels": {"own": [[0], [1], [2]]}})
    cells = nr.parse('keys(label="private") | keys(label="own")').dense(nr.Shape.square(7, batch=3), facts)[:, 0, 0]
    assert (cells == ((a | b) | np.eye(3, 7, dtype=bool))).all()
    assert (nr.keys(label="b").dense(nr.Shape.square(7, batch=3), facts)[:, 0, 0] == b).all()


def test_encoded_by_hand() -> None:
    encoded = Encoded({"input_ids": np.arange(6).reshape(2, 3)}, Tokens.of({"a": [[1, 0, 0], [0, 0, 1]]}))
    assert encoded.names(1) == ["#3", "#4", "#5"] and encoded.found == ()
    for arrays, message in (
        ({}, "not the inputs of a model"), ({"input_ids": [[1, 2, 3]]}, "shape"), ({"input_ids": np.zeros((2, 3))}, "input_ids holds float64"),
        ({"input_ids": np.zeros((3, 2), int)}, "input_ids has shape"), (3, "not the inputs"),
    ):  # fmt: skip
        with pytest.raises((nr.Error, TypeError), match=message):
            Encoded(arrays, encoded.tokens)  # type: ignore[arg-type]


# --- policies -----------------------------------------------------------------------------------------------------


def test_policies_against_the_definition() -> None:
    rng = np.random.default_rng(7)
    for _ in range(40):
        batch, length, heads = int(rng.integers(1, 4)), int(rng.integers(1, 9)), 4
        a, b, real = (rng.random((batch, length)) < p for p in (0.3, 0.3, 0.9))
        tokens = Tokens.of({"a": a, "b": b}, real)
        private = a | b
        causal = np.tri(length, dtype=bool)[None, None].repeat(batch, 0).repeat(heads, 1)
        shape = nr.Shape.square(length, batch=batch, heads=heads)
        # Hide
        hide = Hide()
        assert (hide.mask("causal").dense(shape, hide.facts(tokens)) == (causal & ~private[:, None, None, :])).all()
        assert (hide.released(tokens) == (~private & real)).all() and (hide.secret(tokens) == private).all()
        # Clearance
        reader = int(rng.integers(0, 4))
        clearance = Clearance({"b": 2}, reader=reader)
        level = np.where(b, 2, np.where(a, 1, 0))
        expected = causal & (level[:, None, :, None] >= level[:, None, None, :])
        assert (clearance.mask("causal").dense(shape, clearance.facts(tokens)) == expected).all()
        assert (clearance.released(tokens) == ((level <= reader) & real)).all() and (clearance.secret(tokens) == (level > reader)).all()
        rule, across = clearance.across(tokens)
        assert (rule.mask("full").dense(shape, rule.facts(across))[:, 0, 0] == (level <= reader)).all()
        # Heads
        some = Heads([0, range(2, 4)])
        denied = np.array([True, False, True, True])
        assert (some.mask("causal").dense(shape, some.facts(tokens)) == (causal & ~(private[:, None, None, :] & denied[None, :, None, None]))).all()
        assert (some.released(tokens) == (~private.any(1, keepdims=True) & real)).all() and some.denied_heads(4) == [0, 2, 3]


def test_policies_are_values() -> None:
    assert Hide() == Hide() and hash(Hide()) == hash(Hide())
    assert Clearance({"a": 1}) == Clearance({"a": np.int64(1)}) and hash(Clearance({"a": 1})) == hash(Clearance({"a": 1})) and Clearance() != Clearance(reader=1)  # type: ignore[dict-item]
    assert Heads(np.array([1, 2])) == Heads(h for h in (1, 2)) and hash(Heads([1])) == hash(Heads(1)) and Heads(1).mask("full") == Heads([1]).mask("full")


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (lambda: Clearance({"a": 0}), "level of the kind `a` is 0"), (lambda: Clearance({"a": True}), r"levels\['a'\] is "), (lambda: Clearance({1: 1}), "`levels` has the key 1"),
        (lambda: Clearance(3), "`levels` is 3"), (lambda: Clearance(reader=1.5), "reader is "), (lambda: Clearance(reader=-1), "`reader` is -1"), (lambda: Clearance(reader=1 << 40), "reader is 1099511627776"),
        (lambda: Clearance({"A b": 1}), "a name is 1 to 64"), (lambda: Heads([]), "`heads` is empty"), (lambda: Heads(range(0)), "`heads` holds range"),
        (lambda: Heads(True), "heads is "), (lambda: Heads("0..2"), "heads is "), (lambda: Heads(range(0, 8, 2)), "`heads` holds"), (lambda: Heads(-1), "`heads` holds -1"),
        (lambda: Hide().mask(3), "`base` is 3"), (lambda: Hide().mask("causall"), "causal"), (lambda: Hide().facts([1]), "`tokens` is "),
        (lambda: Hide().released(None), "`tokens` is "), (lambda: Hide().secret("x"), "`tokens` is "), (lambda: Hide().facts(Tokens.of({"a": [True]}), 3), "facts"),
        (lambda: Tokens.of({}), "kinds is "), (lambda: Tokens.of({1: [True]}), "`kinds` has the key 1"), (lambda: Tokens.of({"a": [0.5]}), "holds float64"),
        (lambda: Tokens.of({"a": [True], "b": [True, False]}), "has shape"), (lambda: Tokens.of({"a": [True]}, [True, True]), "real has shape"),
        (lambda: Tokens((), [[True]]), "`real` has shape"), (lambda: Tokens([1], [[True]]), "`rows` holds no private tokens"), (lambda: Tokens.of({"a": [True]}).row(1), "`index` is 1"),
        (lambda: Tokens.of({"a": [True]}).row("0"), "index is "), (lambda: Tokens.of({"a": [True]}).window(-1, 2), "`first` is -1"), (lambda: Tokens.of({"a": [True]}).window(0, 1 << 40), "`length` is 1099511627776"),
        (lambda: Tokens.of({"a": [[True], [False]]}).repeated(3), "`batch` is 3"), (lambda: Tokens.of({"a": [True]}).repeated(0), "`batch` is 0"), (lambda: Tokens.of({"a": [True]}).only([True, True]), "`chosen` has shape"),
        (lambda: Tokens.of({"a": [True]}).kind(3), "`name` is 3"), (lambda: Hide().denied_heads("x"), "count is "),
    ],
)  # fmt: skip
def test_wrong_policies_and_tokens(made: Any, message: str) -> None:
    with pytest.raises((nr.Error, TypeError), match=message):
        made()


def test_a_public_text_of_every_script_is_public() -> None:
    rng = np.random.default_rng(8)
    for _ in range(100):
        text = unicodedata.normalize(str(rng.choice(["NFC", "NFD"])), " ".join(rng.choice(PUBLIC, 6)))
        for tokenizer in tokenizers().values():
            encoded = encode(tokenizer, text, "all")
            assert encoded.tokens.count == 0 and not encoded.tokens.kinds and Hide().released(encoded.tokens).all()

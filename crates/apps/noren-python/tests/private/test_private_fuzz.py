"""Random arguments of every public function of `noren.private`: a result, or an error of noren that names the argument."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest

import noren as nr
from conftest import runs
from noren.private import Clearance, Detectors, Encoded, Finding, Found, Heads, Hide, Recognizer, Tokens, encode, find, locate

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("tokenizers")
from private_text import characters, fast, word_piece  # noqa: E402

from noren.private import masked, pool, prove  # noqa: E402

CALLS = runs(300, 2000)
TOKENIZER = characters()
TEXTS = ["Mail ann@x.example", "no secret", "", "Ann Lee 李明 4111 1111 1111 1111"]


class Rude:
    """An object whose methods raise errors of any kind."""

    def __repr__(self) -> str:
        raise RuntimeError("no repr")

    def __len__(self) -> int:
        raise ZeroDivisionError

    def __iter__(self) -> Any:
        raise OSError("no items")

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise KeyError("no array")


JUNK: list[Callable[[], Any]] = [
    lambda: None, lambda: 3, lambda: -1, lambda: 1 << 80, lambda: -(1 << 70), lambda: 2.5, lambda: float("nan"), lambda: True, lambda: "", lambda: "x", lambda: "\ud800",
    lambda: "A b", lambda: "all", lambda: b"x", lambda: 1j, lambda: object(), Rude, lambda: [], lambda: [[]], lambda: [None], lambda: ["x", 3], lambda: [Rude()], lambda: (1, 2, 3),
    lambda: {}, lambda: {"x": 3}, lambda: {3: "x"}, lambda: {"": [(0, 1)]}, lambda: {"a b": [1]}, lambda: {None}, lambda: range(5), lambda: range(1 << 70), lambda: iter([1]), lambda: (x for x in "ab"),
    lambda: np.zeros((2, 3)), lambda: np.zeros((2, 2, 2), bool), lambda: np.array(None), lambda: np.array(["a"]), lambda: np.float32("nan"), lambda: np.zeros(0, int), lambda: np.datetime64("2020"),
    lambda: torch.zeros(2, 3), lambda: torch.tensor(1), lambda: torch.zeros(2, 2, device="meta"), lambda: torch.eye(2).to_sparse(), lambda: torch.zeros(2, 2, dtype=torch.complex64),
    lambda: print, lambda: int, lambda: (lambda *_: Rude()), lambda: Tokens, lambda: Hide, lambda: TOKENIZER, lambda: find("Ann", [], words=["Ann"]), lambda: torch.nn.Linear(2, 2), lambda: slice(1, "x"),
    lambda: [{"role": "user", "content": "x"}], lambda: [(0, 1)], lambda: [(1, 0)], lambda: {"input_ids": [[1, 2]]}, lambda: {"offset_mapping": [[(0, 9)]]},
]  # fmt: skip


@cache
def tokens() -> Tokens:
    return Tokens.of({"name": [[False, True, True], [True, False, False]]}, [[1, 1, 1], [1, 1, 0]])


@cache
def small() -> Encoded:
    return Encoded({"input_ids": np.array([[5, 6, 7], [8, 9, 0]]), "attention_mask": np.array([[1, 1, 1], [1, 1, 0]])}, tokens())


@cache
def theirs() -> Any:
    return fast(word_piece(), chat_template="{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}")


@cache
def model() -> Any:
    from transformers import AutoConfig, AutoModelForMaskedLM

    return AutoModelForMaskedLM.from_config(AutoConfig.for_model("bert", vocab_size=30, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8)).eval()


def words(rng: np.random.Generator) -> Any:
    return [["Ann Lee"], {"name": ["Ann"]}, "Ann", None][rng.integers(4)]


def run_masked(**given: Any) -> None:
    with torch.no_grad(), masked(**given):
        given["model"](**small().inputs)


TABLE = torch.randn(300, 4)
POLICY = [None, Hide(), Clearance({"name": 2}, 1), Heads(0)]
SEARCH: dict[str, list[Any]] = {
    "kinds": ["all", "email,card", [], ["phone"]], "words": [None, ["Ann"], {"name": ["Ann Lee"]}], "patterns": [None, {"ticket": r"T-\d+"}],
    "spans": [None, [(0, 2)], {"own": [(0, 1)]}], "recognizers": [(), [Recognizer(["name"], lambda text: [("name", 0, 1)] if text else [])]],
}  # fmt: skip
MAKE = {name: SEARCH[name] for name in ("kinds", "words", "patterns", "recognizers")}
# By function: the good values of each argument, and the names that messages of errors may use besides those of the arguments.
FUNCTIONS: dict[str, tuple[Callable[..., Any], dict[str, list[Any]], str]] = {
    "find": (find, {"text": TEXTS, **SEARCH}, "detector|recognizer|span"),
    "Detectors": (Detectors, MAKE, "detector|recognizer"),
    "Detectors.find": (Detectors("email", words=["Ann"]).find, {"text": TEXTS, "spans": SEARCH["spans"]}, "span|detector"),
    "Detectors.find_all": (Detectors("email", words=["Ann"]).find_all, {"texts": [TEXTS], "spans": [None, [None] * 4, [None, [(0, 1)], None, {"own": [(0, 3)]}]]}, "span|detector"),
    "Recognizer": (lambda kinds, find, text: Detectors([], recognizers=[Recognizer(kinds, find)]).find(text), {"kinds": [["name"], ["a", "b"]], "find": [lambda text: [("name", 0, 1)], lambda text: []], "text": TEXTS}, "recogni|detector"),
    "Finding": (lambda kind, start, end: Found("Ann Lee", (Finding(kind, start, end, "x"),), (), "").parts(), {"kind": ["name"], "start": [0, 2], "end": [3, 7]}, "finding"),
    "Found": (Found, {"text": TEXTS, "findings": [(), [Finding("name", 0, 1, "A")]], "looked_for": [()], "not_looked_for": [""]}, "finding"),
    "Found.redacted": (lambda replacement: find(TEXTS[0], "email").redacted(replacement), {"replacement": ["", "[{kind}]"]}, ""),
    "encode": (encode, {"tokenizer": [TOKENIZER, theirs()], "texts": [*TEXTS, TEXTS, [{"role": "user", "content": "Ann"}]], "kinds": SEARCH["kinds"], "pairs": [None, ["x"], "y", TEXTS], "spans": [None], "max_length": [None, 5, 9], "add_special_tokens": [True, False], "add_generation_prompt": [False], "padding_side": [None, "left", "right"]}, "text|chat|detector|span|template"),
    "locate": (locate, {"found": [find("Mail ann@x.example", "email"), [find(text) for text in TEXTS]], "encoding": [TOKENIZER.encode("Mail ann@x.example"), theirs()(TEXTS), theirs()("Mail ann@x.example", return_tensors="np"), {"offset_mapping": [[(0, 4), (5, 18)]]}, {"offset_mapping": Rude()}, {"input_ids": Rude()}]}, "finding|offset|special_tokens_mask|attention_mask|token|text"),
    "Tokens": (Tokens, {"rows": [tokens().rows], "real": [tokens().real]}, "private tokens"),
    "Tokens.of": (Tokens.of, {"kinds": [{"a": [True, False]}, {"a": np.zeros((2, 3), bool), "b": torch.ones(2, 3)}], "real": [None, [1, 1], np.ones((2, 3))]}, "holds|has shape|detector"),
    "Tokens.row": (tokens().row, {"index": [0, 1, -1]}, ""),
    "Tokens.only": (tokens().only, {"chosen": [np.ones((2, 3), bool), tokens().private]}, ""),
    "Tokens.window": (tokens().window, {"first": [0, 2], "length": [0, 3, 9]}, ""),
    "Tokens.repeated": (tokens().repeated, {"batch": [2, 4]}, ""),
    "Tokens.kind": (tokens().kind, {"name": ["name", "other"]}, ""),
    "Tokens.facts": (lambda facts: tokens().facts(facts), {"facts": [None, {"lengths": [2, 3]}, nr.Facts()]}, "fact|labels|offset_mapping|input_ids|`.*`"),
    "Encoded": (lambda arrays, given: Encoded(arrays, given).inputs, {"arrays": [{"input_ids": np.zeros((2, 3), int)}, {"input_ids": torch.zeros(2, 3, dtype=torch.long), "x": [1]}], "given": [tokens()]}, "tokens|array|input_ids|x is"),
    "Encoded.names": (small().names, {"row": [0, 1, -1]}, "index"),
    "Hide.mask": (Hide().mask, {"base": ["causal", nr.full()]}, "mask|name|end|expected"),
    "Hide.facts": (Hide().facts, {"tokens": [tokens(), small()], "facts": [None, {"lengths": [2, 3]}]}, "fact|labels|offset_mapping|input_ids|`.*`"),
    "Hide.released": (Hide().released, {"tokens": [tokens(), small()]}, ""),
    "Clearance.secret": (Clearance({"name": 2}).secret, {"tokens": [tokens(), small()]}, ""),
    "Clearance.across": (Clearance({"name": 2}).across, {"tokens": [tokens(), small()]}, ""),
    "Policy.denied_heads": (Heads([0, 3]).denied_heads, {"count": [0, 4]}, ""),
    "Clearance": (lambda **given: Clearance(**given).mask("full"), {"levels": [{}, {"a": 1}, {"a": np.int64(3)}], "reader": [0, 1]}, "level|detector"),
    "Heads": (lambda heads: Heads(heads).mask("full"), {"heads": [0, [1, 2], range(3), np.array([1])]}, ""),
    "pool": (pool, {"states": [torch.zeros(2, 3, 4), torch.full((2, 3, 1), torch.nan).half()], "tokens": [tokens(), small()], "policy": POLICY}, ""),
    "masked": (run_masked, {"model": [model()], "tokens": [tokens(), small()], "policy": POLICY}, "model"),
    "prove": (prove, {"model": [lambda ids: TABLE[ids], lambda ids: TABLE[ids].cumsum(1)] * 20 + [model()], "encoded": [small()], "policy": POLICY, "trials": [0, 1, 2], "seed": [0, 7], "new_tokens": [0], "choices": [range(10, 30), [4, 9]], "others": [(), [small()]], "inputs": [None, {}]}, "model|vocabulary|the private"),
}  # fmt: skip


@pytest.mark.parametrize("name", list(FUNCTIONS))
def test_random_arguments(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    function, arguments, more = FUNCTIONS[name]
    rng = np.random.default_rng(sum(map(ord, name)))
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    fine = refused = 0
    try:
        for _ in range(CALLS):
            few = rng.random() < 0.5  # one wrong argument at most, so that every check is reached
            wrong = set(rng.choice(list(arguments), 1)) if few else {argument for argument in arguments if rng.random() < 0.4}
            # The errors of a caller's own function are those of the function.
            wrong -= {"find"} if name == "Recognizer" else set()
            given = {argument: JUNK[rng.integers(len(JUNK))]() if argument in wrong else good[rng.integers(len(good))] for argument, good in arguments.items()}
            kept = {argument: value for argument, value in given.items() if argument in wrong or rng.random() < 0.9}
            given = kept if set(kept) >= set(list(arguments)[:1]) and few else given
            try:
                function(**given)
                fine += 1
            except (TypeError, ValueError) as error:
                refused += 1
                message = str(error)
                known = re.search("|".join(filter(None, [*map(re.escape, arguments), more])), message)
                missing = "missing" in message and "required" in message
                assert known or missing, (type(error), message, {key: type(value) for key, value in given.items()})
                assert isinstance(error, (nr.Error, TypeError)) or name.endswith("facts"), (type(error), message)
                assert len(message) < 2000 and "object is not" not in message and "PyO3" not in message, message
    finally:
        torch.set_num_threads(before)
    assert fine >= CALLS / 200 and refused > CALLS / 20 and fine + refused == CALLS
    assert model().config._attn_implementation != "noren_private"

"""Wrong use of a cache raises errors that name the problem, and changes nothing; caches in several threads."""

from __future__ import annotations

import copy
import pickle
import random
import re
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import noren as nr
from conftest import runs

torch = pytest.importorskip("torch")

CALLS = runs(300, 2000)
X = np.ones((2, 2, 3, 4), np.float32)
Q = np.ones((2, 4, 3, 4), np.float32)
RAW = re.compile(
    r"argument '|has no attribute|object cannot be|unsupported operand|not subscriptable|panicked|not iterable|cannot be interpreted|not supported between"
    r"|positional argument|has no len|unhashable|to PyString|invalid literal|truth value|must be (real|str|int)|out of range for|too large to convert|setting an array"
    r"|could not convert|Internal error|is negative"
)
"""Words of errors that Python, NumPy, PyTorch and PyO3 raise, and that name no argument of noren."""


def caches() -> list[nr.KvCache]:
    """Returns a cache of each form with two sequences of 6 tokens."""
    made = [
        nr.KvCache(2, 4, 40, sequences=2),
        nr.KvCache.rotating(2, 4, 5, sink_tokens=1, ahead=8, sequences=2),
        nr.KvCache.paged(2, 4, 6, block=16, sequences=2),
    ]
    for cache in made:
        cache.append(X, X)
        cache.append(X, X)
    return made


def hostile_values() -> list[Any]:
    ones = torch.ones(2, 2, 3, 4)
    return [
        None, True, -1, 0, 1, 3, 1 << 20, 1 << 40, 1 << 70, 2.5, float("nan"), "", "causal", "caus al", b"x", object(), [], [[]], [1, 2], [0, 3, 6], [3, 0],
        [-1, 0, 0], [[-1], [-1, 0]], [[-1, 0], 3], {}, {"a": 1}, {1: X}, (1, 2), range(3), range(1 << 80), range(1 << 28), np.zeros((0, 3)), X, X[0], X[:, ::-1], X.astype("f8"),
        X.astype("f2"), X.astype(">f4"), X.astype(bool), X.astype(np.uint16), X.astype(complex), X * np.nan, X.transpose(0, 2, 1, 3), np.array([[None]], object),
        np.array("a"), np.array(3), np.float32(2), np.int64(3), np.zeros((1 << 12, 1), np.float32), ones, ones.to("meta"), ones.to_sparse(), ones.clone().requires_grad_(),
        ones.to(torch.complex64), ones.bfloat16(), torch.tensor([0, 3, 6]), torch.nested.nested_tensor([ones[0], ones[0, :1]]), nr.causal(), nr.parse("causal + alibi"),
        nr.parse("causal + bias"), nr.causal().plan(4), nr.causal().bind(4), nr.Facts(), nr.Shape(3, 3), nr.padding(), nr.documents(), nr.dense("a"), nr.layers({"else": nr.causal()}),
        {"lengths": [3, 3]}, {"documents": [[3, 3], [6]]}, {"arrays": {"a": 3}}, iter([1, 2]), [1.5], ["a"], [None], lambda: 1, Exception, np.float32, torch.float16, "float16", "portable", "no isa",
    ]  # fmt: skip


def plausible(r: random.Random, name: str) -> Any:
    """Returns a value of the type that an argument has, which may or may not fit."""
    small = r.choice([0, 1, 1, 2, 2, 3, 4, 5, 7, 16, 17])
    if name in ("k", "v", "q", "bias", "soft", "additive", "relative"):
        return np.full([r.choice([1, 2, 3, 4]) for _ in range(r.choice([2, 3, 4, 4, 4, 5]))], r.choice([0.5, 1, -np.inf]), np.float32)
    if name in ("keep", "drop"):
        return np.ones([r.choice([1, 2, 3, 6]) for _ in range(r.choice([2, 3, 4]))], bool)
    if name == "cu_seqlens":
        return sorted(r.randrange(5) for _ in range(3))
    if name == "mask":
        return r.choice(["causal", "sliding(2)", "full", "tree(parents=[-1, 0, 0], start=3)", "causal & documents", "causal + softcap(2)", "prefix([1, 2])", "heads(0..2: causal)", "batch(1: full)"])
    if name in ("parents", "accepted"):
        return [r.randrange(-1, 5) for _ in range(small)]
    if name in ("alibi", "sinks"):
        return [r.random() for _ in range(r.choice([2, 4]))]
    if name in ("scale", "softcap"):
        return r.choice([0.0, -1.0, 1e-40, 1e40, 3])
    if name == "facts":
        return {r.choice(["lengths", "levels", "documents", "labels"]): r.choice([[2, 3], [[1, 2], [3]], 4, {"x": [1]}])}
    return small


SHAPE = {"kv_heads": 2, "head_dim": 4, "sequences": 1, "v_dim": None, "dtype": "float32", "isa": None}
OPTIONS = dict.fromkeys(("scale", "softcap", "bias", "relative", "alibi", "soft", "sinks", "facts", "arrays", "threads"))
FUNCTIONS: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "KvCache": (lambda _, **given: nr.KvCache(**given), {**SHAPE, "capacity": 16}),
    "rotating": (lambda _, **given: nr.KvCache.rotating(**given), {**SHAPE, "window": 16, "sink_tokens": 2, "ahead": 3}),
    "paged": (lambda _, **given: nr.KvCache.paged(**given), {**SHAPE, "blocks": 4, "block": 16}),
    "append": (nr.KvCache.append, {"k": X, "v": X, "cu_seqlens": None}),
    "append ragged": (nr.KvCache.append, {"k": X[:1], "v": X[:1], "cu_seqlens": [0, 1, 3]}),
    "attend": (nr.KvCache.attend, {"q": Q, "mask": "causal", "cu_seqlens": None, "keep": None, "drop": None, "additive": None, "return_lse": False, **OPTIONS}),
    "attend ragged": (nr.KvCache.attend, {"q": Q[:1], "mask": "causal", "cu_seqlens": [0, 1, 3], "return_lse": True, **OPTIONS}),
    "attend with a plan": (
        lambda cache, mask, **given: cache.attend(mask=cache.plan("causal", 4, 3) if mask is None else mask, **given),
        {"q": Q, "mask": None, "cu_seqlens": None, "keep": None, **OPTIONS},
    ),
    "plan": (nr.KvCache.plan, {"mask": "causal", "heads": 4, "new": 3, "cu_seqlens": None, "facts": None}),
    "key_positions": (nr.KvCache.key_positions, {"new": 3, "cu_seqlens": None}),
    "tree": (nr.KvCache.tree, {"parents": [-1, 0, 0], "window": None, "sink_tokens": None}),
    "keep": (nr.KvCache.keep, {"accepted": [0, 2], "guesses": 3, "sequence": 0}),
    "truncate": (nr.KvCache.truncate, {"length": 2, "sequence": 0}),
    "clear": (nr.KvCache.clear, {"sequence": 0}),
    "StepPlan.key_positions": (lambda cache, sequence: cache.plan("causal", 4, 3).key_positions(sequence), {"sequence": 0}),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_wrong_values_raise_errors_of_noren(name: str) -> None:
    function, usual = FUNCTIONS[name]
    r, values = random.Random(name), hostile_values()
    made = caches()
    succeeded = 0
    for call in range(CALLS):
        cache = made[call % 3]
        lengths = cache.lengths
        given = dict(usual)
        for argument in r.sample(list(usual), min(len(usual), r.choice([0, 1, 1, 1, 2, 3]))):
            given[argument] = plausible(r, argument) if r.random() < 0.5 else r.choice(values)
        try:
            function(cache, **given)
            succeeded += 1
        except (nr.Error, TypeError) as refused:
            assert not RAW.search(str(refused)) and len(str(refused)) < 1000, (given, refused)
            assert cache.lengths == lengths, given
        if cache.lengths != lengths:
            made = caches()
    assert CALLS / 40 < succeeded < CALLS


def message(call: Callable[[], Any]) -> str:
    with pytest.raises((nr.Error, TypeError)) as refused:
        call()
    return str(refused.value)


def test_errors_have_the_values_and_the_fix() -> None:
    cache = nr.KvCache(2, 4, 8, sequences=2)
    assert message(lambda: cache.attend(Q, "causal")) == "cache: sequence 0 has 0 tokens, but the step has 3 queries: append their tokens first"
    cache.append(X, X)
    assert "there is room for 8" in message(lambda: [cache.append(X, X) for _ in range(2)])
    assert message(lambda: cache.append(X.astype("f2"), X)) == 'k holds float16, but the cache holds float32: convert k, or make the cache with dtype="float16"'
    assert "give k.detach()" in message(lambda: cache.append(torch.ones(2, 2, 3, 4, requires_grad=True), X))
    assert message(lambda: cache.truncate(1)) == "the cache has 2 sequences: give sequence=, a number from 0 to 1"
    assert "give keep=mask" in message(lambda: cache.attend(Q, np.ones((3, 6), bool)))
    assert "no mask was given" in message(lambda: cache.attend(Q))
    assert "cache.plan(mask, heads, new)" in message(lambda: cache.attend(Q, nr.causal().plan(3)))
    assert "leave out facts=" in message(lambda: cache.attend(Q, cache.plan("causal", 4, 3), facts={"lengths": [3, 3]}))
    assert "`dtype` is 'float8'" in message(lambda: nr.KvCache(1, 4, 8, dtype="float8"))
    old = cache.plan("causal", 4)
    cache.append(X[:, :, :1], X[:, :, :1])
    assert "make a plan after appending" in message(lambda: cache.attend(Q[:, :, :1], old))
    assert "there is not enough memory" in message(lambda: nr.KvCache(1 << 20, 1 << 20, 1 << 20))
    for make in (pickle.dumps, copy.copy, copy.deepcopy):
        assert "cannot be pickled or copied" in message(lambda make=make: make(cache))  # type: ignore[misc]


def test_a_cache_takes_memory_when_tokens_are_written() -> None:
    started = time.perf_counter()
    cache = nr.KvCache(8, 128, 1 << 18)
    assert cache.bytes == 2 << 30 and time.perf_counter() - started < 0.5


def test_a_cache_that_another_thread_uses_raises_an_error() -> None:
    """Appends and reads from several threads: each call succeeds or raises an error, and results are those of one thread."""
    cache = nr.KvCache(2, 64, 1 << 13)
    x = np.random.default_rng(0).normal(size=(1, 2, 4096, 64)).astype(np.float32)
    cache.append(x, x)
    q = np.random.default_rng(1).normal(size=(1, 8, 4096, 64)).astype(np.float32)
    expected = cache.attend(q, "causal")
    results: list[Any] = []
    threads = [threading.Thread(target=lambda: results.append(cache.attend(q, "causal", threads=1))) for _ in range(3)]
    refused = appended = 0
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        try:
            cache.truncate(4096)  # removes nothing
            appended += 1
        except nr.Error as error:
            assert "used by another thread" in str(error)
            assert "in use" in repr(cache) or "lengths" in repr(cache)
            refused += 1
    assert len(results) == 3 and all((result == expected).all() for result in results)
    assert refused > 0 and cache.lengths == [4096]


def test_attention_releases_the_lock_of_the_interpreter() -> None:
    cache = nr.KvCache(4, 64, 1 << 13)
    x = np.ones((1, 4, 1 << 13, 64), np.float32)
    cache.append(x, x)
    done = threading.Event()
    thread = threading.Thread(target=lambda: (cache.attend(x, "causal"), done.set()))
    thread.start()
    turns = 0
    while not done.is_set():
        turns += 1
    thread.join()
    assert turns > 1000

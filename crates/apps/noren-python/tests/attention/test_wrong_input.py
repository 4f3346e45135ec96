"""Random wrong input of functions that draw, compute and make masks raises only errors of noren and TypeErrors with advice."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import noren as nr
from conftest import runs

torch = pytest.importorskip("torch")
import noren.torch as nt  # noqa: E402

X = torch.ones(1, 2, 5, 4)
CALLS = runs(100, 2000)  # of each function; a fifth of them for pictures
CELLS = torch.ones(5, 5, dtype=torch.bool)
TOKENS = nr.private.Tokens.of({"name": [[False, True, False], [True, False, False]]})
FOLD = nr.fold([[1, 2], [1, 3]])
MODULE = nt.convert(torch.nn.MultiheadAttention(8, 2, batch_first=True))
ROWS = torch.ones(2, 5, 8)
RAW = re.compile(r"object is not (iterable|callable|subscriptable)|has no attribute|not supported between|ambiguous|cannot be interpreted|unhashable|0-d array|codec|Internal error|unpack")
"""Parts of messages of Python, NumPy and PyTorch that do not name the argument."""


class Odd:
    """A sequence whose items cannot be read."""

    def __len__(self) -> int:
        return 3

    def __getitem__(self, _: Any) -> Any:
        raise KeyError

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise RuntimeError


def junk(rng: random.Random) -> Any:
    arrays: list[Any] = [
        np.zeros(0), np.zeros((2, 3)), np.ones((2, 3), bool), np.array("x"), np.array([1, "a"], object), np.array(5), np.zeros((2, 2), complex),
        np.ones((2, 3), "datetime64[s]"), torch.zeros(0), torch.ones(2, 3, dtype=torch.long), torch.ones(1, 2, 5, 4, dtype=torch.float64), torch.tensor(3),
        torch.zeros(2, 3).to_sparse(), torch.zeros(2, 3, device="meta"), torch.nested.nested_tensor([torch.zeros(2), torch.zeros(3)]), torch.zeros(2, requires_grad=True),
    ]  # fmt: skip
    others: list[Any] = [
        None, 0, -1, 2**31, 2**70, 10**400, 1.5, float("nan"), True, False, "", "x", "causal &", "\ud800", b"x", [], [[1, 2], [3]], (1, 2), {}, {1: 2}, {1, 2}, range(10**12),
        object(), object, len, lambda: None, Odd(), nr.causal(), nr.parse("causal + alibi"), nr.causal().plan(3), nr.Shape(3, 3), 1j, torch.nn.Linear(2, 2), iter([1]),
    ]  # fmt: skip
    return rng.choice(arrays if rng.random() < 0.5 else others)


def made(method: str) -> Callable[..., Any]:
    """Returns a function that calls attention with a mask function, which calls a method of its argument."""

    def call(*given: Any) -> Any:
        def mask(call: nt.MaskCall) -> Any:
            found = getattr(call, method)(*given)
            return found if isinstance(found, nr.Mask) else "causal"

        return nt.attention(X, X, X, mask)

    return call


def inputs(**given: Any) -> Any:
    with nt.mask_inputs(**given):
        return nt.attention(X, X, X, lambda call: call.keys(call.key_tokens >= 0))


DRAWN = ["ax", "batch", "head", "tokens", "tiles", "weights"]
SCORES = ["keep", "drop", "additive", "scale", "softcap", "bias", "alibi", "soft", "sinks", "facts", "query_offset"]
CASES: dict[str, tuple[Callable[..., Any], list[Any], list[str]]] = {
    "plot": (nr.causal().plot, [5], ["facts", *DRAWN]),
    "attention": (nt.attention, [X, X, X], ["mask", "dropout", "engine", *SCORES]),
    "result of a mask function": (lambda found: nt.attention(X, X, X, lambda _: found), ["causal"], []),
    "keep": (made("keep"), [CELLS], []),
    "drop": (made("drop"), [CELLS], []),
    "keys": (made("keys"), [CELLS[0]], []),
    "queries": (made("queries"), [CELLS[0]], []),
    "blocks": (made("blocks"), [CELLS[:, :1], (1, 64)], []),
    "block_maxima": (made("block_maxima"), [(1, 64)], []),
    "block_estimates": (made("block_estimates"), [64], []),
    "top_blocks": (made("top_blocks"), [torch.ones(1, 2, 5, 1), 1, (1, 64)], []),
    "mask_inputs": (inputs, [], ["tokens", "key_tokens", "facts"]),
    "set_mask": (lambda *given: nt.set_mask(*given).remove(), [MODULE, "causal"], []),
    "sdpa": (nt.sdpa, [X, X, X], ["attn_mask", "dropout_p", "is_causal", "scale", "enable_gqa"]),
    "MultiheadAttention": (MODULE, [ROWS, ROWS, ROWS], ["key_padding_mask", "need_weights", "attn_mask", "average_attn_weights", "is_causal"]),
    "fold.plan": (FOLD.plan, [], ["heads", "kv_heads", "mask"]),
    "fold.tree": (FOLD.tree, [], ["window", "chunk"]),
    "fold.unfold": (FOLD.unfold, [torch.zeros(1, 3, 2)], []),
    "fold.loss": (FOLD.loss, [torch.zeros(1, 3, 9)], []),
    "private.pool": (nr.private.pool, [torch.ones(2, 3, 4), TOKENS], ["policy"]),
    "attend of a cache": (partial(nr.KvCache.attend, nr.KvCache(2, 4, 8)), [np.ones((1, 2, 0, 4), np.float32), "causal"], ["facts", "keep", "scale"]),
}


@pytest.mark.parametrize("name", CASES)
def test_calls_with_wrong_input_raise_only_errors_with_advice(name: str) -> None:
    if name.startswith("plot"):
        matplotlib = pytest.importorskip("matplotlib")
        matplotlib.use("Agg")
        from matplotlib import pyplot
    rng = random.Random(name)
    function, arguments, names = CASES[name]
    for number in range(CALLS if not name.startswith("plot") else CALLS // 5):
        given, named = list(arguments), {}
        if given and (not names or rng.random() < 0.4):
            given[rng.randrange(len(given))] = junk(rng)
        for _ in range(rng.randint(1, 2) if names else 0):
            named[rng.choice(names)] = junk(rng)
        try:
            function(*given, **named)
        except (nr.Error, TypeError) as error:
            assert not RAW.search(str(error)), f"{given}, {named}: {error}"
        except RuntimeError as error:  # as PyTorch for tensors that do not fit
            assert name in ("sdpa", "MultiheadAttention", "attention") and not RAW.search(str(error)), f"{given}, {named}: {error}"
        finally:
            if name.startswith("plot") and number % 20 == 0:
                pyplot.close("all")


def test_the_mean_of_many_tokens_in_half_precision() -> None:
    """Tests that sums above the largest number of float16 do not become infinite."""
    tokens = nr.private.Tokens.of({"name": [[False] * 2999 + [True]]})
    for dtype in (torch.float16, torch.bfloat16):
        states = torch.full((1, 3000, 2), 100.0, dtype=dtype)
        states[0, -1] = torch.nan
        assert (nr.private.pool(states, tokens) == 100).all()

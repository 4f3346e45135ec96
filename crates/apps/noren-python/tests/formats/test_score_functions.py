"""Additive score functions of the user: `nr.from_score_mod`."""

import math

import numpy as np
import pytest
import torch

import noren as nr

LENGTH, HEADS = 96, 4
SHAPE = nr.Shape.square(LENGTH, heads=HEADS)
SLOPES = torch.tensor([2.0 ** (-2 * (head + 1)) for head in range(HEADS)])
GENERATOR = torch.Generator().manual_seed(0)
BY_DISTANCE = torch.randn(HEADS, 2 * LENGTH - 1, generator=GENERATOR)
BIAS = torch.randn(LENGTH, LENGTH, generator=GENERATOR)
IDS = torch.arange(LENGTH) // 30


def reference(function, q, k, v):
    scores = q.double() @ k.double().transpose(-1, -2) / math.sqrt(q.shape[-1])
    at = torch.arange(LENGTH)
    batch, heads = torch.arange(len(q))[:, None, None, None], torch.arange(HEADS)[:, None, None]
    return torch.softmax(function(scores, batch, heads, at[:, None], at[None]), -1) @ v.double()


@pytest.mark.parametrize(
    ("kind", "function"),
    [
        (None, lambda score, b, h, q, k: score),
        (None, lambda score, b, h, q, k: torch.where(q >= k, score, -math.inf)),
        ("alibi", lambda score, b, h, q, k: score - SLOPES[h] * (q - k).abs()),
        ("alibi", lambda score, b, h, q, k: torch.where(q >= k, score + SLOPES[h] * (k - q), -math.inf)),
        ("relative", lambda score, b, h, q, k: score + SLOPES[h] * (k - q)),
        ("relative", lambda score, b, h, q, k: score + BY_DISTANCE[h, q - k + LENGTH - 1]),
        ("relative", lambda score, b, h, q, k: torch.where((q - k).abs() < 9, score, score - 3.0)),
        ("bias", lambda score, b, h, q, k: score + BIAS[q, k]),
        ("bias", lambda score, b, h, q, k: torch.where(IDS[q] == IDS[k], score + 0.1 * h * (b + 1), -math.inf)),
    ],
)
def test_additive_functions(kind, function):
    found = nr.from_score_mod(function, nr.Shape.square(LENGTH, heads=HEADS, batch=2))
    assert list(found.arguments) == ([] if kind is None else [kind])
    q, k, v = (torch.randn(2, HEADS, LENGTH, 16, generator=GENERATOR) for _ in range(3))
    out = nr.attention(q, k, v, found.mask, **found.arguments)
    assert (out - reference(function, q, k, v)).abs().max() < 1e-5


def test_functions_of_numpy_and_numbers():
    slopes = SLOPES.numpy()
    found = nr.from_score_mod(lambda score, b, h, q, k: np.where(k <= q, score - slopes[h] * (q - k), -np.inf), SHAPE)
    assert np.allclose(found.arguments["alibi"], slopes)
    assert np.array_equal(found.mask.dense(SHAPE)[0, 0], np.tri(LENGTH, dtype=bool))
    found = nr.from_score_mod(lambda score, b, h, q, k: score - 0.5 * abs(q - k) if q >= k else -math.inf, 40)
    assert np.allclose(found.arguments["alibi"], [0.5])
    assert np.array_equal(found.mask.dense(40)[0, 0], np.tri(40, dtype=bool))


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda score, b, h, q, k: 30 * torch.tanh(score / 30), r"not additive: .* It is a softcap: give softcap=30 \(nr.softcap\(30\)\)$"),
        (lambda score, b, h, q, k: 5 * torch.tanh(score / 5) - q - 1, "softcap=5 .*as a bias"),
        (lambda score, b, h, q, k: 2 * score + k, "multiplies the score by 2: multiply scale="),
        (lambda score, b, h, q, k: score * score, "noren adds numbers to scores, and has softcap"),
        (lambda score, b, h, q, k: torch.where(score > 3, -math.inf, score), "is not additive"),
        (lambda score, b, h, q, k: q >= k, "returns bool, not floats: give a function with booleans to nr.from_mask_mod"),
        (lambda score, b, h, q, k: score * math.nan, "returns NaN or"),
        (lambda score, b, h, q, k: score + torch.rand(score.shape).double(), "random numbers"),
    ],
)
def test_refused_functions(function, message):
    with pytest.raises(nr.Error, match=message):
        nr.from_score_mod(function, SHAPE)


CLAMPS = {
    "clamp max": lambda s, b, h, q, k: s.clamp(max=9), "clamp min": lambda s, b, h, q, k: s.clamp(min=-3), "where": lambda s, b, h, q, k: torch.where(s > 10, 0, s),
    "maximum": lambda s, b, h, q, k: torch.maximum(s, torch.tensor(-3.0)), "minimum": lambda s, b, h, q, k: torch.minimum(s, torch.tensor(500.0)),
    "round": lambda s, b, h, q, k: torch.round(s * 2) / 2, "half": lambda s, b, h, q, k: s.half().float(), "bfloat16": lambda s, b, h, q, k: s.to(torch.bfloat16),
    "constant": lambda s, b, h, q, k: torch.zeros(()) + q * 0.0, "NumPy": lambda s, b, h, q, k: np.maximum(s, -40.0), "Python": lambda s, b, h, q, k: max(s, -40.0),
    "twice": lambda s, b, h, q, k: s + s, "negative": lambda s, b, h, q, k: k - s, "filled": lambda s, b, h, q, k: torch.where(q >= k, s, -1e4),
    "relu": lambda s, b, h, q, k: torch.relu(s + 50) - 50, "remainder": lambda s, b, h, q, k: s % 1000, "nan_to_num": lambda s, b, h, q, k: torch.nan_to_num(s),
    "branch": lambda s, b, h, q, k: s if s < 20 else 0.0,
}  # fmt: skip


@pytest.mark.parametrize("name", CLAMPS)
@pytest.mark.parametrize("added", [False, True])
def test_functions_that_change_some_scores_are_refused(name, added):
    function = CLAMPS[name]
    with pytest.raises(nr.Error, match="is not additive"):
        nr.from_score_mod((lambda s, b, h, q, k: function(s, b, h, q, k) - (q - k)) if added else function, 8)


def test_other_forms_of_additive_functions():
    for function, kind in (
        (lambda s, b, h, q, k: s.masked_fill(q < k, -math.inf), []), (lambda s, b, h, q, k: torch.add(s, q - k), ["relative"]),
        (lambda s, b, h, q, k: s.float() - 0.5 * (q - k).abs(), ["alibi"]), (lambda s, b, h, q, k: np.where(q >= k, s, -np.inf) + (k - q), ["alibi"]),
        (lambda s, b, h, q, k: torch.where(q >= k, s, torch.full_like(s, -math.inf)), []), (lambda s, b, h, q, k: k + s - q, ["relative"]),
    ):  # fmt: skip
        assert list(nr.from_score_mod(function, 8).arguments) == kind


def test_wrong_arguments():
    with pytest.raises(TypeError, match="the score function is 3"):
        nr.from_score_mod(3, 8)
    with pytest.raises(nr.Error, match="at most 268435456 are evaluated"):
        nr.from_score_mod(lambda score, b, h, q, k: score + h, nr.Shape.square(16384, heads=2))
    with pytest.raises(nr.Error, match="query 0 has position -4 .*give a query offset of 0 or more"):
        nr.from_score_mod(lambda score, b, h, q, k: score + k - q, nr.Shape(8, 4, query_offset=-4))
    short = torch.zeros(10)
    with pytest.raises(nr.Error, match="raises IndexError") as raised:
        nr.from_score_mod(lambda score, b, h, q, k: score + short[k], 20)
    assert isinstance(raised.value.__cause__, IndexError)


def test_far_positions_become_a_bias_instead_of_a_table_of_all_distances():
    made = nr.from_score_mod(lambda score, b, h, q, k: score + (k - q + 2**30), nr.Shape(2, 3, query_offset=2**30))
    np.testing.assert_array_equal(made.arguments["bias"][0, 0], [[0, 1, 2], [-1, 0, 1]])

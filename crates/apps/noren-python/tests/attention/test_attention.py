"""`nr.attention` over arrays of several libraries."""

from __future__ import annotations

import os
import signal
import threading
import time

import numpy as np
import pytest
from conftest import stored, tensors

import noren as nr

torch = pytest.importorskip("torch")


def plain(q, k, v, keep, scale=None):  # type: ignore[no-untyped-def]
    """Returns attention by its definition, in float64."""
    q, k, v = (np.asarray(x, np.float64) for x in (q, k, v))
    group = q.shape[1] // k.shape[1]
    k, v = (np.repeat(x, group, axis=1) for x in (k, v))
    scores = np.where(keep, q @ k.swapaxes(-1, -2) * (scale or q.shape[-1] ** -0.5), -np.inf)
    with np.errstate(invalid="ignore"):
        top = np.maximum(scores.max(-1, keepdims=True), -1e300)
        weights = np.exp(scores - top)
        total = weights.sum(-1, keepdims=True)
        return np.where(total > 0, weights @ v / np.where(total > 0, total, 1), 0)


def arrays(shape=(2, 4, 33, 16), kv_heads=2, seed=0):  # type: ignore[no-untyped-def]
    rng = np.random.default_rng(seed)
    batch, heads, length, width = shape
    make = lambda n: rng.standard_normal((batch, n, length, width), np.float32)  # noqa: E731
    return make(heads), make(kv_heads), make(kv_heads)


@pytest.mark.parametrize("case", stored(), ids=lambda c: c["name"])
def test_stored_results(case) -> None:  # type: ignore[no-untyped-def]
    t = tensors(case["name"])
    facts = {**case["facts"]}
    named = {"bias": t.get("bias"), "soft": t.get("soft"), "sinks": t.get("sinks")}
    out, lse, weights = nr.attention(
        t["q"], t["k"], t["v"], case["mask"], facts=facts, query_offset=case["query_offset"], scale=case["scale"],
        arrays={k: v for k, v in named.items() if v is not None and k in case["mask"]}, return_lse=True, return_weights=True,
    )  # fmt: skip
    tolerance = 2e-4 if case["name"] == "large_scores" else 1e-5
    finite = np.isfinite(t["lse"])
    assert np.abs(out - t["out"]).max() <= tolerance * max(1, np.abs(t["out"]).max())
    assert (np.isfinite(lse) == finite).all()
    np.testing.assert_allclose(lse[finite], t["lse"][finite], rtol=0, atol=tolerance * max(1, abs(t["lse"][finite]).max(initial=0)))
    if "sinks" not in t and "soft" not in t:
        assert np.allclose(weights.sum(-1), finite, atol=1e-5)


def test_any_strides_are_read_in_place() -> None:
    q, k, v = arrays()
    keep = nr.causal().dense(33)
    expected = plain(q, k, v, keep)
    for change in (
        lambda x: x.transpose(0, 2, 1, 3).copy().transpose(0, 2, 1, 3),
        lambda x: np.repeat(x, 2, axis=3)[..., ::2],
        lambda x: x[:, :, ::-1].copy()[:, :, ::-1],
        lambda x: np.asfortranarray(x),
    ):
        got = nr.attention(change(q), change(k), change(v), "causal")
        assert isinstance(got, np.ndarray) and got.dtype == np.float32
        assert np.abs(got - expected).max() < 1e-5
    q.setflags(write=False)
    assert np.abs(nr.attention(q, k, v, "causal") - expected).max() < 1e-5


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_pytorch_tensors(dtype: str) -> None:
    kind = getattr(torch, dtype)
    q, k, v = (torch.from_numpy(x).to(kind) for x in arrays())
    got, lse = nr.attention(q, k, v, nr.sliding(5), return_lse=True)
    assert got.dtype == kind and isinstance(got, torch.Tensor) and lse.dtype == torch.float32
    expected = plain(q.float(), k.float(), v.float(), nr.sliding(5).dense(33))
    assert np.abs(got.float().numpy() - expected).max() < {"float32": 1e-5, "bfloat16": 3e-2, "float16": 3e-3}[dtype]
    swapped = [x.transpose(1, 2).contiguous().transpose(1, 2) for x in (q, k, v)]
    assert torch.equal(nr.attention(*swapped, nr.sliding(5)), got)


def test_numpy_bfloat16() -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    q, k, v = (x.astype(ml_dtypes.bfloat16) for x in arrays())
    got = nr.attention(q, k, v, "causal")
    same = nr.attention(*(torch.from_numpy(x.astype(np.float32)).bfloat16() for x in (q, k, v)), "causal")
    assert got.dtype == q.dtype and (got.astype(np.float32) == same.float().numpy()).all()


class Foreign:
    """An array of a library that is unknown to noren."""

    def __init__(self, array: np.ndarray) -> None:
        self.array, self.shape, self.dtype = array, array.shape, array.dtype

    def __dlpack__(self, **options):  # type: ignore[no-untyped-def]
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):  # type: ignore[no-untyped-def]
        return self.array.__dlpack_device__()

    def __array_namespace__(self):  # type: ignore[no-untyped-def]
        class Namespace:
            from_dlpack = staticmethod(lambda x: Foreign(np.from_dlpack(x)))

        return Namespace


def test_the_same_kind_comes_back() -> None:
    q, k, v = arrays()
    got = nr.attention(Foreign(q), Foreign(k), Foreign(v), "causal")
    assert isinstance(got, Foreign) and (got.array == nr.attention(q, k, v, "causal")).all()


def test_score_modifiers() -> None:
    q, k, v = arrays((1, 4, 9, 8), 4)
    rng = np.random.default_rng(1)
    bias = rng.standard_normal((4, 9, 9)).astype(np.float32)
    t = [torch.from_numpy(x) for x in (q, k, v)]
    expected = torch.nn.functional.scaled_dot_product_attention(*t, attn_mask=torch.from_numpy(bias), scale=0.3)
    assert np.allclose(nr.attention(q, k, v, "full", bias=bias, scale=0.3), expected, atol=1e-5)
    assert np.allclose(nr.attention(*t, "full", bias=torch.from_numpy(bias).double(), scale=0.3), expected, atol=1e-5)
    assert np.allclose(nr.attention(q, k, v, "full + bias", arrays={"bias": bias}, scale=0.3), expected, atol=1e-5)
    table = rng.standard_normal((4, 5)).astype(np.float32)
    by_atom = nr.attention(q, k, v, "full + relative", arrays={"relative": table})
    assert np.allclose(nr.attention(q, k, v, "full", relative=table), by_atom)
    sinks = np.ones(4, np.float32)
    out, weights = nr.attention(q, k, v, "causal", sinks=sinks, return_weights=True)
    assert (weights.sum(-1) < 1).all() and np.allclose(weights @ v, out, atol=1e-5)
    slopes = nr.attention(q, k, v, "causal + alibi")
    assert np.allclose(nr.attention(q, k, v, "causal", alibi=[2 ** (-2.0 * (h + 1)) for h in range(4)]), slopes, atol=1e-6)
    dropped = nr.attention(q, k, v, "causal", dropout=0.5, seed=3)
    assert (dropped == nr.attention(q, k, v, "causal", dropout=0.5, seed=3)).all()
    assert not np.allclose(dropped, nr.attention(q, k, v, "causal", dropout=0.5, seed=4))


def test_empty_rows_are_zero() -> None:
    q, k, v = arrays((2, 2, 5, 8), 2)
    out, lse = nr.attention(q, k, v, "causal & padding(side=left)", facts={"lengths": [5, 3]}, return_lse=True)
    assert (out[1, :, :2] == 0).all() and (lse[1, :, :2] == -np.inf).all() and np.isfinite(out).all()


def on_gpu():  # type: ignore[no-untyped-def]
    """Returns an array that reports a GPU as its device."""
    return torch.empty(1, 1, 4, 8, device="meta")


Q = np.ones((1, 2, 4, 8), np.float32)


@pytest.mark.parametrize(
    ("given", "kind", "words"),
    [
        (lambda: nr.attention(Q, Q, Q, 3), TypeError, "int is not a mask"),
        (lambda: nr.attention(Q, Q, Q, np.ones((4, 4), bool)), TypeError, "give keep=mask"),
        (lambda: nr.attention(Q, Q[:, :, :3], Q[:, :, :3], "causal"), nr.Error, "give query_offset=0 if q has more tokens"),
        (lambda: nr.attention(Q, Q, Q[:, :, :3], "causal"), nr.Error, "v [1, 2, 3, 8]"),
        (lambda: nr.attention(Q, Q, Q[..., :0], "causal"), nr.Error, "v has shape [1, 2, 4, 0]"),
        (lambda: nr.attention(Q, Q, Q, "causal", relative=Q[0, :, 0, :4]), nr.Error, "relative has shape [2, 4]"),
        (lambda: nr.attention(Q, Q, Q, "causal", relative=np.ones((3, 5), np.float32)), nr.Error, "relative has shape [3, 5]"),
        (lambda: nr.attention(Q, Q, Q, nr.causal().plan(5)), nr.Error, "bind it to these sizes"),
        (lambda: nr.attention(Q, Q, Q, nr.causal().plan(nr.Shape.square(4, heads=2)), query_offset=0), nr.Error, "leave out"),
        (lambda: nr.attention(Q.astype(float), Q, Q, "causal"), nr.Error, "float32, float64"),
        (lambda: nr.attention(Q, Q.astype(np.float16), Q, "causal"), TypeError, "k holds float16"),
        (lambda: nr.attention(Q.astype(object), Q, Q, "causal"), TypeError, "object"),
        (lambda: nr.attention(Q.astype(">f4"), Q, Q, "causal"), TypeError, "byte order"),
        (lambda: nr.attention(Q[:, :, :0], Q, Q, "causal", query_offset=0), nr.Error, "q_len is 0"),
        (lambda: nr.attention(Q[..., :0], Q[..., :0], Q, "causal"), nr.Error, "every dimension must be at least 1"),
        (lambda: nr.attention(Q[0, 0, 0], Q, Q, "causal"), TypeError, "q has shape (8,)"),
        (lambda: nr.attention(Q[None], Q[None], Q[None], "causal"), TypeError, "q has shape"),
        (lambda: nr.attention([[1.0]], Q, Q, "causal"), TypeError, "is not an array"),
        (lambda: nr.attention(Q, Q, Q, "causal", scale=float("nan")), nr.Error, "scale is NaN"),
        (lambda: nr.attention(Q, Q, Q, "causal", softcap=-1.0), nr.Error, "softcap is -1"),
        (lambda: nr.attention(Q, Q, Q, "causal", dropout=1.5), nr.Error, "dropout is 1.5"),
        (lambda: nr.attention(Q, Q, Q, "causal", isa="avx9"), nr.Error, "avx9"),
        (lambda: nr.attention(Q, Q, Q, "causal", threads=0), nr.Error, "threads is 0"),
        (lambda: nr.attention(Q, Q, Q, "causal", sinks=np.ones(3)), nr.Error, "sinks"),
        (lambda: nr.attention(Q, Q, Q, "causal", bias=np.ones((3, 4))), nr.Error, "bias"),
        (lambda: nr.attention(Q, Q, Q, "causal + bias"), nr.Error, "needs the array `bias`"),
        (lambda: nr.attention(Q, Q, Q, "padding", facts={"lengths": [float("nan")]}), ValueError, "NaN"),
        (lambda: nr.attention(torch.ones(1, 1, 4, 8, requires_grad=True), *[torch.ones(1, 1, 4, 8)] * 2, "causal"),
         ValueError, "noren.torch.attention"),
        (lambda: nr.attention(on_gpu(), on_gpu(), on_gpu(), "causal"), Exception, ""),
    ],
)  # fmt: skip
def test_wrong_input_raises(given, kind, words) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(kind) as refused:
        given()
    assert words in str(refused.value)


def test_others_run_meanwhile() -> None:
    x = np.ones((1, 8, 4096, 64), np.float32)
    ticks, done = [], threading.Event()

    def tick() -> None:
        while not done.is_set():
            ticks.append(time.perf_counter())
            time.sleep(0.002)

    thread = threading.Thread(target=tick)
    thread.start()
    start = time.perf_counter()
    nr.attention(x, x, x, "full")
    end = time.perf_counter()
    done.set()
    thread.join()
    assert sum(start < at < end for at in ticks) >= min(5, (end - start) / 0.02)


def test_interrupts_end_a_long_call() -> None:
    x = np.ones((1, 16, 16384, 128), np.float32)
    threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    start = time.perf_counter()
    with pytest.raises(KeyboardInterrupt):
        nr.attention(x, x, x, "full")
    assert time.perf_counter() - start < 3


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_process_computes() -> None:
    q, k, v = arrays((1, 8, 1024, 64), 8)
    expected = nr.attention(q, k, v, "causal")
    pid = os.fork()
    if pid == 0:
        os._exit(0 if (nr.attention(q, k, v, "causal") == expected).all() else 1)
    assert os.waitpid(pid, 0)[1] == 0

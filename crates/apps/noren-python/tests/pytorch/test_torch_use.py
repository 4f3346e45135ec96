"""noren in programs of PyTorch: tracing, transforms, threads, conversion of models, empty batches, exported programs, imports."""

from __future__ import annotations

import copy
import os
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from typing import Any

import pytest

import noren as nr

torch = pytest.importorskip("torch")

import noren.torch as nt  # noqa: E402
import noren.torch._modules as modules  # noqa: E402
from noren import _noren  # noqa: E402
from noren.cpu import _scores  # noqa: E402
from torch import nn  # noqa: E402


class Calls(nn.Module):
    def __init__(self, call: Any) -> None:
        super().__init__()
        self.call = call

    def forward(self, q: Any) -> Any:
        return self.call(q)


CALLS = {
    "attention": lambda q: nt.attention(q, q, q, "causal"),
    "sdpa": lambda q: nt.sdpa(q, q, q),
    "mask": lambda q: nt.sdpa(q, q, q, attn_mask=torch.ones(6, 6, dtype=torch.bool)),
    "arrays": lambda q: nr.attention(q, q, q, "causal"),
    "float64": lambda q: nt.attention(q.double(), q.double(), q.double(), "causal"),
    "packed": lambda q: nt.varlen_attn(q[0], q[0], q[0], torch.tensor([0, 2], dtype=torch.int32), torch.tensor([0, 2], dtype=torch.int32), 2, 2),
}


@pytest.mark.parametrize("name", CALLS)
def test_tracing_is_refused(name: str) -> None:
    with pytest.raises(nr.Error, match="torch.export"):
        torch.jit.trace(Calls(CALLS[name]), torch.randn(1, 2, 6, 8), check_trace=False)


def test_tracing_a_converted_module_is_refused() -> None:
    module = nt.convert(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval())
    with pytest.raises(nr.Error, match="torch.export"):
        torch.jit.trace(module, torch.randn(1, 4, 8), check_trace=False)


@pytest.mark.parametrize("name", ["attention", "sdpa", "mask", "arrays", "float64"])
def test_transforms_are_refused(name: str) -> None:
    with pytest.raises(nr.Error, match="torch.func"):
        torch.vmap(CALLS[name])(torch.randn(3, 1, 2, 6, 8))
    with pytest.raises(nr.Error, match="torch.func"):
        torch.func.grad(lambda q: CALLS[name](q).sum())(torch.randn(1, 2, 6, 8))


@pytest.mark.parametrize("size", ["batch", "length", "keys"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_empty_batches(size: str, dtype: Any) -> None:
    batch, length = (0, 6) if size == "batch" else (2, 0)
    q = torch.randn(batch, 4, length if size != "keys" else 5, 8, dtype=dtype, requires_grad=True)
    k = torch.randn(batch, 2, length, 8, dtype=dtype, requires_grad=True)
    out, lse = nt.attention(q, k, k, "full", return_lse=True)
    assert out.shape == q.shape and lse.shape == q.shape[:-1] and (lse == -torch.inf).all() and not out.any()
    out.sum().backward()
    assert q.grad is not None and not q.grad.any() and k.grad is not None
    theirs = nn.MultiheadAttention(8, 2, batch_first=True, dtype=dtype)
    x = torch.randn(batch, length, 8, dtype=dtype)
    if size != "keys":
        for a, b in zip(theirs(x, x, x), nt.convert(copy.deepcopy(theirs))(x, x, x), strict=True):
            assert a.shape == b.shape and a.dtype == b.dtype


def test_what_cannot_be_converted() -> None:
    for module in (nn.Linear(2, 2), nn.Sequential(nn.Linear(2, 2))):
        with pytest.raises(nr.Error, match="nothing to convert.*noren.torch.attention"):
            nt.convert(module)
    with pytest.raises(TypeError, match="the class TransformerEncoderLayer"):
        nt.convert(nn.TransformerEncoderLayer)  # type: ignore[arg-type]
    converted = nt.convert(nn.MultiheadAttention(8, 2))
    assert nt.convert(converted) is converted
    transformers = pytest.importorskip("transformers")
    config = transformers.BertConfig(hidden_size=32, intermediate_size=48, num_hidden_layers=1, num_attention_heads=4, vocab_size=50)
    with pytest.raises(nr.Error, match="noren.hf.register"):
        nt.convert(transformers.BertModel(config))


def padded(lengths: list[int], length: int, side: str, kind: Any) -> tuple[Any, Any]:
    """Returns (real tokens, a mask [batch, length, length] for nn.MultiheadAttention that hides rows and columns of padding)."""
    at, sizes = torch.arange(length), torch.tensor(lengths)[:, None]
    real = at < sizes if side == "right" else at >= length - sizes
    hidden = ~(real[:, :, None] & real[:, None, :])
    return real, hidden if kind == torch.bool else torch.zeros(hidden.shape).masked_fill(hidden, -torch.inf)


@pytest.mark.parametrize("kind", [torch.bool, torch.float32])
@pytest.mark.parametrize("side", ["left", "right"])
def test_masks_repeated_in_the_wrong_order(recwarn: Any, side: str, kind: Any) -> None:
    modules._LOOKED_AT.clear()
    for lengths, heads in (([6, 3, 4], 4), ([2, 5], 4), ([5, 2, 2, 3], 2)):
        module = nt.convert(nn.MultiheadAttention(8, heads, batch_first=True))
        x = torch.randn(len(lengths), 6, 8)
        _, mask = padded(lengths, 6, side, kind)
        module(x, x, x, attn_mask=mask.repeat_interleave(heads, 0))
        module(x, x, x, attn_mask=mask[:, None])
        assert not [w for w in recwarn if "noren" in str(w.message)]
        with pytest.warns(UserWarning, match=r"not padding may read no key.*repeat_interleave"):
            module(x, x, x, attn_mask=mask.repeat(heads, 1, 1))
        recwarn.clear()
    # A causal mask with another window for each batch row has no empty rows, but the wrong order shows.
    windows = torch.stack([torch.ones(6, 6, dtype=torch.bool).tril().triu(-n) for n in (0, 1, 2)])
    module, x = nt.convert(nn.MultiheadAttention(8, 4, batch_first=True)), torch.randn(3, 6, 8)
    with pytest.warns(UserWarning, match="repeat_interleave"):
        module(x, x, x, attn_mask=~windows.repeat(4, 1, 1))


def test_rows_without_keys_of_real_tokens_are_named(recwarn: Any) -> None:
    module, x = nt.convert(nn.MultiheadAttention(8, 2, batch_first=True)), torch.randn(2, 6, 8)
    causal = torch.ones(6, 6, dtype=torch.bool).triu(1)
    left = torch.arange(6) < torch.tensor([0, 2])[:, None]
    module(x, x, x, attn_mask=causal, key_padding_mask=left)  # the first two queries of row 1 are padding
    assert not [w for w in recwarn if "noren" in str(w.message)]
    with pytest.warns(UserWarning, match="2 queries that are not padding may read no key, for example query 0 of batch row 0"):
        module(x, x, x, attn_mask=torch.ones(6, 6, dtype=torch.bool).triu(0))


def threads_of(code: str, **variables: str) -> str:
    env = {k: v for k, v in os.environ.items() if not k.endswith("_NUM_THREADS")} | variables
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_the_threads_of_pytorch_are_those_of_noren(monkeypatch: Any) -> None:
    seen = []
    real = _noren.Modifiers
    _scores._simple.cache_clear()  # other tests may have made these modifiers

    def watched(**given: Any) -> Any:
        seen.append(given.get("threads"))
        return real(**given)

    monkeypatch.setattr("noren.cpu._scores.Modifiers", watched)
    q, before = torch.randn(1, 2, 6, 8), torch.get_num_threads()
    try:
        for threads in (1, 3):
            torch.set_num_threads(threads)
            nt.attention(q, q, q, "causal", softcap=2.0)
            nr.attention(q, q, q, "causal", softcap=2.5)
            nr.attention(q, q, q, "causal", softcap=2.0 + threads, threads=2)
    finally:
        torch.set_num_threads(before)
    assert seen == [1, 1, 2, 3, 3, 2]


def test_calls_while_another_thread_compiles() -> None:
    q, keep = torch.randn(1, 2, 6, 8), torch.ones(6, 6, dtype=torch.bool).tril()
    wanted, found, compiles, called = nt.attention(q, q, q, "causal"), [], threading.Event(), threading.Event()

    def wait(graph: Any, inputs: Any) -> Any:
        compiles.set()
        called.wait(60)
        return graph

    other = threading.Thread(target=lambda: found.append(torch.compile(CALLS["attention"], backend=wait)(q)))
    other.start()
    try:
        assert compiles.wait(60) and torch.compiler.is_compiling()
        found += [nt.attention(q, q, q, keep=keep), nt.attention(q, q, q, lambda call: nr.causal()), nt.sdpa(q, q, q, keep)]
    finally:
        called.set()
        other.join()
    assert len(found) == 4 and all(torch.equal(each, wanted) for each in found)


CORES = """
    import os, time, numpy as np, noren as nr
    q = np.random.default_rng(0).normal(size=(1, 8, 2048, 64)).astype(np.float32)
    nr.attention(q, q, q, "causal")
    at, work = time.time(), time.process_time()
    for _ in range(4): nr.attention(q, q, q, "causal")
    print((time.process_time() - work) / (time.time() - at) < 1.2)
"""


@pytest.mark.parametrize("name", ["OMP_NUM_THREADS", "RAYON_NUM_THREADS"])
def test_variables_of_the_environment_limit_the_threads(name: str) -> None:
    assert threads_of(CORES, **{name: "1"}) == "True"


def test_importing_noren_does_not_import_the_compiler() -> None:
    code = "import sys, noren.torch; print([m for m in ('torch._dynamo', 'torch._inductor', 'sympy') if m in sys.modules])"
    plain = "import sys, torch; print([m for m in ('torch._dynamo', 'torch._inductor', 'sympy') if m in sys.modules])"
    assert threads_of(code) == threads_of(plain)


def test_without_pytorch_the_error_names_the_package() -> None:
    code = """
        import sys; sys.modules["torch"] = None
        import noren as nr
        for use in ("nr.to_flex('causal', 8)", "nr.guard(None)", "nr.audit(None, 'causal')", "__import__('noren.torch')"):
            try: eval(use)
            except ImportError as error: print("noren-attention[torch]" in str(error), type(error).__name__)
    """
    assert threads_of(code).splitlines() == ["True ImportError"] * 4


def test_exported_programs_compute_in_other_processes(tmp_path: Path) -> None:
    q = torch.randn(1, 2, 6, 8)
    plan = nr.Mask("stride(2)").plan(nr.Shape.square(6, batch=1, heads=2))
    calls = [
        lambda q: nt.attention(q, q, q, "sliding(2)", softcap=3.0, alibi=[0.5, 0.25]),
        lambda q: nt.attention(q, q, q, plan),
        lambda q: nt.sdpa(q, q, q, is_causal=True),
        lambda q: nt.flash_attn_varlen_func(*[q[0].transpose(0, 1)] * 3, *[torch.tensor([0, 4, 6], dtype=torch.int32)] * 2, 4, 4, causal=True),
    ]
    for i, call in enumerate(calls):
        torch.export.save(torch.export.export(Calls(call), (q,)), tmp_path / f"{i}.pt2")
    torch.save([q, *(call(q) for call in calls)], tmp_path / "right.pt")
    code = f"""
        import torch, noren.torch as nt
        nt.sdpa(*[torch.randn(1, 1, 3, 8)] * 3)
        q, *right = torch.load({str(tmp_path / "right.pt")!r})
        for i, out in enumerate(right):
            print(torch.equal(torch.export.load({str(tmp_path)!r} + f"/{{i}}.pt2").module()(q), out))
    """
    assert threads_of(code).splitlines() == ["True"] * len(calls)

"""Invalid input of any kind raises an exception that names the problem, never a crash."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from typing import Any

import numpy as np
import pytest

import noren as nr

torch = pytest.importorskip("torch")
import noren.torch as nt  # noqa: E402

X = torch.ones(1, 2, 4, 8)
EMPTY, OBJECTS = np.zeros((0, 3), bool), np.array([[None, {}], [1, 2]], object)
KEEP = np.tri(4, dtype=bool)
DENSE = [nr.recognise, nr.from_keep, nr.from_drop, nr.from_additive, lambda a: nr.recognise(a, "keep"), lambda a: nr.check(a, meant="causal")]
READERS: list[Any] = [
    *DENSE,
    nr.from_flex, nr.from_flashmask, nr.from_flashinfer, nr.from_flashinfer_bsr, nr.from_splash, nr.from_varlen,
    lambda a: nr.from_cudnn(a, 4, 4), lambda a: nr.from_magi(a, 4, 4), lambda a: nr.from_xformers(a, 4, 4),
    lambda a: nr.from_llama_cpp(a, 4), lambda a: nr.Array.keep(a), lambda a: nr.Array.additive(a),
    lambda a: nr.causal().plan(a), lambda a: nr.causal().plan(4, a), lambda a: nr.flow("causal", 4, layers=2).reach(a),
    lambda a: nr.attention(X, X, X, a), lambda a: nr.attention(a, a, a, "causal"), lambda a: nt.attention(X, X, X, a),
    lambda a: nr.to_keep(a), lambda a: nr.to_flex(a, 4), lambda a: nr.documents(a).plan(4), lambda a: nr.tree(a).plan(4),
]  # fmt: skip
HOSTILE: list[Any] = [
    None, 3.5, "", "caus al", b"causal", object(), [], [[]], {}, EMPTY, OBJECTS, np.float32("nan"), np.full((4, 4), np.nan),
    np.zeros((2, 2, 2, 2, 2), bool), np.zeros((4, 4), complex), np.array(["a"]), np.zeros((4, 4), "datetime64[s]"),
    torch.zeros(4, 4, device="meta"), torch.zeros(4, 4).to_sparse(), torch.zeros(0, 4), torch.zeros(4, 4, dtype=torch.complex64),
    [float("nan")], [1 << 70], [-1, -5, 9], {"lengths": [float("nan")]}, lambda: None, np.zeros((4, 4), np.float16)[::-1],
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(READERS)))
def test_hostile_values(number: int) -> None:
    for value in HOSTILE:
        try:
            READERS[number](value)
        except (ValueError, TypeError, RuntimeError, AttributeError, OverflowError, BufferError, IndexError, NotImplementedError) as refused:
            assert "panicked" not in str(refused) and type(refused).__name__ != "PanicException"


def test_arrays_that_lie_or_lie_elsewhere() -> None:
    flipped = KEEP[::-1, ::-1]
    assert np.array_equal(nr.from_keep(flipped).dense()[0, 0], flipped)
    spread = np.broadcast_to(np.array([True, False, True]), (3, 3))
    assert np.array_equal(nr.from_keep(spread).dense()[0, 0], spread)
    strided = torch.ones(8, 8, dtype=torch.bool).tril()[::2, ::2]
    assert np.array_equal(nr.from_keep(strided).dense()[0, 0], strided.numpy())
    for given in (X.to("meta"), X.to_sparse()):
        with pytest.raises((ValueError, TypeError, RuntimeError, BufferError, NotImplementedError)):
            nr.attention(given, given, given, "causal")
    wanting = X.clone().requires_grad_()
    with pytest.raises(ValueError, match="requires a gradient"):
        nr.attention(wanting, X, X, "causal")
    assert nr.recognise((X[0, 0] * 0).requires_grad_()[:, :4]).mask == nr.full()


def test_lists_that_would_take_all_memory() -> None:
    for endless in (range(10**12), range(1 << 80)):
        for atom in (nr.documents, nr.tree, nr.prefix):
            with pytest.raises((ValueError, OverflowError)):
                atom(endless)
    assert repr(nr.keys(range(10**12))) == "keys(0..1000000000000)"  # a range is no list


def test_a_plan_is_for_its_sizes() -> None:
    plan = nr.causal().plan(nr.Shape.square(4, heads=2))
    assert nr.attention(X, X, X, plan).shape == X.shape
    for other in (torch.ones(1, 2, 5, 8), torch.ones(1, 3, 4, 8)):
        for call in (nr.attention, nt.attention):
            with pytest.raises(nr.Error, match="bind it to these sizes"):
                call(other, other, other, plan)


def test_interrupts_end_a_long_backward_pass() -> None:
    q = torch.ones(1, 16, 8192, 128, requires_grad=True)
    out = nt.attention(q, q, q, "sliding(64)")
    call = nt.attention(q, q, q, "full", scale=1e-3) if os.cpu_count() == 1 else out
    timer = threading.Timer(0.4, lambda: os.kill(os.getpid(), signal.SIGINT))
    start = time.perf_counter()
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        for _ in range(400):
            call.sum().backward(retain_graph=True)
    assert time.perf_counter() - start < 5


def test_threads_of_python_may_share_everything() -> None:
    """Uses plans, masks and modifiers from eight threads at once, in a separate process, so that a crash is a failed test."""
    code = """
    import threading, numpy as np, noren as nr
    q = np.random.default_rng(0).normal(size=(1, 4, 128, 32)).astype(np.float32)
    plan = nr.parse("sliding(40) | causal & keys(0..4)").plan(nr.Shape.square(128, heads=4))
    expected, wrong = nr.attention(q, q, q, plan), []
    def work():
        for _ in range(50):
            if not (nr.attention(q, q, q, plan) == expected).all() or nr.to_keep(plan).shape[-1] != 128:
                wrong.append(1)
    threads = [threading.Thread(target=work) for _ in range(8)]
    [t.start() for t in threads]; [t.join() for t in threads]
    assert not wrong
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True, timeout=120)

"""Attention in float64: equal to the kernels of float32 within their rounding, with right gradients, for every score modifier."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

import noren as nr

torch = pytest.importorskip("torch")

import noren.torch as nt  # noqa: E402

SIZES = dict(batch=2, heads=4, kv_heads=2, q_len=6, kv_len=9, dim=8)


def tensors(seed: int, dtype: Any = torch.float64) -> list[Any]:
    made = torch.Generator().manual_seed(seed)
    s = SIZES
    shapes = [(s["batch"], s["heads"], s["q_len"], s["dim"]), *((s["batch"], s["kv_heads"], s["kv_len"], d) for d in (s["dim"], 5))]
    return [torch.randn(shape, generator=made, dtype=torch.float64).to(dtype) for shape in shapes]


def options(seed: int) -> dict[str, Any]:
    """Returns random score modifiers."""
    rng = np.random.default_rng(seed)
    draw = lambda *shape: torch.from_numpy(rng.normal(size=shape))  # noqa: E731
    every = {
        "scale": 0.3, "softcap": 2.0, "bias": draw(2, 1, 6, 9), "relative": draw(4, 7), "alibi": [0.5, 0.25, 0.125, 0.1],
        "soft": torch.from_numpy(rng.uniform(size=(1, 4, 6, 9)).round(1)), "sinks": draw(4), "dropout": 0.4,
    }  # fmt: skip
    return {name: value for name, value in every.items() if rng.random() < 0.5}


MASKS = [
    ("causal", {"query_offset": 3}),
    ("sliding(4) | keys(0)", {"query_offset": [3, 2]}),
    ("padding", {"facts": {"lengths": [5, 0]}, "query_offset": 0}),
    ("heads(0: full, else: stride(2))", {"query_offset": 3}),
]


@pytest.mark.parametrize("seed", range(24))
def test_float64_equals_float32_within_rounding(seed: int) -> None:
    mask, known = MASKS[seed % len(MASKS)]
    given, q, k, v = options(seed), *tensors(seed)
    leaves = [t.requires_grad_() for t in (q, k, v, *(x for x in given.values() if isinstance(x, torch.Tensor)))]
    torch.manual_seed(seed)
    out, lse = nt.attention(q, k, v, mask, **known, **given, return_lse=True)
    grads = torch.autograd.grad(out.sin().sum(), leaves, allow_unused=True)
    single = [x.float().detach().requires_grad_() for x in (q, k, v)]
    fewer = {n: x.detach().float().requires_grad_() if isinstance(x, torch.Tensor) else x for n, x in given.items()}
    torch.manual_seed(seed)
    near, near_lse = nt.attention(*single, mask, **known, **fewer, return_lse=True)
    near_grads = torch.autograd.grad(near.sin().sum(), [*single, *(x for x in fewer.values() if isinstance(x, torch.Tensor))], allow_unused=True)
    assert out.dtype == lse.dtype == torch.float64
    torch.testing.assert_close(out.float(), near, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(lse.float(), near_lse, rtol=1e-4, atol=1e-5)
    for name, a, b in zip(("q", "k", "v", *fewer), grads, near_grads, strict=False):
        torch.testing.assert_close(a.float(), b.float(), rtol=1e-3, atol=1e-4, msg=lambda text, name=name: f"{name}: {text}")


def test_gradients_and_second_derivatives() -> None:
    q, k, v = (t[:1, :, :4].clone().requires_grad_() for t in tensors(1))
    bias = torch.randn(1, 4, 4, 4, dtype=torch.float64, requires_grad=True)
    sinks = torch.randn(4, dtype=torch.float64, requires_grad=True)

    def call(q: Any, k: Any, v: Any, bias: Any, sinks: Any) -> Any:
        return nt.attention(q, k, v, "causal & window(left=2)", bias=bias, sinks=sinks, softcap=3.0)

    assert torch.autograd.gradcheck(call, (q, k, v, bias, sinks))
    assert torch.autograd.gradgradcheck(call, (q, k, v, bias, sinks))
    assert torch.autograd.gradcheck(lambda q: nt.sdpa(q, q, q, is_causal=True), (q,))


@pytest.mark.parametrize("part", [1, 2])
@pytest.mark.parametrize("odd", [float("nan"), float("inf")])
def test_hidden_values_reach_neither_results_nor_gradients(part: int, odd: float) -> None:
    given = tensors(3)
    clean = [t.clone().requires_grad_() for t in given]
    given[part][:, :, 5:] = odd
    dirty = [t.requires_grad_() for t in given]
    outs = [nt.attention(*x, "keys(0..5) & window(left=4)", query_offset=3) for x in (clean, dirty)]
    assert torch.equal(*outs)
    first, second = (torch.autograd.grad(out.square().sum(), x) for out, x in zip(outs, (clean, dirty), strict=True))
    for a, b in zip(first, second, strict=True):
        assert torch.equal(a, b)
    seen = nt.attention(*dirty, "keys(0..6)")
    assert seen.isnan().any() if part == 1 or odd != odd else seen.isinf().any()


def test_arrays_of_numpy_and_tensors_of_torch_are_equal() -> None:
    for seed in range(8):
        q, k, v = tensors(seed)
        given = options(seed) | {"seed": 7}
        found = nr.attention(q, k, v, "sliding(5)", query_offset=3, **given, return_lse=True, return_weights=True)
        plain = {n: x.numpy() if isinstance(x, torch.Tensor) else x for n, x in given.items()}
        arrays = nr.attention(*(t.numpy() for t in (q, k, v)), "sliding(5)", query_offset=3, **plain, return_lse=True, return_weights=True)
        for a, b in zip(found, arrays, strict=True):
            assert isinstance(b, np.ndarray) and b.dtype == np.float64
            np.testing.assert_allclose(a.numpy(), b, rtol=1e-12, atol=1e-14)
        near = nr.attention(*(t.float() for t in (q, k, v)), "sliding(5)", query_offset=3, **given, return_weights=True)
        np.testing.assert_allclose(found[2], near[1], rtol=1e-4, atol=1e-5)


def test_wrong_arguments_are_errors_as_in_float32() -> None:
    q, k, v = tensors(0)
    with pytest.raises(nr.Error, match="one number type"):
        nt.attention(q, k.float(), v, "full")
    with pytest.raises(nr.Error, match="softcap"):
        nt.attention(q, k, v, "full", softcap=-1.0)
    with pytest.raises(nr.Error, match="head_dim|dimension|shape"):
        nt.attention(q, k[..., :4], v, "full")
    of_text, of_argument = (nr.attention(q.numpy(), k.numpy(), v.numpy(), mask, **more) for mask, more in (("full + softcap(2)", {}), ("full", {"softcap": 2.0})))
    np.testing.assert_array_equal(of_text, of_argument)


@pytest.mark.parametrize("compiled", [False, True])
def test_modules_convert_to_double(compiled: bool) -> None:
    layer = torch.nn.TransformerEncoderLayer(16, 4, 32, dropout=0.0, batch_first=True)
    theirs = torch.nn.TransformerEncoder(layer, 1 if compiled else 2, enable_nested_tensor=False).double().train()
    own = nt.convert(copy.deepcopy(theirs))
    run = torch.compile(own, fullgraph=True, backend="aot_eager") if compiled else own
    x = torch.randn(2, 7, 16, dtype=torch.float64)
    padding = torch.arange(7) >= torch.tensor([7, 4])[:, None]
    mask = torch.nn.Transformer.generate_square_subsequent_mask(7, dtype=torch.float64)
    a, b = (f(x, mask=mask, is_causal=False, src_key_padding_mask=padding.double().masked_fill(padding, -torch.inf))[~padding] for f in (theirs, run))
    torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-13)
    for model in (theirs, own):
        (theirs if model is theirs else run)(x, mask=mask, is_causal=False)[:, :4].sum().backward()
    for p, r in zip(theirs.parameters(), own.parameters(), strict=True):
        torch.testing.assert_close(p.grad, r.grad, rtol=1e-9, atol=1e-10)


def test_autocast_keeps_float64_as_pytorch_does() -> None:
    q, k, v = tensors(0)
    with torch.autocast("cpu", torch.bfloat16):
        assert nt.attention(q, k, v, "full").dtype == torch.float64

"""`noren.torch` against PyTorch itself."""

from __future__ import annotations

import copy
import itertools
from typing import Any

import pytest
from conftest import corpus, stored, tensors

import noren as nr

torch = pytest.importorskip("torch")
import torch.nn.functional as F  # noqa: E402, N812
from torch import nn  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

import noren.torch as nt  # noqa: E402


def math(q, k, v, keep, scale=None, bias=None):  # type: ignore[no-untyped-def]
    """Returns attention by its definition in float64, differentiable; rows without a key give 0."""
    q, k, v = (x.double() for x in (q, k, v))
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    scores = q @ k.transpose(-1, -2) * (scale or q.shape[-1] ** -0.5)
    scores = (scores if bias is None else scores + bias.double()).masked_fill(~keep, -torch.inf)
    return torch.softmax(scores, -1).masked_fill(~keep.any(-1, keepdim=True), 0.0) @ v


def sdpa_math(q, k, v, keep):  # type: ignore[no-untyped-def]
    """Returns the output of PyTorch's own math backend in float64."""
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        return F.scaled_dot_product_attention(q.double(), k.double(), v.double(), keep, enable_gqa=True)


def qkv(batch=2, heads=4, kv_heads=2, q_len=33, kv_len=33, dim=16, grad=True, seed=0):  # type: ignore[no-untyped-def]
    g = torch.Generator().manual_seed(seed)
    sizes = ((heads, q_len), (kv_heads, kv_len), (kv_heads, kv_len))
    return [torch.randn(batch, n, length, dim, generator=g).requires_grad_(grad) for n, length in sizes]


def close(a: Any, b: Any, tolerance: float = 1e-5) -> None:
    worst = (a.double() - b.double()).abs().max().item()
    assert worst <= tolerance * max(1.0, b.abs().max().item()), worst


@pytest.mark.parametrize("case", [c for c in corpus() if "message" not in c.case], ids=lambda c: c.id)
def test_gradients_of_every_mask_of_the_corpus(case) -> None:  # type: ignore[no-untyped-def]
    bound = case.bind()
    s = bound.shape
    q, k, v = qkv(s.batch, s.heads, s.kv_heads, s.q_len, s.kv_len, 8)
    out = nt.attention(q, k, v, bound.plan())
    expected = sdpa_math(q, k, v, torch.from_numpy(bound.dense()))
    dout = torch.randn(out.shape, generator=torch.Generator().manual_seed(1))
    close(out, expected)
    got, want = torch.autograd.grad(out, (q, k, v), dout), torch.autograd.grad(expected, (q, k, v), dout.double())
    for a, b in zip(got, want, strict=True):
        close(a, b)


@pytest.mark.parametrize("case", stored(), ids=lambda c: c["name"])
def test_stored_gradients(case) -> None:  # type: ignore[no-untyped-def]
    t = {name: torch.from_numpy(array) for name, array in tensors(case["name"]).items()}
    spec = nr.Spec(case["mask"])
    options: dict[str, Any] = {"scale": case["scale"]}
    for score in spec.scores:
        kind = str(score).partition("(")[0]
        if kind == "alibi":
            options["alibi"] = [2 ** (-8 * (h + 1) / case["heads"]) for h in range(case["heads"])]
        elif kind == "softcap":
            options["softcap"] = float(str(score)[8:-1])
        else:
            options[kind] = t[kind].requires_grad_()
    q, k, v = (t[name].requires_grad_() for name in "qkv")
    out = nt.attention(q, k, v, spec.mask, facts=case["facts"], query_offset=case["query_offset"], **options)
    grads = torch.autograd.grad(out, (q, k, v), t["dout"])
    for name, grad in zip(("dq", "dk", "dv"), grads, strict=True):
        close(grad, t[name], 2e-4 if case["name"] == "large_scores" else 1e-5)


def test_gradients_of_biases_and_sinks() -> None:
    q, k, v = qkv()
    bias = torch.randn(4, 1, 33, requires_grad=True)
    keep = torch.from_numpy(nr.causal().dense(33))
    got = torch.autograd.grad(nt.attention(q, k, v, "causal", bias=bias).sum(), (q, bias))
    want = torch.autograd.grad(math(q, k, v, keep, bias=bias).sum(), (q, bias))
    for a, b in zip(got, want, strict=True):
        close(a, b)
    sinks, table = torch.randn(4, requires_grad=True), torch.randn(4, 5, requires_grad=True)
    nt.attention(q, k, v, "causal", sinks=sinks, relative=table).square().sum().backward()
    step = 1e-2
    for tensor in (sinks, table):
        for index in itertools.islice(itertools.product(*map(range, tensor.shape)), 3):
            values = []
            for sign in (1, -1):
                moved = tensor.detach().clone()
                moved[index] += sign * step
                other = {"sinks": sinks, "relative": table, **({"sinks": moved} if tensor is sinks else {"relative": moved})}
                values.append(nt.attention(q, k, v, "causal", **other).double().square().sum().item())
            assert abs((values[0] - values[1]) / (2 * step) - tensor.grad[index].item()) < 2e-2


@pytest.mark.parametrize("mask", ["causal", "sliding(5) | causal & keys(0..2)", "causal & documents([20, 13])", "full", "stride(3)"])
def test_gradients_are_the_slopes_of_the_output(mask: str) -> None:
    """Like `torch.autograd.gradcheck`, along random directions, to the precision of float32."""
    g = torch.Generator().manual_seed(7)
    inputs = dict(zip("qkv", qkv(), strict=True))
    inputs["bias"] = torch.randn(1, 4, 33, 33, generator=g).requires_grad_()
    inputs["soft"] = (torch.rand(2, 1, 1, 33, generator=g) * 0.7 + 0.2).requires_grad_()
    inputs["sinks"] = torch.randn(4, generator=g).requires_grad_()
    weight = torch.randn(2, 4, 33, 16, generator=g)

    def value(given: Any) -> Any:
        q, k, v, *_ = given.values()
        return (nt.attention(q, k, v, mask, softcap=3.0, bias=given["bias"], soft=given["soft"], sinks=given["sinks"]) * weight).double().sum()

    grads = dict(zip(inputs, torch.autograd.grad(value(inputs), list(inputs.values())), strict=True))
    for name, tensor in inputs.items():
        direction = torch.randn(tensor.shape, generator=g)
        direction *= 0.02 / direction.abs().max()
        with torch.no_grad():
            up, down = (value({**inputs, name: tensor + sign * direction}) for sign in (1, -1))
        slope, expected = (up - down).item() / 2, (grads[name].double() * direction).sum().item()
        assert abs(slope - expected) < 2e-2 * max(abs(expected), 0.02), name


def test_second_derivatives_are_refused() -> None:
    q, k, v = qkv()
    (grad,) = torch.autograd.grad(nt.attention(q, k, v, "causal").sum(), q, create_graph=True)
    with pytest.raises(RuntimeError, match="no second derivative: differentiate once"):
        grad.sum().backward()


def sdpa_cases() -> Any:
    g = torch.Generator().manual_seed(3)
    keep = torch.rand(9, 13, generator=g) > 0.4
    keep[2] = False
    for shape in ((2, 4), (4,), (), (2, 3, 4)):
        for mask, causal in (
            (None, False),
            (None, True),
            (keep, False),
            (keep.expand(4, 9, 13) if shape else keep, False),
            (keep[:, :1], False),
            (torch.where(keep, 0.0, -torch.inf), False),
            (torch.randn(9, 13, generator=g), False),
            (torch.randn(13, generator=g), False),
        ):
            yield shape, mask, causal


@pytest.mark.parametrize(("shape", "mask", "causal"), list(sdpa_cases()))
def test_sdpa_is_pytorchs(shape, mask, causal) -> None:  # type: ignore[no-untyped-def]
    g = torch.Generator().manual_seed(0)
    q = torch.randn(*shape, 9, 8, generator=g, requires_grad=True)
    k, v = (torch.randn(*shape, 13, n, generator=g, requires_grad=True) for n in (8, 5))
    out = nt.sdpa(q, k, v, mask, is_causal=causal, scale=0.4)
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        expected = F.scaled_dot_product_attention(q.double(), k.double(), v.double(), None if mask is None else mask.double() if mask.is_floating_point() else mask, is_causal=causal, scale=0.4)
    close(out, expected)
    dout = torch.randn(out.shape, generator=g)
    for a, b in zip(torch.autograd.grad(out, (q, k, v), dout), torch.autograd.grad(expected, (q, k, v), dout.double()), strict=True):
        close(a, b)


def test_sdpa_shares_heads_only_when_told() -> None:
    q, k, v = qkv(grad=False)
    close(nt.sdpa(q, k, v, is_causal=True, enable_gqa=True), F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True))
    with pytest.raises(RuntimeError, match="enable_gqa=True"):
        nt.sdpa(q, k, v)
    one = k[:1, :1].expand(2, 4, 33, 16)
    close(nt.sdpa(q, one, one), F.scaled_dot_product_attention(q, one, one))


def test_sdpa_sees_that_a_mask_changed() -> None:
    q, k, v = qkv(kv_heads=4, grad=False)
    mask = torch.ones(33, 33, dtype=torch.bool)
    first = nt.sdpa(q, k, v, mask)
    mask.tril_()
    assert not torch.equal(nt.sdpa(q, k, v, mask), first)
    close(nt.sdpa(q, k, v, mask), F.scaled_dot_product_attention(q, k, v, mask))


def test_dropout_follows_pytorchs_seed_and_keeps_the_mean() -> None:
    q, k, v = qkv(kv_heads=4, grad=False)
    torch.manual_seed(5)
    a, b = nt.sdpa(q, k, v, dropout_p=0.25), nt.sdpa(q, k, v, dropout_p=0.25)
    torch.manual_seed(5)
    assert torch.equal(nt.sdpa(q, k, v, dropout_p=0.25), a) and not torch.equal(a, b)
    ones = torch.ones_like(v)
    assert abs(nt.sdpa(q, k, ones, dropout_p=0.25).mean().item() - 1) < 0.02


@pytest.mark.parametrize(
    ("given", "kind", "words"),
    [
        (lambda x: nt.sdpa(x, x, x, torch.ones(4, 4, dtype=torch.bool), is_causal=True), RuntimeError, "cannot be given together"),
        (lambda x: nt.sdpa(x.double(), x, x), RuntimeError, "float64"),
        (lambda x: nt.sdpa(x.to("meta"), x, x), nr.Error, "query is on meta"),
        (lambda x: nt.sdpa(x, x.half(), x), RuntimeError, "give tensors of one number type"),
        (lambda x: nt.sdpa(x, x[..., :3], x), RuntimeError, "do not fit"),
        (lambda x: nt.sdpa(x, x, x, torch.ones(3, 3, dtype=torch.bool)), RuntimeError, "does not broadcast"),
        (lambda x: nt.sdpa(x, x, x, torch.full((4, 4), torch.finfo(torch.float32).min)), nr.Error, "use -inf"),
        (lambda x: nt.sdpa(x, x[0], x[0]), nr.Error, "equal numbers of dimensions"),
        (lambda x: nt.attention(x, x, x, nr.causal().plan(7)), nr.Error, "bind it to these sizes"),
        (lambda x: nt.attention(x.int(), x.int(), x.int(), "causal"), TypeError, "int32"),
    ],
)
def test_wrong_input_raises(given, kind, words) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(kind) as refused:
        given(torch.ones(1, 2, 4, 8))
    assert words in str(refused.value)


def test_nothing_to_attend() -> None:
    x = torch.ones(1, 2, 4, 8)
    assert nt.sdpa(x[:, :, :0], x, x).shape == (1, 2, 0, 8)
    assert torch.equal(nt.sdpa(x, x[:, :, :0], x[:, :, :0]), F.scaled_dot_product_attention(x, x[:, :, :0], x[:, :, :0]))


def test_autocast_no_grad_and_checkpointing() -> None:
    q, k, v = qkv(kv_heads=4)
    with torch.autocast("cpu", torch.bfloat16):
        assert nt.sdpa(q, k, v).dtype == nt.attention(q, k, v, "causal").dtype == torch.bfloat16
        nt.sdpa(q, k, v).sum().backward()
    assert q.grad.dtype == torch.float32
    with torch.no_grad():
        assert not nt.attention(q, k, v, "causal").requires_grad
    torch.manual_seed(2)
    kept = nt.attention(q, k, v, "causal", dropout=0.2)
    torch.manual_seed(2)
    again = checkpoint(lambda *x: nt.attention(*x, "causal", dropout=0.2), q, k, v, use_reentrant=False)
    for a, b in zip(torch.autograd.grad(kept.sum(), (q, k, v)), torch.autograd.grad(again.sum(), (q, k, v)), strict=True):
        assert torch.equal(a, b)


def test_torch_compile() -> None:
    mask, sizes = nr.sliding(5), nr.Shape.square(33, batch=2, heads=4)
    plan, keep = mask.plan(sizes), torch.from_numpy(mask.dense(33)[0, 0])
    bias = torch.randn(4, 33, 33, requires_grad=True)
    sinks = torch.randn(4, requires_grad=True)
    for f in (
        lambda q, k, v: nt.sdpa(q * 2, k, v, is_causal=True) + 1,
        lambda q, k, v: nt.sdpa(q * 2, k, v, keep) + 1,
        lambda q, k, v: nt.sdpa(q * 2, k, v, bias) + 1,
        lambda q, k, v: nt.attention(q * 2, k, v, mask, bias=bias, sinks=sinks, softcap=3.0) + 1,
        lambda q, k, v: nt.attention(q * 2, k, v, plan) + 1,
    ):
        q, k, v = qkv(kv_heads=4)
        inputs = (q, k, v, bias, sinks)
        torch.compiler.reset()
        out, eager = torch.compile(f, fullgraph=True, backend="aot_eager")(q, k, v), f(q, k, v)
        close(out, eager)
        got, want = (torch.autograd.grad(x.square().sum(), inputs, allow_unused=True) for x in (out, eager))
        for a, b in zip(got, want, strict=True):
            assert (a is None) == (b is None)
            if a is not None:
                close(a, b)


def test_the_operator_keeps_its_promises() -> None:
    from noren.torch._function import source_of, operator

    q, k, v = qkv(kv_heads=4)
    source = source_of(nr.causal(), None, None, None, None, 0.0)
    bias = torch.randn(1, 1, 33, 33, requires_grad=True)
    torch.library.opcheck(operator, (q, k, v, [bias], None, None, None, None, [], source))


def modules(**options: Any) -> Any:
    torch.manual_seed(0)
    theirs = nn.MultiheadAttention(32, 4, batch_first=True, **options)
    return theirs, nt.convert(nn.ModuleList([copy.deepcopy(theirs)]))[0]


def test_multihead_attention_is_pytorchs() -> None:
    x, y = torch.randn(3, 7, 32), torch.randn(3, 9, 32)
    drop, padding = torch.triu(torch.ones(7, 7, dtype=torch.bool), 1), torch.zeros(3, 7, dtype=torch.bool)
    padding[1, 5:] = True
    per_head = torch.rand(12, 7, 7) > 0.7
    per_head[:, :, 0] = False
    for options in ({}, {"bias": False}, {"kdim": 16, "vdim": 8}):
        theirs, ours = modules(**options)
        assert isinstance(ours, nt.MultiheadAttention)
        kv = (x, x) if "kdim" not in options else (torch.randn(3, 7, 16), torch.randn(3, 7, 8))
        for given in (
            {},
            {"attn_mask": drop, "is_causal": True},
            {"attn_mask": per_head},
            {"key_padding_mask": padding},
            {"key_padding_mask": padding, "attn_mask": drop},
            {"attn_mask": torch.randn(7, 7)},
            {"key_padding_mask": torch.where(padding, -torch.inf, 0.0)},
            {"average_attn_weights": False},
            {"need_weights": False},
        ):
            a, b = theirs(x, *kv, **given), ours(x, *kv, **given)
            close(b[0], a[0])
            if a[1] is not None:
                close(b[1], a[1])
            grads = [torch.autograd.grad(out[0].square().sum(), list(m.parameters())) for out, m in ((a, theirs), (b, ours))]
            for want, got in zip(*grads, strict=True):
                close(got, want)
    theirs, ours = modules()
    close(ours(x, y, y)[0], theirs(x, y, y)[0])
    close(ours(x[0], y[0], y[0])[0], theirs(x[0], y[0], y[0])[0])
    close(ours(x, x, x, attn_mask=nr.causal())[0], theirs(x, x, x, attn_mask=drop)[0])
    for options in ({"add_bias_kv": True}, {"add_zero_attn": True}, {"add_bias_kv": True, "add_zero_attn": True}):
        theirs, ours = modules(**options)
        for given in ({}, {"attn_mask": drop}, {"attn_mask": drop, "key_padding_mask": padding}, {"key_padding_mask": padding}):
            for a, b in zip(theirs(x, x, x, **given), ours(x, x, x, **given), strict=True):
                close(b, a)
        close(ours(x, x, x, attn_mask=nr.causal())[0], theirs(x, x, x, attn_mask=drop)[0])


def test_converted_transformers_are_pytorchs() -> None:
    torch.manual_seed(0)
    for norm_first in (False, True):
        layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True, norm_first=norm_first)
        theirs = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        ours = nt.convert(copy.deepcopy(theirs))
        x, padding = torch.randn(3, 9, 32), torch.zeros(3, 9, dtype=torch.bool)
        padding[2, 4:] = True
        for training in (True, False):
            theirs.train(training), ours.train(training)
            a = theirs(x, src_key_padding_mask=padding)[~padding]
            b = ours(x, src_key_padding_mask=padding)[~padding]
            close(b, a)
    decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(32, 4, 64, dropout=0.0, batch_first=True), 2)
    ours = nt.convert(copy.deepcopy(decoder))
    causal = nn.Transformer.generate_square_subsequent_mask(9)
    close(ours(x, x, tgt_mask=causal), decoder(x, x, tgt_mask=causal))

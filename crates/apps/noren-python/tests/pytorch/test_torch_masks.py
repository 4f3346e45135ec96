"""Masks in the form in which PyTorch's modules pass them, masks that change, and errors that name the wrong argument."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

import noren as nr

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

import noren.torch as nt  # noqa: E402
from noren.torch import _masks  # noqa: E402

X = torch.randn(1, 4, 8, 16, generator=torch.Generator().manual_seed(0))
Y = torch.randn(2, 8, 16, generator=torch.Generator().manual_seed(1))
NAN = float("nan")


def mha(**options: Any) -> Any:
    torch.manual_seed(0)
    return nt.MultiheadAttention(16, 4, **{"batch_first": True, **options})


# --- masks that change ---------------------------------------------------------------------------------------------------


def test_a_mask_made_in_inference_mode() -> None:
    with torch.inference_mode():
        keep = torch.ones(8, 8, dtype=torch.bool).tril()
        assert torch.equal(nt.sdpa(X, X, X, keep), nt.sdpa(X, X, X, is_causal=True))
        keep.fill_(True)
        assert torch.equal(nt.sdpa(X, X, X, keep), nt.sdpa(X, X, X))


@pytest.mark.parametrize("dtype", [torch.bool, torch.float32])
def test_changes_that_no_version_counts(dtype: Any) -> None:
    every = torch.ones(8, 8, dtype=torch.bool) if dtype == torch.bool else torch.zeros(8, 8)
    some = every.tril() if dtype == torch.bool else every.masked_fill(torch.ones(8, 8).triu(1).bool(), -torch.inf)
    full, causal = nt.sdpa(X, X, X), nt.sdpa(X, X, X, is_causal=True)
    mask = every.clone()
    assert torch.equal(nt.sdpa(X, X, X, mask), full)
    mask.numpy()[:] = some.numpy()
    assert torch.equal(nt.sdpa(X, X, X, mask), causal)
    mask.data = every.clone()
    assert torch.equal(nt.sdpa(X, X, X, mask), full)
    mask.data[:] = some
    assert torch.equal(nt.sdpa(X, X, X, mask), causal)
    mask.untyped_storage().copy_(every.untyped_storage())
    assert torch.equal(nt.sdpa(X, X, X, mask), full)


def test_plans_are_forgotten_by_what_they_take() -> None:
    plans = _masks.Plans(1000)
    for key in range(10):
        plans.put(key, _masks.Kept(nr.causal().plan(4), 300))
        assert plans.bytes <= 1000 and plans.get(key) is not None
    assert [plans.get(key) is None for key in range(10)] == [True] * 7 + [False] * 3
    plans.put(10, _masks.Kept(nr.causal().plan(4), 5000))  # the last one stays whatever it takes
    assert plans.get(10) is not None and plans.get(9) is None and plans.bytes == 5000


# --- the negative bit ------------------------------------------------------------------------------------------------------


def test_the_negative_bit_is_a_sign() -> None:
    def negative(*shape: int) -> Any:
        found = torch.complex(torch.zeros(shape), torch.randn(shape)).conj().imag
        assert found.is_neg()
        return found

    z, bias, sinks = negative(1, 4, 8, 16), negative(8, 8), negative(4)
    plain = z.clone()
    assert torch.equal(nt.sdpa(z, z, z), nt.sdpa(plain, plain, plain))
    assert torch.equal(nr.attention(z, z, z, "full"), nr.attention(plain, plain, plain, "full"))
    for call in (nr.attention, nt.attention):
        assert torch.equal(
            call(z, z, z, "full", bias=bias, sinks=sinks), call(plain, plain, plain, "full", bias=bias.clone(), sinks=sinks.clone())
        )
    leaf = z.clone().requires_grad_()
    (got,) = torch.autograd.grad(nt.sdpa(leaf, leaf, leaf), leaf, z)
    (want,) = torch.autograd.grad(nt.sdpa(leaf, leaf, leaf), leaf, plain)
    assert torch.equal(got, want)
    assert np.array_equal(nr.Array.additive(-torch.zeros(2, 2)).shape, [1, 1, 2, 2])


# --- what PyTorch's transformers hand on -------------------------------------------------------------------------------------


def encoder(layers: int = 2, **options: Any) -> tuple[Any, Any]:
    torch.manual_seed(0)
    theirs = nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 4, 32, dropout=0.0, batch_first=True, **options), layers, enable_nested_tensor=False)
    return theirs, nt.convert(copy.deepcopy(theirs))


def float_mask(drop: Any, lowest: float) -> Any:
    return torch.zeros(drop.shape).masked_fill(drop, lowest)


PADDING = torch.tensor([[False] * 8, [False] * 5 + [True] * 3])
CAUSAL = torch.ones(8, 8, dtype=torch.bool).triu(1)
WINDOW = CAUSAL | torch.ones(8, 8, dtype=torch.bool).tril(-3)


@pytest.mark.parametrize("train", [True, False])
@pytest.mark.parametrize("norm_first", [True, False])
@pytest.mark.parametrize("form", ["bool", "-inf", "lowest"])
def test_the_encoder_of_pytorch_holds_the_guarantees(form: str, norm_first: bool, train: bool) -> None:
    theirs, ours = encoder(norm_first=norm_first)
    theirs.train(train), ours.train(train)
    make = {"bool": lambda drop: drop, "-inf": lambda drop: float_mask(drop, -torch.inf), "lowest": lambda drop: float_mask(drop, torch.finfo(torch.float32).min)}[form]
    real = ~PADDING
    for mask, is_causal in ((None, None), (CAUSAL, True), (CAUSAL, None), (WINDOW, False)):
        given = {"src_key_padding_mask": make(PADDING), "is_causal": is_causal}
        if mask is not None:
            given["mask"] = make(mask)
        out = ours(Y, **given)
        worst = (out[real] - theirs(Y, **given)[real]).abs().max().item()
        assert worst < 1e-5, (mask, worst)
        grads = []
        for hidden in (NAN, torch.inf, 7.0, 0.0):
            spoiled = Y.masked_fill(PADDING[..., None], hidden).requires_grad_()
            again = ours(spoiled, **given)
            assert torch.equal(again[real], out[real])
            if hidden in (7.0, 0.0):  # LayerNorm's own backward pass turns 0 into NaN in rows of NaN
                grads += torch.autograd.grad(again[real].square().sum(), spoiled)
        assert torch.equal(grads[0][real], grads[1][real]) and all((grad[PADDING] == 0).all() for grad in grads)


@pytest.mark.parametrize("form", ["bool", "-inf"])
def test_the_decoder_of_pytorch_holds_the_guarantees(form: str) -> None:
    torch.manual_seed(0)
    theirs = nn.TransformerDecoder(nn.TransformerDecoderLayer(16, 4, 32, dropout=0.0, batch_first=True), 2)
    ours = nt.convert(copy.deepcopy(theirs))
    memory = torch.randn(2, 6, 16)
    hidden_memory = torch.tensor([[True] * 2 + [False] * 4, [False] * 6])
    make = (lambda drop: drop) if form == "bool" else lambda drop: float_mask(drop, -torch.inf)
    given = {
        "tgt_mask": make(CAUSAL), "tgt_key_padding_mask": make(PADDING), "tgt_is_causal": True,
        "memory_mask": make(torch.zeros(8, 6, dtype=torch.bool)), "memory_key_padding_mask": make(hidden_memory),
    }  # fmt: skip
    real = ~PADDING
    out = ours(Y, memory, **given)
    assert (out[real] - theirs(Y, memory, **given)[real]).abs().max().item() < 1e-5
    again = ours(Y.masked_fill(PADDING[..., None], NAN), memory.masked_fill(hidden_memory[..., None], NAN), **given)
    assert torch.equal(again[real], out[real])


def test_layers_share_one_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    plan = _masks._plan
    monkeypatch.setattr(_masks, "_plan", lambda *a: made.append(a) or plan(*a))
    _, ours = encoder(layers=5)
    drop = CAUSAL.clone()
    drop[7, 3] = True  # a mask of this test alone
    ours(Y, mask=drop, src_key_padding_mask=PADDING)
    ours(Y, mask=drop.clone(), src_key_padding_mask=PADDING.clone())
    assert len(made) == 1


def test_masks_leave_out_work() -> None:
    """Cells that a float mask hides are not computed: the plan has the cells of the expression."""
    for drop, cells in ((torch.ones(512, 512, dtype=torch.bool).triu(1), "causal"), ((torch.arange(512)[:, None] - torch.arange(512)).abs() > 32, "window(left=32, right=32)")):
        plan, biases = _masks.planned(nr.full(), [_masks.Given("attn_mask", float_mask(drop, -torch.inf)[None, None])], (1, 1, 1, 512, 512))
        assert not biases and plan.computed == nr.Mask(cells).plan(512).computed


def test_probabilities_have_no_gradient_from_hidden_keys() -> None:
    query, spoiled = Y[:, :3].clone().requires_grad_(), Y.masked_fill(PADDING[..., None], NAN).requires_grad_()
    out, weights = mha()(query, spoiled, spoiled, key_padding_mask=PADDING)
    grads = torch.autograd.grad(out.sum() + weights.square().sum(), (query, spoiled))
    assert torch.isfinite(weights).all() and torch.isfinite(grads[0]).all() and torch.isfinite(grads[1][~PADDING]).all()


def test_rows_of_lowest_numbers_are_refused_unless_they_are_padding() -> None:
    low = torch.finfo(torch.float32).min
    layer, window = mha(), float_mask(WINDOW, low)
    out = layer(Y, Y, Y, attn_mask=window, key_padding_mask=PADDING)[0]  # query 7 of row 1 reads padding alone, and is padding
    assert torch.isfinite(out).all()
    for call in (lambda: layer(Y.clone(), Y, Y, attn_mask=window, key_padding_mask=PADDING), lambda: layer(Y, Y, Y, attn_mask=float_mask(WINDOW | CAUSAL.T, low).fill_diagonal_(low))):
        with pytest.raises(nr.Error, match="hold only the type's lowest number"):
            call()


def test_biases_that_are_added_beside_a_mask_hide_nothing_less() -> None:
    """Numbers and -inf in one float mask: hidden cells are skipped, other numbers are added and get gradients."""
    mask = torch.randn(8, 8).masked_fill(CAUSAL, -torch.inf).requires_grad_()
    out = nt.sdpa(X, X, X, mask)
    expected = torch.nn.functional.scaled_dot_product_attention(X, X, X, mask)
    assert torch.allclose(out, expected, atol=1e-5)
    dout = torch.randn(out.shape)
    got, want = (torch.autograd.grad(x, mask, dout)[0] for x in (out, expected))
    assert torch.allclose(got, want, atol=1e-5) and (got[CAUSAL] == 0).all()
    spoiled = X.clone()
    spoiled[:, :, 7] = NAN
    assert torch.equal(nt.sdpa(X, spoiled, spoiled, mask)[:, :, :7], out[:, :, :7])


# --- torch.compile ---------------------------------------------------------------------------------------------------------


def compiled(function: Any) -> Any:
    torch.compiler.reset()
    return torch.compile(function, fullgraph=True, backend="aot_eager")


def test_compile_takes_the_text_of_a_mask() -> None:
    for text in ("causal", "sliding(3) | keys(0..2)"):
        assert torch.equal(compiled(lambda x, t=text: nt.attention(x, x, x, t))(X), nt.attention(X, X, X, text))
    for text, words in (("sliding(3) + alibi", "has score modifiers: give the modifiers as arguments"), ("slidin(3)", "did you mean `sliding`")):
        with pytest.raises(Exception, match="has score modifiers|did you mean") as refused:
            compiled(lambda x, t=text: nt.attention(x, x, x, t))(X)
        assert words in str(refused.value)


def test_compile_takes_modules() -> None:
    layer = mha()
    numbers = torch.randn(8, 8, requires_grad=True)
    for given in (
        {"attn_mask": "causal"}, {"attn_mask": nr.causal(), "key_padding_mask": PADDING},
        {"attn_mask": float_mask(CAUSAL, -torch.inf), "key_padding_mask": float_mask(PADDING, -torch.inf)},
        {"attn_mask": CAUSAL, "key_padding_mask": PADDING, "need_weights": True}, {"attn_mask": numbers},
    ):  # fmt: skip
        given = {"need_weights": False, **given}
        inputs = [Y.clone().requires_grad_(), *layer.parameters(), *([numbers] if given["attn_mask"] is numbers else [])]
        call = lambda x, g=given: layer(x, x, x, **g)  # noqa: E731
        a, b = compiled(call)(inputs[0]), call(inputs[0])
        assert torch.allclose(a[0], b[0], atol=1e-6) and (a[1] is None) == (b[1] is None)
        for got, want in zip(*(torch.autograd.grad(x[0].square().sum(), inputs) for x in (a, b)), strict=True):
            assert torch.allclose(got, want, atol=1e-5)


# --- refused by name -------------------------------------------------------------------------------------------------------

INTEGERS = torch.ones(8, 8, dtype=torch.int64)
OTHERS = {
    "fp8": X.to(torch.float8_e4m3fn), "sparse": X.to_sparse(), "meta": X.to("meta"), "complex": X.to(torch.complex64),
    "int": X.int(),
}  # fmt: skip


@pytest.mark.parametrize("name", [*OTHERS, "nested"])
@pytest.mark.parametrize("call", [lambda x: nr.attention(x, x, x, "causal"), lambda x: nt.attention(x, x, x, "causal"), lambda x: nt.sdpa(x, x, x)])
def test_tensors_that_no_kernel_reads(name: str, call: Any) -> None:
    given = torch.nested.nested_tensor([X[0], X[0, :, :5]], layout=torch.jagged) if name == "nested" else OTHERS[name]
    words = {"fp8": "float8_e4m3fn", "sparse": "is sparse", "meta": "is on meta", "nested": "is a nested tensor"}
    with pytest.raises((nr.Error, TypeError), match=words.get(name, r"holds torch\.")) as refused:
        call(given)
    assert str(refused.value).startswith(("q ", "query "))


@pytest.mark.parametrize("name", OTHERS)
def test_arrays_that_cannot_be_read_say_why(name: str) -> None:
    with pytest.raises((nr.Error, TypeError), match="give|reads"):
        nr.Array.keep(OTHERS[name])


REFUSED: list[tuple[Any, Any, str]] = [
    (lambda: nt.sdpa(X, X, X, INTEGERS), TypeError, "attn_mask holds torch.int64: give booleans (true = may attend)"),
    (lambda: nt.sdpa(X, X, X, INTEGERS.to(torch.uint8)), TypeError, "attn_mask holds torch.uint8"),
    (lambda: nt.sdpa(X, X, X, torch.zeros(8, 8).half()), RuntimeError, "holds torch.float16, but the query holds torch.float32"),
    (lambda: nt.sdpa(X, X, X, torch.zeros(8, 8).to_sparse()), nr.Error, "attn_mask is sparse"),
    (lambda: nt.sdpa(Y[:, None], Y[:, None], Y[:, None], torch.ones(2, 8, 8, dtype=torch.bool)), RuntimeError, "give attn_mask[:, None]"),
    (lambda: mha()(Y, Y, Y, key_padding_mask=PADDING.to(torch.uint8)), TypeError, "memory_key_padding_mask in PyTorch's transformer modules) holds torch.uint8"),
    (lambda: mha()(Y, Y, Y, attn_mask=INTEGERS.int()), TypeError, "holds torch.int32: give booleans (true = ignored)"),
    (lambda: mha()(Y, Y, Y, key_padding_mask=PADDING[:, :5]), RuntimeError, "has shape (2, 5), but the expected shape is [batch, keys] = (2, 8)"),
    (lambda: mha()(Y[0], Y[0], Y[0], key_padding_mask=PADDING[0, :5]), RuntimeError, "has shape (5,), but the expected shape is [keys] = (8,)"),
    (lambda: mha()(Y, Y, Y, attn_mask=CAUSAL[:, :5]), RuntimeError, "the expected shape is [length, keys] = (8, 8) or [batch * heads, length, keys]"),
    (lambda: mha()(Y, Y[:1], Y[:1]), RuntimeError, "the query has 2 batch rows and the key has 1"),
    (lambda: mha()(Y, Y[..., :4], Y), RuntimeError, "key has width 4, but the module expects the width 16"),
    (lambda: mha()(Y, Y, Y, attn_mask=nr.causal().plan(8), key_padding_mask=PADDING), nr.Error, "a plan already contains the padding"),
    (lambda: mha()(Y, Y, Y, attn_mask="causal + alibi"), nr.Error, "has score modifiers"),
    (lambda: mha(dropout=NAN)(Y, Y, Y), ValueError, "nan"),
    (lambda: nt.sdpa(X, X, X, dropout_p=NAN), nr.Error, "dropout_p is nan: give a probability from 0.0 to less than 1.0"),
    (lambda: nt.sdpa(X, X, X, dropout_p=-0.1), nr.Error, "dropout_p is -0.1"),
    (lambda: nt.attention(X, X, X, "causal", dropout=-0.1), nr.Error, "dropout is -0.1"),
    (lambda: nt.attention(X, X, X, "causal", dropout=NAN), nr.Error, "dropout is nan"),
    (lambda: nr.attention(X, X, X, "causal", dropout=NAN), nr.Error, "dropout is NaN"),
    (lambda: nr.attention(X, X, X, "causal", dropout=0.1, seed=-1), nr.Error, "seed is -1: give a whole number from 0 to 2^64 - 1"),
    (lambda: nr.attention(X, X, X, "causal", threads=-1), nr.Error, "threads is -1"),
    (lambda: nr.attention(X, X, X, "causal", query_offset=1 << 70), nr.Error, "query_offset is 1180591620717411303424"),
    (lambda: nr.Shape(-1, 3), nr.Error, "-1 is not a size"),
    (lambda: nr.attention(X.numpy(), X.numpy(), X.numpy(), "causal", bias=np.ones((8, 8), bool)), TypeError, "bias holds booleans, but a score modifier needs floats"),
    (lambda: nr.attention(X.numpy(), X.numpy(), X.numpy(), "causal", bias=np.ones((8, 8), int)), TypeError, "bias holds int64"),
    (lambda: nr.attention(X, X, X, "causal", bias=INTEGERS.bool()), TypeError, "bias holds booleans"),
    (lambda: nr.attention(X, X, X, "causal", soft=INTEGERS), TypeError, "soft holds torch.int64"),
    (lambda: nt.attention(X, X, X, "causal", bias=INTEGERS.bool()), TypeError, "bias holds booleans"),
    (lambda: nr.attention(X, X, X, "causal + bias", arrays={"bias": INTEGERS}), TypeError, "bias holds torch.int64"),
    (lambda: nr.padding().bind(6, {"attention_mask": [[0, 1, 1]]}), nr.Error, "attention_mask: each batch row has 3 entries but the shape has 6 keys"),
    (lambda: nr.padding().bind(6, {"token_ids": [[0, 5, 6]], "pad_id": 0}), nr.Error, "token_ids: each batch row has 3 entries but the shape has 6 keys"),
    (lambda: nr.causal().ndim, AttributeError, "a mask is not a tensor"),
    (lambda: nr.causal().plan(3).ndim, AttributeError, "a mask is not a tensor"),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(REFUSED)))
def test_refused_by_name(number: int) -> None:
    call, kind, words = REFUSED[number]
    with pytest.raises(kind) as refused:
        call()
    assert words in str(refused.value)


def test_an_error_about_masks_of_an_encoder_names_its_arguments() -> None:
    layer = nt.convert(nn.TransformerEncoderLayer(16, 4, 32))
    stack = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    with pytest.raises(RuntimeError) as refused:
        stack(Y, src_key_padding_mask=PADDING)
    assert "src_key_padding_mask" in str(refused.value) and "batch_first=True" in str(refused.value)
    with pytest.raises(RuntimeError, match="src_mask.*batch_first=True"):
        stack(Y, mask=CAUSAL)


def test_masks_by_batch_row_where_they_cannot_be_mistaken() -> None:
    layer = mha()
    by_row = torch.stack([CAUSAL, WINDOW])
    whole = by_row.repeat_interleave(4, 0)
    assert torch.equal(layer(Y, Y, Y, attn_mask=by_row)[0], layer(Y, Y, Y, attn_mask=whole)[0])
    assert torch.equal(layer(Y, Y, Y, attn_mask=CAUSAL[None])[0], layer(Y, Y, Y, attn_mask=CAUSAL)[0])
    assert torch.equal(layer(Y, Y, Y, attn_mask=by_row[:, None])[0], layer(Y, Y, Y, attn_mask=whole)[0])
    four = Y.repeat(2, 1, 1)
    with pytest.raises(RuntimeError, match="4 is the number of batch rows and also of heads"):
        layer(four, four, four, attn_mask=by_row.repeat(2, 1, 1))


def test_arrays_of_a_call_share_no_memory() -> None:
    from noren import _noren

    x = np.ones((1, 1, 4, 8), np.float32)
    plan = nr.causal().plan(4)
    with pytest.raises(nr.Error, match="out and v share memory"):
        _noren.forward(x.copy(), x.copy(), x, plan, _noren.Modifiers(), x[:, :, ::-1])
    memory = np.ones(33, np.float32).view(np.uint8)[1:-3].view(np.float32).reshape(1, 1, 4, 8)
    with pytest.raises(BufferError, match="not aligned"):
        _noren.forward(x, x, x, plan, _noren.Modifiers(), memory)


def test_padding_in_an_expression_on_a_batch_without_padding() -> None:
    layer, none = mha(), torch.zeros(2, 8, dtype=torch.bool)
    out = layer(Y, Y, Y, key_padding_mask=none, attn_mask="causal & padding")[0]
    assert torch.equal(out, layer(Y, Y, Y, attn_mask="causal")[0])


def test_probabilities_have_no_gradient_from_keys_that_other_queries_read() -> None:
    x = Y.clone()
    x[:, 5] = NAN
    q = Y.clone().requires_grad_()
    _, weights = mha()(q, x, x, attn_mask="causal")
    grad = torch.autograd.grad(weights[:, :5].square().sum(), q)[0]
    assert torch.isfinite(weights[:, :5]).all() and weights[:, 5:].isnan().any(-1).all()
    assert torch.isfinite(grad[:, :5]).all() and (grad[:, :5] != 0).any()
    clean = Y.clone().requires_grad_()
    _, expected = mha()(clean, Y, Y, attn_mask="causal")
    assert torch.allclose(grad[:, :5], torch.autograd.grad(expected[:, :5].square().sum(), clean)[0][:, :5], atol=1e-6)


def test_compiled_modules_read_numbers_as_others_do() -> None:
    low = torch.finfo(torch.float32).min
    layer = mha()
    for hides in (-torch.inf, low, low / 2):
        mask = torch.randn(8, 8).masked_fill(CAUSAL, hides).requires_grad_()
        outs = [call(Y, Y, Y, attn_mask=mask, need_weights=False)[0] for call in (layer, compiled(layer))]
        grads = [torch.autograd.grad(out.square().sum(), mask)[0] for out in outs]
        assert torch.equal(*outs) and torch.allclose(*grads, atol=1e-6) and (grads[1][CAUSAL] == 0).all()
    with pytest.raises(nr.Error, match="hold only the type's lowest number"):
        compiled(layer)(Y.clone(), Y, Y, attn_mask=torch.full((8, 8), low).requires_grad_())

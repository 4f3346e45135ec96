"""Random calls of `nt.sdpa` and `nt.MultiheadAttention` against PyTorch: equal results, or an error where PyTorch has one.
"""

from __future__ import annotations

import copy
import random
import warnings
from collections import Counter
from contextlib import nullcontext
from typing import Any

import pytest

torch = pytest.importorskip("torch")
import torch.nn.functional as F  # noqa: E402, N812
from torch import nn  # noqa: E402

import noren.torch as nt  # noqa: E402
from conftest import runs  # noqa: E402

CALLS = runs(80, 1000)
TOLERANCE = {torch.float32: 2e-5, torch.bfloat16: 4e-2, torch.float16: 4e-3}
REFUSALS = (RuntimeError, ValueError, TypeError, AssertionError, IndexError)
FORBIDDEN = -9984.0


def pick(r: random.Random, **weights: float) -> str:
    return r.choices(list(weights), list(weights.values()))[0]


def tensor(r: random.Random, shape: tuple[int, ...], dtype: Any) -> Any:
    """Returns random numbers in a random memory layout."""
    g = torch.Generator().manual_seed(r.randrange(1 << 30))
    kind = pick(r, plain=4, swapped=3, sliced=1, offset=1, spread=1, negative=1)
    if kind == "swapped" and len(shape) > 2:
        turned = (*shape[:-3], shape[-2], shape[-3], shape[-1])
        return torch.randn(turned, generator=g).to(dtype).transpose(-2, -3)
    if kind == "sliced":
        return torch.randn((*shape[:-1], 2 * shape[-1]), generator=g).to(dtype)[..., ::2]
    if kind == "offset":
        return torch.randn((shape[0] + 1, *shape[1:]), generator=g).to(dtype)[1:]
    if kind == "spread":
        return torch.randn((1, *shape[1:]), generator=g).to(dtype).expand(shape)
    if kind == "negative" and dtype == torch.float32:
        found = torch.complex(torch.zeros(shape), torch.randn(shape, generator=g)).conj().imag
        assert found.is_neg()
        return found
    return torch.randn(shape, generator=g).to(dtype)


def mask_of(r: random.Random, shape: tuple[int, ...], dtype: Any, true_is: str) -> Any:
    """Returns a mask tensor of random type and layout."""
    g = torch.Generator().manual_seed(r.randrange(1 << 30))
    share = r.choice((0.2, 0.6, 0.95))
    keep = torch.rand(shape, generator=g) < share
    if r.random() < 0.2 and len(shape) > 1 and shape[-2] > 1:
        keep[..., r.randrange(shape[-2]), :] = False
    kind = pick(r, bool=5, inf=4, lowest=1, bias=2, mixed=2, int64=0.5, uint8=0.5, half=0.3)
    if kind == "bool":
        mask = keep if true_is == "keep" else ~keep
    elif kind in ("int64", "uint8"):
        mask = keep.to(getattr(torch, kind))
    else:
        own = torch.float16 if kind == "half" else r.choice((dtype, torch.float32))
        numbers = torch.randn(shape, generator=g).to(own) if kind in ("bias", "mixed") else torch.zeros(shape, dtype=own)
        lowest = torch.finfo(own).min if kind == "lowest" else -torch.inf
        mask = numbers if kind == "bias" else numbers.masked_fill(~keep, lowest)
    if r.random() < 0.3 and mask.dim() > 1:
        mask = mask.transpose(-1, -2).contiguous().transpose(-1, -2)
    return mask


def allowed_by(mask: Any, true_is: str) -> Any:
    if mask.dtype == torch.bool:
        return mask if true_is == "keep" else ~mask
    return mask > FORBIDDEN


def holds_lowest(*masks: Any) -> bool:
    """Whether a float mask hides cells by a finite number; rows without an allowed key are then an error."""
    return any(
        m is not None and m.is_floating_point() and bool(((m < -6e4) & torch.isfinite(m)).any()) for m in masks
    )


def wide(x: Any) -> Any:
    """Converts to float64; lowest numbers become -inf, because they are not the lowest numbers of float64."""
    if x is None or not x.is_floating_point():
        return x
    x = x.detach().double()
    return x.masked_fill(x < -6e4, -torch.inf)


def attempt(function: Any) -> tuple[Any, Exception | None]:
    try:
        return function(), None
    except REFUSALS as refused:
        return None, refused


def worst(a: Any, b: Any, rows: Any) -> float:
    """Returns the largest difference in the given rows, relative to the size of the numbers."""
    if not bool(rows.any()):
        return 0.0
    a, b = a.detach().double()[rows], b.detach().double()[rows]
    return float((a - b).abs().max() / max(1.0, float(b.abs().max())))


def sdpa_call(r: random.Random) -> dict[str, Any]:
    dtype = r.choices((torch.float32, torch.bfloat16, torch.float16), (6, 1, 1))[0]
    rank = r.choices((4, 3, 2, 5), (8, 2, 1, 1))[0]
    batch, heads, q_len, kv_len = r.randint(1, 3), r.choice((1, 2, 4)), r.randint(1, 40), r.randint(1, 40)
    if r.random() < 0.3:
        kv_len = q_len
    dim, v_dim = r.choice((4, 8, 16)), r.choice((4, 8, 16))
    lead = {4: (batch, heads), 3: (heads,), 2: (), 5: (2, batch, heads)}[rank]
    kv_lead = lead
    if lead and r.random() < 0.25:
        kv_lead = (*lead[:-1], r.choice((1, heads, max(1, heads // 2))))
    q = tensor(r, (*lead, q_len, dim), dtype)
    k, v = tensor(r, (*kv_lead, kv_len, dim), dtype), tensor(r, (*kv_lead, kv_len, v_dim), dtype)
    options: dict[str, Any] = {"scale": r.choice((None, None, 0.3)), "enable_gqa": r.random() < 0.3}
    kind = pick(r, none=2, causal=2, mask=8)
    if kind == "causal":
        options["is_causal"] = True
    if kind == "mask":
        full = (*lead, q_len, kv_len)
        shape = full[r.randint(0, len(full) - 1) :]
        shape = tuple(1 if r.random() < 0.15 else n for n in shape)
        if r.random() < 0.06:
            shape = (*shape[:-1], shape[-1] + r.choice((-1, 1))) if shape[-1] > 1 else (*shape, 7)
        options["attn_mask"] = mask_of(r, shape, dtype, "keep")
        options["is_causal"] = r.random() < 0.03
    return {"q": q, "k": k, "v": v, "mode": pick(r, grad=2, none=1, inference=1), **options}


def run_sdpa(call: dict[str, Any], seen: Counter[str]) -> None:
    call = dict(call)
    q, k, v, mode = (call.pop(name) for name in ("q", "k", "v", "mode"))
    mask, dtype = call.get("attn_mask"), q.dtype
    grad = mode == "grad"
    if mode == "inference":
        with torch.inference_mode():
            q, k, v = (x.clone() for x in (q, k, v))
            mask = None if mask is None else mask.clone()
    call["attn_mask"] = mask
    context = {"grad": nullcontext, "none": torch.no_grad, "inference": torch.inference_mode}[mode]
    wants_mask = grad and mask is not None and mask.is_floating_point() and torch.isfinite(mask).all()
    with context(), torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        theirs, refused = attempt(lambda: F.scaled_dot_product_attention(q, k, v, **call))
    leaves = [x.detach().clone().requires_grad_(grad) for x in (q, k, v)] if grad else [q, k, v]
    if wants_mask:
        mask = call["attn_mask"] = mask.detach().clone().requires_grad_()
    with context():
        ours, error = attempt(lambda: nt.sdpa(*leaves, **call))
    if refused is not None:
        assert error is not None, f"PyTorch refuses: {refused}"
        seen["refused"] += 1
        return
    allowed = torch.ones(theirs.shape[:-1] + (k.shape[-2],), dtype=torch.bool)
    if mask is not None:
        allowed = allowed & allowed_by(mask, "keep")
    rows = allowed.any(-1)
    if error is not None:
        assert holds_lowest(mask) and not rows.all() and "use -inf" in str(error), error
        seen["refused: rows of lowest numbers"] += 1
        return
    assert ours.shape == theirs.shape and ours.dtype == theirs.dtype
    doubles = [x.detach().double().requires_grad_(grad) for x in (q, k, v)]
    options = {**call, "attn_mask": wide(mask)}
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH), nullcontext() if grad else torch.no_grad():
        if wants_mask:
            options["attn_mask"] = options["attn_mask"].requires_grad_()
        exact = F.scaled_dot_product_attention(*doubles, **options)
    assert worst(ours, exact, rows) < TOLERANCE[dtype]
    if not bool(call.get("is_causal")):
        assert (ours[~rows] == 0).all()
    seen["equal"] += 1
    if grad:
        dout = torch.randn(exact.shape, generator=torch.Generator().manual_seed(0)) * rows[..., None]
        inputs, wanted = ([*leaves, mask], [*doubles, options["attn_mask"]]) if wants_mask else (leaves, doubles)
        got = torch.autograd.grad(ours, inputs, dout.to(dtype))
        for a, b in zip(got, torch.autograd.grad(exact, wanted, dout.to(dtype).double()), strict=True):
            if torch.isfinite(b).all():
                assert worst(a, b, torch.ones((), dtype=torch.bool)) < 4 * TOLERANCE[dtype]
        seen["gradients equal"] += 1


def test_random_calls_of_sdpa() -> None:
    seen: Counter[str] = Counter()
    for number in range(CALLS):
        call = sdpa_call(random.Random(number))
        try:
            run_sdpa(call, seen)
        except BaseException as failed:
            shown = {n: (tuple(x.shape), x.dtype) if isinstance(x, torch.Tensor) else x for n, x in call.items()}
            raise AssertionError(f"call {number}: {shown}") from failed
    print(f"sdpa: {CALLS} calls, {dict(seen)}")
    assert seen["equal"] > 0.6 * CALLS and seen["refused"] > 0


def mha_call(r: random.Random) -> dict[str, Any]:
    heads, width = r.choice((1, 2, 4)), r.choice((8, 16))
    batch, q_len, kv_len = r.randint(1, 3), r.randint(1, 20), r.randint(1, 20)
    own = r.random() < 0.5
    kv_len = q_len if own else kv_len
    module: dict[str, Any] = {
        "bias": r.random() < 0.7, "add_bias_kv": r.random() < 0.2, "add_zero_attn": r.random() < 0.2,
        "batch_first": r.random() < 0.5, "dropout": 0.0,
    }  # fmt: skip
    k_width = v_width = width
    if not own and r.random() < 0.3:
        k_width, v_width = module["kdim"], module["vdim"] = 6, 10
    dtype = torch.bfloat16 if r.random() < 0.1 else torch.float32
    batched = r.random() < 0.85
    rows = batch if batched else 1

    def sized(length: int, wide: int) -> Any:
        if not batched:
            return torch.randn(length, wide, generator=g).to(dtype)
        order = (batch, length, wide) if module["batch_first"] else (length, batch, wide)
        return torch.randn(order, generator=g).to(dtype)

    g = torch.Generator().manual_seed(r.randrange(1 << 30))
    x = sized(q_len, width)
    given = [x, x, x] if own else [x, sized(kv_len, k_width), sized(kv_len, v_width)]
    options: dict[str, Any] = {"need_weights": r.random() < 0.5, "average_attn_weights": r.random() < 0.5}
    kind = pick(r, none=3, two=4, three=3, causal=2, wrong=0.7)
    if kind == "two":
        options["attn_mask"] = mask_of(r, (q_len, kv_len), dtype, "drop")
    elif kind == "three":
        options["attn_mask"] = mask_of(r, (rows * heads, q_len, kv_len), dtype, "drop")
    elif kind == "wrong":
        shape = r.choice(((q_len, kv_len + 1), (rows * heads + 7, q_len, kv_len), (kv_len,), (q_len + 1, kv_len)))
        options["attn_mask"] = mask_of(r, shape, dtype, "drop")
    elif kind == "causal":
        drop = torch.ones(q_len, kv_len, dtype=torch.bool).triu(1)
        options["attn_mask"] = drop if r.random() < 0.5 else torch.zeros(q_len, kv_len).to(dtype).masked_fill(drop, -torch.inf)
    options["is_causal"] = kind == "causal" and r.random() < 0.6 or r.random() < 0.02
    if options["is_causal"] and kind in ("two", "three"):
        options["is_causal"] = False  # a hint that is wrong
    if r.random() < 0.5:
        shape = (rows, kv_len) if batched else (kv_len,)
        if r.random() < 0.1:
            shape = (*shape[:-1], max(1, shape[-1] + r.choice((-1, 1))))
        options["key_padding_mask"] = mask_of(r, shape, dtype, "drop")
    return {
        "module": {"embed_dim": width, "num_heads": heads, **module}, "dtype": dtype, "given": given, "batched": batched,
        "train": r.random() < 0.5, "mode": pick(r, grad=2, none=1, inference=1), "options": options, "seed": r.randrange(1 << 30),
    }  # fmt: skip


def run_mha(call: dict[str, Any], seen: Counter[str]) -> None:
    torch.manual_seed(call["seed"])
    theirs = nn.MultiheadAttention(**call["module"]).to(call["dtype"]).train(call["train"])
    ours = nt.convert(copy.deepcopy(theirs))
    assert isinstance(ours, nt.MultiheadAttention)
    given, options, dtype = call["given"], call["options"], call["dtype"]
    context = {"grad": nullcontext, "none": torch.no_grad, "inference": torch.inference_mode}[call["mode"]]
    plain = {**options, "is_causal": False} if options.get("attn_mask") is not None else options
    with context():
        _, refused = attempt(lambda: theirs(*given, **plain))
        got, error = attempt(lambda: ours(*given, **options))
    attn, padding = options.get("attn_mask"), options.get("key_padding_mask")
    if refused is not None:
        if error is None:  # PyTorch adds floats of another type than the scores' in one of its paths only
            assert any(m is not None and m.is_floating_point() and m.dtype != dtype for m in (attn, padding)), refused
            seen["computed, though PyTorch refuses mixed types"] += 1
        else:
            seen["refused"] += 1
        return
    heads, batch = call["module"]["num_heads"], 1
    q_len, kv_len = given[0].shape[0], given[1].shape[0]
    if call["batched"]:
        first = call["module"]["batch_first"]
        batch, q_len = given[0].shape[:2] if first else given[0].shape[1::-1]
        kv_len = given[1].shape[1 if first else 0]
    allowed = torch.ones(batch, heads, q_len, kv_len, dtype=torch.bool)
    if attn is not None:
        by = allowed_by(attn, "drop")
        allowed &= by.reshape(batch, heads, q_len, kv_len) if by.dim() == 3 else by
    if padding is not None:
        allowed &= allowed_by(padding, "drop").reshape(batch, 1, 1, kv_len)
    extra = call["module"]["add_bias_kv"] or call["module"]["add_zero_attn"]
    rows = allowed.any(-1) | extra
    if error is not None:
        assert holds_lowest(attn, padding) and not rows.all() and "use -inf" in str(error), error
        seen["refused: rows of lowest numbers"] += 1
        return
    doubled = copy.deepcopy(theirs).double()
    masks = {name: wide(options.get(name)) for name in ("attn_mask", "key_padding_mask")}
    # PyTorch casts masks of different types to one type. A row without an allowed key is NaN in some of PyTorch's paths.
    with nullcontext() if call["mode"] == "grad" else torch.no_grad():
        exact, weights = doubled(*(x.double() for x in given), **{**plain, **masks})
    whole = rows.all(1)
    if call["batched"] and not call["module"]["batch_first"]:
        whole = whole.T
    whole = whole if call["batched"] else whole[0]
    out, own = got
    assert out.shape == exact.shape and out.dtype == dtype and torch.isfinite(out).all()
    assert worst(out, exact, whole) < TOLERANCE[dtype]
    assert (weights is None) == (own is None)
    if weights is not None:
        assert own.shape == weights.shape
        good = rows.all(1) if options["average_attn_weights"] else rows
        assert worst(own, weights, good if call["batched"] else good[0]) < TOLERANCE[dtype]
    seen["equal"] += 1
    if call["mode"] == "grad" and bool(rows.all()):
        dout = torch.randn(exact.shape, generator=torch.Generator().manual_seed(0))
        names = [name for name, _ in ours.named_parameters()]
        mine = torch.autograd.grad(out, list(ours.parameters()), dout.to(dtype), allow_unused=True)
        wanted = torch.autograd.grad(exact, list(doubled.parameters()), dout.to(dtype).double(), allow_unused=True)
        for name, a, b in zip(names, mine, wanted, strict=True):
            assert a is not None and b is not None, name
            assert worst(a, b, torch.ones((), dtype=torch.bool)) < 8 * TOLERANCE[dtype], name
        seen["gradients equal"] += 1


def test_random_calls_of_multihead_attention() -> None:
    seen: Counter[str] = Counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch's about masks of two types
        for number in range(CALLS):
            call = mha_call(random.Random(number))
            try:
                run_mha(call, seen)
            except BaseException as failed:
                shown = {n: (tuple(x.shape), x.dtype) if isinstance(x, torch.Tensor) else x for n, x in call["options"].items()}
                sizes = [tuple(x.shape) for x in call["given"]]
                rest = {n: call[n] for n in ("module", "dtype", "batched", "train", "mode")}
                raise AssertionError(f"call {number}: {sizes} {shown} {rest}") from failed
    print(f"MultiheadAttention: {CALLS} calls, {dict(seen)}")
    assert seen["equal"] > 0.6 * CALLS and seen["refused"] > 0

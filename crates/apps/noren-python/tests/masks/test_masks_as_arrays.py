"""Masks as arrays with a named convention, bound and recognised masks, and calls without a query offset, against plain loops."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import noren as nr
from conftest import runs


def textbook(q: Any, k: Any, v: Any, keep: Any, bias: Any = None) -> Any:
    """Returns attention in float64; rows without an allowed key are 0."""
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    group = q.shape[1] // k.shape[1]
    k, v = (np.repeat(x, group, 1) for x in (k, v))
    s = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    s = s + (0 if bias is None else bias)
    s = np.where(np.broadcast_to(keep, s.shape), s, -np.inf)
    e = np.exp(s - np.where(np.isinf(s.max(-1, keepdims=True)), 0, s.max(-1, keepdims=True)))
    total = e.sum(-1, keepdims=True)
    return np.where(total > 0, e / np.where(total > 0, total, 1), 0) @ v


def drawn(rng: Any, batch: int, heads: int, kv_heads: int, q_len: int, kv_len: int) -> list[Any]:
    sizes = [(batch, heads, q_len, 8), (batch, kv_heads, kv_len, 8), (batch, kv_heads, kv_len, 5)]
    return [rng.normal(size=size).astype(np.float32) for size in sizes]


def close(a: Any, b: Any) -> None:
    assert np.abs(np.asarray(a, np.float64) - b).max() < 1e-5


@pytest.mark.parametrize("seed", range(60))
def test_arrays_of_every_shape_and_convention(seed: int) -> None:
    rng = np.random.default_rng(seed)
    batch, kv_heads, group, q_len, kv_len = (int(n) for n in rng.integers(1, [4, 3, 4, 9, 12]))
    heads = kv_heads * group
    q, k, v = drawn(rng, batch, heads, kv_heads, q_len, kv_len)
    whole = [int(size if rng.random() < 0.6 else 1) for size in (batch, heads, q_len, kv_len)]
    keep = rng.random(whole) < 0.6
    given = keep
    if keep.shape[0] == batch and keep.shape[1] == heads and rng.random() < 0.3 and not (heads > 1 and batch * heads == batch):
        flat = keep.reshape(batch * heads, *keep.shape[2:])
        given = flat if not (flat.shape[0] == batch == heads and batch > 1) and flat.shape[0] not in (batch,) else keep
    close(nr.attention(q, k, v, keep=given), textbook(q, k, v, keep))
    close(nr.attention(q, k, v, drop=~given), textbook(q, k, v, keep))
    close(nr.attention(q, k, v, additive=np.where(given, 0.0, -np.inf).astype(np.float32)), textbook(q, k, v, keep))
    numbers = np.where(keep, rng.normal(size=keep.shape), -np.inf).astype(np.float32)
    bias = np.where(keep, numbers, 0)
    close(nr.attention(q, k, v, additive=numbers), textbook(q, k, v, keep, bias))
    if q_len == kv_len:
        causal = np.tri(q_len, dtype=bool)
        close(nr.attention(q, k, v, "causal", keep=given, bias=bias), textbook(q, k, v, keep & causal, bias))


@pytest.mark.parametrize("seed", range(30))
def test_tensors_and_their_gradients(seed: int) -> None:
    torch = pytest.importorskip("torch")
    import noren.torch as nt

    rng = np.random.default_rng(seed)
    batch, kv_heads, group, q_len, kv_len = (int(n) for n in rng.integers(1, [4, 3, 4, 9, 12]))
    heads = kv_heads * group
    q, k, v = (torch.from_numpy(x) for x in drawn(rng, batch, heads, kv_heads, q_len, kv_len))
    keep = torch.from_numpy(rng.random([int(size if rng.random() < 0.6 else 1) for size in (batch, heads, q_len, kv_len)]) < 0.7)
    numbers = torch.where(keep, torch.randn(keep.shape), -torch.inf)
    leaves = [x.clone().requires_grad_() for x in (q, k, v, numbers)]
    out = nt.attention(*leaves[:3], additive=leaves[3])
    expected = textbook(q.numpy(), k.numpy(), v.numpy(), keep.numpy(), torch.where(keep, numbers, 0.0).numpy())
    close(out.detach(), expected)
    out.square().sum().backward()
    again = [x.detach().double().requires_grad_() for x in (q, k, v, numbers)]
    wide_k, wide_v = (x.repeat_interleave(group, 1) for x in again[1:3])
    s = again[0] @ wide_k.transpose(-1, -2) * 8**-0.5 + torch.where(keep, again[3], 0.0)
    s = torch.where(keep, s, -torch.inf)
    some = keep.expand(s.shape).any(-1, keepdim=True)
    p = torch.where(some, torch.softmax(torch.where(some, s, 0.0), -1), 0.0)
    (p @ wide_v).square().sum().backward()
    for a, b in zip(leaves, again, strict=True):
        want = torch.nan_to_num(b.grad)
        assert (torch.nan_to_num(a.grad).double() - want).abs().max() < 1e-4 * max(1.0, want.abs().max().item())
    close(nt.attention(q, k, v, keep=keep), textbook(q.numpy(), k.numpy(), v.numpy(), keep.numpy()))
    close(nt.attention(q, k, v, drop=~keep), textbook(q.numpy(), k.numpy(), v.numpy(), keep.numpy()))


def test_bound_and_recognised_masks_are_repeated() -> None:
    rng = np.random.default_rng(0)
    q, k, v = drawn(rng, 2, 4, 2, 7, 7)
    masks = [
        nr.causal().bind(7),
        nr.parse("causal & documents").bind(7, {"documents": [3, 4]}),
        nr.parse("heads(0: sliding(2), else: causal)").bind(nr.Shape.square(7, heads=4)),
        nr.parse("batch(0: causal, else: full)").bind(nr.Shape.square(7)),  # row 0 of the mask is repeated
        nr.parse("batch(0: causal, else: full)").bind(nr.Shape.square(7, batch=2)),
        nr.parse("padding").bind(nr.Shape.square(7, batch=2), {"lengths": [3, 7]}),
        nr.parse("random(0.5, 3)").bind(7),
    ]
    for bound in masks:
        expected = textbook(q, k, v, nr.to_keep(bound))
        close(nr.attention(q, k, v, bound), expected)
        close(nr.attention(q, k, v, nr.recognise(np.array(nr.to_keep(bound)), "keep")), expected)
        close(nr.attention(q, k, v, nr.from_keep(np.array(nr.to_keep(bound)))), expected)
    with pytest.raises(nr.Error, match="the mask is bound to Shape.*but the call has 2 batch rows, 4 heads, 7 queries and 7 keys"):
        nr.attention(q, k, v, nr.causal().bind(8))
    with pytest.raises(nr.Error, match="a bound mask already contains its facts"):
        nr.attention(q, k, v, nr.causal().bind(7), query_offset=1)


def test_masks_of_keys_need_no_query_offset() -> None:
    rng = np.random.default_rng(1)
    q, k, v = drawn(rng, 2, 2, 2, 3, 6)
    close(nr.attention(q, k, v, "full"), textbook(q, k, v, np.ones((3, 6), bool)))
    real = np.arange(6) < np.array([4, 6])[:, None]
    close(nr.attention(q, k, v, "padding - keys(1)", facts={"lengths": [4, 6]}), textbook(q, k, v, (real & (np.arange(6) != 1))[:, None, None]))
    for mask, more in (("causal", {}), ("full & sliding(3)", {}), ("full + alibi", {}), ("full", {"alibi": [0.5, 0.25]})):
        with pytest.raises(nr.Error, match="query_offset=3"):
            nr.attention(q, k, v, mask, **more)
        nr.attention(q, k, v, mask, query_offset=3, **more)


def test_ambiguous_and_wrong_arrays_name_the_fix() -> None:
    rng = np.random.default_rng(2)
    q, k, v = drawn(rng, 3, 3, 3, 3, 5)
    cases: list[tuple[Any, str]] = [
        (np.ones((3, 5), bool), r"Give keep\[None, None\] if the dimensions are \[q_len, kv_len\]"),
        (np.ones((3, 3, 5), bool), r"Give keep\[:, None\] if the dimensions are \[batch, q_len, kv_len\]"),
        (np.ones((2, 3, 5), bool), "but there are 3 batch rows and 3 heads"),
        (np.ones((3, 3, 3, 4), bool), "does not broadcast"),
        (np.ones(5, bool), r"keep has shape \[5\]"),
    ]
    for array, message in cases:
        with pytest.raises(nr.Error, match=message):
            nr.attention(q, k, v, keep=array)
    a, b, c = drawn(rng, 2, 4, 4, 3, 5)
    with pytest.raises(nr.Error, match=r"which is \[batch, kv_len\]: give keep\[:, None, None, :\]"):
        nr.attention(a, b, c, keep=np.ones((2, 5), bool))
    with pytest.raises(nr.Error, match=r"if the array has one mask for each head, give keep\[None\]"):
        nr.attention(a, b, c, keep=np.ones((4, 3, 5), bool))
    for bad in (np.ones((3, 5)), np.ones((3, 5), np.int64), [[True]]):
        with pytest.raises(TypeError, match="keep"):
            nr.attention(a, b, c, keep=bad)
    with pytest.raises(TypeError, match="additive holds bool"):
        nr.attention(a, b, c, additive=np.ones((3, 5), bool))
    with pytest.raises(TypeError, match="keep=mask if true means .may attend.*drop=mask"):
        nr.attention(a, b, c, np.ones((3, 5), bool))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="additive=mask"):
        nr.attention(a, b, c, np.ones((3, 5)))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="no mask was given"):
        nr.attention(a, b, c)
    with pytest.raises(TypeError, match="a Plan and keep="):
        nr.attention(a, b, c, nr.full().plan(nr.Shape.cross(3, 5, batch=2, heads=4)), keep=np.ones((3, 5), bool))


def test_a_tensor_without_content_is_refused() -> None:
    torch = pytest.importorskip("torch")
    import noren.torch as nt

    q = torch.ones(1, 1, 4, 8)
    with pytest.raises(nr.Error, match="device meta"):
        nt.attention(q, q, q, keep=torch.ones(4, 4, dtype=torch.bool, device="meta"))


def test_keep_and_drop_are_opposite() -> None:
    keep, drop = nr.to_keep("causal", 5), nr.to_drop("causal", 5)
    assert keep.dtype == np.bool_ and (keep == ~drop).all() and (keep[0, 0] == np.tri(5, dtype=bool)).all()


def test_wrong_input_raises_no_other_error() -> None:
    rng = np.random.default_rng(3)
    q, k, v = drawn(rng, 2, 2, 1, 4, 4)
    things = [
        None, 3, "x", [1], np.ones(3), np.ones((4, 4), bool), np.ones((2, 4, 4), bool), np.zeros((0, 4), bool), np.ones((4, 4), np.float32),
        np.full((4, 4), np.nan, np.float32), np.ones((4, 4), object), np.ones((1, 1, 1, 1), bool), nr.causal(), nr.causal().bind(4), nr.causal().bind(9), {},
    ]  # fmt: skip
    for _ in range(runs(400, 2000)):
        arguments = {name: things[rng.integers(len(things))] for name in ("keep", "drop", "additive") if rng.random() < 0.6}
        mask = things[rng.integers(len(things))] if rng.random() < 0.5 else "causal"
        try:
            nr.attention(q, k, v, mask, **arguments)  # type: ignore[arg-type]
        except (nr.Error, TypeError) as error:
            assert len(str(error)) > 10

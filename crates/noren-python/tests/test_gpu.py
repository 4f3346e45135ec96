"""The GPU kernels, in Triton's interpreter on the CPU, or on a GPU with NOREN_GPU=1.

The interpreter sees no races, no reads past the end of an array and no reduced precision.
"""

from __future__ import annotations

import os
from typing import Any

import pytest
from conftest import corpus

import noren as nr

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton", reason="the GPU kernels are not run: Triton is not installed")
np = pytest.importorskip("numpy")

if not os.environ.get("NOREN_GPU"):
    if os.environ.get("TRITON_INTERPRET") != "1":
        pytest.skip("the GPU kernels are not run: TRITON_INTERPRET is not 1", allow_module_level=True)
    import triton.language as tl
    from triton.runtime import interpreter

    # The interpreter multiplies the bits of bf16 numbers (triton issue 11584): widen the operands of a product first.
    _create_dot = interpreter.InterpreterBuilder.create_dot

    def _wide(x: Any) -> Any:
        if x.dtype.scalar != tl.bfloat16:
            return x
        values = interpreter._convert_float(x.data, tl.bfloat16, tl.float32, None).view(np.float32)
        return interpreter.TensorHandle(values, tl.float32)

    def create_dot(self: Any, a: Any, b: Any, d: Any, precision: Any, imprecise: Any) -> Any:
        return _create_dot(self, _wide(a), _wide(b), d, precision, imprecise)

    interpreter.InterpreterBuilder.create_dot = create_dot

from noren.gpu import attention  # noqa: E402

DEVICE = "cuda" if os.environ.get("NOREN_GPU") else "cpu"


def keep_of(bound: nr.BoundMask) -> Any:
    shape = bound.shape
    return torch.from_numpy(np.array(nr.to_keep(bound))).expand(shape.batch, shape.heads, shape.q_len, shape.kv_len)


def textbook(q: Any, k: Any, v: Any, keep: Any, scale: float, softcap: float | None, sinks: Any) -> tuple[Any, Any]:
    """Returns output and log-sum-exps in float64. Cells that are not kept enter no product."""
    group = q.shape[1] // k.shape[1]
    k, v = (x.repeat_interleave(group, 1) for x in (k, v))
    s = (q @ k.transpose(-1, -2)) * scale
    if softcap is not None:
        s = softcap * torch.tanh(s / softcap)
    s = torch.where(keep, s, -torch.inf)
    if sinks is not None:
        s = torch.cat([s, sinks[None, :, None, None].expand(*s.shape[:3], 1)], -1)
    most = s.amax(-1, keepdim=True).detach()
    most = torch.where(most == -torch.inf, 0.0, most)
    e = torch.exp(s - most)
    total = e.sum(-1, keepdim=True)
    e = e if sinks is None else e[..., :-1]
    some = torch.where(total > 0, total, 1.0)
    return torch.where(total > 0, (e @ v) / some, 0.0), torch.where(total > 0, most + torch.log(some), -torch.inf)[..., 0]


def drawn(shape: nr.Shape, dim: int, v_dim: int, dtype: Any, seed: int) -> list[Any]:
    """Returns q, k, v and the gradient of the output."""
    g = torch.Generator().manual_seed(seed)
    sizes = [(shape.heads, shape.q_len, dim), (shape.kv_heads, shape.kv_len, dim), (shape.kv_heads, shape.kv_len, v_dim)]
    sizes.append((shape.heads, shape.q_len, v_dim))
    return [torch.randn(shape.batch, *size, generator=g).to(dtype).to(DEVICE) for size in sizes]


def run(plan: nr.Plan, tensors: list[Any], sinks: Any = None, **more: Any) -> list[Any]:
    """Returns output, log-sum-exps and gradients of q, k, v (and sinks)."""
    q, k, v, dout = tensors
    leaves = [x.detach().clone().requires_grad_() for x in (q, k, v)]
    leaves += [] if sinks is None else [sinks.detach().clone().requires_grad_()]
    out, lse = attention(*leaves[:3], plan, sinks=leaves[3] if sinks is not None else None, **more)
    out.backward(dout)
    return [out.detach(), lse, *(leaf.grad for leaf in leaves)]


def expected(plan: nr.Plan, tensors: list[Any], sinks: Any = None, scale: float | None = None, softcap: float | None = None) -> list[Any]:
    q, k, v, dout = (x.cpu().double() for x in tensors)
    leaves = [x.requires_grad_() for x in (q, k, v)] + ([] if sinks is None else [sinks.cpu().double().requires_grad_()])
    factor = q.shape[3] ** -0.5 if scale is None else scale
    out, lse = textbook(*leaves[:3], keep_of(plan.bound), factor, softcap, leaves[3] if sinks is not None else None)
    out.backward(dout)
    return [out.detach(), lse.detach(), *(leaf.grad for leaf in leaves)]


TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 2e-2, torch.float16: 3e-3}


def close(got: list[Any], wanted: list[Any], dtype: Any, name: str) -> None:
    """Compares outputs with the largest output, and gradients with the largest of all gradients."""
    finite = [x[torch.isfinite(x)].abs() for x in wanted]
    largest = [max((x.max().item() for x in part if x.numel()), default=0.0) for part in (finite[:1], finite[1:2], finite[2:])]
    for i, (a, b) in enumerate(zip(got, wanted)):
        a = a.cpu().double()
        assert torch.equal(torch.isinf(a), torch.isinf(b)), f"{name}: result {i}"
        there = torch.isfinite(b)
        error = (a[there] - b[there]).abs().max().item() if there.any() else 0.0
        assert error <= TOLERANCE[dtype] * max(largest[min(i, 2)], 0.1), f"{name}: result {i} is off by {error:.1e}, largest {largest}"


CORPUS = [case for case in corpus() if "message" not in case.case and not case.id.startswith("errors")]


@pytest.mark.parametrize("part", range(8))
def test_every_mask_of_the_corpus(part: int) -> None:
    for number, case in list(enumerate(CORPUS))[part::8]:
        bound = case.bind()
        dtype = (torch.float32, torch.float32, torch.bfloat16, torch.float16)[number % 4]
        tensors = drawn(bound.shape, (16, 24, 64)[number % 3], (16, 40)[number % 2], dtype, number)
        more: dict[str, Any] = {"softcap": 2.5} if number % 3 == 1 else {}
        if number % 5 == 2:
            more["sinks"] = torch.randn(bound.shape.heads, generator=torch.Generator().manual_seed(number)).to(DEVICE)
        plan = bound.plan()
        close(run(plan, tensors, **more), expected(plan, tensors, **more), dtype, f"{case.id} {dtype}")


LONG = [
    ("causal", nr.Shape.square(300, heads=4, kv_heads=2), {}),
    ("causal & documents", nr.Shape.square(320, heads=2), {"documents": [50, 77, 129, 3, 61]}),
    ("sliding(70) | keys(0..3)", nr.Shape.square(257), {}),
    ("causal & padding", nr.Shape.square(150, batch=3, heads=2), {"lengths": [150, 91, 0], "side": "left"}),
    ("full", nr.Shape.cross(70, 190, heads=2), {}),
    ("causal", nr.Shape.cached(100, 30, heads=2), {}),
    ("causal & stride(3)", nr.Shape.square(200), {}),
]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("text", "shape", "facts"), LONG)
def test_several_tiles(text: str, shape: nr.Shape, facts: dict[str, Any], dtype: Any) -> None:
    plan = nr.Mask(text).plan(shape, nr.Facts(**facts))
    tensors = drawn(shape, 64, 32, dtype, 1)
    close(run(plan, tensors), expected(plan, tensors), dtype, text)


def bits(x: Any) -> Any:
    return x.view({4: torch.int32, 2: torch.int16}[x.element_size()])


def same_bits(a: list[Any], b: list[Any], name: str) -> None:
    for i, (x, y) in enumerate(zip(a, b)):
        assert torch.equal(bits(x.contiguous()), bits(y.contiguous())), f"{name}: result {i}"


def rows(results: list[Any], at: slice) -> list[Any]:
    return [x[:, :, at] for x in results]


BITS = [torch.float32, torch.bfloat16]


@pytest.mark.parametrize("dtype", BITS)
@pytest.mark.parametrize("text", ["causal", "full", "sliding(40)", "window(left=30, right=70)"])
def test_packed_documents_have_the_bits_that_they_have_alone(text: str, dtype: Any) -> None:
    lens = [50, 77, 129, 3, 61]
    shape = nr.Shape.square(sum(lens), heads=2, kv_heads=1)
    tensors = drawn(shape, 32, 32, dtype, 2)
    packed = run((nr.Mask(text) & nr.documents()).plan(shape, nr.Facts(documents=lens)), tensors)
    start = 0
    for length in lens:
        at = slice(start, start + length)
        alone = run(nr.Mask(text).plan(nr.Shape.square(length, heads=2, kv_heads=1)), rows(tensors, at))
        same_bits(alone, rows(packed, at), f"{text}, document of {length}")
        start += length


@pytest.mark.parametrize("dtype", BITS)
@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("text", ["causal", "full", "sliding(40)", "window(left=30, right=70)"])
def test_padding_and_other_rows_change_no_bit(text: str, side: str, dtype: Any) -> None:
    lens = [130, 219, 64]
    shape = nr.Shape.square(219, batch=3, heads=2)
    tensors = drawn(shape, 32, 48, dtype, 3)
    places = [slice(219 - n, 219) if side == "left" else slice(0, n) for n in lens]
    for b, at in enumerate(places):
        padding = torch.ones(219, dtype=torch.bool)
        padding[at] = False
        tensors[3][b, :, padding] = 0.0
        for hidden in tensors[1:3]:
            hidden[b, :, padding] = torch.tensor([float("nan"), float("inf"), 1e30]).to(dtype).to(DEVICE).repeat(219)[: padding.sum(), None]
    padded = run((nr.Mask(text) & nr.padding()).plan(shape, nr.Facts(lengths=lens, side=side)), tensors)
    for b, at in enumerate(places):
        own = [x[b : b + 1, :, at] for x in tensors]
        alone = run(nr.Mask(text).plan(nr.Shape.square(lens[b], heads=2)), own)
        same_bits(alone, [x[b : b + 1, :, at] for x in padded], f"{text}, {side}, row {b}")


@pytest.mark.parametrize("dtype", BITS)
def test_hidden_keys_change_no_bit_and_visible_ones_reach_their_readers(dtype: Any) -> None:
    shape = nr.Shape.square(140, heads=2)
    mask = nr.causal() & nr.keys(range(30)) | nr.causal() & nr.keys(range(31, 140)) & nr.sliding(50)
    plan = mask.plan(shape)
    keep = keep_of(plan.bound)
    tensors = drawn(shape, 32, 32, dtype, 4)
    before = run(plan, tensors)
    assert not keep[..., 30].any()
    for bad in (float("nan"), float("inf"), -float("inf"), 1e30):
        poisoned = [x.clone() for x in tensors]
        poisoned[1][:, :, 30] = poisoned[2][:, :, 30] = bad
        after = run(plan, poisoned)
        same_bits(before[:3], after[:3], f"hidden {bad}")
        same_bits(rows(before, slice(31, 140)), rows(after, slice(31, 140)), f"gradients, hidden {bad}")
    visible = [x.clone() for x in tensors]
    visible[2][:, :, 60] = float("nan")
    out = run(plan, visible)[0]
    reads = keep[0, 0, :, 60].to(DEVICE)
    assert torch.isnan(out[:, :, reads]).all()
    same_bits([before[0][:, :, ~reads]], [out[:, :, ~reads]], "rows that do not read the key")


def test_what_does_not_fit_is_refused() -> None:
    plan = nr.causal().plan(nr.Shape.square(8, heads=2))
    q, k, v, _ = drawn(nr.Shape.square(8, heads=2), 16, 16, torch.float32, 0)
    for tensors, words in [
        ((q[:, :1], k, v), "q has the shape (1, 1, 8, 16): the plan needs (1, 2, 8)"),
        ((q, k.half(), v), "must all be float32, bfloat16 or float16"),
        ((q.to("meta"), k, v), "on several devices"),
        ((q, k[..., :8], v), "head dimensions 16, 8, 16"),
    ]:
        with pytest.raises(nr.Error) as error:
            attention(*tensors, plan)
        assert words in str(error.value)

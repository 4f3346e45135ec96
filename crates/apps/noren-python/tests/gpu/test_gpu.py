"""The numbers of the GPU kernels: all masks and score modifiers against float64, and the bits that must not change."""

from __future__ import annotations

from typing import Any

import pytest
from conftest import corpus, sampled

import noren as nr

from on_gpu import DEVICE, device_kernels, np, same_bits, torch  # skips this file where Triton is missing

import noren.torch as nt
from noren.gpu import paged_attention, replace


def keep_of(bound: nr.BoundMask) -> Any:
    shape = bound.shape
    return torch.from_numpy(np.array(nr.to_keep(bound))).expand(shape.batch, shape.heads, shape.q_len, shape.kv_len)


def distances(plan: nr.Plan) -> Any:
    """Returns key position minus query position, `[batch, q_len, kv_len]`."""
    shape = plan.shape
    offsets = torch.tensor(shape.query_offsets)[:, None, None]
    return torch.arange(shape.kv_len) - offsets - torch.arange(shape.q_len)[:, None]


def textbook(q: Any, k: Any, v: Any, plan: nr.Plan, more: dict[str, Any], scale: float) -> tuple[Any, Any]:
    """Returns output and log-sum-exps in float64. Cells that are not allowed enter no product."""
    group = q.shape[1] // k.shape[1]
    k, v = (x.repeat_interleave(group, 1) for x in (k, v))
    keep = keep_of(plan.bound)
    s = (q @ k.transpose(-1, -2)) * scale
    if more.get("softcap") is not None:
        s = more["softcap"] * torch.tanh(s / more["softcap"])
    if more.get("bias") is not None:
        s = s + more["bias"]
    if more.get("relative") is not None:
        reach = more["relative"].shape[1] // 2
        entry = distances(plan).clamp(-reach, reach) + reach
        s = s + more["relative"][:, entry].transpose(0, 1)
    if more.get("alibi") is not None:
        s = s - torch.tensor(more["alibi"], dtype=torch.float64)[:, None, None] * distances(plan)[:, None].abs()
    if more.get("soft") is not None:
        keep = keep & (more["soft"] > 0)
        s = s + torch.log(torch.where(more["soft"] > 0, more["soft"], 1.0))
    s = torch.where(keep, s, -torch.inf)
    some = keep.any(-1, keepdim=True)
    if more.get("sinks") is not None:
        s = torch.cat([s, more["sinks"][None, :, None, None].expand(*s.shape[:3], 1)], -1)
    most = torch.where(some, s.amax(-1, keepdim=True), 0.0).detach()
    e = torch.where(some, torch.exp(s - most), 0.0)
    total = torch.where(some, e.sum(-1, keepdim=True), 1.0)
    e = e if more.get("sinks") is None else e[..., :-1]
    return torch.where(some, (e @ v) / total, 0.0), torch.where(some, most + torch.log(total), -torch.inf)[..., 0]


def drawn(shape: nr.Shape, dim: int, v_dim: int, dtype: Any, seed: int) -> list[Any]:
    """Returns q, k, v and the gradient of the output."""
    g = torch.Generator().manual_seed(seed)
    sizes = [(shape.heads, shape.q_len, dim), (shape.kv_heads, shape.kv_len, dim), (shape.kv_heads, shape.kv_len, v_dim)]
    sizes.append((shape.heads, shape.q_len, v_dim))
    return [torch.randn(shape.batch, *size, generator=g).to(dtype).to(DEVICE) for size in sizes]


def run(plan: nr.Plan, tensors: list[Any], **more: Any) -> list[Any]:
    """Returns output, log-sum-exps and gradients of q, k, v and of the tensors in `more`."""
    q, k, v, dout = tensors
    leaves = [x.detach().clone().requires_grad_() for x in (q, k, v)]
    with device_kernels():
        modifiers = {name: x.detach().to(DEVICE).requires_grad_() if isinstance(x, torch.Tensor) else x for name, x in more.items()}
        out, lse = nt.attention(*leaves, plan, return_lse=True, **modifiers)
        out.backward(dout)
    leaves += [x for x in modifiers.values() if isinstance(x, torch.Tensor)]
    return [out.detach(), lse.detach(), *(leaf.grad for leaf in leaves)]


def expected(plan: nr.Plan, tensors: list[Any], **more: Any) -> list[Any]:
    q, k, v, dout = (x.cpu().double() for x in tensors)
    modifiers = {name: x.detach().cpu().double().requires_grad_() if isinstance(x, torch.Tensor) else x for name, x in more.items()}
    leaves = [x.requires_grad_() for x in (q, k, v)]
    scale = modifiers.pop("scale", q.shape[3] ** -0.5)
    out, lse = textbook(*leaves, plan, modifiers, scale)
    out.backward(dout)
    leaves += [x for x in modifiers.values() if isinstance(x, torch.Tensor)]
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


pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # NumPy warns of NaN and overflow in the interpreter
CASES = [case for case in corpus() if "message" not in case.case and not case.id.startswith("errors")]
# The interpreter is slow: there, one run of seven neighbours in three is tested, so that all types and head dimensions occur, and
# one of the half-precision types elsewhere.
HALVES = [torch.bfloat16, torch.float16] if DEVICE != "cpu" else [torch.bfloat16]
CORPUS = [(number, case) for number, case in enumerate(CASES) if DEVICE != "cpu" or number // 7 % 3 == 0]


@pytest.mark.parametrize("part", sampled(range(8), 8, 3))
def test_every_mask_of_the_corpus(part: int) -> None:
    for number, case in CORPUS[part::8]:
        bound = case.bind()
        dtype = (torch.float32, torch.float32, torch.bfloat16, torch.float16)[number % 4]
        tensors = drawn(bound.shape, (16, 24, 64)[number % 3], (16, 40)[number % 2], dtype, number)
        more: dict[str, Any] = {"softcap": 2.5} if number % 3 == 1 else {}
        if number % 5 == 2:
            more["sinks"] = torch.randn(bound.shape.heads, generator=torch.Generator().manual_seed(number))
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


@pytest.mark.parametrize("dtype", [torch.float32, *HALVES])
@pytest.mark.parametrize(("text", "shape", "facts"), sampled(LONG, 3, 1))
def test_several_tiles(text: str, shape: nr.Shape, facts: dict[str, Any], dtype: Any) -> None:
    plan = nr.Mask(text).plan(shape, nr.Facts(**facts))
    tensors = drawn(shape, 64, 32, dtype, 1)
    close(run(plan, tensors), expected(plan, tensors), dtype, text)


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize(("dim", "v_dim"), sampled([(24, 16), (40, 40), (80, 80), (96, 64), (128, 128), (192, 128), (256, 256)], 5))
def test_head_dimensions(dim: int, v_dim: int, dtype: Any) -> None:
    shape = nr.Shape.square(100, heads=2, kv_heads=1)
    plan = (nr.causal() & nr.sliding(30)).plan(shape)
    tensors = drawn(shape, dim, v_dim, dtype, dim)
    close(run(plan, tensors), expected(plan, tensors), dtype, f"head_dim {dim}, v_dim {v_dim}")


def modifiers(shape: nr.Shape, seed: int) -> dict[str, Any]:
    """Returns score modifiers of every kind, each with some broadcast dimensions."""
    g = torch.Generator().manual_seed(seed)
    biases = [(shape.batch, shape.heads, shape.q_len, shape.kv_len), (1, shape.heads, 1, shape.kv_len), (shape.batch, 1, shape.q_len, 1)]
    soft = torch.rand(1, shape.heads, shape.q_len, shape.kv_len, generator=g) - 0.2
    return {
        "scale": 0.3, "softcap": 2.5, "bias": torch.randn(biases[seed % 3], generator=g),
        "relative": torch.randn((1, shape.heads)[seed % 2], 9, generator=g),
        "alibi": tuple(0.5 ** (h + 1) for h in range(shape.heads)),
        "soft": torch.where(soft < 0, 0.0, soft), "sinks": torch.randn(shape.heads, generator=g),
    }  # fmt: skip


@pytest.mark.parametrize("name", ["bias", "relative", "alibi", "soft", "sinks", "softcap"])
def test_every_score_modifier_alone(name: str) -> None:
    shape = nr.Shape.square(75, batch=2, heads=4, kv_heads=2)
    plan = (nr.causal() & nr.padding()).plan(shape, nr.Facts(lengths=[75, 40], side="right"))
    for seed in range(3 if name == "bias" else 1):
        more = {name: modifiers(shape, seed)[name]}
        tensors = drawn(shape, 16, 24, torch.float32, seed)
        close(run(plan, tensors, **more), expected(plan, tensors, **more), torch.float32, name)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("seed", sampled(range(3), 3, 2))
def test_all_score_modifiers_together(seed: int, dtype: Any) -> None:
    shape = nr.Shape.square(100, batch=2, heads=2, kv_heads=1)
    mask = [nr.full(), nr.causal() & nr.sliding(30), nr.causal() & nr.documents()][seed]
    plan = mask.plan(shape, nr.Facts(documents=[[60, 40], [13, 87]]).used_by(mask))
    tensors = drawn(shape, 24, 16, dtype, seed)
    more = modifiers(shape, seed)
    close(run(plan, tensors, **more), expected(plan, tensors, **more), dtype, f"{mask}")


@pytest.mark.parametrize("mask", ["full", "causal & sliding(20)"])
def test_dropout_drops_the_same_probabilities_as_the_cpu(mask: str) -> None:
    shape = nr.Shape.square(64, batch=2, heads=2)
    plan = nr.Mask(mask).plan(shape)
    q, k, _, dout = drawn(shape, 16, 64, torch.float32, 5)
    v = torch.eye(64).expand(2, 2, 64, 64)  # the output is the matrix of probabilities

    def call(device: str) -> list[Any]:
        torch.manual_seed(9)
        leaves = [x.detach().to(device, copy=True).requires_grad_() for x in (q, k, v)]
        out = nt.attention(*leaves, plan, dropout=0.4)
        out.backward(dout.to(device))
        return [out.detach().cpu(), *(leaf.grad.cpu() for leaf in leaves)]

    on_cpu = call("cpu")
    with device_kernels():
        on_device = call(DEVICE)
    allowed = keep_of(plan.bound)
    dropped = allowed & (on_cpu[0] == 0)
    assert 0.3 < dropped.sum() / allowed.sum() < 0.5
    assert torch.equal(dropped, allowed & (on_device[0] == 0))
    for a, b in zip(on_cpu, on_device, strict=True):
        assert (a - b).abs().max() < 1e-5 * a.abs().max()


def rows(results: list[Any], at: slice) -> list[Any]:
    return [x[:, :, at] for x in results]


BITS = [torch.float32, torch.bfloat16]


@pytest.mark.parametrize("dtype", BITS)
@pytest.mark.parametrize("text", sampled(["causal", "full", "sliding(40)", "window(left=30, right=70)"], 3))
def test_packed_documents_have_the_bits_that_they_have_alone(text: str, dtype: Any) -> None:
    lens = [50, 129, 3, 41]
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
@pytest.mark.parametrize("text", sampled(["causal", "full", "sliding(40)", "window(left=30, right=70)"], 3))
def test_padding_and_other_rows_change_no_bit(text: str, side: str, dtype: Any) -> None:
    lens = [130, 150, 33]
    shape = nr.Shape.square(150, batch=3, heads=1)
    tensors = drawn(shape, 32, 48, dtype, 3)
    places = [slice(150 - n, 150) if side == "left" else slice(0, n) for n in lens]
    for b, at in enumerate(places):
        padding = torch.ones(150, dtype=torch.bool)
        padding[at] = False
        tensors[3][b, :, padding] = 0.0
        for hidden in tensors[1:3]:
            hidden[b, :, padding] = torch.tensor([float("nan"), float("inf"), 1e30]).to(dtype).to(DEVICE).repeat(150)[: padding.sum(), None]
    padded = run((nr.Mask(text) & nr.padding()).plan(shape, nr.Facts(lengths=lens, side=side)), tensors)
    for b, at in enumerate(places):
        own = [x[b : b + 1, :, at] for x in tensors]
        alone = run(nr.Mask(text).plan(nr.Shape.square(lens[b])), own)
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


@pytest.mark.parametrize("dtype", BITS)
def test_hidden_biases_and_soft_weights_change_no_bit(dtype: Any) -> None:
    shape = nr.Shape.square(90, heads=2)
    plan = (nr.causal() & nr.sliding(40)).plan(shape)
    hidden = ~keep_of(plan.bound)
    tensors = drawn(shape, 16, 16, dtype, 6)
    more = {name: modifiers(shape, 0)[name] for name in ("bias", "soft")}
    more["soft"] = more["soft"] + 0.01
    before = run(plan, tensors, **more)
    for bad in (float("nan"), float("inf"), -float("inf"), 1e30):
        poisoned = {name: torch.where(hidden, bad, x) for name, x in more.items()}
        after = run(plan, tensors, **poisoned)
        same_bits(before, after, f"hidden {bad}")
        assert (after[5][hidden] == 0).all() and (after[6][hidden[:1]] == 0).all()


def test_cells_with_the_soft_weight_0_are_hidden() -> None:
    shape = nr.Shape.square(64, heads=1)
    plan = nr.full().plan(shape)
    tensors = drawn(shape, 16, 16, torch.float32, 7)
    soft = torch.ones(1, 1, 64, 64)
    soft[..., 10:20] = 0.0
    before = run(plan, tensors, soft=soft)
    for bad in (float("nan"), float("inf")):
        poisoned = [x.clone() for x in tensors]
        poisoned[1][:, :, 10:20] = poisoned[2][:, :, 10:20] = bad
        after = run(plan, poisoned, soft=soft)
        same_bits(before[:3], after[:3], f"weight 0, {bad}")


def test_runs_have_the_same_bits_and_batch_rows_are_independent() -> None:
    shape = nr.Shape.square(130, batch=3)
    plan = nr.causal().plan(shape)
    tensors = drawn(shape, 32, 32, torch.bfloat16, 8)
    first = run(plan, tensors)
    same_bits(first, run(plan, tensors), "second run")
    own = run(nr.causal().plan(nr.Shape.square(130)), [x[2:3] for x in tensors])
    same_bits(own, [x[2:3] for x in first], "batch of 1")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("group", sampled([2, 3, 4, 8], 3))
def test_groups_share_tiles(group: int, dtype: Any) -> None:
    """Equal masks of a group share tiles, also of other rows and heads; a mask that differs in one head is computed head by head."""
    shape = nr.Shape.square(90, batch=2, heads=2 * group, kv_heads=2)
    tensors = drawn(shape, 16, 24, dtype, group)
    more = modifiers(shape, group)
    facts = nr.Facts(documents=[[60, 30], [7, 83]])
    for text in ("causal & documents", f"heads({group - 1}: sliding(9), else: causal & documents)"):
        plan = nr.Mask(text).plan(shape, facts)
        close(run(plan, tensors, **more), expected(plan, tensors, **more), dtype, f"{text}, {group} heads")


def test_the_same_mask_gives_the_same_bits_in_groups_and_in_single_heads(monkeypatch: pytest.MonkeyPatch) -> None:
    """With one head for each key-value head, tiles have other rows. Rows of one block of keys have equal sums in both.

    The interpreter computes products of matrices with NumPy, whose float32 sums depend on the number of rows on some processors. Here
    the products are summed in float64, so that only the kernels decide the bits.
    """
    matmul = np.matmul

    def product(a: Any, b: Any, dtype: Any = None) -> Any:
        return matmul(a.astype(np.float64), b.astype(np.float64)).astype(dtype or np.result_type(a, b))

    monkeypatch.setattr(np, "matmul", product)
    shape = nr.Shape.square(32, heads=4, kv_heads=1)
    q, k, v, dout = drawn(shape, 16, 16, torch.float32, 3)
    grouped = run(nr.causal().plan(shape), [q, k, v, dout])
    single = run(nr.causal().plan(nr.Shape.square(32, heads=4)), [q, k.expand(1, 4, 32, 16), v.expand(1, 4, 32, 16), dout])
    same_bits(grouped[:3], single[:3], "out, lse and dq")
    for i in (3, 4):
        assert (grouped[i] - single[i].sum(1, keepdim=True)).abs().max() < 1e-5


# --- decoding -----------------------------------------------------------------------------------------------------

DECODE = [
    ("causal", {}),
    ("sliding(700)", {}),
    ("causal & stride(3)", {}),
    ("causal & (sliding(100) | keys(0..4))", {}),
    ("heads(0: causal, 1: sliding(90), 2: sliding(600), 3: causal)", {}),
]


def test_decoding_every_mask() -> None:
    shape = nr.Shape.cached(1200, 3, batch=2, heads=4, kv_heads=2)
    for number, (text, facts) in enumerate(DECODE):
        for dtype in (torch.float32, torch.bfloat16):
            plan = nr.Mask(text).plan(shape, nr.Facts(**facts))
            tensors = drawn(shape, 32, 48, dtype, number)
            more = modifiers(shape, number) if number == 1 else {}
            with torch.no_grad(), device_kernels():
                q, k, v, _ = tensors
                got = nt.attention(q, k, v, plan, return_lse=True, **{n: x.to(DEVICE) if isinstance(x, torch.Tensor) else x for n, x in more.items()})
            close([*got], expected(plan, tensors, **more)[:2], dtype, f"{text} {dtype}")


@pytest.mark.parametrize("dtype", BITS)
@pytest.mark.parametrize("text", ["causal", "sliding(300)"])
def test_decoding_has_the_same_bits_in_any_batch_and_with_padding_on_the_left(text: str, dtype: Any) -> None:
    lens = [1100, 700, 613, 64]
    longest = max(lens)
    shape = nr.Shape.cached(longest - 1, 1, batch=4, heads=4, kv_heads=1)
    tensors = drawn(shape, 32, 32, dtype, 11)
    for b, n in enumerate(lens):
        for hidden in tensors[1:3]:
            hidden[b, :, : longest - n] = float("nan")
    real = [[f"{longest - n}..{longest}"] for n in lens]
    together = decoded((nr.Mask(text) & nr.padding()).plan(shape, nr.Facts(real_keys=real)), tensors)
    for b, n in enumerate(lens):
        own = [tensors[0][b : b + 1], *(x[b : b + 1, :, longest - n :] for x in tensors[1:3])]
        alone = decoded(nr.Mask(text).plan(nr.Shape.cached(n - 1, 1, heads=4, kv_heads=1)), own)
        same_bits(alone, [x[b : b + 1] for x in together], f"{text}, {n} keys")


def decoded(plan: nr.Plan, tensors: list[Any]) -> list[Any]:
    with torch.no_grad(), device_kernels():
        return list(nt.attention(*tensors[:3], plan, return_lse=True))


@pytest.mark.parametrize("dtype", BITS)
def test_pages_have_the_bits_of_a_contiguous_cache(dtype: Any) -> None:
    lens, size = [700, 333, 1], 16
    shape = nr.Shape(1, 720, query_offset=[n - 1 for n in lens], batch=3, heads=4, kv_heads=2)
    plan = (nr.causal() & nr.padding()).plan(shape, nr.Facts(lengths=lens, side="right"))
    q, k, v, _ = drawn(shape, 32, 16, dtype, 12)
    contiguous = decoded(plan, [q, k, v])
    order = torch.randperm(3 * 45 + 5, generator=torch.Generator().manual_seed(3))[: 3 * 45].reshape(3, 45).int()
    pools = [torch.full((3 * 45 + 5, 2, size, x.shape[3]), float("nan"), dtype=dtype, device=DEVICE) for x in (k, v)]
    for b, n in enumerate(lens):
        for page in range(-(-n // size)):
            there = slice(page * size, min(n, (page + 1) * size))
            for pool, x in zip(pools, (k, v), strict=True):
                pool[order[b, page], :, : there.stop - there.start] = x[b, :, there]
        order[b, -(-n // size) :] = -1  # pages that no query reads have no number
    with device_kernels():
        paged = paged_attention(q, *pools, order.to(DEVICE), plan)
    same_bits(contiguous, list(paged), "pages")


@pytest.mark.parametrize("cap", sampled([0.5, 20.0, 1e3, 1e6, 1e30], 4))
def test_large_softcaps_are_precise(cap: float) -> None:
    shape = nr.Shape.square(40)
    tensors = drawn(shape, 16, 16, torch.float32, 14)
    plan = nr.causal().plan(shape)
    close(run(plan, tensors, softcap=cap), expected(plan, tensors, softcap=cap), torch.float32, f"softcap {cap}")


def test_batch_and_heads_may_be_left_out() -> None:
    shape = nr.Shape.square(20, heads=2)
    q, k, v, dout = drawn(shape, 16, 16, torch.float32, 15)
    whole = run(nr.causal().plan(shape), [q, k, v, dout])
    with device_kernels():
        leaves = [x[0].clone().requires_grad_() for x in (q, k, v)]
        out, lse = nt.attention(*leaves, "causal", return_lse=True)
        out.backward(dout[0])
        same_bits([x[0] for x in whole], [out.detach(), lse.detach(), *(x.grad for x in leaves)], "three dimensions")
        assert nt.attention(q[0, 0], k[0, 0], v[0, 0], "causal").shape == (20, 16)


def test_pages_that_do_not_fit_are_refused() -> None:
    shape = nr.Shape.cached(31, 1, heads=2)
    plan = nr.causal().plan(shape)
    q, pool, pages = torch.zeros(1, 2, 1, 16), torch.zeros(4, 2, 16, 16), torch.zeros(1, 2, dtype=torch.int32)
    for tensors, words in [
        ((q[:, :1], pool, pool, pages), "q has shape (1, 1, 1, 16): give [1, 2, 1, head_dim], as the mask needs"),
        ((q, pool[:, :1], pool, pages), "k has shape (4, 1, 16, 16): give [pages, 2 kv_heads"),
        ((q, pool[:, :, :12], pool[:, :, :12], pages), "the pages have 12 keys"),
        ((q, pool, pool, pages.long()), "`pages` is torch.int64 (1, 2): give int32 of shape [1, at least 2]"),
        ((q, pool, pool, pages[:, :1]), "at least 2"),
        ((q.half(), pool, pool, pages), "of one number type"),
        ((q, pool, pool, None), "pages is a NoneType: give a tensor"),
    ]:
        with pytest.raises((nr.Error, TypeError)) as error:
            paged_attention(*tensors, plan)
        assert words in str(error.value)


# --- plans in place -----------------------------------------------------------------------------------------------


def test_a_plan_can_be_replaced_in_place() -> None:
    shape = nr.Shape.square(300, heads=2)
    mask = nr.causal() & nr.documents()
    old, new = (mask.plan(shape, nr.Facts(documents=lens)) for lens in ([90, 131, 79], [100, 120, 80]))
    tensors = drawn(shape, 32, 32, torch.float32, 13)
    wanted = run(new, tensors)
    run(old, tensors)
    replace(old, new)
    same_bits(wanted, run(old, tensors), "replaced")
    with pytest.raises(nr.Error, match="has space for"):
        replace(old, nr.random(0.5, 1).plan(shape))
    same_bits(wanted, run(old, tensors), "refused")
    with pytest.raises(nr.Error, match="the plans have the shapes"):
        replace(old, nr.causal().plan(nr.Shape.square(301, heads=2)))


def test_what_does_not_fit_is_refused() -> None:
    plan = nr.causal().plan(nr.Shape.square(8, heads=2))
    q, k, v, _ = drawn(nr.Shape.square(8, heads=2), 16, 16, torch.float32, 0)
    for tensors, more, words in [
        ((q[:, :1], k, v), {}, "the number of heads of k and v must divide that of q"),
        ((q.repeat(1, 2, 1, 1), k, v), {}, "the mask is bound to Shape(8, 8, heads=2), but the call has 1 batch rows, 4 heads"),
        ((q, k.half(), v), {}, "give tensors of one number type"),  # a TypeError, as on the CPU
        ((q.to("meta"), k, v), {}, "q is on meta: noren computes on CPUs and CUDA devices"),
        ((q, k[..., :8], v), {}, "q and k need the same head_dim"),
        ((q, k, v.repeat(1, 1, 1, 17)), {}, "head dimensions 16, 16 and 272: those of q and k must be equal, and all from 1 to 256"),
        ((q, k, v), {"sinks": torch.zeros(3, device=DEVICE)}, "sinks has shape (3,)"),
        ((q, k, v), {"relative": torch.zeros(2, 4, device=DEVICE)}, "relative has shape (2, 4)"),
        ((q, k, v), {"alibi": [1.0]}, "alibi has 1 slopes"),
        ((q, k, v), {"alibi": [1.0, float("nan")]}, "alibi has the slope nan"),
        ((q, k, v), {"softcap": 0.0}, "`softcap` is 0.0: give a number from 1e-30 to 1e30"),
        ((q, k, v), {"scale": float("inf")}, "scale is inf: give a finite number"),
        ((q, k, v), {"bias": torch.zeros(3, 8, 8, device=DEVICE)}, "bias has shape (3, 8, 8)"),
    ]:
        with pytest.raises((nr.Error, TypeError)) as error, device_kernels():
            nt.attention(*tensors, plan, **more)
        assert words in str(error.value), str(error.value)

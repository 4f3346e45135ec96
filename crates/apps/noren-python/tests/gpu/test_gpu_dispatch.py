"""Calls of `noren.torch` and `noren.hf` that use the GPU kernels."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest
from on_gpu import DEVICE, HARDWARE, device_kernels, np, torch  # skips this file where Triton is missing

import noren as nr
import noren.torch as nt
from noren.gpu import _attention, _launch, _plan

from torch.utils._python_dispatch import TorchDispatchMode  # isort: skip


def close(a: Any, b: Any) -> None:
    assert (a - b).abs().max().item() <= 1e-5 * max(b.abs().max().item(), 1.0)


def both(call: Any) -> tuple[Any, Any]:
    """Returns the results of a call on the CPU's kernels and on the device's."""
    torch.manual_seed(1)
    on_cpu = call("cpu")
    torch.manual_seed(1)
    with device_kernels():
        return on_cpu, call(DEVICE).cpu()


def drawn(*shape: int, seed: int = 0) -> Any:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


# --- noren.torch --------------------------------------------------------------------------------------------------


def test_sdpa_with_mask_tensors() -> None:
    q, k, v = (drawn(2, 4, 40, 16, seed=i) for i in range(3))
    keep = drawn(2, 1, 40, 40, seed=4) > -0.5
    added = torch.where(keep, drawn(40, 40, seed=5), -torch.inf)
    for mask in (None, keep, added):
        close(*both(lambda device, m=mask: nt.sdpa(*(x.to(device) for x in (q, k, v)), None if m is None else m.to(device))))
    close(*both(lambda device: nt.sdpa(*(x.to(device) for x in (q, k[:, :2], v[:, :2])), is_causal=True, enable_gqa=True)))
    close(*both(lambda device: nt.sdpa(*(x.to(device) for x in (q, k, v)), is_causal=True, dropout_p=0.25)))


def test_multihead_attention_trains() -> None:
    x, padding = drawn(2, 30, 32), torch.arange(30) >= torch.tensor([[30], [17]])

    def call(device: str) -> Any:
        torch.manual_seed(3)
        module = nt.MultiheadAttention(32, 4, dropout=0.1, batch_first=True).to(device)
        given = x.to(device)
        out, weights = module(given, given, given, key_padding_mask=padding.to(device), attn_mask="causal")
        (out.square().sum() + weights.square().sum()).backward()
        return torch.cat([out.flatten(), weights.flatten(), *(p.grad.flatten() for p in module.parameters())])

    close(*both(call))


def test_autocast_checkpoint_and_compile() -> None:
    from torch.utils.checkpoint import checkpoint

    q = drawn(1, 2, 40, 16)

    def autocast(device: str) -> Any:
        with torch.autocast(device, torch.bfloat16):
            out = nt.attention(*(q.to(device),) * 3, nr.causal())
        assert out.dtype == torch.bfloat16
        return out.float()

    a, b = both(autocast)
    assert (a - b).abs().max() < 2e-2 * a.abs().max()

    def checkpointed(device: str) -> Any:
        x = q.detach().to(device).requires_grad_()
        checkpoint(lambda x: nt.attention(x, x, x, nr.causal(), dropout=0.2), x, use_reentrant=False).sum().backward()
        return x.grad

    close(*both(checkpointed))

    def compiled(device: str) -> Any:
        torch._dynamo.reset()
        x = q.detach().to(device).requires_grad_()
        torch.compile(lambda x: nt.attention(x * 1.0, x, x, "causal", softcap=3.0), backend="aot_eager", fullgraph=True)(x).sum().backward()
        return x.grad

    close(*both(compiled))


def test_second_derivatives_and_partial_sums_are_refused() -> None:
    x = drawn(1, 1, 8, 16).to(DEVICE).requires_grad_()
    with device_kernels():
        out = nt.attention(x, x, x, nr.causal())
        (grad,) = torch.autograd.grad(out.sum(), x, create_graph=True)
        with pytest.raises(RuntimeError, match="no second derivative"):
            grad.sum().backward()


# --- launches -----------------------------------------------------------------------------------------------------


class Launches:
    """Records launches in place of the kernels."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, int, dict[str, Any], dict[str, Any], Any]] = []

    def __call__(self, kernel: Any, programs: int, arguments: dict[str, Any], constants: dict[str, Any], chosen: Any) -> None:
        self.calls.append((kernel, programs, arguments, constants, chosen))


class Watch(TorchDispatchMode):
    """Counts copies between devices or types, and refuses operations that wait for the device."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: list[str] = []

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = str(function)
        if any(word in name for word in ("_local_scalar_dense", "nonzero", "is_nonzero", "masked_select", "equal.default")):
            self.waits.append(name)
        return function(*args, **(kwargs or {}))


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch) -> Iterator[Launches]:
    recorded = Launches()
    monkeypatch.setattr(_launch, "launch", recorded)
    yield recorded


@pytest.fixture
def uploads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    sizes: list[int] = []
    upload = _plan._upload

    def counted(arrays: Any, lens: Any, device: Any) -> Any:
        sizes.append(sum(lens))
        return upload(arrays, lens, device)

    monkeypatch.setattr(_plan, "_upload", counted)
    return sizes


def step(plan: nr.Plan, heads: int, kv_heads: int, n: int, dtype: Any) -> None:
    q, k = (torch.zeros(1, h, n, 64, dtype=dtype, device=DEVICE).requires_grad_() for h in (heads, kv_heads))
    with device_kernels():
        nt.attention(q, k, k, plan).sum().backward()


def documents(number: int, total: int = 2048) -> list[int]:
    cuts = np.sort(np.random.default_rng(number).choice(np.arange(1, total), 5 + number % 4, replace=False))
    return [int(n) for n in np.diff([0, *cuts, total])]


def test_layers_share_one_upload_and_nothing_waits(launches: Launches, uploads: list[int]) -> None:
    plan = (nr.causal() & nr.documents()).plan(nr.Shape.square(2048, heads=4, kv_heads=2), nr.Facts(documents=documents(0)))
    step(plan, 4, 2, 2048, torch.bfloat16)
    once = len(uploads)
    blocks = {(c[3]["BM"] // c[3]["PACK"], c[3]["BN"]) for c in launches.calls if "BN" in c[3]}
    assert once == len(blocks), "one upload for each block size"
    with Watch() as watch:
        for _ in range(4):
            step(plan, 4, 2, 2048, torch.bfloat16)
    assert len(uploads) == once and not watch.waits, watch.waits
    assert [call[0].__name__ for call in launches.calls[-4:]] == ["forward", "row_sums", "query_gradients", "key_gradients"]


def compiled_forms(launches: Launches) -> set[Any]:
    """Returns what Triton compiles apart: the kernel, types, divisibility of strides, and constants."""
    forms = set()
    for kernel, _, arguments, constants, chosen in launches.calls:
        given = []
        for name, value in arguments.items():
            if isinstance(value, torch.Tensor):
                given.append((name, value.dtype, value.data_ptr() % 16 == 0))
            elif isinstance(value, int):
                assert -(2**31) <= value < 2**31, f"{name} = {value} is passed as another type"
                free = name in kernel_counts()
                given.append((name, "i32" if free else (value == 1, value % 16 == 0)))
            else:
                given.append((name, type(value)))
        forms.add((kernel.__name__, tuple(given), tuple(constants.items()), chosen))
    return forms


def kernel_counts() -> list[str]:
    from noren.gpu._kernels import COUNTS

    return COUNTS


def test_fifty_packed_batches_compile_once_for_each_pass(launches: Launches, uploads: list[int]) -> None:
    for number in range(50):
        n = 1024 + 64 * (number % 3)
        plan = (nr.causal() & nr.documents()).plan(nr.Shape.square(n, heads=4, kv_heads=2), nr.Facts(documents=documents(number, n)))
        step(plan, 4, 2, n, torch.bfloat16)
    by_pass: dict[str, int] = {}
    for name, *_ in compiled_forms(launches):
        by_pass[name] = by_pass.get(name, 0) + 1
    assert by_pass == {"forward": 1, "row_sums": 1, "query_gradients": 1, "key_gradients": 1}
    grids = {call[1] for call in launches.calls if call[0].__name__ == "forward"}
    assert len(grids) <= 6, f"capacities give few grids: {grids}"


def test_decoding_steps_compile_once(launches: Launches) -> None:
    for past in (100, 101, 700, 1500, 4095):
        shape = nr.Shape.cached(past, 1, batch=2, heads=8, kv_heads=2)
        with torch.no_grad(), device_kernels():
            x = torch.zeros(2, 2, past + 1, 64, dtype=torch.bfloat16, device=DEVICE)
            nt.attention(torch.zeros(2, 8, 1, 64, dtype=torch.bfloat16, device=DEVICE), x, x, nr.causal().plan(shape))
    assert sorted(form[0] for form in compiled_forms(launches)) == ["chunks_forward", "chunks_join"]


def test_strides_reach_the_kernel_and_views_are_not_copied(launches: Launches) -> None:
    packed = torch.zeros(2, 50, 3, 4, 16, device=DEVICE)  # [batch, length, (q, k, v), heads, head_dim]
    q, k, v = (x.transpose(1, 2) for x in packed.unbind(2))
    with torch.no_grad(), device_kernels():
        nt.attention(q, k, v, nr.causal())
    (call,) = launches.calls
    assert call[2]["q_ptr"].data_ptr() == q.data_ptr() and [call[2][f"k_{d}"] for d in "bhsd"] == list(k.stride())
    assert call[1] == call[2]["pairs"] * _plan.capacity(1)


def test_tf32_is_used_only_when_asked_for(launches: Launches) -> None:
    x = torch.zeros(1, 1, 8, 16, device=DEVICE)
    for asked in ("highest", "high", "highest"):
        torch.set_float32_matmul_precision(asked)
        with torch.no_grad(), device_kernels():
            nt.attention(x, x, x, nr.causal())
    assert [call[3]["PRECISION"] for call in launches.calls] == ["ieee", "tf32", "ieee"]


# --- Hugging Face -------------------------------------------------------------------------------------------------

SMALL: dict[str, Any] = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
    "intermediate_size": 48, "vocab_size": 64, "max_position_embeddings": 128, "pad_token_id": 0, "bos_token_id": 1,
    "eos_token_id": 2, "attention_dropout": 0.0, "initializer_range": 0.3,
}  # fmt: skip
MODELS: dict[str, dict[str, Any]] = {
    "llama": {},
    "gemma3_text": {"sliding_window": 5, "layer_types": ["sliding_attention", "full_attention"]},
    "gpt_oss": {
        "sliding_window": 5, "num_local_experts": 4, "num_experts_per_tok": 2,
        "layer_types": ["sliding_attention", "full_attention"],
    },
    "bert": {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0},
}  # fmt: skip


@pytest.mark.parametrize("kind", MODELS)
def test_models_equal_eager(kind: str) -> None:
    transformers = pytest.importorskip("transformers", minversion="5.0")
    import noren.hf

    noren.hf.register()
    make = transformers.AutoModel if kind == "bert" else transformers.AutoModelForCausalLM
    cfg = transformers.AutoConfig.for_model(kind, **{**SMALL, **MODELS[kind]})
    torch.manual_seed(0)
    eager = make.from_config(copy.deepcopy(cfg), attn_implementation="eager").float().eval()
    ours = make.from_config(copy.deepcopy(cfg), attn_implementation="noren").float().eval()
    ours.load_state_dict(eager.state_dict())
    eager, ours = eager.to(DEVICE), ours.to(DEVICE)
    tokens = torch.randint(3, 64, (2, 12), generator=torch.Generator().manual_seed(1)).to(DEVICE)
    left = torch.tensor([[0, 0, 0] + [1] * 9, [1] * 12], device=DEVICE)
    real = left.bool()

    def result(model: Any) -> Any:
        given = model(tokens, attention_mask=left)
        return (given.last_hidden_state if kind == "bert" else given.logits)[real]

    def trained(model: Any) -> dict[str, Any]:
        model.zero_grad()
        result(model).square().mean().backward()
        return {name: p.grad for name, p in model.named_parameters() if p.grad is not None}

    with device_kernels():
        with torch.no_grad():
            wanted, got = result(eager), result(ours)
        assert (got - wanted).abs().max() < 1e-4 * wanted.abs().max()
        grads = trained(eager), trained(ours)
        for name, grad in grads[0].items():
            assert (grad - grads[1][name]).abs().max() < 1e-4 * max(grad.abs().max().item(), 1e-3), name
        if kind != "bert":
            written = [m.generate(tokens, attention_mask=left, max_new_tokens=6, do_sample=False) for m in (eager, ours)]
            assert torch.equal(*written)


@pytest.mark.skipif(HARDWARE, reason="needs Triton's compiler instead")
def test_the_interpreter_runs_only_inside_simulate() -> None:
    assert not _state().simulated
    with device_kernels():
        assert _state().simulated
    assert not _state().simulated


def _state() -> Any:
    from noren.arguments import _call

    return _call

"""`nt.varlen_attn` and flash-attention's functions against attention of each sequence alone, computed by PyTorch in float64.
"""

from __future__ import annotations

import inspect
import math
import random
from typing import Any

import numpy as np
import pytest

import noren as nr
from conftest import runs

torch = pytest.importorskip("torch")

import noren.torch as nt  # noqa: E402

BATCHES = runs(30, 200)
TOLERANCE = {torch.float32: 2e-5, torch.bfloat16: 4e-2, torch.float16: 6e-3}
MASKS = {
    "keys(0..2)": lambda q, k: k < 2,
    "chunk(3)": lambda q, k: q // 3 == k // 3,
    "stride(2)": lambda q, k: (q - k) % 2 == 0,
    "full - keys(1..3)": lambda q, k: (k < 1) | (k >= 3),
    "sliding(4) | keys(0..1)": lambda q, k: ((k <= q) & (q - k < 4)) | (k < 1),
}


def allowed(q_len: int, kv_len: int, window: tuple[int, int], mask: str | None) -> Any:
    """Returns the cells of one sequence as booleans, by the definition of flash-attention's windows and of the mask."""
    q, k = np.arange(q_len)[:, None] + kv_len - q_len, np.arange(kv_len)[None, :]
    cells = np.ones((q_len, kv_len), np.bool_)
    if window[0] >= 0:
        cells &= k >= q - window[0]
    if window[1] >= 0:
        cells &= k <= q + window[1]
    if mask is not None:
        cells &= MASKS[mask](q, k)
    return torch.from_numpy(cells)


def alone(q: Any, k: Any, v: Any, cells: Any, scale: float | None, softcap: float, slopes: Any) -> tuple[Any, Any]:
    """Returns attention of one sequence `[tokens, heads, width]` and its log-sum-exps `[heads, queries]`, in the type of `q`."""
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    scores = torch.einsum("qhd,khd->hqk", q, k) * (1 / math.sqrt(q.shape[-1]) if scale is None else scale)
    if softcap > 0:
        scores = softcap * torch.tanh(scores / softcap)
    if slopes is not None:
        distance = torch.arange(q.shape[0])[:, None] + k.shape[0] - q.shape[0] - torch.arange(k.shape[0])
        scores = scores - slopes.to(q.dtype)[:, None, None] * distance.abs()
    scores = scores.masked_fill(~cells, -torch.inf)
    empty = ~cells.any(1)
    weights = torch.softmax(scores.masked_fill(empty[:, None], 0.0), -1).masked_fill(empty[:, None], 0.0)
    return torch.einsum("hqk,khd->qhd", weights, v), torch.logsumexp(scores, -1) if k.shape[0] else scores.sum(-1) - torch.inf


def reference(q: Any, k: Any, v: Any, lens: list[tuple[int, int]], cells: list[Any], scale: Any, softcap: float, slopes: Any) -> tuple[Any, Any]:
    outs, sums = [], []
    at = [0, 0]
    for i, (n, m) in enumerate(lens):
        own = None if slopes is None else slopes if slopes.dim() == 1 else slopes[i]
        out, lse = alone(q[at[0] : at[0] + n], k[at[1] : at[1] + m], v[at[1] : at[1] + m], cells[i], scale, softcap, own)
        outs.append(out)
        sums.append(lse)
        at = [at[0] + n, at[1] + m]
    return torch.cat(outs), torch.cat(sums, -1)


def starts(lengths: Any) -> Any:
    return torch.tensor([0, *lengths], dtype=torch.int32).cumsum(0, dtype=torch.int32)


def batch(r: random.Random) -> list[tuple[int, int]]:
    """Returns the numbers of queries and keys of up to 6 sequences; some are equal, some are 0."""
    kind = r.choice(("same", "more keys", "any"))
    out: list[tuple[int, int]] = []
    for _ in range(r.randint(1, 6)):
        if out and r.random() < 0.3:
            out.append(out[-1])
            continue
        n = 0 if r.random() < 0.1 else r.randint(1, 14)
        m = n if kind == "same" else n + r.randint(0, 9) if kind == "more keys" else 0 if r.random() < 0.1 else r.randint(1, 14)
        out.append((n, m))
    return out


def close(got: Any, expected: Any, dtype: Any) -> None:
    largest = max(1.0, float(expected.detach().abs().max())) if expected.numel() else 1.0
    assert got.shape == expected.shape
    assert torch.allclose(got.double(), expected, rtol=0, atol=TOLERANCE[dtype] * largest), float((got.double() - expected).abs().max())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_each_sequence_has_the_values_that_it_has_alone(dtype: Any) -> None:
    r = random.Random(str(dtype))
    for _ in range(BATCHES):
        lens = batch(r)
        heads, kv_heads = r.choice(((4, 4), (4, 2), (3, 1)))
        width, v_width = r.choice(((8, 8), (16, 8), (8, 24)))
        window = r.choice(((-1, -1), (-1, 0), (3, 0), (0, 0), (2, 1), (-1, 2), (4, -1)))
        mask = r.choice((None, None, *MASKS))
        masks = [r.choice(tuple(MASKS)) for _ in lens] if r.random() < 0.2 else mask
        scale = r.choice((None, 0.3))
        g = torch.Generator().manual_seed(r.randrange(1 << 30))
        total = [sum(n for n, _ in lens), sum(m for _, m in lens)]
        sizes = ((total[0], heads, width), (total[1], kv_heads, width), (total[1], kv_heads, v_width))
        given = [torch.randn(size, generator=g).to(dtype).requires_grad_() for size in sizes]
        wide = [x.detach().double().requires_grad_() for x in given]
        cells = [allowed(n, m, window, masks[i] if isinstance(masks, list) else masks) for i, (n, m) in enumerate(lens)]
        arguments = (starts(n for n, _ in lens), starts(m for _, m in lens), max(n for n, _ in lens), max(m for _, m in lens) + r.randint(0, 2))
        if r.random() < 0.5:
            slopes, softcap = None, 0.0
            aux = type("Aux", (), {"lse": True})
            out, lse = nt.varlen_attn(*given, *arguments, return_aux=aux, scale=scale, window_size=window, enable_gqa=True, mask=masks)
        else:
            slopes = r.choice((None, torch.rand(heads, generator=g), torch.rand(len(lens), heads, generator=g)))
            softcap, causal = r.choice((0.0, 2.0)), window[1] == 0
            side = r.choice((0, -1, 3)) if causal else window[1]  # `causal` sets the keys after to 0
            out, lse, none = nt.flash_attn_varlen_func(
                *given, *arguments, softmax_scale=scale, causal=causal, window_size=(window[0], side), softcap=softcap, alibi_slopes=slopes,
                deterministic=r.random() < 0.5, return_attn_probs=True, mask=masks,
            )  # fmt: skip
            assert none.shape == (0,)
        expected, sums = reference(*wide, lens, cells, scale, softcap, slopes)
        close(out, expected, dtype)
        assert lse.dtype == torch.float32 and torch.equal(torch.isneginf(lse), torch.isneginf(sums))
        seen = ~torch.isneginf(sums)
        close(lse[seen], sums[seen], dtype)
        dout = torch.randn(out.shape, generator=g).to(dtype)
        out.backward(dout)
        if expected.requires_grad:
            expected.backward(dout.double())
        for own, other in zip(given, wide, strict=True):
            close(own.grad, torch.zeros_like(other) if other.grad is None else other.grad, dtype)


def test_arguments_are_those_of_pytorch() -> None:
    varlen = pytest.importorskip("torch.nn.attention.varlen")
    for ours, theirs in ((nt.varlen_attn, varlen.varlen_attn),):
        own = inspect.signature(ours).parameters
        for name, parameter in inspect.signature(theirs).parameters.items():
            assert own[name].default == parameter.default and own[name].kind == parameter.kind, name
        assert set(own) - set(inspect.signature(theirs).parameters) == {"mask", "facts"}
    assert varlen.AuxRequest(lse=True).lse


def test_used_keys_and_pages() -> None:
    r = random.Random(3)
    for case in range(40):
        count, size = r.randint(1, 4), r.choice((1, 4, 16))
        lens = [(r.randint(0, 4), r.randint(0, 20)) for _ in range(count)]
        used = [r.randint(0, m) for _, m in lens]
        g = torch.Generator().manual_seed(case)
        q = torch.randn(sum(n for n, _ in lens), 4, 8, generator=g)
        k, v = (torch.randn(sum(m for _, m in lens), 2, 8, generator=g) for _ in range(2))
        cut = [torch.cat([x[a : a + n] for a, n in zip(starts(m for _, m in lens).tolist(), used, strict=False)]) for x in (k, v)]
        window = r.choice(((-1, 0), (-1, -1), (3, 0)))
        cells = [allowed(n, u, window, None) for (n, _), u in zip(lens, used, strict=True)]
        expected, _ = reference(q.double(), *(x.double() for x in cut), [(n, u) for (n, _), u in zip(lens, used, strict=True)], cells, None, 0.0, None)
        most = (max(n for n, _ in lens), max(m for _, m in lens))
        options = {"window_size": window, "enable_gqa": True, "seqused_k": torch.tensor(used, dtype=torch.int32)}
        starts_q, starts_k = starts(n for n, _ in lens), starts(m for _, m in lens)
        close(nt.varlen_attn(q, k, v, starts_q, starts_k, *most, **options), expected, torch.float32)
        # The same keys in pages, in random order, with other content in the rest.
        rows = -(-max(used) // size) if max(used) else 1
        order = torch.randperm(count * rows, generator=g).view(count, rows)
        pages = [torch.randn(count * rows, size, 2, 8, generator=g) for _ in range(2)]
        at = starts(used).tolist()
        for i, u in enumerate(used):
            for j in range(u):
                for page, x in zip(pages, cut, strict=True):
                    page[order[i, j // size], j % size] = x[at[i] + j]
        table = order.int()
        close(nt.varlen_attn(q, *pages, starts_q, None, *most, block_table=table, **options), expected, torch.float32)
        found = nt.flash_attn_varlen_func(q, *pages, starts_q, starts(used), *most, causal=window[1] == 0, window_size=window, block_table=table)
        close(found, expected, torch.float32)


def test_sequences_of_one_length() -> None:
    g = torch.Generator().manual_seed(1)
    q, k, v = (torch.randn(3, n, h, 8, generator=g, requires_grad=True) for n, h in ((5, 4), (9, 2), (9, 2)))
    slopes = torch.rand(3, 4, generator=g)
    options: dict[str, Any] = {"causal": True, "window_size": (4, -1), "alibi_slopes": slopes}
    lens, cells = [(5, 9)] * 3, [allowed(5, 9, (4, 0), None)] * 3
    expected, sums = reference(*(x.detach().double().flatten(0, 1) for x in (q, k, v)), lens, cells, None, 0.0, slopes)
    out, lse, _ = nt.flash_attn_func(q, k, v, return_attn_probs=True, **options)
    close(out, expected.unflatten(0, (3, 5)), torch.float32)
    close(lse, sums.unflatten(1, (3, 5)).transpose(0, 1), torch.float32)


def test_dropout_drops_weights_and_scales_the_others() -> None:
    torch.manual_seed(5)
    q, k = torch.zeros(400, 4, 8), torch.zeros(400, 4, 8)
    v = torch.ones(400, 4, 8, requires_grad=True)
    cu = starts([200, 150, 50])
    out = nt.flash_attn_varlen_func(q, k, v, cu, cu, 200, 200, dropout_p=0.25, causal=True)
    assert abs(float(out.detach().mean()) - 1) < 0.02 and float(out.detach().std()) > 0.01
    torch.manual_seed(5)
    assert torch.equal(nt.flash_attn_varlen_func(q, k, v, cu, cu, 200, 200, dropout_p=0.25, causal=True), out)
    first, second = (nt.flash_attn_varlen_func(q[:100], k[:100], v[:100], starts([50, 50]), starts([50, 50]), 50, 50, 0.5) for _ in range(2))
    assert not torch.equal(first, second) and not torch.equal(first[:50], first[50:])
    out.sum().backward()
    assert v.grad is not None and abs(float(v.grad.sum()) - float(out.detach().sum())) < 1


def test_plans_are_cached_by_lengths(monkeypatch: pytest.MonkeyPatch) -> None:
    from noren.torch import _varlen_core

    made: list[Any] = []
    whole = _varlen_core.Shape
    monkeypatch.setattr(_varlen_core, "Shape", lambda *a, **o: made.append(a) or whole(*a, **o))
    x = torch.randn(120, 2, 8)
    cu = starts([31, 31, 17, 41])
    for _ in range(3):
        nt.flash_attn_varlen_func(x, x, x, cu, cu, 41, 41, causal=True, window_size=(29, 0))
    assert made == [(120, 120)]
    for _ in range(3):
        nt.flash_attn_varlen_func(x, x, x, cu, cu, 41, 41, causal=True, window_size=(29, 0), mask="full - keys(3..5)")
    assert made[1:] == [(31, 31), (17, 17), (41, 41)]


def test_facts_of_masks() -> None:
    x = torch.randn(9, 2, 8)
    cu = starts([5, 4])
    mask = "causal - keys(label=name)"
    facts = [{"labels": {"name": [1, 2]}}, {"labels": {"name": [0]}}]
    out = nt.varlen_attn(x, x, x, cu, cu, 5, 5, mask=mask, facts=facts)
    for at, end, hidden in ((0, 5, [1, 2]), (5, 9, [0])):
        cells = torch.ones(end - at, end - at).tril().bool()
        cells[:, hidden] = False
        close(out[at:end], alone(*[x[at:end].double()] * 3, cells, None, 0.0, None)[0], torch.float32)
    assert torch.equal(nt.varlen_attn(x, x, x, cu, cu, 5, 5, mask="heads(0: causal, else: full)")[:, :1], nt.varlen_attn(x, x, x, cu, cu, 5, 5, window_size=(-1, 0))[:, :1])
    same = starts([3, 3, 3])
    row = nt.varlen_attn(x, x, x, same, same, 3, 3, mask="batch(0: causal, else: full)")  # each sequence is batch row 0
    assert torch.equal(row, nt.varlen_attn(x, x, x, same, same, 3, 3, window_size=(-1, 0)))


def test_masks_of_functions_have_batch_row_0_in_each_sequence() -> None:
    mask = nr.from_mask_mod(lambda b, h, q, k: (7 * q + 3 * k + 5 * b) % 4 != 1, name="pattern")
    q = torch.randn(12, 2, 8, generator=torch.Generator().manual_seed(0))
    starts, own = torch.tensor([0, 4, 8, 12], dtype=torch.int32), torch.tensor([0, 4], dtype=torch.int32)
    out = nt.flash_attn_varlen_func(q, q, q, starts, starts, 4, 4, mask=mask)
    at = np.arange(4)
    cells = torch.from_numpy((7 * at[:, None] + 3 * at) % 4 != 1)
    for part, result in zip(q.split(4), out.split(4), strict=True):
        x = part.double().transpose(0, 1)
        weights = torch.softmax((x @ x.mT / 8**0.5).masked_fill(~cells, -math.inf), -1)
        torch.testing.assert_close(result.double(), (weights @ x).transpose(0, 1), atol=2e-5, rtol=0)
        torch.testing.assert_close(nt.flash_attn_varlen_func(part, part, part, own, own, 4, 4, mask=mask), result, atol=0, rtol=0)


def test_hidden_content_does_not_reach_a_token_and_tokens_outside_are_zero() -> None:
    x = torch.randn(10, 2, 8)
    cu = torch.tensor([2, 5, 8], dtype=torch.int32)
    bad = x.clone()
    bad[:2], bad[8:] = torch.nan, torch.nan
    out, lse, _ = nt.flash_attn_varlen_func(bad, bad, bad, cu, cu, 3, 3, causal=True, return_attn_probs=True)
    assert torch.equal(out[2:8], nt.flash_attn_varlen_func(x, x, x, cu, cu, 3, 3, causal=True)[2:8])
    assert not out[:2].any() and not out[8:].any() and torch.isneginf(lse[:, [0, 1, 8, 9]]).all()


def test_sequences_have_the_same_bits_in_every_batch() -> None:
    x = torch.randn(90, 4, 16)
    cu = starts([30, 30, 30])
    whole = nt.flash_attn_varlen_func(x, x, x, cu, cu, 30, 30, causal=True)
    for i in range(3):
        part = x[30 * i : 30 * i + 30]
        assert torch.equal(nt.flash_attn_varlen_func(part, part, part, starts([30]), starts([30]), 30, 30, causal=True), whole[30 * i : 30 * i + 30])
    assert torch.equal(nt.flash_attn_varlen_func(x, x, x, cu, cu, 30, 30, causal=True, mask="full"), whole)  # one batch row for each sequence


class Layer(torch.nn.Module):
    """A block of a transformer for packed sequences, as written for flash-attention."""

    def __init__(self, attend: Any) -> None:
        super().__init__()
        self.attend = attend
        self.qkv, self.out = torch.nn.Linear(32, 96), torch.nn.Linear(32, 32)

    def forward(self, x: Any, cu: Any, most: int) -> Any:
        q, k, v = self.qkv(x).view(-1, 3, 4, 8).unbind(1)
        return x + self.out(self.attend(q, k, v, cu, cu, most, most, dropout_p=0.0, causal=True, window_size=(8, 0)).flatten(1))


def test_a_training_step_written_for_flash_attention() -> None:
    def per_sequence(q: Any, k: Any, v: Any, cu: Any, *_: Any, **__: Any) -> Any:
        lens = [(n, n) for n in cu.diff().tolist()]
        return reference(q, k, v, lens, [allowed(n, n, (8, 0), None) for n, _ in lens], None, 0.0, None)[0]

    torch.manual_seed(2)
    x, cu = torch.randn(40, 32), starts([17, 3, 20])
    losses = []
    for attend in (nt.flash_attn_varlen_func, per_sequence):
        torch.manual_seed(3)
        layers = torch.nn.ModuleList(Layer(attend) for _ in range(2))
        optimiser = torch.optim.AdamW(layers.parameters(), lr=1e-2)
        for _ in range(5):
            y = x
            for layer in layers:
                y = layer(y, cu, 20)
            loss = (y - x.flip(0)).pow(2).mean()
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        losses.append(float(loss.detach()))
    assert abs(losses[0] - losses[1]) < 1e-5 * losses[1]


def test_under_torch_compile() -> None:
    g = torch.Generator().manual_seed(4)
    x = torch.randn(40, 4, 8, generator=g, requires_grad=True)
    slopes = torch.rand(4, generator=g)

    def step(x: Any, cu: Any) -> Any:
        y = nt.flash_attn_varlen_func(x, x, x, cu, cu, 30, 30, causal=True, window_size=(6, 0), alibi_slopes=slopes)
        return nt.varlen_attn(y, x, x, cu, cu, 30, 30, window_size=(-1, 0), mask="full - keys(1..3)").pow(2).sum()

    compiled = torch.compile(step, fullgraph=True, backend="aot_eager")
    for lengths in ([20, 20], [3, 30, 7]):
        results = []
        for call in (step, compiled):
            x.grad = None
            loss = call(x, starts(lengths))
            loss.backward()
            results.append((loss.detach(), x.grad.clone()))
        assert torch.equal(results[0][0], results[1][0]) and torch.allclose(results[0][1], results[1][1], atol=1e-6)


def test_autocast_and_checkpoints() -> None:
    from torch.utils.checkpoint import checkpoint

    x = torch.randn(12, 2, 8, requires_grad=True)
    cu = starts([7, 5])
    with torch.autocast("cpu", torch.bfloat16):
        assert nt.flash_attn_varlen_func(x, x, x, cu, cu, 7, 7).dtype == torch.bfloat16

    def call(x: Any) -> Any:
        return nt.flash_attn_varlen_func(x, x, x, cu, cu, 7, 7, dropout_p=0.3)

    grads = []
    for run in (call, lambda x: checkpoint(call, x, use_reentrant=False)):
        torch.manual_seed(6)
        x.grad = None
        run(x).sum().backward()
        grads.append(x.grad.clone())
    assert torch.equal(*grads)
    with pytest.raises(RuntimeError, match="no second derivative"):
        first = torch.autograd.grad(nt.varlen_attn(x, x, x, cu, cu, 7, 7).sum(), x, create_graph=True)[0]
        first.sum().backward()


X = torch.zeros(6, 2, 8)
CU = torch.tensor([0, 2, 6], dtype=torch.int32)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"query": torch.zeros(1, 6, 2, 8)}, r"query has shape \(1, 6, 2, 8\): give the dimensions \[tokens, heads, head_dim\]"),
        ({"query": X.double()}, "hold torch.float64"),
        ({"query": X.half()}, "query, key and value hold torch.float16, torch.float32"),
        ({"query": np.zeros((6, 2, 8))}, "query is a ndarray: give a tensor"),
        ({"query": torch.zeros(6, 4, 8)}, "give enable_gqa=True"),
        ({"query": torch.zeros(6, 3, 8), "enable_gqa": True}, "must divide"),
        ({"value": torch.zeros(5, 2, 8)}, "equal numbers of tokens and of heads"),
        ({"query": torch.zeros(6, 2, 4)}, "query has head_dim 4, but key has head_dim 8"),
        ({"query": torch.zeros(6, 2, 0), "key": torch.zeros(6, 2, 0)}, "head_dim of at least 1"),
        ({"cu_seq_q": CU.long()}, "cu_seq_q holds torch.int64: give torch.int32"),
        ({"cu_seq_q": CU[None]}, "cu_seq_q has shape"),
        ({"cu_seq_q": [0, 2, 6]}, "cu_seq_q is a list"),
        ({"cu_seq_q": CU[:0]}, "cu_seq_q is empty"),
        ({"cu_seq_q": torch.tensor([0, 4, 2], dtype=torch.int32)}, "cu_seq_q decreases from 4 to 2 at sequence 1"),
        ({"cu_seq_k": torch.tensor([0, 2, 7], dtype=torch.int32)}, "cu_seq_k goes from 0 to 7, but there are 6 tokens"),
        ({"cu_seq_k": CU[:2]}, "cu_seq_q has 2 sequences, but cu_seq_k has 1"),
        ({"cu_seq_k": None}, "cu_seq_k is None"),
        ({"max_q": 3}, "max_q is 3, but sequence 1 has 4 tokens"),
        ({"max_k": torch.tensor(4)}, "max_k is a Tensor"),
        ({"scale": 0.0}, "scale is 0.0"),
        ({"scale": math.nan}, "scale is nan"),
        ({"window_size": (-2, 0)}, r"window_size is \(-2, 0\)"),
        ({"window_size": 3}, "window_size is 3"),
        ({"window_size": (1, 2, 3)}, "window_size is"),
        ({"num_splits": "1"}, "num_splits is '1'"),
        ({"block_table": CU[None]}, "without seqused_k"),
        ({"seqused_k": CU[:1]}, "seqused_k has 1 entries"),
        ({"seqused_k": torch.tensor([3, 4], dtype=torch.int32)}, "seqused_k of sequence 0 is 3, but the sequence has 2 keys"),
        ({"seqused_k": CU[1:], "query": torch.zeros(6, 2, 8, requires_grad=True)}, "seqused_k is for inference"),
        ({"mask": nr.causal().plan(4)}, "mask is a Plan"),
        ({"mask": lambda call: "causal"}, "mask is a function"),
        ({"mask": torch.ones(4, 4)}, "mask is a Tensor"),
        ({"mask": "causal + alibi"}, "has score modifiers"),
        ({"mask": ["causal"]}, "mask has 1 entries, but there are 2 sequences"),
        ({"facts": {"lengths": [2]}}, "`facts` was given without a mask"),
        ({"mask": "causal & padding", "facts": [{"lengths": [2]}]}, "facts has 1 entries"),
    ],
)  # fmt: skip
def test_wrong_arguments_are_named(change: dict[str, Any], message: str) -> None:
    given: dict[str, Any] = {"query": X, "key": X, "value": X, "cu_seq_q": CU, "cu_seq_k": CU, "max_q": 4, "max_k": 4} | change
    with pytest.raises((nr.Error, TypeError, RuntimeError), match=message):
        nt.varlen_attn(**given)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"dropout_p": 1.0}, "dropout_p is 1.0"),
        ({"dropout_p": 0.5, "return_attn_probs": True}, "return_attn_probs with dropout"),
        ({"softcap": math.inf}, "softcap is inf"),
        ({"alibi_slopes": torch.zeros(3)}, r"alibi_slopes has shape \(3,\)"),
        ({"alibi_slopes": torch.zeros(2).half()}, "alibi_slopes holds torch.float16"),
        ({"alibi_slopes": torch.zeros(2, requires_grad=True)}, "alibi_slopes requires a gradient"),
        ({"block_table": torch.zeros(2, 1, dtype=torch.int32)}, r"k has shape \(6, 2, 8\): give the dimensions \[pages"),
        ({"block_table": torch.full((2, 1), 9, dtype=torch.int32), "k": torch.zeros(3, 4, 2, 8), "v": torch.zeros(3, 4, 2, 8)}, "holds page 9, but there are 3 pages"),
        ({"block_table": torch.zeros(2, 1, dtype=torch.int32), "k": torch.zeros(3, 2, 2, 8), "v": torch.zeros(3, 2, 2, 8)}, "sequence 1 has 1 pages of 2 keys, but the sequence has 4 keys"),
        ({"max_seqlen_k": 1}, "max_seqlen_k is 1, but sequence 1 has 4 tokens"),
        ({"max_seqlen_k": torch.tensor(4)}, "max_seqlen_k is a Tensor: give a whole number"),
        ({"q": X.to("meta"), "k": X.to("meta"), "v": X.to("meta")}, "q is on meta"),
        ({"cu_seqlens_k": None}, "cu_seqlens_k is None"),
    ],
)  # fmt: skip
def test_wrong_arguments_of_flash_attention_are_named(change: dict[str, Any], message: str) -> None:
    given: dict[str, Any] = {"q": X, "k": X, "v": X, "cu_seqlens_q": CU, "cu_seqlens_k": CU, "max_seqlen_q": 4, "max_seqlen_k": 4} | change
    with pytest.raises((nr.Error, TypeError, RuntimeError), match=message):
        nt.flash_attn_varlen_func(**given)
    with pytest.raises(nr.Error, match="q has 1 batch rows, but k has 2"):
        nt.flash_attn_func(torch.zeros(1, 3, 2, 8), torch.zeros(2, 3, 2, 8), torch.zeros(2, 3, 2, 8))


def test_lengths_and_windows_may_be_numbers_of_numpy() -> None:
    from numpy import int64

    expected = nt.flash_attn_varlen_func(X, X, X, CU, CU, 4, 4, window_size=(2, 0))
    found = nt.flash_attn_varlen_func(X, X, X, CU, CU, int64(4), int64(4), window_size=(int64(2), int64(0)))  # type: ignore[arg-type]
    assert torch.equal(found, expected)

"""Masks that are made during a call, against dense evaluation of the same cells."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

import noren as nr
from conftest import runs, sampled

torch = pytest.importorskip("torch")
import noren.torch as nt  # noqa: E402
from noren.torch import _dynamic  # noqa: E402


def oracle(q: Any, k: Any, v: Any, cells: Any) -> Any:
    """Attention in float64 with an array of cells; rows without keys get 0."""
    q, k, v = (x.double() for x in (q, k, v))
    k, v = (x.repeat_interleave(q.shape[1] // k.shape[1], 1) for x in (k, v))
    scores = (q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5).masked_fill(~cells, -torch.inf)
    return torch.softmax(scores, -1).nan_to_num(0.0) @ v


def near(a: Any, b: Any) -> None:
    assert (a.double() - b.double()).abs().max() < 2e-5 if a.numel() else a.shape == b.shape


class Case:
    """Random tensors and sizes, and the cells that a layer's own array allows."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = random.Random(seed)
        g = torch.Generator().manual_seed(seed)
        self.batch, self.kv_heads = rng.choice([1, 1, 2, 3]), rng.choice([1, 2])
        self.heads = self.kv_heads * rng.choice([1, 2])
        self.q_len, self.kv_len = rng.randint(1, 17), rng.randint(1, 19)
        self.offset = rng.randint(0, 6)
        self.q = torch.randn(self.batch, self.heads, self.q_len, 8, generator=g)
        self.k = torch.randn(self.batch, self.kv_heads, self.kv_len, 8, generator=g)
        self.v = torch.randn(self.batch, self.kv_heads, self.kv_len, 8, generator=g)
        self.generator = g
        self.own = self.bits(1, 1, self.q_len, self.kv_len, p=0.8) if rng.random() < 0.6 else None
        own = torch.ones(1, 1, self.q_len, self.kv_len, dtype=torch.bool) if self.own is None else self.own
        self.cells = own.expand(self.batch, self.heads, self.q_len, self.kv_len)

    def bits(self, *shape: int, p: float = 0.6) -> Any:
        return torch.rand(shape, generator=self.generator) < p

    def attend(self, function: Any, **more: Any) -> Any:
        return nt.attention(self.q, self.k, self.v, function, keep=self.own, query_offset=self.offset, **more)


def made(case: Case, call: Any) -> tuple[Any, Any]:
    """A mask by a random method of the call, and its cells by definition."""
    b, h, n, m = case.batch, case.heads, case.q_len, case.kv_len
    shape = tuple(case.rng.choice([1, size]) for size in (b, h, n, m))
    match case.rng.randrange(6):
        case 0:
            bits = case.bits(*shape)
            return call.keep(bits), bits
        case 1:
            bits = case.bits(*shape)
            return call.drop(bits.numpy()), ~bits
        case 2:
            bits = case.bits(b, m)
            return call.keys(bits), bits[:, None, None, :]
        case 3:
            bits = case.bits(b, n)
            return call.queries(bits), bits[:, None, :, None]
        case 4:
            block = (case.rng.randint(1, 5), case.rng.randint(1, 5))
            bits = case.bits(case.rng.choice([1, b]), case.rng.choice([1, h]), -(-n // block[0]), -(-m // block[1]))
            of_q, of_k = torch.arange(n) // block[0], torch.arange(m) // block[1]
            return call.blocks(bits, block), bits[:, :, of_q][..., of_k]
        case _:
            reach = case.rng.randint(0, 5)
            q = torch.arange(n)[:, None] + case.offset
            return nr.window(left=reach), (torch.arange(m) >= q - reach)[None, None]


@pytest.mark.parametrize("seed", sampled(range(300), 5))
def test_outputs_and_gradients_equal_dense_evaluation_of_the_mask(seed: int) -> None:
    case = Case(seed)
    found: list[Any] = []

    def function(call: Any) -> Any:
        assert (call.batch, call.heads, call.kv_heads, call.q_len, call.kv_len) == (case.batch, case.heads, case.kv_heads, case.q_len, case.kv_len)
        (a, cells_a), (b, cells_b) = made(case, call), made(case, call)
        mask, cells = case.rng.choice([(a & b, cells_a & cells_b), (a | b, cells_a | cells_b), (a - b, cells_a & ~cells_b)])
        found[:] = [cells]
        return nt.Replace(mask) if case.rng.random() < 0.2 else mask

    tensors = [x.requires_grad_() for x in (case.q, case.k, case.v)]
    out = case.attend(function)
    cells = (found[0] & case.cells).expand(case.batch, case.heads, case.q_len, case.kv_len)
    wanted = oracle(*tensors, cells)
    near(out, wanted)
    weights = torch.randn(out.shape, generator=case.generator)
    for a, b in zip(torch.autograd.grad((out * weights).sum(), tensors), torch.autograd.grad((wanted * weights).sum(), tensors), strict=True):
        near(a, b)


@pytest.mark.parametrize("seed", sampled(range(120), 4))
def test_scores_of_blocks_equal_loops(seed: int) -> None:
    case = Case(seed)
    block = (case.rng.randint(1, 4), case.rng.randint(1, 5))

    def function(call: Any) -> Any:
        scores = (case.q.double() @ case.k.double().repeat_interleave(case.heads // case.kv_heads, 1).transpose(-1, -2)).numpy() * call.scale
        cells, maxima, estimates = case.cells.numpy(), call.block_maxima(block), call.block_estimates(block[1])
        keys = case.k.double().repeat_interleave(case.heads // case.kv_heads, 1).numpy()
        for b in range(case.batch):
            for h in range(case.heads):
                for i, rows in enumerate(range(0, case.q_len, block[0])):
                    for j, first in enumerate(range(0, case.kv_len, block[1])):
                        at = np.s_[b, h, rows : rows + block[0], first : first + block[1]]
                        best = scores[at][cells[at]].max(initial=-np.inf)
                        assert maxima[b, h, i, j] == pytest.approx(best, abs=1e-5)
                for row in range(case.q_len):
                    for j, first in enumerate(range(0, case.kv_len, block[1])):
                        read = cells[b, h, row, first : first + block[1]]
                        mean = call.scale * case.q[b, h, row].double().numpy() @ keys[b, h, first : first + block[1]].mean(0)
                        expected = mean if read.all() else np.inf if read.any() else -np.inf
                        assert estimates[b, h, row, j] == pytest.approx(expected, abs=1e-5)
        return call.top_blocks(maxima, 2, block)

    out = case.attend(function)
    wanted = oracle(case.q, case.k, case.v, top(case, block, 2))
    near(out, wanted)


def top(case: Case, block: tuple[int, int], count: int) -> Any:
    """The cells of the blocks with the highest scores, by sorting in Python."""
    scores = case.q @ case.k.repeat_interleave(case.heads // case.kv_heads, 1).transpose(-1, -2) / case.q.shape[-1] ** 0.5
    cells = torch.zeros_like(case.cells)
    for b in range(case.batch):
        for h in range(case.heads):
            for rows in range(0, case.q_len, block[0]):
                at = [np.s_[b, h, rows : rows + block[0], first : first + block[1]] for first in range(0, case.kv_len, block[1])]
                best = [float(scores[i][case.cells[i]].max()) if case.cells[i].any() else -np.inf for i in at]
                order = sorted(range(len(at)), key=lambda j: (-best[j], j))[:count]
                for j in order:
                    cells[at[j]] = best[j] > -np.inf
    return cells & case.cells


@pytest.mark.parametrize("poison", [float("nan"), float("inf"), 1e30])
def test_keys_hidden_by_the_own_mask_change_no_bit_of_estimates_and_choices(poison: float) -> None:
    for seed in range(40):
        case = Case(seed)
        own = case.bits(1, 1, 1, case.kv_len).expand(1, 1, case.q_len, case.kv_len)
        case.own = own.clone()
        for choose in (
            lambda call: call.top_blocks(call.block_estimates(3), 2, (1, 3)),
            lambda call: call.top_blocks(call.block_maxima((2, 3)), 1, (2, 3)),
        ):
            before = case.attend(choose)
            hidden = ~own[0, 0, 0]
            k, v = case.k.clone(), case.v.clone()
            k[:, :, hidden], v[:, :, hidden] = poison, poison
            after = nt.attention(case.q, k, v, choose, keep=case.own, query_offset=case.offset)
            assert torch.equal(before, after)


def test_results_in_every_form() -> None:
    q = torch.randn(2, 4, 9, 8)
    cells = torch.ones(9, 9).tril().bool()
    wanted = oracle(q, q, q, cells)
    shape = nr.Shape(9, 9, batch=2, heads=4)
    forms: list[Any] = [
        "causal", nr.causal(), nr.causal().bind(9), nr.causal().bind(shape), nr.causal().plan(shape), nr.recognise(cells.numpy(), "keep"),
        nt.Replace("causal"),
    ]  # fmt: skip
    for form in forms:
        near(nt.attention(q, q, q, lambda call, form=form: form), wanted)
        near(nt.attention(q, q, q, lambda call, form=form: form, keep=cells.T), oracle(q, q, q, cells & cells.T))
    near(nt.attention(q, q, q, lambda call: None, keep=cells), wanted)
    near(nt.attention(q, q, q, lambda call: nr.layers({0: "causal", "else": "none"})), wanted)


def test_facts_and_inputs() -> None:
    q = torch.randn(2, 2, 6, 8)
    ids = torch.tensor([[5, 6, 7, 8, 9, 9], [5, 5, 6, 0, 0, 0]])

    def labelled(call: Any) -> Any:
        call.facts["labels"] = {"secret": [1, 2]}
        return nr.causal() - nr.keys(label="secret") | call.keep(torch.eye(6, dtype=torch.bool))

    cells = torch.ones(6, 6).tril().bool()
    cells[:, 1:3] = False
    near(nt.attention(q, q, q, labelled), oracle(q, q, q, cells | torch.eye(6).bool()))
    with nt.mask_inputs(facts={"lengths": [6, 3]}, tokens=ids, limit=7):
        out = nt.attention(q, q, q, lambda call: nr.padding() & call.keys(call.key_tokens < call.inputs["limit"]) & call.queries(call.tokens > 0))
    real = torch.arange(6) < torch.tensor([[6], [3]])
    near(out, oracle(q, q, q, (real & (ids < 7))[:, None, None] & (ids > 0)[:, None, :, None]))
    with pytest.raises(nr.Error, match="tokens is unknown"):
        nt.attention(q, q, q, lambda call: call.keys(call.tokens > 0))
    with nt.mask_inputs(limit=3), pytest.raises(nr.Error, match="only these inputs were given: 'limit'"):
        nt.attention(q, q, q, lambda call: call.inputs["level"])


def test_plans_are_reused_where_masks_repeat() -> None:
    layer = torch.nn.TransformerEncoderLayer(16, 2, 16, batch_first=True, dropout=0.0)
    model = nt.convert(torch.nn.TransformerEncoder(layer, 6)).eval()
    x, chosen = torch.randn(2, 40, 16), torch.arange(40)[None] % 3 != 0
    model(x)
    with nt.set_mask(model, lambda call: nr.causal() & call.keys(chosen)):
        before = _dynamic.PLANS.made
        first = model(x)
        assert _dynamic.PLANS.made == before + 1
        assert torch.equal(first, model(x))
        assert _dynamic.PLANS.made == before + 1
        chosen = torch.arange(40)[None] % 5 != 0
        assert not torch.equal(first, model(x))
        assert _dynamic.PLANS.made == before + 2


def test_modules_against_arrays() -> None:
    torch.manual_seed(0)
    model = nt.convert(torch.nn.Transformer(16, 2, 2, 2, 16, batch_first=True, dropout=0.0)).eval()
    source, target = torch.randn(2, 7, 16), torch.randn(2, 5, 16)
    padding = torch.tensor([[False] * 7, [False] * 4 + [True] * 3])
    masks = {"encoder": torch.rand(7, 7) < 0.6, "decoder": torch.rand(5, 5) < 0.6, "cross": torch.rand(5, 7) < 0.6}
    for cells in masks.values():
        cells[:, 0] = True
    places = []

    def function(call: Any) -> Any:
        places.append((call.part, call.layer))
        return call.keep(masks[call.part])

    given = {"src_key_padding_mask": padding, "memory_key_padding_mask": padding}
    with nt.set_mask(model, function):
        out = model(source, target, tgt_mask=torch.ones(5, 5).triu(1).bool(), **given)
    wanted = model(
        source, target, src_mask=~masks["encoder"], tgt_mask=torch.ones(5, 5).triu(1).bool() | ~masks["decoder"], memory_mask=~masks["cross"], **given
    )
    near(out, wanted)
    assert places == [("encoder", 0), ("encoder", 1), ("decoder", 0), ("cross", 0), ("decoder", 1), ("cross", 1)]
    near(model(source, target), model(source, target))  # the masks are gone
    with nt.set_mask(model, lambda call: nt.Replace(call.keep(masks[call.part]))):
        out = model(source, target, tgt_mask=torch.ones(5, 5).triu(1).bool(), **given)
    wanted = model(source, target, src_mask=~masks["encoder"], tgt_mask=~masks["decoder"], memory_mask=~masks["cross"], **given)
    near(out, wanted)


def test_modules_refuse_what_they_cannot_do() -> None:
    attention = nt.MultiheadAttention(8, 2, batch_first=True)
    x = torch.randn(1, 4, 8)
    near(attention(x, x, x, attn_mask=lambda call: "causal")[0], attention(x, x, x, attn_mask="causal")[0])
    with nt.set_mask(attention, "causal"), pytest.raises(nr.Error, match="give only one"):
        attention(x, x, x, attn_mask=lambda call: "causal")
    extra = nt.MultiheadAttention(8, 2, batch_first=True, add_zero_attn=True)
    with nt.set_mask(extra, "causal"), pytest.raises(nr.Error, match="these keys have no token"):
        extra(x, x, x)
    with pytest.raises(nr.Error, match=r"nt\.convert"):
        nt.set_mask(torch.nn.Linear(2, 2), "causal")
    with nt.set_mask(attention, lambda call: "causal"), pytest.raises(Exception, match="not supported under"):
        torch.compile(attention, backend="eager", fullgraph=True)(x, x, x, need_weights=False)


def test_examples_of_use() -> None:
    q = torch.randn(1, 2, 8, 4)
    vocabulary = torch.zeros(50, dtype=torch.bool)
    vocabulary[[4, 5, 6]] = True
    ids = torch.tensor([[4, 9, 5, 30, 6, 6, 11, 4]])
    with nt.mask_inputs(tokens=ids):
        out = nt.attention(q, q, q, lambda call: nr.causal() & (call.keys(vocabulary[call.key_tokens]) | nr.window(left=0, right=0)))
    near(out, oracle(q, q, q, torch.ones(8, 8).tril().bool() & (vocabulary[ids][0] | torch.eye(8).bool())))
    levels, reader = torch.tensor([0, 2, 1, 0, 3, 0, 1, 0]), 1
    with nt.mask_inputs(levels=levels, reader=reader):
        out = nt.attention(q, q, q, lambda call: nr.causal() & call.keys(call.inputs["levels"] <= call.inputs["reader"]))
    near(out, oracle(q, q, q, torch.ones(8, 8).tril().bool() & (levels <= reader)))


BAD: list[Any] = [
    None, True, 0, -1, 1.5, "x", "causal", b"", [], [1, 2], {}, (), (0, 0), (1, 64), (1, -1), (1.0, 2), (True, 1), float("nan"), 1 << 70,
    np.ones(3), np.ones((2, 2), bool), np.zeros((0, 0), bool), torch.ones(3), torch.ones(2, 2).bool(), torch.ones(1, 1, 5, 5).bool(),
    torch.ones(5).bool(), torch.ones(1, 5).bool(), torch.ones(1, 2, 5, 1), torch.full((1, 2, 5, 1), float("nan")), torch.ones(0).bool(),
    torch.ones(1, 1, 1, 1, 1).bool(), torch.ones(5, 5).bool().to_sparse(), torch.ones(2, device="meta").bool(), nr.causal(), nr.causal().plan(5),
    nr.causal().bind(4), nr.parse("causal + alibi"), nr.Facts(), object(), object, print, lambda: None, lambda call: None, nt.Replace("causal"),
]  # fmt: skip


def test_no_bad_argument_raises_a_raw_error() -> None:
    rng = random.Random(0)
    q = torch.randn(1, 2, 5, 4)
    methods = ("keep", "drop", "keys", "queries", "blocks", "block_maxima", "block_estimates", "top_blocks")
    takes_two = {"blocks", "top_blocks"}
    for _ in range(runs(300, 2000)):
        name, arguments = rng.choice(methods), [rng.choice(BAD) for _ in range(3)]

        def function(call: Any, name: str = name, arguments: list[Any] = arguments) -> Any:
            count = 3 if name == "top_blocks" else 2 if name in takes_two else 1
            result = getattr(call, name)(*arguments[:count])
            return result if isinstance(result, nr.Mask) else None

        with_error(lambda function=function: nt.attention(q, q, q, function))
    for _ in range(runs(300, 2000)):
        with_error(lambda: nt.attention(q, q, q, lambda call: rng.choice(BAD)))
    model = nt.MultiheadAttention(8, 2, batch_first=True)
    for _ in range(runs(300, 2000)):
        with_error(lambda: nt.set_mask(rng.choice([model, torch.nn.Linear(1, 1)]), rng.choice(BAD)).remove())
    for _ in range(runs(300, 2000)):

        def inputs() -> None:
            with nt.mask_inputs(tokens=rng.choice(BAD), key_tokens=rng.choice(BAD), facts=rng.choice(BAD), other=rng.choice(BAD)):
                nt.attention(q, q, q, lambda call: call.keys(call.key_tokens > 0) & call.queries(call.tokens > 0))

        with_error(inputs)


def with_error(run: Any) -> None:
    """Calls a function, which may raise `noren.Error` or TypeError with a message."""
    try:
        run()
    except nr.Error as error:
        assert str(error)
    except TypeError as error:
        assert ":" in str(error), error

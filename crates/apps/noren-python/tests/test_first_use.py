"""Calls as a first user writes them: each gives the right numbers, or an error that names the argument and the fix."""

import inspect
import pydoc
import random
import subprocess
import sys

import numpy as np
import pytest
import scipy.sparse
import torch

import noren as nr
import noren.torch as nt

GENERATOR = torch.Generator().manual_seed(3)
Q = torch.randn(2, 4, 6, 8, generator=GENERATOR)
ONE = Q[:1, :2]
TRI = torch.ones(6, 6, dtype=torch.bool).tril()


def refused(call, *parts, kind=nr.Error):
    with pytest.raises(kind) as raised:
        call()
    for part in parts:
        assert part in str(raised.value), str(raised.value)


# --- sets of positions ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("made", [nr.keys, nr.queries, nr.global_, nr.spans])
@pytest.mark.parametrize("wrap", [lambda pair: pair, lambda pair: [pair], lambda pair: [7, pair], lambda pair: (pair, 9)])
def test_a_pair_is_no_set_of_positions(made, wrap):
    refused(lambda: made(wrap((2, 5))), "range(2, 5)", "[2, 5]", kind=TypeError)
    assert made(wrap(range(2, 5))) == made(wrap([range(2, 5)]) if wrap((2, 5)) == (2, 5) else wrap(slice(2, 5)))


def test_pairs_in_selectors_facts_and_declarations():
    refused(lambda: nr.heads({(0, 2): "causal", "else": "full"}), "range(0, 2)", kind=TypeError)
    for labels in ({"a": (0, 4)}, {"a": [(0, 4)]}, {"a": [[(0, 4)], [1]]}):
        refused(lambda labels=labels: nr.Facts(labels=labels), "labels['a']", "range(0, 4)", kind=TypeError)
    refused(lambda: nr.Facts(real_keys=[(0, 3)]), "real_keys", kind=TypeError)
    assert nr.Facts(lengths=(3, 4), documents=[(3, 2), (5,)]) == nr.Facts(lengths=[3, 4], documents=[[3, 2], [5]])
    for redactions in ([(1, 3)], {"keys": (1, 3)}, [{"batch": 0, "keys": [(1, 3)]}]):
        refused(lambda redactions=redactions: nr.check(TRI, convention="keep", kind="causal", redactions=redactions), "range(1, 3)", kind=TypeError)


def test_ranges_of_the_flow_are_ranges():
    flow = nr.flow("sliding(3)", 20, layers=4)
    assert nr.keys(flow.receptive_field(19)[-1]) == nr.keys(range(11, 20))
    assert nr.spans(flow.reach([3])[-1]) == nr.spans([range(3, 12)])


# --- facts that nothing reads -----------------------------------------------------------------------------------------

ROWS = {"lengths": [3, 6], "documents": [[3], [4, 2]], "arrays": {"m": nr.Array.keep(TRI)}}
READERS = {"lengths": "padding", "documents": "documents", "arrays": "dense(m)"}


@pytest.mark.parametrize("fact", ROWS)
@pytest.mark.parametrize("made", [dict, lambda **facts: nr.Facts(**facts)])
def test_an_unused_fact_is_an_error_that_names_it(fact, made):
    shape = nr.Shape.square(6, batch=2, heads=4)
    # lengths beside, because these documents fit only padded rows
    facts = made(**{fact: ROWS[fact]}, **({"lengths": [3, 6]} if fact == "documents" else {}))
    for call in (
        lambda: nr.attention(Q, Q, Q, "causal", facts=facts),
        lambda: nt.attention(Q, Q, Q, nr.causal(), facts=facts),
        lambda: nr.causal().bind(shape, facts),
        lambda: nr.causal().plan(shape, facts),
        lambda: nr.causal().dense(shape, facts),
        lambda: nr.to_keep("causal", shape, facts),
    ):
        refused(call, "causal", fact, "leave the fact out")
    mask = nr.causal() & READERS[fact]
    used = mask.bind(shape, facts)
    assert used.facts.used_by(mask) == used.facts
    nr.attention(Q, Q, Q, mask, facts=facts)


def test_facts_of_several_masks():
    facts = nr.Facts(lengths=[3, 6], labels={"a": [0], "b": [1]})
    assert facts.used_by("padding") == nr.Facts(lengths=[3, 6])
    assert facts.used_by('keys(label="b")') == nr.Facts(labels={"b": [1]})
    assert nr.padding().bind(nr.Shape.square(6, batch=2), facts)  # labels describe tokens
    refused(lambda: nr.keys(label="a").bind(nr.Shape.square(6, batch=2), facts), "reads lengths", "facts.used_by(mask)")
    assert nr.padding().diff(nr.keys(label="a"), nr.Shape.square(6, batch=2), nr.Facts(lengths=[3, 6], labels={"a": [0]}))
    cache = nr.KvCache(4, 8, capacity=8, sequences=2)
    cache.append(Q, Q)
    refused(lambda: cache.attend(Q, "causal", facts={"lengths": [3, 6]}), "lengths")


# --- masks without an arm, positions below 0, masks of floats -----------------------------------------------------------


@pytest.mark.parametrize("by", [nr.heads, nr.batch, nr.layers])
def test_every_index_has_a_mask(by):
    for arms, index in (({0: "causal"}, 1), ({range(2, 4): "causal"}, 0), ({0: "causal", 2: "full"}, 1), ([(0, "causal"), ("2..", "full")], 1)):
        refused(lambda arms=arms: by(arms), f"index {index} has no mask", '"else"')
    for arms in ({0: "causal", "else": "none"}, {"0..4": "causal", "4..": "full"}, [(slice(0, None), "causal")]):
        by(arms)
    if by is nr.layers:
        by({"every 2": "causal", "every 2 from 1": "full"})
        refused(lambda: by({"every 2": "causal"}), "index 1")


@pytest.mark.parametrize("offset", [-1, -3, [0, -2]])
def test_a_position_is_0_or_more(offset):
    one = Q[:, :, :1] if offset != [0, -2] else Q[:, :, :1]
    low = "-2" if isinstance(offset, list) else str(offset)
    for attention in (nr.attention, nt.attention):
        refused(lambda attention=attention: attention(one, Q, Q, "causal", query_offset=offset), f"query_offset is {low}", "0 or more")


@pytest.mark.parametrize("q_len, kv_len", [(6, 5), (2, 9), (9, 1)])
def test_no_message_recommends_a_negative_position(q_len, kv_len):
    q, k = torch.randn(1, 2, q_len, 8), torch.randn(1, 2, kv_len, 8)
    for call in (lambda: nt.attention(q, k, k, "causal"), lambda: nr.Shape(q_len, kv_len)):
        with pytest.raises(nr.Error, match="query_offset=") as raised:
            call()
        assert "=-" not in str(raised.value)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("shape", [(6, 6), (1, 1, 6, 6), (2, 4, 6, 6)])
def test_floats_of_0_and_1_are_no_additive_mask(dtype, shape):
    mask = TRI.expand(shape).to(dtype)
    calls = [lambda: nr.attention(Q, Q, Q, additive=mask), lambda: nt.attention(Q, Q, Q, additive=mask)]
    if dtype == torch.float32:
        calls += [lambda: nt.sdpa(Q, Q, Q, mask), lambda: nr.attention(Q.numpy(), Q.numpy(), Q.numpy(), additive=mask.numpy())]
    for call in calls:
        refused(call, "floats 0 and 1", "mask == 1")
    nr.attention(Q, Q, Q, "full", bias=mask.float())  # a bias by name
    assert torch.equal(nr.attention(Q, Q, Q, additive=torch.zeros(shape, dtype=dtype)), nr.attention(Q, Q, Q, "full"))


@pytest.mark.parametrize("fill", [-1e4, -1e9, -1e30, torch.finfo(torch.float32).min, -torch.inf])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
def test_hidden_means_the_same_everywhere(fill, dtype):
    mask = torch.zeros(6, 6).masked_fill(~TRI, max(fill, torch.finfo(dtype).min) if fill > -torch.inf else fill).to(dtype)
    assert torch.equal(torch.from_numpy(nr.from_additive(mask).dense()[0, 0]), TRI)
    assert nr.Array.additive(mask) == nr.Array.keep(TRI)
    if dtype != torch.float64:
        assert nr.check(mask, kind="causal", api="sdpa").verdict == "correct"
    value = Q.clone()
    value[:, :, -1] = torch.nan
    wanted = nr.attention(Q, Q, value, "causal")
    assert not wanted[:, :, :-1].isnan().any()
    for found in (nr.attention(Q, Q, value, additive=mask), nt.attention(Q, Q, value, additive=mask)):
        assert torch.equal(found.nan_to_num(9.0), wanted.nan_to_num(9.0))
    if dtype == torch.float32:
        assert torch.equal(nt.sdpa(Q, Q, value, mask).nan_to_num(9.0), wanted.nan_to_num(9.0))


def test_a_bias_keeps_its_numbers():
    bias = torch.randn(6, 6, generator=GENERATOR) * 100 - 200
    hidden = bias.masked_fill(~TRI, -1e9)
    near = nr.attention(Q, Q, Q, "causal", bias=bias)
    assert torch.allclose(nr.attention(Q, Q, Q, additive=hidden), near)
    assert torch.allclose(nt.attention(Q, Q, Q, additive=hidden), near)


# --- sparse masks, score modifiers by argument ---------------------------------------------------------------------------

SPARSE = {
    "csr": lambda cells: cells.to_sparse_csr(),
    "csc": lambda cells: cells.to_sparse_csc(),
    "coo": lambda cells: cells.to_sparse_coo(),
    "scipy csr": lambda cells: scipy.sparse.csr_matrix(cells.numpy()),
    "scipy coo": lambda cells: scipy.sparse.coo_matrix(cells.numpy()),
    "scipy lil": lambda cells: scipy.sparse.lil_matrix(cells.numpy()),
    "scipy array": lambda cells: scipy.sparse.csc_array(cells.numpy()),
}


@pytest.mark.parametrize("form", SPARSE)
def test_sparse_masks(form):
    cells = (torch.rand(6, 6, generator=GENERATOR) < 0.4) | torch.eye(6, dtype=torch.bool)
    given = SPARSE[form](cells)
    wanted = nr.attention(Q, Q, Q, keep=cells)
    for attention in (nr.attention, nt.attention):
        assert torch.equal(attention(Q, Q, Q, keep=given), wanted)
        assert torch.equal(attention(Q, Q, Q, "causal", drop=given), attention(Q, Q, Q, "causal", drop=cells))
        refused(lambda attention=attention: attention(Q, Q, Q, additive=given), "additive is a sparse matrix", "keep=")
    assert np.array_equal(nr.from_keep(given).dense()[0, 0], cells) and np.array_equal(nr.from_drop(given).dense()[0, 0], ~cells)
    assert torch.equal(nr.attention(Q, Q, Q, nr.dense("m"), facts={"arrays": {"m": nr.Array.keep(given)}}), wanted)
    refused(lambda: nr.attention(Q, Q, Q, keep=given.astype(float) if "scipy" in form else given.to(torch.float32)), "keep is a sparse matrix of float", kind=TypeError)


def test_sparse_masks_with_stored_false_and_other_shapes():
    stored = scipy.sparse.coo_matrix((np.array([True, False]), ([0, 1], [1, 0])), shape=(2, 3))
    assert np.argwhere(nr.dense("m").dense(nr.Shape.cross(2, 3), {"arrays": {"m": nr.Array.keep(stored)}})[0, 0]).tolist() == [[0, 1]]
    twice = torch.sparse_coo_tensor(torch.tensor([[0, 0, 1], [1, 1, 2]]), torch.tensor([True, True, False]), (2, 3))
    assert nr.Array.keep(twice) == nr.Array.keep(stored)
    refused(lambda: nr.attention(Q, Q, Q, keep=TRI.expand(2, 6, 6).to_sparse_coo()), "[2, 6, 6]", "to_dense")
    refused(lambda: nr.attention(Q, Q, Q, keep=scipy.sparse.csr_matrix(np.ones((5, 6), bool))), "5")


@pytest.mark.parametrize("attention", [nr.attention, nt.attention])
def test_arrays_of_score_modifiers(attention):
    weights = torch.rand(6, 6, generator=GENERATOR)
    for kind, array in (("soft", weights), ("bias", weights), ("relative", torch.randn(4, 11, generator=GENERATOR)), ("sinks", torch.randn(4, generator=GENERATOR))):
        text = f'causal + {kind}("mine")'
        wanted = attention(Q, Q, Q, "causal", **{kind: array})
        assert torch.equal(attention(Q, Q, Q, text, **{kind: array}), wanted)
        assert torch.equal(attention(Q, Q, Q, text, arrays={"mine": array}), wanted)
        refused(lambda text=text, kind=kind: attention(Q, Q, Q, text), "mine", f"{kind}=", "arrays=")
    both = attention(Q, Q, Q, 'causal + bias("a") + bias("b")', arrays={"a": weights}, bias=2 * weights)
    assert torch.allclose(both, attention(Q, Q, Q, "causal", bias=3 * weights), atol=1e-6)
    refused(lambda: attention(Q, Q, Q, "causal", arrays={"mine": weights}), "'mine'", "no score modifier")
    refused(lambda: attention(Q, Q, Q, "causal + softcap(3)", softcap=4.0), "softcap is given twice")


@pytest.mark.parametrize("attention", [nr.attention, nt.attention])
def test_slopes_of_alibi(attention):
    wanted = attention(Q, Q, Q, "causal", alibi=[2 ** (-8 * (h + 1) / 4) for h in range(4)])
    assert torch.equal(attention(Q, Q, Q, "causal", alibi=True), wanted)
    assert torch.equal(attention(Q, Q, Q, "causal + alibi"), wanted)
    refused(lambda: attention(Q, Q, Q, "causal", alibi="yes"), "numbers, one slope for each head", kind=TypeError)


def test_gradients_of_named_arrays():
    bias = torch.randn(6, 6, generator=GENERATOR, requires_grad=True)
    nt.attention(Q, Q, Q, 'causal + bias("b")', arrays={"b": bias}).square().sum().backward()
    named, bias.grad = bias.grad, None
    nt.attention(Q, Q, Q, "causal", bias=bias).square().sum().backward()
    assert torch.equal(named, bias.grad)


# --- shapes and types ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("attention", [nr.attention, nt.attention])
def test_shapes_are_named_as_given(attention):
    k = Q[:, :2]
    refused(lambda: attention(Q, k[..., :4], k, "causal"), "k [2, 2, 6, 4]", "head_dim")
    refused(lambda: attention(Q, k[:1], k[:1], "causal"), "q has shape [2, 4, 6, 8], k [1, 2, 6, 8]", "batch rows")
    refused(lambda: attention(Q, k, k[:, :, :5], "causal"), "v [2, 2, 5, 8]", "k and v")
    refused(lambda: attention(Q, Q[:, :3], Q[:, :3], "causal"), "must divide", "transpose(1, 2)")
    q, k = Q.transpose(1, 2), k.transpose(1, 2)
    for mask in ("causal", nr.causal().bind(6)):
        refused(lambda mask=mask: attention(q, k, k, mask), "[batch, length, heads, head_dim]", "transpose(1, 2)")
    refused(lambda: attention(q, q, q, nr.causal().plan(6)), "transpose(1, 2)")
    wanted = attention(Q, Q, Q, "causal")
    assert torch.equal(attention(Q, Q, Q, nr.causal().plan(6)), wanted) and torch.equal(attention(Q, Q, Q, nr.causal().bind(6)), wanted)


@pytest.mark.parametrize("attention", [nr.attention, nt.attention])
def test_values_of_wrong_types(attention):
    refused(lambda: attention(Q, Q, Q, nr.causal), "nr.causal", "call it", kind=TypeError)
    refused(lambda: attention(Q, Q, Q, nr.sliding), "nr.sliding(...)", kind=TypeError)
    refused(lambda: attention(Q, Q, Q, "causal", scale="auto"), "scale is 'auto'", kind=TypeError)
    refused(lambda: attention(Q, Q, Q, "causal", softcap="auto"), "softcap is 'auto'", kind=TypeError)


def test_arrays_of_several_libraries():
    wanted = nr.attention(Q, Q, Q, "causal")
    assert np.array_equal(nr.attention(Q.numpy(), Q, Q, "causal"), wanted)
    assert torch.equal(nr.attention(Q, Q.numpy(), Q.numpy(), "causal"), wanted)
    with pytest.raises(nr.Error, match="requires a gradient"):
        nr.attention(Q.clone().requires_grad_(), Q, Q, "causal")


def test_operators():
    causal, tri = nr.causal(), np.tri(6, dtype=bool)
    assert causal & "sliding(4)" == nr.parse("causal & sliding(4)") == causal & nr.sliding(4)
    assert "sliding(4)" | causal == nr.parse("sliding(4) | causal")
    assert "full" - causal == nr.parse("full - causal") and causal - "chunk(2)" == nr.parse("causal - chunk(2)")
    assert causal + "bias" == nr.parse("causal + bias") == causal + nr.bias()
    assert causal + "bias" + "softcap(3)" == nr.parse("causal + bias + softcap(3)")
    for array in (tri, torch.from_numpy(tri), scipy.sparse.csr_matrix(tri)):
        for call in (lambda a: causal & a, lambda a: causal | a, lambda a: causal - a, lambda a: a & causal if not scipy.sparse.issparse(a) else causal & a):
            refused(lambda call=call, array=array: call(array), "nr.from_keep(array)", "keep=", kind=TypeError)
    refused(lambda: causal + nr.sliding(4), "use |", kind=TypeError)
    refused(lambda: causal + 3, "nr.bias()", kind=TypeError)
    refused(lambda: causal & None, "None is not a mask", kind=TypeError)
    refused(lambda: causal & "sliding(", kind=nr.ParseError)


def test_texts():
    for given in (None, 3, nr.causal()):
        refused(lambda given=given: nr.parse(given), "is not a text", '"causal & padding"', kind=TypeError)


@pytest.mark.parametrize(
    "make, text",
    [
        (lambda: nr.sliding(0), "sliding(0)"), (lambda: nr.chunk(0), "chunk(0)"), (lambda: nr.stride(0), "stride(0)"),
        (lambda: nr.random(2.0, 0), "random(2, 0)"), (lambda: nr.tree([1, 0]), "tree(parents=[1, 0])"), (lambda: nr.softcap(-1.0), "full + softcap(-1)"),
        (lambda: nr.neighborhood([4], [9]), "neighborhood(grid=[4], size=[9])"), (lambda: nr.random_blocks(0, 1, 0), "random_blocks(0, 1, 0)"),
        (lambda: nr.causal() & nr.heads({0: nr.causal(), "0..": nr.full()}), "causal & heads(0: causal, 0..: full)"),
        (lambda: nr.alibi([float("nan")]), None),
    ],
)  # fmt: skip
def test_functions_refuse_what_the_text_refuses(make, text):
    refused(make)
    if text is not None:
        refused(lambda: nr.parse(text))


def test_every_error_is_the_documented_one():
    q = Q.clone().requires_grad_()
    for call in (
        lambda: nr.sliding(-1), lambda: nr.padding(side="up"), lambda: nr.padding(on="rows"), lambda: nr.keys(range(-3, 2)), lambda: nr.keys(slice(0, 8, 2)),
        lambda: nr.causal().plan(8, reorder="often"), lambda: nr.attention(q, Q, Q, "causal"), lambda: nr.Facts(lengths=[float("nan")]),
    ):  # fmt: skip
        refused(call)


# --- dense results -----------------------------------------------------------------------------------------------------------


def test_dense_results_are_equal_and_limited():
    rng = random.Random(5)
    for _ in range(40):
        mask = nr.parse(rng.choice(["causal", "sliding(3)", "heads(0: causal, else: full)", "batch(0: chunk(2), else: sliding(4))", "none", "random(0.3, 7)"]))
        shape = nr.Shape.square(rng.randrange(1, 90), batch=rng.choice([1, 3]), heads=rng.choice([1, 2]))
        cells = nr.to_keep(mask, shape)
        assert np.array_equal(np.broadcast_to(cells, (shape.batch, shape.heads, shape.q_len, shape.kv_len)), mask.dense(shape))
        assert np.array_equal(nr.to_drop(mask, shape), ~cells)
    for call in (lambda: nr.to_keep("sliding(256)", 100_000), lambda: nr.to_additive("causal", 100_000), lambda: nr.causal().dense(100_000)):
        refused(call, "10000000000 cells", "maximum is 4294967296")


def test_varlen_holds_the_sizes_of_the_batch():
    for mask, shape in ((nr.distances([4]), nr.Shape.cross(14, 18)), (nr.causal() & nr.documents([3, 2]), nr.Shape.square(5)), (nr.keys(range(2, 4)), nr.Shape.cross(3, 7))):
        assert np.array_equal(nr.to_varlen(mask, shape).dense(), mask.dense(shape)[0, 0])


# --- names --------------------------------------------------------------------------------------------------------------------


def test_help_lists_the_public_names():
    text = pydoc.render_doc(nr, renderer=pydoc.plaintext)
    for name in ("causal", "attention", "check", "audit", "guard", "probe", "fold", "to_flex", "from_keep", "facts_from"):
        assert f"\n    {name}(" in text, name
    assert "TYPE_CHECKING" not in dir(nr) and sorted(nr.__all__) == nr.__all__ and set(nr.__all__) <= set(dir(nr))
    assert all(getattr(nr, name).__doc__ for name in nr.__all__ if inspect.isroutine(getattr(nr, name)) or inspect.isclass(getattr(nr, name)))


def test_modules_that_must_be_imported_are_named():
    code = "import noren as nr\nfor name in ('hf', 'torch', 'onnx', 'distributed'):\n    try: getattr(nr, name)\n    except AttributeError as error: assert f'`import noren.{name}`' in str(error), error\n    else: raise SystemExit(name)\n"
    subprocess.run([sys.executable, "-c", code], check=True)
    with pytest.raises(AttributeError, match="has no attribute 'casual'"):
        nr.casual


def test_without_torch():
    code = (
        "import sys\nsys.modules['torch'] = None\nimport pydoc, noren as nr\npydoc.render_doc(nr)\n"
        "for name in ('to_flex', 'audit', 'guard'):\n"
        "    try: getattr(nr, name)()\n"
        "    except ImportError as error: assert 'noren-attention[torch]' in str(error) and name in str(error), error\n"
        "    else: raise SystemExit(name)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)

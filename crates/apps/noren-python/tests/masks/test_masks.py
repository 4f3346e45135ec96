"""Masks as values, the corpus, questions and pictures."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
import time

import numpy as np
import pytest
from conftest import Drawn, corpus

import noren as nr


@pytest.mark.parametrize("case", [c for c in corpus() if "message" not in c.case], ids=lambda c: c.id)
def test_the_corpus_is_drawn(case: Drawn) -> None:
    bound = case.bind()
    cells = bound.dense()
    for batch in range(cells.shape[0]):
        for head in range(cells.shape[1]):
            lines = ["".join(".#"[int(cell)] for cell in row) for row in cells[batch, head]]
            assert "\n".join(lines) == case.drawn(batch, head)
    again = pickle.loads(pickle.dumps(bound))
    assert not bound.diff(again)
    assert nr.Mask(repr(bound.mask)) == bound.mask
    assert not pickle.loads(pickle.dumps(bound.plan())).bound.diff(bound)


@pytest.mark.parametrize("case", [c for c in corpus() if "message" in c.case], ids=lambda c: c.id)
def test_wrong_input_is_refused_with_its_message(case: Drawn) -> None:
    with pytest.raises(nr.Error) as refused:
        case.bind()
    assert str(refused.value).rstrip() == case.case["message"].rstrip()


def test_operators_say_what_the_text_says() -> None:
    mask = nr.causal() & nr.sliding(1024) | nr.keys(range(4))
    assert repr(mask) == "causal & sliding(1024) | keys(0..4)"
    assert mask == nr.parse(repr(mask)) == nr.Mask("causal & sliding(1024) | keys(0..4)")
    assert hash(mask) == hash(nr.parse(repr(mask))) and mask != nr.causal()
    assert {mask: 1}[pickle.loads(pickle.dumps(mask))] == 1
    assert copy.deepcopy(mask) == mask
    assert repr(~nr.causal() - nr.keys([3, 9, range(10, 14)])) == "!causal - keys([3, 9, 10..14])"
    assert repr(nr.keys(slice(2, None)) & nr.queries("..7")) == "keys(2..) & queries(0..7)"
    assert nr.keys(np.array([1, 2])) == nr.keys([1, 2])
    assert nr.keys(np.int64(3)) == nr.keys(3)


def test_every_atom_has_a_function() -> None:
    for given, text in [
        (nr.full(), "full"),
        (nr.none(), "none"),
        (nr.causal(offset=-1), "causal(offset=-1)"),
        (nr.window(left=3, right=0), "window(left=3, right=0)"),
        (nr.window(left=3), "window(left=3)"),
        (nr.chunk(8), "chunk(8)"),
        (nr.stride(2), "stride(2)"),
        (nr.prefix(5), "prefix(5)"),
        (nr.prefix([5, 6]), "prefix([5, 6])"),
        (nr.global_(range(2)), "global(0..2)"),
        (nr.keys(label="pii"), 'keys(label="pii")'),
        (nr.padding(), "padding"),
        (nr.padding(side="left", lengths=[5, 3], on="both"), "padding(side=left, lengths=[5, 3], on=both)"),
        (nr.documents(), "documents"),
        (nr.documents([3, 2]), "documents([3, 2])"),
        (nr.spans([range(4, 20), range(30, 46)]), "spans([4..20, 30..46])"),
        (nr.tree([-1, 0, 0], start=4), "tree(parents=[-1, 0, 0], start=4)"),
        (nr.clearance(), "clearance"),
        (nr.neighborhood([8, 9], [3, 5]), "neighborhood(grid=[8, 9], size=[3, 5])"),
        (nr.neighborhood([8], [3], dilation=[2]), "neighborhood(grid=[8], size=[3], dilation=[2])"),
        (nr.random(0.1, 42), "random(0.1, 42)"),
        (nr.random_blocks(64, 3, 42), "random_blocks(64, 3, 42)"),
        (nr.distances([0, 1, 2, 4]), "distances([0, 1, 2, 4])"),
        (nr.dense("mine"), "dense(mine)"),
        (nr.heads({range(4): nr.causal(), "4..": nr.sliding(8)}), "heads(0..4: causal, 4..: sliding(8))"),
        (nr.batch([(0, nr.causal()), ("else", nr.full())]), "batch(0: causal, else: full)"),
        (nr.layers({"every 2": nr.sliding(8), "else": nr.causal()}), "layers(every 2: sliding(8), else: causal)"),
    ]:
        assert repr(given) == text
        assert given == nr.parse(text)


def test_scores_join_masks() -> None:
    spec = nr.causal() & nr.padding() + nr.alibi() + nr.softcap(30)
    assert isinstance(spec, nr.Spec) and repr(spec) == "causal & padding + alibi + softcap(30)"
    assert spec == nr.parse(repr(spec)) == pickle.loads(pickle.dumps(spec))
    assert [repr(score) for score in spec.scores] == ["alibi", "softcap(30)"]
    for score in (nr.bias("b"), nr.relative("r"), nr.soft("s"), nr.sinks("t"), nr.alibi([0.5, 0.25])):
        assert pickle.loads(pickle.dumps(score)) == score


def test_a_mask_is_no_truth_value() -> None:
    with pytest.raises(TypeError, match="no truth value: combine masks with &"):
        bool(nr.causal())
    with pytest.raises(TypeError, match="no truth value"):
        nr.causal() and nr.full()
    with pytest.raises(TypeError, match="no truth value"):
        if nr.causal() + nr.alibi():
            pass


def test_questions() -> None:
    mask = nr.parse("causal & padding")
    shape = nr.Shape.square(5, batch=2)
    facts = nr.Facts(lengths=[5, 3])
    why = mask.explain(4, 3, shape, facts, batch=1)
    assert not why and "key 3 is padding in batch row 1" in why.why and "padding" in str(why)
    assert why.parts["parts"][0]["mask"] == "causal"
    difference = mask.diff("causal", shape, facts)
    assert difference and (difference.only_first, difference.only_second) == (0, 3)
    assert difference.first_cell == (1, 0, 3, 3) and len(difference.cells()) == 3
    assert "differ" in repr(difference) and "+" in str(difference)
    assert not mask.diff(mask, shape, facts)
    stats = mask.stats(shape, facts)
    assert (stats.allowed, stats.cells, stats.shape) == (27, 50, (2, 1, 5, 5)) and "allowed" in repr(stats)
    assert mask.dense(shape, {"lengths": np.array([5, 3])}).sum() == 27
    bound = mask.bind(shape, facts)
    assert bound.explain(4, 3) and not bound.explain(4, 3, batch=1)
    assert bound.facts == facts and bound.shape == shape == eval(repr(shape), {"Shape": nr.Shape})


def test_pictures() -> None:
    mask = nr.parse("causal & documents([3, 2])")
    assert "■ ■ · · ·" in mask.picture(5, labels=["the", "cat", "sat", "so", "what"])
    assert "■ ■ · · ·" in str(mask.bind(5))
    for shown in (nr.sliding(1024), mask.bind(5), mask.plan(5), mask.diff("causal", 5)):
        assert shown._repr_svg_().startswith("<svg")
    assert nr.padding()._repr_svg_() is None, "a notebook shows the text of a mask that needs facts"
    assert "full" in str(nr.causal().plan(300)) and "causal" in repr(nr.causal().plan(300))


def test_facts_come_from_what_people_have() -> None:
    tokens = np.array([[5, 6, 7, 0], [5, 0, 0, 0]])
    facts = nr.Facts(token_ids=tokens, pad_id=0)
    assert nr.padding().dense(nr.Shape.square(4, batch=2), facts).sum() == 16
    assert facts == pickle.loads(pickle.dumps(facts)) == eval(repr(facts), {"Facts": nr.Facts})
    keep = np.tril(np.ones((3, 3), bool))
    for array in (nr.Array.keep(keep), nr.Array.drop(~keep), nr.Array.additive(np.where(keep, 0, -np.inf))):
        assert not nr.dense("m").diff("causal", 3, {"arrays": {"m": array}})
    lowest = np.where(keep, 0, np.finfo(np.float64).min)
    assert (nr.dense("m").dense(3, {"arrays": {"m": nr.Array.additive(lowest)}}) == keep).all()
    assert nr.Array.cells(2, 3, [(0, 1)]).shape == nr.Array.blocks(2, 3, (1, 1), [(0, 1)]).shape
    strided = np.asfortranarray(keep)[::-1, ::-1]
    assert (nr.dense("m").dense(3, {"arrays": {"m": nr.Array.keep(strided)}}) == strided).all()


@pytest.mark.parametrize(
    ("given", "kind", "words"),
    [
        (lambda: nr.parse("cuasal"), nr.ParseError, "causal"),
        (lambda: nr.sliding(-1), ValueError, "sliding: -1 is negative"),
        (lambda: nr.sliding("3"), TypeError, "'3' is not a whole number"),
        (lambda: nr.sliding(True), TypeError, "True is not a whole number"),
        (lambda: nr.sliding(2.5), TypeError, "2.5 is not a whole number"),
        (lambda: nr.keys(range(-3, 3)), ValueError, "negative positions"),
        (lambda: nr.keys(), TypeError, "positions or label="),
        (lambda: nr.keys(float("nan")), TypeError, "nan is not a whole number"),
        (lambda: nr.padding(side="up"), ValueError, 'give "left" or "right"'),
        (lambda: nr.heads({"sometimes": nr.causal()}), nr.ParseError, "sometimes"),
        (lambda: nr.causal() & 3, TypeError, "3 is not a mask"),
        (lambda: nr.causal().plan("many"), TypeError, "is not a shape: give a length"),
        (lambda: nr.causal().plan(0), nr.Error, "q_len is 0"),
        (lambda: nr.causal().plan(-1), TypeError, "is not a shape"),
        (lambda: nr.Shape(3, 4), nr.Error, "give the position of the first query"),
        (lambda: nr.Shape.square(4, heads=3, kv_heads=2), nr.Error, "must be a multiple"),
        (lambda: nr.padding().plan(4), nr.Error, "needs lengths"),
        (lambda: nr.padding().plan(4, nr.Facts(lengths=[float("nan")])), ValueError, "NaN"),
        (lambda: nr.padding().plan(4, nr.Facts(lengths=[9])), nr.Error, "9"),
        (lambda: nr.padding().plan(4, nr.Facts(lengths=[object()])), TypeError, "a value in `facts` is <object"),
        (lambda: nr.padding().plan(4, 3), TypeError, "facts are 3"),
        (lambda: nr.Facts(lenghts=[3]), nr.Error, "lenghts"),
        (lambda: nr.Facts(arrays={"m": np.ones((2, 2), bool)}), TypeError, "the meaning of the cells of"),
        (lambda: nr.Array.keep(np.ones((2, 2))), TypeError, "holds floats"),
        (lambda: nr.Array.keep(np.full((2, 2), 7)), nr.Error, "holds 7"),
        (lambda: nr.Array.keep([[True]]), TypeError, "is not an array"),
        (lambda: nr.Array.keep(np.ones((2, 2, 2), bool)), nr.Error, "could be the number of batch rows or of heads"),
        (lambda: nr.Array.keep(np.ones((0, 2), bool)), nr.Error, "every size must be 1"),
        (lambda: nr.Array.additive(np.full((2, 2), 0.5)), nr.Error, "cell 0 is 0.5"),
        (lambda: nr.Array.keep(np.array([["a", "b"]])), Exception, ""),
        (lambda: nr.Array.keep(np.array([[None, {}]], object)), Exception, ""),
        (lambda: nr.causal().explain(9, 0, 4), nr.Error, "query 9 does not exist"),
        (lambda: nr.layers({"else": nr.causal()}).plan(4), nr.Error, "layer"),
        (lambda: nr.causal().plan(4, reorder="sometimes"), ValueError, 'give "auto"'),
        (lambda: nr.Plan.from_json("{"), nr.Error, ""),
        (lambda: nr.causal().bind(4).diff(nr.causal().bind(5)), nr.Error, "cannot compare"),
    ],
)
def test_wrong_input_raises(given, kind, words) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(kind) as refused:
        given()
    assert words in str(refused.value)


def test_import_is_quick_and_takes_nothing_along() -> None:
    code = (
        "import sys, time; t = time.process_time(); import noren; t = time.process_time() - t; "
        "print(t, 'torch' in sys.modules, 'numpy' in sys.modules)"
    )
    took = [subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split() for _ in range(3)]
    assert {tuple(run[1:]) for run in took} == {("False", "False")}
    assert min(float(run[0]) for run in took) < 0.1


def test_planning_takes_no_time() -> None:
    start = time.perf_counter()
    nr.parse("sliding(512) | keys(0..4) & causal").plan(131072)
    assert time.perf_counter() - start < 1.0


def test_equivalent_at_every_length() -> None:
    same = nr.parse("causal & window(left=3)").equivalent("sliding(4)")
    assert same.equal is True and same.lengths is not None and same.cell is None
    other = nr.parse("causal").equivalent(nr.parse("sliding(50000)"))
    assert other.equal is False and other.cell == (0, 0, 50000, 0) and other.only_first is True
    assert str(other) == "the masks differ at length 50001, and at no shorter length that both have: only the first mask lets query 50000 read key 0"
    unknown = nr.parse('dense("a")').equivalent('dense("b")')
    assert unknown.equal is None and unknown.atoms == ["dense(a)", "dense(b)"]
    with pytest.raises(TypeError, match="no truth value"):
        bool(same)


def test_a_mask_is_saved_as_a_web_page() -> None:
    bound = nr.parse("causal & documents([3, 2])").bind(5)
    page = bound.html(labels=["the", "<cat>", "sat", "so", "what"], title="Two documents")
    assert page.startswith("<!doctype html>") and "<h1>Two documents</h1>" in page and "<cat>" not in page
    assert "<summary>NumPy, attention written out</summary>" in page and "document_id[q_idx] == document_id[kv_idx]" in page
    assert len(nr.parse("sliding(64)").bind(4096).html()) < 300_000
    with pytest.raises(nr.Error, match="the mask is too large for a web page: it has 70000 queries, and 65536 are the limit"):
        nr.causal().bind(70_000).html()
    with pytest.raises(nr.Error, match="this mask is a selection from another mask"):
        bound.select([(0, 2)], [(0, 3)]).html()

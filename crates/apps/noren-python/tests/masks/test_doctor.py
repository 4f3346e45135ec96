"""`nr.check` and `nr.recognise`: typed results about mask arrays from other programs."""

from __future__ import annotations

import time

import numpy as np
import pytest

import noren as nr


def test_a_leak_is_named_and_repaired() -> None:
    mask = np.tril(np.ones((6, 6), bool), 1)
    report = nr.check(mask, api="sdpa", convention="keep", kind="causal")
    assert report.faulty and report.classes == ("causal_leak",)
    assert "causal_leak" in repr(report)
    finding = report.findings[0]
    assert finding.wrong_cells == 5 and finding.first_cells[0] == (0, 0, 0, 1) and finding.severity == "error"
    assert isinstance(report.fixed, np.ndarray) and (report.fixed[0, 0] == np.tril(np.ones((6, 6), bool))).all()


def test_a_report_can_be_looked_at() -> None:
    report = nr.check(np.tril(np.ones((6, 6), bool), 1), api="sdpa", convention="keep", kind="causal")
    assert report.difference is not None and report.difference.only_second == 5 and report.difference.only_first == 0
    assert (report._repr_svg_() or "").startswith("<svg")


def test_a_correct_mask_is_correct() -> None:
    report = nr.check(np.tri(6, dtype=bool), api="sdpa", convention="keep", kind="causal")
    assert report.correct and report.verdict == "correct" and report.compared == 36
    assert not report.faulty and report.classes == () and report.expression == "causal"
    assert "all 36 compared cells" in report.sentence and "kind=causal" in report.sentence


def test_nothing_is_correct_without_a_declaration() -> None:
    report = nr.check(np.tri(6, dtype=bool), api="sdpa", convention="keep")
    assert report.verdict == "looks_like" and not report.correct and "0 of 36 cells differ" in report.sentence
    cells = np.random.default_rng(0).random((24, 24)) < 0.5
    assert nr.check(cells, convention="keep").verdict == "cannot_tell"


def test_a_table_of_integers_is_asked_about() -> None:
    real = (np.arange(64) < np.array([[60], [64], [33], [12]])).astype(np.int64)
    report = nr.check(real, kind="causal")
    assert report.verdict == "cannot_tell" and report.questions[0].readings[0].startswith("4 batch rows of 64 keys")
    lengths = np.array([60, 64, 33, 12])
    assert nr.check(real, kind="bidirectional", role="key_padding", lengths=lengths).correct


def test_words_and_sizes_are_refused_by_name() -> None:
    mask = np.tri(4, dtype=bool)
    for declared, expected in [
        ({"kind": "caussal"}, "causal"),
        ({"convention": "true_is_paddin"}, "true_is_padding"),
        ({"knd": "causal"}, "kind"),
        ({"rol": "key_padding"}, "did you mean `role`"),
        ({"api": "spda"}, "did you mean `sdpa`"),
        ({"sliding_window": 4}, "did you mean `window`"),
        ({"shifts_labels": True}, "did you mean `model_shifts_labels`"),
        ({"redactions": [[7, 3]]}, "expected a list of keys"),
        ({"lengths": np.ones((2, 8), int)}, "lengths"),
        ({"past_len": 10**12, "q_len": 4}, "expected"),
        ({"batch": 2 * 10**9}, "declared sizes"),
    ]:
        with pytest.raises(nr.Error, match=expected):
            nr.check(mask, **declared)
    assert nr.check(~mask, convention="true_is_padding", kind="causal").correct


def test_an_unexplained_difference_has_no_repair() -> None:
    mask = np.tri(12, dtype=bool)
    for cell in [(7, 2), (3, 9), (11, 5), (0, 4)]:
        mask[cell] ^= True
    report = nr.check(mask, api="sdpa", convention="keep", kind="causal")
    assert report.classes[0] == "unexplained_difference" and report.fixed is None and report.findings[0].repair is None


def test_redactions_by_batch_row() -> None:
    mask = np.tri(6, dtype=bool)[None, None].repeat(2, 0)
    mask[1, 0, 3:, 2] = False
    declared = {"api": "sdpa", "convention": "keep", "kind": "causal", "layers": 1}
    redactions = [{"batch": 1, "keys": [2], "queries": [3, 4, 5]}]
    assert nr.check(mask, redactions=redactions, **declared).correct
    assert nr.check(mask[::-1].copy(), redactions=redactions, **declared).faulty


def test_what_was_meant_leaves_nothing_to_guess() -> None:
    mask = nr.sliding(4).dense(8)[0, 0]
    report = nr.check(mask, meant="sliding(3)", convention="keep", api="sdpa")
    assert report.classes == ("sliding_window_off_by_one",) and (report.expected == nr.sliding(3).dense(8)).all()
    assert (report.fixed == report.expected).all()
    assert report.difference is not None and report.difference.only_second == 5
    inverted = nr.check(~nr.sliding(3).dense(8), meant="sliding(3)", convention="keep", api="sdpa")
    assert inverted.classes[0] == "inverted_polarity" and (inverted.fixed == inverted.expected).all()
    assert nr.check(mask[4:], meant="sliding(4)", convention="keep").correct
    first = nr.check(mask[:4], meant="sliding(4)", convention="keep")
    assert first.verdict == "cannot_tell" and "declare past_len" in first.questions[0].question
    for scores in ("causal + alibi", nr.Spec("causal + alibi")):
        with pytest.raises(nr.Error, match="score modifiers"):
            nr.check(mask, meant=scores, convention="keep")
    assert nr.check(mask[4:], meant="sliding(4)", convention="keep", past_len=4).correct
    assert nr.check(mask[4:], meant="sliding(4)", convention="keep", past_len=3).faulty
    hidden = np.ones((2, 1, 3, 8), bool)
    hidden[1, :, :, 6:] = False
    assert nr.check(hidden, meant="padding", facts={"lengths": [8, 6]}, convention="keep").correct
    assert nr.check(hidden, meant="padding", facts={"lengths": [8, 5]}, convention="keep").faulty


def test_tensors_and_arrays_beside_the_mask() -> None:
    torch = pytest.importorskip("torch")
    ids = torch.tensor([[0, 0, 5, 6, 7], [5, 6, 7, 8, 9]])
    causal = torch.ones(2, 1, 5, 5).tril().bool()
    report = nr.check(causal, api="sdpa", convention="keep", kind="causal", input_ids=ids, pad_token_id=0)
    assert report.faulty and report.findings[0].wrong_cells > 0
    assert isinstance(report.fixed, torch.Tensor) and report.fixed.dtype == torch.bool
    listed = nr.check(causal, api="sdpa", convention="keep", kind="causal", input_ids=ids.tolist(), pad_token_id=0)
    assert listed.classes == report.classes


@pytest.mark.parametrize("text", ["causal", "sliding(3)", "full", "chunk(4)", "causal & documents([5, 4])", "causal | prefix(3)"])
def test_recognised(text: str) -> None:
    cells = nr.Mask(text).dense(9)
    found = nr.recognise(cells, "keep")
    assert found.exact and found.exceptions == () and (found.bind().dense() == cells).all()
    assert repr(found.mask) in repr(found)
    assert nr.recognise(~cells, convention="drop").mask == found.mask
    additive = np.where(cells, 0.0, -np.inf).astype(np.float32)
    assert nr.recognise(additive).mask == found.mask


def test_exceptions() -> None:
    cells = nr.causal().dense(32)
    leaks = ((0, 0, 2, 7), (0, 0, 5, 20), (0, 0, 11, 30))
    for leak in leaks:
        cells[leak] = True
    found = nr.recognise(cells, "keep")
    assert not found.exact and found.wrong == 3 and found.exceptions == leaks and found.nearest == nr.causal()
    assert (found.plan().bound.dense() == cells).all()
    with pytest.raises(nr.Error, match=r"the nearest, `causal`, differs in 3 of 1024 cells; bind\(\)"):
        found.mask


@pytest.mark.parametrize(
    "text",
    ["stride(3)", "!stride(3)", "causal & !stride(4)", "window(left=4, right=4) | global([0, 17])", "causal & (sliding(5) | global(0))",
     "causal | spans([4..9, 20..26])", "causal | chunk(4)", "window(left=8, right=8) | keys(0)"],
)  # fmt: skip
def test_the_mask_of_the_migration_table_is_exact(text: str) -> None:
    keep = nr.Mask(text).dense(40)
    assert (nr.recognise(keep, "keep").mask.dense(40) == keep).all()
    assert (nr.from_keep(keep).dense() == keep).all()


def test_an_inexact_result_keeps_the_cells_when_it_is_bound() -> None:
    keep = np.random.default_rng(3).random((2, 17, 23)) < 0.4
    found = nr.recognise(keep, "keep")
    assert not found.exact and (found.bind().dense()[:, 0] == keep).all()
    assert found.wrong == (found.nearest.bind(found.shape).dense()[:, 0] != keep).sum()
    with pytest.raises(nr.Error, match="no expression was found"):
        found.mask
    for read in (nr.from_keep(keep), nr.from_drop(~keep), nr.from_additive(np.where(keep, 0, -np.inf))):
        assert (read.dense()[:, 0] == keep).all()


@pytest.mark.parametrize("lengths", [[6, 3, 4], [5, 5, 2]])
def test_padding_of_rows_and_columns(lengths: list[int]) -> None:
    added = np.where(np.arange(6) < np.array(lengths)[:, None], 0.0, -np.inf).astype(np.float32)
    array = added[:, None, :, None] + added[:, None, None, :]
    assert nr.from_additive(array).mask == nr.padding(lengths=lengths, on="both")
    said = str(nr.check(array))
    assert f"padding(lengths={lengths}, on=both)" in said
    assert f"{18 - sum(lengths)} row(s) of queries that look like padding can read no key" in said and "left padding" not in said


def test_three_dimensions_are_batch_rows() -> None:
    keep = np.stack([nr.sliding(3).dense(9)[0, 0], nr.causal().dense(9)[0, 0]])
    found = nr.recognise(keep, "keep")
    assert (found.shape.batch, found.shape.heads) == (2, 1)
    assert (found.mask.dense(found.shape)[:, 0] == keep).all()


def test_refusals() -> None:
    with pytest.raises(TypeError, match="convention"):
        nr.recognise(np.ones((3, 3), bool))
    with pytest.raises(nr.Error, match="polarity"):
        nr.recognise(np.ones((3, 3), bool), "polarity")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="additive"):
        nr.recognise(np.ones((3, 3), np.float32), "keep")
    with pytest.raises(nr.Error, match="-9984"):
        nr.recognise(np.full((3, 3), -3.5, np.float32))
    with pytest.raises(nr.Error, match="not a mask"):
        nr.recognise(np.ones(3, bool), "keep")
    with pytest.raises(TypeError):
        nr.recognise(np.array([[None]]), "keep")
    with pytest.raises(nr.Error):
        nr.check(np.ones((2, 3, 4, 5, 6), bool))


def test_sixteen_thousand_squared() -> None:
    cells = np.tri(16384, dtype=bool)
    start = time.perf_counter()
    found = nr.recognise(cells, "keep")
    assert found.exact and found.mask == nr.causal()
    assert time.perf_counter() - start < 20


def test_lists_beside_the_mask_are_arrays_by_whatever_name() -> None:
    mask = np.tri(4, dtype=bool)
    for name in ("padding_mask", "special_tokens_mask", "prompt_mask"):
        rows = [[1, 1, 1, 0]]
        listed, array = (nr.check(mask, kind="causal", convention="keep", **{name: given}) for given in (rows, np.array(rows)))
        assert str(listed) == str(array) and listed.unknown == array.unknown
    assert "padding_keys_visible" in nr.check(mask[None, None], kind="causal", convention="keep", attention_mask=[[0, 1, 1, 1]]).classes
    assert not nr.check(mask, kind="causal", convention="keep", prefix_len=[0], past_len=[0], special_token_ids=[1, 2]).unknown


def test_documents_that_floats_cannot_tell_apart_are_not_one() -> None:
    """Two ids are equal in float64: the doctor must report an open question, not a correct mask."""
    documents = np.array([[2**53] * 2 + [2**53 + 1] * 2])
    assert not nr.check(np.tri(4, dtype=bool), kind="causal_packed", convention="keep", segment_ids=documents).correct


def test_expanded_arrays_are_refused_by_size() -> None:
    torch = pytest.importorskip("torch")
    huge = torch.ones(1, dtype=torch.bool).expand(1 << 21, 1 << 21)
    for call in (nr.check, nr.Array.keep, nr.Array.drop, lambda x: nr.Array.additive(x[:1, :1].float().expand(1 << 21, 1 << 21)), lambda x: nr.recognise(x, "keep")):
        with pytest.raises(nr.Error, match="holds 4398046511104 values, but at most"):
            call(huge)

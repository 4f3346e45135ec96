"""`nr.flow`: closures over layers, witnesses, policies, certificates."""

from __future__ import annotations

import numpy as np
import pytest

import noren as nr


def test_closure_is_the_product_of_layers() -> None:
    masks = ["sliding(3)", "causal & stride(4)", "sliding(2)"]
    flow = nr.flow(masks, 17)
    step = lambda text: nr.Mask(text).dense(17)[0, 0] | np.eye(17, dtype=bool)  # noqa: E731
    expected = step(masks[2]) @ step(masks[1]) @ step(masks[0])
    assert np.array_equal(flow.closure(), expected)
    for token in (0, 9, 16):
        (*_, last) = flow.receptive_field(token)
        assert [k for part in last for k in part] == np.flatnonzero(expected[token]).tolist()
        (*_, last) = flow.reach(token)
        assert [q for part in last for q in part] == np.flatnonzero(expected[:, token]).tolist()


def test_witness_and_cuts() -> None:
    flow = nr.flow("sliding(3)", 20, layers=4)
    path = flow.witness(range(11, 13), 19)
    assert path is not None and path.source in (11, 12) and path.steps[-1][1] == 19
    assert flow.witness(3, 19) is None
    assert all(cut.cells > 0 for cut in flow.cuts(12, 19))


def test_policies_and_certificates() -> None:
    facts = nr.Facts(documents=[[4, 4]])
    policy = "deny: document(i) -> document(j)  # packed texts are apart"
    apart = nr.flow(nr.causal() & nr.documents(), 8, facts, layers=3)
    ruling = apart.check(policy)
    assert ruling.holds and ruling.pairs == 32 and (ruling.layers, ruling.heads, ruling.batch_rows) == (3, 1, 1)
    with pytest.raises(TypeError, match="ruling.holds"):
        bool(ruling)
    leaking = nr.flow(["causal & documents", "causal", "causal & documents"], 8, facts)
    ruling = leaking.check(policy)
    assert not ruling.holds and "document" in repr(ruling) and ruling.violations[0].witness is not None
    certificate = apart.certify(policy)
    assert certificate.holds and certificate.verify().holds and certificate.not_covered
    certificate.matches(apart)
    with pytest.raises(nr.Error, match="other masks"):
        certificate.matches(leaking)
    with pytest.raises(nr.Error, match="certificate"):
        nr.Certificate(certificate.to_json().replace("causal & documents", "causal")).verify()


def test_nothing_holds_without_a_pair() -> None:
    flow = nr.flow("causal", 8, nr.Facts(labels={"pii": [], "own": [3]}), layers=3)
    for policy in ["", "# nobody", "allow: all -> all", "deny maybe: label(pii) -> output", "deny: label(own) -> label(own)"]:
        ruling = flow.check(policy)
        assert (ruling.verdict, ruling.holds, ruling.pairs) == ("nothing established", False, 0)
        assert "nothing established" in repr(ruling) and not flow.certify(policy).holds
    assert [group.group for group in flow.check("deny maybe: label(pii) -> output").empty] == ["label(pii)"]
    with pytest.raises(nr.Error, match=r"label\(pii\) has no tokens in batch row 0"):
        flow.check("deny: label(pii) -> output")
    assert flow.check("deny: all -> token(7)").verdict == "broken"


def test_heads_are_not_guessed() -> None:
    mixed = "heads(0: causal, else: full)"
    for shape in (8, nr.Shape(8, 8)):
        with pytest.raises(nr.Error, match="heads"):
            nr.flow(mixed, shape, layers=2)
    with pytest.raises(nr.Error, match="batch"):
        nr.flow("batch(0: causal, else: full)", 8, layers=2)
    ruling = nr.flow(mixed, nr.Shape(8, 8, heads=4), layers=2).check("deny: token(7) -> token(0)")
    assert ruling.verdict == "broken" and ruling.heads == 4


def test_documents_begin_with_the_first_real_token() -> None:
    facts = {"lengths": [4], "side": "left", "documents": [[2, 2]]}
    ruling = nr.flow("causal & padding", 8, facts, layers=1).check("deny: document(i) -> document(j)")
    assert ruling.verdict == "broken" and ruling.pairs == 8 and ruling.violations[0].reached_pairs == 4


def test_refusals() -> None:
    with pytest.raises(TypeError, match="layers="):
        nr.flow("causal", 8)
    with pytest.raises(TypeError, match="leave out layers="):
        nr.flow(["causal"], 8, layers=3)
    with pytest.raises(nr.Error, match="which has 8 tokens, counted from 0"):
        nr.flow("causal", 8, layers=2).reach(9)
    with pytest.raises(nr.Error, match="batch row 3"):
        nr.flow("causal", 8, layers=2).reach(0, batch=3)
    with pytest.raises(nr.Error, match="line 1"):
        nr.flow("causal", 8, layers=2).check("forbid everything")
    with pytest.raises(nr.Error, match="fill is"):
        nr.flow("causal", 8, layers=2, fill="mean")  # type: ignore[arg-type]
    with pytest.raises(nr.Error, match="not among"):
        nr.flow("full", nr.Shape.cross(8, 4), layers=2)

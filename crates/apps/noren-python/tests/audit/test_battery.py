"""`nr.audit`: planted faults are found and named, models without faults pass in every dtype, reports have both results."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import noren as nr
from conftest import sampled
import noren.battery

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from noren.battery import Intent, Verdict  # noqa: E402
from noren.battery.model.precision import Selections, at_rest  # noqa: E402

from planted import Additive, Fault, Plain, declared, faults, make, others  # noqa: E402

FAMILIES = ["llama", "mistral", "bert", "t5", "plain", "plain causal", "plain pooled"]


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


DTYPES = ("float32", "bfloat16", "float16")


@pytest.mark.parametrize(("family", "dtype"), sampled([(family, dtype) for dtype in DTYPES for family in FAMILIES], 6))
def test_healthy_models_pass(family: str, dtype: str) -> None:
    model = make(family).to(getattr(torch, dtype))
    before = [p.clone() for p in model.parameters()]
    report = nr.audit(model, **declared(family))
    assert report.ok and not report.unclear, str(report)
    assert report.dtype == dtype
    assert len(report.with_verdict(Verdict.PASS)) >= 5
    assert all(p.dtype == q.dtype and torch.equal(p, q) for p, q in zip(model.parameters(), before, strict=True))


@pytest.mark.parametrize("family", sampled(others(), 4))
def test_other_families_pass(family: str) -> None:
    torch.manual_seed(0)
    report = nr.audit(others()[family]().eval())
    assert report.ok and not report.unclear and len(report.with_verdict(Verdict.PASS)) >= 5, str(report)


@pytest.mark.parametrize("fault", list(faults()), ids=lambda fault: f"{fault.family}: {fault.name}")
def test_planted_faults_are_found(fault: Fault) -> None:
    names = [name for name in nr.battery.BATTERY if name in fault.found_by]
    report = nr.audit(fault.model(), **declared(fault.family), **fault.options, checks=names)
    failed = {check.name for check in report.failures}
    assert fault.found_by <= failed, str(report)
    if fault.where is not None:
        assert any(fault.where in (check.where or "") for check in report.failures), str(report)


def test_it_reproduces_the_packing_leak_of_transformers() -> None:
    """In transformers, positions that begin again separate documents only without a mask and without a cache; no warning is given."""
    model = make("llama")
    leaking = nr.audit(model, documents=True, checks=["documents"])["documents"]
    failed = {outcome.what.partition("(")[2].rstrip(")") for outcome in leaking.failures}
    assert failed == {
        "the documents are given by position_ids with an attention_mask of ones",
        "the documents are given by position_ids with the model's default value of use_cache",
    }
    assert leaking.where is not None and "layers.0.self_attn" in leaking.where
    for way in ("position_ids+attention_mask", "position_ids+cache"):
        assert not nr.audit(model, documents=way, checks=["documents"]).ok
    assert nr.audit(model, documents="position_ids", checks=["documents"]).ok


def test_a_fault_of_one_dtype_alone() -> None:
    """In float16, -1e5 is -inf: padding rows have no key left, and their NaN spreads from layer to layer."""
    model = Additive(-1e5)
    assert [check.name for check in nr.audit(model, "causal", vocab=99).failures] == ["weak_fill"]
    report = nr.audit(model.half(), "causal", vocab=99)
    assert "NaN or infinite in float16 and finite in float64" in report["padding_left"].sentence
    assert report["padding_right"].verdict is Verdict.PASS


def test_the_fast_path_of_torch_has_no_empty_rows() -> None:
    """`nn.TransformerEncoder` in evaluation mode: left padding under a causal mask gives NaN everywhere."""
    model = make("plain causal")
    report = nr.audit(model, Intent.of("causal", padding="both"), vocab=99, checks=["padding_left"])
    assert "NaN" in report["padding_left"].sentence


def test_functions_are_audited() -> None:
    """Tests functions of floats that use weights from their closure, with and without a float64 version."""
    weight = torch.randn(8, 8, generator=torch.Generator().manual_seed(0)).float()

    def mean_so_far(x: Any, upto: int = 0) -> Any:
        sums = (x @ weight.to(x)).cumsum(1)
        out = sums / torch.arange(1, x.shape[1] + 1).to(x)[None, :, None]
        return out + out.roll(-1, 1) if upto else out

    report = nr.audit(mean_so_far, "causal", width=8, exact=mean_so_far)
    assert report.ok and report["prefix"].verdict is Verdict.PASS and report["layers"].verdict is Verdict.NOT_APPLICABLE
    report = nr.audit(lambda x: mean_so_far(x, 1), "causal", width=8)
    assert report["prefix"].verdict is Verdict.FAIL and "rounding causes only smaller differences" in report["prefix"].sentence
    assert report["padding_left"].verdict is Verdict.NOT_APPLICABLE


def test_functions_around_modules_and_caches_of_their_own() -> None:
    model = make("llama")

    def logits(input_ids: Any, attention_mask: Any, position_ids: Any) -> Any:
        return model(input_ids, attention_mask=attention_mask, position_ids=position_ids, use_cache=False).logits

    def step(tokens: Any, state: Any, attention_mask: Any, position_ids: Any) -> tuple[Any, Any]:
        out = model(
            tokens, attention_mask=attention_mask, position_ids=position_ids, past_key_values=state, use_cache=True
        )
        return out.logits, out.past_key_values

    def forgetful(tokens: Any, state: Any, attention_mask: Any, position_ids: Any) -> tuple[Any, Any]:
        return step(tokens, state, torch.ones_like(attention_mask), position_ids)

    known: dict[str, Any] = {"module": model, "vocab": 99, "checks": ["padding_left", "cache", "chunks", "backends"]}
    report = nr.audit(logits, "causal", step=step, **known)
    assert report.ok and report["cache"].verdict is Verdict.PASS, str(report)
    assert nr.audit(logits, "causal", step=forgetful, **known)["cache"].verdict is Verdict.FAIL
    differ = {"one": logits, "two": lambda **k: logits(k["input_ids"].flip(1), k["attention_mask"], k["position_ids"])}
    assert nr.audit(logits, "causal", backends=differ, **known)["backends"].verdict is Verdict.FAIL


def test_training_mode_and_running_statistics() -> None:
    class Norm(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.drop = torch.nn.BatchNorm1d(8), torch.nn.Dropout(0.5)

        def forward(self, x: Any) -> Any:
            return self.drop(self.norm(x.transpose(1, 2)).transpose(1, 2))

    model = Norm().train()
    quiet = nr.audit(model, "causal", width=8, checks=["batch", "prefix"], training=False)
    assert quiet.ok and quiet.mode == "evaluation mode" and "training mode" in quiet.not_tested
    report = nr.audit(model, "causal", width=8, checks=["batch", "prefix"])
    assert report.mode == "training mode without dropout" and "evaluation mode" in report.not_tested
    assert {check.name for check in report.failures} == {"batch", "prefix"} and report["prefix"].where == "`norm` (BatchNorm1d)"
    assert model.training and model.drop.training and model.norm.num_batches_tracked == 0


def test_a_compiled_model_runs_as_written_and_the_report_says_so() -> None:
    report = nr.audit(torch.compile(make("llama")), checks=["prefix"])
    assert report.ok and any("torch.compile" in said for said in report.not_tested)
    assert any("the checks reach, liveness" in said for said in report.not_tested)


def test_the_trials_of_a_causal_model() -> None:
    report = nr.audit(Plain(causal=True), "causal", vocab=99, length=12, checks=["prefix", "window", "liveness", "reach"])
    assert report["window"].sentence == "through all layers, every output depends on the first tokens"
    trials = {name: [outcome.what for outcome in report[name].outcomes] for name in ("prefix", "liveness", "reach")}
    assert trials["prefix"] == ["tokens 1.. changed", "tokens 6.. changed"]
    assert trials["liveness"] == ["token 0 changed", "token 6 changed"]
    assert trials["reach"] == ["tokens 0..8 changed one by one"] * 2 + ["tokens 0..12 changed one by one"] * 2
    everything = nr.audit(Plain(), "bidirectional", vocab=99, length=12, checks=["prefix"])
    assert everything["prefix"].sentence == "every output may read every token"


def test_intents_reach_through_layers() -> None:
    window = Intent.of("sliding(3)", layers=2)
    assert np.flatnonzero(window.reach("main", 12)[11]).tolist() == [7, 8, 9, 10, 11]
    assert np.flatnonzero(Intent.of("sliding(3)").reach("main", 12)[11]).tolist() == list(range(12))
    assert Intent.of(["sliding(3)", "causal"]).reach("main", 12)[11].all()
    assert str(Intent.of(["sliding(3)", "causal"], documents=True)) == "sliding(3) in layers [0], causal in layers [1]; documents"
    assert Intent.of("encoder-decoder").source is not None
    with pytest.raises(nr.Error, match="layers=3"):
        Intent.of(["causal", "causal"], layers=3)
    with pytest.raises(nr.Error, match="no intended mask"):
        Intent.of([])
    with pytest.raises(nr.Error, match="layers=0"):
        Intent.of("causal", layers=0)
    for one in (Intent.of("sliding(3)", layers=1), Intent.of(["sliding(3)"])):
        assert np.flatnonzero(one.reach("main", 12)[11]).tolist() == [9, 10, 11]


def test_a_leak_of_its_own_dtype_is_no_rounding() -> None:
    """A model that averages over all positions in float32 and is causal in float64."""

    class Averaging(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.out = torch.nn.Embedding(50, 16), torch.nn.Linear(16, 16)

        def forward(self, input_ids: Any) -> Any:
            hidden = self.embed(input_ids)
            if hidden.dtype == torch.float32:
                return self.out(hidden.mean(1, keepdim=True).expand_as(hidden))
            counts = torch.arange(1, hidden.shape[1] + 1).to(hidden)[None, :, None]
            return self.out(hidden.cumsum(1) / counts)

    report = nr.audit(Averaging(), "causal", vocab=50)
    assert report.verdict == "failed" and {"prefix", "reach", "lengths"} <= {check.name for check in report.failures}
    assert "stays below" in report["prefix"].sentence and "does not change in float64" in report["prefix"].sentence


def test_padding_ignored_in_its_own_dtype_alone() -> None:
    for dtype in (torch.float32, torch.bfloat16):
        model = make("bert").to(dtype)
        model.register_forward_pre_hook(
            lambda m, args, k: (args, k | {"attention_mask": None}) if m.pooler.dense.weight.dtype != torch.float64 else None,
            with_kwargs=True,
        )
        assert nr.audit(model).verdict == "failed"


def test_a_one_layer_window_is_tested() -> None:
    weight = torch.randn(8, 8, generator=torch.Generator().manual_seed(0)).double()

    def last_five(x: Any) -> Any:
        x = x.double() @ weight
        return sum(torch.nn.functional.pad(x, (0, 0, i, 0))[:, : x.shape[1]] for i in range(5))

    assert nr.audit(last_five, "sliding(5)", layers=1, width=8, exact=last_five).ok
    report = nr.audit(last_five, "sliding(4)", layers=1, width=8, exact=last_five)
    assert {"window", "reach"} <= {check.name for check in report.failures}
    unknown = nr.audit(last_five, "sliding(5)", width=8, exact=last_five)
    assert unknown.verdict == "incomplete" and not unknown and "give layers=" in unknown["window"].sentence


def test_what_was_not_decided_is_not_ok() -> None:
    report = nr.audit(lambda x: x if len(x) == 1 else x[:, :, :, :], "causal", width=4, checks=["batch"])
    assert report.verdict == "incomplete" and not report.ok and report.summary().startswith("incomplete")
    with pytest.raises(AssertionError, match="the model raised"):
        assert report, str(report)
    nothing = nr.audit(lambda x: x, "causal", width=4, checks=["documents"])
    assert nothing.verdict == "incomplete"


def test_the_bound_of_rounding() -> None:
    from noren.battery import Rounding

    small = Rounding(torch.float32, 2, 81).bound
    assert small == pytest.approx(4 * (2 * 3 * (16 + 4 * 81)) ** 0.5 * 2.0**-24)
    assert Rounding(torch.bfloat16, 2, 81).bound == pytest.approx(4 * (2 * 3 * (16 * 2.0**-16 + 4 * 81 * 2.0**-48)) ** 0.5)
    assert Rounding(torch.bfloat16, 1000, 81).bound == 0.5
    report = nr.audit(make("llama"), checks=["padding_left", "lengths"])
    assert report.rounding == str(Rounding(torch.float32, 2, 81)) and "which is rounding (below" in str(report)
    for check in report.checks:
        assert all(outcome.own.difference < small for outcome in check.outcomes if outcome.own is not None)


def test_reports_in_every_form(tmp_path: Any) -> None:
    fault = next(fault for fault in faults() if fault.name == "one bad head")
    report = nr.audit(fault.model(), checks=["prefix", "liveness", "window", "backends"])
    text = str(report)
    assert "FAIL  prefix invariance" in text and "head 2 of 4" in text and "changed  ·" in text and "usually  causal_leak" in text
    assert not report and not report.ok and report["window"].verdict is Verdict.NOT_APPLICABLE
    with pytest.raises(AssertionError, match="prefix invariance"):
        assert report, str(report)
    found = json.loads(report.to_json())
    assert found["ok"] is False and found["checks"][0]["trials"][0]["float64"]["difference"] > 1e-6
    for name, start in (("a.json", "{"), ("a.txt", "noren audit of")):
        report.save(tmp_path / name)
        assert (tmp_path / name).read_text(encoding="utf-8").startswith(start)


def test_what_cannot_be_audited_is_said() -> None:
    with pytest.raises(nr.Error, match="cannot be called"):
        nr.audit(3, "causal")
    with pytest.raises(nr.Error, match="give intent="):
        nr.audit(Plain())
    with pytest.raises(nr.Error, match="give vocab="):
        nr.audit(Plain(), "bidirectional")
    with pytest.raises(nr.Error, match="no check 'prefixes'"):
        nr.audit(Plain(), "bidirectional", vocab=99, checks=["prefixes"])
    with pytest.raises(nr.Error, match="returned nothing of shape"):
        nr.audit(lambda x: x.sum(), "causal", width=4)
    with pytest.raises(nr.Error, match="two equal calls"):
        nr.audit(lambda x: torch.rand_like(x), "causal", width=4)
    with pytest.raises(nr.Error, match="length=250 is too long.* give length=247 or less"):
        nr.audit(make("llama"), length=250)
    raises = nr.audit(lambda x: x if len(x) == 1 else x[:, :, :, :], "causal", width=4, checks=["batch"])
    assert raises["batch"].verdict is Verdict.INCONCLUSIVE and "the model raised IndexError" in raises["batch"].sentence


def test_a_length_too_short_is_refused_by_name() -> None:
    for length in (5, 0, -1):
        with pytest.raises(nr.Error, match=f"length={length} is too small: give 8 tokens or more"):
            nr.audit(Plain(causal=True), "causal", vocab=99, length=length)
    assert nr.audit(Plain(causal=True), "causal", vocab=99, length=8).checks


def test_what_single_heads_may_read_is_said_to_be_open() -> None:
    said = "a head that reads tokens that the declared mask allows only to another head"
    for heads in (1, 2):
        intent = Intent.of("causal", heads=heads)
        assert (said in nr.audit(Plain(causal=True), intent, vocab=99, checks=["prefix"]).not_tested) == (heads > 1)


def test_selections_are_noticed() -> None:
    x = torch.randn(2, 3)
    selects = (lambda: x.argmax(-1), lambda: torch.max(x, 1), lambda: x.max(dim=-1), lambda: torch.argmax(input=x), lambda: x.topk(1))
    others = (lambda: x.max(), lambda: torch.max(x, x), lambda: x.softmax(-1), lambda: (x > 0).long().argmax(-1))
    for calls, met in ((selects, True), (others, False)):
        for call in calls:
            with Selections() as found:
                call()
            assert found.met == met


def test_frozen_modules_stay_frozen_while_a_model_trains() -> None:
    model = torch.nn.Sequential(torch.nn.BatchNorm1d(2), torch.nn.Dropout(0.5), torch.nn.BatchNorm1d(2)).train()
    model[0].eval()
    with at_rest(model, True, own_modes=True):
        assert [m.training for m in model] == [False, False, True]
    with at_rest(model, True):
        assert [m.training for m in model] == [True, False, True]
    assert [m.training for m in model] == [False, True, True]

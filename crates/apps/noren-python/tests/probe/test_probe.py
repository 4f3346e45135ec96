"""`nr.probe`: planted faults are found and named, correct functions pass in every dtype, unusable functions give clear entries."""

from __future__ import annotations

import doctest
import importlib.util
import json
import os
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import noren as nr
from conftest import ROOT, sampled
from noren.probing import Answer, Entry, Report, Signature, Verdict, command, table

torch = pytest.importorskip("torch")

from probe_faults import SILENT, Fault, Parts, faults, imitate  # noqa: E402

DTYPES = ("float32", "bfloat16", "float16")
FAULTS = faults()
DECLARED = {"alignment": "bottom-right", "blocks": "block_lists"}


def questions(report: nr.probing.Report) -> list[str]:
    return [f"{entry.title} [{entry.dtype}]: {entry}" for entry in report.entries if entry.verdict is not Verdict.APPLIED]


@pytest.fixture(autouse=True)
def one_thread() -> Any:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def test_there_are_enough_faults() -> None:
    assert len({fault.name for fault in FAULTS}) == len(FAULTS) >= 50


@pytest.mark.parametrize("fault", sampled(FAULTS, 3), ids=lambda fault: fault.name)
def test_planted_faults_are_named(fault: Fault) -> None:
    dtype = DTYPES[FAULTS.index(fault) % 3] if fault.feature not in ("hidden keys with large scores",) else "float32"
    report = nr.probe(imitate(fault.parts), dtypes=dtype, seed=FAULTS.index(fault), **DECLARED)
    entry = report.entry(fault.feature, fault.case)
    assert str(entry.verdict) == fault.verdict and fault.words in entry.detail, f"{entry}\n{report}"
    assert bool(entry.warnings) == fault.warned
    if fault.feature != "hidden NaN":
        assert entry.fault and not report.ok


def test_a_correct_function_has_no_fault_in_any_dtype() -> None:
    report = nr.probe(imitate(Parts()), dtypes=DTYPES, **DECLARED)
    unsettled = [entry for entry in report.entries if entry.verdict not in (Verdict.APPLIED, Verdict.OBSERVED)]
    assert report.ok and not unsettled, str(report)
    assert report.assumptions and "attn_mask" in report.assumptions[0]
    assert all(entry.calls <= 2 for entry in report.entries)
    assert report.entry("hidden NaN", "in values").detail == "no bit changes"
    assert report.entry("rows without keys").detail == "the output is 0; the log-sum-exp is -inf"


@pytest.mark.parametrize("seed", sampled(range(1, 6), 5))
def test_no_false_alarm_for_other_seeds(seed: int) -> None:
    report = nr.probe(imitate(Parts()), dtypes=DTYPES[seed % 3], seed=seed, **DECLARED)
    assert report.ok and not [e for e in report.entries if e.verdict in (Verdict.NOT_ESTABLISHED, Verdict.READ)], str(report)


@pytest.mark.parametrize("backend", sampled(["torch:sdpa", "torch:sdpa/math", "torch:sdpa/flash"], 3))
def test_sdpa_is_correct(backend: str) -> None:
    report = nr.probe(backend, dtypes=DTYPES)
    assert report.ok and report.versions["torch"] == torch.__version__.split("+")[0], str(report)
    assert report.entry("causal flag", "fewer queries than keys").detail == "aligned top-left"
    assert report.entry("mask", "random cells (keep)").compared > 4000
    assert report.entry("gradients").verdict is Verdict.APPLIED
    assert report.entry("softcap").verdict is Verdict.ABSENT


def test_noren_is_correct() -> None:
    import noren.torch as nt

    for report in (nr.probe(nt.attention, dtypes=DTYPES), nr.probe("noren")):
        assert report.ok and not [e for e in report.entries if e.verdict is Verdict.READ], str(report)
        assert report.name == "noren" and report.entry("hidden NaN", "in gradients").verdict is Verdict.APPLIED


def test_flex_attention_without_compilation_ignores_block_lists() -> None:
    from torch.nn.attention.flex_attention import flex_attention

    report = nr.probe(flex_attention, ["causal"])
    assert report.entry("mask", "causal (block_mask)").verdict is Verdict.APPLIED, str(report)
    assert report.entry("log-sum-exp").detail == "base e"
    for case in ("partial blocks", "full blocks"):
        assert report.entry("block lists", case).verdict is not Verdict.MISREAD
    assert {entry.feature for entry in report.faults} <= {"block lists"}, str(report)


def test_lists_that_are_ignored_beside_a_trivial_mask_function_are_found() -> None:
    """pytorch/pytorch 188322: only the mask function of a BlockMask is read."""

    def fast_path(q: Any, k: Any, v: Any, block_mask: Any = None) -> Any:
        keep = torch.ones(1, 1, q.shape[2], k.shape[2], dtype=torch.bool)
        if block_mask is not None:
            b, h, m, n = (torch.arange(size) for size in (q.shape[0], q.shape[1], q.shape[2], k.shape[2]))
            keep = block_mask.mask_mod(b[:, None, None, None], h[:, None, None], m[:, None], n).expand(*q.shape[:3], k.shape[2])
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, keep)

    report = nr.probe(fast_path)
    assert {str(report.entry("block lists", case).verdict) for case in ("partial blocks", "full blocks")} == {"ignored"}, str(report)
    assert report.entry("mask", "random cells (block_mask)").verdict is Verdict.APPLIED
    assert all(entry.feature in ("block lists", "grouped heads") for entry in report.faults)


def test_layouts_arrays_and_bases_that_are_declared() -> None:
    def numpy_attention(q: Any, k: Any, v: Any, *, hide: Any = None, logits: Any = None) -> Any:
        q, k, v = (x.astype(np.float64).swapaxes(1, 2) for x in (q, k, v))
        k, v = (x.repeat(q.shape[1] // x.shape[1], 1) for x in (k, v))
        s = q @ k.swapaxes(2, 3) * q.shape[-1] ** -0.5 + (0 if logits is None else logits)
        s = np.where(False if hide is None else hide, -np.inf, s)
        top = s.max(-1, keepdims=True)
        p = np.exp(s - top)
        total = p.sum(-1, keepdims=True)
        return (p / total @ v).swapaxes(1, 2), (np.log2(np.e) * (top + np.log(total)))[..., 0].swapaxes(1, 2)

    declared: dict[str, Any] = {"library": "numpy", "layout": "blhd", "drop": "hide", "bias": "logits", "lse": "always", "lse_base": "2"}
    report = nr.probe(numpy_attention, dtypes=["float32", "float16", "float64"], **declared)
    assert report.ok and report.entry("log-sum-exp").detail == "base 2", str(report)
    assert report.entry("rows without keys").detail.startswith("the output is NaN")
    assert nr.probe(numpy_attention, **{**declared, "lse_base": "e"}).entry("log-sum-exp").verdict is Verdict.MISREAD
    wrong = nr.probe(numpy_attention, **{k: v for k, v in declared.items() if k != "drop"}, keep="hide")
    assert wrong.entry("mask", "random cells (keep)").detail == "the mask is inverted: hidden keys are read, allowed keys are not"


class Own:
    """An adapter of a function of noren."""

    name, alignment, lse_base, causal_window, assumptions = "own", "bottom-right", "e", False, ()
    takes = frozenset({"causal", "gqa"})
    versions: dict[str, str] = {}

    def run(self, call: Any, cotangent: Any) -> Answer:
        q, k, v = (x.astype(np.float32) for x in (call.q, call.k, call.v))
        return Answer(nr.attention(q, k, v, "causal" if call.causal else "full", query_offset=k.shape[2] - q.shape[2]).astype(np.float64))


def test_own_adapter() -> None:
    report = nr.probe(Own())
    assert report.ok and report.entry("causal flag", "fewer queries than keys").detail == "aligned bottom-right", str(report)


def test_masks_of_the_user() -> None:
    blocks = np.kron(np.eye(3, dtype=bool), np.ones((10, 10), bool))
    report = nr.probe("torch:sdpa", {"three blocks": blocks, "local": nr.sliding(3), "text": "causal & documents([7, 9])", "all": "full"})
    assert {report.entry("mask", f"{name} (keep)").verdict for name in ("three blocks", "local", "text")} == {Verdict.APPLIED}
    entry = report.entry("mask", "all (keep)")
    assert entry.verdict is Verdict.NOT_ESTABLISHED and "no effect" in entry.detail
    assert nr.probe(imitate(SILENT), [nr.causal()], **DECLARED).entry("mask", "causal (keep)").verdict is Verdict.IGNORED
    for masks, words in (
        ([np.ones((4, 4))], "the mask array holds float64: give booleans"),
        ([np.ones((2, 300), bool)], "300 keys"),
        ([np.ones(5, bool)], "has the shape"),
        (["causal + alibi"], "has score modifiers"),
        (["padding"], "lengths"),
    ):
        with pytest.raises(nr.Error, match=words):
            nr.probe("torch:sdpa", masks)


def _raise(*_: Any, **__: Any) -> Any:
    raise ZeroDivisionError("kernel launch failed\nsecond line")


UNUSABLE: list[tuple[Any, str, str]] = [
    (_raise, "refused", "ZeroDivisionError: kernel launch failed"),
    (lambda q, k, v: q[..., :3], "not established", "the output has the shape [2, 2, 16, 3] instead of [2, 2, 16, 32]"),
    (lambda q, k, v: q.long(), "not established", "torch.int64"),
    (lambda q, k, v: None, "not established", "returned NoneType"),
    (lambda q, k, v: "text", "not established", "not of floating-point numbers"),
    (lambda q, k, v: [], "not established", "shape"),
    (lambda q, k, v: q * float("nan"), "misread", "the output is wrong and equals no known wrong computation"),
    (lambda q, k, v: torch.zeros_like(q), "misread", "the output is wrong and equals no known wrong computation"),
    (lambda q, k, v: v.mean(2, keepdim=True).expand_as(v), "misread", "the mean of all values"),
]


@pytest.mark.parametrize(("function", "verdict", "words"), UNUSABLE, ids=range(len(UNUSABLE)))
def test_unusable_functions(function: Any, verdict: str, words: str) -> None:
    report = nr.probe(function)
    entry = report.entry("attention")
    assert str(entry.verdict) == verdict and words in entry.detail and not report.ok, str(report)
    assert json.loads(report.to_json())["ok"] is False


def test_a_lower_precision_is_no_misreading() -> None:
    def low(q: Any, k: Any, v: Any) -> Any:
        return torch.nn.functional.scaled_dot_product_attention(q.bfloat16().float(), k.bfloat16().float(), v)

    entry = nr.probe(low).entry("attention")
    assert entry.verdict is Verdict.NOT_ESTABLISHED and "TF32" in entry.detail


def test_a_warning_that_is_given_once_counts_for_all_masks() -> None:
    told: list[int] = []

    def once(mask: Any) -> Any:
        if not told:
            warnings.warn("masks are ignored", stacklevel=1)
        told.append(1)
        return torch.ones_like(mask)

    report = nr.probe(imitate(Parts(mask=once)), dtypes=DTYPES[:2], **DECLARED)
    found = [entry for entry in report.entries if entry.feature == "mask"]
    assert len(found) == 18 and all(entry.warnings == ("masks are ignored",) for entry in found)
    assert "with a warning: masks are ignored" in str(report) and "silently" not in str(report)


def test_missing_devices_and_packages() -> None:
    if not torch.cuda.is_available():
        entry = nr.probe("torch:sdpa", device="cuda").entry("attention")
        assert entry.verdict is Verdict.NOT_ESTABLISHED and "'cuda' cannot be used" in entry.detail
    entry = nr.probe(lambda q, k, v: q, library="numpy", device="cuda").entry("attention")
    assert "NumPy cannot use the device 'cuda'" in entry.detail
    if not importlib.util.find_spec("onnxruntime"):
        report = nr.probe("onnxruntime")
        assert "onnxruntime is not installed" in str(report) and not report.faults and not report.ok


def test_nothing_is_established_by_nan_or_without_masks() -> None:
    report = nr.probe(lambda q, k, v: q * float("nan"), library="torch")
    assert not report.ok
    for feature in ("equal calls", "batch invariance"):
        assert str(report.entry(feature)) == "not established: all outputs are NaN"
    for masks in ([], {}):
        with pytest.raises(nr.Error, match="masks is empty"):
            nr.probe("noren", masks)


def test_wrong_arguments() -> None:
    for given, words in (
        ({"dtypes": "int8"}, "`dtypes` has 'int8'"),
        ({"dtypes": []}, "`dtypes` is empty"),
        ({"seed": -1}, "seed=-1"),
        ({"length": 0}, "length=0"),
        ({"kepe": "mask"}, "unknown field 'kepe'"),
        ({"layout": "hbld"}, "layout='hbld'"),
    ):
        with pytest.raises(nr.Error, match=words):
            nr.probe(lambda q, k, v: q, **given)  # type: ignore[arg-type]
    for target, words in (("torch:sdpa/fast", "is unknown: give one of"), ("nowhere:attention", "cannot be imported"), (7, "cannot be called")):
        with pytest.raises(nr.Error, match=words):
            nr.probe(target)
    with pytest.raises(KeyError, match="the report has no entry 'masks' with case"):
        nr.probe(_raise).entry("masks")


def test_a_function_that_is_slow_to_fail_or_leaves_warnings_on() -> None:
    def noisy(q: Any, k: Any, v: Any, attn_mask: Any = None) -> Any:
        warnings.warn("experimental", UserWarning, stacklevel=1)
        if attn_mask is not None and attn_mask.shape[1] > 1:
            raise NotImplementedError("masks for each head")
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask, enable_gqa=q.shape[1] != k.shape[1])

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        report = nr.probe(noisy)
    assert report.ok and report.entry("mask", "random cells (keep)").verdict is Verdict.REFUSED, str(report)
    assert report.entry("mask", "causal (keep)").warnings == ("experimental",)


def test_reports(capsys: pytest.CaptureFixture[str], tmp_path: Any) -> None:
    faulty = nr.probe(imitate(SILENT), ["causal | keys(0..2)"], name="kernel | 2", **DECLARED)
    text = str(faulty)
    assert text.startswith("kernel | 2: 1 fault found") and "(silently)" in text and "seed 0" in text
    page = faulty.to_markdown()
    assert "| question | kernel \\| 2 |" in page and "**ignored: all keys are read (silently)**" in page
    assert nr.probing.Report.from_json(faulty.to_json()) == faulty
    data = json.loads(faulty.to_json())
    assert data["seed"] == 0 and data["entries"][0]["verdict"] == "applied"
    both = table([faulty, nr.probe("torch:sdpa", ["causal"], dtypes=["float32", "float16"])])
    rows = [line for line in both.splitlines() if line.startswith("|")]
    assert all(line.replace("\\|", "").count("|") == 4 for line in rows)

    assert command.main(["torch:sdpa", "--mask", "causal", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["name"] == "torch:sdpa"
    assert command.main(["probe_faults:broken", "--mask", "causal"]) == 2
    assert command.main([]) == 2 and command.main(["torch:sdpa", "--set", "keep"]) == 2
    target = tmp_path / "page.md"
    target.write_text(f"before\n{command.BEGIN}\nold\n{command.END}\nafter\n")
    assert command.main(["torch:sdpa", "--mask", "causal", "--into", str(target)]) == 0
    assert "old" not in target.read_text() and target.read_text().startswith("before") and target.read_text().endswith("after\n")
    report = tmp_path / "report.json"
    both = ["--format", "json", "--output", str(report), "--into", str(target)]
    assert command.main(["torch:sdpa", "--mask", "causal & sliding(2)", *both]) == 0 and capsys.readouterr().out == ""
    assert json.loads(report.read_text())[0]["name"] == "torch:sdpa" and "causal & sliding(2)" in target.read_text()
    target.write_text("nothing")
    assert command.main(["torch:sdpa", "--mask", "causal", "--into", str(target)]) == 2
    assert "add both where the table should be" in capsys.readouterr().err


def abort(q: Any, k: Any, v: Any, attn_mask: Any = None) -> Any:
    """Attention that ends the process when it gets a mask."""
    if attn_mask is not None:
        os.abort()
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, enable_gqa=q.shape[1] != k.shape[1])


def test_a_target_that_ends_the_process(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    places = [str(Path(__file__).parent), str(Path(__file__).parents[1]), str(Path(nr.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(places))
    assert command.main(["test_probe:abort", "torch:nothing"]) == 2
    assert "the target torch:nothing is unknown" in capsys.readouterr().err
    assert command.main(["test_probe:abort", "onnxruntime", "--format", "json"]) == 3
    entries = json.loads(capsys.readouterr().out)[0]["entries"]
    assert entries[0]["verdict"] == "applied" and entries[-1]["verdict"] == "not established"
    assert entries[-1]["detail"].startswith("the process of the probe crashed with status -6 after the question 'grouped heads: 4 query heads")


def test_the_exit_status(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    right, none = Entry("attention", "", "float32", Verdict.APPLIED), Entry("attention", "", "float32", Verdict.NOT_ESTABLISHED)
    crashed, fault = Entry("further questions", "", "float32", Verdict.NOT_ESTABLISHED), Entry("window", "", "float32", Verdict.IGNORED)
    found = {"a": (right,), "b": (none,), "c": (right, crashed), "d": (right, fault)}

    def probed(target: str, dtypes: Any, given: Any) -> Report:
        return Report(target, found[target], {}, "cpu", 0, ("float32",), (), 1, 0.0)

    monkeypatch.setattr(command, "_probed", probed)
    monkeypatch.setattr(command, "_in_process", probed)
    for targets, status in [("a", 0), ("b", 3), ("c", 3), ("d", 1), ("ab", 3), ("bd", 1), ("aa", 0)]:
        assert command.main(list(targets)) == status, targets
    for targets, status in [("ab", 0), ("bb", 3), ("bd", 1), ("cb", 3)]:
        monkeypatch.setattr(command, "TARGETS", tuple(targets))
        assert command.main(["--all"]) == status, targets
    capsys.readouterr()


def test_a_function_without_declared_parameters_takes_no_features() -> None:
    assert Signature().takes() == {"gqa", "head_masks"}


def test_the_page() -> None:
    pytest.importorskip("transformers")
    failed, run = doctest.testfile(str(ROOT / "docs/backends.md"), module_relative=False)
    assert run >= 7 and failed == 0


def test_jax_is_correct() -> None:
    jax = pytest.importorskip("jax")
    report = nr.probe(jax.nn.dot_product_attention, ["causal"])
    assert report.ok and report.name == "jax" and report.entry("log-sum-exp").detail == "base e", str(report)
    for case in ("5 keys before the query, causal", "4 keys before and 2 after the query"):
        assert report.entry("window", case).detail == "both ends are included"
    assert report.entry("gradients").verdict is Verdict.APPLIED
    device = nr.probe(jax.nn.dot_product_attention, device="tpu").entry("attention")
    assert device.verdict is Verdict.NOT_ESTABLISHED and "'tpu' cannot be used" in device.detail


@pytest.mark.parametrize("target", ["keras", "onnx"])
def test_other_libraries_are_correct(target: str) -> None:
    report = nr.probe(target, dtypes=["float32", "float16"])
    if not report.versions:
        pytest.skip(report.entry("attention").detail)
    assert report.ok, str(report)
    assert report.entry("causal flag", "beside a mask").verdict is Verdict.APPLIED


def test_a_kernel_that_is_wrong_for_odd_lengths() -> None:
    """A kernel that drops the last key if the number of keys is odd, and one that refuses odd numbers."""

    def attend(q: Any, k: Any, v: Any) -> Any:
        keys = k.shape[2] - k.shape[2] % 2
        return np.asarray(nr.attention(*(np.asarray(x, np.float32) for x in (q, k[:, :, :keys], v[:, :, :keys])), "full"))

    def refuses(q: Any, k: Any, v: Any) -> Any:
        if k.shape[2] % 2:
            raise ValueError("give an even number of keys")
        return attend(q, k, v)

    assert nr.probe(attend).entries[0].verdict is Verdict.MISREAD
    entry = nr.probe(refuses).entries[0]
    assert entry.verdict is Verdict.APPLIED and "15 keys is refused" in entry.detail

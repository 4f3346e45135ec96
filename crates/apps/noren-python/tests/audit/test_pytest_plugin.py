"""The plugin `noren_masks`, run in a pytest of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")  # the tests within import it, and it can be imported only once
pytest.importorskip("transformers")
pytest_plugins = ["pytester"]

HEADER = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
import pytest, torch
torch.set_num_threads(1)
from planted import Plain, causal_broken_in_one_layer, make
"""


@pytest.fixture
def run(pytester: pytest.Pytester, request: pytest.FixtureRequest):  # type: ignore[no-untyped-def]
    """Runs tests with the plugin, also where noren is not installed with its entry points."""

    def run(source: str, *args: str) -> pytest.RunResult:
        pytester.makepyfile(HEADER + source)
        installed = request.config.pluginmanager.has_plugin("noren_masks")
        return pytester.runpytest_inprocess(*([] if installed else ["-p", "noren.pytest_plugin"]), *args)

    return run


def test_healthy_models_pass(run) -> None:  # type: ignore[no-untyped-def]
    found = run(
        """
def test_llama(assert_no_future_leak, assert_padding_invariant, assert_batch_invariant, assert_documents_isolated,
               assert_cache_equals_full, assert_mask_is_live, assert_mask_is_strong, assert_reads_what_it_should, assert_backends_agree):
    model = make("llama")
    for assertion in (assert_no_future_leak, assert_padding_invariant, assert_batch_invariant, assert_cache_equals_full,
                      assert_mask_is_live, assert_mask_is_strong, assert_reads_what_it_should, assert_backends_agree):
        assert assertion(model).ok
    assert_documents_isolated(model, documents="position_ids")

def test_window(assert_window_holds):
    assert_window_holds(make("mistral"))

def test_all(audit_masks):
    assert audit_masks(Plain(), "bidirectional", vocab=99)["padding_left"].verdict == "pass"
"""
    )
    found.assert_outcomes(passed=3)


def test_faults_fail_and_reports_are_kept(run, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    found = run(
        """
def test_leak(assert_no_future_leak):
    model = make("llama")
    model.set_attn_implementation("eager")
    causal_broken_in_one_layer(model)
    assert_no_future_leak(model)

def test_packing(assert_documents_isolated):
    assert_documents_isolated(make("llama"))

def test_nothing(assert_cache_equals_full):
    assert_cache_equals_full(make("bert"))
""",
        f"--noren-reports={tmp_path}",
    )
    found.assert_outcomes(failed=3)
    found.stdout.fnmatch_lines(["*FAIL*prefix invariance*outputs depend on tokens that come after them*"])
    found.stdout.fnmatch_lines(["*first in `model.layers.1.self_attn` (LlamaAttention)*"])
    found.stdout.fnmatch_lines(["*one document reads another*"])
    found.stdout.fnmatch_lines(["no check applies to this model:"])
    assert len(list(tmp_path.glob("*.json"))) == 3


def test_the_plugin_does_not_import_torch() -> None:
    import subprocess
    import sys

    code = "import sys, noren.pytest_plugin; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)

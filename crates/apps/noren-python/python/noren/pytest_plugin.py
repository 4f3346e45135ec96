"""The pytest plugin `noren_masks`: fixtures that run `nr.audit` in unit tests. It is installed with noren and needs no conftest.py.

    def test_my_model(assert_no_future_leak, assert_padding_invariant):
        model = make_model()
        assert_no_future_leak(model)
        assert_padding_invariant(model)

Each fixture is a function with the arguments of `nr.audit`; this function returns the report. A test fails if a check fails, if a check has
no result, or if no check applies to the model. `--noren-reports=DIR` saves every report as an HTML page in the folder DIR.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from .battery import Report

Assertion = Callable[..., "Report"]


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("noren", "masks of models")
    group.addoption("--noren-reports", metavar="DIR", help="the folder in which the report of each audit is saved as JSON")


def _fixture(doc: str, *checks: str, needed: int | None = None, **defaults: Any) -> Any:
    """Returns a fixture: a function that runs `checks` [default: all checks] and asserts that they pass. The function has the
    arguments of `nr.audit` (`defaults` has default values of them), and returns the report.

    The test also fails if none of the first `needed` checks [default: all of `checks`] applies to the model.
    """

    @pytest.fixture
    def fixture(request: pytest.FixtureRequest) -> Assertion:
        def assertion(model: Any, *args: Any, **options: Any) -> Report:
            __tracebackhide__ = True
            from .battery import Verdict, audit

            report = audit(model, *args, **({"checks": checks or None} | defaults | options))
            _keep(request, report)
            if report.failures or report.unclear:
                pytest.fail(str(report), pytrace=False)
            applied = {check.name for check in report.with_verdict(Verdict.PASS)}
            if not applied & set(checks[:needed] or [check.name for check in report.checks]):
                pytest.fail(f"no check applies to this model:\n{report}", pytrace=False)
            return report

        return assertion

    fixture.__doc__ = doc
    return fixture


def _keep(request: pytest.FixtureRequest, report: Report) -> None:
    folder = request.config.getoption("--noren-reports")
    if not folder:
        return
    Path(folder).mkdir(parents=True, exist_ok=True)
    name = re.sub(r"\W+", "-", request.node.name).strip("-")
    turn = sum(1 for _ in Path(folder).glob(f"{name}-*.json")) + 1
    report.save(Path(folder) / f"{name}-{turn}.json")

audit_masks = _fixture("Runs all checks of the audit; the test fails if a check fails or has no result.")
assert_no_future_leak = _fixture("Asserts that no output depends on a hidden token, over all layers and within each layer.", "prefix", "reach", "layers", needed=1)
assert_reads_what_it_should = _fixture(
    "Asserts that every output depends on the tokens that it should read: no token is hidden by mistake.", "liveness", "reach", "layers", needed=1
)
assert_window_holds = _fixture(
    "Asserts that each layer reads exactly the keys in its window, and that no output depends on a token farther away than the windows of all layers "
    "together allow.", "layers", "window", "reach", needed=2,
)  # fmt: skip
assert_padding_invariant = _fixture(
    "Asserts that padding on the left or right, with any token id, changes no output of a non-padding token.",
    "padding_right", "padding_left", "redaction", "lengths", needed=3,
)  # fmt: skip
assert_mask_is_live = _fixture("Asserts that the attention mask has an effect on the outputs.", "mask_liveness")
assert_mask_is_strong = _fixture("Asserts that masked keys stay hidden even with very large scores.", "weak_fill")
assert_batch_invariant = _fixture("Asserts that a sequence has the same outputs alone and in a batch with other sequences.", "batch")
assert_documents_isolated = _fixture(
    "Asserts that documents packed into one row do not influence each other. If several arguments of the model can define documents, each of these "
    "arguments is tested separately.", "documents", documents=True,
)  # fmt: skip
assert_cache_equals_full = _fixture(
    "Asserts that decoding with a cache, token by token and in chunks, gives the same outputs as one pass without a cache.", "cache", "chunks"
)
assert_backends_agree = _fixture("Asserts that all attention implementations of the model give the same outputs.", "backends")

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


@pytest.fixture
def audit_masks(request: pytest.FixtureRequest) -> Assertion:
    """Runs all checks of the audit; the test fails if a check fails or has no result."""
    return _assertion(request, None)


@pytest.fixture
def assert_no_future_leak(request: pytest.FixtureRequest) -> Assertion:
    """Asserts that no output depends on a hidden token, over all layers and within each layer."""
    return _assertion(request, ("prefix", "reach", "layers"), needed=("prefix",))


@pytest.fixture
def assert_reads_what_it_should(request: pytest.FixtureRequest) -> Assertion:
    """Asserts that every output depends on the tokens that it should read: no token is hidden by mistake."""
    return _assertion(request, ("liveness", "reach", "layers"), needed=("liveness",))


@pytest.fixture
def assert_window_holds(request: pytest.FixtureRequest) -> Assertion:
    """Asserts that each layer reads exactly the keys in its window, and that no output depends on a token farther away than the windows of
    all layers together allow."""
    return _assertion(request, ("layers", "window", "reach"), needed=("layers", "window"))


@pytest.fixture
def assert_padding_invariant(request: pytest.FixtureRequest) -> Assertion:
    """Asserts that padding on the left or right, with any token id, changes no output of a non-padding token."""
    checks = ("padding_right", "padding_left", "redaction", "lengths")
    return _assertion(request, checks, needed=checks[:3])


@pytest.fixture
def assert_mask_is_live(request: pytest.FixtureRequest) -> Assertion:
    """Asserts that the attention mask has an effect on the outputs."""
    return _assertion(request, ("mask_liveness",))


@pytest.fixture
def assert_mask_is_strong(request: pytest.FixtureRequest) -> Assertion:
    """Asserts that masked keys stay hidden even with very large scores."""
    return _assertion(request, ("weak_fill",))


@pytest.fixture
def assert_batch_invariant(request: pytest.FixtureRequest) -> Assertion:
    """Asserts that a sequence has the same outputs alone and in a batch with other sequences."""
    return _assertion(request, ("batch",))


@pytest.fixture
def assert_documents_isolated(request: pytest.FixtureRequest) -> Assertion:
    """Asserts that documents packed into one row do not influence each other.

    If several arguments of the model can define documents, each of these arguments is tested separately.
    """
    run = _assertion(request, ("documents",))

    def assertion(model: Any, *args: Any, documents: bool | str = True, **options: Any) -> Report:
        return run(model, *args, documents=documents, **options)

    return assertion


@pytest.fixture
def assert_cache_equals_full(request: pytest.FixtureRequest) -> Assertion:
    """Asserts that decoding with a cache, token by token and in chunks, gives the same outputs as one pass without a cache."""
    return _assertion(request, ("cache", "chunks"))


@pytest.fixture
def assert_backends_agree(request: pytest.FixtureRequest) -> Assertion:
    """Asserts that all attention implementations of the model give the same outputs."""
    return _assertion(request, ("backends",))


def _assertion(request: pytest.FixtureRequest, checks: tuple[str, ...] | None, needed: tuple[str, ...] | None = None) -> Assertion:
    """Returns a function that runs `checks` and asserts that they pass.

    The test also fails if no check of `needed` [default: `checks`] applies to the model.
    """

    def assertion(model: Any, *args: Any, **options: Any) -> Report:
        __tracebackhide__ = True
        from .battery import Verdict, audit

        report = audit(model, *args, **({"checks": checks} | options))
        _keep(request, report)
        if report.failures or report.unclear:
            pytest.fail(str(report), pytrace=False)
        applied = {check.name for check in report.with_verdict(Verdict.PASS)}
        if not applied & set(needed or [check.name for check in report.checks]):
            pytest.fail(f"no check applies to this model:\n{report}", pytrace=False)
        return report

    return assertion


def _keep(request: pytest.FixtureRequest, report: Report) -> None:
    folder = request.config.getoption("--noren-reports")
    if not folder:
        return
    Path(folder).mkdir(parents=True, exist_ok=True)
    name = re.sub(r"\W+", "-", request.node.name).strip("-")
    turn = sum(1 for _ in Path(folder).glob(f"{name}-*.json")) + 1
    report.save(Path(folder) / f"{name}-{turn}.json")

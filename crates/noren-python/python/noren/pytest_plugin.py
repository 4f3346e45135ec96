"""The pytest plugin `noren_masks`: `nr.audit` as assertions. Installed with noren, it needs nothing in conftest.py.

    def test_my_model(assert_no_future_leak, assert_padding_invariant):
        model = make_model()
        assert_no_future_leak(model)
        assert_padding_invariant(model)

Each fixture is a function of the arguments of `nr.audit` and returns its report. It fails where a check fails, where it cannot
be decided, and where none of its checks applies: an assertion about nothing is no assertion. `--noren-reports=DIR` keeps every
report as a page.
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
    group.addoption("--noren-reports", metavar="DIR", help="keep the report of every audit in this folder, as a page")


@pytest.fixture
def audit_masks(request: pytest.FixtureRequest) -> Assertion:
    """The whole battery; fails where a check fails or cannot be decided."""
    return _assertion(request, None)


@pytest.fixture
def assert_no_future_leak(request: pytest.FixtureRequest) -> Assertion:
    """No output depends on a token that it may not read, through all layers and in each."""
    return _assertion(request, ("prefix", "reach", "layers"), needed=("prefix",))


@pytest.fixture
def assert_reads_what_it_should(request: pytest.FixtureRequest) -> Assertion:
    """Every output depends on the tokens that it should read: nothing is hidden by mistake."""
    return _assertion(request, ("liveness", "reach", "layers"), needed=("liveness",))


@pytest.fixture
def assert_window_holds(request: pytest.FixtureRequest) -> Assertion:
    """Each layer reads its window, no key less or more, and outputs depend on nothing beyond all windows."""
    return _assertion(request, ("layers", "window", "reach"), needed=("layers", "window"))


@pytest.fixture
def assert_padding_invariant(request: pytest.FixtureRequest) -> Assertion:
    """Padding on either side, of any id, changes no output of a real token."""
    checks = ("padding_right", "padding_left", "redaction", "lengths")
    return _assertion(request, checks, needed=checks[:3])


@pytest.fixture
def assert_mask_is_live(request: pytest.FixtureRequest) -> Assertion:
    """The attention mask has an effect."""
    return _assertion(request, ("mask_liveness",))


@pytest.fixture
def assert_mask_is_strong(request: pytest.FixtureRequest) -> Assertion:
    """Masked keys stay hidden whatever their scores are."""
    return _assertion(request, ("weak_fill",))


@pytest.fixture
def assert_batch_invariant(request: pytest.FixtureRequest) -> Assertion:
    """A sequence gives the same alone and among others."""
    return _assertion(request, ("batch",))


@pytest.fixture
def assert_documents_isolated(request: pytest.FixtureRequest) -> Assertion:
    """Documents packed into one row do not know of each other, in each way of saying them that the model takes."""
    run = _assertion(request, ("documents",))

    def assertion(model: Any, *args: Any, documents: bool | str = True, **options: Any) -> Report:
        return run(model, *args, documents=documents, **options)

    return assertion


@pytest.fixture
def assert_cache_equals_full(request: pytest.FixtureRequest) -> Assertion:
    """Token by token and in chunks through the cache, outputs are those of one pass."""
    return _assertion(request, ("cache", "chunks"))


@pytest.fixture
def assert_backends_agree(request: pytest.FixtureRequest) -> Assertion:
    """All attention implementations compute the same."""
    return _assertion(request, ("backends",))


def _assertion(request: pytest.FixtureRequest, checks: tuple[str, ...] | None, needed: tuple[str, ...] | None = None) -> Assertion:
    """A function that audits and asserts; of `needed` checks (all, unless given) at least one must apply."""

    def assertion(model: Any, *args: Any, **options: Any) -> Report:
        __tracebackhide__ = True
        from .battery import Verdict, audit

        report = audit(model, *args, **({"checks": checks} | options))
        _keep(request, report)
        if report.failures or report.unclear:
            pytest.fail(str(report), pytrace=False)
        applied = {check.name for check in report.with_verdict(Verdict.PASS)}
        if not applied & set(needed or [check.name for check in report.checks]):
            pytest.fail(f"nothing was checked:\n{report}", pytrace=False)
        return report

    return assertion


def _keep(request: pytest.FixtureRequest, report: Report) -> None:
    folder = request.config.getoption("--noren-reports")
    if not folder:
        return
    Path(folder).mkdir(parents=True, exist_ok=True)
    name = re.sub(r"\W+", "-", request.node.name).strip("-")
    turn = sum(1 for _ in Path(folder).glob(f"{name}-*.html")) + 1
    report.save(Path(folder) / f"{name}-{turn}.html")

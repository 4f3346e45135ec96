"""`nr.audit` and `nr.guard` on sixty planted faults, and on healthy models.

A part of them runs unless `NOREN_BATTERY=1` asks for all.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

import noren as nr

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

import noren.battery  # noqa: E402
from fault_book import FUNCTIONS  # noqa: E402
from fault_list import faults  # noqa: E402

ALL = os.environ.get("NOREN_BATTERY", "") not in ("", "0")
FAULTS = list(faults())
CHECKS = [name for name in nr.battery.BATTERY if name != "backends"]
"""Another backend has no planted fault and finds each by comparison, which would make the others' work invisible."""


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def test_there_are_sixty() -> None:
    assert len(FAULTS) == 60 and len({fault.id for fault in FAULTS}) == 60
    assert len({fault.where for fault in FAULTS} & set(FUNCTIONS)) >= 5
    assert len({fault.where for fault in FAULTS} - set(FUNCTIONS)) >= 5
    assert sum(fault.untested is not None for fault in FAULTS) <= 2


@pytest.mark.parametrize("fault", FAULTS if ALL else FAULTS[::4], ids=lambda fault: fault.id)
def test_planted_faults_are_found(fault) -> None:  # type: ignore[no-untyped-def]
    model, known = fault.audited()
    report = nr.audit(model, checks=CHECKS, **known)
    if fault.untested is None:
        assert report.verdict == "failed", str(report)
    else:
        assert any(fault.untested in said for said in report.not_tested), str(report)

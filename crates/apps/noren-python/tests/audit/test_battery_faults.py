"""`nr.audit` and `nr.guard` on sixty planted faults, and on models without faults."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

import noren as nr
from conftest import sampled

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

import noren.battery  # noqa: E402
from fault_book import FUNCTIONS  # noqa: E402
from fault_healthy import healthy  # noqa: E402
from fault_list import faults  # noqa: E402

FAULTS = list(faults())
HEALTHY = [(name, dtype) for name in healthy() for dtype in ("float32", "bfloat16", "float16")]
CHECKS = [name for name in nr.battery.BATTERY if name != "backends"]
"""All checks except `backends`, which would find every fault, because the other implementations have no planted fault."""


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


@pytest.mark.parametrize("fault", sampled(FAULTS, 10, 1), ids=lambda fault: fault.id)
def test_planted_faults_are_found(fault) -> None:  # type: ignore[no-untyped-def]
    model, known = fault.audited()
    report = nr.audit(model, checks=CHECKS, **known)
    if fault.untested is None:
        assert report.verdict == "failed", str(report)
    else:
        assert any(fault.untested in said for said in report.not_tested), str(report)


def test_there_are_forty_healthy_models() -> None:
    assert len(healthy()) == 40


@pytest.mark.parametrize(("name", "dtype"), sampled(HEALTHY, 34))
def test_healthy_models_pass(name: str, dtype: str) -> None:
    make, known = healthy()[name]
    report = nr.audit(make().to(getattr(torch, dtype)), **known)
    assert report.verdict == "ok", str(report)
    bound = float(re.findall(r"stays below ([0-9.e+-]+)", report.rounding)[0])
    for check in report.checks:
        for outcome in check.outcomes:
            if outcome.own is not None and outcome.double is not None and not outcome.must_move:
                assert outcome.own.difference <= bound * 1.06, f"{check.name}: {outcome.sentence}"


def batches(length: int) -> Iterator[dict[str, Any]]:
    """Runs four rows without padding, with padding on the right and with padding on the left."""
    ids = torch.randint(3, 99, (4, length), generator=torch.Generator().manual_seed(0))
    for side in ("none", "right", "left"):
        real = torch.ones_like(ids)
        for row in (1, 2, 3) if side != "none" else ():
            real[row, slice(length - min(3 * row, length - 1), None) if side == "right" else slice(min(3 * row, length - 1))] = 0
        yield {
            "input_ids": ids.masked_fill(real == 0, 0),
            "attention_mask": real,
            "position_ids": (real.cumsum(1) - 1).clamp(min=0),
        }


def guarded(model: Any, length: int) -> None:
    for batch in batches(length):
        with warnings.catch_warnings(), nr.guard(model, pad_token_id=0) as watch, torch.no_grad():
            warnings.simplefilter("error")
            model(**batch)
        assert watch.established and not watch.findings


SEEN = [fault for fault in FAULTS if fault.seen]


@pytest.mark.parametrize("fault", sampled(SEEN, 8), ids=lambda fault: fault.id)
def test_the_guard_finds_faults_as_they_pass_by(fault) -> None:  # type: ignore[no-untyped-def]
    """Tests also faults that `nr.audit` cannot find: the guard sees every head, and all lengths that occur."""
    lengths = re.search(r"(fewer than )?(\d+) tokens", fault.name)
    length = 72 if lengths is None else int(lengths[2]) - 1 if lengths[1] else int(lengths[2])
    model = fault.model()
    with pytest.raises(nr.MaskFault):
        guarded(model, length)


OTHERS = (*FUNCTIONS, "plain", "plain causal", "plain pooled", "plain in training mode", "t5", "bart", "bloom")
"""Models that are not tested here: functions without attention, and models without a configuration or with other arguments (see
test_guard.py). Bloom adds its mask to the scores in its own code."""
GUARDED = [(name, dtype) for name, dtype in HEALTHY if name not in OTHERS]


@pytest.mark.parametrize(("name", "dtype"), sampled(GUARDED, 22))
def test_the_guard_raises_no_false_alarm(name: str, dtype: str) -> None:
    make, _ = healthy()[name]
    model = make().to(getattr(torch, dtype))
    for length in (7, 20, 72):
        guarded(model, length)

"""`nr.probe` on attention implementations of transformers, with the masks that transformers makes for them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import noren as nr
from conftest import sampled
from noren.probing import Verdict

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from transformers import AttentionInterface, AttentionMaskInterface  # noqa: E402
from transformers.masking_utils import sdpa_mask  # noqa: E402

NAME = "noren_probe_test"


def custom(module: Any, query: Any, key: Any, value: Any, attention_mask: Any, scaling: float | None = None, **_: Any) -> Any:
    """A custom attention of the kind that documentation shows: it applies the mask that it gets, and no flag."""
    grouped = query.shape[1] != key.shape[1]
    out = torch.nn.functional.scaled_dot_product_attention(query, key, value, attention_mask, scale=scaling, enable_gqa=grouped)
    return out.transpose(1, 2).contiguous(), None


def whole_mask(*args: Any, **options: Any) -> Any:
    return sdpa_mask(*args, **{**options, "allow_is_causal_skip": False})


@pytest.fixture
def registered() -> Iterator[None]:
    AttentionInterface.register(NAME, custom)
    yield
    AttentionInterface._global_mapping.pop(NAME)
    AttentionMaskInterface._global_mapping.pop(NAME, None)


@pytest.mark.parametrize("name", sampled(["sdpa", "eager"], 2))
def test_implementations_of_transformers(name: str) -> None:
    report = nr.probe(name, dtypes=["float32", "bfloat16", "float16"])
    assert {entry.feature for entry in report.faults} <= {"sinks"}, str(report)
    assert report.entry("causal flag", "fewer queries than keys").detail == "aligned bottom-right"
    assert report.entry("window", "5 keys before the query, causal").detail == "both ends are included"
    for title in ("padding on the left (attention_mask)", "image span in a causal mask (mask_function)", "causal (additive)"):
        assert report.entry("mask", title).verdict is Verdict.APPLIED
    assert "transformers" in report.versions


def test_causality_is_lost_without_a_mask_function(registered: None) -> None:
    """transformers 45811: no mask function is registered, so the attention function gets no mask."""
    report = nr.probe(NAME)
    for entry in (report.entry("causal flag"), report.entry("mask", "padding on the right (attention_mask)"), report.entry("mask", "causal (mask_function)")):
        assert entry.verdict is Verdict.IGNORED and entry.fault, str(report)
    assert report.entry("attention").verdict is Verdict.APPLIED and not report.ok


def test_causality_is_also_lost_if_the_mask_function_relies_on_a_flag(registered: None) -> None:
    AttentionMaskInterface.register(NAME, sdpa_mask)
    report = nr.probe(NAME)
    assert report.entry("mask", "padding on the right (attention_mask)").verdict is Verdict.APPLIED, str(report)
    assert report.entry("causal flag").verdict is Verdict.IGNORED


def test_a_mask_function_that_makes_every_mask_keeps_causality(registered: None) -> None:
    AttentionMaskInterface.register(NAME, whole_mask)
    report = nr.probe(NAME)
    assert report.ok and report.entry("causal flag").verdict is Verdict.APPLIED, str(report)


def test_unknown_names() -> None:
    with pytest.raises(nr.Error, match="no attention implementation 'flash_attention_9'"):
        nr.probe("flash_attention_9")

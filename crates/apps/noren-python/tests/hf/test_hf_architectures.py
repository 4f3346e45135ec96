"""All text architectures of the installed transformers, each supported or refused by name. See architectures.py."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch")
transformers = pytest.importorskip("transformers", minversion="5.0")
import torch  # noqa: E402
from transformers import AutoConfig, AutoModelForCausalLM  # noqa: E402

import noren as nr  # noqa: E402
from conftest import ROOT, sampled  # noqa: E402
import noren.hf as hf  # noqa: E402

import architectures  # noqa: E402  # isort: skip

hf.register()
ALL = architectures.architectures()
PARTS = 8
PAGE = ROOT / "docs/huggingface.md"


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("part", sampled(range(PARTS), PARTS))
def test_no_architecture_is_wrong(part: int) -> None:
    results = [architectures.attempt(kind, role) for kind, role in ALL[part::PARTS]]
    wrong = [tried for tried in results if tried.verdict == "WRONG"]
    assert not wrong
    assert sum(tried.verdict == "supported" for tried in results) >= 10
    page = PAGE.read_text()
    if f"transformers {transformers.__version__}," in page:
        supported = page[page.index("**Supported") : page.index("| reason |")]
        for tried in results:
            assert (f"`{tried.kind}`" in supported) == (tried.verdict == "supported"), f"{tried}: write docs/huggingface.md again"


def test_refused_models_name_the_reason_when_they_are_made() -> None:
    config = architectures.configuration("bloom")
    assert "AttentionInterface" in str(hf.unsupported(transformers.BloomForCausalLM))
    with pytest.raises(nr.Error, match="BloomForCausalLM does not support attn_implementation=.noren.: the model's layers compute attention"):
        AutoModelForCausalLM.from_config(config, attn_implementation="noren")


def test_a_part_of_a_model_may_be_refused() -> None:
    config = architectures.configuration("got_ocr2")
    with pytest.raises(nr.Error, match='one name for each part, such as {"text_config": "noren"'):
        AutoModelForCausalLM.from_config(config, attn_implementation="noren")
    parts = {"text_config": "noren", "vision_config": "eager"}
    model = AutoModelForCausalLM.from_config(config, attn_implementation=parts)
    assert model.config.text_config._attn_implementation == "noren"


def test_tensors_that_noren_does_not_know_are_refused() -> None:
    q = torch.randn(1, 2, 3, 8)
    with pytest.raises(nr.Error, match="Linear passes to its attention sinks, indices, which noren does not know"):
        hf.attention_forward(torch.nn.Linear(1, 1), q, q, q, None, sinks=q, indices=q, cache_position=torch.arange(3), flag=True)


def test_a_registration_under_a_second_name_is_checked_too() -> None:
    hf.register("noren_again")
    config: Any = AutoConfig.for_model("mamba", hidden_size=16, num_hidden_layers=1, vocab_size=8)
    with pytest.raises(nr.Error, match='attn_implementation="noren_again"'):
        AutoModelForCausalLM.from_config(config, attn_implementation="noren_again")

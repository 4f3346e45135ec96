"""Models of transformers with `attn_implementation="noren"` under torch.compile and torch.export: no graph breaks, equal outputs."""

from __future__ import annotations

import copy
import warnings
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

import noren.hf  # noqa: E402
from planted import make  # noqa: E402

noren.hf.register()
IDS = torch.randint(3, 99, (2, 9), generator=torch.Generator().manual_seed(0))
REAL = {"left": (torch.arange(9) >= torch.tensor([0, 4])[:, None]).long(), "right": (torch.arange(9) < torch.tensor([9, 6])[:, None]).long(), "none": None}


def model_of(family: str) -> Any:
    model = make(family).eval()
    model.set_attn_implementation("noren")
    return model


@pytest.mark.parametrize("side", REAL)
@pytest.mark.parametrize("family", ["llama", "mistral", "bert", "t5"])
def test_compiled_models_have_no_graph_breaks(family: str, side: str) -> None:
    torch._dynamo.reset()
    model, real = model_of(family), REAL[side]
    given = {"input_ids": IDS} | ({} if real is None else {"attention_mask": real})
    given |= {"decoder_input_ids": IDS[:, :5]} if family == "t5" else {}
    given |= {} if family == "bert" else {"use_cache": False}
    compiled = copy.deepcopy(model)
    run = torch.compile(compiled, fullgraph=True, backend="aot_eager")
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        outs = [f(**given)[0] for f in (model, run)]
    rows = torch.ones_like(IDS[:, : outs[0].shape[1]]) if real is None or family == "t5" else real
    torch.testing.assert_close(*(out[rows.bool()] for out in outs), rtol=1e-5, atol=1e-5)
    for out, one in zip(outs, (model, compiled), strict=True):
        out[rows.bool()].square().mean().backward()
        assert any(p.grad is not None for p in one.parameters())
    for a, b in zip(model.parameters(), compiled.parameters(), strict=True):
        if a.grad is not None:
            torch.testing.assert_close(a.grad, b.grad, rtol=1e-4, atol=1e-5)


def test_packed_documents_stay_apart_under_compile() -> None:
    torch._dynamo.reset()
    model = model_of("llama")
    run = torch.compile(copy.deepcopy(model), fullgraph=True, backend="aot_eager")
    positions = torch.cat([torch.arange(4), torch.arange(5)]).expand(2, 9)
    outs = [f(input_ids=IDS, position_ids=positions, use_cache=False).logits for f in (model, run)]
    torch.testing.assert_close(*outs, rtol=1e-5, atol=1e-5)


def test_exported_models_equal_eager_ones() -> None:
    for family in ("llama", "mistral"):
        model = model_of(family)
        program = torch.export.export(model, (), {"input_ids": IDS, "attention_mask": REAL["left"], "use_cache": False})
        real = REAL["left"].bool()
        for ids in (IDS, IDS.flip(0)):
            outs = [f(input_ids=ids, attention_mask=REAL["left"], use_cache=False)[0][real] for f in (model, program.module())]
            torch.testing.assert_close(*outs, rtol=1e-5, atol=1e-5)

"""Models of transformers with `attn_implementation="noren"` under torch.compile and torch.export: no graph breaks, equal outputs."""

from __future__ import annotations

import copy
import threading
import warnings
from itertools import product
from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

import noren as nr  # noqa: E402
from conftest import sampled  # noqa: E402
import noren.hf as hf  # noqa: E402
from planted import make  # noqa: E402

hf.register()
IDS = torch.randint(3, 99, (2, 9), generator=torch.Generator().manual_seed(0))
REAL = {"left": (torch.arange(9) >= torch.tensor([0, 4])[:, None]).long(), "right": (torch.arange(9) < torch.tensor([9, 6])[:, None]).long(), "none": None}


def model_of(family: str) -> Any:
    model = make(family).eval()
    model.set_attn_implementation("noren")
    return model


@pytest.mark.parametrize(("family", "side"), sampled(product(["llama", "mistral", "bert", "t5"], REAL), 4))
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


def test_a_mask_that_is_set_later_is_used() -> None:
    torch._dynamo.reset()
    model = model_of("llama")
    run = torch.compile(copy.deepcopy(model), backend="aot_eager")
    whole = torch.compile(run._orig_mod, fullgraph=True, backend="aot_eager")
    given = {"input_ids": IDS, "attention_mask": REAL["right"], "use_cache": False}
    real = REAL["right"].bool()

    def same(f: Any, more: dict[str, Any]) -> Any:
        out = f(**given, **more).logits[real]
        torch.testing.assert_close(out, model(**given, **more).logits[real], rtol=1e-5, atol=1e-5)
        return out

    plain = same(whole, {})
    for more in ({}, {"noren_mask": "window(left=2)"}, {}, {"noren_mask": lambda call: nr.sliding(2)}, {}):
        assert torch.equal(same(run, more), plain) != bool(more)
    with hf.set_mask(model, "sliding(4)"), hf.set_mask(run._orig_mod, "sliding(4)"):
        assert not torch.equal(same(run, {}), plain)
    assert torch.equal(same(run, {}), plain) and torch.equal(same(whole, {}), plain)


def test_masks_of_another_thread_do_not_stop_the_compiler() -> None:
    """A pass with a mask runs in another thread while this thread runs compiled passes: each has its own mask."""
    torch._dynamo.reset()
    model = model_of("llama")
    run = torch.compile(copy.deepcopy(model), backend="eager")
    expected = [model(IDS, use_cache=False, **more).logits for more in ({}, {"noren_mask": "window(left=2)"})]
    wrong = []

    def masked() -> None:
        for _ in range(30):
            wrong.append(not torch.allclose(model(IDS, use_cache=False, noren_mask="window(left=2)").logits, expected[1], atol=1e-5))

    other = threading.Thread(target=masked)
    other.start()
    for _ in range(30):
        wrong.append(not torch.allclose(run(IDS, use_cache=False).logits, expected[0], atol=1e-5))
    other.join()
    assert not any(wrong)


def test_a_pass_that_did_not_end_stops_no_compiler() -> None:
    """After Ctrl-C and after an error in a pass with a mask, models are compiled and exported whole."""

    def stop(error: BaseException) -> Any:
        def mask(call: Any) -> Any:
            raise error

        return mask

    model = model_of("llama")
    expected = model(IDS, use_cache=False).logits
    for error in (KeyboardInterrupt(), ValueError("stop")):
        for other in (model, model_of("mistral")):
            torch._dynamo.reset()
            with pytest.raises(type(error)):
                other(IDS, noren_mask=stop(error))
            if other is model:
                program = torch.export.export(model, (), {"input_ids": IDS, "use_cache": False}).module()
                torch.testing.assert_close(program(input_ids=IDS, use_cache=False)[0], expected)
            else:
                run = torch.compile(copy.deepcopy(model), fullgraph=True, backend="aot_eager")
                torch.testing.assert_close(run(IDS, use_cache=False).logits, expected)


def test_contents_are_checked_in_compiled_code() -> None:
    torch._dynamo.reset()
    model = model_of("llama")
    run = torch.compile(model, fullgraph=True, backend="aot_eager")
    assert run(IDS, attention_mask=REAL["right"]).logits.shape[1] == 9
    with pytest.raises(nr.Error, match="holds 2"):
        run(IDS, attention_mask=REAL["right"] * 2)
    with pytest.raises(nr.Error, match="floats 0 and 1"):
        run(IDS, attention_mask=torch.ones(9, 9).tril()[None, None], use_cache=False)
    positions = torch.cat([torch.arange(4), torch.arange(5)]).expand(2, 9)
    for more in ({"attention_mask": torch.ones_like(IDS)}, {"use_cache": True}):
        run(IDS, position_ids=torch.arange(9).expand(2, 9), **more)
        with pytest.warns(UserWarning, match=r"begin again.*\[4, 5\]"):
            run(IDS, position_ids=positions, **more)


def test_a_mask_that_learns_gets_its_gradient() -> None:
    torch._dynamo.reset()
    model = model_of("llama")
    masks = [torch.zeros(2, 1, 9, 9).masked_fill(torch.ones(9, 9).tril() == 0, -torch.inf).requires_grad_() for _ in range(2)]
    for one, mask in zip((model, torch.compile(model, fullgraph=True, backend="aot_eager")), masks, strict=True):
        one(IDS, attention_mask=mask, use_cache=False).logits.square().mean().backward()
    assert masks[0].grad.abs().max() > 0
    torch.testing.assert_close(masks[0].grad, masks[1].grad, rtol=1e-4, atol=1e-7)


def test_packed_rows_of_recurrent_models_are_refused() -> None:
    """The compiler is left for their checks, and torch.export, which cannot leave, raises."""
    torch._dynamo.reset()
    model = transformers.AutoModelForCausalLM.from_config(
        transformers.AutoConfig.for_model(
            "qwen3_next", hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=8, vocab_size=99,
            linear_key_head_dim=8, linear_value_head_dim=8, linear_num_key_heads=2, linear_num_value_heads=4, layer_types=["linear_attention", "full_attention"],
        ), attn_implementation="noren",
    ).eval()  # fmt: skip
    run = torch.compile(model, backend="eager")
    torch.testing.assert_close(run(IDS, use_cache=False).logits, model(IDS, use_cache=False).logits, rtol=1e-4, atol=1e-5)
    positions = torch.cat([torch.arange(4), torch.arange(5)]).expand(2, 9)
    with pytest.raises(nr.Error, match="not reset between"):
        run(IDS, position_ids=positions, use_cache=False)
    with pytest.raises(nr.Error, match="torch.export cannot"):
        torch.export.export(model, (), {"input_ids": IDS, "position_ids": positions, "use_cache": False})


def test_exported_models_equal_eager_ones() -> None:
    for family in ("llama", "mistral"):
        model = model_of(family)
        program = torch.export.export(model, (), {"input_ids": IDS, "attention_mask": REAL["left"], "use_cache": False})
        real = REAL["left"].bool()
        for ids in (IDS, IDS.flip(0)):
            outs = [f(input_ids=ids, attention_mask=REAL["left"], use_cache=False)[0][real] for f in (model, program.module())]
            torch.testing.assert_close(*outs, rtol=1e-5, atol=1e-5)

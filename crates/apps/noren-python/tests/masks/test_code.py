"""`nr.code`: every snippet of every atom, preset, score modifier and of random expressions is executed in every Python target (see `EVERY`). Cells and
weights are compared with the definition. A target that refuses a mask gives its reason.

Values are the identity matrix wherever the library takes values, so that the output of attention is the weights of all cells.
"""

from __future__ import annotations

import os
import warnings
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from code_cases import RANDOM, Case, found, of_corpus, presets, random_case, scored

import noren as nr
from conftest import NIGHTLY
from noren import _noren

os.environ.setdefault("KERAS_BACKEND", "jax")
os.environ.setdefault("JAX_PLATFORMS", "cpu")

Run = Callable[[Case, str, dict[str, Any]], None]


def execute(code: str, names: dict[str, Any]) -> dict[str, Any]:
    """Runs the code with the given variables, and returns all variables."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exec(compile(code, "<snippet>", "exec"), names)  # noqa: S102
    return names


def check_weights(case: Case, output: Any) -> None:
    """Compares weights with the definition: positive exactly in the allowed cells, and equal within rounding."""
    found = np.asarray(output)
    assert found.shape == case.sizes, found.shape
    np.testing.assert_array_equal(found > 0, case.cells)
    np.testing.assert_allclose(found, case.weights(), rtol=0, atol=2e-5)


def check_cells(case: Case, cells: Any) -> None:
    np.testing.assert_array_equal(np.broadcast_to(np.asarray(cells), case.sizes), case.cells)


def four(case: Case, array: Callable[[Any], Any], names: dict[str, Any]) -> dict[str, Any]:
    """Returns the variables of targets with arrays `[batch, heads, length, head_dim]`."""
    query, key = case.given
    return names | {"query": array(query), "key": array(key), "value": array(case.identity)}


def python(case: Case, code: str, names: dict[str, Any]) -> None:
    done = execute(code, four(case, np.asarray, names))
    check_cells(case, done["bound"].dense())
    check_weights(case, done["output"])


def numpy(case: Case, code: str, names: dict[str, Any]) -> None:
    done = execute(code, four(case, np.asarray, names))
    check_cells(case, done["keep"])
    check_weights(case, done["output"])


def onnx(case: Case, code: str, names: dict[str, Any]) -> None:
    done = execute(code, four(case, np.asarray, names))
    check_weights(case, done["output"])
    runtime(case, done)


def runtime(case: Case, done: dict[str, Any]) -> None:
    """Runs the model in ONNX Runtime too, where it is installed."""
    try:
        import onnxruntime
    except ImportError:
        return
    session = onnxruntime.InferenceSession(done["model"].SerializeToString())
    check_weights(case, session.run(None, done["feeds"])[0])


def tensors(names: dict[str, Any]) -> dict[str, Any]:
    import torch

    return {name: torch.from_numpy(array) for name, array in names.items()}


def sdpa(case: Case, code: str, names: dict[str, Any]) -> None:
    import torch

    done = execute(code, four(case, torch.from_numpy, tensors(names)))
    check_cells(case, done["keep"])
    check_weights(case, done["output"])


def flex(case: Case, code: str, names: dict[str, Any]) -> None:
    import torch
    from torch.nn.attention.flex_attention import create_mask

    assert "flex_attention = torch.compile(flex_attention)" in code
    code = code.replace("torch.compile(flex_attention)", "flex_attention")  # compiling each snippet takes seconds
    done = execute(code, four(case, torch.from_numpy, tensors(names)))
    batch, heads, q_len, kv_len = case.sizes
    check_cells(case, create_mask(done["mask_mod"], batch, heads, q_len, kv_len, device="cpu"))
    blocks = done["block_mask"].to_dense().numpy() > 0
    some = case.cells[:, :, :128, :128].any((2, 3))  # all cells of a mask of up to 128 tokens are one block
    if max(q_len, kv_len) <= 128:
        np.testing.assert_array_equal(np.broadcast_to(blocks[..., 0, 0], (batch, heads)) >= some, True)
    check_weights(case, done["output"])


def embedded(case: Case) -> tuple[Any, Any]:
    """Returns queries and keys `[batch, length, heads * 4]`."""
    batch, heads, q_len, kv_len = case.sizes
    r = np.random.default_rng(7)
    return tuple(r.normal(size=(batch, n, heads * 4)).astype(np.float32) for n in (q_len, kv_len))  # type: ignore[return-value]


def dense_masks(case: Case) -> Any:
    """Returns the numbers that are added to scores, `[batch * heads, q_len, kv_len]`, by the definition."""
    import torch

    added = np.where(case.cells, case.added, -np.inf).astype(np.float32)
    return torch.from_numpy(added.reshape(-1, *case.sizes[2:]))


def dropped_cells(case: Case, attention: Any, padding: Any) -> Any:
    """Returns the cells that `attn_mask` (booleans that hide, or numbers that are added) and `key_padding_mask` leave."""
    import torch

    batch, heads, q_len, kv_len = case.sizes
    keep = torch.ones(case.sizes, dtype=torch.bool)
    if attention is not None:
        drop = attention if attention.dtype == torch.bool else attention == -torch.inf
        keep &= ~(drop if drop.ndim == 2 else drop.reshape(batch, heads, q_len, kv_len))
    if padding is not None:
        keep &= ~padding[:, None, None, :]
    return keep


def mha(case: Case, code: str, names: dict[str, Any]) -> None:
    import torch

    query, key = (torch.from_numpy(array) for array in embedded(case))
    done = execute(code, tensors(names) | {"query": query, "key": key, "value": key})
    check_cells(case, dropped_cells(case, done.get("attn_mask"), done.get("key_padding_mask")))
    wanted, _ = done["attention"](query, key, key, attn_mask=dense_masks(case), need_weights=False)
    assert torch.isfinite(done["output"]).all()
    torch.testing.assert_close(done["output"], wanted, atol=2e-5, rtol=0)


def encoder(case: Case, code: str, names: dict[str, Any]) -> None:
    import torch

    src = torch.from_numpy(embedded(case)[0])
    done = execute(code, tensors(names) | {"src": src})
    mask, padding = done.get("mask"), done.get("src_key_padding_mask")
    check_cells(case, dropped_cells(case, mask, padding))
    assert torch.isfinite(done["output"]).all()
    encoder = done["encoder"].eval()
    wanted = encoder(src, mask=dense_masks(case))
    torch.testing.assert_close(encoder(src, mask=mask, src_key_padding_mask=padding), wanted, atol=5e-5, rtol=0)


def hf(case: Case, code: str, names: dict[str, Any]) -> None:
    done = execute(code, tensors(names))
    assert done["attention_mask"].shape == (case.sizes[0], 1, *case.sizes[2:])
    check_cells(case, done["attention_mask"])


def jax(case: Case, code: str, names: dict[str, Any]) -> None:
    import jax.numpy as jnp

    turn = lambda array: jnp.asarray(array.swapaxes(1, 2))  # noqa: E731
    query, key = case.given
    arrays = {name: jnp.asarray(array) for name, array in names.items()}
    done = execute(code, arrays | {"query": turn(query), "key": turn(key), "value": turn(case.identity)})
    check_cells(case, done["keep"])
    check_weights(case, np.asarray(done["output"]).swapaxes(1, 2))


def keras(case: Case, code: str, names: dict[str, Any]) -> None:
    query, key = embedded(case)
    done = execute(code, names | {"query": query, "key": key, "value": key})
    keep = np.asarray(done["keep"])
    check_cells(case, keep[:, None] if keep.ndim == 3 else keep)
    wanted = done["attention"](query, key, key=key, attention_mask=case.cells)
    np.testing.assert_allclose(np.asarray(done["output"]), np.asarray(wanted), rtol=0, atol=2e-5)


RUNS: dict[str, Run] = {
    "python": python, "sdpa": sdpa, "mha": mha, "encoder": encoder, "flex": flex, "hf": hf, "jax": jax, "keras": keras, "numpy": numpy, "onnx": onnx,
}  # fmt: skip
NEEDS = {"sdpa": "torch", "mha": "torch", "encoder": "torch", "flex": "torch", "hf": "transformers", "jax": "jax", "keras": "keras", "onnx": "onnx"}
KINDS: dict[str, Callable[[], list[Case]]] = {
    "atoms": of_corpus,
    "presets": presets,
    "scores": scored,
    "found": found,
    "random": lambda: [random_case(number) for number in range(RANDOM)],
}


EVERY = {} if NIGHTLY else {"flex": 40, "jax": 40, "keras": 40, "onnx": 5, "numpy": 3, "sdpa": 5, "mha": 5, "encoder": 7, "hf": 5, "python": 3}
"""By default only every so-manieth mask is executed; `.ci/nightly` executes all."""


def reason(case: Case, target: str) -> str | None:
    """Returns a part of the reason for which the target cannot express the mask, or None if it can."""
    kinds = {score.kind for score in case.scores}
    can = {
        "sdpa": {"bias", "relative", "alibi"}, "mha": {"bias", "relative", "alibi"}, "encoder": {"bias", "relative", "alibi"},
        "flex": {"softcap", "bias", "relative", "alibi", "soft"}, "hf": set(), "jax": {"bias", "relative", "alibi"}, "keras": set(),
        "onnx": {"bias", "relative", "alibi", "softcap"},
    }.get(target, kinds)  # fmt: skip
    if kinds - can:
        return "the score modifier"
    if target == "encoder" and case.sizes[2] != case.sizes[3]:
        return "queries and"
    if target in ("jax", "keras") and not case.cells.any(-1).all():
        return "reads nothing"
    if target == "hf" and (case.cells != case.cells[:, :1]).any():
        return "differs between heads"
    return None


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("target", RUNS)
def test_every_snippet_has_the_cells_of_its_mask(target: str, kind: str, record_property: Callable[[str, object], None]) -> None:
    if target in NEEDS:
        pytest.importorskip(NEEDS[target])
    count = Counter[str]()
    every = EVERY.get(target, 1)
    for case in KINDS[kind]()[::every]:
        wanted = reason(case, target)
        try:
            code, inputs = _noren.code(case.bound, case.scores, target)
        except nr.ExportError as error:
            # only `hf` may also refuse `heads(...)` whose masks happen to be equal
            assert wanted and wanted in str(error) or target == "hf" and "heads(" in case.text, f"{case.text}: {error}"
            assert str(error).count(": ") >= 1, f"a reason and a fix: {error}"
            count["refused"] += 1
            continue
        assert wanted is None, f"{target} writes code for {case.text}, which it cannot express: {wanted}"
        of_scores = {name: case.arrays[known] for name in inputs for known in case.arrays if name in (known, f"array_{known}", f"{known}_2")}
        try:
            RUNS[target](case, code, of_scores)
        except Exception as error:
            raise AssertionError(f"{case.text} over {case.shape}, {case.facts}: {error}\n{code}") from error
        count["executed"] += 1
    record_property("counts", dict(count))
    print(f"{target}, {kind}: {count['executed']} executed, {count['refused']} refused")
    least = {"atoms": 60, "presets": 10, "scores": 0, "found": 1, "random": 30}[kind]
    assert count["executed"] >= least // every, count


def test_presets_at_their_own_length() -> None:
    """The mask function for FlexAttention, at 500 random cells of each preset, up to 32,768 tokens."""
    torch = pytest.importorskip("torch")
    for case in presets(most=None):
        code, _ = _noren.code(case.bound, [], "flex")
        batch, heads, q_len, kv_len = case.sizes
        done = execute(code.split("block_mask =")[0], {"query": torch.zeros(1)})
        r = np.random.default_rng(3)
        cells = [r.integers(0, n, 500) for n in (batch, heads, q_len, kv_len)]
        cells[3] = np.where(r.random(500) < 0.5, np.clip(cells[2] - r.integers(0, 200, 500), 0, kv_len - 1), cells[3])
        found = done["mask_mod"](*(torch.from_numpy(part) for part in cells)).expand(500)
        wanted = [bool(case.bound.explain(int(q), int(k), batch=int(b), head=int(h))) for b, h, q, k in zip(*cells, strict=True)]
        np.testing.assert_array_equal(found.numpy(), wanted, case.text)


def test_masks_of_every_kind_have_code() -> None:
    mask = nr.causal() & nr.documents([3, 5])
    code = nr.code(mask, "flex", 8)
    assert code == nr.code(str(mask), "flex", 8) == nr.code(mask.bind(8), "flex") == nr.code(mask.bind(8).plan(), "flex")
    assert code == nr.code(nr.causal() & nr.documents(), "flex", 8, {"documents": [3, 5]})
    assert "document_id[q_idx] == document_id[kv_idx]" in code
    assert "score_mod=score_mod" in nr.code(mask + nr.alibi(), "flex", 8)
    assert "keep = k <= q" in nr.code(nr.recognise(np.tri(5, dtype=bool), "keep"), "numpy")
    assert [name for name, _ in _noren.code_targets()] == [*["python", "rust"], *[name for name in RUNS if name != "python"]]


def test_errors_name_the_value_and_the_targets() -> None:
    for given in ("tensorflow", 3, None):
        with pytest.raises(nr.Error, match=f"{given!r}|\"{given}\"") as error:
            nr.code(nr.causal(), given, 4)  # type: ignore[arg-type]
        assert "is not a target of code: give one of python, rust, sdpa, mha, encoder, flex, hf, jax, keras, numpy, onnx" in str(error.value)
    with pytest.raises(nr.Error, match="has no sizes: give shape="):
        nr.code(nr.causal(), "flex")
    with pytest.raises(nr.Error, match="already has a shape and facts"):
        nr.code(nr.causal().bind(4), "flex", 4)
    with pytest.raises(TypeError, match="int is not a mask"):
        nr.code(3, "flex", 4)  # type: ignore[arg-type]
    with pytest.raises(nr.ExportError, match="FlexAttention's score_mod cannot express the score modifier `sinks`"):
        nr.code("causal + sinks", "flex", 4)
    with pytest.raises(nr.ExportError, match="has no readable code: it is a function of the program"):
        nr.code(nr.from_mask_mod(lambda b, h, q, k: (q * k) % 7 < 3), "flex", 4)

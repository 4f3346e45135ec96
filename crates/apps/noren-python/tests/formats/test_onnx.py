"""ONNX's own node tests for Attention."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import noren as nr

onnx = pytest.importorskip("onnx", minversion="1.23")
from onnx.backend.test.case.node import collect_testcases  # noqa: E402
from onnx.backend.test.runner import Runner  # noqa: E402

import noren.onnx as backend  # noqa: E402


def cases():  # type: ignore[no-untyped-def]
    found = [case for case in collect_testcases(None) if case.name.startswith("test_attention")]
    return [case for case in found if not case.name.endswith("_expanded")]


CASES = cases()


def test_there_are_93() -> None:
    assert len(CASES) == 93


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_node(case) -> None:  # type: ignore[no-untyped-def]
    assert backend.is_compatible(case.model)
    prepared = backend.prepare(case.model)
    for inputs, outputs in case.data_sets:
        found = prepared.run(inputs)
        assert len(found) == len(outputs)
        assert [array.dtype for array in found] == [array.dtype for array in outputs]
        Runner.assert_similar_outputs(outputs, found, case.rtol, case.atol)


def test_other_operators_are_refused_by_name() -> None:
    node = onnx.helper.make_node("Relu", ["x"], ["y"])
    value = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [2]) for name in "xy"]
    model = onnx.helper.make_model(
        onnx.helper.make_graph([node], "g", value[:1], value[1:]), opset_imports=[onnx.helper.make_opsetid("", 24)]
    )
    assert not backend.is_compatible(model)
    with pytest.raises(nr.Error, match="operator Relu"):
        backend.prepare(model)
    with pytest.raises(nr.Error, match="CUDA"):
        backend.prepare(model, "CUDA:0")


def run(given: dict[str, Any], inputs: tuple[str, ...] = ("Q", "K", "V"), outputs: int = 1, **attributes: Any) -> Any:
    node = onnx.helper.make_node("Attention", list(inputs), ["Y", "pk", "pv", "qk"][:outputs], **attributes)
    return backend.run_node(node, [given.get(name) for name in inputs])


def arrays(**changed: Any) -> dict[str, Any]:
    x = np.ones((2, 4, 3, 8), np.float32)
    return {"Q": x, "K": x, "V": x} | changed


@pytest.mark.parametrize(
    ("attributes", "said"),
    [
        ({"qk_matmul_output_mode": 9}, "qk_matmul_output_mode=9: give 0 .scores."),
        ({"qk_matmul_output_mode": -1}, "qk_matmul_output_mode=-1"),
        ({"is_causal": 2}, "is_causal=2: give 0 .no. or 1"),
        ({"softmax_precision": 7}, "softmax_precision=7: give 1 .float32."),
        ({"left_window_size": -2}, "left_window_size=-2: give -1 or more"),
        ({"right_window_size": -5}, "right_window_size=-5"),
        ({"q_num_heads": 0}, "q_num_heads=0: give 1 or more"),
        ({"kv_num_heads": -3}, "kv_num_heads=-3"),
        ({"softcap": -1.0}, "softcap=-1.0: give 0 .none. or more"),
        ({"softcap": float("nan")}, "softcap=nan: give a finite number"),
        ({"scale": float("inf")}, "scale=inf: give a finite number"),
        ({"is_causal": 0.5}, "is_causal=0.5: give an integer"),
        ({"windows": 3}, "unknown attribute 'windows'"),
    ],
)
def test_attributes_out_of_range_are_refused(attributes: dict[str, Any], said: str) -> None:
    with pytest.raises(nr.Error, match=said):
        run(arrays(), outputs=4, **attributes)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"K": None}, "the input K is missing"),
        ({"Q": None, "V": None}, "the inputs Q, V is missing"),
        ({"Q": np.float32(1)}, r"Q has shape \(\): give 3 or 4 dimensions"),
        ({"V": np.zeros(())}, r"V has shape \(\)"),
        ({"Q": np.ones((2, 3, 32), np.float32)}, "give all three inputs with 3 dimensions, or all three inputs with 4 dimensions"),
        ({"Q": np.ones((2, 4, 3, 8), np.int64)}, "Q has dtype int64: give floats"),
        ({"K": np.ones((1, 4, 3, 8), np.float32)}, "the batch is 2 in Q, 1 in K"),
        ({"K": np.ones((2, 3, 3, 8), np.float32)}, "Q has 4 heads, K has 3"),
        ({"K": np.ones((2, 4, 3, 6), np.float32)}, "8 numbers, but a head of K has 6"),
        ({"V": np.ones((2, 4, 5, 8), np.float32)}, "K has 3 keys, but V has 5 values"),
        ({"attn_mask": np.ones((2, 3), np.int64)}, "attn_mask has dtype int64"),
        ({"attn_mask": np.bool_(True)}, r"attn_mask has shape \(\)"),
        ({"attn_mask": np.ones((3, 9), bool)}, r"attn_mask has shape \(3, 9\): give a shape that broadcasts"),
        ({"attn_mask": np.ones((5, 3), bool)}, r"attn_mask has shape \(5, 3\)"),
        ({"past_key": np.ones((2, 4, 2, 8), np.float32)}, "past_key is given and past_value is not"),
        ({"past_key": np.ones((2, 4, 2, 8), np.float32), "past_value": np.ones((2, 4, 3, 8), np.float32)}, "past_value has shape"),
        ({"past_key": np.float32(0), "past_value": np.float32(0)}, r"past_key has shape \(\): give 4"),
        ({"nonpad_kv_seqlen": np.array([1])}, "give 2 integers, one for each batch row"),
        ({"nonpad_kv_seqlen": np.int64(3)}, r"int64 and has shape \(\)"),
        ({"nonpad_kv_seqlen": np.array([1, 4])}, "holds 4: give lengths from 0 to 3"),
        ({"nonpad_kv_seqlen": np.array([-1, 2])}, "holds -1"),
    ],
)
def test_inputs_that_do_not_fit_are_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(nr.Error, match=said):
        run(arrays(**given), backend.INPUTS)


def test_graphs_without_their_inputs_are_refused() -> None:
    values = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [2, 4, 3, 8]) for name in ("q", "k", "v", "y")]
    node = onnx.helper.make_node("Attention", ["q", "k", "v"], ["y"])
    graph = onnx.helper.make_graph([node], "g", values[:3], values[3:])
    prepared = backend.prepare(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 24)], ir_version=10))
    x = np.ones((2, 4, 3, 8), np.float32)
    assert prepared.run({"q": x, "k": x, "v": x})[0].shape == x.shape
    with pytest.raises(nr.Error, match="inputs k, v were not given: the inputs of the graph are q, k, v"):
        prepared.run({"q": x})
    with pytest.raises(nr.Error, match="2 inputs were given, but the graph has 3"):
        prepared.run([x, x])
    with pytest.raises(nr.Error, match="3 dimensions and .*heads|with q_num_heads"):
        run(arrays(**dict.fromkeys(("Q", "K", "V"), np.ones((2, 3, 32), np.float32))))
    with pytest.raises(nr.Error, match="must be a multiple of the number of heads"):
        run(arrays(**dict.fromkeys(("Q", "K", "V"), np.ones((2, 3, 32), np.float32))), q_num_heads=5, kv_num_heads=5)

"""ONNX's own node tests for Attention."""

from __future__ import annotations

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

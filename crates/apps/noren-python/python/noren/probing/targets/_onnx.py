"""Runs ONNX's operator Attention in the reference evaluator of ONNX or in ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._call import Adapter, Answer, Call, Unprepared
from .._reference import Floats
from ._libraries import checked
from ._packages import versions
from ._signature import shaped

OPSET = 24
_TYPES = {"float32": ("FLOAT", np.float32), "float16": ("FLOAT16", np.float16), "float64": ("DOUBLE", np.float64)}


class OnnxAdapter(Adapter):
    """An adapter for the operator Attention of ONNX. For each call, it makes and runs an ONNX model with one Attention node."""

    def __init__(self, name: str, runtime: bool) -> None:
        self.name = name
        self.runtime = runtime
        self.takes = frozenset({"keep", "additive", "bias", "causal", "scale", "softcap", "gqa", "head_masks"})
        self.alignment = "top-left"
        self.versions = versions("onnx", "onnxruntime") if runtime else versions("onnx")

    def run(self, call: Call, cotangent: Floats | None) -> Answer:
        if call.dtype not in _TYPES:
            raise Unprepared(f"ONNX's evaluator does not accept NumPy arrays of {call.dtype}")
        number = _TYPES[call.dtype][1]
        inputs: dict[str, Any] = {name: x.astype(number) for name, x in (("Q", call.q), ("K", call.k), ("V", call.v))}
        if call.cells is not None:
            cells = np.broadcast_to(call.cells, (*call.cells.shape[:2], *call.shape[2:]))
            inputs["attn_mask"] = np.ascontiguousarray(cells if call.route == "keep" else np.where(cells, 0.0, -np.inf).astype(number))
        elif call.bias is not None:
            inputs["attn_mask"] = call.bias.astype(number)
        out = self._evaluate(_model(call, inputs), inputs)
        return Answer(shaped(checked(out), call.q.shape, "output"))

    def _evaluate(self, model: Any, inputs: dict[str, Any]) -> Any:
        if self.runtime:
            import onnxruntime

            return onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, inputs)[0]
        from onnx.reference import ReferenceEvaluator

        return ReferenceEvaluator(model).run(None, inputs)[0]  # type: ignore[index]


def _model(call: Call, inputs: dict[str, Any]) -> Any:
    """Returns an ONNX model with one Attention node, whose attributes are those of the call."""
    from onnx import TensorProto, helper

    kind = getattr(TensorProto, _TYPES[call.dtype][0])
    attributes: dict[str, Any] = {}
    if call.causal:
        attributes["is_causal"] = 1
    if call.scale is not None:
        attributes["scale"] = call.scale
    if call.softcap is not None:
        attributes["softcap"] = call.softcap
    node = helper.make_node("Attention", list(inputs), ["Y"], **attributes)
    given = [helper.make_tensor_value_info(n, TensorProto.BOOL if x.dtype == bool else kind, list(x.shape)) for n, x in inputs.items()]
    graph = helper.make_graph([node], "attention", given, [helper.make_tensor_value_info("Y", kind, list(call.q.shape))])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=10)

"""Writes `model.onnx`, the model of the test `operator.rs`: `python model.py`, with the packages `numpy` and `onnx`.

`x`, `[batch, len, 16]`, is projected to 4 heads of queries and 2 heads of keys and values, with 4 entries each. The output `noren` is
the result of `noren.Attention`. The output `decomposed` is the result of ONNX's own operators for the additive mask `hidden`,
`[1, 4, len, len]`.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

MASK = "causal & (window(left=4) | stride(3) | keys(0..2)) | heads(2..: prefix(6))"
HEADS, KV_HEADS, HEAD_DIM = 4, 2, 4
WIDTH = HEADS * HEAD_DIM

rng = np.random.default_rng(0)
constants = {
    "heads_of_keys": np.arange(HEADS) // (HEADS // KV_HEADS),
    "scale": np.array(HEAD_DIM**-0.5, np.float32),
}
nodes = []
for name, heads in (("q", HEADS), ("k", KV_HEADS), ("v", KV_HEADS)):
    constants[f"{name}_weight"] = rng.normal(size=(WIDTH, heads * HEAD_DIM)).astype(np.float32) / 2
    constants[f"{name}_shape"] = np.array([0, 0, heads, HEAD_DIM])
    nodes += [
        helper.make_node("MatMul", ["x", f"{name}_weight"], [f"{name}_packed"]),
        helper.make_node("Reshape", [f"{name}_packed", f"{name}_shape"], [f"{name}_split"]),
        helper.make_node("Transpose", [f"{name}_split"], [name], perm=[0, 2, 1, 3]),
    ]
nodes += [
    helper.make_node("Attention", ["q", "k", "v"], ["noren"], domain="noren", mask=MASK),
    helper.make_node("Gather", ["k", "heads_of_keys"], ["keys"], axis=1),
    helper.make_node("Gather", ["v", "heads_of_keys"], ["values"], axis=1),
    helper.make_node("Transpose", ["keys"], ["columns"], perm=[0, 1, 3, 2]),
    helper.make_node("MatMul", ["q", "columns"], ["products"]),
    helper.make_node("Mul", ["products", "scale"], ["scaled"]),
    helper.make_node("Add", ["scaled", "hidden"], ["scores"]),
    helper.make_node("Softmax", ["scores"], ["weights"], axis=-1),
    helper.make_node("MatMul", ["weights", "values"], ["decomposed"]),
]


def value(name: str, *shape: int | str) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


graph = helper.make_graph(
    nodes,
    "attention",
    [value("x", "batch", "len", WIDTH), value("hidden", 1, HEADS, "len", "len")],
    [value(name, "batch", heads, "len", HEAD_DIM) for name, heads in
     (("q", HEADS), ("k", KV_HEADS), ("v", KV_HEADS), ("noren", HEADS), ("decomposed", HEADS))],
    [numpy_helper.from_array(array, name) for name, array in constants.items()],
)
opsets = [helper.make_opsetid("", 17), helper.make_opsetid("noren", 1)]
model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
Path(__file__).with_suffix(".onnx").write_bytes(model.SerializeToString())

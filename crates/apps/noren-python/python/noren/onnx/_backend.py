"""The operator Attention of ONNX, and the graph of a model that consists of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper
from onnx.backend.base import Backend, BackendRep

from .._noren import Array, Error, Facts, Mask, Shape, causal, dense, full, padding, window
from ..cpu._attention import attention
from ._checks import INPUTS, attributes, inputs_of, shapes

OPSETS = (23, 24, 25)
OUTPUTS = ("Y", "present_key", "present_value", "qk_matmul_output")


@dataclass
class Attention:
    """The operator Attention: its fields are the attributes of the node, with their names in the ONNX standard."""

    is_causal: int = 0
    scale: float | None = None
    softcap: float = 0.0
    q_num_heads: int | None = None
    kv_num_heads: int | None = None
    qk_matmul_output_mode: int = 0
    softmax_precision: int | None = None
    """This attribute is checked, but has no effect: sums are always computed in float32 or wider."""
    left_window_size: int = -1
    right_window_size: int = -1

    def __post_init__(self) -> None:
        attributes(self.__dict__)

    def __call__(self, inputs: Mapping[str, NDArray[Any]], outputs: int = 4) -> list[NDArray[Any]]:
        """Returns the first `outputs` of the four outputs Y, present_key, present_value and qk_matmul_output.

        `inputs` are NumPy arrays by name. Raises `noren.Error` for missing inputs, and for shapes and values that the standard
        does not allow.
        """
        inputs = inputs_of(inputs)
        q, k, v = (self._four(inputs[name], heads) for name, heads in zip("QKV", (self.q_num_heads, self.kv_num_heads, self.kv_num_heads), strict=True))
        present_k, present_v = k, v
        shapes(q, k, v, inputs)
        past = 0
        if "past_key" in inputs:
            past = inputs["past_key"].shape[2]
            present_k = np.concatenate((inputs["past_key"], k), axis=2)
            present_v = np.concatenate((inputs["past_value"], v), axis=2)
        q_len, kv_len = q.shape[2], present_k.shape[2]
        nonpad = inputs.get("nonpad_kv_seqlen")
        mask, bias, facts = self._mask(inputs.get("attn_mask"), nonpad, (q_len, kv_len))
        offset = past if nonpad is None else [int(n) - q_len for n in nonpad.reshape(-1)]
        probabilities = outputs > 3 and self.qk_matmul_output_mode == 3
        # The standard allows negative offsets: queries before the first key.
        shape = Shape(q_len, kv_len, query_offset=offset, batch=q.shape[0], heads=q.shape[1])
        result = attention(
            q, present_k, present_v, mask.bind(shape, facts), bias=bias, scale=self.scale,
            softcap=self.softcap or None, return_weights=probabilities,
        )  # fmt: skip
        y = result[0] if probabilities else result
        if inputs["Q"].ndim == 3:
            y = y.transpose(0, 2, 1, 3).reshape(y.shape[0], q_len, -1)
        found = [y, present_k, present_v]
        if probabilities:
            found.append(result[1].astype(q.dtype))
        elif outputs > 3:
            keep = None
            if self.qk_matmul_output_mode == 2:
                keep = mask.dense(shape, facts)
            found.append(self._scores(q, present_k, bias, keep).astype(q.dtype))
        return found[:outputs]

    def _four(self, x: NDArray[Any], heads: int | None) -> NDArray[Any]:
        """Returns an input with four dimensions, `[batch, heads, length, width]`; the last dimension of an input with 3
        dimensions is split into `heads` heads."""
        if x.ndim == 4:
            return x
        if x.ndim != 3 or not heads:
            raise Error(f"Attention: an input has shape {x.shape}: give 4 dimensions, or 3 with q_num_heads and kv_num_heads")
        if x.shape[2] % heads:
            raise Error(f"Attention: an input has shape {x.shape} and {heads} heads: the last dimension must be a multiple of the number of heads")
        return x.reshape(*x.shape[:2], heads, -1).transpose(0, 2, 1, 3)

    def _mask(
        self, given: NDArray[Any] | None, nonpad: NDArray[Any] | None, sizes: tuple[int, int]
    ) -> tuple[Mask, NDArray[Any] | None, Facts]:
        """Returns (mask, bias or None, facts). The facts are the data that the mask needs: lengths and mask arrays. `given` is
        the input `attn_mask`, `nonpad` the number of keys of each batch row that are not padding, and `sizes` is (q_len,
        kv_len)."""
        mask, facts, bias = full(), {}, None
        if self.is_causal:
            mask = mask & causal()
        if max(self.left_window_size, self.right_window_size) >= 0:
            left, right = (None if size < 0 else size for size in (self.left_window_size, self.right_window_size))
            mask = mask & window(left, right)
        if nonpad is not None:
            mask = mask & padding()
            facts["lengths"] = np.maximum(nonpad.reshape(-1), 0)
        if given is not None:
            keep = given if given.dtype == np.bool_ else ~np.isneginf(given.astype(np.float32))
            if given.dtype != np.bool_:
                bias = _padded(np.where(keep, given.astype(np.float32), 0), sizes[1], 0)
            four = _padded(keep, sizes[1], False)
            four = four.reshape((1,) * (4 - four.ndim) + four.shape)
            four = np.broadcast_to(four, (*four.shape[:2], *sizes))
            mask = mask & dense("attn_mask")
            facts["arrays"] = {"attn_mask": Array.keep(np.ascontiguousarray(four))}
        return mask, bias, Facts(**facts)

    def _scores(
        self, q: NDArray[Any], k: NDArray[Any], bias: NDArray[Any] | None, keep: NDArray[np.bool_] | None
    ) -> NDArray[Any]:
        """Returns the scores `[batch, heads, q_len, kv_len]` that `qk_matmul_output_mode` selects."""
        k = np.repeat(k, q.shape[1] // k.shape[1], axis=1).astype(np.float32)
        scores = q.astype(np.float32) @ k.swapaxes(-1, -2) * (q.shape[-1] ** -0.5 if self.scale is None else self.scale)
        if self.softcap and self.qk_matmul_output_mode > 0:
            scores = np.tanh(scores / self.softcap) * self.softcap
        if keep is not None:
            scores = np.where(keep, scores + (0 if bias is None else bias), -np.inf)
        found: NDArray[Any] = scores
        return found


def _padded(mask: NDArray[Any], kv_len: int, value: Any) -> NDArray[Any]:
    """Returns a mask array whose last axis is extended to `kv_len` keys by entries `value`. An axis of length 1, which
    broadcasts, is not changed."""
    missing = kv_len - mask.shape[-1]
    if missing <= 0 or mask.shape[-1] == 1:
        return mask
    return np.pad(mask, [(0, 0)] * (mask.ndim - 1) + [(0, missing)], constant_values=value)


class Prepared(BackendRep):  # type: ignore[misc]
    """A model that is ready to run; made by `prepare`."""

    def __init__(self, model: onnx.ModelProto) -> None:
        opset = next((entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")), 0)
        if opset not in OPSETS:
            raise Error(f"the model has opset {opset}, but noren runs Attention of opsets {OPSETS}")
        self._graph = model.graph
        self._constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
        for node in model.graph.node:
            _node(node)

    def run(self, inputs: Any, **_: Any) -> tuple[Any, ...]:
        """Returns the outputs of the graph. Inputs are NumPy arrays, in a sequence or by name.

        Raises `noren.Error` for missing inputs and for operators other than Attention.
        """
        values = dict(self._constants)
        names = [entry.name for entry in self._graph.input if entry.name not in self._constants]
        if isinstance(inputs, Mapping):
            missing = [name for name in names if inputs.get(name) is None]
            if missing:
                raise Error(f"the graph's inputs {', '.join(missing)} were not given: the inputs of the graph are {', '.join(names)}")
            values.update(inputs)
        else:
            given = [inputs] if isinstance(inputs, np.ndarray) else list(inputs)
            if len(given) != len(names):
                raise Error(f"{len(given)} inputs were given, but the graph has {len(names)} inputs: {', '.join(names)}")
            values.update(zip(names, given, strict=True))
        for node in self._graph.node:
            operator = _node(node)
            unknown = [name for name in node.input if name and name not in values]
            if unknown:
                raise Error(f"a node reads {', '.join(unknown)}, which is neither an input of the graph nor an output of an earlier node")
            named = {role: values[name] for role, name in zip(INPUTS, node.input, strict=False) if name}
            found = operator(named, len(node.output))
            values.update((name, value) for name, value in zip(node.output, found, strict=True) if name)
        unmade = [entry.name for entry in self._graph.output if entry.name not in values]
        if unmade:
            raise Error(f"the graph's outputs {', '.join(unmade)} are not computed by any node")
        return tuple(values[entry.name] for entry in self._graph.output)


def _node(node: onnx.NodeProto) -> Attention:
    """Returns the operator Attention of a node of the graph. Raises `Error` for other operators."""
    if node.op_type != "Attention" or node.domain not in ("", "ai.onnx"):
        raise Error(f"the graph has the operator {node.op_type}, but this backend runs only Attention")
    if len(node.input) > len(INPUTS) or len(node.output) > len(OUTPUTS):
        raise Error(
            f"the node has {len(node.input)} inputs and {len(node.output)} outputs, but the operator Attention has at most {len(INPUTS)} "
            f"inputs and {len(OUTPUTS)} outputs: remove the others"
        )
    return Attention(**attributes({attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}))


class NorenBackend(Backend):  # type: ignore[misc]
    """Runs models of ONNX through the interface `onnx.backend.base.Backend`."""

    @classmethod
    def is_compatible(cls, model: onnx.ModelProto, device: str = "CPU", **_: Any) -> bool:
        return cls.supports_device(device) and all(node.op_type == "Attention" for node in model.graph.node)

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **_: Any) -> Prepared:
        if not cls.supports_device(device):
            raise Error(f"the device {device} is not supported: noren's ONNX backend computes on the CPU")
        onnx.checker.check_model(model)
        return Prepared(model)

    @classmethod
    def run_node(cls, node: onnx.NodeProto, inputs: Sequence[Any], *_: Any, **__: Any) -> tuple[Any, ...]:
        if len(inputs) > len(INPUTS):
            raise Error(f"Attention: {len(inputs)} inputs were given, but the operator takes at most {len(INPUTS)} inputs: {', '.join(INPUTS)}")
        named = {role: value for role, value in zip(INPUTS, inputs, strict=False) if value is not None}
        return tuple(_node(node)(named, len(node.output)))

    @classmethod
    def supports_device(cls, device: str) -> bool:
        return device.split(":")[0] == "CPU"


is_compatible = NorenBackend.is_compatible
prepare = NorenBackend.prepare
run_model = NorenBackend.run_model
run_node = NorenBackend.run_node
supports_device = NorenBackend.supports_device

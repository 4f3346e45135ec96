"""An ONNX backend (`onnx.backend.base`) for the operator Attention of opsets 23, 24 and 25.

>>> import noren.onnx
>>> outputs = noren.onnx.prepare(model).run([q, k, v])  # doctest: +SKIP
"""

from ._backend import (
    Attention as Attention,
    NorenBackend as NorenBackend,
    Prepared as Prepared,
    is_compatible as is_compatible,
    prepare as prepare,
    run_model as run_model,
    run_node as run_node,
    supports_device as supports_device,
)
from ._checks import INPUTS as INPUTS

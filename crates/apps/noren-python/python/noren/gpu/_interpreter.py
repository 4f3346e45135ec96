"""A correction of Triton's interpreter, which runs kernels on CPUs, for tensors in bf16."""

from __future__ import annotations

from typing import Any

import numpy as np
import triton.language as tl
from triton.runtime import interpreter


def widen_bf16() -> None:
    """Makes Triton's interpreter convert the bf16 operands of a matrix product to a wider type; otherwise the interpreter
    multiplies the bits of these operands as integers (triton issue 11584).
    """
    builder = interpreter.InterpreterBuilder
    create_dot = builder.create_dot
    if getattr(create_dot, "widens_bf16", False):
        return

    def wide(x: Any) -> Any:
        if x.dtype.scalar != tl.bfloat16:
            return x
        values = interpreter._convert_float(x.data, tl.bfloat16, tl.float32, None).view(np.float32)
        return interpreter.TensorHandle(values, tl.float32)

    def widened(self: Any, a: Any, b: Any, *rest: Any) -> Any:
        return create_dot(self, wide(a), wide(b), *rest)

    widened.widens_bf16 = True  # type: ignore[attr-defined]
    builder.create_dot = widened

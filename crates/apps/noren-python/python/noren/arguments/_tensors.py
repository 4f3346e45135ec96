"""Checks tensors that are arguments of a call. The error messages name the argument and the fix."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch._guards import detect_fake_mode
from torch.utils.dlpack import to_dlpack  # type: ignore[attr-defined]

from .._noren import Error
from ._given import number, refuse_kind

FLOATS = (torch.float32, torch.bfloat16, torch.float16, torch.float64)


DEVICES = ("cpu", "cuda")
"""The device types on which noren computes. PyTorch also calls ROCm devices `cuda`."""


def check_strided(name: str, x: Any) -> None:
    """Raises an error unless `x` is a dense tensor, on any device. `name` is the name of the argument in the message."""
    if not isinstance(x, Tensor):
        raise TypeError(f"{name} is a {type(x).__name__}: give a tensor")
    if x.is_nested:
        raise Error(f"{name} is a nested tensor: give {name}.to_padded_tensor(0.0), and give the lengths as a mask")
    if x.layout is not torch.strided:
        raise Error(f"{name} is sparse ({x.layout}): give {name}.to_dense()")


def check_dense(name: str, x: Any) -> None:
    """Raises an error unless `x` is a dense tensor on a device that noren supports."""
    check_strided(name, x)
    if x.device.type not in DEVICES:
        raise Error(f"{name} is on {x.device}: noren computes on CPUs and CUDA devices, so move the tensor to one of these (.cpu()) or call PyTorch's own function")


def check_floats(name: str, x: Tensor) -> None:
    """Raises an error unless `x` is a dense tensor of float32, bfloat16, float16 or float64. `name` is the name of the argument
    in the message."""
    check_dense(name, x)
    if x.dtype not in FLOATS:
        raise TypeError(f"{name} holds {x.dtype}: noren computes float32, bfloat16, float16 and float64, so convert the tensor first")


def check_added(name: str, x: Tensor) -> None:
    """Raises an error unless `x` is a dense tensor of floats, as arrays of score modifiers must be. `name` is the name of the
    argument in the message."""
    check_dense(name, x)
    if not x.is_floating_point():
        refuse_kind(name, str(x.dtype), f"{name}.float()")


def check_mask(name: str, x: Any, meaning: str, query: torch.dtype, beside: Any = None) -> None:
    """Raises an error unless the mask tensor `x` is boolean, or has a float type that PyTorch can add to scores of type
    `query`.

    `meaning` is the meaning of true in the mask; the error message contains it. `beside` is the other mask of the same call, or
    None. If there are two masks, PyTorch adds them before it adds their sum to the scores, so the type of the sum is checked.
    """
    check_dense(name, x)
    if x.dtype == torch.bool:
        return
    if not x.is_floating_point():
        short = name.partition(" ")[0]
        raise TypeError(
            f"{name} holds {x.dtype}: give booleans ({meaning}), or floats that are added to the scores (0 and -inf). Where 1 has "
            f"the meaning of true, give {short}.bool(); where 1 has the opposite meaning, give {short} == 0"
        )
    kind = x.dtype
    if isinstance(beside, Tensor):
        kind = torch.promote_types(kind, beside.dtype if beside.is_floating_point() else query)
    if kind not in (torch.float32, query):
        raise RuntimeError(f"{name} holds {x.dtype}, but the query holds {query}: give booleans ({meaning}) or {query}")


def check_dropout(name: str, p: float) -> float:
    """Returns `p`, the probability of dropout. Raises an error unless it is at least 0 and less than 1."""
    given = number(name, p)
    if given is None:
        raise TypeError(f"{name} is None: give a probability from 0.0 to less than 1.0")
    p = given
    if not 0.0 <= p < 1.0:  # false for NaN too
        raise Error(f"{name} is {p}: give a probability from 0.0 to less than 1.0")
    return p


def compiling() -> bool:
    """Returns true if torch.compile or torch.export traces the calling thread. `torch.compiler.is_compiling` is also true while another
    thread compiles."""
    return torch.compiler.is_dynamo_compiling() or (torch.compiler.is_compiling() and detect_fake_mode() is not None)


def check_eager(x: Tensor) -> None:
    """Raises an error inside of `torch.jit.trace`, which does not see what noren computes, and for tensors of `vmap` and other
    transforms of torch.func, which have no memory."""
    if torch._C._get_tracing_state() is not None:
        raise Error("noren was called inside of torch.jit.trace or torch.onnx.export(dynamo=False), which would record an uninitialised tensor: use torch.export.export or torch.compile")
    if torch._C._functorch.is_functorch_wrapped_tensor(x):
        raise Error("noren was called inside of vmap, grad or another transform of torch.func: call it outside with a batch dimension, and use torch.autograd.grad for gradients")


def lend(x: Tensor) -> Any:
    """Returns the tensor in a form that exports DLPack. A tensor with PyTorch's negative bit is copied first, because DLPack
    has no such bit."""
    check_eager(x)
    x = x.detach()
    return to_dlpack(x.resolve_neg() if x.is_neg() else x)

"""Checks of the tensors that pooling and loss functions receive, on any device."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .._noren import Error
from ..arguments._tensors import FLOATS, check_strided, compiling


def check_values(name: str, x: Any) -> None:
    """Raises an error unless `x` is a dense tensor of float64, float32, bfloat16 or float16. `name` is the name of the argument
    in the message."""
    check_data(name, x)
    if x.dtype not in FLOATS:
        raise TypeError(f"{name} holds {x.dtype}: give float32, float64, bfloat16 or float16")


def as_flags(name: str, mask: Tensor, meaning: str) -> Tensor:
    """Converts a tensor of booleans, or of zeros and ones, to booleans. `name` and `meaning` are the name of the argument and the meaning
    of 1 in error messages.

    Integers are checked to be 0 or 1; for a tensor on a GPU, this check waits for the GPU. Booleans need no check.
    """
    check_data(name, mask)
    if mask.dtype == torch.bool:
        return mask
    if mask.is_floating_point() or mask.is_complex():
        raise TypeError(f"{name} holds {mask.dtype}: give booleans, or 1 ({meaning}) and 0 as integers")
    if not compiling():
        whole = mask.long()  # PyTorch has few operations for unsigned integers
        wrong = whole[(whole != 0) & (whole != 1)]
        if wrong.numel():
            raise Error(f"{name} holds {wrong[0].item()}: give booleans, or 1 ({meaning}) and 0")
    return mask.bool()


def check_data(name: str, x: Any) -> None:
    """Raises an error unless `x` is a dense tensor with data. A tensor on the device `meta` has a shape but no data."""
    check_strided(name, x)
    if x.device.type == "meta" and not compiling():
        raise Error(f"{name} is on the device meta, which holds no numbers: give a tensor on another device")

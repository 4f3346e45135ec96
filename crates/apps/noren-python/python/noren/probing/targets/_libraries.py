"""Conversion of arrays and computation of gradients in NumPy, PyTorch and JAX."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from .._call import Unprepared, Unusable
from .._reference import Floats


def checked(x: Any) -> Floats:
    """Converts `x` to a NumPy array of float64. Raises `Unusable` if `x` does not hold real floating-point numbers."""
    try:
        array = np.asarray(x)
        if array.dtype == object:
            raise Unusable(f"the function under test returned {type(x).__name__}, not an array of floating-point numbers")
        if array.dtype.kind in "USMmVcbiu" and array.dtype.name != "bfloat16":
            raise Unusable(f"the function under test returned an array of {array.dtype}, not of floating-point numbers")
        return array.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise Unusable(f"the function under test returned {type(x).__name__}, not an array of floating-point numbers") from error


class Library:
    """The operations that the probe needs from an array library: conversion of arrays and computation of gradients. This class is
    for arrays of NumPy, without gradients."""

    name = "numpy"

    def __init__(self, device: str = "cpu") -> None:
        self.device = device

    def floats(self, x: Floats, dtype: str) -> Any:
        """Converts `x` to an array of this library with numbers of the type `dtype`."""
        if dtype == "bfloat16":
            try:
                import ml_dtypes
            except ImportError as error:
                raise Unprepared("NumPy has no bfloat16 without the package ml_dtypes: install ml_dtypes, or leave out bfloat16") from error
            return x.astype(ml_dtypes.bfloat16)
        return x.astype(dtype)

    def plain(self, x: Any) -> Any:
        """Converts a NumPy array of booleans or integers to an array of this library."""
        return np.ascontiguousarray(x)

    def numpy(self, x: Any) -> Floats:
        """Converts an array of this library to a NumPy array of float64. Raises `Unusable` if `x` is not an array of
        numbers."""
        return checked(x)

    def run(
        self, function: Callable[..., Any], pick: Callable[[Any], tuple[Any, Any]], arrays: tuple[Any, Any, Any], cotangent: Any | None
    ) -> tuple[Any, Any, tuple[Any, ...]]:
        """Calls `function` and returns (output, log-sum-exp or None, gradients of `arrays`). The gradients are empty if
        `cotangent` is None."""
        return (*pick(function(*arrays)), ())


@contextmanager
def _compiled_always() -> Iterator[None]:
    """Returns a context in which PyTorch compiles a function again for each new shape and mask.

    Without this context, PyTorch runs a function uncompiled after a limited number of compilations, so the probe would test
    another implementation.
    """
    config = getattr(sys.modules.get("torch._dynamo"), "config", None)
    names = [name for name in ("recompile_limit", "accumulated_recompile_limit") if hasattr(config, name)]
    if config is None:
        yield
        return
    with config.patch(dict.fromkeys(names, 1 << 16)):
        yield


class TorchLibrary(Library):
    """Tensors of PyTorch on a device."""

    name = "torch"

    def floats(self, x: Floats, dtype: str) -> Any:
        import torch

        return self._placed(torch.from_numpy(np.array(x, order="C")).to(getattr(torch, dtype)))

    def plain(self, x: Any) -> Any:
        import torch

        return self._placed(torch.from_numpy(np.array(x, order="C")))

    def _placed(self, tensor: Any) -> Any:
        try:
            return tensor.to(self.device)
        except Exception as error:
            raise Unprepared(f"the device {self.device!r} cannot be used: {str(error).strip().splitlines()[0]}") from error

    def numpy(self, x: Any) -> Floats:
        import torch

        if not isinstance(x, torch.Tensor):
            return checked(x)
        if not x.is_floating_point():
            raise Unusable(f"the function under test returned a tensor of {x.dtype}, not of floating-point numbers")
        return np.asarray(x.detach().to("cpu", torch.float64).numpy(), np.float64)

    @_compiled_always()
    def run(
        self, function: Callable[..., Any], pick: Callable[[Any], tuple[Any, Any]], arrays: tuple[Any, Any, Any], cotangent: Any | None
    ) -> tuple[Any, Any, tuple[Any, ...]]:
        import torch

        if cotangent is None:
            with torch.no_grad():
                return (*pick(function(*arrays)), ())
        leaves = tuple(array.requires_grad_() for array in arrays)
        out, lse = pick(function(*leaves))
        if not isinstance(out, torch.Tensor):
            raise Unusable(f"the function returned {type(out).__name__}, not a tensor")
        return out, lse, torch.autograd.grad(out, leaves, cotangent, allow_unused=True)


class JaxLibrary(Library):
    """Arrays of JAX."""

    name = "jax"

    def _placed(self, array: Any) -> Any:
        import jax

        try:
            return jax.device_put(array, jax.devices(self.device)[0])
        except RuntimeError as error:
            raise Unprepared(f"the device {self.device!r} cannot be used: {str(error).strip().splitlines()[0]}") from error

    def floats(self, x: Floats, dtype: str) -> Any:
        import jax
        import jax.numpy as jnp

        if dtype == "float64" and not jax.config.jax_enable_x64:
            raise Unprepared("JAX computes in float64 only if jax_enable_x64 is set: set it, or leave out float64")
        wide = np.float64 if dtype == "float64" else np.float32
        return self._placed(jnp.asarray(x.astype(wide)).astype(dtype))

    def plain(self, x: Any) -> Any:
        import jax.numpy as jnp

        return self._placed(jnp.asarray(x))

    def run(
        self, function: Callable[..., Any], pick: Callable[[Any], tuple[Any, Any]], arrays: tuple[Any, Any, Any], cotangent: Any | None
    ) -> tuple[Any, Any, tuple[Any, ...]]:
        if cotangent is None:
            return (*pick(function(*arrays)), ())
        import jax

        out, back = jax.vjp(lambda *given: pick(function(*given))[0], *arrays)
        return out, None, back(cotangent)


def library(name: str, device: str) -> Library:
    """Returns the array library with the name `"numpy"`, `"torch"` or `"jax"`, for arrays on `device`."""
    if name == "torch":
        return TorchLibrary(device)
    if name == "jax":
        return JaxLibrary(device)
    if name == "numpy":
        if device != "cpu":
            raise Unprepared(f"NumPy cannot use the device {device!r}: give 'cpu'")
        return Library()
    from ..._noren import Error

    raise Error(f'`library={name!r}` is unknown: give "numpy", "torch" or "jax"')

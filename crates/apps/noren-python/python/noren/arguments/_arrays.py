"""Passes arrays of several libraries to the kernels without a copy, and returns results as arrays of the same library.

For each library, this module has one class; the classes have the same methods. PyTorch and other libraries are imported only if
one of their arrays is given.
"""

from __future__ import annotations

import sys
from typing import Any

from .._noren import Error
from ._given import check_strided, refuse_kind, short

Array = Any
"""A NumPy array, a PyTorch tensor on the CPU, or another array with `__dlpack__`."""


class NumPy:
    """The class for NumPy arrays. Arrays of `ml_dtypes.bfloat16` are passed as their bits (uint16), because NumPy's DLPack
    export does not support types of other packages."""

    def check(self, name: str, array: Array) -> None:
        """Raises an error if attention cannot compute with the array; `name` is the name of the array in the message.

        NumPy arrays are checked by `lend`.
        """

    def lend(self, array: Array) -> Any:
        """Returns the array in a form that exports DLPack, without a copy."""
        import numpy as np

        if array.dtype.name == "bfloat16":
            return array.view(np.uint16)
        if array.dtype == np.uint16 or array.dtype == object:
            raise TypeError(f"the array holds {array.dtype}: give float32, float16 or bfloat16")
        if not array.dtype.isnative:
            raise TypeError("the array holds numbers in another byte order than this machine: give array.astype(array.dtype.newbyteorder('='))")
        return array

    def threads(self) -> int | None:
        """Returns the number of threads that the library uses; None if it is unknown."""
        return None

    def empty(self, shape: tuple[int, ...], like: Array) -> Array:
        """Returns a new array for results, with the type of the array `like`."""
        import numpy as np

        return np.empty(shape, like.dtype)

    def zeros(self, shape: tuple[int, ...]) -> Array:
        """Returns an array of zeros in float32."""
        import numpy as np

        return np.zeros(shape, np.float32)

    def floats(self, name: str, array: Array) -> Array:
        """Returns the array of a score modifier as `float32`. Raises a TypeError for arrays of booleans or integers; lists may
        hold integers.
        """
        import numpy as np

        check_strided(name, array)
        try:
            given = np.empty(0, object) if isinstance(array, range) else np.asarray(array.detach() if hasattr(array, "detach") else array)
        except Exception:  # objects of the caller raise errors of several types
            given = np.empty(0, object)
        if given.dtype.kind in "bc" or (given.dtype.kind in "iu" and hasattr(array, "dtype")):
            refuse_kind(name, given.dtype.name, f"{name}.astype(np.float32)")
        if given.dtype.kind not in "fiuV" and given.dtype.name != "bfloat16" or given.size == 0:
            raise TypeError(f"{name} is {short(array)}: give an array of floats")
        return given.astype(np.float32, copy=False)

    def finish(self, array: Array, like: Array) -> Array:
        """Returns a result as an array of the library of `like`."""
        return array


class Torch:
    """The class for PyTorch tensors on the CPU."""

    def check(self, name: str, array: Array) -> None:
        from ._tensors import check_floats

        check_floats(name, array)
        if array.device.type != "cpu":
            raise Error(f"{name} is on {array.device}: noren.attention computes on the CPU; call noren.torch.attention, or move the tensor to the CPU (.cpu())")

    def lend(self, array: Array) -> Any:
        import torch

        from ._tensors import check_eager

        check_eager(array)
        if array.requires_grad and torch.is_grad_enabled():
            raise Error(
                "the tensor requires a gradient, but nr.attention records no gradients: use noren.torch.attention, tensor.detach() or torch.no_grad()"
            )
        return array.detach()

    def threads(self) -> int | None:
        import torch

        return torch.get_num_threads()

    def empty(self, shape: tuple[int, ...], like: Array) -> Array:
        import torch

        return torch.empty(shape, dtype=like.dtype)

    def zeros(self, shape: tuple[int, ...]) -> Array:
        import torch

        return torch.zeros(shape, dtype=torch.float32)

    def floats(self, name: str, array: Array) -> Array:
        import torch

        from ._tensors import check_added

        if not isinstance(array, torch.Tensor):
            return torch.as_tensor(NumPy().floats(name, array))
        check_added(name, array)
        return self.lend(array).to(torch.float32)

    def finish(self, array: Array, like: Array) -> Array:
        return array


class Others(NumPy):
    """The class for arrays of other libraries that have `__dlpack__`. NumPy allocates the results, which are then converted to
    the library of the inputs."""

    def lend(self, array: Array) -> Any:
        return array

    def empty(self, shape: tuple[int, ...], like: Array) -> Array:
        import numpy as np

        name = str(like.dtype).rsplit(".", 1)[-1]
        if name not in ("float32", "float16"):
            raise TypeError(f"the array holds {name}: give float32 or float16")
        return np.empty(shape, name)

    def finish(self, array: Array, like: Array) -> Array:
        namespace = like.__array_namespace__() if hasattr(like, "__array_namespace__") else None
        module = namespace or sys.modules.get(type(like).__module__.split(".")[0])
        if module is None or not hasattr(module, "from_dlpack"):
            return array
        return module.from_dlpack(array)


_NUMPY, _TORCH, _OTHERS = NumPy(), Torch(), Others()


def library(array: Array) -> NumPy | Torch | Others:
    """Returns the object (`NumPy`, `Torch` or `Others`) that handles arrays of the library to which `array` belongs."""
    root = type(array).__module__.split(".", 1)[0]
    if root == "numpy":
        return _NUMPY
    torch = sys.modules.get("torch")
    if root == "torch" or (torch is not None and isinstance(array, torch.Tensor)):
        return _TORCH
    return _OTHERS


def lend(**arrays: Array) -> tuple[NumPy | Torch | Others, list[Any]]:
    """Returns (library of the first array, all arrays in a form that exports DLPack). Raises an error, with the name of the array, for
    an array that attention cannot read."""
    for name, array in arrays.items():
        if not hasattr(array, "__dlpack__"):
            raise TypeError(f"{name} is `{type(array).__name__}`, which is not an array: give a NumPy array, a PyTorch tensor on the CPU or another array with __dlpack__")
    libraries = [library(array) for array in arrays.values()]
    for lib, (name, array) in zip(libraries, arrays.items(), strict=True):
        lib.check(name, array)
    return libraries[0], [lib.lend(array) for lib, array in zip(libraries, arrays.values(), strict=True)]

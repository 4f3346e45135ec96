"""The attention functions that the probe recognises, and the names of targets that the command `python -m noren probe` accepts."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

from ..._noren import Error, __version__
from .._call import Adapter, Unprepared
from ._packages import installed, versions
from ._signature import FunctionAdapter, Signature, inferred

SDPA = Signature(keep="attn_mask", additive="attn_mask", bias="attn_mask", causal="is_causal", alignment="top-left", scale="scale", gqa="enable_gqa")
_BACKENDS = {"math": "MATH", "flash": "FLASH_ATTENTION", "efficient": "EFFICIENT_ATTENTION", "cudnn": "CUDNN_ATTENTION"}
JAX = Signature(
    library="jax",
    layout="blhd",
    keep="mask",
    bias="bias",
    causal="is_causal",
    scale="scale",
    window="local_window_size",
    lse="return_residual",
)
NOREN = Signature(
    keep="keep", drop="drop", additive="additive", bias="bias", scale="scale", softcap="softcap", sinks="sinks", lse="return_lse", fixed={"mask": "full"}
)

TARGETS = (
    "torch:sdpa",
    "torch:sdpa/math",
    "torch:sdpa/flash",
    "torch:sdpa/efficient",
    "torch:sdpa/cudnn",
    "torch:flex",
    "torch:flex/compiled",
    "hf:eager",
    "hf:sdpa",
    "hf:flex_attention",
    "jax",
    "keras",
    "onnx",
    "onnxruntime",
    "noren",
)
"""The names of the targets that `python -m noren probe --all` probes. A name after `hf:` is an `attn_implementation`."""

COMPILED = ("torch:flex/compiled", "hf:flex_attention")
"""The targets that must be compiled again for most questions of the probe, which takes minutes for each number type."""


def flex_signature() -> Signature:
    """Returns the signature of `flex_attention` in the installed version of PyTorch."""
    from torch.nn.attention import flex_attention

    request = getattr(flex_attention, "AuxRequest", None)
    lse, value = ("return_lse", True) if request is None else ("return_aux", request(lse=True))
    return Signature(block_mask="block_mask", score_mod="score_mod", scale="scale", gqa="enable_gqa", lse=lse, lse_value=value)


def keras_signature() -> Signature:
    """Returns the signature of `keras.ops.dot_product_attention`, for arrays of the backend that Keras uses."""
    backend = str(_keras().backend.backend())
    return Signature(
        library=backend if backend in ("torch", "jax") else "numpy",
        layout="blhd",
        keep="mask",
        bias="bias",
        causal="is_causal",
        scale="scale",
        softcap="attn_logits_soft_cap",
    )


_FUNCTIONS: dict[str, tuple[str, str, Callable[[], Signature], tuple[str, ...]]] = {
    "torch:sdpa": ("torch.nn.functional", "scaled_dot_product_attention", lambda: SDPA, ("torch",)),
    "torch:flex": ("torch.nn.attention.flex_attention", "flex_attention", flex_signature, ("torch",)),
    "jax": ("jax.nn", "dot_product_attention", lambda: JAX, ("jax", "jaxlib")),
    "keras": ("keras.ops", "dot_product_attention", keras_signature, ("keras",)),
    "noren": ("noren.torch", "attention", lambda: NOREN, ("torch",)),
}
"""For each function that the probe recognises: its module, its name in the module, its signature, and the packages that it needs."""


def of_function(function: Any, declared: Mapping[str, Any], device: str, title: str | None) -> Adapter:
    """Returns an adapter of `function`. If the function is recognised, its known signature is used; no package is imported to
    recognise it. Otherwise the signature is made from the fields in `declared` and the names of the function's parameters."""
    inner = getattr(function, "_torchdynamo_orig_callable", None)
    for name, (module, attribute, of, packages) in _FUNCTIONS.items():
        known = getattr(sys.modules.get(module), attribute, None)
        if known is not None and (known is function or known is inner) and not declared:
            numbers = {"noren": __version__} if name == "noren" else versions(*packages)
            return FunctionAdapter(title or (name if known is function else f"{name}/compiled"), function, of(), device, numbers)
    signature, assumptions = inferred(function, declared)
    numbers = versions(signature.library) if signature.library in ("torch", "jax", "numpy") else {}
    return FunctionAdapter(title or str(getattr(function, "__name__", type(function).__name__)), function, signature, device, numbers, assumptions)


def of_name(name: str, declared: Mapping[str, Any], device: str, title: str | None) -> Adapter:
    """Returns the adapter of a target: one of `TARGETS`, an `attn_implementation` of transformers, or `module:function`.

    Raises `Unprepared` if a package is not installed, and `Error` if the name is unknown.
    """
    kind, _, rest = name.partition(":")
    if name == "keras":
        keras = _keras()

        backend = str(keras.backend.backend())
        adapter = of_function(keras.ops.dot_product_attention, declared, device, title or f"keras/{backend}")
        adapter.versions.update(versions(backend))
        return adapter
    if name in _FUNCTIONS:
        module, attribute, _, packages = _FUNCTIONS[name]
        installed(packages[0])
        return of_function(_imported(module, attribute), declared, device, title)
    if kind == "torch":
        installed("torch")
        return _of_torch(rest, device, title or name)
    if name in ("onnx", "onnxruntime"):
        from ._onnx import OnnxAdapter

        installed("onnx", name)
        return OnnxAdapter(title or name, runtime=name == "onnxruntime")
    if kind == "hf" or not rest:
        from ._hf import HfAdapter

        installed("torch", "transformers")
        return HfAdapter(rest or name, device, title)
    return of_function(_imported(kind, rest), declared, device, title or name)


def _keras() -> Any:
    """Imports and returns the module `keras`. If the user has not chosen a backend and TensorFlow, Keras' default, is not
    installed, PyTorch or JAX is set as the backend."""
    installed("keras")
    if "KERAS_BACKEND" not in os.environ and importlib.util.find_spec("tensorflow") is None:
        backend = next((name for name in ("torch", "jax") if importlib.util.find_spec(name) is not None), None)
        if backend is None:
            raise Unprepared("keras is installed, but none of its backends is: install torch or jax")
        os.environ["KERAS_BACKEND"] = backend
    try:
        return importlib.import_module("keras")
    except ImportError as error:
        raise Unprepared(f"keras cannot be imported: {error}") from error


def _imported(module: str, attribute: str) -> Any:
    try:
        found: Any = importlib.import_module(module)
        for part in attribute.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise Error(f"the target {module}:{attribute} cannot be imported: {error}; the known targets are {', '.join(TARGETS)}") from error
    return found


def _of_torch(name: str, device: str, title: str) -> Adapter:
    """Returns the adapter of the target `torch:NAME`, where NAME is `sdpa/BACKEND` or `flex/compiled`."""
    import torch

    base, _, option = name.partition("/")
    if (base, option) == ("flex", "compiled"):
        from torch.nn.attention.flex_attention import flex_attention

        return of_function(torch.compile(flex_attention, dynamic=False, fullgraph=True), {}, device, title)
    if base == "sdpa" and option in _BACKENDS:
        from torch.nn.attention import SDPBackend, sdpa_kernel

        backend = getattr(SDPBackend, _BACKENDS[option])

        def attention(*arrays: Any, **options: Any) -> Any:
            with sdpa_kernel(backend):
                return torch.nn.functional.scaled_dot_product_attention(*arrays, **options)

        return FunctionAdapter(title, attention, SDPA, device, versions("torch"))
    raise Error(f"the target torch:{name} is unknown: give one of {', '.join(TARGETS)}")

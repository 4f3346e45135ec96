"""Finds the key-value cache among the arguments and outputs of transformers' models. The name of this argument depends on the
version of transformers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

NAMES = ("cache", "past_key_values")
"""The names of the argument that holds the key-value cache: `cache` since transformers 5.24, and `past_key_values` in earlier
versions and in programs written for them."""


def cache_parameter(names: Iterable[str]) -> str | None:
    """Returns the name of the key-value cache among `names`, the parameters of a forward pass; None if no parameter is a cache.

    A parameter called `cache` counts only if there is also a parameter `use_cache`, as in transformers.
    """
    known = set(names)
    if "cache" in known and "use_cache" in known:
        return "cache"
    return "past_key_values" if "past_key_values" in known else None


def given_cache(arguments: Mapping[str, Any]) -> Any:
    """Returns the key-value cache among the arguments of a forward pass, under any of its names; None if there is none."""
    found = (arguments.get(name) for name in reversed(NAMES))
    return next((cache for cache in found if hasattr(cache, "get_seq_length")), None)


def returned_cache(output: Any) -> Any:
    """Returns the key-value cache in the output of a forward pass; None if there is none."""
    return next((cache for name in NAMES if (cache := attribute(output, name)) is not None), None)


def attribute(output: Any, name: str) -> Any:
    """Returns an entry of a model's output, which is a mapping or an object with attributes; None if there is none."""
    return output.get(name) if isinstance(output, Mapping) else getattr(output, name, None)

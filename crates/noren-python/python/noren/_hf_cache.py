"""The key-value cache among the arguments and outputs of models of transformers. Its name depends on the version of transformers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

NAMES = ("cache", "past_key_values")
"""The names of the cache: `cache` since transformers 5.24, `past_key_values` before and in older programs."""


def cache_parameter(names: Iterable[str]) -> str | None:
    """Returns the name of the parameter for a cache among the parameters of a forward pass; None if there is none.

    A parameter called `cache` is that of transformers if there is also a parameter `use_cache`.
    """
    known = set(names)
    if "cache" in known and "use_cache" in known:
        return "cache"
    return "past_key_values" if "past_key_values" in known else None


def given_cache(arguments: Mapping[str, Any]) -> Any:
    """Returns the cache among the arguments of a forward pass, by name; None if there is none."""
    found = (arguments.get(name) for name in reversed(NAMES))
    return next((cache for cache in found if hasattr(cache, "get_seq_length")), None)


def returned_cache(output: Any) -> Any:
    """Returns the cache of the output of a forward pass; None if the output has none."""
    return next((cache for name in NAMES if (cache := getattr(output, name, None)) is not None), None)

"""Installed packages and their versions."""

from __future__ import annotations

import importlib.util
from importlib import metadata

from .._call import Unprepared


def versions(*packages: str) -> dict[str, str]:
    """Returns the version of each package in `packages` that is installed, by name."""
    found = {}
    for name in packages:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def installed(*modules: str) -> None:
    """Raises `Unprepared` unless all of the modules are installed."""
    for name in modules:
        if importlib.util.find_spec(name) is None:
            raise Unprepared(f"{name} is not installed")

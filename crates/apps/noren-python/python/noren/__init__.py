"""Attention masks for transformers: expressions for masks, exact block-sparse plans, attention on CPUs, and other systems' formats.

>>> import noren as nr
>>> mask = nr.causal() & nr.sliding(1024) | nr.keys(range(4))
>>> mask
causal & sliding(1024) | keys(0..4)
>>> print(nr.parse("causal & documents([3, 2])").picture(5))  # doctest: +ELLIPSIS
causal & documents([3, 2])
...

Masks: `causal`, `sliding`, `documents`, `padding` and the other functions that return a `Mask`, joined by `&`, `|`, `-` and `~`;
`parse` reads their text; `Shape` and `Facts` are the sizes and data of a call (`facts_from` finds them in a batch).
Computing: `attention`, `KvCache`; score modifiers: `alibi`, `bias`, `relative`, `sinks`, `soft`, `softcap`.
Testing a mask or a model: `check`, `recognise`, `audit`, `guard`, `probe`. Over all layers: `flow`.
Arrays and objects of other systems: `to_NAME`, `from_NAME`, `code`.

`noren.private` finds private text and hides it. `noren.torch`, `noren.hf`, `noren.onnx` and `noren.distributed` serve PyTorch,
transformers, ONNX and process groups. These four modules must be imported by their names: `import noren` alone needs none of
these packages. docs/python.md has a table of the functions and when to use which.
"""

import os as _os
import re as _re
from importlib import import_module as _import_module
from importlib.util import find_spec as _find_spec
from pkgutil import get_data as _get_data
from typing import Any as _Any

from ._noren import __version__ as __version__, after_fork as _after_fork

if hasattr(_os, "register_at_fork"):  # a forked process has no worker threads
    _os.register_at_fork(after_in_child=_after_fork)

_STUB = (_get_data(__name__, "__init__.pyi") or b"").decode()
_WHERE = {
    name: module
    for module, names in _re.findall(r"^from (\.\S*) import (\([^)]*\)|.*)", _STUB, _re.M)
    for name in _re.findall(r"\b([a-zA-Z]\w*) as", names)
}
"""The module of each public name."""
__all__ = sorted(_WHERE)


def __getattr__(name: str) -> _Any:
    """Imports the attribute `name` when it is first used. A function that needs a package that is not installed raises ImportError
    when it is called."""
    if name not in _WHERE:
        if not name.startswith("_") and _find_spec(f"noren.{name}"):
            raise AttributeError(f"noren.{name} is a module that must be imported by its name: write `import noren.{name}`")
        raise AttributeError(f"module 'noren' has no attribute {name!r}")
    module = _WHERE[name]
    if module == ".":
        return _import_module(f".{name}", __name__)
    try:
        value = getattr(_import_module(module, __name__), name)
    except ModuleNotFoundError as error:
        if (error.name or "noren").startswith("noren"):
            raise
        return _without(name, error)
    globals()[name] = value
    return value


def _without(name: str, error: ModuleNotFoundError) -> _Any:
    def missing(*_: _Any, **__: _Any) -> _Any:
        extra = "hf" if error.name == "transformers" else "torch"
        raise ImportError(f"noren.{name} needs the package {error.name}: pip install 'noren-attention[{extra}]'") from error

    missing.__name__ = missing.__qualname__ = name
    missing.__doc__ = f"Needs the package {error.name}, which is not installed."
    return missing


def __dir__() -> list[str]:
    return [*__all__, "__version__", "__doc__", "__all__"]

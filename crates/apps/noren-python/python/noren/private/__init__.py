"""Finds private text and the tokens that contain it, hides these tokens by masks in every layer, and proves that outputs do not
depend on them.

>>> import noren as nr
>>> [(f.kind, f.text) for f in nr.private.find("Mail ann@x.example or call +44 20 7946 0958")]
[('email', 'ann@x.example'), ('phone', '+44 20 7946 0958')]

`find` finds private text, `encode` and `locate` return the tokens that contain it, `Hide`, `Clearance` and `Heads` are the policies. `masked` computes
a model of transformers with a policy, `pool` computes vectors without private tokens, `prove` tests a model for leaks.
"""

from typing import TYPE_CHECKING, Any

from ._encode import Encoded as Encoded, encode as encode
from ._find import (
    KINDS as KINDS,
    Detectors as Detectors,
    Finding as Finding,
    Found as Found,
    Recognizer as Recognizer,
    find as find,
)
from ._policy import Clearance as Clearance, Heads as Heads, Hide as Hide, Policy as Policy
from ._tokens import Tokens as Tokens, locate as locate

if TYPE_CHECKING:
    from ._masked import masked as masked
    from ._pool import pool as pool
    from ._proof import Leak as Leak, Proof as Proof
    from ._prove import prove as prove
    from ._state import Record as Record

_WHERE = {"pool": "_pool", "masked": "_masked", "Leak": "_proof", "Proof": "_proof", "Record": "_state", "prove": "_prove"}


def __getattr__(name: str) -> Any:
    """Returns an object of this module whose code needs PyTorch and transformers. These modules are imported when such an
    object is first used."""
    if name in _WHERE:
        from importlib import import_module

        return getattr(import_module(f"noren.private.{_WHERE[name]}"), name)
    raise AttributeError(f"module 'noren.private' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_WHERE])

"""An adapter for functions with one parameter, a `Call`, that users write for the probe."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from .._noren import Error
from ._call import ROUTES, Answer, Call, Unprepared
from ._libraries import checked
from ._reference import Floats
from ._signature import shaped

FEATURES = (*ROUTES, "causal", "window", "bias", "scale", "softcap", "sinks", "lse", "blocks", "gqa", "head_masks")


class CallAdapter:
    """A function of one `Call` that returns the output, or the output and the log-sum-exp, as arrays that NumPy can read.

    `takes` names the features that the function reads from the call. Gradients are not tested. For a function that takes arrays
    as parameters, use `Signature` instead.
    """

    def __init__(
        self,
        function: Callable[[Call], Any],
        takes: Iterable[str] = (),
        *,
        name: str | None = None,
        alignment: str | None = None,
        lse_base: str = "e",
        causal_window: bool = False,
        versions: dict[str, str] | None = None,
    ) -> None:
        self.function = function
        self.takes = frozenset(takes)
        unknown = self.takes - set(FEATURES)
        if unknown:
            raise Error(f"`takes` has the unknown feature {min(unknown)!r}: the features are {', '.join(FEATURES)}")
        self.name = name or getattr(function, "__name__", "function")
        self.alignment = alignment
        self.lse_base = lse_base
        self.causal_window = causal_window
        self.assumptions: tuple[str, ...] = ()
        self.versions = dict(versions or {})

    def run(self, call: Call, cotangent: Floats | None) -> Answer:
        if cotangent is not None:
            raise Unprepared("a CallAdapter cannot compute gradients, so they are not tested")
        result = self.function(call)
        out, lse = (result[0], result[1]) if isinstance(result, (tuple, list)) and len(result) > 1 else (result, None)
        found = None if lse is None or not call.lse else shaped(checked(lse), call.q.shape[:3], "log-sum-exp")
        return Answer(shaped(checked(out), call.q.shape, "output"), found)

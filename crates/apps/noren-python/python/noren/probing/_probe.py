"""The function `nr.probe`, which tests one attention function."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from .._noren import Error
from . import _ask_behaviour as behaviour, _ask_masks as masks_, _ask_scores as scores
from ._call import Adapter, Unprepared
from ._lab import Ended, Lab
from ._masks import LENGTH, Case, cases
from ._reference import TOLERANCES
from ._report import Entry, Report, Verdict
from .targets._known import of_function, of_name


def probe(
    fn: Any,
    masks: Any = None,
    *,
    dtypes: str | Sequence[str] = ("float32",),
    device: str = "cpu",
    seed: int = 0,
    length: int = LENGTH,
    name: str | None = None,
    progress: Callable[[Entry], None] | None = None,
    **signature: Any,
) -> Report:
    """Returns a report of what an attention function really computes.

    Args:
        fn: A function of queries, keys and values; the name of an `attn_implementation` of transformers, such as `"sdpa"`; a target such
            as `"torch:sdpa/math"` (`noren.probing.TARGETS` lists them); or an adapter, an object of the protocol `noren.probing.Adapter`.
        masks: Masks to test: a mapping from names to masks, a sequence of masks, or one mask. A mask is one of noren, its text, or an array
            of booleans (true may attend). None: the default set.
        dtypes: The number types to test: `"float32"`, `"bfloat16"`, `"float16"` or `"float64"`.
        device: The device of the arrays, such as `"cuda"`.
        seed: The seed of all random content.
        length: The numbers of queries and keys of given masks of noren.
        name: The name of the function in the report.
        progress: A function that gets each entry as soon as it is known.
        **signature: The fields of `noren.probing.Signature`, such as `keep="attn_mask"`: the names of the function's parameters. Known functions
            need none; for other functions, fields that are not given are taken from the names of the parameters.

    Each question needs one or two calls. Outputs are compared with a computation in float64. The function's exceptions, warnings and
    unusable results become entries of the report.

    Raises:
        Error: The target, a field of the signature, a dtype, the seed or a mask is invalid.
    """
    chosen = (dtypes,) if isinstance(dtypes, str) else tuple(dtypes)
    for dtype in chosen:
        if dtype not in TOLERANCES:
            raise Error(f"`dtypes` has {dtype!r}: give {', '.join(TOLERANCES)}")
    if not chosen:
        raise Error("`dtypes` is empty: give at least one number type, such as float32")
    if not isinstance(seed, int) or seed < 0:
        raise Error(f"`seed={seed!r}` is invalid: give an integer of at least 0")
    if not isinstance(length, int) or not 1 <= length <= 248:
        raise Error(f"`length={length!r}` is invalid: give a number of keys from 1 to 248")
    tested = cases(masks, seed, length)
    start = time.perf_counter()
    try:
        adapter = _adapter(fn, signature, device, name)
    except Unprepared as error:
        title = name or (fn if isinstance(fn, str) else str(getattr(fn, "__name__", "function")))
        missing = tuple(Entry("attention", "", dtype, Verdict.NOT_ESTABLISHED, str(error)) for dtype in chosen)
        return Report(title, missing, {}, device, seed, chosen, (), 0, time.perf_counter() - start)
    found: list[Entry] = []
    calls, heard = 0, dict[str, tuple[str, ...]]()
    for dtype in chosen:
        lab = Lab(adapter, dtype, seed, heard=heard)
        with np.errstate(all="ignore"):
            for entry in questions(lab, tested, masks is None):
                found.append(entry)
                if progress is not None:
                    progress(entry)
        calls += lab.calls
    return Report(
        adapter.name, tuple(found), dict(adapter.versions), device, seed, chosen, adapter.assumptions, calls, time.perf_counter() - start
    )


def _adapter(fn: Any, signature: Mapping[str, Any], device: str, name: str | None) -> Adapter:
    """Returns the adapter for `fn`, which is a function, the name of a target, or an adapter itself."""
    if isinstance(fn, str):
        return of_name(fn, signature, device, name)
    if hasattr(fn, "run") and hasattr(fn, "takes"):
        return fn  # type: ignore[no-any-return]
    if not callable(fn):
        raise Error(f"nr.probe was given {type(fn).__name__}, which cannot be called: give a function of queries, keys and values, or a name")
    return of_function(fn, signature, device, name)


def questions(lab: Lab, tested: list[Case], default: bool) -> Iterator[Entry]:
    """Tests one function in one number type: yields the verdict about each question. `default` is true if `tested` are the
    default masks."""
    entries, established = behaviour.attention(lab)
    yield from entries
    if not established:
        if len(entries) > 1 and entries[1].verdict is not Verdict.MISREAD:
            yield from _asked(behaviour.batch_mates(lab))
        return
    padding = (np.arange(LENGTH) < np.array([11, 13])[:, None, None, None]).astype(bool)
    applied = masks_.Applied()
    yield from _asked(
        behaviour.batch_mates(lab),
        scores.grouped(lab),
        masks_.given_masks(lab, tested, default, applied),
        masks_.causal_flag(lab, applied, padding),
        masks_.window(lab),
        masks_.block_lists(lab),
        masks_.moved(lab, applied, padding),
        scores.modifiers(lab),
        scores.log_sum_exp(lab, applied, padding),
        behaviour.hidden(lab, applied, padding),
        behaviour.empty_rows(lab, applied),
        behaviour.backward(lab, applied, padding),
    )


def _asked(*asked: Iterator[Entry]) -> Iterator[Entry]:
    """Yields the entries of all questions; a question that ends early has the entry of its end as the last one."""
    for question in asked:
        try:
            yield from question
        except Ended as ended:
            yield ended.entry

"""The checks of the audit: each check makes pairs of calls of the model, and lists the outputs that must be equal or must
differ between both calls.

A check is a function of the `Lab` that yields trials. A check raises `Skip` if the check does not apply to the model, and
`Unclear` if the check applies but cannot be run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch

from ..catalogue import CHECKS, PADS, Skip
from ..lab import SIGNS, Lab, Unclear, hidden, padded, ragged
from ..model.subject import Stream
from ..trial import Cells, Trial
from .mates import batch
from .scan import lengths, reach, repeated

Trials = Iterator[Trial]


def _changed(lab: Lab, check: str) -> Trials:
    """Yields one trial for each change of tokens that the catalogue lists for the check named `check`."""
    call = lab.call()
    for change in lab.changes(check):
        other = call.with_tokens(lab.maker.changed(call.main.tokens, change.tokens))
        cells = {"main": Cells.at_places(change.compared)}
        yield Trial(change.what, call, other, cells, change.broken, change.moves, tuple(change.tokens))


def prefix(lab: Lab) -> Trials:
    """Changes the end of a sequence; outputs that may not depend on this end must not change."""
    yield from _changed(lab, "prefix")


def window(lab: Lab) -> Trials:
    """Changes the beginning of a sequence. Outputs must not change if this beginning is too far away to influence them through
    the windows of all layers.
    """
    try:
        yield from _changed(lab, "window")
    except Skip as reason:
        if not lab.shows("main", lab.length):
            raise Unclear(f"the tested length {lab.length} is too short to show the effect of a declared window: give a larger length=") from None
        if lab.hides_the_past() and not lab.depth("main"):
            unknown = "the reach of a window depends on the number of layers, which is not known: give layers="
            raise Unclear(unknown) from None
        if lab.hides_the_past() and not lab.layers:
            raise Unclear(f"{reason}, and the layers could not be tested one by one, because no layers were found") from None
        raise


def liveness(lab: Lab) -> Trials:
    """Changes one token. Every output whose query may read this token in every layer must change."""
    call = lab.call()
    try:
        yield from _changed(lab, "liveness")
    except Skip:
        if call.source is None:
            raise
    if call.source is not None:
        for token in (0, call.source.length - 1):
            source = replace(call.source, tokens=lab.maker.changed(call.source.tokens, (token,)))
            cells = {"main": Cells.same([0], range(lab.length)), "source": Cells.same([0], range(call.source.length))}
            broken = CHECKS["liveness"].sentence(f"encoder token {token}")
            yield Trial(f"the audit changed token {token} of the encoder's sequence", call, replace(call, source=source), cells, broken, True, (token,))


def padding_right(lab: Lab) -> Trials:
    """Appends padding to a sequence, with several different padding ids. The outputs of non-padding tokens must not change."""
    yield from _padding(lab, "right")


def padding_left(lab: Lab) -> Trials:
    """Inserts padding before a sequence, with several different padding ids. The outputs of non-padding tokens must not change."""
    yield from _padding(lab, "left")


def _padding(lab: Lab, side: str) -> Trials:
    lab.sides(side)
    names = lab.subject.arguments
    call = lab.call()
    shift = PADS if side == "left" else 0
    broken = CHECKS[f"padding_{side}"].sentence
    done = False
    for kind in range(lab.maker.kinds()):
        if names.masked or (side == "right" and not lab.ahead() and names.source is None):
            main = padded(call.main, side, lab.maker.padding(kind, 1, PADS))
            cells = {"main": Cells.shifted([0], range(lab.length), [0], shift)}
            by_id = kind > 0 and lab.subject.hugging_face  # transformers' pooling may look for the padding id
            if names.masked and lab.intent.pooled in (side, "both") and not by_id:
                cells["pooled"] = Cells.same([0], 0)
            done = True
            said = f"{PADS} padding tokens {_name(lab, kind)} were added on the {side}"
            yield Trial(said, call, replace(call, main=main), cells, broken("padding"))
        if call.source is not None and names.source_masked:
            source = padded(call.source, side, lab.maker.padding(kind, 1, PADS))
            cells = {
                "main": Cells.same([0], range(lab.length)),
                "source": Cells.shifted([0], range(call.source.length), [0], shift),
            }
            done = True
            said = f"{PADS} padding tokens {_name(lab, kind)} were added on the {side} side of the encoder's sequence"
            yield Trial(said, call, replace(call, source=source), cells, broken("the encoder's padding"))
    if names.masked:
        first, second = (replace(call, main=padded(call.main, side, lab.maker.padding(kind, 1, PADS))) for kind in (0, 1))
        places = range(shift, shift + lab.length)
        yield Trial(f"the audit changed the ids of the padding tokens on the {side} side", first, second, {"main": Cells.same([0], places)}, broken("padding"))
    if not done:
        raise Skip("the model takes no attention mask, so the audit cannot mark padding tokens")


def _name(lab: Lab, kind: int) -> str:
    return ("of zeros", "of large values")[kind] if lab.maker.vocab is None else f"of id {lab.maker.pads[kind]}"


def mask_liveness(lab: Lab) -> Trials:
    """Runs a sequence with a mask that hides tokens, and with a mask of ones, which hides none. The outputs must differ; if
    they do not, the model ignores the mask.
    """
    names, side = lab.subject.arguments, lab.side()
    call, broken = lab.call(), CHECKS["mask_liveness"].sentence
    done = False
    if names.masked:
        kind = lab.maker.kinds() - 1
        if side is None or (side == "right" and not lab.ahead()):
            gone = (lab.length // 2,)
            main, way = hidden(call.main, gone), f"the mask hides token {gone[0]}"
        else:
            main, way = padded(call.main, side, lab.maker.padding(kind, 1, PADS)), f"the mask hides {PADS} padding tokens on the {side}"
        real = main.real[0].numpy()
        rows = np.flatnonzero(lab.direct("main", main.length)[:, ~real].any(1) & real)
        if len(rows):
            done = True
            base = replace(call, main=main)
            said = f"{way}; in the second pass, the mask hides no token"
            yield Trial(said, base, replace(base, all_real=True), {"main": Cells.same([0], rows)}, broken("the mask"), True)
    if call.source is not None and names.source_masked:
        done = True
        base = replace(call, source=padded(call.source, "right", lab.maker.padding(0, 1, PADS)))
        cells = {"main": Cells.same([0], range(lab.length)), "source": Cells.same([0], range(call.source.length))}
        said = f"the mask hides {PADS} padding tokens behind the encoder's sequence; in the second pass, the mask hides no token"
        yield Trial(said, base, replace(base, all_real=True), cells, broken("the encoder's mask"), True)
    if not done:
        raise Skip("the model takes no attention mask" if not names.masked else "no output reads a token that the check could mask")


def redaction(lab: Lab) -> Trials:
    """Hides tokens by the mask and changes their content; outputs of all other tokens must not change."""
    names, call = lab.subject.arguments, lab.call()
    if not names.masked and not names.source_masked:
        raise Skip("the model takes no attention mask")
    (change,) = lab.changes("redaction")
    gone, broken = tuple(change.tokens), change.broken
    if names.masked:
        base = replace(call, main=hidden(call.main, gone))
        other = base.with_tokens(lab.maker.changed(base.main.tokens, gone))
        yield Trial(change.what, base, other, {"main": Cells.at_places(change.compared)}, broken, changed=gone)
    if call.source is not None and names.source_masked:
        base = replace(call, source=hidden(call.source, gone))
        assert base.source is not None
        source = replace(base.source, tokens=lab.maker.changed(base.source.tokens, gone))
        rest = [i for i in range(base.source.length) if i not in gone]
        cells = {"main": Cells.same([0], range(lab.length)), "source": Cells.same([0], rest)}
        said = f"the audit changed the masked tokens {gone[0]} and {gone[1]} of the encoder's sequence"
        yield Trial(said, base, replace(base, source=source), cells, broken, changed=gone)


def weak_fill(lab: Lab) -> Trials:
    """Makes hidden keys very large, so that their scores are in the millions, and then all keys, so that the scores of the keys
    that a query reads are that far below 0. Outputs from which keys are hidden must not change.

    A mask value near 0, such as -1e4, does not hide keys from such queries, whether it is added to scores or replaces them.
    """
    if lab.subject.module is None:
        raise Skip("keys can be changed only inside a module: give module=")
    broken = CHECKS["weak_fill"].sentence()
    call, names, side = lab.call(), lab.subject.arguments, lab.side()
    cut = lab.length // 2
    safe = np.flatnonzero(~lab.reach("main")[:, cut:].any(1))
    if len(safe):
        at = tuple(range(cut, lab.length))
        other = replace(call, poison={"main": at})
        yield Trial(f"the audit made all keys from key {cut} on very large", call, other, {"main": Cells.same([0], safe)}, broken, changed=at, double_only=True)
        source = None if call.source is None else repeated(call.source, SIGNS)
        base = replace(call, main=repeated(call.main, SIGNS), source=source, poison={"main": tuple(range(lab.length))})
        other = base.with_tokens(lab.maker.changed(base.main.tokens, at))
        what = f"the audit made all keys very large, with other signs in each of {SIGNS} batch rows, and changed the tokens from token {cut} on"
        yield Trial(what, base, other, {"main": Cells.same(list(range(SIGNS)), safe)}, broken, changed=at, double_only=True)
    padding = lab.maker.padding(0, 1, PADS)
    if side is not None and (side == "left" or lab.ahead()):
        base = replace(call, main=padded(call.main, side, padding))
        real = base.main.real[0]
        at, rest = (tuple(which.nonzero().flatten().tolist()) for which in (~real, real))
        other, cells = replace(base, poison={"main": at}), {"main": Cells.same([0], rest)}
        yield Trial("the audit made the keys of the padding tokens very large", base, other, cells, broken, changed=at, double_only=True)
    if call.source is not None and names.source_masked:
        base = replace(call, source=padded(call.source, "right", padding))
        at = tuple(range(call.source.length, call.source.length + PADS))
        cells = {"main": Cells.same([0], range(lab.length)), "source": Cells.same([0], range(call.source.length))}
        said = "the audit made the keys of the encoder's padding tokens very large"
        yield Trial(said, base, replace(base, poison={"source": at}), cells, broken, changed=at, double_only=True)


PACKINGS = ("segment_ids", "position_ids", "position_ids+attention_mask", "position_ids+cache")


def documents(lab: Lab) -> Trials:
    """Packs two documents into one row. The outputs of one document must not depend on the tokens of the other document."""
    wanted = lab.intent.documents
    if not wanted:
        raise Skip("the intent declares no packed documents: give documents=True to test packed documents")
    ways = [wanted] if isinstance(wanted, str) else [way for way in PACKINGS if _takes(lab, way)]
    unknown = [way for way in ways if way not in PACKINGS]
    if unknown:
        raise Unclear(f"documents={unknown[0]!r} is unknown: give True or one of {', '.join(PACKINGS)}")
    if not ways:
        raise Unclear("the model takes neither segment_ids nor position_ids, so the audit cannot mark the documents of a row")
    first = lab.length // 3
    second = lab.length - first
    streams = lab.sequence(1, first), lab.sequence(1, second)
    tokens = torch.cat([streams[0].tokens, streams[1].tokens], 1)
    positions = torch.cat([torch.arange(first), torch.arange(second)])[None]
    segments = torch.tensor([1] * first + [2] * second)[None]
    packed = lab.call(Stream(tokens, torch.ones(1, lab.length, dtype=torch.bool), positions, segments))
    alone = lab.call(streams[1])
    alone = replace(alone, main=replace(alone.main, segments=torch.ones(1, second, dtype=torch.long)))
    before, after = tuple(range(first)), tuple(range(first, lab.length))
    for way in ways:
        base = replace(packed, packing=way)
        broken = CHECKS["documents"].sentence(f"with documents given by {_said(way)}, one document")
        for changed, rest in ((before, after), (after, before)):
            other = base.with_tokens(lab.maker.changed(base.main.tokens, changed))
            said = f"the audit changed document {1 if changed is before else 2} (the documents are given by {_said(way)})"
            yield Trial(said, base, other, {"main": Cells.same([0], rest)}, broken, changed=changed)
        cells = {"main": Cells.shifted([0], range(second), [0], first)}
        yield Trial(f"the audit compares the second document alone with the same document packed behind the first one (the documents are given by {_said(way)})", alone, base, cells, broken)


def _takes(lab: Lab, way: str) -> bool:
    names = lab.subject.arguments
    if way == "segment_ids":
        return names.segments is not None
    needed = [names.positions is not None and names.segments is None]
    needed += [names.keep is not None] * ("attention_mask" in way) + [names.use_cache] * ("cache" in way)
    return all(needed)


def _said(way: str) -> str:
    return {
        "position_ids": "position_ids without attention_mask, and with use_cache=False",
        "position_ids+attention_mask": "position_ids with an attention_mask of ones",
        "position_ids+cache": "position_ids with the model's default value of use_cache",
    }.get(way, way)


def cache(lab: Lab) -> Trials:
    """Runs most tokens in one pass and the last 5 one by one, with a cache; the outputs must equal the outputs of a single pass
    without a cache."""
    yield from _cached(lab, (lab.length - 5, 1, 1, 1, 1, 1), "with a cache, all tokens except the last 5 are computed in one pass, then the last 5 one by one")


def chunks(lab: Lab) -> Trials:
    """Runs a sequence in chunks with a cache; the outputs must equal the outputs of a single pass without a cache."""
    third = lab.length // 3
    yield from _cached(lab, (third, 3, third, lab.length - 2 * third - 3), f"with a cache, the sequence is computed in four chunks: {third} tokens, 3 tokens, {third} tokens and the remaining tokens")


def _cached(lab: Lab, splits: tuple[int, ...], said: str) -> Trials:
    if not lab.subject.caches:
        raise Skip("the model has no known cache (the parameter cache or past_key_values): give step= for a cache of another kind")
    if lab.ahead():
        raise Skip("the outputs depend on later tokens, so they cannot be computed step by step with a cache")
    broken = CHECKS["cache"].sentence()
    call = lab.call()
    everywhere = {"main": Cells.same([0], range(lab.length))}
    yield Trial(said, call, replace(call, splits=splits), everywhere, broken)
    side = lab.side()
    if side == "left":
        uneven = lab.call(ragged(lab, [lab.sequence(), lab.sequence(1, lab.length - 7)], side))
        rows = torch.tensor([0] * lab.length + [1] * (lab.length - 7))
        at = torch.cat([torch.arange(lab.length), torch.arange(7, lab.length)])
        cells = {"main": Cells(rows, at, rows, at)}
        yield Trial(f"{said}; a second row of the batch is padded on the left", uneven, replace(uneven, splits=splits), cells, broken)


def backends(lab: Lab) -> Trials:
    """Runs a call of the model with two attention implementations; outputs must be equal."""
    names = lab.subject.backend_names()
    if len(names) < 2:
        raise Skip("only one attention implementation is known: give other implementations as backends={name: function}")
    side = lab.side()
    main = lab.sequence() if side is None else ragged(lab, [lab.sequence(), lab.sequence(1, lab.length - 7)], side)
    call = lab.call(main)
    rows, at = (index.cpu() for index in call.main.real.nonzero(as_tuple=True))
    cells = {"main": Cells(rows, at, rows, at)}
    if side is None or lab.intent.pooled in (side, "both"):
        cells["pooled"] = Cells.same(list(range(call.main.batch)), 0)
    for name in names[1:]:
        base, other = replace(call, backend=names[0]), replace(call, backend=name)
        yield Trial(f"{names[0]} against {name}", base, other, cells, CHECKS["backends"].sentence(name, names[0]))


@dataclass(frozen=True)
class Test:
    """A check of the audit."""

    title: str
    trials: Callable[[Lab], Trials] | None
    likely: str
    """The usual cause of a failure, as a text. The text names classes of mistakes of `noren.check`."""


_TRIALS: dict[str, Callable[[Lab], Trials] | None] = {
    "prefix": prefix,
    "reach": reach,
    "liveness": liveness,
    "layers": None,  # layers.py tests the layers within one pass
    "window": window,
    "padding_right": padding_right,
    "padding_left": padding_left,
    "mask_liveness": mask_liveness,
    "redaction": redaction,
    "weak_fill": weak_fill,
    "lengths": lengths,
    "batch": batch,
    "documents": documents,
    "cache": cache,
    "chunks": chunks,
    "backends": backends,
}
BATTERY = {name: Test(check.title, _TRIALS[name], check.likely) for name, check in CHECKS.items()}
"""All checks, in the order in which they are reported."""

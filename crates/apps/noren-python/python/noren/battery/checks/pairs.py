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

from ..lab import PADS, SIGNS, Lab, Skip, Unclear, hidden, padded, ragged
from ..model.subject import Stream
from ..trial import Cells, Trial
from .mates import batch
from .scan import lengths, reach

Trials = Iterator[Trial]


def _changed(lab: Lab, changes: dict[str, range], broken: str) -> Trials:
    """Yields a trial for each range of changed tokens, by the name of the change. The compared outputs may depend on none of the
    changed tokens."""
    call, hides = lab.call(), ~lab.reach("main")
    for what, tokens in changes.items():
        rows = np.flatnonzero(hides[:, tokens].all(1))
        if len(rows):
            other = call.with_tokens(lab.maker.changed(call.main.tokens, tokens))
            yield Trial(what, call, other, {"main": Cells.same([0], rows)}, broken, changed=tuple(tokens))


def prefix(lab: Lab) -> Trials:
    """Changes the end of a sequence; outputs that may not depend on this end must not change."""
    cuts = [cut for cut in (1, lab.length // 2, 64) if cut < lab.length]
    changes = {f"tokens {cut}.. changed": range(cut, lab.length) for cut in cuts}
    found = list(_changed(lab, changes, "outputs depend on tokens that come after them or that they may not read"))
    if not found:
        raise Skip("every output may read every token")
    yield from found


def window(lab: Lab) -> Trials:
    """Changes the beginning of a sequence. Outputs must not change if this beginning is too far away to influence them through
    the windows of all layers.
    """
    found = list(_changed(lab, {"tokens 0..3 changed": range(3)}, "outputs depend on tokens beyond the reach of all windows"))
    if not found:
        if not lab.shows("main", lab.length):
            raise Unclear(f"the tested length {lab.length} is too short to show the effect of a declared window: give a larger length=")
        if lab.hides_the_past() and not lab.depth("main"):
            raise Unclear("the reach of a window depends on the number of layers, which is not known: give layers=")
        reason = "through all layers, every output depends on the first tokens"
        if lab.hides_the_past() and not lab.layers:
            raise Unclear(f"{reason}, and the layers could not be tested one by one, because no layers were found")
        raise Skip(reason)
    yield from found


def liveness(lab: Lab) -> Trials:
    """Changes one token. Every output whose query may read this token in every layer must change."""
    call, direct = lab.call(), lab.direct("main")
    broken = "outputs that should depend on {} do not change with it".format
    done = False
    for token in (0, lab.length // 2, lab.length - 1):
        rows = [row for row in np.flatnonzero(direct[:, token]) if row != token]
        if rows:
            done = True
            other = call.with_tokens(lab.maker.changed(call.main.tokens, (token,)))
            yield Trial(f"token {token} changed", call, other, {"main": Cells.same([0], rows)}, broken(f"token {token}"), True, (token,))
    if call.source is not None:
        for token in (0, call.source.length - 1):
            source = replace(call.source, tokens=lab.maker.changed(call.source.tokens, (token,)))
            cells = {"main": Cells.same([0], range(lab.length)), "source": Cells.same([0], range(call.source.length))}
            what = f"the audit changed token {token} of the encoder's sequence"
            yield Trial(what, call, replace(call, source=source), cells, broken(f"encoder token {token}"), True, (token,))
    elif not done:
        raise Skip("there is no output that reads one of the changed tokens in every layer")


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
    broken = f"{{}} on the {side} changes outputs of non-padding tokens".format
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
    call, broken = lab.call(), "{} has no effect on the outputs".format
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
    gone, broken = (lab.length // 2, lab.length // 2 + 1), "outputs depend on tokens that the mask hides"
    if names.masked:
        base = replace(call, main=hidden(call.main, gone))
        other = base.with_tokens(lab.maker.changed(base.main.tokens, gone))
        rest = [i for i in range(lab.length) if i not in gone]
        what = f"tokens {gone[0]} and {gone[1]} changed, which the mask hides"
        yield Trial(what, base, other, {"main": Cells.same([0], rest)}, broken, changed=gone)
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
    broken = "hidden keys are read when their scores are large: the value that the mask adds is not low enough"
    call, names, side = lab.call(), lab.subject.arguments, lab.side()
    cut = lab.length // 2
    safe = np.flatnonzero(~lab.reach("main")[:, cut:].any(1))
    if len(safe):
        at = tuple(range(cut, lab.length))
        other = replace(call, poison={"main": at})
        yield Trial(f"the audit made all keys from key {cut} on very large", call, other, {"main": Cells.same([0], safe)}, broken, changed=at, double_only=True)
        base = replace(call.map(lambda stream: stream.repeated(SIGNS)), poison={"main": tuple(range(lab.length))})
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
        broken = f"with documents given by {_said(way)}, one document reads another document"
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
    broken = "outputs through the cache differ from the outputs of one pass"
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
        yield Trial(f"{names[0]} against {name}", base, other, cells, f"{name} and {names[0]} have different outputs")


@dataclass(frozen=True)
class Test:
    """A check of the audit."""

    title: str
    trials: Callable[[Lab], Trials] | None
    likely: str
    """The usual cause of a failure, as a text. The text names classes of mistakes of `noren.check`."""


BATTERY = {
    "prefix": Test("prefix invariance", prefix, "causal_leak or causal_dropped of docs/doctor.md: a mask that is missing or one cell too wide"),
    "reach": Test("change of one token at a time", reach, "causal_leak, sliding_window_off_by_one or implicit_causal of docs/doctor.md: a mask with one cell too many or too few"),
    "liveness": Test("liveness", liveness, "implicit_causal or causal_alignment of docs/doctor.md: a mask that hides too much"),
    "layers": Test("keys that each layer reads", None, "window_missing_or_wrong_layer, sliding_window_off_by_one, causal_leak"),  # layers.py tests the layers within one pass
    "window": Test("window reach", window, "window_missing_or_wrong_layer, sliding_window_off_by_one"),
    "padding_right": Test("padding invariance (right)", padding_right, "padding_keys_visible, pooling_includes_padding, non_attention_op_leaks_padding"),
    "padding_left": Test("padding invariance (left)", padding_left, "padding_side of docs/doctor.md (position ids that count padding tokens), or padding_keys_visible"),
    "mask_liveness": Test("mask liveness", mask_liveness, "mask_lost_on_the_way, mask_ignored_by_backend"),
    "redaction": Test("redaction swap", redaction, "padding_keys_visible, mask_ignored_by_backend"),
    "weak_fill": Test("strength of the mask value", weak_fill, "fill_value_wrong of docs/doctor.md: hidden cells hold a finite value such as -1e4 instead of -inf"),
    "lengths": Test("every length", lengths, "stale_or_bucketed_mask, causal_alignment, padding_keys_visible"),
    "batch": Test("batch-mate invariance", batch, "batch_row_wrong or head_batch_layout of docs/doctor.md, or a normalisation over the batch"),
    "documents": Test("document isolation", documents, "cross_document of docs/doctor.md: packed sequences under a plain causal mask"),
    "cache": Test("cache compared with one pass", cache, "stale_decode_mask, causal_alignment, ring_buffer_misaligned"),
    "chunks": Test("chunks compared with one pass", chunks, "causal_alignment, ring_buffer_misaligned, chunk_boundary"),
    "backends": Test("comparison of backends", backends, "mask_ignored_by_backend, fully_masked_row"),
}
"""All checks, in the order in which they are reported."""

"""`nr.audit`: runs the checks of the audit on a model."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

import numpy as np
import torch
from torch import nn

from .._noren import Error, Mask
from ..arguments._given import first_line
from .checks.pairs import BATTERY
from .checks.scan import turns
from .intent import Intent, from_config
from .lab import PADS, ROWS, Lab, Maker, Skip, Unclear, poisoned, stacks
from .layers import Column, against, columns
from .model.precision import Selections, at_rest
from .model.subject import Call, Output, Subject, subject_of
from .model.wrappers import compiled, inside
from .report import Check, Report
from .rounding import Rounding, layers_within, longest_sum
from .trace import first_to_differ
from .trial import LEAK, Measure, Outcome, Trial, Verdict, judge, measure


def audit(
    model: Any,
    intent: str | Mask | Sequence[str | Mask] | Intent | None = None,
    *,
    module: nn.Module | None = None,
    vocab: int | Sequence[int] | None = None,
    width: int | None = None,
    layers: int | None = None,
    documents: bool | str | None = None,
    checks: Iterable[str] | None = None,
    length: int | None = None,
    backends: Mapping[str, Callable[..., Any]] | None = None,
    step: Callable[..., Any] | None = None,
    exact: Callable[..., Any] | None = None,
    training: bool | None = None,
    seed: int = 0,
) -> Report:
    """Tests a model with forward passes: does an output depend on later tokens, on padding, or on other rows of the batch?

    `model` is a transformers model, a module, or a function of tokens: `[batch, length]` ids below `vocab`, or `[batch, length,
    width]` floats. Parameters are recognised by name: `attention_mask` (1 = non-padding), `key_padding_mask` (true = padding),
    `position_ids`, `segment_ids`, `cache` or `past_key_values`. The output is `[batch, length, features]`, `[batch, features]`,
    or an output of transformers. A wrapper that passes its arguments on (DistributedDataParallel, DataParallel,
    `forward(**batch)`) is called itself, but parameter names and configuration are those of the module inside. Code compiled by
    torch.compile runs uncompiled.

    `intent` is the mask that the model should have: a mask (`"causal"`, `"sliding(8)"`), one for each layer, `"bidirectional"`,
    `"encoder-decoder"` or an `Intent` [default for transformers models: from the configuration]. `layers` is the number of
    layers, for a single mask. If this mask has windows, `layers` is required.

    Each check compares two passes in the model's dtype, and two passes in float64; the float64 passes separate leaks from
    rounding. For the float64 passes, the module is converted: `model`, or `module` if `model` is a function that calls a
    module. If there is no module, give `exact`, the function in float64. In the model's dtype, a difference counts as rounding
    only if it is below the bound of `noren.battery.Rounding`. After the audit, the weights have the same bits as before.
    `length` is a number of tokens, 8 or more.

    `documents` declares that sequences are packed, and by which arguments (see `Intent.documents`). `step(tokens, state, **the
    rest)` returns (outputs, next state); give it for a model with a cache that is not from transformers. `backends` are
    functions whose outputs must be equal. `training` is true to test in training mode, false for evaluation mode [default: the
    mode of each module]; dropout is always off. `checks` are names of `noren.battery.BATTERY` [default: all].

    Raises `noren.Error` if the model cannot be called or its intent is not known. A fault of the model raises no error, but is
    listed in the report. The report is `ok` if no check failed and every check that applies has a result. The report also lists
    the untested parts.
    """
    began = time.perf_counter()
    if intent is None:
        core = inside(model) if isinstance(model, nn.Module) else model
        if not hasattr(core, "config"):
            raise Error("the mask that the model should have is unknown: give intent=\"causal\", \"bidirectional\", \"sliding(8)\", ...")
        meant = from_config(core)
    else:
        meant = Intent.of(intent, layers)
    meant = meant if documents is None else replace(meant, documents=documents)
    subject = subject_of(model, module, meant.source is not None, step, exact, backends)
    wanted = list(BATTERY) if checks is None else list(checks)
    for name in wanted:
        if name not in BATTERY:
            raise Error(f"the audit has no check {name!r}: its checks are {', '.join(BATTERY)}")
    if length is not None and length < SHORTEST:
        raise Error(f"length={length} is too small: give {SHORTEST} tokens or more, or leave out length=")
    rng = np.random.default_rng(seed)
    own_modes = training is None
    if training is None:
        training = subject.module is not None and subject.module.training
    with at_rest(subject.module, training, own_modes):
        lab = _lab(subject, meant, vocab, width, length, rng)
        found = _Run(lab).all(wanted)
    seconds = time.perf_counter() - began
    mode = "training mode without dropout" if training else "evaluation mode"
    rounding, left_out = lab.rounding, (*not_tested(lab, wanted, training, compiled(model)), *_open(found))
    return Report(subject.name, rounding.name, str(lab.intent), lab.length, found, seconds, mode, str(rounding), left_out)


SHORTEST = 8
"""The number of tokens of the shortest sequence on which every check can run."""


def _open(checks: list[Check]) -> list[str]:
    """Returns the checks that apply, but for which the audit did not find what it must change in the model."""
    missing = [c for c in checks if c.name == "weak_fill" and c.sentence.startswith(("no keys", "keys can"))]
    return [f"hidden keys whose scores are very large (weak_fill), because {c.sentence}" for c in missing]


def not_tested(lab: Lab, wanted: Sequence[str], training: bool, was_compiled: bool) -> tuple[str, ...]:
    """Returns the parts of a model that an audit does not test, as sentences."""
    takes, has_modes = lab.subject.arguments, lab.subject.module is not None
    rows = next(rows for rows in count(1) if rows + 1 not in lab.subject.sizes)
    missing = [name for name in BATTERY if name not in wanted]
    found = {
        f"sequences longer than {lab.length + PADS}": True,
        f"batches of more than {rows} rows": True,
        "masks that depend on content": True,
        "gradients": True,
        "evaluation mode": has_modes and training,
        "training mode": has_modes and not training,
        "dropout": has_modes and training,
        "a head that reads too few tokens, if another head of the layer reads the missing ones": has_modes,
        "a head that reads tokens that the declared mask allows only to another head": lab.intent.heads > 1,
        "the keys that each layer reads": not lab.layers,
        "the code that torch.compile makes of the model (the audit ran the model uncompiled)": was_compiled,
        "padding, because the model takes no mask": not takes.masked and not takes.source_masked,
        f"the checks {', '.join(missing)}": bool(missing),
    }
    return tuple(what for what, applies in found.items() if applies)


def _lab(
    subject: Subject, intent: Intent, vocab: int | Sequence[int] | None, width: int | None, length: int | None, rng: np.random.Generator
) -> Lab:
    """Returns the `Lab` of an audit of the model `subject`: the prepared inputs, the layers, the length of the test sequence,
    and the bound of rounding errors. Parts of the intent that cannot be tested with the model's inputs are removed.
    """
    maker, longest = _maker(subject, vocab, width, rng)
    if subject.hugging_face:
        intent = _what_positions_allow(subject, intent)
    lab = Lab(subject, intent, maker, 16 if length is None else length)
    call = lab.call()
    try:
        first, again = subject.run(call), subject.run(call)
    except Exception as error:
        raise _cannot_be_called(subject, error) from error
    with Selections() as selections:  # a separate pass, because PyTorch uses no fast path in this mode
        subject.run(call)
    for stream in first:
        if not torch.equal(first[stream].nan_to_num(), again[stream].nan_to_num()):
            raise Error(f"the outputs of two equal calls of {subject.name} differ: switch off dropout and other randomness, then audit again")
    if subject.module is not None:
        lab.layers = stacks(subject.module, call, intent, subject.run)
    if length is None:
        lab.pick_length(longest)
    elif longest is not None and length + 9 > longest:
        raise Error(f"length={length} is too long: audit adds up to 9 padding tokens, and the model has {longest} positions: give length={longest - 9} or less")
    depth = len(lab.layers) or (lab.depth("main") or 0) + (lab.depth("source") or 0 if intent.source is not None else 0)
    wide = longest_sum(subject.module, lab.length + PADS)
    types = {subject.dtype, *(out.dtype for out in first.values())}
    narrowest = max(types, key=lambda dtype: torch.finfo(dtype).eps)
    lab.rounding = Rounding(narrowest, depth or layers_within(subject.module), wide, selections.met)
    return lab


BATCH_FIRST = (
    "[length, batch, width] is the input of PyTorch's attention modules with batch_first=False, their default: build them with batch_first=True, "
    "or transpose their inputs and outputs"
)


def _sequence_first(module: nn.Module | None) -> bool:
    """Returns true if a module contains an attention module of PyTorch whose inputs are `[length, batch, width]`."""
    found = module.modules() if module is not None else ()
    return any(isinstance(child, nn.MultiheadAttention) and not child.batch_first for child in found)


def _cannot_be_called(subject: Subject, error: Exception) -> Error:
    hint = f". The audit gives [batch, length] or [batch, length, width]; {BATCH_FIRST}" if _sequence_first(subject.module) else ""
    return error if isinstance(error, Error) else Error(f"{subject.name} cannot be called: {first_line(error)}{hint}")


def _maker(subject: Subject, vocab: int | Sequence[int] | None, width: int | None, rng: np.random.Generator) -> tuple[Maker, int | None]:
    """Returns (generator of tokens for the model `subject`, maximum number of positions of the model, or None if there is no
    limit).
    """
    config = getattr(subject.core, "config", None)
    if vocab is None and width is None:
        if subject.hugging_face:
            model: Any = subject.core
            vocab = int(model.get_input_embeddings().num_embeddings)
        else:
            attention = [m for m in subject.module.modules() if isinstance(m, nn.MultiheadAttention)] if subject.module else []
            embeds = any(isinstance(m, nn.Embedding) for m in subject.module.modules()) if subject.module else False
            if not attention or embeds:
                raise Error("the type of the model's tokens is unknown: give vocab= (the number of token ids) or width= (the number of floats for each token)")
            width = int(attention[0].embed_dim)
    if vocab is None:
        return Maker(None, width or 0, (), rng), None
    special = _special(config)
    ids = [i for i in (range(vocab) if isinstance(vocab, int) else vocab) if i not in special]
    if len(ids) < 4:
        raise Error(f"only {len(ids)} ids are ordinary tokens (not special tokens) in a vocabulary of {vocab}: the audit needs four ordinary tokens")
    pad = getattr(config, "pad_token_id", None)
    pads = (pad if isinstance(pad, int) and pad >= 0 else 0, ids[-1])
    longest = getattr(config, "max_position_embeddings", None) or getattr(config, "n_positions", None)
    if getattr(config, "relative_attention_num_buckets", None):
        longest = None
    return Maker(ids[:-1], 0, pads, rng), longest


def _special(config: Any) -> set[int]:
    """Returns the ids of special tokens such as padding or end of text. The audit does not use them as text."""
    found: set[int] = set()
    for name, value in vars(config).items() if config is not None else ():
        if name.endswith(("_token_id", "_token_ids", "_token_index")):
            found |= {v for v in (value if isinstance(value, (list, tuple)) else [value]) if isinstance(v, int)}
    return found


def _what_positions_allow(subject: Subject, intent: Intent) -> Intent:
    """Returns `intent`. If the model has learned positions and accepts no `position_ids`, removes padding on the left from the
    intent, because such padding moves the positions of tokens.

    RoBERTa's models compute positions from the padding id, so `position_ids` is not passed to them.
    """
    assert subject.module is not None
    tables = [(n, m) for n, m in subject.module.named_modules() if n.rpartition(".")[2] in ("position_embeddings", "embed_positions", "wpe")]
    by_id = any(isinstance(m, nn.Embedding) and m.padding_idx is not None for _, m in tables)
    if by_id:
        subject.arguments = replace(subject.arguments, positions=None)
    if tables and subject.arguments.positions is None and intent.padding == "both":
        return replace(intent, padding="right")
    return intent


@dataclass
class _Seen:
    """A trial (two passes that are compared) with its measurements in the model's dtype and in float64."""

    trial: Trial
    own: Measure | None = None
    double: Measure | None = None
    error: str | None = None
    skipped: str | None = None
    where: str | None = None


KEPT = 6
"""The maximum number of forward passes whose outputs are kept for reuse."""
SEARCHES = 3
"""The maximum number of failed trials of one check for which the audit searches the faulty module."""


class _Run:
    """The execution of an audit: all trials in the model's dtype, then all trials in float64, then the verdicts."""

    def __init__(self, lab: Lab) -> None:
        self.lab, self.subject = lab, lab.subject
        self.why_not: str | None = "no float64 rerun: give module= or exact="
        self.can_double = lab.subject.module is not None or lab.subject.exact is not None
        self.layers: list[Outcome] = []
        self.searches = SEARCHES
        self._passes: dict[int, tuple[Call, Output]] = {}

    def all(self, wanted: list[str]) -> list[Check]:
        seen: dict[str, list[_Seen]] = {}
        skipped: dict[str, Skip | Unclear] = {}
        for name in wanted:
            make = BATTERY[name].trials
            try:
                seen[name] = [] if make is None else [_Seen(trial) for trial in make(self.lab)]
            except (Skip, Unclear) as reason:
                skipped[name] = reason
        times = dict.fromkeys(wanted, 0.0)
        looks = Layers(self.lab) if "layers" in seen and self.can_double else None
        self._each(seen, times, double=False)
        if looks is not None:
            looks.look(double=False)
        if self.can_double:
            with self.subject.exactly():
                self._each(seen, times, double=True)
                if looks is not None:
                    looks.look(double=True)
        if looks is not None:
            self.layers = looks.outcomes(skipped)
        checks = []
        for name in wanted:
            outcomes = self.layers if name == "layers" else [self._verdict(s) for s in seen.get(name, [])]
            checks.append(Check.of(name, BATTERY[name], outcomes, skipped.get(name), times[name]))
        failed = [check for check in checks if check.verdict is Verdict.FAIL]
        if any(check.name == "batch" for check in failed) and self._exchanged():
            hint = f"; {BATCH_FIRST}" if _sequence_first(self.subject.module) else ""
            for check in failed:
                check.likely = f"the batch and sequence axes are exchanged: tokens of one sequence do not influence each other, but tokens of other batch rows do{hint}"
        return checks

    def _exchanged(self) -> bool:
        """Returns true if a changed token changes the outputs at its position in other batch rows, but none at other positions."""
        source = self.lab.call().source
        base = Call(self.lab.sequence(3), None if source is None else source.repeated(3))
        tokens = base.main.tokens.clone()
        tokens[1] = self.lab.maker.changed(tokens[1:2], (2,))[0]
        before, after = (self._fresh(call, False).get("main") for call in (base, base.with_tokens(tokens)))
        if before is None or after is None:
            return False
        moved = (before != after).any(2)
        return bool(moved[[0, 2], 2].any() and not moved[:, [i for i in range(moved.shape[1]) if i != 2]].any())

    def _each(self, seen: dict[str, list[_Seen]], times: dict[str, float], double: bool) -> None:
        self._passes.clear()
        for name, found in seen.items():
            began = time.perf_counter()
            self.searches = SEARCHES
            for one in found:
                if one.error is None and (double or not one.trial.double_only):
                    self._one(one, double)
            times[name] += time.perf_counter() - began

    def _one(self, seen: _Seen, double: bool) -> None:
        trial = seen.trial
        try:
            base, other = self._pass(trial.base, double), self._pass(trial.other, double)
        except Skip as reason:
            seen.skipped = str(reason)
            return
        except Exception as error:  # every exception of the model becomes a result of the trial
            if double and seen.own is not None:
                self.why_not = f"no float64 rerun: {first_line(error)}"
            else:
                seen.error = f"the model raised {first_line(error)}"
            return
        floor = LEAK if double else 0.0 if trial.same_operations else self.lab.rounding.bound
        found = measure(trial, base, other, floor)
        if not double:
            seen.own = found
            return
        seen.double = found
        module = self.subject.module
        leaks = found is not None and not trial.moved and not found.difference <= LEAK
        if leaks and module is not None and self.searches > 0:
            self.searches -= 1
            seen.where = first_to_differ(module, trial, lambda call: self._fresh(call, True))

    def _pass(self, call: Call, double: bool) -> Output:
        """Returns the outputs of the forward pass `call`, in float64 if `double` is true. The outputs of the last `KEPT` passes
        are kept, because several trials use the same pass."""
        if id(call) in self._passes:
            kept = self._passes.pop(id(call))
        else:
            kept = (call, self._fresh(call, double))
            while len(self._passes) >= KEPT:
                self._passes.pop(next(iter(self._passes)))
        self._passes[id(call)] = kept
        return kept[1]

    def _fresh(self, call: Call, double: bool) -> Output:
        if not call.poison:
            return self.subject.run(call, double)
        assert self.subject.module is not None
        with poisoned(self.subject.module, call, dict(call.poison)) as met:
            out = self.subject.run(call, double)
        if not met:
            raise Skip("no keys were found: the model does not call scaled_dot_product_attention and has no projection to keys named k_proj, key, k, ...")
        return out

    def _verdict(self, seen: _Seen) -> Outcome:
        if seen.skipped is not None:
            return Outcome(seen.trial.what, Verdict.NOT_APPLICABLE, seen.skipped)
        if seen.error is not None:
            return Outcome(seen.trial.what, Verdict.INCONCLUSIVE, seen.error)
        outcome = judge(seen.trial, seen.own, seen.double, self.why_not, self.lab.rounding)
        outcome.where = seen.where
        return outcome


class Layers:
    """The test of each layer alone. Every token of the layer's input is changed, in the model's dtype and in float64, to find
    the outputs of the layer that depend on it."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.call = lab.call().map(lambda stream: stream.repeated(ROWS))
        self.found: dict[bool, dict[tuple[str, int], Column]] = {False: {}, True: {}}
        self.errors: list[Outcome] = []

    def look(self, double: bool) -> None:
        for stream, given in self.call.streams().items():
            layers = [layer for layer in self.lab.layers if layer.stream == stream]
            for tokens in turns(given.length) if layers else ():
                try:
                    for column in columns(layers, self.call, tokens, lambda call: self.lab.subject.run(call, double)):
                        self.found[double][column.layer.name, column.token] = column
                except Exception as error:
                    what = f"the audit changed tokens {min(tokens)}..{max(tokens) + 1} of the layers' input"
                    self.errors.append(Outcome(what, Verdict.INCONCLUSIVE, f"the model raised {first_line(error)}"))
                    return

    def outcomes(self, skipped: dict[str, Skip | Unclear]) -> list[Outcome]:
        """Returns one outcome for each layer. A failure names the first token whose influence within the layer differs from the
        layer's mask.
        """
        lab = self.lab
        if not lab.layers:
            skipped["layers"] = Skip("no stack of layers was found that has as many layers as the intent has masks")
            return []
        found = list(self.errors)
        for layer in lab.layers:
            seen = [column for (name, _), column in self.found[True].items() if name == layer.name]
            wrong = [(column, said) for column in seen if (said := self._against(column)) is not None]
            if wrong:
                column, said = wrong[0]
                count = f" ({len(wrong)} of {len(seen)} tokens)" if len(wrong) > 1 else ""
                what = f"the audit changed token {column.token} of the input of `{layer.name}`"
                found.append(Outcome(what, Verdict.FAIL, said + count, changed=(column.token,)))
            elif seen:
                what = f"the audit changed each of {len(seen)} tokens of the input of `{layer.name}`"
                found.append(Outcome(what, Verdict.PASS, "the layer reads exactly the tokens that the intent's mask allows"))
        if not lab.shows("main", lab.length):
            said = f"the tested length {lab.length} is too short to show the effect of a declared window: give a larger length="
            found.append(Outcome("windows", Verdict.INCONCLUSIVE, said))
        return found

    def _against(self, column: Column) -> str | None:
        own = self.found[False].get((column.layer.name, column.token))
        return against(self.lab.intent, column, own, self.lab.depth(column.layer.stream) or 1, self.lab.rounding)

"""Runs a model with other private tokens, and compares the outputs of the runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .._noren import Error
from ..arguments._given import first_line, integer, short, whole
from ._encode import Encoded
from ._find import items
from ._masked import computing, model_of
from ._outputs import OF_TOKENS, Output, chosen, differing, outputs
from ._policy import Hide, Policy, check_policy
from ._proof import Leak, Proof, Verdict
from ._state import Record, State
from ._tokens import Tokens

MOST_TRIALS = 1000
"""The maximum value of `trials`: the number of model runs with other private tokens."""
MOST_LEAKS = 1000
"""The approximate maximum number of leaks that a proof lists. No leaks are added to a list that has reached it."""
NAN = "NaN in place of the secrets"


def prove(
    model: Any,
    encoded: Encoded,
    policy: Policy | None = None,
    *,
    trials: int = 3,
    seed: int = 0,
    new_tokens: int = 0,
    choices: Iterable[int] | None = None,
    others: Sequence[Encoded] = (),
    inputs: Mapping[str, Any] | None = None,
) -> Proof:
    """Runs a model with the text, then with other tokens in place of the private ones, and compares the bits of released
    outputs.

    `model` is a model of transformers or a function of `input_ids`. A model computes with `policy` [default: `Hide()`] as in
    `masked`; it is tested even if it mixes tokens without attention. A function is called without changes, and must hide the
    private tokens itself. `encoded` are the tokens (`encode`). In each of `trials` runs, every private token is replaced by
    another one of `choices` [default: the vocabulary without special tokens], drawn with `seed`. `others` are further texts
    that differ from the first in secrets of the same number of tokens. In one more run, the embeddings of private tokens are
    NaN; every number that is computed from them becomes NaN. All outputs are compared: logits, states of all layers, pooled
    states, classes. `new_tokens` also compares the logits of a continuation. `inputs` are further arguments of the model, such
    as `decoder_input_ids`.

    The proof states what it established and what it could not: `print(proof)`. Outputs whose first dimensions are `[batch,
    length]` belong to tokens; other outputs belong to whole texts, and are released if a token of the text is released.

    >>> import torch
    >>> encoded = Encoded({"input_ids": torch.tensor([[5, 7, 9]])}, Tokens.of({"name": [False, True, False]}))
    >>> table = torch.arange(20.0).reshape(10, 2)
    >>> prove(lambda ids: table[ids], encoded, choices=range(10))
    <holds: 3 runs with replaced private tokens, all bits of 4 released numbers are equal>
    >>> prove(lambda ids: table[ids].cumsum(1), encoded, choices=range(10)).verdict
    'leaks'

    Raises `Error` if the model cannot compute the tokens, or cannot compute its attention with noren.
    """
    test = _Test(model, encoded, check_policy(Hide() if policy is None else policy), {} if inputs is None else inputs)
    trials, seed, new_tokens = whole("trials", trials, 0, MOST_TRIALS), whole("seed", seed, 0, 1 << 63), whole("new_tokens", new_tokens, 0, 1 << 16)
    swapped = test.replaced(trials, seed, choices) + test.given(others)
    if new_tokens:
        test.check_continuation(new_tokens)
    reason = test.empty_reason()
    if reason:
        return test.nothing(reason)
    if not swapped:
        return test.nothing("no model run with other secrets was requested: give trials=, the number of such runs, or others=, texts with other secrets")
    with torch.no_grad():
        return test.run(swapped, new_tokens)


@dataclass
class _Seen:
    """The results of the model runs up to now."""

    compared: int = 0
    leaks: list[Leak] = field(default_factory=list)
    changed: NDArray[np.bool_] | None = None
    named: list[str] = field(default_factory=list)
    unsure: str = ""
    """The name of an output that changes only at the positions of private tokens, if it is not known whether its numbers belong
    to tokens or to whole texts; otherwise empty."""


class _Test:
    def __init__(self, model: Any, encoded: Encoded, policy: Policy, inputs: Any) -> None:
        if not isinstance(encoded, Encoded):
            raise TypeError(f"`encoded` is {short(encoded)}: give the result of nr.private.encode, or nr.private.Encoded(inputs, tokens)")
        if not isinstance(inputs, Mapping) or not all(isinstance(name, str) for name in inputs):
            raise TypeError(f"`inputs` is {short(inputs)}: give a dict of further arguments of the model")
        if "input_ids" in inputs:
            raise Error("`inputs` and `encoded` both contain input_ids: give only further arguments of the model in `inputs`")
        self.inner = model_of(model)
        if self.inner is None and not callable(model):
            raise TypeError(f"`model` is {short(model)}: give a model of transformers, or a function of input_ids")
        if "inputs_embeds" in encoded.inputs or "inputs_embeds" in inputs:
            raise Error("inputs_embeds is given, but embeddings hold the private text and cannot be replaced: give input_ids")
        self.model, self.encoded, self.policy = model, encoded, policy
        self.tokens: Tokens = encoded.tokens
        device = getattr(self.inner, "device", None)
        self.arguments = {name: given if device is None else given.to(device) for name, given in encoded.inputs.items()} | dict(inputs)
        self.ids = self.arguments["input_ids"]
        known = self.arguments.get("attention_mask")
        real = self.tokens.real
        if isinstance(known, Tensor) and known.shape == self.ids.shape:
            real = real & known.bool().cpu().numpy()
        self.released = policy.released(self.tokens) & real
        self.secret = policy.secret(self.tokens) & real
        config = getattr(self.inner, "config", None)
        self.encodes = bool(getattr(config, "is_encoder_decoder", False))
        if self.encodes and not any(name in self.arguments for name in ("decoder_input_ids", "decoder_inputs_embeds")):
            raise Error(f'{type(self.inner).__name__} has a decoder: give its tokens, inputs={{"decoder_input_ids": ids}}; some models would make them from input_ids, with the secrets')
        # Numbers of a whole text are released unless the policy releases none of its tokens.
        self.rows: NDArray[np.bool_] = np.asarray(self.released.any(1))
        self.withheld: tuple[int, ...] = ()
        self.poisoned = ""

    # --- the replaced tokens --------------------------------------------------------------------------------------

    def empty_reason(self) -> str:
        if not self.secret.any():
            return "the text has no private token that the policy hides from the reader"
        if not self.released.any():
            return "the policy releases no output, so no output can be compared"
        return ""

    def replaced(self, trials: int, seed: int, choices: Iterable[int] | None) -> list[tuple[str, Tensor]]:
        """Returns (name of the run, token ids) for each of `trials` runs. In these ids, other tokens replace the private ones.
        """
        vocabulary = self._choices(choices)
        if len(vocabulary) < 2:
            raise Error(f"`choices` has {len(vocabulary)} tokens: give at least two, because a private token is replaced by another one")
        rng = np.random.default_rng(seed)
        own = self.encoded.ids
        found = []
        for trial in range(trials):
            drawn = rng.integers(len(vocabulary), size=own.shape)
            same = vocabulary[drawn] == own
            other = np.where(same, vocabulary[(drawn + 1) % len(vocabulary)], vocabulary[drawn])
            ids = np.where(self.secret, other, own)
            found.append((f"other secrets {trial + 1}", torch.from_numpy(ids).to(self.ids.device, self.ids.dtype)))
        return found

    def _choices(self, choices: Iterable[int] | None) -> NDArray[np.int64]:
        size = next((len(table.weight) for table in self._tables() if hasattr(table, "weight")), None)
        if choices is not None:
            return _given_choices(choices, size)
        tokenizer = self.encoded.tokenizer
        known = len(tokenizer) if hasattr(tokenizer, "__len__") else getattr(tokenizer, "get_vocab_size", lambda: None)()
        count = min(number for number in (size, known, 1 << 31) if number)
        if count == 1 << 31:
            raise Error("the size of the vocabulary is unknown: give choices=, the tokens that may replace private ones")
        special = set(getattr(tokenizer, "all_special_ids", ()))
        added = tokenizer.get_added_tokens_decoder() if hasattr(tokenizer, "get_added_tokens_decoder") else getattr(tokenizer, "added_tokens_decoder", {})
        special |= {id for id, token in added.items() if token.special}
        config = getattr(self.inner, "config", None)
        for name, value in (vars(config) if config is not None else {}).items():
            if name.endswith(("token_id", "token_index")):
                special |= {id for id in (value if isinstance(value, list) else [value]) if isinstance(id, int)}
        return np.array([id for id in range(count) if id not in special], np.int64)

    def given(self, others: Sequence[Encoded]) -> list[tuple[str, Tensor]]:
        """Returns (name of the run, token ids) for each text of `others`. Raises `Error` for a text that differs from the given
        text in more than its private tokens, or has them at other positions.
        """
        if not isinstance(others, (list, tuple)) or not all(isinstance(other, Encoded) for other in others):
            raise TypeError(f"`others` is {short(others)}: give a list of encoded texts, the results of nr.private.encode")
        found = []
        for at, other in enumerate(others):
            same = other.tokens.shape == self.tokens.shape and bool((self.policy.secret(other.tokens) == self.policy.secret(self.tokens)).all())
            if not same or not (other.ids == self.encoded.ids)[~self.secret].all() or not self._same_arguments(other):
                raise Error(f"`others[{at}]` has other public tokens, or private tokens in other places: give texts whose secrets have the same number of tokens")
            if (other.ids == self.encoded.ids).all():
                raise Error(f"`others[{at}]` has the same tokens as the given text: give a text with other secrets")
            found.append((f"others[{at}]", torch.from_numpy(other.ids).to(self.ids.device, self.ids.dtype)))
        return found

    def _same_arguments(self, other: Encoded) -> bool:
        """Returns true if `other` and the given text differ in their token ids only: all other arguments of the model and the
        padding are equal."""
        own = self.encoded.inputs
        return bool(
            (other.tokens.real == self.tokens.real).all()
            and own.keys() == other.inputs.keys()
            and all(torch.equal(own[name].cpu(), other.inputs[name].cpu()) for name in own if name != "input_ids")
        )

    def check_continuation(self, new_tokens: int) -> None:
        """Raises `Error` if the model cannot continue the texts by `new_tokens` tokens. Stores in `withheld` the batch rows
        whose last token the policy does not release; their continuations are not compared.
        """
        if self.inner is None or not self.inner.can_generate():
            raise Error(f"new_tokens is {new_tokens}, but the model cannot continue texts: leave new_tokens out")
        if not self.encodes:
            if not self.tokens.real[:, -1].all():
                raise Error('the rows have padding on the right, and a continuation would begin after the padding: give padding_side="left" to nr.private.encode')
            self.withheld = tuple(np.flatnonzero(~self.released[:, -1]).tolist())

    # --- runs -----------------------------------------------------------------------------------------------------

    def _call(self, ids: Tensor, new_tokens: int) -> list[Output]:
        """Runs the model on the token ids `ids` and returns its outputs, including those of a continuation of `new_tokens`
        tokens."""
        try:
            return self._outputs(ids, new_tokens)
        except Error:
            raise
        except Exception as error:  # models raise errors of any type for tokens and arguments that they cannot compute
            raise Error(f"the model cannot compute these tokens ({first_line(error)}): check the arguments encoded and inputs") from error

    def _outputs(self, ids: Tensor, new_tokens: int) -> list[Output]:
        shape = (self.ids.shape[0], self.ids.shape[1])
        if self.inner is None:
            return outputs(self.model(ids.clone()), shape, encodes=False)
        arguments = {**self.arguments, "input_ids": ids.clone()}
        returned = self.model(**{"output_hidden_states": True, "return_dict": True, **arguments})
        # The discriminator of ELECTRA returns one number for each token.
        names = (*OF_TOKENS, "logits") if type(self.inner).__name__ == "ElectraForPreTraining" else OF_TOKENS
        found = outputs(returned, shape, encodes=self.encodes, of_tokens=names)
        if new_tokens:
            # With the tokens that end a text, runs would have different lengths.
            made = self.inner.generate(
                **arguments, max_new_tokens=new_tokens, min_new_tokens=new_tokens, do_sample=False, num_beams=1, output_logits=True,
                return_dict_in_generate=True,
            )  # fmt: skip
            found += [Output(f"continuation[{step}]", logits, "row") for step, logits in enumerate(made.logits)]
        return found

    def run(self, swapped: list[tuple[str, Tensor]], new_tokens: int) -> Proof:
        if self.inner is None:
            return self._compare(swapped, new_tokens, None, None)
        plain = self._without_policy(swapped[0][1])
        with computing(self.model, self.tokens, self.policy, strict=False) as state:
            return self._compare(swapped, new_tokens, state, plain)

    def _without_policy(self, ids: Tensor) -> int:
        """Returns the number of elements of released outputs that differ between the given text and `ids` if the model runs
        without the policy.
        """
        with computing(self.model, self.tokens.only(np.zeros_like(self.secret)), Hide(), strict=False):
            own, other = self._call(self.ids, 0), self._call(ids, 0)
        _check_names(own, other)
        return sum(int((differing(a.tensor, b.tensor) & self._chosen(a)).sum()) for a, b in zip(own, other, strict=True))

    def _compare(self, swapped: list[tuple[str, Tensor]], new_tokens: int, state: State | None, plain: int | None) -> Proof:
        if state is not None:
            state.records = []
        own = self._call(self.ids, new_tokens)
        records: tuple[Record, ...] = ()
        if state is not None:
            records, state.records = tuple(state.records or ()), None
        bad = next((out for out in own if out.tensor.is_floating_point() and not out.tensor[self._chosen(out).expand_as(out.tensor)].isfinite().all()), None)
        seen = _Seen(compared=sum(int(self._chosen(out).expand_as(out.tensor).sum()) for out in own))
        again = self._call(self.ids, new_tokens)
        unequal = len(own) != len(again) or any(bool(differing(a.tensor, b.tensor).any()) for a, b in zip(own, again, strict=True))
        if unequal:
            return self.nothing("two runs with the same tokens returned different numbers: call model.eval(), and fix the seed of a function that samples", records)
        for name, ids in swapped:
            self._look(seen, name, own, self._call(ids, new_tokens), count=True)
        self._poison(seen, own, new_tokens)
        return self._proof(seen, records, plain, new_tokens, bad)

    def _chosen(self, output: Output) -> Tensor:
        rows = self.rows
        if output.name.startswith("continuation["):
            rows = np.array([row not in self.withheld for row in range(len(rows))])
        return chosen(output, self.released, rows)

    def _look(self, seen: _Seen, name: str, own: list[Output], other: list[Output], count: bool) -> None:
        """Compares the outputs `own` (run on the given text) with the outputs `other` (run with the name `name`), and adds the
        differences to `seen`. If `count` is true, changed outputs of private tokens are counted too.
        """
        seen.named.append(name)
        _check_names(own, other)
        for a, b in zip(own, other, strict=True):
            differs = differing(a.tensor, b.tensor)
            if a.owner == "token" and not a.unsure and count:
                moved = differs.flatten(2).any(2) if differs.dim() > 2 else differs
                marks = moved.cpu().numpy()
                seen.changed = marks if seen.changed is None else seen.changed | marks
            bad = differs & self._chosen(a)
            if a.unsure and differs.any() and not bad.any():
                seen.unsure = a.name
            if bad.any() and len(seen.leaks) < MOST_LEAKS:
                seen.leaks += _leaks(a, b, bad, name, (self.ids.shape[0], self.ids.shape[1]))

    def _poison(self, seen: _Seen, own: list[Output], new_tokens: int) -> None:
        """Runs the model with NaN in the embeddings of private tokens, and adds to `seen` the differences from the outputs
        `own` of the run on the given text."""
        if self.inner is None:
            self.poisoned = "a function was given as the model, so embeddings could not be replaced"
            return
        met = [0]
        with _poisoned(self._tables(), self.ids, torch.from_numpy(self.secret).to(self.ids.device), met):
            other = self._call(self.ids, new_tokens)
        if not met[0]:
            self.poisoned = "no embedding of the model was called with these tokens, so embeddings could not be replaced"
            return
        self._look(seen, NAN, own, other, count=False)

    def _tables(self) -> list[Any]:
        """Returns the embedding modules of the model."""
        if self.inner is None:
            return []
        found = [part for part in self.inner.modules() if isinstance(part, torch.nn.Embedding)]
        try:
            return list({id(part): part for part in [self.inner.get_input_embeddings(), *found]}.values())
        except (NotImplementedError, AttributeError):
            return found

    # --- the verdict ----------------------------------------------------------------------------------------------

    def _proof(self, seen: _Seen, records: tuple[Record, ...], plain: int | None, new_tokens: int, bad: Output | None) -> Proof:
        changed = 0 if seen.changed is None else int((seen.changed & self.secret).sum())
        verdict: Verdict = "holds"
        reason = ""
        if seen.leaks or any(record.allowed for record in records):
            verdict = "leaks"
        elif bad is not None:
            verdict, reason = "nothing established", f"{bad.name} holds NaN or infinite numbers with the given text: numbers that are not finite hide differences"
        elif seen.unsure:
            verdict, reason = "nothing established", (
                f"{seen.unsure} has one number for each token of a row, and the numbers at private tokens change: it is unknown whether they "
                "belong to tokens or to the whole text. Return [batch, length, 1] for numbers of tokens, or a text of another length"
            )
        elif not changed and not plain:
            verdict, reason = "nothing established", (
                "no output of a private token was returned, or none changed: it is unknown whether the model read the replaced tokens. Return outputs for each token"
            )
        elif not seen.compared:
            verdict, reason = "nothing established", "the model returned no released number, so nothing could be compared"
        return Proof(
            verdict, reason, tuple(seen.named), seen.compared, tuple(seen.leaks), int(self.secret.sum()), changed, self.withheld, records, plain,
            self._established(seen, records, plain, verdict), self._not_established(records, new_tokens),
        )  # fmt: skip

    def nothing(self, reason: str, records: tuple[Record, ...] = ()) -> Proof:
        """Returns a proof that established nothing, with the reason."""
        private = int(self.secret.sum())
        return Proof("nothing established", reason, (), 0, (), private, 0, self.withheld, records, None, (), self._not_established(records, 0))

    def _established(self, seen: _Seen, records: tuple[Record, ...], plain: int | None, verdict: Verdict) -> tuple[str, ...]:
        if verdict != "holds":
            return ()
        total = int(self.secret.sum())
        found = [f"All bits of {seen.compared} released numbers are those of the given text in {len(seen.named)} model runs: {', '.join(seen.named)}."]
        if records:
            pairs = sum(record.pairs for record in records)
            found.append(f"The masks of {len(records)} attention calls of noren allow none of the {pairs} cells (public query, private key) that the policy denies.")
        changed = 0 if seen.changed is None else int((seen.changed & self.secret).sum())
        if changed:
            found.append(f"The model read the replaced tokens: the outputs at {changed} of {total} private tokens change.")
        if plain is not None:
            found.append(f"Without the policy, the first replacement of private tokens changes {plain} of the released numbers of one call.")
        return tuple(found)

    def _not_established(self, records: tuple[Record, ...], new_tokens: int) -> tuple[str, ...]:
        found = [
            f"Private text that no detector found was not replaced: {self.encoded.found[0].not_looked_for}." if self.encoded.found
            else "The private tokens were given by the caller, not found by a search: it is unknown whether these are all private tokens.",
            "The number and the positions of private tokens are equal in all runs: outputs may depend on them, and so may the rest of the text.",
            "Only the secrets, texts and batches of the model runs were tested, which are samples. The examined masks hide the private keys for every content.",
            "Outputs at private tokens and caches contain the secrets: release neither.",
        ]
        found += self._unobserved(records)
        if self.poisoned:
            found.append(f"No run with NaN in the place of the secrets was compared: {self.poisoned}.")
        if self.withheld:
            found.append(f"The continuation of row(s) {', '.join(map(str, self.withheld))}: the text ends inside a secret, so its continuation depends on the secret. Do not release it.")
        elif not new_tokens and self.inner is not None and self.inner.can_generate():
            found.append("Continuations of the text were not tested: give new_tokens= to test them.")
        return tuple(found)

    def _unobserved(self, records: tuple[Record, ...]) -> list[str]:
        if self.inner is None:
            return ["The masks of the model were not observed: a function was given in the place of the model."]
        text = self.inner.config.get_text_config() if not self.encodes else self.inner.config
        layers = getattr(text, "num_hidden_layers", None)
        modules = {record.module for record in records}
        found = [
            "Paths between tokens other than attention (convolutions, recurrent states, norms over tokens, routing that counts tokens) are tested only by the model runs."
        ]
        if isinstance(layers, int) and len(modules) < layers:
            found.append(f"The masks of {layers - len(modules)} of {layers} layers were not observed: only {len(modules)} modules computed attention with noren.")
        return found


def _check_names(own: list[Output], other: list[Output]) -> None:
    if [out.name for out in own] != [out.name for out in other]:
        raise Error(f"two model runs returned outputs of different names ({len(own)} and {len(other)} outputs), which cannot be compared")


def _given_choices(choices: Any, size: int | None) -> NDArray[np.int64]:
    listed = [integer("choices", id) for id in items("choices", choices)]
    most = (size or 1 << 31) - 1
    bad = next((id for id in listed if not 0 <= id <= most), None)
    if bad is not None or len(set(listed)) < 2:
        raise Error(f"`choices` has {len(set(listed)) if bad is None else bad}: give at least two different tokens of the vocabulary, as numbers from 0 to {most}")
    return np.unique(np.array(listed, np.int64))


@contextmanager
def _poisoned(tables: list[Any], ids: Tensor, secret: Tensor, met: list[int]) -> Iterator[None]:
    """Inside a `with` statement, replaces the embeddings of private tokens by NaN. Only calls of the embedding modules `tables`
    with the token ids `ids` are changed; `met[0]` counts them.
    """

    def replace(_: Any, args: tuple[Any, ...], output: Any) -> Any:
        given = args[0] if args else None
        same = isinstance(given, Tensor) and given.shape == ids.shape and torch.equal(given, ids)
        if not same or not isinstance(output, Tensor) or output.shape[:2] != ids.shape or not output.is_floating_point():
            return output
        met[0] += 1
        return output.masked_fill(secret.reshape(*secret.shape, *([1] * (output.dim() - 2))), torch.nan)

    with ExitStack() as hooks:
        for table in tables:
            hooks.enter_context(table.register_forward_hook(replace))
        yield


def _leaks(a: Output, b: Output, bad: Tensor, run: str, shape: tuple[int, int]) -> list[Leak]:
    """Returns the leaks in one output: one leak for each token or each batch row that has a changed number, or one leak for the
    whole batch."""
    gap = (a.tensor.double() - b.tensor.double()).abs() if not a.tensor.is_complex() else (a.tensor - b.tensor).abs().double()
    gap = torch.where(bad, gap.nan_to_num(torch.inf, torch.inf, torch.inf), 0.0)
    if a.owner == "batch":
        return [Leak(a.name, None, None, int(bad.sum()), float(gap.max()), run)]
    if a.owner == "row":
        rows = (bad.flatten(1).any(1) if bad.dim() > 1 else bad).nonzero()[:, 0].tolist()
        return [Leak(a.name, row, None, int(bad[row].sum()), float(gap[row].max()), run) for row in rows]
    if a.owner == "query":
        bad, gap = bad.transpose(1, 2), gap.transpose(1, 2)
    if a.owner == "flat":
        bad, gap = (part.reshape(*shape, *part.shape[1:]) for part in (bad, gap))
    found = (bad.flatten(2).any(2) if bad.dim() > 2 else bad).nonzero()
    return [
        Leak(a.name, row, token, int(bad[row, token].sum()), float(gap[row, token].max()), run)
        for row, token in cast(list[tuple[int, int]], found.tolist()[:MOST_LEAKS])
    ]

"""`noren.private` on tiny models of transformers: swapped secrets, generation, masks that are broken on purpose, and proofs."""

from __future__ import annotations

import copy
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import pytest

import noren as nr
from conftest import sampled
from noren.private import Clearance, Detectors, Encoded, Heads, Hide, Tokens, encode

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytest.importorskip("tokenizers")
from private_text import characters  # noqa: E402
from transformers import AutoConfig  # noqa: E402

import noren.hf  # noqa: E402
from noren.private import masked, pool, prove  # noqa: E402
from noren.private._state import State  # noqa: E402

TOKENIZER = characters()
VOCABULARY = TOKENIZER.get_vocab_size()
SIZES = {
    "vocab_size": VOCABULARY, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2,
    "max_position_embeddings": 128, "pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 3, "head_dim": 8,
}  # fmt: skip
BERT = {name: value for name, value in SIZES.items() if name not in ("num_key_value_heads", "head_dim")} | {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
T5 = {"vocab_size": VOCABULARY, "d_model": 32, "d_ff": 48, "d_kv": 8, "num_layers": 2, "num_heads": 4, "dropout_rate": 0.0, "pad_token_id": 0, "decoder_start_token_id": 2, "eos_token_id": 3}
BART = {
    "vocab_size": VOCABULARY, "d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 48, "max_position_embeddings": 128, "dropout": 0.0, "pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 3, "decoder_start_token_id": 2, "forced_eos_token_id": None,
}  # fmt: skip
MODELS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "Llama": ("llama", "CausalLM", SIZES),
    "Mistral": ("mistral", "CausalLM", SIZES | {"sliding_window": 6}),
    "Gemma 3": ("gemma3_text", "CausalLM", SIZES | {"sliding_window": 5, "layer_types": ["sliding_attention", "full_attention", "sliding_attention"]}),
    "GPT-2": ("gpt2", "CausalLM", {"vocab_size": VOCABULARY, "n_embd": 32, "n_layer": 3, "n_head": 4, "n_positions": 128, "bos_token_id": 2, "eos_token_id": 3, "pad_token_id": 0}),
    "BERT": ("bert", "MaskedLM", BERT),
    "RoBERTa": ("roberta", "MaskedLM", BERT | {"max_position_embeddings": 130}),
    "ModernBERT": ("modernbert", "MaskedLM", BERT | {"local_attention": 6, "global_attn_every_n_layers": 2, "cls_token_id": 2, "sep_token_id": 3}),
    "T5": ("t5", "Seq2SeqLM", T5),
    "BART": ("bart", "Seq2SeqLM", BART),
}
DECODERS = ("Llama", "Mistral", "Gemma 3", "GPT-2")
BOTH = ("T5", "BART")
POLICIES: dict[str, Any] = {"Hide": Hide(), "Clearance": Clearance({"email": 2, "name": 1}), "Clearance of a reader": Clearance({"email": 2, "name": 1}, reader=1)}
TEXTS = ["I am Ann Lee, or ann@x.example today", "ask bob@y.example", "the river runs", "Ann Lee"]
OTHER = ["I am Zoe Fox, or zed@q.example today", "ask ivy@z.example", "the river runs", "Zoe Fox"]
DETECTORS = Detectors("email", words={"name": ["Ann Lee", "Zoe Fox"]})


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> Iterator[None]:
    """Computes in one thread: the models are so small that several threads of PyTorch are slower."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@cache
def made(name: str, attention: str = "sdpa", **more: Any) -> Any:
    kind, head, sizes = MODELS[name]
    torch.manual_seed(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        config = AutoConfig.for_model(kind, **(sizes | more))
        model = getattr(transformers, f"AutoModelFor{head}").from_config(config, attn_implementation=attention).eval()
    for weight in model.parameters():  # larger weights than those of training's first step, so that differences stay visible
        torch.nn.init.normal_(weight, 0.3 * (weight.dim() == 1), 0.2)
    return model


def encoded(texts: list[str] = TEXTS, side: str = "right", kinds: Detectors = DETECTORS, **more: Any) -> Encoded:
    return encode(TOKENIZER, texts, kinds, padding_side=side, **more)  # type: ignore[arg-type]


def decoder_inputs(name: str, rows: int = len(TEXTS)) -> dict[str, Any]:
    return {"decoder_input_ids": torch.arange(5, 9).repeat(rows, 1)} if name in BOTH else {}


def states(model: Any, given: Encoded, **inputs: Any) -> Any:
    """Returns the logits and the states of the text's tokens, `[layers, batch, length, width]`."""
    with torch.no_grad():
        out = model(**given.inputs, **inputs, output_hidden_states=True)
    found = out.encoder_hidden_states if "decoder_input_ids" in inputs else out.hidden_states
    return out.logits, torch.stack(found)


def bits(tensor: Any) -> Any:
    return tensor.contiguous().view(torch.int32)


@pytest.mark.parametrize("name", ["Llama", "BERT"])
def test_compiled_models_compute_with_the_policy(name: str) -> None:
    """A compiled model computes the policy's masks, also after calls without a policy."""
    torch._dynamo.reset()
    noren.hf.register()
    model, given = copy.deepcopy(made(name, "noren", num_hidden_layers=1)), encoded()
    run = torch.compile(model, backend="eager")
    more = {} if name == "BERT" else {"use_cache": False}
    with torch.no_grad():
        plain = run(**given.inputs, **more).logits
        with masked(model, given):
            wanted, found = model(**given.inputs, **more).logits, run(**given.inputs, **more).logits
        real = given.inputs["attention_mask"].bool()
        torch.testing.assert_close(found[real], wanted[real], rtol=1e-5, atol=1e-5)
        assert (plain - wanted)[real].abs().max() > 1e-3
        torch.testing.assert_close(run(**given.inputs, **more).logits[real], plain[real], rtol=1e-5, atol=1e-5)


# --- swapped secrets ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "policy", "side"), sampled(product(MODELS, POLICIES, ["right", "left"]), 5))
def test_swapped_secrets_change_no_visible_bit(name: str, policy: str, side: str) -> None:
    model, rule = made(name), POLICIES[policy]
    one, two = encoded(TEXTS, side), encoded(OTHER, side)
    inputs = decoder_inputs(name)
    assert (one.tokens.private == two.tokens.private).all() and (one.ids != two.ids).sum() == 20
    released, secret = rule.released(one.tokens), rule.secret(one.tokens)
    swapped = Encoded({**one.arrays, "input_ids": np.where(secret, two.ids, one.ids)}, one.tokens)  # the reader's own tokens stay
    with masked(model, one, rule):
        (logits, own), (other_logits, other) = states(model, one, **inputs), states(model, swapped, **inputs)
    same = (bits(own) == bits(other)).all(-1).all(0).numpy()
    assert same[released].all() and not same[secret & (one.ids != two.ids)].any()
    (plain_logits, plain), (plain_other_logits, plain_other) = states(model, one, **inputs), states(model, swapped, **inputs)
    assert not (bits(plain) == bits(plain_other)).all(-1).all(0).numpy()[released & secret.any(1, keepdims=True)].all()
    if inputs:  # the decoder reads all rows, and its outputs are released
        assert (bits(logits) == bits(other_logits)).all()
        assert not (bits(plain_logits) == bits(plain_other_logits)).all()
    else:
        assert (bits(logits) == bits(other_logits)).all(-1).numpy()[released].all()
    assert released.sum() > 20 and secret.sum() >= 20


@pytest.mark.parametrize(("policy", "name", "side"), sampled(product([*POLICIES, "Heads"], ["Llama", "Mistral", "GPT-2", "BERT", "RoBERTa"], ["right", "left"]), 3))
def test_outputs_are_those_of_eager_attention_with_the_mask_as_an_array(name: str, policy: str, side: str) -> None:
    if (policy, name) == ("Heads", "Mistral"):
        pytest.skip("a private token whose window is private reads nothing in noren, and the mean of all keys in eager attention")
    rule = Heads([0, 2]) if policy == "Heads" else POLICIES[policy]
    given = encoded(side=side)
    model, eager = made(name), made(name, "eager")
    batch, length = given.tokens.shape
    keep = np.tri(length, dtype=bool) if name in DECODERS else np.ones((length, length), bool)
    if name == "Mistral":
        keep &= ~np.tri(length, k=-6, dtype=bool)
    keep = (keep & given.tokens.real[:, None, :])[:, None].repeat(4, 1)
    private = given.tokens.private
    if policy == "Hide":
        keep &= ~private[:, None, None, :]
    elif policy == "Heads":
        keep[:, [0, 2]] &= ~private[:, None, None, :]
    else:
        level = 2 * given.tokens.kind("email") + given.tokens.kind("name")
        keep &= (level[:, :, None] >= level[:, None, :])[:, None]
    floats = torch.where(torch.from_numpy(keep), 0.0, torch.finfo(torch.float32).min)
    with torch.no_grad():
        wanted = eager(input_ids=given.inputs["input_ids"], attention_mask=floats).logits
        with masked(model, given, rule):
            found = model(**given.inputs).logits
    compared = given.tokens.real & (~private if policy != "Clearance" else True)
    assert compared.sum() > 30 and torch.allclose(found[compared], wanted[compared], atol=2e-4, rtol=1e-3)
    assert not torch.allclose(model(**given.inputs).logits[compared], wanted[compared], atol=1e-3)


def test_a_prepared_mask_of_four_dimensions_keeps_the_policy() -> None:
    model, one, two = made("Llama"), encoded(), encoded(OTHER)
    length = one.tokens.shape[1]
    keep = torch.from_numpy(np.tri(length, dtype=bool) & one.tokens.real[:, None, :])[:, None]
    for mask in (keep, torch.where(keep, 0.0, -torch.inf), torch.where(keep, 0.0, torch.finfo(torch.float32).min)):
        inputs = [{"input_ids": each.inputs["input_ids"], "attention_mask": mask} for each in (one, two)]
        with torch.no_grad(), masked(model, one):
            a, b = (model(**each).logits for each in inputs)
            padded = model(**one.inputs).logits
        released = Hide().released(one.tokens)
        assert (bits(a) == bits(b)).all(-1).numpy()[released].all() and torch.allclose(a[released], padded[released], atol=1e-5)
        proof = prove(model, Encoded({"input_ids": one.ids}, Tokens.of({"a": one.tokens.private}, one.tokens.real), tokenizer=TOKENIZER), trials=1, inputs={"attention_mask": mask})
        assert proof.holds and {record.mask for record in proof.records} == {"a prepared mask"} and sum(r.pairs for r in proof.records) > 100
    wrong = keep.float()
    with masked(model, one), pytest.raises(nr.Error, match="floats 0 and 1"):
        model(one.inputs["input_ids"], attention_mask=wrong)


# --- proofs -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "policy", "side"), sampled(product(MODELS, POLICIES, ["right", "left"]), 5, 3))
def test_proofs_hold(name: str, policy: str, side: str) -> None:
    model, given, rule = made(name), encoded(side=side), POLICIES[policy]
    others = [encoded(OTHER, side)] if "reader" not in policy else []
    continued = 2 if name in BOTH or (name in DECODERS and side == "left") else 0
    proof = prove(model, given, rule, trials=2, others=others, new_tokens=continued, inputs=decoder_inputs(name))
    assert proof.holds and not proof.leaks and proof.reason == "" and repr(proof).startswith("<holds: "), str(proof)
    assert proof.private == proof.changed == rule.secret(given.tokens).sum() and proof.without_policy
    assert len(proof.runs) == 3 + len(others) and proof.runs[-1] == "NaN in place of the secrets"
    layers, released = 3, int(rule.released(given.tokens).sum())
    if name not in BOTH:
        logits = released * VOCABULARY + released * 32 * (layers + 1)
        ends = int(rule.released(given.tokens)[:, -1].sum()) * VOCABULARY
        assert proof.compared == logits + continued * ends
        assert proof.withheld == (tuple(np.flatnonzero(~rule.released(given.tokens)[:, -1])) if continued else ())
    assert len(proof.records) >= 3 and all(record.allowed == 0 for record in proof.records) and sum(record.pairs for record in proof.records) > 0
    assert not any("The masks of" in sentence for sentence in proof.not_established)
    with pytest.raises(TypeError, match="no truth value"):
        bool(proof)


def test_the_cells_of_a_proof_are_counted() -> None:
    given = encoded(["abc Ann Lee de", "Ann Lee"], "left")
    for policy in (Hide(), Clearance()):
        proof = prove(made("Llama"), given, policy, trials=1)
        secret = policy.secret(given.tokens)
        assert {record.pairs for record in proof.records} == {int(((~secret).sum(1) * secret.sum(1)).sum()) * 4} and len(proof.records) == 3
    rows = prove(made("Llama"), encoded(["abc Ann Lee de", "no names"]), Heads([1]), trials=1)
    assert rows.holds and {record.pairs for record in rows.records} == {(9 * 7)} and rows.compared > 0  # a row without secrets is released


def broken(mask: Any = None, marks: Any = None) -> Hide:
    """Returns `Hide` with a mistake: `mask` makes its mask from (mask of the layer, mask of `Hide`), `marks` the tokens that it hides."""

    class Broken(Hide):
        def mask(self, base: Any) -> nr.Mask:
            hidden = super().mask(base)
            return hidden if mask is None else mask(nr.Mask(str(base)), hidden)

        def facts(self, tokens: Any, facts: Any = None) -> nr.Facts:
            return super().facts(tokens if marks is None else Tokens.of({"a": marks(tokens.private)}), facts)

    return Broken()


def without_the_last(private: Any) -> Any:
    return private & (np.cumsum(private, 1) < private.sum(1, keepdims=True))


BROKEN = {
    "one layer hides nothing": broken(lambda base, hidden: nr.layers({1: base, "else": hidden})),
    "one head hides nothing": broken(lambda base, hidden: nr.heads({(0, 1, 2): hidden, "else": base})),
    "the tokens before the private ones": broken(marks=lambda private: np.roll(private, -1, 1)),
    "all but the last private token": broken(marks=without_the_last),
    "one row hides nothing": broken(marks=lambda private: private & (np.arange(len(private)) > 0)[:, None]),
    "nothing is hidden": broken(lambda base, _: base),
}


@pytest.mark.parametrize(("name", "mistake"), sampled(product(MODELS, BROKEN), 5))
def test_broken_masks_leak(name: str, mistake: str) -> None:
    """The test of swapped secrets and the proof find every mask that is broken on purpose."""
    model, inputs = made(name), decoder_inputs(name)
    one, two = encoded(side="left"), encoded(OTHER, "left")
    with masked(model, one, BROKEN[mistake]):
        own, other = states(model, one, **inputs), states(model, two, **inputs)
    same = (bits(own[1]) == bits(other[1])).all(-1).all(0).numpy()
    assert not same[Hide().released(one.tokens)].all()
    proof = prove(model, one, BROKEN[mistake], trials=1, inputs=inputs)
    assert proof.verdict == "leaks" and not proof.holds and proof.leaks and sum(record.allowed for record in proof.records) > 0
    assert "the mask is faulty" in proof.cause and "leaks: " in repr(proof) and "denied cells (query, private key) are allowed by" in str(proof)
    faulty = {record.module for record in proof.records if record.allowed}
    assert (len(faulty) < len({record.module for record in proof.records})) == (mistake == "one layer hides nothing")


def test_one_cell_that_is_not_hidden() -> None:
    given = encoded(["I am Ann Lee, or ann@x.example today"])
    assert given.tokens.private[0, 28] and not given.tokens.private[0, 31:].any()
    given.tokens.private[0, 30] = False
    marks = given.tokens.private & (np.arange(given.tokens.shape[1]) < 30)
    given = Encoded(given.arrays, Tokens.of({"a": marks}), tokenizer=TOKENIZER)
    one_query = broken(lambda base, hidden: hidden | base & nr.queries(30) & nr.keys(28))
    proof = prove(made("Llama"), given, one_query, trials=1)
    assert proof.verdict == "leaks" and [record.allowed for record in proof.records] == [4, 4, 4]


@pytest.mark.parametrize("name", ["Llama", "BERT", "T5"])
def test_a_call_without_the_policy_leaks(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Attention of one module that does not pass through the policy: no record, but the runs show it."""
    model, given = made(name), encoded(side="left")
    victim = [module for module, _ in model.named_modules() if module.endswith(("self_attn", "attention.self", "SelfAttention"))][1]
    change = State.change

    def skipping(self: State, module: Any, query: Any, key: Any, mask: Any, is_causal: Any) -> Any:
        from noren.private._state import Masked, converted

        if self.names.get(module) == victim:
            self.calls += 1
            return converted(Masked, mask)
        return change(self, module, query, key, mask, is_causal)

    monkeypatch.setattr(State, "change", skipping)
    proof = prove(model, given, trials=1, inputs=decoder_inputs(name))
    assert proof.verdict == "leaks" and "by another path" in proof.cause and victim not in {record.module for record in proof.records}
    assert any("The masks of 1 of" in sentence for sentence in proof.not_established) or name == "T5"


# --- other paths --------------------------------------------------------------------------------------------------


@contextmanager
def hooked(module: Any, function: Callable[[Any], Any]) -> Iterator[None]:
    def replace(_: Any, __: Any, out: Any) -> Any:
        return (function(out[0]), *out[1:]) if isinstance(out, tuple) else function(out)

    handle = module.register_forward_hook(replace)
    try:
        yield
    finally:
        handle.remove()


PATHS: dict[str, Callable[[Any], Any]] = {
    "the token before": lambda x: x + torch.cat([torch.zeros_like(x[:, :1]), x[:, :-1]], 1),
    "the mean of the text": lambda x: x - x.mean(1, keepdim=True),
    "the mean of the batch": lambda x: x - x.mean((0, 1), keepdim=True),
    "another row": lambda x: x + 1e-6 * x.roll(1, 0),
    "one number": lambda x: torch.cat([x[..., :-1], x[..., -1:] + 1e-7 * x[..., -1:].sum(1, keepdim=True)], -1),
}


@pytest.mark.parametrize("path", list(PATHS))
@pytest.mark.parametrize("name", ["Llama", "BERT"])
def test_leaks_by_other_paths(name: str, path: str) -> None:
    model, given = made(name), encoded()
    layer = (model.model.layers if name == "Llama" else model.bert.encoder.layer)[0]
    assert prove(model, given, trials=1).holds
    with hooked(layer, PATHS[path]):
        proof = prove(model, given, trials=1)
    assert proof.verdict == "leaks" and "by another path" in proof.cause and not any(record.allowed for record in proof.records)
    assert proof.leaks[0].row is not None and proof.leaks[0].token is not None and proof.leaks[0].numbers > 0
    assert Hide().released(given.tokens)[proof.leaks[0].row, proof.leaks[0].token]


@pytest.mark.parametrize("kind", ["mobilebert", "lfm2_moe", "recurrent_gemma", "longt5"])
def test_models_that_mix_tokens_without_attention(kind: str) -> None:
    from architectures import ROLES, architectures, configuration

    role = dict(architectures())[kind]
    torch.manual_seed(1)
    model = ROLES[role][0].from_config(configuration(kind)).eval()
    rng = np.random.default_rng(0)
    given = Encoded({"input_ids": rng.integers(3, 64, (2, 12))}, Tokens.of({"a": np.arange(12) // 3 == np.array([[1], [2]])}))
    inputs = {"decoder_input_ids": torch.arange(5, 9).repeat(2, 1)} if role == "encoder-decoder" else {}
    proof = prove(model, given, trials=1, choices=range(3, 64), inputs=inputs)
    assert proof.verdict == "leaks"
    with pytest.raises(nr.Error, match="no attention layer of LongT5Stack" if kind == "longt5" else "mixes tokens without attention"), masked(model, given):
        model(**given.inputs, **inputs)
    assert model.config._attn_implementation == "sdpa" or kind == "longt5"


def test_numbers_of_whole_texts() -> None:
    """Classes that are computed from a private token leak, and the proof names the cause."""
    torch.manual_seed(1)
    for kind, sizes in (("bert", BERT), ("gpt2", MODELS["GPT-2"][2])):
        model = transformers.AutoModelForSequenceClassification.from_config(AutoConfig.for_model(kind, num_labels=4, **sizes)).eval()
        inner = encode(TOKENIZER, ["a Ann Lee b"], DETECTORS, add_special_tokens=False)
        assert prove(model, inner, trials=1).holds
        outer = encode(TOKENIZER, ["Ann Lee"], Detectors([], words=["Ann Lee"]), add_special_tokens=False)
        edge = Encoded(outer.arrays, Tokens.of({"a": [[True, False, False, False, False, False, True]]}), tokenizer=TOKENIZER)
        proof = prove(model, edge, trials=1)
        assert proof.verdict == "leaks" and {leak.output for leak in proof.leaks} == {"logits"} and "nr.private.pool" in proof.cause
        # As many classes as tokens: numbers of the whole text are not taken for numbers of tokens.
        model = transformers.AutoModelForSequenceClassification.from_config(AutoConfig.for_model(kind, num_labels=7, **sizes)).eval()
        assert prove(model, edge, trials=1).verdict == "leaks"


def test_outputs_for_each_token_with_two_dimensions() -> None:
    torch.manual_seed(1)
    given = encoded()
    for model in (transformers.BertForQuestionAnswering(AutoConfig.for_model("bert", **BERT)), transformers.ElectraForPreTraining(AutoConfig.for_model("electra", embedding_size=32, **BERT))):
        proof = prove(model.eval(), given, trials=1)
        assert proof.holds and proof.changed == proof.private


def test_losses_depend_on_private_tokens() -> None:
    given = encoded()
    proof = prove(made("Llama"), given, trials=1, inputs={"labels": given.inputs["input_ids"]})
    assert proof.verdict == "leaks" and {leak.output for leak in proof.leaks} == {"loss"} and proof.leaks[0].row is None


# --- nothing established ------------------------------------------------------------------------------------------


def test_nothing_is_established() -> None:
    model, given = made("Llama"), encoded()
    public = encoded(["the river", "runs"])
    assert "no private token" in prove(model, public).reason
    whole = encode(TOKENIZER, ["Ann Lee"], DETECTORS, add_special_tokens=False)
    assert prove(model, whole).reason == "the policy releases no output, so no output can be compared"
    assert "no model run with other secrets" in prove(model, given, trials=0).reason
    assert prove(model, encoded(TEXTS[:1]), Heads([0])).reason == "the policy releases no output, so no output can be compared"
    reader = prove(model, given, Clearance({"email": 2, "name": 1}, reader=2))
    assert "no private token that the policy hides" in reader.reason and reader.verdict == "nothing established" and not reader.holds
    dropout = made("BERT", hidden_dropout_prob=0.5).train()
    assert "two runs with the same tokens" in prove(dropout, given).reason
    dropout.eval()
    broken = copy.deepcopy(model)
    with torch.no_grad():
        broken.model.norm.weight[0] = torch.nan
    found = prove(broken, given, trials=1)
    assert found.verdict == "nothing established" and "NaN or infinite" in found.reason and "nothing established: " in str(found)


def test_functions() -> None:
    given = encoded()
    private = torch.from_numpy(given.tokens.private)
    table = torch.randn(VOCABULARY, 8, generator=torch.Generator().manual_seed(0))

    def of(function: Callable[[Any], Any], **more: Any) -> Any:
        return prove(lambda ids: function(ids), given, trials=2, choices=range(4, VOCABULARY), **more)

    assert of(lambda ids: table[ids]).holds and of(lambda ids: {"a": [table[ids], (table[ids], "text")]}).holds
    assert of(lambda ids: table[ids].cumsum(1)).verdict == "leaks" and of(lambda ids: table[ids.sort(1).values]).verdict == "leaks"
    assert of(lambda ids: (table[ids], table[ids].masked_fill(private[..., None], 0).sum(1))).holds
    pooled = of(lambda ids: (table[ids], table[ids].sum(1)))
    assert pooled.verdict == "leaks" and {(leak.output, leak.token) for leak in pooled.leaks} == {("[1]", None)}
    # Without outputs of private tokens, it is unknown whether the secrets were read.
    assert "none changed" in of(lambda ids: table[given.inputs["input_ids"]]).reason
    assert "no output of a private token" in of(lambda ids: table[ids].masked_fill(private[..., None], 0).sum(1)).reason
    # As many numbers as tokens: of tokens, or of the whole text?
    length = given.tokens.shape[1]
    assert "it is unknown whether they belong to tokens" in of(lambda ids: (table[ids], ids.double())).reason
    assert of(lambda ids: (table[ids], ids.double()[..., None])).holds
    assert of(lambda ids: (table[ids], ids.double() @ torch.ones(length, length).double())).verdict == "leaks"
    assert of(lambda ids: (table[ids], ids.sum())).verdict == "leaks" and of(lambda ids: (table[ids], ids.double().mean(1) > 40)).verdict in ("leaks", "holds")
    assert of(lambda ids: (table[ids], -0.0 * table[ids].sum(1, keepdim=True).sign().expand_as(table[ids]))).verdict == "leaks"  # the bits of 0.0 and -0.0 differ
    noise = iter(range(1000))
    assert "two runs" in of(lambda ids: table[ids] + next(noise)).reason
    for wrong, message in ((lambda ids: 3, "without tensors"), (lambda ids: table[ids][:, : int(ids[0, 9]) % 7], "cannot be compared"), (lambda ids: {}[1], "KeyError"), (lambda ids: [table[ids]] * int(ids.sum()) if False else None, "without tensors")):
        with pytest.raises(nr.Error, match=message):
            of(wrong)


# --- generation ---------------------------------------------------------------------------------------------------

ENDS = ["Ann Lee or", "mail ann@x.example to the river, then", "no secret", "I am Ann Lee"]
OTHER_ENDS = ["Zoe Fox or", "mail zed@q.example to the river, then", "no secret", "I am Zoe Fox"]
WAYS: dict[str, dict[str, Any]] = {
    "greedy": {"do_sample": False}, "no cache": {"do_sample": False, "use_cache": False}, "static cache": {"do_sample": False, "cache_implementation": "static"},
    "beams": {"do_sample": False, "num_beams": 3}, "samples": {"do_sample": True, "num_return_sequences": 3, "top_k": 20},
    "beams that are returned": {"do_sample": False, "num_beams": 4, "num_return_sequences": 2},
}  # fmt: skip


@pytest.mark.parametrize(("name", "way"), sampled(product([*DECODERS, *BOTH], WAYS), 4))
def test_continuations_do_not_depend_on_secrets(name: str, way: str) -> None:
    if name in BOTH and way == "static cache":
        pytest.skip("encoder-decoder models are generated with a dynamic cache")
    model = made(name)
    one, two = (encode(TOKENIZER, texts, DETECTORS, padding_side="left", add_special_tokens=False) for texts in (ENDS, OTHER_ENDS))
    released = Hide().released(one.tokens)[:, -1] if name in DECODERS else np.ones(4, bool)
    assert released.tolist() == ([True, True, True, False] if name in DECODERS else [True] * 4)

    def generated(given: Encoded) -> Any:
        torch.manual_seed(0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            out = model.generate(**given.inputs, max_new_tokens=9, min_new_tokens=9, pad_token_id=0, return_dict_in_generate=True, output_logits=True, **WAYS[way])
        return out.sequences[:, -9:], torch.stack(out.logits, 1)

    with masked(model, one):
        (tokens, logits), (other_tokens, other) = generated(one), generated(two)
    times = len(tokens) // 4
    rows = torch.from_numpy(released).repeat_interleave(times)
    assert (tokens == other_tokens)[rows].all()
    wide = torch.from_numpy(released).repeat_interleave(len(logits) // 4)
    assert (bits(logits) == bits(other))[wide].all()
    if name in DECODERS and way != "samples":
        assert not (bits(logits) == bits(other))[~wide].all()  # a text that ends inside a secret
    plain, plain_other = generated(one)[1], generated(two)[1]
    assert not (bits(plain) == bits(plain_other))[wide].all()


def test_sliding_caches_follow_the_text() -> None:
    """The keys of a cache that drops old keys are matched with the text: the window is shorter than the text and its continuation."""
    model = made("Mistral")
    text = ["abcdefgh Ann Lee ij", "Ann Lee kl"]
    given = encode(TOKENIZER, text, DETECTORS, padding_side="left", add_special_tokens=False)
    proof = prove(model, given, trials=2, new_tokens=12)
    assert proof.holds and max(record.pairs for record in proof.records) > 0 and len(proof.records) == 3 * 13
    out = {}
    for cached in (True, False):
        with torch.no_grad(), masked(model, given):
            out[cached] = torch.stack(model.generate(**given.inputs, max_new_tokens=12, do_sample=False, use_cache=cached, output_logits=True, return_dict_in_generate=True).logits)
    assert torch.allclose(out[True], out[False], atol=1e-4)


def test_steps_by_hand_with_a_cache() -> None:
    model = made("Llama")
    given = encode(TOKENIZER, ["ab Ann Lee cd"], DETECTORS, add_special_tokens=False)
    ids = given.inputs["input_ids"]
    with torch.no_grad(), masked(model, given):
        whole = model(ids).logits
        cache, parts = None, []
        for start, end in ((0, 5), (5, 6), (6, 13)):
            out = model(ids[:, start:end], past_key_values=cache, use_cache=True)
            cache, parts = out.past_key_values, [*parts, out.logits]
        assert torch.allclose(torch.cat(parts, 1), whole, atol=1e-5)
        again = model(ids).logits
        assert torch.equal(again, whole)


def test_a_continuation_needs_its_beginning() -> None:
    model, given = made("Llama"), encoded()
    with pytest.raises(nr.Error, match="padding on the right"):
        prove(model, given, new_tokens=2)
    with pytest.raises(nr.Error, match="cannot continue texts"):
        prove(made("BERT"), given, new_tokens=2)
    withheld = prove(model, encode(TOKENIZER, ENDS, DETECTORS, padding_side="left", add_special_tokens=False), trials=1, new_tokens=3)
    assert withheld.holds and withheld.withheld == (3,) and "ends inside a secret" in str(withheld)


# --- masks of noren beside the policy -----------------------------------------------------------------------------


def test_masks_of_the_call_keep_the_policy() -> None:
    from noren.torch import Replace

    noren.hf.register()
    model, one, two = made("Llama", "noren"), encoded(), encoded(OTHER)
    released = Hide().released(one.tokens)
    assert prove(model, one, trials=1).holds
    for mask in (nr.window(left=4), "full", lambda call: Replace("full"), lambda call: call.keys(call.key_tokens >= 0), lambda call: Replace(nr.causal())):
        with torch.no_grad(), masked(model, one):
            a, b = (model(**each.inputs, noren_mask=mask).logits for each in (one, two))
            with noren.hf.set_mask(model, mask):
                c = model(**one.inputs).logits
        assert (bits(a) == bits(b)).all(-1).numpy()[released].all() and torch.equal(a[released], c[released])
        plain = model(**one.inputs, noren_mask=mask).logits
        assert not torch.allclose(plain[released], a[released], atol=1e-4)
    assert model.config._attn_implementation == "noren"


def test_a_mask_that_was_registered_stays() -> None:
    noren.hf.register("noren_private_test", mask="window(left=3)")
    local, model, given = made("Llama", "noren_private_test"), made("Llama"), encoded(["the river Ann Lee runs under the bridge"])
    with torch.no_grad():
        with masked(local, given):
            found = local(**given.inputs).logits
        length = given.tokens.shape[1]
        keep = torch.from_numpy((np.tri(length, dtype=bool) & ~np.tri(length, k=-4, dtype=bool))[None, None])
        with masked(model, given):
            wanted = model(given.inputs["input_ids"], attention_mask=keep).logits
    released = Hide().released(given.tokens)
    assert torch.allclose(found[released], wanted[released], atol=1e-5) and getattr(local, "noren_setting", None) is None


# --- training -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["Llama", "BERT"])
def test_gradients_through_private_tokens_are_zero(name: str) -> None:
    model, given = made(name), encoded()
    released = torch.from_numpy(Hide().released(given.tokens))
    weights = torch.randn(VOCABULARY, generator=torch.Generator().manual_seed(3))
    gradients = []
    for checkpointing in (False, True):
        embedded = model.get_input_embeddings()(given.inputs["input_ids"]).detach().requires_grad_()
        if checkpointing:
            model.train()
            model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        with masked(model, given):
            logits = model(inputs_embeds=embedded, attention_mask=given.inputs["attention_mask"], use_cache=False).logits
            (logits @ weights)[released].sum().backward()
        gradients.append(embedded.grad)
        private = torch.from_numpy(given.tokens.private)
        assert (embedded.grad[private] == 0).all() and (embedded.grad[released] != 0).any(-1).all()
    model.gradient_checkpointing_disable()
    model.eval()
    assert torch.allclose(*gradients, atol=1e-5)


@pytest.mark.parametrize("attention", ["sdpa", "noren"])
def test_a_backward_pass_outside_is_refused(attention: str) -> None:
    """With gradient checkpointing, the backward pass computes attention again: outside of the statement, it would read private tokens."""
    noren.hf.register()
    model, given = copy.deepcopy(made("Llama", attention)), encoded()
    model.train()
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    with masked(model, given):
        loss = model(**given.inputs, use_cache=False).logits.sum()
    with pytest.raises(Exception, match="inside the statement" if attention == "noren" else "."):
        loss.backward()


# --- statements ---------------------------------------------------------------------------------------------------


def test_the_model_is_as_before() -> None:
    model, given = made("Llama"), encoded()
    hooks = sum(len(part._forward_pre_hooks) + len(part._forward_hooks) for part in model.modules())
    for wrong in (False, True):
        try:
            with masked(model, given):
                assert model.config._attn_implementation == "noren_private"
                with pytest.raises(nr.Error, match="already computes with a policy"), masked(model, given):
                    pass
                with pytest.raises(nr.Error, match="already computes with a policy"), masked(model.model, given):
                    pass
                if wrong:
                    raise KeyError("of the user")
        except KeyError:
            assert wrong
        assert model.config._attn_implementation == "sdpa"
        assert sum(len(part._forward_pre_hooks) + len(part._forward_hooks) for part in model.modules()) <= hooks + 4
    with pytest.raises(nr.Error, match="`batch` is 1, but the private tokens of 4 rows"), masked(model, given):
        model(torch.arange(8)[None])
    with masked(model, given):
        model(**given.inputs)


def test_other_texts_are_refused() -> None:
    """One statement is for one batch: private tokens of a batch hide nothing in another one."""
    for name in ("Llama", "BERT", "T5"):
        model, given, inputs = made(name), encoded(), decoder_inputs(name)
        wrong = given.inputs["input_ids"].clone()
        wrong[2, 3] += 1
        for ids, message in ((wrong, "token 3 of row 2 differs"), (given.inputs["input_ids"][:, 1:], "token . of row . differs"), (given.inputs["input_ids"].flip(0), "differs")):
            with torch.no_grad(), pytest.raises(nr.Error, match=message), masked(model, given):
                model(ids, attention_mask=given.inputs["attention_mask"][:, : ids.shape[1]], **inputs)
        with torch.no_grad(), pytest.raises(nr.Error, match="computed 20 tokens, but the private tokens belong to texts of 38 tokens|reads 20 keys, but the text has 38 tokens"), masked(model, given.tokens):
            model(given.inputs["input_ids"][:, :20], **inputs)
    with torch.no_grad(), masked(made("Llama"), given):
        made("Llama").generate(**encoded(OTHER).inputs, max_new_tokens=2, use_cache=False, do_sample=False, num_beams=2)


def test_attention_weights_and_routers_belong_to_tokens() -> None:
    given = encoded()
    proof = prove(made("BERT", "eager"), given, trials=1, inputs={"output_attentions": True})
    assert proof.holds and proof.compared > int(Hide().released(given.tokens).sum()) * (4 * given.tokens.shape[1] * 3 + 32 * 4 + VOCABULARY) - 1
    sizes = SIZES | {"num_local_experts": 4, "num_experts_per_tok": 2, "num_hidden_layers": 2}
    torch.manual_seed(0)
    experts = transformers.MixtralForCausalLM(AutoConfig.for_model("mixtral", **sizes)).eval()
    found = prove(experts, given, trials=2, inputs={"output_router_logits": True})
    assert {leak.output for leak in found.leaks} <= {"aux_loss"}, str(found)


def test_states_from_outside_are_refused() -> None:
    model, given = made("Llama"), encoded(side="left")
    with torch.no_grad():
        cache = model(**given.inputs, use_cache=True).past_key_values
        more = torch.ones(4, given.tokens.shape[1] + 1, dtype=torch.long)
        with masked(model, given), pytest.raises(nr.Error, match="the cache holds tokens that were computed without the policy"):
            model(torch.full((4, 1), 5), attention_mask=more, past_key_values=cache)
        for name in BOTH:
            model = made(name)
            outside = model.get_encoder()(**given.inputs)
            with masked(model, given):
                with pytest.raises(nr.Error, match="states of an encoder that was computed without the policy"):
                    model(encoder_outputs=outside, attention_mask=given.inputs["attention_mask"], **decoder_inputs(name))
                inside = model.get_encoder()(**given.inputs)
                model(encoder_outputs=inside, attention_mask=given.inputs["attention_mask"], **decoder_inputs(name))


def test_other_modules_are_refused() -> None:
    model, given = copy.deepcopy(made("Llama")), encoded()
    shared = transformers.LlamaForCausalLM(model.config).eval()
    with masked(model, given):
        for other in (copy.deepcopy(model), shared if shared.config is model.config else copy.deepcopy(model)):
            with pytest.raises(nr.Error, match="not a module of the model"):
                other(**given.inputs)
    two = torch.nn.ModuleList([made("Llama"), made("BERT")])
    with pytest.raises(nr.Error, match="contains LlamaForCausalLM and BertForMaskedLM"), masked(two, given):
        pass
    with pytest.raises(TypeError, match="`model` is Linear"), masked(torch.nn.Linear(2, 2), given):
        pass
    wrapped = torch.nn.Sequential(model)
    with masked(wrapped, given):
        assert model(**given.inputs).logits.shape[0] == 4
    for refused in ("bloom", "deberta"):
        other = transformers.AutoModel.from_config(AutoConfig.for_model(refused, vocab_size=99, hidden_size=32, num_hidden_layers=1, num_attention_heads=4, intermediate_size=32))
        with pytest.raises(nr.Error, match="cannot compute its attention with noren"), masked(other, given):
            pass
        with pytest.raises(nr.Error, match="cannot compute its attention with noren"):
            prove(other, given)
    speech = AutoConfig.for_model("whisper", vocab_size=99, d_model=32, encoder_layers=1, decoder_layers=1, encoder_attention_heads=4, decoder_attention_heads=4, num_mel_bins=8, pad_token_id=0, bos_token_id=1, eos_token_id=2)
    with pytest.raises(nr.Error, match="reads input_features, not text"), masked(transformers.WhisperForConditionalGeneration(speech), given):
        pass


def test_tokens_that_a_model_adds_are_refused() -> None:
    model, given = copy.deepcopy(made("Llama")), encoded()
    forward = model.model.forward

    def longer(input_ids: Any = None, attention_mask: Any = None, inputs_embeds: Any = None, **others: Any) -> Any:
        embedded = model.get_input_embeddings()(input_ids)
        return forward(inputs_embeds=torch.cat([embedded[:, :2], embedded], 1), attention_mask=torch.nn.functional.pad(attention_mask, (2, 0), value=1), **others)

    model.model.forward = longer
    with torch.no_grad(), masked(model, given), pytest.raises(nr.Error, match="the model adds or joins tokens"):
        model(**given.inputs)

    class Config:
        is_prompt_learning = True

    model = copy.deepcopy(made("Llama"))
    model.peft_config = {"default": Config()}
    with pytest.raises(nr.Error, match="adds virtual tokens"), masked(model, given):
        pass


def test_threads_with_models_of_their_own() -> None:
    given, wrong = encoded(), []
    with torch.no_grad(), masked(made("Llama"), given):
        wanted = made("Llama")(**given.inputs).logits

    def work() -> None:
        own = copy.deepcopy(made("Llama"))
        for _ in range(5):
            with torch.no_grad(), masked(own, given):
                if not torch.equal(own(**given.inputs).logits, wanted):
                    wrong.append(1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_an_image_model_beside_the_text() -> None:
    """A model with an image tower: the tower's attention has no policy, the text's has."""
    text = AutoConfig.for_model("llama", **SIZES)
    vision = AutoConfig.for_model("clip_vision_model", hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, image_size=16, patch_size=8)
    torch.manual_seed(0)
    model = transformers.LlavaForConditionalGeneration(transformers.LlavaConfig(vision_config=vision, text_config=text, image_token_id=VOCABULARY - 1)).eval()
    own = encode(TOKENIZER, ["ab Ann Lee cd", "the river ru "], DETECTORS, add_special_tokens=False)
    ids = np.concatenate([np.full((2, 4), VOCABULARY - 1), own.ids], 1)
    tokens = Tokens.of({"name": np.pad(own.tokens.private, ((0, 0), (4, 0)))})
    pixels = torch.randn(2, 3, 16, 16)
    given = Encoded({"input_ids": ids, "attention_mask": np.ones_like(ids)}, tokens, tokenizer=TOKENIZER)
    proof = prove(model, given, trials=2, inputs={"pixel_values": pixels}, new_tokens=2)
    assert proof.holds and all("language_model" in record.module for record in proof.records) and len(proof.records) == 9
    with torch.no_grad(), masked(model, given):
        with_policy = model(**given.inputs, pixel_values=pixels).logits
    assert not torch.allclose(with_policy, model(**given.inputs, pixel_values=pixels).logits, atol=1e-4)


def test_other_types_and_attention() -> None:
    given = encoded()
    for attention in ("eager", "sdpa"):
        for dtype in (torch.bfloat16, torch.float16):
            model = copy.deepcopy(made("Llama", attention)).to(dtype)
            assert prove(model, given, trials=1).holds and model.config._attn_implementation == attention
    double = prove(made("BERT"), Encoded({name: torch.as_tensor(array) for name, array in given.arrays.items()}, given.tokens, tokenizer=TOKENIZER), trials=1)
    assert double.holds


# --- pool ---------------------------------------------------------------------------------------------------------


def test_pooled_vectors() -> None:
    rng = np.random.default_rng(0)
    for policy in (None, *POLICIES.values(), Heads([0])):
        given = encoded()
        released = (policy or Hide()).released(given.tokens)
        states = torch.from_numpy(rng.normal(size=(*given.tokens.shape, 5)))
        states[torch.from_numpy(~released)] = torch.nan
        found = pool(states, given, policy)
        wanted = [states[row][torch.from_numpy(released[row])].mean(0) if released[row].any() else torch.zeros(5).double() for row in range(4)]
        assert torch.allclose(found, torch.stack(wanted)) and torch.equal(found, pool(states, given.tokens, policy))
    for states, message in ((torch.zeros(4, 3, 2), "`states` has shape"), (torch.zeros(given.tokens.shape, dtype=torch.long)[..., None], "`states` is torch.int64"), (3, "`states` is ")):
        with pytest.raises((nr.Error, TypeError), match=message):
            pool(states, given)
    with pytest.raises(TypeError, match="`tokens` is "):
        pool(torch.zeros(1, 2, 3), [1])
    with pytest.raises(TypeError, match="`policy` is "):
        pool(torch.zeros(*given.tokens.shape, 3), given, "Hide")


# --- wrong input --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"trials": -1}, "trials is -1"), ({"trials": 1.5}, "trials is "), ({"trials": 10**9}, "trials is 1000000000"), ({"seed": "x"}, "seed is "), ({"new_tokens": True}, "new_tokens is "),
        ({"policy": 3}, "`policy` is 3"), ({"choices": [5]}, "`choices` has 1"), ({"choices": "ab"}, "choices is "), ({"choices": [5, 10**6]}, "`choices` has 1000000"), ({"choices": [5, -1]}, "`choices` has -1"),
        ({"choices": 3}, "choices is "), ({"others": [3]}, "`others` is "), ({"others": "x"}, "`others` is "), ({"inputs": 3}, "`inputs` is "), ({"inputs": {1: 2}}, "`inputs` is "),
        ({"inputs": {"input_ids": 3}}, "`inputs` and `encoded` both contain input_ids"), ({"inputs": {"inputs_embeds": 3}}, "inputs_embeds is given"),
        ({"encoded": "text"}, "`encoded` is "), ({"model": 3}, "`model` is "),
    ],
)  # fmt: skip
def test_wrong_proofs(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises((nr.Error, TypeError), match=message):
        prove(**{"model": made("BERT"), "encoded": encoded(TEXTS[:1]), **arguments})


def test_texts_that_do_not_fit_the_others() -> None:
    model, one = made("BERT"), encoded()
    for other, message in (
        (encoded(TEXTS[:3]), "private tokens in other places"), (one, "has the same tokens"), (encoded([*OTHER[:2], "the rivet runs", OTHER[3]]), "other public tokens"),
        (encoded(OTHER, "left"), "private tokens in other places"),
    ):  # fmt: skip
        with pytest.raises(nr.Error, match=message):
            prove(model, one, others=[other])
    with pytest.raises(nr.Error, match="has a decoder: give its tokens"):
        prove(made("T5"), one)
    with pytest.raises(nr.Error, match="the model cannot compute these tokens"):
        prove(model, Encoded({"input_ids": one.ids + 1000}, one.tokens), choices=range(50))
    unknown = Encoded({"input_ids": one.ids}, one.tokens)
    with pytest.raises(nr.Error, match="the size of the vocabulary is unknown"):
        prove(lambda ids: ids, unknown)

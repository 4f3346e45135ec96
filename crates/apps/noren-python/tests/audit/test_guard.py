"""`nr.guard`: the doctor checks the masks of a running model; models without faults pass, faults are raised with their class."""

from __future__ import annotations

import warnings
from itertools import product
from typing import Any

import pytest

import noren as nr
from conftest import sampled

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from noren.battery import Intent  # noqa: E402

from fault_book import Batch, parallel  # noqa: E402
from planted import Plain, ignored_mask, make, others, window_lost_in_one_layer, window_one_key_wider  # noqa: E402

IDS = torch.randint(3, 99, (3, 20), generator=torch.Generator().manual_seed(0))
RIGHT, LEFT = IDS.clone(), IDS.clone()
RIGHT[1, 15:], RIGHT[2, 9:], LEFT[1, :5], LEFT[2, :9] = 0, 0, 0, 0


def guards(model: Any) -> list[Any]:
    """Returns the hooks of a guard; `noren.hf` leaves hooks of its own on models."""
    return [hook for hook in model._forward_pre_hooks.values() if "noren.battery.guard" in getattr(hook, "__module__", "") or "Guard" in repr(hook)]



def batch(ids: Any, **more: Any) -> dict[str, Any]:
    real = (ids != 0).long()
    return {"input_ids": ids, "attention_mask": real, **more}


def counted(ids: Any) -> Any:
    return ((ids != 0).long().cumsum(1) - 1).clamp(min=0)


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("family", ["llama", "mistral", "bert", "t5"])
def test_healthy_models_pass(family: str, attention: str) -> None:
    model = make(family)
    model.set_attn_implementation(attention)
    for ids in (IDS, RIGHT, LEFT):
        more: dict[str, Any] = {"decoder_input_ids": IDS[:, :7]} if family == "t5" else {"position_ids": counted(ids)}
        if family in ("llama", "mistral"):
            more["labels"] = ids.masked_fill(ids == 0, -100)
        with warnings.catch_warnings(), nr.guard(model, pad_token_id=0) as watch:
            warnings.simplefilter("error")
            model(**batch(ids, **more))
        assert watch.step == 1 and watch.seen and not watch.findings


def test_generation_and_modules_of_torch_pass() -> None:
    model = make("mistral")
    with nr.guard(model, steps=30) as watch:
        model.generate(LEFT, attention_mask=(LEFT != 0).long(), max_new_tokens=5, pad_token_id=0)
    assert watch.step == 5 and not watch.findings
    for family, intent in (("plain", "bidirectional"), ("plain causal", "causal")):
        with nr.guard(make(family), intent, pad_token_id=0) as watch:
            watch.model(**batch(RIGHT, position_ids=torch.arange(20)[None]))
        assert "encoder.layers.0.self_attn" in {seen.place for seen in watch.seen} and not watch.findings


def fault(model: Any, *args: Any, **options: Any) -> nr.MaskFault:
    given = options.pop("batch")
    with pytest.raises(nr.MaskFault) as raised, nr.guard(model, *args, pad_token_id=0, **options):
        model(**given)
    assert not model._forward_pre_hooks or all("Guard" not in repr(hook) for hook in model._forward_pre_hooks.values())
    return raised.value


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_a_mask_that_is_ignored(attention: str) -> None:
    for family, ids in (("bert", RIGHT), ("llama", LEFT)):
        model = make(family)
        model.set_attn_implementation(attention)
        layers = model.encoder.layer if family == "bert" else model.model.layers
        for layer in layers:
            if family == "bert":
                layer.register_forward_pre_hook(lambda _, args: (args[0], None, *args[2:]))
            else:
                layer.register_forward_pre_hook(lambda _, args, k: (args, k | {"attention_mask": None}), with_kwargs=True)
        found = fault(model, batch=batch(ids))
        assert found.report.classes[0] in ("padding_keys_visible", "causal_dropped"), str(found)
        assert found.step == 1


def test_a_window_that_is_lost() -> None:
    model = make("mistral")
    model.set_attn_implementation("eager")
    window_lost_in_one_layer(model)
    found = fault(model, batch=batch(IDS))
    assert found.report.classes == ("window_missing_or_wrong_layer",) and found.place == "model.layers.1.self_attn"


def test_causality_that_is_dropped_in_a_plain_module() -> None:
    model = Plain(causal=True)
    model.mask = lambda length, like: None
    found = fault(model, "causal", batch=batch(RIGHT, position_ids=torch.arange(20)[None]))
    assert found.report.classes[0] == "causal_dropped" and found.place == "encoder.layers.0.self_attn"
    model.mask = lambda length, like: torch.ones(length, length, dtype=torch.bool).triu(2)
    assert fault(model, "causal", batch=batch(IDS, position_ids=torch.arange(20)[None])).report.classes == ("causal_leak",)


def test_labels_and_positions_beside_the_masks() -> None:
    model = make("llama")
    found = fault(model, batch=batch(RIGHT, labels=RIGHT))
    assert found.place == "the batch" and "loss_mask_missing" in found.report.classes
    shifted = IDS.roll(-1, 1)
    shifted[:, -1] = -100
    assert "label_shift" in fault(model, batch=batch(IDS, labels=shifted)).report.classes
    model = make("bert")
    assert fault(model, batch=batch(LEFT, position_ids=torch.arange(20)[None].expand(3, 20))).report.classes == ("position_ids",)


def test_a_mask_that_does_not_grow_with_the_cache() -> None:
    model = make("llama")
    cache = model(**batch(LEFT), use_cache=True).past_key_values
    found = fault(model, batch={**batch(LEFT), "input_ids": IDS[:, :1], "past_key_values": cache})
    assert found.report.classes == ("stale_decode_mask",)


def test_it_takes_itself_out() -> None:
    model = make("llama")
    with nr.guard(model, steps=2) as watch:
        for _ in range(4):
            model(**batch(RIGHT))
        assert watch.step == 2 and not guards(model) and not model.model.layers[0].self_attn._forward_hooks
    ignored_mask(model)
    with warnings.catch_warnings(record=True) as said, nr.guard(model, on_fault="warn", pad_token_id=0) as watch:
        warnings.simplefilter("always")
        model(**batch(RIGHT, labels=RIGHT))
    assert watch.findings and any("loss_mask_missing" in str(w.message) for w in said)


def test_what_cannot_be_guarded_is_said() -> None:
    with pytest.raises(nr.Error, match="give a torch.nn.Module"):
        nr.guard(lambda x: x)  # type: ignore[arg-type]
    with pytest.raises(nr.Error, match="'raise' or 'warn'"):
        nr.guard(make("bert"), on_fault="ignore")  # type: ignore[arg-type]
    with pytest.warns(UserWarning, match="established nothing in 1 steps: the intended mask is unknown"), nr.guard(Plain()) as watch:
        watch.model(**batch(IDS, position_ids=counted(IDS)))
    with pytest.warns(UserWarning, match="the guard found no mask that it could compare with the intent"), nr.guard(torch.nn.Linear(2, 2), "causal") as watch:
        watch.model(torch.ones(1, 2))


def wrapped(model: Any) -> dict[str, Any]:
    return {
        "plain": model,
        "forward(**batch)": Batch(model),
        "DataParallel": torch.nn.DataParallel(model),
        "DistributedDataParallel": parallel(model),
        "torch.compile": torch.compile(model),
        "compiled in a wrapper": Batch(torch.compile(model)),
    }


def test_a_mask_of_ones_over_padding_is_found_in_every_wrapper() -> None:
    for family, ids in (("bert", RIGHT), ("llama", LEFT)):
        for model in wrapped(make(family)).values():
            found = fault(model, batch={"input_ids": ids, "attention_mask": torch.ones_like(ids)})
            assert found.place == "the batch"


def test_healthy_batches_pass_in_every_wrapper() -> None:
    for family in ("bert", "mistral"):
        for model in wrapped(make(family)).values():
            for ids in (IDS, RIGHT, LEFT):
                with warnings.catch_warnings(), nr.guard(model, pad_token_id=0) as watch:
                    warnings.simplefilter("error")
                    model(**batch(ids, position_ids=counted(ids)))
                assert watch.established and not watch.findings
    compiled = torch.compile(make("llama"))
    with nr.guard(compiled, steps=1) as watch:
        compiled(**batch(LEFT))
    assert watch.established and not guards(compiled._orig_mod)


def test_padding_on_the_left_of_healthy_batches() -> None:
    """Tests a padding id that also is text, `nn.TransformerEncoder`, chunks, and attention over a padded encoder."""
    text = LEFT.clone()
    text[0, 10] = text[0, 0] = text[1, 5] = 0
    real = (LEFT != 0).long()
    eos: dict[str, Any] = {"pad_token_id": 0, "eos_token_id": 0}
    plain = Intent.of("causal"), {"pad_token_id": 0}
    chunks = others()["llama4"]().eval()
    seen = [
        (make("llama"), (None, eos), {"input_ids": text, "attention_mask": real, "position_ids": counted(LEFT)}),
        (make("plain causal"), plain, batch(LEFT, position_ids=counted(LEFT))),
        (chunks, (None, {}), batch(LEFT)),
        (make("t5"), (None, {}), batch(LEFT, decoder_input_ids=IDS[:, :7])),
    ]
    for model, (intent, known), given in seen:
        with warnings.catch_warnings(), nr.guard(model, intent, **known) as watch:
            warnings.simplefilter("error")
            model(**given)
        assert watch.established and not watch.findings


def test_a_window_one_key_too_wide() -> None:
    model = make("mistral")
    model.set_attn_implementation("eager")
    window_one_key_wider(model)
    found = fault(model, batch=batch(IDS))
    assert found.report.classes == ("sliding_window_off_by_one",) and found.place == "model.layers.0.self_attn"


def test_packed_documents_by_positions() -> None:
    positions = torch.cat([torch.arange(8), torch.arange(12)]).expand(3, 20)
    model = make("llama")
    with warnings.catch_warnings(), nr.guard(model) as watch:
        warnings.simplefilter("error")
        model(input_ids=IDS, position_ids=positions, use_cache=False)
    assert watch.established and not watch.findings
    leaking = fault(model, Intent.of("causal", documents=True), batch=batch(IDS, position_ids=positions))
    assert "cross_document" in leaking.report.classes


EVIDENCE = ["position_ids", "positions and mask", "seq_idx", "segment_ids", "cu_seq_lens_q"]


@pytest.mark.parametrize(("family", "evidence", "attention"), sampled(product(["llama", "mistral"], EVIDENCE, ["sdpa", "eager", "noren"]), 4))
def test_documents_that_read_each_other_are_never_correct(family: str, evidence: str, attention: str) -> None:
    """The guard finds a leak exactly if the outputs of later documents depend on the first one."""
    import noren.hf

    noren.hf.register()
    model = make(family)
    model.set_attn_implementation(attention)
    generator = torch.Generator().manual_seed(len(evidence))
    for use_cache in (None, False, True):
        lengths = torch.randint(2, 6, (3,), generator=generator).tolist()
        total = sum(lengths)
        ids = torch.randint(3, 99, (1 if evidence == "cu_seq_lens_q" else 2, total), generator=generator)
        numbers = torch.repeat_interleave(torch.arange(3), torch.tensor(lengths))
        given: dict[str, Any] = {} if use_cache is None else {"use_cache": use_cache}
        given["position_ids"] = torch.cat([torch.arange(n) for n in lengths]).expand(len(ids), total)
        if evidence == "positions and mask":
            given["attention_mask"] = torch.ones_like(ids)
        elif evidence == "cu_seq_lens_q":
            given |= {"cu_seq_lens_q": torch.tensor([0, *lengths]).cumsum(0).int(), "position_ids": torch.arange(total)[None]}
        elif evidence != "position_ids":
            given |= {evidence: numbers.expand(len(ids), total) + (evidence == "segment_ids"), "position_ids": torch.arange(total)[None]}
        other = ids.clone()
        other[:, : lengths[0]] = 98 - other[:, : lengths[0]].clamp(max=90)
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            rows = [model.eval()(input_ids=x, **given).logits[:, lengths[0] :] for x in (ids, other)]
            leaks = not torch.allclose(*rows)
            model.train()
            if leaks:
                assert "cross_document" in fault(model, batch={"input_ids": ids, **given}).report.classes
                continue
            with nr.guard(model) as watch:
                model(input_ids=ids, **given)
        assert watch.established and not watch.findings


def test_gaps_of_positions_are_no_documents() -> None:
    positions = torch.tensor([[0, 1, 2, 5, 6, 9, 10, 11]])
    model = make("llama")
    for use_cache in (True, False):
        with warnings.catch_warnings(), nr.guard(model) as watch:
            warnings.simplefilter("error")
            model(input_ids=IDS[:1, :8], position_ids=positions, use_cache=use_cache)
        assert watch.established and not watch.findings


@pytest.mark.parametrize("family", ["llama", "mistral", "bert", "t5"])
def test_models_that_compute_with_noren(family: str) -> None:
    import noren.hf

    noren.hf.register()
    counts = []
    for attention in ("sdpa", "noren"):
        model = make(family)
        model.set_attn_implementation(attention)
        found = []
        for ids in (IDS, RIGHT, LEFT):
            more: dict[str, Any] = {"decoder_input_ids": IDS[:, :7]} if family == "t5" else {"position_ids": counted(ids)}
            with warnings.catch_warnings(), nr.guard(model, pad_token_id=0) as watch:
                warnings.simplefilter("error")
                model(**batch(ids, **more))
            assert watch.established and not watch.findings
            found.append(len(watch.established))
        counts.append(found)
    assert counts[0] == counts[1] or family == "t5"
    if family == "llama":
        for layer in model.model.layers:
            layer.register_forward_pre_hook(lambda _, args, k: (args, k | {"attention_mask": None}), with_kwargs=True)
        assert fault(model, "causal", batch=batch(LEFT)).report.classes


def test_masks_that_are_given_to_noren() -> None:
    import noren.hf

    import noren.torch as nt

    noren.hf.register()
    model = make("llama")
    model.set_attn_implementation("noren")
    with noren.hf.set_mask(model, "window(left=3)"), nr.guard(model) as watch:
        model(input_ids=IDS)
    assert watch.established and not watch.findings
    packed = torch.cat([torch.arange(8), torch.arange(12)]).expand(3, 20)
    facts = {"documents": [[8, 12]] * 3}
    with warnings.catch_warnings(), nr.guard(model) as watch:
        warnings.simplefilter("ignore")
        model(input_ids=IDS, position_ids=packed, attention_mask=torch.ones_like(IDS), noren_mask="documents", noren_facts=facts)
    assert watch.established and not watch.findings
    module, x = nt.convert(Named()), torch.randn(2, 6, 8)
    with pytest.raises(nr.MaskFault, match="window_missing"), nr.guard(module, "causal"):
        module(x, "causal & window(left=2)")
    with nr.guard(module, "sliding(3)") as watch:
        module(x, "causal & window(left=2)")
    assert [seen.wrong for seen in watch.established] == [0]


class Named(torch.nn.Module):
    """One attention under the name that PyTorch gives cross-attention."""

    def __init__(self) -> None:
        super().__init__()
        self.multihead_attn = torch.nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, x: Any, mask: Any = None) -> Any:
        return self.multihead_attn(x, x, x, attn_mask=mask)[0]


def test_self_attention_by_the_name_of_cross_attention() -> None:
    x, hidden = torch.randn(2, 6, 8), torch.ones(6, 6, dtype=torch.bool).triu(1)
    with nr.guard(Named(), "causal") as watch:
        watch.model(x, hidden)
    assert [seen.wrong for seen in watch.seen] == [0]
    with pytest.raises(nr.MaskFault), nr.guard(Named(), "causal") as watch:
        watch.model(x)
    decoder = torch.nn.TransformerDecoderLayer(8, 2, batch_first=True)
    with nr.guard(decoder, Intent.of("causal")) as watch:
        decoder(x, torch.randn(2, 6, 8), tgt_mask=hidden)
    assert {seen.place for seen in watch.seen} == {"self_attn", "multihead_attn"} and not watch.findings


class Twice(torch.nn.Module):
    """Two layers with masks that are made again for each layer, or changed in place."""

    def __init__(self, in_place: bool) -> None:
        super().__init__()
        self.one, self.two = (torch.nn.MultiheadAttention(8, 2, batch_first=True) for _ in range(2))
        self.in_place = in_place

    def forward(self, x: Any) -> Any:
        hidden = torch.ones(6, 6, dtype=torch.bool).triu(1)
        x = self.one(x, x, x, attn_mask=hidden if self.in_place else hidden.clone())[0]
        hidden.zero_()
        return self.two(x, x, x, attn_mask=hidden if self.in_place else hidden.clone())[0]


@pytest.mark.parametrize("mode", [torch.enable_grad, torch.inference_mode])
@pytest.mark.parametrize("in_place", [True, False])
def test_masks_that_are_made_anew_or_changed_in_place(in_place: bool, mode: Any) -> None:
    with pytest.warns(UserWarning), mode(), nr.guard(Twice(in_place), "causal", on_fault="warn") as watch:
        watch.model(torch.randn(2, 6, 8))
    assert [(seen.place, bool(seen.wrong)) for seen in watch.seen] == [("one", False), ("two", True)]


def test_models_of_transformers_in_inference_mode() -> None:
    model = make("llama")
    with torch.inference_mode(), nr.guard(model, pad_token_id=0) as watch:
        model(**batch(RIGHT, position_ids=counted(RIGHT)))
    assert watch.established and not watch.findings


class Biased(torch.nn.Module):
    """Causal attention with a bias that falls with the distance."""

    def __init__(self, slope: float, hides: float) -> None:
        super().__init__()
        self.slope, self.hides = slope, hides

    def forward(self, x: Any) -> Any:
        at = torch.arange(x.shape[2])
        bias = (self.slope * (at[None] - at[:, None]).float()).masked_fill(at[None] > at[:, None], self.hides)
        return torch.nn.functional.scaled_dot_product_attention(x, x, x, bias[None, None])


@pytest.mark.parametrize("slope,hides", [(300.0, -torch.inf), (300.0, torch.finfo(torch.float32).min), (0.5, -1e9)])
def test_a_bias_far_below_zero_hides_nothing(slope: float, hides: float) -> None:
    with nr.guard(Biased(slope, hides), "causal", on_fault="warn") as watch:
        watch.model(torch.randn(1, 2, 8, 8))
    assert [seen.wrong for seen in watch.seen] == [0]

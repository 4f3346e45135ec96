"""Reports of an audit: exchanged axes are named, parts without a result are listed, and outputs of every form are read."""

from __future__ import annotations

from typing import Any

import pytest

import noren as nr
from conftest import sampled

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402


class Encoder(nn.Module):
    """An encoder whose input is `[batch, length]`, with modules that may expect `[length, batch, width]`."""

    def __init__(self, batch_first: bool, causal: bool = False, exchange: bool = False) -> None:
        super().__init__()
        self.embed, self.place = nn.Embedding(40, 16), nn.Embedding(256, 16)
        layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=batch_first)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.causal, self.exchange = causal, exchange

    def forward(self, input_ids: Any) -> Any:
        x = self.embed(input_ids) + self.place(torch.arange(input_ids.shape[1]))
        x = x.transpose(0, 1) if self.exchange else x
        length = x.shape[1] if self.encoder.layers[0].self_attn.batch_first else x.shape[0]
        x = self.encoder(x, mask=nn.Transformer.generate_square_subsequent_mask(length) if self.causal else None)
        return x.transpose(0, 1) if self.exchange else x


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("batch_first", [False, True])
def test_exchanged_axes_are_named(batch_first: bool, causal: bool) -> None:
    intent = "causal" if causal else "bidirectional"
    checks = ["liveness", "reach", "batch"]
    report = nr.audit(Encoder(batch_first, causal, exchange=batch_first).eval().double(), intent, vocab=40, checks=checks, length=10)
    assert report.verdict == "failed" and report.failures
    assert all("axes are exchanged" in check.likely for check in report.failures), str(report)
    assert ("batch_first=True" in str(report)) == (not batch_first)
    healthy = nr.audit(Encoder(batch_first, causal, exchange=not batch_first).eval(), intent, vocab=40, checks=checks, length=10)
    assert healthy.ok, str(healthy)


def test_modules_of_pytorch_with_the_default_order_of_axes() -> None:
    layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0)
    with pytest.raises(nr.Error, match="batch_first=True"):
        nr.audit(nn.TransformerEncoder(layer, 1, enable_nested_tensor=False).eval(), "bidirectional")


class Fused(nn.Module):
    """Causal attention with a softmax by hand. `name` is the name of the layer that computes queries, keys and values."""

    def __init__(self, fill: float, name: str, out: Any = None) -> None:
        super().__init__()
        self.embed, self.place, self.fill, self.name, self.out = nn.Embedding(40, 16), nn.Embedding(256, 16), fill, name, out
        self.add_module(name, nn.Linear(16, 48))

    def forward(self, input_ids: Any) -> Any:
        x = self.embed(input_ids) + self.place(torch.arange(input_ids.shape[1]))
        q, k, v = self.get_submodule(self.name)(x).chunk(3, -1)
        scores = q @ k.transpose(1, 2) / 4
        hidden = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
        found = x + scores.masked_fill(hidden, self.fill).softmax(-1) @ v
        return found if self.out is None else self.out(logits=found)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("name", ["c_attn", "Wqkv", "query_key_value"])
def test_fused_projections_show_weak_fills(name: str, seed: int) -> None:
    for fill, verdict in ((-100.0, "failed"), (-1e4, "failed"), (-1e9, "ok"), (-torch.inf, "ok")):
        torch.manual_seed(seed)
        assert nr.audit(Fused(fill, name).eval(), "causal", vocab=40, checks=["weak_fill"]).verdict == verdict, fill


def test_fused_projections_without_weak_fills_are_ok() -> None:
    report = nr.audit(Fused(-torch.inf, "c_attn").eval(), "causal", vocab=40, checks=["weak_fill", "prefix"])
    assert report.ok and report.summary().startswith("ok:")


def test_a_check_without_keys_is_listed() -> None:
    report = nr.audit(Fused(-100.0, "mix").eval(), "causal", vocab=40)
    assert report.verdict == "ok" and report.summary().startswith("ok without weak_fill:")
    assert any("weak_fill" in said and "no keys were found" in said for said in report.not_tested)


class Attributes(dict):  # type: ignore[type-arg]
    __getattr__ = dict.__getitem__


def test_outputs_that_are_dictionaries_with_attributes() -> None:
    assert nr.audit(Fused(-torch.inf, "qkv", Attributes).eval(), "causal", vocab=40, checks=["prefix"]).ok


class AtOneSize(Fused):
    """Attention without a mask for batches of exactly `rows` rows."""

    def __init__(self, rows: int) -> None:
        super().__init__(-torch.inf, "qkv")
        self.rows = rows

    def forward(self, input_ids: Any) -> Any:
        self.fill = 0.0 if len(input_ids) == self.rows else -torch.inf
        return super().forward(input_ids)


@pytest.mark.parametrize("rows", [2, 3, 7])
def test_every_number_of_batch_rows_up_to_the_stated_one_is_tested(rows: int) -> None:
    report = nr.audit(AtOneSize(rows).eval(), "causal", vocab=40, checks=["prefix", "reach", "batch"])
    assert report.verdict == "failed", rows
    assert any(said.startswith("batches of more than 8 rows") for said in report.not_tested)


def test_the_stated_number_of_batch_rows_is_that_of_the_checks() -> None:
    report = nr.audit(AtOneSize(99).eval(), "causal", vocab=40, checks=["prefix"])
    assert any(said.startswith("batches of more than 1 rows") for said in report.not_tested), report.not_tested


@pytest.mark.parametrize("family", sampled(["", "llama", "bert"], 3))
def test_models_that_compute_with_noren_are_ok(family: str) -> None:
    import noren.torch as nt

    if not family:
        model = nt.convert(Encoder(True, causal=True).eval())
        assert nr.audit(model, "causal", vocab=40, layers=2).ok
        return
    pytest.importorskip("transformers")
    import noren.hf
    from planted import make

    noren.hf.register()
    hf = make(family)
    hf.set_attn_implementation("noren")
    report = nr.audit(hf)
    assert report.ok, str(report)

"""Pooling of `noren.torch`, and `noren.data` with tensors, DataLoader, datasets and a model of transformers."""

from __future__ import annotations

import math
import traceback
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import noren as nr
from conftest import runs
from noren.data import pack

torch = pytest.importorskip("torch")
import noren.torch as nt  # noqa: E402


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> Iterator[None]:
    """Small operations are slower on several threads."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


POOLS = {"mean": nt.mean_pool, "max": nt.max_pool, "first": nt.first_token_pool, "last": nt.last_token_pool}


def random_mask(rng: np.random.Generator, batch: int, length: int) -> np.ndarray:
    """Returns right, left, both-sided or scattered padding; some rows have no token, some no padding."""
    mask = np.zeros((batch, length), bool)
    for b in range(batch):
        start, stop = sorted(rng.integers(0, length + 1, 2))
        kind = rng.integers(0, 5)
        mask[b] = [np.arange(length) < stop, np.arange(length) >= start, (np.arange(length) >= start) & (np.arange(length) < stop), rng.random(length) < 0.5, True][kind]
    return mask


def pooled_by_loops(hidden: np.ndarray, mask: np.ndarray, how: str) -> np.ndarray:
    batch, length, width = hidden.shape
    out = np.zeros((batch, width))
    for b in range(batch):
        tokens = [t for t in range(length) if mask[b, t]]
        if not tokens:
            continue
        for d in range(width):
            values = [float(hidden[b, t, d]) for t in tokens]
            out[b, d] = {"mean": math.fsum(values) / len(values), "max": max(values), "first": values[0], "last": values[-1]}[how]
    return out


def pooled_gradient(hidden: np.ndarray, mask: np.ndarray, how: str, upstream: np.ndarray) -> np.ndarray:
    out = np.zeros(hidden.shape)
    for b in range(len(hidden)):
        tokens = np.flatnonzero(mask[b])
        if not len(tokens):
            continue
        for d in range(hidden.shape[2]):
            if how == "mean":
                out[b, tokens, d] = upstream[b, d] / len(tokens)
            else:
                at = {"first": tokens[0], "last": tokens[-1], "max": tokens[hidden[b, tokens, d].argmax()]}[how]
                out[b, at, d] = upstream[b, d]
    return out


def test_pooling_of_random_batches() -> None:
    """Values and gradients equal loops in float64; gradients of padding are exactly 0, and NaN in padding changes no bit."""
    zeros = 0
    for seed in range(runs(160, 1000)):
        rng = np.random.default_rng(seed)
        batch, length, width = (int(rng.integers(low, high)) for low, high in ((1, 6), (1, 12), (1, 5)))
        mask = random_mask(rng, batch, length)
        dtype = (torch.float32, torch.float64, torch.bfloat16, torch.float16)[seed % 4]
        data = torch.tensor(rng.normal(size=(batch, length, width))).to(dtype)
        upstream = torch.tensor(rng.normal(size=(batch, width))).to(dtype)
        given = torch.tensor(mask) if rng.random() < 0.5 else torch.tensor(mask.astype(int))
        tolerance = {torch.float64: 1e-12, torch.float32: 1e-6, torch.bfloat16: 2e-2, torch.float16: 2e-3}[dtype]
        for how, pool in POOLS.items():
            hidden = data.clone().requires_grad_()
            out = pool(hidden, given)
            out.backward(upstream)
            assert out.dtype == dtype and hidden.grad is not None
            exact = data.double().numpy()
            np.testing.assert_allclose(out.detach().double().numpy(), pooled_by_loops(exact, mask, how), rtol=tolerance, atol=tolerance)
            if how != "max" or dtype == torch.float64:  # elsewhere the maximum may not be unique
                np.testing.assert_allclose(hidden.grad.double().numpy(), pooled_gradient(exact, mask, how, upstream.double().numpy()), rtol=tolerance, atol=tolerance)
            padding = hidden.grad[~torch.tensor(mask)]
            assert not padding.count_nonzero() and not padding.isnan().any()
            zeros += padding.numel()
            poisoned = data.masked_fill(~torch.tensor(mask)[..., None], float(rng.choice([np.nan, np.inf, -np.inf]))).requires_grad_()
            again = pool(poisoned, given)
            again.backward(upstream)
            assert torch.equal(again, out) and torch.equal(poisoned.grad, hidden.grad)
    print(f"pooling: results and gradients equal loops; {zeros} gradients of padding are exactly 0")


def test_the_doctor_finds_nothing_in_pooled_states() -> None:
    for seed in range(40):
        rng = np.random.default_rng(seed)
        lengths = rng.integers(1, 9, 4)
        lengths[0] = 9
        for side in ("left", "right"):
            mask = np.arange(9) < lengths[:, None] if side == "right" else np.arange(9) >= 9 - lengths[:, None]
            cells = (nr.causal() & nr.padding()).bind(nr.Shape.square(9, batch=4), {"attention_mask": mask.astype(int)}).dense()
            hidden = torch.tensor(rng.normal(size=(4, 9, 6)))
            declared: dict[str, Any] = dict(convention="keep", kind="causal", attention_mask=mask.astype(int), hidden=hidden)
            for how, pool in POOLS.items():
                report = nr.check(cells, pooled=pool(hidden, torch.tensor(mask)), pooling=how, **declared)
                assert report.verdict == "correct" and "pooling_includes_padding" not in [f.cls for f in report.findings], report
            assert "pooling_includes_padding" in nr.check(cells, pooled=hidden.mean(1), pooling="mean", **declared).classes


def test_a_long_text_in_half_precision_does_not_overflow() -> None:
    hidden = torch.full((1, 8192, 1), 20.0, dtype=torch.float16)
    assert nt.mean_pool(hidden, torch.ones(1, 8192, dtype=torch.bool)).item() == 20.0


def test_rows_and_batches_without_tokens() -> None:
    for pool in POOLS.values():
        assert pool(torch.ones(0, 3, 2), torch.ones(0, 3, dtype=torch.bool)).shape == (0, 2)
        assert pool(torch.ones(2, 0, 2), torch.ones(2, 0, dtype=torch.bool)).tolist() == [[0.0, 0.0]] * 2
        with pytest.raises(nr.Error, match="batch row 1 has no token: remove the row"):
            pool(torch.ones(2, 3, 1), torch.tensor([[1, 1, 0], [0, 0, 0]]), empty="error")


def test_pooling_compiles() -> None:
    mask = torch.tensor([[1, 1, 0], [0, 1, 1]])
    hidden = torch.randn(2, 3, 4)
    for pool in POOLS.values():
        compiled = torch.compile(pool, backend="eager", fullgraph=True)
        assert torch.equal(compiled(hidden, mask), pool(hidden, mask))


# --- tensors, loaders and models ---------------------------------------------------------------------------------------


def test_tensors_give_tensors() -> None:
    ids = torch.randint(5, 50, (4, 20))
    packed = pack([ids[0], ids[1, :7]], 12)
    assert {name: (value.shape, value.dtype) for name, value in packed.tensors().items()} == {name: ((3, 12), torch.int64) for name in ("input_ids", "position_ids", "labels")}
    hidden = torch.randn(3, 12, 5, requires_grad=True)
    parts = packed.unpack(hidden)
    assert [part.shape for part in parts] == [(20, 5), (7, 5)]
    sum(part.sum() for part in parts).backward()
    assert torch.equal(hidden.grad[..., 0] == 1.0, torch.tensor(packed.attention_mask == 1)) and not hidden.grad[torch.tensor(packed.attention_mask == 0)].count_nonzero()


def padded(examples: list[dict[str, Any]], side: str) -> dict[str, Any]:
    """Returns the padded batch of a causal model, made by plain loops."""
    width = max(len(example["input_ids"]) for example in examples)
    batch = {name: torch.full((len(examples), width), fill) for name, fill in {"input_ids": 0, "attention_mask": 0, "position_ids": 0, "labels": -100}.items()}
    for row, example in enumerate(examples):
        ids = torch.tensor(example["input_ids"])
        place = (row, slice(width - len(ids), None) if side == "left" else slice(0, len(ids)))
        batch["input_ids"][place], batch["attention_mask"][place], batch["position_ids"][place] = ids, 1, torch.arange(len(ids))
        batch["labels"][place] = torch.cat([torch.tensor([-100]), ids[1:]])
    return batch


def collate(examples: list[dict[str, Any]]) -> dict[str, Any]:
    return pack(examples, 48, method="first_fit_decreasing").tensors()


@pytest.mark.parametrize("workers", [0, 2])
def test_packed_rows_in_a_dataloader(workers: int) -> None:
    rng = np.random.default_rng(5)
    data = [{"input_ids": rng.integers(5, 50, int(n)).tolist()} for n in rng.integers(2, 15, 30)]
    batches = [list(range(start, start + 3)) for start in range(0, 30, 3)]
    made = list(torch.utils.data.DataLoader(data, batch_sampler=batches, collate_fn=collate, num_workers=workers))
    for batch, members in zip(made, batches, strict=True):
        expected = pack([data[at] for at in members], 48, method="first_fit_decreasing")
        assert {name: value.tolist() for name, value in batch.items()} == {name: getattr(expected, name).tolist() for name in ("input_ids", "position_ids", "labels")}


def test_datasets() -> None:
    datasets = pytest.importorskip("datasets")
    datasets.disable_progress_bars()
    rng = np.random.default_rng(6)
    rows = [{"input_ids": rng.integers(5, 50, int(n)).tolist(), "attention_mask": [1] * int(n), "text": "x"} for n in rng.integers(2, 15, 40)]
    data = datasets.Dataset.from_list(rows)
    packed = pack([row["input_ids"] for row in rows], 48, method="first_fit_decreasing")
    for source in (data, data.with_format("torch"), data.with_format("numpy")):
        [batch] = torch.utils.data.DataLoader(source.remove_columns("text"), batch_size=100, collate_fn=collate)
        assert batch["input_ids"].tolist() == packed.input_ids.tolist() and batch["labels"].tolist() == packed.labels.tolist()


def tiny(kind: str, **options: Any) -> Any:
    transformers = pytest.importorskip("transformers")
    import noren.hf

    noren.hf.register()
    torch.manual_seed(0)
    sizes = dict(hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, vocab_size=64, max_position_embeddings=64)
    config = transformers.AutoConfig.for_model(kind, **sizes, **options)
    return transformers.AutoModelForCausalLM.from_config(config, attn_implementation="noren").eval()


def loss_sum(logits: Any, labels: Any) -> Any:
    """Returns the sum of the cross entropies of a causal model."""
    return torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten(), reduction="sum")


def test_packed_rows_have_the_logits_loss_and_gradients_of_single_texts() -> None:
    model = tiny("llama", num_key_value_heads=2)
    rng = np.random.default_rng(7)
    examples = [{"input_ids": rng.integers(5, 60, int(n)).tolist()} for n in rng.integers(2, 15, 9)]
    tokens = sum(len(example["input_ids"]) - 1 for example in examples)
    parameter = model.model.layers[0].mlp.up_proj.weight
    total = 0.0
    for example in examples:
        ids = torch.tensor([example["input_ids"]])
        loss = loss_sum(model(ids).logits, ids) / tokens
        loss.backward()
        total += loss.item()
    expected = parameter.grad.clone()
    for packed in (pack(examples, 20, method="first_fit_decreasing"), pack(examples), None):
        model.zero_grad()
        batch = padded(examples, "left") if packed is None else packed.tensors()
        out = model(**batch, use_cache=False)
        assert (batch["labels"][:, 1:] != -100).sum() == tokens
        loss = loss_sum(out.logits, batch["labels"]) / tokens
        loss.backward()
        torch.testing.assert_close(loss.item(), total, rtol=1e-5, atol=0.0)
        torch.testing.assert_close(out.loss.item(), total, rtol=1e-5, atol=0.0)
        torch.testing.assert_close(parameter.grad, expected, rtol=1e-4, atol=1e-7)
        if packed is not None:
            for example, logits in zip(examples, packed.unpack(out.logits), strict=True):
                torch.testing.assert_close(logits, model(torch.tensor([example["input_ids"]])).logits[0], rtol=1e-4, atol=1e-6)


def test_gradients_through_padding_are_exactly_zero_in_a_model() -> None:
    """The embeddings of padding get no gradient from attention, the loss or pooling, on both sides."""
    model = tiny("llama", num_key_value_heads=2)
    rng = np.random.default_rng(8)
    examples = [{"input_ids": rng.integers(5, 60, int(n)).tolist()} for n in (3, 11, 7, 2)]
    for side in ("left", "right"):
        batch = padded(examples, side)
        embedded = model.get_input_embeddings()(batch["input_ids"]).detach().requires_grad_()
        out = model(inputs_embeds=embedded, attention_mask=batch["attention_mask"], position_ids=batch["position_ids"], output_hidden_states=True)
        pooled = sum(pool(out.hidden_states[-1], batch["attention_mask"]).square().sum() for pool in POOLS.values())
        (loss_sum(out.logits, batch["labels"]) + pooled).backward()
        padding = embedded.grad[batch["attention_mask"] == 0]
        assert padding.numel() and not padding.count_nonzero() and embedded.grad[batch["attention_mask"] == 1].count_nonzero()


# --- wrong input -------------------------------------------------------------------------------------------------------


def test_messages_name_the_value_and_the_fix() -> None:
    hidden, labels = torch.zeros(2, 3, 4), torch.zeros(2, 3, dtype=torch.long)
    for call, message in [
        (lambda: nt.mean_pool(hidden, torch.tensor([[1, 2, 0]] * 2)), "attention_mask holds 2: give booleans, or 1 (a token) and 0"),
        (lambda: nt.mean_pool(hidden, torch.ones(2, 3)), "attention_mask holds torch.float32: give booleans"),
        (lambda: nt.mean_pool(hidden, torch.ones(2, 4, dtype=torch.bool)), "attention_mask has shape (2, 4), but hidden has shape (2, 3, 4): give a mask of shape (2, 3)"),
        (lambda: nt.first_token_pool(hidden[0], labels), "`hidden` has shape (3, 4): give [batch, length, width]"),
        (lambda: nt.last_token_pool(hidden.long(), labels), "hidden holds torch.int64: give float32"),
        (lambda: nt.max_pool(hidden, labels, empty="nan"), "`empty` is 'nan': give 'zero' or 'error'"),
        (lambda: pack([[5]]).tensors("moon"), "device is 'moon': give a device of this machine, such as 'cpu'"),
        (lambda: pack([[5]]).tensors(2.5), "device is 2.5: give a device of this machine"),
        (lambda: pack([[5]]).unpack(torch.zeros(1, 2)), "`values` has shape (1, 2): its first dimensions must be (1, 1)"),
    ]:
        with pytest.raises((nr.Error, TypeError)) as caught:
            call()
        assert message in str(caught.value), caught.value


HOSTILE: list[Any] = [
    None, True, 0, -1, 2, 10**30, -(10**30), 0.5, float("nan"), float("inf"), "x", "zero", [], [[1]], {}, object(), np.ones((2, 3)), torch.tensor(1), torch.tensor(float("nan")),
    torch.ones(2, 3), torch.ones(2, 3, dtype=torch.bool), torch.ones(2, 3, dtype=torch.long), torch.full((2, 3), 9), torch.full((2, 3), -5, dtype=torch.int8), torch.ones(3, 2, dtype=torch.long),
    torch.ones(2, 3, 4), torch.ones(2, 3, 4, dtype=torch.long), torch.ones(2, 3, 4, dtype=torch.complex64), torch.ones(2, 3, 4, device="meta"), torch.ones(2, 3, device="meta", dtype=torch.long),
    torch.ones(2, 3).to_sparse(), torch.zeros(0, 3, dtype=torch.long), torch.zeros(2, 0, dtype=torch.long), torch.zeros(2, 0, 4), torch.zeros(0, 3, 4), torch.zeros(2, 3, 0), torch.ones(2, 3, dtype=torch.complex64),
    torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]), torch.full((2, 3), 255, dtype=torch.uint8), torch.full((2, 3, 4), float("nan"), dtype=torch.float16), 1j, torch.ones(2, 3, dtype=torch.float8_e4m3fn),
    torch.ones(2, 3, 4, dtype=torch.float8_e4m3fn), torch.ones(2, 3, dtype=torch.uint16),
]  # fmt: skip
KEEP = torch.ones(2, 3, dtype=torch.bool)
CALLS: dict[str, tuple[Any, dict[str, Any], list[str]]] = {
    **{f"{name}_pool": (pool, dict(hidden=torch.ones(2, 3, 4), attention_mask=KEEP), ["empty"]) for name, pool in POOLS.items()},
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(CALLS))
def test_calls_with_wrong_input_raise_only_errors_with_advice(name: str) -> None:
    call, right, names = CALLS[name]
    rng = np.random.default_rng(len(name))
    refused = 0
    calls = runs(300, 2000)
    for _ in range(calls):
        changed = [str(key) for key in rng.permutation([*right, *names])[: int(rng.integers(1, 4))]]
        given = {**right, **{key: HOSTILE[rng.integers(len(HOSTILE))] for key in changed}}
        try:
            call(**given)
        except (nr.Error, TypeError) as error:
            refused += 1
            frame = traceback.extract_tb(error.__traceback__)[-1]
            assert ":" in str(error) and "/noren/" in frame.filename and str(frame.line).startswith("raise"), (given, error)
    assert refused > calls / 4, refused

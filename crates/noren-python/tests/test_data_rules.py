"""`noren.data`: rules for labels, columns and long documents, and the doctor on the batches of the collators."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import noren as nr
from noren.data import PackingCollator, PaddingCollator, pack

METHODS = ("in_order", "fill", "first_fit", "first_fit_decreasing")
VOCABULARY = 60


def collated(examples: list[dict[str, Any]], **options: Any) -> dict[str, list[Any]]:
    """Returns the batch of a PaddingCollator as lists."""
    batch = PaddingCollator(return_tensors="np", **options)(examples)
    return {name: value.tolist() for name, value in batch.items()}


# --- packing -----------------------------------------------------------------------------------------------------------


def test_long_documents_are_treated_alike_by_every_method() -> None:
    documents = [[5, 6, 7, 8, 9], [10, 11]]
    kept = {"split": [[5, 6, 7, 8, 9], [10, 11]], "truncate": [[5, 6, 7], [10, 11]], "drop": [[], [10, 11]]}
    for method in METHODS:
        for long, expected in kept.items():
            packed = pack(documents, 3, method=method, long=long)
            assert [part.tolist() for part in packed.unpack(packed.input_ids)] == expected, (method, long)
        with pytest.raises(nr.Error, match="document 0 has 5 tokens, but a row has space for 3"):
            pack(documents, 3, method=method, long="error")
    assert pack(documents, 3, method="fill", long="truncate").input_ids.tolist() == [[5, 6, 7], [10, 11, 0]]


@pytest.mark.parametrize("labels", ["auto", "causal", "none"])
def test_the_labels_option_selects_the_labels(labels: str) -> None:
    collate = PackingCollator(length=4, labels=labels, return_tensors="np")
    examples = [{"input_ids": [5, 6, 7]}, {"input_ids": [8]}, {"input_ids": [9, 10]}]
    assert ("labels" in collate(examples)) == (labels != "none")
    with pytest.raises(nr.Error, match="the documents have the entry 'labels', which labels='causal' does not use"):
        PackingCollator(labels="causal", return_tensors="np")([{"input_ids": [5], "labels": [5]}])


# --- padding -----------------------------------------------------------------------------------------------------------


def test_padding_inside_of_an_example_has_no_label() -> None:
    example = {"input_ids": [0, 5, 6], "attention_mask": [0, 1, 1], "labels": [9, 7, 8], "loss_mask": [1, 1, 1]}
    batch = collated([example, {**example, "attention_mask": [1, 1, 0]}])
    assert batch["labels"] == [[-100, 7, 8], [9, 7, -100]]
    del example["labels"]
    assert collated([example])["loss_mask"] == [[0, 1, 1]]  # without labels, the mask is for `noren.torch.token_loss`


@pytest.mark.parametrize("labels", ["auto", "given"])
def test_a_loss_mask_selects_given_labels(labels: str) -> None:
    examples = [{"input_ids": [5, 6, 7], "labels": [15, 16, 17], "loss_mask": [0, 1, 0]}, {"input_ids": [8], "labels": [18], "loss_mask": [1]}]
    batch = collated(examples, labels=labels, side="left")
    assert batch["labels"] == [[-100, 16, -100], [-100, -100, 18]] and "loss_mask" not in batch
    packed = pack(examples, causal=False)
    assert packed.labels.tolist() == [[-100, 16, -100, 18]]


def test_label_and_labels_are_used_as_the_option_states() -> None:
    rows = [{"input_ids": [5, 6], "label": 1}, {"input_ids": [7], "label": 0}]
    assert collated(rows)["labels"] == collated(rows, labels="given")["labels"] == [1, 0]
    assert "labels" not in collated(rows, labels="none") and "label" not in collated(rows, labels="none")
    per_token = [{"input_ids": [5, 6], "label": [1, 2]}, {"input_ids": [7], "label": [3]}]
    assert collated(per_token)["labels"] == [[1, 2], [3, -100]]
    for call, message in [
        (lambda: collated(rows, labels="causal"), "the examples have the column 'label', which labels='causal' does not use: remove the column"),
        (lambda: collated([{"input_ids": [5], "label": 1, "labels": [2]}]), "the examples have 'labels' and 'label': remove one of the columns"),
    ]:
        with pytest.raises(nr.Error) as caught:
            call()
        assert message in str(caught.value)


def test_numbers_outside_of_the_type_are_refused() -> None:
    for value in (2**63, 2**64 - 1, np.uint64(2**63), 1e300):
        with pytest.raises(nr.Error, match="column 'score' of example 1 holds"):
            collated([{"input_ids": [5], "score": 1}, {"input_ids": [5], "score": value}])
    assert collated([{"input_ids": [5], "score": float("inf")}])["score"] == [float("inf")]


@pytest.mark.parametrize("name", ["input_ids", "attention_mask", "labels", "label"])
def test_pad_values_are_for_further_columns(name: str) -> None:
    with pytest.raises(nr.Error, match=f"pad_values has the column '{name}'"):
        PaddingCollator(pad_values={name: 1})


# --- messages ----------------------------------------------------------------------------------------------------------


def test_messages_name_what_was_given() -> None:
    for call, message in [
        (lambda: pack([{"input_ids": [5]}, {"input_ids": [5], "loss_mask": [1]}]), "document 0 has no 'loss_mask', but document 1 has one: give 'loss_mask' in all documents"),
        (lambda: collated([{"input_ids": [5]}, {"input_ids": [5], "loss_mask": [1]}]), "example 0 has no 'loss_mask', but example 1 has one: give 'loss_mask' in all examples"),
        (lambda: pack([[]], 4), "no token is left after packing 1 document: give documents with tokens"),
        (lambda: pack([[], []], 4), "no token is left after packing 2 documents: give documents with tokens"),
        (lambda: pack([np.zeros(2**25, np.int8), np.zeros(2**25 + 1, np.int8)]), "the documents have 67108865 tokens, more than 67108864 in one row: give `length`"),
    ]:
        with pytest.raises(nr.Error) as caught:
            call()
        assert message in str(caught.value), caught.value


# --- the doctor --------------------------------------------------------------------------------------------------------


def healthy(cells: Any, batch: dict[str, Any], **declared: Any) -> None:
    report = nr.check(cells, convention="keep", input_ids=batch["input_ids"], labels=batch["labels"], position_ids=batch["position_ids"], **declared)
    assert report.verdict == "correct" and not report.classes, report


def examples_of(rng: np.random.Generator, count: int) -> list[dict[str, Any]]:
    """Returns texts that begin and end with special tokens."""
    return [{"input_ids": [1, *rng.integers(5, VOCABULARY, int(n)).tolist(), 2]} for n in rng.integers(6, 14, count)]


@pytest.mark.parametrize("kind", ["causal", "given"])
def test_the_doctor_finds_nothing_in_batches_of_the_padding_collator(kind: str) -> None:
    for seed in range(30):
        rng = np.random.default_rng(seed)
        side = ("left", "right")[seed % 2]
        examples = examples_of(rng, 5)
        if kind == "given":
            examples = [{**example, "labels": [-100, *example["input_ids"][1:]], "loss_mask": [0] * 3 + [1] * (len(example["input_ids"]) - 3)} for example in examples]
        collate = PaddingCollator(side=side, multiple=1 + seed % 8, labels="causal" if kind == "causal" else "auto", return_tensors="np")
        batch = collate(examples)
        cells = (nr.causal() & nr.padding()).bind(nr.Shape.square(batch["input_ids"].shape[1], batch=5), {"attention_mask": batch["attention_mask"]}).dense()
        declared: dict[str, Any] = dict(kind="causal", model_shifts_labels=True, eos_token_id=2)
        healthy(cells, batch, attention_mask=batch["attention_mask"], padding_side=side, **declared)


@pytest.mark.parametrize("method", METHODS)
def test_the_doctor_finds_nothing_in_batches_of_the_packing_collator(method: str) -> None:
    checked = 0
    for seed in range(20):
        collate = PackingCollator(length=(None, 32)[seed % 2], method=method, extras=["segment_ids", "facts"], return_tensors="np")
        batch = collate(examples_of(np.random.default_rng(seed), 8))
        shape = nr.Shape.square(batch["input_ids"].shape[1], batch=len(batch["input_ids"]))
        if (batch["labels"] == -100).all(1).any():
            continue  # a row whose tokens all begin a piece has no label
        cells = (nr.causal() & nr.documents()).bind(shape, batch["facts"]).dense()
        healthy(cells, batch, segment_ids=batch["segment_ids"], kind="causal_packed", eos_token_id=2, model_shifts_labels=True)
        checked += 1
    assert checked > 10

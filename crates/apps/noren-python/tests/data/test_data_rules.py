"""`noren.data`: rules for labels and long documents, and the doctor on packed rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import noren as nr
from noren.data import pack

METHODS = ("in_order", "fill", "first_fit", "first_fit_decreasing")
VOCABULARY = 60


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


def test_a_loss_mask_selects_given_labels() -> None:
    examples = [{"input_ids": [5, 6, 7], "labels": [15, 16, 17], "loss_mask": [0, 1, 0]}, {"input_ids": [8], "labels": [18], "loss_mask": [1]}]
    assert pack(examples, causal=False).labels.tolist() == [[-100, 16, -100, 18]]
    assert pack([{"input_ids": [5, 6]}], labels="none").labels.tolist() == [[-100, -100]]


# --- messages ----------------------------------------------------------------------------------------------------------


def test_messages_name_what_was_given() -> None:
    for call, message in [
        (lambda: pack([{"input_ids": [5]}, {"input_ids": [5], "loss_mask": [1]}]), "document 0 has no 'loss_mask', but document 1 has one: give 'loss_mask' in all documents"),
        (lambda: pack([[]], 4), "no token is left after packing 1 document: give documents with tokens"),
        (lambda: pack([[], []], 4), "no token is left after packing 2 documents: give documents with tokens"),
        (lambda: pack([np.zeros(2**25, np.int8), np.zeros(2**25 + 1, np.int8)]), "the documents have 67108865 tokens, more than 67108864 in one row: give `length`"),
    ]:
        with pytest.raises(nr.Error) as caught:
            call()
        assert message in str(caught.value), caught.value


# --- the doctor --------------------------------------------------------------------------------------------------------


def examples_of(rng: np.random.Generator, count: int) -> list[dict[str, Any]]:
    """Returns texts that begin and end with special tokens."""
    return [{"input_ids": [1, *rng.integers(5, VOCABULARY, int(n)).tolist(), 2]} for n in rng.integers(6, 14, count)]


@pytest.mark.parametrize("method", METHODS)
def test_the_doctor_finds_nothing_in_packed_rows(method: str) -> None:
    checked = 0
    for seed in range(20):
        packed = pack(examples_of(np.random.default_rng(seed), 8), (None, 32)[seed % 2], method=method)
        if (packed.labels == -100).all(1).any():
            continue  # a row whose tokens all begin a piece has no label
        batch = {"input_ids": packed.input_ids, "labels": packed.labels, "position_ids": packed.position_ids, "segment_ids": packed.segment_ids}
        report = nr.check(packed.bind().dense(), convention="keep", kind="causal_packed", eos_token_id=2, model_shifts_labels=True, **batch)
        assert report.verdict == "correct" and not report.classes, report
        checked += 1
    assert checked > 10

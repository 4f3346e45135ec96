"""Facts of batches: `nr.facts_from`."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

import noren as nr

T = torch.tensor


def cells(batch, **arguments):
    """The mask cells of a batch, `[batch, length, length]`."""
    found = nr.facts_from(batch, **arguments)
    rows = next(np.asarray(value) for name, value in batch.items() if np.ndim(value) == 2)
    return found.mask.dense(nr.Shape.square(rows.shape[1], batch=len(rows)), found)[:, 0]


@pytest.mark.parametrize(
    ("batch", "facts", "mask"),
    [
        ({"attention_mask": T([[1, 1, 1, 0], [1, 1, 0, 0]])}, {"lengths": [3, 2]}, "padding"),
        ({"attention_mask": [[False, True], [True, True]]}, {"lengths": [1, 2], "side": "left"}, "padding"),
        ({"attention_mask": np.ones((1, 3), np.float32)}, {"lengths": [3]}, "padding"),
        ({"attention_mask": T([[1, 1, 2, 2, 0]])}, {"lengths": [4], "documents": [[2, 2]]}, "documents & padding"),
        ({"position_ids": T([[0, 1, 2, 0, 1]])}, {"documents": [[3, 2]]}, "documents"),
        ({"position_ids": T([0, 1, 0, 1])}, {"documents": [[2, 2]]}, "documents"),
        ({"position_ids": T([[0, 1, 0]]), "cu_seqlens": T([0, 2, 3])}, {"documents": [[2, 1]]}, "documents"),
        ({"position_ids": T([[0, 1, 0]]), "cu_seqlens": T([0, 2])}, {"lengths": [2], "documents": [[2]]}, "documents & padding"),
        ({"attention_mask": T([[0.0, -torch.inf], [0.0, 0.0]])}, {"lengths": [1, 2]}, "padding"),
        ({"key_padding_mask": T([[False, True], [False, False]])}, {"lengths": [1, 2]}, "padding"),
        ({"segment_ids": T([[5, 5, 0, 0, 0]]), "attention_mask": T([[1, 1, 1, 1, 0]])}, {"lengths": [4], "documents": [[2, 2]]}, "documents & padding"),
        ({"position_ids": T([[0, 1, 2]])}, {}, "full"),
        (
            {"position_ids": T([[0, 1, 0, 0, 0]]), "attention_mask": T([[1, 1, 1, 0, 0]])},
            {"lengths": [3], "documents": [[2, 1]]},
            "documents & padding",
        ),
        (
            {"position_ids": T([[1, 1, 0, 1, 0]]), "attention_mask": T([[0, 0, 1, 1, 1]])},
            {"lengths": [3], "side": "left", "documents": [[2, 1]]},
            "documents & padding",
        ),
        ({"segment_ids": T([[1, 1, 2, 0]])}, {"lengths": [3], "documents": [[2, 1]]}, "documents & padding"),
        ({"segment_ids": T([[4, 4, 2]])}, {"documents": [[2, 1]]}, "documents"),
        ({"segment_ids": T([[0, 0, 1, -1]])}, {"lengths": [3], "documents": [[2, 1]]}, "documents & padding"),
        (
            {"segment_ids": T([[0, 0, 1, 1]]), "attention_mask": T([[1, 1, 1, 1]])},
            {"lengths": [4], "documents": [[2, 2]]},
            "documents & padding",
        ),
        (
            {"segment_ids": T([[0, 0, 1, 1]]), "attention_mask": T([[0, 0, 1, 1]])},
            {"lengths": [2], "side": "left", "documents": [[2]]},
            "documents & padding",
        ),
        ({"seq_idx": T([[0, 0, 1]], dtype=torch.int32)}, {"documents": [[2, 1]]}, "documents"),
        ({"cu_seqlens": T([0, 3, 5])}, {"documents": [[3, 2]]}, "documents"),
        ({"cu_seqlens": T([0, 3, 5]), "attention_mask": T([[1, 1, 1], [1, 1, 0]])}, {"lengths": [3, 2]}, "padding"),
        (
            {"attention_mask": T([[1, 1], [1, 0]]), "overflow_to_sample_mapping": T([0, 0])},
            {"lengths": [2, 1]},
            "padding",
        ),
        ({"token_type_ids": T([[0, 0]]), "attention_mask": T([[1, 1]])}, {"lengths": [2]}, "padding"),
    ],
)
def test_what_is_recognised(batch, facts, mask):
    found = nr.facts_from(batch)
    assert dict(found) == facts and str(found.mask) == mask
    assert found.facts == nr.Facts(**facts)
    assert set(found.found) | set(found.ignored) == set(batch)
    assert all(name in found.explanation for name in batch)


def test_keywords_decide():
    ids = {"segment_ids": T([[0, 0, 1, 1]])}
    assert dict(nr.facts_from(ids, segment_padding=None)) == {"documents": [[2, 2]]}
    assert dict(nr.facts_from(ids, segment_padding=0)) == {"lengths": [2], "side": "left", "documents": [[2]]}
    assert dict(nr.facts_from({"input_ids": T([[5, 6, 0], [7, 0, 0]])}, pad_id=0)) == {"lengths": [2, 1]}
    pairs = {"token_type_ids": T([[0, 0, 1]]), "attention_mask": T([[1, 1, 1]])}
    assert str(nr.facts_from(pairs, token_types="sentences").mask) == "padding"
    images = {"token_type_ids": T([[0, 1, 1, 0, 1]])}
    expected = np.tri(5, dtype=bool)
    expected[1:3, 1:3] = True
    found = nr.facts_from(images, token_types="images")
    assert np.array_equal(found.mask.dense(5)[0, 0], expected)
    assert found["labels"] == {"images": [[1, 2, 4]]} and "2 images in all" in found.explanation
    suffix = nr.facts_from({"token_type_ids": T([[0, 0, 1], [0, 1, 1]])}, token_types="suffix")
    assert str(suffix.mask) == "causal | prefix([2, 1])"


def test_padding_inside_of_rows():
    batch = {"segment_ids": T([[1, 0, 1, 2, 2], [1, 1, 1, 0, 0]])}
    got = cells(batch)
    ids = batch["segment_ids"].numpy()
    real = ids != 0
    expected = (ids[:, :, None] == ids[:, None]) & real[:, None] & real[:, :, None]
    assert np.array_equal(got & real[:, :, None], expected)


@pytest.mark.parametrize("seed", range(20))
def test_entries_of_random_batches_agree(seed):
    """A packed batch in each of its forms gives the same cells among tokens."""
    rng = np.random.default_rng(seed)
    rows, length = int(rng.integers(1, 4)), int(rng.integers(4, 20))
    left = rng.random() < 0.5
    ids, positions = np.zeros((rows, length), np.int64), np.zeros((rows, length), np.int64)
    for row in range(rows):
        place, number = 0, 1
        count = int(rng.integers(1, length + 1))
        start = length - count if left else 0
        while place < count:
            size = min(int(rng.integers(1, 8)), count - place)
            ids[row, start + place : start + place + size] = number
            positions[row, start + place : start + place + size] = np.arange(size)
            place, number = place + size, number + 1
    real = ids != 0
    expected = (ids[:, :, None] == ids[:, None]) & real[:, None]
    forms = [
        {"segment_ids": ids, "attention_mask": real},
        {"attention_mask": real, "position_ids": positions},
        {"attention_mask": real, "position_ids": positions, "segment_ids": np.where(real, ids - 1, -1)},
    ]
    if ids.max() > 1:
        forms.append({"attention_mask": ids})
    if rows == 1:
        lengths = np.bincount(ids[real])[1:]
        forms.append({"attention_mask": real, "cu_seqlens": np.cumsum([0, *lengths]), "position_ids": positions})
    for form in forms:
        found = nr.facts_from(form)
        mask = found.mask if "documents" in found else nr.padding()
        got = mask.dense(nr.Shape.square(length, batch=rows), found)[:, 0]
        assert np.array_equal(got & real[:, :, None], expected & real[:, :, None]), (form, found)


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        ({"segment_ids": T([[0, 0, 1, 1]])}, r"2 readings: \(1\) segment_ids: .*, 1 in 1 row; 0 marks padding. \(2\) segment_ids: .*, 2 in 1 row; no number marks padding"),
        ({"position_ids": T([[0, 1, 0, 0]])}, r"2 readings: .*, 3 in 1 row; no token is padding.*zeros at the end of a row are padding"),
        ({"position_ids": T([[0, 1, 2, 0], [0, 1, 2, 3]])}, r"2 readings"),
        ({"seq_idx": T([[0, 0, 1, 1, 2, 0]])}, r"2 readings: .*0 marks padding.*0 marks the first document of a row, and padding after"),
        ({"segment_ids": T([[1, 1, 2, 0], [0, 0, 1, 1]])}, "2 readings"),
        ({"document_ids": T([[0, 0, 1, 1], [0, 1, 1, 0]])}, "2 readings"),
        ({"attention_mask": torch.zeros(2, 4)}, "2 readings: .*8 of 8 entries are padding.*added to scores"),
        ({"position_ids": T([[4, 5]])}, "two readings: the tokens continue those of a cache .*or there is padding"),
        ({"token_type_ids": T([[0, 1]])}, 'several readings: give token_types="sentences"'),
        ({"position_ids": T([[0, 1, 0]]), "cu_seqlens": T([0, 1, 3])}, r"cu_seqlens contradicts position_ids: .*\[1, 2\] by cu_seqlens, but \[2, 1\]"),
        ({"position_ids": T([[0, 1, 0]]), "segment_ids": T([[1, 2, 2]])}, "position_ids contradicts segment_ids"),
        ({"attention_mask": T([[1, 1, 0]]), "segment_ids": T([[1, 2, 2]]), "seq_idx": T([[0, 0, 0]])}, "contradicts segment_ids"),
        ({"attention_mask": T([[1, 1, 0]]), "segment_ids": T([[1, -1, -1]])}, "segment_ids contradicts attention_mask: key 1"),
        ({"cu_seqlens_q": T([0, 2]), "cu_seqlens_k": T([0, 4])}, "define different documents"),
        ({"cu_seqlens": T([0, 2]), "attention_mask": T([[1, 1, 1]])}, "ends at 2, but attention_mask has 3 tokens"),
        ({"cu_seqlens": T([1, 2])}, "begins with 1"),
        ({"attention_mask": T([[1, 0, 5]])}, "count from 1; give other ids as segment_ids"),
        ({"attention_mask": T([[0.0, -1e3]])}, "attention_mask holds -1000, which is added to scores"),
        ({"attention_mask": torch.ones(1, 1, 3, 3)}, "give it as keep="),
        ({"position_ids": torch.zeros(3, 1, 4, dtype=torch.long)}, "several dimensions"),
        ({"attention_mask": T([[1, 1]]), "position_ids": T([[0, 1, 2]])}, "give entries of one batch"),
        ({"attention_mask": [[1, 1], [1]]}, "pad the batch first"),
        ({"segment_ids": T([[1, 2, 1]])}, "has id 1 again at key 2"),
        ({"input_ids": T([[1, 2]]), "labels": T([[1, 2]])}, r"gives no facts for a mask \(it has input_ids, labels\)"),
        ({}, "it has no entries"),
        ({"attention_mask": T([[1]]), "overflow_to_sample_mapping": T([0, 1])}, "2 entries, but attention_mask has 1 rows"),
        ({"attention_mask": torch.zeros(0, 4)}, "at least one row"),
        ({"cu_seqlens": T([0.0, 2.5])}, "cu_seqlens holds 2.5: give whole numbers"),
        ({"cu_seqlens": ["a"]}, "cu_seqlens holds <U1 values"),
        ({"segment_ids": T([[1.0, 2.5]])}, "segment_ids holds 2.5: give whole numbers"),
    ],
)
def test_refused_batches(batch, message):
    with pytest.raises(nr.Error, match=message):
        nr.facts_from(batch)


@pytest.mark.parametrize("types", ["images", "suffix"])
def test_token_types_above_one_are_refused(types):
    with pytest.raises(nr.Error, match=f"token_type_ids hold 2, but token_types='{types}' reads 0 and 1 only"):
        nr.facts_from({"token_type_ids": T([[0, 2, 1]])}, token_types=types)


@pytest.mark.parametrize("seed", range(60))
def test_padded_and_packed_batches_are_read_exactly(seed):
    """The facts of each padded or packed batch are read from its arrays, or the batch is refused with several readings."""
    from noren.data import pack

    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 7, int(rng.integers(1, 7)))
    examples = [{"input_ids": list(range(1, size + 1))} for size in sizes]
    side = ("left", "right")[seed % 2]
    width = int(max(sizes) + rng.integers(0, 4))
    real = np.array([[at < size if side == "right" else at >= width - size for at in range(width)] for size in sizes]).astype(np.int64)
    padded = {"input_ids": real * 7, "attention_mask": real, "position_ids": np.maximum(real.cumsum(1) - 1, 0) * real}
    found = nr.facts_from(padded)
    assert found["lengths"] == list(sizes) and found.get("side", "right") in (side, "right") and "documents" not in found
    extras = ["segment_ids", "attention_mask", "cu_seqlens", "facts", "document_lengths"]
    length = None if rng.random() < 0.3 else int(rng.integers(6, 14))
    rows = pack(examples, length=length)
    batch = {name: getattr(rows, name) for name in ("input_ids", "position_ids", "labels", "segment_ids", "attention_mask", "cu_seqlens", "facts")}
    batch["document_lengths"] = [list(row) for row in rows.documents]
    if seed % 3:
        batch = {name: torch.from_numpy(value) if isinstance(value, np.ndarray) else value for name, value in batch.items()}
    real = {"documents": [list(row) for row in rows.documents], "lengths": list(rows.lengths)}
    width = rows.input_ids.shape[1]
    full = all(size == width for size in rows.lengths)
    for used in [[], *[[name] for name in extras], extras]:
        part = {name: value for name, value in batch.items() if name not in extras or name in used}
        try:
            found = nr.facts_from(part)
        except nr.Error as error:
            # a document of one token before padding has the same positions as padding
            assert used in ([], ["cu_seqlens"]) and ("readings" in str(error) or "ends at" in str(error)), (used, error)
            continue
        known = found.get("documents", [[size] for size in found.get("lengths", [width] * len(rows.lengths))])
        assert [[n for n in row if n] for row in known] == real["documents"], (used, found)
        assert found.get("lengths", [width] * len(known)) == real["lengths"] or full, (used, found)


def test_padding_of_seq_idx():
    assert dict(nr.facts_from({"seq_idx": T([[1, 1, 2, 0]])})) == {"lengths": [3], "documents": [[2, 1]]}
    assert dict(nr.facts_from({"seq_idx": T([[0, 0, 1]])})) == {"documents": [[2, 1]]}


def test_positions_that_count_padding_between_tokens():
    found = nr.facts_from({"position_ids": T([[0, 1, 2, 3]]), "attention_mask": T([[1, 0, 1, 1]])})
    assert dict(found) == {"real_keys": [[0, "2..4"]]} and found.mask == nr.padding()


def test_arrays_without_a_name():
    assert dict(nr.facts_from(T([[1, 1, 0]]))) == {"lengths": [2]}
    assert dict(nr.facts_from(T([[0, 1, 2, 0, 1]]))) == {"documents": [[3, 2]]}
    assert dict(nr.facts_from(T([0, 5, 32]))) == {"documents": [[5, 27]]}
    assert dict(nr.facts_from([[1, 1, 2, 2]])) == {"documents": [[2, 2]]}
    for array in (T([[0, 0, 1, 1]]), T([0, 1, 2, 3]), T([[0, 1, 1]]), T([[5, 6, 7]]), [[1, 2]]):
        with pytest.raises(nr.Error, match="the arrays have . readings"):
            nr.facts_from(array)
    with pytest.raises(nr.Error, match="the array without a name gives no facts"):
        nr.facts_from(T([[9, 7, -3]]))
    with pytest.raises(TypeError, match="give a dict of arrays"):
        nr.facts_from(5)


def test_collators_and_tokenizers():
    transformers = pytest.importorskip("transformers")
    collate = transformers.DataCollatorWithFlattening(return_flash_attn_kwargs=True, return_seq_idx=True)
    packed = collate([{"input_ids": [5, 6, 7]}, {"input_ids": [8, 9]}])
    found = nr.facts_from(packed)
    assert found["documents"] == [[3, 2]] and {"position_ids", "cu_seq_lens_q"} <= set(found.found)
    encoding = transformers.BatchEncoding({"input_ids": [[5, 6, 0]], "attention_mask": [[1, 1, 0]]})
    assert dict(nr.facts_from(encoding)) == {"lengths": [2]}


def test_cumulative_lengths_of_other_types_are_refused():
    for value, message in (([0, 1.5, 3], "cu_seqlens holds 1.5: give whole numbers"), (["a"], "cu_seqlens holds"), ([[0, 1], [0]], "rows of different lengths")):
        with pytest.raises(nr.Error, match=message):
            nr.facts_from({"cu_seqlens": value})


STORED = json.loads((Path(__file__).parents[4] / "core/noren-testing/src/batches.json").read_text())


@pytest.mark.parametrize("batch", STORED, ids=lambda batch: str(batch["arrays"]))
def test_batches_have_the_stored_readings(batch):
    arrays = {name: np.array(rows) for name, rows in batch["arrays"].items()}
    if len(batch["readings"]) > 1:
        with pytest.raises(nr.Error, match=f"have {len(batch['readings'])} readings"):
            nr.facts_from(arrays)
    else:
        assert nr.facts_from(arrays).facts == nr.Facts(**batch["readings"][0])

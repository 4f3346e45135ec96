"""`noren.data`: packing, compared with plain loops and checked by `nr.check`."""

from __future__ import annotations

import pickle
import subprocess
import sys
import traceback
from typing import Any

import numpy as np
import pytest

import noren as nr
from conftest import runs
from noren.data import pack

METHODS = ("in_order", "fill", "first_fit", "first_fit_decreasing")
VOCABULARY = 60


def texts(rng: np.random.Generator, count: int, low: int = 0, high: int = 12) -> list[list[int]]:
    return [rng.integers(5, VOCABULARY, int(n)).tolist() for n in rng.integers(low, high, count)]


def test_numpy_and_pytorch_are_imported_on_use() -> None:
    code = "import sys, noren; assert 'numpy' not in sys.modules and 'torch' not in sys.modules; import noren.data; assert 'torch' not in sys.modules; noren.data.pack([[5, 6]]).plan(); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


# --- packing -----------------------------------------------------------------------------------------------------------


def reference_rows(lengths: list[int], length: int | None, method: str, long: str) -> list[list[tuple[int, int, int]]]:
    """Returns the rows of (document, first token, token after the last), by quadratic search."""
    length = length or max(1, sum(lengths))
    parts = []
    for document, tokens in enumerate(lengths):
        if tokens > length and long == "drop":
            continue
        stop = length if tokens > length and long == "truncate" else tokens
        step = length if method != "fill" else 1
        parts += [(document, start, min(start + step, stop)) for start in range(0, stop, step)]
    if method == "first_fit_decreasing":
        parts.sort(key=lambda part: -(part[2] - part[1]))
    rows: list[list[tuple[int, int, int]]] = []
    for part in parts:
        size = part[2] - part[1]
        open_rows = rows[-1:] if method in ("in_order", "fill") else rows
        for row in open_rows:
            if sum(stop - start for _, start, stop in row) + size <= length:
                row.append(part)
                break
        else:
            rows.append([part])
    if method == "fill":  # join single tokens
        for at, row in enumerate(rows):
            joined: list[tuple[int, int, int]] = []
            for document, start, stop in row:
                if joined and joined[-1][0] == document and joined[-1][2] == start:
                    joined[-1] = (document, joined[-1][1], stop)
                else:
                    joined.append((document, start, stop))
            rows[at] = joined
    return rows


def reference_batch(documents: list[dict[str, Any]], rows: list[list[tuple[int, int, int]]], width: int, pad: int, ignore: int) -> dict[str, np.ndarray]:
    out = {name: np.zeros((len(rows), width), np.int64) for name in ("input_ids", "position_ids", "labels", "segment_ids")}
    out["input_ids"][:], out["labels"][:] = pad, ignore
    cells = np.zeros((len(rows), 1, width, width), bool)
    for r, row in enumerate(rows):
        at = 0
        for number, (document, start, stop) in enumerate(row, 1):
            for k in range(start, stop):
                token = documents[document]["input_ids"][k]
                label = documents[document].get("labels", documents[document]["input_ids"])[k]
                learned = documents[document].get("loss_mask", [1] * stop)[k]
                out["input_ids"][r, at], out["position_ids"][r, at], out["segment_ids"][r, at] = token, k - start, number
                if k > start and learned:
                    out["labels"][r, at] = label
                for j in range(k - start + 1):
                    cells[r, 0, at, at - j] = True
                at += 1
    return {**out, "cells": cells}


def test_packing_equals_plain_loops() -> None:
    compared = 0
    for seed in range(runs(200, 1000)):
        rng = np.random.default_rng(seed)
        documents: list[dict[str, Any]] = [{"input_ids": text} for text in texts(rng, int(rng.integers(1, 9)))]
        if not any(document["input_ids"] for document in documents):
            continue
        if rng.random() < 0.4:
            for document in documents:
                document["loss_mask"] = rng.integers(0, 2, len(document["input_ids"])).tolist()
        if rng.random() < 0.4:
            for document in documents:
                document["labels"] = rng.integers(5, VOCABULARY, len(document["input_ids"])).tolist()
        length = None if rng.random() < 0.2 else int(rng.integers(1, 20))
        method, long = str(rng.choice(METHODS)), str(rng.choice(["split", "truncate", "drop"]))
        pad, ignore = int(rng.integers(0, 5)), int(rng.choice([-100, -1]))
        lengths = [len(document["input_ids"]) for document in documents]
        rows = reference_rows(lengths, length, method, long)
        given = documents if rng.random() < 0.5 or len(documents[0]) > 1 else [np.array(document["input_ids"], np.int32) for document in documents]
        if not rows:
            with pytest.raises(nr.Error, match="no token is left"):
                pack(given, length, method=method, long=long)
            continue
        packed = pack(given, length, method=method, long=long, pad_token_id=pad, ignore_index=ignore)
        expected = reference_batch(documents, rows, length or sum(lengths), pad, ignore)
        for name in ("input_ids", "position_ids", "labels", "segment_ids"):
            np.testing.assert_array_equal(getattr(packed, name), expected[name], err_msg=f"{name}, seed {seed}")
            compared += expected[name].size
        np.testing.assert_array_equal(packed.bind().dense(), expected["cells"])
        compared += expected["cells"].size
        np.testing.assert_array_equal(packed.attention_mask, expected["segment_ids"] > 0)
        assert [[piece[:3] for piece in packed.pieces if piece.row == r] for r in range(len(rows))] == rows
        assert packed.cu_seqlens.tolist() == np.cumsum([0, *(b - a for row in rows for _, a, b in row)]).tolist() and packed.cu_seqlens.dtype == np.int32
        assert packed.max_seqlen == max(b - a for row in rows for _, a, b in row)
        np.testing.assert_array_equal(packed.input_ids.reshape(-1)[packed.indices], [documents[d]["input_ids"][k] for row in rows for d, a, b in row for k in range(a, b)])
        for document, part in zip(documents, packed.unpack(packed.input_ids), strict=True):
            tokens = document["input_ids"]
            too_long = length is not None and len(tokens) > length
            kept = {"truncate": tokens[:length], "drop": []}.get(long, tokens) if too_long else tokens
            assert part.tolist() == kept
    print(f"packing: {compared} numbers and cells equal plain loops")


def test_the_doctor_finds_nothing_in_packed_rows() -> None:
    checked = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        documents = texts(rng, int(rng.integers(2, 8)), 2)
        for text in documents:
            text[-1] = 2  # the end of a text
        packed = pack(documents, None if seed % 3 == 0 else int(rng.integers(12, 24)), method=METHODS[seed % 4], pad_token_id=0)
        common: dict[str, Any] = dict(convention="keep", kind="causal_packed", input_ids=packed.input_ids, segment_ids=packed.segment_ids, position_ids=packed.position_ids, eos_token_id=2)
        if packed.density == 1.0:
            common |= {"cu_seqlens": packed.cu_seqlens, "max_seqlen": packed.max_seqlen}
        if not (packed.labels == -100).all(1).any():  # a row of one token has no label
            report = nr.check(packed.bind().dense(), labels=packed.labels, model_shifts_labels=True, **common)
            assert report.verdict == "correct" and not report.classes, report
            checked += 1
        if len(packed.documents[0]) > 1 and min(packed.documents[0]) > 1:
            wrong = packed.input_ids.copy()
            assert "boundary_label" in nr.check(packed.bind().dense(), labels=np.where(packed.segment_ids > 0, wrong, -100), model_shifts_labels=True, **common).classes
    assert checked > 30
    print(f"doctor: {checked} packed batches correct")


def test_first_fit_decreasing_needs_few_rows() -> None:
    rng = np.random.default_rng(0)
    documents = texts(rng, 2000, 1, 60)
    rows = {method: len(pack(documents, 64, method=method).input_ids) for method in METHODS}
    least = -(-sum(map(len, documents)) // 64)
    assert rows["fill"] == least and rows["first_fit_decreasing"] <= 1.03 * least and rows["in_order"] > rows["first_fit"]
    assert pack(documents, 64, long="error").lengths
    with pytest.raises(nr.Error, match="document 0 has 65 tokens, but a row has space for 64"):
        pack([[5] * 65], 64, long="error")


def test_other_masks_and_attention_over_packed_rows() -> None:
    rng = np.random.default_rng(3)
    documents = texts(rng, 6, 1)
    packed = pack(documents, 16, method="first_fit_decreasing")
    q, k, v = (rng.normal(size=(len(packed.input_ids), 2, 16, 8)).astype(np.float32) for _ in range(3))
    out = packed.unpack(nr.attention(q, k, v, packed.plan(heads=2)).transpose(0, 2, 1, 3))
    parts = [packed.unpack(x.transpose(0, 2, 1, 3)) for x in (q, k, v)]
    for document, one in enumerate(out):
        alone = nr.attention(*(x[document].transpose(1, 0, 2)[None].copy() for x in parts), "causal")
        np.testing.assert_array_equal(one, alone[0].transpose(1, 0, 2))
    both = pack(documents, 16, causal=False)
    assert str(both.mask) == "documents" and both.bind(mask="sliding(2) & documents").dense().sum() < both.bind().dense().sum()
    assert (both.labels == np.where(both.segment_ids > 0, both.input_ids, -100)).all()
    assert pickle.loads(pickle.dumps(packed)).plan(heads=2) is not None


def test_padding_in_documents_is_removed() -> None:
    packed = pack([{"input_ids": [0, 5, 6], "attention_mask": [0, 1, 1], "loss_mask": [1, 1, 1]}, {"input_ids": [7, 0], "attention_mask": [1, 0], "loss_mask": [1, 1]}])
    assert packed.input_ids.tolist() == [[5, 6, 7]] and packed.sizes == (2, 1) and packed.labels.tolist() == [[-100, 6, -100]]


# --- wrong input -------------------------------------------------------------------------------------------------------


def test_messages_name_the_value_and_the_fix() -> None:
    for call, message in [
        (lambda: pack([[5], [6.5]]), "document 1 holds float64: give whole numbers"),
        (lambda: pack([[5, -1]]), "document 0 holds -1, but token ids are not negative"),
        (lambda: pack([{"ids": [5]}]), "document 0 has no 'input_ids', but 'ids'"),
        (lambda: pack("text"), "documents is 'text': give a list of documents"),
        (lambda: pack([[5]], 10**12), "length is 1000000000000: give a whole number from 1 to"),
        (lambda: pack([[5]] * 20000, 2**15, method="in_order").plan(heads=0), "heads is 0"),
        (lambda: pack([[5]], method="best"), "method is 'best': give one of 'in_order'"),
        (lambda: pack([{"input_ids": [5, 6], "labels": [5]}]), "document 0 has 2 tokens, but 1 labels"),
        (lambda: pack([{"input_ids": [5, 6], "labels": [5, 6]}], labels="causal"), "the documents have the entry 'labels', which labels='causal' does not use"),
        (lambda: pack([{"input_ids": [5]}, {"input_ids": [5], "loss_mask": [1]}]), "document 0 has no 'loss_mask', but document 1 has"),
    ]:
        with pytest.raises((nr.Error, TypeError)) as caught:
            call()
        assert message in str(caught.value), caught.value


HOSTILE: list[Any] = [
    None, True, -1, 0, 1, 3, 2**40, 10**30, 0.5, float("nan"), float("inf"), "x", "", b"x", [], {}, (), set(), object(), range(3), [[]], [[5, 6], [7]],
    [[5], "x"], [[[5]]], [5, 6, 7], [[5.5]], [None], [[None]], [{"input_ids": [5, 6]}], [{"input_ids": None}], [{"input_ids": [5], "labels": [6]}, {"input_ids": []}],
    [{"input_ids": [5, 6], "attention_mask": [1, 2]}], [{1: 2}],
    {"input_ids": [[5, 6], [7]]}, {"input_ids": 3, "labels": []}, np.zeros((2, 3)), np.zeros((2, 3), int), np.ones(3, bool), np.array(5), np.array(["a"]),
    np.array([object()]), np.array([[2**63 + 1]], np.uint64), np.zeros((0, 4), int), np.zeros((2, 0), int), "exact", "split", "fill", "left", "causal", "given", "np", 1j, lambda: 0, range(10**12),
]  # fmt: skip


def keyword_names() -> dict[str, tuple[Any, list[str]]]:
    packed = pack([[5, 6], [7]])
    return {
        "pack": (lambda documents=[[5, 6]], **k: pack(documents, **k), "documents length method long labels pad_token_id ignore_index causal".split()),
        "unpack": (lambda values=packed.input_ids: packed.unpack(values), ["values"]),
        "plan": (lambda **k: packed.plan(**k), "heads kv_heads mask".split()),
    }


@pytest.mark.parametrize("name", sorted(keyword_names()))
def test_calls_with_wrong_input_raise_only_errors_with_advice(name: str) -> None:
    call, names = keyword_names()[name]
    rng = np.random.default_rng(len(name))
    refused = 0
    calls = runs(400, 2000)
    for _ in range(calls):
        given = {key: HOSTILE[rng.integers(len(HOSTILE))] for key in rng.permutation(names)[: int(rng.integers(1, 4))]}
        try:
            call(**given)
        except (nr.Error, TypeError) as error:
            refused += 1
            assert type(error) in (nr.Error, nr.ParseError, TypeError), (given, repr(error))
            if name != "plan":  # whose masks are read by the extension module
                assert ":" in str(error) and len(str(error)) < 600, (given, error)
                frame = traceback.extract_tb(error.__traceback__)[-1]
                assert "/noren/" in frame.filename and str(frame.line).startswith("raise"), (given, error)
    assert refused > calls / 4, refused

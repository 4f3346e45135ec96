"""Masks in other systems' formats: every case of the corpus is exported and read back, or is an error with the reason."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
from conftest import corpus

import noren as nr

CASES = [case for case in corpus() if "message" not in case.case]
GOOD = pytest.mark.parametrize("case", CASES, ids=lambda c: c.id)


def spread(cells: Any, like: Any) -> Any:
    return np.broadcast_to(cells, like.shape)


def by_rows(cells: Any) -> Any:
    """Returns the cells of all batch rows along one diagonal, as in packed formats."""
    batch, _, q_len, kv_len = cells.shape
    out = np.zeros((batch * q_len, batch * kv_len), np.bool_)
    for row in range(batch):
        out[row * q_len :][:q_len, row * kv_len :][:, :kv_len] = cells[row, 0]
    return out


def back(bound: nr.BoundMask) -> dict[str, Any]:
    """Yields, for each format, the cells of an exported mask, or the error."""
    s, cells = bound.shape, bound.dense()
    dims = (s.q_len, s.kv_len)
    block = (2 - s.q_len % 2, 2 - s.kv_len % 2)

    def magi() -> Any:
        slices = nr.to_magi(bound)
        got = nr.from_magi(slices, s.batch * s.q_len, s.batch * s.kv_len).dense()[0, 0]
        return np.array_equal(got, by_rows(cells))

    def varlen() -> Any:
        given = nr.to_varlen(bound)
        return np.array_equal(given.dense(), by_rows(cells))

    def xformers() -> Any:
        bias = nr.to_xformers(bound)
        if bias is None:
            return bool(cells.all())
        if bias.name.startswith("BlockDiagonal"):
            got = nr.from_xformers(bias, s.batch * s.q_len, s.batch * s.kv_len).dense()[0, 0]
            return np.array_equal(got, by_rows(cells))
        return np.array_equal(spread(nr.from_xformers(bias, *dims).dense(), cells), cells)

    def llama() -> Any:
        made = nr.to_llama_cpp(bound, pad=8)
        assert made.mask.dtype == np.float16 and made.mask.shape[2] % 8 == 0
        return nr.from_llama_cpp(made, s.q_len).dense()

    def splash() -> Any:
        info = nr.to_splash(bound, block=block)
        return cells if info.partial_mask_blocks is None else nr.from_splash(info).dense()

    def grouped() -> Any:
        kept = nr.from_flashmask(nr.to_flashmask(bound)).dense()
        return kept.repeat(s.heads // kept.shape[1] if kept.shape[1] > 1 else 1, 1)

    ways: dict[str, Any] = {
        **({"transformers": lambda: nr.from_transformers(**nr.to_transformers(bound)).dense()} if find_spec("transformers") else {}),
        "keep": lambda: nr.from_keep(nr.to_keep(bound)).dense(),
        "drop": lambda: nr.from_drop(nr.to_drop(bound)).dense(),
        "additive": lambda: nr.from_additive(nr.to_additive(bound)).dense(),
        "lowest": lambda: nr.from_additive(nr.to_additive(bound, dtype=np.float16, fill="lowest")).dense(),
        "jax": lambda: nr.from_jax(*dims, **nr.to_jax(bound)).dense(),
        "keras": lambda: nr.from_keras(*dims, **nr.to_keras(bound)).dense(),
        "onnx": lambda: nr.from_onnx(*dims, **nr.to_onnx(bound)).dense(),
        "llama_cpp": llama,
        "cudnn": lambda: nr.from_cudnn(nr.to_cudnn(bound), *dims).dense(),
        "flashmask": grouped,
        "magi": magi,
        "flashinfer": lambda: nr.from_flashinfer(nr.to_flashinfer(bound)).dense(),
        "flashinfer_bsr": lambda: nr.from_flashinfer_bsr(nr.to_flashinfer_bsr(bound, block=block)).dense(),
        "splash": splash,
        "fa4": lambda: nr.from_fa4(nr.to_fa4(bound, block=(3, 4))).dense(),
        "flashinfer_ranges": lambda: nr.from_flashinfer_ranges(nr.to_flashinfer_ranges(bound)).dense(),
        "sglang": lambda: nr.from_sglang(nr.to_sglang(bound)).dense(),
        "varlen": varlen,
        "xformers": xformers,
    }
    return ways


@GOOD
def test_every_format_holds_the_cells_or_refuses(case: Any) -> None:
    bound = case.bind()
    cells = bound.dense()
    for name, way in back(bound).items():
        try:
            got = way()
        except nr.ExportError as refused:
            assert "cannot express" in str(refused) and ": " in str(refused)
            continue
        assert got is True or np.array_equal(spread(got, cells), cells), name


def test_what_can_be_said_is_said() -> None:
    """Tests the number of cases of the corpus that each format can express."""
    taken: Counter[str] = Counter()
    for case in CASES:
        for name, way in back(case.bind()).items():
            try:
                way()
                taken[name] += 1
            except nr.ExportError:
                pass
    total = len(CASES)
    print(total, dict(taken))
    for name in ("keep", "drop", "additive", "onnx", "llama_cpp", "cudnn", "fa4"):
        assert taken[name] == total, name
    for name in ("magi", "flashinfer", "sglang"):
        assert taken[name] > 0.8 * total, name
    for name, share in {"flashmask": 0.5, "flashinfer_bsr": 0.7, "varlen": 0.2, "xformers": 0.15, "splash": 0.6, "flashinfer_ranges": 0.3}.items():
        assert taken[name] > share * total, (name, taken[name], total)


BY_HEAD = (nr.heads({0: nr.causal(), "else": nr.full()}), nr.Shape.square(4, heads=2))
BY_ROW = (nr.batch({0: nr.causal(), "else": nr.full()}), nr.Shape.square(4, batch=2))
EMPTY = (nr.causal() & nr.keys(range(1, 4)), nr.Shape.square(4))
HOLES = (nr.stride(2), nr.Shape.square(9))
SCORES = ("causal + alibi", 4)

REFUSED: list[tuple[Any, tuple[Any, Any], dict[str, Any], str]] = [
    (nr.to_keep, SCORES, {}, "cannot express the score modifier `alibi`"),
    (nr.to_drop, SCORES, {}, "cannot express the score modifier `alibi`"),
    (nr.to_additive, ("causal + softcap(3)", 4), {}, "cannot express the score modifier `softcap(3)`"),
    (nr.to_additive, EMPTY, {"fill": "lowest"}, "cannot express a mask in which query 0 (batch row 0, head 0) reads nothing"),
    (nr.to_jax, EMPTY, {}, "jax.nn.dot_product_attention cannot express a mask in which query 0"),
    (nr.to_jax, ("causal + sinks", 4), {}, "cannot express the score modifier `sinks`"),
    (nr.to_keras, EMPTY, {}, "keras.layers.MultiHeadAttention cannot express a mask in which query 0"),
    (nr.to_keras, SCORES, {}, "keras.layers.MultiHeadAttention cannot express the score modifier `alibi`"),
    (nr.to_onnx, ("causal + soft", 4), {}, "ONNX Attention cannot express the score modifier `soft`"),
    (nr.to_llama_cpp, ("causal + softcap(3)", 4), {}, "llama.cpp's f16 mask cannot express the score modifier `softcap(3)`"),
    (nr.to_llama_cpp, ("causal + alibi", 2200), {}, "cannot express alibi with a distance of 2049 between query and key"),
    (nr.to_llama_cpp, ("causal + alibi(slopes=[0.25])", 4), {}, "cannot express `alibi(slopes=[0.25])`"),
    (nr.to_cudnn, SCORES, {}, "cuDNN's endpoints cannot express the score"),
    (nr.to_cudnn, HOLES, {"nfunc": 3}, "cuDNN's endpoints cannot express a mask in which a query row needs 9 endpoints of ranges of keys, more than nfunc=3"),
    (nr.to_flashmask, HOLES, {}, "FlashMask cannot express a mask in which a key is masked for more than three separate ranges"),
    (nr.to_flashmask, ("full - (keys(0..1) & queries([1, 3, 5]))", 8), {}, "FlashMask cannot express a mask in which key 0"),
    (nr.to_flashmask, ("causal", nr.Shape.cached(2, 3)), {}, "FlashMask cannot express a mask of 3 queries and 5 keys"),
    (nr.to_flashmask, (BY_HEAD[0], nr.Shape.square(4, heads=2, kv_heads=1)), {}, "differs between query heads of one key-value head"),
    (nr.to_flashmask, SCORES, {}, "FlashMask cannot express the score"),
    (nr.to_magi, BY_HEAD, {}, "MagiAttention's slices cannot express a mask that differs between heads"),
    (nr.to_magi, SCORES, {}, "MagiAttention's slices cannot express the score"),
    (nr.to_flashinfer, BY_HEAD, {}, "FlashInfer's custom mask cannot express a mask that differs between heads"),
    (nr.to_flashinfer, SCORES, {}, "FlashInfer's custom mask cannot express the score"),
    (nr.to_flashinfer_bsr, BY_ROW, {}, "cannot express a mask that differs between batch rows"),
    (nr.to_flashinfer_bsr, BY_HEAD, {}, "cannot express a mask that differs between heads"),
    (nr.to_flashinfer_bsr, ("causal", 6), {"block": (4, 4)}, "cannot express a mask of 6 x 6 cells in blocks of 4 x 4"),
    (nr.to_flashinfer_bsr, SCORES, {}, "FlashInfer's block-sparse mask cannot express the score"),
    (nr.to_fa4, SCORES, {}, "FA4's block lists cannot express the score"),
    (nr.to_flashinfer_ranges, BY_HEAD, {}, "FlashInfer's causal and bidirectional ranges cannot express a mask that differs between heads"),
    (nr.to_flashinfer_ranges, HOLES, {}, "cannot express a mask in which query 0 reads more than one range of keys besides 0 keys before its own"),
    (nr.to_flashinfer_ranges, ("causal - keys(1..2)", 4), {}, "cannot express a mask in which query 1 does not read its own key 1"),
    (nr.to_flashinfer_ranges, SCORES, {}, "FlashInfer's causal and bidirectional ranges cannot express the score"),
    (nr.to_sglang, BY_HEAD, {}, "SGLang's fine sparse mask cannot express a mask that differs between heads"),
    (nr.to_sglang, SCORES, {}, "SGLang's fine sparse mask cannot express the score"),
    (nr.to_splash, (EMPTY[0], 4), {"block": (2, 2)}, "Splash attention cannot express a mask in which query 0"),
    (nr.to_splash, ("causal", 6), {"block": (4, 4)}, "Splash attention cannot express a mask of 6 x 6 cells"),
    (nr.to_splash, BY_ROW, {"block": (2, 2)}, "Splash attention cannot express a mask that differs between batch rows"),
    (nr.to_splash, SCORES, {"block": (2, 2)}, "Splash attention cannot express the score"),
    (nr.to_varlen, HOLES, {}, "flash-attention's varlen interface cannot express a mask in which query 0 of batch row 0 reads 5 separate ranges"),
    (nr.to_varlen, ("causal | prefix(2)", 5), {}, "do not fit the `causal` flag and the window"),
    (nr.to_varlen, BY_HEAD, {}, "cannot express a mask that differs between heads"),
    (nr.to_varlen, ("causal + sinks", 4), {}, "flash-attention's varlen interface cannot express the score modifier `sinks`"),
    (nr.to_xformers, HOLES, {}, "cannot express a mask in which query 0"),
    (nr.to_xformers, ("causal + softcap(3)", 4), {}, "xFormers cannot express score modifiers: export spec.mask"),
    (nr.to_xformers, (nr.causal() & nr.keys(range(3)) & nr.queries(range(3)), 4), {}, "xFormers cannot express a mask with query 3, which is in no sequence"),
    (nr.to_xformers, ("window(left=2, right=1) & documents([5, 4])", 9), {}, "xFormers cannot express packed sequences with a window to the right"),
    (nr.to_xformers, ("window(left=2)", 9), {}, "xFormers cannot express a window with a bound on one side only"),
]  # fmt: skip


@pytest.mark.parametrize(("exporter", "given", "options", "words"), REFUSED, ids=lambda x: getattr(x, "__name__", None))
def test_refusals_by_name(exporter: Any, given: Any, options: Any, words: str) -> None:
    with pytest.raises(nr.ExportError) as refused:
        exporter(*given, **options)
    assert words in str(refused.value)


def test_every_exporter_is_among_the_refusals() -> None:
    tested = {row[0].__name__ for row in REFUSED} | {"to_flex", "to_score_mod", "to_transformers"}  # in test_flex.py and below
    assert {name for name in dir(nr) if name.startswith("to_")} == tested
    readers = {name.removeprefix("from_") for name in dir(nr) if name.startswith("from_")} - {"mask_mod"}  # functions: test_maskmod.py
    assert readers == {name.removeprefix("to_") for name in tested}


@pytest.mark.parametrize(
    ("call", "kind", "words"),
    [
        (lambda: nr.to_keep("causal"), nr.Error, "has no sizes: give shape="),
        (lambda: nr.to_keep(nr.causal().plan(4), 4), nr.Error, "leave out shape="),
        (lambda: nr.to_keep(3), TypeError, "int is not a mask"),
        (lambda: nr.to_additive("causal", 4, fill="-1e9"), nr.Error, 'give "-inf" or "lowest"'),
        (lambda: nr.to_additive("causal", 4, dtype="int32"), TypeError, "give a float type"),
        (lambda: nr.to_additive("causal + bias", 4), nr.Error, "needs the array `bias`"),
        (lambda: nr.to_cudnn("causal", 4, nfunc=2), nr.Error, "an odd number of 1 or more"),
        (lambda: nr.to_splash("causal", 4, block=(0, 4)), nr.Error, "give sizes of 1 or more"),
        (lambda: nr.from_cudnn(np.zeros((1, 2, 4), np.int32), 4, 4), nr.Error, "give [heads, an odd number, batch * 4]"),
        (lambda: nr.from_additive(np.full((2, 2), -1e3, np.float32)), nr.Error, "nr.check finds the cause"),
        (lambda: nr.from_varlen([0, 3, 2]), nr.Error, "two ascending lists"),
        (lambda: nr.from_xformers(3, 4, 4), TypeError, "int is not an xFormers bias"),
        (lambda: nr.no_such_name, AttributeError, "no_such_name"),
    ],
)
def test_wrong_input(call: Any, kind: Any, words: str) -> None:
    with pytest.raises(kind) as refused:
        call()
    assert words in str(refused.value)


def test_expressions_come_back() -> None:
    for text in ("causal", "sliding(3)", "causal & documents([4, 5])", "full", "sliding(3) | causal & keys(0..2)"):
        bound = nr.Mask(text).bind(9)
        for read in (nr.from_keep(nr.to_keep(bound)), nr.from_cudnn(nr.to_cudnn(bound), 9, 9)):
            assert repr(read.mask) == text
    assert repr(nr.from_varlen([0, 4, 9], causal=True).mask) == "causal & documents([4, 5])"
    assert nr.to_jax("causal", 9) == {"is_causal": True}
    assert nr.to_jax("sliding(3)", 9) == {"is_causal": True, "local_window_size": (2, 0)}
    assert nr.to_keras("causal", 9) == {"use_causal_mask": True}
    assert nr.to_onnx("causal + softcap(5)", 9) == {"softcap": 5.0, "is_causal": 1}


def test_additive_values() -> None:
    bias = np.arange(16, dtype=np.float32).reshape(4, 4)
    got = nr.to_additive("causal + bias + alibi", 4, arrays={"bias": bias})
    distance = np.abs(np.subtract.outer(np.arange(4), np.arange(4)))
    expected = np.where(np.tri(4, dtype=bool), bias - distance * 2.0**-8, -np.inf)
    assert np.allclose(got[0, 0], expected)
    low = nr.to_additive("causal", 4, dtype=np.float16, fill="lowest")
    assert low.dtype == np.float16 and low[0, 0, 0, 1] == np.finfo(np.float16).min
    torch = pytest.importorskip("torch")
    for dtype in (torch.bfloat16, torch.float32):
        tensor = nr.to_additive("causal", 4, dtype=dtype, fill="lowest")
        assert tensor.dtype == dtype and tensor[0, 0, 0, 3] == torch.finfo(dtype).min and torch.isfinite(tensor).all()


def test_long_sequences_stay_small() -> None:
    plan = nr.parse("sliding(512) | causal & keys(0..4)").plan(1 << 16)
    assert nr.to_cudnn(plan).shape == (1, 3, 1 << 16)
    assert len(nr.to_magi(plan).q_ranges) < 10
    assert nr.to_flashmask(nr.Mask("causal & documents([40000, 25536])").bind(1 << 16)).startend_row_indices.shape[-1] == 1
    assert nr.to_varlen("causal & sliding(99) & documents([40000, 25536])", 1 << 16).window_size == (98, 0)


def qkv(shape: nr.Shape, dim: int = 8) -> Any:
    rng = np.random.default_rng(0)
    sizes = ((shape.heads, shape.q_len), (shape.kv_heads, shape.kv_len), (shape.kv_heads, shape.kv_len))
    return [rng.normal(size=(shape.batch, heads, length, dim)).astype(np.float32) for heads, length in sizes]


@pytest.mark.parametrize("text", ["causal", "sliding(3)", "causal & documents([5, 4])", "causal + alibi", "causal + bias", "full", "window(left=2, right=1)"])
def test_jax_computes_the_same(text: str) -> None:
    jax = pytest.importorskip("jax")
    shape = nr.Shape.square(9, batch=2, heads=4, kv_heads=2)
    q, k, v = qkv(shape)
    arrays = {"bias": np.random.default_rng(1).normal(size=(1, 4, 9, 9)).astype(np.float32)} if "bias" in text else None
    ours = nr.attention(q, k, v, text, arrays=arrays)
    given = nr.to_jax(text, shape, arrays=arrays)
    theirs = jax.nn.dot_product_attention(*(x.swapaxes(1, 2) for x in (q, k, v)), **given)
    assert np.abs(np.asarray(theirs).swapaxes(1, 2) - ours).max() < 1e-5


@pytest.mark.parametrize("dkv", [False, True])
@pytest.mark.parametrize(
    "text",
    ["causal", "sliding(3)", "causal & documents([5, 3])", "full", "causal | prefix(3)", "heads(0: causal, 1: full)", "heads(0: causal, 1: sliding(2))"],
)
def test_splash_is_what_jax_makes(text: str, dkv: bool) -> None:
    pytest.importorskip("jax")
    from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_mask as masks
    from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_mask_info as info

    cells = nr.Mask(text).dense(nr.Shape.square(8, heads=2))[0]
    given = masks.MultiHeadMask([masks.NumpyMask(plane) for plane in cells])
    process = info.process_mask_dkv if dkv else info.process_mask
    theirs, _ = process(given, (2, 4), shrink_grid=False)
    ours = nr.to_splash(text, nr.Shape.square(8, heads=2), block=(2, 4), dkv=dkv)
    for name in ("block_mask", "data_next", "mask_next", "partial_mask_blocks"):
        a, b = getattr(theirs, name), getattr(ours, name)
        assert (a is None) == (b is None), name
        if a is not None:
            assert np.array_equal(np.broadcast_to(a, b.shape), b) and a.dtype == b.dtype, name


@pytest.mark.parametrize("text", ["causal", "sliding(3)", "causal & documents([5, 4])", "full"])
def test_keras_computes_the_same(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("jax")
    monkeypatch.setenv("KERAS_BACKEND", "jax")
    keras = pytest.importorskip("keras")
    layer = keras.layers.MultiHeadAttention(2, 4, use_bias=False)
    x = np.random.default_rng(0).normal(size=(2, 9, 8)).astype(np.float32)
    theirs = np.asarray(layer(x, x, **nr.to_keras(text, 9)))
    wq, wk, wv, wo = (np.asarray(w) for w in layer.get_weights())
    q, k, v = (np.einsum("bld,dhe->bhle", x, w).copy() for w in (wq, wk, wv))
    ours = np.einsum("bhle,hed->bld", nr.attention(q, k, v, text), wo)
    assert np.abs(theirs - ours).max() < 1e-5


@pytest.mark.parametrize("text", ["causal", "sliding(3)", "causal + softcap(2)", "causal & documents([5, 4]) + alibi", "padding(lengths=[4, 9])"])
def test_onnx_computes_the_same(text: str) -> None:
    onnx = pytest.importorskip("onnx")
    from onnx.reference import ReferenceEvaluator

    shape = nr.Shape.square(9, batch=2, heads=2)
    q, k, v = qkv(shape)
    given = nr.to_onnx(text, shape)
    mask = given.pop("attn_mask", None)
    names = ["q", "k", "v"] + (["m"] if mask is not None else [])
    node = onnx.helper.make_node("Attention", names, ["y"], **given)
    kinds = {name: onnx.TensorProto.FLOAT for name in names}
    if mask is not None and mask.dtype == bool:
        kinds["m"] = onnx.TensorProto.BOOL
    values = [onnx.helper.make_tensor_value_info(name, kind, None) for name, kind in kinds.items()]
    out = [onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)]
    model = onnx.helper.make_model(onnx.helper.make_graph([node], "g", values, out), opset_imports=[onnx.helper.make_opsetid("", 23)])
    (theirs,) = ReferenceEvaluator(model).run(None, dict(zip(names, [q, k, v, mask], strict=False)))
    assert np.abs(theirs - nr.attention(q, k, v, text)).max() < 1e-5


def test_masks_of_many_key_blocks() -> None:
    rng = np.random.default_rng(4)
    cells = rng.random((2, 1, 9, 300)) < 0.3
    bound = nr.from_keep(cells)
    for block, reordered in ((64, True), (64, False), (128, True), (128, False)):
        made = nr.to_sglang(bound, block_kv=block, reordered=reordered)
        assert made.sparse_mask_fine.shape == (18, {64: 16, 128: 8}[block], block // 32)
        assert np.array_equal(spread(nr.from_sglang(made).dense(), cells), cells)
        bits = np.unpackbits(made.sparse_mask_fine.view(np.uint8)).sum()
        assert bits == cells.sum()
    assert np.array_equal(spread(nr.from_fa4(nr.to_fa4(bound, block=(4, 32))).dense(), cells), cells)
    spans = "causal & sliding(100) | spans([10..40, 200..290])"
    ranges = nr.to_flashinfer_ranges(spans, 300)
    assert ranges.causal_window_left == 99 and ranges.bidirectional_ranges[[0, 10, 39, 40, 250]].tolist() == [[-1, -1], [0, 39], [-1, -1], [-1, -1], [151, 289]]
    assert np.array_equal(nr.from_flashinfer_ranges(ranges).dense(), nr.Mask(spans).dense(300))


def test_windows_of_ranges_count_as_in_flashinfer() -> None:
    ranges = np.full((6, 2), -1, np.int32)
    ranges[3:] = [1, 5]
    made = nr.FlashInferRanges(ranges, 0, np.array([0, 6], np.int32), np.array([0, 6], np.int32), range_window_left=2)
    drawn = nr.from_flashinfer_ranges(made).dense()[0, 0].astype(int).tolist()
    assert drawn[:3] == [[1, 0, 0, 0, 0, 0], [0, 1, 0, 0, 0, 0], [0, 0, 1, 0, 0, 0]]
    assert drawn[3:] == [[0, 0, 1, 1, 1, 1], [0, 0, 0, 1, 1, 1], [0, 0, 0, 0, 1, 1]]


def test_fa4_lists_are_named_as_fa4_names_them() -> None:
    made = nr.to_fa4("causal", nr.Shape.square(300, heads=2), block=(128, 64))
    assert made.forward()["mask_block_idx"].shape == (1, 1, 3, 5) and made.backward()["mask_block_idx"].shape == (1, 1, 5, 3)
    assert made.forward()["full_block_cnt"].tolist() == [[[0, 2, 0]]] and made.backward()["full_block_cnt"].tolist() == [[[1, 1, 0, 0, 0]]]
    torch = pytest.importorskip("torch")
    forward, backward, endpoints = made.tensors("cpu")
    assert set(forward) == {"mask_block_cnt", "mask_block_idx", "full_block_cnt", "full_block_idx", "block_size"}
    assert set(backward) - set(forward) == {"dq_write_order", "dq_write_order_full", "spt"}
    assert endpoints.dtype == torch.int32 and endpoints[0, 0, 7].tolist() == [0, 8]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"mask_block_idx": 9}, "the forward lists have the block index 9 in mask_block_idx: give indices from 0 to 1"),
        ({"mask_block_cnt": 3}, "a mask_block_cnt outside of 0 to 2"),
        ({"full_block_cnt": 1}, "have the same block twice"),
        ({"backward_mask_block_cnt": 0}, "contradict each other at query block 0, key block 0"),
    ],
)
def test_fa4_lists_that_contradict_each_other(change: dict[str, int], words: str) -> None:
    made = nr.to_fa4("causal", 8, block=(4, 4))
    changed = {name: np.full_like(getattr(made, name), value) for name, value in change.items()}
    with pytest.raises(nr.Error, match=words):
        nr.from_fa4(replace(made, **changed))


def test_wrong_entries_of_queries() -> None:
    ranges = nr.to_flashinfer_ranges("causal", 6)
    with pytest.raises(nr.Error, match=r"bidirectional_ranges is int64 \(6, 2\), but there are 6 queries: give int32 of shape"):
        nr.from_flashinfer_ranges(replace(ranges, bidirectional_ranges=ranges.bidirectional_ranges.astype(np.int64)))
    with pytest.raises(nr.Error, match="requests have different lengths"):
        nr.from_flashinfer_ranges(replace(ranges, qo_indptr=np.array([0, 2, 6]), kv_indptr=np.array([0, 2, 6])))
    made = nr.to_sglang("causal", 6)
    with pytest.raises(nr.Error, match="allows keys after the last of 6 keys"):
        nr.from_sglang(replace(made, sparse_mask_fine=np.full_like(made.sparse_mask_fine, -1)))
    with pytest.raises(nr.Error, match=r"sparse_mask_fine is int32 \(6, 4, 4\), but .* must be int32 \(6, 8, 4\)"):
        nr.from_sglang(replace(made, sparse_mask_fine=made.sparse_mask_fine[:, :4]))
    with pytest.raises(nr.Error, match="`batch` is 0"):
        nr.from_sglang(replace(made, batch=0))
    with pytest.raises(nr.Error, match=r"qo_indptr has shape \(2,\) and kv_indptr \(3,\)"):
        nr.from_flashinfer_ranges(replace(ranges, qo_indptr=np.array([0, 6]), kv_indptr=np.array([0, 3, 6])))
    with pytest.raises(nr.Error, match="`block_kv` is 96"):
        nr.to_sglang("causal", 6, block_kv=96)
    with pytest.raises(nr.Error, match="give sizes of 1 or more"):
        nr.to_fa4("causal", 6, block=(0, 4))


def test_mask_functions_of_transformers() -> None:
    torch = pytest.importorskip("torch")
    masking = pytest.importorskip("transformers.masking_utils")
    sliding, padded = masking.sliding_window_causal_mask_function(3), torch.tensor([[0, 1, 1, 1, 1]])
    sizes = {"batch_size": 1, "q_length": 5, "kv_length": 5}
    assert str(nr.from_transformers(**sizes).mask) == "causal"
    found = nr.from_transformers(**sizes, mask_function=sliding, attention_mask=padded, dtype=torch.float32, use_vmap=True)
    assert "sliding(3)" in str(found.mask.simplify()) and "padding" in str(found.mask)
    expected = masking.sdpa_mask(**sizes, mask_function=sliding, attention_mask=padded.bool(), allow_is_causal_skip=False)
    assert np.array_equal(found.dense(), expected.numpy())
    own = nr.from_transformers(2, 4, 6, 2, 0, lambda b, h, q, k: (k <= q) & (k != b), heads=2)
    assert own.shape.heads == 2 and own.dense()[1, 1].astype(int).tolist() == [[1, 0, 1, 0, 0, 0], [1, 0, 1, 1, 0, 0], [1, 0, 1, 1, 1, 0], [1, 0, 1, 1, 1, 1]]
    with pytest.raises(TypeError, match="windows is not an argument of transformers' mask interface"):
        nr.from_transformers(**sizes, windows=3)
    with pytest.raises(TypeError, match="mask_function is 'causal'"):
        nr.from_transformers(**sizes, mask_function="causal")
    with pytest.raises(TypeError, match="q_offset is "):
        nr.from_transformers(1, 4, 4, "0")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="attention_mask is .*give a tensor"):
        nr.from_transformers(1, 4, 4, attention_mask=[[1, 1, 1, 0]])  # type: ignore[arg-type]
    with pytest.raises(nr.Error, match="q_length is 0"):
        nr.from_transformers(1, 0, 4)
    with pytest.raises(nr.Error, match="would be evaluated for 1099511627776 cells"):
        nr.from_transformers(1, 1 << 20, 1 << 20, mask_function=lambda b, h, q, k: k <= q)
    with pytest.raises(nr.ExportError, match="transformers' mask function cannot express a mask that differs between heads"):
        nr.to_transformers(*BY_HEAD)


def test_a_mask_as_the_mask_function_of_a_model() -> None:
    torch = pytest.importorskip("torch")
    masking = pytest.importorskip("transformers.masking_utils")
    transformers = pytest.importorskip("transformers")
    config = transformers.AutoConfig.for_model("llama", num_attention_heads=2, hidden_size=8)
    mask = nr.Mask("sliding(4) | keys(0..2)")
    function = nr.to_transformers(mask, nr.Shape.square(9, batch=2))["mask_function"]
    for name in ("sdpa", "eager"):
        config._attn_implementation = name
        made = masking.create_causal_mask(config, torch.zeros(2, 9, 8), None, None, and_mask_function=function)
        cells = made if made.dtype == torch.bool else made == 0
        assert np.array_equal(cells.numpy(), np.broadcast_to((mask & nr.causal()).dense(9), (2, 1, 9, 9)))


def test_blocks_that_need_too_much_memory_are_refused_before_it_is_reserved() -> None:
    for block in ((1 << 40, 1), (1 << 20, 1 << 20), (1.5, 1), (1,), True, "128", (0, 1)):
        with pytest.raises(nr.Error, match="`block` is .*give sizes"):
            nr.to_fa4("causal", 6, block=block)  # type: ignore[arg-type]
    for make in (nr.to_fa4, nr.to_splash, nr.to_flashinfer_bsr):
        with pytest.raises(nr.Error, match="into 1099511627776 blocks of 1 cells"):
            make("causal", 1 << 20, block=(1, 1))
    with pytest.raises(nr.Error, match="larger blocks"):
        nr.to_fa4("causal", 16384, block=(1, 1))
    made = nr.to_fa4("causal", 6, block=(2, 2))
    for change in ({"block_size": (0, 2)}, {"kv_len": -1}, {"endpoints": made.endpoints[..., :1]}):
        with pytest.raises(nr.Error, match="give sizes of 1 or more, and endpoints"):
            nr.from_fa4(replace(made, **change))
    with pytest.raises(nr.Error, match="the maximum is 1073741824"):
        nr.from_fa4(replace(made, kv_len=1 << 31))

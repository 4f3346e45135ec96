"""Masks in other systems' formats: every case of the corpus is exported and read back, or is an error with the reason."""

from __future__ import annotations

from collections import Counter
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
        return np.array_equal(given.dense(s.batch * s.q_len, s.batch * s.kv_len), by_rows(cells))

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
    for name in ("keep", "drop", "additive", "onnx", "llama_cpp", "cudnn"):
        assert taken[name] == total, name
    for name in ("magi", "flashinfer"):
        assert taken[name] > 0.8 * total, name
    for name, share in {"flashmask": 0.5, "flashinfer_bsr": 0.7, "varlen": 0.2, "xformers": 0.15, "splash": 0.6}.items():
        assert taken[name] > share * total, (name, taken[name], total)


BY_HEAD = (nr.heads({0: nr.causal(), 1: nr.full()}), nr.Shape.square(4, heads=2))
BY_ROW = (nr.batch({0: nr.causal(), 1: nr.full()}), nr.Shape.square(4, batch=2))
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
    (nr.to_llama_cpp, ("causal + alibi", 2200), {}, "cannot express the distance 2049 between query and key for alibi"),
    (nr.to_llama_cpp, ("causal + alibi(slopes=[0.25])", 4), {}, "cannot express `alibi(slopes=[0.25])`"),
    (nr.to_cudnn, SCORES, {}, "cuDNN's endpoints cannot express the score"),
    (nr.to_cudnn, HOLES, {"nfunc": 3}, "cuDNN's endpoints cannot express 9 endpoints of a query with nfunc=3"),
    (nr.to_flashmask, HOLES, {}, "FlashMask cannot express a key that is masked for more than three runs"),
    (nr.to_flashmask, ("full - (keys(0..1) & queries([1, 3, 5]))", 8), {}, "FlashMask cannot express key 0"),
    (nr.to_flashmask, ("causal", nr.Shape.cached(2, 3)), {}, "FlashMask cannot express 3 queries and 5 keys"),
    (nr.to_flashmask, (BY_HEAD[0], nr.Shape.square(4, heads=2, kv_heads=1)), {}, "differs between query heads of one key-value head"),
    (nr.to_flashmask, SCORES, {}, "FlashMask cannot express the score"),
    (nr.to_magi, BY_HEAD, {}, "MagiAttention's slices cannot express a mask that differs between heads"),
    (nr.to_magi, SCORES, {}, "MagiAttention's slices cannot express the score"),
    (nr.to_flashinfer, BY_HEAD, {}, "FlashInfer's custom mask cannot express a mask that differs between heads"),
    (nr.to_flashinfer, SCORES, {}, "FlashInfer's custom mask cannot express the score"),
    (nr.to_flashinfer_bsr, BY_ROW, {}, "cannot express a mask that differs between batch rows"),
    (nr.to_flashinfer_bsr, BY_HEAD, {}, "cannot express a mask that differs between heads"),
    (nr.to_flashinfer_bsr, ("causal", 6), {"block": (4, 4)}, "cannot express 6 x 6 cells in blocks of 4 x 4"),
    (nr.to_flashinfer_bsr, SCORES, {}, "FlashInfer's block-sparse mask cannot express the score"),
    (nr.to_splash, (EMPTY[0], 4), {"block": (2, 2)}, "Splash attention cannot express a mask in which query 0"),
    (nr.to_splash, ("causal", 6), {"block": (4, 4)}, "Splash attention cannot express 6 x 6 cells"),
    (nr.to_splash, BY_ROW, {"block": (2, 2)}, "Splash attention cannot express a mask that differs between batch rows"),
    (nr.to_splash, SCORES, {"block": (2, 2)}, "Splash attention cannot express the score"),
    (nr.to_varlen, HOLES, {}, "flash-attention's varlen interface cannot express query 0 of batch row 0, which reads 5 separate runs"),
    (nr.to_varlen, ("causal | prefix(2)", 5), {}, "whose keys do not fit the `causal` flag and the window"),
    (nr.to_varlen, BY_HEAD, {}, "cannot express a mask that differs between heads"),
    (nr.to_varlen, ("causal + sinks", 4), {}, "flash-attention's varlen interface cannot express the score modifier `sinks`"),
    (nr.to_xformers, HOLES, {}, "cannot express query 0"),
    (nr.to_xformers, ("causal + softcap(3)", 4), {}, "xFormers cannot express score modifiers: export spec.mask"),
    (nr.to_xformers, (nr.causal() & nr.keys(range(3)) & nr.queries(range(3)), 4), {}, "xFormers cannot express query 3, which is in no sequence"),
    (nr.to_xformers, ("window(left=2, right=1) & documents([5, 4])", 9), {}, "xFormers cannot express packed sequences with a window to the right"),
    (nr.to_xformers, ("window(left=2)", 9), {}, "xFormers cannot express a window with a bound on one side only"),
]  # fmt: skip


@pytest.mark.parametrize(("exporter", "given", "options", "words"), REFUSED, ids=lambda x: getattr(x, "__name__", None))
def test_refusals_by_name(exporter: Any, given: Any, options: Any, words: str) -> None:
    with pytest.raises(nr.ExportError) as refused:
        exporter(*given, **options)
    assert words in str(refused.value)


def test_every_exporter_is_among_the_refusals() -> None:
    tested = {row[0].__name__ for row in REFUSED} | {"to_flex", "to_score_mod"}  # those are in test_flex.py
    assert {name for name in dir(nr) if name.startswith("to_")} == tested
    assert {name.removeprefix("from_") for name in dir(nr) if name.startswith("from_")} == {
        name.removeprefix("to_") for name in tested - {"to_score_mod"}
    }


@pytest.mark.parametrize(
    ("call", "kind", "words"),
    [
        (lambda: nr.to_keep("causal"), nr.Error, "has no sizes: give shape="),
        (lambda: nr.to_keep(nr.causal().plan(4), 4), nr.Error, "leave out shape="),
        (lambda: nr.to_keep(3), TypeError, "int is not a mask"),
        (lambda: nr.to_additive("causal", 4, fill="-1e9"), nr.Error, 'give "-inf" or "lowest"'),
        (lambda: nr.to_additive("causal", 4, dtype="int32"), TypeError, "give a float type"),
        (lambda: nr.to_additive("causal + bias", 4), nr.Error, "needs the array `bias`"),
        (lambda: nr.to_cudnn("causal", 4, nfunc=2), nr.Error, "give an odd number"),
        (lambda: nr.to_splash("causal", 4, block=(0, 4)), nr.Error, "give sizes of 1 or more"),
        (lambda: nr.from_cudnn(np.zeros((1, 2, 4), np.int32), 4, 4), nr.Error, "give [heads, an odd number, batch * 4]"),
        (lambda: nr.from_additive(np.full((2, 2), -1e4, np.float32)), nr.Error, "nr.check finds the cause"),
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

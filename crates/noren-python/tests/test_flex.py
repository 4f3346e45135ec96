"""FlexAttention: block lists, mask_mod and score_mod against PyTorch's own."""

from __future__ import annotations

from typing import Any

import pytest
from conftest import corpus

import noren as nr

torch = pytest.importorskip("torch")
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, create_mask, flex_attention  # noqa: E402

GOOD = pytest.mark.parametrize("case", [c for c in corpus() if "message" not in c.case], ids=lambda c: c.id)
NAMES = ("kv", "full_kv", "q", "full_q")


def lists(mask: Any, name: str) -> Any:
    """Returns the listed tiles of each row of tiles, as sets."""
    counts, indices = getattr(mask, f"{name}_num_blocks"), getattr(mask, f"{name}_indices")
    flat = zip(counts.flatten().tolist(), indices.flatten(0, -2).tolist(), strict=True)
    return [row[:n] for n, row in flat]


@GOOD
@pytest.mark.parametrize("block", [(4, 4), (3, 8), (128, 128)])
def test_classification_is_flex_attentions(case: Any, block: tuple[int, int]) -> None:
    bound = case.bind()
    s, dense = bound.shape, torch.from_numpy(bound.dense())
    ours = nr.to_flex(bound, block=block)
    batch, heads = ours.kv_num_blocks.shape[:2]
    theirs = create_block_mask(lambda b, h, q, k: dense[b, h, q, k], batch, heads, s.q_len, s.kv_len, device="cpu", BLOCK_SIZE=block)
    for name in NAMES:
        assert lists(ours, name) == lists(theirs, name), name
    assert ours.seq_lengths == theirs.seq_lengths and ours.BLOCK_SIZE == theirs.BLOCK_SIZE


@GOOD
def test_mask_mod_is_exact_and_comes_back(case: Any) -> None:
    bound = case.bind()
    s, dense = bound.shape, torch.from_numpy(bound.dense())
    for form in ("bits", "endpoints"):
        mask = nr.to_flex(bound, block=(4, 8), form=form)
        assert torch.equal(create_mask(mask.mask_mod, s.batch, s.heads, s.q_len, s.kv_len, device="cpu"), dense)
        read = torch.from_numpy(nr.from_flex(mask).dense())
        assert torch.equal(read.expand(dense.shape), dense)


def qkv(s: Any, dim: int = 16) -> Any:
    g = torch.Generator().manual_seed(0)
    sizes = ((s.heads, s.q_len), (s.kv_heads, s.kv_len), (s.kv_heads, s.kv_len))
    return [torch.randn(s.batch, heads, length, dim, generator=g) for heads, length in sizes]


@GOOD
@pytest.mark.filterwarnings("ignore")
def test_flex_attention_computes_the_same(case: Any) -> None:
    bound = case.bind()
    q, k, v = qkv(bound.shape)
    ours = nr.attention(q, k, v, bound.plan())
    gqa = bound.shape.heads != bound.shape.kv_heads
    for form in ("bits", "endpoints"):
        theirs = flex_attention(q, k, v, block_mask=nr.to_flex(bound, form=form), enable_gqa=gqa)
        assert (theirs - ours).abs().max() < 1e-5


LONG = ["causal", "sliding(50) | causal & keys(0..4)", "causal & documents([100, 130, 70])", "causal & stride(7)", "causal | prefix(90)"]


def compiled_agrees(bound: nr.BoundMask, form: Any) -> None:
    """Tests all masks as batch rows of one call, because one compilation takes tens of seconds."""
    torch.compiler.reset()
    q, k, v = qkv(bound.shape)
    with torch.no_grad():
        theirs = torch.compile(flex_attention, dynamic=False)(q, k, v, block_mask=nr.to_flex(bound, form=form))
    assert (theirs - nr.attention(q, k, v, bound.plan())).abs().amax() < 1e-5


@pytest.mark.filterwarnings("ignore")
def test_compiled_flex_attention_on_long_masks() -> None:
    shape = nr.Shape.square(300, batch=len(LONG), heads=2)
    compiled_agrees(nr.batch(dict(enumerate(LONG))).bind(shape), "bits")


@pytest.mark.parametrize("form", ["bits", "endpoints"])
@pytest.mark.filterwarnings("ignore")
def test_compiled_flex_attention_on_the_corpus(form: Any) -> None:
    planes = [plane for c in corpus() if "message" not in c.case for plane in c.bind().dense().reshape(-1, *c.bind().dense().shape[2:])]
    q_len, kv_len = (max(plane.shape[axis] for plane in planes) for axis in (0, 1))
    cells = torch.zeros(len(planes), 1, q_len, kv_len, dtype=torch.bool)
    for row, plane in enumerate(planes):
        cells[row, 0, : plane.shape[0], : plane.shape[1]] = torch.from_numpy(plane)
    shape = nr.Shape.cross(q_len, kv_len, batch=len(planes))
    compiled_agrees(nr.dense("corpus").bind(shape, {"arrays": {"corpus": nr.Array.keep(cells)}}), form)


@pytest.mark.parametrize(
    "text",
    ["causal + softcap(2)", "causal + alibi", "full + alibi(slopes=[0.5, 0.25])", "causal + bias", "causal + relative", "full + soft", "causal + softcap(2) + bias + alibi"],
)
@pytest.mark.filterwarnings("ignore")
def test_scores(text: str) -> None:
    shape = nr.Shape.cached(5, 7, batch=2, heads=2)
    q, k, v = qkv(shape)
    g = torch.Generator().manual_seed(1)
    arrays = {
        "bias": torch.randn(2, 1, 7, 12, generator=g),
        "relative": torch.randn(2, 7, generator=g),
        "soft": torch.rand(1, 2, 7, 12, generator=g) * 0.9 + 0.1,
    }
    spec = nr.Spec(text)
    ours = nr.attention(q, k, v, spec, query_offset=5, arrays=arrays)
    mod = nr.to_score_mod(spec, shape, arrays=arrays)
    theirs = flex_attention(q, k, v, score_mod=mod, block_mask=nr.to_flex(spec.mask, shape))
    assert (theirs - ours).abs().max() < 1e-5


def test_refusals() -> None:
    with pytest.raises(nr.ExportError, match="FlexAttention's BlockMask cannot express the score modifier `alibi`"):
        nr.to_flex("causal + alibi", 4)
    with pytest.raises(nr.ExportError, match="score_mod cannot express `sinks`"):
        nr.to_score_mod("causal + sinks", 4)
    with pytest.raises(nr.ExportError, match="positions differ from their indices"):
        nr.to_score_mod("causal + alibi", 4, nr.Facts(positions=[3, 0, 1, 2]))
    with pytest.raises(nr.Error, match="has no score modifiers"):
        nr.to_score_mod("causal", 4)
    with pytest.raises(nr.Error, match="form is"):
        nr.to_flex("causal", 4, form="words")  # type: ignore[arg-type]
    with pytest.raises(nr.Error, match="give sizes of 1 or more"):
        nr.to_flex("causal", 4, block=0)
    causal = create_block_mask(lambda b, h, q, k: k <= q, 1, 1, 8, 8, device="cpu", BLOCK_SIZE=4)
    lying = BlockMask.from_kv_blocks(
        causal.kv_num_blocks, causal.kv_indices, BLOCK_SIZE=4, mask_mod=causal.mask_mod, seq_lengths=(8, 8)
    )
    with pytest.raises(nr.ExportError, match="contradicts itself in cell"):
        nr.from_flex(lying)

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
    compiled_agrees(nr.batch([*enumerate(LONG[:-1]), ("else", LONG[-1])]).bind(shape), "bits")


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
    arrays = {name: array for name, array in arrays.items() if name in text.split(" + ")}
    ours = nr.attention(q, k, v, spec, query_offset=5, arrays=arrays)
    mod = nr.to_score_mod(spec, shape, arrays=arrays)
    theirs = flex_attention(q, k, v, score_mod=mod, block_mask=nr.to_flex(spec.mask, shape))
    assert (theirs - ours).abs().max() < 1e-5


def test_refusals() -> None:
    with pytest.raises(nr.ExportError, match="FlexAttention's BlockMask cannot express the score modifier `alibi`"):
        nr.to_flex("causal + alibi", 4)
    with pytest.raises(nr.ExportError, match="score_mod cannot express `sinks`"):
        nr.to_score_mod("causal + sinks", 4)
    with pytest.raises(nr.ExportError, match="positions of keys differ from their indices"):
        nr.to_score_mod("causal + alibi", 4, nr.Facts(positions=[3, 0, 1, 2]))
    with pytest.raises(nr.Error, match="has no score modifiers"):
        nr.to_score_mod("causal", 4)
    with pytest.raises(nr.Error, match="`form` is"):
        nr.to_flex("causal", 4, form="words")  # type: ignore[arg-type]
    with pytest.raises(nr.Error, match="give sizes of 1 or more"):
        nr.to_flex("causal", 4, block=0)
    causal = create_block_mask(lambda b, h, q, k: k <= q, 1, 1, 8, 8, device="cpu", BLOCK_SIZE=4)
    lying = BlockMask.from_kv_blocks(
        causal.kv_num_blocks, causal.kv_indices, BLOCK_SIZE=4, mask_mod=causal.mask_mod, seq_lengths=(8, 8)
    )
    with pytest.raises(nr.ExportError, match="contradicts itself in cell"):
        nr.from_flex(lying)


# --- one compilation for many masks -------------------------------------------------------------------------------


def packed_masks(count: int) -> list[nr.BoundMask]:
    """Returns masks of packed documents; in some of them both batch rows or all documents are equal."""
    import random

    drawn = random.Random(3)
    masks = []
    for number in range(count):
        rows = []
        for _ in range(2):
            cuts = sorted(drawn.sample(range(1, 256), 1 + number % 6))
            rows.append([b - a for a, b in zip([0, *cuts], [*cuts, 256], strict=True)])
        rows = [rows[0]] * 2 if number % 3 == 0 else rows
        mask = nr.causal() & nr.documents() if number % 4 else nr.causal()
        masks.append(mask.bind(nr.Shape.square(256, batch=2, heads=2), nr.Facts(documents=rows).used_by(mask)))
    return masks


@pytest.mark.filterwarnings("ignore")
def test_twelve_packed_masks_compile_one_graph() -> None:
    from torch._dynamo.utils import counters

    masks = packed_masks(12)
    q, k, v = qkv(masks[0].shape)
    torch.compiler.reset()
    counters.clear()
    compiled = torch.compile(flex_attention, backend="eager", fullgraph=True)
    for bound in masks:
        theirs = compiled(q, k, v, block_mask=nr.to_flex(bound, block=64, capacity=40))
        assert (theirs - nr.attention(q, k, v, bound.plan())).abs().max() < 1e-5
    assert counters["stats"]["unique_graphs"] == 1


def test_fixed_sizes_that_are_too_small_are_refused() -> None:
    bound = packed_masks(6)[5]
    for fixed, words in [
        ({"capacity": 1}, "mixed tiles, which are more than capacity=1"),
        ({"capacity": 9, "form": "endpoints"}, 'capacity= is for form="bits"'),
        ({"capacity": 0}, "capacity is 0: give a whole number of 1 or more"),
        ({"capacity": 2.5}, "capacity is 2.5: give a whole number of 1 or more"),
    ]:
        with pytest.raises(nr.Error) as error:
            nr.to_flex(bound, block=64, **fixed)
        assert words in str(error.value)
    assert nr.to_flex(bound, block=64, capacity=10**12).seq_lengths == (256, 256)


@GOOD
def test_write_orders_are_pytorchs(case: Any) -> None:
    if not hasattr(BlockMask, "from_kv_blocks") or "dq_write_order" not in BlockMask.from_kv_blocks.__kwdefaults__:
        pytest.skip("this PyTorch has no write orders")
    bound = case.bind()
    s, dense = bound.shape, torch.from_numpy(bound.dense())
    ours = nr.to_flex(bound, block=4)
    batch, heads = ours.kv_num_blocks.shape[:2]
    theirs = create_block_mask(
        lambda b, h, q, k: dense[b, h, q, k], batch, heads, s.q_len, s.kv_len, device="cpu", BLOCK_SIZE=4, compute_dq_write_order=True
    )
    for counts, name in (("q_num_blocks", "dq_write_order"), ("full_q_num_blocks", "dq_write_order_full")):
        a, b = getattr(ours, name), getattr(theirs, name)
        inside = torch.arange(a.shape[-1]) < getattr(ours, counts)[..., None]
        assert torch.equal(a[inside], b[inside]), name
    assert ours.dq_kv_order_spt is theirs.dq_kv_order_spt is True

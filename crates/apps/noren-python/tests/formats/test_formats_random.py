"""Random masks in every format, read by the definition that the target documents, written here once more, cell by cell.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import numpy as np
import pytest

import noren as nr
from conftest import runs

MASKS = runs(40, 400)


def atom(r: random.Random, sizes: tuple[int, int], packed: bool) -> str:
    q_len, kv_len = sizes
    some = lambda: sorted({r.randrange(max(q_len, kv_len)) for _ in range(3)})  # noqa: E731
    near = lambda: r.randint(-2, kv_len)  # noqa: E731
    kinds = [
        "causal", f"causal(offset={near()})", f"window(left={near()}, right={near()})", f"window(left={near()})",
        f"window(right={near()})", f"sliding({r.randint(1, 6)})", f"chunk({r.randint(1, 6)})", f"stride({r.randint(1, 4)})",
        f"prefix({r.randint(0, kv_len)})", f"keys({some()})", f"queries({some()})", f"global({some()})", "full", "padding",
    ]  # fmt: skip
    return "documents" if packed and r.random() < 0.3 else r.choice(kinds)


def drawn(r: random.Random) -> tuple[str, nr.Shape, dict[str, Any]]:
    """A mask, its shape and its facts: padding on either side, offsets by row, positions, documents, heads, batch rows."""
    q_len = r.randint(2, 12)
    kv_len = q_len if r.random() < 0.5 else r.randint(2, 12)
    batch, kv_heads = r.choice((1, 1, 2, 3)), r.choice((1, 1, 2))
    heads = kv_heads * r.choice((1, 1, 2))
    offsets: Any = r.choice((0, 0, kv_len - q_len, r.randint(-2, 9)))
    if r.random() < 0.25:
        offsets = [r.randint(0, 6) for _ in range(batch)]
    packed = q_len == kv_len and offsets == 0
    facts: dict[str, Any] = {"lengths": [r.randint(1, kv_len) for _ in range(batch)], "side": r.choice(("left", "right"))}
    if packed:
        facts["documents"] = []
        for _ in range(batch):
            cuts = [0, *sorted(r.sample(range(1, kv_len), min(r.randint(0, 2), kv_len - 1))), kv_len]
            facts["documents"].append([b - a for a, b in zip(cuts, cuts[1:], strict=False)])
    if r.random() < 0.15:
        facts["positions"] = [r.sample(range(kv_len + 3), kv_len) for _ in range(batch)]
    one = lambda: atom(r, (q_len, kv_len), packed)  # noqa: E731
    text = r.choice(("{}", "{}", "{} & {}", "{} | {}", "{} - {}", "!{}")).format(one(), one())
    if heads > 1 and r.random() < 0.2:
        text = f"heads(0: {text}, else: {one()})"
    if batch > 1 and r.random() < 0.2:
        text = f"batch(0: {text}, else: {one()})"
    read = {"positions"} | {name for word, names in {"padding": ("lengths", "side"), "documents": ("lengths", "side", "documents")}.items() for name in names if word in text}
    facts = {name: value for name, value in facts.items() if name in read}
    return text, nr.Shape(q_len, kv_len, query_offset=offsets, batch=batch, heads=heads, kv_heads=kv_heads), facts


def bound_of(number: int) -> nr.BoundMask:
    """Returns the first random mask that binds; sets of other masks may be outside of the shape."""
    r = random.Random(number)
    while True:
        text, shape, facts = drawn(r)
        try:
            return nr.Mask(text).bind(shape, facts)
        except nr.Error:
            continue


def grid(cells: Any, bound: nr.BoundMask) -> Any:
    s = bound.shape
    return np.broadcast_to(cells, (s.batch, s.heads, s.q_len, s.kv_len))


def along(bound: nr.BoundMask, cells: Any) -> Any:
    """Returns the cells of batch rows one after the other; all heads must be equal."""
    s, whole = bound.shape, bound.dense()
    out = np.zeros((s.batch * s.q_len, s.batch * s.kv_len), np.bool_)
    for row in range(s.batch):
        out[row * s.q_len :][: s.q_len, row * s.kv_len :][:, : s.kv_len] = whole[row, 0]
    return np.array_equal(out, cells) and bool((whole == whole[:, :1]).all())


def jax(bound: nr.BoundMask) -> bool:
    """`is_causal`: k <= q; `local_window_size` (l, r): q - l <= k <= q + r, both from index 0; `mask`: true attends."""
    given, s = nr.to_jax(bound), bound.shape
    q, k = np.arange(s.q_len)[:, None], np.arange(s.kv_len)
    cells = np.ones((s.q_len, s.kv_len), np.bool_)
    if given.get("is_causal"):
        cells &= k <= q
    if "local_window_size" in given:
        left, right = given["local_window_size"]
        cells &= (q - left <= k) & (k <= q + right)
    return np.array_equal(grid(cells & given.get("mask", True), bound), bound.dense())


def keras(bound: nr.BoundMask) -> bool:
    """`use_causal_mask`: k <= q; `attention_mask` `[batch, q, k]` or with heads: true attends."""
    given, s = nr.to_keras(bound), bound.shape
    cells = np.ones((s.q_len, s.kv_len), np.bool_)
    if given.get("use_causal_mask"):
        cells = np.tri(s.q_len, s.kv_len, dtype=np.bool_)
    mask = given.get("attention_mask", np.True_)
    return np.array_equal(grid(cells & (mask[:, None] if mask.ndim == 3 else mask), bound), bound.dense())


def onnx(bound: nr.BoundMask) -> bool:
    """`is_causal` is aligned at the top left; `attn_mask` broadcasts, true attends."""
    given, s = nr.to_onnx(bound), bound.shape
    cells = np.tri(s.q_len, s.kv_len, dtype=np.bool_) if given.get("is_causal") else np.ones((s.q_len, s.kv_len), np.bool_)
    return np.array_equal(grid(cells & given.get("attn_mask", True), bound), bound.dense())


def llama_cpp(bound: nr.BoundMask) -> bool:
    """0 attends, -inf does not; rows after `q_len` are padding."""
    mask = nr.to_llama_cpp(bound, pad=4).mask
    assert np.isin(mask, [0, -np.inf]).all() and mask.shape[2] % 4 == 0
    return np.array_equal(grid(mask[:, :, : bound.shape.q_len] == 0, bound), bound.dense())


def cudnn(bound: nr.BoundMask) -> bool:
    """`[heads, nfunc, batch * q_len]`: keys below F0, or between F1 and F2, F3 and F4, ..."""
    ends, s, whole = nr.to_cudnn(bound), bound.shape, bound.dense()
    for b, h, q, k in np.ndindex(whole.shape):
        f = ends[h if ends.shape[0] > 1 else 0, :, b * s.q_len + q]
        if whole[b, h, q, k] != (k < f[0] or any(f[i] <= k < f[i + 1] for i in range(1, len(f), 2))):
            return False
    return True


def flashmask(bound: nr.BoundMask) -> bool:
    """Rows that are masked, by key: PaddlePaddle's own loop over columns."""
    made, s = nr.to_flashmask(bound), bound.shape
    rows = made.startend_row_indices
    count = rows.shape[-1]
    out = np.ones((s.batch, s.heads, s.q_len, s.kv_len), np.bool_)
    for b, h, j in np.ndindex(s.batch, s.heads, s.kv_len):
        kv_head = h // (s.heads // s.kv_heads)
        r = rows[b if rows.shape[0] > 1 else 0, kv_head if rows.shape[1] > 1 else 0, j].tolist()
        ends = (made.causal and count == 2) or (not made.causal and count == 4)
        out[b, h, r[0] : r[1] if ends else None, j] = False
        if made.causal:
            out[b, h, :j, j] = False
        elif ends:
            out[b, h, r[2] : r[3], j] = False
        else:
            out[b, h, : r[1], j] = False
    return np.array_equal(out, bound.dense())


def magi(bound: nr.BoundMask) -> bool:
    """Full, causal (bottom right), inverse causal (top left) or both, each cell in one slice."""
    made, s = nr.to_magi(bound), bound.shape
    out = np.zeros((s.batch * s.q_len, s.batch * s.kv_len), np.int64)
    for (q0, q1), (k0, k1), kind in zip(made.q_ranges.tolist(), made.k_ranges.tolist(), made.attn_type_map.tolist(), strict=True):
        for q in range(q0, q1):
            for k in range(k0, k1):
                out[q, k] += (kind in (0, 2) or k1 - k >= q1 - q) and (kind in (0, 1) or k - k0 >= q - q0)
    return out.max(initial=0) <= 1 and along(bound, out > 0)


def flashinfer(bound: nr.BoundMask) -> bool:
    """Bits of each request, lowest first, from a byte of its own."""
    made, s = nr.to_flashinfer(bound), bound.shape
    out = np.zeros((s.batch, 1, s.q_len, s.kv_len), np.bool_)
    for row, q, k in np.ndindex(s.batch, s.q_len, s.kv_len):
        bit = q * s.kv_len + k
        out[row, 0, q, k] = made.packed_custom_mask[made.mask_indptr[row] + bit // 8] >> (bit % 8) & 1
    assert made.qo_indptr.tolist() == [row * s.q_len for row in range(s.batch + 1)]
    return np.array_equal(grid(out, bound), bound.dense())


def flashinfer_bsr(bound: nr.BoundMask) -> bool:
    """SciPy's BSR: block rows `indptr[i]..indptr[i + 1]` hold block columns `indices`."""
    s = bound.shape
    block = (2 - s.q_len % 2, 2 - s.kv_len % 2)
    made = nr.to_flashinfer_bsr(bound, block=block)
    out = np.zeros((s.q_len, s.kv_len), np.bool_)
    for i in range(len(made.indptr) - 1):
        for at in range(made.indptr[i], made.indptr[i + 1]):
            j = int(made.indices[at])
            cells = np.ones(block, np.bool_) if made.mask is None else made.mask[at]
            out[i * made.R : (i + 1) * made.R, j * made.C : (j + 1) * made.C] = cells
    return np.array_equal(grid(out, bound), bound.dense())


def splash(bound: nr.BoundMask) -> bool:
    """Blocks 0 empty, 1 `partial_mask_blocks[mask_next]`, 2 full; `data_next` of a block that is computed is its own."""
    s = bound.shape
    height, width = block = (2 - s.q_len % 2, 2 - s.kv_len % 2)
    made = nr.to_splash(bound, block=block)
    out = np.zeros((1, s.heads, s.q_len, s.kv_len), np.bool_)
    for h, i, j in np.ndindex(s.heads, s.q_len // height, s.kv_len // width):
        at = (h if made.block_mask.shape[0] > 1 else 0, i, j)
        tile = out[0, h, i * height : (i + 1) * height, j * width : (j + 1) * width]
        if made.block_mask[at]:
            assert made.data_next[at] == j
            tile[:] = True if made.block_mask[at] == 2 else made.partial_mask_blocks[made.mask_next[at]]
    return np.array_equal(grid(out, bound), bound.dense())


def reached(q_sizes: list[int], k_sizes: list[int], window: tuple[int, int]) -> Any:
    """Sequences on a diagonal, windows aligned at the bottom right of each; -1 is everything."""
    out = np.zeros((sum(q_sizes), sum(k_sizes)), np.bool_)
    q0 = k0 = 0
    for rows, keys in zip(q_sizes, k_sizes, strict=True):
        for q in range(rows):
            for k in range(keys):
                distance = k - (q + keys - rows)
                out[q0 + q, k0 + k] = (window[0] < 0 or -distance <= window[0]) and (window[1] < 0 or distance <= window[1])
        q0, k0 = q0 + rows, k0 + keys
    return out


def varlen(bound: nr.BoundMask) -> bool:
    made, s = nr.to_varlen(bound), bound.shape
    q_sizes, k_sizes = np.diff(made.cu_seqlens_q).tolist(), np.diff(made.cu_seqlens_k).tolist()
    window = (made.window_size[0], 0 if made.causal else made.window_size[1])
    out = np.zeros((s.batch * s.q_len, s.batch * s.kv_len), np.bool_)
    out[np.ix_(made.q_indices, made.k_indices)] = reached(q_sizes, k_sizes, window)
    return along(bound, out)


def xformers(bound: nr.BoundMask) -> bool:
    bias, s = nr.to_xformers(bound), bound.shape
    if bias is None:
        return bool(bound.dense().all())
    given = dict(bias.arguments)
    window = {
        "LowerTriangularFromBottomRightMask": (-1, 0),
        "LocalAttentionFromBottomRightMask": (given.get("window_left"), given.get("window_right")),
        "BlockDiagonalMask": (-1, -1),
        "BlockDiagonalCausalFromBottomRightMask": (-1, 0),
        "BlockDiagonalCausalLocalAttentionFromBottomRightMask": (given.get("window_size", 0) - 1, 0),
    }[bias.name]
    if bias.name.startswith("BlockDiagonal"):
        return along(bound, reached(given["q_seqlen"], given["kv_seqlen"], window))
    return np.array_equal(grid(reached([s.q_len], [s.kv_len], window), bound), bound.dense())


def flex(bound: nr.BoundMask) -> bool:
    """`mask_mod` of every cell, and tiles that hold what it allows."""
    torch = pytest.importorskip("torch")
    s, whole = bound.shape, bound.dense()
    for form in ("bits", "endpoints"):
        made = nr.to_flex(bound, block=(3, 4), form=form)
        index = np.indices(whole.shape)
        said = made.mask_mod(*(torch.from_numpy(part) for part in index)).numpy()
        if not np.array_equal(said, whole):
            return False
        for b, h, i in np.ndindex(s.batch, s.heads, -(-s.q_len // 3)):
            at = (b if made.kv_num_blocks.shape[0] > 1 else 0, h if made.kv_num_blocks.shape[1] > 1 else 0, i)
            partial = made.kv_indices[at][: made.kv_num_blocks[at]].tolist()
            full = made.full_kv_indices[at][: made.full_kv_num_blocks[at]].tolist()
            for j in range(-(-s.kv_len // 4)):
                tile = whole[b, h, 3 * i : 3 * i + 3, 4 * j : 4 * j + 4]
                if (tile.any() and j not in partial + full) or (j in full and not tile.all()):
                    return False
    return True


def fa4(bound: nr.BoundMask) -> bool:
    """Each query block lists its partial and full key blocks, each key block its query blocks; partial cells are in `endpoints`."""
    made, s, whole = nr.to_fa4(bound, block=(3, 4)), bound.shape, bound.dense()
    rows, columns = -(-s.q_len // 3), -(-s.kv_len // 4)
    forward, backward = made.forward(), made.backward()
    for b, h in np.ndindex(s.batch, s.heads):
        at = (b if forward["mask_block_cnt"].shape[0] > 1 else 0, h if forward["mask_block_cnt"].shape[1] > 1 else 0)
        kinds = np.zeros((rows, columns), np.int64)
        turned = np.zeros((columns, rows), np.int64)
        for fields, out in ((forward, kinds), (backward, turned)):
            for kind, name in ((1, "mask"), (2, "full")):
                for i in range(len(out)):
                    for j in fields[f"{name}_block_idx"][at][i, : fields[f"{name}_block_cnt"][at][i]]:
                        assert out[i, j] == 0
                        out[i, j] = kind
        assert np.array_equal(kinds, turned.T)
        for i, j in np.ndindex(rows, columns):
            tile = whole[b, h, 3 * i : 3 * i + 3, 4 * j : 4 * j + 4]
            assert (kinds[i, j] > 0) == tile.any() and (kinds[i, j] < 2 or (tile.all() and tile.shape == (3, 4)))
        for order, name in (("dq_write_order", "mask"), ("dq_write_order_full", "full")):
            for j in range(columns):
                for place, i in enumerate(backward[f"{name}_block_idx"][at][j, : backward[f"{name}_block_cnt"][at][j]]):
                    assert backward[order][at][j, place] == np.flatnonzero(kinds[i]).tolist().index(j)
        for q, k in np.ndindex(s.q_len, s.kv_len):
            ends = made.endpoints[at][q].reshape(-1, 2)
            inside = any(start <= k < end for start, end in ends)
            kind = kinds[q // 3, k // 4]
            if whole[b, h, q, k] != (kind == 2 or (kind == 1 and inside)):
                return False
    return True


def flashinfer_ranges(bound: nr.BoundMask) -> bool:
    """(k <= p and p - k <= window) or first <= k <= last, where the last query has the position of the last key."""
    made, s = nr.to_flashinfer_ranges(bound), bound.shape
    out = np.zeros((s.batch, 1, s.q_len, s.kv_len), np.bool_)
    for row, q, k in np.ndindex(s.batch, s.q_len, s.kv_len):
        at = s.kv_len - s.q_len + q
        first, last = made.bidirectional_ranges[made.qo_indptr[row] + q].tolist()
        out[row, 0, q, k] = (k <= at and (made.causal_window_left < 0 or at - k <= made.causal_window_left)) or first <= k <= last
    assert made.bidirectional_ranges.dtype == np.int32 and made.kv_indptr.tolist() == [row * s.kv_len for row in range(s.batch + 1)]
    return np.array_equal(grid(out, bound), bound.dense())


def sglang(bound: nr.BoundMask) -> bool:
    """Words of blocks of keys; keys in order, or two of each eight keys for each of four threads."""
    s = bound.shape
    for block, reordered in ((64, False), (64, True), (128, True)):
        words = nr.to_sglang(bound, block_kv=block, reordered=reordered).sparse_mask_fine
        assert words.dtype == np.int32 and words.shape[1] * words.shape[2] % 32 == 0
        out = np.zeros((s.batch, 1, s.q_len, s.kv_len), np.bool_)
        for row, q, k in np.ndindex(s.batch, s.q_len, s.kv_len):
            token = k % block
            bits = block // 4
            lane, lanes = token % 8 // 2, 32 // bits
            word, bit = (lane // lanes, lane % lanes * bits + token // 8 * 2 + token % 2) if reordered else (token // 32, token % 32)
            out[row, 0, q, k] = int(words[row * s.q_len + q, k // block, word]) >> bit & 1
        if not np.array_equal(grid(out, bound), bound.dense()):
            return False
    return True


def transformers(bound: nr.BoundMask) -> bool:
    """`sdpa_mask` of transformers calls the function for all cells of head 0."""
    masking = pytest.importorskip("transformers.masking_utils")
    made, s = nr.to_transformers(bound), bound.shape
    cells = masking.sdpa_mask(**made, allow_is_causal_skip=False)
    return cells.shape == (s.batch, 1, s.q_len, s.kv_len) and np.array_equal(grid(cells.numpy(), bound), bound.dense())


FORMATS = {
    "keep": lambda bound: np.array_equal(grid(nr.to_keep(bound), bound), bound.dense()),
    "drop": lambda bound: np.array_equal(~grid(nr.to_drop(bound), bound), bound.dense()),
    "additive": lambda bound: np.array_equal(grid(nr.to_additive(bound), bound) == 0, bound.dense()),
    **{f.__name__: f for f in (jax, keras, onnx, llama_cpp, cudnn, flashmask, magi, flashinfer, flashinfer_bsr, splash, varlen, xformers, flex, fa4, flashinfer_ranges, sglang, transformers)},
}  # fmt: skip


def test_every_format_means_the_mask_or_refuses() -> None:
    exact, refused = Counter[str](), Counter[str]()
    for number in range(MASKS):
        bound = bound_of(number)
        for name, oracle in FORMATS.items():
            try:
                same = oracle(bound)
            except nr.ExportError:
                refused[name] += 1
                continue
            assert same, f"mask {number} as {name}: {bound!r}, {bound.facts!r}"
            exact[name] += 1
    print(f"{MASKS} masks; exact {dict(exact)}; refused {dict(refused)}")
    assert all(exact[name] > 0 for name in FORMATS)


# --- scores -------------------------------------------------------------------------------------------------------------


def spec_of(number: int) -> tuple[str, nr.Shape, dict[str, Any], dict[str, Any]]:
    r = random.Random(number)
    while True:
        text, shape, facts = drawn(r)
        scores = [r.choice(("alibi", "alibi", "slopes", "bias", "relative", "softcap(3)"))]
        if r.random() < 0.3:
            scores.append(r.choice(("bias", "relative")))
        slopes = f"alibi(slopes={[round(r.uniform(0.01, 1), 3) for _ in range(shape.heads)]})"
        text = " + ".join([text, *(slopes if score == "slopes" else score for score in dict.fromkeys(scores))])
        g = np.random.default_rng(number)
        arrays = {
            "bias": g.normal(size=(r.choice((1, shape.batch)), r.choice((1, shape.heads)), shape.q_len, shape.kv_len)).astype(np.float32),
            "relative": g.normal(size=(r.choice((1, shape.heads)), 7)).astype(np.float32),
        }  # fmt: skip
        try:
            nr.Spec(text).mask.bind(shape, facts)
            return text, shape, facts, arrays
        except nr.Error:
            continue


def added(text: str, shape: nr.Shape, facts: dict[str, Any], arrays: dict[str, Any], b: int, h: int, q: int, k: int) -> float:
    """Returns the number that noren adds to the score of a cell, by its documentation."""
    positions = facts.get("positions")
    distance = (k if positions is None else positions[b][k]) - (shape.query_offsets[b] + q)
    total = 0.0
    for score in nr.Spec(text).scores:
        if score.kind == "alibi":
            slopes = score.slopes or [2 ** (-8 * (head + 1) / shape.heads) for head in range(shape.heads)]
            total -= slopes[h] * abs(distance)
        elif score.kind == "relative":
            table = arrays["relative"]
            total += table[h if table.shape[0] > 1 else 0, min(max(distance, -3), 3) + 3]
        elif score.kind == "bias":
            array = arrays["bias"]
            total += array[b if array.shape[0] > 1 else 0, h if array.shape[1] > 1 else 0, q, k]
    return float(total)


def ggml_slope(head: int, heads: int, max_bias: float = 8.0) -> float:
    """As `ggml_soft_max_ext` and `ggml_flash_attn_ext` compute it."""
    power = 1 << int(np.floor(np.log2(heads)))
    base = 2 ** (-max_bias / power) if head < power else 2 ** (-max_bias / 2 / power)
    return float(base ** (head + 1 if head < power else 2 * (head - power) + 1))


def scores_of(name: str, text: str, shape: nr.Shape, facts: dict[str, Any], arrays: dict[str, Any]) -> Any:
    """Returns the numbers that a format adds to the scores, for each cell."""
    sizes = (shape.batch, shape.heads, shape.q_len, shape.kv_len)
    if name == "additive":
        return np.broadcast_to(nr.to_additive(text, shape, facts, arrays=arrays), sizes)
    if name == "jax":
        return np.broadcast_to(nr.to_jax(text, shape, facts, arrays=arrays)["bias"], sizes)
    if name == "onnx":
        return np.broadcast_to(nr.to_onnx(text, shape, facts, arrays=arrays).get("attn_mask", np.float32(0)), sizes)
    if name == "llama_cpp":
        made = nr.to_llama_cpp(text, shape, facts)
        slopes = np.array([ggml_slope(head, shape.heads, made.max_bias) for head in range(shape.heads)])
        return slopes[:, None, None] * np.broadcast_to(made.mask.astype(np.float64), sizes)
    if name == "varlen":
        made = nr.to_varlen(text, shape, facts)
        out = np.zeros(sizes)
        slopes = np.zeros(shape.heads) if made.alibi_slopes is None else made.alibi_slopes
        for i in range(len(made.cu_seqlens_q) - 1):
            (q0, q1), (k0, k1) = made.cu_seqlens_q[i : i + 2], made.cu_seqlens_k[i : i + 2]
            for q in range(q0, q1):
                for k in range(k0, k1):
                    (row, at), key = divmod(int(made.q_indices[q]), shape.q_len), int(made.k_indices[k]) % shape.kv_len
                    out[row, :, at, key] = -slopes * abs((q - q0) + (k1 - k0) - (q1 - q0) - (k - k0))
        return out
    torch = pytest.importorskip("torch")
    mod = nr.to_score_mod(text, shape, facts, arrays=arrays)
    index = [torch.from_numpy(part) for part in np.indices(sizes)]
    return mod(torch.zeros(sizes), *index).numpy()


def test_scores_are_noren_s_or_refused() -> None:
    exact, refused = Counter[str](), Counter[str]()
    for number in range(MASKS):
        text, shape, facts, arrays = spec_of(number)
        spec = nr.Spec(text)
        allowed = spec.mask.bind(shape, facts).dense()
        expected = np.zeros(allowed.shape)
        for at in np.ndindex(allowed.shape):
            expected[at] = added(text, shape, facts, arrays, *at)
        kinds = {score.kind for score in spec.scores}
        for name in ("additive", "jax", "onnx", "llama_cpp", "varlen", "score_mod"):
            if name == "jax" and "softcap" in kinds or name == "onnx" and kinds == {"softcap"}:
                continue
            try:
                got = scores_of(name, text, shape, facts, arrays)
            except nr.ExportError:
                refused[name] += 1
                continue
            where = allowed & ~np.isneginf(got)
            assert np.allclose(got[where], expected[where], atol=1e-5) and (where == allowed).all(), f"{number} as {name}: {text}"
            exact[name] += 1
    print(f"{MASKS} specs; exact {dict(exact)}; refused {dict(refused)}")
    assert all(exact[name] > 0 for name in ("additive", "jax", "onnx", "varlen", "score_mod"))


def test_open_sides_of_a_window_stay_open() -> None:
    for text in ("window(left=3)", "window(right=2)", "window(left=3, right=1)"):
        for shape in (nr.Shape.cross(6, 16), nr.Shape.cross(16, 14), nr.Shape.square(9)):
            assert jax(nr.Mask(text).bind(shape)), (text, shape)
    assert nr.Mask("window(left=3)").bind(nr.Shape.cross(6, 16)).dense().sum() == 93


def test_llama_cpp_has_slopes_of_its_own() -> None:
    for heads in (1, 2, 4, 8, 16):
        assert nr.to_llama_cpp("causal + alibi", nr.Shape.square(4, heads=heads)).max_bias == 8
    for heads in (3, 6, 12, 20):
        with pytest.raises(nr.ExportError, match=f"cannot express `alibi` of {heads} heads"):
            nr.to_llama_cpp("causal + alibi", nr.Shape.square(4, heads=heads))
        slopes = [ggml_slope(head, heads) for head in range(heads)]
        assert nr.to_llama_cpp(f"causal + alibi(slopes={slopes})", nr.Shape.square(4, heads=heads)).max_bias == 8


@pytest.mark.parametrize(
    "export",
    [
        lambda *a: nr.to_llama_cpp("full + alibi", *a), lambda *a: nr.to_varlen("full + alibi", *a),
        lambda *a: nr.to_additive("full + alibi", *a), lambda *a: nr.to_score_mod("full + alibi", *a),
    ],
)  # fmt: skip
def test_distances_of_keys_at_positions_of_their_own_are_refused(export: Any) -> None:
    with pytest.raises(nr.ExportError, match="positions of keys differ from their indices"):
        export(nr.Shape(2, 4, query_offset=2), {"positions": [2, 3, 0, 1]})


def test_scores_that_do_not_fit_are_refused() -> None:
    shape = nr.Shape.square(4, heads=2)
    with pytest.raises(nr.Error, match="1 slopes, but there are 2 query heads"):
        nr.to_additive("causal + alibi(slopes=[0.5])", shape)
    with pytest.raises(nr.Error, match="does not broadcast"):
        nr.to_additive("causal + bias", shape, arrays={"bias": np.zeros((3, 4, 4), np.float32)})
    with pytest.raises(nr.Error, match="2 times: give the modifier once"):
        nr.to_llama_cpp("causal + alibi + alibi", shape)
    with pytest.raises(TypeError, match="bias holds bool"):
        nr.to_additive("causal + bias", shape, arrays={"bias": np.ones((4, 4), bool)})

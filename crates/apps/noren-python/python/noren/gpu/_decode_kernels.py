# mypy: ignore-errors
# The functions are written in Triton's language, whose values have no types in Python.
"""The Triton kernels for decoding: few queries, many keys.

A program of the first kernel computes one chunk of the keys, for all query heads of one key-value head. The second kernel joins
the results of the chunks in ascending order. Row `g * q_len + i` of a block is query i of query head g of the key-value head.
"""

from __future__ import annotations

import triton
import triton.language as tl

from ._kernels import (
    COUNTS,
    LOG2E,
    _allowed,
    _any_special,
    _finite,
    _kept,
    _matrix,
    _products,
    _rescaled,
    _scores,
    _steps,
    _with_sink,
    _with_special,
)


@triton.jit
def _cached(base, pages, key, column, stride_page, stride_key, stride_column, there, page_size: tl.constexpr, dim: tl.constexpr):
    """Reads the keys or values with the indices `key` from a paged cache, as [keys, columns]; rows for which `there` is false
    are 0. `pages` points to the page numbers of the batch row.
    """
    page = tl.load(pages + key // page_size, mask=there, other=0).to(tl.int64)
    at = base + (page * stride_page + (key % page_size) * stride_key)[:, None] + column[None, :] * stride_column
    return tl.load(at, mask=there[:, None] & (column < dim)[None, :], other=0.0)


@triton.jit(do_not_specialize=COUNTS)
def chunks_forward(
    q_ptr, k_ptr, v_ptr, acc_ptr, most_ptr, total_ptr, pages,
    bias_ptr, soft_ptr, table_ptr, slopes_ptr, q_pos, k_pos,
    pattern_of, first_chunk, indptr, runs, words,
    q_b, q_h, q_s, q_d, k_b, k_h, k_s, k_d, v_b, v_h, v_s, v_d, bias_b, bias_h, bias_q, bias_k, soft_b, soft_h, soft_q, soft_k,
    heads, group, q_len, kv_len, pairs, chunks, max_pages, reach, table_heads, scale, softcap, seed_lo, seed_hi, threshold, factor,
    BM: tl.constexpr, BN: tl.constexpr, DIM: tl.constexpr, D: tl.constexpr, V_DIM: tl.constexpr, DV: tl.constexpr,
    SOFTCAP: tl.constexpr, BIAS: tl.constexpr, RELATIVE: tl.constexpr, ALIBI: tl.constexpr, SOFT: tl.constexpr,
    DROPOUT: tl.constexpr, PRECISION: tl.constexpr, PAGE: tl.constexpr,
):  # fmt: skip
    """Writes the sums over one chunk of keys: the sum of the weighted values [pairs, chunks, BM, DV], the running maximum of
    the scores and the sum of the weights, each [pairs, chunks, BM]. A pair is a batch row and a key-value head.

    PAGE is the number of keys of a page; 0 if the cache is contiguous.
    """
    chunk = tl.program_id(0) // pairs
    pair = tl.program_id(0) % pairs
    pattern = tl.load(pattern_of + pair)
    first = tl.load(first_chunk + pattern)
    if chunk < tl.load(first_chunk + pattern + 1) - first:
        kv_heads = heads // group
        b = (pair // kv_heads).to(tl.int64)
        kv_head = (pair % kv_heads).to(tl.int64)
        line = tl.arange(0, BM)
        lane = tl.arange(0, BN)
        d = tl.arange(0, D)
        dv = tl.arange(0, DV)
        real = line < group * q_len
        row = line % q_len
        head = tl.where(real, kv_head * group + line // q_len, 0)
        of_row = q_ptr + b * q_b + (head * q_h + row.to(tl.int64) * q_s)[:, None]
        q = tl.load(of_row + d[None, :] * q_d, mask=real[:, None] & (d < DIM)[None, :], other=0.0)
        pages += b * max_pages
        k_ptr += kv_head * k_h
        v_ptr += kv_head * v_h
        if PAGE == 0:
            k_ptr += b * k_b
            v_ptr += b * v_b
        bias_row = bias_ptr + b * bias_b + head * bias_h + row.to(tl.int64) * bias_q
        soft_row = soft_ptr + b * soft_b + head * soft_h + row.to(tl.int64) * soft_q
        table_row = table_ptr + tl.minimum(head, table_heads - 1) * (2 * reach + 1)
        slope = tl.zeros([BM], tl.float32)
        if ALIBI:
            slope += tl.load(slopes_ptr + head)
        q_place = row
        if RELATIVE or ALIBI:
            q_place = tl.load(q_pos + b * q_len + row)
            k_pos += b * kv_len
        m = tl.full([BM], -float("inf"), tl.float32)
        total = tl.zeros([BM], tl.float32)
        acc = tl.zeros([BM, DV], tl.float32)
        first_run = tl.load(indptr + first + chunk)
        last_run = tl.load(indptr + first + chunk + 1)
        for MIXED in tl.static_range(2):
            for run in range(first_run, last_run):
                block = tl.load(runs + 3 * run + 2)
                k0, k1 = _steps(runs + 3 * run, block, MIXED)
                for at in range(k0, k1, BN):
                    inside = real[:, None] & (lane >= 0)[None, :]
                    if MIXED:
                        inside = _allowed(words, block, BM, BN, 1)
                    if PAGE == 0:
                        k = _matrix(k_ptr, at, lane, d, k_s, k_d, kv_len - at, DIM)
                        v = _matrix(v_ptr, at, lane, dv, v_s, v_d, kv_len - at, V_DIM)
                    else:
                        # A key that no row reads may have no page.
                        there = tl.max(inside.to(tl.int32), 0) > 0
                        k = _cached(k_ptr, pages, at + lane, d, k_b, k_s, k_d, there, PAGE, DIM)
                        v = _cached(v_ptr, pages, at + lane, dv, v_b, v_s, v_d, there, PAGE, V_DIM)
                    s, _ = _products(q, k, scale, softcap, SOFTCAP, PRECISION)
                    s, _ = _scores(
                        s, at + lane, inside, bias_row, bias_k, soft_row, soft_k, table_row, reach, slope, q_place, k_pos,
                        BIAS, RELATIVE, ALIBI, SOFT,
                    )  # fmt: skip
                    if MIXED:
                        s = tl.where(inside, s, -float("inf"))
                    weight, m, keep = _rescaled(s, m)
                    weight = weight.to(v.dtype)
                    total = total * keep + tl.sum(weight.to(tl.float32), 1)
                    acc = acc * keep[:, None]
                    if DROPOUT:
                        kept = _kept(b, head[:, None], row, at + lane, seed_lo, seed_hi, threshold, factor)
                        weight = (weight * kept).to(v.dtype)
                    if MIXED or SOFT:
                        acc = tl.dot(weight, _finite(v), acc, input_precision=PRECISION)
                        if _any_special(v):
                            acc = _with_special(acc, weight.to(tl.float32), v, False)
                    else:
                        acc = tl.dot(weight, v, acc, input_precision=PRECISION)
        place = (pair.to(tl.int64) * chunks + chunk) * BM + line
        tl.store(acc_ptr + place[:, None] * DV + dv[None, :], acc)
        tl.store(most_ptr + place, m)
        tl.store(total_ptr + place, total)


@triton.jit(do_not_specialize=COUNTS)
def chunks_join(
    acc_ptr, most_ptr, total_ptr, out_ptr, lse_ptr, sinks_ptr, pattern_of, first_chunk, out_b, out_h, out_s, out_d,
    heads, group, q_len, chunks,
    BM: tl.constexpr, V_DIM: tl.constexpr, DV: tl.constexpr, SINKS: tl.constexpr,
):  # fmt: skip
    """Writes the outputs and the log-sum-exps in base e from the sums over chunks."""
    pair = tl.program_id(0)
    pattern = tl.load(pattern_of + pair)
    count = tl.load(first_chunk + pattern + 1) - tl.load(first_chunk + pattern)
    kv_heads = heads // group
    b = (pair // kv_heads).to(tl.int64)
    line = tl.arange(0, BM)
    dv = tl.arange(0, DV)
    real = line < group * q_len
    row = line % q_len
    head = tl.where(real, (pair % kv_heads) * group + line // q_len, 0).to(tl.int64)
    m = tl.full([BM], -float("inf"), tl.float32)
    total = tl.zeros([BM], tl.float32)
    acc = tl.zeros([BM, DV], tl.float32)
    for chunk in range(0, count):
        place = (pair.to(tl.int64) * chunks + chunk) * BM + line
        part_m = tl.load(most_ptr + place)
        most = tl.maximum(m, part_m, propagate_nan=tl.PropagateNan.ALL)
        base = tl.where(most == -float("inf"), 0.0, most)
        keep = tl.exp2(m - base)
        part_keep = tl.exp2(part_m - base)
        part = tl.load(acc_ptr + place[:, None] * DV + dv[None, :])
        total = total * keep + tl.load(total_ptr + place) * part_keep
        acc = acc * keep[:, None] + tl.where(part_keep[:, None] == 0.0, 0.0, part * part_keep[:, None])
        m = most
    if SINKS:
        m, total, acc = _with_sink(m, total, acc, tl.load(sinks_ptr + head))
    some = (total > 0) | (total != total)
    divisor = tl.where(some, total, 1.0)
    out = tl.where(some[:, None], acc / divisor[:, None], 0.0)
    at = out_ptr + b * out_b + (head * out_h + row.to(tl.int64) * out_s)[:, None] + dv[None, :] * out_d
    tl.store(at, out.to(out_ptr.dtype.element_ty), mask=real[:, None] & (dv < V_DIM)[None, :])
    lse = tl.where(some, (m + tl.log2(divisor)) / LOG2E, -float("inf"))
    tl.store(lse_ptr + (b * heads + head) * q_len + row, lse, mask=real)

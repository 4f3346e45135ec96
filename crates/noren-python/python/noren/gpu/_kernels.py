# mypy: ignore-errors
# The functions are written in Triton's language, whose values have no types in Python.
"""The Triton kernels: forward, gradients of queries, gradients of keys and values.

A program computes one tile of the device plan for one head of one batch row. It adds full blocks first, then mixed blocks,
each in ascending order. Scores are in base 2, and the running maximum is a whole number: rescaling is an exact power of
two, so blocks in which a row reads no key change no bit.
"""

from __future__ import annotations

import triton
import triton.language as tl

LOG2E = tl.constexpr(1.4426950408889634)
LN2 = tl.constexpr(0.6931471805599453)


@triton.jit
def _matrix(base, start, line, column, stride_line, stride_column, count, dim: tl.constexpr):
    """Reads the lines start + line with line < count; other lines and columns are 0."""
    at = base + (start + line)[:, None].to(tl.int64) * stride_line + column[None, :] * stride_column
    return tl.load(at, mask=(line < count)[:, None] & (column < dim)[None, :], other=0.0)


@triton.jit
def _scores(q, k, scale, softcap, SOFTCAP: tl.constexpr):
    """Returns the scores in base 2, and tanh(score / softcap) with SOFTCAP."""
    s = tl.dot(q, tl.trans(k), out_dtype=tl.float32, input_precision="ieee") * scale
    bent = s
    if SOFTCAP:
        x = s / softcap
        # tanh(x), without overflow
        e = tl.exp2(tl.abs(x) * (-2.0 * LOG2E))
        bent = tl.where(x < 0, -1.0, 1.0) * (1.0 - e) / (1.0 + e)
        s = bent * softcap
    return s * LOG2E, bent


@triton.jit
def _allowed(words, block, BM: tl.constexpr, BN: tl.constexpr):
    line = tl.arange(0, BM)
    bit = tl.arange(0, BN)
    word = tl.load(words + block * (BM * BN // 32) + line[:, None] * (BN // 32) + (bit // 32)[None, :])
    return ((word >> (bit % 32)[None, :]) & 1) != 0


@triton.jit
def _finite(x):
    """Returns x with 0 in place of infinities and NaN."""
    return tl.where(tl.abs(x.to(tl.float32)) < float("inf"), x, 0.0).to(x.dtype)


@triton.jit
def _special(readers, x):
    """Returns what the infinities and NaN of x add to the sums of their readers.

    readers [rows, lines] is not 0 where a row reads a line of x [lines, columns]; its sign is that of the weight.
    """
    wide = x.to(tl.float32)
    reads = (readers != 0).to(tl.float32)
    nan = tl.dot(reads, (wide != wide).to(tl.float32), input_precision="ieee")
    up = tl.dot((readers > 0).to(tl.float32), (wide == float("inf")).to(tl.float32), input_precision="ieee")
    up += tl.dot((readers < 0).to(tl.float32), (wide == -float("inf")).to(tl.float32), input_precision="ieee")
    down = tl.dot((readers > 0).to(tl.float32), (wide == -float("inf")).to(tl.float32), input_precision="ieee")
    down += tl.dot((readers < 0).to(tl.float32), (wide == float("inf")).to(tl.float32), input_precision="ieee")
    unknown = tl.dot((readers != readers).to(tl.float32), tl.full(x.shape, 1.0, tl.float32), input_precision="ieee")
    return (
        tl.where((nan > 0) | (unknown > 0), float("nan"), 0.0)
        + tl.where(up > 0, float("inf"), 0.0)
        + tl.where(down > 0, -float("inf"), 0.0)
    )


@triton.jit
def _any_special(x):
    return tl.min(tl.min((tl.abs(x.to(tl.float32)) < float("inf")).to(tl.int32), 1), 0) == 0


@triton.jit
def _update(s, v, m, total, acc):
    """Adds one block to the running maximum m, the sum of weights and the weighted values."""
    most = tl.maximum(m, tl.ceil(tl.max(s, 1)))
    base = tl.where(most == -float("inf"), 0.0, most)
    weight = tl.exp2(s - base[:, None]).to(v.dtype)
    keep = tl.exp2(m - base)
    total = total * keep + tl.sum(weight.to(tl.float32), 1)
    acc = tl.dot(weight, v, acc * keep[:, None], input_precision="ieee")
    return weight, most, total, acc


@triton.jit
def forward(
    q_ptr, k_ptr, v_ptr, out_ptr, lse_ptr, sinks_ptr,
    pattern_of, first_tile, tiles, indptr, runs, words,
    sq_b, sq_h, sq_s, sq_d, sk_b, sk_h, sk_s, sk_d, sv_b, sv_h, sv_s, sv_d, so_b, so_h, so_s, so_d,
    heads, group, q_len, kv_len, scale, softcap,
    BM: tl.constexpr, BN: tl.constexpr, DIM: tl.constexpr, D: tl.constexpr, V_DIM: tl.constexpr, DV: tl.constexpr,
    SOFTCAP: tl.constexpr, SINKS: tl.constexpr,
):  # fmt: skip
    pair = tl.program_id(1)
    pattern = tl.load(pattern_of + pair)
    tile = tl.load(first_tile + pattern) + tl.program_id(0)
    if tile < tl.load(first_tile + pattern + 1):
        b = (pair // heads).to(tl.int64)
        h = (pair % heads).to(tl.int64)
        start = tl.load(tiles + 2 * tile)
        count = tl.load(tiles + 2 * tile + 1) - start
        line = tl.arange(0, BM)
        key = tl.arange(0, BN)
        d = tl.arange(0, D)
        dv = tl.arange(0, DV)
        q = _matrix(q_ptr + b * sq_b + h * sq_h, start, line, d, sq_s, sq_d, count, DIM)
        k_ptr += b * sk_b + h // group * sk_h
        v_ptr += b * sv_b + h // group * sv_h
        m = tl.full([BM], -float("inf"), tl.float32)
        total = tl.zeros([BM], tl.float32)
        acc = tl.zeros([BM, DV], tl.float32)
        first = tl.load(indptr + tile)
        last = tl.load(indptr + tile + 1)
        for run in range(first, last):
            k0 = tl.load(runs + 3 * run)
            k1 = tl.load(runs + 3 * run + 1)
            k1 = tl.where(tl.load(runs + 3 * run + 2) < 0, k1, k0)
            for at in range(k0, k1, BN):
                k = _matrix(k_ptr, at, key, d, sk_s, sk_d, BN, DIM)
                v = _matrix(v_ptr, at, key, dv, sv_s, sv_d, BN, V_DIM)
                s, _ = _scores(q, k, scale, softcap, SOFTCAP)
                _, m, total, acc = _update(s, v, m, total, acc)
        special = tl.zeros([BM, DV], tl.float32)
        for run in range(first, last):
            block = tl.load(runs + 3 * run + 2)
            if block >= 0:
                at = tl.load(runs + 3 * run)
                k = _matrix(k_ptr, at, key, d, sk_s, sk_d, kv_len - at, DIM)
                v = _matrix(v_ptr, at, key, dv, sv_s, sv_d, kv_len - at, V_DIM)
                s, _ = _scores(q, k, scale, softcap, SOFTCAP)
                s = tl.where(_allowed(words, block, BM, BN), s, -float("inf"))
                weight, m, total, acc = _update(s, _finite(v), m, total, acc)
                if _any_special(v):
                    special += _special(weight.to(tl.float32), v)
        if SINKS:
            sink = tl.load(sinks_ptr + h) * LOG2E
            most = tl.maximum(m, tl.ceil(sink))
            base = tl.where(most == -float("inf"), 0.0, most)
            keep = tl.exp2(m - base)
            total = total * keep + tl.exp2(sink - base)
            acc = acc * keep[:, None]
            m = most
        some = (total > 0) | (total != total)
        divisor = tl.where(some, total, 1.0)
        out = tl.where(some[:, None], acc / divisor[:, None], 0.0) + special
        inside = (line < count)[:, None] & (dv < V_DIM)[None, :]
        at = out_ptr + b * so_b + h * so_h + (start + line)[:, None].to(tl.int64) * so_s + dv[None, :] * so_d
        tl.store(at, out.to(out_ptr.dtype.element_ty), mask=inside)
        lse = tl.where(some, m + tl.log2(divisor), -float("inf"))
        tl.store(lse_ptr + pair.to(tl.int64) * q_len + start + line, lse, mask=line < count)


@triton.jit
def row_sums(
    out_ptr, dout_ptr, delta_ptr, so_b, so_h, so_s, so_d, sg_b, sg_h, sg_s, sg_d, heads, q_len,
    BM: tl.constexpr, V_DIM: tl.constexpr, DV: tl.constexpr,
):  # fmt: skip
    """Writes the sum of out * dout for each row."""
    pair = tl.program_id(1)
    b = (pair // heads).to(tl.int64)
    h = (pair % heads).to(tl.int64)
    line = tl.arange(0, BM)
    dv = tl.arange(0, DV)
    start = tl.program_id(0) * BM
    out = _matrix(out_ptr + b * so_b + h * so_h, start, line, dv, so_s, so_d, q_len - start, V_DIM)
    dout = _matrix(dout_ptr + b * sg_b + h * sg_h, start, line, dv, sg_s, sg_d, q_len - start, V_DIM)
    delta = tl.sum(out.to(tl.float32) * dout.to(tl.float32), 1)
    tl.store(delta_ptr + pair.to(tl.int64) * q_len + start + line, delta, mask=line < q_len - start)


@triton.jit
def _cells(q, k, v, dout, lse, delta, scale, softcap, allowed, MIXED: tl.constexpr, SOFTCAP: tl.constexpr):
    """Returns the weights of a block and the gradients of its scaled scores."""
    s, bent = _scores(q, k, scale, softcap, SOFTCAP)
    p = tl.exp2(s - lse[:, None])
    dp = tl.dot(dout, tl.trans(v), out_dtype=tl.float32, input_precision="ieee")
    ds = p * (dp - delta[:, None])
    if SOFTCAP:
        ds = ds * (1.0 - bent * bent)
    if MIXED:
        p = tl.where(allowed, p, 0.0)
        ds = tl.where(allowed, ds, 0.0)
    return p, ds


@triton.jit
def query_gradients(
    q_ptr, k_ptr, v_ptr, dout_ptr, lse_ptr, delta_ptr, dq_ptr,
    pattern_of, first_tile, tiles, indptr, runs, words,
    sq_b, sq_h, sq_s, sq_d, sk_b, sk_h, sk_s, sk_d, sv_b, sv_h, sv_s, sv_d, sg_b, sg_h, sg_s, sg_d, sx_b, sx_h, sx_s, sx_d,
    heads, group, q_len, kv_len, scale, softcap,
    BM: tl.constexpr, BN: tl.constexpr, DIM: tl.constexpr, D: tl.constexpr, V_DIM: tl.constexpr, DV: tl.constexpr,
    SOFTCAP: tl.constexpr,
):  # fmt: skip
    pair = tl.program_id(1)
    pattern = tl.load(pattern_of + pair)
    tile = tl.load(first_tile + pattern) + tl.program_id(0)
    if tile < tl.load(first_tile + pattern + 1):
        b = (pair // heads).to(tl.int64)
        h = (pair % heads).to(tl.int64)
        start = tl.load(tiles + 2 * tile)
        count = tl.load(tiles + 2 * tile + 1) - start
        line = tl.arange(0, BM)
        key = tl.arange(0, BN)
        d = tl.arange(0, D)
        dv = tl.arange(0, DV)
        q = _matrix(q_ptr + b * sq_b + h * sq_h, start, line, d, sq_s, sq_d, count, DIM)
        dout = _matrix(dout_ptr + b * sg_b + h * sg_h, start, line, dv, sg_s, sg_d, count, V_DIM)
        of_row = pair.to(tl.int64) * q_len + start + line
        lse = tl.load(lse_ptr + of_row, mask=line < count, other=float("inf"))
        lse = tl.where(lse == -float("inf"), float("inf"), lse)
        delta = tl.load(delta_ptr + of_row, mask=line < count, other=0.0)
        k_ptr += b * sk_b + h // group * sk_h
        v_ptr += b * sv_b + h // group * sv_h
        acc = tl.zeros([BM, D], tl.float32)
        none = tl.zeros([BM, BN], tl.int1)
        first = tl.load(indptr + tile)
        last = tl.load(indptr + tile + 1)
        for run in range(first, last):
            k0 = tl.load(runs + 3 * run)
            k1 = tl.load(runs + 3 * run + 1)
            k1 = tl.where(tl.load(runs + 3 * run + 2) < 0, k1, k0)
            for at in range(k0, k1, BN):
                k = _matrix(k_ptr, at, key, d, sk_s, sk_d, BN, DIM)
                v = _matrix(v_ptr, at, key, dv, sv_s, sv_d, BN, V_DIM)
                _, ds = _cells(q, k, v, dout, lse, delta, scale, softcap, none, False, SOFTCAP)
                acc = tl.dot(ds.to(k.dtype), k, acc, input_precision="ieee")
        special = tl.zeros([BM, D], tl.float32)
        for run in range(first, last):
            block = tl.load(runs + 3 * run + 2)
            if block >= 0:
                at = tl.load(runs + 3 * run)
                k = _matrix(k_ptr, at, key, d, sk_s, sk_d, kv_len - at, DIM)
                v = _matrix(v_ptr, at, key, dv, sv_s, sv_d, kv_len - at, V_DIM)
                allowed = _allowed(words, block, BM, BN)
                _, ds = _cells(q, k, v, dout, lse, delta, scale, softcap, allowed, True, SOFTCAP)
                acc = tl.dot(ds.to(k.dtype), _finite(k), acc, input_precision="ieee")
                if _any_special(k):
                    special += _special(ds, k)
        inside = (line < count)[:, None] & (d < DIM)[None, :]
        at = dq_ptr + b * sx_b + h * sx_h + (start + line)[:, None].to(tl.int64) * sx_s + d[None, :] * sx_d
        tl.store(at, (acc * scale + special).to(dq_ptr.dtype.element_ty), mask=inside)


@triton.jit
def key_gradients(
    q_ptr, k_ptr, v_ptr, dout_ptr, lse_ptr, delta_ptr, dk_ptr, dv_ptr,
    pattern_of, first_tile, tiles, indptr, runs, words,
    sq_b, sq_h, sq_s, sq_d, sk_b, sk_h, sk_s, sk_d, sv_b, sv_h, sv_s, sv_d, sg_b, sg_h, sg_s, sg_d,
    heads, group, q_len, kv_len, scale, softcap,
    BM: tl.constexpr, BN: tl.constexpr, DIM: tl.constexpr, D: tl.constexpr, V_DIM: tl.constexpr, DV: tl.constexpr,
    SOFTCAP: tl.constexpr,
):  # fmt: skip
    """Writes the gradients of keys and values for each query head, in f32: [batch, heads, kv_len, dim]."""
    pair = tl.program_id(1)
    pattern = tl.load(pattern_of + pair)
    tile = tl.load(first_tile + pattern) + tl.program_id(0)
    if tile < tl.load(first_tile + pattern + 1):
        b = (pair // heads).to(tl.int64)
        h = (pair % heads).to(tl.int64)
        start = tl.load(tiles + 2 * tile)
        count = tl.load(tiles + 2 * tile + 1) - start
        line = tl.arange(0, BM)
        key = tl.arange(0, BN)
        d = tl.arange(0, D)
        dv = tl.arange(0, DV)
        k = _matrix(k_ptr + b * sk_b + h // group * sk_h, start, key, d, sk_s, sk_d, count, DIM)
        v = _matrix(v_ptr + b * sv_b + h // group * sv_h, start, key, dv, sv_s, sv_d, count, V_DIM)
        q_ptr += b * sq_b + h * sq_h
        dout_ptr += b * sg_b + h * sg_h
        lse_ptr += pair.to(tl.int64) * q_len
        delta_ptr += pair.to(tl.int64) * q_len
        acc_k = tl.zeros([BN, D], tl.float32)
        acc_v = tl.zeros([BN, DV], tl.float32)
        none = tl.zeros([BM, BN], tl.int1)
        first = tl.load(indptr + tile)
        last = tl.load(indptr + tile + 1)
        for run in range(first, last):
            r0 = tl.load(runs + 3 * run)
            r1 = tl.load(runs + 3 * run + 1)
            end = tl.where(tl.load(runs + 3 * run + 2) < 0, r1, r0)
            for at in range(r0, end, BM):
                q = _matrix(q_ptr, at, line, d, sq_s, sq_d, r1 - at, DIM)
                dout = _matrix(dout_ptr, at, line, dv, sg_s, sg_d, r1 - at, V_DIM)
                lse = tl.load(lse_ptr + at + line, mask=line < r1 - at, other=float("inf"))
                lse = tl.where(lse == -float("inf"), float("inf"), lse)
                delta = tl.load(delta_ptr + at + line, mask=line < r1 - at, other=0.0)
                p, ds = _cells(q, k, v, dout, lse, delta, scale, softcap, none, False, SOFTCAP)
                acc_v = tl.dot(tl.trans(p.to(dout.dtype)), dout, acc_v, input_precision="ieee")
                acc_k = tl.dot(tl.trans(ds.to(q.dtype)), q, acc_k, input_precision="ieee")
        special_k = tl.zeros([BN, D], tl.float32)
        special_v = tl.zeros([BN, DV], tl.float32)
        for run in range(first, last):
            block = tl.load(runs + 3 * run + 2)
            if block >= 0:
                at = tl.load(runs + 3 * run)
                rows = tl.load(runs + 3 * run + 1) - at
                q = _matrix(q_ptr, at, line, d, sq_s, sq_d, rows, DIM)
                dout = _matrix(dout_ptr, at, line, dv, sg_s, sg_d, rows, V_DIM)
                lse = tl.load(lse_ptr + at + line, mask=line < rows, other=float("inf"))
                lse = tl.where(lse == -float("inf"), float("inf"), lse)
                delta = tl.load(delta_ptr + at + line, mask=line < rows, other=0.0)
                allowed = _allowed(words, block, BM, BN)
                p, ds = _cells(q, k, v, dout, lse, delta, scale, softcap, allowed, True, SOFTCAP)
                acc_v = tl.dot(tl.trans(p.to(dout.dtype)), _finite(dout), acc_v, input_precision="ieee")
                acc_k = tl.dot(tl.trans(ds.to(q.dtype)), _finite(q), acc_k, input_precision="ieee")
                if _any_special(dout):
                    special_v += _special(tl.trans(p), dout)
                if _any_special(q):
                    special_k += _special(tl.trans(ds), q)
        at = (pair.to(tl.int64) * kv_len + start + key)[:, None]
        inside = (key < count)[:, None]
        tl.store(dk_ptr + at * DIM + d[None, :], acc_k * scale + special_k, mask=inside & (d < DIM)[None, :])
        tl.store(dv_ptr + at * V_DIM + dv[None, :], acc_v + special_v, mask=inside & (dv < V_DIM)[None, :])

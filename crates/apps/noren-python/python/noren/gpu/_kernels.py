# mypy: ignore-errors
# The functions are written in Triton's language, whose values have no types in Python.
"""The Triton kernels for many queries: forward, gradients of queries, gradients of keys and values.

A program computes one tile of the device plan. A tile has BM lines: for each of PACK query heads of one key-value head, BM //
PACK query rows. So tiles with few query rows still fill the matrix instructions, and keys are read once for PACK heads. The
program adds full blocks first, then mixed blocks, each in ascending order. Scores are in base 2, and the running maximum is a
whole number: rescaling is an exact power of two, so blocks in which a row reads no key change no bit.

Numbers that differ between batches are not specialised (`COUNTS`): new lengths use the same compiled kernel.
"""

from __future__ import annotations

import triton
import triton.language as tl

LOG2E = tl.constexpr(1.4426950408889634)
LOWEST = tl.constexpr(-1e38)
"""Scores in base 2 below this number count as minus infinity."""
LEAST_WEIGHT = tl.constexpr(2.0**-100)
"""Soft weights below this number hide the cell."""

COUNTS = [
    "heads", "group", "q_len", "kv_len", "pairs", "pair_0", "reach", "table_heads", "seed_lo", "seed_hi", "threshold",
    "max_pages", "chunks", "summed",
]  # fmt: skip


@triton.jit
def _matrix(base, start, line, column, stride_line, stride_column, count, dim: tl.constexpr):
    """Reads the rows `start + line` of a matrix. Rows whose entry of `line` is not below `count`, and columns from `dim` on,
    are 0.
    """
    at = base + (start + line)[:, None].to(tl.int64) * stride_line + column[None, :] * stride_column
    return tl.load(at, mask=(line < count)[:, None] & (column < dim)[None, :], other=0.0)


@triton.jit
def _gathered(base, column, stride_column, real, dim: tl.constexpr):
    """Reads rows of a matrix; `base` has a pointer to each row. Rows for which `real` is false, and columns from `dim` on, are
    0."""
    return tl.load(base[:, None] + column[None, :] * stride_column, mask=real[:, None] & (column < dim)[None, :], other=0.0)


@triton.jit
def _products(q, k, scale, softcap, SOFTCAP: tl.constexpr, PRECISION: tl.constexpr):
    """Returns (scores q k^T after scale and softcap, tanh(score / softcap)). If SOFTCAP is false, the second value has no
    meaning."""
    s = tl.dot(q, tl.trans(k), out_dtype=tl.float32, input_precision=PRECISION) * scale
    bent = s
    if SOFTCAP:
        x = s / softcap
        # tanh(x): a series for small x, where 1 - e would cancel, otherwise a quotient without overflow
        e = tl.exp2(tl.abs(x) * (-2.0 * LOG2E))
        x2 = tl.minimum(x * x, 1.0)
        series = x * (1.0 + x2 * (-0.33333334 + x2 * (0.13333334 + x2 * (-0.053968254 + x2 * 0.021869488))))
        bent = tl.where(tl.abs(x) < 0.25, series, tl.where(x < 0, -1.0, 1.0) * (1.0 - e) / (1.0 + e))
        s = bent * softcap
    return s, bent


@triton.jit
def _scores(
    s, key, inside, bias_row, bias_k, soft_row, soft_k, table_row, reach, slope, q_place, k_pos,
    BIAS: tl.constexpr, RELATIVE: tl.constexpr, ALIBI: tl.constexpr, SOFT: tl.constexpr,
):  # fmt: skip
    """Adds biases and the logarithms of soft weights to the scores s [rows, keys]. Returns (scores in base 2, booleans: true for
    a cell that soft weights do not hide).

    For each query row, `bias_row`, `soft_row` and `table_row` are pointers to its data, `slope` is its slope of ALiBi, and
    `q_place` its position.
    """
    if BIAS:
        at = bias_row[:, None] + key[None, :].to(tl.int64) * bias_k
        s += tl.load(at, mask=inside, other=0.0).to(tl.float32)
    if RELATIVE or ALIBI:
        distance = tl.load(k_pos + key[None, :], mask=inside, other=0) - q_place[:, None]
        if RELATIVE:
            entry = tl.minimum(tl.maximum(distance, -reach), reach) + reach
            s += tl.load(table_row[:, None] + entry)
        if ALIBI:
            s -= slope[:, None] * tl.abs(distance).to(tl.float32)
    s = s * LOG2E
    if BIAS or RELATIVE or ALIBI:
        s = tl.where(s < LOWEST, -float("inf"), s)
    seen = inside
    if SOFT:
        at = soft_row[:, None] + key[None, :].to(tl.int64) * soft_k
        soft = tl.load(at, mask=inside, other=0.0).to(tl.float32)
        seen = soft >= LEAST_WEIGHT
        s = tl.where(seen, s + tl.log2(tl.where(seen, soft, 1.0)), -float("inf"))
    return s, seen


@triton.jit
def _kept(b, head, row, key, seed_lo, seed_hi, threshold, factor):
    """Returns the dropout factor of each cell [rows, keys]: 0 if the cell is dropped, else `factor`. `head` is one number, or one
    for each row. See `noren::Dropout`.
    """
    zero = tl.zeros([row.shape[0], key.shape[0]], tl.uint32)
    c0 = (key // 4)[None, :].to(tl.uint32) + zero
    c1 = row[:, None].to(tl.uint32) + zero
    c2 = head.to(tl.uint32) + zero
    c3 = b.to(tl.uint32) + zero
    k0 = seed_lo.to(tl.uint32, bitcast=True)
    k1 = seed_hi.to(tl.uint32, bitcast=True)
    w0, w1, w2, w3 = tl.philox_impl(c0, c1, c2, c3, k0, k1)
    part = (key % 4)[None, :] + zero.to(tl.int32)
    word = tl.where(part == 0, w0, tl.where(part == 1, w1, tl.where(part == 2, w2, w3)))
    return tl.where(word < threshold.to(tl.uint32, bitcast=True), 0.0, factor)


@triton.jit
def _allowed(words, block, BM: tl.constexpr, BN: tl.constexpr, PACK: tl.constexpr):
    """Returns the allowed cells of a mixed block as booleans [BM, BN]. The PACK heads of the tile have the same cells."""
    line = tl.arange(0, BM) % (BM // PACK)
    bit = tl.arange(0, BN)
    at = block.to(tl.int64) * (BM // PACK * BN // 32) + line[:, None] * (BN // 32) + (bit // 32)[None, :]
    return ((tl.load(words + at) >> (bit % 32)[None, :]) & 1) != 0


@triton.jit
def _finite(x):
    """Returns `x` with every infinity and NaN replaced by 0."""
    return tl.where(tl.abs(x.to(tl.float32)) < float("inf"), x, 0.0).to(x.dtype)


@triton.jit
def _with_special(acc, readers, x, SIGNED: tl.constexpr):
    """Adds the infinities and NaN of x [n, columns] to acc [rows, columns]. Each row of acc is a weighted sum of rows of x, in
    which these numbers were replaced by 0.

    An entry of readers [rows, n] is not 0 if the row of acc contains the row of x; with SIGNED, the entry has the sign of the
    weight. One matrix product counts plus infinities in units of 2^-9, minus infinities in units of 1 and NaN in units of 2^9:
    numbers that are exact in f16.
    """
    wide = x.to(tl.float32)
    nan = tl.where(wide != wide, 512.0, 0.0)
    up = wide == float("inf")
    down = wide == -float("inf")
    code = tl.where(up, 0.001953125, tl.where(down, 1.0, nan)).to(tl.float16)
    count = tl.dot((readers > 0).to(tl.float16), code)
    if SIGNED:
        code = tl.where(down, 0.001953125, tl.where(up, 1.0, nan)).to(tl.float16)
        count = tl.dot((readers < 0).to(tl.float16), code, count)
    whole = tl.floor(count)
    # A row that reads none of them keeps its bits, also those of -0.
    acc = tl.where(count > whole, acc + float("inf"), acc)
    acc = tl.where((whole > 0) & (whole < 512), acc - float("inf"), acc)
    return tl.where(whole >= 512, float("nan"), acc)


@triton.jit
def _any_special(x):
    return tl.min(tl.min((tl.abs(x.to(tl.float32)) < float("inf")).to(tl.int32), 1), 0) == 0


@triton.jit
def _rescaled(s, m):
    """Returns (weights of the scores s of a block, new running maximum of each row, factors). `m` is the old running maximum.
    The sums of earlier blocks must be multiplied by the factor of their row.
    """
    most = tl.maximum(m, tl.ceil(tl.max(s, 1)))
    base = tl.where(most == -float("inf"), 0.0, most)
    return tl.exp2(s - base[:, None]), most, tl.exp2(m - base)


@triton.jit
def _with_sink(m, total, acc, sink):
    """Adds a sink, a logit in base e, to the denominator of rows that read a key; rows that read no key are not changed. Returns
    (maximum, denominator, weighted values).
    """
    sink = sink * LOG2E
    most = tl.maximum(m, tl.ceil(sink))
    base = tl.where(m == -float("inf"), 0.0, most)
    keep = tl.exp2(m - base)
    more = tl.where(m == -float("inf"), 0.0, tl.exp2(sink - base))
    return tl.where(m == -float("inf"), m, most), total * keep + more, acc * keep[:, None]


@triton.jit
def _tile(pattern_of, first_tile, order, tiles, pairs, pair_0, several):
    """Returns the tile of this program: (index of its first pair of batch row and head, index of the tile, first row or key of
    the tile, number of its rows or keys). The last value is 0 if there is no tile for this program.

    `several` is the number of heads that a program computes. `pairs` is the number of groups of `several` heads: that many
    consecutive programs compute the tiles with the same place in the order of tiles.
    """
    rank = tl.program_id(0) // pairs
    pair = pair_0 + tl.program_id(0) % pairs * several
    pattern = tl.load(pattern_of + pair)
    first = tl.load(first_tile + pattern)
    there = rank < tl.load(first_tile + pattern + 1) - first
    tile = tl.load(order + first + rank, mask=there, other=0)
    start = tl.load(tiles + 2 * tile)
    count = tl.where(there, tl.load(tiles + 2 * tile + 1) - start, 0)
    return pair, tile, start, count


@triton.jit
def _steps(run, block, MIXED: tl.constexpr):
    """Returns (first, end) of the range `run` of keys or query rows, without the end. The range is empty if its kind is not
    computed now: mixed blocks are computed if MIXED is true, otherwise full blocks.
    """
    first = tl.load(run)
    end = tl.load(run + 1)
    if MIXED:
        return first, tl.where(block >= 0, end, first)
    else:
        return first, tl.where(block < 0, end, first)


@triton.jit(do_not_specialize=COUNTS)
def forward(
    q_ptr, k_ptr, v_ptr, out_ptr, lse_ptr, bias_ptr, soft_ptr, table_ptr, slopes_ptr, sinks_ptr, q_pos, k_pos,
    pattern_of, first_tile, order, tiles, indptr, runs, words,
    q_b, q_h, q_s, q_d, k_b, k_h, k_s, k_d, v_b, v_h, v_s, v_d, out_b, out_h, out_s, out_d,
    bias_b, bias_h, bias_q, bias_k, soft_b, soft_h, soft_q, soft_k,
    heads, group, q_len, kv_len, pairs, pair_0, reach, table_heads, scale, softcap, seed_lo, seed_hi, threshold, factor,
    PACK: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, DIM: tl.constexpr, D: tl.constexpr, V_DIM: tl.constexpr, DV: tl.constexpr,
    SOFTCAP: tl.constexpr, BIAS: tl.constexpr, RELATIVE: tl.constexpr, ALIBI: tl.constexpr, SOFT: tl.constexpr,
    SINKS: tl.constexpr, DROPOUT: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Writes the outputs of a tile of query rows, and the log-sum-exps in base e."""
    pair, tile, start, count = _tile(pattern_of, first_tile, order, tiles, pairs, pair_0, PACK)
    if count > 0:
        b = (pair // heads).to(tl.int64)
        line = tl.arange(0, BM)
        lane = tl.arange(0, BN)
        d = tl.arange(0, D)
        dv = tl.arange(0, DV)
        real = line % (BM // PACK) < count
        row = start + line % (BM // PACK)
        head = pair % heads + line // (BM // PACK)
        h = head.to(tl.int64)
        q = _gathered(q_ptr + b * q_b + h * q_h + row.to(tl.int64) * q_s, d, q_d, real, DIM)
        kv_head = (pair % heads // group).to(tl.int64)
        k_head = k_ptr + b * k_b + kv_head * k_h
        v_head = v_ptr + b * v_b + kv_head * v_h
        bias_row = bias_ptr + b * bias_b + h * bias_h + row.to(tl.int64) * bias_q
        soft_row = soft_ptr + b * soft_b + h * soft_h + row.to(tl.int64) * soft_q
        table_row = table_ptr + tl.minimum(head, table_heads - 1) * (2 * reach + 1)
        slope = tl.zeros([BM], tl.float32)
        if ALIBI:
            slope += tl.load(slopes_ptr + head)
        q_place = line
        if RELATIVE or ALIBI:
            q_place = tl.load(q_pos + b * q_len + row, mask=real, other=0)
        m = tl.full([BM], -float("inf"), tl.float32)
        total = tl.zeros([BM], tl.float32)
        acc = tl.zeros([BM, DV], tl.float32)
        first = tl.load(indptr + tile)
        last = tl.load(indptr + tile + 1)
        for MIXED in tl.static_range(2):
            for run in range(first, last):
                block = tl.load(runs + 3 * run + 2)
                k0, k1 = _steps(runs + 3 * run, block, MIXED)
                for at in range(k0, k1, BN):
                    limit = BN
                    inside = real[:, None] & (lane >= 0)[None, :]
                    if MIXED:
                        limit = kv_len - at
                        inside = _allowed(words, block, BM, BN, PACK)
                    k = _matrix(k_head, at, lane, d, k_s, k_d, limit, DIM)
                    v = _matrix(v_head, at, lane, dv, v_s, v_d, limit, V_DIM)
                    s, _ = _products(q, k, scale, softcap, SOFTCAP, PRECISION)
                    s, _ = _scores(
                        s, at + lane, inside, bias_row, bias_k, soft_row, soft_k, table_row, reach, slope, q_place, k_pos + b * kv_len,
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
        if SINKS:
            m, total, acc = _with_sink(m, total, acc, tl.load(sinks_ptr + head))
        some = (total > 0) | (total != total)
        divisor = tl.where(some, total, 1.0)
        out = tl.where(some[:, None], acc / divisor[:, None], 0.0)
        at = (out_ptr + b * out_b + h * out_h + row.to(tl.int64) * out_s)[:, None] + dv[None, :] * out_d
        tl.store(at, out.to(out_ptr.dtype.element_ty), mask=real[:, None] & (dv < V_DIM)[None, :])
        lse = tl.where(some, (m + tl.log2(divisor)) / LOG2E, -float("inf"))
        tl.store(lse_ptr + (b * heads + h) * q_len + row, lse, mask=real)


@triton.jit(do_not_specialize=COUNTS)
def row_sums(
    out_ptr, dout_ptr, delta_ptr, out_b, out_h, out_s, out_d, dout_b, dout_h, dout_s, dout_d, heads, q_len, pairs,
    BM: tl.constexpr, V_DIM: tl.constexpr, DV: tl.constexpr,
):  # fmt: skip
    """Writes for each query row the sum of out * dout over the columns: a term that the gradients need."""
    pair = tl.program_id(0) % pairs
    b = (pair // heads).to(tl.int64)
    h = (pair % heads).to(tl.int64)
    line = tl.arange(0, BM)
    dv = tl.arange(0, DV)
    start = tl.program_id(0) // pairs * BM
    out = _matrix(out_ptr + b * out_b + h * out_h, start, line, dv, out_s, out_d, q_len - start, V_DIM)
    dout = _matrix(dout_ptr + b * dout_b + h * dout_h, start, line, dv, dout_s, dout_d, q_len - start, V_DIM)
    delta = tl.sum(out.to(tl.float32) * dout.to(tl.float32), 1)
    tl.store(delta_ptr + pair.to(tl.int64) * q_len + start + line, delta, mask=line < q_len - start)


@triton.jit
def _log_sums(lse_ptr, at, real):
    """Reads log-sum-exps and returns them in base 2. For rows that read no key the result is plus infinity, so that the weights
    of these rows are 0."""
    lse = tl.load(lse_ptr + at, mask=real, other=-float("inf")) * LOG2E
    return tl.where(lse == -float("inf"), float("inf"), lse)


@triton.jit
def _softmax_gradients(s, bent, v, dout, lse, delta, kept, SOFTCAP: tl.constexpr, DROPOUT: tl.constexpr, PRECISION: tl.constexpr):
    """Returns (weights of the values after dropout, gradients of the scores with biases, gradients of the scores before
    softcap).
    """
    p = tl.exp2(s - lse[:, None])
    dp = tl.dot(dout, tl.trans(v), out_dtype=tl.float32, input_precision=PRECISION)
    used = p
    if DROPOUT:
        used = p * kept
        dp = dp * kept
    ds = p * (dp - delta[:, None])
    before = ds
    if SOFTCAP:
        before = ds * (1.0 - bent * bent)
    return used, ds, before


@triton.jit(do_not_specialize=COUNTS)
def query_gradients(
    q_ptr, k_ptr, v_ptr, dout_ptr, lse_ptr, delta_ptr, dq_ptr, ds_ptr, bias_ptr, soft_ptr, table_ptr, slopes_ptr, q_pos, k_pos,
    pattern_of, first_tile, order, tiles, indptr, runs, words,
    q_b, q_h, q_s, q_d, k_b, k_h, k_s, k_d, v_b, v_h, v_s, v_d, dout_b, dout_h, dout_s, dout_d, dq_b, dq_h, dq_s, dq_d,
    bias_b, bias_h, bias_q, bias_k, soft_b, soft_h, soft_q, soft_k,
    heads, group, q_len, kv_len, pairs, pair_0, reach, table_heads, scale, softcap, seed_lo, seed_hi, threshold, factor,
    PACK: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, DIM: tl.constexpr, D: tl.constexpr, V_DIM: tl.constexpr, DV: tl.constexpr,
    SOFTCAP: tl.constexpr, BIAS: tl.constexpr, RELATIVE: tl.constexpr, ALIBI: tl.constexpr, SOFT: tl.constexpr,
    DROPOUT: tl.constexpr, PRECISION: tl.constexpr, SCORES: tl.constexpr,
):  # fmt: skip
    """Writes the gradients of a tile of query rows. With SCORES, also writes the gradients of the scores, [heads, q_len,
    kv_len] in f32."""
    pair, tile, start, count = _tile(pattern_of, first_tile, order, tiles, pairs, pair_0, PACK)
    if count > 0:
        b = (pair // heads).to(tl.int64)
        line = tl.arange(0, BM)
        lane = tl.arange(0, BN)
        d = tl.arange(0, D)
        dv = tl.arange(0, DV)
        real = line % (BM // PACK) < count
        row = start + line % (BM // PACK)
        head = pair % heads + line // (BM // PACK)
        h = head.to(tl.int64)
        q = _gathered(q_ptr + b * q_b + h * q_h + row.to(tl.int64) * q_s, d, q_d, real, DIM)
        dout = _gathered(dout_ptr + b * dout_b + h * dout_h + row.to(tl.int64) * dout_s, dv, dout_d, real, V_DIM)
        of_row = (b * heads + h) * q_len + row
        lse = _log_sums(lse_ptr, of_row, real)
        delta = tl.load(delta_ptr + of_row, mask=real, other=0.0)
        kv_head = (pair % heads // group).to(tl.int64)
        k_head = k_ptr + b * k_b + kv_head * k_h
        v_head = v_ptr + b * v_b + kv_head * v_h
        bias_row = bias_ptr + b * bias_b + h * bias_h + row.to(tl.int64) * bias_q
        soft_row = soft_ptr + b * soft_b + h * soft_h + row.to(tl.int64) * soft_q
        table_row = table_ptr + tl.minimum(head, table_heads - 1) * (2 * reach + 1)
        slope = tl.zeros([BM], tl.float32)
        if ALIBI:
            slope += tl.load(slopes_ptr + head)
        q_place = line
        if RELATIVE or ALIBI:
            q_place = tl.load(q_pos + b * q_len + row, mask=real, other=0)
        ds_row = ds_ptr + (of_row - pair_0.to(tl.int64) * q_len) * kv_len
        acc = tl.zeros([BM, D], tl.float32)
        first = tl.load(indptr + tile)
        last = tl.load(indptr + tile + 1)
        for MIXED in tl.static_range(2):
            for run in range(first, last):
                block = tl.load(runs + 3 * run + 2)
                k0, k1 = _steps(runs + 3 * run, block, MIXED)
                for at in range(k0, k1, BN):
                    kept = 1.0
                    limit = BN
                    inside = real[:, None] & (lane >= 0)[None, :]
                    if MIXED:
                        limit = kv_len - at
                        inside = _allowed(words, block, BM, BN, PACK)
                    k = _matrix(k_head, at, lane, d, k_s, k_d, limit, DIM)
                    v = _matrix(v_head, at, lane, dv, v_s, v_d, limit, V_DIM)
                    s, bent = _products(q, k, scale, softcap, SOFTCAP, PRECISION)
                    s, seen = _scores(
                        s, at + lane, inside, bias_row, bias_k, soft_row, soft_k, table_row, reach, slope, q_place, k_pos + b * kv_len,
                        BIAS, RELATIVE, ALIBI, SOFT,
                    )  # fmt: skip
                    if DROPOUT:
                        kept = _kept(b, head[:, None], row, at + lane, seed_lo, seed_hi, threshold, factor)
                    _, ds, before = _softmax_gradients(s, bent, v, dout, lse, delta, kept, SOFTCAP, DROPOUT, PRECISION)
                    if MIXED or SOFT:
                        ds = tl.where(inside & seen, ds, 0.0)
                        before = tl.where(inside & seen, before, 0.0)
                        acc = tl.dot(before.to(k.dtype), _finite(k), acc, input_precision=PRECISION)
                        if _any_special(k):
                            acc = _with_special(acc, before, k, True)
                    else:
                        acc = tl.dot(before.to(k.dtype), k, acc, input_precision=PRECISION)
                    if SCORES:
                        tl.store(ds_row[:, None] + (at + lane)[None, :], ds, mask=inside)
        at = (dq_ptr + b * dq_b + h * dq_h + row.to(tl.int64) * dq_s)[:, None] + d[None, :] * dq_d
        tl.store(at, (acc * scale).to(dq_ptr.dtype.element_ty), mask=real[:, None] & (d < DIM)[None, :])


@triton.jit(do_not_specialize=COUNTS)
def key_gradients(
    q_ptr, k_ptr, v_ptr, dout_ptr, lse_ptr, delta_ptr, dk_ptr, dv_ptr, bias_ptr, soft_ptr, table_ptr, slopes_ptr, q_pos, k_pos,
    pattern_of, first_tile, order, tiles, indptr, runs, words,
    q_b, q_h, q_s, q_d, k_b, k_h, k_s, k_d, v_b, v_h, v_s, v_d, dout_b, dout_h, dout_s, dout_d,
    bias_b, bias_h, bias_q, bias_k, soft_b, soft_h, soft_q, soft_k,
    heads, group, q_len, kv_len, pairs, pair_0, summed, reach, table_heads, scale, softcap, seed_lo, seed_hi, threshold, factor,
    PACK: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, DIM: tl.constexpr, D: tl.constexpr, V_DIM: tl.constexpr, DV: tl.constexpr,
    SOFTCAP: tl.constexpr, BIAS: tl.constexpr, RELATIVE: tl.constexpr, ALIBI: tl.constexpr, SOFT: tl.constexpr,
    DROPOUT: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Writes the gradients of a tile of keys and values, summed over `summed` query heads: [batch, heads / summed, kv_len, dim].

    The gradients of the query heads are added in ascending order, PACK heads at a time. `summed` is the number of query heads
    that share a key-value head if these have equal masks, else 1.
    """
    pair, tile, start, count = _tile(pattern_of, first_tile, order, tiles, pairs, pair_0, summed)
    if count > 0:
        b = (pair // heads).to(tl.int64)
        line = tl.arange(0, BM)
        lane = tl.arange(0, BN)
        d = tl.arange(0, D)
        dv = tl.arange(0, DV)
        key = start + lane
        real = lane < count
        kv_head = (pair % heads // group).to(tl.int64)
        k = _matrix(k_ptr + b * k_b + kv_head * k_h, start, lane, d, k_s, k_d, count, DIM)
        v = _matrix(v_ptr + b * v_b + kv_head * v_h, start, lane, dv, v_s, v_d, count, V_DIM)
        acc_k = tl.zeros([BN, D], tl.float32)
        acc_v = tl.zeros([BN, DV], tl.float32)
        first = tl.load(indptr + tile)
        last = tl.load(indptr + tile + 1)
        for first_head in range(0, summed, PACK):
            head = pair % heads + first_head + line // (BM // PACK)
            h = head.to(tl.int64)
            table_row = table_ptr + tl.minimum(head, table_heads - 1) * (2 * reach + 1)
            slope = tl.zeros([BM], tl.float32)
            if ALIBI:
                slope += tl.load(slopes_ptr + head)
            for MIXED in tl.static_range(2):
                for run in range(first, last):
                    block = tl.load(runs + 3 * run + 2)
                    r0, r1 = _steps(runs + 3 * run, block, MIXED)
                    for at in range(r0, r1, BM // PACK):
                        kept = 1.0
                        there = line % (BM // PACK) < r1 - at
                        row = at + line % (BM // PACK)
                        inside = there[:, None] & real[None, :]
                        if MIXED:
                            inside = _allowed(words, block, BM, BN, PACK)
                        q = _gathered(q_ptr + b * q_b + h * q_h + row.to(tl.int64) * q_s, d, q_d, there, DIM)
                        dout = _gathered(dout_ptr + b * dout_b + h * dout_h + row.to(tl.int64) * dout_s, dv, dout_d, there, V_DIM)
                        of_row = (b * heads + h) * q_len + row
                        lse = _log_sums(lse_ptr, of_row, there)
                        delta = tl.load(delta_ptr + of_row, mask=there, other=0.0)
                        q_place = line
                        if RELATIVE or ALIBI:
                            q_place = tl.load(q_pos + b * q_len + row, mask=there, other=0)
                        bias_row = bias_ptr + b * bias_b + h * bias_h + row.to(tl.int64) * bias_q
                        soft_row = soft_ptr + b * soft_b + h * soft_h + row.to(tl.int64) * soft_q
                        s, bent = _products(q, k, scale, softcap, SOFTCAP, PRECISION)
                        s, seen = _scores(
                            s, key, inside, bias_row, bias_k, soft_row, soft_k, table_row, reach, slope, q_place,
                            k_pos + b * kv_len, BIAS, RELATIVE, ALIBI, SOFT,
                        )  # fmt: skip
                        if DROPOUT:
                            kept = _kept(b, head[:, None], row, key, seed_lo, seed_hi, threshold, factor)
                        p, _, ds = _softmax_gradients(s, bent, v, dout, lse, delta, kept, SOFTCAP, DROPOUT, PRECISION)
                        if MIXED or SOFT:
                            p = tl.where(inside & seen, p, 0.0)
                            ds = tl.where(inside & seen, ds, 0.0)
                            acc_v = tl.dot(tl.trans(p.to(dout.dtype)), _finite(dout), acc_v, input_precision=PRECISION)
                            acc_k = tl.dot(tl.trans(ds.to(q.dtype)), _finite(q), acc_k, input_precision=PRECISION)
                            if _any_special(dout):
                                acc_v = _with_special(acc_v, tl.trans(p), dout, True)
                            if _any_special(q):
                                acc_k = _with_special(acc_k, tl.trans(ds), q, True)
                        else:
                            acc_v = tl.dot(tl.trans(p.to(dout.dtype)), dout, acc_v, input_precision=PRECISION)
                            acc_k = tl.dot(tl.trans(ds.to(q.dtype)), q, acc_k, input_precision=PRECISION)
        at = (((b * heads + pair % heads) // summed) * kv_len + key)[:, None]
        tl.store(dk_ptr + at * DIM + d[None, :], (acc_k * scale).to(dk_ptr.dtype.element_ty), mask=real[:, None] & (d < DIM)[None, :])
        tl.store(dv_ptr + at * V_DIM + dv[None, :], acc_v.to(dv_ptr.dtype.element_ty), mask=real[:, None] & (dv < V_DIM)[None, :])

//! The two products of attention on a register tile: scores from queries and keys, outputs from weights and values.
//!
//! Both keep `R x N` accumulators in registers and add one term at a time in ascending order, so a result has the same
//! bits whichever tile, row block or neighbour it is computed with.

use super::simd::{Simd, floats};

/// Keys in a block: a word of mask bits.
pub(crate) const BLOCK: usize = 64;

/// Most keys in a block in which every cell is allowed: longer runs of the products, fewer visits to the accumulators.
pub(crate) const WIDE: usize = 2 * BLOCK;

/// Calls `$f::<S, R, N>` for the run-time numbers of rows and vectors, leaving out tiles larger than the path's own.
macro_rules! by_tile {
    ($s:ty, $rows:expr, $vectors:expr, $f:ident($($arg:expr),*)) => {
        match ($rows, $vectors) {
            (1, 1) => $f::<$s, 1, 1>($($arg),*),
            (2, 1) => $f::<$s, 2, 1>($($arg),*),
            (3, 1) => $f::<$s, 3, 1>($($arg),*),
            (4, 1) => $f::<$s, 4, 1>($($arg),*),
            (5, 1) if <$s>::ROWS >= 5 => $f::<$s, 5, 1>($($arg),*),
            (6, 1) if <$s>::ROWS >= 6 => $f::<$s, 6, 1>($($arg),*),
            (1, 2) if <$s>::VECTORS >= 2 => $f::<$s, 1, 2>($($arg),*),
            (2, 2) if <$s>::VECTORS >= 2 => $f::<$s, 2, 2>($($arg),*),
            (3, 2) if <$s>::VECTORS >= 2 => $f::<$s, 3, 2>($($arg),*),
            (4, 2) if <$s>::VECTORS >= 2 => $f::<$s, 4, 2>($($arg),*),
            (5, 2) if <$s>::VECTORS >= 2 && <$s>::ROWS >= 5 => $f::<$s, 5, 2>($($arg),*),
            (6, 2) if <$s>::VECTORS >= 2 && <$s>::ROWS >= 6 => $f::<$s, 6, 2>($($arg),*),
            (1, 3) if <$s>::VECTORS >= 3 => $f::<$s, 1, 3>($($arg),*),
            (2, 3) if <$s>::VECTORS >= 3 => $f::<$s, 2, 3>($($arg),*),
            (3, 3) if <$s>::VECTORS >= 3 => $f::<$s, 3, 3>($($arg),*),
            (4, 3) if <$s>::VECTORS >= 3 => $f::<$s, 4, 3>($($arg),*),
            (5, 3) if <$s>::VECTORS >= 3 && <$s>::ROWS >= 5 => $f::<$s, 5, 3>($($arg),*),
            (6, 3) if <$s>::VECTORS >= 3 && <$s>::ROWS >= 6 => $f::<$s, 6, 3>($($arg),*),
            (1, 4) if <$s>::VECTORS >= 4 => $f::<$s, 1, 4>($($arg),*),
            (2, 4) if <$s>::VECTORS >= 4 => $f::<$s, 2, 4>($($arg),*),
            (3, 4) if <$s>::VECTORS >= 4 => $f::<$s, 3, 4>($($arg),*),
            (4, 4) if <$s>::VECTORS >= 4 => $f::<$s, 4, 4>($($arg),*),
            (5, 4) if <$s>::VECTORS >= 4 && <$s>::ROWS >= 5 => $f::<$s, 5, 4>($($arg),*),
            (6, 4) if <$s>::VECTORS >= 4 && <$s>::ROWS >= 6 => $f::<$s, 6, 4>($($arg),*),
            (rows, vectors) => unreachable!("a register tile of {rows} x {vectors}"),
        }
    };
}

pub(super) use by_tile;

/// Scores of `rows` queries against `groups` lane groups of keys.
///
/// `q` is `[rows][head_dim]`, `k` is `[groups][head_dim]` vectors, `scores` has `WIDE / LANES` vectors for a row,
/// of which the first `groups` are written.
#[inline(always)]
pub(crate) fn scores<S: Simd>(
    s: S,
    rows: usize,
    q: &[f32],
    k: &[S::V],
    head_dim: usize,
    groups: usize,
    scores: &mut [S::V],
) {
    let mut group = 0;
    while group < groups {
        let vectors = S::VECTORS.min(groups - group);
        by_tile!(S, rows, vectors, score_tile(s, q, &k[group * head_dim..], head_dim, &mut scores[group..]));
        group += vectors;
    }
}

#[inline(always)]
fn score_tile<S: Simd, const R: usize, const N: usize>(
    s: S,
    q: &[f32],
    k: &[S::V],
    head_dim: usize,
    scores: &mut [S::V],
) {
    let mut queries = [&q[..head_dim]; R];
    for (r, queries) in queries.iter_mut().enumerate() {
        *queries = &q[r * head_dim..][..head_dim];
    }
    let mut keys = [&k[..head_dim]; N];
    for (n, keys) in keys.iter_mut().enumerate() {
        *keys = &k[n * head_dim..][..head_dim];
    }
    let mut acc = [[s.splat(0.0); N]; R];
    for d in 0..head_dim {
        let mut key = [s.splat(0.0); N];
        for n in 0..N {
            key[n] = keys[n][d];
        }
        for r in 0..R {
            let query = s.splat(queries[r][d]);
            for n in 0..N {
                acc[r][n] = s.fma(query, key[n], acc[r][n]);
            }
        }
    }
    for r in 0..R {
        for n in 0..N {
            scores[r * (WIDE / S::LANES) + n] = acc[r][n];
        }
    }
}

/// Adds the values of keys `keys` of a block, weighted, to the accumulators of `rows` queries.
///
/// `weights` has `WIDE` values for a row; row `j` of `values`, `v_width` long, belongs to key `j` of the block; `acc` has
/// `v_width / LANES` vectors for a row.
#[inline(always)]
pub(crate) fn accumulate<S: Simd>(
    s: S,
    rows: usize,
    weights: &[S::V],
    keys: std::ops::Range<usize>,
    values: &[f32],
    v_width: usize,
    acc: &mut [S::V],
) {
    let weights = &floats(weights).as_chunks::<WIDE>().0[..rows];
    let width = v_width / S::LANES;
    let mut column = 0;
    while column < width {
        let vectors = S::VECTORS.min(width - column);
        let values = &values[column * S::LANES..];
        by_tile!(
            S,
            rows,
            vectors,
            value_tile(s, weights, keys.start, keys.end, values, v_width, &mut acc[column..], width)
        );
        column += vectors;
    }
}

#[inline(always)]
#[allow(clippy::too_many_arguments)] // a register tile: its operands and where they lie
fn value_tile<S: Simd, const R: usize, const N: usize>(
    s: S,
    weights: &[[f32; WIDE]],
    start: usize,
    end: usize,
    values: &[f32],
    v_width: usize,
    acc: &mut [S::V],
    width: usize,
) {
    assert!(weights.len() == R && end <= WIDE);
    let mut sum = [[s.splat(0.0); N]; R];
    for r in 0..R {
        for n in 0..N {
            sum[r][n] = acc[r * width + n];
        }
    }
    for key in start..end {
        let row = &values[key * v_width..][..N * S::LANES];
        let mut value = [s.splat(0.0); N];
        for n in 0..N {
            value[n] = s.load(&row[n * S::LANES..]);
        }
        for r in 0..R {
            let weight = s.splat(weights[r][key]);
            for n in 0..N {
                sum[r][n] = s.fma(weight, value[n], sum[r][n]);
            }
        }
    }
    for r in 0..R {
        for n in 0..N {
            acc[r * width + n] = sum[r][n];
        }
    }
}

//! The matrix products that only the backward pass has: for each key, a weighted sum over query rows.
//!
//! Each sum adds one term at a time, in ascending order of rows. Therefore a sum has the same bits for every division
//! into tiles, as in the forward pass.

use crate::kernel::micro::{WIDE, by_tile, keep_half, tile_vectors};
use crate::kernel::simd::{Product, Simd, floats, floats_mut};
use std::ops::Range;

/// Adds the rows `rows` of `values`, multiplied by their weights, to the accumulators of `keys` keys. `keys` is at most
/// `S::ROWS`.
///
/// `weights` has `WIDE` words for each row; the weight of the first key is at index `first`. `values` is
/// `[rows][width]`. `acc` has `width / LANES` vectors for each key. If words are pairs of `bf16`, each row of `weights`
/// and `values` has the numbers of two neighbouring query rows.
#[inline(always)]
#[allow(clippy::too_many_arguments)] // the operands of a register tile and their positions
pub(super) fn gather<S: Simd, P: Product>(
    s: S,
    weights: &[S::V],
    rows: Range<usize>,
    first: usize,
    keys: usize,
    values: &[f32],
    width: usize,
    acc: &mut [S::V],
) {
    let weights = &floats(weights).as_chunks::<WIDE>().0[rows.clone()];
    let values = &values[rows.start * width..rows.end * width];
    let vectors = width / S::LANES;
    let mut column = 0;
    while column < vectors {
        let wide = tile_vectors::<S>(vectors - column);
        let values = &values[column * S::LANES..];
        by_tile!(S, P, keys, wide, gather_tile(s, weights, first, values, width, &mut acc[column..]));
        column += wide;
    }
}

#[inline(always)]
fn gather_tile<S: Simd, P: Product, const R: usize, const N: usize>(
    s: S,
    weights: &[[f32; WIDE]],
    first: usize,
    values: &[f32],
    width: usize,
    acc: &mut [S::V],
) {
    assert!(first + R <= WIDE);
    let vectors = width / S::LANES;
    let mut sum = [[s.splat(0.0); N]; R];
    for r in 0..R {
        for n in 0..N {
            sum[r][n] = acc[r * vectors + n];
        }
    }
    for (row, weights) in weights.iter().enumerate() {
        let row = &values[row * width..][..N * S::LANES];
        let mut value = [s.splat(0.0); N];
        for n in 0..N {
            value[n] = s.load(&row[n * S::LANES..]);
        }
        for r in 0..R {
            let weight = s.splat(weights[first + r]);
            for n in 0..N {
                sum[r][n] = P::dot(s, weight, value[n], sum[r][n]);
            }
        }
    }
    for r in 0..R {
        for n in 0..N {
            acc[r * vectors + n] = sum[r][n];
        }
    }
}

/// Adds the row `values`, multiplied by `weight`, to `acc`. All three consist of words. This function is for
/// blocks with hidden cells if numbers that belong to the hidden cells may be infinite or NaN. If words are pairs of
/// `bf16`, bit `i` of `seen` is set if number `i` of a pair belongs to an allowed cell; other numbers count as 0.
#[inline(always)]
pub(super) fn add_allowed_word<S: Simd>(s: S, weight: f32, values: &[S::V], seen: u64, acc: &mut [S::V]) {
    let weight = s.splat(weight);
    for (sum, value) in acc.iter_mut().zip(values) {
        let mut value = [*value];
        if S::Product::TERMS == 2 && seen != 3 {
            keep_half(floats_mut(&mut value), seen);
        }
        *sum = S::Product::dot(s, weight, value[0], *sum);
    }
}

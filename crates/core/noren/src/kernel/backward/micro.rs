//! The matrix products that only the backward pass has: for each key, a weighted sum over query rows.
//!
//! Each sum adds one term at a time, in ascending order of rows. Therefore a sum has the same bits for every division
//! into tiles, as in the forward pass.

use super::cells::needed;
use super::queries::PAIRS;
use crate::kernel::math::micro::{BLOCK, WIDE, by_tile, keep_half, tile_vectors};
use crate::kernel::simd::{Product, Simd, floats, floats_mut};
use crate::processor::tiles::{Left, Right, SIDE, Sums};
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

/// Products for the gradients of keys on a path that multiplies tiles: sums `[width][stride]`, with one key in each column.
/// The order of a sum is that of tiles: [`step`](super::context::step) rows at a time.
pub(super) struct Columns<'a> {
    /// Weights of pairs of neighbouring query rows, `[pairs][WIDE]`.
    pub(super) weights: &'a [f32],
    /// The numbers that are weighted: pairs of the numbers of neighbouring query rows, `[pairs][width]`.
    pub(super) rows: &'a [f32],
    /// The transpose of `rows`, `[width][PAIRS]`.
    pub(super) across: &'a [f32],
    /// The sums, from the first key of the block on.
    pub(super) sums: &'a mut [f32],
    /// The number of sums from one row to the next.
    pub(super) stride: usize,
}

impl Columns<'_> {
    /// Adds the weighted numbers of `rows` query rows to the sums of the first `keys` keys. `masked` has the mask bits of the
    /// rows, unless all cells are allowed; cells without a bit must have the weight 0.
    #[inline(always)]
    pub(super) fn add<P: Product>(self, masked: Option<&[u64]>, rows: usize, keys: usize) {
        let Columns { weights, across, sums, stride, .. } = self;
        let width = across.len() / PAIRS;
        let columns = |chunk: usize| match masked {
            None => 0..keys / SIDE,
            Some(words) => {
                let words = &words[chunk * 2 * SIDE..words.len().min((chunk + 1) * 2 * SIDE)];
                let needed = needed(words, true, keys);
                needed.start / SIDE..needed.end.div_ceil(SIDE)
            }
        };
        let mut chunks = 0..rows.div_ceil(2 * SIDE);
        while !chunks.is_empty() {
            let now = columns(chunks.start);
            let end = chunks.clone().find(|chunk| columns(*chunk) != now).unwrap_or(chunks.end);
            let left = Left { words: across, stride: PAIRS, rows: width };
            let right = Right { words: weights, stride: WIDE, step: SIDE };
            P::multiply(false, left, chunks.start * SIDE..end * SIDE, right, now, Sums { words: &mut *sums, stride });
            chunks.start = end;
        }
    }

    /// Adds the numbers of the rows whose bits are set in `words`, which may be infinite or NaN in other rows.
    #[cold]
    pub(super) fn add_allowed<P: Product>(self, words: &[u64]) {
        let Columns { weights, rows, across, sums, stride } = self;
        let width = across.len() / PAIRS;
        let read = words.iter().fold(0, |or, word| or | word);
        for key in (0..BLOCK).filter(|key| read >> key & 1 == 1) {
            let mut column: Vec<f32> = (0..width).map(|i| sums[i * stride + key]).collect();
            for (i, words) in words.chunks(BLOCK).enumerate() {
                let allowed = words.iter().rev().fold(0, |bits, word| bits << 1 | word >> key & 1);
                let first = i * BLOCK / 2;
                let mut weight = [0.0; BLOCK / 2];
                for (weight, row) in weight.iter_mut().zip(first..PAIRS) {
                    *weight = weights[row * WIDE + key];
                }
                P::multiply_allowed(&weight, allowed, &rows[first * width..], &mut column);
            }
            (0..width).for_each(|i| sums[i * stride + key] = column[i]);
        }
    }
}

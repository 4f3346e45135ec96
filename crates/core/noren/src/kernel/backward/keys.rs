//! A range of keys and their values, in the memory layouts of the five matrix products of the backward pass.
//!
//! As in the forward pass, an array consists of *words*: each is one `f32` number, or a pair of `bf16` numbers on
//! processor paths that multiply pairs.

use super::context::{Context, Widths, lanes, of_pairs, step};
use crate::kernel::arrays::rows::Rows;
use crate::kernel::math::micro::{BLOCK, WIDE};
use crate::kernel::simd::{Kernel, Product, Simd, all_finite, floats, floats_mut, pair_up, zeroed};
use std::ops::Range;

/// The approximate number of bytes of one item of the backward pass: a range of keys, their values, and the data
/// derived from both. Together with other data, an item should fit in the second-level cache. This cache has 1 MB or more
/// in most processors with vectors of 16 lanes, and often 512 KB in others.
const fn item_bytes<S: Simd>() -> usize {
    if S::LANES >= 16 { 704 << 10 } else { 320 << 10 }
}

/// Returns the number of keys in an item (a range of keys that one thread processes), a multiple of `WIDE`. The
/// gradients do not depend on this number.
pub(super) fn item_keys<S: Simd>(widths: Widths) -> usize {
    // Three arrays of words, and the gradients of keys and values as `f32`.
    let bytes = 4 * ((2 * widths.k + widths.v) / S::Product::TERMS + widths.k + widths.v);
    (item_bytes::<S>() / bytes / WIDE * WIDE).clamp(WIDE, 4 * WIDE)
}

/// A range of keys of one key-value head with their values, padded with zeros to a multiple of [`lanes`].
pub(super) struct Keys<S: Simd> {
    /// The index of the first key, a multiple of the number of lanes.
    pub(super) first: usize,
    /// The keys as rows of words, `[keys / TERMS][k_width]`. `TERMS` is the number of numbers in a word
    /// ([`Product::TERMS`]), and `k_width` is `head_dim` rounded up to whole vectors.
    /// If a word is a pair, it has the same component of two neighbouring keys.
    pub(super) rows: Vec<S::V>,
    /// The keys as lane groups, `[lane groups][words]` vectors with one key in each lane; see [`words`]. If a word is a
    /// pair, it has two neighbouring components of one key.
    pub(super) across: Vec<S::V>,
    /// The values as lane groups, `[lane groups][words]` vectors with the value of one key in each lane. If a word is a
    /// pair, it has two neighbouring components of one value.
    pub(super) values_across: Vec<S::V>,
    /// For each lane group (as many keys as a vector has lanes), whether one of its keys holds an infinite or NaN
    /// number.
    non_finite: Vec<bool>,
    /// A buffer for the rows of one lane group (as many keys as a vector has lanes).
    line: Vec<S::V>,
}

/// Returns the number of words in a row of `width` numbers, rounded up to whole vectors. `width` is a multiple of the
/// number of lanes.
pub(super) fn words<S: Simd>(width: usize) -> usize {
    S::Product::words(width).next_multiple_of(S::LANES)
}

/// Combines the numbers of the same component of neighbouring rows into pairs of `bf16`, and writes the pairs to
/// `into`, `[pairs][width]`. `rows` consists of whole rows, whose words are pairs of neighbouring numbers of a row. Pairs
/// after the last row, up to a multiple of [`step`] rows, become 0, if `into` has room for them.
#[inline(always)]
pub(super) fn pair_rows<S: Simd>(s: S, rows: &[S::V], width: usize, into: &mut [S::V]) {
    let (vectors, stride) = (width / S::LANES, words::<S>(width) / S::LANES);
    let count = rows.len() / stride;
    for (pair, into) in into.chunks_exact_mut(vectors).enumerate().take(count.next_multiple_of(step::<S>()) / 2) {
        let (low, high) = (2 * pair, 2 * pair + 1);
        for (n, into) in into.chunks_mut(2).enumerate() {
            let low = if low < count { rows[low * stride + n] } else { s.splat(0.0) };
            let high = if high < count { rows[high * stride + n] } else { s.splat(0.0) };
            into.copy_from_slice(&s.zip_pairs(low, high)[..into.len()]);
        }
    }
}

/// Copies the row of `view` at the index `at`, which is `[batch, head, row]`, to `into` as words, followed by zeros.
/// Numbers are rounded if the words are pairs of `bf16`.
#[inline(always)]
pub(super) fn copy_words<S: Simd>(view: &Rows<'_>, at: [usize; 3], into: &mut [S::V]) {
    let into = floats_mut(into);
    let dim = view.shape()[3];
    if let Some(row) = view.row_words::<S::Product>(at) {
        into[..row.len()].copy_from_slice(row);
        into[row.len()..].fill(0.0);
    } else if !of_pairs::<S>() {
        view.copy_row(at, 0, &mut into[..dim]);
        into[dim..].fill(0.0);
    } else {
        into.fill(0.0);
        for from in (0..dim).step_by(2 * S::LANES) {
            let mut line = [0.0; 2 * BLOCK];
            let count = (dim - from).min(2 * S::LANES);
            view.copy_row(at, from, &mut line[..count]);
            let pairs = line[..count.next_multiple_of(2)].as_chunks::<2>().0;
            for (word, [low, high]) in into[from / 2..].iter_mut().zip(pairs) {
                *word = pair_up(*low, *high);
            }
        }
    }
}

impl<S: Simd> Keys<S> {
    /// Allocates memory for `keys` keys and their values. `keys` must be a multiple of [`lanes`].
    pub(super) fn new(keys: usize, widths: Widths) -> Self {
        let Widths { k, v } = widths;
        let [of_k, of_v] = [k, v].map(words::<S>);
        Keys {
            first: 0,
            rows: zeroed(keys * k / S::Product::TERMS / S::LANES),
            across: zeroed(keys * of_k / S::LANES),
            values_across: zeroed(keys * of_v / S::LANES),
            non_finite: vec![false; keys / S::LANES],
            line: zeroed(of_k.max(of_v)),
        }
    }

    /// Copies keys `keys` and their values into all memory layouts. `head` is `[batch row, key-value head]`. The first
    /// key of `keys` must be the first key of a lane group: its index is a multiple of the number of lanes.
    #[inline(always)]
    pub(super) fn fill(&mut self, s: S, context: &Context<'_>, head: [usize; 2], keys: Range<usize>) {
        s.run(Fill { into: self, context, head, keys });
    }

    #[inline(always)]
    fn lay_out(&mut self, s: S, context: &Context<'_>, head: [usize; 2], keys: Range<usize>) {
        let Widths { k, v } = context.widths::<S>();
        let [of_k, of_v] = [k, v].map(words::<S>);
        let terms = S::Product::TERMS;
        self.first = keys.start;
        let whole = keys.start..keys.start + keys.len().next_multiple_of(lanes::<S>());
        for (group, from) in whole.step_by(S::LANES).enumerate() {
            let part = from.min(keys.end)..keys.end.min(from + S::LANES);
            let line = &mut self.line[..of_k];
            copy_rows(s, &context.k, head, &part, line);
            self.non_finite[group] = !all_finite::<S::Product>(floats(line));
            across(s, line, &mut self.across[group * of_k..][..of_k]);
            let rows = &mut self.rows[group * k / terms..][..k / terms];
            if of_pairs::<S>() {
                pair_rows(s, line, k, rows)
            } else {
                rows.copy_from_slice(line)
            }
            let line = &mut self.line[..of_v];
            copy_rows(s, &context.v, head, &part, line);
            across(s, line, &mut self.values_across[group * of_v..][..of_v]);
        }
    }

    /// Returns whether a key of the lane groups `groups` holds an infinite or NaN number. A lane group has as many keys
    /// as a vector has lanes; lane groups are counted from key 0 of the head.
    pub(super) fn non_finite(&self, groups: &Range<usize>) -> bool {
        let first = self.first / S::LANES;
        self.non_finite[groups.start - first..groups.end - first].contains(&true)
    }

    /// Calls `f(component, numbers)` for each component, in ascending order, including zeros after `head_dim`. `numbers`
    /// has this component of each key of the lane group `group`. Lane groups are counted from key 0 of the head.
    pub(super) fn components(&self, group: usize, k_width: usize, mut f: impl FnMut(usize, &[f32])) {
        let of_k = words::<S>(k_width);
        let across = floats(&self.across[(group - self.first / S::LANES) * of_k..][..of_k]);
        for (word, keys) in across.chunks_exact(S::LANES).enumerate() {
            if !of_pairs::<S>() {
                f(word, keys);
                continue;
            }
            let mut halves = [[0.0; BLOCK]; 2];
            for (i, pair) in keys.iter().enumerate() {
                halves[0][i] = f32::from_bits(pair.to_bits() << 16);
                halves[1][i] = f32::from_bits(pair.to_bits() & 0xffff_0000);
            }
            f(2 * word, &halves[0][..S::LANES]);
            f(2 * word + 1, &halves[1][..S::LANES]);
        }
    }
}

/// The computation of [`Keys::fill`] as a kernel, which is compiled once for each processor path instead of at each
/// call site.
struct Fill<'a, 'b, S: Simd> {
    into: &'a mut Keys<S>,
    context: &'a Context<'b>,
    head: [usize; 2],
    keys: Range<usize>,
}

impl<S: Simd> Kernel<S> for Fill<'_, '_, S> {
    #[inline(always)]
    fn run(self, s: S) {
        self.into.lay_out(s, self.context, self.head, self.keys);
    }
}

/// Copies rows `rows` of `view` to `into` as words. `into` has room for as many rows as a vector has lanes; rows after the
/// last copied one are filled with zeros.
#[inline(always)]
fn copy_rows<S: Simd>(s: S, view: &Rows<'_>, [batch, head]: [usize; 2], rows: &Range<usize>, into: &mut [S::V]) {
    let stride = into.len() / S::LANES;
    for (row, into) in rows.clone().zip(into.chunks_exact_mut(stride)) {
        copy_words::<S>(view, [batch, head, row], into);
    }
    into[rows.len() * stride..].fill(s.splat(0.0));
}

/// Calls `f(index, column)` for the first `count` columns of the matrix `from`, whose rows have `stride` numbers. Both sides
/// of the matrix must be multiples of the number of lanes.
#[inline(always)]
pub(super) fn columns<S: Simd>(s: S, from: &[f32], stride: usize, count: usize, mut f: impl FnMut(usize, &[f32])) {
    let height = from.len() / stride;
    let mut rows = vec![0.0; S::LANES * height];
    for first in (0..count).step_by(S::LANES) {
        for row in (0..height).step_by(S::LANES) {
            let mut square = [s.splat(0.0); BLOCK];
            let square = &mut square[..S::LANES];
            for (i, lane) in square.iter_mut().enumerate() {
                *lane = s.load(&from[(row + i) * stride + first..]);
            }
            s.transpose(square);
            for (row_of, lane) in rows.chunks_exact_mut(height).zip(&*square) {
                row_of[row..][..S::LANES].copy_from_slice(floats(std::slice::from_ref(lane)));
            }
        }
        rows.chunks_exact(height).take(count - first).enumerate().for_each(|(i, column)| f(first + i, column));
    }
}

/// Transposes the rows of a lane group (as many rows as a vector has lanes): writes one vector for each column of
/// words, with one row in each lane.
#[inline(always)]
fn across<S: Simd>(s: S, rows: &[S::V], into: &mut [S::V]) {
    let vectors = rows.len() / S::LANES;
    for column in 0..vectors {
        let square = &mut into[column * S::LANES..][..S::LANES];
        for (lane, vector) in square.iter_mut().enumerate() {
            *vector = rows[lane * vectors + column];
        }
        s.transpose(square);
    }
}

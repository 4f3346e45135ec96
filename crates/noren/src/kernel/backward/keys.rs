//! A range of keys and their values, in the memory layouts of the five matrix products of the backward pass.
//!
//! As in the forward pass, an array consists of *words*: each is one `f32` number, or a pair of `bf16` numbers on
//! processor paths that multiply pairs.

use super::context::{Context, Widths, of_pairs};
use crate::kernel::micro::WIDE;
use crate::kernel::rows::Rows;
use crate::kernel::simd::{Kernel, Product, Simd, all_finite, floats, floats_mut, zeroed};
use std::ops::Range;

/// The approximate number of bytes of one item of the backward pass: a range of keys, their values, and the data
/// derived from both. An item of this size fits in the second-level cache together with other data. Processors with
/// vectors of 16 lanes have a larger second-level cache than some others.
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

/// A range of keys of one key-value head with their values, padded with zeros to whole lane groups (vectors with one
/// key in each lane).
pub(super) struct Keys<S: Simd> {
    /// The index of the first key, a multiple of the number of lanes.
    pub(super) first: usize,
    /// The keys as rows of words, `[keys / TERMS][k_width]`, where `k_width` is `head_dim` rounded up to whole vectors.
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
/// `into`, `[pairs][width]`. `rows` has whole rows of words, each a pair of two neighbouring numbers of the row. `odd`
/// is 1 if the first row is the second row of a pair, otherwise 0.
#[inline(always)]
pub(super) fn pair_rows<S: Simd>(s: S, rows: &[S::V], width: usize, odd: usize, into: &mut [S::V]) {
    let (vectors, stride) = (width / S::LANES, words::<S>(width) / S::LANES);
    let count = rows.len() / stride;
    for (pair, into) in into.chunks_exact_mut(vectors).enumerate().take((odd + count).div_ceil(2)) {
        let (low, high) = ((2 * pair).wrapping_sub(odd), 2 * pair + 1 - odd);
        for (n, into) in into.chunks_mut(2).enumerate() {
            let low = if low < count { rows[low * stride + n] } else { s.splat(0.0) };
            let high = if high < count { rows[high * stride + n] } else { s.splat(0.0) };
            into.copy_from_slice(&s.zip_pairs(low, high)[..into.len()]);
        }
    }
}

/// Copies the row `at` of `view`, `[batch, head, row]`, to `into` as words, followed by zeros. Numbers are rounded if
/// the words are pairs of `bf16`.
#[inline(always)]
pub(super) fn copy_words<S: Simd>(s: S, view: &Rows<'_>, at: [usize; 3], into: &mut [S::V]) {
    let dim = view.shape()[3];
    if !of_pairs::<S>() {
        let into = floats_mut(into);
        view.copy_row(at, 0, &mut into[..dim]);
        into[dim..].fill(0.0);
        return;
    }
    if let Some(row) = view.row_words::<S::Product>(at) {
        let into = floats_mut(into);
        into[..row.len()].copy_from_slice(row);
        into[row.len()..].fill(0.0);
        return;
    }
    for (n, into) in into.iter_mut().enumerate() {
        let numbers = dim.min(2 * n * S::LANES)..dim.min(2 * (n + 1) * S::LANES);
        let mut line = [s.splat(0.0); 2];
        view.copy_row(at, numbers.start, &mut floats_mut(&mut line)[..numbers.len()]);
        *into = s.pair_neighbours(line[0], line[1]);
    }
}

impl<S: Simd> Keys<S> {
    /// Allocates memory for `keys` keys and their values. `keys` must be a multiple of the number of lanes.
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
        for (group, from) in keys.clone().step_by(S::LANES).enumerate() {
            let part = from..keys.end.min(from + S::LANES);
            let line = &mut self.line[..of_k];
            copy_rows(s, &context.k, head, &part, line);
            self.non_finite[group] = !all_finite::<S::Product>(floats(line));
            across(s, line, &mut self.across[group * of_k..][..of_k]);
            let rows = &mut self.rows[group * k / terms..][..k / terms];
            if of_pairs::<S>() {
                pair_rows(s, line, k, 0, rows)
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

    /// Calls `f(component, numbers)` for each component of the keys of a lane group, in ascending order. `numbers` has
    /// the component of each key of the group. Lane groups are counted from key 0 of the head.
    pub(super) fn components(&self, group: usize, k_width: usize, mut f: impl FnMut(usize, &[f32])) {
        let of_k = words::<S>(k_width);
        let across = floats(&self.across[(group - self.first / S::LANES) * of_k..][..of_k]);
        let mut halves = [vec![0.0; S::LANES], vec![0.0; S::LANES]];
        for (word, keys) in across.chunks_exact(S::LANES).enumerate() {
            if !of_pairs::<S>() {
                f(word, keys);
                continue;
            }
            for (i, pair) in keys.iter().enumerate() {
                halves[0][i] = f32::from_bits(pair.to_bits() << 16);
                halves[1][i] = f32::from_bits(pair.to_bits() & 0xffff_0000);
            }
            halves.iter().enumerate().for_each(|(half, keys)| f(2 * word + half, keys));
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

/// Copies rows `rows` of `view` to `into` as words, in as many rows as a vector has lanes. Fills `into` after the last
/// row with zeros.
#[inline(always)]
fn copy_rows<S: Simd>(s: S, view: &Rows<'_>, [batch, head]: [usize; 2], rows: &Range<usize>, into: &mut [S::V]) {
    let stride = into.len() / S::LANES;
    for (row, into) in rows.clone().zip(into.chunks_exact_mut(stride)) {
        copy_words(s, view, [batch, head, row], into);
    }
    into[rows.len() * stride..].fill(s.splat(0.0));
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

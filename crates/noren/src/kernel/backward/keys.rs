//! A range of keys and their values, in the memory layouts of the five matrix products of the backward pass.

use super::context::{Context, Widths, of_pairs};
use crate::kernel::micro::WIDE;
use crate::kernel::rows::Rows;
use crate::kernel::simd::{Kernel, Simd, Single, all_finite, floats, floats_mut, zeroed};
use std::ops::Range;

/// The approximate number of bytes of one item of the backward pass: a range of keys, their values, and the data
/// derived from both. An item of this size fits in the second-level cache together with other data.
const ITEM_BYTES: usize = 320 << 10;

/// Returns the number of keys in an item (a range of keys that one thread processes), a multiple of `WIDE`. The
/// gradients do not depend on this number.
pub(super) fn item_keys(widths: Widths) -> usize {
    let bytes = 4 * (3 * widths.k + 2 * widths.v);
    (ITEM_BYTES / bytes / WIDE * WIDE).clamp(WIDE, 4 * WIDE)
}

/// A range of keys of one key-value head with their values, padded with zeros to whole lane groups (vectors with one
/// key in each lane).
pub(super) struct Keys<S: Simd> {
    /// The index of the first key, a multiple of the number of lanes.
    pub(super) first: usize,
    /// The keys as rows, `[keys][k_width]`, where `k_width` is `head_dim` rounded up to whole vectors.
    pub(super) rows: Vec<S::V>,
    /// The keys as lane groups, `[lane groups][k_width]` vectors: one vector for each component, with one key in each
    /// lane.
    pub(super) across: Vec<S::V>,
    /// The values as lane groups, `[lane groups][v_width]` vectors: one vector for each component, with the value of
    /// one key in each lane.
    pub(super) values_across: Vec<S::V>,
    /// For each lane group (as many keys as a vector has lanes), whether one of its keys holds an infinite or NaN
    /// number.
    non_finite: Vec<bool>,
    /// A buffer for the rows of values of one lane group (as many keys as a vector has lanes).
    line: Vec<S::V>,
    pub(super) pairs: KeyPairs<S>,
}

/// The keys and values of [`Keys`] as pairs of `bf16` numbers, in two arrangements: pairs of neighbouring numbers of
/// one key or value, and pairs of the same component of neighbouring keys. Empty on processor paths that multiply `f32`
/// numbers.
pub(super) struct KeyPairs<S: Simd> {
    /// Pairs of the same component of neighbouring keys, `[keys / 2][k_width]`.
    pub(super) rows: Vec<S::V>,
    /// Pairs of neighbouring components of a key, as lane groups: `[lane groups][words]` vectors with one key in each
    /// lane, see [`words`].
    pub(super) across: Vec<S::V>,
    /// Pairs of neighbouring components of a value, as lane groups: `[lane groups][words]` vectors with the value of
    /// one key in each lane.
    pub(super) values_across: Vec<S::V>,
    /// A buffer for the pairs of one lane group (as many keys as a vector has lanes), one key after another.
    line: Vec<S::V>,
}

impl<S: Simd> KeyPairs<S> {
    fn new(keys: usize, Widths { k, v }: Widths) -> Self {
        let keys = if of_pairs::<S>() { keys } else { 0 };
        let [of_k, of_v] = [k, v].map(words::<S>);
        KeyPairs {
            rows: zeroed(keys * k / 2 / S::LANES),
            across: zeroed(keys * of_k / S::LANES),
            values_across: zeroed(keys * of_v / S::LANES),
            line: zeroed(of_k.max(of_v)),
        }
    }
}

/// Returns the number of `bf16` pairs in a row of `width` numbers, rounded up to whole vectors of pairs.
pub(super) fn words<S: Simd>(width: usize) -> usize {
    (width / S::LANES).div_ceil(2) * S::LANES
}

/// Combines neighbouring numbers of a row into pairs of `bf16`, and writes the pairs to `into`.
#[inline(always)]
pub(super) fn pair_along<S: Simd>(s: S, row: &[S::V], into: &mut [S::V]) {
    for (into, two) in into.iter_mut().zip(row.chunks(2)) {
        *into = s.pair_neighbours(two[0], if two.len() == 2 { two[1] } else { s.splat(0.0) });
    }
}

/// Combines the numbers of the same column of neighbouring rows into pairs of `bf16`, and writes the pairs to `into`.
/// `rows` has `count` rows of `vectors` vectors each; a row begins `stride` vectors after the row before it. `odd` is 1
/// if the first row is the second row of a pair, otherwise 0.
#[inline(always)]
pub(super) fn pair_rows<S: Simd>(
    s: S,
    rows: &[S::V],
    (count, stride): (usize, usize),
    vectors: usize,
    odd: usize,
    into: &mut [S::V],
) {
    for (pair, into) in into.chunks_mut(stride).enumerate().take((odd + count).div_ceil(2)) {
        let (low, high) = ((2 * pair).wrapping_sub(odd), 2 * pair + 1 - odd);
        for (n, into) in into[..vectors].iter_mut().enumerate() {
            let low = if low < count { rows[low * stride + n] } else { s.splat(0.0) };
            let high = if high < count { rows[high * stride + n] } else { s.splat(0.0) };
            *into = s.pair(low, high);
        }
    }
}

impl<S: Simd> Keys<S> {
    /// Allocates memory for `keys` keys and their values. `keys` must be a multiple of the number of lanes.
    pub(super) fn new(keys: usize, widths: Widths) -> Self {
        let Widths { k, v } = widths;
        Keys {
            first: 0,
            rows: zeroed(keys * k / S::LANES),
            across: zeroed(keys * k / S::LANES),
            values_across: zeroed(keys * v / S::LANES),
            non_finite: vec![false; keys / S::LANES],
            line: zeroed(v),
            pairs: KeyPairs::new(keys, widths),
        }
    }

    /// Copies keys `keys` and their values into all memory layouts. `head` is `[batch row, key-value head]`. The first
    /// key of `keys` must be the first key of a lane group: its index is a multiple of the number of lanes.
    #[inline(always)]
    pub(super) fn fill(&mut self, s: S, context: &Context<'_>, head: [usize; 2], keys: Range<usize>) {
        s.run(Fill { into: self, context, head, keys });
    }

    #[inline(always)]
    fn lay_out(&mut self, s: S, context: &Context<'_>, [batch, kv_head]: [usize; 2], keys: Range<usize>) {
        let Widths { k, v } = context.widths::<S>();
        self.first = keys.start;
        for (group, from) in keys.clone().step_by(S::LANES).enumerate() {
            let part = from..keys.end.min(from + S::LANES);
            let rows = &mut self.rows[group * k..][..k];
            copy_rows::<S>(&context.k, [batch, kv_head], &part, k, rows);
            self.non_finite[group] = !all_finite::<Single>(floats(rows));
            across(s, rows, &mut self.across[group * k..][..k]);
            copy_rows::<S>(&context.v, [batch, kv_head], &part, v, &mut self.line);
            across(s, &self.line, &mut self.values_across[group * v..][..v]);
            if of_pairs::<S>() {
                let KeyPairs { rows: pairs, across: keys, values_across: values, line } = &mut self.pairs;
                let vectors = k / S::LANES;
                pair_rows(s, rows, (S::LANES, vectors), vectors, 0, &mut pairs[group * k / 2..][..k / 2]);
                pairs_across(s, rows, k, line, &mut keys[group * words::<S>(k)..]);
                pairs_across(s, &self.line, v, line, &mut values[group * words::<S>(v)..]);
            }
        }
    }

    /// Returns whether a key of the lane groups `groups` holds an infinite or NaN number. A lane group has as many keys
    /// as a vector has lanes; lane groups are counted from key 0 of the head.
    pub(super) fn non_finite(&self, groups: &Range<usize>) -> bool {
        let first = self.first / S::LANES;
        self.non_finite[groups.start - first..groups.end - first].contains(&true)
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

/// Copies rows `rows` of `view` to `into`, in which each row has `width` numbers. Fills `into` after the last row with
/// zeros.
fn copy_rows<S: Simd>(
    view: &Rows<'_>,
    [batch, head]: [usize; 2],
    rows: &Range<usize>,
    width: usize,
    into: &mut [S::V],
) {
    let dim = view.shape()[3];
    let into = floats_mut(into);
    for (row, into) in rows.clone().zip(into.chunks_exact_mut(width)) {
        view.copy_row([batch, head, row], 0, &mut into[..dim]);
    }
    into[rows.len() * width..].fill(0.0);
}

/// Transposes the rows of a lane group (as many rows as a vector has lanes): writes one vector for each column, with
/// one row in each lane.
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

/// Combines neighbouring numbers of each row of a lane group (as many rows as a vector has lanes) into pairs of `bf16`,
/// and transposes the pairs into `into`. A row has `width` numbers; `line` is scratch memory.
#[inline(always)]
fn pairs_across<S: Simd>(s: S, rows: &[S::V], width: usize, line: &mut [S::V], into: &mut [S::V]) {
    let words = words::<S>(width);
    let line = &mut line[..words];
    for (row, line) in rows.chunks_exact(width / S::LANES).zip(line.chunks_exact_mut(words / S::LANES)) {
        pair_along(s, row, line);
    }
    across(s, line, &mut into[..words]);
}

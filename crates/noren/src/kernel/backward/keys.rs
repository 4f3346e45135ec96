//! The keys of an item, laid out for the five products.

use super::super::rows::Rows;
use super::super::simd::{Simd, floats, floats_mut, zeroed};
use super::{Context, Widths};
use std::ops::Range;

/// Keys and values of a run of keys of one key-value head, padded to whole lane groups with zeros.
pub(super) struct Keys<S: Simd> {
    /// The first key, at a lane group.
    pub(super) first: usize,
    /// `[keys][k_width]`.
    pub(super) rows: Vec<S::V>,
    /// As lane groups: `[groups][k_width]` vectors with a key in each lane.
    pub(super) across: Vec<S::V>,
    /// The values as lane groups, `[groups][v_width]`.
    pub(super) values_across: Vec<S::V>,
    /// For each lane group whether one of its keys holds a value that is not finite.
    wild: Vec<bool>,
    /// A lane group of rows.
    line: Vec<S::V>,
}

impl<S: Simd> Keys<S> {
    /// Room for `keys` keys, a multiple of the lanes.
    pub(super) fn new(keys: usize, widths: Widths) -> Self {
        let Widths { k, v } = widths;
        Keys {
            first: 0,
            rows: zeroed(keys * k / S::LANES),
            across: zeroed(keys * k / S::LANES),
            values_across: zeroed(keys * v / S::LANES),
            wild: vec![false; keys / S::LANES],
            line: zeroed(v),
        }
    }

    /// Lays out keys `keys`, which begin at a lane group.
    #[inline(always)]
    pub(super) fn fill(&mut self, s: S, context: &Context<'_>, [batch, kv_head]: [usize; 2], keys: Range<usize>) {
        let Widths { k, v } = context.widths::<S>();
        self.first = keys.start;
        for (group, from) in keys.clone().step_by(S::LANES).enumerate() {
            let part = from..keys.end.min(from + S::LANES);
            let rows = &mut self.rows[group * k..][..k];
            copy_rows::<S>(&context.k, [batch, kv_head], &part, k, rows);
            self.wild[group] = !all_finite(floats(rows));
            across(s, rows, &mut self.across[group * k..][..k]);
            copy_rows::<S>(&context.v, [batch, kv_head], &part, v, &mut self.line);
            across(s, &self.line, &mut self.values_across[group * v..][..v]);
        }
    }

    /// Whether one of the lane groups `groups`, counted from key 0, has a key that is not finite.
    pub(super) fn wild(&self, groups: &Range<usize>) -> bool {
        let first = self.first / S::LANES;
        self.wild[groups.start - first..groups.end - first].contains(&true)
    }
}

/// Rows `rows` of `view` as rows of `width` values, then rows of zeros.
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

/// A lane group of rows, transposed: one vector for each column.
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

/// Whether no value is infinite or NaN.
#[inline(always)]
pub(super) fn all_finite(values: &[f32]) -> bool {
    // An exponent of all ones: adding one to it carries into the sign bit, so a plain OR of sums finds it.
    let carry = |x: &f32| (x.to_bits() & 0x7fff_ffff) + 0x0080_0000;
    values.chunks(256).all(|chunk| chunk.iter().fold(0, |or, x| or | carry(x)) & 0x8000_0000 == 0)
}

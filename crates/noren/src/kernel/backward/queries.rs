//! A part of the query rows of one head, laid out for the five products.

use super::super::simd::{Simd, floats, floats_mut, zeroed};
use super::keys::all_finite;
use super::{Context, Widths};
use std::ops::Range;

/// Most rows in a part: what keys gather from them stays in registers as long.
pub(super) const ROWS: usize = 96;

/// Rows of one head with what the backward pass needs of them.
pub(super) struct Queries<S: Simd> {
    pub(super) batch: usize,
    pub(super) head: usize,
    pub(super) rows: Range<usize>,
    /// Times the query factor, `[rows][k_width]`.
    pub(super) q: Vec<S::V>,
    /// Gradients of the output times the row's factor, `[rows][v_width]`.
    pub(super) dout: Vec<S::V>,
    /// What scores are taken from before they become powers, an integer.
    pub(super) tops: Vec<f32>,
    /// The same for careful rows.
    pub(super) bases: Vec<f64>,
    /// What powers are multiplied by to become weights; 0 for rows that read nothing.
    pub(super) factors: Vec<f32>,
    /// Mean gradients of the weights, times the factor.
    pub(super) deltas: Vec<f32>,
    /// Which keys of a block are allowed, a word for each row.
    pub(super) words: Vec<u64>,
    /// Gradients of the queries so far, `[rows][k_width]`.
    pub(super) sums: Vec<S::V>,
    /// Whether some row reads nothing.
    pub(super) dead: bool,
    /// Which rows are careful, and whether some are.
    pub(super) careful_rows: Vec<bool>,
    pub(super) careful: bool,
    /// Whether `q` or `dout` hold a value that is not finite.
    pub(super) wild: bool,
}

impl<S: Simd> Queries<S> {
    pub(super) fn new(widths: Widths) -> Self {
        let Widths { k, v } = widths;
        Queries {
            batch: 0,
            head: 0,
            rows: 0..0,
            q: zeroed(ROWS * k / S::LANES),
            dout: zeroed(ROWS * v / S::LANES),
            tops: vec![0.0; ROWS],
            bases: vec![0.0; ROWS],
            factors: vec![0.0; ROWS],
            deltas: vec![0.0; ROWS],
            words: vec![0; ROWS],
            sums: zeroed(ROWS * k / S::LANES),
            dead: false,
            careful_rows: vec![false; ROWS],
            careful: false,
            wild: false,
        }
    }

    /// Takes in rows `rows`, at most `ROWS`.
    #[inline(always)]
    pub(super) fn fill(&mut self, context: &Context<'_>, [batch, head]: [usize; 2], rows: Range<usize>) {
        let Widths { k, v } = context.widths::<S>();
        (self.batch, self.head, self.rows) = (batch, head, rows.clone());
        (self.dead, self.careful) = (false, false);
        let (head_dim, v_dim) = (context.q.shape()[3], context.v.shape()[3]);
        let q = floats_mut(&mut self.q).chunks_exact_mut(k);
        let dout = floats_mut(&mut self.dout).chunks_exact_mut(v);
        for ((r, row), (q, dout)) in rows.clone().enumerate().zip(q.zip(dout)) {
            let at = [batch, head, row];
            let stats = context.stats[context.row(at)];
            context.q.copy_row(at, 0, &mut q[..head_dim]);
            q[..head_dim].iter_mut().for_each(|x| *x *= context.modifiers.query_factor);
            context.dout.copy_row(at, 0, &mut dout[..v_dim]);
            dout[..v_dim].iter_mut().for_each(|x| *x *= stats.factor);
            self.tops[r] = stats.base as f32;
            self.bases[r] = stats.base;
            self.factors[r] = stats.factor;
            self.deltas[r] = stats.delta;
            self.dead |= stats.factor == 0.0;
            self.careful_rows[r] = stats.careful;
            self.careful |= stats.careful;
        }
        let finite = |values: &[S::V], width: usize| all_finite(&floats(values)[..rows.len() * width]);
        self.wild = !finite(&self.q, k) || !finite(&self.dout, v);
    }
}

//! The forward pass of one tile: the algorithm, written once for every processor path.
//!
//! A tile is a few dozen query rows of one or more heads that read the same keys. Keys come in blocks of 64; for each
//! block the scores of all rows are made, turned into weights, and the values are added up, with an *online* softmax
//! (Milakov and Gimelshein 2018; Dao et al. 2022) that never holds more than a block of scores.
//!
//! Three choices make a row's result depend on nothing but what it may read, to the bit:
//!
//! * Scores are in base 2, and the running maximum is rounded up to an *integer*. When it rises, what was summed so far
//!   is multiplied by a power of two, which rounds nothing.
//! * Outputs add one key at a time in ascending order; denominators add in lanes that follow the key's index and are put
//!   together in a tree that has no first lane ([`total`]).
//! * Hidden cells are replaced, never multiplied away: minus infinity as a score, 0 as a weight, and where a hidden value
//!   may be infinite or NaN the cell is skipped.

use super::blocks::{Cells, KeyBlock, KeyBlocks, fill_words};
use super::exp::{NOTHING, exp2_minus};
use super::micro::{self, BLOCK, WIDE};
use super::output::SharedRows;
use super::pack::{Block, BlockScratch, Head, Packed};
use super::scores::{Modifiers, Place, total};
use super::simd::{Kernel, Simd, floats, zeroed};
use crate::{Element, View};
use noren_mask::Plan;
use std::ops::Range;
use std::sync::OnceLock;

/// Most rows in a job: enough that a block of keys, read from a far cache, is used often; a multiple of every path's rows.
pub(crate) const ROWS: usize = 96;

/// Rows whose scores are made before their weights: scores, keys and values of a phase share the nearest cache.
const PHASE: usize = 24;

/// What all jobs of a call share.
pub(crate) struct Context<'a, T> {
    pub(crate) plan: &'a Plan,
    pub(crate) q: View<'a, T>,
    pub(crate) modifiers: Modifiers<'a>,
    /// Bits of mixed blocks, found by the first head that needs them.
    pub(crate) bits: Vec<OnceLock<Box<[u64]>>>,
    pub(crate) out: SharedRows<'a, T>,
    pub(crate) lse: Option<SharedRows<'a>>,
}

/// Query rows `rows` of heads `heads`, which share a pattern and a key-value head.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    pub(crate) batch: usize,
    pub(crate) heads: Range<usize>,
    pub(crate) pattern: usize,
    pub(crate) tile: usize,
    pub(crate) rows: Range<usize>,
    /// Where in the context the bits are that this job shares with other heads.
    pub(crate) bits: Option<usize>,
}

/// A worker's memory, used for one job after the other.
pub(crate) struct Scratch<S: Simd> {
    /// Queries times the scale, `[rows][head_dim]`.
    queries: Vec<f32>,
    /// Scores and then weights of a phase, `[PHASE][WIDE]`.
    scores: Vec<S::V>,
    /// Sums of weighted values, `[rows][v_width]`.
    acc: Vec<S::V>,
    /// Sums of weights, a vector for each row.
    sums: Vec<S::V>,
    /// Running maxima: integers, `NOTHING` at first.
    maxima: Vec<f32>,
    /// Mask bits of a block, a word for each row.
    words: Vec<u64>,
    block: BlockScratch<S>,
    line: Vec<S::V>,
}

impl<S: Simd> Scratch<S> {
    pub(crate) fn new(rows: usize, head_dim: usize, v_width: usize) -> Self {
        let width = v_width / S::LANES;
        Scratch {
            queries: vec![0.0; rows * head_dim],
            scores: zeroed(PHASE * WIDE / S::LANES),
            acc: zeroed(rows * width),
            sums: zeroed(rows),
            maxima: vec![NOTHING; rows],
            words: vec![0; rows],
            block: BlockScratch::new(head_dim, v_width),
            line: zeroed(width),
        }
    }
}

/// A job with everything it needs.
pub(crate) struct TileKernel<'a, 'b, S: Simd, T> {
    pub(crate) context: &'a Context<'b, T>,
    pub(crate) job: &'a Job,
    pub(crate) head: Head<'b, T>,
    /// No key outside is allowed for any row of the key-value head.
    pub(crate) hull: Range<usize>,
    /// Absent when this job is the only reader, which packs block by block.
    pub(crate) packed: Option<&'a Packed<S>>,
    pub(crate) scratch: &'a mut Scratch<S>,
}

/// What a row has summed so far.
struct RowState<'a, S: Simd> {
    maximum: &'a mut f32,
    sum: &'a mut S::V,
    acc: &'a mut [S::V],
}

impl<S: Simd> RowState<'_, S> {
    /// Hides what `word` does not allow, and raises the maximum to the scores'.
    #[inline(always)]
    fn rise(&mut self, s: S, word: Option<u64>, scores: &mut [S::V]) {
        let minus_infinity = s.splat(f32::NEG_INFINITY);
        let mut top = minus_infinity;
        for (i, x) in scores.iter_mut().enumerate() {
            if let Some(word) = word {
                *x = s.keep(word >> (i * S::LANES), *x, minus_infinity);
            }
            top = s.max(*x, top);
        }
        // The maximum is an integer, so only a score above it can raise it.
        if s.any_above(top, s.splat(*self.maximum)) {
            let top = s.reduce_max(top).ceil();
            let lower = s.splat((*self.maximum - top).max(-300.0));
            // Before the first score there is nothing to lower.
            if *self.maximum > NOTHING {
                *self.sum = s.scale(*self.sum, lower);
                for x in &mut *self.acc {
                    *x = s.scale(*x, lower);
                }
            }
            *self.maximum = top;
        }
    }

    /// Turns scores into weights and adds these to the row's sum. Inlined once for each usual number of lane groups.
    #[inline(always)]
    fn weigh(&mut self, s: S, word: Option<u64>, scores: &mut [S::V]) {
        self.rise(s, word, scores);
        let maximum = s.splat(*self.maximum);
        let mut sum = *self.sum;
        for x in scores.iter_mut() {
            *x = exp2_minus(s, *x, maximum);
            sum = s.add(sum, *x);
        }
        *self.sum = sum;
    }
}

impl<S: Simd, T: Element> Kernel<S> for TileKernel<'_, '_, S, T> {
    #[inline(always)]
    fn run(mut self, s: S) {
        self.start(s);
        let (context, job) = (self.context, self.job);
        let tile = context.plan.patterns()[job.pattern].tile(job.tile);
        // soft weights of 0 hide cells of full blocks, which then need a word of bits for a row
        let widest = if context.modifiers.soften() { BLOCK } else { WIDE };
        let blocks = KeyBlocks { spans: tile.spans, hull: self.hull.clone(), lanes: S::LANES, widest, next: 0 };
        let known = job.bits.map(|bits| {
            let cell = &context.bits[bits];
            // Made outside the cell, so that a user's closure may do what it likes, this call included.
            cell.get().unwrap_or_else(|| {
                let words = self.all_words(blocks.clone());
                cell.get_or_init(|| words)
            })
        });
        let mut known = known.map(|words| words.chunks_exact(job.rows.len()));
        for block in blocks {
            let known = if block.cells == Cells::Mixed { known.as_mut().and_then(Iterator::next) } else { None };
            self.block(s, &block, known);
        }
        self.finish(s);
    }
}

impl<S: Simd, T: Element> TileKernel<'_, '_, S, T> {
    fn row_count(&self) -> usize {
        self.job.heads.len() * self.job.rows.len()
    }

    /// Head and query row of row `r` of the job.
    #[inline(always)]
    fn place(&self, r: usize, key: usize) -> Place {
        let Job { batch, heads, rows, .. } = self.job;
        Place { batch: *batch, head: heads.start + r / rows.len(), row: rows.start + r % rows.len(), key }
    }

    /// Empties the sums and scales the queries.
    #[inline(always)]
    fn start(&mut self, s: S) {
        let (rows, head_dim) = (self.row_count(), self.head.head_dim());
        let width = self.head.v_width::<S>() / S::LANES;
        for r in 0..rows {
            let at = self.place(r, 0);
            let query = &mut self.scratch.queries[r * head_dim..][..head_dim];
            let (from, factor) = ([at.batch, at.head, at.row], self.context.modifiers.query_factor);
            match self.context.q.row(from) {
                Some(row) => query.iter_mut().zip(row).for_each(|(to, x)| *to = x * factor),
                None => {
                    self.context.q.copy_row(from, 0, query);
                    query.iter_mut().for_each(|x| *x *= factor);
                }
            }
        }
        self.scratch.acc[..rows * width].fill(s.splat(0.0));
        self.scratch.sums[..rows].fill(s.splat(0.0));
        self.scratch.maxima[..rows].fill(NOTHING);
    }

    /// The bits of all mixed blocks of the tile, block after block.
    #[cold]
    fn all_words(&self, blocks: KeyBlocks<'_>) -> Box<[u64]> {
        let mut words = Vec::new();
        for block in blocks.filter(|block| block.cells == Cells::Mixed) {
            let from = words.len();
            words.resize(from + self.job.rows.len(), 0);
            let plan = &self.context.plan.patterns()[self.job.pattern];
            fill_words(plan, &self.job.rows, &block.keys, &mut words[from..]);
        }
        words.into()
    }

    /// Takes in a block of keys; `known` are its bits where another head found them before.
    #[inline(always)]
    fn block(&mut self, s: S, block: &KeyBlock, known: Option<&[u64]>) {
        let KeyBlock { keys, groups, cells } = block;
        let Job { heads, rows, pattern, .. } = self.job;
        let words = &mut self.scratch.words[..heads.len() * rows.len()];
        let masked = match cells {
            Cells::Full if !self.context.modifiers.soften() => false,
            Cells::Full => {
                words.fill(u64::MAX);
                true
            }
            Cells::Uniform(word) => {
                words.fill(*word);
                true
            }
            Cells::Mixed => {
                match known {
                    Some(known) => words[..rows.len()].copy_from_slice(known),
                    None => {
                        let plan = &self.context.plan.patterns()[*pattern];
                        fill_words(plan, rows, keys, &mut words[..rows.len()]);
                    }
                }
                for head in 1..heads.len() {
                    words.copy_within(..rows.len(), head * rows.len());
                }
                true
            }
        };
        self.clear_zero_weights(keys.start, keys.len());

        // The block scratch leaves its place while the block borrows it.
        let rows = self.row_count();
        let mut scratch = std::mem::replace(&mut self.scratch.block, BlockScratch::empty());
        let block = match self.packed {
            Some(packed) => packed.block(&self.head, groups.clone()),
            None => scratch.block(s, &self.head, groups.clone()),
        };
        for phase in (0..rows).step_by(PHASE) {
            self.phase(s, phase..rows.min(phase + PHASE), keys.start, &block, groups.len(), masked);
        }
        self.scratch.block = scratch;
    }

    /// Cells with a soft weight of 0 are not allowed.
    fn clear_zero_weights(&mut self, key: usize, keys: usize) {
        if self.context.modifiers.soften() {
            for r in 0..self.row_count() {
                let word = self.scratch.words[r];
                self.scratch.words[r] = self.context.modifiers.clear_zero_weights(self.place(r, key), keys, word);
            }
        }
    }

    /// Scores, weights and outputs of rows `rows` against a block.
    #[inline(always)]
    fn phase(&mut self, s: S, rows: Range<usize>, key: usize, block: &Block<'_, S>, groups: usize, masked: bool) {
        let (head_dim, v_width) = (self.head.head_dim(), self.head.v_width::<S>());
        let per_row = WIDE / S::LANES;
        let width = v_width / S::LANES;
        let keys = groups * S::LANES;
        // The keys that some row of a register tile reads: the rest of the block is left out.
        let needed = |words: &[u64]| match words.iter().fold(0, |or, word| or | word) {
            _ if !masked => 0..keys,
            0 => 0..0,
            or => or.trailing_zeros() as usize..BLOCK - or.leading_zeros() as usize,
        };
        let scratch = &mut *self.scratch;
        let step = |from: usize| from..rows.end.min(from + S::ROWS);
        for tile in rows.clone().step_by(S::ROWS).map(step) {
            let needed = needed(&scratch.words[tile.clone()]);
            let groups = needed.start / S::LANES..needed.end.div_ceil(S::LANES);
            if groups.is_empty() {
                continue;
            }
            let queries = &scratch.queries[tile.start * head_dim..];
            let scores = &mut scratch.scores[(tile.start - rows.start) * per_row..];
            let tile_keys = &block.keys[groups.start * head_dim..];
            micro::scores(s, tile.len(), queries, tile_keys, head_dim, groups.len(), &mut scores[groups.start..]);
        }
        for tile in rows.clone().step_by(S::ROWS).map(step) {
            let needed = needed(&self.scratch.words[tile.clone()]);
            let groups = needed.start / S::LANES..needed.end.div_ceil(S::LANES);
            if !groups.is_empty() {
                for r in tile {
                    self.weigh(s, r, (r - rows.start) * per_row, key, groups.clone(), masked);
                }
            }
        }
        let scratch = &mut *self.scratch;
        for tile in rows.clone().step_by(S::ROWS).map(step) {
            let needed = needed(&scratch.words[tile.clone()]);
            if needed.is_empty() {
                continue;
            }
            let weights = &scratch.scores[(tile.start - rows.start) * per_row..];
            let acc = &mut scratch.acc[tile.start * width..];
            if !masked || !block.wild {
                micro::accumulate(s, tile.len(), weights, needed, block.values, v_width, acc);
                continue;
            }
            // A hidden value may be infinite or NaN here, and 0 times that is not 0: visit allowed cells only.
            for (r, row) in tile.enumerate() {
                let mut word = scratch.words[row];
                while word != 0 {
                    let k = word.trailing_zeros() as usize;
                    word &= word - 1;
                    micro::accumulate(
                        s,
                        1,
                        &weights[r * per_row..],
                        k..k + 1,
                        block.values,
                        v_width,
                        &mut acc[r * width..],
                    );
                }
            }
        }
    }

    /// Turns the scores of row `r` against some lane groups of a block into weights, and adds them to the row's sum.
    #[inline(always)]
    fn weigh(&mut self, s: S, r: usize, at: usize, key: usize, groups: Range<usize>, masked: bool) {
        let per_row = WIDE / S::LANES;
        let modifiers = &self.context.modifiers;
        let keys = (groups.end * S::LANES).min(self.head.k.shape()[2] - key);
        if modifiers.change_scores() {
            modifiers.apply(s, self.place(r, key), keys, &mut self.scratch.scores[at..][..per_row]);
        }
        let place = self.place(r, key);
        let scratch = &mut *self.scratch;
        let bits = scratch.words[r];
        let mut row = RowState {
            maximum: &mut scratch.maxima[r],
            sum: &mut scratch.sums[r],
            acc: {
                let width = self.head.v_width::<S>() / S::LANES;
                &mut scratch.acc[r * width..][..width]
            },
        };
        let scores = &mut scratch.scores[at + groups.start..at + groups.end];
        let word = masked.then(|| bits >> (groups.start * S::LANES));
        if modifiers.soften() {
            row.rise(s, word, scores);
            let maximum = s.splat(*row.maximum);
            scores.iter_mut().for_each(|x| *x = exp2_minus(s, *x, maximum));
            modifiers.multiply_weights(s, place, keys, bits, &mut scratch.scores[at..][..per_row]);
            let weights = &scratch.scores[at + groups.start..at + groups.end];
            *row.sum = weights.iter().fold(*row.sum, |sum, p| s.add(sum, *p));
        } else if let Ok(scores) = <&mut [S::V; 1]>::try_from(&mut *scores) {
            row.weigh(s, word, scores);
        } else if let Ok(scores) = <&mut [S::V; 2]>::try_from(&mut *scores) {
            row.weigh(s, word, scores);
        } else if let Ok(scores) = <&mut [S::V; 3]>::try_from(&mut *scores) {
            row.weigh(s, word, scores);
        } else if let Ok(scores) = <&mut [S::V; 4]>::try_from(&mut *scores) {
            row.weigh(s, word, scores);
        } else if let Ok(scores) = <&mut [S::V; 8]>::try_from(&mut *scores) {
            row.weigh(s, word, scores);
        } else if let Ok(scores) = <&mut [S::V; 16]>::try_from(&mut *scores) {
            row.weigh(s, word, scores);
        } else {
            row.weigh(s, word, scores);
        }
    }

    /// Divides by the denominators and writes outputs and log-sum-exps.
    #[inline(always)]
    fn finish(&mut self, s: S) {
        let v_dim = self.head.v.shape()[3];
        let width = self.head.v_width::<S>() / S::LANES;
        for r in 0..self.row_count() {
            let at = self.place(r, 0);
            let scratch = &mut *self.scratch;
            let sum = f64::from(total::<S>(&scratch.sums[r]));
            let maximum = f64::from(scratch.maxima[r]);
            let (mut denominator, mut top, mut factor) = (sum, maximum, 1.0);
            if let Some(sinks) = self.context.modifiers.sinks {
                let sink = f64::from(sinks[at.head]) * std::f64::consts::LOG2_E;
                top = maximum.max(sink.ceil());
                factor = (maximum - top).exp2();
                denominator = sum * factor + (sink - top).exp2();
            }
            // A row that read nothing, or nothing but scores of minus infinity, is empty: 0, not 0 / 0.
            let empty = sum == 0.0;
            let divisor = s.splat((denominator / factor) as f32);
            for (to, from) in scratch.line.iter_mut().zip(&scratch.acc[r * width..]) {
                // Adding 0 makes a 0 positive: whether products of 0 were added or skipped before cannot be seen.
                *to = if empty { s.splat(0.0) } else { s.add(s.div(*from, divisor), s.splat(0.0)) };
            }
            let place = [at.batch, at.head, at.row];
            // SAFETY: no other job has this row (`Jobs::new` sees to it), and this job has each of its rows once.
            unsafe { self.context.out.write(place, &floats(&scratch.line)[..v_dim]) };
            if let Some(lse) = &self.context.lse {
                let value = match empty {
                    true => f32::NEG_INFINITY,
                    false => ((denominator.log2() + top) * std::f64::consts::LN_2) as f32,
                };
                // SAFETY: as above.
                unsafe { lse.write(place, &[value]) };
            }
        }
    }
}

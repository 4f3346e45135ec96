//! The forward pass of a tile on a path that multiplies tiles: stages of 32 rows and 64 keys, each of which overlaps with the
//! stages before and after it ([`Stage`]).

use super::TileKernel;
use super::stage_memory::{Memory, RUN};
use crate::kernel::keys::blocks::{Cells, KeyBlock};
use crate::kernel::keys::pack::{Block, BlockScratch, largest, prefetch};
use crate::kernel::keys::store::Reads;
use crate::kernel::math::exp::{NOTHING, exp2_minus_all};
use crate::kernel::math::micro::{self, BLOCK};
use crate::kernel::simd::stage::{HEAD, KEYS, LARGE, OCTAVE, ROWS, Scores, Stage, Values, WORDS, Weights, offset};
use crate::kernel::simd::{Product, Simd, floats, floats_mut, vectors};
use crate::processor::tiles::SIDE;

/// The number of blocks between the block whose weights are computed and the one that is prefetched meanwhile.
const AHEAD: usize = 3;

/// Scores from here on, and maxima from here on or below its negation, are outside of the range in which the fixed point of a
/// weight is exact in the maximum.
const MOST: f32 = (1 << 14) as f32;

/// A stage: some rows of the job and one block of a run.
#[derive(Clone, Copy)]
struct Turn {
    /// The index of the rows, in units of `ROWS`.
    part: usize,
    block: usize,
    /// Whether some cells are hidden.
    masked: bool,
}

/// The blocks of a run, and the state of the rows of a job between its stages.
struct State<'m, S: Simd> {
    /// Each block, and whether some of its cells may be hidden.
    run: &'m [(KeyBlock, bool)],
    rows: usize,
    /// The number of stages of rows.
    parts: usize,
    masks: &'m [[u64; ROWS]],
    sums: &'m mut [S::V],
    offsets: &'m mut [[f32; ROWS]],
    begun: &'m mut [bool],
    unseen: &'m mut [usize],
    careful: bool,
}

impl<'m, S: Simd> State<'m, S> {
    /// Returns the number of rows of a stage.
    #[inline(always)]
    fn count(&self, turn: &Turn) -> usize {
        ROWS.min(self.rows - turn.part * ROWS)
    }

    /// Returns the mask bits of a stage, or `None` if all cells are allowed.
    #[inline(always)]
    fn mask(&self, turn: &Turn) -> Option<&'m [u64; ROWS]> {
        turn.masked.then(|| &self.masks[turn.block * self.parts + turn.part])
    }

    /// Returns the mask bits of row `r` of a stage.
    #[inline(always)]
    fn word(&self, turn: &Turn, r: usize) -> u64 {
        self.masks[turn.block * self.parts + turn.part][r]
    }
}

impl<S: Simd, P: Product> TileKernel<'_, '_, S, P> {
    /// Returns whether the job consists of stages: not with soft weights or dropout, which change weights.
    pub(super) fn in_stages(&self) -> bool {
        P::TILES && !self.context.modifiers.soften() && self.context.modifiers.dropout.is_none()
    }

    /// Adds the blocks `blocks` to the sums of all rows. `known` has the mask bits of the mixed blocks for the rows of one head
    /// if they are already computed.
    #[inline(always)]
    pub(super) fn run_stages<'k>(
        &mut self,
        s: S,
        blocks: impl Iterator<Item = KeyBlock>,
        known: Option<impl Iterator<Item = &'k [u64]>>,
    ) {
        let mut known = known;
        let mut blocks = blocks;
        let rows = self.row_count();
        let parts = rows.div_ceil(ROWS);
        let mut memory = self.scratch.stages.take().unwrap_or_else(|| Memory::new(self.scratch.maxima.len()));
        memory.begun.fill(false);
        memory.careful = false;
        memory.largest_keys = self.largest_keys();
        memory
            .unseen
            .iter_mut()
            .enumerate()
            .for_each(|(part, unseen)| *unseen = ROWS.min(rows.saturating_sub(part * ROWS)));
        memory.sums[..parts * ROWS * SIDE / S::LANES].fill(s.splat(0.0));
        let mut turns = Vec::new();
        let mut run = Vec::with_capacity(RUN);
        loop {
            run.clear();
            turns.clear();
            while run.len() < RUN
                && let Some(block) = blocks.next()
            {
                let known = if block.cells == Cells::Mixed { known.as_mut().and_then(Iterator::next) } else { None };
                let words = &mut memory.words[run.len() * parts..][..parts];
                words.as_flattened_mut()[rows..].fill(0);
                let words = &mut words.as_flattened_mut()[..rows];
                let masked = self.mask(&block, known);
                let keys = block.groups.len() * P::TERMS * S::LANES;
                if masked {
                    words.copy_from_slice(&self.scratch.words[..rows]);
                } else {
                    words.fill(u64::MAX >> (BLOCK - keys));
                }
                run.push((block, masked || keys < BLOCK));
            }
            if run.is_empty() {
                break;
            }
            for part in 0..parts {
                let count = ROWS.min(rows - part * ROWS);
                for (block, (_, masked)) in run.iter().enumerate() {
                    let words = memory.words[block * parts + part][..count].iter();
                    let (any, all) = match masked {
                        true => words.fold((0, u64::MAX), |(any, all), word| (any | word, all & word)),
                        false => (u64::MAX, u64::MAX),
                    };
                    if any != 0 {
                        turns.push(Turn { part, block, masked: all != u64::MAX });
                    }
                }
            }
            self.run_turns(s, &run, &turns, &mut memory);
        }
        self.end_stages(s, &memory);
        self.scratch.stages = Some(memory);
    }

    /// Computes the stages `turns`, in order.
    #[inline(always)]
    fn run_turns(&mut self, s: S, run: &[(KeyBlock, bool)], turns: &[Turn], memory: &mut Memory<S>) {
        let (rows, words, v_width) = (self.row_count(), self.source.words(), self.source.v_width());
        let source = self.source;
        let Memory { blocks, words: masks, scores, weights, sums, offsets, begun, unseen, careful, largest_keys } =
            memory;
        while blocks.len() < run.len() {
            blocks.push(BlockScratch::new(BLOCK, words, v_width));
        }
        let reads = Reads { once: false, masked: true };
        let blocks: Vec<Block<'_, S>> = (run.iter().zip(blocks.iter_mut()))
            .map(|((block, _), scratch)| source.block(s, block, reads, scratch))
            .collect();
        *careful |= largest_keys.is_nan() || blocks.iter().any(|block| block.largest >= *largest_keys);
        let mut state =
            State { run, rows, parts: rows.div_ceil(ROWS), masks, sums, offsets, begun, unseen, careful: *careful };
        let [mut ready, mut coming] = halves::<{ ROWS * KEYS }>(floats_mut(scores));
        let [mut made, mut used] = halves::<{ ROWS * WORDS }>(floats_mut(weights));
        // The turn `i` of each round: its scores, then its weights, then its weighted values are computed.
        for i in 0..turns.len() + 2 {
            let next = turns.get(i);
            let now = i.checked_sub(1).and_then(|i| turns.get(i));
            let before = i.checked_sub(2).and_then(|i| turns.get(i));
            let scale = now.map_or(0.0, |turn| self.prepare(s, turn, ready, &mut state));
            let hidden = |turn: &Turn| turn.masked && blocks[turn.block].non_finite;
            let rows_of = |turn: Option<&Turn>| turn.map_or(0, |turn| state.count(turn));
            let counts = [rows_of(next), rows_of(now), rows_of(before)];
            let next = next.map(|turn| Scores {
                rows: counts[0],
                queries: &self.scratch.queries[turn.part * ROWS * words..],
                keys: floats(blocks[turn.block].keys),
                words,
                tiles: run[turn.block].0.groups.len() * P::TERMS,
                into: coming,
            });
            let words_now = now.and_then(|turn| state.mask(turn));
            let (offsets, sums) = (&*state.offsets, &mut *state.sums);
            let large = s.stage(Stage {
                rows: counts[1],
                next,
                now: now.map(|turn| Weights {
                    scores: ready,
                    into: made,
                    words: words_now,
                    scale,
                    offsets: &offsets[turn.part],
                }),
                before: before.map(|turn| Values {
                    rows: counts[2],
                    weights: used,
                    values: (!hidden(turn)).then_some(blocks[turn.block].values),
                    v_width,
                    tiles: run[turn.block].0.groups.len(),
                    sums: &mut floats_mut(&mut self.scratch.acc)[turn.part * ROWS * v_width..],
                    weight_sums: &mut floats_mut(sums).as_chunks_mut().0[turn.part],
                    first: !state.begun[turn.part],
                }),
            });
            // A few rows read each key once: the next keys are read from memory meanwhile.
            if rows <= S::BAND
                && let Some(block) = now.and_then(|turn| blocks.get(turn.block + AHEAD))
            {
                prefetch(s, floats(block.keys));
                prefetch(s, &block.values[..block.values.len().min(KEYS / P::TERMS * v_width)]);
            }
            if let Some(turn) = before {
                if hidden(turn) {
                    self.add_visible(s, turn, used, blocks[turn.block].values, &state);
                }
                state.begun[turn.part] = true;
            }
            if let Some(turn) = now {
                self.settle(s, turn, scale, large, ready, made, &mut state);
            }
            std::mem::swap(&mut ready, &mut coming);
            std::mem::swap(&mut made, &mut used);
        }
    }

    /// Adds the weighted values of a stage, without those of hidden cells, which may be infinite or NaN.
    #[cold]
    fn add_visible(&mut self, s: S, turn: &Turn, weights: &[f32; ROWS * WORDS], values: &[f32], state: &State<'_, S>) {
        let width = self.source.v_width() / S::LANES;
        let acc = &mut self.scratch.acc[turn.part * ROWS * width..];
        let words = &state.masks[turn.block * state.parts + turn.part];
        for ((row, weights), word) in acc.chunks_exact_mut(width).zip(weights.chunks_exact(WORDS)).zip(words) {
            if !state.begun[turn.part] {
                row.fill(s.splat(0.0));
            }
            micro::accumulate_allowed::<S, P>(s, vectors(weights), *word, values, row);
        }
    }

    /// Completes the weights of a stage: computes them again where a score was too large, and adds them to the sums for the
    /// log-sum-exp.
    #[inline(always)]
    #[allow(clippy::too_many_arguments)] // the operands of a stage, and the state of its rows
    fn settle(
        &mut self,
        s: S,
        turn: &Turn,
        scale: f32,
        large: bool,
        scores: &[f32; ROWS * KEYS],
        weights: &mut [f32; ROWS * WORDS],
        state: &mut State<'_, S>,
    ) {
        if large {
            self.raise(s, turn, scale / OCTAVE, scores, state);
            let (words, offsets) = (state.mask(turn), &state.offsets[turn.part]);
            let now = Weights { scores, into: weights, words, scale, offsets };
            s.stage(Stage { rows: state.count(turn), next: None, now: Some(now), before: None });
        }
        if state.careful {
            self.weigh_large(s, turn, scale, scores, weights, state);
        }
        if self.context.lse.is_some() {
            self.add_exact(s, turn, scale / OCTAVE, scores, state);
        }
    }

    /// Applies softcap and biases to the scores of a stage, and sets the maxima of rows that see their first keys. Returns the
    /// factor of the scores times [`OCTAVE`].
    #[inline(always)]
    fn prepare(&mut self, s: S, turn: &Turn, scores: &mut [f32; ROWS * KEYS], state: &mut State<'_, S>) -> f32 {
        let modifiers = &self.context.modifiers;
        let (first, count) = (turn.part * ROWS, state.count(turn));
        let mut factor = modifiers.query_factor;
        if modifiers.change_scores() {
            let block = &state.run[turn.block].0;
            let keys = (block.groups.len() * P::TERMS * S::LANES).min(self.source.kv_len() - block.keys.start);
            for r in 0..count {
                let mut row = [s.splat(0.0); KEYS];
                let row = &mut row[..KEYS / S::LANES];
                for (x, given) in row.iter_mut().zip(scores[r * KEYS..].chunks_exact(S::LANES)) {
                    *x = s.mul(s.load(given), s.splat(factor));
                }
                modifiers.apply(s, self.place(first + r, block.keys.start), keys, row);
                scores[r * KEYS..][..KEYS].copy_from_slice(floats(row));
            }
            factor = 1.0;
        }
        for r in 0..if state.unseen[turn.part] > 0 { count } else { 0 } {
            if self.scratch.maxima[first + r] == NOTHING {
                let top = top(s, scores, r, factor, state.word(turn, r));
                if top > f32::NEG_INFINITY {
                    self.scratch.maxima[first + r] = top.ceil() + HEAD;
                    state.offsets[turn.part][r] = offset(top.ceil() + HEAD);
                    state.unseen[turn.part] -= 1;
                }
            }
        }
        factor * OCTAVE
    }

    /// Raises the maxima of the rows of a stage whose weights are 2 or more.
    #[cold]
    fn raise(&mut self, s: S, turn: &Turn, factor: f32, scores: &[f32; ROWS * KEYS], state: &mut State<'_, S>) {
        for r in 0..state.count(turn) {
            let top = top(s, scores, r, factor, state.word(turn, r));
            if (top * OCTAVE + state.offsets[turn.part][r]).floor() >= LARGE {
                self.lower(s, turn, r, top.ceil() + HEAD, state);
            }
        }
    }

    /// Sets the maximum of row `r` of a stage to `maximum`, and multiplies its sums by the power of two of the difference.
    fn lower(&mut self, s: S, turn: &Turn, r: usize, maximum: f32, state: &mut State<'_, S>) {
        let (row, width) = (turn.part * ROWS + r, self.source.v_width() / S::LANES);
        let lower = s.splat((self.scratch.maxima[row] - maximum).max(-300.0));
        self.scratch.maxima[row] = maximum;
        state.offsets[turn.part][r] = offset(maximum);
        self.scratch.sums[row] = s.scale(self.scratch.sums[row], lower);
        let sums = &mut state.sums[row * SIDE / S::LANES];
        *sums = s.scale(*sums, lower);
        for x in &mut self.scratch.acc[row * width..][..width] {
            *x = s.scale(*x, lower);
        }
    }

    /// Returns the size of keys from which on a score may be too large for the fixed point of weights, or no number.
    #[inline(always)]
    fn largest_keys(&self) -> f32 {
        let modifiers = &self.context.modifiers;
        let queries = largest(&self.scratch.queries[..self.row_count() * self.source.words()]);
        match modifiers.change_scores() {
            true => 0.0,
            false => MOST / (modifiers.query_factor.abs() * self.source.head_dim() as f32 * queries),
        }
    }

    /// Computes the weights of a stage again in rows with a visible score that is too large for the fixed point, or NaN, now or
    /// in an earlier block, or whose scores so far are below its range.
    #[inline(never)]
    fn weigh_large(
        &mut self,
        s: S,
        turn: &Turn,
        scale: f32,
        scores: &[f32; ROWS * KEYS],
        weights: &mut [f32; ROWS * WORDS],
        state: &mut State<'_, S>,
    ) {
        let factor = scale / OCTAVE;
        let mut special = 0u32;
        let mut risen = false;
        for r in 0..state.count(turn) {
            let [top, sum] = top_and_sum(s, scores, r, factor, state.word(turn, r));
            let maximum = self.scratch.maxima[turn.part * ROWS + r];
            // A NaN among the scores, or infinities of both signs.
            if sum.is_nan()
                || top >= MOST
                || maximum >= MOST
                || (NOTHING < top.max(maximum) && top.max(maximum) <= -MOST)
            {
                special |= 1 << r;
            } else if maximum <= -MOST && top > maximum {
                // The first scores in the range: the earlier ones weigh nothing.
                self.lower(s, turn, r, top.ceil() + HEAD, state);
                risen = true;
            }
        }
        if risen {
            let (words, offsets) = (state.mask(turn), &state.offsets[turn.part]);
            let now = Weights { scores, into: weights, words, scale, offsets };
            s.stage(Stage { rows: state.count(turn), next: None, now: Some(now), before: None });
        }
        while special != 0 {
            let r = special.trailing_zeros() as usize;
            special &= special - 1;
            let mut powers = [s.splat(0.0); KEYS];
            let powers = &mut powers[..KEYS / S::LANES];
            load_row(s, scores, r, factor, state.word(turn, r), powers);
            let row = turn.part * ROWS + r;
            let top = s.reduce_max(powers.iter().fold(s.splat(f32::NEG_INFINITY), |top, x| s.max(*x, top))).ceil();
            if top > self.scratch.maxima[row] {
                self.lower(s, turn, r, top, state);
            }
            exp2_minus_all(s, powers, s.splat(self.scratch.maxima[row]));
            let pairs = weights[r * WORDS..][..WORDS].chunks_exact_mut(S::LANES);
            for (pairs, two) in pairs.zip(powers.chunks_exact(2)) {
                pairs.copy_from_slice(floats(&[s.pair_neighbours(two[0], two[1])]));
            }
        }
    }

    /// Adds the weights of a stage to the sums for the log-sum-exp, without rounding.
    #[inline(always)]
    fn add_exact(&mut self, s: S, turn: &Turn, factor: f32, scores: &[f32; ROWS * KEYS], state: &State<'_, S>) {
        for r in 0..state.count(turn) {
            let row = turn.part * ROWS + r;
            let mut weights = [s.splat(0.0); KEYS];
            let weights = &mut weights[..KEYS / S::LANES];
            load_row(s, scores, r, factor, state.word(turn, r), weights);
            exp2_minus_all(s, weights, s.splat(self.scratch.maxima[row]));
            for weight in weights {
                self.scratch.sums[row] = s.add(self.scratch.sums[row], *weight);
            }
        }
    }

    /// Passes the sums of the weights on to the end of the tile.
    #[inline(always)]
    fn end_stages(&mut self, s: S, memory: &Memory<S>) {
        let rows = self.row_count();
        let width = self.source.v_width() / S::LANES;
        for (part, _) in memory.begun.iter().enumerate().filter(|(_, begun)| !**begun) {
            let rows = (part * ROWS).min(rows)..((part + 1) * ROWS).min(rows);
            self.scratch.acc[rows.start * width..rows.end * width].fill(s.splat(0.0));
        }
        for r in 0..rows {
            let mut sum = [s.splat(0.0)];
            floats_mut(&mut sum)[0] = floats(&memory.sums)[r * SIDE];
            self.scratch.rounded[r] = sum[0];
            if self.context.lse.is_none() {
                self.scratch.sums[r] = sum[0];
            }
        }
    }
}

/// Divides memory into two arrays of `N` numbers.
fn halves<const N: usize>(memory: &mut [f32]) -> [&mut [f32; N]; 2] {
    let [first, second] = memory.as_chunks_mut().0 else { unreachable!("the memory has two arrays") };
    [first, second]
}

/// Writes the scores of row `r` times `factor` to `into`; those of hidden cells become minus infinity.
#[inline(always)]
fn load_row<S: Simd>(s: S, scores: &[f32; ROWS * KEYS], r: usize, factor: f32, word: u64, into: &mut [S::V]) {
    let row = scores[r * KEYS..][..KEYS].chunks_exact(S::LANES);
    for (i, (into, x)) in into.iter_mut().zip(row).enumerate() {
        let x = s.mul(s.load(x), s.splat(factor));
        *into = s.keep(word >> (i * S::LANES), x, s.splat(f32::NEG_INFINITY));
    }
}

/// Returns the largest score of row `r` times `factor` in the cells that `word` allows.
#[inline(always)]
fn top<S: Simd>(s: S, scores: &[f32; ROWS * KEYS], r: usize, factor: f32, word: u64) -> f32 {
    top_and_sum(s, scores, r, factor, word)[0]
}

/// Returns the largest score of row `r` times `factor` in the cells that `word` allows, and the sum of these scores, which is
/// NaN if one of them is.
#[inline(always)]
fn top_and_sum<S: Simd>(s: S, scores: &[f32; ROWS * KEYS], r: usize, factor: f32, word: u64) -> [f32; 2] {
    let mut row = [s.splat(0.0); KEYS];
    let row = &mut row[..KEYS / S::LANES];
    load_row(s, scores, r, factor, word, row);
    let (mut top, mut sum) = (s.splat(f32::NEG_INFINITY), s.splat(0.0));
    for x in row {
        top = s.max(*x, top);
        sum = s.add(sum, *x);
    }
    [s.reduce_max(top), s.reduce_add(sum)]
}

//! The forward pass of some jobs on a path that multiplies tiles: stages of 32 rows and 64 keys, each of which overlaps with the
//! stages before and after it ([`Stage`]). The stages of several jobs follow one another: all of them pass over a run of
//! blocks of keys while these are in the second-level cache, and the tile unit does not wait between short jobs.

use super::TileKernel;
use super::stage_memory::{Buffers, Memory, RUN, State, Totals};
use crate::kernel::keys::blocks::{Cells, KeyBlocks};
use crate::kernel::keys::pack::{Block, BlockScratch, Source, largest, prefetch};
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

/// A stage: some rows of a job and one block of its run.
#[derive(Clone, Copy)]
struct Turn {
    job: usize,
    /// The index of the rows, in units of `ROWS`.
    part: usize,
    block: usize,
    /// Whether some cells are hidden.
    masked: bool,
}

impl State {
    /// Returns the mask bits of a stage, also if all cells are allowed.
    #[inline(always)]
    fn words(&self, turn: &Turn) -> &[u64; ROWS] {
        &self.words[turn.block * self.unseen.len() + turn.part]
    }

    /// Returns the mask bits of a stage, or `None` if all cells are allowed.
    #[inline(always)]
    fn mask(&self, turn: &Turn) -> Option<&[u64; ROWS]> {
        turn.masked.then(|| self.words(turn))
    }
}

/// A job in stages: its blocks that are in no run yet, and its memory.
struct Staged<'t, 'a, 'b, S: Simd, P> {
    rows: StagedRows<'t, 'a, 'b, S, P>,
    left: KeyBlocks<'a>,
    /// The mask bits of the mixed blocks that are left, for the rows of one head, if they are already computed.
    known: Option<std::slice::ChunksExact<'a, u64>>,
    blocks: Vec<BlockScratch<S>>,
    totals: Totals<S>,
}

/// The rows of a job in stages.
struct StagedRows<'t, 'a, 'b, S: Simd, P> {
    tile: &'t mut TileKernel<'a, 'b, S, P>,
    state: State,
}

impl<S: Simd, P: Product> TileKernel<'_, '_, S, P> {
    /// Returns whether the job consists of stages: not with soft weights or dropout, which change weights.
    pub(super) fn in_stages(&self) -> bool {
        P::TILES && !self.context.modifiers.soften() && self.context.modifiers.dropout.is_none()
    }

    /// Computes jobs in stages.
    #[inline(always)]
    pub(super) fn run_together(s: S, tiles: &mut [Self]) {
        // These are loops, because closures are compiled separately, without the vectors of the path.
        let buffers = tiles.first_mut().and_then(|tile| tile.scratch.buffers.take());
        let mut buffers = buffers.unwrap_or_else(Buffers::new);
        let mut jobs = Vec::with_capacity(tiles.len());
        for tile in &mut *tiles {
            jobs.push(Staged::start(s, tile));
        }
        let mut turns = Vec::new();
        loop {
            turns.clear();
            let mut more = false;
            for (i, job) in jobs.iter_mut().enumerate() {
                more |= job.next_run(i, &mut turns);
            }
            if !more {
                break;
            }
            run_turns(s, &mut jobs, &turns, &mut buffers);
        }
        for job in jobs {
            job.end(s);
        }
        if let Some(tile) = tiles.first_mut() {
            tile.scratch.buffers = Some(buffers);
        }
    }

    /// Returns the size of keys from which on a score may be too large for the fixed point of weights, or no number.
    #[inline(always)]
    fn largest_keys(&self) -> f32 {
        let modifiers = &self.context.modifiers;
        let queries = largest(&floats(&self.scratch.queries)[..self.row_count() * self.source.words()]);
        match modifiers.change_scores() {
            true => 0.0,
            false => MOST / (modifiers.query_factor.abs() * self.source.head_dim() as f32 * queries),
        }
    }
}

impl<'t, 'a, 'b, S: Simd, P: Product> Staged<'t, 'a, 'b, S, P> {
    #[inline(always)]
    fn start(s: S, tile: &'t mut TileKernel<'a, 'b, S, P>) -> Self {
        tile.start(s);
        let left = tile.blocks();
        let known = tile.known(&left);
        let rows = tile.row_count();
        let memory = tile.scratch.stages.take().unwrap_or_else(|| Memory::new(tile.scratch.maxima.len()));
        let Memory { blocks, mut state, mut totals } = memory;
        let parts = rows.div_ceil(ROWS);
        state.careful = false;
        state.largest_keys = tile.largest_keys();
        state.unseen.clear();
        state.unseen.extend((0..parts).map(|part| ROWS.min(rows - part * ROWS)));
        totals.acc = std::mem::take(&mut tile.scratch.acc);
        totals.begun.fill(false);
        totals.weights[..parts * ROWS * SIDE / S::LANES].fill(s.splat(0.0));
        Staged { rows: StagedRows { tile, state }, left, known, blocks, totals }
    }

    /// Takes the blocks of the next run, and adds their stages to `turns`. Returns false if no block is left.
    #[inline(always)]
    fn next_run(&mut self, job: usize, turns: &mut Vec<Turn>) -> bool {
        let StagedRows { tile, state } = &mut self.rows;
        let (rows, parts) = (tile.row_count(), state.unseen.len());
        state.run.clear();
        while state.run.len() < RUN
            && let Some(block) = self.left.next()
        {
            let known = if block.cells == Cells::Mixed { self.known.as_mut().and_then(Iterator::next) } else { None };
            let words = &mut state.words[state.run.len() * parts..][..parts];
            words.as_flattened_mut()[rows..].fill(0);
            let words = &mut words.as_flattened_mut()[..rows];
            let masked = tile.mask(&block, known);
            let keys = block.groups.len() * P::TERMS * S::LANES;
            if masked {
                words.copy_from_slice(&tile.scratch.words[..rows]);
            } else {
                words.fill(u64::MAX >> (BLOCK - keys));
            }
            state.run.push((block, masked || keys < BLOCK));
        }
        for part in 0..parts {
            let count = ROWS.min(rows - part * ROWS);
            for (block, (_, masked)) in state.run.iter().enumerate() {
                let words = state.words[block * parts + part][..count].iter();
                let (any, all) = match masked {
                    true => words.fold((0, u64::MAX), |(any, all), word| (any | word, all & word)),
                    false => (u64::MAX, u64::MAX),
                };
                if any != 0 {
                    turns.push(Turn { job, part, block, masked: all != u64::MAX });
                }
            }
        }
        !state.run.is_empty()
    }

    /// Returns the keys and values of the blocks of the run.
    #[inline(always)]
    fn read<'c>(
        s: S,
        source: &'c Source<'_, 'b, S, P>,
        state: &mut State,
        scratch: &'c mut Vec<BlockScratch<S>>,
    ) -> Vec<Block<'c, S>> {
        // Packed keys need no memory of the job.
        let packed = matches!(source, Source::Given(_, Some(_)));
        scratch.resize_with(scratch.len().max(state.run.len()), BlockScratch::empty);
        for space in scratch.iter_mut().filter(|space| !packed && space.is_empty()) {
            *space = BlockScratch::new(BLOCK, source.words(), source.v_width());
        }
        let reads = Reads { once: false, masked: true };
        let mut blocks = Vec::with_capacity(state.run.len());
        for ((block, _), scratch) in state.run.iter().zip(scratch) {
            blocks.push(source.block(s, block, reads, scratch));
        }
        state.careful |= state.largest_keys.is_nan() || blocks.iter().any(|block| block.largest >= state.largest_keys);
        blocks
    }

    /// Passes the sums on to the end of the tile.
    #[inline(always)]
    fn end(self, s: S) {
        let Staged { rows: StagedRows { tile, state }, blocks, mut totals, .. } = self;
        let rows = tile.row_count();
        let width = tile.source.v_width() / S::LANES;
        for (part, _) in totals.begun.iter().enumerate().filter(|(_, begun)| !**begun) {
            let rows = (part * ROWS).min(rows)..((part + 1) * ROWS).min(rows);
            totals.acc[rows.start * width..rows.end * width].fill(s.splat(0.0));
        }
        tile.scratch.acc = std::mem::take(&mut totals.acc);
        for r in 0..rows {
            let mut sum = [s.splat(0.0)];
            floats_mut(&mut sum)[0] = floats(&totals.weights)[r * SIDE];
            tile.scratch.rounded[r] = sum[0];
            if tile.context.lse.is_none() {
                tile.scratch.sums[r] = sum[0];
            }
        }
        tile.scratch.stages = Some(Memory { blocks, state, totals });
        tile.finish(s);
    }
}

/// Computes the stages `turns` of the current runs of `jobs`, in order.
#[inline(always)]
fn run_turns<S: Simd, P: Product>(
    s: S,
    jobs: &mut [Staged<'_, '_, '_, S, P>],
    turns: &[Turn],
    buffers: &mut Buffers<S>,
) {
    let sources: Vec<_> = jobs.iter().map(|job| job.rows.tile.source).collect();
    let (mut rows, mut totals, mut blocks) = (Vec::new(), Vec::new(), Vec::new());
    for (job, source) in jobs.iter_mut().zip(&sources) {
        blocks.push(Staged::read(s, source, &mut job.rows.state, &mut job.blocks));
        rows.push(&mut job.rows);
        totals.push(&mut job.totals);
    }
    let Some(source) = sources.first() else { return };
    let (words, v_width) = (source.words(), source.v_width());
    let [mut ready, mut coming] = halves::<{ ROWS * KEYS }>(floats_mut(&mut buffers.scores));
    let [mut made, mut used] = halves::<{ ROWS * WORDS }>(floats_mut(&mut buffers.weights));
    // The turn `i` of each round: its scores, then its weights, then its weighted values are computed.
    for i in 0..turns.len() + 2 {
        let next = turns.get(i);
        let now = i.checked_sub(1).and_then(|i| turns.get(i));
        let before = i.checked_sub(2).and_then(|i| turns.get(i));
        let scale = now.map_or(0.0, |turn| rows[turn.job].prepare(s, turn, ready));
        let hidden = |turn: &Turn| turn.masked && blocks[turn.job][turn.block].non_finite;
        let rows_of = |turn: Option<&Turn>| turn.map_or(0, |turn| rows[turn.job].count(turn));
        let counts = [rows_of(next), rows_of(now), rows_of(before)];
        let next = next.map(|turn| Scores {
            rows: counts[0],
            queries: &floats(&rows[turn.job].tile.scratch.queries)[turn.part * ROWS * words..],
            keys: floats(blocks[turn.job][turn.block].keys),
            words,
            tiles: rows[turn.job].state.run[turn.block].0.groups.len() * P::TERMS,
            into: coming,
        });
        let large = s.stage(Stage {
            rows: counts[1],
            next,
            now: now.map(|turn| Weights {
                scores: ready,
                into: made,
                words: rows[turn.job].state.mask(turn),
                scale,
                offsets: &rows[turn.job].state.offsets[turn.part],
            }),
            before: before.map(|turn| {
                let block = &blocks[turn.job][turn.block];
                let totals = &mut *totals[turn.job];
                Values {
                    rows: counts[2],
                    weights: used,
                    values: (!hidden(turn)).then_some(block.values),
                    v_width,
                    tiles: rows[turn.job].state.run[turn.block].0.groups.len(),
                    sums: &mut floats_mut(&mut totals.acc)[turn.part * ROWS * v_width..],
                    weight_sums: &mut floats_mut(&mut totals.weights).as_chunks_mut().0[turn.part],
                    first: !totals.begun[turn.part],
                }
            }),
        });
        if let Some(turn) = now {
            prefetch_ahead::<S, P>(s, rows[turn.job].tile.row_count(), &blocks[turn.job], turn.block, v_width);
        }
        if let Some(turn) = before {
            let totals = &mut *totals[turn.job];
            if hidden(turn) {
                let words = rows[turn.job].state.words(turn);
                totals.add_visible::<P>(s, turn, used, blocks[turn.job][turn.block].values, words, v_width);
            }
            totals.begun[turn.part] = true;
        }
        if let Some(turn) = now {
            rows[turn.job].settle(s, turn, scale, large, ready, made, totals[turn.job]);
        }
        std::mem::swap(&mut ready, &mut coming);
        std::mem::swap(&mut made, &mut used);
    }
}

/// Prefetches a block after the block `block` of a job with few rows, which reads each key once.
#[inline(always)]
fn prefetch_ahead<S: Simd, P: Product>(s: S, rows: usize, blocks: &[Block<'_, S>], block: usize, v_width: usize) {
    if rows <= S::BAND
        && let Some(block) = blocks.get(block + AHEAD)
    {
        prefetch(s, floats(block.keys));
        prefetch(s, &block.values[..block.values.len().min(KEYS / P::TERMS * v_width)]);
    }
}

impl<S: Simd> Totals<S> {
    /// Adds the weighted values of a stage, without those of hidden cells, which may be infinite or NaN.
    #[cold]
    fn add_visible<P: Product>(
        &mut self,
        s: S,
        turn: &Turn,
        weights: &[f32; ROWS * WORDS],
        values: &[f32],
        words: &[u64; ROWS],
        v_width: usize,
    ) {
        let width = v_width / S::LANES;
        let acc = &mut self.acc[turn.part * ROWS * width..];
        for ((row, weights), word) in acc.chunks_exact_mut(width).zip(weights.chunks_exact(WORDS)).zip(words) {
            if !self.begun[turn.part] {
                row.fill(s.splat(0.0));
            }
            micro::accumulate_allowed::<S, P>(s, vectors(weights), *word, values, row);
        }
    }
}

impl<S: Simd, P: Product> StagedRows<'_, '_, '_, S, P> {
    /// Returns the number of rows of a stage.
    #[inline(always)]
    fn count(&self, turn: &Turn) -> usize {
        ROWS.min(self.tile.row_count() - turn.part * ROWS)
    }

    /// Returns the mask bits of row `r` of a stage.
    #[inline(always)]
    fn word(&self, turn: &Turn, r: usize) -> u64 {
        self.state.words(turn)[r]
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
        totals: &mut Totals<S>,
    ) {
        if large {
            self.raise(s, turn, scale / OCTAVE, scores, totals);
            let (words, offsets) = (self.state.mask(turn), &self.state.offsets[turn.part]);
            let now = Weights { scores, into: weights, words, scale, offsets };
            s.stage(Stage { rows: self.count(turn), next: None, now: Some(now), before: None });
        }
        if self.state.careful {
            self.weigh_large(s, turn, scale, scores, weights, totals);
        }
        if self.tile.context.lse.is_some() {
            self.add_exact(s, turn, scale / OCTAVE, scores);
        }
    }

    /// Applies softcap and biases to the scores of a stage, and sets the maxima of rows that see their first keys. Returns the
    /// factor of the scores times [`OCTAVE`].
    #[inline(always)]
    fn prepare(&mut self, s: S, turn: &Turn, scores: &mut [f32; ROWS * KEYS]) -> f32 {
        let modifiers = &self.tile.context.modifiers;
        let (first, count) = (turn.part * ROWS, self.count(turn));
        let mut factor = modifiers.query_factor;
        if modifiers.change_scores() {
            let block = &self.state.run[turn.block].0;
            let keys = (block.groups.len() * P::TERMS * S::LANES).min(self.tile.source.kv_len() - block.keys.start);
            for r in 0..count {
                let mut row = [s.splat(0.0); KEYS];
                let row = &mut row[..KEYS / S::LANES];
                for (x, given) in row.iter_mut().zip(scores[r * KEYS..].chunks_exact(S::LANES)) {
                    *x = s.mul(s.load(given), s.splat(factor));
                }
                modifiers.apply(s, self.tile.place(first + r, block.keys.start), keys, row);
                scores[r * KEYS..][..KEYS].copy_from_slice(floats(row));
            }
            factor = 1.0;
        }
        for r in 0..if self.state.unseen[turn.part] > 0 { count } else { 0 } {
            if self.tile.scratch.maxima[first + r] == NOTHING {
                let top = top(s, scores, r, factor, self.word(turn, r));
                if top > f32::NEG_INFINITY {
                    self.tile.scratch.maxima[first + r] = top.ceil() + HEAD;
                    self.state.offsets[turn.part][r] = offset(top.ceil() + HEAD);
                    self.state.unseen[turn.part] -= 1;
                }
            }
        }
        factor * OCTAVE
    }

    /// Raises the maxima of the rows of a stage whose weights are 2 or more.
    #[cold]
    fn raise(&mut self, s: S, turn: &Turn, factor: f32, scores: &[f32; ROWS * KEYS], totals: &mut Totals<S>) {
        for r in 0..self.count(turn) {
            let top = top(s, scores, r, factor, self.word(turn, r));
            if (top * OCTAVE + self.state.offsets[turn.part][r]).floor() >= LARGE {
                self.lower(s, turn, r, top.ceil() + HEAD, totals);
            }
        }
    }

    /// Sets the maximum of row `r` of a stage to `maximum`, and multiplies its sums by the power of two of the difference.
    fn lower(&mut self, s: S, turn: &Turn, r: usize, maximum: f32, totals: &mut Totals<S>) {
        let (row, width) = (turn.part * ROWS + r, self.tile.source.v_width() / S::LANES);
        let lower = s.splat((self.tile.scratch.maxima[row] - maximum).max(-300.0));
        self.tile.scratch.maxima[row] = maximum;
        self.state.offsets[turn.part][r] = offset(maximum);
        self.tile.scratch.sums[row] = s.scale(self.tile.scratch.sums[row], lower);
        let sums = &mut totals.weights[row * SIDE / S::LANES];
        *sums = s.scale(*sums, lower);
        for x in &mut totals.acc[row * width..][..width] {
            *x = s.scale(*x, lower);
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
        totals: &mut Totals<S>,
    ) {
        let factor = scale / OCTAVE;
        let mut special = 0u32;
        let mut risen = false;
        for r in 0..self.count(turn) {
            let [top, sum] = top_and_sum(s, scores, r, factor, self.word(turn, r));
            let maximum = self.tile.scratch.maxima[turn.part * ROWS + r];
            // A NaN among the scores, or infinities of both signs.
            if sum.is_nan()
                || top >= MOST
                || maximum >= MOST
                || (NOTHING < top.max(maximum) && top.max(maximum) <= -MOST)
            {
                special |= 1 << r;
            } else if maximum <= -MOST && top > maximum {
                // The first scores in the range: the earlier ones weigh nothing.
                self.lower(s, turn, r, top.ceil() + HEAD, totals);
                risen = true;
            }
        }
        if risen {
            let (words, offsets) = (self.state.mask(turn), &self.state.offsets[turn.part]);
            let now = Weights { scores, into: weights, words, scale, offsets };
            s.stage(Stage { rows: self.count(turn), next: None, now: Some(now), before: None });
        }
        while special != 0 {
            let r = special.trailing_zeros() as usize;
            special &= special - 1;
            let mut powers = [s.splat(0.0); KEYS];
            let powers = &mut powers[..KEYS / S::LANES];
            load_row(s, scores, r, factor, self.word(turn, r), powers);
            let row = turn.part * ROWS + r;
            let top = s.reduce_max(powers.iter().fold(s.splat(f32::NEG_INFINITY), |top, x| s.max(*x, top))).ceil();
            if top > self.tile.scratch.maxima[row] {
                self.lower(s, turn, r, top, totals);
            }
            exp2_minus_all(s, powers, s.splat(self.tile.scratch.maxima[row]));
            let pairs = weights[r * WORDS..][..WORDS].chunks_exact_mut(S::LANES);
            for (pairs, two) in pairs.zip(powers.chunks_exact(2)) {
                pairs.copy_from_slice(floats(&[s.pair_neighbours(two[0], two[1])]));
            }
        }
    }

    /// Adds the weights of a stage to the sums for the log-sum-exp, without rounding.
    #[inline(always)]
    fn add_exact(&mut self, s: S, turn: &Turn, factor: f32, scores: &[f32; ROWS * KEYS]) {
        for r in 0..self.count(turn) {
            let row = turn.part * ROWS + r;
            let mut weights = [s.splat(0.0); KEYS];
            let weights = &mut weights[..KEYS / S::LANES];
            load_row(s, scores, r, factor, self.word(turn, r), weights);
            exp2_minus_all(s, weights, s.splat(self.tile.scratch.maxima[row]));
            for weight in weights {
                self.tile.scratch.sums[row] = s.add(self.tile.scratch.sums[row], *weight);
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

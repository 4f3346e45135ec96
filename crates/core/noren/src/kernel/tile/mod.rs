//! The forward pass of one tile. The algorithm is written once for every processor path.
//!
//! A tile is a few dozen query rows of one or more heads that read the same keys. Keys are read in blocks of at most 64
//! keys, or 128 keys if all cells are allowed. For each block, the scores of all rows are computed and turned into
//! weights, and the weighted values are added: an *online* softmax (Milakov and Gimelshein 2018; Dao et al. 2022).
//!
//! Three properties of the algorithm ensure that every bit of a row's result depends only on the keys and values that
//! the row may read:
//!
//! * Scores are in base 2, and the running maximum is rounded up to an *integer*. When the maximum rises, earlier sums
//!   are multiplied by a power of two, which causes no rounding.
//! * Outputs add one key at a time in the plan's order of keys; pairs of keys, or tiles of 32 keys, if words are pairs, which
//!   begin where content begins. A denominator has one sum for each lane; the lane of a
//!   key is its place in this order modulo `LANES`. A tree of additions adds the lanes ([`Simd::reduce_add`]). The
//!   result of the tree is the same if all keys move by the same number of lanes.
//! * The scores of hidden cells are replaced by minus infinity, so that their weights are 0, whatever the scores were.
//!   If a hidden value may be infinite or NaN, the product of weight and value is left out.

mod ends;
mod softmax;
pub(crate) mod split;
mod stage_memory;
mod stages;

use super::simd::{Kernel, Product, Simd, floats, group, zeroed};
use crate::kernel::arrays::ahead::{Ahead, Upcoming};
use crate::kernel::arrays::rows::{Rows, SharedRows};
use crate::kernel::keys::blocks::{Cells, KeyBlock, KeyBlocks, Segments, fill_words};
use crate::kernel::keys::pack::{Block, BlockScratch, Source};
use crate::kernel::keys::store::Reads;
use crate::kernel::math::exp::{NOTHING, exp2_minus_all};
use crate::kernel::math::micro::{self, BLOCK, WIDE};
use crate::kernel::math::scores::{Modifiers, Place};
use noren_mask::Plan;
use softmax::{MOST_ROWS, Weigh};
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::OnceLock;

/// The maximum number of query rows in a job (the unit of work of one thread): a multiple of the rows of a register
/// tile on every processor path. With so many rows, a block of keys is used many times after it is loaded from a
/// distant cache.
pub(crate) const ROWS: usize = 96;

/// The data that all jobs (units of work, each for one thread) of a forward pass share.
pub(crate) struct Context<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) q: Rows<'a>,
    /// The index of the first row of each batch row, if the arrays of queries and outputs hold the rows of all batch
    /// rows one after another (ragged queries); otherwise `None`.
    pub(crate) starts: Option<&'a [usize]>,
    pub(crate) modifiers: Modifiers<'a>,
    /// Mask bits that several jobs share, for mixed blocks (blocks with allowed and hidden cells). The first job that
    /// needs an entry computes it. [`Job::bits`] is the index of a job's entry.
    pub(crate) bits: Vec<OnceLock<Box<[u64]>>>,
    /// The division of the keys of each pattern of the plan into segments; empty before the processor path is chosen.
    pub(crate) segments: Vec<Segments>,
    pub(crate) out: SharedRows<'a>,
    pub(crate) lse: Option<SharedRows<'a>>,
}

impl Context<'_> {
    /// Returns the index `[batch, head, row]` of the query of `at` in the array of queries. The output of the query has
    /// the same index in the array of outputs.
    #[inline(always)]
    pub(crate) fn row(&self, at: Place) -> [usize; 3] {
        match self.starts {
            None => [at.batch, at.head, at.row],
            Some(starts) => [0, at.head, starts[at.batch] + at.row],
        }
    }
}

/// A unit of work for one thread: the query rows at the places `rows`, for each of the heads `heads`. A place is an
/// index in the plan's order of queries. The heads have the same pattern (set of allowed cells) and the same key-value
/// head.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    pub(crate) batch: usize,
    pub(crate) heads: Range<usize>,
    pub(crate) pattern: usize,
    pub(crate) tile: usize,
    pub(crate) rows: Range<usize>,
    /// The index in [`Context::bits`] of the mask bits that this job shares with jobs of other heads; `None` if the job
    /// computes its own mask bits.
    pub(crate) bits: Option<usize>,
}

/// The memory of one thread, used for one job (unit of work) after another.
pub(crate) struct Scratch<S: Simd> {
    /// The query rows of the current job (unit of work), in the plan's order of queries.
    rows: Vec<usize>,
    /// Queries, `[rows][words]`. If words are `f32`, the queries are multiplied by `query_factor`; pairs of `bf16` are
    /// not.
    queries: Vec<S::V>,
    /// A buffer for one query before the query is copied to `queries`.
    query: Vec<f32>,
    /// First the scores, then the weights, of a phase, `[S::PHASE][WIDE]`. Pairs of `bf16` take the first half of a row.
    scores: Vec<S::V>,
    /// For each row, the sum of weighted values, `[rows][v_width]`.
    acc: Vec<S::V>,
    /// For each band of rows ([`Simd::BAND`]), whether `acc` has sums of the current job.
    begun: Vec<bool>,
    /// For each row, the sum of weights as a vector: lane `i` has the sum over the keys of lane `i`.
    sums: Vec<S::V>,
    /// For each row, the sum of the weights that are rounded to `bf16`, as a vector like those in `sums`.
    rounded: Vec<S::V>,
    /// The running maximum of each row's scores, rounded up to an integer; `NOTHING` at first.
    maxima: Vec<f32>,
    /// The mask bits of the current block of keys, one word for each row. Bit 0 is the first key of the block.
    words: Vec<u64>,
    block: BlockScratch<S>,
    line: Vec<S::V>,
    /// The memory for stages, and for what is between two of them, on a path that multiplies tiles.
    stages: Option<stage_memory::Memory<S>>,
    buffers: Option<stage_memory::Buffers<S>>,
}

impl<S: Simd> Scratch<S> {
    /// Allocates memory for `rows` query rows. A query has `head_dim` numbers, stored in `words` words, and an output
    /// has `v_width` words. A word is one `f32` number or a pair of `bf16` numbers.
    pub(crate) fn new(rows: usize, head_dim: usize, words: usize, v_width: usize) -> Self {
        const { assert!(S::PHASE.is_multiple_of(S::BAND) && S::PHASE <= MOST_ROWS) };
        // Tiles of rows are computed as a whole, two at a time.
        let whole = if S::BAND > S::ROWS { S::PHASE } else { S::BAND };
        let (width, rows) = (v_width / S::LANES, rows.next_multiple_of(whole));
        Scratch {
            rows: Vec::new(),
            queries: zeroed((rows * words).div_ceil(S::LANES)),
            query: vec![0.0; head_dim],
            scores: zeroed(S::PHASE * WIDE / S::LANES),
            acc: zeroed(rows * width),
            begun: vec![false; rows / S::BAND],
            sums: zeroed(rows),
            rounded: zeroed(rows),
            maxima: vec![NOTHING; rows],
            words: vec![0; rows],
            block: BlockScratch::new(WIDE, words, v_width),
            line: zeroed(width),
            stages: None,
            buffers: None,
        }
    }
}

/// A job (query rows that one thread computes) with its inputs, outputs and scratch memory.
pub(crate) struct TileKernel<'a, 'b, S: Simd, P> {
    pub(crate) context: &'a Context<'b>,
    pub(crate) job: &'a Job,
    pub(crate) source: Source<'a, 'b, S, P>,
    /// A range that contains all keys of the key-value head that a query row may read.
    pub(crate) key_range: Range<usize>,
    /// The rows that the thread will use next, its outputs among them, which are prefetched during the products. If it is
    /// `None`, the outputs are prefetched before.
    pub(crate) ahead: Option<Upcoming>,
    pub(crate) scratch: &'a mut Scratch<S>,
}

/// Returns the smallest range of keys of a block that contains every key that at least one row reads. The first key of
/// the block has the index 0. `words` has the mask bits of each row for the block.
#[inline(always)]
pub(crate) fn needed_keys(words: &[u64]) -> Range<usize> {
    match words.iter().fold(0, |or, word| or | word) {
        0 => 0..0,
        or => or.trailing_zeros() as usize..BLOCK - or.leading_zeros() as usize,
    }
}

/// Divides the rows of a phase into parts that are computed together. `needed` has the keys that each register tile of rows
/// needs; `same` is true for two of them if their register tiles may be in one part. Returns each part as `(rows, keys that
/// its first register tile needs)`, without the parts that need no keys.
#[inline(always)]
fn parts<'a, S: Simd>(
    rows: &Range<usize>,
    needed: &'a [Range<usize>],
    same: impl Fn(&Range<usize>, &Range<usize>) -> bool + 'a,
) -> impl Iterator<Item = (Range<usize>, &'a Range<usize>)> {
    let (mut from, end) = (rows.start, rows.end);
    needed.chunk_by(same).filter_map(move |tiles| {
        let part = from..end.min(from + tiles.len() * S::BAND);
        from = part.end;
        (!tiles[0].is_empty()).then_some((part, &tiles[0]))
    })
}

/// Some jobs, which the thread computes one after another, or with tiles together.
pub(crate) struct Together<'t, 'a, 'b, S: Simd, P>(pub(crate) &'t mut [TileKernel<'a, 'b, S, P>]);

impl<S: Simd, P: Product> Kernel<S> for Together<'_, '_, '_, S, P> {
    #[inline(always)]
    fn run(self, s: S) {
        let _tiles = P::configure();
        if self.0.iter().all(|tile| tile.in_stages()) {
            return TileKernel::run_together(s, self.0);
        }
        for tile in self.0 {
            tile.start(s);
            let blocks = tile.blocks();
            let mut known = tile.known(&blocks);
            for block in blocks {
                let known = if block.cells == Cells::Mixed { known.as_mut().and_then(Iterator::next) } else { None };
                tile.block(s, &block, known);
            }
            tile.finish(s);
        }
    }
}

impl<'a, S: Simd, P: Product> TileKernel<'a, '_, S, P> {
    /// Returns the blocks of keys that the tile reads.
    fn blocks(&self) -> KeyBlocks<'a> {
        let context: &'a Context<'_> = self.context;
        let tile = context.plan.patterns()[self.job.pattern].tile(self.job.tile);
        // Soft weights of 0 hide cells of full blocks, which then need mask bits for each row.
        let widest = if context.modifiers.soften() || self.in_stages() { BLOCK } else { WIDE };
        let (key_range, lanes, page) =
            (self.key_range.clone(), group::<S, P>(), self.source.page(self.row_count() <= S::BAND));
        let segments = &context.segments[self.job.pattern];
        KeyBlocks { spans: tile.spans, key_range, segments, lanes, widest, page, next: 0 }
    }

    /// Returns the mask bits of the mixed blocks among `blocks`, if this job shares them with jobs of other heads.
    #[inline(always)]
    fn known(&self, blocks: &KeyBlocks<'_>) -> Option<std::slice::ChunksExact<'a, u64>> {
        let context: &'a Context<'_> = self.context;
        let cell = &context.bits[self.job.bits?];
        // Computed outside the cell, so that a user's closure may also run this computation.
        let words = cell.get().unwrap_or_else(|| {
            let words = self.all_words(blocks.clone());
            // A user's function may have used the tile unit.
            drop(P::configure());
            cell.get_or_init(|| words)
        });
        Some(words.chunks_exact(self.job.rows.len()))
    }

    fn row_count(&self) -> usize {
        self.job.heads.len() * self.job.rows.len()
    }

    /// Returns the place of the cell of row `r` of the job and key `key`. The rows of the job are all rows of its first
    /// head, then all rows of its second head, and so on.
    #[inline(always)]
    fn place(&self, r: usize, key: usize) -> Place {
        let Job { batch, heads, rows, .. } = self.job;
        Place { batch: *batch, head: heads.start + r / rows.len(), row: self.scratch.rows[r % rows.len()], key }
    }

    /// Returns the mask bits of all mixed blocks (blocks of keys with allowed and hidden cells) in `blocks`, one block
    /// after another, with one word for each row of one head.
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

    /// Writes the mask bits of a block to `words` of the scratch memory, one word for each row, and returns true. If
    /// every cell of the block is allowed, returns false without writing. `known` has the mask bits of the block for
    /// the rows of one head if they are already computed; otherwise it is `None`.
    #[inline(always)]
    fn mask(&mut self, block: &KeyBlock, known: Option<&[u64]>) -> bool {
        let KeyBlock { keys, cells, .. } = block;
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
                        drop(P::configure());
                    }
                }
                for head in 1..heads.len() {
                    words.copy_within(..rows.len(), head * rows.len());
                }
                true
            }
        };
        self.clear_zero_weights(keys.start, keys.len());
        masked
    }

    /// Adds a block of keys to the sums of all rows. `known` has the mask bits of the block for the rows of one head if
    /// they are already computed; otherwise it is `None`.
    #[inline(always)]
    fn block(&mut self, s: S, key_block: &KeyBlock, known: Option<&[u64]>) {
        let masked = self.mask(key_block, known);
        let KeyBlock { keys, groups, .. } = key_block;
        // The block borrows this scratch memory, so the memory is moved out of `self` while the block is used.
        let rows = self.row_count();
        let mut scratch = std::mem::replace(&mut self.scratch.block, BlockScratch::empty());
        let source = self.source;
        let reads = Reads { once: rows <= S::BAND, masked };
        let block = source.block(s, key_block, reads, &mut scratch);
        for phase in (0..rows).step_by(S::PHASE) {
            self.phase(s, phase..rows.min(phase + S::PHASE), keys.start, &block, groups.len(), masked);
        }
        self.scratch.block = scratch;
    }

    /// Sets the mask bits of cells to 0 whose soft weight is below 2^-100, because such cells are not allowed. The
    /// current block begins at key `key` and has `keys` keys.
    fn clear_zero_weights(&mut self, key: usize, keys: usize) {
        if self.context.modifiers.soften() {
            for r in 0..self.row_count() {
                let word = self.scratch.words[r];
                self.scratch.words[r] = self.context.modifiers.clear_zero_weights(self.place(r, key), keys, word);
            }
        }
    }

    /// Computes the scores and weights of rows `rows` for a block, and adds the weighted values to the outputs. The
    /// block begins at key `key` and has `groups` lane groups (consecutive keys that the kernels read together).
    /// `masked` is true if some cells of the block may be hidden.
    ///
    /// For each register tile of rows, keys of the block that none of its rows reads are left out. Register tiles that need
    /// the same keys are computed together: the kernels use a register tile of keys or values for all their rows before the
    /// next one.
    #[inline(always)]
    fn phase(&mut self, s: S, rows: Range<usize>, key: usize, block: &Block<'_, S>, groups: usize, masked: bool) {
        let words = self.source.words();
        let per_row = WIDE / S::LANES;
        // The keys that at least one row of each register tile reads.
        let mut needed = [const { 0..0 }; MOST_ROWS];
        let tiles = rows.len().div_ceil(S::BAND);
        for (tile, needed) in needed[..tiles].iter_mut().enumerate() {
            let from = rows.start + tile * S::BAND;
            *needed = match masked {
                true => needed_keys(&self.scratch.words[from..rows.end.min(from + S::BAND)]),
                false => 0..groups * group::<S, P>(),
            };
        }
        let needed = &needed[..tiles];
        let lane_groups = |keys: &Range<usize>| keys.start / group::<S, P>()..keys.end.div_ceil(group::<S, P>());
        // The kernels that read the memory of a cache compute one register tile.
        let together = block.far.is_none();
        let same_groups = |a: &_, b: &_| together && lane_groups(a) == lane_groups(b);
        let same_keys = |a: &_, b: &_| together && a == b;

        let scratch = &mut *self.scratch;
        for (part, keys) in parts::<S>(&rows, needed, same_groups) {
            let groups = lane_groups(keys);
            let vectors = groups.start * P::TERMS..groups.end * P::TERMS;
            let queries = &floats(&scratch.queries)[part.start * words..];
            let scores = &mut scratch.scores[(part.start - rows.start) * per_row..];
            let scores = &mut scores[vectors.start..];
            let skip = vectors.start * words;
            match block.far.filter(|_| part.start == 0) {
                Some([keys, _]) => keys.scores::<S, P>(s, part.len(), queries, skip, words, vectors.len(), scores),
                None => {
                    micro::scores::<S, P>(s, part.len(), queries, &block.keys[skip..], words, vectors.len(), scores);
                }
            }
        }
        for (part, keys) in parts::<S>(&rows, needed, same_groups) {
            let at = (part.start - rows.start) * per_row;
            self.weigh(s, part, at, key, lane_groups(keys), masked);
        }
        for (part, keys) in parts::<S>(&rows, needed, same_keys) {
            let at = (part.start - rows.start) * per_row;
            self.add_values(s, part, at, keys, block, masked);
        }
    }

    /// Adds the weighted values of the keys `keys` of a block to the sums of the rows `part`: all rows of a phase, or those of
    /// a register tile. The weights of the rows begin at vector `at` of `scores`. `masked` is true if some cells of the block
    /// may be hidden.
    #[inline(always)]
    fn add_values(
        &mut self,
        s: S,
        part: Range<usize>,
        at: usize,
        keys: &Range<usize>,
        block: &Block<'_, S>,
        masked: bool,
    ) {
        let v_width = self.source.v_width();
        let width = v_width / S::LANES;
        let scratch = &mut *self.scratch;
        let weights = &scratch.scores[at..];
        let acc = &mut scratch.acc[part.start * width..];
        let begun = &mut scratch.begun[part.start / S::BAND..part.end.div_ceil(S::BAND)];
        let far = block.far.filter(|_| part.start == 0);
        let allowed = masked && block.non_finite;
        // `accumulate` begins at 0 itself, if no row of the part has sums yet.
        let first = !begun.contains(&true) && far.is_none() && !allowed;
        if !first && begun.contains(&false) {
            for (begun, acc) in begun.iter().zip(acc.chunks_mut(S::BAND * width)) {
                if !begun {
                    acc.fill(s.splat(0.0));
                }
            }
        }
        begun.fill(true);
        if allowed {
            // A hidden value may be infinite or NaN here, and 0 times such a value is not 0. Only allowed cells are visited.
            let per_row = WIDE / S::LANES;
            for (r, row) in part.enumerate() {
                let (weights, acc) = (&weights[r * per_row..][..per_row], &mut acc[r * width..][..width]);
                micro::accumulate_allowed::<S, P>(s, weights, scratch.words[row], block.values, acc);
            }
            return;
        }
        let (rows, columns) = (part.len(), 0..width);
        let keys = keys.start / P::TERMS..keys.end.div_ceil(P::TERMS);
        match far {
            Some([_, values]) => values.accumulate::<S, P>(s, rows, weights, keys, v_width, columns, acc),
            None => {
                let mut nothing = Ahead::nothing();
                let ahead = self.ahead.as_mut().map_or(&mut nothing, Upcoming::current);
                let values = block.values;
                micro::accumulate::<S, P>(s, first, rows, weights, keys, values, v_width, columns, acc, ahead);
            }
        }
    }

    /// Applies softcap and bias to the scores of row `r` in the lane groups `groups` of a block (consecutive keys that
    /// the kernels read together). Scores of hidden cells are not replaced yet. If words are pairs of `bf16`, first
    /// multiplies the scores by `query_factor`. The scores of the row begin at vector `at` of `scores`, and the block
    /// begins at key `key`. Returns the number of keys from the first key of the block to the last key of `groups`.
    #[inline(always)]
    fn modify(&mut self, s: S, r: usize, at: usize, key: usize, groups: Range<usize>) -> usize {
        let per_row = WIDE / S::LANES;
        let modifiers = &self.context.modifiers;
        let keys = (groups.end * group::<S, P>()).min(self.source.kv_len() - key);
        if P::TERMS == 2 {
            let factor = s.splat(modifiers.query_factor);
            let vectors = at + groups.start * P::TERMS..at + groups.end * P::TERMS;
            self.scratch.scores[vectors].iter_mut().for_each(|x| *x = s.mul(*x, factor));
        }
        if modifiers.change_scores() {
            modifiers.apply(s, self.place(r, key), keys, &mut self.scratch.scores[at..][..per_row]);
        }
        keys
    }

    /// Turns the scores of the rows `part` in the lane groups `groups` of a block (consecutive keys that the kernels read
    /// together) into weights, and adds the weights to the sums of the rows. The scores of the rows begin at vector `at` of
    /// `scores`, and the block begins at key `key`. `masked` is true if some cells of the block may be hidden.
    #[inline(always)]
    fn weigh(&mut self, s: S, part: Range<usize>, at: usize, key: usize, groups: Range<usize>, masked: bool) {
        let per_row = WIDE / S::LANES;
        let modifiers = &self.context.modifiers;
        if modifiers.soften() || modifiers.dropout.is_some() {
            for (i, r) in part.enumerate() {
                self.weigh_modified(s, r, at + i * per_row, key, groups.clone(), masked);
            }
            return;
        }
        let scale = if modifiers.change_scores() {
            for (i, r) in part.clone().enumerate() {
                self.modify(s, r, at + i * per_row, key, groups.clone());
            }
            None
        } else {
            (P::TERMS == 2).then(|| s.splat(modifiers.query_factor))
        };
        s.run(Weigh { scale, ..self.softmax(part, at, groups, masked) });
    }

    /// Returns the softmax of the rows `part`, for complete scores. For the arguments, see [`weigh`](Self::weigh).
    #[inline(always)]
    fn softmax(&mut self, part: Range<usize>, at: usize, groups: Range<usize>, masked: bool) -> Weigh<'_, S, P> {
        let width = self.source.v_width() / S::LANES;
        let scratch = &mut *self.scratch;
        Weigh {
            scores: &mut scratch.scores[at..],
            first: groups.start,
            vectors: groups.len() * P::TERMS,
            words: masked.then(|| &scratch.words[part.clone()]),
            scale: None,
            maxima: &mut scratch.maxima[part.clone()],
            sums: &mut scratch.sums[part.clone()],
            rounded: &mut scratch.rounded[part.clone()],
            acc: &mut scratch.acc[part.start * width..part.end * width],
            only_maxima: false,
            product: PhantomData,
        }
    }

    /// The computation of [`weigh`](Self::weigh) for row `r`, with soft weights or dropout.
    #[inline(always)]
    fn weigh_modified(&mut self, s: S, r: usize, at: usize, key: usize, groups: Range<usize>, masked: bool) {
        let per_row = WIDE / S::LANES;
        let keys = self.modify(s, r, at, key, groups.clone());
        s.run(Weigh { only_maxima: true, ..self.softmax(r..r + 1, at, groups.clone(), masked) });
        let place = self.place(r, key);
        let modifiers = &self.context.modifiers;
        let scratch = &mut *self.scratch;
        let vectors = at + groups.start * P::TERMS..at + groups.end * P::TERMS;
        exp2_minus_all(s, &mut scratch.scores[vectors.clone()], s.splat(scratch.maxima[r]));
        if modifiers.soften() {
            modifiers.multiply_weights(s, place, keys, scratch.words[r], &mut scratch.scores[at..][..per_row]);
        }
        for weight in &scratch.scores[vectors.clone()] {
            scratch.sums[r] = s.add(scratch.sums[r], *weight);
        }
        if P::TERMS == 2 {
            let weights = &scratch.scores[at..][..per_row];
            for pair in groups.clone() {
                let [low, high] = s.unpair(s.pair_neighbours(weights[2 * pair], weights[2 * pair + 1]));
                scratch.rounded[r] = s.add(scratch.rounded[r], s.add(low, high));
            }
        }
        if let Some(dropout) = modifiers.dropout {
            let first = Place { key: key + groups.start * group::<S, P>(), ..place };
            dropout.apply(s, first, modifiers.order(first), &mut scratch.scores[vectors]);
        }
        if P::TERMS == 2 {
            let weights = &mut scratch.scores[at..][..per_row];
            for pair in groups {
                weights[pair] = s.pair_neighbours(weights[2 * pair], weights[2 * pair + 1]);
            }
        }
    }
}

//! The computation of one tile by several threads together. It is used for calls over a key-value cache that have so
//! few tiles that some threads would have no work.
//!
//! In the first step, each thread computes the scores of some keys. Then the maximum of each row is known, and in the
//! second step each thread turns the scores of some keys into weights. In the last step, each thread adds the weighted
//! values in some columns. Each number of the output is therefore a sum over keys in ascending order, as in the
//! computation by one thread. One thread alone uses weights relative to the maximum so far, and multiplies earlier sums
//! by a power of two when the maximum rises. Maxima are integers, so these products are exact, and both computations
//! give the same bits.

use super::TileKernel;
use crate::kernel::arrays::ahead::Ahead;
use crate::kernel::keys::blocks::KeyBlock;
use crate::kernel::keys::pack::BlockScratch;
use crate::kernel::keys::store::Reads;
use crate::kernel::math::exp::{NOTHING, exp2_minus_all};
use crate::kernel::math::micro::{self, BLOCK, WIDE};
use crate::kernel::simd::{Kernel, Product, Simd, floats, group, zeroed};
use std::ops::Range;

/// The maximum number of rows of a tile that several threads compute together. The number is small because all scores
/// of such a tile are in memory at the same time.
pub(crate) const MOST_ROWS: usize = 32;

/// Some blocks of keys of a tile, with the scores (later the weights) of all rows of the tile for these keys.
pub(crate) struct Part<S: Simd> {
    blocks: Vec<KeyBlock>,
    /// First the scores, later the weights, `[blocks][rows][WIDE]`.
    scores: Vec<S::V>,
    /// Mask words, `[blocks][rows]`, one bit for each key. If all cells of a block are allowed, all bits of its words
    /// are set.
    words: Vec<u64>,
    /// The maximum score of each row in the blocks of this part, rounded up to an integer.
    maxima: Vec<f32>,
}

/// One step of the computation of a tile by several threads.
pub(crate) enum Task<'c, S: Simd> {
    /// Divides the blocks of keys of the tile into parts (each with some consecutive blocks). The fields are the
    /// maximum number of parts, and the list to which the parts are added.
    Cut(usize, &'c mut Vec<Part<S>>),
    Score(&'c mut Part<S>),
    /// Turns the scores of a part (some blocks of keys of the tile) into weights. The slice has the maximum of each row
    /// over all parts.
    Weigh(&'c mut Part<S>, &'c [f32]),
    /// Adds the weighted values of a range of columns. The fields are the parts (each with the weights of some blocks
    /// of keys), the range of columns in vectors, and the memory for the sums.
    Accumulate(&'c [Part<S>], Range<usize>, &'c mut Vec<S::V>),
    /// Adds the weights of each row, combines the sums of all ranges of output columns, and writes outputs and
    /// log-sum-exps. The fields are the parts (each with the weights of some blocks of keys), the maximum of each row,
    /// and the sums of each range of output columns.
    Finish(&'c [Part<S>], &'c [f32], &'c [(Range<usize>, Vec<S::V>)]),
}

/// One task and the tile on which the task works.
pub(crate) struct SplitKernel<'a, 'b, 'c, S: Simd, P> {
    pub(crate) tile: TileKernel<'a, 'b, S, P>,
    pub(crate) task: Task<'c, S>,
}

impl<S: Simd, P: Product> Kernel<S> for SplitKernel<'_, '_, '_, S, P> {
    #[inline(always)]
    fn run(self, s: S) {
        let SplitKernel { mut tile, task } = self;
        let _tiles = P::configure();
        match task {
            Task::Cut(most, parts) => tile.cut(most, parts),
            Task::Score(part) => tile.score(s, part),
            Task::Weigh(part, maxima) => tile.weigh_part(s, part, maxima),
            Task::Accumulate(parts, columns, acc) => tile.accumulate(s, parts, columns, acc),
            Task::Finish(parts, maxima, columns) => tile.put_together(s, parts, maxima, columns),
        }
    }
}

impl<S: Simd> Part<S> {
    /// Returns the maximum of each row over all parts (groups of blocks of keys).
    pub(crate) fn maxima(parts: &[Part<S>]) -> Vec<f32> {
        let rows = parts.first().map_or(0, |part| part.maxima.len());
        (0..rows).map(|r| parts.iter().map(|part| part.maxima[r]).fold(NOTHING, f32::max)).collect()
    }
}

impl<S: Simd, P: Product> TileKernel<'_, '_, S, P> {
    const PER_ROW: usize = WIDE / S::LANES;

    /// Returns two ranges in `block` that contain all keys that a register tile reads: `(range of lane groups, range of
    /// words of weights)`. `words` has the mask bits of the rows of the register tile.
    fn needed(words: &[u64], block: &KeyBlock) -> (Range<usize>, Range<usize>) {
        let keys = match words.iter().fold(0, |or, word| or | word) {
            0 => 0..0,
            u64::MAX => 0..block.groups.len() * group::<S, P>(),
            or => or.trailing_zeros() as usize..BLOCK - or.leading_zeros() as usize,
        };
        let groups = keys.start / group::<S, P>()..keys.end.div_ceil(group::<S, P>());
        (groups, keys.start / P::TERMS..keys.end.div_ceil(P::TERMS))
    }

    #[inline(always)]
    fn cut(&mut self, most: usize, parts: &mut Vec<Part<S>>) {
        let blocks: Vec<KeyBlock> = self.blocks().collect();
        let each = blocks.len().div_ceil(most).max(1);
        let part = |blocks: &[KeyBlock]| Part {
            blocks: blocks.to_vec(),
            scores: Vec::new(),
            words: Vec::new(),
            maxima: vec![NOTHING; self.row_count()],
        };
        parts.extend(blocks.chunks(each).map(part));
    }

    /// Computes the scores of all rows of the tile for the blocks of keys of `part`. The scores of hidden cells become
    /// minus infinity.
    #[inline(always)]
    fn score(&mut self, s: S, part: &mut Part<S>) {
        self.start(s);
        let (rows, key_words) = (self.row_count(), self.source.words());
        part.scores = zeroed(part.blocks.len() * rows * Self::PER_ROW);
        for (block, scores) in part.blocks.iter().zip(part.scores.chunks_exact_mut(rows * Self::PER_ROW)) {
            if !self.mask(block, None) {
                self.scratch.words[..rows].fill(u64::MAX);
            }
            part.words.extend_from_slice(&self.scratch.words[..rows]);
            let mut scratch = std::mem::replace(&mut self.scratch.block, BlockScratch::empty());
            let source = self.source;
            let reads = Reads { once: rows <= S::BAND, masked: false };
            let (keys, far) = source.keys(s, block, reads, &mut scratch);
            scores.fill(s.splat(f32::NEG_INFINITY));
            for from in (0..rows).step_by(S::BAND) {
                let tile = from..rows.min(from + S::BAND);
                let (groups, _) = Self::needed(&self.scratch.words[tile.clone()], block);
                if groups.is_empty() {
                    continue;
                }
                let vectors = groups.start * P::TERMS..groups.end * P::TERMS;
                let queries = &floats(&self.scratch.queries)[from * key_words..];
                let into = &mut self.scratch.scores[vectors.start..];
                let skip = vectors.start * key_words;
                match far.filter(|_| from == 0) {
                    Some(far) => far.scores::<S, P>(s, tile.len(), queries, skip, key_words, vectors.len(), into),
                    None => {
                        let keys = &keys[skip..];
                        micro::scores::<S, P>(s, tile.len(), queries, keys, key_words, vectors.len(), into);
                    }
                }
                for r in tile {
                    let at = (r - from) * Self::PER_ROW;
                    self.modify(s, r, at, block.keys.start, groups.clone());
                    let word = self.scratch.words[r];
                    let minus_infinity = s.splat(f32::NEG_INFINITY);
                    let mut top = minus_infinity;
                    let into = &mut scores[r * Self::PER_ROW..];
                    for i in vectors.clone() {
                        let mut x = self.scratch.scores[at + i];
                        if word != u64::MAX {
                            x = s.keep(word >> (i * S::LANES), x, minus_infinity);
                        }
                        into[i] = x;
                        top = s.max(x, top);
                    }
                    part.maxima[r] = part.maxima[r].max(s.reduce_max(top).ceil());
                }
            }
            self.scratch.block = scratch;
        }
    }

    /// Turns the scores of `part` (some blocks of keys of the tile) into weights. `maxima` has the maximum of each row
    /// over all parts of the tile.
    #[inline(always)]
    fn weigh_part(&mut self, s: S, part: &mut Part<S>, maxima: &[f32]) {
        self.start(s);
        let (rows, modifiers) = (self.row_count(), &self.context.modifiers);
        for (i, block) in part.blocks.iter().enumerate() {
            let words = &part.words[i * rows..][..rows];
            for (r, word) in words.iter().enumerate() {
                let weights = &mut part.scores[(i * rows + r) * Self::PER_ROW..][..Self::PER_ROW];
                let maximum = s.splat(maxima[r]);
                exp2_minus_all(s, &mut weights[..block.groups.len() * P::TERMS], maximum);
                if modifiers.soften() {
                    let keys = block.keys.len().min(self.source.kv_len() - block.keys.start);
                    modifiers.multiply_weights(s, self.place(r, block.keys.start), keys, *word, weights);
                }
            }
        }
    }

    /// Multiplies values by the weights in `parts` (each with the weights of some blocks of keys), and writes the sums
    /// over keys to `acc`. Computes only the columns `columns`, a range of vectors of each row.
    #[inline(always)]
    fn accumulate(&mut self, s: S, parts: &[Part<S>], columns: Range<usize>, acc: &mut Vec<S::V>) {
        let (rows, v_width) = (self.row_count(), self.source.v_width());
        let width = v_width / S::LANES;
        *acc = zeroed(rows.next_multiple_of(S::BAND) * width);
        let mut weights: Vec<S::V> = zeroed(S::BAND * Self::PER_ROW);
        for part in parts {
            for (i, block) in part.blocks.iter().enumerate() {
                let mut scratch = std::mem::replace(&mut self.scratch.block, BlockScratch::empty());
                let source = self.source;
                let masked = part.words[i * rows..][..rows].iter().any(|word| *word != u64::MAX);
                let reads = Reads { once: rows <= S::BAND, masked };
                let (values, non_finite, far) = source.values(s, block, columns.clone(), reads, &mut scratch);
                for from in (0..rows).step_by(S::BAND) {
                    let tile = from..rows.min(from + S::BAND);
                    let words = &part.words[i * rows..][tile.clone()];
                    let (_, keys) = Self::needed(words, block);
                    let given = &part.scores[(i * rows + from) * Self::PER_ROW..][..tile.len() * Self::PER_ROW];
                    weights[..given.len()].copy_from_slice(given);
                    if P::TERMS == 2 {
                        weights.chunks_exact_mut(Self::PER_ROW).for_each(|row| pair_weights(s, row));
                    }
                    if !non_finite || words.iter().all(|word| *word == u64::MAX) {
                        let (tile, columns) = (tile.len(), columns.clone());
                        let acc = &mut acc[from * width..];
                        match far.filter(|_| from == 0) {
                            Some(far) => far.accumulate::<S, P>(s, tile, &weights, keys, v_width, columns, acc),
                            None => {
                                let nothing = &mut Ahead::nothing();
                                micro::accumulate::<S, P>(
                                    s, false, tile, &weights, keys, values, v_width, columns, acc, nothing,
                                );
                            }
                        }
                        continue;
                    }
                    for (r, word) in words.iter().enumerate() {
                        let row = &mut acc[(from + r) * width..][..width];
                        let weights = &weights[r * Self::PER_ROW..][..Self::PER_ROW];
                        micro::accumulate_allowed::<S, P>(s, weights, *word, values, row);
                    }
                }
                self.scratch.block = scratch;
            }
        }
    }

    /// Adds the weights in `parts` (each with the weights of some blocks of keys) for each row, combines the sums of
    /// all ranges of columns, and calls [`finish`](TileKernel::finish).
    #[inline(always)]
    fn put_together(&mut self, s: S, parts: &[Part<S>], maxima: &[f32], columns: &[(Range<usize>, Vec<S::V>)]) {
        self.start(s);
        let rows = self.row_count();
        let width = self.source.v_width() / S::LANES;
        for part in parts {
            for (i, block) in part.blocks.iter().enumerate() {
                for r in 0..rows {
                    let weights = &part.scores[(i * rows + r) * Self::PER_ROW..][..block.groups.len() * P::TERMS];
                    let sum = &mut self.scratch.sums[r];
                    *sum = weights.iter().fold(*sum, |sum, p| s.add(sum, *p));
                    if P::TERMS == 2 {
                        let sum = &mut self.scratch.rounded[r];
                        for pair in weights.chunks_exact(2) {
                            let [low, high] = s.unpair(s.pair_neighbours(pair[0], pair[1]));
                            *sum = s.add(*sum, s.add(low, high));
                        }
                    }
                }
            }
        }
        self.scratch.maxima[..rows].copy_from_slice(&maxima[..rows]);
        for (columns, acc) in columns {
            for r in 0..rows {
                let columns = r * width + columns.start..r * width + columns.end;
                self.scratch.acc[columns.clone()].copy_from_slice(&acc[columns]);
            }
        }
        self.finish(s);
    }
}

/// Rounds the weights of a row to `bf16`, combines the weights of neighbouring keys into pairs, and writes the pairs to
/// the first half of `weights`.
#[inline(always)]
fn pair_weights<S: Simd>(s: S, weights: &mut [S::V]) {
    for pair in 0..weights.len() / 2 {
        weights[pair] = s.pair_neighbours(weights[2 * pair], weights[2 * pair + 1]);
    }
}

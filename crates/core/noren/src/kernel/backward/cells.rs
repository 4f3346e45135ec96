//! The cells of the backward pass: the softmax weight of each (query, key) pair, and the gradient of its score. Cells
//! are computed for some of the current query rows ([`Queries`]) and one block of keys at a time.

use super::context::{Context, Widths, band, lanes, of_pairs, pieces, step};
use super::keys::{Keys, words};
use super::queries::{PAIRS, Queries, ROWS};
use crate::inputs::options::LOWEST_SCORE;
use crate::kernel::keys::blocks::{Cells, KeyBlock, fill_words};
use crate::kernel::math::exp::{exp2_minus_all, tanh};
use crate::kernel::math::micro::{self, BLOCK, WIDE};
use crate::kernel::math::scores::Place;
use crate::kernel::simd::{Kernel, Product, Simd, floats, floats_mut, zeroed};
use std::f64::consts::LOG2_E;
use std::ops::Range;

/// Returns the number of query rows whose cells are computed together, where the cells are then combined into pairs of
/// `bf16` or passed row by row to a function. The cells, as `f32`, fit in the first-level cache.
pub(super) const fn cells<S: Simd>() -> usize {
    if S::Product::TILES { step::<S>() } else { 24 }
}

/// The quantity whose gradients [`Tables::grads`] holds: scores before the softcap, scores after the softcap, or soft
/// weights.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Of {
    /// Gradients of scores before the softcap, for the gradients of queries and keys.
    Products,
    /// Gradients of scores after the softcap, for the gradients of the bias.
    Scores,
    /// Gradients of soft weights.
    Soft,
}

/// Tables with one number for each cell of some query rows and a block of keys; each row has `WIDE` numbers. The tables
/// have room for all current query rows. On processor paths that multiply pairs of `bf16`, they have room for [`cells`]
/// rows. Only the columns of the lane groups (vectors with one key in each lane) of the current block are valid; other
/// columns hold numbers without meaning and are never used, also in `pairs`.
pub(super) struct Tables<S: Simd> {
    /// First the scores of the cells, later their weights after dropout. If the processor path multiplies pairs of
    /// `bf16`, the weights include `RowStats::factor` of the row. Otherwise [`Queries::dout`] includes this factor, and
    /// the weights do not.
    pub(super) weights: Vec<S::V>,
    /// First the products of `dout` and values, later the gradients of the cells.
    pub(super) grads: Vec<S::V>,
    /// The derivative of the softcap at each score; unused without a softcap.
    slopes: Vec<S::V>,
    /// Weights and gradients as pairs of `bf16`, for all current query rows. Empty on processor paths that multiply
    /// `f32` numbers.
    pub(super) pairs: CellPairs<S>,
}

/// The cells of all current query rows as pairs of `bf16`.
pub(super) struct CellPairs<S: Simd> {
    /// Pairs of the weights of one key in two neighbouring rows, `[pairs of rows][WIDE]`, for the gradients of values.
    pub(super) weights_for_keys: Vec<S::V>,
    /// Pairs of the gradients of one key in two neighbouring rows, `[pairs of rows][WIDE]`, for the gradients of keys.
    pub(super) grads_for_keys: Vec<S::V>,
    /// Pairs of the gradients of two neighbouring keys in one row, `[rows][WIDE]`, for the gradients of queries. Only the
    /// first half of each row is used.
    pub(super) grads_for_queries: Vec<S::V>,
}

/// A block of keys that the current query rows read.
#[derive(Clone, Debug)]
pub(super) struct Block {
    /// The index of the first key of the block.
    pub(super) key: usize,
    /// The lane groups (vectors with one key in each lane) that hold the keys of the block.
    pub(super) groups: Range<usize>,
    /// Whether some cells of the block may be hidden. If true, [`Queries::words`] holds the mask bits; if false, all
    /// cells are allowed.
    pub(super) masked: bool,
}

impl<S: Simd> Tables<S> {
    pub(super) fn new() -> Self {
        let table = |rows: usize| zeroed(rows * WIDE / S::LANES);
        let (rows, pairs) = if of_pairs::<S>() { (cells::<S>(), PAIRS) } else { (ROWS, 0) };
        Tables {
            weights: table(rows),
            grads: table(rows),
            slopes: table(rows),
            pairs: CellPairs {
                weights_for_keys: table(pairs),
                grads_for_keys: table(pairs),
                grads_for_queries: table(2 * pairs),
            },
        }
    }

    /// Combines the cells of some rows into pairs and writes them to `self.pairs`, for the first `groups` lane groups of
    /// each row. Row 0 of the tables is the first of these rows. A lane group is a vector with one key in each lane. If
    /// `groups` is odd, one more lane group is combined; its numbers have no meaning, and they fill words of their own.
    #[inline(always)]
    fn pair_up(&mut self, s: S, rows: &Range<usize>, groups: usize) {
        for pair in pairs::<S>(rows) {
            for group in (0..groups).step_by(2) {
                let zeros = [[s.splat(0.0); 2]; 2];
                let (mut weights, mut grads) = (zeros, zeros);
                for half in 0..2 {
                    if let Some(row) = row_of(rows, pair, half) {
                        let at = row * WIDE / S::LANES + group;
                        weights[half].copy_from_slice(&self.weights[at..at + 2]);
                        grads[half].copy_from_slice(&self.grads[at..at + 2]);
                    }
                }
                self.pairs.write(s, rows, pair, group, weights, grads);
            }
        }
    }
}

/// Returns the indices of the pairs of the rows `rows`, up to a multiple of [`step`] rows. Rows and pairs are counted from
/// the first of the current query rows.
#[inline(always)]
fn pairs<S: Simd>(rows: &Range<usize>) -> Range<usize> {
    rows.start / 2..rows.end.next_multiple_of(step::<S>()) / 2
}

/// Returns row `half` (0 or 1) of a pair, counted from the first of `rows`, or `None` if it is after the last one.
#[inline(always)]
fn row_of(rows: &Range<usize>, pair: usize, half: usize) -> Option<usize> {
    let row = 2 * pair + half - rows.start;
    (row < rows.len()).then_some(row)
}

impl<S: Simd> CellPairs<S> {
    /// Writes the cells of a pair of rows, in `N` lane groups from `group` on; `N` is even. `weights` and `grads` have the
    /// cells of both rows. For a row that is not one of `rows`, they have zeros.
    #[inline(always)]
    fn write<const N: usize>(
        &mut self,
        s: S,
        rows: &Range<usize>,
        pair: usize,
        group: usize,
        weights: [[S::V; N]; 2],
        grads: [[S::V; N]; 2],
    ) {
        let per_row = WIDE / S::LANES;
        for i in 0..N / 2 {
            let at = pair * per_row + group + 2 * i;
            let mut both = [s.splat(0.0); 2];
            for half in 0..2 {
                both[half] = s.pair_neighbours(weights[half][2 * i], weights[half][2 * i + 1]);
            }
            self.weights_for_keys[at..at + 2].copy_from_slice(&s.zip_pairs(both[0], both[1]));
            for half in 0..2 {
                both[half] = s.pair_neighbours(grads[half][2 * i], grads[half][2 * i + 1]);
                if let Some(row) = row_of(rows, pair, half) {
                    self.grads_for_queries[(rows.start + row) * per_row + group / 2 + i] = both[half];
                }
            }
            self.grads_for_keys[at..at + 2].copy_from_slice(&s.zip_pairs(both[0], both[1]));
        }
    }
}

/// Returns the smallest range of keys of a block that contains every key that at least one row may read. The first key
/// of the block has the index 0. `words` has the mask bits of each row. If `masked` is false, returns `0..keys`, the
/// whole block.
#[inline(always)]
pub(super) fn needed(words: &[u64], masked: bool, keys: usize) -> Range<usize> {
    match words.iter().fold(0, |or, word| or | word) {
        _ if !masked => 0..keys,
        0 => 0..0,
        or => or.trailing_zeros() as usize..BLOCK - or.leading_zeros() as usize,
    }
}

/// Writes the mask bits of a block to [`Queries::words`], and returns the block in the form that the backward pass
/// uses.
#[inline(always)]
pub(super) fn prepare<S: Simd>(context: &Context<'_>, queries: &mut Queries<S>, block: &KeyBlock) -> Block {
    let rows = queries.rows.clone();
    let words = &mut queries.words[..rows.len()];
    let mut masked = true;
    match block.cells {
        Cells::Full if context.modifiers.soften() || queries.dead => {
            words.fill(u64::MAX >> (BLOCK - (block.groups.len() * S::LANES).min(BLOCK)));
        }
        Cells::Full => masked = false,
        Cells::Uniform(word) => words.fill(word),
        Cells::Mixed => {
            let pattern = context.plan.pattern_of(queries.batch, queries.head);
            fill_words(&context.plan.patterns()[pattern], &rows, &block.keys, words);
            // A user's function may have used the tile unit.
            drop(S::Product::configure());
        }
    }
    if context.modifiers.soften() {
        for (row, word) in rows.zip(words.iter_mut()) {
            let at = Place { batch: queries.batch, head: queries.head, row, key: block.keys.start };
            *word = context.modifiers.clear_zero_weights(at, block.keys.len(), *word);
        }
    }
    if queries.dead {
        let dead = queries.factors[..words.len()].iter().zip(words).filter(|(factor, _)| **factor == 0.0);
        dead.for_each(|(_, word)| *word = 0);
    }
    let vectors = lanes::<S>() / S::LANES;
    Block { key: block.keys.start, groups: block.groups.start * vectors..block.groups.end * vectors, masked }
}

/// The inputs from which cells are computed, and the tables to which the cells are written.
pub(super) struct Maker<'a, 'b, S: Simd> {
    pub(super) context: &'a Context<'b>,
    pub(super) queries: &'a Queries<S>,
    pub(super) keys: &'a Keys<S>,
    pub(super) tables: &'a mut Tables<S>,
}

/// The operands of a matrix product. `left` holds rows of queries or of `dout`, and `right` holds the keys or values of
/// a block as lane groups (vectors with one key in each lane). Each row, and each key or value, has `words` words of 32
/// bits.
struct Operands<'a, S: Simd> {
    left: &'a [S::V],
    right: &'a [S::V],
    words: usize,
}

impl<S: Simd> Operands<'_, S> {
    /// Multiplies the rows `rows` of `left` by lane groups (vectors with one key in each lane) of `right`, and writes
    /// the products to `into`. Lane groups at the ends whose keys no row of a register tile reads are omitted.
    #[inline(always)]
    fn multiply(self, s: S, queries: &Queries<S>, block: &Block, rows: Range<usize>, into: &mut [S::V]) {
        let Operands { left, right, words } = self;
        for tile in pieces(rows.clone(), band::<S>()) {
            let needed = needed(&queries.words[tile.clone()], block.masked, block.groups.len() * S::LANES);
            let groups = needed.start / S::LANES..needed.end.div_ceil(S::LANES);
            if !groups.is_empty() {
                let into = &mut into[(tile.start - rows.start) * (WIDE / S::LANES) + groups.start..];
                let left = &floats(left)[tile.start * words..];
                let right = &right[groups.start * words..];
                micro::scores::<S, S::Product>(s, tile.len(), left, right, words, groups.len(), into);
            }
        }
    }
}

impl<S: Simd> Maker<'_, '_, S> {
    /// Computes the cells of the rows `rows` and the keys of `block`. The row index 0 is the first of the current query
    /// rows, and the tables must have room for the rows. If `of` is `None`, computes only the matrix products from which
    /// the cells are derived.
    #[inline(always)]
    pub(super) fn make(self, s: S, block: &Block, rows: Range<usize>, of: Option<Of>) {
        s.run(Make { maker: self, block, rows, of, paired: false });
    }

    /// Computes the cells of the rows `rows`, at most [`cells`], and the keys of `block` as pairs of `bf16`, which it writes
    /// to [`Tables::pairs`]. The first row must be a multiple of [`step`].
    #[inline(always)]
    pub(super) fn make_pairs(self, s: S, block: &Block, rows: Range<usize>) {
        s.run(Make { maker: self, block, rows, of: Some(Of::Products), paired: true });
    }

    /// Turns the matrix products of the given rows into weights and gradients, and combines them into pairs in registers,
    /// without writing them to the tables as `f32`. The block must have no hidden cells, the call no softcap, bias, soft
    /// weights or dropout, and the current query rows no careful row. Lane groups are combined in twos or fours, as in
    /// [`Tables::pair_up`].
    #[inline(always)]
    fn weigh_pairs(&mut self, s: S, block: &Block, rows: &Range<usize>) {
        for pair in pairs::<S>(rows) {
            let mut group = 0;
            while group < block.groups.len() {
                if block.groups.len() - group > 2 {
                    self.weigh_pair::<4>(s, rows, pair, group);
                    group += 4;
                } else {
                    self.weigh_pair::<2>(s, rows, pair, group);
                    group += 2;
                }
            }
        }
    }

    /// Computes the part of [`weigh_pairs`](Self::weigh_pairs) for a pair of rows and `N` lane groups from `group` on.
    #[inline(always)]
    fn weigh_pair<const N: usize>(&mut self, s: S, rows: &Range<usize>, pair: usize, group: usize) {
        let zeros = [[s.splat(0.0); N]; 2];
        let (mut weights, mut grads) = (zeros, zeros);
        let scale = s.splat(self.context.modifiers.query_factor);
        for half in 0..2 {
            let Some(row) = row_of(rows, pair, half) else { continue };
            let at = row * WIDE / S::LANES + group;
            let (weights, grads, r) = (&mut weights[half], &mut grads[half], rows.start + row);
            weights.copy_from_slice(&self.tables.weights[at..at + N]);
            grads.copy_from_slice(&self.tables.grads[at..at + N]);
            let [top, delta, factor] =
                [self.queries.tops[r], self.queries.deltas[r], self.queries.factors[r]].map(|x| s.splat(x));
            RowCells { word: None, scale: Some(scale), top, delta, factor }.weigh(s, weights, grads);
        }
        self.tables.pairs.write(s, rows, pair, group, weights, grads);
    }

    /// Turns the matrix products of the rows `rows` into weights and gradients of cells. The row index 0 is the first
    /// of the current query rows.
    #[inline(always)]
    fn weigh_rows(&mut self, s: S, block: &Block, rows: Range<usize>, of: Of) {
        for tile in rows.clone().step_by(S::ROWS).map(|from| from..rows.end.min(from + S::ROWS)) {
            let needed = needed(&self.queries.words[tile.clone()], block.masked, block.groups.len() * S::LANES);
            let groups = needed.start / S::LANES..needed.end.div_ceil(S::LANES);
            for r in tile {
                let slot = (r - rows.start) * (WIDE / S::LANES);
                if !groups.is_empty() {
                    self.weigh(s, block, r, slot, groups.clone(), of);
                    if block.masked && self.queries.words[r].is_power_of_two() {
                        self.clear_lone(block, r, slot);
                    }
                }
                if groups.len() < block.groups.len() {
                    // Products for keys also read these cells, because neighbouring rows read other keys.
                    for table in [&mut self.tables.weights, &mut self.tables.grads] {
                        table[slot..slot + groups.start].fill(s.splat(0.0));
                        table[slot + groups.end..slot + block.groups.len()].fill(s.splat(0.0));
                    }
                }
            }
        }
    }

    /// Computes the matrix products of queries and keys, and of `dout` and values, for the rows `rows` and the keys of
    /// `block`. The row index 0 is the first of the current query rows.
    #[inline(always)]
    fn products(&mut self, s: S, block: &Block, rows: Range<usize>) {
        let Widths { k, v } = self.context.widths::<S>();
        let first = block.groups.start - self.keys.first / S::LANES;
        let (queries, keys, tables) = (self.queries, self.keys, &mut *self.tables);
        let ([q, dout], [k, v]) = (queries.rows_along(), [k, v].map(words::<S>));
        let scores = Operands { left: q, right: &keys.across[first * k..], words: k };
        scores.multiply(s, queries, block, rows.clone(), &mut tables.weights);
        let grads = Operands { left: dout, right: &keys.values_across[first * v..], words: v };
        grads.multiply(s, queries, block, rows, &mut tables.grads);
    }

    /// Turns the matrix products of row `r` and of the lane groups `groups` of `block` (vectors with one key in each
    /// lane) into weights and gradients of cells. The row `r = 0` is the first of the current query rows. `slot` is the
    /// index of the first vector of the row in each table.
    #[inline(always)]
    fn weigh(&mut self, s: S, block: &Block, r: usize, slot: usize, groups: Range<usize>, of: Of) {
        let context = self.context;
        let modifiers = &context.modifiers;
        let queries = self.queries;
        let place = Place { batch: queries.batch, head: queries.head, row: queries.rows.start + r, key: block.key };
        let keys = (groups.end * S::LANES).min(context.k.shape()[2] - block.key);
        let slot = slot..slot + WIDE / S::LANES;
        let tables = &mut *self.tables;
        let (scores, slopes) = (&mut tables.weights[slot.clone()], &mut tables.slopes[slot.clone()]);
        let mut top = queries.tops[r];
        let mut scale = of_pairs::<S>().then(|| s.splat(modifiers.query_factor));
        if queries.careful && queries.careful_rows[r] {
            let mut precise = [0.0; WIDE];
            careful_scores(context, self.keys, place, &mut precise[..keys], floats_mut(slopes));
            let base = queries.bases[r];
            floats_mut(scores)[..keys].iter_mut().zip(precise).for_each(|(x, precise)| *x = (precise - base) as f32);
            (top, scale) = (0.0, None);
        } else if modifiers.change_scores() {
            if let Some(scale) = scale.take() {
                for x in &mut scores[groups.clone()] {
                    *x = s.mul(*x, scale);
                }
            }
            if let Some(cap) = modifiers.softcap {
                for (x, slope) in scores[groups.clone()].iter_mut().zip(&mut slopes[groups.clone()]) {
                    let t = tanh(s, *x);
                    *slope = s.fma(s.sub(s.splat(0.0), t), t, s.splat(1.0));
                    *x = s.mul(t, s.splat(cap));
                }
            }
            modifiers.add_bias(s, place, keys, scores);
        }
        let word = queries.words[r] >> (groups.start * S::LANES);
        let [top, delta, factor] = [top, queries.deltas[r], queries.factors[r]].map(|x| s.splat(x));
        let row = RowCells { word: block.masked.then_some(word), scale, top, delta, factor };
        let grads = &mut tables.grads[slot][groups.clone()];
        if modifiers.softcap.is_some() || modifiers.soften() || modifiers.dropout.is_some() {
            let (mut soft, mut kept) = ([1.0; WIDE], [s.splat(1.0); BLOCK]);
            modifiers.soft_values(place, &mut soft[..keys]);
            if let Some(dropout) = modifiers.dropout {
                let first = Place { key: block.key + groups.start * S::LANES, ..place };
                dropout.apply(s, first, None, &mut kept[..groups.len()]);
            }
            let with_slope = of == Of::Products && modifiers.softcap.is_some();
            row.weights(s, &mut scores[groups.clone()]);
            for (i, group) in groups.enumerate() {
                let plain = scores[group];
                let p = s.mul(plain, s.load(&soft[group * S::LANES..]));
                let difference = s.sub(s.mul(grads[i], kept[i]), row.delta);
                let mut g = s.mul(if of == Of::Soft { plain } else { p }, difference);
                if with_slope {
                    g = s.mul(g, slopes[group]);
                }
                (scores[group], grads[i]) = row.keep(s, i, s.mul(p, kept[i]), g);
            }
            return;
        }
        let scores = &mut scores[groups];
        // Inlined once for each usual number of lane groups.
        macro_rules! weigh {
            ($($len:literal)*) => {
                match scores.len() {
                    $($len => {
                        let scores = <&mut [S::V; $len]>::try_from(scores).expect("the slice has exactly the length of the array type");
                        row.weigh(s, scores, <&mut [S::V; $len]>::try_from(grads).expect("there is one gradient for each score"));
                    })*
                    _ => row.weigh(s, scores, grads),
                }
            };
        }
        weigh!(1 2 3 4 8);
    }

    /// Sets the gradient of a cell to 0 if its key is the only key that row `r` reads. Row `r` must have exactly one
    /// allowed cell in `block`. The weight of an only key is 1 for every score, so the exact gradient is 0; the
    /// computed gradient may differ by rounding. `slot` is the index of the first vector of the row in each table.
    fn clear_lone(&mut self, block: &Block, r: usize, slot: usize) {
        let Maker { context, queries, .. } = self;
        let at = queries.words[r].trailing_zeros() as usize;
        let factor = if of_pairs::<S>() { 1.0 } else { queries.factors[r] };
        let weight = floats(&self.tables.weights[slot..])[at] * factor;
        // Where `partial` is set, other keys may be unknown to the plan: the key is the only one if its weight is 1
        // except for rounding.
        let least = if context.partial { 1.0 - 1e-6 } else { 0.99 };
        if weight < least || context.modifiers.sinks.is_some() || context.modifiers.soften() {
            return;
        }
        let pattern = &context.plan.patterns()[context.plan.pattern_of(queries.batch, queries.head)];
        let row = (queries.rows.start + r) as u32;
        let key = (block.key + at) as u32;
        let mut words = [0; 16];
        let mut others = |from: u32, to: u32| {
            pieces(from as usize..to as usize, 64 * 16).any(|keys| {
                let words = &mut words[..keys.len().div_ceil(64)];
                fill_words(pattern, &(row as usize..row as usize + 1), &keys, words);
                words.iter().any(|word| *word != 0)
            })
        };
        if !others(0, key) && !others(key + 1, pattern.kv_len()) {
            floats_mut(&mut self.tables.grads[slot..])[at] = 0.0;
        }
    }
}

/// The computation of [`Maker::make`] as a kernel, which is compiled once for each processor path instead of at each
/// call site.
struct Make<'a, 'b, 'c, S: Simd> {
    maker: Maker<'a, 'b, S>,
    block: &'c Block,
    rows: Range<usize>,
    of: Option<Of>,
    /// Whether the cells become pairs.
    paired: bool,
}

impl<S: Simd> Kernel<S> for Make<'_, '_, '_, S> {
    #[inline(always)]
    fn run(self, s: S) {
        let Make { mut maker, block, rows, of, paired } = self;
        maker.products(s, block, rows.clone());
        let Some(of) = of else { return };
        let modifiers = &maker.context.modifiers;
        let modified = modifiers.change_scores() || modifiers.soften() || modifiers.dropout.is_some();
        if paired && !block.masked && !modified && !maker.queries.careful {
            return maker.weigh_pairs(s, block, &rows);
        }
        maker.weigh_rows(s, block, rows.clone(), of);
        if paired {
            maker.tables.pair_up(s, &rows, block.groups.len());
        }
    }
}

/// The values that all cells of a query row in a block share: the mask bits (`word`; `None` if all cells are allowed),
/// the number by which the scores still have to be multiplied (`scale`; `None` if they are complete), and three numbers
/// of `RowStats`: the integer base of the weights (`top`), the sum of `dout * out` (`delta`) and the factor of the
/// weights (`factor`).
struct RowCells<S: Simd> {
    word: Option<u64>,
    scale: Option<S::V>,
    top: S::V,
    delta: S::V,
    factor: S::V,
}

impl<S: Simd> RowCells<S> {
    /// Replaces the scores of the row by their softmax weights. If the processor path multiplies pairs of `bf16`, the
    /// weights include the row's `factor`; otherwise [`Queries::dout`] includes it.
    #[inline(always)]
    fn weights(&self, s: S, scores: &mut [S::V]) {
        let (fours, rest) = scores.as_chunks_mut::<4>();
        for four in fours {
            self.powers(s, four);
        }
        self.powers(s, rest);
    }

    /// Computes the same as [`weights`](Self::weights), for at most four vectors.
    #[inline(always)]
    fn powers(&self, s: S, scores: &mut [S::V]) {
        if let Some(scale) = self.scale {
            for x in &mut *scores {
                *x = s.mul(*x, scale);
            }
        }
        exp2_minus_all(s, scores, self.top);
        if of_pairs::<S>() {
            for x in scores {
                *x = s.mul(*x, self.factor);
            }
        }
    }

    /// Returns `(p, g)` with 0 in hidden cells. `p` has the weights, and `g` has the gradients, of the row's cells in
    /// lane group `i` of the block.
    #[inline(always)]
    fn keep(&self, s: S, i: usize, p: S::V, g: S::V) -> (S::V, S::V) {
        match self.word {
            None => (p, g),
            Some(word) => {
                let bits = word >> (i * S::LANES);
                (s.keep(bits, p, s.splat(0.0)), s.keep(bits, g, s.splat(0.0)))
            }
        }
    }

    #[inline(always)]
    fn weigh(&self, s: S, scores: &mut [S::V], grads: &mut [S::V]) {
        self.weights(s, scores);
        for (i, (x, grad)) in scores.iter_mut().zip(grads).enumerate() {
            let g = s.mul(*x, s.sub(*grad, self.delta));
            (*x, *grad) = self.keep(s, i, *x, g);
        }
    }
}

/// Computes the scores of the row of `at`, from the key of `at` on, in `f64`. Writes the scores, multiplied by
/// `log2(e)` for powers of two, to `scores`, and the derivatives of the softcap to `slopes`.
pub(super) fn careful_scores<S: Simd>(
    context: &Context<'_>,
    keys: &Keys<S>,
    at: Place,
    scores: &mut [f64],
    slopes: &mut [f32],
) {
    let width = context.widths::<S>().k;
    let mut query = vec![0.0; context.q.shape()[3]];
    context.q.copy_row([at.batch, at.head, at.row], 0, &mut query);
    for (group, scores) in scores.chunks_mut(S::LANES).enumerate() {
        scores.fill(0.0);
        keys.components(at.key / S::LANES + group, width, |component, keys| {
            let Some(q) = query.get(component) else { return };
            scores.iter_mut().zip(keys).for_each(|(score, key)| *score += f64::from(*q) * f64::from(*key));
        });
    }
    for (score, slope) in scores.iter_mut().zip(slopes) {
        *score *= context.scale;
        if let Some(cap) = context.softcap {
            let tanh = (*score / cap).tanh();
            *slope = (1.0 - tanh * tanh) as f32;
            *score = cap * tanh;
        }
    }
    for term in 0..context.modifiers.bias_terms() {
        let mut values = [0.0; WIDE];
        let factor = f64::from(context.modifiers.bias_values(term, at, &mut values[..scores.len()]));
        scores.iter_mut().zip(values).for_each(|(score, value)| *score += f64::from(value) * factor);
    }
    for score in scores {
        *score = if *score < LOWEST_SCORE { f64::NEG_INFINITY } else { *score * LOG2_E };
    }
}

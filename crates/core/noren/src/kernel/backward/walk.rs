//! Two computations over query rows: the [`RowStats`] of each row, before the gradients of queries, keys and values are
//! computed, and the gradients of score modifiers, afterwards.

use super::cells::{Block, Maker, Of, Tables, careful_scores, cells, prepare};
use super::context::{CAREFUL, Context, RowStats, lanes, pieces};
use super::keys::{Keys, item_keys};
use super::queries::{Queries, ROWS};
use crate::kernel::arrays::rows::SharedRows;
use crate::kernel::keys::blocks::{KeyBlocks, Segments};
use crate::kernel::math::micro::{BLOCK, WIDE};
use crate::kernel::math::scores::Place;
use crate::kernel::simd::{Kernel, Product, Simd, floats};
use crate::kernel::threads::for_each;
use std::f64::consts::LOG2_E;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

/// The gradients of score modifiers that the caller requested.
pub(crate) struct Wanted<'a> {
    pub(crate) arrays: Vec<(Gradient, SharedRows<'a>)>,
    pub(crate) sinks: Option<&'a mut [f32]>,
}

/// The score modifier to which a requested gradient belongs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Gradient {
    Bias,
    Relative,
    Soft,
}

/// Returns the [`RowStats`] of each query row, `[batch, heads, q_len]`: the integer base and the factor of the row's
/// softmax weights, and `delta`, the sum of `dout * out`. The stats of careful rows (rows whose log-sum-exp has a large
/// absolute value) are incomplete until `refine` computes them.
pub(super) fn stats(context: &Context<'_>, threads: usize) -> Vec<RowStats> {
    let [batch, heads, q_len, v_dim] = context.out.shape();
    let mut all = vec![RowStats::default(); batch * heads * q_len];
    let slices: Vec<_> = all.chunks_mut(ROWS).map(Mutex::new).collect();
    for_each(threads, slices.len(), |i| {
        let (mut out, mut dout) = (vec![0.0; v_dim], vec![0.0; v_dim]);
        for (n, stats) in slices[i].lock().unwrap_or_else(PoisonError::into_inner).iter_mut().enumerate() {
            let row = i * ROWS + n;
            let at = [row / q_len / heads, row / q_len % heads, row % q_len];
            let lse = context.lse.value([at[0], at[1], at[2], 0]);
            if lse == f32::NEG_INFINITY {
                continue;
            }
            *stats = RowStats { base: 0.0, factor: 1.0, delta: 0.0, careful: lse.abs() > CAREFUL };
            if lse.is_finite() && stats.careful && !context.partial {
                continue;
            }
            let lse = f64::from(lse) * LOG2_E;
            let factor = (lse.ceil() - lse).exp2() as f32;
            context.out.copy_row(at, 0, &mut out);
            context.dout.copy_row(at, 0, &mut dout);
            let delta = (f64::from(factor) * dot(&out, &dout)) as f32;
            let careful = stats.careful && lse.is_finite();
            *stats = RowStats { base: lse.ceil(), factor, delta, careful };
        }
    });
    drop(slices);
    all
}

/// Returns the dot product of `a` and `b`. The products are added to eight separate sums, so that compilers can use
/// vectors; the product at index `i` is added to sum `i % 8`.
fn dot(a: &[f32], b: &[f32]) -> f64 {
    let mut sums = [0.0; 8];
    for (a, b) in a.chunks(8).zip(b.chunks(8)) {
        for (sum, (a, b)) in sums.iter_mut().zip(a.iter().zip(b)) {
            *sum += f64::from(*a) * f64::from(*b);
        }
    }
    sums.iter().sum()
}

/// Scratch memory for a traversal of the cells of query rows.
struct Scratch<S: Simd> {
    keys: Keys<S>,
    queries: Queries<S>,
    tables: Tables<S>,
}

impl<S: Simd> Scratch<S> {
    fn new(context: &Context<'_>) -> Self {
        let widths = context.widths::<S>();
        let keys = item_keys::<S>(widths).min(context.k.shape()[2].next_multiple_of(lanes::<S>()));
        Scratch { keys: Keys::new(keys, widths), queries: Queries::new(widths), tables: Tables::new() }
    }
}

/// A traversal of the cells of some query rows of one head, with three nested loops: over ranges of keys (as many as an
/// item has), over query rows, and over blocks of keys.
struct Walk<'a, 'b, S: Simd> {
    context: &'a Context<'b>,
    scratch: &'a mut Scratch<S>,
    /// The head to visit, as `[batch row, head]`.
    head: [usize; 2],
    rows: Range<usize>,
    /// The quantity whose gradients are computed. If `None`, only the matrix products are computed, without weights and
    /// gradients of cells.
    of: Option<Of>,
    visit: &'a mut dyn FnMut(RowCells<'_, S>),
}

/// The cells of one query row in a block of keys.
struct RowCells<'a, S: Simd> {
    keys: &'a Keys<S>,
    at: Place,
    /// The mask bits of the row, one bit for each key of the block; `None` if all cells are allowed.
    word: Option<u64>,
    /// The entries of [`Tables::grads`] for this row: one value for each key of the block, from its first key
    /// (`at.key`) on.
    grads: &'a [f32],
}

impl<S: Simd> RowCells<'_, S> {
    /// Returns the allowed cells as indices into `grads`.
    fn places(&self) -> impl Iterator<Item = usize> + use<S> {
        let (word, len) = (self.word.unwrap_or(u64::MAX), self.grads.len());
        (0..len).filter(move |i| *i >= BLOCK || word >> i & 1 == 1)
    }
}

impl<S: Simd> Kernel<S> for Walk<'_, '_, S> {
    #[inline(always)]
    fn run(mut self, s: S) {
        let _tiles = S::Product::configure();
        let context = self.context;
        let [batch, head] = self.head;
        let kv_len = context.k.shape()[2];
        let kv_head = context.plan.shape().kv_head(head);
        let pattern = &context.plan.patterns()[context.plan.pattern_of(batch, head)];
        for keys in pieces(0..kv_len, item_keys::<S>(context.widths::<S>())) {
            let mut filled = false;
            for tile in pattern.tiles() {
                let rows = self.rows.start.max(tile.start as usize)..self.rows.end.min(tile.end as usize);
                let inside = |start: u32, end: u32| (start as usize) < keys.end && end as usize > keys.start;
                if rows.is_empty() || !tile.spans.iter().any(|span| inside(span.start, span.end)) {
                    continue;
                }
                if !filled {
                    self.scratch.keys.fill(s, context, [batch, kv_head], keys.clone());
                    filled = true;
                }
                for rows in pieces(rows, ROWS) {
                    self.scratch.queries.fill(s, context, self.head, rows.clone());
                    let widest = if context.modifiers.soften() || self.scratch.queries.dead { BLOCK } else { WIDE };
                    let (key_range, segments) = (keys.clone(), &Segments::default());
                    let (spans, lanes) = (tile.spans, lanes::<S>());
                    for block in (KeyBlocks { spans, key_range, segments, lanes, widest, page: usize::MAX, next: 0 }) {
                        let block = prepare(context, &mut self.scratch.queries, &block);
                        for rows in pieces(0..rows.len(), cells::<S>()) {
                            self.phase(s, &block, rows, kv_len);
                        }
                    }
                }
            }
        }
    }
}

impl<S: Simd> Walk<'_, '_, S> {
    #[inline(always)]
    fn phase(&mut self, s: S, block: &Block, rows: Range<usize>, kv_len: usize) {
        let Scratch { keys, queries, tables } = &mut *self.scratch;
        let maker = Maker { context: self.context, queries, keys, tables };
        maker.make(s, block, rows.clone(), self.of);
        let [batch, head] = self.head;
        let count = (block.groups.len() * S::LANES).min(kv_len - block.key);
        for (slot, r) in rows.enumerate() {
            let word = queries.words[r];
            if block.masked && word == 0 {
                continue;
            }
            let at = Place { batch, head, row: queries.rows.start + r, key: block.key };
            let grads = &floats(&tables.grads)[slot * WIDE..][..count];
            (self.visit)(RowCells { keys, at, word: block.masked.then_some(word), grads });
        }
    }
}

/// The running softmax of a careful row (a row that is computed in `f64`): the sums over the keys that were read so
/// far.
#[derive(Clone, Copy)]
struct Softmax {
    /// The integer base of the weights `2^(score - base)`: the maximum of the scores so far and of the sink, rounded
    /// up.
    base: f64,
    sum: f64,
    /// The sum over keys of the product of the weight (after dropout) and `dout . v`, where `v` is the value of the
    /// key.
    delta: f64,
}

/// Computes the [`RowStats`] of careful rows (rows whose log-sum-exp has a large absolute value) in `f64`, and writes
/// them to `context.stats`. Changes nothing if `context.partial` is true.
pub(super) fn refine<S: Simd>(s: S, context: &mut Context<'_>, threads: usize) {
    if context.partial {
        return;
    }
    let [_, heads, q_len, _] = context.q.shape();
    let found = Mutex::new(Vec::new());
    let of_head: Vec<usize> = (context.stats.chunks(q_len).enumerate())
        .filter(|(_, rows)| rows.iter().any(|row| row.careful))
        .map(|(head, _)| head)
        .collect();
    for_each(threads, of_head.len(), |i| {
        let head = [of_head[i] / heads, of_head[i] % heads];
        let sink = context.modifiers.sinks.map_or(f64::NEG_INFINITY, |sinks| f64::from(sinks[head[1]]) * LOG2_E);
        let sum = if sink == f64::NEG_INFINITY { 0.0 } else { (sink - sink.ceil()).exp2() };
        let mut softmax = vec![Softmax { base: sink.ceil(), sum, delta: 0.0 }; q_len];
        let careful = |row: usize| context.stats[of_head[i] * q_len + row].careful;
        let mut scratch = Scratch::<S>::new(context);
        s.run(Walk {
            context,
            scratch: &mut scratch,
            head,
            rows: 0..q_len,
            of: None,
            visit: &mut |cells| {
                if careful(cells.at.row) {
                    softmax[cells.at.row].add(context, &cells);
                }
            },
        });
        let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
        found.extend((0..q_len).filter(|row| careful(*row)).map(|row| (of_head[i] * q_len + row, softmax[row])));
    });
    for (row, Softmax { base, sum, delta }) in found.into_inner().unwrap_or_else(PoisonError::into_inner) {
        // A row whose scores are all minus infinity reads no key.
        context.stats[row] = match sum == 0.0 {
            true => RowStats::default(),
            false => {
                let factor = (1.0 / sum) as f32;
                RowStats { base, factor, delta: (delta / sum * f64::from(factor)) as f32, careful: true }
            }
        };
    }
}

impl Softmax {
    fn add<S: Simd>(&mut self, context: &Context<'_>, cells: &RowCells<'_, S>) {
        let (mut scores, mut slopes, mut soft) = ([0.0; WIDE], [0.0; WIDE], [1.0; WIDE]);
        let count = cells.grads.len();
        careful_scores(context, cells.keys, cells.at, &mut scores[..count], &mut slopes);
        context.modifiers.soft_values(cells.at, &mut soft[..count]);
        let top = cells.places().fold(f64::NEG_INFINITY, |top, i| top.max(scores[i])).ceil();
        if top > self.base {
            let lower = if self.sum == 0.0 { 0.0 } else { (self.base - top).exp2() };
            *self = Softmax { base: top, sum: self.sum * lower, delta: self.delta * lower };
        }
        for i in cells.places().filter(|i| scores[*i] != f64::NEG_INFINITY) {
            let weight = (scores[i] - self.base).exp2() * f64::from(soft[i]);
            self.sum += weight;
            let Place { batch, head, row, key } = cells.at;
            let kept =
                context.modifiers.dropout.map_or(1.0, |dropout| match dropout.keeps([batch, head, row, key + i]) {
                    true => f64::from(dropout.factor()),
                    false => 0.0,
                });
            self.delta += weight * kept * f64::from(cells.grads[i]);
        }
    }
}

/// Computes the gradients of the score modifiers in `wanted`, and writes them to the arrays of `wanted`.
pub(super) fn modifiers<S: Simd>(s: S, context: &Context<'_>, wanted: Wanted<'_>, threads: usize) {
    for (gradient, array) in wanted.arrays {
        match gradient {
            Gradient::Bias => dense(s, context, Of::Scores, array, threads),
            Gradient::Soft => dense(s, context, Of::Soft, array, threads),
            Gradient::Relative => relative(s, context, array, threads),
        }
    }
    let (Some(gradient), Some(values)) = (wanted.sinks, context.modifiers.sinks) else { return };
    let [batch, heads, q_len, _] = context.q.shape();
    for (head, (gradient, value)) in gradient.iter_mut().zip(values).enumerate() {
        let rows = (0..batch).flat_map(|b| &context.stats[(b * heads + head) * q_len..][..q_len]);
        let sink = f64::from(*value) * LOG2_E;
        let share = |row: &RowStats| (sink - row.base).exp2() * f64::from(row.delta);
        *gradient = (0.0 - rows.filter(|row| row.factor != 0.0).map(share).sum::<f64>()) as f32;
    }
}

/// Returns the indices of one dimension of the cells over which a gradient is summed. In this dimension, the cells have
/// the size `len`, and the gradient's array has the size `dim`. Returns `0..len` if `dim` is 1, otherwise only `at`.
fn summed(dim: usize, at: usize, len: usize) -> Range<usize> {
    if dim == 1 { 0..len } else { at..at + 1 }
}

/// Computes the gradient of an array of biases or soft weights, and writes it to `array`. Where `array` has size 1 in a
/// dimension, the gradient is summed over this dimension. `of` selects the gradient that is computed for each cell.
fn dense<S: Simd>(s: S, context: &Context<'_>, of: Of, array: SharedRows<'_>, threads: usize) {
    let [batch, heads, q_len, _] = context.q.shape();
    let dims = array.shape();
    // Each piece of work has its own elements and adds to them in the order of batch rows, heads, keys and rows.
    let pieces_of_rows: Vec<_> = pieces(0..q_len, if dims[2] == 1 { q_len } else { ROWS }).collect();
    for_each(threads, dims[0] * dims[1] * pieces_of_rows.len(), |i| {
        let rows = &pieces_of_rows[i % pieces_of_rows.len()];
        let at = [i / pieces_of_rows.len() / dims[1], i / pieces_of_rows.len() % dims[1]];
        let mut sums = vec![0.0f64; if dims[2] == 1 { 1 } else { rows.len() } * dims[3]];
        let mut scratch = Scratch::<S>::new(context);
        for b in summed(dims[0], at[0], batch) {
            for h in summed(dims[1], at[1], heads) {
                let visit = &mut |cells: RowCells<'_, S>| {
                    let row = if dims[2] == 1 { 0 } else { cells.at.row - rows.start };
                    let sums = &mut sums[row * dims[3]..][..dims[3]];
                    for i in cells.places() {
                        sums[if dims[3] == 1 { 0 } else { cells.at.key + i }] += f64::from(cells.grads[i]);
                    }
                };
                s.run(Walk { context, scratch: &mut scratch, head: [b, h], rows: rows.clone(), of: Some(of), visit });
            }
        }
        let mut line = vec![0.0; dims[3]];
        for (row, sums) in sums.chunks_exact(dims[3]).enumerate() {
            line.iter_mut().zip(sums).for_each(|(to, sum)| *to = *sum as f32);
            let row = if dims[2] == 1 { 0 } else { rows.start + row };
            // SAFETY: no other piece of work writes these rows.
            unsafe { array.write([at[0], at[1], row], &line) };
        }
    });
}

/// Computes the gradient of the table of a relative bias (one entry for each distance of query and key), and writes it
/// to `table`.
fn relative<S: Simd>(s: S, context: &Context<'_>, table: SharedRows<'_>, threads: usize) {
    let [batch, heads, q_len, _] = context.q.shape();
    let [_, table_heads, _, width] = table.shape();
    let reach = width as i64 / 2;
    let of_heads: Vec<Mutex<Vec<f64>>> = (0..heads).map(|_| Mutex::new(vec![0.0; width])).collect();
    for_each(threads, heads, |h| {
        let mut sums = of_heads[h].lock().unwrap_or_else(PoisonError::into_inner);
        let mut scratch = Scratch::<S>::new(context);
        for b in 0..batch {
            let visit = &mut |cells: RowCells<'_, S>| {
                let query = context.plan.query_position(b, cells.at.row);
                for i in cells.places() {
                    let distance = context.plan.key_position(b, cells.at.key + i) - query;
                    sums[(distance.clamp(-reach, reach) + reach) as usize] += f64::from(cells.grads[i]);
                }
            };
            s.run(Walk { context, scratch: &mut scratch, head: [b, h], rows: 0..q_len, of: Some(Of::Scores), visit });
        }
    });
    let of_heads: Vec<Vec<f64>> =
        of_heads.into_iter().map(|sums| sums.into_inner().unwrap_or_else(PoisonError::into_inner)).collect();
    for head in 0..table_heads {
        let sum = |i: usize| summed(table_heads, head, heads).map(|h| of_heads[h][i]).sum::<f64>() as f32;
        let line: Vec<f32> = (0..width).map(sum).collect();
        // SAFETY: only this thread writes to the table.
        unsafe { table.write([0, head, 0], &line) };
    }
}

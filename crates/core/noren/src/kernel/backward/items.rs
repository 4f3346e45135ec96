//! The order in which threads add the cells of the backward pass to gradients.
//!
//! An item is a range of consecutive keys of one key-value head, and one thread computes it. Only this item adds to the
//! gradients of its keys and values. The items of a head all add to the gradients of the same queries. A part is a
//! range of query rows. Each part has a count of the items that have finished with the part, and an item waits until
//! all earlier items have finished with it. Threads begin items in order, so an item only waits for items that a thread
//! is computing. Items of several heads are begun alternately, so waiting is rare.

use super::cells::{Block, Maker, Of, Tables, cells, needed, prepare};
use super::context::{Context, Widths, band, lanes, of_pairs, pieces, step};
use super::keys::{Keys, columns, item_keys};
use super::micro::{Columns, add_allowed_word, gather};
use super::parts::{Part, Pattern};
use super::queries::{Queries, ROWS};
use crate::inputs::options::Cancel;
use crate::kernel::arrays::ahead::{Ahead, Upcoming};
use crate::kernel::arrays::rows::SharedRows;
use crate::kernel::keys::blocks::{KeyBlocks, Segments};
use crate::kernel::math::micro::{self, BLOCK, WIDE};
use crate::kernel::simd::{Kernel, Product, Simd, floats, floats_mut, zeroed};
use crate::kernel::threads::on_waiting_threads;
use noren_mask::TileSpan;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

/// The arrays to which the gradients of queries, keys and values are written.
pub(crate) struct Sums<'a> {
    pub(crate) dq: SharedRows<'a>,
    /// Memory for partial sums of `dq` in `f32`, needed if `dq` has a 16-bit type, which would round the partial sums.
    /// `None` if `dq` is `f32`.
    pub(crate) dq_sums: Option<SharedRows<'a>>,
    pub(crate) dk: SharedRows<'a>,
    pub(crate) dv: SharedRows<'a>,
}

/// The turn of an item (range of keys) at a part (range of query rows): the place of the item in the fixed order in
/// which items add to the gradients of the queries of the part.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Turn {
    /// The number of items (ranges of keys) that add to the gradients of the part's queries before this item.
    before: u32,
    /// True if this is the last item (range of keys) that adds to the gradients of the part's queries.
    last: bool,
}

/// Returns the turn of the item with index `item` at the queries of a part: how many items add to the gradients of
/// these queries before this item, and whether this item is the last. `spans` are the ranges of keys that the part
/// reads, and each item has `keys` keys. Returns `None` if the part reads no key of the item.
fn turn(spans: &[TileSpan], item: usize, keys: usize) -> Option<Turn> {
    let (mut before, mut has_share, mut next) = (0, false, 0);
    for (i, span) in spans.iter().enumerate() {
        assert!(i == 0 || spans[i - 1].end <= span.start, "spans of a part must be in ascending order");
        let items = (span.start as usize / keys).max(next)..(span.end as usize - 1) / keys + 1;
        next = next.max(items.end);
        before += items.end.min(item).saturating_sub(items.start);
        has_share |= items.contains(&item);
        if items.end > item + 1 {
            break;
        }
    }
    has_share.then_some(Turn { before: before as u32, last: next <= item + 1 })
}

/// The state that the threads of a backward pass share.
struct Queue<'p> {
    patterns: Vec<Pattern<'p>>,
    /// The items (ranges of keys) as `[batch row, key-value head, index of the item in the head]`, in the order in
    /// which threads begin them.
    items: Vec<[usize; 3]>,
    next: AtomicUsize,
    /// For each part (a range of query rows) of each head, the number of items that have finished with the part.
    through: Vec<AtomicU32>,
    /// For each `[batch row, head]`, the index in `through` of the entry for the first part (range of query rows) of
    /// this head.
    first: Vec<usize>,
    /// Whether the computation has ended early, because a thread panicked or the caller cancelled the call. Other
    /// threads then stop waiting.
    given_up: AtomicBool,
    keys: usize,
}

/// Computes the gradients of queries, keys and values, and writes them to `outputs`.
pub(super) fn run<S: Simd>(s: S, context: &Context<'_>, outputs: &Sums<'_>, threads: usize, cancel: &Cancel<'_>) {
    let shape = context.plan.shape();
    let (batch, heads, kv_heads) = (shape.batch_len(), shape.head_count(), shape.kv_head_count());
    let pairs = batch * kv_heads;
    // With few heads, items are smaller, so that each thread has some.
    let largest = item_keys::<S>(context.widths::<S>());
    let keys = if pairs * shape.kv_len().div_ceil(largest) < 4 * threads { WIDE } else { largest };
    let patterns: Vec<Pattern<'_>> =
        context.plan.patterns().iter().map(|plan| Pattern::new(plan, keys, step::<S>(), ROWS)).collect();
    let mut parts = 0;
    let first = (0..batch * heads)
        .map(|i| {
            let count = patterns[context.plan.pattern_of(i / heads, i % heads)].parts.len();
            parts += count;
            parts - count
        })
        .collect();
    let in_head = shape.kv_len().div_ceil(keys);
    let items = pieces(0..pairs, threads.max(1)).flat_map(|together| {
        (0..in_head).flat_map(move |item| together.clone().map(move |pair| [pair / kv_heads, pair % kv_heads, item]))
    });
    let queue = Queue {
        patterns,
        items: items.collect(),
        next: AtomicUsize::new(0),
        through: (0..parts).map(|_| AtomicU32::new(0)).collect(),
        first,
        given_up: AtomicBool::new(false),
        keys,
    };
    on_waiting_threads(threads.min(queue.items.len()), || {
        let _give_up = GiveUp(&queue.given_up);
        let mut scratch =
            Scratch::<S>::new(keys.min(shape.kv_len().next_multiple_of(lanes::<S>())), context.widths::<S>());
        while let Some(item) = queue.items.get(queue.next.fetch_add(1, Ordering::Relaxed)) {
            s.run(Item { context, outputs, queue: &queue, item: *item, scratch: &mut scratch });
            if cancel.now() {
                queue.given_up.store(true, Ordering::Relaxed);
            }
            if queue.given_up.load(Ordering::Relaxed) {
                break;
            }
        }
    });
}

/// A guard that sets the flag `given_up` if its thread panics, so that the other threads stop.
struct GiveUp<'a>(&'a AtomicBool);

impl Drop for GiveUp<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.store(true, Ordering::Relaxed);
        }
    }
}

/// The memory of one thread, used for one item (range of keys) after another.
struct Scratch<S: Simd> {
    keys: Keys<S>,
    queries: Queries<S>,
    tables: Tables<S>,
    /// The gradients of the keys of the current item (range of keys), `[keys][k_width]`; with tiles `[k_width][most_keys]`.
    dk: Vec<S::V>,
    /// The gradients of the values of the current item (range of keys), `[keys][v_width]`; with tiles `[v_width][most_keys]`.
    dv: Vec<S::V>,
    /// The number of keys of the largest item.
    most_keys: usize,
    /// The rows that the next part (range of query rows) needs, to be prefetched.
    ahead: Upcoming,
}

impl<S: Simd> Scratch<S> {
    fn new(keys: usize, widths: Widths) -> Self {
        Scratch {
            keys: Keys::new(keys, widths),
            queries: Queries::new(widths),
            tables: Tables::new(),
            dk: zeroed(keys * widths.k / S::LANES),
            dv: zeroed(keys * widths.v / S::LANES),
            most_keys: keys,
            ahead: Upcoming::new([Ahead::nothing(); 4]),
        }
    }
}

/// An item (a range of keys of one key-value head) with its inputs, outputs and scratch memory.
struct Item<'a, 'b, S: Simd> {
    context: &'a Context<'b>,
    outputs: &'a Sums<'b>,
    queue: &'a Queue<'b>,
    item: [usize; 3],
    scratch: &'a mut Scratch<S>,
}

impl<S: Simd> Kernel<S> for Item<'_, '_, S> {
    #[inline(always)]
    fn run(mut self, s: S) {
        let _tiles = S::Product::configure();
        let context = self.context;
        let plan = context.plan;
        let [batch, kv_head, item] = self.item;
        let keys = item * self.queue.keys..context.k.shape()[2].min((item + 1) * self.queue.keys);
        let group = plan.shape().head_count() / plan.shape().kv_head_count();
        self.scratch.dk.fill(s.splat(0.0));
        self.scratch.dv.fill(s.splat(0.0));
        let mut filled = false;
        for head in kv_head * group..(kv_head + 1) * group {
            let pattern = plan.pattern_of(batch, head);
            let Pattern { parts, reach } = &self.queue.patterns[pattern];
            if item == 0 {
                self.clear_empty(parts, [batch, head]);
            }
            for (index, part) in parts.iter().enumerate().take(reach[item].end).skip(reach[item].start) {
                let (spans, lanes) = (&*part.spans, lanes::<S>());
                let Some(turn) = turn(spans, item, self.queue.keys) else { continue };
                if !filled {
                    self.scratch.keys.fill(s, context, [batch, kv_head], keys.clone());
                    filled = true;
                }
                let through = &self.queue.through[self.queue.first[batch * plan.shape().head_count() + head] + index];
                self.scratch.queries.fill(s, context, [batch, head], part.rows.clone());
                if !self.wait(through, turn) {
                    return;
                }
                self.load(turn.before == 0);
                self.scratch.ahead = self.upcoming(parts[..reach[item].end].get(index + 1), [batch, head]);
                let widest = if context.modifiers.soften() || self.scratch.queries.dead { BLOCK } else { WIDE };
                let (key_range, segments) = (keys.clone(), &Segments::default());
                for block in (KeyBlocks { spans, key_range, segments, lanes, widest, page: usize::MAX, next: 0 }) {
                    let block = prepare(context, &mut self.scratch.queries, &block);
                    self.add_block(s, &block);
                }
                self.store(turn.last);
                through.store(turn.before + 1, Ordering::Release);
            }
        }
        self.finish(s, keys);
    }
}

impl<S: Simd> Item<'_, '_, S> {
    /// Waits for the turn `turn` of this item at a part (range of query rows): until `through`, the count of items that
    /// have finished with the part, is `turn.before`. Returns false if the computation was cancelled or a thread
    /// panicked.
    fn wait(&self, through: &AtomicU32, turn: Turn) -> bool {
        let mut rounds = 0;
        while through.load(Ordering::Acquire) != turn.before {
            if self.queue.given_up.load(Ordering::Relaxed) {
                return false;
            }
            rounds += 1;
            if rounds < 1000 { std::hint::spin_loop() } else { std::thread::yield_now() }
        }
        true
    }

    /// Writes 0 to the gradients of the queries in parts that read no key. No item adds to these gradients, so no other
    /// code writes them.
    fn clear_empty(&self, parts: &[Part<'_>], [batch, head]: [usize; 2]) {
        let zeros = vec![0.0; self.context.q.shape()[3]];
        for row in parts.iter().filter(|part| part.spans.is_empty()).flat_map(|part| part.rows.clone()) {
            // SAFETY: only item 0 of the head writes rows that read no key.
            unsafe { self.outputs.dq.write([batch, head, row], &zeros) };
        }
    }

    /// Returns the rows that `part` needs, to prefetch them: queries, gradients of outputs, and partial gradients of
    /// queries. If `part` is `None`, nothing is prefetched.
    fn upcoming(&self, part: Option<&Part<'_>>, [batch, head]: [usize; 2]) -> Upcoming {
        let Some(Part { rows, .. }) = part else { return Upcoming::new([Ahead::nothing(); 4]) };
        let (at, count) = ([batch, head, rows.start], rows.len());
        let Context { q, dout, .. } = self.context;
        let sums = self.outputs.dq_sums.as_ref().unwrap_or(&self.outputs.dq);
        Upcoming::new([q.ahead(at, count), dout.ahead(at, count), sums.ahead(at, count), Ahead::nothing()])
    }

    /// Reads the partial gradients of the current query rows into scratch memory. If `first` is true, sets them to 0
    /// instead.
    fn load(&mut self, first: bool) {
        let Widths { k, .. } = self.context.widths::<S>();
        let head_dim = self.context.q.shape()[3];
        let Queries { batch, head, ref rows, ref mut sums, .. } = self.scratch.queries;
        let sums = &mut floats_mut(sums)[..rows.len() * k];
        if first || head_dim < k {
            sums.fill(0.0);
        }
        if first {
            return;
        }
        for (row, sum) in rows.clone().zip(sums.chunks_exact_mut(k)) {
            let (at, sum) = ([batch, head, row], &mut sum[..head_dim]);
            let from = self.outputs.dq_sums.as_ref().unwrap_or(&self.outputs.dq);
            // SAFETY: this item has its turn at the row, and `through` makes the writes of other items visible.
            unsafe { from.read(at, sum) };
        }
    }

    /// Writes the gradients of the current query rows from scratch memory back to the outputs. If `last` is true,
    /// multiplies the gradients by the scale first.
    fn store(&mut self, last: bool) {
        let Widths { k, .. } = self.context.widths::<S>();
        let head_dim = self.context.q.shape()[3];
        let Queries { batch, head, ref rows, ref mut sums, .. } = self.scratch.queries;
        let scale = self.context.scale as f32;
        for (row, sum) in rows.clone().zip(floats_mut(sums).chunks_exact_mut(k)) {
            let (at, sum) = ([batch, head, row], &mut sum[..head_dim]);
            if last {
                // Adding 0 turns -0 into 0. The result is then equal whether products of 0 were added or left out.
                sum.iter_mut().for_each(|x| *x = *x * scale + 0.0);
            }
            let to = match &self.outputs.dq_sums {
                Some(sums) if !last => sums,
                _ => &self.outputs.dq,
            };
            // SAFETY: this item has its turn at the row. Turns of different items differ, because spans are in
            // ascending order.
            unsafe { to.write(at, sum) };
        }
    }

    /// Computes the cells of the current query rows and the keys of `block`, and adds the cells to the gradients of
    /// queries, keys and values.
    #[inline(always)]
    fn add_block(&mut self, s: S, block: &Block) {
        let Scratch { keys, queries, tables, .. } = &mut *self.scratch;
        if of_pairs::<S>() {
            for rows in pieces(0..queries.rows.len(), cells::<S>()) {
                Maker { context: self.context, queries, keys, tables }.make_pairs(s, block, rows);
            }
        } else {
            let rows = 0..queries.rows.len();
            Maker { context: self.context, queries, keys, tables }.make(s, block, rows, Some(Of::Products));
        }
        self.add_to_keys(s, block);
        self.add_to_queries(s, block);
    }

    /// Adds the cells of the current query rows to the gradients of the keys and values of `block`.
    #[inline(always)]
    fn add_to_keys(&mut self, s: S, block: &Block) {
        let Scratch { keys, queries, tables, dk, dv, most_keys, .. } = &mut *self.scratch;
        let Widths { k, v } = self.context.widths::<S>();
        let start = block.key - keys.first;
        let all = block.groups.len() * S::LANES;
        let words = &queries.words[..queries.rows.len()];

        // A row of `weights`, `grads`, `q` and `dout` belongs to `terms` query rows: two on processor paths that multiply
        // pairs, otherwise one.
        let terms = S::Product::TERMS;
        let (weights, grads) = match of_pairs::<S>() {
            true => (&tables.pairs.weights_for_keys, &tables.pairs.grads_for_keys),
            false => (&tables.weights, &tables.grads),
        };
        let [q, dout] = queries.rows_for_keys();
        if S::Product::TILES {
            let [across_q, across_dout] = queries.columns_for_keys();
            let masked = block.masked.then_some(words);
            for (weights, rows, across, sums) in [(weights, dout, across_dout, dv), (grads, q, across_q, dk)] {
                let (weights, sums) = (floats(weights), &mut floats_mut(sums)[start..]);
                let columns = Columns { weights, rows: floats(rows), across, sums, stride: *most_keys };
                match masked.filter(|_| queries.non_finite) {
                    Some(words) => columns.add_allowed::<S::Product>(words),
                    None => columns.add::<S::Product>(masked, words.len(), all),
                }
            }
            return;
        }
        for (weights, values, width, acc) in [(weights, dout, v, dv), (grads, q, k, dk)] {
            let vectors = width / S::LANES;
            let acc = &mut acc[start * vectors..];
            if block.masked && queries.non_finite {
                by_groups(words, terms, |group, key, seen| {
                    let weight = floats(weights)[group * WIDE + key];
                    add_allowed_word(
                        s,
                        weight,
                        &values[group * vectors..][..vectors],
                        seen,
                        &mut acc[key * vectors..][..vectors],
                    );
                });
                continue;
            }
            for keys in pieces(needed(words, block.masked, all), S::ROWS) {
                let rows = reading(words, block.masked, &keys);
                if !rows.is_empty() {
                    let rows = rows.start / terms..rows.end.div_ceil(terms);
                    let acc = &mut acc[keys.start * vectors..];
                    gather::<S, S::Product>(s, weights, rows, keys.start, keys.len(), floats(values), width, acc);
                }
            }
        }
    }

    /// Adds the cells of the current query rows and the keys of `block` to the gradients of the queries.
    #[inline(always)]
    fn add_to_queries(&mut self, s: S, block: &Block) {
        let Scratch { keys, queries, tables, ahead, .. } = &mut *self.scratch;
        let k = self.context.widths::<S>().k;
        let start = block.key - keys.first;
        let Queries { rows, words, sums, .. } = queries;
        let words = &words[..rows.len()];
        let per_row = WIDE / S::LANES;
        let vectors = k / S::LANES;
        let terms = S::Product::TERMS;
        let grads = if of_pairs::<S>() { &tables.pairs.grads_for_queries } else { &tables.grads };
        let values = floats(&keys.rows[start / terms * vectors..]);
        if block.masked && keys.non_finite(&block.groups) {
            let each = grads.chunks_exact(per_row).zip(words).zip(sums.chunks_exact_mut(vectors));
            for ((grads, word), sums) in each {
                micro::accumulate_allowed::<S, S::Product>(s, grads, *word, values, sums);
            }
            return;
        }
        for tile in pieces(0..rows.len(), band::<S>()) {
            let needed = needed(&words[tile.clone()], block.masked, block.groups.len() * S::LANES);
            if !needed.is_empty() {
                let (grads, sums) = (&grads[tile.start * per_row..], &mut sums[tile.start * vectors..]);
                let needed = needed.start / terms..needed.end.div_ceil(terms);
                let (count, ahead) = (tile.len(), ahead.current());
                micro::accumulate::<S, S::Product>(s, false, count, grads, needed, values, k, 0..vectors, sums, ahead);
            }
        }
    }

    /// Multiplies the gradients of the item's keys by the scale, and writes the gradients of the item's keys and values
    /// to the outputs.
    #[inline(always)]
    fn finish(&mut self, s: S, keys: Range<usize>) {
        let context = self.context;
        let Widths { k, v } = context.widths::<S>();
        let [batch, kv_head, _] = self.item;
        // Queries were multiplied by their factor before they were added, so the scale is divided by it.
        let factor = f64::from(context.modifiers.query_factor);
        let factor = if of_pairs::<S>() { 1.0 } else { factor };
        let scale = if factor == 0.0 { 0.0 } else { (context.scale / factor) as f32 };
        let (head_dim, v_dim) = (context.k.shape()[3], context.v.shape()[3]);
        let Scratch { dk, dv, most_keys, .. } = &mut *self.scratch;
        for (sums, width, dim, scale, out) in
            [(dk, k, head_dim, scale, &self.outputs.dk), (dv, v, v_dim, 1.0, &self.outputs.dv)]
        {
            for x in sums.iter_mut() {
                *x = s.add(s.mul(*x, s.splat(scale)), s.splat(0.0));
            }
            // SAFETY: no other item writes the gradients of this key.
            let write = |key, sum: &[f32]| unsafe { out.write([batch, kv_head, keys.start + key], &sum[..dim]) };
            if S::Product::TILES {
                columns(s, floats(sums), *most_keys, keys.len(), write);
            } else {
                floats(sums).chunks_exact(width).take(keys.len()).enumerate().for_each(|(key, sum)| write(key, sum));
            }
        }
    }
}

/// Returns the smallest range that contains every row that reads at least one of the keys `keys` of a block. `words`
/// has the mask bits of each row, and rows are indices into `words`. If `masked` is false, returns all rows.
#[inline(always)]
fn reading(words: &[u64], masked: bool, keys: &Range<usize>) -> Range<usize> {
    if !masked {
        return 0..words.len();
    }
    let bits = (u64::MAX >> (BLOCK - keys.len())) << keys.start;
    let reads = |word: &u64| word & bits != 0;
    match words.iter().position(reads) {
        Some(first) => first..words.iter().rposition(reads).map_or(0, |last| last + 1),
        None => 0..0,
    }
}

/// Calls `f(group, key, seen)` for each group of `terms` (1 or 2) neighbouring rows and each key of a block that at least
/// one of these rows reads, in ascending order of rows. `words` has the mask bits of each row. `group` is the index of
/// the group, and bit `i` of `seen` is set if row `i` of the group reads the key.
#[inline(always)]
fn by_groups(words: &[u64], terms: usize, mut f: impl FnMut(usize, usize, u64)) {
    for group in 0..words.len().div_ceil(terms) {
        let bits = |i: usize| words.get(group * terms + i).copied().unwrap_or(0);
        let (low, high) = (bits(0), if terms == 2 { bits(1) } else { 0 });
        let mut either = low | high;
        while either != 0 {
            let key = either.trailing_zeros();
            f(group, key as usize, (low >> key & 1) | (high >> key & 1) << 1);
            either &= either - 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use noren_mask::SpanKind;

    #[test]
    fn turns_follow_the_items_that_have_a_share() {
        let spans = |runs: &[(u32, u32)]| -> Vec<TileSpan> {
            runs.iter().map(|&(start, end)| TileSpan { start, end, kind: SpanKind::Full }).collect()
        };
        let turns = |runs: &[(u32, u32)]| -> Vec<Option<(u32, bool)>> {
            let spans = spans(runs);
            (0..6).map(|item| turn(&spans, item, 10).map(|turn| (turn.before, turn.last))).collect()
        };
        let (first, second) = (Some((0, false)), Some((1, false)));
        assert_eq!(turns(&[(0, 20)]), [first, Some((1, true)), None, None, None, None]);
        assert_eq!(turns(&[(5, 6), (7, 9), (30, 31)]), [first, None, None, Some((1, true)), None, None]);
        assert_eq!(
            turns(&[(9, 11), (12, 45)]),
            [first, second, Some((2, false)), Some((3, false)), Some((4, true)), None]
        );
        assert_eq!(turns(&[(25, 26)]), [None, None, Some((0, true)), None, None, None]);
        assert_eq!(turns(&[]), [None; 6]);
    }
}

//! The memory layout of keys and values for the kernels.
//!
//! Keys are transposed in *lane groups*. A lane group is [`group`] consecutive keys: `LANES` keys, or `2 * LANES` keys
//! if a word is a pair of values. Lane groups begin at the first key of the sequence and, if a word is a pair, at the keys
//! at which content begins ([`Segments`]). A lane group is stored as `[TERMS][words]` vectors with one key in each lane;
//! `words` words hold the `head_dim` numbers of a key. Lane groups do not depend on tiles, so the bits of a score do not
//! depend on tiles either.
//!
//! Values are stored as rows of words. A row holds the values of `TERMS` keys: one key, or two keys if a word is a
//! pair. If the values in the caller's array are `f32` in contiguous rows that fill whole vectors, the values are used
//! in place; otherwise they are copied.
//!
//! If a plan reorders keys, packing copies the keys in the plan's order. The index of a key in this module is then its
//! place in this order.

use super::blocks::{KeyBlock, Segments};
use super::store::{Reads, StoredHead};
use crate::kernel::arrays::rows::Rows;
use crate::kernel::math::micro::{BLOCK, Far};
use crate::kernel::simd::{Kernel, Lanes, Product, Simd, all_finite, floats, floats_mut, group, pair_up, zeroed};
use noren_mask::Order;
use std::marker::PhantomData;
use std::ops::Range;

/// The number of `f32` values in a cache line.
const LINE: usize = 16;

/// The key and value arrays of one batch row and key-value head.
#[derive(Clone, Copy)]
pub(crate) struct Head<'a> {
    pub(crate) k: Rows<'a>,
    pub(crate) v: Rows<'a>,
    pub(crate) batch: usize,
    pub(crate) head: usize,
    /// The order in which the plan reads keys and values; `None` if the plan does not reorder them.
    pub(crate) order: Option<&'a Order>,
    /// Whether values that are not aligned to vectors are copied. Copying is faster if many rows read the values.
    pub(crate) align_values: bool,
}

/// The source from which a tile reads keys and values.
#[derive(Clone, Copy)]
pub(crate) enum Source<'a, 'b, S: Simd, P> {
    /// Keys and values in arrays. The second field has the keys and values packed once for all jobs; if it is `None`,
    /// the tile packs the keys and values block by block.
    Given(Head<'b>, Option<&'a Packed<S, P>>),
    /// Keys and values of a key-value cache.
    Stored(StoredHead<'b>),
}

/// Keys and values of one batch row and key-value head, packed once for all jobs that read them.
pub(crate) struct Packed<S: Simd, P> {
    /// The index of the first lane group (consecutive keys that the kernels read together) in `keys`.
    first_group: usize,
    /// The keys, `[lane groups][TERMS][words]` vectors with one key in each lane. `TERMS` is the number of values in a
    /// word: 1, or 2 for pairs of bf16 values.
    keys: Vec<S::V>,
    /// The values, `[lane groups * LANES][v_width]` words; `None` if the values are used in place.
    values: Option<Vec<S::V>>,
    /// For each `BLOCK` keys, from the first packed key on, whether one of their values is infinite or NaN.
    non_finite: Vec<bool>,
    /// The largest size of a number of the keys, for tiles.
    largest: f32,
    product: PhantomData<P>,
}

/// The keys and values of one block of keys, in the form in which a tile reads them.
pub(crate) struct Block<'a, S: Simd> {
    /// The keys, `[lane groups][TERMS][words]` vectors; empty if `far` holds the keys as 16-bit numbers.
    pub(crate) keys: &'a [S::V],
    /// The values, `[keys / TERMS][v_width]` words, from the first key of the block on. With `f32`, the slice may end at the
    /// last key of the sequence, before the end of the block. The slice is empty if `far` holds the values as 16-bit
    /// numbers.
    pub(crate) values: &'a [f32],
    /// Whether a value of the block may be infinite or NaN.
    pub(crate) non_finite: bool,
    /// At least the largest size of a number of the keys, or infinity if one is NaN. Only for tiles.
    pub(crate) largest: f32,
    /// The keys and values in the memory of a key-value cache, `[keys, values]`; `None` if keys and values are in
    /// arrays.
    pub(crate) far: Option<[Far<'a>; 2]>,
}

/// Scratch memory for one block of keys and values. A tile packs the block into this memory before it reads the block.
pub(crate) struct BlockScratch<S: Simd> {
    keys: Vec<S::V>,
    values: Vec<S::V>,
}

impl<'a> Head<'a> {
    pub(crate) fn head_dim(&self) -> usize {
        self.k.shape()[3]
    }

    /// Returns the index `[batch, head, key]`, in the arrays, of the key at the place `key` of the plan's order.
    #[inline(always)]
    fn at(&self, key: usize) -> [usize; 3] {
        let key = self.order.map_or(key, |order| order.origin(key as u32) as usize);
        [self.batch, self.head, key]
    }

    /// Returns the number of keys in the plan's order.
    fn kv_len(&self) -> usize {
        self.order.map_or(self.k.shape()[2], |order| order.len() as usize)
    }

    /// Returns the number of words (each one `f32` number or a pair of `bf16` numbers) that hold one key or one query.
    pub(crate) fn words<P: Product>(&self) -> usize {
        P::words(self.head_dim())
    }

    /// Returns the number of words (each one `f32` number or a pair of `bf16` numbers) in a row of values: `v_dim`
    /// rounded up to whole vectors.
    pub(crate) fn v_width<S: Simd>(&self) -> usize {
        self.v.shape()[3].next_multiple_of(S::LANES)
    }

    /// Returns the range of keys in the lane groups of a block, up to the last key of its segment. A lane group is
    /// consecutive keys that the kernels read together.
    fn keys_of<S: Simd, P: Product>(&self, block: &KeyBlock) -> Range<usize> {
        let first = block.keys.start;
        first..(first + block.groups.len() * group::<S, P>()).min(block.segment_end).min(self.kv_len())
    }

    /// Returns the values from the key `first` on, without a copy, or `None` if the kernel needs a copy. Values are
    /// used in place if they are `f32` in contiguous rows that fill whole vectors. If `align_values` is true, they must
    /// also be aligned to vectors, because loading a vector across two cache lines takes two accesses.
    fn values_in_place<S: Simd, P: Product>(&self, first: usize) -> Option<&'a [f32]> {
        let fits = P::TERMS == 1 && self.order.is_none() && self.v.shape()[3].is_multiple_of(S::LANES);
        let values = fits.then(|| self.v.dense_rows(self.batch, self.head, first)).flatten();
        values.filter(|values| !self.align_values || values.as_ptr().cast::<S::V>().is_aligned())
    }

    /// Transposes the keys `all`, whose first key begins a lane group (consecutive keys that the kernels read together), into
    /// `into`, with one key in each lane. Lanes after the last key become 0.
    #[inline(always)]
    fn pack_keys<S: Simd, P: Product>(&self, s: S, all: Range<usize>, into: &mut [S::V]) {
        let (kv_len, words) = (self.kv_len(), self.words::<P>());
        let mut rows: [&[f32]; BLOCK] = [&[]; BLOCK];
        for (g, into) in into.chunks_exact_mut(words).enumerate() {
            let first = all.start + g * S::LANES;
            let keys = first..first + S::LANES;
            let mut direct = keys.end <= all.end;
            for (key, row) in keys.clone().zip(&mut rows) {
                let Some(now) = (key < all.end).then(|| self.k.row_words::<P>(self.at(key))).flatten() else {
                    direct = false;
                    break;
                };
                *row = now;
                if let Some(next) = self.k.row_words::<P>(self.at((key + S::LANES).min(kv_len - 1))) {
                    prefetch(s, next);
                }
            }
            // Rows of pairs may be padded to whole tiles.
            let given = if direct { rows[0].len() } else { 0 };
            let whole = given - given % S::LANES;
            for w in (0..whole).step_by(S::LANES) {
                let square = &mut into[w..w + S::LANES];
                for (lane, row) in square.iter_mut().zip(&rows) {
                    *lane = s.load(&row[w..]);
                }
                s.transpose(square);
            }
            for w in (whole..words).step_by(S::LANES) {
                let keys = keys.start..keys.end.min(all.end);
                self.pack_square::<S, P>(s, keys, w, &mut into[w..words.min(w + S::LANES)]);
            }
        }
    }

    /// Transposes the words of `keys` from the word `first` on into `into`, one vector for each word. Rows of any
    /// type and strides are copied, and lanes after the last key become 0.
    #[inline(always)]
    fn pack_square<S: Simd, P: Product>(&self, s: S, keys: Range<usize>, first: usize, into: &mut [S::V]) {
        let mut square = [s.splat(0.0); BLOCK];
        let square = &mut square[..S::LANES];
        let end = self.head_dim().min((first + into.len()) * P::TERMS);
        let numbers = end.min(first * P::TERMS)..end;
        for (key, lane) in keys.zip(square.iter_mut()) {
            // Numbers of 16 bits are widened in registers: a vector read from a buffer waits until the buffer is written.
            if P::TERMS == 1
                && let Some(numbers) = self.k.lanes(s, self.at(key), first)
            {
                *lane = numbers;
                continue;
            }
            let mut line = [0.0; 2 * BLOCK];
            self.k.copy_row(self.at(key), numbers.start, &mut line[..numbers.len()]);
            let (low, high) = (s.load(&line), s.load(&line[S::LANES..]));
            *lane = if P::TERMS == 2 { s.pair_neighbours(low, high) } else { low };
        }
        s.transpose(square);
        into.copy_from_slice(&square[..into.len()]);
    }

    /// Copies the values of `keys` into rows of `v_width` words (each one `f32` number or a pair of `bf16` numbers) in
    /// `into`. Words after `v_dim` in a row stay unchanged; with pairs, rows of `into` after the last key become 0.
    #[inline(always)]
    fn pack_values<S: Simd, P: Product>(&self, keys: Range<usize>, into: &mut [S::V]) {
        let v_dim = self.v.shape()[3];
        let width = self.v_width::<S>();
        let into = floats_mut(into);
        if P::TERMS == 2 {
            into[keys.len().div_ceil(P::TERMS) * width..].fill(0.0);
        }
        let rows = into.chunks_exact_mut(width);
        let mut odd = vec![0.0; if P::TERMS == 2 { v_dim } else { 0 }];
        for (key, row) in keys.clone().step_by(P::TERMS).zip(rows) {
            let row = &mut row[..v_dim];
            if P::TERMS == 2
                && key + 1 < keys.end
                && let (Some(even), Some(odd)) = (self.v.bf16_row(self.at(key)), self.v.bf16_row(self.at(key + 1)))
            {
                for ((word, even), odd) in row.iter_mut().zip(even).zip(odd) {
                    *word = f32::from_bits(u32::from(even.to_bits()) | u32::from(odd.to_bits()) << 16);
                }
                continue;
            }
            self.v.copy_row(self.at(key), 0, row);
            if P::TERMS == 2 {
                match key + 1 < keys.end {
                    true => self.v.copy_row(self.at(key + 1), 0, &mut odd),
                    false => odd.fill(0.0),
                }
                row.iter_mut().zip(&odd).for_each(|(word, odd)| *word = pair_up(*word, *odd));
            }
        }
    }
}

impl<S: Simd, P: Product> Packed<S, P> {
    /// Returns a `Packed` without keys and values, which has allocated no memory.
    pub(crate) fn empty() -> Self {
        Packed {
            first_group: 0,
            keys: Vec::new(),
            values: None,
            non_finite: Vec::new(),
            largest: 0.0,
            product: PhantomData,
        }
    }

    /// Packs the keys and values of the lane groups that contain the keys `key_range`. Overwrites the keys and values
    /// that were packed before, and uses their memory again.
    #[inline(always)]
    pub(crate) fn refill(&mut self, s: S, head: &Head<'_>, segments: &Segments, key_range: Range<usize>) {
        let runs = || segments.runs(key_range.clone(), head.kv_len());
        let (vectors, width) = (P::TERMS * head.words::<P>(), head.v_width::<S>());
        let Some((first, groups)) = runs().next() else { return *self = Self::empty() };
        self.first_group = groups.start;
        let end = runs().last().map_or(groups.end, |(_, groups)| groups.end);
        resize(&mut self.keys, (end - self.first_group) * vectors);
        for (keys, groups) in runs() {
            let groups = groups.start - self.first_group..groups.end - self.first_group;
            head.pack_keys::<S, P>(s, keys, &mut self.keys[groups.start * vectors..groups.end * vectors]);
        }
        self.largest = if P::TILES { largest(floats(&self.keys)) } else { 0.0 };
        if let Some(values) = head.values_in_place::<S, P>(first.start) {
            self.values = None;
            self.non_finite = non_finite_blocks::<P>(&values[..first.len() * width], width);
            return;
        }
        let values = self.values.get_or_insert_default();
        resize(values, value_rows::<S, P>(end - self.first_group, &first) * width / S::LANES);
        for (keys, groups) in runs() {
            let from = (groups.start - self.first_group) * width;
            let rows = value_rows::<S, P>(groups.len(), &keys);
            head.pack_values::<S, P>(keys, &mut values[from..from + rows * width / S::LANES]);
        }
        self.non_finite = non_finite_blocks::<P>(floats(values), width);
    }

    /// Returns the keys and values of the lane groups of `block` (consecutive keys that the kernels read together). The lane
    /// groups have at most `WIDE` keys.
    #[inline(always)]
    pub(crate) fn block<'a>(&'a self, head: &Head<'a>, block: &KeyBlock) -> Block<'a, S> {
        let vectors = P::TERMS * head.words::<P>();
        let groups = &block.groups;
        let first = groups.start - self.first_group;
        let values = match &self.values {
            None => {
                let values = head.values_in_place::<S, P>(block.keys.start);
                values.expect("the values of this head can be used in place")
            }
            Some(values) => &floats(values)[first * S::LANES * head.v_width::<S>()..],
        };
        let last_key = (first + groups.len()) * group::<S, P>() - 1;
        let blocks = first * group::<S, P>() / BLOCK..(last_key / BLOCK + 1).min(self.non_finite.len());
        Block {
            keys: &self.keys[first * vectors..][..groups.len() * vectors],
            values,
            non_finite: self.non_finite[blocks].contains(&true),
            largest: self.largest,
            far: None,
        }
    }
}

impl<S: Simd> BlockScratch<S> {
    /// Allocates memory for one block of `keys` keys. A key has `words` words, and a value has `v_width` words.
    pub(crate) fn new(keys: usize, words: usize, v_width: usize) -> Self {
        BlockScratch { keys: zeroed(keys / S::LANES * words), values: zeroed(keys * v_width / S::LANES) }
    }

    /// Returns a `BlockScratch` for 0 keys, which has allocated no memory.
    pub(crate) fn empty() -> Self {
        BlockScratch { keys: Vec::new(), values: Vec::new() }
    }

    /// Returns whether there is no memory.
    pub(crate) fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Returns the memory as `(vectors of keys, words of values)`.
    #[inline(always)]
    pub(crate) fn parts(&mut self) -> (&mut [S::V], &mut [f32]) {
        (&mut self.keys, floats_mut(&mut self.values))
    }

    /// Packs the keys and values of the lane groups of `block` (consecutive keys that the kernels read together) into this
    /// memory, and returns them. The lane groups have at most `WIDE` keys.
    #[inline(always)]
    pub(crate) fn block<'a, P: Product>(&'a mut self, s: S, head: &Head<'a>, block: &KeyBlock) -> Block<'a, S> {
        let keys = head.keys_of::<S, P>(block);
        let rows = value_rows::<S, P>(block.groups.len(), &keys);
        let packed = block.groups.len() * P::TERMS * head.words::<P>();
        let mut found = (false, 0.0);
        s.run(PackBlock::<S, P> { scratch: self, head, block, found: &mut found, product: PhantomData });
        let (non_finite, largest) = found;
        let width = head.v_width::<S>();
        let values = match head.values_in_place::<S, P>(keys.start) {
            Some(values) => &values[..keys.len() * width],
            None => &floats(&self.values)[..rows * width],
        };
        Block { keys: &self.keys[..packed], values, non_finite, largest, far: None }
    }
}

impl<S: Simd, P: Product> Source<'_, '_, S, P> {
    pub(crate) fn head_dim(&self) -> usize {
        match self {
            Source::Given(head, _) => head.head_dim(),
            Source::Stored(head) => head.store.packing.head_dim,
        }
    }

    /// Returns the number of keys of the head that a plan may read.
    #[inline(always)]
    pub(crate) fn kv_len(&self) -> usize {
        match self {
            Source::Given(head, _) => head.kv_len(),
            Source::Stored(head) => head.kv_len,
        }
    }

    /// Returns a number of keys whose multiples a block of keys should not cross, or `usize::MAX` if there is no such
    /// border. `few` is true if the rows of the tile fit in one register tile.
    pub(crate) fn page(&self, few: bool) -> usize {
        match self {
            Source::Given(..) => usize::MAX,
            Source::Stored(head) => head.page(few),
        }
    }

    #[inline(always)]
    pub(crate) fn v_dim(&self) -> usize {
        match self {
            Source::Given(head, _) => head.v.shape()[3],
            Source::Stored(head) => head.store.packing.v_dim,
        }
    }

    /// Returns the number of words (each one `f32` number or a pair of `bf16` numbers) that hold one key or one query.
    #[inline(always)]
    pub(crate) fn words(&self) -> usize {
        P::words(self.head_dim())
    }

    /// Returns the number of words (each one `f32` number or a pair of `bf16` numbers) in a row of values: `v_dim`
    /// rounded up to whole vectors.
    #[inline(always)]
    pub(crate) fn v_width(&self) -> usize {
        self.v_dim().next_multiple_of(S::LANES)
    }

    /// Returns the keys and values of the lane groups of `block` (consecutive keys that the kernels read together). The groups
    /// have at most `WIDE` keys. If the lane groups are not packed yet, packs them into `scratch`.
    #[inline(always)]
    pub(crate) fn block<'c>(
        &'c self,
        s: S,
        block: &KeyBlock,
        reads: Reads,
        scratch: &'c mut BlockScratch<S>,
    ) -> Block<'c, S> {
        match self {
            Source::Given(head, Some(packed)) => packed.block(head, block),
            Source::Given(head, None) => scratch.block::<P>(s, head, block),
            Source::Stored(head) => {
                let (key_space, value_space) = scratch.parts();
                let columns = 0..self.v_width() / S::LANES;
                let (keys, far_keys) = head.keys::<S, P>(s, block, reads, key_space);
                let (values, non_finite, far_values) = head.values::<S, P>(s, block, columns, reads, value_space);
                // Tiles are loaded from the packed words, wherever these are.
                let far = (!P::TILES).then_some([far_keys, far_values]);
                Block { keys, values, non_finite, largest: head.store.largest, far }
            }
        }
    }
}

impl<S: Simd, P: Product> Source<'_, '_, S, P> {
    /// Returns only the keys of the block that [`block`](Self::block) returns, as `(keys, keys in the memory of a
    /// cache)`. The second result is `None` if the keys are not in a key-value cache.
    #[inline(always)]
    pub(crate) fn keys<'c>(
        &'c self,
        s: S,
        block: &KeyBlock,
        reads: Reads,
        scratch: &'c mut BlockScratch<S>,
    ) -> (&'c [S::V], Option<Far<'c>>) {
        match self {
            Source::Stored(head) => {
                let (keys, far) = head.keys::<S, P>(s, block, reads, scratch.parts().0);
                (keys, Some(far).filter(|_| !P::TILES))
            }
            _ => (self.block(s, block, reads, scratch).keys, None),
        }
    }

    /// Returns three parts of the block that [`block`](Self::block) returns: `(values, whether a value may be infinite
    /// or NaN, values in the memory of a cache)`. The third result is `None` if the values are not in a key-value
    /// cache. `columns` is a range of vectors of each row; other columns may hold any numbers.
    #[inline(always)]
    pub(crate) fn values<'c>(
        &'c self,
        s: S,
        block: &KeyBlock,
        columns: Range<usize>,
        reads: Reads,
        scratch: &'c mut BlockScratch<S>,
    ) -> (&'c [f32], bool, Option<Far<'c>>) {
        match self {
            Source::Stored(head) => {
                let (values, non_finite, far) = head.values::<S, P>(s, block, columns, reads, scratch.parts().1);
                (values, non_finite, Some(far).filter(|_| !P::TILES))
            }
            _ => {
                let block = self.block(s, block, reads, scratch);
                (block.values, block.non_finite, None)
            }
        }
    }
}

/// The packing of [`BlockScratch::block`] as a kernel, which is compiled once for each processor path and kind of
/// product (`f32` or pairs of `bf16`) instead of at each call site.
struct PackBlock<'a, 'b, S: Simd, P> {
    scratch: &'a mut BlockScratch<S>,
    head: &'a Head<'b>,
    block: &'a KeyBlock,
    /// The fields `non_finite` and `largest` of the block, which packing writes.
    found: &'a mut (bool, f32),
    product: PhantomData<P>,
}

impl<S: Simd, P: Product> Kernel<S> for PackBlock<'_, '_, S, P> {
    #[inline(always)]
    fn run(self, s: S) {
        let PackBlock { scratch, head, block, found, .. } = self;
        let keys = head.keys_of::<S, P>(block);
        let rows = value_rows::<S, P>(block.groups.len(), &keys);
        let packed = block.groups.len() * P::TERMS * head.words::<P>();
        head.pack_keys::<S, P>(s, keys.clone(), &mut scratch.keys[..packed]);
        let width = head.v_width::<S>();
        let values = match head.values_in_place::<S, P>(keys.start) {
            Some(values) => &values[..keys.len() * width],
            None => {
                head.pack_values::<S, P>(keys, &mut scratch.values[..rows * width / S::LANES]);
                &floats(&scratch.values)[..rows * width]
            }
        };
        *found = (!all_finite::<P>(values), if P::TILES { largest(floats(&scratch.keys[..packed])) } else { 0.0 });
    }
}

/// A call of [`Packed::refill`] as a kernel, which is compiled for each processor path.
pub(crate) struct Refill<'a, S: Simd, P> {
    pub(crate) packed: &'a mut Packed<S, P>,
    pub(crate) head: Head<'a>,
    pub(crate) segments: &'a Segments,
    pub(crate) key_range: Range<usize>,
}

impl<S: Simd, P: Product> Kernel<S> for Refill<'_, S, P> {
    #[inline(always)]
    fn run(self, s: S) {
        self.packed.refill(s, &self.head, self.segments, self.key_range);
    }
}

/// Returns the number of rows of values of the keys `keys`, which are in `groups` lane groups. Pairs have whole groups.
fn value_rows<S: Simd, P: Product>(groups: usize, keys: &Range<usize>) -> usize {
    if P::TERMS == 2 { groups * S::LANES } else { keys.len() }
}

/// Returns the largest size of a number in words that are pairs of `bf16`, or infinity if one is NaN.
#[inline(always)]
pub(crate) fn largest(words: &[f32]) -> f32 {
    const INFINITE: u32 = 0x7f80_0000;
    let mut largest = 0;
    for word in words {
        let bits = word.to_bits();
        largest = largest.max(bits & 0x7fff_0000).max(bits << 16 & 0x7fff_0000);
    }
    f32::from_bits(largest.min(INFINITE))
}

/// Resizes `vectors` to `len` vectors. Old contents may remain, because packing overwrites them. Packing does not write
/// the words after the last number of a row, which are always 0.
fn resize<V: Lanes>(vectors: &mut Vec<V>, len: usize) {
    if len <= vectors.len() {
        vectors.truncate(len);
    } else {
        *vectors = zeroed(len);
    }
}

/// Returns, for each `BLOCK` keys, whether one of their values is infinite or NaN. `values` has rows of `width` words.
#[inline(always)]
fn non_finite_blocks<P: Product>(values: &[f32], width: usize) -> Vec<bool> {
    let blocks = values.chunks(BLOCK / P::TERMS * width);
    let mut found = Vec::with_capacity(blocks.len());
    // This is a loop, because the closure of an iterator is compiled separately, without the vectors of the path.
    for block in blocks {
        found.push(!all_finite::<P>(block));
    }
    found
}

/// Prefetches all cache lines that hold `numbers`.
#[inline(always)]
pub(crate) fn prefetch<S: Simd>(s: S, numbers: &[f32]) {
    for line in numbers.chunks(LINE) {
        s.prefetch(line.as_ptr());
    }
}

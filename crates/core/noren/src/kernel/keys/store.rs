//! Memory of a key-value cache, in which keys and values stay packed between calls.
//!
//! Memory consists of *pages*, each for a fixed number of keys. A page has one region for each key-value head. A region
//! holds keys in lane groups (consecutive keys that fill whole vectors), in the layout of [`pack`](super::pack),
//! followed by values in rows. A sequence has a list of pages, and a [`Ring`], which maps the *index* of each key to
//! its slot (place for one key in the pages). A kernel requests lane groups by these indices. Positions ascend with the
//! index, although the keys may be in any order in memory.
//!
//! Words of 32 bits (`f32` numbers, or pairs of `bf16` on paths that multiply pairs) are read in place. Other numbers
//! have 16 bits and keep their type in memory. If one register tile reads a block, the tile converts the 16-bit numbers
//! to `f32` as it reads them. If several register tiles read a block, the block is converted once, into a buffer that
//! stays in the first-level cache. In both cases, each byte is read once from main memory.

use super::blocks::KeyBlock;
use crate::kernel::arrays::lines::Lines;
use crate::kernel::dispatch::Task;
use crate::kernel::math::micro::{BLOCK, Far, Stretch};
use crate::kernel::simd::{
    Chunk, Kernel, Number, Pairs, Product, Simd, all_finite, floats, floats_mut, group, pair_up, vectors,
};
use crate::{Dtype, Element, Error, Isa, View, bf16, f16};
use std::ops::Range;

/// The memory layout of keys and values in a cache. The layout depends on the sizes of keys and values, their number
/// type, and the processor path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Packing {
    pub(crate) head_dim: usize,
    pub(crate) v_dim: usize,
    /// The number of lanes of a vector. Each lane holds one key.
    pub(crate) lanes: usize,
    /// The number of values in a word, the unit in which keys and values are stored: 1, or 2 if a word is a pair of
    /// `bf16`.
    terms: usize,
    /// The number of words (each one number, or a pair of `bf16` numbers) that hold one key.
    words: usize,
    /// The number of words (each one number, or a pair of `bf16` numbers) in a row of values: `v_dim` rounded up to
    /// whole vectors.
    v_width: usize,
    /// The number of bytes of a word (one number, or a pair of `bf16` numbers) in memory.
    word_bytes: usize,
}

/// A task that writes three numbers of a processor path to `sizes`: the number of lanes of a vector, the number of
/// values in a word, and the number of words that hold a key.
struct Probe<'a> {
    dtype: Dtype,
    head_dim: usize,
    sizes: &'a mut [usize; 3],
}

impl Task for Probe<'_> {
    fn pairs(&self) -> bool {
        self.dtype == Dtype::Bf16
    }

    const TILES: bool = true;

    fn run<S: Simd>(self, _: S) {
        *self.sizes = [S::LANES, S::Product::TERMS, S::Product::words(self.head_dim)];
    }
}

impl Packing {
    pub(crate) fn new(isa: Isa, dtype: Dtype, head_dim: usize, v_dim: usize) -> Packing {
        let mut sizes = [0; 3];
        isa.run(Probe { dtype, head_dim, sizes: &mut sizes });
        let [lanes, terms, words] = sizes;
        Packing {
            head_dim,
            v_dim,
            lanes,
            terms,
            words,
            v_width: v_dim.next_multiple_of(lanes),
            word_bytes: if terms == 2 { 4 } else { dtype.size() },
        }
    }

    /// Returns the number of keys in a lane group: consecutive keys that the kernels read together, one or two keys for
    /// each lane.
    pub(crate) fn group(&self) -> usize {
        self.lanes * self.terms
    }

    /// Returns the number of bytes for `slots` keys and their values, `[keys, values]`, each rounded up to whole cache
    /// lines. Returns `None` if a size overflows.
    fn bytes(&self, slots: usize) -> Option<[usize; 2]> {
        let lines = |words: Option<usize>| words?.checked_mul(self.word_bytes)?.checked_next_multiple_of(Lines::LINE);
        let keys = lines(slots.checked_mul(self.words))?;
        Some([keys, lines((slots / self.terms).checked_mul(self.v_width))?])
    }
}

/// The mapping from the keys of a sequence to slots of its pages.
///
/// The key at a position `p < sink_tokens` is in slot `p`. Other keys are in a ring of `len` slots that begins at slot
/// `kept`: the key at position `p` is in slot `kept + p % len`. A kernel reads keys by *index*: an index below `kept`
/// is the slot with this number, and the index `kept + i` is the key at position `first + i`. All fields except
/// `sink_tokens` are multiples of the number of keys in a lane group, so the lane of a key depends only on its
/// position. A sequence that keeps all its keys has no sink tokens and a ring without end: `len` is `usize::MAX`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Ring {
    pub(crate) sink_tokens: usize,
    pub(crate) kept: usize,
    pub(crate) first: usize,
    pub(crate) len: usize,
}

impl Ring {
    pub(crate) const ENDLESS: Ring = Ring { sink_tokens: 0, kept: 0, first: 0, len: usize::MAX };

    /// Returns two numbers: the slot of the key at index `index`, and the number of indices from `index` on that have
    /// consecutive slots.
    #[inline]
    fn slot(&self, index: usize) -> (usize, usize) {
        match index.checked_sub(self.kept) {
            None => (index, self.kept - index),
            Some(after) => self.in_ring(self.first + after),
        }
    }

    /// Returns two numbers: the slot of the key at position `position`, and the number of positions from `position` on
    /// that have consecutive slots.
    fn place(&self, position: usize) -> (usize, usize) {
        if position < self.sink_tokens { (position, self.sink_tokens - position) } else { self.in_ring(position) }
    }

    #[inline]
    fn in_ring(&self, position: usize) -> (usize, usize) {
        let at = position % self.len;
        (self.kept + at, self.len - at)
    }
}

/// The memory of a key-value cache.
pub(crate) struct Store {
    pub(crate) packing: Packing,
    dtype: Dtype,
    pub(crate) kv_heads: usize,
    /// The number of keys for which a page has space.
    page: usize,
    /// The number of bytes that one key-value head takes in a page, `[keys, values]`. In memory, the values follow the
    /// keys.
    region: [usize; 2],
    lines: Lines,
    /// For each `lanes` consecutive keys of a key-value head in a page, whether the values of these keys contain an
    /// infinite or NaN number.
    non_finite: Vec<bool>,
    /// The largest size of a number of all keys that were written, or infinity if one was NaN. Only for pairs.
    pub(crate) largest: f32,
}

/// The way in which a tile reads a block of keys and values.
#[derive(Clone, Copy)]
pub(crate) struct Reads {
    /// Whether one register tile reads the whole block. If true, the tile converts 16-bit numbers to `f32` as it reads
    /// them.
    pub(crate) once: bool,
    /// Whether some cells of the block may be hidden. If also a value is infinite or NaN, the values are multiplied one
    /// cell at a time, without the hidden cells.
    pub(crate) masked: bool,
}

/// The keys and values that a cache stores for one key-value head of one sequence.
#[derive(Clone, Copy)]
pub(crate) struct StoredHead<'a> {
    pub(crate) store: &'a Store,
    pub(crate) pages: &'a [u32],
    pub(crate) ring: Ring,
    pub(crate) head: usize,
    /// The number of key indices that a plan may read.
    pub(crate) kv_len: usize,
}

impl Store {
    /// Allocates memory for `pages` pages of `page` keys each. `page` must be a multiple of `packing.lanes`. Returns an
    /// error if there is not enough memory.
    pub(crate) fn new(
        packing: Packing,
        dtype: Dtype,
        kv_heads: usize,
        page: usize,
        pages: usize,
    ) -> Result<Self, Error> {
        let regions = pages.checked_mul(kv_heads);
        let region = packing.bytes(page);
        let bytes = regions.zip(region).and_then(|(n, [keys, values])| keys.checked_add(values)?.checked_mul(n));
        let lines = bytes.and_then(|bytes| Lines::zeroed(bytes / Lines::LINE));
        let Some((lines, region)) = lines.zip(region) else {
            return Err(Error::Option {
                name: "the cache",
                given: format!("{pages} pages of memory, each for {page} keys of {kv_heads} key-value heads"),
                problem: "there is not enough memory: give a smaller capacity or fewer blocks".to_owned(),
            });
        };
        let non_finite = vec![false; pages * kv_heads * (page / packing.lanes)];
        Ok(Store { packing, dtype, kv_heads, page, region, lines, non_finite, largest: 0.0 })
    }

    /// Fills the whole memory with NaN, as if every slot had held a token of NaN values.
    #[cfg(test)]
    pub(crate) fn poison(&mut self) {
        self.lines.values_mut::<f32>().fill(f32::from_bits(u32::MAX));
        self.non_finite.fill(true);
        self.largest = f32::INFINITY;
    }

    /// Returns the size of the cache's memory, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        size_of_val(self.lines.values::<f32>())
    }

    /// Returns the start of the data of key-value head `head` in page `page`, as `(byte offset in the memory, index of
    /// the first entry in non_finite)`.
    fn region(&self, page: u32, head: usize) -> (usize, usize) {
        let region = page as usize * self.kv_heads + head;
        (region * (self.region[0] + self.region[1]), region * (self.page / self.packing.lanes))
    }

    /// Copies words (each one number, or a pair of `bf16` numbers) of the memory, from the word with the index `first`
    /// on, to `into`. 16-bit numbers are converted to `f32`.
    #[inline(always)]
    fn widen<S: Simd>(&self, s: S, first: usize, into: &mut [f32]) {
        s.run(Widen { store: self, first, into });
    }

    /// Writes the keys and values in batch row `batch` and rows `tokens` of `k` and `v` to the cache. The first token
    /// gets the position `position`. `pages` and `ring` belong to the sequence; `pages` must have a slot for each
    /// position.
    pub(crate) fn write<T: Element>(
        &mut self,
        pages: &[u32],
        ring: Ring,
        position: usize,
        [k, v]: [&View<'_, T>; 2],
        batch: usize,
        tokens: Range<usize>,
    ) {
        let from = tokens.start;
        for head in 0..self.kv_heads {
            let mut tokens = tokens.clone();
            while !tokens.is_empty() {
                let position = position + tokens.start - from;
                let (slot, follow) = ring.place(position);
                let (page, slot) = (pages[slot / self.page], slot % self.page);
                let run = follow.min(self.page - slot).min(tokens.len());
                let now = tokens.start..tokens.start + run;
                self.write_run((page, head), slot, [k, v], [batch, head], now);
                tokens.start += run;
            }
        }
    }

    /// Moves keys and values within a sequence: the key and value at position `from[i]` move to position `to + i`.
    /// `from` must ascend, and its first position must be `to` or later. All positions from `to` to the last position
    /// in `from` must have different slots.
    pub(crate) fn gather<T: Element>(&mut self, pages: &[u32], ring: Ring, from: &[usize], to: usize) {
        let Packing { head_dim, v_dim, .. } = self.packing;
        let (mut k, mut v) = (vec![T::from_f32(0.0); head_dim], vec![T::from_f32(0.0); v_dim]);
        let locate = |store: &Self, position| {
            let (slot, _) = ring.place(position);
            (pages[slot / store.page], slot % store.page)
        };
        for (to, from) in (to..).zip(from.iter().copied()).filter(|(to, from)| to != from) {
            let ((from_page, from_slot), (page, slot)) = (locate(self, from), locate(self, to));
            for head in 0..self.kv_heads {
                self.read((from_page, head), from_slot, [&mut k, &mut v]);
                let view = |row| {
                    View::strided(row, [1, 1, 1, row.len()], [0, 0, 0, 1], 0)
                        .expect("the values of one row always form a valid view of one row")
                };
                self.write_run((page, head), slot, [&view(&k), &view(&v)], [0, 0], 0..1);
            }
        }
    }

    /// Reads the key in slot `slot` of a region, and its value, into `[k, v]`. `region` is `(page, key-value head)`.
    fn read<T: Element>(&self, region: (u32, usize), slot: usize, [k, v]: [&mut [T]; 2]) {
        let Packing { lanes, terms, words, v_width, word_bytes, .. } = self.packing;
        let start = self.region(region.0, region.1).0;
        let key = start / word_bytes + slot / lanes * words * lanes + slot % lanes;
        let value = (start + self.region[0]) / word_bytes + slot / terms * v_width;
        if terms == 2 {
            let memory = self.lines.values::<f32>();
            let half = |word: f32, high: bool| {
                let bits = word.to_bits();
                T::from_f32(f32::from_bits(if high { bits & 0xffff_0000 } else { bits << 16 }))
            };
            for (pair, word) in k.chunks_mut(2).zip(memory[key..].iter().step_by(lanes)) {
                pair.iter_mut().zip([false, true]).for_each(|(x, high)| *x = half(*word, high));
            }
            v.iter_mut().zip(&memory[value..]).for_each(|(x, word)| *x = half(*word, slot % 2 == 1));
        } else {
            let memory = self.lines.values::<T>();
            k.iter_mut().zip(memory[key..].iter().step_by(lanes)).for_each(|(x, from)| *x = *from);
            v.copy_from_slice(&memory[value..value + v.len()]);
        }
    }

    /// Writes keys and values to consecutive slots of a region, from slot `slot` on. `region` is `(page, key-value
    /// head)`. The keys and values are the rows `tokens` of `k` and `v` in `at`, `[batch row, head]`.
    fn write_run<T: Element>(
        &mut self,
        region: (u32, usize),
        slot: usize,
        [k, v]: [&View<'_, T>; 2],
        at: [usize; 2],
        tokens: Range<usize>,
    ) {
        let Packing { head_dim, v_dim, lanes, terms, words, v_width, word_bytes } = self.packing;
        let (start, first_vector) = self.region(region.0, region.1);
        let [batch, head] = at;
        let (keys, values) = (start / word_bytes, (start + self.region[0]) / word_bytes);
        let slots = slot..slot + tokens.len();
        let mut row = vec![0.0f32; head_dim.max(v_dim)];
        for (slot, token) in slots.clone().zip(tokens) {
            let at = [batch, head, token];
            let key = keys + slot / lanes * words * lanes + slot % lanes;
            let value = values + slot / terms * v_width;
            if terms == 2 {
                let memory = self.lines.values_mut::<f32>();
                k.copy_row(at, 0, &mut row[..head_dim]);
                for x in &row[..head_dim] {
                    self.largest = self.largest.max(if x.is_nan() { f32::INFINITY } else { x.abs() });
                }
                let pairs = row[..head_dim].chunks(2).chain(std::iter::repeat(&[0.0][..]));
                for (word, pair) in memory[key..].iter_mut().step_by(lanes).take(words).zip(pairs) {
                    *word = pair_up(pair[0], pair.get(1).copied().unwrap_or(0.0));
                }
                v.copy_row(at, 0, &mut row[..v_dim]);
                for (word, value) in memory[value..].iter_mut().zip(&row[..v_dim]) {
                    let (old, new) = (word.to_bits(), pair_up(*value, *value).to_bits());
                    let keep = if slot % 2 == 0 { 0xffff_0000 } else { 0xffff };
                    *word = f32::from_bits(old & keep | new & !keep);
                }
            } else {
                let memory = self.lines.values_mut::<T>();
                for (d, value) in memory[key..].iter_mut().step_by(lanes).take(head_dim).enumerate() {
                    *value = k.value([batch, head, token, d]);
                }
                for (d, value) in memory[value..value + v_dim].iter_mut().enumerate() {
                    *value = v.value([batch, head, token, d]);
                }
            }
        }
        for vector in slots.start / lanes..slots.end.div_ceil(lanes) {
            let rows = values + vector * lanes / terms * v_width..values + (vector + 1) * lanes / terms * v_width;
            self.non_finite[first_vector + vector] = match terms {
                2 => !all_finite::<Pairs>(&self.lines.values::<f32>()[rows]),
                _ => !self.lines.values::<T>()[rows].iter().all(|x| x.finite()),
            };
        }
    }
}

/// The computation of [`Store::widen`] as a kernel, which is compiled once for each processor path instead of at each
/// call site.
struct Widen<'a> {
    store: &'a Store,
    first: usize,
    into: &'a mut [f32],
}

impl<S: Simd> Kernel<S> for Widen<'_> {
    #[inline(always)]
    fn run(self, s: S) {
        let Widen { store, first, into } = self;
        let words = first..first + into.len();
        match store.dtype {
            Dtype::Bf16 if store.packing.word_bytes == 2 => widen(s, &store.lines.values::<bf16>()[words], into),
            Dtype::F16 => widen(s, &store.lines.values::<f16>()[words], into),
            _ => into.copy_from_slice(&store.lines.values()[words]),
        }
    }
}

/// Converts the numbers `from` to `f32` and writes them to `into`. Both slices must have the same length, a multiple of
/// the number of lanes.
#[inline(always)]
fn widen<S: Simd, T: Number>(s: S, from: &[T], into: &mut [f32]) {
    assert!(from.len() == into.len() && from.len().is_multiple_of(S::LANES));
    for (from, into) in S::Array::<T>::chunks(from).iter().zip(into.chunks_exact_mut(S::LANES)) {
        into.copy_from_slice(floats(std::slice::from_ref(&T::widen(s, from))));
    }
}

impl<'a> StoredHead<'a> {
    /// Returns the page of the key at `index`, the slot of the key in the page, and the number of keys from `index` on
    /// that are consecutive in memory. The page is `None` if `index` is after the last page.
    #[inline]
    fn locate(&self, index: usize) -> (Option<u32>, usize, usize) {
        let (slot, follow) = self.ring.slot(index);
        let (page, slot) = (slot / self.store.page, slot % self.store.page);
        (self.pages.get(page).copied(), slot, follow.min(self.store.page - slot))
    }

    /// Returns whether a value of the keys in the slots `slot..slot + run` of a page may be infinite or NaN.
    #[inline(always)]
    fn non_finite(&self, page: u32, slot: usize, run: usize) -> bool {
        let (lanes, first) = (self.store.packing.lanes, self.store.region(page, self.head).1);
        self.store.non_finite[first + slot / lanes..first + (slot + run).div_ceil(lanes)].contains(&true)
    }

    /// Returns a number of keys whose multiples a block of keys should not cross, or `usize::MAX` if there is no such
    /// border. `few` is true if one register tile reads the block. A block can be read in place if words have 4 bytes,
    /// or if `few` is true. The result is then the number of keys in a page, so that the block is contiguous. If a page
    /// is smaller than a block or not a multiple of a lane group, blocks are copied: the result is `BLOCK` for words of
    /// 2 bytes if `few` is true, and otherwise `usize::MAX`.
    pub(crate) fn page(&self, few: bool) -> usize {
        let Store { page, packing, .. } = *self.store;
        let large = page >= BLOCK && page.is_multiple_of(packing.group());
        match packing.word_bytes {
            4 if large => page,
            2 if few && large => page,
            2 if few => BLOCK,
            _ => usize::MAX,
        }
    }

    /// Returns the keys and values at the indices `keys`, as `[keys, values]`, without a copy, or `None` if they are
    /// not contiguous in memory.
    #[inline(always)]
    fn in_place<T: Element>(&self, keys: Range<usize>) -> Option<[&'a [T]; 2]> {
        let store = self.store;
        let Packing { words, v_width, word_bytes, terms, .. } = store.packing;
        let (page, slot, run) = self.locate(keys.start);
        let page = page.filter(|_| run >= keys.len())?;
        let memory = store.lines.values::<T>();
        let start = store.region(page, self.head).0;
        let (key, value) =
            (start / word_bytes + slot * words, (start + store.region[0]) / word_bytes + slot / terms * v_width);
        Some([&memory[key..][..keys.len() * words], &memory[value..][..keys.len() / terms * v_width]])
    }

    /// Returns the keys and values at the indices `keys`, as `[keys, values]`, without a copy, or `None` if they are
    /// not contiguous in memory. The field `next` of both has the keys or values at the next indices, at most one
    /// block, if they are contiguous; otherwise `next` is empty.
    #[inline(always)]
    fn stretches<T: Element>(&self, keys: Range<usize>) -> Option<[Stretch<'a, T>; 2]> {
        let now = self.in_place(keys.clone())?;
        let Packing { terms, .. } = self.store.packing;
        let group = self.store.packing.group();
        let run = self.locate(keys.end).2.min(BLOCK * terms) / group * group;
        let next = self.in_place(keys.end..keys.end.saturating_add(run)).unwrap_or_default();
        Some(std::array::from_fn(|i| Stretch { now: now[i], next: next[i] }))
    }

    /// Returns the keys and values at the indices `keys`, as `[keys, values]`, without a copy, if they are stored as
    /// single 16-bit numbers. Returns `None` if they are stored as `f32` or as pairs of `bf16`, or if they are not
    /// contiguous in memory.
    #[inline(always)]
    fn halves(&self, keys: Range<usize>) -> Option<[Far<'a>; 2]> {
        match self.store.dtype {
            _ if self.store.packing.word_bytes == 4 => None,
            Dtype::Bf16 => self.stretches(keys).map(|both| both.map(Far::Bf16)),
            _ => self.stretches(keys).map(|both| both.map(Far::F16)),
        }
    }

    /// Returns the indices of the keys in the lane groups of `block` (consecutive keys that the kernels read together).
    fn indices<S: Simd, P: Product>(block: &KeyBlock) -> Range<usize> {
        block.keys.start..block.keys.start + block.groups.len() * group::<S, P>()
    }

    /// Returns the keys of the lane groups of `block` (consecutive keys that the kernels read together) as `(keys, keys as
    /// stored)`. The first result is in the cache or a copy in `space`. It is empty if one register tile reads 16-bit keys
    /// directly from the cache; only the second result then has the keys. Lane groups that do not begin with a lane group of
    /// the cache are copied.
    #[inline(always)]
    pub(crate) fn keys<'b, S: Simd, P: Product>(
        &self,
        s: S,
        block: &KeyBlock,
        reads: Reads,
        space: &'b mut [S::V],
    ) -> (&'b [S::V], Far<'b>)
    where
        'a: 'b,
    {
        let store = self.store;
        let Packing { words, word_bytes, .. } = store.packing;
        assert!(
            store.packing.group() == group::<S, P>(),
            "the layout in which the cache stores keys must be that of the processor path that reads them"
        );
        let mut keys = Self::indices::<S, P>(block);
        let start = |page| store.region(page, self.head).0 / word_bytes;
        if !keys.start.is_multiple_of(S::LANES) {
            let space = &mut space[..keys.len() * words / S::LANES];
            s.run(MovedKeys { head: self, first: keys.start, into: &mut *space });
            return (space, Far::Words(Stretch { now: floats(space), next: &[] }));
        }
        if word_bytes == 4 {
            if let Some([k, _]) = self.stretches(keys.clone()) {
                return (vectors(k.now), Far::Words(k));
            }
        } else if let Some([k, _]) = self.halves(keys.clone()).filter(|_| reads.once) {
            return (&[], k);
        }
        let space = &mut space[..keys.len() * words / S::LANES];
        let mut rest = floats_mut(space);
        while !keys.is_empty() {
            let (page, slot, run) = self.locate(keys.start);
            keys.start += run.min(keys.len());
            let now;
            (now, rest) = rest.split_at_mut((run * words).min(rest.len()));
            match page {
                Some(page) => store.widen(s, start(page) + slot * words, now),
                // These keys are after the last page, so no query reads them.
                None => now.fill(0.0),
            }
        }
        (space, Far::Words(Stretch { now: floats(space), next: &[] }))
    }

    /// Returns the values of the lane groups of `block` (consecutive keys that the kernels read together) as `(values, whether
    /// a value may be infinite or NaN, values as stored)`. The first result is in the cache or a copy in `space`. It is empty if one register tile reads 16-bit values directly from the cache; only the
    /// third result then has the values. A copy has only the columns `columns`, a range of vectors of each row.
    #[inline(always)]
    pub(crate) fn values<'b, S: Simd, P: Product>(
        &self,
        s: S,
        block: &KeyBlock,
        columns: Range<usize>,
        reads: Reads,
        space: &'b mut [f32],
    ) -> (&'b [f32], bool, Far<'b>)
    where
        'a: 'b,
    {
        let store = self.store;
        let Packing { v_width, word_bytes, .. } = store.packing;
        let mut keys = Self::indices::<S, P>(block);
        let start = |page| (store.region(page, self.head).0 + store.region[0]) / word_bytes;
        if !keys.start.is_multiple_of(P::TERMS) {
            let space = &mut space[..keys.len() / P::TERMS * v_width];
            let mut found = false;
            s.run(MovedValues { head: self, first: keys.start, into: &mut *space, found: &mut found });
            return (space, found, Far::Words(Stretch { now: space, next: &[] }));
        }
        let columns = columns.start * S::LANES..columns.end * S::LANES;
        let in_place = match word_bytes {
            4 => self.stretches(keys.clone()).map(|[_, v]| (v.now, Far::Words(v))),
            _ => self.halves(keys.clone()).filter(|_| reads.once).map(|[_, v]| (&[][..], v)),
        };
        if let Some((values, far)) = in_place {
            let (page, slot, run) = self.locate(keys.start);
            let non_finite = page.is_none_or(|page| self.non_finite(page, slot, run.min(keys.len())));
            // Cells of a masked block with such values are visited one by one, as `f32`.
            if word_bytes == 4 || !(non_finite && reads.masked) {
                return (values, non_finite, far);
            }
        }
        let space = &mut space[..keys.len() / P::TERMS * v_width];
        let (mut found_non_finite, mut rest) = (false, &mut space[..]);
        while !keys.is_empty() {
            let (page, slot, run) = self.locate(keys.start);
            let run = run.min(keys.len());
            keys.start += run;
            let now;
            (now, rest) = rest.split_at_mut(run / P::TERMS * v_width);
            let Some(page) = page else {
                now.fill(0.0);
                continue;
            };
            found_non_finite |= self.non_finite(page, slot, run);
            let first = start(page) + slot / P::TERMS * v_width;
            if columns.len() == v_width {
                store.widen(s, first, now);
                continue;
            }
            for (row, now) in now.chunks_exact_mut(v_width).enumerate() {
                store.widen(s, first + row * v_width + columns.start, &mut now[columns.clone()]);
            }
        }
        let far = Far::Words(Stretch { now: space, next: &[] });
        (space, found_non_finite, far)
    }
}

/// The copy of keys in pairs whose lane groups do not begin with a lane group of the cache, as a kernel, which is compiled
/// for each processor path. Each vector of the result has lanes of two neighbouring vectors of the cache.
struct MovedKeys<'a, 'b, S: Simd> {
    head: &'a StoredHead<'b>,
    /// The index of the first key.
    first: usize,
    into: &'a mut [S::V],
}

impl<S: Simd> Kernel<S> for MovedKeys<'_, '_, S> {
    #[inline(always)]
    fn run(self, s: S) {
        let MovedKeys { head, first, into } = self;
        let store = head.store;
        let words = store.packing.words;
        let memory = store.lines.values::<f32>();
        let at = first % S::LANES;
        let low = (1u64 << (S::LANES - at)) - 1;
        let vector = |index: usize| {
            let (page, slot, _) = head.locate(index);
            page.map(|page| store.region(page, head.head).0 / store.packing.word_bytes + slot * words)
        };
        for (i, into) in into.chunks_exact_mut(words).enumerate() {
            let first = first - at + i * S::LANES;
            let (this, next) = (vector(first), vector(first + S::LANES));
            for (word, to) in into.iter_mut().enumerate() {
                let skip = word * S::LANES + at;
                // No query reads the keys after the last page, whose lanes may hold any numbers.
                *to = this.map_or(s.splat(0.0), |this| s.load(&memory[this + skip..]));
                match next.map(|next| next + skip) {
                    None => {}
                    Some(end) if end >= S::LANES => *to = s.keep(low, *to, s.load(&memory[end - S::LANES..])),
                    Some(end) => floats_mut(std::slice::from_mut(to))[S::LANES - at..].copy_from_slice(&memory[..end]),
                }
            }
        }
    }
}

/// The copy of values in pairs whose first key is odd, as a kernel: a row of the result has values of two neighbouring rows of
/// the cache.
struct MovedValues<'a, 'b> {
    head: &'a StoredHead<'b>,
    /// The index of the first key.
    first: usize,
    into: &'a mut [f32],
    /// Whether a value may be infinite or NaN.
    found: &'a mut bool,
}

impl<S: Simd> Kernel<S> for MovedValues<'_, '_> {
    #[inline(always)]
    fn run(self, _: S) {
        let MovedValues { head, first: mut key, into: mut rest, found } = self;
        let store = head.store;
        let Packing { v_width, word_bytes, .. } = store.packing;
        let memory = store.lines.values::<f32>();
        let row = |page, slot: usize| {
            let start = (store.region(page, head.head).0 + store.region[0]) / word_bytes;
            &memory[start + slot / 2 * v_width..]
        };
        while !rest.is_empty() {
            let (page, slot, run) = head.locate(key);
            let rows = if page.is_none() { 1 } else { (run / 2).clamp(1, rest.len() / v_width) };
            let now;
            (now, rest) = rest.split_at_mut(rows * v_width);
            // No query reads the keys after the last page.
            let zeros = vec![0.0; if page.is_none() || run < 2 { v_width } else { 0 }];
            let (mut low, mut high) = (&zeros[..], &zeros[..]);
            if let Some(page) = page {
                *found |= head.non_finite(page, slot, run.min(2 * rows));
                low = row(page, slot);
                if run >= 2 {
                    high = &low[v_width..];
                } else if let (Some(page), slot, _) = head.locate(key + 1) {
                    *found |= head.non_finite(page, slot, 1);
                    high = row(page, slot);
                }
            }
            for ((to, low), high) in now.iter_mut().zip(low).zip(high) {
                *to = f32::from_bits(low.to_bits() >> 16 | high.to_bits() << 16);
            }
            key += 2 * rows;
        }
    }
}

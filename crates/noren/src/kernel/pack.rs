//! Keys and values laid out for the kernel.
//!
//! Keys are transposed in *lane groups*: group `g` holds keys `g * LANES..(g + 1) * LANES`, counted from the first key of
//! the sequence, as `[head_dim]` vectors with a key in each lane. Groups do not depend on any tile, so neither do the bits
//! of a score. Values are used where they lie when their rows follow each other and fill vectors, and are copied otherwise.

use super::micro::{BLOCK, WIDE};
use super::simd::{Kernel, Lanes, Simd, floats, floats_mut, zeroed};
use crate::{Element, View};
use std::ops::Range;

/// The arrays of one key-value head.
#[derive(Clone, Copy)]
pub(crate) struct Head<'a, T> {
    pub(crate) k: View<'a, T>,
    pub(crate) v: View<'a, T>,
    pub(crate) batch: usize,
    pub(crate) head: usize,
    /// Whether values are read so often that copying ones that are not aligned to vectors pays.
    pub(crate) align_values: bool,
}

/// Keys and values of one key-value head, packed for all that read them.
pub(crate) struct Packed<S: Simd> {
    /// The first group that `keys` holds.
    first_group: usize,
    /// `[groups][head_dim]`.
    keys: Vec<S::V>,
    /// `[LANES * groups][v_width]`, where values cannot be used in place.
    values: Option<Vec<S::V>>,
    /// Whether block number `i` of `BLOCK` keys, counted from the first group, holds a value that is not finite.
    wild: Vec<bool>,
}

/// What a tile reads of a block of keys.
pub(crate) struct Block<'a, S: Simd> {
    /// `[groups][head_dim]`.
    pub(crate) keys: &'a [S::V],
    /// `[keys][v_width]`; may end early at the last key of the sequence.
    pub(crate) values: &'a [f32],
    /// Whether some value of the block may be infinite or NaN.
    pub(crate) wild: bool,
}

/// Room for a block that is packed when it is needed.
pub(crate) struct BlockScratch<S: Simd> {
    keys: Vec<S::V>,
    values: Vec<S::V>,
}

impl<'a, T: Element> Head<'a, T> {
    pub(crate) fn head_dim(&self) -> usize {
        self.k.shape()[3]
    }

    /// `v_dim` rounded up to whole vectors.
    pub(crate) fn v_width<S: Simd>(&self) -> usize {
        self.v.shape()[3].next_multiple_of(S::LANES)
    }

    /// The values in place from key `first` on, when the kernel can use them so: `f32`, in rows that follow each other, fill
    /// vectors and, where it pays, are aligned to them: a vector across two cache lines costs two loads.
    fn values_in_place<S: Simd>(&self, first: usize) -> Option<&'a [f32]> {
        let fits = self.v.shape()[3].is_multiple_of(S::LANES);
        let values = fits.then(|| self.v.dense_rows(self.batch, self.head, first)).flatten();
        values.filter(|values| !self.align_values || values.as_ptr().cast::<S::V>().is_aligned())
    }

    /// Transposes lane groups `groups` into `into`, lanes beyond the last key zero.
    #[inline(always)]
    fn pack_keys<S: Simd>(&self, s: S, groups: Range<usize>, into: &mut [S::V]) {
        let (head_dim, kv_len) = (self.head_dim(), self.k.shape()[2]);
        let mut square = [s.splat(0.0); BLOCK];
        let square = &mut square[..S::LANES];
        for (g, into) in groups.zip(into.chunks_exact_mut(head_dim)) {
            let keys = g * S::LANES..kv_len.min((g + 1) * S::LANES);
            for (d, into) in into.chunks_mut(S::LANES).enumerate() {
                for (key, lane) in (g * S::LANES..).zip(square.iter_mut()) {
                    *lane = match self.k.row([self.batch, self.head, key.min(kv_len - 1)]) {
                        Some(row) if key < keys.end && into.len() == S::LANES => s.load(&row[d * S::LANES..]),
                        _ => {
                            let mut line = [0.0; BLOCK];
                            if key < keys.end {
                                let at = [self.batch, self.head, key];
                                self.k.copy_row(at, d * S::LANES, &mut line[..into.len()]);
                            }
                            s.load(&line)
                        }
                    };
                }
                s.transpose(square);
                into.copy_from_slice(&square[..into.len()]);
            }
        }
    }

    /// Copies the values of `keys` into rows of `v_width` values; what pads a row stays as it was.
    fn pack_values<S: Simd>(&self, keys: Range<usize>, into: &mut [S::V]) {
        let v_dim = self.v.shape()[3];
        let rows = floats_mut(into).chunks_exact_mut(self.v_width::<S>());
        for (key, row) in keys.zip(rows) {
            self.v.copy_row([self.batch, self.head, key], 0, &mut row[..v_dim]);
        }
    }
}

impl<S: Simd> Packed<S> {
    /// Memory for nothing yet.
    pub(crate) fn empty() -> Self {
        Packed { first_group: 0, keys: Vec::new(), values: None, wild: Vec::new() }
    }

    /// Packs keys and values of the groups that hold keys `hull`, into the memory of a head that nobody needs any more.
    #[inline(always)]
    pub(crate) fn refill<T: Element>(&mut self, s: S, head: &Head<'_, T>, hull: Range<usize>) {
        self.first_group = hull.start / S::LANES;
        let groups = self.first_group..hull.end.div_ceil(S::LANES);
        let keys = groups.start * S::LANES..(groups.end * S::LANES).min(head.k.shape()[2]);
        resize(&mut self.keys, groups.len() * head.head_dim());
        head.pack_keys(s, groups, &mut self.keys);
        let width = head.v_width::<S>();
        self.wild = match head.values_in_place::<S>(keys.start) {
            Some(values) => {
                self.values = None;
                wild_blocks(&values[..keys.len() * width], width)
            }
            None => {
                let values = self.values.get_or_insert_default();
                resize(values, keys.len() * width / S::LANES);
                head.pack_values::<S>(keys, values);
                wild_blocks(floats(values), width)
            }
        };
    }

    /// Groups `groups`, at most a block of them.
    #[inline(always)]
    pub(crate) fn block<'a, T: Element>(&'a self, head: &Head<'a, T>, groups: Range<usize>) -> Block<'a, S> {
        let head_dim = head.head_dim();
        let first = groups.start - self.first_group;
        let values = match &self.values {
            None => head.values_in_place::<S>(groups.start * S::LANES).expect("values were found in place before"),
            Some(values) => &floats(values)[first * S::LANES * head.v_width::<S>()..],
        };
        let last_key = (first + groups.len()) * S::LANES - 1;
        let blocks = first * S::LANES / BLOCK..(last_key / BLOCK + 1).min(self.wild.len());
        Block {
            keys: &self.keys[first * head_dim..][..groups.len() * head_dim],
            values,
            wild: self.wild[blocks].contains(&true),
        }
    }
}

impl<S: Simd> BlockScratch<S> {
    pub(crate) fn new(head_dim: usize, v_width: usize) -> Self {
        BlockScratch { keys: zeroed(WIDE / S::LANES * head_dim), values: zeroed(WIDE * v_width / S::LANES) }
    }

    /// Room for nothing.
    pub(crate) fn empty() -> Self {
        BlockScratch { keys: Vec::new(), values: Vec::new() }
    }

    /// Groups `groups`, at most a block of them, packed now.
    #[inline(always)]
    pub(crate) fn block<'a, T: Element>(&'a mut self, s: S, head: &Head<'a, T>, groups: Range<usize>) -> Block<'a, S> {
        let keys = groups.start * S::LANES..(groups.end * S::LANES).min(head.k.shape()[2]);
        let packed = &mut self.keys[..groups.len() * head.head_dim()];
        head.pack_keys(s, groups, packed);
        let width = head.v_width::<S>();
        let values = match head.values_in_place::<S>(keys.start) {
            Some(values) => &values[..keys.len() * width],
            None => {
                head.pack_values::<S>(keys.clone(), &mut self.values);
                &floats(&self.values)[..keys.len() * width]
            }
        };
        Block { keys: packed, values, wild: !all_finite(values) }
    }
}

/// Packs a head: [`Packed::refill`] as work for a processor path.
pub(crate) struct Refill<'a, S: Simd, T> {
    pub(crate) packed: &'a mut Packed<S>,
    pub(crate) head: Head<'a, T>,
    pub(crate) hull: Range<usize>,
}

impl<S: Simd, T: Element> Kernel<S> for Refill<'_, S, T> {
    #[inline(always)]
    fn run(self, s: S) {
        self.packed.refill(s, &self.head, self.hull);
    }
}

/// Makes room for `len` vectors. What was there before may stay: packing overwrites it, but for the ends of padded rows,
/// which are always zero.
fn resize<V: Lanes>(vectors: &mut Vec<V>, len: usize) {
    if len <= vectors.len() {
        vectors.truncate(len);
    } else {
        *vectors = zeroed(len);
    }
}

/// For each block of `BLOCK` rows of `width` values whether one is infinite or NaN.
fn wild_blocks(values: &[f32], width: usize) -> Vec<bool> {
    values.chunks(BLOCK * width).map(|block| !all_finite(block)).collect()
}

/// Whether no value is infinite or NaN.
#[inline(always)]
fn all_finite(values: &[f32]) -> bool {
    // An exponent of all ones: adding one to it carries into the sign bit, so a plain OR of sums finds it.
    let carry = |x: &f32| (x.to_bits() & 0x7fff_ffff) + 0x0080_0000;
    values.chunks(256).all(|chunk| chunk.iter().fold(0, |or, x| or | carry(x)) & 0x8000_0000 == 0)
}

//! [`Blocks`]: which tiles of a fixed size are empty, mixed or full.

use super::Runs;
use crate::plan::Plan;

/// The tiles of `block_q` x `block_kv` cells of one pattern (the set of cells of a batch row and head). For each mixed
/// tile, also its cells as bits.
///
/// Block-sparse kernels read these tiles: FlexAttention's `BlockMask`, FlashAttention-4, FlashInfer's BSR, Splash's `MaskInfo`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Blocks {
    /// The numbers `[rows of tiles, columns of tiles]`.
    pub shape: [usize; 2],
    /// One number for each tile, in row-major order: [`EMPTY`](Self::EMPTY), [`FULL`](Self::FULL), or the index of the
    /// tile in `bits` if it is mixed.
    pub slot: Vec<i32>,
    /// The cells of the mixed tiles as bits, `[mixed tile][block_q][block_kv.div_ceil(32)]`, 1 for allowed. In the
    /// words of one row of a tile, key `k` of the tile is bit `k % 32` of word `k / 32`. Bits beyond the last query or
    /// key are 0.
    pub bits: Vec<u32>,
}

impl Blocks {
    /// The entry of `slot` for a tile without allowed cells.
    pub const EMPTY: i32 = -1;
    /// The entry of `slot` for a tile in which every cell is allowed.
    pub const FULL: i32 = -2;

    /// Returns the number of mixed tiles.
    pub fn mixed(&self) -> usize {
        self.slot.iter().filter(|slot| **slot >= 0).count()
    }
}

impl Plan {
    /// Returns the tiles of pattern `pattern` (the set of cells of a batch row and head), with `block_q` queries and
    /// `block_kv` keys per tile. A size of 0 counts as 1. If `cut_may_be_full` is false, a tile that extends beyond the
    /// last query or key is never full. Give false for FlexAttention: it counts cells beyond the last query or key as
    /// denied.
    ///
    /// ```
    /// use noren_mask::{Blocks, Facts, Shape, atoms::*};
    /// let plan = causal().bind(&Shape::square(4), &Facts::new())?.plan();
    /// let blocks = plan.blocks(0, [2, 2], false);
    /// assert_eq!(blocks.slot, [0, Blocks::EMPTY, Blocks::FULL, 1]);
    /// assert_eq!(blocks.bits, [0b01, 0b11, 0b01, 0b11]);
    /// # Ok::<(), noren_mask::Error>(())
    /// ```
    ///
    /// # Panics
    /// Panics if the plan has no pattern with this index.
    pub fn blocks(&self, pattern: usize, [block_q, block_kv]: [usize; 2], cut_may_be_full: bool) -> Blocks {
        let (block_q, block_kv) = (block_q.max(1), block_kv.max(1));
        let rows = self.row_runs(pattern);
        let (q_len, kv_len) = (self.shape().q_len(), self.shape().kv_len());
        let shape = [q_len.div_ceil(block_q), kv_len.div_ceil(block_kv)];
        let mut out = Blocks { shape, slot: Vec::with_capacity(shape[0] * shape[1]), bits: Vec::new() };
        for block in 0..shape[0] {
            let lines = block * block_q..q_len.min((block + 1) * block_q);
            let counts = counts(&rows, lines.clone(), block_kv, shape[1]);
            let first = out.slot.len();
            for (key, count) in counts.into_iter().enumerate() {
                let width = if cut_may_be_full { block_kv.min(kv_len - key * block_kv) } else { block_kv };
                let height = if cut_may_be_full { lines.len() } else { block_q };
                out.slot.push(match count {
                    0 => Blocks::EMPTY,
                    n if n == (width * height) as u64 => Blocks::FULL,
                    _ => {
                        let number = out.bits.len() / (block_q * block_kv.div_ceil(32));
                        out.bits.resize(out.bits.len() + block_q * block_kv.div_ceil(32), 0);
                        number as i32
                    }
                });
            }
            let slots = &out.slot[first..];
            for row in lines.clone() {
                fill(&mut out.bits, slots, rows.list(row), row - lines.start, [block_q, block_kv]);
            }
        }
        out
    }
}

/// Returns the number of allowed cells of each tile in one row of `tiles` tiles. `lines` is the query rows of this row
/// of tiles, `rows` the allowed keys of all query rows, and `block_kv` the number of keys of a tile.
fn counts(rows: &Runs, lines: std::ops::Range<usize>, block_kv: usize, tiles: usize) -> Vec<u64> {
    let mut counts = vec![0u64; tiles];
    let mut steps = vec![0i64; tiles + 1];
    for [start, end] in lines.flat_map(|row| rows.list(row)) {
        let (start, end) = (*start as usize, *end as usize);
        let (first, last) = (start / block_kv, (end - 1) / block_kv);
        if first == last {
            counts[first] += (end - start) as u64;
            continue;
        }
        counts[first] += ((first + 1) * block_kv - start) as u64;
        counts[last] += (end - last * block_kv) as u64;
        steps[first + 1] += 1;
        steps[last] -= 1;
    }
    let mut whole = 0;
    for (count, step) in counts.iter_mut().zip(steps) {
        whole += step;
        *count += whole as u64 * block_kv as u64;
    }
    counts
}

/// Sets the bits of one query row in the mixed tiles of one row of tiles. `slots` is the entries of [`Blocks::slot`]
/// for these tiles, and `runs` the allowed keys of the query row. `line` is the index of the query row within the row
/// of tiles.
fn fill(bits: &mut [u32], slots: &[i32], runs: &[[u32; 2]], line: usize, [block_q, block_kv]: [usize; 2]) {
    let words = block_kv.div_ceil(32);
    for [start, end] in runs {
        let (start, end) = (*start as usize, *end as usize);
        let (first, last) = (start / block_kv, (end - 1) / block_kv);
        for (tile, slot) in (first..=last).zip(&slots[first..=last]) {
            let Ok(slot) = usize::try_from(*slot) else { continue };
            let row = &mut bits[(slot * block_q + line) * words..][..words];
            let origin = tile * block_kv;
            for key in start.max(origin) - origin..end.min(origin + block_kv) - origin {
                row[key / 32] |= 1 << (key % 32);
            }
        }
    }
}

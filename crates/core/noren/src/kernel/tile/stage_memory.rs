//! The memory of one thread for the stages of a tile ([`Stage`](crate::kernel::simd::stage::Stage)).

use crate::kernel::keys::pack::BlockScratch;
use crate::kernel::simd::stage::{KEYS, ROWS, WORDS};
use crate::kernel::simd::{Simd, zeroed};
use crate::processor::tiles::SIDE;

/// The number of blocks whose mask bits are made at a time. All rows pass over these blocks before the next ones, so that the
/// keys and values stay in the second-level cache.
pub(super) const RUN: usize = 16;

/// The memory of one thread for stages.
pub(super) struct Memory<S: Simd> {
    /// Keys and values that cannot be read in place, one for each block of a run.
    pub(super) blocks: Vec<BlockScratch<S>>,
    /// Mask bits, `[blocks][rows]`, in whole stages of rows.
    pub(super) words: Vec<[u64; ROWS]>,
    /// The scores of two stages, `[2][ROWS][KEYS]`.
    pub(super) scores: Vec<S::V>,
    /// The weights of two stages, `[2][ROWS][WORDS]`.
    pub(super) weights: Vec<S::V>,
    /// The sums of the weights of each row, `[rows][SIDE]`.
    pub(super) sums: Vec<S::V>,
    /// The offset of the scores of each row.
    pub(super) offsets: Vec<[f32; ROWS]>,
    /// Whether the rows of a stage have sums of the current job.
    pub(super) begun: Vec<bool>,
    /// The number of rows of each stage that have seen no score.
    pub(super) unseen: Vec<usize>,
    /// Whether a score of the current job may be too large for the fixed point of weights, or no number.
    pub(super) careful: bool,
    /// The size of keys from which on this is so.
    pub(super) largest_keys: f32,
}

impl<S: Simd> Memory<S> {
    /// Allocates memory for `rows` rows.
    pub(super) fn new(rows: usize) -> Self {
        let stages = rows.div_ceil(ROWS);
        Memory {
            blocks: Vec::new(),
            words: vec![[0; ROWS]; RUN * stages],
            scores: zeroed(2 * ROWS * KEYS / S::LANES),
            weights: zeroed(2 * ROWS * WORDS / S::LANES),
            sums: zeroed(stages * ROWS * SIDE / S::LANES),
            offsets: vec![[0.0; ROWS]; stages],
            begun: vec![false; stages],
            unseen: vec![0; stages],
            careful: false,
            largest_keys: 0.0,
        }
    }
}

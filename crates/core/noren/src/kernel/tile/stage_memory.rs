//! The memory for the stages of a tile ([`Stage`](crate::kernel::simd::stage::Stage)).

use crate::kernel::keys::blocks::KeyBlock;
use crate::kernel::keys::pack::BlockScratch;
use crate::kernel::simd::stage::{KEYS, ROWS, WORDS};
use crate::kernel::simd::{Simd, zeroed};
use crate::processor::tiles::SIDE;

/// The number of blocks whose mask bits are made at a time. All rows pass over these blocks before the next ones, so that the
/// keys and values stay in the second-level cache.
pub(super) const RUN: usize = 16;

/// The memory of one job for its stages.
pub(super) struct Memory<S: Simd> {
    /// Keys and values that cannot be read in place, one for each block of a run.
    pub(super) blocks: Vec<BlockScratch<S>>,
    pub(super) state: State,
    pub(super) totals: Totals<S>,
}

/// The state of the rows of a job between its stages, and the blocks of its current run.
pub(super) struct State {
    /// Each block, and whether some of its cells may be hidden.
    pub(super) run: Vec<(KeyBlock, bool)>,
    /// Mask bits, `[blocks][rows]`, in whole stages of rows.
    pub(super) words: Vec<[u64; ROWS]>,
    /// The offset of the scores of each row.
    pub(super) offsets: Vec<[f32; ROWS]>,
    /// The number of rows of each stage that have seen no score.
    pub(super) unseen: Vec<usize>,
    /// Whether a score of the job may be too large for the fixed point of weights, or no number.
    pub(super) careful: bool,
    /// The size of keys from which on this is so.
    pub(super) largest_keys: f32,
}

/// The sums of the rows of a job.
pub(super) struct Totals<S: Simd> {
    /// The sums of weighted values, `[rows][v_width]`: the memory of the tile.
    pub(super) acc: Vec<S::V>,
    /// The sums of the weights of each row, `[rows][SIDE]`.
    pub(super) weights: Vec<S::V>,
    /// Whether the rows of a stage have sums of the current job.
    pub(super) begun: Vec<bool>,
}

/// What two neighbouring stages pass on to the next ones.
pub(super) struct Buffers<S: Simd> {
    /// The scores of two stages, `[2][ROWS][KEYS]`.
    pub(super) scores: Vec<S::V>,
    /// The weights of two stages, `[2][ROWS][WORDS]`.
    pub(super) weights: Vec<S::V>,
}

impl<S: Simd> Memory<S> {
    /// Allocates memory for `rows` rows.
    pub(super) fn new(rows: usize) -> Self {
        let stages = rows.div_ceil(ROWS);
        let state = State {
            run: Vec::with_capacity(RUN),
            words: vec![[0; ROWS]; RUN * stages],
            offsets: vec![[0.0; ROWS]; stages],
            unseen: vec![0; stages],
            careful: false,
            largest_keys: 0.0,
        };
        let weights = zeroed(stages * ROWS * SIDE / S::LANES);
        Memory { blocks: Vec::new(), state, totals: Totals { acc: Vec::new(), weights, begun: vec![false; stages] } }
    }
}

impl<S: Simd> Buffers<S> {
    pub(super) fn new() -> Self {
        Buffers { scores: zeroed(2 * ROWS * KEYS / S::LANES), weights: zeroed(2 * ROWS * WORDS / S::LANES) }
    }
}

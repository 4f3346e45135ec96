//! The operands of one stage of a forward pass that multiplies tiles.

use crate::processor::tiles::SIDE;

/// The maximum number of rows of a stage.
pub(crate) const ROWS: usize = 2 * SIDE;
/// The maximum number of keys of a stage.
pub(crate) const KEYS: usize = 64;
/// The number of words of a row of weights, each a pair of `bf16`.
pub(crate) const WORDS: usize = KEYS / 2;
/// A weight is relative to a maximum that is this much above the largest score in the first block of the row. Later scores
/// may be larger, until a weight is 2 or more.
pub(crate) const HEAD: f32 = 16.0;

/// The operands of one stage. Each part is left out if it is `None`.
pub(crate) struct Stage<'a> {
    /// The number of rows with a query.
    pub(crate) rows: usize,
    pub(crate) next: Option<Scores<'a>>,
    pub(crate) now: Option<Weights<'a>>,
    pub(crate) before: Option<Values<'a>>,
}

impl Stage<'_> {
    /// Returns the length of queries, keys and values, if they have the same length and the stage has all its parts, rows and
    /// keys.
    pub(crate) fn head_dim(&self) -> Option<usize> {
        let (Some(next), Some(_), Some(before)) = (&self.next, &self.now, &self.before) else { return None };
        let whole = self.rows == ROWS && next.tiles == KEYS / SIDE && before.tiles == WORDS / SIDE;
        (whole && before.values.is_some() && 2 * next.words == before.v_width).then_some(before.v_width)
    }

    /// Returns the stage, whose [`head_dim`](Self::head_dim) is `HEAD_DIM`, with sizes that the compiler knows.
    #[inline(always)]
    pub(crate) fn of_head_dim<const HEAD_DIM: usize>(self) -> Self {
        let Stage { next: Some(next), now: Some(now), before: Some(before), .. } = self else { return self };
        let next = Scores { tiles: KEYS / SIDE, words: HEAD_DIM / 2, ..next };
        let before = Values { tiles: WORDS / SIDE, v_width: HEAD_DIM, ..before };
        Stage { rows: ROWS, next: Some(next), now: Some(now), before: Some(before) }
    }
}

/// The scores of a block that are computed: `[ROWS][KEYS]`.
pub(crate) struct Scores<'a> {
    pub(crate) rows: usize,
    /// The queries, `[rows][words]`, in whole tiles of rows.
    pub(crate) queries: &'a [f32],
    /// The keys, `[tiles of 16 keys][words][16]`.
    pub(crate) keys: &'a [f32],
    pub(crate) words: usize,
    pub(crate) tiles: usize,
    pub(crate) into: &'a mut [f32; ROWS * KEYS],
}

/// The scores of a block that become weights: `[ROWS][WORDS]` pairs.
pub(crate) struct Weights<'a> {
    pub(crate) scores: &'a [f32; ROWS * KEYS],
    pub(crate) into: &'a mut [f32; ROWS * WORDS],
    /// The mask bits of the rows; `None` if all cells are allowed.
    pub(crate) words: Option<&'a [u64; ROWS]>,
    /// By what the scores are multiplied: the factor of the call times [`OCTAVE`].
    pub(crate) scale: f32,
    /// The [`offset`] of the scores of each row.
    pub(crate) offsets: &'a [f32; ROWS],
}

/// The weights of a block, whose weighted values are added.
pub(crate) struct Values<'a> {
    pub(crate) rows: usize,
    pub(crate) weights: &'a [f32; ROWS * WORDS],
    /// The values, `[words][v_width]`. Without values, only the weights are added.
    pub(crate) values: Option<&'a [f32]>,
    pub(crate) v_width: usize,
    /// The number of tiles of 16 words of the block.
    pub(crate) tiles: usize,
    /// The weighted values of the rows, `[rows][v_width]`, in whole tiles of rows.
    pub(crate) sums: &'a mut [f32],
    /// The sums of the weights of the rows, the same number in all of 16 columns.
    pub(crate) weight_sums: &'a mut [f32; ROWS * SIDE],
    /// Whether the sums begin at 0.
    pub(crate) first: bool,
}

/// The number of units of the fixed point in an octave of a weight.
pub(crate) const OCTAVE: f32 = 512.0;
/// The number of units by which the fixed point of a score is too small, so that corrections are positive.
pub(crate) const BELOW: f32 = 48.0;
/// The fixed point of a weight of 2, which is too large.
pub(crate) const LARGE: f32 = 32768.0;

/// Returns what is added to a score, times [`OCTAVE`], of a row with the maximum `maximum`. Weights below 2^-63 become 0.
pub(crate) fn offset(maximum: f32) -> f32 {
    (63.0 - maximum) * OCTAVE - BELOW
}

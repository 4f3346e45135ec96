//! The operands of a product of tiles.

/// The number of rows of a tile, and of its columns of 32 bits.
pub(crate) const SIDE: usize = 16;

/// The left operand of a product of tiles: rows of words, each a pair of terms.
#[derive(Clone, Copy)]
pub(crate) struct Left<'a> {
    pub(crate) words: &'a [f32],
    /// The number of words from one row to the next.
    pub(crate) stride: usize,
    /// The number of rows. The memory has whole tiles of rows.
    pub(crate) rows: usize,
}

/// The right operand of a product of tiles: for each word of the left one, a row of words, one for each column.
#[derive(Clone, Copy)]
pub(crate) struct Right<'a> {
    pub(crate) words: &'a [f32],
    /// The number of words from one row to the next.
    pub(crate) stride: usize,
    /// The number of words from 16 columns to the next 16 columns.
    pub(crate) step: usize,
}

/// The sums to which a product of tiles is added, in rows. The memory has whole tiles of rows.
pub(crate) struct Sums<'a> {
    pub(crate) words: &'a mut [f32],
    /// The number of sums from one row to the next.
    pub(crate) stride: usize,
}

/// One or two tiles of rows, and the weights of two tiles of outputs for all their words.
pub(crate) struct Panel<'a> {
    /// The rows, `[tiles of 16 rows][tiles of 16 words][16][16]`.
    pub(crate) left: &'a [f32],
    /// The weights, `[words][32]`.
    pub(crate) right: &'a [f32],
    /// The numbers with which the sums of the outputs begin; `None` for 0.
    pub(crate) begin: Option<&'a [f32; 2 * SIDE]>,
    pub(crate) words: usize,
    /// Whether there are two tiles of rows.
    pub(crate) two: bool,
}

/// The number of operations of a round of products, by which their speed is measured: four products of tiles.
pub(crate) const ROUND: u32 = 4 * 2 * 2 * (SIDE * SIDE * SIDE) as u32;

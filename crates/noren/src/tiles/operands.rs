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

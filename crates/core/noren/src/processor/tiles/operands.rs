//! The operands of a product of tiles.

use std::mem::MaybeUninit;

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

/// One or two tiles of rows, and the weights of two tiles of outputs for some of their words.
pub(crate) struct Panel<'a> {
    /// The rows, `[tiles of 16 words][16][16]` for each tile of rows.
    pub(crate) left: &'a [f32],
    /// The number of words from the first tile of rows to the second, if there are two.
    pub(crate) second: Option<usize>,
    /// The weights, `[words][32]`.
    pub(crate) right: &'a [f32],
    /// Memory that is fetched into the second-level cache meanwhile.
    pub(crate) next: &'a [f32],
    pub(crate) begin: Begin<'a>,
    /// What stays in the first-level cache, because it is used again.
    pub(crate) near: Near,
}

/// What is written while a [`Panel`] is computed. Each memory is given with the number of numbers from one row to the next.
pub(crate) struct Target<'a> {
    pub(crate) sums: (&'a mut [f32], usize),
    /// The memory to which the sums are written instead.
    pub(crate) out: Option<(&'a mut [MaybeUninit<f32>], usize)>,
    /// Rows of 64 numbers that are copied meanwhile.
    pub(crate) moved: Option<Moved<'a>>,
}

/// Rows of numbers, the memory to which they are copied, and the number of numbers there from one row to the next.
pub(crate) type Moved<'a> = (&'a [f32], &'a mut [MaybeUninit<f32>], usize);

/// The numbers with which the sums of a [`Panel`] begin.
#[derive(Clone, Copy)]
pub(crate) enum Begin<'a> {
    Zero,
    /// A number for each output.
    Outputs(&'a [f32; 2 * SIDE]),
    /// The sums of the words before.
    Sums,
}

/// An operand of a [`Panel`].
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Near {
    Left,
    Right,
    Neither,
}

/// The number of operations of a round of products, by which their speed is measured: four products of tiles.
pub(crate) const ROUND: u32 = 4 * 2 * 2 * (SIDE * SIDE * SIDE) as u32;

//! The limits of a page, which keep its computation and its size small.

use noren_mask::Error;

/// The maximum size of a page, in bytes.
pub(super) const MOST_FILE: usize = 300_000;
/// The maximum size of the code for one library, in bytes.
pub(super) const MOST_CODE: usize = 8_192;
/// The maximum number of queries, and of keys.
pub(super) const MOST_TOKENS: usize = 65_536;
/// The maximum number of pairs of batch row and head.
pub(super) const MOST_PAIRS: usize = 4_096;
/// The maximum number of different subexpressions of the mask.
pub(super) const MOST_PARTS: usize = 1_024;
/// The maximum number of cells of all subexpressions and patterns (cells of a batch row and head) together.
pub(super) const MOST_CELLS: u64 = 1 << 32;
/// The maximum number of borders of all rows together. The limit exists because the page holds the borders in memory.
pub(super) const MOST_BORDERS: usize = 1 << 25;
/// The maximum size of the cells and of the reasons before compression, in bytes.
pub(super) const MOST_BYTES: usize = 16 << 20;
/// The number of bytes above which rows are long: if the rows of a set of cells take more bytes, a rule that computes
/// the cells is tried.
pub(super) const SHORT: usize = 64;
/// The maximum number of words of queries and keys (texts such as a position or a document number) that are computed
/// for the reasons.
pub(super) const MOST_WORDS: usize = 1 << 23;

/// Returns the error that the mask does not fit in a page, because of `problem`.
pub(super) fn too_large(problem: String) -> Error {
    Error::invalid(format!(
        "picture: the mask is too large for a web page: {problem}; show fewer queries, keys, batch rows or heads, or save the \
         picture as SVG or PNG"
    ))
}

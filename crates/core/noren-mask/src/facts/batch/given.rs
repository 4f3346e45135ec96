//! The arrays of a batch, with the meaning of their names.

use crate::Error;
use crate::facts::Facts;

/// The meaning of an array. Arrays are read in this order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Meaning {
    /// `[batch, length]`: 1 for a token and 0 for padding; numbers of documents; or numbers that are added to scores.
    Keep,
    /// `[batch, length]`: 1 for padding.
    Drop,
    /// `[batch, length]`: 1 for padding in some libraries, and 1 for a token in others.
    Padding,
    /// `[batch, length]`: token ids. [`Options::pad_id`] is the id of padding.
    Tokens,
    /// The number of tokens of each batch row, with padding on the right.
    Lengths,
    /// The lengths of the packed documents of each batch row.
    Documents,
    /// `[batch, length]`: the number of the document of each token.
    Segments,
    /// As [`Segments`](Self::Segments). A 0 at the beginning of a row is the first document.
    SegmentsFromZero,
    /// `[batch, length]`: positions that begin again at 0 in each document.
    Positions,
    /// The number 0, and the end of each document.
    Ends,
}

impl Meaning {
    /// All meanings, in the order in which arrays are read.
    pub const ALL: [Meaning; 10] = [
        Meaning::Keep,
        Meaning::Drop,
        Meaning::Padding,
        Meaning::Tokens,
        Meaning::Lengths,
        Meaning::Documents,
        Meaning::Segments,
        Meaning::SegmentsFromZero,
        Meaning::Positions,
        Meaning::Ends,
    ];

    /// Returns the names of arrays with this meaning. The first is the usual one.
    pub const fn names(self) -> &'static [&'static str] {
        match self {
            Meaning::Keep => &["attention_mask", "valid", "real"],
            Meaning::Drop => &["key_padding_mask", "src_key_padding_mask"],
            Meaning::Padding => &["padding_mask", "key_padding"],
            Meaning::Tokens => &["input_ids", "token_ids", "ids", "tokens"],
            Meaning::Lengths => &["lengths", "seq_lens", "seqlens", "seq_lengths"],
            Meaning::Documents => &["documents", "document_lengths"],
            Meaning::Segments => {
                &["segment_ids", "segments", "sequence_ids", "seq_ids", "document_ids", "document_id", "doc_ids"]
            }
            Meaning::SegmentsFromZero => &["seq_idx"],
            Meaning::Positions => &["position_ids", "positions", "pos_ids"],
            Meaning::Ends => {
                &["cu_seqlens", "cu_seqlens_q", "cu_seqlens_k", "cu_seq_lens", "cu_seq_lens_q", "cu_seq_lens_k"]
            }
        }
    }
}

/// Returns the meaning of the name of an array, or `None` for an unknown name.
pub fn meaning(name: &str) -> Option<Meaning> {
    Meaning::ALL.into_iter().find(|meaning| meaning.names().contains(&name))
}

/// An array of a batch.
#[derive(Clone, PartialEq, Debug)]
pub struct Entry {
    /// The name, or `None` for an array without a name.
    pub name: Option<String>,
    /// The dimensions.
    pub shape: Vec<usize>,
    /// The numbers in row-major order. True is 1.
    pub values: Vec<f64>,
    /// Whether the numbers have a floating-point type, so that they may be added to scores.
    pub float: bool,
}

/// Data that the caller knows of a batch in addition to its arrays.
#[derive(Clone, Default, Debug)]
pub struct Options {
    /// The document number of padding. `Some(None)`: no number marks padding.
    pub segment_padding: Option<Option<i64>>,
    /// The token id of padding.
    pub pad_id: Option<i64>,
    /// The non-padding tokens and the documents, if they are known.
    pub known: Facts,
}

/// Returns an error about the arrays of a batch.
pub(super) fn refuse<T>(problem: String) -> Result<T, Error> {
    Err(Error::fact("batch", problem))
}

/// The sizes of a batch.
#[derive(Clone, Copy)]
pub(super) struct Batch<'a> {
    /// The number of batch rows, and the number of tokens of each.
    pub(super) size: (usize, usize),
    /// The name of the array that gives the size.
    pub(super) source: &'a str,
    /// Whether the non-padding tokens are known.
    pub(super) padded: bool,
}

//! The declared properties of a mask: its convention, role and kind, and redacted keys.

/// The convention of an array: which stored value allows a cell.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Convention {
    /// True or 1 allows a cell.
    Keep,
    /// True or 1 hides a cell.
    Drop,
    /// The numbers are added to scores: 0 allows a cell, and a large negative number hides a cell.
    Additive,
}

/// The purpose of the array.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Role {
    /// An attention mask, with a dimension of queries and a dimension of keys.
    #[default]
    Attention,
    /// A padding mask: one row of keys for each batch row.
    KeyPadding,
    /// A cross-attention mask: the queries are decoder tokens, and the keys are encoder tokens.
    Cross,
}

/// The properties of a declared kind of mask.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MaskKind {
    /// True when queries read no key after their own position.
    pub causal: bool,
    /// True when tokens read only their own document.
    pub packed: bool,
    /// True when each query reads only keys in a window around itself, or in a window that ends at the query.
    pub sliding: bool,
    /// True when tokens read only their own chunk; all chunks have the same length.
    pub chunked: bool,
    /// True when every query reads all keys of a prefix.
    pub prefix: bool,
    /// True when tokens of one block (such as an image) read each other.
    pub blocks: bool,
    /// True when the last tokens form a tree of draft tokens, as in speculative decoding.
    pub tree: bool,
    /// True when the keys are encoder tokens.
    pub cross: bool,
    /// True when the name of the kind does not define whether queries read later keys. For example, the name `packed`
    /// is used for decoders, which are causal, and for encoders, which are not.
    pub either_way: bool,
}

/// Keys that all queries, or some of them, must not read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Redaction {
    /// Batch rows in which the keys are hidden; an empty list means all batch rows.
    pub batch: Vec<usize>,
    /// The hidden keys.
    pub keys: Vec<usize>,
    /// Queries from which the keys are hidden; an empty list means all queries.
    pub queries: Vec<usize>,
}

//! What a declaration names of a mask: its convention, its role, its kind, the keys that it hides.

/// Which stored value means "may attend".
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Convention {
    /// True or 1 may attend.
    Keep,
    /// True or 1 is ignored.
    Drop,
    /// Added to scores: 0 may attend, a very negative number is ignored.
    Additive,
}

/// What the array is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Role {
    /// Queries by keys.
    #[default]
    Attention,
    /// One row of keys for each batch row.
    KeyPadding,
    /// Decoder queries by encoder keys.
    Cross,
}

/// What a declared kind of mask is made of.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MaskKind {
    /// Queries read no later key.
    pub causal: bool,
    /// Tokens read their own document only.
    pub packed: bool,
    /// A window around or before each query.
    pub sliding: bool,
    /// Chunks of equal length.
    pub chunked: bool,
    /// A prefix that is read from everywhere.
    pub prefix: bool,
    /// Blocks inside which everybody reads everybody (images among text).
    pub blocks: bool,
    /// A tree of drafts.
    pub tree: bool,
    /// Encoder keys.
    pub cross: bool,
    /// The name leaves open whether queries read later keys: documents are packed for decoders and for encoders.
    pub either_way: bool,
}

/// Keys that some queries must not read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Redaction {
    /// Batch rows in which they are hidden; all when empty.
    pub batch: Vec<usize>,
    /// Hidden keys.
    pub keys: Vec<usize>,
    /// Queries that must not read them; all when empty.
    pub queries: Vec<usize>,
}

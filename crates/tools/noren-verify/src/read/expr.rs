//! [`Expr`]: a mask as its text defines it, before its facts (data such as lengths) and its shape are known.

/// A mask expression, parsed from the text of a mask.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Expr {
    Full,
    None,
    /// The cells with `q - left <= k <= q + right`. The values are `left` and `right`; `None` is a side without a
    /// limit.
    Window(Option<i128>, Option<i128>),
    Chunk(i128),
    Stride(i128),
    /// The cells whose distance `q - k` is in the list.
    Distances(Vec<i128>),
    /// The cells whose key is at a position below a length. The list contains the lengths. The second value is true if
    /// one length applies to all batch rows, and false if there is one length for each batch row.
    Prefix(Vec<i128>, bool),
    Keys(Set),
    Queries(Set),
    Global(Set),
    /// The cells whose key is not padding; if `both` is true, the cells whose query and key are both not padding.
    Padding {
        /// True for padding on the left, false for padding on the right, `None` for the side in the facts (data given
        /// with a mask).
        left: Option<bool>,
        /// The number of non-padding keys in each batch row; `None` for the lengths in the facts (data given with a
        /// mask).
        lengths: Option<Vec<i128>>,
        /// True if padding queries are hidden too, false if only padding keys are hidden.
        both: bool,
    },
    Documents(Option<Vec<i128>>),
    Spans(Vec<Span>),
    Tree(Branches),
    Clearance,
    Neighborhood {
        grid: Vec<i128>,
        size: Vec<i128>,
        dilation: Vec<i128>,
    },
    Random {
        p: f64,
        seed: i128,
    },
    RandomBlocks,
    Dense(String),
    Arms(By, Vec<(Selector, Expr)>),
    Not(Box<Expr>),
    And(Vec<Expr>),
    Or(Vec<Expr>),
    /// The cells that the first mask of the list allows, without the cells that the other masks allow.
    Minus(Vec<Expr>),
}

/// The arguments of the elementary mask (atom) `tree`.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Branches {
    /// The parent of each run (chain of consecutive nodes), as the index of a run; -1 for a run without a parent.
    pub(crate) parents: Vec<i128>,
    /// The number of nodes of each run (chain of consecutive nodes); `None` if each run has one node.
    pub(crate) runs: Option<Vec<i128>>,
    /// The maximum number of keys of a query: the query itself and its nearest ancestors. `None` means no limit.
    pub(crate) window: Option<i128>,
    /// The number of nodes of a chunk. Each path from a node without a parent is divided into chunks of this length,
    /// and a query reads only nodes of its own chunk. `None` means no chunks.
    pub(crate) chunk: Option<i128>,
    /// The position of the first node of the tree.
    pub(crate) start: i128,
}

/// The index that selects one of the masks of `heads(...)`, `batch(...)` or `layers(...)`: the head, the batch row or
/// the layer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum By {
    Head,
    Batch,
    Layer,
}

/// A half-open range `(start, end)`. If `end` is `None`, the range has no upper limit.
pub(crate) type Span = (i128, Option<i128>);

/// A set of positions: ranges of positions, or the name of a label. The facts (data given with a mask) list the positions
/// of each label.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Set {
    Spans(Vec<Span>),
    Label(String),
}

/// The indices of the heads, batch rows or layers to which one of the masks of `heads(...)`, `batch(...)` or
/// `layers(...)` applies.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Selector {
    Spans(Vec<Span>),
    Every { step: i128, from: i128 },
    Else,
}

impl Selector {
    /// Returns true if the selector contains `index`. The selector `else` contains no index: the result is false.
    pub(crate) fn names(&self, index: i128) -> bool {
        match self {
            Selector::Spans(spans) => spans.iter().any(|s| s.0 <= index && s.1.is_none_or(|end| index < end)),
            Selector::Every { step, from } => index >= *from && (index - from) % step == 0,
            Selector::Else => false,
        }
    }

    /// Returns the largest exclusive end of the ranges in the selector, such as 8 for the ranges `0..4` and `6..8`.
    /// Ranges without an end and empty ranges are not considered; `None` if no other range exists.
    pub(crate) fn end(&self) -> Option<i128> {
        match self {
            Selector::Spans(spans) => {
                spans.iter().filter(|span| span.1.is_none_or(|end| span.0 < end)).filter_map(|span| span.1).max()
            }
            Selector::Every { .. } | Selector::Else => None,
        }
    }
}

/// The value of an argument of an elementary mask (atom), such as 4 in `sliding(4)`.
#[derive(Debug, Clone)]
pub(crate) enum Arg {
    Int(i128),
    Float(f64),
    Span(Span),
    List(Vec<Arg>),
    Text(String),
    Name(String),
}

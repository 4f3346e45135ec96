//! [`Expr`]: a mask as it is written, with the values of its arguments.

/// A mask expression.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Expr {
    Full,
    None,
    /// `q - left <= k <= q + right`; a side without a number has no limit.
    Window(Option<i128>, Option<i128>),
    Chunk(i128),
    Stride(i128),
    /// The allowed values of `q - k`.
    Distances(Vec<i128>),
    Prefix(Vec<i128>, bool),
    Keys(Set),
    Queries(Set),
    Global(Set),
    Padding {
        left: Option<bool>,
        lengths: Option<Vec<i128>>,
        both: bool,
    },
    Documents(Option<Vec<i128>>),
    Spans(Vec<Span>),
    Tree {
        parents: Vec<i128>,
        start: i128,
    },
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
    Closure(String),
    Arms(By, Vec<(Selector, Expr)>),
    Not(Box<Expr>),
    And(Vec<Expr>),
    Or(Vec<Expr>),
    /// The cells of the first mask that no other mask allows.
    Minus(Vec<Expr>),
}

/// The index by which `heads(...)`, `batch(...)` and `layers(...)` select their arms.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum By {
    Head,
    Batch,
    Layer,
}

/// A half-open range; a range without an end has no upper limit.
pub(crate) type Span = (i128, Option<i128>);

/// A set of positions, by number or by label.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Set {
    Spans(Vec<Span>),
    Label(String),
}

/// The indices of an arm.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Selector {
    Spans(Vec<Span>),
    Every { step: i128, from: i128 },
    Else,
}

impl Selector {
    /// Returns true if the selector lists `index`; `else` lists none.
    pub(crate) fn names(&self, index: i128) -> bool {
        match self {
            Selector::Spans(spans) => spans.iter().any(|s| s.0 <= index && s.1.is_none_or(|end| index < end)),
            Selector::Every { step, from } => index >= *from && (index - from) % step == 0,
            Selector::Else => false,
        }
    }

    /// Returns the index after the last listed one; `None` for a range without an end.
    pub(crate) fn end(&self) -> Option<i128> {
        match self {
            Selector::Spans(spans) => {
                spans.iter().filter(|span| span.1.is_none_or(|end| span.0 < end)).filter_map(|span| span.1).max()
            }
            Selector::Every { .. } | Selector::Else => None,
        }
    }
}

/// The value of an argument.
#[derive(Debug, Clone)]
pub(crate) enum Arg {
    Int(i128),
    Float(f64),
    Span(Span),
    List(Vec<Arg>),
    Text(String),
    Name(String),
}

//! [`Expr`]: a mask as it is written, and the values of its arguments.

/// A mask.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Expr {
    Full,
    None,
    /// `q - left <= k <= q + right`; a side without a number is open.
    Window(Option<i128>, Option<i128>),
    Chunk(i128),
    Stride(i128),
    /// Numbers that `q - k` may be.
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
    /// The first without all others.
    Minus(Vec<Expr>),
}

/// What the arms of `heads(...)`, `batch(...)`, `layers(...)` name.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum By {
    Head,
    Batch,
    Layer,
}

/// A half-open range; an end that is left out is open.
pub(crate) type Span = (i128, Option<i128>);

/// Positions, by number or by label.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Set {
    Spans(Vec<Span>),
    Label(String),
}

/// Which indices an arm names.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Selector {
    Spans(Vec<Span>),
    Every { step: i128, from: i128 },
    Else,
}

impl Selector {
    /// True when the selector itself names `index`; `else` names none.
    pub(crate) fn names(&self, index: i128) -> bool {
        match self {
            Selector::Spans(spans) => spans.iter().any(|s| s.0 <= index && s.1.is_none_or(|end| index < end)),
            Selector::Every { step, from } => index >= *from && (index - from) % step == 0,
            Selector::Else => false,
        }
    }

    /// The index after the last one, where it is written.
    pub(crate) fn end(&self) -> Option<i128> {
        match self {
            Selector::Spans(spans) => {
                spans.iter().filter(|span| span.1.is_none_or(|end| span.0 < end)).filter_map(|span| span.1).max()
            }
            Selector::Every { .. } | Selector::Else => None,
        }
    }
}

/// A value between parentheses.
#[derive(Debug, Clone)]
pub(crate) enum Arg {
    Int(i128),
    Float(f64),
    Span(Span),
    List(Vec<Arg>),
    Text(String),
    Name(String),
}

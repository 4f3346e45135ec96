//! Writes masks, scores and specs as text. Parsing the text returns an equal value.

use crate::mask::score::{Score, Spec};
use crate::mask::{Arm, Mask, Node};
use crate::sets::set::Selector;
use crate::syntax::{List, MAX_DEPTH, MAX_TEXT, Name, write_spans};
use std::fmt::{self, Display, Formatter, Write};

/// The precedence of the operator of an expression, lowest first. For example, in `(a | b) & c` the operand `a | b`
/// gets parentheses, because `|` has a lower precedence than `&`.
#[derive(Clone, Copy, PartialEq, PartialOrd)]
enum Binding {
    Union,
    Intersection,
    Difference,
    Unary,
}

fn binding(node: &Node) -> Binding {
    match node {
        Node::Or(_) => Binding::Union,
        Node::And(_) => Binding::Intersection,
        Node::Minus(..) => Binding::Difference,
        _ => Binding::Unary,
    }
}

/// The limit of the parser that the text of a mask exceeds. The parser cannot read such a text.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Oversize {
    /// The mask is nested deeper than [`MAX_DEPTH`].
    Deep,
    /// The text of the mask is longer than [`MAX_TEXT`] bytes.
    Long,
}

/// Checks that the text of the mask is within the limits of the parser. Returns the first limit that is exceeded.
pub(crate) fn measure(mask: &Mask) -> Result<(), Oversize> {
    struct Counter(usize);
    impl Write for Counter {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            self.0 += text.len();
            if self.0 > MAX_TEXT { Err(fmt::Error) } else { Ok(()) }
        }
    }
    let mut counter = Counter(0);
    let mut printer = Printer { out: &mut counter, cut: false };
    match printer.mask(mask, Binding::Union, 1) {
        Err(fmt::Error) => Err(Oversize::Long),
        Ok(()) if printer.cut => Err(Oversize::Deep),
        Ok(()) => Ok(()),
    }
}

struct Printer<'a> {
    out: &'a mut dyn Write,
    /// True if an expression was written as `...` because it is nested deeper than [`MAX_DEPTH`].
    cut: bool,
}

impl Printer<'_> {
    fn mask(&mut self, mask: &Mask, place: Binding, depth: usize) -> fmt::Result {
        if depth > MAX_DEPTH {
            self.cut = true;
            return self.out.write_str("...");
        }
        let node = mask.node();
        let parentheses = binding(node) < place;
        if parentheses {
            self.out.write_char('(')?;
        }
        match node {
            Node::Or(parts) => self.joined(parts, " | ", [Binding::Intersection; 2], depth)?,
            // A reader could take `a - b & c` for `a - (b & c)`.
            Node::And(parts) => self.joined(parts, " & ", [Binding::Unary, Binding::Difference], depth)?,
            Node::Minus(a, b) => {
                self.mask(a, Binding::Difference, depth + 1)?;
                self.out.write_str(" - ")?;
                self.mask(b, Binding::Unary, depth + 1)?;
            }
            Node::Not(a) => {
                self.out.write_char('!')?;
                self.mask(a, Binding::Unary, depth + 1)?;
            }
            Node::Heads(arms) => self.arms("heads", arms, depth)?,
            Node::Batch(arms) => self.arms("batch", arms, depth)?,
            Node::Layers(arms) => self.arms("layers", arms, depth)?,
            Node::Full => self.out.write_str("full")?,
            Node::None => self.out.write_str("none")?,
            Node::Atom(atom) => write!(self.out, "{atom}")?,
        }
        if parentheses { self.out.write_char(')') } else { Ok(()) }
    }

    /// Writes the operands of an operator. `places` are the precedences that the first operands and the last one need to get no
    /// parentheses.
    fn joined(&mut self, parts: &[Mask], operator: &str, places: [Binding; 2], depth: usize) -> fmt::Result {
        for (i, part) in parts.iter().enumerate() {
            if i > 0 {
                self.out.write_str(operator)?;
            }
            self.mask(part, places[usize::from(i + 1 == parts.len())], depth + 1)?;
        }
        Ok(())
    }

    fn arms(&mut self, name: &str, arms: &[Arm], depth: usize) -> fmt::Result {
        write!(self.out, "{name}(")?;
        for (i, arm) in arms.iter().enumerate() {
            if i > 0 {
                self.out.write_str(", ")?;
            }
            write!(self.out, "{}: ", arm.selector)?;
            self.mask(&arm.mask, Binding::Union, depth + 1)?;
        }
        self.out.write_char(')')
    }
}

/// Writes a selector, such as `0..4`, `[0, 2..4]`, `every 2`, `every 6 from 5` or `else`.
impl Display for Selector {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Selector::Spans(spans) => write_spans(f, spans),
            Selector::Every { step, from: 0 } => write!(f, "every {step}"),
            Selector::Every { step, from } => write!(f, "every {step} from {from}"),
            Selector::Else => f.write_str("else"),
        }
    }
}

/// Writes the text of the mask with as few parentheses as possible, except in `(a - b) & c`; parsing the text returns the same mask.
/// Expressions that are nested deeper than the parser allows appear as `...`.
impl Display for Mask {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        Printer { out: f, cut: false }.mask(self, Binding::Union, 1)
    }
}

impl fmt::Debug for Mask {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "Mask({self})")
    }
}

/// Writes a score modifier, such as `softcap(5)`. The name of an array is omitted if it is the default name:
/// `bias(bias)` is written as `bias`.
impl Display for Score {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let (own, name) = match self {
            Score::Softcap { cap } => return write!(f, "softcap({cap})"),
            Score::Alibi { slopes: None } => return f.write_str("alibi"),
            Score::Alibi { slopes: Some(slopes) } => return write!(f, "alibi(slopes={})", List(slopes)),
            Score::Bias { name } => ("bias", name),
            Score::Relative { name } => ("relative", name),
            Score::Soft { name } => ("soft", name),
            Score::Sinks { name } => ("sinks", name),
        };
        if own == name { f.write_str(own) } else { write!(f, "{own}({})", Name(name)) }
    }
}

/// Writes the text of a spec: the mask and its scores, joined by ` + `.
impl Display for Spec {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.mask.fmt(f)?;
        self.scores.iter().try_for_each(|score| write!(f, " + {score}"))
    }
}

impl AsRef<Mask> for Mask {
    fn as_ref(&self) -> &Mask {
        self
    }
}

impl AsRef<Mask> for Spec {
    fn as_ref(&self) -> &Mask {
        &self.mask
    }
}

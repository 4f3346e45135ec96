//! [`Style`]: writes numbers and conditions of a program as Python expressions.

use super::Library;
use super::text::{WIDTH, list, pair};
use crate::program::table::Table;
use crate::program::{Compare, Num, Op, Program, Test};

/// The variable names of indices in Python code, and the library whose functions the code calls.
pub(crate) struct Style<'a> {
    pub(crate) program: &'a Program,
    pub(crate) library: Library,
    /// Variable name of the index of the query row.
    pub(crate) row: &'static str,
    /// Variable name of the index of the key.
    pub(crate) key: &'static str,
}

/// The precedence of the operator around an expression, lowest first. An expression with a lower precedence needs
/// parentheses.
#[derive(Clone, Copy, PartialEq, PartialOrd)]
enum Around {
    Nothing,
    Or,
    And,
    Not,
    Sum,
    Product,
}

impl Style<'_> {
    /// Returns the variable name of the position of the query.
    pub(crate) fn q(&self) -> &'static str {
        if self.program.query.is_some() { "q" } else { self.row }
    }

    /// Returns the variable name of the position of the key.
    pub(crate) fn k(&self) -> &'static str {
        if self.program.key.is_some() { "k" } else { self.key }
    }

    /// Returns `num` as an expression.
    pub(crate) fn num(&self, num: &Num) -> String {
        self.number(num, Around::Nothing)
    }

    /// Returns `test` as an expression. `before` is the number of characters before the expression in its line; if the
    /// line would be too long, the expression is written in several lines within parentheses.
    pub(crate) fn test(&self, test: &Test, before: usize) -> String {
        let plain = self.condition(test, Around::Nothing);
        let (parts, sign) = match test {
            Test::All(parts) => (parts, "&"),
            Test::Any(parts) => (parts, "|"),
            _ => return plain,
        };
        if before + plain.len() <= WIDTH {
            return plain;
        }
        let around = if sign == "&" { Around::And } else { Around::Or };
        let parts: Vec<String> = parts.iter().map(|part| self.condition(part, around)).collect();
        format!("(\n    {}\n)", parts.join(&format!("\n    {sign} ")))
    }

    /// Returns the expression that reads the entry at `indices` of a table.
    fn entry(&self, table: &Table, indices: &[Num]) -> String {
        let indices: Vec<String> = indices.iter().map(|index| self.num(index)).collect();
        format!("{}[{}]", table.name, indices.join(", "))
    }

    fn number(&self, num: &Num, around: Around) -> String {
        match num {
            Num::Q => self.q().into(),
            Num::K => self.k().into(),
            Num::Row => self.row.into(),
            Num::Key => self.key.into(),
            Num::Batch => "b".into(),
            Num::Head => "h".into(),
            Num::Const(n) if *n < 0 && around > Around::Nothing => format!("({n})"),
            Num::Const(n) => n.to_string(),
            Num::Entry(table, indices) => self.entry(table, indices),
            Num::Op(Op::Max, a, b) => self.limited(a, b, "min", "maximum"),
            Num::Op(Op::Min, a, b) => self.limited(a, b, "max", "minimum"),
            Num::Op(op, a, b) => {
                let (sign, own) = match op {
                    Op::Add => ("+", Around::Sum),
                    Op::Sub => ("-", Around::Sum),
                    Op::Div => ("//", Around::Product),
                    _ => ("%", Around::Product),
                };
                // the right operand of `-`, `//` and `%` needs parentheses around an operator of the same kind
                let right = if self.is_plain(b) { Around::Nothing } else { Around::Product };
                let text = format!("{} {sign} {}", self.number(a, own), self.bracketed(b, right));
                if around > own { format!("({text})") } else { text }
            }
        }
    }

    fn is_plain(&self, num: &Num) -> bool {
        !matches!(num, Num::Op(Op::Add | Op::Sub | Op::Div | Op::Rem, ..))
    }

    fn bracketed(&self, num: &Num, around: Around) -> String {
        match around {
            Around::Nothing => self.number(num, Around::Sum),
            _ => format!("({})", self.num(num)),
        }
    }

    /// Returns the code of the minimum or maximum of `a` and the constant `b`. `argument` is the argument of
    /// `torch.clamp` (`min` or `max`), and `function` is the function of NumPy and JAX (`maximum` or `minimum`).
    fn limited(&self, a: &Num, b: &Num, argument: &str, function: &str) -> String {
        let (a, b) = (self.num(a), self.num(b));
        match self.library {
            Library::PyTorch => format!("torch.clamp({a}, {argument}={b})"),
            library => format!("{}.{function}({a}, {b})", library.module()),
        }
    }

    fn condition(&self, test: &Test, around: Around) -> String {
        let bracket = |text: String, own: Around| if around > own { format!("({text})") } else { text };
        let joined = |tests: &[Test], own: Around, sign: &str| {
            let parts: Vec<String> = tests.iter().map(|test| self.condition(test, own)).collect();
            bracket(parts.join(sign), own)
        };
        let ranges =
            |ranges: &[(i64, Option<i64>)]| list(0, ranges.iter().map(pair)).replace("\n    ", " ").replace('\n', "");
        match test {
            Test::Always(true) => bracket(format!("{} >= 0", self.key), Around::Nothing),
            Test::Always(false) => bracket(format!("{} < 0", self.key), Around::Nothing),
            Test::Compare(compare, a, b) => {
                let sign = match compare {
                    Compare::Equal => "==",
                    Compare::Unequal => "!=",
                    Compare::Less => "<",
                    Compare::AtMost => "<=",
                    Compare::More => ">",
                    Compare::AtLeast => ">=",
                };
                bracket(format!("{} {sign} {}", self.num(a), self.num(b)), Around::Nothing)
            }
            Test::Entry(table, indices) => self.entry(table, indices),
            Test::OneOf(a, numbers) => {
                let numbers: Vec<String> = numbers.iter().map(i64::to_string).collect();
                format!("one_of({}, [{}])", self.num(a), numbers.join(", "))
            }
            Test::InRanges(a, list) => format!("in_ranges({}, {})", self.num(a), ranges(list)),
            Test::SameRange(a, b, list) => format!("same_range({}, {}, {})", self.num(a), self.num(b), ranges(list)),
            Test::Near { at: (x, y), length, window, step } => {
                format!("near({}, {}, {length}, {window}, {step})", self.num(x), self.num(y))
            }
            Test::Drawn { seed, threshold } => format!("drawn({}, {}, {seed}, {threshold})", self.q(), self.k()),
            Test::All(tests) => joined(tests, Around::And, " & "),
            Test::Any(tests) => joined(tests, Around::Or, " | "),
            Test::Not(test) => format!("~{}", self.condition(test, Around::Not)),
            Test::Part(part) => part.name.clone(),
        }
    }
}

//! Explanations of why a cell is allowed or denied: the tree of subexpressions of the mask, each with its result in
//! words.

use crate::Error;
use crate::bind::BoundMask;
use crate::bind::eval::allowed;
use crate::compare::CellIndex;
use crate::facts::resolve::RowFacts;
use crate::mask::basis::Pair;
use crate::mask::sentence::{Piece, Sentence, Test, Token, key, sentence};
use crate::mask::{Arm, Mask, Node};
use std::fmt;

/// The result of a mask and of each of its subexpressions for one cell; returned by [`BoundMask::explain`].
#[derive(Clone, PartialEq, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Explanation {
    /// The explained cell.
    pub cell: CellIndex,
    /// Position of the query.
    pub query_position: i64,
    /// Position of the key; negative if the slot in the cache holds no key.
    pub key_position: i64,
    /// True if the query may read the key.
    pub allowed: bool,
    /// The result of the whole mask, with the results of its subexpressions.
    pub root: Part,
}

/// A subexpression of a mask, with its result for one cell.
#[derive(Clone, PartialEq, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Part {
    /// The text of the subexpression.
    pub mask: String,
    /// True if the subexpression allows the cell.
    pub allowed: bool,
    /// The reason why the subexpression allows or denies the cell, as a sentence.
    pub why: String,
    /// The results of the operands of this subexpression; empty for an elementary mask (atom).
    pub parts: Vec<Part>,
}

impl BoundMask {
    /// Returns whether each subexpression of the mask allows the cell, and why.
    ///
    /// ```
    /// use noren_mask::{Facts, Shape, atoms::*};
    /// let shape = Shape::square(9).batch(2);
    /// let bound = (causal() & padding()).bind(&shape, &Facts::new().lengths([9, 5]))?;
    /// let why = bound.explain(1, 0, 8, 7)?;
    /// assert!(!why.allowed);
    /// assert_eq!(why.root.why, "denied by `padding`: key 7 is padding in batch row 1, which has 5 non-padding tokens");
    /// # Ok::<(), noren_mask::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns [`Error::Shape`] if the cell is outside the shape.
    pub fn explain(&self, batch: usize, head: usize, q: usize, k: usize) -> Result<Explanation, Error> {
        let shape = self.shape();
        for (name, index, count) in [
            ("batch row", batch, shape.batch_len()),
            ("head", head, shape.head_count()),
            ("query", q, shape.q_len()),
            ("key", k, shape.kv_len()),
        ] {
            if index >= count {
                return Err(Error::Shape(format!(
                    "{name} {index} does not exist: give an index from 0 to {}",
                    count - 1
                )));
            }
        }
        if let Some(whole) = self.whole() {
            let (bound, batch, q, k) = whole.cell(batch, q, k);
            return bound.explain(batch, head, q, k);
        }
        let cell = CellIndex { batch, head, q, k };
        let (query_position, key_position) = (self.query_position(batch, q), self.key_position(batch, k));
        let pair = self.pair_at([batch, head, q, k]);
        let allowed = self.allowed(batch, head, q, k);
        let root = match key_position < 0 {
            true => Part {
                mask: self.mask().to_string(),
                allowed: false,
                why: text(&Reasons::empty_slot(), &Outcome { pair: &pair, allowed: false, operands: &[] }),
                parts: Vec::new(),
            },
            false => Reasons::new(self.mask(), self.row_facts(batch), head).at(&pair),
        };
        Ok(Explanation { cell, query_position, key_position, allowed, root })
    }

    /// Returns the explanation of all cells of batch row `batch` and head `head` as data. [`explain`](Self::explain)
    /// evaluates this data for one cell.
    ///
    /// # Errors
    /// Returns [`Error::Shape`] if the shape has no such batch row or head, or if the mask is a selection from another
    /// mask ([`select`](Self::select)), whose reasons are those of the whole mask.
    pub fn reasons(&self, batch: usize, head: usize) -> Result<Reasons<'_>, Error> {
        self.check_pair(batch, head)?;
        if self.whole().is_some() {
            return Err(Error::Shape(
                "this mask is a selection from another mask, which has the reasons of its cells: use the other mask"
                    .into(),
            ));
        }
        Ok(Reasons::new(self.mask(), self.row_facts(batch), head))
    }
}

/// The explanation of all cells of one batch row and head: one [`Sentence`] for the mask and one for each of its
/// subexpressions. Returned by [`BoundMask::reasons`].
#[derive(Debug)]
pub struct Reasons<'a> {
    /// The subexpression that is explained.
    pub mask: &'a Mask,
    /// Why the subexpression allows or denies a cell.
    pub sentence: Sentence<'a>,
    /// The reasons of the operands of this subexpression; empty for an elementary mask (atom). For `heads(...)` and
    /// `batch(...)`, the reasons of the mask for this head or batch row, or empty if no mask is given for it.
    pub parts: Vec<Reasons<'a>>,
}

impl<'a> Reasons<'a> {
    fn new(mask: &'a Mask, row: RowFacts<'a>, head: usize) -> Self {
        let arm = |arms: &'a [Arm], index: usize| Arm::pick(arms, index).into_iter().collect();
        let masks: Vec<&Mask> = match mask.node() {
            Node::Heads(arms) => arm(arms, head),
            Node::Batch(arms) => arm(arms, row.row),
            _ => mask.children(),
        };
        let parts: Vec<_> = masks.into_iter().map(|part| Reasons::new(part, row, head)).collect();
        let sentence = match mask.node() {
            Node::And(_) => first_operand(&parts, false, "every operand allows the cell"),
            Node::Or(_) => first_operand(&parts, true, "no operand allows the cell"),
            Node::Not(part) => Sentence::by_result(
                format!("`{part}` denies the cell, so the complement allows the cell").into(),
                format!("`{part}` allows the cell, so the complement denies the cell").into(),
            ),
            Node::Minus(a, b) => {
                let removed = sentence![format!("`{b}` removes the cell: "), Piece::Operand(1)];
                let kept = format!("`{a}` allows the cell, and `{b}` does not remove it").into();
                let rest = Sentence::by(Test::Operand(1), removed, kept);
                Sentence::by(Test::Operand(0), rest, from("denied", 0, &parts[0]))
            }
            Node::Heads(_) => arm_words("head", head, &parts),
            Node::Batch(_) => arm_words("batch row", row.row, &parts),
            Node::Layers(_) => unreachable!("bind refuses layers(...)"),
            Node::Full => "every cell is allowed".into(),
            Node::None => "no cell is allowed".into(),
            Node::Atom(atom) => atom.sentence(row).unwrap_or(sentence![Piece::Atom(atom)]),
        };
        Reasons { mask, sentence, parts }
    }

    /// Returns the sentence for a key that is a cache slot without a token. The sentence replaces all other reasons of
    /// the cell.
    pub fn empty_slot() -> Sentence<'a> {
        let index = key(|token| token.index.to_string());
        sentence!["key ", index, " is a cache slot without a token, which no query may read"]
    }

    /// Returns the results and reasons of this subexpression and its operands for one cell.
    fn at(&self, pair: &Pair<'_>) -> Part {
        let parts: Vec<Part> = self.parts.iter().map(|part| part.at(pair)).collect();
        let allowed = allowed(self.mask, pair);
        let why = text(&self.sentence, &Outcome { pair, allowed, operands: &parts });
        Part { mask: self.mask.to_string(), allowed, why, parts }
    }
}

/// Returns a sentence about the first operand that allows the cell (`truth` is true) or denies it (`truth` is false).
/// The sentence is `none` if there is no such operand.
fn first_operand<'a>(parts: &[Reasons<'a>], truth: bool, none: &str) -> Sentence<'a> {
    let verb = if truth { "allowed" } else { "denied" };
    let each = parts.iter().enumerate().map(|(index, part)| from(verb, index, part)).collect();
    sentence![Piece::First(truth, each, none.into())]
}

/// Returns the sentence that the operand number `index`, whose reasons are `part`, decides the result. `verb` is
/// `allowed` or `denied`.
fn from<'a>(verb: &str, index: usize, part: &Reasons<'a>) -> Sentence<'a> {
    match part.parts.is_empty() {
        true => sentence![format!("{verb} by `{}`: ", part.mask), Piece::Operand(index)],
        false => format!("{verb} by `{}`", part.mask).into(),
    }
}

fn arm_words<'a>(what: &str, index: usize, parts: &[Reasons<'a>]) -> Sentence<'a> {
    match parts.is_empty() {
        true => format!("no mask is given for {what} {index}, which reads no key").into(),
        false => Sentence::by(
            Test::Operand(0),
            format!("the mask of {what} {index} allows the cell").into(),
            format!("the mask of {what} {index} denies the cell").into(),
        ),
    }
}

/// The cell for which a sentence is evaluated, with the result of the mask and the results of its operands.
struct Outcome<'a> {
    pair: &'a Pair<'a>,
    allowed: bool,
    operands: &'a [Part],
}

/// Returns the text of a sentence for the cell of `outcome`.
fn text(sentence: &Sentence<'_>, outcome: &Outcome<'_>) -> String {
    let mut out = String::new();
    write_text(sentence, outcome, &mut out);
    out
}

fn write_text(sentence: &Sentence<'_>, outcome: &Outcome<'_>, out: &mut String) {
    let Outcome { pair, operands, .. } = *outcome;
    let query = Token { index: pair.row, position: pair.q };
    let key = Token { index: pair.key, position: pair.k };
    for piece in &sentence.0 {
        match piece {
            Piece::Text(text) => out.push_str(text),
            Piece::Query(words) => out.push_str(&words(query)),
            Piece::Key(words) => out.push_str(&words(key)),
            Piece::Difference(of_query, of_key) => out.push_str(&(of_query(query) - of_key(key)).to_string()),
            Piece::If(test, yes, no) => {
                let truth = match test {
                    Test::Allowed => outcome.allowed,
                    Test::Operand(index) => operands[*index].allowed,
                    Test::Mask(mask) => allowed(mask, pair),
                };
                write_text(if truth { yes } else { no }, outcome, out);
            }
            Piece::First(truth, sentences, none) => {
                let first = operands.iter().position(|operand| operand.allowed == *truth);
                write_text(first.map_or(none, |index| &sentences[index]), outcome, out);
            }
            Piece::Operand(index) => out.push_str(&operands[*index].why),
            Piece::Atom(atom) => out.push_str(&atom.why(pair, outcome.allowed)),
        }
    }
}

/// Writes one line with the result, then the tree of subexpressions.
impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let CellIndex { batch, head, q, k } = self.cell;
        let place = |what: &str, index: usize, position: i64| match position {
            p if p == index as i64 => format!("{what} {index}"),
            p if p < 0 && what == "key" => format!("{what} {index} (a cache slot without a token)"),
            p => format!("{what} {index} (position {p})"),
        };
        writeln!(
            f,
            "{}: {} -> {}, batch row {batch}, head {head}",
            verdict(self.allowed),
            place("query", q, self.query_position),
            place("key", k, self.key_position)
        )?;
        self.root.write(f, "", "", true)
    }
}

impl Part {
    fn write(&self, f: &mut fmt::Formatter<'_>, indent: &str, branch: &str, root: bool) -> fmt::Result {
        writeln!(f, "{indent}{branch}{} {}: {}", if self.allowed { "+" } else { "-" }, self.mask, self.why)?;
        let below = match (root, branch) {
            (true, _) => String::new(),
            (_, "└ ") => format!("{indent}  "),
            _ => format!("{indent}│ "),
        };
        for (i, part) in self.parts.iter().enumerate() {
            let branch = if i + 1 == self.parts.len() { "└ " } else { "├ " };
            part.write(f, &below, branch, false)?;
        }
        Ok(())
    }
}

fn verdict(allowed: bool) -> &'static str {
    if allowed { "allowed" } else { "denied" }
}

//! Explanations of why a cell is allowed or denied: the expression tree, with the result of every part in words.

use crate::Error;
use crate::basis::Pair;
use crate::bind::BoundMask;
use crate::compare::Cell;
use crate::mask::{Arm, Mask, Node};
use std::fmt;

/// The result of a mask and of each of its parts for one cell; returned by [`BoundMask::explain`].
#[derive(Clone, PartialEq, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Explanation {
    /// The explained cell.
    pub cell: Cell,
    /// Position of the query.
    pub query_position: i64,
    /// Position of the key; negative for an empty slot.
    pub key_position: i64,
    /// Whether the query may read the key.
    pub allowed: bool,
    /// The result of the whole mask, with the results of its parts.
    pub root: Part,
}

/// One part of a mask and its result for a cell.
#[derive(Clone, PartialEq, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Part {
    /// The text of the part.
    pub mask: String,
    /// Whether the part allows the cell.
    pub allowed: bool,
    /// The reason why the part allows or denies the cell, as a sentence.
    pub why: String,
    /// The results of the parts of this part; empty for an atom.
    pub parts: Vec<Part>,
}

impl BoundMask {
    /// Returns whether each part of the mask allows the cell, and why.
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
                let range = format!("indices run from 0 to {}", count - 1);
                return Err(Error::Shape(format!("{name} {index} does not exist: {range}")));
            }
        }
        if let Some(whole) = self.whole() {
            let (bound, batch, q, k) = whole.cell(batch, q, k);
            return bound.explain(batch, head, q, k);
        }
        let cell = Cell { batch, head, q, k };
        let (query_position, key_position) = (self.query_position(batch, q), self.key_position(batch, k));
        let words = Words { bound: self, cell, pair: self.pair_at([batch, head, q, k]) };
        let mut root = words.part(self.mask());
        let allowed = self.allowed(batch, head, q, k);
        if key_position < 0 {
            root.allowed = false;
            root.parts.clear();
            root.why = format!("key {k} is an empty slot, which no query may read");
        }
        Ok(Explanation { cell, query_position, key_position, allowed, root })
    }
}

struct Words<'a> {
    bound: &'a BoundMask,
    cell: Cell,
    pair: Pair<'a>,
}

impl Words<'_> {
    fn part(&self, mask: &Mask) -> Part {
        let Cell { batch, head, q, k } = self.cell;
        let allowed = self.bound.allows(mask, batch, head, q, k);
        let arm = |arms: &[Arm], index: usize| Arm::pick(arms, index as u64).map(|m| self.part(m));
        let parts: Vec<Part> = match mask.node() {
            Node::Heads(arms) => arm(arms, head).into_iter().collect(),
            Node::Batch(arms) => arm(arms, batch).into_iter().collect(),
            _ => mask.children().into_iter().map(|m| self.part(m)).collect(),
        };
        let why = self.why(mask, allowed, &parts);
        Part { mask: mask.to_string(), allowed, why, parts }
    }

    /// Returns one sentence that explains the result of `mask` from the results of its `parts`.
    fn why(&self, mask: &Mask, allowed: bool, parts: &[Part]) -> String {
        let first = |truth: bool| parts.iter().find(|p| p.allowed == truth);
        let from = |verb: &str, p: &Part| match p.parts.is_empty() {
            true => format!("{verb} by `{}`: {}", p.mask, p.why),
            false => format!("{verb} by `{}`", p.mask),
        };
        match mask.node() {
            Node::And(_) => first(false).map_or("every part allows the cell".into(), |p| from("denied", p)),
            Node::Or(_) => first(true).map_or("no part allows the cell".into(), |p| from("allowed", p)),
            Node::Not(_) if allowed => {
                format!("`{}` denies the cell, so the complement allows the cell", parts[0].mask)
            }
            Node::Not(_) => format!("`{}` allows the cell, so the complement denies the cell", parts[0].mask),
            Node::Minus(..) => match (parts[0].allowed, parts[1].allowed) {
                (false, _) => from("denied", &parts[0]),
                (true, true) => format!("removed by `{}`: {}", parts[1].mask, parts[1].why),
                (true, false) => format!("allowed by `{}` and not removed by `{}`", parts[0].mask, parts[1].mask),
            },
            Node::Heads(_) => self.arm_words("head", self.cell.head, parts),
            Node::Batch(_) => self.arm_words("batch row", self.cell.batch, parts),
            Node::Layers(_) => unreachable!("bind refuses layers(...)"),
            Node::Full => "every cell is allowed".into(),
            Node::None => "no cell is allowed".into(),
            Node::Atom(atom) => atom.why(&self.pair, allowed),
        }
    }

    fn arm_words(&self, what: &str, index: usize, parts: &[Part]) -> String {
        match parts.first() {
            None => format!("no arm names {what} {index}"),
            Some(p) if p.allowed => format!("the arm of {what} {index} allows the cell"),
            Some(_) => format!("the arm of {what} {index} denies the cell"),
        }
    }
}

/// Writes one line with the result, then the tree of parts.
impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Cell { batch, head, q, k } = self.cell;
        let place = |what: &str, index: usize, position: i64| match position {
            p if p == index as i64 => format!("{what} {index}"),
            p if p < 0 && what == "key" => format!("{what} {index} (an empty slot)"),
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

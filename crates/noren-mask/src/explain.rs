//! Why a cell is allowed or denied: the expression tree with the truth of every part, in words.

use crate::Error;
use crate::bind::BoundMask;
use crate::compare::Cell;
use crate::facts::RealTokens;
use crate::mask::{Arm, Mask, Node, Padding};
use crate::set::Set;
use serde::Serialize;
use std::fmt;

/// The truth of one cell and of every part of the mask there; made by [`BoundMask::explain`].
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Explanation {
    /// The cell.
    pub cell: Cell,
    /// Position of the query.
    pub query_position: i64,
    /// Position of the key; negative for an empty slot.
    pub key_position: i64,
    /// True when the query may attend to the key.
    pub allowed: bool,
    /// The whole mask.
    pub root: Part,
}

/// One part of a mask and its truth at a cell.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Part {
    /// The part as text.
    pub mask: String,
    /// What it says of the cell.
    pub allowed: bool,
    /// Why, in words.
    pub why: String,
    /// Its own parts.
    pub parts: Vec<Part>,
}

impl BoundMask {
    /// Says for every part of the mask whether it allows the cell, and why.
    ///
    /// ```
    /// use noren_mask::{Facts, Shape, atoms::*};
    /// let shape = Shape::square(9).batch(2);
    /// let bound = (causal() & padding()).bind(&shape, &Facts::new().lengths([9, 5]))?;
    /// let why = bound.explain(1, 0, 8, 7)?;
    /// assert!(!why.allowed);
    /// assert_eq!(why.root.why, "denied by `padding`: key 7 is padding in batch row 1, which holds 5 tokens");
    /// # Ok::<(), noren_mask::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Shape`] when the cell is outside the shape.
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
                return Err(Error::Shape(format!("{name} {index} is outside: {range}")));
            }
        }
        if let Some(whole) = self.whole() {
            let (bound, batch, q, k) = whole.cell(batch, q, k);
            return bound.explain(batch, head, q, k);
        }
        let cell = Cell { batch, head, q, k };
        let (query_position, key_position) = (self.query_position(batch, q), self.key_position(batch, k));
        let words = Words { bound: self, cell, q: query_position, k: key_position };
        let mut root = words.part(self.mask());
        let allowed = self.allowed(batch, head, q, k);
        if key_position < 0 {
            root.allowed = false;
            root.parts.clear();
            root.why = format!("key {k} is an empty slot, which nobody may read");
        }
        Ok(Explanation { cell, query_position, key_position, allowed, root })
    }
}

struct Words<'a> {
    bound: &'a BoundMask,
    cell: Cell,
    q: i64,
    k: i64,
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

    /// One sentence on a part whose own parts are known.
    fn why(&self, mask: &Mask, allowed: bool, parts: &[Part]) -> String {
        let (q, k) = (self.q, self.k);
        let first = |truth: bool| parts.iter().find(|p| p.allowed == truth);
        let from = |verb: &str, p: &Part| match p.parts.is_empty() {
            true => format!("{verb} by `{}`: {}", p.mask, p.why),
            false => format!("{verb} by `{}`", p.mask),
        };
        match mask.node() {
            Node::And(_) => first(false).map_or("every part allows it".into(), |p| from("denied", p)),
            Node::Or(_) => first(true).map_or("no part allows it".into(), |p| from("allowed", p)),
            Node::Not(_) => format!("`{}` {}", parts[0].mask, if allowed { "denies it" } else { "allows it" }),
            Node::Minus(..) => match (parts[0].allowed, parts[1].allowed) {
                (false, _) => from("denied", &parts[0]),
                (true, true) => format!("taken away by `{}`: {}", parts[1].mask, parts[1].why),
                (true, false) => format!("allowed by `{}` and not taken away by `{}`", parts[0].mask, parts[1].mask),
            },
            Node::Heads(_) => self.arm_words("head", self.cell.head, parts),
            Node::Batch(_) => self.arm_words("batch row", self.cell.batch, parts),
            Node::Layers(_) => unreachable!("bind refuses layers(...)"),
            Node::Full => "every cell is allowed".into(),
            Node::None => "no cell is allowed".into(),
            Node::Causal { .. } | Node::Window { .. } | Node::Sliding { .. } => self.band_words(mask),
            Node::Chunk { size } => {
                let chunk = |at: i64| at.div_euclid(*size as i64);
                format!("query {q} is in chunk {}, key {k} in chunk {}", chunk(q), chunk(k))
            }
            Node::Stride { step } => {
                format!("the distance {} is {}a multiple of {step}", (q - k).abs(), if allowed { "" } else { "not " })
            }
            Node::Prefix { lengths } => {
                let n = lengths.get(self.cell.batch).unwrap_or(0);
                format!("key {k} is {} the first {n} keys", if allowed { "among" } else { "beyond" })
            }
            Node::Keys(set) => format!("key {k} is {}in {}", if allowed { "" } else { "not " }, set_words(set)),
            Node::Queries(set) => format!("query {q} is {}in {}", if allowed { "" } else { "not " }, set_words(set)),
            Node::Global(set) => {
                format!("{} in {}", if allowed { "one of the two is" } else { "neither is" }, set_words(set))
            }
            Node::Padding(padding) => self.padding_words(padding),
            Node::Documents { lengths } => self.document_words(lengths.as_deref()),
            Node::Spans { .. } if allowed => format!("query {q} and key {k} lie in one span"),
            Node::Spans { .. } => format!("no span holds both query {q} and key {k}"),
            Node::Tree { parents, start } => self.tree_words(parents, *start as i64, allowed),
            Node::Clearance => {
                let row = self.bound.row_facts(self.cell.batch);
                let words = |at: i64| row.level(at).map_or("no level".to_string(), |l| format!("level {l}"));
                format!("query {q} has {}, key {k} has {}", words(q), words(k))
            }
            Node::Neighborhood { grid, .. } => {
                let at = |p: i64| coordinates(grid, p);
                format!("cell {} is {} the window around cell {}", at(k), if allowed { "in" } else { "outside" }, at(q))
            }
            Node::Random { .. } | Node::RandomBlocks { .. } => {
                format!("the draw for query {q} and key {k} {}", if allowed { "allows it" } else { "denies it" })
            }
            Node::Dense { name } => self.given_words("array", name, allowed),
            Node::Closure { name } => self.given_words("closure", name, allowed),
        }
    }

    fn arm_words(&self, what: &str, index: usize, parts: &[Part]) -> String {
        match parts.first() {
            None => format!("no arm names {what} {index}"),
            Some(p) => format!("the arm of {what} {index} {}", if p.allowed { "allows it" } else { "denies it" }),
        }
    }

    fn given_words(&self, what: &str, name: &str, allowed: bool) -> String {
        let verb = if allowed { "allows" } else { "denies" };
        format!("{what} {name:?} {verb} query row {}, key {}", self.cell.q, self.cell.k)
    }

    fn band_words(&self, mask: &Mask) -> String {
        let (q, k) = (self.q, self.k);
        let (lo, hi) = match mask.node() {
            Node::Causal { offset } => (None, Some(q + offset)),
            Node::Window { left, right } => (left.map(|l| q - l), right.map(|r| q + r)),
            Node::Sliding { window } => (Some(q - *window as i64 + 1), Some(q)),
            _ => (None, None),
        };
        match (lo, hi) {
            (Some(lo), _) if k < lo => format!("key {k} is before {lo}, the first that query {q} reads"),
            (_, Some(hi)) if k > hi => format!("key {k} is after {hi}, the last that query {q} reads"),
            (None, Some(hi)) => format!("key {k} is not after {hi}, the last that query {q} reads"),
            (Some(lo), None) => format!("key {k} is not before {lo}, the first that query {q} reads"),
            (Some(lo), Some(hi)) => format!("key {k} is in {lo}..={hi}, which query {q} reads"),
            (None, None) => format!("query {q} reads every key"),
        }
    }

    fn padding_words(&self, padding: &Padding) -> String {
        let Cell { batch, q, k, .. } = self.cell;
        let row = self.bound.row_facts(batch);
        let keys = row.real_keys(padding);
        let holds = match (&padding.lengths, &self.bound.facts().real) {
            (None, Some(RealTokens::Keys(_))) => String::new(),
            _ => format!(", which holds {} tokens", keys.count()),
        };
        if !keys.contains(k as u32) {
            return format!("key {k} is padding in batch row {batch}{holds}");
        }
        if padding.both && !row.real_queries(padding).contains(q as u32) {
            return format!("query {q} is padding in batch row {batch}");
        }
        format!("key {k} is a real token of batch row {batch}{holds}")
    }

    fn document_words(&self, own: Option<&[u64]>) -> String {
        let documents = self.bound.row_facts(self.cell.batch).documents(own);
        let found = [self.q, self.k].map(|at| documents.and_then(|documents| documents.at(at)));
        let words = |place: &Option<(usize, std::ops::Range<i64>)>| match place {
            Some((i, range)) => format!("in document {i} ({}..{})", range.start, range.end),
            None => "in no document".into(),
        };
        format!("query {} is {}, key {} {}", self.q, words(&found[0]), self.k, words(&found[1]))
    }

    fn tree_words(&self, parents: &[i64], start: i64, allowed: bool) -> String {
        let node = |at: i64| match at - start {
            n if (0..parents.len() as i64).contains(&n) => format!("node {n}"),
            _ => "outside the tree".into(),
        };
        match allowed {
            true if self.q == self.k => format!("query and key are {}", node(self.q)),
            true => format!("key {} ({}) is an ancestor of query {} ({})", self.k, node(self.k), self.q, node(self.q)),
            false => {
                format!("key {} ({}) is no ancestor of query {} ({})", self.k, node(self.k), self.q, node(self.q))
            }
        }
    }
}

fn set_words(set: &Set) -> String {
    match set {
        Set::Label(label) => format!("the label {label:?}"),
        Set::Spans(_) => "the set".into(),
    }
}

/// A position as grid coordinates, `(1, 4)`.
fn coordinates(grid: &[u64], position: i64) -> String {
    let Ok(mut at) = u64::try_from(position) else { return "outside the grid".into() };
    if at >= grid.iter().product() {
        return "outside the grid".into();
    }
    let mut out: Vec<String> = Vec::new();
    for len in grid.iter().rev() {
        out.push((at % len).to_string());
        at /= len;
    }
    out.reverse();
    format!("({})", out.join(", "))
}

/// A verdict line and the tree of parts.
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

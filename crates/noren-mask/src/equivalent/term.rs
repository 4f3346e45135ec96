//! Two masks as Boolean terms over atoms of positions and over unknowns.

use super::range::{is_positional, reads_padding};
use crate::eval::by_position;
use crate::mask::{Arm, Mask, Node};
use crate::set::{Set, Span};

/// What one mask allows in one batch row and head.
pub(super) enum Term {
    /// An atom whose cells depend on positions alone.
    Atom(Node),
    /// An atom that reads facts or is random, by number.
    Unknown(usize),
    Not(Box<Term>),
    All(Vec<Term>),
    Any(Vec<Term>),
}

/// Both masks' terms, with the unknowns that they share.
pub(super) struct Terms {
    pub(super) pair: [Term; 2],
    unknowns: Vec<String>,
}

/// More unknowns than this are not compared: there are `2^n` values.
const MAX_UNKNOWNS: usize = 12;

/// The values of unknown 0 to 5 in a word of 64 valuations.
const VALUES: [u64; 6] = [
    0xaaaa_aaaa_aaaa_aaaa,
    0xcccc_cccc_cccc_cccc,
    0xf0f0_f0f0_f0f0_f0f0,
    0xff00_ff00_ff00_ff00,
    0xffff_0000_ffff_0000,
    0xffff_ffff_0000_0000,
];

impl Terms {
    /// The masks of one batch row and head; `layers(...)` must be resolved.
    pub(super) fn new(masks: [&Mask; 2], batch: u64, head: u64) -> Result<Self, String> {
        let mut unknowns = Vec::new();
        let padded = masks.into_iter().any(reads_padding);
        let pair = masks.map(|mask| Reading { unknowns: &mut unknowns, batch, head, padded }.term(mask));
        match unknowns.len() {
            n if n > MAX_UNKNOWNS => {
                Err(format!("{n} different atoms read facts, of which {MAX_UNKNOWNS} can be compared"))
            }
            _ => Ok(Terms { pair, unknowns }),
        }
    }

    pub(super) fn unknowns(&self) -> &[String] {
        &self.unknowns
    }

    /// Number of words of valuations, 64 a word.
    pub(super) fn words(&self) -> usize {
        1 << self.unknowns.len().saturating_sub(6)
    }

    /// The valuations under which exactly one term allows the cell: none, some or all of them.
    pub(super) fn differ(&self, q: i64, k: i64) -> Differ {
        let (mut any, mut all) = (false, true);
        for word in 0..self.words() {
            let differing = self.pair[0].values(q, k, word) ^ self.pair[1].values(q, k, word);
            any |= differing != 0;
            all &= differing == u64::MAX;
        }
        match (any, all) {
            (false, _) => Differ::Never,
            (true, false) => Differ::Sometimes,
            (true, true) => Differ::Always,
        }
    }
}

/// Under which values of the unknowns two terms differ in a cell.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Differ {
    Never,
    Sometimes,
    Always,
}

impl Term {
    /// Whether the cell is allowed, for 64 valuations of the unknowns at once.
    fn values(&self, q: i64, k: i64, word: usize) -> u64 {
        match self {
            Term::Atom(node) => {
                if by_position(node, q, k) == Some(true) {
                    u64::MAX
                } else {
                    0
                }
            }
            Term::Unknown(n) => match VALUES.get(*n) {
                Some(values) => *values,
                None if word >> (n - VALUES.len()) & 1 == 1 => u64::MAX,
                None => 0,
            },
            Term::Not(a) => !a.values(q, k, word),
            Term::All(parts) => {
                parts.iter().fold(u64::MAX, |v, part| if v == 0 { 0 } else { v & part.values(q, k, word) })
            }
            Term::Any(parts) => {
                parts.iter().fold(0, |v, part| if v == u64::MAX { v } else { v | part.values(q, k, word) })
            }
        }
    }

    /// The work of one cell: atoms, and the ranges or tree nodes that they look at one by one.
    pub(super) fn price(&self) -> u64 {
        let mut price = 1;
        self.atoms(&mut |node| {
            price += match node {
                Node::Keys(Set::Spans(spans)) | Node::Queries(Set::Spans(spans)) => spans.len() as u64,
                Node::Global(Set::Spans(spans)) => 2 * spans.len() as u64,
                Node::Spans { spans } => spans.len() as u64,
                Node::Tree { parents, .. } => deepest(parents),
                _ => 1,
            }
        });
        price
    }

    /// Calls `visit` for every atom of positions.
    pub(super) fn atoms<'a>(&'a self, visit: &mut impl FnMut(&'a Node)) {
        match self {
            Term::Atom(node) => visit(node),
            Term::Unknown(_) => {}
            Term::Not(a) => a.atoms(visit),
            Term::All(parts) | Term::Any(parts) => parts.iter().for_each(|part| part.atoms(visit)),
        }
    }
}

struct Reading<'a> {
    unknowns: &'a mut Vec<String>,
    batch: u64,
    head: u64,
    /// The facts say which tokens are padding, at either end: lists of positions may then begin elsewhere.
    padded: bool,
}

impl Reading<'_> {
    fn term(&mut self, mask: &Mask) -> Term {
        match mask.node() {
            Node::Not(a) => Term::Not(Box::new(self.term(a))),
            Node::And(parts) => Term::All(parts.iter().map(|part| self.term(part)).collect()),
            Node::Or(parts) => Term::Any(parts.iter().map(|part| self.term(part)).collect()),
            Node::Minus(a, b) => Term::All(vec![self.term(a), Term::Not(Box::new(self.term(b)))]),
            Node::Heads(arms) => Arm::pick(arms, self.head).map_or(Term::Any(Vec::new()), |mask| self.term(mask)),
            Node::Batch(arms) => Arm::pick(arms, self.batch).map_or(Term::Any(Vec::new()), |mask| self.term(mask)),
            Node::Prefix { lengths } => keys(lengths.get(self.batch as usize).unwrap_or(0)),
            Node::Padding(padding) if is_positional(padding) => {
                let length = padding.lengths.as_ref().and_then(|l| l.get(self.batch as usize).copied()).unwrap_or(0);
                match padding.both {
                    true => Term::All(vec![keys(length), Term::Atom(Node::Queries(Set::from(0..length)))]),
                    false => keys(length),
                }
            }
            Node::Padding(padding) => {
                let only_keys = crate::Padding { both: false, ..padding.clone() };
                let read = self.unknown(&Mask::new(Node::Padding(only_keys.clone())).to_string());
                match padding.both {
                    true => {
                        let name = format!("the queries of {}", Mask::new(Node::Padding(only_keys)));
                        Term::All(vec![read, self.unknown(&name)])
                    }
                    false => read,
                }
            }
            Node::Documents { lengths: Some(list) } if !self.padded => {
                Term::Atom(Node::Spans { spans: documents(list) })
            }
            Node::Global(set @ Set::Label(_)) => {
                let parts = [Node::Queries(set.clone()), Node::Keys(set.clone())];
                Term::Any(parts.map(|part| self.unknown(&Mask::new(part).to_string())).into())
            }
            node if by_position(node, 0, 0).is_some() => Term::Atom(node.clone()),
            _ => self.unknown(&mask.to_string()),
        }
    }

    fn unknown(&mut self, name: &str) -> Term {
        let known = self.unknowns.iter().position(|other| other == name);
        Term::Unknown(known.unwrap_or_else(|| {
            self.unknowns.push(name.into());
            self.unknowns.len() - 1
        }))
    }
}

fn keys(end: u64) -> Term {
    Term::Atom(Node::Keys(Set::from(0..end)))
}

/// The documents as spans: without facts the first one begins at position 0.
fn documents(lengths: &[u64]) -> Vec<Span> {
    let mut start = 0;
    let spans = lengths.iter().map(|n| {
        let span = Span { start, end: Some(start + n) };
        start += n;
        span
    });
    spans.collect()
}

/// The number of nodes on the longest way from a node to its root.
fn deepest(parents: &[i64]) -> u64 {
    let mut depth = vec![0u64; parents.len()];
    for first in 0..parents.len() {
        let mut path = Vec::new();
        let mut node = Some(first);
        while let Some(at) = node.filter(|at| depth[*at] == 0) {
            path.push(at);
            node = usize::try_from(parents[at]).ok();
        }
        let mut below = node.map_or(0, |at| depth[at]);
        for at in path.into_iter().rev() {
            below += 1;
            depth[at] = below;
        }
    }
    depth.into_iter().max().unwrap_or(0)
}

//! Two masks as Boolean terms over atoms of positions and over unknowns.

use super::range::reads_padding;
use crate::basis::{Case, Pair, Places};
use crate::mask::{Arm, AtomRef, EveryLength, Mask, Node};

/// The cells that one mask allows in one batch row and head.
pub(super) enum Term {
    /// An atom whose cells depend only on the positions of query and key, with the places at which its cells change.
    Atom(AtomRef, Places),
    /// An atom that reads facts or is random. The number is the index of the atom in the list of unknowns.
    Unknown(usize),
    Not(Box<Term>),
    All(Vec<Term>),
    Any(Vec<Term>),
}

/// The terms of two masks, and the unknowns that the terms share.
pub(super) struct Terms {
    pub(super) pair: [Term; 2],
    unknowns: Vec<String>,
}

/// The maximum number of unknowns in a comparison. Each unknown is true or false in a cell, so `n` unknowns have `2^n`
/// valuations (assignments of true and false).
const MAX_UNKNOWNS: usize = 12;

/// The values of the unknowns 0 to 5 in a word of 64 valuations: bit `v` is 1 if the unknown is true in valuation `v`.
/// A valuation assigns true or false to every unknown.
const VALUES: [u64; 6] = [
    0xaaaa_aaaa_aaaa_aaaa,
    0xcccc_cccc_cccc_cccc,
    0xf0f0_f0f0_f0f0_f0f0,
    0xff00_ff00_ff00_ff00,
    0xffff_0000_ffff_0000,
    0xffff_ffff_0000_0000,
];

impl Terms {
    /// Returns the terms of both masks for one batch row and head. The masks must not contain `layers(...)`.
    pub(super) fn new(masks: [&Mask; 2], batch: u64, head: u64) -> Result<Self, String> {
        let mut unknowns = Vec::new();
        let padded = masks.into_iter().any(reads_padding);
        let pair = masks.map(|mask| Reading { unknowns: &mut unknowns, batch, head, padded }.term(mask));
        match unknowns.len() {
            n if n > MAX_UNKNOWNS => {
                Err(format!("{n} different atoms read facts, but at most {MAX_UNKNOWNS} can be compared"))
            }
            _ => Ok(Terms { pair, unknowns }),
        }
    }

    pub(super) fn unknowns(&self) -> &[String] {
        &self.unknowns
    }

    /// Returns the number of 64-bit words that have one bit for each valuation (assignment of true and false to the
    /// unknowns).
    pub(super) fn words(&self) -> usize {
        1 << self.unknowns.len().saturating_sub(6)
    }

    /// Returns in which valuations (assignments of true and false to the unknowns) the two terms differ in the cell: in
    /// none, some or all.
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

/// The result of a comparison of two terms in one cell: in which valuations they differ. A valuation assigns true or
/// false to every unknown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Differ {
    /// The terms agree for all values of the unknowns.
    Never,
    /// The terms differ for some values of the unknowns and agree for others.
    Sometimes,
    /// The terms differ for all values of the unknowns.
    Always,
}

impl Term {
    /// Returns 64 bits: bit `v` is 1 if the term allows the cell in valuation `64 * word + v`. A valuation assigns true
    /// or false to every unknown.
    fn values(&self, q: i64, k: i64, word: usize) -> u64 {
        match self {
            Term::Atom(atom, _) if atom.allows(&Pair::at(q, k)) => u64::MAX,
            Term::Atom(..) => 0,
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

    /// Returns the number of steps to evaluate the term for one cell: one step per atom, range or tree node.
    pub(super) fn price(&self) -> u64 {
        let mut price = 1;
        self.places(&mut |places| price += places.price.max(1));
        price
    }

    /// Calls `visit` with the places of every atom that depends only on positions.
    pub(super) fn places(&self, visit: &mut impl FnMut(&Places)) {
        match self {
            Term::Atom(_, places) => visit(places),
            Term::Unknown(_) => {}
            Term::Not(a) => a.places(visit),
            Term::All(parts) | Term::Any(parts) => parts.iter().for_each(|part| part.places(visit)),
        }
    }
}

struct Reading<'a> {
    unknowns: &'a mut Vec<String>,
    batch: u64,
    head: u64,
    /// True if the facts mark padding. With padding on the left, a list of an atom (such as document lengths) does not
    /// begin at position 0.
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
            Node::Full => Term::All(Vec::new()),
            Node::None | Node::Layers(_) => Term::Any(Vec::new()),
            Node::Atom(atom) => match atom.every_length(Case { batch: self.batch, padded: self.padded }) {
                EveryLength::Places(places) => Term::Atom(atom.clone(), places),
                EveryLength::Mask(mask) => self.term(&mask),
                EveryLength::Unknown => self.unknown(&mask.to_string()),
            },
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

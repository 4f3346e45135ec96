//! Two masks as Boolean terms, for their comparison. The operands of a term are elementary masks (atoms). An atom whose
//! cells depend only on positions is evaluated. An atom that reads facts (data given at binding) or is random is an
//! unknown.

use super::range::reads_padding;
use crate::mask::basis::{Case, Pair, Places};
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

/// The two masks of a comparison in one batch row and head, each as a term (a combination of atoms). Both terms use one
/// list of unknowns, which are atoms that read facts or are random.
pub(super) struct Terms {
    pub(super) pair: [Term; 2],
    unknowns: Vec<String>,
}

/// The maximum number of unknowns in a comparison. Each unknown is true or false in a cell, so `n` unknowns have `2^n`
/// valuations (assignments of true and false).
const MAX_UNKNOWNS: usize = 12;

/// The values of the unknowns 0 to 5 in 64 valuations, one word for each unknown: bit `v` is 1 if the unknown is true
/// in valuation `v`. A valuation assigns true or false to every unknown.
const VALUES: [u64; 6] = [
    0xaaaa_aaaa_aaaa_aaaa,
    0xcccc_cccc_cccc_cccc,
    0xf0f0_f0f0_f0f0_f0f0,
    0xff00_ff00_ff00_ff00,
    0xffff_0000_ffff_0000,
    0xffff_ffff_0000_0000,
];

impl Terms {
    /// Returns both masks for one batch row and head as terms (combinations of atoms), with a list of the unknowns. The
    /// masks must not contain `layers(...)`.
    pub(super) fn new(masks: [&Mask; 2], batch: usize, head: usize) -> Result<Self, String> {
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

    /// Returns the number of 64-bit words for one bit per valuation. A valuation assigns true or false to every unknown
    /// (atom that reads facts or is random).
    pub(super) fn words(&self) -> usize {
        1 << self.unknowns.len().saturating_sub(6)
    }

    /// Compares the two terms in the cell (`q`, `k`), and returns whether they differ in no, some or all valuations. A
    /// valuation assigns true or false to every unknown.
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

/// The valuations in which two terms differ in one cell: none, some or all. A valuation assigns true or false to every
/// unknown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Differ {
    /// The two terms agree for all values (true or false) of the unknowns: atoms that read facts or are random.
    Never,
    /// The two terms differ for some values (true or false) of the unknowns, and agree for other values. Unknowns are
    /// atoms that read facts or are random.
    Sometimes,
    /// The two terms differ for all values (true or false) of the unknowns: atoms that read facts or are random.
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

    /// Returns the number of budget steps to evaluate the term for one cell: about one for each atom that depends only
    /// on positions. An atom with a list takes one step for each range or tree node of the list.
    pub(super) fn price(&self) -> usize {
        let mut price = 1;
        self.places(&mut |places| price += places.price.max(1));
        price
    }

    /// Calls `visit` for every atom that depends only on positions. The argument is the places of the atom: the
    /// positions and distances at which its cells change.
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
    batch: usize,
    head: usize,
    /// True if the facts mark padding. With padding on the left, a list in the parameters of an atom (such as document
    /// lengths) begins at the first non-padding token instead of position 0.
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

//! [`Mask`]: an expression that defines which query may read which key; [`Atom`]: the trait of elementary masks.

pub(crate) mod basis;
pub(crate) mod definition;
pub(crate) mod member;
pub(crate) mod ops;
pub(crate) mod pattern;
pub(crate) mod resolution;
pub(crate) mod resolved;
pub(crate) mod score;
pub mod sentence;

use crate::Error;
use crate::facts::resolve::RowFacts;
use crate::mask::basis::{Binding, ByValue, Case, Family, Input, Line, Pair, Places, Rank, Site, Sizes, Value};
use crate::mask::resolution::Resolution;
use crate::sets::set::Selector;
use std::any::TypeId;
use std::cmp::Ordering;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

/// A set of allowed cells (batch row, head, query, key), defined without lengths.
///
/// A mask is an expression: atoms (see [`atoms`](crate::atoms)) combined with `&` (both), `|` (either), `!` (not) and
/// `-` (the first but not the second). True always means "may read". A mask holds no lengths:
/// [`bind`](Mask::bind) adds a [`Shape`](crate::Shape) and [`Facts`](crate::Facts).
///
/// Masks can be compared, hashed, cloned at low cost, printed as text and parsed from text:
///
/// ```
/// use noren_mask::{Mask, atoms::*};
/// let mask = sliding(4096) | causal() & keys(0..4);
/// assert_eq!(mask.to_string(), "sliding(4096) | causal & keys(0..4)");
/// assert_eq!(mask, "sliding(4096) | causal & keys(0..4)".parse::<Mask>().unwrap());
/// ```
///
/// Equality compares expressions, not cells: `!!causal()` differs from `causal()`. The order of masks is only for sorting.
/// [`simplify`](Mask::simplify) gives both expressions one form. [`BoundMask`](crate::BoundMask) compares cells.
///
/// A mask is not a boolean, so it cannot be used in `if`, `&&` or `||`.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Mask(pub(crate) Arc<Node>);

/// The expression inside a [`Mask`]: an atom, or operands with their operator.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
#[non_exhaustive]
pub enum Node {
    /// The mask `full`, which allows every cell.
    Full,
    /// The mask `none`, which allows no cell.
    None,
    /// An atom, built in or defined by the user: see [`Mask::atom_as`].
    Atom(AtomRef),
    /// `heads(...)`: one mask for each set of query heads. Each arm is a set of heads with its mask.
    Heads(Vec<Arm>),
    /// `batch(...)`: one mask for each set of batch rows. Each arm is a set of batch rows with its mask.
    Batch(Vec<Arm>),
    /// `layers(...)`: one mask for each set of layers. Each arm is a set of layers with its mask.
    Layers(Vec<Arm>),
    /// The cells that the mask denies.
    Not(Mask),
    /// The intersection of two or more masks, none of which is an `And`.
    And(Vec<Mask>),
    /// The union of two or more masks, none of which is an `Or`.
    Or(Vec<Mask>),
    /// The cells that the first mask allows and the second mask denies.
    Minus(Mask, Mask),
}

/// An arm of `heads(...)`, `batch(...)` or `layers(...)`: a mask with the heads, batch rows or layers to which it
/// applies.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Arm {
    /// The indices of the heads, batch rows or layers to which `mask` applies.
    pub selector: Selector,
    /// The mask of the heads, batch rows or layers that `selector` selects.
    pub mask: Mask,
}

impl Arm {
    /// Returns the mask of the arm whose selector contains `index`, the index of a head, batch row or layer. If there
    /// is no such arm, returns the mask of the arm with the selector `else`, or `None` without this arm.
    pub fn pick(arms: &[Arm], index: usize) -> Option<&Mask> {
        let named = arms.iter().find(|arm| arm.selector.names(index));
        named.or_else(|| arms.iter().find(|arm| arm.selector == Selector::Else)).map(|arm| &arm.mask)
    }
}

impl Mask {
    /// Returns the mask with the root node `node`. For `And` and `Or`, use [`Mask::all`], [`Mask::any`] or the
    /// operators instead: they merge an `And` inside an `And`, and an `Or` inside an `Or`.
    pub fn new(node: Node) -> Self {
        Mask(Arc::new(node))
    }

    /// Returns the mask of one atom: a built-in atom (see [`atoms`](crate::atoms)) or [your own](crate::atom).
    ///
    /// ```
    /// use noren_mask::{Mask, atoms::Sliding};
    /// let mask = Mask::of(Sliding { window: 8 });
    /// assert_eq!(mask.to_string(), "sliding(8)");
    /// assert_eq!(mask.atom_as::<Sliding>().unwrap().window, 8);
    /// ```
    pub fn of(atom: impl Atom) -> Self {
        Mask::new(Node::Atom(AtomRef::new(atom)))
    }

    /// Returns the atom if the mask is an atom, and `None` if it is a combination, `full` or `none`.
    pub fn atom(&self) -> Option<&AtomRef> {
        match self.node() {
            Node::Atom(atom) => Some(atom),
            _ => None,
        }
    }

    /// Returns the atom if the mask is an atom of type `A`, else `None`.
    pub fn atom_as<A: Atom>(&self) -> Option<&A> {
        self.atom()?.downcast()
    }

    /// Returns all elementary masks (atoms) of the mask from left to right, including those inside `heads(...)`,
    /// `batch(...)` and `layers(...)`.
    pub fn atoms(&self) -> Vec<&AtomRef> {
        self.nodes().into_iter().filter_map(Mask::atom).collect()
    }

    /// Returns the mask and all masks inside it: each mask comes before its operands.
    pub(crate) fn nodes(&self) -> Vec<&Mask> {
        let below = self.children().into_iter().flat_map(Mask::nodes);
        std::iter::once(self).chain(below).collect()
    }

    /// Returns the root of the expression inside the mask.
    pub fn node(&self) -> &Node {
        &self.0
    }

    /// Returns the intersection of `masks`, or `full` if `masks` is empty.
    pub fn all(masks: impl IntoIterator<Item = Mask>) -> Self {
        let mut parts = Vec::new();
        for mask in masks {
            match mask.node() {
                Node::And(inner) => parts.extend(inner.iter().cloned()),
                _ => parts.push(mask),
            }
        }
        match parts.len() {
            0 => Mask::new(Node::Full),
            1 => parts.remove(0),
            _ => Mask::new(Node::And(parts)),
        }
    }

    /// Returns the union of `masks`, or `none` if `masks` is empty.
    pub fn any(masks: impl IntoIterator<Item = Mask>) -> Self {
        let mut parts = Vec::new();
        for mask in masks {
            match mask.node() {
                Node::Or(inner) => parts.extend(inner.iter().cloned()),
                _ => parts.push(mask),
            }
        }
        match parts.len() {
            0 => Mask::new(Node::None),
            1 => parts.remove(0),
            _ => Mask::new(Node::Or(parts)),
        }
    }

    /// Returns the operands of the outermost operator of the mask: `a` and `b` for `a & b`. For `heads(...)`,
    /// `batch(...)` and `layers(...)`, returns the masks of the arms. The result is empty for an atom, `full` and
    /// `none`.
    pub fn children(&self) -> Vec<&Mask> {
        match self.node() {
            Node::Not(a) => vec![a],
            Node::And(parts) | Node::Or(parts) => parts.iter().collect(),
            Node::Minus(a, b) => vec![a, b],
            Node::Heads(arms) | Node::Batch(arms) | Node::Layers(arms) => arms.iter().map(|a| &a.mask).collect(),
            _ => Vec::new(),
        }
    }

    /// Returns a copy of the mask in which `f(child)` replaces each of its [`children`](Self::children). An atom is
    /// returned unchanged.
    pub fn map_children(&self, mut f: impl FnMut(&Mask) -> Mask) -> Mask {
        let mut arms = |arms: &[Arm]| -> Vec<Arm> {
            arms.iter().map(|a| Arm { selector: a.selector.clone(), mask: f(&a.mask) }).collect()
        };
        match self.node() {
            Node::Heads(a) => Mask::new(Node::Heads(arms(a))),
            Node::Batch(a) => Mask::new(Node::Batch(arms(a))),
            Node::Layers(a) => Mask::new(Node::Layers(arms(a))),
            Node::Not(a) => Mask::new(Node::Not(f(a))),
            Node::And(parts) => Mask::all(parts.iter().map(f).collect::<Vec<_>>()),
            Node::Or(parts) => Mask::any(parts.iter().map(f).collect::<Vec<_>>()),
            Node::Minus(a, b) => Mask::new(Node::Minus(f(a), f(b))),
            _ => self.clone(),
        }
    }
}

impl Node {
    /// Moves the masks inside of this node to `out`: the operands of an operator, or the masks of `heads(...)`,
    /// `batch(...)` or `layers(...)`. An atom has none.
    fn give_up_parts(&mut self, out: &mut Vec<Mask>) {
        match self {
            Node::And(parts) | Node::Or(parts) => out.append(parts),
            Node::Heads(arms) | Node::Batch(arms) | Node::Layers(arms) => {
                out.extend(arms.drain(..).map(|arm| arm.mask));
            }
            Node::Not(_) | Node::Minus(..) => match std::mem::replace(self, Node::None) {
                Node::Not(a) => out.push(a),
                Node::Minus(a, b) => out.extend([a, b]),
                _ => {}
            },
            _ => {}
        }
    }
}

/// Frees a mask without recursion, because a loop of `mask = mask - part` can build a very deep expression.
impl Drop for Mask {
    fn drop(&mut self) {
        let mut parts = Vec::new();
        if let Some(node) = Arc::get_mut(&mut self.0) {
            node.give_up_parts(&mut parts);
        }
        while let Some(mut part) = parts.pop() {
            if let Some(node) = Arc::get_mut(&mut part.0) {
                node.give_up_parts(&mut parts);
            }
        }
    }
}

/// An elementary mask: which keys each query may read.
///
/// An atom is a value: it derives `Debug`, `PartialEq`, `Eq`, `PartialOrd`, `Ord` and `Hash` over its parameters
/// ([`Value`]). A parameter of type `f64` is stored as a [`Real`](crate::Real). Equal atoms must allow the same cells.
/// [`Mask::of`] makes a mask of an atom.
///
/// [`allows`](Self::allows) is the definition: functions that evaluate or explain a single cell call only this
/// function. [`resolve`](Self::resolve) gives planning the same cells in a faster form. Without this form, planning
/// calls `allows` for every cell that the other atoms of the mask do not decide. [`verify`](crate::atom::verify) checks
/// that both functions give the same cells.
pub trait Atom: Value {
    /// Returns the name of the atom in the text of masks.
    fn name(&self) -> &'static str;

    /// Writes the atom in the text form of masks: the name and the parameters that are not the default.
    ///
    /// # Errors
    /// Returns an error if the formatter fails.
    fn write(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result;

    /// Checks the parameters as far as possible without a shape.
    ///
    /// # Errors
    /// Returns the problem and its fix if a parameter is invalid: `size is 0: give at least 1`.
    fn check(&self) -> Result<(), String> {
        Ok(())
    }

    /// Returns all inputs of the cells except the positions of query and key, such as the head or a label. Batch rows
    /// and heads share a plan if the listed inputs do not differ between them. So a plan is wrong if
    /// [`allows`](Self::allows) reads an input that is not in this list.
    fn inputs(&self) -> Vec<Input<'_>> {
        Vec::new()
    }

    /// Returns whether the cells depend on the position of the query (index of the query row plus query offset). Only an
    /// atom that reads neither [`Pair::q`] nor the facts of a query returns false, such as `keys(..)` and `dense(..)`.
    fn uses_query_offset(&self) -> bool {
        true
    }

    /// Checks that the atom can be bound to the shape and facts.
    ///
    /// # Errors
    /// Returns [`Binding::missing`] if a fact is missing, or [`Binding::refuse`] if the shape or a fact does not fit.
    fn fits(&self, binding: &Binding<'_>) -> Result<(), Error> {
        let _ = binding;
        Ok(())
    }

    /// Returns whether the query may read the key. This function is the definition of the atom. It must be pure:
    /// planning calls it from several threads, after [`check`](Self::check) and [`fits`](Self::fits).
    fn allows(&self, pair: &Pair<'_>) -> bool;

    /// Returns the sentence that explains the cells of the atom in one batch row, as data for explanations and saved
    /// pages. For `None`, explanations call [`why`](Self::why), and saved pages contain no reason.
    fn sentence<'a>(&'a self, row: RowFacts<'a>) -> Option<Sentence<'a>> {
        let _ = row;
        None
    }

    /// Returns one sentence that explains why the atom allows the cell (`allowed` is true) or denies it. Explanations
    /// call this function if [`sentence`](Self::sentence) returns `None`. The sentence has no capital letter at its
    /// start and no full stop.
    fn why(&self, pair: &Pair<'_>, allowed: bool) -> String {
        let verb = if allowed { "may read" } else { "may not read" };
        format!("query {} {verb} key {}", pair.q, pair.k)
    }

    /// Returns the cells of the atom for one batch row and head, in the form that planning uses. This function reads
    /// facts, such as documents and labels, once for all cells. For `None`, planning calls [`allows`](Self::allows) for
    /// each cell.
    fn resolve(&self, site: &Site<'_>) -> Option<Resolution> {
        let _ = site;
        None
    }

    /// Returns a simpler expression that allows the same cells for all shapes and facts. It must be in its simplest
    /// form: simplifying it again must not change it.
    fn simplify(&self) -> Simplified {
        Simplified::Same
    }

    /// Returns the rank of the atom. [`Mask::simplify`] sorts the operands of `&` and `|` by rank.
    fn rank(&self) -> Rank {
        Family::Own.into()
    }

    /// Returns the data with which [`Mask::equivalent`] compares masks at all lengths: the positions and distances at
    /// which the cells of the atom change, another mask that allows the same cells, or [`EveryLength::Unknown`]. By default,
    /// the places are those of the set that [`simplify`](Self::simplify) returns.
    fn every_length(&self, case: Case) -> EveryLength {
        let _ = case;
        match self.simplify() {
            Simplified::Line(line) => EveryLength::Places(line.places()),
            _ => EveryLength::Unknown,
        }
    }

    /// Returns the sequence lengths and the number of batch rows at which the atom can be bound. They depend on
    /// parameters such as a list of document lengths.
    fn sizes(&self, case: Case) -> Sizes {
        let _ = case;
        Sizes::default()
    }
}

/// A query or a key that a [`Sentence`] describes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Token {
    /// The index of the query row or of the key.
    pub index: usize,
    /// The position of the query or of the key.
    pub position: i64,
}

/// A function that returns the words of a sentence for a query or a key, such as its position.
pub type Words<'a> = Box<dyn Fn(Token) -> String + 'a>;
/// A function that returns a number for a query or a key, such as its position.
pub type Number<'a> = Box<dyn Fn(Token) -> i64 + 'a>;

/// A sentence that explains why a mask allows or denies a cell. Its pieces depend on the cell, so one value has the
/// sentences of all cells of a batch row and head.
#[derive(Debug, Default)]
pub struct Sentence<'a>(pub Vec<Piece<'a>>);

/// One piece of a [`Sentence`].
pub enum Piece<'a> {
    /// A text that is equal for all cells.
    Text(String),
    /// The words that this function returns for the query of the cell.
    Query(Words<'a>),
    /// The words that this function returns for the key of the cell.
    Key(Words<'a>),
    /// The number that the first function returns for the query, minus the number that the second returns for the key.
    Difference(Number<'a>, Number<'a>),
    /// The first sentence if the test is true for the cell, otherwise the second sentence.
    If(Test, Sentence<'a>, Sentence<'a>),
    /// The sentence of the first operand that allows the cell (true) or denies it (false). The list has one sentence
    /// for each operand. The last sentence is used if there is no such operand.
    First(bool, Vec<Sentence<'a>>, Sentence<'a>),
    /// The reason of the operand with this index, from 0.
    Operand(usize),
    /// The result of [`Atom::why`], for an atom that has no sentence. It cannot be written as data.
    Atom(&'a AtomRef),
}

/// A property of a cell that selects one of two sentences.
#[derive(Clone, PartialEq, Debug)]
pub enum Test {
    /// Whether the explained mask allows the cell.
    Allowed,
    /// Whether the operand with this index, from 0, allows the cell.
    Operand(usize),
    /// Whether this mask allows the cell.
    Mask(Mask),
}

/// The simpler form of an atom: the result of [`Atom::simplify`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Simplified {
    /// The atom is already in its simplest form.
    Same,
    /// A mask in its simplest form that allows the same cells as the atom. It may be the atom itself.
    Mask(Mask),
    /// A set of numbers, for an atom whose cells depend on one number only: a distance, a key or a query. Several atoms
    /// that depend on the same number can be joined into one atom.
    Line(Line),
}

impl Simplified {
    /// Returns [`Simplified::Line`] with the given set of distances, keys or queries. Returns [`Simplified::Same`] if
    /// `line` is `None`.
    pub(crate) fn line(line: impl Into<Option<Line>>) -> Self {
        line.into().map_or(Simplified::Same, Simplified::Line)
    }
}

/// The cells of an atom at all sequence lengths, for the comparison of masks: the result of [`Atom::every_length`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum EveryLength {
    /// The atom cannot be compared at all sequence lengths: its cells depend on more than the two positions, or change
    /// at too many positions.
    Unknown,
    /// The positions and distances at which the cells of the atom change from allowed to denied or back.
    Places(Places),
    /// Another mask that allows the same cells as the atom.
    Mask(Mask),
}

/// A reference to an atom of any type. Two references are equal if the types and values of their atoms are equal.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct AtomRef(ByValue<dyn Atom>);

impl AtomRef {
    pub(crate) fn new(atom: impl Atom) -> Self {
        AtomRef(ByValue(Arc::new(atom)))
    }

    /// Returns the atom as a value of type `A`, or `None` if the atom has another type.
    pub fn downcast<A: Atom>(&self) -> Option<&A> {
        self.0.as_any().downcast_ref()
    }

    /// Returns the sort key of atoms: (rank in the canonical form, name, type).
    fn order(&self) -> (Rank, &'static str, TypeId) {
        (self.0.rank(), self.0.name(), self.0.as_any().type_id())
    }
}

impl Deref for AtomRef {
    type Target = dyn Atom;

    fn deref(&self) -> &(dyn Atom + 'static) {
        &*self.0
    }
}

impl Ord for AtomRef {
    fn cmp(&self, other: &Self) -> Ordering {
        self.order().cmp(&other.order()).then_with(|| self.0.order(other.0.as_any()))
    }
}

impl PartialOrd for AtomRef {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Debug for AtomRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Writes the atom as text.
impl fmt::Display for AtomRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.write(f)
    }
}

//! [`Mask`]: which query may read which key, as a value; [`Atom`]: what it is made of.

use crate::Error;
use crate::basis::{Binding, Case, Family, Input, Line, Pair, Places, Rank, Site, Sizes, Value};
use crate::resolution::Resolution;
use crate::set::Selector;
use std::any::TypeId;
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::sync::Arc;

/// A set of allowed (batch, head, query, key) cells, said without sizes.
///
/// A mask is an expression: atoms (see [`atoms`](crate::atoms)) combined with `&` (both), `|` (either), `!` (not) and
/// `-` (the first but not the second). True means "may attend"; there is no other polarity. It knows no lengths:
/// [`bind`](Mask::bind) gives it a [`Shape`](crate::Shape) and [`Facts`](crate::Facts).
///
/// Masks compare, hash, clone cheaply, print as text and parse from it:
///
/// ```
/// use noren_mask::{Mask, atoms::*};
/// let mask = sliding(4096) | causal() & keys(0..4);
/// assert_eq!(mask.to_string(), "sliding(4096) | causal & keys(0..4)");
/// assert_eq!(mask, "sliding(4096) | causal & keys(0..4)".parse::<Mask>().unwrap());
/// ```
///
/// Equality (and order, which serves only to sort) compares expressions, not cells: `!!causal()` differs from `causal()` as a value.
/// [`simplify`](Mask::simplify) brings both to one form; [`BoundMask`](crate::BoundMask) answers questions about cells.
///
/// A mask is no truth value. Python's `and`, `or` and `if` have no counterpart here, so Rust refuses them by type.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Mask(pub(crate) Arc<Node>);

/// The expression inside a [`Mask`]: an atom or a combination.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
#[non_exhaustive]
pub enum Node {
    /// Every cell.
    Full,
    /// No cell.
    None,
    /// An atom, built in or the user's: see [`Mask::atom_as`].
    Atom(AtomRef),
    /// By query head, the arm that names it.
    Heads(Vec<Arm>),
    /// By batch row, the arm that names it.
    Batch(Vec<Arm>),
    /// By layer, the arm that names it.
    Layers(Vec<Arm>),
    /// The cells that the mask does not allow.
    Not(Mask),
    /// Two or more masks, none of them itself an `And`.
    And(Vec<Mask>),
    /// Two or more masks, none of them itself an `Or`.
    Or(Vec<Mask>),
    /// The cells of the first mask that the second does not allow.
    Minus(Mask, Mask),
}

/// One arm of `heads(...)`, `batch(...)` or `layers(...)`.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Arm {
    /// The indices it speaks for.
    pub selector: Selector,
    /// What holds there.
    pub mask: Mask,
}

impl Arm {
    /// Returns the mask of the arm that names `index`, else that of the arm `else`, if there is one.
    pub fn pick(arms: &[Arm], index: u64) -> Option<&Mask> {
        let named = arms.iter().find(|arm| arm.selector.names(index));
        named.or_else(|| arms.iter().find(|arm| arm.selector == Selector::Else)).map(|arm| &arm.mask)
    }
}

impl Mask {
    /// The mask of one node. `And` and `Or` nodes are built with [`Mask::all`] and [`Mask::any`] or the operators, which
    /// keep them flat.
    pub fn new(node: Node) -> Self {
        Mask(Arc::new(node))
    }

    /// The mask of one atom: a built-in one (see [`atoms`](crate::atoms)) or [your own](crate::atom).
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

    /// The atom, where the mask is one and no combination, `full` or `none`.
    pub fn atom(&self) -> Option<&AtomRef> {
        match self.node() {
            Node::Atom(atom) => Some(atom),
            _ => None,
        }
    }

    /// The parameters of the atom, where the mask is one of type `A`.
    pub fn atom_as<A: Atom>(&self) -> Option<&A> {
        self.atom()?.downcast()
    }

    /// Every atom of the mask, from left to right, arms included.
    pub fn atoms(&self) -> Vec<&AtomRef> {
        match self.atom() {
            Some(atom) => vec![atom],
            None => self.children().into_iter().flat_map(Mask::atoms).collect(),
        }
    }

    /// The expression.
    pub fn node(&self) -> &Node {
        &self.0
    }

    /// The intersection of all `masks`; `full` when there is none.
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

    /// The union of all `masks`; `none` when there is none.
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

    /// The direct parts of a combination, arms included; empty for an atom.
    pub fn children(&self) -> Vec<&Mask> {
        match self.node() {
            Node::Not(a) => vec![a],
            Node::And(parts) | Node::Or(parts) => parts.iter().collect(),
            Node::Minus(a, b) => vec![a, b],
            Node::Heads(arms) | Node::Batch(arms) | Node::Layers(arms) => arms.iter().map(|a| &a.mask).collect(),
            _ => Vec::new(),
        }
    }

    /// The same expression with every direct part replaced by `f(part)`; an atom is returned as it is.
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
    /// Moves the direct parts of a combination to `out`; an atom stays as it is.
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

/// Frees a deep expression without recursion: `mask = mask - part` in a loop may nest as deep as memory allows.
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
/// An atom is a value: it derives `Debug`, `PartialEq`, `Eq`, `PartialOrd`, `Ord` and `Hash` over its parameters ([`Value`]). A parameter
/// of type `f64` is held as a [`Real`](crate::Real). Two atoms that are equal must allow the same cells. [`Mask::of`] makes a mask of an atom.
///
/// [`allows`](Self::allows) is the definition. Cells, explanations and comparisons ask it and nothing else.
/// [`resolve`](Self::resolve) gives planning a faster form of the same cells; without one, planning looks at every cell that the
/// other parts of a mask leave open. [`verify`](crate::atom::verify) compares the two.
pub trait Atom: Value {
    /// The word under which masks name the atom.
    fn name(&self) -> &'static str;

    /// Writes the atom as it stands in a mask: the name and the parameters that are not the default.
    ///
    /// # Errors
    /// Those of the formatter.
    fn write(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result;

    /// Refuses parameters that make no sense whatever the shape, in words that say how to fix them: `size is 0: give at least 1`.
    ///
    /// # Errors
    /// The problem.
    fn check(&self) -> Result<(), String> {
        Ok(())
    }

    /// Returns everything that the cells depend on besides the positions of query and key. Batch rows and heads that an atom does not
    /// depend on share a plan, so an input that [`allows`](Self::allows) reads and this list lacks gives a wrong plan.
    fn inputs(&self) -> Vec<Input<'_>> {
        Vec::new()
    }

    /// Refuses a shape or facts that the atom cannot be bound to: facts that are missing, lists of another length.
    ///
    /// # Errors
    /// [`Binding::missing`] or [`Binding::refuse`].
    fn fits(&self, binding: &Binding<'_>) -> Result<(), Error> {
        let _ = binding;
        Ok(())
    }

    /// Whether the query may read the key: the definition. It is called after [`check`](Self::check) and [`fits`](Self::fits) and is a
    /// pure function; planning calls it from several threads.
    fn allows(&self, pair: &Pair<'_>) -> bool;

    /// One sentence, without a capital and a full stop, on why the pair is `allowed` or not.
    fn why(&self, pair: &Pair<'_>, allowed: bool) -> String {
        let verb = if allowed { "may read" } else { "may not read" };
        format!("query {} {verb} key {}", pair.q, pair.k)
    }

    /// The same cells in the form that planning asks, for one batch row and head; `None` leaves planning to [`allows`](Self::allows).
    /// Documents, labels and other facts are looked up here, once.
    fn resolve(&self, site: &Site<'_>) -> Option<Resolution> {
        let _ = site;
        None
    }

    /// A simpler expression of the same cells for every shape and all facts. Simplifying it again must not change it.
    fn simplify(&self) -> Simplified {
        Simplified::Same
    }

    /// Where [`Mask::simplify`] puts the atom among the operands of `&` and `|`.
    fn rank(&self) -> Rank {
        Family::Own.into()
    }

    /// What [`Mask::equivalent`] must know of the atom: nothing, the positions and distances at which its
    /// cells change, or another mask of the same cells.
    fn every_length(&self, case: Case) -> EveryLength {
        let _ = case;
        EveryLength::Unknown
    }

    /// The lengths and the batch that the atom's lists are for.
    fn sizes(&self, case: Case) -> Sizes {
        let _ = case;
        Sizes::default()
    }
}

/// The answer of [`Atom::simplify`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Simplified {
    /// The atom is in its simplest form.
    Same,
    /// This mask allows the same cells and is in its simplest form, perhaps the atom itself.
    Mask(Mask),
    /// The cells depend on one number only, so that any number of such atoms joins into one.
    Line(Line),
}

impl Simplified {
    /// The cells of a line; the atom itself where there is none.
    pub(crate) fn line(line: impl Into<Option<Line>>) -> Self {
        line.into().map_or(Simplified::Same, Simplified::Line)
    }
}

/// The answer of [`Atom::every_length`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum EveryLength {
    /// The cells depend on more than positions, or change at more places than can be listed: any cell may be either.
    Unknown,
    /// Whether a cell is allowed changes at these places only.
    Places(Places),
    /// This mask allows the same cells.
    Mask(Mask),
}

/// A shared atom of any type. It compares by value.
#[derive(Clone)]
pub struct AtomRef(Arc<dyn Atom>);

impl AtomRef {
    pub(crate) fn new(atom: impl Atom) -> Self {
        AtomRef(Arc::new(atom))
    }

    /// The atom as one of type `A`; `None` when it is another.
    pub fn downcast<A: Atom>(&self) -> Option<&A> {
        self.0.as_any().downcast_ref()
    }

    /// By rank, then by name and type.
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

impl PartialEq for AtomRef {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.0.equals(other.0.as_any())
    }
}

impl Eq for AtomRef {}

impl Hash for AtomRef {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.as_any().type_id().hash(state);
        self.0.hash_to(state);
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

/// The atom as text.
impl fmt::Display for AtomRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.write(f)
    }
}

//! [`Mask`]: which query may read which key, as a value.

use crate::atom::{Atom, AtomRef};
use crate::atoms::is_builtin;
use crate::set::Selector;
use std::ops;
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

/// One number for all batch rows, or one for each.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum PerRow {
    /// The same for every batch row.
    All(u64),
    /// One for each batch row, in order.
    Each(Vec<u64>),
}

impl PerRow {
    /// The number that holds for batch row `row`, `None` when the list is too short.
    pub fn get(&self, row: usize) -> Option<u64> {
        match self {
            PerRow::All(n) => Some(*n),
            PerRow::Each(list) => list.get(row).copied(),
        }
    }
}

impl From<u64> for PerRow {
    fn from(n: u64) -> Self {
        PerRow::All(n)
    }
}

impl From<Vec<u64>> for PerRow {
    fn from(list: Vec<u64>) -> Self {
        PerRow::Each(list)
    }
}

impl<const N: usize> From<[u64; N]> for PerRow {
    fn from(list: [u64; N]) -> Self {
        PerRow::Each(list.into())
    }
}

/// The end of a sequence at which padding stands.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Side {
    /// Real tokens last.
    Left,
    /// Real tokens first.
    #[default]
    Right,
}

/// A finite number that can be compared and hashed (by its bits; -0 is stored as 0).
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Real(u64);

impl Real {
    /// Wraps `value`.
    pub fn new(value: f64) -> Self {
        Real((value + 0.0).to_bits())
    }

    /// The number.
    pub fn get(self) -> f64 {
        f64::from_bits(self.0)
    }
}

/// By value, as [`f64::total_cmp`].
impl Ord for Real {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.get().total_cmp(&other.get())
    }
}

impl PartialOrd for Real {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl std::fmt::Debug for Real {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.get().fmt(f)
    }
}

impl From<f64> for Real {
    fn from(value: f64) -> Self {
        Real::new(value)
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

    /// The first atom that is not of this crate, and that text therefore cannot say.
    pub(crate) fn foreign_atom(&self) -> Option<&AtomRef> {
        self.atoms().into_iter().find(|atom| !is_builtin(&***atom))
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
            Node::Not(a) => !f(a),
            Node::And(parts) => Mask::all(parts.iter().map(f).collect::<Vec<_>>()),
            Node::Or(parts) => Mask::any(parts.iter().map(f).collect::<Vec<_>>()),
            Node::Minus(a, b) => f(a) - f(b),
            _ => self.clone(),
        }
    }
}

impl ops::BitAnd for Mask {
    type Output = Mask;
    fn bitand(self, other: Mask) -> Mask {
        Mask::all([self, other])
    }
}

impl ops::BitOr for Mask {
    type Output = Mask;
    fn bitor(self, other: Mask) -> Mask {
        Mask::any([self, other])
    }
}

impl ops::Sub for Mask {
    type Output = Mask;
    fn sub(self, other: Mask) -> Mask {
        Mask::new(Node::Minus(self, other))
    }
}

impl ops::Not for Mask {
    type Output = Mask;
    fn not(self) -> Mask {
        Mask::new(Node::Not(self))
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

//! [`Mask::simplify`]: rewrites a mask in its canonical form. Masks that allow the same cells but are written
//! differently often have the same canonical form.
//!
//! First, every difference `a - b` becomes `a & !b`, and complements are moved to the atoms: `!(a & b)` becomes `!a |
//! !b`. Then four rules simplify each `&` and each `|`:
//!
//! 1. Operands that are ranges of distances, such as `causal` and `window(..)`, are joined into one set of distances.
//!    Sets of keys are joined into one set of keys, and sets of queries into one set of queries.
//! 2. Repeated operands, and operands that follow from other operands, are removed.
//! 3. An `&` of an expression and its complement becomes `none`; an `|` of an expression and its complement becomes
//!    `full`.
//! 4. The remaining operands are sorted.
//!
//! A rule reads two levels of the expression: the operands of an `&` or `|`, and the operands of these operands.
//! Therefore the result is never much larger than the input. The rules run until the mask does not change any more.

mod axis;
mod pairs;

use crate::language::check::check_node;
use crate::language::print::measure;
use crate::mask::basis::Family;
use crate::mask::basis::{Axis, Runs};
use crate::mask::{Arm, Mask, Node, Simplified};
use crate::sets::set::{Selector, Span};
use axis::{AXES, Join, Joined, complement, read};
use pairs::paired;
use std::collections::{HashMap, HashSet};

impl Mask {
    /// Returns the canonical form of the mask: an expression that allows the same cells for every shape and all facts.
    ///
    /// Masks with equal canonical forms allow the same cells. However, masks with different canonical forms can also
    /// allow the same cells. To compare the cells of two masks, use [`BoundMask`](crate::BoundMask).
    ///
    /// The canonical form binds to every shape and all facts to which the mask binds, and sometimes to more: the mask
    /// `keys(label="a") & none` needs a label, but its canonical form `none` needs no facts. A mask that
    /// [`check`](Mask::check) refuses because it is too large is returned unchanged.
    ///
    /// ```
    /// use noren_mask::Mask;
    /// let simplified = |text: &str| text.parse::<Mask>().unwrap().simplify().to_string();
    /// assert_eq!(simplified("causal & window(left=7, right=7)"), "sliding(8)");
    /// assert_eq!(simplified("!(!causal | padding - documents)"), "causal & (documents | !padding)");
    /// assert_eq!(simplified("padding & (padding | causal)"), "padding");
    /// assert_eq!(simplified("keys(0..4) | prefix(9) & keys(2..)"), "keys(0..9)");
    /// ```
    pub fn simplify(&self) -> Mask {
        if measure(self).is_err() {
            return self.clone();
        }
        let mut now = self.clone();
        loop {
            let next = pass(&now, false);
            if next == now {
                // Pushing a complement down can make an expression deeper by one.
                return if measure(&now).is_ok() { now } else { self.clone() };
            }
            now = next;
        }
    }

    /// Returns the mask of one layer: each `layers(...)` is replaced by its mask for `layer`, or by `none` if no
    /// selector contains `layer`. Layers are counted from 0.
    ///
    /// ```
    /// use noren_mask::Mask;
    /// let mask: Mask = "padding & layers(every 2: sliding(4096), else: causal)".parse().unwrap();
    /// assert_eq!(mask.at_layer(2).to_string(), "padding & sliding(4096)");
    /// assert_eq!(mask.at_layer(3).to_string(), "padding & causal");
    /// ```
    pub fn at_layer(&self, layer: usize) -> Mask {
        let Node::Layers(arms) = self.node() else { return self.map_children(|part| part.at_layer(layer)) };
        Arm::pick(arms, layer).map_or_else(|| Mask::new(Node::None), |mask| mask.at_layer(layer))
    }

    /// Returns whether the mask contains `layers(...)`. To bind a mask with `layers(...)`, the caller must first select
    /// a layer with [`at_layer`](Mask::at_layer).
    pub fn has_layers(&self) -> bool {
        self.nodes().into_iter().any(|part| matches!(part.node(), Node::Layers(_)))
    }

    /// Returns whether the query offset (position of the first query) may change the cells. For masks such as `full`,
    /// `padding` and `keys`, the result is false: if the numbers of queries and keys differ, as in cross-attention,
    /// these masks need no query offset. See [`Shape::cross`](crate::Shape::cross).
    ///
    /// ```
    /// use noren_mask::Mask;
    /// let uses = |text: &str| text.parse::<Mask>().unwrap().uses_query_offset();
    /// assert!(!uses("padding - keys(0..4)"));
    /// assert!(uses("padding & causal"));
    /// ```
    pub fn uses_query_offset(&self) -> bool {
        self.atoms().into_iter().any(|atom| atom.uses_query_offset())
    }
}

/// Returns `mask`, simplified by applying each rule once: first to the atoms, then to the expressions that contain
/// these atoms. If `negate` is true, returns the complement of the simplified mask.
fn pass(mask: &Mask, negate: bool) -> Mask {
    let join_of = |join: Join| if negate { join.other() } else { join };
    match mask.node() {
        Node::Full | Node::None => {
            let full = (*mask.node() == Node::Full) != negate;
            Mask::new(if full { Node::Full } else { Node::None })
        }
        Node::Not(a) => pass(a, !negate),
        Node::And(parts) => joined(join_of(Join::All), parts.iter().map(|part| pass(part, negate))),
        Node::Or(parts) => joined(join_of(Join::Any), parts.iter().map(|part| pass(part, negate))),
        Node::Minus(a, b) => joined(join_of(Join::All), [pass(a, negate), pass(b, !negate)]),
        Node::Heads(arms) => simple_arms(mask, arms, negate, Node::Heads),
        Node::Batch(arms) => simple_arms(mask, arms, negate, Node::Batch),
        Node::Layers(arms) => simple_arms(mask, arms, negate, Node::Layers),
        _ => atom(mask, negate),
    }
}

fn atom(mask: &Mask, negate: bool) -> Mask {
    // A node that `bind` refuses has no meaning that could be kept: it stays as written.
    if check_node(mask.node()).is_err() {
        return if negate { !mask.clone() } else { mask.clone() };
    }
    if let Some((axis, runs)) = read(mask) {
        let runs = if negate { axis.complement(&runs) } else { runs };
        return Mask::all(axis.write(&runs, Join::All));
    }
    let plain = match mask.atom().map(|atom| atom.simplify()) {
        Some(Simplified::Mask(simple)) => simple,
        _ => mask.clone(),
    };
    match plain.node() {
        Node::Full | Node::None => pass(&plain, negate),
        _ if negate => !plain,
        _ => plain,
    }
}

/// Returns the canonical form of the combination of `parts` by the operator `join`, `&` or `|`. Each mask in `parts`
/// must already have its canonical form.
fn joined(join: Join, parts: impl IntoIterator<Item = Mask>) -> Mask {
    let flat = match join.of(parts.into_iter().collect()).node() {
        Node::And(parts) if join == Join::All => parts.clone(),
        Node::Or(parts) if join == Join::Any => parts.clone(),
        other => vec![Mask::new(other.clone())],
    };
    let (zero, unit) = (join.zero(), join.other().zero());
    let mut sets: [Vec<Runs>; 3] = Default::default();
    let (mut literals, mut composites) = (Vec::new(), Vec::new());
    for part in flat {
        if part == zero {
            return zero;
        }
        match (read(&part), part.node()) {
            (Some((axis, runs)), _) => sets[axis as usize].push(runs),
            (None, Node::And(_) | Node::Or(_)) => composites.push(part),
            _ if part == unit => {}
            _ => literals.push(part),
        }
    }
    let context = Context {
        join,
        sets: AXES.map(|axis| axis.join(join, &sets[axis as usize])),
        literals: literals.into_iter().collect(),
    };
    if context.contradicts() {
        return zero;
    }
    let mut operands: Vec<Mask> =
        AXES.iter().zip(&context.sets).flat_map(|(axis, runs)| axis.write(runs, join)).collect();
    let composites = composites.iter().filter_map(|composite| context.reduce(composite)).collect();
    operands.extend(paired(join, without_implied(join, composites)));
    operands.extend(context.literals);
    if operands.contains(&zero) {
        return zero;
    }
    in_order(join, operands)
}

/// The plain operands of one `&` or `|`. An operand that is itself an `&` or `|` is called composite; all others are
/// plain. [`reduce`](Self::reduce) uses the plain operands to simplify the composite operands.
struct Context {
    join: Join,
    /// The operands that are sets of numbers: one joined set of distances, one of keys and one of queries, in this
    /// order.
    sets: [Runs; 3],
    literals: HashSet<Mask>,
}

impl Context {
    /// Returns whether a mask and its complement are both plain operands of this `&` or `|`. Composite operands are
    /// ignored.
    fn contradicts(&self) -> bool {
        self.literals.iter().any(|literal| match literal.node() {
            Node::Not(inner) => self.literals.contains(inner),
            _ => false,
        })
    }

    /// Returns the composite operand `composite` (itself an `&` or `|`) without the parts that the plain operands (all
    /// others) make superfluous: in `a & (!a | b)`, the composite operand becomes `b`. Returns `None` if the whole
    /// composite operand is superfluous, as in `a & (a | b)`.
    fn reduce(&self, composite: &Mask) -> Option<Mask> {
        // A set with more runs is not compared with every part of every composite.
        const MOST: usize = 256;
        let mut kept = Vec::new();
        for part in composite.children() {
            if let Some((axis, runs)) =
                read(part).filter(|(axis, _)| self.sets[*axis as usize].as_slice().len() <= MOST)
            {
                let whole = &self.sets[axis as usize];
                let both = axis.join(self.join, [whole, &runs]);
                if both == *whole {
                    return None;
                }
                let settled = if self.join == Join::All { both.is_empty() } else { axis.is_all(&both) };
                if settled {
                    continue;
                }
            } else if self.literals.contains(part) {
                return None;
            } else if self.literals.contains(&complement(part)) {
                continue;
            }
            kept.push(part.clone());
        }
        Some(self.join.other().of(kept))
    }
}

/// Returns the composite operands of one `&` or `|` (operands that are themselves an `&` or `|`) without the redundant
/// ones. An operand is redundant if it contains all operands of another composite operand: `(a | b) & (a | b | c)`
/// becomes `a | b`.
fn without_implied(join: Join, composites: Vec<Mask>) -> Vec<Mask> {
    // Each operand is compared with each other one; in a longer list only repetitions are searched.
    const MOST: usize = 64;
    let mut seen = HashSet::new();
    let distinct: Vec<Mask> = composites.into_iter().filter(|mask| seen.insert(mask.clone())).collect();
    if distinct.len() > MOST {
        return distinct;
    }
    // A composite with one remaining part is no longer a composite.
    let parts: Vec<HashSet<&Mask>> = distinct
        .iter()
        .map(|mask| match (mask.node(), join) {
            (Node::Or(parts), Join::All) | (Node::And(parts), Join::Any) => parts.iter().collect(),
            _ => HashSet::new(),
        })
        .collect();
    let implied = |i: usize| (0..parts.len()).any(|j| i != j && !parts[j].is_empty() && parts[j].is_subset(&parts[i]));
    (0..distinct.len()).filter(|&i| !implied(i)).map(|i| distinct[i].clone()).collect()
}

fn in_order(join: Join, mut operands: Vec<Mask>) -> Mask {
    operands.sort_by(|a, b| reading_order(a).cmp(&reading_order(b)).then_with(|| a.cmp(b)));
    operands.dedup();
    join.of(operands)
}

/// Returns the sort key (class, rank) of an operand. The class is 0 for a plain operand, 1 for a complement and 2 for a
/// combination. The rank of an atom is the index of its [`Family`] among the families. Operands that are no atoms have
/// larger ranks: `batch`, then `heads`, then `layers`, then all others.
fn reading_order(mask: &Mask) -> (u8, u8) {
    let class = match mask.node() {
        Node::Not(_) => 1,
        Node::And(_) | Node::Or(_) | Node::Minus(..) => 2,
        _ => 0,
    };
    let atom = match mask.node() {
        Node::Not(inner) => inner.node(),
        node => node,
    };
    let rank = match atom {
        Node::Atom(atom) => atom.rank().family() as u8,
        Node::Batch(_) => Family::Own as u8 + 1,
        Node::Heads(_) => Family::Own as u8 + 2,
        Node::Layers(_) => Family::Own as u8 + 3,
        _ => Family::Own as u8 + 4,
    };
    (class, rank)
}

/// Returns the canonical form of `heads`, `batch` or `layers`. `arms` has its masks, each with its selector. Selectors
/// with equal masks are joined. A selector whose mask equals the mask of `else` is removed. If `negate` is true,
/// returns the complement. `wrap` makes the `heads`, `batch` or `layers` node from the arms.
fn simple_arms(mask: &Mask, arms: &[Arm], negate: bool, wrap: fn(Vec<Arm>) -> Node) -> Mask {
    if check_node(mask.node()).is_err() {
        return if negate { !mask.clone() } else { mask.clone() };
    }
    // Indices without an arm allow nothing, so the complement allows everything there.
    let mut elsewhere = Mask::new(if negate { Node::Full } else { Node::None });
    let mut spans: HashMap<Mask, Vec<Runs>> = HashMap::new();
    let mut every: Vec<(usize, usize, Mask)> = Vec::new();
    for arm in arms {
        let held = pass(&arm.mask, negate);
        let runs = match &arm.selector {
            Selector::Else => {
                elsewhere = held;
                continue;
            }
            // `every 1 from 3` binds where there are fewer than four heads, and the span `3..` does not
            Selector::Every { step, from } if *step > 1 || *from > 0 => {
                every.push((*from, *step, held));
                continue;
            }
            Selector::Every { .. } => Runs::of_spans(&[Span { start: 0, end: None }]),
            Selector::Spans(list) => Runs::of_spans(list),
        };
        spans.entry(held).or_default().push(runs);
    }
    let tails = every.iter().filter(|(_, step, _)| *step == 1);
    let tails: Vec<Runs> = tails.map(|(from, ..)| Runs::of_spans(&[Span { start: *from, end: None }])).collect();
    if Axis::Key.is_all(&Axis::Key.join(Join::Any, spans.values().flatten().chain(&tails))) {
        elsewhere = Mask::new(Node::None);
        let mut held = spans.keys().chain(every.iter().map(|(_, _, held)| held));
        if let Some(first) = held.next().filter(|first| held.all(|other| other == *first)) {
            return first.clone();
        }
    }
    let mut out: Vec<Arm> = spans
        .into_iter()
        .map(|(held, runs)| (held, Axis::Key.join(Join::Any, &runs)))
        .filter(|(held, runs)| *held != elsewhere && !runs.is_empty())
        .map(|(mask, runs)| Arm { selector: Selector::Spans(runs.spans()), mask })
        .collect();
    every.sort();
    let every = every.into_iter().filter(|(_, _, held)| *held != elsewhere);
    out.sort();
    out.extend(every.map(|(from, step, mask)| Arm { selector: Selector::Every { step, from }, mask }));
    match &out[..] {
        [] => return elsewhere,
        [Arm { selector: Selector::Spans(spans), mask }] if Axis::Key.is_all(&Runs::of_spans(spans)) => {
            return mask.clone();
        }
        _ => {}
    }
    if *elsewhere.node() != Node::None {
        out.push(Arm { selector: Selector::Else, mask: elsewhere });
    }
    Mask::new(wrap(out))
}

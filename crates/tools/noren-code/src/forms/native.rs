//! Code for noren itself, shared by Rust and Python: the precedence of operators, and the facts that a mask needs.

use crate::Error;
use crate::program::ground::{Ground, together};
use noren_mask::atoms::*;
use noren_mask::{Arm, Mask, Node, Positions, Rows, Side, Span};

/// Maximum number of numbers that the code lists for one fact.
const MOST: usize = 4096;

/// The precedence of an operator, lowest first. An operand whose operator has a lower precedence than the operator
/// around it is written in parentheses.
#[derive(Clone, Copy, PartialEq, PartialOrd)]
pub(crate) enum Binds {
    Or,
    And,
    Not,
}

/// The parts of mask expressions that Rust and Python write differently.
pub(crate) trait Language {
    /// The operator that negates a mask.
    const NOT: &'static str;
    /// The text before the name of a builder.
    const MODULE: &'static str;
    /// The name of the builder `global`.
    const GLOBAL: &'static str;

    fn numbers(list: &[impl ToString]) -> String;

    fn span(span: &Span) -> String;

    fn spans(spans: &[Span]) -> String;

    /// Returns the argument for the positions with the label `name`.
    fn label(name: &str) -> String;

    fn text(text: &str) -> String;

    /// Returns the code of an elementary mask whose builder has another name or other arguments than in the other
    /// language; `None` if name and arguments are the same.
    fn own_atom(mask: &Mask) -> Option<String>;

    /// Returns the code of `heads(...)` or `batch(...)`, which is `word`. `masks` are the masks of `arms` as code.
    fn arms(word: &str, arms: &[Arm], masks: &[String]) -> String;
}

/// Returns one position or range, or a list of several.
pub(crate) fn places<L: Language>(spans: &[Span]) -> String {
    match spans {
        [one] => L::span(one),
        spans => L::spans(spans),
    }
}

/// Returns the code of an elementary mask, or of the masks `full` and `none`.
fn atom<L: Language>(mask: &Mask) -> Result<String, Error> {
    if let Some(code) = L::own_atom(mask) {
        return Ok(code);
    }
    let set = |set: &Positions| match set {
        Positions::Label(name) => L::label(name),
        Positions::Spans(spans) => places::<L>(spans),
    };
    let (name, arguments) = if matches!(mask.node(), Node::Full) {
        ("full", String::new())
    } else if matches!(mask.node(), Node::None) {
        ("none", String::new())
    } else if let Some(atom) = mask.atom_as::<Sliding>() {
        ("sliding", atom.window.to_string())
    } else if let Some(atom) = mask.atom_as::<Chunk>() {
        ("chunk", atom.size.to_string())
    } else if let Some(atom) = mask.atom_as::<Stride>() {
        ("stride", atom.step.to_string())
    } else if let Some(atom) = mask.atom_as::<Distances>() {
        ("distances", L::numbers(&atom.distances))
    } else if let Some(Prefix { lengths: Rows::All(n) }) = mask.atom_as() {
        ("prefix", n.to_string())
    } else if let Some(Prefix { lengths: Rows::Each(list) }) = mask.atom_as() {
        ("prefix", L::numbers(list))
    } else if let Some(atom) = mask.atom_as::<Keys>() {
        ("keys", set(&atom.0))
    } else if let Some(atom) = mask.atom_as::<Queries>() {
        ("queries", set(&atom.0))
    } else if let Some(atom) = mask.atom_as::<Global>() {
        (L::GLOBAL, set(&atom.0))
    } else if let Some(atom) = mask.atom_as::<Spans>() {
        ("spans", L::spans(&atom.spans))
    } else if mask.atom_as::<Clearance>().is_some() {
        ("clearance", String::new())
    } else if let Some(atom) = mask.atom_as::<Random>() {
        ("random", format!("{:?}, {}", atom.p.get(), atom.seed))
    } else if let Some(atom) = mask.atom_as::<RandomBlocks>() {
        ("random_blocks", format!("{}, {}, {}", atom.block, atom.count, atom.seed))
    } else if let Some(atom) = mask.atom_as::<Dense>() {
        ("dense", L::text(&atom.name))
    } else {
        return Err(Error::unreadable(
            format!("`{mask}`"),
            "it is an elementary mask of the user, which has no builder in noren: write this part by hand",
        ));
    };
    Ok(format!("{}{name}({arguments})", L::MODULE))
}

/// Returns `mask` as an expression in the language `L`. `around` is the precedence of the operator around the
/// expression.
pub(crate) fn expression<L: Language>(mask: &Mask, around: Binds) -> Result<String, Error> {
    let each =
        |masks: &[Mask], binds| masks.iter().map(|mask| expression::<L>(mask, binds)).collect::<Result<Vec<_>, _>>();
    let (text, own) = match mask.node() {
        Node::Not(a) => (format!("{}{}", L::NOT, expression::<L>(a, Binds::Not)?), Binds::Not),
        Node::And(parts) => (each(parts, Binds::Not)?.join(" & "), Binds::And),
        Node::Or(parts) => (each(parts, Binds::And)?.join(" | "), Binds::Or),
        Node::Minus(a, b) => {
            // in parentheses wherever another operator is around it, because readers may not know the order of `-` and `&`
            (format!("{} - {}", expression::<L>(a, Binds::Not)?, expression::<L>(b, Binds::Not)?), Binds::Or)
        }
        Node::Heads(arms) | Node::Batch(arms) => {
            let masks = arms.iter().map(|arm| expression::<L>(&arm.mask, Binds::Or)).collect::<Result<Vec<_>, _>>()?;
            let word = if matches!(mask.node(), Node::Heads(_)) { "heads" } else { "batch" };
            return Ok(L::arms(word, arms, &masks));
        }
        _ => return atom::<L>(mask),
    };
    Ok(if around > own { format!("({text})") } else { text })
}

/// A fact (data given with a mask), with one entry for all batch rows or one entry for each batch row.
pub(crate) enum Fact {
    Lengths(Vec<u64>),
    LeftPadding,
    RealKeys(Vec<Vec<(u32, u32)>>),
    QueryLengths(Vec<u64>),
    Documents(Vec<Vec<i64>>),
    Label(String, Vec<Vec<Span>>),
    Levels(Vec<Vec<i64>>),
    Positions(Vec<Vec<i64>>),
    /// An array: its name, its shape, and its cells if there are at most 256.
    Array(String, [usize; 4], Option<Vec<bool>>),
}

/// Returns the facts (data given with a mask) that generated code must pass for `mask`.
pub(crate) fn facts(mask: &Mask, ground: &Ground<'_>) -> Result<Vec<Fact>, Error> {
    let (atoms, given) = (mask.atoms(), ground.facts);
    let mut out = Vec::new();
    let padded = atoms.iter().any(|atom| atom.downcast::<Padding>().is_some_and(|padding| padding.lengths.is_none()));
    let left = given.padding_side() == Side::Left;
    let sets: Vec<_> = (0..ground.frames.len()).map(|row| ground.row(row).real_tokens()).collect();
    // documents, levels and the cells of a grid may leave out padding, which the lengths mark
    let listed = atoms.iter().any(|atom| {
        atom.downcast::<Documents>().is_some()
            || atom.downcast::<Clearance>().is_some()
            || atom.downcast::<Neighborhood>().is_some()
    });
    let partial = sets.iter().any(|set| set.count() < ground.shape.kv_len() as u64);
    if padded || left || listed && partial {
        let at_start =
            sets.iter().all(|set| set.covering_range().is_none_or(|run| run.start == 0 && set.as_slice().len() == 1));
        if left || at_start {
            out.push(Fact::Lengths(sets.iter().map(|set| set.count()).collect()));
            out.extend(left.then_some(Fact::LeftPadding));
        } else {
            out.push(Fact::RealKeys(
                sets.iter().map(|set| set.iter().map(|run| (run.start, run.end)).collect()).collect(),
            ));
        }
    }
    if given.has_query_lengths() {
        let count = |row| ground.row(row).real_queries(None, None).count();
        out.push(Fact::QueryLengths((0..ground.frames.len()).map(count).collect()));
    }
    if atoms.iter().any(|atom| atom.downcast::<Documents>().is_some_and(|documents| documents.lengths.is_none())) {
        out.push(Fact::Documents(ground.rows(|row| {
            let documents = row.documents(None);
            documents.iter().flat_map(|d| d.ranges().collect::<Vec<_>>()).map(|range| range.end - range.start).collect()
        })));
    }
    for atom in &atoms {
        let set = atom.downcast::<Keys>().map(|keys| &keys.0);
        let set = set.or_else(|| atom.downcast::<Queries>().map(|queries| &queries.0));
        let set = set.or_else(|| atom.downcast::<Global>().map(|global| &global.0));
        if let Some(Positions::Label(label)) = set
            && !out.iter().any(|fact| matches!(fact, Fact::Label(known, _) if known == label))
        {
            out.push(Fact::Label(label.clone(), ground.rows(|row| row.label(label).unwrap_or(&[]).to_vec())));
        }
    }
    if atoms.iter().any(|atom| atom.downcast::<Clearance>().is_some()) {
        out.push(Fact::Levels(ground.rows(|row| row.levels().unwrap_or(&[]).to_vec())));
    }
    if given.place_keys() {
        out.push(Fact::Positions(together(ground.key_positions())));
    }
    for (name, array) in given.arrays() {
        if atoms.iter().any(|atom| atom.downcast::<Dense>().is_some_and(|dense| dense.name == name)) {
            let shape @ [_, heads, q_len, kv_len] = array.shape();
            let count = shape.iter().fold(1usize, |n, len| n.saturating_mul(*len));
            let cell = |i: usize| {
                let pair = i / kv_len / q_len;
                array.allowed(pair / heads, pair % heads, i / kv_len % q_len, i % kv_len)
            };
            out.push(Fact::Array(name.into(), shape, (count <= 256).then(|| (0..count).map(cell).collect())));
        }
    }
    match out.iter().map(Fact::listed).max().filter(|listed| *listed > MOST) {
        Some(listed) => {
            let advice =
                format!("give shorter facts, of at most {MOST} numbers, and replace them in the code by your own");
            Err(Error::unreadable(format!("a mask with a fact of {listed} numbers"), advice))
        }
        None => Ok(out),
    }
}

impl Fact {
    fn listed(&self) -> usize {
        match self {
            Fact::Lengths(list) | Fact::QueryLengths(list) => list.len(),
            Fact::RealKeys(rows) => rows.iter().map(Vec::len).sum(),
            Fact::Documents(rows) | Fact::Levels(rows) | Fact::Positions(rows) => rows.iter().map(Vec::len).sum(),
            Fact::Label(_, rows) => rows.iter().map(Vec::len).sum(),
            Fact::LeftPadding | Fact::Array(..) => 0,
        }
    }
}

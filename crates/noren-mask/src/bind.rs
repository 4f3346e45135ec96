//! [`BoundMask`]: a mask with its shape and facts, everything checked.

use crate::Error;
use crate::facts::{Facts, RealTokens, Rows};
use crate::frame::Frame;
use crate::mask::{Arm, Mask, Node, Side};
use crate::pattern::Pattern;
use crate::set::{Selector, Set};
use crate::shape::Shape;
use std::collections::HashMap;
use std::sync::Arc;

/// A mask bound to a shape and facts: every atom has its data, everything is in range. Made by [`Mask::bind`].
///
/// It answers questions about cells ([`allowed`](Self::allowed), [`explain`](Self::explain)), compares with other masks
/// ([`first_difference`](Self::first_difference)), draws itself and makes a [`Plan`](crate::Plan).
#[derive(Clone, Debug)]
pub struct BoundMask {
    mask: Mask,
    shape: Shape,
    facts: Arc<Facts>,
    frames: Vec<Frame>,
    /// The distinct patterns, each with the batch row whose frame it lies in.
    patterns: Vec<Resolved>,
    /// Index into `patterns` of each (batch, head), batch-major.
    pattern_of: Vec<u32>,
}

/// A pattern in its frame.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Resolved {
    pub(crate) frame: Frame,
    pub(crate) pattern: Pattern,
}

impl Mask {
    /// Checks the mask against a shape and facts and resolves it.
    ///
    /// ```
    /// use noren_mask::{Facts, Shape, atoms::*};
    /// let error = padding().bind(&Shape::square(4), &Facts::new()).unwrap_err();
    /// assert!(error.to_string().starts_with("`padding` needs lengths"));
    /// ```
    ///
    /// # Errors
    /// A shape that makes no sense, an atom whose parameters make none, facts that are missing, malformed or do not fit
    /// the shape, `layers(...)` without [`at_layer`](Mask::at_layer).
    pub fn bind(&self, shape: &Shape, facts: &Facts) -> Result<BoundMask, Error> {
        shape.check()?;
        self.check()?;
        check_facts(facts, shape)?;
        check_atoms(self, shape, facts)?;
        let facts = Arc::new(facts.clone());
        let frames: Vec<Frame> = (0..shape.batch_len()).map(|row| frame(shape, &facts, row)).collect();
        let simple = self.simplify();
        let by_head = depends_on_head(&simple, &facts);
        let mut patterns: Vec<Resolved> = Vec::new();
        let mut known: HashMap<Resolved, u32> = HashMap::new();
        let mut pattern_of = Vec::with_capacity(shape.batch_len() * shape.head_count());
        for (row, frame) in frames.iter().enumerate() {
            for head in 0..shape.head_count() {
                if head > 0 && !by_head {
                    pattern_of.push(*pattern_of.last().expect("head 0 was resolved"));
                    continue;
                }
                let pattern = crate::lower::lower(&simple, &facts, frame, row, head)?;
                let resolved = Resolved { frame: frame.clone(), pattern };
                let next = patterns.len() as u32;
                pattern_of.push(*known.entry(resolved.clone()).or_insert_with(|| {
                    patterns.push(resolved);
                    next
                }));
            }
        }
        Ok(BoundMask { mask: self.clone(), shape: shape.clone(), facts, frames, patterns, pattern_of })
    }
}

impl BoundMask {
    /// The expression as it was given.
    pub fn mask(&self) -> &Mask {
        &self.mask
    }

    /// The shape.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// The facts.
    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    /// The position of query row `row` of batch row `batch`.
    pub fn query_position(&self, batch: usize, row: usize) -> i64 {
        self.shape.query_offset(batch) + row as i64
    }

    /// The position of key `key` of batch row `batch`; negative for an empty slot.
    pub fn key_position(&self, batch: usize, key: usize) -> i64 {
        self.frames[batch].key(key as u32)
    }

    /// Number of distinct (batch, head) patterns.
    pub fn pattern_count(&self) -> usize {
        self.patterns.len()
    }

    /// Which of the distinct patterns holds for this batch row and query head.
    pub fn pattern_of(&self, batch: usize, head: usize) -> usize {
        self.pattern_of[batch * self.shape.head_count() + head] as usize
    }

    pub(crate) fn resolved(&self) -> &[Resolved] {
        &self.patterns
    }

    pub(crate) fn frame(&self, batch: usize) -> &Frame {
        &self.frames[batch]
    }
}

fn frame(shape: &Shape, facts: &Facts, row: usize) -> Frame {
    let runs = facts.positions.as_ref().and_then(|p| p.get(row)).and_then(|positions| {
        let one_to_one = positions.iter().enumerate().all(|(i, &p)| p == i as i64);
        (!one_to_one).then(|| Frame::runs_of(positions))
    });
    Frame { q_len: shape.q_len() as u32, kv_len: shape.kv_len() as u32, offset: shape.query_offset(row), runs }
}

/// True when two heads of one batch row may differ.
fn depends_on_head(mask: &Mask, facts: &Facts) -> bool {
    match mask.node() {
        Node::Heads(_) | Node::Closure { .. } => true,
        Node::Dense { name } => facts.arrays.get(name).is_some_and(|a| a.shape()[1] > 1),
        _ => mask.children().into_iter().any(|m| depends_on_head(m, facts)),
    }
}

/// What every fact must fulfil by itself and against the shape.
fn check_facts(facts: &Facts, shape: &Shape) -> Result<(), Error> {
    let (batch, kv_len) = (shape.batch_len(), shape.kv_len());
    let rows = |name: &str, given: Option<usize>| match given {
        Some(n) if n != batch => Err(Error::fact(
            name,
            format!("{n} entries but the batch is {batch}: give one per batch row, or one list for all"),
        )),
        _ => Ok(()),
    };
    match &facts.real {
        Some(RealTokens::Lengths { lengths, .. }) => check_lengths("lengths", lengths, batch, kv_len, "keys")?,
        Some(RealTokens::Keys(keys)) => {
            rows("real keys", Some(keys.len()))?;
            if let Some(end) = keys.iter().filter_map(|k| k.hull()).map(|h| h.end as usize).find(|&e| e > kv_len) {
                return Err(Error::fact(
                    "real keys",
                    format!("key {} is listed, but there are {kv_len} keys", end - 1),
                ));
            }
        }
        None => {}
    }
    if let Some(lengths) = &facts.query_lengths {
        check_lengths("query_lengths", lengths, batch, shape.q_len(), "queries")?;
    }
    if let Some(documents) = &facts.documents {
        rows("documents", documents.rows())?;
    }
    for (label, at) in &facts.labels {
        rows(&format!("label {label:?}"), at.rows())?;
    }
    check_labels(facts, shape)?;
    if let Some(levels) = &facts.levels {
        rows("levels", levels.rows())?;
    }
    if let Some(positions) = &facts.positions {
        rows("positions", positions.rows())?;
        check_positions(positions, kv_len)?;
    }
    Ok(())
}

fn check_lengths(name: &str, lengths: &[u64], batch: usize, len: usize, what: &str) -> Result<(), Error> {
    if lengths.len() != batch {
        return Err(Error::fact(
            name,
            format!("{} entries but the batch is {batch}: give one length per batch row", lengths.len()),
        ));
    }
    match lengths.iter().enumerate().find(|(_, n)| **n > len as u64) {
        Some((row, n)) => Err(Error::fact(
            name,
            format!("batch row {row} has {n} tokens but there are only {len} {what}: a length is at most {len}"),
        )),
        None => Ok(()),
    }
}

fn check_labels(facts: &Facts, shape: &Shape) -> Result<(), Error> {
    let extent = (0..shape.batch_len()).map(|row| queries_end(shape, row)).fold(shape.kv_len() as u64, u64::max);
    for (label, rows) in &facts.labels {
        let lists: Vec<_> = match rows {
            Rows::All(list) => vec![list],
            Rows::Each(lists) => lists.iter().collect(),
        };
        for span in lists.into_iter().flatten() {
            let last = span.end.map_or(span.start, |e| e.saturating_sub(1));
            if facts.positions.is_none() && last >= extent {
                return Err(Error::fact(
                    format!("label {label:?}"),
                    format!("position {last} is beyond the sequence of {extent}: positions count from 0"),
                ));
            }
        }
    }
    Ok(())
}

fn check_positions(positions: &Rows<Vec<i64>>, kv_len: usize) -> Result<(), Error> {
    let lists = match positions {
        Rows::All(list) => std::slice::from_ref(list),
        Rows::Each(lists) => lists,
    };
    for (row, list) in lists.iter().enumerate() {
        if list.len() != kv_len {
            return Err(Error::fact(
                "positions",
                format!("batch row {row} has {} entries but there are {kv_len} keys: give one per key", list.len()),
            ));
        }
        let mut held: Vec<i64> = list.iter().copied().filter(|p| *p >= 0).collect();
        held.sort_unstable();
        if let Some(w) = held.windows(2).find(|w| w[0] == w[1]) {
            return Err(Error::fact(
                "positions",
                format!(
                    "batch row {row} has two keys at position {}: position ids that restart mark packed documents, \
                     give them as position_ids",
                    w[0]
                ),
            ));
        }
        if let Some(p) = held.last().filter(|p| **p > Shape::MAX_LEN as i64) {
            return Err(Error::fact("positions", format!("position {p} is beyond {}", Shape::MAX_LEN)));
        }
    }
    Ok(())
}

/// First position after the last query of batch row `row`, at least 0.
fn queries_end(shape: &Shape, row: usize) -> u64 {
    (shape.query_offset(row) + shape.q_len() as i64).max(0) as u64
}

/// Facts that atoms need, and atoms against the shape.
fn check_atoms(mask: &Mask, shape: &Shape, facts: &Facts) -> Result<(), Error> {
    let missing =
        |what: &str, fix: &str| Err(Error::Missing { atom: mask.to_string(), what: what.into(), fix: fix.into() });
    let per_row = |what: &str, n: usize| {
        if n == shape.batch_len() {
            return Ok(());
        }
        Err(Error::atom(mask, format!("{n} {what} but the batch is {}: give one per batch row", shape.batch_len())))
    };
    match mask.node() {
        Node::Prefix { lengths: crate::PerRow::Each(list) } => per_row("lengths", list.len())?,
        Node::Keys(Set::Label(label)) | Node::Queries(Set::Label(label)) | Node::Global(Set::Label(label)) => {
            if !facts.labels.contains_key(label) {
                let known: Vec<_> = facts.label_names().map(|n| format!("{n:?}")).collect();
                let known = if known.is_empty() { "none".into() } else { known.join(", ") };
                return missing(
                    &format!("the label {label:?}, which the facts do not declare (declared: {known})"),
                    "add it to the facts' labels",
                );
            }
        }
        Node::Padding(p) => {
            match &p.lengths {
                Some(lengths) => {
                    per_row("lengths", lengths.len())?;
                    check_lengths(&mask.to_string(), lengths, shape.batch_len(), shape.kv_len(), "keys")?;
                }
                None => match &facts.real {
                    None => {
                        return missing("lengths", "give one per batch row, in the facts or as padding(lengths=[...])");
                    }
                    Some(RealTokens::Keys(_)) if p.side.is_some() => {
                        return Err(Error::atom(mask, "the facts list the real keys themselves: drop `side`"));
                    }
                    Some(_) => {}
                },
            }
            if p.both && facts.query_lengths.is_none() {
                let aligned = |row| shape.query_offset(row) + shape.q_len() as i64 == shape.kv_len() as i64;
                if !(0..shape.batch_len()).all(aligned) {
                    return missing(
                        "query_lengths",
                        "queries and keys are different sequences: say how many queries are real",
                    );
                }
            }
        }
        Node::Documents { lengths } => {
            if lengths.is_none() && facts.documents.is_none() {
                return missing("documents", "give their lengths in the facts or as documents([...])");
            }
            for row in 0..shape.batch_len() {
                let given = facts.documents.as_ref().and_then(|d| d.get(row));
                let sum = lengths.as_ref().or(given).map_or(0, |l| l.iter().fold(0u64, |n, l| n.saturating_add(*l)));
                let real = match &facts.real {
                    Some(RealTokens::Lengths { lengths, .. }) => Some(lengths[row]),
                    _ => None,
                };
                if real != Some(sum) {
                    Extent::of(shape, facts, row).check(mask, "the documents sum to", sum, row)?;
                }
            }
        }
        Node::Clearance => {
            let Some(levels) = &facts.levels else {
                return missing("levels", "give one per position in the facts");
            };
            for row in 0..shape.batch_len() {
                let given = levels.get(row).map_or(0, Vec::len) as u64;
                Extent::of(shape, facts, row).check(mask, "the levels cover", given, row)?;
            }
        }
        Node::Neighborhood { grid, .. } => {
            let cells: u64 = grid.iter().fold(1, |n, g| n.saturating_mul(*g));
            for row in 0..shape.batch_len() {
                let extent = Extent::of(shape, facts, row);
                extent.check(mask, "the grid holds", cells.min(extent.all), row)?;
            }
        }
        Node::Dense { name } => match facts.arrays.get(name) {
            None => return missing(&format!("the array {name:?}"), "add it to the facts' arrays"),
            Some(array) => {
                let [b, h, q, k] = array.shape();
                let fits = (b == 1 || b == shape.batch_len())
                    && (h == 1 || h == shape.head_count())
                    && (q, k) == (shape.q_len(), shape.kv_len());
                if !fits {
                    return Err(Error::atom(
                        mask,
                        format!(
                            "the array's shape is {:?} but [1 or {}, 1 or {}, {}, {}] is needed",
                            array.shape(),
                            shape.batch_len(),
                            shape.head_count(),
                            shape.q_len(),
                            shape.kv_len()
                        ),
                    ));
                }
            }
        },
        Node::Closure { name } if !facts.closures.contains_key(name) => {
            return missing(&format!("the closure {name:?}"), "add it with Facts::closure");
        }
        Node::Heads(arms) => check_arms(mask, arms, "head", shape.head_count())?,
        Node::Batch(arms) => check_arms(mask, arms, "batch row", shape.batch_len())?,
        Node::Layers(_) => {
            return missing("the layer", "pick one with `--layer` or Mask::at_layer");
        }
        _ => {}
    }
    mask.children().into_iter().try_for_each(|m| check_atoms(m, shape, facts))
}

/// How many positions a batch row has, and how many of them an atom that lists positions must speak for.
struct Extent {
    /// Without right padding.
    real: u64,
    /// With it.
    all: u64,
}

impl Extent {
    fn of(shape: &Shape, facts: &Facts, row: usize) -> Self {
        let keys = match facts.positions.as_ref().and_then(|p| p.get(row)) {
            Some(positions) => positions.iter().max().map_or(0, |p| (p + 1).max(0) as u64),
            None => shape.kv_len() as u64,
        };
        let queries = queries_end(shape, row);
        let all = keys.max(queries);
        let real_keys = match &facts.real {
            _ if facts.positions.is_some() => keys,
            Some(RealTokens::Lengths { lengths, side: Side::Right }) => lengths[row],
            Some(RealTokens::Keys(keys)) => keys[row].hull().map_or(0, |h| u64::from(h.end)),
            _ => keys,
        };
        // queries that reach beyond the keys are no padding
        Extent { real: if queries > keys { queries } else { real_keys }, all }
    }

    /// Refuses an atom that lists `given` positions: fewer leave some unsaid, more speak of none.
    fn check(&self, mask: &Mask, what: &str, given: u64, row: usize) -> Result<(), Error> {
        let Extent { real, all } = *self;
        if (real..=all).contains(&given) {
            return Ok(());
        }
        let fix = match real < all {
            true => format!("it must be {real} (the real tokens) to {all}"),
            false => format!("it must be {all}, or lengths must mark the rest as padding"),
        };
        Err(Error::atom(mask, format!("{what} {given} of the {all} positions of batch row {row}: {fix}")))
    }
}

fn check_arms(mask: &Mask, arms: &[Arm], what: &str, count: usize) -> Result<(), Error> {
    for arm in arms {
        let Selector::Spans(spans) = &arm.selector else { continue };
        for span in spans {
            let last = span.end.map_or(span.start, |e| e.saturating_sub(1));
            if last >= count as u64 && span.end != Some(span.start) {
                return Err(Error::atom(
                    mask,
                    format!("names {what} {last} but there are {count}: indices run from 0 to {}", count - 1),
                ));
            }
        }
    }
    Ok(())
}

//! [`Node`]: a mask that is resolved for one batch row, head and layer. Facts are inserted, and one of the masks of
//! each `heads(...)`, `batch(...)` and `layers(...)` is selected.

use crate::cells::leaf::{Grid, Levels, Tree};
use crate::facts::array::Array;
use crate::facts::frame::Frame;
use crate::facts::shape::Shape;
use crate::facts::{ByRow, Facts};
use crate::read::expr::{Branches, By, Expr, Selector, Set, Span};
use crate::read::refusal::{Result, beyond, wrong};
use crate::runs::{Runs, normal};
use crate::work::Work;
use std::sync::Arc;

/// A mask of one batch row, head and layer. The facts (data given with a mask) are inserted. Each `heads(...)` or
/// `batch(...)` is replaced by the mask in it that applies to the head or batch row. Numbers are positions unless the
/// comment of a variant names another unit.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Node {
    Full,
    None,
    Window(Option<i64>, Option<i64>),
    Chunk(i64),
    Stride(i64),
    /// The allowed distances `q - k` between positions, in ascending order without duplicates.
    Distances(Arc<Vec<i64>>),
    Keys(Arc<Runs>),
    Queries(Arc<Runs>),
    /// The indices of the non-padding keys.
    RealKeys(Arc<Runs>),
    /// The indices of the non-padding query rows.
    RealQueries(Arc<Runs>),
    /// The range of positions of each document; the ranges are disjoint and ascending.
    Documents(Arc<Runs>),
    /// The ranges of positions of the elementary mask (atom) `spans`, sorted by start. Ranges may overlap.
    Spans(Arc<Runs>),
    Tree(Arc<Tree>),
    Levels(Arc<Levels>),
    Grid(Grid),
    Random {
        threshold: u64,
        seed: u64,
    },
    /// A named mask array of the facts (data given with a mask), and the index of a slice `[q_len, kv_len]` of this
    /// array. The slice belongs to the batch row and head of the node.
    Dense(Arc<Array>, i64),
    Not(Box<Node>),
    And(Vec<Node>),
    Or(Vec<Node>),
    Minus(Vec<Node>),
}

/// The limit for the absolute values of numbers in a mask. Numbers beyond the limit are replaced by the limit.
/// Positions are below 2^31, and therefore the replacement does not change the mask.
const FAR: i128 = 1 << 40;

pub(crate) fn near(value: i128) -> i64 {
    value.clamp(-FAR, FAR) as i64
}

/// The inputs of a check that are the same for all batch rows: the facts (data given with a mask, such as lengths), the
/// shape, and the limits of steps and memory.
pub(crate) struct World<'a> {
    pub(crate) facts: &'a Facts,
    pub(crate) shape: &'a Shape,
    pub(crate) work: &'a Work,
    /// The number of positions of the longest batch row, padding included. A list of clearance levels may not have more
    /// entries, and the lengths of documents may not have a larger sum.
    longest: i64,
    /// If true, a certificate is refused unless every mask listed in `heads(...)` or `batch(...)`, or an equal mask in
    /// the same list, applies to at least one head or batch row of the shape.
    counted: bool,
}

impl<'a> World<'a> {
    pub(crate) fn new(facts: &'a Facts, shape: &'a Shape, work: &'a Work, counted: bool) -> Result<Self> {
        let mut longest = 0;
        for row in 0..shape.batch {
            work.spend(facts.positions.as_ref().map_or(0, |positions| positions.of(row).len()))?;
            longest = longest.max(Frame::new(shape, facts, row).extent.1);
        }
        // A label may contain the positions of keys and queries, and all positions below `kv_len`, even if the facts
        // have `positions`.
        let known = longest.max(shape.kv_len);
        for (name, spans) in &facts.labels {
            let beyond = |spans: &Vec<_>| {
                spans.iter().filter_map(|span: &crate::facts::Span| span.1).max().filter(|&end| end > known)
            };
            let rows = if matches!(spans, ByRow::All(_)) { 1 } else { shape.batch };
            if let Some(end) = (0..rows).find_map(|row| beyond(spans.of(row))) {
                let expected = format!("positions below {known}, the length of the sequence");
                return Err(wrong(format!("facts.labels.{name}"), format!("the position {}", end - 1), expected));
            }
        }
        Ok(Self { facts, shape, work, longest, counted })
    }

    /// Resolves `expr` for the batch row of `frame` and for the head `head`: inserts the facts (data given with a mask,
    /// such as lengths), and replaces each `heads(...)` and `batch(...)` by the mask that applies. Errors contain
    /// `field`, the path of the mask in the certificate.
    pub(crate) fn resolve(&self, expr: &Expr, frame: &Frame, head: usize, field: &str) -> Result<Node> {
        self.work.keep(1)?;
        let all = |parts: &[Expr]| {
            parts.iter().map(|part| self.resolve(part, frame, head, field)).collect::<Result<Vec<_>>>()
        };
        let set = |set: &Set| self.set(set, frame.row, field).map(Arc::new);
        Ok(match expr {
            Expr::Full => Node::Full,
            Expr::None => Node::None,
            Expr::Window(left, right) => Node::Window(left.map(near), right.map(near)),
            Expr::Chunk(size) => Node::Chunk(near(*size)),
            Expr::Stride(step) => Node::Stride(near(*step)),
            Expr::Distances(list) => {
                self.work.keep(list.len())?;
                let mut distances: Vec<i64> = list.iter().map(|distance| near(*distance)).collect();
                distances.sort_unstable();
                distances.dedup();
                Node::Distances(Arc::new(distances))
            }
            Expr::Prefix(list, one) => self.prefix(list, *one, frame.row, field)?,
            Expr::Keys(keys) => Node::Keys(set(keys)?),
            Expr::Queries(queries) => Node::Queries(set(queries)?),
            Expr::Global(both) => {
                let both = set(both)?;
                Node::Or(vec![Node::Keys(both.clone()), Node::Queries(both)])
            }
            Expr::Padding { left, lengths, both } => self.padding(frame, *left, lengths.as_deref(), *both, field)?,
            Expr::Documents(list) => Node::Documents(Arc::new(self.documents(list.as_deref(), frame, field)?)),
            Expr::Spans(spans) => {
                let mut runs: Runs = spans.iter().map(ends).filter(|run| run.0 < run.1).collect();
                self.work.keep(runs.len())?;
                runs.sort_unstable();
                Node::Spans(Arc::new(runs))
            }
            Expr::Tree(tree) => self.tree(tree, field)?,
            Expr::Clearance => self.clearance(frame, field)?,
            Expr::Neighborhood { grid, size, dilation } => neighborhood(Grid::new(grid, size, dilation), frame, field)?,
            Expr::Random { p, seed } => {
                let seed = u64::try_from(*seed).map_err(|_| wrong(field, format!("the seed {seed}"), "64 bits"))?;
                Node::Random { threshold: crate::cells::philox::threshold(*p), seed }
            }
            Expr::RandomBlocks => {
                return Err(beyond(
                    "random_blocks",
                    "the definition of the language leaves open which blocks of keys this atom allows: use masks without it",
                ));
            }
            Expr::Dense(name) => {
                let found = self.facts.arrays.iter().find(|array| array.0 == *name);
                let array = found
                    .ok_or_else(|| wrong(field, format!("the array {name:?}"), "the name of an array in the facts"))?;
                Node::Dense(array.1.clone(), array.1.slice(frame.row, head))
            }
            Expr::Arms(by, arms) => {
                let own = self.arm(*by, arms, frame.row, head, field)?;
                // The arms for other heads and batch rows must also fit the facts.
                let resolved = arms.iter().map(|arm| self.resolve(&arm.1, frame, head, field));
                let resolved = resolved.collect::<Result<Vec<_>>>()?;
                own.and_then(|own| resolved.into_iter().nth(own)).unwrap_or(Node::None)
            }
            Expr::Not(part) => Node::Not(Box::new(self.resolve(part, frame, head, field)?)),
            Expr::And(parts) => Node::And(all(parts)?),
            Expr::Or(parts) => Node::Or(all(parts)?),
            Expr::Minus(parts) => Node::Minus(all(parts)?),
        })
    }

    /// Resolves the elementary mask (atom) `prefix`, which allows the keys at positions below a length. `list` has one
    /// length for all batch rows if `one` is true, otherwise one length for each batch row.
    fn prefix(&self, list: &[i128], one: bool, row: usize, field: &str) -> Result<Node> {
        if !one && list.len() != self.shape.batch {
            return Err(wrong(
                field,
                format!("`prefix` with {} lengths", list.len()),
                "one length, or one length for each batch row",
            ));
        }
        Ok(Node::Keys(Arc::new(normal(vec![(0, near(list[if one { 0 } else { row }]))]))))
    }

    /// Resolves the elementary mask (atom) `tree`: computes the parent of each node, and gives node 0 the position
    /// `tree.start`.
    fn tree(&self, tree: &Branches, field: &str) -> Result<Node> {
        let nodes = tree
            .runs
            .as_ref()
            .map_or(tree.parents.len() as i128, |runs| runs.iter().fold(0, |n, run| near(n + run).into()));
        self.work.keep(usize::try_from(nodes.saturating_mul(3)).unwrap_or(usize::MAX))?;
        let tree = Tree::new(tree, near(tree.start));
        let expected =
            "parents without a cycle: each parent is -1 or the index of a node (of a run, if the tree has runs)";
        Ok(Node::Tree(Arc::new(tree.map_err(|given| wrong(field, given, expected))?)))
    }

    /// Resolves the elementary mask (atom) `clearance`: takes the clearance levels of the positions from the facts
    /// (data given with a mask).
    fn clearance(&self, frame: &Frame, field: &str) -> Result<Node> {
        let levels =
            self.levels(frame)?.ok_or_else(|| wrong(field, "`clearance` without levels", "facts with `levels`"))?;
        let levels = Levels::new(levels);
        self.work.keep(levels.stored())?;
        Ok(Node::Levels(Arc::new(levels)))
    }

    /// Selects one of the masks of `heads(...)` or `batch(...)`. `arms` lists these masks, each with the indices of the
    /// heads or batch rows to which it applies. Returns the index in `arms` of the mask for head `head` (if `by` is
    /// `Head`) or for batch row `row` (if `by` is `Batch`); `None` if no mask applies. Returns an error if two masks
    /// apply to the same index or if an index is outside the shape. If the field `counted` is true, also returns
    /// the errors of [`all_taken`](Self::all_taken).
    fn arm(&self, by: By, arms: &[(Selector, Expr)], row: usize, head: usize, field: &str) -> Result<Option<usize>> {
        let (index, total, what) = match by {
            By::Head => (head, self.shape.heads, "heads"),
            By::Batch => (row, self.shape.batch, "batch rows"),
            By::Layer => return Err(wrong(field, "`layers(...)`", "a mask for one layer")),
        };
        let (index, total) = (index as i128, total as i128);
        self.work.spend(arms.len())?;
        if arms.iter().any(|arm| arm.0.end().is_some_and(|end| end > total)) {
            return Err(wrong(
                field,
                format!(
                    "`heads(...)` or `batch(...)` with an index that is too large, because the shape has {total} {what}"
                ),
                "indices of heads and batch rows that are smaller than their number in the shape",
            ));
        }
        let mut own = (0..arms.len()).filter(|&at| arms[at].0.names(index));
        let mut other = (0..arms.len()).filter(|&at| arms[at].0 == Selector::Else);
        let (first, second, left_over) = (own.next(), own.next(), other.next());
        if second.is_some() || other.next().is_some() {
            return Err(wrong(
                field,
                format!("two masks in `heads(...)` or `batch(...)` that both apply to index {index} of the {what}"),
                "exactly one mask for each head or batch row",
            ));
        }
        // The result is equal for all batch rows and heads, so one check for the first of them is sufficient.
        if self.counted && row == 0 && head == 0 {
            self.all_taken(arms, total, what, field)?;
        }
        Ok(first.or(left_over))
    }

    /// Returns an error if one of the masks `arms` of a `heads(...)` or `batch(...)` applies to none of the indices
    /// `0..total` of heads or batch rows. A mask is accepted if an equal mask in `arms` applies to at least one index.
    /// `what` is the word in the message for the indices, `heads` or `batch rows`. `field` is the path of the mask in
    /// the certificate.
    fn all_taken(&self, arms: &[(Selector, Expr)], total: i128, what: &str, field: &str) -> Result<()> {
        let other = arms.iter().position(|arm| arm.0 == Selector::Else);
        let taken_by = |index: i128| arms.iter().position(|arm| arm.0.names(index)).or(other);
        let mut taken = vec![false; arms.len()];
        for index in 0..total {
            self.work.spend(arms.len())?;
            taken_by(index).into_iter().for_each(|at| taken[at] = true);
        }
        for at in (0..arms.len()).filter(|&at| !taken[at]) {
            self.work.spend(arms.len())?;
            if !(0..arms.len()).any(|own| taken[own] && arms[own].1 == arms[at].1) {
                let given = format!(
                    "mask {at} (counted from 0) of `heads(...)` or `batch(...)`, which applies to none of the {total} {what}"
                );
                let least = (total..total + 4096).find(|&index| taken_by(index) == Some(at));
                let expected = match least {
                    Some(index) => format!(
                        "a shape with at least {} {what}, or `heads(...)` or `batch(...)` without this mask",
                        index + 1
                    ),
                    None => "`heads(...)` or `batch(...)` without this mask".to_owned(),
                };
                return Err(wrong(field, given, expected));
            }
        }
        Ok(())
    }

    fn set(&self, set: &Set, row: usize, field: &str) -> Result<Runs> {
        let runs = match set {
            Set::Spans(spans) => normal(spans.iter().map(ends).collect()),
            Set::Label(name) => self
                .label(name, row)
                .ok_or_else(|| wrong(field, format!("the label {name:?}"), "the name of a label in the facts"))?,
        };
        self.work.keep(runs.len())?;
        Ok(runs)
    }

    /// Returns the positions with the label `name` in batch row `row`; `None` if the facts (data given with a mask) do
    /// not have the label.
    pub(crate) fn label(&self, name: &str, row: usize) -> Option<Runs> {
        let found = self.facts.labels.iter().find(|label| label.0 == name)?;
        let far = FAR as i64;
        Some(normal(found.1.of(row).iter().map(|span| (span.0, span.1.unwrap_or(far))).collect()))
    }

    /// Returns the clearance level of each position in the batch row of `frame`; `None` if the facts (data given with a
    /// mask) have no clearance levels.
    pub(crate) fn levels(&self, frame: &Frame) -> Result<Option<&'a [i64]>> {
        let Some(lists) = &self.facts.levels else { return Ok(None) };
        let list = lists.of(frame.row);
        self.covered(frame, list.len() as i64, "levels")?;
        Ok(Some(list))
    }

    /// Returns the range of positions of each document in the batch row of `frame`, including empty documents. `list`
    /// contains the lengths of the documents; `None` means the lengths in the facts (data given with a mask).
    pub(crate) fn document_spans(&self, list: Option<&[i64]>, frame: &Frame, field: &str) -> Result<Runs> {
        let one = list.map(|list| ByRow::All(list.to_vec()));
        let lists = one.as_ref().or(self.facts.documents.as_ref());
        let lists = lists.ok_or_else(|| wrong(field, "`documents` without lengths", "facts with `documents`"))?;
        let list = lists.of(frame.row);
        self.work.keep(2 * list.len())?;
        let mut at = self.facts.documents_begin(list, frame.row, frame.kv_len);
        if at == 0 {
            self.covered(frame, list.iter().sum(), "documents")?;
        }
        let next = |len: &i64| {
            at += len;
            (at - len, at)
        };
        Ok(list.iter().map(next).collect())
    }

    fn documents(&self, list: Option<&[i128]>, frame: &Frame, field: &str) -> Result<Runs> {
        let list: Option<Vec<i64>> = list.map(|list| list.iter().map(|&len| near(len)).collect());
        if list.as_ref().is_some_and(|list| list.iter().try_fold(0i64, |sum, len| sum.checked_add(*len)).is_none()) {
            return Err(wrong(field, "documents of more than 2^63 tokens", "documents that fit in the sequence"));
        }
        let mut runs = self.document_spans(list.as_deref(), frame, field)?;
        runs.retain(|run| run.0 < run.1);
        Ok(runs)
    }

    /// Returns an error if a list of the facts (clearance levels or documents) covers too few or too many positions.
    /// `what` names the list in the message. `given` is the number of positions that the list covers. The minimum is
    /// the length of the batch row of `frame` without padding on the right; the maximum is the length of the longest
    /// batch row.
    fn covered(&self, frame: &Frame, given: i64, what: &str) -> Result<()> {
        let (fewest, most) = (frame.extent.0, self.longest);
        if (fewest..=most).contains(&given) {
            return Ok(());
        }
        let given = format!("a list for {given} positions in batch row {}", frame.row);
        Err(wrong(format!("facts.{what}"), given, format!("{fewest} to {most} positions")))
    }

    fn padding(
        &self,
        frame: &Frame,
        left: Option<bool>,
        lengths: Option<&[i128]>,
        both: bool,
        field: &str,
    ) -> Result<Node> {
        let side = left.unwrap_or(self.facts.left);
        let length = match (lengths, &self.facts.lengths) {
            (Some(list), _) if list.len() != self.shape.batch || list[frame.row] > i128::from(frame.kv_len) => {
                return Err(wrong(field, "padding(lengths=...)", "one length for each batch row, at most kv_len"));
            }
            (Some(list), _) => Some(list[frame.row] as i64),
            (None, Some(list)) => Some(list[frame.row]),
            (None, None) => None,
        };
        let real = match (length, &frame.real) {
            (Some(length), _) => crate::facts::at_end(side, length, frame.kv_len),
            (None, Some(real)) if left.is_none() => real.clone(),
            _ => {
                return Err(wrong(
                    field,
                    "padding without lengths",
                    "facts with `lengths`, or with `real_keys` if `padding` has no `side`",
                ));
            }
        };
        self.work.keep(real.len())?;
        let keys = Node::RealKeys(Arc::new(real.clone()));
        if !both {
            return Ok(keys);
        }
        self.work.spend(frame.q_len as usize)?;
        let rows = frame.real_queries(&real, side);
        let rows = rows.ok_or_else(|| {
            wrong(
                field,
                "padding(on=both) without query_lengths",
                "facts with `query_lengths`, because the queries are not the last tokens",
            )
        })?;
        self.work.keep(rows.len())?;
        Ok(Node::And(vec![keys, Node::RealQueries(Arc::new(rows))]))
    }
}

fn ends(span: &Span) -> (i64, i64) {
    (near(span.0), near(span.1.unwrap_or(FAR)))
}

/// Resolves the elementary mask (atom) `neighborhood` with the grid `grid`. Returns an error if the grid has fewer
/// cells than the batch row has positions, not counting padding on the right.
fn neighborhood(grid: Grid, frame: &Frame, field: &str) -> Result<Node> {
    if grid.cells() < frame.extent.0 {
        let given = format!("a grid of {} cells", grid.cells());
        return Err(wrong(field, given, format!("a grid of at least {} cells, one for each position", frame.extent.0)));
    }
    Ok(Node::Grid(grid))
}

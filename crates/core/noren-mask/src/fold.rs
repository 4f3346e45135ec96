//! [`Fold`]: sequences that begin with the same tokens, stored in rows in which each shared prefix occurs once.
//!
//! Training with several continuations of one prompt (rollouts of reinforcement learning, pairs of preferences) then
//! computes the prompt once. A row holds a prefix tree. With the mask [`FoldRow::tree`], each token reads the tokens
//! before it in its own sequence.

use crate::atoms::Tree;
use crate::error::Error;
use crate::facts::shape::Shape;
use std::ops::Range;

/// Options of [`Fold::new`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FoldOptions {
    /// Maximum number of tokens of a row. `None` means no maximum: all sequences are in one row.
    pub budget: Option<usize>,
    /// Minimum number of tokens of a shared prefix. Two sequences whose common start is shorter share no tokens.
    pub min_prefix: usize,
    /// Maximum number of tree roots in a row. Sequences that share their first tokens have the same root. `None` means
    /// no maximum.
    pub max_roots: Option<usize>,
}

impl Default for FoldOptions {
    /// Returns the options for one row in which every common prefix is shared.
    fn default() -> Self {
        FoldOptions { budget: None, min_prefix: 1, max_roots: None }
    }
}

/// A run: consecutive tokens of a row that also follow each other in at least one sequence.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FoldRun {
    /// The tokens of the run, as indices in the row.
    pub slots: Range<usize>,
    /// The index in [`FoldRow::runs`] of the parent run: its last token precedes the first token of this run in the
    /// sequence. `None` if this run begins a sequence.
    pub parent: Option<usize>,
    /// The position of the first token of the run in its sequences, from 0. It is equal in all sequences that contain
    /// the run.
    pub position: usize,
    /// The index of a sequence that contains the run.
    pub sequence: usize,
}

/// One row of a [`Fold`]: the tokens of several sequences as a tree, in which a prefix that sequences share occurs
/// once. Nodes are in depth-first order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FoldRow {
    /// The runs (consecutive tokens) into which the tokens of this row are cut, in the order of the tokens.
    pub runs: Vec<FoldRun>,
}

impl FoldRow {
    /// Returns the number of tokens.
    pub fn len(&self) -> usize {
        self.runs.last().map_or(0, |run| run.slots.end)
    }

    /// Returns true if the row has no tokens.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Returns the parameters of the mask `tree(...)` for this row: each token reads itself and the tokens before it in
    /// its own sequence.
    pub fn tree(&self) -> Tree {
        let parents = self.runs.iter().map(|run| run.parent.map_or(-1, |parent| parent as i64)).collect::<Vec<_>>();
        Tree::new(parents).runs(self.runs.iter().map(|run| run.slots.len()).collect::<Vec<_>>())
    }
}

/// The place of one sequence in a [`Fold`]: its row, and its tokens in the row.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FoldPlace {
    /// The index in [`Fold::rows`] of the row that contains the sequence.
    pub row: usize,
    /// The tokens of the sequence in their order, as ranges of indices in the row.
    pub slots: Vec<Range<usize>>,
}

/// Token sequences stored together in rows, so that a prefix that several sequences of a row share is stored once.
///
/// ```
/// use noren_mask::{Fold, FoldOptions};
/// let fold = Fold::new(&[[5, 6, 7, 8], [5, 6, 9, 9], [5, 6, 7, 4]], FoldOptions::default())?;
/// let row = &fold.rows[0];
/// assert_eq!((row.len(), fold.token_count()), (7, 12));        // 5 6, then 7 with 4 or 8, then 9 9
/// assert_eq!(row.tree().mask().to_string(), "tree(parents=[-1, 0, 1, 1, 0], runs=[2, 1, 1, 1, 2])");
/// assert_eq!(fold.places[1].slots, [0..2, 5..7]);
/// # Ok::<(), noren_mask::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fold {
    /// The rows of tokens, each a tree of shared prefixes.
    pub rows: Vec<FoldRow>,
    /// The place of each sequence (its row and its tokens in the row), in the order in which the sequences were given.
    pub places: Vec<FoldPlace>,
}

impl Fold {
    /// Stores token sequences together in rows, so that a prefix that several sequences of a row share is stored once.
    /// Equal sequences share all their tokens.
    ///
    /// # Errors
    /// Returns an error if there are no sequences, if a sequence is empty or exceeds the budget, if an option is 0, or if a row has
    /// more than [`Shape::MAX_LEN`] tokens.
    pub fn new<S: AsRef<[T]>, T: Ord>(sequences: &[S], options: FoldOptions) -> Result<Self, Error> {
        check(sequences, options)?;
        let tokens = |at: usize| sequences[at].as_ref();
        let mut order: Vec<usize> = (0..sequences.len()).collect();
        order.sort_by(|a, b| tokens(*a).cmp(tokens(*b)));
        // the number of tokens that each sequence shares with the one before it
        let shared = order.iter().enumerate().map(|(at, sequence)| {
            let Some(before) = at.checked_sub(1).map(|at| tokens(order[at])) else { return 0 };
            let equal = tokens(*sequence).iter().zip(before).take_while(|(a, b)| a == b).count();
            if equal < options.min_prefix { 0 } else { equal }
        });
        let shared: Vec<usize> = shared.collect();
        let mut fold =
            Fold { rows: Vec::new(), places: vec![FoldPlace { row: 0, slots: Vec::new() }; sequences.len()] };
        let mut row = Builder::default();
        let most = options.budget.unwrap_or(usize::MAX);
        for group in groups(&shared) {
            let count: usize = group.clone().map(|at| tokens(order[at]).len() - shared[at]).sum();
            let full = row.len + count > most && count <= most;
            if row.len > 0 && (full || options.max_roots.is_some_and(|roots| row.roots >= roots)) {
                fold.rows.push(std::mem::take(&mut row).finish());
            }
            for at in group {
                let len = tokens(order[at]).len();
                if row.len > 0 && row.len + len - shared[at] > most {
                    fold.rows.push(std::mem::take(&mut row).finish());
                }
                let slots = row.add(order[at], len, if row.len > 0 { shared[at] } else { 0 });
                fold.places[order[at]] = FoldPlace { row: fold.rows.len(), slots };
            }
        }
        fold.rows.push(row.finish());
        match fold.rows.iter().position(|row| row.len() > Shape::MAX_LEN) {
            Some(row) => Err(Error::invalid(format!(
                "fold: row {row} of the result has more than {} tokens: give `budget`, the maximum number of tokens in a row",
                Shape::MAX_LEN
            ))),
            None => Ok(fold),
        }
    }

    /// Returns the total length of all sequences, in tokens. A shared prefix counts once for each sequence.
    pub fn token_count(&self) -> usize {
        self.places.iter().flat_map(|place| &place.slots).map(ExactSizeIterator::len).sum()
    }
}

fn check<S: AsRef<[T]>, T>(sequences: &[S], options: FoldOptions) -> Result<(), Error> {
    let refuse = |problem: String| Err(Error::invalid(format!("fold: {problem}")));
    if sequences.is_empty() {
        return refuse("there are no sequences: give at least one".into());
    }
    for (name, value) in
        [("budget", options.budget), ("min_prefix", Some(options.min_prefix)), ("max_roots", options.max_roots)]
    {
        if value == Some(0) {
            return refuse(format!("{name} is 0: give at least 1"));
        }
    }
    for (at, len) in sequences.iter().map(|sequence| sequence.as_ref().len()).enumerate() {
        if len == 0 {
            return refuse(format!("sequence {at} is empty: give sequences with at least one token"));
        }
        if let Some(budget) = options.budget.filter(|budget| len > *budget) {
            return refuse(format!(
                "sequence {at} has {len} tokens, but the budget is {budget}: give a budget of at least {len}, or shorten the sequence"
            ));
        }
    }
    Ok(())
}

/// Divides the sorted sequences into groups, and returns each group as a range of indices into `shared`. For each
/// sequence, `shared` has the number of tokens that it shares with the sequence before it. A group begins where this
/// number is 0.
fn groups(shared: &[usize]) -> Vec<Range<usize>> {
    let mut starts: Vec<usize> = (0..shared.len()).filter(|at| shared[*at] == 0).collect();
    starts.push(shared.len());
    starts.windows(2).map(|pair| pair[0]..pair[1]).collect()
}

/// A row during its construction. It has the tokens of several sequences, and stores a shared prefix only once.
#[derive(Default)]
struct Builder {
    len: usize,
    roots: usize,
    parts: Vec<Part>,
    /// The tokens of the sequence that was added last, in their order, as ranges of indices in the row.
    path: Vec<Range<usize>>,
}

/// The tokens that a sequence adds to a row: the tokens that it does not share with the sequence added before it.
struct Part {
    slots: Range<usize>,
    /// The index in the row of the token that precedes the first token of this part in the sequence; `None` if the part
    /// begins the sequence.
    parent: Option<usize>,
    /// The position of the first token of the part in its sequence. The tokens before this position are shared with an
    /// earlier sequence.
    position: usize,
    sequence: usize,
}

impl Builder {
    /// Adds a sequence of `len` tokens, which shares its first `common` tokens with the sequence that was added last.
    /// Returns the tokens of the new sequence as ranges of indices in the row.
    fn add(&mut self, sequence: usize, len: usize, common: usize) -> Vec<Range<usize>> {
        let mut left = common;
        self.path.retain_mut(|slots| {
            slots.end = slots.end.min(slots.start + left);
            left -= slots.len();
            slots.start < slots.end
        });
        if len > common {
            let slots = self.len..self.len + len - common;
            let parent = self.path.last().map(|slots| slots.end - 1);
            self.roots += usize::from(parent.is_none());
            self.len = slots.end;
            match self.path.last_mut().filter(|last| last.end == slots.start) {
                Some(last) => last.end = slots.end,
                None => self.path.push(slots.clone()),
            }
            self.parts.push(Part { slots, parent, position: common, sequence });
        }
        self.path.clone()
    }

    /// Returns the row with all sequences that were added to this builder. The tokens of the row are cut into runs.
    /// A run ends after each token after which different sequences continue with different tokens.
    fn finish(self) -> FoldRow {
        let mut starts: Vec<usize> = self.parts.iter().map(|part| part.slots.start).collect();
        starts.extend(self.parts.iter().filter_map(|part| part.parent).map(|parent| parent + 1));
        starts.sort_unstable();
        starts.dedup();
        starts.retain(|start| *start < self.len);
        let run_of = |slot: usize| starts.partition_point(|start| *start <= slot) - 1;
        let mut runs = Vec::with_capacity(starts.len());
        for part in &self.parts {
            let mut first = part.slots.start;
            while first < part.slots.end {
                let end = starts.get(run_of(first) + 1).map_or(part.slots.end, |next| part.slots.end.min(*next));
                let parent = if first == part.slots.start { part.parent } else { Some(first - 1) };
                runs.push(FoldRun {
                    slots: first..end,
                    parent: parent.map(run_of),
                    position: part.position + first - part.slots.start,
                    sequence: part.sequence,
                });
                first = end;
            }
        }
        FoldRow { runs }
    }
}

//! The flow of information through a transformer: the tokens that can influence an output over several layers of attention.
//!
//! In one layer, a query reads the keys that its mask allows, and a residual connection keeps the query's own value.
//! Over layers, the influence is the closure `R <- (I | M_l) R`, where `M_l` is the mask of layer `l`. This is exactly
//! the support of the Jacobian of a stack with generic weights. [`Flow`] computes it for sets of tokens from the spans
//! of plans, so the cost depends on the number of tiles.
//!
//! ```
//! use noren_flow::{Flow, Fill};
//! use noren_mask::{Facts, Shape, atoms::*, interval::IntervalSet};
//! let flow = Flow::of_stack(&vec![sliding(3); 4], &Shape::square(20), &Facts::new(), Fill::Nothing)?;
//! // Each layer adds two keys to the left.
//! assert_eq!(flow.receptive_field(0, 19).last(), Some(&IntervalSet::from(11..20)));
//! let path = flow.witness(0, &IntervalSet::from(12..13), &IntervalSet::from(19..20)).unwrap();
//! assert_eq!(path.to_string(), "token 12 -> token 13 in layer 0 -> token 15 in layer 1 -> token 17 in layer 2 -> token 19 in layer 3");
//! # Ok::<(), noren_mask::Error>(())
//! ```
//!
//! # Where to go next
//!
//! * [`Flow`]: reach, receptive fields, paths and cuts
//! * [`Policy`] and [`Ruling`]: denied pairs of tokens, and whether any is reached
//! * [`Certificate`]: the verdict with its proof; the crate `noren-verify` checks it with other code
//! * `docs/flow.md`: what flow covers, [`CHANNELS`] that it does not cover, and the format of certificates
//!
//! # Modules
//!
//! | modules | contents |
//! |---|---|
//! | `step`, `queries`, `arms` | one layer as a plan; the token of each query row; arms of `heads(...)` and `batch(...)` without heads or rows |
//! | `policy`, `groups`, `pairs` | the text of a policy, the tokens of its groups, the pairs that it denies |
//! | `check`, `ruling`, `certificate` | the proof, the verdict, the certificate |

mod arms;
mod certificate;
mod check;
mod groups;
mod pairs;
mod policy;
mod queries;
mod ruling;
mod step;

pub use certificate::{CHANNELS, Certificate, ReachEntry};
pub use policy::{Group, Policy, Rule};
pub use ruling::{Counted, EmptyGroup, RuleVerdict, Ruling, Verdict};
pub use step::Fill;

use noren_mask::Keep;
use noren_mask::bits::ones;
use noren_mask::frame::Frame;
use noren_mask::interval::IntervalSet;
use noren_mask::resolve::{RowFacts, frame};
use noren_mask::{Error, Facts, Mask, Shape};
use queries::QueryRows;
use std::fmt;
use step::Layer;

/// A stack of layers with one mask per layer, over one sequence of tokens per batch row.
#[derive(Clone, Debug)]
pub struct Flow {
    masks: Vec<Mask>,
    shape: Shape,
    facts: Facts,
    fill: Fill,
    /// The positions of queries and keys, one entry for each batch row.
    frames: Vec<Frame>,
    /// The tokens of the query rows, one entry for each batch row.
    queries: Vec<QueryRows>,
    /// The distinct layers: layers with equal masks are stored once.
    layers: Vec<Layer>,
    /// For each layer of the stack, the index of its entry in `layers`.
    which: Vec<usize>,
}

/// The tokens that a set of sources can influence, before the first layer and after each layer. A pair (count, set of
/// tokens) represents `count` consecutive equal sets.
pub(crate) type ReachRuns = Vec<(usize, IntervalSet)>;

/// A path by which a source token influences an output token.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub struct Path {
    /// The first token of the path.
    pub source: u32,
    /// The steps as (layer, token): the token reads, in this layer, the token of the previous step. The first step
    /// reads `source`.
    pub steps: Vec<(usize, u32)>,
}

impl Path {
    /// Returns the last token of the path.
    pub fn target(&self) -> u32 {
        self.steps.last().map_or(self.source, |step| step.1)
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "token {}", self.source)?;
        self.steps.iter().try_for_each(|(layer, token)| write!(f, " -> token {token} in layer {layer}"))
    }
}

/// The cells of one layer through which the sources influence the targets. If `enough` is true, hiding these cells
/// stops the influence.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize)]
pub struct Cut {
    /// The index of the layer whose cells are counted; the first layer is 0.
    pub layer: usize,
    /// Number of cells of the mask of this layer through which the sources influence the targets.
    pub cells: u64,
    /// True if hiding these cells stops all influence of the sources on the targets. False if information can also pass
    /// this layer without these cells: within a token, over the residual connection.
    pub enough: bool,
}

impl Flow {
    /// Returns the stack of `masks`, one per layer, bound to one shape and the same facts (data such as lengths).
    ///
    /// Queries are tokens of the keys' own sequence. Query row `i` is the token at position `i + query_offset`. If the
    /// facts give no positions, this token is the key with the index `i + query_offset`. Tokens that are only keys,
    /// such as the tokens of a cache, keep their content, so no other token influences them.
    ///
    /// # Errors
    /// Returns the errors of [`Mask::bind`]. Returns [`Error::Budget`] if a layer's plan is too large. Returns an error
    /// if the queries are not among the keys, or if a mask inside `heads(...)`, `batch(...)` or `layers(...)` applies
    /// to no head, batch row or layer.
    pub fn of_stack(masks: &[Mask], shape: &Shape, facts: &Facts, fill: Fill) -> Result<Self, Error> {
        shape.check()?;
        arms::check_arms(masks, shape)?;
        // Binding checks the facts against the shape, also for a stack of no layer.
        noren_mask::atoms::full().bind(shape, facts)?;
        let frames: Vec<Frame> = (0..shape.batch_len()).map(|row| frame(shape, facts, row)).collect();
        let queries = frames.iter().enumerate().map(|(row, frame)| QueryRows::of(RowFacts { facts, frame, row }));
        let queries = queries.collect::<Result<Vec<_>, _>>()?;
        let mut known: Vec<Mask> = Vec::new();
        let (mut layers, mut which) = (Vec::new(), Vec::new());
        for (index, mask) in masks.iter().enumerate() {
            let mask = mask.at_layer(index);
            let at = match known.iter().position(|m| *m == mask) {
                Some(at) => at,
                None => {
                    layers.push(Layer::new(&mask.bind(shape, facts)?, fill)?);
                    known.push(mask);
                    known.len() - 1
                }
            };
            which.push(at);
        }
        let (shape, facts) = (shape.clone(), facts.clone());
        Ok(Flow { masks: masks.to_vec(), shape, facts, fill, frames, queries, layers, which })
    }

    /// Returns the number of layers.
    pub fn depth(&self) -> usize {
        self.which.len()
    }

    /// Returns the number of tokens of each batch row.
    pub fn tokens(&self) -> u32 {
        self.shape.kv_len() as u32
    }

    /// Returns the shape of the masks: numbers of batch rows, heads, queries and keys, and positions of the queries.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// Returns the facts of the masks: data that is given with them, such as lengths, documents and labels.
    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    /// Returns the facts (data given with a mask, such as labels) of batch row `row`, together with the positions of its
    /// queries and keys.
    pub(crate) fn row_facts(&self, row: usize) -> RowFacts<'_> {
        RowFacts { facts: &self.facts, frame: &self.frames[row], row }
    }

    /// Returns the tokens of batch row `row` that are queries. Only queries have an output.
    pub(crate) fn outputs(&self, row: usize) -> IntervalSet {
        self.queries[row].tokens_of(&IntervalSet::all(self.shape.q_len() as u32))
    }

    /// Returns the tokens that `sources` can influence: one set before the first layer, and one set after each layer.
    pub fn reach(&self, batch: usize, sources: &IntervalSet) -> Vec<IntervalSet> {
        listed(self.reach_runs(batch, sources))
    }

    /// Returns the sets of [`reach`](Self::reach), with consecutive equal sets stored once.
    pub(crate) fn reach_runs(&self, batch: usize, sources: &IntervalSet) -> ReachRuns {
        grow(&self.which, sources, |layer, now| self.layers[layer].readers(batch, &self.queries[batch], now))
    }

    /// Returns the tokens that can influence the output of `token`. The first set is the token alone, the next set is
    /// through the last layer, the next through the last two layers, and so on up to all layers.
    pub fn receptive_field(&self, batch: usize, token: u32) -> Vec<IntervalSet> {
        self.back(batch, &IntervalSet::from(token..token + 1))
    }

    /// Returns the tokens that can influence the outputs of `targets`. The first set is `targets`, the next set is
    /// through the last layer, the next through the last two layers, and so on up to all layers.
    pub fn back(&self, batch: usize, targets: &IntervalSet) -> Vec<IntervalSet> {
        let order: Vec<usize> = self.which.iter().rev().copied().collect();
        listed(grow(&order, targets, |layer, now| self.layers[layer].read_by(batch, &self.queries[batch], now)))
    }

    /// Returns `token` (because of the residual connection) and the tokens that it reads in one layer.
    ///
    /// # Panics
    /// Panics if there is no such batch row or layer.
    pub fn read_in(&self, batch: usize, layer: usize, token: u32) -> IntervalSet {
        self.reads(batch, layer, &IntervalSet::from(token..token + 1))
    }

    /// Returns `tokens` and all tokens that they read in one layer.
    fn reads(&self, batch: usize, layer: usize, tokens: &IntervalSet) -> IntervalSet {
        self.layers[self.which[layer]].read_by(batch, &self.queries[batch], tokens)
    }

    /// Returns a path from a token of `sources` to a token of `targets` that needs the fewest layers; `None` if there
    /// is no path.
    pub fn witness(&self, batch: usize, sources: &IntervalSet, targets: &IntervalSet) -> Option<Path> {
        self.witness_in(batch, &self.reach_runs(batch, sources), targets)
    }

    /// Returns a path as [`witness`](Self::witness) does. `reach` has the tokens that the sources can influence, as
    /// [`reach_runs`](Self::reach_runs) returns it.
    pub(crate) fn witness_in(&self, batch: usize, reach: &ReachRuns, targets: &IntervalSet) -> Option<Path> {
        let mut layers = 0;
        let mut run = reach.iter().position(|(count, set)| {
            let found = !set.intersect(targets).is_empty();
            layers += if found { 0 } else { *count };
            found
        })?;
        let mut at = reach[run].1.intersect(targets).covering_range()?.start;
        let mut steps = Vec::new();
        // A set that did not grow in a layer already contained the token before: only the borders of runs are steps.
        while run > 0 {
            let (count, before) = &reach[run - 1];
            if !before.contains(at) {
                steps.push((layers - 1, at));
                at = self.read_in(batch, layers - 1, at).intersect(before).covering_range()?.start;
            }
            (run, layers) = (run - 1, layers - count);
        }
        steps.reverse();
        Some(Path { source: at, steps })
    }

    /// Returns one cut for each layer. A cut has the number of cells through which `sources` influence `targets`, and
    /// whether hiding these cells is enough to stop the influence. Layers without such cells are left out.
    pub fn cuts(&self, batch: usize, sources: &IntervalSet, targets: &IntervalSet) -> Vec<Cut> {
        self.cuts_of(batch, &[(sources.clone(), targets.clone())])
    }

    /// Returns one cut for each layer, for several pairs (sources, targets) together. A cell counts if the sources of
    /// at least one pair influence the targets of that pair through the cell. Layers without such cells are left out.
    pub(crate) fn cuts_of(&self, batch: usize, pairs: &[(IntervalSet, IntervalSet)]) -> Vec<Cut> {
        let reach: Vec<_> = pairs.iter().map(|(sources, _)| self.reach(batch, sources)).collect();
        let back: Vec<_> = pairs.iter().map(|(_, targets)| self.back(batch, targets)).collect();
        let depth = self.depth();
        let sets = |layer: usize| reach.iter().zip(&back).map(move |(r, b)| (&r[layer], &b[depth - layer - 1]));
        let mut cuts: Vec<Cut> = Vec::with_capacity(depth);
        for layer in 0..depth {
            let which = self.which[layer];
            // When the sets no longer grow, layers with the same mask have the same cells.
            let same = |cut: &&Cut| self.which[cut.layer] == which && sets(cut.layer).eq(sets(layer));
            let known = cuts.iter().rev().find(same).map(|cut| cut.cells);
            let cells = known.unwrap_or_else(|| {
                let classes = classes(&sets(layer).collect::<Vec<_>>());
                let cells = |(to, from)| self.layers[which].cells(batch, &self.queries[batch], from, to);
                classes.iter().map(|(to, from)| cells((to, from))).sum()
            });
            let enough = sets(layer).all(|(from, to)| from.intersect(to).is_empty());
            cuts.push(Cut { layer, cells, enough });
        }
        cuts.retain(|cut| cut.cells > 0);
        cuts
    }

    /// Returns the influence through all layers as an array: cell (output, source) is true if the source can influence
    /// the output. The computation multiplies Boolean matrices of `tokens^2 / 8` bytes each.
    pub fn closure(&self, batch: usize) -> Keep {
        let n = self.shape.kv_len();
        let mut now = Keep::from_fn([1, 1, n, n], |[_, _, q, k]| q == k);
        for &layer in &self.which {
            let before = now.clone();
            self.layers[layer].each_row(batch, &self.queries[batch], |q, keys| {
                let row = now.row_mut(0, 0, q as usize);
                for k in ones(keys) {
                    row.iter_mut().zip(before.row(0, 0, k)).for_each(|(r, b)| *r |= b);
                }
            });
        }
        now
    }
}

/// Applies the layers `order` to a set, one after another. Returns the set before the first layer and after each layer, with
/// consecutive equal sets stored once, as (number of equal sets, set).
fn grow(order: &[usize], first: &IntervalSet, apply: impl Fn(usize, &IntervalSet) -> IntervalSet) -> ReachRuns {
    let mut runs = vec![(1, first.clone())];
    for (index, &layer) in order.iter().enumerate() {
        let Some((count, now)) = runs.last_mut() else { break };
        // A layer that was already applied to this set adds no token.
        let known = order[index + 1 - *count..index].contains(&layer);
        match (!known).then(|| apply(layer, now)).filter(|next| next != now) {
            None => *count += 1,
            Some(next) => runs.push((1, next)),
        }
    }
    runs
}

fn listed(runs: ReachRuns) -> Vec<IntervalSet> {
    runs.into_iter().flat_map(|(count, set)| std::iter::repeat_n(set, count)).collect()
}

/// Splits the targets of the pairs (sources, targets) into disjoint sets of tokens. Returns pairs (tokens, sources), in
/// which `sources` is the union of the sources of all given pairs whose targets contain the tokens. For example, ({1},
/// {5, 6}) and ({2}, {6, 7}) become ({5}, {1}), ({6}, {1, 2}) and ({7}, {2}).
fn classes(pairs: &[(&IntervalSet, &IntervalSet)]) -> Vec<(IntervalSet, IntervalSet)> {
    let mut classes: Vec<(IntervalSet, IntervalSet)> = Vec::new();
    for (from, to) in pairs {
        let mut rest = (*to).clone();
        let mut split = Vec::with_capacity(classes.len() + 1);
        for (tokens, known) in classes {
            let both = tokens.intersect(to);
            let apart = tokens.minus(to);
            rest = rest.minus(&both);
            split.extend((!apart.is_empty()).then(|| (apart, known.clone())));
            split.extend((!both.is_empty()).then(|| (both, known.union(from))));
        }
        split.extend((!rest.is_empty()).then(|| (rest, (*from).clone())));
        classes = split;
    }
    classes
}

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

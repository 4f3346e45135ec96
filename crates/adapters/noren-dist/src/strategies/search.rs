//! [`partition`]: tries several methods to split a mask over ranks, and chooses the best split for an objective.

use crate::Error;
use crate::costs::measure::{Measures, areas};
use crate::partition::layout::{Layout, Tie, Work};
use crate::partition::runs::Owners;
use crate::partition::strips::Strips;
use crate::partition::wire::{Sizes, Wire};
use crate::partition::{Partition, RowPartition, Travel, VERSION, sizes};
use crate::strategies::affinity::{self, Axis};
use crate::strategies::baselines::{Baseline, RULES};
use crate::strategies::bound::{Bound, bound};
use crate::strategies::contiguous::{chains, equal, owners};
use crate::strategies::documents::{self, documents};
use crate::strategies::exhaustive;
use crate::strategies::improve::improve;
use crate::strategies::place;
use crate::strategies::rectangles::{Cuts, blocks};
use crate::strategies::zigzag;
use noren_mask::Plan;
use serde::{Deserialize, Serialize};
use std::cmp::Ordering;

/// The maximum number of ranks among which the method `documents` divides one document. With more ranks, each rank
/// would get a very small part of each document.
const MOST_GROUP: usize = 256;

/// The goal by which the split of a mask over ranks is chosen.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Objective {
    /// The fewest bytes sent, while no rank has more than 1.05 times the mean number of allowed cells or 1.25 times the
    /// mean number of tokens.
    #[default]
    Balanced,
    /// The fewest bytes sent, while no rank has more than 1.25 times the mean number of allowed cells or 1.5 times the
    /// mean number of tokens; for slow connections.
    Traffic,
    /// The fewest bytes sent, while all ranks own nearly the same number of tokens (at most 1.01 times the mean) and
    /// compute at most 1.05 times the mean number of allowed cells; for little memory.
    Tokens,
}

impl Objective {
    /// Returns two limits for each rank, `[allowed cells, tokens]`, each as a multiple of the mean over ranks.
    pub fn limits(self) -> [f64; 2] {
        match self {
            Objective::Balanced => [1.05, 1.25],
            Objective::Traffic => [1.25, 1.5],
            Objective::Tokens => [1.05, 1.01],
        }
    }
}

/// The options for a split of a mask over ranks.
#[derive(Clone, PartialEq, Debug)]
pub struct Options {
    /// Number of ranks.
    pub ranks: usize,
    /// Number of nodes; consecutive ranks are on the same node.
    pub nodes: usize,
    /// The kind of data that ranks may send to each other, besides results and gradients.
    pub travel: Travel,
    /// The goal by which the split is chosen.
    pub objective: Objective,
    /// The head dimensions, and the bytes of one number, from which the number of sent bytes is computed.
    pub wire: Wire,
    /// The cost of a byte that travels between nodes, as a multiple of the cost of a byte that travels within a node.
    pub far: f64,
    /// Number of consecutive query rows that are given to a rank together. If `None`, the number follows from the
    /// number of rows per rank.
    pub grain: Option<u32>,
}

impl Default for Options {
    fn default() -> Self {
        let (travel, objective) = (Travel::Both, Objective::Balanced);
        Options { ranks: 1, nodes: 1, travel, objective, wire: Wire::default(), far: 8.0, grain: None }
    }
}

impl Options {
    fn partition(
        &self,
        plan: &Plan,
        method: String,
        travel: Travel,
        row_of: Vec<usize>,
        rows: Vec<RowPartition>,
    ) -> Partition {
        let (shape, hash) = (sizes(plan.shape()), String::new());
        let Options { ranks, nodes, .. } = *self;
        let partition = Partition { version: VERSION, hash, method, travel, ranks, nodes, shape, row_of, rows };
        partition.hashed(plan.bound())
    }
}

/// One split of a mask over ranks that the search tried.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Candidate {
    /// Name of the method that made the split: `contiguous`, `zigzag`, `documents/4`, `rectangles`, ...
    pub method: String,
    /// The kind of data that ranks send to each other in this split.
    pub travel: Travel,
    /// Measures of the split.
    pub measures: Measures,
    /// Whether the split is on the Pareto front: no other split of the search is at least as good in all of `area`,
    /// `tokens`, `received` and `peers`, and better in one of them.
    pub on_front: bool,
}

/// The partition that the search chose, with all splits that it tried.
#[derive(Clone, Debug)]
pub struct Search {
    /// The chosen partition.
    pub partition: Partition,
    /// For each distinct batch row, the splits that were tried. Equal batch rows share one entry.
    pub rows: Vec<RowSearch>,
}

/// All splits that were tried for one distinct batch row, and a lower bound on their bytes.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct RowSearch {
    /// The splits that were tried, in the order of the search.
    pub candidates: Vec<Candidate>,
    /// The index of the chosen split in `candidates`.
    pub chosen: usize,
    /// The numbers of allowed cells of each rank over all heads in the chosen split, `[all, in mixed tiles]`. A mixed
    /// tile has allowed and denied cells.
    pub areas: Vec<[f64; 2]>,
    /// Whether the numbers in `areas` are exact counts. Otherwise they are estimated from some rows, because the mask
    /// has too many mixed tiles (tiles with allowed and denied cells).
    pub exact: bool,
    /// A lower bound on the bytes that the busiest rank (the rank that receives the most bytes) receives, for all
    /// splits within the limits of the objective; `None` if no bound was found.
    pub bound: Option<Bound>,
}

/// Splits a planned mask over ranks.
///
/// # Errors
/// Returns an error if a value of `options` is invalid: the number of ranks or nodes, the relative cost `far` of a byte
/// from another node, or the head dimensions and the bytes of one number in `wire`.
pub fn partition(plan: &Plan, options: &Options) -> Result<Partition, Error> {
    Ok(search(plan, options)?.partition)
}

/// Splits a planned mask over ranks as [`partition`] does, and returns also all splits that were tried.
///
/// # Errors
/// Returns an error if a value of `options` is invalid: the number of ranks or nodes, the relative cost `far` of a byte
/// from another node, or the head dimensions and the bytes of one number in `wire`.
pub fn search(plan: &Plan, options: &Options) -> Result<Search, Error> {
    let mut method = None;
    let mut travel = Travel::Keys;
    let (mut rows, mut searches) = (Vec::new(), Vec::new());
    let (row_of, distinct) = distinct_rows(plan, options)?;
    for batch in distinct {
        let one = Row::new(plan, batch, options);
        let (layout, found) = one.search();
        let chosen = &found.candidates[found.chosen];
        if chosen.travel == Travel::Both {
            travel = Travel::Both;
        }
        let name = chosen.method.clone();
        method = Some(match method {
            Some(before) if before != name => "by batch row".to_string(),
            _ => name,
        });
        rows.push(layout.row(&one.strips, options.ranks));
        searches.push(found);
    }
    let partition = options.partition(plan, method.unwrap_or_default(), travel, row_of, rows);
    Ok(Search { partition, rows: searches })
}

/// Splits a mask by published rules of other methods and libraries (ring attention, Llama 3, PyTorch, MagiAttention).
/// Returns each split with its measures for the first batch row, the same measures that [`search()`] computes. Rules
/// that do not apply to the mask are left out.
///
/// # Errors
/// Returns an error if a value of `options` is invalid: the number of ranks or nodes, the relative cost `far` of a byte
/// from another node, or the head dimensions and the bytes of one number in `wire`.
pub fn compare(plan: &Plan, options: &Options) -> Result<Vec<Baseline>, Error> {
    let (row_of, distinct) = distinct_rows(plan, options)?;
    let mut out: Vec<Baseline> = Vec::new();
    for rule in RULES {
        let mut rows = Vec::new();
        let mut measures = None;
        for batch in &distinct {
            let row = Row::new(plan, *batch, options);
            let Some(queries) = rule.owners(&row.strips, row.tie, options.ranks) else { break };
            let tried = row.measured(rule.name().into(), row.owned(queries));
            measures.get_or_insert(tried.candidate.measures);
            rows.push(tried.layout.row(&row.strips, options.ranks));
        }
        if let Some(measures) = measures.filter(|_| rows.len() == distinct.len()) {
            let partition = options.partition(plan, rule.name().into(), Travel::Keys, row_of.clone(), rows);
            out.push(Baseline { name: rule.name(), measures, partition });
        }
    }
    Ok(out)
}

/// Finds groups of equal batch rows, which get the same split. Returns two lists: for each batch row, the index of its
/// group; and for each group, its first batch row. Returns an error for invalid options.
fn distinct_rows(plan: &Plan, options: &Options) -> Result<(Vec<usize>, Vec<usize>), Error> {
    let Options { ranks, nodes, .. } = *options;
    if ranks == 0 || ranks > 1 << 16 {
        return Err(Error::Ranks(format!("{ranks} ranks are given: give 1 to 65536")));
    }
    if nodes == 0 || nodes > ranks {
        return Err(Error::Ranks(format!("{nodes} nodes are given for {ranks} ranks: give 1 to {ranks}")));
    }
    if !options.far.is_finite() || options.far < 0.0 {
        return Err(Error::Ranks(format!(
            "`far`, the weight of a byte that is sent between nodes, is {}: give a finite number of at least 0",
            options.far
        )));
    }
    let wire = options.wire;
    for (name, value) in [("head_dim", wire.head_dim), ("element", wire.element), ("partial", wire.partial)] {
        if value == 0 || value > 1 << 16 {
            return Err(Error::Ranks(format!(
                "the size `{name}` in the option `wire` is {value}: give a number from 1 to 65536"
            )));
        }
    }
    let shape = plan.shape();
    let about = |batch: usize| {
        let heads = (0..shape.head_count()).map(|head| plan.pattern_of(batch, head));
        (shape.query_offset(batch), heads.collect::<Vec<_>>())
    };
    let mut known = Vec::new();
    let mut row_of = Vec::new();
    for batch in 0..shape.batch_len() {
        let about = about(batch);
        let found = known.iter().position(|(k, _)| k == &about);
        row_of.push(found.unwrap_or(known.len()));
        if found.is_none() {
            known.push((about, batch));
        }
    }
    Ok((row_of, known.into_iter().map(|(_, batch)| batch).collect()))
}

/// A split that the search tried, with its layout and the numbers of allowed cells of each rank, `[all, in mixed tiles
/// (tiles with allowed and denied cells)]`.
struct Tried {
    candidate: Candidate,
    layout: Layout,
    areas: Vec<[f64; 2]>,
}

/// One batch row, with the data from which the splits of this batch row are computed.
struct Row<'a> {
    strips: Strips,
    tie: Tie,
    sizes: Sizes,
    options: &'a Options,
}

impl<'a> Row<'a> {
    fn new(plan: &Plan, batch: usize, options: &'a Options) -> Self {
        let shape = plan.shape();
        let rows = shape.q_len() as u32;
        let fine = (rows / options.ranks as u32 / 64).clamp(1, 128).max(rows / (1 << 15)).max(1);
        Row {
            strips: Strips::new(plan, batch, options.grain.unwrap_or(fine).max(1)),
            tie: Tie::new(shape, batch),
            sizes: options.wire.sizes(shape.head_count(), shape.kv_head_count()),
            options,
        }
    }

    fn search(&self) -> (Layout, RowSearch) {
        let ranks = self.options.ranks;
        let mut tried: Vec<Tried> =
            self.by_keys().into_iter().map(|(name, layout)| self.measured(name, layout)).collect();
        if self.options.travel == Travel::Both {
            tried.extend(self.by_blocks().into_iter().map(|(name, layout)| self.measured(name, layout)));
        }
        if self.options.nodes > 1 {
            // Most time goes into measuring, so only splits that may be chosen are placed on nodes.
            let mut best: Vec<&Tried> = tried.iter().collect();
            best.sort_by(|a, b| self.order(a, b));
            let placed: Vec<Tried> = best.into_iter().take(2).filter_map(|t| self.placed(t)).collect();
            tried.extend(placed);
        }
        if self.tie == Tie::Shifted(0) {
            let every = exhaustive::layouts(&self.strips, ranks, self.options.travel);
            let every = every.into_iter().map(|layout| self.measured("exhaustive".into(), layout));
            tried.extend(every.min_by(|a, b| self.order(a, b)));
        }
        for i in 0..tried.len() {
            let mine = tried[i].candidate.measures;
            tried[i].candidate.on_front = !tried.iter().any(|other| other.candidate.measures.dominates(&mine));
        }
        let order = |a: &usize, b: &usize| self.order(&tried[*a], &tried[*b]);
        let chosen = (0..tried.len()).min_by(order).expect("the contiguous split is always a candidate");
        let most = self.options.objective.limits()[1] * f64::from(self.strips.q_len()) / ranks as f64;
        let candidates = tried.iter().map(|t| t.candidate.clone()).collect();
        let Tried { layout, areas, .. } = tried.swap_remove(chosen);
        let bound = bound(&self.strips, self.tie, ranks, most, self.options.travel, &self.sizes);
        (layout, RowSearch { candidates, chosen, areas, exact: self.strips.exact, bound })
    }

    fn measured(&self, method: String, layout: Layout) -> Tried {
        let ranks = self.options.ranks;
        let RowPartition { shares } = layout.row(&self.strips, ranks);
        let areas = areas(&layout, &self.strips, ranks);
        let node = |rank: usize| rank * self.options.nodes / ranks;
        let travel = if layout.work == Work::Owner { Travel::Keys } else { Travel::Both };
        let measures = Measures::new(&shares, &areas, &self.sizes, node);
        Tried { layout, areas, candidate: Candidate { method, travel, measures, on_front: true } }
    }

    /// Gives the ranks of a split new numbers, so that ranks on the same node exchange much data. Returns the new
    /// split; `None` if the new numbers do not reduce `far` (the maximum over ranks of the bytes from other nodes).
    fn placed(&self, tried: &Tried) -> Option<Tried> {
        if tried.candidate.measures.far == 0 {
            return None;
        }
        let Options { ranks, nodes, .. } = *self.options;
        let shares = tried.layout.shares(&self.strips, ranks);
        let number = place::order(&shares, nodes, &self.sizes);
        let name = format!("{}, placed", tried.candidate.method);
        let placed = self.measured(name, tried.layout.renumbered(&number));
        (placed.candidate.measures.far < tried.candidate.measures.far).then_some(placed)
    }

    /// Compares two splits; the better split is `Less`. The split that exceeds the limits of the objective less is
    /// better. If both exceed them equally, the split whose busiest rank receives fewer bytes is better. In this
    /// number, bytes from other nodes count `Options::far` times.
    fn order(&self, a: &Tried, b: &Tried) -> Ordering {
        let [area, tokens] = self.options.objective.limits();
        let key = |m: Measures| {
            // ignores an excess that is only a rounding error
            let over = (m.area / area).max(m.tokens / tokens).max(1.0 + 1e-6);
            [over, m.received as f64 + (self.options.far - 1.0) * m.far as f64, m.mean_received]
        };
        let (a, b) = (key(a.candidate.measures), key(b.candidate.measures));
        a.partial_cmp(&b).expect("measures are finite")
    }

    /// Returns the splits to try in which only keys and values are sent, as (name of the method, layout).
    fn by_keys(&self) -> Vec<(String, Layout)> {
        let ranks = self.options.ranks;
        let [area, tokens] = self.options.objective.limits();
        let rows = f64::from(self.strips.q_len());
        let most = tokens * rows / ranks as f64;
        let areas: Vec<f64> = self.strips.iter().map(|s| s.area()).collect();
        let lens: Vec<f64> = self.strips.iter().map(|s| f64::from(s.rows())).collect();
        let ends: Vec<u32> = self.strips.iter().map(|s| s.end).collect();
        let mut out = Vec::new();
        let mut add = |name: String, queries: Owners| out.push((name, self.owned(queries)));
        let cut = chains(&areas, &lens, ranks, most).or_else(|| chains(&areas, &lens, ranks, f64::INFINITY));
        add("contiguous".into(), owners(&cut.expect("a split always exists without a limit on tokens"), &ends));
        add("equal runs".into(), equal(self.strips.q_len(), ranks));
        add("zigzag".into(), zigzag::owners(self.strips.q_len(), ranks));
        let shift = if let Tie::Shifted(shift) = self.tie { shift } else { 0 };
        let documents = documents(&self.strips, shift);
        // Large groups are expensive to measure. If blocks are candidates too, they are better than large groups.
        let largest = if self.options.travel == Travel::Both { (ranks / 8).max(8) } else { ranks };
        let mut group = 1;
        while documents.len() > 1 && group <= ranks.min(largest).min(MOST_GROUP) {
            let first = documents::owners(&documents, ranks, group, tokens);
            add(format!("documents/{group}"), improve(&first, &self.strips, ranks, area, most));
            group *= 2;
        }
        out
    }

    /// Returns the splits to try in which each rank computes a rectangle of query rows x keys, so that ranks send keys
    /// and queries, as (name of the method, layout).
    fn by_blocks(&self) -> Vec<(String, Layout)> {
        let Options { ranks, nodes, objective, .. } = *self.options;
        let tokens = objective.limits()[1];
        let mut out = Vec::new();
        for (name, cuts) in [("rows", Cuts::Rows), ("rectangles", Cuts::Cheaper)] {
            let blocks = blocks(&self.strips, ranks, ranks.div_ceil(nodes), cuts, &self.sizes);
            let owners = |axis: Axis, len: u32| {
                // Whole grains must fit into the space.
                let mean = f64::from(len) / ranks as f64;
                let grain = (mean * ((tokens - 1.0) / 2.0).min(1.0 / 32.0)).max(1.0) as u32;
                affinity::owners(&self.strips, &blocks, axis, grain, (mean * tokens).max(1.0), &self.sizes)
            };
            let (q_len, kv_len) = (self.strips.q_len(), self.strips.kv_len());
            let (queries, keys) = match self.tie {
                Tie::Shifted(shift) => {
                    let keys = owners(Axis::Tokens(shift), kv_len);
                    (keys.part(shift, q_len), keys)
                }
                Tie::Apart => (owners(Axis::Queries, q_len), owners(Axis::Keys, kv_len)),
            };
            out.push((name.to_string(), Layout { queries, keys, work: Work::Blocks(blocks) }));
        }
        out
    }

    /// Returns the layout with the owners `queries`, in which the owner of each query computes the query's cells. A key
    /// has the same owner as the query of its token. Keys of tokens without a query are divided equally among the
    /// ranks.
    fn owned(&self, queries: Owners) -> Layout {
        let keys = match self.tie {
            Tie::Shifted(0) => queries.clone(),
            Tie::Apart => equal(self.strips.kv_len(), self.options.ranks),
            Tie::Shifted(shift) => {
                // keys before the first query are split into equal parts
                let mut parts: Vec<_> = equal(shift, self.options.ranks).parts().collect();
                parts.extend(queries.parts().map(|([start, end], rank)| ([start + shift, end + shift], rank)));
                Owners::from_parts(parts)
            }
        };
        Layout::by_owner(queries, keys)
    }
}

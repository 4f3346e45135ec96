//! [`Layout`]: the owners of tokens and the ranks that compute cells. The shares of all ranks (their steps, and the
//! data that they exchange) follow from the layout.

use crate::partition::runs::{Owners, Runs, count, merged, within};
use crate::partition::strips::Strips;
use crate::partition::{Exchange, RowPartition, Share, Step};
use noren_mask::Shape;
use std::collections::BTreeMap;

/// The owners of queries and keys, and the rule that determines which rank computes each cell.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Layout {
    pub(crate) queries: Owners,
    pub(crate) keys: Owners,
    pub(crate) work: Work,
}

/// A set of cells that one rank computes: the cells of some query rows (a list of ranges) with one range of keys.
type Part = (Runs, [u32; 2]);

/// The rule that determines which rank computes a cell.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Work {
    /// The owner of a query computes all cells of this query.
    Owner,
    /// Each rectangle of the list has a rank, which computes its cells. Two rectangles never share a cell, and together
    /// they contain all allowed cells.
    Blocks(Vec<Block>),
}

/// A rectangle of query rows x keys that one rank computes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Block {
    pub(crate) rank: u32,
    pub(crate) rows: [u32; 2],
    pub(crate) keys: [u32; 2],
}

/// Whether queries and keys are the same tokens.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Tie {
    /// Self-attention: query row `i` and key `i + shift` belong to the same token, and the last query belongs to the
    /// token of the last key. The field is `shift`.
    Shifted(u32),
    /// Cross-attention: queries and keys are tokens of different sequences.
    Apart,
}

impl Tie {
    pub(crate) fn new(shape: &Shape, batch: usize) -> Self {
        let offset = shape.query_offset(batch);
        match u32::try_from(offset) {
            Ok(shift) if shift as usize + shape.q_len() == shape.kv_len() => Tie::Shifted(shift),
            _ => Tie::Apart,
        }
    }
}

impl Layout {
    /// Creates a layout in which the owner of each query computes all cells of the query.
    pub(crate) fn by_owner(queries: Owners, keys: Owners) -> Self {
        Layout { queries, keys, work: Work::Owner }
    }

    /// Returns the split by this layout of one batch row over `ranks` ranks. `strips` holds the allowed cells of this
    /// batch row.
    pub(crate) fn row(&self, strips: &Strips, ranks: usize) -> RowPartition {
        let mut shares = self.shares(strips, ranks);
        mirror(&mut shares);
        RowPartition { shares }
    }

    /// Returns the share of each rank: the tokens that the rank owns, its steps, and the data that it receives. The
    /// lists `sends` stay empty; the caller fills them in with [`mirror`].
    pub(crate) fn shares(&self, strips: &Strips, ranks: usize) -> Vec<Share> {
        let queries = self.queries.by_rank(ranks);
        let keys = self.keys.by_rank(ranks);
        let mut work: Vec<Vec<Part>> = vec![Vec::new(); ranks];
        match &self.work {
            Work::Owner => {
                let all = [0, strips.kv_len()];
                work.iter_mut().zip(&queries).for_each(|(work, rows)| work.push((rows.clone(), all)));
            }
            Work::Blocks(blocks) => {
                blocks.iter().for_each(|b| work[b.rank as usize].push((vec![b.rows], b.keys)));
            }
        }
        let parts = queries.into_iter().zip(keys).zip(work).enumerate();
        let share = |(rank, ((queries, keys), work)): (usize, ((Runs, Runs), Vec<Part>))| {
            let mut steps = Vec::new();
            for foreign in [false, true] {
                for (rows, range) in &work {
                    let rows = match foreign {
                        false => common(rows, &queries),
                        true => without(rows, &queries),
                    };
                    steps.extend(self.steps(strips, rank as u32, ranks, foreign, &rows, *range));
                }
            }
            let receives = self.receives(rank as u32, &steps);
            Share { queries, keys, steps, receives, sends: Vec::new() }
        };
        parts.map(share).collect()
    }

    /// Returns the steps in which `rank` computes the cells of `rows` x `keys`, one step for each rank that owns some
    /// of these keys. The first step has the keys that `rank` owns, then follow those of the next higher ranks; after
    /// the last rank comes rank 0. `foreign` is true if other ranks own the rows.
    fn steps(
        &self,
        strips: &Strips,
        rank: u32,
        ranks: usize,
        foreign: bool,
        rows: &[[u32; 2]],
        keys: [u32; 2],
    ) -> Vec<Step> {
        let (mut reading, mut read) = (Runs::new(), Runs::new());
        let mut shortest = 64;
        for [start, end] in rows {
            for strip in strips.within(*start, *end) {
                let before = read.len();
                read.extend(strip.pieces_within(keys[0], keys[1]).map(|(part, _)| part));
                if read.len() > before {
                    reading.push([strip.start, strip.end]);
                }
            }
            // neighbouring strips read nearly the same keys, so lists stay short
            if read.len() > 2 * shortest {
                read = merged(read);
                shortest = read.len().max(64);
            }
        }
        let (reading, read) = (merged(reading), merged(read));
        let mut by_peer: BTreeMap<u32, Runs> = BTreeMap::new();
        for [start, end] in read {
            for (run, owner) in self.keys.within(start, end) {
                by_peer.entry((owner + ranks as u32 - rank) % ranks as u32).or_default().push(run);
            }
        }
        let step = |(turn, keys)| Step {
            peer: (turn + rank) % ranks as u32,
            foreign,
            rows: reading.clone(),
            keys: merged(keys),
        };
        by_peer.into_iter().map(step).collect()
    }

    /// Returns the data that `rank` needs for `steps` but does not own, one exchange for each rank that sends it.
    fn receives(&self, rank: u32, steps: &[Step]) -> Vec<Exchange> {
        let mut from: BTreeMap<u32, (Runs, Runs)> = BTreeMap::new();
        for step in steps.iter().filter(|s| s.peer != rank) {
            from.entry(step.peer).or_default().0.extend(&step.keys);
        }
        let foreign = steps.iter().filter(|s| s.foreign).flat_map(|s| s.rows.iter().copied());
        for [start, end] in merged(foreign.collect()) {
            for (run, owner) in self.queries.within(start, end) {
                from.entry(owner).or_default().1.push(run);
            }
        }
        let exchange = |(peer, (keys, rows))| Exchange { peer, keys: merged(keys), rows: merged(rows) };
        from.into_iter().map(exchange).filter(|e| count(&e.keys) + count(&e.rows) > 0).collect()
    }
}

/// Fills in the lists `sends`: each exchange in the list `receives` of one rank is added to the list `sends` of the
/// rank that sends the data.
pub(crate) fn mirror(shares: &mut [Share]) {
    let mut sends: Vec<Vec<Exchange>> = vec![Vec::new(); shares.len()];
    for (rank, share) in shares.iter().enumerate() {
        for exchange in &share.receives {
            sends[exchange.peer as usize].push(Exchange { peer: rank as u32, ..exchange.clone() });
        }
    }
    shares.iter_mut().zip(sends).for_each(|(share, sends)| share.sends = sends);
}

/// Returns the positions that are in both lists of ranges.
pub(crate) fn common(a: &[[u32; 2]], b: &[[u32; 2]]) -> Runs {
    a.iter().flat_map(|[start, end]| within(b, *start, *end)).collect()
}

/// Returns the positions that are in the ranges `a` but not in the ranges `b`.
pub(crate) fn without(a: &[[u32; 2]], b: &[[u32; 2]]) -> Runs {
    let mut out = Runs::new();
    for &[start, end] in a {
        let mut at = start;
        for [from, to] in within(b, start, end) {
            if at < from {
                out.push([at, from]);
            }
            at = to;
        }
        if at < end {
            out.push([at, end]);
        }
    }
    out
}

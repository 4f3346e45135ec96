//! Partitions in the formats of other libraries: MagiAttention and PyTorch. A conversion is exact or returns an error.

use crate::Error;
use crate::partition::layout::common;
use crate::partition::runs::{Runs, count, merged};
use crate::partition::{Partition, Share};
use noren_mask::{Plan, Runs as RowRuns, Slice};

/// The maximum number of attention slices (rectangles of queries x keys with one kind of mask) of one rank. A kernel
/// that executes one slice after another would take too long for more slices.
const MOST_SLICES: usize = 1 << 20;

/// The work of one rank as MagiAttention's attention slices: rectangles of queries x keys, each with a kind of mask.
/// The indices in a slice refer to two buffers of the rank: one of query rows and one of keys.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RankSlices {
    /// The query rows in the rank's buffer, in order, as ranges of row indices of the whole sequence: first the rows
    /// that the rank owns, then rows of other ranks.
    pub rows: Vec<[u32; 2]>,
    /// The keys in the rank's buffer, in order, as ranges of key indices of the whole sequence: first the keys that the
    /// rank owns, then the keys of other ranks, in the order in which the rank's steps use these ranks.
    pub keys: Vec<[u32; 2]>,
    /// The attention slices, whose indices are positions in the buffers of query rows and of keys. Every allowed cell
    /// that the rank computes is in exactly one slice.
    pub slices: Vec<Slice>,
}

impl Partition {
    /// Returns the attention slices of each rank for batch row `batch`: the arguments `q_ranges`, `k_ranges` and
    /// `attn_type_map` of MagiAttention's function `flex_flash_attn_func`.
    ///
    /// ```
    /// use noren_dist::{Options, Travel, partition};
    /// use noren_mask::{Facts, Shape, SliceKind, atoms::*};
    /// let plan = causal().bind(&Shape::square(64), &Facts::new())?.plan();
    /// let split = partition(&plan, &Options { ranks: 2, travel: Travel::Keys, ..Options::default() })?;
    /// let slices = split.magi_slices(&plan, 0)?;
    /// assert!(slices[1].slices.iter().any(|s| s.kind == SliceKind::Causal));
    /// # Ok::<(), noren_dist::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns an error in these cases:
    ///
    /// - Heads have different masks, because MagiAttention uses one list of slices for all heads.
    /// - A rank needs more than 2^20 slices.
    ///
    /// # Panics
    /// Panics if `batch` is outside the batch, or if the plan belongs to another mask.
    pub fn magi_slices(&self, plan: &Plan, batch: usize) -> Result<Vec<RankSlices>, Error> {
        let refuse = |problem: String| Err(Error::Export { target: "MagiAttention", problem });
        let pattern = plan.pattern_of(batch, 0);
        if let Some(head) = (0..self.shape[1]).find(|h| plan.pattern_of(batch, *h) != pattern) {
            return refuse(format!(
                "heads 0 and {head} have different masks, but MagiAttention uses one list of slices for all heads"
            ));
        }
        let allowed = plan.row_runs(pattern);
        let out: Vec<RankSlices> = self
            .row(batch)
            .shares
            .iter()
            .enumerate()
            .map(|(rank, share)| slices(rank as u32, share, &allowed))
            .collect();
        match out.iter().position(|r| r.slices.len() > MOST_SLICES) {
            None => Ok(out),
            Some(rank) => refuse(format!(
                "rank {rank} would need {} slices, more than the maximum: the mask has too many small pieces",
                out[rank].slices.len()
            )),
        }
    }

    /// Returns one list of token indices for each distinct batch row: the tokens that the first rank owns, then those
    /// of the second rank, and so on. A load balancer of PyTorch's context parallelism returns these indices from
    /// `_generate_indices(restore=False)`.
    ///
    /// ```
    /// use noren_dist::{Objective, Options, Travel, partition};
    /// use noren_mask::{Facts, Shape, atoms::*};
    /// let plan = causal().bind(&Shape::square(8), &Facts::new())?.plan();
    /// let options = Options { ranks: 2, travel: Travel::Keys, objective: Objective::Tokens, ..Options::default() };
    /// assert_eq!(partition(&plan, &options)?.torch_indices()?, [[0, 1, 6, 7, 2, 3, 4, 5]]);
    /// # Ok::<(), noren_dist::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns an error in these cases, because PyTorch cuts the reordered sequence into equal runs, and each rank
    /// computes its own rows:
    ///
    /// - A rank computes query rows of other ranks.
    /// - Ranks own different numbers of tokens.
    /// - Queries and keys are different tokens.
    pub fn torch_indices(&self) -> Result<Vec<Vec<u32>>, Error> {
        let refuse = |problem: String| Err(Error::Export { target: "PyTorch's context parallelism", problem });
        let mut out = Vec::new();
        for row in &self.rows {
            let shares = || row.shares.iter().enumerate();
            if let Some((rank, _)) = shares().find(|(_, s)| s.steps.iter().any(|step| step.foreign)) {
                return refuse(format!(
                    "rank {rank} computes rows of other ranks: partition again so that only keys travel"
                ));
            }
            if let Some((rank, _)) = shares().find(|(_, s)| s.queries != s.keys) {
                return refuse(format!(
                    "rank {rank} owns the queries of some tokens and the keys of other tokens: give a partition of self-attention"
                ));
            }
            let equal = self.shape[3] as u64 / self.ranks as u64;
            let odd = |s: &Share| count(&s.queries) != equal || !self.shape[3].is_multiple_of(self.ranks);
            if let Some((rank, share)) = shares().find(|(_, s)| odd(s)) {
                return refuse(format!(
                    "rank {rank} owns {} of {} tokens, and all {} ranks must own equally many tokens: split for equal tokens, over a number of \
                     ranks that divides the length",
                    count(&share.queries),
                    self.shape[3],
                    self.ranks
                ));
            }
            out.push(row.shares.iter().flat_map(|s| &s.queries).flat_map(|[a, z]| *a..*z).collect());
        }
        Ok(out)
    }
}

/// Returns the work of the rank `rank` as attention slices. `allowed` holds the runs of keys that each query may read.
fn slices(rank: u32, share: &Share, allowed: &RowRuns) -> RankSlices {
    let foreign = share.receives.iter().flat_map(|e| e.rows.iter().copied()).collect();
    let rows: Runs = share.queries.iter().copied().chain(merged(foreign)).collect();
    let mut keys = share.keys.clone();
    let turn = |peer: u32| share.steps.iter().position(|s| s.peer == peer).unwrap_or(usize::MAX);
    let mut peers: Vec<_> = share.receives.iter().filter(|e| e.peer != rank).collect();
    peers.sort_by_key(|e| turn(e.peer));
    keys.extend(peers.iter().flat_map(|e| e.keys.iter().copied()));
    // the index in the buffer at which each run starts, in ascending order of keys
    let mut places: Vec<([u32; 2], u32)> = Vec::with_capacity(keys.len());
    let mut at = 0;
    for run in &keys {
        places.push((*run, at));
        at += run[1] - run[0];
    }
    places.sort_unstable();
    let mut out = RowRuns { indptr: vec![0], runs: Vec::new() };
    for &[start, end] in &rows {
        for row in start..end {
            let steps = share.steps.iter().filter(|s| !common(&s.rows, &[[row, row + 1]]).is_empty());
            let mut line: Runs = Vec::new();
            for run in steps.flat_map(|s| common(allowed.list(row as usize), &s.keys)) {
                let first = places.partition_point(|(key, _)| key[1] <= run[0]);
                for (key, place) in places[first..].iter().take_while(|(key, _)| key[0] < run[1]) {
                    let part = [key[0].max(run[0]), key[1].min(run[1])];
                    line.push([place + part[0] - key[0], place + part[1] - key[0]]);
                }
            }
            out.runs.extend(merged(line));
            out.indptr.push(out.runs.len() as u32);
        }
    }
    RankSlices { rows, keys, slices: out.slices() }
}

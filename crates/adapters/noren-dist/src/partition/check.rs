//! Checks that a partition is correct: each allowed cell is in exactly one step, and the rank that computes the step
//! has the data for it.

use crate::Error;
use crate::partition::layout::{common, without};
use crate::partition::runs::{Runs, count, merged};
use crate::partition::{Exchange, Partition, RowPartition, Share, Travel, sizes};
use noren_mask::{BoundMask, Plan, Runs as RowRuns, Shape};

impl Partition {
    /// Checks that the partition computes every allowed cell of the mask exactly once, with data that is present on the
    /// computing rank. The check is exact and takes about as long as listing the runs of allowed keys of every query.
    ///
    /// # Errors
    /// Returns an error, which names the batch row and rank, in these cases:
    ///
    /// - The shape differs from that of the mask.
    /// - Owners overlap or leave out a position.
    /// - No rank or several ranks compute a cell.
    /// - A step uses data that its rank neither owns nor receives.
    /// - Two ranks disagree about an exchange.
    pub fn check(&self, bound: &BoundMask) -> Result<(), Error> {
        let wrong = |problem: String| Err(Error::Partition(problem));
        self.check_shape(bound.shape())?;
        if self.ranks == 0 || self.nodes == 0 || self.nodes > self.ranks {
            return wrong(format!(
                "{} ranks on {} nodes are invalid: there must be at least one node and no more nodes than ranks",
                self.ranks, self.nodes
            ));
        }
        if self.row_of.len() != self.shape[0] || self.row_of.iter().any(|row| *row >= self.rows.len()) {
            return wrong(format!(
                "`row_of` is {:?}, but it needs {} entries (one per batch row), each an index of `rows` below {}",
                self.row_of,
                self.shape[0],
                self.rows.len()
            ));
        }
        if let Some(row) = (0..self.rows.len()).find(|row| !self.row_of.contains(row)) {
            return wrong(format!("no batch row uses the split `rows[{row}]`: `row_of` does not contain {row}"));
        }
        let plan = bound.plan();
        let mut known: Vec<(usize, usize)> = Vec::new();
        for batch in 0..self.shape[0] {
            let row = self.row(batch);
            if row.shares.len() != self.ranks {
                return wrong(format!(
                    "batch row {batch} has {} entries in `shares`, but there are {} ranks: one share per rank is needed",
                    row.shares.len(),
                    self.ranks
                ));
            }
            let of = |what: String| Error::Partition(format!("batch row {batch}: {what}"));
            row.check_forms([self.shape[3], self.shape[4]], self.travel).map_err(of)?;
            row.check_shares(self.shape[3] as u32, self.shape[4] as u32).map_err(of)?;
            for head in 0..self.shape[1] {
                let pair = (self.row_of[batch], plan.pattern_of(batch, head));
                if !known.contains(&pair) {
                    known.push(pair);
                    check_cells(row, &plan, pair.1).map_err(of)?;
                }
            }
        }
        Ok(())
    }

    /// Returns an error if the partition has another shape than the mask.
    pub(crate) fn check_shape(&self, mask: &Shape) -> Result<(), Error> {
        if self.shape == sizes(mask) {
            return Ok(());
        }
        let (own, mask) = (self.shape, sizes(mask));
        Err(Error::Partition(format!("the shape of the partition is {own:?}, but that of the mask is {mask:?}")))
    }
}

impl RowPartition {
    /// Checks the order and range of all lists: runs and the ranks of peers ascend, and no index exceeds `q_len` or
    /// `kv_len`. Checks also that a rank has query rows of other ranks only if `travel` allows queries.
    fn check_forms(&self, [q_len, kv_len]: [usize; 2], travel: Travel) -> Result<(), String> {
        let sound = |runs: &Runs, len: usize| {
            runs.iter().all(|[start, end]| start < end && *end as usize <= len)
                && runs.windows(2).all(|pair| pair[0][1] <= pair[1][0])
        };
        for (rank, share) in self.shares.iter().enumerate() {
            let exchanges = || share.receives.iter().chain(&share.sends);
            let rows = [&share.queries].into_iter().chain(share.steps.iter().map(|s| &s.rows));
            let keys = [&share.keys].into_iter().chain(share.steps.iter().map(|s| &s.keys));
            let rows_sound = rows.chain(exchanges().map(|e| &e.rows)).all(|runs| sound(runs, q_len));
            if !rows_sound || !keys.chain(exchanges().map(|e| &e.keys)).all(|runs| sound(runs, kv_len)) {
                return Err(format!(
                    "rank {rank} has ranges of queries or keys that do not ascend, or that exceed the {q_len} queries or {kv_len} keys"
                ));
            }
            let ascend = |list: &[Exchange]| list.windows(2).all(|pair| pair[0].peer < pair[1].peer);
            if !ascend(&share.receives) || !ascend(&share.sends) {
                return Err(format!("the peers of rank {rank} do not ascend, or a peer appears twice"));
            }
            let foreign = share.steps.iter().any(|s| s.foreign) || exchanges().any(|e| !e.rows.is_empty());
            if travel == Travel::Keys && foreign {
                return Err(format!(
                    "the partition allows only keys to be sent, but rank {rank} has query rows of other ranks"
                ));
            }
        }
        Ok(())
    }

    fn check_shares(&self, q_len: u32, kv_len: u32) -> Result<(), String> {
        for (what, len, of) in [
            ("query rows", q_len, (|s: &Share| &s.queries) as fn(&Share) -> &Runs),
            ("keys", kv_len, |s: &Share| &s.keys),
        ] {
            let owned: Runs = self.shares.iter().flat_map(of).copied().collect();
            let all = if len > 0 { vec![[0, len]] } else { Runs::new() };
            if count(&owned) != u64::from(len) || merged(owned) != all {
                return Err(format!("the {what} 0..{len} do not have exactly one owner each"));
            }
        }
        for (rank, share) in self.shares.iter().enumerate() {
            share.check_steps(rank as u32).map_err(|e| format!("rank {rank}: {e}"))?;
            for exchange in &share.receives {
                self.check_exchange(rank as u32, exchange).map_err(|e| format!("rank {rank}: {e}"))?;
            }
            let mirrored = |sent: &Exchange| {
                let peer = self.shares.get(sent.peer as usize);
                peer.is_some_and(|p| {
                    p.receives.iter().any(|r| r.peer == rank as u32 && r.keys == sent.keys && r.rows == sent.rows)
                })
            };
            if let Some(sent) = share.sends.iter().find(|sent| !mirrored(sent)) {
                return Err(format!("rank {rank} sends data that rank {} does not receive", sent.peer));
            }
        }
        let number = |of: fn(&Share) -> usize| self.shares.iter().map(of).sum::<usize>();
        match number(|s| s.sends.len()) == number(|s| s.receives.len()) {
            true => Ok(()),
            false => Err("a rank receives data that no rank sends".into()),
        }
    }

    /// Checks that the rank `exchange.peer` owns the keys and query rows that `rank` receives from this peer.
    fn check_exchange(&self, rank: u32, exchange: &Exchange) -> Result<(), String> {
        let Some(peer) = self.shares.get(exchange.peer as usize).filter(|_| exchange.peer != rank) else {
            return Err(format!(
                "data cannot be received from rank {}: the sender must be another existing rank",
                exchange.peer
            ));
        };
        let owned = without(&exchange.keys, &peer.keys).is_empty() && without(&exchange.rows, &peer.queries).is_empty();
        if owned {
            Ok(())
        } else {
            Err(format!("data is received from rank {}, which does not own the data", exchange.peer))
        }
    }
}

impl Share {
    /// Checks that the steps of this share use only data that its rank (`rank`) owns or receives.
    fn check_steps(&self, rank: u32) -> Result<(), String> {
        let received: Runs = merged(self.receives.iter().flat_map(|e| e.rows.iter().copied()).collect());
        for (i, step) in self.steps.iter().enumerate() {
            let keys = match step.peer == rank {
                true => Some(&self.keys),
                false => self.receives.iter().find(|e| e.peer == step.peer).map(|e| &e.keys),
            };
            let rows = if step.foreign { &received } else { &self.queries };
            if keys.is_none_or(|keys| !without(&step.keys, keys).is_empty()) {
                return Err(format!("step {i} uses keys of rank {} that this rank has not received", step.peer));
            }
            if !without(&step.rows, rows).is_empty() {
                return Err(format!("step {i} computes query rows that its rank neither owns nor receives"));
            }
        }
        Ok(())
    }
}

/// Checks that every allowed cell of a pattern (the cells of heads with equal masks) is in exactly one step. `pattern`
/// is the index of the pattern in `plan`.
fn check_cells(row: &RowPartition, plan: &Plan, pattern: usize) -> Result<(), String> {
    let runs: RowRuns = plan.row_runs(pattern);
    // for each row, the steps that compute it
    let mut steps: Vec<(u32, u32, &Runs)> = Vec::new();
    for step in row.shares.iter().flat_map(|s| &s.steps) {
        steps.extend(step.rows.iter().map(|[start, end]| (*start, *end, &step.keys)));
    }
    steps.sort_by_key(|s| s.0);
    let (mut next, mut open): (usize, Vec<(u32, &Runs)>) = (0, Vec::new());
    for (q, allowed) in runs.lists().enumerate() {
        let q = q as u32;
        while next < steps.len() && steps[next].0 <= q {
            open.push((steps[next].1, steps[next].2));
            next += 1;
        }
        open.retain(|(end, _)| *end > q);
        let mut done = Runs::new();
        open.iter().for_each(|(_, keys)| done.extend(common(allowed, keys)));
        let cells = count(&done);
        if cells != count(allowed) || merged(done) != allowed {
            return Err(format!(
                "query {q} reads {} keys, but the steps of all ranks compute {cells} cells of this query",
                count(allowed)
            ));
        }
    }
    Ok(())
}

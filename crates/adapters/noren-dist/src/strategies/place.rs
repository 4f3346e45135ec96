//! The assignment of ranks to nodes, chosen so that ranks on the same node exchange much data.

use crate::partition::Share;
use crate::partition::layout::{Layout, Work};
use crate::partition::runs::Owners;
use crate::partition::wire::Sizes;
use std::collections::BTreeMap;

/// Returns a new number for each rank, so that ranks on the same node exchange much data. Each node has consecutive
/// numbers, which are given in ascending order. The first number of a node goes to the rank that exchanges the most
/// data with all ranks. Each further number of the node goes to the rank that exchanges the most data with the ranks
/// already on this node. A rank gets only one number.
pub(crate) fn order(shares: &[Share], nodes: usize, sizes: &Sizes) -> Vec<u32> {
    let ranks = shares.len();
    let mut between: Vec<BTreeMap<u32, u64>> = vec![BTreeMap::new(); ranks];
    for (rank, share) in shares.iter().enumerate() {
        for exchange in &share.receives {
            let [there, back, ..] = sizes.of(exchange);
            *between[rank].entry(exchange.peer).or_default() += there + back;
            *between[exchange.peer as usize].entry(rank as u32).or_default() += there + back;
        }
    }
    let busy = |rank: usize| between[rank].values().sum::<u64>();
    let mut number = vec![u32::MAX; ranks];
    let mut next = 0;
    for node in 0..nodes {
        let end = ((node + 1) * ranks).div_ceil(nodes);
        // the bytes that each free rank exchanges with the node so far
        let mut tied = vec![0u64; ranks];
        for place in 0..end - next as usize {
            let free = (0..ranks).filter(|r| number[*r] == u32::MAX);
            let key = |r: usize| if place == 0 { busy(r) } else { tied[r] };
            let chosen = free
                .max_by_key(|r| (key(*r), usize::MAX - r))
                .expect("fewer numbers than ranks are assigned, so at least one rank is free");
            number[chosen] = next;
            next += 1;
            between[chosen].iter().for_each(|(peer, bytes)| tied[*peer as usize] += bytes);
        }
    }
    number
}

impl Layout {
    /// Returns the layout in which rank `i` has become rank `number[i]`.
    pub(crate) fn renumbered(&self, number: &[u32]) -> Layout {
        let owners = |owners: &Owners| {
            Owners::from_parts(owners.parts().map(|(run, rank)| (run, number[rank as usize])).collect())
        };
        let work = match &self.work {
            Work::Owner => Work::Owner,
            Work::Blocks(blocks) => Work::Blocks(
                blocks
                    .iter()
                    .map(|b| crate::partition::layout::Block { rank: number[b.rank as usize], ..*b })
                    .collect(),
            ),
        };
        Layout { queries: owners(&self.queries), keys: owners(&self.keys), work }
    }
}

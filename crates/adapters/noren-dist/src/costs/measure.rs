//! [`Measures`]: the numbers by which the quality of partitions is compared.

use crate::partition::Share;
use crate::partition::layout::{Layout, Work};
use crate::partition::runs::count;
use crate::partition::strips::Strips;
use crate::partition::wire::Sizes;
use serde::Serialize;

/// The costs of a split over all ranks: the balance of work and tokens, and the data that ranks receive.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct Measures {
    /// The largest number of allowed cells that a rank computes, divided by the mean over ranks.
    pub area: f64,
    /// The largest number of tokens that a rank owns, divided by the mean over ranks.
    pub tokens: f64,
    /// Maximum over ranks of the bytes that a rank receives in the forward pass.
    pub received: u64,
    /// Maximum over ranks of the bytes that a rank receives from other nodes in the forward pass.
    pub far: u64,
    /// The mean over all ranks of the bytes that a rank receives in the forward pass.
    pub mean_received: f64,
    /// Maximum over ranks of the number of peers, which are the other ranks with which a rank exchanges data.
    pub peers: u32,
}

/// Returns, for each rank, the numbers of allowed cells that it computes, `[all, in mixed tiles]`. A mixed tile has
/// allowed and denied cells.
pub(crate) fn areas(layout: &Layout, strips: &Strips, ranks: usize) -> Vec<[f64; 2]> {
    let mut out = vec![[0.0; 2]; ranks];
    let mut add = |rank: u32, [all, mixed]: [f64; 2]| {
        let sum = &mut out[rank as usize];
        *sum = [sum[0] + all, sum[1] + mixed];
    };
    match &layout.work {
        Work::Owner => {
            layout.queries.parts().for_each(|(rows, rank)| add(rank, strips.count(rows, [0, strips.kv_len()])));
        }
        Work::Blocks(blocks) => blocks.iter().for_each(|b| add(b.rank, strips.count(b.rows, b.keys))),
    }
    out
}

/// Returns the maximum of `values` divided by their mean; 1 if all values are zero.
pub(crate) fn over_mean(values: impl Iterator<Item = f64> + Clone) -> f64 {
    let (sum, number) = values.clone().fold((0.0, 0.0), |(sum, number), v| (sum + v, number + 1.0));
    if sum > 0.0 { values.fold(0.0, f64::max) * number / sum } else { 1.0 }
}

impl Measures {
    /// Returns the measures of a split. `shares` holds the share of each rank, and `areas` the numbers of allowed cells
    /// that each rank computes, `[all, in mixed tiles (tiles with allowed and denied cells)]`. `node` returns the node
    /// of a rank.
    pub(crate) fn new(shares: &[Share], areas: &[[f64; 2]], sizes: &Sizes, node: impl Fn(usize) -> usize) -> Self {
        let traffic: Vec<_> = shares.iter().map(|s| sizes.traffic(s)).collect();
        let far = |(rank, share): (usize, &Share)| -> u64 {
            let other = |peer: u32| node(peer as usize) != node(rank);
            let comes = share.receives.iter().filter(|e| other(e.peer)).map(|e| sizes.of(e)[0]);
            let returns = share.sends.iter().filter(|e| other(e.peer)).map(|e| sizes.of(e)[1]);
            comes.sum::<u64>() + returns.sum::<u64>()
        };
        let sum = |of: fn(&Share) -> &crate::Runs| shares.iter().map(|s| count(of(s))).sum::<u64>();
        let both = [sum(|s| &s.queries), sum(|s| &s.keys)];
        // Tokens are counted on the longer axis, so that a single query of decoding is not counted as imbalance.
        let owned = |s: &Share| count(if both[0] > both[1] { &s.queries } else { &s.keys }) as f64;
        Measures {
            area: over_mean(areas.iter().map(|a| a[0])),
            tokens: over_mean(shares.iter().map(owned)),
            received: traffic.iter().map(|t| t.received).max().unwrap_or(0),
            far: shares.iter().enumerate().map(far).max().unwrap_or(0),
            mean_received: traffic.iter().map(|t| t.received).sum::<u64>() as f64 / shares.len().max(1) as f64,
            peers: traffic.iter().map(|t| t.peers).max().unwrap_or(0),
        }
    }

    /// Returns true if `self` is better than `other` in at least one of `area`, `tokens`, `received` and `peers`, and
    /// worse in none of them. Smaller numbers are better.
    pub(crate) fn dominates(&self, other: &Self) -> bool {
        let pairs = |a: &Self| [a.area, a.tokens, a.received as f64, f64::from(a.peers)];
        let (mine, theirs) = (pairs(self), pairs(other));
        mine.iter().zip(&theirs).all(|(a, b)| *a <= *b + 1e-9) && mine.iter().zip(&theirs).any(|(a, b)| *a < *b - 1e-9)
    }
}

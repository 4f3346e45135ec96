//! [`partition`]: the split that a stated objective asks for.

use crate::contiguous::{chains, equal, owners};
use crate::layout::{Layout, Tie};
use crate::partition::{Head, Partition, RowPartition, Travel};
use crate::runs::Owners;
use crate::strips::Strips;
use crate::Error;
use noren_mask::Plan;

/// How a mask is split.
#[derive(Clone, PartialEq, Debug)]
pub struct Options {
    /// Number of ranks.
    pub ranks: usize,
    /// Number of nodes on which they live, consecutive ranks together.
    pub nodes: usize,
    /// What may travel.
    pub travel: Travel,
}

impl Default for Options {
    fn default() -> Self {
        Options { ranks: 1, nodes: 1, travel: Travel::Both }
    }
}

/// Splits a planned mask over ranks.
///
/// # Errors
/// A number of ranks or nodes that makes no sense.
pub fn partition(plan: &Plan, options: &Options) -> Result<Partition, Error> {
    let Options { ranks, nodes, .. } = *options;
    if ranks == 0 || ranks > 1 << 16 {
        return Err(Error::Ranks(format!("{ranks} ranks: give 1 to 65536")));
    }
    if nodes == 0 || nodes > ranks {
        return Err(Error::Ranks(format!("{nodes} nodes for {ranks} ranks: give 1 to {ranks}")));
    }
    let shape = plan.shape();
    let rows = (0..shape.batch_len()).map(|batch| {
        let strips = Strips::new(plan, batch, 64);
        let areas: Vec<f64> = strips.iter().map(|s| s.area()).collect();
        let tokens: Vec<f64> = strips.iter().map(|s| f64::from(s.rows())).collect();
        let ends: Vec<u32> = strips.iter().map(|s| s.end).collect();
        let cut = chains(&areas, &tokens, ranks, f64::INFINITY).expect("no limit on tokens");
        let queries = owners(&cut, &ends);
        let keys = match Tie::new(shape, batch) {
            Tie::Apart => equal(strips.kv_len(), ranks),
            Tie::Shifted(shift) => {
                let mut keys = Owners::default();
                keys.push(shift, 0);
                queries.parts().for_each(|([_, end], rank)| keys.push(end + shift, rank));
                keys
            }
        };
        RowPartition::of_layout(&Layout::by_owner(queries, keys), &strips, ranks)
    });
    let rows: Vec<RowPartition> = rows.collect();
    let head = Head { method: "contiguous".into(), travel: Travel::Keys, ranks, nodes };
    Ok(Partition::new(plan.bound(), head, (0..rows.len()).collect(), rows))
}

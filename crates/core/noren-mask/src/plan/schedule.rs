//! Division of a plan into work items of about equal cost, to distribute them over threads.

use crate::plan::{PatternPlan, Plan, SpanKind};
use std::ops::Range;

/// A work item: consecutive query tiles of one batch row and query head.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WorkItem {
    /// The batch row.
    pub batch: usize,
    /// The query head.
    pub head: usize,
    /// The range of tile numbers, from 0, in the [`PatternPlan`] of this batch row and head.
    pub tiles: Range<usize>,
    /// The cost of the work item: the number of computed cells, in which each cell of a mixed span counts 1.5 times.
    pub cost: u64,
}

impl Plan {
    /// Divides all tiles of all batch rows and heads into work items. The target cost of a work item is the total cost
    /// divided by `parts`. A work item of several tiles exceeds this target by at most half of the cost of its last
    /// tile. The work items of query heads that share keys and values are consecutive.
    ///
    /// Every tile is in exactly one work item. Tiles that read no key are included, because a kernel must also write
    /// the output of their rows.
    pub fn schedule(&self, parts: usize) -> Vec<WorkItem> {
        let costs: Vec<Vec<u64>> = self.patterns().iter().map(tile_costs).collect();
        let (batch, heads) = (self.shape().batch_len(), self.shape().head_count());
        let pairs = || (0..batch).flat_map(|b| (0..heads).map(move |h| (b, h)));
        let total: u64 = pairs().map(|(b, h)| costs[self.pattern_of(b, h)].iter().sum::<u64>()).sum();
        let target = total.div_ceil(parts.max(1) as u64).max(1);
        let mut items = Vec::new();
        for (batch, head) in pairs() {
            let costs = &costs[self.pattern_of(batch, head)];
            let mut item = WorkItem { batch, head, tiles: 0..0, cost: 0 };
            for (tile, cost) in costs.iter().enumerate() {
                // the tile belongs to the item that contains its middle
                if item.cost > 0 && 2 * item.cost + cost > 2 * target {
                    items.push(std::mem::replace(&mut item, WorkItem { batch, head, tiles: tile..tile, cost: 0 }));
                }
                item.tiles.end = tile + 1;
                item.cost += cost;
            }
            items.push(item);
        }
        items
    }
}

fn tile_costs(plan: &PatternPlan) -> Vec<u64> {
    let cost = |tile: crate::Tile<'_>| {
        let keys: u64 =
            tile.spans.iter().map(|s| u64::from(s.keys()) * if s.kind == SpanKind::Mixed { 3 } else { 2 }).sum();
        // a tile that reads no key still writes its rows
        u64::from(tile.rows()) * (keys / 2).max(1)
    };
    plan.tiles().map(cost).collect()
}

//! What others do, from their published descriptions, measured the same way: only keys travel, and only those that are read.
//!
//! * `contiguous`: equal runs of tokens (ring attention without reordering).
//! * `zigzag`: `2 * ranks` equal pieces, the first with the last and so on (Llama 3; PyTorch's `_HeadTailLoadBalancer`).
//! * `striped`: token `i` to rank `i % ranks` (striped attention, Brandon et al. 2023).
//! * `ptrr`: blocks of 128 rows, sorted by the number of key blocks that they read, dealt out forth and back
//!   (PyTorch's `_PTRRLoadBalancer`).
//! * `min-heap`: eight chunks for each rank, the largest first, each to the rank with the least so far that is not full
//!   (MagiAttention's `MinHeapDispatchAlg`, `MAGI_ATTENTION_MIN_CHUNKS_PER_RANK` 8).

use crate::contiguous::equal;
use crate::layout::{Layout, Tie};
use crate::measure::{Measures, areas};
use crate::runs::{Owners, Runs, merged};
use crate::strips::Strips;
use crate::wire::Sizes;
use crate::zigzag;
use serde::Serialize;

/// The block of PyTorch's `BlockMask`.
const BLOCK: u32 = 128;
/// MagiAttention's chunks for each rank.
const CHUNKS: u32 = 8;

/// What another system's rule comes to on a mask.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Baseline {
    /// `contiguous`, `zigzag`, `striped`, `ptrr` or `min-heap`.
    pub name: &'static str,
    /// What it costs.
    pub measures: Measures,
}

/// All rules that apply: those that need divisible lengths are left out where they are not.
pub(crate) fn baselines(strips: &Strips, tie: Tie, ranks: usize, sizes: &Sizes) -> Vec<Baseline> {
    let len = strips.q_len();
    if tie != Tie::Shifted(0) {
        return Vec::new();
    }
    let measured = |name: &'static str, owners: Owners| {
        let layout = Layout::by_owner(owners.clone(), owners);
        let mut shares = layout.shares(strips, ranks);
        crate::partition::mirror(&mut shares);
        Baseline { name, measures: Measures::new(&shares, &areas(&layout, strips, ranks), sizes) }
    };
    let mut out = vec![measured("contiguous", equal(len, ranks))];
    out.push(measured("zigzag", zigzag::owners(len, ranks)));
    out.push(striped(strips, ranks, sizes));
    if len.is_multiple_of(BLOCK) && (len / BLOCK).is_multiple_of(ranks as u32) {
        out.push(measured("ptrr", ptrr(strips, ranks)));
    }
    if len >= CHUNKS * ranks as u32 {
        out.push(measured("min-heap", min_heap(strips, ranks)));
    }
    out
}

/// Every rank has a row in every strip of `ranks` rows or more, so all read what anybody reads.
fn striped(strips: &Strips, ranks: usize, sizes: &Sizes) -> Baseline {
    let read: Runs = merged(strips.iter().flat_map(|s| s.pieces.iter().map(|p| [p.start, p.end])).collect());
    let others = crate::runs::count(&read) as f64 * (1.0 - 1.0 / ranks as f64) * sizes.key as f64;
    let measures = Measures {
        area: 1.0,
        tokens: 1.0,
        received: others as u64,
        mean_received: others,
        peers: ranks as u32 - 1,
    };
    Baseline { name: "striped", measures }
}

fn ptrr(strips: &Strips, ranks: usize) -> Owners {
    let blocks = strips.q_len() / BLOCK;
    let read = |block: u32| -> u32 {
        let strips = strips.within(block * BLOCK, (block + 1) * BLOCK);
        let pieces = strips.flat_map(|s| s.pieces.iter().map(|p| [p.start / BLOCK, p.end.div_ceil(BLOCK)]));
        merged(pieces.collect()).iter().map(|[a, z]| z - a).sum()
    };
    let mut order: Vec<(u32, u32)> = (0..blocks).map(|b| (read(b), b)).collect();
    order.sort_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(&b.1)));
    let deal = |(i, (_, block)): (usize, (u32, u32))| {
        let (turn, at) = (i / ranks, i % ranks);
        let rank = if turn % 2 == 0 { at } else { ranks - 1 - at };
        ([block * BLOCK, (block + 1) * BLOCK], rank as u32)
    };
    Owners::from_parts(order.into_iter().enumerate().map(deal).collect())
}

fn min_heap(strips: &Strips, ranks: usize) -> Owners {
    let len = strips.q_len();
    let chunk = len.div_ceil(CHUNKS * ranks as u32);
    let area = |start: u32| strips.within(start, len.min(start + chunk)).map(|s| s.area()).sum::<f64>();
    let mut order: Vec<(f64, u32)> = (0..len).step_by(chunk as usize).map(|start| (area(start), start)).collect();
    order.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
    let mut load = vec![(0f64, 0u32); ranks];
    let mut parts = Vec::new();
    for (area, start) in order {
        let free = (0..ranks).filter(|r| load[*r].1 < CHUNKS);
        let rank = free.min_by(|a, b| load[*a].0.total_cmp(&load[*b].0)).expect("as many places as chunks");
        load[rank] = (load[rank].0 + area, load[rank].1 + 1);
        parts.push(([start, len.min(start + chunk)], rank as u32));
    }
    Owners::from_parts(parts)
}

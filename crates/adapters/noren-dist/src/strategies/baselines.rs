//! The rules by which other methods and libraries split a sequence over ranks, as published. Their splits are measured
//! with the measures of this crate. In all of these splits, only keys and values travel, and a rank receives only keys
//! that its queries read.
//!
//! * `contiguous`: equal runs of tokens (ring attention without reordering).
//! * `zigzag`: `2 * ranks` equal runs of tokens. Each rank gets one from the beginning and one from the end (Llama 3;
//!   PyTorch's `_HeadTailLoadBalancer`).
//! * `striped`: token `i` to rank `i % ranks` (striped attention, Brandon et al. 2023).
//! * `ptrr`: blocks of 128 rows, sorted by the number of key blocks that they read, given to the ranks in alternating
//!   order: first to last, then last to first (PyTorch's `_PTRRLoadBalancer`).
//! * `min-heap`: eight chunks of tokens for each rank. Chunks are assigned in descending order of their allowed cells.
//!   Each chunk goes to the rank with the fewest allowed cells so far that has fewer than eight chunks (MagiAttention's
//!   `MinHeapDispatchAlg`, `MAGI_ATTENTION_MIN_CHUNKS_PER_RANK` 8).

use crate::costs::measure::Measures;
use crate::partition::Partition;
use crate::partition::layout::Tie;
use crate::partition::runs::{Owners, merged};
use crate::partition::strips::Strips;
use crate::strategies::contiguous::equal;
use crate::strategies::zigzag;

/// The number of tokens in one block of PyTorch's `BlockMask`.
const BLOCK: u32 = 128;
/// The number of chunks (runs of tokens) that each rank gets from MagiAttention's rule.
const CHUNKS: u32 = 8;
/// The maximum number of stripes of the rule `striped`; with many ranks, at least four stripes for each rank are
/// allowed. The rule gives stripes (runs of consecutive tokens) to the ranks in rotation. If a sequence has more tokens
/// than this maximum, a stripe has several tokens instead of one. This affects only masks whose neighbouring tokens
/// read different keys.
const MOST_STRIPES: u32 = 1 << 13;

/// The split of a mask over ranks by a published rule, for example that of PyTorch or MagiAttention, with its measures.
#[derive(Clone, PartialEq, Debug)]
pub struct Baseline {
    /// Name of the rule: `contiguous`, `zigzag`, `striped`, `ptrr` or `min-heap`.
    pub name: &'static str,
    /// The measures of the baseline's split.
    pub measures: Measures,
    /// The baseline's split, as a partition of this crate.
    pub partition: Partition,
}

/// A published rule of another method or library, by which a sequence is split over ranks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Rule {
    Contiguous,
    Zigzag,
    Striped,
    Ptrr,
    MinHeap,
}

/// All published rules of other methods and libraries, by which a sequence is split over ranks.
pub(crate) const RULES: [Rule; 5] = [Rule::Contiguous, Rule::Zigzag, Rule::Striped, Rule::Ptrr, Rule::MinHeap];

impl Rule {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Rule::Contiguous => "contiguous",
            Rule::Zigzag => "zigzag",
            Rule::Striped => "striped",
            Rule::Ptrr => "ptrr",
            Rule::MinHeap => "min-heap",
        }
    }

    /// Returns the rank that owns each query row under this rule. Returns `None` if queries and keys are not the same
    /// tokens, if `ptrr` cannot give each rank the same number of blocks of 128 tokens, or if `min-heap` has fewer than
    /// 8 tokens for each rank.
    pub(crate) fn owners(self, strips: &Strips, tie: Tie, ranks: usize) -> Option<Owners> {
        let len = strips.q_len();
        if tie != Tie::Shifted(0) {
            return None;
        }
        match self {
            Rule::Contiguous => Some(equal(len, ranks)),
            Rule::Zigzag => Some(zigzag::owners(len, ranks)),
            Rule::Striped => Some(striped(len, ranks)),
            Rule::Ptrr => {
                (len.is_multiple_of(BLOCK) && (len / BLOCK).is_multiple_of(ranks as u32)).then(|| ptrr(strips, ranks))
            }
            Rule::MinHeap => (len >= CHUNKS * ranks as u32).then(|| min_heap(strips, ranks)),
        }
    }
}

fn striped(len: u32, ranks: usize) -> Owners {
    let width = len.div_ceil(MOST_STRIPES.max(4 * ranks as u32)).max(1);
    let mut out = Owners::default();
    for i in 0..len.div_ceil(width) {
        out.push(len.min((i + 1) * width), i % ranks as u32);
    }
    out
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
        let rank = free
            .min_by(|a, b| load[*a].0.total_cmp(&load[*b].0))
            .expect("the ranks together can take all chunks, so at least one rank has space");
        load[rank] = (load[rank].0 + area, load[rank].1 + 1);
        parts.push(([start, len.min(start + chunk)], rank as u32));
    }
    Owners::from_parts(parts)
}

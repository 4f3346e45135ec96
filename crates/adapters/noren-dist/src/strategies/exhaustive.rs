//! All possible splits of a mask over ranks, for masks with few strips (runs of query rows) and few ranks.

use crate::partition::Travel;
use crate::partition::layout::{Block, Layout, Work};
use crate::partition::runs::Owners;
use crate::partition::strips::Strips;

/// The maximum number of splits of one kind that are enumerated. The two kinds are splits by owners of queries and
/// splits by rectangles.
const MOST: usize = 1024;

/// Returns all possible layouts of two kinds. The first strip (a run of query rows) always belongs to rank 0, because
/// ranks are interchangeable.
///
/// * By owners: each strip has a rank, which owns the strip's queries and computes their cells.
/// * By rectangles, only if queries may travel: each strip has a rank that owns it, and each rectangle (the rows of one
///   strip x the keys of another strip) has its own rank that computes its cells.
///
/// A kind with more than `MOST` layouts is left out.
pub(crate) fn layouts(strips: &Strips, ranks: usize, travel: Travel) -> Vec<Layout> {
    if ranks < 2 || number(ranks, strips.iter().count()).is_none() {
        return Vec::new();
    }
    let rows: Vec<[u32; 2]> = strips.iter().map(|s| [s.start, s.end]).collect();
    let squares: Vec<([u32; 2], [u32; 2])> = match travel {
        Travel::Keys => Vec::new(),
        Travel::Both => {
            let reads = |rows: [u32; 2], keys: [u32; 2]| strips.count(rows, keys)[0] > 0.0;
            let all = rows.iter().flat_map(|r| rows.iter().map(move |k| (*r, *k)));
            all.filter(|(r, k)| reads(*r, *k)).take(MOST).collect()
        }
    };
    let mut out = Vec::new();
    if number(ranks, rows.len()).is_some() {
        each(ranks, rows.len(), |choice| {
            let owners = owned(&rows, choice);
            out.push(Layout::by_owner(owners.clone(), owners));
        });
    }
    if travel == Travel::Both && number(ranks, rows.len() + squares.len()).is_some() {
        each(ranks, rows.len() + squares.len(), |choice| {
            let owners = owned(&rows, choice);
            let block =
                |((rows, keys), rank): (&([u32; 2], [u32; 2]), &u32)| Block { rank: *rank, rows: *rows, keys: *keys };
            let blocks = squares.iter().zip(&choice[rows.len()..]).map(block).collect();
            out.push(Layout { queries: owners.clone(), keys: owners, work: Work::Blocks(blocks) });
        });
    }
    out
}

/// Returns the number of ways to give `items` objects to `ranks` ranks if the first object always goes to the same
/// rank. Returns `None` if the number is larger than `MOST`.
fn number(ranks: usize, items: usize) -> Option<usize> {
    let all = ranks.checked_pow(items.saturating_sub(1) as u32)?;
    (items > 0 && all <= MOST).then_some(all)
}

fn each(ranks: usize, items: usize, mut f: impl FnMut(&[u32])) {
    let mut choice = vec![0; items];
    loop {
        f(&choice);
        // the next choice: the last item changes fastest, the first one never
        let Some(at) = (1..items).rev().find(|i| choice[*i] + 1 < ranks as u32) else { return };
        choice[at] += 1;
        choice[at + 1..].fill(0);
    }
}

fn owned(rows: &[[u32; 2]], choice: &[u32]) -> Owners {
    Owners::from_parts(rows.iter().copied().zip(choice.iter().copied()).collect())
}

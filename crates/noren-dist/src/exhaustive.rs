//! Every split there is, where there are few: small instances are solved, not guessed.

use crate::layout::{Block, Layout, Work};
use crate::partition::Travel;
use crate::runs::Owners;
use crate::strips::Strips;

/// More splits than this are not tried.
const MOST: usize = 1024;

/// All owners of strips, each query computed by its owner; and where queries may travel, all ranks for every square of two
/// strips too. Ranks are alike, so the first strip is the first rank's. Empty when there are more than a thousand.
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

/// Choices of a rank for each of `items`, the first fixed, when they are few.
fn number(ranks: usize, items: usize) -> Option<usize> {
    let all = ranks.checked_pow(items.saturating_sub(1) as u32)?;
    (items > 0 && all <= MOST).then_some(all)
}

fn each(ranks: usize, items: usize, mut f: impl FnMut(&[u32])) {
    let mut choice = vec![0; items];
    loop {
        f(&choice);
        // count on, the last item fastest; the first stays
        let Some(at) = (1..items).rev().find(|i| choice[*i] + 1 < ranks as u32) else { return };
        choice[at] += 1;
        choice[at + 1..].fill(0);
    }
}

fn owned(rows: &[[u32; 2]], choice: &[u32]) -> Owners {
    Owners::from_parts(rows.iter().copied().zip(choice.iter().copied()).collect())
}

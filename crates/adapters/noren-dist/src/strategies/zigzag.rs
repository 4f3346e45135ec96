//! The zigzag split: each rank owns a run of tokens from the beginning and a run from the end of the sequence.

use crate::partition::runs::Owners;

/// Splits the positions `start..end` into `2 * ranks.len()` runs of equal length (up to rounding) and appends each run
/// with its rank to `out`. The first rank in `ranks` gets the first and the last run, the second rank gets the second
/// run and the last but one, and so on. Under a causal mask, all ranks then have about equal work.
pub(crate) fn pieces(start: u32, end: u32, ranks: &[u32], out: &mut Vec<([u32; 2], u32)>) {
    let number = 2 * ranks.len() as u64;
    let border = |i: u64| start + (u64::from(end - start) * i / number) as u32;
    for i in 0..number {
        let rank = ranks[i.min(number - 1 - i) as usize];
        if border(i) < border(i + 1) {
            out.push(([border(i), border(i + 1)], rank));
        }
    }
}

/// Returns the owners of positions `0..len` by the zigzag split over `ranks` ranks.
pub(crate) fn owners(len: u32, ranks: usize) -> Owners {
    let mut parts = Vec::new();
    pieces(0, len, &(0..ranks as u32).collect::<Vec<_>>(), &mut parts);
    Owners::from_parts(parts)
}

//! Head and tail: each rank owns one piece from the beginning and one from the end.

use crate::runs::Owners;

/// Splits `start..end` into `2 * ranks.len()` pieces of equal length. The first and the last piece go to the first
/// rank, the next ones inwards to the second, and so on: under a causal mask all ranks have the same work.
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

/// Returns owners of `0..len` by head and tail.
pub(crate) fn owners(len: u32, ranks: usize) -> Owners {
    let mut parts = Vec::new();
    pieces(0, len, &(0..ranks as u32).collect::<Vec<_>>(), &mut parts);
    Owners::from_parts(parts)
}

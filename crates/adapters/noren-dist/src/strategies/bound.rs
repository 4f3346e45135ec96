//! Lower bounds on the bytes that the busiest rank receives in any split. The busiest rank is the rank that receives
//! the most bytes.

use crate::partition::Travel;
use crate::partition::layout::Tie;
use crate::partition::strips::Strips;
use crate::partition::wire::Sizes;
use serde::Serialize;

/// A lower bound on the bytes that the busiest rank (the rank that receives the most bytes) receives, with the reason.
/// The bound holds for every split in which no rank owns more than the maximum number of tokens.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Bound {
    /// The bytes that at least one rank receives in the forward pass.
    pub bytes: u64,
    /// The reason why at least one rank receives `bytes` or more in every split.
    pub why: String,
}

/// Returns the larger of two lower bounds on the bytes that the busiest rank (the rank that receives the most bytes)
/// receives, if ranks own at most `most` tokens. Returns `None` if queries and keys are not the same tokens, if heads
/// have different masks, or if both bounds are 0. The bounds follow from these two observations:
///
/// * If ranks send only keys and values, the owner of the query row that reads the most keys receives those of these keys
///   that it does not own.
/// * If no query reads later keys, the i-th row that a rank owns reads at most `i` of the keys that the rank owns. For
///   a row that reads `L` keys, the rank receives the other `L - i` keys, or another rank computes a part of the row,
///   which costs a query and a result. Rows that read fewer than `L` keys may cost nothing, so their bytes are
///   subtracted. There are few such rows if every row reads a long window.
pub(crate) fn bound(
    strips: &Strips,
    tie: Tie,
    ranks: usize,
    most: f64,
    travel: Travel,
    sizes: &Sizes,
) -> Option<Bound> {
    if tie != Tie::Shifted(0) || !strips.single() || ranks < 2 {
        return None;
    }
    let longest = strips.iter().map(|s| (s.area() / strips.heads() / f64::from(s.rows())).floor()).fold(0.0, f64::max);
    let mut best = Bound { bytes: 0, why: String::new() };
    if travel == Travel::Keys && longest > most {
        best.bytes = (longest - most) as u64 * sizes.key;
        best.why = format!(
            "only keys are sent, a query reads {longest:.0} keys, and the rank that owns the query owns at most {most:.0} of these keys"
        );
    }
    if let Some(found) = looking_back(strips, ranks as f64, most, travel, sizes).filter(|b| b.bytes > best.bytes) {
        best = found;
    }
    (best.bytes > 0).then_some(best)
}

fn looking_back(strips: &Strips, ranks: f64, most: f64, travel: Travel, sizes: &Sizes) -> Option<Bound> {
    // the maximum distance from the first row of a strip to the end of the keys that the strip reads
    let mut ahead = 0;
    // for each strip: the number of keys that all of its rows read, and the number of its rows
    let mut read: Vec<(u32, u32)> = Vec::new();
    for strip in strips.iter() {
        ahead = ahead.max(strip.pieces.iter().map(|p| p.end.saturating_sub(strip.start)).max().unwrap_or(0));
        read.push((strip.pieces.iter().filter(|p| !p.mixed).map(|p| p.end - p.start).sum(), strip.rows()));
    }
    let widest = strips.iter().map(|s| s.rows()).max().unwrap_or(0);
    if ahead > widest {
        return None;
    }
    read.sort_unstable();
    let all = f64::from(strips.q_len());
    let (key, foreign) = (sizes.key as f64, (sizes.query + sizes.result) as f64);
    let (mut shorter, mut best) = (0.0, (0.0, 0.0));
    for (keys, rows) in read {
        let needed = f64::from(keys) - f64::from(widest);
        let holders = all / most; // the minimum number of ranks that own anything
        for price in [key, foreign] {
            // each rank receives the keys that it does not own, or other ranks compute the rows that read these keys
            let each = (key * needed).min(price * needed.min(most));
            let bytes = match travel {
                Travel::Keys if most >= needed => key * (needed * holders - shorter) / ranks,
                Travel::Keys => 0.0,
                Travel::Both => (holders * each - price * shorter) / ranks,
            };
            if bytes > best.0 {
                best = (bytes, needed);
            }
        }
        shorter += f64::from(rows);
    }
    let why = format!(
        "no query reads later keys, so the first query rows that a rank owns read up to {:.0} keys that other ranks send, or other ranks compute these rows at a cost of {} bytes per row",
        best.1,
        sizes.query + sizes.result
    );
    (best.0 > 0.0).then_some(Bound { bytes: best.0 as u64, why })
}

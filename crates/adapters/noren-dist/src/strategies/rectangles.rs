//! A split into rectangles: the cells of a mask are repeatedly cut in two, between query rows or between keys, until
//! each rank has one rectangle.
//!
//! Recursive bisection (Berger and Bokhari 1987) chooses the cut that duplicates less data. After a cut between rows,
//! both halves receive the keys that rows of both halves read. After a cut between keys, both halves receive the rows
//! that read keys of both halves. Thus the triangle of cells of a large document is split into squares; with four times
//! as many ranks, each rank receives half the data. Rows that read all keys are cut between keys, and masks with short
//! windows are cut between rows.

use crate::partition::layout::Block;
use crate::partition::runs::{Runs, count, merged};
use crate::partition::strips::Strips;
use crate::partition::wire::Sizes;

/// The directions in which a rectangle may be cut in two.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Cuts {
    /// Rectangles are cut between query rows only.
    Rows,
    /// Rectangles are cut between query rows or between keys, whichever cut duplicates less data.
    Cheaper,
}

/// A rectangle of query rows x keys that the ranks `first..first + ranks` compute.
#[derive(Clone, Copy, Debug)]
struct Region {
    rows: [u32; 2],
    keys: [u32; 2],
    first: u32,
    ranks: u32,
}

/// Divides the mask of a batch row into rectangles of query rows x keys, one for each rank. The mask is first divided
/// among the nodes, and then the part of each node among the `per_node` consecutive ranks of the node.
pub(crate) fn blocks(strips: &Strips, ranks: usize, per_node: usize, cuts: Cuts, sizes: &Sizes) -> Vec<Block> {
    let all = Region { rows: [0, strips.q_len()], keys: [0, strips.kv_len()], first: 0, ranks: ranks as u32 };
    let mut open = vec![all];
    let mut out = Vec::with_capacity(ranks);
    while let Some(region) = open.pop() {
        if region.ranks == 1 {
            out.push(Block { rank: region.first, rows: region.rows, keys: region.keys });
            continue;
        }
        let (a, b) = halves(strips, &region, per_node as u32, cuts, sizes);
        open.extend([b, a]);
    }
    out
}

fn halves(strips: &Strips, region: &Region, per_node: u32, cuts: Cuts, sizes: &Sizes) -> (Region, Region) {
    let first = match region.ranks > per_node {
        true => ((region.ranks / 2).div_ceil(per_node) * per_node).min(region.ranks - 1),
        false => region.ranks / 2,
    };
    let part = f64::from(first) / f64::from(region.ranks);
    let by_rows = row_cut(strips, region, part);
    let by_keys = key_cut(strips, region, part);
    let twice = |cost: u64, [at, from, to]: [u32; 3]| if from < at && at < to { cost } else { u64::MAX };
    let [r0, r1] = region.rows;
    let [k0, k1] = region.keys;
    let rows = || twice(shared_keys(strips, region, by_rows) * sizes.key, [by_rows, r0, r1]);
    let keys = || twice(shared_rows(strips, region, by_keys) * (sizes.query + sizes.result), [by_keys, k0, k1]);
    let cut_rows = cuts == Cuts::Rows && r1 - r0 > 1 || rows() <= keys();
    let rest = Region { first: region.first + first, ranks: region.ranks - first, ..*region };
    let part = Region { ranks: first, ..*region };
    match cut_rows {
        true => (Region { rows: [r0, by_rows], ..part }, Region { rows: [by_rows, r1], ..rest }),
        false => (Region { keys: [k0, by_keys], ..part }, Region { keys: [by_keys, k1], ..rest }),
    }
}

/// Returns the query row at which to cut the rectangle `region`, so that about the fraction `part` of the rectangle's
/// allowed cells is before the cut.
fn row_cut(strips: &Strips, region: &Region, part: f64) -> u32 {
    let [k0, k1] = region.keys;
    let strips = || strips.within(region.rows[0], region.rows[1]);
    let total: f64 = strips().map(|s| s.area_within(k0, k1)).sum();
    let mut left = total * part;
    for strip in strips() {
        let area = strip.area_within(k0, k1);
        if area >= left && area > 0.0 {
            // Strips end at borders of the content, so a strip is cut only if it is large.
            return match area * f64::from(region.ranks) > 0.01 * total {
                true => strip.start + (f64::from(strip.rows()) * left / area).round() as u32,
                false => {
                    if 2.0 * left < area {
                        strip.start
                    } else {
                        strip.end
                    }
                }
            };
        }
        left -= area;
    }
    region.rows[0] + (f64::from(region.rows[1] - region.rows[0]) * part) as u32
}

/// Returns the key at which to cut the rectangle `region`, so that about the fraction `part` of the rectangle's allowed
/// cells is before the cut.
fn key_cut(strips: &Strips, region: &Region, part: f64) -> u32 {
    let [k0, k1] = region.keys;
    // the keys at which the number of cells rises and falls
    let mut changes: Vec<(u32, f64)> = Vec::new();
    let mut total = 0.0;
    for strip in strips.within(region.rows[0], region.rows[1]) {
        for ([start, end], area) in strip.pieces_within(k0, k1) {
            let height = area / f64::from(end - start);
            changes.extend([(start, height), (end, -height)]);
            total += area;
        }
    }
    changes.sort_unstable_by_key(|c| c.0);
    let (mut left, mut height, mut at) = (total * part, 0.0, k0);
    for (key, change) in changes {
        let area = height * f64::from(key - at);
        if area >= left && area > 0.0 {
            return at + (left / height).round() as u32;
        }
        left -= area;
        (height, at) = (height + change, key);
    }
    k0 + (f64::from(k1 - k0) * part) as u32
}

/// Returns the number of keys of the rectangle `region` that are read both by rows before the query row `cut` and by
/// later rows. If the rectangle is cut there, both parts need these keys.
fn shared_keys(strips: &Strips, region: &Region, cut: u32) -> u64 {
    let [k0, k1] = region.keys;
    let read = |from: u32, to: u32| -> Runs {
        let mut out = Runs::new();
        for strip in strips.within(from, to) {
            out.extend(strip.pieces_within(k0, k1).map(|(part, _)| part));
        }
        merged(out)
    };
    let (before, after) = (read(region.rows[0], cut), read(cut, region.rows[1]));
    count(&crate::partition::layout::common(&before, &after))
}

/// Returns the number of query rows of the rectangle `region` that read both keys before the key `cut` and later keys.
/// If the rectangle is cut there, both parts need these rows.
fn shared_rows(strips: &Strips, region: &Region, cut: u32) -> u64 {
    let [k0, k1] = region.keys;
    let reads = |s: &crate::partition::strips::Strip<'_>, from, to| s.pieces_within(from, to).next().is_some();
    let strips = strips.within(region.rows[0], region.rows[1]);
    strips.filter(|s| reads(s, k0, cut) && reads(s, cut, k1)).map(|s| u64::from(s.rows())).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::partition::wire::Wire;
    use noren_mask::{Facts, Mask, Shape, atoms::*};

    fn split(mask: Mask, ranks: usize) -> Vec<Block> {
        let bound = mask.bind(&Shape::square(256), &Facts::new()).expect("binds");
        let strips = Strips::new(&bound.plan(), 0, 16);
        blocks(&strips, ranks, ranks, Cuts::Cheaper, &Wire::default().sizes(1, 1))
    }

    #[test]
    fn local_masks_are_cut_by_rows_and_global_rows_by_keys() {
        assert!(split(sliding(16), 4).iter().all(|b| b.keys == [0, 256]));
        assert!(split(queries(0..8), 4).iter().all(|b| b.rows == [0, 256]));
        let mixed = split(full(), 4);
        assert_eq!(mixed.iter().map(|b| b.rows[1] - b.rows[0]).collect::<Vec<_>>(), [128; 4]);
    }
}

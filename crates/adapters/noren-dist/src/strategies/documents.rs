//! A split by documents: a small document goes to one rank. A large document is divided among a group of ranks, each of
//! which owns a run of tokens from its beginning and a run from its end (zigzag).

use crate::partition::runs::Owners;
use crate::partition::strips::Strips;
use crate::strategies::zigzag;

/// A document is small if its number of allowed cells is less than this fraction of the cells that a rank computes on
/// average. Small documents are not divided among ranks.
const SMALL: f64 = 0.02;

/// A run of query rows that read only keys of tokens in the same run. `area` is the number of allowed cells in these
/// rows.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Document {
    pub(crate) start: u32,
    pub(crate) end: u32,
    pub(crate) area: f64,
}

/// Returns the documents: the shortest runs of query rows that share no keys with the rows around them. The documents
/// are found from the allowed cells, not from the definition of the mask. `shift` is the index of the key that belongs
/// to the same token as query row 0.
pub(crate) fn documents(strips: &Strips, shift: u32) -> Vec<Document> {
    let mut out: Vec<Document> = Vec::new();
    let mut reach = 0; // the last row that is connected with any row so far
    for strip in strips.iter() {
        let (mut near, mut far) = (strip.start, strip.end);
        let pieces = strip.pieces.iter().map(|p| (p.start.saturating_sub(shift), p.end.saturating_sub(shift)));
        let mut pieces: Vec<(u32, u32)> = pieces.collect();
        pieces.sort_unstable();
        // runs of keys around the strip's own
        pieces.iter().rev().for_each(|&(start, end)| {
            if end >= near && start < near {
                near = start;
            }
        });
        pieces.iter().for_each(|&(start, end)| {
            if start <= far && end > far {
                far = end;
            }
        });
        let mut now = Document { start: strip.start, end: strip.end, area: strip.area() };
        let mut tied = reach > strip.start;
        while let Some(last) = out.pop_if(|last| tied || last.end > near) {
            now = Document { start: last.start, area: now.area + last.area, ..now };
            tied = false;
        }
        out.push(now);
        reach = reach.max(far);
    }
    out
}

/// Returns the owners of tokens. Ranks form groups of `group` ranks, and each document goes to the group with the least
/// work, or to several groups if it has many allowed cells. Each rank of these groups owns a run of tokens from the
/// beginning of the document and a run from its end (zigzag). Small documents go to one rank. `limit` is the maximum
/// number of tokens of a rank, as a multiple of the mean.
pub(crate) fn owners(documents: &[Document], ranks: usize, group: usize, limit: f64) -> Owners {
    let area: f64 = documents.iter().map(|d| d.area).sum::<f64>() / ranks as f64;
    let tokens = documents.iter().map(|d| f64::from(d.end - d.start)).sum::<f64>() / ranks as f64;
    let groups = ranks.div_ceil(group);
    let members = |g: usize| (g * group) as u32..ranks.min((g + 1) * group) as u32;
    let mut load = vec![[0.0; 2]; ranks];
    let full = |load: [f64; 2]| (load[0] / area.max(1e-30)).max(load[1] / (tokens * limit));
    let mut order: Vec<&Document> = documents.iter().collect();
    order.sort_by(|a, b| b.area.total_cmp(&a.area).then(a.start.cmp(&b.start)));
    let mut parts = Vec::new();
    for document in order {
        let size = [document.area, f64::from(document.end - document.start)];
        let mut chosen: Vec<u32> = Vec::new();
        if document.area < SMALL * area {
            let after = |r: &u32| full([load[*r as usize][0] + size[0], load[*r as usize][1] + size[1]]);
            chosen.extend((0..ranks as u32).min_by(|a, b| after(a).total_cmp(&after(b))));
        } else {
            let needed = (size[0] / (area * group as f64) - SMALL).ceil().max(1.0) as usize;
            // the load of a group is that of its fullest rank
            let fullest = |g: usize| members(g).map(|r| full(load[r as usize])).fold(0.0, f64::max);
            let mut by_load: Vec<(f64, usize)> = (0..groups).map(|g| (fullest(g), g)).collect();
            by_load.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
            let mut taken: Vec<usize> = by_load.iter().take(needed.min(groups)).map(|(_, g)| *g).collect();
            taken.sort_unstable();
            chosen.extend(taken.into_iter().flat_map(members));
        }
        for rank in &chosen {
            let sum = &mut load[*rank as usize];
            *sum = [sum[0] + size[0] / chosen.len() as f64, sum[1] + size[1] / chosen.len() as f64];
        }
        zigzag::pieces(document.start, document.end, &chosen, &mut parts);
    }
    Owners::from_parts(parts)
}

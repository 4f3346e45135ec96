//! Local improvement of a split: strips of query rows move from the rank with the largest area (number of allowed
//! cells) to ranks with small areas.

use crate::partition::runs::Owners;
use crate::partition::strips::Strips;

/// The maximum number of moved strips (runs of query rows): `[number for each rank, total number]`. The smaller limit
/// applies.
const MOVES: [usize; 2] = [16, 1024];
/// The number of ranks to which a strip (run of query rows) may be moved: the ranks with the fewest allowed cells.
const TAKERS: usize = 8;

/// Returns owners of query rows that divide the allowed cells more evenly than the given owners `queries`. The owner of
/// a query computes all its cells. In each step, one strip (a run of query rows) moves from the rank with the most
/// cells to a rank with few cells; the new owner then has at most `most` rows. Only a strip at the end of a run of its
/// rank moves. The function stops when no rank has more than `area` times the mean number of cells, when no move helps,
/// or after the maximum number of moves.
pub(crate) fn improve(queries: &Owners, strips: &Strips, ranks: usize, area: f64, most: f64) -> Owners {
    // strips, split where the owner changes
    let mut parts: Vec<([u32; 2], u32, f64)> = Vec::new();
    for (run, rank) in queries.parts() {
        parts.extend(strips.within(run[0], run[1]).map(|s| ([s.start, s.end], rank, s.area())));
    }
    let mut load = vec![[0.0; 2]; ranks];
    for ([start, end], rank, area) in &parts {
        let sum = &mut load[*rank as usize];
        *sum = [sum[0] + area, sum[1] + f64::from(end - start)];
    }
    let mean = load.iter().map(|l| l[0]).sum::<f64>() / ranks as f64;
    for _ in 0..MOVES[1].min(MOVES[0] * ranks) {
        let by_area = |a: &usize, b: &usize| load[*a][0].total_cmp(&load[*b][0]).then(b.cmp(a));
        let largest = (0..ranks).max_by(by_area).expect("a rank");
        if load[largest][0] <= area * mean {
            break;
        }
        let mut takers: Vec<usize> = (0..ranks).filter(|r| *r != largest).collect();
        if takers.len() > TAKERS {
            takers.select_nth_unstable_by(TAKERS, by_area);
            takers.truncate(TAKERS);
        }
        takers.sort_by(by_area);
        let excess = load[largest][0] - mean;
        let at_end = |i: usize| {
            let same = |j: Option<usize>| j.and_then(|j| parts.get(j)).is_some_and(|p| p.1 == largest as u32);
            !(same(i.checked_sub(1)) && same(Some(i + 1)))
        };
        let movable: Vec<usize> = (0..parts.len()).filter(|i| parts[*i].1 == largest as u32 && at_end(*i)).collect();
        let found = takers.iter().find_map(|taker| {
            let space = (mean - load[*taker][0]).min(excess) * 1.5;
            let fits = movable.iter().filter(|i| {
                let rows = f64::from(parts[**i].0[1] - parts[**i].0[0]);
                parts[**i].2 > 0.0 && parts[**i].2 <= space && load[*taker][1] + rows <= most
            });
            let beside = |i: usize| {
                let of = |j: Option<usize>| j.and_then(|j| parts.get(j)).is_some_and(|p| p.1 == *taker as u32);
                of(i.checked_sub(1)) || of(Some(i + 1))
            };
            fits.max_by(|a, b| beside(**a).cmp(&beside(**b)).then(parts[**a].2.total_cmp(&parts[**b].2)))
                .map(|i| (*i, *taker))
        });
        let Some((strip, taker)) = found else { break };
        let ([start, end], _, moved) = parts[strip];
        parts[strip].1 = taker as u32;
        for (rank, sign) in [(largest, -1.0), (taker, 1.0)] {
            load[rank] = [load[rank][0] + sign * moved, load[rank][1] + sign * f64::from(end - start)];
        }
    }
    Owners::from_parts(parts.into_iter().map(|(run, rank, _)| (run, rank)).collect())
}

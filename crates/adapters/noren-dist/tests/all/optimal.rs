//! On small instances, the search comes within 5 % of the best possible split.

use noren_dist::{Objective, Options, Travel, Wire, search};
use noren_mask::{BoundMask, Facts, Mask, Shape, atoms::*};

fn masks(n: usize) -> Vec<Mask> {
    vec![
        causal(),
        full(),
        sliding(3),
        causal() & documents_of([n / 2, n - n / 2]),
        causal() & documents_of([1, n - 1]),
        documents_of([n - 2, 2]),
        causal() & prefix(2),
        causal() & (prefix(1) | documents_of([1, n / 2, n - 1 - n / 2])),
        sliding(2) | queries(0..1),
        causal() & stride(2),
        chunk(2) | global(0..1),
        random(0.4, 3),
    ]
}

/// Returns the excess of a split over the limits, and the bytes that its busiest rank receives, computed from the
/// definition token by token.
fn objective(bound: &BoundMask, ranks: usize, owner: &[usize], by: &dyn Fn(usize, usize) -> usize) -> (f64, u64) {
    let n = owner.len();
    let [mut area, mut tokens] = [vec![0f64; ranks], vec![0f64; ranks]];
    let mut keys = vec![vec![false; n]; ranks];
    let mut rows = vec![vec![false; n]; ranks];
    owner.iter().for_each(|r| tokens[*r] += 1.0);
    let cells = (0..n * n).map(|i| (i / n, i % n));
    for (q, k) in cells.filter(|(q, k)| bound.allowed(0, 0, *q, *k)) {
        let rank = by(q, k);
        area[rank] += 1.0;
        (keys[rank][k], rows[rank][q]) = (true, true);
    }
    // a head of one number in one byte, partial results in one byte: key 2, query 1, result 1 + 4
    let mut received = vec![0u64; ranks];
    for rank in 0..ranks {
        for t in (0..n).filter(|t| owner[*t] != rank) {
            received[rank] += if keys[rank][t] { 2 } else { 0 } + u64::from(rows[rank][t]);
            received[owner[t]] += if rows[rank][t] { 5 } else { 0 };
        }
    }
    let over = |v: &[f64]| {
        let sum: f64 = v.iter().sum();
        if sum > 0.0 { v.iter().copied().fold(0.0, f64::max) * ranks as f64 / sum } else { 1.0 }
    };
    let [a, t] = Objective::Balanced.limits();
    ((over(&area) / a).max(over(&tokens) / t).max(1.0), received.into_iter().max().unwrap_or(0))
}

/// Calls `f` with every assignment of `items` items to ranks.
fn each(ranks: usize, items: usize, mut f: impl FnMut(&[usize])) {
    let mut choice = vec![0; items];
    for mut number in 0..ranks.pow(items as u32) {
        choice.iter_mut().for_each(|c| (*c, number) = (number % ranks, number / ranks));
        f(&choice);
    }
}

fn found(bound: &BoundMask, ranks: usize, travel: Travel) -> (f64, u64, String) {
    let wire = Wire { head_dim: 1, v_dim: 1, element: 1, partial: 1 };
    let options = Options { ranks, travel, wire, ..Options::default() };
    let found = search(&bound.plan(), &options).expect("few ranks");
    let chosen = &found.rows[0].candidates[found.rows[0].chosen];
    let [a, t] = Objective::Balanced.limits();
    let over = (chosen.measures.area / a).max(chosen.measures.tokens / t).max(1.0);
    (over, chosen.measures.received, chosen.method.clone())
}

fn compare(best: &[(f64, u64)], found: (f64, u64, String), what: &str) {
    let least = best.iter().map(|b| b.0).fold(f64::INFINITY, f64::min);
    assert!(found.0 <= 1.05 * least, "{what}: {found:?}, and {least} over the limits is possible");
    let bytes = best.iter().filter(|b| b.0 <= found.0 + 1e-9).map(|b| b.1).min().expect("the found one is among them");
    assert!(found.1 as f64 <= 1.05 * bytes as f64, "{what}: {found:?}, and {bytes} bytes are possible");
}

#[test]
fn keys_travel() {
    for (n, ranks) in [(4, 2), (6, 3), (8, 2), (10, 2), (11, 2)] {
        for mask in masks(n) {
            let bound = mask.bind(&Shape::square(n), &Facts::new()).expect("binds");
            let mut all = Vec::new();
            each(ranks, n, |owner| all.push(objective(&bound, ranks, owner, &|q, _| owner[q])));
            compare(&all, found(&bound, ranks, Travel::Keys), &format!("{mask} of {n} over {ranks}"));
        }
    }
}

#[test]
fn keys_and_queries_travel() {
    let n = 3;
    for mask in masks(n).into_iter().filter(|m| *m != full()) {
        let bound = mask.bind(&Shape::square(n), &Facts::new()).expect("binds");
        let cells: Vec<(usize, usize)> =
            (0..9).map(|i| (i / 3, i % 3)).filter(|(q, k)| bound.allowed(0, 0, *q, *k)).collect();
        let mut all = Vec::new();
        each(2, n + cells.len(), |choice| {
            let (owner, by) = choice.split_at(n);
            let by = |q: usize, k: usize| by[cells.iter().position(|c| *c == (q, k)).expect("an allowed cell")];
            all.push(objective(&bound, 2, owner, &by));
        });
        compare(&all, found(&bound, 2, Travel::Both), &format!("{mask} of {n} over 2"));
    }
}

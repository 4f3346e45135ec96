//! The exports of a plan contain exactly its cells.

use noren_mask::{Blocks, BoundMask, Plan, SliceKind};
use noren_testing::drawn;

type Grid = Vec<Vec<bool>>;

/// Returns the cells of a pattern by definition.
fn cells(bound: &BoundMask, plan: &Plan, pattern: usize) -> Grid {
    let shape = bound.shape();
    let pairs = (0..shape.batch_len()).flat_map(|b| (0..shape.head_count()).map(move |h| (b, h)));
    let (b, h) = pairs.into_iter().find(|(b, h)| plan.pattern_of(*b, *h) == pattern).expect("every pattern is used");
    (0..shape.q_len()).map(|q| (0..shape.kv_len()).map(|k| bound.allowed(b, h, q, k)).collect()).collect()
}

fn each(check: impl Fn(&Plan, usize, &Grid, &str)) {
    for (file, case) in drawn::cases() {
        let bound = case.bind().expect("a case of the corpus");
        let plan = bound.plan();
        for pattern in 0..plan.patterns().len() {
            check(&plan, pattern, &cells(&bound, &plan, pattern), &format!("{file}: {}", case.name));
        }
    }
}

#[test]
fn runs_hold_the_cells_of_every_case() {
    each(|plan, pattern, cells, name| {
        let rows = plan.row_runs(pattern);
        for (row, runs) in cells.iter().zip(rows.lists()) {
            let inside = |k: usize| runs.iter().any(|run| (run[0] as usize..run[1] as usize).contains(&k));
            assert!(row.iter().enumerate().all(|(k, cell)| inside(k) == *cell), "{name}");
            assert!(runs.windows(2).all(|w| w[0][1] < w[1][0]), "{name}: runs touch");
        }
    });
}

#[test]
fn masked_rows_hold_what_the_cells_do_not() {
    each(|plan, pattern, cells, name| {
        let columns = plan.masked_rows(pattern, usize::MAX / 4).expect("any number of runs");
        for (k, runs) in columns.lists().enumerate() {
            let inside = |q: usize| runs.iter().any(|run| (run[0] as usize..run[1] as usize).contains(&q));
            assert!(cells.iter().enumerate().all(|(q, row)| inside(q) != row[k]), "{name}");
        }
        let most = columns.lists().map(<[_]>::len).max().unwrap_or(0);
        assert!(most == 0 || plan.masked_rows(pattern, most - 1).is_none(), "{name}");
    });
}

#[test]
fn blocks_hold_the_cells_of_every_case() {
    for (block_q, block_kv, cut_may_be_full) in [(4, 4, false), (2, 33, true), (5, 3, true), (64, 64, false)] {
        each(|plan, pattern, cells, name| {
            let blocks = plan.blocks(pattern, [block_q, block_kv], cut_may_be_full);
            let words = block_kv.div_ceil(32);
            for (q, row) in cells.iter().enumerate() {
                for (k, cell) in row.iter().enumerate() {
                    let allowed = match blocks.slot[q / block_q * blocks.shape[1] + k / block_kv] {
                        Blocks::EMPTY => false,
                        Blocks::FULL => true,
                        slot => {
                            let word = (slot as usize * block_q + q % block_q) * words + k % block_kv / 32;
                            blocks.bits[word] >> (k % block_kv % 32) & 1 == 1
                        }
                    };
                    assert_eq!(allowed, *cell, "{name} at {q}, {k}");
                }
            }
            assert_eq!(blocks.bits.len(), blocks.mixed() * block_q * words, "{name}");
        });
    }
}

#[test]
fn slices_hold_each_cell_once() {
    each(|plan, pattern, cells, name| {
        let mut times = vec![vec![0; cells[0].len()]; cells.len()];
        for slice in plan.slices(pattern) {
            let ([q0, q1], [k0, k1]) = (slice.rows, slice.keys);
            for q in q0..q1 {
                let start =
                    if matches!(slice.kind, SliceKind::InverseCausal | SliceKind::BiCausal) { k0 + q - q0 } else { k0 };
                let end =
                    if matches!(slice.kind, SliceKind::Causal | SliceKind::BiCausal) { k1 - (q1 - 1 - q) } else { k1 };
                (start..end).for_each(|k| times[q as usize][k as usize] += 1);
            }
        }
        for (times, cells) in times.iter().zip(cells) {
            assert!(times.iter().zip(cells).all(|(n, cell)| *n == i32::from(*cell)), "{name}");
        }
    });
}

//! In every order, the cells that a plan executes are those of the definition.
//!
//!     NOREN_EXACT=100000 cargo test -p noren-mask --test all exact:: -- --nocapture
//!
//! `NOREN_EXACT` is the number of (mask, shape, facts, order) cases. [default: 3,000]

use noren_mask::{BoundMask, Facts, Mask, PatternPlan, Plan, PlanOptions, Reorder, Shape, SpanKind};
use noren_testing::cases::{World, masks, worlds};
use noren_testing::cells::{Cells, fill};
use noren_testing::check;
use noren_testing::structured::structured;
use proptest::prelude::*;
use std::cell::Cell;

const ORDERS: u32 = 5;

fn cases(name: &str, usual: u32) -> u32 {
    std::env::var(name).ok().map_or(usual, |text| text.parse().expect("a whole number"))
}

/// Checks the plan of every order, and that the statistics and the runs of rows have the same number of cells.
fn check_orders(bound: &BoundMask, block_q: u32, residues: u32) -> u64 {
    let cells = Cells::of(bound);
    for reorder in [Reorder::Never, Reorder::Auto, Reorder::Always, Reorder::Copies, Reorder::Residues(residues)] {
        let plan = bound.plan_with(&PlanOptions { block_q, block_kv: 64, reorder });
        let executed = Cells::of_plan(&plan);
        if let Some([b, h, q, k]) = cells.zip(&executed, |a, b| a != b).first() {
            panic!("{reorder:?}: cell [{b}, {h}, {q}, {k}] is {} by definition", cells.get([b, h, q, k]));
        }
        assert_eq!(plan.stats().allowed, cells.count() as u128, "{reorder:?}: allowed cells");
        assert!(plan.verify(u64::MAX).is_ok_and(|found| found.complete), "{reorder:?}");
        let runs: Vec<_> = (0..plan.patterns().len()).map(|pattern| plan.row_runs(pattern)).collect();
        let by_runs = Cells::from_fn(cells.dims, |[b, h, q, k]| {
            let list = runs[plan.pattern_of(b, h)].list(q);
            list.iter().any(|run| (run[0] as usize..run[1] as usize).contains(&k))
        });
        assert!(by_runs == cells, "{reorder:?}: runs of rows");
    }
    cells.count() as u64
}

/// Checks that the canonical form of a mask binds and allows the same cells, for other numbers of heads and batch rows
/// too.
fn check_simplified(world: &World, mask: &Mask) {
    let simple = mask.simplify();
    for heads in 1..5 {
        let shape = world.shape.clone().heads(heads).kv_heads(1);
        let Ok(bound) = mask.bind(&shape, &world.facts) else { continue };
        match simple.bind(&shape, &world.facts) {
            Ok(again) => {
                assert_eq!(bound.first_difference(&again), Ok(None), "{mask} is {simple} with {heads} heads")
            }
            Err(error) => panic!("{mask} binds with {heads} heads and {simple} does not: {error}"),
        }
    }
}

#[test]
fn executed_cells_are_the_definitions_in_every_order() {
    let count = cases("NOREN_EXACT", 3000).div_ceil(ORDERS);
    let case = worlds(60, 2000).prop_flat_map(|world| {
        let mask = prop_oneof![3 => structured(&world), 1 => masks(&world)];
        (Just(world), mask, 1..48u32, 0..12u32)
    });
    let (done, allowed) = (Cell::new(0u32), Cell::new(0u64));
    check(count, case, |(world, mask, block_q, residues)| {
        allowed.set(allowed.get() + check_orders(&world.bind(&mask), block_q, residues));
        check_simplified(&world, &mask);
        done.set(done.get() + 1);
    });
    let (done, allowed) = (done.get(), allowed.get());
    println!("{} cases ({done} masks in {ORDERS} orders), {allowed} allowed cells by mask: all equal", done * ORDERS);
}

/// Long sequences in which `Reorder::Auto` gathers keys: every executed cell of sampled rows, and the number of all
/// executed cells.
#[test]
fn long_plans_allow_what_plans_in_place_allow() {
    let count = cases("NOREN_EXACT", 3000).div_ceil(250);
    let case = (2..12usize, 4..60usize, proptest::collection::vec(0..6000usize, 2..12), 0..6u8, 1000..6000usize);
    check(count, case, |(step, size, at, kind, len)| {
        let grid = format!("neighborhood(grid=[{len}], size=[{}], dilation=[{step}])", size.min(len / step));
        let at: Vec<usize> = at.into_iter().map(|k| k % len).collect();
        let text = match kind {
            0 => format!("stride({step}) & causal | global({at:?}) - {grid}"),
            1 => format!("{grid} | global({at:?}) & causal"),
            2 => format!("window(left={size}, right={size}) | global({at:?})"),
            3 => format!("({grid} | keys({at:?})) - stride({})", 3 * step),
            4 => format!("window(left={}) & stride({step}) | global({at:?}) & !causal", 50 * size),
            _ => format!("global({at:?}) | {grid} & causal - keys({at:?})"),
        };
        let mask: Mask = text.parse().unwrap();
        let bound = mask.bind(&Shape::square(len), &Facts::new()).unwrap();
        let [auto, never] = [Reorder::Auto, Reorder::Never]
            .map(|reorder| bound.plan_with(&PlanOptions { reorder, ..PlanOptions::default() }));
        assert_eq!(auto.stats().allowed, never.stats().allowed, "{text} of {len}");
        same_rows(&auto, &never, &text);
    });
}

/// Compares every 37th row of two plans.
fn same_rows(plan: &Plan, in_place: &Plan, text: &str) {
    let len = plan.shape().kv_len() as u32;
    for pattern in plan.patterns() {
        for place in (0..pattern.q_len()).step_by(37) {
            let row = pattern.query_at(place);
            let [executed, meant] = [row_of(pattern, place), row_of(&in_place.patterns()[0], row)];
            let mut reads = vec![0; len as usize];
            for key_place in 0..pattern.key_places() {
                reads[pattern.key_at(key_place) as usize] += usize::from(executed[key_place as usize]);
            }
            for (key, reads) in reads.into_iter().enumerate() {
                assert_eq!(reads, usize::from(meant[key]), "{text} of {len}: cell ({row}, {key})");
            }
        }
    }
}

/// Returns for each place of keys whether the query at a place reads it.
fn row_of(pattern: &PatternPlan, place: u32) -> Vec<bool> {
    let mut read = vec![false; pattern.key_places() as usize];
    let tile = pattern.tiles().find(|tile| (tile.start..tile.end).contains(&place)).expect("tiles cover all rows");
    for span in tile.spans {
        let bits = fill(pattern, place..place + 1, span.start..span.end);
        for i in 0..span.keys() {
            let set = bits[i as usize / 64] >> (i % 64) & 1 == 1;
            read[(span.start + i) as usize] = span.kind == SpanKind::Full || set;
        }
    }
    read
}

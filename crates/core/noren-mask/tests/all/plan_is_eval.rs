//! A plan allows exactly the cells of its mask, for every mask, shape, facts and tile sizes.

use noren_mask::{Mask, PatternPlan, Plan, PlanOptions, SpanKind, TileSpan};
use noren_testing::cases::{World, masks, options, worlds};
use noren_testing::cells::{Cells, fill};
use noren_testing::check;
use proptest::prelude::*;

fn case(longest: usize, cells: usize) -> impl Strategy<Value = (World, Mask, PlanOptions)> {
    worlds(longest, cells).prop_flat_map(|world| {
        let masks = masks(&world);
        (Just(world), masks, options())
    })
}

fn check_case(world: &World, mask: &Mask, options: &PlanOptions, entropy: u64) {
    let bound = world.bind(mask);
    let cells = Cells::of(&bound);
    let plan = bound.plan_with(options);
    plan.patterns().iter().for_each(|p| tiles_cover_rows_and_spans_ascend(p, options.block_q));
    plan.patterns().iter().for_each(orders_hold_everything_once);
    full_spans_are_full(&plan, &cells);
    if let Some([b, h, q, k]) = cells.zip(&Cells::of_plan(&plan), |a, b| a != b).first() {
        panic!("cell [{b}, {h}, {q}, {k}] is {} by definition", cells.get([b, h, q, k]));
    }
    rectangles_are_exact(&plan, &cells, entropy);
    statistics_count_right(&plan, &cells);
}

fn spans_ascend(spans: &[TileSpan], end: u32) {
    assert!(spans.iter().all(|s| s.start < s.end && s.end <= end), "{spans:?} within {end}");
    assert!(spans.windows(2).all(|w| w[0].end <= w[1].start), "{spans:?} ascend");
}

fn tiles_cover_rows_and_spans_ascend(plan: &PatternPlan, block_q: u32) {
    let mut row = 0;
    for tile in plan.tiles() {
        assert_eq!(tile.start, row);
        assert!(tile.start < tile.end && tile.rows() <= block_q);
        spans_ascend(tile.spans, plan.kv_len());
        row = tile.end;
    }
    assert_eq!(row, plan.q_len());
}

fn each_batch_head(plan: &Plan, mut f: impl FnMut(usize, usize, &PatternPlan)) {
    for b in 0..plan.shape().batch_len() {
        for h in 0..plan.shape().head_count() {
            f(b, h, &plan.patterns()[plan.pattern_of(b, h)]);
        }
    }
}

/// Returns the cell `[b, h, q, k]` for a row and a key that are places in the pattern's order.
fn at(cells: &Cells, pattern: &PatternPlan, [b, h, q, k]: [usize; 4]) -> bool {
    cells.get([b, h, pattern.query_at(q as u32) as usize, pattern.key_at(k as u32) as usize])
}

fn orders_hold_everything_once(plan: &PatternPlan) {
    for (order, len) in [(plan.query_order(), plan.q_len()), (plan.key_order(), plan.kv_len())] {
        let Some(order) = order else { continue };
        let mut origins: Vec<u32> = (0..order.len()).map(|place| order.origin(place)).collect();
        let by_runs = order.runs().flat_map(|(start, step, len)| (0..len).map(move |i| start + i * step));
        assert!(by_runs.eq(origins.iter().copied()));
        origins.sort_unstable();
        assert!(origins.into_iter().eq(0..len), "{order:?} of {len}");
    }
}

fn full_spans_are_full(plan: &Plan, cells: &Cells) {
    each_batch_head(plan, |b, h, pattern| {
        for tile in pattern.tiles() {
            for span in tile.spans.iter().filter(|s| s.kind == SpanKind::Full) {
                for q in tile.start..tile.end {
                    let denied = (span.start..span.end).find(|&k| !at(cells, pattern, [b, h, q as usize, k as usize]));
                    assert_eq!(denied, None, "full span {span:?} of row {q} in [{b}, {h}]");
                }
            }
        }
    });
}

fn rectangles_are_exact(plan: &Plan, cells: &Cells, entropy: u64) {
    each_batch_head(plan, |b, h, pattern| {
        let pick = |shift: u32, from: u32, to: u32| from + (entropy >> shift) as u32 % (to - from + 1);
        let first_row = pick(0, 0, pattern.q_len());
        let rows = first_row..pick(16, first_row, pattern.q_len());
        let first_key = pick(24, 0, pattern.kv_len());
        let keys = first_key..pick(40, first_key, pattern.kv_len());
        let words = fill(pattern, rows.clone(), keys.clone());
        let stride = keys.len().div_ceil(64);
        for (i, q) in rows.enumerate() {
            for bit in 0..stride * 64 {
                let expected = bit < keys.len() && at(cells, pattern, [b, h, q as usize, keys.start as usize + bit]);
                let found = words[i * stride + bit / 64] >> (bit % 64) & 1 == 1;
                assert_eq!(found, expected, "bit {bit} of row {q} in [{b}, {h}], keys {keys:?}");
            }
        }
    });
}

fn statistics_count_right(plan: &Plan, cells: &Cells) {
    let stats = plan.stats();
    assert_eq!(stats.allowed, cells.count() as u128);
    assert_eq!(stats.cells, cells.keep.len() as u128);
    assert_eq!(stats.empty_rows, cells.empty_rows() as u128);
    let (mut full, mut mixed, mut empty, mut computed) = (0, 0, 0, 0);
    each_batch_head(plan, |_, _, pattern| {
        for tile in pattern.tiles() {
            computed += u128::from(tile.computed());
            for start in (0..pattern.kv_len()).step_by(plan.options().block_kv as usize) {
                let end = (start + plan.options().block_kv).min(pattern.kv_len());
                let holds = |s: &&TileSpan| s.kind == SpanKind::Full && s.start <= start && end <= s.end;
                let touches = |s: &TileSpan| s.start < end && start < s.end;
                match tile.spans {
                    spans if spans.iter().find(holds).is_some() => full += 1,
                    spans if spans.iter().any(touches) => mixed += 1,
                    _ => empty += 1,
                }
            }
        }
    });
    assert_eq!((stats.full_tiles, stats.mixed_tiles, stats.empty_tiles), (full, mixed, empty));
    assert_eq!(stats.computed, computed);
    assert!(stats.computed >= stats.allowed);
}

#[test]
fn small_plans_allow_exactly_their_masks_cells() {
    check(12_000, (case(40, 2_000), any::<u64>()), |((world, mask, options), entropy)| {
        check_case(&world, &mask, &options, entropy);
    });
}

#[test]
fn plans_across_many_tiles_allow_exactly_their_masks_cells() {
    check(1_500, (case(150, 20_000), any::<u64>()), |((world, mask, options), entropy)| {
        check_case(&world, &mask, &options, entropy);
    });
}

//! Counts by arithmetic are equal to those of the definition: allowed cells and empty rows.
//!
//!     NOREN_COUNTS=100000 cargo test -p noren-mask --test all count:: -- --nocapture
//!
//! `NOREN_COUNTS` is the number of (mask, shape, facts) cases. [default: 3,000]

use noren_mask::{Budget, Error, Facts, Mask, PlanOptions, Reorder, Shape};
use noren_testing::cases::{masks, worlds};
use noren_testing::cells::Cells;
use noren_testing::check;
use noren_testing::structured::structured;
use proptest::prelude::*;

fn cases(usual: u32) -> u32 {
    std::env::var("NOREN_COUNTS").ok().map_or(usual, |text| text.parse().expect("a whole number"))
}

#[test]
fn counts_are_the_definitions() {
    let case = worlds(60, 2000).prop_flat_map(|world| {
        let mask = prop_oneof![1 => structured(&world), 1 => masks(&world)];
        (Just(world), mask)
    });
    check(cases(3000), case, |(world, mask)| {
        let bound = world.bind(&mask);
        let cells = Cells::of(&bound);
        let stats = bound.plan_with(&PlanOptions { reorder: Reorder::Never, ..PlanOptions::default() }).stats();
        let [batch, heads, q_len, kv_len] = cells.dims;
        let pairs = (0..batch).flat_map(|b| (0..heads).map(move |h| (b, h)));
        let rows = pairs.flat_map(|(b, h)| (0..q_len).map(move |q| (b, h, q)));
        let empty = rows.filter(|&(b, h, q)| (0..kv_len).all(|k| !cells.get([b, h, q, k]))).count();
        assert_eq!((stats.allowed, stats.empty_rows), (cells.count() as u128, empty as u128));
    });
}

/// Counts of masks for which a visit of every pair would take too long.
#[test]
fn complements_of_strides_are_counted_at_a_million() {
    let n = 1u128 << 20;
    for (text, allowed, empty) in [
        ("!stride(8)", n * n / 8 * 7, 0),
        ("stride(8) & !stride(8)", 0, n),
        ("causal & !stride(1)", 0, n),
        ("causal & !stride(1048576)", n * (n + 1) / 2 - n, 1),
        ("stride(6) & stride(10)", (0..n).map(|q| (q / 30) + (n - 1 - q) / 30 + 1).sum(), 0),
        ("chunk(4) - causal", n / 4 * 6, n / 4),
        ("neighborhood(grid=[1024, 1024], size=[7, 7])", n * 49, 0),
    ] {
        let mask: Mask = text.parse().unwrap();
        let stats = mask.bind(&Shape::square(1 << 20), &Facts::new()).unwrap().plan().stats();
        assert_eq!((stats.allowed, stats.empty_rows), (allowed, empty), "{text}");
    }
}

#[test]
fn a_budget_of_few_steps_is_a_limit() {
    let mask: Mask = "random(0.5, seed=1)".parse().unwrap();
    let bound = mask.bind(&Shape::square(512), &Facts::new()).unwrap();
    let plan = bound.plan();
    // More than one step for each of the 512 rows.
    for steps in [0, 1, 100, 511] {
        let refused = plan.stats_within(&Budget::new().steps(steps)).expect_err("too few steps");
        assert!(
            matches!(&refused, Error::Budget(text) if text.contains(&format!("at most {steps} are allowed:"))),
            "{refused}"
        );
    }
    let counted = plan.stats_within(&Budget::new().steps(1 << 20)).expect("enough steps");
    assert_eq!(counted.allowed, plan.stats().allowed);
}

//! Masks that are planned with keys in two orders, or with queries in patches: at most twice the allowed cells are
//! computed.

use noren_mask::{Budget, Facts, Mask, PlanOptions, Reorder, Shape, Stats};
use noren_testing::cells::Cells;

fn stats(text: &str, len: usize) -> Stats {
    let mask: Mask = text.parse().unwrap();
    let plan = mask.bind(&Shape::square(len), &Facts::new()).unwrap().plan();
    assert!(plan.bytes() < 64 << 20, "{text}: {} bytes", plan.bytes());
    plan.stats_within(&Budget::new()).unwrap()
}

#[test]
fn unions_of_bands_and_strides_compute_at_most_twice_what_they_allow() {
    for text in [
        "causal & (window(left=256) | stride(512))",
        "causal & (window(left=128) | stride(128))",
        "sliding(64) | causal & stride(1024)",
        "window(left=32, right=32) | stride(700)",
        "causal & (window(left=512) | stride(64))",
    ] {
        let stats = stats(text, 131_072);
        println!("{text}: {:.3} in {:.1} ms\n{stats}", stats.computed_per_allowed, 1e3 * stats.planning_seconds);
        assert!(stats.computed_per_allowed <= 2.0, "{text}: {}", stats.computed_per_allowed);
    }
}

#[test]
fn neighborhoods_compute_at_most_twice_what_they_allow() {
    for text in [
        "neighborhood(grid=[512, 256], size=[7, 7])",
        "neighborhood(grid=[256, 512], size=[13, 13])",
        "neighborhood(grid=[400, 300], size=[3, 3])",
        "neighborhood(grid=[64, 45, 45], size=[5, 5, 5])",
        "neighborhood(grid=[32, 64, 64], size=[3, 7, 7])",
        "neighborhood(grid=[51, 50, 50], size=[3, 3, 3])",
    ] {
        let stats = stats(text, 120_000);
        println!("{text}: {:.3} in {:.1} ms\n{stats}", stats.computed_per_allowed, 1e3 * stats.planning_seconds);
        assert!(stats.computed_per_allowed <= 2.0, "{text}: {}", stats.computed_per_allowed);
    }
}

/// Checks every cell of small plans in these orders.
#[test]
fn cells_in_two_orders_and_in_patches_are_the_definitions() {
    for (text, q_len, kv_len, offset) in [
        ("causal & (window(left=5) | stride(7))", 61, 61, 0),
        ("causal & (window(left=3) | stride(8) | keys(0..2)) - keys(11)", 40, 77, 30),
        ("window(left=4, right=2) | stride(9) & chunk(30)", 80, 64, -7),
        ("(stride(6) | stride(4)) & !window(left=2) | sliding(3)", 50, 50, 0),
        ("causal & (sliding(4) | stride(5)) | random(0.05, seed=7)", 44, 44, 0),
        ("neighborhood(grid=[9, 11], size=[3, 5])", 99, 99, 0),
        ("neighborhood(grid=[9, 11], size=[4, 3]) | keys(3)", 70, 90, -12),
        ("causal & neighborhood(grid=[4, 5, 7], size=[3, 3, 2])", 130, 125, 3),
        ("neighborhood(grid=[1, 8, 8], size=[1, 3, 3]) - stride(3)", 64, 64, 0),
    ] {
        let mask: Mask = text.parse().unwrap();
        let bound = mask.bind(&Shape::new(q_len, kv_len, offset), &Facts::new()).unwrap();
        let cells = Cells::of(&bound);
        for (reorder, block_q) in [Reorder::Copies, Reorder::Always].into_iter().flat_map(|r| [(r, 1), (r, 3), (r, 24)])
        {
            let plan = bound.plan_with(&PlanOptions { reorder, block_q, ..PlanOptions::default() });
            let executed = Cells::of_plan(&plan);
            let wrong = cells.zip(&executed, |a, b| a != b).first();
            assert_eq!(wrong, None, "{text}, {reorder:?}, tiles of {block_q} rows");
            assert!(plan.verify(u64::MAX).is_ok(), "{text}, {reorder:?}, tiles of {block_q} rows");
        }
    }
}

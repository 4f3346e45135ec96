//! The number of cells that a forward pass computes.

use crate::common::plan;
use crate::scene::case::check;
use noren::{Dtype, Isa, machine::computed_cells};
use noren_mask::{Facts, PlanOptions, Shape, atoms};

#[test]
fn every_allowed_cell_and_few_others_are_counted() {
    check(500, |case| {
        let stats = case.plan.stats();
        for isa in Isa::available() {
            for dtype in [Dtype::F32, Dtype::Bf16] {
                let cells = u128::from(computed_cells(&case.plan, *isa, dtype));
                // A lane group has at most 64 keys, and a span of a tile may begin and end inside a lane group.
                let most = stats.computed + 128 * stats.cells;
                assert!(stats.allowed <= cells && cells <= most, "{}: {cells} of {stats:?} on {isa}", case.name);
                assert!(stats.allowed > 0 || stats.computed > 0 || cells == 0, "{}: {cells} cells", case.name);
            }
        }
    });
}

#[test]
fn a_full_mask_computes_whole_lane_groups() {
    let full = plan("full", &Shape::square(64).heads(3), &Facts::new());
    for isa in Isa::available() {
        assert_eq!(computed_cells(&full, *isa, Dtype::F32), 3 * 64 * 64, "{isa}");
    }
}

#[test]
fn short_documents_compute_few_hidden_cells() {
    let mask = atoms::causal() & atoms::documents();
    for length in [64, 65, 96, 100, 128, 250, 256, 512] {
        for row in [1024, 4096] {
            let documents = (0..row / length).map(|_| length).chain([row % length]).filter(|len| *len > 0);
            let facts = Facts::new().documents(vec![documents.collect::<Vec<usize>>()]);
            let bound = mask.bind(&Shape::square(row).heads(2), &facts).unwrap();
            let plan = bound.plan_with(&PlanOptions { block_q: 96, ..PlanOptions::default() });
            for isa in Isa::available() {
                let ratio = computed_cells(&plan, *isa, Dtype::F32) as f64 / plan.stats().allowed as f64;
                let most = if length % 64 == 0 { 1.2 } else { 1.31 };
                assert!(ratio <= most, "documents of {length} tokens in rows of {row} on {isa}: {ratio}");
            }
        }
    }
}

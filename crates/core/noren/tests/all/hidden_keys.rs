//! Compares attention by plans of every order with the f64 reference. Keys, values and biases that a row may not read are NaN.
//!
//!     NOREN_HIDDEN=5000 cargo test -p noren --test all hidden_keys:: -- --nocapture
//!
//! `NOREN_HIDDEN` is the number of (mask, shape, facts, order) cases, 200 unless given.

use crate::common::{Array, inputs};
use crate::scene::Scene;
use crate::scene::case::Case;
use noren::{Isa, reference};
use noren_mask::{PlanOptions, Reorder};
use noren_testing::cases::{masks, worlds};
use noren_testing::structured::structured;
use proptest::prelude::*;
use std::cell::Cell;

/// Number of rows of a case that are compared.
const ROWS: usize = 4;

/// Returns the scene with NaN in the keys and values that row `[b, h, i]` may not read.
fn hidden(case: &Case, scene: &Scene, [b, h, i]: [usize; 3]) -> Scene {
    let visible = case.visible([b, h, i]);
    let kv_head = case.shape().kv_head(h);
    let poison = |x: &Array| {
        let kept = |[batch, head, j, _]: [usize; 4]| (batch, head) == (b, kv_head) && visible[j];
        Array::new(x.shape, |at| if kept(at) { x.view().get(at) } else { f32::NAN })
    };
    Scene { k: poison(&scene.k), v: poison(&scene.v), ..scene.clone() }
}

/// Returns the scene with a bias that has an entry for each cell, which is NaN if the mask hides the cell.
fn with_hidden_bias(case: &Case) -> Scene {
    let shape = case.shape();
    let dims = [shape.batch_len(), shape.head_count(), shape.q_len(), shape.kv_len()];
    let bias = case.scene.bias.as_ref().map(|bias| {
        Array::new(dims, |[b, h, i, j]| {
            let pick = |axis: usize, at: usize| if bias.shape[axis] == 1 { 0 } else { at };
            match case.bound.allowed(b, h, i, j) {
                true => bias.view().get([pick(0, b), pick(1, h), pick(2, i), pick(3, j)]),
                false => f32::NAN,
            }
        })
    });
    Scene { bias, ..case.scene.clone() }
}

/// Compares rows of passes with NaN with the reference without NaN. Returns the number of comparisons.
fn check(mut case: Case) -> usize {
    let Scene { q, k, v, .. } = &case.scene;
    let expected = case.scene.with_options(Isa::Portable, |options| {
        reference::forward(&inputs(q, k, v), &case.plan, options).expect("a case that fits")
    });
    let steep = case.scene.alibi.iter().flatten().any(|slope| slope.abs() > 0.1);
    let tolerance = if steep { 1e-4 } else { 1e-5 };
    let largest = expected.out.iter().fold(1e-30, |a: f64, x| a.max(x.abs()));
    let scene = with_hidden_bias(&case);
    let mut compared = 0;
    for _ in 0..ROWS {
        let at = case.some_row();
        let hidden = hidden(&case, &scene, at);
        for isa in Isa::available() {
            let got = hidden.run(&case.plan, *isa, 1);
            let [_, heads, q_len, v_dim] = got.shape;
            let row = (at[0] * heads + at[1]) * q_len + at[2];
            for (got, expected) in got.out[row * v_dim..][..v_dim].iter().zip(&expected.out[row * v_dim..]) {
                let off = (f64::from(*got) - expected).abs() / largest;
                assert!(off <= tolerance, "{} on {isa}, row {at:?}: {got}, expected {expected}", case.name);
            }
            compared += 1;
        }
    }
    compared
}

#[test]
fn hidden_keys_change_no_row_in_any_order() {
    let count = std::env::var("NOREN_HIDDEN").ok().map_or(200, |n| n.parse::<u32>().expect("a whole number"));
    let orders = prop_oneof![
        Just(Reorder::Never),
        Just(Reorder::Auto),
        Just(Reorder::Always),
        Just(Reorder::Copies),
        (0u32..12).prop_map(Reorder::Residues)
    ];
    let cases = worlds(80, 3000).prop_flat_map(|world| {
        let mask = prop_oneof![3 => structured(&world), 1 => masks(&world)];
        (Just(world), mask, any::<u64>())
    });
    let (done, reordered, rows) = (Cell::new(0), Cell::new(0), Cell::new(0));
    noren_testing::check(count, (cases, 1..97u32, orders), |((world, mask, seed), block_q, reorder)| {
        let case = Case::new(&world, &mask, &PlanOptions { block_q, block_kv: 64, reorder }, seed);
        reordered.set(reordered.get() + usize::from(case.plan.patterns().iter().any(|p| p.reordered().is_some())));
        rows.set(rows.get() + check(case));
        done.set(done.get() + 1);
    });
    let (done, reordered, rows) = (done.get(), reordered.get(), rows.get());
    println!(
        "{done} cases, {reordered} of them reordered, {rows} rows with NaN in all that is hidden: all as the reference"
    );
}

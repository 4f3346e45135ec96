//! Tests with random masks, shapes, facts and options. Every ISA agrees with the reference. Content that a query may not read
//! changes no bit, and neither do threads, tiles, strides, padding and other batch rows.

use crate::common::{assert_same_bits, difference, inputs};
use crate::scene::case::{Case, POISON, check, poisoned};
use crate::scene::{Part, Scene};
use noren::{Attention, Isa, reference};
use noren_mask::PlanOptions;
use std::sync::OnceLock;

const CASES: u32 = 1000;

/// Returns a row's output, followed by its log-sum-exp.
fn row(output: &Attention, [b, h, i]: [usize; 3]) -> Vec<f32> {
    let [_, heads, q_len, v_dim] = output.shape;
    let index = (b * heads + h) * q_len + i;
    let mut row = output.out[index * v_dim..][..v_dim].to_vec();
    row.push(output.lse[index]);
    row
}

#[track_caller]
fn assert_same_output(got: &Attention, expected: &Attention, what: &str) {
    assert_same_bits(&got.out, &expected.out, &format!("{what}: out"));
    assert_same_bits(&got.lse, &expected.lse, &format!("{what}: lse"));
}

#[test]
fn every_isa_computes_the_reference() {
    check(CASES, |case| {
        let Scene { q, k, v, .. } = &case.scene;
        let expected = case
            .scene
            .with_options(Isa::Portable, |options| reference::forward(&inputs(q, k, v), &case.plan, options).unwrap());
        // A lone row's log-sum-exp may be near 0: its error is that of scores around 1.
        let finite = expected.lse.iter().filter(|x| x.is_finite());
        let unit = finite.fold(0.0, |a: f64, x| a.max(x.abs())).clamp(1e-30, 1.0);
        // Scores in the hundreds have an absolute error of 1e-5 in f32, and weights take it as their relative error.
        let steep = case.scene.alibi.iter().flatten().any(|slope| slope.abs() > 0.1);
        let tolerance = if steep { 1e-4 } else { 1e-5 };
        for isa in Isa::available() {
            let got = case.scene.run(&case.plan, *isa, 1);
            let worst = difference(&got.out, &expected.out).max(difference(&got.lse, &expected.lse) * unit);
            assert!(worst <= tolerance, "{} on {isa}: off by {worst:.1e} of the largest value", case.name);
            let v_dim = got.shape[3];
            for (i, _) in expected.lse.iter().enumerate().filter(|(_, lse)| **lse == f64::NEG_INFINITY) {
                let out = &got.out[i * v_dim..][..v_dim];
                assert!(out.iter().all(|x| x.to_bits() == 0), "{} on {isa}: empty row {i} is {out:?}", case.name);
            }
        }
    });
}

#[test]
fn what_a_row_may_not_read_changes_no_bit_of_it() {
    check(CASES, |mut case| {
        for _ in 0..3 {
            let at = case.some_row();
            let poison = POISON[case.dice.below(4)];
            let hidden = poisoned(&case, at, poison);
            for isa in Isa::available() {
                let [clean, got] = [&case.scene, &hidden].map(|scene| row(&scene.run(&case.plan, *isa, 1), at));
                assert_same_bits(&got, &clean, &format!("{} on {isa}, row {at:?}, {poison} elsewhere", case.name));
            }
        }
    });
}

#[test]
fn threads_tiles_and_strides_change_no_bit() {
    static POOL: OnceLock<rayon::ThreadPool> = OnceLock::new();
    let pool = POOL.get_or_init(|| rayon::ThreadPoolBuilder::new().num_threads(2).build().unwrap());
    check(CASES, |mut case| {
        for isa in Isa::available() {
            let usual = PlanOptions { reorder: case.reorder, ..PlanOptions::default() };
            let expected = case.scene.run(&case.bound.plan_with(&usual), *isa, 1);
            for threads in [1, 2] {
                let got = pool.install(|| case.scene.run(&case.plan, *isa, threads));
                assert_same_output(&got, &expected, &format!("{} on {isa}, {threads} threads", case.name));
            }
            let got = case.scene.run_strided(&case.plan, *isa, &mut case.dice);
            assert_same_output(&got, &expected, &format!("{} on {isa}, strided", case.name));
        }
    });
}

/// Runs a part of the case and compares its rows with those of the whole.
fn check_part(case: &mut Case, part: &Part, what: &str) {
    let (scene, bound) = part.cut(&case.scene, &case.bound, &case.plan, &mut case.dice);
    let plan = bound.plan_with(&PlanOptions { reorder: case.reorder, ..PlanOptions::default() });
    for isa in Isa::available() {
        let (whole, got) = (case.scene.run(&case.plan, *isa, 1), scene.run(&plan, *isa, 1));
        for (h, i) in (0..whole.shape[1]).flat_map(|h| part.rows.clone().map(move |i| (h, i))) {
            let expected = row(&whole, [part.batch, h, i]);
            let got = row(&got, [0, h, part.queries_before + i - part.rows.start]);
            let name = &case.name;
            assert_same_bits(&got, &expected, &format!("{name} on {isa}, row {:?}, {what}", [part.batch, h, i]));
        }
    }
}

#[test]
fn a_batch_row_gives_the_same_bits_alone() {
    check(CASES, |case| {
        let mut case = case.in_an_order();
        let batch = case.dice.below(case.shape().batch_len());
        let (rows, keys) = (0..case.shape().q_len(), 0..case.shape().kv_len());
        check_part(&mut case, &Part { batch, rows, keys, queries_before: 0, keys_before: 0 }, "alone");
    });
}

#[test]
fn padding_on_the_left_changes_no_bit() {
    check(CASES, |case| {
        let mut case = case.in_an_order();
        let batch = case.dice.below(case.shape().batch_len());
        let (rows, keys) = (0..case.shape().q_len(), 0..case.shape().kv_len());
        let (queries_before, keys_before) = (case.dice.below(30), case.dice.below(100));
        let what = format!("{queries_before} queries and {keys_before} keys before");
        check_part(&mut case, &Part { batch, rows, keys, queries_before, keys_before }, &what);
    });
}

/// A row gives the same bits without the keys after the last key that it may read.
#[test]
fn decoding_row_by_row_changes_no_bit() {
    check(CASES, |case| {
        let mut case = case.in_an_order();
        for _ in 0..3 {
            let [batch, _, i] = case.some_row();
            let heads = 0..case.shape().head_count();
            let last = heads.filter_map(|h| (0..case.shape().kv_len()).rfind(|j| case.bound.allowed(batch, h, i, *j)));
            let keys = 0..last.max().unwrap_or(0) + 1;
            check_part(&mut case, &Part { batch, rows: i..i + 1, keys, queries_before: 0, keys_before: 0 }, "decoded");
        }
    });
}

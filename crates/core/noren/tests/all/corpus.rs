//! Compares every ISA with the reference, on every drawn mask of the corpus `testdata/*.toml`.

use crate::common::{Array, difference, inputs, run};
use noren::reference;
use noren::{Attention, Isa, Options};
use noren_mask::{BoundMask, Plan, PlanOptions, Reorder};
use noren_testing::drawn;

/// Checks that rows without an allowed key are exactly 0, with a log-sum-exp of minus infinity. Returns the number of these
/// rows.
fn check_empty_rows(bound: &BoundMask, got: &Attention, what: &str) -> usize {
    let [batch, heads, q_len, v_dim] = got.shape;
    let mut empty = 0;
    for (row, out) in got.out.chunks(v_dim).enumerate().take(batch * heads * q_len) {
        let (b, h, i) = (row / q_len / heads, row / q_len % heads, row % q_len);
        let reads = (0..bound.shape().kv_len()).any(|j| bound.allowed(b, h, i, j));
        if !reads {
            empty += 1;
            assert!(out.iter().all(|x| x.to_bits() == 0), "{what}: row {:?} reads nothing but is {out:?}", [b, h, i]);
            assert_eq!(got.lse[row], f32::NEG_INFINITY, "{what}: row {:?} reads nothing", [b, h, i]);
        } else {
            assert!(got.lse[row].is_finite(), "{what}: row {:?} reads something", [b, h, i]);
        }
    }
    empty
}

#[test]
fn every_isa_computes_every_drawn_mask() {
    let cases = drawn::cases();
    for file in ["atoms", "facts", "random", "compositions", "models"] {
        assert!(cases.iter().any(|(name, _)| name == file), "{file} has no cases");
    }
    assert!(cases.len() > 200, "{} cases", cases.len());
    let mut empty = 0;
    for (n, (file, case)) in cases.iter().enumerate() {
        let bound = case.bind().unwrap_or_else(|error| panic!("{file}: {}: {error}", case.name));
        let shape = bound.shape().clone();
        let (batch, heads, kv_heads) = (shape.batch_len(), shape.head_count(), shape.kv_head_count());
        let cut = |block_q, reorder| bound.plan_with(&PlanOptions { block_q, reorder, ..PlanOptions::default() });
        let orders = [(5, Reorder::Never), (96, Reorder::Always), (3, Reorder::Copies), (20, Reorder::Residues(3))];
        let plans: Vec<Plan> =
            std::iter::once(bound.plan()).chain(orders.map(|(block_q, reorder)| cut(block_q, reorder))).collect();
        for dim in [8, 20] {
            let seed = (n * 100 + dim) as u64;
            let q = Array::random([batch, heads, shape.q_len(), dim], seed);
            let k = Array::random([batch, kv_heads, shape.kv_len(), dim], seed + 1);
            let v = Array::random([batch, kv_heads, shape.kv_len(), dim], seed + 2);
            let options = Options::default();
            let expected = reference::forward(&inputs(&q, &k, &v), &plans[0], &options).unwrap();
            for (plan, isa) in plans.iter().flat_map(|plan| Isa::available().iter().map(move |l| (plan, *l))) {
                let what = format!("{file}: {}: {} on {isa}, head_dim {dim}", case.name, case.mask);
                let got = run(&q, &k, &v, plan, isa, &options);
                let worst = difference(&got.out, &expected.out).max(difference(&got.lse, &expected.lse));
                assert!(worst <= 1e-5, "{what}: off by {worst:.1e} of the largest value");
                empty += check_empty_rows(&bound, &got, &what);
            }
        }
    }
    assert!(empty > 100, "only {empty} rows read nothing");
}

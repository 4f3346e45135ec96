//! Scores far above the usual range, infinities and NaN in keys that a query reads: every processor path gives the result of
//! the portable one, and rows that do not read such a key keep their bits.

use crate::common::{Array, inputs, plan};
use noren::{Attention, Element, Isa, Options, bf16};
use noren_mask::{Plan, Shape};

const LEN: usize = 150;

fn run<T: Element>([q, k, v]: [&Array<T>; 3], plan: &Plan, isa: Isa) -> Attention<T> {
    noren::attention(&inputs(q, k, v), plan, &Options::default().isa(isa)).unwrap()
}

/// Returns the output and the log-sum-exp of row `i`.
fn row<T: Element>(x: &Attention<T>, i: usize) -> Vec<f32> {
    let width = x.shape[3];
    x.out[i * width..][..width].iter().map(|x| x.to_f32()).chain([x.lse[i]]).collect()
}

/// Compares two rows: NaN and infinities must be in the same places, other numbers near.
fn assert_near(got: &[f32], expected: &[f32], what: &str) {
    for (n, (got, expected)) in got.iter().zip(expected).enumerate() {
        let near = (got - expected).abs() <= 0.02 * (1.0 + expected.abs());
        let same = got.to_bits() == expected.to_bits() || got.is_nan() && expected.is_nan();
        assert!(near || same, "{what}, number {n}: {got}, expected {expected}");
    }
}

fn check<T: Element>(mask: &str, special: f32, at: usize, head_dim: usize) {
    let plan = plan(mask, &Shape::square(LEN), &noren_mask::Facts::new());
    let [q, k, v] = [1, 2, 3].map(|seed| Array::random([1, 1, LEN, head_dim], seed));
    let changed = Array::new(k.shape, |[b, h, j, d]| match j == at && d == head_dim / 2 {
        true => special,
        false => k.view().get([b, h, j, d]),
    });
    let [q, k, changed, v] = [q, k, changed, v].map(|x| x.cast::<T>());
    let expected = run([&q, &changed, &v], &plan, Isa::Portable);
    for isa in Isa::available() {
        let what = format!("{mask}, {special} at key {at}, head_dim {head_dim}, {} on {isa}", T::DTYPE);
        let (got, clean) = (run([&q, &changed, &v], &plan, *isa), run([&q, &k, &v], &plan, *isa));
        for i in 0..LEN {
            match plan.bound().allowed(0, 0, i, at) {
                true => assert_near(&row(&got, i), &row(&expected, i), &format!("{what}, row {i}")),
                false => crate::common::assert_same_bits(&row(&got, i), &row(&clean, i), &format!("{what}, row {i}")),
            }
        }
    }
}

#[test]
fn special_keys_change_the_rows_that_read_them_and_no_other() {
    for mask in ["causal", "full", "sliding(20)", "window(left=9, right=70) - stride(3)"] {
        for special in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 1e6, -1e6, 3e8, -3e18, 1e38] {
            for at in [0, 3, 63, 64, 101, 149] {
                check::<bf16>(mask, special, at, 64);
            }
            check::<f32>(mask, special, 70, 24);
            check::<bf16>(mask, special, 70, 24);
        }
    }
}

#[test]
fn scores_rise_by_any_factor_from_block_to_block() {
    // Each key has a larger score than all keys before it, by up to `step` octaves.
    for (step, head_dim) in [0.01, 0.3, 1.0, 17.0, 300.0, 1e5].into_iter().zip([64, 128, 32, 64, 16, 64]) {
        let q = Array::new([1, 1, LEN, head_dim], |[.., d]| if d == 0 { 1.0 } else { 0.0 }).cast::<bf16>();
        let k =
            Array::new([1, 1, LEN, head_dim], |[.., j, d]| if d == 0 { j as f32 * step } else { 0.3 }).cast::<bf16>();
        let v = Array::random([1, 1, LEN, head_dim], 5).cast::<bf16>();
        for mask in ["causal", "full", "sliding(70)"] {
            let plan = plan(mask, &Shape::square(LEN), &noren_mask::Facts::new());
            let expected = noren::reference::forward(&inputs(&q, &k, &v), &plan, &Options::default()).unwrap();
            for isa in Isa::available() {
                let got = run([&q, &k, &v], &plan, *isa);
                let expected: Vec<f32> = expected.out.iter().map(|x| *x as f32).collect();
                let got: Vec<f32> = got.out.iter().map(|x| x.to_f32()).collect();
                assert_near(&got, &expected, &format!("{mask}, steps of {step}, on {isa}"));
            }
        }
    }
}

/// Some keys have scores of one size, the others of another size.
#[test]
fn scores_of_any_two_sizes_weigh_as_in_the_reference() {
    let sizes = [-3e38, -1e9, -3e6, -1.8e6, -2e5, -2e4, -40.0, 0.0, 3.0, 2e4, 1.8e6, 3e9];
    for (n, low) in sizes.into_iter().enumerate() {
        for high in &sizes[n..] {
            for period in [2, 37, 100] {
                let zeros = Array::new([1, 1, LEN, 16], |_| 0.0).cast::<bf16>();
                let v = Array::random([1, 1, LEN, 16], 5).cast::<bf16>();
                let bias = Array::new([1, 1, 1, LEN], |[.., j]| if j % period == period - 1 { *high } else { low });
                let options = Options::default().bias(noren::Bias::Dense(bias.view()));
                let plan = plan("causal", &Shape::square(LEN), &noren_mask::Facts::new());
                let given = inputs(&zeros, &zeros, &v);
                let expected = noren::reference::forward(&given, &plan, &options).unwrap();
                let expected: Vec<f32> = expected.out.iter().map(|x| *x as f32).collect();
                for isa in Isa::available() {
                    let got = noren::attention(&given, &plan, &options.clone().isa(*isa)).unwrap();
                    let got: Vec<f32> = got.out.iter().map(|x| x.to_f32()).collect();
                    assert_near(&got, &expected, &format!("{low} and {high}, one of {period}, on {isa}"));
                }
            }
        }
    }
}

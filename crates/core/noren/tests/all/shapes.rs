//! Compares every processor path with the `f64` reference, for all sizes, strides and options.

use crate::common;
use crate::common::{Array, difference, inputs, plan, run};
use noren::{Bias, Inputs, Isa, Options, Outputs, View, ViewMut, attention_into, reference};
use noren_mask::{Facts, Plan, Shape};

/// Compares all ISAs with the reference.
#[track_caller]
fn check(q: &Array, k: &Array, v: &Array, plan: &Plan, options: &Options<'_>) {
    let expected = reference::forward(&inputs(q, k, v), plan, options).unwrap();
    for isa in Isa::available() {
        let got = run(q, k, v, plan, *isa, options);
        let worst = difference(&got.out, &expected.out).max(difference(&got.lse, &expected.lse));
        assert!(worst <= 1e-5, "{:?} {:?} on {isa}: off by {worst:.1e}", q.shape, v.shape);
    }
}

#[test]
fn all_head_dims() {
    for head_dim in (1..=40).chain([48, 63, 64, 65, 80, 96, 127, 128, 129, 192, 200, 255, 256]) {
        let shape = Shape::square(33).heads(2);
        let [q, k] = [1, 2].map(|seed| Array::random([1, 2, 33, head_dim], seed));
        let v = Array::random([1, 2, 33, 257 - head_dim], 3);
        check(&q, &k, &v, &plan("causal", &shape, &Facts::new()), &Options::default());
    }
}

#[test]
fn all_lengths() {
    for len in (1..=70).chain([95, 96, 97, 127, 128, 129, 190, 193]) {
        for (q_len, kv_len) in [(len, len), (1, len), (len, 1), (5, len)] {
            let shape = Shape::cross(q_len, kv_len).heads(4).kv_heads(2);
            let q = Array::random([1, 4, q_len, 16], 1);
            let [k, v] = [2, 3].map(|seed| Array::random([1, 2, kv_len, 16], seed));
            check(&q, &k, &v, &plan("full", &shape, &Facts::new()), &Options::default());
        }
    }
}

#[test]
fn grouped_heads_and_patterns_by_head_and_batch() {
    for (heads, kv_heads) in [(8, 8), (8, 4), (8, 2), (8, 1), (7, 1), (6, 2)] {
        let shape = Shape::square(70).batch(2).heads(heads).kv_heads(kv_heads);
        let q = Array::random([2, heads, 70, 24], 1);
        let [k, v] = [2, 3].map(|seed| Array::random([2, kv_heads, 70, 24], seed));
        for mask in
            ["causal & padding", "heads(0..3: causal, 3..5: sliding(9), 5..: padding)", "batch(0: causal, 1: none)"]
        {
            check(&q, &k, &v, &plan(mask, &shape, &Facts::new().lengths([70, 31])), &Options::default());
        }
    }
}

/// Rows of a tile that read their first keys in different blocks. Head 0 has NaN in all values, so that sums in the memory of a
/// thread are NaN before the next heads.
#[test]
fn rows_that_begin_in_different_blocks() {
    let masks = [
        "keys(64..) | queries(6..) & keys(..40)",
        "queries(6..12) & keys(..40) | keys(64..)",
        "queries(20..) & keys(..64) | keys(64..200)",
        "queries(7) & keys(3) | keys(128..)",
        "queries(4..8) & keys(..64) | queries(..16) & keys(64..128) | keys(128..256)",
        "queries(..3) & keys(..10)",
        "causal(offset=170) - queries(10..14)",
    ];
    for (q_len, kv_len) in [(24, 260), (60, 193), (97, 300)] {
        for (heads, kv_heads) in [(3, 3), (6, 3)] {
            for v_dim in [64, 20, 131] {
                let shape = Shape::cross(q_len, kv_len).heads(heads).kv_heads(kv_heads);
                let q = Array::random([1, heads, q_len, 40], 1);
                let k = Array::random([1, kv_heads, kv_len, 40], 2);
                let v = Array::random([1, kv_heads, kv_len, v_dim], 3);
                let spoiled = Array::new(v.shape, |at| if at[1] == 0 { f32::NAN } else { v.view().get(at) });
                for mask in masks {
                    let plan = plan(mask, &shape, &Facts::new());
                    let expected = reference::forward(&inputs(&q, &k, &v), &plan, &Options::default()).unwrap();
                    let first = heads / kv_heads * q_len * v_dim;
                    for isa in Isa::available() {
                        for values in [&v, &spoiled] {
                            let got = run(&q, &k, values, &plan, *isa, &Options::default().threads(1));
                            let from = if std::ptr::eq(values, &v) { 0 } else { first };
                            let worst = difference(&got.out[from..], &expected.out[from..]);
                            assert!(worst <= 1e-5, "{mask}, {:?} on {isa}: off by {worst:.1e}", v.shape);
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn score_modifiers_together() {
    let shape = Shape::cached(30, 61).batch(2).heads(4).kv_heads(2);
    let q = Array::random([2, 4, 61, 16], 1);
    let [k, v] = [2, 3].map(|seed| Array::random([2, 2, 91, 16], seed));
    let plan = plan("causal & window(left=50)", &shape, &Facts::new());
    let dense = Array::random([1, 4, 61, 91], 4);
    let by_key = Array::random([2, 1, 1, 91], 5);
    let table = Array::random([1, 4, 1, 17], 6);
    let soft = Array::new([2, 1, 61, 91], |[b, _, i, j]| ((b + 3 * i + 7 * j) % 5) as f32 / 4.0);
    let bias = vec![
        Bias::Dense(dense.view()),
        Bias::Dense(by_key.view()),
        Bias::Relative { table: table.view() },
        Bias::Alibi(vec![0.5, 0.25, 0.125, 0.0625]),
    ];
    let sinks = [0.5, -2.0, 8.0, f32::NEG_INFINITY];
    let mut all = Options::default().scale(0.3).softcap(2.0).soft(soft.view()).sinks(&sinks);
    all.bias = bias.clone();
    check(&q, &k, &v, &plan, &all);
    for bias in bias {
        check(&q, &k, &v, &plan, &Options::default().bias(bias));
    }
    check(&q, &k, &v, &plan, &Options::default().softcap(30.0));
    check(&q, &k, &v, &plan, &Options::default().softcap(1e-3));
    check(&q, &k, &v, &plan, &Options::default().soft(soft.view()));
    check(&q, &k, &v, &plan, &Options::default().sinks(&sinks));
}

#[test]
fn any_strides() {
    // [batch, length, heads, head_dim] memory seen as [batch, heads, length, head_dim]; keys in reverse order; values with
    // head_dim outermost; an output with gaps around its rows.
    let (n, h, d) = (75, 3, 32);
    let memory = [1, 2, 3].map(|seed| Array::random([1, n, h, d], seed).data);
    let token_major = [0, d as isize, (h * d) as isize, 1];
    let backwards = [0, d as isize, -((h * d) as isize), 1];
    let dim_major = [0, n as isize, 1, (h * n) as isize];
    let q = View::strided(&memory[0], [1, h, n, d], token_major, 0).unwrap();
    let k = View::strided(&memory[1], [1, h, n, d], backwards, (n - 1) * h * d).unwrap();
    let v = View::strided(&memory[2], [1, h, n, d], dim_major, 0).unwrap();
    let dense = |view: &View<'_>| Array::new(view.shape(), |at| view.get(at));
    let plan = plan("sliding(20)", &Shape::square(n).heads(h), &Facts::new());
    let expected = reference::forward(&Inputs { q, k, v }, &plan, &Options::default()).unwrap();
    for isa in Isa::available() {
        let options = Options::default().isa(*isa);
        let mut memory = vec![7.5; 2 * n * h * d];
        let strides = [0, 2 * d as isize, 2 * (h * d) as isize, 2];
        let mut out = ViewMut::strided(&mut memory, [1, h, n, d], strides, 1).unwrap();
        attention_into(&Inputs { q, k, v }, &plan, &options, Outputs { out: out.reborrow(), lse: None }).unwrap();
        let got = dense(&out.as_view());
        assert!(difference(&got.data, &expected.out) <= 1e-5);
        let contiguous = run(&dense(&q), &dense(&k), &dense(&v), &plan, *isa, &Options::default());
        common::assert_same_bits(&got.data, &contiguous.out, "strides");
        assert!(memory.iter().step_by(2).all(|x| *x == 7.5), "what is not the output's is left alone");
    }
}

#[test]
fn broadcast_keys_and_values() {
    let q = Array::random([2, 4, 20, 16], 1);
    let one = Array::random([1, 1, 20, 16], 2);
    let k = one.view().broadcast([2, 4, 20, 16]).unwrap();
    let plan = plan("causal", &Shape::square(20).batch(2).heads(4), &Facts::new());
    let inputs = Inputs { q: q.view(), k, v: k };
    let expected = reference::forward(&inputs, &plan, &Options::default()).unwrap();
    let got = noren::attention(&inputs, &plan, &Options::default()).unwrap();
    assert!(difference(&got.out, &expected.out) <= 1e-5);
}

#[test]
fn empty_rows_are_zero_and_minus_infinity() {
    let [q, k, v] = [1, 2, 3].map(|seed| Array::random([1, 2, 40, 16], seed));
    let shape = Shape::square(40).heads(2);
    let sinks = [1.0, 2.0];
    for isa in Isa::available() {
        for sinks in [None, Some(&sinks[..])] {
            let mut options = Options::default();
            options.sinks = sinks;
            let got = run(&q, &k, &v, &plan("causal & keys(9..12)", &shape, &Facts::new()), *isa, &options);
            assert!(got.out[..9 * 16].iter().all(|x| x.to_bits() == 0), "no -0 and no NaN");
            assert!(got.lse[..9].iter().all(|x| *x == f32::NEG_INFINITY));
            assert!(got.lse[9..40].iter().all(|x| x.is_finite()));
        }
        // A row whose allowed scores are all minus infinity equals a row without an allowed key.
        let bias = Array::new([1, 1, 40, 1], |[_, _, i, _]| if i == 5 { f32::NEG_INFINITY } else { 0.0 });
        let options = Options::default().bias(Bias::Dense(bias.view()));
        let got = run(&q, &k, &v, &plan("causal", &shape, &Facts::new()), *isa, &options);
        assert!(got.out[5 * 16..6 * 16].iter().all(|x| *x == 0.0) && got.lse[5] == f32::NEG_INFINITY);
        assert!(got.out[6 * 16..].iter().all(|x| x.is_finite()));
    }
}

#[test]
fn infinities_and_nan_that_may_be_read_spread_as_far_as_they_are_read() {
    let [q, k, v] = [1, 2, 3].map(|seed| Array::random([1, 1, 30, 16], seed));
    let plan = plan("causal", &Shape::square(30), &Facts::new());
    for (isa, poison) in Isa::available().iter().flat_map(|l| [f32::NAN, f32::INFINITY].map(|p| (*l, p))) {
        let clean = run(&q, &k, &v, &plan, isa, &Options::default());
        let values = Array::new(v.shape, |at| if at[2] == 12 && at[3] == 3 { poison } else { v.view().get(at) });
        let got = run(&q, &k, &values, &plan, isa, &Options::default());
        for (n, (got, clean)) in got.out.iter().zip(&clean.out).enumerate() {
            match n >= 12 * 16 && n % 16 == 3 {
                true => assert!(!got.is_finite(), "row {} on {isa}", n / 16),
                false => assert_eq!(got.to_bits(), clean.to_bits()),
            }
        }
        let keys = Array::new(k.shape, |at| if at[2] == 12 { f32::NAN } else { k.view().get(at) });
        let got = run(&q, &keys, &v, &plan, isa, &Options::default());
        assert!(got.out[12 * 16..].iter().all(|x| x.is_nan()) && got.lse[12..].iter().all(|x| x.is_nan()), "{isa}");
        common::assert_same_bits(&got.out[..12 * 16], &clean.out[..12 * 16], "rows before");
    }
}

#[test]
fn additive_bias_of_minus_infinity_is_a_mask() {
    let [q, k, v] = [1, 2, 3].map(|seed| Array::random([1, 1, 90, 16], seed));
    let shape = Shape::square(90);
    let bias = Array::new([1, 1, 90, 90], |[_, _, i, j]| if j > i { f32::NEG_INFINITY } else { 0.0 });
    for isa in Isa::available() {
        let options = Options::default().bias(Bias::Dense(bias.view()));
        let biased = run(&q, &k, &v, &plan("full", &shape, &Facts::new()), *isa, &options);
        let masked = run(&q, &k, &v, &plan("causal", &shape, &Facts::new()), *isa, &Options::default());
        common::assert_same_bits(&biased.out, &masked.out, "out");
    }
}

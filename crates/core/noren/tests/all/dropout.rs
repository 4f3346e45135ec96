//! Dropout: every path and type drops the same cells as the reference. Threads and tiles change nothing, and the mean is kept.

use crate::common::{Array, assert_same_bits, check_accuracy, difference, inputs, plan, run};
use noren::{Dropout, Isa, Options, PlanOptions, Saved, Shape, View, attention, attention_backward, reference};
use noren_mask::Facts;

fn options(probability: f32, seed: u64) -> Options<'static> {
    Options::default().dropout(Dropout { probability, seed })
}

#[test]
fn every_isa_drops_what_the_reference_drops() {
    for (text, head_dim) in [("full", 64), ("causal", 33), ("sliding(37) | keys(0..3)", 16), ("stride(3)", 8)] {
        let shape = Shape::square(150).batch(2).heads(4).kv_heads(2);
        let q = Array::random([2, 4, 150, head_dim], 1);
        let [k, v] = [2, 3].map(|seed| Array::random([2, 2, 150, head_dim], seed));
        let plan = plan(text, &shape, &Facts::new());
        let options = options(0.3, 99);
        let expected = reference::forward(&inputs(&q, &k, &v), &plan, &options).unwrap();
        for isa in Isa::available() {
            let got = run(&q, &k, &v, &plan, *isa, &options);
            let worst = got.out.iter().zip(&expected.out).map(|(a, b)| (f64::from(*a) - b).abs()).fold(0.0, f64::max);
            assert!(worst < 1e-5, "{text} on {isa}: off by {worst:e}");
            let lse = got.lse.iter().zip(&expected.lse).all(|(a, b)| (f64::from(*a) - b).abs() < 1e-5);
            assert!(lse, "{text} on {isa}: dropout comes after the softmax");
        }
        let [q, k, v] = [q, k, v].map(|x| x.cast::<noren::bf16>());
        check_accuracy(&inputs(&q, &k, &v), &plan, &options, 1e-5, text);
    }
}

#[test]
fn the_backward_pass_drops_the_same() {
    let shape = Shape::square(130).batch(2).heads(4).kv_heads(2);
    let [q, dout] = [1, 4].map(|seed| Array::random([2, 4, 130, 24], seed));
    let [k, v] = [2, 3].map(|seed| Array::random([2, 2, 130, 24], seed));
    for text in ["full", "causal", "sliding(37) | keys(0..3)", "causal & sliding(1)"] {
        let plan = plan(text, &shape, &Facts::new());
        for softcap in [None, Some(3.0)] {
            let options = options(0.3, 99).softcap(softcap);
            let inputs = inputs(&q, &k, &v);
            let expected = reference::backward(&inputs, &dout.view(), &plan, &options).unwrap();
            for isa in Isa::available() {
                let options = options.clone().isa(*isa);
                let forward = attention(&inputs, &plan, &options).unwrap();
                let out = View::new(&forward.out, forward.shape).unwrap();
                let saved = Saved { out, lse: &forward.lse, dout: dout.view() };
                let got = attention_backward(&inputs, &saved, &plan, &options).unwrap();
                for (name, got, expected) in
                    [("dq", &got.dq, &expected.dq), ("dk", &got.dk, &expected.dk), ("dv", &got.dv, &expected.dv)]
                {
                    let off = difference(got, expected);
                    assert!(off < 2e-5, "{text} on {isa}: {name} off by {off:.1e} of the largest value");
                }
            }
        }
    }
}

#[test]
fn neither_threads_nor_tiles_choose_what_is_dropped() {
    let shape = Shape::square(300).heads(3);
    let [q, k, v] = [1, 2, 3].map(|seed| Array::random([1, 3, 300, 32], seed));
    let bound = "causal".parse::<noren::Mask>().unwrap().bind(&shape, &Facts::new()).unwrap();
    for isa in Isa::available() {
        let expected = run(&q, &k, &v, &bound.plan(), *isa, &options(0.5, 1));
        for (block_q, threads) in [(7, 1), (40, 2), (256, 3)] {
            let plan = bound.plan_with(&PlanOptions { block_q, ..PlanOptions::default() });
            let options = options(0.5, 1).isa(*isa).threads(threads);
            let got = attention(&inputs(&q, &k, &v), &plan, &options).unwrap();
            assert_same_bits(&got.out, &expected.out, &format!("{block_q} rows, {threads} threads on {isa}"));
        }
    }
}

/// If all values are 1, an output is the sum of the kept probabilities, and its mean is 1. Neighbouring keys, rows and heads
/// of a full mask are dropped independently.
#[test]
fn what_stays_is_unbiased_and_independent() {
    let (heads, n, p) = (4, 256, 0.4);
    let ones = |n| Array::new([1, heads, n, 8], |_| 1.0);
    let shape = Shape::square(n).heads(heads);
    let (q, v) = (ones(n), ones(n));
    let got = run(&q, &ones(n), &v, &plan("full", &shape, &Facts::new()), Isa::Portable, &options(p, 5));
    let rows: Vec<f64> = got.out.chunks(8).map(|row| f64::from(row[0])).collect();
    let mean = rows.iter().sum::<f64>() / rows.len() as f64;
    let variance = rows.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / rows.len() as f64;
    let expected = f64::from(p) / f64::from(1.0 - p) / n as f64;
    assert!((mean - 1.0).abs() < 4.0 * (expected / rows.len() as f64).sqrt(), "mean {mean}");
    assert!((variance / expected - 1.0).abs() < 0.2, "variance {variance}, {expected} if independent");

    let dropout = Dropout { probability: p, seed: 5 };
    let keeps = |h: usize, i: usize, j: usize| if dropout.keeps([0, h, i, j]) { 1.0 } else { 0.0 };
    for (name, step) in [("head", [1, 0, 0]), ("row", [0, 1, 0]), ("key", [0, 0, 1]), ("fifth key", [0, 0, 5])] {
        let cells = (0..3 * 200 * 200).map(|c| (c / 40_000, c / 200 % 200, c % 200));
        let both = cells.map(|(h, i, j)| keeps(h, i, j) * keeps(h + step[0], i + step[1], j + step[2])).sum::<f64>();
        let share = both / 120_000.0;
        assert!((share - 0.36).abs() < 0.006, "neighbours by {name} stay together {share} of the time");
    }
    let other = Dropout { seed: 6, ..dropout };
    assert!((0..1000).any(|j| other.keeps([0, 0, 0, j]) != dropout.keeps([0, 0, 0, j])));
}

#[test]
fn probabilities_outside_are_refused() {
    let x = Array::random([1, 1, 2, 4], 1);
    let plan = plan("full", &Shape::square(2), &Facts::new());
    for p in [-0.1, 1.0, f32::NAN, f32::INFINITY] {
        let error = attention(&inputs(&x, &x, &x), &plan, &options(p, 0)).unwrap_err().to_string();
        assert!(error.starts_with(&format!("dropout is {p}: give a probability from 0.0")), "{error}");
    }
}

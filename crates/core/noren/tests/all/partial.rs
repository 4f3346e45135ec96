//! Gradients of parts of the keys, computed with the results of the whole forward pass, sum to the gradients of the whole.

use crate::common::{Array, inputs, plan};
use noren::{Gradients, Isa, Options, Saved, View, attention, attention_backward};
use noren_mask::{Facts, Plan, Shape};
use std::ops::Range;

/// Returns the gradients for `plan`, with the output and the log-sum-exps of `whole`.
fn part([q, k, v, dout]: [&Array; 4], whole: &noren::Attention, plan: &Plan, isa: Isa) -> Gradients {
    let saved = Saved { out: View::new(&whole.out, whole.shape).unwrap(), lse: &whole.lse, dout: dout.view() };
    let options = Options::default().partial(true).isa(isa);
    attention_backward(&inputs(q, k, v), &saved, plan, &options).unwrap()
}

/// Returns two parts of the keys: runs of three keys, alternately in the first and in the second part.
fn halves(len: usize) -> [Vec<Range<usize>>; 2] {
    let runs =
        |odd: usize| (0..len.div_ceil(3)).filter(move |run| run % 2 == odd).map(|run| 3 * run..len.min(3 * run + 3));
    [runs(0).collect(), runs(1).collect()]
}

fn add(sum: &mut Array, part: &[f32], keys: &[usize]) {
    let [b, h, n, d] = sum.shape;
    for pair in 0..b * h {
        for (i, key) in keys.iter().enumerate() {
            for x in 0..d {
                sum.data[(pair * n + key) * d + x] += part[(pair * keys.len() + i) * d + x];
            }
        }
    }
}

#[test]
fn parts_add_up() {
    // The last number scales the scores. It covers scores in the hundreds, and rows with nearly all weight on one key.
    for (mask, len, stretch) in [
        ("causal", 50, 1.0),
        ("tree(parents=[-1, -1, 0, 1, 2])", 5, 3.0),
        ("causal & documents([20, 70, 37])", 127, 1.0),
        ("sliding(4)", 60, 8.0),
        ("causal", 40, 40.0),
    ] {
        let whole_plan = plan(mask, &Shape::square(len).heads(4).kv_heads(2), &Facts::new());
        let [mut q, k, v, dout] = [(4, 16, 1), (2, 16, 2), (2, 8, 3), (4, 8, 4)]
            .map(|(heads, dim, seed)| Array::random([1, heads, len, dim], seed));
        q.data.iter_mut().for_each(|x| *x *= stretch);
        for isa in Isa::available() {
            let options = Options::default().isa(*isa);
            let forward = attention(&inputs(&q, &k, &v), &whole_plan, &options).unwrap();
            let saved =
                Saved { out: View::new(&forward.out, forward.shape).unwrap(), lse: &forward.lse, dout: dout.view() };
            let expected = attention_backward(&inputs(&q, &k, &v), &saved, &whole_plan, &options).unwrap();
            let zero = |x: &Array| Array::new(x.shape, |_| 0.0);
            let (mut dq, mut dk, mut dv) = (zero(&q), zero(&k), zero(&v));
            for runs in halves(len) {
                let keys: Vec<usize> = runs.iter().cloned().flatten().collect();
                let of = |x: &Array| {
                    Array::new([1, 2, keys.len(), x.shape[3]], |[b, h, i, d]| x.view().get([b, h, keys[i], d]))
                };
                let plan = whole_plan.bound().select(std::iter::once(0..len), runs).unwrap().plan();
                let found = part([&q, &of(&k), &of(&v), &dout], &forward, &plan, *isa);
                dq.data.iter_mut().zip(found.dq).for_each(|(sum, x)| *sum += x);
                add(&mut dk, &found.dk, &keys);
                add(&mut dv, &found.dv, &keys);
            }
            for (name, sum, whole) in [("dq", dq, expected.dq), ("dk", dk, expected.dk), ("dv", dv, expected.dv)] {
                let scale = whole.iter().fold(1.0f32, |most, x| most.max(x.abs()));
                let worst = sum.data.iter().zip(&whole).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max) / scale;
                // the log-sum-exp of a row with scores of hundreds is known to 1e-5
                let most = if stretch > 10.0 { 1e-4 } else { 3e-6 };
                assert!(worst <= most, "{mask}, scores times {stretch}, {isa}: {name} is off by {worst:e}");
            }
        }
    }
}

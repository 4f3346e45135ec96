//! `bf16` and `f16`: results are as accurate as the type allows, and the guarantees of `f32` hold.

use crate::common;
use crate::common::{Array, check_accuracy, check_gradients, inputs, plan, run};
use noren::{
    Element, Gradients, Inputs, Isa, Options, Outputs, Saved, View, ViewMut, attention, attention_backward,
    attention_into, f16,
};
use noren_mask::{Facts, Plan, Shape};

/// Runs a generic test in both types.
macro_rules! in_both_types {
    ($($name:ident),*) => {
        $(mod $name {
            #[test]
            fn in_bf16() {
                super::$name::<noren::bf16>();
            }

            #[test]
            fn in_f16() {
                super::$name::<noren::f16>();
            }
        })*
    };
}

in_both_types!(
    head_dims_and_lengths_of_all_kinds,
    grouped_heads_with_score_modifiers,
    strides_change_no_bit,
    addresses_change_no_bit,
    hidden_content_changes_no_bit,
    threads_change_no_bit,
    packing_and_padding_change_no_bit,
    empty_rows_are_zero,
    gradients_are_as_accurate_as_the_type_allows,
    hidden_content_changes_no_bit_of_a_gradient,
    threads_change_no_bit_of_a_gradient
);

fn random<T: Element>(shape: [usize; 4], seed: u64) -> Array<T> {
    Array::random(shape, seed).cast()
}

#[track_caller]
fn assert_same<T: Element>(got: &[T], expected: &[T], what: &str) {
    let [got, expected] = [got, expected].map(|values| values.iter().map(|x| x.to_f32()).collect::<Vec<f32>>());
    common::assert_same_bits(&got, &expected, what);
}

fn head_dims_and_lengths_of_all_kinds<T: Element>() {
    for head_dim in [1, 3, 15, 16, 17, 31, 32, 40, 64, 80, 96, 128, 256] {
        for (q_len, kv_len) in [(33, 33), (1, 200), (5, 17), (130, 70)] {
            let shape = Shape::cross(q_len, kv_len).heads(2);
            let [q, k] = [(q_len, 1), (kv_len, 2)].map(|(n, seed)| random::<T>([1, 2, n, head_dim], seed));
            let v = random([1, 2, kv_len, 257 - head_dim], 3);
            let plan = plan("window(left=90, right=40)", &shape, &Facts::new());
            let what = format!("head_dim {head_dim}, {q_len} x {kv_len}");
            check_accuracy(&inputs(&q, &k, &v), &plan, &Options::default(), 1e-5, &what);
        }
    }
}

fn grouped_heads_with_score_modifiers<T: Element>() {
    let shape = Shape::cached(20, 51).batch(2).heads(4).kv_heads(2);
    let q = random::<T>([2, 4, 51, 24], 1);
    let [k, v] = [2, 3].map(|seed| random([2, 2, 71, 24], seed));
    let plan = plan("causal & padding", &shape, &Facts::new().lengths([71, 43]));
    let bias = Array::random([1, 4, 51, 71], 4);
    let soft = Array::new([2, 1, 51, 71], |[b, _, i, j]| ((b + 3 * i + 7 * j) % 5) as f32 / 4.0);
    let sinks = [0.5, -2.0, 3.0, f32::NEG_INFINITY];
    let options = Options::default()
        .softcap(2.0)
        .bias(noren::Bias::Dense(bias.view()))
        .bias(noren::Bias::Alibi(vec![0.5, 0.25, 0.125, 0.0625]))
        .soft(soft.view())
        .sinks(&sinks);
    check_accuracy(&inputs(&q, &k, &v), &plan, &options, 1e-5, "modifiers");
}

fn strides_change_no_bit<T: Element>() {
    // [batch, length, heads, head_dim] memory seen as [batch, heads, length, head_dim]; keys in reverse order; values with
    // head_dim outermost; an output with gaps around its values.
    let (n, h, d) = (75, 3, 32);
    let memory = [1, 2, 3].map(|seed| random::<T>([1, n, h, d], seed).data);
    let token_major = [0, d as isize, (h * d) as isize, 1];
    let backwards = [0, d as isize, -((h * d) as isize), 1];
    let dim_major = [0, n as isize, 1, (h * n) as isize];
    let q = View::strided(&memory[0], [1, h, n, d], token_major, 0).unwrap();
    let k = View::strided(&memory[1], [1, h, n, d], backwards, (n - 1) * h * d).unwrap();
    let v = View::strided(&memory[2], [1, h, n, d], dim_major, 0).unwrap();
    let dense = |view: &View<'_, T>| Array::new(view.shape(), |at| view.get(at).to_f32()).cast::<T>();
    let plan = plan("sliding(20)", &Shape::square(n).heads(h), &Facts::new());
    check_accuracy(&Inputs { q, k, v }, &plan, &Options::default(), 1e-5, "strided");
    for isa in Isa::available() {
        let expected = run(&dense(&q), &dense(&k), &dense(&v), &plan, *isa, &Options::default());
        let options = Options::default().isa(*isa);
        for (step, strides) in
            [(1, [0, d as isize, (h * d) as isize, 1]), (2, [0, 2 * d as isize, 2 * (h * d) as isize, 2])]
        {
            let mut memory = vec![T::from_f32(7.5); step * n * h * d];
            let mut out = ViewMut::strided(&mut memory, [1, h, n, d], strides, step - 1).unwrap();
            attention_into(&Inputs { q, k, v }, &plan, &options, Outputs { out: out.reborrow(), lse: None }).unwrap();
            assert_same(&dense(&out.as_view()).data, &expected.out, &format!("on {isa}"));
            let between = memory.iter().step_by(2).filter(|_| step == 2);
            assert!(between.into_iter().all(|x| x.to_f32() == 7.5), "what is not the output's is left alone");
        }
    }
}

fn addresses_change_no_bit<T: Element>() {
    // Rows at addresses that no `f32` can have, and rows of one head that are far apart. There are more heads than threads,
    // and two jobs for each head, so that a thread computes one head after another.
    let pool = rayon::ThreadPoolBuilder::new().num_threads(3).build().unwrap();
    let (n, h) = (151, 8);
    for d in [33, 64] {
        let [q, k, v] = [1, 2, 3].map(|seed| random::<T>([2, h, n, d], seed));
        let plan = plan("causal & sliding(100)", &Shape::square(n).batch(2).heads(h), &Facts::new());
        let strides = [[h * n * d, n * d, d, 1], [n * h * d, d, h * d, 1]].map(|x| x.map(|stride| stride as isize));
        for isa in Isa::available() {
            let expected = run(&q, &k, &v, &plan, *isa, &Options::default().threads(1));
            for (first, strides) in [(1, strides[0]), (0, strides[1]), (3, strides[1])] {
                let moved = [&q, &k, &v].map(|x| {
                    let mut memory = vec![T::from_f32(f32::NAN); first + x.data.len()];
                    // The array is [2, h, n, d], the last dimension fastest.
                    for (i, value) in x.data.iter().enumerate() {
                        let at = [i / (h * n * d), i / (n * d) % h, i / d % n, i % d];
                        let index = at.iter().zip(strides).map(|(at, stride)| at * stride as usize).sum::<usize>();
                        memory[first + index] = *value;
                    }
                    memory
                });
                let [q, k, v] = [0, 1, 2].map(|i| View::strided(&moved[i], [2, h, n, d], strides, first).unwrap());
                let mut out = vec![T::from_f32(0.0); first + 2 * h * n * d];
                let mut view = ViewMut::strided(&mut out, [2, h, n, d], strides, first).unwrap();
                let outputs = Outputs { out: view.reborrow(), lse: None };
                let options = Options::default().isa(*isa);
                pool.install(|| attention_into(&Inputs { q, k, v }, &plan, &options, outputs)).unwrap();
                let got = Array::new([2, h, n, d], |at| view.as_view().get(at).to_f32()).cast::<T>();
                assert_same(&got.data, &expected.out, &format!("head_dim {d}, first {first}, {strides:?} on {isa}"));
            }
        }
    }
}

fn hidden_content_changes_no_bit<T: Element>() {
    let shape = Shape::square(150).heads(4).kv_heads(2);
    let plan = plan("sliding(20) - keys([7, 64..99])", &shape, &Facts::new());
    let q = random::<T>([1, 4, 150, 24], 1);
    let (k, v) = (random::<T>([1, 2, 150, 24], 2), random::<T>([1, 2, 150, 40], 3));
    let poisoned = |x: &Array<T>, poison: f32| {
        let keep = |j: usize| j != 7 && !(64..99).contains(&j);
        Array::new(x.shape, |at| if keep(at[2]) { x.view().get(at).to_f32() } else { poison }).cast::<T>()
    };
    for isa in Isa::available() {
        let clean = run(&q, &k, &v, &plan, *isa, &Options::default());
        for poison in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 6e4] {
            let got = run(&q, &poisoned(&k, poison), &poisoned(&v, poison), &plan, *isa, &Options::default());
            assert_same(&got.out, &clean.out, &format!("{poison} on {isa}"));
            common::assert_same_bits(&got.lse, &clean.lse, &format!("{poison} on {isa}"));
        }
    }
}

fn threads_change_no_bit<T: Element>() {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(5).build().unwrap();
    // Heads of equal work; and two long batch rows among short ones, for which all threads compute the same heads at the
    // end.
    let lengths = (0..20).map(|b| if b % 11 == 3 { 300 } else { 3 }).collect::<Vec<usize>>();
    let cases = [(3, 4, 150, Facts::new(), "causal"), (20, 1, 300, Facts::new().lengths(lengths), "causal & padding")];
    for (batch, heads, n, facts, mask) in cases {
        let [q, k, v] = [1, 2, 3].map(|seed| random::<T>([batch, heads, n, 64], seed));
        let plan = plan(mask, &Shape::square(n).batch(batch).heads(heads), &facts);
        for isa in Isa::available() {
            let one = Options::default().threads(1);
            let expected = run(&q, &k, &v, &plan, *isa, &one);
            let got = pool.install(|| run(&q, &k, &v, &plan, *isa, &Options::default()));
            assert_same(&got.out, &expected.out, &format!("{mask} on {isa}"));
        }
    }
}

fn packing_and_padding_change_no_bit<T: Element>() {
    let (n, d) = (75, 40);
    let alone = [1, 2, 3].map(|seed| random::<T>([1, 2, n, d], seed));
    let own = plan("causal", &Shape::square(n).heads(2), &Facts::new());
    for isa in Isa::available() {
        let expected = run(&alone[0], &alone[1], &alone[2], &own, *isa, &Options::default());
        for before in [16, 38, 64, 101, 17, 1] {
            let total = before + n + 9;
            let packed = [0, 1, 2].map(|i| {
                let other = random::<T>([1, 2, total, d], 10 + i as u64);
                let inside = |at: [usize; 4]| (before..before + n).contains(&at[2]);
                let view = |[_, h, j, x]: [usize; 4]| alone[i].view().get([0, h, j - before, x]).to_f32();
                Array::new([1, 2, total, d], |at| if inside(at) { view(at) } else { other.view().get(at).to_f32() })
                    .cast::<T>()
            });
            let shape = Shape::square(total).heads(2);
            let plan = plan(&format!("causal & documents([{before}, {n}, 9])"), &shape, &Facts::new());
            let got = run(&packed[0], &packed[1], &packed[2], &plan, *isa, &Options::default());
            for h in 0..2 {
                let rows = |out: &[T], total, first| out[(h * total + first) * d..][..n * d].to_vec();
                let (got, expected) = (rows(&got.out, total, before), rows(&expected.out, n, 0));
                assert_same(&got, &expected, &format!("{before} keys before, on {isa}"));
            }
        }
    }
}

fn empty_rows_are_zero<T: Element>() {
    let [q, k, v] = [1, 2, 3].map(|seed| random::<T>([1, 1, 40, 16], seed));
    let plan = plan("causal & keys(9..12)", &Shape::square(40), &Facts::new());
    for isa in Isa::available() {
        let got = run(&q, &k, &v, &plan, *isa, &Options::default());
        assert!(got.out[..9 * 16].iter().all(|x| x.to_f32().to_bits() == 0), "no -0 and no NaN");
        assert!(got.lse[..9].iter().all(|x| *x == f32::NEG_INFINITY));
    }
}

#[test]
fn scores_beyond_the_type_are_computed_in_f32() {
    let large = Array::new([1, 1, 1, 1], |_| 65504.0).cast::<f16>();
    let plan = plan("full", &Shape::square(1), &Facts::new());
    for isa in Isa::available() {
        let got = run(&large, &large, &large, &plan, *isa, &Options::default());
        assert_eq!(got.out, [f16::MAX]);
        assert!((got.lse[0] / (65504.0 * 65504.0) - 1.0).abs() < 1e-6, "{} on {isa}", got.lse[0]);
    }
}

/// Returns the gradients of a pass on an ISA.
fn gradients<T: Element>([q, k, v, dout]: [&Array<T>; 4], plan: &Plan, isa: Isa, threads: usize) -> Gradients<T> {
    let options = Options::default().isa(isa).threads(threads);
    let forward = attention(&inputs(q, k, v), plan, &options).unwrap();
    let out = View::new(&forward.out, forward.shape).unwrap();
    let saved = Saved { out, lse: &forward.lse, dout: dout.view() };
    attention_backward(&inputs(q, k, v), &saved, plan, &options).unwrap()
}

#[track_caller]
fn assert_same_gradients<T: Element>(got: &Gradients<T>, expected: &Gradients<T>, what: &str) {
    let pairs = [(&got.dq, &expected.dq), (&got.dk, &expected.dk), (&got.dv, &expected.dv)];
    pairs.into_iter().zip(["dq", "dk", "dv"]).for_each(|((a, b), name)| assert_same(a, b, &format!("{name}, {what}")));
}

fn gradients_are_as_accurate_as_the_type_allows<T: Element>() {
    let masks =
        ["causal", "sliding(20)", "full - keys(30..50)", "causal & documents([40, 31, 79])", "queries(..40) | keys(9)"];
    for (n, mask) in masks.iter().enumerate() {
        let (head_dim, v_dim) = [(64, 64), (40, 24), (17, 33), (128, 128), (1, 5)][n];
        let plan = plan(mask, &Shape::square(150).heads(4).kv_heads(2), &Facts::new());
        let [q, dout] = [(head_dim, 1), (v_dim, 2)].map(|(d, seed)| random::<T>([1, 4, 150, d], seed));
        let [k, v] = [(head_dim, 3), (v_dim, 4)].map(|(d, seed)| random::<T>([1, 2, 150, d], seed));
        let options = Options::default().softcap((n % 2 == 0).then_some(3.0));
        check_gradients(&inputs(&q, &k, &v), &dout.view(), &plan, &options, 2e-5, mask);
    }
}

fn hidden_content_changes_no_bit_of_a_gradient<T: Element>() {
    let plan = plan(
        "sliding(20) - keys([7, 64..99]) - queries([5, 100..110])",
        &Shape::square(150).heads(4).kv_heads(2),
        &Facts::new(),
    );
    let [q, dout] = [1, 2].map(|seed| random::<T>([1, 4, 150, 24], seed));
    let [k, v] = [3, 4].map(|seed| random::<T>([1, 2, 150, 24], seed));
    let poisoned = |x: &Array<T>, hidden: &dyn Fn(usize) -> bool, poison: f32| {
        Array::new(x.shape, |at| if hidden(at[2]) { poison } else { x.view().get(at).to_f32() }).cast::<T>()
    };
    let hidden_key = |j: usize| j == 7 || (64..99).contains(&j);
    // Queries 83..=98 may read only hidden keys.
    let hidden_query = |i: usize| i == 5 || (100..110).contains(&i) || (83..=98).contains(&i);
    for isa in Isa::available() {
        let clean = gradients([&q, &k, &v, &dout], &plan, *isa, 1);
        let zero = |x: &[T], row: usize| x[row * 24..][..24].iter().all(|x| x.to_f32().to_bits() == 0);
        assert!(zero(&clean.dk, 7) && zero(&clean.dv, 64) && zero(&clean.dq, 5), "what is hidden has no gradient");
        for poison in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 6e4] {
            let [k, v] = [&k, &v].map(|x| poisoned(x, &hidden_key, poison));
            let [q, dout] = [&q, &dout].map(|x| poisoned(x, &hidden_query, poison));
            let got = gradients([&q, &k, &v, &dout], &plan, *isa, 1);
            assert_same_gradients(&got, &clean, &format!("{poison} on {isa}"));
        }
    }
}

fn threads_change_no_bit_of_a_gradient<T: Element>() {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(3).build().unwrap();
    let plan = plan("causal", &Shape::square(300).batch(2).heads(4), &Facts::new());
    let [q, k, v, dout] = [1, 2, 3, 4].map(|seed| random::<T>([2, 4, 300, 64], seed));
    for isa in Isa::available() {
        let one = gradients([&q, &k, &v, &dout], &plan, *isa, 1);
        let many = pool.install(|| gradients([&q, &k, &v, &dout], &plan, *isa, 3));
        assert_same_gradients(&many, &one, &format!("on {isa}"));
    }
}

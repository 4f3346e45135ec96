//! Hidden content does not leak, and equal content gives equal bits, on every processor path.

use crate::common::{Array, assert_same_bits, plan, run};
use noren::{Attention, Bias, Isa, Options};
use noren_mask::{Facts, Plan, PlanOptions, Shape, Spec};
use proptest::prelude::*;

const POISON: [f32; 4] = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 1e30];

/// Returns row `[b, h, i]` of an output: its values, followed by its log-sum-exp.
fn row(output: &Attention, [b, h, i]: [usize; 3]) -> Vec<f32> {
    let [_, heads, q_len, v_dim] = output.shape;
    let index = (b * heads + h) * q_len + i;
    let mut row = output.out[index * v_dim..][..v_dim].to_vec();
    row.push(output.lse[index]);
    row
}

/// A mask with queries, keys and values.
struct Scene {
    q: Array,
    k: Array,
    v: Array,
    plan: Plan,
}

impl Scene {
    fn new(mask: &str, shape: &Shape, facts: &Facts, head_dim: usize, v_dim: usize, seed: u64) -> Scene {
        let [batch, heads, kv_heads] = [shape.batch_len(), shape.head_count(), shape.kv_head_count()];
        Scene {
            q: Array::random([batch, heads, shape.q_len(), head_dim], seed),
            k: Array::random([batch, kv_heads, shape.kv_len(), head_dim], seed + 1),
            v: Array::random([batch, kv_heads, shape.kv_len(), v_dim], seed + 2),
            plan: plan(mask, shape, facts),
        }
    }

    fn run(&self, isa: Isa, options: &Options<'_>) -> Attention {
        run(&self.q, &self.k, &self.v, &self.plan, isa, options)
    }
}

/// Masks over 150 tokens in 2 batch rows and 4 heads (2 key-value heads), some with hidden keys between visible ones.
const MASKS: [&str; 9] = [
    "causal",
    "sliding(20) | (causal & keys(0..3))",
    "causal & documents([40, 1, 63, 46])",
    "window(left=9, right=30) - stride(3)",
    "causal & padding",
    "padding(side=left)",
    "heads(0: causal, 1..3: sliding(8), 3: chunk(50))",
    "full - keys([0, 7, 64..99, 149])",
    "causal & random(0.3, 5)",
];

fn biased(bias: &Array) -> Options<'_> {
    Options::default().bias(Bias::Dense(bias.view()))
}

#[test]
fn hidden_keys_values_and_biases_change_no_bit() {
    let shape = Shape::square(150).batch(2).heads(4).kv_heads(2);
    let facts = Facts::new().lengths([150, 87]);
    for (mask, isa) in MASKS.iter().flat_map(|mask| Isa::available().iter().map(move |isa| (mask, *isa))) {
        let scene = Scene::new(mask, &shape, &facts, 24, 40, 7);
        let bias = Array::random([2, 4, 150, 150], 99);
        let allowed = |b, h, i, j| scene.plan.bound().allowed(b, h, i, j);
        let clean = (scene.run(isa, &Options::default()), scene.run(isa, &biased(&bias)));
        for (n, poison) in POISON.into_iter().enumerate() {
            // Every 13th row is tested, with poison in all cells that the row may not read. All rows would be slow.
            for i in (n..150).step_by(13) {
                let hidden = |b: usize, g: usize, j: usize| (2 * g..2 * g + 2).all(|h| !allowed(b, h, i, j));
                let replace = |x: &Array| {
                    Array::new(
                        x.shape,
                        |[b, g, j, d]| if hidden(b, g, j) { poison } else { x.view().get([b, g, j, d]) },
                    )
                };
                let (k, v) = (replace(&scene.k), replace(&scene.v));
                let poisoned_bias =
                    Array::new(
                        bias.shape,
                        |[b, h, q, j]| {
                            if allowed(b, h, q, j) { bias.view().get([b, h, q, j]) } else { poison }
                        },
                    );
                let got = run(&scene.q, &k, &v, &scene.plan, isa, &Options::default());
                let got_biased = run(&scene.q, &k, &v, &scene.plan, isa, &biased(&poisoned_bias));
                for (b, h) in (0..2).flat_map(|b| (0..4).map(move |h| (b, h))) {
                    let at = [b, h, i];
                    assert_same_bits(&row(&got, at), &row(&clean.0, at), &format!("{mask} on {isa}, {at:?}, {poison}"));
                    let what = format!("{mask} + bias on {isa}, {at:?}, {poison}");
                    assert_same_bits(&row(&got_biased, at), &row(&clean.1, at), &what);
                }
            }
        }
    }
}

#[test]
fn weights_of_zero_hide() {
    for isa in Isa::available() {
        let scene = Scene::new("causal", &Shape::square(70), &Facts::new(), 16, 16, 3);
        let soft = Array::new([1, 1, 1, 70], |[.., j]| if j % 3 == 1 { 0.0 } else { 0.5 });
        let options = Options::default().soft(soft.view());
        let clean = scene.run(*isa, &options);
        let replace = |x: &Array| Array::new(x.shape, |at| if at[2] % 3 == 1 { f32::NAN } else { x.view().get(at) });
        let got = run(&scene.q, &replace(&scene.k), &replace(&scene.v), &scene.plan, *isa, &options);
        assert_same_bits(&got.out, &clean.out, "out");
        assert_same_bits(&got.lse, &clean.lse, "lse");
    }
}

#[test]
fn tiles_of_any_size_and_any_threads_give_the_same_bits() {
    let shape = Shape::square(150).batch(2).heads(4).kv_heads(2);
    let facts = Facts::new().lengths([150, 87]);
    let pool = rayon::ThreadPoolBuilder::new().num_threads(3).build().unwrap();
    for (mask, isa) in MASKS.iter().flat_map(|mask| Isa::available().iter().map(move |isa| (mask, *isa))) {
        let mut scene = Scene::new(mask, &shape, &facts, 64, 64, 17);
        let expected = scene.run(isa, &Options::default());
        for block_q in [1, 7, 96, 1000] {
            let spec: Spec = mask.parse().unwrap();
            let bound = spec.mask.bind(&shape, &facts).unwrap();
            scene.plan = bound.plan_with(&PlanOptions { block_q, ..PlanOptions::default() });
            for threads in [1, 2, 3] {
                let options = Options::default().threads(threads);
                let got = pool.install(|| scene.run(isa, &options));
                let what = format!("{mask} on {isa}, tiles of {block_q}, {threads} threads");
                assert_same_bits(&got.out, &expected.out, &what);
                assert_same_bits(&got.lse, &expected.lse, &what);
            }
        }
    }
}

/// Returns the attention over one sequence alone, with which the tests below compare.
fn alone(q: &Array, k: &Array, v: &Array, mask: &str, isa: Isa) -> Attention {
    let shape = Shape::square(q.shape[2]).heads(q.shape[1]).kv_heads(k.shape[1]);
    run(q, k, v, &plan(mask, &shape, &Facts::new()), isa, &Options::default())
}

fn check_rows(got: &Attention, batch: usize, from: usize, expected: &Attention, what: &str) {
    for (h, i) in (0..expected.shape[1]).flat_map(|h| (0..expected.shape[2]).map(move |i| (h, i))) {
        assert_same_bits(
            &row(got, [batch, h, from + i]),
            &row(expected, [0, h, i]),
            &format!("{what}, head {h}, row {i}"),
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn padding_on_either_side_changes_no_bit(
        len in 1usize..200, left in 0usize..150, right in 0usize..150, head_dim in 1usize..70, window in 1usize..150,
        causal: bool, seed: u64,
    ) {
        let mask = if causal { "causal".to_owned() } else { format!("window(left={window}, right={window})") };
        let [q, k, v] = [1, 2, 3].map(|i| Array::random([1, 2, len, head_dim], seed ^ i));
        let total = left + len + right;
        for isa in Isa::available() {
            let expected = alone(&q, &k, &v, &mask, *isa);
            let [pq, pk, pv] = [&q, &k, &v].map(|x| x.pad(left, total, f32::NAN));
            let text = format!("{mask} & keys({left}..{})", left + len);
            let got = alone(&pq, &pk, &pv, &text, *isa);
            check_rows(&got, 0, left, &expected, &format!("{mask} on {isa}, {left} before, {right} after"));
        }
    }

    #[test]
    fn batch_mates_change_no_bit(len in 1usize..130, head_dim in 1usize..40, at in 0usize..8, seed: u64) {
        let [q, k, v] = [1, 2, 3].map(|i| Array::random([8, 2, len, head_dim], seed ^ i));
        let shape = Shape::square(len).heads(2);
        let lengths: Vec<usize> = (0..8).map(|b| (len + 5 * b) % len + 1).collect();
        let one = [&q, &k, &v].map(|x| {
            let [_, h, n, d] = x.shape;
            Array::new([1, h, n, d], |[_, h, i, d]| x.view().get([at, h, i, d]))
        });
        for isa in Isa::available() {
            let together = plan("causal & padding", &shape.clone().batch(8), &Facts::new().lengths(lengths.clone()));
            let got = run(&q, &k, &v, &together, *isa, &Options::default());
            let by_itself = plan("causal & padding", &shape, &Facts::new().lengths([lengths[at]]));
            let expected = run(&one[0], &one[1], &one[2], &by_itself, *isa, &Options::default());
            check_rows(&got, at, 0, &expected, &format!("batch row {at} on {isa}"));
        }
    }

    #[test]
    fn packing_changes_no_bit(lengths in prop::collection::vec(1usize..130, 1..6), head_dim in 1usize..70, seed: u64) {
        let total: usize = lengths.iter().sum();
        let [q, k, v] = [1, 2, 3].map(|i| Array::random([1, 2, total, head_dim], seed ^ i));
        let documents = format!("causal & documents({lengths:?})");
        for isa in Isa::available() {
            let packed = alone(&q, &k, &v, &documents, *isa);
            let mut start = 0;
            for len in &lengths {
                let [q, k, v] = [&q, &k, &v].map(|x| x.slice(start..start + len));
                check_rows(&packed, 0, start, &alone(&q, &k, &v, "causal", *isa), &format!("{documents} on {isa} at {start}"));
                start += len;
            }
        }
    }

    #[test]
    fn decoding_step_by_step_changes_no_bit(
        len in 1usize..140, head_dim in 1usize..140, group in 1usize..5, window in prop::option::of(1usize..100), seed: u64,
    ) {
        let mask = window.map_or("causal".to_owned(), |w| format!("sliding({w})"));
        let q = Array::random([1, 2 * group, len, head_dim], seed);
        let [k, v] = [1, 2].map(|i| Array::random([1, 2, len, head_dim], seed ^ i));
        for isa in Isa::available() {
            let whole = alone(&q, &k, &v, &mask, *isa);
            for past in (0..len).step_by(1 + len / 9) {
                let step = plan(&mask, &Shape::cached(past, 1).heads(2 * group).kv_heads(2), &Facts::new());
                let [k, v] = [&k, &v].map(|x| x.slice(0..past + 1));
                let got = run(&q.slice(past..past + 1), &k, &v, &step, *isa, &Options::default());
                for h in 0..2 * group {
                    let what = format!("{mask} on {isa} after {past}");
                    assert_same_bits(&row(&got, [0, h, 0]), &row(&whole, [0, h, past]), &what);
                }
            }
        }
    }

    #[test]
    fn scores_of_any_size_are_rescaled_exactly(len in 20usize..200, left in 0usize..64, size in 1f32..60.0, seed: u64) {
        let [q, k] = [1, 2].map(|i| Array::random([1, 1, len, 32], seed ^ i));
        let q = Array::new(q.shape, |at| q.view().get(at) * size);
        let v = Array::random([1, 1, len, 32], seed ^ 3);
        for isa in Isa::available() {
            let expected = alone(&q, &k, &v, "causal", *isa);
            let [q, k, v] = [&q, &k, &v].map(|x| x.pad(left, left + len, 1e30));
            let got = alone(&q, &k, &v, &format!("causal & keys({left}..)"), *isa);
            check_rows(&got, 0, left, &expected, &format!("scores times {size} on {isa}, {left} before"));
        }
    }
}

/// Weights below 2^-124 of the largest weight are an exception to the same bits: the block of keys in which a weight is
/// computed can decide whether it counts. Each of the four keys changes the output by less than 2^-124 of the largest value.
#[test]
fn weights_below_the_range_of_f32_change_little() {
    let (kv_len, huge) = (130, 1e30);
    let k = Array::new([1, 1, kv_len, 1], |at| if at[2] == kv_len - 1 { 93.0 } else { 0.0 });
    let v = Array::new([1, 1, kv_len, 1], |at| if (60..64).contains(&at[2]) { huge } else { 0.0 });
    let q = Array::new([1, 1, 1, 1], |_| 1.0);
    for isa in Isa::available() {
        for padding in 0..80 {
            let shape = Shape::cross(1, kv_len + padding);
            let plan = plan(&format!("keys({padding}..)"), &shape, &Facts::new());
            let [k, v] = [&k, &v].map(|x| x.pad(padding, kv_len + padding, f32::NAN));
            let got = run(&q, &k, &v, &plan, *isa, &Options::default().scale(1.0)).out[0];
            assert!((0.0..=huge * 2f32.powi(-122)).contains(&got), "{padding} on {isa}: {got:e}");
        }
    }
}

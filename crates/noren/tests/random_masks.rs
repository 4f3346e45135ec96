//! The laws on random masks over random shapes and facts, with random options: every level computes the reference, what a
//! query may not read changes no bit, and neither does anything else but the content.

mod common;
#[path = "../../noren-mask/tests/random/mod.rs"]
mod random;
mod scene;

use common::{Array, assert_same_bits, difference, inputs};
use noren::{Attention, Level, reference};
use noren_mask::{BoundMask, Mask, Plan, PlanOptions, Shape};
use proptest::prelude::*;
use random::cases::{self, World};
use scene::{Dice, Part, Scene};
use std::sync::OnceLock;

const CASES: u32 = 1000;
const POISON: [f32; 4] = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 1e30];

/// A mask that is bound, a plan of it in tiles of some size, content for it, and further chance.
struct Case {
    bound: BoundMask,
    plan: Plan,
    scene: Scene,
    dice: Dice,
    name: String,
}

impl Case {
    fn new(world: &World, mask: &Mask, options: &PlanOptions, seed: u64) -> Case {
        let mut dice = Dice(seed);
        let bound = world.bind(mask);
        let plan = bound.plan_with(options);
        let scene = Scene::random(bound.shape(), &mut dice);
        Case { bound, plan, scene, dice, name: format!("{mask} in tiles of {}", options.block_q) }
    }

    fn shape(&self) -> &Shape {
        self.bound.shape()
    }

    /// Some row, as `[batch, head, query]`.
    fn some_row(&mut self) -> [usize; 3] {
        let [batch, heads, q_len] = [self.shape().batch_len(), self.shape().head_count(), self.shape().q_len()];
        [self.dice.below(batch), self.dice.below(heads), self.dice.below(q_len)]
    }

    /// The keys that a row may read.
    fn visible(&self, [b, h, i]: [usize; 3]) -> Vec<bool> {
        let read = |j| self.bound.allowed(b, h, i, j) && self.scene.soft_at([b, h, i, j]) >= (-100f32).exp2();
        (0..self.shape().kv_len()).map(read).collect()
    }
}

/// Checks `law` on random cases.
fn check(law: impl Fn(Case)) {
    let strategy = cases::worlds(200, 5000).prop_flat_map(|world| {
        let masks = cases::masks(&world);
        (Just(world), masks, cases::options(), any::<u64>())
    });
    random::check(CASES, strategy, |(world, mask, options, seed)| law(Case::new(&world, &mask, &options, seed)));
}

/// A row's output and log-sum-exp.
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
fn every_level_computes_the_reference() {
    check(|case| {
        let Scene { q, k, v, .. } = &case.scene;
        let expected = case.scene.with_options(Level::Portable, |options| {
            reference::forward(&inputs(q, k, v), &case.plan, options).unwrap()
        });
        // A lone row's log-sum-exp may be near 0: its error is that of scores around 1.
        let finite = expected.lse.iter().filter(|x| x.is_finite());
        let unit = finite.fold(0.0, |a: f64, x| a.max(x.abs())).clamp(1e-30, 1.0);
        // Scores in the hundreds have an absolute error of 1e-5 in f32, and weights take it as their relative error.
        let steep = case.scene.alibi.iter().flatten().any(|slope| slope.abs() > 0.1);
        let tolerance = if steep { 1e-4 } else { 1e-5 };
        for level in Level::available() {
            let got = case.scene.run(&case.plan, *level, 1);
            let worst = difference(&got.out, &expected.out).max(difference(&got.lse, &expected.lse) * unit);
            assert!(worst <= tolerance, "{} on {level}: off by {worst:.1e} of the largest value", case.name);
            let v_dim = got.shape[3];
            for (i, _) in expected.lse.iter().enumerate().filter(|(_, lse)| **lse == f64::NEG_INFINITY) {
                let out = &got.out[i * v_dim..][..v_dim];
                assert!(out.iter().all(|x| x.to_bits() == 0), "{} on {level}: empty row {i} is {out:?}", case.name);
            }
        }
    });
}

#[test]
fn what_a_row_may_not_read_changes_no_bit_of_it() {
    check(|mut case| {
        for _ in 0..3 {
            let at = case.some_row();
            let poison = POISON[case.dice.below(4)];
            let hidden = poisoned(&case, at, poison);
            for level in Level::available() {
                let [clean, got] = [&case.scene, &hidden].map(|scene| row(&scene.run(&case.plan, *level, 1), at));
                assert_same_bits(&got, &clean, &format!("{} on {level}, row {at:?}, {poison} elsewhere", case.name));
            }
        }
    });
}

/// Everything that row `[b, h, i]` may not read is `poison`; other queries and table entries are NaN, other heads' sinks
/// 1e30.
fn poisoned(case: &Case, [b, h, i]: [usize; 3], poison: f32) -> Scene {
    let visible = case.visible([b, h, i]);
    let (shape, scene) = (case.shape(), &case.scene);
    let overwrite = |x: &Array, keep: &dyn Fn([usize; 4]) -> bool, with: f32| {
        Array::new(x.shape, |at| if keep(at) { x.view().get(at) } else { with })
    };
    let is_row = |x: &Array, at: [usize; 4]| (0..3).all(|n| x.shape[n] == 1 || at[n] == [b, h, i][n]);
    let key = |[batch, head, j, _]: [usize; 4]| batch == b && head == shape.kv_head(h) && visible[j];
    let score = |x: &Array, at: [usize; 4]| {
        is_row(x, at) && if x.shape[3] == 1 { visible.contains(&true) } else { visible[at[3]] }
    };
    let entry = |table: &Array, at: [usize; 4]| {
        let reach = table.shape[3] as i64 / 2;
        let distance = |j| case.plan.key_position(b, j) - case.plan.query_position(b, i);
        let used = |j: usize| visible[j] && distance(j).clamp(-reach, reach) + reach == at[3] as i64;
        (table.shape[1] == 1 || at[1] == h) && (0..visible.len()).any(used)
    };
    let of_head = |values: &Vec<f32>, other: f32| -> Vec<f32> {
        values.iter().enumerate().map(|(n, x)| if n == h { *x } else { other }).collect()
    };
    Scene {
        q: overwrite(&scene.q, &|[b2, h2, i2, _]| [b2, h2, i2] == [b, h, i], f32::NAN),
        k: overwrite(&scene.k, &key, poison),
        v: overwrite(&scene.v, &key, poison),
        bias: scene.bias.as_ref().map(|bias| overwrite(bias, &|at| score(bias, at), poison)),
        relative: scene.relative.as_ref().map(|table| overwrite(table, &|at| entry(table, at), f32::NAN)),
        soft: scene.soft.as_ref().map(|soft| overwrite(soft, &|at| is_row(soft, at), 1.0)),
        sinks: scene.sinks.as_ref().map(|sinks| of_head(sinks, 1e30)),
        alibi: scene.alibi.as_ref().map(|slopes| of_head(slopes, 1e30)),
        ..scene.clone()
    }
}

#[test]
fn threads_tiles_and_strides_change_no_bit() {
    static POOL: OnceLock<rayon::ThreadPool> = OnceLock::new();
    let pool = POOL.get_or_init(|| rayon::ThreadPoolBuilder::new().num_threads(2).build().unwrap());
    check(|mut case| {
        for level in Level::available() {
            let expected = case.scene.run(&case.bound.plan(), *level, 1);
            for threads in [1, 2] {
                let got = pool.install(|| case.scene.run(&case.plan, *level, threads));
                assert_same_output(&got, &expected, &format!("{} on {level}, {threads} threads", case.name));
            }
            let got = case.scene.run_strided(&case.plan, *level, &mut case.dice);
            assert_same_output(&got, &expected, &format!("{} on {level}, strided", case.name));
        }
    });
}

/// Runs a part of the case and compares its rows with those of the whole.
fn check_part(case: &mut Case, part: &Part, what: &str) {
    let (scene, bound) = part.cut(&case.scene, &case.bound, &case.plan, &mut case.dice);
    let plan = bound.plan();
    for level in Level::available() {
        let (whole, got) = (case.scene.run(&case.plan, *level, 1), scene.run(&plan, *level, 1));
        for (h, i) in (0..whole.shape[1]).flat_map(|h| part.rows.clone().map(move |i| (h, i))) {
            let expected = row(&whole, [part.batch, h, i]);
            let got = row(&got, [0, h, part.queries_before + i - part.rows.start]);
            let name = &case.name;
            assert_same_bits(&got, &expected, &format!("{name} on {level}, row {:?}, {what}", [part.batch, h, i]));
        }
    }
}

#[test]
fn a_batch_row_gives_the_same_bits_alone() {
    check(|mut case| {
        let batch = case.dice.below(case.shape().batch_len());
        let (rows, keys) = (0..case.shape().q_len(), 0..case.shape().kv_len());
        check_part(&mut case, &Part { batch, rows, keys, queries_before: 0, keys_before: 0 }, "alone");
    });
}

#[test]
fn padding_on_the_left_changes_no_bit() {
    check(|mut case| {
        let batch = case.dice.below(case.shape().batch_len());
        let (rows, keys) = (0..case.shape().q_len(), 0..case.shape().kv_len());
        let (queries_before, keys_before) = (case.dice.below(30), case.dice.below(100));
        let what = format!("{queries_before} queries and {keys_before} keys before");
        check_part(&mut case, &Part { batch, rows, keys, queries_before, keys_before }, &what);
    });
}

/// The keys after the last one that a row may read need not be there yet.
#[test]
fn decoding_row_by_row_changes_no_bit() {
    check(|mut case| {
        for _ in 0..3 {
            let [batch, _, i] = case.some_row();
            let heads = 0..case.shape().head_count();
            let last = heads.filter_map(|h| (0..case.shape().kv_len()).rfind(|j| case.bound.allowed(batch, h, i, *j)));
            let keys = 0..last.max().unwrap_or(0) + 1;
            check_part(&mut case, &Part { batch, rows: i..i + 1, keys, queries_before: 0, keys_before: 0 }, "decoded");
        }
    });
}

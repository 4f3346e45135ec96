//! The backward pass: gradients are compared with stored ones, with the reference and with finite differences. Hidden
//! content changes no bit, and equal content gives equal bits.

use crate::common::{Array, assert_same_bits, difference, inputs, plan, run};
use crate::scene::case::{Case, POISON, check, poisoned};
use crate::scene::{Dice, Part, Scene};
use crate::stored;
use crate::stored::doubles;
use noren::reference;
use noren::{
    Bias, Dropout, Gradients, GradientsMut, Isa, Options, Saved, View, ViewMut, attention, attention_backward,
    attention_backward_into,
};
use noren_mask::{Facts, Mask, Plan, PlanOptions, Shape};
use std::sync::OnceLock;

/// Returns the gradients for stored arrays on an ISA.
fn gradients([q, k, v, dout]: [&Array; 4], plan: &Plan, isa: Isa, options: &Options<'_>) -> Gradients {
    let forward = run(q, k, v, plan, isa, options);
    let out = View::new(&forward.out, forward.shape).unwrap();
    let saved = Saved { out, lse: &forward.lse, dout: dout.view() };
    let options = options.clone().isa(isa);
    attention_backward(&inputs(q, k, v), &saved, plan, &options).unwrap()
}

#[test]
fn every_isa_meets_the_stored_gradients() {
    for case in stored::Case::all() {
        let [q, k, v, dout, dq, dk, dv] =
            ["q", "k", "v", "dout", "dq", "dk", "dv"].map(|name| case.tensors.array(name));
        case.with_options(|options| {
            for isa in Isa::available() {
                let got = gradients([&q, &k, &v, &dout], &case.plan, *isa, options);
                for (name, got, expected) in [("dq", got.dq, &dq), ("dk", got.dk, &dk), ("dv", got.dv, &dv)] {
                    let worst = difference(&got, &doubles(expected));
                    assert!(worst <= 2e-5, "{} on {isa}: {name} off by {worst:.1e} of the largest value", case.name);
                }
            }
        });
    }
}

/// Sets dropout in some cases.
fn drop_some(case: &mut Case) {
    let seed = case.dice.next();
    case.scene.dropout = case.dice.chance(40).then_some(Dropout { probability: 0.3, seed });
}

/// Returns a random gradient of the output for a case.
fn dout(case: &mut Case) -> Array {
    let [batch, heads, q_len, _] = case.scene.q.shape;
    Array::random([batch, heads, q_len, case.scene.v.shape[3]], case.dice.next())
}

fn largest(values: &[f32]) -> f64 {
    values.iter().filter(|x| x.is_finite()).fold(0.0, |a: f64, x| a.max(f64::from(x.abs())))
}

/// All gradients of a scene.
struct All {
    inputs: Gradients,
    bias: Option<Vec<f32>>,
    relative: Option<Vec<f32>>,
    soft: Option<Vec<f32>>,
    sinks: Option<Vec<f32>>,
}

impl All {
    fn new(scene: &Scene, dout: &Array, plan: &Plan, isa: Isa, threads: usize) -> All {
        let forward = scene.run(plan, isa, threads);
        let out = View::new(&forward.out, forward.shape).unwrap();
        let saved = Saved { out, lse: &forward.lse, dout: dout.view() };
        let memory = |x: &Array| vec![f32::NAN; x.data.len()];
        let [mut dq, mut dk, mut dv] = [&scene.q, &scene.k, &scene.v].map(memory);
        let [mut bias, mut relative, mut soft] =
            [&scene.bias, &scene.relative, &scene.soft].map(|x| x.as_ref().map(memory));
        let mut sinks = scene.sinks.as_ref().map(|sinks| vec![f32::NAN; sinks.len()]);
        let shape = |x: &Option<Array>| x.as_ref().map_or([0; 4], |x| x.shape);
        scene.with_options(isa, |options| {
            let mut biases = Vec::new();
            biases.extend(bias.as_mut().map(|x| Some(ViewMut::new(x, shape(&scene.bias)).unwrap())));
            biases.extend(relative.as_mut().map(|x| Some(ViewMut::new(x, shape(&scene.relative)).unwrap())));
            biases.extend(scene.alibi.as_ref().map(|_| None));
            let gradients = GradientsMut {
                dq: ViewMut::new(&mut dq, scene.q.shape).unwrap(),
                dk: ViewMut::new(&mut dk, scene.k.shape).unwrap(),
                dv: ViewMut::new(&mut dv, scene.v.shape).unwrap(),
                bias: biases,
                soft: soft.as_mut().map(|x| ViewMut::new(x, shape(&scene.soft)).unwrap()),
                sinks: sinks.as_deref_mut(),
            };
            let options = options.clone().threads(threads);
            let inputs = inputs(&scene.q, &scene.k, &scene.v);
            attention_backward_into(&inputs, &saved, plan, &options, gradients).unwrap();
        });
        All { inputs: Gradients { dq, dk, dv }, bias, relative, soft, sinks }
    }

    fn each(&self) -> impl Iterator<Item = (&'static str, &[f32])> {
        let Gradients { dq, dk, dv } = &self.inputs;
        let always = [("dq", dq), ("dk", dk), ("dv", dv)].map(|(name, x)| (name, Some(x)));
        let asked = [("bias", &self.bias), ("relative", &self.relative), ("soft", &self.soft), ("sinks", &self.sinks)];
        always.into_iter().chain(asked.map(|(name, x)| (name, x.as_ref()))).filter_map(|(name, x)| Some((name, &**x?)))
    }
}

#[test]
fn every_isa_computes_the_reference() {
    check(600, |mut case| {
        drop_some(&mut case);
        let dout = dout(&mut case);
        let Scene { q, k, v, .. } = &case.scene;
        let expected = case.scene.with_options(Isa::Portable, |options| {
            reference::backward(&inputs(q, k, v), &dout.view(), &case.plan, options).unwrap()
        });
        let scale = f64::from(case.scene.scale.unwrap_or(1.0)).abs();
        let dp = v.shape[3] as f64 * largest(&v.data) * largest(&dout.data);
        // The gradient of a soft weight is divided by the weight, so it may be large.
        let soft = case.scene.soft.iter().flat_map(|soft| &soft.data).filter(|w| **w > 1e-30);
        let smallest = f64::from(soft.fold(1.0, |a: f32, w| a.min(*w)));
        let dense = case.scene.bias.as_ref().map(|_| &expected.dbias[0]);
        let relative = case.scene.relative.as_ref().map(|_| &expected.dbias[usize::from(case.scene.bias.is_some())]);
        for isa in Isa::available() {
            let got = All::new(&case.scene, &dout, &case.plan, *isa, 1);
            for (name, got) in got.each() {
                // If terms cancel, the error is relative to the terms and not to the sum.
                let (expected, added) = match name {
                    "dq" => (&expected.dq, scale * dp * largest(&k.data)),
                    "dk" => (&expected.dk, scale * dp * largest(&q.data)),
                    "dv" => (&expected.dv, 0.0),
                    "bias" => (dense.unwrap(), dp),
                    "relative" => (relative.unwrap(), dp),
                    "soft" => (&expected.dsoft, dp / smallest),
                    _ => (&expected.dsinks, dp),
                };
                let unit = expected.iter().fold(1e-30, |a: f64, x| a.max(x.abs()));
                let worst = difference(got, expected);
                let allowed = 2e-5 + 1e-6 * added / unit;
                assert!(worst <= allowed, "{} on {isa}: {name} off by {worst:.1e}, allowed {allowed:.1e}", case.name);
                let exact = expected.iter().zip(got).all(|(e, g)| *e != 0.0 || g.to_bits() == 0 || worst > 0.0);
                assert!(exact, "{} on {isa}: {name} is not 0 where it must be", case.name);
            }
        }
    });
}

/// Tests a row whose allowed scores are all minus infinity, in small blocks without denied cells.
#[test]
fn rows_without_weight_in_full_blocks_have_no_gradient() {
    for kv_len in [3, 8, 16, 24, 40, 64, 72, 130] {
        let [q, dout] = [1, 2].map(|seed| Array::random([1, 1, 7, 8], seed));
        let [k, v] = [3, 4].map(|seed| Array::random([1, 1, kv_len, 8], seed));
        let bias = Array::new([1, 1, 7, 1], |[_, _, i, _]| if i == 3 { f32::NEG_INFINITY } else { 0.0 });
        let plan = plan("full", &Shape::cross(7, kv_len), &Facts::new());
        for isa in Isa::available() {
            let options = Options::default().bias(Bias::Dense(bias.view()));
            let expected = reference::backward(&inputs(&q, &k, &v), &dout.view(), &plan, &options).unwrap();
            let got = gradients([&q, &k, &v, &dout], &plan, *isa, &options);
            for (got, expected) in [(got.dq, expected.dq), (got.dk, expected.dk), (got.dv, expected.dv)] {
                assert!(difference(&got, &expected) < 2e-5, "{kv_len} keys on {isa}");
            }
        }
    }
}

/// The product of scale and 1 / softcap is infinite as `f32` here. Gradients that the reference has must not become NaN
/// because of the zeros with which rows are filled up to whole vectors.
#[test]
fn an_infinite_factor_of_queries_does_not_reach_the_zeros_after_a_row() {
    let [q, k, v, dout] = [1, 2, 3, 4].map(|seed| Array::random([1, 1, 9, 1], seed));
    let plan = plan("causal", &Shape::square(9), &Facts::new());
    for isa in Isa::available() {
        let options = Options::default().scale(1e10).softcap(1e-30);
        let expected = reference::backward(&inputs(&q, &k, &v), &dout.view(), &plan, &options).unwrap();
        let got = gradients([&q, &k, &v, &dout], &plan, *isa, &options);
        assert!(difference(&got.dv, &expected.dv) < 2e-5, "dv on {isa}");
        assert!(got.dq.iter().all(|x| x.is_finite()), "dq on {isa}");
    }
}

#[test]
fn finite_differences_agree() {
    check(150, |mut case| {
        drop_some(&mut case);
        let dout = dout(&mut case);
        let got = All::new(&case.scene, &dout, &case.plan, *Isa::available().last().unwrap(), 1);
        let loss = |scene: &Scene| -> f64 {
            let forward = scene.with_options(Isa::Portable, |options| {
                reference::forward(&inputs(&scene.q, &scene.k, &scene.v), &case.plan, options).unwrap()
            });
            forward.out.iter().zip(&dout.data).map(|(out, dout)| out * f64::from(*dout)).sum()
        };
        type Pick = fn(&mut Scene) -> Option<&mut Vec<f32>>;
        let arrays: [(&str, Pick); 7] = [
            ("dq", |scene| Some(&mut scene.q.data)),
            ("dk", |scene| Some(&mut scene.k.data)),
            ("dv", |scene| Some(&mut scene.v.data)),
            ("bias", |scene| scene.bias.as_mut().map(|x| &mut x.data)),
            ("relative", |scene| scene.relative.as_mut().map(|x| &mut x.data)),
            ("soft", |scene| scene.soft.as_mut().map(|x| &mut x.data)),
            ("sinks", |scene| scene.sinks.as_mut()),
        ];
        for (name, array) in arrays {
            let Some((_, gradient)) = got.each().find(|(n, _)| *n == name) else { continue };
            let unit = largest(gradient).max(1.0);
            for _ in 0..2 {
                let at = case.dice.below(gradient.len());
                let mut sides = [-1.0, 1.0].map(|side| {
                    let mut scene = case.scene.clone();
                    let x = &mut array(&mut scene).unwrap()[at];
                    let before = *x;
                    // A weight of 0 hides its cell, and no weight is above 1.
                    let fixed = name == "soft" && !(0.01..0.99).contains(&before) || before.abs() > 1e3;
                    *x += if fixed { 0.0 } else { side * 2e-3 };
                    let value = f64::from(*x);
                    (value, loss(&scene))
                });
                sides.sort_by(|a, b| a.0.total_cmp(&b.0));
                if sides[0].0 == sides[1].0 {
                    continue;
                }
                let slope = (sides[1].1 - sides[0].1) / (sides[1].0 - sides[0].0);
                let error = (slope - f64::from(gradient[at])).abs() / unit;
                assert!(error < 2e-3, "{}: {name}[{at}] is {}, differences say {slope}", case.name, gradient[at]);
            }
        }
    });
}

fn pool() -> &'static rayon::ThreadPool {
    static POOL: OnceLock<rayon::ThreadPool> = OnceLock::new();
    POOL.get_or_init(|| rayon::ThreadPoolBuilder::new().num_threads(7).build().unwrap())
}

#[track_caller]
fn assert_same(got: &Gradients, expected: &Gradients, what: &str) {
    assert_same_bits(&got.dq, &expected.dq, &format!("{what}: dq"));
    assert_same_bits(&got.dk, &expected.dk, &format!("{what}: dk"));
    assert_same_bits(&got.dv, &expected.dv, &format!("{what}: dv"));
}

#[test]
fn threads_tiles_and_strides_change_no_bit() {
    check(300, |mut case| {
        drop_some(&mut case);
        let dout = dout(&mut case);
        for isa in Isa::available() {
            let usual = case.bound.plan_with(&PlanOptions { reorder: case.reorder, ..PlanOptions::default() });
            let expected = All::new(&case.scene, &dout, &usual, *isa, 1);
            for threads in [1, 2, 3, 7] {
                let got = pool().install(|| All::new(&case.scene, &dout, &case.plan, *isa, threads));
                let what = format!("{} on {isa}, {threads} threads", case.name);
                assert_same(&got.inputs, &expected.inputs, &what);
                if threads > 1 {
                    let one = All::new(&case.scene, &dout, &case.plan, *isa, 1);
                    for ((name, got), (_, expected)) in got.each().zip(one.each()) {
                        assert_same_bits(got, expected, &format!("{what}: {name}"));
                    }
                }
            }
            let got = case.scene.backward_strided(&dout, &case.plan, *isa, &mut case.dice);
            assert_same(&got, &expected.inputs, &format!("{} on {isa}, strided", case.name));
        }
    });
}

#[test]
fn long_sequences_on_many_threads_give_the_same_bits() {
    let shape = Shape::square(1100).heads(4).kv_heads(2);
    let [q, dout] = [1, 2].map(|seed| Array::random([1, 4, 1100, 64], seed));
    let [k, v] = [3, 4].map(|seed| Array::random([1, 2, 1100, 64], seed));
    for mask in ["causal", "sliding(200)", "full - keys(300..700)", "causal & documents([500, 600])", "queries(900..)"]
    {
        let plan = plan(mask, &shape, &Facts::new());
        for isa in Isa::available() {
            let [one, many] = [1, 7].map(|threads| {
                let options = Options::default().threads(threads);
                pool().install(|| gradients([&q, &k, &v, &dout], &plan, *isa, &options))
            });
            assert_same(&many, &one, &format!("{mask} on {isa}"));
        }
    }
}

/// Returns row `[batch, head, i]` of an array.
fn row(data: &[f32], shape: [usize; 4], [b, h, i]: [usize; 3]) -> &[f32] {
    &data[((b * shape[1] + h) * shape[2] + i) * shape[3]..][..shape[3]]
}

/// Runs a part of the case and compares its gradients with those of the whole.
fn check_part(case: &mut Case, part: &Part, what: &str) {
    let dout = dout(case);
    let (scene, bound) = part.cut(&case.scene, &case.bound, &case.plan, &mut case.dice);
    let plan = bound.plan_with(&PlanOptions { reorder: case.reorder, ..PlanOptions::default() });
    let [_, heads, q_len, v_dim] = [0, dout.shape[1], part.queries_before + part.rows.len(), dout.shape[3]];
    let moved = Array::new([1, heads, q_len, v_dim], |[_, h, i, d]| match i.checked_sub(part.queries_before) {
        Some(i) => dout.view().get([part.batch, h, i + part.rows.start, d]),
        None => f32::NAN,
    });
    for isa in Isa::available() {
        let whole = case.scene.backward(&dout, &case.plan, *isa, 1);
        let got = scene.backward(&moved, &plan, *isa, 1);
        let [q, k, v] = [&case.scene.q, &case.scene.k, &case.scene.v].map(|x| x.shape);
        let arrays = [
            ("dq", &whole.dq, &got.dq, q, scene.q.shape, part.queries_before, part.rows.len()),
            ("dk", &whole.dk, &got.dk, k, scene.k.shape, part.keys_before, part.keys.len()),
            ("dv", &whole.dv, &got.dv, v, scene.v.shape, part.keys_before, part.keys.len()),
        ];
        for (name, whole, got, shape, moved, before, len) in arrays {
            for (h, i) in (0..shape[1]).flat_map(|h| (0..len).map(move |i| (h, i))) {
                let expected = row(whole, shape, [part.batch, h, i]);
                let what = format!("{} on {isa}, {what}: {name} {:?}", case.name, [part.batch, h, i]);
                assert_same_bits(row(got, moved, [0, h, before + i]), expected, &what);
            }
        }
    }
}

#[test]
fn batch_mates_and_padding_on_the_left_change_no_bit() {
    check(400, |case| {
        let mut case = case.in_an_order();
        let batch = case.dice.below(case.shape().batch_len());
        let (rows, keys) = (0..case.shape().q_len(), 0..case.shape().kv_len());
        let before = [case.dice.below(30), case.dice.below(100)];
        for [queries_before, keys_before] in [[0, 0], before] {
            let part = Part { batch, rows: rows.clone(), keys: keys.clone(), queries_before, keys_before };
            check_part(&mut case, &part, &format!("{queries_before} queries and {keys_before} keys before"));
        }
    });
}

#[test]
fn padding_on_the_right_and_packing_change_no_bit() {
    let mut dice = Dice(5);
    for _ in 0..30 {
        let lengths: Vec<usize> = (0..1 + dice.below(4)).map(|_| 1 + dice.below(150)).collect();
        let total: usize = lengths.iter().sum();
        let [head_dim, v_dim] = [1 + dice.below(70), 1 + dice.below(70)];
        let dims = [(4, head_dim), (2, head_dim), (2, v_dim), (4, v_dim)];
        let arrays = dims.map(|(heads, dim)| Array::random([1, heads, total, dim], dice.next()));
        let packed = plan(
            &format!("causal & documents({lengths:?})"),
            &Shape::square(total).heads(4).kv_heads(2),
            &Facts::new(),
        );
        for isa in Isa::available() {
            let together = gradients(arrays.each_ref(), &packed, *isa, &Options::default());
            let mut start = 0;
            for len in &lengths {
                let one = arrays.each_ref().map(|x| x.slice(start..start + len));
                let padded = one.each_ref().map(|x| x.pad(0, len + 77, f32::NAN));
                let shape = Shape::square(*len).heads(4).kv_heads(2);
                let alone = plan("causal", &shape, &Facts::new());
                let alone = gradients(one.each_ref(), &alone, *isa, &Options::default());
                let facts = Facts::new().lengths([*len]);
                let right = plan(
                    "causal & padding(on=both)",
                    &Shape::square(len + 77).heads(4).kv_heads(2),
                    &facts.query_lengths([*len]),
                );
                let right = gradients(padded.each_ref(), &right, *isa, &Options::default());
                let of = |x: &Gradients, n: usize| [&x.dq, &x.dk, &x.dv][n].clone();
                for (n, (heads, dim)) in [(4, head_dim), (2, head_dim), (2, v_dim)].into_iter().enumerate() {
                    let [all, one, right] = [(&together, total), (&alone, *len), (&right, len + 77)]
                        .map(|(x, len)| Array { data: of(x, n), shape: [1, heads, len, dim] });
                    let what = format!("{lengths:?} from {start}, array {n} on {isa}");
                    assert_same_bits(&all.slice(start..start + len).data, &one.data, &what);
                    assert_same_bits(&right.slice(0..*len).data, &one.data, &format!("{what}, padded"));
                    assert!(
                        right.slice(*len..len + 77).data.iter().all(|x| x.to_bits() == 0),
                        "{what}: padding is not 0"
                    );
                }
                start += len;
            }
        }
    }
}

#[test]
fn what_a_query_may_not_read_changes_no_bit_of_its_gradient() {
    check(300, |mut case| {
        let clean_dout = dout(&mut case);
        for _ in 0..2 {
            let at = case.some_row();
            let poison = POISON[case.dice.below(4)];
            let hidden = poisoned(&case, at, poison);
            let other =
                Array::new(
                    clean_dout.shape,
                    |place| {
                        if place[..3] == at { clean_dout.view().get(place) } else { f32::NAN }
                    },
                );
            for isa in Isa::available() {
                let clean = case.scene.backward(&clean_dout, &case.plan, *isa, 1);
                let got = hidden.backward(&other, &case.plan, *isa, 1);
                let shape = case.scene.q.shape;
                let what = format!("{} on {isa}, row {at:?}, {poison} elsewhere", case.name);
                assert_same_bits(row(&got.dq, shape, at), row(&clean.dq, shape, at), &what);
            }
        }
    });
}

#[test]
fn queries_that_do_not_read_a_key_change_no_bit_of_its_gradient() {
    check(300, |mut case| {
        let clean_dout = dout(&mut case);
        let [batch, group, key] = [case.shape().batch_len(), case.shape().kv_head_count(), case.shape().kv_len()];
        for _ in 0..2 {
            let [b, g, j] = [case.dice.below(batch), case.dice.below(group), case.dice.below(key)];
            let poison = POISON[case.dice.below(4)];
            let q_len = case.shape().q_len();
            let reads: Vec<[usize; 3]> = (0..case.shape().head_count())
                .filter(|h| case.shape().kv_head(*h) == g)
                .flat_map(|h| (0..q_len).map(move |i| [b, h, i]))
                .filter(|at| case.visible(*at)[j])
                .collect();
            let mut read = vec![false; key];
            for at in &reads {
                read.iter_mut().zip(case.visible(*at)).for_each(|(read, visible)| *read |= visible);
            }
            let keep = |x: &Array, keep: &dyn Fn([usize; 3]) -> bool| {
                Array::new(x.shape, |at| if keep([at[0], at[1], at[2]]) { x.view().get(at) } else { poison })
            };
            let scene = &case.scene;
            let of_key = |at: [usize; 3]| at[..2] == [b, g] && read[at[2]];
            let hidden = Scene {
                q: keep(&scene.q, &|at| reads.contains(&at)),
                k: keep(&scene.k, &of_key),
                v: keep(&scene.v, &of_key),
                ..scene.clone()
            };
            let other = keep(&clean_dout, &|at| reads.contains(&at));
            for isa in Isa::available() {
                let clean = case.scene.backward(&clean_dout, &case.plan, *isa, 1);
                let got = hidden.backward(&other, &case.plan, *isa, 1);
                let what = format!("{} on {isa}, key {:?}, {poison} elsewhere", case.name, [b, g, j]);
                let at = [b, g, j];
                assert_same_bits(row(&got.dk, scene.k.shape, at), row(&clean.dk, scene.k.shape, at), &what);
                assert_same_bits(row(&got.dv, scene.v.shape, at), row(&clean.dv, scene.v.shape, at), &what);
                if reads.is_empty() {
                    assert!(row(&got.dk, scene.k.shape, at).iter().all(|x| x.to_bits() == 0), "{what}: not 0");
                }
            }
        }
    });
}

#[test]
fn a_panic_in_a_mask_reaches_the_caller() {
    let bad = Mask::from_fn(|cell| if (cell.head, cell.query) == (2, 700) { panic!("no such cell") } else { true });
    let plan = bad.bind(&Shape::square(900).heads(4), &Facts::new()).unwrap().plan();
    let [q, k, v, dout] = [1, 2, 3, 4].map(|seed| Array::random([1, 4, 900, 16], seed));
    let lse = vec![1.0; 4 * 900];
    let saved = Saved { out: v.view(), lse: &lse, dout: dout.view() };
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        pool().install(|| attention_backward(&inputs(&q, &k, &v), &saved, &plan, &Options::default()))
    }));
    assert!(caught.is_err());
}

#[test]
fn what_does_not_fit_is_refused() {
    let plan = plan("causal", &Shape::square(8).heads(4).kv_heads(2), &Facts::new());
    let [q, dout] = [1, 2].map(|seed| Array::random([1, 4, 8, 16], seed));
    let [k, v] = [3, 4].map(|seed| Array::random([1, 2, 8, 16], seed));
    let options = Options::default().bias(Bias::Alibi(vec![0.1; 4]));
    let forward = attention(&inputs(&q, &k, &v), &plan, &options).unwrap();
    let out = View::new(&forward.out, forward.shape).unwrap();
    let saved = Saved { out, lse: &forward.lse, dout: dout.view() };
    let refused = |saved: &Saved<'_>, change: &dyn Fn(&mut GradientsMut<'_>)| {
        let [mut dq, mut dk, mut dv] = [&q, &k, &v].map(|x| vec![0.0; x.data.len()]);
        let mut gradients = GradientsMut::new(
            ViewMut::new(&mut dq, q.shape).unwrap(),
            ViewMut::new(&mut dk, k.shape).unwrap(),
            ViewMut::new(&mut dv, v.shape).unwrap(),
        );
        change(&mut gradients);
        attention_backward_into(&inputs(&q, &k, &v), saved, &plan, &options, gradients).unwrap_err().to_string()
    };
    let said = refused(&Saved { lse: &forward.lse[1..], ..saved }, &|_| {});
    assert!(said.contains("lse has shape [31]") && said.contains("give the 32 values"), "{said}");
    let said = refused(&Saved { dout: k.view(), ..saved }, &|_| {});
    assert!(said.contains("dout has shape [1, 2, 8, 16]") && said.contains("[1, 4, 8, 16]"), "{said}");
    let said = refused(&Saved { out: k.view(), ..saved }, &|_| {});
    assert!(said.contains("out has shape [1, 2, 8, 16]"), "{said}");
    let said = refused(&saved, &|gradients| std::mem::swap(&mut gradients.dq, &mut gradients.dk));
    assert!(said.contains("dq has shape [1, 2, 8, 16] but the shape of q is [1, 4, 8, 16]"), "{said}");
    let said = refused(&saved, &|gradients| gradients.bias = vec![None, None]);
    assert!(said.contains("gradients of biases has shape [2] but options.bias has 1"), "{said}");
    let said = refused(&saved, &|gradients| gradients.sinks = Some(Box::leak(vec![0.0; 4].into())));
    assert!(said.contains("sinks gradient is requested: options.sinks is None"), "{said}");
    let said = refused(&saved, &|gradients| {
        let memory = Box::leak(vec![0.0; 64].into_boxed_slice());
        gradients.bias = vec![Some(ViewMut::new(memory, [1, 1, 8, 8]).unwrap())];
    });
    assert!(said.contains("ALiBi gradient is requested: the slopes have no gradient"), "{said}");
}

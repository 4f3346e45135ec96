//! Compares the reference and every processor path with results that PyTorch computed in `f64`.

use crate::common;
use crate::common::{Tensors, check_accuracy, check_gradients, difference, inputs, run};
use crate::stored::{Case, doubles, floats};
use noren::reference::{self, FromFns};
use noren::{Element, Isa, Options, bf16, f16};
use noren_mask::{Facts, PlanOptions, Reorder, Shape};

#[test]
fn every_isa_meets_the_stored_results() {
    for case in Case::all() {
        let [q, k, v, out, lse] = ["q", "k", "v", "out", "lse"].map(|name| case.tensors.array(name));
        let tolerance = case.tolerance();
        case.with_options(|options| {
            let reordered = [Reorder::Always, Reorder::Residues(3)]
                .map(|reorder| case.plan.bound().plan_with(&PlanOptions { reorder, ..PlanOptions::default() }));
            let plans = || std::iter::once(&case.plan).chain(&reordered);
            for (isa, plan) in Isa::available().iter().flat_map(|isa| plans().map(move |plan| (isa, plan))) {
                let got = run(&q, &k, &v, plan, *isa, options);
                let worst = difference(&got.out, &doubles(&out)).max(difference(&got.lse, &doubles(&lse)));
                assert!(worst <= tolerance, "{} on {isa}: off by {worst:.1e} of the largest value", case.name);
            }
        });
    }
}

fn check_in<T: Element>() {
    for case in Case::all() {
        let [q, k, v] = ["q", "k", "v"].map(|name| case.tensors.array(name).cast::<T>());
        case.with_options(|options| {
            check_accuracy(&inputs(&q, &k, &v), &case.plan, options, case.tolerance(), &case.name);
            let dout = case.tensors.array("dout").cast::<T>();
            check_gradients(&inputs(&q, &k, &v), &dout.view(), &case.plan, options, 2e-5, &case.name);
        });
    }
}

#[test]
fn every_isa_computes_the_cases_in_bf16_as_well_as_the_type_allows() {
    check_in::<bf16>();
}

#[test]
fn every_isa_computes_the_cases_in_f16_as_well_as_the_type_allows() {
    check_in::<f16>();
}

#[test]
fn the_reference_is_the_stored_definition() {
    for case in Case::all() {
        let [q, k, v, out, lse, dout, dq, dk, dv, keep] =
            ["q", "k", "v", "out", "lse", "dout", "dq", "dk", "dv", "keep"].map(|name| case.tensors.array(name));
        let allowed = |at: [usize; 4]| keep.view().broadcast(score_shape(&case)).unwrap().get(at) != 0.0;
        let distance = |[b, _, i, j]: [usize; 4]| case.plan.key_position(b, j) - case.plan.query_position(b, i);
        let cells = FromFns { allowed, distance };
        case.with_options(|options| {
            let forward = reference::forward(&inputs(&q, &k, &v), &cells, options).unwrap();
            let worst = difference(&floats(&forward.out), &doubles(&out))
                .max(difference(&floats(&forward.lse), &doubles(&lse)));
            assert!(worst <= 1e-6, "{}: forward off by {worst:.1e}", case.name);
            let grad = reference::backward(&inputs(&q, &k, &v), &dout.view(), &cells, options).unwrap();
            for (name, got, expected) in [("dq", grad.dq, dq), ("dk", grad.dk, dk), ("dv", grad.dv, dv)] {
                let worst = difference(&floats(&got), &doubles(&expected));
                assert!(worst <= 1e-6, "{}: {name} off by {worst:.1e}", case.name);
            }
        });
    }
}

fn score_shape(case: &Case) -> [usize; 4] {
    let shape = case.plan.shape();
    [shape.batch_len(), shape.head_count(), shape.q_len(), shape.kv_len()]
}

#[test]
fn the_plans_mask_is_the_stored_one() {
    for case in Case::all() {
        let keep = case.tensors.array("keep");
        let [batch, heads, q_len, kv_len] = score_shape(&case);
        let keep = keep.view().broadcast([batch, heads, q_len, kv_len]).unwrap();
        for (b, h, i, j) in (0..batch * heads * q_len * kv_len)
            .map(|n| (n / kv_len / q_len / heads, n / kv_len / q_len % heads, n / kv_len % q_len, n % kv_len))
        {
            let allowed = case.plan.bound().allowed(b, h, i, j);
            assert_eq!(allowed, keep.get([b, h, i, j]) != 0.0, "{} at {:?}", case.name, [b, h, i, j]);
        }
    }
}

#[test]
fn a_real_encoder_layer() {
    let tensors = Tensors::read("conformance/minilm/attention.safetensors");
    let keep = tensors.array("keep");
    let lengths: Vec<usize> = keep.data.chunks(27).map(|row| row.iter().map(|x| *x as usize).sum()).collect();
    let shape = Shape::square(27).batch(8).heads(12);
    let plan = common::plan("padding", &shape, &Facts::new().lengths(lengths));
    for layer in ["layer0", "layer3"] {
        let [q, k, v, out] = ["q", "k", "v", "out"].map(|name| tensors.array(&format!("{layer}.{name}")));
        for isa in Isa::available() {
            let got = run(&q, &k, &v, &plan, *isa, &Options::default());
            let worst = difference(&got.out, &doubles(&out));
            assert!(worst <= 1e-5, "{layer} on {isa}: off by {worst:.1e} of the largest value");
        }
    }
}

//! Wrong input returns an error with the name of the input, the given value, the expected value and how to fix it.

use crate::common::{Array, inputs, plan};
use noren::{Bias, Error, Inputs, Isa, Options, Outputs, View, ViewMut, attention, attention_into};
use noren_mask::{Facts, Shape};

fn refused(q: [usize; 4], k: [usize; 4], v: [usize; 4], options: &Options<'_>) -> String {
    let plan = plan("causal", &Shape::square(8).batch(2).heads(4).kv_heads(2), &Facts::new());
    let [q, k, v] = [q, k, v].map(|shape| Array::random(shape, 1));
    attention(&inputs(&q, &k, &v), &plan, options).unwrap_err().to_string()
}

const Q: [usize; 4] = [2, 4, 8, 16];
const K: [usize; 4] = [2, 2, 8, 16];

#[test]
fn arrays_that_do_not_fit_the_plan() {
    for (q, k, v, named, given) in [
        ([2, 4, 9, 16], K, K, "q has shape", "[2, 4, 9, 16]"),
        ([1, 4, 8, 16], K, K, "q has shape", "[2, 4, 8, 16]"),
        (Q, [2, 4, 8, 16], K, "k has shape", "[2, 2, 8, 16]"),
        (Q, [2, 2, 8, 8], K, "k has shape", "[2, 2, 8, 8]"),
        (Q, K, [2, 2, 7, 16], "v has shape", "[2, 2, 8, 16]"),
    ] {
        let message = refused(q, k, v, &Options::default());
        assert!(message.contains(named) && message.contains(given) && message.contains("bind the mask"), "{message}");
    }
}

#[test]
fn options_that_make_no_sense() {
    let wide = Array::random([1, 1, 8, 9], 1);
    let table = Array::random([1, 4, 1, 8], 1);
    let plain = Options::default;
    for (options, words) in [
        (plain().scale(f32::NAN), "scale is NaN: give a finite number"),
        (plain().softcap(0.0), "softcap is 0: give a number from 1e-30 to 1e30"),
        (plain().softcap(-3.0), "softcap is -3"),
        (plain().threads(0), "threads is 0: give at least 1"),
        (plain().sinks(&[1.0]), "sinks has shape [1] but there are 4 query heads"),
        (plain().bias(Bias::Alibi(vec![1.0; 3])), "alibi slopes has shape [3] but there are 4"),
        (plain().bias(Bias::Dense(wide.view())), "bias has shape [1, 1, 8, 9] but each dimension"),
        (plain().soft(wide.view()), "soft weights has shape [1, 1, 8, 9] but each dimension"),
        (plain().bias(Bias::Relative { table: table.view() }), "must have the shape [1, 4 or 1, 1, 2 * reach + 1]"),
    ] {
        let message = refused(Q, K, K, &options);
        assert!(message.contains(words), "{message:?} should contain {words:?}");
    }
}

#[test]
fn outputs_that_do_not_fit() {
    let plan = plan("causal", &Shape::square(8), &Facts::new());
    let x = Array::random([1, 1, 8, 16], 1);
    let inputs = Inputs { q: x.view(), k: x.view(), v: x.view() };
    let refused =
        |outputs: Outputs<'_>| attention_into(&inputs, &plan, &Options::default(), outputs).unwrap_err().to_string();
    let mut memory = vec![0.0; 8 * 17];
    let out = ViewMut::new(&mut memory, [1, 1, 8, 17]).unwrap();
    let error = refused(Outputs { out, lse: None });
    assert!(error.contains("out has shape [1, 1, 8, 17]") && error.contains("[1, 1, 8, 16]"), "{error}");
    let out = ViewMut::strided(&mut memory, [1, 1, 8, 16], [0, 0, 17, 1], 0).unwrap();
    let mut lse = [0.0; 7];
    let error = refused(Outputs { out, lse: Some(&mut lse) });
    assert!(error.contains("lse has shape [7]") && error.contains("give memory for 8 values"), "{error}");
}

#[test]
fn views_that_do_not_fit_their_memory() {
    let error = View::new(&[0.0; 5], [1, 1, 2, 3]).unwrap_err().to_string();
    assert!(
        error.contains("[1, 1, 2, 3]") && error.contains("in memory of 5 values") && error.contains("exactly"),
        "{error}"
    );
}

#[test]
fn isas_that_do_not_exist() {
    let error = "sse9".parse::<Isa>().unwrap_err();
    assert!(matches!(error, Error::Isa { .. }));
    assert_eq!(
        error.to_string(),
        "ISA `sse9`: no ISA has this name: choose one of portable, neon, avx2, avx512, avx512bf16, amx"
    );
    for isa in Isa::available() {
        assert_eq!(isa.to_string().parse::<Isa>().unwrap(), *isa);
    }
}

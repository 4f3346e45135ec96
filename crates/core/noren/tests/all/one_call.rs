//! Attention in one call and with its builder: results equal the reference, errors can be matched, and a plan is made once.

use crate::common::{Array, assert_same_bits, difference, inputs, plan};
use crate::scene::case::{Case, check};
use crate::scene::{Scene, Strided};
use noren::{
    Attend, Bias, Cell, Dropout, Error, Facts, Inputs, Isa, KvCache, KvShape, Mask, Options, Reorder, Saved, Shape,
    Spec, View, ViewMut, attend, attention, attention_backward, bf16, reference,
};
use std::error::Error as _;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Returns the builder with the mask, the facts and the positions of a case. The mask is given as text or as a value.
fn attend_of(case: &mut Case) -> Attend<'static> {
    let (mask, shape) = (case.bound.mask(), case.bound.shape());
    let offsets: Vec<i64> = (0..shape.batch_len()).map(|b| shape.query_offset(b)).collect();
    let attend = match case.dice.below(3) {
        0 if mask.atoms().iter().all(|atom| atom.name() != "function") => Attend::new(mask.to_string()),
        1 => Attend::new(mask),
        _ => Attend::new(Spec::from(mask.clone())),
    };
    attend.expect("a mask").facts(case.bound.facts().clone()).query_offsets(offsets).plan_options(*case.plan.options())
}

#[test]
fn attend_is_the_reference() {
    check(400, |mut case| {
        let attend = attend_of(&mut case);
        let plain = Options::default();
        let Scene { q, k, v, .. } = case.scene.clone();
        let expected = reference::forward(&inputs(&q, &k, &v), &case.plan, &plain).unwrap();
        let finite = expected.lse.iter().filter(|x| x.is_finite());
        let unit = finite.fold(0.0, |a: f64, x| a.max(x.abs())).clamp(1e-30, 1.0);

        let got = attend.forward((&q.data, q.shape), k.view(), v.view()).unwrap();
        let worst = difference(&got.out, &expected.out).max(difference(&got.lse, &expected.lse) * unit);
        assert!(worst <= 1e-5, "{}: off by {worst:.1e} of the largest value", case.name);

        // Strided arrays, memory of the caller, and a plan give the same bits.
        let [q2, k2, v2] = [&q, &k, &v].map(|x| Strided::new(x, &mut case.dice));
        let (mut out, mut lse) = (vec![f32::NAN; got.out.len()], vec![f32::NAN; got.lse.len()]);
        attend.forward_into(q2.view(), k2.view(), v2.view(), (&mut out, got.shape), Some(&mut lse)).unwrap();
        assert_same_bits(&out, &got.out, &case.name);
        assert_same_bits(&lse, &got.lse, &case.name);
        let planned = noren::attend(q.view(), k.view(), v.view(), &case.plan).unwrap();
        assert_same_bits(&planned.out, &got.out, &case.name);
    });
}

#[test]
fn scores_and_options_are_those_of_the_long_form() {
    check(200, |mut case| {
        let attend = attend_of(&mut case);
        let scene = case.scene.clone();
        let dout = Array::random([scene.q.shape[0], scene.q.shape[1], scene.q.shape[2], scene.v.shape[3]], 5);
        let [q, k, v, dout] = [&scene.q, &scene.k, &scene.v, &dout].map(Array::view);
        let dropout = Dropout { probability: 0.2, seed: 3 };
        scene.with_options(Isa::available()[0], |options| {
            let options = options.clone().dropout(dropout).threads(1);
            let attend = attend.options(options.clone());
            let expected = attention(&Inputs { q, k, v }, &case.plan, &options).unwrap();
            let got = attend.forward(q, k, v).unwrap();
            assert_same_bits(&got.out, &expected.out, &case.name);
            assert_same_bits(&got.lse, &expected.lse, &case.name);
            let saved = Saved { out: View::new(&got.out, got.shape).unwrap(), lse: &got.lse, dout };
            let expected = attention_backward(&Inputs { q, k, v }, &saved, &case.plan, &options).unwrap();
            assert_eq!(attend.backward(q, k, v, &got, dout).unwrap().dq.len(), expected.dq.len());
            let gradients = attend.backward(q, k, v, &got, dout).unwrap();
            assert_same_bits(&gradients.dq, &expected.dq, &case.name);
            assert_same_bits(&gradients.dv, &expected.dv, &case.name);
        });
    });
}

#[test]
fn scores_of_the_text_find_their_arrays() {
    let [q, k, v, bias] = [[1, 2, 6, 8], [1, 1, 6, 8], [1, 1, 6, 4], [1, 2, 6, 6]].map(|shape| Array::random(shape, 1));
    let sinks = [0.5, -1.0];
    let attend = Attend::new("causal + bias(mine) + softcap(4) + alibi + sinks").unwrap();
    let attend = attend.array("mine", bias.view()).unwrap().array("sinks", (&sinks, [1, 1, 1, 2])).unwrap();
    let got = attend.bias(Bias::Alibi(vec![0.1; 2])).forward(q.view(), k.view(), v.view()).unwrap();
    let slopes = vec![1.0 / 16.0, 1.0 / 256.0];
    let options = Options::new().softcap(4.0).sinks(&sinks).bias(Bias::Dense(bias.view()));
    let options = options.bias(Bias::Alibi(slopes)).bias(Bias::Alibi(vec![0.1; 2]));
    let plan = plan("causal", &Shape::square(6).heads(2).kv_heads(1), &Facts::new());
    let expected = reference::forward(&inputs(&q, &k, &v), &plan, &options).unwrap();
    assert!(difference(&got.out, &expected.out) < 1e-5);
}

#[test]
fn a_plan_is_made_once_for_a_shape() {
    let shape = Shape::square(40).heads(2);
    let attend = Attend::new("sliding(9) | global(0)").unwrap();
    let first = attend.plan(&shape).unwrap();
    let x = Array::random([1, 2, 40, 8], 1);
    let result = attend.forward(x.view(), x.view(), x.view()).unwrap();
    attend.backward(x.view(), x.view(), x.view(), &result, x.view()).unwrap();
    assert!(Arc::ptr_eq(&first, &attend.plan(&shape).unwrap()));
    // A finished plan is not copied.
    let given = Attend::new(&first).unwrap();
    assert!(Arc::ptr_eq(&first, &given.plan(&shape).unwrap()));
    assert!(given.plan(&Shape::square(41).heads(2)).is_err());
    // A clone has the plan, until another setting needs another plan.
    assert!(Arc::ptr_eq(&first, &attend.clone().plan(&shape).unwrap()));
    assert!(!Arc::ptr_eq(&first, &attend.clone().query_offset(1_usize).plan(&shape).unwrap()));
    let other = attend.plan_options(noren::PlanOptions { block_q: 8, reorder: Reorder::Never, ..Default::default() });
    assert!(!Arc::ptr_eq(&first, &other.plan(&shape).unwrap()));
}

#[test]
fn steps_over_a_cache_are_rows_of_one_pass() {
    let [q, k, v] = [[1, 4, 9, 8], [1, 2, 9, 8], [1, 2, 9, 8]].map(|shape| Array::random(shape, 3));
    let whole = attend(q.view(), k.view(), v.view(), "sliding(4) + softcap(3)").unwrap();
    let one = Attend::new("sliding(4) + softcap(3)").unwrap();
    let mut cache = KvCache::contiguous(&KvShape::new(2, 8), 16).unwrap();
    let mut at = 0;
    for new in [3, 1, 1, 4] {
        let [q, k, v] = [&q, &k, &v].map(|x| x.slice(at..at + new));
        // After an error, the cache is unchanged.
        let wide = Array::random([1, 3, new, 8], 1);
        assert!(one.decode(&mut cache, wide.view(), k.view(), v.view()).is_err());
        assert_eq!(cache.len(0), at);
        let got = one.decode(&mut cache, q.view(), k.view(), v.view()).unwrap();
        for (h, i) in (0..4).flat_map(|h| (0..new).map(move |i| (h, i))) {
            let expected = &whole.out[(h * 9 + at + i) * 8..][..8];
            assert_same_bits(&got.out[(h * new + i) * 8..][..8], expected, &format!("head {h}, token {}", at + i));
        }
        at += new;
    }
}

#[test]
fn weights_need_no_values() {
    let x = Array::random([1, 1, 3, 2], 1);
    let weights = Attend::new("causal").unwrap().weights(x.view(), x.view(), [0, 0], 0..1).unwrap();
    assert_eq!(weights, [1.0, 0.0, 0.0]);
}

#[test]
fn all_types_of_values() {
    let x = Array::random([1, 2, 5, 8], 1);
    let boxed: Box<[f32]> = x.data.clone().into();
    let plain = attend(x.view(), x.view(), x.view(), "sliding(3)").unwrap();
    let text = String::from("sliding(3)");
    assert_eq!(attend((&boxed, x.shape), (&x.data, x.shape), (&x.data[..], x.shape), text).unwrap(), plain);
    // the same values with the heads of a token side by side
    let (mut swapped, mut out) = ([0.0; 80], [0.0; 80]);
    let places = (0..2).flat_map(|h| (0..5).flat_map(move |i| (0..8).map(move |d| [0, h, i, d])));
    places.clone().for_each(|[_, h, i, d]| swapped[(i * 2 + h) * 8 + d] = x.view().get([0, h, i, d]));
    let (view, into) = (View::blhd(&swapped, [1, 5, 2, 8]).unwrap(), ViewMut::blhd(&mut out, [1, 5, 2, 8]).unwrap());
    Attend::new("sliding(3)").unwrap().forward_into(view, view, view, into, None).unwrap();
    places.zip(&plain.out).for_each(|([_, h, i, d], value)| assert_eq!(out[(i * 2 + h) * 8 + d], *value));
    let narrow = x.cast::<bf16>();
    let [wide, narrow] = [
        attend(x.view(), x.view(), x.view(), "causal").unwrap().out[0],
        attend(narrow.view(), narrow.view(), narrow.view(), "causal").unwrap().out[0].to_f32(),
    ];
    assert!((wide - narrow).abs() < 0.02);
}

#[test]
fn errors_can_be_matched_on() {
    let x = [0f32; 4 * 8];
    let (x, short) = ((&x, [1, 1, 4, 8]), (&x, [1, 1, 2, 16]));
    let refused = |mask: &str| attend(x, x, x, mask).unwrap_err();

    let error = refused("cuasal");
    assert!(matches!(&error, Error::Parse(parse) if parse.suggestion.as_deref() == Some("did you mean `causal`?")));
    assert!(error.source().is_some_and(|source| source.is::<noren::ParseError>()));

    assert!(matches!(refused("padding"), Error::Missing { part, .. } if part == "padding"));
    assert!(matches!(refused("causal + bias(b)"), Error::Missing { part, .. } if part == "bias(b)"));
    assert!(refused("causal + bias(b)").to_string().contains("give the array with Attend::array(\"b\", ...)"));
    let error = refused("documents([3, 3])");
    assert!(matches!(error, Error::Mask(_)));
    assert!(error.source().is_some_and(|source| source.is::<noren::noren_mask::Error>()));

    let y = [0f32; 16];
    let (two, one) = ((x.0, [1, 2, 2, 8]), (&y, [1, 2, 1, 8]));
    let crossed = |mask: &str| attend(two, one, one, mask);
    for mask in ["causal", "full + alibi"] {
        assert_eq!(crossed(mask).unwrap_err(), Error::Alignment { q_len: 2, kv_len: 1 });
    }
    assert!(crossed("full - keys(3)").is_ok(), "the position of the first query changes nothing");
    let error = attend(x, short, x, "full").unwrap_err();
    assert!(matches!(&error, Error::Shape { name: "k", given, .. } if given == &[1, 1, 2, 16]), "{error}");
    assert!(matches!(attend(x, x, short, "full").unwrap_err(), Error::Shape { name: "v", .. }));
    let wide = (x.0, [1, 1, 4, 9]);
    assert!(matches!(attend(x, x, wide, "full").unwrap_err(), Error::View { name: "v", len: 32, .. }));
    let error = Attend::new("full").unwrap().forward_into(x, x, x, (&mut [0.0; 32], wide.1), None).unwrap_err();
    assert!(error.to_string().starts_with("out of shape [1, 1, 4, 9] with strides"), "{error}");

    assert_eq!("fp8".parse::<noren::Dtype>().unwrap_err(), Error::Dtype { given: "fp8".into() });
    let cancelled = AtomicBool::new(true);
    assert_eq!(Attend::new("full").unwrap().cancel(&cancelled).forward(x, x, x), Err(Error::Cancelled));
    assert!(matches!(
        Attend::new("full").unwrap().threads(0).forward(x, x, x),
        Err(Error::Option { name: "threads", .. })
    ));
    assert!(matches!("sse9".parse::<Isa>(), Err(Error::Isa { .. })));
}

#[test]
fn what_contradicts_is_refused() {
    let x = [0f32; 4 * 8];
    let x = (&x, [1, 1, 4, 8]);
    let message = |result: Result<noren::Attention, Error>| result.unwrap_err().to_string();
    let ready = plan("causal", &Shape::square(4), &Facts::new());
    let with = |mask: &str| Attend::new(mask).unwrap();
    for (got, words) in [
        (
            message(Attend::new(&ready).unwrap().facts(Facts::new()).forward(x, x, x)),
            "facts is set: the mask is a plan, which already contains facts",
        ),
        (
            message(Attend::new(&ready).unwrap().query_offset(3).forward(x, x, x)),
            "query_offset is set: the mask is a plan",
        ),
        (
            message(attend(x, x, x, plan("causal", &Shape::square(5), &Facts::new()))),
            "bind the mask to the sizes of the arrays",
        ),
        (
            message(with("causal + softcap(2)").softcap(3.0).forward(x, x, x)),
            "score is `softcap(2)`: the mask and the options together have two score modifiers of this kind",
        ),
    ] {
        assert!(got.contains(words), "{got:?} should contain {words:?}");
    }
    let mut cache = KvCache::contiguous(&KvShape::new(1, 8), 16).unwrap();
    let error = Attend::new(&ready).unwrap().decode(&mut cache, x, x, x).unwrap_err().to_string();
    assert!(error.contains("makes a plan for each step of the cache: give the mask instead of a plan"), "{error}");
    let error = with("causal").query_offset(3).decode(&mut cache, x, x, x).unwrap_err().to_string();
    assert!(error.contains("takes the positions of the queries from the cache"), "{error}");
}

#[test]
fn a_program_needs_one_error_type() {
    fn whole() -> Result<f32, Error> {
        let mask: Mask = "causal".parse()?;
        let plan = mask.bind(&Shape::square(2), &Facts::new())?.plan();
        let x = [1.0, 2.0];
        Ok(attend((&x, [1, 1, 2, 1]), (&x, [1, 1, 2, 1]), (&x, [1, 1, 2, 1]), &plan)?.out[0])
    }
    assert_eq!(whole(), Ok(1.0));
}

/// A call from a thread outside the pool computes on this thread too. Functions of a mask may use the pool themselves.
#[test]
fn calls_from_outside_the_pool_have_the_same_bits() {
    let shape = Shape::square(700).heads(4);
    let [q, k, v] = [1, 2, 3].map(|seed| Array::random([1, 4, 700, 16], seed));
    let even = Mask::from_fn(|Cell { head, query, key, .. }| {
        let (left, right) = rayon::join(|| query + head as i64, || key);
        (left + right) % 2 == 0
    });
    for mask in ["causal & documents([100, 600])".parse().unwrap(), even] {
        let plan = mask.bind(&shape, &Facts::new()).unwrap().plan();
        let forward = || attention(&inputs(&q, &k, &v), &plan, &Options::default()).unwrap().out;
        let outside = forward();
        for threads in [1, 2, 3] {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            assert_same_bits(&pool.install(forward), &outside, &format!("{mask} on {threads} threads of a pool"));
        }
        let together: Vec<Vec<f32>> = std::thread::scope(|scope| {
            let calls: Vec<_> = (0..6).map(|_| scope.spawn(forward)).collect();
            calls.into_iter().map(|call| call.join().unwrap()).collect()
        });
        together.iter().for_each(|out| assert_same_bits(out, &outside, &mask.to_string()));
    }
}

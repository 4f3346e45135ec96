//! A long test for a given time: random shapes, masks, options, types, passes and cache operations are compared with the
//! reference.
//!
//!     NOREN_SOAK=600 cargo test --release -p noren --test all soak:: -- --nocapture
//!
//! `NOREN_SOAK` is the time in seconds, 3 unless given. A failure names its round; `NOREN_SOAK_ROUND=N` runs that one alone.

use crate::common::{Array, assert_same_bits, difference, inputs, textbook};
use crate::scene::case::Case;
use crate::scene::{Dice, Scene};
use noren::{
    Dropout, Element, Isa, KvCache, KvShape, Options, Rotating, Saved, View, attention, attention_backward, bf16, f16,
    reference,
};
use noren_mask::{Facts, Mask, Shape};
use noren_testing::cases;
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use std::time::{Duration, Instant};

#[test]
fn soak() {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().expect("a whole number"));
    if let Some(one) = number("NOREN_SOAK_ROUND") {
        return round(one, &mut Spread::default());
    }
    let mut spread = Spread::default();
    let end = Duration::from_secs(number("NOREN_SOAK").unwrap_or(3));
    // The seed comes from the time, so every run has other rounds.
    let first = std::time::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_secs()) * 1_000_000;
    let (start, mut said, mut done) = (Instant::now(), Duration::ZERO, 0);
    while start.elapsed() < end {
        round(first + done, &mut spread);
        done += 1;
        if start.elapsed() - said > Duration::from_secs(5) {
            said = start.elapsed();
            eprintln!("{:4} s of {} s: {done} rounds without a mismatch", said.as_secs(), end.as_secs());
        }
    }
    let ratio = (spread.ours / spread.textbook).sqrt();
    eprintln!("{done} rounds without a mismatch; error of bf16 and f16 {ratio:.3} times the textbook's");
    assert!(done < 100 || ratio <= 1.1, "errors of bf16 and f16 are {ratio:.3} times the textbook's: at most 1.1");
}

/// Sums of squared errors of narrow types over all rounds, each divided by the square of its case's largest value.
#[derive(Default)]
struct Spread {
    ours: f64,
    textbook: f64,
}

/// Prints the number of the round if the test panics.
struct Named(u64);

impl Drop for Named {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("round {}: NOREN_SOAK_ROUND={} runs it again", self.0, self.0);
        }
    }
}

fn round(seed: u64, spread: &mut Spread) {
    let _named = Named(seed);
    let mut dice = Dice(seed);
    let mut case = case(&mut dice);
    for isa in Isa::available() {
        forward_and_backward(&mut case, *isa);
    }
    match dice.below(2) {
        0 => narrow::<bf16>(&case, spread),
        _ => narrow::<f16>(&case, spread),
    }
    match dice.below(3) {
        0 => steps::<f32>(&mut dice),
        1 => steps::<bf16>(&mut dice),
        _ => steps::<f16>(&mut dice),
    }
}

/// Returns a random mask over a random shape.
fn case(dice: &mut Dice) -> Case {
    let mut seed = [0; 32];
    seed.chunks_mut(8).for_each(|chunk| chunk.copy_from_slice(&dice.next().to_le_bytes()));
    let mut runner = TestRunner::new_with_rng(Config::default(), TestRng::from_seed(RngAlgorithm::ChaCha, &seed));
    let world = cases::worlds(200, 5000).new_tree(&mut runner).expect("a world").current();
    let mask = cases::masks(&world).new_tree(&mut runner).expect("a mask").current();
    let options = cases::options().new_tree(&mut runner).expect("options").current();
    Case::new(&world, &mask, &options, dice.next())
}

/// Compares `f32` forward and backward passes, some with dropout, with the reference.
fn forward_and_backward(case: &mut Case, isa: Isa) {
    let Scene { q, k, v, .. } = &case.scene;
    let [batch, heads, q_len, _] = q.shape;
    let dout = Array::random([batch, heads, q_len, v.shape[3]], case.dice.next());
    let dropout = case.dice.chance(30).then(|| Dropout { probability: 0.25, seed: case.dice.next() });
    let steep = case.scene.alibi.iter().flatten().any(|slope| slope.abs() > 0.1);
    let tolerance = if steep { 1e-4 } else { 1e-5 };
    case.scene.with_options(isa, |options| {
        let options = options.clone().dropout(dropout);
        let inputs = inputs(q, k, v);
        let expected = reference::forward(&inputs, &case.plan, &options).unwrap();
        let got = attention(&inputs, &case.plan, &options).unwrap();
        let off = difference(&got.out, &expected.out);
        assert!(off <= 1.4 * tolerance, "{} on {isa}: out off by {off:.1e} of the largest value", case.name);

        let expected = reference::backward(&inputs, &dout.view(), &case.plan, &options).unwrap();
        let out = View::new(&got.out, got.shape).unwrap();
        let saved = Saved { out, lse: &got.lse, dout: dout.view() };
        let got = attention_backward(&inputs, &saved, &case.plan, &options).unwrap();
        // If terms cancel, the error is relative to the terms and not to the sum.
        let largest = |x: &[f32]| x.iter().fold(0.0, |a: f64, x| a.max(f64::from(x.abs())));
        let added = v.shape[3] as f64 * largest(&v.data) * largest(&dout.data) * largest(&q.data).max(largest(&k.data));
        for (name, got, expected) in
            [("dq", got.dq, expected.dq), ("dk", got.dk, expected.dk), ("dv", got.dv, expected.dv)]
        {
            let unit = expected.iter().fold(1e-30, |a: f64, x| a.max(x.abs()));
            let off = difference(&got, &expected);
            let allowed = 2.0 * tolerance + 1e-6 * added / unit;
            assert!(off <= allowed, "{} on {isa}: {name} off by {off:.1e}, {allowed:.1e} is allowed", case.name);
        }
    });
}

/// Checks that results in a narrow type are as accurate as the type allows.
///
/// The kernels round each weight and each output once, so an error is at most half a unit of the weighted sum of `|v|` and of
/// the output. The bound here is twice that of the weights, because their sum may be computed from rounded weights. The error
/// of single outputs depends on chance; `spread` compares the mean with the textbook's.
fn narrow<T: Element>(case: &Case, spread: &mut Spread) {
    let [q, k, v] = [&case.scene.q, &case.scene.k, &case.scene.v].map(|x| x.cast::<T>());
    let size = Array { data: v.data.iter().map(|x| T::from_f32(x.to_f32().abs())).collect(), shape: v.shape };
    let (given, of_sizes) = (inputs(&q, &k, &v), inputs(&q, &k, &size));
    let expected = reference::forward(&given, &case.plan, &Options::default()).unwrap().out;
    let sizes = reference::forward(&of_sizes, &case.plan, &Options::default()).unwrap().out;
    let textbook = textbook(&given, &case.plan, &Options::default());
    let half_unit = if T::DTYPE == noren::Dtype::Bf16 { 2f64.powi(-8) } else { 2f64.powi(-11) };
    let largest = expected.iter().fold(1e-30, |a: f64, x| a.max(x.abs()));
    for isa in Isa::available() {
        let options = Options::default().isa(*isa);
        let got = attention(&given, &case.plan, &options).unwrap().out;
        for (n, ((got, expected), size)) in got.iter().zip(&expected).zip(&sizes).enumerate() {
            let off = (f64::from(got.to_f32()) - expected).abs();
            let allowed = half_unit * (expected.abs() + 2.0 * size) + 1e-6 * size + 1e-7;
            let name = &case.name;
            assert!(
                off <= allowed,
                "{name} in {} on {isa}: output {n} off by {off:.2e}, {allowed:.2e} is allowed",
                T::DTYPE
            );
        }
        let unit = largest * half_unit;
        let squares = |x: &[T]| -> f64 {
            let off = x.iter().zip(&expected).map(|(x, e)| (f64::from(x.to_f32()) - e) / unit);
            off.map(|off| off * off).sum::<f64>() / expected.len().max(1) as f64
        };
        spread.ours += squares(&got);
        spread.textbook += squares(&textbook);
    }
}

/// Compares a cache of a random form, which grows, is truncated and grows again, with one pass over the same tokens.
fn steps<T: Element>(dice: &mut Dice) {
    let (kv_heads, group) = (1 + dice.below(2), 1 + dice.below(4));
    let (len, head_dim, v_dim) = (2 + dice.below(300), 1 + dice.below(80), 1 + dice.below(80));
    let (window, sinks) = (1 + dice.below(70), dice.below(9));
    let rotating = dice.chance(40);
    let text = match (rotating, dice.below(3)) {
        (true, _) => format!("sliding({window}) | causal & keys(..{sinks})"),
        (_, 0) => "causal".to_owned(),
        (_, 1) => format!("heads(every 3: causal, else: sliding({window}))"),
        _ => format!("causal - keys({}..{})", len / 3, len / 2),
    };
    let mask: Mask = text.parse().unwrap();
    let q = Array::random([1, kv_heads * group, len, head_dim], dice.next()).cast::<T>();
    let [k, v] = [head_dim, v_dim].map(|d| Array::random([1, kv_heads, len, d], dice.next()).cast::<T>());
    let isas = Isa::available();
    let isa = isas[dice.below(isas.len())];
    let options = Options::default().isa(isa).threads(1 + dice.below(2));
    let shape = Shape::square(len).heads(kv_heads * group).kv_heads(kv_heads);
    let whole = mask.bind(&shape, &Facts::new()).unwrap().plan();
    let expected = attention(&inputs(&q, &k, &v), &whole, &options).unwrap();

    let shape = KvShape::new(kv_heads, head_dim).v_dim(v_dim).isa(isa);
    let (block, most) = (16 * (1 + dice.below(16)), 64);
    let mut cache = match (rotating, dice.chance(50)) {
        (true, _) => KvCache::<T>::rotating(&shape, Rotating { window, sink_tokens: sinks, ahead: most }).unwrap(),
        (_, true) => KvCache::paged(&shape, block, len.div_ceil(block)).unwrap(),
        _ => KvCache::contiguous(&shape, len).unwrap(),
    };
    let part = |x: &Array<T>, rows: std::ops::Range<usize>| {
        let [b, h, _, d] = x.shape;
        let view = x.view();
        Array::new([b, h, rows.len(), d], |[b, h, i, d]| view.get([b, h, rows.start + i, d]).to_f32()).cast::<T>()
    };
    let mut past = 0;
    while past < len {
        let largest = if dice.chance(60) { 2 } else { most };
        let new = (1 + dice.below(largest)).min(len - past);
        let [q, k, v] = [&q, &k, &v].map(|x| part(x, past..past + new));
        cache.append(k.view(), v.view()).unwrap();
        let got = cache.attend(q.view(), &mask, &options.clone().isa(None)).unwrap();
        // A rotating cache may form other pairs of `bf16` keys, so the bits may differ.
        if T::DTYPE != noren::Dtype::Bf16 {
            for (h, i) in (0..kv_heads * group).flat_map(|h| (0..new).map(move |i| (h, i))) {
                let row = |out: &[T], rows: usize, i: usize| -> Vec<f32> {
                    out[(h * rows + i) * v_dim..][..v_dim].iter().map(|x| x.to_f32()).collect()
                };
                let what = format!("{text} on {isa}, token {i} of {new} after {past}, head {h}");
                assert_same_bits(&row(&got.out, new, i), &row(&expected.out, len, past + i), &what);
            }
        }
        past += new;
        if dice.chance(10) && !rotating {
            let keep = dice.below(past + 1);
            cache.truncate(0, keep).unwrap();
            past = keep;
        }
    }
}

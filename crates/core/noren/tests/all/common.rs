//! Arrays, random numbers and comparisons that the tests share.

use noren::reference::{self, Cells};
use noren::{Attention, Element, Inputs, Isa, Options, Saved, View, attention, attention_backward};
use noren_mask::{Facts, Plan, Shape, Spec};
use std::path::PathBuf;

/// A contiguous array and its shape.
#[derive(Clone, Debug)]
pub(crate) struct Array<T = f32> {
    pub(crate) data: Vec<T>,
    pub(crate) shape: [usize; 4],
}

impl Array {
    pub(crate) fn new(shape: [usize; 4], mut value: impl FnMut([usize; 4]) -> f32) -> Array {
        let mut data = Vec::with_capacity(shape.iter().product());
        for b in 0..shape[0] {
            for h in 0..shape[1] {
                for i in 0..shape[2] {
                    data.extend((0..shape[3]).map(|d| value([b, h, i, d])));
                }
            }
        }
        Array { data, shape }
    }

    /// Returns random numbers from -2 to 2, which depend only on `seed`.
    pub(crate) fn random(shape: [usize; 4], seed: u64) -> Array {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x1234_5678_9abc_def1;
        Array::new(shape, |_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 40) as f32 / (1u64 << 22) as f32 - 2.0
        })
    }

    /// Returns the rows `keys` of the third dimension.
    pub(crate) fn slice(&self, keys: std::ops::Range<usize>) -> Array {
        let [b, h, _, d] = self.shape;
        Array::new([b, h, keys.len(), d], |[b, h, i, d]| self.view().get([b, h, keys.start + i, d]))
    }

    /// Returns the array at index `from` of a third dimension of length `len`; all other elements are `fill`.
    pub(crate) fn pad(&self, from: usize, len: usize, fill: f32) -> Array {
        let [b, h, n, d] = self.shape;
        Array::new([b, h, len, d], |[b, h, i, d]| {
            if (from..from + n).contains(&i) { self.view().get([b, h, i - from, d]) } else { fill }
        })
    }
}

impl<T: Element> Array<T> {
    pub(crate) fn view(&self) -> View<'_, T> {
        View::new(&self.data, self.shape).unwrap()
    }

    /// Returns the array with its values rounded to another type.
    pub(crate) fn cast<U: Element>(&self) -> Array<U> {
        Array { data: self.data.iter().map(|x| U::from_f32(x.to_f32())).collect(), shape: self.shape }
    }
}

/// Returns the plan of a mask.
pub(crate) fn plan(mask: &str, shape: &Shape, facts: &Facts) -> Plan {
    let spec: Spec = mask.parse().unwrap();
    spec.mask.bind(shape, facts).unwrap().plan()
}

/// Returns views of three arrays as inputs.
pub(crate) fn inputs<'a, T: Element>(q: &'a Array<T>, k: &'a Array<T>, v: &'a Array<T>) -> Inputs<'a, T> {
    Inputs { q: q.view(), k: k.view(), v: v.view() }
}

/// Returns the attention on an ISA, with all other options unchanged.
pub(crate) fn run<T: Element>(
    q: &Array<T>,
    k: &Array<T>,
    v: &Array<T>,
    plan: &Plan,
    isa: Isa,
    options: &Options<'_>,
) -> Attention<T> {
    let options = options.clone().isa(isa);
    attention(&inputs(q, k, v), plan, &options).unwrap()
}

/// Returns the maximum difference, divided by the largest expected value. Panics if infinities or NaN differ.
pub(crate) fn difference<T: Element>(got: &[T], expected: &[f64]) -> f64 {
    assert_eq!(got.len(), expected.len());
    let largest = expected.iter().filter(|x| x.is_finite()).fold(1e-30, |a: f64, x| a.max(x.abs()));
    let mut worst = 0.0f64;
    for (i, (g, e)) in got.iter().map(|g| g.to_f32()).zip(expected).enumerate() {
        if e.is_finite() {
            assert!(g.is_finite(), "value {i} is {g}, expected {e}");
            worst = worst.max((f64::from(g) - e).abs() / largest);
        } else {
            assert!(f64::from(g) == *e || g.is_nan() && e.is_nan(), "value {i} is {g}, expected {e}");
        }
    }
    worst
}

/// Returns the root of the mean squared difference, divided by the largest expected value.
pub(crate) fn spread<T: Element>(got: &[T], expected: &[f64]) -> f64 {
    let largest = expected.iter().fold(1e-30, |a: f64, x| a.max(x.abs()));
    let squares = got.iter().zip(expected).map(|(g, e)| ((f64::from(g.to_f32()) - e) / largest).powi(2));
    (squares.sum::<f64>() / expected.len().max(1) as f64).sqrt()
}

/// Returns the output of the textbook formula, computed in the type of the arrays as a simple library does. Scores and
/// probabilities are arrays of this type, so both are rounded. Sums are in `f32`.
pub(crate) fn textbook<T: Element>(inputs: &Inputs<'_, T>, cells: &impl Cells, options: &Options<'_>) -> Vec<T> {
    let ([batch, heads, q_len, _], [_, kv_heads, _, v_dim]) = (inputs.q.shape(), inputs.v.shape());
    let round = |x: f64| f64::from(T::from_f32(x as f32).to_f32());
    let mut out = Vec::new();
    for (b, h, i) in (0..batch * heads * q_len).map(|n| (n / q_len / heads, n / q_len % heads, n % q_len)) {
        let row = reference::row(inputs, cells, options, [b, h, i]);
        // Scores are computed from the probabilities. The probabilities and the share of the sink sum to 1.
        let rounded: Vec<f64> = row.weights.iter().map(|p| (round(p.ln() + row.lse) - row.lse).exp()).collect();
        let total = rounded.iter().sum::<f64>() + (1.0 - row.weights.iter().sum::<f64>()).max(0.0);
        let weights: Vec<f32> = rounded.iter().map(|p| round(p / total) as f32).collect();
        let value = |j, d| inputs.v.get([b, h * kv_heads / heads, j, d]).to_f32();
        let visible = || weights.iter().enumerate().filter(|(j, _)| row.weights[*j] != 0.0);
        out.extend((0..v_dim).map(|d| T::from_f32(visible().map(|(j, p)| p * value(j, d)).sum())));
    }
    out
}

/// Returns the gradients of queries, keys and values as [`textbook`] computes the output: probabilities, their gradients and
/// the gradients of scores are rounded to the type of the arrays.
pub(crate) fn textbook_backward<T: Element>(
    inputs: &Inputs<'_, T>,
    dout: &View<'_, T>,
    cells: &impl Cells,
    options: &Options<'_>,
) -> [Vec<T>; 3] {
    let ([batch, heads, q_len, head_dim], [_, kv_heads, kv_len, v_dim]) = (inputs.q.shape(), inputs.v.shape());
    let round = |x: f64| f64::from(T::from_f32(x as f32).to_f32());
    let dot = |n: usize, a: &dyn Fn(usize) -> T, b: &dyn Fn(usize) -> T| -> f64 {
        (0..n).map(|d| f64::from(a(d).to_f32()) * f64::from(b(d).to_f32())).sum()
    };
    let scale = options.scale.map_or((head_dim as f64).sqrt().recip(), f64::from);
    let mut dq = vec![0.0; batch * heads * q_len * head_dim];
    let mut dk = vec![0.0; batch * kv_heads * kv_len * head_dim];
    let mut dv = vec![0.0; batch * kv_heads * kv_len * v_dim];
    for (b, h, i) in (0..batch * heads * q_len).map(|n| (n / q_len / heads, n / q_len % heads, n % q_len)) {
        let g = h * kv_heads / heads;
        let row = reference::row(inputs, cells, options, [b, h, i]);
        let read: Vec<(usize, f64)> =
            (0..kv_len).map(|j| (j, round(row.weights[j]))).filter(|(_, p)| *p != 0.0).collect();
        let out: Vec<T> = (0..v_dim)
            .map(|d| read.iter().map(|(j, p)| p * f64::from(inputs.v.get([b, g, *j, d]).to_f32())).sum::<f64>())
            .map(|sum| T::from_f32(sum as f32))
            .collect();
        let delta = dot(v_dim, &|d| out[d], &|d| dout.get([b, h, i, d]));
        for (j, p) in read {
            let dp = round(dot(v_dim, &|d| inputs.v.get([b, g, j, d]), &|d| dout.get([b, h, i, d])));
            let slope = options.softcap.map_or(1.0, |cap| {
                let score = scale * dot(head_dim, &|d| inputs.q.get([b, h, i, d]), &|d| inputs.k.get([b, g, j, d]));
                1.0 - (score / f64::from(cap)).tanh().powi(2)
            });
            let ds = round(slope * p * (dp - delta)) * scale;
            let (query, key) = (((b * heads + h) * q_len + i) * head_dim, (b * kv_heads + g) * kv_len + j);
            for d in 0..head_dim {
                dq[query + d] += ds * f64::from(inputs.k.get([b, g, j, d]).to_f32());
                dk[key * head_dim + d] += ds * f64::from(inputs.q.get([b, h, i, d]).to_f32());
            }
            (0..v_dim).for_each(|d| dv[key * v_dim + d] += p * f64::from(dout.get([b, h, i, d]).to_f32()));
        }
    }
    [dq, dk, dv].map(|x| x.into_iter().map(|x| T::from_f32(x as f32)).collect())
}

/// Checks the gradients of every ISA by the rule that [`check_accuracy`] uses for the output.
#[track_caller]
pub(crate) fn check_gradients<T: Element>(
    inputs: &Inputs<'_, T>,
    dout: &View<'_, T>,
    plan: &Plan,
    options: &Options<'_>,
    f32: f64,
    what: &str,
) {
    let expected = reference::backward(inputs, dout, plan, options).unwrap();
    let expected = [("dq", expected.dq), ("dk", expected.dk), ("dv", expected.dv)];
    let textbook = textbook_backward(inputs, dout, plan, options);
    for isa in Isa::available() {
        let options = options.clone().isa(*isa);
        let forward = attention(inputs, plan, &options).unwrap();
        let out = View::new(&forward.out, forward.shape).unwrap();
        let saved = Saved { out, lse: &forward.lse, dout: *dout };
        let got = attention_backward(inputs, &saved, plan, &options).unwrap();
        for (got, ((name, expected), textbook)) in [got.dq, got.dk, got.dv].iter().zip(expected.iter().zip(&textbook)) {
            // The maximum of an error depends on chance, so it may be 1.5 times the other one.
            for (error, luck, of) in
                [(spread as fn(&[T], &[f64]) -> f64, 1.0, "on average"), (difference, 1.5, "at most")]
            {
                let allowed = 1.1 * luck * error(textbook, expected) + f32;
                let got = error(got, expected);
                assert!(
                    got <= allowed,
                    "{what} in {} on {isa}: {name} off by {got:.2e} of the largest value {of}, {allowed:.2e} is allowed",
                    T::DTYPE
                );
            }
        }
    }
}

/// Checks the accuracy of every ISA in a narrow type. The error against the `f64` reference of the same rounded arrays is at
/// most 1.1 times the error of the textbook formula, plus `f32`, the maximum error of sums in `f32`. On `amx`, a weight is
/// rounded twice, first to a 1/512 of an octave, and single errors are at most 1.25 times those of the formula.
#[track_caller]
pub(crate) fn check_accuracy<T: Element>(
    inputs: &Inputs<'_, T>,
    plan: &Plan,
    options: &Options<'_>,
    f32: f64,
    what: &str,
) {
    let expected = reference::forward(inputs, plan, options).unwrap();
    let textbook = difference(&textbook(inputs, plan, options), &expected.out);
    for isa in Isa::available() {
        let tiles = *isa == Isa::Amx && T::DTYPE == noren::Dtype::Bf16;
        let allowed = if tiles { 1.25 } else { 1.1 } * textbook + f32;
        let options = options.clone().isa(*isa);
        let got = attention(inputs, plan, &options).unwrap();
        let (out, lse) = (difference(&got.out, &expected.out), difference(&got.lse, &expected.lse));
        let what = format!("{what} in {} on {isa}", T::DTYPE);
        assert!(out <= allowed, "{what}: out off by {out:.2e} of the largest value, {allowed:.2e} is allowed");
        assert!(lse <= f32, "{what}: lse off by {lse:.2e} of the largest value");
    }
}

/// Returns the bits of the values, by which NaN equals NaN and 0 differs from -0.
pub(crate) fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|x| x.to_bits()).collect()
}

/// Panics with the first index at which two arrays differ in a bit.
#[track_caller]
pub(crate) fn assert_same_bits(got: &[f32], expected: &[f32], what: &str) {
    assert_eq!(got.len(), expected.len(), "{what}");
    if let Some(i) = (0..got.len()).find(|i| got[*i].to_bits() != expected[*i].to_bits()) {
        panic!("{what}: value {i} is {:?}, expected {:?}", got[i], expected[i]);
    }
}

/// Returns the path of a file of the workspace's test data.
pub(crate) fn testdata(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../testdata").join(path)
}

/// All arrays of a safetensors file. Shapes with fewer than four dimensions get leading dimensions of 1.
pub(crate) struct Tensors(Vec<u8>);

impl Tensors {
    pub(crate) fn read(path: &str) -> Tensors {
        let path = testdata(path);
        Tensors(std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display())))
    }

    pub(crate) fn get(&self, name: &str) -> Option<Array> {
        let file = safetensors::SafeTensors::deserialize(&self.0).unwrap();
        let tensor = file.tensor(name).ok()?;
        let data = match tensor.dtype() {
            safetensors::Dtype::F32 => {
                tensor.data().chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect()
            }
            safetensors::Dtype::U8 => tensor.data().iter().map(|b| f32::from(*b)).collect(),
            other => panic!("{name} is {other:?}"),
        };
        let mut shape = [1; 4];
        shape[4 - tensor.shape().len()..].copy_from_slice(tensor.shape());
        Some(Array { data, shape })
    }

    pub(crate) fn array(&self, name: &str) -> Array {
        self.get(name).unwrap_or_else(|| panic!("no array {name}"))
    }
}

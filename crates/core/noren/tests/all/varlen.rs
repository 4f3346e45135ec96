//! Batches of sequences: against attention in `f64` that is written here, alone against packed, hidden neighbours, wrong input.

use noren::varlen::{Planner, Sequences, Varlen, packed, packed_mut};
use noren::{
    Attend, Element, Error, Facts, GradientsMut, Inputs, Isa, Mask, Outputs, Saved, View, ViewMut, atoms, bf16, f16,
};

/// A generator of random numbers (SplitMix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    /// Returns a number below `n`.
    fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    fn one_of<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len())]
    }

    /// Returns a number from -1 to 1.
    fn value(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    }

    fn values<T: Element>(&mut self, len: usize) -> Vec<T> {
        (0..len).map(|_| T::from_f32(self.value())).collect()
    }
}

/// One random batch: lengths, sizes and arguments.
#[derive(Clone, Debug)]
struct Batch {
    q_lens: Vec<usize>,
    k_lens: Vec<usize>,
    heads: usize,
    kv_heads: usize,
    head_dim: usize,
    v_dim: usize,
    scale: Option<f32>,
    causal: bool,
    window: [Option<usize>; 2],
    softcap: f32,
    /// No slopes, `[heads]`, or `[sequences, heads]`.
    slopes: Vec<f32>,
    sinks: Vec<f32>,
    /// The text of a mask, and its cells by positions of query and key; the arguments are head, query, key.
    mask: Option<(&'static str, CellsOfMask)>,
}

/// Returns whether a mask allows a cell: the arguments are the head, the position of the query and the position of the key.
type CellsOfMask = fn(usize, i64, i64) -> bool;

const MASKS: [(&str, CellsOfMask); 6] = [
    ("sliding(5) | keys(0..2)", |_, q, k| (q - 5 < k && k <= q) || k < 2),
    ("causal & stride(3)", |_, q, k| k <= q && (q - k).rem_euclid(3) == 0),
    ("chunk(16)", |_, q, k| q.div_euclid(16) == k.div_euclid(16)),
    ("causal | prefix(7)", |_, q, k| k <= q || k < 7),
    ("heads(0..1: causal, 1..: full)", |h, q, k| h > 0 || k <= q),
    ("!window(left=2, right=2)", |_, q, k| k < q - 2 || k > q + 2),
];

impl Batch {
    fn random(r: &mut Random, longest: usize) -> Batch {
        let sequences = 1 + r.below(6);
        let longest = if r.below(4) == 0 { longest } else { longest.min(70) };
        let len = |r: &mut Random| if r.below(8) == 0 { 0 } else { r.below(longest + 1) };
        let q_lens: Vec<usize> = (0..sequences).map(|_| len(r)).collect();
        let equal = r.below(2) == 0;
        let k_lens = q_lens.iter().map(|q| if equal { *q } else { len(r) }).collect();
        let kv_heads = 1 + r.below(3);
        let heads = kv_heads * (1 + r.below(3));
        let head_dim = r.one_of(&[1, 3, 8, 16, 33]);
        let v_dim = if r.below(3) == 0 { r.one_of(&[2, 8, 17]) } else { head_dim };
        let limit = |r: &mut Random| (r.below(2) == 0).then(|| r.below(40));
        let window = if r.below(2) == 0 { [limit(r), limit(r)] } else { [None; 2] };
        let slopes = r.one_of(&[0, 0, heads, heads * sequences]);
        let sinks = if r.below(4) == 0 { heads } else { 0 };
        let scale = (r.below(3) == 0).then(|| 0.2 + r.value().abs());
        let softcap = r.one_of(&[0.0, 0.0, 1.5, 30.0]);
        let slopes = (0..slopes).map(|_| r.value().abs()).collect();
        let sinks = r.values(sinks);
        let mask = (r.below(3) == 0).then(|| r.one_of(&MASKS)).filter(|(text, _)| heads > 1 || !text.contains("heads"));
        let causal = r.below(2) == 0;
        Batch { q_lens, k_lens, heads, kv_heads, head_dim, v_dim, scale, causal, window, softcap, slopes, sinks, mask }
    }

    fn call(&self, sequences: Sequences) -> Varlen<'_> {
        let call = Varlen::new(sequences).softmax_scale(self.scale).causal(self.causal).softcap(self.softcap);
        let call = call.window_size(self.window[0], self.window[1]);
        let call = call.alibi_slopes(Some(&self.slopes[..]).filter(|s| !s.is_empty()));
        let call = call.sinks(Some(&self.sinks[..]).filter(|s| !s.is_empty()));
        match self.mask {
            Some((text, _)) => call.mask(text).unwrap(),
            None => call,
        }
    }

    fn slope(&self, sequence: usize, head: usize) -> f64 {
        match self.slopes.len() {
            0 => 0.0,
            n if n == self.heads => f64::from(self.slopes[head]),
            _ => f64::from(self.slopes[sequence * self.heads + head]),
        }
    }

    /// Returns whether query `i` of a sequence reads key `j`: the arguments as flash-attention's documentation describes them.
    fn allowed(&self, head: usize, i: usize, j: usize, shift: i64) -> bool {
        let (q, k) = (i as i64 + shift, j as i64);
        let left = self.window[0].is_none_or(|left| k >= q - left as i64);
        let right = self.window[1].is_none_or(|right| k <= q + right as i64);
        let right = if self.causal { k <= q } else { right };
        left && right && self.mask.is_none_or(|(_, cells)| cells(head, q, k))
    }
}

fn cumulative(lens: &[usize]) -> Vec<i32> {
    let sums = lens.iter().scan(0, |sum, len| {
        *sum += *len as i32;
        Some(*sum)
    });
    std::iter::once(0).chain(sums).collect()
}

/// The arrays of a batch, packed, with one more token at the end that belongs to no sequence.
struct Arrays<T> {
    q: Vec<T>,
    k: Vec<T>,
    v: Vec<T>,
    dout: Vec<T>,
    q_tokens: usize,
    k_tokens: usize,
}

impl<T: Element> Arrays<T> {
    fn random(r: &mut Random, batch: &Batch) -> Self {
        let tokens = |lens: &[usize]| lens.iter().sum::<usize>() + 1;
        let (q_tokens, k_tokens) = (tokens(&batch.q_lens), tokens(&batch.k_lens));
        Arrays {
            q: r.values(q_tokens * batch.heads * batch.head_dim),
            k: r.values(k_tokens * batch.kv_heads * batch.head_dim),
            v: r.values(k_tokens * batch.kv_heads * batch.v_dim),
            dout: r.values(q_tokens * batch.heads * batch.v_dim),
            q_tokens,
            k_tokens,
        }
    }
}

/// Outputs, log-sum-exps `[heads, tokens]` and gradients, in `f64`.
struct Expected {
    out: Vec<f64>,
    lse: Vec<f64>,
    dq: Vec<f64>,
    dk: Vec<f64>,
    dv: Vec<f64>,
    dsinks: Vec<f64>,
}

/// Computes each sequence by the definition of attention, row by row.
fn expected<T: Element>(batch: &Batch, arrays: &Arrays<T>) -> Expected {
    let Batch { heads, kv_heads, head_dim: d, v_dim: w, .. } = *batch;
    let wide = |x: &[T]| x.iter().map(|x| f64::from(x.to_f32())).collect::<Vec<f64>>();
    let (q, k, v, dout) = (wide(&arrays.q), wide(&arrays.k), wide(&arrays.v), wide(&arrays.dout));
    let scale = batch.scale.map_or(1.0 / (d as f64).sqrt(), f64::from);
    let mut all = Expected {
        out: vec![0.0; dout.len()],
        lse: vec![f64::NEG_INFINITY; heads * arrays.q_tokens],
        dq: vec![0.0; q.len()],
        dk: vec![0.0; k.len()],
        dv: vec![0.0; v.len()],
        dsinks: vec![0.0; batch.sinks.len()],
    };
    let (mut q_start, mut k_start) = (0, 0);
    for (s, (q_len, k_len)) in batch.q_lens.iter().zip(&batch.k_lens).enumerate() {
        let shift = *k_len as i64 - *q_len as i64;
        for (h, i) in (0..heads).flat_map(|h| (0..*q_len).map(move |i| (h, i))) {
            let kv = h / (heads / kv_heads);
            let q_at = ((q_start + i) * heads + h) * d;
            let o_at = ((q_start + i) * heads + h) * w;
            let k_at = |j: usize| ((k_start + j) * kv_heads + kv) * d;
            let v_at = |j: usize| ((k_start + j) * kv_heads + kv) * w;
            let keys: Vec<usize> = (0..*k_len).filter(|j| batch.allowed(h, i, *j, shift)).collect();
            if keys.is_empty() {
                continue;
            }
            // the score, and its derivative with respect to the product of query and key
            let score = |j: usize| {
                let dot: f64 = (0..d).map(|x| q[q_at + x] * k[k_at(j) + x]).sum();
                let (raw, cap) = (dot * scale, f64::from(batch.softcap));
                let (capped, slope) = match cap {
                    0.0 => (raw, 1.0),
                    _ => ((raw / cap).tanh() * cap, 1.0 - (raw / cap).tanh().powi(2)),
                };
                let distance = (i as i64 + shift - j as i64).abs() as f64;
                (capped - batch.slope(s, h) * distance, slope * scale)
            };
            let scores: Vec<(f64, f64)> = keys.iter().map(|j| score(*j)).collect();
            let sink = batch.sinks.get(h).map(|sink| f64::from(*sink));
            let top = scores.iter().map(|s| s.0).chain(sink).fold(f64::NEG_INFINITY, f64::max);
            let sum: f64 = scores.iter().map(|s| s.0).chain(sink).map(|x| (x - top).exp()).sum();
            let weights: Vec<f64> = scores.iter().map(|s| (s.0 - top).exp() / sum).collect();
            all.lse[h * arrays.q_tokens + q_start + i] = top + sum.ln();
            for (p, j) in weights.iter().zip(&keys) {
                for x in 0..w {
                    all.out[o_at + x] += p * v[v_at(*j) + x];
                }
            }
            let delta: f64 = (0..w).map(|x| all.out[o_at + x] * dout[o_at + x]).sum();
            if let Some(sink) = sink {
                all.dsinks[h] -= (sink - top).exp() / sum * delta;
            }
            for ((p, j), (_, slope)) in weights.iter().zip(&keys).zip(&scores) {
                let dp: f64 = (0..w).map(|x| dout[o_at + x] * v[v_at(*j) + x]).sum();
                let ds = p * (dp - delta) * slope;
                for x in 0..d {
                    all.dq[q_at + x] += ds * k[k_at(*j) + x];
                    all.dk[k_at(*j) + x] += ds * q[q_at + x];
                }
                for x in 0..w {
                    all.dv[v_at(*j) + x] += p * dout[o_at + x];
                }
            }
        }
        q_start += q_len;
        k_start += k_len;
    }
    all
}

fn close<T: Element>(name: &str, got: &[T], expected: &[f64], tolerance: f64, batch: &Batch) {
    assert_eq!(got.len(), expected.len(), "{name}");
    let scale = expected.iter().fold(1.0f64, |most, x| if x.is_finite() { most.max(x.abs()) } else { most });
    for (i, (got, expected)) in got.iter().zip(expected).enumerate() {
        let got = f64::from(got.to_f32());
        let equal = got == *expected || (got - expected).abs() <= tolerance * scale;
        assert!(equal, "{name}[{i}]: {got} instead of {expected} ({}): {batch:?}", T::DTYPE);
    }
}

/// The results of one call, as the library writes them.
#[derive(PartialEq, Debug)]
struct Got<T> {
    out: Vec<T>,
    lse: Vec<f32>,
    dq: Vec<T>,
    dk: Vec<T>,
    dv: Vec<T>,
    dsinks: Vec<f32>,
}

/// Computes the forward and backward passes of packed sequences. The memory of all results holds NaN before.
fn compute<T: Element>(batch: &Batch, arrays: &Arrays<T>, planner: &Planner, isa: Isa, threads: usize) -> Got<T> {
    let Batch { heads, kv_heads, head_dim, v_dim, .. } = *batch;
    let (cu_q, cu_k) = (cumulative(&batch.q_lens), cumulative(&batch.k_lens));
    let call = batch.call(Sequences::packed(&cu_q, &cu_k).unwrap()).isa(isa).threads(threads);
    let (q_shape, o_shape) = ([arrays.q_tokens, heads, head_dim], [arrays.q_tokens, heads, v_dim]);
    let (k_shape, v_shape) = ([arrays.k_tokens, kv_heads, head_dim], [arrays.k_tokens, kv_heads, v_dim]);
    let inputs = Inputs {
        q: packed(&arrays.q, q_shape).unwrap(),
        k: packed(&arrays.k, k_shape).unwrap(),
        v: packed(&arrays.v, v_shape).unwrap(),
    };
    let nan = |len: usize| vec![T::from_f32(f32::NAN); len];
    let mut got = Got {
        out: nan(arrays.dout.len()),
        lse: vec![f32::NAN; heads * arrays.q_tokens],
        dq: nan(arrays.q.len()),
        dk: nan(arrays.k.len()),
        dv: nan(arrays.v.len()),
        dsinks: vec![f32::NAN; batch.sinks.len()],
    };
    let outputs = Outputs { out: packed_mut(&mut got.out, o_shape).unwrap(), lse: Some(&mut got.lse) };
    call.forward_into(planner, &inputs, outputs).unwrap();
    let (out, dout) = (packed(&got.out, o_shape).unwrap(), packed(&arrays.dout, o_shape).unwrap());
    let gradients = GradientsMut {
        sinks: (!got.dsinks.is_empty()).then_some(&mut got.dsinks[..]),
        ..GradientsMut::new(
            packed_mut(&mut got.dq, q_shape).unwrap(),
            packed_mut(&mut got.dk, k_shape).unwrap(),
            packed_mut(&mut got.dv, v_shape).unwrap(),
        )
    };
    call.backward_into(planner, &inputs, &Saved { out, lse: &got.lse, dout }, gradients).unwrap();
    got
}

fn bits<T: Element>(values: &[T]) -> Vec<u32> {
    values.iter().map(|x| x.to_f32().to_bits()).collect()
}

fn check_batch<T: Element>(r: &mut Random, batch: &Batch, planner: &Planner) {
    let arrays = Arrays::<T>::random(r, batch);
    let (isa, threads) = (r.one_of(Isa::available()), 1 + r.below(3));
    let got = compute(batch, &arrays, planner, isa, threads);
    let expected = expected(batch, &arrays);
    // bf16 has 8 significant bits, f16 has 11; saved outputs of these types are rounded, which also changes gradients
    let tolerance = match T::DTYPE {
        noren::Dtype::F32 => 3e-5,
        noren::Dtype::Bf16 => 2e-2,
        noren::Dtype::F16 => 4e-3,
    };
    let lse_tolerance = if isa == Isa::Avx512Bf16 { 1e-4 } else { 2e-5 };
    close("out", &got.out, &expected.out, tolerance, batch);
    close("lse", &got.lse, &expected.lse, lse_tolerance, batch);
    close("dq", &got.dq, &expected.dq, tolerance, batch);
    close("dk", &got.dk, &expected.dk, tolerance, batch);
    close("dv", &got.dv, &expected.dv, tolerance, batch);
    close("dsinks", &got.dsinks, &expected.dsinks, tolerance, batch);
}

/// Compares random batches with attention in `f64`: 300, or as many as `NOREN_VARLEN` gives.
#[test]
fn random_batches_equal_attention_by_sequence_in_f64() {
    let count = std::env::var("NOREN_VARLEN").map_or(300, |n| n.parse::<u64>().expect("NOREN_VARLEN is a number"));
    let longest = if count > 300 { 600 } else { 200 };
    let planner = Planner::new(64);
    for seed in 0..count {
        let mut r = Random(seed);
        let batch = Batch::random(&mut r, longest);
        match seed % 4 {
            0 => check_batch::<bf16>(&mut r, &batch, &planner),
            1 => check_batch::<f16>(&mut r, &batch, &planner),
            _ => check_batch::<f32>(&mut r, &batch, &planner),
        }
    }
    assert!(planner.len() <= 64);
}

/// Each sequence alone, by the general function and by `Varlen`, has the same bits as in the batch.
#[test]
fn packed_sequences_have_the_bits_of_each_sequence_alone() {
    let planner = Planner::default();
    for seed in 1000..1060 {
        let mut r = Random(seed);
        let mut batch = Batch::random(&mut r, 150);
        batch.slopes.truncate(batch.heads);
        let arrays = Arrays::<f32>::random(&mut r, &batch);
        let isa = r.one_of(Isa::available());
        let all = compute(&batch, &arrays, &planner, isa, 2);
        let Batch { heads, kv_heads, head_dim: d, v_dim: w, .. } = batch;
        let (mut q_start, mut k_start) = (0, 0);
        for (q_len, k_len) in batch.q_lens.iter().zip(&batch.k_lens) {
            let (qs, ks) = (q_start..q_start + q_len, k_start..k_start + k_len);
            (q_start, k_start) = (qs.end, ks.end);
            if qs.is_empty() || ks.is_empty() {
                continue;
            }
            // one more token at the end, as `Arrays` has it
            let rows = |x: &[f32], rows: &std::ops::Range<usize>, width: usize| {
                let mut part = x[rows.start * width..rows.end * width].to_vec();
                part.extend(vec![0.5; width]);
                part
            };
            let alone = Arrays {
                q: rows(&arrays.q, &qs, heads * d),
                k: rows(&arrays.k, &ks, kv_heads * d),
                v: rows(&arrays.v, &ks, kv_heads * w),
                dout: rows(&arrays.dout, &qs, heads * w),
                q_tokens: q_len + 1,
                k_tokens: k_len + 1,
            };
            let one = Batch { q_lens: vec![*q_len], k_lens: vec![*k_len], ..batch.clone() };
            let got = compute(&one, &alone, &Planner::new(0), isa, 1);
            let same = |name: &str, got: &[f32], all: &[f32], rows: &std::ops::Range<usize>, width: usize| {
                let all = bits(&all[rows.start * width..rows.end * width]);
                assert_eq!(bits(&got[..rows.len() * width]), all, "{name}, seed {seed}: {batch:?}");
            };
            same("out", &got.out, &all.out, &qs, heads * w);
            same("dq", &got.dq, &all.dq, &qs, heads * d);
            same("dk", &got.dk, &all.dk, &ks, kv_heads * d);
            same("dv", &got.dv, &all.dv, &ks, kv_heads * w);
            for h in 0..heads {
                let all = &all.lse[h * arrays.q_tokens..][qs.clone()];
                assert_eq!(bits(&got.lse[h * alone.q_tokens..][..*q_len]), bits(all), "lse, seed {seed}");
            }

            // the general function, with a mask for one sequence
            let mask = batch.mask.map_or(atoms::full(), |(text, _)| text.parse::<Mask>().unwrap());
            let limit = |n: Option<usize>| n.map(|n| n as i64);
            let mask = match (limit(batch.window[0]), if batch.causal { Some(0) } else { limit(batch.window[1]) }) {
                (None, None) => mask,
                (left, right) => mask & atoms::window(left, right),
            };
            let attend = Attend::new(mask).unwrap().query_offset(*k_len as i64 - *q_len as i64).isa(isa);
            let mut attend = attend.scale(batch.scale).softcap(Some(batch.softcap).filter(|cap| *cap != 0.0));
            if !batch.slopes.is_empty() {
                attend = attend.bias(noren::Bias::Alibi(batch.slopes.clone()));
            }
            if !batch.sinks.is_empty() {
                attend = attend.sinks(&batch.sinks);
            }
            let view = |x, heads: usize, len: usize, width: usize| {
                let (h, w) = (heads as isize, width as isize);
                View::strided(x, [1, heads, len, width], [0, w, h * w, 1], 0).unwrap()
            };
            let general = attend
                .forward(
                    view(&alone.q, heads, *q_len, d),
                    view(&alone.k, kv_heads, *k_len, d),
                    view(&alone.v, kv_heads, *k_len, w),
                )
                .unwrap();
            for (h, i) in (0..heads).flat_map(|h| (0..*q_len).map(move |i| (h, i))) {
                let [a, b] = [&general.out[(h * q_len + i) * w..][..w], &got.out[(i * heads + h) * w..][..w]];
                assert_eq!(bits(a), bits(b), "seed {seed}, head {h}, query {i}: {batch:?}");
            }
        }
    }
}

/// NaN in a neighbour and in unused tokens changes no bit of a sequence, in the forward and the backward pass.
#[test]
fn poisoned_neighbours_change_no_bit() {
    let planner = Planner::default();
    for seed in 2000..2040 {
        let mut r = Random(seed);
        let batch = Batch { q_lens: vec![30, 17, 41], k_lens: vec![30, 25, 41], ..Batch::random(&mut r, 50) };
        let batch = Batch { slopes: batch.slopes.iter().copied().take(batch.heads).collect(), ..batch };
        let mut arrays = Arrays::<f32>::random(&mut r, &batch);
        let isa = r.one_of(Isa::available());
        let clean = compute(&batch, &arrays, &planner, isa, 2);
        let Batch { heads, kv_heads, head_dim: d, v_dim: w, .. } = batch;
        for (x, from, until, width) in [
            (&mut arrays.q, 30, 47, heads * d),
            (&mut arrays.k, 30, 55, kv_heads * d),
            (&mut arrays.v, 30, 55, kv_heads * w),
            (&mut arrays.dout, 30, 47, heads * w),
        ] {
            x[..from * width].fill(f32::NAN);
            x[until * width..].fill(f32::INFINITY);
        }
        let poisoned = compute(&batch, &arrays, &planner, isa, 1);
        let same = |name: &str, a: &[f32], b: &[f32], rows: std::ops::Range<usize>, width: usize| {
            let part = |x: &[f32]| bits(&x[rows.start * width..rows.end * width]);
            assert_eq!(part(a), part(b), "{name}, seed {seed}: {batch:?}");
        };
        same("out", &clean.out, &poisoned.out, 30..47, heads * w);
        same("dq", &clean.dq, &poisoned.dq, 30..47, heads * d);
        same("dk", &clean.dk, &poisoned.dk, 30..55, kv_heads * d);
        same("dv", &clean.dv, &poisoned.dv, 30..55, kv_heads * w);
    }
}

/// Padded sequences have the bits of packed ones, padding is written with zeros, and NaN in padding changes nothing.
#[test]
fn padded_sequences_equal_packed_sequences() {
    let planner = Planner::default();
    for seed in 3000..3040 {
        let mut r = Random(seed);
        let batch = Batch::random(&mut r, 60);
        let (longest_q, longest_k) = (*batch.q_lens.iter().max().unwrap(), *batch.k_lens.iter().max().unwrap());
        let (q_len, k_len) = (longest_q + 1 + r.below(3), longest_k + 1);
        let arrays = Arrays::<f32>::random(&mut r, &batch);
        let isa = r.one_of(Isa::available());
        let expected = compute(&batch, &arrays, &planner, isa, 2);
        let Batch { heads, kv_heads, head_dim: d, v_dim: w, .. } = batch;
        let rows = batch.q_lens.len();
        // [batch, heads, len, width], with NaN as padding
        let pad = |x: &[f32], lens: &[usize], heads: usize, len: usize, width: usize| {
            let mut padded = vec![f32::NAN; rows * heads * len * width];
            let mut start = 0;
            for (b, n) in lens.iter().enumerate() {
                for (i, h) in (0..*n).flat_map(|i| (0..heads).map(move |h| (i, h))) {
                    let to = ((b * heads + h) * len + i) * width;
                    let from = ((start + i) * heads + h) * width;
                    padded[to..to + width].copy_from_slice(&x[from..from + width]);
                }
                start += n;
            }
            padded
        };
        let q = pad(&arrays.q, &batch.q_lens, heads, q_len, d);
        let k = pad(&arrays.k, &batch.k_lens, kv_heads, k_len, d);
        let v = pad(&arrays.v, &batch.k_lens, kv_heads, k_len, w);
        let dout = pad(&arrays.dout, &batch.q_lens, heads, q_len, w);
        let shapes = [[rows, heads, q_len, d], [rows, kv_heads, k_len, d], [rows, kv_heads, k_len, w]];
        let view = |x, shape| View::new(x, shape).unwrap();
        let inputs = Inputs { q: view(&q, shapes[0]), k: view(&k, shapes[1]), v: view(&v, shapes[2]) };
        let call = batch.call(Sequences::padded(&batch.q_lens, &batch.k_lens).unwrap()).isa(isa);
        let got = call.forward(&planner, &inputs).unwrap();
        let o_shape = [rows, heads, q_len, w];
        let saved = Saved { out: view(&got.out, o_shape), lse: &got.lse, dout: view(&dout, o_shape) };
        let mut grads = [q.len(), k.len(), v.len()].map(|len| vec![f32::NAN; len]);
        let [dq, dk, dv] = &mut grads;
        let dq = ViewMut::new(dq, shapes[0]).unwrap();
        let dk = ViewMut::new(dk, shapes[1]).unwrap();
        let dv = ViewMut::new(dv, shapes[2]).unwrap();
        call.backward_into(&planner, &inputs, &saved, GradientsMut::new(dq, dk, dv)).unwrap();
        let same = |name: &str, got: &[f32], packed: &[f32], lens: &[usize], heads: usize, len: usize, width: usize| {
            let zero = |x: Vec<f32>| x.into_iter().map(|x| if x.is_nan() { 0.0 } else { x }).collect::<Vec<_>>();
            let padded = zero(pad(packed, lens, heads, len, width));
            assert_eq!(bits(got), bits(&padded), "{name}, seed {seed}: {batch:?}");
        };
        same("out", &got.out, &expected.out, &batch.q_lens, heads, q_len, w);
        same("dq", &grads[0], &expected.dq, &batch.q_lens, heads, q_len, d);
        same("dk", &grads[1], &expected.dk, &batch.k_lens, kv_heads, k_len, d);
        same("dv", &grads[2], &expected.dv, &batch.k_lens, kv_heads, k_len, w);
    }
}

#[test]
fn a_planner_is_bounded_and_removes_the_oldest_plan() {
    let planner = Planner::new(3);
    let x = vec![0.5f32; 64];
    let run = |lens: &[usize]| {
        let cu = cumulative(lens);
        let x = packed(&x[..lens.iter().sum()], [lens.iter().sum(), 1, 1]).unwrap();
        let call = Varlen::new(Sequences::packed(&cu, &cu).unwrap()).causal(true);
        call.forward(&planner, &Inputs { q: x, k: x, v: x }).unwrap();
    };
    run(&[1, 2, 3, 1, 2, 3]);
    assert_eq!((planner.len(), planner.plans_made()), (3, 3));
    run(&[3, 1, 2, 1]);
    assert_eq!((planner.len(), planner.plans_made()), (3, 3));
    run(&[4]); // removes the plan of length 3, which was not used for the longest time
    run(&[1, 2]);
    assert_eq!((planner.len(), planner.plans_made()), (3, 4));
    run(&[3]);
    assert_eq!((planner.len(), planner.plans_made()), (3, 5));
    run(&[5, 6, 7, 8, 9, 5]); // more lengths in one call than plans are kept
    assert_eq!(planner.len(), 3);
    planner.clear();
    assert!(planner.is_empty());
    let none = Planner::new(0);
    let x = packed(&x[..2], [2, 1, 1]).unwrap();
    let call = Varlen::new(Sequences::packed(&[0, 2], &[0, 2]).unwrap());
    call.forward(&none, &Inputs { q: x, k: x, v: x }).unwrap();
    assert_eq!((none.len(), none.plans_made()), (0, 1));
}

#[test]
fn threads_share_a_planner() {
    let planner = Planner::new(5);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let planner = &planner;
            scope.spawn(move || {
                for round in 0..60 {
                    let mut r = Random(round % 12);
                    let batch = Batch::random(&mut r, 40);
                    let arrays = Arrays::<f32>::random(&mut r, &batch);
                    let got = compute(&batch, &arrays, planner, Isa::Portable, 1 + thread % 2);
                    close("out", &got.out, &expected(&batch, &arrays).out, 3e-5, &batch);
                    assert!(planner.len() <= 5);
                }
            });
        }
    });
}

/// Facts for each sequence, and one entry of facts for all sequences.
#[test]
fn facts_belong_to_sequences() {
    let planner = Planner::default();
    let values: Vec<f32> = Random(7).values(9 * 2 * 4);
    let x = packed(&values, [9, 2, 4]).unwrap();
    let inputs = Inputs { q: x, k: x, v: x };
    let cu = [0u32, 5, 9];
    let call = Varlen::new(Sequences::packed(&cu, &cu).unwrap()).mask("documents & causal").unwrap();
    let got = call.clone().facts([Facts::new().documents([2, 3]), Facts::new().documents([1, 3])]);
    let got = got.forward(&planner, &inputs).unwrap();
    let same = Varlen::new(Sequences::packed(&[0, 2, 5, 6, 9], &[0, 2, 5, 6, 9]).unwrap()).causal(true);
    assert_eq!(got, same.forward(&planner, &inputs).unwrap());
    let labels = Facts::new().label("private", [0, 1]);
    let hidden = Varlen::new(Sequences::packed(&cu, &cu).unwrap()).mask("!keys(label=\"private\")").unwrap();
    hidden.facts([labels]).forward(&planner, &inputs).unwrap();
    let error = call.clone().forward(&planner, &inputs).unwrap_err();
    assert!(matches!(error, Error::Missing { .. }), "{error}");
    let three = call.facts(vec![Facts::new(); 3]).forward(&planner, &inputs).unwrap_err().to_string();
    assert_eq!(
        three,
        "facts is 3 entries: there are 2 sequences: give one `Facts` (the data that the mask needs) for all sequences, or one for each sequence"
    );
}

#[test]
#[expect(clippy::too_many_lines, reason = "one case for each error")]
fn wrong_input_is_refused_by_name() {
    let planner = Planner::default();
    let refused = |result: Result<Sequences, Error>, text: &str| {
        let error = result.expect_err(text).to_string();
        assert!(error.contains(text), "`{error}` has no `{text}`");
    };
    refused(
        Sequences::packed(&[0, 3, 2], &[0, 3, 3]),
        "cu_seqlens_q is 3, 2 at index 1: no value may be smaller than the value before it",
    );
    refused(Sequences::packed(&[1, 3], &[0, 3]), "cu_seqlens_q is 1 at index 0: the first sequence begins at 0");
    refused(Sequences::packed(&[0, 3], &[0, 1, 3]), "cu_seqlens_k is a list of 3 values: cu_seqlens_q has 2 values");
    refused(Sequences::packed(&[0], &[0]), "cu_seqlens_q is a list of 1 values");
    refused(Sequences::packed::<i32>(&[], &[]), "cu_seqlens_q is a list of 0 values");
    refused(Sequences::packed(&[0, -1], &[0, 3]), "cu_seqlens_q is -1: give numbers of tokens from 0 to 2147483647");
    refused(Sequences::packed(&[0u64, 1 << 31], &[0, 3]), "cu_seqlens_q is 2147483648");
    refused(Sequences::packed(&[0, 3], &[0, u64::MAX]), "cu_seqlens_k is 18446744073709551615");
    refused(Sequences::padded(&[-3], &[3]), "q_lens is -3");
    refused(Sequences::padded(&[3], &[1u64 << 31]), "k_lens is 2147483648");
    refused(Sequences::padded(&[i64::MIN], &[3]), "q_lens is -9223372036854775808");
    refused(Sequences::padded(&[3, 4], &[3]), "k_lens is a list of 1 values: q_lens has 2 values");
    refused(Sequences::padded::<usize>(&[], &[]), "q_lens is empty");

    let x = vec![0.5f32; 4 * 4 * 2];
    for (shape, text) in [
        ([4, 0, 2], "heads is 0"),
        ([0, 4, 2], "tokens is 0"),
        ([4, 4, 0], "head_dim is 0"),
        ([4, 4, 3], "the memory has 32 values"),
        ([usize::MAX, 4, 2], "the memory has 32 values"),
        ([usize::MAX / 4 + 2, 4, 8], "the memory has 32 values"), // the product would wrap around to 32
    ] {
        let error = packed(&x, shape).unwrap_err().to_string();
        assert!(error.contains(text), "{error}");
    }
    let view = |heads| packed(&x[..8 * heads], [4, heads, 2]).unwrap();
    let inputs = |q, kv| Inputs { q: view(q), k: view(kv), v: view(kv) };
    let call = || Varlen::new(Sequences::packed(&[0, 4], &[0, 4]).unwrap());
    let slopes = [0.5; 3];
    let long = Varlen::new(Sequences::packed(&[0, 4], &[0, 5]).unwrap());
    let two = Varlen::new(Sequences::padded(&[4, 4], &[4, 4]).unwrap());
    for (call, inputs, text) in [
        (call(), inputs(4, 3), "4 query heads and 3 key-value heads"),
        (long, inputs(4, 2), "cu_seqlens_k is up to 5: k has only 4 tokens"),
        (two, inputs(4, 2), "there are 2 lengths: give one batch row for each length"),
        (call().window_size(-2, 0), inputs(4, 2), "window_size is -2"),
        (call().window_size(0, i64::MIN), inputs(4, 2), "window_size is -9223372036854775808"),
        (call().window_size(usize::MAX, 0usize), inputs(4, 2), "window_size is 9223372036854775807"),
        (call().window_size(1i64 << 31, 0i64), inputs(4, 2), "window_size is 2147483648"),
        (call().softcap(-1.0), inputs(4, 2), "softcap is -1"),
        (call().softcap(f32::NAN), inputs(4, 2), "softcap is NaN"),
        (call().softmax_scale(f32::INFINITY), inputs(4, 2), "scale is inf"),
        (call().softmax_scale(f32::NAN), inputs(4, 2), "scale is NaN"),
        (call().alibi_slopes(&[0.5, f32::NAN, 0.5, 0.5][..]), inputs(4, 2), "NaN"),
        (call().sinks(&[0.5, f32::NAN, 0.5, 0.5][..]), inputs(4, 2), "NaN"),
        (call().alibi_slopes(&slopes[..]), inputs(4, 2), "alibi_slopes has shape [3] but there are 4 query heads"),
        (call().sinks(&slopes[..]), inputs(4, 2), "sinks has shape [3]"),
        (call().threads(0), inputs(4, 2), "threads is 0"),
        (call().mask("causal + bias(mine)").unwrap(), inputs(4, 2), "bias(mine)"),
        (call().mask("layers(0..2: causal)").unwrap(), inputs(4, 2), "layers"),
    ] {
        let error = call.forward(&planner, &inputs).unwrap_err().to_string();
        assert!(error.contains(text), "`{error}` has no `{text}`");
    }
    let plan = atoms::causal().bind(&noren::Shape::square(4), &Facts::new()).unwrap().plan();
    assert!(call().mask(&plan).unwrap_err().to_string().starts_with("mask is a plan"));

    // outputs and gradients that are too short
    let mut small = vec![0.0f32; 3 * 4 * 2];
    let out = packed_mut(&mut small, [3, 4, 2]).unwrap();
    let error = call().forward_into(&planner, &inputs(4, 2), Outputs { out, lse: None }).unwrap_err();
    assert!(matches!(error, Error::Shape { name: "out", .. }), "{error}");
    let (mut out, mut lse) = (vec![0.0f32; 32], vec![0.0; 15]);
    let outputs = Outputs { out: packed_mut(&mut out, [4, 4, 2]).unwrap(), lse: Some(&mut lse) };
    let error = call().forward_into(&planner, &inputs(4, 2), outputs).unwrap_err();
    assert!(matches!(error, Error::Shape { name: "lse", .. }), "{error}");
    let (mut dq, mut dk, mut dv) = (vec![0.0f32; 32], vec![0.0f32; 16], vec![0.0f32; 8]);
    let gradients = GradientsMut::new(
        packed_mut(&mut dq, [4, 4, 2]).unwrap(),
        packed_mut(&mut dk, [4, 2, 2]).unwrap(),
        packed_mut(&mut dv, [4, 1, 2]).unwrap(),
    );
    let saved = Saved { out: view(4), lse: &[0.0; 16], dout: view(4) };
    let error = call().backward_into(&planner, &inputs(4, 2), &saved, gradients).unwrap_err();
    assert!(matches!(error, Error::Shape { name: "dv", .. }), "{error}");

    // a call that is cancelled
    let flag = std::sync::atomic::AtomicBool::new(true);
    assert_eq!(call().cancel(&flag).forward(&planner, &inputs(4, 2)), Err(Error::Cancelled));
}

//! Benchmarks of forward attention and of decoding steps, in `f32` on all threads. Forward attention is measured for
//! several masks, with 8 heads of `head_dim` 64 over 2048 tokens. Each allowed cell counts as `4 * head_dim` elements,
//! the number of its floating-point operations. Therefore `elem/s` in the results is FLOP/s.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use noren::{
    Facts, Inputs, KvCache, KvShape, Options, Outputs, PlanOptions, Rotating, Shape, Spec, View, ViewMut,
    attention_into,
};
use std::hint::black_box;

const MASKS: [&str; 7] = [
    "full",
    "causal",
    "sliding(256)",
    "causal & documents([128, 256, 128, 384, 512, 256, 256, 128])",
    "sliding(128) | (causal & keys(0..4))",
    "causal & stride(4)",
    "heads(0..2: causal, 2..4: sliding(256), 4..6: chunk(256), 6..: full)",
];

fn forward(c: &mut Criterion) {
    let shape = [1, 8, 2048, 64];
    let values = |seed: usize| -> Vec<f32> {
        (0..shape.iter().product()).map(|i: usize| ((i * 7919 + seed * 104_729) % 2003) as f32 / 1000.0 - 1.0).collect()
    };
    let (q, k, v, mut out) = (values(1), values(2), values(3), values(4));
    let [q, k, v] = [&q, &k, &v].map(|x| View::new(x, shape).expect("the sizes fit"));
    let inputs = Inputs { q, k, v };
    let mut group = c.benchmark_group("forward");
    for text in MASKS {
        let mask = text.parse::<Spec>().expect("a mask").mask;
        let bound = mask.bind(&Shape::square(2048).heads(8), &Facts::new()).expect("facts fit");
        let plan = bound.plan_with(&PlanOptions { block_q: 96, ..PlanOptions::default() });
        group.throughput(Throughput::Elements(4 * 64 * plan.stats().allowed as u64));
        group.bench_function(text, |b| {
            b.iter(|| {
                let out = ViewMut::new(&mut out, shape).expect("the sizes fit");
                attention_into(&inputs, black_box(&plan), &Options::default(), Outputs { out, lse: None })
                    .expect("computes");
            });
        });
    }
    group.finish();
}

/// Measures a decoding step for each kind of cache (contiguous, paged, rotating) and several numbers of keys, with 32
/// query heads and 8 key-value heads of 128 numbers. The throughput counts the bytes of keys and values that the step
/// reads.
fn decode(c: &mut Criterion) {
    let (heads, kv_heads, d, chunk) = (32, 8, 128, 256);
    let values = |len: usize| -> Vec<f32> { (0..len).map(|i| (i * 7919 % 2003) as f32 / 1000.0 - 1.0).collect() };
    let (q, x) = (values(heads * d), values(kv_heads * chunk * d));
    let q = View::new(&q, [1, heads, 1, d]).expect("the sizes fit");
    let x = View::new(&x, [1, kv_heads, chunk, d]).expect("the sizes fit");
    let shape = KvShape::new(kv_heads, d);
    let mask = "causal".parse::<Spec>().expect("a mask").mask;
    let mut group = c.benchmark_group("decode");
    for keys in [1024, 32768] {
        let caches = [
            ("contiguous", KvCache::<f32>::contiguous(&shape, keys)),
            ("blocks of 64", KvCache::paged(&shape, 64, keys / 64)),
            ("rotating", KvCache::rotating(&shape, Rotating { window: keys, sink_tokens: 4, ahead: chunk })),
        ];
        group.throughput(Throughput::Bytes((2 * kv_heads * keys * d * size_of::<f32>()) as u64));
        for (form, cache) in caches {
            let mut cache = cache.expect("there is memory");
            (0..keys / chunk).for_each(|_| cache.append(x, x).expect("there is room"));
            group.bench_function(format!("{form}, {keys} keys"), |b| {
                b.iter(|| cache.attend(q, black_box(&mask), &Options::default()).expect("computes"));
            });
        }
    }
    group.finish();
}

criterion_group!(benches, forward, decode);
criterion_main!(benches);

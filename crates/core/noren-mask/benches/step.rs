//! Benchmarks of the time to bind and plan several masks for one decode step: one query after 32767 cached keys.

use criterion::{Criterion, criterion_group, criterion_main};
use noren_mask::{Facts, Mask, Shape};
use std::hint::black_box;

const MASKS: [&str; 4] = [
    "causal",
    "sliding(4096) | causal & keys(0..4)",
    "causal & documents",
    "keys(..32767) | tree(parents=[-1], start=32767)",
];

fn step(c: &mut Criterion) {
    let shape = Shape::cached(32767, 1).heads(32).kv_heads(8);
    let facts = Facts::new().documents([1000, 31768]);
    let mut group = c.benchmark_group("step");
    for text in MASKS {
        let mask: Mask = text.parse().expect("a mask");
        group.bench_function(text, |b| b.iter(|| black_box(&mask).bind(&shape, &facts).expect("facts fit").plan()));
    }
    let ring = Facts::new().position_runs(vec![vec![(0..4, 0), (16..1024, 31760), (1024..4112, 28672)]]);
    let shape = Shape::new(1, 4112, 32767).heads(32).kv_heads(8);
    let mask: Mask = MASKS[1].parse().expect("a mask");
    group.bench_function("a ring", |b| b.iter(|| black_box(&mask).bind(&shape, &ring).expect("facts fit").plan()));
    group.finish();
}

criterion_group!(benches, step);
criterion_main!(benches);

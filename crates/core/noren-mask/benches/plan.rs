//! Benchmarks of the time to plan long masks: `cargo bench -p noren-mask`.

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use noren_mask::{Facts, Mask, Shape};
use noren_testing::long;
use std::hint::black_box;

fn plan(c: &mut Criterion) {
    let mut group = c.benchmark_group("plan");
    group.sample_size(10);
    for (name, mask, facts, len) in long::masks() {
        let bound = bind(&mask, &facts, len);
        let plan = bound.plan();
        println!("{name}/{len}: {} KiB, {} tiles", plan.bytes() / 1024, plan.patterns()[0].tile_count());
        group.bench_function(BenchmarkId::new(name, len), |b| b.iter(|| black_box(bind(&mask, &facts, len).plan())));
    }
    group.finish();
}

fn bind(mask: &Mask, facts: &Facts, len: usize) -> noren_mask::BoundMask {
    mask.bind(&Shape::square(len), facts).expect("the cases bind")
}

criterion_group!(benches, plan);
criterion_main!(benches);

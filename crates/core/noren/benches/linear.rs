//! Times products of rows with packed weights ([`noren::linear`]) on every processor path, on one thread:
//!
//! ```sh
//! cargo bench -p noren --bench linear [-- ISA]
//! ```
//!
//! Prints, for each shape `rows x inputs x outputs` and number type, the rates of the fastest call: GFLOP/s, and for few rows
//! GB/s of weights.

use noren::linear::{Linear, Weight};
use noren::{Dtype, Isa};
use std::hint::black_box;
use std::time::{Duration, Instant};

/// The time that each measurement takes.
const TIME: Duration = Duration::from_millis(1200);

fn main() {
    let only = std::env::args().skip(1).find(|arg| !arg.starts_with('-'));
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().expect("a thread can be started");
    println!("{:>10} {:>5} {:>20} {:>9} {:>7}", "ISA", "dtype", "shape", "GFLOP/s", "GB/s");
    for isa in Isa::available().iter().filter(|isa| only.as_ref().is_none_or(|only| isa.to_string() == *only)) {
        for [rows, inputs, outputs] in
            [[960, 384, 1536], [960, 1536, 384], [960, 768, 768], [24, 768, 3072], [1, 1024, 4096], [1, 2048, 8192]]
        {
            for dtype in [Dtype::F32, Dtype::Bf16] {
                let numbers = |n: usize| (0..n).map(|i| (i * 7919 % 1013) as f32 / 506.5 - 1.0).collect::<Vec<_>>();
                let weight = Weight::on(*isa, &numbers(inputs * outputs), inputs, dtype).expect("the ISA is available");
                let (x, layer) = (numbers(rows * inputs), Linear::new(&weight));
                let mut times = Vec::new();
                let begun = Instant::now();
                while begun.elapsed() < TIME || times.len() < 3 {
                    let start = Instant::now();
                    black_box(pool.install(|| layer.forward(black_box(&x)))).expect("the shapes fit");
                    times.push(start.elapsed().as_secs_f64());
                }
                times.sort_by(f64::total_cmp);
                let seconds = times[0];
                let flop = (2 * rows * inputs * outputs) as f64 / seconds / 1e9;
                let shape = format!("{rows} x {inputs} x {outputs}");
                let bytes = weight.bytes() as f64 / seconds / 1e9;
                println!("{:>10} {:>5} {shape:>20} {flop:>9.1} {bytes:>7.1}", isa.to_string(), dtype.to_string());
            }
        }
    }
}

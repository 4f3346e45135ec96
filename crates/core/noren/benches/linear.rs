//! Times products of rows with packed weights ([`noren::linear`]) on every processor path, on one thread:
//!
//! ```sh
//! cargo bench -p noren --bench linear [-- ISA]
//! ```
//!
//! Prints, for each shape `rows x inputs x outputs` and number type, the rates of the fastest call: GFLOP/s, and for few rows
//! GB/s of weights. With `-- peer THREADS`, reads lines `ROWS INPUTS OUTPUTS` and prints after each the seconds of some calls in
//! `bf16`, for `benches/peers/linear.py`.

use noren::linear::{Linear, Weight};
use noren::{Dtype, Isa};
use rayon::{ThreadPool, ThreadPoolBuilder};
use std::hint::black_box;
use std::time::{Duration, Instant};

/// The time that each measurement takes.
const TIME: Duration = Duration::from_millis(1200);

/// The time of the calls for a line of a peer.
const TURN: Duration = Duration::from_millis(60);

fn numbers(n: usize) -> Vec<f32> {
    (0..n).map(|i| (i * 7919 % 1013) as f32 / 506.5 - 1.0).collect()
}

fn layer([inputs, outputs]: [usize; 2], isa: Isa, dtype: Dtype) -> Weight {
    Weight::on(isa, &numbers(inputs * outputs), inputs, dtype).expect("the ISA is available")
}

/// Returns the seconds of at least three calls in a `time`, on the threads of `pool`.
fn times(pool: &ThreadPool, weight: &Weight, x: &[f32], time: Duration) -> Vec<f64> {
    let (layer, begun) = (Linear::new(weight), Instant::now());
    pool.install(|| {
        let mut times = Vec::new();
        while begun.elapsed() < time || times.len() < 3 {
            let start = Instant::now();
            black_box(layer.forward(black_box(x))).expect("the shapes fit");
            times.push(start.elapsed().as_secs_f64());
        }
        times
    })
}

/// Answers the lines of a peer.
fn peer(pool: &ThreadPool) {
    let mut last = ([0; 2], None);
    for line in std::io::stdin().lines() {
        let line = line.expect("the peer writes lines");
        let sizes: Vec<usize> = line.split(' ').map(|size| size.parse().expect("a number")).collect();
        let shape = [sizes[1], sizes[2]];
        if last.0 != shape {
            last = (shape, Some(layer(shape, Isa::choose(None).expect("an ISA"), Dtype::Bf16)));
        }
        let times = times(pool, last.1.as_ref().expect("made above"), &numbers(sizes[0] * shape[0]), TURN);
        println!("{}", times.iter().map(f64::to_string).collect::<Vec<_>>().join(" "));
    }
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    let threads = args.get(1).map_or(1, |threads| threads.parse().expect("a number of threads"));
    let pool = ThreadPoolBuilder::new().num_threads(threads).build().expect("threads can be started");
    if args.first().is_some_and(|arg| arg == "peer") {
        return peer(&pool);
    }
    let only = args.first();
    println!("{:>10} {:>5} {:>20} {:>9} {:>7}", "ISA", "dtype", "shape", "GFLOP/s", "GB/s");
    for isa in Isa::available().iter().filter(|isa| only.is_none_or(|only| isa.to_string() == *only)) {
        for [rows, inputs, outputs] in
            [[960, 384, 1536], [960, 1536, 384], [960, 768, 768], [24, 768, 3072], [1, 1024, 4096], [1, 2048, 8192]]
        {
            for dtype in [Dtype::F32, Dtype::Bf16] {
                let weight = layer([inputs, outputs], *isa, dtype);
                let times = times(&pool, &weight, &numbers(rows * inputs), TIME);
                let seconds = times.into_iter().fold(f64::INFINITY, f64::min);
                let flop = (2 * rows * inputs * outputs) as f64 / seconds / 1e9;
                let shape = format!("{rows} x {inputs} x {outputs}");
                let bytes = weight.bytes() as f64 / seconds / 1e9;
                println!("{:>10} {:>5} {shape:>20} {flop:>9.1} {bytes:>7.1}", isa.to_string(), dtype.to_string());
            }
        }
    }
}

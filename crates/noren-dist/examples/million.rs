//! Measures how long it takes to split 1,048,576 tokens over 256 ranks: `cargo run --release -p noren-dist --example
//! million`.

use noren_dist::masks::cases;
use noren_dist::{Options, search};
use std::time::Instant;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    for case in cases(1 << 20)? {
        let options = Options { ranks: 256, nodes: 32, ..Options::default() };
        let (start, busy) = (Instant::now(), processor_seconds());
        let plan = case.bound.plan();
        let found = search(&plan, &options)?;
        let (seconds, busy) = (start.elapsed().as_secs_f64(), processor_seconds() - busy);
        let chosen = &found.rows[0].candidates[found.rows[0].chosen];
        println!("{:<42} {:<12} {seconds:.2} s, {busy:.2} s of one core, planning included", case.name, chosen.method);
    }
    Ok(())
}

/// Returns the processor time of this process in seconds on Linux, and 0 on other systems. Other programs on the
/// machine do not change it.
fn processor_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/self/schedstat").unwrap_or_default();
    text.split(' ').next().and_then(|n| n.parse::<f64>().ok()).unwrap_or(0.0) * 1e-9
}

//! How long splitting 1,048,576 tokens over 256 ranks takes: `cargo run --release -p noren-dist --example million`.

use noren_dist::masks::cases;
use noren_dist::{Options, search};
use std::time::Instant;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    for case in cases(1 << 20)? {
        let options = Options { ranks: 256, nodes: 32, ..Options::default() };
        let start = Instant::now();
        let plan = case.bound.plan();
        let found = search(&plan, &options)?;
        let seconds = start.elapsed().as_secs_f64();
        let chosen = &found.rows[0].candidates[found.rows[0].chosen];
        println!("{:<42} {:<12} {seconds:.2} s, planning included", case.name, chosen.method);
    }
    Ok(())
}

//! Simulates attention passes over long sequences on many ranks, and prints the table of `docs/scale.md`:
//! `cargo run --release -p noren-dist --example scale`.

use noren_dist::{Machine, Options, search, simulate};
use noren_mask::{Facts, Shape, atoms::*};
use std::time::Instant;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!(
        "simulated: one layer of 32 heads over 8 key-value heads, head_dim 128, bf16, the machine of `Machine::default()`"
    );
    println!("| mask | tokens | ranks | split | ideal | simulated | busiest receives | memory of a rank | splitting |");
    println!("|---|---|---|---|---|---|---|---|---|");
    for (tokens, ranks) in [(1 << 20, 64), (1 << 20, 512), (1 << 24, 512), (1 << 24, 4096), (100_000_000, 4096)] {
        let mut lengths = vec![65_536; tokens / 65_536];
        lengths.extend(Some(tokens % 65_536).filter(|rest| *rest > 0));
        let masks = [
            ("causal", causal()),
            ("documents of 65536", causal() & documents_of(lengths)),
            ("window 4096", sliding(4096)),
        ];
        for (name, mask) in masks {
            let shape = Shape::square(tokens).heads(32).kv_heads(8);
            let plan = mask.bind(&shape, &Facts::new())?.plan();
            let options = Options { ranks, nodes: ranks / 8, ..Options::default() };
            let start = Instant::now();
            let found = search(&plan, &options)?;
            let seconds = start.elapsed().as_secs_f64();
            let run = simulate(&plan, &found.partition, &options.wire, &Machine::default())?;
            let received = found.partition.traffic(&options.wire).iter().map(|t| t.received).max().unwrap_or(0);
            println!(
                "| {name} | {tokens} | {ranks} | {} | {:.3} s | {:.3} s | {:.1} MiB | {:.1} MiB | {seconds:.1} s |",
                found.partition.method,
                run.forward_ideal,
                run.forward,
                received as f64 / f64::from(1 << 20),
                run.memory as f64 / f64::from(1 << 20)
            );
        }
    }
    Ok(())
}

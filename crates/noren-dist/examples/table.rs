//! Splits of seven masks beside what other systems do: `cargo run --release -p noren-dist --example table`.

use noren_dist::masks::cases;
use noren_dist::{Objective, Options, compare, search};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let detail = std::env::args().any(|a| a == "--all");
    for ranks in [8, 64] {
        println!("131072 tokens, {ranks} ranks");
        for case in cases(131_072)? {
            let options = Options { ranks, ..Options::default() };
            let plan = case.bound.plan();
            let start = std::time::Instant::now();
            let found = search(&plan, &options)?;
            let seconds = start.elapsed().as_secs_f64();
            let row = &found.rows[0];
            let chosen = &row.candidates[row.chosen];
            let others = compare(&plan, 0, &options)?;
            let [area, tokens] = Objective::Balanced.limits();
            let fair = others.iter().filter(|b| b.measures.area <= area && b.measures.tokens <= tokens);
            let best = fair.min_by_key(|b| b.measures.received);
            let key = 512.0;
            let m = &chosen.measures;
            println!(
                "{:<42} {:<14} area {:.3} tokens {:.3} busiest {:>8.0} keys mean {:>8.0} peers {:>3} | best baseline {:<12} {:>8.0} ratio {:.3} | bound {:>8.0} | {:.2} s",
                case.name,
                chosen.method,
                m.area,
                m.tokens,
                m.received as f64 / key,
                m.mean_received / key,
                m.peers,
                best.map_or("none", |b| b.name),
                best.map_or(0.0, |b| b.measures.received as f64 / key),
                best.map_or(0.0, |b| m.received as f64 / b.measures.received as f64),
                row.bound.as_ref().map_or(0.0, |b| b.bytes as f64 / key),
                seconds
            );
            if detail {
                for c in &row.candidates {
                    let m = &c.measures;
                    println!("      {:<14} area {:.3} tokens {:.3} busiest {:>8.0} mean {:>8.0} peers {}", c.method, m.area, m.tokens, m.received as f64 / key, m.mean_received / key, m.peers);
                }
                for c in &others {
                    let m = &c.measures;
                    println!("    b {:<14} area {:.3} tokens {:.3} busiest {:>8.0} mean {:>8.0} peers {}", c.name, m.area, m.tokens, m.received as f64 / key, m.mean_received / key, m.peers);
                }
            }
        }
    }
    Ok(())
}

//! Splits seven masks of long contexts over ranks, and compares each split with the splits by the rules of other
//! methods and libraries. The masks have fixed seeds. Command: `cargo run --release -p noren-dist --example table`,
//! with these options after `--`:
//!
//! * `--all` prints every split that was tried, not only the best one.
//! * `--heads 32 --kv-heads 8` counts the bytes for other numbers of heads.
//! * `--keys` allows ranks to send only keys and values, not queries.

use noren_dist::masks::cases;
use noren_dist::{Measures, Objective, Options, Travel, compare, search};
use noren_mask::{Facts, Shape};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().collect();
    let flag = |name: &str| args.iter().any(|a| a == name);
    let number = |name: &str| {
        let at = args.iter().position(|a| a == name).and_then(|i| args.get(i + 1));
        at.and_then(|n| n.parse::<usize>().ok())
    };
    let heads = number("--heads").unwrap_or(1);
    let kv_heads = number("--kv-heads").unwrap_or(heads);
    let travel = if flag("--keys") { Travel::Keys } else { Travel::Both };
    let [area, tokens] = Objective::Balanced.limits();
    println!(
        "bytes received forward by the busiest rank; head_dim 128, bf16, partial results in f32, heads {heads}/{kv_heads}"
    );
    for ranks in [8, 64] {
        println!("\n131,072 tokens, {ranks} ranks: cells at most {area} and tokens at most {tokens} times the mean");
        println!(
            "| mask | split | cells | tokens | MiB | best of the other splits that keep the limits | MiB | ours / theirs |"
        );
        println!("|---|---|---|---|---|---|---|---|");
        let mut notes = Vec::new();
        for case in cases(131_072)? {
            let shape = Shape::square(131_072).heads(heads).kv_heads(kv_heads);
            let plan = case.bound.mask().bind(&shape, &Facts::new())?.plan();
            let options = Options { ranks, travel, ..Options::default() };
            let found = search(&plan, &options)?;
            let row = &found.rows[0];
            let chosen = &row.candidates[row.chosen];
            let others = compare(&plan, &options)?;
            let fair = others.iter().filter(|b| b.measures.area <= area && b.measures.tokens <= tokens);
            let best = fair.min_by_key(|b| b.measures.received).ok_or("the striped split always keeps the limits")?;
            let m = &chosen.measures;
            let ratio = m.received as f64 / best.measures.received as f64;
            println!(
                "| {} | {} | {:.3} | {:.3} | {:.2} | {} | {:.2} | {ratio:.3} |",
                case.name,
                chosen.method,
                m.area,
                m.tokens,
                mib(m.received),
                best.name,
                mib(best.measures.received)
            );
            if let Some(bound) = row.bound.as_ref().filter(|_| ratio > 0.5) {
                let half = best.measures.received as f64 / 2.0;
                let verdict = if bound.bytes as f64 > half {
                    "no split needs less than half of the bytes of the best split"
                } else {
                    "another split might need less than half of the bytes of the best split"
                };
                let lower = mib(bound.bytes);
                notes.push(format!(
                    "{}: {verdict}: every split needs at least {lower:.2} MiB: {}",
                    case.name, bound.why
                ));
            }
            if flag("--all") {
                row.candidates.iter().for_each(|c| detail(&c.method, &c.measures));
                others.iter().for_each(|c| detail(c.name, &c.measures));
            }
        }
        notes.iter().for_each(|note| println!("\n{note}"));
    }
    Ok(())
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

fn detail(name: &str, m: &Measures) {
    println!(
        "    {name:<20} cells {:.3} tokens {:.3} busiest {:.2} MiB mean {:.2} MiB peers {}",
        m.area,
        m.tokens,
        mib(m.received),
        m.mean_received / f64::from(1 << 20),
        m.peers
    );
}

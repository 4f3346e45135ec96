//! Writes pictures of splits into a folder: `cargo run --release -p noren-dist --example picture -- FOLDER`.

use noren_dist::masks::cases;
use noren_dist::{Options, Wire, partition, picture};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = std::env::args().nth(1).ok_or("give the folder for the pictures as the first argument")?;
    for (ranks, nodes) in [(8, 1), (64, 8)] {
        for case in cases(131_072)? {
            let plan = case.bound.plan();
            let split = partition(&plan, &Options { ranks, nodes, ..Options::default() })?;
            let name: String = case.name.chars().map(|c| if c.is_alphanumeric() { c } else { '-' }).collect();
            let path = format!("{folder}/{name}-{ranks}.svg");
            std::fs::write(&path, picture(&plan, &split, 0, 0, &Wire::default())?)?;
            println!("{path}");
        }
    }
    Ok(())
}

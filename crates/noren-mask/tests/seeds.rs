//! The seeds of the fuzz targets hold what the targets check.

#![allow(unreachable_pub)]

#[path = "../../../fuzz/src/masks.rs"]
mod masks;

use std::path::Path;

fn replay(target: &str, check: impl Fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds").join(target);
    let mut seeds: Vec<_> = std::fs::read_dir(folder).expect("seeds").map(|e| e.expect("a seed").path()).collect();
    seeds.sort();
    assert!(seeds.len() > 10, "{} seeds", seeds.len());
    for seed in seeds {
        eprintln!("{}", seed.display());
        check(&std::fs::read(&seed).expect("a seed"));
    }
}

#[test]
fn masks_from_any_text() {
    replay("parse", masks::parse);
}

#[test]
fn facts_from_any_text() {
    replay("facts", masks::facts);
}

#[test]
fn plans_from_any_text() {
    replay("plans", masks::plans);
}

//! The seeds of the fuzz target for safetensors hold what it checks.
#![allow(unreachable_pub)]

#[path = "../src/arrays.rs"]
#[allow(dead_code)]
mod arrays;
#[path = "../../../fuzz/checks/tensors.rs"]
mod checks;
#[path = "../src/failure.rs"]
#[allow(dead_code)]
mod failure;
#[path = "../src/tensors.rs"]
#[allow(dead_code)]
mod tensors;

#[test]
fn tensors_from_any_bytes() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds/safetensors");
    let seeds: Vec<_> = std::fs::read_dir(folder).expect("seeds").map(|e| e.expect("a seed").path()).collect();
    assert!(seeds.len() > 10, "{} seeds", seeds.len());
    for seed in seeds {
        eprintln!("{}", seed.display());
        checks::safetensors(&std::fs::read(&seed).expect("a seed"));
    }
}

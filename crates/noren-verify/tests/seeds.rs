//! The seeds of certificates hold what the fuzz target `verifier` checks.
#![allow(unreachable_pub)]

#[path = "../../../fuzz/src/verifier.rs"]
mod verifier;

#[test]
fn certificates_from_any_text() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds/certificates");
    let mut seeds: Vec<_> = std::fs::read_dir(folder).expect("seeds").map(|e| e.expect("a seed").path()).collect();
    seeds.sort();
    assert!(seeds.len() > 10, "{} seeds", seeds.len());
    for seed in seeds {
        eprintln!("{}", seed.display());
        verifier::verifier(&std::fs::read(&seed).expect("a seed"));
    }
}

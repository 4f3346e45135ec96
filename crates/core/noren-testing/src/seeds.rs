//! Reads the seed inputs of the fuzz targets, in `fuzz/seeds`.

use std::path::Path;

/// Calls `check`, the function under test of the fuzz target `target`, with each of its seeds.
pub fn replay(target: &str, check: impl Fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../fuzz/seeds").join(target);
    let mut seeds: Vec<_> = std::fs::read_dir(folder).expect("seeds").map(|e| e.expect("a seed").path()).collect();
    seeds.sort();
    assert!(seeds.len() > 10, "{} seeds", seeds.len());
    for seed in seeds {
        eprintln!("{}", seed.display());
        check(&std::fs::read(&seed).expect("a seed"));
    }
}

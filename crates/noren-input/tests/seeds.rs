//! The seeds of the fuzz targets for files hold what the targets check.
#![allow(unreachable_pub)]

#[path = "../../../fuzz/src/files.rs"]
mod files;

fn replay(target: &str, check: impl Fn(&[u8])) {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds").join(target);
    let seeds: Vec<_> = std::fs::read_dir(folder).expect("seeds").map(|e| e.expect("a seed").path()).collect();
    assert!(seeds.len() > 10, "{} seeds", seeds.len());
    for seed in seeds {
        eprintln!("{}", seed.display());
        check(&std::fs::read(&seed).expect("a seed"));
    }
}

#[test]
fn npy_from_any_bytes() {
    replay("npy", files::npy);
}

#[test]
fn npz_from_any_bytes() {
    replay("npz", files::npz);
}

#[test]
fn safetensors_from_any_bytes() {
    replay("safetensors", files::safetensors);
}

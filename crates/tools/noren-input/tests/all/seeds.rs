//! The seeds of the fuzz targets for files hold what the targets check.
#![allow(unreachable_pub)]

#[path = "../../../../../fuzz/src/files.rs"]
mod files;

use noren_testing::replay;

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

#![no_main]

#[path = "../checks/tensors.rs"]
mod checks;
#[path = "../../crates/noren-cli/src/arrays.rs"]
#[allow(dead_code)]
mod arrays;
#[path = "../../crates/noren-cli/src/failure.rs"]
#[allow(dead_code)]
mod failure;
#[path = "../../crates/noren-cli/src/tensors.rs"]
#[allow(dead_code)]
mod tensors;

libfuzzer_sys::fuzz_target!(|data: &[u8]| checks::safetensors(data));

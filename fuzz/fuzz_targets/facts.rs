#![no_main]

#[path = "../checks/masks.rs"]
#[allow(dead_code)]
mod masks;

libfuzzer_sys::fuzz_target!(|data: &[u8]| masks::facts(data));

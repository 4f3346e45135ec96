#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| noren_fuzz::verifier::verifier(data));

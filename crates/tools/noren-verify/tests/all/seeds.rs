//! The fuzz target `verifier` accepts its seeds.
#![allow(unreachable_pub)]

#[path = "../../../../../fuzz/src/verifier.rs"]
mod verifier;

#[test]
fn certificates_from_any_text() {
    noren_testing::replay("certificates", verifier::verifier);
}

//! Runs the commands in the transcripts of tests/cmd and compares the output with the transcripts.

#![cfg(all(feature = "models", feature = "serve"))]

#[test]
fn transcripts() {
    trycmd::TestCases::new().env("NO_COLOR", "1").case("tests/cmd/*.trycmd");
}

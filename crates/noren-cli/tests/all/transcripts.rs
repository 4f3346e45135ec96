//! The command as people see it: every file in tests/cmd is a transcript that must come out as it stands.

#![cfg(all(feature = "models", feature = "serve"))]

#[test]
fn transcripts() {
    trycmd::TestCases::new().env("NO_COLOR", "1").case("tests/cmd/*.trycmd");
}

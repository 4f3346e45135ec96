//! The seeds of the fuzz targets pass the checks of the targets.

#![allow(unreachable_pub)]

#[path = "../../../../../fuzz/src/verdicts.rs"]
mod verdicts;

use noren_testing::replay;

#[test]
fn declarations_from_any_text() {
    replay("contexts", verdicts::contexts);
}

#[test]
fn policies_from_any_text() {
    replay("policies", verdicts::policies);
}

#[test]
fn certificates_from_any_text() {
    replay("certificates", verdicts::certificates);
}

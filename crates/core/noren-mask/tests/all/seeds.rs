//! The seeds of the fuzz targets pass the checks of the targets.

#![allow(unreachable_pub)]

#[path = "../../../../../fuzz/src/masks.rs"]
mod masks;

use noren_testing::replay;

#[test]
fn masks_from_any_text() {
    replay("parse", masks::parse);
}

#[test]
fn facts_from_any_text() {
    replay("facts", masks::facts);
}

#[test]
fn plans_from_any_text() {
    replay("plans", masks::plans);
}

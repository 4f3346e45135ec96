//! The command `noren`.
fn main() {}

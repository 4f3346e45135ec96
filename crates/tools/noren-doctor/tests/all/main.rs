//! All tests of the crate in one program. Each file is a module; `cargo test -p noren-doctor --test all MODULE::` runs one.

mod arrays;
mod beside;
mod causes;
mod declared_sizes;
mod doctor;
mod doctor_cases;
mod doctor_outsider;
mod doctor_page;
mod doctor_readings;
mod doctor_scale;
mod doctor_verdicts;
mod healthy;
mod meant;
mod recognised;
mod repairs;
mod reported;
mod rows;
mod strangers;
mod strangers_beside;
mod used;

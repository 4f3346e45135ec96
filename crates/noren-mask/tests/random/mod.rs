//! Random cases, their cells counted one by one, and how to run a law on many of them.
#![allow(dead_code, unused_imports)] // each test file uses its part

pub(crate) mod cases;
pub(crate) mod cells;
mod config;
pub(crate) mod structured;

pub(crate) use config::check;

//! Pictures
mod grid;
pub use grid::{Cover, Grid, GridOptions};

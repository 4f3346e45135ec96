//! Readers of input from programs and users: arrays in files, and shapes with omitted sizes.
//!
//! Files are not trusted. Sizes are checked against the file before memory is allocated, nothing is unpickled, and each refusal has
//! a message that names the file. The fuzz targets `npy`, `npz` and `safetensors` run these readers.
//!
//! - [`arrays`] reads all arrays of a file of any of the three formats
//! - [`npy`] reads and writes NumPy's npy format
//! - [`tensors`] reads and writes safetensors files
//! - [`sizes`] derives sizes from masks and facts where none are given
//! - [`request`] resolves a shape with sizes left out, and binds masks to it

pub mod arrays;
mod error;
pub mod npy;
pub mod request;
pub mod sizes;
mod stored;
pub mod tensors;

pub use error::{Error, Result};
pub use request::{Bound, ShapeRequest};
pub use sizes::Sizes;
pub use stored::MOST_MEMORY;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

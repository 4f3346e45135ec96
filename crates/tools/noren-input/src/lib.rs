//! Readers of input from users and programs: arrays in files, and shapes for which the user gives only some sizes.
//!
//! Files are not trusted. Sizes in a file are compared with the length of the file before memory is allocated. Pickled
//! data, which could run code, is refused. Each error names the file. The fuzz targets `npy`, `npz` and `safetensors`
//! run these readers.
//!
//! ```
//! let path = std::env::temp_dir().join("noren-input-crate-page.npy");
//! std::fs::write(&path, b"not an array")?;
//! assert!(noren_input::arrays::read_all(&path).is_err());
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! - [`arrays`] reads all arrays of an npy, npz or safetensors file
//! - [`npy`] reads and writes NumPy's npy format
//! - [`tensors`] reads and writes safetensors files
//! - [`sizes`] derives sizes from masks and facts if they are not given
//! - [`request`] completes a shape for which the user gave only some sizes, and binds masks to it

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

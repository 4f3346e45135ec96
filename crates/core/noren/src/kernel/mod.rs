//! The kernels: generic algorithms (forward in [`tile`], backward in [`backward`]) over small vector operations
//! ([`simd`]), and the code that distributes the work over threads.

pub(crate) mod arrays;
pub(crate) mod backward;
pub(crate) mod count;
pub(crate) mod dispatch;
pub(crate) mod forward;
pub(crate) mod keys;
pub(crate) mod linear;
pub(crate) mod math;
pub(crate) mod simd;
pub(crate) mod threads;
pub(crate) mod tile;

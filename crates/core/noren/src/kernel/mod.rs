//! The kernels: generic algorithms (forward in [`tile`], backward in [`backward`]) over small vector operations
//! ([`simd`]), and the code that distributes the work over threads.

pub(crate) mod ahead;
pub(crate) mod backward;
pub(crate) mod blocks;
pub(crate) mod count;
pub(crate) mod dispatch;
pub(crate) mod dropout;
pub(crate) mod exp;
pub(crate) mod forward;
pub(crate) mod linear;
pub(crate) mod lines;
pub(crate) mod micro;
pub(crate) mod pack;
pub(crate) mod rows;
pub(crate) mod scores;
pub(crate) mod simd;
pub(crate) mod store;
pub(crate) mod threads;
pub(crate) mod tile;

//! The forward kernel: a generic algorithm ([`tile`]) over small vector operations ([`simd`]), and what brings it its
//! work ([`forward`]).

pub(crate) mod blocks;
pub(crate) mod exp;
pub(crate) mod forward;
pub(crate) mod level;
pub(crate) mod micro;
pub(crate) mod output;
pub(crate) mod pack;
pub(crate) mod scores;
pub(crate) mod simd;
pub(crate) mod tile;

use crate::Level;

/// The kernels' instances for a type of values. They are made here, type by type, so that they are compiled with this
/// crate and as it asks to be, not in every crate that calls it.
pub trait Run: Sized {
    /// Runs work that was checked.
    fn forward(level: Level, task: forward::Forward<'_, Self>);
}

macro_rules! run {
    ($($element:ty),*) => {
        $(impl Run for $element {
            fn forward(level: Level, task: forward::Forward<'_, Self>) {
                level.run(task);
            }
        })*
    };
}

run!(f32, half::bf16, half::f16);

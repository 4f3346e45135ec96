//! Memory in whole cache lines that holds values of any element type.

use super::simd::{Lanes, try_zeroed};
use crate::Element;

/// One cache line of 64 bytes.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([f32; Lines::LINE / 4]);

// SAFETY: the type is sixteen `f32` values without padding: 64 bytes, aligned to 64.
unsafe impl Lanes for Line {}

/// Memory aligned to cache lines, and therefore to the vectors of every path. All values are zero at first.
pub(crate) struct Lines(Vec<Line>);

impl Lines {
    /// The number of bytes in a cache line.
    pub(crate) const LINE: usize = 64;

    /// Allocates `len` lines of zeros. Returns `None` if there is not enough memory.
    pub(crate) fn zeroed(len: usize) -> Option<Lines> {
        try_zeroed(len).map(Lines)
    }

    /// Returns the whole memory as a slice of values of type `T`.
    #[inline(always)]
    pub(crate) fn values<T: Element>(&self) -> &[T] {
        // SAFETY: the lines are initialised, and `len` values fill them. The alignment of `T` is smaller. `Element` is
        // sealed, and every bit pattern is a value of each of its types.
        unsafe { std::slice::from_raw_parts(self.0.as_ptr().cast(), self.len::<T>()) }
    }

    /// Returns the whole memory as a mutable slice of values of type `T`.
    #[inline(always)]
    pub(crate) fn values_mut<T: Element>(&mut self) -> &mut [T] {
        // SAFETY: see `values`; `self` is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.0.as_mut_ptr().cast(), self.len::<T>()) }
    }

    /// Returns the number of values of type `T` that fit into the lines.
    fn len<T: Element>(&self) -> usize {
        size_of_val(&self.0[..]) / size_of::<T>()
    }
}

//! Memory of cache lines that holds values of any element type.

use super::simd::{Lanes, try_zeroed};
use crate::Element;

/// A cache line.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([f32; Lines::LINE / 4]);

// SAFETY: sixteen `f32` values and nothing else: 64 bytes, aligned to 64.
unsafe impl Lanes for Line {}

/// Zeroed memory, aligned to cache lines and thus to the vectors of every path.
pub(crate) struct Lines(Vec<Line>);

impl Lines {
    /// Bytes of a line.
    pub(crate) const LINE: usize = 64;

    /// `len` lines of zeros, or `None` where there is no such memory.
    pub(crate) fn zeroed(len: usize) -> Option<Lines> {
        try_zeroed(len).map(Lines)
    }

    /// Returns the whole memory as values.
    #[inline(always)]
    pub(crate) fn values<T: Element>(&self) -> &[T] {
        // SAFETY: the lines are initialised and `len` values fill them; alignment of `T` is smaller; `Element` is sealed,
        // and every pattern of bits is a value of each of its types.
        unsafe { std::slice::from_raw_parts(self.0.as_ptr().cast(), self.len::<T>()) }
    }

    /// Returns the whole memory as mutable values.
    #[inline(always)]
    pub(crate) fn values_mut<T: Element>(&mut self) -> &mut [T] {
        // SAFETY: as in `values`, and the borrow is as exclusive as the one given.
        unsafe { std::slice::from_raw_parts_mut(self.0.as_mut_ptr().cast(), self.len::<T>()) }
    }

    /// Values that fill the lines.
    fn len<T: Element>(&self) -> usize {
        size_of_val(&self.0[..]) / size_of::<T>()
    }
}

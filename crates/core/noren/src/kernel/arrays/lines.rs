//! Memory in whole cache lines that holds values of any element type.

use crate::Element;
use crate::kernel::simd::{Lanes, try_zeroed};

/// A unit of the memory: one number of 32 bits.
#[derive(Clone, Copy)]
#[repr(transparent)]
struct Word(f32);

// SAFETY: the type is one `f32`.
unsafe impl Lanes for Word {}

/// Memory aligned to cache lines, and therefore to the vectors of every processor path. All values are zero at first.
///
/// The memory is allocated with the alignment of a word, and the first line begins at the first boundary of cache lines
/// in it. With this alignment, the allocator gets zeroed memory from the system without writing to it. Therefore memory
/// in which no token was stored takes no physical memory.
pub(crate) struct Lines {
    words: Vec<Word>,
    /// The index in `words` of the first word of the first cache line.
    start: usize,
    /// The number of words of 32 bits in all cache lines.
    len: usize,
}

impl Lines {
    /// The number of bytes in a cache line.
    pub(crate) const LINE: usize = 64;

    /// Allocates memory for `len` cache lines, filled with zeros. Returns `None` if there is not enough memory.
    pub(crate) fn zeroed(len: usize) -> Option<Lines> {
        let len = len.checked_mul(Self::LINE / size_of::<Word>())?;
        let words: Vec<Word> = try_zeroed(len.checked_add(Self::LINE / size_of::<Word>())?)?;
        let start = words.as_ptr().addr().next_multiple_of(Self::LINE) - words.as_ptr().addr();
        Some(Lines { words, start: start / size_of::<Word>(), len })
    }

    /// Returns the whole memory as a slice of values of type `T`.
    #[inline(always)]
    pub(crate) fn values<T: Element>(&self) -> &[T] {
        let words = &self.words[self.start..][..self.len];
        // SAFETY: the words are initialised, and the values fill them. The alignment of `T` is not larger. `Element` is
        // sealed, and every bit pattern is a value of each of its types.
        unsafe { std::slice::from_raw_parts(words.as_ptr().cast(), size_of_val(words) / size_of::<T>()) }
    }

    /// Returns the whole memory as a mutable slice of values of type `T`.
    #[inline(always)]
    pub(crate) fn values_mut<T: Element>(&mut self) -> &mut [T] {
        let words = &mut self.words[self.start..][..self.len];
        // SAFETY: see `values`; `self` is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(words.as_mut_ptr().cast(), size_of_val(words) / size_of::<T>()) }
    }
}

/// Lets Linux use large pages for memory that is not in use yet, if it is large. Otherwise the system stops the program at
/// each page of 4 KiB, and for a large result this takes longer than the computation.
pub(crate) fn large_pages<T>(memory: &mut [T]) {
    #[cfg(target_os = "linux")]
    if size_of_val(memory) >= 1 << 22 {
        unsafe extern "C" {
            fn madvise(address: *mut std::ffi::c_void, bytes: usize, advice: std::ffi::c_int) -> std::ffi::c_int;
        }
        const HUGE_PAGE: std::ffi::c_int = 14;
        const PAGE: usize = 1 << 21;
        let skipped = memory.as_ptr().addr().next_multiple_of(PAGE) - memory.as_ptr().addr();
        let bytes = size_of_val(memory).saturating_sub(skipped) / PAGE * PAGE;
        // SAFETY: the call changes no memory, and the pages are inside `memory`. If it fails, nothing changes.
        unsafe { madvise(memory.as_mut_ptr().wrapping_byte_add(skipped).cast(), bytes, HUGE_PAGE) };
    }
    #[cfg(not(target_os = "linux"))]
    let _ = memory;
}

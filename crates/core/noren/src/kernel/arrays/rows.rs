//! Arrays of any element type for the kernels, which compute in `f32`: rows that are read as `f32` ([`Rows`]), and rows
//! to which `f32` values are written ([`SharedRows`]).
//!
//! The element type is checked at run time, once for each row. Therefore a kernel is not compiled again for each type.

use super::ahead::Ahead;
use crate::inputs::dtype::{Values, ValuesMut};
use crate::inputs::view::Layout;
use crate::kernel::simd::{Chunk, Number, Product, Simd};
use crate::{Dtype, Element, View, ViewMut};
use half::{bf16, f16};
use std::marker::PhantomData;
use std::ops::Range;

/// A view whose rows are read as `f32`.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Rows<'a> {
    /// `f32` rows, which may be used in place.
    F32(View<'a, f32>),
    /// `bf16` rows, which are converted to `f32`.
    Bf16(View<'a, bf16>),
    /// `f16` rows, which are converted to `f32`.
    F16(View<'a, f16>),
}

/// The rows of an output array that several threads write. When a row is written, its values are rounded to the element
/// type.
pub(crate) struct SharedRows<'a> {
    data: Data,
    layout: Layout,
    borrow: PhantomData<&'a mut [u8]>,
}

/// A pointer to the first value of an output array. The variant names the element type.
#[derive(Clone, Copy)]
enum Data {
    F32(*mut f32),
    Bf16(*mut bf16),
    F16(*mut f16),
}

macro_rules! by_type {
    ($($element:ty, $variant:ident;)*) => {
        impl<'a> Rows<'a> {
            /// Returns the rows of a view.
            pub(crate) fn of<T: Element>(view: View<'a, T>) -> Self {
                let (data, layout) = view.into_parts();
                match T::erased(data) {
                    $(Values::$variant(data) => Rows::$variant(View::from_parts((data, layout))),)*
                }
            }

            /// Returns the shape `[batch, heads, rows, row length]`.
            #[inline(always)]
            pub(crate) fn shape(&self) -> [usize; 4] {
                match self {
                    $(Rows::$variant(view) => view.shape(),)*
                }
            }

            /// Returns the element type.
            pub(crate) fn dtype(&self) -> Dtype {
                match self {
                    $(Rows::$variant(_) => <$element>::DTYPE,)*
                }
            }

            /// Returns `rows` rows from the row at `[batch, head, row]` on, which will be read later, to prefetch them.
            pub(crate) fn ahead(&self, at: [usize; 3], rows: usize) -> Ahead {
                match self {
                    $(Rows::$variant(view) => {
                        let (data, layout) = view.into_parts();
                        Ahead::new(data.as_ptr(), &layout, at, rows)
                    })*
                }
            }

            /// Copies the values with the indices `from..from + into.len()` of the row `at`, `[batch, head, row]`, to
            /// `into`.
            #[inline(always)]
            pub(crate) fn copy_row(&self, at: [usize; 3], from: usize, into: &mut [f32]) {
                match self {
                    $(Rows::$variant(view) => view.copy_row(at, from, into),)*
                }
            }
        }

        impl Rows<'_> {
            /// Returns the values of the row `at`, `[batch, head, row]`, from the index `from` on as a vector, or `None` if the
            /// values of the row are not adjacent, or if fewer values than lanes are left.
            #[inline(always)]
            pub(crate) fn lanes<S: Simd>(&self, s: S, at: [usize; 3], from: usize) -> Option<S::V> {
                match self {
                    $(Rows::$variant(view) => {
                        let lanes = S::Array::<$element>::chunks(&view.adjacent_row(at)?[from..]).first()?;
                        Some(<$element as Number>::widen(s, lanes))
                    })*
                }
            }
        }

        impl<'a> SharedRows<'a> {
            /// Returns the rows of an output array.
            pub(crate) fn of<T: Element>(out: ViewMut<'a, T>) -> Self {
                let (data, layout) = out.into_parts();
                let data = match T::erased_mut(data) {
                    $(ValuesMut::$variant(data) => Data::$variant(data.as_mut_ptr()),)*
                };
                SharedRows { data, layout, borrow: PhantomData }
            }

            /// Returns the shape `[batch, heads, rows, row length]`.
            pub(crate) fn shape(&self) -> [usize; 4] {
                self.layout.shape
            }

            /// Prefetches the row at `[batch, head, row]`, which will be written later.
            #[inline(always)]
            pub(crate) fn prefetch<S: Simd>(&self, s: S, at: [usize; 3]) {
                match self.data {
                    $(Data::$variant(data) => {
                        let row = data.wrapping_add(self.layout.index([at[0], at[1], at[2], 0]));
                        for line in (0..self.layout.shape[3]).step_by(64 / size_of::<$element>()) {
                            s.prefetch(row.wrapping_add(line));
                        }
                    })*
                }
            }

            /// Returns `rows` rows from the row at `[batch, head, row]` on, which will be written later, to prefetch them.
            pub(crate) fn ahead(&self, at: [usize; 3], rows: usize) -> Ahead {
                match self.data {
                    $(Data::$variant(data) => Ahead::new(data.cast_const(), &self.layout, at, rows),)*
                }
            }

            /// Writes `values` to the row at `[batch, head, row]`, rounded to the element type.
            ///
            /// # Safety
            ///
            /// Threads that write at the same time must write different rows, also through other `SharedRows` of the
            /// same array ([`narrow`](Self::narrow)).
            #[inline(always)]
            pub(crate) unsafe fn write(&self, at: [usize; 3], values: &[f32]) {
                match self.data {
                    // SAFETY: pointer and layout come from one view. The caller guarantees that no other thread uses
                    // the row.
                    $(Data::$variant(data) => unsafe { write(data, &self.layout, at, values) },)*
                }
            }

            /// Reads the row at `[batch, head, row]` into `values`, as `f32`.
            ///
            /// # Safety
            ///
            /// No other thread may [`write`](Self::write) this row at the same time, also not through other
            /// `SharedRows` of the same array.
            pub(crate) unsafe fn read(&self, at: [usize; 3], values: &mut [f32]) {
                match self.data {
                    // SAFETY: see `write`.
                    $(Data::$variant(data) => unsafe { read(data, &self.layout, at, values) },)*
                }
            }
        }
    };
}

by_type! {
    f32, F32;
    bf16, Bf16;
    f16, F16;
}

impl SharedRows<'_> {
    /// Returns the row at `[batch, head, row]` to write in place, or `None` if its values are not `f32` or not adjacent.
    ///
    /// # Safety
    ///
    /// While the result lives, nothing else may use the row. Threads that write at the same time must write different
    /// rows, as for [`write`](Self::write).
    #[inline(always)]
    #[allow(clippy::mut_from_ref)] // The caller guarantees that each row is borrowed once.
    pub(crate) unsafe fn row_mut(&self, at: [usize; 3]) -> Option<&mut [f32]> {
        let Layout { shape, strides, .. } = self.layout;
        assert!(at.iter().zip(&shape).all(|(i, n)| i < n));
        match self.data {
            Data::F32(data) if strides[3] == 1 => {
                let start = self.layout.index([at[0], at[1], at[2], 0]);
                // SAFETY: pointer and layout come from one view, which is exclusively borrowed, and the row is inside the
                // shape. The caller guarantees that nothing else uses the row.
                Some(unsafe { std::slice::from_raw_parts_mut(data.add(start), shape[3]) })
            }
            _ => None,
        }
    }

    /// Returns the rows `rows` of the batch row `batch`, as an array with one batch row. The result and `self` write to
    /// the same memory.
    pub(crate) fn narrow(&self, batch: usize, rows: Range<usize>) -> SharedRows<'_> {
        SharedRows { data: self.data, layout: self.layout.narrow(batch, rows), borrow: PhantomData }
    }
}

impl<'a> Rows<'a> {
    /// Returns the row `at`, `[batch, head, row]`, without a copy, or `None` if the values of the row are not `f32` or
    /// not adjacent.
    #[inline(always)]
    pub(crate) fn row(&self, at: [usize; 3]) -> Option<&'a [f32]> {
        match self {
            Rows::F32(view) => view.row(at),
            _ => None,
        }
    }

    /// Returns the row `at`, `[batch, head, row]`, without a copy, or `None` if the values of the row are not `bf16` or
    /// not adjacent.
    #[inline(always)]
    pub(crate) fn bf16_row(&self, at: [usize; 3]) -> Option<&'a [bf16]> {
        match self {
            Rows::Bf16(view) => view.adjacent_row(at),
            _ => None,
        }
    }

    /// Returns the words of the row `at`, `[batch, head, row]`, without a copy: the `f32` values of the row if
    /// `P::TERMS` is 1, or the pairs of neighbouring `bf16` values if it is 2. Returns `None` if the row has other values,
    /// values that are not adjacent, an odd number of `bf16` values, or an address that no `f32` can have.
    #[inline(always)]
    pub(crate) fn row_words<P: Product>(&self, at: [usize; 3]) -> Option<&'a [f32]> {
        if P::TERMS == 1 {
            return self.row(at);
        }
        let row = self.bf16_row(at)?;
        // The first value of a pair is in the lower half of its word: pairs are used on x86-64 only, which is little-endian.
        // SAFETY: any 32 bits are a valid `f32`.
        let (before, words, after) = unsafe { row.align_to::<f32>() };
        (before.is_empty() && after.is_empty()).then_some(words)
    }

    /// Returns all rows of batch row `b` and head `h` from row `first` on, without a copy, or `None` if these rows are
    /// not `f32` or not contiguous.
    #[inline(always)]
    pub(crate) fn dense_rows(&self, b: usize, h: usize, first: usize) -> Option<&'a [f32]> {
        match self {
            Rows::F32(view) => view.dense_rows(b, h, first),
            _ => None,
        }
    }
}

// SAFETY: the pointer comes from an exclusive borrow that lives as long as `self`. Only `write`, `read` and `row_mut` use
// the pointer, and their contracts keep threads on different rows.
unsafe impl Send for SharedRows<'_> {}
// SAFETY: see `Send`.
unsafe impl Sync for SharedRows<'_> {}

/// Writes `values` to the row at `[batch, head, row]` of the array at `data`.
///
/// # Safety
///
/// `layout` must fit the memory at `data`, which holds initialised values and is exclusively borrowed. No other thread
/// may access this row at the same time.
#[inline(always)]
unsafe fn write<T: Element>(data: *mut T, layout: &Layout, at: [usize; 3], values: &[f32]) {
    let Layout { shape, strides, .. } = *layout;
    assert!(at.iter().zip(&shape).all(|(i, n)| i < n) && values.len() == shape[3]);
    let start = layout.index([at[0], at[1], at[2], 0]);
    if strides[3] == 1 {
        // SAFETY: see below, for all elements of the row together.
        let row = unsafe { std::slice::from_raw_parts_mut(data.add(start), values.len()) };
        return T::narrow(values, row);
    }
    for (d, value) in values.iter().enumerate() {
        let index = start as isize + d as isize * strides[3];
        // SAFETY: the index is that of an element inside the shape, which `Layout` keeps inside the memory. No other
        // row shares the element, and by contract no other thread uses this row.
        unsafe { data.offset(index).write(T::from_f32(*value)) };
    }
}

/// Reads the row at `[batch, head, row]` of the array at `data` into `values`.
///
/// # Safety
///
/// The conditions of [`write`] hold, with one exception: several threads may read the same row at the same time.
#[inline(always)]
unsafe fn read<T: Element>(data: *const T, layout: &Layout, at: [usize; 3], values: &mut [f32]) {
    let Layout { shape, strides, .. } = *layout;
    assert!(at.iter().zip(&shape).all(|(i, n)| i < n) && values.len() == shape[3]);
    let start = layout.index([at[0], at[1], at[2], 0]);
    if strides[3] == 1 {
        // SAFETY: see below, for all elements of the row together.
        let row = unsafe { std::slice::from_raw_parts(data.add(start), values.len()) };
        return T::widen(row, values);
    }
    for (d, value) in values.iter_mut().enumerate() {
        let index = start as isize + d as isize * strides[3];
        // SAFETY: the index is that of an element inside the shape, which `Layout` keeps inside the memory, and no
        // thread writes to the row at the same time.
        *value = unsafe { data.offset(index).read() }.to_f32();
    }
}

//! Arrays of any element type, as the kernels see them: rows that are read as `f32`, and rows that are written from `f32`.
//!
//! The type is looked at once for each row, so kernels are compiled once for all of them.

use crate::dtype::{Values, ValuesMut};
use crate::view::Layout;
use crate::{Dtype, Element, View, ViewMut};
use half::{bf16, f16};
use std::marker::PhantomData;

/// A view whose rows are read as `f32`.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Rows<'a> {
    /// Rows that may be used in place.
    F32(View<'a, f32>),
    /// Rows to be widened.
    Bf16(View<'a, bf16>),
    /// Rows to be widened.
    F16(View<'a, f16>),
}

/// The rows of an output, rounded to its type when they are written, and shared among threads.
pub(crate) struct SharedRows<'a> {
    data: Data,
    layout: Layout,
    borrow: PhantomData<&'a mut [u8]>,
}

/// Where an output lies.
#[derive(Clone, Copy)]
enum Data {
    F32(*mut f32),
    Bf16(*mut bf16),
    F16(*mut f16),
}

macro_rules! by_type {
    ($($element:ty, $variant:ident;)*) => {
        impl<'a> Rows<'a> {
            /// The view, to be read by rows.
            pub(crate) fn of<T: Element>(view: View<'a, T>) -> Self {
                let (data, layout) = view.into_parts();
                match T::erased(data) {
                    $(Values::$variant(data) => Rows::$variant(View::from_parts((data, layout))),)*
                }
            }

            /// The shape.
            #[inline(always)]
            pub(crate) fn shape(&self) -> [usize; 4] {
                match self {
                    $(Rows::$variant(view) => view.shape(),)*
                }
            }

            /// The element type.
            pub(crate) fn dtype(&self) -> Dtype {
                match self {
                    $(Rows::$variant(_) => <$element>::DTYPE,)*
                }
            }

            /// Values `from..from + into.len()` of the last dimension at `[b, h, i]`, copied.
            #[inline(always)]
            pub(crate) fn copy_row(&self, at: [usize; 3], from: usize, into: &mut [f32]) {
                match self {
                    $(Rows::$variant(view) => view.copy_row(at, from, into),)*
                }
            }
        }

        impl<'a> SharedRows<'a> {
            /// The output, to be written by rows.
            pub(crate) fn of<T: Element>(out: ViewMut<'a, T>) -> Self {
                let (data, layout) = out.into_parts();
                let data = match T::erased_mut(data) {
                    $(ValuesMut::$variant(data) => Data::$variant(data.as_mut_ptr()),)*
                };
                SharedRows { data, layout, borrow: PhantomData }
            }

            /// The shape.
            pub(crate) fn shape(&self) -> [usize; 4] {
                self.layout.shape
            }

            /// Writes row `[b, h, i]`, rounded to its type.
            ///
            /// # Safety
            ///
            /// No two calls may be for the same row at the same time.
            pub(crate) unsafe fn write(&self, at: [usize; 3], values: &[f32]) {
                match self.data {
                    // SAFETY: the pointer is the one that came with the layout; the caller promises the rest.
                    $(Data::$variant(data) => unsafe { write(data, &self.layout, at, values) },)*
                }
            }

            /// Reads row `[b, h, i]`.
            ///
            /// # Safety
            ///
            /// No call of [`write`](Self::write) may be for the same row at the same time.
            pub(crate) unsafe fn read(&self, at: [usize; 3], values: &mut [f32]) {
                match self.data {
                    // SAFETY: as in `write`.
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

impl<'a> Rows<'a> {
    /// The row at `[b, h, i]` in place, where it is one of adjacent `f32`.
    #[inline(always)]
    pub(crate) fn row(&self, at: [usize; 3]) -> Option<&'a [f32]> {
        match self {
            Rows::F32(view) => view.row(at),
            _ => None,
        }
    }

    /// All rows of `[b, h]` from row `first` on in place, where they are `f32` that follow each other without gaps.
    #[inline(always)]
    pub(crate) fn dense_rows(&self, b: usize, h: usize, first: usize) -> Option<&'a [f32]> {
        match self {
            Rows::F32(view) => view.dense_rows(b, h, first),
            _ => None,
        }
    }
}

// SAFETY: the pointer comes from an exclusive borrow that lives as long as `self`, and is only used through `write`
// and `read`, whose contracts keep threads apart.
unsafe impl Send for SharedRows<'_> {}
// SAFETY: as for `Send`.
unsafe impl Sync for SharedRows<'_> {}

/// Writes row `at` of the array at `data`.
///
/// # Safety
///
/// `layout` was checked against the memory at `data`, which holds initialised values and is exclusively borrowed; no other
/// call is for the same row at the same time.
#[inline(always)]
unsafe fn write<T: Element>(data: *mut T, layout: &Layout, at: [usize; 3], values: &[f32]) {
    let Layout { shape, strides, .. } = *layout;
    assert!(at.iter().zip(&shape).all(|(i, n)| i < n) && values.len() == shape[3]);
    let start = layout.index([at[0], at[1], at[2], 0]);
    if strides[3] == 1 {
        // SAFETY: as below, for all elements of the row at once.
        let row = unsafe { std::slice::from_raw_parts_mut(data.add(start), values.len()) };
        return T::narrow(values, row);
    }
    for (d, value) in values.iter().enumerate() {
        let index = start as isize + d as isize * strides[3];
        // SAFETY: the index is that of an element inside the shape, which `Layout` keeps inside the memory; no other
        // row shares the element, and the caller keeps others from this row.
        unsafe { data.offset(index).write(T::from_f32(*value)) };
    }
}

/// Reads row `at` of the array at `data`.
///
/// # Safety
///
/// As for [`write`]; calls of this function may be for the same row at the same time.
#[inline(always)]
unsafe fn read<T: Element>(data: *const T, layout: &Layout, at: [usize; 3], values: &mut [f32]) {
    let Layout { shape, strides, .. } = *layout;
    assert!(at.iter().zip(&shape).all(|(i, n)| i < n) && values.len() == shape[3]);
    let start = layout.index([at[0], at[1], at[2], 0]);
    if strides[3] == 1 {
        // SAFETY: as below, for all elements of the row at once.
        let row = unsafe { std::slice::from_raw_parts(data.add(start), values.len()) };
        return T::widen(row, values);
    }
    for (d, value) in values.iter_mut().enumerate() {
        let index = start as isize + d as isize * strides[3];
        // SAFETY: the index is that of an element inside the shape, which `Layout` keeps inside the memory, and nobody
        // writes to the row meanwhile.
        *value = unsafe { data.offset(index).read() }.to_f32();
    }
}

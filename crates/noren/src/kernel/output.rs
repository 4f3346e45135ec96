//! One output array that several threads write, each its own rows.

use crate::view::Layout;
use std::marker::PhantomData;

/// The rows of an output, shared among threads.
pub(crate) struct SharedRows<'a> {
    data: *mut f32,
    layout: Layout,
    borrow: PhantomData<&'a mut [f32]>,
}

// SAFETY: the pointer comes from an exclusive borrow that lives as long as `self`, and is only written through `write`,
// whose contract keeps threads apart.
unsafe impl Send for SharedRows<'_> {}
// SAFETY: as for `Send`.
unsafe impl Sync for SharedRows<'_> {}

impl<'a> SharedRows<'a> {
    /// `layout` was checked against `data`, and its elements do not overlap.
    pub(crate) fn new((data, layout): (&'a mut [f32], Layout)) -> Self {
        SharedRows { data: data.as_mut_ptr(), layout, borrow: PhantomData }
    }

    /// Writes row `[b, h, i]`.
    ///
    /// # Safety
    ///
    /// No two calls may be for the same row at the same time.
    pub(crate) unsafe fn write(&self, at: [usize; 3], values: &[f32]) {
        let Layout { shape, strides, .. } = self.layout;
        assert!(at.iter().zip(&shape).all(|(i, n)| i < n) && values.len() == shape[3]);
        let start = self.layout.index([at[0], at[1], at[2], 0]);
        if strides[3] == 1 {
            // SAFETY: as below, for all elements of the row at once.
            unsafe { self.data.add(start).copy_from_nonoverlapping(values.as_ptr(), values.len()) };
            return;
        }
        for (d, value) in values.iter().enumerate() {
            let index = start as isize + d as isize * strides[3];
            // SAFETY: the index is that of an element inside the shape, which `Layout` keeps inside the memory; no other
            // row shares the element, and the caller keeps others from this row.
            unsafe { self.data.offset(index).write(*value) };
        }
    }
}

//! One output array that several threads write, each its own rows.

use crate::view::Layout;
use crate::{Element, ViewMut};
use std::marker::PhantomData;

/// The rows of an output, shared among threads.
pub(crate) struct SharedRows<'a, T = f32> {
    data: *mut T,
    layout: Layout,
    borrow: PhantomData<&'a mut [T]>,
}

// SAFETY: the pointer comes from an exclusive borrow that lives as long as `self`, and is only written through `write`,
// whose contract keeps threads apart.
unsafe impl<T: Element> Send for SharedRows<'_, T> {}
// SAFETY: as for `Send`.
unsafe impl<T: Element> Sync for SharedRows<'_, T> {}

impl<'a, T: Element> SharedRows<'a, T> {
    /// The rows of `out`, whose elements stay inside its memory and do not overlap.
    pub(crate) fn new(out: ViewMut<'a, T>) -> Self {
        let (data, layout) = out.into_parts();
        SharedRows { data: data.as_mut_ptr(), layout, borrow: PhantomData }
    }

    /// Writes row `[b, h, i]`, rounded to its type.
    ///
    /// # Safety
    ///
    /// No two calls may be for the same row at the same time.
    pub(crate) unsafe fn write(&self, at: [usize; 3], values: &[f32]) {
        let Layout { shape, strides, .. } = self.layout;
        assert!(at.iter().zip(&shape).all(|(i, n)| i < n) && values.len() == shape[3]);
        let start = self.layout.index([at[0], at[1], at[2], 0]);
        if strides[3] == 1 {
            // SAFETY: as below, for all elements of the row at once, which the exclusive borrow found initialised.
            let row = unsafe { std::slice::from_raw_parts_mut(self.data.add(start), values.len()) };
            return T::narrow(values, row);
        }
        for (d, value) in values.iter().enumerate() {
            let index = start as isize + d as isize * strides[3];
            // SAFETY: the index is that of an element inside the shape, which `Layout` keeps inside the memory; no other
            // row shares the element, and the caller keeps others from this row.
            unsafe { self.data.offset(index).write(T::from_f32(*value)) };
        }
    }
}

//! [`View`] and [`ViewMut`]: four-dimensional strided arrays in borrowed memory.

use crate::inputs::dtype::Values;
use crate::{Element, Error};
use std::ops::Range;

/// A strided view of values, `[batch, heads, length, head_dim]`. The values are `f32` by default, or
/// [`bf16`](crate::bf16) or [`f16`](struct@crate::f16).
///
/// Strides count values, not bytes. A stride may be 0 (a broadcast) or negative (reversed order) if all elements stay
/// inside the memory. A constructor returns an error if an element would be outside the memory, so no read through a
/// view is out of bounds.
///
/// ```
/// use noren::View;
/// let data: Vec<f32> = (0..24).map(|x| x as f32).collect();
/// let contiguous = View::new(&data, [1, 2, 3, 4]).unwrap();
/// assert_eq!(contiguous.get([0, 1, 2, 3]), 23.0);
/// // The same memory as [batch, length, heads, head_dim], seen as [batch, heads, length, head_dim]:
/// let swapped = View::blhd(&data, [1, 2, 3, 4]).unwrap();
/// assert_eq!((swapped.shape(), swapped.get([0, 2, 1, 0])), ([1, 3, 2, 4], 20.0));
/// assert!(View::new(&data, [1, 2, 3, 5]).is_err());
/// ```
#[derive(Clone, Copy, Debug)]
pub struct View<'a, T = f32> {
    data: &'a [T],
    layout: Layout,
}

/// A strided view of values that can be written, `[batch, heads, length, head_dim]`.
///
/// Each element has a separate place in memory: constructors return an error if the strides may place two elements at
/// the same index.
#[derive(Debug)]
pub struct ViewMut<'a, T = f32> {
    data: &'a mut [T],
    layout: Layout,
}

/// The places of a view's elements in memory: shape, strides and the index of element `[0, 0, 0, 0]`. Constructors of
/// views check that all elements are inside the memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Layout {
    pub(crate) shape: [usize; 4],
    pub(crate) strides: [isize; 4],
    pub(crate) offset: usize,
}

impl Layout {
    fn contiguous(shape: [usize; 4]) -> Layout {
        let mut strides = [1isize; 4];
        for d in (0..3).rev() {
            strides[d] = strides[d + 1].wrapping_mul(shape[d + 1] as isize);
        }
        Layout { shape, strides, offset: 0 }
    }

    /// Returns the layout with the dimensions 1 and 2 in the other order.
    fn swapped(mut self) -> Layout {
        self.shape.swap(1, 2);
        self.strides.swap(1, 2);
        self
    }

    /// Returns the layout, or an error if a dimension is 0 or an element is outside the memory. `len` is the number of
    /// values in the memory.
    fn check(self, len: usize) -> Result<Layout, Error> {
        if self.shape.contains(&0) {
            return Err(self.error(len, "a dimension of the shape is 0: give at least 1 for each dimension"));
        }
        let (mut low, mut high) = (self.offset as i128, self.offset as i128);
        for (&n, &stride) in self.shape.iter().zip(&self.strides) {
            let end = if stride < 0 { &mut low } else { &mut high };
            // one dimension fits into 128 bits, but the sum over several may not
            *end = end.saturating_add((n as i128 - 1) * stride as i128);
        }
        if low < 0 || high >= len as i128 {
            let problem = format!(
                "the elements would be at indices {low} to {high}: give memory that contains these indices, or other strides"
            );
            return Err(self.error(len, &problem));
        }
        Ok(self)
    }

    /// Returns the layout, or an error if two elements may be at the same place in memory. `len` is the number of
    /// values in the memory.
    ///
    /// The stride of each dimension must be larger than the distance in memory between the first and the last element
    /// of the dimensions with smaller strides together. For example, in the shape `[1, 1, 3, 4]` with stride 1 in the
    /// last dimension, the third dimension needs a stride of at least 4. Every layout that results from slicing and
    /// transposing a dense array is accepted.
    fn check_disjoint(self, len: usize) -> Result<Layout, Error> {
        let mut dims: Vec<(usize, usize)> = (self.strides.iter().zip(&self.shape))
            .filter(|(_, n)| **n > 1)
            .map(|(stride, n)| (stride.unsigned_abs(), *n))
            .collect();
        dims.sort_unstable();
        let mut reach = 0usize;
        for (stride, n) in dims {
            if stride <= reach {
                return Err(self.error(len, "two elements would have the same index in memory: give strides that give each element its own index"));
            }
            reach += (n - 1) * stride;
        }
        Ok(self)
    }

    fn error(&self, len: usize, problem: &str) -> Error {
        let (shape, strides) = (self.shape.to_vec(), self.strides.to_vec());
        Error::View { name: "a view", shape, strides, offset: self.offset, len, problem: problem.to_owned() }
    }

    /// Returns the index in memory of the element at `at`. If `at` is inside the shape, the index is inside the memory.
    #[inline(always)]
    pub(crate) fn index(&self, at: [usize; 4]) -> usize {
        let mut index = self.offset as isize;
        for (i, stride) in at.into_iter().zip(self.strides) {
            index += i as isize * stride;
        }
        index as usize
    }

    /// Returns the layout of the rows `rows` of the batch row `batch`, with one batch row. Panics if these rows are not
    /// inside the shape, or if there are none.
    pub(crate) fn narrow(&self, batch: usize, rows: Range<usize>) -> Layout {
        let [batches, heads, len, width] = self.shape;
        assert!(
            batch < batches && rows.start < rows.end && rows.end <= len,
            "the rows {rows:?} of batch row {batch} are not inside the shape {:?}",
            self.shape
        );
        let offset = self.index([batch, 0, rows.start, 0]);
        Layout { shape: [1, heads, rows.len(), width], strides: self.strides, offset }
    }

    fn assert_inside(&self, at: [usize; 4]) {
        assert!(
            at.iter().zip(&self.shape).all(|(i, n)| i < n),
            "the index {at:?} is outside a view of shape {:?}",
            self.shape
        );
    }
}

impl<'a, T: Element> View<'a, T> {
    /// Returns a view of a contiguous array: `data` holds exactly the elements of `shape`, the last dimension fastest.
    ///
    /// # Errors
    /// Returns [`Error::View`] if `data` is too short for the shape or too long, or if a dimension is 0.
    pub fn new(data: &'a [T], shape: [usize; 4]) -> Result<Self, Error> {
        let layout = Layout::contiguous(shape);
        let count = shape.iter().try_fold(1usize, |n, d| n.checked_mul(*d));
        if count != Some(data.len()) {
            return Err(layout.error(data.len(), "a contiguous view needs exactly as many values as its shape has"));
        }
        Ok(View { data, layout: layout.check(data.len())? })
    }

    /// Returns a view of a contiguous array `[batch, length, heads, head_dim]`, which has the heads of a token side by
    /// side, as the projections of most models do. `shape` is in this order, too.
    ///
    /// # Errors
    /// Returns the errors of [`new`](Self::new).
    pub fn blhd(data: &'a [T], shape: [usize; 4]) -> Result<Self, Error> {
        let layout = View::new(data, shape)?.layout.swapped();
        Ok(View { data, layout })
    }

    /// Returns a view in which element `[b, h, i, d]` has the index `offset + b * strides[0] + h * strides[1] + i *
    /// strides[2] + d * strides[3]` of `data`.
    ///
    /// # Errors
    /// Returns [`Error::View`] if an element would be outside `data`, or if a dimension is 0.
    pub fn strided(data: &'a [T], shape: [usize; 4], strides: [isize; 4], offset: usize) -> Result<Self, Error> {
        Ok(View { data, layout: Layout { shape, strides, offset }.check(data.len())? })
    }

    /// Returns the shape of the view, `[batch, heads, length, head_dim]`.
    pub fn shape(&self) -> [usize; 4] {
        self.layout.shape
    }

    /// Returns the strides, in values.
    pub fn strides(&self) -> [isize; 4] {
        self.layout.strides
    }

    /// Returns one element. Panics if `at` is outside the shape, as indexing does.
    pub fn get(&self, at: [usize; 4]) -> T {
        self.layout.assert_inside(at);
        self.data[self.layout.index(at)]
    }

    /// Returns one element, as [`get`](Self::get) does. The caller must ensure that `at` is inside the shape.
    #[inline(always)]
    pub(crate) fn value(&self, at: [usize; 4]) -> T {
        self.data[self.layout.index(at)]
    }

    /// Returns a view of shape `shape` in which dimensions of size 1 are repeated. Returns `None` if a dimension has
    /// another size than 1 and differs from `shape`.
    pub fn broadcast(&self, shape: [usize; 4]) -> Option<View<'a, T>> {
        let mut layout = self.layout;
        for ((stride, given), asked) in layout.strides.iter_mut().zip(layout.shape).zip(shape) {
            match given {
                n if n == asked => {}
                1 => *stride = 0,
                _ => return None,
            }
        }
        layout.shape = shape;
        Some(View { data: self.data, layout })
    }

    /// Returns a view of the rows `rows` of the batch row `batch`, `[1, heads, rows, head_dim]`. Panics if these rows
    /// are not inside the shape, or if there are none.
    pub(crate) fn narrow(&self, batch: usize, rows: Range<usize>) -> View<'a, T> {
        View { data: self.data, layout: self.layout.narrow(batch, rows) }
    }

    /// Copies the values with the indices `from..from + into.len()` of row `i` in batch row `b` and head `h` to `into`,
    /// as `f32`.
    #[inline(always)]
    pub(crate) fn copy_row(&self, [b, h, i]: [usize; 3], from: usize, into: &mut [f32]) {
        let start = self.layout.index([b, h, i, from]);
        match self.layout.strides[3] {
            1 => T::widen(&self.data[start..start + into.len()], into),
            stride => {
                for (j, value) in into.iter_mut().enumerate() {
                    *value = self.data[(start as isize + j as isize * stride) as usize].to_f32();
                }
            }
        }
    }

    /// Returns row `i` of batch row `b` and head `h` without a copy. Returns `None` if the values of the row are not
    /// `f32` or not adjacent.
    #[inline(always)]
    pub(crate) fn row(&self, [b, h, i]: [usize; 3]) -> Option<&'a [f32]> {
        self.adjacent_row([b, h, i]).and_then(as_f32)
    }

    /// Returns the row at `[batch, head, row]` without a copy, or `None` if the values of the row are not adjacent.
    #[inline(always)]
    pub(crate) fn adjacent_row(&self, [b, h, i]: [usize; 3]) -> Option<&'a [T]> {
        let start = self.layout.index([b, h, i, 0]);
        (self.layout.strides[3] == 1).then(|| &self.data[start..start + self.layout.shape[3]])
    }

    /// Returns a value of the view for which `wanted` returns true, or `None` if there is none.
    pub(crate) fn find(&self, wanted: impl Fn(T) -> bool) -> Option<T> {
        let [batch, heads, rows, width] = self.layout.shape;
        let mut rows = (0..batch).flat_map(|b| (0..heads).flat_map(move |h| (0..rows).map(move |i| [b, h, i])));
        let adjacent = self.layout.strides[3] == 1;
        rows.find_map(|[b, h, i]| match self.layout.index([b, h, i, 0]) {
            start if adjacent => self.data[start..start + width].iter().copied().find(|x| wanted(*x)),
            _ => (0..width).map(|d| self.get([b, h, i, d])).find(|x| wanted(*x)),
        })
    }

    /// Returns all rows of batch row `b` and head `h` from row `first` on without a copy. Returns `None` if these rows
    /// are not `f32` or not contiguous.
    #[inline(always)]
    pub(crate) fn dense_rows(&self, b: usize, h: usize, first: usize) -> Option<&'a [f32]> {
        let [.., rows, width] = self.layout.shape;
        let dense = self.layout.strides[3] == 1 && (rows == 1 || self.layout.strides[2] == width as isize);
        let start = self.layout.index([b, h, first, 0]);
        dense.then(|| as_f32(&self.data[start..start + (rows - first) * width])).flatten()
    }

    /// Returns the memory of the view, and the layout of the elements in this memory.
    pub(crate) fn into_parts(self) -> (&'a [T], Layout) {
        (self.data, self.layout)
    }

    /// Returns the view with the memory and the layout that [`into_parts`](Self::into_parts) returned.
    pub(crate) fn from_parts((data, layout): (&'a [T], Layout)) -> Self {
        View { data, layout }
    }
}

/// Returns `values` as `f32` without a copy, or `None` if `T` is another type.
#[inline(always)]
fn as_f32<T: Element>(values: &[T]) -> Option<&[f32]> {
    match T::erased(values) {
        Values::F32(values) => Some(values),
        _ => None,
    }
}

impl<'a, T: Element> ViewMut<'a, T> {
    /// Returns a view of a contiguous array: `data` holds exactly the elements of `shape`, the last dimension fastest.
    ///
    /// # Errors
    /// Returns [`Error::View`] if `data` is too short for the shape or too long, or if a dimension is 0.
    pub fn new(data: &'a mut [T], shape: [usize; 4]) -> Result<Self, Error> {
        let layout = View::new(data, shape)?.layout;
        Ok(ViewMut { data, layout })
    }

    /// Returns a view of a contiguous array `[batch, length, heads, head_dim]`, as [`View::blhd`] does.
    ///
    /// # Errors
    /// Returns the errors of [`new`](Self::new).
    pub fn blhd(data: &'a mut [T], shape: [usize; 4]) -> Result<Self, Error> {
        let layout = View::blhd(data, shape)?.layout;
        Ok(ViewMut { data, layout })
    }

    /// Returns a view in which element `[b, h, i, d]` has the index `offset + b * strides[0] + h * strides[1] + i *
    /// strides[2] + d * strides[3]` of `data`.
    ///
    /// # Errors
    /// Returns [`Error::View`] if an element would be outside `data`, if a dimension is 0, or if elements overlap. A
    /// stride of 0 in a dimension longer than 1 is an overlap.
    pub fn strided(data: &'a mut [T], shape: [usize; 4], strides: [isize; 4], offset: usize) -> Result<Self, Error> {
        let layout = Layout { shape, strides, offset }.check(data.len())?.check_disjoint(data.len())?;
        Ok(ViewMut { data, layout })
    }

    /// Returns the shape of the view, `[batch, heads, length, head_dim]`.
    pub fn shape(&self) -> [usize; 4] {
        self.layout.shape
    }

    /// Sets all values of the rows `rows` of the batch row `batch` to `value`.
    pub(crate) fn fill_rows(&mut self, batch: usize, rows: Range<usize>, value: T) {
        let [_, heads, _, width] = self.layout.shape;
        for (h, i) in (0..heads).flat_map(|h| rows.clone().map(move |i| (h, i))) {
            self.layout.assert_inside([batch, h, i, width - 1]);
            let start = self.layout.index([batch, h, i, 0]);
            match self.layout.strides[3] {
                1 => self.data[start..start + width].fill(value),
                stride => {
                    for d in 0..width {
                        self.data[(start as isize + d as isize * stride) as usize] = value;
                    }
                }
            }
        }
    }

    /// Returns a read-only view of the array.
    pub fn as_view(&self) -> View<'_, T> {
        View { data: self.data, layout: self.layout }
    }

    /// Returns another view of the same array. The new view borrows this view, which can be used again afterwards.
    pub fn reborrow(&mut self) -> ViewMut<'_, T> {
        ViewMut { data: self.data, layout: self.layout }
    }

    /// Returns the memory of the view, and the layout of the elements in this memory.
    pub(crate) fn into_parts(self) -> (&'a mut [T], Layout) {
        (self.data, self.layout)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn views_that_leave_their_memory_are_refused() {
        let data = [0.0; 12];
        for (shape, strides, offset) in [
            ([1, 1, 3, 4], [0, 0, 4, 1], 1),
            ([1, 1, 3, 4], [0, 0, -4, 1], 7),
            ([1, 1, 3, 4], [0, 0, isize::MAX, 1], 0),
            ([usize::MAX, 1, 1, 1], [isize::MAX, 0, 0, 0], 0),
            // sums of distances that do not fit into 128 bits
            ([usize::MAX, usize::MAX, 1, 1], [isize::MAX, isize::MAX, 0, 0], 0),
            ([usize::MAX; 4], [isize::MAX; 4], usize::MAX),
            ([usize::MAX; 4], [isize::MIN; 4], usize::MAX),
            ([usize::MAX; 4], [isize::MIN, isize::MAX, isize::MIN, isize::MAX], 5),
            ([1, 1, 0, 4], [0, 0, 4, 1], 0),
        ] {
            let error = View::strided(&data, shape, strides, offset).unwrap_err().to_string();
            assert!(error.contains("in memory of 12 values"), "{error}");
        }
        let backwards = View::strided(&data, [1, 1, 3, 4], [0, 0, -4, 1], 8).unwrap();
        assert_eq!(backwards.get([0, 0, 2, 3]), 0.0);
    }

    #[test]
    fn outputs_that_overlap_are_refused() {
        let mut data = [0.0; 64];
        let overlapping = ViewMut::strided(&mut data, [1, 2, 3, 4], [0, 0, 4, 1], 0).unwrap_err();
        assert!(overlapping.to_string().contains("the same index in memory"), "{overlapping}");
        assert!(ViewMut::strided(&mut data, [1, 2, 3, 4], [0, 7, 2, 1], 0).is_err());
        assert!(ViewMut::strided(&mut data, [1, 2, 3, 4], [0, 4, 8, 1], 0).is_ok());
        assert!(ViewMut::strided(&mut data, [2, 2, 3, 4], [-32, 4, 8, 1], 36).is_ok());
    }
}

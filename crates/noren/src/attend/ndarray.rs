//! Conversions for arrays of the crate `ndarray`, with the feature `ndarray`.

use super::input::{CowView, IntoView, IntoViewMut};
use crate::{Attention, Element, Error, View, ViewMut};
use ndarray::{Array4, ArrayBase, ArrayView, ArrayViewMut, Data, DataMut, Dimension};

/// Returns `shape` as an array of four dimensions, or an error if there are not four.
fn four(shape: &[usize]) -> Result<[usize; 4], Error> {
    shape.try_into().map_err(|_| Error::Shape {
        name: "an array",
        given: shape.to_vec(),
        expected: "four dimensions are needed, [batch, heads, length, head_dim]: insert axes of length 1 (insert_axis)"
            .to_owned(),
    })
}

/// Returns the strides as an array, and the index in memory of element `[0, 0, 0, 0]`, counted in elements from the
/// lowest address. This index is not 0 if strides are negative: for example, 2 for three elements in reversed order.
fn places(shape: [usize; 4], strides: &[isize]) -> ([isize; 4], usize) {
    let strides: [isize; 4] = std::array::from_fn(|axis| strides[axis]);
    let before = |(n, stride): (usize, isize)| if stride < 0 { (n - 1) * stride.unsigned_abs() } else { 0 };
    (strides, shape.into_iter().zip(strides).map(before).sum())
}

impl<'a, T: Element, D: Dimension> IntoView<'a> for ArrayView<'a, T, D> {
    type Value = T;

    /// Borrows the array if its memory has no gaps between elements; the axes may have any order and direction. Arrays
    /// with gaps, such as slices, and broadcast arrays are copied. Elements in the gaps cannot be borrowed, because
    /// another view may write to them.
    fn into_view(self) -> Result<CowView<'a, T>, Error> {
        let shape = four(self.shape())?;
        match self.to_slice_memory_order() {
            Some(values) if !shape.contains(&0) => {
                let (strides, offset) = places(shape, self.strides());
                Ok(View::strided(values, shape, strides, offset)?.into())
            }
            _ => CowView::copied(self.iter().copied().collect(), shape),
        }
    }
}

impl<'a, T: Element, S: Data<Elem = T>, D: Dimension> IntoView<'a> for &'a ArrayBase<S, D> {
    type Value = T;
    fn into_view(self) -> Result<CowView<'a, T>, Error> {
        self.view().into_view()
    }
}

impl<'a, T: Element, D: Dimension> IntoViewMut<'a> for ArrayViewMut<'a, T, D> {
    type Value = T;
    fn into_view_mut(self) -> Result<ViewMut<'a, T>, Error> {
        let shape = four(self.shape())?;
        if shape.contains(&0) {
            return ViewMut::new(&mut [], shape);
        }
        let (strides, offset) = places(shape, self.strides());
        let given = format!("{strides:?} for shape {shape:?}");
        match self.into_slice_memory_order() {
            Some(values) => ViewMut::strided(values, shape, strides, offset),
            None => Err(Error::Option {
                name: "the strides of an output",
                given,
                problem:
                    "the elements of the array have gaps between them in memory: give an array without gaps, then copy the result"
                        .to_owned(),
            }),
        }
    }
}

impl<'a, T: Element, S: DataMut<Elem = T>, D: Dimension> IntoViewMut<'a> for &'a mut ArrayBase<S, D> {
    type Value = T;
    fn into_view_mut(self) -> Result<ViewMut<'a, T>, Error> {
        self.view_mut().into_view_mut()
    }
}

impl<T: Element> From<Attention<T>> for Array4<T> {
    /// Returns the output, `[batch, heads, q_len, v_dim]`, without a copy.
    ///
    /// ```
    /// use ndarray::Array4;
    /// let x = Array4::<f32>::ones((1, 2, 3, 4));
    /// let out: Array4<f32> = noren::attend(&x, &x, &x, "causal")?.into();
    /// assert_eq!(out, x);
    /// # Ok::<(), noren::Error>(())
    /// ```
    ///
    /// # Panics
    /// Panics if `out` was changed and no longer has as many values as `shape`.
    fn from(attention: Attention<T>) -> Self {
        let [batch, heads, q_len, v_dim] = attention.shape;
        Array4::from_shape_vec((batch, heads, q_len, v_dim), attention.out)
            .expect("`out` must have as many values as `shape`")
    }
}

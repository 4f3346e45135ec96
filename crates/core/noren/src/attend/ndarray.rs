//! Conversions for arrays of the crate `ndarray`, with the feature `ndarray`.

use super::input::{CowView, IntoView, IntoViewMut};
use crate::inputs::view::Layout;
use crate::{Attention, Element, Error, View, ViewMut};
use ndarray::{
    Array4, ArrayBase, ArrayView, ArrayView4, ArrayViewMut, ArrayViewMut4, Axis, Data, DataMut, Dimension, ShapeBuilder,
};

/// Returns `shape` as an array of four dimensions, or an error if there are not four.
fn four(shape: &[usize]) -> Result<[usize; 4], Error> {
    shape.try_into().map_err(|_| Error::Shape {
        name: "an array",
        given: shape.to_vec(),
        expected: "four dimensions are needed, [batch, heads, length, head_dim]: insert axes of length 1 (insert_axis)"
            .to_owned(),
    })
}

/// Returns the strides as an array, and the index of element `[0, 0, 0, 0]`. The element with the lowest address has
/// the index 0. The returned index is not 0 if a stride is negative: for example, it is 2 for three elements in
/// reversed order.
fn places(shape: [usize; 4], strides: &[isize]) -> ([isize; 4], usize) {
    let strides: [isize; 4] = std::array::from_fn(|axis| strides[axis]);
    let before = |(n, stride): (usize, isize)| if stride < 0 { (n - 1) * stride.unsigned_abs() } else { 0 };
    (strides, shape.into_iter().zip(strides).map(before).sum())
}

impl<'a, T: Element, D: Dimension> IntoView<'a> for ArrayView<'a, T, D> {
    type Value = T;

    /// Borrows the array if its memory has no gaps between elements; the axes may have any order and direction.
    /// Broadcast arrays, and arrays with gaps, such as slices, are copied. A borrowed slice would contain the elements
    /// in the gaps, and another view may write to these elements.
    fn into_view(self) -> Result<CowView<'a, T>, Error> {
        let shape = four(self.shape())?;
        match self.to_slice_memory_order() {
            Some(values) if !shape.contains(&0) => {
                let (strides, offset) = places(shape, self.strides());
                Ok(View::strided(values, shape, strides, offset)?.into())
            }
            _ => {
                let mut values = Vec::new();
                values.try_reserve_exact(self.len()).map_err(|_| Error::Shape {
                    name: "an array",
                    given: shape.to_vec(),
                    expected: "the array has gaps in memory or is broadcast, and its copy does not fit into memory: give a smaller array, or one without gaps".to_owned(),
                })?;
                values.extend(self.iter().copied());
                CowView::copied(values, shape)
            }
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
        let given = format!("an array of shape {shape:?} with strides {strides:?}");
        match self.into_slice_memory_order() {
            Some(values) => ViewMut::strided(values, shape, strides, offset),
            None => Err(Error::Option {
                name: "the output",
                given,
                problem:
                    "the memory of this array has gaps between its elements: give an array without gaps, then copy the result"
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

/// Returns the absolute values of the strides, the index in memory of the element with the lowest address, and the axes
/// that have negative strides and more than one element.
fn upwards(layout: &Layout) -> ([usize; 4], usize, impl Iterator<Item = Axis> + use<>) {
    let Layout { shape, strides, offset } = *layout;
    let negative = move |axis: &usize| strides[*axis] < 0 && shape[*axis] > 1;
    let steps = strides.map(isize::unsigned_abs);
    let below: usize = (0..4).filter(negative).map(|axis| (shape[axis] - 1) * steps[axis]).sum();
    (steps, offset - below, (0..4).filter(negative).map(Axis))
}

impl<'a, T: Element> From<View<'a, T>> for ArrayView4<'a, T> {
    /// Returns the view as an array of ndarray, with the same strides and without a copy.
    ///
    /// ```
    /// use ndarray::ArrayView4;
    /// use noren::View;
    /// let view = View::strided(&[1f32, 2.0, 3.0], [1, 1, 3, 1], [0, 0, -1, 1], 2)?; // reversed
    /// assert_eq!(ArrayView4::from(view).iter().copied().collect::<Vec<_>>(), [3.0, 2.0, 1.0]);
    /// # Ok::<(), noren::Error>(())
    /// ```
    fn from(view: View<'a, T>) -> Self {
        let (data, layout) = view.into_parts();
        let (steps, lowest, negative) = upwards(&layout);
        let shape = layout.shape.strides(steps);
        let mut array =
            ArrayView4::from_shape(shape, &data[lowest..]).expect("all elements of a view are inside its memory");
        negative.for_each(|axis| array.invert_axis(axis));
        array
    }
}

impl<'a, T: Element> From<ViewMut<'a, T>> for ArrayViewMut4<'a, T> {
    /// Returns the view as an array of ndarray that can be written, with the same strides and without a copy.
    fn from(view: ViewMut<'a, T>) -> Self {
        let (data, layout) = view.into_parts();
        let (steps, lowest, negative) = upwards(&layout);
        let shape = layout.shape.strides(steps);
        let mut array = ArrayViewMut4::from_shape(shape, &mut data[lowest..])
            .expect("no elements of a view share a place in memory");
        negative.for_each(|axis| array.invert_axis(axis));
        array
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

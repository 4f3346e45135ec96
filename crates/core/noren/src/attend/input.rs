//! [`IntoView`]: the array types for queries, keys and values.

use crate::{Element, Error, View, ViewMut};

/// An array `[batch, heads, length, head_dim]` that [`attend`](crate::attend()) and [`Attend`](crate::Attend) accept as
/// an input. The table lists the types, and whether the values are copied.
///
/// | given | copied |
/// |---|---|
/// | `(&[T], shape)`, also of `Vec`, `Box<[T]>` and `[T; N]`: contiguous values | no |
/// | [`View`], `&View`: any strides | no |
/// | `&ndarray::ArrayBase`, `ArrayView` (feature `ndarray`): axes in any order and direction | only if the memory has gaps between the elements |
///
/// `T` is `f32`, [`bf16`](crate::bf16) or [`f16`](struct@crate::f16).
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an array of four dimensions `[batch, heads, length, head_dim]`",
    label = "expected `(&values, [batch, heads, length, head_dim])`, a `View` or an array of ndarray",
    note = "values are `f32`, `bf16` or `f16`; arrays of ndarray need the feature `ndarray` of `noren`"
)]
pub trait IntoView<'a> {
    /// The element type of the array.
    type Value: Element;

    /// Returns a view of the values, or a copy of the values if they cannot be borrowed.
    ///
    /// # Errors
    /// Returns an error if the shape does not fit the values.
    fn into_view(self) -> Result<CowView<'a, Self::Value>, Error>;
}

/// Returns the view of the argument `name`, or an error that names it.
pub(super) fn view<'a, A: IntoView<'a>>(name: &'static str, array: A) -> Result<CowView<'a, A::Value>, Error> {
    array.into_view().map_err(|error| error.named(name))
}

/// A [`View`] of borrowed values, or a contiguous copy of values that a view cannot describe.
#[derive(Clone, Debug)]
pub struct CowView<'a, T = f32>(Kind<'a, T>);

#[derive(Clone, Debug)]
enum Kind<'a, T> {
    Borrowed(View<'a, T>),
    Copied(Vec<T>, [usize; 4]),
}

impl<'a, T: Element> CowView<'a, T> {
    /// Returns a contiguous array that owns its values.
    ///
    /// # Errors
    /// Returns an error if the shape does not fit the values.
    pub fn copied(values: Vec<T>, shape: [usize; 4]) -> Result<Self, Error> {
        View::new(&values, shape)?;
        Ok(CowView(Kind::Copied(values, shape)))
    }

    /// Returns whether the values are a copy.
    pub fn is_copied(&self) -> bool {
        matches!(self.0, Kind::Copied(..))
    }

    /// Returns a view of the values.
    pub fn view(&self) -> View<'_, T> {
        match &self.0 {
            Kind::Borrowed(view) => *view,
            Kind::Copied(values, shape) => View::new(values, *shape).expect("the shape was checked before"),
        }
    }
}

impl<'a, T> From<View<'a, T>> for CowView<'a, T> {
    fn from(view: View<'a, T>) -> Self {
        CowView(Kind::Borrowed(view))
    }
}

impl<'a, T: Element> IntoView<'a> for View<'a, T> {
    type Value = T;
    fn into_view(self) -> Result<CowView<'a, T>, Error> {
        Ok(self.into())
    }
}

impl<'a, T: Element> IntoView<'a> for &View<'a, T> {
    type Value = T;
    fn into_view(self) -> Result<CowView<'a, T>, Error> {
        Ok((*self).into())
    }
}

impl<'a, T: Element> IntoView<'a> for (&'a [T], [usize; 4]) {
    type Value = T;
    fn into_view(self) -> Result<CowView<'a, T>, Error> {
        Ok(View::new(self.0, self.1)?.into())
    }
}

/// An array that [`Attend::forward_into`](crate::Attend::forward_into) writes: `(&mut [T], shape)`, also of `Vec`,
/// `Box<[T]>` and `[T; N]`, or [`ViewMut`]. With the feature `ndarray`, also arrays of the crate `ndarray` whose memory has no gaps.
pub trait IntoViewMut<'a> {
    /// The element type of the array.
    type Value: Element;

    /// Returns a view through which the array can be written.
    ///
    /// # Errors
    /// Returns an error if the shape does not fit the memory.
    fn into_view_mut(self) -> Result<ViewMut<'a, Self::Value>, Error>;
}

impl<'a, T: Element> IntoViewMut<'a> for ViewMut<'a, T> {
    type Value = T;
    fn into_view_mut(self) -> Result<ViewMut<'a, T>, Error> {
        Ok(self)
    }
}

impl<'a, T: Element> IntoViewMut<'a> for (&'a mut [T], [usize; 4]) {
    type Value = T;
    fn into_view_mut(self) -> Result<ViewMut<'a, T>, Error> {
        ViewMut::new(self.0, self.1)
    }
}

/// Implements both traits for containers of values in one slice.
macro_rules! containers {
    ($($container:ty $(, $size:ident)?;)*) => {$(
        impl<'a, T: Element $(, const $size: usize)?> IntoView<'a> for (&'a $container, [usize; 4]) {
            type Value = T;
            fn into_view(self) -> Result<CowView<'a, T>, Error> {
                (&self.0[..], self.1).into_view()
            }
        }

        impl<'a, T: Element $(, const $size: usize)?> IntoViewMut<'a> for (&'a mut $container, [usize; 4]) {
            type Value = T;
            fn into_view_mut(self) -> Result<ViewMut<'a, T>, Error> {
                (&mut self.0[..], self.1).into_view_mut()
            }
        }
    )*};
}
containers! {
    Vec<T>;
    Box<[T]>;
    [T; N], N;
}

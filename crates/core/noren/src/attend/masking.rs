//! [`IntoMasking`]: the types that attention accepts as a mask.

use crate::Error;
use noren_mask::{Mask, Plan, Spec};
use std::sync::Arc;

/// The mask of a call: a mask with or without score modifiers, or a plan that the caller has made.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Masking<'a> {
    /// A mask, with or without score modifiers.
    Spec(Spec),
    /// A borrowed plan. A plan has a fixed shape and fixed facts (the data to which its mask was bound), and no score
    /// modifiers.
    Plan(&'a Plan),
    /// A plan that several owners share.
    Shared(Arc<Plan>),
}

/// A mask for [`attend`](crate::attend()) and [`Attend`](crate::Attend): a text, a [`Mask`], a [`Spec`] (a mask with
/// score modifiers), or a [`Plan`].
pub trait IntoMasking<'a> {
    /// Returns the mask or the plan.
    ///
    /// # Errors
    /// Returns [`Error::Parse`] if a text is not a valid mask.
    fn into_masking(self) -> Result<Masking<'a>, Error>;
}

impl<'a> IntoMasking<'a> for Masking<'a> {
    fn into_masking(self) -> Result<Masking<'a>, Error> {
        Ok(self)
    }
}

impl<'a> IntoMasking<'a> for &str {
    fn into_masking(self) -> Result<Masking<'a>, Error> {
        Ok(Masking::Spec(self.parse()?))
    }
}

impl<'a> IntoMasking<'a> for Mask {
    fn into_masking(self) -> Result<Masking<'a>, Error> {
        Ok(Masking::Spec(self.into()))
    }
}

impl<'a> IntoMasking<'a> for Spec {
    fn into_masking(self) -> Result<Masking<'a>, Error> {
        Ok(Masking::Spec(self))
    }
}

impl<'a> IntoMasking<'a> for &'a Plan {
    fn into_masking(self) -> Result<Masking<'a>, Error> {
        Ok(Masking::Plan(self))
    }
}

impl<'a> IntoMasking<'a> for Plan {
    fn into_masking(self) -> Result<Masking<'a>, Error> {
        Ok(Masking::Shared(Arc::new(self)))
    }
}

impl<'a> IntoMasking<'a> for Arc<Plan> {
    fn into_masking(self) -> Result<Masking<'a>, Error> {
        Ok(Masking::Shared(self))
    }
}

impl<'a> IntoMasking<'a> for String {
    fn into_masking(self) -> Result<Masking<'a>, Error> {
        self.as_str().into_masking()
    }
}

macro_rules! by_clone {
    ($($kind:ty),*) => {$(
        impl<'a> IntoMasking<'a> for &$kind {
            fn into_masking(self) -> Result<Masking<'a>, Error> {
                self.clone().into_masking()
            }
        }
    )*};
}
by_clone!(String, Mask, Spec, Arc<Plan>);

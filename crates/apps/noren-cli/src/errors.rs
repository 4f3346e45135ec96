//! Converts errors of the libraries to [`Failure`]. The conversions for noren-mask and noren-input are in `failure.rs`.

use crate::failure::Failure;

impl From<noren::Error> for Failure {
    fn from(error: noren::Error) -> Self {
        match error {
            noren::Error::Parse(error) => noren_mask::Error::Parse(*error).into(),
            noren::Error::Missing { part, what, fix } => noren_mask::Error::Missing { part, what, fix }.into(),
            noren::Error::Mask(error) => error.into(),
            other => Failure::new(other.to_string()),
        }
    }
}

impl From<noren_dist::Error> for Failure {
    fn from(error: noren_dist::Error) -> Self {
        match error {
            noren_dist::Error::Mask(error) => error.into(),
            other => Failure::new(other.to_string()),
        }
    }
}

#[cfg(feature = "models")]
impl From<noren_text::Error> for Failure {
    fn from(error: noren_text::Error) -> Self {
        Failure::new(error.to_string())
    }
}

//! Exact masked attention on CPUs.
mod attention;
mod error;
mod kernel;
mod options;

pub mod reference;
mod view;

pub use attention::{Output, attention, attention_into};
pub use error::Error;
pub use kernel::level::Level;
pub use noren_mask;
pub use noren_mask::Shape;
pub use options::{Bias, Options};
pub use view::{View, ViewMut};

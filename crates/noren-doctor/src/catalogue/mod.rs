//! The catalogue: every known class of mistake, how it shows, how it is found, what usually causes it, what repairs it.

mod arrays;
mod beside;
mod class;
mod terms;

pub use class::{Class, Example};

use std::sync::LazyLock;

/// All classes, in the catalogue's order.
///
/// ```
/// let classes = noren_doctor::classes();
/// assert!(classes.iter().any(|c| c.name == "causal_leak" && c.code == "C02"));
/// ```
pub fn classes() -> &'static [Class] {
    static ALL: LazyLock<Vec<Class>> = LazyLock::new(|| [arrays::CLASSES, terms::CLASSES, beside::CLASSES].concat());
    &ALL
}

/// The class of this name.
pub(crate) fn class(name: &str) -> Option<&'static Class> {
    classes().iter().find(|c| c.name == name)
}

//! The catalogue: every known class of mistake with its symptoms, the check that finds it, its usual cause and its repair.

mod arrays;
mod beside;
mod class;
mod terms;

pub(crate) use class::Fact;
pub use class::{Class, Example};

use std::sync::LazyLock;

/// Returns all classes in the order of the catalogue.
///
/// ```
/// let classes = noren_doctor::classes();
/// assert!(classes.iter().any(|c| c.name == "causal_leak" && c.code == "C02"));
/// ```
pub fn classes() -> &'static [Class] {
    static ALL: LazyLock<Vec<Class>> = LazyLock::new(|| [arrays::CLASSES, terms::CLASSES, beside::CLASSES].concat());
    &ALL
}

/// Returns the class named `name`; `None` if the catalogue has no such class.
pub(crate) fn class(name: &str) -> Option<&'static Class> {
    classes().iter().find(|c| c.name == name)
}

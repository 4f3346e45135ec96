//! [`Value`]: a trait for values whose type is erased, with equality, order and hash.

use std::any::Any;
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};

/// The traits that every atom derives, in a form that works for values of different types. Every type that derives
/// `Debug`, `PartialEq`, `Eq`, `PartialOrd`, `Ord` and `Hash` and can be sent between threads implements this trait.
pub trait Value: Any + fmt::Debug + Send + Sync {
    /// Returns the value as `Any`, which can be cast to the type of the value.
    fn as_any(&self) -> &dyn Any;

    /// Returns whether `other` has the type of `self` and is equal to `self`.
    fn equals(&self, other: &dyn Any) -> bool;

    /// Returns the order of `self` and `other`, or `Equal` if `other` has another type.
    fn order(&self, other: &dyn Any) -> Ordering;

    /// Hashes the value.
    fn hash_to(&self, state: &mut dyn Hasher);
}

impl<T: Any + fmt::Debug + Ord + Hash + Send + Sync> Value for T {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn equals(&self, other: &dyn Any) -> bool {
        other.downcast_ref::<T>().is_some_and(|other| self == other)
    }

    fn order(&self, other: &dyn Any) -> Ordering {
        other.downcast_ref::<T>().map_or(Ordering::Equal, |other| self.cmp(other))
    }

    fn hash_to(&self, mut state: &mut dyn Hasher) {
        self.hash(&mut state);
    }
}

//! [`Value`]: a trait for values whose type is erased, with equality, order and hash. [`ByValue`]: a shared value of such
//! a type.

use std::any::Any;
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::sync::Arc;

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

/// A shared value whose type is erased. Two of them are equal if their types and values are equal.
#[derive(Debug)]
pub(crate) struct ByValue<T: ?Sized>(pub(crate) Arc<T>);

impl<T: ?Sized> Clone for ByValue<T> {
    fn clone(&self) -> Self {
        ByValue(self.0.clone())
    }
}

impl<T: ?Sized> Deref for ByValue<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: ?Sized + Value> PartialEq for ByValue<T> {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.0.equals(other.0.as_any())
    }
}

impl<T: ?Sized + Value> Eq for ByValue<T> {}

impl<T: ?Sized + Value> Hash for ByValue<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.as_any().type_id().hash(state);
        self.0.hash_to(state);
    }
}

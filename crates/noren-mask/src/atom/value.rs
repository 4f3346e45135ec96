//! [`Value`] and [`AtomRef`]: atoms of any type as values that compare, order and hash.

use super::Atom;
use crate::atoms;
use std::any::{Any, TypeId};
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::sync::Arc;

/// What every atom derives, in a form that values of different types share. It is implemented for every type that derives `Debug`,
/// `PartialEq`, `Eq`, `PartialOrd`, `Ord` and `Hash` and can be sent between threads.
pub trait Value: Any + fmt::Debug + Send + Sync {
    /// The value, for a cast to its own type.
    fn as_any(&self) -> &dyn Any;

    /// Whether `other` has the same type and is equal.
    fn equals(&self, other: &dyn Any) -> bool;

    /// The order among values of one type; `Equal` for another type.
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

/// A shared atom of any type. It compares by value.
#[derive(Clone)]
pub struct AtomRef(Arc<dyn Atom>);

impl AtomRef {
    pub(crate) fn new(atom: impl Atom) -> Self {
        AtomRef(Arc::new(atom))
    }

    /// The atom as one of type `A`; `None` when it is another.
    pub fn downcast<A: Atom>(&self) -> Option<&A> {
        self.0.as_any().downcast_ref()
    }

    /// By the order of the registry, then by name and type: atoms of a user come after the built-in ones.
    fn rank(&self) -> (usize, &'static str, TypeId) {
        (atoms::rank(&*self.0), self.0.name(), self.0.as_any().type_id())
    }
}

impl Deref for AtomRef {
    type Target = dyn Atom;

    fn deref(&self) -> &(dyn Atom + 'static) {
        &*self.0
    }
}

impl PartialEq for AtomRef {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.0.equals(other.0.as_any())
    }
}

impl Eq for AtomRef {}

impl Hash for AtomRef {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.as_any().type_id().hash(state);
        self.0.hash_to(state);
    }
}

impl Ord for AtomRef {
    fn cmp(&self, other: &Self) -> Ordering {
        self.rank().cmp(&other.rank()).then_with(|| self.0.order(other.0.as_any()))
    }
}

impl PartialOrd for AtomRef {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Debug for AtomRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The atom as text.
impl fmt::Display for AtomRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.write(f)
    }
}

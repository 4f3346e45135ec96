//! [`Atom`]: the trait of all elementary masks, built in or defined by the user.
//!
//! An atom is a value with a name, a text and a membership: whether a query may read a key. Only the name, the text and
//! the membership are required; all other methods have a default. An atom that also returns rows and bounds
//! ([`ResolvedAtom`]) is planned as fast as the built-in atoms. The built-in atoms implement the same trait, with one
//! file for each in [`atoms`](crate::atoms).
//!
//! ```
//! use noren_mask::atom::{Atom, Pair, Reach, Resolution, ResolvedAtom, Site};
//! use noren_mask::{Facts, Mask, Shape, atoms::causal};
//! use std::ops::Range;
//!
//! /// The keys at most `reach` positions before or after the query.
//! #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
//! struct Near {
//!     reach: i64,
//! }
//!
//! impl Atom for Near {
//!     fn name(&self) -> &'static str {
//!         "near"
//!     }
//!
//!     fn write(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
//!         write!(f, "near({})", self.reach)
//!     }
//!
//!     fn allows(&self, pair: &Pair<'_>) -> bool {
//!         (pair.q - pair.k).abs() <= self.reach
//!     }
//!
//!     fn resolve(&self, _: &Site<'_>) -> Option<Resolution> {
//!         Some(Resolution::of(self.clone()))
//!     }
//! }
//!
//! impl ResolvedAtom for Near {
//!     fn row(&self, q: i64, _: Range<i64>, emit: &mut dyn FnMut(i64, i64)) {
//!         emit(q - self.reach, q + self.reach + 1);
//!     }
//!
//!     fn bounds(&self, queries: Range<i64>, _: Range<i64>) -> Reach {
//!         let (first, last) = (queries.start, queries.end - 1);
//!         let some = vec![first - self.reach..last + self.reach + 1];
//!         let every = vec![last - self.reach..first + self.reach + 1];
//!         Reach::Keys { some, every }
//!     }
//! }
//!
//! let mask = causal() & Mask::of(Near { reach: 64 });
//! assert_eq!(mask.to_string(), "causal & near(64)");
//! noren_mask::atom::verify(&mask, &Shape::square(200), &Facts::new())?;
//! let plan = mask.bind(&Shape::square(1 << 20), &Facts::new())?.plan();
//! assert!(plan.bytes() < 1 << 20);
//! # Ok::<(), noren_mask::Error>(())
//! ```

pub use crate::bind::agree::verify;
pub use crate::mask::basis::{Binding, Case, Family, Input, Line, Pair, Places, Rank, Site, Sizes, Value};
pub use crate::mask::resolution::Resolution;
pub use crate::mask::resolved::{Reach, ResolvedAtom, RowWork};
pub use crate::mask::{Atom, AtomRef, EveryLength, Simplified};
pub use crate::syntax::Picture;

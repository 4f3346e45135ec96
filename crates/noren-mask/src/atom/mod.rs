//! [`Atom`]: one thing that a mask can say, built in or your own.
//!
//! An atom is a value with a name, a text and a membership: whether a query may read a key. That much is enough: everything else has a
//! default. An atom that also answers for rows and ranges of rows ([`ResolvedAtom`]) plans as well as the built-in ones, which
//! implement the same trait, one file each in [`atoms`](crate::atoms).
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

mod definition;
mod every_length;
mod member;
mod pair;
mod resolved;
mod simplified;
mod value;
mod verify;

pub use crate::bind::Binding;
pub(crate) use definition::Builtin;
pub use definition::Picture;
pub(crate) use definition::{Arms, Definition, Entry, Param, Read, Word, may, need};
pub use every_length::{Case, EveryLength, Places, Sizes};
pub(crate) use member::Membership;
pub use pair::{Pair, Site};
pub(crate) use resolved::ResolvedRef;
pub use resolved::{Reach, Resolution, ResolvedAtom};
pub(crate) use simplified::Line;
pub use simplified::{Family, Simplified};
pub use value::{AtomRef, Value};
pub use verify::verify;

use crate::Error;
use std::fmt;

/// One thing that a mask can say: which keys each query may read.
///
/// An atom is a value: it derives `Clone`, `Debug`, `PartialEq`, `Eq`, `PartialOrd`, `Ord` and `Hash` over its parameters. Two atoms that
/// are equal must allow the same cells. [`Mask::of`](crate::Mask::of) makes a mask of it.
///
/// [`allows`](Self::allows) is the definition. Cells, explanations and comparisons ask it and nothing else.
/// [`resolve`](Self::resolve) gives planning a faster form of the same cells; without one, planning looks at every cell that the
/// other parts of a mask leave open. [`verify`] compares the two.
pub trait Atom: Value {
    /// The word under which masks name the atom.
    fn name(&self) -> &'static str;

    /// Writes the atom as it stands in a mask: the name and the parameters that are not the default.
    ///
    /// # Errors
    /// Those of the formatter.
    fn write(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result;

    /// Refuses parameters that make no sense whatever the shape, in words that say how to fix them: `size is 0: give at least 1`.
    ///
    /// # Errors
    /// The problem.
    fn check(&self) -> Result<(), String> {
        Ok(())
    }

    /// What the cells depend on beside the positions of query and key. Batch rows and heads that an atom does not depend on share a plan.
    fn inputs(&self) -> Vec<Input<'_>> {
        Vec::new()
    }

    /// Refuses a shape or facts that the atom cannot be bound to: facts that are missing, lists of another length.
    ///
    /// # Errors
    /// [`Binding::missing`] or [`Binding::refuse`].
    fn fits(&self, binding: &Binding<'_>) -> Result<(), Error> {
        let _ = binding;
        Ok(())
    }

    /// Whether the query may read the key: the definition. It is called after [`check`](Self::check) and [`fits`](Self::fits) and is a
    /// pure function; planning calls it from several threads.
    fn allows(&self, pair: &Pair<'_>) -> bool;

    /// One sentence, without a capital and a full stop, on why the pair is `allowed` or not.
    fn why(&self, pair: &Pair<'_>, allowed: bool) -> String {
        let verb = if allowed { "may read" } else { "may not read" };
        format!("query {} {verb} key {}", pair.q, pair.k)
    }

    /// The same cells in the form that planning asks, for one batch row and head; `None` leaves planning to [`allows`](Self::allows).
    fn resolve(&self, site: &Site<'_>) -> Option<Resolution> {
        let _ = site;
        None
    }

    /// A simpler expression of the same cells for every shape and all facts.
    fn simplify(&self) -> Simplified {
        Simplified::Same
    }

    /// Where [`Mask::simplify`](crate::Mask::simplify) puts the atom among the operands of `&` and `|`.
    fn family(&self) -> Family {
        Family::Own
    }

    /// What [`Mask::equivalent`](crate::Mask::equivalent) must know of the atom: nothing, the positions and distances at which its
    /// cells change, or another mask of the same cells.
    fn every_length(&self, case: Case) -> EveryLength {
        let _ = case;
        EveryLength::Unknown
    }

    /// The lengths and the batch that the atom's lists are for.
    fn sizes(&self, case: Case) -> Sizes {
        let _ = case;
        Sizes::default()
    }
}

/// What the cells of an atom depend on, beside the positions of query and key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Input<'a> {
    /// The batch row.
    Batch,
    /// The query head.
    Head,
    /// Which tokens are real, from the facts.
    Lengths,
    /// The documents of the facts.
    Documents,
    /// The levels of the facts.
    Levels,
    /// The positions that carry a label of the facts.
    Label(&'a str),
    /// An array of the facts.
    Array(&'a str),
    /// A closure of the facts.
    Closure(&'a str),
}

//! [`Mask::from_fn`]: a Rust function as an atom.

use super::shared::given_words;
use crate::basis::{Family, Input, Pair, Rank, Site};
use crate::facts::Closure;
use crate::mask::{Atom, Mask};
use crate::pattern::{Pattern, SharedClosure};
use crate::resolution::Resolution;
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Range;
use std::sync::Arc;

/// An atom that is a function of (batch row, head, query row, key index). Two of these atoms are equal only if they are
/// clones of one atom.
#[derive(Clone, Debug)]
struct Function(Closure);

impl Mask {
    /// Returns the mask of the cells that a function over (batch row, head, query row, key index) allows. The function must be
    /// pure; several threads call it at once. Planning calls the function for every cell that the other parts of the mask do
    /// not decide. Planning is faster with bounds ([`from_fn_with_bounds`](Self::from_fn_with_bounds)) or an
    /// [atom](crate::atom).
    ///
    /// ```
    /// use noren_mask::{Facts, Mask, Shape, atoms::causal};
    /// let even = Mask::from_fn(|_, _, q, k| (q + k) % 2 == 0);
    /// let bound = (causal() & even).bind(&Shape::square(8), &Facts::new())?;
    /// assert!(bound.allowed(0, 0, 5, 3) && !bound.allowed(0, 0, 5, 4));
    /// # Ok::<(), noren_mask::Error>(())
    /// ```
    ///
    /// The mask is equal to its own clones only, prints as `function` and has no serial form.
    pub fn from_fn(allowed: impl Fn(usize, usize, usize, usize) -> bool + Send + Sync + 'static) -> Mask {
        Mask::of(Function(Closure { allowed: Arc::new(allowed), bounds: None }))
    }

    /// Returns the mask of [`from_fn`](Self::from_fn) with bounds. `bounds` takes (batch row, head, range of query
    /// rows), and returns two lists: the keys that at least one row may read, and the keys that every row may read.
    /// Wrong bounds give wrong cells in whole tiles.
    pub fn from_fn_with_bounds(
        allowed: impl Fn(usize, usize, usize, usize) -> bool + Send + Sync + 'static,
        bounds: impl Fn(usize, usize, Range<usize>) -> (Vec<Range<u32>>, Vec<Range<u32>>) + Send + Sync + 'static,
    ) -> Mask {
        Mask::of(Function(Closure { allowed: Arc::new(allowed), bounds: Some(Arc::new(bounds)) }))
    }
}

impl Function {
    fn address(&self) -> usize {
        Arc::as_ptr(&self.0.allowed).cast::<()>().addr()
    }
}

impl PartialEq for Function {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Function {}

impl PartialOrd for Function {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Function {
    fn cmp(&self, other: &Self) -> Ordering {
        self.address().cmp(&other.address())
    }
}

impl Hash for Function {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.address().hash(state);
    }
}

impl Atom for Function {
    fn name(&self) -> &'static str {
        "function"
    }

    fn write(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("function")
    }

    fn inputs(&self) -> Vec<Input<'_>> {
        vec![Input::Batch, Input::Head]
    }

    fn allows(&self, pair: &Pair<'_>) -> bool {
        (self.0.allowed)(pair.batch, pair.head, pair.row, pair.key)
    }

    fn why(&self, pair: &Pair<'_>, allowed: bool) -> String {
        given_words("function", pair, allowed)
    }

    fn resolve(&self, site: &Site<'_>) -> Option<Resolution> {
        let closure = Box::new(SharedClosure(self.0.clone()));
        Some(Resolution(Pattern::Closure { closure, batch: site.batch(), head: site.head() }))
    }

    fn rank(&self) -> Rank {
        Family::Given.into()
    }
}

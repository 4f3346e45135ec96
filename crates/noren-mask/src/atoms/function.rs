//! [`Mask::from_fn`]: a Rust function as an atom.

use super::shared::given_words;
use crate::Error;
use crate::basis::{Family, Input, Pair, Rank, Site};
use crate::facts::Closure;
use crate::mask::{Atom, Mask};
use crate::pattern::{Pattern, SharedClosure};
use crate::philox::philox;
use crate::resolution::Resolution;
use crate::resolve::RowFacts;
use crate::sentence::Sentence;
use crate::shape::Shape;
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Range;
use std::sync::Arc;

/// An atom whose cells a function of (batch row, head, query row, key index) gives. Two such atoms are equal only if
/// one is a clone of the other: the same function with the same bounds.
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

impl Mask {
    /// Adds bounds to the mask of [`from_fn`](Self::from_fn), so that mask and bounds are written in one expression:
    /// `Mask::from_fn(allowed).with_bounds(bounds)`. [`from_fn_with_bounds`](Self::from_fn_with_bounds) describes
    /// `bounds`.
    ///
    /// ```
    /// use noren_mask::{Facts, Mask, Shape};
    /// let mask = Mask::from_fn(|_, _, q, k| k <= q && q - k < 8).with_bounds(|_, _, rows| {
    ///     let (first, end) = (rows.start as u32, rows.end as u32);
    ///     (vec![first.saturating_sub(7)..end], vec![end.saturating_sub(8)..first + 1])
    /// })?;
    /// mask.check_bounds(&Shape::square(1 << 20), 1000)?;
    /// let plan = mask.bind(&Shape::square(1 << 20), &Facts::new())?.plan();
    /// assert!(plan.bytes() < 4 << 20);
    /// # Ok::<(), noren_mask::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns an error if the mask was not made by `from_fn`: only such a mask takes bounds.
    pub fn with_bounds(
        self,
        bounds: impl Fn(usize, usize, Range<usize>) -> (Vec<Range<u32>>, Vec<Range<u32>>) + Send + Sync + 'static,
    ) -> Result<Mask, Error> {
        match self.atom_as::<Function>() {
            Some(Function(closure)) => {
                Ok(Mask::of(Function(Closure { allowed: closure.allowed.clone(), bounds: Some(Arc::new(bounds)) })))
            }
            None => Err(Error::atom(
                &self,
                "only a mask made by Mask::from_fn can have bounds: add the bounds to such a mask",
            )),
        }
    }

    /// Compares the bounds of a mask function with its cells, at `samples` cells that are spread over the shape. Equal
    /// arguments select the same cells. Bounds that are wrong for many cells are found with high probability; a result
    /// without error is no proof.
    ///
    /// # Errors
    /// Returns an error that names a wrong cell: the query reads a key outside of the bounds, or does not read a key of
    /// the lower bound. Also returns an error if the mask is not a function with bounds, or if the shape is invalid.
    pub fn check_bounds(&self, shape: &Shape, samples: u32) -> Result<(), Error> {
        shape.check()?;
        let closure = self.atom_as::<Function>().map(|function| &function.0);
        let Some((closure, bounds)) = closure.and_then(|closure| Some((closure, closure.bounds.as_ref()?))) else {
            return Err(Error::atom(
                self,
                "the mask is not a function with bounds: give Mask::from_fn(..).with_bounds(..)",
            ));
        };
        let (q_len, kv_len) = (shape.q_len(), shape.kv_len());
        for sample in 0..samples {
            let [batch, head, row, key] = philox([sample, 0, 0, 0], 0).map(|draw| draw as usize);
            let (batch, head) = (batch % shape.batch_len(), head % shape.head_count());
            let (row, key) = (row % q_len, key % kv_len);
            // ranges of 1 to 128 rows that contain the row
            let (first, end) =
                (row.saturating_sub(sample as usize % 64), (row + 1 + sample as usize / 64 % 64).min(q_len));
            let (some, every) = bounds(batch, head, first..end);
            let holds = |list: &[Range<u32>]| list.iter().any(|keys| keys.contains(&(key as u32)));
            let allowed = (closure.allowed)(batch, head, row, key);
            let problem = match (allowed, holds(&some), holds(&every)) {
                (true, false, _) => format!("query row {row} reads key {key}, but the bounds give this key to no row"),
                (false, _, true) => {
                    format!("query row {row} does not read key {key}, but the bounds give this key to every row")
                }
                _ => continue,
            };
            return Err(Error::atom(
                self,
                format!(
                    "the bounds of query rows {first}..{end} in batch row {batch}, head {head} are wrong: {problem}"
                ),
            ));
        }
        Ok(())
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
        self.0.addresses().cmp(&other.0.addresses())
    }
}

impl Hash for Function {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.addresses().hash(state);
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

    fn sentence<'a>(&'a self, _: RowFacts<'a>) -> Option<Sentence<'a>> {
        Some(given_words("function"))
    }

    fn resolve(&self, site: &Site<'_>) -> Option<Resolution> {
        let closure = Box::new(SharedClosure(self.0.clone()));
        Some(Resolution(Pattern::Closure { closure, batch: site.batch(), head: site.head() }))
    }

    fn rank(&self) -> Rank {
        Family::Given.into()
    }
}

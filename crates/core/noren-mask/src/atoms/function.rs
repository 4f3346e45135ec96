//! [`Mask::from_fn`]: a Rust function as an atom.

use super::prelude::*;
use super::shared::given_words;
use std::sync::Arc;

/// A cell by the positions of its query and its key: the argument of a function of [`Mask::from_fn`].
///
/// A position is the place of a token in its sequence, as in all atoms. It is not the row of a call or the slot of a
/// cache: in decoding, the one query of a call has the position of its token, and in a rotating cache a key keeps the
/// position at which it was written.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Cell {
    /// Index of the batch row.
    pub batch: usize,
    /// Index of the query head.
    pub head: usize,
    /// Position of the query. A negative position is before the first token.
    pub query: i64,
    /// Position of the key, at least 0.
    pub key: i64,
}

/// The cells of consecutive query positions and consecutive key positions in one batch row and head: the argument of
/// bounds ([`Mask::with_bounds`]) and of a [`TileFunction`](super::TileFunction).
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Cells {
    /// Index of the batch row.
    pub batch: usize,
    /// Index of the query head.
    pub head: usize,
    /// Positions of the queries, at least one.
    pub queries: Range<i64>,
    /// Positions of the keys.
    pub keys: Range<i64>,
}

type CellFn = dyn Fn(Cell) -> bool + Send + Sync;
type BoundsFn = dyn Fn(Cells) -> Reach + Send + Sync;

/// An atom whose cells a function gives. Two such atoms are equal only if one is a clone of the other: the same
/// function with the same bounds.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
struct Function {
    allowed: ByAddress<CellFn>,
    bounds: Option<ByAddress<BoundsFn>>,
}

impl Mask {
    /// Returns the mask of the cells that a function allows. The function gets the positions of the query and of the
    /// key, so the mask has the same meaning in a forward call, in decoding, in every kind of cache and in every row of
    /// a ragged batch. The function must be pure; several threads call it at once. Planning calls the function for
    /// every cell that the other parts of the mask do not decide. Planning is faster with bounds
    /// ([`with_bounds`](Self::with_bounds)) or an [atom](crate::atom).
    ///
    /// ```
    /// use noren_mask::{Cell, Facts, Mask, Shape, atoms::causal};
    /// let even = Mask::from_fn(|Cell { query, key, .. }| (query + key) % 2 == 0);
    /// let bound = (causal() & even).bind(&Shape::cached(5, 3), &Facts::new())?;
    /// assert!(bound.allowed(0, 0, 1, 4) && !bound.allowed(0, 0, 1, 5)); // query row 1 has position 6
    /// # Ok::<(), noren_mask::Error>(())
    /// ```
    ///
    /// The mask is equal to its own clones only, prints as `function` and has no serial form. Cells that are given by
    /// query row and key index are an array: [`dense`](crate::atoms::dense).
    pub fn from_fn(allowed: impl Fn(Cell) -> bool + Send + Sync + 'static) -> Mask {
        Mask::of(Function { allowed: ByAddress(Arc::new(allowed)), bounds: None })
    }

    /// Adds bounds to the mask of [`from_fn`](Self::from_fn). `bounds` gets consecutive query positions and consecutive
    /// key positions, and returns the key positions that at least one of the queries reads, and those that every one of
    /// them reads. Planning evaluates the function only for the cells between the two, and cuts both lists to the keys
    /// of the sequence.
    ///
    /// ```
    /// use noren_mask::{Cell, Cells, Facts, Mask, Shape, atom::Reach};
    /// let near = |Cell { query, key, .. }| key <= query && query - key < 8;
    /// let mask = Mask::from_fn(near).with_bounds(|Cells { queries, .. }| {
    ///     let (first, last) = (queries.start, queries.end - 1);
    ///     Reach::Keys { some: vec![first - 7..last + 1], every: vec![last - 7..first + 1] }
    /// })?;
    /// let plan = mask.bind(&Shape::square(1 << 20), &Facts::new())?.plan();
    /// assert!(plan.bytes() < 4 << 20);
    /// # Ok::<(), noren_mask::Error>(())
    /// ```
    ///
    /// Wrong bounds give wrong cells in whole tiles. [`verify`](crate::atom::verify) compares all bounds with the
    /// function. With debug assertions, [`bind`](Self::bind) compares samples, and returns an error that names a wrong
    /// cell.
    ///
    /// # Errors
    /// Returns an error if the mask was not made by `from_fn`: only such a mask takes bounds.
    pub fn with_bounds(self, bounds: impl Fn(Cells) -> Reach + Send + Sync + 'static) -> Result<Mask, Error> {
        match self.atom_as::<Function>() {
            Some(function) => Ok(Mask::of(Function { bounds: Some(ByAddress(Arc::new(bounds))), ..function.clone() })),
            None => Err(Error::atom(
                &self,
                "only a mask made by Mask::from_fn can have bounds: add the bounds to such a mask",
            )),
        }
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
        (self.allowed)(Cell { batch: pair.batch, head: pair.head, query: pair.q, key: pair.k })
    }

    fn sentence<'a>(&'a self, _: RowFacts<'a>) -> Option<Sentence<'a>> {
        Some(given_words("function"))
    }

    fn resolve(&self, site: &Site<'_>) -> Option<Resolution> {
        Some(Resolution::of(Placed { function: self.clone(), batch: site.batch(), head: site.head() }))
    }

    fn rank(&self) -> Rank {
        Family::Given.into()
    }
}

/// A function in one batch row and head.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
struct Placed {
    function: Function,
    batch: usize,
    head: usize,
}

impl ResolvedAtom for Placed {
    fn row(&self, query: i64, keys: Range<i64>, emit: &mut dyn FnMut(i64, i64)) {
        let allowed =
            |key: &i64| (self.function.allowed)(Cell { batch: self.batch, head: self.head, query, key: *key });
        keys.filter(allowed).for_each(|key| emit(key, key + 1));
    }

    fn bounds(&self, queries: Range<i64>, keys: Range<i64>) -> Reach {
        let cells = Cells { batch: self.batch, head: self.head, queries, keys };
        self.function.bounds.as_ref().map_or(Reach::Unknown, |bounds| bounds(cells))
    }

    fn row_work(&self) -> RowWork {
        RowWork::Keys
    }
}

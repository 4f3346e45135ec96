//! [`Mask::from_tiles`]: a function that computes cells in tiles as an atom.

use super::shared::given_words;
use super::tiles::{SharedCells, TileCells};
use crate::Error;
use crate::basis::{Binding, Family, Input, Pair, Rank, Site};
use crate::mask::{Atom, Mask};
use crate::resolution::Resolution;
use crate::resolve::frame;
use std::cmp::Ordering;
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

/// A function that computes the cells of many queries and keys at once, for [`Mask::from_tiles`].
pub trait TileFunction: Send + Sync + 'static {
    /// Returns the name of the function, for the text of the mask and for errors.
    fn name(&self) -> String;

    /// Returns whether the cells depend on the batch row.
    fn uses_batch(&self) -> bool;

    /// Returns whether the cells depend on the query head.
    fn uses_head(&self) -> bool;

    /// Returns the cells of a batch row and head, for the query positions `queries` and the key positions `0..keys_end`. The function
    /// must be pure: calls with equal arguments return equal cells. Batch row and head are 0 if the cells do not depend on them.
    ///
    /// # Errors
    /// Returns the problem and its fix if the cells cannot be computed, such as a sequence that is too long.
    fn cells(&self, batch: usize, head: usize, queries: Range<i64>, keys_end: i64) -> Result<TileCells, String>;
}

/// The number of results of the function that are stored for each batch row and head.
const KEPT: usize = 8;

/// The latest results of the function for each (batch row, head).
type Known = HashMap<(usize, usize), VecDeque<Arc<TileCells>>>;

/// An atom that is a [`TileFunction`]. Two of these atoms are equal only if they are clones of one atom.
#[derive(Clone)]
struct Tiled {
    function: Arc<dyn TileFunction>,
    known: Arc<Mutex<Known>>,
}

impl Mask {
    /// Returns the mask of the cells that a function of whole tiles allows. The function is called when the mask is bound to a shape,
    /// once for each batch row and head on which its cells depend; planning and kernels read the stored tiles. Memory follows the
    /// tiles: full tiles take no bits.
    ///
    /// ```
    /// use noren_mask::atoms::{TileCells, TileFunction};
    /// use noren_mask::{Facts, Mask, Shape};
    /// use std::ops::Range;
    ///
    /// /// Blocks of 64 queries read their own block of keys.
    /// struct Blocks;
    ///
    /// impl TileFunction for Blocks {
    ///     fn name(&self) -> String {
    ///         "blocks".into()
    ///     }
    ///     fn uses_batch(&self) -> bool {
    ///         false
    ///     }
    ///     fn uses_head(&self) -> bool {
    ///         false
    ///     }
    ///     fn cells(&self, _: usize, _: usize, queries: Range<i64>, keys_end: i64) -> Result<TileCells, String> {
    ///         if queries.start % 64 != 0 {
    ///             return Err(format!("the first query is at {}: give a multiple of 64", queries.start));
    ///         }
    ///         let first = (queries.start / 64) as u32;
    ///         let mut cells = TileCells::new(queries.clone(), keys_end);
    ///         for row in 0..((queries.end - queries.start + 63) / 64) as usize {
    ///             let tile = first + row as u32;
    ///             cells.full(row, tile..tile + 1).map_err(|error| error.to_string())?;
    ///         }
    ///         Ok(cells)
    ///     }
    /// }
    ///
    /// let mask = Mask::from_tiles(Blocks);
    /// let bound = mask.bind(&Shape::square(1000), &Facts::new())?;
    /// assert!(bound.allowed(0, 0, 70, 127) && !bound.allowed(0, 0, 70, 128));
    /// assert_eq!(mask.to_string(), "function(blocks)");
    /// # Ok::<(), noren_mask::Error>(())
    /// ```
    ///
    /// The function gets positions, as the other atoms do. [`bind`](Mask::bind) returns an error if the function does, or if a query
    /// has a negative position. The mask is equal to its own clones only and has no serial form.
    pub fn from_tiles(function: impl TileFunction) -> Mask {
        Mask::of(Tiled { function: Arc::new(function), known: Arc::default() })
    }
}

impl Tiled {
    fn address(&self) -> usize {
        Arc::as_ptr(&self.known).addr()
    }

    /// Returns the indices (batch row, head) under which cells are stored: 0 where the cells do not depend on the index.
    fn place(&self, batch: usize, head: usize) -> (usize, usize) {
        let pick = |uses: bool, index: usize| if uses { index } else { 0 };
        (pick(self.function.uses_batch(), batch), pick(self.function.uses_head(), head))
    }

    /// Returns the cells of a batch row and head for `queries` and the keys `0..keys_end`, computed if they are not stored.
    fn cells(&self, at: (usize, usize), queries: Range<i64>, keys_end: i64) -> Result<Arc<TileCells>, String> {
        let fits = |cells: &TileCells| {
            let held = cells.queries();
            held.start <= queries.start && queries.end <= held.end && keys_end <= cells.keys_end()
        };
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(cells) = known.get(&at).and_then(|list| list.iter().find(|cells| fits(cells))) {
            return Ok(cells.clone());
        }
        // the function may take long and may call this library again
        drop(known);
        let cells = Arc::new(self.function.cells(at.0, at.1, queries.clone(), keys_end)?);
        if !fits(&cells) {
            return Err(format!("the function gave no cells for the queries {queries:?} and {keys_end} keys"));
        }
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let list = known.entry(at).or_default();
        if list.len() == KEPT {
            list.pop_front();
        }
        list.push_back(cells.clone());
        Ok(cells)
    }
}

impl fmt::Debug for Tiled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f)
    }
}

impl PartialEq for Tiled {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Tiled {}

impl PartialOrd for Tiled {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Tiled {
    fn cmp(&self, other: &Self) -> Ordering {
        self.address().cmp(&other.address())
    }
}

impl Hash for Tiled {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.address().hash(state);
    }
}

impl Atom for Tiled {
    fn name(&self) -> &'static str {
        "function"
    }

    fn write(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "function({})", self.function.name())
    }

    fn inputs(&self) -> Vec<Input<'_>> {
        let batch = self.function.uses_batch().then_some(Input::Batch);
        batch.into_iter().chain(self.function.uses_head().then_some(Input::Head)).collect()
    }

    fn fits(&self, binding: &Binding<'_>) -> Result<(), Error> {
        let shape = binding.shape();
        let heads = if self.function.uses_head() { shape.head_count() } else { 1 };
        let places = (0..shape.batch_len()).flat_map(|batch| (0..heads).map(move |head| (batch, head)));
        for (batch, head) in places {
            let frame = frame(shape, binding.facts(), batch);
            if frame.offset < 0 {
                return binding.refuse(format!(
                    "query row 0 of batch row {batch} has position {}, but the function takes positions from 0: give a \
                     query offset of 0 or more",
                    frame.offset
                ));
            }
            let queries = frame.query(0)..frame.query(frame.q_len);
            if let Err(problem) = self.cells(self.place(batch, head), queries, frame.end()) {
                return binding.refuse(problem);
            }
        }
        Ok(())
    }

    fn allows(&self, pair: &Pair<'_>) -> bool {
        let frame = pair.facts.frame;
        let queries = frame.query(0)..frame.query(frame.q_len);
        // a result that is no longer stored is computed again: `bind` has checked that the function returns it
        self.cells(self.place(pair.batch, pair.head), queries, frame.end())
            .is_ok_and(|cells| cells.allowed(pair.q, pair.k))
    }

    fn why(&self, pair: &Pair<'_>, allowed: bool) -> String {
        given_words(&format!("the function {}", self.function.name()), pair, allowed)
    }

    fn resolve(&self, site: &Site<'_>) -> Option<Resolution> {
        let queries = site.query_offset()..site.query_offset() + site.q_len() as i64;
        let cells = self.cells(self.place(site.batch(), site.head()), queries, site.keys_end()).ok()?;
        Some(Resolution::of(SharedCells(cells)))
    }

    fn rank(&self) -> Rank {
        Family::Given.into()
    }
}

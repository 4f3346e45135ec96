//! [`Mask::from_tiles`]: an atom whose cells are computed tile by tile by a function of the user.

use super::function::Cells;
use super::prelude::*;
use super::shared::given_words;
use super::tiles::TileCells;
use crate::facts::resolve::frame;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

/// A function that computes the cells of many queries and keys at once, for [`Mask::from_tiles`].
pub trait TileFunction: Send + Sync + 'static {
    /// Returns the name of the function, for the text of the mask and for errors.
    fn name(&self) -> String;

    /// Returns whether the cells depend on the batch row.
    fn uses_batch(&self) -> bool;

    /// Returns whether the cells depend on the query head.
    fn uses_head(&self) -> bool;

    /// Returns the cells at the given positions of queries and keys. The positions of the keys begin at 0. The function must be
    /// pure: calls with equal arguments return equal cells. Batch row and head are 0 if the cells do not depend on them.
    ///
    /// # Errors
    /// Returns the problem and its fix if the cells cannot be computed, such as a sequence that is too long.
    fn cells(&self, of: Cells) -> Result<TileCells, String>;
}

/// The maximum number of shapes for which the results of a tile function are stored. For each shape, one result is
/// stored per batch row and head.
const SHAPES: usize = 8;

/// The maximum memory of stored results of one tile function, in bytes. The latest result is stored even if it is larger.
const BYTES: usize = 256 << 20;

/// The estimated memory of one stored result in addition to its tiles, in bytes.
const OVERHEAD: usize = 256;

/// The arguments of a call of the tile function: (batch row, head), first query position, end of the query positions,
/// end of the key positions. Both ends are excluded.
type Call = ((usize, usize), i64, i64, i64);

/// The stored results of the latest calls of a tile function.
#[derive(Default)]
struct Known {
    /// The results by the arguments of the call. If a result covers the cells of another call, it is also stored under
    /// the arguments of that call.
    by_call: HashMap<Call, Arc<TileCells>>,
    /// The keys of the map `by_call` in the order of insertion, the oldest first.
    order: VecDeque<Call>,
    /// The memory of the stored results in bytes. A result that is stored under two calls counts twice.
    bytes: usize,
    /// The maximum number of calls of the tile function that one shape needs, over all shapes to which the mask was
    /// bound.
    calls: usize,
}

impl Known {
    /// Returns the stored result for the arguments `call`, or a stored result for the same batch row and head that
    /// contains all queries and keys of `call`. Returns `None` if there is neither.
    fn get(&mut self, call: Call) -> Option<Arc<TileCells>> {
        if let Some(cells) = self.by_call.get(&call) {
            return Some(cells.clone());
        }
        let same_place = self.by_call.iter().filter(|(other, _)| other.0 == call.0);
        let cells = same_place.map(|(_, cells)| cells).find(|cells| fits(cells, call))?.clone();
        self.put(call, cells.clone());
        Some(cells)
    }

    /// Stores the cells of a call. Then removes the oldest entries until the number of entries and their bytes are
    /// within the limits.
    fn put(&mut self, call: Call, cells: Arc<TileCells>) {
        self.bytes += cells.bytes() + OVERHEAD;
        match self.by_call.insert(call, cells) {
            // another thread has computed the same cells
            Some(before) => self.bytes -= before.bytes() + OVERHEAD,
            None => self.order.push_back(call),
        }
        while self.order.len() > 1 && (self.order.len() > SHAPES * self.calls.max(1) || self.bytes > BYTES) {
            let removed = self.order.pop_front().and_then(|oldest| self.by_call.remove(&oldest));
            self.bytes -= removed.map_or(0, |cells| cells.bytes() + OVERHEAD);
        }
    }
}

/// Returns whether `cells`, the result of an earlier call of the tile function, contains all queries and keys of the
/// given call.
fn fits(cells: &TileCells, (_, start, end, keys_end): Call) -> bool {
    let held = cells.queries();
    held.start <= start && end <= held.end && keys_end <= cells.keys_end()
}

/// An atom whose cells a [`TileFunction`] computes. Two such atoms are equal only if one is a clone of the other.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
struct Tiled {
    function: ByAddress<dyn TileFunction>,
    known: ByAddress<Mutex<Known>>,
}

impl Mask {
    /// Returns the mask of the cells that a tile function allows. The function is called when the mask is bound to a
    /// shape, once for each batch row and head on which its cells depend; planning and kernels read the stored tiles.
    /// Only tiles with allowed and denied cells take one bit for each cell; full tiles take no bits.
    ///
    /// ```
    /// use noren_mask::atoms::{TileCells, TileFunction};
    /// use noren_mask::{Cells, Facts, Mask, Shape};
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
    ///     fn cells(&self, Cells { queries, keys, .. }: Cells) -> Result<TileCells, String> {
    ///         if queries.start % 64 != 0 {
    ///             return Err(format!("the first query is at {}: give a multiple of 64", queries.start));
    ///         }
    ///         let first = (queries.start / 64) as u32;
    ///         let mut cells = TileCells::new(queries.clone(), keys.end);
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
    /// The function gets positions of queries and keys, not indices. [`bind`](Mask::bind) returns an error if the
    /// function returns an error, or if a query has a negative position. The mask is equal to its own clones only and
    /// has no serial form.
    pub fn from_tiles(function: impl TileFunction) -> Mask {
        Mask::of(Tiled { function: ByAddress(Arc::new(function)), known: ByAddress(Arc::default()) })
    }
}

impl Tiled {
    /// Returns the (batch row, head) under which the cells for `batch` and `head` are stored. If the cells do not
    /// depend on the batch row or on the head, its index is replaced by 0.
    fn place(&self, batch: usize, head: usize) -> (usize, usize) {
        let pick = |uses: bool, index: usize| if uses { index } else { 0 };
        (pick(self.function.uses_batch(), batch), pick(self.function.uses_head(), head))
    }

    /// Returns the cells of the batch row and head `at` for the query positions `queries` and the key positions
    /// `0..keys_end`. Calls the tile function if these cells are not stored.
    fn cells(&self, at: (usize, usize), queries: Range<i64>, keys_end: i64) -> Result<Arc<TileCells>, String> {
        let call = (at, queries.start, queries.end, keys_end);
        // the lock is released before the function is called: it may take long and may call this library again
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner).get(call);
        if let Some(cells) = known {
            return Ok(cells);
        }
        let cells = Arc::new(self.function.cells(Cells {
            batch: at.0,
            head: at.1,
            queries: queries.clone(),
            keys: 0..keys_end,
        })?);
        if !fits(&cells, call) {
            return Err(format!(
                "the function returned cells that do not contain all query positions {queries:?} and key positions \
                 0..{keys_end}: return TileCells::new({queries:?}, {keys_end}) with the allowed cells added"
            ));
        }
        self.known.lock().unwrap_or_else(PoisonError::into_inner).put(call, cells.clone());
        Ok(cells)
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
        {
            let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
            known.calls = known.calls.max(shape.batch_len().saturating_mul(heads));
        }
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

    fn sentence<'a>(&'a self, _: RowFacts<'a>) -> Option<Sentence<'a>> {
        Some(given_words(&format!("the function {}", self.function.name())))
    }

    fn resolve(&self, site: &Site<'_>) -> Option<Resolution> {
        let queries = site.query_offset()..site.query_offset() + site.q_len() as i64;
        let cells = self.cells(self.place(site.batch(), site.head()), queries, site.keys_end()).ok()?;
        Some(Resolution::of(ByAddress(cells)))
    }

    fn rank(&self) -> Rank {
        Family::Given.into()
    }
}

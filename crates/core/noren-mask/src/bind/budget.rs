//! [`Budget`]: limits, progress reports and cancellation of planning and counting.

use crate::Error;
use std::fmt;
use std::ops::ControlFlow;

/// Limits of planning and counting, and a function that is called with their progress and may cancel them.
///
/// Limits are numbers of tiles, spans and steps, not seconds, so the result is equal on every machine. One step reads one key
/// interval or fills one word of 64 cells, in 10 to 50 nanoseconds.
///
/// ```
/// use noren_mask::{Budget, Facts, PlanOptions, Shape, atoms::*};
/// let bound = causal().bind(&Shape::square(1 << 20), &Facts::new())?;
/// let plan = bound.plan_within(&PlanOptions::default(), &Budget::new())?;
/// assert_eq!(plan.stats_within(&Budget::new())?.allowed, (1u128 << 20) * ((1 << 20) + 1) / 2);
/// let error = bound.plan_within(&PlanOptions::default(), &Budget::new().tiles(1000)).unwrap_err();
/// assert!(error.to_string().starts_with("the plan needs at least 10923 tiles, but at most 1000 are allowed: "));
/// # Ok::<(), noren_mask::Error>(())
/// ```
#[derive(Clone, Copy)]
pub struct Budget<'a> {
    tiles: u64,
    spans: u64,
    steps: u64,
    watch: Option<&'a dyn Fn(Progress) -> ControlFlow<()>>,
}

/// The computation whose progress a [`Progress`] reports.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Stage {
    /// Computation of tiles.
    Planning,
    /// Count of allowed cells.
    Counting,
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Stage::Planning => "planning",
            Stage::Counting => "counting",
        })
    }
}

/// Progress of planning or counting.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Progress {
    /// Planning or counting.
    pub stage: Stage,
    /// Number of finished query rows. The rows of all distinct patterns (sets of cells of a batch row and head) are
    /// added.
    pub rows: u64,
    /// Number of all query rows. The rows of all distinct patterns (sets of cells of a batch row and head) are added.
    pub all_rows: u64,
    /// Number of steps that planning or counting has used so far.
    pub steps: u64,
}

impl fmt::Debug for Budget<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Budget { tiles, spans, steps, watch } = self;
        let mut debug = f.debug_struct("Budget");
        debug.field("tiles", tiles).field("spans", spans).field("steps", steps).field("watched", &watch.is_some());
        debug.finish()
    }
}

impl Default for Budget<'_> {
    fn default() -> Self {
        Budget::new()
    }
}

impl<'a> Budget<'a> {
    /// Returns the default budget: at most 16,777,216 tiles, 33,554,432 spans (ranges of keys that a tile reads) and
    /// 67,108,864 steps. The spans take up to 400 MB. The steps take a few seconds and less than 1 GiB.
    pub fn new() -> Self {
        Budget { tiles: 1 << 24, spans: 1 << 25, steps: 1 << 26, watch: None }
    }

    /// Returns a budget without limits.
    pub fn unlimited() -> Self {
        Budget { tiles: u64::MAX, spans: u64::MAX, steps: u64::MAX, watch: None }
    }

    /// Limits the number of tiles of a plan. The tiles of all distinct patterns (sets of cells of a batch row and head)
    /// are added.
    pub fn tiles(self, tiles: u64) -> Self {
        Budget { tiles, ..self }
    }

    /// Limits the number of spans (ranges of keys that a tile reads) of a plan. The spans of all distinct patterns
    /// (sets of cells of a batch row and head) are added. One span takes 12 bytes.
    pub fn spans(self, spans: u64) -> Self {
        Budget { spans, ..self }
    }

    /// Limits the number of steps of one computation: planning or counting.
    pub fn steps(self, steps: u64) -> Self {
        Budget { steps, ..self }
    }

    /// Sets the watch function: planning and counting call `watch` with their progress, a few hundred times a second.
    /// If `watch` returns [`ControlFlow::Break`], the computation is cancelled.
    ///
    /// ```
    /// use noren_mask::{Budget, Error, Facts, PlanOptions, Shape, atoms::*};
    /// use std::ops::ControlFlow;
    /// let bound = random(0.5, 1).bind(&Shape::square(4096), &Facts::new())?;
    /// let cancel = |_| ControlFlow::Break(());
    /// let budget = Budget::new().watch(&cancel);
    /// assert_eq!(bound.plan().stats_within(&budget), Err(Error::Cancelled));
    /// # Ok::<(), Error>(())
    /// ```
    pub fn watch(self, watch: &'a dyn Fn(Progress) -> ControlFlow<()>) -> Self {
        Budget { watch: Some(watch), ..self }
    }
}

/// Number of steps between two calls of the watch function.
const REPORTED: u64 = 1 << 17;

/// A budget, with the numbers of steps, spans and tiles that are already used.
pub(crate) struct Meter<'a> {
    budget: Budget<'a>,
    progress: Progress,
    next_report: u64,
    tiles: u64,
    spans: u64,
}

impl<'a> Meter<'a> {
    pub(crate) fn new(budget: &Budget<'a>, stage: Stage, all_rows: u64) -> Self {
        let progress = Progress { stage, rows: 0, all_rows, steps: 0 };
        let next_report = REPORTED.min(budget.steps.saturating_add(1));
        Meter { budget: *budget, progress, next_report, tiles: 0, spans: 0 }
    }

    /// Subtracts `steps` steps from the budget.
    ///
    /// # Errors
    /// Returns an error if the budget has too few steps, or if the watch function cancels.
    #[inline]
    pub(crate) fn step(&mut self, steps: u64) -> Result<(), Error> {
        self.progress.steps = self.progress.steps.saturating_add(steps);
        if self.progress.steps >= self.next_report { self.report() } else { Ok(()) }
    }

    /// Checks that at least `steps` steps of the budget are left.
    ///
    /// # Errors
    /// Returns an error if fewer steps are left.
    pub(crate) fn needs(&self, steps: u64) -> Result<(), Error> {
        let (needed, most) = (self.progress.steps.saturating_add(steps), self.budget.steps);
        match needed <= most {
            true => Ok(()),
            false => Err(self.too_many(needed)),
        }
    }

    #[cold]
    fn too_many(&self, steps: u64) -> Error {
        let Progress { stage, rows, all_rows, .. } = self.progress;
        Error::Budget(format!(
            "{stage} takes too many steps: {steps} after {rows} of {all_rows} query rows, but at most {} are allowed: shorten the sequence, \
             simplify the mask, or allow more (`Budget::steps`)",
            self.budget.steps
        ))
    }

    #[cold]
    fn report(&mut self) -> Result<(), Error> {
        let (steps, most) = (self.progress.steps, self.budget.steps);
        self.next_report = steps.saturating_add(REPORTED).min(most.saturating_add(1));
        if steps > most {
            return Err(self.too_many(steps));
        }
        match self.budget.watch.map(|watch| watch(self.progress)) {
            Some(ControlFlow::Break(())) => Err(Error::Cancelled),
            _ => Ok(()),
        }
    }

    /// Runs `run` with a separate budget of `steps` steps. Returns `None` if `run` needs more steps.
    ///
    /// # Errors
    /// Returns an error if the watch function cancels.
    pub(crate) fn trial<T>(
        &self,
        steps: u64,
        run: impl FnOnce(&mut Meter<'a>) -> Result<T, Error>,
    ) -> Result<Option<T>, Error> {
        let budget = self.budget.steps(steps);
        let mut meter = Meter { budget, progress: Progress { steps: 0, ..self.progress }, next_report: 0, ..*self };
        match run(&mut meter) {
            Err(Error::Budget(_)) => Ok(None),
            other => other.map(Some),
        }
    }

    /// Adds `rows` to the number of finished query rows.
    pub(crate) fn done(&mut self, rows: u64) {
        self.progress.rows += rows;
    }

    /// Subtracts the minimum number of tiles for `rows` query rows, with `block_q` rows per tile, from the budget.
    ///
    /// # Errors
    /// Returns an error if the budget has too few tiles.
    pub(crate) fn tiles(&mut self, rows: u32, block_q: u32) -> Result<(), Error> {
        self.tiles = self.tiles.saturating_add(u64::from(rows.div_ceil(block_q.max(1))));
        match self.tiles <= self.budget.tiles {
            true => Ok(()),
            false => Err(Error::Budget(format!(
                "the plan needs at least {} tiles, but at most {} are allowed: plan fewer query rows at once, plan fewer heads with different masks at once, use tiles of more rows than \
                 {block_q} (block_q), or allow more (`Budget::tiles`)",
                self.tiles, self.budget.tiles
            ))),
        }
    }

    /// Subtracts `spans` spans (ranges of keys that a tile reads) from the budget.
    ///
    /// # Errors
    /// Returns an error if the budget has too few spans.
    pub(crate) fn spans(&mut self, spans: u64) -> Result<(), Error> {
        self.spans += spans;
        match self.spans <= self.budget.spans {
            true => Ok(()),
            false => Err(Error::Budget(format!(
                "the plan needs more spans than the {} that are allowed: plan fewer query rows at once, use tiles of more rows (block_q), or allow \
                 more (`Budget::spans`)",
                self.budget.spans
            ))),
        }
    }

    /// Gives `spans` spans (ranges of keys that a tile reads) back to the budget. Planning gives back the spans of each
    /// complete plan, because other orders may be tried; `guard.rs` subtracts the spans of the chosen plan at the end.
    pub(crate) fn forget_spans(&mut self, spans: u64) {
        self.spans = self.spans.saturating_sub(spans);
    }
}

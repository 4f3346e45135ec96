//! [`Work`]: the steps and the memory that a check may still use before the certificate is refused.

use crate::read::refusal::{Result, beyond};
use std::cell::Cell;

/// The maximum number of computation steps of a check. These steps take about two seconds on one core.
const MOST_STEPS: u64 = 400_000_000;

/// The maximum number of runs (half-open ranges of whole numbers) that a check may store. A run takes 16 bytes, so that
/// all runs take 192 MB, and at most 512 MiB with the unused capacity of their lists.
const MOST_STORED: u64 = 12_000_000;

/// The number of steps that a check may still take, and the number of runs that it may still store.
#[derive(Debug)]
pub(crate) struct Work {
    steps: Cell<u64>,
    stored: Cell<u64>,
}

impl Work {
    pub(crate) fn new() -> Self {
        Self { steps: Cell::new(MOST_STEPS), stored: Cell::new(MOST_STORED) }
    }

    /// Subtracts `steps + 1` from the number of computation steps that the check may still take. Refuses the
    /// certificate if fewer than `steps + 1` steps remain.
    pub(crate) fn spend(&self, steps: usize) -> Result<()> {
        let left = self.steps.get().checked_sub(steps as u64 + 1);
        self.steps.set(left.ok_or_else(|| {
            beyond(
                "the certificate",
                format!("the check takes more than {MOST_STEPS} steps: issue a certificate for fewer tokens, layers or rules"),
            )
        })?);
        Ok(())
    }

    /// Refuses the certificate if the check may take fewer than `steps` further computation steps. Subtracts no steps.
    pub(crate) fn expect(&self, steps: u128) -> Result<()> {
        if steps <= u128::from(self.steps.get()) {
            return Ok(());
        }
        Err(beyond(
            "the certificate",
            format!(
                "the check takes at least {steps} steps, and at most {MOST_STEPS} are allowed: issue a certificate for fewer tokens, layers or rules"
            ),
        ))
    }

    /// Subtracts the `runs + 1` steps that building a temporary list of `runs` runs takes; called before the list is
    /// built. Refuses the certificate if the list does not fit into the remaining memory. Reserves no memory.
    pub(crate) fn list(&self, runs: i64) -> Result<()> {
        let runs = usize::try_from(runs).unwrap_or(0);
        self.spend(runs)?;
        let space = self.space();
        self.keep(runs)?;
        self.reset(space);
        Ok(())
    }

    /// Reserves memory for `runs + 1` runs and subtracts `runs + 1` steps. Refuses the certificate if not enough memory
    /// or steps remain.
    pub(crate) fn keep(&self, runs: usize) -> Result<()> {
        if self.try_keep(runs) {
            return self.spend(runs);
        }
        Err(beyond(
            "the certificate",
            format!(
                "the check needs more than {MOST_STORED} stored ranges: issue a certificate for fewer tokens or rules"
            ),
        ))
    }

    /// Reserves memory for `runs + 1` runs and returns true, if at least half of the total memory stays free. Otherwise
    /// reserves nothing and returns false.
    pub(crate) fn may_keep(&self, runs: usize) -> bool {
        self.stored.get() > MOST_STORED / 2 + runs as u64 && self.try_keep(runs)
    }

    fn try_keep(&self, runs: usize) -> bool {
        let left = self.stored.get().checked_sub(runs as u64 + 1);
        left.inspect(|&left| self.stored.set(left)).is_some()
    }

    /// Returns the number of runs (ranges of consecutive numbers) that the check may still store.
    pub(crate) fn space(&self) -> u64 {
        self.stored.get()
    }

    /// Sets the number of runs that may still be stored back to `space`, an earlier result of `Work::space`.
    pub(crate) fn reset(&self, space: u64) {
        self.stored.set(space);
    }
}

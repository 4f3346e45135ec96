//! [`Work`]: how much a check may still do and store before a certificate is refused.

use crate::refusal::{Result, beyond};
use std::cell::Cell;

/// Steps of a check: some two seconds of one core.
const MOST_STEPS: u64 = 400_000_000;

/// Stored runs of a check: 192 MiB, and at most 512 MiB with the room that lists reserve.
const MOST_STORED: u64 = 12_000_000;

/// What is left of both.
#[derive(Debug)]
pub(crate) struct Work {
    steps: Cell<u64>,
    stored: Cell<u64>,
}

impl Work {
    pub(crate) fn new() -> Self {
        Self { steps: Cell::new(MOST_STEPS), stored: Cell::new(MOST_STORED) }
    }

    /// Takes `steps` and one more.
    pub(crate) fn spend(&self, steps: usize) -> Result<()> {
        let left = self.steps.get().checked_sub(steps as u64 + 1);
        self.steps.set(left.ok_or_else(|| {
            beyond(
                "the certificate",
                format!("it takes more than {MOST_STEPS} steps: issue one for fewer tokens, layers or rules"),
            )
        })?);
        Ok(())
    }

    /// Refuses at once what takes `steps` at least, where fewer are left.
    pub(crate) fn expect(&self, steps: u128) -> Result<()> {
        if steps <= u128::from(self.steps.get()) {
            return Ok(());
        }
        let least = format!("it takes {steps} steps at least, {MOST_STEPS} in all are done");
        Err(beyond("the certificate", format!("{least}: issue one for fewer tokens, layers or rules")))
    }

    /// Takes the steps of a list of `runs` before it is made, and refuses one that does not fit into the room that is left.
    pub(crate) fn list(&self, runs: i64) -> Result<()> {
        let runs = usize::try_from(runs).unwrap_or(0);
        self.spend(runs)?;
        let room = self.room();
        self.keep(runs)?;
        self.reset(room);
        Ok(())
    }

    /// Takes room for `runs` and one more.
    pub(crate) fn keep(&self, runs: usize) -> Result<()> {
        if self.try_keep(runs) {
            return self.spend(runs);
        }
        Err(beyond(
            "the certificate",
            format!("it takes more than {MOST_STORED} stored ranges: issue one for fewer tokens or rules"),
        ))
    }

    /// Takes room for `runs` if half of all room stays for what must be stored.
    pub(crate) fn may_keep(&self, runs: usize) -> bool {
        self.stored.get() > MOST_STORED / 2 + runs as u64 && self.try_keep(runs)
    }

    fn try_keep(&self, runs: usize) -> bool {
        let left = self.stored.get().checked_sub(runs as u64 + 1);
        left.inspect(|&left| self.stored.set(left)).is_some()
    }

    /// The room that is left.
    pub(crate) fn room(&self) -> u64 {
        self.stored.get()
    }

    /// Gives back all room that was taken since `room` was left.
    pub(crate) fn reset(&self, room: u64) {
        self.stored.set(room);
    }
}

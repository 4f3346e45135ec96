//! [`Link`]: what carries bytes between ranks.

use crate::Error;
use std::cell::Cell;
use std::time::Duration;

/// Messages to ranks, ascending by rank; none is empty.
pub type Messages = Vec<(usize, Vec<u8>)>;

/// Ranks, ascending, and how many bytes come from each; none is 0.
pub type Sizes = Vec<(usize, usize)>;

/// One rank's end of what connects the ranks of a job.
///
/// Every rank makes the same calls in the same order, so messages need no names: those from one rank to another arrive in the
/// order in which they were sent. [`threads`](crate::threads) connects threads of a process, `Mpi` (feature `mpi`) processes.
pub trait Link {
    /// Which rank this is, from 0.
    fn rank(&self) -> usize;

    /// How many there are.
    fn ranks(&self) -> usize;

    /// How long a rank may keep the others waiting: for an answer, and while it computes what they need.
    fn timeout(&self) -> Duration;

    /// What it remembers between calls.
    fn job(&self) -> &Job;

    /// Sends each message to its rank, and receives so many bytes from each rank of `expected`, while `work` runs.
    ///
    /// Returns when all has arrived and what was sent may be forgotten.
    ///
    /// # Errors
    /// What `work` returns, and [`Error::Lost`] when a rank is gone or keeps this one waiting beyond the time-out.
    fn exchange(
        &self,
        outgoing: Messages,
        expected: &Sizes,
        work: &mut dyn FnMut(&mut dyn Arrivals) -> Result<(), Error>,
    ) -> Result<(), Error>;
}

/// What is arriving during an exchange.
pub trait Arrivals {
    /// Waits for what comes from a rank, as many bytes as were expected; each may be taken once.
    ///
    /// # Errors
    /// [`Error::Lost`] as for [`Link::exchange`].
    fn take(&mut self, rank: usize) -> Result<Vec<u8>, Error>;

    /// Gives the transport a moment, where bytes move only when it is called; false where they move by themselves.
    fn poke(&mut self) -> bool {
        false
    }
}

/// What a link remembers: how many calls were made over it, and whether one failed.
#[derive(Clone, Debug, Default)]
pub struct Job {
    calls: Cell<u64>,
    broken: Cell<bool>,
}

impl Job {
    /// Counts a call of attention or decoding; its number.
    pub(crate) fn call(&self) -> u64 {
        self.calls.set(self.calls.get() + 1);
        self.calls.get()
    }

    /// Whether an exchange failed.
    pub fn broken(&self) -> bool {
        self.broken.get()
    }

    /// Carries out an exchange, unless one failed before: of what that one left under way nobody knows any more what it is.
    ///
    /// # Errors
    /// Those of `exchange`, after which there will be no other.
    pub fn attempt(&self, link: &dyn Link, exchange: impl FnOnce() -> Result<(), Error>) -> Result<(), Error> {
        if self.broken.replace(true) {
            return Err(lost(link, "an exchange before this one failed"));
        }
        exchange()?;
        self.broken.set(false);
        Ok(())
    }
}

/// Bytes of arrays that a rank sent to others and received from them, and bytes that it sent to agree.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Traffic {
    /// Sent.
    pub sent: u64,
    /// Received.
    pub received: u64,
    /// Sent before each call, so that ranks know that they are at the same.
    pub agreements: u64,
}

/// What is said of a rank that is not there: `what` happened to this one.
pub(crate) fn lost(link: &dyn Link, what: &str) -> Error {
    let (rank, ranks, seconds) = (link.rank(), link.ranks(), link.timeout().as_secs_f64());
    Error::Lost(format!(
        "rank {rank} of {ranks}: {what}: a rank has died, left or kept the others waiting for more than {seconds} s. Nothing of \
         this step can be used: every rank stops here, and the job starts again from its last checkpoint"
    ))
}

//! [`Link`]: what carries bytes between ranks.

use crate::Error;
use std::time::Duration;

/// One rank's end of what connects the ranks of a job.
///
/// Every rank makes the same calls in the same order, so messages need no names: those from one rank to another arrive in the
/// order in which they were sent. [`threads`](crate::threads) connects threads of a process, `Mpi` (feature `mpi`) processes.
pub trait Link {
    /// Which rank this is, from 0.
    fn rank(&self) -> usize;

    /// How many there are.
    fn ranks(&self) -> usize;

    /// How long a rank may keep the others waiting.
    fn timeout(&self) -> Duration;

    /// Sends each message to its rank, and receives so many bytes from each rank of `expected`, while `work` runs.
    ///
    /// Ranks of both lists ascend, and no message is empty. Returns when all has arrived and what was sent may be forgotten.
    ///
    /// # Errors
    /// What `work` returns, and [`Error::Lost`] when a rank is gone or keeps this one waiting beyond the time-out.
    fn exchange(
        &self,
        outgoing: Vec<(usize, Vec<u8>)>,
        expected: &[(usize, usize)],
        work: &mut dyn FnMut(&mut dyn Arrivals) -> Result<(), Error>,
    ) -> Result<(), Error>;
}

/// What is arriving during an exchange.
pub trait Arrivals {
    /// Waits for what comes from a rank; each may be taken once.
    ///
    /// # Errors
    /// [`Error::Lost`] as for [`Link::exchange`].
    fn take(&mut self, rank: usize) -> Result<Vec<u8>, Error>;

    /// Gives the transport a moment: some move bytes only when they are called.
    fn poke(&mut self) {}
}

/// Bytes of arrays that a rank sent to others and received from them, and bytes of agreements that it sent.
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

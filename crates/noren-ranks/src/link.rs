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
    /// Which rank this is, of how many, and what happened so far.
    fn job(&self) -> &Job;

    /// Sends each message to its rank, and receives so many bytes from each rank of `expected`, while `work` runs.
    ///
    /// Returns when all has arrived and what was sent may be forgotten. It is not called again once it failed: of what was left
    /// under way nobody knows any more what it is.
    ///
    /// # Errors
    /// What `work` returns, and [`Error::Lost`] when a rank is gone or keeps this one waiting beyond the time-out.
    fn carry(
        &self,
        outgoing: Messages,
        expected: &Sizes,
        work: &mut dyn FnMut(&mut dyn Arrivals) -> Result<(), Error>,
    ) -> Result<(), Error>;

    /// Which rank this is, from 0.
    fn rank(&self) -> usize {
        self.job().rank
    }

    /// How many there are.
    fn ranks(&self) -> usize {
        self.job().ranks
    }

    /// How long a rank may keep the others waiting: for an answer, and while it computes what they need.
    fn timeout(&self) -> Duration {
        self.job().timeout
    }
}

/// Returns the messages of all ranks, in their order. `mine` goes to every other rank; all have the same length.
///
/// # Errors
/// [`Error::Lost`] as for [`Link::carry`].
pub fn gather(link: &dyn Link, mine: Vec<u8>) -> Result<Vec<Vec<u8>>, Error> {
    let (outgoing, expected) = to_all(link, &mine);
    link.job().moved(&outgoing, &expected);
    spread(link, mine, outgoing, &expected)
}

/// Messages to and from every other rank.
pub(crate) fn to_all(link: &dyn Link, mine: &[u8]) -> (Messages, Sizes) {
    let others = || (0..link.ranks()).filter(|rank| *rank != link.rank() && !mine.is_empty());
    (others().map(|rank| (rank, mine.to_vec())).collect(), others().map(|rank| (rank, mine.len())).collect())
}

/// [`gather`], uncounted.
pub(crate) fn spread(
    link: &dyn Link,
    mine: Vec<u8>,
    outgoing: Messages,
    expected: &Sizes,
) -> Result<Vec<Vec<u8>>, Error> {
    let mut found = vec![mine; link.ranks()];
    exchange(link, outgoing, expected, |arrivals| {
        for (rank, _) in expected {
            found[*rank] = arrivals.take(*rank)?;
        }
        Ok(())
    })?;
    Ok(found)
}

/// [`Link::carry`], unless it failed before.
pub(crate) fn exchange(
    link: &dyn Link,
    outgoing: Messages,
    expected: &Sizes,
    mut work: impl FnMut(&mut dyn Arrivals) -> Result<(), Error>,
) -> Result<(), Error> {
    let broken = &link.job().broken;
    if broken.replace(true) {
        return Err(link.job().lost("an exchange before this one failed"));
    }
    link.carry(outgoing, expected, &mut work)?;
    broken.set(false);
    Ok(())
}

/// What is arriving during an exchange.
pub trait Arrivals {
    /// Waits for what comes from a rank, as many bytes as were expected; each may be taken once.
    ///
    /// # Errors
    /// [`Error::Lost`] as for [`Link::carry`].
    fn take(&mut self, rank: usize) -> Result<Vec<u8>, Error>;

    /// Gives the transport a moment, where bytes move only when it is called; false where they move by themselves.
    fn poke(&mut self) -> bool {
        false
    }
}

/// A rank's place in its job: how many calls were made, what they sent, and whether one failed.
#[derive(Clone, Debug)]
pub struct Job {
    rank: usize,
    ranks: usize,
    timeout: Duration,
    calls: Cell<u64>,
    broken: Cell<bool>,
    traffic: Cell<Traffic>,
}

impl Job {
    /// Rank `rank` of `ranks`, which waits for the others for as long as `timeout`.
    pub fn new(rank: usize, ranks: usize, timeout: Duration) -> Self {
        Job { rank, ranks, timeout, calls: Cell::default(), broken: Cell::default(), traffic: Cell::default() }
    }

    /// Counts a call of attention or decoding; its number.
    pub(crate) fn call(&self) -> u64 {
        self.calls.set(self.calls.get() + 1);
        self.calls.get()
    }

    /// Returns whether an exchange failed.
    pub fn broken(&self) -> bool {
        self.broken.get()
    }

    /// What this rank sent and received so far.
    pub fn traffic(&self) -> Traffic {
        self.traffic.get()
    }

    /// Counts bytes that an agreement took.
    pub(crate) fn agreed(&self, bytes: usize) {
        let before = self.traffic();
        self.traffic.set(Traffic { agreements: before.agreements + bytes as u64, ..before });
    }

    /// Counts what an exchange moves.
    pub(crate) fn moved(&self, outgoing: &Messages, expected: &Sizes) {
        let before = self.traffic();
        let sent = before.sent + outgoing.iter().map(|(_, message)| message.len() as u64).sum::<u64>();
        let received = before.received + expected.iter().map(|(_, size)| *size as u64).sum::<u64>();
        self.traffic.set(Traffic { sent, received, ..before });
    }

    /// Returns the error of a link that waits for a rank in vain; `what` happened to this one.
    pub fn lost(&self, what: &str) -> Error {
        let (rank, ranks, seconds) = (self.rank, self.ranks, self.timeout.as_secs_f64());
        Error::Lost(format!(
            "rank {rank} of {ranks}: {what}: a rank has died, left or kept the others waiting for more than {seconds} s. Nothing \
             of this step can be used: every rank stops here, and the job starts again from its last checkpoint"
        ))
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

//! [`Link`]: the transport of bytes between ranks.

use crate::ranks::Error;
use std::cell::Cell;
use std::time::Duration;

/// The messages that this rank sends, as (destination rank, bytes), in ascending order of ranks. No message is empty.
pub type Messages = Vec<(usize, Vec<u8>)>;

/// The messages that this rank expects, as (source rank, number of bytes), in ascending order of ranks. No number is 0.
pub type Sizes = Vec<(usize, usize)>;

/// The connection of one rank to the other ranks of a computation.
///
/// Every rank makes the same calls in the same order, so messages are matched by their order, without names. Messages
/// from one rank to another arrive in the order in which they were sent. [`threads`](crate::ranks::threads) connects threads
/// of a process, `Mpi` (feature `mpi`) connects processes.
pub trait Link {
    /// Returns the state of this rank: its number, the number of ranks, and the numbers of calls and bytes so far.
    fn job(&self) -> &Job;

    /// Sends each message of `outgoing` to its rank, and receives a message from each rank of `expected` with the given
    /// number of bytes. `work` runs meanwhile.
    ///
    /// Returns after all data has arrived and all sent buffers are free. After an error, `carry` must not be called
    /// again, because messages of the call that failed may still arrive.
    ///
    /// # Errors
    /// Returns the errors of `work`, and [`Error::Lost`] if a rank is gone or keeps this rank waiting beyond the
    /// time-out.
    fn carry(
        &self,
        outgoing: Messages,
        expected: &Sizes,
        work: &mut dyn FnMut(&mut dyn Arrivals) -> Result<(), Error>,
    ) -> Result<(), Error>;

    /// Returns the number of this rank, counted from 0.
    fn rank(&self) -> usize {
        self.job().rank
    }

    /// Returns the number of ranks.
    fn ranks(&self) -> usize {
        self.job().ranks
    }

    /// Returns the time-out: the maximum time for which a rank may keep other ranks waiting. This time includes the
    /// computations of that rank.
    fn timeout(&self) -> Duration {
        self.job().timeout
    }
}

/// Sends `mine` to every other rank, and returns the messages of all ranks in the order of ranks. The messages of all
/// ranks must have the same length.
///
/// # Errors
/// Returns [`Error::Lost`] as [`Link::carry`] does.
pub fn gather(link: &dyn Link, mine: Vec<u8>) -> Result<Vec<Vec<u8>>, Error> {
    let (outgoing, expected) = to_all(link, &mine);
    link.job().moved(&outgoing, &expected);
    spread(link, mine, outgoing, &expected)
}

/// Returns (a copy of `mine` for every other rank, the size of the message expected from each of these ranks). All
/// messages have the length of `mine`.
pub(crate) fn to_all(link: &dyn Link, mine: &[u8]) -> (Messages, Sizes) {
    let others = || (0..link.ranks()).filter(|rank| *rank != link.rank() && !mine.is_empty());
    (others().map(|rank| (rank, mine.to_vec())).collect(), others().map(|rank| (rank, mine.len())).collect())
}

/// Sends the messages `outgoing` to other ranks, and returns one message of each rank, in the order of ranks. `mine` is
/// the message of this rank in the result, and `expected` holds the sizes of the other ranks' messages. Unlike
/// [`gather`], this function does not add the bytes to the counted traffic.
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

/// Sends the messages `outgoing` and receives the messages `expected` with [`Link::carry`], while `work` runs. Returns
/// an error if an earlier exchange failed.
pub(crate) fn exchange(
    link: &dyn Link,
    outgoing: Messages,
    expected: &Sizes,
    mut work: impl FnMut(&mut dyn Arrivals) -> Result<(), Error>,
) -> Result<(), Error> {
    let broken = &link.job().broken;
    if broken.replace(true) {
        return Err(link.job().lost("an earlier exchange of messages failed"));
    }
    link.carry(outgoing, expected, &mut work)?;
    broken.set(false);
    Ok(())
}

/// The messages that arrive on this rank during one exchange (one call of [`Link::carry`]).
pub trait Arrivals {
    /// Waits for the message of a rank and returns its bytes. In one exchange, this method may be called only once for
    /// each rank.
    ///
    /// # Errors
    /// Returns [`Error::Lost`] as [`Link::carry`] does.
    fn take(&mut self, rank: usize) -> Result<Vec<u8>, Error>;

    /// Lets the transport send and receive. Returns true if the transport makes progress only during such calls, and
    /// false if it makes progress independently.
    fn poke(&mut self) -> bool {
        false
    }
}

/// The state of one rank: its number, the number of ranks, the number of calls, the bytes sent and received, and
/// whether an exchange of messages failed.
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
    /// Returns the state of rank `rank` of `ranks` ranks before the first call. The rank waits for other ranks at most
    /// `timeout`.
    pub fn new(rank: usize, ranks: usize, timeout: Duration) -> Self {
        Job { rank, ranks, timeout, calls: Cell::default(), broken: Cell::default(), traffic: Cell::default() }
    }

    /// Counts a call of attention or decoding on this rank, and returns the number of the call, from 1.
    pub(crate) fn call(&self) -> u64 {
        self.calls.set(self.calls.get() + 1);
        self.calls.get()
    }

    /// Returns whether an exchange of messages over the link failed or is still running.
    pub fn broken(&self) -> bool {
        self.broken.get()
    }

    /// Returns the numbers of bytes that this rank has sent and received over the link so far.
    pub fn traffic(&self) -> Traffic {
        self.traffic.get()
    }

    /// Adds `bytes` to the counted traffic of agreements (the comparison of calls between ranks).
    pub(crate) fn agreed(&self, bytes: usize) {
        let before = self.traffic();
        self.traffic.set(Traffic { agreements: before.agreements + bytes as u64, ..before });
    }

    /// Adds the bytes of the sent messages `outgoing` and of the received messages `expected` to the counted traffic.
    pub(crate) fn moved(&self, outgoing: &Messages, expected: &Sizes) {
        let before = self.traffic();
        let sent = before.sent + outgoing.iter().map(|(_, message)| message.len() as u64).sum::<u64>();
        let received = before.received + expected.iter().map(|(_, size)| *size as u64).sum::<u64>();
        self.traffic.set(Traffic { sent, received, ..before });
    }

    /// Returns the error for a failed exchange with another rank. `what` describes the failure.
    pub fn lost(&self, what: &str) -> Error {
        let (rank, ranks, seconds) = (self.rank, self.ranks, self.timeout.as_secs_f64());
        Error::Lost(format!(
            "rank {rank} of {ranks}: {what}: a rank ended, left the group or kept the other ranks waiting for more \
             than {seconds} s. Do not use the results of this step; every rank stops now: start the job again from \
             its last checkpoint"
        ))
    }
}

/// The numbers of bytes that a rank sent and received so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Traffic {
    /// Bytes of arrays that this rank sent.
    pub sent: u64,
    /// Bytes of arrays that this rank received.
    pub received: u64,
    /// Bytes that this rank sent in agreements, in which ranks check before each call that all ranks make the same
    /// call.
    pub agreements: u64,
}

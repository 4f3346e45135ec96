//! `threads`: ranks that are threads of one process, to try a partition without several processes, and to test the
//! behaviour of links.

use crate::ranks::link::{Messages, Sizes};
use crate::ranks::{Arrivals, Error, Job, Link};
use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

/// The link of one rank, a thread, to the other ranks, which are threads of the same process.
#[derive(Debug)]
pub struct ThreadLink {
    job: Job,
    to: Vec<Sender<Vec<u8>>>,
    from: Vec<Receiver<Vec<u8>>>,
}

/// Runs the function `run` on `ranks` threads, each of which is a rank, and returns the results in the order of ranks.
///
/// ```
/// use noren_dist::ranks::{Link, threads};
/// use std::time::Duration;
/// let found = threads(3, Duration::from_secs(5), |link| link.rank() * 10);
/// assert_eq!(found, [0, 10, 20]);
/// ```
///
/// # Panics
/// Panics if the function panics on a rank, or if the time-out is 0. A call on a rank that waits for a panicked rank
/// returns [`Error::Lost`].
pub fn threads<R: Send>(ranks: usize, timeout: Duration, run: impl Fn(&ThreadLink) -> R + Sync) -> Vec<R> {
    assert!(!timeout.is_zero(), "the time-out is 0: give a time greater than 0");
    let mut to: Vec<Vec<Sender<Vec<u8>>>> = (0..ranks).map(|_| Vec::new()).collect();
    let mut from: Vec<Vec<Receiver<Vec<u8>>>> = (0..ranks).map(|_| Vec::new()).collect();
    for to in &mut to {
        for from in &mut from {
            let (sender, receiver) = channel();
            to.push(sender);
            from.push(receiver);
        }
    }
    let link = |(rank, (to, from))| ThreadLink { job: Job::new(rank, ranks, timeout), to, from };
    let links: Vec<ThreadLink> = to.into_iter().zip(from).enumerate().map(link).collect();
    std::thread::scope(|scope| {
        let run = &run;
        let running: Vec<_> = links.into_iter().map(|link| scope.spawn(move || run(&link))).collect();
        running.into_iter().map(|rank| rank.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
    })
}

impl Link for ThreadLink {
    fn job(&self) -> &Job {
        &self.job
    }

    fn carry(
        &self,
        outgoing: Messages,
        expected: &Sizes,
        work: &mut dyn FnMut(&mut dyn Arrivals) -> Result<(), Error>,
    ) -> Result<(), Error> {
        // A rank that has left may have sent its own message before. So this rank takes all messages before it reports an
        // error of sending. The error names the rank that has left.
        let sent: Vec<_> = outgoing.into_iter().map(|(rank, message)| (rank, self.to[rank].send(message))).collect();
        let mut arriving = Arriving { link: self, expected: expected.iter().copied().collect() };
        work(&mut arriving)?;
        while let Some((&rank, _)) = arriving.expected.first_key_value() {
            arriving.take(rank)?;
        }
        match sent.iter().find(|(_, sent)| sent.is_err()) {
            Some((rank, _)) => Err(self.job().lost(&format!("rank {rank} left before it received its message"))),
            None => Ok(()),
        }
    }
}

struct Arriving<'a> {
    link: &'a ThreadLink,
    expected: BTreeMap<usize, usize>,
}

impl Arrivals for Arriving<'_> {
    fn take(&mut self, rank: usize) -> Result<Vec<u8>, Error> {
        let size = self.expected.remove(&rank).expect("the caller takes the message of each rank only once");
        let start = Instant::now();
        let message = self.link.from[rank].recv_timeout(self.link.timeout()).map_err(|error| {
            let waited = start.elapsed().as_secs_f64();
            self.link.job().lost(&match error {
                RecvTimeoutError::Disconnected => format!("rank {rank} left after this rank had waited {waited:.1} s"),
                RecvTimeoutError::Timeout => format!("rank {rank} sent nothing for {waited:.1} s"),
            })
        })?;
        match message.len() == size {
            true => Ok(message),
            false => {
                Err(self.link.job().lost(&format!("rank {rank} sent {} bytes, but {size} are expected", message.len())))
            }
        }
    }
}

//! [`Mpi`]: ranks that are processes under `mpirun`.
//!
//! Requests are posted when an exchange begins and completed while it runs. The bindings' own requests must not outlive a failure, so
//! these are MPI's, and own their buffers: where a rank is lost, buffers that MPI may still write to are never freed.

use crate::link::lost;
use crate::{Arrivals, Error, Link};
use mpi::ffi;
use mpi::topology::SimpleCommunicator;
use mpi::traits::{AsRaw, Communicator};
use mpi::{Threading, environment::Universe};
use std::collections::BTreeMap;
use std::ffi::c_int;
use std::fmt;
use std::mem::MaybeUninit;
use std::time::{Duration, Instant};

/// MPI counts in C's `int`: what is longer goes in several messages.
const LONGEST: usize = 1 << 30;
/// How long [`Mpi::fail`] lets the other ranks say what they know before it ends the job.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// This process's end of a job under `mpirun`: all ranks, on a communicator of its own.
///
/// ```no_run
/// use noren_ranks::{Link, Mpi};
/// let link = Mpi::start(std::time::Duration::from_secs(60))?;
/// println!("rank {} of {}", link.rank(), link.ranks());
/// # Ok::<(), noren_ranks::Error>(())
/// ```
pub struct Mpi {
    // before `universe`: a communicator is freed before MPI ends
    world: SimpleCommunicator,
    timeout: Duration,
    _universe: Universe,
}

impl fmt::Debug for Mpi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mpi").field("rank", &self.rank()).field("ranks", &self.ranks()).finish_non_exhaustive()
    }
}

impl Mpi {
    /// Begins MPI. Attention's own threads never call it.
    ///
    /// # Errors
    /// When it has begun already in this process.
    pub fn start(timeout: Duration) -> Result<Self, Error> {
        let begun = mpi::initialize_with_threading(Threading::Funneled);
        let (universe, _) =
            begun.ok_or_else(|| Error::Input("MPI has begun already: keep the first Mpi and share it".to_owned()))?;
        let world = universe.world().duplicate();
        // SAFETY: the communicator is alive; errors of calls on it come back as codes instead of ending the process.
        unsafe { ffi::MPI_Comm_set_errhandler(world.as_raw(), ffi::RSMPI_ERRORS_RETURN) };
        Ok(Mpi { world, timeout, _universe: universe })
    }

    /// Says on this rank what went wrong and ends the whole job with exit status 1.
    pub fn fail(&self, error: &Error) -> ! {
        eprintln!("error on rank {}: {error}", self.rank());
        std::thread::sleep(LAST_WORDS);
        self.world.abort(1)
    }
}

impl Link for Mpi {
    fn rank(&self) -> usize {
        self.world.rank() as usize
    }

    fn ranks(&self) -> usize {
        self.world.size() as usize
    }

    fn timeout(&self) -> Duration {
        self.timeout
    }

    fn exchange(
        &self,
        outgoing: Vec<(usize, Vec<u8>)>,
        expected: &[(usize, usize)],
        work: &mut dyn FnMut(&mut dyn Arrivals) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut flight = Flight { link: self, sending: Vec::new(), arriving: BTreeMap::new() };
        for &(rank, size) in expected {
            let mut letter = Letter::new(vec![0; size]);
            letter.receive(self, rank)?;
            flight.arriving.insert(rank, letter);
        }
        for (rank, message) in outgoing {
            let mut letter = Letter::new(message);
            letter.send(self, rank)?;
            flight.sending.push((rank, letter));
        }
        work(&mut flight)?;
        flight.finish()
    }
}

/// A buffer with MPI's requests that read or write it.
struct Letter {
    bytes: Vec<u8>,
    requests: Vec<ffi::MPI_Request>,
}

impl Letter {
    fn new(bytes: Vec<u8>) -> Self {
        Letter { bytes, requests: Vec::new() }
    }

    fn send(&mut self, link: &Mpi, rank: usize) -> Result<(), Error> {
        let comm = link.world.as_raw();
        for start in (0..self.bytes.len()).step_by(LONGEST) {
            let part = &self.bytes[start..self.bytes.len().min(start + LONGEST)];
            let mut request = MaybeUninit::uninit();
            // SAFETY: `part` is memory of so many bytes, which lives until the request is done: see `Drop`.
            let code = unsafe {
                ffi::MPI_Isend(
                    part.as_ptr().cast(),
                    part.len() as c_int,
                    ffi::RSMPI_UINT8_T,
                    rank as c_int,
                    0,
                    comm,
                    request.as_mut_ptr(),
                )
            };
            self.posted(link, code, request, &format!("sending to rank {rank}"))?;
        }
        Ok(())
    }

    fn receive(&mut self, link: &Mpi, rank: usize) -> Result<(), Error> {
        let comm = link.world.as_raw();
        for start in (0..self.bytes.len()).step_by(LONGEST) {
            let length = LONGEST.min(self.bytes.len() - start);
            let mut request = MaybeUninit::uninit();
            // SAFETY: `start` and `length` lie within the buffer, which nobody else touches until the request is done and
            // which lives until then: see `Drop`.
            let code = unsafe {
                ffi::MPI_Irecv(
                    self.bytes.as_mut_ptr().add(start).cast(),
                    length as c_int,
                    ffi::RSMPI_UINT8_T,
                    rank as c_int,
                    0,
                    comm,
                    request.as_mut_ptr(),
                )
            };
            self.posted(link, code, request, &format!("receiving from rank {rank}"))?;
        }
        Ok(())
    }

    fn posted(
        &mut self,
        link: &Mpi,
        code: c_int,
        request: MaybeUninit<ffi::MPI_Request>,
        what: &str,
    ) -> Result<(), Error> {
        if code != 0 {
            return Err(lost(link, &format!("{what} failed with MPI's error {code}")));
        }
        // SAFETY: a call without an error has written the request.
        self.requests.push(unsafe { request.assume_init() });
        Ok(())
    }

    /// Whether nothing is under way any more.
    fn done(&mut self, link: &Mpi, what: &str) -> Result<bool, Error> {
        while let Some(request) = self.requests.last_mut() {
            let mut flag = 0;
            // SAFETY: a live request, and a place for the answer; a request that is done is never tested again.
            let code = unsafe { ffi::MPI_Test(request, &mut flag, ffi::RSMPI_STATUS_IGNORE) };
            if code != 0 {
                return Err(lost(link, &format!("{what} failed with MPI's error {code}")));
            }
            if flag == 0 {
                return Ok(false);
            }
            self.requests.pop();
        }
        Ok(true)
    }
}

impl Drop for Letter {
    fn drop(&mut self) {
        if !self.requests.is_empty() {
            // MPI may still read or write the memory: it stays what it is for good
            std::mem::forget(std::mem::take(&mut self.bytes));
        }
    }
}

struct Flight<'a> {
    link: &'a Mpi,
    sending: Vec<(usize, Letter)>,
    arriving: BTreeMap<usize, Letter>,
}

impl Flight<'_> {
    /// Waits for a letter, while the others move on.
    fn wait(&mut self, letter: &mut Letter, what: &str) -> Result<(), Error> {
        let start = Instant::now();
        for turn in 0u32.. {
            if letter.done(self.link, what)? {
                return Ok(());
            }
            self.poke();
            if start.elapsed() > self.link.timeout {
                return Err(lost(self.link, &format!("{what} is not done")));
            }
            // the first moments are awaited awake
            if turn > 1000 {
                std::thread::sleep(Duration::from_micros(50));
            } else {
                std::hint::spin_loop();
            }
        }
        unreachable!("turns do not end before the time-out")
    }

    fn finish(mut self) -> Result<(), Error> {
        while let Some((&rank, _)) = self.arriving.first_key_value() {
            self.take(rank)?;
        }
        for (rank, mut letter) in std::mem::take(&mut self.sending) {
            self.wait(&mut letter, &format!("sending to rank {rank}"))?;
        }
        Ok(())
    }
}

impl Arrivals for Flight<'_> {
    fn take(&mut self, rank: usize) -> Result<Vec<u8>, Error> {
        let mut letter = self.arriving.remove(&rank).expect("each rank that sends is asked for once");
        self.wait(&mut letter, &format!("receiving from rank {rank}"))?;
        Ok(std::mem::take(&mut letter.bytes))
    }

    fn poke(&mut self) {
        // an error is found again by who waits for the letter
        let letters = self.arriving.values_mut().chain(self.sending.iter_mut().map(|(_, letter)| letter));
        for letter in letters {
            let _ = letter.done(self.link, "an exchange");
        }
    }
}

//! [`Mpi`]: ranks that are processes under `mpirun`.
//!
//! Each exchange posts MPI requests (sends and receives that do not wait) at its beginning and completes them while it
//! runs. The Rust bindings do not allow requests that stay incomplete after a failure. This module therefore calls MPI
//! directly, and stores the buffer of each request. If a rank is lost, buffers that MPI may still access are never
//! freed.

use crate::ranks::link::{Messages, Sizes};
use crate::ranks::{Arrivals, Error, Job, Link};
use mpi::ffi;
use mpi::topology::SimpleCommunicator;
use mpi::traits::{AsRaw, Communicator};
use mpi::{Threading, environment::Universe};
use std::collections::BTreeMap;
use std::ffi::c_int;
use std::fmt;
use std::io::{self, Write};
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::time::{Duration, Instant};

/// The maximum number of bytes of one MPI message; longer messages are sent in several parts. MPI stores the number of
/// bytes in a C `int`.
const LONGEST: usize = 1 << 30;
/// After an error, this rank waits for this time before it ends the processes of all ranks, so that the other ranks can
/// print their errors.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// The link of this process to the other processes that `mpirun` started. The link has its own MPI communicator over
/// all ranks.
///
/// If the link is dropped after an error or during a panic, the processes of all ranks end with exit status 1.
/// Otherwise, the other ranks could wait for this rank, and the regular end of MPI would wait for all ranks.
///
/// ```no_run
/// use noren_dist::ranks::{Link, Mpi};
/// let link = Mpi::start(std::time::Duration::from_secs(60))?;
/// println!("rank {} of {}", link.rank(), link.ranks());
/// # Ok::<(), noren_dist::ranks::Error>(())
/// ```
pub struct Mpi {
    // declared before `_universe`: the communicator is freed before MPI ends
    world: SimpleCommunicator,
    job: Job,
    _universe: Universe,
    // not `Send`: MPI is called only from the thread that started it
    _here: PhantomData<*const ()>,
}

impl fmt::Debug for Mpi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mpi").field("rank", &self.rank()).field("ranks", &self.ranks()).finish_non_exhaustive()
    }
}

impl Mpi {
    /// Starts MPI, and returns the link of this process. MPI is called only from the current thread, not from the
    /// threads that compute attention. `timeout` is the maximum time to wait for another rank.
    ///
    /// # Errors
    /// Returns an error if MPI has already started in this process, if `timeout` is 0, or if MPI cannot return its
    /// errors to the program.
    pub fn start(timeout: Duration) -> Result<Self, Error> {
        if timeout.is_zero() {
            return Err(Error::Input("the time-out is 0: give a time greater than 0".to_owned()));
        }
        let begun = mpi::initialize_with_threading(Threading::Funneled);
        let (universe, _) =
            begun.ok_or_else(|| Error::Input("MPI has already started: keep the first Mpi and share it".to_owned()))?;
        let world = universe.world().duplicate();
        // SAFETY: the communicator is alive. From now on, its calls return error codes instead of ending the process.
        let code = unsafe { ffi::MPI_Comm_set_errhandler(world.as_raw(), ffi::RSMPI_ERRORS_RETURN) };
        let job = Job::new(world.rank() as usize, world.size() as usize, timeout);
        let link = Mpi { world, job, _universe: universe, _here: PhantomData };
        match code {
            0 => Ok(link),
            code => Err(link.job().lost(&format!(
                "MPI cannot be set to return errors instead of ending the program (MPI error code {code})"
            ))),
        }
    }

    /// Prints `error` on this rank, and ends the processes of all ranks with exit status 1.
    pub fn fail(&self, error: &Error) -> ! {
        // One write, so that the messages of several processes do not mix within a line.
        let message = format!("error on rank {}: {error}\n", self.rank());
        let _ = io::stderr().write_all(message.as_bytes());
        std::thread::sleep(LAST_WORDS);
        self.world.abort(1)
    }
}

impl Drop for Mpi {
    fn drop(&mut self) {
        if self.job.broken() || std::thread::panicking() {
            std::thread::sleep(LAST_WORDS);
            self.world.abort(1);
        }
    }
}

impl Link for Mpi {
    fn job(&self) -> &Job {
        &self.job
    }

    fn carry(
        &self,
        outgoing: Messages,
        expected: &Sizes,
        work: &mut dyn FnMut(&mut dyn Arrivals) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut flight = Flight { link: self, sending: Vec::new(), arriving: BTreeMap::new() };
        for &(rank, size) in expected {
            let mut letter = Letter::new(format!("receiving from rank {rank}"), vec![0; size]);
            letter.receive(self, rank)?;
            flight.arriving.insert(rank, letter);
        }
        for (rank, message) in outgoing {
            let mut letter = Letter::new(format!("sending to rank {rank}"), message);
            letter.send(self, rank)?;
            flight.sending.push(letter);
        }
        work(&mut flight)?;
        flight.finish()
    }
}

/// A message: a buffer, with the MPI requests that read or write the buffer.
struct Letter {
    what: String,
    bytes: Vec<u8>,
    /// The MPI requests of the message that are not done. `Some` is the number of bytes that a request must receive;
    /// `None` is for requests that send.
    requests: Vec<(ffi::MPI_Request, Option<usize>)>,
    /// The error of a failed request. The error is stored because MPI reports it only once.
    failed: Option<String>,
}

impl Letter {
    fn new(what: String, bytes: Vec<u8>) -> Self {
        Letter { what, bytes, requests: Vec::new(), failed: None }
    }

    fn send(&mut self, link: &Mpi, rank: usize) -> Result<(), Error> {
        let comm = link.world.as_raw();
        for start in (0..self.bytes.len()).step_by(LONGEST) {
            let part = &self.bytes[start..self.bytes.len().min(start + LONGEST)];
            let mut request = MaybeUninit::uninit();
            // SAFETY: `part` is memory of `part.len()` bytes, which lives until the request is done: see `Drop`.
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
            self.posted(link, code, request, None)?;
        }
        Ok(())
    }

    fn receive(&mut self, link: &Mpi, rank: usize) -> Result<(), Error> {
        let comm = link.world.as_raw();
        for start in (0..self.bytes.len()).step_by(LONGEST) {
            let length = LONGEST.min(self.bytes.len() - start);
            let mut request = MaybeUninit::uninit();
            // SAFETY: `start` and `length` are within the buffer. Only MPI uses the buffer until the request is done,
            // and the buffer lives until then: see `Drop`.
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
            self.posted(link, code, request, Some(length))?;
        }
        Ok(())
    }

    fn posted(
        &mut self,
        link: &Mpi,
        code: c_int,
        request: MaybeUninit<ffi::MPI_Request>,
        receives: Option<usize>,
    ) -> Result<(), Error> {
        if code != 0 {
            return Err(link.job().lost(&format!("{} failed with the MPI error code {code}", self.what)));
        }
        // SAFETY: a call without an error has written the request.
        self.requests.push((unsafe { request.assume_init() }, receives));
        Ok(())
    }

    /// Returns whether all MPI requests of the message are done. After an error, every later call returns the same
    /// error.
    fn done(&mut self, link: &Mpi) -> Result<bool, Error> {
        while self.failed.is_none() {
            let Some((request, receives)) = self.requests.last_mut() else { return Ok(true) };
            let (mut flag, mut status) = (0, MaybeUninit::uninit());
            // SAFETY: the request is live, and `flag` and `status` are memory for the answer. A finished request is never
            // tested again.
            let code = unsafe { ffi::MPI_Test(request, &mut flag, status.as_mut_ptr()) };
            if code != 0 {
                self.failed = Some(format!("{} failed with the MPI error code {code}", self.what));
                // MPI has freed the request
                self.requests.pop();
                break;
            }
            if flag == 0 {
                return Ok(false);
            }
            if let Some(size) = *receives {
                let mut count = 0;
                // SAFETY: the status of a request that is done was written.
                unsafe { ffi::MPI_Get_count(status.as_ptr(), ffi::RSMPI_UINT8_T, &mut count) };
                if count as usize != size {
                    self.failed = Some(format!("{} returned {count} bytes, but {size} are expected", self.what));
                }
            }
            self.requests.pop();
        }
        Err(link.job().lost(self.failed.as_deref().unwrap_or_default()))
    }
}

impl Drop for Letter {
    fn drop(&mut self) {
        if !self.requests.is_empty() {
            // MPI may still read or write the memory, so the memory is never freed
            std::mem::forget(std::mem::take(&mut self.bytes));
        }
    }
}

struct Flight<'a> {
    link: &'a Mpi,
    sending: Vec<Letter>,
    arriving: BTreeMap<usize, Letter>,
}

impl Flight<'_> {
    /// Waits until the MPI requests of `letter` are done. Meanwhile, the requests of other messages make progress.
    fn wait(&mut self, letter: &mut Letter) -> Result<(), Error> {
        let start = Instant::now();
        for turn in 0u64.. {
            if letter.done(self.link)? {
                return Ok(());
            }
            self.poke();
            if start.elapsed() > self.link.timeout() {
                return Err(self.link.job().lost(&format!("{} did not finish in time", letter.what)));
            }
            // the first 1000 checks are made without sleeping
            if turn > 1000 {
                std::thread::sleep(Duration::from_micros(50));
            } else {
                std::hint::spin_loop();
            }
        }
        unreachable!("the loop ends only with a result or an error")
    }

    fn finish(mut self) -> Result<(), Error> {
        while let Some((&rank, _)) = self.arriving.first_key_value() {
            self.take(rank)?;
        }
        for mut letter in std::mem::take(&mut self.sending) {
            self.wait(&mut letter)?;
        }
        Ok(())
    }
}

impl Arrivals for Flight<'_> {
    fn take(&mut self, rank: usize) -> Result<Vec<u8>, Error> {
        let mut letter = self.arriving.remove(&rank).expect("the caller takes the message of each rank only once");
        self.wait(&mut letter)?;
        Ok(std::mem::take(&mut letter.bytes))
    }

    fn poke(&mut self) -> bool {
        for letter in self.arriving.values_mut().chain(&mut self.sending) {
            // the caller that waits for this letter gets the error again
            let _ = letter.done(self.link);
        }
        true
    }
}

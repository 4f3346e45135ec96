//! Attention over a process group: runs the crate `noren-dist` and sends its messages through a process group in
//! Python, such as that of `torch.distributed`.

use crate::compute::attention::{by_dtype, compute, threads_allowed};
use crate::compute::distributed::{PyPartition, raise_dist, travel_of};
use crate::dlpack::{Kind, Tensor};
use crate::error::{Error, raise};
use crate::masks::bound::PyPlan;
use noren::noren_mask::text::first_line;
use noren::{Dtype, Element, bf16, f16};
use noren_dist::ranks::{Arrivals, Attended, Job, Link, Local, Messages, Options, Shards, Sizes, Split};
use pyo3::exceptions::{PyIndexError, PyRuntimeError};
use pyo3::prelude::*;
use pyo3::types::PyByteArray;
use pyo3::{create_exception, intern};
use std::cell::RefCell;
use std::ops::Range;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

create_exception!(
    noren.distributed,
    GroupError,
    PyRuntimeError,
    "An error on every rank because a rank ended, stalled or left the group: do not use the results of the failed call."
);
create_exception!(
    noren.distributed,
    Disagreement,
    GroupError,
    "An error on every rank because the ranks gave different masks, facts, shapes or options. Nothing was computed."
);

// --- the link -----------------------------------------------------------------------------------------------------------------

/// The connection of one rank to the other ranks of its group. The Python function `exchange(outgoing, expected)` sends
/// and receives the messages.
#[pyclass(name = "Link", module = "noren.distributed", frozen)]
pub(crate) struct PyLink {
    job: Mutex<Job>,
    exchange: Py<PyAny>,
}

#[pymethods]
impl PyLink {
    /// Creates the link of rank `rank` in a group of `ranks` ranks; `timeout` is in seconds.
    ///
    /// `exchange(outgoing, expected)` begins an exchange of messages and returns an object with the methods `take(rank)`
    /// and `finish()`.
    #[new]
    fn new(exchange: Py<PyAny>, rank: usize, ranks: usize, timeout: f64) -> PyResult<Self> {
        let seconds = Duration::try_from_secs_f64(timeout).map_err(|error| Error::new_err(error.to_string()))?;
        Ok(PyLink { job: Mutex::new(Job::new(rank, ranks, seconds)), exchange })
    }

    /// Three numbers of bytes of this rank: bytes of arrays sent, bytes of arrays received, and bytes of messages sent
    /// to check that all ranks make the same call.
    #[getter]
    fn traffic(&self) -> (u64, u64, u64) {
        let traffic = self.job().traffic();
        (traffic.sent, traffic.received, traffic.agreements)
    }

    /// Raises `Disagreement` on every rank unless the (name, value) pairs in `said` are equal on all ranks. `what`
    /// names the call in the message.
    fn agree(&self, py: Python<'_>, what: &str, said: Vec<(String, String)>) -> PyResult<()> {
        let said: Vec<(&str, String)> = said.iter().map(|(name, value)| (name.as_str(), value.clone())).collect();
        self.run(py, |link, _| noren_dist::ranks::agree(link, what, &said))
    }

    /// Informs the other ranks that this rank rejects its input. Their next call then raises an error.
    fn refuse(&self, py: Python<'_>) -> PyResult<()> {
        self.run(py, |link, _| {
            noren_dist::ranks::refuse(link);
            Ok(())
        })
    }

    /// Sends the bytes `mine` to all ranks, and returns the bytes of all ranks in the order of ranks.
    fn gather(&self, py: Python<'_>, mine: Vec<u8>) -> PyResult<Vec<Py<PyByteArray>>> {
        let all = self.run(py, |link, _| noren_dist::ranks::gather(link, mine))?;
        Ok(all.iter().map(|bytes| PyByteArray::new(py, bytes).unbind()).collect())
    }

    /// Returns the message of a `GroupError` on this rank, in which `what` describes the failure.
    fn lost(&self, what: &str) -> String {
        self.job().lost(what).to_string()
    }
}

impl PyLink {
    /// Locks the connection for a call. The lock is also taken if an earlier call panicked; the connection is then
    /// broken, and the new call returns an error.
    fn job(&self) -> MutexGuard<'_, Job> {
        self.job.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls `work` with the connection to the other ranks, without the interpreter's lock, and checks for Ctrl-C.
    fn run<R: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&dyn Link, &Arc<AtomicBool>) -> Result<R, noren_dist::ranks::Error> + Send,
    ) -> PyResult<R> {
        compute(py, true, |cancel| {
            let link = GroupLink { job: self.job(), exchange: &self.exchange, raised: RefCell::default() };
            work(&link, cancel).map_err(|error| raise_ranks(error, link.raised.take()))
        })
    }
}

fn raise_ranks(error: noren_dist::ranks::Error, raised: Option<PyErr>) -> PyErr {
    match error {
        noren_dist::ranks::Error::Disagreement(text) => Disagreement::new_err(text),
        noren_dist::ranks::Error::Lost(text) => Python::attach(|py| match raised {
            Some(error) if !error.is_instance_of::<PyRuntimeError>(py) => error,
            cause => {
                let error = GroupError::new_err(text);
                error.set_cause(py, cause);
                error
            }
        }),
        noren_dist::ranks::Error::Attention(error) => raise(error),
        noren_dist::ranks::Error::Mask(error) => raise(error),
        noren_dist::ranks::Error::Partition(error) => raise_dist(error),
        error => Error::new_err(error.to_string()),
    }
}

/// A [`PyLink`], locked for one call, through which `noren-dist` exchanges the messages of the call.
struct GroupLink<'a> {
    job: MutexGuard<'a, Job>,
    exchange: &'a Py<PyAny>,
    /// The exception that an exchange of messages raised during this call, if any.
    raised: RefCell<Option<PyErr>>,
}

impl GroupLink<'_> {
    /// Calls a Python function. An exception becomes the error for a group that lost a rank;
    /// `what` describes the failure in the message.
    fn call<R>(&self, what: &str, call: impl FnOnce(Python<'_>) -> PyResult<R>) -> Result<R, noren_dist::ranks::Error> {
        Python::attach(|py| {
            call(py).map_err(|error| {
                let reason: String = first_line(&error.value(py).to_string()).chars().take(300).collect();
                self.raised.replace(Some(error));
                self.job.lost(&format!("{what} ({reason})"))
            })
        })
    }
}

impl Link for GroupLink<'_> {
    fn job(&self) -> &Job {
        &self.job
    }

    fn carry(
        &self,
        outgoing: Messages,
        expected: &Sizes,
        work: &mut dyn FnMut(&mut dyn Arrivals) -> Result<(), noren_dist::ranks::Error>,
    ) -> Result<(), noren_dist::ranks::Error> {
        let exchange = self.call("sending failed", |py| {
            let bytes = |(rank, message): &(usize, Vec<u8>)| (*rank, PyByteArray::new(py, message));
            let outgoing: Vec<_> = outgoing.iter().map(bytes).collect();
            self.exchange.call1(py, (outgoing, expected.clone()))
        })?;
        drop(outgoing);
        work(&mut Arriving { link: self, exchange: &exchange })?;
        self.call("waiting for messages of the other ranks failed", |py| {
            exchange.call_method0(py, intern!(py, "finish"))
        })
        .map(drop)
    }
}

struct Arriving<'a> {
    link: &'a GroupLink<'a>,
    exchange: &'a Py<PyAny>,
}

impl Arrivals for Arriving<'_> {
    fn take(&mut self, rank: usize) -> Result<Vec<u8>, noren_dist::ranks::Error> {
        self.link.call(&format!("waiting for a message of rank {rank} failed"), |py| {
            let message = self.exchange.call_method1(py, intern!(py, "take"), (rank,))?;
            Ok(message.bind(py).cast::<PyByteArray>()?.to_vec())
        })
    }
}

// --- attention ----------------------------------------------------------------------------------------------------------------

/// The score modifiers of a call: (scale, softcap, slopes of ALiBi).
type Scores = (Option<f32>, Option<f32>, Option<Vec<f32>>);

fn options(scores: Scores, gradients: bool, cancel: &Arc<AtomicBool>) -> Options {
    let (scale, softcap, alibi) = scores;
    Options { scale, softcap, alibi, threads: threads_allowed(None), gradients, cancel: Some(cancel.clone()) }
}

fn local<'a, T: Element>([q, k, v]: [&'a Tensor; 3]) -> PyResult<Local<'a, T>> {
    let width = |tensor: &Tensor| tensor.shape.last().copied().unwrap_or_default();
    let (head_dim, v_dim) = (width(q), width(v));
    Ok(Local { q: q.floats("q")?, k: k.floats("k")?, v: v.floats("v")?, head_dim, v_dim })
}

/// Copies `values` into the contiguous `float32` tensor `into`; `name` is the name of the tensor in error messages.
fn write(values: &[f32], name: &str, into: &mut Tensor) -> PyResult<()> {
    let into: &mut [f32] = into.slice_mut(name, &[Kind::Float(Dtype::F32)])?;
    if into.len() != values.len() {
        return Err(Error::new_err(format!(
            "{name} has space for {} values, but the result has {} values",
            into.len(),
            values.len()
        )));
    }
    into.copy_from_slice(values);
    Ok(())
}

/// The results of a forward pass on this rank.
#[pyclass(name = "Attended", module = "noren.distributed", frozen)]
pub(crate) struct PyAttended(Attended);

#[pymethods]
impl PyAttended {
    /// Writes the output and the log-sum-exps into contiguous `float32` tensors.
    fn write(&self, mut out: Tensor, mut lse: Tensor) -> PyResult<()> {
        write(&self.0.out, "out", &mut out)?;
        write(&self.0.lse, "lse", &mut lse)
    }
}

/// The data of one rank for attention that is split over the ranks of a `Link`: the plan, and the query rows and keys
/// that each rank owns.
#[pyclass(name = "RankSplit", module = "noren.distributed", frozen)]
pub(crate) struct PySplit {
    split: Split,
    link: Py<PyLink>,
}

type Runs = Vec<[u32; 2]>;

#[pymethods]
impl PySplit {
    #[new]
    fn new(
        py: Python<'_>,
        plan: &PyPlan,
        partition: Option<&PyPartition>,
        travel: &str,
        link: Py<PyLink>,
    ) -> PyResult<Self> {
        let travel = travel_of(travel)?;
        let split = link.get().run(py, |link, _| match partition {
            Some(partition) => Split::with(&plan.plan, partition.0.clone(), link),
            None => Split::travelling(&plan.plan, travel, link),
        })?;
        Ok(PySplit { split, link })
    }

    #[getter]
    fn partition(&self) -> PyPartition {
        PyPartition(self.split.partition().clone())
    }

    /// Returns the query rows and the keys of batch row `batch` that rank `rank` owns, as ranges (first, after the
    /// last).
    fn owned(&self, batch: usize, rank: usize) -> PyResult<(Runs, Runs)> {
        let partition = self.split.partition();
        if batch >= partition.row_of.len() || rank >= partition.ranks {
            let (rows, ranks) = (partition.row_of.len(), partition.ranks);
            let problem = format!(
                "batch row {batch}, rank {rank} does not exist: there are {rows} batch rows and {ranks} ranks, counted from 0"
            );
            return Err(PyIndexError::new_err(problem));
        }
        let share = &partition.row(batch).shares[rank];
        Ok((share.queries.clone(), share.keys.clone()))
    }

    #[getter]
    fn lengths(&self) -> (usize, usize) {
        self.split.lengths().into()
    }

    /// True if each rank owns the same query rows and keys in every batch row.
    #[getter]
    fn uniform(&self) -> bool {
        self.split.partition().rows.len() == 1
    }

    #[getter]
    fn queries_travel(&self) -> bool {
        self.split.queries_travel()
    }

    /// Returns two pairs (bytes sent, bytes received) of this rank: for a forward pass, then for a backward pass.
    fn predicted(&self, head_dim: usize, v_dim: usize, element_bytes: usize) -> [(u64, u64); 2] {
        self.split.predicted([head_dim, v_dim], element_bytes).map(|traffic| (traffic.sent, traffic.received))
    }

    fn attention(
        &self,
        py: Python<'_>,
        arrays: (Tensor, Tensor, Tensor),
        scores: Scores,
        gradients: bool,
    ) -> PyResult<PyAttended> {
        let arrays = [&arrays.0, &arrays.1, &arrays.2];
        by_dtype!(arrays[0].dtype("q")?, forward_of(self, py, arrays, scores, gradients))
    }

    /// Writes the gradients of q, k and v into `into`, three contiguous `float32` tensors. `arrays` is (q, k, v),
    /// `attended` the result of the forward pass, `dout` the gradient of the output, and `scores` is (scale, softcap,
    /// slopes of ALiBi).
    fn gradients(
        &self,
        py: Python<'_>,
        arrays: (Tensor, Tensor, Tensor),
        attended: &PyAttended,
        dout: Tensor,
        scores: Scores,
        mut into: (Tensor, Tensor, Tensor),
    ) -> PyResult<()> {
        let arrays = [&arrays.0, &arrays.1, &arrays.2];
        let found = by_dtype!(arrays[0].dtype("q")?, backward_of(self, py, arrays, (&attended.0, &dout), scores))?;
        write(&found.dq, "dq", &mut into.0)?;
        write(&found.dk, "dk", &mut into.1)?;
        write(&found.dv, "dv", &mut into.2)
    }
}

fn forward_of<T: Element>(
    split: &PySplit,
    py: Python<'_>,
    arrays: [&Tensor; 3],
    scores: Scores,
    gradients: bool,
) -> PyResult<PyAttended> {
    let local = local::<T>(arrays)?;
    let run = |link: &dyn Link, cancel: &Arc<AtomicBool>| {
        noren_dist::ranks::attention(&split.split, link, &local, &options(scores, gradients, cancel))
    };
    split.link.get().run(py, run).map(PyAttended)
}

fn backward_of<T: Element>(
    split: &PySplit,
    py: Python<'_>,
    arrays: [&Tensor; 3],
    (attended, dout): (&Attended, &Tensor),
    scores: Scores,
) -> PyResult<noren_dist::ranks::Gradients> {
    let (local, dout) = (local::<T>(arrays)?, dout.floats::<T>("dout")?);
    split.link.get().run(py, |link, cancel| {
        noren_dist::ranks::attention_backward(
            &split.split,
            link,
            &local,
            (attended, dout),
            &options(scores, true, cancel),
        )
    })
}

// --- decoding -----------------------------------------------------------------------------------------------------------------

/// A key-value cache whose keys are distributed over the ranks of a `Link`.
#[pyclass(name = "RankShards", module = "noren.distributed", frozen)]
pub(crate) struct PyShards {
    shards: Shards,
    link: Py<PyLink>,
}

#[pymethods]
impl PyShards {
    /// Makes a cache that is distributed over ranks. `keys` gives the ranges of keys of each rank [default: ranges of
    /// equal length].
    #[new]
    fn new(py: Python<'_>, plan: &PyPlan, keys: Option<Vec<Vec<(usize, usize)>>>, link: Py<PyLink>) -> PyResult<Self> {
        let shards = link.get().run(py, |link, _| match keys {
            Some(keys) => {
                let ranges = |runs: Vec<(usize, usize)>| runs.into_iter().map(|(start, end)| start..end).collect();
                Shards::with(&plan.plan, keys.into_iter().map(ranges).collect(), link)
            }
            None => Shards::new(&plan.plan, link),
        })?;
        Ok(PyShards { shards, link })
    }

    /// Returns the keys that rank `rank` stores, as ranges (first key, key after the last).
    fn held(&self, rank: usize) -> PyResult<Vec<(usize, usize)>> {
        let held = self.shards.held().get(rank);
        let problem = || {
            PyIndexError::new_err(format!(
                "the rank {rank} does not exist: there are {} ranks, counted from 0",
                self.shards.held().len()
            ))
        };
        Ok(held.ok_or_else(problem)?.iter().map(|&Range { start, end }| (start, end)).collect())
    }

    fn decode(&self, py: Python<'_>, arrays: (Tensor, Tensor, Tensor), scores: Scores) -> PyResult<PyAttended> {
        let arrays = [&arrays.0, &arrays.1, &arrays.2];
        by_dtype!(arrays[0].dtype("q")?, decode_of(self, py, arrays, scores))
    }
}

fn decode_of<T: Element>(
    shards: &PyShards,
    py: Python<'_>,
    arrays: [&Tensor; 3],
    scores: Scores,
) -> PyResult<PyAttended> {
    let local = local::<T>(arrays)?;
    let run = |link: &dyn Link, cancel: &Arc<AtomicBool>| {
        noren_dist::ranks::decode(&shards.shards, link, &local, &options(scores, false, cancel))
    };
    shards.link.get().run(py, run).map(PyAttended)
}

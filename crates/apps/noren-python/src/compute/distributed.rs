//! Partitions: the division of a mask over ranks (processes). [`ranks`](crate::compute::ranks) computes attention with a
//! partition.

use crate::error::{Error, raise};
use crate::masks::bound::{PyBound, PyPlan};
use noren_dist::{Objective, Options, Partition, Travel, Wire};
use pyo3::prelude::*;

/// The division of a mask over processes (ranks): the tokens and cells of each rank, and the data that the rank sends
/// and receives.
#[pyclass(name = "Partition", module = "noren.distributed", frozen)]
pub(crate) struct PyPartition(pub(crate) Partition);

pub(crate) fn raise_dist(error: noren_dist::Error) -> PyErr {
    match error {
        noren_dist::Error::Mask(error) => raise(error),
        error => Error::new_err(error.to_string()),
    }
}

pub(crate) fn travel_of(name: &str) -> PyResult<Travel> {
    match name {
        "keys" => Ok(Travel::Keys),
        "both" => Ok(Travel::Both),
        other => Err(Error::new_err(format!("travel is {other:?}: give \"keys\" or \"both\""))),
    }
}

/// Divides a planned mask over `ranks` processes on `nodes` machines.
///
/// `travel="keys"`: each query is computed by the rank that owns it, and keys are sent. `travel="both"`: queries may
/// also be sent to the rank that owns the keys; that rank sends the results back.
///
/// The partition minimises the bytes sent. `objective` sets the maximum number of allowed cells and of tokens of each
/// rank, as multiples of the mean over the ranks:
///
/// - `"balanced"`: 1.05 times the mean number of cells, 1.25 times the mean number of tokens
/// - `"traffic"`: 1.25 times the mean number of cells, 1.5 times the mean number of tokens
/// - `"tokens"`: 1.05 times the mean number of cells, 1.01 times the mean number of tokens
///
/// `head_dim` is the width of queries, keys and values, and `element_bytes` the number of bytes of one of their
/// numbers.
#[pyfunction]
#[pyo3(signature = (plan, ranks, *, nodes=1, travel="both", objective="balanced", head_dim=128, element_bytes=2))]
#[allow(clippy::too_many_arguments)] // keyword arguments
pub(crate) fn partition(
    py: Python<'_>,
    plan: &PyPlan,
    ranks: usize,
    nodes: usize,
    travel: &str,
    objective: &str,
    head_dim: usize,
    element_bytes: usize,
) -> PyResult<PyPartition> {
    let travel = travel_of(travel)?;
    let objective = match objective {
        "balanced" => Objective::Balanced,
        "traffic" => Objective::Traffic,
        "tokens" => Objective::Tokens,
        other => {
            let expected = "give \"balanced\", \"traffic\" or \"tokens\"";
            return Err(Error::new_err(format!("objective is {other:?}: {expected}")));
        }
    };
    let wire = Wire { head_dim, v_dim: head_dim, element: element_bytes, ..Wire::default() };
    let options = Options { ranks, nodes, travel, objective, wire, ..Options::default() };
    py.detach(|| noren_dist::partition(&plan.plan, &options)).map(PyPartition).map_err(raise_dist)
}

#[pymethods]
impl PyPartition {
    /// The hash of the partition. Ranks compare this hash before they exchange data.
    #[getter]
    fn hash(&self) -> &str {
        &self.0.hash
    }

    /// The name of the method by which the mask was divided, such as "contiguous".
    #[getter]
    fn method(&self) -> &str {
        &self.0.method
    }

    /// The number of ranks.
    #[getter]
    fn ranks(&self) -> usize {
        self.0.ranks
    }

    /// The number of machines over which the ranks are placed.
    #[getter]
    fn nodes(&self) -> usize {
        self.0.nodes
    }

    /// Returns four numbers of bytes for rank `rank`: received and sent in the forward pass, received and sent in the
    /// backward pass.
    ///
    /// `element_bytes` is the number of bytes of one value; queries, keys and values all have the width `head_dim`.
    fn traffic(&self, rank: usize, head_dim: usize, element_bytes: usize) -> PyResult<[u64; 4]> {
        let wire = Wire { head_dim, v_dim: head_dim, element: element_bytes, ..Wire::default() };
        let all = self.0.traffic(&wire);
        let Some(of) = all.get(rank) else {
            return Err(Error::new_err(format!(
                "rank {rank} does not exist: there are {} ranks, counted from 0",
                all.len()
            )));
        };
        Ok([of.received, of.sent, of.backward_received, of.backward_sent])
    }

    /// Raises `Error` unless each allowed cell is computed exactly once, by a rank that owns or receives the query, key
    /// and value of the cell.
    fn check(&self, py: Python<'_>, bound: &PyBound) -> PyResult<()> {
        py.detach(|| self.0.check(&bound.0)).map_err(raise_dist)
    }

    /// Returns the partition as JSON.
    fn to_json(&self) -> String {
        self.0.to_json()
    }

    /// Reads a partition from JSON. Raises `Error` if the JSON is invalid or not a partition of `bound`.
    #[staticmethod]
    fn from_json(py: Python<'_>, text: &str, bound: &PyBound) -> PyResult<Self> {
        py.detach(|| Partition::from_json(text, &bound.0)).map(PyPartition).map_err(raise_dist)
    }

    fn __repr__(&self) -> String {
        let [batch, heads, _, q_len, kv_len] = self.0.shape;
        let (method, ranks) = (&self.0.method, self.0.ranks);
        format!("<{method} partition of {q_len} x {kv_len}, batch {batch}, {heads} heads, over {ranks} ranks>")
    }
}

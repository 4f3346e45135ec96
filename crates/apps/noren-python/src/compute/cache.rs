//! `_KvCache` and `StepPlan`: a key-value cache that keeps keys and values between decoding steps, in one of three
//! number types.

use crate::compute::attention::{Modifiers, compute, is_long};
use crate::dlpack::{Kind, Tensor, check_disjoint};
use crate::error::{Error, raise};
use crate::masks::bound::{PyPlan, within_budget};
use crate::masks::classes::{PyMask, PySpec};
use crate::masks::facts::{PyShape, check_used, facts_of};
use crate::masks::values::whole;
use noren::{Dtype, Element, KvCache, KvShape, Outputs, Queries, Rotating, StepPlan, View, bf16, f16};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::AtomicBool;
use std::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard, TryLockError};

/// A key-value cache in one of the number types of attention.
enum AnyCache {
    F32(KvCache<f32>),
    Bf16(KvCache<bf16>),
    F16(KvCache<f16>),
}

macro_rules! each {
    ($any:expr, $cache:ident => $call:expr) => {
        match $any {
            AnyCache::F32($cache) => $call,
            AnyCache::Bf16($cache) => $call,
            AnyCache::F16($cache) => $call,
        }
    };
}

/// The memory of `noren.KvCache`. While a call changes the cache, no other call can run; calls that only read the cache
/// can run at the same time.
#[pyclass(name = "_KvCache", module = "noren", frozen)]
pub(crate) struct PyCache(RwLock<AnyCache>);

/// The plan of one decoding step of a `KvCache`. All layers can use the same plan if their caches hold the same tokens.
#[pyclass(name = "StepPlan", module = "noren", frozen, weakref)]
pub(crate) struct PyStepPlan {
    step: StepPlan,
    spec: Option<PySpec>,
    whole: PyPlan,
}

/// Returns the error for a cache that is locked by another thread, or whose content is unknown because an earlier call
/// panicked.
fn in_use<T>(error: TryLockError<T>) -> PyErr {
    Error::new_err(match error {
        TryLockError::WouldBlock => {
            "the cache is used by another thread: wait until the call of that thread has ended, or give each thread its own cache"
        }
        TryLockError::Poisoned(_) => {
            "an earlier call on this cache failed before it had finished, so the content of the cache is unknown: make a new cache"
        }
    })
}

/// The sizes of a kind of cache, in the order of the arguments of `noren.KvCache`.
#[derive(FromPyObject)]
enum Form {
    Contiguous([usize; 1]),
    Paged([usize; 2]),
    Rotating([usize; 3]),
}

fn cache_of<T: Element>(form: &Form, shape: &KvShape) -> PyResult<KvCache<T>> {
    match *form {
        Form::Contiguous([capacity]) => KvCache::contiguous(shape, capacity),
        Form::Paged([blocks, block]) => KvCache::paged(shape, block, blocks),
        Form::Rotating([window, sink_tokens, ahead]) => {
            KvCache::rotating(shape, Rotating { window, sink_tokens, ahead })
        }
    }
    .map_err(raise)
}

/// Returns a view of an array. Returns an error unless the array has the number type of the cache.
fn typed<'a, T: Element>(array: &'a Tensor, name: &'static str) -> PyResult<View<'a, T>> {
    let given = array.dtype(name)?;
    if given != T::DTYPE {
        let words = |dtype| Kind::Float(dtype).words();
        return Err(PyTypeError::new_err(format!(
            "{name} holds {}, but the cache holds {}: convert {name}, or make the cache with dtype=\"{}\"",
            words(given),
            words(T::DTYPE),
            words(given)
        )));
    }
    array.view(name)
}

impl PyCache {
    fn read(&self) -> PyResult<RwLockReadGuard<'_, AnyCache>> {
        self.0.try_read().map_err(in_use)
    }

    fn write(&self) -> PyResult<RwLockWriteGuard<'_, AnyCache>> {
        self.0.try_write().map_err(in_use)
    }
}

#[pymethods]
impl PyCache {
    /// Makes a cache. The arguments are those of `noren.KvCache`; `form` has the sizes that depend on the kind of cache.
    #[new]
    fn new(
        form: Form,
        kv_heads: usize,
        head_dim: usize,
        v_dim: usize,
        sequences: usize,
        dtype: &str,
        isa: Option<&str>,
    ) -> PyResult<Self> {
        let mut shape = KvShape::new(kv_heads, head_dim).v_dim(v_dim).sequences(sequences);
        if let Some(name) = isa {
            shape = shape.isa(name.parse().map_err(raise)?);
        }
        Ok(PyCache(RwLock::new(match dtype {
            "bfloat16" => AnyCache::Bf16(cache_of(&form, &shape)?),
            "float16" => AnyCache::F16(cache_of(&form, &shape)?),
            _ => AnyCache::F32(cache_of(&form, &shape)?),
        })))
    }

    /// Appends the keys `k` and values `v` of new tokens to all sequences; with `cu_seqlens`, different numbers of
    /// tokens to each sequence.
    #[pyo3(signature = (k, v, cu_seqlens=None))]
    fn append(&self, py: Python<'_>, k: Tensor, v: Tensor, cu_seqlens: Option<Vec<usize>>) -> PyResult<()> {
        py.detach(|| each!(self.write()?.deref_mut(), cache => append(cache, &k, &v, cu_seqlens.as_deref())))
    }

    /// Returns the plan of a step. Its queries are the last tokens of each sequence: `new` tokens, or, with
    /// `cu_seqlens` (cumulative numbers of queries), a different number for each sequence.
    #[pyo3(signature = (mask, facts, heads, new, cu_seqlens=None, spec=None))]
    #[allow(clippy::too_many_arguments)] // called by this package alone
    fn plan(
        &self,
        py: Python<'_>,
        mask: PyMask,
        facts: Option<&Bound<'_, PyAny>>,
        heads: usize,
        new: usize,
        cu_seqlens: Option<Vec<usize>>,
        spec: Option<PySpec>,
    ) -> PyResult<PyStepPlan> {
        let facts = facts_of(facts)?;
        let queries = cu_seqlens.map_or(Queries::Each(new), Queries::Ragged);
        let cache = self.read()?;
        let step = within_budget(
            py,
            |budget| each!(cache.deref(), cache => cache.plan_within(&mask.0, &facts, heads, queries, budget)),
        )?;
        check_used(&mask.0, &facts)?;
        let whole = PyPlan::new(step.plan().clone());
        Ok(PyStepPlan { step, spec, whole })
    }

    /// Computes the attention of a step. Writes the output to `out` and, if `lse` is given, the log-sum-exps to `lse`
    /// (contiguous `float32`).
    #[pyo3(signature = (q, plan, modifiers, out, lse=None))]
    fn attend(
        &self,
        py: Python<'_>,
        q: Tensor,
        plan: &PyStepPlan,
        modifiers: &Modifiers,
        mut out: Tensor,
        mut lse: Option<Tensor>,
    ) -> PyResult<()> {
        let mut written = vec![("out", &out)];
        written.extend(lse.as_ref().map(|lse| ("lse", lse)));
        let mut read = vec![("q", &q)];
        read.extend(modifiers.tensors());
        check_disjoint(&written, &read)?;
        compute(py, is_long(&plan.whole, &q, &out), |cancel| {
            let cache = self.read()?;
            each!(cache.deref(), cache => attend(cache, &q, plan, modifiers, cancel, &mut out, lse.as_mut()))
        })
    }

    /// Removes the last tokens of a sequence until `length` are left.
    fn truncate(&self, sequence: usize, length: usize) -> PyResult<()> {
        each!(self.write()?.deref_mut(), cache => cache.truncate(sequence, length)).map_err(raise)
    }

    /// Keeps some of the last `guesses` tokens of a sequence and removes the others. `accepted` has the indices of the
    /// tokens to keep; the first of the `guesses` tokens has index 0.
    fn keep(&self, py: Python<'_>, sequence: usize, guesses: usize, accepted: Vec<usize>) -> PyResult<()> {
        py.detach(|| each!(self.write()?.deref_mut(), cache => cache.keep(sequence, guesses, &accepted)).map_err(raise))
    }

    /// The number of tokens of each sequence.
    #[getter]
    fn lengths(&self) -> PyResult<Vec<usize>> {
        Ok(each!(self.read()?.deref(), cache => (0..cache.sequence_count()).map(|b| cache.len(b)).collect()))
    }

    /// The number of blocks of a paged cache that no sequence uses.
    #[getter]
    fn free_blocks(&self) -> PyResult<usize> {
        Ok(each!(self.read()?.deref(), cache => cache.free_blocks()))
    }

    /// The memory allocated for keys and values, in bytes, including the part that holds no tokens.
    #[getter]
    fn bytes(&self) -> PyResult<usize> {
        Ok(each!(self.read()?.deref(), cache => cache.bytes()))
    }

    /// The ISA (set of processor instructions) that the cache's computations use.
    #[getter]
    fn isa(&self) -> PyResult<String> {
        Ok(each!(self.read()?.deref(), cache => cache.isa().to_string()))
    }
}

fn append<T: Element>(cache: &mut KvCache<T>, k: &Tensor, v: &Tensor, starts: Option<&[usize]>) -> PyResult<()> {
    let (k, v) = (typed(k, "k")?, typed(v, "v")?);
    match starts {
        None => cache.append(k, v),
        Some(starts) => cache.append_ragged(k, v, starts),
    }
    .map_err(raise)
}

fn attend<T: Element>(
    cache: &KvCache<T>,
    q: &Tensor,
    plan: &PyStepPlan,
    modifiers: &Modifiers,
    cancel: &AtomicBool,
    out: &mut Tensor,
    lse: Option<&mut Tensor>,
) -> PyResult<()> {
    let options = modifiers.options(plan.step.plan().shape().head_count(), cancel)?;
    let lse = lse.map(|lse| lse.slice_mut("lse", &[Kind::Float(Dtype::F32)])).transpose()?;
    let q = typed(q, "q")?;
    let outputs = Outputs { out: out.view_mut("out")?, lse };
    cache.attention_into(q, &plan.step, &options, outputs).map_err(raise)
}

#[pymethods]
impl PyStepPlan {
    /// The plan for attention. Its batch rows are the sequences, its queries are the new tokens, and its keys are the
    /// keys of the cache that the step reads.
    #[getter]
    fn plan(&self) -> PyPlan {
        PyPlan::new(self.step.plan().clone())
    }

    /// The mask with its score modifiers; `None` if the step was planned with a mask without score modifiers.
    #[getter]
    fn spec(&self) -> Option<PySpec> {
        self.spec.clone()
    }

    /// The sizes of the step: batch rows (sequences), heads, queries and keys.
    #[getter]
    fn shape(&self) -> PyShape {
        PyShape(self.step.plan().shape().clone())
    }

    /// Returns the position of each key that the step reads in the sequence with index `sequence`; -1 for an index that
    /// holds no key.
    fn key_positions(&self, sequence: &Bound<'_, PyAny>) -> PyResult<Vec<i64>> {
        let (sequence, shape) = (whole(sequence, "sequence")?, self.step.plan().shape());
        let last = shape.batch_len() as i64 - 1;
        if !(0..=last).contains(&sequence) {
            return Err(Error::new_err(format!(
                "the sequence {sequence} does not exist: sequences are numbered from 0 to {last}"
            )));
        }
        let sequence = sequence as usize;
        Ok((0..shape.kv_len()).map(|key| self.step.key_position(sequence, key).max(-1)).collect())
    }

    fn __repr__(&self) -> String {
        let shape = self.step.plan().shape();
        format!(
            "<step of {} with {} sequence(s), {} queries, {} keys>",
            self.step.plan().bound().mask(),
            shape.batch_len(),
            shape.q_len(),
            shape.kv_len()
        )
    }
}

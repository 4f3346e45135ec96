//! Attention over borrowed arrays: forward pass, backward pass, attention weights.

use crate::dlpack::{Kind, Tensor, check_disjoint};
use crate::error::{Error, raise, repr};
use crate::masks::bound::PyPlan;
use noren::{
    Bias, Dropout, Dtype, Element, GradientsMut, Inputs, Isa, Options, Outputs, Saved, ViewMut,
    attention_backward_into, attention_into, attention_weights, bf16, f16,
};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

/// A call with more multiplications than this number takes tens of milliseconds or more, and checks for Ctrl-C.
const LONG: u64 = 1 << 31;
const LISTEN: Duration = Duration::from_millis(50);

/// True in a forked process, in which the parent's thread pool does not exist.
static FORKED: AtomicBool = AtomicBool::new(false);

/// Records that this process was created by a fork, so that calls use no thread pool.
#[pyfunction]
pub(crate) fn after_fork() {
    FORKED.store(true, Ordering::Relaxed);
}

/// Returns the number of threads for a call: 1 in a forked process, otherwise `wanted`, otherwise the environment
/// variable `OMP_NUM_THREADS`. `None` means all cores.
pub(crate) fn threads_allowed(wanted: Option<usize>) -> Option<usize> {
    if FORKED.load(Ordering::Relaxed) {
        return Some(1);
    }
    let given = || std::env::var("OMP_NUM_THREADS").ok()?.parse().ok().filter(|threads| *threads > 0);
    wanted.or_else(given)
}

/// Score modifiers and options of one call of `forward`, `backward` or `weights`; the arguments are those of
/// `noren.attention`.
#[pyclass(name = "Modifiers", module = "noren", frozen)]
pub(crate) struct Modifiers {
    scale: Option<f32>,
    softcap: Option<f32>,
    bias: Vec<Tensor>,
    relative: Option<Tensor>,
    alibi: Option<Vec<f32>>,
    soft: Option<Tensor>,
    sinks: Option<Tensor>,
    dropout: Option<Dropout>,
    threads: Option<usize>,
    isa: Option<Isa>,
}

#[pymethods]
impl Modifiers {
    #[new]
    #[pyo3(signature = (*, scale=None, softcap=None, bias=Vec::new(), relative=None, alibi=None, soft=None, sinks=None,
                        dropout=0.0, seed=None, threads=None, isa=None))]
    #[allow(clippy::too_many_arguments)] // keyword arguments
    fn new(
        scale: Option<f32>,
        softcap: Option<f32>,
        bias: Vec<Tensor>,
        relative: Option<Tensor>,
        alibi: Option<Vec<f32>>,
        soft: Option<Tensor>,
        sinks: Option<Tensor>,
        dropout: f32,
        seed: Option<&Bound<'_, PyAny>>,
        threads: Option<&Bound<'_, PyAny>>,
        isa: Option<&str>,
    ) -> PyResult<Self> {
        let seed: u64 = seed.map_or(Ok(0), |given| whole(given, "seed", "give a whole number from 0 to 2^64 - 1"))?;
        let threads: Option<usize> = threads
            .map(|given| whole(given, "threads", "give a whole number from 1 to the number of cores"))
            .transpose()?;
        let dropout = (dropout != 0.0).then_some(Dropout { probability: dropout, seed });
        let isa = isa.map(|name| name.parse().map_err(raise)).transpose()?;
        Ok(Modifiers { scale, softcap, bias, relative, alibi, soft, sinks, dropout, threads, isa })
    }
}

/// Converts a whole number of Python to `T`. In the error message, `name` is the name of the number and `fix` states the
/// valid numbers.
fn whole<'py, T: FromPyObjectOwned<'py>>(given: &Bound<'py, PyAny>, name: &str, fix: &str) -> PyResult<T> {
    given.extract().map_err(|_| {
        let given = repr(given);
        Error::new_err(format!("{name} is {given}: {fix}"))
    })
}

impl Modifiers {
    /// Returns all arrays of the score modifiers with their names.
    pub(crate) fn tensors(&self) -> impl Iterator<Item = (&str, &Tensor)> {
        let named = [("relative", &self.relative), ("soft", &self.soft), ("sinks", &self.sinks)];
        let named = named.into_iter().filter_map(|(name, array)| array.as_ref().map(|array| (name, array)));
        self.bias.iter().map(|bias| ("bias", bias)).chain(named)
    }

    /// Returns the options of a call with `heads` query heads.
    pub(crate) fn options<'a>(&'a self, heads: usize, cancel: &'a AtomicBool) -> PyResult<Options<'a>> {
        let mut options = Options::default();
        (options.scale, options.softcap) = (self.scale, self.softcap);
        for bias in &self.bias {
            options.bias.push(Bias::Dense(bias.view("bias")?));
        }
        if let Some(table) = &self.relative {
            let table = table.view("relative")?;
            let [_, of, _, width] = table.shape();
            if (of != 1 && of != heads) || width % 2 == 0 {
                return Err(Error::new_err(format!(
                    "relative has shape [{of}, {width}]: give a table [{heads} or 1, 2 * reach + 1], where reach is the largest distance with its own number"
                )));
            }
            options.bias.push(Bias::Relative { table });
        }
        if let Some(slopes) = &self.alibi {
            options.bias.push(Bias::Alibi(slopes.clone()));
        }
        if let Some(soft) = &self.soft {
            options.soft = Some(soft.view("soft")?);
        }
        if let Some(sinks) = &self.sinks {
            options.sinks = Some(sinks.floats("sinks")?);
        }
        (options.dropout, options.threads, options.isa) = (self.dropout, threads_allowed(self.threads), self.isa);
        options.cancel = Some(cancel);
        Ok(options)
    }
}

/// Calls `work` without the interpreter's lock. `work` receives a flag. If `long` is true, Ctrl-C sets this flag, and
/// `work` must then stop.
pub(crate) fn compute<R: Send>(
    py: Python<'_>,
    long: bool,
    work: impl FnOnce(&Arc<AtomicBool>) -> PyResult<R> + Send,
) -> PyResult<R> {
    let cancel = Arc::new(AtomicBool::new(false));
    if !long {
        return py.detach(|| work(&cancel));
    }
    py.detach(|| {
        std::thread::scope(|scope| {
            let (done, wait) = channel();
            let cancel = &cancel;
            scope.spawn(move || done.send(work(cancel)));
            loop {
                match wait.recv_timeout(LISTEN) {
                    Ok(result) => return result,
                    Err(RecvTimeoutError::Disconnected) => {
                        return Err(PyRuntimeError::new_err("the computation panicked"));
                    }
                    Err(RecvTimeoutError::Timeout) => {
                        if let Err(signal) = Python::attach(|py| py.check_signals()) {
                            cancel.store(true, Ordering::Relaxed);
                            drop(wait.recv());
                            return Err(signal);
                        }
                    }
                }
            }
        })
    })
}

fn inputs<'a, T: Element>(q: &'a Tensor, k: &'a Tensor, v: &'a Tensor) -> PyResult<Inputs<'a, T>> {
    Ok(Inputs { q: q.view("q")?, k: k.view("k")?, v: v.view("v")? })
}

/// Returns true if a call takes tens of milliseconds or more. From `q` and `v`, only the size of the last dimension is
/// used: the width of keys and of values.
pub(crate) fn is_long(plan: &PyPlan, q: &Tensor, v: &Tensor) -> bool {
    let width = |tensor: &Tensor| tensor.shape.last().copied().unwrap_or(1) as u64;
    plan.computed.saturating_mul(width(q) + width(v)) > LONG
}

macro_rules! by_dtype {
    ($dtype:expr, $function:ident ( $($argument:expr),* )) => {
        match $dtype {
            Dtype::F32 => $function::<f32>($($argument),*),
            Dtype::Bf16 => $function::<bf16>($($argument),*),
            Dtype::F16 => $function::<f16>($($argument),*),
        }
    };
}
pub(crate) use by_dtype;

/// Computes the forward pass. Writes the output to `out` and, if `lse` is given, the log-sum-exps to `lse` (contiguous
/// `float32`).
#[pyfunction]
#[pyo3(signature = (q, k, v, plan, modifiers, out, lse=None))]
#[allow(clippy::too_many_arguments)] // called by this package alone
pub(crate) fn forward(
    py: Python<'_>,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    plan: &PyPlan,
    modifiers: &Modifiers,
    mut out: Tensor,
    mut lse: Option<Tensor>,
) -> PyResult<()> {
    let long = is_long(plan, &q, &v);
    let arrays = [&q, &k, &v];
    let mut written = vec![("out", &out)];
    written.extend(lse.as_ref().map(|lse| ("lse", lse)));
    let mut read = vec![("q", &q), ("k", &k), ("v", &v)];
    read.extend(modifiers.tensors());
    check_disjoint(&written, &read)?;
    compute(py, long, |cancel| {
        by_dtype!(arrays[0].dtype("q")?, forward_of(arrays, plan, modifiers, cancel, &mut out, lse.as_mut()))
    })
}

fn forward_of<T: Element>(
    [q, k, v]: [&Tensor; 3],
    plan: &PyPlan,
    modifiers: &Modifiers,
    cancel: &AtomicBool,
    out: &mut Tensor,
    lse: Option<&mut Tensor>,
) -> PyResult<()> {
    let options = modifiers.options(plan.plan.shape().head_count(), cancel)?;
    // First, because the shape of the output depends on these arrays.
    let inputs = inputs(q, k, v)?;
    let lse = lse.map(|lse| lse.slice_mut("lse", &[Kind::Float(Dtype::F32)])).transpose()?;
    let outputs = Outputs { out: out.view_mut::<T>("out")?, lse };
    attention_into(&inputs, &plan.plan, &options, outputs).map_err(raise)
}

/// Writes the gradients of q, k and v into `gradients`, and the gradients of biases, soft weights and sinks into the
/// arrays that are given for them.
#[pyfunction]
#[pyo3(signature = (q, k, v, plan, modifiers, saved, gradients, dbias=Vec::new(), dsoft=None, dsinks=None))]
#[allow(clippy::too_many_arguments)] // called by this package alone
pub(crate) fn backward(
    py: Python<'_>,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    plan: &PyPlan,
    modifiers: &Modifiers,
    saved: (Tensor, Tensor, Tensor),
    gradients: (Tensor, Tensor, Tensor),
    dbias: Vec<Option<Tensor>>,
    dsoft: Option<Tensor>,
    dsinks: Option<Tensor>,
) -> PyResult<()> {
    let long = is_long(plan, &q, &v);
    let dtype = q.dtype("q")?;
    let mut written = vec![("dq", &gradients.0), ("dk", &gradients.1), ("dv", &gradients.2)];
    let others = dbias.iter().flatten().map(|array| ("a bias' gradient", array));
    written.extend(others.chain(dsoft.as_ref().map(|array| ("dsoft", array))));
    written.extend(dsinks.as_ref().map(|array| ("dsinks", array)));
    let mut read = vec![("q", &q), ("k", &k), ("v", &v), ("out", &saved.0), ("lse", &saved.1), ("dout", &saved.2)];
    read.extend(modifiers.tensors());
    check_disjoint(&written, &read)?;
    let call = Call { q, k, v, plan, modifiers, saved };
    let wanted = Wanted { gradients, dbias, dsoft, dsinks };
    compute(py, long, |cancel| by_dtype!(dtype, backward_of(&call, cancel, wanted)))
}

struct Call<'a> {
    q: Tensor,
    k: Tensor,
    v: Tensor,
    plan: &'a PyPlan,
    modifiers: &'a Modifiers,
    /// The output, the log-sum-exps and the gradient of the output.
    saved: (Tensor, Tensor, Tensor),
}

struct Wanted {
    gradients: (Tensor, Tensor, Tensor),
    dbias: Vec<Option<Tensor>>,
    dsoft: Option<Tensor>,
    dsinks: Option<Tensor>,
}

fn backward_of<T: Element>(call: &Call<'_>, cancel: &AtomicBool, mut wanted: Wanted) -> PyResult<()> {
    let options = call.modifiers.options(call.plan.plan.shape().head_count(), cancel)?;
    let (out, lse, dout) = &call.saved;
    let saved = Saved::<T> { out: out.view("out")?, lse: lse.floats("lse")?, dout: dout.view("dout")? };
    let (dq, dk, dv) = &mut wanted.gradients;
    let gradients = GradientsMut {
        bias: wanted.dbias.iter_mut().map(gradient).collect::<PyResult<_>>()?,
        soft: gradient(&mut wanted.dsoft)?,
        sinks: match &mut wanted.dsinks {
            Some(sinks) => Some(sinks.slice_mut("the sinks' gradient", &[Kind::Float(Dtype::F32)])?),
            None => None,
        },
        ..GradientsMut::new(dq.view_mut("dq")?, dk.view_mut("dk")?, dv.view_mut("dv")?)
    };
    let inputs = inputs(&call.q, &call.k, &call.v)?;
    attention_backward_into(&inputs, &saved, &call.plan.plan, &options, gradients).map_err(raise)
}

fn gradient(array: &mut Option<Tensor>) -> PyResult<Option<ViewMut<'_>>> {
    array.as_mut().map(|array| array.view_mut("the gradient of a score modifier")).transpose()
}

/// Writes the attention weights, which are the probabilities after the softmax, into a contiguous `float32` array `[batch,
/// heads, q_len, kv_len]`.
#[pyfunction]
pub(crate) fn weights(
    py: Python<'_>,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    plan: &PyPlan,
    modifiers: &Modifiers,
    mut out: Tensor,
) -> PyResult<()> {
    let arrays = [&q, &k, &v];
    let mut read = vec![("q", &q), ("k", &k), ("v", &v)];
    read.extend(modifiers.tensors());
    check_disjoint(&[("weights", &out)], &read)?;
    compute(py, true, |cancel| by_dtype!(arrays[0].dtype("q")?, weights_of(arrays, plan, modifiers, cancel, &mut out)))
}

fn weights_of<T: Element>(
    [q, k, v]: [&Tensor; 3],
    plan: &PyPlan,
    modifiers: &Modifiers,
    cancel: &AtomicBool,
    out: &mut Tensor,
) -> PyResult<()> {
    let shape = plan.plan.shape();
    let options = modifiers.options(shape.head_count(), cancel)?;
    let inputs = inputs::<T>(q, k, v)?;
    let cells: &mut [f32] = out.slice_mut("weights", &[Kind::Float(Dtype::F32)])?;
    if cells.len() as u128 != shape.cells() {
        return Err(Error::new_err(format!(
            "the array of attention weights must have {} elements, one for each cell",
            shape.cells()
        )));
    }
    for (i, row) in cells.chunks_mut(shape.kv_len()).enumerate() {
        if cancel.load(Ordering::Relaxed) {
            return Err(raise(noren::Error::Cancelled));
        }
        let (pair, q_row) = (i / shape.q_len(), i % shape.q_len());
        let at = [pair / shape.head_count(), pair % shape.head_count()];
        let weights = attention_weights(&inputs, &plan.plan, &options, at, q_row..q_row + 1).map_err(raise)?;
        row.copy_from_slice(&weights);
    }
    Ok(())
}

/// Returns the names of the instruction sets (ISAs) for which kernels exist and that this machine supports, the slowest
/// first. Each name is a value for `isa=`.
#[pyfunction]
pub(crate) fn isas() -> Vec<String> {
    Isa::available().iter().map(|isa| isa.to_string()).collect()
}

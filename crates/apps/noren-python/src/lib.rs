//! The extension module `noren._noren`: masks, plans and kernels for Python.
//!
//! The functions here only convert values and errors. The public documentation is in `python/noren` (`_noren.pyi` has the signatures), and
//! the guide is `docs/python.md`.
//!
//! | modules | contents |
//! |---|---|
//! | `masks/{mask, classes, atoms, equivalence, values}` | masks, functions for atoms, equality at every length, Python's values as sets and numbers |
//! | `masks/{facts, batch, read, bound, function}` | shapes, facts and arrays; masks in tensors; bound masks and plans; masks of Python functions |
//! | `dlpack` | arrays of any library without copies |
//! | `compute/{attention, cache}` | forward, backward and weights; key-value caches: append, plan, attend |
//! | `compute/{distributed, ranks}` | partitions; attention over a process group |
//! | `tools/{doctor, flow, audit}` | diagnosis; flow, certificates and the catalogue of checks |
//! | `tools/{export, code, fold}` | plans for other formats; masks as code of other libraries; sequences with shared prefixes |
//! | `tools/private` | private text: detectors, tokens and policies |
//! | `error` | exceptions |

mod compute;
mod dlpack;
mod error;
mod masks;
mod tools;

use compute::{attention, cache, distributed, ranks};
use masks::{batch, bound, classes, equivalence, facts, function, mask, read};
use pyo3::prelude::*;
use tools::{audit, code, doctor, export, flow, fold};

#[pymodule]
fn _noren(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    module.add("Error", py.get_type::<error::Error>())?;
    module.add("ParseError", py.get_type::<error::ParseError>())?;
    module.add("ExportError", py.get_type::<error::ExportError>())?;
    module.add("HIDES", noren::noren_mask::HIDES)?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<classes::PyMask>()?;
    module.add_class::<classes::PyScore>()?;
    module.add_class::<equivalence::PyEquivalence>()?;
    module.add_class::<classes::PySpec>()?;
    module.add_class::<facts::PyShape>()?;
    module.add_class::<facts::PyFacts>()?;
    module.add_class::<facts::PyArray>()?;
    module.add_class::<bound::PyBound>()?;
    module.add_class::<bound::PyPlan>()?;
    module.add_class::<attention::Modifiers>()?;
    module.add_class::<cache::PyCache>()?;
    module.add_class::<cache::PyStepPlan>()?;
    module.add_class::<distributed::PyPartition>()?;
    module.add("GroupError", py.get_type::<ranks::GroupError>())?;
    module.add("Disagreement", py.get_type::<ranks::Disagreement>())?;
    module.add_class::<ranks::PyLink>()?;
    module.add_class::<ranks::PySplit>()?;
    module.add_class::<ranks::PyShards>()?;
    module.add_class::<ranks::PyAttended>()?;
    module.add_class::<flow::PyFlow>()?;
    module.add_class::<flow::PyCertificate>()?;
    for function in [
        wrap_pyfunction!(mask::parse, module)?,
        wrap_pyfunction!(code::code, module)?,
        wrap_pyfunction!(code::code_targets, module)?,
        wrap_pyfunction!(attention::forward, module)?,
        wrap_pyfunction!(attention::backward, module)?,
        wrap_pyfunction!(attention::weights, module)?,
        wrap_pyfunction!(attention::isas, module)?,
        wrap_pyfunction!(attention::after_fork, module)?,
        wrap_pyfunction!(export::patterns, module)?,
        wrap_pyfunction!(export::row_runs, module)?,
        wrap_pyfunction!(export::masked_rows, module)?,
        wrap_pyfunction!(export::blocks, module)?,
        wrap_pyfunction!(export::slices, module)?,
        wrap_pyfunction!(export::device_plan, module)?,
        wrap_pyfunction!(export::decode_plan, module)?,
        wrap_pyfunction!(export::positions, module)?,
        wrap_pyfunction!(distributed::partition, module)?,
        wrap_pyfunction!(audit::audit_catalogue, module)?,
        wrap_pyfunction!(audit::audit_changes, module)?,
        wrap_pyfunction!(audit::audit_not_tested, module)?,
        wrap_pyfunction!(audit::audit_rounding, module)?,
        wrap_pyfunction!(read::read_mask, module)?,
        wrap_pyfunction!(batch::batch_reads, module)?,
        wrap_pyfunction!(batch::read_batch, module)?,
        wrap_pyfunction!(fold::fold_sequences, module)?,
        wrap_pyfunction!(function::tile_function, module)?,
        wrap_pyfunction!(doctor::check, module)?,
        wrap_pyfunction!(doctor::recognise, module)?,
    ] {
        module.add_function(function)?;
    }
    tools::private::add(module)?;
    masks::atoms::add(module)
}

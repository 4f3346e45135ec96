//! The extension module `noren._noren`: masks, plans and kernels for Python.
//!
//! The functions here only convert values and errors. The public documentation is in `python/noren` (`_noren.pyi` has the signatures), and
//! the guide is `docs/python.md`.
//!
//! | modules | contents |
//! |---|---|
//! | `masks/{mask, classes, atoms, values}` | masks, functions for atoms, Python's values as sets and numbers |
//! | `masks/{facts, batch, convention, read, bound, function}` | shapes, facts and arrays; masks in tensors; bound masks and plans; masks of Python functions |
//! | `dlpack` | arrays of any library without copies |
//! | `compute/{attention, cache}` | forward, backward and weights; key-value caches: append, plan, attend |
//! | `compute/{distributed, ranks}` | partitions; attention over a process group |
//! | `tools/{doctor, flow}` | diagnosis; flow and certificates |
//! | `tools/{export, code, fold}` | plans for other formats; masks as code of other libraries; sequences with shared prefixes |
//! | `tools/private` | private text: detectors, tokens and policies |
//! | `error` | exceptions |

mod compute;
mod dlpack;
mod error;
mod masks;
mod tools;

use pyo3::prelude::*;

#[pymodule]
mod _noren {
    use super::*;

    #[pymodule_export]
    use crate::compute::attention::{Modifiers, after_fork, backward, forward, isas, weights};
    #[pymodule_export]
    use crate::compute::cache::{PyCache, PyStepPlan};
    #[pymodule_export]
    use crate::compute::distributed::{PyPartition, partition};
    #[pymodule_export]
    use crate::compute::ranks::{PyAttended, PyLink, PyShards, PySplit};
    #[pymodule_export]
    use crate::masks::atoms::{
        alibi, batch, bias, causal, chunk, clearance, dense, distances, documents, full, global_, heads, keys, layers,
        neighborhood, none, padding, prefix, queries, random, random_blocks, relative, sinks, sliding, soft, softcap,
        spans, stride, tree, window,
    };
    #[pymodule_export]
    use crate::masks::batch::{batch_reads, read_batch};
    #[pymodule_export]
    use crate::masks::bound::{PyBound, PyPlan};
    #[pymodule_export]
    use crate::masks::classes::{PyMask, PyScore, PySpec};
    #[pymodule_export]
    use crate::masks::facts::{PyArray, PyFacts, PyShape};
    #[pymodule_export]
    use crate::masks::{function::tile_function, mask::parse, read::read_mask};
    #[pymodule_export]
    use crate::tools::code::{code, code_targets};
    #[pymodule_export]
    use crate::tools::doctor::{check, recognise};
    #[pymodule_export]
    use crate::tools::export::{blocks, decode_plan, device_plan, masked_rows, patterns, positions, row_runs, slices};
    #[pymodule_export]
    use crate::tools::flow::{PyCertificate, PyFlow};
    #[pymodule_export]
    use crate::tools::fold::fold_sequences;
    #[pymodule_export]
    use crate::tools::private::{PyDetectors, PyPolicy, PyPrivateTokens};

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        let py = module.py();
        module.add("Error", py.get_type::<error::Error>())?;
        module.add("ParseError", py.get_type::<error::ParseError>())?;
        module.add("ExportError", py.get_type::<error::ExportError>())?;
        module.add("GroupError", py.get_type::<compute::ranks::GroupError>())?;
        module.add("Disagreement", py.get_type::<compute::ranks::Disagreement>())?;
        module.add("HIDES", noren::noren_mask::HIDES)?;
        module.add("_PRIVATE_KINDS", noren_text::BUILT_IN.to_vec())?;
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}

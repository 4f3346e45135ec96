//! Attention masks as readable code that runs: noren in Rust and Python, PyTorch, transformers, JAX, Keras, NumPy and ONNX.
//!
//! [`code`] takes a mask with its shape and facts (data such as lengths), and returns code for one [`Target`] in the
//! usual style of this target: for `causal & documents`, FlexAttention gets a `mask_mod` that looks up `document_id`.
//! Lengths, documents and other facts are short lists at the beginning of the code, which the user of the code
//! replaces. If the target cannot express the mask, the result is an error with the reason.
//!
//! ```
//! use noren_code::{Target, code};
//! use noren_mask::{Facts, Shape, atoms::*};
//! let mask = causal() & documents_of([3, 1, 4]);
//! let flex = code(&mask.into(), &Shape::square(8), &Facts::new(), Target::Flex)?;
//! assert!(flex.text.contains("same_document = document_id[q_idx] == document_id[kv_idx]"));
//! assert_eq!(flex.inputs, ["query", "key", "value"]);
//! # Ok::<(), noren_code::Error>(())
//! ```
//!
//! | modules | contents |
//! |---|---|
//! | `target`, `error` | the systems for which code is written, and the reasons for which a mask has no code |
//! | `ground`, `build`, `builder`, `atoms`, `names` | a mask with its shape and facts as a program: each elementary mask is defined once, for all systems |
//! | `program`, `table` | the program: conditions on indices and positions, and the tables of facts that they read |
//! | `python/*`, `request` | Python code of a program, for NumPy, PyTorch and JAX |
//! | `pytorch`, `arrays` | the code of each system, around the program |
//! | `native`, `rust`, `own` | noren's own builders, in Rust and Python |
#![forbid(unsafe_code)]

mod error;
mod forms;
mod program;
mod request;
mod target;
#[cfg(test)]
mod tests;

pub use error::Error;
pub use target::Target;

use noren_mask::{Facts, Shape, Spec};
use program::ground::Ground;
use request::Request;

/// The code of a mask for one target.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Code {
    /// The target of the code.
    pub target: Target,
    /// The code, which ends with a newline.
    pub text: String,
    /// Names of the variables that the code reads and that the user of the code must define, such as `query`.
    pub inputs: Vec<String>,
}

/// Returns the code of a mask with its score modifiers, bound to a shape and facts, for `target`.
///
/// # Errors
/// Returns [`Error::Mask`] if the shape or the facts do not fit the mask, [`Error::Inexpressible`] if the target has no form
/// for the mask, and [`Error::Unreadable`] if the mask is too large for readable code or contains a function that the
/// caller wrote.
pub fn code(spec: &Spec, shape: &Shape, facts: &Facts, target: Target) -> Result<Code, Error> {
    let bound = spec.mask.bind(shape, facts)?;
    forms::python::scores::check(spec, shape)?;
    let ground = Ground::new(shape, facts);
    let program = program::build::build(&spec.mask, &ground, forms::python::scores::read_positions(spec))?;
    let request = Request { spec, shape, facts, bound: &bound, program: &program, target };
    let (text, inputs) = match target {
        Target::Rust => forms::rust::rust(&request, &ground),
        Target::Python => forms::own::python(&request, &ground),
        Target::Sdpa => forms::pytorch::sdpa(&request),
        Target::Mha => forms::pytorch::mha(&request),
        Target::Encoder => forms::pytorch::encoder(&request),
        Target::Flex => forms::pytorch::flex(&request),
        Target::Hf => forms::pytorch::hf(&request),
        Target::Jax => forms::arrays::jax(&request),
        Target::Keras => forms::arrays::keras(&request),
        Target::Numpy => forms::arrays::numpy(&request),
        Target::Onnx => forms::arrays::onnx(&request),
    }?;
    Ok(Code { target, text: text.finish(), inputs })
}

/// Returns the code of a mask for every target that has a form for the mask, in the order of [`Target::ALL`].
pub fn all(spec: &Spec, shape: &Shape, facts: &Facts) -> Vec<Code> {
    Target::ALL.into_iter().filter_map(|target| code(spec, shape, facts, target).ok()).collect()
}

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

//! Linear layers `x W^T + b` with packed weights, for the layers around attention.
//!
//! A [`Weight`] has its numbers in the order in which the kernels read them, as `f32` or rounded to `bf16`. A [`Linear`]
//! is a weight with a bias and the operations that follow ([`Epilogue`]), such as an activation. The [`Isa`] of attention
//! computes these products too.
//!
//! ```
//! use noren::{Dtype, linear::{Linear, Weight}};
//!
//! let weight = Weight::new(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], 3, Dtype::F32)?; // 2 outputs of 3 inputs
//! let layer = Linear::new(&weight).bias(&[10.0, 20.0][..]);
//! assert_eq!(layer.forward(&[1.0, 0.0, 0.0, 1.0, 1.0, 1.0])?, [11.0, 24.0, 16.0, 35.0]); // 2 rows
//! # Ok::<(), noren::Error>(())
//! ```
//!
//! # Guarantees
//!
//! The bits of a row of the result depend on this row of `x` only, not on other rows, their number or the number of
//! threads, if the same is true of the epilogue. A sum begins with the bias; then the products are added in the order of
//! the inputs, one at a time (in `bf16`, on [`Isa::Avx512Bf16`] two, and on [`Isa::Amx`] 32). A NaN in the result is NaN whatever the
//! other rows are, but its sign and payload may differ.
//!
//! # Number types
//!
//! * `f32`: each product is added by a fused multiply-add, if the ISA has this instruction.
//! * `bf16`: weights are rounded to `bf16`, so a weight takes half the memory, and sums are `f32`. On
//!   [`Isa::Avx512Bf16`], `x` is rounded to `bf16` too, and products are added in pairs, in half the time of `f32`; on
//!   [`Isa::Amx`], the same is done in tiles of 32 inputs, in less time. On both, subnormal numbers may count as
//!   0. On other ISAs, `x` is not rounded: products with many rows take as long as in
//!   `f32`, and products with one row take less time.

use crate::kernel::arrays::lines::large_pages;
use crate::kernel::linear::{GROUP, Panels, Rows, initialised};
use crate::{Dtype, Error, Isa};
use rayon::prelude::*;
use std::cell::RefCell;
use std::fmt;
use std::mem::MaybeUninit;
use std::ops::Range;

/// A weight `[outputs, inputs]` of a linear layer, in the layout of the kernels: with rows of 0 up to a multiple of 64
/// outputs.
#[derive(Debug)]
pub struct Weight {
    inputs: usize,
    outputs: usize,
    dtype: Dtype,
    isa: Isa,
    panels: Panels,
}

impl Weight {
    /// Stores a copy of `weight`, which has `inputs` numbers for each output, as numbers of type `dtype`: `f32` or
    /// `bf16`. The weight is packed for the ISA of [`Isa::choose`], which computes all products with this weight.
    ///
    /// # Errors
    /// Returns an error if `inputs` is 0, if `weight` does not have whole rows, for the type `f16`, if there is not enough
    /// memory, and the errors of [`Isa::choose`].
    pub fn new(weight: &[f32], inputs: usize, dtype: Dtype) -> Result<Self, Error> {
        Self::on(Isa::choose(None)?, weight, inputs, dtype)
    }

    /// Stores a copy of `weight` as [`new`](Self::new) does, for the processor path `isa`.
    ///
    /// # Errors
    /// Returns the errors of [`new`](Self::new), and an error if this processor lacks the ISA.
    pub fn on(isa: Isa, weight: &[f32], inputs: usize, dtype: Dtype) -> Result<Self, Error> {
        let isa = Isa::choose(Some(isa))?;
        if inputs == 0 || !weight.len().is_multiple_of(inputs) {
            let expected = match inputs {
                0 => "0 inputs were given: give at least one".to_owned(),
                _ => format!("{inputs} inputs were given: give whole rows of this many numbers"),
            };
            return Err(Error::Shape { name: "weight", given: vec![weight.len()], expected });
        }
        if dtype == Dtype::F16 {
            let problem = "weights of linear layers are stored as f32 or bf16: choose one of these types".to_owned();
            return Err(Error::Option { name: "dtype", given: dtype.to_string(), problem });
        }
        let Some(panels) = Panels::pack(weight, inputs, dtype == Dtype::Bf16, isa) else {
            let problem = format!("there is not enough memory for a packed copy of {} numbers", weight.len());
            return Err(Error::Option {
                name: "weight",
                given: format!("[{}, {inputs}]", weight.len() / inputs),
                problem,
            });
        };
        Ok(Weight { inputs, outputs: weight.len() / inputs, dtype, isa, panels })
    }

    /// Returns the number of inputs.
    pub fn inputs(&self) -> usize {
        self.inputs
    }

    /// Returns the number of outputs.
    pub fn outputs(&self) -> usize {
        self.outputs
    }

    /// Returns the type in which the weight is stored.
    pub fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// Returns the ISA that computes all products with this weight.
    pub fn isa(&self) -> Isa {
        self.isa
    }

    /// Returns whether the threads divide `rows` rows among them. Otherwise, they divide the outputs, so that each weight is read
    /// once.
    fn many(&self, rows: usize) -> bool {
        self.panels.many(rows, rayon::current_num_threads())
    }

    /// Returns the number of bytes of the packed numbers, including the rows of 0.
    pub fn bytes(&self) -> usize {
        self.panels.bytes()
    }
}

/// Operations that are applied to the rows of a product `x W^T + b`, while they are in the processor's cache.
///
/// The default methods change nothing, and `()` is an epilogue without operations.
pub trait Epilogue: Sync {
    /// Changes `part`: the numbers of row `row` of the result, from output `output` on. Each number of the result is
    /// in one call, and a part has at most 64 numbers.
    fn part(&self, row: usize, output: usize, part: &mut [f32]) {
        let _ = (row, output, part);
    }

    /// Changes some whole rows of the result, `[rows, outputs]`, after [`part`](Self::part) was called for all their
    /// numbers. Each row is in one call.
    fn rows(&self, rows: &mut [f32]) {
        let _ = rows;
    }
}

impl Epilogue for () {}

/// A linear layer: a weight, a bias, and the operations that follow.
#[derive(Clone, Copy)]
pub struct Linear<'a> {
    weight: &'a Weight,
    bias: Option<&'a [f32]>,
    /// The operations on the result, if there are any.
    epilogue: Option<&'a dyn Epilogue>,
}

impl fmt::Debug for Linear<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Linear { weight, bias, .. } = self;
        f.debug_struct("Linear").field("weight", weight).field("bias", bias).finish_non_exhaustive()
    }
}

impl<'a> Linear<'a> {
    /// Makes a layer without bias and without operations after the product.
    pub fn new(weight: &'a Weight) -> Self {
        Linear { weight, bias: None, epilogue: None }
    }

    /// Sets the bias `[outputs]`.
    pub fn bias(mut self, bias: impl Into<Option<&'a [f32]>>) -> Self {
        self.bias = bias.into();
        self
    }

    /// Sets the operations that are applied to the result.
    pub fn epilogue(mut self, epilogue: &'a dyn Epilogue) -> Self {
        self.epilogue = Some(epilogue);
        self
    }

    /// Returns the result for `x` `[rows, inputs]`: `[rows, outputs]`, computed on all threads of the current rayon
    /// pool.
    ///
    /// # Errors
    /// Returns an error if `x` does not have whole rows, if the bias does not have one number for each output, and if the
    /// result is too large for any memory.
    pub fn forward(&self, x: &[f32]) -> Result<Vec<f32>, Error> {
        Ok(forward_all(x, [self])?.swap_remove(0))
    }

    /// Returns the result for `x` as [`forward`](Self::forward) does, with rows divided among the threads.
    fn by_rows(&self, x: &[f32]) -> Vec<f32> {
        let Weight { inputs, outputs, ref panels, .. } = *self.weight;
        by_blocks(x, inputs, outputs, panels.rows(inputs, 0), |first, x, out| self.block(first, x, out))
    }

    /// Writes the result for `x` to `out` and returns `out`. `x` are some rows of the input, and `first` is the index of
    /// the first of these rows.
    fn block<'o>(&self, first: usize, x: &[f32], out: &'o mut [MaybeUninit<f32>]) -> &'o mut [f32] {
        let out = self.groups(first, x, 0..self.weight.outputs.div_ceil(GROUP), out);
        if let Some(epilogue) = self.epilogue {
            epilogue.rows(out);
        }
        out
    }

    /// Writes the results of some groups of outputs to `out` and returns `out`, before [`Epilogue::rows`].
    fn groups<'o>(
        &self,
        first: usize,
        x: &[f32],
        groups: Range<usize>,
        out: &'o mut [MaybeUninit<f32>],
    ) -> &'o mut [f32] {
        let Weight { inputs, outputs, isa, ref panels, .. } = *self.weight;
        let columns = outputs.min(groups.end * GROUP) - groups.start * GROUP;
        assert_eq!(out.len(), x.len() / inputs * columns, "the output must have one row for each row of the input");
        let mut finish = self.epilogue.map(|epilogue| {
            move |row: usize, output: usize, part: &mut [f32]| epilogue.part(first + row, output, part)
        });
        let finish = finish.as_mut().map(|finish| finish as _);
        isa.run(Rows { panels, inputs, outputs, x, bias: self.bias, groups, out, finish });
        // SAFETY: for each row, `Rows` writes the outputs of all groups, which are all numbers of `out`.
        unsafe { initialised(out) }
    }

    /// Returns an error if `numbers` numbers are not whole rows of the input, or if there are too many rows.
    fn check_rows(&self, numbers: usize) -> Result<(), Error> {
        let Weight { inputs, outputs, .. } = *self.weight;
        let shape = |expected| Err(Error::Shape { name: "x", given: vec![numbers], expected });
        if !numbers.is_multiple_of(inputs) {
            return shape(format!("the weight has {inputs} inputs: give rows of {inputs} numbers"));
        }
        match (numbers / inputs).checked_mul(outputs.max(1) * size_of::<f32>()) {
            Some(bytes) if isize::try_from(bytes).is_ok() => Ok(()),
            _ => shape(format!("{outputs} outputs for each row are too many: give fewer rows at a time")),
        }
    }

    /// Returns an error if the bias has the wrong length.
    fn check_bias(&self) -> Result<(), Error> {
        let outputs = self.weight.outputs;
        match self.bias {
            Some(bias) if bias.len() != outputs => {
                let expected = format!("the weight has {outputs} outputs: give a bias of {outputs} numbers");
                Err(Error::Shape { name: "bias", given: vec![bias.len()], expected })
            }
            _ => Ok(()),
        }
    }
}

/// The outputs `columns` of the layer with the index `layer`, `[rows, columns]`, which one thread has computed.
struct Part {
    layer: usize,
    columns: Range<usize>,
    numbers: Vec<f32>,
}

/// Returns the results of several layers for the same `x` `[rows, inputs]`: for each layer `[rows, outputs]`. With few rows,
/// this takes less time than one call of [`Linear::forward`] after another, because the threads divide the outputs of all
/// layers among them at once.
///
/// ```
/// use noren::{Dtype, linear::{Linear, Weight, forward_all}};
///
/// let [double, sum] = [[2.0, 0.0, 0.0, 2.0].as_slice(), &[1.0, 1.0]].map(|weight| Weight::new(weight, 2, Dtype::F32));
/// let results = forward_all(&[3.0, 4.0], [&Linear::new(&double?), &Linear::new(&sum?)])?;
/// assert_eq!(results, [vec![6.0, 8.0], vec![7.0]]);
/// # Ok::<(), noren::Error>(())
/// ```
///
/// # Errors
/// Returns the errors of [`Linear::forward`], and an error if the layers do not have the same number of inputs.
pub fn forward_all<'l, 'a: 'l>(
    x: &[f32],
    layers: impl IntoIterator<Item = &'l Linear<'a>>,
) -> Result<Vec<Vec<f32>>, Error> {
    let layers: Vec<&Linear<'_>> = layers.into_iter().collect();
    let Some(first) = layers.first() else { return Ok(Vec::new()) };
    let inputs = first.weight.inputs;
    for layer in &layers {
        if layer.weight.inputs != inputs {
            let expected = format!("the first layer has {inputs} inputs: give weights with as many inputs");
            let given = vec![layer.weight.outputs, layer.weight.inputs];
            return Err(Error::Shape { name: "weight", given, expected });
        }
        layer.check_rows(x.len())?;
        layer.check_bias()?;
    }
    let (rows, threads) = (x.len() / inputs, rayon::current_num_threads());
    let groups: Vec<usize> = layers.iter().map(|layer| layer.weight.outputs.div_ceil(GROUP)).collect();
    let total = groups.iter().sum::<usize>();
    if total <= 1 || threads == 1 || layers.iter().any(|layer| layer.weight.many(rows)) {
        return Ok(layers.iter().map(|layer| layer.by_rows(x)).collect());
    }
    // With few rows, each thread computes some of the outputs, so that each weight is read once.
    let each = total.div_ceil(threads);
    let parts: Vec<Vec<Part>> = (0..total)
        .into_par_iter()
        .step_by(each)
        .map(|from| {
            let (mut found, mut begin) = (Vec::new(), 0);
            for (index, layer) in layers.iter().enumerate() {
                let end = begin + groups[index];
                let part = from.clamp(begin, end) - begin..(from + each).clamp(begin, end) - begin;
                begin = end;
                if !part.is_empty() {
                    let columns = part.start * GROUP..layer.weight.outputs.min(part.end * GROUP);
                    let numbers = filled(rows * columns.len(), |out| layer.groups(0, x, part, out));
                    found.push(Part { layer: index, columns, numbers });
                }
            }
            found
        })
        .collect();
    let mut results: Vec<Vec<f32>> = layers.iter().map(|layer| vec![0.0; rows * layer.weight.outputs]).collect();
    for Part { layer, columns, numbers } in parts.into_iter().flatten() {
        let rows = results[layer].chunks_exact_mut(layers[layer].weight.outputs);
        for (out, part) in rows.zip(numbers.chunks_exact(columns.len())) {
            out[columns.clone()].copy_from_slice(part);
        }
    }
    for (layer, result) in layers.iter().zip(&mut results) {
        if let Some(epilogue) = layer.epilogue.filter(|_| !result.is_empty()) {
            epilogue.rows(result);
        }
    }
    Ok(results)
}

thread_local! {
    /// A buffer of each thread: the result of the first layer of [`feed_forward`] for the rows that the thread computes
    /// at a time.
    static BETWEEN: RefCell<Vec<f32>> = const { RefCell::new(Vec::new()) };
}

/// Returns the result of two layers, `down(up(x))`, for `x` `[rows, inputs]`: `[rows, outputs]`. Each thread computes a
/// few rows at a time, so that the result of `up` for these rows stays in the processor's cache.
///
/// # Errors
/// Returns the errors of [`Linear::forward`], and an error if `down` does not have as many inputs as `up` has outputs.
pub fn feed_forward(x: &[f32], up: Linear<'_>, down: Linear<'_>) -> Result<Vec<f32>, Error> {
    let (inputs, between) = (up.weight.inputs, up.weight.outputs);
    up.check_rows(x.len())?;
    [up, down].iter().try_for_each(Linear::check_bias)?;
    if down.weight.inputs != between {
        let expected = format!("the first layer has {between} outputs: give a second weight with {between} inputs");
        return Err(Error::Shape { name: "weight", given: vec![down.weight.outputs, down.weight.inputs], expected });
    }
    down.check_rows(x.len() / inputs * between)?;
    if !up.weight.many(x.len() / inputs) || down.weight.outputs == 0 {
        return down.forward(&up.forward(x)?);
    }
    let rows = up.weight.panels.rows(inputs, down.weight.bytes());
    Ok(by_blocks(x, inputs, down.weight.outputs, rows, |first, x, out| {
        let mut memory = BETWEEN.take();
        memory.clear();
        memory.reserve(x.len() / inputs * between);
        let middle = up.block(first, x, &mut memory.spare_capacity_mut()[..x.len() / inputs * between]);
        let out = down.block(first, middle, out);
        BETWEEN.set(memory);
        out
    }))
}

/// Returns an array `[rows, outputs]`. `work` computes the rows on all threads, in blocks of a multiple of `tile` rows,
/// up to `most`: it gets the index of the block's first row, the rows of `x` `[rows, inputs]`, and the memory for the results,
/// all of which it must write and return.
fn by_blocks(
    x: &[f32],
    inputs: usize,
    outputs: usize,
    (tile, most): (usize, usize),
    work: impl for<'b> Fn(usize, &[f32], &'b mut [MaybeUninit<f32>]) -> &'b mut [f32] + Sync,
) -> Vec<f32> {
    let rows = x.len() / inputs;
    // Fewer rows in a block if there are too few blocks for all threads.
    let block = rows.div_ceil(rayon::current_num_threads()).next_multiple_of(tile).clamp(tile, most);
    filled(rows * outputs, |out| {
        if outputs > 0 {
            let one = |(i, (out, x)): (usize, (&mut [_], &[f32]))| written(out, |out| work(i * block, x, out));
            if rows <= block || rayon::current_num_threads() == 1 {
                // This thread does it: another one would have to be woken.
                out.chunks_mut(block * outputs).zip(x.chunks(block * inputs)).enumerate().for_each(one);
            } else {
                out.par_chunks_mut(block * outputs).zip(x.par_chunks(block * inputs)).enumerate().for_each(one);
            }
        }
        // SAFETY: the blocks cover `out`, and `work` has written every block.
        unsafe { initialised(out) }
    })
}

/// Returns an array of `len` numbers, all of which `work` must write and return.
fn filled(len: usize, work: impl for<'b> FnOnce(&'b mut [MaybeUninit<f32>]) -> &'b mut [f32]) -> Vec<f32> {
    let mut all: Vec<f32> = Vec::with_capacity(len);
    large_pages(all.spare_capacity_mut());
    written(&mut all.spare_capacity_mut()[..len], work);
    // SAFETY: the capacity is at least `len`, and `work` has written the first `len` numbers.
    unsafe { all.set_len(len) };
    all
}

/// Calls `work`, and panics unless it returns all of `out`, which proves that it has written all numbers.
fn written(out: &mut [MaybeUninit<f32>], work: impl for<'b> FnOnce(&'b mut [MaybeUninit<f32>]) -> &'b mut [f32]) {
    let whole = out.as_ptr_range();
    let done = work(out).as_ptr_range();
    assert!(
        done.start == whole.start.cast() && done.end == whole.end.cast(),
        "the memory of a result must be written and returned as a whole"
    );
}

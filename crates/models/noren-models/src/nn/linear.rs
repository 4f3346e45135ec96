//! [`Linear`]: the linear layer `x W^T + b`. The result of a row of `x` has the same bits in any batch.

use super::finish::Finish;
use super::norm::Parameters;
use super::product::{FeedForwardOp, LinearOp, PackedOp};
use super::rows::{check_width, takes};
use super::values::Values;
use super::{Activation, Norm};
use crate::error::{Error, Result};
use candle_core::Tensor;
use candle_nn::{Init, VarBuilder};
use noren::Dtype;
use noren::linear::Weight;
use std::sync::Arc;

/// A linear layer `x W^T + b` over the last dimension; the weight is `[out, in]` as in PyTorch.
///
/// A packed weight ([`pack`](Self::pack)) is multiplied by [`noren::linear`], any other weight by the crate `gemm`, which
/// computes small and large matrix products with different kernels, whose results may differ in the last bits. This layer
/// therefore adds rows of 0 to an input with few rows, so that the same kernel of `gemm` computes all products. In both
/// cases, the bits of a result row depend only on its input row.
#[derive(Clone, Debug)]
pub struct Linear {
    weight: Stored,
    bias: Option<Tensor>,
}

/// The weight `[out, in]` of a layer.
#[derive(Clone, Debug)]
enum Stored {
    Tensor(Tensor),
    /// A packed weight, which has no gradient.
    Packed(Arc<Weight>),
}

/// The operations that [`Linear`] applies after the matrix product and the bias, in this order: activation, residual,
/// norm.
#[derive(Clone, Copy, Default)]
struct Then<'a> {
    activation: Option<Activation>,
    /// A tensor that is added to the result; `None` for no addition.
    residual: Option<&'a Tensor>,
    norm: Option<&'a Norm>,
}

impl Linear {
    /// Makes a layer from `weight` `[out, in]` and, if given, `bias` `[out]`.
    pub fn new(weight: Tensor, bias: Option<Tensor>) -> Self {
        Linear { weight: Stored::Tensor(weight), bias }
    }

    /// Makes a layer from the parameters `weight` and, if the argument `bias` is true, `bias` of `vb`. If `vb` belongs
    /// to a `VarMap`, missing parameters are created as in PyTorch.
    ///
    /// # Errors
    /// Returns an error if a tensor in `vb` is missing or has another shape, or if `inputs` is 0.
    pub fn load(inputs: usize, outputs: usize, bias: bool, vb: &VarBuilder<'_>) -> Result<Self> {
        check_width(inputs)?;
        let bound = 1.0 / (inputs as f64).sqrt();
        let init = Init::Uniform { lo: -bound, up: bound };
        let weight = vb.get_with_hints((outputs, inputs), "weight", init)?;
        let bias = if bias { Some(vb.get_with_hints(outputs, "bias", init)?) } else { None };
        Ok(Linear::new(weight, bias))
    }

    /// Makes a layer from the parameters `weight` and `bias` of `vb`. The weight is stored as `[in, out]` (GPT-2's
    /// `Conv1D`). If `vb` belongs to a `VarMap`, missing parameters are created as in GPT-2.
    ///
    /// # Errors
    /// Returns an error if a tensor in `vb` is missing or has another shape.
    pub fn load_transposed(inputs: usize, outputs: usize, vb: &VarBuilder<'_>) -> Result<Self> {
        let init = Init::Randn { mean: 0.0, stdev: 0.02 };
        let weight = vb.get_with_hints((inputs, outputs), "weight", init)?;
        Ok(Linear::new(weight.t()?, Some(vb.get_with_hints(outputs, "bias", Init::Const(0.0))?)))
    }

    /// Returns a layer with the rows `from..from + len` of the weight and the bias, for example the query part of a
    /// joint projection.
    ///
    /// # Errors
    /// Returns an error for rows outside the weight, and for a packed weight.
    pub fn part(&self, from: usize, len: usize) -> Result<Self> {
        let Stored::Tensor(weight) = &self.weight else {
            return Err(Error::input("the weight", "packed", "take parts of a layer before its weight is packed"));
        };
        let bias = self.bias.as_ref().map(|bias| bias.narrow(0, from, len)).transpose()?;
        Ok(Linear::new(weight.narrow(0, from, len)?, bias))
    }

    /// Replaces the weight by a packed copy of type `dtype`: `f32` or `bf16`. The layer is then computed by
    /// [`noren::linear`], on the same processor path as attention: much faster for few rows, and faster for many rows. A
    /// weight in `bf16` is rounded, which `noren::linear` describes. Gradients are no longer possible.
    ///
    /// # Errors
    /// Returns an error for the type `f16`; for a weight or bias that is a variable, or not a tensor of `f32` on the CPU;
    /// for a weight that has no inputs, or is packed as another type; for an invalid value of `NOREN_ISA`; and if there
    /// is not enough memory.
    pub fn pack(&mut self, dtype: Dtype) -> Result<()> {
        let weight = match &self.weight {
            Stored::Tensor(weight) => weight,
            Stored::Packed(packed) if packed.dtype() == dtype => return Ok(()),
            Stored::Packed(packed) => {
                let problem = "the weight is packed as another type: load the model again";
                return Err(Error::input("dtype", format!("{dtype}, not {}", packed.dtype()), problem));
            }
        };
        if let Some(tensor) = [Some(weight), self.bias.as_ref()].into_iter().flatten().find(|tensor| !takes(&[tensor]))
        {
            let problem = "only tensors of f32 on the CPU that are not variables can be packed: load the model from its files, in f32";
            return Err(Error::tensor("a parameter of a linear layer", tensor, problem));
        }
        let (weight, (_, inputs)) = (weight.contiguous()?, weight.dims2()?);
        let packed = Weight::new(&Values::of(&weight)?, inputs, dtype)?;
        self.bias = self.bias.as_ref().map(Tensor::contiguous).transpose()?;
        self.weight = Stored::Packed(Arc::new(packed));
        Ok(())
    }

    /// Returns the weight, `[out, in]`, or `None` if it is packed.
    pub fn weight(&self) -> Option<&Tensor> {
        match &self.weight {
            Stored::Tensor(weight) => Some(weight),
            Stored::Packed(_) => None,
        }
    }

    /// Returns the packed weight, or `None` if the weight is not packed.
    pub fn packed_weight(&self) -> Option<&Weight> {
        match &self.weight {
            Stored::Tensor(_) => None,
            Stored::Packed(packed) => Some(packed),
        }
    }

    /// Returns the numbers of outputs and inputs.
    fn dims(&self) -> Result<(usize, usize)> {
        match &self.weight {
            Stored::Tensor(weight) => Ok(weight.dims2()?),
            Stored::Packed(packed) => Ok((packed.outputs(), packed.inputs())),
        }
    }

    /// Applies the layer to every row of `x` `[..., in]`. The result is `[..., out]`.
    ///
    /// # Errors
    /// Returns an error if the last dimension or the type of `x` does not fit the weight.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.apply(x, Then::default())
    }

    /// Applies the layer, and then `activation`. If no gradient is needed, both are computed in one pass.
    ///
    /// # Errors
    /// Returns the errors of [`forward`](Self::forward).
    pub fn forward_then(&self, x: &Tensor, activation: Activation) -> Result<Tensor> {
        self.apply(x, Then { activation: Some(activation), ..Then::default() })
    }

    /// Applies the layer and adds `residual`, which has the shape of the result. If no gradient is needed, both are
    /// computed in one pass.
    ///
    /// # Errors
    /// Returns the errors of [`forward`](Self::forward), and an error for a residual of another shape.
    pub fn forward_add(&self, x: &Tensor, residual: &Tensor) -> Result<Tensor> {
        self.apply(x, Then { residual: Some(residual), ..Then::default() })
    }

    /// Applies the layer, adds `residual`, which has the shape of the result, and applies `norm`. If no gradient is
    /// needed, all three are computed in one pass.
    ///
    /// # Errors
    /// Returns the errors of [`forward_add`](Self::forward_add), and an error for a norm of another width.
    pub fn forward_add_norm(&self, x: &Tensor, residual: &Tensor, norm: &Norm) -> Result<Tensor> {
        self.apply(x, Then { residual: Some(residual), norm: Some(norm), ..Then::default() })
    }

    /// Returns `norm(x + down(activation(up(x))))`. If both weights are packed and no gradient is needed, the result of
    /// `up` stays in the processor's cache.
    ///
    /// # Errors
    /// Returns an error if the shapes of `x`, `up`, `down` and `norm` do not fit together.
    pub fn feed_forward(x: &Tensor, [up, down]: [&Linear; 2], activation: Activation, norm: &Norm) -> Result<Tensor> {
        let fits = |first: &Weight, second: &Weight| {
            let width = x.dims().last().copied();
            takes(&[x]) && norm.takes(x) && width == Some(first.inputs()) && width == Some(second.outputs())
        };
        let (first, second) = match (&up.weight, &down.weight) {
            (Stored::Packed(first), Stored::Packed(second)) if fits(first, second) => (first, second),
            _ => return down.forward_add_norm(&up.forward_then(x, activation)?, x, norm),
        };
        let flat = x.contiguous()?.flatten_to(x.rank().saturating_sub(2))?;
        let [before, after] = [up, down].map(|linear| linear.bias.as_ref().map(Values::of).transpose());
        let (before, after, residual) = (before?, after?, Values::of(&flat)?);
        let between = Finish { bias: before.as_deref(), activation: Some(activation), ..Finish::default() };
        let norm = norm.read()?;
        let then =
            Finish { bias: after.as_deref(), residual: Some(&residual), norm: Some(norm.op()), ..Finish::default() };
        let result = flat.apply_op1_no_bwd(&FeedForwardOp { up: first, between, down: second, then })?;
        Ok(result.reshape(x.shape())?)
    }

    /// Applies several layers to the same `x`. A layer that is given with an activation also applies the activation. If all
    /// weights are packed and no gradient is needed, the threads compute the outputs of all layers together, as
    /// [`noren::linear::forward_all`] does.
    ///
    /// # Errors
    /// Returns the errors of [`forward`](Self::forward).
    pub fn forward_all<const N: usize>(x: &Tensor, layers: [(&Linear, Option<Activation>); N]) -> Result<[Tensor; N]> {
        let width = x.dims().last().copied();
        let weights = layers.map(|(layer, _)| layer.packed_weight().filter(|weight| width == Some(weight.inputs())));
        let weights: Vec<&Weight> = weights.into_iter().flatten().collect();
        let results = if takes(&[x]) && weights.len() == N {
            Self::packed_all(x, &layers, &weights)?
        } else {
            let one = |(layer, activation): (&Linear, _)| layer.apply(x, Then { activation, ..Then::default() });
            layers.into_iter().map(one).collect::<Result<Vec<_>>>()?
        };
        Ok(results.try_into().expect("there is one result for each of the `N` layers"))
    }

    /// Computes the results of [`forward_all`](Self::forward_all). `weights` has the packed weights of `layers`, which fit
    /// `x`.
    fn packed_all(x: &Tensor, layers: &[(&Linear, Option<Activation>)], weights: &[&Weight]) -> Result<Vec<Tensor>> {
        let x = x.contiguous()?;
        let biases = layers.iter().map(|(layer, _)| layer.bias.as_ref().map(Values::of).transpose());
        let biases = biases.collect::<Result<Vec<_>>>()?;
        let finish: Vec<Finish<'_>> = (layers.iter().zip(&biases))
            .map(|((_, activation), bias)| Finish {
                bias: bias.as_deref(),
                activation: *activation,
                ..Finish::default()
            })
            .collect();
        let after: Vec<_> = finish.iter().zip(weights).map(|(finish, weight)| finish.after(weight)).collect();
        let linears: Vec<_> = (weights.iter().zip(&finish).zip(&after))
            .map(|((weight, finish), after)| noren::linear::Linear::new(weight).bias(finish.bias).epilogue(after))
            .collect();
        let results = noren::linear::forward_all(&Values::of(&x)?, &linears)?;
        let rows = &x.dims()[..x.rank() - 1];
        let tensor = |(weight, result): (&&Weight, Vec<f32>)| {
            Ok(Tensor::from_vec(result, [rows, &[weight.outputs()]].concat(), x.device())?)
        };
        weights.iter().zip(results).map(tensor).collect()
    }

    fn apply(&self, x: &Tensor, then: Then<'_>) -> Result<Tensor> {
        let (outputs, inputs) = self.dims()?;
        if x.dims().last() != Some(&inputs) {
            return Err(Error::tensor(
                "linear layer input",
                x,
                format!("the last dimension must be {inputs}, the number of inputs of the layer"),
            ));
        }
        let mut shape = x.dims().to_vec();
        if let Some(last) = shape.last_mut() {
            *last = outputs;
        }
        if let Some(residual) = then.residual.filter(|residual| residual.dims() != shape) {
            return Err(Error::tensor(
                "linear layer residual",
                residual,
                format!("the output of the layer is {shape:?}: give a residual of this shape"),
            ));
        }
        let rows = x.elem_count() / inputs.max(1);
        let least_rows = least_rows(outputs, inputs);
        let x = x.reshape((rows, inputs))?;
        let given: Vec<&Tensor> = [Some(&x), then.residual].into_iter().flatten().collect();
        let norm_fits = then.norm.is_none_or(|norm| then.residual.is_some_and(|residual| norm.takes(residual)));
        let refused = given.iter().find(|tensor| !takes(&[tensor]));
        if let (Stored::Packed(_), Some(tensor)) = (&self.weight, refused) {
            let problem = "a packed layer takes only f32 on the CPU, without gradients: use a layer that is not packed";
            return Err(Error::tensor("linear layer input", tensor, problem));
        }
        let result = match &self.weight {
            Stored::Packed(packed) if norm_fits => self.packed(packed, &x, then)?,
            Stored::Packed(packed) => {
                let sum = self.packed(packed, &x, Then { norm: None, ..then })?;
                then.norm.map_or(Ok(sum.clone()), |norm| norm.forward(&sum))?
            }
            Stored::Tensor(weight) => {
                let parameters = [Some(weight), self.bias.as_ref()].into_iter().flatten();
                match norm_fits && takes(&given.into_iter().chain(parameters).collect::<Vec<_>>()) {
                    true => self.at_once(weight, &x, then, least_rows)?,
                    false => self.with_gradients(weight, &x, then, least_rows)?,
                }
            }
        };
        Ok(result.reshape(shape)?)
    }

    /// Applies the layer with its packed weight, and the operations of `then`, to `x` in one pass.
    fn packed(&self, packed: &Weight, x: &Tensor, then: Then<'_>) -> Result<Tensor> {
        self.with_slices(then, |then| Ok(x.contiguous()?.apply_op1_no_bwd(&PackedOp { then, weight: packed })?))
    }

    /// Calls `work` with the bias of this layer and the operations of `then`, as slices.
    fn with_slices(&self, then: Then<'_>, work: impl FnOnce(Finish<'_>) -> Result<Tensor>) -> Result<Tensor> {
        let residual = then.residual.map(|residual| residual.contiguous()).transpose()?;
        let residual = residual.as_ref().map(Values::of).transpose()?;
        let bias = self.bias.as_ref().map(Values::of).transpose()?;
        let norm = then.norm.map(Norm::read).transpose()?;
        work(Finish {
            bias: bias.as_deref(),
            activation: then.activation,
            residual: residual.as_deref(),
            norm: norm.as_ref().map(Parameters::op),
        })
    }

    /// Applies the layer and the operations of `then` to `x` in one pass, without gradients. If `x` has fewer than
    /// `least_rows` rows, rows of 0 are added for the computation.
    fn at_once(&self, weight: &Tensor, x: &Tensor, then: Then<'_>, least_rows: usize) -> Result<Tensor> {
        self.with_slices(then, |then| Ok(x.contiguous()?.apply_op2_no_bwd(weight, &LinearOp { then, least_rows })?))
    }

    /// Applies the layer and the operations of `then` to `x` with candle's operations, which have gradients. If `x` has
    /// fewer than `least_rows` rows, rows of 0 are added for the computation.
    fn with_gradients(&self, weight: &Tensor, x: &Tensor, then: Then<'_>, least_rows: usize) -> Result<Tensor> {
        let rows = x.dim(0)?;
        let product = match rows < least_rows {
            true => x.pad_with_zeros(0, 0, least_rows - rows)?.matmul(&weight.t()?)?.narrow(0, 0, rows)?,
            false => x.matmul(&weight.t()?)?,
        };
        let sum = match &self.bias {
            Some(bias) => product.broadcast_add(bias)?,
            None => product,
        };
        let sum = then.activation.map_or(Ok(sum.clone()), |activation| activation.forward(&sum))?;
        let sum = match then.residual {
            Some(residual) => (&sum + residual.reshape(sum.shape())?)?,
            None => sum,
        };
        then.norm.map_or(Ok(sum.clone()), |norm| norm.forward(&sum))
    }
}

/// Returns a minimum number of input rows. With at least this number, the crate `gemm` gives a row the same bits among
/// any number of rows. With fewer rows, `gemm` may use another kernel or another order of additions.
fn least_rows(outputs: usize, inputs: usize) -> usize {
    /// The maximum number of elements of a small result. `gemm` has a separate kernel for small results, and another
    /// for results with a single row.
    const SMALL: usize = 256;
    /// A result is narrow if it has at most this number of rows and at most this number of columns. If a narrow result
    /// has more than `DEPTH` input features, `gemm` adds its products in other groups than for larger results, so the
    /// rounding differs.
    const NARROW: usize = 64;
    /// The maximum number of input features for which `gemm` adds the products for an output in the same groups,
    /// whatever the size of the result is.
    const DEPTH: usize = 512;
    let general = (SMALL / outputs.max(1) + 1).max(2);
    if outputs <= NARROW && inputs > DEPTH { general.max(NARROW + 1) } else { general }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nn::NormKind;
    use candle_core::{DType, Device, Var};

    fn bits(x: &Tensor) -> Vec<u32> {
        x.flatten_all().unwrap().to_vec1::<f32>().unwrap().iter().map(|x| x.to_bits()).collect()
    }

    #[test]
    fn a_feed_forward_layer_at_once_has_the_bits_of_its_parts() {
        let random = |shape: &[usize]| Tensor::randn(0f32, 1.0, shape, &Device::Cpu).unwrap();
        for (hidden, inner, rows) in [(128, 512, 1), (384, 1536, 211), (64, 64, 96), (60, 100, 7)] {
            let mut up = Linear::new(random(&[inner, hidden]), Some(random(&[inner])));
            let mut down = Linear::new(random(&[hidden, inner]), Some(random(&[hidden])));
            let tensors = ["weight", "bias"].map(|name| (name.to_owned(), random(&[hidden])));
            let tensors = VarBuilder::from_tensors(tensors.into(), DType::F32, &Device::Cpu);
            let norm = Norm::load(NormKind::Layer, hidden, 1e-5, &tensors).unwrap();
            let loaded = [up.clone(), down.clone()];
            up.pack(Dtype::F32).unwrap();
            down.pack(Dtype::F32).unwrap();
            let x = random(&[2, rows, hidden]);
            let at_once = Linear::feed_forward(&x, [&up, &down], Activation::Gelu, &norm).unwrap();
            let between = up.forward_then(&x, Activation::Gelu).unwrap();
            let parts = norm.forward(&down.forward_add(&between, &x).unwrap()).unwrap();
            assert_eq!(at_once.dims(), x.dims());
            assert_eq!(bits(&at_once), bits(&parts), "{rows} rows of {hidden} to {inner}");
            assert!(bits(&at_once).windows(2).any(|pair| pair[0] != pair[1]));
            let by_operations = Var::from_tensor(&x).unwrap();
            let with_gradients = by_operations.as_tensor();
            let known = Linear::feed_forward(with_gradients, loaded.each_ref(), Activation::Gelu, &norm).unwrap();
            let off = (&known - &at_once).unwrap().abs().unwrap().max_all().unwrap().to_scalar::<f32>().unwrap();
            assert!(known.track_op() && off < 1e-4, "{off}");
            assert!(up.weight().is_none() && loaded[0].weight().is_some());
            let refused = Linear::feed_forward(with_gradients, [&up, &down], Activation::Gelu, &norm).unwrap_err();
            assert!(refused.to_string().contains("packed") && up.part(0, 1).is_err(), "{refused}");
        }
    }

    #[test]
    fn layers_together_have_the_bits_of_each_alone() {
        let random = |shape: &[usize]| Tensor::randn(0f32, 1.0, shape, &Device::Cpu).unwrap();
        for (rows, dtype) in [(1, Dtype::F32), (1, Dtype::Bf16), (37, Dtype::F32), (300, Dtype::Bf16)] {
            let mut layers = [(96, true), (300, false), (5, true)]
                .map(|(outputs, bias)| Linear::new(random(&[outputs, 48]), bias.then(|| random(&[outputs]))));
            let activations = [None, Some(Activation::Gelu), Some(Activation::Tanh)];
            let x = random(&[48, 2, rows]).transpose(0, 2).unwrap();
            for packed in [false, true] {
                if packed {
                    layers.iter_mut().for_each(|layer| layer.pack(dtype).unwrap());
                }
                let pairs = [0, 1, 2].map(|i| (&layers[i], activations[i]));
                let together = Linear::forward_all(&x, pairs).unwrap();
                for ((layer, activation), together) in pairs.into_iter().zip(&together) {
                    let alone = match activation {
                        Some(activation) => layer.forward_then(&x, activation).unwrap(),
                        None => layer.forward(&x).unwrap(),
                    };
                    assert_eq!((together.dims(), bits(together)), (alone.dims(), bits(&alone)), "{rows} rows");
                }
                let wrong = Linear::forward_all(&random(&[2, 47]), pairs).unwrap_err().to_string();
                assert!(wrong.contains("the last dimension must be 48"), "{wrong}");
            }
        }
    }

    #[test]
    fn a_residual_without_rows_may_begin_anywhere() {
        let zeros = |shape: &[usize]| Tensor::zeros(shape, DType::F32, &Device::Cpu).unwrap();
        let residual = zeros(&[1, 0, 2]).transpose(0, 2).unwrap().get(1).unwrap();
        let mut layer = Linear::new(zeros(&[1, 3]), None);
        for _ in 0..2 {
            assert_eq!(layer.forward_add(&zeros(&[0, 3]), &residual).unwrap().dims(), [0, 1]);
            layer.pack(Dtype::F32).unwrap();
        }
    }

    #[test]
    fn a_row_has_the_same_bits_among_any_number_of_rows() {
        for (inputs, outputs) in
            [(384, 384), (384, 1536), (1536, 384), (64, 3), (17, 131), (2048, 5), (1100, 64), (3, 700)]
        {
            let weight = Tensor::randn(0f32, 1.0, (outputs, inputs), &Device::Cpu).unwrap();
            let linear = Linear::new(weight, None);
            let most = 333;
            let x = Tensor::randn(0f32, 1.0, (most, inputs), &Device::Cpu).unwrap();
            let whole = linear.forward(&x).unwrap();
            for rows in [1, 2, 3, 5, 8, 15, 16, 17, 31, 33, 64, 65, 97, 130, 200, 332] {
                let from = (rows * 7) % (most - rows);
                let got = linear.forward(&x.narrow(0, from, rows).unwrap().contiguous().unwrap()).unwrap();
                assert_eq!(
                    bits(&got),
                    bits(&whole.narrow(0, from, rows).unwrap()),
                    "{rows} rows of {inputs} to {outputs}"
                );
            }
        }
    }
}

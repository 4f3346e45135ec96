//! [`Options`]: scale and score modifiers, as tensors with gradients.

use crate::device::Described;
use crate::error::{Error, Result};
use burn::tensor::{DType, Tensor};
use noren::{Dropout, Isa, View};

/// Scale, score modifiers, threads and processor instructions of [`attention`](crate::attention()). The default is
/// plain attention.
///
/// [`noren::Options`] describes the score modifiers, and the order in which they are applied. In this struct, arrays
/// are tensors of `f32`, `bf16` or `f16`. Gradients flow to the tensors that require a gradient.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The factor by which `q . k` is multiplied [default: `1 / sqrt(head_dim)`].
    pub scale: Option<f32>,
    /// The softcap of scores. With a softcap `cap`, each score becomes `cap * tanh(score / cap)`; `None` for no
    /// softcap.
    pub softcap: Option<f32>,
    /// Biases that are added to the scores.
    pub bias: Vec<Bias>,
    /// Soft weights in `[0, 1]` that multiply `exp(score)`. The tensor is broadcast to `[batch, heads, q_len, kv_len]`.
    pub soft: Option<Tensor<4>>,
    /// One logit for each query head, `[heads]`. `exp(logit)` is added to the denominator of the softmax only.
    pub sinks: Option<Tensor<1>>,
    /// Dropout of the attention probabilities after the softmax, in training; `None` for no dropout.
    pub dropout: Option<Dropout>,
    /// Number of threads [default: the size of the rayon pool]. The results do not depend on the number.
    pub threads: Option<usize>,
    /// The set of processor instructions that the computation uses, such as AVX-512 [default: the fastest available].
    pub isa: Option<Isa>,
}

/// A bias that is added to scores.
#[derive(Clone, Debug)]
pub enum Bias {
    /// A tensor of four dimensions. Each dimension is 1, or equals the same dimension of
    /// `[batch, heads, q_len, kv_len]`.
    Dense(Tensor<4>),
    /// A table of biases by distance, `[heads or 1, 2 * most + 1]`. A query at position `q` and a key at position `k`
    /// have the bias with index `clamp(k - q, -most, most) + most`. A key farther away than `most` therefore has the
    /// bias of the key at distance `most` on the same side.
    Relative(Tensor<2>),
    /// ALiBi: the bias `-slope * |q - k|` for the positions `q` and `k`, with one slope for each query head.
    Alibi(Vec<f32>),
}

impl Options {
    /// Returns the name, shape, number type and device of each tensor of these options, for
    /// [`check`](crate::device::check).
    pub(crate) fn describe(&self) -> Vec<Described> {
        let bias = self.bias.iter().filter_map(|bias| match bias {
            Bias::Dense(tensor) => Some(Described::new("the bias", tensor)),
            Bias::Relative(tensor) => Some(Described::new("the relative bias", tensor)),
            Bias::Alibi(_) => None,
        });
        let soft = self.soft.iter().map(|tensor| Described::new("the tensor of soft weights", tensor));
        bias.chain(soft).chain(self.sinks.iter().map(|tensor| Described::new("the tensor of sinks", tensor))).collect()
    }

    /// Returns these options with their tensors joined in one tensor of `f32`, `[values]`. burn's own operations join
    /// the tensors, so that the gradient of the joined tensor flows to each tensor. Without tensors, the joined tensor
    /// is `None`.
    pub(crate) fn join(&self) -> (Joined, Option<Tensor<1>>) {
        fn flat<const D: usize>(tensor: &Tensor<D>) -> Tensor<1> {
            tensor.clone().reshape([tensor.dims().iter().product::<usize>()]).cast(DType::F32)
        }
        let mut parts = Vec::new();
        let mut place = |shape: [usize; 4], tensor: Tensor<1>| {
            let tracked = tensor.is_tracked();
            parts.push(tensor);
            Place { shape, tracked }
        };
        let bias = self.bias.iter().map(|bias| match bias {
            Bias::Dense(tensor) => JoinedBias::Dense(place(tensor.dims(), flat(tensor))),
            Bias::Relative(tensor) => {
                let [heads, width] = tensor.dims();
                JoinedBias::Relative(place([1, heads, 1, width], flat(tensor)))
            }
            Bias::Alibi(slopes) => JoinedBias::Alibi(slopes.clone()),
        });
        let bias = bias.collect();
        let soft = self.soft.as_ref().map(|tensor| place(tensor.dims(), flat(tensor)));
        let sinks = self.sinks.as_ref().map(|tensor| place([1, 1, 1, tensor.dims()[0]], flat(tensor)));
        let plain = Options { bias: Vec::new(), soft: None, sinks: None, ..self.clone() };
        let tensor = if parts.len() > 1 { Some(Tensor::cat(parts, 0)) } else { parts.pop() };
        (Joined { plain, bias, soft, sinks }, tensor)
    }
}

/// A copy of [`Options`] in which each tensor is replaced by its [`Place`] in the joined tensor (all tensors of the
/// options in one). In the joined tensor, the biases come first, then the soft weights, then the sinks.
#[derive(Clone, Debug)]
pub(crate) struct Joined {
    plain: Options,
    pub(crate) bias: Vec<JoinedBias>,
    pub(crate) soft: Option<Place>,
    pub(crate) sinks: Option<Place>,
}

#[derive(Clone, Debug)]
pub(crate) enum JoinedBias {
    Dense(Place),
    Relative(Place),
    Alibi(Vec<f32>),
}

/// The shape of a tensor of the options, extended to four dimensions, and whether burn needs a gradient of the tensor.
/// For example, `[heads]` becomes `[1, 1, 1, heads]`. All tensors of the options are joined in one tensor.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) shape: [usize; 4],
    pub(crate) tracked: bool,
}

impl Place {
    /// Returns the number of values of the tensor.
    pub(crate) fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// Removes the values of this tensor from the front of `rest`, and returns a view of them.
    fn take<'a>(&self, rest: &mut &'a [f32]) -> Result<View<'a>> {
        let expected = "this is a fault of noren-burn: report the shapes of the tensors of the options";
        let Some((values, others)) = rest.split_at_checked(self.len()) else {
            return Err(Error::input("the number of values in the tensors of the options", rest.len(), expected));
        };
        *rest = others;
        Ok(View::new(values, self.shape)?)
    }
}

impl Joined {
    /// Returns these options as the options of the crate `noren`. Their arrays are parts of `values`, the values of the
    /// joined tensor.
    pub(crate) fn borrow<'a>(&'a self, mut values: &'a [f32]) -> Result<noren::Options<'a>> {
        let rest = &mut values;
        let mut bias = Vec::with_capacity(self.bias.len());
        for part in &self.bias {
            bias.push(match part {
                JoinedBias::Dense(place) => noren::Bias::Dense(place.take(rest)?),
                JoinedBias::Relative(place) => noren::Bias::Relative { table: place.take(rest)? },
                JoinedBias::Alibi(slopes) => noren::Bias::Alibi(slopes.clone()),
            });
        }
        let soft = self.soft.as_ref().map(|place| place.take(rest)).transpose()?;
        let Options { scale, softcap, dropout, threads, isa, .. } = self.plain;
        let options = noren::Options::new().scale(scale).softcap(softcap).dropout(dropout).threads(threads).isa(isa);
        let mut options = options.soft(soft);
        options.bias = bias;
        options.sinks = self.sinks.as_ref().map(|_| *rest);
        Ok(options)
    }
}

//! [`Options`]: scale and score modifiers, as tensors with gradients.

use crate::error::{Error, Result};
use candle_core::{DType, Tensor};
use noren::{Dropout, Isa, View};

/// Scale, score modifiers, threads and processor instructions of [`attention`](crate::attention()). The default is
/// plain attention.
///
/// [`noren::Options`] describes the score modifiers, and the order in which they are applied. In this struct, arrays
/// are tensors of any float type. Gradients flow to the tensors that need a gradient.
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
    pub soft: Option<Tensor>,
    /// One logit for each query head, `[heads]`. `exp(logit)` is added to the denominator of the softmax only.
    pub sinks: Option<Tensor>,
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
    Dense(Tensor),
    /// A table of biases by distance, `[heads or 1, 2 * most + 1]`. A query at position `q` and a key at position `k`
    /// have the bias with index `clamp(k - q, -most, most) + most`. A key farther away than `most` therefore has the
    /// bias of the key at distance `most` on the same side.
    Relative(Tensor),
    /// ALiBi: the bias `-slope * |q - k|` for the positions `q` and `k`, with one slope for each query head.
    Alibi(Vec<f32>),
}

impl Options {
    /// Returns a copy of these options in which the tensors are copied to arrays of `f32`. The attention operation
    /// keeps this copy for its backward pass.
    pub(crate) fn own(&self) -> Result<Owned> {
        let bias = self.bias.iter().map(|bias| match bias {
            Bias::Dense(tensor) => Ok(OwnedBias::Dense(Values::of("bias", tensor, 4)?)),
            Bias::Relative(tensor) => Ok(OwnedBias::Relative(Values::of("relative bias", tensor, 2)?)),
            Bias::Alibi(slopes) => Ok(OwnedBias::Alibi(slopes.clone())),
        });
        Ok(Owned {
            plain: Options { bias: Vec::new(), soft: None, sinks: None, ..self.clone() },
            bias: bias.collect::<Result<_>>()?,
            soft: self.soft.as_ref().map(|soft| Values::of("soft weights", soft, 4)).transpose()?,
            sinks: self.sinks.as_ref().map(|sinks| Values::of("sinks", sinks, 1)).transpose()?,
        })
    }
}

/// A copy of [`Options`] in which arrays of `f32` replace the tensors.
pub(crate) struct Owned {
    plain: Options,
    pub(crate) bias: Vec<OwnedBias>,
    pub(crate) soft: Option<Values>,
    pub(crate) sinks: Option<Values>,
}

pub(crate) enum OwnedBias {
    Dense(Values),
    Relative(Values),
    Alibi(Vec<f32>),
}

impl OwnedBias {
    /// Returns the array of this bias; `None` for ALiBi, which has no array.
    pub(crate) fn values(&self) -> Option<&Values> {
        match self {
            OwnedBias::Dense(values) | OwnedBias::Relative(values) => Some(values),
            OwnedBias::Alibi(_) => None,
        }
    }
}

/// A copy of a tensor's values in `f32`, with the shape of the tensor extended to four dimensions. For example,
/// `[heads]` becomes `[1, 1, 1, heads]`.
pub(crate) struct Values {
    pub(crate) data: Vec<f32>,
    pub(crate) shape: [usize; 4],
    /// Whether candle needs a gradient of the tensor.
    pub(crate) tracked: bool,
}

impl Values {
    fn of(name: &str, tensor: &Tensor, rank: usize) -> Result<Values> {
        let shape = match *tensor.dims() {
            [a, b, c, d] if rank == 4 => [a, b, c, d],
            [heads, width] if rank == 2 => [1, heads, 1, width],
            [heads] if rank == 1 => [1, 1, 1, heads],
            _ => return Err(Error::tensor(name, tensor, format!("give a tensor with {rank} dimensions"))),
        };
        let data = tensor.detach().to_dtype(DType::F32)?.flatten_all()?.to_vec1()?;
        Ok(Values { data, shape, tracked: tensor.track_op() })
    }

    pub(crate) fn view(&self) -> Result<View<'_>> {
        Ok(View::new(&self.data, self.shape)?)
    }
}

impl Owned {
    /// Returns these options as the options of the crate `noren`, which borrow the arrays.
    pub(crate) fn borrow(&self) -> Result<noren::Options<'_>> {
        let bias = self.bias.iter().map(|bias| {
            Ok(match bias {
                OwnedBias::Dense(values) => noren::Bias::Dense(values.view()?),
                OwnedBias::Relative(values) => noren::Bias::Relative { table: values.view()? },
                OwnedBias::Alibi(slopes) => noren::Bias::Alibi(slopes.clone()),
            })
        });
        let Options { scale, softcap, dropout, threads, isa, .. } = self.plain;
        let options = noren::Options::new().scale(scale).softcap(softcap).dropout(dropout).threads(threads).isa(isa);
        let mut options = options.soft(self.soft.as_ref().map(Values::view).transpose()?);
        options.bias = bias.collect::<Result<_>>()?;
        options.sinks = self.sinks.as_ref().map(|sinks| &sinks.data[..]);
        Ok(options)
    }
}

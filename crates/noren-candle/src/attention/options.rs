//! [`Options`]: scale and score modifiers, as tensors with gradients.

use crate::error::{Error, Result};
use candle_core::{DType, Tensor};
use noren::{Dropout, Isa, View};

/// Scale, score modifiers, threads and processor path of [`attention`](crate::attention()). The default is plain
/// attention.
///
/// [`noren::Options`] describes each modifier and their order. Here arrays are tensors of any float type, and gradients flow
/// to those that need them.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Factor of `q . k` [default: `1 / sqrt(head_dim)`].
    pub scale: Option<f32>,
    /// `cap * tanh(score / cap)` replaces the score.
    pub softcap: Option<f32>,
    /// Biases that are added to the scores.
    pub bias: Vec<Bias>,
    /// Weights in `[0, 1]` that multiply `exp(score)`, broadcast over `[batch, heads, q_len, kv_len]`.
    pub soft: Option<Tensor>,
    /// A logit for each query head that joins the softmax's denominator only, `[heads]`.
    pub sinks: Option<Tensor>,
    /// Dropout of probabilities after the softmax, in training.
    pub dropout: Option<Dropout>,
    /// Number of threads [default: those of the rayon pool]. No result depends on it.
    pub threads: Option<usize>,
    /// The processor path [default: the fastest available].
    pub isa: Option<Isa>,
}

/// A bias that is added to scores.
#[derive(Clone, Debug)]
pub enum Bias {
    /// A tensor with each dimension 1 or that of `[batch, heads, q_len, kv_len]`.
    Dense(Tensor),
    /// A table by distance, `[heads or 1, 2 * reach + 1]`: entry `clamp(k - q, -reach, reach) + reach`, where `q` and `k` are
    /// positions.
    Relative(Tensor),
    /// `-slope * |q - k|`, one slope for each query head.
    Alibi(Vec<f32>),
}

impl Options {
    /// Returns the values of all tensors, kept for the time of a call and its backward pass.
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

/// Options whose arrays have their own memory.
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
    /// Returns the array, if it has one.
    pub(crate) fn values(&self) -> Option<&Values> {
        match self {
            OwnedBias::Dense(values) | OwnedBias::Relative(values) => Some(values),
            OwnedBias::Alibi(_) => None,
        }
    }
}

/// The values of a tensor with its shape, extended to four dimensions.
pub(crate) struct Values {
    pub(crate) data: Vec<f32>,
    pub(crate) shape: [usize; 4],
    /// Whether a gradient is needed.
    pub(crate) tracked: bool,
}

impl Values {
    fn of(name: &str, tensor: &Tensor, rank: usize) -> Result<Values> {
        let shape = match *tensor.dims() {
            [a, b, c, d] if rank == 4 => [a, b, c, d],
            [heads, width] if rank == 2 => [1, heads, 1, width],
            [heads] if rank == 1 => [1, 1, 1, heads],
            _ => return Err(Error::tensor(name, tensor, format!("{rank} dimensions are needed"))),
        };
        let data = tensor.detach().to_dtype(DType::F32)?.flatten_all()?.to_vec1()?;
        Ok(Values { data, shape, tracked: tensor.track_op() })
    }

    pub(crate) fn view(&self) -> Result<View<'_>> {
        Ok(View::new(&self.data, self.shape)?)
    }
}

impl Owned {
    /// Returns the options in noren's form.
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

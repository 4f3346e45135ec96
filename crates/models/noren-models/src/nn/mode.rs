//! [`Mode`]: inference, or training with dropout.

use crate::error::Result;
use candle_core::Tensor;
use noren::noren_mask::philox;

/// The mode in which a model runs: inference, or training with dropout. Dropout sets random values to 0. The same seed
/// drops the same values on every machine.
///
/// ```
/// use candle_core::{Device, Tensor};
/// use noren_models::nn::Mode;
/// let x = Tensor::ones((8, 16), candle_core::DType::F32, &Device::Cpu)?;
/// let [once, again] = [7, 7].map(|seed| Mode::Training { seed }.dropout(&x, 0.5).unwrap());
/// assert_eq!(once.to_vec2::<f32>()?, again.to_vec2::<f32>()?);
/// assert_eq!(Mode::Inference.dropout(&x, 0.5)?.to_vec2::<f32>()?, x.to_vec2::<f32>()?);
/// # Ok::<(), noren_models::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Mode {
    /// Inference, in which no value is dropped.
    #[default]
    Inference,
    /// Training, in which random values are dropped.
    Training {
        /// The seed that determines which values are dropped. Use a different seed for every step.
        seed: u64,
    },
}

impl Mode {
    /// Returns this mode with another seed, which is computed from the seed of this mode and from the number `site`.
    /// Give each dropout in a model a different `site`, so that each dropout drops other values. `Mode::Inference` is
    /// returned unchanged.
    pub fn at(self, site: u64) -> Mode {
        match self {
            Mode::Inference => Mode::Inference,
            Mode::Training { seed } => {
                let [a, b, ..] = philox([site as u32, (site >> 32) as u32, 0x006e_6f72, 0x656e], seed);
                Mode::Training { seed: u64::from(a) << 32 | u64::from(b) }
            }
        }
    }

    /// Returns the settings for dropout of attention probabilities; `None` in inference or if `probability` is 0.
    pub fn attention(self, probability: f32) -> Option<noren::Dropout> {
        match self {
            Mode::Training { seed } if probability > 0.0 => Some(noren::Dropout { probability, seed }),
            _ => None,
        }
    }

    /// Sets each element of `x` to 0 with probability `probability`, and divides the other elements by
    /// `1 - probability`. In inference, returns `x` unchanged.
    ///
    /// # Errors
    /// Returns an error if `x` does not have a float type.
    pub fn dropout(self, x: &Tensor, probability: f32) -> Result<Tensor> {
        let Some(dropout) = self.attention(probability) else { return Ok(x.clone()) };
        let width = x.dims().last().copied().unwrap_or(1).max(1);
        let rows = x.elem_count() / width;
        let kept = (0..rows).flat_map(|row| {
            (0..width).map(move |d| if dropout.keeps([0, 0, row, d]) { dropout.factor() } else { 0.0 })
        });
        let kept = Tensor::from_iter(kept, x.device())?.reshape(x.shape())?;
        Ok((x * kept.to_dtype(x.dtype())?)?)
    }
}

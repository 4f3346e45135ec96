//! Computes rotary position embeddings (Su et al. 2021), with the kinds of scaling that configurations name.

use super::raw::Raw;
use crate::error::{Error, Result};
use candle_core::{DType, Device, Tensor};
use std::f64::consts::TAU;

/// The settings of rotary position embeddings. The embeddings rotate pairs of dimensions of queries and keys by angles
/// proportional to the position.
#[derive(Clone, PartialEq, Debug)]
pub struct Rope {
    /// The base of the frequencies. Without scaling, one position rotates pair `i` of dimensions by
    /// `theta^(-2 i / head_dim)` radians.
    pub theta: f64,
    /// The scaling of the frequencies for texts longer than those of the original training.
    pub scaling: RopeScaling,
}

/// The scaling of frequencies for texts longer than those of the original training.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum RopeScaling {
    /// No scaling.
    None,
    /// All frequencies are divided by the same factor.
    Linear {
        /// The divisor of the frequencies.
        factor: f64,
    },
    /// Low frequencies are divided by `factor`, high frequencies do not change, and those between change gradually
    /// (Llama 3).
    Llama3 {
        /// The divisor of low frequencies.
        factor: f64,
        /// Frequencies whose full rotation takes more than `original / low` tokens are divided by `factor`.
        low: f64,
        /// Frequencies whose full rotation takes fewer than `original / high` tokens do not change.
        high: f64,
        /// The maximum length of texts in the original training, in tokens.
        original: f64,
    },
    /// Low frequencies are divided by `factor`, high frequencies do not change, and those between change gradually.
    /// Cosines and sines are multiplied by `attention` (YaRN, Peng et al. 2023).
    Yarn {
        /// The divisor of low frequencies.
        factor: f64,
        /// A frequency does not change if it makes more than this number of rotations over `original` tokens.
        fast: f64,
        /// A frequency is divided by `factor` if it makes fewer than this number of rotations over `original` tokens.
        slow: f64,
        /// The maximum length of texts in the original training, in tokens.
        original: f64,
        /// Whether the limits `fast` and `slow` are rounded. Each limit is converted to the index of a pair of
        /// dimensions; if `truncate` is true, this index is rounded to a whole number.
        truncate: bool,
        /// The factor by which cosines and sines are multiplied.
        attention: f64,
    },
}

impl Rope {
    /// Returns the settings with the base `theta` and without scaling.
    pub fn new(theta: f64) -> Self {
        Rope { theta, scaling: RopeScaling::None }
    }

    /// Reads the settings from the key `rope_parameters`, or from the older keys `rope_theta` and `rope_scaling`. If
    /// keys are missing, `theta` is the base, and `positions` the maximum length of texts in the original training.
    pub(crate) fn read(raw: &Raw<'_>, theta: f64, positions: usize) -> Result<Self> {
        let parameters = match raw.object("rope_parameters")? {
            Some(parameters) => Some(parameters),
            None => raw.object("rope_scaling")?,
        };
        let theta = raw.real_or("rope_theta", theta)?;
        let none = serde_json::Map::new();
        Self::of(&parameters.unwrap_or(Raw(&none)), theta, positions)
    }

    /// Reads the settings from `parameters`, for all layers or for one kind of layers (with or without a window). If
    /// keys are missing, `theta` is the base, and `positions` the maximum length of texts in the original training.
    pub(crate) fn of(parameters: &Raw<'_>, theta: f64, positions: usize) -> Result<Self> {
        let theta = parameters.real_or("rope_theta", theta)?;
        if parameters.real_or("partial_rotary_factor", 1.0)? != 1.0 {
            let given = parameters.real_or("partial_rotary_factor", 1.0)?;
            return Err(Error::config("partial_rotary_factor", given, "only 1 is supported"));
        }
        let original = parameters.count_or("original_max_position_embeddings", positions)? as f64;
        let factor = || match parameters.real_if("factor")? {
            Some(factor) if factor >= 1.0 => Ok(factor),
            Some(factor) => Err(Error::config("rope factor", factor, "at least 1 is needed")),
            None => Err(Error::config("rope factor", "missing", "this rope_type needs one")),
        };
        let kind = parameters.text_or("rope_type", parameters.text_or("type", "default")?)?;
        let scaling = match kind {
            // Dynamic scaling begins beyond the positions, and longer texts are refused.
            "default" | "dynamic" => RopeScaling::None,
            "linear" => RopeScaling::Linear { factor: factor()? },
            "llama3" => RopeScaling::Llama3 {
                factor: factor()?,
                low: parameters.real_or("low_freq_factor", 1.0)?,
                high: parameters.real_or("high_freq_factor", 4.0)?,
                original,
            },
            "yarn" => RopeScaling::Yarn {
                factor: factor()?,
                fast: parameters.real_or("beta_fast", 32.0)?,
                slow: parameters.real_or("beta_slow", 1.0)?,
                original,
                truncate: parameters.flag_or("truncate", true)?,
                attention: yarn_attention(parameters, factor()?)?,
            },
            other => {
                let expected = "give a supported kind of scaling: default, dynamic, linear, llama3 or yarn";
                return Err(Error::config("rope_type", format!("{other:?}"), expected));
            }
        };
        if !(theta.is_finite() && theta > 1.0) {
            return Err(Error::config("rope_theta", theta, "a finite number above 1 is needed"));
        }
        Ok(Rope { theta, scaling })
    }

    /// Returns `head_dim / 2` angles in radians: the angle by which one position rotates each pair of dimensions.
    pub fn frequencies(&self, head_dim: usize) -> Vec<f32> {
        let exponent = |i: usize| (2 * i) as f64 / head_dim as f64;
        let plain = (0..head_dim / 2).map(|i| self.theta.powf(exponent(i)).recip());
        match self.scaling {
            RopeScaling::None => plain.map(|f| f as f32).collect(),
            RopeScaling::Linear { factor } => plain.map(|f| (f / factor) as f32).collect(),
            RopeScaling::Llama3 { factor, low, high, original } => {
                let stretched = |f: f64| match TAU / f {
                    wave if wave < original / high => f,
                    wave if wave > original / low => f / factor,
                    wave => {
                        let smooth = (original / wave - low) / (high - low);
                        (1.0 - smooth) * f / factor + smooth * f
                    }
                };
                plain.map(|f| stretched(f) as f32).collect()
            }
            RopeScaling::Yarn { factor, fast, slow, original, truncate, .. } => {
                let border = |turns: f64| head_dim as f64 * (original / (turns * TAU)).ln() / (2.0 * self.theta.ln());
                let (mut low, mut high) = (border(fast), border(slow));
                if truncate {
                    (low, high) = (low.floor(), high.ceil());
                }
                (low, high) = (low.max(0.0), high.min(head_dim as f64 - 1.0));
                // A range between borders is never empty.
                let width = if low == high { 0.001 } else { high - low };
                let stretched = |(i, f): (usize, f64)| {
                    let ramp = ((i as f64 - low) / width).clamp(0.0, 1.0);
                    f / factor * ramp + f * (1.0 - ramp)
                };
                plain.enumerate().map(|f| stretched(f) as f32).collect()
            }
        }
    }

    /// Returns the cosines and sines of the rotation as tensors of `dtype`. `positions` holds the position of each
    /// token, with one list for each batch row.
    ///
    /// # Errors
    /// Returns an error if rows have different lengths.
    pub(crate) fn rotary(
        &self,
        positions: &[Vec<u32>],
        head_dim: usize,
        dtype: DType,
        device: &Device,
    ) -> Result<Rotary> {
        let frequencies = self.frequencies(head_dim);
        let sharper = if let RopeScaling::Yarn { attention, .. } = self.scaling { attention } else { 1.0 };
        let shape = (positions.len(), 1, positions.first().map_or(0, Vec::len), head_dim / 2);
        let table = |of: fn(f64) -> f64| -> Result<Tensor> {
            // Angles are products in `f32`, as in the training of the models.
            let angles = positions.iter().flatten().flat_map(|p| frequencies.iter().map(move |f| *p as f32 * f));
            let values: Vec<f32> = angles.map(|angle| (of(f64::from(angle)) * sharper) as f32).collect();
            Ok(Tensor::from_vec(values, shape, device)?.to_dtype(dtype)?)
        };
        Ok(Rotary { cos: table(f64::cos)?, sin: table(f64::sin)? })
    }
}

/// Returns the factor by which YaRN multiplies cosines and sines: the value of `attention_factor` in `parameters`, or
/// else a value that is computed from `factor` and, if given, `mscale` and `mscale_all_dim` [default:
/// `0.1 ln(factor) + 1`].
fn yarn_attention(parameters: &Raw<'_>, factor: f64) -> Result<f64> {
    if let Some(given) = parameters.real_if("attention_factor")? {
        return Ok(given);
    }
    let sharper = |by: f64| if factor <= 1.0 { 1.0 } else { 0.1 * by * factor.ln() + 1.0 };
    let (by, all) = (parameters.real_or("mscale", 0.0)?, parameters.real_or("mscale_all_dim", 0.0)?);
    Ok(if by != 0.0 && all != 0.0 { sharper(by) / sharper(all) } else { sharper(1.0) })
}

/// The cosines and sines of the rotation angles of all tokens, each `[batch, 1, length, head_dim / 2]`.
#[derive(Clone, Debug)]
pub(crate) struct Rotary {
    cos: Tensor,
    sin: Tensor,
}

impl Rotary {
    /// Rotates `x` `[batch, heads, length, head_dim]`. Dimensions `i` and `i + head_dim / 2` form a pair, for example 0
    /// and 4 of 8 dimensions.
    pub(crate) fn turn(&self, x: &Tensor) -> Result<Tensor> {
        let half = x.dim(3)? / 2;
        let (a, b) = (x.narrow(3, 0, half)?, x.narrow(3, half, half)?);
        let first = (a.broadcast_mul(&self.cos)? - b.broadcast_mul(&self.sin)?)?;
        let second = (b.broadcast_mul(&self.cos)? + a.broadcast_mul(&self.sin)?)?;
        Ok(Tensor::cat(&[first, second], 3)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn llama3_stretches_low_frequencies_only() {
        let plain = Rope::new(500_000.0);
        let scaling = RopeScaling::Llama3 { factor: 8.0, low: 1.0, high: 4.0, original: 8192.0 };
        let (stretched, plain) = (Rope { scaling, ..plain.clone() }.frequencies(128), plain.frequencies(128));
        assert_eq!(stretched[..20], plain[..20]);
        assert_eq!(stretched[63], plain[63] / 8.0);
        let between = stretched.iter().zip(&plain).filter(|(s, p)| **s < **p && **s > **p / 8.0).count();
        assert!((2..12).contains(&between), "{between}");
    }

    #[test]
    fn unknown_scalings_are_refused() {
        let json: serde_json::Value = serde_json::json!({"rope_scaling": {"rope_type": "longrope", "factor": 2.0}});
        let error = Rope::read(&Raw(json.as_object().unwrap()), 1e4, 128).unwrap_err().to_string();
        assert_eq!(
            error,
            "config.json: rope_type is \"longrope\": give a supported kind of scaling: default, dynamic, linear, llama3 or yarn"
        );
    }
}

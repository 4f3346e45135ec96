//! [`Weights`]: the parameters of a model with their gradients and running averages, and the optimiser AdamW.

use crate::error::{Error, Result};
use candle_core::backprop::GradStore;
use candle_core::{DType, Device, Tensor, Var};
use noren::noren_mask::philox;
use std::collections::BTreeMap;

/// The number that prevents a division by zero in AdamW (Loshchilov and Hutter 2019).
const EPSILON: f64 = 1e-8;

/// The parameters of a model by name, each with its gradient and the two running averages that AdamW needs.
pub(super) struct Weights {
    parts: BTreeMap<String, Part>,
}

/// One parameter tensor, with its gradient and the two running averages that AdamW needs.
struct Part {
    var: Var,
    values: Vec<f32>,
    gradient: Vec<f32>,
    /// The running average of the gradient.
    first: Vec<f32>,
    /// The running average of the squared gradient.
    second: Vec<f32>,
}

/// The settings of one step of AdamW.
pub(super) struct Step {
    /// The number of the step in the training, counted from 1.
    pub(super) number: u64,
    pub(super) rate: f64,
    pub(super) weight_decay: f64,
    pub(super) betas: [f64; 2],
    pub(super) clip: f64,
}

impl Weights {
    pub(super) fn new(vars: impl IntoIterator<Item = (String, Var)>) -> Result<Self> {
        let part = |(name, var): (String, Var)| {
            let values = var.flatten_all()?.to_vec1::<f32>()?;
            let zeros = vec![0.0; values.len()];
            Ok((name, Part { var, gradient: zeros.clone(), first: zeros.clone(), second: zeros, values }))
        };
        Ok(Weights { parts: vars.into_iter().map(part).collect::<Result<_>>()? })
    }

    /// Returns the number of values in all parameters.
    pub(super) fn count(&self) -> usize {
        self.parts.values().map(|part| part.values.len()).sum()
    }

    /// Sets the parameters to their initial values. Matrices get random numbers of a normal distribution with standard
    /// deviation `range`. For matrices whose result is added to the residual stream, `range` is divided by
    /// `sqrt(2 * layers)` (Radford et al. 2019). Biases become 0, and norms do not change.
    pub(super) fn draw(&mut self, range: f64, layers: usize, seed: u64) -> Result<()> {
        let writers = ((2 * layers.max(1)) as f64).sqrt();
        for (name, part) in &mut self.parts {
            if part.var.rank() > 1 {
                let writes = ["o_proj", "down_proj", "c_proj", "output.dense"].iter().any(|end| name.contains(end));
                let deviation = if writes { range / writers } else { range };
                fill_normal(&mut part.values, deviation, name, seed);
            } else if name.ends_with("bias") {
                part.values.fill(0.0);
            }
            part.publish()?;
        }
        Ok(())
    }

    /// Adds the gradients of one batch to the stored gradients, which [`step`](Self::step) uses.
    pub(super) fn accumulate(&mut self, gradients: &GradStore) -> Result<()> {
        for part in self.parts.values_mut() {
            let Some(gradient) = gradients.get(part.var.as_tensor()) else { continue };
            let new = gradient.flatten_all()?.to_vec1::<f32>()?;
            part.gradient.iter_mut().zip(new).for_each(|(sum, new)| *sum += new);
        }
        Ok(())
    }

    /// Updates all parameters by one step of AdamW with the stored gradients, and sets these gradients to 0. Returns
    /// the norm of all gradients before they are scaled down.
    pub(super) fn step(&mut self, step: &Step) -> Result<f64> {
        let squares = |part: &Part| part.gradient.iter().map(|g| f64::from(*g) * f64::from(*g)).sum::<f64>();
        let norm = self.parts.values().map(squares).sum::<f64>().sqrt();
        if !norm.is_finite() {
            let advice = "training diverged: give a lower learning_rate or a longer warmup";
            return Err(Error::input("the gradient norm", norm, advice));
        }
        let scale = (step.clip / norm.max(step.clip)) as f32;
        for part in self.parts.values_mut() {
            part.step(step, scale);
            part.publish()?;
        }
        Ok(norm)
    }

    /// Returns the tensors of a checkpoint with their names: each parameter and its two running averages.
    pub(super) fn state(&self) -> Result<Vec<(String, Tensor)>> {
        let mut all = Vec::new();
        for (name, part) in &self.parts {
            for (prefix, values) in [("model", &part.values), ("first", &part.first), ("second", &part.second)] {
                let tensor = Tensor::from_slice(values, part.var.shape(), &Device::Cpu)?;
                all.push((format!("{prefix}.{name}"), tensor));
            }
        }
        Ok(all)
    }

    /// Returns the parameters with their names, converted to `dtype`.
    pub(super) fn parameters(&self, dtype: DType) -> Result<Vec<(String, Tensor)>> {
        self.parts.iter().map(|(name, part)| Ok((name.clone(), part.var.as_tensor().to_dtype(dtype)?))).collect()
    }

    /// Sets the parameters and the running averages to the values of a checkpoint. For each tensor that
    /// [`state`](Self::state) returns, `take` is called with the name and the shape, and returns the values.
    pub(super) fn restore(&mut self, mut take: impl FnMut(&str, &[usize]) -> Result<Vec<f32>>) -> Result<()> {
        for (name, part) in &mut self.parts {
            let shape = part.var.dims().to_vec();
            part.values = take(&format!("model.{name}"), &shape)?;
            part.first = take(&format!("first.{name}"), &shape)?;
            part.second = take(&format!("second.{name}"), &shape)?;
            part.publish()?;
        }
        Ok(())
    }
}

impl Part {
    fn step(&mut self, step: &Step, scale: f32) {
        let [b1, b2] = step.betas;
        let unbias = |beta: f64| 1.0 / (1.0 - beta.powi(step.number.min(i32::MAX as u64) as i32));
        let (m_scale, v_scale) = (unbias(b1) as f32, unbias(b2) as f32);
        let [b1, b2] = [b1 as f32, b2 as f32];
        // Only matrices decay; norms and biases do not.
        let decay = if self.var.rank() > 1 { (step.rate * step.weight_decay) as f32 } else { 0.0 };
        let (rate, epsilon) = (step.rate as f32, EPSILON as f32);
        let averages = self.first.iter_mut().zip(&mut self.second);
        for ((value, gradient), (m, v)) in self.values.iter_mut().zip(&mut self.gradient).zip(averages) {
            let g = *gradient * scale;
            *m = b1 * *m + (1.0 - b1) * g;
            *v = b2 * *v + (1.0 - b2) * g * g;
            *value -= decay * *value + rate * (*m * m_scale) / ((*v * v_scale).sqrt() + epsilon);
            *gradient = 0.0;
        }
    }

    /// Copies the values of this parameter to the candle variable that the model reads.
    fn publish(&self) -> Result<()> {
        Ok(self.var.set(&Tensor::from_slice(&self.values, self.var.shape(), self.var.device())?)?)
    }
}

/// Fills `values` with random numbers of a normal distribution with standard deviation `deviation` (method of Box and
/// Muller). The random numbers depend only on `name` (of the parameter) and `seed`.
fn fill_normal(values: &mut [f32], deviation: f64, name: &str, seed: u64) {
    let key = seed ^ fingerprint(name.bytes());
    for (at, pair) in values.chunks_mut(2).enumerate() {
        let words = philox([at as u32, (at as u64 >> 32) as u32, 0x1217, 0], key);
        let unit = |word: u32| (f64::from(word) + 0.5) / 4_294_967_296.0;
        let (radius, angle) = ((-2.0 * unit(words[0]).ln()).sqrt(), std::f64::consts::TAU * unit(words[1]));
        for (value, part) in pair.iter_mut().zip([angle.cos(), angle.sin()]) {
            *value = (deviation * radius * part) as f32;
        }
    }
}

/// Returns the FNV-1a hash of some bytes. The hash detects accidental changes, not deliberate ones.
pub(super) fn fingerprint(bytes: impl IntoIterator<Item = u8>) -> u64 {
    bytes.into_iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

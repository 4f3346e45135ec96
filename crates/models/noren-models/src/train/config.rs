//! [`TrainConfig`]: the configuration of a training run.

use crate::error::{Error, Result};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// Maximum number of tokens that one step of the optimiser reads: `row_len * rows * accumulate`. All batches of a step
/// are in memory at the same time.
const MOST_TOKENS: usize = 1 << 26;
/// Default number of warm-up steps.
const USUAL_WARMUP: u64 = 50;

/// The configuration of a training run. Every field except `model` has a default.
///
/// ```
/// use noren_models::train::TrainConfig;
/// let config = TrainConfig::from_json(r#"{"model": {"model_type": "llama"}, "steps": 100, "learning_rate": 0.002}"#)?;
/// assert_eq!((config.steps, config.rows, config.row_len), (100, 16, 256));
/// # Ok::<(), noren_models::Error>(())
/// ```
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TrainConfig {
    /// The configuration of the model, as in `config.json` of Hugging Face. If `vocab_size` is missing, the size of the
    /// tokenizer's vocabulary is used.
    pub model: serde_json::Map<String, serde_json::Value>,
    /// Number of steps of the training. In one step, the optimiser updates the weights once.
    pub steps: u64,
    /// Number of rows (token sequences) in each batch.
    pub rows: usize,
    /// Number of tokens in each row of a batch.
    pub row_len: usize,
    /// Number of batches in each step. Their gradients are added before the weights are updated.
    pub accumulate: usize,
    /// The maximum learning rate.
    pub learning_rate: f64,
    /// Number of steps at the beginning in which the learning rate rises linearly to its maximum [default: 50, or all
    /// steps if there are fewer]. In the following steps, the learning rate falls along a cosine.
    pub warmup: Option<u64>,
    /// The learning rate at the end of the training, as a fraction of `learning_rate`, from 0 to 1.
    pub floor: f64,
    /// The weight decay: each step multiplies every matrix by `1 - rate * weight_decay`, where `rate` is the learning
    /// rate of the step.
    pub weight_decay: f64,
    /// The decay rates of the running averages of gradients and of squared gradients, in this order (AdamW's betas).
    pub betas: [f64; 2],
    /// The maximum norm of the gradients of all parameters together. Gradients with a larger norm are scaled down to
    /// this norm.
    pub clip: f64,
    /// The seed of all random choices: initial weights, order of rows, dropout, and the choice of tokens that masked LM
    /// hides.
    pub seed: u64,
    /// The string that separates one document from the next in the training text [default: a blank line].
    pub separator: String,
    /// The last row of every `held_out` rows is used for validation only. For example, 20 holds out the rows 19, 39,
    /// 59, ..., counted from 0. If there are fewer than `held_out` rows, the last row is held out.
    pub held_out: usize,
    /// Number of steps between two validations.
    pub validate_every: u64,
    /// Maximum number of held-out rows that one validation reads, rounded up to whole batches.
    pub validate_rows: usize,
}

impl Default for TrainConfig {
    fn default() -> Self {
        Self {
            model: serde_json::Map::new(),
            steps: 1000,
            rows: 16,
            row_len: 256,
            accumulate: 1,
            learning_rate: 1e-3,
            warmup: None,
            floor: 0.1,
            weight_decay: 0.1,
            betas: [0.9, 0.98],
            clip: 1.0,
            seed: 0,
            separator: "\n\n".into(),
            held_out: 20,
            validate_every: 100,
            validate_rows: 64,
        }
    }
}

impl TrainConfig {
    /// Reads the configuration from JSON, and checks its values.
    ///
    /// # Errors
    /// Returns [`Error::Config`] with the key of an invalid value, and `Error::Input` for malformed JSON or an unknown
    /// key.
    pub fn from_json(text: &str) -> Result<Self> {
        let config: TrainConfig = serde_json::from_str(text)
            .map_err(|e| Error::input("the training configuration", "malformed", e.to_string()))?;
        config.check()?;
        Ok(config)
    }

    /// Reads the configuration from a file.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read, and the errors of [`from_json`](Self::from_json), with the path.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let text =
            std::fs::read_to_string(path).map_err(|e| Error::file(path, format!("the file cannot be read: {e}")))?;
        Self::from_json(&text).map_err(|e| Error::file(path, e.to_string().trim_start_matches("config.json: ")))
    }

    /// Returns the learning rate of step `step`, counted from 0.
    pub fn rate(&self, step: u64) -> f64 {
        let warmup = self.warmup.unwrap_or(USUAL_WARMUP.min(self.steps));
        if step < warmup {
            return self.learning_rate * (step + 1) as f64 / warmup as f64;
        }
        let done = (step - warmup) as f64 / (self.steps - warmup).max(1) as f64;
        let cosine = (1.0 + (std::f64::consts::PI * done.min(1.0)).cos()) / 2.0;
        self.learning_rate * (self.floor + (1.0 - self.floor) * cosine)
    }

    fn check(&self) -> Result<()> {
        let positive = [
            ("steps", self.steps),
            ("rows", self.rows as u64),
            ("accumulate", self.accumulate as u64),
            ("validate_every", self.validate_every),
            ("validate_rows", self.validate_rows as u64),
        ];
        if let Some((key, _)) = positive.into_iter().find(|(_, value)| *value == 0) {
            return Err(Error::config(key, 0, "at least 1 is needed"));
        }
        let shape = [("row_len", self.row_len), ("rows", self.rows), ("accumulate", self.accumulate)];
        let mut tokens = 1usize;
        for (key, count) in shape {
            tokens = tokens.saturating_mul(count);
            if tokens > MOST_TOKENS {
                let expected = format!(
                    "an update may read at most {MOST_TOKENS} tokens: give smaller values of row_len, rows or accumulate"
                );
                return Err(Error::config(key, count, expected));
            }
        }
        if let Some(warmup) = self.warmup.filter(|warmup| *warmup > self.steps) {
            return Err(Error::config(
                "warmup",
                warmup,
                format!("give at most {}, the number of steps of the training", self.steps),
            ));
        }
        if !(0.0..=1.0).contains(&self.floor) {
            return Err(Error::config("floor", self.floor, "a fraction from 0 to 1 is needed"));
        }
        if let Some(beta) = self.betas.into_iter().find(|beta| !(0.0..1.0).contains(beta)) {
            return Err(Error::config("betas", beta, "a number of at least 0 and below 1 is needed"));
        }
        for (key, value) in [("learning_rate", self.learning_rate), ("clip", self.clip)] {
            if !(value > 0.0 && value.is_finite()) {
                return Err(Error::config(key, value, "a number above 0 is needed"));
            }
        }
        if !(self.weight_decay >= 0.0 && self.weight_decay.is_finite()) {
            return Err(Error::config(
                "weight_decay",
                self.weight_decay,
                "a number of at least 0 is needed: a negative weight decay would increase the weights",
            ));
        }
        if self.separator.is_empty() {
            return Err(Error::config(
                "separator",
                "empty",
                "the separator divides the text into documents: give at least one character",
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weight_decay_is_a_number_from_0() {
        let with = |decay: &str| TrainConfig::from_json(&format!(r#"{{"model": {{}}, "weight_decay": {decay}}}"#));
        assert!(with("0").is_ok() && with("0.1").is_ok());
        for decay in ["-1", "-1e-9", "-1e300"] {
            let message = with(decay).unwrap_err().to_string();
            assert!(
                message.contains("weight_decay is -") && message.contains("a number of at least 0 is needed"),
                "{message}"
            );
        }
    }
}

//! [`Trainer`]: the training loop.

use super::checkpoint::{Checkpoint, write_tensors, write_whole};
use super::config::TrainConfig;
use super::history::{History, Point};
use super::learner::Learner;
use super::loss::sum_of_losses;
use super::weights::{Step, Weights, fingerprint};
use crate::error::{Error, Result};
use crate::nn::Mode;
use candle_core::DType;
use noren_text::Tokenizer;
use noren_text::data::{Batch, Objective, Rows, Sampler};
use std::collections::HashMap;
use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Time between two checkpoints between validations; longer if writing takes more than a twentieth of it.
const CHECKPOINTS: Duration = Duration::from_secs(10);

/// The progress of training, reported after each step.
#[derive(Clone, Debug)]
pub struct Progress {
    /// Number of completed steps, and number of all steps, in this order.
    pub steps: [u64; 2],
    /// The mean loss of this step, in nats per predicted token.
    pub loss: f64,
    /// The mean loss in the last validation; `None` before the first validation. If both objectives are trained, it is
    /// the loss of masked LM.
    pub validation: Option<f64>,
    /// Mean number of non-padding tokens per second, since the call of [`Trainer::run`] began its first step.
    pub tokens_per_second: f64,
}

/// The result of training.
#[derive(Clone, Debug)]
pub struct Trained {
    /// The path of the folder with config.json, model.safetensors, tokenizer.json and loss.svg.
    pub folder: PathBuf,
    /// Number of completed steps in the checkpoint from which [`Trainer::run`] continued; 0 for a new training.
    pub resumed_at: u64,
    /// The losses of the whole training.
    pub history: History,
}

/// A trainer of one model on one text.
///
/// ```no_run
/// use noren_models::train::{TrainConfig, Trainer};
/// use noren_text::{ByteTokenizer, data::Objective};
/// let config = TrainConfig::from_file("config.json")?;
/// let text = std::fs::read_to_string("text.txt").unwrap();
/// let trained = Trainer::new(&config, &ByteTokenizer, &text, Objective::Clm)?
///     .run("model".as_ref(), |now| println!("{} of {}: loss {:.3}", now.steps[0], now.steps[1], now.loss))?;
/// println!("{:?}", trained.history.validation.last());
/// # Ok::<(), noren_models::Error>(())
/// ```
pub struct Trainer<'a> {
    config: &'a TrainConfig,
    tokenizer: &'a dyn Tokenizer,
    model: Learner,
    train: Sampler,
    held: Sampler,
    objective: Objective,
    weights: Weights,
    documents: usize,
    unigram: f64,
    fingerprint: u64,
}

impl<'a> Trainer<'a> {
    /// Splits `text` into documents, packs the documents into rows, holds out some rows for validation, and makes the
    /// model with random weights.
    ///
    /// # Errors
    /// Returns an error for a text that is empty or too short, an objective that the tokenizer does not support, and an
    /// invalid model.
    pub fn new(
        config: &'a TrainConfig,
        tokenizer: &'a dyn Tokenizer,
        text: &str,
        objective: Objective,
    ) -> Result<Self> {
        // Line ends are converted to one form, so that documents are separated in the same places on any system.
        let text = if config.separator.contains('\r') { text.to_owned() } else { text.replace("\r\n", "\n") };
        let documents: Vec<&str> = text.split(&config.separator[..]).filter(|part| !part.trim().is_empty()).collect();
        let rows = Rows::pack(&documents, tokenizer, config.row_len)?;
        let unigram = shown(rows.unigram_entropy(tokenizer));
        let tokens = rows.iter().flat_map(|row| &row.ids).flat_map(|id| id.to_le_bytes());
        let said = format!(
            "{objective} {}",
            serde_json::to_string(config).expect("a training configuration can always be converted to JSON")
        );
        let fingerprint = fingerprint(tokens.chain(said.bytes()));
        let (train, held) = rows.split(config.held_out)?;
        let model = Learner::new(config, tokenizer)?;
        let mut weights = Weights::new(model.parameters())?;
        weights.draw(model.initializer_range(), model.layers(), config.seed)?;
        Ok(Trainer {
            train: Sampler::new(train, tokenizer, objective, config.seed)?,
            held: Sampler::new(held, tokenizer, objective, config.seed)?,
            config,
            tokenizer,
            model,
            objective,
            weights,
            documents: documents.len(),
            unigram,
            fingerprint,
        })
    }

    /// Returns the number of parameters.
    pub fn parameters(&self) -> usize {
        self.weights.count()
    }

    /// Returns the number of documents in the text.
    pub fn documents(&self) -> usize {
        self.documents
    }

    /// Returns the number of rows for training, and the number of rows that are held out.
    pub fn rows(&self) -> [usize; 2] {
        [self.train.rows().len(), self.held.rows().len()]
    }

    /// Trains the model, and writes the result to `folder`. A checkpoint is written after the first step, every ten seconds and
    /// after each validation. If `folder` has a checkpoint, training continues from it.
    /// `report` is called after every step.
    ///
    /// # Errors
    /// Returns an error if `folder` cannot be written, if another training uses it, or if its checkpoint belongs to
    /// another configuration, objective or text. Returns an error for a model without a head that predicts tokens, and
    /// if the loss diverges.
    pub fn run(mut self, folder: &Path, mut report: impl FnMut(&Progress)) -> Result<Trained> {
        std::fs::create_dir_all(folder).map_err(|e| Error::file(folder, format!("the folder cannot be made: {e}")))?;
        let _lock = lock(folder)?;
        let (mut first, mut sums) = (0, Sums::default());
        let mut history = History { unigram: self.unigram, ..History::default() };
        if let Some(found) = Checkpoint::read(folder, &mut self.weights)? {
            if found.fingerprint != self.fingerprint {
                let problem = "the checkpoint belongs to another configuration, objective or text: give another folder, or remove the file";
                return Err(Error::file(Checkpoint::path(folder), problem));
            }
            (first, history) = (found.step, found.history);
            sums = Sums(found.sums.map(|(sum, count)| (f64::from_bits(sum), count)));
        }
        let begun = Instant::now();
        let (mut tokens, mut next_checkpoint) = (0, begun);
        for step in first..self.config.steps {
            let (loss, read) = self.step(step, &mut sums)?;
            tokens += read;
            let done = step + 1;
            let pause = done % self.config.validate_every == 0 || done == self.config.steps;
            if pause {
                history.training.extend(std::mem::take(&mut sums).points(done));
                history.validation.extend(self.validate(done)?);
                write_whole(&folder.join("loss.svg"), history.to_svg().as_bytes())?;
            }
            if pause || Instant::now() >= next_checkpoint {
                let writing = Instant::now();
                let (fingerprint, history) = (self.fingerprint, history.clone());
                let sums = sums.0.map(|(sum, count)| (sum.to_bits(), count));
                Checkpoint { step: done, fingerprint, history, sums }.write(folder, &self.weights)?;
                next_checkpoint = Instant::now() + CHECKPOINTS.max(20 * writing.elapsed());
            }
            report(&Progress {
                steps: [done, self.config.steps],
                loss,
                validation: history.validation.last().map(|point| point.loss),
                tokens_per_second: tokens as f64 / begun.elapsed().as_secs_f64(),
            });
        }
        write_whole(&folder.join("tokenizer.json"), self.tokenizer.to_json().as_bytes())?;
        let config = serde_json::to_string_pretty(self.model.config())
            .expect("a model configuration can always be converted to JSON");
        write_whole(&folder.join("config.json"), format!("{config}\n").as_bytes())?;
        let weights = self.weights.parameters(self.model.stored_type())?;
        write_tensors(&folder.join("model.safetensors"), weights, Some(pytorch()))?;
        Ok(Trained { folder: folder.to_path_buf(), resumed_at: first, history })
    }

    /// Runs step number `step` of the training, counted from 0: computes the gradients of its batches, and updates the
    /// weights once. Adds the losses to `sums`. Returns the mean loss per predicted token, and the number of
    /// non-padding tokens.
    fn step(&mut self, step: u64, sums: &mut Sums) -> Result<(f64, usize)> {
        let config = self.config;
        let first = step * config.accumulate as u64;
        let batches: Vec<Batch> =
            (first..first + config.accumulate as u64).map(|number| self.train.batch(number, config.rows)).collect();
        // Each token has the same weight, in any of the batches.
        let predicted: usize = batches.iter().map(Batch::predicted).sum();
        let mut loss = 0.0;
        for (number, batch) in (first..).zip(&batches).filter(|(_, batch)| batch.predicted() > 0) {
            let mode = Mode::Training { seed: config.seed }.at(number);
            let sum = sum_of_losses(&self.model.logits(batch, mode)?, batch)?;
            let mean = (&sum / predicted as f64)?;
            self.weights.accumulate(&mean.backward()?)?;
            let sum = f64::from(sum.to_scalar::<f32>()?);
            sums.add(batch.objective, sum, batch.predicted());
            loss += sum / predicted as f64;
        }
        let (rate, weight_decay, betas, clip) = (config.rate(step), config.weight_decay, config.betas, config.clip);
        self.weights.step(&Step { number: step + 1, rate, weight_decay, betas, clip })?;
        Ok((loss, batches.iter().map(Batch::real).sum()))
    }

    /// Returns the mean loss on the held-out rows for each objective. `step` is the number of completed steps.
    fn validate(&self, step: u64) -> Result<Vec<Point>> {
        let objectives: &[Objective] = match &self.objective {
            Objective::Both => &[Objective::Clm, Objective::Mlm],
            one => std::slice::from_ref(one),
        };
        let mut sums = Sums::default();
        for objective in objectives {
            let batches = self.held.in_order(*objective, self.config.rows);
            for batch in
                batches.take(self.config.validate_rows.div_ceil(self.config.rows)).filter(|b| b.predicted() > 0)
            {
                let sum = sum_of_losses(&self.model.logits(&batch, Mode::Inference)?.detach(), &batch)?
                    .to_dtype(DType::F64)?;
                sums.add(*objective, sum.to_scalar::<f64>()?, batch.predicted());
            }
        }
        Ok(sums.points(step))
    }
}

/// Locks a folder until the returned file is closed, so that two trainings cannot write to one folder. Returns `None`
/// if the system cannot lock folders, and an error if another training holds the lock.
fn lock(folder: &Path) -> Result<Option<File>> {
    let Ok(file) = File::open(folder) else { return Ok(None) };
    match file.try_lock() {
        Err(TryLockError::WouldBlock) => Err(Error::file(
            folder,
            "another training run uses this folder: wait until that run ends, or give another folder",
        )),
        Err(TryLockError::Error(_)) => Ok(None),
        Ok(()) => Ok(Some(file)),
    }
}

/// Two pairs (sum of losses, number of predicted tokens), from which mean losses are computed: first for causal LM,
/// then for masked LM.
#[derive(Default)]
struct Sums([(f64, usize); 2]);

impl Sums {
    fn add(&mut self, objective: Objective, loss: f64, predicted: usize) {
        let (sum, count) = &mut self.0[usize::from(objective == Objective::Mlm)];
        *sum += loss;
        *count += predicted;
    }

    fn points(self, step: u64) -> Vec<Point> {
        let mean = |((sum, count), objective): ((f64, usize), Objective)| {
            (count > 0).then(|| Point { step, objective: objective.to_string(), loss: shown(sum / count as f64) })
        };
        self.0.into_iter().zip([Objective::Clm, Objective::Mlm]).filter_map(mean).collect()
    }
}

/// Rounds a loss to nine decimals. A rounded loss has exactly the same value after it is written to a checkpoint and
/// read again.
fn shown(loss: f64) -> f64 {
    (loss * 1e9).round() / 1e9
}

/// Returns the metadata that the loader of Hugging Face requires in a file of weights.
fn pytorch() -> HashMap<String, String> {
    HashMap::from([("format".to_string(), "pt".to_string())])
}

//! [`generate`]: continues texts token by token, with caches.

mod sample;

pub use sample::Sampling;

use crate::error::{Error, Result};
use crate::model::cache::{StackCache, StackShape};
use crate::model::{Batch, Call, Decoder, DecoderConfig, Model, Pass, Planner, Stack, T5, on_pool, rows_at};
use candle_core::Tensor;
use noren::{Facts, Queries, Shape};
use sample::Sampler;

/// The options of [`generate`].
#[derive(Clone, Debug)]
pub struct GenerateOptions {
    /// Maximum number of new tokens for each prompt.
    pub new_tokens: usize,
    /// The settings by which each token is chosen [default: the most probable token].
    pub sampling: Sampling,
    /// Ids of the tokens that end a text. The result does not contain these tokens.
    pub stop: Vec<u32>,
    /// Maximum number of tokens of each prompt that the model reads in one pass. A smaller number needs less memory.
    /// The results do not depend on this number.
    pub prefill_chunk: usize,
    /// The facts that the model's masks need, such as labels of the prompts' tokens. Each prompt is a batch row.
    pub facts: Facts,
    /// For each prompt, the first tokens that a T5's decoder reads [default: the start token of the configuration].
    pub begins: Option<Vec<Vec<u32>>>,
}

impl Default for GenerateOptions {
    fn default() -> Self {
        GenerateOptions {
            new_tokens: 64,
            sampling: Sampling::default(),
            stop: Vec::new(),
            prefill_chunk: 512,
            facts: Facts::new(),
            begins: None,
        }
    }
}

/// A token that was chosen for a prompt.
#[derive(Clone, Copy, Debug)]
pub struct Step<'a> {
    /// The index of the prompt among all prompts.
    pub row: usize,
    /// The id of the chosen token.
    pub token: u32,
    /// The logits from which the token was chosen, one for each token of the vocabulary.
    pub logits: &'a [f32],
}

/// The result of [`generate`].
#[derive(Clone, PartialEq, Debug)]
pub struct Generated {
    /// The new tokens of each prompt.
    pub tokens: Vec<Vec<u32>>,
    /// Size of the key-value caches in bytes.
    pub cache_bytes: usize,
}

/// Continues all `prompts` together. The prompts may have different lengths, and have no padding. `each` is called with
/// every chosen token. If `each` returns `false`, the text of this prompt ends.
///
/// Caches hold sequences without padding, each with its own length. A layer whose mask is a sliding window stores only
/// the window. The prompts of a T5 are the texts of its encoder.
///
/// The attention, linear layers and norms of this crate give a token the same bits in a step with a cache as in one
/// pass over the whole text. In `f32`, the logits of every step therefore equal those of one pass bit by bit, for any
/// `prefill_chunk` and any other prompts in the batch. In `bf16` and `f16`, the logits also have these bits, unless a
/// layer stores a sliding window and an odd number of sink tokens.
///
/// ```
/// use candle_core::{DType, Device};
/// use candle_nn::{VarBuilder, VarMap};
/// use noren_models::generate::{GenerateOptions, generate};
/// use noren_models::model::{Config, DecoderConfig, Model};
///
/// let config = Config::Decoder(DecoderConfig::gpt2(50, 32, 2, 4, 64));
/// let vars = VarMap::new();
/// let model = Model::new(&config, &VarBuilder::from_varmap(&vars, DType::F32, &Device::Cpu))?;
/// let options = GenerateOptions { new_tokens: 5, ..Default::default() };
/// let made = generate(&model, &[vec![1, 2, 3], vec![7]], &options, &mut |_| true)?;
/// assert!(made.tokens.iter().all(|row| row.len() == 5));
/// # Ok::<(), noren_models::Error>(())
/// ```
///
/// # Errors
/// Returns an error for a model that is only an encoder, prompts without tokens or with tokens outside the vocabulary,
/// more tokens than positions, invalid settings, and logits that are NaN or infinite.
pub fn generate(
    model: &Model,
    prompts: &[Vec<u32>],
    options: &GenerateOptions,
    each: &mut dyn FnMut(Step<'_>) -> bool,
) -> Result<Generated> {
    if prompts.is_empty() || prompts.iter().any(Vec::is_empty) {
        return Err(Error::input(
            "the prompts",
            "empty",
            "give at least one prompt, and at least one token in each prompt",
        ));
    }
    if options.prefill_chunk == 0 {
        return Err(Error::input("prefill_chunk", 0, "give at least 1 token"));
    }
    model.check_ids(prompts)?;
    let longest = prompts.iter().map(Vec::len).max().unwrap_or(0);
    model.check_len(longest)?;
    let mut loops = Loop {
        sampler: Sampler::new(&options.sampling, prompts)?,
        options,
        each,
        tokens: vec![Vec::new(); prompts.len()],
        done: vec![options.new_tokens == 0; prompts.len()],
    };
    let cache_bytes = match model {
        Model::Decoder(_) if options.begins.is_some() => {
            let expected = "this model has no separate encoder, so its decoder begins with the prompt: omit `begins`";
            return Err(Error::input("`begins`", "given", expected));
        }
        Model::Decoder(decoder) => {
            decoder.language_model_head()?;
            if options.new_tokens > 0 {
                // The model chooses the last token, but does not read it.
                model.check_len(longest.saturating_add(options.new_tokens - 1))?;
            }
            decoder_loop(decoder, prompts, &mut loops)?
        }
        Model::T5(t5) => {
            let begins = options.begins.clone().unwrap_or_else(|| vec![vec![t5.config().start]; prompts.len()]);
            if begins.len() != prompts.len() || begins.iter().any(Vec::is_empty) {
                let expected = format!("give one list of at least one token for each of the {} prompts", prompts.len());
                return Err(Error::input("`begins`", format!("{begins:?}"), expected));
            }
            model.check_ids(&begins)?;
            t5_loop(t5, prompts, &begins, &mut loops)?
        }
        Model::Bert(_) | Model::ModernBert(_) => {
            return Err(Error::input("the model", "an encoder", "only causal language models and T5 continue texts"));
        }
    };
    Ok(Generated { tokens: loops.tokens, cache_bytes })
}

/// The state of one call of [`generate`]: the tokens chosen so far, and the prompts whose texts have ended.
struct Loop<'a> {
    options: &'a GenerateOptions,
    sampler: Sampler,
    each: &'a mut dyn FnMut(Step<'_>) -> bool,
    tokens: Vec<Vec<u32>>,
    done: Vec<bool>,
}

impl Loop<'_> {
    fn is_done(&self) -> bool {
        self.done.iter().all(|done| *done)
    }

    /// Chooses the next tokens of the prompts with the indices `rows`, and stores them. `logits` has one row `[vocab]`
    /// for each index in `rows`.
    fn choose(&mut self, rows: &[usize], logits: &Tensor) -> Result<()> {
        let logits = logits.to_dtype(candle_core::DType::F32)?.to_vec2::<f32>()?;
        for (&row, logits) in rows.iter().zip(&logits) {
            check_logits(row, logits)?;
            let token = self.sampler.choose(row, logits);
            if self.options.stop.contains(&token) {
                self.done[row] = true;
                continue;
            }
            self.tokens[row].push(token);
            let goes_on = (self.each)(Step { row, token, logits });
            self.done[row] = !goes_on || self.tokens[row].len() >= self.options.new_tokens;
        }
        Ok(())
    }
}

/// Returns an error if no token can be chosen from `logits`: if a logit is NaN or infinity, or if all logits are minus
/// infinity. `row` is the index of the prompt.
fn check_logits(row: usize, logits: &[f32]) -> Result<()> {
    let bad = logits.iter().position(|x| x.is_nan() || *x == f32::INFINITY);
    let bad = bad.or_else(|| logits.iter().all(|x| *x == f32::NEG_INFINITY).then_some(0));
    match bad {
        None => Ok(()),
        Some(token) => {
            let name = format!("the logit of token {token} after prompt {row}");
            let expected = "a finite number is needed: the weights are damaged, or too large for the number type of the computation";
            Err(Error::input(&name, logits.get(token).copied().unwrap_or(f32::NAN), expected))
        }
    }
}

/// Returns the logits of the hidden states at the places `at`, (row, index in the row), or `None` if there is no place.
fn logits_at(
    hidden: &Tensor,
    at: &[(usize, usize)],
    logits: impl FnOnce(&Tensor) -> Result<Tensor>,
) -> Result<Option<Tensor>> {
    if at.is_empty() { Ok(None) } else { logits(&rows_at(hidden, at)?).map(Some) }
}

/// Generates text with a causal language model. Returns the size of the model's caches in bytes.
fn decoder_loop(model: &Decoder, prompts: &[Vec<u32>], loops: &mut Loop<'_>) -> Result<usize> {
    let longest = prompts.iter().map(Vec::len).max().unwrap_or(0);
    let shape = stack_shape(model, prompts.len(), longest, loops.options);
    let mut cache = StackCache::new(&model.declared.mask, loops.options.facts.clone(), &shape)?;
    // The tokens that each sequence has still to read, and the number of those read.
    let mut waiting: Vec<&[u32]> = prompts.iter().map(Vec::as_slice).collect();
    let mut held = vec![0usize; prompts.len()];
    while !loops.is_done() {
        let last: Vec<Option<u32>> = loops.tokens.iter().map(|made| made.last().copied()).collect();
        let mut packed = Packed::default();
        let mut ready = Vec::new();
        for (row, waiting) in waiting.iter_mut().enumerate() {
            let one;
            let new = match (loops.done[row], waiting.len(), last[row]) {
                (true, ..) => &[][..],
                (false, 0, Some(token)) => {
                    one = [token];
                    &one[..]
                }
                (false, left, _) => {
                    let (new, rest) = waiting.split_at(left.min(loops.options.prefill_chunk));
                    *waiting = rest;
                    new
                }
            };
            packed.push(new, held[row]);
            held[row] += new.len();
            if !new.is_empty() && waiting.is_empty() {
                ready.push((row, packed.ids.len() - 1));
            }
        }
        let (rows, at): (Vec<usize>, Vec<(usize, usize)>) = ready.into_iter().map(|(row, at)| (row, (0, at))).unzip();
        let logits = on_pool(|| {
            cache.begin(Queries::Ragged(packed.starts));
            let (mut pass, _) = Pass::new(Call::default());
            pass.cached(Stack::Decoder, &mut cache);
            let ids = Tensor::new(&packed.ids[..], model.device())?.unsqueeze(0)?;
            let hidden = model.hidden(&ids, &[packed.positions], &mut pass)?;
            logits_at(&hidden, &at, |states| model.logits(states))
        })?;
        if let Some(logits) = logits {
            loops.choose(&rows, &logits)?;
        }
    }
    Ok(cache.bytes())
}

/// Returns the sizes of the key-value caches for `sequences` prompts, the longest of which has `longest` tokens.
fn stack_shape(model: &Decoder, sequences: usize, longest: usize, options: &GenerateOptions) -> StackShape {
    let DecoderConfig { layers, heads, kv_heads, head_dim, .. } = *model.config();
    let capacity = longest + options.new_tokens.max(1);
    let (ahead, dtype) = (options.prefill_chunk.min(longest), model.dtype());
    StackShape { sequences, layers, heads, kv_heads, head_dim, capacity, ahead, dtype }
}

/// The tokens that the model reads in one step of a generation: the new tokens of all sequences, one sequence after
/// another.
struct Packed {
    ids: Vec<u32>,
    positions: Vec<u32>,
    starts: Vec<usize>,
}

impl Default for Packed {
    fn default() -> Self {
        Packed { ids: Vec::new(), positions: Vec::new(), starts: vec![0] }
    }
}

impl Packed {
    fn push(&mut self, new: &[u32], held: usize) {
        self.ids.extend(new);
        self.positions.extend((held..held + new.len()).map(|position| position as u32));
        self.starts.push(self.ids.len());
    }
}

/// Generates text with a T5, whose encoder reads `prompts`. The decoder of each prompt first reads the tokens in
/// `begins`. Returns the size of the decoder's caches in bytes.
fn t5_loop(model: &T5, prompts: &[Vec<u32>], begins: &[Vec<u32>], loops: &mut Loop<'_>) -> Result<usize> {
    let config = model.config();
    let (rows, heads) = (prompts.len(), config.heads);
    let batch = Batch::padded(prompts, 0, noren::Side::Right)?.facts(loops.options.facts.clone());
    let [of_encoder, of_decoder, of_cross] = &model.declared;
    let square = Shape::square(batch.len()).batch(rows).heads(heads);
    let (encoded, keys) = on_pool(|| {
        let (mut pass, _) = Pass::new(Call::default());
        pass.planned(Stack::Encoder, Planner::new(Stack::Encoder, &of_encoder.mask, &batch, square, None)?);
        let encoded = model.encode(&batch, &mut pass)?;
        let keys = model.cross_keys(&encoded)?;
        Ok((encoded, keys))
    })?;
    let shape = StackShape {
        sequences: rows,
        layers: config.layers[1],
        heads,
        kv_heads: heads,
        head_dim: config.head_dim,
        capacity: begins.iter().map(Vec::len).max().unwrap_or(0) + loops.options.new_tokens,
        ahead: 1,
        dtype: encoded.dtype(),
    };
    let mut cache = StackCache::new(&of_decoder.mask, Facts::new(), &shape)?;
    for step in 0.. {
        if loops.is_done() {
            break;
        }
        // All sequences advance by one token. Those that have read their first tokens read the chosen token.
        let next = |row: usize| begins[row].get(step).or(loops.tokens[row].last()).copied().unwrap_or(config.start);
        let ids = Tensor::from_iter((0..rows).map(next), encoded.device())?.unsqueeze(1)?;
        let ready: Vec<usize> = (0..rows).filter(|row| !loops.done[*row] && step + 1 >= begins[*row].len()).collect();
        let logits = on_pool(|| {
            cache.begin(Queries::Each(1));
            let (mut pass, _) = Pass::new(Call::default());
            pass.cached(Stack::Decoder, &mut cache);
            let across = Shape::cross(1, batch.len()).batch(rows).heads(heads);
            pass.planned(Stack::Cross, Planner::new(Stack::Cross, &of_cross.mask, &batch, across, None)?);
            let hidden = model.decode(&ids, &keys, &mut pass)?;
            let at: Vec<(usize, usize)> = ready.iter().map(|row| (*row, 0)).collect();
            logits_at(&hidden, &at, |states| model.logits(states))
        })?;
        if let Some(logits) = logits {
            loops.choose(&ready, &logits)?;
        }
    }
    Ok(cache.bytes())
}

//! [`Embedder`]: computes one vector for each text, as the configuration of a sentence-transformers folder defines.

use crate::error::{Error, Result};
use crate::model::configs::raw::{Raw, check_file, read_object};
use crate::model::{Batch, Call, Model, Packing};
use candle_core::{DType, Tensor};
use noren::Dtype;
use noren_text::HfTokenizer;
use rayon::prelude::*;
use std::path::Path;

/// The method that computes the vector of a text from the states of its tokens.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pooling {
    /// The mean of the states of all tokens.
    Mean,
    /// The state of the first token.
    First,
    /// The state of the last token.
    Last,
    /// The maximum of each dimension over the states of all tokens.
    Max,
}

/// A model with its tokenizer and its pooling. It computes one vector for each text.
///
/// Texts are packed one after another, without padding. A mask prevents them from reading each other. The vector of a
/// text has the same bits whether the text is packed, padded or alone.
#[derive(Debug)]
pub struct Embedder {
    model: Model,
    dtype: Dtype,
    tokenizer: HfTokenizer,
    pooling: Pooling,
    normalize: bool,
    most_tokens: usize,
}

impl Embedder {
    /// Loads a model as [`load_as`](Self::load_as) does, with weights of type `f32`.
    ///
    /// # Errors
    /// Returns the errors of [`load_as`](Self::load_as).
    pub fn load(folder: impl AsRef<Path>) -> Result<Self> {
        Self::load_as(folder, Dtype::F32)
    }

    /// Loads a model and its `tokenizer.json` from a folder. The file `modules.json`, and the `config.json` of the
    /// pooling module, define the pooling and whether vectors are scaled to length 1. Without `modules.json`, the
    /// vector is the mean of the states of all tokens, scaled to length 1.
    ///
    /// The linear layers are computed with weights of type `dtype`: `f32` or `bf16` ([`noren::linear`]). Embeddings,
    /// norms and attention are computed in `f32`.
    ///
    /// # Errors
    /// Returns the errors of [`Model::load`] and [`Model::pack`], and an error for a tokenizer that is missing or invalid
    /// and for an unknown pooling.
    pub fn load_as(folder: impl AsRef<Path>, dtype: Dtype) -> Result<Self> {
        let folder = folder.as_ref();
        let model = Model::read(folder, DType::F32, Some(Packing { dtype, all: false }))?;
        let (pooling, normalize) = read_modules(folder)?;
        let tokenizer = load_tokenizer(folder)?;
        let most = model.positions().unwrap_or(usize::MAX);
        let sentence = folder.join("sentence_bert_config.json");
        let said = if sentence.exists() { Raw(&read_object(&sentence)?).count_if("max_seq_length")? } else { None };
        Ok(Embedder { most_tokens: said.unwrap_or(most).min(most), model, dtype, tokenizer, pooling, normalize })
    }

    /// Returns the model.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// Returns the number of components of a vector.
    pub fn width(&self) -> usize {
        match &self.model {
            Model::Decoder(model) => model.config().hidden,
            Model::Bert(model) => model.config().hidden,
            Model::ModernBert(model) => model.config().hidden,
            Model::T5(model) => model.config().hidden,
        }
    }

    /// Returns the type of the weights of linear layers.
    pub fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// Returns the settings of this embedder, as (pooling, true if vectors are scaled to length 1, maximum number of
    /// tokens of a text). Longer texts are cut.
    pub fn ways(&self) -> (Pooling, bool, usize) {
        (self.pooling, self.normalize, self.most_tokens)
    }

    /// Returns the token ids of a text, with special tokens before and after the text. A text that is too long is cut
    /// to the maximum number of tokens.
    ///
    /// # Errors
    /// Returns an error for a text without tokens, and the errors of the tokenizer.
    pub fn tokens(&self, text: &str) -> Result<Vec<u32>> {
        Ok(self.encode(text)?.0)
    }

    /// Returns the token ids of [`tokens`](Self::tokens), and the number of tokens that were cut off.
    ///
    /// # Errors
    /// Returns the errors of [`tokens`](Self::tokens).
    pub fn encode(&self, text: &str) -> Result<(Vec<u32>, usize)> {
        let refuse = |problem: String| Error::input("the text", format!("{} bytes", text.len()), problem);
        let encoded = self
            .tokenizer
            .inner()
            .encode_fast(text, true)
            .map_err(|e| refuse(format!("the tokenizer cannot process the text: {e}")))?;
        let mut ids = encoded.get_ids().to_vec();
        let too_many = ids.len().saturating_sub(self.most_tokens);
        if too_many > 0 {
            // A text that was cut ends with the last special tokens too.
            let special = encoded.get_special_tokens_mask().iter().rev().take_while(|special| **special == 1).count();
            let special = special.min(self.most_tokens);
            ids.drain(self.most_tokens - special..ids.len() - special);
        }
        if ids.is_empty() {
            return Err(refuse("the text has no tokens: give a text with at least one token".to_owned()));
        }
        Ok((ids, too_many))
    }

    /// Returns one vector for each text, in the order of `texts`. Each text is given as token ids. In each call, the
    /// model reads one row of packed texts with at most `budget` tokens in total, or one longer text. Several calls run
    /// at the same time.
    ///
    /// # Errors
    /// Returns an error for texts without tokens, tokens outside the vocabulary, texts longer than the model's
    /// positions, and vectors that are not finite.
    pub fn embed(&self, texts: &[Vec<u32>], budget: usize) -> Result<Vec<Vec<f32>>> {
        let mut order: Vec<usize> = (0..texts.len()).collect();
        // Long texts come first, so that no thread is left with a long one at the end.
        order.sort_by_key(|i| std::cmp::Reverse(texts[*i].len()));
        let mut packs: Vec<Vec<usize>> = Vec::new();
        let mut space = 0;
        for i in order {
            if packs.is_empty() || texts[i].len() > space {
                packs.push(Vec::new());
                space = budget.max(texts[i].len());
            }
            space -= texts[i].len();
            packs
                .last_mut()
                .expect("there is at least one pack, because the loop starts a pack for the first text")
                .push(i);
        }
        let vectors = packs.par_iter().map(|pack| {
            let batch = Batch::packed(&pack.iter().map(|i| texts[*i].clone()).collect::<Vec<_>>())?;
            Ok(pack.iter().copied().zip(self.embed_batch(&batch)?).collect::<Vec<_>>())
        });
        let vectors: Vec<Vec<(usize, Vec<f32>)>> = vectors.collect::<Result<_>>()?;
        let mut all = vec![Vec::new(); texts.len()];
        vectors.into_iter().flatten().for_each(|(i, vector)| all[i] = vector);
        Ok(all)
    }

    /// Returns the vector of each text in a batch, whose texts are padded or packed.
    ///
    /// # Errors
    /// Returns an error for tokens outside the vocabulary, texts longer than the model's positions, and vectors that
    /// are not finite.
    pub fn embed_batch(&self, batch: &Batch) -> Result<Vec<Vec<f32>>> {
        let hidden = self.model.encode(batch, Call::default())?;
        self.pool(&hidden, batch)
    }

    fn pool(&self, hidden: &Tensor, batch: &Batch) -> Result<Vec<Vec<f32>>> {
        let width = hidden.dim(2)?;
        let states = hidden.to_dtype(DType::F32)?.flatten_all()?.to_vec1::<f32>()?;
        let state = |(row, i): &(usize, usize)| &states[(row * batch.len() + i) * width..][..width];
        let vector = |text: &Vec<_>| self.vector(&text.iter().map(state).collect::<Vec<_>>(), width);
        let vectors: Vec<Vec<f32>> = batch.texts().iter().map(vector).collect();
        let bad = vectors.iter().flatten().find(|x| !x.is_finite());
        match bad {
            None => Ok(vectors),
            Some(x) => {
                let expected = "finite numbers are needed: the weights are damaged, or too large for the number type of the computation";
                Err(Error::input("a vector component", x, expected))
            }
        }
    }

    /// Pools `states` into one vector. `states` has one state of `width` numbers for each token of a text. For a mean,
    /// the states are added in the order of tokens, so that equal states give a vector with the same bits.
    fn vector(&self, states: &[&[f32]], width: usize) -> Vec<f32> {
        let fold = |first: f32, f: fn(f32, f32) -> f32| {
            let mut all = vec![first; width];
            states.iter().for_each(|state| all.iter_mut().zip(*state).for_each(|(a, x)| *a = f(*a, *x)));
            all
        };
        let one = |state: Option<&&[f32]>| state.map_or_else(|| vec![0.0; width], |state| state.to_vec());
        let mut vector = match self.pooling {
            Pooling::Mean => {
                let mut sum = fold(0.0, |a, x| a + x);
                sum.iter_mut().for_each(|x| *x /= states.len().max(1) as f32);
                sum
            }
            Pooling::Max => fold(f32::NEG_INFINITY, f32::max),
            Pooling::First => one(states.first()),
            Pooling::Last => one(states.last()),
        };
        if self.normalize {
            let length = vector.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>().sqrt().max(1e-12);
            vector.iter_mut().for_each(|x| *x = (f64::from(*x) / length) as f32);
        }
        vector
    }
}

/// Reads `tokenizer.json` from the folder of a model. The padding and truncation in this file are ignored.
///
/// # Errors
/// Returns an error if the file is missing or invalid.
pub fn load_tokenizer(folder: &Path) -> Result<HfTokenizer> {
    let path = folder.join("tokenizer.json");
    if !path.exists() {
        return Err(Error::file(path, "the file does not exist: put the tokenizer of the model into this folder"));
    }
    check_file(&path)?;
    Ok(HfTokenizer::from_file(path)?)
}

/// Returns the pooling that a sentence-transformers folder defines, and whether vectors are scaled to length 1.
fn read_modules(folder: &Path) -> Result<(Pooling, bool)> {
    let path = folder.join("modules.json");
    if !path.exists() {
        return Ok((Pooling::Mean, true));
    }
    check_file(&path)?;
    let text = std::fs::read(&path).map_err(|e| Error::file(&path, format!("the file cannot be read: {e}")))?;
    let modules: Vec<serde_json::Value> = serde_json::from_slice(&text)
        .map_err(|e| Error::file(&path, format!("the file is not a list of modules: {e}")))?;
    let (mut pooling, mut normalize) = (Pooling::Mean, false);
    for module in &modules {
        let of = |key: &str| module.get(key).and_then(|value| value.as_str()).unwrap_or_default();
        match of("type").rsplit('.').next().unwrap_or_default() {
            "Transformer" => {}
            "Normalize" => normalize = true,
            "Pooling" => pooling = read_pooling(&folder.join(of("path")).join("config.json"))?,
            other => {
                let problem = format!(
                    "the module {other:?} is not supported: give a model with only the modules Transformer, Pooling and Normalize"
                );
                return Err(Error::file(path, problem));
            }
        }
    }
    Ok((pooling, normalize))
}

fn read_pooling(path: &Path) -> Result<Pooling> {
    let object = read_object(path)?;
    let known = [
        ("pooling_mode_mean_tokens", Pooling::Mean),
        ("pooling_mode_cls_token", Pooling::First),
        ("pooling_mode_lasttoken", Pooling::Last),
        ("pooling_mode_max_tokens", Pooling::Max),
    ];
    let on: Vec<&String> = object.iter().filter(|(_, on)| on.as_bool() == Some(true)).map(|(key, _)| key).collect();
    let ways: Vec<&String> = on.into_iter().filter(|key| key.starts_with("pooling_mode_")).collect();
    let found = known.iter().find(|(key, _)| ways.iter().any(|way| way == key));
    match (ways.len(), found) {
        (1, Some((_, pooling))) => Ok(*pooling),
        _ => Err(Error::file(
            path,
            format!(
                "the file selects the pooling modes {ways:?}: select exactly one, which can be mean, cls, lasttoken or max"
            ),
        )),
    }
}

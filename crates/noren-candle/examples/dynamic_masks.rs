//! Examples of masks that are made while a model runs: hiding given tokens, separating the vocabularies of domains,
//! applying clearance levels, and selecting keys by estimated scores.
//!
//! The first three examples run a small model with random weights, whose tokens are words. They draw the cells that the
//! first layer may read, and print the words whose outputs change if one word gets another embedding. The fourth
//! example applies the model that is built into the command `noren` to a page of text. Each block of 16 queries reads
//! only some of the blocks of 16 keys. For several numbers of key blocks, the example prints the fraction of allowed
//! cells and the fraction of unchanged predictions.
//!
//!     cargo run --release -p noren-candle --example dynamic_masks

use candle_core::{DType, Device};
use candle_nn::{VarBuilder, VarMap};
use noren_candle::Result;
use noren_candle::dynamic::{ByToken, DomainVocabulary, MaskGenerator, Sensitivity, TopBlocks};
use noren_candle::model::{Batch, Call, Config, DecoderConfig, Model, Trace};
use noren_picture::Draw;
use noren_picture::TerminalOptions;
use noren_text::{ByteTokenizer, Tokenizer};
use std::collections::BTreeMap;
use std::path::Path;

const NOTE: [&str; 14] = [
    "the", "patient", "paid", "her", "invoice", "after", "surgery", "and", "the", "dose", "of", "morphine", "was",
    "halved",
];
const PAGE: &str = "It is a truth universally acknowledged, that a single man in possession of a good fortune, must be in want \
    of a wife. However little known the feelings or views of such a man may be on his first entering a neighbourhood, this \
    truth is so well fixed in the minds of the surrounding families, that he is considered as the rightful property of some one \
    or other of their daughters.";

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let id = |word: &str| NOTE.iter().position(|known| *known == word).unwrap_or_default() as u32;
    let ids: Vec<u32> = NOTE.iter().map(|word| id(word)).collect();
    let words = Words { model: random_model()?, ids };

    println!("1. By token: no other token reads `patient` and `her`\n");
    words.show(&ByToken { hidden: [id("patient"), id("her")].into() }, "patient")?;

    println!(
        "2. By domain vocabulary: words of medicine and of money read words of their own domain and common words\n"
    );
    let domain = |words: &[&str]| words.iter().map(|word| id(word)).collect();
    let domains = BTreeMap::from([
        ("medicine".to_string(), domain(&["patient", "surgery", "dose", "morphine", "halved"])),
        ("money".to_string(), domain(&["paid", "invoice"])),
    ]);
    words.show(&DomainVocabulary { domains }, "invoice")?;

    println!("3. By clearance: `morphine` is of level 2, `surgery` of level 1, the reader may see level 1\n");
    let levels = [(id("surgery"), 1), (id("morphine"), 2)].into();
    words.show(&Sensitivity { levels, clearance: 1 }, "morphine")?;

    println!("4. By score: each block of 16 queries reads the key blocks with the largest upper bounds of scores\n");
    top_blocks()?;
    Ok(())
}

/// A model whose vocabulary is the words of a note, and the words of the note as token ids.
struct Words {
    model: Model,
    ids: Vec<u32>,
}

impl Words {
    /// Draws the cells that the first layer allows with the masks of `generator`, and prints the words whose outputs
    /// change if `word` gets another embedding.
    fn show(&self, generator: &dyn MaskGenerator, word: &str) -> std::result::Result<(), Box<dyn std::error::Error>> {
        let mut trace = Trace::layers([0]);
        let own = self.run(&self.ids, generator, Some(&mut trace))?;
        let picture =
            trace.records()[0].plan.bound().picture().head(0).labels(NOTE).to_terminal(&TerminalOptions::default())?;
        println!("{picture}");

        let at = NOTE.iter().position(|known| *known == word).unwrap_or_default();
        // The mask depends on the token, so its embedding is changed and not the token.
        let other = Words { model: self.with_another(self.ids[at])?, ids: self.ids.clone() };
        let other = other.run(&self.ids, generator, None)?;
        let changed: Vec<&str> = (0..NOTE.len()).filter(|i| own[*i] != other[*i]).map(|i| NOTE[i]).collect();
        println!(
            "if the embedding of `{word}` is replaced, the outputs at these words change: {}\n",
            changed.join(", ")
        );
        Ok(())
    }

    fn run(&self, ids: &[u32], generator: &dyn MaskGenerator, trace: Option<&mut Trace>) -> Result<Vec<Vec<f32>>> {
        let call = Call { generator: Some(generator), trace, ..Call::default() };
        Ok(self
            .model
            .forward_with(&Batch::new(vec![ids.to_vec()])?, None, call)?
            .last_hidden_state
            .get(0)?
            .to_vec2()?)
    }

    /// Returns a copy of the model in which the token `token` has another embedding.
    fn with_another(&self, token: u32) -> Result<Model> {
        let vars = weights()?;
        if let Some(table) =
            vars.data().lock().unwrap_or_else(std::sync::PoisonError::into_inner).get("model.embed_tokens.weight")
        {
            let row = (table.as_tensor().narrow(0, token as usize, 1)? * -1.0)?;
            table.set(&table.as_tensor().slice_scatter(&row, 0, token as usize)?)?;
        }
        model_of(&vars)
    }
}

fn config() -> Config {
    Config::Decoder(DecoderConfig::llama(NOTE.len(), 32, 2, 2, 64))
}

/// Returns random weights, which are the same in every call.
fn weights() -> Result<VarMap> {
    static FIRST: std::sync::OnceLock<VarMap> = std::sync::OnceLock::new();
    let first = FIRST.get_or_init(VarMap::new);
    model_of(first)?;
    let copy = VarMap::new();
    for (name, var) in first.data().lock().unwrap_or_else(std::sync::PoisonError::into_inner).iter() {
        let mut copies = copy.data().lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        copies.insert(name.clone(), candle_core::Var::from_tensor(&var.as_tensor().copy()?)?);
    }
    Ok(copy)
}

fn model_of(vars: &VarMap) -> Result<Model> {
    Model::new(&config(), &VarBuilder::from_varmap(vars, DType::F32, &Device::Cpu))
}

fn random_model() -> Result<Model> {
    model_of(&weights()?)
}

/// Runs a model in which each block of queries reads only some blocks of keys. For several numbers of key blocks,
/// prints the fraction of allowed cells, and the fraction of bytes for which the model predicts the same next byte as
/// with all keys.
fn top_blocks() -> std::result::Result<(), Box<dyn std::error::Error>> {
    const BLOCK: usize = 16;
    let model = Model::load(Path::new(env!("CARGO_MANIFEST_DIR")).join("../noren-cli/assets/model"))?;
    let batch = Batch::new(vec![ByteTokenizer.encode(PAGE)?.ids])?;
    let blocks = batch.len().div_ceil(BLOCK);
    let run = |generator: Option<&dyn MaskGenerator>| -> Result<(Vec<u32>, u128)> {
        let mut trace = Trace::all();
        let call = Call { generator, trace: Some(&mut trace), ..Call::default() };
        let logits = model.forward_with(&batch, None, call)?.logits;
        let logits = logits.map(|logits| logits.get(0)?.argmax(1)?.to_vec1()).transpose()?.unwrap_or_default();
        Ok((logits, trace.records().iter().map(|record| record.plan.stats().allowed).sum()))
    };
    let (all, cells) = run(None)?;
    println!("{} bytes of text, {blocks} blocks; the model's own causal mask allows {cells} cells\n", batch.len());
    println!("blocks   cells   positions at which the predicted next byte is the same as with all keys");
    for count in [1, 2, 4, 8, blocks] {
        let (some, allowed) = run(Some(&TopBlocks { block: BLOCK, count }))?;
        let same = all.iter().zip(&some).filter(|(a, b)| a == b).count();
        let [cells, same] =
            [(allowed, cells), (same as u128, all.len() as u128)].map(|(n, of)| 100.0 * n as f64 / of as f64);
        println!("{count:>6} {cells:>5.0} %   {same:>5.1} %  {}", "█".repeat((same / 4.0) as usize));
    }
    Ok(())
}

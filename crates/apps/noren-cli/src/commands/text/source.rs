//! [`Source`]: a model with its tokenizer, from a folder, from the hub, or embedded in the program.

use crate::commands::model::{failure_with_hint, hub};
use crate::failure::{Failure, Result};
use crate::output::with_note;
use noren::Dtype;
use noren_models::candle_core::{DType, Device};
use noren_models::candle_nn::VarBuilder;
use noren_models::embed::load_tokenizer;
use noren_models::model::{Config, Model};
use noren_text::{ByteTokenizer, HfTokenizer, Tokenizer};
use std::path::Path;

/// The weights of the embedded model, as 16-bit floats; docs/model-card.md describes their training.
const WEIGHTS: &[u8] = include_bytes!("../../../assets/model/model.safetensors");
const CONFIG: &str = include_str!("../../../assets/model/config.json");

/// A model and its tokenizer.
pub(crate) struct Source {
    /// The name of the model.
    pub(crate) name: String,
    pub(crate) model: Model,
    pub(crate) tokenizer: Box<dyn Tokenizer>,
}

/// Loads a model. `given` is a folder or a name on the Hugging Face hub; `None` selects the embedded model. The weights of
/// linear layers are packed in `f32`, as in `noren generate` and `noren embed` by default: what is shown about a model then
/// holds for the results of those commands.
pub(crate) fn load(given: Option<&Path>) -> Result<Source> {
    let Some(given) = given else { return embedded() };
    let folder = &hub::folder(given, &["tokenizer.json"])?;
    let hint =
        "--model takes a folder with config.json, model.safetensors and tokenizer.json, as save_pretrained writes them";
    let model = with_note("loading the model ...", || Model::load_packed(folder, Dtype::F32));
    let model = model.map_err(|error| failure_with_hint(error, hint))?;
    let tokenizer = load_tokenizer(folder);
    let tokenizer = tokenizer.map_err(|error| failure_with_hint(error, hint))?;
    if tokenizer.vocab_size() > model.vocab() {
        let (tokens, known) = (tokenizer.vocab_size(), model.vocab());
        let problem = format!("tokenizer.json has {tokens} tokens, the vocabulary of the model has {known}");
        return Err(
            Failure::new(format!("{}: {problem}", folder.display())).hint("take both files from the same model")
        );
    }
    Ok(Source { name: given.display().to_string(), model, tokenizer: Box::new(tokenizer) })
}

fn embedded() -> Result<Source> {
    let damaged = |problem: String| Failure::new(format!("the embedded model is damaged: {problem}"));
    let config = serde_json::from_str(CONFIG).map_err(|e| damaged(e.to_string()))?;
    let weights = VarBuilder::from_slice_safetensors(WEIGHTS, DType::F32, &Device::Cpu);
    let weights = weights.map_err(|e| damaged(e.to_string()))?;
    let mut model = Model::new(&Config::read(&config)?, &weights)?;
    model.pack(Dtype::F32)?;
    // This tokenizer has the tokens of `ByteTokenizer`, and also recognises `<mask>` in a text.
    let tokenizer = Box::new(HfTokenizer::from_bytes(ByteTokenizer.to_json().as_bytes())?);
    Ok(Source { name: "the small model in this program".into(), model, tokenizer })
}

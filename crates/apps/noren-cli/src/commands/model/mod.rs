//! The commands `embed`, `generate` and `inspect`, and functions that load models.

pub(crate) mod embed;
pub(crate) mod generate;
pub(crate) mod hub;
pub(crate) mod inspect;
mod part;
pub(crate) mod tokens;
mod vectors;

use crate::args::choice;
use crate::failure::{Failure, Result};
use clap::builder::TypedValueParser;
use noren::Dtype;
use noren_mask::text::first_line;
use noren_models::model::Model;
use noren_text::{Role, Tokenizer};
use std::path::Path;

impl From<noren_models::Error> for Failure {
    fn from(error: noren_models::Error) -> Self {
        match error {
            noren_models::Error::Attention(noren_models::noren_candle::Error::Noren(error)) => error.into(),
            // Errors of the tensor library can contain a backtrace; only the first line is shown.
            other => Failure::new(first_line(&other.to_string())),
        }
    }
}

/// Returns the parser of the type of the packed weights of a model's linear layers.
fn weight_type() -> impl TypedValueParser<Value = Dtype> {
    choice([("f32", Dtype::F32), ("bf16", Dtype::Bf16)])
}

/// Returns the tokens that end a generated text: the end tokens of the configuration and the end token of the
/// tokenizer.
pub(crate) fn ends(model: &Model, tokenizer: &dyn Tokenizer) -> Vec<u32> {
    let config = model.config();
    config.stop().iter().copied().chain(tokenizer.special(Role::End)).collect()
}

/// Returns the failure for an error in the folder of a model. If a file is missing, it has the hint `hint`, which names the
/// expected files.
pub(crate) fn failure_with_hint(error: noren_models::Error, hint: &str) -> Failure {
    let missing = matches!(&error, noren_models::Error::File { path, .. } if !path.exists());
    let failure = Failure::from(error);
    if missing { failure.hint(hint) } else { failure }
}

/// Loads a model and packs the weights of its linear layers. `given` is a folder or a name on the Hugging Face hub.
pub(crate) fn load_packed(given: &Path, dtype: Dtype) -> Result<Model> {
    let hint = "--model takes a folder with config.json and model.safetensors, as save_pretrained writes them";
    Model::load_packed(hub::folder(given, &[])?, dtype).map_err(|error| failure_with_hint(error, hint))
}

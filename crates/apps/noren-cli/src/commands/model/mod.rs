//! The commands `embed`, `generate` and `inspect`, and functions that load models.

pub(crate) mod embed;
pub(crate) mod generate;
pub(crate) mod hub;
pub(crate) mod inspect;
mod part;
pub(crate) mod tokens;
mod vectors;

use crate::failure::{Failure, Result};
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

/// The type of the packed weights of a model's linear layers.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub(crate) enum WeightType {
    F32,
    Bf16,
}

impl From<WeightType> for Dtype {
    fn from(given: WeightType) -> Self {
        match given {
            WeightType::F32 => Dtype::F32,
            WeightType::Bf16 => Dtype::Bf16,
        }
    }
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
pub(crate) fn load_packed(given: &Path, dtype: WeightType) -> Result<Model> {
    let hint = "--model takes a folder with config.json and model.safetensors, as save_pretrained writes them";
    Model::load_packed(hub::folder(given, &[])?, dtype.into()).map_err(|error| failure_with_hint(error, hint))
}

//! Commands that run a model, besides `run`: `embed`, `generate`, `inspect`, `audit`; and where models come from.

pub(crate) mod audit;
pub(crate) mod embed;
pub(crate) mod generate;
pub(crate) mod hub;
pub(crate) mod inspect;
mod part;
pub(crate) mod tokens;
mod vectors;

use crate::failure::{Failure, Result};
use noren_candle::model::Model;
use noren_mask::text::first_line;
use noren_text::{Role, Tokenizer};
use std::path::Path;

impl From<noren_candle::Error> for Failure {
    fn from(error: noren_candle::Error) -> Self {
        match error {
            noren_candle::Error::Noren(error) => error.into(),
            // errors of the tensor library may carry a backtrace
            other => Failure::new(first_line(&other.to_string())),
        }
    }
}

/// The tokens that end a text: those of the configuration, and what the tokenizer calls its end.
pub(crate) fn ends(model: &Model, tokenizer: &dyn Tokenizer) -> Vec<u32> {
    let config = model.config();
    config.stop().iter().copied().chain(tokenizer.special(Role::End)).collect()
}

/// Loads a model from a folder, or by its name on the hub, and tells how to mend what is wrong with it.
pub(crate) fn load(given: &Path) -> Result<Model> {
    let hint = "--model takes a folder with config.json and model.safetensors, as save_pretrained writes them";
    Model::load(hub::folder(given, &[])?).map_err(|error| Failure::from(error).hint(hint))
}

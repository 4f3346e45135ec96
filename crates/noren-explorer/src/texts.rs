//! [`Texts`]: the model of the text view, which the program brings along.

use noren_input::Error;
use serde_json::Value;

/// Runs texts through a model. The program that starts the worker implements it, so that the explorer needs no model itself.
pub trait Texts {
    /// Describes the model: its name, kind, layers, heads, positions and mask, an example and the kinds of private text.
    ///
    /// # Errors
    /// Returns an error when the model cannot be loaded.
    fn model(&mut self) -> Result<Value, Error>;

    /// Runs a text.
    ///
    /// # Errors
    /// Returns an error when the model cannot be loaded or the request names a layer, a head or a kind that does not exist.
    fn run(&mut self, request: &TextRequest) -> Result<TextAnswer, Error>;
}

/// A text and its settings.
#[derive(Clone, Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct TextRequest {
    /// The text; not empty.
    pub text: String,
    /// The mask in place of the model's own.
    #[serde(default)]
    pub mask: Option<String>,
    /// Kinds of private text to hide.
    #[serde(default)]
    pub hide: Vec<String>,
    /// Words to hide.
    #[serde(default)]
    pub words: Vec<String>,
    /// The layer whose attention is shown.
    #[serde(default)]
    pub layer: Option<usize>,
    /// The head whose attention is shown.
    #[serde(default)]
    pub head: usize,
}

/// The result of a text.
#[derive(Clone, Debug)]
pub struct TextAnswer {
    /// The answer as JSON, without the identity of its mask.
    pub value: Value,
    /// The mask of the layer that is shown, as `POST /api/masks` takes it.
    pub scene: Value,
}

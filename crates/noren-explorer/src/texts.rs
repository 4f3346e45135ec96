//! [`Texts`]: the model of the text view, which the program provides.

use noren_input::Error;
use serde_json::Value;

/// A model that runs texts. The program that starts the worker implements this trait, so that the explorer does not
/// depend on a model.
pub trait Texts {
    /// Returns the description of the model: its name, kind, layers, heads, positions and mask, an example and the
    /// kinds of private text.
    ///
    /// # Errors
    /// Returns an error if the model cannot be loaded.
    fn model(&mut self) -> Result<Value, Error>;

    /// Runs a text through the model.
    ///
    /// # Errors
    /// Returns an error if the model cannot be loaded or the request names a layer, a head or a kind that does not
    /// exist.
    fn run(&mut self, request: &TextRequest) -> Result<TextAnswer, Error>;
}

/// A text and its settings.
#[derive(Clone, Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct TextRequest {
    /// The text, which must not be empty.
    pub text: String,
    /// The mask that replaces the model's own; `None` for the model's own.
    #[serde(default)]
    pub mask: Option<String>,
    /// The kinds of private text to hide.
    #[serde(default)]
    pub hide: Vec<String>,
    /// The words to hide.
    #[serde(default)]
    pub words: Vec<String>,
    /// The layer whose attention is shown; `None` for the model's choice.
    #[serde(default)]
    pub layer: Option<usize>,
    /// The head whose attention is shown [default: 0].
    #[serde(default)]
    pub head: usize,
}

/// The result of a text.
#[derive(Clone, Debug)]
pub struct TextAnswer {
    /// The answer as JSON. The explorer adds the identity of the mask.
    pub value: Value,
    /// The mask of the shown layer, in the form of a body of `POST /api/masks`.
    pub scene: Value,
}

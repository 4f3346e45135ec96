//! [`Texts`]: the interface to the model of the text view, which the program provides.

use noren_input::Error;
use serde_json::Value;

/// A model that reads texts for the text view. The program that calls `worker` implements this trait, so that the
/// explorer does not depend on a model.
pub trait Texts {
    /// Returns the description of the model as JSON: its name, kind, mask, number of layers, number of heads and maximum
    /// number of positions, an example text, and the kinds of private text that the page can hide.
    ///
    /// # Errors
    /// Returns an error if the model cannot be loaded.
    fn model(&mut self) -> Result<Value, Error>;

    /// Runs a text through the model.
    ///
    /// # Errors
    /// Returns an error if the model cannot be loaded or the request names a layer, a head or a kind of private text
    /// that does not exist.
    fn run(&mut self, request: &TextRequest) -> Result<TextAnswer, Error>;
}

/// A request of the text view: a text, the words and private text to hide in it, a mask, and the layer and head whose
/// attention is shown.
#[derive(Clone, Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct TextRequest {
    /// The text, which must not be empty.
    pub text: String,
    /// The expression of a mask that replaces the model's own mask; `None` keeps the model's own mask.
    #[serde(default)]
    pub mask: Option<String>,
    /// The kinds of private text that are hidden from all tokens.
    #[serde(default)]
    pub hide: Vec<String>,
    /// The words that are hidden from all tokens.
    #[serde(default)]
    pub words: Vec<String>,
    /// The layer whose attention is shown; `None` selects the model's default layer.
    #[serde(default)]
    pub layer: Option<usize>,
    /// The head whose attention is shown [default: 0].
    #[serde(default)]
    pub head: usize,
}

/// The result of running a text through a model.
#[derive(Clone, Debug)]
pub struct TextAnswer {
    /// The answer as a JSON object. The explorer adds the identity of the mask in `scene` to this object.
    pub value: Value,
    /// The mask of the layer that is shown, in the format of a request body for `POST /api/masks`.
    pub scene: Value,
}

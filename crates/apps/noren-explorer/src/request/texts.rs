//! [`Texts`]: the interface to the model of the text view, which the program provides.

use noren_input::Error;
use serde_json::Value;

/// A model that reads texts for the text view. The program that calls `worker` implements this trait, so that the
/// explorer does not depend on a model.
pub trait Texts {
    /// Returns a JSON object that describes the model. It has the model's name, kind, mask, number of layers, number of
    /// heads and maximum number of positions. It also has an example text, and the kinds of private text that the page
    /// can hide.
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

    /// Returns a certificate, as JSON for `noren verify`, that no hidden token of the text influences another token
    /// through the masks of all layers. The certificate has no part of the text.
    ///
    /// # Errors
    /// Returns an error if nothing is hidden in the text, or if `run` returns an error for the same request.
    fn certificate(&mut self, request: &TextRequest) -> Result<String, Error>;
}

/// A request of the text view: a text, the words and the kinds of private text to hide in the text, a mask, and a layer
/// and a head. The view shows the attention of this layer and head.
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

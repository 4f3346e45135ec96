//! [`View`]: the text view of the explorer: runs a model over a text and returns the result as JSON.

use super::{EXAMPLE, Job, Outline, Ran, Source, Unit, detectors, load};
use crate::failure::{Failure, Result};
use noren_explorer::{TextAnswer, TextRequest, Texts};
use noren_input::Error;
use noren_models::model::Model;
use noren_text::BUILT_IN;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Maximum number of tokens of a text for which the result contains the attention between tokens.
const MOST_TOKENS: usize = 256;
/// Number of tokens that a decoder generates after the text.
const NEW_TOKENS: usize = 24;

/// The text view of the explorer, which runs a model over texts. The model is loaded at the first request.
pub(crate) struct View {
    folder: Option<PathBuf>,
    source: Option<Source>,
}

impl View {
    /// Creates a view. `folder` is the folder of the model; `None` selects the small model in this program.
    pub(crate) fn new(folder: Option<PathBuf>) -> Self {
        View { folder, source: None }
    }

    fn source(&mut self) -> Result<&Source> {
        if self.source.is_none() {
            self.source = Some(load(self.folder.as_deref())?);
        }
        self.source.as_ref().ok_or_else(|| Failure::new("the model is not loaded"))
    }
}

/// Converts an error of a command to the error type of the explorer.
fn error(failure: Failure) -> Error {
    match failure {
        Failure::Input(error) => error,
        Failure::Output(error) => Error::new(error.to_string()),
    }
}

impl Texts for View {
    fn model(&mut self) -> std::result::Result<Value, Error> {
        let source = self.source().map_err(error)?;
        let declared = &source.model.masks()[0];
        let kind = match &source.model {
            Model::Decoder(_) => "decoder",
            Model::T5(_) => "encoder-decoder",
            _ => "encoder",
        };
        Ok(json!({
            "name": source.name,
            "kind": kind,
            "layers": declared.layers,
            "heads": declared.heads[0],
            "positions": source.model.positions(),
            "mask": declared.spec.mask.to_string(),
            "example": EXAMPLE,
            "kinds": BUILT_IN,
        }))
    }

    fn run(&mut self, request: &TextRequest) -> std::result::Result<TextAnswer, Error> {
        self.source().and_then(|source| run(source, request)).map_err(error)
    }

    fn certificate(&mut self, request: &TextRequest) -> std::result::Result<String, Error> {
        self.source().and_then(|source| with_job(source, request, |job| job.certificate())).map_err(error)
    }
}

/// Creates the settings of a model run from `request`, and returns the result of `act` for these settings.
fn with_job<T>(source: &Source, request: &TextRequest, act: impl FnOnce(&Job<'_>) -> Result<T>) -> Result<T> {
    let (hide, known) = detectors(&request.hide.join(","), &request.words)?;
    act(&Job {
        source,
        text: &request.text,
        mask: request.mask.as_deref(),
        hide: &hide,
        known: &known,
        layer: request.layer,
        head: request.head,
        new_tokens: NEW_TOKENS,
    })
}

fn run(source: &Source, request: &TextRequest) -> Result<TextAnswer> {
    with_job(source, request, |job| {
        let ran = job.run()?;
        let no_json = |e: serde_json::Error| Failure::new(format!("the result cannot be written as JSON: {e}"));
        let value = outline(&ran).map_err(no_json)?;
        let scene = scene(&ran).map_err(no_json)?;
        Ok(TextAnswer { value, scene })
    })
}

/// Returns the mask of the shown layer as JSON, with its shape and its facts (data that the mask needs, such as
/// labels).
fn scene(ran: &Ran<'_>) -> serde_json::Result<Value> {
    let shape = ran.bound.shape();
    Ok(json!({
        "mask": ran.bound.mask().to_string(),
        "shape": { "len": shape.kv_len(), "heads": shape.head_count() },
        "facts": serde_json::to_value(ran.bound.facts())?,
    }))
}

fn outline(ran: &Ran<'_>) -> serde_json::Result<Value> {
    let mut value = serde_json::to_value(Outline::new(ran))?;
    let kinds: BTreeMap<usize, &str> =
        ran.private.kinds().flat_map(|(kind, at)| at.into_iter().map(move |token| (token, kind.as_str()))).collect();
    let hidden = ran.hidden.positions();
    let unit = |unit: &Unit| {
        let own = ran.ranges[unit.tokens.start].start..ran.ranges[unit.tokens.end - 1].end;
        // The label of private text is its kind; the page shows the text itself, struck out.
        let own = if unit.private { ran.text[own].trim() } else { "" };
        let text = if own.is_empty() { &unit.label } else { own };
        json!({
            "text": text,
            "tokens": [unit.tokens.start, unit.tokens.end],
            "private": unit.tokens.clone().find_map(|token| kinds.get(&token)),
            "hidden": unit.tokens.clone().any(|token| hidden.contains(&token)),
        })
    };
    value["units"] = ran.units.iter().map(unit).collect::<Vec<_>>().into();
    value["attention_tokens"] = match ran.names.len() <= MOST_TOKENS {
        true => json!(ran.weights),
        false => Value::Null,
    };
    value["numbers"] = serde_json::to_value(&ran.numbers)?;
    value["attention"] = json!(ran.attention);
    value["allowed"] = json!(ran.allowed);
    value["state"] = Value::Null;
    Ok(value)
}

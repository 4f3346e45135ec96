//! The text view: a text the whole way through a model.

use crate::serve::problem::{Problem, Result};
use crate::serve::wire::Frame;
use crate::serve::worker::{Answer, Answered, Desk, JSON, json};
use crate::text::{EXAMPLE, Job, Ran, Source, Unit, detectors};
use noren_candle::model::Model;
use noren_mask::Facts;
use noren_text::BUILT_IN;
use serde::Deserialize;
use serde_json::{Value, json as object};
use std::collections::BTreeMap;

/// Bytes of a text.
const MOST_BYTES: usize = 64 << 10;
/// Tokens up to which the attention between tokens is sent.
const MOST_TOKENS: usize = 256;
/// Tokens that a decoder goes on by.
const NEW_TOKENS: usize = 24;

/// A text and what is asked of it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Asked {
    text: String,
    #[serde(default)]
    mask: Option<String>,
    #[serde(default)]
    hide: Vec<String>,
    #[serde(default)]
    words: Vec<String>,
    #[serde(default)]
    layer: Option<usize>,
    #[serde(default)]
    head: usize,
}

/// Which model there is.
pub(super) fn model(desk: &mut Desk) -> Answer {
    let source = desk.source()?;
    let declared = &source.model.masks()[0];
    let kind = match &source.model {
        Model::Decoder(_) => "decoder",
        Model::T5(_) => "encoder-decoder",
        _ => "encoder",
    };
    json(&object!({
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

/// What comes of a text.
pub(super) fn text(desk: &mut Desk, body: &[u8]) -> Answer {
    let asked: Asked = serde_json::from_slice(body)?;
    if asked.text.trim().is_empty() {
        return Err(Problem::new("the text is empty").into());
    }
    if asked.text.len() > MOST_BYTES {
        let message = format!("the text has {} bytes: at most {MOST_BYTES} are shown", asked.text.len());
        return Err(Problem::new(message).into());
    }
    let source = desk.source()?;
    let (value, definition) = run(source, &asked)?;
    Ok(Frame { head: Answered::of(JSON), blobs: vec![serde_json::to_vec(&value)?, definition] })
}

fn run(source: &Source, asked: &Asked) -> Result<(Value, Vec<u8>)> {
    let (hide, known) = detectors(&asked.hide.join(","), &asked.words)?;
    let mask = asked.mask.as_deref().filter(|mask| !mask.trim().is_empty());
    if let Some(mask) = mask {
        crate::serve::scene::parse(mask, None)?;
    }
    let job = Job {
        source,
        text: &asked.text,
        mask,
        hide: &hide,
        known: &known,
        layer: asked.layer,
        head: asked.head,
        new_tokens: NEW_TOKENS,
    };
    let ran = job.run()?;
    let definition = definition(&ran)?;
    let mut value = outline(&ran)?;
    value["id"] = crate::serve::identity(&definition).into();
    Ok((value, definition))
}

/// The mask of the layer that is shown as a scene of its own.
fn definition(ran: &Ran<'_>) -> Result<Vec<u8>> {
    let facts: &Facts = ran.bound.facts();
    let shape = ran.bound.shape();
    let scene = object!({
        "mask": ran.bound.mask().to_string(),
        "shape": { "len": shape.kv_len(), "heads": shape.head_count() },
        "facts": serde_json::to_value(facts)?,
    });
    Ok(serde_json::to_vec(&scene)?)
}

fn outline(ran: &Ran<'_>) -> Result<Value> {
    let mut value = serde_json::to_value(crate::text::Outline::new(ran))?;
    let kinds: BTreeMap<usize, &str> =
        ran.private.kinds().flat_map(|(kind, at)| at.into_iter().map(move |token| (token, kind.as_str()))).collect();
    let hidden = ran.hidden.positions();
    let unit = |unit: &Unit| {
        let own = ran.ranges[unit.tokens.start].start..ran.ranges[unit.tokens.end - 1].end;
        // A private piece is labelled with its kind; here the page shows it struck out.
        let own = if unit.private { ran.text[own].trim() } else { "" };
        let text = if own.is_empty() { &unit.label } else { own };
        object!({
            "text": text,
            "tokens": [unit.tokens.start, unit.tokens.end],
            "private": unit.tokens.clone().find_map(|token| kinds.get(&token)),
            "hidden": unit.tokens.clone().any(|token| hidden.contains(&token)),
        })
    };
    value["units"] = ran.units.iter().map(unit).collect::<Vec<_>>().into();
    value["attention_tokens"] = match ran.names.len() <= MOST_TOKENS {
        true => object!(ran.weights),
        false => Value::Null,
    };
    value["attention"] = object!(ran.attention);
    value["allowed"] = object!(ran.allowed);
    value["state"] = Value::Null;
    Ok(value)
}

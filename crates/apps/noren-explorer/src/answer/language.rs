//! The answers for the editor: the documentation of the mask language, with a small picture of each elementary mask
//! (atom), and masks of real models.

use crate::request::message::JSON;
use crate::request::state::{Answer, json};
use crate::request::wire::Frame;
use noren_code::Target;
use noren_mask::language::{self, Word};
use noren_mask::{Array, Facts, Mask, Shape};
use noren_picture::Draw;
use serde_json::{Value, json as object};

/// Masks of real models as JSON, with the parameters of their configurations.
pub(crate) const PRESETS: &str = include_str!("../presets.json");

/// The number of tokens in the small picture that documents an elementary mask (atom).
const SMALL: usize = 16;

/// Returns the elementary masks (atoms), the score modifiers and the operators of the mask language with their
/// meanings, as JSON.
pub(crate) fn language() -> Answer {
    let entry = |word: &Word| {
        let mut value = object!(word);
        value["picture"] = thumbnail(small(word)).map_or(Value::Null, Value::String);
        value
    };
    json(&object!({
        "atoms": language::atoms().iter().map(entry).collect::<Vec<_>>(),
        "scores": language::scores(),
        "targets": Target::ALL.map(|target| object!({ "name": target.name(), "title": target.title() })),
        "operators": [
            { "sign": "&", "says": "both" },
            { "sign": "|", "says": "either" },
            { "sign": "!", "says": "not" },
            { "sign": "-", "says": "but not" },
        ],
    }))
}

/// Returns the expression for the small picture that documents `word`, a name of the mask language. For example,
/// returns `sliding(4)` for `sliding`, because a larger window would not be visible with few tokens.
fn small(word: &Word) -> &'static str {
    match word.name {
        "sliding" => "sliding(4)",
        "chunk" => "chunk(5)",
        "stride" => "stride(3)",
        "prefix" => "prefix(6)",
        "random_blocks" => "random_blocks(4, 2, 42)",
        _ => word.example,
    }
}

/// Returns a small picture of the expression `example` as SVG. The mask is bound to fixed facts (example
/// lengths, documents, levels, a label and an array), which suit most atoms; returns `None` if the expression needs
/// other facts.
fn thumbnail(example: &str) -> Option<String> {
    let mask: Mask = example.parse().ok()?;
    let cells: Vec<bool> = (0..SMALL * SMALL).map(|i| (i / SMALL + i % SMALL * 3) % 5 < 2).collect();
    let facts = Facts::new()
        .lengths([11])
        .documents([5, 7, 4])
        .levels((0..SMALL as i64).map(|i| i % 4).collect::<Vec<_>>())
        .label("name", [3, 4, 5])
        .array("name", Array::keep(&[SMALL, SMALL], &cells).ok()?);
    [SMALL, 72, 64].into_iter().find_map(|len| {
        let bound = mask.bind(&Shape::square(len), &facts).ok()?;
        bound.picture().batch(0).head(0).title(" ").to_svg().ok()
    })
}

/// Returns the masks of real models as JSON. The page offers them as examples.
pub(crate) fn presets() -> Answer {
    Ok(Frame::of(JSON, PRESETS.as_bytes().to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::scene::Known;

    #[test]
    fn every_preset_is_a_mask() {
        let presets: Vec<Value> = serde_json::from_str(PRESETS).expect("JSON");
        assert!(presets.len() >= 13, "{}", presets.len());
        for preset in presets {
            for key in ["name", "family", "says", "source"] {
                assert!(preset[key].as_str().is_some_and(|text| !text.is_empty()), "{key} of {preset}");
            }
            if let Err(problem) = Known::of_definition(preset["scene"].to_string().as_bytes()) {
                panic!("{}: {}", preset["name"], problem.message);
            }
        }
    }

    /// Returns the scene of a preset with 4,096 tokens.
    fn at_4096_tokens(mut scene: Value) -> Value {
        const LEN: u64 = 4096;
        let mask = scene["mask"].as_str().expect("a mask").replace("grid=[24, 24]", "grid=[64, 64]");
        scene["mask"] = mask.into();
        let new = scene["shape"]["new"].as_u64();
        for key in ["len", "q", "kv"] {
            if scene["shape"][key].is_u64() {
                scene["shape"][key] = LEN.into();
            }
        }
        if let Some(new) = new {
            scene["shape"]["past"] = (LEN - new).into();
        }
        let Some(facts) = scene.get_mut("facts") else { return scene };
        if let Some(documents) = facts.get_mut("documents").and_then(Value::as_array_mut) {
            let sum: u64 = documents.iter().filter_map(Value::as_u64).sum();
            documents.push((LEN - sum).into());
        }
        if let Some(levels) = facts.get_mut("levels").and_then(Value::as_array_mut) {
            *levels = levels.iter().cycle().take(LEN as usize).cloned().collect();
        }
        scene
    }

    #[test]
    fn every_preset_fits_in_a_web_page_of_300_000_bytes() {
        let presets: Vec<Value> = serde_json::from_str(PRESETS).expect("JSON");
        for preset in presets {
            let scene = preset["scene"].clone();
            for scene in [at_4096_tokens(scene.clone()), scene] {
                let known = Known::of_definition(scene.to_string().as_bytes());
                let known = known.unwrap_or_else(|problem| panic!("{scene}: {}", problem.message));
                let html = known.bound.picture().to_html().unwrap_or_else(|error| panic!("{scene}: {error}"));
                assert!(html.len() < 300_000, "{scene}: {} bytes", html.len());
            }
        }
    }

    #[test]
    fn nearly_every_atom_has_a_picture() {
        let bare: Vec<&str> =
            language::atoms().iter().filter(|word| thumbnail(small(word)).is_none()).map(|word| word.name).collect();
        // Batch rows and documents with own masks need other shapes.
        assert!(bare.len() <= 5, "{bare:?}");
    }
}

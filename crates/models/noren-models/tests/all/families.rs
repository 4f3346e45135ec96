//! The families and classifiers in `testdata/transformers`: outputs of non-padding tokens are compared with those of
//! transformers' eager models, and bits with those of other padding, of packed texts and of each text alone.

use candle_core::{DType, Device, Tensor};
use candle_nn::VarBuilder;
use noren::{Dtype, Side};
use noren_models::model::{Batch, Config, Head, Model, Output, Problem};
use serde_json::{Map, Value, json};
use std::collections::HashMap;
use std::path::PathBuf;

pub(crate) const NAMES: [&str; 24] = [
    "bert_score",
    "bert_tokens",
    "camembert_mlm",
    "distilbert",
    "distilbert_mlm",
    "distilbert_tokens",
    "distilbert_value",
    "llama_classifier",
    "llama_tokens",
    "mistral_classifier",
    "modernbert",
    "modernbert_classifier",
    "modernbert_mean",
    "modernbert_mlm",
    "modernbert_tokens",
    "qwen2",
    "qwen2_classifier",
    "qwen3_classifier",
    "qwen3_tokens",
    "roberta",
    "roberta_classifier",
    "roberta_mlm",
    "roberta_tokens",
    "xlm_roberta_topics",
];
/// The weights of the linear layers (as loaded, or packed as numbers of a type), and the largest difference between an
/// output and that of transformers, as a share of the largest value of the text.
const WEIGHTS: [(Option<Dtype>, f32); 3] = [(None, 1e-5), (Some(Dtype::F32), 1e-5), (Some(Dtype::Bf16), 0.05)];

pub(crate) fn folder(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../testdata/transformers").join(name)
}

type Tensors = HashMap<String, Tensor>;

fn load(name: &str) -> (Model, Tensors) {
    let expected = candle_core::safetensors::load(folder(name).join("expected.safetensors"), &Device::Cpu).unwrap();
    (Model::load(folder(name)).unwrap(), expected)
}

/// Returns the outputs of each text, by name. Outputs of padding are left out.
fn outputs(model: &Model, batch: &Batch) -> Vec<HashMap<&'static str, Vec<f32>>> {
    let Output { last_hidden_state, logits, pooler_output } = model.forward(batch).unwrap();
    let all = [("logits", logits), ("last_hidden_state", Some(last_hidden_state)), ("pooler_output", pooler_output)];
    let given: Vec<(&str, Tensor)> = all.into_iter().filter_map(|(name, tensor)| Some((name, tensor?))).collect();
    let texts = batch.texts();
    let of = |text: usize, tensor: &Tensor| texts_values(tensor, text, &texts[text]);
    (0..texts.len()).map(|text| given.iter().map(|(name, tensor)| (*name, of(text, tensor))).collect()).collect()
}

/// Returns the values of one text: of its tokens, given as (row, index in the row), or of the row `text` of a tensor
/// with one row for each text.
fn texts_values(tensor: &Tensor, text: usize, tokens: &[(usize, usize)]) -> Vec<f32> {
    let tensor = tensor.to_dtype(DType::F32).unwrap();
    if tensor.rank() == 2 {
        return tensor.get(text).unwrap().to_vec1().unwrap();
    }
    tokens.iter().flat_map(|(row, i)| tensor.get(*row).unwrap().get(*i).unwrap().to_vec1::<f32>().unwrap()).collect()
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|x| x.to_bits()).collect()
}

#[test]
fn outputs_agree_with_transformers_and_have_the_same_bits_in_every_batch() {
    for (name, (weights, tolerance)) in NAMES.iter().flat_map(|name| WEIGHTS.map(|weights| (name, weights))) {
        let (mut model, expected) = load(name);
        if let Some(dtype) = weights {
            model = Model::load_packed(folder(name), dtype).unwrap();
        }
        let batch = |prefix: &str| {
            let of = |key: &str| expected.get(&format!("{prefix}{key}"));
            of("input_ids").map(|ids| Batch::from_tensors(ids, of("attention_mask")).unwrap())
        };
        let right = batch("").unwrap();
        let texts = right.real_ids();
        let own = outputs(&model, &right);
        for (prefix, batch) in [("", Some(right.clone())), ("left_", batch("left_"))] {
            let Some(batch) = batch else { continue };
            for (text, tokens) in batch.texts().iter().enumerate() {
                for (key, got) in &own[text] {
                    let Some(stored) = expected.get(&format!("{prefix}{key}")) else { continue };
                    let stored = texts_values(stored, text, tokens);
                    let largest = stored.iter().fold(0f32, |most, x| most.max(x.abs()));
                    let off = got.iter().zip(&stored).fold(0f32, |most, (a, b)| most.max((a - b).abs()));
                    let place = format!("{name}, weights {weights:?}: {prefix}{key} of text {text}");
                    assert_eq!(got.len(), stored.len(), "{place}");
                    assert!(off <= tolerance * largest, "{place} is off by {off:e} where the largest is {largest:e}");
                }
            }
        }
        let same = |what: &str, batch: &Batch, from: usize| {
            for (i, got) in outputs(&model, batch).iter().enumerate() {
                for (key, values) in got {
                    assert_eq!(bits(values), bits(&own[from + i][key]), "{name}: {key} of text {} {what}", from + i);
                }
            }
        };
        same("padded on the left", &Batch::padded(&texts, 7, Side::Left).unwrap(), 0);
        same("packed", &Batch::packed(&texts).unwrap(), 0);
        for (text, ids) in texts.iter().enumerate() {
            same("alone", &Batch::new(vec![ids.clone()]).unwrap(), text);
        }
        let keys = ["logits", "last_hidden_state", "pooler_output"];
        assert!(keys.iter().all(|key| expected.contains_key(*key) == own[0].contains_key(key)), "{name}: outputs");
    }
}

/// In a checkpoint with the names of a model without a head and those of a model with one, the latter are read.
#[test]
fn names_with_the_prefix_of_the_model_are_preferred() {
    let temporary = std::env::temp_dir().join(format!("noren-prefix-{}", std::process::id()));
    for (name, first) in [
        ("qwen2", "model.embed_tokens.weight"),
        ("distilbert_mlm", "distilbert.embeddings.word_embeddings.weight"),
        ("modernbert_mlm", "model.embeddings.tok_embeddings.weight"),
    ] {
        let (model, expected) = load(name);
        std::fs::create_dir_all(&temporary).unwrap();
        std::fs::copy(folder(name).join("config.json"), temporary.join("config.json")).unwrap();
        let mut tensors = candle_core::safetensors::load(folder(name).join("model.safetensors"), &Device::Cpu).unwrap();
        let other = tensors[first].zeros_like().unwrap();
        tensors.insert(first.split_once('.').unwrap().1.to_owned(), other);
        candle_core::safetensors::save(&tensors, temporary.join("model.safetensors")).unwrap();
        let batch = Batch::from_tensors(&expected["input_ids"], Some(&expected["attention_mask"])).unwrap();
        let found = outputs(&Model::load(&temporary).unwrap(), &batch);
        std::fs::remove_dir_all(&temporary).unwrap();
        for (found, own) in found.iter().zip(outputs(&model, &batch)) {
            assert_eq!(bits(&found["last_hidden_state"]), bits(&own["last_hidden_state"]), "{name}");
        }
    }
}

#[test]
fn half_precision_stays_close_to_f32() {
    for name in ["roberta_classifier", "distilbert_value", "modernbert_mean", "qwen2_classifier"] {
        let (model, expected) = load(name);
        let batch = Batch::from_tensors(&expected["input_ids"], Some(&expected["attention_mask"])).unwrap();
        let whole = outputs(&model, &batch);
        let half = outputs(&Model::load_as(folder(name), DType::F16).unwrap(), &batch);
        for (a, b) in whole.iter().zip(&half) {
            let largest = a["logits"].iter().fold(1f32, |most, x| most.max(x.abs()));
            let off = a["logits"].iter().zip(&b["logits"]).fold(0f32, |most, (a, b)| most.max((a - b).abs()));
            assert!(off > 0.0 && off < 0.03 * largest, "{name}: {off}");
        }
    }
}

/// Returns the model of a folder with changed keys of config.json; a key with the value `null` is removed.
fn changed(name: &str, more: Value) -> noren_models::Result<Model> {
    let text = std::fs::read_to_string(folder(name).join("config.json")).unwrap();
    let mut config: Map<String, Value> = serde_json::from_str(&text).unwrap();
    for (key, value) in more.as_object().unwrap() {
        config.remove(key);
        if !value.is_null() {
            config.insert(key.clone(), value.clone());
        }
    }
    let tensors = candle_core::safetensors::load(folder(name).join("model.safetensors"), &Device::Cpu).unwrap();
    Model::new(&Config::read(&config)?, &VarBuilder::from_tensors(tensors, DType::F32, &Device::Cpu))
}

#[test]
fn labels_are_those_of_the_configuration_and_must_fit_the_head() {
    let classes = |name| load(name).0.config().head().classes().cloned().unwrap();
    assert_eq!(classes("roberta_classifier").names, ["negative", "neutral", "positive"]);
    assert_eq!(classes("modernbert_classifier").names, ["LABEL_0", "LABEL_1"]);
    assert_eq!(classes("bert_score").problem, Problem::MultiLabel);
    assert_eq!(classes("distilbert_value").problem, Problem::Regression);
    assert_eq!(classes("xlm_roberta_topics").problem, Problem::MultiLabel);
    assert!(matches!(load("qwen3_tokens").0.config().head(), Head::TokenClassifier(_)));
    for name in ["roberta_classifier", "bert_tokens", "distilbert_tokens", "modernbert_mean", "llama_classifier"] {
        let message = changed(name, json!({"id2label": {"0": "a"}})).unwrap_err().to_string();
        let rows = if name.ends_with("tokens") { 4 } else { 3 };
        let expected = format!(
            "config.json: id2label (or num_labels) is 1 classes: the weights of the head have {rows} classes: name each class"
        );
        assert!(message.starts_with(&expected), "{name}: {message}");
        // Without names, the number of classes is num_labels, and the names are numbered.
        let more = json!({"id2label": null, "label2id": null, "num_labels": rows});
        let plain = changed(name, more).unwrap().config().head().classes().unwrap().names.clone();
        assert_eq!(plain.last().unwrap(), &format!("LABEL_{}", rows - 1));
    }
}

#[test]
fn unknown_architectures_and_options_are_refused_by_name() {
    let message = |name, more| changed(name, more).unwrap_err().to_string();
    let architecture = |name: &str| json!({"architectures": [name]});
    for (name, other) in [
        ("roberta", "RobertaForQuestionAnswering"),
        ("roberta", "RobertaForCausalLM"),
        ("distilbert", "DistilBertForMultipleChoice"),
        ("modernbert", "ModernBertForQuestionAnswering"),
        ("qwen2", "Qwen2ForQuestionAnswering"),
        ("camembert_mlm", "RobertaForMaskedLM"),
    ] {
        let said = message(name, architecture(other));
        assert!(said.contains(&format!("architectures is {other:?}: ")) && said.contains("Model"), "{said}");
    }
    assert!(message("roberta", json!({"model_type": "roberta-prelayernorm"})).contains("\"roberta-prelayernorm\""));
    assert!(message("roberta", json!({"is_decoder": true})).contains("is_decoder is true"));
    let relative = json!({"position_embedding_type": "relative_key"});
    assert!(message("xlm_roberta_topics", relative).contains("position_embedding_type is relative_key"));
    assert!(
        message("roberta", json!({"max_position_embeddings": 2}))
            .contains("give a number above 2, the position of the first token")
    );
    assert!(message("roberta", json!({"pad_token_id": -1})).contains("pad_token_id is -1"));
    assert!(message("distilbert", json!({"activation": "mish"})).contains("mish"));
    assert!(
        message("modernbert", json!({"classifier_pooling": "last"}))
            .contains("give cls (the first token) or mean (all tokens)")
    );
    let gemma = json!({"model_type": "gemma2", "architectures": ["Gemma2ForSequenceClassification"]});
    assert!(message("llama_classifier", gemma).contains("\"Gemma2ForSequenceClassification\""));
}

#[test]
fn texts_that_do_not_fit_are_refused() {
    let (model, _) = load("roberta");
    // Two of 66 positions come before the first token.
    assert_eq!(model.positions(), Some(64));
    assert!(model.forward(&Batch::new(vec![vec![5; 64]]).unwrap()).is_ok());
    let message = model.forward(&Batch::new(vec![vec![5; 65]]).unwrap()).unwrap_err().to_string();
    assert!(message.contains("65 tokens long: the model has 64 positions"), "{message}");
    let (model, _) = load("distilbert");
    let typed = |kind| Batch::new(vec![vec![5, 6]]).unwrap().token_types(vec![vec![0, kind]]).unwrap();
    assert!(model.forward(&typed(0)).is_ok());
    let message = model.forward(&typed(1)).unwrap_err().to_string();
    assert!(message.contains("the model has no token types: omit token_type_ids"), "{message}");
}

#[test]
fn classes_are_read_from_the_tokens_that_the_model_names() {
    let texts = [vec![0, 5, 6, 7], vec![0, 8, 1]];
    let tokens = |name| {
        let (model, _) = load(name);
        model.class_tokens(&Batch::padded(&texts, 1, Side::Left).unwrap().unpooled([(0, 2)]))
    };
    assert_eq!(tokens("roberta_classifier"), Some(vec![vec![(0, 0)], vec![(1, 1)]]));
    // The padding token at the end of the second text is skipped, as in transformers.
    assert_eq!(tokens("llama_classifier"), Some(vec![vec![(0, 3)], vec![(1, 2)]]));
    assert_eq!(tokens("modernbert_mean"), Some(vec![vec![(0, 0), (0, 1), (0, 3)], vec![(1, 1), (1, 2), (1, 3)]]));
    assert_eq!(tokens("roberta_tokens"), None);
}

//! Training: gradients through padding, accumulation, stopping and continuing, full disks, malformed checkpoints.

use candle_core::{DType, Device, Tensor};
use candle_nn::{VarBuilder, VarMap};
use noren::Side;
use noren_models::model::{Batch, Config, Model};
use noren_models::train::{TrainConfig, Trained, Trainer};
use noren_text::ByteTokenizer;
use noren_text::data::Objective;
use std::fs;
use std::path::{Path, PathBuf};

fn text() -> String {
    let sentence =
        |n: usize| format!("On day {n} the {} ate {} of the bread.", ["cat", "dog", "hen"][n % 3], n * n % 7);
    (0..200).map(|n| sentence(n) + if n % 9 == 8 { "\n\n" } else { " " }).collect()
}

fn config(more: &str) -> TrainConfig {
    let model = r#"{"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 32, "intermediate_size": 48,
        "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 2, "max_position_embeddings": 64,
        "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "hidden_act": "silu", "tie_word_embeddings": true}"#;
    TrainConfig::from_json(&format!(r#"{{"model": {model}, "row_len": 48, "validate_rows": 4, "warmup": 4, {more}}}"#))
        .unwrap()
}

/// Returns an empty folder of this name.
fn folder(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("train").join(name);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    folder
}

fn train(config: &TrainConfig, objective: Objective, folder: &Path) -> Result<Trained, noren_models::Error> {
    Trainer::new(config, &ByteTokenizer, &text(), objective)?.run(folder, |_| {})
}

fn weights(folder: &Path) -> Vec<(String, Vec<f32>)> {
    let tensors = candle_core::safetensors::load(folder.join("model.safetensors"), &Device::Cpu).unwrap();
    let flat = |tensor: Tensor| tensor.to_dtype(DType::F32).unwrap().flatten_all().unwrap().to_vec1::<f32>().unwrap();
    let mut all: Vec<_> = tensors.into_iter().map(|(name, tensor)| (name, flat(tensor))).collect();
    all.sort_by(|a, b| a.0.cmp(&b.0));
    all
}

#[test]
fn no_gradient_goes_through_padding() {
    let configs = [
        (
            r#"{"model_type": "llama", "vocab_size": 40, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
            "num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 32, "rms_norm_eps": 1e-6,
            "rope_theta": 10000.0, "hidden_act": "silu", "tie_word_embeddings": false}"#,
            "model.embed_tokens.weight",
        ),
        (
            r#"{"model_type": "bert", "vocab_size": 40, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
            "num_attention_heads": 2, "max_position_embeddings": 32, "type_vocab_size": 2, "layer_norm_eps": 1e-12,
            "hidden_act": "gelu", "architectures": ["BertModel"]}"#,
            "embeddings.word_embeddings.weight",
        ),
    ];
    for (config, table) in configs {
        let vars = VarMap::new();
        let config = Config::read(&serde_json::from_str(config).unwrap()).unwrap();
        let model = Model::new(&config, &VarBuilder::from_varmap(&vars, DType::F32, &Device::Cpu)).unwrap();
        let texts = [vec![5, 6, 7, 8, 9], vec![10, 11]];
        for side in [Side::Left, Side::Right] {
            let batch = Batch::padded(&texts, 3, side).unwrap();
            let states = model.forward(&batch).unwrap().last_hidden_state;
            let keep: Vec<f32> = batch.keep().iter().flatten().map(|keep| f32::from(u8::from(*keep))).collect();
            let keep = Tensor::from_vec(keep, (2, 5, 1), &Device::Cpu).unwrap();
            let loss = states.broadcast_mul(&keep).unwrap().sqr().unwrap().exp().unwrap().sum_all().unwrap();
            let gradients = loss.backward().unwrap();
            let all = vars.data().lock().unwrap();
            let (_, var) = all.iter().find(|(name, _)| name.ends_with(table)).unwrap();
            let rows = gradients.get(var.as_tensor()).unwrap().to_vec2::<f32>().unwrap();
            assert!(
                rows[3].iter().all(|g| *g == 0.0),
                "{table}, {side:?}: the padding token has a gradient: {:?}",
                rows[3]
            );
            for real in texts.iter().flatten() {
                assert!(rows[*real as usize].iter().any(|g| *g != 0.0), "{table}, {side:?}: token {real} has none");
            }
        }
    }
}

#[test]
fn accumulation_counts_each_token_once() {
    for objective in [Objective::Clm, Objective::Mlm] {
        let whole = config(r#""steps": 6, "rows": 8, "accumulate": 1"#);
        let parts = config(r#""steps": 6, "rows": 2, "accumulate": 4"#);
        let [a, b] = [folder(&format!("whole-{objective}")), folder(&format!("parts-{objective}"))];
        let one = train(&whole, objective, &a).unwrap();
        let two = train(&parts, objective, &b).unwrap();
        assert!((one.history.training[0].loss - two.history.training[0].loss).abs() < 1e-5);
        for ((name, a), (_, b)) in weights(&a).iter().zip(&weights(&b)) {
            let far = a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0f32, f32::max);
            // AdamW's first steps have the size of the learning rate whatever the gradient's: only rounding differs.
            assert!(far < 2e-4, "{objective}, {name}: {far}");
        }
    }
}

#[test]
fn losses_fall_below_what_single_tokens_tell() {
    let config = config(r#""steps": 240, "rows": 8, "learning_rate": 0.01, "validate_every": 80"#);
    let trained = train(&config, Objective::Both, &folder("falls")).unwrap();
    let loss = trained.history.last_validation(Objective::Clm).unwrap();
    assert!(loss < 0.6 * trained.history.unigram, "{loss} of {}", trained.history.unigram);
    // A model of this size learns masked bytes more slowly; tests/all/embedded.rs measures the embedded one.
    assert!(trained.history.last_validation(Objective::Mlm).unwrap() < trained.history.unigram);
    let svg = fs::read_to_string(trained.folder.join("loss.svg")).unwrap();
    assert!(svg.contains("unigram entropy") && svg.contains("clm ") && svg.contains("mlm "));
    // The written model can be loaded like any other model.
    assert!(Model::load(&trained.folder).unwrap().forward(&Batch::new(vec![vec![257, 79, 110]]).unwrap()).is_ok());
}

#[test]
fn what_was_stopped_goes_on_to_the_same_bits() {
    let config = config(r#""steps": 9, "rows": 4, "validate_every": 2"#);
    let [whole, stopped] = [folder("whole"), folder("stopped")];
    train(&config, Objective::Both, &whole).unwrap();
    // A panic after each step has the effect of a killed process: nothing is written at the end.
    for _ in 0..8 {
        let trainer = Trainer::new(&config, &ByteTokenizer, &text(), Objective::Both).unwrap();
        let mut steps = 0;
        let run = std::panic::AssertUnwindSafe(|| {
            trainer.run(&stopped, |_| {
                steps += 1;
                assert!(steps < 3, "stopped");
            })
        });
        if std::panic::catch_unwind(run).is_ok() {
            break;
        }
    }
    for file in ["model.safetensors", "checkpoint.safetensors", "loss.svg", "config.json", "tokenizer.json"] {
        assert!(fs::read(whole.join(file)).unwrap() == fs::read(stopped.join(file)).unwrap(), "{file}");
    }
}

#[test]
fn checkpoints_that_do_not_fit_are_refused() {
    let config_of = |steps: u64| config(&format!(r#""steps": {steps}, "rows": 2, "validate_every": 1"#));
    let folder = folder("refused");
    train(&config_of(6), Objective::Clm, &folder).unwrap();
    let message = |objective, config| train(&config, objective, &folder).unwrap_err().to_string();
    assert!(message(Objective::Clm, config_of(7)).contains("another configuration, objective or text"));
    assert!(message(Objective::Mlm, config_of(6)).contains("another configuration, objective or text"));

    let checkpoint = folder.join("checkpoint.safetensors");
    let whole = fs::read(&checkpoint).unwrap();
    for cut in [0, 7, 8, 100, whole.len() / 2, whole.len() - 1] {
        fs::write(&checkpoint, &whole[..cut]).unwrap();
        assert!(message(Objective::Clm, config_of(6)).contains("the file is not a checkpoint"), "cut at {cut}");
    }
    let mut hostile = whole.clone();
    hostile[..8].copy_from_slice(&u64::MAX.to_le_bytes());
    fs::write(&checkpoint, &hostile).unwrap();
    assert!(message(Objective::Clm, config_of(6)).contains("the file is not a checkpoint"));
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_leaves_the_last_checkpoint() {
    let config = config(r#""steps": 4, "rows": 2, "validate_every": 2"#);
    let folder = folder("full");
    let full = || std::os::unix::fs::symlink("/dev/full", folder.join("checkpoint.safetensors.part")).unwrap();
    full();
    let message = train(&config, Objective::Clm, &folder).unwrap_err().to_string();
    assert!(message.contains("checkpoint.safetensors: the file cannot be written: No space left"), "{message}");
    let left: Vec<_> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(left.is_empty(), "nothing looks complete: {left:?}");
    train(&config, Objective::Clm, &folder).unwrap();
    assert!(folder.join("model.safetensors").exists());
}

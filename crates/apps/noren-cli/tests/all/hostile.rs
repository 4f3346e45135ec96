//! Models that are missing, wrong, cut off or hostile: every command reports the problem and how to fix it.

#![cfg(feature = "models")]

use crate::common::{Folder, noren, refused};
use crate::words;
use noren_models::candle_core::{DType, Device, Tensor, safetensors as files};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Output;

fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../testdata/conformance/models").join(name)
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// A copy of a checkpoint that tests damage, and input tokens for it.
struct Copy {
    folder: Folder,
    name: &'static str,
}

impl Copy {
    fn of(name: &'static str) -> Copy {
        let folder = Folder::new(&format!("hostile-{name}-{:?}", std::thread::current().id()));
        let ids = Tensor::new(vec![vec![1i64, 2, 3]], &Device::Cpu).unwrap();
        files::save(&[("input_ids".to_owned(), ids)].into(), folder.file("in.safetensors")).unwrap();
        let copy = Copy { folder, name };
        copy.restore();
        copy
    }

    fn restore(&self) {
        for file in ["config.json", "model.safetensors"] {
            std::fs::copy(source(self.name).join(file), self.folder.file(file)).unwrap();
        }
    }

    fn run(&self) -> Output {
        let (input, out) = (self.folder.file("in.safetensors"), self.folder.file("out.safetensors"));
        let folder = self.folder.file("");
        let _ = std::fs::remove_file(&out);
        let output = noren(&["run", "--model", text(&folder), "--input", text(&input), "-o", text(&out)]);
        assert_eq!(out.exists(), output.status.success());
        output
    }

    /// Runs the model with changed keys of the configuration.
    fn with(&self, changes: Value) -> Output {
        let mut config: Value =
            serde_json::from_slice(&std::fs::read(source(self.name).join("config.json")).unwrap()).unwrap();
        for (key, value) in changes.as_object().unwrap() {
            config[key] = value.clone();
        }
        std::fs::write(self.folder.file("config.json"), config.to_string()).unwrap();
        let output = self.run();
        self.restore();
        output
    }

    /// Runs the model with other bytes as the file of weights.
    fn weights(&self, bytes: &[u8]) -> Output {
        std::fs::write(self.folder.file("model.safetensors"), bytes).unwrap();
        let output = self.run();
        self.restore();
        output
    }
}

#[test]
fn files_that_are_missing() {
    let copy = Copy::of("llama");
    std::fs::remove_file(copy.folder.file("model.safetensors")).unwrap();
    let hint = "hint: --model takes a folder with config.json and model.safetensors";
    refused(&copy.run(), "model.safetensors: the file does not exist, and neither does model.safetensors.index.json");
    refused(&copy.run(), hint);
    std::fs::remove_file(copy.folder.file("config.json")).unwrap();
    refused(&copy.run(), "config.json: the file cannot be read");
    refused(&copy.run(), hint);
    // No file is missing in a folder with damaged files.
    let damaged = Copy::of("bert").weights(b"no weights");
    refused(&damaged, "truncated or not a safetensors file");
    assert!(!String::from_utf8_lossy(&damaged.stderr).contains("hint"), "{damaged:?}");
    for bad in ["", "[1, 2]", "{\"model_type\": \"llama\"", "\u{0}"] {
        std::fs::write(copy.folder.file("config.json"), bad).unwrap();
        refused(&copy.run(), "config.json: the file is ");
    }
    for command in ["run", "embed", "generate", "inspect"] {
        let more: &[&str] = match command {
            "run" => &["--input", "x", "-o", "y"],
            "generate" => &["words"],
            _ => &[],
        };
        let given = [&[command, "--model", "/no/such/folder"], more].concat();
        let output = noren(&given);
        assert_eq!(output.status.code(), Some(2), "{command}");
        if command != "run" {
            refused(&output, "/no/such/folder: there is no such folder");
        }
    }
    let output = noren(&["run", "--model", text(&copy.folder.file("")), "-o", "out"]);
    refused(&output, "--input");
}

#[test]
fn configurations_that_make_no_sense() {
    let llama = Copy::of("llama");
    assert!(llama.with(json!({})).status.success());
    for (changes, expected) in [
        (
            json!({"model_type": "mamba"}),
            "model_type is \"mamba\": give a supported type: modernbert, t5, bert, roberta",
        ),
        (json!({"model_type": null}), "model_type is missing"),
        (json!({"architectures": ["LlamaForQuestionAnswering"]}), "architectures is \"LlamaForQuestionAnswering\""),
        (json!({"hidden_size": 0}), "hidden_size is 0: a whole number from 1"),
        (json!({"hidden_size": -3}), "hidden_size is -3"),
        (json!({"hidden_size": 1e30}), "hidden_size is 1e+30"),
        (json!({"hidden_size": 65}), "do not fit"),
        (json!({"num_hidden_layers": 1_000_000}), "at most 4096"),
        (json!({"num_hidden_layers": 9}), "the weights do not fit config.json"),
        (json!({"num_attention_heads": 3}), "num_key_value_heads"),
        (json!({"vocab_size": "many"}), "vocab_size is \"many\""),
        (json!({"hidden_act": "cosine"}), "the activation is \"cosine\": give one of gelu"),
        (json!({"rope_parameters": {"rope_type": "longrope"}}), "rope_type is \"longrope\""),
        (json!({"rope_parameters": {"rope_type": "linear"}}), "rope factor is missing"),
        (json!({"rope_parameters": {"rope_theta": 0}}), "rope_theta is 0"),
        (json!({"quantization_config": {"bits": 4}}), "quantised weights are not supported"),
    ] {
        refused(&llama.with(changes), expected);
    }
    let bert = Copy::of("bert");
    refused(&bert.with(json!({"architectures": ["BertForQuestionAnswering"]})), "give BertModel");
    let labels = json!({"architectures": ["BertForTokenClassification"], "id2label": {"0": "O", "2": "B-PER"}});
    refused(&bert.with(labels), "id2label is 2 names: a name for each of the classes 0 to 1");
    refused(&bert.with(json!({"position_embedding_type": "relative_key"})), "only the value `absolute`");
    refused(&bert.with(json!({"num_attention_heads": 7})), "multiple of the number of heads");
    let gemma = Copy::of("gemma3");
    refused(&gemma.with(json!({"layer_types": ["full_attention"]})), "layer_types");
    refused(&gemma.with(json!({"layer_types": ["round", "round", "round"]})), "give full_attention");
}

#[test]
fn weights_that_are_cut_off_or_hostile() {
    let copy = Copy::of("llama");
    let whole = std::fs::read(source("llama").join("model.safetensors")).unwrap();
    let header = u64::from_le_bytes(*whole.first_chunk().unwrap()) as usize;
    let problem = "model.safetensors: the file is truncated or not a safetensors file";
    for len in [0, 5, 8, 100, 8 + header, 8 + header + 1000, whole.len() - 1] {
        refused(&copy.weights(&whole[..len]), problem);
    }
    refused(&copy.weights(&[whole.clone(), vec![0; 16]].concat()), problem);
    let with_header = |text: &str| {
        let len = (text.len() as u64).to_le_bytes();
        [&len[..], text.as_bytes(), &[0; 64]].concat()
    };
    refused(&copy.weights(&u64::MAX.to_le_bytes().repeat(4)), problem);
    for text in [
        "{}",
        "not json",
        r#"{"a":{"dtype":"F32","shape":[16],"data_offsets":[0,32]}}"#,
        r#"{"a":{"dtype":"F32","shape":[8],"data_offsets":[0,32]},"b":{"dtype":"F32","shape":[16],"data_offsets":[0,64]}}"#,
        r#"{"a":{"dtype":"F32","shape":[18446744073709551615,4],"data_offsets":[0,64]}}"#,
        r#"{"a":{"dtype":"F32","shape":[16],"data_offsets":[64,0]}}"#,
        r#"{"a":{"dtype":"X9","shape":[16],"data_offsets":[0,64]}}"#,
    ] {
        refused(&copy.weights(&with_header(text)), problem);
    }
    let mut tensors = files::load(source("llama").join("model.safetensors"), &Device::Cpu).unwrap();
    let mut saved = |change: &dyn Fn(&mut std::collections::HashMap<String, Tensor>)| {
        let mut changed = tensors.clone();
        change(&mut changed);
        files::save(&changed, copy.folder.file("changed")).unwrap();
        tensors.retain(|_, _| true);
        copy.weights(&std::fs::read(copy.folder.file("changed")).unwrap())
    };
    let name = "model.layers.1.self_attn.k_proj.weight";
    refused(&saved(&|all| drop(all.remove(name))), name);
    refused(
        &saved(&|all| drop(all.insert(name.to_owned(), all[name].t().unwrap().contiguous().unwrap()))),
        "do not fit config.json",
    );
    refused(
        &saved(&|all| drop(all.insert(name.to_owned(), all[name].to_dtype(DType::I64).unwrap()))),
        &format!("tensor {name:?} has numbers of type I64"),
    );
    let large = |all: &mut std::collections::HashMap<String, Tensor>| {
        let wide = (all[name].to_dtype(DType::F64).unwrap() * 1e300).unwrap();
        all.insert(name.to_owned(), wide);
    };
    refused(&saved(&large), &format!("tensor {name:?} holds "));
    // All weights are finite, and the logits are not.
    let infinite = |all: &mut std::collections::HashMap<String, Tensor>| {
        let head = (all["lm_head.weight"].sign().unwrap() * 3e38).unwrap();
        all.insert("lm_head.weight".to_owned(), head);
    };
    refused(&saved(&infinite), "a value of logits of the model is");
    let twice = |all: &mut std::collections::HashMap<String, Tensor>| {
        for name in ["a.LayerNorm.gamma", "a.LayerNorm.weight"] {
            all.insert(name.to_owned(), all["model.norm.weight"].clone());
        }
    };
    refused(&saved(&twice), "are the same parameter");
    assert!(saved(&|all| drop(all.insert(name.to_owned(), all[name].to_dtype(DType::F64).unwrap()))).status.success());
}

/// Changes one value of a tensor of `model`.
fn spoil(model: &Path, name: &str, at: usize, value: f32) {
    let file = model.join("model.safetensors");
    let mut tensors = files::load(&file, &Device::Cpu).unwrap();
    let old = &tensors[name];
    let mut values = old.flatten_all().unwrap().to_vec1::<f32>().unwrap();
    values[at] = value;
    let new = Tensor::from_vec(values, old.shape(), &Device::Cpu).unwrap();
    tensors.insert(name.to_owned(), new);
    files::save(&tensors, file).unwrap();
}

#[test]
fn weights_that_are_no_numbers_are_refused() {
    let folder = Folder::new("hostile-nan");
    let [llama, bert] = ["llama", "bert"].map(|name| words::model(&folder, name));
    for (value, shown) in [(f32::NAN, "holds NaN at index 5"), (f32::INFINITY, "holds inf at index 5")] {
        spoil(&llama, "model.norm.weight", 5, value);
        spoil(&bert, "embeddings.LayerNorm.weight", 5, value);
        refused(&noren(&["generate", "--model", text(&llama), "w7 w8"]), shown);
        refused(&noren(&["run", "w7 w8", "--model", text(&llama)]), shown);
        let lines = folder.file("lines.txt");
        std::fs::write(&lines, "w7 w8\n").unwrap();
        refused(&noren(&["embed", "--model", text(&bert), text(&lines)]), shown);
    }
    // The weights are finite, but products and sums with them are not: one of two logits is infinite for every state.
    spoil(&llama, "model.norm.weight", 5, 1e38);
    spoil(&llama, "lm_head.weight", 5, 1e38);
    spoil(&llama, "lm_head.weight", 64 + 5, -1e38);
    refused(&noren(&["generate", "--model", text(&llama), "w7 w8"]), "a finite number is needed");
    refused(&noren(&["run", "w7 w8", "--model", text(&llama)]), "a finite number is needed");
    spoil(&bert, "embeddings.LayerNorm.weight", 5, 1.0);
    spoil(&bert, "encoder.layer.2.output.LayerNorm.bias", 5, 3e38);
    let lines = folder.file("lines.txt");
    refused(&noren(&["embed", "--model", text(&bert), text(&lines)]), "finite numbers are needed");
}

/// A classifier with finite weights and infinite scores: no class is named.
#[test]
fn class_scores_that_are_not_finite_are_refused() {
    let folder = Folder::new("hostile-classes");
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../testdata/transformers/roberta_classifier");
    for file in std::fs::read_dir(from).unwrap() {
        let file = file.unwrap().path();
        std::fs::copy(&file, folder.file(file.file_name().unwrap().to_str().unwrap())).unwrap();
    }
    let model = folder.file("");
    let path = model.join("model.safetensors");
    let mut tensors = files::load(&path, &Device::Cpu).unwrap();
    let head = (tensors["classifier.out_proj.weight"].sign().unwrap() * 3.4e38).unwrap();
    tensors.insert("classifier.out_proj.weight".to_owned(), head);
    files::save(&tensors, path).unwrap();
    refused(&noren(&["run", "hello", "--model", text(&model)]), "a value of the outputs of the model is");
}

/// Pipes and devices in the folder of a model are refused; reading them would wait or not end.
#[cfg(unix)]
#[test]
fn pipes_and_devices_are_refused() {
    for file in ["config.json", "model.safetensors", "tokenizer.json", "model.safetensors.index.json"] {
        let folder = Folder::new(&format!("hostile-pipe-{file}"));
        let model = words::model(&folder, "llama");
        let path = model.join(file);
        if file == "model.safetensors.index.json" {
            std::fs::remove_file(model.join("model.safetensors")).unwrap();
            std::os::unix::fs::symlink("/dev/zero", &path).unwrap();
        } else {
            std::fs::remove_file(&path).unwrap();
            assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        }
        refused(&noren(&["generate", "--model", text(&model), "w7"]), &format!("{file}: this is not a file"));
    }
}

#[test]
fn a_template_that_names_a_missing_token_is_refused() {
    let folder = Folder::new("hostile-template");
    let bert = words::model(&folder, "bert");
    let path = bert.join("tokenizer.json");
    let mut form: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    form["post_processor"]["special_tokens"].as_object_mut().unwrap().remove("[SEP]");
    std::fs::write(&path, form.to_string()).unwrap();
    let expected = "tokenizer.json: post_processor: the template `single` names the special token \"[SEP]\"";
    refused(&noren(&["embed", "--model", text(&bert), "/dev/null"]), expected);
    refused(&noren(&["run", "w7", "--model", text(&bert)]), expected);
    let data = folder.file("book.txt");
    std::fs::write(&data, "w7 w8 w9\n\nw7 w8").unwrap();
    let config = folder.file("config.json");
    std::fs::write(&config, r#"{"model": {"model_type": "llama"}, "weight_decay": -1}"#).unwrap();
    let train = |more: &[&str]| {
        let out = folder.file("out");
        let given = ["train", "--data", text(&data), "--objective", "clm", "--config", text(&config), "-o", text(&out)];
        noren(&[&given[..], more].concat())
    };
    refused(&train(&[]), "weight_decay is -1: a number of at least 0 is needed");
    std::fs::write(&config, r#"{"model": {"model_type": "llama"}}"#).unwrap();
    refused(&train(&["--tokenizer", text(&path)]), expected);
}

#[test]
fn an_index_that_leads_elsewhere() {
    let copy = Copy::of("llama");
    std::fs::remove_file(copy.folder.file("model.safetensors")).unwrap();
    let index = copy.folder.file("model.safetensors.index.json");
    for (text, expected) in [
        (r#"{"weight_map": {"a": "../../etc/passwd"}}"#, "a file name is needed"),
        (r#"{"weight_map": {"a": "/etc/passwd"}}"#, "a file name is needed"),
        (r#"{"weight_map": {"a": 3}}"#, "a file name is needed"),
        (r#"{"weight_map": [1]}"#, "has no weight_map"),
        (r#"{}"#, "has no weight_map"),
        (r#"{"weight_map": {"a": "none.safetensors"}}"#, "none.safetensors: the file cannot be read"),
    ] {
        std::fs::write(&index, text).unwrap();
        refused(&copy.run(), expected);
    }
}

#[test]
fn inputs_and_outputs_that_are_no_files() {
    let copy = Copy::of("llama");
    let folder = copy.folder.file("");
    let run = |input: &str, out: &str| noren(&["run", "--model", text(&folder), "--input", input, "-o", out]);
    let (good, out) = (copy.folder.file("in.safetensors"), copy.folder.file("out.safetensors"));
    refused(&run("none.safetensors", text(&out)), "none.safetensors: the file cannot be read");
    refused(
        &run(text(&copy.folder.file("config.json")), text(&out)),
        "the file is not a safetensors file, or its end is missing",
    );
    refused(&run(text(&good), text(&folder)), "is a folder");
    refused(&run(text(&good), "/no/such/folder/out.safetensors"), "there is no folder");
    if cfg!(target_os = "linux") {
        refused(&run(text(&good), "/dev/full"), "/dev/full: the file cannot be written: No space left on device");
    }
    assert!(!out.exists());
}

/// The masks depend only on the configuration, so sizes beyond the memory can be inspected: no model is created.
#[test]
fn sizes_that_no_memory_holds_are_inspected() {
    let folder = Folder::new("hostile-sizes");
    let huge = 1 << 24;
    for (changes, name) in [
        (
            json!({"hidden_size": huge, "num_attention_heads": huge, "vocab_size": huge, "type_vocab_size": huge}),
            "bert",
        ),
        (
            json!({"num_heads": huge, "relative_attention_num_buckets": 1 << 16, "relative_attention_max_distance": 1 << 16}),
            "t5",
        ),
        (json!({"num_local_experts": huge}), "gpt_oss"),
    ] {
        let mut config: Value =
            serde_json::from_slice(&std::fs::read(source(name).join("config.json")).unwrap()).unwrap();
        for (key, value) in changes.as_object().unwrap() {
            config[key] = value.clone();
        }
        std::fs::write(folder.file("config.json"), config.to_string()).unwrap();
        let output = noren(&["inspect", "--model", text(&folder.file("")), "--json"]);
        assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

//! `noren generate` and `noren inspect` over the small checkpoints.

#![cfg(feature = "models")]

use crate::common::{Folder, noren, refused};
use crate::words;
use noren_models::candle_core::{Device, safetensors as files};
use serde_json::Value;
use std::path::{Path, PathBuf};

fn checkpoint(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../testdata/conformance/models").join(name)
}

/// Returns, for each row, its non-padding tokens as words, and the expected next tokens.
fn prompts(name: &str) -> Vec<(String, Vec<i64>)> {
    let stored = files::load(checkpoint(name).join("expected.safetensors"), &Device::Cpu).unwrap();
    let rows = |key: &str| stored[key].to_vec2::<i64>().unwrap();
    let text = |ids: Vec<i64>| ids.iter().map(|id| format!("w{id}")).collect::<Vec<_>>().join(" ");
    let kept = rows("input_ids").into_iter().zip(rows("attention_mask"));
    let real = kept.map(|(ids, keep)| ids.into_iter().zip(keep).filter(|(_, keep)| *keep != 0).map(|(id, _)| id));
    real.map(|ids| text(ids.collect())).zip(rows("greedy_12")).collect()
}

/// Runs the command and returns its JSON, one value for each prompt.
#[track_caller]
fn made(args: &[&str]) -> Vec<Value> {
    let output = noren(&[&["generate", "--json"], args].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn prompts_are_continued_together_as_alone() {
    let folder = Folder::new("generate-greedy");
    for name in ["gpt2", "mistral_sliding", "gemma3"] {
        let model = words::model(&folder, name);
        let model = model.to_str().unwrap();
        let prompts = prompts(name);
        let texts: Vec<&str> = prompts.iter().map(|(text, _)| text.as_str()).collect();
        let together = made(&[&["--model", model, "-n", "12"], &texts[..]].concat());
        for ((text, expected), got) in prompts.iter().zip(&together) {
            let tokens: Vec<i64> = serde_json::from_value(got["tokens"].clone()).unwrap();
            assert!(expected.starts_with(&tokens) && !tokens.is_empty(), "{name}: {tokens:?}, not {expected:?}");
            assert_eq!(made(&["--model", model, "-n", "12", text])[0], *got, "{name} alone");
        }
    }
}

#[test]
fn random_choices_follow_the_seed_and_texts_end_where_they_shall() {
    let folder = Folder::new("generate-random");
    let model = words::model(&folder, "llama");
    let model = model.to_str().unwrap();
    let with = |more: &[&str]| made(&[&["--model", model, "-n", "30", "w7 w8 w9"], more].concat())[0].clone();
    let (warm, other) = (with(&["-t", "1.5", "--seed", "1"]), with(&["-t", "1.5", "--seed", "2"]));
    assert_eq!(with(&["-t", "1.5", "--seed", "1"]), warm);
    assert_ne!(warm["tokens"], other["tokens"]);
    let greedy = with(&[]);
    assert_eq!(with(&["-t", "1.5", "--top-k", "1"])["tokens"], greedy["tokens"]);
    assert_eq!(with(&["-t", "1.5", "--top-p", "0.000001"])["tokens"], greedy["tokens"]);

    let text = greedy["text"].as_str().unwrap();
    let fourth = text.split_whitespace().nth(3).unwrap();
    let before = &text[..text.find(fourth).unwrap()];
    assert_eq!(with(&["--stop", fourth])["text"].as_str().unwrap(), before);
    let shown = noren(&["generate", "--model", model, "-n", "30", "w7 w8 w9", "--stop", fourth]);
    assert_eq!(String::from_utf8(shown.stdout).unwrap(), format!("w7 w8 w9{before}\n"));
}

#[test]
fn what_cannot_be_continued_is_refused() {
    let folder = Folder::new("generate-refused");
    let [llama, bert] = ["llama", "bert"].map(|name| words::model(&folder, name).to_str().unwrap().to_owned());
    let check = |args: &[&str], expected: &str| refused(&noren(&[&["generate", "--model"], args].concat()), expected);
    check(&[&bert, "w7"], "the model is an encoder");
    check(&[&llama, ""], "the prompt \"\" has no tokens");
    check(&[&llama, "w7", "-t", "-1"], "temperature is -1");
    check(&[&llama, "w7", "-t", "1", "--top-k", "0"], "top_k is 0");
    check(&[&llama, "w7", "-t", "1", "--top-p", "1.5"], "top_p is 1.5");
    check(&[&llama, "w7", "--stop", ""], "--stop is empty");
    check(&[&llama, "w7", "-n", "500"], "the model has 128 positions");
    check(&[&llama, &vec!["w7"; 200].join(" ")], "the model has 128 positions");
    check(&[checkpoint("llama").to_str().unwrap(), "w7"], "put the tokenizer of the model into this folder");
}

#[test]
fn masks_of_models_are_said_and_drawn() {
    for (name, masks) in [
        ("bert", &["full"][..]),
        ("gpt2", &["causal"]),
        ("mistral_sliding", &["sliding(8)"]),
        ("gemma2", &["layers(1: causal, else: sliding(8)) + softcap(50)"]),
        ("t5", &["full + relative(relative_attention_bias)", "causal + relative(relative_attention_bias)", "full"]),
    ] {
        let folder = checkpoint(name);
        let folder = folder.to_str().unwrap();
        let output = noren(&["inspect", "--model", folder, "--json"]);
        assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
        let said: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
        let said: Vec<&str> = said.iter().map(|declared| declared["mask"].as_str().unwrap()).collect();
        assert_eq!(said, masks, "{name}");
        let drawn = noren(&["inspect", "--model", folder, "--len", "12"]);
        let drawn = String::from_utf8(drawn.stdout).unwrap();
        assert!(masks.iter().all(|mask| drawn.contains(mask)) && drawn.contains("layers 0"), "{drawn}");
    }
}

/// A classifier computes the scores of classes from the first token: if this token is secret, no scores are returned.
#[test]
fn classes_of_a_text_that_begins_with_a_secret_are_withheld() {
    let folder = Folder::new("generate-classes");
    let model = words::model(&folder, "bert_classifier");
    let run = |text: &str| {
        let output = noren(&["run", "--model", model.to_str().unwrap(), text, "--word", "w7", "--json"]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice::<Value>(&output.stdout).unwrap()["labels"].clone()
    };
    assert!(run("w7 w8 w9").is_array(), "the first token is [CLS]");
    let tokenizer = model.join("tokenizer.json");
    let mut plain: Value = serde_json::from_slice(&std::fs::read(&tokenizer).unwrap()).unwrap();
    plain["post_processor"] = Value::Null;
    std::fs::write(&tokenizer, plain.to_string()).unwrap();
    assert!(run("w8 w7 w9").is_array());
    assert!(run("w7 w8 w9").is_null());
}

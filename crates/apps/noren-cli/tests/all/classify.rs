//! `noren run` on classifiers: names of classes with the scores of transformers' pipelines, several texts, hidden text.

#![cfg(feature = "models")]

use crate::common::{Folder, noren, refused};
use serde_json::Value;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const TEXT_CLASSIFIERS: [&str; 10] = [
    "bert_score",
    "distilbert_value",
    "llama_classifier",
    "mistral_classifier",
    "modernbert_classifier",
    "modernbert_mean",
    "qwen2_classifier",
    "qwen3_classifier",
    "roberta_classifier",
    "xlm_roberta_topics",
];
const TOKEN_CLASSIFIERS: [&str; 6] =
    ["bert_tokens", "distilbert_tokens", "llama_tokens", "modernbert_tokens", "qwen3_tokens", "roberta_tokens"];

fn model(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../testdata/transformers").join(name);
    folder.to_str().expect("a path").to_owned()
}

fn text_of(name: &str) -> String {
    std::fs::read_to_string(PathBuf::from(model(name)).join("pipeline.json")).expect("the file of a classifier")
}

/// Returns the JSON result of the command.
#[track_caller]
fn run(name: &str, args: &[&str]) -> Value {
    let output = noren(&[&["run", "--model", &model(name), "--json"], args].concat());
    assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// Returns the labels of a text or of its tokens as (label, score). Tokens without a label are left out.
fn labels(result: &Value) -> Vec<(String, f64)> {
    let labels = if result["labels"].is_null() { &result["token_labels"] } else { &result["labels"] };
    let one =
        |label: &Value| (label["label"].as_str().expect("a name").to_owned(), label["score"].as_f64().expect("one"));
    labels.as_array().expect("labels").iter().filter(|label| !label.is_null()).map(one).collect()
}

#[test]
fn names_and_scores_are_those_of_the_pipelines_of_transformers() {
    for name in TEXT_CLASSIFIERS.into_iter().chain(TOKEN_CLASSIFIERS) {
        let expected: Value = serde_json::from_str(&text_of(name)).expect("JSON");
        let texts: Vec<&str> = expected["texts"].as_array().expect("texts").iter().filter_map(Value::as_str).collect();
        let results = run(name, &texts);
        for (i, text) in texts.iter().enumerate() {
            let together = labels(&results["texts"][i]);
            // A pipeline sorts the classes of a text by score.
            let mut sorted = together.clone();
            if TEXT_CLASSIFIERS.contains(&name) {
                sorted.sort_by(|a, b| b.1.total_cmp(&a.1));
            }
            let stored = expected["results"][i].as_array().expect("labels");
            assert_eq!(sorted.len(), stored.len(), "{name}: {text}");
            for ((label, score), stored) in sorted.iter().zip(stored) {
                let off = (score - stored[1].as_f64().expect("a score")).abs();
                assert!(stored[0] == **label && off < 1e-5, "{name}: {text}: {label} {score}, {stored}");
            }
            // The same digits alone: JSON numbers of 32-bit floats identify the float.
            assert_eq!(labels(&run(name, &[text])), together, "{name}: {text}");
        }
    }
}

#[test]
fn lines_of_a_file_and_of_standard_input_are_texts() {
    let folder = Folder::new("classify-lines");
    let file = folder.file("lines.txt");
    let lines: Vec<String> = (0..40).map(|i| format!("text {i} {}", "ha ".repeat(i % 13))).collect();
    std::fs::write(&file, lines.join("\r\n")).expect("a file");
    let from_file = run("roberta_classifier", &["--lines", file.to_str().expect("a path")]);
    assert_eq!(from_file["texts"].as_array().map(Vec::len), Some(40));
    assert_eq!(from_file["texts"][7]["text"], lines[7].as_str());
    let mut child = Command::new(env!("CARGO_BIN_EXE_noren"))
        .args(["run", "--model", &model("roberta_classifier"), "--json", "--lines", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the command starts");
    child.stdin.take().expect("a pipe").write_all((lines.join("\n") + "\n").as_bytes()).expect("a reader");
    let output = child.wait_with_output().expect("the command ends");
    assert_eq!(serde_json::from_slice::<Value>(&output.stdout).expect("JSON"), from_file);
    let one = run("roberta_classifier", &[&lines[12]]);
    assert_eq!(labels(&one), labels(&from_file["texts"][12]));
}

#[test]
fn hidden_text_changes_no_score_and_the_proof_holds() {
    let texts = ["Mail ann@x.example now, please", "no secret", "Ring 030 1234567 or write to b@c.example soon"];
    let swapped = ["Mail bob@y.example now, please", "no secret", "Ring 040 7654321 or write to q@z.example soon"];
    for name in TEXT_CLASSIFIERS.into_iter().chain(TOKEN_CLASSIFIERS) {
        let hide = |texts: &[&str; 3]| run(name, &[&["--hide", "all"], &texts[..]].concat());
        let (own, other) = (hide(&texts), hide(&swapped));
        for i in 0..3 {
            assert_eq!(labels(&own["texts"][i]), labels(&other["texts"][i]), "{name}: text {i}");
            let proof = &own["texts"][i]["test"];
            assert_eq!(
                (&proof["holds"], proof["leaks"].as_array().map(Vec::len)),
                (&Value::Bool(i != 1), Some(0)),
                "{name}"
            );
            let hidden = own["texts"][i]["hidden"].as_array().expect("positions");
            assert_eq!(proof["secret_changed"].as_u64(), Some(hidden.len() as u64), "{name}");
            for at in hidden {
                let at = at.as_u64().expect("a position") as usize;
                assert!(own["texts"][i]["token_labels"].as_array().is_none_or(|labels| labels[at].is_null()), "{name}");
            }
        }
        // A text alone has the same scores and a proof too.
        let alone = run(name, &["--hide", "all", texts[2]]);
        assert_eq!((labels(&alone), &alone["test"]["holds"]), (labels(&own["texts"][2]), &Value::Bool(true)), "{name}");
        // Without --hide, the secret changes scores. The windows of this Mistral do not reach the secret.
        let [a, b] = [&texts, &swapped].map(|texts| labels(&run(name, &[texts[0], texts[1]])["texts"][0]));
        assert_eq!(a == b, name == "mistral_classifier", "{name}");
    }
}

#[test]
fn classes_that_would_hold_a_secret_are_withheld() {
    // A decoder computes the classes from the last token, which is hidden here.
    let text = "Write to ann@x.example";
    let both = run("llama_classifier", &["--hide", "all", text, "no secret"]);
    let withheld = both["texts"][0]["withheld"].as_str().expect("a reason");
    assert_eq!(withheld, "the class scores are computed from the last token, which is private");
    assert!(both["texts"][0]["labels"].is_null() && !both["texts"][1]["labels"].is_null());
    let alone = noren(&["run", "--model", &model("llama_classifier"), "--hide", "all", text]);
    let shown = String::from_utf8_lossy(&alone.stdout).into_owned();
    assert!(alone.status.success() && shown.contains("classes    withheld: the class scores"), "{shown}");
    // An encoder computes them from <s>, which is never hidden.
    assert!(!run("roberta_classifier", &["--hide", "all", text])["labels"].is_null());
}

#[test]
fn reports_show_names_and_probabilities() {
    let shown = |args: &[&str]| {
        let output = noren(args);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("text")
    };
    let roberta = model("roberta_classifier");
    let one = shown(&["run", "--model", &roberta, "Good day"]);
    let lines: Vec<&str> = one.lines().filter(|line| line.contains(" % ")).collect();
    assert!(lines.len() == 3 && lines[0].starts_with("classes    ") && one.contains("neutral"), "{one}");
    let several = shown(&["run", "--model", &roberta, "Good day", "no"]);
    assert!(several.starts_with("1  Good day\n   ") && several.lines().count() == 4, "{several}");
    let hidden = shown(&["run", "--model", &roberta, "--hide", "email", "Ask ann@x.example ok", "no"]);
    assert!(hidden.contains("✓ 3 runs with other secrets of the same length: all bits of"), "{hidden}");
    let value = shown(&["run", "--model", &model("distilbert_value"), "Good day", "no"]);
    assert!(value.contains("LABEL_0 ") && !value.contains('%'), "{value}");
    let tokens = shown(&["run", "--model", &model("roberta_tokens"), "Ann Lee in Rome"]);
    assert!(tokens.contains("classes    ") && tokens.contains("tokens with the class O"), "{tokens}");
}

#[test]
fn wrong_calls_are_refused() {
    let roberta = model("roberta_classifier");
    let check = |args: &[&str], said: &str| refused(&noren(&[&["run", "--model", &roberta], args].concat()), said);
    check(&["a", ""], "text 2: the text is empty");
    check(&["a", &"x".repeat(80)], "text 2: the text has 82 tokens, and the model reads 1 to 64");
    check(&["a", "-"], "--lines - reads one text from each line");
    check(&["a", "b", "--layer", "0"], "--layer is for one text");
    check(&["a", "b", "--generate", "3"], "--generate is for one text");
    check(&["a", "b", "-o", "x.svg"], "-o is for one text");
    check(&["a", "b", "--mask", "casual"], "causal");
    check(&["a", "--lines", "x.txt"], "cannot be used with");
    check(&["--lines", "/nowhere/x.txt"], "/nowhere/x.txt: cannot be read");
    let folder = Folder::new("classify-wrong");
    let file = |name: &str, bytes: &[u8]| {
        std::fs::write(folder.file(name), bytes).expect("a file");
        folder.file(name).to_str().expect("a path").to_owned()
    };
    check(&["--lines", &file("empty", b"")], "there are no lines");
    check(&["--lines", &file("blank", b"a\n\nb\n")], "text 2: the text is empty");
    check(&["--lines", &file("latin", b"caf\xe9\n")], "byte 3 is not UTF-8");
    for name in ["roberta", "roberta_mlm", "qwen2"] {
        refused(&noren(&["run", "--model", &model(name), "a", "b"]), "the model is not a classifier");
    }
    refused(&noren(&["run", "a", "b"]), "the model is not a classifier");
    refused(&noren(&["generate", "--model", &roberta, "a"]), "the model is an encoder");
    let llama = model("llama_classifier");
    refused(&noren(&["generate", "--model", &llama, "a"]), "a causal language model is needed");
}

#[test]
fn vectors_and_masks_of_the_new_families() {
    let output = noren(&["embed", "--model", &model("modernbert"), "--budget", "7", &line_file()]);
    let [first, second] =
        [0, 1].map(|i| String::from_utf8_lossy(&output.stdout).lines().nth(i).expect("a line").to_owned());
    assert_eq!(first, second, "equal lines have the bits of each other in any pack");
    let output = noren(&["inspect", "--model", &model("modernbert"), "--json"]);
    let masks: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(masks[0]["mask"], "layers(every 3: full, else: window(left=4, right=4))");
}

/// Returns the path of a file with three lines, of which the first two are equal.
fn line_file() -> String {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("classify-embed.txt");
    std::fs::write(&path, "Good day\nGood day\nIt was not bad at all\n").expect("a file");
    path.to_str().expect("a path").to_owned()
}

//! `noren run` over a text: its report, its proof and its errors.

#![cfg(feature = "models")]

use serde_json::Value;
use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

fn noren(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_noren"))
        .arg("run")
        .args(args)
        .stdin(Stdio::null())
        .output()
        .expect("the command starts")
}

fn json(args: &[&str]) -> Value {
    let output = noren(&[args, &["--json"]].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

#[track_caller]
fn refused(output: &Output, said: &str) {
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{message}");
    assert!(message.contains(said) && !message.contains("panicked"), "{message}");
    assert!(message.lines().count() <= 8, "short: {message}");
}

fn temporary(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("noren-run");
    std::fs::create_dir_all(&folder).expect("a folder");
    folder.join(name)
}

#[test]
fn a_letter_full_of_secrets_runs_by_itself() {
    let output = noren(&[]);
    let shown = String::from_utf8(output.stdout).expect("text");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    for said in [
        "⟦jane.bennet@longbourn.example⟧",
        "causal - keys(label=\"private\")",
        "attention",
        "next",
        "goes on",
        "hidden",
        "✓ 3 runs",
    ] {
        assert!(shown.contains(said), "{said} is missing:\n{shown}");
    }
    assert!(!shown.contains('\u{1b}'), "colour on no terminal");
    assert!(shown.lines().all(|line| line.chars().count() <= 140), "lines that fit");
}

#[test]
fn programs_read_it_as_json() {
    let ran = json(&["Mail ann@x.example now, or call 030 1234567; good", "--hide", "email"]);
    let hidden: Vec<usize> =
        ran["hidden"].as_array().expect("positions").iter().map(|at| at.as_u64().expect("one") as usize).collect();
    assert_eq!(hidden, (6..19).collect::<Vec<_>>());
    assert!(ran["private"]["phone"].as_array().is_some_and(|at| !at.is_empty()), "found, though not hidden");
    assert_eq!(ran["test"]["holds"], true);
    assert_eq!(ran["test"]["secret_changed"], 13);
    let attention = ran["attention"].as_array().expect("rows");
    for row in attention {
        assert!(hidden.iter().all(|key| row[*key] == 0.0), "a hidden key is read");
        let sum: f64 = row.as_array().expect("a row").iter().map(|x| x.as_f64().expect("a number")).sum();
        assert!((sum - 1.0).abs() < 1e-4);
    }
    assert_eq!(ran["tokens"].as_array().map(Vec::len), Some(attention.len()));
    assert!(ran["continued"].as_str().is_some_and(|text| !text.is_empty()));
}

#[test]
fn the_same_weights_fill_masked_bytes() {
    let ran = json(&["She was the happiest creat<mask>re in the w<mask>rld."]);
    let best: Vec<&str> =
        ran["guesses"].as_array().expect("two").iter().map(|g| g["best"][0]["token"].as_str().expect("one")).collect();
    assert_eq!((best, &ran["mask"]), (vec!["u", "o"], &Value::from("full")));
    assert!(ran["continued"].is_null());
}

#[test]
fn masks_of_ones_own_and_words_of_ones_own() {
    let ran = json(&[
        "Call Ann Lee or mail ann@x.example today",
        "--word",
        "Ann Lee",
        "--mask",
        "causal & sliding(16) - keys(label=\"email\")",
    ]);
    assert_eq!(ran["private"]["word"].as_array().map(Vec::len), Some(7));
    assert_eq!(ran["mask"], "(causal & sliding(16) - keys(label=\"email\")) - keys(label=\"private\")");
    assert_eq!(ran["test"]["holds"], true);
    // A kind that the text does not contain has an empty label.
    assert_eq!(json(&["good day", "--mask", "causal - keys(label=\"iban\")"])["test"], Value::Null);
}

#[test]
fn nothing_is_said_after_a_secret() {
    let ran = json(&["Write to ann@x.example", "--hide", "all"]);
    assert_eq!((&ran["withheld"], &ran["continued"]), (&Value::Bool(true), &Value::Null));
    assert_eq!(ran["guesses"].as_array().map(Vec::len), Some(0));
}

#[test]
fn pictures_are_whole() {
    let path = temporary("picture.svg");
    let name = path.to_str().expect("a path of this test");
    assert!(noren(&["-o", name]).status.success());
    let svg = std::fs::read_to_string(&path).expect("a picture");
    assert!(
        svg.starts_with("<svg") && svg.ends_with("</svg>\n") && svg.contains("may read") && svg.contains("all bits of")
    );
    assert!(!svg.contains("jane.bennet@"), "secrets are named by kind");
    refused(&noren(&["-o", temporary("picture.png").to_str().expect("a path")]), "this picture is written only as SVG");
    refused(&noren(&["-o", "/nowhere/picture.svg"]), "there is no folder");
}

#[test]
fn wrong_arguments_are_refused_by_name() {
    for (args, said) in [
        (&["hi there", "--hide", "emial"][..], "did you mean `email`?"),
        (&["hi", "--hide", ""], "--hide is empty"),
        (&[""], "the text is empty"),
        (&[" \n\t"], "the text is empty"),
        (&["hi", "--layer", "9"], "--layer is 9, but the model has 5 layers"),
        (&["hi", "--head", "4"], "--head is 4, but the model has 4 heads"),
        (&["hi", "--mask", "casual"], "causal"),
        (&["hi", "--mask", "causal + alibi"], "--mask has the score"),
        (&["hi", "--mask", "clearance"], "levels"),
        (&["hi", "--mask", "causal & padding"], "a text is one batch row without padding"),
        (&["hi", "--word", " "], "is not a word"),
        (&["hi", "--model", "/nowhere"], "there is no such folder"),
        (&["hi", "--input", "x.safetensors"], "cannot be used with"),
        (&["--input", "x.safetensors"], "--model and -o is missing"),
        (&["hi", "--mask", "none"], ""),
    ] {
        let output = noren(args);
        match said {
            "" => assert!(
                output.status.success(),
                "a token that reads nothing is legal: {}",
                String::from_utf8_lossy(&output.stderr)
            ),
            said => refused(&output, said),
        }
    }
    let long = "word ".repeat(500);
    refused(&noren(&[&long]), "the text has 2501 tokens: at most 1024 can be shown");
}

fn with_input(bytes: &[u8]) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_noren"))
        .args(["run", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the command starts");
    // The command stops reading when the text is too long.
    let _ = child.stdin.take().expect("a pipe").write_all(bytes);
    child.wait_with_output().expect("the command ends")
}

#[test]
fn standard_input_is_text_or_refused() {
    assert!(with_input("ein schöner Tag".as_bytes()).status.success());
    refused(&with_input(b""), "the text is empty");
    refused(&with_input(b"caf\xe9"), "standard input: byte 3 is not UTF-8");
    refused(&with_input(&vec![b'a'; (1 << 20) + 1]), "more than 1048576 bytes");
    // Terminal control characters are replaced by visible characters.
    let shown = with_input("a\u{1b}[31mred\u{7} text".as_bytes());
    assert!(shown.status.success() && !shown.stdout.contains(&0x1b) && !shown.stdout.contains(&7));
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_reported() {
    let full = || Stdio::from(File::options().write(true).open("/dev/full").expect("a full disk"));
    let mut command = Command::new(env!("CARGO_BIN_EXE_noren"));
    let output = command.args(["run", "hi"]).stdout(full()).output().expect("the command starts");
    refused(&output, "the output cannot be written: No space left");
    refused(&noren(&["hi", "-o", "/dev/full"]), "No space left");
}

#[test]
fn reports_name_the_kinds_that_were_not_looked_for() {
    let text = "Call Ann Lee on 030 1234567 please";
    let ran = json(&[text, "--hide", "phone"]);
    let looked_for: Vec<&str> = ran["looked_for"].as_array().expect("kinds").iter().filter_map(Value::as_str).collect();
    assert_eq!(looked_for, noren_text::BUILT_IN);
    let not = "names, places, organizations and any other kind of private text were not looked for, and the text may hold them";
    assert_eq!(ran["not_looked_for"], not);
    for args in [&[text, "--hide", "phone"][..], &[text], &["good day"], &[]] {
        let shown = String::from_utf8(noren(args).stdout).expect("text");
        let plain = shown.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(plain.contains("looked for email, phone, card") && plain.contains(not), "{shown}");
        assert!(!shown.contains("nothing else"), "{shown}");
    }
    let path = temporary("looked-for.svg");
    assert!(noren(&[text, "--hide", "phone", "-o", path.to_str().expect("a path")]).status.success());
    assert!(std::fs::read_to_string(path).expect("a picture").contains("were not looked for"));
}

#[test]
fn a_detector_that_is_none_is_refused() {
    let models = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../testdata/conformance/models");
    let bert = models.join("bert");
    refused(&noren(&["hi", "--detector-model", bert.to_str().expect("a path")]), "the model does not classify tokens");
    refused(&noren(&["hi", "--detector-model", "/nowhere"]), "there is no such folder");
    let given = ["--input", "x.safetensors", "--detector-model", "y"];
    refused(&noren(&given), "cannot be used with");
}

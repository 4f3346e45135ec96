//! `noren train`: a run that is killed at any time continues and writes equal files; errors name the wrong input.

#![cfg(feature = "models")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

const CONFIG: &str = r#"{"model": {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 64,
    "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 2,
    "max_position_embeddings": 64, "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "hidden_act": "silu",
    "tie_word_embeddings": true}, "rows": 2, "row_len": 32, "warmup": 2, "steps": 120, "validate_every": 1, "validate_rows": 2}"#;
const FILES: [&str; 5] = ["model.safetensors", "checkpoint.safetensors", "loss.svg", "config.json", "tokenizer.json"];

/// Creates a folder that contains only a text and a configuration.
fn folder(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("noren-train").join(name);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    let text: String = (0..300).map(|n| format!("The {n}th sheep jumps over {} hedges.\n", n % 7)).collect();
    fs::write(folder.join("text.txt"), text).unwrap();
    fs::write(folder.join("config.json"), CONFIG).unwrap();
    folder
}

fn command(folder: &Path, output: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_noren"));
    let args = ["train", "--data", "text.txt", "--objective", "both", "--config", "config.json", "-o", output];
    command.args(args).current_dir(folder).env("NO_COLOR", "1").env("RAYON_NUM_THREADS", "1");
    command.stdout(Stdio::null()).stderr(Stdio::null());
    command
}

/// Starts training and kills it (SIGKILL) when `when` returns true. Returns true if the training ended before that.
fn killed(folder: &Path, when: impl Fn(&mut Child, Instant) -> bool) -> bool {
    let mut child = command(folder, "killed").spawn().unwrap();
    let begun = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            assert!(status.success(), "training failed");
            return true;
        }
        if when(&mut child, begun) {
            child.kill().unwrap();
            child.wait().unwrap();
            return false;
        }
        std::thread::sleep(Duration::from_micros(50));
    }
}

/// A run that ends before its first validation, for example by Ctrl-C, has a checkpoint, and continues from it.
#[test]
fn killed_before_the_first_validation_it_continues() {
    let folder = folder("early");
    fs::write(folder.join("config.json"), CONFIG.replace("\"validate_every\": 1,", "\"validate_every\": 1000,"))
        .unwrap();
    assert!(command(&folder, "whole").status().unwrap().success());
    let checkpoint = folder.join("killed").join("checkpoint.safetensors");
    assert!(!killed(&folder, |_, _| checkpoint.exists()), "the run ended too early");
    let mut early = Command::new(env!("CARGO_BIN_EXE_noren"));
    let early = early.args(["generate", "--model", "killed", "-n", "1", "The"]).current_dir(&folder).output().unwrap();
    let text = String::from_utf8_lossy(&early.stderr);
    assert!(text.contains("killed: the training in this folder has not ended"), "{text}");
    let output = command(&folder, "killed").stdout(Stdio::piped()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        text.contains("the training continued from step 1\n")
            && text.contains("after Ctrl-C, the same command continues"),
        "{text}"
    );
    for file in FILES {
        let [whole, killed] = ["whole", "killed"].map(|output| fs::read(folder.join(output).join(file)).unwrap());
        assert!(whole == killed, "{file}");
    }
}

#[test]
fn killed_at_any_moment_it_ends_with_the_same_weights() {
    let folder = folder("kill");
    let begun = Instant::now();
    assert!(command(&folder, "whole").status().unwrap().success());
    let whole = begun.elapsed();

    // Kills the training at several times of a run, and while a checkpoint is written.
    let part = folder.join("killed/checkpoint.safetensors.part");
    let (mut kills, mut writing) = (0, 0);
    let done = loop {
        if kills % 2 == 1 {
            // A file that the last kill left is not a sign of writing.
            let _ = fs::remove_file(&part);
        }
        let ended = match kills % 2 {
            0 => killed(&folder, |_, begun| begun.elapsed() > whole * (1 + kills * 7 % 5) / 60),
            _ => killed(&folder, |_, _| part.exists()),
        };
        if ended || kills == 60 {
            break ended;
        }
        kills += 1;
        writing += u32::from(part.exists());
    };
    if !done {
        assert!(command(&folder, "killed").status().unwrap().success());
    }
    println!("{kills} kills, {writing} of them while a checkpoint was written");
    assert!(kills >= 3 && writing >= 1, "{kills} kills, {writing} while writing: the test tests nothing");
    for file in FILES {
        let [a, b] = ["whole", "killed"].map(|run| fs::read(folder.join(run).join(file)).unwrap());
        assert!(a == b, "{file} differs");
    }
}

fn refused(folder: &Path, change: impl Fn(&mut Command)) -> String {
    let mut command = command(folder, "out");
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    change(&mut command);
    let Output { status, stderr, .. } = command.output().unwrap();
    assert_eq!(status.code(), Some(2), "{}", String::from_utf8_lossy(&stderr));
    assert!(!folder.join("out/model.safetensors").exists());
    String::from_utf8(stderr).unwrap()
}

#[test]
fn bad_input_is_refused_by_name() {
    let folder = folder("bad");
    let with_config = |text: &str| {
        fs::write(folder.join("config.json"), text).unwrap();
        refused(&folder, |_| {})
    };
    let key = |key: &str, value: &str| with_config(&CONFIG.replacen("\"rows\": 2", &format!("\"{key}\": {value}"), 1));
    for (key_, value, said) in [
        ("rows", "0", "rows is 0: at least 1"),
        ("rows", "1000000000000", "rows is 1000000000000"),
        ("accumulate", "1000000000000", "accumulate is 1000000000000"),
        ("learning_rate", "-1", "learning_rate is -1"),
        ("floor", "2", "floor is 2"),
        ("betas", "[0.9, 1.0]", "betas is 1"),
        ("separator", "\"\"", "separator is empty"),
        ("lerning_rate", "0.1", "unknown field `lerning_rate`"),
    ] {
        let message = key(key_, value);
        assert!(message.contains(said), "{key_} = {value}: {message}");
    }
    assert!(with_config("{").contains("config.json"));
    assert!(with_config(&CONFIG.replace("llama", "mamba")).contains("model_type is \"mamba\""));
    assert!(with_config(&CONFIG.replace("\"row_len\": 32", "\"row_len\": 3200")).contains("row_len is 3200"));
    let huge = with_config(&CONFIG.replace("\"hidden_size\": 64", "\"hidden_size\": 100000000000"));
    assert!(huge.contains("error:") && !huge.contains("panicked"), "{huge}");
    fs::write(folder.join("config.json"), CONFIG).unwrap();

    for (text, said) in [
        (&b""[..], "the text is empty"),
        (b" \n\n ", "the text is empty"),
        (b"caf\xe9 au lait", "byte 3 is not UTF-8"),
        (b"short", "training and validation need at least one row each"),
    ] {
        fs::write(folder.join("text.txt"), text).unwrap();
        let message = refused(&folder, |_| {});
        assert!(message.contains(said), "{message}");
    }
    fs::remove_file(folder.join("text.txt")).unwrap();
    assert!(refused(&folder, |_| {}).contains("text.txt: the file cannot be read"));
    let message = refused(&folder, |command| {
        command.args(["--objective", "clm"]);
    });
    assert!(message.contains("--objective"), "{message}");
}

#[test]
fn one_run_at_a_time_trains_into_a_folder() {
    let folder = folder("lock");
    fs::create_dir(folder.join("out")).unwrap();
    let lock = fs::File::open(folder.join("out")).unwrap();
    lock.lock().unwrap();
    assert!(refused(&folder, |_| {}).contains("another training run uses this folder"));
}

#[test]
fn documents_are_parted_whatever_ends_their_lines() {
    let folder = folder("lines");
    let text = "a line\r\nof one\r\n\r\n".repeat(40);
    fs::write(folder.join("config.json"), CONFIG.replace("120", "3")).unwrap();
    for text in [text.clone(), text.replace('\r', "")] {
        fs::write(folder.join("text.txt"), text).unwrap();
        let output = command(&folder, "out").stdout(Stdio::piped()).output().unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success() && said.contains("40 documents"), "{said}");
    }
}

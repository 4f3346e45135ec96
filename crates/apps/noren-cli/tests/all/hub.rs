//! Models by name: downloaded from a hub on this machine, or read from the cache.

#![cfg(feature = "hub")]

use crate::common::{Folder, noren, refused};
use serde_json::json;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

fn checkpoint() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../testdata/conformance/models/llama")
}

/// A hub with one model, `some/llama`, in several files.
struct Hub {
    address: String,
    /// The requested files, and the index of the first requested byte.
    asked: Arc<Mutex<Vec<(String, usize)>>>,
    /// Number of bytes of weights after which the connection ends; later responses are complete.
    breaks_after: Arc<AtomicUsize>,
}

impl Hub {
    fn new(files: Vec<(&'static str, Vec<u8>)>) -> Hub {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let hub = Hub {
            address: format!("http://{}", listener.local_addr().unwrap()),
            asked: Arc::default(),
            breaks_after: Arc::new(usize::MAX.into()),
        };
        let (asked, breaks_after) = (hub.asked.clone(), hub.breaks_after.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                answer(stream.unwrap(), &files, &asked, &breaks_after);
            }
        });
        hub
    }

    /// Runs `noren inspect` with the name of the model.
    fn inspect(&self, cache: &Path, offline: bool) -> Output {
        inspect(&self.address, cache, offline, "some/llama")
    }

    fn asked(&self) -> Vec<(String, usize)> {
        std::mem::take(&mut self.asked.lock().unwrap())
    }
}

fn inspect(endpoint: &str, cache: &Path, offline: bool, name: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_noren"));
    command.args(["inspect", "--model", name]).env("HF_ENDPOINT", endpoint).env("HF_HUB_CACHE", cache);
    command.env("HF_TOKEN", "hf_secret").env("HF_HUB_OFFLINE", if offline { "1" } else { "0" });
    command.output().unwrap()
}

/// Answers one request, as the hub does, and closes the connection.
fn answer(
    mut stream: TcpStream,
    files: &[(&str, Vec<u8>)],
    asked: &Mutex<Vec<(String, usize)>>,
    breaks_after: &AtomicUsize,
) {
    let lines: Vec<String> =
        BufReader::new(&stream).lines().map_while(Result::ok).take_while(|line| !line.is_empty()).collect();
    let Some(path) = lines.first().and_then(|line| line.split(' ').nth(1)) else { return };
    let header = |name: &str| {
        let found =
            lines.iter().filter_map(|line| line.split_once(": ")).find(|(key, _)| key.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value)
    };
    assert_eq!(header("authorization"), Some("Bearer hf_secret"));
    let say = |stream: &mut TcpStream, status: &str, more: &str, body: &[u8], sent: usize| {
        let head = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n{more}\r\n", body.len());
        let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&body[..sent.min(body.len())]));
    };
    if path.starts_with("/api/models/some/llama") {
        let siblings: Vec<_> = files.iter().map(|(name, _)| json!({"rfilename": name})).collect();
        let body = json!({"siblings": siblings, "sha": COMMIT}).to_string();
        return say(&mut stream, "200 OK", "", body.as_bytes(), usize::MAX);
    }
    let name = path.strip_prefix("/some/llama/resolve/main/");
    let Some((name, bytes)) = files.iter().find(|(file, _)| Some(*file) == name) else {
        return say(&mut stream, "404 Not Found", "", b"", 0);
    };
    let range = header("range").and_then(|range| range.strip_prefix("bytes=")?.split_once('-')).unwrap();
    let from: usize = range.0.parse().unwrap();
    let to = range.1.parse::<usize>().map_or(bytes.len(), |last| last + 1);
    let about = format!(
        "etag: \"{name}\"\r\nx-repo-commit: {COMMIT}\r\ncontent-range: bytes {from}-{}/{}\r\n",
        to - 1,
        bytes.len()
    );
    let is_probe = range.1 == "0";
    let sent = match name.ends_with(".safetensors") && !is_probe {
        true => breaks_after.swap(usize::MAX, Ordering::Relaxed),
        false => usize::MAX,
    };
    if !is_probe {
        asked.lock().unwrap().push((name.to_string(), from));
    }
    say(&mut stream, "206 Partial Content", &about, &bytes[from..to], sent);
}

fn file(name: &str) -> Vec<u8> {
    std::fs::read(checkpoint().join(name)).unwrap()
}

#[test]
fn a_model_is_fetched_once_and_a_download_that_was_cut_off_goes_on() {
    let hub = Hub::new(vec![
        ("README.md", b"nothing to load".to_vec()),
        ("config.json", file("config.json")),
        ("model.safetensors", file("model.safetensors")),
        ("pytorch_model.bin", b"nothing to load".to_vec()),
        ("tokenizer.json", b"{}".to_vec()),
    ]);
    let folder = Folder::new("hub-once");
    let cache = folder.file("cache");
    let cut = file("model.safetensors").len() / 3;
    hub.breaks_after.store(cut, Ordering::Relaxed);
    refused(&hub.inspect(&cache, false), "the Hugging Face hub cannot provide the model");
    let names: Vec<String> = hub.asked().into_iter().map(|(name, _)| name).collect();
    assert_eq!(
        names,
        ["config.json", "tokenizer.json", "model.safetensors"],
        "the weights come last, other files never"
    );
    refused(&hub.inspect(&cache, true), "does not contain the model (HF_HUB_OFFLINE is set)");

    let fetched = hub.inspect(&cache, false);
    assert!(fetched.status.success(), "{}", String::from_utf8_lossy(&fetched.stderr));
    assert_eq!(hub.asked(), [("model.safetensors".to_owned(), cut)], "only what was missing");
    let cached = hub.inspect(&cache, true);
    assert_eq!(cached.stdout, fetched.stdout);
    assert!(hub.asked().is_empty());
    let of_folder = noren(&["inspect", "--model", checkpoint().to_str().unwrap()]);
    let of_folder = String::from_utf8(of_folder.stdout).unwrap();
    let said = String::from_utf8(fetched.stdout).unwrap();
    assert_eq!(said.lines().skip(1).collect::<Vec<_>>(), of_folder.lines().skip(1).collect::<Vec<_>>());
}

#[test]
fn a_cache_that_lacks_a_shard_is_filled() {
    let shard = "model-00001-of-00001.safetensors";
    let names = noren_models::candle_core::safetensors::load(
        checkpoint().join("model.safetensors"),
        &noren_models::candle_core::Device::Cpu,
    );
    let map: serde_json::Map<_, _> = names.unwrap().into_keys().map(|name| (name, json!(shard))).collect();
    let index = json!({"metadata": {}, "weight_map": map}).to_string().into_bytes();
    let hub = Hub::new(vec![
        ("model.safetensors.index.json", index),
        (shard, file("model.safetensors")),
        ("config.json", file("config.json")),
    ]);
    let folder = Folder::new("hub-shards");
    let cache = folder.file("cache");
    let fetched = hub.inspect(&cache, false);
    assert!(fetched.status.success(), "{}", String::from_utf8_lossy(&fetched.stderr));
    let names: Vec<String> = hub.asked().into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["config.json", shard, "model.safetensors.index.json"]);
    // Tools that download files in parallel can leave the cache in this state.
    std::fs::remove_file(cache.join("models--some--llama/snapshots").join(COMMIT).join(shard)).unwrap();
    refused(&hub.inspect(&cache, true), "does not contain the model (HF_HUB_OFFLINE is set)");
    assert_eq!(hub.inspect(&cache, false).stdout, fetched.stdout);
}

#[test]
fn an_unreachable_hub_is_reported_and_the_cache_needs_none() {
    let folder = Folder::new("hub-none");
    let cache = folder.file("cache");
    let ask = |offline: bool, name: &str| inspect("http://127.0.0.1:9", &cache, offline, name);
    refused(
        &ask(false, "nobody/nothing"),
        "there is no such folder, and the Hugging Face hub cannot provide the model",
    );
    refused(&ask(true, "nobody/nothing"), "does not contain the model (HF_HUB_OFFLINE is set)");
    let snapshot = cache.join("models--some--llama/snapshots/abc");
    std::fs::create_dir_all(&snapshot).unwrap();
    std::fs::create_dir_all(cache.join("models--some--llama/refs")).unwrap();
    std::fs::write(cache.join("models--some--llama/refs/main"), "abc").unwrap();
    for name in ["config.json", "model.safetensors"] {
        std::fs::write(snapshot.join(name), file(name)).unwrap();
    }
    assert!(ask(true, "some/llama").status.success());
}

#[test]
fn names_that_the_hub_does_not_have_are_reported() {
    let hub = Hub::new(vec![("model.safetensors", file("model.safetensors"))]);
    let folder = Folder::new("hub-hostile");
    refused(&hub.inspect(&folder.file("cache"), false), "the model has no config.json on the Hugging Face hub");
    let other = inspect(&hub.address, &folder.file("cache"), false, "some/other");
    refused(&other, "the Hugging Face hub cannot provide the model");
}

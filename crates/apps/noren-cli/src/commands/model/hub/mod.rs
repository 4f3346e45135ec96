//! Finds the files of a model: in a folder, in the cache of the tools of Hugging Face, or on the Hugging Face hub.

#[cfg(feature = "hub")]
mod cache;
#[cfg(feature = "hub")]
mod download;

use crate::failure::{Failure, Result};
#[cfg(feature = "hub")]
use cache::Cache;
use std::path::{Path, PathBuf};

/// Returns the folder of a model. `given` is a folder or the name of a model on the hub; `more` are optional files that
/// the command can use.
///
/// A folder is returned unchanged. A model name is searched in the cache first (`HF_HUB_CACHE`, or `hub` in `HF_HOME`),
/// so a model in the cache needs no network. Files that the cache does not contain are downloaded. If only files in
/// `more` are missing, a failed download is not an error.
pub(crate) fn folder(given: &Path, more: &[&str]) -> Result<PathBuf> {
    if given.is_dir() {
        if given.join("checkpoint.safetensors").exists() && !given.join("model.safetensors").exists() {
            let problem = format!("{}: the training in this folder has not ended", given.display());
            return Err(
                Failure::new(problem).hint("the same `noren train` continues it, and writes the model at its end")
            );
        }
        return Ok(given.to_owned());
    }
    let name = given.to_str().filter(|name| is_name(name) && !given.exists());
    let missing = format!("{}: there is no such folder", given.display());
    let hint = "--model takes a folder with config.json and model.safetensors, as save_pretrained writes them";
    let Some(name) = name else { return Err(Failure::new(missing).hint(hint)) };
    named(name, more).map_err(|problem| {
        let hint = format!("{hint}; this command downloads the model to the cache: hf download {name}");
        Failure::new(format!("{missing}, and {problem}")).hint(hint)
    })
}

/// Returns true if a text can be the name of a model: `name` or `owner/name`.
fn is_name(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let part = |part: &str| part.starts_with(|c: char| c.is_ascii_alphanumeric()) && part.chars().all(plain);
    text.len() <= 96 && text.split('/').count() <= 2 && text.split('/').all(part)
}

#[cfg(not(feature = "hub"))]
fn named(_: &str, _: &[&str]) -> std::result::Result<PathBuf, String> {
    Err("this program was built without the feature `hub`, so it cannot download models: give the folder of a model"
        .to_owned())
}

#[cfg(feature = "hub")]
fn named(name: &str, more: &[&str]) -> std::result::Result<PathBuf, String> {
    let cache = Cache::find().ok_or("there is no cache: neither HF_HOME nor a home folder is set")?;
    let known = cached(&cache, name);
    if let Some(folder) = known.as_ref().filter(|folder| more.iter().all(|file| folder.join(file).exists())) {
        return Ok(folder.clone());
    }
    let fetched = match std::env::var_os("HF_HUB_OFFLINE").is_some_and(|on| !on.is_empty() && on != "0") {
        true => Err(format!("the cache {} does not contain the model (HF_HUB_OFFLINE is set)", cache.path().display())),
        false => fetch(&cache, name),
    };
    fetched.or_else(|problem| known.ok_or(problem))
}

/// Downloads the model files that are not in the cache, and returns the folder of the model in the cache.
#[cfg(feature = "hub")]
fn fetch(cache: &Cache, name: &str) -> std::result::Result<PathBuf, String> {
    let failed = |problem: String| format!("the Hugging Face hub cannot provide the model: {problem}");
    let (hub, repo) = (download::Hub::new(cache), cache.model(name));
    let mut files: Vec<String> = hub.files(name).map_err(failed)?.into_iter().filter(|file| is_wanted(file)).collect();
    // The files by which `cached` finds a model are downloaded last, so that an unfinished download is continued.
    files.sort_by_key(|file| (WEIGHTS.contains(&file.as_str()), file.clone()));
    if !files.iter().any(|file| file == "config.json") {
        return Err("the model has no config.json on the Hugging Face hub".to_owned());
    }
    let mut folder = PathBuf::new();
    for file in &files {
        let path = hub.get(&repo, name, file).map_err(failed)?;
        if file == "config.json" {
            folder = path.parent().map(Path::to_owned).unwrap_or_default();
        }
    }
    Ok(folder)
}

/// The names of the file that contains the weights, and of the file that lists several files of weights.
#[cfg(feature = "hub")]
const WEIGHTS: [&str; 2] = ["model.safetensors", "model.safetensors.index.json"];

/// Returns the folder of a model in the cache; `None` if the configuration or a file of weights is not in the cache.
#[cfg(feature = "hub")]
fn cached(cache: &Cache, name: &str) -> Option<PathBuf> {
    let files = cache.model(name);
    let config = files.get("config.json")?;
    let weights = WEIGHTS.iter().find_map(|file| files.get(file))?;
    let listed = || -> Option<Vec<String>> {
        let list: serde_json::Value = serde_json::from_slice(&std::fs::read(&weights).ok()?).ok()?;
        list["weight_map"].as_object()?.values().map(|file| file.as_str().map(str::to_owned)).collect()
    };
    let all = weights.extension() != Some("json".as_ref())
        || listed().is_none_or(|parts| parts.iter().all(|part| files.get(part).is_some()));
    config.parent().filter(|_| all).map(Path::to_owned)
}

/// Returns true for the name of a file that noren reads to load a model. Files in subfolders are excluded, except the
/// configuration of the pooling.
#[cfg(feature = "hub")]
fn is_wanted(file: &str) -> bool {
    let known = ["config.json", "tokenizer.json", "modules.json", "sentence_bert_config.json", "1_Pooling/config.json"];
    let weights = file.starts_with("model") && !file.contains('/');
    known.contains(&file) || weights && (file.ends_with(".safetensors") || file.ends_with(".safetensors.index.json"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_paths_are_distinguished() {
        assert!(["gpt2", "sentence-transformers/all-MiniLM-L6-v2", "a/b.c_d"].iter().all(|name| is_name(name)));
        assert!(
            ["", "/tmp/x", "./x", "../x", "a/b/c", "a//b", "a/", "a b", "a/../b"].iter().all(|name| !is_name(name))
        );
    }

    #[cfg(feature = "hub")]
    #[test]
    fn only_a_models_files_are_wanted() {
        assert!(
            ["config.json", "model-00001-of-00002.safetensors", "1_Pooling/config.json"].iter().all(|f| is_wanted(f))
        );
        assert!(
            ["pytorch_model.bin", "onnx/model.safetensors", "../config.json", "model.py"].iter().all(|f| !is_wanted(f))
        );
    }
}

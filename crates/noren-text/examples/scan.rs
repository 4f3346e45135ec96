//! Lists and counts the findings of the detectors in files and folders, by kind. In files without secrets, every
//! finding is a false alarm.
//!
//! ```sh
//! cargo run --release -p noren-text --example scan -- [--kinds email,card] [--bytes 2000000] PATH...
//! ```

use noren_text::{Detectors, outermost};
use std::collections::BTreeMap;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// The maximum number of bytes printed of each finding.
const SHOWN: usize = 60;

fn main() -> Result<(), Box<dyn Error>> {
    let (mut kinds, mut most, mut paths) = ("all".to_owned(), u64::MAX, Vec::new());
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--kinds" => {
                kinds = args
                    .next()
                    .ok_or("--kinds needs names of detectors with commas between them, such as email,card")?
            }
            "--bytes" => {
                most = args
                    .next()
                    .ok_or("--bytes needs a number: the maximum number of bytes of all files together")?
                    .parse()?
            }
            _ => paths.push(PathBuf::from(arg)),
        }
    }
    if paths.is_empty() {
        return Err("give files or folders of text".into());
    }
    let detectors: Detectors = kinds.parse()?;
    let mut files = Vec::new();
    paths.iter().try_for_each(|path| list(path, &mut files))?;
    let (mut counts, mut bytes, mut read) = (BTreeMap::new(), 0, 0);
    let start = Instant::now();
    for file in files {
        let Ok(text) = std::fs::read_to_string(&file) else { continue };
        if bytes + text.len() as u64 > most {
            continue;
        }
        bytes += text.len() as u64;
        read += 1;
        for finding in outermost(&detectors.find(&text)?) {
            *counts.entry(finding.kind.to_string()).or_insert(0u64) += 1;
            let line = text[..finding.range.start].matches('\n').count() + 1;
            let shown: String = text[finding.range.clone()].chars().take(SHOWN).collect();
            println!("{}:{line}: {}: {shown:?}", file.display(), finding.kind);
        }
    }
    let total: u64 = counts.values().sum();
    let megabytes = bytes as f64 / 1e6;
    println!("{total} findings in {megabytes:.2} MB of {read} files, {:.1} s", start.elapsed().as_secs_f64());
    for kind in detectors.kinds() {
        println!("{:>6} {kind}", counts.get(kind.as_str()).copied().unwrap_or(0));
    }
    println!("{}", detectors.not_looked_for());
    Ok(())
}

/// Adds all files below `path` to `files`, sorted. Leaves out folders whose names begin with a dot, and build outputs.
fn list(path: &Path, files: &mut Vec<PathBuf>) -> std::io::Result<()> {
    if !path.is_dir() {
        files.push(path.to_owned());
        return Ok(());
    }
    let mut entries = std::fs::read_dir(path)?.collect::<std::io::Result<Vec<_>>>()?;
    entries.sort_by_key(std::fs::DirEntry::file_name);
    for entry in entries {
        let name = entry.file_name();
        let skipped = name.to_string_lossy().starts_with('.') || name == "target" || name == "node_modules";
        // Links may form a cycle.
        if !skipped && !entry.file_type()?.is_symlink() {
            list(&entry.path(), files)?;
        }
    }
    Ok(())
}

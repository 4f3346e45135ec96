//! Writes the list of the page's files. `src/page.rs` includes this list in the program.

use std::io::Result;
use std::path::{Path, PathBuf};

fn main() -> Result<()> {
    println!("cargo::rerun-if-changed=page");
    let folder = Path::new(&std::env::var("CARGO_MANIFEST_DIR").expect("cargo sets CARGO_MANIFEST_DIR")).join("page");
    let mut files = Vec::new();
    collect(&folder, &mut files)?;
    files.sort();
    let entries: String = files
        .iter()
        .filter(|file| file.extension().is_some_and(|end| end != "md"))
        .map(|file| {
            let name = file
                .strip_prefix(&folder)
                .expect("each listed file is below the folder of the page")
                .to_string_lossy()
                .replace('\\', "/");
            format!("    ({name:?}, include_bytes!({:?})),\n", file.to_string_lossy())
        })
        .collect();
    let out = PathBuf::from(std::env::var("OUT_DIR").expect("cargo sets OUT_DIR"));
    std::fs::write(out.join("page.rs"), format!("const FILES: &[(&str, &[u8])] = &[\n{entries}];\n"))
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, files)?;
        } else {
            files.push(path);
        }
    }
    Ok(())
}

//! The corpus `testdata/*.toml`: masks with drawings of their cells, and invalid masks with their error messages.

use noren_mask::{BoundMask, Facts, Mask, Shape};
use serde::Deserialize;
use std::fs;
use std::path::PathBuf;

/// A test case: a mask, its shape and facts, and its cells or its error message.
#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub struct Case {
    /// The name of the case in its file.
    pub name: String,
    /// The mask, as text.
    pub mask: String,
    layer: Option<usize>,
    len: Option<usize>,
    q: Option<usize>,
    kv: Option<usize>,
    offset: Option<OneOrEach>,
    past: Option<usize>,
    new: Option<usize>,
    #[serde(default = "one")]
    batch: usize,
    #[serde(default = "one")]
    heads: usize,
    kv_heads: Option<usize>,
    #[serde(default)]
    facts: String,
    cells: Option<String>,
    #[serde(default)]
    cells_by_batch: Vec<String>,
    #[serde(default)]
    cells_by_head: Vec<String>,
    #[serde(default)]
    cells_by_batch_and_head: Vec<Vec<String>>,
    /// The expected error message, for an invalid mask.
    pub message: Option<String>,
}

#[derive(Deserialize, Debug, Clone)]
#[serde(untagged)]
enum OneOrEach {
    One(i64),
    Each(Vec<i64>),
}

fn one() -> usize {
    1
}

impl Case {
    /// Returns the case's shape.
    pub fn shape(&self) -> Shape {
        let shape = match (self.len, self.q, self.kv, self.past, self.new) {
            (Some(len), None, None, None, None) => Shape::square(len),
            (None, Some(q), Some(kv), None, None) => match self.offset.clone().expect("q and kv come with an offset") {
                OneOrEach::One(offset) => Shape::new(q, kv, offset),
                OneOrEach::Each(offsets) => Shape::cross(q, kv).query_offsets(offsets),
            },
            (None, None, None, Some(past), Some(new)) => Shape::cached(past, new),
            _ => panic!("{}: give len, or q, kv and offset, or past and new", self.name),
        };
        let shape = shape.batch(self.batch).heads(self.heads);
        self.kv_heads.map_or(shape.clone(), |kv_heads| shape.kv_heads(kv_heads))
    }

    /// Returns the case's facts, or the error message for invalid facts.
    ///
    /// # Errors
    /// Returns the error message for invalid facts.
    pub fn facts(&self) -> Result<Facts, String> {
        if self.facts.is_empty() { Ok(Facts::new()) } else { Facts::from_json(&self.facts).map_err(|e| e.to_string()) }
    }

    /// Returns the mask of the case's layer, or the error message for an invalid mask.
    ///
    /// # Errors
    /// Returns the error message for an invalid mask.
    pub fn mask(&self) -> Result<Mask, String> {
        let mask: Mask = self.mask.parse().map_err(|e: noren_mask::ParseError| e.to_string())?;
        Ok(self.layer.map_or(mask.clone(), |layer| mask.at_layer(layer)))
    }

    /// Returns the bound mask, or the error message for an invalid mask, invalid facts or their combination.
    ///
    /// # Errors
    /// Returns the error message for an invalid mask, for invalid facts, or for facts that do not fit the mask.
    pub fn bind(&self) -> Result<BoundMask, String> {
        self.mask()?.bind(&self.shape(), &self.facts()?).map_err(|e| e.to_string())
    }

    /// Returns the drawing of the cells of a batch row and head, with one text line for each query.
    pub fn drawn(&self, batch: usize, head: usize) -> &str {
        let drawn = match &self.cells {
            Some(cells) => cells,
            None if !self.cells_by_batch.is_empty() => &self.cells_by_batch[batch],
            None if !self.cells_by_head.is_empty() => &self.cells_by_head[head],
            None => &self.cells_by_batch_and_head[batch][head],
        };
        drawn.trim_end()
    }
}

#[derive(Deserialize)]
struct File {
    case: Vec<Case>,
}

/// Returns all cases with drawings from all files, `(name of the file, case)`.
pub fn cases() -> Vec<(String, Case)> {
    read().into_iter().filter(|(_, case)| case.message.is_none()).collect()
}

/// Returns all cases with error messages from all files, `(name of the file, case)`.
pub fn refused() -> Vec<(String, Case)> {
    read().into_iter().filter(|(_, case)| case.message.is_some()).collect()
}

/// Returns the folder `testdata` of the repository.
pub fn testdata() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../testdata")
}

fn read() -> Vec<(String, Case)> {
    let mut files: Vec<PathBuf> =
        fs::read_dir(testdata()).expect("testdata").map(|e| e.expect("an entry").path()).collect();
    files.retain(|path| path.extension().is_some_and(|e| e == "toml"));
    files.sort();
    let mut all = Vec::new();
    for path in files {
        let name = path.file_stem().expect("a file").to_string_lossy().into_owned();
        let text = fs::read_to_string(&path).expect("a text");
        let file: File = toml::from_str(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
        all.extend(file.case.into_iter().map(|case| (name.clone(), case)));
    }
    all
}

//! Safetensors files: reading and writing. The header is checked before other data is read, and only requested tensors
//! are read.
//!
//! A file consists of the length of the header (8 bytes, little endian), a JSON header with `dtype`, `shape` and
//! `data_offsets` of each tensor by name, and the data. Tensors must follow one another without gaps or overlaps, up to
//! the end of the file.

use crate::error::{Error, Result};
use crate::stored::{Kind, MOST_MEMORY, Stored};
use noren_doctor::{Numbers, Values};
use safetensors::Dtype;
use safetensors::tensor::{Metadata, TensorInfo};
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};
use std::collections::HashSet;
use std::io::{Read, Seek, SeekFrom, Write};

/// The maximum length of a header, in bytes. The crate that parses headers also refuses longer headers.
const MOST_HEADER: u64 = 100_000_000;
/// The number of bytes of a file that are converted at a time.
const PIECE: usize = 1 << 18;

/// The values of one tensor, with its shape.
#[derive(Clone, PartialEq, Debug)]
pub struct Tensor {
    /// The shape, as in the file.
    pub shape: Vec<usize>,
    /// The values in row-major order.
    pub data: Vec<f32>,
}

/// An open safetensors file with a checked header.
pub struct TensorFile<R> {
    reader: R,
    name: String,
    header: Metadata,
    /// The index of the byte in the file at which the data of the tensors begins.
    start: u64,
}

impl TensorFile<std::fs::File> {
    /// Opens a file and checks its header.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read, or if it is not a valid safetensors file.
    pub fn open(path: &std::path::Path) -> Result<Self> {
        let name = path.display().to_string();
        let read = |e: std::io::Error| {
            Error::new(format!("{name}: the file cannot be read: {e}")).hint("give a safetensors file with q, k and v")
        };
        let file = std::fs::File::open(path).map_err(read)?;
        let about = file.metadata().map_err(read)?;
        if !about.is_file() {
            return Err(Error::new(format!("{name}: this is not a regular file"))
                .hint("give a safetensors file with q, k and v"));
        }
        TensorFile::new(file, about.len(), name)
    }
}

impl<R: Read + Seek> TensorFile<R> {
    /// Reads and checks the header of a safetensors file. `len` is the number of bytes in `reader`, and `name` is the
    /// name of the file in errors.
    ///
    /// # Errors
    /// Returns an error if the header cannot be read, or if it is not a valid safetensors header for `len` bytes.
    pub fn new(mut reader: R, len: u64, name: impl Into<String>) -> Result<Self> {
        let name = name.into();
        let refuse = |problem: String| Err(Error::new(format!("{name}: {problem}")));
        let mut word = [0; 8];
        if len < 8 {
            return refuse(format!(
                "not a safetensors file: {len} bytes, too few for the length of the header, which takes 8 bytes"
            ));
        }
        reader.read_exact(&mut word).map_err(|e| Error::new(format!("{name}: the file cannot be read: {e}")))?;
        let header_len = u64::from_le_bytes(word);
        if header_len > MOST_HEADER {
            return refuse(format!(
                "not a safetensors file: the first 8 bytes announce a header of {header_len} bytes, at most {MOST_HEADER} \
                 are allowed"
            ));
        }
        if header_len > len - 8 {
            return refuse(format!("truncated: the header has {header_len} bytes but only {} follow", len - 8));
        }
        let mut text = vec![0; header_len as usize];
        reader.read_exact(&mut text).map_err(|e| Error::new(format!("{name}: the file cannot be read: {e}")))?;
        // The crate that parses headers keeps only one of several tensors with the same name.
        if let Ok(Names { twice: Some(twice) }) = serde_json::from_slice(&text) {
            return refuse(format!("wrong safetensors header: the name {twice:?} appears twice"));
        }
        let header: Metadata = match serde_json::from_slice(&text) {
            Ok(header) => header,
            Err(e) => {
                return Err(Error::new(format!("{name}: wrong safetensors header: {e}")).hint(
                    "the data_offsets of each tensor must match its dtype and its shape, and tensors must follow one another without gaps or overlaps",
                ));
            }
        };
        let (held, needed) = (len - 8 - header_len, header.data_len() as u64);
        match held.cmp(&needed) {
            std::cmp::Ordering::Less => {
                return refuse(format!("truncated: the tensors take {needed} bytes but only {held} follow the header"));
            }
            std::cmp::Ordering::Greater => {
                return refuse(format!(
                    "the tensors take {needed} bytes but {held} bytes follow the header: the last bytes belong to no tensor"
                ));
            }
            std::cmp::Ordering::Equal => {}
        }
        Ok(TensorFile { reader, name, header, start: 8 + header_len })
    }

    /// Returns the names of all tensors, sorted.
    pub fn names(&self) -> Vec<String> {
        let mut names = self.header.offset_keys();
        names.sort();
        names
    }

    /// Reads the tensor called `tensor`, which must have 32-bit floats.
    ///
    /// # Errors
    /// Returns an error if there is no tensor of this name, if its numbers are not 32-bit floats, or if it cannot be
    /// read.
    pub fn read(&mut self, tensor: &str) -> Result<Tensor> {
        let dtype = self.info(tensor)?.dtype;
        if dtype != Dtype::F32 {
            return Err(Error::new(format!("{}: tensor {tensor:?} is {dtype:?}, but F32 is needed", self.name))
                .hint("convert the tensor to 32-bit floats, for example with .float() in PyTorch"));
        }
        let (shape, _, numbers) = self.numbers(tensor)?;
        let Numbers::Single(data) = numbers else { unreachable!("the numbers are 32-bit floats") };
        Ok(Tensor { shape, data })
    }

    fn info(&self, tensor: &str) -> Result<&TensorInfo> {
        self.header.info(tensor).ok_or_else(|| {
            let names = self.names();
            let given = if names.is_empty() { "no tensor".to_string() } else { list(&names) };
            Error::new(format!("{}: there is no tensor {tensor:?}: the file has {given}", self.name))
        })
    }

    /// Reads the tensor called `tensor`, which may have any numeric type.
    ///
    /// # Errors
    /// Returns an error if there is no tensor of this name, if its number type is not supported, or if it cannot be
    /// read.
    pub fn read_values(&mut self, tensor: &str) -> Result<Values> {
        let (shape, stored, numbers) = self.numbers(tensor)?;
        Ok(Values::new(&shape, stored.dtype(), numbers)?)
    }

    fn numbers(&mut self, tensor: &str) -> Result<(Vec<usize>, Stored, Numbers)> {
        let info = self.info(tensor)?;
        let (kind, width) = match info.dtype {
            Dtype::BOOL => (Kind::Bool, 1),
            Dtype::U8 => (Kind::Unsigned, 1),
            Dtype::I8 => (Kind::Signed, 1),
            Dtype::U16 => (Kind::Unsigned, 2),
            Dtype::I16 => (Kind::Signed, 2),
            Dtype::U32 => (Kind::Unsigned, 4),
            Dtype::I32 => (Kind::Signed, 4),
            Dtype::U64 => (Kind::Unsigned, 8),
            Dtype::I64 => (Kind::Signed, 8),
            Dtype::F16 => (Kind::Real, 2),
            Dtype::BF16 => (Kind::Bf16, 2),
            Dtype::F32 => (Kind::Real, 4),
            Dtype::F64 => (Kind::Real, 8),
            other => {
                return Err(Error::new(format!(
                    "{}: tensor {tensor:?} has the number type {other:?}, which is not supported",
                    self.name
                )));
            }
        };
        let (shape, from) = (info.shape.clone(), info.data_offsets.0 as u64);
        let name = format!("{}: tensor {tensor:?}", self.name);
        let failed = |e: std::io::Error| Error::new(format!("{name} cannot be read: {e}"));
        self.reader.seek(SeekFrom::Start(self.start + from)).map_err(failed)?;
        let stored = Stored { kind, width, big_endian: false };
        let numbers = stored.read(&shape, &mut self.reader, MOST_MEMORY, &name)?;
        Ok((shape, stored, numbers))
    }
}

/// The result of a search for repeated names in a header: a name that two tensors have, or `None` if all names differ.
/// The search keeps all names in memory, which is no more than the header; the length of the header is limited.
struct Names {
    twice: Option<String>,
}

impl<'de> Deserialize<'de> for Names {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        struct Keys;
        impl<'de> Visitor<'de> for Keys {
            type Value = Names;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object with one field for each tensor, named after the tensor")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> std::result::Result<Names, A::Error> {
                let (mut seen, mut twice) = (HashSet::new(), None);
                while let Some((name, IgnoredAny)) = map.next_entry::<String, _>()? {
                    if seen.contains(&name) {
                        twice.get_or_insert(name);
                    } else {
                        seen.insert(name);
                    }
                }
                Ok(Names { twice })
            }
        }
        deserializer.deserialize_map(Keys)
    }
}

/// Returns the names as text for an error message: at most eight names and the number of the others, such as `"a", "b"
/// and 3 more`.
fn list(names: &[String]) -> String {
    let shown: Vec<String> = names.iter().take(8).map(|n| format!("{n:?}")).collect();
    match names.len() - shown.len() {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

/// Writes tensors of 32-bit floats as a safetensors file.
///
/// # Errors
/// Returns the error of `out` if writing fails.
pub fn write(out: &mut dyn Write, tensors: &[(&str, &[usize], &[f32])]) -> std::io::Result<()> {
    let mut header = serde_json::Map::new();
    let mut at = 0;
    for (name, shape, data) in tensors {
        let end = at + 4 * data.len();
        let info = serde_json::json!({ "dtype": "F32", "shape": shape, "data_offsets": [at, end] });
        header.insert((*name).to_string(), info);
        at = end;
    }
    let mut text = serde_json::Value::Object(header).to_string();
    // Readers map the file into memory, so data begin at a multiple of 8 bytes.
    text.extend(std::iter::repeat_n(' ', text.len().next_multiple_of(8) - text.len()));
    out.write_all(&(text.len() as u64).to_le_bytes())?;
    out.write_all(text.as_bytes())?;
    let mut bytes = Vec::with_capacity(PIECE);
    for (_, _, data) in tensors {
        for piece in data.chunks(PIECE / 4) {
            bytes.clear();
            bytes.extend(piece.iter().flat_map(|x| x.to_le_bytes()));
            out.write_all(&bytes)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Cursor;

    fn file(header: &str, data: usize) -> Vec<u8> {
        let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
        bytes.extend(header.as_bytes());
        bytes.extend(vec![0; data]);
        bytes
    }

    fn open(bytes: Vec<u8>) -> Result<TensorFile<Cursor<Vec<u8>>>> {
        let len = bytes.len() as u64;
        TensorFile::new(Cursor::new(bytes), len, "x")
    }

    fn refusal(bytes: Vec<u8>) -> String {
        match open(bytes) {
            Err(Error { message, .. }) => message,
            Ok(_) => panic!("was accepted"),
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let (a, b) = (vec![1.0, f32::NEG_INFINITY, -0.0, 4.5], vec![f32::NAN]);
        let mut bytes = Vec::new();
        write(&mut bytes, &[("out", &[1, 2, 2], &a), ("lse", &[1], &b)]).unwrap();
        assert_eq!(safetensors::SafeTensors::deserialize(&bytes).unwrap().len(), 2);
        let mut file = open(bytes).unwrap();
        assert_eq!(file.names(), ["lse", "out"]);
        assert_eq!(file.read("out").unwrap(), Tensor { shape: vec![1, 2, 2], data: a });
        assert!(file.read("lse").unwrap().data[0].is_nan());
    }

    #[test]
    fn hostile_files_are_refused() {
        let info = |from: u64, to: u64| format!(r#"{{"dtype":"F32","shape":[2],"data_offsets":[{from},{to}]}}"#);
        let two = |a: String, b: String| format!(r#"{{"q":{a},"k":{b}}}"#);
        for (bytes, expected) in [
            (vec![], "0 bytes, too few"),
            (vec![1, 2, 3], "3 bytes, too few"),
            (u64::MAX.to_le_bytes().to_vec(), "announce a header of 18446744073709551615 bytes"),
            (100_000_001u64.to_le_bytes().to_vec(), "announce a header of 100000001 bytes"),
            (99_999_999u64.to_le_bytes().to_vec(), "truncated: the header has 99999999 bytes but only 0 follow"),
            (file("{", 0), "wrong safetensors header"),
            (file("[]", 0), "wrong safetensors header"),
            (file("\"\u{fffd}\"", 0), "wrong safetensors header"),
            (file(&two(info(0, 8), info(4, 12)), 12), "invalid offset for tensor"),
            (file(&two(info(0, 8), info(0, 8)), 8), "invalid offset for tensor"),
            (file(&two(info(0, 8), info(16, 24)), 24), "invalid offset for tensor"),
            (file(&two(info(0, 8), info(8, 2)), 12), "wrong safetensors header"),
            (file(&two(info(0, 8), info(u64::MAX - 8, u64::MAX)), 16), "invalid offset for tensor"),
            (file(&two(info(0, 8), info(8, 20)), 20), "invalid shape, data type, or offset"),
            (file(&two(info(0, 8), info(8, 16)), 15), "truncated: the tensors take 16 bytes but only 15 follow"),
            (file(&two(info(0, 8), info(8, 16)), 17), "the last bytes belong to no tensor"),
            (file(r#"{"q":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]}}"#, 0), "overflow"),
            (file(r#"{"q":{"dtype":"F31","shape":[1],"data_offsets":[0,4]}}"#, 4), "wrong safetensors header"),
            (file(r#"{"q":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}}"#, 4), "wrong safetensors header"),
            (file(&"[".repeat(100_000), 0), "wrong safetensors header"),
            (file(&format!(r#"{{"q":{},"k":{}}}"#, "[".repeat(100_000), info(0, 8)), 8), "wrong safetensors header"),
            (file(&two(info(0, 8), info(8, 16)).replace("\"k\"", "\"q\""), 16), "the name \"q\" appears twice"),
            (file(&two(info(0, 8), info(0, 8)).replace("\"k\"", "\"\\u0071\""), 8), "the name \"q\" appears twice"),
        ] {
            let message = refusal(bytes);
            assert!(message.contains(expected), "{message:?} should contain {expected:?}");
        }
    }

    #[test]
    fn missing_and_wrong_tensors_are_named() {
        let header = r#"{"q":{"dtype":"F16","shape":[2],"data_offsets":[0,4]}}"#;
        let mut file = open(file(header, 4)).unwrap();
        for (name, expected) in [("q", r#"x: tensor "q" is F16, but F32"#), ("k", r#"no tensor "k": the file has "q""#)]
        {
            let Err(Error { message, .. }) = file.read(name) else { panic!("{name} was accepted") };
            assert!(message.contains(expected), "{message}");
        }
    }
}

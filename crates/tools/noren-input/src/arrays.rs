//! Arrays of any type from npy, npz and safetensors files. Sizes in a file are compared with the length of the file
//! before memory is allocated. Pickled data, which could run code, is refused.

use crate::error::{Error, Result};
use crate::npy::read_npy;
use crate::stored::MOST_MEMORY;
use crate::tensors::TensorFile;
use noren_doctor::{Numbers, Values};
use std::fs::File;
use std::io::{BufReader, Cursor, Read, Seek};
use std::path::Path;

/// The maximum memory for all arrays of an npz file, in bytes. Without a limit, a small compressed file could unpack to
/// any size.
const MOST_UNPACKED: u64 = 2 << 30;
/// The maximum number of arrays in an npz file.
const MOST_ARRAYS: usize = 1024;

const FORMS: &str = "give an npy, npz or safetensors file";
const SAVE: &str = "save the mask in Python with numpy.save(\"mask.npy\", mask), and give this file";

/// The first bytes of files that are no arrays, with the names of their formats.
const OTHERS: [(&[u8], &str); 7] = [
    (b"\x89PNG", "a PNG picture"),
    (b"\xff\xd8\xff", "a JPEG picture"),
    (b"\x89HDF", "an HDF5 file"),
    (b"PAR1", "a Parquet file"),
    (b"%PDF", "a PDF document"),
    (b"\x1f\x8b", "compressed with gzip"),
    (b"\x7fELF", "a program"),
];

/// Reads all arrays of a file, with their names. The path `-` reads standard input. The only array of an npy file is
/// called `mask`.
///
/// # Errors
/// Returns an error if the file cannot be read, has another format, or has an invalid or too large array.
pub fn read_all(path: &Path) -> Result<Vec<(String, Values)>> {
    if path == Path::new("-") {
        let (name, mut bytes) = ("standard input", Vec::new());
        let read = std::io::stdin().lock().take(MOST_UNPACKED).read_to_end(&mut bytes);
        read.map_err(|e| Error::new(format!("{name} cannot be read: {e}")).hint(FORMS))?;
        let len = bytes.len() as u64;
        return read_from(Cursor::new(bytes), len, name);
    }
    let name = path.display().to_string();
    let failed = |e: std::io::Error| Error::new(format!("{name}: the file cannot be read: {e}")).hint(FORMS);
    let file = File::open(path).map_err(failed)?;
    let about = file.metadata().map_err(failed)?;
    if !about.is_file() {
        return Err(Error::new(format!("{name}: this is not a regular file")).hint(FORMS));
    }
    read_from(file, about.len(), &name)
}

/// Reads all arrays of the npy, npz or safetensors file `file`, with their names. `len` is the number of bytes of the
/// file, and `name` is its name in errors.
///
/// # Errors
/// Returns an error if the file cannot be read, has another format, or has an invalid or too large array.
pub fn read_from(mut file: impl Read + Seek, len: u64, name: &str) -> Result<Vec<(String, Values)>> {
    let failed = |e: std::io::Error| Error::new(format!("{name}: the file cannot be read: {e}")).hint(FORMS);
    let mut first = Vec::new();
    file.by_ref().take(8).read_to_end(&mut first).map_err(failed)?;
    file.rewind().map_err(failed)?;
    match &first[..] {
        [0x93, b'N', b'U', b'M', b'P', b'Y', ..] => {
            Ok(vec![("mask".to_string(), read_npy(BufReader::new(file), Some(len), MOST_MEMORY, name)?)])
        }
        [b'P', b'K', 3 | 5, ..] => read_npz(file, name),
        [0x80, 2..=5, ..] => Err(Error::new(format!(
            "{name}: the file is a pickle, which can run code when it is read, so noren does not read it"
        ))
        .hint("save the array with numpy.save or safetensors")),
        _ if [".npy", ".npz"].iter().any(|end| name.ends_with(end)) && !first.is_empty() => {
            Err(Error::new(format!("{name}: the first bytes are not those of numpy.save or numpy.savez")).hint(FORMS))
        }
        _ => {
            if let Some(what) = other_format(&first, name) {
                return Err(Error::new(format!("{name}: the file is {what}, not an array")).hint(SAVE));
            }
            let mut file = TensorFile::new(file, len, name)?;
            file.names().into_iter().map(|name| Ok((name.clone(), file.read_values(&name)?))).collect()
        }
    }
}

/// Returns the format of a file that begins with `first` and is no array, in words; `None` if it is not known.
fn other_format(first: &[u8], name: &str) -> Option<&'static str> {
    let text = |byte: &u8| matches!(byte, b' '..=b'~' | b'\n' | b'\r' | b'\t');
    match OTHERS.iter().find(|(magic, _)| first.starts_with(magic)) {
        Some((_, what)) => Some(what),
        None if first.is_empty() => Some("empty"),
        None if !first.iter().all(text) => None,
        None if [".py", ".ipynb"].iter().any(|end| name.ends_with(end)) => Some("Python code"),
        None => Some("text"),
    }
}

/// Reads the only array of a file, or the array called `mask` if the file has several arrays.
///
/// # Errors
/// Returns the errors of [`read_all`], and an error if the file has several arrays and none is called `mask`.
pub fn read_one(path: &Path) -> Result<Values> {
    let mut all = read_all(path)?;
    let at = if all.len() == 1 { Some(0) } else { all.iter().position(|(name, _)| name == "mask") };
    match at {
        Some(at) => Ok(all.swap_remove(at).1),
        None => {
            let names: Vec<&str> = all.iter().map(|(name, _)| name.as_str()).collect();
            Err(Error::new(format!(
                "{}: the file has {} arrays ({}), and no array is called mask: give the array of the mask this name",
                path.display(),
                all.len(),
                names.join(", ")
            )))
        }
    }
}

fn read_npz(file: impl Read + Seek, name: &str) -> Result<Vec<(String, Values)>> {
    let wrong = |e: zip::result::ZipError| Error::new(format!("{name}: not a valid npz file: {e}"));
    let mut archive = zip::ZipArchive::new(BufReader::new(file)).map_err(wrong)?;
    if archive.len() > MOST_ARRAYS {
        return Err(Error::new(format!(
            "{name}: the file has {} arrays, but at most {MOST_ARRAYS} can be read",
            archive.len()
        )));
    }
    let mut out: Vec<(String, Values)> = Vec::new();
    let mut left = MOST_UNPACKED;
    for index in 0..archive.len() {
        let entry = archive.by_index(index).map_err(wrong)?;
        if entry.name().is_ok_and(|name| name.ends_with("/data.pkl")) {
            let problem =
                format!("{name}: the file was written by torch.save, which uses pickle, so noren does not read it");
            return Err(Error::new(problem).hint("save the mask with numpy.save(\"mask.npy\", mask.cpu().numpy())"));
        }
        let size = entry.size();
        if size > left {
            let problem =
                format!("{name}: the arrays of the file take more memory than the maximum of {MOST_UNPACKED} bytes");
            return Err(Error::new(problem).hint("give a large mask as an npy or safetensors file"));
        }
        let file = entry.name().map_err(wrong)?.to_string();
        let of = format!("{name}: {file}");
        let key = file.strip_suffix(".npy").unwrap_or(&file).to_string();
        if out.iter().any(|(known, _)| *known == key) {
            return Err(Error::new(format!("{name}: two arrays are called {key:?}: give each array a different name")));
        }
        // The entry is read only up to the length that it announces, whatever it unpacks to.
        let array = read_npy(entry.take(size), Some(size), left, &of)?;
        left = left.saturating_sub(memory(&array));
        out.push((key, array));
    }
    Ok(out)
}

/// Returns the number of bytes of memory that the numbers of an array take.
fn memory(array: &Values) -> u64 {
    let each = match array.numbers() {
        Numbers::Bool(_) => 1,
        Numbers::Single(_) => 4,
        Numbers::Int(_) | Numbers::Double(_) => 8,
    };
    each * array.len() as u64
}

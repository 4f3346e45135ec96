//! Arrays of any type from npy, npz and safetensors files, safely: sizes are checked against the file before anything is
//! allocated, and nothing is ever unpickled.

use crate::failure::{Failure, Result};
use crate::tensors::TensorFile;
use noren_mask::Keep;
use noren_mask::doctor::{Dtype, Numbers, Values};
use std::fs::File;
use std::io::{BufReader, Read, Seek, Write};
use std::path::Path;

/// Real headers take some hundred bytes.
const MOST_HEADER: usize = 1 << 16;
/// More bytes than this are no mask that anybody diagnoses in memory.
const MOST_BYTES: u64 = 16 << 30;
/// A small file may unpack to anything: compressed arrays hold this many bytes together at most.
const MOST_UNPACKED: u64 = 2 << 30;
/// Arrays in a file.
const MOST_ARRAYS: usize = 1024;
/// Bytes that are converted at a time.
const PIECE: usize = 1 << 18;

const FORMS: &str = "give an npy, npz or safetensors file";

/// How one number is stored.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Stored {
    pub(crate) kind: Kind,
    /// Bytes of one number.
    pub(crate) width: usize,
    pub(crate) big_endian: bool,
}

/// What the bytes of a number mean.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Kind {
    Bool,
    Signed,
    Unsigned,
    Real,
    Bf16,
}

impl Stored {
    fn dtype(self) -> Dtype {
        match (self.kind, self.width) {
            (Kind::Bool, _) => Dtype::Bool,
            (Kind::Unsigned, 1) => Dtype::U8,
            (Kind::Signed, 1) => Dtype::I8,
            (Kind::Signed | Kind::Unsigned, _) => Dtype::Int,
            (Kind::Bf16, _) => Dtype::Bf16,
            (Kind::Real, 2) => Dtype::F16,
            (Kind::Real, 4) => Dtype::F32,
            (Kind::Real, _) => Dtype::F64,
        }
    }

    /// Reads numbers of this kind, as many as `shape` says.
    pub(crate) fn read(self, shape: &[usize], reader: &mut impl Read, name: &str) -> Result<Values> {
        let count = shape.iter().try_fold(1usize, |n, &size| n.checked_mul(size));
        let bytes = count.and_then(|n| n.checked_mul(self.width)).filter(|&n| n as u64 <= MOST_BYTES);
        let (Some(count), Some(bytes)) = (count, bytes) else {
            return Err(Failure::new(format!(
                "{name}: shape {shape:?} is larger than the {MOST_BYTES} bytes that are read"
            )));
        };
        let mut numbers = match (self.kind, self.width) {
            (Kind::Bool, _) => Numbers::Bool(Vec::new()),
            (Kind::Signed | Kind::Unsigned, _) => Numbers::Int(Vec::new()),
            (Kind::Real, 8) => Numbers::Double(Vec::new()),
            _ => Numbers::Single(Vec::new()),
        };
        let mut piece = vec![0; PIECE.min(bytes)];
        let mut left = bytes;
        while left > 0 {
            let n = left.min(PIECE);
            reader.read_exact(&mut piece[..n]).map_err(|e| {
                Failure::new(format!("{name}: truncated: {count} numbers take {bytes} bytes, {left} are missing: {e}"))
            })?;
            if self.big_endian {
                piece[..n].chunks_exact_mut(self.width).for_each(<[u8]>::reverse);
            }
            self.append(&piece[..n], &mut numbers);
            left -= n;
        }
        Ok(Values::new(shape, self.dtype(), numbers)?)
    }

    fn append(self, bytes: &[u8], numbers: &mut Numbers) {
        let wide = |b: &[u8]| {
            let mut word = [0u8; 8];
            word[..b.len()].copy_from_slice(b);
            u64::from_le_bytes(word)
        };
        let each = bytes.chunks_exact(self.width);
        match numbers {
            Numbers::Bool(out) => out.extend(bytes.iter().map(|b| *b != 0)),
            Numbers::Int(out) if self.kind == Kind::Unsigned => {
                out.extend(each.map(|b| i64::try_from(wide(b)).unwrap_or(i64::MAX)));
            }
            Numbers::Int(out) => {
                let unused = 64 - 8 * self.width as u32;
                out.extend(each.map(|b| (wide(b) << unused) as i64 >> unused));
            }
            Numbers::Double(out) => out.extend(each.map(|b| f64::from_bits(wide(b)))),
            Numbers::Single(out) => match (self.kind, self.width) {
                (Kind::Bf16, _) => out.extend(each.map(|b| f32::from_bits((wide(b) as u32) << 16))),
                (_, 2) => out.extend(each.map(|b| half::f16::from_bits(wide(b) as u16).to_f32())),
                _ => out.extend(each.map(|b| f32::from_bits(wide(b) as u32))),
            },
        }
    }
}

/// All arrays of a file by name; an npy file's only one is called `mask`.
pub(crate) fn read_all(path: &Path) -> Result<Vec<(String, Values)>> {
    let name = path.display().to_string();
    let failed = |e: std::io::Error| Failure::new(format!("{name}: cannot be read: {e}")).hint(FORMS);
    let file = File::open(path).map_err(failed)?;
    let about = file.metadata().map_err(failed)?;
    if !about.is_file() {
        return Err(Failure::new(format!("{name}: not a regular file")).hint(FORMS));
    }
    read_from(file, about.len(), &name)
}

/// All arrays in `len` bytes of a file called `name`.
pub(crate) fn read_from(mut file: impl Read + Seek, len: u64, name: &str) -> Result<Vec<(String, Values)>> {
    let failed = |e: std::io::Error| Failure::new(format!("{name}: cannot be read: {e}")).hint(FORMS);
    let mut first = Vec::new();
    file.by_ref().take(8).read_to_end(&mut first).map_err(failed)?;
    file.rewind().map_err(failed)?;
    match &first[..] {
        [0x93, b'N', b'U', b'M', b'P', b'Y', ..] => {
            Ok(vec![("mask".to_string(), read_npy(BufReader::new(file), Some(len), name)?)])
        }
        [b'P', b'K', 3 | 5, ..] => read_npz(file, name),
        [0x80, 2..=5, ..] => Err(Failure::new(format!("{name}: a pickle, which runs code when it is read: refused"))
            .hint("save the array with numpy.save or safetensors")),
        _ if [".npy", ".npz"].iter().any(|end| name.ends_with(end)) => {
            Err(Failure::new(format!("{name}: the first bytes are not those of numpy.save or numpy.savez")).hint(FORMS))
        }
        _ => {
            let mut file = TensorFile::new(file, len, name)?;
            file.names().into_iter().map(|name| Ok((name.clone(), file.read_values(&name)?))).collect()
        }
    }
}

/// The only array of a file, or the one called `mask`.
pub(crate) fn read_one(path: &Path) -> Result<Values> {
    let mut all = read_all(path)?;
    let at = if all.len() == 1 { Some(0) } else { all.iter().position(|(name, _)| name == "mask") };
    match at {
        Some(at) => Ok(all.swap_remove(at).1),
        None => {
            let names: Vec<&str> = all.iter().map(|(name, _)| name.as_str()).collect();
            Err(Failure::new(format!(
                "{}: {} arrays ({}), none of them called mask",
                path.display(),
                all.len(),
                names.join(", ")
            )))
        }
    }
}

fn read_npz(file: impl Read + Seek, name: &str) -> Result<Vec<(String, Values)>> {
    let wrong = |e: zip::result::ZipError| Failure::new(format!("{name}: not a sound npz file: {e}"));
    let mut archive = zip::ZipArchive::new(BufReader::new(file)).map_err(wrong)?;
    if archive.len() > MOST_ARRAYS {
        return Err(Failure::new(format!("{name}: {} arrays: at most {MOST_ARRAYS} are read", archive.len())));
    }
    let mut out = Vec::new();
    let mut unpacked = 0u64;
    for index in 0..archive.len() {
        let entry = archive.by_index(index).map_err(wrong)?;
        unpacked = unpacked.saturating_add(entry.size());
        if unpacked > MOST_UNPACKED {
            let problem =
                format!("{name}: its arrays unpack to {unpacked} bytes or more, at most {MOST_UNPACKED} are read");
            return Err(Failure::new(problem).hint("give a large mask as an npy or safetensors file"));
        }
        let size = entry.size();
        let file = entry.name().map_err(wrong)?.to_string();
        let of = format!("{name}: {file}");
        let key = file.trim_end_matches(".npy").to_string();
        // What an entry announces is all that is read of it, whatever it unpacks to.
        out.push((key, read_npy(entry.take(size), Some(size), &of)?));
    }
    Ok(out)
}

/// Reads one npy array: `len` is the number of bytes there are, where that is known.
pub(crate) fn read_npy(mut reader: impl Read, len: Option<u64>, name: &str) -> Result<Values> {
    let refuse = |problem: String| Err(Failure::new(format!("{name}: {problem}")));
    let short = |e: std::io::Error| Failure::new(format!("{name}: truncated npy header: {e}"));
    let mut start = [0u8; 8];
    reader.read_exact(&mut start).map_err(short)?;
    if start[..6] != *b"\x93NUMPY" {
        return refuse("not an npy array: the first bytes are not those of numpy.save".into());
    }
    let mut size = [0u8; 4];
    let size_bytes = match start[6] {
        1 => 2,
        2 | 3 => 4,
        version => return refuse(format!("npy version {version} is not known: 1, 2 and 3 are")),
    };
    reader.read_exact(&mut size[..size_bytes]).map_err(short)?;
    let header_len = u32::from_le_bytes(size) as usize;
    if header_len > MOST_HEADER {
        return refuse(format!("the npy header announces {header_len} bytes, at most {MOST_HEADER} are read"));
    }
    let mut header = vec![0; header_len];
    reader.read_exact(&mut header).map_err(short)?;
    let header = String::from_utf8_lossy(&header).into_owned();
    let (stored, shape) = parse_header(&header).map_err(|problem| Failure::new(format!("{name}: {problem}")))?;
    let needed = shape.iter().try_fold(stored.width as u64, |n, &s| n.checked_mul(s as u64));
    let held = len.map(|len| len.saturating_sub((8 + size_bytes + header_len) as u64));
    if let Some(held) = held
        && needed != Some(held)
    {
        return refuse(format!(
            "shape {shape:?} takes {} bytes but {held} follow the header",
            needed.map_or("too many".into(), |n| n.to_string())
        ));
    }
    stored.read(&shape, &mut reader, name)
}

/// `{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }` and nothing else.
fn parse_header(header: &str) -> std::result::Result<(Stored, Vec<usize>), String> {
    let after = |key: &str| -> std::result::Result<&str, String> {
        let at = header.find(&format!("'{key}'")).ok_or_else(|| format!("the npy header has no {key:?}"))?;
        Ok(header[at + key.len() + 2..].trim_start().trim_start_matches(':').trim_start())
    };
    let descr = after("descr")?;
    let descr = match descr.strip_prefix('\'').and_then(|d| d.split('\'').next()) {
        Some(descr) => descr,
        None => return Err("the npy array has fields: give one plain array of numbers".into()),
    };
    let (order, kind) = descr.split_at(descr.len().min(1));
    let width = kind.get(1..).and_then(|w| w.parse::<usize>().ok()).unwrap_or(0);
    let kind = match (kind.chars().next(), width) {
        (Some('b'), 1) => Kind::Bool,
        (Some('i'), 1 | 2 | 4 | 8) => Kind::Signed,
        (Some('u'), 1 | 2 | 4 | 8) => Kind::Unsigned,
        (Some('f'), 2 | 4 | 8) => Kind::Real,
        (Some('O'), _) => {
            return Err("the npy array holds Python objects, which run code when they are read: refused".into());
        }
        _ => {
            return Err(format!(
                "numbers of type {descr:?} are not read: bool, integers and floats of up to 64 bits are"
            ));
        }
    };
    if after("fortran_order")?.starts_with("True") && after("shape")?.matches(',').count() > 1 {
        return Err("the npy array is in Fortran order: save numpy.ascontiguousarray(a)".into());
    }
    let shape =
        after("shape")?.strip_prefix('(').and_then(|s| s.split(')').next()).ok_or("the npy header has no shape")?;
    let sizes = shape.split(',').map(str::trim).filter(|s| !s.is_empty());
    let shape = sizes
        .map(|s| s.parse().map_err(|_| format!("the npy shape ({shape}) is no list of sizes")))
        .collect::<std::result::Result<Vec<usize>, String>>()?;
    Ok((Stored { kind, width, big_endian: order == ">" }, shape))
}

/// Writes cells as an npy array of truth values, `[batch, heads, q_len, kv_len]`.
pub(crate) fn write_npy(out: &mut dyn Write, keep: &Keep) -> std::io::Result<()> {
    let [b, h, q, k] = keep.dims();
    let mut header = format!("{{'descr': '|b1', 'fortran_order': False, 'shape': ({b}, {h}, {q}, {k}), }}");
    // Data begin at a multiple of 64.
    let padded = (10 + header.len() + 1).next_multiple_of(64) - 11 - header.len();
    header.extend(std::iter::repeat_n(' ', padded));
    header.push('\n');
    out.write_all(b"\x93NUMPY\x01\x00")?;
    out.write_all(&(header.len() as u16).to_le_bytes())?;
    out.write_all(header.as_bytes())?;
    let mut bytes = Vec::with_capacity(PIECE);
    for cell in keep.cells() {
        bytes.push(u8::from(cell));
        if bytes.len() == PIECE {
            out.write_all(&bytes)?;
            bytes.clear();
        }
    }
    out.write_all(&bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn npy(header: &str, data: &[u8]) -> Vec<u8> {
        let mut out = b"\x93NUMPY\x01\x00".to_vec();
        out.extend((header.len() as u16).to_le_bytes());
        out.extend(header.as_bytes());
        out.extend(data);
        out
    }

    fn read(bytes: &[u8]) -> Result<Values> {
        read_npy(bytes, Some(bytes.len() as u64), "x.npy")
    }

    fn message(bytes: &[u8]) -> String {
        match read(bytes) {
            Err(Failure::Input { message, .. }) => message,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let keep = Keep::from_fn([2, 1, 3, 5], |[b, _, q, k]| (b + q + k) % 2 == 0);
        let mut bytes = Vec::new();
        write_npy(&mut bytes, &keep).expect("memory");
        let values = read(&bytes).expect("a sound file");
        assert_eq!(values.shape(), [2, 1, 3, 5]);
        assert_eq!(values.numbers(), &Numbers::Bool(keep.cells().collect()));
    }

    #[test]
    fn all_types() {
        let header = |descr: &str| format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': (2,), }}");
        let values = |descr: &str, data: &[u8]| {
            let v = read(&npy(&header(descr), data)).expect("a sound file");
            [v.at(0), v.at(1)]
        };
        assert_eq!(values("<i2", &[254, 255, 1, 0]), [-2.0, 1.0]);
        assert_eq!(values(">i2", &[255, 254, 0, 1]), [-2.0, 1.0]);
        assert_eq!(values("|u1", &[254, 1]), [254.0, 1.0]);
        assert_eq!(values("<f2", &[0, 0x3C, 0, 0xFC]), [1.0, f64::NEG_INFINITY]);
        assert_eq!(values("<f8", &[[0u8; 8], 1f64.to_le_bytes()].concat()), [0.0, 1.0]);
    }

    #[test]
    fn hostile_files_are_refused() {
        let good = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 2), }";
        assert!(message(&npy(good, &[0; 12])).contains("takes 16 bytes but 12 follow"));
        assert!(message(&npy(&good.replace("<f4", "|O"), &[0; 16])).contains("run code"));
        assert!(message(&npy(&good.replace("'<f4'", "[('a', '<f4')]"), &[0; 16])).contains("fields"));
        assert!(message(&npy(&good.replace("False", "True"), &[0; 16])).contains("Fortran"));
        assert!(message(&npy(&good.replace("(2, 2)", "(99999999999, 99999999999)"), &[0; 16])).contains("too many"));
        assert!(message(&npy(&good.replace("(2, 2)", "(2, x)"), &[0; 16])).contains("no list of sizes"));
        assert!(message(b"\x93NUMPY\x02\x00\xff\xff\xff\xff").contains("announces"));
        assert!(message(b"\x93NUMPY\x01").contains("truncated"));
        // Without a known length nothing is allocated for what is not there either.
        let endless = npy(&good.replace("(2, 2)", "(4000000000, 1)"), &[0; 16]);
        assert!(read_npy(&endless[..], None, "x").is_err());
    }
}

//! [`Files`]: the tensors in the files of a checkpoint. A tensor is read from its file while its layer is made. A weight
//! that is packed at once therefore does not stay in memory as a tensor.

use super::configs::raw::{check_file, read_object};
use crate::error::{Error, Result};
use candle_core::{DType, Device, Shape, Tensor};
use candle_nn::Init;
use candle_nn::var_builder::SimpleBackend;
use half::{bf16, f16};
use noren::noren_mask::text::first_line;
use safetensors::Dtype;
use safetensors::tensor::{Metadata, TensorInfo};
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// The maximum number of bytes of a file's header. The crate safetensors has the same limit.
const MAX_HEADER_BYTES: u64 = 100_000_000;

/// The number of bytes that are read and converted in one step, a multiple of the size of every number type.
const STEP: usize = 1 << 20;

/// The files of a checkpoint, and the places of the tensors in them.
pub(super) struct Files {
    paths: Vec<PathBuf>,
    /// The file from which the last tensor was read, with its index in `paths`.
    open: Mutex<Option<(usize, File)>>,
    /// The place of each tensor by the current name of the parameter.
    places: HashMap<String, Place>,
    /// The file and the type of each tensor whose numbers cannot be parameters, by the current name ([`current_name`]).
    others: HashMap<String, (usize, Dtype)>,
    /// The first error of a tensor that could not be read. The tensor library wraps an error, and the original error
    /// cannot be taken out again.
    problem: Mutex<Option<Error>>,
}

/// The place of a tensor in the files of a checkpoint.
struct Place {
    /// The index of the file.
    file: usize,
    /// The index of the tensor's first byte in the file.
    start: u64,
    /// The name of the tensor in the file.
    name: String,
    info: TensorInfo,
}

impl Files {
    /// Opens the files of the checkpoint in `folder`, and reads their headers. Tensors of integers are not parameters:
    /// some checkpoints store masks and positions, which the models compute.
    pub(super) fn open(folder: &Path) -> Result<Self> {
        let (mut paths, mut places, mut others) = (Vec::new(), HashMap::<String, Place>::new(), HashMap::new());
        for (path, wanted) in names(folder)? {
            let (first, header) = read_header(&path)?;
            let mut tensors = header.tensors();
            if let Some(missing) = wanted.iter().flatten().find(|name| !tensors.contains_key(*name)) {
                let problem = format!(
                    "the file has no tensor {missing:?}, although the index assigns the tensor to this file: the files do not belong together"
                );
                return Err(Error::file(&path, problem));
            }
            if let Some(wanted) = wanted {
                tensors.retain(|name, _| wanted.binary_search(name).is_ok());
            }
            for (name, info) in tensors {
                let current = current_name(&name);
                if !matches!(info.dtype, Dtype::F64 | Dtype::F32 | Dtype::F16 | Dtype::BF16) {
                    others.insert(current, (paths.len(), info.dtype));
                    continue;
                }
                let start = first + info.data_offsets.0 as u64;
                let place = Place { file: paths.len(), start, name: name.clone(), info: info.clone() };
                if let Some(other) = places.insert(current, place) {
                    let mut both = [other.name, name];
                    both.sort();
                    let problem = format!("the tensors {both:?} are the same parameter: keep one of them");
                    return Err(Error::file(&path, problem));
                }
            }
            paths.push(path);
        }
        Ok(Files { paths, open: Mutex::new(None), places, others, problem: Mutex::new(None) })
    }

    /// Removes the first error of a tensor that could not be read, and returns it.
    pub(super) fn take_problem(&self) -> Option<Error> {
        self.problem.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Reads the tensor at `place`, and converts it to `dtype`.
    fn read(&self, place: &Place, dtype: DType) -> Result<Tensor> {
        let path = &self.paths[place.file];
        let cannot = |problem: String| Error::file(path, format!("tensor {:?} cannot be read: {problem}", place.name));
        let TensorInfo { dtype: from, shape, .. } = &place.info;
        let count = shape.iter().product::<usize>();
        let mut values: Vec<f32> = Vec::new();
        values.try_reserve_exact(count).map_err(|_| cannot(format!("there is no memory for {count} numbers")))?;
        let size = from.bitsize() / 8;
        let mut bytes = vec![0; STEP.min(count * size)];
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let mut file = match open.take_if(|(file, _)| *file == place.file) {
            Some((_, file)) => file,
            None => File::open(path).map_err(|error| unreadable(path, &error))?,
        };
        file.seek(SeekFrom::Start(place.start)).map_err(|error| unreadable(path, &error))?;
        while values.len() < count {
            let bytes = &mut bytes[..STEP.min((count - values.len()) * size)];
            file.read_exact(bytes).map_err(|error| unreadable(path, &error))?;
            if let Some((index, value)) = first_non_finite(*from, bytes) {
                let (name, index) = (&place.name, values.len() + index);
                let problem = format!(
                    "tensor {name:?} holds {value} at index {index}: the model would compute NaN or infinity; use undamaged weights"
                );
                return Err(Error::file(path, problem));
            }
            match from {
                Dtype::F64 => values.extend(bytes.as_chunks().0.iter().map(|x| f64::from_le_bytes(*x) as f32)),
                Dtype::F32 => values.extend(bytes.as_chunks().0.iter().map(|x| f32::from_le_bytes(*x))),
                Dtype::F16 => values.extend(bytes.as_chunks().0.iter().map(|x| f16::from_le_bytes(*x).to_f32())),
                _ => values.extend(bytes.as_chunks().0.iter().map(|x| bf16::from_le_bytes(*x).to_f32())),
            }
        }
        *open = Some((place.file, file));
        let tensor = Tensor::from_vec(values, shape.as_slice(), &Device::Cpu).and_then(|tensor| tensor.to_dtype(dtype));
        tensor.map_err(|error| cannot(first_line(&error.to_string()).to_owned()))
    }
}

/// [`Files`] as the source of the parameters of a model.
pub(super) struct Source(pub(super) Arc<Files>);

impl SimpleBackend for Source {
    fn get(&self, shape: Shape, name: &str, _: Init, dtype: DType, device: &Device) -> candle_core::Result<Tensor> {
        let found = self.0.places.get(name).map(|place| Shape::from(place.info.shape.as_slice()));
        match found {
            Some(got) if got != shape => {
                let msg = format!("shape mismatch for {name}");
                Err(candle_core::Error::UnexpectedShape { msg, expected: shape, got })
            }
            _ => self.get_unchecked(name, dtype, device),
        }
    }

    fn get_unchecked(&self, name: &str, dtype: DType, device: &Device) -> candle_core::Result<Tensor> {
        let files = &self.0;
        let read = match (files.places.get(name), files.others.get(name)) {
            (Some(place), _) => files.read(place, dtype),
            (None, Some((file, dtype))) => {
                let problem = format!(
                    "tensor {name:?} has numbers of type {dtype}: f64, f32, f16 or bf16 is needed; save the model dequantised"
                );
                Err(Error::file(&files.paths[*file], problem))
            }
            (None, None) => return Err(candle_core::Error::CannotFindTensor { path: name.to_owned() }),
        };
        let read = read.map_err(|error| {
            let text = error.to_string();
            files.problem.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
            candle_core::Error::Msg(text)
        })?;
        read.to_device(device)
    }

    fn contains_tensor(&self, name: &str) -> bool {
        self.0.places.contains_key(name)
    }
}

fn unreadable(path: &Path, error: &std::io::Error) -> Error {
    Error::file(path, format!("the file cannot be read: {error}"))
}

/// Reads the header of the safetensors file at `path`. Returns the index of the first byte after the header, and the header.
fn read_header(path: &Path) -> Result<(u64, Metadata)> {
    let invalid =
        |problem: String| Error::file(path, format!("the file is truncated or not a safetensors file: {problem}"));
    check_file(path)?;
    let mut file = File::open(path).map_err(|error| unreadable(path, &error))?;
    let all = file.metadata().map_err(|error| unreadable(path, &error))?.len();
    let Some(after_length) = all.checked_sub(8) else {
        return Err(invalid(format!("it has {all} bytes")));
    };
    let mut length = [0; 8];
    file.read_exact(&mut length).map_err(|error| unreadable(path, &error))?;
    let length = u64::from_le_bytes(length);
    if length > after_length.min(MAX_HEADER_BYTES) {
        return Err(invalid(format!(
            "its header should have {length} bytes; the file has {all}, and a header at most {MAX_HEADER_BYTES}"
        )));
    }
    let mut header = vec![0; length as usize];
    file.read_exact(&mut header).map_err(|error| unreadable(path, &error))?;
    let header: Metadata =
        serde_json::from_slice(&header).map_err(|error| invalid(format!("its header is invalid: {error}")))?;
    let end = header.tensors().values().map(|info| info.data_offsets.1 as u64).max().unwrap_or(0);
    match after_length - length {
        given if given == end => Ok((8 + length, header)),
        given => Err(invalid(format!("its tensors should have {end} bytes, and there are {given}"))),
    }
}

/// Returns the index and the value of the first number that is NaN or infinite, or too large for `f32`. `bytes` are the
/// numbers of a tensor of type `dtype`. All bits of the exponent of a 16-bit number that is NaN or infinite are set.
fn first_non_finite(dtype: Dtype, bytes: &[u8]) -> Option<(usize, f64)> {
    let sixteen = |mask: u16| {
        let values = bytes.as_chunks::<2>().0.iter().map(|bytes| u16::from_le_bytes(*bytes));
        values.enumerate().find(move |(_, bits)| bits & mask == mask)
    };
    match dtype {
        Dtype::F64 => {
            let mut values = bytes.as_chunks().0.iter().map(|bytes| f64::from_le_bytes(*bytes)).enumerate();
            values.find(|(_, x)| !(*x as f32).is_finite())
        }
        Dtype::F32 => {
            let mut values = bytes.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).enumerate();
            values.find(|(_, x)| !x.is_finite()).map(|(index, x)| (index, x.into()))
        }
        Dtype::F16 => sixteen(0x7c00).map(|(index, bits)| (index, half::f16::from_bits(bits).into())),
        Dtype::BF16 => sixteen(0x7f80).map(|(index, bits)| (index, half::bf16::from_bits(bits).into())),
        _ => None,
    }
}

/// Returns the current name of a parameter. Checkpoints from TensorFlow use the names gamma and beta for the weight and
/// the bias of a layer norm.
fn current_name(name: &str) -> String {
    for (old, new) in [(".LayerNorm.gamma", ".LayerNorm.weight"), (".LayerNorm.beta", ".LayerNorm.bias")] {
        if let Some(place) = name.strip_suffix(old) {
            return format!("{place}{new}");
        }
    }
    name.to_owned()
}

/// Returns the files of a checkpoint, sorted, each with the names of the tensors that the index assigns to the file.
/// The names are `None` if the checkpoint is the single file `model.safetensors`.
fn names(folder: &Path) -> Result<Vec<(PathBuf, Option<Vec<String>>)>> {
    let single = folder.join("model.safetensors");
    if single.symlink_metadata().is_ok() {
        return Ok(vec![(single, None)]);
    }
    let index = folder.join("model.safetensors.index.json");
    if !index.exists() {
        let problem =
            "the file does not exist, and neither does model.safetensors.index.json: save the model as safetensors";
        return Err(Error::file(single, problem));
    }
    let object = read_object(&index)?;
    let Some(map) = object.get("weight_map").and_then(|map| map.as_object()) else {
        return Err(Error::file(index, "the index has no weight_map, which names the file of each tensor"));
    };
    let mut by_file: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (name, file) in map {
        // The name of a file must not lead out of the folder.
        let plain = file.as_str().filter(|file| Path::new(file).file_name().is_some_and(|name| name == *file));
        let Some(file) = plain else {
            return Err(Error::file(
                index,
                format!("weight_map assigns the tensor {name:?} to {file}: a file name is needed"),
            ));
        };
        by_file.entry(file).or_default().push(name.clone());
    }
    let with_names = by_file.into_iter().map(|(file, mut names)| {
        names.sort_unstable();
        (folder.join(file), Some(names))
    });
    Ok(with_names.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use safetensors::tensor::TensorView;

    /// Writes a file with one tensor, reads it, and returns the numbers or the error.
    fn through_a_file(dtype: Dtype, bytes: &[u8], count: usize) -> Result<Vec<f32>> {
        let folder = std::env::temp_dir().join(format!("noren-files-{}-{dtype:?}-{}", std::process::id(), bytes.len()));
        std::fs::create_dir_all(&folder).unwrap();
        let view = TensorView::new(dtype, vec![count], bytes).unwrap();
        safetensors::serialize_to_file([("first.weight", view)], None, &folder.join("model.safetensors")).unwrap();
        let files = Files::open(&folder).unwrap();
        let read = files.read(&files.places["first.weight"], DType::F32);
        std::fs::remove_dir_all(&folder).unwrap();
        Ok(read?.to_vec1()?)
    }

    #[test]
    fn tensors_of_several_steps_are_read_whole() {
        let count = STEP + 1234;
        let number = |i: usize| ((i * 7919) % 255) as f32 - 127.0;
        let expected: Vec<f32> = (0..count).map(number).collect();
        let bytes = |dtype: Dtype, last: f32| -> Vec<u8> {
            let numbers = (0..count).map(|i| if i + 1 == count { last } else { number(i) });
            match dtype {
                Dtype::F64 => numbers.flat_map(|x| f64::from(x).to_le_bytes()).collect(),
                Dtype::F32 => numbers.flat_map(f32::to_le_bytes).collect(),
                Dtype::F16 => numbers.flat_map(|x| f16::from_f32(x).to_le_bytes()).collect(),
                _ => numbers.flat_map(|x| bf16::from_f32(x).to_le_bytes()).collect(),
            }
        };
        for dtype in [Dtype::F64, Dtype::F32, Dtype::F16, Dtype::BF16] {
            let found = through_a_file(dtype, &bytes(dtype, number(count - 1)), count).unwrap();
            assert!(found == expected, "{dtype:?}");
            let error = through_a_file(dtype, &bytes(dtype, f32::NAN), count).unwrap_err().to_string();
            assert!(error.contains(&format!("holds NaN at index {}", count - 1)), "{dtype:?}: {error}");
        }
        let large = through_a_file(Dtype::F64, &1e300f64.to_le_bytes(), 1).unwrap_err().to_string();
        assert!(large.contains("at index 0"), "{large}");
    }
}

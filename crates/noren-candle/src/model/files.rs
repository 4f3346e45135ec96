//! [`Files`]: the tensors in the files of a checkpoint. A tensor is read when a model takes it. A weight that is packed at
//! once therefore does not stay in memory as a tensor.

use super::raw::read_object;
use crate::error::{Error, Result};
use candle_core::{DType, Device, Shape, Tensor};
use candle_nn::Init;
use candle_nn::var_builder::SimpleBackend;
use half::{bf16, f16};
use safetensors::Dtype;
use safetensors::tensor::{Metadata, TensorInfo};
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// The maximum number of bytes of a file's header. The crate safetensors has the same limit.
const MOST_OF_A_HEADER: u64 = 100_000_000;

/// The number of bytes that are read and converted in one step, a multiple of the size of every number type.
const STEP: usize = 1 << 20;

/// The files of a checkpoint, and the places of the tensors in them.
pub(super) struct Files {
    files: Vec<(PathBuf, Mutex<File>)>,
    /// The place of each tensor by the current name of the parameter.
    places: HashMap<String, Place>,
    /// The first error of a tensor that could not be read. The tensor library has no error that could hold it.
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
    /// Opens the files of the checkpoint in `folder`, and reads their headers. Tensors of integers are not parameters and
    /// are left out: masks and positions in some checkpoints are computed instead.
    pub(super) fn open(folder: &Path) -> Result<Self> {
        let (mut files, mut places) = (Vec::new(), HashMap::new());
        for (path, wanted) in names(folder)? {
            let mut file = File::open(&path).map_err(|error| unreadable(&path, &error))?;
            let (first, header) = read_header(&path, &mut file)?;
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
                if matches!(info.dtype, Dtype::F64 | Dtype::F32 | Dtype::F16 | Dtype::BF16) {
                    let start = first + info.data_offsets.0 as u64;
                    let place = Place { file: files.len(), start, name: name.clone(), info: info.clone() };
                    places.insert(current_name(&name), place);
                }
            }
            files.push((path, Mutex::new(file)));
        }
        Ok(Files { files, places, problem: Mutex::new(None) })
    }

    /// Returns the first error of a tensor that could not be read.
    pub(super) fn problem(&self) -> Option<Error> {
        self.problem.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Reads the tensor at `place`, and converts it to `dtype`.
    fn read(&self, place: &Place, dtype: DType) -> Result<Tensor> {
        let (path, file) = &self.files[place.file];
        let cannot = |problem: String| Error::file(path, format!("tensor {:?} cannot be read: {problem}", place.name));
        let TensorInfo { dtype: from, shape, .. } = &place.info;
        let count = shape.iter().product::<usize>();
        let mut values: Vec<f32> = Vec::new();
        values.try_reserve_exact(count).map_err(|_| cannot(format!("there is no memory for {count} numbers")))?;
        let size = from.bitsize() / 8;
        let mut bytes = vec![0; STEP.min(count * size)];
        let mut file = file.lock().unwrap_or_else(PoisonError::into_inner);
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
        Ok(Tensor::from_vec(values, shape.as_slice(), &Device::Cpu)?.to_dtype(dtype)?)
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
        let missing = || candle_core::Error::CannotFindTensor { path: name.to_owned() };
        let place = self.0.places.get(name).ok_or_else(missing)?;
        let read = self.0.read(place, dtype).map_err(|error| {
            let text = error.to_string();
            self.0.problem.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
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

/// Reads the header of a safetensors file. Returns the index of the first byte after the header, and the header.
fn read_header(path: &Path, file: &mut File) -> Result<(u64, Metadata)> {
    let invalid =
        |problem: String| Error::file(path, format!("the file is truncated or not a safetensors file: {problem}"));
    let all = file.metadata().map_err(|error| unreadable(path, &error))?.len();
    let mut length = [0; 8];
    file.read_exact(&mut length).map_err(|_| invalid(format!("it has {all} bytes")))?;
    let length = u64::from_le_bytes(length);
    if length > MOST_OF_A_HEADER || length > all - 8 {
        return Err(invalid(format!("it has {all} bytes, and its header should have {length}")));
    }
    let mut header = vec![0; length as usize];
    file.read_exact(&mut header).map_err(|error| unreadable(path, &error))?;
    let header: Metadata =
        serde_json::from_slice(&header).map_err(|error| invalid(format!("its header is invalid: {error}")))?;
    let end = header.tensors().values().map(|info| info.data_offsets.1 as u64).max().unwrap_or(0);
    match all - 8 - length {
        given if given == end => Ok((8 + length, header)),
        given => Err(invalid(format!("its tensors should have {end} bytes, and there are {given}"))),
    }
}

/// Returns the index and the value of the first number that is NaN or infinite. `bytes` are the numbers of a tensor of
/// type `dtype`. All bits of the exponent of such a number are set.
fn first_non_finite(dtype: Dtype, bytes: &[u8]) -> Option<(usize, f64)> {
    let sixteen = |mask: u16| {
        let values = bytes.as_chunks::<2>().0.iter().map(|bytes| u16::from_le_bytes(*bytes));
        values.enumerate().find(move |(_, bits)| bits & mask == mask)
    };
    match dtype {
        Dtype::F64 => {
            let mut values = bytes.as_chunks().0.iter().map(|bytes| f64::from_le_bytes(*bytes)).enumerate();
            values.find(|(_, x)| !x.is_finite())
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
    if single.exists() {
        return Ok(vec![(single, None)]);
    }
    let index = folder.join("model.safetensors.index.json");
    if !index.exists() {
        let problem =
            "there is neither model.safetensors nor model.safetensors.index.json: save the model as safetensors";
        return Err(Error::file(folder, problem));
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

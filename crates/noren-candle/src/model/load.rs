//! Loads checkpoints in the format of Hugging Face: `config.json`, and one or more files with safetensors.

use super::raw::{Raw, read_object};
use super::{Bert, BertConfig, Config, Decoder, DecoderConfig, Model, ModernBert, ModernBertConfig, T5, T5Config};
use crate::error::{Error, Result};
use candle_core::{DType, Device, Tensor};
use candle_nn::VarBuilder;
use safetensors::{Dtype, SafeTensors};
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

/// The values of `model_type` whose models are decoders.
const DECODERS: [&str; 8] = ["gpt2", "llama", "mistral", "qwen2", "qwen3", "gemma2", "gemma3_text", "gpt_oss"];
/// The values of `model_type` whose models are encoders with learned positions.
const ENCODERS: [&str; 5] = ["bert", "roberta", "xlm-roberta", "camembert", "distilbert"];

impl Config {
    /// Reads `config.json` from the folder of a model.
    ///
    /// # Errors
    /// Returns an error if the file is missing or is not JSON, for invalid values, and for an unknown architecture.
    pub fn load(folder: &Path) -> Result<Self> {
        if !folder.is_dir() {
            let problem = "there is no such folder: give a folder with config.json and model.safetensors";
            return Err(Error::file(folder, problem));
        }
        Self::read(&read_object(&folder.join("config.json"))?)
    }

    /// Reads a configuration from the JSON object `object`.
    ///
    /// # Errors
    /// Returns an error for invalid values, and for an unknown architecture.
    pub fn read(object: &serde_json::Map<String, serde_json::Value>) -> Result<Self> {
        let raw = Raw(object);
        let architecture = object.get("architectures").and_then(|list| list.get(0)).and_then(|name| name.as_str());
        let family = raw.text("model_type")?;
        if raw.get("quantization_config").is_some() {
            let expected = "quantised weights are not supported: save the model dequantised, as bfloat16 or float32";
            return Err(Error::config("quantization_config", "given", expected));
        }
        match family {
            "modernbert" => Ok(Config::ModernBert(ModernBertConfig::read(&raw, architecture)?)),
            family if ENCODERS.contains(&family) => Ok(Config::Bert(BertConfig::read(&raw, family, architecture)?)),
            family if DECODERS.contains(&family) => {
                Ok(Config::Decoder(DecoderConfig::read(&raw, family, architecture)?))
            }
            "t5" if architecture.is_none_or(|name| name == "T5ForConditionalGeneration") => {
                Ok(Config::T5(T5Config::read(&raw)?))
            }
            "t5" => {
                let given = format!("{:?}", architecture.unwrap_or_default());
                Err(Error::config("architectures", given, "give T5ForConditionalGeneration"))
            }
            other => {
                let expected =
                    format!("give a supported type: modernbert, t5, {}, {}", ENCODERS.join(", "), DECODERS.join(", "));
                Err(Error::config("model_type", format!("{other:?}"), expected))
            }
        }
    }
}

impl Model {
    /// Loads a checkpoint from a folder, in `f32`.
    ///
    /// ```no_run
    /// use noren_candle::model::Model;
    /// let model = Model::load("path/to/folder")?;
    /// for declared in model.masks() {
    ///     println!("{}: {}", declared.stack.name(), declared.spec);
    /// }
    /// # Ok::<(), noren_candle::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns an error if files are missing, truncated or malformed, if tensors are missing, have other shapes or are not finite, and for an
    /// unknown architecture.
    pub fn load(folder: impl AsRef<Path>) -> Result<Self> {
        Self::load_as(folder, DType::F32)
    }

    /// Loads a checkpoint as [`load`](Self::load) does, with parameters of type `dtype`: `f32`, `bf16` or `f16`.
    ///
    /// # Errors
    /// Returns the errors of [`load`](Self::load), and an error for other types.
    pub fn load_as(folder: impl AsRef<Path>, dtype: DType) -> Result<Self> {
        let folder = folder.as_ref();
        if !matches!(dtype, DType::F32 | DType::BF16 | DType::F16) {
            return Err(Error::input("dtype", format!("{dtype:?}"), "models are computed in f32, bf16 or f16"));
        }
        let config = Config::load(folder)?;
        let tensors = read_tensors(folder, dtype)?;
        let vb = VarBuilder::from_tensors(tensors, dtype, &Device::Cpu);
        Self::new(&config, &vb).map_err(|error| match error {
            Error::Candle(error) => {
                let problem = format!("the weights do not fit config.json: {}", first_line(&error));
                Error::file(folder, problem)
            }
            other => other,
        })
    }

    /// Makes a model from a configuration, with parameters from `vb`. If `vb` belongs to a `VarMap`, missing parameters
    /// are created.
    ///
    /// # Errors
    /// Returns an error if a tensor in `vb` is missing or has another shape.
    pub fn new(config: &Config, vb: &VarBuilder<'_>) -> Result<Self> {
        Ok(match config {
            Config::Decoder(config) => Model::Decoder(Decoder::new(config, vb)?),
            Config::Bert(config) => Model::Bert(Bert::new(config, vb)?),
            Config::ModernBert(config) => Model::ModernBert(ModernBert::new(config, vb)?),
            Config::T5(config) => Model::T5(T5::new(config, vb)?),
        })
    }
}

/// Returns the first line of the text of `error`, without a colon at the end. candle adds a backtrace after this line.
fn first_line(error: &candle_core::Error) -> String {
    noren::noren_mask::text::first_line(&error.to_string()).trim_end_matches(':').to_owned()
}

/// Returns the tensors of a checkpoint by name, converted to `dtype`. Tensors of integers are not parameters and are
/// left out.
fn read_tensors(folder: &Path, dtype: DType) -> Result<HashMap<String, Tensor>> {
    let mut all = HashMap::new();
    for (file, wanted) in files(folder)? {
        let bytes = std::fs::read(&file).map_err(|e| Error::file(&file, format!("the file cannot be read: {e}")))?;
        let tensors = SafeTensors::deserialize(&bytes)
            .map_err(|e| Error::file(&file, format!("the file is truncated or not a safetensors file: {e}")))?;
        for (name, tensor) in tensors.iter() {
            if wanted.as_ref().is_some_and(|wanted| wanted.binary_search_by(|w| w.as_str().cmp(name)).is_err()) {
                continue;
            }
            // Parameters are floats. Masks and positions in some checkpoints are not parameters and are computed
            // instead.
            if !matches!(tensor.dtype(), Dtype::F64 | Dtype::F32 | Dtype::F16 | Dtype::BF16) {
                continue;
            }
            if let Some((index, value)) = first_non_finite(tensor.dtype(), tensor.data()) {
                let problem = format!(
                    "tensor {name:?} holds {value} at index {index}: the model would compute NaN or infinity; use undamaged weights"
                );
                return Err(Error::file(&file, problem));
            }
            use candle_core::safetensors::Load;
            let loaded = tensor.load(&Device::Cpu).and_then(|loaded| loaded.to_dtype(dtype));
            let loaded = loaded
                .map_err(|e| Error::file(&file, format!("tensor {name:?} cannot be read: {}", first_line(&e))))?;
            all.insert(current_name(name), loaded);
        }
        if let Some(missing) = wanted.iter().flatten().find(|name| tensors.tensor(name).is_err()) {
            let problem = format!(
                "the file has no tensor {missing:?}, although the index assigns the tensor to this file: the files do not belong together"
            );
            return Err(Error::file(&file, problem));
        }
    }
    Ok(all)
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
fn files(folder: &Path) -> Result<Vec<(PathBuf, Option<Vec<String>>)>> {
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

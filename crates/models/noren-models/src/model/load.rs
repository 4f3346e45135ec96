//! Loads checkpoints in the format of Hugging Face: `config.json`, and one or more files with safetensors.

use super::configs::raw::{Raw, read_object};
use super::files::{Files, Source};
use super::{
    Bert, BertConfig, Config, Decoder, DecoderConfig, Model, ModernBert, ModernBertConfig, Packing, T5, T5Config,
};
use crate::error::{Error, Result};
use candle_core::{DType, Device};
use candle_nn::VarBuilder;
use noren::Dtype;
use std::path::Path;
use std::sync::Arc;

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

    /// Reads a configuration from the JSON object `object`. Of the multimodal configuration of a Gemma 3, the text model is read.
    ///
    /// # Errors
    /// Returns an error for invalid values, and for an unknown architecture.
    pub fn read(object: &serde_json::Map<String, serde_json::Value>) -> Result<Self> {
        let text = text_model(object);
        let object = text.as_ref().unwrap_or(object);
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

/// Returns the configuration of the text model in the multimodal configuration of a Gemma 3, with the defaults of keys that such
/// files leave out; `None` for other configurations.
fn text_model(
    object: &serde_json::Map<String, serde_json::Value>,
) -> Option<serde_json::Map<String, serde_json::Value>> {
    let text = object.get("text_config")?.as_object().filter(|_| object["model_type"] == "gemma3")?;
    let defaults = serde_json::json!({
        "model_type": "gemma3_text", "vocab_size": 262_208, "hidden_size": 2304, "intermediate_size": 9216,
        "num_hidden_layers": 26, "num_attention_heads": 8, "num_key_value_heads": 4
    });
    let mut all = defaults.as_object()?.clone();
    all.extend(text.clone());
    Some(all)
}

impl Model {
    /// Loads a checkpoint from a folder, in `f32`.
    ///
    /// ```no_run
    /// use noren_models::model::Model;
    /// let model = Model::load("path/to/folder")?;
    /// for declared in model.masks() {
    ///     println!("{}: {}", declared.stack.name(), declared.spec);
    /// }
    /// # Ok::<(), noren_models::Error>(())
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
        Self::read(folder, dtype, None)
    }

    /// Loads a checkpoint as [`load`](Self::load) does, and packs the weights of its linear layers as
    /// [`pack`](Self::pack) does. Each weight is packed when it is read, and only its packed copy stays in memory.
    /// Embeddings and norms stay in `f32`.
    ///
    /// ```no_run
    /// use noren_models::model::Model;
    /// let model = Model::load_packed("path/to/folder", noren::Dtype::Bf16)?;
    /// # Ok::<(), noren_models::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns the errors of [`load`](Self::load) and [`pack`](Self::pack).
    pub fn load_packed(folder: impl AsRef<Path>, dtype: Dtype) -> Result<Self> {
        Self::read(folder.as_ref(), DType::F32, Some(Packing { dtype, all: true }))
    }

    /// Loads the checkpoint in `folder`, with parameters of type `dtype`. Packs weights as `packing` defines; `None`: packs nothing.
    pub(crate) fn read(folder: &Path, dtype: DType, packing: Option<Packing>) -> Result<Self> {
        let config = Config::load(folder)?;
        let files = Arc::new(Files::open(folder)?);
        let vb = VarBuilder::from_backend(Box::new(Source(files.clone())), dtype, Device::Cpu);
        Self::build(&config, &vb, packing).map_err(|error| match (files.take_problem(), error) {
            (Some(problem), _) => problem,
            (None, Error::Attention(noren_candle::Error::Candle(error))) => {
                let problem = format!("the weights do not fit config.json: {}", first_line(&error));
                Error::file(folder, problem)
            }
            (None, other) => other,
        })
    }

    /// Makes a model from a configuration, with parameters from `vb`. If `vb` belongs to a `VarMap`, missing parameters
    /// are created.
    ///
    /// # Errors
    /// Returns an error if a tensor in `vb` is missing or has another shape.
    pub fn new(config: &Config, vb: &VarBuilder<'_>) -> Result<Self> {
        Self::build(config, vb, None)
    }

    /// Makes a model as [`new`](Self::new) does, and packs weights as `packing` defines; `None`: packs nothing.
    fn build(config: &Config, vb: &VarBuilder<'_>, packing: Option<Packing>) -> Result<Self> {
        Ok(match config {
            Config::Decoder(config) => Model::Decoder(Decoder::build(config, vb, packing)?),
            Config::Bert(config) => Model::Bert(Bert::build(config, vb, packing)?),
            Config::ModernBert(config) => Model::ModernBert(ModernBert::build(config, vb, packing)?),
            Config::T5(config) => Model::T5(T5::build(config, vb, packing)?),
        })
    }
}

/// Returns the first line of the text of `error`, without a colon at the end. candle adds a backtrace after this line.
fn first_line(error: &candle_core::Error) -> String {
    noren::noren_mask::text::first_line(&error.to_string()).trim_end_matches(':').to_owned()
}

//! [`Learner`]: the model that is trained. It computes logits with the mask of the objective (causal LM or masked LM).

use super::config::TrainConfig;
use crate::error::{Error, Result};
use crate::model::{Batch as Tokens, Call, Config, Model, Stack};
use crate::nn::Mode;
use candle_core::{DType, Device, Tensor, Var};
use candle_nn::{VarBuilder, VarMap};
use noren::{Facts, atoms};
use noren_text::Tokenizer;
use noren_text::data::{Batch, Objective};
use serde_json::{Map, Value};

/// Maximum number of parameters that can be trained. Each parameter takes several numbers of 32 bits (value, gradient,
/// two running averages), and a checkpoint is made in memory before it is written.
const MOST_PARAMETERS: f64 = 2e9;

/// The model that is trained. Its parameters are candle variables (`Var`), so that candle computes their gradients.
pub(super) struct Learner {
    vars: VarMap,
    config: Map<String, Value>,
    dtype: DType,
    /// The model for causal LM. It has its own mask, such as `causal`.
    model: Model,
    /// The model for masked LM. It has the same parameters, but its own mask allows all cells, so that only the
    /// attention mask of the training objective applies. A masked token is therefore predicted from the tokens before
    /// and after it.
    both_ways: Model,
}

impl Learner {
    /// Makes the model that `config` describes. If `vocab_size` is missing, the size of the tokenizer's vocabulary is
    /// used.
    pub(super) fn new(config: &TrainConfig, tokenizer: &dyn Tokenizer) -> Result<Self> {
        let mut object = config.model.clone();
        let vocab = tokenizer.vocab_size();
        let size = object.entry("vocab_size").or_insert_with(|| vocab.into());
        if size.as_u64().is_none_or(|size| size < vocab as u64) {
            return Err(Error::config(
                "vocab_size",
                size,
                format!("the tokenizer has {vocab} tokens: omit vocab_size"),
            ));
        }
        let parsed = Config::read(&object)?;
        check_size(&object)?;
        let dtype = match object.get("dtype").and_then(Value::as_str) {
            None | Some("float32") => DType::F32,
            Some("bfloat16") => DType::BF16,
            Some("float16") => DType::F16,
            Some(other) => {
                let expected =
                    "give float32, bfloat16 or float16: the type in which the weights of the trained model are stored";
                return Err(Error::config("dtype", format!("{other:?}"), expected));
            }
        };
        let vars = VarMap::new();
        let model = Model::new(&parsed, &VarBuilder::from_varmap(&vars, DType::F32, &Device::Cpu))?;
        let stack = match model {
            Model::Decoder(_) => Stack::Decoder,
            Model::Bert(_) | Model::ModernBert(_) => Stack::Encoder,
            Model::T5(_) => {
                let expected = "an encoder with a decoder cannot be trained: give llama, gpt2, bert, ...";
                return Err(Error::config("model_type", "\"t5\"", expected));
            }
        };
        if model.positions().is_some_and(|most| most < config.row_len) {
            let expected = format!("the model has {} positions: give shorter rows", model.positions().unwrap_or(0));
            return Err(Error::config("row_len", config.row_len, expected));
        }
        let mut both_ways = model.clone();
        both_ways.set_mask(stack, atoms::full())?;
        Ok(Learner { vars, config: object, dtype, model, both_ways })
    }

    /// Returns the model's config.json.
    pub(super) fn config(&self) -> &Map<String, Value> {
        &self.config
    }

    /// Returns the float type in which the weights of the trained model are written to its file.
    pub(super) fn stored_type(&self) -> DType {
        self.dtype
    }

    /// Returns the parameters with their names in a checkpoint.
    pub(super) fn parameters(&self) -> Vec<(String, Var)> {
        let vars = self.vars.data().lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        vars.iter().map(|(name, var)| (name.clone(), var.clone())).collect()
    }

    pub(super) fn layers(&self) -> usize {
        self.model.masks().iter().map(|declared| declared.layers).sum()
    }

    /// Returns the standard deviation of initial weights.
    pub(super) fn initializer_range(&self) -> f64 {
        self.config.get("initializer_range").and_then(Value::as_f64).unwrap_or(0.02)
    }

    /// Returns the logits for each position of `batch`, `[rows, len, vocab]`.
    pub(super) fn logits(&self, batch: &Batch, mode: Mode) -> Result<Tensor> {
        let (rows, len) = (batch.ids.len(), batch.ids.first().map_or(0, Vec::len));
        let real = batch.documents.iter().map(|documents| documents.iter().sum::<usize>());
        let keep: Vec<u8> = real.flat_map(|real| (0..len).map(move |at| u8::from(at < real))).collect();
        let ids = Tensor::from_vec(batch.ids.concat(), (rows, len), &Device::Cpu)?;
        let keep = Tensor::from_vec(keep, (rows, len), &Device::Cpu)?;
        let tokens = Tokens::from_tensors(&ids, Some(&keep))?
            .positions_by_document(&batch.documents)
            .mask(batch.objective.mask())
            .facts(Facts::new().documents(batch.documents.clone()));
        let model = if batch.objective == Objective::Mlm { &self.both_ways } else { &self.model };
        let output = model.forward_with(&tokens, None, Call { mode, ..Call::default() })?;
        let logits = output.logits.filter(|logits| logits.rank() == 3);
        logits.ok_or_else(|| {
            let given = self.config.get("architectures").map_or("left out".to_string(), Value::to_string);
            Error::config(
                "architectures",
                given,
                "give an architecture whose head predicts tokens: LlamaForCausalLM, BertForMaskedLM, ...",
            )
        })
    }
}

/// Returns an error for a model with too many parameters, before memory is allocated. The number of parameters is
/// estimated from the sizes in the configuration.
fn check_size(object: &Map<String, Value>) -> Result<()> {
    let number = |names: [&str; 3], usual: f64| {
        names.iter().find_map(|name| object.get(*name)).and_then(Value::as_f64).unwrap_or(usual)
    };
    let hidden = number(["hidden_size", "n_embd", "dim"], 1.0);
    let heads = number(["num_attention_heads", "n_head", "n_heads"], 1.0);
    let inner = number(["intermediate_size", "n_inner", "hidden_dim"], 4.0 * hidden);
    let usual = match object.get("model_type").and_then(Value::as_str) {
        Some(family) if family.starts_with("gemma") => 256.0,
        Some(family) if family.starts_with("qwen3") => 128.0,
        _ => hidden / heads.max(1.0),
    };
    let head_dim = number(["head_dim"; 3], usual);
    let attention = 2.0 * hidden * (hidden + heads * head_dim);
    let experts = number(["num_local_experts", "num_experts", "num_experts"], 1.0).max(1.0);
    let layers =
        number(["num_hidden_layers", "n_layer", "n_layers"], 1.0) * (attention + 2.0 * hidden * inner * experts);
    let tables =
        number(["vocab_size"; 3], 1.0) + number(["max_position_embeddings", "n_positions", "n_positions"], 1.0);
    let parameters = layers + hidden * tables;
    match parameters <= MOST_PARAMETERS {
        true => Ok(()),
        false => {
            let expected = format!("at most {MOST_PARAMETERS:.0e} parameters can be trained: give smaller sizes");
            Err(Error::config("model", format!("of about {parameters:.1e} parameters"), expected))
        }
    }
}

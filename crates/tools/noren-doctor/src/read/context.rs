//! [`Context`]: the declarations about a mask.

use crate::read::kinds::{Convention, MaskKind, Redaction, Role};
use crate::read::reader::Reader;
use crate::read::values::Dtype;
use crate::read::words::{self, Api, Pooling, WindowMeans};
use noren_mask::Error;
use noren_mask::Side;
use serde_json::{Map, Value};

impl MaskKind {
    /// Returns the kind for a name such as `causal`, `causal_packed`, `sliding` or `prefix_lm`. `not_causal` is the
    /// kind `bidirectional`.
    ///
    /// # Errors
    /// Returns an error if a word of the name is unknown; the message gives the nearest known word.
    pub fn named(name: &str) -> Result<Self, Error> {
        words::kind("kind", name)
    }
}

/// The declarations about a mask. Every field is optional. If the verdict depends on a missing field, the report
/// contains a question.
#[derive(Clone, Debug, Default)]
pub struct Context {
    /// The name of the function or argument that takes the mask; `None` if not declared.
    pub api: Option<String>,
    /// The known words in `api`. These words define how the attention function uses the mask.
    pub(crate) slot: Api,
    /// The convention: which stored value allows a cell; `None` if not declared.
    pub convention: Option<Convention>,
    /// The purpose of the array: mask, key padding or cross-attention.
    pub role: Role,
    /// True when the declarations have the key `role`. Without this key, `role` is `Cross` for a kind of
    /// cross-attention, otherwise the default.
    pub role_declared: bool,
    /// The declared kind of mask; `None` if not declared.
    pub kind: Option<MaskKind>,
    /// The declared kind as the user wrote it; `None` if not declared.
    pub kind_name: Option<String>,
    /// The number type in which the attention function computes scores; `None` if not declared.
    pub compute_dtype: Option<Dtype>,
    /// Token id of padding; `None` if not declared.
    pub pad_id: Option<i64>,
    /// Token id that ends a text; `None` if not declared.
    pub eos_id: Option<i64>,
    /// Token id that begins a text; `None` if not declared.
    pub bos_id: Option<i64>,
    /// Ids of other special tokens, which are not text.
    pub special_ids: Vec<i64>,
    /// The end of a row at which the padding is; `None` if not declared.
    pub side: Option<Side>,
    /// Length of the prefix in tokens: one number for all batch rows, or one per batch row.
    pub prefix: Vec<i64>,
    /// Number of cached keys before the first query: one number for all batch rows, or one per batch row.
    pub past: Vec<i64>,
    /// Number of written cache slots: one number for all batch rows, or one per batch row.
    pub written: Vec<i64>,
    /// Batch size; `None` if not declared.
    pub batch: Option<usize>,
    /// Number of query heads; `None` if not declared.
    pub heads: Option<usize>,
    /// Number of queries; `None` if not declared.
    pub q_len: Option<usize>,
    /// Number of keys; `None` if not declared.
    pub kv_len: Option<usize>,
    /// Width of the window in keys; `None` if not declared. The field `window_means` defines which keys the width
    /// counts.
    pub window: Option<i64>,
    /// The keys that the window width counts [default: for a causal window, the query's own key and the keys before
    /// it].
    pub window_means: Option<WindowMeans>,
    /// Length of a chunk in tokens; `None` if not declared.
    pub chunk: Option<i64>,
    /// True when the first chunk begins at the start of the row, padding included; false when it begins at the first
    /// non-padding token [default: false].
    pub chunk_from_slot: Option<bool>,
    /// True when the prefix begins at the start of the row, padding included; false when it begins at the first
    /// non-padding token. If this is `None` and rows are padded on the left, the diagnosis tries both and adds a
    /// question to the report.
    pub prefix_from_slot: Option<bool>,
    /// Number of first non-padding keys that every query reads (attention sinks).
    pub sinks: usize,
    /// The kind of bias stored in the array: `alibi`, `t5`, ...; `None` if no bias is declared.
    pub bias: Option<String>,
    /// The position encoding: `rope`, `learned`, `alibi`, ...; `None` if not declared.
    pub position_encoding: Option<String>,
    /// The redactions: keys that are hidden from all queries, or only from the queries that the redaction lists.
    pub redactions: Vec<Redaction>,
    /// Number of layers, for checks of paths over several layers; `None` if not declared.
    pub layers: Option<usize>,
    /// The name of the kind of mask in each layer, such as `sliding_attention`; empty if no layers are declared.
    pub layer_kinds: Vec<String>,
    /// The `is_causal` flag that the caller passes with the mask; `None` if not declared.
    pub is_causal: Option<bool>,
    /// The maximum absolute value of the scores before masking; `None` if not declared.
    pub score_bound: Option<f64>,
    /// The length of the longest document as given to the kernel, in tokens; `None` if not declared.
    pub max_seqlen: Option<i64>,
    /// True when the model generates a continuation of the text.
    pub generates: bool,
    /// Number of non-padding tokens per batch row.
    pub lengths: Vec<i64>,
    /// True when the model shifts labels itself, false when the caller must shift the labels; `None` if not declared.
    pub shifts_labels: Option<bool>,
    /// The probability that a token is selected for prediction in masked-language training (MLM); `None` if not
    /// declared.
    pub masked_fraction: Option<f64>,
    /// True when the model learns to predict masked tokens.
    pub masked_lm: bool,
    /// The label of tokens that the loss ignores [default: -100].
    pub ignore_index: Option<i64>,
    /// The declared method that pools the states of tokens into one vector; `None` if not declared.
    pub pooling: Option<Pooling>,
    /// Length of the prompt in tokens: one number for all batch rows, or one per batch row.
    pub prompt: Vec<i64>,
}

impl Context {
    /// Reads declarations from the text of a JSON object with keys such as `api`, `convention`, `role`, `kind`,
    /// `past_len`, `window` and `pad_token_id`.
    ///
    /// ```
    /// use noren_doctor::Context;
    /// let context = Context::from_json(r#"{"api": "sdpa", "convention": "keep_bool", "kind": "sliding", "window": 4}"#)?;
    /// assert_eq!(context.window, Some(4));
    /// # Ok::<(), noren_mask::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns an error if the text is not a JSON object, a value has the wrong type or range, or a key or a word is
    /// unknown.
    pub fn from_json(text: &str) -> Result<Self, Error> {
        let value: Value = serde_json::from_str(text)
            .map_err(|e| Error::invalid(format!("the declarations are not valid JSON: {e}")))?;
        match value {
            Value::Object(map) => Self::from_map(&map),
            _ => Err(Error::invalid("the declarations must be a JSON object, but are another JSON value")),
        }
    }

    /// Reads declarations from a parsed JSON object.
    ///
    /// # Errors
    /// Returns an error if a value has the wrong type or range, or if a key or a word is unknown.
    pub fn from_map(map: &Map<String, Value>) -> Result<Self, Error> {
        let read = Reader::new(map);
        let mut context = Context::default();
        context.read_intent(&read)?;
        context.read_convention(&read)?;
        context.read_tokens(&read)?;
        context.read_sizes(&read)?;
        context.read_training(&read)?;
        read.finish()?;
        Ok(context)
    }

    /// Returns the kind of mask of a layer from the layer's name in a model configuration, such as `sliding_attention`;
    /// `None` for a layer without softmax attention. A name without a kind of mask, such as "full", means a causal
    /// mask; if the declared kind is not causal, it means a mask without causality.
    ///
    /// # Errors
    /// Returns an error if a word is unknown.
    pub(crate) fn kind_of_layer(&self, name: &str) -> Result<Option<MaskKind>, Error> {
        let Some(kind) = words::layer_kind(name)? else { return Ok(None) };
        let both_ways = self.kind.is_some_and(|k| !k.causal);
        let plain = kind == MaskKind::default();
        Ok(Some(MaskKind { causal: kind.causal || plain && !both_ways, ..kind }))
    }

    /// Reads the declarations about the intended mask: its kind (such as causal), its role (such as a
    /// padding mask), and numbers such as the window width.
    fn read_intent(&mut self, read: &Reader<'_>) -> Result<(), Error> {
        self.kind_name = read.text("kind")?;
        let named = self.kind_name.as_deref().map(|name| words::kind("kind", name)).transpose()?;
        let layer_kinds = read.texts("layer_types")?;
        let layer = read.size("layer", 0)?;
        let of_layer = match layer.and_then(|l| layer_kinds.get(l)) {
            Some(name) => Context { kind: named, ..Context::default() }.kind_of_layer(name)?,
            None => None,
        };
        if let (Some(_), Some(name)) = (of_layer, layer.and_then(|l| layer_kinds.get(l))) {
            self.kind_name = Some(name.clone());
        }
        self.kind = of_layer.or(named);
        let role = read.one_of("role", words::ROLES)?;
        self.role_declared = role.is_some();
        self.role = match self.kind.is_some_and(|k| k.cross) {
            true => Role::Cross,
            false => role.unwrap_or_default(),
        };
        self.prefix = read.lengths("prefix_len")?;
        self.prefix_from_slot = read.one_of("prefix_from", words::CHUNK_ORIGINS)?;
        // If this layer has no window, the declared width belongs to other layers of the model.
        let width = read.count("window", 1)?;
        self.window = width.filter(|_| of_layer.is_none_or(|k| k.sliding));
        self.window_means = read.one_of("window_means", words::WIDTHS)?;
        self.chunk = read.count("chunk", 1)?;
        self.chunk_from_slot = read.one_of("chunk_from", words::CHUNK_ORIGINS)?;
        self.sinks = read.size("sinks", 0)?.unwrap_or(0);
        self.redactions = read.redactions("redactions")?;
        self.layers = read.size("layers", 0)?;
        self.layer_kinds = if of_layer.is_some() { Vec::new() } else { layer_kinds };
        self.is_causal = read.flag("is_causal")?;
        Ok(())
    }

    /// Reads the declarations about the function that takes the mask, the convention, and the numbers in the array.
    fn read_convention(&mut self, read: &Reader<'_>) -> Result<(), Error> {
        self.api = read.text("api")?;
        self.slot = self.api.as_deref().map(Api::named).transpose()?.unwrap_or_default();
        self.convention = read.word("convention", words::convention)?;
        self.compute_dtype = read.word("compute_dtype", |name| {
            let text = format!("compute_dtype=`{name}` is an unknown type: give float16, bfloat16, float32 or float64");
            Dtype::named(name).ok_or_else(|| Error::invalid(text))
        })?;
        self.bias = read.word("bias", words::bias)?;
        self.position_encoding = read.word("position_encoding", words::encoding)?;
        self.score_bound = read.real("score_bound")?;
        Ok(())
    }

    /// Reads the ids of special tokens, the side of the padding, and the numbers of non-padding tokens and written
    /// cache slots.
    fn read_tokens(&mut self, read: &Reader<'_>) -> Result<(), Error> {
        self.pad_id = read.id("pad_token_id")?;
        self.eos_id = read.id("eos_token_id")?;
        self.bos_id = read.id("bos_token_id")?;
        self.special_ids = read.ids("special_token_ids")?;
        for name in ["cls_token_id", "mask_token_id", "unk_token_id", "sep_token_id", "decoder_start_token_id"] {
            self.special_ids.extend(read.id(name)?);
        }
        self.side = read.one_of("padding_side", words::SIDES)?;
        self.lengths = read.lengths("lengths")?;
        self.written = read.lengths("kv_written")?;
        Ok(())
    }

    fn read_sizes(&mut self, read: &Reader<'_>) -> Result<(), Error> {
        self.past = read.offsets("past_len")?;
        self.batch = read.size("batch", 1)?;
        self.heads = read.size("heads", 1)?;
        self.q_len = read.size("q_len", 1)?;
        self.kv_len = read.size("kv_len", 1)?;
        self.max_seqlen = read.count("max_seqlen", 0)?;
        Ok(())
    }

    /// Reads the declarations about labels, losses and pooling.
    fn read_training(&mut self, read: &Reader<'_>) -> Result<(), Error> {
        let task = read.one_of("task", words::TASKS)?;
        self.generates = task == Some(words::Task::Generation);
        self.shifts_labels = read.flag("model_shifts_labels")?;
        self.masked_fraction = read.real("mlm_probability")?;
        self.masked_lm = self.masked_fraction.is_some() || task == Some(words::Task::MaskedLm);
        self.ignore_index = read.id("ignore_index")?;
        self.pooling = read.one_of("pooling", words::POOLINGS)?;
        self.prompt = read.lengths("prompt_len")?;
        Ok(())
    }
}

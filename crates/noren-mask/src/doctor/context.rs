//! [`Context`]: what the owner of a mask declares about it.

use super::values::Dtype;
use crate::Error;
use crate::mask::Side;
use serde_json::{Map, Value};

/// Which stored value means "may attend".
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Convention {
    /// True or 1 may attend.
    Keep,
    /// True or 1 is ignored.
    Drop,
    /// Added to scores: 0 may attend, a very negative number is ignored.
    Additive,
}

/// What the array is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Role {
    /// Queries by keys.
    #[default]
    Attention,
    /// One row of keys for each batch row.
    KeyPadding,
    /// Decoder queries by encoder keys.
    Cross,
}

/// What a declared kind of mask is made of.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MaskKind {
    /// Queries read no later key.
    pub causal: bool,
    /// Tokens read their own document only.
    pub packed: bool,
    /// A window around or before each query.
    pub sliding: bool,
    /// Chunks of equal length.
    pub chunked: bool,
    /// A prefix that is read from everywhere.
    pub prefix: bool,
    /// Blocks inside which everybody reads everybody (images among text).
    pub blocks: bool,
    /// A tree of drafts.
    pub tree: bool,
    /// Encoder keys.
    pub cross: bool,
    /// The name leaves open whether queries read later keys: documents are packed for decoders and for encoders.
    pub either_way: bool,
}

impl MaskKind {
    /// From a name such as `causal`, `causal_packed`, `sliding` or `prefix_lm`; `None` for a name that says nothing known.
    pub fn named(name: &str) -> Option<Self> {
        let name = name.to_ascii_lowercase();
        let has = |words: &[&str]| words.iter().any(|w| name.contains(w));
        let mut kind = MaskKind {
            packed: has(&["pack", "document", "segment", "block_diag", "varlen"]),
            sliding: has(&["sliding", "window", "local", "ring", "swa"]),
            chunked: has(&["chunk"]),
            prefix: has(&["prefix"]),
            blocks: has(&["image", "block_bidir", "bidirectional_block", "vlm", "multimodal", "span"]),
            tree: has(&["tree", "medusa", "speculative"]),
            cross: has(&["cross"]),
            causal: false,
            either_way: false,
        };
        let both_ways = has(&[
            "bidirectional",
            "full",
            "encoder",
            "noncausal",
            "non_causal",
            "symmetric",
            "mlm",
            "masked_lm",
            "bert",
        ]);
        let decoder =
            has(&["causal", "decod", "autoregressive", "cache", "generat"]) && !has(&["noncausal", "non_causal"]);
        let said = decoder || both_ways;
        // A prefix, a window, a chunk or an image block is part of a decoder unless the name says otherwise.
        let implied = kind.sliding || kind.chunked || kind.prefix || kind.blocks || name == "packed";
        kind.causal =
            !kind.cross && (decoder || (implied && !both_ways) || (kind.blocks && both_ways && !kind.sliding));
        kind.either_way = kind.packed && !said && !kind.sliding && !kind.chunked && !kind.prefix && !kind.blocks;
        let known = said || implied || kind.packed || kind.tree || kind.cross;
        known.then_some(kind)
    }
}

/// What an owner declares: everything is optional, and what is missing is not guessed where it matters.
#[derive(Clone, Debug, Default)]
pub struct Context {
    /// The function or slot that takes the mask.
    pub api: Option<String>,
    /// Which stored value means "may attend".
    pub convention: Option<Convention>,
    /// What the array is for.
    pub role: Role,
    /// What kind of mask it should be.
    pub kind: Option<MaskKind>,
    /// Words of `kind` and `convention` that say nothing known; a report names them.
    pub not_understood: Vec<String>,
    /// The type in which scores are computed.
    pub compute_dtype: Option<Dtype>,
    /// Ids of padding, end and beginning of a text.
    pub pad_id: Option<i64>,
    /// See `pad_id`.
    pub eos_id: Option<i64>,
    /// See `pad_id`.
    pub bos_id: Option<i64>,
    /// Further ids that are no text.
    pub special_ids: Vec<i64>,
    /// Where padding stands.
    pub side: Option<Side>,
    /// Length of the prefix: one number, or one by batch row.
    pub prefix: Vec<i64>,
    /// Keys in the cache before the first query: one number, or one by batch row.
    pub past: Vec<i64>,
    /// Slots of the cache that have been written.
    pub written: Vec<i64>,
    /// Sizes.
    pub batch: Option<usize>,
    /// Number of query heads.
    pub heads: Option<usize>,
    /// Number of queries.
    pub q_len: Option<usize>,
    /// Number of keys.
    pub kv_len: Option<usize>,
    /// Width of the window.
    pub window: Option<i64>,
    /// How the width is counted, in words.
    pub window_means: Option<String>,
    /// Length of a chunk.
    pub chunk: Option<i64>,
    /// True when chunks are counted from slot 0 whatever the padding.
    pub chunk_from_slot: Option<bool>,
    /// First keys that everybody reads.
    pub sinks: usize,
    /// A bias that is part of the array: `alibi`, `t5`, ...
    pub bias: Option<String>,
    /// How positions enter: `rope`, `learned`, `alibi`, ...
    pub position_encoding: Option<String>,
    /// How heads and batch rows lie in a dimension that holds both.
    pub layout: Option<String>,
    /// Keys hidden from all queries, or from those beside them.
    pub redactions: Vec<Redaction>,
    /// Number of layers, for what passes through several of them.
    pub layers: Option<usize>,
    /// The kind of each layer.
    pub layer_kinds: Vec<String>,
    /// The causality flag that is passed beside the mask.
    pub is_causal: Option<bool>,
    /// The largest size of a score before the mask, where it is known.
    pub score_bound: Option<f64>,
    /// The longest document that the kernel is told of.
    pub max_seqlen: Option<i64>,
    /// True when the model continues the text.
    pub generates: bool,
    /// Real tokens by batch row.
    pub lengths: Vec<i64>,
    /// True when the model shifts labels by itself.
    pub shifts_labels: Option<bool>,
    /// The probability of masking a token (MLM).
    pub masked_fraction: Option<f64>,
    /// What a label for "no loss" is.
    pub ignore_index: Option<i64>,
    /// The pooling that was meant: `mean`, `cls`, `last`, ...
    pub pooling: Option<String>,
    /// The prompt's length: one number, or one by batch row.
    pub prompt: Vec<i64>,
}

/// Keys that some queries must not read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Redaction {
    /// Hidden keys.
    pub keys: Vec<usize>,
    /// Queries that must not read them; all when empty.
    pub queries: Vec<usize>,
}

impl Context {
    /// From a JSON object in the vocabulary of the conformance cases: `api`, `convention`, `role`, `kind`, `past_len`,
    /// `window`, `pad_token_id`, ... Keys may be spelled with or without `_len`, `_id` and underscores.
    ///
    /// ```
    /// use noren_mask::doctor::Context;
    /// let context = Context::from_json(r#"{"api": "sdpa", "convention": "keep_bool", "kind": "sliding", "window": 4}"#)?;
    /// assert_eq!(context.window, Some(4));
    /// # Ok::<(), noren_mask::Error>(())
    /// ```
    ///
    /// # Errors
    /// Text that is no JSON object, and values that are not what their key needs. Unknown keys are passed over: a context may
    /// be written for several readers.
    pub fn from_json(text: &str) -> Result<Self, Error> {
        let value: Value =
            serde_json::from_str(text).map_err(|e| Error::fact("context", format!("not valid JSON: {e}")))?;
        match value {
            Value::Object(map) => Self::from_map(&map),
            _ => Err(Error::fact("context", "expected a JSON object")),
        }
    }

    /// The same from a parsed object.
    ///
    /// # Errors
    /// See [`from_json`](Self::from_json).
    pub fn from_map(map: &Map<String, Value>) -> Result<Self, Error> {
        let read = Reader { map };
        let api = read.text(&["api", "function", "consumer"]);
        let role = read.text(&["role", "slot"]).unwrap_or_default().to_ascii_lowercase();
        let kind_name = read.text(&["kind", "mask_kind", "intent", "attention_type"]);
        let layer_kinds = read.texts(&["layer_kinds", "layer_types", "kinds", "layer_kind"]);
        let layer = read.size(&["layer", "layer_idx", "layer_index"])?;
        let own_layer = layer.and_then(|l| layer_kinds.get(l));
        let named = kind_name.as_deref().and_then(MaskKind::named);
        let of_layer =
            own_layer.and_then(|name| super::layers::kind_of(name, &Context { kind: named, ..Context::default() }));
        let kind = of_layer.or(named);
        let role = match () {
            () if role.contains("cross") || kind.is_some_and(|k| k.cross) => Role::Cross,
            () if role.contains("key") || role.contains("padding") => Role::KeyPadding,
            () => Role::Attention,
        };
        let convention = read.text(&["convention", "polarity"]);
        let side = read.text(&["padding_side", "side"]).unwrap_or_default();
        let dtype = read.text(&["compute_dtype", "score_dtype", "autocast_dtype"]);
        let understood = convention.as_deref().and_then(convention_named);
        let unclear = [
            (
                "kind",
                kind_name.filter(|_| named.is_none()),
                "causal, bidirectional, sliding, chunked, prefix_lm, causal_packed, tree, cross",
            ),
            ("convention", convention.filter(|_| understood.is_none()), "keep_bool, ignore_bool, keep_01, additive"),
        ];
        let not_understood = unclear.into_iter().filter_map(|(key, word, known)| {
            word.map(|word| {
                format!("`{key}` is declared as `{word}`, which is no word known here ({known}, ...): it is left out")
            })
        });
        Ok(Context {
            convention: understood,
            not_understood: not_understood.collect(),
            role,
            kind,
            compute_dtype: dtype.as_deref().and_then(Dtype::named),
            pad_id: read.whole(&["pad_token_id", "pad_id", "pad"])?,
            eos_id: read.whole(&["eos_token_id", "eos_id", "eos"])?,
            bos_id: read.whole(&["bos_token_id", "bos_id", "bos", "cls_token_id", "cls_id"])?,
            special_ids: read.numbers(&["special_token_ids", "special_ids", "special_tokens", "all_special_ids"])?,
            side: match side.to_ascii_lowercase().as_str() {
                "left" => Some(Side::Left),
                "right" => Some(Side::Right),
                _ => None,
            },
            prefix: read.numbers(&["prefix_len", "prefix_lens", "prefix", "prefix_length", "prefix_lengths"])?,
            past: read.numbers(&[
                "past_len",
                "past",
                "past_length",
                "past_lens",
                "cache_len",
                "past_lengths",
                "cached_len",
                "query_offset",
                "past_key_values_length",
            ])?,
            written: read.numbers(&[
                "written",
                "kv_written",
                "written_len",
                "cache_written",
                "valid_kv_len",
                "kv_valid_len",
            ])?,
            batch: read.size(&["batch", "batch_size"])?,
            heads: read.size(&["heads", "num_heads", "n_heads", "num_attention_heads", "nheads", "n_head"])?,
            q_len: read.size(&["q_len", "query_len", "q", "tgt_len", "target_len", "decoder_len"])?,
            kv_len: read.size(&[
                "kv_len",
                "key_len",
                "k_len",
                "src_len",
                "source_len",
                "cache_capacity",
                "capacity",
                "max_cache_len",
                "encoder_len",
            ])?,
            // Beside the layer's own kind the width may be that of the model's other layers.
            window: read
                .whole(&["window", "sliding_window", "window_size", "window_len"])?
                .filter(|_| of_layer.is_none_or(|k| k.sliding)),
            window_means: read.text(&["window_means", "window_convention", "window_counts"]),
            chunk: read.whole(&["chunk", "chunk_size", "chunk_len", "attention_chunk_size", "chunk_length"])?,
            chunk_from_slot: read
                .text(&["chunk_from", "chunk_origin", "chunks_counted_from"])
                .map(|t| t.contains("slot")),
            sinks: read
                .size(&["sinks", "sink_tokens", "attention_sinks", "num_sinks", "n_sink", "num_sink_tokens"])?
                .unwrap_or(0),
            bias: read.text(&["bias", "position_bias"]),
            position_encoding: read.text(&[
                "position_encoding",
                "positions",
                "pos_encoding",
                "position_embedding",
                "position_embeddings",
                "position_embedding_type",
            ]),
            layout: read.text(&["layout", "head_layout", "batch_head_layout"]),
            redactions: read.redactions(&["redactions", "redacted", "redact", "hidden_keys", "redacted_keys"])?,
            layers: read.size(&["layers", "num_layers", "n_layers", "num_hidden_layers", "depth"])?,
            layer_kinds: if of_layer.is_some() { Vec::new() } else { layer_kinds },
            is_causal: read.optional_flag(&["is_causal", "causal_flag"]),
            score_bound: read.real(&["score_bound", "max_score", "score_max", "max_abs_score"]),
            max_seqlen: read.whole(&["max_seqlen", "max_seqlen_q", "max_seq_len"])?,
            generates: read.flag(&["generation", "generate", "generates", "is_generation"])
                || read
                    .text(&["task", "purpose", "use", "stage", "mode", "phase"])
                    .is_some_and(|t| t.contains("generat") || t.contains("decod")),
            lengths: read.numbers(&["lengths", "seq_lens", "seqlens", "real_lengths"])?,
            shifts_labels: read.optional_flag(&[
                "model_shifts_labels",
                "shift_inside",
                "shifts_labels",
                "model_shifts",
                "labels_shifted_inside",
                "shift_labels",
            ]),
            masked_fraction: read.real(&["mlm_probability", "masked_fraction", "mlm_prob"]),
            ignore_index: read.whole(&["ignore_index", "label_ignore", "label_ignore_index"])?,
            pooling: read.text(&["pooling", "pooling_mode", "pool"]),
            prompt: read.numbers(&["prompt_len", "prompt_lens", "prompt_lengths", "prompt_length"])?,
            api,
        })
    }

    /// Whether the API's name holds one of these words.
    pub(crate) fn api_has(&self, words: &[&str]) -> bool {
        let api = self.api.as_deref().unwrap_or("").to_ascii_lowercase();
        words.iter().any(|w| api.contains(w))
    }
}

fn convention_named(name: &str) -> Option<Convention> {
    let name = name.to_ascii_lowercase();
    let has = |words: &[&str]| words.iter().any(|w| name.contains(w));
    match () {
        () if has(&["add", "bias", "float_mask"]) => Some(Convention::Additive),
        () if has(&["ignore", "drop", "masked", "hide", "true_is_pad", "exclude"]) => Some(Convention::Drop),
        () if has(&["keep", "attend", "visible", "allow"]) => Some(Convention::Keep),
        () => None,
    }
}

/// Looks up values under any of several spellings.
struct Reader<'a> {
    map: &'a Map<String, Value>,
}

impl Reader<'_> {
    fn get(&self, names: &[&str]) -> Option<(&str, &Value)> {
        let plain = |s: &str| s.replace(['_', '-', '.', ' '], "").to_ascii_lowercase();
        names.iter().find_map(|name| {
            let found = self.map.iter().find(|(key, _)| plain(key) == plain(name))?;
            (!found.1.is_null()).then_some((found.0.as_str(), found.1))
        })
    }

    fn text(&self, names: &[&str]) -> Option<String> {
        match self.get(names)?.1 {
            Value::String(text) => Some(text.clone()),
            _ => None,
        }
    }

    fn texts(&self, names: &[&str]) -> Vec<String> {
        match self.get(names) {
            Some((_, Value::Array(list))) => list.iter().filter_map(|v| v.as_str().map(str::to_string)).collect(),
            _ => Vec::new(),
        }
    }

    fn flag(&self, names: &[&str]) -> bool {
        self.optional_flag(names).unwrap_or(false)
    }

    fn optional_flag(&self, names: &[&str]) -> Option<bool> {
        self.get(names)?.1.as_bool()
    }

    fn real(&self, names: &[&str]) -> Option<f64> {
        self.get(names)?.1.as_f64()
    }

    fn whole(&self, names: &[&str]) -> Result<Option<i64>, Error> {
        Ok(self.numbers(names)?.first().copied())
    }

    fn size(&self, names: &[&str]) -> Result<Option<usize>, Error> {
        let Some(n) = self.whole(names)? else { return Ok(None) };
        let fits = usize::try_from(n).ok().filter(|n| *n <= crate::Shape::MAX_LEN);
        match fits {
            Some(n) => Ok(Some(n)),
            None => Err(Error::fact(
                format!("context: {}", names[0]),
                format!("{n}: expected 0 to {}", crate::Shape::MAX_LEN),
            )),
        }
    }

    /// One number or a list of them; text and nested lists are no numbers and are left to whoever reads them as such.
    fn numbers(&self, names: &[&str]) -> Result<Vec<i64>, Error> {
        let Some((key, value)) = self.get(names) else { return Ok(Vec::new()) };
        let wrong = || {
            Error::fact(format!("context: {key}"), format!("got {value}, expected a whole number or a list of them"))
        };
        let number = |v: &Value| v.as_i64().or_else(|| v.as_f64().filter(|x| x.fract() == 0.0).map(|x| x as i64));
        match value {
            Value::Array(list) if list.iter().all(Value::is_number) => {
                list.iter().map(|v| number(v).ok_or_else(wrong)).collect()
            }
            Value::Number(_) => Ok(vec![number(value).ok_or_else(wrong)?]),
            _ => Ok(Vec::new()),
        }
    }

    /// `[3, 4]`, `[{"keys": [3], "queries": [7]}]`, `{"keys": [3]}` or `[[7, 3], ...]` as query and key.
    fn redactions(&self, names: &[&str]) -> Result<Vec<Redaction>, Error> {
        let Some((key, value)) = self.get(names) else { return Ok(Vec::new()) };
        let wrong = || {
            Error::fact(
                format!("context: {key}"),
                format!("got {value}, expected keys such as [3, 4] or {{\"keys\": [3], \"queries\": [7]}}"),
            )
        };
        let list = |v: &Value| -> Option<Vec<usize>> {
            match v {
                Value::Array(items) => items.iter().map(|v| v.as_u64().map(|n| n as usize)).collect(),
                Value::Number(n) => Some(vec![n.as_u64()? as usize]),
                _ => None,
            }
        };
        let one = |v: &Value| -> Option<Redaction> {
            let Value::Object(map) = v else { return None };
            let read = Reader { map };
            let keys = list(read.get(&["keys", "key", "hide", "hidden", "tokens", "source"])?.1)?;
            let queries = match read.get(&["queries", "query", "from", "rows", "outputs", "output", "target"]) {
                Some((_, v)) => list(v)?,
                None => Vec::new(),
            };
            Some(Redaction { keys, queries })
        };
        match value {
            Value::Object(_) => Ok(vec![one(value).ok_or_else(wrong)?]),
            Value::Array(items) if items.iter().all(Value::is_number) => {
                Ok(vec![Redaction { keys: list(value).ok_or_else(wrong)?, queries: Vec::new() }])
            }
            Value::Array(items) if items.iter().all(Value::is_array) => items
                .iter()
                .map(|pair| match list(pair).as_deref() {
                    Some(&[q, k]) => Ok(Redaction { keys: vec![k], queries: vec![q] }),
                    _ => Err(wrong()),
                })
                .collect(),
            Value::Array(items) => items.iter().map(|v| one(v).ok_or_else(wrong)).collect(),
            _ => Err(wrong()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_that_say_nothing_are_named() {
        let context = Context::from_json(r#"{"kind": "caussal", "convention": "yes"}"#).unwrap();
        assert!(context.not_understood[0].starts_with("`kind` is declared as `caussal`"));
        assert!(context.not_understood[1].starts_with("`convention` is declared as `yes`"));
        assert!(
            Context::from_json(r#"{"kind": "causal", "convention": "keep_01"}"#).unwrap().not_understood.is_empty()
        );
    }

    #[test]
    fn kinds_by_name() {
        let kind = |name: &str| MaskKind::named(name).expect("a known name");
        assert!(kind("causal").causal && !kind("bidirectional").causal);
        assert!(kind("causal_packed").causal && kind("causal_packed").packed);
        assert!(kind("sliding").causal && kind("sliding").sliding);
        assert!(!kind("bidirectional_sliding").causal);
        assert!(kind("prefix_lm").causal && kind("prefix_lm").prefix);
        assert!(!kind("cross_attention").causal && kind("cross_attention").cross);
        assert!(!kind("bidirectional_packed").causal);
        assert!(kind("packed").either_way && kind("varlen").either_way && !kind("causal_packed").either_way);
        assert_eq!(MaskKind::named("mystery"), None);
    }

    #[test]
    fn spellings() {
        let context = Context::from_json(
            r#"{"convention": "ignore_bool", "role": "key_padding", "pad_token_id": 0, "pastLen": [3, 4],
                "redactions": [{"keys": [2], "from": [5]}], "padding_side": "left", "compute_dtype": "torch.float16"}"#,
        )
        .expect("a context");
        assert_eq!(context.convention, Some(Convention::Drop));
        assert_eq!((context.role, context.past, context.pad_id), (Role::KeyPadding, vec![3, 4], Some(0)));
        assert_eq!(context.redactions, [Redaction { keys: vec![2], queries: vec![5] }]);
        assert_eq!((context.side, context.compute_dtype), (Some(Side::Left), Some(Dtype::F16)));
    }
}

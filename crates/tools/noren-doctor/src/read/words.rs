//! The words that the user may write in declarations. Any other word is an error; its message names the most similar
//! known word.

use crate::read::kinds::{Convention, MaskKind, Role};
use noren_mask::Error;
use noren_mask::Side;

/// The meaning of a declared window width: which keys are counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WindowMeans {
    /// The width of a window is the number of keys that a query reads, including its own key.
    WithSelf,
    /// The width of a window is the number of keys before the query. The query also reads its own key, which is not counted.
    Before,
    /// The width of a window is the number of keys on each side of the query. The query also reads its own key, which
    /// is not counted.
    EachSide,
    /// The width of a window is the number of all keys that a query reads: the keys on both sides and its own key.
    Total,
}

impl WindowMeans {
    /// Returns true if the declared window width also counts keys after the query.
    pub(crate) fn names_sides(self) -> bool {
        matches!(self, WindowMeans::EachSide | WindowMeans::Total)
    }
}

/// The method that pools hidden states into one vector.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)] // the usual names
pub enum Pooling {
    Mean,
    First,
    Last,
    Max,
    /// A formula that has no word here. The check then accepts the pooled states of every correct formula that it
    /// knows, and reports all other states.
    Other,
}

/// A list of pairs (meaning, words with this meaning). A `|` is between two words; the first word is the usual one.
pub(super) type Words<T> = &'static [(T, &'static str)];

/// Words for the convention of a mask array.
const CONVENTIONS: Words<Convention> = &[
    (Convention::Keep, "keep_bool|keep|attend|visible|allowed|segments"),
    (Convention::Keep, "keep_01"),
    (Convention::Drop, "ignore_bool|ignore|drop|drop_bool|drop_01|true_is_padding|masked|hidden"),
    (Convention::Drop, "ignore_01"),
    (Convention::Additive, "additive|added|add|bias|float_mask|neg_inf|minus_inf"),
];

/// The meaning of one word of a sentence about a convention, such as `1 = attend, 0 = hidden`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Said {
    Value(bool),
    Allows(bool),
    Not,
    Filler,
}

/// Words in sentences about a convention.
const SENTENCES: Words<Said> = &[
    (Said::Value(true), "true|1|one|ones|nonzero"),
    (Said::Value(false), "false|0|zero|zeros"),
    (
        Said::Allows(true),
        "keep|kept|attend|attends|attended|visible|allow|allowed|allows|real|valid|token|tokens|unmasked",
    ),
    (
        Said::Allows(false),
        "ignore|ignored|hide|hidden|hides|drop|dropped|mask|masked|masks|padding|pad|padded|blocked|excluded",
    ),
    (Said::Not, "not|no|non|cannot"),
    (Said::Filler, "is|are|means|mean|may|for|to|be|the|a|and|in|key|keys|position|positions"),
];

/// Words for the role of a mask array in a model.
pub(super) const ROLES: Words<Role> = &[
    (Role::Attention, "attn|attention|attn_mask|self|self_attn|self_attention|src_mask|tgt_mask|attn_bias"),
    (
        Role::KeyPadding,
        "key_padding|key_padding_mask|src_key_padding_mask|tgt_key_padding_mask|padding|padding_mask|pad_mask|keys",
    ),
    (Role::Cross, "cross|cross_attn|cross_attention|encoder_decoder|encoder_attn|memory|memory_mask"),
];

pub(super) const SIDES: Words<Side> = &[(Side::Left, "left"), (Side::Right, "right")];

/// Phrases for the keys that a window width counts.
pub(super) const WIDTHS: Words<WindowMeans> = &[
    (WindowMeans::WithSelf, "keys visible, self included|keys visible|self included|including self|with self"),
    (
        WindowMeans::Before,
        "keys before the query|previous keys, self excluded|previous keys plus self|previous keys|self excluded|before",
    ),
    (WindowMeans::EachSide, "keys on each side|each side|either side|both sides|per side|radius"),
    (WindowMeans::Total, "keys in total|total|diameter"),
];

/// Words for methods of pooling.
pub(super) const POOLINGS: Words<Pooling> = &[
    (Pooling::Mean, "mean|avg|average|mean_tokens"),
    (Pooling::First, "cls|first|first_token|cls_token"),
    (Pooling::Last, "last|last_token|eos"),
    (Pooling::Max, "max|max_tokens"),
    (Pooling::Other, "other|attention"),
];

/// Words for position encodings. The meaning is true if the encoding depends only on distances between positions.
const ENCODINGS: Words<bool> =
    &[(true, "rope|rotary|mrope|alibi|relative|t5|none|nope|xpos"), (false, "learned|absolute|sinusoidal")];

/// Names of biases whose misspellings are errors.
const BIASES: Words<()> = &[((), "alibi"), ((), "relative")];

/// The task of a model.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Task {
    /// The model generates a continuation of the text.
    Generation,
    /// The model learns to predict masked tokens.
    MaskedLm,
    Other,
}

pub(super) const TASKS: Words<Task> = &[
    (Task::Generation, "generation|generate|generating|text_generation|decode|decoding"),
    (Task::MaskedLm, "mlm|masked_lm|masked_language_modeling|fill_mask"),
    (Task::Other, "training|train|prefill|inference|evaluation|eval|embedding|encoding|classification"),
];

/// Words for the token at which counting of chunks or prefixes begins. The meaning is true for the first token of the
/// row, padding included, and false for the first non-padding token.
pub(super) const CHUNK_ORIGINS: Words<bool> = &[(true, "slot|slot_0"), (false, "text|first_real_token")];

/// Other usual names of declarations: for an error message that gives the one accepted name.
const OTHER_NAMES: Words<&str> = &[
    ("kind", "mask_kind|intent|attention_type|mask_type"),
    ("layer_types", "layer_kinds|kinds"),
    ("role", "slot"),
    ("prefix_len", "prefix|prefix_lengths"),
    ("window", "sliding_window|window_size"),
    ("window_means", "window_convention|window_counts"),
    ("chunk", "attention_chunk_size|chunk_size"),
    ("sinks", "sink_tokens|attention_sinks|num_sinks"),
    ("redactions", "hidden_keys|redact"),
    ("layers", "num_layers|n_layers|num_hidden_layers|depth"),
    ("api", "function|consumer"),
    ("convention", "polarity"),
    ("compute_dtype", "dtype|score_dtype|autocast_dtype"),
    ("bias", "position_bias"),
    ("position_encoding", "positions|pos_encoding|position_embedding_type"),
    ("score_bound", "max_score|max_abs_score"),
    ("pad_token_id", "pad|pad_id"),
    ("eos_token_id", "eos|eos_id"),
    ("bos_token_id", "bos|bos_id|cls_token_id"),
    ("special_token_ids", "special_ids|all_special_ids|special_tokens"),
    ("padding_side", "side"),
    ("lengths", "seq_lens|seqlens"),
    ("kv_written", "written|cache_written|valid_kv_len"),
    ("past_len", "past|cache_len|query_offset|past_key_values_length"),
    ("batch", "batch_size"),
    ("heads", "num_heads|n_heads|num_attention_heads|n_head"),
    ("q_len", "q|query_len|tgt_len|target_len|decoder_len"),
    ("kv_len", "key_len|k_len|src_len|cache_capacity|capacity|max_cache_len|encoder_len"),
    ("task", "generation|generate|purpose|mode"),
    ("model_shifts_labels", "shifts_labels|shift_labels|model_shifts"),
    ("mlm_probability", "masked_fraction|mlm_prob"),
    ("pooling", "pooling_mode|pool"),
    ("prompt_len", "prompt_length"),
];

/// The meaning of one word of a name such as `causal_packed`, which names a kind of mask.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Part {
    Causal,
    BothWays,
    Packed,
    Sliding,
    Chunked,
    Prefix,
    Blocks,
    Tree,
    Cross,
    /// A word that does not change the meaning of the name: `attention`, `mask`.
    Filler,
    /// A negation, `not` or `non`: the next word has the opposite meaning.
    Not,
}

/// Words in names of kinds of masks.
const KINDS: Words<Part> = &[
    (Part::Causal, "causal|decoder|autoregressive|unidirectional|triangular|tril|gpt"),
    (Part::BothWays, "bidirectional|full|encoder|noncausal|symmetric|mlm|masked|bert|global|joint|dense|vit"),
    (Part::Sliding, "sliding|window|windowed|local|ring|swa"),
    (Part::Chunked, "chunked|chunk|chunks"),
    (Part::Prefix, "prefix"),
    (Part::Packed, "packed|packing|document|documents|segment|segments|sequences|diagonal|diag|varlen|ragged"),
    (Part::Blocks, "image|images|span|spans|vlm|multimodal"),
    (Part::Tree, "tree|medusa|eagle|draft|drafts|speculative"),
    (Part::Cross, "cross"),
    (
        Part::Filler,
        "attention|attn|self|mask|lm|with|and|block|blocks|layer|only|model|padded|cached|cache|kv|decode|prefill|blockwise|frame|frames",
    ),
    (Part::Not, "not|non"),
];

/// The usual names of kinds of masks, for error messages.
const USUAL_KINDS: &[&str] = &[
    "causal",
    "bidirectional",
    "sliding",
    "chunked",
    "prefix_lm",
    "causal_packed",
    "tree",
    "cross",
    "or give the intended mask",
];

/// Kinds of layers without softmax attention, which have no mask.
const WITHOUT_ATTENTION: &[&str] =
    &["linear_attention", "conv", "convolution", "mamba", "mamba2", "recurrent", "ssm", "rwkv", "moe", "mlp"];

/// Returns the words of a table, each with its meaning.
fn each<T: Copy>(table: Words<T>) -> impl Iterator<Item = (&'static str, T)> + Clone {
    table.iter().flat_map(|&(meaning, words)| words.split('|').map(move |word| (word, meaning)))
}

/// Returns the usual word with the meaning `meaning`.
fn usual<T: Copy + PartialEq>(meaning: T, table: Words<T>) -> Option<&'static str> {
    each(table).find(|(_, other)| *other == meaning).map(|(word, _)| word)
}

/// Returns the meaning of `word`. If the word is unknown, returns an error that names `key`, the declaration that
/// contains the word.
pub(super) fn look_up<T: Copy>(key: &str, word: &str, table: Words<T>) -> Result<T, Error> {
    let plain = phrase(word);
    let found = each(table).find(|(known, _)| phrase(known) == plain).map(|(_, meaning)| meaning);
    let usual: Vec<&str> = table.iter().filter_map(|(_, words)| words.split('|').next()).collect();
    found.ok_or_else(|| unknown(key, word, each(table).map(|(known, _)| known), &usual))
}

/// Returns the words of the text (sequences of letters and digits) in lower case, separated by one space: for the text
/// `Keep_Bool`, returns `keep bool`.
pub(crate) fn phrase(text: &str) -> String {
    let words = text.split(|c: char| !c.is_alphanumeric()).filter(|w| !w.is_empty());
    words.map(str::to_lowercase).collect::<Vec<_>>().join(" ")
}

/// Returns the error about an unknown word in the declaration `key`. The message has the nearest of the words `known`,
/// and the words `usual`.
fn unknown<'a>(key: &str, word: &str, known: impl Iterator<Item = &'a str>, usual: &[&str]) -> Error {
    let shown: String = word.chars().take(60).collect();
    let near = noren_mask::nearest(word, known).map(|near| format!("did you mean `{near}`? ")).unwrap_or_default();
    Error::invalid(format!("{key}=`{shown}` is an unknown word: {near}known words are {}", usual.join(", ")))
}

/// Returns the error about `key`, which is no name of a declaration. `known` has the names of all declarations.
pub(crate) fn unknown_key(key: &str, known: &[&str]) -> Error {
    let plain = phrase(key);
    let short = |name: &str| phrase(name).replace(' ', "");
    let same = || known.iter().find(|name| short(name) == short(key)).copied();
    let other = || each(OTHER_NAMES).find(|(other, _)| phrase(other) == plain).map(|(_, name)| name);
    let near = || noren_mask::nearest(key, known.iter().copied());
    let near = same().or_else(other).or_else(near).map(|near| format!("did you mean `{near}`?"));
    let text = near.unwrap_or_else(|| format!("give {}", known.join(", ")));
    Error::invalid(format!("`{key}` is an unknown declaration: {text}"))
}

pub(crate) fn convention(word: &str) -> Result<Convention, Error> {
    sentence(word).map_or_else(|| look_up("convention", word, CONVENTIONS), Ok)
}

/// Returns the convention that a sentence such as `1 = attend, 0 = hidden` or `true_is_padding` states; `None` for other words, and for
/// sentences that contradict themselves.
fn sentence(text: &str) -> Option<Convention> {
    let (mut value, mut not, mut keeps) = (None, false, None);
    for word in phrase(text).split(' ') {
        match each(SENTENCES).find(|(known, _)| *known == word)?.1 {
            Said::Value(of) => (value, not) = (Some(of), false),
            Said::Not => not = true,
            Said::Filler => {}
            Said::Allows(allows) => {
                let keep = (value? == allows) != std::mem::take(&mut not);
                if keeps.replace(keep).is_some_and(|before| before != keep) {
                    return None;
                }
            }
        }
    }
    Some(if keeps? { Convention::Keep } else { Convention::Drop })
}

/// Returns the name of a position encoding in lower case, or an error if the encoding is unknown.
pub(crate) fn encoding(word: &str) -> Result<String, Error> {
    look_up("position_encoding", word, ENCODINGS).map(|_| phrase(word))
}

/// Returns the name of a bias in lower case, or an error if it looks like a misspelled known name. Any other name is
/// accepted, because the check needs only the names of biases that depend on positions.
pub(crate) fn bias(word: &str) -> Result<String, Error> {
    let known = || each(BIASES).map(|(name, ())| name);
    match noren_mask::nearest(word, known()).filter(|near| *near != phrase(word)) {
        Some(_) => look_up("bias", word, BIASES).map(|()| phrase(word)),
        None => Ok(phrase(word)),
    }
}

/// Returns true if `word` is the name of a position encoding that depends only on the distances between positions.
pub(crate) fn counts_distances(word: &str) -> bool {
    each(ENCODINGS).any(|(known, relative)| known == word && relative)
}

/// Returns the kind for a name such as `causal`, `causal_packed` or `prefix_lm`. Every word of the name must be known.
pub(crate) fn kind(key: &str, name: &str) -> Result<MaskKind, Error> {
    let plain = phrase(name);
    let words: Vec<&str> = plain.split(' ').filter(|w| !w.is_empty()).collect();
    let mut parts = Vec::new();
    let mut negated = false;
    for word in &words {
        let Some((_, part)) = each(KINDS).find(|(known, _)| known == word) else {
            if let Ok(Some(role)) = look_up(key, name, ROLES).map(|role| usual(role, ROLES)) {
                return Err(Error::invalid(format!(
                    "{key}=`{name}` is no kind of mask but a role: declare role={role}"
                )));
            }
            let given = if words.len() == 1 { name } else { word };
            return Err(unknown(key, given, kinds(), USUAL_KINDS));
        };
        match (negated, part) {
            (true, Part::Causal) => parts.push(Part::BothWays),
            (true, Part::BothWays) => parts.push(Part::Causal),
            (true, _) => {
                return Err(Error::invalid(format!(
                    "{key}=`{name}` negates a word that has no opposite: use `causal` or `bidirectional`"
                )));
            }
            (false, Part::Not) => {}
            (false, part) => parts.push(part),
        }
        negated = part == Part::Not;
    }
    if negated || !parts.iter().any(|p| *p != Part::Filler) {
        return Err(unknown(key, name, kinds(), USUAL_KINDS));
    }
    let blocks = words.iter().any(|word| ["block", "blocks", "blockwise", "frame", "frames"].contains(word));
    if blocks && parts.iter().all(|part| [Part::Causal, Part::Filler].contains(part)) {
        return Err(Error::invalid(format!(
            "{key}=`{name}` has two meanings: declare {key}=causal_packed if each block is a document with a causal mask; if each block reads itself \
             and all earlier blocks, give the intended mask, such as `causal | chunk(4)` for blocks of 4 tokens"
        )));
    }
    of_parts(key, name, &parts, &words)
}

/// Returns the words for kinds of masks, the usual names first.
fn kinds() -> impl Iterator<Item = &'static str> {
    USUAL_KINDS.iter().copied().chain(each(KINDS).map(|(known, _)| known))
}

fn of_parts(key: &str, name: &str, parts: &[Part], words: &[&str]) -> Result<MaskKind, Error> {
    let has = |part: Part| parts.contains(&part);
    let in_turn = |a: &str, b: &str| words.windows(2).any(|w| w[0].starts_with(a) && w[1].starts_with(b));
    // Bidirectional blocks inside causal text.
    let both_ways_blocks = in_turn("block", "bidirectional") || in_turn("bidirectional", "block");
    let mut kind = MaskKind {
        packed: has(Part::Packed),
        sliding: has(Part::Sliding),
        chunked: has(Part::Chunked),
        prefix: has(Part::Prefix),
        blocks: has(Part::Blocks) || both_ways_blocks,
        tree: has(Part::Tree),
        cross: has(Part::Cross),
        causal: false,
        either_way: false,
    };
    let (decoder, both_ways) = (has(Part::Causal), has(Part::BothWays) && !both_ways_blocks);
    if decoder && both_ways && !kind.blocks && !kind.cross {
        let text = format!(
            "{key}=`{name}` has words that allow later keys and words that hide later keys: remove the words with one of these meanings"
        );
        return Err(Error::invalid(text));
    }
    let said = decoder || both_ways;
    // A prefix, window, chunk or image block implies a causal mask, unless the name also has a word such as `bidirectional`.
    let implied = kind.sliding || kind.chunked || kind.prefix || kind.blocks;
    kind.causal = !kind.cross && (decoder || (implied && !both_ways) || (kind.blocks && both_ways && !kind.sliding));
    kind.either_way = kind.packed && !said && !implied;
    kind.causal |= kind.either_way && name.eq_ignore_ascii_case("packed");
    Ok(kind)
}

/// Returns the kind of mask for the name that model configurations give to a type of layer, such as
/// `sliding_attention`; `None` for a layer without softmax attention.
pub(crate) fn layer_kind(name: &str) -> Result<Option<MaskKind>, Error> {
    let plain = name.to_ascii_lowercase();
    match plain.as_str() {
        "attention" => Ok(Some(MaskKind::default())),
        plain if WITHOUT_ATTENTION.contains(&plain) => Ok(None),
        _ => kind("layer_types", name).map(Some),
    }
}

/// Returns a number with its noun: `1 key`, `6 keys`.
pub(crate) fn counted(n: impl Into<i128>, noun: &str) -> String {
    let n = n.into();
    format!("{n} {noun}{}", if n.abs() == 1 { "" } else { "s" })
}

/// The name of the function or argument that takes a mask, split into words at dots and similar characters.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Api(Vec<String>);

/// The meaning of a word in the name of an attention function.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Slot {
    /// PyTorch's `scaled_dot_product_attention`.
    Sdpa,
    /// A fused attention function, which adds floats to the scores.
    Fused,
    /// PyTorch's attention module, or a module that contains it.
    Multihead,
    /// A library whose attention module reads true as an allowed cell.
    Keeping,
    /// Another known function, library or model.
    Other,
}

const SLOTS: Words<Slot> = &[
    (Slot::Sdpa, "sdpa|scaled_dot_product_attention"),
    (
        Slot::Multihead,
        "mha|multiheadattention|multihead_attention|transformer|transformerencoder|transformerencoderlayer|transformerdecoder|transformerdecoderlayer|megatron|transformer_engine|fairseq|masked_fill",
    ),
    (
        Slot::Fused,
        "flash_attn|flash|flash_attention|flash_attn_func|flash_attn_varlen_func|flash_attention_2|xformers|memory_efficient_attention|additive",
    ),
    (
        Slot::Other,
        "transformers|huggingface|hf|diffusers|generate|llama|gpt|gpt2|mlm|masked_lm|maskedlm|gpt_oss|key_padding_mask|model|eager|flex_attention|noren|onnx|burn|candle|vllm",
    ),
    (Slot::Keeping, "keras|tf|tensorflow|flax|mlx|jax|haiku"),
];

impl Api {
    /// Returns the name `name` of a function, split into words.
    ///
    /// # Errors
    /// Returns an error if no word of the name is known.
    pub(crate) fn named(name: &str) -> Result<Self, Error> {
        let parts = name.split(|c: char| !(c.is_alphanumeric() || c == '_')).filter(|p| !p.is_empty());
        let api = Api(parts.map(str::to_lowercase).collect());
        let model = ["forcausallm", "formaskedlm", "forconditionalgeneration", "model"].iter().any(|end| api.ends(end));
        let known = model || each(SLOTS).any(|(word, _)| api.is(&[word]));
        let words = || each(SLOTS).map(|(word, _)| word);
        let usual =
            ["sdpa", "mha", "flash_attn", "transformers", "keras", "jax", "or leave `api` out and give `convention`"];
        let last = api.0.last().map_or(name, String::as_str);
        known.then(|| api.clone()).ok_or_else(|| unknown("api", last, words(), &usual))
    }

    fn is(&self, words: &[&str]) -> bool {
        self.0.iter().any(|part| words.contains(&part.as_str()))
    }

    fn has(&self, slot: Slot) -> bool {
        each(SLOTS).any(|(word, meaning)| meaning == slot && self.is(&[word]))
    }

    fn ends(&self, end: &str) -> bool {
        self.0.iter().any(|part| part.ends_with(end))
    }

    /// Returns true for PyTorch's `scaled_dot_product_attention`: booleans allow cells, floats are added.
    pub(crate) fn sdpa(&self) -> bool {
        self.has(Slot::Sdpa)
    }

    /// Returns true for PyTorch's attention module, in which true hides a cell.
    pub(crate) fn multihead(&self) -> bool {
        self.has(Slot::Multihead) && !self.has(Slot::Keeping)
    }

    /// Returns true if the stored value true hides a cell. Declarations can override this default.
    pub(crate) fn drops(&self) -> bool {
        self.multihead() || self.is(&["key_padding_mask"])
    }

    /// Returns true if the name of the function determines whether the stored value true allows or hides a cell.
    pub(crate) fn says_polarity(&self) -> bool {
        !self.0.is_empty()
    }

    /// Returns true if the function adds floats to the scores.
    pub(crate) fn adds(&self) -> bool {
        self.sdpa() || self.has(Slot::Fused) || self.multihead()
    }

    /// Returns true if the function accepts only floats, which it adds to the scores.
    pub(crate) fn additive(&self) -> bool {
        self.is(&["additive"])
    }

    /// Returns true if the function broadcasts masks and aligns their last dimensions, as numpy does.
    pub(crate) fn broadcasts(&self) -> bool {
        self.sdpa() || self.is(&["jax", "mlx"])
    }

    /// Returns true if the name belongs to a decoder, such as `gpt2`, or to a library or function for decoders, such as
    /// `generate`.
    pub(crate) fn decoder(&self) -> bool {
        self.is(&["transformers", "huggingface", "hf", "generate", "gpt", "gpt2", "llama"]) || self.ends("forcausallm")
    }

    pub(crate) fn masked_lm(&self) -> bool {
        self.is(&["mlm", "masked_lm", "maskedlm"]) || self.ends("formaskedlm")
    }

    /// Returns true if the named model has attention sinks: the probabilities of a query may then sum to less than 1.
    pub(crate) fn has_sinks(&self) -> bool {
        self.is(&["gpt_oss"])
    }
}

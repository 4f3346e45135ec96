//! The words that the user may write in declarations. Any other word is an error; its message names the most similar
//! known word.

use super::kinds::{Convention, MaskKind, Role};
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

/// A list of pairs (word that a declaration may use, meaning of this word).
type Words<T> = &'static [(&'static str, T)];

/// Words for the convention of a mask array.
const CONVENTIONS: Words<Convention> = &[
    ("keep_bool", Convention::Keep),
    ("ignore_bool", Convention::Drop),
    ("keep_01", Convention::Keep),
    ("additive", Convention::Additive),
    ("keep", Convention::Keep),
    ("drop", Convention::Drop),
    ("ignore", Convention::Drop),
    ("ignore_01", Convention::Drop),
    ("drop_bool", Convention::Drop),
    ("drop_01", Convention::Drop),
    ("true_is_keep", Convention::Keep),
    ("true_may_attend", Convention::Keep),
    ("true_attends", Convention::Keep),
    ("true_is_visible", Convention::Keep),
    ("attend", Convention::Keep),
    ("visible", Convention::Keep),
    ("allowed", Convention::Keep),
    ("segments", Convention::Keep),
    ("true_is_ignored", Convention::Drop),
    ("true_is_padding", Convention::Drop),
    ("true_is_pad", Convention::Drop),
    ("true_is_masked", Convention::Drop),
    ("true_is_hidden", Convention::Drop),
    ("masked", Convention::Drop),
    ("hidden", Convention::Drop),
    ("added", Convention::Additive),
    ("add", Convention::Additive),
    ("bias", Convention::Additive),
    ("float_mask", Convention::Additive),
];

/// Words for the role of a mask array in a model.
const ROLES: Words<Role> = &[
    ("attn", Role::Attention),
    ("key_padding", Role::KeyPadding),
    ("cross", Role::Cross),
    ("attention", Role::Attention),
    ("attn_mask", Role::Attention),
    ("self", Role::Attention),
    ("self_attn", Role::Attention),
    ("self_attention", Role::Attention),
    ("key_padding_mask", Role::KeyPadding),
    ("padding", Role::KeyPadding),
    ("padding_mask", Role::KeyPadding),
    ("keys", Role::KeyPadding),
    ("cross_attn", Role::Cross),
    ("cross_attention", Role::Cross),
    ("memory", Role::Cross),
    ("memory_mask", Role::Cross),
];

const SIDES: Words<Side> = &[("left", Side::Left), ("right", Side::Right)];

/// Phrases for the keys that a window width counts.
const WIDTHS: Words<WindowMeans> = &[
    ("keys visible, self included", WindowMeans::WithSelf),
    ("keys before the query", WindowMeans::Before),
    ("keys on each side", WindowMeans::EachSide),
    ("keys in total", WindowMeans::Total),
    ("keys visible", WindowMeans::WithSelf),
    ("self included", WindowMeans::WithSelf),
    ("including self", WindowMeans::WithSelf),
    ("with self", WindowMeans::WithSelf),
    ("previous keys, self excluded", WindowMeans::Before),
    ("previous keys plus self", WindowMeans::Before),
    ("previous keys", WindowMeans::Before),
    ("self excluded", WindowMeans::Before),
    ("before", WindowMeans::Before),
    ("each side", WindowMeans::EachSide),
    ("either side", WindowMeans::EachSide),
    ("both sides", WindowMeans::EachSide),
    ("per side", WindowMeans::EachSide),
    ("radius", WindowMeans::EachSide),
    ("total", WindowMeans::Total),
    ("diameter", WindowMeans::Total),
];

/// Words for methods of pooling.
const POOLINGS: Words<Pooling> = &[
    ("mean", Pooling::Mean),
    ("cls", Pooling::First),
    ("last", Pooling::Last),
    ("max", Pooling::Max),
    ("avg", Pooling::Mean),
    ("average", Pooling::Mean),
    ("mean_tokens", Pooling::Mean),
    ("first", Pooling::First),
    ("first_token", Pooling::First),
    ("cls_token", Pooling::First),
    ("last_token", Pooling::Last),
    ("eos", Pooling::Last),
    ("max_tokens", Pooling::Max),
    ("attention", Pooling::Other),
    ("other", Pooling::Other),
];

/// Words for position encodings. The value is true if the encoding depends only on distances between positions.
const ENCODINGS: Words<bool> = &[
    ("rope", true),
    ("rotary", true),
    ("mrope", true),
    ("alibi", true),
    ("relative", true),
    ("t5", true),
    ("none", true),
    ("nope", true),
    ("xpos", true),
    ("learned", false),
    ("absolute", false),
    ("sinusoidal", false),
];

/// Words for tasks of the model. The value is true if the model generates a continuation of the text.
const TASKS: Words<bool> = &[
    ("generation", true),
    ("training", false),
    ("generate", true),
    ("generating", true),
    ("text_generation", true),
    ("decode", true),
    ("decoding", true),
    ("train", false),
    ("prefill", false),
    ("inference", false),
    ("evaluation", false),
    ("eval", false),
    ("embedding", false),
    ("encoding", false),
    ("classification", false),
];

/// Words for the token at which counting of chunks or prefixes begins. The value is true for the first token of the
/// row, padding included, and false for the first non-padding token.
const CHUNK_ORIGINS: Words<bool> = &[("slot", true), ("text", false), ("slot_0", true), ("first_real_token", false)];

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
    ("causal", Part::Causal),
    ("bidirectional", Part::BothWays),
    ("sliding", Part::Sliding),
    ("chunked", Part::Chunked),
    ("prefix", Part::Prefix),
    ("packed", Part::Packed),
    ("tree", Part::Tree),
    ("cross", Part::Cross),
    ("full", Part::BothWays),
    ("decoder", Part::Causal),
    ("encoder", Part::BothWays),
    ("autoregressive", Part::Causal),
    ("noncausal", Part::BothWays),
    ("symmetric", Part::BothWays),
    ("mlm", Part::BothWays),
    ("masked", Part::BothWays),
    ("bert", Part::BothWays),
    ("document", Part::Packed),
    ("documents", Part::Packed),
    ("segment", Part::Packed),
    ("segments", Part::Packed),
    ("diagonal", Part::Packed),
    ("diag", Part::Packed),
    ("varlen", Part::Packed),
    ("window", Part::Sliding),
    ("windowed", Part::Sliding),
    ("local", Part::Sliding),
    ("ring", Part::Sliding),
    ("swa", Part::Sliding),
    ("chunk", Part::Chunked),
    ("chunks", Part::Chunked),
    ("image", Part::Blocks),
    ("images", Part::Blocks),
    ("span", Part::Blocks),
    ("spans", Part::Blocks),
    ("vlm", Part::Blocks),
    ("multimodal", Part::Blocks),
    ("medusa", Part::Tree),
    ("speculative", Part::Tree),
    ("attention", Part::Filler),
    ("attn", Part::Filler),
    ("self", Part::Filler),
    ("mask", Part::Filler),
    ("lm", Part::Filler),
    ("with", Part::Filler),
    ("and", Part::Filler),
    ("block", Part::Filler),
    ("blocks", Part::Filler),
    ("layer", Part::Filler),
    ("global", Part::BothWays),
    ("not", Part::Not),
    ("non", Part::Not),
];

/// Kinds of layers without softmax attention, which have no mask.
const WITHOUT_ATTENTION: &[&str] =
    &["linear_attention", "conv", "convolution", "mamba", "mamba2", "recurrent", "ssm", "rwkv", "moe", "mlp"];

/// Returns the meaning of `word`. If the word is unknown, returns an error that names `key`, the declaration that
/// contains the word.
fn look_up<T: Copy + PartialEq>(key: &str, word: &str, words: Words<T>) -> Result<T, Error> {
    let plain = phrase(word);
    let found = words.iter().find(|(known, _)| phrase(known) == plain).map(|(_, meaning)| *meaning);
    found.ok_or_else(|| unknown(key, word, words.iter().map(|(known, _)| *known)))
}

/// Returns the words of the text (sequences of letters and digits) in lower case, separated by one space: for the text
/// `Keep_Bool`, returns `keep bool`.
fn phrase(text: &str) -> String {
    let words = text.split(|c: char| !c.is_alphanumeric()).filter(|w| !w.is_empty());
    words.map(str::to_lowercase).collect::<Vec<_>>().join(" ")
}

/// Returns the error about an unknown word in the declaration `key`. The message lists the first few words of `known`,
/// which are those in the documentation.
fn unknown<'a>(key: &str, word: &str, known: impl Iterator<Item = &'a str> + Clone) -> Error {
    let shown: String = word.chars().take(60).collect();
    let listed: Vec<&str> = known.clone().take(9).collect();
    let listed = listed.join(", ");
    let text = match noren_mask::nearest(word, known) {
        Some(near) => {
            format!("`{shown}` is an unknown word: did you mean `{near}`? Known words are {listed}, ...")
        }
        None => format!("`{shown}` is an unknown word: known words are {listed}, ..."),
    };
    Error::fact(format!("context: {key}"), text)
}

pub(super) fn convention(word: &str) -> Result<Convention, Error> {
    look_up("convention", word, CONVENTIONS)
}

pub(super) fn role(word: &str) -> Result<Role, Error> {
    look_up("role", word, ROLES)
}

pub(super) fn side(word: &str) -> Result<Side, Error> {
    look_up("padding_side", word, SIDES)
}

pub(super) fn window_means(word: &str) -> Result<WindowMeans, Error> {
    look_up("window_means", word, WIDTHS)
}

pub(super) fn pooling(word: &str) -> Result<Pooling, Error> {
    look_up("pooling", word, POOLINGS)
}

/// Returns the name of a position encoding in lower case, or an error if the encoding is unknown.
pub(super) fn encoding(word: &str) -> Result<String, Error> {
    look_up("position_encoding", word, ENCODINGS).map(|_| phrase(word))
}

/// Returns true if `word` is the name of a position encoding that depends only on the distances between positions.
pub(super) fn counts_distances(word: &str) -> bool {
    ENCODINGS.iter().any(|(known, relative)| *known == word && *relative)
}

/// Returns whether the task generates a continuation of the text.
pub(super) fn continues(word: &str) -> Result<bool, Error> {
    look_up("task", word, TASKS)
}

/// Returns true if `word` means that chunks or prefixes are counted from the first token of the row, padding included,
/// and false if it means the first non-padding token.
pub(super) fn from_slot(key: &str, word: &str) -> Result<bool, Error> {
    look_up(key, word, CHUNK_ORIGINS)
}

/// Returns the kind for a name such as `causal`, `causal_packed` or `prefix_lm`. Every word of the name must be known.
pub(super) fn kind(key: &str, name: &str) -> Result<MaskKind, Error> {
    let plain = phrase(name);
    let words: Vec<&str> = plain.split(' ').filter(|w| !w.is_empty()).collect();
    let mut parts = Vec::new();
    let mut negated = false;
    for word in &words {
        let Some((_, part)) = KINDS.iter().find(|(known, _)| known == word) else {
            let names =
                ["causal", "bidirectional", "sliding", "chunked", "prefix_lm", "causal_packed", "tree", "cross"];
            let known = names.into_iter().chain(KINDS.iter().map(|(known, _)| *known));
            return Err(match words.len() {
                1 => unknown(key, name, known),
                _ => unknown(key, word, known),
            });
        };
        match (negated, part) {
            (true, Part::Causal) => parts.push(Part::BothWays),
            (true, Part::BothWays) => parts.push(Part::Causal),
            (true, _) => {
                return Err(Error::fact(
                    format!("context: {key}"),
                    format!(
                        "the kind of mask `{name}` negates a word that has no opposite: use `causal` or `bidirectional`"
                    ),
                ));
            }
            (false, Part::Not) => {}
            (false, part) => parts.push(*part),
        }
        negated = *part == Part::Not;
    }
    if negated || !parts.iter().any(|p| *p != Part::Filler) {
        return match plain == "block diagonal" || plain.is_empty() || negated {
            true => Err(unknown(key, name, KINDS.iter().map(|(known, _)| *known))),
            false => Err(Error::fact(
                format!("context: {key}"),
                format!(
                    "`{name}` names no kind of mask: use causal, bidirectional, sliding, chunked, prefix_lm, packed, tree or cross"
                ),
            )),
        };
    }
    of_parts(key, name, &parts, &words)
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
            "`{name}` has words that allow later keys and words that hide later keys: remove the words with one of these meanings"
        );
        return Err(Error::fact(format!("context: {key}"), text));
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
pub(super) fn layer_kind(name: &str) -> Result<Option<MaskKind>, Error> {
    let plain = name.to_ascii_lowercase();
    match plain.as_str() {
        "attention" => Ok(Some(MaskKind::default())),
        plain if WITHOUT_ATTENTION.contains(&plain) => Ok(None),
        _ => kind("layer_types", name).map(Some),
    }
}

/// The name of the function or argument that takes a mask, split into words at dots and similar characters.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Api(Vec<String>);

/// Names of PyTorch's `scaled_dot_product_attention`.
const SDPA: &[&str] = &["sdpa", "scaled_dot_product_attention"];
/// Names of fused attention functions, which add floats to the scores.
const FUSED: &[&str] = &[
    "additive",
    "xformers",
    "memory_efficient_attention",
    "flash",
    "flash_attn",
    "flash_attention",
    "flash_attn_func",
    "flash_attn_varlen_func",
    "flash_attention_2",
];
/// Names of PyTorch's attention modules and of modules that contain them.
const MULTIHEAD: &[&str] = &[
    "multiheadattention",
    "mha",
    "transformer",
    "transformerencoder",
    "transformerencoderlayer",
    "transformerdecoder",
    "transformerdecoderlayer",
];
/// Names of libraries whose attention module reads true as an allowed cell.
const KEEPING: &[&str] = &["keras", "tf", "tensorflow", "flax", "mlx", "jax", "haiku"];
/// Known names of functions, libraries and models that no other list contains.
const OTHERS: &[&str] = &[
    "jax",
    "mlx",
    "transformers",
    "huggingface",
    "hf",
    "generate",
    "llama",
    "gpt",
    "gpt2",
    "mlm",
    "masked_lm",
    "maskedlm",
    "gpt_oss",
    "flex_attention",
    "keras",
    "key_padding_mask",
    "noren",
    "onnx",
    "burn",
    "candle",
    "vllm",
];

impl Api {
    pub(super) fn named(name: &str) -> Self {
        let parts = name.split(|c: char| !(c.is_alphanumeric() || c == '_')).filter(|p| !p.is_empty());
        Api(parts.map(|p| p.to_lowercase().replace('-', "_")).collect())
    }

    fn is(&self, words: &[&str]) -> bool {
        self.0.iter().any(|part| words.contains(&part.as_str()))
    }

    fn ends(&self, end: &str) -> bool {
        self.0.iter().any(|part| part.ends_with(end))
    }

    /// Returns true if at least one word of the name is known, or if no name is declared.
    pub(super) fn known(&self) -> bool {
        let lists = [SDPA, FUSED, MULTIHEAD, KEEPING, OTHERS];
        self.0.is_empty()
            || lists.iter().any(|words| self.is(words))
            || ["forcausallm", "formaskedlm", "forconditionalgeneration", "model"].iter().any(|end| self.ends(end))
    }

    /// Returns true for PyTorch's `scaled_dot_product_attention`: booleans allow cells, floats are added.
    pub(super) fn sdpa(&self) -> bool {
        self.is(SDPA)
    }

    /// Returns true for PyTorch's attention module, in which true hides a cell.
    pub(super) fn multihead(&self) -> bool {
        self.is(MULTIHEAD) && !self.is(KEEPING)
    }

    /// Returns true if the stored value true hides a cell. Declarations can override this default.
    pub(super) fn drops(&self) -> bool {
        self.multihead() || self.is(&["key_padding_mask"])
    }

    /// Returns true if the name of the function determines whether the stored value true allows or hides a cell.
    pub(super) fn says_polarity(&self) -> bool {
        !self.0.is_empty() && self.known()
    }

    /// Returns true if the function adds floats to the scores.
    pub(super) fn adds(&self) -> bool {
        self.sdpa() || self.is(FUSED) || self.multihead()
    }

    /// Returns true if the function accepts only floats, which it adds to the scores.
    pub(super) fn additive(&self) -> bool {
        self.is(&["additive"])
    }

    /// Returns true if the function broadcasts masks and aligns their last dimensions, as numpy does.
    pub(super) fn broadcasts(&self) -> bool {
        self.sdpa() || self.is(&["jax", "mlx"])
    }

    /// Returns true if the name belongs to a decoder, such as `gpt2`, or to a library or function for decoders, such as
    /// `generate`.
    pub(super) fn decoder(&self) -> bool {
        self.is(&["transformers", "huggingface", "hf", "generate", "gpt", "gpt2", "llama"]) || self.ends("forcausallm")
    }

    pub(super) fn masked_lm(&self) -> bool {
        self.is(&["mlm", "masked_lm", "maskedlm"]) || self.ends("formaskedlm")
    }

    /// Returns true if the named model has attention sinks: the probabilities of a query may then sum to less than 1.
    pub(super) fn has_sinks(&self) -> bool {
        self.is(&["gpt_oss"])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(name: &str) -> MaskKind {
        kind("kind", name).expect("a known name")
    }

    #[test]
    fn kinds_by_name() {
        assert!(known("causal").causal && !known("bidirectional").causal);
        assert!(known("causal_packed").causal && known("causal_packed").packed);
        assert!(known("sliding").causal && known("sliding").sliding);
        assert!(!known("bidirectional_sliding").causal && known("sliding_attention").sliding);
        assert!(known("prefix_lm").causal && known("prefix_lm").prefix);
        assert!(!known("cross_attention").causal && known("cross_attention").cross);
        assert!(!known("bidirectional_packed").causal && known("causal_with_image_blocks").blocks);
        assert!(known("packed").either_way && known("varlen").either_way && !known("causal_packed").either_way);
        assert!(known("block_diagonal").packed);
    }

    #[test]
    fn a_negated_kind_is_the_other_one() {
        for name in ["not_causal", "non_causal", "noncausal", "Not Causal"] {
            assert!(!known(name).causal, "{name}");
        }
        assert!(known("not_bidirectional").causal);
        assert!(kind("kind", "not_sliding").is_err() && kind("kind", "causal_not").is_err());
        assert!(kind("kind", "causal_bidirectional").is_err());
    }

    #[test]
    fn conventions_are_matched_as_a_whole() {
        assert_eq!(convention("true_is_padding").ok(), Some(Convention::Drop));
        assert_eq!(convention("keep_bool").ok(), Some(Convention::Keep));
        assert_eq!(convention("Additive").ok(), Some(Convention::Additive));
        for word in ["padding", "additively", "keepbool", "yes", ""] {
            assert!(convention(word).is_err(), "{word}");
        }
        let text = convention("keep_boll").unwrap_err().to_string();
        assert!(text.contains("did you mean `keep_bool`?"), "{text}");
    }

    #[test]
    fn libraries_differ_in_what_true_means() {
        assert!(Api::named("torch.nn.MultiheadAttention.key_padding_mask").drops());
        assert!(!Api::named("keras.layers.MultiHeadAttention").drops());
        assert!(Api::named("torch.nn.functional.scaled_dot_product_attention").adds());
        assert!(!Api::named("padding_adder").adds() && !Api::named("padding_adder").known());
    }
}

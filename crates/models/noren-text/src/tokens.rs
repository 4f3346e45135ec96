//! [`Tokenizer`]: the conversion of text to tokens, with the byte range of each token, and back. Tokens are bytes, or
//! come from a Hugging Face tokenizer.json.

use crate::Error;
use noren_mask::text::hex;
use std::collections::{BTreeSet, HashMap};
use std::ops::Range;
use std::path::Path;
use std::sync::LazyLock;

/// The role of a special token in a text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// The padding token, which fills rows to equal length.
    Padding,
    /// The special token before a text, such as `[CLS]` or `<s>`.
    Begin,
    /// The special token after a text, such as `[SEP]` or `</s>`.
    End,
    /// The token `[MASK]` of masked language models, which replaces a token to predict.
    Mask,
}

/// The tokens of one text, with their byte ranges.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Encoding {
    /// Indices of the tokens in the vocabulary, in the order of the text.
    pub ids: Vec<u32>,
    /// The byte range in the text of each token. If several tokens share one character, the range of each of them is
    /// the whole character. A special token has an empty range.
    pub ranges: Vec<Range<usize>>,
    /// True for each special token, which the tokenizer added and which has no text.
    pub special: Vec<bool>,
}

impl Encoding {
    /// Returns the number of tokens, special ones included.
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// Returns whether there is no token.
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }
}

/// A part of the tokens of a text that is short enough for a model.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Window {
    /// The tokens of the window, including the special tokens that the model expects at the beginning and the end.
    pub encoding: Encoding,
    /// For each token, the index of its word in the whole text, from 0; `None` for special tokens.
    pub words: Vec<Option<u32>>,
}

/// A conversion of text to tokens and back.
pub trait Tokenizer: Send + Sync {
    /// Returns the tokens of `text` as a model reads it, with the special tokens before and after it.
    ///
    /// # Errors
    /// Returns [`Error::Tokenizer`] if the vocabulary has no token for a part of the text.
    fn encode(&self, text: &str) -> Result<Encoding, Error>;

    /// Returns the text of `ids` without special tokens. Bytes that are not valid UTF-8, for example after a cut within
    /// a character, become U+FFFD.
    ///
    /// # Errors
    /// Returns [`Error::Tokenizer`] if the tokenizer cannot join the tokens.
    fn decode(&self, ids: &[u32]) -> Result<String, Error>;

    /// Returns the readable form of the token with the index `id` in the vocabulary; `None` for an index outside the
    /// vocabulary.
    fn token(&self, id: u32) -> Option<String>;

    /// Returns the number of tokens in the vocabulary, special ones included.
    fn vocab_size(&self) -> usize;

    /// Returns the vocabulary index of the special token with the role `role`; `None` if the tokenizer has no such
    /// token.
    fn special(&self, role: Role) -> Option<u32>;

    /// Returns whether the token with the index `id` is a special token, which has no text.
    fn is_special(&self, id: u32) -> bool;

    /// Returns the tokenizer as a tokenizer.json of Hugging Face, for a model's folder.
    fn to_json(&self) -> String;
}

/// A tokenizer with one token for each byte, and four special ones: padding 256, begin 257, end 258, mask 259.
///
/// ```
/// use noren_text::{ByteTokenizer, Tokenizer};
/// let tokens = ByteTokenizer.encode("né")?;
/// assert_eq!(tokens.ids, [257, 110, 195, 169]);
/// assert_eq!(tokens.ranges[2..], [1..3, 1..3]); // both bytes stand for the character
/// assert_eq!(ByteTokenizer.decode(&tokens.ids)?, "né");
/// # Ok::<(), noren_text::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct ByteTokenizer;

impl ByteTokenizer {
    /// Number of tokens in the vocabulary.
    pub const VOCAB_SIZE: usize = 260;
    const SPECIAL: [(Role, &'static str); 4] =
        [(Role::Padding, "<pad>"), (Role::Begin, "<s>"), (Role::End, "</s>"), (Role::Mask, "<mask>")];
}

impl Tokenizer for ByteTokenizer {
    fn encode(&self, text: &str) -> Result<Encoding, Error> {
        let begin = self.special(Role::Begin).expect("it has one");
        let mut tokens = Encoding { ids: vec![begin], ranges: vec![Range::default()], special: vec![true] };
        for (at, c) in text.char_indices() {
            for byte in c.encode_utf8(&mut [0; 4]).bytes() {
                tokens.ids.push(byte.into());
                tokens.ranges.push(at..at + c.len_utf8());
                tokens.special.push(false);
            }
        }
        Ok(tokens)
    }

    fn decode(&self, ids: &[u32]) -> Result<String, Error> {
        let bytes: Vec<u8> = ids.iter().filter_map(|id| u8::try_from(*id).ok()).collect();
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    fn token(&self, id: u32) -> Option<String> {
        match u8::try_from(id) {
            Ok(byte @ b'!'..=b'~') => Some(char::from(byte).to_string()),
            Ok(b' ') => Some("␣".to_string()),
            Ok(b'\n') => Some("⏎".to_string()),
            Ok(byte) => Some(hex(&[byte])),
            Err(_) => Self::SPECIAL.get(id as usize - 256).map(|(_, name)| name.to_string()),
        }
    }

    fn vocab_size(&self) -> usize {
        Self::VOCAB_SIZE
    }

    fn special(&self, role: Role) -> Option<u32> {
        Self::SPECIAL.iter().position(|(r, _)| *r == role).map(|at| 256 + at as u32)
    }

    fn is_special(&self, id: u32) -> bool {
        id >= 256
    }

    /// Returns this tokenizer as a tokenizer.json of Hugging Face: a byte-level BPE without merges.
    fn to_json(&self) -> String {
        let mut vocab = serde_json::Map::new();
        for byte in 0..=255u8 {
            vocab.insert(byte_char(byte).to_string(), byte.into());
        }
        let added: Vec<_> = Self::SPECIAL
            .iter()
            .enumerate()
            .map(|(at, (_, name))| {
                serde_json::json!({"id": 256 + at, "content": name, "single_word": false, "lstrip": false,
                    "rstrip": false, "normalized": false, "special": true})
            })
            .collect();
        let begin = serde_json::json!({"id": "<s>", "ids": [257], "tokens": ["<s>"]});
        let text = |name: &str| serde_json::json!({"Sequence": {"id": name, "type_id": 0}});
        let sign = serde_json::json!({"SpecialToken": {"id": "<s>", "type_id": 0}});
        let tokenizer = serde_json::json!({
            "version": "1.0", "truncation": null, "padding": null, "added_tokens": added, "normalizer": null,
            "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false},
            "post_processor": {"type": "TemplateProcessing", "single": [sign, text("A")],
                "pair": [sign, text("A"), text("B")], "special_tokens": {"<s>": begin}},
            "decoder": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false},
            "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
                "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "ignore_merges": false,
                "vocab": vocab, "merges": []},
        });
        format!("{tokenizer:#}\n")
    }
}

/// Returns the character with which Hugging Face's byte-level tokenizers represent a byte: the character with the
/// byte's code if it is printable, otherwise a character from U+0100 upward, such as `Ġ` for a space.
fn byte_char(byte: u8) -> char {
    let seen = |b: u8| matches!(b, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
    match seen(byte) {
        true => byte.into(),
        false => {
            let at = (0..byte).filter(|b| !seen(*b)).count() as u32;
            char::from_u32(0x100 + at).expect("every number from 0x100 to 0x1ff is the code of a character")
        }
    }
}

/// Returns the bytes that a token of a byte-level tokenizer represents. `piece` is the token, with one character for
/// each byte, as [`byte_char`] returns it. Returns `None` if `piece` contains other characters.
fn piece_bytes(piece: &str) -> Option<Vec<u8>> {
    static BYTES: LazyLock<HashMap<char, u8>> = LazyLock::new(|| (0..=255).map(|b| (byte_char(b), b)).collect());
    piece.chars().map(|c| BYTES.get(&c).copied()).collect()
}

/// A Hugging Face tokenizer, from its tokenizer.json.
#[derive(Clone, Debug)]
pub struct HfTokenizer {
    inner: tokenizers::Tokenizer,
    special: BTreeSet<u32>,
}

impl HfTokenizer {
    /// Reads a tokenizer from the file tokenizer.json at `path`.
    ///
    /// # Errors
    /// Returns [`Error::Tokenizer`] with the path if the file is missing or malformed.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self, Error> {
        let path = path.as_ref();
        let at = |problem: String| Error::Tokenizer { path: Some(path.to_path_buf()), problem };
        let bytes = std::fs::read(path).map_err(|e| at(format!("the file cannot be read: {e}")))?;
        Self::from_bytes(&bytes).map_err(|e| match e {
            Error::Tokenizer { problem, .. } => at(problem),
            other => other,
        })
    }

    /// Reads a tokenizer from the contents of a tokenizer.json. The settings for truncation and padding in the file are
    /// ignored.
    ///
    /// # Errors
    /// Returns [`Error::Tokenizer`] if the contents are malformed, or if the template names a special token that is not
    /// defined.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, Error> {
        let mut inner = tokenizers::Tokenizer::from_bytes(bytes)
            .map_err(|e| Error::tokenizer(format!("the contents are not a tokenizer.json of Hugging Face: {e}")))?;
        if let Some(processor) = inner.get_post_processor() {
            let form = serde_json::to_value(processor).map_err(Error::tokenizer)?;
            check_processor(&form).map_err(Error::tokenizer)?;
        }
        inner.with_truncation(None).map_err(Error::tokenizer)?;
        inner.with_padding(None);
        let special =
            inner.get_added_tokens_decoder().iter().filter(|(_, token)| token.special).map(|(id, _)| *id).collect();
        Ok(HfTokenizer { inner, special })
    }

    /// Returns the tokens of `text` in windows of at most `most` tokens. Each window has the special tokens before and
    /// after its text. Its first text tokens are the last quarter of the previous window's text tokens.
    ///
    /// # Errors
    /// Returns [`Error::Tokenizer`] if the text has no tokens, or if `most` leaves no space for text.
    pub fn windows(&self, text: &str, most: usize) -> Result<Vec<Window>, Error> {
        let encoding = self.inner.encode(text, true).map_err(Error::tokenizer)?;
        let words = encoding.get_word_ids().to_vec();
        let whole = self.ranges(&encoding);
        let before = whole.special.iter().take_while(|special| **special).count();
        let after = whole.special[before..].iter().rev().take_while(|special| **special).count();
        let body = before..whole.len() - after;
        let space = most.saturating_sub(before + after);
        if space == 0 {
            let problem = format!(
                "{} special tokens surround a text, but the model reads only {most} tokens: there is no space for text",
                before + after
            );
            return Err(Error::tokenizer(problem));
        }
        let step = space - space / 4;
        let count = body.len().saturating_sub(space).div_ceil(step) + 1;
        let window = |number: usize| {
            let start = body.start + number * step;
            let places = || (0..before).chain(start..(start + space).min(body.end)).chain(body.end..whole.len());
            Window {
                encoding: Encoding {
                    ids: places().map(|at| whole.ids[at]).collect(),
                    ranges: places().map(|at| whole.ranges[at].clone()).collect(),
                    special: places().map(|at| whole.special[at]).collect(),
                },
                words: places().map(|at| words[at]).collect(),
            }
        };
        Ok((0..count).map(window).collect())
    }

    fn ranges(&self, encoding: &tokenizers::Encoding) -> Encoding {
        let special: Vec<bool> = encoding.get_special_tokens_mask().iter().map(|added| *added == 1).collect();
        let range = |(offsets, special): (&(usize, usize), &bool)| match special {
            true => 0..0,
            false => offsets.0..offsets.1,
        };
        let ranges = encoding.get_offsets().iter().zip(&special).map(range).collect();
        Encoding { ids: encoding.get_ids().to_vec(), ranges, special }
    }

    /// Returns the tokenizer of the crate `tokenizers`, for other operations, such as decoding token by token.
    pub fn inner(&self) -> &tokenizers::Tokenizer {
        &self.inner
    }
}

impl Tokenizer for HfTokenizer {
    fn encode(&self, text: &str) -> Result<Encoding, Error> {
        Ok(self.ranges(&self.inner.encode(text, true).map_err(Error::tokenizer)?))
    }

    fn decode(&self, ids: &[u32]) -> Result<String, Error> {
        self.inner.decode(ids, true).map_err(Error::tokenizer)
    }

    /// Returns the readable form of token `id`. A byte-level token is shown as text, or as bytes if it holds only a
    /// part of a character.
    fn token(&self, id: u32) -> Option<String> {
        let mut piece = self.inner.id_to_token(id)?;
        let byte_level = matches!(self.inner.get_decoder(), Some(tokenizers::DecoderWrapper::ByteLevel(_)));
        if let Some(bytes) = piece_bytes(&piece).filter(|_| byte_level) {
            let seen = |text: &String| !text.chars().any(|c| c.is_control() && c != '\n');
            piece = String::from_utf8(bytes.clone()).ok().filter(seen).unwrap_or_else(|| hex(&bytes));
        }
        Some(piece.replace(['Ġ', '▁', ' '], "␣").replace(['Ċ', '\n'], "⏎"))
    }

    fn vocab_size(&self) -> usize {
        self.inner.get_vocab_size(true)
    }

    fn special(&self, role: Role) -> Option<u32> {
        let names: &[&str] = match role {
            Role::Padding => &["[PAD]", "<pad>", "<|pad|>", "<|endoftext|>"],
            Role::Begin => &["[CLS]", "<s>", "<bos>", "<|begin_of_text|>", "<|startoftext|>"],
            Role::End => &["[SEP]", "</s>", "<eos>", "<|end_of_text|>", "<|endoftext|>", "<|im_end|>", "<|return|>"],
            Role::Mask => &["[MASK]", "<mask>"],
        };
        names.iter().find_map(|name| self.inner.token_to_id(name))
    }

    fn is_special(&self, id: u32) -> bool {
        self.special.contains(&id)
    }

    fn to_json(&self) -> String {
        self.inner.to_string(true).expect("a tokenizer that was read from JSON can be written as JSON")
    }
}

/// Checks `post_processor` of a tokenizer.json, the rules that add special tokens. Returns an error if its template
/// cannot be applied by the crate `tokenizers`, which does not check templates that it reads from a file.
fn check_processor(form: &serde_json::Value) -> Result<(), String> {
    let inner = form["processors"].as_array().map(Vec::as_slice).unwrap_or_default();
    inner.iter().try_for_each(check_processor)?;
    let is_template = |form: &serde_json::Value| form["type"] == "TemplateProcessing";
    if inner.iter().filter(|form| is_template(form)).count() > 1 {
        return Err(
            "post_processor in tokenizer.json has several templates (TemplateProcessing): keep only one of them".into(),
        );
    }
    if !is_template(form) {
        return Ok(());
    }
    for (template, sequences) in [("single", &["A"][..]), ("pair", &["A", "B"])] {
        for piece in form[template].as_array().into_iter().flatten() {
            let sequence = &piece["Sequence"]["id"];
            if sequence.as_str().is_some_and(|id| !sequences.contains(&id)) {
                return Err(format!(
                    "post_processor: the template `{template}` has the sequence {sequence}: use {}",
                    sequences.join(" and ")
                ));
            }
            let Some(name) = piece["SpecialToken"]["id"].as_str() else { continue };
            let about = &form["special_tokens"][name];
            let count = |key: &str| about[key].as_array().map_or(0, Vec::len);
            if about.is_null() {
                return Err(format!(
                    "post_processor: the template `{template}` names the special token {name:?}, which special_tokens does not \
                     define: add its ids and tokens there, or take it out of the template"
                ));
            }
            if count("ids") != count("tokens") {
                return Err(format!(
                    "post_processor: the special token {name:?} has {} ids and {} tokens: give one token for each id",
                    count("ids"),
                    count("tokens")
                ));
            }
        }
    }
    Ok(())
}

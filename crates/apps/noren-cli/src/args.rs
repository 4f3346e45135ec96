//! Arguments that several commands share: the mask, its shape, its facts, and the defaults of missing arguments.

use crate::failure::{Failure, Result};
use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use noren_input::request::{self, Bound, ShapeRequest};
use noren_input::sizes::{Sizes, array_names, facts_sizes, mask_sizes};
use noren_mask::{Facts, Mask, Shape, Side, Spec};
use std::fmt::Display;
use std::path::{Path, PathBuf};

/// The numbers of queries, keys, batch rows and heads of a mask.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Shape")]
pub(crate) struct ShapeArgs {
    /// Number of tokens, for self-attention: 4096, 128k (131072) or 1M (1048576) [default: from the facts, or 16]
    #[arg(long, short = 'n', value_name = "N", value_parser = count, conflicts_with_all = ["q", "kv", "past", "new"])]
    pub(crate) len: Option<usize>,
    /// Number of queries; requires --kv
    #[arg(long, value_name = "N", value_parser = count, requires = "kv")]
    pub(crate) q: Option<usize>,
    /// Number of keys; requires --q
    #[arg(long, value_name = "N", value_parser = count, requires = "q")]
    pub(crate) kv: Option<usize>,
    /// Number of tokens in the cache, before the new tokens
    #[arg(long, value_name = "N", value_parser = count, conflicts_with_all = ["q", "kv", "query_offset"])]
    pub(crate) past: Option<usize>,
    /// Number of new tokens, which are the queries [default: 1]
    #[arg(long, value_name = "N", value_parser = count, requires = "past")]
    pub(crate) new: Option<usize>,
    /// Position of the first query: one number, or one number per batch row: 7 or 7,3
    #[arg(long, value_name = "N", value_delimiter = ',', allow_negative_numbers = true)]
    pub(crate) query_offset: Vec<i64>,
    /// Number of batch rows [default: from the facts, or 1]
    #[arg(long, value_name = "B")]
    pub(crate) batch: Option<usize>,
    /// Number of query heads [default: from heads(...) in the mask, or 1]
    #[arg(long, value_name = "H")]
    pub(crate) heads: Option<usize>,
    /// Number of key-value heads, each shared by heads / kv_heads query heads [default: number of query heads]
    #[arg(long, value_name = "H")]
    pub(crate) kv_heads: Option<usize>,
}

/// The facts of the mask: lengths, padding side and other data that the mask needs.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Facts")]
pub(crate) struct FactArgs {
    /// Number of non-padding tokens of each batch row: 5,3
    #[arg(long, value_name = "N,N,...", value_delimiter = ',', value_parser = count)]
    pub(crate) lengths: Vec<usize>,
    /// Side of the padding [default: right]
    #[arg(long, value_parser = side(), requires = "lengths", hide_possible_values = true, value_name = "left|right")]
    pub(crate) side: Option<Side>,
    /// JSON file with facts: {"lengths": [5, 3], "documents": [[2, 3], [3]], "levels": [0, 2], "labels": {"pii": [3,
    /// 4]}}
    #[arg(long, value_name = "FILE")]
    pub(crate) facts: Option<PathBuf>,
    /// Index of the layer whose mask is used, for a mask that contains layers(...)
    #[arg(long, value_name = "L")]
    pub(crate) layer: Option<usize>,
    /// Facts of the arrays beside a mask, which are used if no file of facts is given
    #[arg(skip)]
    pub(crate) of_arrays: Facts,
}

/// Returns the parser of an argument that has one of a few values. `values` are pairs (name, value).
pub(crate) fn choice<T: Copy + Send + Sync + 'static, const N: usize>(
    values: [(&'static str, T); N],
) -> impl TypedValueParser<Value = T> {
    let value = move |name: String| values.iter().find(|(known, _)| *known == name).expect("clap knows the names").1;
    PossibleValuesParser::new(values.map(|(name, _)| name)).map(value)
}

/// Returns the parser of the side of the padding.
fn side() -> impl TypedValueParser<Value = Side> {
    choice([("left", Side::Left), ("right", Side::Right)])
}

/// Parses a number of tokens, with a binary unit or without: `4096`, `128k` (131072) or `1M` (1048576).
pub(crate) fn count(text: &str) -> std::result::Result<usize, String> {
    let (digits, unit) = match text.strip_suffix(['k', 'K']) {
        Some(digits) => (digits, 1 << 10),
        None => text.strip_suffix('M').map_or((text, 1), |digits| (digits, 1 << 20)),
    };
    let number = digits.parse().ok().and_then(|number: usize| number.checked_mul(unit));
    number.ok_or_else(|| "expected a whole number, such as 4096, 128k (131072) or 1M (1048576)".to_owned())
}

/// Parses the masks in `texts` and binds all masks to one shape. A size that the arguments, the facts and the masks do
/// not determine is taken from `least`. A number of tokens in `least` is used only if it is larger than the default
/// number of tokens.
pub(crate) fn bind(texts: &[String], shape: &ShapeArgs, facts: &FactArgs, least: &Sizes) -> Result<Bound> {
    let specs = texts.iter().map(|text| parse(text, facts.layer)).collect::<Result<Vec<_>>>()?;
    let named: Vec<String> = specs.iter().flat_map(|spec| array_names(&spec.mask)).collect();
    let (facts, known) = facts.read(&named)?;
    let known = specs.iter().fold(known, |known, spec| known.or(mask_sizes(spec)));
    Ok(request::bind(specs, &shape.request(), &facts, &known.or_else(least))?)
}

/// Returns the common shape and facts of the masks of all layers, and a list of the sizes for which a default was
/// assumed, as text. `of_files` are the sizes of the masks that were read from files.
pub(crate) fn bind_stack(
    masks: &[Mask],
    shape: &ShapeArgs,
    facts: &FactArgs,
    of_files: Sizes,
) -> Result<(Shape, Facts, Vec<String>)> {
    let named: Vec<String> = masks.iter().flat_map(array_names).collect();
    let (facts, known) = facts.read(&named)?;
    let known =
        masks.iter().fold(known, |known, mask| known.or(mask_sizes(&Spec { mask: mask.clone(), scores: Vec::new() })));
    let mut assumed = Vec::new();
    let shape = shape.request().resolve(&known.or(of_files), &mut assumed)?;
    Ok((shape, facts, assumed))
}

/// Parses the text of a mask with its score modifiers. If `layer` is an index of a layer, replaces `layers(...)` by the
/// mask of this layer; if `layer` is `None`, keeps `layers(...)`.
pub(crate) fn parse(text: &str, layer: Option<usize>) -> Result<Spec> {
    Ok(request::parse(text, layer)?)
}

impl ShapeArgs {
    /// Converts the arguments to a `ShapeRequest`, from which `noren-input` determines the missing sizes of a shape.
    fn request(&self) -> ShapeRequest {
        let ShapeArgs { len, q, kv, past, new, query_offset, batch, heads, kv_heads } = self.clone();
        ShapeRequest { len, q, kv, past, new, query_offset, batch, heads, kv_heads }
    }
}

impl FactArgs {
    /// Returns the facts, and the sizes that follow from the facts. `named` are the names of the arrays that the masks
    /// use.
    pub(crate) fn read(&self, named: &[String]) -> Result<(Facts, Sizes)> {
        let (mut facts, mut sizes) = match &self.facts {
            Some(path) => read_facts(path, named)?,
            None => (self.of_arrays.clone(), Sizes::default()),
        };
        if !self.lengths.is_empty() {
            facts = facts.lengths(self.lengths.clone());
            let longest = self.lengths.iter().max().copied();
            sizes = sizes.or(Sizes { len: longest, batch: Some(self.lengths.len()), ..Sizes::default() });
        }
        if let Some(side) = self.side {
            facts = facts.side(side);
        }
        Ok((facts, sizes))
    }
}

/// Reads a text file.
pub(crate) fn read_text(path: &Path) -> Result<String> {
    let name = path.display();
    let bytes = std::fs::read(path).map_err(|e| Failure::new(format!("{name}: the file cannot be read: {e}")))?;
    utf8(bytes, &name)
}

/// Converts the bytes of the file `name` to text.
pub(crate) fn utf8(bytes: Vec<u8>, name: &impl Display) -> Result<String> {
    String::from_utf8(bytes).map_err(|e| {
        let at = e.utf8_error().valid_up_to();
        Failure::new(format!("{name}: byte {at} is not UTF-8"))
            .hint("convert the text to UTF-8, for example with iconv")
    })
}

fn read_facts(path: &Path, named: &[String]) -> Result<(Facts, Sizes)> {
    let name = path.display();
    let hint = "--facts takes a JSON file with the facts of the mask, such as {\"lengths\": [5, 3]}";
    let text = read_text(path).map_err(|failure| failure.hint(hint))?;
    // Some editors begin a file with a byte order mark, which is not part of the JSON.
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
    let facts = Facts::from_json(text).map_err(|e| Failure::from(e).of(&name))?;
    let sizes = facts_sizes(text, named);
    if sizes.batch == Some(0) {
        let failure = Failure::new(format!("{name}: facts: `lengths` is empty: give one length per batch row"));
        return Err(failure.hint("leave out the key `lengths` if there is no padding"));
    }
    Ok((facts, sizes))
}

//! Arguments that several commands share: the mask, its shape and its facts, and what is assumed where they say nothing.

use crate::failure::{Failure, Result};
use crate::infer::{DEFAULT_LEN, Sizes, array_names, facts_sizes, mask_sizes};
use clap::Args;
use noren_mask::{BoundMask, Facts, Mask, Shape, Side, Spec};
use std::path::{Path, PathBuf};

/// More (batch row, head) pairs than this are refused: each takes memory, and nobody looks at so many.
const MOST_PAIRS: usize = 1 << 20;

/// The sizes that a mask is bound to.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Shape")]
pub(crate) struct ShapeArgs {
    /// Queries and keys of self-attention [default: what the facts say, or 16]
    #[arg(long, short = 'n', value_name = "N", conflicts_with_all = ["q", "kv", "past", "new"])]
    pub(crate) len: Option<usize>,
    /// Queries; together with --kv
    #[arg(long, value_name = "N", requires = "kv")]
    pub(crate) q: Option<usize>,
    /// Keys; together with --q
    #[arg(long, value_name = "N", requires = "q")]
    pub(crate) kv: Option<usize>,
    /// Tokens in the cache, before the new ones
    #[arg(long, value_name = "N", conflicts_with_all = ["q", "kv", "query_offset"])]
    pub(crate) past: Option<usize>,
    /// New tokens, which are the queries [default: 1]
    #[arg(long, value_name = "N", requires = "past")]
    pub(crate) new: Option<usize>,
    /// Position of the first query, one number or one per batch row: 7 or 7,3
    #[arg(long, value_name = "N", value_delimiter = ',', allow_negative_numbers = true)]
    pub(crate) query_offset: Vec<i64>,
    /// Batch rows [default: what the facts say, or 1]
    #[arg(long, value_name = "B")]
    pub(crate) batch: Option<usize>,
    /// Query heads [default: what heads(...) names, or 1]
    #[arg(long, value_name = "H")]
    pub(crate) heads: Option<usize>,
    /// Key-value heads, each shared by heads / kv_heads query heads [default: as many as heads]
    #[arg(long, value_name = "H")]
    pub(crate) kv_heads: Option<usize>,
}

/// What the mask knows beside its shape.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Facts")]
pub(crate) struct FactArgs {
    /// Real tokens by batch row: 5,3
    #[arg(long, value_name = "N,N,...", value_delimiter = ',')]
    pub(crate) lengths: Vec<usize>,
    /// Where padding stands [default: right]
    #[arg(long, value_enum, requires = "lengths", hide_possible_values = true, value_name = "left|right")]
    pub(crate) side: Option<SideArg>,
    /// JSON: {"lengths": [5, 3], "documents": [[2, 3], [3]], "levels": [0, 2], "labels": {"pii": [3, 4]}}
    #[arg(long, value_name = "FILE")]
    pub(crate) facts: Option<PathBuf>,
    /// The layer that layers(...) is asked about
    #[arg(long, value_name = "L")]
    pub(crate) layer: Option<u64>,
}

/// The end at which padding stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub(crate) enum SideArg {
    /// Real tokens last
    Left,
    /// Real tokens first
    Right,
}

impl From<SideArg> for Side {
    fn from(side: SideArg) -> Side {
        match side {
            SideArg::Left => Side::Left,
            SideArg::Right => Side::Right,
        }
    }
}

/// Masks bound to one shape, and what was assumed on the way.
pub(crate) struct Bound {
    /// The specs as they were given, at their layer.
    pub(crate) specs: Vec<Spec>,
    /// Their masks, bound.
    pub(crate) masks: Vec<BoundMask>,
    /// "length 16", "batch 2": what nobody said.
    pub(crate) assumed: Vec<String>,
}

impl Bound {
    /// The assumptions as a remark, if there are any.
    pub(crate) fn remark(&self) -> Option<String> {
        (!self.assumed.is_empty()).then(|| format!("assumed: {}", self.assumed.join(", ")))
    }
}

/// Parses the texts and binds all masks to one shape, at least as large as `least` where nothing says how large.
pub(crate) fn bind(texts: &[String], shape: &ShapeArgs, facts: &FactArgs, least: &Sizes) -> Result<Bound> {
    let specs = texts.iter().map(|text| parse(text, facts.layer)).collect::<Result<Vec<_>>>()?;
    let named: Vec<String> = specs.iter().flat_map(|spec| array_names(&spec.mask)).collect();
    let (facts, known) = facts.read(&named)?;
    let known = specs.iter().fold(known, |known, spec| known.or(mask_sizes(spec)));
    bind_specs(specs, shape, &facts, &known.or_else(least))
}

/// Binds specs to one shape: what was said of it, then what is `known`, then what is usual.
pub(crate) fn bind_specs(specs: Vec<Spec>, shape: &ShapeArgs, facts: &Facts, known: &Sizes) -> Result<Bound> {
    let mut assumed = Vec::new();
    let shape = shape.resolve(known, &mut assumed)?;
    let masks = specs.iter().map(|spec| Ok(spec.mask.bind(&shape, facts)?)).collect::<Result<_>>()?;
    Ok(Bound { specs, masks, assumed })
}

/// The shape and facts that masks over layers are asked about, and what was assumed.
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
    let shape = shape.resolve(&known.or(of_files), &mut assumed)?;
    Ok((shape, facts, assumed))
}

/// The spec that `text` says, at `layer` when one is given.
pub(crate) fn parse(text: &str, layer: Option<u64>) -> Result<Spec> {
    Ok(spec(text, layer)?)
}

/// The same, with an error that has its place in the text.
pub(crate) fn spec(text: &str, layer: Option<u64>) -> std::result::Result<Spec, noren_mask::Error> {
    let spec: Spec = text.parse()?;
    spec.check()?;
    Ok(match layer {
        Some(layer) => Spec { mask: spec.mask.at_layer(layer), scores: spec.scores },
        None => spec,
    })
}

impl ShapeArgs {
    /// The shape: what was said, then what the facts and the masks say, then what is usual.
    pub(crate) fn resolve(&self, known: &Sizes, assumed: &mut Vec<String>) -> Result<Shape> {
        let told = self.q.zip(self.kv);
        let cross = known.cross.filter(|_| self.len.is_none() && told.is_none() && self.past.is_none());
        if let Some((q, kv)) = cross {
            assumed.push(format!("--q {q} --kv {kv}"));
        }
        let shape = match (self.len, told.or(cross), self.past) {
            (Some(len), ..) => Shape::square(len),
            (None, Some((q, kv)), _) if q != kv && self.query_offset.is_empty() => return Err(alignment(q, kv)),
            (None, Some((q, kv)), _) => Shape::cross(q, kv),
            (None, None, Some(past)) => Shape::cached(past, self.new.unwrap_or(1)),
            (None, None, None) => {
                let len = known.len.unwrap_or(DEFAULT_LEN).max(1);
                assumed.push(format!("--len {len}"));
                Shape::square(len)
            }
        };
        let batch = self.batch.or(self.rows_of_offsets()).unwrap_or_else(|| {
            let batch = known.batch.unwrap_or(1).max(1);
            if batch > 1 {
                assumed.push(format!("--batch {batch}"));
            }
            batch
        });
        let heads = self.heads.or(self.kv_heads).unwrap_or_else(|| {
            let heads = known.heads.unwrap_or(1);
            if heads > 1 {
                assumed.push(format!("--heads {heads}"));
            }
            heads
        });
        if batch.checked_mul(heads).is_none_or(|pairs| pairs > MOST_PAIRS) {
            let message =
                format!("--batch {batch} times --heads {heads} is too large: at most {MOST_PAIRS} are possible");
            return Err(Failure::new(message));
        }
        let mut shape = shape.batch(batch).heads(heads);
        if let Some(kv_heads) = self.kv_heads {
            shape = shape.kv_heads(kv_heads);
        }
        if !self.query_offset.is_empty() {
            shape = shape.query_offsets(self.query_offset.clone());
        }
        Ok(shape)
    }

    fn rows_of_offsets(&self) -> Option<usize> {
        (self.query_offset.len() > 1).then_some(self.query_offset.len())
    }
}

/// Alignment is never guessed: what to say when queries and keys differ in number.
pub(crate) fn alignment(q_len: usize, kv_len: usize) -> Failure {
    let failure = Failure::new(format!(
        "{q_len} queries over {kv_len} keys: the position of the first query must be given by --query-offset"
    ));
    match kv_len.checked_sub(q_len) {
        Some(past) => failure.hint(format!(
            "--query-offset {past} when the queries are the last {q_len} of the keys' sequence (a cache), \
             --query-offset 0 when both count from 0"
        )),
        None => failure.hint("--query-offset 0 when both count from 0 (cross-attention)"),
    }
}

impl FactArgs {
    /// The facts, and the sizes that they imply together with the arrays `named`.
    pub(crate) fn read(&self, named: &[String]) -> Result<(Facts, Sizes)> {
        let (mut facts, mut sizes) = match &self.facts {
            Some(path) => read_facts(path, named)?,
            None => (Facts::new(), Sizes::default()),
        };
        if !self.lengths.is_empty() {
            facts = facts.lengths(self.lengths.clone());
            let longest = self.lengths.iter().max().copied();
            sizes = sizes.or(Sizes { len: longest, batch: Some(self.lengths.len()), ..Sizes::default() });
        }
        if let Some(side) = self.side {
            facts = facts.side(side.into());
        }
        Ok((facts, sizes))
    }
}

fn read_facts(path: &Path, named: &[String]) -> Result<(Facts, Sizes)> {
    let name = path.display();
    let text = std::fs::read_to_string(path)
        .map_err(|e| Failure::new(format!("{name}: cannot be read: {e}")).hint("--facts takes a JSON file"))?;
    // Some editors begin a file with a byte order mark, which is no part of the JSON.
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
    let facts = Facts::from_json(text).map_err(|e| Failure::from(e).of(&name))?;
    let sizes = facts_sizes(text, named);
    if sizes.batch == Some(0) {
        let failure = Failure::new(format!("{name}: facts: lengths is empty: give one length per batch row"));
        return Err(failure.hint("leave the key out where there is no padding"));
    }
    Ok((facts, sizes))
}

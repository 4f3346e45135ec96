//! [`ShapeRequest`]: a shape whose sizes may be omitted, and the binding of masks to that shape.

use crate::error::{Error, Result};
use crate::sizes::{DEFAULT_LEN, Sizes};
use noren_mask::{BoundMask, Facts, Shape, Spec};
use serde::{Deserialize, Deserializer};

/// The maximum product of the number of batch rows and the number of heads. The limit exists because each pair of batch
/// row and head takes memory.
const MOST_PAIRS: usize = 1 << 20;

/// The sizes of a shape that the user gave. A size that was not given is `None` or an empty list. In a serial form, a single query offset may
/// be a number instead of a list.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ShapeRequest {
    /// Number of tokens in self-attention: both the number of queries and the number of keys. Cannot be combined with
    /// `q`, `kv`, `past` or `new`.
    pub len: Option<usize>,
    /// Number of queries; requires `kv`.
    pub q: Option<usize>,
    /// Number of keys; requires `q`.
    pub kv: Option<usize>,
    /// Number of tokens in the key-value cache, before the new tokens.
    pub past: Option<usize>,
    /// Number of new tokens, which are the queries [default: 1 if `past` is given].
    pub new: Option<usize>,
    /// Position of the first query: one number, or one number for each batch row; empty if not given.
    #[serde(deserialize_with = "one_or_more")]
    pub query_offset: Vec<i64>,
    /// Number of batch rows.
    pub batch: Option<usize>,
    /// Number of query heads.
    pub heads: Option<usize>,
    /// Number of key-value heads.
    pub kv_heads: Option<usize>,
}

/// Reads a number, a list of numbers, or nothing.
fn one_or_more<'a, D: Deserializer<'a>>(from: D) -> std::result::Result<Vec<i64>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Offsets {
        One(i64),
        More(Vec<i64>),
    }
    Ok(match Option::deserialize(from)? {
        None => Vec::new(),
        Some(Offsets::One(offset)) => vec![offset],
        Some(Offsets::More(offsets)) => offsets,
    })
}

/// Masks that are bound to one shape, with the sizes that were assumed for this shape.
#[derive(Debug)]
pub struct Bound {
    /// The specs (masks with their score modifiers) that were given to [`bind`].
    pub specs: Vec<Spec>,
    /// The bound masks, one for each of `specs`.
    pub masks: Vec<BoundMask>,
    /// Sizes that were assumed because the user did not give them, as options of the command: `--len 16`, `--batch 2`.
    pub assumed: Vec<String>,
}

impl Bound {
    /// Returns a text for the user that lists the assumed sizes, or `None` if no size was assumed.
    pub fn remark(&self) -> Option<String> {
        (!self.assumed.is_empty()).then(|| format!("assumed: {}", self.assumed.join(", ")))
    }
}

/// Parses `text` as a spec (a mask with score modifiers). If `layer` is given, returns the spec of this layer: each
/// `layers(...)` becomes the mask of the layer.
///
/// # Errors
/// Returns an error if the text is not a spec, or if a parameter has an invalid value. An error of the parser has the
/// position of the fault in the text.
pub fn parse(text: &str, layer: Option<usize>) -> std::result::Result<Spec, noren_mask::Error> {
    let spec: Spec = text.parse()?;
    spec.check()?;
    Ok(match layer {
        Some(layer) => Spec { mask: spec.mask.at_layer(layer), scores: spec.scores },
        None => spec,
    })
}

/// Binds the masks of `specs` to one shape, with `facts` (data given with a mask, such as lengths). A size that the
/// user did not give in `shape` is taken from `known` (the sizes that masks and facts imply), or else has its default.
///
/// # Errors
/// Returns an error if the shape cannot be completed, or if a mask cannot be bound, for example because a fact is
/// missing.
pub fn bind(specs: Vec<Spec>, shape: &ShapeRequest, facts: &Facts, known: &Sizes) -> Result<Bound> {
    let mut assumed = Vec::new();
    let shape = shape.resolve(known, &mut assumed)?;
    let masks = specs.iter().map(|spec| Ok(spec.mask.bind(&shape, facts)?)).collect::<Result<_>>()?;
    Ok(Bound { specs, masks, assumed })
}

impl ShapeRequest {
    /// Returns the complete shape. A size that the user did not give is taken from `known`, or else has its default.
    /// Appends each size that was assumed to `assumed`, as an option of the command such as `--len 16`.
    ///
    /// # Errors
    /// Returns an error if a size is 0, if queries and keys differ in number and the position of the first query is not given, or if
    /// there are too many pairs of batch row and head.
    pub fn resolve(&self, known: &Sizes, assumed: &mut Vec<String>) -> Result<Shape> {
        let counts = [
            ("--len", self.len),
            ("--q", self.q),
            ("--kv", self.kv),
            ("--new", self.new),
            ("--batch", self.batch),
            ("--heads", self.heads),
            ("--kv-heads", self.kv_heads),
        ];
        if let Some((name, _)) = counts.iter().find(|(_, count)| *count == Some(0)) {
            return Err(Error::new(format!("{name} is 0: give at least 1")));
        }
        let given = self.q.zip(self.kv);
        let cross = known.cross.filter(|_| self.len.is_none() && given.is_none() && self.past.is_none());
        if let Some((q, kv)) = cross {
            assumed.push(format!("--q {q} --kv {kv}"));
        }
        let shape = match (self.len, given.or(cross), self.past) {
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
            return Err(Error::new(message));
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

/// Returns the error for a shape in which the numbers of queries and keys differ and the position of the first query is
/// missing. noren never guesses this position.
pub fn alignment(q_len: usize, kv_len: usize) -> Error {
    let error = Error::new(format!(
        "{q_len} queries over {kv_len} keys: the position of the first query must be given by --query-offset"
    ));
    match kv_len.checked_sub(q_len) {
        Some(past) => error.hint(format!(
            "give --query-offset {past} if the queries are the last {q_len} tokens of the sequence of keys (a cache), \
             or --query-offset 0 if queries and keys both begin at position 0"
        )),
        None => error.hint("give --query-offset 0 if queries and keys both begin at position 0 (cross-attention)"),
    }
}

//! [`Scene`]: a mask with its shape and its facts, as a request of the page has them. [`Known`]: a bound mask that a
//! worker keeps.

use crate::request::cause::Cause;
use crate::request::problem::{Problem, Result};
use noren_input::sizes::{Sizes, array_names, facts_sizes, mask_sizes};
use noren_input::{ShapeRequest, request};
use noren_mask::{Array, BoundMask, Facts, Keep, Plan, PlanOptions, Reorder, Score, Shape, Spec, atoms};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::cell::OnceCell;

/// The maximum size of a mask's text, in bytes.
pub(crate) const MOST_TEXT: usize = 16 << 10;
/// The maximum number of queries of a mask, and also the maximum number of keys.
pub(crate) const MOST_LEN: usize = 1 << 22;
/// The maximum product of the number of batch rows and the number of heads.
pub(crate) const MOST_PAIRS: usize = 4096;

/// A mask with its shape and its facts, as the page sends these to the server. Facts are data that the mask needs, such
/// as document lengths.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Scene {
    pub(crate) mask: String,
    #[serde(default)]
    pub(crate) shape: ShapeRequest,
    #[serde(default)]
    pub(crate) facts: Option<Box<RawValue>>,
    #[serde(default)]
    pub(crate) layer: Option<usize>,
}

/// Returns an error if sizes of a request contradict each other, or if a size is given without the size that belongs to it, such as `q`
/// without `kv`.
fn check_request(shape: &ShapeRequest) -> Result<()> {
    let ways =
        [shape.len.is_some(), shape.q.is_some() || shape.kv.is_some(), shape.past.is_some() || shape.new.is_some()];
    if ways.iter().filter(|way| **way).count() > 1 {
        return Err(Problem::new(
            "the shape is given more than once: give `len`, or `q` and `kv`, or `past` and `new`",
        )
        .cause(Cause::ShapeTwice));
    }
    if shape.q.is_some() != shape.kv.is_some() {
        let missing = if shape.q.is_some() { "kv" } else { "q" };
        let problem = Problem::new("the shape has only one of `q` and `kv`: give both");
        return Err(problem.cause(Cause::ShapeHalf).name(missing));
    }
    if shape.new.is_some() && shape.past.is_none() {
        let problem = Problem::new("the shape has `new` but not `past`: give both, with `past` 0 for an empty cache");
        return Err(problem.cause(Cause::ShapeHalf).name("past"));
    }
    if shape.past.is_some() && !shape.query_offset.is_empty() {
        let problem = Problem::new("`past` already gives the positions of the queries: leave `query_offset` out");
        return Err(problem.cause(Cause::ShapeTwice).name("query_offset"));
    }
    match (shape.q, shape.kv) {
        (Some(q), Some(kv)) if q != kv && shape.query_offset.is_empty() => Err(unaligned(q, kv)),
        _ => Ok(()),
    }
}

/// Returns the error for a shape with different numbers of queries and keys in which the position of the first query is
/// missing.
fn unaligned(q: usize, kv: usize) -> Problem {
    let problem = Problem::new(format!(
        "the mask has {q} queries and {kv} keys: give `query_offset`, the position of the first query among the keys"
    ));
    let problem = match kv.checked_sub(q) {
        Some(past) => problem.hint(format!(
            "give `query_offset` {past} if the queries are the last tokens of the sequence of keys, or `query_offset` 0 if the positions of queries and keys both begin at 0"
        )),
        None => problem.hint("give `query_offset` 0 if the positions of queries and keys both begin at 0 (cross-attention)"),
    };
    let mut problem = problem.cause(Cause::NeedsOffset);
    problem.sizes = Some([1, 1, q, kv]);
    problem
}

/// Returns the shape of a request, and the sizes that were assumed because neither the request nor `known` has them.
/// Returns an error if the shape is incomplete or invalid, or too large for the explorer.
pub(crate) fn resolve(request: &ShapeRequest, known: &Sizes) -> Result<(Shape, Vec<String>)> {
    check_request(request)?;
    let mut assumed = Vec::new();
    let shape = request.resolve(known, &mut assumed).map_err(|error| match known.cross {
        Some((q, kv)) if q != kv && request.query_offset.is_empty() => unaligned(q, kv),
        _ => match error.message.trim_start_matches('-').split_once(" is 0:") {
            Some((name, fix)) => Problem::new(format!("{name} is 0:{fix}")).cause(Cause::ZeroSize).name(name),
            None => Problem::from(error).cause(Cause::TooManyPairs),
        },
    })?;
    check_sizes(&shape)?;
    let given = request.query_offset.len();
    if given > 1 && given != shape.batch_len() {
        let message = format!(
            "{given} query offsets are given but there are {} batch rows: give one offset, or one for each batch row",
            shape.batch_len()
        );
        return Err(Problem::new(message).cause(Cause::OffsetsCount).of_shape(&shape));
    }
    Ok((shape, assumed.into_iter().map(|text| text.replace("--", "")).collect()))
}

/// Parses the text of a mask, with its score modifiers. If `layer` is given, returns the mask and score modifiers of
/// the layer with this index.
pub(crate) fn parse(text: &str, layer: Option<usize>) -> Result<Spec> {
    if text.len() > MOST_TEXT {
        let message = format!("the mask's text has {} bytes: give at most {MOST_TEXT} bytes", text.len());
        return Err(Problem::new(message).cause(Cause::TextTooLong));
    }
    Ok(request::parse(text, layer)?)
}

/// Returns the facts of a request (data that masks need, such as document lengths), and the sizes that the facts and
/// the masks imply. If `json` is `None`, the facts are empty.
pub(crate) fn facts(json: Option<&RawValue>, specs: &[Spec]) -> Result<(Facts, Sizes)> {
    let (facts, known) = match json {
        Some(json) => {
            let named: Vec<String> = specs.iter().flat_map(|spec| array_names(&spec.mask)).collect();
            (Facts::from_json(json.get())?, facts_sizes(json.get(), &named))
        }
        None => (Facts::new(), Sizes::default()),
    };
    Ok((facts, specs.iter().fold(known, |known, spec| known.or(mask_sizes(spec)))))
}

/// Returns an error if a shape is too large for the explorer, if a size is 0, or if heads cannot share key-value heads.
pub(crate) fn check_sizes(shape: &Shape) -> Result<()> {
    let (q, kv) = (shape.q_len(), shape.kv_len());
    let (batch, heads, kv_heads) = (shape.batch_len(), shape.head_count(), shape.kv_head_count());
    for (name, size) in [("q", q), ("kv", kv), ("batch", batch), ("heads", heads), ("kv_heads", kv_heads)] {
        if size == 0 {
            return Err(Problem::new(format!("{name} is 0: give at least 1")).cause(Cause::ZeroSize).name(name));
        }
    }
    if q > MOST_LEN || kv > MOST_LEN {
        let message = format!(
            "the mask has {q} queries and {kv} keys: the explorer shows at most {MOST_LEN} queries and {MOST_LEN} keys"
        );
        return Err(Problem::new(message).cause(Cause::TooLong).of_shape(shape));
    }
    if !heads.is_multiple_of(kv_heads) {
        let message = format!(
            "there are {heads} query heads and {kv_heads} key-value heads: the number of query heads must be a multiple of the number of key-value heads"
        );
        return Err(Problem::new(message).cause(Cause::HeadsMultiple).of_shape(shape));
    }
    if batch.saturating_mul(heads) > MOST_PAIRS {
        let message = format!(
            "the mask has {batch} batch rows and {heads} heads: the explorer shows at most {MOST_PAIRS} pairs of batch row and head"
        );
        return Err(Problem::new(message).cause(Cause::TooManyPairs).of_shape(shape));
    }
    Ok(())
}

/// The header line of a mask definition with cells instead of an expression, such as a mask that the doctor repaired.
/// `dims` is `[batch, heads, q_len, kv_len]`.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Cells {
    name: String,
    dims: [usize; 4],
}

/// A bound mask that a worker keeps, with its score modifiers, the sizes that the request did not give, and its plans.
pub(crate) struct Known {
    pub(crate) bound: BoundMask,
    pub(crate) scores: Vec<Score>,
    pub(crate) assumed: Vec<String>,
    plan: OnceCell<Plan>,
    in_place: OnceCell<Plan>,
}

impl Known {
    /// Binds the mask of a scene to the shape and the facts of the scene. Facts are data that the mask needs, such as
    /// document lengths.
    pub(crate) fn of_scene(scene: &Scene) -> Result<Self> {
        let spec = parse(&scene.mask, scene.layer)?;
        let (facts, known) = facts(scene.facts.as_deref(), std::slice::from_ref(&spec))?;
        let (shape, assumed) = resolve(&scene.shape, &known)?;
        let bound = spec.mask.bind(&shape, &facts).map_err(|error| Problem::from(error).of_shape(&shape))?;
        Ok(Self::new(bound, spec.scores, assumed))
    }

    pub(crate) fn new(bound: BoundMask, scores: Vec<Score>, assumed: Vec<String>) -> Self {
        Known { bound, scores, assumed, plan: OnceCell::new(), in_place: OnceCell::new() }
    }

    /// Returns the mask with its score modifiers.
    pub(crate) fn spec(&self) -> Spec {
        Spec { mask: self.bound.mask().clone(), scores: self.scores.clone() }
    }

    /// Returns the plan of the mask with the default options. The plan is computed at the first call.
    pub(crate) fn plan(&self) -> &Plan {
        self.plan.get_or_init(|| self.bound.plan())
    }

    /// Returns the plan of the mask without reordering of rows and keys, for pictures. The plan is computed at the
    /// first call.
    pub(crate) fn plan_in_place(&self) -> &Plan {
        let options = PlanOptions { reorder: Reorder::Never, ..PlanOptions::default() };
        self.in_place.get_or_init(|| self.bound.plan_with(&options))
    }

    /// Reads the definition of a mask, and binds the mask. The definition is either a scene as JSON, or the cells of
    /// the mask in the format of [`cells_definition`].
    pub(crate) fn of_definition(bytes: &[u8]) -> Result<Self> {
        let line = bytes.iter().position(|byte| *byte == b'\n').filter(|_| bytes.starts_with(CELLS));
        let Some(line) = line else { return Self::of_scene(&serde_json::from_slice(bytes)?) };
        let Cells { name, dims } = serde_json::from_slice(&bytes[CELLS.len()..line])?;
        let words = bytes[line + 1..].chunks_exact(8).map(|b| b.iter().rev().fold(0, |n, b| n << 8 | u64::from(*b)));
        let keep = Keep::from_words(dims, words.collect())?;
        let cells: Vec<bool> = keep.cells().collect();
        let [batch, heads, q_len, kv_len] = dims;
        let shape = Shape::cross(q_len, kv_len).batch(batch).heads(heads);
        let facts = Facts::new().array(name.as_str(), Array::keep(&dims, &cells)?);
        Ok(Self::new(atoms::dense(&name).bind(&shape, &facts)?, Vec::new(), Vec::new()))
    }
}

/// The first bytes of a definition that has the cells of a mask. A definition with an expression is JSON, which never
/// begins with these bytes.
const CELLS: &[u8] = b"cells ";

/// Returns a definition of a mask with cells instead of an expression. The definition begins with a header line, which
/// has `name` and the sizes. The cells of all query rows follow, ordered by batch row, head and query. A query row has
/// one bit per key, in little-endian `u64` numbers of up to 64 keys each.
pub(crate) fn cells_definition(name: &str, keep: &Keep) -> Vec<u8> {
    let dims = keep.dims();
    let line = serde_json::json!({ "name": name, "dims": dims });
    let mut out = [CELLS, line.to_string().as_bytes(), b"\n"].concat();
    let [batch, heads, queries, _] = dims;
    for row in 0..batch * heads * queries {
        let (b, h, q) = (row / queries / heads, row / queries % heads, row % queries);
        out.extend(keep.row(b, h, q).iter().flat_map(|word| word.to_le_bytes()));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_go_there_and_back() {
        let keep = Keep::from_fn([2, 1, 3, 70], |[b, _, q, k]| (b + q * 3 + k) % 4 == 0);
        let known = Known::of_definition(&cells_definition("given", &keep)).expect("sound cells");
        assert_eq!(Keep::of(&known.bound), keep);
    }

    #[test]
    fn a_scene_says_what_is_wrong_and_where() {
        let problem = |json: &str| match Known::of_definition(json.as_bytes()) {
            Err(problem) => problem,
            Ok(_) => panic!("{json} is accepted"),
        };
        let wrong = problem(r#"{"mask": "é & cuasal"}"#);
        assert_eq!((wrong.start, wrong.end), (Some(0), Some(1)));
        let wrong = problem(r#"{"mask": "full & cuasal"}"#);
        assert_eq!((wrong.start, wrong.end), (Some(7), Some(13)));
        assert!(
            problem(r#"{"mask": "full", "shape": {"q": 3, "kv": 9}}"#)
                .hint
                .clone()
                .expect("a hint")
                .contains("`query_offset` 6")
        );
        assert!(problem(r#"{"mask": "full", "shape": {"len": 99999999}}"#).message.contains("shows at most"));
        assert!(problem(r#"{"mask": "full", "shape": {"len": 9, "batch": 5000}}"#).message.contains("pairs"));
        assert!(problem(r#"{"mask": "full", "shap": {}}"#).message.contains("unknown field"));
    }
}

//! The fields of a certificate, read from JSON. No field is trusted before the verifier has checked it.

use crate::check::policy::Rule;
use crate::facts::shape::Shape;
use crate::facts::{Facts, ranges};
use crate::read::expr::Expr;
use crate::read::json::{At, Value};
use crate::read::refusal::{Result, beyond, wrong};
use crate::read::text::parse;
use crate::runs::Runs;
use hmac_sha256::Hash;

/// The names of the fields of a certificate in JSON.
const FIELDS: &[&str] = &[
    "format",
    "layers",
    "shape",
    "facts",
    "fill",
    "policy",
    "rules",
    "pairs",
    "holds",
    "reach",
    "not_covered",
    "sha256",
];

/// The maximum number of layers. A certificate with more layers is refused.
const MOST_LAYERS: usize = 4_096;

/// Paths of information between tokens that masks do not show. The field `not_covered` of a certificate must list all
/// of these paths.
pub(crate) const NOT_COVERED: &[&str] = &[
    "position ids: a count of hidden tokens tells how many there are",
    "lengths: padding and truncation tell how long a hidden text is",
    "pooling over tokens after the last layer",
    "normalisation over the batch or over time (batch norm, group norm over time)",
    "convolution and state-space layers",
    "routing: experts with a capacity, and balance over a batch",
    "quantisation by maxima over a batch or a tensor",
    "caches that were filled before a redaction",
    "loss targets: labels that hold what the inputs hide",
];

/// The statements of a certificate about one `deny` rule in one batch row. The verifier checks each statement.
#[derive(Debug)]
pub(crate) struct Claim {
    pub(crate) rule: String,
    pub(crate) row: usize,
    pub(crate) sources: i64,
    pub(crate) targets: i64,
    pub(crate) pairs: i64,
    pub(crate) violated: bool,
    pub(crate) reached_pairs: i64,
    /// True if `reached_pairs`, the number of denied pairs with influence, is exact; false if it is a lower bound.
    pub(crate) exact: bool,
    pub(crate) witness: Option<Witness>,
}

/// A path by which a source token influences a target token. In a step `(layer, token)`, `token` reads in the layer
/// `layer` the token of the previous step; in the first step, `token` reads the source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Witness {
    /// The token at which the path begins.
    pub source: usize,
    /// Pairs `(layer, token)` with ascending layers; the last token is the target.
    pub steps: Vec<(usize, usize)>,
}

/// One entry of the field `reach`: the tokens that the tokens of `sources` influence after each layer.
#[derive(Debug)]
pub(crate) struct Entry {
    /// The index of this entry in the list `reach` of the certificate.
    pub(crate) number: usize,
    pub(crate) row: usize,
    pub(crate) sources: Runs,
    /// The sets of influenced tokens: before the first layer, then after each layer. A pair `(count, set of tokens)`
    /// stands for `count` consecutive equal sets. The counts sum to the number of layers plus 1.
    pub(crate) after: Vec<(usize, Runs)>,
}

impl Entry {
    /// Returns the tokens that the tokens of `sources` influence after the last layer.
    pub(crate) fn last(&self) -> &Runs {
        self.after.last().map_or(&self.sources, |run| &run.1)
    }
}

/// The parsed fields of a certificate.
pub(crate) struct Certificate {
    pub(crate) layers: Vec<String>,
    /// The distinct masks of all layers.
    pub(crate) masks: Vec<Expr>,
    /// For each layer of the model, the index of the layer's mask in `masks`.
    pub(crate) layer_of: Vec<usize>,
    pub(crate) shape: Shape,
    pub(crate) facts: Facts,
    pub(crate) finite: bool,
    pub(crate) policy: Vec<Rule>,
    pub(crate) claims: Vec<Claim>,
    pub(crate) pairs: i64,
    pub(crate) holds: bool,
    pub(crate) reach: Vec<Entry>,
    pub(crate) sha256: String,
}

impl Certificate {
    /// Reads a certificate from JSON. Checks the names and types of the fields, the hash, and the list `not_covered` of
    /// paths of information that the check does not cover.
    pub(crate) fn read(json: &str) -> Result<Self> {
        let value = Value::read(json)?;
        let fields = At::new(&value, "").object(FIELDS)?;
        let format = fields.need("format")?;
        if format.text()? != "noren certificate 2" {
            return Err(
                format.refuse("\"noren certificate 2\": issue the certificate again with this version of noren")
            );
        }
        let sha256 = fields.need("sha256")?;
        let hash = hash(&value);
        if sha256.text()? != hash {
            return Err(sha256.refuse(format!(
                "{hash}, the hash of the certificate: the certificate was changed after it was issued"
            )));
        }
        not_covered(&fields.need("not_covered")?)?;
        let at = fields.need("layers")?;
        let layers = at.list(|at| at.text().map(str::to_string))?;
        if layers.is_empty() || layers.len() > MOST_LAYERS {
            return Err(at.refuse(format!("1 to {MOST_LAYERS} masks")));
        }
        let (masks, layer_of) = masks(&layers)?;
        let shape = Shape::read(&fields.need("shape")?)?;
        let facts = Facts::read(&fields.need("facts")?, &shape)?;
        let fill = fields.need("fill")?;
        let finite = match fill.text()? {
            "finite" => true,
            "nothing" => false,
            _ => return Err(fill.refuse("\"nothing\" or \"finite\"")),
        };
        let policy = fields.need("policy")?.list(|at| Rule::read(at.text()?, ""))?;
        let claims = fields.need("rules")?.list(|at| claim(&at, &shape, layers.len()))?;
        let mut number = 0;
        let reach = fields.need("reach")?.list(|at| {
            number += 1;
            entry(&at, number - 1, &shape, layers.len())
        })?;
        let pairs = fields.need("pairs")?.int(0, i64::MAX)?;
        let holds = fields.need("holds")?.boolean()?;
        Ok(Self { layers, masks, layer_of, shape, facts, finite, policy, claims, pairs, holds, reach, sha256: hash })
    }
}

/// Returns the lower-case hexadecimal SHA-256 of a certificate without its field `sha256`.
fn hash(value: &Value) -> String {
    let mut value = value.clone();
    if let Value::Object(fields) = &mut value {
        fields.retain(|field| field.0 != "sha256");
    }
    Hash::hash(value.to_json().as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn not_covered(at: &At<'_>) -> Result<()> {
    let list = at.list(|at| at.text().map(str::to_string))?;
    if let Some(missing) = NOT_COVERED.iter().find(|required| !list.iter().any(|given| given == *required)) {
        return Err(wrong(
            at.path.clone(),
            format!("a list of {} entries in which a required entry is missing", list.len()),
            format!("the entry {missing:?}"),
        ));
    }
    match list.iter().find(|given| !NOT_COVERED.contains(&given.as_str())) {
        Some(other) => Err(wrong(at.path.clone(), other.clone(), "only the entries that docs/flow.md lists")),
        None if list.len() > NOT_COVERED.len() => Err(at.refuse("a list in which each entry appears only once")),
        None => Ok(()),
    }
}

fn masks(layers: &[String]) -> Result<(Vec<Expr>, Vec<usize>)> {
    let mut distinct: std::collections::HashMap<&str, usize> = std::collections::HashMap::new();
    let (mut masks, mut layer_of) = (Vec::new(), Vec::new());
    for (number, text) in layers.iter().enumerate() {
        let next = masks.len();
        let at = *distinct.entry(text).or_insert(next);
        if at == next {
            masks.push(parse(text).map_err(|found| wrong(format!("layers[{number}]"), found, "the text of a mask"))?);
        }
        layer_of.push(at);
    }
    Ok((masks, layer_of))
}

fn claim(at: &At<'_>, shape: &Shape, layers: usize) -> Result<Claim> {
    let fields = at.object(&[
        "rule",
        "batch",
        "sources",
        "targets",
        "pairs",
        "violated",
        "reached_pairs",
        "counted",
        "witness",
    ])?;
    let count = |key: &str| fields.need(key).and_then(|at| at.int(0, i64::MAX));
    let counted = fields.need("counted")?;
    let exact = match counted.text()? {
        "exact" => true,
        "at least" => false,
        _ => return Err(counted.refuse("\"exact\" or \"at least\"")),
    };
    let witness = fields.need("witness")?;
    Ok(Claim {
        rule: fields.need("rule")?.text()?.to_string(),
        row: fields.need("batch")?.int(0, shape.batch as i64 - 1)? as usize,
        sources: count("sources")?,
        targets: count("targets")?,
        pairs: count("pairs")?,
        violated: fields.need("violated")?.boolean()?,
        reached_pairs: count("reached_pairs")?,
        exact,
        witness: if *witness.value == Value::Null { None } else { Some(path(&witness, shape, layers)?) },
    })
}

fn path(at: &At<'_>, shape: &Shape, layers: usize) -> Result<Witness> {
    let fields = at.object(&["source", "steps"])?;
    let last = shape.kv_len - 1;
    let source = fields.need("source")?.int(0, last)? as usize;
    let steps = fields.need("steps")?.list(|at| match at.ints(0, last.max(layers as i64 - 1))?[..] {
        [layer, token] if layer < layers as i64 && token <= last => Ok((layer as usize, token as usize)),
        _ => Err(at.refuse("[layer, token]")),
    })?;
    Ok(Witness { source, steps })
}

fn entry(at: &At<'_>, number: usize, shape: &Shape, layers: usize) -> Result<Entry> {
    let fields = at.object(&["batch", "sources", "after"])?;
    let row = fields.need("batch")?.int(0, shape.batch as i64 - 1)? as usize;
    let sources = ranges(&fields.need("sources")?, shape.kv_len)?;
    let at = fields.need("after")?;
    let after = at.list(|run| {
        let mut parts = run.list(|part| match part.value {
            Value::Int(_) => Ok((part.int(1, layers as i64 + 1)? as usize, None)),
            _ => Ok((0, Some(ranges(&part, shape.kv_len)?))),
        })?;
        match (parts.len(), parts.pop(), parts.pop()) {
            (2, Some((0, Some(set))), Some((count, None))) => Ok((count, set)),
            _ => Err(run.refuse("[count, ranges]")),
        }
    })?;
    let total: usize = after.iter().map(|run| run.0).sum();
    if total != layers + 1 {
        return Err(wrong(
            at.path.clone(),
            format!("a list `after` whose counts have the sum {total}"),
            format!("a list `after` whose counts have the sum {}, the number of layers plus 1", layers + 1),
        ));
    }
    if after.first().is_none_or(|run| run.1 != sources) || sources.is_empty() {
        return Err(at.refuse("a list `after` whose first set of tokens is equal to `sources` and not empty"));
    }
    if after.windows(2).any(|pair| pair[0].1 == pair[1].1) {
        return Err(at.refuse("a list `after` in which each set of tokens differs from the next set"));
    }
    Ok(Entry { number, row, sources, after })
}

/// Refuses a certificate if two entries of its field `reach` (sets of sources with the tokens that they influence) have
/// the same batch row and the same sources.
pub(crate) fn no_twins(reach: &[Entry]) -> Result<()> {
    let mut order: Vec<&Entry> = reach.iter().collect();
    order.sort_unstable_by(|a, b| (a.row, &a.sources).cmp(&(b.row, &b.sources)));
    match order.windows(2).find(|pair| pair[0].row == pair[1].row && pair[0].sources == pair[1].sources) {
        Some(pair) => Err(wrong(
            format!("reach[{}]", pair[1].number),
            "an entry with the same batch row and the same sources as another entry of `reach`",
            "only one entry of `reach` for each batch row and set of sources",
        )),
        None => Ok(()),
    }
}

/// Refuses a certificate if the entries of its field `reach` (sets of sources with the tokens that they influence)
/// contain more than 4,000,000 ranges of tokens.
pub(crate) fn small_enough(reach: &[Entry]) -> Result<()> {
    let ranges: usize = reach.iter().flat_map(|entry| &entry.after).map(|run| run.1.len()).sum();
    if ranges > 4_000_000 {
        return Err(beyond(
            "reach",
            format!("the entries of `reach` contain {ranges} ranges, and the verifier checks at most 4000000"),
        ));
    }
    Ok(())
}

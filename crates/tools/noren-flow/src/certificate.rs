//! [`Certificate`]: the verdict of a policy for a stack, with the proof. Another program can check the proof.

use super::check::{Followed, check};
use super::{Counted, Fill, Flow, Path, Policy, RuleVerdict, Ruling};
use hmac_sha256::Hash;
use noren_mask::interval::IntervalSet;
use noren_mask::text::hex;
use noren_mask::{Error, Facts, Mask, Shape, Spec};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Channels: paths of influence between tokens outside of attention masks. A certificate does not cover these paths.
pub const CHANNELS: &[&str] = &[
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

const FORMAT: &str = "noren certificate 2";
/// The maximum number of ranges of tokens in a certificate, over all its sets of influenced tokens.
const MOST_RANGES: usize = 4_000_000;
/// The maximum number of cells in the mask arrays of a certificate. The arrays are a part of the facts, the data given
/// with the masks.
const MOST_CELLS: u64 = 1 << 26;

/// The verdict of a policy for a stack of masks, with all data that a checker needs: masks, shape, facts, policy, the
/// verdict for each rule and batch row, and a proof. The proof lists the tokens that sets of sources can influence.
/// `docs/flow.md` defines the format.
///
/// ```
/// use noren_flow::{Certificate, Fill, Flow, Policy};
/// use noren_mask::{Facts, Shape, atoms::*};
/// let facts = Facts::new().documents([4, 4]);
/// let flow = Flow::of_stack(&vec![causal() & documents(); 3], &Shape::square(8), &facts, Fill::Nothing)?;
/// let certificate = Certificate::issue(&flow, &"deny: document(i) -> document(j)".parse()?)?;
/// assert!(certificate.holds() && certificate.pairs == 32);
/// assert_eq!(Certificate::from_json(&certificate.to_json()?)?, certificate);
/// # Ok::<(), noren_mask::Error>(())
/// ```
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Certificate {
    format: String,
    /// The masks as text, one text for each layer. A mask with `layers(...)` is written as the mask of the layer,
    /// without `layers(...)`.
    pub layers: Vec<String>,
    /// The sizes of the masks, and the position of the first query.
    pub shape: Shape,
    /// The facts of the masks: lengths, documents, labels and so on.
    pub facts: Facts,
    /// The result of queries that may read no key.
    pub fill: Fill,
    /// The policy, one rule per line.
    #[serde(serialize_with = "write_lines", deserialize_with = "read_lines")]
    pub policy: String,
    /// The verdict for each `deny` line and batch row.
    rules: Vec<RuleEntry>,
    /// Number of denied pairs in all rules together.
    pub pairs: u64,
    holds: bool,
    /// The proof of the verdicts. Each entry has a set of sources and the tokens that these sources can influence.
    pub reach: Vec<ReachEntry>,
    /// The channels that the certificate does not cover: paths of influence between tokens outside of attention masks.
    pub not_covered: Vec<String>,
    /// The SHA-256 hash of the JSON document without this field, written as one line of JSON.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub sha256: String,
}

/// The verdict for one rule in one batch row.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleEntry {
    rule: String,
    batch: usize,
    sources: u64,
    targets: u64,
    pairs: u64,
    violated: bool,
    reached_pairs: u64,
    counted: Counted,
    witness: Option<Path>,
}

/// Half-open ranges of tokens, `[[start, end], ...]`.
type Ranges = Vec<(u32, u32)>;

/// The tokens that a set of sources can influence, before the first layer and after each layer.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReachEntry {
    /// The index of the batch row.
    pub batch: usize,
    /// The source tokens as half-open ranges.
    pub sources: Ranges,
    /// The influenced tokens before the first layer and after each layer, as pairs (number of consecutive equal sets,
    /// set of tokens). The first set is the sources.
    pub after: Vec<(usize, Ranges)>,
}

/// Returns the masks of all layers as text, one text for each layer.
fn layers_of(flow: &Flow) -> Vec<String> {
    flow.masks.iter().enumerate().map(|(l, mask)| mask.at_layer(l).to_string()).collect()
}

impl Certificate {
    /// Checks `policy` and returns a certificate with the verdicts, also if the policy is broken.
    ///
    /// # Errors
    /// Returns the errors of [`Policy::check`]. Returns an error if the facts cannot be written as JSON, or if the proof or the arrays are too large.
    pub fn issue(flow: &Flow, policy: &Policy) -> Result<Self, Error> {
        flow.facts.check_serial()?;
        let cells: u64 = flow.facts.arrays().map(|(_, array)| cells_of(array.shape())).fold(0, u64::saturating_add);
        if cells > MOST_CELLS {
            return refuse(format!(
                "the arrays have {cells} cells, but a certificate has at most {MOST_CELLS}: write the masks as expressions"
            ));
        }
        let (ruling, proof) = check(policy, flow)?;
        let mut certificate = Certificate {
            format: FORMAT.into(),
            layers: layers_of(flow),
            shape: flow.shape.clone(),
            facts: flow.facts.clone(),
            fill: flow.fill,
            policy: policy.to_string(),
            holds: ruling.holds(),
            pairs: ruling.pairs,
            rules: ruling.rules.iter().map(RuleEntry::of).collect(),
            reach: entries(&proof)?,
            not_covered: CHANNELS.iter().map(|c| (*c).to_string()).collect(),
            sha256: String::new(),
        };
        let text = serde_json::to_string(&certificate).map_err(|e| Error::fact("certificate", e.to_string()))?;
        certificate.sha256 = hex(&Hash::hash(text.as_bytes()));
        Ok(certificate)
    }

    /// Returns whether the policy holds, according to the certificate.
    pub fn holds(&self) -> bool {
        self.holds
    }

    /// Returns the verdicts of the certificate.
    pub fn ruling(&self) -> Ruling {
        Ruling {
            rules: self.rules.iter().map(RuleEntry::verdict).collect(),
            pairs: self.pairs,
            batch_rows: self.shape.batch_len(),
            heads: self.shape.head_count(),
            layers: self.layers.len(),
            empty: Vec::new(),
        }
    }

    /// Checks that the certificate belongs to `flow`.
    ///
    /// # Errors
    /// Returns an error if masks, sizes, facts (data given with the masks) or the result of empty rows ([`Fill`]) differ.
    pub fn matches(&self, flow: &Flow) -> Result<(), Error> {
        let same = self.layers == layers_of(flow)
            && self.shape == flow.shape
            && self.facts == flow.facts
            && self.fill == flow.fill;
        match same {
            true => Ok(()),
            false => refuse(
                "the certificate has other masks, sizes or facts than this stack, or another result for queries that may read no key: issue a new certificate"
                    .into(),
            ),
        }
    }

    /// Returns the stack of masks that the certificate describes.
    ///
    /// # Errors
    /// Returns an error if the masks, the shape or the facts (data given with the masks) are not valid.
    pub fn flow(&self) -> Result<Flow, Error> {
        let read = |text: &String| text.parse::<Spec>().map(|spec| spec.mask).map_err(Error::from);
        let masks = self.layers.iter().map(read).collect::<Result<Vec<Mask>, _>>()?;
        Flow::of_stack(&masks, &self.shape, &self.facts, self.fill)
    }

    /// Returns the certificate as JSON on several lines.
    ///
    /// # Errors
    /// Returns an error if serialization fails. No such case is known.
    pub fn to_json(&self) -> Result<String, Error> {
        serde_json::to_string_pretty(self).map_err(|e| Error::fact("certificate", e.to_string()))
    }

    /// Reads a certificate from JSON. Checks the fields and the format, but not the proof.
    ///
    /// # Errors
    /// Returns an error if the text is no certificate of this format.
    pub fn from_json(text: &str) -> Result<Self, Error> {
        let read: Result<Self, _> = serde_json::from_str(text);
        let certificate = read.map_err(|e| Error::fact("certificate", format!("not a certificate: {e}")))?;
        if certificate.format != FORMAT {
            return refuse(format!("the format of the certificate is {:?}, expected {FORMAT:?}", certificate.format));
        }
        Ok(certificate)
    }
}

impl RuleEntry {
    fn of(verdict: &RuleVerdict) -> Self {
        let violated = verdict.violated();
        let RuleVerdict { rule, batch, sources, targets, pairs, reached_pairs, counted, witness, .. } = verdict.clone();
        RuleEntry { rule, batch, sources, targets, pairs, violated, reached_pairs, counted, witness }
    }

    fn verdict(&self) -> RuleVerdict {
        let RuleEntry { rule, batch, sources, targets, pairs, reached_pairs, counted, witness, .. } = self.clone();
        let (cut, cut_computed) = (None, false);
        RuleVerdict { rule, batch, sources, targets, pairs, reached_pairs, counted, witness, cut, cut_computed }
    }
}

fn refuse<T>(problem: String) -> Result<T, Error> {
    Err(Error::fact("certificate", problem))
}

fn cells_of(shape: [usize; 4]) -> u64 {
    shape.iter().fold(1, |cells, n| cells.saturating_mul(*n as u64))
}

/// Converts the proof to entries of the certificate, each with the tokens that one set of sources can influence.
/// Returns an error if all entries together have more than [`MOST_RANGES`] ranges.
fn entries(proof: &[Followed]) -> Result<Vec<ReachEntry>, Error> {
    let count: usize = proof.iter().flat_map(|f| f.runs.iter()).map(|(_, set)| set.as_slice().len()).sum();
    if count > MOST_RANGES {
        return refuse(format!(
            "the proof has {count} ranges of tokens, but a certificate has at most {MOST_RANGES}: check fewer lines or batch rows at \
             once"
        ));
    }
    let ranges = |set: &IntervalSet| -> Ranges { set.iter().map(|i| (i.start, i.end)).collect() };
    let entry = |followed: &Followed| ReachEntry {
        batch: followed.batch,
        sources: followed.runs.first().map(|(_, set)| ranges(set)).unwrap_or_default(),
        after: followed.runs.iter().map(|(count, set)| (*count, ranges(set))).collect(),
    };
    Ok(proof.iter().map(entry).collect())
}

/// Serializes a text as the list of its lines.
fn write_lines<S: Serializer>(text: &impl AsRef<str>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(text.as_ref().lines())
}

fn read_lines<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let lines: Vec<String> = Vec::deserialize(deserializer)?;
    Ok(lines.iter().map(|line| format!("{line}\n")).collect())
}

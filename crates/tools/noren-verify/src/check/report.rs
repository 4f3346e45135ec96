//! [`Report`]: the results of the check of a certificate.

use crate::check::certificate::Witness;

/// The results of the check of a certificate that was accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// True if the policy holds: at least one pair of tokens is denied, and in no denied pair can the source influence
    /// the target.
    pub holds: bool,
    /// Number of denied pairs of tokens, summed over all rules and batch rows.
    pub pairs: u64,
    /// The lines of the policy.
    pub policy: Vec<String>,
    /// One entry for each `deny` line and batch row.
    pub rules: Vec<RuleReport>,
    /// Number of batch rows.
    pub batch: usize,
    /// Number of query heads.
    pub heads: usize,
    /// Number of tokens in each batch row.
    pub tokens: usize,
    /// Number of layers.
    pub layers: usize,
    /// Number of distinct masks among the layers.
    pub masks: usize,
    /// Number of entries of `reach` in the certificate. Each entry has a set of source tokens and, for each layer, the
    /// tokens that the sources influence after this layer. The step from each layer to the next was checked for every
    /// entry.
    pub closures: usize,
    /// Paths on which information can flow between tokens outside of the masks. The check does not cover these paths.
    pub not_covered: Vec<String>,
    /// The SHA-256 of the certificate in hexadecimal digits, computed by the verifier.
    pub sha256: String,
}

/// The results of the check for one `deny` line in one batch row.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RuleReport {
    /// The text of the `deny` line.
    pub rule: String,
    /// The index of the batch row.
    pub batch: usize,
    /// Number of source tokens of the rule, on the left of `->`.
    pub sources: u64,
    /// Number of target tokens of the rule, on the right of `->`.
    pub targets: u64,
    /// Number of denied pairs, without the pairs that an `allow` line permits.
    pub pairs: u64,
    /// True if, in at least one denied pair, the source can influence the target.
    pub violated: bool,
    /// Number of denied pairs whose source can influence the target; `None` if the check did not count them and only
    /// confirmed the path in `witness`.
    pub reached_pairs: Option<u64>,
    /// A path from the source to the target of one denied pair; `None` if the rule is not violated.
    pub witness: Option<Witness>,
}

//! [`Report`]: the results of the check of a certificate.

use crate::certificate::Witness;

/// The results of the check of a certificate that was accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// True if the policy holds: at least one pair is denied, and no source of a denied pair can influence the target.
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
    /// Number of closures in the certificate: sets of source tokens with the tokens that they influence after each
    /// layer. Every step of every closure was checked.
    pub closures: usize,
    /// Paths of information between tokens that masks do not show, and that the check does not cover.
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
    /// Number of tokens in the group of sources, on the left of `->`.
    pub sources: u64,
    /// Number of tokens in the group of targets, on the right of `->`.
    pub targets: u64,
    /// Number of denied pairs, without the pairs that an `allow` line permits.
    pub pairs: u64,
    /// True if the source of at least one denied pair can influence the target.
    pub violated: bool,
    /// Number of denied pairs whose source can influence the target; `None` if the check established only the path in
    /// `witness`.
    pub reached_pairs: Option<u64>,
    /// A path from the source to the target of one denied pair; `None` if the rule is not violated.
    pub witness: Option<Witness>,
}

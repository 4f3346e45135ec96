//! [`Report`]: the facts that a check established.

use crate::certificate::Witness;

/// The facts that a check established about a certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// True if the policy holds: at least one pair is denied, and no denied pair is connected.
    pub holds: bool,
    /// Number of denied pairs, over all rules and batch rows.
    pub pairs: u64,
    /// The lines of the policy.
    pub policy: Vec<String>,
    /// One entry for each `deny` line and batch row.
    pub rules: Vec<RuleReport>,
    /// Number of batch rows.
    pub batch: usize,
    /// Number of query heads.
    pub heads: usize,
    /// Number of tokens of a batch row.
    pub tokens: usize,
    /// Number of layers.
    pub layers: usize,
    /// Number of distinct masks among the layers.
    pub masks: usize,
    /// Number of stored closures, each checked step by step.
    pub closures: usize,
    /// Paths between tokens that no mask shows.
    pub not_covered: Vec<String>,
    /// The hash of the certificate, computed again.
    pub sha256: String,
}

/// The facts that a check established about one `deny` line in one batch row.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RuleReport {
    /// The `deny` line.
    pub rule: String,
    /// The batch row.
    pub batch: usize,
    /// Number of tokens of the line's left group.
    pub sources: u64,
    /// Number of tokens of the line's right group.
    pub targets: u64,
    /// Number of denied pairs, without those that an `allow` line permits.
    pub pairs: u64,
    /// True if at least one denied pair is connected.
    pub violated: bool,
    /// Number of connected pairs; `None` if only the path of `witness` is established.
    pub reached_pairs: Option<u64>,
    /// A path of a connected pair, with each step checked.
    pub witness: Option<Witness>,
}

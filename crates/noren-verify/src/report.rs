//! [`Report`]: what a check established.

use crate::certificate::Witness;

/// What a check established about a certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// True when the policy holds: at least one pair is denied, and no denied pair is connected.
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
    /// The ways in which tokens influence each other that no mask shows.
    pub not_covered: Vec<String>,
    /// The hash of the certificate, made again.
    pub sha256: String,
}

/// What a check established about one `deny` line in one batch row.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RuleReport {
    /// The line.
    pub rule: String,
    /// The batch row.
    pub batch: usize,
    /// Number of tokens of the line's left group.
    pub sources: u64,
    /// Number of tokens of the line's right group.
    pub targets: u64,
    /// Number of denied pairs, exceptions taken out.
    pub pairs: u64,
    /// True when some denied pair is connected.
    pub violated: bool,
    /// Number of connected pairs; `None` when only the path of `witness` is established.
    pub reached_pairs: Option<u64>,
    /// A path of a connected pair, each step of it checked.
    pub witness: Option<Witness>,
}

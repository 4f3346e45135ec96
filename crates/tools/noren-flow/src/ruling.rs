//! [`Ruling`]: the verdict of a policy for a stack, by rule and batch row.

use super::Path;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The verdict of a policy for a stack of masks, with one verdict for each `deny` line and batch row.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Ruling {
    /// One verdict for each `deny` line and batch row, sorted by line, then by batch row.
    pub rules: Vec<RuleVerdict>,
    /// Number of denied pairs in all rules together. A pair that two lines deny counts twice.
    pub pairs: u64,
    /// Number of batch rows that the verdict covers.
    pub batch_rows: usize,
    /// Number of query heads that the verdict covers.
    pub heads: usize,
    /// Number of layers that the verdict covers.
    pub layers: usize,
    /// The groups without tokens, from lines with `maybe`.
    pub empty: Vec<EmptyGroup>,
}

/// The verdict for one `deny` line in one batch row.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RuleVerdict {
    /// The text of the `deny` line.
    pub rule: String,
    /// The index of the batch row.
    pub batch: usize,
    /// Number of source tokens: the group on the left of `->` in the rule.
    pub sources: u64,
    /// Number of target tokens: the group on the right of `->` in the rule.
    pub targets: u64,
    /// Number of denied pairs of a source and another token, without the pairs of `allow` lines.
    pub pairs: u64,
    /// Number of denied pairs in which the source can influence the target: exact or a lower bound, see `counted`.
    pub reached_pairs: u64,
    /// Whether `reached_pairs` is exact or a lower bound.
    pub counted: Counted,
    /// A path from a source to a denied target over the fewest layers; `None` if no denied pair is reached.
    pub witness: Option<Path>,
    /// The cheapest cut as (layer, number of cells): the layer in which the fewest cells must be hidden to stop the
    /// influence. `None` if no single layer is sufficient, or if the cut was not computed.
    pub cut: Option<(usize, u64)>,
    /// True if the cheapest cut (the field `cut`) was computed. False for long sequences with many sets of sources and
    /// targets, because the computation would be too slow.
    pub cut_computed: bool,
}

/// The meaning of the number of reached pairs: exact, or a lower bound.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum Counted {
    /// The number of reached pairs is exact.
    #[default]
    #[serde(rename = "exact")]
    Exact,
    /// The number of reached pairs is a lower bound.
    #[serde(rename = "at least")]
    AtLeast,
}

/// A group of a policy line, such as `label(pii)`, that contains no token in a batch row.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct EmptyGroup {
    /// The line of the policy that contains the group.
    pub rule: String,
    /// The text of the group, such as `label(pii)`.
    pub group: String,
    /// The index of the batch row.
    pub batch: usize,
}

/// The verdict of a policy: the result of the check of all its denied pairs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Verdict {
    /// At least one pair is denied, and no source of a denied pair can influence the target.
    #[serde(rename = "holds")]
    Holds,
    /// The source of at least one denied pair can influence the target.
    #[serde(rename = "broken")]
    Broken,
    /// No pair is denied, so there is nothing to prove.
    #[serde(rename = "nothing established")]
    NothingEstablished,
}

impl Verdict {
    fn of(pairs: u64, broken: bool) -> Self {
        match (broken, pairs) {
            (true, _) => Verdict::Broken,
            (false, 0) => Verdict::NothingEstablished,
            (false, _) => Verdict::Holds,
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Verdict::Holds => "holds",
            Verdict::Broken => "broken",
            Verdict::NothingEstablished => "nothing established",
        })
    }
}

impl Ruling {
    /// Returns the verdict.
    pub fn verdict(&self) -> Verdict {
        Verdict::of(self.pairs, self.violations().next().is_some())
    }

    /// Returns true if the verdict is [`Verdict::Holds`]: at least one pair is denied, and no source of a denied pair
    /// can influence the target.
    pub fn holds(&self) -> bool {
        self.verdict() == Verdict::Holds
    }

    /// Returns the verdicts of the lines and batch rows in which the source of a denied pair can influence the target.
    pub fn violations(&self) -> impl Iterator<Item = &RuleVerdict> {
        self.rules.iter().filter(|rule| rule.violated())
    }

    /// Returns the verdict in one sentence, with the numbers of layers, heads and batch rows that it covers.
    ///
    /// ```
    /// use noren_flow::{Fill, Flow, Policy};
    /// use noren_mask::{Facts, Shape, atoms::*};
    /// let flow = Flow::of_stack(&vec![causal(); 3], &Shape::square(8), &Facts::new(), Fill::Nothing)?;
    /// let of = |policy: &str| -> Result<String, noren_mask::Error> { Ok(policy.parse::<Policy>()?.check(&flow)?.summary()) };
    /// assert_eq!(
    ///     of("deny: tokens(4..8) -> token(3)")?,
    ///     "holds: none of the 4 denied pairs is reached over 3 layer(s), 1 head(s) and 1 batch row(s)"
    /// );
    /// assert_eq!(of("")?, "nothing established: the policy denies no pair of tokens");
    /// # Ok::<(), noren_mask::Error>(())
    /// ```
    pub fn summary(&self) -> String {
        let verdict = self.verdict();
        let over =
            format!("over {} layer(s), {} head(s) and {} batch row(s)", self.layers, self.heads, self.batch_rows);
        match verdict {
            Verdict::NothingEstablished => format!("{verdict}: the policy denies no pair of tokens"),
            Verdict::Holds => format!("{verdict}: none of the {} denied pairs is reached {over}", self.pairs),
            Verdict::Broken => {
                let reached = self.rules.iter().map(|rule| rule.reached_pairs).fold(0, u64::saturating_add);
                let exact = self.rules.iter().all(|rule| rule.counted == Counted::Exact);
                let bound = if exact { "" } else { "at least " };
                format!("{verdict}: {bound}{reached} of the {} denied pairs are reached {over}", self.pairs)
            }
        }
    }
}

impl RuleVerdict {
    /// Returns true if the source of at least one denied pair can influence the target.
    pub fn violated(&self) -> bool {
        self.reached_pairs > 0
    }

    /// Returns the verdict for this line in this batch row.
    pub fn verdict(&self) -> Verdict {
        Verdict::of(self.pairs, self.violated())
    }
}

impl fmt::Display for RuleVerdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, batch row {}: ", self.rule, self.batch)?;
        let Some(path) = &self.witness else {
            return match self.verdict() {
                Verdict::NothingEstablished => write!(
                    f,
                    "nothing established: {} source(s) and {} target(s) form no denied pair",
                    self.sources, self.targets
                ),
                _ => write!(f, "holds for {} pair(s)", self.pairs),
            };
        };
        let bound = if self.counted == Counted::Exact { "" } else { "at least " };
        let reached = format!("{bound}{} of {} pair(s) reached: {path}", self.reached_pairs, self.pairs);
        match self.cut {
            Some((layer, cells)) => write!(f, "{reached}; hiding {cells} cell(s) in layer {layer} stops this"),
            None if self.cut_computed => {
                write!(f, "{reached}; no single layer is enough to cut the path: hide the sources in all layers")
            }
            None => f.write_str(&reached),
        }
    }
}

impl fmt::Display for EmptyGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} has no tokens in batch row {}", self.rule, self.group, self.batch)
    }
}

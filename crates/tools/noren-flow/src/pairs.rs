//! [`Denied`]: the pairs of tokens that one rule denies in one batch row, stored as sets of sources with sets of
//! targets.

use super::groups::{DocumentTokens, Groups, refuse};
use super::policy::{Group, Policy, Rule};
use super::ruling::EmptyGroup;
use noren_mask::Error;
use noren_mask::interval::IntervalSet;
use std::collections::HashMap;

/// The maximum number of ranges of tokens that are stored for the denied pairs of one `deny` line.
const MOST_RANGES: u64 = 1 << 22;
/// The maximum number of ranges that are compared to remove the pairs of `allow` lines from a `deny` line.
const MOST_SPLIT_WORK: u64 = 1 << 28;

/// The denied pairs of one `deny` line in one batch row. The pairs of `allow` lines are already removed.
pub(super) struct Denied {
    /// Number of source tokens: the group on the left of `->` in the rule.
    pub(super) sources: u64,
    /// Number of target tokens: the group on the right of `->` in the rule.
    pub(super) targets: u64,
    /// Number of denied pairs.
    pub(super) pairs: u64,
    /// The denied pairs, divided into parts. No pair is in two parts, and every part has at least one pair.
    pub(super) parts: Vec<Part>,
}

/// The pairs that the `allow` lines of a policy allow in one batch row, as one entry (letters, sources, targets) for
/// each line. `letters` selects pairs by the documents of their two tokens.
pub(super) struct Allowed(Vec<(Letters, IntervalSet, IntervalSet)>);

/// A part of the denied pairs of a rule. Each pair has a source from `sources` and a target from `targets`; `kind`
/// defines which of these pairs are denied.
pub(super) struct Part {
    kind: Kind,
    pub(super) sources: IntervalSet,
    pub(super) targets: IntervalSet,
}

/// The pairs that are selected from a set of sources and a set of targets.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// All pairs of a source and a target; no token is in both sets.
    Product,
    /// Pairs of two different tokens.
    Apart,
    /// Pairs of tokens of different documents.
    OtherDocument,
    /// Pairs of two different tokens of one document.
    SameDocument,
}

/// A set of sources and a set of targets. If `within` is false, the policy denies all pairs of a source and a target.
/// If `within` is true, the policy denies only the pairs in which both tokens are in the same document.
pub(super) struct Block {
    pub(super) sources: IntervalSet,
    pub(super) targets: IntervalSet,
    /// True if only pairs of two tokens of the same document are denied; false if all pairs are denied.
    pub(super) within: bool,
}

/// The kinds of token pairs that a rule of a policy selects: pairs in one document, in two documents, or outside of
/// documents. The letters of a rule decide: `document(i) -> document(j)` selects only pairs in two different documents,
/// `document(i) -> document(i)` only pairs in one document. A rule without letters selects pairs of all kinds.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Letters {
    /// Whether this rule of a policy selects pairs in which both tokens are in the same document.
    same: bool,
    /// Whether this rule of a policy selects pairs in which the tokens are in different documents.
    other: bool,
    /// Whether this rule of a policy selects pairs in which a token is outside of all documents.
    none: bool,
}

impl Letters {
    fn of(rule: &Rule) -> Self {
        match (&rule.from, &rule.to) {
            (Group::EachDocument(a), Group::EachDocument(b)) => Letters { same: a == b, other: a != b, none: false },
            _ => Letters { same: true, other: true, none: true },
        }
    }

    fn all(self) -> bool {
        self.same && self.other && self.none
    }
}

impl Allowed {
    /// Returns the pairs that the `allow` lines of `policy` allow. Adds groups without tokens to `empty`.
    pub(super) fn of(policy: &Policy, groups: &Groups<'_>, empty: &mut Vec<EmptyGroup>) -> Result<Self, Error> {
        let mut allowed = Vec::new();
        for rule in policy.rules.iter().filter(|r| r.allow) {
            let (from, to) = sets(rule, groups, empty)?;
            allowed.push((Letters::of(rule), from, to));
        }
        Ok(Allowed(allowed))
    }
}

impl Denied {
    /// Returns the pairs of one `deny` line without the pairs of `allowed`. Adds groups of the line that have no tokens to `empty`.
    pub(super) fn of(
        rule: &Rule,
        allowed: &Allowed,
        groups: &Groups<'_>,
        empty: &mut Vec<EmptyGroup>,
    ) -> Result<Self, Error> {
        let (sources, targets) = sets(rule, groups, empty)?;
        let mut letters = Letters::of(rule);
        let (from, to) = (sources.count(), targets.count());
        let mut classes = vec![(sources, targets)];
        let mut work = 0u64;
        for (taken, from, to) in &allowed.0 {
            if taken.all() {
                let cut = (from.as_slice().len() + to.as_slice().len()) as u64;
                let ranges = classes.iter().map(|(s, t)| (s.as_slice().len() + t.as_slice().len()) as u64).sum::<u64>();
                work += ranges + cut * classes.len() as u64;
                if ranges > MOST_RANGES || work > MOST_SPLIT_WORK {
                    return Err(Error::invalid(format!(
                        "policy: `{rule}`: the `allow` lines split the denied pairs into more than {MOST_RANGES} ranges, or more than \
                         {MOST_SPLIT_WORK} ranges would have to be compared: check fewer lines, batch rows or overlapping groups at once"
                    )));
                }
                classes = split(classes, from, to);
            } else {
                letters.same &= !taken.same;
                letters.other &= !taken.other;
            }
        }
        let documents = groups.documents.as_ref();
        let mut parts = Vec::new();
        for (targets, sources) in by_targets(classes) {
            parts_of(letters, sources, targets, documents, &mut parts);
        }
        let mut pairs = 0;
        parts.retain(|part| {
            let count = part.pairs(documents);
            pairs += count;
            count > 0
        });
        Ok(Denied { sources: from, targets: to, pairs, parts })
    }
}

/// Returns the tokens of both groups of a rule, as (sources, targets). Adds groups without tokens to `empty`.
fn sets(rule: &Rule, groups: &Groups<'_>, empty: &mut Vec<EmptyGroup>) -> Result<(IntervalSet, IntervalSet), Error> {
    let mut of = |group: &Group| {
        let tokens = groups.tokens(group, rule)?;
        if tokens.is_empty() {
            if !rule.maybe {
                let word = if rule.allow { "allow" } else { "deny" };
                return refuse(
                    rule,
                    format!("{}: write `{word} maybe:` where a group may be empty", groups.absence(group)),
                );
            }
            empty.push(EmptyGroup { rule: rule.to_string(), group: group.to_string(), batch: groups.row() });
        }
        Ok(tokens)
    };
    Ok((of(&rule.from)?, of(&rule.to)?))
}

/// Removes all pairs with a source in `from` and a target in `to` from `classes`. An entry (sources, targets) of
/// `classes` represents all pairs of one of its sources with one of its targets.
fn split(
    classes: Vec<(IntervalSet, IntervalSet)>,
    from: &IntervalSet,
    to: &IntervalSet,
) -> Vec<(IntervalSet, IntervalSet)> {
    let cut = |(sources, targets): (IntervalSet, IntervalSet)| {
        let inside = (sources.intersect(from), targets.minus(to));
        [inside, (sources.minus(from), targets)]
    };
    classes.into_iter().flat_map(cut).filter(|(s, t)| !s.is_empty() && !t.is_empty()).collect()
}

/// Merges entries (sources, targets) that have equal targets. Returns entries (targets, sources).
fn by_targets(classes: Vec<(IntervalSet, IntervalSet)>) -> impl Iterator<Item = (IntervalSet, IntervalSet)> {
    let mut together: HashMap<IntervalSet, Vec<std::ops::Range<u32>>> = HashMap::new();
    for (sources, targets) in classes {
        together.entry(targets).or_default().extend(sources.iter().map(|i| i.start..i.end));
    }
    let mut together: Vec<(IntervalSet, IntervalSet)> =
        together.into_iter().map(|(targets, sources)| (targets, sources.into_iter().collect())).collect();
    together.sort_by_key(|(_, sources)| sources.covering_range());
    together.into_iter()
}

/// Appends the selected pairs of a source and a target to `parts`, split into parts. `letters` selects pairs by the
/// documents of their two tokens.
fn parts_of(
    letters: Letters,
    sources: IntervalSet,
    targets: IntervalSet,
    documents: Option<&DocumentTokens>,
    parts: &mut Vec<Part>,
) {
    let mut add = |kind, sources: &IntervalSet, targets: &IntervalSet| {
        if !sources.is_empty() && !targets.is_empty() {
            parts.push(Part { kind, sources: sources.clone(), targets: targets.clone() });
        }
    };
    let (Some(documents), false) = (documents, letters.all()) else {
        return add(Kind::Apart, &sources, &targets);
    };
    let inside = |set: &IntervalSet| (set.intersect(&documents.all), set.minus(&documents.all));
    let ((in_from, no_from), (in_to, no_to)) = (inside(&sources), inside(&targets));
    match (letters.same, letters.other) {
        (true, true) => add(Kind::Apart, &in_from, &in_to),
        (true, false) => add(Kind::SameDocument, &in_from, &in_to),
        (false, true) => add(Kind::OtherDocument, &in_from, &in_to),
        (false, false) => {}
    }
    if letters.none {
        add(Kind::Apart, &no_from, &targets);
        add(Kind::Product, &in_from, &no_to);
    }
}

impl Part {
    /// Returns the number of denied pairs (source, target) in this part.
    fn pairs(&self, documents: Option<&DocumentTokens>) -> u64 {
        let (from, to) = (self.sources.count(), self.targets.count());
        let common = || self.sources.intersect(&self.targets).count();
        let same = || {
            let counts = |set| documents.map(|d| d.counts(set)).unwrap_or_default();
            counts(&self.sources).iter().zip(counts(&self.targets)).map(|(a, b)| a * b).sum::<u64>()
        };
        match self.kind {
            Kind::Product => from * to,
            Kind::Apart => from * to - common(),
            Kind::OtherDocument => from * to - same(),
            Kind::SameDocument => same() - common(),
        }
    }

    /// Returns the denied targets of one source of this part.
    pub(super) fn targets_of(&self, source: u32, documents: Option<&DocumentTokens>) -> IntervalSet {
        let own = IntervalSet::from(source..source + 1);
        let document = || {
            let documents = documents?;
            Some(documents.tokens(documents.of_token(source)?))
        };
        match self.kind {
            Kind::Product => self.targets.clone(),
            Kind::Apart => self.targets.minus(&own),
            Kind::OtherDocument => self.targets.minus(&document().unwrap_or_default()),
            Kind::SameDocument => self.targets.intersect(&document().unwrap_or_default()).minus(&own),
        }
    }

    /// Returns blocks (each a set of sources with a set of targets) that together contain exactly the denied pairs of
    /// this part.
    pub(super) fn blocks(&self, documents: Option<&DocumentTokens>) -> Vec<Block> {
        let (sources, targets) = (&self.sources, &self.targets);
        let mut blocks = Blocks { out: Vec::new(), within: self.kind == Kind::SameDocument };
        match (self.kind, documents) {
            (Kind::OtherDocument, Some(documents)) => {
                let (from, to) = (documents.counts(sources), documents.counts(targets));
                let mut shared: Vec<u32> = (0..from.len() as u32).collect();
                shared.retain(|&d| from[d as usize] > 0 && to[d as usize] > 0);
                let among = |set: &IntervalSet, wanted: &dyn Fn(usize) -> bool| {
                    documents.pick(set, |d| shared.binary_search(&d).is_ok_and(wanted))
                };
                let common = (among(sources, &|_| true), among(targets, &|_| true));
                blocks.apart(sources, targets, &common, shared.len(), |bit, one| {
                    let wanted = |rank: usize| gray_bit(rank, bit) == one;
                    (among(sources, &wanted), among(targets, &|rank| !wanted(rank)))
                });
            }
            (Kind::SameDocument, Some(documents)) => {
                let common = sources.intersect(targets);
                let ranks: Vec<(u32, IntervalSet)> = documents.split(&common);
                let most = ranks.iter().map(|(_, set)| set.count()).max().unwrap_or(0) as usize;
                blocks.apart(sources, targets, &(common.clone(), common.clone()), most, |bit, one| {
                    let of = |one| ranks.iter().flat_map(|(_, set)| with_bit(set, bit, one)).collect::<IntervalSet>();
                    (of(one), of(!one))
                });
            }
            (Kind::Product, _) => blocks.add(sources.clone(), targets.clone()),
            _ => {
                let common = sources.intersect(targets);
                let count = common.count() as usize;
                blocks.apart(sources, targets, &(common.clone(), common.clone()), count, |bit, one| {
                    (with_bit(&common, bit, one).collect(), with_bit(&common, bit, !one).collect())
                });
            }
        }
        blocks.out
    }
}

struct Blocks {
    out: Vec<Block>,
    within: bool,
}

impl Blocks {
    fn add(&mut self, sources: IntervalSet, targets: IntervalSet) {
        if !sources.is_empty() && !targets.is_empty() {
            self.out.push(Block { sources, targets, within: self.within });
        }
    }

    /// Adds blocks that together contain all pairs of a source and a target whose tokens have different class numbers.
    /// For example, the class number of a token can be the index of its document.
    ///
    /// `classes` is the number of classes that have both sources and targets, and `common` is the sources and the
    /// targets in these classes. Two different class numbers differ in at least one bit. For each bit, one block has
    /// the sources whose class number has this bit set and the targets whose class number has it clear; a second block
    /// is the reverse. `bit(b, true)` returns the (sources, targets) of the first block for bit `b`, and `bit(b,
    /// false)` those of the second block.
    fn apart(
        &mut self,
        sources: &IntervalSet,
        targets: &IntervalSet,
        common: &(IntervalSet, IntervalSet),
        classes: usize,
        bit: impl Fn(u32, bool) -> (IntervalSet, IntervalSet),
    ) {
        self.add(sources.minus(&common.0), targets.clone());
        self.add(common.0.clone(), targets.minus(&common.1));
        for b in 0..usize::BITS - classes.saturating_sub(1).leading_zeros() {
            for one in [true, false] {
                let (sources, targets) = bit(b, one);
                self.add(sources, targets);
            }
        }
    }
}

/// Returns bit number `bit` of the Gray code of `rank`, an index in a list. The Gray codes of two consecutive indices
/// differ in only one bit, so the indices whose codes have a certain bit set form few ranges.
fn gray_bit(rank: usize, bit: u32) -> bool {
    (rank ^ (rank >> 1)) >> bit & 1 == 1
}

/// Returns the tokens of `set` selected by their rank: bit number `bit` of the Gray code of the rank equals `one`. The
/// rank of a token is its index in the set. For example, the ranks of the tokens in the set {3, 5, 7, 9} have the Gray
/// codes 00, 01, 11 and 10, so bit 0 is set for the tokens 5 and 7.
fn with_bit(set: &IntervalSet, bit: u32, one: bool) -> impl Iterator<Item = std::ops::Range<u32>> + '_ {
    let tokens = set.iter().flat_map(|i| i.start..i.end).enumerate();
    tokens.filter(move |(rank, _)| gray_bit(*rank, bit) == one).map(|(_, token)| token..token + 1)
}

//! Checks a policy for a stack. The denied pairs are split into blocks, each with a set of sources and a set of targets. A block is reached if the
//! sources of the block can influence at least one target of the block.

use super::groups::{Groups, check_facts};
use super::pairs::{Allowed, Block, Denied};
use super::policy::{Policy, Rule};
use super::ruling::{Counted, RuleVerdict, Ruling};
use super::{Flow, ReachRuns};
use noren_mask::Error;
use noren_mask::interval::IntervalSet;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::rc::Rc;

/// The maximum work of a check: the number of tokens, times the number of layers plus 1, times the number of different
/// sets of sources whose influence is computed.
const MOST_WORK: u64 = 1 << 36;
/// The maximum number of source tokens for which the reached pairs of a rule are counted exactly in sequences longer
/// than [`SHORT`]. A pair is reached if its source can influence its target. An exact count computes the influence of
/// each source separately.
const FEW_SOURCES: u64 = 32;
/// The sequence lengths up to which reached pairs are always counted exactly, as (maximum tokens of one batch row,
/// maximum tokens of all batch rows together). A pair is reached if its source can influence its target.
const SHORT: (usize, usize) = (1024, 4096);
/// The maximum work for which the cheapest cut (the layer in which the fewest hidden cells stop the influence) is
/// computed. The work is the number of tokens times the number of layers times the maximum number of token classes: two
/// tokens are in the same class if they are targets of the same reached blocks. A block is reached if its sources can
/// influence at least one of its targets.
const MOST_CUT_WORK: u64 = 1 << 23;
/// The number of reached blocks after which the check of a rule stops. The check does not stop if the reached pairs of
/// the rule are counted exactly. A block is a set of sources with a set of targets; a block is reached if its sources
/// can influence at least one of its targets.
const ENOUGH_BLOCKS: usize = 64;

/// A part of the proof of a verdict: the tokens that one set of sources can influence in one batch row.
pub(super) struct Followed {
    pub(super) batch: usize,
    pub(super) runs: Rc<ReachRuns>,
}

impl Policy {
    /// Checks whether the source of any denied pair can influence the target through the stack `flow`.
    ///
    /// # Errors
    /// Returns an error if the facts (data given with the masks) lack a label, documents or clearance levels that the policy names, if a group has
    /// no tokens in a line without `maybe`, or if the check takes too much work.
    pub fn check(&self, flow: &Flow) -> Result<Ruling, Error> {
        Ok(check(self, flow)?.0)
    }
}

/// Returns the verdicts of `policy` for `flow`, and the proof: for sets of sources, the tokens that they can influence.
pub(super) fn check(policy: &Policy, flow: &Flow) -> Result<(Ruling, Vec<Followed>), Error> {
    check_facts(policy, flow)?;
    let denials: Vec<&Rule> = policy.rules.iter().filter(|r| !r.allow).collect();
    let (mut verdicts, mut empty, mut proof) = (Vec::new(), Vec::new(), Vec::new());
    let mut work = 0;
    for batch in 0..flow.shape().batch_len() {
        let groups = Groups::of(flow, batch);
        let allowed = Allowed::of(policy, &groups, &mut empty)?;
        let mut row = Row { flow, groups: &groups, batch, known: HashMap::new(), proof: Vec::new(), work };
        for (line, rule) in denials.iter().enumerate() {
            let denied = Denied::of(rule, &allowed, &groups, &mut empty)?;
            verdicts.push((line, row.verdict(rule, &denied)?));
        }
        work = row.work;
        proof.extend(row.proof.into_iter().map(|runs| Followed { batch, runs }));
    }
    verdicts.sort_by_key(|(line, verdict)| (*line, verdict.batch));
    let rules: Vec<RuleVerdict> = verdicts.into_iter().map(|(_, verdict)| verdict).collect();
    let pairs = rules.iter().try_fold(0u64, |sum, rule| sum.checked_add(rule.pairs));
    let pairs = pairs.ok_or_else(|| {
        Error::invalid("policy: the policy denies more than 2^64 pairs of tokens: check fewer of its lines at once")
    })?;
    let shape = flow.shape();
    let (batch_rows, heads, layers) = (shape.batch_len(), shape.head_count(), flow.depth());
    Ok((Ruling { rules, pairs, batch_rows, heads, layers, empty }, proof))
}

/// The check of a policy in one batch row.
struct Row<'a> {
    flow: &'a Flow,
    groups: &'a Groups<'a>,
    batch: usize,
    /// The sets of sources whose influence is already computed. The value has the tokens that the sources can
    /// influence, and true if these tokens are already in the proof.
    known: HashMap<IntervalSet, (Rc<ReachRuns>, bool)>,
    proof: Vec<Rc<ReachRuns>>,
    work: u64,
}

/// The result of the check of one `deny` line. The denied pairs of the line are split into blocks, each with a set of
/// sources and a set of targets.
#[derive(Default)]
struct Outcome {
    /// The blocks in which sources can influence targets, as (sources of the block, influenced targets of the block).
    broken: Vec<(IntervalSet, IntervalSet)>,
    /// Sets of sources whose influence proves that a block, or one document of a block, is not reached: they cannot
    /// influence its denied targets.
    clean: Vec<IntervalSet>,
    /// A lower bound of the number of reached pairs: denied pairs whose source can influence the target.
    at_least: u64,
    /// True if the check stopped before all blocks were checked.
    cut_short: bool,
}

impl Row<'_> {
    fn verdict(&mut self, rule: &Rule, denied: &Denied) -> Result<RuleVerdict, Error> {
        let outcome = self.follow(rule, denied)?;
        let mut verdict = RuleVerdict {
            rule: rule.to_string(),
            batch: self.batch,
            sources: denied.sources,
            targets: denied.targets,
            pairs: denied.pairs,
            reached_pairs: 0,
            counted: Counted::Exact,
            witness: None,
            cut: None,
            cut_computed: false,
        };
        if outcome.broken.is_empty() {
            outcome.clean.iter().for_each(|sources| self.prove(sources));
            return Ok(verdict);
        }
        let path = |(from, to): &(IntervalSet, IntervalSet)| {
            let (reach, _) = self.known.get(from)?;
            self.flow.witness_in(self.batch, reach, to)
        };
        let paths = outcome.broken.iter().filter_map(path);
        verdict.witness = paths.min_by_key(|path| path.steps.last().map(|step| step.0));
        (verdict.reached_pairs, verdict.counted) = match self.countable(denied) {
            true => (self.count(rule, denied)?, Counted::Exact),
            false => (outcome.at_least, Counted::AtLeast),
        };
        let tokens = u64::from(self.flow.tokens());
        // Two tokens are in one class if they are targets of the same blocks.
        let classes = tokens.min(1 << outcome.broken.len().min(32));
        let work = tokens.saturating_mul(self.flow.depth() as u64).saturating_mul(classes);
        if !outcome.cut_short && work <= MOST_CUT_WORK {
            let cuts = self.flow.cuts_of(self.batch, &outcome.broken);
            let cheapest = cuts.iter().filter(|cut| cut.enough).min_by_key(|cut| cut.cells);
            (verdict.cut, verdict.cut_computed) = (cheapest.map(|cut| (cut.layer, cut.cells)), true);
        }
        Ok(verdict)
    }

    /// Returns true if the reached pairs of a `deny` line are counted exactly, false if only a lower bound is computed.
    /// A pair is reached if its source can influence its target. Pairs are counted exactly for at most [`FEW_SOURCES`]
    /// sources, and in sequences up to [`SHORT`].
    fn countable(&self, denied: &Denied) -> bool {
        let (tokens, rows) = (self.flow.tokens() as usize, self.flow.shape().batch_len());
        denied.sources <= FEW_SOURCES || tokens <= SHORT.0 && tokens * rows <= SHORT.1
    }

    /// Computes, for every block of `denied` (a set of sources with a set of targets), the targets that the sources can
    /// influence. If the reached pairs are not counted exactly, stops after [`ENOUGH_BLOCKS`] reached blocks.
    fn follow(&mut self, rule: &Rule, denied: &Denied) -> Result<Outcome, Error> {
        let mut outcome = Outcome::default();
        for part in &denied.parts {
            let mut most = 0;
            for block in part.blocks(self.groups.documents.as_ref()) {
                if outcome.broken.len() >= ENOUGH_BLOCKS && !self.countable(denied) {
                    outcome.cut_short = true;
                    break;
                }
                most = self.follow_block(rule, block, &mut outcome)?.max(most);
            }
            // Two blocks of one part may share pairs. Two parts never share a pair.
            outcome.at_least = outcome.at_least.saturating_add(most);
        }
        Ok(outcome)
    }

    /// Computes the targets of `block` that the sources of `block` can influence, and adds the result to `outcome`.
    /// Returns a lower bound of the number of reached pairs of the block: denied pairs whose source can influence the
    /// target.
    fn follow_block(&mut self, rule: &Rule, block: Block, outcome: &mut Outcome) -> Result<u64, Error> {
        let hit = self.reached(rule, &block.sources)?.intersect(&block.targets);
        if hit.is_empty() {
            outcome.clean.push(block.sources);
            return Ok(0);
        }
        let Some(documents) = self.groups.documents.as_ref().filter(|_| block.within) else {
            let reached = hit.count();
            outcome.broken.push((block.sources, hit));
            return Ok(reached);
        };
        // The sources that reach a target may be in another document than the target. Therefore each document is checked separately.
        let (mut reached, mut doubtful) = (0, documents.split(&hit).into_iter().peekable());
        let mut clean = false;
        for (number, sources) in documents.split(&block.sources) {
            while doubtful.next_if(|(other, _)| *other < number).is_some() {}
            let Some((_, targets)) = doubtful.next_if(|(other, _)| *other == number) else {
                clean = true;
                continue;
            };
            let hit = self.reached(rule, &sources)?.intersect(&targets);
            match hit.is_empty() {
                true => outcome.clean.push(sources),
                false => {
                    reached += hit.count();
                    outcome.broken.push((sources, hit));
                }
            }
        }
        if clean {
            outcome.clean.push(block.sources);
        }
        Ok(reached)
    }

    /// Returns the number of denied pairs whose source can influence the target. Follows each source token separately,
    /// and adds the tokens that it can influence to the proof.
    fn count(&mut self, rule: &Rule, denied: &Denied) -> Result<u64, Error> {
        let mut total = 0;
        for part in &denied.parts {
            for source in part.sources.iter().flat_map(|i| i.start..i.end) {
                let targets = part.targets_of(source, self.groups.documents.as_ref());
                if targets.is_empty() {
                    continue;
                }
                let own = IntervalSet::from(source..source + 1);
                total += self.reached(rule, &own)?.intersect(&targets).count();
                self.prove(&own);
            }
        }
        Ok(total)
    }

    /// Returns the tokens that `sources` can influence after the last layer.
    fn reached(&mut self, rule: &Rule, sources: &IntervalSet) -> Result<IntervalSet, Error> {
        let runs = match self.known.entry(sources.clone()) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => {
                self.work += u64::from(self.flow.tokens()) * (1 + self.flow.depth() as u64);
                if self.work > MOST_WORK {
                    return Err(Error::invalid(format!(
                        "policy: `{rule}`: the check would follow more than {MOST_WORK} tokens, counted once for each layer and each set of sources: check \
                         fewer lines, fewer batch rows or fewer overlapping groups at once"
                    )));
                }
                entry.insert((Rc::new(self.flow.reach_runs(self.batch, sources)), false))
            }
        };
        Ok(runs.0.last().map(|(_, set)| set.clone()).unwrap_or_default())
    }

    /// Adds the tokens that `sources` can influence to the proof, unless the proof already has them.
    fn prove(&mut self, sources: &IntervalSet) {
        if let Some((runs, proved)) = self.known.get_mut(sources).filter(|(_, proved)| !proved) {
            *proved = true;
            self.proof.push(runs.clone());
        }
    }
}

//! Holds a policy against a stack: every denied pair is in a block whose sources' reach leaves out its targets, or is reached.

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

/// Tokens times layers times sets that are followed before a check gives up.
const MOST_WORK: u64 = 1 << 36;
/// Sources whose reached targets are counted one by one in a sequence of any length.
const FEW_SOURCES: u64 = 32;
/// Tokens, and tokens of all batch rows together, up to which reached pairs are always counted.
const SHORT: (usize, usize) = (1024, 4096);
/// Tokens times layers times classes of tokens up to which the cheapest cut is looked for.
const MOST_CUT_WORK: u64 = 1 << 23;
/// Blocks of a broken rule that are looked at when its pairs are not counted.
const ENOUGH_BLOCKS: usize = 64;

/// The reach of a set in a batch row that a verdict rests on.
pub(super) struct Followed {
    pub(super) batch: usize,
    pub(super) runs: Rc<ReachRuns>,
}

impl Policy {
    /// Holds every denied pair of tokens against the stack.
    ///
    /// # Errors
    /// Labels, documents or levels that the facts do not have, a group without tokens in a line that does not say `maybe`, and
    /// more work than is done for one check.
    pub fn check(&self, flow: &Flow) -> Result<Ruling, Error> {
        Ok(check(self, flow)?.0)
    }
}

/// What `policy` says of `flow`, and the reaches that prove it.
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
    let pairs =
        pairs.ok_or_else(|| Error::Policy("more than 2^64 pairs are denied: check fewer lines at once".into()))?;
    let shape = flow.shape();
    let (batch_rows, heads, layers) = (shape.batch_len(), shape.head_count(), flow.depth());
    Ok((Ruling { rules, pairs, batch_rows, heads, layers, empty }, proof))
}

/// One batch row.
struct Row<'a> {
    flow: &'a Flow,
    groups: &'a Groups<'a>,
    batch: usize,
    /// The reach of each set that was followed, and whether it is in the proof.
    known: HashMap<IntervalSet, (Rc<ReachRuns>, bool)>,
    proof: Vec<Rc<ReachRuns>>,
    work: u64,
}

/// What following the blocks of a denial gave.
#[derive(Default)]
struct Outcome {
    /// Blocks with the targets of theirs that are reached.
    broken: Vec<(IntervalSet, IntervalSet)>,
    /// The sources of the blocks that are not.
    clean: Vec<IntervalSet>,
    /// Number of pairs that certainly are reached.
    at_least: u64,
    /// Whether blocks were left out.
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
        // Tokens are in one class when they are targets of the same blocks.
        let classes = tokens.min(1 << outcome.broken.len().min(32));
        let work = tokens.saturating_mul(self.flow.depth() as u64).saturating_mul(classes);
        if !outcome.cut_short && work <= MOST_CUT_WORK {
            let cuts = self.flow.cuts_of(self.batch, &outcome.broken);
            let cheapest = cuts.iter().filter(|cut| cut.enough).min_by_key(|cut| cut.cells);
            (verdict.cut, verdict.cut_computed) = (cheapest.map(|cut| (cut.layer, cut.cells)), true);
        }
        Ok(verdict)
    }

    /// Whether all reached pairs are counted.
    fn countable(&self, denied: &Denied) -> bool {
        let (tokens, rows) = (self.flow.tokens() as usize, self.flow.shape().batch_len());
        denied.sources <= FEW_SOURCES || tokens <= SHORT.0 && tokens * rows <= SHORT.1
    }

    /// Follows the sources of every block.
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
            // Pairs of two blocks of a part may be the same, those of two parts never are.
            outcome.at_least = outcome.at_least.saturating_add(most);
        }
        Ok(outcome)
    }

    /// Follows one block; returns a lower bound of the number of its pairs that are reached.
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
        // Something crossed into a target's document, perhaps from another one: each document by itself tells.
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

    /// The reached pairs, source by source.
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

    /// Who knows something of `sources` after the last layer.
    fn reached(&mut self, rule: &Rule, sources: &IntervalSet) -> Result<IntervalSet, Error> {
        let runs = match self.known.entry(sources.clone()) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => {
                self.work += u64::from(self.flow.tokens()) * (1 + self.flow.depth() as u64);
                if self.work > MOST_WORK {
                    return Err(Error::Policy(format!(
                        "`{rule}`: more than {MOST_WORK} tokens times layers times sets would have to be followed: check \
                         fewer lines, batch rows or overlapping groups at once"
                    )));
                }
                entry.insert((Rc::new(self.flow.reach_runs(self.batch, sources)), false))
            }
        };
        Ok(runs.0.last().map(|(_, set)| set.clone()).unwrap_or_default())
    }

    /// Adds the reach of a set that was followed to the proof.
    fn prove(&mut self, sources: &IntervalSet) {
        if let Some((runs, proved)) = self.known.get_mut(sources).filter(|(_, proved)| !proved) {
            *proved = true;
            self.proof.push(runs.clone());
        }
    }
}

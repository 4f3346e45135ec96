//! The check of a certificate: recomputes every count, set, path and verdict of the certificate from the documented
//! definitions of masks and policies.

pub(crate) mod certificate;
pub(crate) mod given;
pub(crate) mod layer;
pub(crate) mod policy;
pub(crate) mod report;

use crate::cells::node::World;
use crate::check::certificate::{Certificate, Claim, Entry, Witness, no_twins, small_enough};
use crate::check::layer::Layer;
use crate::check::policy::{Class, Groups, Rule, classes};
use crate::check::report::{Report, RuleReport};
use crate::facts::frame::Frame;
use crate::read::refusal::{Result, wrong};
use crate::runs::{Runs, count, holds, meet, minus};
use crate::work::Work;

/// Checks every statement of a parsed certificate and returns the results.
pub(crate) fn check(certificate: &Certificate) -> Result<Report> {
    small_enough(&certificate.reach)?;
    no_twins(&certificate.reach)?;
    order(certificate)?;
    let work = Work::new();
    let world = World::new(&certificate.facts, &certificate.shape, &work, true)?;
    for row in 0..certificate.shape.batch {
        let space = work.space();
        Row::new(certificate, &world, row)?.check()?;
        work.reset(space);
    }
    let total: i128 = certificate.claims.iter().map(|claim| i128::from(claim.pairs)).sum();
    if i128::from(certificate.pairs) != total {
        return Err(wrong(
            "pairs",
            certificate.pairs.to_string(),
            format!("{total}, which is the sum of `pairs` over all rules"),
        ));
    }
    let verdict = total > 0 && certificate.claims.iter().all(|claim| !claim.violated);
    if certificate.holds != verdict {
        let why = if total == 0 {
            "no pair is denied"
        } else if verdict {
            "no rule is violated"
        } else {
            "the certificate shows that at least one `deny` rule of the policy is violated"
        };
        return Err(wrong("holds", certificate.holds.to_string(), format!("{verdict}: {why}")));
    }
    Ok(report(certificate))
}

/// Checks that the certificate has one claim for each `deny` rule and batch row, sorted by rule, then by batch row.
fn order(certificate: &Certificate) -> Result<()> {
    let denies: Vec<&Rule> = certificate.policy.iter().filter(|rule| !rule.allow).collect();
    let batch = certificate.shape.batch;
    let expected = denies.len() * batch;
    if certificate.claims.len() != expected {
        let given = format!("{} entries", certificate.claims.len());
        return Err(wrong("rules", given, format!("{expected} entries: one for each `deny` line and batch row")));
    }
    for (number, claim) in certificate.claims.iter().enumerate() {
        let rule = denies[number / batch];
        if claim.rule != rule.text {
            return Err(wrong(
                format!("rules[{number}].rule"),
                claim.rule.clone(),
                format!("{:?}, which is the rule in the policy", rule.text),
            ));
        }
        if claim.row != number % batch {
            return Err(wrong(format!("rules[{number}].batch"), claim.row.to_string(), (number % batch).to_string()));
        }
    }
    Ok(())
}

/// The data for the check of one batch row of a certificate.
struct Row<'a> {
    certificate: &'a Certificate,
    world: &'a World<'a>,
    frame: Frame,
    /// The distinct masks of the certificate, resolved for this batch row. Layers of the model with equal masks share
    /// one entry.
    layers: Vec<Layer>,
    /// The entries of the certificate's field `reach` for this batch row.
    entries: Vec<&'a Entry>,
}

impl<'a> Row<'a> {
    fn new(certificate: &'a Certificate, world: &'a World<'a>, row: usize) -> Result<Self> {
        let frame = Frame::new(&certificate.shape, &certificate.facts, row);
        world.work.spend(frame.q_len as usize)?;
        if let Some(query) = frame.no_token() {
            let given = format!("query row {query} of batch row {row} at position {}", frame.query(query));
            return Err(wrong("shape", given, "queries that are tokens of the sequence"));
        }
        let mut layers = Vec::with_capacity(certificate.masks.len());
        for (number, mask) in certificate.masks.iter().enumerate() {
            let first = certificate.layer_of.iter().position(|&of| of == number).unwrap_or(0);
            layers.push(Layer::new(world, mask, &frame, certificate.finite, &format!("layers[{first}]"))?);
        }
        let entries: Vec<&Entry> = certificate.reach.iter().filter(|entry| entry.row == row).collect();
        if !entries.is_empty() {
            world.work.expect(layers.iter().map(|layer| layer.least_steps(&frame)).sum())?;
        }
        Ok(Self { certificate, world, frame, layers, entries })
    }

    fn check(mut self) -> Result<()> {
        let space = self.world.work.space();
        for entry in self.entries.clone() {
            self.closure(entry)?;
        }
        self.layers.iter_mut().for_each(Layer::forget);
        self.world.work.reset(space);
        let mut groups = Groups::new(self.world, &self.frame);
        let mut allows = Vec::new();
        for (number, rule) in self.certificate.policy.iter().enumerate().filter(|rule| rule.1.allow) {
            allows.push(groups.covered(rule, &format!("policy[{number}]"))?);
        }
        let marks: Vec<&Runs> = self.entries.iter().map(|entry| &entry.sources).collect();
        let batch = self.certificate.shape.batch;
        let denies = self.certificate.policy.iter().enumerate().filter(|rule| !rule.1.allow);
        for (nth, (number, rule)) in denies.enumerate() {
            let at = nth * batch + self.frame.row;
            let claim = &self.certificate.claims[at];
            let space = self.world.work.space();
            let covered = groups.covered(rule, &format!("policy[{number}]"))?;
            let field = |name: &str| format!("rules[{at}].{name}");
            for (name, given, set) in
                [("sources", claim.sources, &covered.sources), ("targets", claim.targets, &covered.targets)]
            {
                if given != count(set) {
                    return Err(wrong(field(name), given.to_string(), format!("{} tokens", count(set))));
                }
            }
            let classes = classes(&covered, &allows, &marks, self.world.work)?;
            let pairs: i128 = classes.iter().map(Class::pairs).sum();
            if i128::from(claim.pairs) != pairs {
                return Err(wrong(field("pairs"), claim.pairs.to_string(), format!("{pairs} denied pairs")));
            }
            if claim.violated {
                self.violated(claim, &classes, &field)?
            } else {
                self.kept(claim, &classes, &field)?
            }
            self.world.work.reset(space);
        }
        Ok(())
    }

    /// Checks one entry of the certificate's field `reach` (a set of sources with the tokens that they influence after
    /// each layer), for every layer. The set after a layer must contain the set before this layer, all tokens that read
    /// a token of the set before the layer, and no others.
    fn closure(&mut self, entry: &Entry) -> Result<()> {
        let nothing = Runs::new();
        // For each distinct mask, a set of tokens. The checks of earlier layers with this mask have shown that query
        // rows outside the later sets do not read these tokens.
        let mut done: Vec<Option<&Runs>> = vec![None; self.layers.len()];
        let mut runs = entry.after.iter();
        let (mut left, mut from) = match runs.next() {
            Some((times, set)) => (times - 1, set),
            None => return Ok(()),
        };
        for (number, &of) in self.certificate.layer_of.iter().enumerate() {
            let mut to = from;
            if left > 0 {
                left -= 1;
            } else if let Some((times, set)) = runs.next() {
                (left, to) = (times - 1, set);
            }
            let known = done[of].unwrap_or(&nothing);
            if !(std::ptr::eq(known, from) && std::ptr::eq(from, to)) {
                let found = self.layers[of].step(&self.frame, from, to, known, self.world.work)?;
                found.map_err(|given| {
                    wrong(
                        format!("reach[{}].after", entry.number),
                        format!("wrong tokens after layer {number}: {given}"),
                        "exactly the tokens that were influenced before the layer, and the tokens that read one of them in this layer",
                    )
                })?;
            }
            done[of] = Some(from);
            from = to;
        }
        Ok(())
    }

    /// Checks the claim that a rule is not violated. For each denied pair in `classes`, an entry of the certificate's
    /// field `reach` (a set of sources with the tokens that they influence) must contain the source of the pair among
    /// its sources, and must not contain the target in its set after the last layer. `field` returns the path of a
    /// field of the claim, for error messages.
    fn kept(&self, claim: &Claim, classes: &[Class], field: &dyn Fn(&str) -> String) -> Result<()> {
        if claim.reached_pairs != 0 || !claim.exact {
            return Err(wrong(
                field("reached_pairs"),
                claim.reached_pairs.to_string(),
                "0 with `counted` \"exact\", because the certificate states that the rule is not violated",
            ));
        }
        if claim.witness.is_some() {
            return Err(wrong(
                field("witness"),
                "a path",
                "no path (null), because the certificate states that the rule is not violated",
            ));
        }
        for class in classes {
            let mut open = class.targets.clone();
            let several = count(&class.sources) > 1;
            let own = class.sources[0].0;
            let shut = |open: &Runs| open.is_empty() || (!several && open[..] == [(own, own + 1)]);
            for &mark in &class.marks {
                if shut(&open) {
                    break;
                }
                let last = self.entries[mark].last();
                self.world.work.spend(open.len() + last.len())?;
                open = meet(&open, last);
            }
            if !shut(&open) {
                let (source, target) = open_pair(&class.sources, &open);
                let given = format!(
                    "false, but no entry of `reach` proves that token {source} does not influence token {target}"
                );
                return Err(wrong(
                    field("violated"),
                    given,
                    "an entry that has the source token in `sources`, and lacks the target token after the last layer",
                ));
            }
        }
        Ok(())
    }

    /// Checks the claim that a rule is violated: the witness must be a valid path for a denied pair. If the claim
    /// states an exact number of violated pairs, this number must be correct. `field` returns the path of a field of
    /// the claim, for error messages.
    fn violated(&self, claim: &Claim, classes: &[Class], field: &dyn Fn(&str) -> String) -> Result<()> {
        let expected = "a path from the source of a denied pair to the target of the pair";
        let witness = claim.witness.as_ref().ok_or_else(|| wrong(field("witness"), "null", expected))?;
        self.walk(witness, field)?;
        let target = witness.steps.last().map_or(witness.source, |step| step.1) as i64;
        let source = witness.source as i64;
        let class = classes.iter().find(|class| holds(&class.sources, source));
        if source == target || !class.is_some_and(|class| holds(&class.targets, target)) {
            return Err(wrong(
                field("witness"),
                format!("a path from token {source} to token {target}"),
                "a path for a pair that the rule denies",
            ));
        }
        let (batch, kv_len) = (self.certificate.shape.batch as i64, self.frame.kv_len);
        let small = (kv_len <= 1024 && batch.saturating_mul(kv_len) <= 4096) || claim.sources <= 32;
        if claim.exact != small {
            let expected = if small { "\"exact\" at this size" } else { "\"at least\" at this size" };
            return Err(wrong(field("counted"), if claim.exact { "exact" } else { "at least" }, expected));
        }
        if !small {
            return match claim.reached_pairs {
                reached if (1..=claim.pairs).contains(&reached) => Ok(()),
                reached => Err(wrong(field("reached_pairs"), reached.to_string(), format!("1 to {}", claim.pairs))),
            };
        }
        let reached = self.reached(classes, field)?;
        if i128::from(claim.reached_pairs) != reached {
            return Err(wrong(
                field("reached_pairs"),
                claim.reached_pairs.to_string(),
                format!("{reached} violated pairs"),
            ));
        }
        Ok(())
    }

    /// Returns the number of denied pairs in `classes` whose source influences the target. For each source token with a
    /// denied target, the certificate's field `reach` (sets of sources with the tokens that they influence) must have
    /// an entry with only this source.
    fn reached(&self, classes: &[Class], field: &dyn Fn(&str) -> String) -> Result<i128> {
        let mut reached = 0;
        for class in classes {
            for s in class.sources.iter().flat_map(|run| run.0..run.1) {
                let own = [(s, s + 1)];
                self.world.work.spend(class.targets.len())?;
                let targets = minus(&class.targets, &own);
                if targets.is_empty() {
                    continue;
                }
                let mut alone = class.marks.iter().map(|&mark| self.entries[mark]).filter(|entry| entry.sources == own);
                let missing = || {
                    wrong(
                        field("reached_pairs"),
                        "an exact number",
                        format!("an entry of `reach` whose only source is token {s}"),
                    )
                };
                let entry = alone.next().ok_or_else(missing)?;
                reached += i128::from(count(&meet(&targets, entry.last())));
            }
        }
        Ok(reached)
    }

    /// Checks every step of a witness: the layers ascend, and each token reads the token of the previous step. `field`
    /// returns the path of a field of the claim, for error messages.
    fn walk(&self, witness: &Witness, field: &dyn Fn(&str) -> String) -> Result<()> {
        let (mut token, mut next) = (witness.source as i64, 0);
        for &(layer, reader) in &witness.steps {
            let reader = reader as i64;
            if layer < next {
                return Err(wrong(
                    field("witness"),
                    format!("a step in layer {layer} after a step in layer {}", next - 1),
                    "ascending layers",
                ));
            }
            let mask = &self.layers[self.certificate.layer_of[layer]];
            let reads = match self.frame.row_of(reader) {
                Some(i) => mask.reads(&self.frame, i, token, self.world.work)?,
                None => false,
            };
            if !reads {
                let given = format!("the step from token {token} to token {reader} in layer {layer}");
                return Err(wrong(
                    field("witness"),
                    given,
                    "a token that reads the previous token of the path in this layer",
                ));
            }
            (token, next) = (reader, layer + 1);
        }
        Ok(())
    }
}

/// Returns a pair of different tokens `(source, target)` for an error message. The source is a token of `sources`; the
/// target is a token of `open`, the denied targets that no entry of `reach` excludes.
fn open_pair(sources: &Runs, open: &Runs) -> (i64, i64) {
    let target = open[0].0;
    let other = sources.iter().flat_map(|run| [run.0, run.1 - 1]).find(|&source| source != target);
    (other.unwrap_or(sources[0].0), target)
}

fn report(certificate: &Certificate) -> Report {
    let rule = |claim: &Claim| RuleReport {
        rule: claim.rule.clone(),
        batch: claim.row,
        sources: claim.sources as u64,
        targets: claim.targets as u64,
        pairs: claim.pairs as u64,
        violated: claim.violated,
        reached_pairs: claim.exact.then_some(claim.reached_pairs as u64),
        witness: claim.witness.clone(),
    };
    Report {
        holds: certificate.holds,
        pairs: certificate.pairs as u64,
        policy: certificate.policy.iter().map(|rule| rule.text.clone()).collect(),
        rules: certificate.claims.iter().map(rule).collect(),
        batch: certificate.shape.batch,
        heads: certificate.shape.heads,
        tokens: certificate.shape.kv_len as usize,
        layers: certificate.layers.len(),
        masks: certificate.masks.len(),
        closures: certificate.reach.len(),
        not_covered: crate::check::certificate::NOT_COVERED.iter().map(|way| way.to_string()).collect(),
        sha256: certificate.sha256.clone(),
    }
}

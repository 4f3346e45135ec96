//! [`Policy`]: who must not reach whom, and whether a stack keeps to it.

use super::{Cut, Flow, Path};
use crate::interval::IntervalSet;
use crate::{Error, Facts};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// A set of tokens as a policy names it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Group {
    /// `label(pii)`
    Label(String),
    /// `document(2)`: the number from 0 on.
    Document(usize),
    /// `document(i)`: every document in turn, the same one wherever the letter is the same.
    EachDocument(char),
    /// `level(3)`
    Level(i64),
    /// `tokens(3..9)`, `token(3)`
    Tokens(u32, u32),
    /// `output`: every token but the sources.
    Output,
    /// `all`
    All,
}

/// One line of a policy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rule {
    /// True for `allow`: an exception to what is denied.
    pub allow: bool,
    /// Whose content.
    pub from: Group,
    /// Whose outputs.
    pub to: Group,
}

/// Lines such as `deny: label(pii) -> output`, `deny: document(i) -> document(j)`, `allow: label(pii) -> label(summary)`.
///
/// Nothing is denied that no line denies. An `allow` line takes its sources and targets out of every denial. `#` begins a
/// remark.
///
/// ```
/// use noren_mask::flow::{Fill, Flow, Policy};
/// use noren_mask::{Facts, Shape, atoms::*};
/// let policy: Policy = "deny: label(pii) -> output".parse()?;
/// let facts = Facts::new().label("pii", [2u64]);
/// let hidden = causal() - keys(2..3) & !queries(2..3);
/// let flow = Flow::of_stack(&vec![hidden; 6], &Shape::square(8), &facts, Fill::Nothing)?;
/// assert!(policy.check(&flow)?.holds());
/// # Ok::<(), noren_mask::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Policy {
    /// In the order of the lines.
    pub rules: Vec<Rule>,
}

/// A way that a policy denies and the stack has.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Violation {
    /// The line.
    pub rule: String,
    /// The batch row.
    pub batch: usize,
    /// Number of tokens that must not be reached and are.
    pub reached: u64,
    /// How one of them is.
    pub path: Path,
    /// The layer where cutting is cheapest, and its cells, where one layer is enough.
    pub cut: Option<(usize, u64)>,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} token(s) of batch row {} reached: {}", self.rule, self.reached, self.batch, self.path)?;
        match self.cut {
            Some((layer, cells)) => write!(f, "; cheapest cut: {cells} cell(s) in layer {layer}"),
            None => write!(f, "; no single layer is enough to cut it: hide the sources in all of them"),
        }
    }
}

/// What a policy says of a stack.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Ruling {
    /// One for each denied pair of groups and batch row that is reached.
    pub violations: Vec<Violation>,
    /// Pairs of groups that were looked at.
    pub checked: usize,
}

impl Ruling {
    /// True when nothing that is denied can happen.
    pub fn holds(&self) -> bool {
        self.violations.is_empty()
    }
}

impl Policy {
    /// Holds every denial against the stack.
    ///
    /// # Errors
    /// Labels, documents or levels that the facts do not have.
    pub fn check(&self, flow: &Flow) -> Result<Ruling, Error> {
        let mut ruling = Ruling::default();
        for batch in 0..flow.shape().batch_len() {
            let allowed: Vec<(IntervalSet, IntervalSet)> =
                self.pairs(flow, batch, true)?.into_iter().map(|(_, a, b)| (a, b)).collect();
            for (rule, sources, targets) in self.pairs(flow, batch, false)? {
                ruling.checked += 1;
                let exempt = |sources: &IntervalSet, targets: IntervalSet| {
                    let all = |(from, _): &&(IntervalSet, IntervalSet)| sources.minus(from).is_empty();
                    allowed.iter().filter(all).fold(targets, |t, (_, to)| t.minus(to))
                };
                let targets = exempt(&sources, targets).minus(&sources);
                if sources.is_empty() || targets.is_empty() {
                    continue;
                }
                let reach = flow.reach(batch, &sources);
                let reached = reach.last().map(|last| last.intersect(&targets)).unwrap_or_default();
                if reached.is_empty() {
                    continue;
                }
                let Some(path) = flow.witness(batch, &sources, &reached) else { continue };
                let cuts = flow.cuts(batch, &sources, &reached);
                let cut = cuts.iter().filter(|c: &&Cut| c.enough).min_by_key(|c| c.cells).map(|c| (c.layer, c.cells));
                ruling.violations.push(Violation {
                    rule: rule.to_string(),
                    batch,
                    reached: reached.count(),
                    path,
                    cut,
                });
            }
        }
        Ok(ruling)
    }

    /// The sets of every rule of one sort, letters replaced by documents.
    fn pairs(&self, flow: &Flow, batch: usize, allow: bool) -> Result<Vec<(&Rule, IntervalSet, IntervalSet)>, Error> {
        let mut out = Vec::new();
        let documents = documents(flow.facts(), batch);
        for rule in self.rules.iter().filter(|r| r.allow == allow) {
            let letters = |g: &Group| matches!(g, Group::EachDocument(_));
            let count = documents.as_ref().map_or(0, Vec::len);
            if (letters(&rule.from) || letters(&rule.to)) && count == 0 {
                return Err(Error::fact(
                    "documents",
                    format!("`{rule}` speaks of documents: give their lengths in the facts"),
                ));
            }
            let numbers = |g: &Group| -> Vec<Group> {
                match g {
                    Group::EachDocument(_) => (0..count).map(Group::Document).collect(),
                    other => vec![other.clone()],
                }
            };
            let same = rule.from == rule.to;
            for from in numbers(&rule.from) {
                let sources = set(&from, flow, batch, None)?;
                if letters(&rule.to) && !same {
                    // All other documents at once: one pass for each source.
                    let others = (0..count).map(Group::Document).filter(|g| *g != from);
                    let targets = others
                        .map(|g| set(&g, flow, batch, None))
                        .try_fold(IntervalSet::new(), |all, s| s.map(|s| all.union(&s)))?;
                    out.push((rule, sources, targets));
                } else if letters(&rule.to) {
                    let targets = set(&from, flow, batch, None)?;
                    out.push((rule, sources, targets));
                } else {
                    let targets = set(&rule.to, flow, batch, Some(&sources))?;
                    out.push((rule, sources, targets));
                }
            }
        }
        Ok(out)
    }
}

/// The runs of a batch row's documents.
fn documents(facts: &Facts, batch: usize) -> Option<Vec<(u32, u32)>> {
    let lengths = facts.documents.as_ref()?.get(batch)?;
    let mut at = 0u32;
    Some(
        lengths
            .iter()
            .map(|n| {
                let start = at;
                at = at.saturating_add(u32::try_from(*n).unwrap_or(u32::MAX));
                (start, at)
            })
            .collect(),
    )
}

/// The tokens of a group.
fn set(group: &Group, flow: &Flow, batch: usize, sources: Option<&IntervalSet>) -> Result<IntervalSet, Error> {
    let n = flow.tokens();
    let facts = flow.facts();
    Ok(match group {
        Group::All => IntervalSet::all(n),
        Group::Output => sources.map_or_else(|| IntervalSet::all(n), |s| s.complement(n)),
        Group::Tokens(start, end) if *end <= n => IntervalSet::from(*start..*end),
        Group::Tokens(start, end) => {
            return Err(Error::fact("policy", format!("tokens({start}..{end}): there are {n} tokens")));
        }
        Group::Label(name) => {
            let Some(spans) = facts.labels.get(name).and_then(|rows| rows.get(batch)) else {
                let known: Vec<&str> = facts.label_names().collect();
                return Err(Error::fact(
                    "policy",
                    format!("the label {name:?} is not known: the facts have {known:?}"),
                ));
            };
            let clamp = |x: u64| u32::try_from(x).unwrap_or(u32::MAX).min(n);
            spans.iter().map(|s| clamp(s.start)..s.end.map_or(n, clamp)).filter(|r| r.start < r.end).collect()
        }
        Group::Document(number) => {
            let all = documents(facts, batch).unwrap_or_default();
            let Some(&(start, end)) = all.get(*number) else {
                return Err(Error::fact(
                    "policy",
                    format!("document({number}): batch row {batch} has {} documents", all.len()),
                ));
            };
            IntervalSet::from(start.min(n)..end.min(n))
        }
        Group::Level(level) => {
            let Some(levels) = facts.levels.as_ref().and_then(|rows| rows.get(batch)) else {
                return Err(Error::fact("policy", format!("level({level}): the facts give no levels")));
            };
            let at = levels.iter().take(n as usize).enumerate().filter(|(_, l)| *l == level);
            at.map(|(i, _)| i as u32..i as u32 + 1).collect()
        }
        Group::EachDocument(_) => IntervalSet::new(),
    })
}

impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Group::Label(name) => write!(f, "label({name})"),
            Group::Document(n) => write!(f, "document({n})"),
            Group::EachDocument(letter) => write!(f, "document({letter})"),
            Group::Level(level) => write!(f, "level({level})"),
            Group::Tokens(a, z) if z.checked_sub(*a) == Some(1) => write!(f, "token({a})"),
            Group::Tokens(a, z) => write!(f, "tokens({a}..{z})"),
            Group::Output => f.write_str("output"),
            Group::All => f.write_str("all"),
        }
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} -> {}", if self.allow { "allow" } else { "deny" }, self.from, self.to)
    }
}

/// One rule a line, as it parses.
impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.rules.iter().try_for_each(|rule| writeln!(f, "{rule}"))
    }
}

impl FromStr for Policy {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let mut rules = Vec::new();
        for (number, line) in text.lines().enumerate() {
            let line = line.split('#').next().unwrap_or("").trim();
            if !line.is_empty() {
                let rule =
                    rule(line).map_err(|problem| Error::fact("policy", format!("line {}: {problem}", number + 1)))?;
                rules.push(rule);
            }
        }
        Ok(Policy { rules })
    }
}

fn rule(line: &str) -> Result<Rule, String> {
    let shape = || format!("`{line}`: expected `deny: SOURCE -> TARGET` or `allow: SOURCE -> TARGET`");
    let (word, rest) = line.split_once(':').ok_or_else(shape)?;
    let (from, to) = rest.split_once("->").ok_or_else(shape)?;
    let allow = match word.trim() {
        "deny" => false,
        "allow" => true,
        _ => return Err(shape()),
    };
    Ok(Rule { allow, from: group(from.trim())?, to: group(to.trim())? })
}

fn group(text: &str) -> Result<Group, String> {
    let known = "known are label(NAME), document(N), document(i), level(N), token(N), tokens(A..B), output and all";
    let (name, argument) = match text.strip_suffix(')').and_then(|t| t.split_once('(')) {
        Some((name, argument)) => (name.trim(), argument.trim().trim_matches('"')),
        None => (text, ""),
    };
    let number =
        |text: &str| text.trim().parse::<u32>().map_err(|_| format!("`{text}` in `{text}` is no number: {known}"));
    match (name, argument) {
        ("output" | "outputs", "") => Ok(Group::Output),
        ("all", "") => Ok(Group::All),
        ("label", _) => label(text).map(Group::Label),
        ("level", level) => level.parse().map(Group::Level).map_err(|_| format!("`{text}`: a level is a whole number")),
        ("token", token) => {
            let first = number(token)?;
            let end = first.checked_add(1).ok_or_else(|| format!("`{text}`: no sequence has that many tokens"))?;
            Ok(Group::Tokens(first, end))
        }
        ("tokens", range) => {
            let (a, z) =
                range.split_once("..").ok_or_else(|| format!("`{text}`: give a range such as tokens(3..9)"))?;
            let (a, z) = (number(a)?, number(z)?);
            if a < z { Ok(Group::Tokens(a, z)) } else { Err(format!("`{text}` is empty")) }
        }
        ("document", letter) if letter.len() == 1 && letter.chars().all(|c| c.is_ascii_alphabetic()) => {
            Ok(Group::EachDocument(letter.chars().next().unwrap_or('i')))
        }
        ("document", n) => number(n).map(|n| Group::Document(n as usize)),
        _ => Err(format!("`{text}` is not known: {known}")),
    }
}

/// Reads NAME of `label(NAME)` or `label("NAME")`. A name that would be read otherwise once printed is refused.
fn label(text: &str) -> Result<String, String> {
    let given = text.split_once('(').map_or("", |(_, argument)| argument).strip_suffix(')').unwrap_or("").trim();
    let name = given.strip_prefix('"').and_then(|name| name.strip_suffix('"')).unwrap_or(given);
    match name.is_empty() || name.contains('"') || name.trim() != name {
        true => Err(format!(
            "`{text}`: a label in a policy has a name without quotes in it and without spaces around it, as in label(pii)"
        )),
        false => Ok(name.to_string()),
    }
}

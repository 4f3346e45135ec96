//! The policy language, and the denied pairs of a batch row. A policy consists of rules: a rule denies or allows that
//! its source tokens influence its target tokens.

use crate::cells::node::World;
use crate::facts::frame::Frame;
use crate::read::lex::{Token, tokens};
use crate::read::refusal::{Result, wrong};
use crate::runs::{Runs, count, meet, minus, normal};
use crate::work::Work;
use std::collections::{BTreeMap, BTreeSet};

/// The tokens on one side of a policy rule, such as `label(pii)` or `document(0)`.
#[derive(Debug, Clone, PartialEq)]
enum Group {
    Label(String),
    Document(i64),
    /// The group `document(i)`, where `i` is a name that stands for any document. The value is the name. In one rule,
    /// equal names mean the same document, and different names mean different documents.
    Each(String),
    Level(i64),
    Tokens(i64, i64),
    Output,
    All,
}

/// One line of a policy.
#[derive(Debug, Clone)]
pub(crate) struct Rule {
    pub(crate) text: String,
    pub(crate) allow: bool,
    /// True if the rule contains `maybe`. The sources or the targets of such a rule may contain no token.
    maybe: bool,
    source: Group,
    target: Group,
}

impl Rule {
    /// Reads one line of a policy. Errors contain `field`, the path of the line in the certificate.
    pub(crate) fn read(text: &str, field: &str) -> Result<Self> {
        let bad = || {
            wrong(
                field,
                text,
                "`deny: A -> B` or `allow: A -> B`, with `maybe` before the colon if `A` or `B` may contain no token",
            )
        };
        let (verb, rest) = text.split_once(':').ok_or_else(bad)?;
        let (allow, maybe) = match verb.split_whitespace().collect::<Vec<_>>()[..] {
            ["deny"] => (false, false),
            ["deny", "maybe"] => (false, true),
            ["allow"] => (true, false),
            ["allow", "maybe"] => (true, true),
            _ => return Err(bad()),
        };
        let sides = rest
            .match_indices("->")
            .find_map(|(at, arrow)| Some((group(&rest[..at])?, group(&rest[at + arrow.len()..])?)));
        match sides {
            Some((source, target)) if source != Group::Output => {
                Ok(Self { text: text.to_string(), allow, maybe, source, target })
            }
            Some(_) => Err(wrong(field, text, "`output` only as the target, after `->`")),
            None => Err(bad()),
        }
    }
}

fn group(text: &str) -> Option<Group> {
    let text = text.trim();
    if text.contains('#') && !text.contains('"') {
        return None; // The text contains a comment.
    }
    let tokens = tokens(text).ok()?;
    let range = |name: &str, a: i64, b: i64| match name {
        "tokens" | "token" => Some(Group::Tokens(a, b)),
        _ => None,
    };
    let small = |value: i128| i64::try_from(value).ok();
    Some(match &tokens[..] {
        [Token::Name(name), Token::End] => match name.as_str() {
            "output" => Group::Output,
            "all" => Group::All,
            _ => return None,
        },
        [Token::Name(name), Token::Sign('('), Token::Int(a), Token::Sign(')'), Token::End] => {
            let a = small(*a)?;
            match name.as_str() {
                "document" => Group::Document(a),
                "level" => Group::Level(a),
                "label" => Group::Label(inner(text)?),
                "token" => range(name, a, a.checked_add(1)?)?,
                _ => return None,
            }
        }
        [Token::Name(name), Token::Sign('('), Token::Sign('-'), Token::Int(a), Token::Sign(')'), Token::End]
            if name == "level" =>
        {
            Group::Level(small(-*a)?)
        }
        [
            Token::Name(name),
            Token::Sign('('),
            Token::Int(a),
            Token::Range,
            Token::Int(b),
            Token::Sign(')'),
            Token::End,
        ] if name == "tokens" => range(name, small(*a)?, small(*b)?)?,
        [Token::Name(name), Token::Sign('('), Token::Name(letter), Token::Sign(')'), Token::End]
            if name == "document" =>
        {
            Group::Each(letter.clone())
        }
        [Token::Name(name), Token::Sign('('), Token::Text(label), Token::Sign(')'), Token::End] if name == "label" => {
            Group::Label(label.clone())
        }
        [Token::Name(name), Token::Sign('('), .., Token::Sign(')'), Token::End] if name == "label" => {
            Group::Label(inner(text)?)
        }
        _ => return None,
    })
}

/// Returns the text between the first `(` and the last `)`; `None` if the text is empty or contains parentheses or
/// quotation marks.
fn inner(text: &str) -> Option<String> {
    let (_, rest) = text.split_once('(')?;
    let (inner, _) = rest.rsplit_once(')')?;
    Some(inner.trim().to_string()).filter(|inner| !inner.is_empty() && !inner.contains(['(', ')', '"']))
}

/// The pairs of tokens that a rule covers in one batch row. An entry `(sources, targets)` of `blocks` covers each
/// source of this entry with each target of this entry. A token is a source in at most one entry.
#[derive(Debug)]
pub(crate) struct Covered {
    pub(crate) sources: Runs,
    pub(crate) targets: Runs,
    blocks: Vec<(Runs, Runs)>,
}

/// A set of source tokens with the same denied target tokens. If a token is both a source and a target, its pair with
/// itself is not denied.
#[derive(Debug)]
pub(crate) struct Class {
    pub(crate) sources: Runs,
    pub(crate) targets: Runs,
    /// The indices, ascending, of those sets in the argument `marks` of the function `classes` that contain the sources
    /// of this class. Every other set of `marks` contains none of these sources.
    pub(crate) marks: Vec<usize>,
}

impl Class {
    /// Returns the number of denied pairs, without pairs of a token and itself.
    pub(crate) fn pairs(&self) -> i128 {
        let (sources, targets) = (count(&self.sources), count(&self.targets));
        i128::from(sources) * i128::from(targets) - i128::from(count(&meet(&self.sources, &self.targets)))
    }
}

/// A lookup of the tokens that belong to a group of a policy rule, such as `document(0)`, in one batch row.
pub(crate) struct Groups<'a> {
    pub(crate) world: &'a World<'a>,
    pub(crate) frame: &'a Frame,
    /// The tokens of each document; `None` until a rule needs them.
    documents: Option<Vec<Runs>>,
}

impl<'a> Groups<'a> {
    pub(crate) fn new(world: &'a World<'a>, frame: &'a Frame) -> Self {
        Self { world, frame, documents: None }
    }

    /// Returns the pairs of tokens that `rule` covers. Errors contain `field`, the path of the rule in the certificate.
    pub(crate) fn covered(&mut self, rule: &Rule, field: &str) -> Result<Covered> {
        let (sources, targets) = (self.members(&rule.source, rule, field)?, self.members(&rule.target, rule, field)?);
        for (side, set) in [("source", &sources), ("target", &targets)] {
            if set.is_empty() && !rule.maybe {
                let given = format!("{}: a {side} without tokens in batch row {}", rule.text, self.frame.row);
                return Err(wrong(
                    field,
                    given,
                    "at least one token on this side of the rule, or `maybe` before the colon",
                ));
            }
        }
        let blocks = match (&rule.source, &rule.target) {
            (Group::Each(a), Group::Each(b)) => {
                let work = self.world.work;
                let mut blocks = Vec::new();
                for own in self.documents(field)?.iter().filter(|document| !document.is_empty()) {
                    work.spend(targets.len())?;
                    let others = if a == b { own.clone() } else { minus(&targets, own) };
                    work.keep(own.len() + others.len() + 4)?;
                    blocks.push((own.clone(), others));
                }
                blocks
            }
            _ => vec![(sources.clone(), targets.clone())],
        };
        Ok(Covered { sources, targets, blocks })
    }

    fn documents(&mut self, field: &str) -> Result<&Vec<Runs>> {
        if self.documents.is_none() {
            let spans = self.world.document_spans(None, self.frame, field)?;
            let whole = vec![(0, self.frame.kv_len)];
            let real = self.frame.real.as_ref().unwrap_or(&whole);
            self.world.work.keep(2 * spans.len())?;
            let tokens = |span: &(i64, i64)| {
                let keys = if span.0 < span.1 { self.frame.keys(&[*span]) } else { Runs::new() };
                self.world.work.keep(keys.len()).map(|()| meet_near(&keys, real))
            };
            self.documents = Some(spans.iter().map(tokens).collect::<Result<Vec<_>>>()?);
        }
        self.documents.as_ref().ok_or_else(|| wrong(field, "no documents", "facts with `documents`"))
    }

    fn members(&mut self, group: &Group, rule: &Rule, field: &str) -> Result<Runs> {
        let frame = self.frame;
        let missing = |what: &str| wrong(field, rule.text.clone(), format!("facts with {what}"));
        Ok(match group {
            Group::All => vec![(0, frame.kv_len)],
            Group::Output => frame.keys(&[(frame.query(0), frame.query(frame.q_len))]),
            Group::Tokens(a, b) if a <= b && *b <= frame.kv_len => normal(vec![(*a, *b)]),
            Group::Tokens(..) => return Err(wrong(field, rule.text.clone(), format!("tokens below {}", frame.kv_len))),
            Group::Label(name) => frame.keys(&self.world.label(name, frame.row).ok_or_else(|| missing("the label"))?),
            Group::Level(level) => {
                let levels = self.world.levels(frame)?.ok_or_else(|| missing("`levels`"))?;
                let carrying =
                    levels.iter().enumerate().filter(|at| *at.1 == *level).map(|at| (at.0 as i64, at.0 as i64 + 1));
                frame.keys(&normal(carrying.collect()))
            }
            Group::Document(number) => {
                let documents = self.documents(field)?;
                usize::try_from(*number).ok().and_then(|number| documents.get(number)).cloned().unwrap_or_default()
            }
            Group::Each(_) => normal(self.documents(field)?.concat()),
        })
    }
}

/// Returns the intersection of two sets, each a sorted list of runs (half-open ranges of tokens). Of the list `long`,
/// only the runs between the first start and the last end of `short` are read.
fn meet_near(short: &[(i64, i64)], long: &[(i64, i64)]) -> Runs {
    let (Some(first), Some(last)) = (short.first(), short.last()) else { return Runs::new() };
    let (from, to) = (long.partition_point(|run| run.1 <= first.0), long.partition_point(|run| run.0 < last.1));
    meet(short, &long[from..to.max(from)])
}

/// Returns the pairs of tokens that `deny` covers and that no entry of `allows` covers, in classes of sources with
/// equal targets. Each set of `marks` has the sources of one `reach` entry in the certificate. Classes are so small
/// that each set of `marks` contains all sources of a class, or none of them.
pub(crate) fn classes(deny: &Covered, allows: &[Covered], marks: &[&Runs], work: &Work) -> Result<Vec<Class>> {
    // The starts and ends of all runs: (position, true at a start and false at an end, kind of the set, index of the
    // set). The kind is 0 for `deny`, 1 for `allows` and 2 for `marks`.
    let mut events: Vec<(i64, bool, u8, usize)> = Vec::new();
    let allowed: Vec<&(Runs, Runs)> = allows.iter().flat_map(|allow| &allow.blocks).collect();
    let deny_sets = deny.blocks.iter().map(|block| &block.0).enumerate().map(|set| (0, set));
    let allow_sets = allowed.iter().map(|block| &block.0).enumerate().map(|set| (1, set));
    let mark_sets = marks.iter().copied().enumerate().map(|set| (2, set));
    for (kind, (number, set)) in deny_sets.chain(allow_sets).chain(mark_sets) {
        work.keep(2 * set.len())?;
        events.extend(set.iter().flat_map(|run| [(run.0, true, kind, number), (run.1, false, kind, number)]));
    }
    events.sort_unstable();
    let mut active: [BTreeSet<usize>; 3] = Default::default();
    let mut found: BTreeMap<(usize, Vec<usize>, Vec<usize>), Runs> = BTreeMap::new();
    for (at, event) in events.iter().enumerate() {
        let set = &mut active[event.2 as usize];
        if event.1 {
            set.insert(event.3)
        } else {
            set.remove(&event.3)
        };
        let until = events.get(at + 1).map_or(event.0, |next| next.0);
        if let (Some(&block), true) = (active[0].first(), until > event.0) {
            let key =
                (block, active[1].iter().copied().collect::<Vec<_>>(), active[2].iter().copied().collect::<Vec<_>>());
            work.keep(key.1.len() + key.2.len())?;
            found.entry(key).or_default().push((event.0, until));
        }
    }
    let mut out = Vec::with_capacity(found.len());
    let mut last: Option<(usize, Vec<usize>, Runs)> = None;
    for ((block, allows, marks), sources) in found {
        let targets = match last.take() {
            Some((same, with, targets)) if same == block && with == allows => targets,
            _ => {
                let mut targets = deny.blocks[block].1.clone();
                for &allow in &allows {
                    work.spend(targets.len() + allowed[allow].1.len())?;
                    targets = minus(&targets, &allowed[allow].1);
                }
                targets
            }
        };
        work.keep(targets.len())?;
        out.push(Class { sources: normal(sources), targets: targets.clone(), marks });
        last = Some((block, allows, targets));
    }
    Ok(out)
}

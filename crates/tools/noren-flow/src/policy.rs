//! [`Policy`]: lines that deny the influence of source tokens on target tokens.

use noren_mask::Error;
use std::fmt;
use std::str::FromStr;

/// A set of tokens in a policy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Group {
    /// `label(pii)`: the tokens that have the label `pii` in the facts (data given with a mask).
    Label(String),
    /// `document(2)`: the non-padding tokens of document 2. The first document is document 0.
    Document(usize),
    /// `document(i)`: every document. In one line, equal letters denote the same document, and different letters denote
    /// different documents.
    EachDocument(char),
    /// `level(3)`: tokens with the clearance level 3 in the facts (data given with a mask).
    Level(i64),
    /// `tokens(3..9)`: the tokens from the first key index to the second (excluded). `token(3)` means `tokens(3..4)`.
    Tokens(u32, u32),
    /// `output`: every token that is a query. This group is only allowed as the target of a rule.
    Output,
    /// `all`: every token.
    All,
}

/// One line of a policy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rule {
    /// True for an `allow` line, which is an exception to `deny` lines; false for a `deny` line.
    pub allow: bool,
    /// True if the line contains `maybe`, as in `deny maybe: ...`: its groups may then contain no token.
    pub maybe: bool,
    /// The source tokens.
    pub from: Group,
    /// The target tokens, whose outputs are protected.
    pub to: Group,
}

/// Lines such as `deny: label(pii) -> output`, `deny: document(i) -> document(j)`, `allow: label(pii) -> label(summary)`.
///
/// A `deny` line denies all pairs of a source token and a different target token in one batch row. An `allow` line removes pairs from all `deny`
/// lines. A group without tokens is an error unless the line has `maybe`, as in `deny maybe: label(pii) -> output`. `#` begins a comment.
///
/// ```
/// use noren_flow::{Fill, Flow, Policy};
/// use noren_mask::{Facts, Shape, atoms::*};
/// let policy: Policy = "deny: label(pii) -> output".parse()?;
/// let facts = Facts::new().label("pii", [2]);
/// let hidden = causal() - keys(2..3) & !queries(2..3);
/// let flow = Flow::of_stack(&vec![hidden; 6], &Shape::square(8), &facts, Fill::Nothing)?;
/// assert!(policy.check(&flow)?.holds());
/// # Ok::<(), noren_mask::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Policy {
    /// The rules in the order of the lines.
    pub rules: Vec<Rule>,
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
        let (word, maybe) = (if self.allow { "allow" } else { "deny" }, if self.maybe { " maybe" } else { "" });
        write!(f, "{word}{maybe}: {} -> {}", self.from, self.to)
    }
}

/// Writes the policy as text that can be parsed again, with one rule per line.
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
                rules.push(
                    rule(line).map_err(|problem| Error::invalid(format!("policy: line {}: {problem}", number + 1)))?,
                );
            }
        }
        Ok(Policy { rules })
    }
}

fn rule(line: &str) -> Result<Rule, String> {
    let shape = || format!("`{line}`: expected `deny: SOURCE -> TARGET` or `allow: SOURCE -> TARGET`");
    let (words, rest) = line.split_once(':').ok_or_else(shape)?;
    let (from, to) = rest.split_once("->").ok_or_else(shape)?;
    let (allow, maybe) = match words.split_whitespace().collect::<Vec<_>>()[..] {
        ["deny"] => (false, false),
        ["deny", "maybe"] => (false, true),
        ["allow"] => (true, false),
        ["allow", "maybe"] => (true, true),
        _ => return Err(shape()),
    };
    let (from, to) = (group(from.trim())?, group(to.trim())?);
    match from {
        Group::Output => Err(format!("`{line}`: `output` is a target only: name the source, such as `all`")),
        _ => Ok(Rule { allow, maybe, from, to }),
    }
}

fn group(text: &str) -> Result<Group, String> {
    let known = "expected label(NAME), document(N), document(i), level(N), token(N), tokens(A..B), output and all";
    let (name, argument) = match text.strip_suffix(')').and_then(|t| t.split_once('(')) {
        Some((name, argument)) => (name.trim(), argument.trim().trim_matches('"')),
        None => (text, ""),
    };
    let number =
        |part: &str| part.trim().parse::<u32>().map_err(|_| format!("`{part}` in `{text}` is not a number: {known}"));
    match (name, argument) {
        ("output" | "outputs", "") => Ok(Group::Output),
        ("all", "") => Ok(Group::All),
        ("label", _) => label(text).map(Group::Label),
        ("level", level) => {
            level.parse().map(Group::Level).map_err(|_| format!("`{text}`: a clearance level is a whole number"))
        }
        ("token", token) => {
            let first = number(token)?;
            let end = first
                .checked_add(1)
                .ok_or_else(|| format!("`{text}`: the number of this token is too large for a sequence"))?;
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

/// Returns NAME from `label(NAME)` or `label("NAME")`. Returns an error if the name is empty, contains a quotation
/// mark, or begins or ends with a space.
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
